import ast

import yaml


class Node(dict):
    """dict with attribute access, yacs for the poor"""

    def __getattr__(self, k):
        try:
            return self[k]
        except KeyError:
            raise AttributeError(k)

    @classmethod
    def wrap(cls, d):
        return cls({k: cls.wrap(v) if isinstance(v, dict) else v for k, v in d.items()})

    def merge(self, pairs):
        for key, val in zip(pairs[::2], pairs[1::2]):
            node = self
            *path, last = key.split('.')
            for p in path:
                node = node[p]
            assert last in node, key
            try:
                node[last] = ast.literal_eval(val)
            except (ValueError, SyntaxError):
                node[last] = val
        return self


def load(path, opts=()):
    with open(path) as f:
        return Node.wrap(yaml.safe_load(f)).merge(list(opts))
