"""A small U-Net with deep supervision: random crops, void pixels, class weights, warm-up by hand, intersection over union by class, best.pt."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(51)
CLASSES, VOID = 3, 255


class Scenes(Dataset):
    def __init__(self, count, seed, train):
        generator = torch.Generator().manual_seed(seed)
        places = torch.randint(2, 14, (count, 2, 2), generator=generator)
        self.masks = torch.zeros(count, 20, 20, dtype=torch.long)
        for mask, spots in zip(self.masks, places):
            for kind, (row, column) in enumerate(spots.tolist(), 1):
                mask[row : row + 5, column : column + 5] = kind
        level = torch.tensor([0.0, 1.0, -1.0])[self.masks]
        self.images = (level + 0.8 * torch.randn(count, 20, 20, generator=generator))[:, None]
        self.masks[torch.rand(count, 20, 20, generator=generator) < 0.05] = VOID
        self.train = train

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        row, column = 2, 2
        if self.train:
            row, column = torch.randint(0, 5, (2,)).tolist()
        image = self.images[index, :, row : row + 16, column : column + 16]
        mask = self.masks[index, row : row + 16, column : column + 16]
        return image, mask


def block(ins, outs):
    return nn.Sequential(nn.Conv2d(ins, outs, 3, padding=1, bias=False), nn.BatchNorm2d(outs), nn.ReLU())


class UNet(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.top, self.middle, self.bottom = block(1, width), block(width, 2 * width), block(2 * width, 4 * width)
        self.up_middle, self.up_top = block(6 * width, 2 * width), block(3 * width, width)
        self.head, self.side = nn.Conv2d(width, CLASSES, 1), nn.Conv2d(2 * width, CLASSES, 1)

    def forward(self, x):
        a = self.top(x)
        b = self.middle(F.max_pool2d(a, 2))
        c = self.bottom(F.max_pool2d(b, 2))
        b = self.up_middle(torch.cat([F.interpolate(c, scale_factor=2.0), b], 1))
        a = self.up_top(torch.cat([F.interpolate(b, scale_factor=2.0), a], 1))
        if self.training:
            return self.head(a), self.side(b)
        return self.head(a)


def overlap(model, loader):
    model.eval()
    table = torch.zeros(CLASSES, CLASSES)
    with torch.no_grad():
        for image, mask in loader:
            guess, known = model(image).argmax(1), mask != VOID
            table += torch.bincount(mask[known] * CLASSES + guess[known], minlength=CLASSES**2).view(CLASSES, CLASSES)
    return table.diag() / (table.sum(0) + table.sum(1) - table.diag()).clamp(min=1)


def main():
    train = DataLoader(Scenes(96, 0, True), batch_size=12, shuffle=True)
    valid = DataLoader(Scenes(40, 1, False), batch_size=8)
    model = UNet()
    weight = torch.tensor([0.4, 1.3, 1.3])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.02)
    best, step = -1.0, 0
    for epoch in range(5):
        model.train()
        total = 0.0
        for image, mask in train:
            step += 1
            for group in optimizer.param_groups:
                group["lr"] = 0.01 * min(1.0, step / 10)
            out, side = model(image)
            small = mask[:, ::2, ::2]
            loss = F.cross_entropy(out, mask, weight, ignore_index=VOID) + 0.4 * F.cross_entropy(side, small, weight, ignore_index=VOID)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        parts = overlap(model, valid)
        print(f"epoch {epoch} loss {total / len(train):.4f} overlap {parts.mean():.4f} of classes", *(f"{part:.3f}" for part in parts))
        if parts.mean() > best:
            best = parts.mean()
            torch.save({"model": model.state_dict(), "epoch": epoch, "best": best}, "best.pt")


main()
