import inspect


class Params:
    """get_params/set_params by the signature of __init__; subclasses only list their arguments"""

    def __init_subclass__(cls):
        orig = cls.__init__
        sig = inspect.signature(orig)

        def __init__(self, *a, **k):
            b = sig.bind(self, *a, **k)
            b.apply_defaults()
            for n, v in list(b.arguments.items())[1:]:
                setattr(self, n, v)
            orig(self, *a, **k)
        __init__.__signature__ = sig
        cls.__init__ = __init__
        cls._names = list(sig.parameters)[1:]

    def get_params(self, deep=True):
        return {n: getattr(self, n) for n in self._names}

    def set_params(self, **k):
        for n, v in k.items():
            if n not in self._names:
                raise ValueError(n)
            setattr(self, n, v)
        return self
