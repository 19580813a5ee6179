import argparse
import logging
import os
import random
import sys

import numpy as np
import torch

from reid.config import load_config
from reid.data.build import make_data_loader
from reid.engine.trainer import do_train
from reid.modeling import Baseline, CenterLoss, ReIDLoss


def main():
    parser = argparse.ArgumentParser(description="ReID Baseline Training")
    parser.add_argument("--config_file", default="configs/base.yml", type=str)
    parser.add_argument("opts", help="Modify config options using the command-line", default=[],
                        nargs=argparse.REMAINDER)
    args = parser.parse_args()
    cfg = load_config(args.config_file, args.opts)

    os.makedirs(cfg.OUTPUT_DIR, exist_ok=True)
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format='%(name)s: %(message)s')
    logging.info(dict(cfg))

    random.seed(cfg.SEED)
    np.random.seed(cfg.SEED)
    torch.manual_seed(cfg.SEED)
    torch.backends.cudnn.benchmark = True
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')

    train_loader, val_loader, num_query = make_data_loader(cfg)
    num_classes = cfg.DATA.TRAIN_IDS
    model = Baseline(cfg, num_classes).to(device)
    center = CenterLoss(num_classes, model.feat_dim, use_gpu=device.type == 'cuda').to(device)
    criterion = ReIDLoss(cfg, num_classes, center)
    best = do_train(cfg, model, center, criterion, train_loader, val_loader, num_query, device)
    print('best mAP %.4f' % best)


if __name__ == '__main__':
    main()
