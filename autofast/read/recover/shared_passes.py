"""Evaluations that share their code with training: ``run_epoch(loader, train=False)``, a helper
that calls the model for both.

The pass itself stands in code that a backward reaches, so the *way* to it decides: from the first
frame on in which no backward runs, nothing is trained, provided that nothing with a gradient leaves
what runs there: by what the reader has seen put anywhere (``flow/holders.py`` follows one value).
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator

from autofast.flow.callgraph import code_of
from autofast.flow.memory import Memory
from autofast.flow.program import Flow
from autofast.flow.reflection import namespace_calls
from autofast.flow.scopes import is_local
from autofast.flow.scratch import hands_on
from autofast.model.calls import arguments_of, is_augmented, is_method, receiver_of
from autofast.model.contents import members
from autofast.model.events import CallFrame, LoopFrame, Occurrence, Site, Stack
from autofast.model.kinds import is_module
from autofast.model.script import Script
from autofast.model.several import any_of, of_kind, wordset
from autofast.model.source import (
    Nodes,
    Said,
    function_of,
    is_at_top,
    nodes_in,
    statement_of,
)
from autofast.model.syntax import LOOPS, is_stored
from autofast.model.tensors import tensors_in
from autofast.model.values import NOTHING, Ext, Func, Inst, Thing, Values
from autofast.read.recover.backward_needs import Wanted, is_wanted, only_computes
from autofast.read.recover.escapes import ends_with_call
from autofast.read.recover.leaks import root_of
from autofast.read.recover.region import Region
from autofast.read.recover.reset_attributes import is_set_before

WHOLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr)
CONTAINERS = wordset(
    "builtins.list builtins.dict builtins.set collections.deque collections.OrderedDict "
    "collections.defaultdict collections.UserList collections.UserDict"
)
KEEPS = tuple("set_attribute set_elsewhere append set_item augment tensor_write".split())


def apart_passes(
    script: Script, passes: Nodes, backwards: list[Stack]
) -> Iterator[tuple[Site, Occurrence, ast.AST, str]]:
    """The passes through trained code that no backward follows: each with the loop, function or
    statement that holds it alone, and its kind.
    """
    trained = {way[: i + 1] for way in map(_way, backwards) for i in range(len(way))}
    found: list[tuple[Site, Occurrence, int]] = []
    shared: Nodes = set()
    for site in script.log.of("forward"):
        for occurrence in site if site.node in passes else ():
            at = _parting(occurrence.stack, trained)
            if occurrence.data["outer"] and occurrence.grad == "on" and at >= 0:
                found.append((site, occurrence, at))
            before = occurrence.stack if at < 0 else occurrence.stack[:at]
            shared |= {f.code for f in before}
    shared |= {f.code for stack in backwards for f in stack}
    for site, occurrence, at in found:
        rest = occurrence.stack[at:]
        if (place := _place(rest, shared) or _unwanted(script, rest)) is not None:
            yield site, occurrence, *place


def _way(stack: Stack) -> tuple[ast.AST, ...]:
    """The calls, loops and blocks that lead to a place, whichever turn of a loop it is."""
    return tuple(frame.node for frame in stack)


def _parting(stack: Stack, trained: set[tuple[ast.AST, ...]]) -> int:
    """The first frame on this way that no backward is in; -1 where one is in all."""
    way = _way(stack)
    return next((i for i in range(len(way)) if way[: i + 1] not in trained), -1)


def _place(rest: Stack, shared: Nodes) -> Said | None:
    """The first loop that is on no trained way; else the statement of the call that leads into
    shared code, or of that of a function which returns what this gives.
    """
    calls: list[ast.stmt] = []
    for frame in rest:
        if isinstance(frame, LoopFrame) and isinstance(frame.node, LOOPS):
            return (frame.node, "loop") if frame.node not in shared else None
        if isinstance(frame, CallFrame) and isinstance(frame.node, ast.Call):
            calls.append(statement_of(frame.node))
            if frame.func.node in shared:
                while calls and isinstance(calls[-1], ast.Return):
                    calls.pop()
                return (calls[-1], "statement") if calls and isinstance(calls[-1], WHOLE) else None
        elif isinstance(frame, CallFrame):
            if frame.func.node in shared:
                return None
            calls = []
    return None


def _unwanted(script: Script, rest: Stack) -> Said | None:
    """The statement of the first call whose result no backward wants, as that of an action which an
    environment gets.
    """
    calls = [f.node for f in rest if isinstance(f, CallFrame) and isinstance(f.node, ast.Call)]
    whole = [c for c in calls if isinstance(statement_of(c), WHOLE)]
    told = (c for c in whole if not namespace_calls(function_of(c)))
    plain = (c for c in told if only_computes(script, c))
    call = next((c for c in plain if not script.of_node(is_wanted, c)), None)
    return (statement_of(call), "statement") if call is not None else None


def keeps_gradients(script: Script, region: Region, backwards: list[Stack]) -> bool:
    """Whether something that carries a gradient may be used after the region: by a variable, a
    container, an attribute or a result.
    """
    names = [
        part
        for statement in region.statements
        for part in nodes_in(statement, ast.Name)
        if is_stored(part) and function_of(part) is region.scope
    ]
    flow, wanted = script.analysis(Flow), Wanted(script)
    for name in names:
        if not is_local(name) and not isinstance(region.scope, ast.Module):
            return True
        uses = flow.definitions(name).uses_of(name)
        later = [u for u in uses if not region.holds(u) and _carries(script, u)]
        if any(wanted.follow(use, ()) for use in later):
            return True
    if keeps_inside(script, region, backwards, {n.id for n in names}):
        return True
    returns = [p for s in region.statements for p in nodes_in(s, ast.Return)]
    return any(
        part.value is not None and _carries(script, part.value)
        for part in returns
        if function_of(part) is region.scope
    )


def keeps_inside(
    script: Script, region: Region, backwards: list[Stack], followed: Collection[str] = ()
) -> bool:
    """Whether code that runs in the region puts gradients elsewhere than into ``followed``."""
    for site, occurrence in region.sites(script, *KEEPS, "inplace"):
        root = root_of(site.node) if region.holds(site.node) else None
        seen = root is not None and root.id in followed
        seen = seen or ends_with_call(site.node, region) or _is_new(script, site)
        if not seen and puts_gradients(occurrence):
            if not is_only_looked_at(script, site, backwards, region):
                return True
    return binds_elsewhere(script, region) or _into_own_containers(script, region)


def _is_new(script: Script, site: Site) -> bool:
    """``torch.zeros(n).index_add_(0, at, x)``: it goes into what the result alone holds."""
    made = receiver_of(site.node) if site.kind == "inplace" and is_method(site.node) else None
    return isinstance(made, ast.Call) and script.analysis(Memory).is_fresh(made)


def binds_elsewhere(script: Script, region: Region) -> bool:
    """Whether functions that run in the region give values to variables of the code around them."""
    code = (n for part in _code(script, region) for n in ast.walk(part))
    return any_of(code, ast.Global, ast.Nonlocal)


def puts_gradients(occurrence: Occurrence) -> bool:
    """Whether something with a gradient is put somewhere: stored, or written in place."""
    given = occurrence.args.every
    return hold_gradients(occurrence.result.union(*(g.values for g in given)))


def hold_gradients(found: Values, deeper: int = 4) -> bool:
    """Whether things carry gradients, or hold something that does: a distribution, a record, what
    a lambda has seen.
    """
    if any(t.grad for t in tensors_in(found)):
        return True
    return bool(deeper) and any(
        hold_gradients(frozenset(_held(t)), deeper - 1) for t in found if not is_module(t)
    )


def _held(thing: Thing) -> Iterable[Thing]:
    match thing:
        case Func():  # and the variables around it
            return () if thing.env.kind == "module" else NOTHING.union(*thing.env.vars.values())
        case Ext() if thing.name.startswith("torch.optim."):
            return ()
    return members(thing)


def _into_own_containers(script: Script, region: Region) -> bool:
    """Whether what carries gradients is given to an object of a class that extends a list, a dict
    or a set: what its methods keep is not followed.
    """
    for call in (n for part in _code(script, region) for n in nodes_in(part, ast.Call)):
        receiver = receiver_of(call) if is_method(call) else None
        owners = of_kind(script.values(receiver), Inst) if receiver is not None else []
        if any(t.cls.external & CONTAINERS for t in owners):
            if hold_gradients(NOTHING.union(*(script.values(a) for a in arguments_of(call)))):
                return True
    return False


def _code(script: Script, region: Region) -> list[ast.AST]:
    """The statements of a region, and the functions that they call."""
    calls = (n for s in region.statements for n in nodes_in(s, ast.Call))
    called = [c.function for n in calls for t in script.called(n) for c in code_of(t)]
    called += [frame.func.node for frame in region.calls(script)]
    return [*region.statements, *called]


def is_only_looked_at(script: Script, site: Site, backwards: list[Stack], region: Region) -> bool:
    """``self.attention = weights`` in a forward, if no backward may reach it from where it is read,
    or code that trains, or that a training loop runs, reads it only where the same call has set it,
    or behind a pass that has.
    """
    target = site.node
    if site.kind != "set_attribute" or not isinstance(target, ast.Attribute):
        return False
    if any(node.value == target.attr for node in script.each(ast.Constant)):
        return False
    found = [n for n in script.each(ast.Attribute) if n.attr == target.attr]
    stores = [n for n in found if isinstance(n.ctx, ast.Store)]
    if any(is_augmented(n) for n in stores):
        return False
    reads = [n for n in found if n not in stores and not any(hands_on(s, n) for s in stores)]
    follows = Wanted(script).follow
    reads = [n for n in reads if follows(n, ()) and not is_set_before(script, n, region)]
    readers = {function_of(node) for node in reads}
    trained = {frame.code for stack in backwards for frame in stack}
    loops = {f.node for stack in backwards for f in stack if isinstance(f, LoopFrame)}
    called = [stack for stack in script.stacks if any(f.code in readers for f in stack)]
    return not (
        readers & trained
        or any(is_at_top(node) for node in reads)
        or any(f.node in loops for stack in called for f in stack)
    )


def _carries(script: Script, expr: ast.expr) -> bool:
    """Whether it may be, or hold, a tensor that carries a gradient."""
    return any(t.grad for t in tensors_in(script.values(expr)))
