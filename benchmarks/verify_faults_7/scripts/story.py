"""Letters in rows: truncated backpropagation over a long text, gradients gathered over three windows, a cosine with restarts of the state."""

import logging
import math
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger("story")


@dataclass
class Plan:
    rows: int = 8
    window: int = 12
    gather: int = 3
    epochs: int = 4
    lr: float = 1.2e-2
    warm: int = 4
    clip: float = 0.8


def text(length, seed):
    g = torch.Generator().manual_seed(seed)
    jumps = torch.tensor([1, 1, 1, 4, 7])
    return jumps[torch.randint(0, 5, (length,), generator=g)].cumsum(0) % 24


def rows_of(ids, plan):
    width = len(ids) // plan.rows
    return ids[: width * plan.rows].view(plan.rows, width)


def windows(rows, plan):
    for at in range(0, rows.shape[1] - 1, plan.window):
        piece = rows[:, at : at + plan.window + 1]
        yield piece[:, :-1], piece[:, 1:]


class Teller(nn.Module):
    def __init__(self, letters=24, width=40):
        super().__init__()
        self.embed = nn.Embedding(letters, width)
        self.core = nn.LSTM(width, width, 2, batch_first=True, dropout=0.15)
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, letters)
        self.out.weight = self.embed.weight

    def forward(self, ids, state=None):
        h, state = self.core(self.embed(ids), state)
        return self.out(self.norm(h)), state


class Run:
    def __init__(self, plan):
        self.plan = plan
        self.model = Teller()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=plan.lr, betas=(0.9, 0.98))
        self.rows = rows_of(text(2900, 1), plan)
        self.valid = rows_of(text(900, 2), plan)
        self.per_epoch = len(list(windows(self.rows, plan))) // plan.gather
        self.steps = 0

    def rate(self):
        plan, total = self.plan, self.per_epoch * self.plan.epochs
        if self.steps < plan.warm:
            return plan.lr * (self.steps + 1) / plan.warm
        return plan.lr * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (self.steps - plan.warm) / (total - plan.warm))))

    def update(self):
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.plan.clip)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.steps += 1
        return norm

    def epoch(self):
        self.model.train()
        state, total, letters = None, 0.0, 0
        for number, (x, y) in enumerate(windows(self.rows, self.plan), 1):
            logits, state = self.model(x, state)
            state = tuple(s.detach() for s in state)
            loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
            (loss / self.plan.gather).backward()
            total += loss.item() * y.numel()
            letters += y.numel()
            if number % self.plan.gather == 0:
                self.update()
        self.optimizer.zero_grad()
        return total / letters

    @torch.no_grad()
    def perplexity(self):
        self.model.eval()
        state, total, letters = None, 0.0, 0
        for x, y in windows(self.valid, self.plan):
            logits, state = self.model(x, state)
            total += F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="sum").item()
            letters += y.numel()
        return math.exp(total / letters)


def main(plan=Plan()):
    torch.manual_seed(29)
    run = Run(plan)
    for epoch in range(plan.epochs):
        trained = run.epoch()
        log.info("epoch %d loss %.4f perplexity %.4f lr %.6f", epoch, trained, run.perplexity(), run.rate())
    torch.save({"model": run.model.state_dict(), "optimizer": run.optimizer.state_dict(), "steps": run.steps}, "teller.pt")


main()
