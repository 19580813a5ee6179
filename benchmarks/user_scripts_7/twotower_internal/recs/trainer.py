import copy
import json
import logging
import os
import time

import torch
from torch.utils.data import DataLoader

log = logging.getLogger("recs.trainer")


class Callback:
    def on_train_start(self, tr): pass
    def on_step_end(self, tr, logs): pass
    def on_epoch_end(self, tr, logs): pass


class MetricWriter(Callback):
    def __init__(self, path):
        self.path = path

    def on_step_end(self, tr, logs):
        with open(self.path, "a") as f:
            f.write(json.dumps({"step": tr.step, "loss": float(logs["loss"]), "lr": tr.opt.param_groups[0]["lr"]}) + "\n")

    def on_epoch_end(self, tr, logs):
        with open(self.path, "a") as f:
            f.write(json.dumps(dict(logs, epoch=tr.epoch)) + "\n")


class EmaCallback(Callback):
    def __init__(self, decay):
        self.decay = decay

    def on_train_start(self, tr):
        self.model = copy.deepcopy(tr.model).eval()

    def on_step_end(self, tr, logs):
        with torch.no_grad():
            src = dict(tr.model.named_parameters())
            for name, p in self.model.named_parameters():
                p.copy_(self.decay * p + (1.0 - self.decay) * src[name])


class GradNormMonitor(Callback):
    def on_step_end(self, tr, logs):
        total = 0.0
        for p in tr.model.parameters():
            if p.grad is not None:
                total += p.grad.norm(2).item() ** 2
        tr.meters["grad_norm"] = total ** 0.5


class Console(Callback):
    def on_step_end(self, tr, logs):
        if tr.step % tr.cfg["trainer"]["log_every"] == 0:
            log.info("step %d loss %.4f |g| %.3f", tr.step, logs["loss"].item(), tr.meters.get("grad_norm", 0.0))

    def on_epoch_end(self, tr, logs):
        log.info("epoch %d %s", tr.epoch, {k: round(v, 4) for k, v in logs.items()})


class Trainer:
    def __init__(self, cfg, model, data, callbacks):
        self.cfg, self.data, self.callbacks = cfg, data, callbacks
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = model.to(self.device)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=cfg["optim"]["lr"])
        w = cfg["optim"]["warmup"]
        self.sched = torch.optim.lr_scheduler.LambdaLR(self.opt, lambda s: min(1.0, (s + 1) / w))
        self.loader = DataLoader(data, batch_size=cfg["loader"]["batch_size"], shuffle=True,
                                 num_workers=cfg["loader"]["num_workers"], drop_last=True)
        self.step = self.epoch = 0
        self.meters = {}

    def fire(self, hook, *a):
        for cb in self.callbacks:
            getattr(cb, hook)(self, *a)

    def to_device(self, batch):
        return {k: v.to(self.device) for k, v in batch.items()}

    def train_step(self, batch):
        self.opt.zero_grad()
        loss = self.model(batch)
        if not torch.isfinite(loss):
            raise FloatingPointError("loss is %s at step %d" % (loss, self.step))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg["optim"]["grad_clip"])
        self.opt.step()
        self.sched.step()
        return loss.detach()

    @torch.no_grad()
    def evaluate(self, model):
        k = self.cfg["trainer"]["eval_k"]
        users = sorted(self.data.held_out)[:self.cfg["trainer"]["eval_users"]]
        hits, ranks = 0, 0.0
        for s in range(0, len(users), 512):
            us = users[s:s + 512]
            hist = torch.tensor([self.data.history(u, len(self.data.per_user[u]) - 1) for u in us]).to(self.device)
            vec = model.user_tower(torch.tensor(us).to(self.device), hist)
            items = model.item_tower(torch.arange(model.n_items, device=self.device))
            scores = vec @ items.t()
            for i, u in enumerate(us):
                top = scores[i].topk(k).indices.tolist()
                if self.data.held_out[u] in top:
                    hits += 1
                    ranks += 1.0 / (top.index(self.data.held_out[u]) + 1)
        return {"recall": hits / max(1, len(users)), "mrr": ranks / max(1, len(users))}

    def fit(self):
        os.makedirs(self.cfg["trainer"]["ckpt_dir"], exist_ok=True)
        self.fire("on_train_start")
        best = -1.0
        for self.epoch in range(self.cfg["trainer"]["epochs"]):
            self.model.train()
            total, t0 = torch.zeros((), device=self.device), time.time()
            for batch in self.loader:
                loss = self.train_step(self.to_device(batch))
                total += loss
                self.step += 1
                self.fire("on_step_end", {"loss": loss})
            ema = next((c.model for c in self.callbacks if isinstance(c, EmaCallback)), self.model)
            logs = self.evaluate(ema)
            logs.update(loss=total.item() / max(1, len(self.loader)), secs=time.time() - t0)
            self.fire("on_epoch_end", logs)
            if logs["recall"] > best:
                best = logs["recall"]
                torch.save({"model": ema.state_dict(), "step": self.step}, os.path.join(self.cfg["trainer"]["ckpt_dir"], "best.pt"))
        return best
