# Learning to learn: few-shot tasks over drawn glyphs, gradients through the inner steps, a learned rate for every layer.
import logging
import random
import sys
from collections import OrderedDict
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.func import functional_call
import torch.nn.functional as F

logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")
logger = logging.getLogger("episodes")

SIDE = 14


@dataclass
class Config:
    ways: int = 5
    shots: int = 2
    queries: int = 6
    tasks: int = 4
    inner_steps: int = 3
    inner_lr: float = 0.1
    outer_lr: float = 4e-3
    min_lr: float = 2e-4
    weight_decay: float = 1e-4
    iterations: int = 75
    first_order_until: int = 20
    per_step_until: int = 45
    clip: float = 1.0
    validate_every: int = 15
    validation_tasks: int = 20
    seed: int = 21


class Glyphs:
    """Every class is a few strokes; every picture of it is drawn with a shaking hand."""

    def __init__(self, classes, seed):
        rng = np.random.default_rng(seed)
        self.strokes = rng.uniform(2, SIDE - 3, (classes, 4, 2))
        self.classes = classes

    def draw(self, kind, rng):
        points = self.strokes[kind] + rng.normal(0, 0.6, (4, 2))
        along = np.linspace(0, 1, 8)[:, None]
        path = np.concatenate([a + along * (b - a) for a, b in zip(points[:-1], points[1:])])
        grid = np.arange(SIDE)
        picture = np.exp(-((grid[None, :, None] - path[:, 0, None, None]) ** 2 + (grid[None, None, :] - path[:, 1, None, None]) ** 2) / 0.8).max(0)
        return picture + rng.normal(0, 0.15, (SIDE, SIDE))

    def task(self, cfg, rng, turn):
        kinds = rng.choice(self.classes, cfg.ways, replace=False)
        turns = rng.integers(0, 4, cfg.ways) if turn else np.zeros(cfg.ways, dtype=int)
        support, query = [], []
        for kind, quarter in zip(kinds, turns):
            pictures = [np.rot90(self.draw(kind, rng), quarter) for _ in range(cfg.shots + cfg.queries)]
            support += pictures[: cfg.shots]
            query += pictures[cfg.shots :]
        as_tensor = lambda rows: torch.from_numpy(np.stack(rows)).float()[:, None]
        labels = torch.arange(cfg.ways)
        return as_tensor(support), labels.repeat_interleave(cfg.shots), as_tensor(query), labels.repeat_interleave(cfg.queries)


class Learner(nn.Module):
    def __init__(self, ways, width=16):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.GroupNorm(4, width), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(width, width, 3, padding=1), nn.GroupNorm(4, width), nn.ReLU(), nn.MaxPool2d(2),
        )
        self.dropout = nn.Dropout(0.1)
        self.classifier = nn.Linear(width * 9, ways)

    def forward(self, x):
        return self.classifier(self.dropout(self.features(x).flatten(1)))


class MetaLearner(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.learner = Learner(cfg.ways)
        self.rates = nn.ParameterDict({n.replace(".", "-"): nn.Parameter(torch.full((cfg.inner_steps,), cfg.inner_lr)) for n, _ in self.learner.named_parameters()})

    def adapt(self, params, x, y, step, second_order):
        loss = F.cross_entropy(functional_call(self.learner, params, (x,)), y)
        grads = torch.autograd.grad(loss, list(params.values()), create_graph=second_order)
        return OrderedDict((n, p - self.rates[n.replace(".", "-")][step] * g) for (n, p), g in zip(params.items(), grads))

    def run_task(self, task, second_order, importance):
        support_x, support_y, query_x, query_y = task
        params = OrderedDict(self.learner.named_parameters())
        total = 0.0
        for step in range(self.cfg.inner_steps):
            params = self.adapt(params, support_x, support_y, step, second_order)
            if importance[step] > 0:
                out = functional_call(self.learner, params, (query_x,))
                total = total + importance[step] * F.cross_entropy(out, query_y)
        return total, (out.argmax(1) == query_y).float().mean()


def importance_at(iteration, cfg):
    """At first every inner step counts, later the last alone."""
    part = min(iteration / cfg.per_step_until, 1.0)
    early = (1 - part) / cfg.inner_steps
    return [early] * (cfg.inner_steps - 1) + [1.0 - early * (cfg.inner_steps - 1)]


def validate(meta, glyphs, cfg):
    meta.eval()
    rng = np.random.default_rng(777)
    losses, rights = [], []
    for _ in range(cfg.validation_tasks):
        loss, right = meta.run_task(glyphs.task(cfg, rng, turn=False), False, [0.0] * (cfg.inner_steps - 1) + [1.0])
        losses.append(loss.item())
        rights.append(right.item())
    meta.train()
    return np.mean(losses), np.mean(rights), 1.96 * np.std(rights) / np.sqrt(len(rights))


def train(cfg, folder):
    random.seed(cfg.seed)
    torch.manual_seed(cfg.seed)
    rng = np.random.default_rng(cfg.seed)
    train_glyphs, held_glyphs = Glyphs(30, 1), Glyphs(15, 2)
    meta = MetaLearner(cfg)
    optimizer = torch.optim.AdamW([
        {"params": meta.learner.parameters(), "weight_decay": cfg.weight_decay},
        {"params": meta.rates.parameters(), "weight_decay": 0.0},
    ], lr=cfg.outer_lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=cfg.iterations, eta_min=cfg.min_lr)
    best = 0.0
    meta.train()
    running, accuracy = [], []
    for iteration in range(cfg.iterations):
        second_order = iteration >= cfg.first_order_until
        importance = importance_at(iteration, cfg)
        optimizer.zero_grad()
        for _ in range(cfg.tasks):
            loss, right = meta.run_task(train_glyphs.task(cfg, rng, turn=True), second_order, importance)
            (loss / cfg.tasks).backward()
            running.append(loss.item())
            accuracy.append(right.item())
        nn.utils.clip_grad_norm_(meta.learner.parameters(), cfg.clip)
        optimizer.step()
        scheduler.step()
        with torch.no_grad():
            for rate in meta.rates.values():
                rate.clamp_(1e-3, 1.0)
        if (iteration + 1) % cfg.validate_every == 0:
            loss, right, spread = validate(meta, held_glyphs, cfg)
            logger.info("it %d outer %.4f acc %.3f | held %.4f acc %.4f +- %.3f | rate %.4f", iteration + 1, np.mean(running), np.mean(accuracy), loss, right, spread, np.mean([r.mean().item() for r in meta.rates.values()]))
            running, accuracy = [], []
            if right >= best:
                best = right
                torch.save({"meta": meta.state_dict(), "optimizer": optimizer.state_dict(), "iteration": iteration + 1, "config": asdict(cfg)}, folder / "best.pt")
    meta.load_state_dict(torch.load(folder / "best.pt", weights_only=False)["meta"])
    loss, right, spread = validate(meta, Glyphs(15, 3), cfg)
    logger.info("test %.4f acc %.4f +- %.3f", loss, right, spread)


if __name__ == "__main__":
    here = Path("episodes_out")
    here.mkdir(exist_ok=True)
    train(Config(), here)
