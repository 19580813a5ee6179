import random

import torch
import torch.nn.functional as F

from .net import is_local


class Server:
    def __init__(self, net, clients, args):
        self.net, self.clients, self.args = net, clients, args
        self.weights = {k: v.clone() for k, v in net.state_dict().items()}
        self.control = {k: torch.zeros_like(p) for k, p in net.named_parameters()}
        self.velocity = {}
        self.rng = random.Random(args.seed)
        self.log = []

    def choose(self):
        """clients with a high last loss come more often"""
        m = max(1, int(self.args.frac * len(self.clients)))
        score = {c.cid: self.rng.random() * (1 + getattr(c, 'last', 5.0)) for c in self.clients}
        return sorted(self.clients, key=lambda c: -score[c.cid])[:m]

    def round(self, r):
        chosen = self.choose()
        updates = []
        for c in chosen:
            if self.rng.random() < self.args.drop:
                print(f'    client {c.cid} dropped out')
                continue
            delta, dc, n, mean, last = c.train(self.weights, self.control)
            c.last = last
            norm = torch.sqrt(sum(d.pow(2).sum() for d in delta.values())).item()
            if not norm < self.args.max_norm:
                print(f'    client {c.cid} rejected, norm {norm!r}')
                continue
            updates.append((delta, dc, n, mean))
            print(f'    client {c.cid} n {n} loss {mean!r} last {last!r} |delta| {norm!r}')
        if not updates:
            return None
        total = sum(u[2] for u in updates)
        for k in self.weights:
            if k not in updates[0][0]:
                continue                      # buffers
            if self.args.median:
                step = torch.stack([u[0][k] for u in updates]).median(0)[0]
            else:
                step = sum(u[0][k] * (u[2] / total) for u in updates)
            v = self.velocity.get(k, 0) * self.args.server_momentum + step
            self.velocity[k] = v
            self.weights[k] += v
        if updates[0][1] is not None:
            for k in self.control:
                self.control[k] += sum(u[1][k] for u in updates) / len(self.clients)
        return sum(u[3] * u[2] for u in updates) / total

    def test(self, x, y):
        """server-side test: the mean of the clients' BatchNorm state stands in for the missing one"""
        sd = self.net.state_dict()
        for k in sd:
            if is_local(k, self.net):
                stack = torch.stack([c.bn[k].float() for c in self.clients])
                sd[k].copy_(stack.mean(0))
            else:
                sd[k].copy_(self.weights[k])
        self.net.eval()
        loss, hit = 0.0, 0
        per = torch.zeros(4, 4, dtype=torch.long)
        for i in range(0, len(y), 50):
            xb, yb = x[i:i + 50].to(self.args.device), y[i:i + 50].to(self.args.device)
            out = self.net(xb)
            loss += F.cross_entropy(out, yb, reduction='sum').item()
            hit += (out.argmax(1) == yb).sum().item()
            for t, p in zip(yb, out.argmax(1)):
                per[t.item(), p.item()] += 1
        return loss / len(y), hit / len(y), per.tolist()
