from __future__ import annotations

import copy
import csv
import math
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

from semi import registry
from semi.data import build_loaders
from semi.flex import FlexTeacher  # noqa: F401
from semi.wrn import WideResNet  # noqa: F401


class CSVLogger:
    def __init__(self, path: Path, keys: list[str]):
        self.file = path.open('w', newline='')
        self.writer = csv.DictWriter(self.file, keys)
        self.writer.writeheader()

    def write(self, **row) -> None:
        self.writer.writerow(row)
        self.file.flush()


@torch.no_grad()
def ema_update(teacher: nn.Module, student: nn.Module, decay: float) -> None:
    for pt, ps in zip(teacher.parameters(), student.parameters()):
        pt.data = pt.data * decay + ps.data * (1 - decay)
    for bt, bs in zip(teacher.buffers(), student.buffers()):
        bt.copy_(bs)


def param_groups(model: nn.Module, wd: float) -> list[dict]:
    decay = [p for n, p in model.named_parameters() if p.ndim > 1]
    rest = [p for n, p in model.named_parameters() if p.ndim <= 1]
    return [{'params': decay, 'weight_decay': wd}, {'params': rest, 'weight_decay': 0.0}]


class Runner:
    def __init__(self, cfg):
        self.cfg = cfg
        self.device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
        torch.manual_seed(cfg.seed)
        np.random.seed(cfg.seed)
        torch.backends.cudnn.benchmark = True
        self.work_dir = Path(cfg.work_dir)
        self.work_dir.mkdir(parents=True, exist_ok=True)

        self.lb_loader, self.ulb_loader, self.test_loader = build_loaders(cfg)
        self.student = registry.build(registry.MODELS, cfg.model, cfg.data.num_classes).to(self.device)
        self.teacher = copy.deepcopy(self.student)
        for p in self.teacher.parameters():
            p.requires_grad_(True)  # saved together with the optimizer in older runs, keep
        self.method = registry.build(registry.METHODS, cfg.method, cfg.data.num_classes, cfg.data.num_unlabeled,
                                     self.device)
        o = cfg.optim
        self.optimizer = torch.optim.SGD(param_groups(self.student, o.weight_decay), lr=o.lr, momentum=o.momentum,
                                         nesterov=True)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda s: math.cos(7 * math.pi * s / (16 * cfg.schedule.steps)))
        self.logger = CSVLogger(self.work_dir / 'log.csv',
                                ['step', 'lr', 'loss', 'sup', 'unsup', 'mask', 'train_acc', 'time'])
        print(f'{sum(p.numel() for p in self.student.parameters()) / 1e6:.2f} M parameters on {self.device}')

    def autocast(self):
        return torch.autocast(self.device.type, dtype=torch.bfloat16,
                              enabled=self.cfg.amp and self.device.type == 'cuda')

    def train(self) -> float:
        s, best = self.cfg.schedule, 0.0
        self.student.train()
        self.teacher.train()
        recent: list[float] = []
        for step, ((x_lb, y_lb), (idx, x_w, x_s)) in enumerate(zip(self.lb_loader, self.ulb_loader), 1):
            t0 = time.perf_counter()
            x_lb = x_lb.to(self.device, non_blocking=True)
            y_lb = y_lb.to(self.device, non_blocking=True)
            x_w = x_w.to(self.device, non_blocking=True)
            x_s = x_s.to(self.device, non_blocking=True)
            idx = idx.to(self.device)

            with self.autocast():
                loss, info = self.method.step(self.student, self.teacher, x_lb, y_lb, idx, x_w, x_s)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            ema_update(self.teacher, self.student, self.method.ema_decay)

            if self.device.type == 'cuda':
                torch.cuda.synchronize()
            dt = time.perf_counter() - t0
            recent.append(loss.item())
            self.logger.write(step=step, lr=self.scheduler.get_last_lr()[0], loss=recent[-1], time=round(dt, 4), **info)

            if step % s.log_every == 0:
                print(f'step {step:6d} loss {np.mean(recent):.4f} ' + ' '.join(f'{k} {v:.4f}' for k, v in info.items()))
                recent.clear()
            if step % s.eval_every == 0 or step == s.steps:
                loss_t, acc, per_class = self.evaluate(self.teacher)
                best = max(best, acc)
                print(f'step {step:6d} teacher: loss {loss_t:.4f} acc {acc:.4f} worst class {min(per_class):.3f} '
                      f'best {best:.4f}')
                torch.save({'student': self.student.state_dict(), 'teacher': self.teacher.state_dict(), 'step': step},
                           self.work_dir / 'latest.pt')
                torch.cuda.empty_cache()
        return best

    @torch.inference_mode()
    def evaluate(self, model: nn.Module) -> tuple[float, float, list[float]]:
        model.eval()
        total, preds, labels = 0.0, [], []
        for x, y in self.test_loader:
            x, y = x.to(self.device, non_blocking=True), y.to(self.device, non_blocking=True)
            logits = model(x)
            total += nn.functional.cross_entropy(logits, y, reduction='sum').item()
            preds += logits.argmax(1).tolist()
            labels += y.tolist()
        model.train()
        preds, labels = np.array(preds), np.array(labels)
        per_class = [float((preds[labels == c] == c).mean()) for c in range(self.cfg.data.num_classes)]
        return total / len(labels), float((preds == labels).mean()), per_class
