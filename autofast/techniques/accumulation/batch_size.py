"""``--keep-batch``: batches that are as many times smaller as there are in a window, so that an
update sees what it saw before.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import Edit, Rewrite
from autofast.facts.updates.events import Iteration
from autofast.flow.callgraph import CallGraph
from autofast.flow.frequency import rare_arm
from autofast.flow.program import Flow
from autofast.model.calls import is_call_of, is_name, short_name, taker_of
from autofast.model.kinds import is_module, is_optimizer
from autofast.model.roles import Loader
from autofast.model.script import Script
from autofast.model.several import any_in, of_kind, wordset
from autofast.model.source import ancestors, at, nodes_in, parent_of, within
from autofast.model.syntax import VARIABLES, is_attribute, is_read, is_stored
from autofast.model.values import (
    Arg,
    Arguments,
    Bound,
    Const,
    Dict,
    Ext,
    Func,
    Thing,
    certainly,
    const,
    said,
)
from autofast.rule import Refusal
from autofast.techniques.accumulation.window import Window
from autofast.write.spelling import argument_expression

SHOWS = tuple(
    "print info debug warning log write format set_description set_postfix update".split()
)
SHAPES = wordset(
    "view reshape expand repeat zeros ones randn rand full empty randint arange init_hidden new_zeros new_ones"
)


def drops_last(script: Script, loaders: list[Thing]) -> bool:
    """Whether the loaders leave out a last batch that is not whole."""
    found = set()
    for loader in _made(script, loaders):
        args, _ = _arguments(loader)
        index = 8 if args is loader.args else 2
        given = args.given(index, "drop_last")
        found.add(
            False
            if given is None and args is loader.args
            else const(given.values)
            if given is not None and given.sure
            else ...
        )
    if len(found) != 1 or not isinstance(drop := found.pop(), bool):
        raise Refusal("whether the loader leaves out its last batch is not known")
    return drop


def smaller_batches(script: Script, iteration: Iteration, window: Window) -> list[Edit]:
    """The edits where the loaders are made; raises :class:`Refusal`."""
    edits: list[Edit] = []
    for loader in _made(script, iteration.step.loaders):
        args, call = _arguments(loader)
        given = args.given(1, "batch_size")
        expr = argument_expression(call, given)
        if given is not None and expr is None and len(given.via) == 1:
            expr = given.via[0][1].expr  # ``DataLoader(data, **options)``
        if given is None or expr is None:
            raise Refusal(
                f"the batch size of the loader on {at(loader)} does not stand in its call"
            )
        _check_whole(expr, given.values, window.steps, loader)
        _check_others(script, expr, given.values, iteration, loader)
        # a Rewrite: whoever else replaces the size, as a sampler of batches does, contradicts it
        edits.append(Rewrite(expr, f"{{}} // {window.steps_in(expr)}"))
    _check_intervals(script, iteration, window.steps)
    _check_places(script, iteration, window)
    return edits


def _made(script: Script, loaders: list[Thing]) -> list[Loader]:
    found = [x for x in script.loaders if any_in(x.things, loaders)]
    for loader in found:
        if not all(t in loaders for t in loader.things):
            raise Refusal(f"the loader on {at(loader)} is made in the same place as others")
    return found


def _arguments(loader: Loader) -> tuple[Arguments, ast.Call]:
    """The arguments that say how large batches are: those of the loader, or of its BatchSampler."""
    if const(loader.args.get(1, "batch_size")) is None:
        for thing in loader.args.get(3, "sampler"):
            match thing:
                case Ext(name=name, node=ast.Call() as call) if name.endswith(".BatchSampler"):
                    return thing.args, call
    return loader.args, loader.node


def _check_whole(expr: ast.expr, values: frozenset[Thing], steps: int, loader: Loader) -> None:
    sizes = [
        const(t.default) if isinstance(t, Arg) else t.value if isinstance(t, Const) else ...
        for t in values
    ]
    for size in sizes:
        if not isinstance(size, int) or isinstance(size, bool):
            raise Refusal(
                f"the batch size of the loader on {at(loader)} (`{ast.unparse(expr)}`) is not known, nor whether {steps} divides it"
            )
        if size % steps:
            raise Refusal(
                f"batches of {size} ({at(loader)}) cannot be divided into {steps} equal parts"
            )
    if not sizes:
        raise Refusal(f"the batch size of the loader on {at(loader)} is not known")


def _check_others(
    script: Script, expr: ast.expr, values: frozenset[Thing], iteration: Iteration, loader: Loader
) -> None:
    """Nothing else in the training goes by the size of a batch."""
    options = {t for t in values if isinstance(t, Arg)}
    words = ast.dump(expr)
    for node in script.nodes:
        if is_attribute(node, "batch_size", "batch_sampler") and is_read(node):
            if any_in(script.values(node.value), loader.things) and not _is_shown(node):
                raise Refusal(f"the loader's `{node.attr}` is asked for on {at(node)}")
        if not isinstance(node, VARIABLES) or not is_read(node) or not script.reached(node):
            continue
        same = (options and bool(script.values(node) & options)) or (
            not isinstance(expr, ast.Constant)
            and ast.dump(node) == words
            and script.values(node) == values
        )
        if (
            same
            and not within(node, expr)
            and not _in_a_loader(script, node)
            and not _is_shown(node)
            and not _is_passed_on(script, node)
        ):
            raise Refusal(
                f"`{ast.unparse(node)}` on {at(node)} may mean the size of the loader's batches, too"
            )
    numbers = set(map(said, values))
    for node in _code(script, iteration):
        if short_name(getattr(node, "func", None)) in SHAPES:
            for part in nodes_in(node, ast.Constant):
                if part.value in numbers and not isinstance(part.value, bool):
                    raise Refusal(
                        f"{part.value!r} on {at(part)} may mean the size of the loader's batches, too"
                    )


def _in_a_loader(script: Script, node: ast.AST) -> bool:
    for outer in of_kind(ancestors(node), ast.Call):
        if any(outer is x.node for x in script.loaders) or any(
            t.name.endswith("BatchSampler") for t in of_kind(script.values(outer), Ext)
        ):
            return True
    return False


def _is_passed_on(script: Script, node: ast.AST) -> bool:
    """Given to a function of the project, which is looked at itself, or put into a variable that
    is.
    """
    if (call := taker_of(node)) is not None:
        return certainly(script.called(call), Func, Bound)
    outer = parent_of(node)
    return isinstance(outer, ast.Assign) and outer.value is node


def _is_shown(node: ast.AST) -> bool:
    for outer in ancestors(node):
        match outer:
            case ast.FormattedValue():
                return True
            case ast.Call(func=func) if short_name(func) in SHOWS:
                return True
    return False


def _code(script: Script, iteration: Iteration) -> Iterator[ast.AST]:
    graph = script.analysis(CallGraph)
    functions = {
        f: f for n in ast.walk(iteration.loop) for e in graph.entered(n) for f in graph.runs(e)
    }
    for code in (iteration.loop, *functions.values()):
        yield from ast.walk(code)


def _check_intervals(script: Script, iteration: Iteration, steps: int) -> None:
    """Nothing but a message is made every so many batches, of which there are more then."""
    for node in _code(script, iteration):
        counted = rare_arm(node) if isinstance(node, ast.If) else None
        if isinstance(node, ast.If) and counted is not None and within(node, iteration.loop):
            # of `if i % 2:` neither arm is for every batch
            arms = node.body if counted else [*node.body, *node.orelse]
            for part in (n for s in arms for n in ast.walk(s)):
                if isinstance(part, ast.Call) and _does_more(script, part):
                    raise Refusal(
                        f"is done every so many batches, of which there are {steps} times as many then",
                        part,
                    )
        match node:
            case ast.Subscript(slice=ast.Constant("lr")) if is_stored(node):
                raise Refusal(f"the learning rate is set for each batch on {at(node)}")


def _check_places(script: Script, iteration: Iteration, window: Window) -> None:
    """Nothing has one place for each batch, by its number, unless the loader says how many."""
    flow = script.analysis(Flow)
    for node in nodes_in(iteration.loop, ast.Subscript):
        if not (is_stored(node) and not window.made and is_name(node.slice, window.counter)):
            continue
        made = flow.made_of([node.value])
        if not script.must_be(node.value, Dict) and not any(is_call_of(n, "len") for n in made):
            raise Refusal(
                f"`{ast.unparse(node)}` on {at(node)} has a place for each batch, of which there are {window.steps} times as many then"
            )


def _does_more(script: Script, call: ast.Call) -> bool:
    if script.may_be(call.func, Func, Bound):
        return True
    given = [call.func, *call.args, *(k.value for k in call.keywords)]
    return any(
        is_module(t) or is_optimizer(t)
        for g in given
        for n in ast.walk(g)
        for t in script.values(n)
    )
