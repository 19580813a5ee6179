import random

import numpy as np
import torch

from config import parse_config
from dataset import make_loaders
from net import KWSResNet
from trainer import Trainer


def seed_all(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def count_macs(model, cfg, device):
    """rough, with hooks, for the paper table"""
    macs = []
    hooks = []
    for m in model.modules():
        if isinstance(m, torch.nn.Conv2d):
            hooks.append(m.register_forward_hook(
                lambda m, i, o: macs.append(o.numel() * m.weight[0].numel())))
    frames = 1 + int((cfg.clip_seconds * 1000 - cfg.win_ms) // cfg.hop_ms)
    model.eval()
    with torch.no_grad():
        model(torch.zeros(1, 1, cfg.n_mels, frames).to(device))
    for h in hooks:
        h.remove()
    return sum(macs)


def main():
    cfg = parse_config()
    seed_all(cfg.seed)
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    loaders = make_loaders(cfg)
    model = KWSResNet(cfg.n_classes, cfg.n_mels, cfg.channels, cfg.n_blocks, cfg.dropout).to(device)
    print('params %d, MACs %.1fM' % (sum(p.numel() for p in model.parameters()),
                                     count_macs(model, cfg, device) / 1e6))
    best = Trainer(model, loaders, cfg, device).fit()
    print('best val acc %.4f' % best)


if __name__ == '__main__':
    main()
