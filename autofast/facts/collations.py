"""Which collate functions of the project stack one tensor of each item, and make batches of
nothing else that a network convolves.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Sequence

from autofast.facts.datasets import returned_parts
from autofast.facts.dimensions import dimension_count
from autofast.facts.makers import Makers
from autofast.facts.parts import parts_of
from autofast.flow.defuse import bound_to
from autofast.flow.program import Flow, definitions_at
from autofast.flow.scopes import mentions, stored_in
from autofast.model.calls import (
    arguments_of,
    is_method,
    is_name,
    is_same_code,
    names_in,
)
from autofast.model.contents import each_once
from autofast.model.events import CallFrame, Occurrence
from autofast.model.names import COLLATES, CONVOLVE, last_part
from autofast.model.roles import Loader, Model
from autofast.model.script import Script
from autofast.model.several import of_kind, surely
from autofast.model.source import contains_kind, nodes_in, parent_of
from autofast.model.syntax import SEQUENCES, TURN_ENDS, is_read
from autofast.model.values import (
    Bound,
    Cls,
    Const,
    Ext,
    Func,
    Inst,
    Module,
    Num,
    Ref,
    Seq,
    Tensor,
    Thing,
    Unknown,
    any_of,
    certainly,
)

# of a stack, in all batches in the same way
ALIKE = tuple("permute transpose float double half long contiguous div div_".split())
STACKS = ("torch.stack", "numpy.stack")
JOINS = ("torch.cat", "torch.concat", "numpy.concatenate")
LAYERS = ("Conv", "LazyConv")
MOVES = ("to", "cuda", "float", "double", "half", "long", "type", "contiguous", "detach")
VARIABLE = "torch.autograd.Variable"
DEEP = 4


def stacks_items(script: Script, loader: Loader) -> bool:
    """Its own collate function stacks one thing of each item, and no network that convolves can
    take anything else in the batch.
    """
    for thing in loader.args.get(-1, "collate_fn"):
        function = _function_of(thing)
        if function is None:
            return False
        last, batch = function.body[-1], function.args.args[-1].arg
        returns = of_kind(ast.walk(function), (ast.Return, ast.Yield, ast.YieldFrom))
        if not isinstance(last, ast.Return) or last.value is None or len(returns) != 1:
            return False
        if script.is_call(last.value, *COLLATES) and _are_samples(script, last.value.args[:1]):
            continue
        parts = last.value.elts if isinstance(last.value, SEQUENCES) else returned_parts(last.value)
        others = [p for p in parts if not _is_stack(script, function, batch, p)]
        beside = [p for p in others if not _whole(script, p)]
        known = [p for p in parts if p not in beside]
        if len(others) == len(parts) or not _are_beside(script, beside, known):
            return False
    return True


def _function_of(thing: Thing) -> ast.FunctionDef | None:
    """The function that is given a batch, as its only argument."""
    if isinstance(thing, Inst):
        found = [f.node for f in thing.cls.methods("__call__")]
    else:
        found = [f.node for f in of_kind([getattr(thing, "func", thing)], Func)]
    bound = isinstance(thing, (Inst, Bound))
    fits = len(found) == 1 and len(found[0].args.args) == 1 + bound
    return found[0] if fits and isinstance(found[0], ast.FunctionDef) else None


def _are_beside(script: Script, parts: list[ast.expr], known: list[ast.expr]) -> bool:
    """Whether no network that convolves gets any of these parts of a batch, but only those that are
    known: none is given lists, nor a tensor of fewer dimensions, unless for a loss.
    """
    networks = [m for m in script.models if any(x.startswith(CONVOLVE) for x in m.layers)]
    given = [(m, s) for m in networks for s in m.forwards if any(map(_is_outermost, s))]
    lists = [p for p in parts if certainly(script.values(p), Seq)]
    tensors = [p for p in parts if p not in lists]
    origins, fit = ({e for p in of for e in _origins(script, p)} for of in (tensors, known))
    things = (t for _, s in given for o in s for t in o.args.things)
    return (
        not (parts and not networks)
        and not (lists and any(map(_may_hold_items, things)))
        and all(_are_of_few(script, networks, p) and _origins(script, p) for p in tensors)
        and not (parts and any(_may_get(script, m, s.node, origins, fit) for m, s in given))
    )


def _are_of_few(script: Script, networks: list[Model], part: ast.expr) -> bool:
    """Whether a tensor has fewer dimensions than a batch that is convolved."""
    digits = {x[-2] for m in networks for x in m.layers if x.startswith(LAYERS) and x[-1] == "d"}
    dimensions = dimension_count(script, part)
    return dimensions is not None and dimensions < min(map(int, digits), default=2) + 2


def _is_outermost(occurrence: Occurrence) -> bool:
    """The training calls it, no other network."""
    return all(f.func.name != "forward" for f in of_kind(occurrence.stack, CallFrame))


def _may_get(
    script: Script, network: Model, call: ast.AST, origins: set[ast.expr], fit: set[ast.expr]
) -> bool:
    """Whether a network may be given what comes from one of these places, and not for a loss
    alone; what comes from some others may be anything.
    """
    if not isinstance(call, ast.Call):
        return True
    for index, expr in enumerate(arguments_of(call)):
        values, found = script.values(expr), {*_origins(script, expr)}
        if not any(map(_may_be_items, values)) or (found and found <= fit):
            continue
        if certainly(values, Tensor) and all(t.models for t in of_kind(values, Tensor)):
            continue
        if not (found and found <= origins and _is_for_a_loss(script, network, index)):
            return True
    return False


def _is_for_a_loss(script: Script, network: Model, index: int) -> bool:
    """Whether ``forward`` gives an argument to modules alone that do not convolve."""
    thing = network.thing
    found = [f.node for f in thing.cls.methods("forward")] if isinstance(thing, Inst) else []
    names = [a.arg for f in found if isinstance(f, ast.FunctionDef) for a in f.args.args[1:]]
    loads = (
        [n for n in mentions(found[0], names[index]) if is_read(n)] if index < len(names) else []
    )
    return len(found) == 1 and surely(
        isinstance(call := parent_of(n), ast.Call)
        and surely(isinstance(t, Inst) and not _convolves(t) for t in script.called(call))
        for n in loads
    )


def _convolves(module: Thing) -> bool:
    parts = of_kind(parts_of(module).values(), Ext)
    return any(last_part(t.name).startswith(LAYERS) for t in parts)


def _origins(script: Script, expr: ast.expr) -> list[ast.expr]:
    """What makes a value that is copied and cast on its way; none where that does not show."""
    found, todo = [], [expr]
    for place in each_once(todo):
        made = script.analysis(Makers).all(place)
        moved = [n.func.value for n in made if is_method(n, *MOVES)]
        moved += [n.args[0] for n in made if script.is_call(n, VARIABLE) and n.args]
        if not made:
            return []
        found += [n for n in made if not is_method(n, *MOVES) and not script.is_call(n, VARIABLE)]
        todo += moved
    return found


def _may_hold_items(given: Thing) -> bool:
    """A list of tensors, or what may be one."""
    if isinstance(given, Seq):
        return any_of(given.any(), Tensor, Unknown)
    return isinstance(given, Unknown) and _may_be_items(given)


def _may_be_items(given: Thing) -> bool:
    """A tensor, or what may be one; not what a library has read, as from a YAML file."""
    return isinstance(given, Tensor) or (isinstance(given, Unknown) and not given.name)


def _are_samples(script: Script, exprs: list[ast.expr], depth: int = 0) -> bool:
    """``batch``, or some of its samples as they are: ``[item for item in batch if item]``."""
    match exprs:
        case [ast.Name() as name] if depth < DEEP:
            made = definitions_at(script, name)
            return surely(
                d.is_parameter or (d.value and _are_samples(script, [d.value], depth + 1))
                for d in made
            )
        case [ast.Call(func=ast.Name(id="list" | "tuple" | "filter"), args=[*_, inner])]:
            return _are_samples(script, [inner], depth)
        case [ast.ListComp(elt=ast.Name(id=same), generators=[ast.comprehension() as taken])]:
            return is_name(taken.target, same) and _are_samples(script, [taken.iter], depth)
    return False


def _is_stack(script: Script, function: ast.FunctionDef, batch: str, expr: ast.expr) -> bool:
    """``torch.stack(images)``, where ``images`` has one tensor of each item; or what joins them,
    each in a row of its own: ``np.concatenate([[image], ...])``.
    """
    flow = script.analysis(Flow)
    while is_method(expr, *ALIKE):
        expr = expr.func.value
    if isinstance(expr, ast.Name):
        only = flow.value(expr)
        return isinstance(only, ast.Call) and _is_stack(script, function, batch, only)
    if script.is_call(expr, "torch.from_numpy", "torch.as_tensor") and expr.args:
        return _is_stack(script, function, batch, expr.args[0])
    if not script.is_call(expr, *STACKS, *JOINS) or not expr.args:
        return False
    given, joined = expr.args[0], script.is_call(expr, *JOINS)
    if joined and not _is_along_rows(script, expr):
        return False
    made = [given]
    if isinstance(given, ast.Name):
        made += [n for d in flow.reaching(given) if (n := bound_to(d.node)[0]) is not None]
    for maker in made:
        match maker:
            case ast.ListComp(generators=[taken]) | ast.GeneratorExp(generators=[taken]):
                own = stored_in(taken)
                whole = is_name(taken.iter, batch) and not taken.ifs
                fits = not joined or _is_row(script, maker.elt)
                return whole and fits and _of_one_each(script, [maker.elt], own)
            case ast.Call(args=[ast.Starred(value=held)]) if script.is_call(maker, "builtins.zip"):
                return is_name(held, batch) and not joined
    for statement in function.body:
        match statement:
            case ast.For(iter=over, body=body) if is_name(over, batch):
                puts = [c for c in nodes_in(statement, ast.Call) if is_method(c, "append")]
                mine = [c for c in puts if is_same_code(c.func.value, given)]
                if mine:
                    own = stored_in(statement).union(*(names_in(c.func) for c in puts))
                    whole = not contains_kind(statement, *TURN_ENDS, ast.If)
                    rows = not joined or all(
                        len(c.args) == 1 and _is_row(script, c.args[0]) for c in mine
                    )
                    return whole and rows and _of_one_each(script, body, own)
    return False


def _is_along_rows(script: Script, call: ast.Call) -> bool:
    """Whether it joins along the first dimension."""
    given = [*call.args[1:], *(k.value for k in call.keywords)]
    return len(given) < 2 and all(bool(script.constant(g) == 0) for g in given)


def _is_row(script: Script, expr: ast.expr) -> bool:
    """``[x]``, ``x[None]``, ``x.unsqueeze(0)``: what has one row, of whatever shape."""
    match expr:
        case ast.List(elts=[ast.expr() as only]):
            return not isinstance(only, ast.Starred)
        case ast.Subscript(slice=ast.Constant(value=None)):
            return True
        case ast.Call(func=ast.Attribute(attr="unsqueeze"), args=[at], keywords=[]):
            return bool(script.constant(at) == 0)
    return script.is_call(expr, "numpy.expand_dims") and _is_along_rows(script, expr)


def _of_one_each(script: Script, made: Sequence[ast.AST], own: Container[str]) -> bool:
    """Whether what is made of a sample asks for no other, as padding to the longest does: its own
    variables are those that the loop sets.
    """
    others = [n for part in made for n in nodes_in(part, ast.Name) if n.id not in own]
    return all(
        certainly(found, Ref, Module, Func, Cls, Const) for found in map(script.values, others)
    )


def _whole(script: Script, expr: ast.expr) -> bool:
    """Whole numbers only: a tensor of them, or a list."""
    if isinstance(expr, ast.Call) and script.called(expr) <= {
        Ref("torch.LongTensor"),
        Ref("torch.IntTensor"),
    }:
        return script.reached(expr)
    found = script.values(expr)
    things = [t for thing in found for t in (thing.any() if isinstance(thing, Seq) else (thing,))]
    return bool(found) and all(
        (isinstance(t, Tensor) and t.dtype == "int") or isinstance(t, (Num, Const)) for t in things
    )
