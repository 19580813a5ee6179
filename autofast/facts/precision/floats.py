"""What certainly is a tensor of floats: what layers with weights give, whatever the batch holds."""

from __future__ import annotations

import ast

from autofast.facts.parts import held_by, parts_of
from autofast.facts.used_parameters import CONTAINERS, HOLDERS, WITHOUT
from autofast.flow.callgraph import CallGraph, code_of
from autofast.flow.program import Flow
from autofast.model.kinds import is_module
from autofast.model.script import Script
from autofast.model.several import any_in, any_of, surely
from autofast.model.syntax import is_operation
from autofast.model.values import Ext, Seq, Thing, Unknown, is_named

WEIGHTED = frozenset(f"torch.nn.{name}" for name in HOLDERS)
KEEPS = CONTAINERS | frozenset(f"torch.nn.{name}" for name in WITHOUT)
ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div)
DEPTH = 8  # calls of functions and variables that are followed


def is_float(script: Script, expr: ast.expr, deeper: int = DEPTH) -> bool:
    """Whether a layer has given it, or it is computed with what one has: ``conv(x) + image`` is
    floats whatever the image is.
    """
    if isinstance(expr, ast.Name) and deeper:
        made = [d.value for d in script.analysis(Flow).reaching(expr)]
        return surely(e is not None and is_float(script, e, deeper - 1) for e in made)
    if is_operation(expr, *ARITHMETIC):
        return any(is_float(script, e, deeper) for e in (expr.left, expr.right))
    called = script.called(expr) if deeper else ()
    return surely(is_module(t) and _gives_floats(script, t, deeper - 1) for t in called)


def is_weightless(module: Thing) -> bool:
    """Whether a module is of layers of torch that have no weights, or containers of such."""
    plain = all(isinstance(t, Seq) or is_named(t, Ext, KEEPS) for t in held_by(module))
    return isinstance(module, Ext) and plain


def _gives_floats(script: Script, thing: Thing, deeper: int) -> bool:
    """Whether a module gives floats of whatever it is given."""
    if isinstance(thing, Ext):
        parts = [t for t in parts_of(thing).values() if is_module(t)]
        names = {t.name for t in parts if isinstance(t, Ext)}
        own = [t for t in parts if not isinstance(t, Ext)]
        return (
            any_in(names, WEIGHTED)
            and not any_of(held_by(thing), Unknown)
            and names <= WEIGHTED | KEEPS
            and all(_gives_floats(script, t, deeper) for t in own)
        )
    results = [r for c in code_of(thing) for r in script.analysis(CallGraph).results(c.function)]
    return bool(deeper) and surely(is_float(script, r, deeper - 1) for r in results)
