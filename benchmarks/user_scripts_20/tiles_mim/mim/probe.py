"""Linear probe on frozen features, so that one sees early whether the pre-training goes anywhere."""
import copy

import torch
from torch import nn
from torch.utils.data import DataLoader

from .tiles import ProbeSet


def features(model, loader, device):
    xs, ys = [], []
    for x, y in loader:
        f = model.encode(x.to(device)).mean(1)
        xs.append(f.detach().cpu())
        ys.append(y)
    return torch.cat(xs), torch.cat(ys)


def linear_probe(model, cfg, device, steps=300):
    # the probe must not move the random stream of the pre-training run
    state = torch.get_rng_state()
    torch.manual_seed(99)
    net = copy.deepcopy(model).eval()
    loader = DataLoader(ProbeSet(cfg['data']['probe']), batch_size=64)
    x, y = features(net, loader, device)
    n = len(x) * 4 // 5
    perm = torch.randperm(len(x))
    tr, te = perm[:n], perm[n:]
    head = nn.Linear(x.shape[1], int(y.max()) + 1)
    opt = torch.optim.LBFGS(head.parameters(), max_iter=steps)

    def closure():
        opt.zero_grad()
        loss = nn.functional.cross_entropy(head(x[tr]), y[tr]) + 1e-4 * head.weight.pow(2).sum()
        loss.backward()
        return loss

    opt.step(closure)
    with torch.no_grad():
        acc = (head(x[te]).argmax(1) == y[te]).float().mean().item()
    torch.set_rng_state(state)
    return acc
