"""Reads whistled messages: a small conformer with CTC on padded utterances of unequal length, bands and spans masked while training, Noam schedule, greedy decoding, mean of the last checkpoints."""
import torch
import torch.nn.functional as F
from torch import nn

TONES, BANDS, BLANK = 6, 12, 0
EPOCHS, BATCH, WARMUP = 6, 16, 30


def make_utterances(n, seed):
    """Messages of 3 to 7 tones; every tone sounds for 4 to 7 frames, between tones there may be silence."""
    g = torch.Generator().manual_seed(seed)
    table = torch.randn(TONES + 1, BANDS, generator=torch.Generator().manual_seed(99))
    table[0] = 0
    feats, texts = [], []
    for _ in range(n):
        text = torch.randint(1, TONES + 1, (int(torch.randint(3, 8, (1,), generator=g)),), generator=g)
        parts = []
        for tone in text.tolist():
            parts += [tone] * int(torch.randint(4, 8, (1,), generator=g)) + [0] * int(torch.randint(2, 5, (1,), generator=g))
        clean = table[torch.tensor(parts)]
        feats.append(clean + 1.0 * torch.randn(clean.shape, generator=g))
        texts.append(text)
    return feats, texts


def collate(feats, texts):
    lengths = torch.tensor([len(f) for f in feats])
    sizes = torch.tensor([len(t) for t in texts])
    x = nn.utils.rnn.pad_sequence(feats, batch_first=True)
    y = nn.utils.rnn.pad_sequence(texts, batch_first=True)
    return x, lengths, y, sizes


def spec_augment(x, lengths):
    """One span of time and one of bands is silenced in each utterance."""
    x = x.clone()
    for i, n in enumerate(lengths.tolist()):
        t0, f0 = int(torch.randint(0, n - 4, (1,))), int(torch.randint(0, BANDS - 2, (1,)))
        x[i, t0 : t0 + 4] = 0
        x[i, :, f0 : f0 + 2] = 0
    return x


class Block(nn.Module):
    """Half a feed-forward, attention, convolution, half a feed-forward."""

    def __init__(self, dim, heads, p):
        super().__init__()
        self.ff1 = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), nn.SiLU(), nn.Dropout(p), nn.Linear(2 * dim, dim))
        self.ff2 = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), nn.SiLU(), nn.Dropout(p), nn.Linear(2 * dim, dim))
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(dim), nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim)
        self.pw1, self.pw2 = nn.Linear(dim, 2 * dim), nn.Linear(dim, dim)
        self.dw = nn.Conv1d(dim, dim, 5, padding=2, groups=dim)
        self.heads, self.drop = heads, nn.Dropout(p)

    def attend(self, x, there):
        q, k, v = self.qkv(x).unflatten(-1, (self.heads, -1)).transpose(1, 2).chunk(3, -1)
        score = q @ k.transpose(-1, -2) / q.size(-1) ** 0.5
        score = score.masked_fill(~there[:, None, None, :], -1e9)
        return self.out((score.softmax(-1) @ v).transpose(1, 2).flatten(2))

    def convolve(self, x, there):
        x = F.glu(self.pw1(x), dim=-1) * there.unsqueeze(-1)
        return self.pw2(F.silu(self.dw(x.transpose(1, 2)).transpose(1, 2)))

    def forward(self, x, there):
        x = x + 0.5 * self.ff1(x)
        x = x + self.drop(self.attend(self.norm1(x), there))
        x = x + self.drop(self.convolve(self.norm2(x), there))
        return self.norm3(x + 0.5 * self.ff2(x))


class Conformer(nn.Module):
    def __init__(self, dim=32, depth=2, p=0.1):
        super().__init__()
        self.front = nn.Conv1d(BANDS, dim, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList([Block(dim, 2, p) for _ in range(depth)])
        self.head = nn.Linear(dim, TONES + 1)

    def forward(self, x, lengths):
        x = F.relu(self.front(x.transpose(1, 2))).transpose(1, 2)
        lengths = (lengths + 1) // 2
        there = torch.arange(x.size(1)) < lengths[:, None]
        for block in self.blocks:
            x = block(x, there)
        return self.head(x).log_softmax(-1), lengths


def distance(a, b):
    row = list(range(len(b) + 1))
    for i, p in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, q in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (p != q))
    return row[-1]


def evaluate(model, feats, texts, ctc, batch=20):
    model.eval()
    loss, errors, total = 0.0, 0, 0
    with torch.no_grad():
        for i in range(0, len(feats), batch):
            x, lengths, y, sizes = collate(feats[i : i + batch], texts[i : i + batch])
            logp, lengths = model(x, lengths)
            loss += ctc(logp.transpose(0, 1), y, lengths, sizes).item() * len(x)
            best = logp.argmax(-1)
            for row, n, text in zip(best, lengths.tolist(), texts[i : i + batch]):
                said = [k for k in torch.unique_consecutive(row[:n]).tolist() if k != BLANK]
                errors += distance(said, text.tolist())
                total += len(text)
    model.train()
    return loss / len(feats), errors / total


def main():
    torch.manual_seed(3)
    feats, texts = make_utterances(200, 1)
    dev_feats, dev_texts = make_utterances(70, 2)
    model = Conformer()
    ctc = nn.CTCLoss(blank=BLANK, zero_infinity=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=6e-3, betas=(0.9, 0.98))
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min((s + 1) / WARMUP, (WARMUP / (s + 1)) ** 0.5))
    kept = []
    for epoch in range(EPOCHS):
        running = 0.0
        for idx in torch.randperm(len(feats)).split(BATCH):
            x, lengths, y, sizes = collate([feats[i] for i in idx], [texts[i] for i in idx])
            optimizer.zero_grad()
            logp, lengths = model(spec_augment(x, lengths), lengths)
            loss = ctc(logp.transpose(0, 1), y, lengths, sizes)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            running += loss.item() * len(idx)
        dev_loss, rate = evaluate(model, dev_feats, dev_texts, ctc)
        print(f"epoch {epoch + 1} train {running / len(feats):.4f} dev {dev_loss:.4f} errors {rate:.4f} lr {scheduler.get_last_lr()[0]:.6f}")
        kept = (kept + [{k: v.clone() for k, v in model.state_dict().items()}])[-3:]
    averaged = {k: sum(w[k] for w in kept) / len(kept) for k in kept[0]}
    torch.save({"model": model.state_dict(), "averaged": averaged}, "whistle.pt")
    model.load_state_dict(averaged)
    dev_loss, rate = evaluate(model, dev_feats, dev_texts, ctc)
    print(f"averaged: dev {dev_loss:.4f} errors {rate:.4f}")


if __name__ == "__main__":
    main()
