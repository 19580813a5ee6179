"""Where a statement that sets up the whole program belongs: in the process that trains, before the
first model is built, where a reader looks for it.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from itertools import takewhile

from autofast.edit.edits import After, Before
from autofast.facts.sent_by_value import against_backends
from autofast.facts.set_up import BACKENDS, DEVICE, HARDWARE, SEED, SetUp, speaks_of
from autofast.flow.positions import index_in_block, is_always
from autofast.flow.program import definitions_of
from autofast.flow.scopes import binds
from autofast.model.events import CallFrame, GuardFrame
from autofast.model.roles import Trainer
from autofast.model.script import Script
from autofast.model.several import any_of, one, surely
from autofast.model.source import (
    ancestors,
    block_of,
    function_of,
    is_at_top,
    parent_of,
    source_of,
    statement_of,
    walk,
    within,
)
from autofast.model.syntax import DEFINITIONS, IMPORTS, is_docstring
from autofast.model.values import Func, const, of_kind
from autofast.write.first_model import first_model, in_class, outermost, trains_in_a_child
from autofast.write.spelling import torch_name


@dataclass(frozen=True)
class Spot:
    """A place for a statement: right above or ``below`` another one.

    Attributes:
        stmt: the other one.
        node: what it was looked for at: what sets up something, or the same as ``leads``.
        leads: the statement that leads to the first model, which it stands before.
    """

    stmt: ast.stmt
    below: bool
    node: ast.stmt
    leads: ast.stmt

    def written(self, code: str) -> After | Before:
        return After(self.stmt, code) if self.below else Before(self.stmt, code)


def setup_place(script: Script) -> Spot | None:
    """Where backend flags are to be set; None where no such place is seen.

    Where another process trains (``mp.spawn``), flags set in the parent would not reach it.
    """
    place = first_model(script)
    if place is None:
        return None
    if not trains_in_a_child(script):
        return _among_set_up(script, place)
    way = [*takewhile(lambda s: not _makes_models(script, s), _from(place))]
    return _below_set_up(script, way, place) or Spot(place, False, place, place)


def _among_set_up(script: Script, place: ast.stmt) -> Spot:
    """A place in what runs before ``place`` whatever happens. Where nothing is set up there it is
    ``place``, but takes no line from those that stand with it.
    """
    way = _way_to(script, place)
    if (spot := _below_set_up(script, way, place)) is not None:
        return spot
    first = _start_of_lines(script, place, way[_least(script, way) :])
    return Spot(first, False, place, place)


def _below_set_up(script: Script, way: list[ast.stmt], place: ast.stmt) -> Spot | None:
    """Where a reader looks for it, among statements that run one after the other: below other
    settings of backends, else below the seeds, else below the choice of the device.

    Not above what sets something of a backend, which may be the opposite, or what runs a network.
    """
    set_up, least = script.analysis(SetUp), _least(script, way)
    for kind in (BACKENDS, SEED, DEVICE, HARDWARE):
        for n in range(len(way) - 1, -1, -1):
            if kind in set_up.of(way[n]) and (n >= least or (kind == BACKENDS and n == least - 1)):
                last = _end_of_set_up(set_up, way[n], kind)
                if _can_stand_below(script, last, way):
                    return Spot(last, True, way[n], place)
    return None


def _least(script: Script, way: list[ast.stmt]) -> int:
    """How many of these statements it has to stand below."""
    set_up = script.analysis(SetUp)
    each = ((n, {*walk(s)}) for n, s in enumerate(way, 1))
    fixed = (set_up.networks, set_up.backends)
    return max((n for n, nodes in each if any(p.happen_in(nodes) for p in fixed)), default=0)


def _from(place: ast.stmt) -> list[ast.stmt]:
    """The statements of a block from ``place`` on."""
    here = block_of(place)
    return [s for s in here[index_in_block(here, place) :] if not isinstance(s, DEFINITIONS)]


def _makes_models(script: Script, stmt: ast.stmt) -> bool:
    """Whether a statement makes a model, moves or runs one, or loads data."""
    made = {n for m in script.models for n in (m.node, *(f.node for f in m.thing.made))}
    nodes = {*walk(stmt)}
    return script.analysis(SetUp).more.happen_in(nodes) or not nodes.isdisjoint(made)


def _way_to(script: Script, place: ast.stmt) -> list[ast.stmt]:
    """The statements that run before ``place`` whatever happens, in order: those above it in its
    block, and above the only call of its function in the entry file, which stands below no
    condition.
    """
    here = block_of(place)
    above = [s for s in here[: index_in_block(here, place)] if not isinstance(s, DEFINITIONS)]
    outer = None if in_class(place) else parent_of(place)
    around: ast.stmt | None = outer if isinstance(outer, ast.If) else None  # the main guard
    if isinstance(outer, ast.FunctionDef) and not against_backends(script, place):
        around = _only_call(script, outer)
    return above if around is None else [*_way_to(script, around), *above]


def _only_call(script: Script, function: ast.FunctionDef) -> ast.stmt | None:
    """The statement of the entry file that calls a function, whichever way the script comes there;
    None where that is under a condition, or by what else may call it.
    """
    ways = [w for w in script.stacks if any(f.code is function for f in of_kind(w, CallFrame))]
    frames = {f.node: f for w in ways for f in of_kind(w, CallFrame) if f.code is function}
    call = one(frames)
    if not isinstance(call, ast.Call) or source_of(call) is not script.entry or in_class(call):
        return None
    stmt, found = statement_of(call), script.called(call)
    is_plain = surely(isinstance(t, Func) and t.node is function for t in found)
    if not is_plain or function.decorator_list or not is_always(call, stmt):
        return None
    leading = outermost(stmt, {f.node for w in ways for f in of_kind(w, GuardFrame)})
    between = (n for n in ancestors(call) if within(n, leading) and n is not leading)
    set_up, beside = script.analysis(SetUp), {*walk(leading)} - {call}
    is_fixed = set_up.networks.happen_in(beside) or set_up.backends.happen_in(beside)
    return None if is_fixed or any_of((leading, *between), ast.If, ast.Match) else leading


def _end_of_set_up(set_up: SetUp, stmt: ast.stmt, kind: str) -> ast.stmt:
    """The last of the lines that set up something, from ``stmt`` on, with no other between them but
    what speaks of it; only backends where it is one of these.
    """
    here = block_of(stmt)
    for below in here[index_in_block(here, stmt) + 1 :]:
        found = set_up.of(below)
        goes_on = kind in found if kind == BACKENDS else found or speaks_of(below, stmt)
        if not _adjoins(stmt, below) or not goes_on:
            break
        stmt = below
    return stmt


def _start_of_lines(script: Script, place: ast.stmt, above: list[ast.stmt]) -> ast.stmt:
    """The first of the lines that stand with ``place``, without a blank one or a comment between
    them, as far as they are ``above``.
    """
    first = place
    for stmt in reversed(above):
        plain = not isinstance(stmt, IMPORTS) and not is_docstring(stmt)
        if not plain or not _adjoins(stmt, first) or parent_of(stmt) is not parent_of(place):
            break
        if not _is_torch_bound(script, stmt):
            break
        first = stmt
    return first


def _adjoins(above: ast.stmt, below: ast.stmt) -> bool:
    """No line is between them."""
    return (above.end_lineno or above.lineno) + 1 >= below.lineno


def _can_stand_below(script: Script, stmt: ast.stmt, way: list[ast.stmt]) -> bool:
    """Whether torch has its name there, and no file that is imported later sets something of a
    backend.
    """
    if not is_at_top(stmt):
        return _is_torch_bound(script, stmt)
    below = [s for s in way[way.index(stmt) + 1 :] if isinstance(s, IMPORTS) and is_at_top(s)]
    others = (n for n in script.analysis(SetUp).backends.here if source_of(n) is not script.entry)
    if below and any(map(is_at_top, others)):
        return False
    return _is_torch_bound(script, stmt) and not (below and not torch_name(script.entry))


def _is_torch_bound(script: Script, place: ast.stmt) -> bool:
    """Whether torch has its name there, or gets it by an import at the top."""
    name, scope = torch_name(source_of(place)), function_of(place)
    is_elsewhere = not isinstance(scope, ast.Module) and not binds(scope, name)
    return not name or is_elsewhere or definitions_of(script, place).is_bound_at(place, name)


def forks_processes(script: Script, trainer: Trainer) -> bool:
    """Lightning forks its processes here, as it does in notebooks: CUDA must not be asked before,
    or no process could use it.
    """
    strategy = const(trainer.args.get(-1, "strategy"))
    asked = isinstance(strategy, str) and ("fork" in strategy or "notebook" in strategy)
    alone = (
        const(trainer.args.get(-1, "devices")) in (1, "1")
        or const(trainer.args.get(-1, "accelerator")) == "cpu"
    )
    return asked or (script.entry.is_notebook and not alone)


def trainer_place(script: Script) -> Spot | None:
    """The same for Lightning's Trainer, before the statement that makes it, where that may train on
    a GPU; None where there is none.
    """
    for trainer in script.trainers:
        on_cpu = const(trainer.args.get(-1, "accelerator")) == "cpu"
        if (
            trainer.framework in ("lightning", "lightning-cli")
            and not on_cpu
            and not forks_processes(script, trainer)
        ):
            guards = {
                f.node for thing in trainer.things for f in thing.made if isinstance(f, GuardFrame)
            }
            return _among_set_up(script, outermost(statement_of(trainer.node), guards))
    return None
