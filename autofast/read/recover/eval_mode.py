"""Where a script switches its models to evaluation, by ``eval()``."""

from __future__ import annotations

import ast

from autofast.flow.positions import index_in_block, nodes_of, statements_beside
from autofast.model.roles import Evaluation
from autofast.model.script import Script
from autofast.model.source import function_of


def switching_functions(script: Script) -> frozenset[ast.AST]:
    """The functions (and modules) in which something is switched to evaluation."""
    return frozenset(function_of(site.node) for site in script.methods("eval"))


def switched_above(script: Script, evaluation: Evaluation) -> bool:
    """Whether a model of an evaluation that is one statement is switched above it, in the same
    block.
    """
    assert isinstance(evaluation.node, ast.stmt)
    here = statements_beside(evaluation.node)
    above = nodes_of(here[: index_in_block(here, evaluation.node)])
    models = {o.this for site in evaluation.forwards for o in site}
    return any(
        site.node in above and any(o.this in models for o in site)
        for site in script.methods("eval")
    )
