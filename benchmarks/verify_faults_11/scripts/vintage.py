"""Trains the watcher of the barrels, window after window, with the state carried on.

    python vintage.py --epochs 8
"""
import argparse
import copy
import logging
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import AveragedModel

from cellar import Barrels, Confusion, Keeper, Normalizer, Watcher, windows

log = logging.getLogger("vintage")


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--length", type=int, default=520)
    parser.add_argument("--window", type=int, default=24)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--lr", type=float, default=8e-3)
    parser.add_argument("--clip", type=float, default=0.5)
    parser.add_argument("--alpha", type=float, default=0.02, help="weight of large activations")
    parser.add_argument("--beta", type=float, default=0.1, help="weight of sudden activations")
    parser.add_argument("--noise", type=float, default=0.1)
    parser.add_argument("--average-from", type=int, default=5)
    parser.add_argument("--patience", type=int, default=4)
    parser.add_argument("--seed", type=int, default=31)
    parser.add_argument("--out", default="vintage_out")
    return parser.parse_args()


def class_weights(y, classes=4):
    counts = torch.bincount(y.flatten(), minlength=classes).float()
    weights = (counts.sum() / counts).sqrt()
    return weights / weights.mean()


@torch.no_grad()
def evaluate(model, barrels, normal, window):
    model.eval()
    state = model.start(len(barrels.x))
    confusion, total = Confusion(), 0.0
    for a, b in windows(len(barrels), window, vary=False):
        logits, state, _, _ = model(normal(barrels.x[:, a:b]), state, barrels.fresh[:, a:b])
        total += F.cross_entropy(logits.flatten(0, 1), barrels.y[:, a:b].flatten(), reduction="sum").item()
        confusion.add(logits.argmax(2), barrels.y[:, a:b])
    model.train()
    return total / barrels.y.numel(), confusion.accuracy(), confusion.f1()


@torch.no_grad()
def refresh_norms(model, barrels, normal, window):
    """The statistics of averaged weights are taken anew."""
    norm = model.norm
    norm.reset_running_stats()
    kept, norm.momentum = norm.momentum, None
    model.train()
    state = model.start(len(barrels.x))
    for a, b in windows(len(barrels), window, vary=False):
        _, state, _, _ = model(normal(barrels.x[:, a:b]), state, barrels.fresh[:, a:b])
    norm.momentum = kept


def train_epoch(model, barrels, normal, weights, optimizer, args):
    model.train()
    order = torch.randperm(len(barrels.x))
    x, y, fresh = barrels.x[order], barrels.y[order], barrels.fresh[order]
    state = model.start(len(x))
    sums, seen, pending = torch.zeros(2), 0, 0
    optimizer.zero_grad()
    for a, b in windows(len(barrels), args.window, vary=True):
        inputs = normal(x[:, a:b])
        inputs = inputs + args.noise * torch.randn_like(inputs)
        state = state.detach()
        logits, state, raw, dropped = model(inputs, state, fresh[:, a:b])
        loss = F.cross_entropy(logits.flatten(0, 1), y[:, a:b].flatten(), weight=weights)
        penalty = args.alpha * dropped.pow(2).mean()
        if b - a > 1:
            penalty = penalty + args.beta * (raw[:, 1:] - raw[:, :-1]).pow(2).mean()
        share = (b - a) / args.window
        ((loss + penalty) * share / args.accumulate).backward()
        sums += torch.tensor([loss.item(), penalty.item()]) * (b - a)
        seen += b - a
        pending += 1
        if pending == args.accumulate or b == len(barrels):
            nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            optimizer.step()
            optimizer.zero_grad()
            pending = 0
    return (sums / seen).tolist()


def main():
    args = parse()
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(name)s %(message)s")
    torch.manual_seed(args.seed)
    train, valid, test = Barrels(args.rows, args.length, 1), Barrels(8, 300, 2), Barrels(8, 300, 3)
    normal = Normalizer(train.x)
    weights = class_weights(train.y)
    model = Watcher()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=0.02)
    averaged = AveragedModel(model)
    keeper = Keeper(args.out)
    for epoch in range(1, args.epochs + 1):
        loss, penalty = train_epoch(model, train, normal, weights, optimizer, args)
        if epoch >= args.average_from:
            averaged.update_parameters(model)
        held, accuracy, f1 = evaluate(model, valid, normal, 60)
        scheduler.step(held)
        log.info("epoch %d loss %.4f penalty %.4f valid %.4f accuracy %.4f f1 %.4f lr %.5f", epoch, loss, penalty, held, accuracy, f1, optimizer.param_groups[0]["lr"])
        keeper.show(held, model=model.state_dict(), normal=normal.state_dict(), epoch=epoch)
        if keeper.since > args.patience:
            log.info("no better for %d epochs", keeper.since)
            break
    final = copy.deepcopy(averaged.module)
    refresh_norms(final, train, normal, 60)
    log.info("averaged: test %.4f accuracy %.4f f1 %.4f", *evaluate(final, test, normal, 60))
    model.load_state_dict(keeper.read()["model"])
    log.info("best: test %.4f accuracy %.4f f1 %.4f", *evaluate(model, test, normal, 60))
    torch.save({"averaged": final.state_dict(), "normal": normal.state_dict(), "optimizer": optimizer.state_dict()}, f"{args.out}/final.pt")


if __name__ == "__main__":
    main()
