"""Who holds a value when a statement has run: variables, attributes, containers, generators, here
and in the functions that are given it.

What counts is the object itself or a view of its memory (``g``, ``g[0]``, ``g.view(-1)``), alone or
in a tuple, list or dict. What is computed from it, or copied into other memory, is another value.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from autofast.flow.callgraph import CallGraph
from autofast.flow.defuse import Definition
from autofast.flow.memory import base_of, views_around
from autofast.flow.program import Flow, function_around, holder_of
from autofast.flow.scopes import parameters
from autofast.model.calls import call_of
from autofast.model.contents import with_contents
from autofast.model.script import Script
from autofast.model.several import of_kind, wordset
from autofast.model.source import function_of, parent_of
from autofast.model.syntax import TARGETS, is_read
from autofast.model.values import COLLECTIONS, Tensor, all_of, library_names

ADDERS = wordset("append appendleft extend extendleft insert add setdefault update put")
DISPLAYS = (ast.List, ast.Tuple, ast.Set, ast.Dict, ast.Starred, ast.IfExp, ast.BoolOp)
# What gives the same objects: functions, and methods of containers and iterators.
PASSING = wordset(
    "zip list tuple set dict enumerate reversed sorted iter next filter max min", "builtins."
) | {"functools.partial", "copy.copy"}
GIVING = wordset("items values get pop popleft popitem copy setdefault __getitem__")


class How(Enum):
    VARIABLE = "a variable: the Name that binds it, or the parameter"
    ATTRIBUTE = "an attribute: the Attribute that is set"
    CONTAINER = "an object that it is put into: the expression for that"
    GENERATOR = "whoever iterates over what yields it: the Yield"


@dataclass(frozen=True)
class Holder:
    """``node`` says where."""

    how: How
    node: ast.AST


class Holders:
    """``script.analysis(Holders)``"""

    def __init__(self, script: Script):
        self.script = script
        self.flow, self.calls = script.analysis(Flow), script.analysis(CallGraph)

    def of(self, expr: ast.expr) -> list[Holder]:
        """Who gets the value of ``expr`` where it stands."""
        return [h for e in self._returned(expr) for h in self._at(self.whole(e))]

    def ever(self, expr: ast.expr) -> list[Holder]:
        """Who gets it where it stands, and whoever gets it from there on."""
        return list({h: None for e in self.mentions(expr) for h in self._at(self.whole(e))})

    def after(self, expr: ast.expr) -> list[Holder]:
        """Who still holds it when the statement has run: nothing that is local to past calls."""
        return [h for h in self.ever(expr) if self._lasts(h, function_around(expr))]

    def _lasts(self, holder: Holder, here: ast.AST) -> bool:
        node = holder.node
        if holder.how is How.CONTAINER:
            return not self._definitions(node)  # type: ignore[arg-type] # else they stand beside it
        if holder.how is not How.VARIABLE or isinstance(parent_of(node), ast.comprehension):
            return holder.how is not How.VARIABLE
        home = holder_of(node) if isinstance(node, ast.Name) else function_around(node)
        return home is here or isinstance(home, ast.Module)

    def mentions(self, expr: ast.expr) -> Iterator[ast.expr]:
        """``expr``, and all that may be the same value: calls that return it, loads of variables
        that hold it or something that it is in.
        """
        return with_contents([expr], self._further)

    def _further(self, expr: ast.expr) -> list[ast.expr]:
        whole = self.whole(expr)
        found = self._sites(whole)
        for holder in self._at(whole):
            if holder.how is How.VARIABLE:
                found += self.reads(holder.node)
        return found

    def reads(self, bound: ast.AST) -> list[ast.expr]:
        """The places that read the value which a name (or a parameter) is bound to."""
        name = bound.arg if isinstance(bound, ast.arg) else getattr(bound, "id", "")
        uses = self.flow.definitions(bound).uses(Definition(name, bound))
        return [n for n in uses if is_read(n)]

    def _returned(self, expr: ast.expr) -> Iterator[ast.expr]:
        """``expr``, and the calls of functions that return it."""
        return with_contents([expr], lambda e: self._sites(self.whole(e)))

    def _sites(self, whole: ast.expr) -> list[ast.expr]:
        statement = parent_of(whole)
        function = function_of(statement) if isinstance(statement, ast.Return) else None
        if function is None or isinstance(function, ast.Module):
            return []
        return [*self.calls.sites(function)]

    # ------------------------------------------------------------------------------------ one place
    def whole(self, node: ast.expr) -> ast.expr:
        """The largest expression around ``node`` that is it, a view of it, or something that it is
        in.
        """
        while True:
            node = views_around(node)
            outer = self._around(node)
            if outer is None:
                return node
            node = outer

    def _around(self, node: ast.expr) -> ast.expr | None:
        parent = parent_of(node)
        if isinstance(parent, ast.keyword):
            parent = parent_of(parent)
        match parent:
            case ast.IfExp(test=test) if test is node:
                return None
            case ast.Subscript(value=value, ctx=ast.Load()) if value is node:
                return parent
            case ast.Attribute(attr="data"):
                return parent
            case ast.Attribute(attr=attr) if attr in GIVING:
                return call_of(parent)
            case ast.Call(func=func) if func is not node:
                named = library_names(self.script.values(func))
                return parent if named & PASSING else None
            case ast.expr() if isinstance(parent, DISPLAYS):
                return parent
            case ast.ListComp(elt=elt) | ast.SetComp(elt=elt) | ast.GeneratorExp(elt=elt):
                return parent if elt is node else None
            case ast.DictComp(key=key, value=value):
                return parent if node in (key, value) else None
        return None

    def _at(self, whole: ast.expr) -> Iterator[Holder]:
        match parent_of(whole):
            case ast.Assign(targets=targets, value=value) if value is whole:
                for target in targets:
                    yield from self._by_target(target)
            case ast.AnnAssign(target=target, value=value) if value is whole:
                yield from self._by_target(target)
            case ast.NamedExpr(target=target) as walrus:
                yield from self._by_target(target)
                yield from self._at(self.whole(walrus))
            case ast.For(target=target, iter=over) | ast.AsyncFor(target=target, iter=over) if (
                over is whole
            ):
                yield from self._by_target(target)
            case ast.comprehension(target=target, iter=over) if over is whole:
                yield from self._by_target(target)
            case ast.AugAssign(target=target, value=value) if value is whole:
                if not self._is_tensor(target):
                    yield from self._by_container(target)
            case ast.Yield() | ast.YieldFrom() as gives:
                yield Holder(How.GENERATOR, gives)
            case ast.Call() as call if call.func is not whole:
                yield from self._by_call(call, whole)
            case ast.keyword() as keyword if isinstance(around := parent_of(keyword), ast.Call):
                yield from self._by_call(around, whole)

    def _by_target(self, target: ast.expr) -> Iterator[Holder]:
        match target:
            case ast.Name():
                yield Holder(How.VARIABLE, target)
            case ast.Attribute():
                yield Holder(How.ATTRIBUTE, target)
            case ast.Subscript(value=container) if not self._is_tensor(container):
                yield from self._by_container(container)
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                for element in elements:
                    yield from self._by_target(element)
            case ast.Starred(value=inner):
                yield from self._by_target(inner)

    def _by_container(self, container: ast.expr) -> Iterator[Holder]:
        """Something that it is put into, and the variables that hold that, also of callers."""
        for expr in self.containers(container):
            yield Holder(How.CONTAINER, expr)
            for definition in self._definitions(expr):
                yield Holder(How.VARIABLE, definition.node)

    def containers(self, container: ast.expr) -> Iterator[ast.expr]:
        """The expressions that may be one list or dict, here and at callers."""
        return with_contents([container], self._same_container)

    def _same_container(self, expr: ast.expr) -> Iterator[ast.expr]:
        for definition in self._definitions(expr):
            for given in self.calls.gives(definition):
                named = isinstance(given, TARGETS)
                if given is not None and (named or definition.is_parameter):
                    yield given

    def _definitions(self, expr: ast.expr) -> list[Definition]:
        found = self.flow.reaching(base_of(expr))
        return [d for d in found if isinstance(d.node, (ast.Name, ast.arg))]

    def _by_call(self, call: ast.Call, argument: ast.expr) -> Iterator[Holder]:
        callees = self.calls.callees(call)
        if isinstance(call.func, ast.Attribute) and not callees and call.func.attr in ADDERS:
            if not self._is_tensor(call.func.value):
                yield from self._by_container(call.func.value)
        for callee in callees:
            names = self.calls.given_to(call, callee, argument)
            for parameter in parameters(callee.function):
                if parameter.arg in names:
                    yield Holder(How.VARIABLE, parameter)

    def _is_tensor(self, expr: ast.expr) -> bool:
        """What is put into a tensor is copied."""
        found = self.script.values(expr)
        held = of_kind(found, COLLECTIONS)
        return bool(found) and not held and all_of(found, Tensor)
