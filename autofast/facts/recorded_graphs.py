"""Models whose kernels the script has torch record in CUDA graphs: what one run gives, the next one overwrites."""

from __future__ import annotations

import ast

from autofast.model.script import Script
from autofast.model.values import const

MODES = frozenset({"reduce-overhead", "max-autotune"})


def records_graphs(script: Script) -> ast.AST | None:
    """A ``mode=`` of torch.compile that records CUDA graphs; of an option, one of its possible values is enough."""
    for node in script.each(ast.keyword):
        if node.arg == "mode":
            written = node.value.value if isinstance(node.value, ast.Constant) else None
            if (written or const(script.values(node.value))) in MODES:
                return node.value
    return None
