import argparse
import random

import numpy as np
import torch

from config import load_config
from data import build_loaders
from model import DeepFM
from trainer import Trainer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--set', nargs='*', help='key=value pairs over config.py')
    cfg = load_config(parser.parse_args().set)
    random.seed(cfg['seed'])
    np.random.seed(cfg['seed'])
    torch.manual_seed(cfg['seed'])
    loaders = build_loaders(cfg)
    model = DeepFM(cfg)
    print('parameters: %d' % sum(p.numel() for p in model.parameters()))
    Trainer(model, loaders, cfg).fit()


if __name__ == '__main__':
    main()
