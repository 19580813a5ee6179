"""What a loop over the batches of a loader is for its updates: how it ends, and whether the number
of its batches is known.
"""

from __future__ import annotations

import ast

from autofast.flow.loops import Loop
from autofast.flow.program import graph_of
from autofast.model.roles import Loader
from autofast.model.script import Script
from autofast.model.several import first_such, of_kind
from autofast.model.source import at, nodes_in
from autofast.model.values import Const, Ext, Inst, Thing, Values, begins, const
from autofast.rule import Refusal

BARS = ("tqdm.", "rich.progress.", "fastprogress.", "progressbar.", "builtins.enumerate")
FRAMEWORKS = tuple(
    "accelerate lightning hf-trainer deepspeed fabric ignite fastai mmengine composer".split()
)


def cut_short(script: Script, node: ast.AST, loop: Loop | None) -> ast.stmt | None:
    """A ``continue`` that may end the iteration of ``loop``, or without one a ``return`` that may
    end the function, before ``node``.
    """
    found = graph_of(script, node).leaving_before(node, loop)
    return first_such(found, ast.Return if loop is None else ast.Continue)


def ends_of(script: Script, loop: Loop) -> list[ast.stmt]:
    """The ``break`` and ``return`` statements that end a loop."""
    return of_kind(graph_of(script, loop).exits(loop), (ast.Break, ast.Return))


def inside_bar(found: Values) -> ast.expr | None:
    """What a progress bar or a counter goes over, as it is written; None where something else is
    among these values.
    """
    inner = {
        t.args.positional[0].expr: t.args.positional[0].expr
        for t in of_kind(found, Ext)
        if t.args.positional
    }
    if len(inner) != 1 or not all(begins(t, Ext, BARS) for t in found):
        return None
    return next(iter(inner.values()))


def check_loader(loader: Loader, thing: Thing) -> None:
    """Raises :class:`Refusal` where the number of batches in a pass is not certain."""
    where = f"the loader on {at(loader)}"
    if isinstance(thing, Inst) and any(
        thing.cls.find(n) is not None for n in ("__len__", "__iter__")
    ):
        raise Refusal(f"{where} counts its batches in its own way")
    if loader.args.open:
        raise Refusal(f"not all arguments of {where} are known")
    for index_, name in ((3, "sampler"), (4, "batch_sampler")):
        if any(not isinstance(t, Ext) and t != Const(None) for t in loader.args.get(index_, name)):
            raise Refusal(f"{where} has a {name} of its own, whose length may change")
    shuffled = const(loader.args.get(2, "shuffle")) is True
    if not loader.datasets and not shuffled:
        raise Refusal(f"what {where} loads is not known, nor how many batches it has")
    for dataset in loader.datasets:
        if dataset.iterable:
            raise Refusal(f"{where} has an IterableDataset, whose number of batches is not known")
        if dataset.kind == "unknown" and not shuffled:
            raise Refusal(f"what {where} loads is not known, nor how many batches it has")
        if _may_grow(dataset.thing, dataset.set_outside):
            raise Refusal(f"the length of the data set of {where} may change")


def _may_grow(dataset: Thing, set_outside: tuple[ast.AST, ...]) -> bool:
    """Whether what ``__len__`` counts is set from outside."""
    found = dataset.cls.find("__len__") if isinstance(dataset, Inst) else None
    counted = {
        n.attr for f in found or () for n in nodes_in(getattr(f, "node", ast.Pass()), ast.Attribute)
    }
    touched = {n.attr for place in set_outside for n in nodes_in(place, ast.Attribute)}
    return bool(counted & touched)
