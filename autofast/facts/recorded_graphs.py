"""Models whose kernels the script has torch record in CUDA graphs: what one run gives, the next one
overwrites.
"""

from __future__ import annotations

import ast

from autofast.model.events import Site
from autofast.model.script import Script
from autofast.model.values import Tensor
from autofast.read.recover.compiled import records_graphs


def gives_its_loss(script: Script, forward: Site) -> bool:
    """Whether a model may give a loss, or several things: memory of the graph itself, and not what
    the script computes of it.
    """
    assert isinstance(forward.node, ast.expr)
    given = script.values(forward.node)
    return not given or not all(
        isinstance(t, Tensor) and not t.loss and t.rank not in ("?", "0d") for t in given
    )


def overwritten(script: Script) -> ast.AST | None:
    """The ``mode=`` by which losses are overwritten that the script gets from its models."""
    given = any(gives_its_loss(script, f) for step in script.steps for f in step.forwards)
    return records_graphs(script) if given else None
