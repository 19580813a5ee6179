"""Which loops compute with one row of a batch after the other, though no turn needs what another
leaves."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.facts.cost.bounds import range_turns
from autofast.facts.cost.run_counts import over_layers
from autofast.facts.switches import frequent_nodes
from autofast.facts.turns import Turning, carried, head_of, turn_of
from autofast.flow.callgraph import CallGraph
from autofast.flow.loops import loops_around
from autofast.flow.memory import view_of
from autofast.flow.program import definitions_at
from autofast.flow.scopes import own_nodes
from autofast.model.calls import arguments_of, is_method
from autofast.model.script import Script
from autofast.model.several import wordset
from autofast.model.source import nodes_in, within, within_any
from autofast.model.values import (
    Bound,
    Ext,
    Func,
    Inst,
    Seq,
    Tensor,
    any_of,
    are_numbers,
    certainly,
    is_weight,
    of_kind,
)
from autofast.ops import op

FEW = 8  # turns
WRAPPING = wordset("builtins.enumerate builtins.zip builtins.reversed tqdm.tqdm tqdm.auto.tqdm")
COUNTING = wordset("builtins.range itertools.product")
PIECES = wordset("split chunk tensor_split parameters named_parameters")
TRAINING = wordset("backward step zero_grad")


def row_by_row(script: Script, written: list[Turning]) -> list[Turning]:
    """The outermost loops that do so again and again, in steps or once an epoch, but for those
    that are written otherwise.
    """
    loops = [x for x in dict.fromkeys(_again_and_again(script)) if not within_any(x, written)]
    found = [x for x in loops if is_row_by_row(script, x)]
    return [x for x in found if not within_any(x, [y for y in found if y is not x])]


def _again_and_again(script: Script) -> Iterator[Turning]:
    calls = script.analysis(CallGraph)
    outer = [loop for step in script.steps for loop in loops_around(step.loop)]
    epochs = (n for loop in outer for f in calls.run_in(loop, often=True) for n in own_nodes(f))
    steps = (n for _, n in frequent_nodes(script, (ast.For, ast.ListComp)))
    yield from (n for n in (*steps, *epochs) if isinstance(n, (ast.For, ast.ListComp)))


def is_row_by_row(script: Script, loop: Turning) -> bool:
    """Whether a loop computes with parts of tensors that each turn takes for itself, in no order
    that matters.
    """
    turns, nodes = range_turns(script, loop), turn_of(loop)
    return (
        (turns is None or turns >= FEW)
        and all(_is_long(script, e) for e in _sources(script, head_of(loop).iter))
        and not over_layers(loop)
        and any(_takes_part(script, loop, n) for n in nodes)
        and any(_computes(script, n) for n in nodes)
        and not any(is_method(n, *TRAINING) for n in nodes)
        and carried(script, loop) is None
    )


def _sources(script: Script, over: ast.expr) -> Iterator[ast.expr]:
    """What ``enumerate(zip(x, y))`` goes over."""
    if isinstance(over, ast.Call) and script.is_call(over, *WRAPPING):
        for part in arguments_of(over):
            yield from _sources(script, part)
    else:
        yield over


def _is_long(script: Script, over: ast.expr) -> bool:
    """Whether it counts, or gives the rows of a tensor, or numbers."""
    if script.is_call(over, *COUNTING):
        return True
    found = script.values(over)
    if is_method(over, *PIECES) or any(map(is_weight, found)):
        return False
    return certainly(found, Tensor) or (
        certainly(found, Seq) and all(map(_holds_numbers, of_kind(found, Seq)))
    )


def _holds_numbers(held: Seq) -> bool:
    """A list of numbers, or of tuples of them, that is not known to be short."""
    found = held.any()
    inner = [t for s in of_kind(found, Seq) for t in s.exact or (found,)]
    long = held.exact is None or len(held.exact) >= FEW
    return long and all(map(are_numbers, inner or [found]))


def _takes_part(script: Script, loop: Turning, node: ast.AST) -> bool:
    """``x[i]``, ``x[b == i]``, ``x.narrow(0, i, 1)``; ``row`` of a loop that goes over rows."""
    if isinstance(node, ast.Name):
        own = any(within(d.node, head_of(loop).target) for d in definitions_at(script, node))
        return own and certainly(script.values(node), Tensor)
    whole = view_of(node) if isinstance(node, (ast.Subscript, ast.Call)) else None
    if whole is None or not script.may_be(whole, Tensor):
        return False
    parts = [node.slice] if isinstance(node, ast.Subscript) else arguments_of(node)  # type: ignore[arg-type]
    names = (n for part in parts for n in nodes_in(part, ast.Name))
    return any(within(d.node, loop) for n in names for d in definitions_at(script, n))


def _computes(script: Script, node: ast.AST) -> bool:
    """With a tensor that may be on a device, to another one."""
    if all(t.device == "cpu" for t in of_kind(script.values(node), Tensor)):
        return False
    if not isinstance(node, ast.Call):
        return isinstance(node, (ast.BinOp, ast.Compare))
    name, given = script.operation(node)
    if not any(any_of(script.values(e), Tensor) for e in given):
        return False
    known = op(f"torch{name}" if name.startswith(".") else name)
    ours = any_of(script.called(node), Func, Bound, Inst, Ext)
    return ours or (known is not None and not known.view)
