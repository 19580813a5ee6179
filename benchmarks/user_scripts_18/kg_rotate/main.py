import argparse
import random
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from kge import graph
from kge.model import RotatE
from kge.ranking import evaluate
from kge.sampler import TripleDataset, alternate


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--path", help="folder with train/valid/test.txt")
    p.add_argument("--entities", type=int, default=14541)
    p.add_argument("--relations", type=int, default=237)
    p.add_argument("--triples", type=int, default=310000)
    p.add_argument("--dim", type=int, default=1000)
    p.add_argument("--gamma", type=float, default=9.0)
    p.add_argument("--alpha", type=float, default=1.0, help="temperature of the self-adversarial weights")
    p.add_argument("--negatives", type=int, default=256)
    p.add_argument("--batch-size", type=int, default=1024)
    p.add_argument("--eval-batch-size", type=int, default=16)
    p.add_argument("--lr", type=float, default=5e-5)
    p.add_argument("--steps", type=int, default=100000)
    p.add_argument("--warm-up", type=int, default=50000)
    p.add_argument("--log-every", type=int, default=100)
    p.add_argument("--eval-every", type=int, default=10000)
    p.add_argument("--workers", type=int, default=0)
    p.add_argument("--seed", type=int, default=3)
    p.add_argument("--save", default=None)
    return p.parse_args()


def train_step(model, optimizer, batch, args, device):
    triple, candidates, weight, mode = batch
    triple, candidates, weight = triple.to(device), candidates.to(device), weight.to(device)

    negative = model.negative(triple, candidates, mode)
    # the weights of the negatives are constants for the gradient
    attention = F.softmax(negative * args.alpha, dim=1).detach()
    negative = (attention * F.logsigmoid(-negative)).sum(dim=1)
    positive = F.logsigmoid(model.positive(triple)).squeeze(1)
    positive_loss = -(weight * positive).sum() / weight.sum()
    negative_loss = -(weight * negative).sum() / weight.sum()
    loss = (positive_loss + negative_loss) / 2

    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return {"positive": positive_loss.item(), "negative": negative_loss.item(), "loss": loss.item()}


def main():
    args = get_args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    if args.path:
        parts, n_entity, n_relation = graph.load(args.path)
    else:
        parts, n_entity, n_relation = graph.generate(args.entities, args.relations, args.triples, args.seed)
    known = set(parts["train"]) | set(parts["valid"]) | set(parts["test"])
    print(f"{n_entity} entities, {n_relation} relations, "
          + ", ".join(f"{len(v)} {k}" for k, v in parts.items()))

    loaders = [DataLoader(TripleDataset(parts["train"], n_entity, n_relation, args.negatives, mode),
                          batch_size=args.batch_size, shuffle=True, num_workers=args.workers,
                          collate_fn=TripleDataset.collate) for mode in ("head", "tail")]
    stream = alternate(*loaders)
    model = RotatE(n_entity, n_relation, args.dim, args.gamma).to(device)
    lr, warm_up = args.lr, args.warm_up
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)

    logs, best = [], 0.0
    started = time.time()
    for step in range(1, args.steps + 1):
        logs.append(train_step(model, optimizer, next(stream), args, device))
        if step >= warm_up:
            # as in the paper's code: a tenth of the rate, and Adam starts with fresh moments
            lr, warm_up = lr / 10, warm_up * 3
            print(f"step {step}: learning rate {lr:g}")
            optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        if step % args.log_every == 0:
            mean = {k: sum(log[k] for log in logs) / len(logs) for k in logs[0]}
            logs = []
            print(f"step {step} " + " ".join(f"{k} {v:.5f}" for k, v in mean.items())
                  + f"  ({time.time() - started:.1f} s)")
        if step % args.eval_every == 0:
            metrics = evaluate(model, parts["valid"], known, n_entity, args.eval_batch_size, device)
            print(f"step {step} valid " + " ".join(f"{k} {v:.4f}" for k, v in metrics.items()))
            if metrics["mrr"] > best:
                best = metrics["mrr"]
                if args.save:
                    torch.save({"model": model.state_dict(), "step": step, "mrr": best}, args.save)
    metrics = evaluate(model, parts["test"], known, n_entity, args.eval_batch_size, device)
    print("test " + " ".join(f"{k} {v:.4f}" for k, v in metrics.items()))


if __name__ == "__main__":
    main()
