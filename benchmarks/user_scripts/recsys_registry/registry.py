REGISTRY = {}


def register(kind, name=None):
    def deco(cls):
        REGISTRY.setdefault(kind, {})[name or cls.__name__.lower()] = cls
        return cls
    return deco


def build(kind, name, *args, **kwargs):
    try:
        factory = REGISTRY[kind][name]
    except KeyError:
        raise SystemExit('unknown %s %r, have %s' % (kind, name, sorted(REGISTRY.get(kind, {}))))
    return factory(*args, **kwargs)


class Cfg(dict):
    """attribute access, nested, with dotted overrides: a.b.c=1"""

    def __init__(self, d):
        super().__init__({k: Cfg(v) if isinstance(v, dict) else v for k, v in d.items()})

    def __getattr__(self, k):
        try:
            return self[k]
        except KeyError:
            raise AttributeError(k)

    def override(self, dotted, value):
        head, _, rest = dotted.partition('.')
        if rest:
            self[head].override(rest, value)
        else:
            old = self[head]
            self[head] = value if isinstance(old, str) else type(old)(float(value)) if not isinstance(old, bool) else value == 'true'
