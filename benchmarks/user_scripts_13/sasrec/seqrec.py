"""Next-item model for the shop's click sessions (self-attentive, full softmax over the catalogue).

    python seqrec.py --users 22000 --items 12101

The production log stays in the warehouse; `simulate` draws sessions with the same length
distribution and a similar catalogue so that the code can be shared.
"""
from __future__ import annotations

import argparse
import dataclasses
import json
import math
import time
from pathlib import Path
from typing import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset


@dataclasses.dataclass
class Config:
    users: int = 22000
    items: int = 12101
    categories: int = 60
    mean_len: float = 9.0
    max_len: int = 50
    dim: int = 128
    heads: int = 2
    layers: int = 2
    dropout: float = 0.2
    batch_size: int = 128
    eval_batch_size: int = 256
    epochs: int = 200
    lr: float = 1e-3
    weight_decay: float = 0.01
    warmup: int = 500
    grad_clip: float = 1.0
    pop_weight: float = 0.3
    drop_click: float = 0.1
    workers: int = 4
    eval_every: int = 1
    patience: int = 20
    seed: int = 17
    out: str = "runs/seqrec"

    @classmethod
    def from_cli(cls) -> "Config":
        parser = argparse.ArgumentParser(description=__doc__)
        for field in dataclasses.fields(cls):
            parser.add_argument("--" + field.name.replace("_", "-"), type=type(field.default), default=field.default)
        return cls(**vars(parser.parse_args()))


def simulate(cfg: Config) -> tuple[list[np.ndarray], np.ndarray]:
    """Sessions of item ids 1..items, and the category of every item (0 is padding)."""
    rng = np.random.default_rng(cfg.seed)
    category = np.concatenate([[0], rng.integers(1, cfg.categories + 1, cfg.items)])
    members = [np.flatnonzero(category == c) for c in range(cfg.categories + 1)]
    follow = rng.integers(1, cfg.categories + 1, (cfg.categories + 1, 3))
    sessions = []
    for _ in range(cfg.users):
        n = 3 + min(rng.geometric(1 / (cfg.mean_len - 2)), 4 * cfg.max_len)
        c, clicks = rng.integers(1, cfg.categories + 1), []
        while len(clicks) < n:
            if rng.random() < 0.35:
                c = follow[c, rng.integers(3)]
            pool = members[c]
            if len(pool):
                clicks.append(pool[int(len(pool) * rng.random() ** 3)])
            else:
                c = rng.integers(1, cfg.categories + 1)
        sessions.append(np.array(clicks, dtype=np.int64))
    return sessions, category


class Sessions(Dataset):
    """Training part of each session (all but the last two clicks), left padded."""

    def __init__(self, sessions: list[np.ndarray], max_len: int, drop_click: float) -> None:
        self.sessions = [s[:-2] for s in sessions if len(s) > 3]
        self.max_len, self.drop_click = max_len, drop_click

    def __len__(self) -> int:
        return len(self.sessions)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        s = self.sessions[i]
        if len(s) > 3 and self.drop_click:
            kept = s[np.random.rand(len(s)) >= self.drop_click]
            s = kept if len(kept) > 1 else s
        if len(s) > self.max_len + 1:
            start = np.random.randint(len(s) - self.max_len)
            s = s[start:start + self.max_len + 1]
        x, y = np.zeros(self.max_len, dtype=np.int64), np.zeros(self.max_len, dtype=np.int64)
        x[self.max_len - len(s) + 1:] = s[:-1]
        y[self.max_len - len(s) + 1:] = s[1:]
        return torch.from_numpy(x), torch.from_numpy(y)


class Block(nn.Module):
    def __init__(self, cfg: Config) -> None:
        super().__init__()
        self.heads, self.p = cfg.heads, cfg.dropout
        self.norm1, self.norm2 = nn.LayerNorm(cfg.dim), nn.LayerNorm(cfg.dim)
        self.qkv = nn.Linear(cfg.dim, 3 * cfg.dim)
        self.proj = nn.Linear(cfg.dim, cfg.dim)
        self.mlp = nn.Sequential(nn.Linear(cfg.dim, 4 * cfg.dim), nn.GELU(), nn.Linear(4 * cfg.dim, cfg.dim), nn.Dropout(cfg.dropout))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        # left padding: is_causal alone would let real clicks look at the padding
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=self.p if self.training else 0.0)
        x = x + F.dropout(self.proj(a.transpose(1, 2).reshape(b, t, d)), self.p, self.training)
        return x + self.mlp(self.norm2(x))


class SeqRec(nn.Module):
    def __init__(self, cfg: Config, category: np.ndarray, log_pop: Tensor) -> None:
        super().__init__()
        self.cfg = cfg
        self.item = nn.Embedding(cfg.items + 1, cfg.dim, padding_idx=0)
        self.cat = nn.Embedding(cfg.categories + 1, cfg.dim, padding_idx=0)
        self.mix = nn.Sequential(nn.Linear(2 * cfg.dim, cfg.dim), nn.GELU(), nn.Linear(cfg.dim, cfg.dim))
        self.pos = nn.Embedding(cfg.max_len, cfg.dim)
        self.blocks = nn.ModuleList([Block(cfg) for _ in range(cfg.layers)])
        self.norm = nn.LayerNorm(cfg.dim)
        self.category = torch.as_tensor(category)
        self.register_buffer("log_pop", log_pop)
        for emb in (self.item, self.cat, self.pos):
            nn.init.normal_(emb.weight, std=0.05)

    def item_table(self) -> Tensor:
        """All items from id and category; the catalogue is small enough to do it whole."""
        category = self.category.to(self.item.weight.device)
        return self.mix(torch.cat([self.item.weight, self.cat(category)], -1)) + self.item.weight

    def encode(self, x: Tensor, table: Tensor) -> Tensor:
        t = x.shape[1]
        h = F.embedding(x, table) + self.pos(torch.arange(t, device=x.device))
        h = F.dropout(h, self.cfg.dropout, self.training)
        causal = torch.tril(torch.ones(t, t, dtype=torch.bool)).to(x.device)
        eye = torch.eye(t, dtype=torch.bool, device=x.device)   # no empty rows, softmax would give nan
        mask = ((x > 0)[:, None, None, :] & causal) | eye
        for block in self.blocks:
            h = block(h, mask)
        return self.norm(h)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        table = self.item_table()
        h = self.encode(x, table)
        real = y > 0
        logits = h[real] @ table.T                # four of five positions are padding
        logits = logits.float() + self.cfg.pop_weight * self.log_pop
        return F.cross_entropy(logits, y[real])

    def score(self, x: Tensor) -> Tensor:
        table = self.item_table()
        h = self.encode(x, table)[:, -1]
        return h.float() @ table.float().T        # bf16 scores tie too often to rank by


def eval_batches(sessions: list[np.ndarray], cfg: Config, holdout: int) -> Iterator[tuple[np.ndarray, Tensor, np.ndarray]]:
    """holdout 2: predict the last but one click, holdout 1: the last one"""
    users = np.array([u for u, s in enumerate(sessions) if len(s) > 3])
    for start in range(0, len(users), cfg.eval_batch_size):
        part = users[start:start + cfg.eval_batch_size]
        x = np.zeros((len(part), cfg.max_len), dtype=np.int64)
        for r, u in enumerate(part):
            s = sessions[u][:-holdout][-cfg.max_len:]
            x[r, cfg.max_len - len(s):] = s
        yield part, torch.from_numpy(x), np.array([sessions[u][-holdout] for u in part])


@torch.inference_mode()
def evaluate(model: SeqRec, sessions: list[np.ndarray], cfg: Config, device: torch.device, holdout: int = 2) -> dict[str, float]:
    model.eval()
    ranks: list[np.ndarray] = []
    for users, x, target in eval_batches(sessions, cfg, holdout):
        scores = model.score(x.to(device))
        scores[:, 0] = -math.inf
        for r, u in enumerate(users):
            seen = np.setdiff1d(sessions[u][:-holdout], target[r])
            scores[r, seen] = -math.inf
        order = np.argsort(-scores.cpu().numpy(), axis=1)
        ranks.append((order == target[:, None]).argmax(1))
    rank = np.concatenate(ranks)
    hit = rank < 10
    model.train()
    return {"hr@10": float(hit.mean()), "ndcg@10": float((hit / np.log2(rank + 2)).mean()), "mrr": float((1 / (rank + 1)).mean())}


def main() -> None:
    cfg = Config.from_cli()
    torch.manual_seed(cfg.seed)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    out = Path(cfg.out)
    out.mkdir(parents=True, exist_ok=True)

    sessions, category = simulate(cfg)
    data = Sessions(sessions, cfg.max_len, cfg.drop_click)
    loader = DataLoader(data, cfg.batch_size, shuffle=True, num_workers=cfg.workers, drop_last=True,
                        pin_memory=device.type == "cuda", persistent_workers=cfg.workers > 0)
    counts = np.bincount(np.concatenate(data.sessions), minlength=cfg.items + 1) + 1
    log_pop = torch.as_tensor(np.log(counts / counts.sum()), dtype=torch.float32)
    print(f"{len(data)} sessions, median length {np.median([len(s) for s in sessions]):.0f}")

    model = SeqRec(cfg, category, log_pop).to(device)
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": cfg.weight_decay}, {"params": rest, "weight_decay": 0.0}],
                                  lr=cfg.lr, fused=device.type == "cuda")
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / cfg.warmup))

    best, stale, step = 0.0, 0, 0
    log = open(out / "train.jsonl", "w")
    for epoch in range(cfg.epochs):
        start, losses = time.time(), []
        for x, y in loader:
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
                loss = model.loss(x, y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), cfg.grad_clip)
            optimizer.step()
            scheduler.step()
            losses.append(loss.detach())
            step += 1
            log.write(json.dumps({"step": step, "loss": loss.item(), "grad_norm": norm.item(), "lr": scheduler.get_last_lr()[0]}) + "\n")
            log.flush()
        line = f"epoch {epoch:3d} loss {torch.stack(losses).mean().item():.4f} ({time.time() - start:.1f}s)"
        if (epoch + 1) % cfg.eval_every == 0:
            metrics = evaluate(model, sessions, cfg, device)
            line += " | " + " ".join(f"{k} {v:.4f}" for k, v in metrics.items()) + f" ({time.time() - start:.1f}s)"
            if metrics["ndcg@10"] > best:
                best, stale = metrics["ndcg@10"], 0
                torch.save({"model": model.state_dict(), "config": dataclasses.asdict(cfg)}, out / "best.pt")
            else:
                stale += 1
        print(line, flush=True)
        if stale >= cfg.patience:
            break
    log.close()
    model.load_state_dict(torch.load(out / "best.pt", map_location=device)["model"])
    print("test", evaluate(model, sessions, cfg, device, holdout=1))


if __name__ == "__main__":
    main()
