"""Whether something that each iteration of a loop keeps is certainly there where it is read: the
loop has had an iteration.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.facts.loaders import given
from autofast.flow.defuse import Definition, bound_to
from autofast.flow.frequency import Frequency, frequency
from autofast.flow.loops import Loop, loop_of
from autofast.flow.positions import block, index
from autofast.flow.program import Flow
from autofast.model.calls import is_call_of, items_of, literal_of
from autofast.model.events import LoopFrame
from autofast.model.script import Loader, Script
from autofast.model.source import function_of, nodes_in, parent_of, statement_of, within
from autofast.model.syntax import SIMPLE, is_attribute, is_operation, is_read, is_written
from autofast.model.values import Const, Ext, Num, certainly, const, one
from autofast.techniques.syncs.common_reads import is_always
from autofast.techniques.syncs.empty_lists import is_empty_without, is_sum_of_nothing


def comes_first(statement: ast.stmt, gate: ast.If) -> bool:
    """Whether ``statement`` runs before ``gate`` in the same iteration, each time that this is come
    to.
    """
    here = block(statement)
    return -1 < index(here, statement) < index(here, gate)


def runs_at_all(script: Script, statement: ast.stmt, loop: Loop) -> bool:
    """Whether ``statement`` has certainly run when ``loop`` has ended and what follows does not
    raise.

    It runs in every iteration, and the loop has at least one: it goes over a constant range, or a
    division below it that runs whenever the loop ends would have divided by zero.
    """
    graph = script.analysis(Flow).graph(loop)
    if (
        frequency(graph, statement, loop) is not Frequency.EVERY
        or graph.leaving_before(statement, loop)
        or not isinstance(loop, ast.For)
    ):
        return False
    if _is_constant_range(script, loop.iter):
        return True
    return not _tells_division_errors(script) and any(
        graph.may_follow(division, loop)
        and not within(division, loop)
        and graph.postdominates(statement_of(division), loop)
        and _is_zero_without(script, divisor, loop)
        for division, dividend, divisor in _divisions(function_of(loop))
        if _is_number(script, dividend, loop)
    )


def _is_constant_range(script: Script, over: ast.expr) -> bool:
    if not is_call_of(over, "range") or len(over.args) != 1:
        return False
    length = const(script.values(over.args[0]))
    return isinstance(length, int) and length > 0


def _tells_division_errors(script: Script) -> bool:
    """Whether the script may go on after a division by zero, and not after another error."""
    return any(
        name in source.names
        for source in script.sources
        for name in ("ZeroDivisionError", "ArithmeticError")
    )


def _divisions(scope: ast.AST) -> Iterator[tuple[ast.AST, ast.expr, ast.expr]]:
    """Each division that runs whenever its statement does, its dividend and its divisor."""
    for node in ast.walk(scope):
        match node:
            case ast.AugAssign(op=ast.Div()):
                yield node, node.target, node.value
        if is_operation(node, ast.Div):
            statement = statement_of(node)
            simple = isinstance(statement, SIMPLE)
            if simple and function_of(node) is scope and is_always(node, statement):
                yield node, node.left, node.right


def _is_number(script: Script, expr: ast.expr, loop: Loop) -> bool:
    """Whether an expression is a Python number where the loop has had no iteration, which cannot be
    divided by zero then.

    It begins as a constant and is added to, or is the sum of a list that is empty.
    """
    match expr:
        case ast.Constant():
            return isinstance(expr.value, (int, float))
        case ast.BinOp(left=left, right=right):
            return all(_is_number(script, e, loop) for e in (left, right))
        case ast.Name():
            made = script.analysis(Flow).definitions(expr).origins(expr)
        case _:
            return is_sum_of_nothing(script, expr, loop)
    return bool(made) and all(
        (d.is_augmented and _only_numbers(script, d))
        or (isinstance(value := bound_to(d.node)[0], ast.expr) and _is_literal(value))
        for d in made
    )


def _only_numbers(script: Script, made: Definition) -> bool:
    if not isinstance(made.statement, ast.AugAssign):
        return False
    added = made.statement.value
    arrays = any(is_attribute(n, "numpy") for n in ast.walk(added))
    found = script.values(added)
    return not arrays and certainly(found, Num, Const)


def _is_literal(value: ast.expr) -> bool:
    """``0``, or ``0, 0.0`` that is unpacked."""
    return all(isinstance(literal_of(e), (int, float)) for e in items_of(value))


def _is_zero_without(script: Script, divisor: ast.expr, loop: ast.For) -> bool:
    """Whether the divisor is zero where the loop has had no iteration."""
    if isinstance(divisor, ast.Name):
        return _counts_iterations(script, divisor, loop)
    if not is_call_of(divisor, "len") or len(divisor.args) != 1:
        return False
    over, sized = _iterated(loop.iter), divisor.args[0]
    if _is_same(script, over, sized) or is_empty_without(script, sized, loop):
        return True
    loaders = _loaders(script, loop)
    whole = bool(loaders) and all(
        _gives_all(loader) for loader in script.loaders if set(loader.things) & loaders
    )
    if not whole:
        return False  # the loop may pass over samples
    if is_attribute(sized, "dataset"):
        return _is_same(script, over, sized.value)
    datasets = [
        d.values if (d := given(loader, "dataset")) is not None else frozenset()
        for loader in script.loaders
        if set(loader.things) & loaders
    ]
    found = script.values(sized)
    return len(found) == 1 and len(datasets) == 1 and datasets[0] == found


def _gives_all(loader: Loader) -> bool:
    """Whether a loader passes over no sample: it has the sampler of its own, or what
    ``batched-dataset`` writes in its place.
    """
    if any(given(loader, name) is not None for name in ("drop_last", "batch_sampler")):
        return False
    if (sampler := given(loader, "sampler")) is None:
        return True
    batches = one(sampler.values)
    if not isinstance(batches, Ext) or not batches.name.endswith(".BatchSampler"):
        return False
    inner = one(batches.args.get(0, "sampler"))
    return (
        isinstance(inner, Ext)
        and inner.name.endswith((".RandomSampler", ".SequentialSampler"))
        and len(inner.args.positional) == 1
        and not inner.args.named
        and const(batches.args.get(2, "drop_last")) is False
    )


def _counts_iterations(script: Script, name: ast.Name, loop: ast.For) -> bool:
    """``n = 0`` each time before the loop, ``n += 1`` in it alone."""
    made = script.analysis(Flow).definitions(name).origins(name)
    graph = script.analysis(Flow).graph(loop)
    return bool(made) and all(
        within(d.node, loop)
        if d.is_augmented
        else _is_zero(bound_to(d.node)[0])
        and loop_of(d.node) is loop_of(loop)
        and graph.dominates(d.node, loop)
        for d in made
    )


def _is_zero(value: ast.expr | None) -> bool:
    return value is not None and all(is_written(e, 0) for e in items_of(value))


def _iterated(over: ast.expr) -> ast.expr:
    """``loader`` of ``enumerate(tqdm(loader))``."""
    while (
        isinstance(over, ast.Call)
        and over.args
        and ast.unparse(over.func).split(".")[-1] in ("enumerate", "tqdm", "track")
    ):
        over = over.args[0]
    return over


def _is_same(script: Script, one: ast.expr, other: ast.expr) -> bool:
    """Whether two expressions are one variable, or one attribute of it, which is not set in their
    function.
    """
    if ast.dump(one) != ast.dump(other):
        return False
    if is_attribute(one) and is_attribute(other):
        stored = (n for n in nodes_in(function_of(one), ast.Attribute) if n.attr == one.attr)
        return all(is_read(n) for n in stored) and _is_same(script, one.value, other.value)
    return script.analysis(Flow).is_same(one, other)


def _loaders(script: Script, loop: Loop) -> set[object]:
    """The loaders that the loop takes its batches from."""
    found: set[object] = set()
    for site in script.log.of("sync", "forward"):
        if within(site.node, loop):
            for occurrence in site:
                for frame in occurrence.stack:
                    if isinstance(frame, LoopFrame) and frame.node is loop:
                        found |= set(frame.loaders)
    return found


def begins_whole(script: Script, target: ast.Name) -> bool:
    """Whether the target of ``+=`` holds a whole number before its loop: sums of counts are then
    exact in any order.
    """
    made = script.analysis(Flow).reaching(target)
    others = [d for d in made if d.node is not target]
    if not others:
        return False
    for definition in others:
        value, parent = bound_to(definition.node)[0], parent_of(definition.node)
        literals = value.elts if isinstance(value, ast.Tuple) else [value]
        if not isinstance(parent, (ast.Assign, ast.Tuple)) or not all(
            isinstance(v, ast.Constant)
            and isinstance(v.value, (int, float))
            and float(v.value).is_integer()
            for v in literals
        ):
            return False
    return True
