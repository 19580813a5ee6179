import os
import random
import time

import numpy as np
import torch
import torch.nn.functional as F

from ..data import ensure_shards, make_loader
from ..models import PolicyValueNet
from .ema import Ema
from .schedule import warmup_cosine


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        random.seed(cfg.seed)
        np.random.seed(cfg.seed)
        torch.manual_seed(cfg.seed)
        torch.backends.cudnn.benchmark = True
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.amp = cfg.amp and self.device.type == "cuda"

        ensure_shards(cfg)
        self.train_loader = make_loader(cfg, True)
        self.val_loader = make_loader(cfg, False)

        self.model = PolicyValueNet(cfg).to(self.device)
        decay = [p for p in self.model.parameters() if p.ndim > 1]
        plain = [p for p in self.model.parameters() if p.ndim <= 1]
        self.opt = torch.optim.SGD([{"params": decay, "weight_decay": cfg.weight_decay},
                                    {"params": plain, "weight_decay": 0.0}],
                                   lr=cfg.lr, momentum=cfg.momentum, nesterov=True)
        self.sched = torch.optim.lr_scheduler.LambdaLR(self.opt, warmup_cosine(cfg))
        self.ema = Ema(self.model, cfg.ema_decay)
        self.step = 0

    def to_device(self, batch):
        return [t.to(self.device, non_blocking=True) for t in batch]

    def losses(self, model, x, move, z):
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.amp):
            logits, value = model(x)
        policy = F.cross_entropy(logits.float(), move)
        value = F.mse_loss(torch.tanh(value.float()), z)
        return policy, value, logits

    def fit(self):
        cfg = self.cfg
        self.model.train()
        sums = torch.zeros(2, device=self.device)
        correct, seen, t0 = 0, 0, time.time()
        for batch in self.train_loader:
            x, move, z = self.to_device(batch)
            policy, value, logits = self.losses(self.model, x, move, z)
            loss = policy + cfg.value_weight * value
            self.opt.zero_grad(set_to_none=True)
            loss.backward()
            self.opt.step()
            self.sched.step()
            self.step += 1
            self.ema.update(self.model, self.step)

            sums += torch.stack([policy, value]).detach()
            correct += (logits.argmax(1) == move).sum().item()
            seen += len(move)

            if self.step % cfg.log_every == 0:
                p, v = (sums / cfg.log_every).tolist()
                rate = seen / (time.time() - t0)
                print("step %d policy %.4f value %.4f top1 %.4f lr %.4f %.0f pos/s"
                      % (self.step, p, v, correct / seen, self.sched.get_last_lr()[0], rate), flush=True)
                sums.zero_()
                correct, seen, t0 = 0, 0, time.time()
            if self.step % cfg.eval_every == 0:
                self.evaluate()
                self.save()
            if self.step >= cfg.total_steps:
                break

    @torch.inference_mode()
    def evaluate(self):
        total = torch.zeros(3, device=self.device)
        n = 0
        for k, batch in enumerate(self.val_loader):
            if k >= self.cfg.eval_batches:
                break
            x, move, z = self.to_device(batch)
            policy, value, logits = self.losses(self.ema.model, x, move, z)
            total += torch.stack([policy, value, (logits.argmax(1) == move).float().mean()])
            n += 1
        p, v, acc = (total / max(n, 1)).tolist()
        print("   eval @%d policy %.4f value %.4f top1 %.4f" % (self.step, p, v, acc), flush=True)

    def save(self):
        os.makedirs(self.cfg.out, exist_ok=True)
        torch.save({"step": self.step, "model": self.model.state_dict(),
                    "ema": self.ema.model.state_dict(), "opt": self.opt.state_dict(),
                    "sched": self.sched.state_dict()}, os.path.join(self.cfg.out, "last.pt"))
