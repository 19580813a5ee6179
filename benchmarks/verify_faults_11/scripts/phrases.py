#!/usr/bin/env python
"""Sequence to sequence with attention on an invented language: batches by length, sampled teachers, smoothed labels, averaged checkpoints."""
import argparse
import glob
import os
import random
from collections import defaultdict

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

PAD, BOS, EOS, UNK = 0, 1, 2, 3
WORDS = 16
VOCAB = 4 + WORDS


def speak(count, seed):
    """The target turns the clauses around, marks every repeated word and shifts words by the length of their clause."""
    rng = random.Random(seed)
    pairs = []
    for _ in range(count):
        source, target = [], []
        for _ in range(rng.randint(1, 3)):
            clause = [4 + min(int(rng.expovariate(0.18)), WORDS - 3) for _ in range(rng.randint(2, 4))]
            source += clause + [4 + WORDS - 1]
            said = []
            for w in reversed(clause):
                said.append(4 + (w - 4 + len(clause)) % (WORDS - 2))
                if clause.count(w) > 1:
                    said.append(4 + WORDS - 2)
            target = said + target
        pairs.append((torch.tensor(source + [EOS]), torch.tensor(target + [EOS])))
    return pairs


class Buckets:
    """Batches of sentences of about one length, no more than so many tokens in each; anew every epoch."""

    def __init__(self, pairs, tokens, shuffle, window=6):
        self.pairs, self.tokens, self.shuffle, self.window = pairs, tokens, shuffle, window
        self.epoch = 0

    def __iter__(self):
        rng = random.Random(1000 + self.epoch)
        order = list(range(len(self.pairs)))
        if self.shuffle:
            rng.shuffle(order)
        order.sort(key=lambda i: len(self.pairs[i][0]) // self.window)
        batches, batch, longest = [], [], 0
        for i in order:
            size = max(longest, len(self.pairs[i][0]), len(self.pairs[i][1]))
            if batch and size * (len(batch) + 1) > self.tokens:
                batches.append(batch)
                batch, size = [], max(len(self.pairs[i][0]), len(self.pairs[i][1]))
            batch.append(i)
            longest = size
        batches.append(batch)
        if self.shuffle:
            rng.shuffle(batches)
        for batch in batches:
            source = [self.pairs[i][0] for i in batch]
            target = [self.pairs[i][1] for i in batch]
            yield pad_sequence(source, True, PAD), torch.tensor([len(s) for s in source]), pad_sequence(target, True, PAD)


class Encoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.rnn = nn.GRU(dim, dim, batch_first=True, bidirectional=True)
        self.drop = nn.Dropout(0.1)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(self.drop(self.embed(x)), lengths, batch_first=True, enforce_sorted=False)
        out, h = self.rnn(packed)
        return pad_packed_sequence(out, batch_first=True)[0], torch.cat([h[0], h[1]], 1)


class Decoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.start = nn.Linear(2 * dim, dim)
        self.cell = nn.GRUCell(3 * dim, dim)
        self.ask = nn.Linear(dim, 2 * dim, bias=False)
        self.out = nn.Sequential(nn.Linear(3 * dim, dim), nn.Tanh(), nn.Dropout(0.1), nn.Linear(dim, VOCAB))

    def step(self, word, h, context, memory, mask):
        h = self.cell(torch.cat([self.embed(word), context], 1), h)
        score = (memory @ self.ask(h)[:, :, None]).squeeze(2).masked_fill(mask, float("-inf"))
        context = (score.softmax(1)[:, None] @ memory).squeeze(1)
        return self.out(torch.cat([h, context], 1)), h, context


class Translator(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.encoder, self.decoder = Encoder(dim), Decoder(dim)

    def forward(self, source, lengths, target, teacher):
        memory, last = self.encoder(source, lengths)
        mask = source == PAD
        h = torch.tanh(self.decoder.start(last))
        context = torch.zeros(len(source), memory.shape[2])
        word = torch.full((len(source),), BOS)
        outputs = []
        for t in range(target.shape[1]):
            logits, h, context = self.decoder.step(word, h, context, memory, mask)
            outputs.append(logits)
            told = torch.rand(len(source)) < teacher
            word = torch.where(told, target[:, t], logits.argmax(1))
        return torch.stack(outputs, 1)

    @torch.no_grad()
    def translate(self, source, lengths, limit):
        memory, last = self.encoder(source, lengths)
        mask = source == PAD
        h, context = torch.tanh(self.decoder.start(last)), torch.zeros(len(source), memory.shape[2])
        word, said = torch.full((len(source),), BOS), []
        over = torch.zeros(len(source), dtype=torch.bool)
        for _ in range(limit):
            logits, h, context = self.decoder.step(word, h, context, memory, mask)
            word = logits.argmax(1).masked_fill(over, PAD)
            over |= word == EOS
            said.append(word)
        return torch.stack(said, 1)


def drop_words(source, rate):
    hit = (torch.rand(source.shape) < rate) & (source > UNK)
    return source.masked_fill(hit, UNK)


def smoothed(logits, target, epsilon):
    """Sum over the tokens that are no padding, and their number."""
    logp = F.log_softmax(logits, 2)
    keep = target != PAD
    nll = -logp.gather(2, target[:, :, None]).squeeze(2)
    uniform = -logp.mean(2)
    return ((1 - epsilon) * nll + epsilon * uniform)[keep].sum(), keep.sum()


def evaluate(model, batches):
    model.eval()
    loss, tokens, exact, right, count = 0.0, 0, 0, 0, 0
    with torch.no_grad():
        for source, lengths, target in batches:
            part, n = smoothed(model(source, lengths, target, 1.0), target, 0.0)
            loss, tokens = loss + part.item(), tokens + n.item()
            said = model.translate(source, lengths, target.shape[1])
            exact += (said == target).all(1).sum().item()
            right += ((said == target) & (target != PAD)).sum().item()
            count += len(source)
    model.train()
    return loss / tokens, right / tokens, exact / count


def average(paths):
    total = defaultdict(float)
    for path in paths:
        for name, value in torch.load(path)["model"].items():
            total[name] = total[name] + value / len(paths)
    return dict(total)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=5)
    ap.add_argument("--tokens", type=int, default=500)
    ap.add_argument("--accumulate", type=int, default=2)
    ap.add_argument("--dim", type=int, default=48)
    ap.add_argument("--lr", type=float, default=8e-3)
    ap.add_argument("--warmup", type=int, default=25)
    ap.add_argument("--smoothing", type=float, default=0.1)
    ap.add_argument("--word-drop", type=float, default=0.05)
    ap.add_argument("--clip", type=float, default=1.0)
    ap.add_argument("--keep", type=int, default=3)
    ap.add_argument("--seed", type=int, default=17)
    ap.add_argument("--save-dir", default="checkpoints")
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    os.makedirs(args.save_dir, exist_ok=True)
    train = Buckets(speak(1500, 1), args.tokens, shuffle=True)
    valid = Buckets(speak(150, 2), 800, shuffle=False)
    model = Translator(args.dim)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, betas=(0.9, 0.98))
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min((n + 1) / args.warmup, (args.warmup / (n + 1)) ** 0.5))
    updates = 0
    for epoch in range(args.epochs):
        train.epoch = epoch
        model.train()
        epoch_loss, epoch_tokens, seen = 0.0, 0, 0
        waiting = []
        for source, lengths, target in train:
            waiting.append((source, lengths, target))
            if len(waiting) < args.accumulate:
                continue
            tokens = sum((t != PAD).sum().item() for _, _, t in waiting)
            teacher = max(0.5, 1.0 - updates / 160)
            for s, n, t in waiting:
                loss, _ = smoothed(model(drop_words(s, args.word_drop), n, t, teacher), t, args.smoothing)
                (loss / tokens).backward()
                epoch_loss += loss.item()
            waiting = []
            nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
            updates += 1
            epoch_tokens += tokens
        held, right, exact = evaluate(model, valid)
        print(f"| epoch {epoch + 1:03d} | updates {updates} | loss {epoch_loss / epoch_tokens:.4f} | lr {scheduler.get_last_lr()[0]:.6f} | valid {held:.4f} | token acc {right:.4f} | exact {exact:.3f}")
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "updates": updates, "epoch": epoch + 1}, os.path.join(args.save_dir, f"checkpoint{epoch + 1}.pt"))
    last = sorted(glob.glob(os.path.join(args.save_dir, "checkpoint*.pt")))[-args.keep :]
    model.load_state_dict(average(last))
    torch.save({"model": model.state_dict()}, os.path.join(args.save_dir, "averaged.pt"))
    held, right, exact = evaluate(model, valid)
    print(f"| averaged | valid {held:.4f} | token acc {right:.4f} | exact {exact:.3f}")


if __name__ == "__main__":
    main()
