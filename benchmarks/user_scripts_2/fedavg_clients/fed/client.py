import copy

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from .net import is_local


class Client:
    """keeps what is private: data, BatchNorm state, control variate, momentum buffers, random seed"""

    def __init__(self, cid, ds, net, args):
        self.cid, self.ds, self.args = cid, ds, args
        self.net = net                       # ONE net object is lent to all clients in turn
        self.bn = {k: v.clone() for k, v in net.state_dict().items() if is_local(k, net)}
        self.control = None
        self.opt_state = None
        self.rounds = 0

    def load(self, weights):
        sd = self.net.state_dict()
        for k in sd:
            sd[k].copy_(self.bn[k] if k in self.bn else weights[k])

    def train(self, weights, server_control):
        a = self.args
        torch.manual_seed(a.seed * 100 + self.cid)       # same shuffles in each round, on purpose (ablation)
        np.random.seed(a.seed * 100 + self.cid + 7 * self.rounds)
        self.load(weights)
        net = self.net
        net.train()
        params = dict(net.named_parameters())
        start = {k: p.detach().clone() for k, p in params.items()}
        opt = torch.optim.SGD(net.parameters(), lr=a.lr, momentum=.5)
        if self.opt_state is not None:
            opt.load_state_dict(self.opt_state)
        loader = DataLoader(self.ds, batch_size=a.bs, shuffle=True)
        if self.control is None:
            self.control = {k: torch.zeros_like(p) for k, p in params.items()}
        steps, losses = 0, []
        budget = a.local_steps
        while steps < budget:
            for x, y in loader:
                if len(y) < 2:               # BatchNorm wants two
                    continue
                x, y = x.to(a.device), y.to(a.device)
                opt.zero_grad()
                out = net(x)
                loss = F.cross_entropy(out, y)
                if a.algo == 'fedprox':
                    loss = loss + .5 * a.mu * sum(((p - start[k]) ** 2).sum() for k, p in params.items())
                loss.backward()
                if a.algo == 'scaffold':
                    for k, p in params.items():
                        p.grad += server_control[k] - self.control[k]
                if a.dp > 0:
                    total = torch.stack([p.grad.norm() for p in params.values()]).norm()
                    for p in params.values():
                        p.grad.mul_(min(1.0, a.dp / (total.item() + 1e-6)))
                opt.step()
                steps += 1
                losses.append(loss.item())
                if steps == budget:
                    break
        delta = {k: (p.detach() - start[k]) for k, p in params.items()}
        dc = None
        if a.algo == 'scaffold':
            dc = {}
            for k in delta:
                new = self.control[k] - server_control[k] - delta[k] / (2 * steps * a.lr)      # momentum .5 doubles the step
                dc[k] = new - self.control[k]
                self.control[k] = new
        self.bn = {k: v.clone() for k, v in net.state_dict().items() if k in self.bn}
        self.opt_state = copy.deepcopy(opt.state_dict())
        self.rounds += 1
        return delta, dc, len(self.ds), sum(losses) / len(losses), losses[-1]

    def evaluate(self, weights):
        self.load(weights)
        self.net.eval()
        hit = 0
        for x, y in DataLoader(self.ds, batch_size=64):
            hit += (self.net(x.to(self.args.device)).argmax(1).cpu() == y).sum()
        return hit.item() / len(self.ds)
