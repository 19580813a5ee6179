import importlib


def instantiate(node, *args, **extra):
    """hydra.utils.instantiate without hydra"""
    kw = {k: v for k, v in node.items() if k != '_target_'}
    kw.update(extra)
    mod, _, name = node['_target_'].rpartition('.')
    return getattr(importlib.import_module(mod), name)(*args, **kw)


def override(conf, argv):
    for a in argv:
        path, val = a.split('=', 1)
        *head, last = path.split('.')
        node = conf
        for h in head:
            node = node[h]
        old = node[last]
        node[last] = type(old)(val) if old is not None else val
    return conf
