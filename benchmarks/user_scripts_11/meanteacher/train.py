import argparse
import random

from semi.config import load
from semi.runner import Runner


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument('config', nargs='?', default='configs/flex_textures.py')
    parser.add_argument('--cfg-options', nargs='*', default=[], help='a.b=value')
    args = parser.parse_args()
    cfg = load(args.config, args.cfg_options)
    random.seed(cfg.seed)
    best = Runner(cfg).train()
    print(f'finished, best teacher accuracy {best:.4f}')


if __name__ == '__main__':
    main()
