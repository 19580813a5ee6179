"""Small pictures, label smoothing, warm-up: a trainer that knows nothing and callbacks that know the rest."""

import csv
import json
from pathlib import Path

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

CONFIG = {"epochs": 5, "batch": 20, "lr": 0.08, "warmup": 8, "smoothing": 0.1, "out": "run_callbacks"}


def pictures(count, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 5, (count,), generator=g)
    grid = torch.linspace(-1, 1, 12)
    angle = y.float() * 0.63 + 0.15 * torch.randn(count, generator=g)
    wave = torch.sin(6 * (angle.cos()[:, None, None] * grid[None, :, None] + angle.sin()[:, None, None] * grid[None, None, :]))
    return TensorDataset((wave + 0.5 * torch.randn(count, 12, 12, generator=g))[:, None], y)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        )
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(64, 5)

    def forward(self, x):
        return self.head(self.drop(self.body(x)))


class Callback:
    def on_step(self, trainer): ...
    def on_epoch(self, trainer): ...


class Warmup(Callback):
    def __init__(self, optimizer, steps):
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / steps))

    def on_step(self, trainer):
        self.scheduler.step()


class Drop(Callback):
    def __init__(self, optimizer):
        self.scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3], gamma=0.2)

    def on_epoch(self, trainer):
        self.scheduler.step()


class Validate(Callback):
    def __init__(self, loader, criterion):
        self.loader = loader
        self.criterion = criterion

    def on_epoch(self, trainer):
        model = trainer.model
        model.eval()
        hits, loss, seen = 0, 0.0, 0
        with torch.no_grad():
            for x, y in self.loader:
                out = model(x)
                loss += self.criterion(out, y).item() * len(y)
                hits += (out.argmax(1) == y).sum().item()
                seen += len(y)
        trainer.figures.update(valid=loss / seen, accuracy=hits / seen)
        model.train()


class Keep(Callback):
    def __init__(self, folder):
        self.folder = folder
        self.best = -1.0

    def on_epoch(self, trainer):
        if trainer.figures["accuracy"] > self.best:
            self.best = trainer.figures["accuracy"]
            torch.save({"model": trainer.model.state_dict(), "epoch": trainer.epoch}, self.folder / "best.pt")


class Table(Callback):
    def __init__(self, folder):
        self.rows = []
        self.path = folder / "log.csv"

    def on_epoch(self, trainer):
        self.rows.append({k: f"{v:.4f}" for k, v in trainer.figures.items()})
        with open(self.path, "w", newline="") as f:
            writer = csv.DictWriter(f, self.rows[0])
            writer.writeheader()
            writer.writerows(self.rows)
        print(f"epoch {trainer.epoch}", *(f"{k}={v:.4f}" for k, v in trainer.figures.items()))


class Trainer:
    def __init__(self, model, optimizer, criterion, callbacks):
        self.model, self.optimizer, self.criterion, self.callbacks = model, optimizer, criterion, callbacks
        self.figures = {}
        self.epoch = 0

    def step(self, x, y):
        out = self.model(x)
        loss = self.criterion(out, y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        for callback in self.callbacks:
            callback.on_step(self)
        return loss

    def fit(self, loader, epochs):
        for self.epoch in range(epochs):
            total, seen = 0.0, 0
            for x, y in loader:
                loss = self.step(x, y)
                total += loss.item() * x.size(0)
                seen += x.size(0)
            self.figures["train"] = total / seen
            for callback in self.callbacks:
                callback.on_epoch(self)


if __name__ == "__main__":
    torch.manual_seed(3)
    folder = Path(CONFIG["out"])
    folder.mkdir(exist_ok=True)
    train = DataLoader(pictures(290, 1), batch_size=CONFIG["batch"], shuffle=True)
    valid = DataLoader(pictures(110, 2), batch_size=25)
    model = Net()
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.SGD([{"params": decay, "weight_decay": 1e-2}, {"params": rest, "weight_decay": 0.0}], lr=CONFIG["lr"], momentum=0.9, nesterov=True)
    smooth = nn.CrossEntropyLoss(label_smoothing=CONFIG["smoothing"])
    trainer = Trainer(model, optimizer, smooth, [Warmup(optimizer, CONFIG["warmup"]), Drop(optimizer), Validate(valid, nn.CrossEntropyLoss()), Keep(folder), Table(folder)])
    trainer.fit(train, CONFIG["epochs"])
    (folder / "summary.json").write_text(json.dumps({k: round(v, 4) for k, v in trainer.figures.items()}))
