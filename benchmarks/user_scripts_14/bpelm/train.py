"""python train.py [--key value ...]; keys are the fields of Run and Config."""
from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from lm import Config, Decoder, TokenStream, build_corpus


@dataclass
class Run:
    data: str = "corpus"
    out: str = "runs/base"
    stories: int = 60000
    steps: int = 12000
    batch: int = 32
    accumulate: int = 4
    lr: float = 6e-4
    min_lr: float = 6e-5
    warmup: int = 400
    decay: float = 0.1
    clip: float = 1.0
    log_every: int = 20
    eval_every: int = 500
    eval_batches: int = 50
    sample_tokens: int = 120
    threads: int = 0
    seed: int = 1337


def parse() -> tuple[Run, Config]:
    ap = argparse.ArgumentParser()
    for cls in (Run, Config):
        for f in dataclasses.fields(cls):
            ap.add_argument("--" + f.name.replace("_", "-"), type=type(f.default), default=f.default)
    ns = vars(ap.parse_args())
    pick = lambda cls: cls(**{f.name: ns[f.name] for f in dataclasses.fields(cls)})
    return pick(Run), pick(Config)


def lr_at(step: int, run: Run) -> float:
    if step < run.warmup:
        return run.lr * (step + 1) / run.warmup
    p = (step - run.warmup) / max(1, run.steps - run.warmup)
    return run.min_lr + 0.5 * (run.lr - run.min_lr) * (1 + math.cos(math.pi * min(1.0, p)))


def make_optimizer(model: torch.nn.Module, run: Run) -> torch.optim.Optimizer:
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decay, "weight_decay": run.decay}, {"params": rest, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=run.lr, betas=(0.9, 0.95))


@torch.no_grad()
def evaluate(model: Decoder, stream: TokenStream, batches: int) -> float:
    model.eval()
    losses = torch.zeros(batches)
    for i in range(batches):
        x, y = stream.next()
        _, loss = model(x, y)
        losses[i] = loss.item()
    model.train()
    return losses.mean().item()


def main() -> None:
    run, cfg = parse()
    if run.threads:
        torch.set_num_threads(run.threads)
    torch.manual_seed(run.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    bpe = build_corpus(Path(run.data), run.stories, cfg.vocab)
    assert bpe.size <= cfg.vocab
    train = TokenStream(Path(run.data) / "train.bin", run.batch, cfg.context, device, run.seed)
    val = TokenStream(Path(run.data) / "val.bin", run.batch, cfg.context, device, run.seed + 1)
    print(f"{len(train.tokens) / 1e6:.2f}M training tokens, vocabulary {bpe.size}")

    model = Decoder(cfg).to(device)
    optimizer = make_optimizer(model, run)
    amp = torch.autocast("cuda", dtype=torch.bfloat16) if device.type == "cuda" else contextlib.nullcontext()
    out = Path(run.out)
    out.mkdir(parents=True, exist_ok=True)
    start, best = 0, float("inf")
    if (out / "last.pt").exists():
        ck = torch.load(out / "last.pt", map_location=device)
        model.load_state_dict(ck["model"])
        start, best = ck["step"], ck["best"]
        print(f"resumed at step {start}")

    history = []
    clock, tokens = time.perf_counter(), 0
    for step in range(start, run.steps):
        lr = lr_at(step, run)
        for group in optimizer.param_groups:
            group["lr"] = lr

        total = 0.0
        for _ in range(run.accumulate):
            x, y = train.next()
            with amp:
                _, loss = model(x, y)
            (loss / run.accumulate).backward()
            total += loss.item() / run.accumulate
            tokens += x.numel()
        norm = sum(p.grad.norm().item() ** 2 for p in model.parameters()) ** 0.5
        torch.nn.utils.clip_grad_norm_(model.parameters(), run.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

        if (step + 1) % run.log_every == 0:
            if device.type == "cuda":
                torch.cuda.synchronize()
            now = time.perf_counter()
            print(f"step {step + 1:6d}  loss {total:.4f}  norm {norm:.3f}  lr {lr:.2e}  {tokens / (now - clock):,.0f} tok/s")
            history.append({"step": step + 1, "loss": total, "norm": norm})
            clock, tokens = time.perf_counter(), 0

        if (step + 1) % run.eval_every == 0 or step + 1 == run.steps:
            v = evaluate(model, val, run.eval_batches)
            print(f"step {step + 1:6d}  val {v:.4f}  perplexity {math.exp(v):.2f}")
            prompt = torch.tensor([bpe.encode("Benor lost a")], device=device)
            ids = model.generate(prompt, run.sample_tokens, stop=256)
            print("   ", bpe.decode(ids[0].tolist()))
            best = min(best, v)
            torch.save({"model": model.state_dict(), "step": step + 1, "best": best, "config": dataclasses.asdict(cfg)}, out / "last.pt")
            (out / "history.json").write_text(json.dumps(history))
            clock, tokens = time.perf_counter(), 0


if __name__ == "__main__":
    main()
