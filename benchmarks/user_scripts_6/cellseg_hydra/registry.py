class Registry(dict):
    def register(self, name):
        def deco(obj):
            assert name not in self, name
            self[name] = obj
            return obj
        return deco

    def build(self, cfg, **extra):
        kw = {k: v for k, v in cfg.items() if k not in ("name", "_target_")}
        kw.update(extra)
        return self[cfg["name"]](**kw)


MODELS = Registry()
LOSSES = Registry()
OPTIMS = Registry()
