"""Where numbers that are read from the device are given to objects of the project, which may count
them: ``meter.update(loss.item(), n)``, and what ``if torch.is_tensor(v): v = v.item()`` makes one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from autofast.flow.callgraph import CallGraph
from autofast.flow.defuse import Definition
from autofast.flow.loops import loop_of
from autofast.flow.program import Flow
from autofast.flow.scopes import mentions, parameters
from autofast.flow.usage import is_identity
from autofast.model.calls import (
    MethodCall,
    arguments_of,
    is_augmented,
    is_call_of,
    is_method,
    is_name,
)
from autofast.model.script import Script
from autofast.model.several import of_kind, surely
from autofast.model.source import function_of, nodes_in, parent_of, statement_of, within
from autofast.model.syntax import DEFS, is_read
from autofast.model.values import Cls, Inst, Thing
from autofast.techniques.syncs.reads import Read, on_device


@dataclass(eq=False)
class Counted:
    """A statement whose number an object counts.

    Attributes:
        value: the argument.
        taken: what may get it.
        asserts: where it is a variable, which holds a number or is made one, the tests that it is
            a number then.
        given: the numbers among what the variable holds that callers read for it.
    """

    call: ast.Call
    method: ast.Attribute
    read: Read
    value: ast.expr
    taken: frozenset[Thing]
    here: frozenset[Thing] = frozenset()  # what is read
    asserts: Sequence[ast.expr] | None = None
    given: Sequence[Read] = ()

    @property
    def reads(self) -> list[Read]:
        """What would no longer be read in its turn."""
        mine = self.asserts is None or any(map(on_device, self.here))
        return [*[self.read] * mine, *self.given]

    @property
    def cls(self) -> Cls:
        """The class of what gets it."""
        return next(t.cls for t in of_kind(self.taken, Inst))


def counted_numbers(script: Script, every: Iterable[Read]) -> Iterator[Counted]:
    """The statements that give one of these reads to an object, and do nothing else; and those
    whose variable is a tensor or a number.
    """
    every = list(every)
    for read in every:
        match read.statement:
            case ast.Expr(ast.Call(func=ast.Attribute(value=of) as method) as call):
                value = next((g for g in arguments_of(call) if within(read.node, g)), None)
                if value is not None and (taken := _takers(script, of)):
                    yield Counted(call, method, read, value, taken)
    for node in _numbers_of_variables(script, every):
        match parent_of(node), node.func.value:
            case ast.Assign(targets=[ast.Name(name) as made], value=value) as statement, core if (
                value is node and is_name(core, name)
            ):
                if _asks_for_tensor(script, gate := parent_of(statement), name):
                    given = list(_given(script, gate, made, every))  # type: ignore[arg-type]
                    yield from _counted_then(script, made, Read(node, core, "item"), given)


def _numbers_of_variables(script: Script, every: list[Read]) -> Iterator[MethodCall]:
    """``v.item()``, where the script comes to it, or numbers of these reads are given to its
    function, which is then come to by tensors.
    """
    calls = script.analysis(CallGraph)
    taking = {
        f: f for r in every for n in nodes_in(r.statement, ast.Call) for f in calls.entered(n)
    }
    found = {s.node: s.node for s in script.log.of("sync")}
    found |= {n: n for f in taking for n in nodes_in(f, ast.Call)}
    yield from (n for n in found if is_method(n, "item"))


def _takers(script: Script, of: ast.expr) -> frozenset[Thing]:
    """The objects of one class of the project that an expression is; empty for others."""
    found = script.values(of)
    kinds = {id(t.cls) for t in found if isinstance(t, Inst)}
    return found if surely(isinstance(t, Inst) for t in found) and len(kinds) == 1 else frozenset()


def _asks_for_tensor(script: Script, gate: ast.AST | None, name: str) -> bool:
    """``if isinstance(v, torch.Tensor):`` around one statement."""
    match gate:
        case ast.If(ast.Call(args=[ast.Name(asked), *kinds]) as test, [_], []) if asked == name:
            if not kinds:
                return script.is_call(test, "torch.is_tensor")
            tensor = [script.library_name(k) for k in kinds] == ["torch.Tensor"]
            return tensor and script.is_call(test, "builtins.isinstance")
    return False


def _given(script: Script, gate: ast.If, made: ast.Name, every: list[Read]) -> Iterator[Read]:
    """The reads whose numbers callers give to the function for a variable, which may be tensors as
    well: nothing else looks at it before it is made a number.
    """
    function, flow, name = function_of(made), script.analysis(Flow), made.id
    calls = script.analysis(CallGraph)
    if not isinstance(function, DEFS):
        return
    for use in mentions(function, name):
        early = _is_asked(use) and Definition(name, made) not in flow.reaching(use)
        if early and not is_identity(parent_of(use) or use) and not within(use, gate):
            return
    spread = _over_keywords(function, made)
    for read in every:
        match read.statement, parent_of(read.node):
            case ast.Expr(ast.Call() as call), outer if read.how == "item":
                callees = calls.callees(call)
                if calls.may_run_others(call) or {c.function for c in callees} != {function}:
                    continue
                mine = calls.argument(call, callees[0], name) is read.node
                names = {k.arg for k in call.keywords if k is outer} - _named(function)
                if mine or (spread and names):
                    yield read


def _is_asked(use: ast.AST) -> bool:
    return is_read(use) or is_augmented(use)


def _named(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    return {a.arg for a in parameters(function)}


def _over_keywords(function: ast.FunctionDef | ast.AsyncFunctionDef, made: ast.Name) -> bool:
    """``for name, value in kwargs.items():``, all that is done with ``**kwargs``."""
    spread = function.args.kwarg
    uses = mentions(function, spread.arg) if spread is not None else []
    match of_kind(uses, ast.Name), loop_of(made):
        case [only], ast.For(
            target=ast.Tuple(elts=[_, ast.Name(name)]),
            iter=ast.Call(func=ast.Attribute(value=over, attr="items")),
        ):
            return only is over and name == made.id
    return False


def _counted_then(
    script: Script, made: ast.Name, read: Read, given: Sequence[Read]
) -> list[Counted]:
    """The statements that give a variable to objects which may count it, where nothing else looks
    at it but tests that it is a number; none where something does.
    """
    found, asserts = list[Counted](), list[ast.expr]()
    flow, number = script.analysis(Flow), Definition(made.id, made)
    here = script.values(read.core)
    for use in mentions(function_of(made), made.id):
        if not _is_asked(use) or number not in flow.reaching(use):
            continue
        match statement_of(use):
            case ast.Assert(test=test) if parent_of(use) is test and is_call_of(test, "isinstance"):
                asserts.append(test)
            case ast.Expr(ast.Call(func=ast.Attribute(value=of) as method) as call) if (
                use in arguments_of(call) and (taken := _takers(script, of))
            ):
                found.append(Counted(call, method, read, use, taken, here, asserts, given))
            case _:
                return []
    return found
