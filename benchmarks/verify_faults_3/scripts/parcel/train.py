"""A package that hides words and learns to find them: relative imports, options, accumulation, clipping, warm-up and cosine, a log file."""

import argparse
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from .data import WORDS, Masker, sentences
from .model import Encoder


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=12)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--log", default="parcel.log")
    return parser.parse_args()


def rate(step, steps, warm=6, floor=0.1):
    if step < warm:
        return (step + 1) / warm
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * (step - warm) / (steps - warm)))


def lost(logits, words, chosen):
    return F.cross_entropy(logits[chosen], words[chosen])


def evaluate(model, texts):
    model.eval()
    loader = DataLoader(texts, batch_size=16, collate_fn=Masker(0.2, torch.Generator().manual_seed(8)))
    total, right, count = 0.0, 0, 0
    with torch.no_grad():
        for shown, words, chosen in loader:
            out = model(shown)
            size = int(chosen.sum())
            total += lost(out, words, chosen).item() * size
            right += (out.argmax(-1) == words)[chosen].sum().item()
            count += size
    return total / count, right / count


def main():
    args = options()
    torch.manual_seed(83)
    train = DataLoader(sentences(192, 0), batch_size=args.batch_size, shuffle=True, collate_fn=Masker(0.2))
    texts = sentences(64, 1)
    model = Encoder(WORDS)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.98), weight_decay=0.01)
    steps = args.epochs * len(train) // args.accumulate
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step, steps))
    best = float("inf")
    with open(args.log, "w") as log:
        for epoch in range(args.epochs):
            model.train()
            total = 0.0
            for number, (shown, words, chosen) in enumerate(train, 1):
                loss = lost(model(shown), words, chosen)
                (loss / args.accumulate).backward()
                total += loss.item()
                if number % args.accumulate == 0:
                    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    scheduler.step()
                    optimizer.zero_grad()
            value, share = evaluate(model, texts)
            print(f"epoch={epoch} train={total / len(train):.4f} valid={value:.4f} found={share:.4f} lr={scheduler.get_last_lr()[0]:.6f}", file=log)
            if value < best:
                best = value
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, "parcel.pt")
    print(f"best {best:.4f}")


if __name__ == "__main__":
    main()
