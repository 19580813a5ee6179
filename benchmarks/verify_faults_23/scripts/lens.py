"""Sharpens small pictures: each training patch is cut, flipped, blurred, halved and made noisy on the fly."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, default_collate

SIDE, PATCH, BATCH, EPOCHS, LR = 40, 24, 16, 8, 2e-3
NOISE, NARROW, WIDE = 0.05, 0.5, 1.3


def textures(count, seed):
    """Pictures of a few waves and a few discs, brighter towards the right border."""
    g = torch.Generator().manual_seed(seed)
    y, x = torch.meshgrid(torch.arange(SIDE).float(), torch.arange(SIDE).float(), indexing="ij")
    pictures = torch.zeros(count, 1, SIDE, SIDE)
    for i in range(count):
        picture = 0.3 * x / SIDE
        for _ in range(3):
            turn, length = torch.rand(2, generator=g).tolist()
            turn, length = turn * math.pi, 4 + 12 * length
            picture = picture + 0.12 * torch.sin((x * math.cos(turn) + y * math.sin(turn)) * 2 * math.pi / length)
        for _ in range(4):
            cx, cy, r = (torch.rand(3, generator=g) * torch.tensor([SIDE, SIDE, 6.0])).tolist()
            picture = picture + 0.25 * ((x - cx) ** 2 + (y - cy) ** 2 < (r + 2) ** 2)
        pictures[i, 0] = picture
    return pictures.clamp(0, 1)


def window(width):
    """A 5x5 Gaussian of the width."""
    steps = torch.arange(-2.0, 3.0)
    line = torch.exp(-0.5 * (steps / width) ** 2)
    line = line / line.sum()
    return line[:, None] * line[None, :]


def degrade(sharp, width, noise):
    blurred = F.conv2d(F.pad(sharp[None], (2, 2, 2, 2), mode="reflect"), window(width)[None, None])[0]
    return blurred[:, ::2, ::2] + NOISE * noise


class Patches(Dataset):
    def __init__(self, pictures):
        self.pictures = pictures

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, i):
        picture = self.pictures[i]
        top = torch.randint(0, SIDE - PATCH + 1, (1,)).item()
        left = torch.randint(0, SIDE - PATCH + 1, (1,)).item()
        sharp = picture[:, top : top + PATCH, left : left + PATCH]
        if torch.rand(1) < 0.5:
            sharp = sharp.flip(-1)
        if torch.rand(1) < 0.5:
            sharp = sharp.flip(-2)
        width = NARROW + (WIDE - NARROW) * torch.rand(1)
        coarse = degrade(sharp, width, torch.randn(1, PATCH // 2, PATCH // 2))
        return coarse, sharp


class Validation(Dataset):
    """Middles of pictures, blurred and made noisy always alike."""

    def __init__(self, pictures, seed):
        g = torch.Generator().manual_seed(seed)
        edge = (SIDE - PATCH) // 2
        self.pairs = []
        for picture in pictures:
            sharp = picture[:, edge : edge + PATCH, edge : edge + PATCH]
            width = NARROW + (WIDE - NARROW) * torch.rand(1, generator=g)
            self.pairs.append((degrade(sharp, width, torch.randn(1, PATCH // 2, PATCH // 2, generator=g)), sharp))

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        return self.pairs[i]


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.one = nn.Conv2d(channels, channels, 3, padding=1)
        self.two = nn.Conv2d(channels, channels, 3, padding=1)
        self.scale = nn.Parameter(torch.tensor(0.2))

    def forward(self, x):
        return x + self.scale * self.two(F.relu(self.one(x)))


class Sharpener(nn.Module):
    def __init__(self, channels=16, depth=3):
        super().__init__()
        self.head = nn.Conv2d(1, channels, 3, padding=1)
        self.body = nn.Sequential(*[Block(channels) for _ in range(depth)])
        self.tail = nn.Conv2d(channels, 4, 3, padding=1)

    def forward(self, coarse):
        h = self.head(coarse)
        fine = F.pixel_shuffle(self.tail(self.body(h) + h), 2)
        return fine + F.interpolate(coarse, scale_factor=2, mode="bilinear", align_corners=False)


def criterion(made, sharp):
    edges = (made.diff(dim=-1) - sharp.diff(dim=-1)).abs().mean() + (made.diff(dim=-2) - sharp.diff(dim=-2)).abs().mean()
    return F.l1_loss(made, sharp) + 0.5 * edges


@torch.no_grad()
def psnr(model, loader):
    model.eval()
    total, count = 0.0, 0
    for coarse, sharp in loader:
        error = (model(coarse).clamp(0, 1) - sharp).square().mean(dim=(1, 2, 3))
        total += (-10 * error.log10()).sum().item()
        count += len(sharp)
    return total / count


def main():
    torch.set_num_threads(1)
    torch.manual_seed(41)
    train_loader = DataLoader(Patches(textures(400, 1)), BATCH, shuffle=True, drop_last=True)
    val_loader = DataLoader(Validation(textures(80, 2), 3), 32)
    model = Sharpener()
    optimizer = torch.optim.Adam(model.parameters(), lr=LR)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [5, 7], gamma=0.4)
    best = 0.0
    for epoch in range(1, EPOCHS + 1):
        model.train()
        running = 0.0
        for coarse, sharp in train_loader:
            loss = criterion(model(coarse), sharp)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.item()
        scheduler.step()
        quality = psnr(model, val_loader)
        best = max(best, quality)
        print(f"epoch {epoch}: loss {running / len(train_loader):.5f}, {quality:.3f} dB (best {best:.3f})")
    torch.save(model.state_dict(), "lens.pt")


if __name__ == "__main__":
    main()
