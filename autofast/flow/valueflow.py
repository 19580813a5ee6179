"""May a value come to a bad use? One engine for all such questions: where the value goes, and who
says what is bad.

A question is a class that judges one use at a time (:meth:`ValueFlow.judge`): it is bad, which ends
the search with a reason; nothing comes of it; or the value goes on, in the expression around it, in
what is bound to it, in the functions that are given it, or at the callers of the function that
returns it. There the engine looks for the next uses.

The reader of a script follows values as well. Where it tells the values in question from all others
(the batches of a loader), :func:`first_bad` judges every expression that has one, and nothing needs
to be followed again.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Generic, TypeVar

from autofast.flow.callgraph import CallGraph, Function, code_of
from autofast.flow.defuse import Definition
from autofast.flow.program import Flow
from autofast.flow.scopes import parameters, variables_of
from autofast.flow.usage import Act, Usage, usage_of
from autofast.model.script import Script
from autofast.model.source import function_of
from autofast.model.values import Thing, Values

Context = TypeVar("Context")


class Verdict(Enum):
    STOPS = "nothing comes of it"
    GOES_ON = "the value goes on: in the expression around it, or what gets it"
    ENTERS = "the project's functions that are called get it"


Answer = Verdict | str  # a reason: this use is bad


class ValueFlow(ABC, Generic[Context]):
    """Follows values along definitions, calls and results; ``Context`` is what a question has to
    know of the way to a place.
    """

    def __init__(self, script: Script):
        self.script = script
        self.flow, self.calls = script.analysis(Flow), script.analysis(CallGraph)
        self._seen: set[tuple[ast.AST, Context]] = set()

    # ------------------------------------------------------------------------- what a question says
    def met(self, expr: ast.expr, context: Context) -> Answer:
        """What is known of an expression that has the value, before its use is looked at."""
        return Verdict.GOES_ON

    @abstractmethod
    def judge(self, use: Usage, context: Context) -> Answer:
        """What comes of a use; of one as an argument, see :meth:`given`."""

    @abstractmethod
    def given(self, use: Usage, callee: Thing, context: Context) -> Answer:
        """What comes of it as an argument of ``callee``, one of the values that ``use.node.func``
        may have.
        """

    @abstractmethod
    def lost(self, use: Usage) -> str:
        """The reason where nobody knows what a call does, or who gets a result."""

    @abstractmethod
    def put(self, target: ast.Subscript, context: Context) -> str:
        """The first bad use of what is stored at ``target``, a place in something."""

    @abstractmethod
    def kept(self, target: ast.Attribute, context: Context) -> str:
        """The first bad use of what is stored in an attribute."""

    def inside(self, call: ast.Call, context: Context) -> Context:
        """The context in the functions that a call runs."""
        return context

    def outside(self, call: ast.Call, context: Context) -> Context:
        """The context at a call of the function that returns it."""
        return context

    def reads(self, bound: ast.Name | ast.arg) -> Iterable[ast.Name]:
        """The places that read what a variable is given there."""
        name = bound.arg if isinstance(bound, ast.arg) else bound.id
        return self.flow.definitions(bound).uses(Definition(name, bound))

    # ------------------------------------------------------------------------- where the value goes
    def follow(self, expr: ast.expr, context: Context) -> str:
        """The first bad use of the value of ``expr``, in words; empty where there is none."""
        if (expr, context) in self._seen:
            return ""
        self._seen.add((expr, context))
        use = usage_of(expr)
        answer = self.met(expr, context)
        if answer is Verdict.GOES_ON and use.act is Act.GIVEN:
            return self._given(use, context)
        if answer is Verdict.GOES_ON:
            answer = self.judge(use, context)
        if answer is Verdict.GOES_ON:
            return self._onwards(use, context)
        return answer if isinstance(answer, str) else ""

    def _onwards(self, use: Usage, context: Context) -> str:
        if use.act is Act.RETURNED:
            return self.returned(use, context)
        why = first_reason(self.bind(target, context) for target in use.targets)
        return why or (self.follow(use.result, context) if use.result is not None else "")

    def _given(self, use: Usage, context: Context) -> str:
        callees = self.script.called(use.node)
        if not callees:
            return self.lost(use)
        return first_reason(self._passed(use, callee, context) for callee in callees)

    def _passed(self, use: Usage, callee: Thing, context: Context) -> str:
        answer = self.given(use, callee, context)
        if isinstance(answer, str):
            return answer
        call = use.node
        assert isinstance(call, ast.Call)
        if answer is not Verdict.ENTERS:
            return self.follow(call, context) if answer is Verdict.GOES_ON else ""
        found = [
            parameter
            for code in code_of(callee)
            for name in self.calls.given_to(call, code, use.expr)
            for parameter in parameters(code.function)
            if parameter.arg == name
        ]
        there = self.inside(call, context)
        return first_reason(self.bind(p, there) for p in found) if found else self.lost(use)

    def returned(self, use: Usage, context: Context) -> str:
        """The first bad use of the result of the function, at any of its calls."""
        function = function_of(use.node)
        calls = self.calls.sites(function) if isinstance(function, Function) else []
        if not calls:
            return self.lost(use)
        return first_reason(self.follow(call, self.outside(call, context)) for call in calls)

    def bind(self, target: ast.expr | ast.arg, context: Context) -> str:
        """The first bad use of what is bound to ``target``, a parameter or anything that an
        assignment can give a value to.
        """
        match target:
            case ast.Name() | ast.arg():
                return first_reason(self.follow(read, context) for read in self.reads(target))
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return first_reason(self.bind(part, context) for part in parts)
            case ast.Starred(value=inner):
                return self.bind(inner, context)
            case ast.Subscript():
                return self.put(target, context)
            case ast.Attribute():
                return self.kept(target, context)
        raise TypeError(target)

    def filled(self, container: ast.Name, by: ast.AST) -> list[ast.Name]:
        """The places that read what a variable holds after ``by`` has put something into it."""
        variable = variables_of(container).of(container)
        return self.flow.definitions(by).uses_after(variable, by) if variable is not None else []


def first_bad(
    script: Script, holds: Callable[[Values], bool], judge: Callable[[Usage], Answer]
) -> tuple[ast.expr, str] | None:
    """The first expression with such values that is put to a bad use, and the reason."""
    for expr in expressions_holding(script, holds):
        if isinstance(why := judge(usage_of(expr)), str):
            return expr, why
    return None


def expressions_holding(script: Script, holds: Callable[[Values], bool]) -> Iterator[ast.expr]:
    """All expressions whose values are meant, in the order of the files."""
    meant: dict[Values, bool] = {}  # most values are those of many expressions
    for node in script.nodes:
        if isinstance(node, ast.expr):
            found = script.values(node)
            if found not in meant:
                meant[found] = holds(found)
            if meant[found]:
                yield node


def first_reason(reasons: Iterable[str]) -> str:
    return next((why for why in reasons if why), "")
