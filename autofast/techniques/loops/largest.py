"""Loops that ask for the largest place of one row after the other, as a greedy decoder does:

    for b in range(logits.shape[1]):
        for t in range(int(lengths[b])):
            k = logits[t, b].argmax().item()

The device finds all of them at once, and the host gets them in one copy.
"""

from __future__ import annotations

import ast

from autofast.edit.edits import Before, Edits, Rewrite
from autofast.facts.dimensions import dimension_count
from autofast.facts.element_reads import SIZES, is_tensor
from autofast.flow.program import Flow, definitions_at
from autofast.flow.scopes import binds
from autofast.model.calls import arguments_of, is_name, items_of
from autofast.model.script import Script
from autofast.model.several import of_kind, surely
from autofast.model.source import function_of, live_nodes, nodes_in, parent_of, source_of, within
from autofast.model.syntax import is_attribute, is_read
from autofast.model.tensors import is_unknown_in, tensors_in
from autofast.model.values import Const, Dict, Func, Method, Num, Ref, Seq, Tensor
from autofast.rule import Effect, Refusal

CHANGES_NOTHING = ("builtins.", "math.")
Planned = tuple[Edits, Effect]


def largest_edits(script: Script, loop: ast.For) -> Planned:
    """What finds all places in front of the loop; Refusal without words where it does more."""
    reads = [r for n in live_nodes(loop) if (r := _read(n)) is not None]
    names = {held.id for _, held, _ in reads}
    depths = {len(at) for *_, at in reads}
    if len(names) != 1 or len(depths) != 1 or not _only_looks(script, loop):
        raise Refusal
    held, depth = reads[0][1], depths.pop()
    flow = script.analysis(Flow)
    if (
        not (is_tensor(script, held) and binds(function_of(loop), held.id))
        or not all(flow.means_the_same(h, loop) for _, h, _ in reads)
        or not all(_counts(script, loop, index) for *_, at in reads for index in at)
    ):
        raise Refusal
    mine = {h for _, h, _ in reads}
    for use in (n for n in nodes_in(loop, ast.Name) if n.id == held.id and n not in mine):
        if not is_read(use) or not is_attribute(parent_of(use), *SIZES):
            raise Refusal
    best = source_of(loop).fresh("largest", f"largest_{held.id}")
    plain = dimension_count(script, held) == depth + 1
    rows = held.id if plain else f"{held.id}.reshape(*{held.id}.shape[:{depth}], -1)"
    edits = (
        Rewrite(read, best + "".join(f"[{index.id}]" for index in at)) for read, _, at in reads
    )
    return (Before(loop, f"{best} = {rows}.argmax(-1).tolist()"), *edits), Effect.EXACT


def _read(node: ast.AST) -> tuple[ast.expr, ast.Name, list[ast.Name]] | None:
    """``x[t, b].argmax().item()`` and ``int(x[t, b].argmax())``, what it is read of, and where."""
    match node:
        case (
            ast.Call(func=ast.Attribute(value=inner, attr="item"), args=[], keywords=[])
            | ast.Call(func=ast.Name(id="int"), args=[inner], keywords=[])
        ):
            pass
        case _:
            return None
    match inner:
        case ast.Call(
            func=ast.Attribute(
                value=ast.Subscript(value=ast.Name() as held, slice=at), attr="argmax"
            ),
            args=[],
            keywords=[],
        ):
            places = items_of(at)
            found = of_kind(places, ast.Name)
            return (node, held, found) if len(found) == len(places) else None
    return None


def _counts(script: Script, loop: ast.For, index: ast.Name) -> bool:
    """Whether it is what ``range`` gives to a loop that is this one, or stands in it."""

    def is_counted(place: ast.AST) -> bool:
        match parent_of(place):
            case ast.For(target=target, iter=over) as inner:
                return (
                    target is place
                    and within(inner, loop)
                    and script.is_call(over, "builtins.range")
                )
        return False

    made = definitions_at(script, index)
    return bool(made) and all(is_name(d.node, index.id) and is_counted(d.node) for d in made)


def _only_looks(script: Script, loop: ast.For) -> bool:
    """Whether nothing in the loop may write to a tensor."""
    for node in live_nodes(loop):
        match node:
            case ast.Subscript(value=held) if not is_read(node) and script.may_be(held, Tensor):
                return False
            case ast.AugAssign(target=target) if script.may_be(target, Tensor):
                return False
            case ast.Call() if not _changes_nothing(script, node):
                return False
    return True


def _changes_nothing(script: Script, call: ast.Call) -> bool:
    def is_plain(callee: object) -> bool:
        match callee:
            case Ref(name=name):
                return name.startswith(CHANGES_NOTHING)
            case Method(this=Tensor(), name=name):
                return not name.endswith("_")
            case Method(this=Seq() | Dict() | Const() | Num()):
                return True
            case Func():
                given = [script.values(a) for a in arguments_of(call)]
                return not any(tensors_in(v) or is_unknown_in(v) for v in given)
        return False

    return surely(map(is_plain, script.called(call)))
