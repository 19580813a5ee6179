import argparse
import random

import numpy as np
import torch

from . import hooks as hk, losses, model  # noqa: F401
from .config import load
from .data import JOINTS, build_loaders
from .engine import Engine
from .registry import LOSSES, MODELS


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument('--cfg', required=True)
    ap.add_argument('opts', nargs=argparse.REMAINDER)
    a = ap.parse_args()
    cfg = load(a.cfg, a.opts)
    random.seed(cfg.SEED), np.random.seed(cfg.SEED), torch.manual_seed(cfg.SEED)
    torch.backends.cudnn.benchmark = cfg.CUDNN.BENCHMARK
    torch.backends.cudnn.deterministic = cfg.CUDNN.DETERMINISTIC
    device = ('cuda' if torch.cuda.is_available() else 'cpu') if cfg.DEVICE == 'auto' else cfg.DEVICE

    train, val, seeder = build_loaders(cfg)
    net = MODELS[cfg.MODEL.NAME](len(JOINTS), **cfg.MODEL).to(device)
    crit = LOSSES[cfg.LOSS.NAME](**cfg.LOSS)
    opt = getattr(torch.optim, cfg.OPTIM.NAME)(net.parameters(), lr=cfg.OPTIM.LR)
    eng = Engine(cfg, net, crit, opt, device,
                 [hk.Reseed(seeder), hk.Warmup(), hk.Clip(cfg.OPTIM.CLIP), hk.Ema(net, cfg.EMA), hk.Collapse(), hk.Log()])
    m = eng.fit(train, val)
    torch.save({'model': net.state_dict(), 'ema': eng.hooks[3].model.state_dict(), 'it': eng.it}, 'pose.pth')
    print('final', m['val']['pck'], 'stack weights', crit.sw, 'clip', eng.hooks[2].limit)


if __name__ == '__main__':
    main()
