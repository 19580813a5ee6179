"""Vectors of words by skip-grams: frequent words are thinned out, rare ones are drawn as negatives more often than they occur, rates fall line by line."""
import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def corpus(count, words, seed):
    """Sentences about topics; every topic prefers words of its own."""
    rng = np.random.default_rng(seed)
    common = 1 / np.arange(1, words + 1)
    topics = [common * np.where(np.arange(words) % 8 == topic, 12.0, 1.0) for topic in range(8)]
    return [rng.choice(words, rng.integers(6, 18), p=topics[k] / topics[k].sum()) for k in rng.integers(0, 8, count)]


class Vectors(nn.Module):
    def __init__(self, words, width):
        super().__init__()
        self.inner = nn.Embedding(words, width, sparse=True)
        self.outer = nn.Embedding(words, width, sparse=True)
        nn.init.uniform_(self.inner.weight, -0.5 / width, 0.5 / width)
        nn.init.zeros_(self.outer.weight)

    def forward(self, center, context, negatives):
        v = self.inner(center)
        near = (v * self.outer(context)).sum(-1)
        far = torch.einsum("bd,bkd->bk", v, self.outer(negatives))
        return -(F.logsigmoid(near) + F.logsigmoid(-far).sum(-1))


def pairs_of(sentences, keep, window, rng):
    for sentence in sentences:
        left = sentence[rng.random(len(sentence)) < keep[sentence]]
        for i, word in enumerate(left):
            reach = rng.integers(1, window + 1)
            for j in range(max(0, i - reach), min(len(left), i + reach + 1)):
                if j != i:
                    yield word, left[j]


def judge(model, words):
    """How much nearer words of one topic lie than those of others."""
    with torch.no_grad():
        v = F.normalize(model.inner.weight, dim=1)
    near = v @ v.T
    topic = torch.arange(words) % 8
    same = (topic[:, None] == topic[None]) & ~torch.eye(words, dtype=torch.bool)
    return near[same].mean().item() - near[topic[:, None] != topic[None]].mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--words", type=int, default=200)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--window", type=int, default=3)
    parser.add_argument("--negatives", type=int, default=5)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--lr", type=float, default=0.08)
    parser.add_argument("--thin", type=float, default=5e-3)
    args = parser.parse_args()
    torch.manual_seed(1)
    rng = np.random.default_rng(1)
    sentences = corpus(350, args.words, 5)
    counts = np.bincount(np.concatenate(sentences), minlength=args.words) + 1.0
    share = counts / counts.sum()
    keep = np.minimum(1.0, np.sqrt(args.thin / share))
    table = torch.from_numpy(counts**0.75 / (counts**0.75).sum())
    model = Vectors(args.words, args.width)
    optimizer = torch.optim.SparseAdam(list(model.parameters()), lr=args.lr)
    average = torch.zeros(args.words, args.width)
    for epoch in range(args.epochs):
        order = rng.permutation(len(sentences))
        pairs = np.array(list(pairs_of([sentences[i] for i in order], keep, args.window, rng)))
        pairs = torch.from_numpy(pairs[rng.permutation(len(pairs))])
        batches = pairs.split(args.batch)
        total, seen = 0.0, 0
        for k, batch in enumerate(batches):
            done = (epoch + k / len(batches)) / args.epochs
            for group in optimizer.param_groups:
                group["lr"] = args.lr * max(0.05, 1 - done)
            negatives = torch.multinomial(table, len(batch) * args.negatives, replacement=True)
            loss = model(batch[:, 0], batch[:, 1], negatives.view(len(batch), -1)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
            seen += len(batch)
        average.lerp_(model.inner.weight.detach(), 1 / (epoch + 1))
        print(f"epoch {epoch} pairs {seen} loss {total / seen:.4f} apart {judge(model, args.words):.4f}")
    torch.save({"vectors": model.inner.weight.detach(), "average": average, "counts": counts}, "vectors.pt")


if __name__ == "__main__":
    main()
