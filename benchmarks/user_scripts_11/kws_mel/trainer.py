import gc
import json
import math
import os

import numpy as np
import torch
import torch.nn.functional as F
from tqdm import tqdm


def smooth_one_hot(labels, n_classes, smoothing):
    one_hot = torch.zeros(labels.size(0), n_classes).to(labels.device)
    one_hot.scatter_(1, labels.unsqueeze(1), 1.0)
    return one_hot * (1.0 - smoothing) + smoothing / n_classes


def soft_cross_entropy(logits, target):
    return -(target * F.log_softmax(logits, dim=1)).sum(1).mean()


def mixup(x, y, alpha):
    lam = np.random.beta(alpha, alpha)
    index = torch.randperm(x.size(0))
    return lam * x + (1 - lam) * x[index], lam * y + (1 - lam) * y[index]


def grad_norm(model):
    total_norm = 0.0
    for p in model.parameters():
        if p.grad is not None:
            param_norm = p.grad.data.norm(2)
            total_norm += param_norm.item() ** 2
    return total_norm ** 0.5


class Trainer:
    def __init__(self, model, loaders, cfg, device):
        self.model = model
        self.train_loader, self.valid_loader = loaders
        self.cfg = cfg
        self.device = device
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay)
        total, warm = cfg.epochs * len(self.train_loader), cfg.warmup_epochs * len(self.train_loader)

        def lr_lambda(step):
            if step < warm:
                return (step + 1) / warm
            return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, total - warm)))

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lr_lambda)
        self.step = 0
        self.best = 0.0
        os.makedirs(cfg.out, exist_ok=True)
        self.log_path = os.path.join(cfg.out, 'log.jsonl')

    def log(self, **kw):
        with open(self.log_path, 'a') as f:
            f.write(json.dumps(kw) + '\n')

    def train_epoch(self, epoch):
        self.model.train()
        losses, n_correct, n_seen = [], 0, 0
        bar = tqdm(self.train_loader, desc='epoch %d' % epoch, leave=False)
        for x, y in bar:
            x, y = x.to(self.device), y.to(self.device)
            target = smooth_one_hot(y, self.cfg.n_classes, self.cfg.smoothing)
            x, target = mixup(x, target, self.cfg.mixup_alpha)

            self.optimizer.zero_grad(set_to_none=True)
            logits = self.model(x)
            loss = soft_cross_entropy(logits, target)
            loss.backward()
            norm = grad_norm(self.model)
            self.optimizer.step()
            self.scheduler.step()

            losses.append(loss.detach())
            pred = logits.argmax(1).cpu().numpy()
            n_correct += (pred == y.cpu().numpy()).sum()
            n_seen += len(pred)
            bar.set_postfix(loss=loss.item(), acc=n_correct / n_seen)
            self.log(step=self.step, loss=loss.item(), grad_norm=norm, lr=self.scheduler.get_last_lr()[0])
            self.step += 1
        return torch.stack(losses).mean().item(), n_correct / n_seen

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        n = self.cfg.n_classes
        confusion = torch.zeros(n, n)
        total_loss = 0.0
        for x, y in self.valid_loader:
            x, y = x.to(self.device, non_blocking=True), y.to(self.device, non_blocking=True)
            logits = self.model(x)
            total_loss += F.cross_entropy(logits, y, reduction='sum').item()
            preds = logits.argmax(1)
            for t, p in zip(y.view(-1), preds.view(-1)):
                confusion[t.long(), p.long()] += 1
        recall = confusion.diag() / confusion.sum(1).clamp(min=1)
        acc = (confusion.diag().sum() / confusion.sum()).item()
        return total_loss / len(self.valid_loader.dataset), acc, recall

    def fit(self):
        for epoch in range(self.cfg.epochs):
            loss, acc = self.train_epoch(epoch)
            val_loss, val_acc, recall = self.validate()
            worst = int(recall.argmin())
            print(f'[{epoch:02d}] loss {loss:.4f} acc {acc:.4f} | val loss {val_loss:.4f} acc {val_acc:.4f} '
                  f'| worst {self.cfg.label_names[worst]} {recall[worst]:.3f}', flush=True)
            if val_acc > self.best:
                self.best = val_acc
                torch.save({'model': self.model.state_dict(), 'acc': val_acc}, os.path.join(self.cfg.out, 'best.pt'))
            gc.collect()
            torch.cuda.empty_cache()
        return self.best
