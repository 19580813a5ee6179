import argparse

import yaml

from .exp import Experiment
from .tools import fix_seed


def main():
    parser = argparse.ArgumentParser(description='Long-horizon forecasting')
    parser.add_argument('--config', default='configs/etth.yaml')
    args = parser.parse_args()
    with open(args.config) as f:
        cfg = yaml.safe_load(f)
    fix_seed(cfg['seed'])
    exp = Experiment(cfg)
    print('>>>>>>> start training >>>>>>>')
    exp.train()
    print('>>>>>>> testing <<<<<<<')
    exp.test()


if __name__ == '__main__':
    main()
