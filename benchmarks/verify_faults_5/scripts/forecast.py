"""Forecasts: windows of a long series, an encoder and a decoder that is told the truth now and then, two tasks with learned weights, a plateau scheduler."""

import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(83)
random.seed(83)
SENSORS, PAST, AHEAD = 4, 20, 6


def series(length=420):
    generator = torch.Generator().manual_seed(9)
    time = torch.arange(length, dtype=torch.float32)[:, None]
    speed = torch.tensor([0.21, 0.33, 0.13, 0.41])
    wave = torch.sin(time * speed) * torch.tensor([1.0, 2.0, 0.5, 3.0]) + torch.tensor(
        [0.0, 5.0, -2.0, 1.0]
    )
    return wave + 0.1 * torch.randn(length, SENSORS, generator=generator)


class Windows(Dataset):
    def __init__(self, rows, noise=0.0):
        self.rows, self.noise = rows, noise

    def __len__(self):
        return len(self.rows) - PAST - AHEAD + 1

    def __getitem__(self, start):
        past = self.rows[start : start + PAST]
        if self.noise:
            past = past + self.noise * torch.randn(past.shape)
        ahead = self.rows[start + PAST : start + PAST + AHEAD]
        return past, ahead, (ahead.mean(0) > past.mean(0)).float()


class Forecaster(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.encoder = nn.GRU(SENSORS, width, batch_first=True)
        self.cell = nn.GRUCell(SENSORS, width)
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(width, SENSORS)
        self.rises = nn.Linear(width, SENSORS)
        self.weights = nn.Parameter(torch.zeros(2))

    def forward(self, past, truth=None, share=0.0):
        state = self.encoder(past)[1][0]
        rises = self.rises(self.drop(state))
        now, made = past[:, -1], []
        for step in range(AHEAD):
            state = self.cell(now, state)
            now = now + self.out(self.drop(state))
            made.append(now)
            if truth is not None and random.random() < share:
                now = truth[:, step]
        return torch.stack(made, 1), rises


def combined(model, made, ahead, rises, rose):
    near = nn.functional.huber_loss(made, ahead, delta=0.5)
    told = nn.functional.binary_cross_entropy_with_logits(rises, rose)
    first, second = model.weights
    return torch.exp(-first) * near + torch.exp(-second) * told + 0.5 * (first + second), near, told


@torch.no_grad()
def judge(model, loader, scale):
    model.eval()
    squares, right, count = 0.0, 0.0, 0
    for past, ahead, rose in loader:
        made, rises = model(past)
        squares += ((made - ahead) * scale).pow(2).mean((1, 2)).sum().item()
        right += ((rises > 0).float() == rose).float().mean(1).sum().item()
        count += len(past)
    return (squares / count) ** 0.5, right / count


def main():
    rows = series()
    known = rows[:300]
    middle, scale = known.mean(0), known.std(0)
    rows = (rows - middle) / scale
    loader = DataLoader(Windows(rows[:300], 0.05), batch_size=32, shuffle=True)
    check = DataLoader(Windows(rows[300 - PAST :]), batch_size=32)
    model = Forecaster()
    groups = [
        {"params": [value for name, value in model.named_parameters() if name != "weights"]},
        {"params": [model.weights], "lr": 0.02},
    ]
    optimizer = torch.optim.Adam(groups, lr=6e-3)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
    for epoch in range(7):
        model.train()
        share = max(0.0, 0.8 - 0.15 * epoch)
        sums = torch.zeros(3)
        for past, ahead, rose in loader:
            optimizer.zero_grad()
            made, rises = model(past, ahead, share)
            loss, near, told = combined(model, made, ahead, rises, rose)
            loss.backward()
            nn.utils.clip_grad_value_(model.parameters(), 0.2)
            optimizer.step()
            sums += torch.stack([loss, near, told]).detach()
        error, right = judge(model, check, scale)
        scheduler.step(error)
        shown = " ".join(f"{value:.4f}" for value in (sums / len(loader)).tolist())
        print(f"epoch {epoch}: {shown} error {error:.4f} right {right:.4f}")
        state = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "middle": middle,
            "scale": scale,
            "epoch": epoch,
        }
        torch.save(state, "forecast.pt")


main()
