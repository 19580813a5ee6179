from .misc import EMA, infinite, seed_all, load_cfg
