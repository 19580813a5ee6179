import math, os, sys, time

import torch

from model import GPT, GPTConfig
from text import CharTokenizer, make_text

# ---- settings, override as  python train.py max_iters=200 batch_size=16 ...
batch_size = 64
block_size = 256
max_iters = 5000
eval_interval = 250
eval_iters = 200
learning_rate = 1e-3
min_lr = 1e-4
warmup = 100
weight_decay = 0.1
grad_clip = 1.0
n_layer, n_head, n_embd, dropout = 6, 6, 384, 0.2
n_chars = 2_000_000
out = "/tmp/gpt_scratch.pt"
seed = 1337
for a in sys.argv[1:]:
    k, v = a.split("=")
    assert k in globals(), k
    globals()[k] = type(globals()[k])(v)
# ----

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(seed)
text = make_text(n_chars, seed)
tok = CharTokenizer(text)
data = torch.tensor(tok.encode(text), dtype=torch.long)
n = int(0.9 * len(data))
train_data, val_data = data[:n], data[n:]


def get_batch(split):
    d = train_data if split == "train" else val_data
    ix = torch.randint(len(d) - block_size, (batch_size,))
    x = torch.stack([d[i:i + block_size] for i in ix])
    y = torch.stack([d[i + 1:i + block_size + 1] for i in ix])
    return x.to(device), y.to(device)


@torch.no_grad()
def estimate_loss():
    model.eval()
    res = {}
    for split in ("train", "val"):
        losses = torch.zeros(eval_iters)
        for k in range(eval_iters):
            _, loss = model(*get_batch(split))
            losses[k] = loss.item()
        res[split] = losses.mean().item()
    model.train()
    return res


def get_lr(it):
    if it < warmup:
        return learning_rate * (it + 1) / warmup
    t = (it - warmup) / max(1, max_iters - warmup)
    return min_lr + 0.5 * (1 + math.cos(math.pi * t)) * (learning_rate - min_lr)


model = GPT(GPTConfig(len(tok.chars), block_size, n_layer, n_head, n_embd, dropout)).to(device)
print(sum(p.numel() for p in model.parameters()) / 1e6, "M parameters on", device)
decay = [p for p in model.parameters() if p.dim() >= 2]
rest = [p for p in model.parameters() if p.dim() < 2]
opt = torch.optim.AdamW([{"params": decay, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}],
                        lr=learning_rate, betas=(0.9, 0.95))

lossi, ud, best = [], [], 1e9
t0 = time.time()
for it in range(max_iters + 1):
    for g in opt.param_groups:
        g["lr"] = get_lr(it)

    if it % eval_interval == 0:
        l = estimate_loss()
        print(f"iter {it}: train {l['train']:.4f} val {l['val']:.4f}  ({time.time() - t0:.1f}s)")
        if l["val"] < best:
            best = l["val"]
            torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "it": it}, out)
        start = torch.tensor([tok.encode("\n")], device=device)
        print("   ", repr(tok.decode(model.generate(start, 60)[0].tolist())))

    x, y = get_batch("train")
    logits, loss = model(x, y)
    for p in model.parameters():
        p.grad = None
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    opt.step()

    lossi.append(loss.log10().item())
    with torch.no_grad():
        ud.append([(g["lr"] * p.grad.std() / p.std()).log10().item() for p in model.parameters() if p.dim() == 2])

print("mean log10 loss of the last 50:", sum(lossi[-50:]) / len(lossi[-50:]))
print("mean log10 update ratio:", sum(map(sum, ud[-50:])) / sum(map(len, ud[-50:])))
print("best val %.4f, %.1f s" % (best, time.time() - t0))
