#!/usr/bin/env python
import argparse
import contextlib
import random

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from recs.dist import Env, GatherGrad
from recs.model import TwoTower, logq
from recs.sampling import Events, collate


def parse():
    p = argparse.ArgumentParser()
    p.add_argument('--log', default='log.npz')
    p.add_argument('--epochs', type=int, default=5)
    p.add_argument('--bs', type=int, default=48, help='per process')
    p.add_argument('--accum', type=int, default=2)
    p.add_argument('--neg', type=int, default=5)
    p.add_argument('--dim', type=int, default=24)
    p.add_argument('--lr', type=float, default=5e-3)
    p.add_argument('--workers', type=int, default=2)
    p.add_argument('--force-ddp', action='store_true')
    p.add_argument('--seed', type=int, default=9)
    return p.parse_args()


def seed_all(s):
    random.seed(s)
    np.random.seed(s)
    torch.manual_seed(s)


def to_device(b, dev):
    return {k: v.to(dev) for k, v in b.items()}


def losses(out, b, count):
    u, pos, neg, tau = out
    every = GatherGrad.apply(pos)
    ids = GatherGrad.apply(b['item'].float()).long()
    logits = u @ every.t() / tau - logq(count, ids)[None]
    hit = b['item'][:, None] == ids[None]
    own = torch.arange(len(u), device=u.device)
    hit[own, own + len(u) * (torch.distributed.get_rank() if torch.distributed.is_initialized() else 0)] = False
    in_batch = F.cross_entropy(logits.masked_fill(hit, float('-inf')),
                               own + len(u) * (torch.distributed.get_rank() if torch.distributed.is_initialized() else 0))
    s = torch.cat([(u * pos).sum(1, keepdim=True), torch.einsum('bd,bnd->bn', u, neg)], 1) / tau
    sampled = -F.logsigmoid(s[:, 0] - s[:, 1:].max(1)[0]).mean()
    return in_batch, sampled


def evaluate(model, ds, env, ks=(5, 20)):
    net = model.module if hasattr(model, 'module') else model
    net.eval()
    items = net.items()
    hits, mrr, n = {k: 0. for k in ks}, 0., 0
    mine = ds.test[env.rank::env.world]
    for lo in range(0, len(mine), 64):
        rows = [(u, h, i, [0]) for u, h, i in mine[lo:lo + 64]]
        b = to_device(collate(rows), env.device)
        s = net.users(b['user'], b['hist'], b['off']) @ items.t()
        for j, (u, _, _, _) in enumerate(rows):
            for i in ds.seen[u]:
                s[j, i] = -9.
        rank = (s > s.gather(1, b['item'][:, None])).sum(1)
        for r in rank:
            for k in ks:
                hits[k] += r.item() < k
            mrr += 1 / (r.item() + 1)
        n += len(rows)
    net.train()
    *h, mrr, n = env.total(*hits.values(), mrr, n)
    return [x / n for x in h], mrr / n


def main():
    args = parse()
    env = Env(args.force_ddp)
    seed_all(args.seed)                      # the same on all ranks: equal initial weights
    log = np.load(args.log)
    ds = Events(log, args.neg, args.seed + 7919 * env.rank)
    sampler = DistributedSampler(ds, env.world, env.rank, shuffle=True, seed=args.seed)
    # no persistent workers: set_epoch() must reach the copies of ds in the workers
    loader = DataLoader(ds, args.bs, sampler=sampler, num_workers=args.workers, collate_fn=collate, pin_memory=True,
                        persistent_workers=False)
    net = TwoTower(int(log['n_users']), ds.n_items, args.dim, .1).to(env.device)
    if env.device.type == 'cuda' and env.world > 1:
        net = torch.nn.SyncBatchNorm.convert_sync_batchnorm(net)
    model = DDP(net, device_ids=[env.device.index] if env.device.type == 'cuda' else None,
                find_unused_parameters=True) if env.on else net
    table = [p for n, p in net.named_parameters() if n.split('.')[0] in ('user', 'bag', 'bias')]
    dense = [p for n, p in net.named_parameters() if n.split('.')[0] not in ('user', 'bag', 'bias')]
    opts = [torch.optim.Adagrad(table, lr=args.lr * 8), torch.optim.AdamW(dense, lr=args.lr)]
    sched = torch.optim.lr_scheduler.MultiStepLR(opts[1], [2], gamma=.3)
    count = torch.from_numpy(ds.count).float().to(env.device)
    env.print('events', len(ds), 'test', len(ds.test), 'world', env.world, 'ddp', env.on)

    step, best = 0, -1.
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        ds.set_epoch(epoch)
        seed_all(args.seed + epoch * env.world + env.rank)
        model.train()
        sums = [0., 0., 0]
        for k, b in enumerate(loader):
            last = (k + 1) % args.accum == 0 or k + 1 == len(loader)
            b = to_device(b, env.device)
            ctx = model.no_sync() if env.on and not last else contextlib.nullcontext()
            with ctx:
                lb, ls = losses(model(b), b, count)
                # the tail window may be shorter: divide by what it has
                size = args.accum if k < len(loader) // args.accum * args.accum else len(loader) % args.accum
                ((lb + ls) / size).backward()
            sums[0] += lb.item()
            sums[1] += ls.item()
            sums[2] += 1
            if not last:
                continue
            touched = sum(int((p.grad != 0).any(1).sum()) for p in table if p.grad is not None and p.dim() == 2)
            nrm = torch.nn.utils.clip_grad_norm_(dense, 1.0)
            for o in opts:
                o.step()
            for o in opts:
                o.zero_grad(set_to_none=True)
            with torch.no_grad():
                net.log_tau.clamp_(min=-4.0)
            step += 1
            if step % 8 == 0:
                env.print(f'  step {step} in-batch {lb.item()!r} sampled {ls.item()!r} norm {nrm.item()!r} rows {touched}')
        sched.step()
        a, s, n = env.total(*sums)
        (r5, r20), mrr = evaluate(model, ds, env)
        env.print(f'epoch {epoch} loss {a / n!r} {s / n!r} recall@5 {r5!r} recall@20 {r20!r} mrr {mrr!r} tau {net.log_tau.exp().item()!r}')
        if mrr > best and env.main:
            best = mrr
            torch.save(net.state_dict(), 'towers.pt')
        if env.on:
            torch.distributed.barrier()
    env.print('best', best, sorted(torch.load('towers.pt'))[:4])
    env.close()


if __name__ == '__main__':
    main()
