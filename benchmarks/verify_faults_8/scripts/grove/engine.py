import numpy as np
import torch
import torch.nn.functional as F


def mixup(x, y, classes, cfg):
    target = F.one_hot(y, classes).float()
    target = target * (1 - cfg.smoothing) + cfg.smoothing / classes
    lam = np.random.beta(cfg.mixup, cfg.mixup)
    order = torch.randperm(x.size(0))
    return lam * x + (1 - lam) * x[order], lam * target + (1 - lam) * target[order]


def train_one_epoch(model, loader, optimizer, scheduler, cfg):
    model.train()
    total, count = 0.0, 0
    for x, y in loader:
        x, y = mixup(x, y, cfg.classes, cfg)
        logits = model(x)
        loss = -(y * F.log_softmax(logits, dim=1)).sum(dim=1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        total += loss.item() * x.size(0)
        count += x.size(0)
    return total / count


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    loss, right, count = 0.0, 0, 0
    for x, y in loader:
        logits = model(x)
        loss += F.cross_entropy(logits, y, reduction="sum").item()
        right += (logits.argmax(1) == y).sum().item()
        count += y.size(0)
    return loss / count, right / count
