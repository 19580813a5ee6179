"""Pretraining by restoring masked patches, then a probe for classes: two tasks, two loaders, a Trainer with callbacks."""
import csv
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SEED, EPOCHS, BATCH, WIDTH, PATCHES, SIZE = 11, 8, 16, 24, 10, 8
torch.manual_seed(SEED)
np.random.seed(SEED)


def waves(count, seed):
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 3, count)
    t = np.linspace(0, 1, PATCHES * SIZE)[None]
    phase = rng.uniform(0, 2 * np.pi, (count, 1))
    clean = np.sin(2 * np.pi * (1 + kind[:, None]) * t + phase) * rng.uniform(0.6, 1.4, (count, 1))
    noisy = clean + 0.15 * rng.normal(size=clean.shape)
    return torch.tensor(noisy, dtype=torch.float32), torch.tensor(kind)


class Waves(Dataset):
    def __init__(self, count, seed, augment):
        self.signals, self.kinds = waves(count, seed)
        self.augment = augment

    def __len__(self):
        return len(self.signals)

    def __getitem__(self, i):
        x = self.signals[i]
        if self.augment:
            x = torch.roll(x, int(torch.randint(0, PATCHES * SIZE, ())))
            x = x * (0.8 + 0.4 * torch.rand(()))
        return x.view(PATCHES, SIZE), self.kinds[i]


class Restorer(nn.Module):
    def __init__(self, ratio=0.5):
        super().__init__()
        self.ratio = ratio
        self.embed = nn.Linear(SIZE, WIDTH)
        self.place = nn.Parameter(0.02 * torch.randn(PATCHES, WIDTH))
        self.blank = nn.Parameter(torch.zeros(WIDTH))
        self.encoder = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.1, batch_first=True)
        self.decoder = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True)
        self.restore = nn.Linear(WIDTH, SIZE)
        self.classify = nn.Linear(WIDTH, 3)

    def hidden(self, x):
        order = torch.rand(x.shape[0], PATCHES, device=x.device).argsort(1)
        keep = int(PATCHES * (1 - self.ratio))
        return order[:, :keep], order.argsort(1) >= keep

    def features(self, x):
        return self.encoder(self.embed(x) + self.place).mean(1)

    def forward(self, x):
        kept, masked = self.hidden(x)
        tokens = self.embed(x) + self.place
        seen = torch.gather(tokens, 1, kept.unsqueeze(-1).expand(-1, -1, WIDTH))
        coded = self.encoder(seen)
        full = (self.blank + self.place).expand(x.shape[0], -1, -1)
        full = full.scatter(1, kept.unsqueeze(-1).expand(-1, -1, WIDTH), coded)
        return self.restore(self.decoder(full)), masked


def restoring(out, x, masked):
    error = (out - x).pow(2).mean(-1)
    return (error * masked).sum() / masked.sum()


class Callback:
    def on_step(self, trainer): ...
    def on_epoch(self, trainer, figures): ...


class Average(Callback):
    """A moving average of the weights, for evaluation."""

    def __init__(self, model, decay=0.95):
        self.decay = decay
        self.weights = {k: v.detach().clone() for k, v in model.state_dict().items()}

    def on_step(self, trainer):
        for k, v in trainer.model.state_dict().items():
            self.weights[k].mul_(self.decay).add_(v.detach(), alpha=1 - self.decay)


class Journal(Callback):
    def __init__(self, path="restorer.csv"):
        self.path, self.rows = path, []

    def on_epoch(self, trainer, figures):
        self.rows.append({"epoch": trainer.epoch, **{k: f"{v:.5f}" for k, v in figures.items()}})
        with open(self.path, "w", newline="") as file:
            writer = csv.DictWriter(file, self.rows[0])
            writer.writeheader()
            writer.writerows(self.rows)


class Best(Callback):
    def __init__(self, average, path="restorer.pt"):
        self.average, self.path, self.best = average, path, math.inf

    def on_epoch(self, trainer, figures):
        if figures["restored"] < self.best:
            self.best = figures["restored"]
            torch.save({"model": self.average.weights, "epoch": trainer.epoch}, self.path)


class Trainer:
    def __init__(self, model, pretrain, labelled, valid):
        self.model, self.pretrain, self.labelled, self.valid = model, pretrain, labelled, valid
        groups = [
            {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 0.05},
            {"params": [p for p in model.parameters() if p.ndim <= 1], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=6e-3, betas=(0.9, 0.95))
        total, warm = EPOCHS * len(pretrain), len(pretrain)
        rate = lambda i: (i + 1) / warm if i < warm else 0.5 * (1 + math.cos(math.pi * (i - warm) / (total - warm)))
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, rate)
        self.average = Average(model)
        self.callbacks = [self.average, Journal(), Best(self.average)]
        self.epoch = 0

    def step(self, x, labelled):
        out, masked = self.model(x)
        loss = restoring(out, x, masked)
        signal, kind = labelled
        both = loss + 0.5 * F.cross_entropy(self.model.classify(self.model.features(signal)), kind)
        self.optimizer.zero_grad()
        both.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        for callback in self.callbacks:
            callback.on_step(self)
        return loss.item(), (both - loss).item()

    @torch.no_grad()
    def evaluate(self):
        kept = {k: v.clone() for k, v in self.model.state_dict().items()}
        self.model.load_state_dict(self.average.weights)
        self.model.eval()
        state = torch.get_rng_state()
        torch.manual_seed(0)
        error = right = count = 0
        for x, kind in self.valid:
            out, masked = self.model(x)
            error += restoring(out, x, masked).item() * len(x)
            right += (self.model.classify(self.model.features(x)).argmax(1) == kind).sum().item()
            count += len(x)
        torch.set_rng_state(state)
        self.model.train()
        self.model.load_state_dict(kept)
        return error / count, right / count

    def fit(self):
        for self.epoch in range(EPOCHS):
            losses, second = [], iter(self.labelled)
            for x, _ in self.pretrain:
                try:
                    labelled = next(second)
                except StopIteration:
                    second = iter(self.labelled)
                    labelled = next(second)
                losses.append(self.step(x, labelled))
            first, other = np.mean(losses, axis=0)
            restored, accuracy = self.evaluate()
            figures = {"loss": first, "class_loss": other, "restored": restored, "accuracy": accuracy}
            for callback in self.callbacks:
                callback.on_epoch(self, figures)
            print("epoch {:2d} | ".format(self.epoch) + " | ".join(f"{k} {v:.4f}" for k, v in figures.items()))


def main():
    pretrain = DataLoader(Waves(160, 1, True), BATCH, shuffle=True, drop_last=True)
    labelled = DataLoader(Waves(56, 2, True), 12, shuffle=True)
    valid = DataLoader(Waves(60, 3, False), BATCH)
    Trainer(Restorer(), pretrain, labelled, valid).fit()


if __name__ == "__main__":
    main()
