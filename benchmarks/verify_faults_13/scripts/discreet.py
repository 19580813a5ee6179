"""Tells nobody who was in the data: every record's gradient is clipped by itself, noise hides the rest, what is spent is written down."""
import json
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, vmap

CLIP, NOISE, RATE = 1.0, 0.6, 0.1


def people(count, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 12, generator=g)
    score = x[:, :3].sum(1) + x[:, 3] * x[:, 4] + 0.3 * torch.randn(count, generator=g)
    return x, torch.bucketize(score, torch.tensor([-1.2, 0.3, 1.5]))


class Scaled:
    """The mean and scatter of public records."""

    def __init__(self, x):
        self.mean, self.std = x.mean(0), x.std(0)

    def __call__(self, x):
        return (x - self.mean) / self.std


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 32), nn.GroupNorm(4, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        return self.head(self.body(x))


def of_one(net, buffers):
    def loss(params, x, y):
        out = functional_call(net, (params, buffers), (x[None],))
        return F.cross_entropy(out, y[None])

    return vmap(grad(loss), in_dims=(None, 0, 0))


def private(net, each, params, x, y, expected):
    """Gradients of all records, clipped one by one, summed, and with noise."""
    found = each(params, x, y)
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in found.values()], 1).norm(dim=1)
    factor = (CLIP / (norms + 1e-6)).clamp(max=1.0)
    for name, p in net.named_parameters():
        total = torch.einsum("n,n...->...", factor, found[name])
        p.grad = (total + NOISE * CLIP * torch.randn_like(total)) / expected
    return norms


def spent(steps, delta=1e-4):
    """A rough bound, enough to compare runs."""
    rho = steps * RATE**2 / (2 * NOISE**2)
    return rho + 2 * math.sqrt(rho * math.log(1 / delta))


def judge(net, x, y):
    net.eval()
    with torch.no_grad():
        out = net(x)
    net.train()
    return F.cross_entropy(out, y).item(), (out.argmax(1) == y).float().mean().item()


def main():
    torch.manual_seed(2)
    public, _ = people(150, 9)
    x, y = people(800, 10)
    held_x, held_y = people(300, 11)
    scaled = Scaled(public)
    x, held_x = scaled(x), scaled(held_x)
    net = Net()
    params = dict(net.named_parameters())
    each = of_one(net, dict(net.named_buffers()))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01, betas=(0.9, 0.99))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: min(1.0, (k + 1) / 10) * (1 - k / 130))
    tail = [torch.zeros_like(p) for p in net.parameters()]
    expected, log = RATE * len(x), []
    for step in range(120):
        chosen = torch.rand(len(x)) < RATE
        optimizer.zero_grad()
        norms = private(net, each, {k: p.detach() for k, p in params.items()}, x[chosen], y[chosen], expected)
        optimizer.step()
        schedule.step()
        if step >= 80:
            for t, p in zip(tail, net.parameters()):
                t += p.detach() / 40
        if step % 20 == 19:
            loss, right = judge(net, held_x, held_y)
            over = (norms > CLIP).float().mean().item()
            log.append({"step": step + 1, "loss": loss, "right": right, "clipped": over, "spent": spent(step + 1)})
            print(f"step {step + 1} loss {loss:.4f} right {right:.4f} clipped {over:.3f} spent {log[-1]['spent']:.3f}")
    with torch.no_grad():
        for t, p in zip(tail, net.parameters()):
            p.copy_(t)
    print("averaged", "loss %.4f right %.4f" % judge(net, held_x, held_y))
    torch.save(net.state_dict(), "discreet.pt")
    with open("log.json", "w") as file:
        json.dump(log, file)


if __name__ == "__main__":
    main()
