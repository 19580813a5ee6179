"""Who else uses the size of the batch: as a number it stays that of the whole batch, as a size of
tensors it must be that of the part.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from autofast.flow.callgraph import Callee, CallGraph, Function, code_of
from autofast.flow.scopes import is_parameter, mentions, owner, parameters, scope_of
from autofast.model.calls import only_target
from autofast.model.kinds import is_loader, is_module
from autofast.model.names import last_part
from autofast.model.roles import Loader
from autofast.model.script import Script
from autofast.model.several import of_kind, wordset
from autofast.model.source import (
    ByNode,
    at,
    nodes_in,
    outwards,
    parent_of,
    statement_of,
    within_statement,
)
from autofast.model.syntax import is_attribute, is_read
from autofast.model.values import Bound, Func, Method, Ref, Tensor, begins, is_named
from autofast.rule import Refusal
from autofast.techniques.ddp.data import size_of

NUMBERS = wordset("print int float str len min max round format abs repr isinstance", "builtins.")
SHOWS = tuple(
    "math. logging. tqdm. wandb. torch.optim. argparse. time. datetime. rich. os.path.".split()
)
SAYS = wordset(
    "format join append info debug warning add_scalar add_argument update write log set_postfix"
)
MAKES = wordset("zeros ones full empty rand randn randint normal zeros_like")


@dataclass(frozen=True)
class Known:
    """``passes``: the calls of models that train; ``written``: nodes that are the loader's
    batch size itself.
    """

    passes: ByNode[ast.Call]
    written: frozenset[ast.AST]


def check(script: Script, loader: Loader, passes: ByNode[ast.Call]) -> None:
    """Raises :class:`Refusal` where the training uses the batch size for something that must fit
    the part of one process.
    """
    size = size_of(script, loader)
    if size is None:
        return
    written = [
        *([size.expr] if size.expr is not None else []),
        *(e.expr for _, e in size.via if e.expr is not None),
    ]
    known = Known(passes, frozenset(n for w in written for n in ast.walk(w)))
    for expr in written:
        for use in _uses(script, expr):
            _check(script, use, known, 0)


def _uses(script: Script, size: ast.expr) -> Iterator[ast.expr]:
    """Other places that read the same variable, attribute or option."""
    for part in ast.walk(size):
        match part:
            case ast.Attribute(attr=name):
                for node in script.each(ast.Attribute):
                    if node.attr == name and is_read(node) and node is not part:
                        if (
                            script.reached(node)
                            and not _in_loader(script, node)
                            and not is_attribute(parent_of(node))
                        ):
                            yield node
            case ast.Name() if not is_attribute(parent_of(part)):
                yield from _of_name(script, part)


def _of_name(script: Script, name: ast.Name) -> Iterator[ast.expr]:
    for node in _loads(script, name):
        if node is not name:
            yield node
    function = owner(name)
    if isinstance(function, Function) and is_parameter(function, name.id):
        calls = script.analysis(CallGraph)
        for call in calls.sites(function):
            for callee in (c for c in calls.callees(call) if c.function is function):
                if (passed := calls.argument(call, callee, name.id)) is not None:
                    yield from _uses(script, passed)


def _loads(script: Script, name: ast.Name) -> list[ast.Name]:
    """Where the script reads the variable that a name is, but to make a loader."""
    found = mentions(scope_of(name), name.id)
    return [n for n in found if is_read(n) and script.reached(n) and not _in_loader(script, n)]


def _in_loader(script: Script, node: ast.AST) -> bool:
    calls = of_kind(within_statement(node), ast.Call)
    return any(is_loader(t) for call in calls for t in script.values(call))


def _check(script: Script, use: ast.expr, known: Known, depth: int) -> None:
    """What is done with the number at ``use``."""
    if use in known.written:
        return
    for here, outer in outwards(use):
        if isinstance(outer, ast.Compare):
            if any(_of_batch(script, e) for e in (outer.left, *outer.comparators) if e is not here):
                raise Refusal(
                    f"`{ast.unparse(outer)}` on {at(outer)} compares a batch with the batch size: each process has a part of it"
                )
            return
        if isinstance(outer, ast.Call):
            if here is outer.func:
                return
            if all(is_named(t, Ref, "builtins.dict") for t in script.called(outer)) and isinstance(
                parent_of(outer), ast.Call
            ):
                continue
            _in_call(script, use, outer, known, depth)
            return
        if isinstance(outer, ast.Subscript) and _of_batch(script, outer.value):
            raise Refusal(
                f"the batch size on {at(use)} picks from a batch, of which each process has a part: take the size of the batch itself"
            )
        if isinstance(outer, (ast.stmt, ast.JoinedStr)):
            _kept(script, outer, known, depth)
            return


def _of_batch(script: Script, expr: ast.expr) -> bool:
    """A tensor of the batch, or its size."""
    return any(
        isinstance(t, Tensor) and not t.param
        for n in nodes_in(expr, ast.Name, ast.Attribute, ast.Call)
        for t in script.values(n)
    )


def _kept(script: Script, statement: ast.AST, known: Known, depth: int) -> None:
    """A variable that gets the number: its uses count, too."""
    if not isinstance(statement, ast.Assign) or depth > 3:
        return
    for target in statement.targets:
        if isinstance(target, ast.Name):
            for node in _loads(script, target):
                _check(script, node, known, depth + 1)


def _in_call(script: Script, use: ast.expr, call: ast.Call, known: Known, depth: int) -> None:
    for callee in script.called(call):
        name = callee.name if isinstance(callee, (Ref, Method)) else ""
        if isinstance(callee, Ref) and (name in NUMBERS or name.startswith(SHOWS)):
            continue
        if isinstance(callee, Method) and name in SAYS:
            continue
        if isinstance(callee, (Func, Bound)) and depth < 4:
            _in_function(script, use, call, code_of(callee)[0], known, depth)
            continue
        if _evaluates(script, call) or _apart(script, call, known):
            continue
        raise Refusal(
            f"the batch size is used for `{ast.unparse(call.func)}(...)` on {at(call)}, where each process has only a part of the batch: "
            "take the size of the batch itself (`x.size(0)`)"
        )


def _in_function(
    script: Script, use: ast.expr, call: ast.Call, callee: Callee, known: Known, depth: int
) -> None:
    calls, node = script.analysis(CallGraph), callee.function
    given = {p.arg: calls.argument(call, callee, p.arg) for p in parameters(node)}
    mine = [name for name, e in given.items() if e is not None and use in ast.walk(e)]
    if not mine:
        raise Refusal(f"what the batch size on {at(use)} is used for is not known")
    for name in mine:
        for inner in mentions(node, name):
            if is_read(inner) and script.reached(inner) and not _in_loader(script, inner):
                _check(script, inner, known, depth + 1)


def _evaluates(script: Script, call: ast.Call) -> bool:
    """Only where no gradients are made."""
    grads = {o.grad for (_, key), site in script.log.each() if key is call for o in site}
    return bool(grads) and grads <= {"off", "inference"}


def _apart(script: Script, call: ast.Call, known: Known) -> bool:
    """A tensor of its own that only goes into calls of models that no backward reaches: a fixed
    noise, to look at results.
    """
    if not any(
        begins(t, Ref, "torch.") and last_part(t.name) in MAKES for t in script.called(call)
    ):
        return False
    target = only_target(statement_of(call))
    if not isinstance(target, ast.Name):
        return False
    loads = [n for n in mentions(scope_of(target), target.id) if is_read(n) and script.reached(n)]
    return all(_shown_only(script, n, known) for n in loads)


def _shown_only(script: Script, node: ast.AST, known: Known) -> bool:
    call = parent_of(node)
    return call not in known.passes and any(is_module(t) for t in script.called(call))
