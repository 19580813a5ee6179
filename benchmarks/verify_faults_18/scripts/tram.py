"""Small decoder-only language model on timetables of trams: padded lines of unequal length, loss by the token over accumulated micro-batches, warm-up and cosine, decay on matrices only, best weights by validation."""
import math

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, PAD, BOS, EOS, MAXLEN = 20, 0, 1, 2, 24
STEPS, ACCUM, MICRO, EVERY = 84, 4, 8, 14
MAX_LR, MIN_LR, WARMUP = 8e-3, 8e-4, 12


def make_lines(n, seed):
    """A line is a route: it starts at a stop, goes on by its stride, turns round at the ends, and now and then skips a stop."""
    g = torch.Generator().manual_seed(seed)
    rows = torch.full((n, MAXLEN), PAD)
    for i in range(n):
        length = int(torch.randint(5, MAXLEN - 1, (1,), generator=g))
        stop, stride = int(torch.randint(0, 17, (1,), generator=g)), int(torch.randint(1, 4, (1,), generator=g))
        line = [BOS]
        for skip in (torch.rand(length, generator=g) < 0.1).tolist():
            line.append(stop + 3)
            for _ in range(2 if skip else 1):
                if not 0 <= stop + stride < 17:
                    stride = -stride
                stop += stride
        rows[i, : len(line) + 1] = torch.tensor(line + [EOS])
    return rows


class Layer(nn.Module):
    def __init__(self, dim, heads, p):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim), nn.Dropout(p))
        self.heads, self.p = heads, p

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        score = q @ k.transpose(-1, -2) / math.sqrt(c // self.heads)
        ahead = torch.ones(n, n, dtype=torch.bool).triu(1)
        weights = score.masked_fill(ahead, -math.inf).softmax(-1)
        x = x + F.dropout(self.proj((weights @ v).transpose(1, 2).reshape(b, n, c)), self.p, self.training)
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, dim=32, depth=2, heads=4, p=0.1):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, dim), nn.Embedding(MAXLEN, dim)
        self.drop = nn.Dropout(p)
        self.layers = nn.ModuleList([Layer(dim, heads, p) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, VOCAB, bias=False)
        nn.init.normal_(self.tok.weight, std=0.02)
        nn.init.normal_(self.pos.weight, std=0.02)
        self.head.weight = self.tok.weight

    def forward(self, tokens):
        x = self.drop(self.tok(tokens) + self.pos(torch.arange(tokens.size(1))))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def rate(step):
    if step < WARMUP:
        return MAX_LR * (step + 1) / WARMUP
    return MIN_LR + 0.5 * (MAX_LR - MIN_LR) * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP)))


def trimmed(rows):
    """Cuts off columns in which all rows are padded."""
    return rows[:, : int((rows != PAD).sum(1).max())]


@torch.no_grad()
def evaluate(model, rows, batch=25):
    """Loss by the token, and how often the likeliest token is right."""
    model.eval()
    loss, right, count = 0.0, 0, 0
    for part in rows.split(batch):
        part = trimmed(part)
        logits, target = model(part[:, :-1]), part[:, 1:]
        known = target != PAD
        loss += F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD, reduction="sum").item()
        right += ((logits.argmax(-1) == target) & known).sum().item()
        count += known.sum().item()
    model.train()
    return loss / count, right / count


def batches(rows):
    """Endless micro-batches; every pass has a new order, a short one at its end is used too."""
    while True:
        for idx in torch.randperm(len(rows)).split(MICRO):
            yield trimmed(rows[idx])


def main():
    torch.manual_seed(77)
    train, valid = make_lines(500, 0), make_lines(180, 1)
    model = GPT()
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=MAX_LR, betas=(0.9, 0.95))
    stream, best = batches(train), math.inf
    model.train()
    sums, tokens, norms = 0.0, 0, 0.0
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        micro = [next(stream) for _ in range(ACCUM)]
        total = sum(int((m[:, 1:] != PAD).sum()) for m in micro)
        optimizer.zero_grad()
        for m in micro:
            logits = model(m[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), m[:, 1:].flatten(), ignore_index=PAD, reduction="sum")
            (loss / total).backward()
            sums += loss.item()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        tokens += total
        norms += norm.item()
        if (step + 1) % EVERY == 0:
            val_loss, right = evaluate(model, valid)
            print(f"step {step + 1} train {sums / tokens:.4f} val {val_loss:.4f} right {right:.4f} norm {norms / EVERY:.4f} lr {optimizer.param_groups[0]['lr']:.6f}")
            sums, tokens, norms = 0.0, 0, 0.0
            if val_loss < best:
                best = val_loss
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}, "tram_best.pt")
    torch.save(model.state_dict(), "tram_last.pt")
    model.load_state_dict(torch.load("tram_best.pt")["model"])
    test_loss, right = evaluate(model, make_lines(180, 2))
    print(f"best val {best:.4f} test {test_loss:.4f} right {right:.4f}")


if __name__ == "__main__":
    main()
