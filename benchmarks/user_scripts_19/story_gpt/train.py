"""
python train.py --data ~/data/stories --out runs/stories12
"""
import argparse
import math
import os
import time

import numpy as np
import torch

from model import GPT

parser = argparse.ArgumentParser()
parser.add_argument('--data', default='data/stories')
parser.add_argument('--out', default='runs/stories')
parser.add_argument('--n_layer', type=int, default=12)
parser.add_argument('--n_head', type=int, default=12)
parser.add_argument('--n_embd', type=int, default=768)
parser.add_argument('--block_size', type=int, default=512)
parser.add_argument('--vocab_size', type=int, default=50257)
parser.add_argument('--dropout', type=float, default=0.1)
parser.add_argument('--batch_size', type=int, default=12)
parser.add_argument('--accum', type=int, default=8)
parser.add_argument('--max_iters', type=int, default=60000)
parser.add_argument('--warmup', type=int, default=1000)
parser.add_argument('--lr', type=float, default=6e-4)
parser.add_argument('--min_lr', type=float, default=6e-5)
parser.add_argument('--wd', type=float, default=0.1)
parser.add_argument('--clip', type=float, default=1.0)
parser.add_argument('--eval_every', type=int, default=500)
parser.add_argument('--eval_iters', type=int, default=100)
parser.add_argument('--resume', action='store_true')
args = parser.parse_args()

torch.manual_seed(1337)
np.random.seed(1337)
device = 'cuda' if torch.cuda.is_available() else 'cpu'
os.makedirs(args.out, exist_ok=True)

train_data = np.memmap(os.path.join(args.data, 'train.bin'), dtype=np.uint16, mode='r')
val_data = np.memmap(os.path.join(args.data, 'val.bin'), dtype=np.uint16, mode='r')


def get_batch(split):
    data = train_data if split == 'train' else val_data
    ix = np.random.randint(0, len(data) - args.block_size - 1, size=args.batch_size)
    x = torch.stack([torch.from_numpy(data[i:i + args.block_size].astype(np.int64)) for i in ix])
    y = torch.stack([torch.from_numpy(data[i + 1:i + 1 + args.block_size].astype(np.int64)) for i in ix])
    return x.to(device), y.to(device)


def get_lr(it):
    if it < args.warmup:
        return args.lr * (it + 1) / args.warmup
    r = (it - args.warmup) / max(1, args.max_iters - args.warmup)
    return args.min_lr + 0.5 * (1 + math.cos(math.pi * min(r, 1.0))) * (args.lr - args.min_lr)


def estimate_loss(model):
    out = {}
    model.eval()
    for split in ('train', 'val'):
        losses = []
        for _ in range(args.eval_iters):
            x, y = get_batch(split)
            _, loss = model(x, y)
            losses.append(loss.item())
        out[split] = sum(losses) / len(losses)
    model.train()
    return out


model = GPT(args).to(device)
print('%.1fM parameters' % (sum(p.numel() for p in model.parameters()) / 1e6))

decay = [p for p in model.parameters() if p.dim() >= 2]
nodecay = [p for p in model.parameters() if p.dim() < 2]
opt = torch.optim.AdamW([
    {'params': decay, 'weight_decay': args.wd},
    {'params': nodecay, 'weight_decay': 0.0},
], lr=args.lr, betas=(0.9, 0.95))

start, best = 0, 1e9
ckpt_path = os.path.join(args.out, 'ckpt.pt')
if args.resume:
    ck = torch.load(ckpt_path, map_location=device, weights_only=False)
    model.load_state_dict(ck['model'])
    opt.load_state_dict(ck['opt'])
    start, best = ck['iter'] + 1, ck['best']

log = open(os.path.join(args.out, 'log.txt'), 'a')
model.train()
t0 = time.time()
for it in range(start, args.max_iters):
    lr = get_lr(it)
    for g in opt.param_groups:
        g['lr'] = lr

    opt.zero_grad()
    total = 0.0
    for _ in range(args.accum):
        x, y = get_batch('train')
        logits, loss = model(x, y)
        loss = loss / args.accum
        loss.backward()
        total += loss.item()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
    opt.step()

    log.write('%d %.6f %.4f %.2e\n' % (it, total, norm.item(), lr))
    if it % 10 == 0:
        dt = time.time() - t0
        t0 = time.time()
        print('iter %d | loss %.4f | norm %.3f | lr %.2e | %.1f ms' % (it, total, norm, lr, dt * 100))

    if it > 0 and it % args.eval_every == 0:
        res = estimate_loss(model)
        print('>>> iter %d train %.4f val %.4f' % (it, res['train'], res['val']))
        log.flush()
        if res['val'] < best:
            best = res['val']
            torch.save({'model': model.state_dict(), 'opt': opt.state_dict(),
                        'args': vars(args), 'iter': it, 'best': best}, ckpt_path)
        ctx = torch.full((1, 1), 50256 % args.vocab_size, dtype=torch.long, device=device)
        model.eval()
        print(model.generate(ctx, 100)[0].tolist())
        model.train()
log.close()
