"""Tells kinds of heartbeats on three leads, with shifted, scaled, drifting and missing leads, and mixed pairs."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

LENGTH, LEADS, KINDS = 96, 3, 4
BATCH, EPOCHS, LR = 24, 7, 3e-3
SHIFT, GAIN, DRIFT, NOISE, MISSING, ALPHA, SMOOTH = 10, 0.25, 0.15, 0.08, 0.2, 0.4, 0.05


def beats(count, seed):
    """Beats of a few bumps whose place, width and sign tell the kind, and the kinds."""
    g = torch.Generator().manual_seed(seed)
    time = torch.arange(LENGTH).float()
    kinds = torch.randint(0, KINDS, (count,), generator=g)
    bumps = torch.tensor([[0.2, 1.0, 0.3], [0.2, 0.9, -0.3], [0.0, 1.1, 0.25], [0.25, 0.7, 0.45]])
    widths = torch.tensor([3.0, 3.2, 3.0, 5.0])
    seen = torch.tensor([1.0, 0.7, -0.5])
    made = torch.zeros(count, LEADS, LENGTH)
    for i, kind in enumerate(kinds.tolist()):
        jitter = torch.randn(6, generator=g)
        for j, (at, wide) in enumerate(zip((26, 46, 68), (2.0, 1.0, 2.2))):
            high = bumps[kind, j] + 0.16 * jitter[j]
            bump = high * torch.exp(-0.5 * ((time - at - 1.5 * jitter[3 + j]) / (wide * widths[kind])) ** 2)
            made[i] += seen[:, None] * bump
    return made + 0.05 * torch.randn(made.shape, generator=g), kinds


class Beats(Dataset):
    def __init__(self, count, seed, train=False):
        self.data, self.kinds = beats(count, seed)
        self.train = train

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        beat = self.data[i]
        if self.train:
            beat = self.augment(beat)
        return beat, self.kinds[i]

    def augment(self, beat):
        beat = beat.roll(int(torch.randint(-SHIFT, SHIFT + 1, (1,))), -1)
        beat = beat * (1 + GAIN * (2 * torch.rand(1) - 1))
        phase = 2 * math.pi * torch.rand(1)
        turns = 0.5 + 1.5 * torch.rand(1)
        beat = beat + DRIFT * torch.sin(2 * math.pi * turns * torch.arange(LENGTH) / LENGTH + phase)
        beat = beat + NOISE * torch.randn(beat.shape)
        there = torch.rand(LEADS) >= MISSING
        there[0] = True
        return beat * there[:, None]


def mixed(x, y):
    """Pairs of samples, with one weight for each pair."""
    weight = torch.distributions.Beta(ALPHA, ALPHA).sample((len(x),))
    other = torch.randperm(len(x))
    targets = F.one_hot(y, KINDS).float()
    x = weight[:, None, None] * x + (1 - weight[:, None, None]) * x[other]
    return x, weight[:, None] * targets + (1 - weight[:, None]) * targets[other]


class Residual(nn.Module):
    def __init__(self, into, out):
        super().__init__()
        self.one = nn.Conv1d(into, out, 5, stride=2, padding=2, bias=False)
        self.two = nn.Conv1d(out, out, 5, padding=2, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm1d(out), nn.BatchNorm1d(out)
        self.way = nn.Conv1d(into, out, 1, stride=2)

    def forward(self, x):
        h = F.relu(self.norm1(self.one(x)))
        return F.relu(self.norm2(self.two(h)) + self.way(x))


class BeatNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(Residual(LEADS, 16), Residual(16, 24), Residual(24, 32))
        self.drop, self.head = nn.Dropout(0.2), nn.Linear(32, KINDS)

    def forward(self, x):
        return self.head(self.drop(self.body(x).mean(-1)))


def macro_f1(guessed, truth):
    scores = []
    for kind in range(KINDS):
        hit = ((guessed == kind) & (truth == kind)).sum().item()
        scores.append(2 * hit / max((guessed == kind).sum().item() + (truth == kind).sum().item(), 1))
    return sum(scores) / KINDS


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    logits, kinds = zip(*[(model(x), y) for x, y in loader])
    logits, kinds = torch.cat(logits), torch.cat(kinds)
    return F.cross_entropy(logits, kinds).item(), macro_f1(logits.argmax(1), kinds)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(31)
    train_loader = DataLoader(Beats(720, 1, train=True), BATCH, shuffle=True, drop_last=True)
    val_loader = DataLoader(Beats(300, 2), 100)
    model = BeatNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR * 10, momentum=0.9, nesterov=True, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * len(train_loader))
    best = 0.0
    for epoch in range(EPOCHS):
        model.train()
        running = 0.0
        for x, y in train_loader:
            x, targets = mixed(x, y)
            targets = (1 - SMOOTH) * targets + SMOOTH / KINDS
            loss = F.cross_entropy(model(x), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            running += loss.item()
        val_loss, f1 = evaluate(model, val_loader)
        if f1 > best:
            best = f1
            torch.save(model.state_dict(), "pulse.pt")
        print(f"{epoch}: train loss {running / len(train_loader):.4f} val loss {val_loss:.4f} F1 {f1:.4f} best {best:.4f}")


if __name__ == "__main__":
    main()
