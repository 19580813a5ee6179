"""Forecaster for the water of several canals: an encoder and a decoder that is fed its own guesses ever more often, three quantiles, windows scaled one by one; trained in two sittings, the second from the file of the first; coverage and scaled error by canal."""
import math

import torch
import torch.nn.functional as F
from torch import nn

CANALS, LENGTH, CUT, PAST, AHEAD = 6, 260, 200, 24, 8
LEVELS = torch.tensor([0.1, 0.5, 0.9])
SITTINGS, EPOCHS, BATCH, LR = 2, 4, 48, 5e-3


def make_levels(seed):
    """Daily waves of other heights on a slow walk, with a sluice that opens now and then; some canals are far rougher than others."""
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(LENGTH)
    rows = []
    for c in range(CANALS):
        rough = (0.05, 0.1, 0.2, 0.3, 0.5, 0.8)[c]
        day = torch.sin(2 * torch.pi * t / 12 + 6.28 * torch.rand(1, generator=g)) * (0.5 + torch.rand(1, generator=g))
        walk = (0.15 * torch.randn(LENGTH, generator=g)).cumsum(0)
        sluice = 1.5 * (torch.sin(2 * torch.pi * t / 31 + c) > 0.8).float()
        rows.append((3 + 2 * c) + day + walk + sluice + rough * torch.randn(LENGTH, generator=g))
    return torch.stack(rows)


def make_windows(levels, begin, end):
    """Windows that end in [begin, end): scaled past, scaled future, canal, scale. Scaled by the last level and the spread of the past."""
    past, future, canal, scale = [], [], [], []
    for c, row in enumerate(levels):
        for stop in range(max(begin, PAST + AHEAD), end):
            window = row[stop - PAST - AHEAD : stop].clone()
            spread = window[:PAST].std()
            window -= window[PAST - 1].clone()
            window /= spread
            past.append(window[:PAST])
            future.append(window[PAST:])
            canal.append(c)
            scale.append(spread)
    return torch.stack(past), torch.stack(future), torch.tensor(canal), torch.stack(scale)


class Forecaster(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.canal = nn.Embedding(CANALS, width)
        self.encoder = nn.GRU(1, width, batch_first=True)
        self.cell = nn.GRUCell(1, width)
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(width, len(LEVELS))

    def forward(self, past, canal, future=None, truth=0.0):
        """Quantiles (n, AHEAD, 3). With ``future``, each row's next input is the true level with chance ``truth``, else its own median."""
        _, h = self.encoder(past.unsqueeze(2))
        h = h[0] + self.canal(canal)
        fed, told = past[:, -1:], []
        for k in range(AHEAD):
            h = self.cell(fed, h)
            told.append(self.out(self.drop(h)))
            fed = told[-1][:, 1:2].detach()
            if future is not None:
                coin = torch.rand(len(past), 1) < truth
                fed = torch.where(coin, future[:, k : k + 1], fed)
        return torch.stack(told, 1)


def pinball(told, future):
    miss = future.unsqueeze(2) - told
    return torch.maximum(LEVELS * miss, (LEVELS - 1) * miss)


def naive_errors(levels):
    """Mean error of yesterday's level on the days of training, canal by canal."""
    return (levels[:, 12:CUT] - levels[:, : CUT - 12]).abs().mean(1)


@torch.no_grad()
def evaluate(model, windows, naive, batch=60):
    model.eval()
    loss, inside, errors = 0.0, 0.0, torch.zeros(CANALS)
    for idx in torch.arange(len(windows[0])).split(batch):
        past, future, canal, scale = (part[idx] for part in windows)
        told = model(past, canal)
        loss += pinball(told, future).mean().item() * len(idx)
        inside += ((future > told[..., 0]) & (future < told[..., 2])).float().mean().item() * len(idx)
        errors.index_add_(0, canal, (told[..., 1] - future).abs().mean(1) * scale)
    n = len(windows[0])
    return loss / n, inside / n, (errors / windows[2].bincount() / naive).mean().item()


def sitting(number, train, held, naive, file):
    """Some epochs; all that has to go on is read from the file and written to it."""
    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=LR)
    steps = math.ceil(len(train[0]) / BATCH) * EPOCHS * SITTINGS
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: 0.5 * (1 + math.cos(math.pi * min(1.0, s / steps))))
    step, best = 0, math.inf
    if number:
        state = torch.load(file)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        step, best = state["step"], state["best"]
    for epoch in range(number * EPOCHS, (number + 1) * EPOCHS):
        model.train()
        total = 0.0
        for idx in torch.randperm(len(train[0])).split(BATCH):
            past, future, canal, _ = (part[idx] for part in train)
            truth = 60 / (60 + math.exp(step / 25))
            loss = pinball(model(past, canal, future, truth), future).sum(2).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            step += 1
            total += loss.item() * len(idx)
        held_loss, inside, mase = evaluate(model, held, naive)
        if mase < best:
            best = mase
            torch.save(model.state_dict(), "canal_best.pt")
        print(f"epoch {epoch} truth {truth:.3f} loss {total / len(train[0]):.5f} held {held_loss:.5f} inside {inside:.4f} mase {mase:.5f}")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict(), "step": step, "best": best}, file)


def main():
    torch.manual_seed(44)
    levels = make_levels(1)
    train, held = make_windows(levels, 0, CUT), make_windows(levels, CUT + AHEAD, LENGTH)
    naive = naive_errors(levels)
    for number in range(SITTINGS):
        sitting(number, train, held, naive, "canal.pt")
    model = Forecaster()
    model.load_state_dict(torch.load("canal_best.pt"))
    loss, inside, mase = evaluate(model, held, naive)
    print(f"best held {loss:.5f} inside {inside:.4f} mase {mase:.5f}")


if __name__ == "__main__":
    main()
