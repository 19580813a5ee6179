"""GRU encoder/decoder with attention and scheduled sampling on a string transduction task."""
import argparse
import math
import random
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

PAD, BOS, EOS, OFF = 0, 1, 2, 3
DIGITS = 10
VOCAB = OFF + DIGITS


def make_pairs(n, seed):
    """Input: digits. Output: reversed, doubled digits are written once, every digit plus one mod 10."""
    r = random.Random(seed)
    pairs = []
    for _ in range(n):
        ln = r.randint(3, 12)
        src = [r.randrange(DIGITS) for _ in range(ln)]
        out = []
        for d in reversed(src):
            e = (d + 1) % DIGITS
            if not out or out[-1] != e:
                out.append(e)
        pairs.append((torch.tensor([OFF + d for d in src]), torch.tensor([OFF + d for d in out] + [EOS])))
    return pairs


def bucket_batches(pairs, batch_size, pool=10):
    """Shuffle, sort pools of `pool` batches by source length, cut, shuffle the batches."""
    order = list(range(len(pairs)))
    random.shuffle(order)
    batches = []
    for s in range(0, len(order), pool * batch_size):
        chunk = sorted(order[s:s + pool * batch_size], key=lambda i: len(pairs[i][0]))
        batches += [chunk[k:k + batch_size] for k in range(0, len(chunk), batch_size)]
    random.shuffle(batches)
    return batches


def collate(pairs, idx):
    src = pad_sequence([pairs[i][0] for i in idx], batch_first=True, padding_value=PAD)
    tgt = pad_sequence([pairs[i][1] for i in idx], batch_first=True, padding_value=PAD)
    lens = torch.tensor([len(pairs[i][0]) for i in idx])
    return src, lens, tgt


class Seq2Seq(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.enc = nn.GRU(dim, dim, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(2 * dim, dim)
        self.key = nn.Linear(2 * dim, dim)
        self.cell = nn.GRUCell(dim + 2 * dim, dim)
        self.out = nn.Linear(3 * dim, VOCAB)

    def encode(self, src, lens):
        packed = pack_padded_sequence(self.emb(src), lens, batch_first=True, enforce_sorted=False)
        out, h = self.enc(packed)
        memory, _ = pad_packed_sequence(out, batch_first=True)
        return memory, torch.tanh(self.bridge(torch.cat([h[0], h[1]], -1)))

    def decode_step(self, tok, h, ctx, memory, src):
        h = self.cell(torch.cat([self.emb(tok), ctx], -1), h)
        keys = self.key(memory)
        att = torch.bmm(keys, h.unsqueeze(-1)).squeeze(-1) / math.sqrt(h.shape[-1])
        att = att.masked_fill(src == PAD, -1e9).softmax(-1)
        ctx = torch.bmm(att.unsqueeze(1), memory).squeeze(1)
        return self.out(torch.cat([h, ctx], -1)), h, ctx

    def forward(self, src, lens, tgt, eps):
        """eps: chance, per sample and step, that the true previous token is fed in."""
        memory, h = self.encode(src, lens)
        ctx = memory.new_zeros(len(src), memory.shape[-1])
        tok = torch.full((len(src),), BOS)
        loss = 0.0
        for t in range(tgt.shape[1]):
            logits, h, ctx = self.decode_step(tok, h, ctx, memory, src)
            loss = loss + F.cross_entropy(logits, tgt[:, t], ignore_index=PAD, reduction="sum")
            coin = torch.rand(len(src)) < eps
            tok = torch.where(coin, tgt[:, t], logits.argmax(-1))
        return loss / (tgt != PAD).sum()

    def greedy(self, src, lens, max_len=14):
        memory, h = self.encode(src, lens)
        ctx = memory.new_zeros(len(src), memory.shape[-1])
        tok, outs = torch.full((len(src),), BOS), []
        for _ in range(max_len):
            logits, h, ctx = self.decode_step(tok, h, ctx, memory, src)
            tok = logits.argmax(-1)
            outs.append(tok)
        return torch.stack(outs, 1)


def exact_match(model, pairs, batch_size=50):
    model.eval()
    ok = 0
    with torch.no_grad():
        for s in range(0, len(pairs), batch_size):
            idx = range(s, min(s + batch_size, len(pairs)))
            src, lens, _ = collate(pairs, idx)
            pred = model.greedy(src, lens)
            for row, i in zip(pred.tolist(), idx):
                want = pairs[i][1].tolist()
                ok += row[:len(want)] == want
    model.train()
    return ok / len(pairs)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=8)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--lr", type=float, default=4e-3)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--outdir", type=Path, default=Path("."))
    a = p.parse_args()
    random.seed(a.seed)
    torch.manual_seed(a.seed)
    train, test = make_pairs(2400, 100), make_pairs(400, 200)
    model = Seq2Seq()
    opt = torch.optim.Adam(model.parameters(), lr=a.lr)
    step = 0
    for epoch in range(a.epochs):
        k = 2.0
        eps = k / (k + math.exp(epoch / k))
        for idx in bucket_batches(train, a.batch):
            src, lens, tgt = collate(train, idx)
            loss = model(src, lens, tgt, eps)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            if step % 25 == 0:
                print(f"step {step} loss {loss.item():.4f} eps {eps:.3f}", flush=True)
            step += 1
        print(f"epoch {epoch} exact match {exact_match(model, test):.4f}", flush=True)
    a.outdir.mkdir(parents=True, exist_ok=True)
    torch.save({"model": model.state_dict(), "epoch": a.epochs}, a.outdir / "s2s.pt")


if __name__ == "__main__":
    main()
