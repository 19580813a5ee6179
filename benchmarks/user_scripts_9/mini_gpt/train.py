"""
Trains a character-level GPT.  Change the globals below or pass --key=value.
$ python train.py --batch_size=32 --n_layer=6
"""
import math
import os
import pickle
import sys
import time

import numpy as np
import torch

from model import GPT, GPTConfig
from prepare import prepare

# -----------------------------------------------------------------------------
out_dir = 'out'
data_dir = 'data'
eval_interval = 250
eval_iters = 50
log_interval = 10
batch_size = 32
grad_accum = 4
block_size = 256
n_layer = 8
n_head = 8
n_embd = 512
dropout = 0.1
learning_rate = 1e-3
min_lr = 1e-4
warmup_iters = 10
max_iters = 3000
weight_decay = 0.1
beta1 = 0.9
beta2 = 0.99
grad_clip = 1.0
sample_tokens = 300
seed = 1337
for arg in sys.argv[1:]:
    key, val = arg.lstrip('-').split('=')
    assert key in globals(), key
    globals()[key] = type(globals()[key])(val)
# -----------------------------------------------------------------------------

device = 'cuda' if torch.cuda.is_available() else 'cpu'
torch.manual_seed(seed)
os.makedirs(out_dir, exist_ok=True)
prepare(data_dir)
with open(os.path.join(data_dir, 'meta.pkl'), 'rb') as f:
    meta = pickle.load(f)


def get_batch(split):
    # a fresh memmap every time, otherwise memory grows (numpy issue)
    data = np.memmap(os.path.join(data_dir, split + '.bin'), dtype=np.uint16, mode='r')
    ix = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([torch.from_numpy(data[i:i + block_size].astype(np.int64)) for i in ix])
    y = torch.stack([torch.from_numpy(data[i + 1:i + 1 + block_size].astype(np.int64)) for i in ix])
    x, y = x.to(device), y.to(device)
    return x, y


config = GPTConfig(block_size=block_size, vocab_size=meta['vocab_size'], n_layer=n_layer,
                   n_head=n_head, n_embd=n_embd, dropout=dropout)
model = GPT(config).to(device)
print('number of parameters: %.2fM' % (sum(p.numel() for p in model.parameters()) / 1e6))
optimizer = model.configure_optimizers(weight_decay, learning_rate, (beta1, beta2))


@torch.no_grad()
def estimate_loss():
    out = {}
    model.eval()
    for split in ['train', 'val']:
        losses = torch.zeros(eval_iters)
        for k in range(eval_iters):
            X, Y = get_batch(split)
            logits, loss = model(X, Y)
            losses[k] = loss.item()
        out[split] = losses.mean().item()
    model.train()
    return out


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / warmup_iters
    ratio = (it - warmup_iters) / max(1, max_iters - warmup_iters)
    return min_lr + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (learning_rate - min_lr)


best_val_loss = 1e9
running = 0.0
t0 = time.time()
for it in range(max_iters + 1):
    lr = get_lr(it)
    for group in optimizer.param_groups:
        group['lr'] = lr

    if it % eval_interval == 0:
        losses = estimate_loss()
        print('step %d: train loss %.4f, val loss %.4f' % (it, losses['train'], losses['val']))
        if losses['val'] < best_val_loss:
            best_val_loss = losses['val']
            torch.save({'model': model.state_dict(), 'optimizer': optimizer.state_dict(),
                        'iter': it, 'config': config.__dict__}, os.path.join(out_dir, 'ckpt.pt'))
    if it == max_iters:
        break

    lossf = 0.0
    for micro_step in range(grad_accum):
        X, Y = get_batch('train')
        logits, loss = model(X, Y)
        loss = loss / grad_accum
        loss.backward()
        lossf += loss.item()
    if grad_clip != 0.0:
        torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)

    running = lossf if it == 0 else 0.9 * running + 0.1 * lossf
    if it % log_interval == 0:
        dt = (time.time() - t0) / log_interval
        t0 = time.time()
        print('iter %d: loss %.4f, smoothed %.4f, lr %.2e' % (it, lossf, running, lr))
        print('  time per iter %.1fms' % (dt * 1000))

model.eval()
itos = meta['itos']
start = torch.tensor([[meta['stoi']['T']]], dtype=torch.long, device=device)
sample = model.generate(start, sample_tokens, temperature=0.8, top_k=10)[0].tolist()
print('--- sample ---')
print(''.join(itos[i] for i in sample))
