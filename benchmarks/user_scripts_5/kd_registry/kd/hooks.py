import gc
import json
import math
import time

import torch

from .registry import HOOKS


class Hook:
    def before_epoch(self, tr): pass
    def before_step(self, tr): pass
    def after_step(self, tr): pass
    def after_epoch(self, tr): pass


@HOOKS.register
class TextLogger(Hook):
    def __init__(self, interval=10, path="log.jsonl"):
        self.interval, self.path = interval, path

    def after_step(self, tr):
        rec = {k: float(v) for k, v in tr.outputs.items()}
        rec.update(step=tr.step, lr=tr.optimizer.param_groups[0]["lr"])
        with open(self.path, "a") as f:
            f.write(json.dumps(rec) + "\n")
        if tr.step % self.interval == 0:
            print("  ".join(f"{k}={v:.4f}" for k, v in rec.items()))


@HOOKS.register
class StepTimer(Hook):
    def __init__(self):
        self.total = 0

    def before_step(self, tr):
        if tr.device.type == "cuda":
            torch.cuda.synchronize()
        self.t = time.time()

    def after_step(self, tr):
        if tr.device.type == "cuda":
            torch.cuda.synchronize()
        self.total += time.time() - self.t

    def after_epoch(self, tr):
        print(f"[timer] {self.total:.2f}s in steps")


@HOOKS.register
class LossGuard(Hook):
    """skip the epoch's best-checkpoint when a loss exploded"""

    def after_epoch(self, tr):
        if not math.isfinite(float(tr.outputs["loss"])):
            raise RuntimeError("loss exploded")


@HOOKS.register
class Housekeeping(Hook):
    def after_step(self, tr):
        del tr.batch
        gc.collect()
        torch.cuda.empty_cache()


@HOOKS.register
class PreciseBN(Hook):
    """re-estimate BN statistics with a cumulative average before evaluation"""

    def __init__(self, batches=4):
        self.batches = batches

    def after_epoch(self, tr):
        bns = [m for m in tr.student.modules() if isinstance(m, torch.nn.BatchNorm2d)]
        old = [m.momentum for m in bns]
        for m in bns:
            m.reset_running_stats()
            m.momentum = None
        tr.student.train()
        with torch.no_grad():
            for i, (x, y) in enumerate(tr.loaders["train"]):
                if i == self.batches:
                    break
                tr.student(x.to(tr.device))
        for m, o in zip(bns, old):
            m.momentum = o
