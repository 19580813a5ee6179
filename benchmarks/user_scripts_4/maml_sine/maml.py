import argparse
from collections import OrderedDict

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument('--meta_iters', type=int, default=120)
parser.add_argument('--tasks', type=int, default=8)
parser.add_argument('--k', type=int, default=10)
parser.add_argument('--inner_steps', type=int, default=3)
parser.add_argument('--inner_lr', type=float, default=0.01)
parser.add_argument('--meta_lr', type=float, default=1e-3)
parser.add_argument('--first_order', action='store_true')
parser.add_argument('--seed', type=int, default=0)
args = parser.parse_args()

device = torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')


class SineTasks:
    def __init__(self, seed):
        self.rng = np.random.RandomState(seed)

    def sample(self):
        return self.rng.uniform(0.1, 5.0), self.rng.uniform(0, np.pi)

    def batch(self, task, k):
        amp, phase = task
        x = self.rng.uniform(-5, 5, (k, 1))
        y = amp * np.sin(x - phase)
        return torch.Tensor(x), torch.Tensor(y)


class MLP(nn.Module):
    def __init__(self, hidden=40):
        super(MLP, self).__init__()
        self.l1 = nn.Linear(1, hidden)
        self.l2 = nn.Linear(hidden, hidden)
        self.l3 = nn.Linear(hidden, 1)

    def forward(self, x, params=None):
        if params is None:
            params = OrderedDict(self.named_parameters())
        x = F.relu(F.linear(x, params['l1.weight'], params['l1.bias']))
        x = F.relu(F.linear(x, params['l2.weight'], params['l2.bias']))
        return F.linear(x, params['l3.weight'], params['l3.bias'])


class AlphaSchedule(nn.Module):
    """Learned inner learning rates per parameter (Meta-SGD)."""

    def __init__(self, model, lr):
        super(AlphaSchedule, self).__init__()
        self.alpha = nn.ParameterDict({k.replace('.', '_'): nn.Parameter(torch.full_like(p, lr))
                                       for k, p in model.named_parameters()})

    def __getitem__(self, k):
        return self.alpha[k.replace('.', '_')]


def adapt(model, alpha, x, y, steps, train=True):
    fast = OrderedDict(model.named_parameters())
    for _ in range(steps):
        loss = F.mse_loss(model(x, fast), y)
        grads = torch.autograd.grad(loss, fast.values(), create_graph=not args.first_order)
        fast = OrderedDict((k, p - alpha[k] * g) for (k, p), g in zip(fast.items(), grads))
    return fast


def evaluate(model, alpha, seed, n_tasks=20):
    """Adapts to unseen tasks; needs gradients for the inner loop even here."""
    tasks = SineTasks(seed)
    pre, post = [], []
    for _ in range(n_tasks):
        task = tasks.sample()
        xs, ys = tasks.batch(task, args.k)
        xq, yq = tasks.batch(task, 50)
        xs, ys, xq, yq = xs.to(device), ys.to(device), xq.to(device), yq.to(device)
        fast = adapt(model, alpha, xs, ys, args.inner_steps, train=False)
        pre.append(F.mse_loss(model(xq), yq))
        post.append(F.mse_loss(model(xq, fast), yq))
    return torch.stack(pre).mean(), torch.stack(post).mean()


def main():
    torch.manual_seed(args.seed)
    tasks = SineTasks(args.seed)
    model = MLP().to(device)
    alpha = AlphaSchedule(model, args.inner_lr)
    meta_opt = torch.optim.Adam(list(model.parameters()) + list(alpha.parameters()), lr=args.meta_lr)
    history = {'loss': [], 'grad': []}
    best = float('inf')
    for it in range(args.meta_iters):
        meta_opt.zero_grad()
        meta_loss = 0.
        for _ in range(args.tasks):
            task = tasks.sample()
            xs, ys = tasks.batch(task, args.k)
            xq, yq = tasks.batch(task, args.k)
            xs, ys = xs.to(device), ys.to(device)
            xq, yq = xq.to(device), yq.to(device)
            fast = adapt(model, alpha, xs, ys, args.inner_steps)
            loss_q = F.mse_loss(model(xq, fast), yq) / args.tasks
            loss_q.backward()
            meta_loss += loss_q
        norm = 0.
        for p in list(model.parameters()) + list(alpha.parameters()):
            norm += p.grad.data.norm(2).item() ** 2
        norm = norm ** 0.5
        meta_opt.step()
        # inner rates must stay positive
        for p in alpha.parameters():
            p.data.clamp_(min=1e-4)
        history['loss'].append(meta_loss)
        history['grad'].append(norm)
        if (it + 1) % 20 == 0:
            pre, post = evaluate(model, alpha, seed=999)
            print('iter %d meta loss %.4f grad %.3f | val pre %.4f post %.4f' % (
                it + 1, meta_loss.item(), norm, pre.item(), post.item()))
            if post < best:
                best = post
                torch.save({'model': model.state_dict(), 'alpha': alpha.state_dict()}, 'best.pth')
    print('mean meta loss of last 50: %.5f' % (sum(history['loss'][-50:]) / 50).item())
    print('max grad norm: %.4f' % max(history['grad']))
    ckpt = torch.load('best.pth', map_location=device)
    model.load_state_dict(ckpt['model'])
    alpha.load_state_dict(ckpt['alpha'])
    pre, post = evaluate(model, alpha, seed=12345, n_tasks=50)
    print('test pre %.4f post %.4f' % (pre.item(), post.item()))


if __name__ == '__main__':
    main()
