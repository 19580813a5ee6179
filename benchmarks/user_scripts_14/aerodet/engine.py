"""A small trainer in the manner of Lightning, without the dependency."""
import copy
import json
import math
import time
from pathlib import Path

import torch
from torch.cuda.amp import GradScaler, autocast


class Module(torch.nn.Module):
    trainer = None

    def log(self, name, value):
        self.trainer.logged.setdefault(name, []).append(float(value))


class Callback:
    def on_fit_start(self, trainer, module): ...
    def on_batch_end(self, trainer, module): ...
    def on_epoch_end(self, trainer, module): ...


class WeightAverage(Callback):
    def __init__(self, decay=0.999):
        self.decay = decay

    def on_fit_start(self, trainer, module):
        module.trainer = None
        self.shadow = copy.deepcopy(module).eval().requires_grad_(False)
        module.trainer = trainer
        self.pairs = [(list(self.shadow.parameters()), list(module.parameters()))]
        floats = [(a, b) for a, b in zip(self.shadow.buffers(), module.buffers()) if a.is_floating_point()]
        self.pairs.append(([a for a, _ in floats], [b for _, b in floats]))

    @torch.no_grad()
    def on_batch_end(self, trainer, module):
        w = 1 - min(self.decay, (1 + trainer.step) / (10 + trainer.step))
        for mine, theirs in self.pairs:
            torch._foreach_lerp_(mine, theirs, w)


class Journal(Callback):
    def __init__(self, path):
        self.path = Path(path)

    def on_batch_end(self, trainer, module):
        row = {k: v[-1] for k, v in trainer.logged.items()}
        row["step"] = trainer.step
        row["lr"] = trainer.optimizer.param_groups[0]["lr"]
        with open(self.path, "a") as f:
            f.write(json.dumps(row) + "\n")


class Checkpoint(Callback):
    def __init__(self, folder, monitor):
        self.folder, self.monitor, self.best = Path(folder), monitor, -math.inf

    def on_epoch_end(self, trainer, module):
        score = trainer.metrics[self.monitor]
        state = {"model": module.state_dict(), "optimizer": trainer.optimizer.state_dict(),
                 "scheduler": trainer.scheduler.state_dict(), "epoch": trainer.epoch, "step": trainer.step}
        avg = trainer.find(WeightAverage)
        if avg is not None:
            state["average"] = avg.shadow.state_dict()
        torch.save(state, self.folder / "last.ckpt")
        if score > self.best:
            self.best = score
            torch.save((avg.shadow if avg else module).state_dict(), self.folder / "best.pt")


def move(x, device):
    if torch.is_tensor(x):
        return x.to(device)
    if isinstance(x, dict):
        return {k: move(v, device) for k, v in x.items()}
    return x


class Trainer:
    def __init__(self, max_epochs, precision=16, clip=None, accumulate=1, callbacks=(), check_every=1, print_every=50):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.max_epochs, self.clip, self.accumulate = max_epochs, clip, accumulate
        self.amp = precision == 16 and self.device.type == "cuda"
        self.callbacks, self.check_every, self.print_every = list(callbacks), check_every, print_every
        self.logged, self.metrics = {}, {}
        self.step = self.epoch = 0

    def find(self, cls):
        return next((c for c in self.callbacks if isinstance(c, cls)), None)

    def call(self, hook, module):
        for c in self.callbacks:
            getattr(c, hook)(self, module)

    def resume(self, path, module):
        ck = torch.load(path, map_location=self.device)
        module.load_state_dict(ck["model"])
        self.optimizer.load_state_dict(ck["optimizer"])
        self.scheduler.load_state_dict(ck["scheduler"])
        self.epoch, self.step = ck["epoch"] + 1, ck["step"]
        avg = self.find(WeightAverage)
        if avg is not None and "average" in ck:
            avg.shadow.load_state_dict(ck["average"])

    def fit(self, module, train_loader, val_loader, ckpt=None):
        module.trainer = self
        module.to(self.device)
        self.total_steps = self.max_epochs * len(train_loader) // self.accumulate
        self.optimizer, self.scheduler = module.configure_optimizers()
        self.scaler = GradScaler(enabled=self.amp)
        self.call("on_fit_start", module)
        if ckpt:
            self.resume(ckpt, module)
        for self.epoch in range(self.epoch, self.max_epochs):
            began = time.time()
            module.train()
            self.logged.clear()
            for i, batch in enumerate(train_loader):
                batch = move(batch, self.device)
                with autocast(enabled=self.amp):
                    loss = module.training_step(batch, i)
                self.scaler.scale(loss / self.accumulate).backward()
                if (i + 1) % self.accumulate:
                    continue
                if self.clip:
                    self.scaler.unscale_(self.optimizer)
                    torch.nn.utils.clip_grad_norm_(module.parameters(), self.clip)
                self.scaler.step(self.optimizer)
                self.scaler.update()
                self.optimizer.zero_grad()
                self.scheduler.step()
                self.step += 1
                self.call("on_batch_end", module)
                if self.step % self.print_every == 0:
                    print(f"  step {self.step}", *(f"{k} {sum(v[-50:]) / len(v[-50:]):.4f}" for k, v in self.logged.items()))
            if (self.epoch + 1) % self.check_every == 0:
                avg = self.find(WeightAverage)
                self.metrics = self.validate(avg.shadow if avg else module, val_loader)
                print(f"epoch {self.epoch}", *(f"{k} {v:.4f}" for k, v in self.metrics.items()), f"{time.time() - began:.1f}s")
                self.call("on_epoch_end", module)

    def validate(self, module, loader):
        module.eval()
        outputs = []
        for i, batch in enumerate(loader):
            batch = move(batch, self.device)
            outputs.append(module.validation_step(batch, i))
        return module.validation_end(outputs)
