"""A small training with everything that most scripts have; options switch what tests need."""

import argparse
import os
import random
import sys

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Points(Dataset):
    def __init__(self, count):
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(count, 8, generator=generator)
        self.y = (self.x.sum(1) > 0).long()

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--context")
    parser.add_argument("--persistent", action="store_true")
    parser.add_argument("--fused", action="store_true")
    parser.add_argument("--compile")
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--clip", type=float)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--end", choices=["exit", "error", "interrupt", "_exit", "term"])
    parser.add_argument("--outside")
    parser.add_argument("--save")
    parser.add_argument("--eval-mode", action="store_true")
    return parser.parse_args()


def main():
    args = parse()
    if args.seed is not None:
        random.seed(args.seed)
        np.random.seed(args.seed)
        torch.manual_seed(args.seed)
    more = (
        {"multiprocessing_context": args.context, "persistent_workers": args.persistent}
        if args.workers
        else {}
    )
    train = DataLoader(Points(56), 16, shuffle=True, num_workers=args.workers, **more)
    test = DataLoader(Points(20), 8)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 2))
    network = torch.compile(model, backend=args.compile, fullgraph=True) if args.compile else model
    optimizer = torch.optim.Adam(model.parameters(), 0.01, fused=args.fused)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    for epoch in range(args.epochs):
        model.train(not args.eval_mode)
        for number, (x, y) in enumerate(train, 1):
            loss = nn.functional.cross_entropy(network(x), y) / args.accumulate
            loss.backward()
            if args.clip:
                nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            if number % args.accumulate == 0:
                optimizer.step()
                optimizer.zero_grad()
            print("loss", loss.item())
            loss.mul_(0)  # what was recorded must not follow
        schedule.step()
        model.eval()
        with torch.no_grad():
            right = sum((network(x).argmax(1) == y).sum().item() for x, y in test)
        print("epoch", epoch, right, random.random(), np.random.rand())
    if args.save:
        torch.save({"model": model.state_dict(), "epoch": epoch}, args.save)
        torch.save(model, args.save + ".whole")
    if args.outside:
        with open(args.outside, "w") as file:
            file.write("x")
    if args.end == "exit":
        sys.exit(3)
    if args.end == "error":
        raise RuntimeError("it broke")
    if args.end == "interrupt":
        raise KeyboardInterrupt
    if args.end == "_exit":
        os._exit(4)
    if args.end == "term":
        os.kill(os.getpid(), 15)


if __name__ == "__main__":
    main()
