"""
python train.py                                  # defaults, one GPU, bf16
python train.py n_layer=12 n_embd=768 compile=True
"""
import ast
import math
import os
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass, fields

import numpy as np
import torch

from data import prepare
from model import GPT, GPTConfig


@dataclass
class Train:
    out: str = "out"
    data: str = "corpus"
    corpus_bytes: int = 40_000_000
    block_size: int = 512
    n_layer: int = 8
    n_head: int = 8
    n_embd: int = 512
    dropout: float = 0.1
    batch_size: int = 32
    accum: int = 4
    max_iters: int = 20_000
    warmup: int = 500
    lr: float = 6e-4
    min_lr: float = 6e-5
    weight_decay: float = 0.1
    clip: float = 1.0
    spike: float = 8.0            # leave out an update whose gradient is so many times the usual one
    eval_every: int = 500
    eval_iters: int = 100
    log_every: int = 10
    sample_len: int = 200
    compile: bool = False
    seed: int = 1337


cfg = Train()
for arg in sys.argv[1:]:
    key, value = arg.split("=", 1)
    assert key in {f.name for f in fields(Train)}, key
    try:
        value = ast.literal_eval(value)
    except (ValueError, SyntaxError):
        pass
    setattr(cfg, key, value)

torch.manual_seed(cfg.seed)
device = "cuda" if torch.cuda.is_available() else "cpu"
ctx = torch.autocast("cuda", dtype=torch.bfloat16) if device == "cuda" else nullcontext()

folder = f"{cfg.data}_{cfg.corpus_bytes}"
if not os.path.exists(os.path.join(folder, "val.bin")):
    prepare(folder, cfg.corpus_bytes)


def get_batch(split):
    data = np.memmap(os.path.join(folder, f"{split}.bin"), dtype=np.uint8, mode="r")
    ix = torch.randint(len(data) - cfg.block_size - 1, (cfg.batch_size,)).tolist()
    x = torch.stack([torch.from_numpy(data[i:i + cfg.block_size].astype(np.int64)) for i in ix])
    y = torch.stack([torch.from_numpy(data[i + 1:i + 1 + cfg.block_size].astype(np.int64)) for i in ix])
    if device == "cuda":
        return x.pin_memory().to(device, non_blocking=True), y.pin_memory().to(device, non_blocking=True)
    return x, y


def learning_rate(it):
    if it < cfg.warmup:
        return cfg.lr * (it + 1) / cfg.warmup
    t = (it - cfg.warmup) / max(1, cfg.max_iters - cfg.warmup)
    return cfg.min_lr + 0.5 * (1 + math.cos(math.pi * min(t, 1.0))) * (cfg.lr - cfg.min_lr)


@torch.no_grad()
def estimate_loss(model):
    model.eval()
    out = {}
    for split in ("train", "val"):
        losses = torch.zeros(cfg.eval_iters)
        for k in range(cfg.eval_iters):
            x, y = get_batch(split)
            with ctx:
                _, loss = model(x, y)
            losses[k] = loss.item()
        out[split] = losses.mean().item()
    model.train()
    return out


def sample(model, text):
    model.eval()
    prompt = torch.tensor([list(text.encode())], dtype=torch.long, device=device)
    with ctx:
        new = model.generate(prompt, cfg.sample_len, stop=ord("\n"))
    model.train()
    return text + bytes(new).decode(errors="replace").rstrip("\n")


raw = GPT(GPTConfig(block_size=cfg.block_size, n_layer=cfg.n_layer, n_head=cfg.n_head, n_embd=cfg.n_embd,
                    dropout=cfg.dropout)).to(device)
decay = [p for p in raw.parameters() if p.dim() >= 2]
plain = [p for p in raw.parameters() if p.dim() < 2]
optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": cfg.weight_decay},
                               {"params": plain, "weight_decay": 0.0}], lr=cfg.lr, betas=(0.9, 0.95))
model = torch.compile(raw) if cfg.compile else raw
print(f"{sum(p.numel() for p in raw.parameters()) / 1e6:.2f}M parameters, "
      f"{cfg.batch_size * cfg.accum * cfg.block_size:,} bytes per step")

best, usual_norm, skipped = float("inf"), None, 0
t0 = time.time()
x, y = get_batch("train")
for it in range(cfg.max_iters + 1):
    if it % cfg.eval_every == 0:
        losses = estimate_loss(model)
        print(f"step {it}: train {losses['train']:.4f}, val {losses['val']:.4f}")
        print("   " + sample(raw, "(let total (+ "))
        if losses["val"] < best:
            best = losses["val"]
            os.makedirs(cfg.out, exist_ok=True)
            torch.save({"model": raw.state_dict(), "cfg": vars(cfg), "it": it}, os.path.join(cfg.out, "ckpt.pt"))
    if it == cfg.max_iters:
        break

    lr = learning_rate(it)
    for group in optimizer.param_groups:
        group["lr"] = lr
    running = 0.0
    for micro in range(cfg.accum):
        with ctx:
            _, loss = model(x, y)
            loss = loss / cfg.accum
        x, y = get_batch("train")              # fetched while the GPU works
        loss.backward()
        running += loss.item()
    norm = torch.nn.utils.clip_grad_norm_(raw.parameters(), cfg.clip).item()
    if usual_norm is not None and norm > cfg.spike * usual_norm:
        skipped += 1
    else:
        optimizer.step()
        usual_norm = norm if usual_norm is None else 0.98 * usual_norm + 0.02 * norm
    optimizer.zero_grad(set_to_none=True)

    if it % cfg.log_every == 0:
        dt, t0 = time.time() - t0, time.time()
        print(f"iter {it}: loss {running:.4f}, norm {norm:.3f}, lr {lr:.2e}, skipped {skipped}, time {dt * 1000:.0f}ms")
print(f"best val {best:.4f}")
