"""Heat in a rod: the net is trained on the equation itself, first by Adam on points that are drawn anew, then by L-BFGS on fixed ones."""
import math

import numpy as np
import torch
import torch.nn as nn

torch.manual_seed(1234)
np.random.seed(1234)
torch.set_default_dtype(torch.float64)

ALPHA = 0.15
W_START, W_EDGE = 10.0, 4.0


def exact(x, t):
    return torch.sin(math.pi * x) * torch.exp(-ALPHA * math.pi**2 * t) + 0.5 * torch.sin(2 * math.pi * x) * torch.exp(-4 * ALPHA * math.pi**2 * t)


class Rod(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        sizes = [2, width, width, width, 1]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        for layer in self.layers:
            nn.init.xavier_normal_(layer.weight)
            nn.init.zeros_(layer.bias)
        self.slope = nn.Parameter(torch.ones(len(self.layers) - 1))

    def forward(self, x, t):
        h = torch.cat([2 * x - 1, 2 * t - 1], dim=1)
        for layer, slope in zip(self.layers[:-1], self.slope):
            h = torch.tanh(slope * layer(h))
        return self.layers[-1](h)


def draw(n):
    """Points by strata: one in each slice of x, with times of their own."""
    x = (torch.arange(n) + torch.rand(n)) / n
    t = torch.rand(n)
    return x[:, None].requires_grad_(), t[:, None].requires_grad_()


def residual(net, x, t):
    u = net(x, t)
    u_x, u_t = torch.autograd.grad(u.sum(), (x, t), create_graph=True)
    u_xx = torch.autograd.grad(u_x.sum(), x, create_graph=True)[0]
    return u_t - ALPHA * u_xx


def losses(net, x, t, x0, te):
    inner = residual(net, x, t).pow(2).mean()
    zero = torch.zeros_like(x0)
    start = (net(x0, zero) - exact(x0, zero)).pow(2).mean()
    edge = net(torch.zeros_like(te), te).pow(2).mean() + net(torch.ones_like(te), te).pow(2).mean()
    return inner, start, edge


def error(net):
    x, t = torch.meshgrid(torch.linspace(0, 1, 41), torch.linspace(0, 1, 21), indexing="ij")
    x, t = x.reshape(-1, 1), t.reshape(-1, 1)
    with torch.no_grad():
        return ((net(x, t) - exact(x, t)).norm() / exact(x, t).norm()).item()


net = Rod()
adam = torch.optim.Adam([
    {"params": net.layers.parameters()},
    {"params": [net.slope], "lr": 2e-2},
], lr=8e-3)
decay = torch.optim.lr_scheduler.StepLR(adam, step_size=40, gamma=0.6)
w_edge = W_EDGE
history = []
for step in range(160):
    if step % 20 == 0:
        x, t = draw(200)
        x0 = torch.from_numpy(np.random.uniform(0, 1, (60, 1)))
        te = torch.from_numpy(np.random.uniform(0, 1, (40, 1)))
    inner, start, edge = losses(net, x, t, x0, te)
    loss = inner + W_START * start + w_edge * edge
    adam.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 5.0)
    adam.step()
    decay.step()
    history.append(loss.item())
    if (step + 1) % 40 == 0:
        # the edges weigh as much as the inside
        w_edge = 0.5 * w_edge + 0.5 * min(50.0, (inner / (edge + 1e-8)).item())
        print(f"adam {step + 1} loss {np.mean(history[-20:]):.5f} inside {inner.item():.5f} start {start.item():.5f} edge {edge.item():.5f} weight {w_edge:.3f} error {error(net):.4f}")

lbfgs = torch.optim.LBFGS(net.parameters(), lr=0.8, max_iter=5, history_size=20, line_search_fn="strong_wolfe")
x, t = draw(300)
for step in range(8):

    def closure():
        lbfgs.zero_grad()
        inner, start, edge = losses(net, x, t, x0, te)
        loss = inner + W_START * start + w_edge * edge
        loss.backward()
        return loss

    loss = lbfgs.step(closure)
    if step % 4 == 3:
        print(f"lbfgs {step + 1} loss {loss.item():.6f} error {error(net):.5f}")

torch.save({"net": net.state_dict(), "w_edge": w_edge, "history": history}, "rod.pt")
