import json
import math
import os
from dataclasses import asdict, dataclass

import torch
from torch.utils.data import DataLoader


@dataclass
class TrainerConfig:
    max_steps: int = 5000
    batch_size: int = 64
    lr: float = 1e-3
    min_lr: float = 1e-4
    warmup: int = 200
    weight_decay: float = 0.1
    grad_clip: float = 1.0
    eval_every: int = 250
    eval_batches: int = 50
    num_workers: int = 0
    out_dir: str = "out"


class Trainer:
    def __init__(self, model, train_ds, val_ds, cfg: TrainerConfig):
        self.cfg = cfg
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.use_amp = self.device == "cuda"
        self.model = model.to(self.device)
        self.optimizer = torch.optim.AdamW(model.param_groups(cfg.weight_decay), lr=cfg.lr, betas=(0.9, 0.95))
        self.scaler = torch.amp.GradScaler(self.device, enabled=self.use_amp)
        self.train_loader = DataLoader(train_ds, batch_size=cfg.batch_size, shuffle=True, drop_last=True,
                                       pin_memory=True, num_workers=cfg.num_workers)
        self.val_loader = DataLoader(val_ds, batch_size=cfg.batch_size, shuffle=False, drop_last=True)
        self.train_ds = train_ds
        self.step = 0
        self.best_val = float("inf")
        self.history = []
        os.makedirs(cfg.out_dir, exist_ok=True)

    def lr_at(self, step: int) -> float:
        c = self.cfg
        if step < c.warmup:
            return c.lr * (step + 1) / c.warmup
        t = (step - c.warmup) / max(1, c.max_steps - c.warmup)
        return c.min_lr + 0.5 * (1 + math.cos(math.pi * t)) * (c.lr - c.min_lr)

    def batches(self):
        while True:
            for batch in self.train_loader:
                yield batch

    def save(self, name: str):
        torch.save({
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "config": asdict(self.cfg),
        }, os.path.join(self.cfg.out_dir, name))

    @torch.no_grad()
    def evaluate(self) -> float:
        self.model.eval()
        losses = []
        for i, (x, y) in enumerate(self.val_loader):
            if i >= self.cfg.eval_batches:
                break
            x, y = x.to(self.device), y.to(self.device)
            _, loss = self.model(x, y)
            losses.append(loss.item())
        self.model.train()
        return sum(losses) / len(losses)

    def sample(self, prompt: str, n: int = 200) -> str:
        self.model.eval()
        idx = torch.tensor([[self.train_ds.stoi[c] for c in prompt]], device=self.device)
        out = self.model.generate(idx, n)
        self.model.train()
        return self.train_ds.decode(out[0])

    def train_step(self, x, y) -> float:
        lr = self.lr_at(self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        x, y = x.to(self.device), y.to(self.device)
        with torch.autocast(self.device, dtype=torch.float16, enabled=self.use_amp):
            _, loss = self.model(x, y)
        self.scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg.grad_clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()

    def fit(self):
        running = None
        self.model.train()
        for x, y in self.batches():
            loss = self.train_step(x, y)
            running = loss if running is None else 0.95 * running + 0.05 * loss
            self.step += 1
            with open(os.path.join(self.cfg.out_dir, "train_log.jsonl"), "a") as f:
                f.write(json.dumps({"step": self.step, "loss": loss}) + "\n")
            if self.step % self.cfg.eval_every == 0 or self.step == self.cfg.max_steps:
                val = self.evaluate()
                self.history.append((self.step, running, val))
                print(f"step {self.step:5d} | lr {self.lr_at(self.step):.2e} | train {running:.4f} | val {val:.4f}")
                if val < self.best_val:
                    self.best_val = val
                    self.save("best.pt")
            if self.step >= self.cfg.max_steps:
                break
        self.save("last.pt")
        return self.best_val
