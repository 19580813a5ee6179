MODELS: dict = {}
METHODS: dict = {}


def register(table: dict):
    def deco(cls):
        table[cls.__name__] = cls
        return cls
    return deco


def build(table: dict, cfg, *args):
    kw = dict(vars(cfg))
    return table[kw.pop('type')](*args, **kw)
