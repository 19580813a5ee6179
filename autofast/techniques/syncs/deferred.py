"""Statements that only put a number away, into a sum, a list, an average, are put off: the tensors are kept, and read when needed.

``total += loss.item() * n`` becomes ``unread_total.append((loss.detach(), n))``, and below the loop (or in the ``if`` that prints)

    for value, count in unread_total:
        total += value.item() * count

The very same Python arithmetic runs in the same order on the very numbers that ``item()`` would have given, so every result is the same to
the last bit, on every device: sums in float64 on the device would not be possible on MPS, and float32 would round in another way.
"""

from __future__ import annotations

import ast
import re
from copy import deepcopy

from autofast.edit.edits import After, Before, Edit, Remove, Replace
from autofast.edit.order import Rank
from autofast.flow.cfg import Loop
from autofast.model.kinds import grad_mode_of
from autofast.model.script import Script
from autofast.model.source import ancestors, function_of, parent_of, source_of, within
from autofast.rule import Refusal
from autofast.techniques.syncs.freshness import kept
from autofast.techniques.syncs.liveness import Needs
from autofast.techniques.syncs.reads import gives_the_same
from autofast.techniques.syncs.sinks import Sink
from autofast.techniques.syncs.steps import first_in

OUTERMOST = Rank.GRAD_MODE  # lists are made, and read, outside the block of an evaluation


def put_off(script: Script, sinks: list[Sink], loop: Loop, needs: Needs) -> list[Edit]:
    """The edits that put off a sink, together with those that take over what it computes."""
    source = sinks[0].source
    payload: list[ast.expr] = []
    for sink in sinks:
        new = [p for p in sink.payload if not any(ast.dump(p) == ast.dump(q) for q in payload)]
        if not all(p in new or gives_the_same(script, p) for p in sink.payload):
            raise Refusal("something that each of several statements computes anew is kept")
        payload += new
    cores = {r.key for sink in sinks for r in sink.reads}
    tensors = [p for p in payload if ast.dump(p) in cores]
    payload = [*tensors, *(p for p in payload if ast.dump(p) not in cores)]
    names = _fresh_names(sinks, payload, len(tensors))
    unread = source.fresh(
        f"unread_{_word(next((s for s in sinks if s.kind != 'passed'), sinks[0]).holder)}"
    )
    items = [
        _kept(script, sinks, p).replace("{core}", f"{{p{k}}}") if k < len(tensors) else f"{{p{k}}}"
        for k, p in enumerate(payload)
    ]
    one = len(items) == 1
    append = f"{unread}.append({items[0] if one else '(' + ', '.join(items) + ')'})"
    target = names[0] if one else ", ".join(names)
    slots = {ast.dump(p): n for p, n in zip(payload, names, strict=True)}
    replay = f"for {target} in {unread}:\n" + "\n".join(
        "    " + _escaped(_again(sink, slots)) for sink in sinks
    )
    edits: list[Edit] = [
        Replace(sinks[0].statement, append, holes={f"p{k}": p for k, p in enumerate(payload)})
    ]
    edits += [Remove(sink.statement) for sink in sinks[1:]]
    around = _anchor(script, loop)
    edits.append(Before(around, f"{unread} = []", rank=OUTERMOST))
    for gate, nodes in needs.gates.values():
        edits.append(Before(first_in(gate, nodes), f"{replay}\n{unread}.clear()"))
    edits += [e for move in needs.moves.values() for e in move.edits]
    if needs.after:
        edits.append(After(around, replay, rank=OUTERMOST))
    return edits


def _kept(script: Script, sinks: list[Sink], core: ast.expr) -> str:
    ready = any(r.core is core and r.ready for s in sinks for r in s.reads)
    return "{core}" if ready else kept(script, core)


def _anchor(script: Script, loop: Loop) -> ast.stmt:
    """The loop, or the block of a gradient mode that holds nothing else."""
    outer = parent_of(loop)
    if isinstance(outer, ast.With) and len(outer.body) == 1 and outer.body[0] is loop:
        if all(
            grad_mode_of(script.values(i.context_expr)) is not None and i.optional_vars is None
            for i in outer.items
        ):
            return outer
    return loop


def _fresh_names(sinks: list[Sink], payload: list[ast.expr], tensors: int) -> list[str]:
    """What the kept things are called where they are read: ``value``, ``count``, ``index``."""
    indices = {
        ast.dump(s.statement.targets[0].slice)
        for s in sinks
        if isinstance(s.statement, ast.Assign) and isinstance(s.statement.targets[0], ast.Subscript)
    }
    names: list[str] = []
    for k, part in enumerate(payload):
        stems = (
            ("value", "number", "reading")
            if k < tensors
            else ("index", "place")
            if ast.dump(part) in indices
            else ("count", "weight")
        )
        taken = [n for n in names if n.split("_")[0] in stems]
        name = (
            sinks[0].source.fresh(*stems)
            if not taken
            else sinks[0].source.fresh(f"{taken[0]}_{len(taken) + 1}")
        )
        names.append(name)
    return names


def _word(holder: ast.expr) -> str:
    """A word for a holder that no other holder in its function gets: its variable or attribute, else all its names."""
    holder = _bare(holder)
    word = (
        holder.id
        if isinstance(holder, ast.Name)
        else holder.attr
        if isinstance(holder, ast.Attribute)
        else ""
    )
    long = re.sub(r"\W+", "_", ast.unparse(holder)).strip("_")
    shared = any(
        word in (getattr(n, "id", ""), getattr(n, "attr", ""))
        and ast.unparse(n) != ast.unparse(holder)
        for n in ast.walk(function_of(holder))
    )
    return long if shared or not word else word


def _bare(holder: ast.expr) -> ast.expr:
    while isinstance(holder, ast.Subscript):
        holder = holder.value
    return holder


def _again(sink: Sink, slots: dict[str, str]) -> str:
    """The statement as it runs later: each read of a kept tensor, each number that was kept with it."""
    swaps: dict[int, str] = {id(r.node): r.of(slots[r.key]) for r in sink.reads}
    numbers = {
        ast.dump(p): slots[ast.dump(p)]
        for p in sink.payload
        if ast.dump(p) not in {r.key for r in sink.reads}
    }
    for node in ast.walk(sink.statement):
        if (
            isinstance(node, ast.expr)
            and ast.dump(node) in numbers
            and not any(within(node, r.node) for r in sink.reads)
        ):
            swaps[id(node)] = numbers[ast.dump(node)]
    return swapped(sink.statement, swaps)


def swapped(statement: ast.stmt, swaps: dict[int, str]) -> str:
    """The text of a statement with other code in place of some expressions."""
    source = source_of(statement)
    if statement.lineno != statement.end_lineno:
        return ast.unparse(_Swap(swaps).visit(_copied(statement, swaps)))
    line = source.lines[statement.lineno - 1].encode()
    spots = [
        n
        for n in ast.walk(statement)
        if id(n) in swaps and not any(id(a) in swaps for a in ancestors(n))
    ]
    start, end = statement.col_offset, statement.end_col_offset or len(line)
    out, here = b"", start
    for node in sorted(spots, key=lambda n: getattr(n, "col_offset", 0)):
        out += line[here : node.col_offset] + swaps[id(node)].encode()  # type: ignore[attr-defined]
        here = node.end_col_offset  # type: ignore[attr-defined]
    return (out + line[here:end]).decode()


class _Swap(ast.NodeTransformer):
    def __init__(self, swaps: dict[int, str]):
        self.swaps = swaps

    def visit(self, node: ast.AST) -> ast.AST:
        code = getattr(node, "_af_swap", None)
        return ast.parse(code, mode="eval").body if code is not None else self.generic_visit(node)


def _copied(statement: ast.stmt, swaps: dict[int, str]) -> ast.stmt:
    """A copy without links to the file, with a note where something is swapped."""
    for node in ast.walk(statement):
        if id(node) in swaps:
            node._af_swap = swaps[id(node)]  # type: ignore[attr-defined]
    memo: dict[int, object] = {id(source_of(statement)): None, id(parent_of(statement)): None}
    copy = deepcopy(statement, memo)
    for node in ast.walk(statement):
        if hasattr(node, "_af_swap"):
            del node._af_swap
    return copy


def _escaped(code: str) -> str:
    return code.replace("{", "{{").replace("}", "}}")
