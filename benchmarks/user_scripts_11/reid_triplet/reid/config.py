import yaml


class Node(dict):
    def __getattr__(self, k):
        return self[k]


def _wrap(d):
    return Node({k: _wrap(v) if isinstance(v, dict) else v for k, v in d.items()})


def load_config(path, opts):
    with open(path) as f:
        cfg = _wrap(yaml.safe_load(f))
    # KEY.SUBKEY value pairs from the command line
    for k, v in zip(opts[0::2], opts[1::2]):
        node = cfg
        *parents, last = k.split('.')
        for p in parents:
            node = node[p]
        assert last in node, k
        node[last] = yaml.safe_load(v)
    return cfg
