"""Single-process stand-in when `accelerate` is not installed."""
import contextlib
import torch

try:
    from accelerate import Accelerator
except ImportError:
    class Accelerator:
        def __init__(self, gradient_accumulation_steps=1, mixed_precision="no", **kw):
            self.k, self.mixed_precision = gradient_accumulation_steps, mixed_precision
            self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            self.is_main_process = self.is_local_main_process = True
            self.sync_gradients, self._i = True, 0

        def prepare(self, *objs):
            out = []
            for o in objs:
                if isinstance(o, torch.nn.Module):
                    o = o.to(self.device)
                elif isinstance(o, torch.optim.Optimizer):
                    o = _Opt(o, self)
                elif isinstance(o, torch.utils.data.DataLoader):
                    o = _Loader(o, self.device)
                elif hasattr(o, "get_last_lr"):
                    o = _Sched(o, self)
                out.append(o)
            return out

        @contextlib.contextmanager
        def accumulate(self, model):
            self._i += 1
            self.sync_gradients = self._i % self.k == 0
            yield

        def backward(self, loss):
            (loss / self.k).backward()

        def clip_grad_norm_(self, params, v):
            return torch.nn.utils.clip_grad_norm_(params, v)

        def gather_for_metrics(self, x):
            return x

        def unwrap_model(self, m):
            return m

        def wait_for_everyone(self):
            pass

        def print(self, *a):
            print(*a)

    class _Opt:
        def __init__(self, o, acc):
            self.o, self.acc, self.param_groups = o, acc, o.param_groups

        def step(self):
            if self.acc.sync_gradients:
                self.o.step()

        def zero_grad(self):
            if self.acc.sync_gradients:
                self.o.zero_grad()

    class _Sched:
        def __init__(self, s, acc):
            self.s, self.acc = s, acc
            self.get_last_lr = s.get_last_lr

        def step(self):
            if self.acc.sync_gradients:
                self.s.step()

    class _Loader:
        def __init__(self, dl, device):
            self.dl, self.device, self.dataset = dl, device, dl.dataset

        def __len__(self):
            return len(self.dl)

        def __iter__(self):
            for b in self.dl:
                yield {k: v.to(self.device) for k, v in b.items()}
