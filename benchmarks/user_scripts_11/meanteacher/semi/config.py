from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any


def _ns(d: Any) -> Any:
    return SimpleNamespace(**{k: _ns(v) for k, v in d.items()}) if isinstance(d, dict) else d


def load(path: str, options: list[str]) -> SimpleNamespace:
    """python file with plain assignments; options are a.b=value"""
    scope: dict[str, Any] = {}
    with open(path) as f:
        exec(compile(f.read(), path, 'exec'), {}, scope)
    for opt in options:
        key, value = opt.split('=', 1)
        node = scope
        *parents, last = key.split('.')
        for p in parents:
            node = node[p]
        if last not in node:
            raise KeyError(key)
        try:
            node[last] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            node[last] = value
    return _ns(scope)
