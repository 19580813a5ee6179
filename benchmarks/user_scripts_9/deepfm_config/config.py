CONFIG = {
    'seed': 2023,
    'rows': 2000000,
    'data_dir': 'data',
    'n_dense': 6,
    # number of categories per sparse field
    'vocab': {'user': 200000, 'item': 60000, 'category': 40, 'brand': 900, 'city': 300,
              'device': 12, 'hour': 24, 'weekday': 7, 'channel': 20, 'age': 10},
    'embed_dim': 16,
    'hidden': [256, 128, 64],
    'dropout': 0.2,
    'batch_size': 2048,
    'epochs': 10,
    'lr': 1e-3,
    'l2': 1e-6,
    'patience': 2,
    'log_every': 5,
}


def load_config(overrides):
    cfg = dict(CONFIG)
    for item in overrides or []:
        key, value = item.split('=')
        assert key in cfg, 'unknown option %s' % key
        cfg[key] = type(cfg[key])(value)
    if cfg['rows'] < 100000:          # small run: small tables
        cfg['vocab'] = {k: min(v, 500) for k, v in cfg['vocab'].items()}
    return cfg
