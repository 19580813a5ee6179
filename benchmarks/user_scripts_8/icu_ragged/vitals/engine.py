import copy
import json
import os

import numpy as np
import torch
import torch.nn.functional as F


class AverageMeter:
    def __init__(self):
        self.reset()

    def reset(self):
        self.sum, self.count, self.last = 0.0, 0, 0.0

    def update(self, val, n=1):
        self.last = val
        self.sum += val * n
        self.count += n

    @property
    def avg(self):
        return self.sum / max(self.count, 1)


def auroc(scores, labels):
    order = np.argsort(scores)
    ranks = np.empty(len(scores))
    ranks[order] = np.arange(1, len(scores) + 1)
    pos = labels == 1
    n_pos, n_neg = pos.sum(), (~pos).sum()
    if n_pos == 0 or n_neg == 0:
        return float("nan")
    return (ranks[pos].sum() - n_pos * (n_pos + 1) / 2) / (n_pos * n_neg)


class ModelEma:
    def __init__(self, model, decay):
        self.module = copy.deepcopy(model).eval()
        self.decay = decay

    def update(self, model):
        with torch.no_grad():
            msd = model.state_dict()
            for k, v in self.module.state_dict().items():
                v.copy_(v * self.decay + msd[k].detach() * (1.0 - self.decay))


class Trainer:
    def __init__(self, cfg, model, train_loader, val_loader, device, out_dir):
        self.cfg, self.device, self.out_dir = cfg, device, out_dir
        self.model = model.to(device)
        self.train_loader, self.val_loader = train_loader, val_loader
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay)
        self.scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(self.optimizer, mode="max", factor=0.5, patience=0)
        self.ema = ModelEma(self.model, cfg.ema_decay)
        self.global_step = 0
        self.best, self.bad_epochs = -1.0, 0

    def to_device(self, batch):
        return {k: v.to(self.device) if torch.is_tensor(v) else v for k, v in batch.items()}

    def compute_loss(self, batch, model):
        logits, aux, valid = model(batch)
        weight = torch.tensor([self.cfg.pos_weight]).to(self.device)
        keep = batch["y"] >= 0
        cls = F.binary_cross_entropy_with_logits(logits[keep], batch["y"][keep], pos_weight=weight)
        # forecast the next observed vitals
        target, m = batch["x"][:, 1:], batch["mask"][:, 1:] * valid[:, 1:].unsqueeze(-1)
        recon = (((aux[:, :-1] - target) ** 2) * m).sum() / m.sum().clamp(min=1.0)
        return cls + self.cfg.aux_weight * recon, cls, recon, logits

    def log(self, record):
        with open(os.path.join(self.out_dir, "metrics.jsonl"), "a") as fh:
            fh.write(json.dumps(record) + "\n")
            fh.flush()
            os.fsync(fh.fileno())

    def train_epoch(self, epoch):
        self.model.train()
        meters = {k: AverageMeter() for k in ("loss", "cls", "recon", "auc", "gnorm")}
        for batch in self.train_loader:
            batch = self.to_device(batch)
            loss, cls, recon, logits = self.compute_loss(batch, self.model)
            if not torch.isfinite(loss):
                raise RuntimeError(f"non-finite loss at step {self.global_step}, stays {batch['stay_id'][:4]}")
            self.optimizer.zero_grad()
            loss.backward()
            total = 0.0
            for p in self.model.parameters():
                if p.grad is not None:
                    total += p.grad.detach().data.norm(2).item() ** 2
            gnorm = total ** 0.5
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg.grad_clip)
            self.optimizer.step()
            self.ema.update(self.model)

            n = int(batch["lengths"].sum())
            probs = torch.sigmoid(logits).detach().cpu().numpy()
            y = batch["y"].cpu().numpy()
            batch_auc = auroc(probs[y >= 0], y[y >= 0])
            meters["loss"].update(loss.item(), n)
            meters["cls"].update(cls.item(), n)
            meters["recon"].update(recon.item(), n)
            meters["gnorm"].update(gnorm)
            if batch_auc == batch_auc:
                meters["auc"].update(batch_auc, n)
            self.log({"step": self.global_step, "epoch": epoch, "loss": meters["loss"].last, "gnorm": gnorm,
                      "lr": self.optimizer.param_groups[0]["lr"]})
            self.global_step += 1
        return {k: m.avg for k, m in meters.items()}

    def evaluate(self, model):
        model.eval()
        losses, scores, labels = AverageMeter(), [], []
        for batch in self.val_loader:
            batch = self.to_device(batch)
            loss, _, _, logits = self.compute_loss(batch, model)
            losses.update(loss.item(), int(batch["lengths"].sum()))
            keep = (batch["y"] >= 0).cpu().numpy()
            scores.append(torch.sigmoid(logits).detach().cpu().numpy()[keep])
            labels.append(batch["y"].cpu().numpy()[keep])
        return {"loss": losses.avg, "auroc": auroc(np.concatenate(scores), np.concatenate(labels))}

    def fit(self):
        for epoch in range(self.cfg.epochs):
            tr = self.train_epoch(epoch)
            va = self.evaluate(self.ema.module)
            self.scheduler.step(va["auroc"])
            print(f"[{self.cfg.run_name}] epoch {epoch} train loss {tr['loss']:.5f} cls {tr['cls']:.5f} recon {tr['recon']:.5f} "
                  f"auc {tr['auc']:.4f} gnorm {tr['gnorm']:.3f} | val loss {va['loss']:.5f} auroc {va['auroc']:.5f}")
            if va["auroc"] > self.best:
                self.best, self.bad_epochs = va["auroc"], 0
                torch.save({"model": self.ema.module.state_dict(), "optimizer": self.optimizer.state_dict(),
                            "config": self.cfg.to_dict(), "epoch": epoch}, os.path.join(self.out_dir, "best.pt"))
            else:
                self.bad_epochs += 1
                if self.bad_epochs >= self.cfg.patience:
                    print("early stop")
                    break
        return self.best
