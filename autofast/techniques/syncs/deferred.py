"""Statements that only put a number away, into a sum, a list, an average, are put off: the tensors
are kept, and read when needed.

A sum stays on the device where that gives the same number (``running``). Else ``total +=
loss.item() / n`` becomes ``losses.append(loss.detach())``, and below the loop (or in the ``if``
that prints)

    for value in torch.stack(losses).tolist():
        total += value / n

The very same Python arithmetic runs in the same order on the very numbers that ``item()`` would
have given, so every result is the same to the last bit, on every device. Python's ``sum`` is not,
which compensates from 3.12 on: a finding that writes it says so by its effect. Whole numbers are
the same in any order.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from autofast.edit.edits import After, Before, Edit, Remove, Replace, Rewrite
from autofast.edit.order import Rank
from autofast.flow.loops import Loop
from autofast.model.kinds import grad_mode_of
from autofast.model.script import Script
from autofast.model.source import parent_of
from autofast.rule import Refusal
from autofast.techniques.syncs.filled import filled
from autofast.techniques.syncs.freshness import kept
from autofast.techniques.syncs.iterations import comes_first, runs_at_all
from autofast.techniques.syncs.kept_lists import Kept
from autofast.techniques.syncs.list_names import ListNames, name_of_list
from autofast.techniques.syncs.liveness import Needs
from autofast.techniques.syncs.reads import gives_the_same
from autofast.techniques.syncs.running import summed
from autofast.techniques.syncs.sinks import Sink
from autofast.techniques.syncs.steps import first_in

OUTERMOST = Rank.GRAD_MODE  # lists are made, and read, outside the block of an evaluation


@dataclass(frozen=True)
class Off:
    """What puts statements off.

    Attributes:
        repeats: at how many places a list is read one by one, or several statements read one sum.
        rounds: a sum of floats differs in its last bits.
    """

    edits: list[Edit]
    repeats: int = 0
    rounds: bool = False


def put_off(script: Script, sinks: list[Sink], loop: Loop, needs: Needs) -> list[Edit]:
    """The edits that put off a sink, together with those that take over what it computes."""
    return off(script, sinks, loop, needs).edits


def off(script: Script, sinks: list[Sink], loop: Loop, needs: Needs, rounds: bool = False) -> Off:
    """The same; with ``rounds``, a sum of floats may be made by ``sum()``."""
    if not (needs.gates or needs.after or needs.moves):
        raise Refusal("nothing reads what it comes to: the statement can go")
    first, around = sinks[0].statement, _anchor(script, loop)
    has_any = _is_filled(script, first, loop, needs)
    if len(sinks) == 1:
        made = summed(script, sinks[0], loop, needs, around=around, filled=has_any)
        made = made or filled(script, sinks[0], loop, needs, around=around)
        if made:
            places = sum(isinstance(e, (Before, After)) for e in made)
            return Off(made, places if places > 1 else 0)
    payload, tensors = _payload(script, sinks)
    values = _value_names(sinks, payload, tensors)
    main = next((s for s in sinks if s.kind != "passed"), sinks[0])
    lists = Kept(script, sinks, payload[:tensors], payload[tensors:], values, rounds=rounds)
    if len(sinks) == 1 and not needs.gates and not needs.moves:
        if (itself := lists.in_place_of(sinks[0], loop, has_any)) is not None:
            read, numbers = itself
            keep = Rewrite(read, _kept(script, sinks, payload[0]), {"core": payload[0]})
            below = [After(around, numbers, rank=OUTERMOST)] if needs.after else []
            return Off([keep, *below])
    lists.name = name_of_list(script, main, payload[:tensors], loop)
    if has_any and lists.may_be_stacked():
        lists.split = True
        lists.numbers = [
            script.analysis(ListNames).fresh(first, loop, _many(n)) for n in values[tensors:]
        ]
    items = [
        _kept(script, sinks, p).replace("{core}", f"{{p{k}}}") if k < tensors else f"{{p{k}}}"
        for k, p in enumerate(payload)
    ]
    edits: list[Edit] = [
        Replace(first, lists.append(items), holes={f"p{k}": p for k, p in enumerate(payload)})
    ]
    edits += [*lists.imports, *(Remove(sink.statement) for sink in sinks[1:])]
    edits.append(Before(around, lists.empty(), rank=OUTERMOST))
    for gate, nodes in needs.gates.values():
        edits.append(Before(first_in(gate, nodes), f"{lists.replay()}\n{lists.cleared()}"))
    edits += [e for move in needs.moves.values() for e in move.edits]
    if needs.after:
        edits.append(After(around, lists.replay(), rank=OUTERMOST))
    is_loop = lists.replay().startswith("for ") or ".item() for " in lists.replay()
    return Off(edits, is_loop * (len(needs.gates) + bool(needs.after)), lists.is_total)


def _is_filled(script: Script, first: ast.stmt, loop: Loop, needs: Needs) -> bool:
    """Whether something has certainly been kept where it is read."""
    gates = [gate for gate, _ in needs.gates.values()]
    if not gates:
        return runs_at_all(script, first, loop)
    return all(comes_first(first, gate) for gate in gates) and len(gates) == 1 and not needs.after


def may_keep_once(script: Script, sinks: list[Sink]) -> bool:
    """Whether what several of them keep is the same each time that it is computed."""
    seen: set[str] = set()
    for sink in sinks:
        if any(ast.dump(p) in seen and not gives_the_same(script, p) for p in sink.payload):
            return False
        seen.update(ast.dump(p) for p in sink.payload)
    return True


def _payload(script: Script, sinks: list[Sink]) -> tuple[list[ast.expr], int]:
    """What is kept in each turn, the tensors first, and how many these are."""
    if not may_keep_once(script, sinks):
        raise Refusal("something that each of several statements computes anew is kept")
    payload: list[ast.expr] = []
    for sink in sinks:
        payload += [p for p in sink.payload if not any(ast.dump(p) == ast.dump(q) for q in payload)]
    cores = {r.key for sink in sinks for r in sink.reads}
    tensors = [p for p in payload if ast.dump(p) in cores]
    return [*tensors, *(p for p in payload if ast.dump(p) not in cores)], len(tensors)


def _many(name: str) -> str:
    return {"index": "indices"}.get(name, f"{name}s")


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


def _value_names(sinks: list[Sink], payload: list[ast.expr], tensors: int) -> list[str]:
    """What the kept things are called where they are read: ``value``, ``count``, ``index``."""
    indices = {
        ast.dump(s.statement.targets[0].slice)
        for s in sinks
        if isinstance(s.statement, ast.Assign) and isinstance(s.statement.targets[0], ast.Subscript)
    }
    names: list[str] = []
    for k, part in enumerate(payload):
        stems = (
            (f"{part.id}_value", f"{part.id}_number")
            if k < tensors > 1 and isinstance(part, ast.Name)
            else ("value", "number", "reading")
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
