"""
MAML++ style few-shot regression and classification-of-waves toy.
Inner loop with explicit fast weights (torch.func.functional_call), learnable per-layer
learning rates, multi-step loss weights, derivative-order annealing.

python maml.py --iters 40
"""
import argparse
import math
import warnings
from collections import OrderedDict
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, grad, vmap

p = argparse.ArgumentParser()
p.add_argument('--iters', type=int, default=200)
p.add_argument('--meta_batch', type=int, default=6)
p.add_argument('--shots', type=int, default=8)
p.add_argument('--queries', type=int, default=12)
p.add_argument('--inner_steps', type=int, default=3)
p.add_argument('--inner_lr', type=float, default=0.05)
p.add_argument('--meta_lr', type=float, default=3e-3)
p.add_argument('--second_order_after', type=int, default=20)
p.add_argument('--seed', type=int, default=3)
p.add_argument('--device', default='cuda' if torch.cuda.is_available() else 'cpu')
args = p.parse_args()

torch.manual_seed(args.seed)
rng = np.random.RandomState(args.seed)
dev = torch.device(args.device)


def sample_task(rs, n):
    amp, phase, freq = rs.uniform(0.5, 3), rs.uniform(0, math.pi), rs.uniform(0.8, 1.2)
    x = rs.uniform(-4, 4, (n, 1)).astype(np.float32)
    y = (amp * np.sin(freq * x + phase)).astype(np.float32)
    return torch.from_numpy(x), torch.from_numpy(y)


def task_stream(rs):
    """endless; the number of queries grows with time, so tasks are ragged"""
    k = 0
    while True:
        x, y = sample_task(rs, args.shots + args.queries + k % 5)
        yield SimpleNamespace(xs=x[:args.shots], ys=y[:args.shots], xq=x[args.shots:], yq=y[args.shots:], k=k)
        k += 1


class Net(nn.Module):
    def __init__(self, h=40):
        super().__init__()
        self.l1 = nn.Linear(1, h)
        self.n1 = nn.BatchNorm1d(h)
        self.l2 = nn.Linear(h, h)
        self.out = nn.Linear(h, 1)

    def forward(self, x):
        x = torch.tanh(self.n1(self.l1(x)))
        x = F.softplus(self.l2(x))
        return self.out(x)


class Learner(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net()
        self.log_lr = nn.ParameterDict({n.replace('.', '_'): nn.Parameter(torch.tensor(math.log(args.inner_lr)))
                                        for n, _ in self.net.named_parameters()})
        self.skip = {'n1.weight'}          # not adapted in the inner loop

    def fast(self):
        return OrderedDict((n, w) for n, w in self.net.named_parameters())

    def inner(self, fast, x, y, create_graph):
        pred = functional_call(self.net, fast, (x,))
        loss = F.mse_loss(pred, y)
        names = [n for n in fast if n not in self.skip]
        gs = torch.autograd.grad(loss, [fast[n] for n in names], create_graph=create_graph)
        new = OrderedDict(fast)
        for n, g in zip(names, gs):
            if not create_graph:
                g = g.detach()
            new[n] = fast[n] - self.log_lr[n.replace('.', '_')].exp() * g
        return new, loss


learner = Learner().to(dev)
# BatchNorm works on batch statistics in train AND test (transductive), as in the paper
learner.train()

optimizer = torch.optim.Adam([
    {'params': learner.net.parameters()},
    {'params': learner.log_lr.parameters(), 'lr': args.meta_lr * 5},
], lr=args.meta_lr)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.iters, eta_min=1e-4)


def step_weights(it):
    """MAML++: first all inner steps count, later only the last one"""
    decay = min(1.0, it / (0.5 * args.iters))
    w = np.ones(args.inner_steps) / args.inner_steps
    w[:-1] = w[:-1] * (1 - decay)
    w[-1] = 1 - w[:-1].sum()
    return w


def run_task(task, it, second):
    w = step_weights(it)
    xs, ys = task.xs.to(dev), task.ys.to(dev)
    xq, yq = task.xq.to(dev), task.yq.to(dev)
    fast = learner.fast()
    total = torch.zeros(1).to(dev)
    for s in range(args.inner_steps):
        fast, sl = learner.inner(fast, xs, ys, second)
        if not math.isfinite(sl.item()):
            raise FloatingPointError('inner loss at task %d' % task.k)
        if w[s] > 0:
            q = F.mse_loss(functional_call(learner.net, fast, (xq,)), yq)
            total = total + float(w[s]) * q
    return total, q


def per_sample_grad_norm(x, y):
    """diagnostic with vmap(grad): the spread of the gradients of single points (BatchNorm by running stats)"""
    params = {n: w.detach() for n, w in learner.net.named_parameters()}
    bufs = {n: b for n, b in learner.net.named_buffers()}
    learner.net.eval()

    def one(pr, xi, yi):
        return F.mse_loss(functional_call(learner.net, (pr, bufs), (xi[None],)), yi[None])

    g = vmap(grad(one), (None, 0, 0))(params, x, y)
    learner.net.train()
    return torch.stack([v.flatten(1).norm(dim=1) for v in g.values()]).norm(dim=0)


def meta_test(n_tasks=10, steps=5):
    """adapts with plain gradients: needs autograd although it is an evaluation"""
    rs = np.random.RandomState(99)
    keep = {k: v.clone() for k, v in learner.net.state_dict().items()}
    res = np.zeros(steps + 1)
    for _ in range(n_tasks):
        x, y = sample_task(rs, args.shots + 40)
        x, y = x.to(dev), y.to(dev)
        fast = learner.fast()
        for s in range(steps + 1):
            out = functional_call(learner.net, fast, (x[args.shots:],))
            res[s] += F.mse_loss(out, y[args.shots:]).item()
            if s < steps:
                fast, _ = learner.inner(fast, x[:args.shots], y[:args.shots], False)
    learner.net.load_state_dict(keep)      # the forward passes moved the running statistics
    return res / n_tasks


tasks = task_stream(rng)
second = False
history = []
for it in range(args.iters):
    if it == args.second_order_after:
        second = True
        # the moments of the first-order phase mislead the second-order one
        optimizer.state.clear()
    optimizer.zero_grad()
    meta_loss, n_ok = 0.0, 0
    for b in range(args.meta_batch):
        task = next(tasks)
        try:
            loss, q = run_task(task, it, second)
        except FloatingPointError as e:
            warnings.warn(str(e))
            continue
        (loss / args.meta_batch).backward()       # graphs of one task at a time
        meta_loss += q.item()
        n_ok += 1
    if n_ok == 0:
        break
    if n_ok < args.meta_batch:
        for w in learner.parameters():
            if w.grad is not None:
                w.grad *= args.meta_batch / n_ok
    # hyper-gradients of the learning rates are heavy tailed
    for w in learner.log_lr.values():
        if w.grad is not None:
            w.grad.clamp_(-0.5, 0.5)
    gn = nn.utils.clip_grad_norm_(learner.net.parameters(), 10.0)
    optimizer.step()
    sched.step()
    with torch.no_grad():
        for w in learner.log_lr.values():
            w.clamp_(max=math.log(0.3))
    history.append(meta_loss / n_ok)
    if it % 5 == 0 or it == args.iters - 1:
        x, y = sample_task(np.random.RandomState(it), 16)
        s = per_sample_grad_norm(x.to(dev), y.to(dev))
        print('iter', it, 'meta loss', history[-1], '|g|', gn.item(), 'order', 1 + second,
              'spread', (s.std() / s.mean()).item())
    if it % 20 == 19:
        print('   meta test', meta_test().tolist())

print('lrs', {k: round(math.exp(v.item()), 6) for k, v in learner.log_lr.items()})
print('mean of the last ten', sum(history[-10:]) / 10)
