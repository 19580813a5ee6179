"""Just enough of an "accelerator" for one process, so that the scripts look like our multi-GPU ones."""
import contextlib
import random
import time

import numpy as np
import torch


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


class DeviceLoader:
    def __init__(self, loader, device):
        self.loader, self.device = loader, device

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        for batch in self.loader:
            yield {k: v.to(self.device) for k, v in batch.items()}


class Accelerator:
    def __init__(self, mixed_precision="no", gradient_accumulation_steps=1):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.mixed_precision = mixed_precision
        self.accumulation = gradient_accumulation_steps
        self.micro = 0
        self.timers = {}

    def prepare(self, *things):
        out = []
        for t in things:
            if isinstance(t, torch.nn.Module):
                t = t.to(self.device)
            elif isinstance(t, torch.utils.data.DataLoader):
                t = DeviceLoader(t, self.device)
            out.append(t)
        return out if len(out) > 1 else out[0]

    @contextlib.contextmanager
    def autocast(self):
        if self.mixed_precision == "bf16" and self.device.type == "cuda":
            with torch.autocast("cuda", torch.bfloat16):
                yield
        else:
            yield

    @contextlib.contextmanager
    def timer(self, name):
        """Wall time of a section."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        t = time.perf_counter()
        yield
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        n, s = self.timers.get(name, (0, 0.0))
        self.timers[name] = (n + 1, s + time.perf_counter() - t)

    @property
    def sync_gradients(self):
        return self.micro % self.accumulation == 0

    def backward(self, loss):
        self.micro += 1
        (loss / self.accumulation).backward()

    def report(self):
        return "  ".join(f"{k} {1e3 * s / n:.1f} ms" for k, (n, s) in self.timers.items())
