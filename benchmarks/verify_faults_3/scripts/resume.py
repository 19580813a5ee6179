"""Trains three epochs, then goes on from its checkpoint as a new run would: logging, tqdm, a CSV file, an average of the weights, the random state."""

import copy
import csv
import logging
import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
log = logging.getLogger("resume")


def data(count, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 14, generator=generator)
    y = (x[:, :3].sum(1) + x[:, 3] * x[:, 4] + 0.5 * torch.randn(count, generator=generator))[:, None]
    return TensorDataset(x, y)


def fit(until, epochs):
    torch.manual_seed(91)
    train = DataLoader(data(224, 0), batch_size=16, shuffle=True, drop_last=True)
    valid = DataLoader(data(96, 1), batch_size=24)
    model = nn.Sequential(nn.Linear(14, 40), nn.BatchNorm1d(40), nn.GELU(), nn.Dropout(0.1), nn.Linear(40, 1))
    average = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2, weight_decay=0.05)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2e-2, total_steps=epochs * len(train))
    begin, best = 0, float("inf")
    if os.path.exists("state.pt"):
        state = torch.load("state.pt", weights_only=False)
        model.load_state_dict(state["model"])
        average.load_state_dict(state["average"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        begin, best = state["epoch"] + 1, state["best"]
        torch.set_rng_state(state["random"])
        log.info("goes on with epoch %d, best %.4f", begin, best)
    for epoch in range(begin, until):
        model.train()
        total = 0.0
        bar = tqdm(train, desc=f"epoch {epoch}")
        for number, (x, y) in enumerate(bar, 1):
            loss = F.smooth_l1_loss(model(x), y, beta=0.5)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            with torch.no_grad():
                for mine, theirs in zip(average.parameters(), model.parameters()):
                    mine.mul_(0.9).add_(theirs, alpha=0.1)
                for mine, theirs in zip(average.buffers(), model.buffers()):
                    mine.copy_(theirs)
            total += loss.item()
            bar.set_postfix(loss=f"{total / number:.4f}")
        average.eval()
        with torch.no_grad():
            error = sum((average(x) - y).abs().sum().item() for x, y in valid) / 96
        log.info("epoch %d train %.4f valid %.4f lr %.5f", epoch, total / len(train), error, scheduler.get_last_lr()[0])
        with open("resume.csv", "a", newline="") as file:
            csv.writer(file).writerow([epoch, round(total / len(train), 5), round(error, 5)])
        if error < best:
            best = error
            torch.save(average.state_dict(), "best.pt")
        torch.save(
            {
                "model": model.state_dict(),
                "average": average.state_dict(),
                "optimizer": optimizer.state_dict(),
                "scheduler": scheduler.state_dict(),
                "epoch": epoch,
                "best": best,
                "random": torch.get_rng_state(),
            },
            "state.pt",
        )
    return best


def main():
    fit(3, 6)
    best = fit(6, 6)
    log.info("done, best %.4f", best)


main()
