"""SimCLR in little: two views of each picture, NT-Xent, then a linear probe and nearest neighbours."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(123)
CLASSES, SIZE = 6, 16


def make(count, seed):
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, CLASSES, (count,), generator=g)
    line = torch.arange(SIZE).float()
    yy, xx = torch.meshgrid(line, line, indexing="ij")
    pictures = []
    for label in labels.tolist():
        angle = math.pi * label / CLASSES + 0.12 * torch.randn((), generator=g)
        phase = 6.28 * torch.rand((), generator=g)
        wave = torch.sin(0.9 * (xx * torch.cos(angle) + yy * torch.sin(angle)) + phase)
        pictures.append(wave + 1.2 * torch.randn(SIZE, SIZE, generator=g))
    return torch.stack(pictures)[:, None], labels


def augment(x):
    top, left = torch.randint(0, 5, (2,)).tolist()
    x = F.pad(x, (2, 2, 2, 2), mode="reflect")[:, top : top + SIZE, left : left + SIZE]
    x = x * (0.6 + 0.8 * torch.rand(()))
    return x + 0.3 * torch.randn_like(x)


class TwoViews(Dataset):
    def __init__(self, pictures):
        self.pictures = pictures

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, i):
        x = self.pictures[i]
        return augment(x), augment(x)


class Encoder(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, width, 5, stride=2, padding=2), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU(),
        )  # fmt: skip
        self.project = nn.Sequential(nn.Linear(2 * width, 32), nn.ReLU(), nn.Linear(32, 16))

    def forward(self, x):
        h = self.conv(x).mean((2, 3))
        return h, self.project(h)


class NTXent(nn.Module):
    def __init__(self, temperature=0.2):
        super().__init__()
        self.temperature = temperature

    def forward(self, a, b):
        n = a.size(0)
        z = F.normalize(torch.cat([a, b]), dim=1)
        sim = z @ z.t() / self.temperature
        sim = sim.masked_fill(torch.eye(2 * n, dtype=torch.bool), float("-inf"))
        target = torch.cat([torch.arange(n) + n, torch.arange(n)])
        return F.cross_entropy(sim, target)


@torch.no_grad()
def features(model, pictures):
    model.eval()
    out = [model(batch)[0] for batch in pictures.split(50)]
    return torch.cat(out)


def probe(model, train, train_y, test, test_y):
    a, b = features(model, train), features(model, test)
    mean, std = a.mean(0), a.std(0) + 1e-5
    a, b = (a - mean) / std, (b - mean) / std
    head = nn.Linear(a.size(1), CLASSES)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    sgd = torch.optim.SGD(head.parameters(), lr=0.5, momentum=0.9, weight_decay=1e-3)
    for _ in range(40):
        sgd.zero_grad()
        loss = F.cross_entropy(head(a), train_y)
        loss.backward()
        sgd.step()
    with torch.no_grad():
        accuracy = (head(b).argmax(1) == test_y).float().mean().item()
    near = (F.normalize(b, dim=1) @ F.normalize(a, dim=1).t()).topk(5).indices
    knn = (train_y[near].mode(dim=1).values == test_y).float().mean().item()
    return accuracy, knn, loss.item()


train, train_y = make(320, 1)
test, test_y = make(160, 2)
loader = DataLoader(TwoViews(train), batch_size=40, shuffle=True)
model = Encoder()
criterion = NTXent()
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=1e-2)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10 * len(loader))
for epoch in range(10):
    model.train()
    epoch_loss = 0.0
    for first, second in loader:
        _, a = model(first)
        _, b = model(second)
        loss = criterion(a, b)
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        scheduler.step()
        epoch_loss += loss.item()
    print(f"epoch {epoch}: nt-xent {epoch_loss / len(loader):.4f} lr {scheduler.get_last_lr()[0]:.6f}")
    if epoch % 3 == 0:
        acc, knn, fit = probe(model, train, train_y, test, test_y)
        print(f"   probe {acc:.4f}  knn {knn:.4f}  fit {fit:.4f}")
torch.save(model.state_dict(), "encoder.pt")
