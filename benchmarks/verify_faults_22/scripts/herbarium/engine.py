import copy
import logging
import random

import numpy as np
import torch
import torch.nn as nn

from .config import get_config
from .data import get_loaders
from .model import EMA, Tagger

log = logging.getLogger("herbarium")


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def train_one_epoch(model, ema, loader, criterion, optimizer, scheduler, config):
    model.train()
    total, count = 0.0, 0
    for i, (words, offsets, weights, tags) in enumerate(loader):
        logits = model(words, offsets, weights)
        loss = criterion(logits, tags)
        (loss / config.accumulate).backward()
        total += loss.item() * len(tags)
        count += len(tags)
        if (i + 1) % config.accumulate == 0 or i + 1 == len(loader):
            nn.utils.clip_grad_norm_(model.parameters(), config.max_norm)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            ema.update(model)
    return total / count


@torch.no_grad()
def predict(model, loader):
    model.eval()
    probs, truth = [], []
    for words, offsets, weights, tags in loader:
        probs.append(torch.sigmoid(model(words, offsets, weights)))
        truth.append(tags)
    return torch.cat(probs), torch.cat(truth)


def f1(probs, truth, threshold):
    found = (probs > threshold).float()
    hits = (found * truth).sum(0)
    return 2 * hits / (found.sum(0) + truth.sum(0)).clamp(min=1)


def tune_thresholds(probs, truth):
    grid = torch.linspace(0.1, 0.9, 17)
    scores = torch.stack([f1(probs, truth, t) for t in grid])
    return grid[scores.argmax(0)]


def main():
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    config = get_config()
    torch.set_num_threads(1)
    set_seed(config.seed)
    train, val, test, pos_weight = get_loaders(config)
    model = Tagger(config)
    ema = EMA(model, config.ema)
    criterion = nn.BCEWithLogitsLoss(pos_weight=pos_weight)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, weight_decay=config.weight_decay)
    updates = config.epochs * -(-len(train) // config.accumulate)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates, eta_min=1e-4)
    best, best_state, bad = 0.0, None, 0
    for epoch in range(1, config.epochs + 1):
        loss = train_one_epoch(model, ema, train, criterion, optimizer, scheduler, config)
        probs, truth = predict(ema.model, val)
        macro = f1(probs, truth, 0.5).mean().item()
        log.info("epoch %d: train loss %.5f, validation macro F1 %.4f", epoch, loss, macro)
        if macro > best:
            best, bad = macro, 0
            best_state = copy.deepcopy(ema.model.state_dict())
        else:
            bad += 1
            if bad >= config.patience:
                log.info("no progress for %d epochs, stopping", bad)
                break
    ema.model.load_state_dict(best_state)
    thresholds = tune_thresholds(*predict(ema.model, val))
    probs, truth = predict(ema.model, test)
    log.info("test macro F1 %.4f", f1(probs, truth, thresholds).mean().item())
    torch.save({"model": ema.model.state_dict(), "thresholds": thresholds}, "tagger.pt")
