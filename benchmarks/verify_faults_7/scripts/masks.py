"""Blobs are cut out of noise, in bfloat16 where the machine is told to; a border is not counted."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(11)
IGNORE = 255
EPOCHS = 5


class Blobs(Dataset):
    def __init__(self, count, seed, flip):
        g = torch.Generator().manual_seed(seed)
        centre = torch.rand(count, 2, generator=g) * 10 + 3
        radius = torch.rand(count, generator=g) * 2.5 + 2
        place = torch.stack(torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij"))
        distance = (place[None] - centre[:, :, None, None]).norm(dim=1)
        self.mask = (distance < radius[:, None, None]).long()
        self.image = (self.mask + 0.8 * torch.randn(count, 16, 16, generator=g))[:, None]
        self.mask[(distance - radius[:, None, None]).abs() < 0.5] = IGNORE
        self.flip = flip

    def __len__(self):
        return len(self.mask)

    def __getitem__(self, i):
        image, mask = self.image[i], self.mask[i]
        if self.flip and torch.rand(()) < 0.5:
            image, mask = image.flip(-1), mask.flip(-1)
        return image, mask


def block(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU())


class Cutter(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.deep, self.up = block(1, 8), block(8, 16), block(24, 8)
        self.drop = nn.Dropout2d(0.1)
        self.head = nn.Conv2d(8, 2, 1)
        self.side = nn.Conv2d(16, 2, 1)

    def forward(self, x):
        a = self.down(x)
        b = self.drop(self.deep(F.max_pool2d(a, 2)))
        up = F.interpolate(b, scale_factor=2, mode="bilinear", align_corners=False)
        out = self.head(self.up(torch.cat([a, up], 1)))
        return (out, self.side(b)) if self.training else out


def dice(logits, mask):
    keep = (mask != IGNORE).float()
    p = logits.float().softmax(1)[:, 1] * keep
    t = (mask == 1).float()
    return 1 - ((2 * (p * t).sum((1, 2)) + 1) / (p.sum((1, 2)) + t.sum((1, 2)) + 1)).mean()


def build():
    model = Cutter()
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-3, weight_decay=0.02)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    weight = torch.tensor([0.4, 1.6])
    loader = DataLoader(Blobs(150, 4, True), batch_size=12, shuffle=True, drop_last=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, epochs=EPOCHS, steps_per_epoch=len(loader))

    def one(image, mask):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out, side = model(image)
        coarse = mask[:, ::2, ::2]
        loss = F.cross_entropy(out.float(), mask, weight=weight, ignore_index=IGNORE) + dice(out, mask)
        loss = loss + 0.4 * F.cross_entropy(side.float(), coarse, weight=weight, ignore_index=IGNORE)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
        return loss.detach(), norm

    return model, loader, one


def overlap(model, loader):
    model.eval()
    inter = union = torch.zeros(())
    with torch.no_grad():
        for image, mask in loader:
            guess = model(image).argmax(1)
            keep = mask != IGNORE
            inter = inter + ((guess == 1) & (mask == 1) & keep).sum()
            union = union + (((guess == 1) | (mask == 1)) & keep).sum()
    model.train()
    return (inter / union).item()


def main():
    model, loader, one = build()
    valid = DataLoader(Blobs(54, 5, False), batch_size=12)
    for epoch in range(EPOCHS):
        losses, norms = zip(*(one(*batch) for batch in loader))
        print(f"{epoch}: loss {torch.stack(losses).mean():.4f} norm {torch.stack(norms).max():.3f} iou {overlap(model, valid):.4f}")
    torch.save(model.state_dict(), "cutter.pt")


main()
