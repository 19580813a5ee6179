class Registry:
    def __init__(self, name):
        self.name = name
        self._m = {}

    def register(self, cls):
        self._m[cls.__name__] = cls
        return cls

    def build(self, cfg, **extra):
        cfg = dict(cfg)
        return self._m[cfg.pop("type")](**cfg, **extra)


NETS = Registry("nets")
LOSSES = Registry("losses")
HOOKS = Registry("hooks")
