"""Shape, heading and area of one picture in one net. Every task has a learned variance that weighs its loss; some pictures lack a heading."""
import dataclasses
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SIDE = 16


@dataclasses.dataclass
class Settings:
    epochs: int = 5
    batch: int = 20
    windows: int = 2
    lr: float = 6e-3
    decay: float = 0.05
    seed: int = 3


class Shapes(Dataset):
    def __init__(self, count, seed, train):
        g = torch.Generator().manual_seed(seed)
        grid = torch.linspace(-1, 1, SIDE)
        v, u = torch.meshgrid(grid, grid, indexing="ij")
        self.pictures, self.kinds, self.headings, self.areas = [], [], [], []
        for _ in range(count):
            kind = int(torch.randint(0, 3, (), generator=g))
            turn = float(torch.rand((), generator=g)) * math.pi - math.pi / 2
            size = 0.3 + 0.4 * float(torch.rand((), generator=g))
            a, b = u * math.cos(turn) + v * math.sin(turn), v * math.cos(turn) - u * math.sin(turn)
            inside = [(a / size) ** 2 + (3 * b / size) ** 2 < 1, (a.abs() < size) & (b.abs() < size / 3), (a > -size) & (b.abs() < (size - a) / 4) & (a < size)][kind]
            self.pictures.append(inside.float() + 0.3 * torch.randn(SIDE, SIDE, generator=g))
            self.kinds.append(kind)
            self.headings.append(math.sin(turn) if torch.rand((), generator=g) < 0.7 else float("nan"))
            self.areas.append(float(inside.float().mean()) * 10)
        self.train = train

    def __len__(self):
        return len(self.kinds)

    def __getitem__(self, i):
        picture, heading = self.pictures[i], self.headings[i]
        if self.train:
            if torch.rand(()) < 0.5:
                picture, heading = picture.flip(0), -heading
            picture = picture * (0.8 + 0.4 * torch.rand(()))
        return picture[None], self.kinds[i], torch.tensor(heading), torch.tensor(self.areas[i])


class Trunk(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv2d(1, 12, 3, padding=1), nn.GroupNorm(3, 12), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(12, 24, 3, padding=1), nn.GroupNorm(4, 24), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(24 * 16, 48), nn.ReLU(),
        )


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = Trunk()
        self.drop = nn.Dropout(0.2)
        self.kind = nn.Linear(48, 3)
        self.heading = nn.Linear(48, 1)
        self.area = nn.Linear(48, 1)

    def forward(self, picture):
        h = self.trunk(picture)
        return self.kind(self.drop(h)), torch.tanh(self.heading(h)).squeeze(1), self.area(h).squeeze(1)


class Weighed(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_var = nn.Parameter(torch.zeros(3))

    def forward(self, out, target):
        kind, heading, area = out
        known = ~torch.isnan(target[1])
        losses = torch.stack([
            F.cross_entropy(kind, target[0]),
            F.mse_loss(heading[known], target[1][known]),
            F.smooth_l1_loss(area, target[2]),
        ])
        return (losses * torch.exp(-self.log_var) + 0.5 * self.log_var).sum(), losses.detach()


def judge(model, loader):
    model.eval()
    right = count = known = 0
    wrong_heading = wrong_area = 0.0
    with torch.no_grad():
        for picture, kind, heading, area in loader:
            k, h, a = model(picture)
            ok = ~torch.isnan(heading)
            right += (k.argmax(1) == kind).sum().item()
            wrong_heading += (h - heading)[ok].abs().sum().item()
            wrong_area += (a - area).abs().sum().item()
            count, known = count + len(kind), known + ok.sum().item()
    return right / count, wrong_heading / known, wrong_area / count


def run(settings):
    torch.manual_seed(settings.seed)
    train = DataLoader(Shapes(400, 1, True), settings.batch, shuffle=True)
    held = DataLoader(Shapes(130, 2, False), 50)
    model, criterion = Heads(), Weighed()
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW([
        {"params": matrices, "weight_decay": settings.decay},
        {"params": vectors, "weight_decay": 0.0},
        {"params": criterion.parameters(), "weight_decay": 0.0, "lr": settings.lr * 5},
    ], lr=settings.lr)
    steps = settings.epochs * len(train) // settings.windows
    scheduler = torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, 5), torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps - 5)],
        [5],
    )
    for epoch in range(1, settings.epochs + 1):
        model.train()
        each = torch.zeros(3)
        for i, (picture, *target) in enumerate(train):
            loss, parts = criterion(model(picture), target)
            (loss / settings.windows).backward()
            each += parts
            if (i + 1) % settings.windows == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 2.0)
                optimizer.step()
                optimizer.zero_grad()
                scheduler.step()
        right, wrong_heading, wrong_area = judge(model, held)
        kind, heading, area = (each / len(train)).tolist()
        print(f"{epoch}: kind {kind:.4f} heading {heading:.4f} area {area:.4f} | right {right:.3f} heading off {wrong_heading:.4f} area off {wrong_area:.4f}")
        print("   variances", " ".join(f"{v:.4f}" for v in criterion.log_var.exp().tolist()))
    torch.save({"model": model.state_dict(), "criterion": criterion.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}, "tasks.pt")


if __name__ == "__main__":
    run(Settings())
