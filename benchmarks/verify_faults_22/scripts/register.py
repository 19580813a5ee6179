"""Lays one blurred organ over another: a net predicts a field of shifts, the picture is warped by it (VoxelMorph in small)."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


def options():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--epochs", type=int, default=7)
    p.add_argument("--pairs", type=int, default=12, help="pairs in a batch")
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--smooth", type=float, default=1.5)
    p.add_argument("--inverse", type=float, default=0.5, help="weight of the way back")
    p.add_argument("--seed", type=int, default=2)
    return p.parse_args()


def organs(n, seed, size=32):
    """An outline that bulges here and there, with a bright core; and its mask."""
    g = torch.Generator().manual_seed(seed)
    line = torch.linspace(-1, 1, size)
    y, x = torch.meshgrid(line, line, indexing="ij")
    images, masks = [], []
    for _ in range(n):
        cx, cy = (0.25 * torch.randn(2, generator=g)).clamp(-0.4, 0.4).tolist()
        angle = torch.atan2(y - cy, x - cx)
        radius = 0.42 + 0.1 * torch.randn((), generator=g).clamp(-1, 1)
        for k in (2, 3):
            radius = radius + 0.08 * torch.randn((), generator=g) * torch.cos(k * angle + 6.28 * torch.rand((), generator=g))
        far = ((x - cx) ** 2 + (y - cy) ** 2).sqrt()
        images.append(torch.sigmoid(18 * (radius - far)) + 0.6 * torch.sigmoid(18 * (0.4 * radius - far)))
        masks.append((far < radius).float())
    images = torch.stack(images).unsqueeze(1)
    images = images + 0.15 * torch.randn(images.shape, generator=g)
    return images, torch.stack(masks).unsqueeze(1)


def change_light(images):
    """Brightness, contrast and noise of every picture on its own."""
    n = len(images)
    contrast, shift = 0.7 + 0.6 * torch.rand(n, 1, 1, 1), 0.3 * torch.randn(n, 1, 1, 1)
    return images * contrast + shift + 0.05 * torch.randn_like(images)


def conv(cin, cout, stride=1):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.LeakyReLU(0.2))


class Register(nn.Module):
    def __init__(self, c=12):
        super().__init__()
        self.down1, self.down2, self.down3 = conv(2, c), conv(c, 2 * c, 2), conv(2 * c, 2 * c, 2)
        self.up2, self.up1 = conv(4 * c, 2 * c), conv(3 * c, c)
        self.flow = nn.Conv2d(c, 2, 3, padding=1)
        nn.init.normal_(self.flow.weight, std=1e-3)
        nn.init.zeros_(self.flow.bias)

    def forward(self, moving, fixed):
        a = self.down1(torch.cat([moving, fixed], 1))
        b = self.down2(a)
        x = self.down3(b)
        x = self.up2(torch.cat([F.interpolate(x, scale_factor=2.0), b], 1))
        x = self.up1(torch.cat([F.interpolate(x, scale_factor=2.0), a], 1))
        return 0.5 * torch.tanh(self.flow(x))


def warp(image, flow, mode="bilinear"):
    n, _, h, w = image.shape
    y, x = torch.meshgrid(torch.linspace(-1, 1, h), torch.linspace(-1, 1, w), indexing="ij")
    grid = torch.stack([x, y], -1).expand(n, h, w, 2) + flow.permute(0, 2, 3, 1)
    return F.grid_sample(image, grid, mode=mode, padding_mode="border", align_corners=True)


def box(x, k=7):
    return F.conv2d(x, torch.ones(1, 1, k, k) / k**2, padding=k // 2)


def ncc(a, b):
    """One minus the squared local correlation."""
    mean_a, mean_b = box(a), box(b)
    cross = box(a * b) - mean_a * mean_b
    var_a, var_b = box(a * a) - mean_a**2, box(b * b) - mean_b**2
    return 1 - (cross**2 / (var_a * var_b + 1e-3)).mean()


def roughness(flow):
    dy, dx = flow.diff(dim=2), flow.diff(dim=3)
    return (dy**2).mean() + (dx**2).mean()


def objective(model, moving, fixed, opts):
    there = model(moving, fixed)
    back = model(fixed, moving)
    image = ncc(warp(moving, there), fixed) + opts.inverse * ncc(warp(fixed, back), moving)
    smooth = 10 * (roughness(there) + opts.inverse * roughness(back))
    return image + opts.smooth * smooth, image.detach()


@torch.no_grad()
def evaluate(model, images, masks, batch=20):
    model.eval()
    scores = []
    half = len(images) // 2
    for i in range(0, half, batch):
        j = slice(half + i, half + min(i + batch, half))
        i = slice(i, min(i + batch, half))
        flow = model(images[i], images[j])
        warped = warp(masks[i], flow, mode="nearest")
        overlap = (warped * masks[j]).sum((1, 2, 3))
        scores.append(2 * overlap / (warped.sum((1, 2, 3)) + masks[j].sum((1, 2, 3))))
    return torch.cat(scores).mean().item()


def main():
    opts = options()
    torch.set_num_threads(1)
    torch.manual_seed(opts.seed)
    images, _ = organs(192, 10)
    val = organs(80, 11)
    model = Register()
    optimizer = torch.optim.Adam(model.parameters(), lr=opts.lr, betas=(0.9, 0.98))
    batches = len(images) // opts.pairs
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, opts.epochs * batches)
    print(f"before: dice {evaluate(model, *val):.4f}")
    for epoch in range(opts.epochs):
        model.train()
        moving, fixed = torch.randperm(len(images)), torch.randperm(len(images))
        loss_sum, image_sum = 0.0, 0.0
        for b in range(batches):
            part = slice(b * opts.pairs, (b + 1) * opts.pairs)
            loss, image = objective(model, change_light(images[moving[part]]), change_light(images[fixed[part]]), opts)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            loss_sum += loss.item()
            image_sum += image.item()
        print(f"epoch {epoch + 1}: loss {loss_sum / batches:.5f} image {image_sum / batches:.5f} dice {evaluate(model, *val):.4f}")
    torch.save({"model": model.state_dict(), "opts": vars(opts)}, "register.pt")


if __name__ == "__main__":
    main()
