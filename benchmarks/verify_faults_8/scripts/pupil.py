"""Knowledge distillation: a wide teacher first, then a narrow pupil from its softened answers."""
import json
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

SEED = 5
random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)

TEMPERATURE, ALPHA = 4.0, 0.7
CLASSES = 8


def make(count, seed, clean):
    g = torch.Generator().manual_seed(seed)
    centres = torch.randn(CLASSES * 3, 20, generator=torch.Generator().manual_seed(0)) * 1.1
    k = torch.randint(0, CLASSES * 3, (count,), generator=g)
    x = centres[k] + torch.randn(count, 20, generator=g)
    y = k % CLASSES
    if not clean:
        wrong = torch.rand(count, generator=g) < 0.15
        y = torch.where(wrong, torch.randint(0, CLASSES, (count,), generator=g), y)
    return TensorDataset(x, y)


def net(width, dropout):
    return nn.Sequential(
        nn.Linear(20, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(dropout),
        nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(dropout),
        nn.Linear(width, CLASSES),
    )  # fmt: skip


def validate(model, loader):
    model.eval()
    loss = right = seen = 0
    confusion = torch.zeros(CLASSES, CLASSES)
    with torch.no_grad():
        for x, y in loader:
            out = model(x)
            loss += F.cross_entropy(out, y, reduction="sum").item()
            guess = out.argmax(dim=1)
            right += (guess == y).sum().item()
            seen += len(y)
            for t, p in zip(y, guess):
                confusion[t, p] += 1
    recall = (confusion.diag() / confusion.sum(dim=1)).mean().item()
    return {"loss": loss / seen, "acc": right / seen, "recall": recall}


def distillation_loss(student, teacher, y):
    soft = F.kl_div(
        F.log_softmax(student / TEMPERATURE, dim=1), F.softmax(teacher / TEMPERATURE, dim=1), reduction="batchmean"
    ) * (TEMPERATURE**2)
    hard = F.cross_entropy(student, y)
    return ALPHA * soft + (1 - ALPHA) * hard, soft, hard


def train_teacher(train, valid, epochs=6):
    model = net(96, 0.3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.08, momentum=0.9, weight_decay=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs)
    for epoch in range(epochs):
        model.train()
        total = 0.0
        for x, y in train:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        scheduler.step()
        found = validate(model, valid)
        print(f"teacher {epoch}: {total / len(train):.4f} | {found['loss']:.4f} | {found['acc']:.4f}")
    torch.save(model.state_dict(), "teacher.pt")


def train_student(train, valid, epochs=10):
    teacher = net(96, 0.3)
    teacher.load_state_dict(torch.load("teacher.pt"))
    teacher.eval()
    student = net(24, 0.0)
    optimizer = torch.optim.Adam(student.parameters(), lr=2e-2)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[8, 9], gamma=0.3)
    best, history = 0.0, []
    for epoch in range(epochs):
        student.train()
        sums = np.zeros(3)
        for x, y in train:
            x = x + 0.3 * torch.randn_like(x)
            with torch.no_grad():
                answers = teacher(x)
            loss, soft, hard = distillation_loss(student(x), answers, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            sums += np.array([loss.item(), soft.item(), hard.item()]) * len(x)
        scheduler.step()
        sums /= len(train.dataset)
        found = validate(student, valid)
        history.append({"epoch": epoch, "train": sums.tolist(), **found})
        print(
            f"student {epoch}: loss {sums[0]:.4f} (soft {sums[1]:.4f} hard {sums[2]:.4f})"
            f" | {found['loss']:.4f} | {found['acc']:.4f} | recall {found['recall']:.4f}"
        )
        if found["acc"] > best:
            best = found["acc"]
            torch.save(student.state_dict(), "student.pt")
    student.load_state_dict(torch.load("student.pt"))
    found = validate(student, valid)
    print(f"best student: loss {found['loss']:.4f} acc {found['acc']:.4f} recall {found['recall']:.4f}")
    with open("history.json", "w") as f:
        json.dump(history, f, indent=1)


if __name__ == "__main__":
    train = DataLoader(make(972, 1, False), batch_size=48, shuffle=True)
    valid = DataLoader(make(330, 2, True), batch_size=64)
    train_teacher(train, valid)
    train_student(train, valid)
