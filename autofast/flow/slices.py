"""Backward slices: the variables and attributes that the value of an expression may be made of, in
any order of statements.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from autofast.flow.callgraph import CallGraph, Function
from autofast.flow.holders import Holders, How
from autofast.flow.scopes import Variable, own_nodes, variables_of
from autofast.model.calls import arguments_of, call_of
from autofast.model.script import Script
from autofast.model.several import surely
from autofast.model.source import function_of, nodes_in, parent_of, statement_of
from autofast.model.syntax import ASSIGNMENTS, VARIABLES
from autofast.model.values import Bound, Cls, Dict, Inst, Method, Ref, Seq, Unknown, any_of, begins

CONTAINERS = (ast.Tuple, ast.List, ast.Starred)
Attribute = tuple[str, Cls | None]


@dataclass
class Slice:
    """What some expressions are made of: ``variables``, and ``attributes``, each by its name and
    the class of its object (None: of whatever object).
    """

    variables: set[Variable] = field(default_factory=set)
    attributes: set[Attribute] = field(default_factory=set)


class Slices:
    """``script.analysis(Slices)``"""

    def __init__(self, script: Script):
        self.script, self.calls = script, script.analysis(CallGraph)
        # What is put into attributes, by their names.
        self._given: dict[str, list[tuple[set[Attribute], list[ast.expr]]]] = defaultdict(list)
        own = (s for c in script.each(ast.ClassDef) for s in c.body if isinstance(s, ASSIGNMENTS))
        self._of_classes = {n.id for s in own for n in nodes_in(s, ast.Name)}
        self._properties: dict[str, list[Function]] = defaultdict(list)
        for function in script.each(ast.FunctionDef):
            if function.decorator_list:
                self._properties[function.name].append(function)
        for node in script.each(ast.Attribute):
            if given := put_into(node):
                self._given[node.attr].append((self._attributes(node), given))

    def holds(self, found: Slice, target: ast.expr) -> bool:
        """Whether a variable or an attribute is in a slice."""
        if isinstance(target, ast.Attribute):
            return _meet(self._attributes(target), found.attributes)
        return isinstance(target, ast.Name) and variables_of(target).of(target) in found.variables

    def _attributes(self, node: ast.Attribute) -> set[Attribute]:
        known = self.script.values(node.value)
        if node.attr in self._of_classes or not surely(isinstance(t, Inst) for t in known):
            return {(node.attr, None)}
        return {(node.attr, t.cls) for t in known if isinstance(t, Inst)}

    def _held(self, cls: Cls, found: Slice) -> Iterator[ast.expr]:
        for name, entries in self._given.items():
            for theirs, given in entries:
                new = (theirs & {(name, cls), (name, None)}) - found.attributes
                found.attributes |= new
                yield from given if new else ()

    def of(self, exprs: Iterable[ast.expr], given: Iterable[Variable] = ()) -> Slice:
        """``given``: variables that are not followed any further."""
        found, seen = Slice({*given}), set[ast.AST]()
        todo: list[ast.expr] = [*exprs]
        while todo:
            expr = todo.pop()
            for node in ast.walk(expr):
                if node not in seen:
                    seen.add(node)
                    todo += self._below(node, found)
        return found

    def _below(self, node: ast.AST, found: Slice) -> Iterator[ast.expr]:
        """What the value of a node is made of besides the nodes in it."""
        if isinstance(node, VARIABLES) and not self._is_part(node):
            for thing in self.script.values(node):
                if isinstance(thing, Inst):  # all that it holds
                    yield from self._held(thing.cls, found)
        if isinstance(node, ast.Name):
            table = variables_of(node)
            variable = table.of(node)
            known = variable in found.variables or self.script.must_be(node, Ref)
            if variable is not None and not known:
                found.variables.add(variable)
                for place in (*table.stores(variable), *table.loads(variable)):
                    yield from self._bound(place)
                for load in table.loads(variable):
                    yield from self._other_names(load)
        elif isinstance(node, ast.Attribute):
            new = self._attributes(node) - found.attributes
            if new and not self._is_method(node):
                found.attributes |= new
                for theirs, given in self._given[node.attr]:
                    yield from given if _meet(theirs, new) else ()
                for function in self._properties[node.attr]:
                    yield from self._given_back(function)
        elif isinstance(node, ast.Call):
            for callee in self.calls.callees(node):
                yield from self._given_back(callee.function)

    def _bound(self, place: ast.AST) -> Iterator[ast.expr]:
        if not isinstance(place, ast.arg):
            # A method of the project's has parameters, which are followed by themselves.
            outer = parent_of(place)
            call = call_of(outer) if outer is not None else None
            ours = call is not None and self.script.must_be(call.func, Bound)
            if isinstance(place, ast.expr) and not ours:
                yield from put_into(place)
            return
        function = function_of(place)
        args = getattr(function, "args", None)
        yield from (d for d in [*args.defaults, *args.kw_defaults] if d is not None) if args else ()
        for entry in self.calls.entries(function) if not isinstance(function, ast.Module) else ():
            if isinstance(entry, ast.Call):
                yield from arguments_of(entry)

    def _other_names(self, load: ast.Name) -> Iterator[ast.expr]:
        """What else is a name of the list or object that a variable holds, so that what is put in
        there is put in here: ``b = a``, ``f(a)``.
        """
        known = self.script.values(load)
        if known and not any_of(known, Seq, Dict, Inst, Unknown):
            return
        holders = self.script.analysis(Holders)
        for holder in holders.at(load):
            if holder.how is How.VARIABLE:
                yield from holders.reads(holder.node)
            elif isinstance(holder.node, ast.Attribute):
                yield holder.node

    def _given_back(self, function: Function) -> Iterator[ast.expr]:
        """What a function returns or yields."""
        yield from self.calls.results(function)
        yielded = (n for n in own_nodes(function) if isinstance(n, (ast.Yield, ast.YieldFrom)))
        yield from (n.value for n in yielded if n.value is not None)

    def _is_part(self, node: ast.expr) -> bool:
        """Whether an object is asked for one of its attributes, or called by what is known."""
        call = call_of(node)
        return isinstance(parent_of(node), ast.Attribute) or (
            call is not None and bool(self.calls.callees(call))
        )

    def _is_method(self, node: ast.Attribute) -> bool:
        return self.script.must_be(node, Method, Bound, Ref)


def _meet(some: set[Attribute], others: set[Attribute]) -> bool:
    """Whether two attributes may be one."""
    return any(a == b and (x is y or None in (x, y)) for a, x in some for b, y in others)


def put_into(place: ast.expr) -> list[ast.expr]:
    """What a statement puts into a variable or attribute at ``place``, or into the object that it
    holds: ``x = v``, ``x[0] = v``, ``x.append(v)``.
    """
    here: ast.AST = place
    outer = parent_of(place)
    while isinstance(outer, (ast.Subscript, *CONTAINERS)):
        here = outer
        outer = parent_of(here)
    match outer:
        case ast.Assign(targets=targets, value=value) if here in targets:
            return [value]
        case ast.AugAssign(target=target, value=value) if target is here:
            return [value]
        case ast.AnnAssign(target=target, value=ast.expr() as value) if target is here:
            return [value]
        case ast.NamedExpr(target=target, value=value) if target is here:
            return [value]
        case ast.For(target=target, iter=over) | ast.comprehension(target=target, iter=over) if (
            target is here
        ):
            return [over]
        case ast.withitem(context_expr=value, optional_vars=target) if target is here:
            return [value]
        case ast.Attribute():
            given: list[ast.expr] = []
            while isinstance(outer, ast.Attribute):  # also `x.setdefault(k, []).append(v)`
                if (made := call_of(outer)) is None:
                    break
                call: ast.expr = made
                given += arguments_of(made)
                outer = parent_of(call)
                while isinstance(outer, ast.Subscript) and outer.value is call:
                    call, outer = outer, parent_of(outer)
            return given if isinstance(statement_of(place), ast.Expr) else []
    return []


def is_unused(script: Script, expr: ast.expr, seen: frozenset[ast.AST] = frozenset()) -> bool:
    """Whether the value of ``expr`` ends in variables of which nothing else is made but such
    variables, so that nobody ever sees it.
    """
    statement = statement_of(expr)
    if statement in seen:
        return True
    match statement:
        case ast.Expr(value=value):
            return value is expr
        case ast.Assign(targets=[ast.Name() as name], value=value):
            pass
        case ast.AugAssign(target=ast.Name() as name, value=value):
            pass
        case _:
            return False
    calls = [n for n in nodes_in(value, ast.Call) if n is not expr]
    if not all(_asks_a_clock(script, call) for call in calls):
        return expr is value  # what else is called there may show it
    table = variables_of(name)
    variable = table.of(name)
    if variable is None or (isinstance(variable.scope, ast.Module) and len(script.sources) > 1):
        return False  # another file may read it
    return all(
        is_unused(script, load, seen | {statement})
        for load in table.loads(variable)
        if statement_of(load) is not statement
    )


def _asks_a_clock(script: Script, call: ast.Call) -> bool:
    return surely(begins(t, Ref, ("time.", "timeit.")) for t in script.called(call))
