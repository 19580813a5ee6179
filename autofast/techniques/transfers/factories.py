"""Calls that make tensors: where an expression stands for one, whether it is known what of, and how
often they run."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from autofast.edit.edits import Edits
from autofast.facts.switches import batch_hooks
from autofast.flow.callgraph import Callee, CallGraph, code_of
from autofast.flow.frequency import is_first_time
from autofast.flow.loops import loops_around
from autofast.flow.program import Flow, definitions_of
from autofast.flow.scopes import parameters
from autofast.model.calls import (
    arguments_of,
    given_to,
    is_name,
    items_of,
    names_in,
    only_target,
    parts_of,
    unstarred,
)
from autofast.model.events import BranchFrame, CallFrame, LoopFrame, Site, Stack
from autofast.model.kinds import remembers
from autofast.model.names import FACTORIES
from autofast.model.roles import Transfer
from autofast.model.script import Script
from autofast.model.several import of_kind, surely, wordset
from autofast.model.source import (
    block_of,
    function_of,
    nodes_in,
    parent_of,
    source_of,
    statement_of,
)
from autofast.model.syntax import SEQUENCES, is_attribute, is_read
from autofast.model.values import (
    Arg,
    Const,
    Num,
    Seq,
    Tensor,
    Unknown,
    any_of,
    certainly,
    is_on_device,
    library_names,
)
from autofast.rule import Effect
from autofast.techniques.transfers.filled import constructor, made_there
from autofast.techniques.transfers.literal_tensors import listed
from autofast.techniques.transfers.numpy_made import numpy_made

KEEPS = frozenset(  # methods that do the same on every device
    """float double half bfloat16 long int bool view reshape unsqueeze squeeze expand repeat
    flatten""".split()
    + ["permute", "transpose", "t", "contiguous", "clone", "fill_", "zero_"]
)
DRAWN = wordset("normal_ uniform_ bernoulli_ random_ exponential_")  # fill a new tensor
DATA = wordset("tensor normal bernoulli")  # made from data: only where these are numbers


# what reads a tensor among its arguments as a number
SIZED = wordset("arange range eye randperm", "torch.")


@dataclass(frozen=True, eq=False)
class Creation:
    """A tensor that is made on the host, and what makes it on the device.

    ``moves``: the copies that others make of it, of which none is left. ``needs``: the ``key`` of
    another one, which lets this one say where. ``refusal``: why it is not to be made there.
    """

    call: ast.Call
    site: Site
    edits: Edits
    effect: Effect
    moves: tuple[ast.Call, ...] = ()
    key: ast.AST | None = None
    needs: ast.AST | None = None
    refusal: str = ""


def loops_of_steps(script: Script) -> frozenset[ast.AST]:
    """The loops around training steps and evaluations, those over epochs too, and what frameworks
    call for each batch."""
    stacks = script.backward_stacks
    stacks += [o.stack for e in script.evaluations for site in e.forwards for o in site]
    loops = {
        f.node for stack in stacks for f in stack if isinstance(f, LoopFrame) and f.is_statement
    }
    return frozenset(loops | script.analysis(batch_hooks).keys())


def run_once(script: Script) -> frozenset[ast.AST]:
    """What the networks of a script run that has no such loops, as one that shows a prediction:
    nothing there is worth a line, but what is written for a training that shares it holds there.
    """
    passes = (o.this for e in script.evaluations for site in e.forwards for o in site)
    return frozenset(c.function for this in passes if this is not None for c in code_of(this))


def again_and_again(stack: Stack, hot: frozenset[ast.AST]) -> bool:
    """Whether a way runs in many steps, and not only where what is kept is missing."""
    if any(is_first_time(f) for f in of_kind(stack, BranchFrame)):
        return False
    if any(remembers(f.func) for f in of_kind(stack, CallFrame)):
        return False
    return any((f.code) in hot for f in stack)


def runs_often(site: Site, hot: frozenset[ast.AST]) -> bool:
    """Whether that is so of one of the ways at least."""
    return any(again_and_again(o.stack, hot) for o in site)


def factory(script: Script, expr: ast.expr) -> ast.Call | None:
    """``torch.zeros(...)`` in ``torch.zeros(...).long().unsqueeze(0)`` or
    ``Variable(torch.zeros(...))``.

    Of an old constructor it is the call that fills the tensor: ``torch.FloatTensor(n).zero_()``;
    the constructor itself where none does.
    """
    while isinstance(expr, ast.Call) or (isinstance(expr, ast.Subscript) and _is_plain(expr.slice)):
        if isinstance(expr, ast.Subscript):
            expr = expr.value
            continue
        found = script.called(expr)
        names = library_names(found)
        if listed(script, expr, "") is not None or numpy_made(script, expr, "None"):
            return expr
        if len(names) == len(found) == 1:
            name = next(iter(names))
            if name.startswith("torch.") and name.removeprefix("torch.") in FACTORIES:
                return expr if _from_numbers(script, name, expr) else None
            if constructor(script, expr):
                return expr if made_there(script, expr, "") is not None else None
            if name != "torch.autograd.Variable" or len(expr.args) != 1 or expr.keywords:
                return None
            expr = expr.args[0]
        elif is_attribute(expr.func, *KEEPS, *DRAWN):
            made, numbers = expr.func.value, (script.must_be(a, Const, Num, Arg) for a in expr.args)
            if expr.func.attr in DRAWN and (expr.keywords or not all(numbers)):
                return None
            if isinstance(made, ast.Call) and constructor(script, made):
                return expr if made_there(script, expr, "") is not None else None
            expr = made
        else:
            return None
    return None


def _is_plain(index: ast.expr) -> bool:
    """``[None, :, :]``, ``[..., 0]``: an index that takes the same part on every device."""
    parts = items_of(index)
    return all(isinstance(p, (ast.Slice, ast.Constant)) for p in parts)


def _from_numbers(script: Script, name: str, call: ast.Call) -> bool:
    """No tensor of the host has a part in it, but one whose shape is taken."""
    if name.endswith("_like"):
        return True
    if name == "torch.tensor" and len(call.args) == 1 and isinstance(call.args[0], SEQUENCES):
        return _is_display(script, call.args[0])
    values = [t for a in call.args for t in script.values(unstarred(a))]
    values += [t for k in call.keywords for t in script.values(k.value)]
    if name.removeprefix("torch.") in DATA and any_of(values, Unknown, Num, Seq):
        return False
    return name in SIZED or not any_of(values, Tensor)


def _is_display(script: Script, data: ast.expr) -> bool:
    """``[a, b]`` with numbers, written out."""
    if isinstance(data, SEQUENCES):
        return all(_is_display(script, part) for part in data.elts)
    found = script.values(data)
    return surely(
        isinstance(t, (Const, Arg)) or (isinstance(t, Num) and t.synced is None) for t in found
    )


def held_by(
    script: Script, transfer: Transfer, expr: ast.expr
) -> tuple[ast.Call, ast.If | None] | None:
    """The factory call of ``x = torch.zeros(...)`` where ``x = x.to(device)`` follows in the same
    block, and nothing uses ``x`` before.

    Or in the body of an ``if`` in that block, which is given as well.
    """
    stmt = statement_of(transfer.node)
    if not isinstance(expr, ast.Name):
        return None
    bound = is_bound_to(stmt, transfer.node, expr.id) or is_replaced(stmt, expr)
    if not bound and not ends_here(stmt, expr):
        return None
    needed = {n.id for a in arguments_of(transfer.node) for n in nodes_in(a, ast.Name)}
    made = made_earlier(script, stmt, expr.id, needed)
    gate = parent_of(stmt)
    if made is None and isinstance(gate, ast.If) and not gate.orelse:
        needed |= names_in(gate.test)
        inside_it = [n for s in gate.body[: gate.body.index(stmt)] for n in ast.walk(s)]
        if any(is_name(n, expr.id) for n in inside_it):
            return None
        made = made_earlier(script, gate, expr.id, needed)
        if made is not None:
            return made, gate
    made = made or _made_on_the_way(script, stmt, expr, needed)
    return (made, None) if made is not None else None


def _made_on_the_way(
    script: Script, stmt: ast.stmt, use: ast.Name, needed: set[str]
) -> ast.Call | None:
    """The factory call of another block, which alone gives the variable what is copied, and after
    which nothing but the copy has to do with it."""
    flow = script.analysis(Flow)
    made = flow.definition(use)
    target = made.node if made is not None else None
    if made is None or made.value is None or not is_name(target, use.id):
        return None
    given = made.statement
    uses = [n for n in definitions_of(script, target).uses_of(target) if n is not use]
    if (
        given is None
        or given is stmt
        or function_of(given) is not function_of(stmt)
        or [*loops_around(given)] != [*loops_around(stmt)]
        or use.id in source_of(stmt).rebound
        or not flow.graph(stmt).postdominates(stmt, given)
        or not all(_fills(script, n) for n in uses)
        or not all(
            flow.means_the_same(n, given)
            for n in nodes_in(stmt, ast.Name)
            if n.id in needed and is_read(n)
        )
    ):
        return None
    return factory(script, made.value)


def is_bound_to(stmt: ast.stmt, value: ast.expr, name: str) -> bool:
    """``name = value``, alone or as one of ``a, name = other, value``."""
    return any(given is value and is_name(part, name) for part, given in parts_of(stmt))


def is_replaced(stmt: ast.stmt, use: ast.Name) -> bool:
    """``z = z.to(device).view(-1, 1)``: the variable is another tensor then, and its own is read
    there alone.
    """
    reads = [n for n in nodes_in(stmt, ast.Name) if n.id == use.id and is_read(n)]
    return is_name(only_target(stmt), use.id) and reads == [use]


def made_earlier(script: Script, stmt: ast.stmt, name: str, needed: set[str]) -> ast.Call | None:
    """The factory call that ``name`` is bound to before ``stmt`` in its block, where nothing uses
    it, or binds what is ``needed``, between."""
    block = block_of(stmt)
    for earlier in reversed(block[: block.index(stmt)]):
        if (value := given_to(earlier, name)) is not None:
            return factory(script, value)
        names = {(n.id, is_read(n)) for n in nodes_in(earlier, ast.Name)}
        if any(found in needed and not load for found, load in names):
            return None
        for use in (n for n in nodes_in(earlier, ast.Name) if n.id == name):
            once = statement_of(use) is earlier  # a number is one kernel then
            if not _fills(script, use) and not (once and _fills(script, use, within=True)):
                return None
    return None


def ends_here(stmt: ast.stmt, use: ast.Name) -> bool:
    """Whether nothing but the statements above in the block, which are looked at, has a variable
    beside this use: the copy that gets another name is the only one there is."""
    block, function = block_of(stmt), function_of(stmt)
    seen = {n for s in block[: block.index(stmt)] for n in nodes_in(s, ast.Name)}
    every = [n for n in nodes_in(function, ast.Name) if n.id == use.id and n is not use]
    shared = use.id in source_of(stmt).rebound
    return not shared and all(n in seen for n in every)


def _fills(script: Script, use: ast.Name, within: bool = False) -> bool:
    """``padded[:, :n] = x`` of what is on the device, at numbers and slices; also a function that
    does no more than that."""
    part = parent_of(use)
    if isinstance(part, ast.Call) and not within:
        graph = script.analysis(CallGraph)
        filled = [_filled_in(script, part, c, use) for c in graph.callees(part)]
        return bool(filled) and all(filled) and not graph.may_run_others(part)
    stmt = statement_of(use)
    if not isinstance(part, ast.Subscript) or part.value is not use or is_read(part):
        return False
    if not isinstance(stmt, ast.Assign) or stmt.targets != [part]:
        return False
    cuts = [p for p in items_of(part.slice) if not isinstance(p, (ast.Slice, ast.Constant))]
    found = script.values(stmt.value)
    there = (is_on_device(t) for t in found)
    fits = bool(found) and (all(there) or within and certainly(found, Const))
    fits = fits or surely(isinstance(t, Tensor) and t.device != "cpu" and t.models for t in found)
    return fits and all(script.must_be(p, Const, Num, Arg) for p in cuts)


def _filled_in(script: Script, call: ast.Call, callee: Callee, use: ast.Name) -> bool:
    """Whether all that a function does with an argument is to fill it, with more than numbers."""
    graph, function = script.analysis(CallGraph), callee.function
    given = [p.arg for p in parameters(function) if graph.argument(call, callee, p.arg) is use]
    uses = [n for n in nodes_in(function, ast.Name) if n.id in given]
    if len(given) != 1 or not all(_fills(script, n, within=True) for n in uses):
        return False
    return any(_fills(script, n) for n in uses)
