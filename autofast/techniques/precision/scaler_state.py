"""The state of a GradScaler, saved and loaded beside that of the optimizer; and checkpoints of a
script with a scaler that hold the optimizer's state, but not the scaler's.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from autofast.edit.edits import After, DictItem, Edit
from autofast.flow.callgraph import Callee, CallGraph
from autofast.flow.defuse import Definition
from autofast.flow.positions import statements_beside
from autofast.flow.program import definitions_at, definitions_of
from autofast.flow.scopes import parameters
from autofast.model.calls import call_of, is_method, receiver_of, stands_alone
from autofast.model.events import Site
from autofast.model.kinds import is_scaler
from autofast.model.script import Script
from autofast.model.several import surely
from autofast.model.source import at, function_of, nodes_in, parent_of, statement_of
from autofast.model.syntax import VARIABLES, is_read, is_text
from autofast.model.values import Inst, Ref, Seq, Thing
from autofast.rule import Finding, Refusal
from autofast.write.reach import Reach

KEY = "scaler"
ENDINGS = ("_state_dict", "_state", "_dict")  # of the keys beside it
DEEP = 6  # functions and variables between a dict and torch.save


Name = Callable[[ast.AST], str]


class Place(NamedTuple):
    """Where the scaler's state is saved or loaded, and the edit that does it."""

    node: ast.expr
    edit: Edit


def checkpoints(script: Script, optimizers: Iterable[Thing]) -> list[ast.Dict | ast.Call]:
    """The dicts with the state of optimizers that are saved and nothing else."""
    things = {id(t) for t in optimizers}
    found = (_display_of(script, site, things) for site in script.methods("state_dict"))
    return list({d: d for d in found if d is not None}.values())


def places(script: Script, optimizers: Iterable[Thing], name: Name) -> list[Place]:
    """Where the state of the optimizers is saved and loaded, and that of the scaler can be; none
    where it is not saved.

    None, too, where the script loads none of these: what it saves of the optimizers is not what it
    goes on from.

    ``name`` gives what to write for the scaler at a node, or raises. Raises :class:`Refusal` where
    a checkpoint may not have another key, too.
    """
    optimizers = list(optimizers)
    displays = checkpoints(script, optimizers)
    saved, key = [], _key(displays)
    for display in displays:
        if key in _keys(display):
            raise Refusal(f'saves something as "{key}" already', display)
        edit = DictItem(display, key, f"{name(display)}.state_dict()")
        saved.append(Place(display, edit))
    loaded = list(_loads(script, optimizers, name, key)) if saved else []
    return [*saved, *loaded] if loaded else []


def _key(displays: Iterable[ast.Dict | ast.Call]) -> str:
    """``scaler``, or ``scaler_state_dict`` where all states that are saved have such keys: one key
    for all checkpoints.
    """
    states = [k for d in displays for k, v in _keys(d).items() if is_method(v, "state_dict")]
    return KEY + next((e for e in ENDINGS if states and all(k.endswith(e) for k in states)), "")


def _loads(script: Script, optimizers: Iterable[Thing], name: Name, key: str) -> Iterable[Place]:
    things = {id(t) for t in optimizers}
    found: dict[int, Place] = {}  # by the block that they stand in
    for site in script.methods("load_state_dict"):
        checkpoint, call = _loaded_from(site, things), site.node
        here = id(statements_beside(statement_of(call)))
        if checkpoint is None or not stands_alone(call) or here in found:
            continue
        if _is_closed(script, checkpoint):
            raise Refusal(f"something may notice another key in the checkpoint of {at(call)}")
        assert isinstance(call, ast.Call)
        text, scaler = ast.unparse(checkpoint), name(call)
        code = f'if {text}.get("{key}"):\n    {scaler}.load_state_dict({text}["{key}"])'
        found[here] = Place(call, After(statement_of(call), code))
    return found.values()


def _is_closed(script: Script, checkpoint: ast.expr) -> bool:
    """Whether something may notice a new key: ``Snapshot(**checkpoint)``, ``for name in
    checkpoint:``, ``check(checkpoint)``; or it is no dict.
    """
    if script.may_be(checkpoint, Seq, Inst):
        return True
    return not all(_asks_for_a_key(use) for use in _uses(script, checkpoint))


def _uses(script: Script, place: ast.expr) -> list[ast.expr]:
    """The reads of what a variable or attribute holds at ``place``."""
    if isinstance(place, ast.Name):
        made = definitions_at(script, place)
        return [use for d in made for use in _reads(script, place, d)]
    assert isinstance(place, ast.Attribute)
    return [n for n in script.each(ast.Attribute) if n.attr == place.attr and is_read(n)]


def _asks_for_a_key(use: ast.expr) -> bool:
    """``checkpoint["model"]``, ``checkpoint.get("model")``, ``"model" in checkpoint``."""
    match parent_of(use):
        case ast.Subscript(value=value, slice=ast.Constant(value=str())):
            return value is use
        case ast.Attribute(attr="get") as method:
            return call_of(method) is not None
        case ast.Compare(left=ast.Constant(), ops=[ast.In() | ast.NotIn()], comparators=[held]):
            return held is use
    return False


def _loaded_from(site: Site, things: set[int]) -> ast.expr | None:
    """``checkpoint`` in ``optimizer.load_state_dict(checkpoint["optimizer"])``."""
    call = site.call
    if call is None or not call.args or not any(id(o.this) in things for o in site):
        return None
    match call.args[0]:
        case ast.Subscript(
            value=ast.Name() | ast.Attribute() as held, slice=ast.Constant(value=str())
        ):
            return held
    return None


def _display_of(script: Script, site: Site, things: set[int]) -> ast.Dict | ast.Call | None:
    """The dict in ``torch.save({"model": ..., "optimizer": optimizer.state_dict()}, path)``."""
    if not any(id(o.this) in things for o in site):
        return None
    parent = parent_of(site.node)
    if isinstance(parent, ast.keyword):
        parent = parent_of(parent)
        if not script.is_call(parent, "builtins.dict"):
            return None
    if not isinstance(parent, (ast.Dict, ast.Call)) or parent is site.node:
        return None
    if isinstance(parent, ast.Call) and not parent.keywords:
        return None  # the state is handed on as it is
    return parent if _has_names(parent) and _is_saved(script, parent, DEEP) else None


def _has_names(display: ast.Dict | ast.Call) -> bool:
    return isinstance(display, ast.Call) or all(is_text(k) for k in display.keys if k is not None)


def _is_saved(script: Script, expr: ast.expr, deep: int) -> bool:
    """Whether a dict goes to ``torch.save``, by variables, functions that are given it and
    functions that return it, and nowhere else.
    """
    if deep == 0:
        return False
    parent = parent_of(expr)
    if isinstance(parent, ast.keyword):
        parent = parent_of(parent)
    match parent:
        case ast.Call(func=func) if func is not expr:
            if script.values(func) == {Ref("torch.save")}:
                return True
            calls = script.analysis(CallGraph)
            given = [
                (
                    callee,
                    [
                        p.arg
                        for p in parameters(callee.function)
                        if calls.argument(parent, callee, p.arg) is expr
                    ],
                )
                for callee in calls.callees(parent)
            ]
            return surely(
                surely(_saves_parameter(script, callee, name, deep) for name in names)
                for callee, names in given
            )
        case ast.Assign(targets=[ast.Name() as name]):
            return _all_saved(script, _reads(script, name, Definition(name.id, name)), deep)
        case ast.Return():
            sites = script.analysis(CallGraph).sites(function_of(expr))  # type: ignore[arg-type]
            return bool(sites) and all(_is_saved(script, s, deep - 1) for s in sites)
    return False


def _saves_parameter(script: Script, callee: Callee, name: str, deep: int) -> bool:
    given = next(p for p in parameters(callee.function) if p.arg == name)
    return _all_saved(script, _reads(script, given, Definition(name, given)), deep)


def _reads(script: Script, place: ast.AST, definition: Definition) -> list[ast.expr]:
    uses = definitions_of(script, place).uses(definition)
    return [use for use in uses if is_read(use)]


def _all_saved(script: Script, uses: Sequence[ast.expr], deep: int) -> bool:
    """Whether one use saves it, and the others ask for keys."""
    saved = [_is_saved(script, use, deep - 1) for use in uses]
    return any(saved) and all(s or _asks_for_a_key(use) for s, use in zip(saved, uses, strict=True))


def _keys(display: ast.Dict | ast.Call) -> dict[str, ast.expr]:
    """What a checkpoint holds by its names."""
    if isinstance(display, ast.Call):
        return {k.arg: k.value for k in display.keywords if k.arg is not None}
    items = zip(display.keys, display.values, strict=True)
    return {k.value: v for k, v in items if is_text(k)}


# ----------------------------------------------------------------------- checkpoints that forget it
def forgotten(script: Script, message: str) -> Iterator[Finding]:
    """The places where the state of the script's own scaler is to be saved and loaded; nothing
    where it is.
    """
    updates = [u for s in script.steps for u in s.updates if u.scaled]
    optimizers = list({id(t): t for u in updates for t in u.things}.values())
    if not updates or any(
        is_scaler(o.this) for site in script.methods("state_dict", "load_state_dict") for o in site
    ):
        return
    saved = checkpoints(script, optimizers)
    scalers = {id(t): t for step in script.steps for t in step.scalers}
    if saved and len(scalers) > 1:
        yield Finding(saved[0], message, refusal="there are several GradScalers, each with a state")
        return
    try:
        expr, things = receiver_of(updates[0].node), list(scalers.values())
        assert expr is not None
        found = places(script, optimizers, partial(_seen_from, script, expr, things))
    except Refusal as why:
        yield Finding(saved[0], message, refusal=str(why))
        return
    edits = tuple(place.edit for place in found)
    for place in found:
        yield Finding(place.node, message, edits=edits)


def _seen_from(script: Script, scaler: ast.expr, things: list[Thing], place: ast.AST) -> str:
    """What the script's one scaler is called at a place; raises :class:`Refusal` where it has no
    name there, or may not be made yet.
    """
    function, here, found = function_of(place), statement_of(place), ""
    with suppress(Refusal):
        reach = Reach(script, "GradScaler", scaler, things, script.stacks)
        name = reach.to(function)
        reach.check_made(place, [o.stack for site in script.log.within(here) for o in site])
        found = "" if reach.edits else name
    cls = parent_of(function)
    mentions = nodes_in(cls if isinstance(cls, ast.ClassDef) else function, *VARIABLES)
    reads = [script.values(n) for n in mentions if is_read(n) and ast.unparse(n) == found]
    if not reads or not all(values and all(map(is_scaler, values)) for values in reads):
        raise Refusal(
            f"the GradScaler is not at hand on {at(place)}, or not made on every way there"
        )
    return found
