"""Character LM, nanoGPT-like single file. No main guard, settings at the top, override with key=value."""
import math
import sys
import time

import torch
import torch.nn as nn
from torch.nn import functional as F

# ---------------------------------------------------------------- settings
seed = 1337
n_layer, n_head, n_embd = 2, 4, 64
block_size = 48
micro_batch = 6
accum = 4
epochs = 2
max_lr = 3e-3
warmup = 8
z_coef = 1e-3          # z-loss
ent_coef = 1e-3        # keeps attention from collapsing
dropout = 0.1
ckpt = 'ckpt.pt'
for a in sys.argv[1:]:
    k, v = a.split('=')
    assert k in globals(), k
    globals()[k] = type(globals()[k])(v)
# ---------------------------------------------------------------- data
torch.manual_seed(seed)
device = 'cuda' if torch.cuda.is_available() else 'cpu'
rules = {'S': ['N V N.', 'N V when S', 'the N V.'], 'N': ['cat', 'dog', 'old man', 'bird'],
         'V': ['sees', 'hears', 'follows', 'bites']}
rng = torch.Generator().manual_seed(5)


def expand(sym, depth=0):
    """recursive grammar, calls itself for every token"""
    if sym.rstrip('.') not in rules:
        return sym
    dot = '.' if sym.endswith('.') else ''
    opts = rules[sym.rstrip('.')]
    pick = opts[0] if depth > 3 else opts[int(torch.randint(len(opts), (1,), generator=rng))]
    return ' '.join(expand(t, depth + 1) for t in pick.split(' ')) + dot


text = '\n'.join(expand('S') for _ in range(400))
chars = sorted(set(text))
stoi = {c: i for i, c in enumerate(chars)}
data = torch.tensor([stoi[c] for c in text], dtype=torch.long)
n = int(0.9 * len(data))
train_data, val_data = data[:n], data[n:]
vocab_size = len(chars)
print('chars', len(data), 'vocab', vocab_size)


def batches(d, shuffle):
    """yields CPU batches; the last one of an epoch is smaller"""
    starts = torch.arange(0, len(d) - block_size - 1, block_size)
    if shuffle:
        starts = starts[torch.randperm(len(starts))]
    for i in range(0, len(starts), micro_batch):
        s = starts[i:i + micro_batch]
        x = torch.stack([d[j:j + block_size] for j in s])
        y = torch.stack([d[j + 1:j + 1 + block_size] for j in s])
        yield x, y


# ---------------------------------------------------------------- model
class Attention(nn.Module):
    def __init__(self, keep_weights=False):
        super().__init__()
        self.qkv = nn.Linear(n_embd, 3 * n_embd, bias=False)
        self.proj = nn.Linear(n_embd, n_embd, bias=False)
        self.drop = nn.Dropout(dropout)
        self.keep_weights = keep_weights
        self.register_buffer('mask', torch.tril(torch.ones(block_size, block_size)).view(1, 1, block_size, block_size))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.qkv(x).split(C, dim=2)
        q = q.view(B, T, n_head, C // n_head).transpose(1, 2)
        k = k.view(B, T, n_head, C // n_head).transpose(1, 2)
        v = v.view(B, T, n_head, C // n_head).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.mask[:, :, :T, :T] == 0, float('-inf'))
        att = F.softmax(att, dim=-1)
        if self.keep_weights:
            self.last = att                        # read by the entropy term
        att = self.drop(att)
        y = (att @ v).transpose(1, 2).contiguous().view(B, T, C)
        return self.proj(y)


class Block(nn.Module):
    def __init__(self, i):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.attn = Attention(keep_weights=i == 0)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd), nn.Dropout(dropout))

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(vocab_size, n_embd)
        self.pos = nn.Embedding(block_size, n_embd)
        self.blocks = nn.ModuleList([Block(i) for i in range(n_layer)])
        self.ln = nn.LayerNorm(n_embd)
        self.head = nn.Linear(n_embd, vocab_size, bias=False)
        self.apply(self._init)
        self.head.weight = self.tok.weight         # tied

    def _init(self, m):
        if isinstance(m, (nn.Linear, nn.Embedding)):
            nn.init.normal_(m.weight, std=0.02)

    def forward(self, idx, targets=None):
        pos = torch.arange(0, idx.size(1)).unsqueeze(0).to(idx.device)
        x = self.tok(idx) + self.pos(pos)
        for b in self.blocks:
            x = b(x)
        logits = self.head(self.ln(x))
        if targets is None:
            return logits, None, None
        m = logits.max(-1, keepdim=True)[0].detach()
        lse = (logits - m).exp().sum(-1).log() + m.squeeze(-1)
        nll = lse - logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
        return logits, nll.sum(), (lse ** 2).sum()


model = GPT().to(device)
assert model.head.weight.data_ptr() == model.tok.weight.data_ptr()
decay = [p for p in model.parameters() if p.dim() >= 2]
other = [p for p in model.parameters() if p.dim() < 2]
opt = torch.optim.AdamW([{'params': decay, 'weight_decay': 0.1}, {'params': other, 'weight_decay': 0.0}],
                        lr=max_lr, betas=(0.9, 0.95))
steps_per_epoch = math.ceil(math.ceil(((n - block_size - 1) / block_size)) / micro_batch / accum)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1, (s + 1) / warmup) * 0.98 ** max(0, s - warmup))
print('params', sum(p.numel() for p in model.parameters()), 'steps/epoch', steps_per_epoch)


def evaluate():
    model.eval()
    tot, cnt = 0.0, 0
    for x, y in batches(val_data, False):
        x, y = x.to(device), y.to(device)
        _, nll, _ = model(x, y)
        tot += nll.item()
        cnt += y.numel()
    model.train()
    return tot / cnt


def windows(it, k):
    """group micro batches so that an odd rest still is one (shorter) window"""
    buf = []
    for b in it:
        buf.append(b)
        if len(buf) == k:
            yield buf
            buf = []
    if buf:
        yield buf


@torch.no_grad()
def sample(ctx, n_new, temperature=0.8):
    g = torch.Generator().manual_seed(3)
    for _ in range(n_new):
        logits, _, _ = model(ctx[:, -block_size:])
        p = F.softmax(logits[:, -1] / temperature, -1)
        nxt = torch.multinomial(p.cpu(), 1, generator=g).to(device)
        ctx = torch.cat([ctx, nxt], 1)
    return ctx


# ---------------------------------------------------------------- loop
best = 1e9
step = 0
history = []
for epoch in range(epochs):
    t0 = time.time()
    for win in windows(batches(train_data, True), accum):
        n_tok = sum(y.numel() for _, y in win)
        lossf = 0.0
        for x, y in win:
            x = x.to(device)
            y = y.to(device)
            _, nll, z = model(x, y)
            ent = 0.0
            for b in model.blocks:
                if b.attn.keep_weights:
                    a = b.attn.last
                    ent = ent - (a * (a + 1e-9).log()).sum(-1).mean()
            loss = (nll + z_coef * z) / n_tok - ent_coef * ent / len(win)
            loss.backward()
            lossf += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        sched.step()
        history.append(lossf)
        if step % 5 == 0:
            print(f'step {step:4d} | loss {lossf:.6f} | norm {norm.item():.5f} | lr {sched.get_last_lr()[0]:.3e}')
        step += 1
    v = evaluate()
    print(f'epoch {epoch} val {v:.6f} mean train {sum(history[-10:]) / len(history[-10:]):.6f} ({time.time() - t0:.1f} s)')
    if v < best:
        best = v
        torch.save({'model': model.state_dict(), 'opt': opt.state_dict(), 'step': step, 'best': best}, ckpt)

model.eval()
out = sample(torch.tensor([[stoi['t']]], device=device), 40)
print(repr(''.join(chars[i] for i in out[0].tolist())))
