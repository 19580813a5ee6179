import random
from types import SimpleNamespace
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

MODELS, LOSSES = {}, {}


def register(table, name):
    def deco(f):
        table[name] = f
        return f
    return deco


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(c, c, 3, padding=1), nn.BatchNorm2d(c)
        self.c2, self.b2 = nn.Conv2d(c, c, 3, padding=1), nn.BatchNorm2d(c)

    def forward(self, x):
        return F.relu(x + self.b2(self.c2(F.relu(self.b1(self.c1(x))))))


class ResNet(nn.Module):
    def __init__(self, width, depth, classes=10):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 2, 1)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.fc = nn.Linear(width, classes)

    def forward(self, x):
        x = self.stem(x)
        for b in self.blocks:
            x = b(x)
        return self.fc(x.mean((2, 3))), x


@register(MODELS, "teacher")
def teacher():
    return ResNet(32, 3)


@register(MODELS, "student")
def student():
    return ResNet(16, 1)


@register(LOSSES, "kd")
def kd(s, t, T=4.0):
    return F.kl_div(F.log_softmax(s / T, 1), F.softmax(t / T, 1), reduction="batchmean") * T * T


@register(LOSSES, "at")
def attention_transfer(fs, ft):
    a, b = [F.normalize(f.pow(2).mean(1).flatten(1)) for f in (fs, ft)]
    return (a - b).pow(2).mean()


class Callback:
    def on_batch_end(self, tr, loss): ...
    def on_epoch_end(self, tr, acc): ...


class History(Callback):
    def __init__(self):
        self.losses = []

    def on_batch_end(self, tr, loss):
        self.losses.append(loss)

    def on_epoch_end(self, tr, acc):
        print(f"{tr.tag} epoch {tr.epoch} loss {torch.stack(self.losses).mean().item():.4f} acc {acc:.4f}")
        self.losses.clear()


class StopOnNan(Callback):
    def on_batch_end(self, tr, loss):
        if torch.isnan(loss).item():
            tr.stop = True


class Trainer:
    def __init__(self, cfg, model, loaders, teacher=None, callbacks=(), tag=""):
        self.cfg, self.model, self.teacher, self.tag = cfg, model.to(cfg.device), teacher, tag
        self.train_dl, self.val_dl = loaders
        self.opt = torch.optim.SGD(model.parameters(), cfg.lr, momentum=0.9, nesterov=True)
        self.callbacks, self.stop = callbacks, False

    def step(self, x, y):
        logits, feat = self.model(x)
        loss = F.cross_entropy(logits, y)
        if self.teacher is not None:
            self.teacher.eval()
            t_logits, t_feat = self.teacher(x)
            loss = 0.3 * loss + 0.7 * LOSSES["kd"](logits, t_logits.detach()) + 50 * LOSSES["at"](feat, t_feat.detach())
        return loss

    def fit(self):
        for self.epoch in range(self.cfg.epochs):
            self.model.train()
            for x, y in self.train_dl:
                x, y = x.to(self.cfg.device), y.to(self.cfg.device)
                loss = self.step(x, y)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                for cb in self.callbacks:
                    cb.on_batch_end(self, loss)
                if self.stop:
                    return
            acc = self.validate()
            for cb in self.callbacks:
                cb.on_epoch_end(self, acc)

    def validate(self):
        self.model.eval()
        good = 0
        for x, y in self.val_dl:
            pred = self.model(x.to(self.cfg.device))[0].argmax(1)
            good += (pred == y.to(self.cfg.device)).sum().item()
        return good / len(self.val_dl.dataset)


def make_data(n, protos, g):
    y = torch.randint(0, 10, (n,), generator=g)
    return TensorDataset(protos[y] + 1.5 * torch.randn(n, 3, 16, 16, generator=g), y)


def main():
    cfg = SimpleNamespace(lr=0.05, epochs=2, batch=64, device="cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(1)
    protos = torch.randn(10, 3, 16, 16, generator=g)
    loaders = (DataLoader(make_data(1920, protos, g), cfg.batch, shuffle=True),
               DataLoader(make_data(500, protos, g), cfg.batch))
    big = MODELS["teacher"]()
    Trainer(cfg, big, loaders, callbacks=[History(), StopOnNan()], tag="teacher").fit()
    Trainer(cfg, MODELS["student"](), loaders, teacher=big, callbacks=[History(), StopOnNan()], tag="student").fit()


if __name__ == "__main__":
    main()
