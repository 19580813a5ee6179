"""Where the script keeps an object: the variable or attribute that it is put into first, and the
statements that do so.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from autofast.flow import callgraph
from autofast.flow.graph import Function
from autofast.flow.positions import nodes_of, place_in, statements_beside
from autofast.flow.scopes import Variable, is_parameter, variables_of
from autofast.model.calls import is_name
from autofast.model.contents import with_contents
from autofast.model.script import Script
from autofast.model.several import grouped
from autofast.model.source import ByNode, Nodes, ancestors, at, function_of, parent_of, statement_of
from autofast.model.syntax import FUNCTIONS, is_stored
from autofast.model.values import Inst, Thing, of_kind


@dataclass(frozen=True)
class Attribute:
    """The attribute ``name`` of every object in ``owners``."""

    name: str
    owners: tuple[Inst, ...]


@dataclass(frozen=True)
class Home:
    """A place that objects are kept in: variables of ``scope``, or attributes of ``owners``;
    ``stores`` put something there.

    ``names`` are the names of the variables or attributes.
    """

    scope: Function | None
    owners: tuple[Inst, ...]
    stores: tuple[ast.stmt, ...]
    names: tuple[str, ...] = ()

    def beside(self, name: str) -> Variable | Attribute:
        """A new value that is kept in the same place."""
        return (
            Variable(name, self.scope) if self.scope is not None else Attribute(name, self.owners)
        )


def home_of(
    script: Script, exprs: Iterable[ast.expr], objects: Iterable[Thing], what: str = "optimizer"
) -> Home | str:
    """The one place where all these expressions have their ``objects`` from; or why there is not
    one.
    """
    search = _Search(script, {id(t) for t in objects}, what)
    for expr in exprs:
        search.follow(expr)
        if search.refusal:
            return search.refusal
    scopes, owners = list(search.scopes.values()), list(search.owners.values())
    if len(scopes) + bool(owners) != 1:
        return f"the {what}s are kept in different places"
    return Home(
        scopes[0] if scopes else None,
        tuple(owners),
        tuple(search.stores.values()),
        tuple(search.names),
    )


class _Search:
    """Follows expressions back to the variables and attributes that their values were put into."""

    def __init__(self, script: Script, wanted: set[int], what: str):
        self.script, self.wanted, self.what = script, wanted, what
        self.scopes: ByNode[Function] = {}
        self.owners: dict[int, Inst] = {}
        self.stores: ByNode[ast.stmt] = {}
        self.names: dict[str, None] = {}
        self.refusal = ""
        self._seen: set[Variable] = set()

    def follow(self, expr: ast.expr) -> None:
        if isinstance(expr, ast.Name):
            self._variable(expr)
        elif isinstance(expr, ast.Attribute):
            self._attribute(expr)
        else:
            self.refusal = f"the {self.what} is `{ast.unparse(expr)}` on {at(expr)}: put it into a variable first"

    def _variable(self, name: ast.Name) -> None:
        variables = variables_of(name)
        variable = variables.of(name)
        if variable is None or not isinstance(variable.scope, Function):
            self.refusal = f"where `{name.id}` comes from is not known"
            return
        if variable in self._seen:
            return
        self._seen.add(variable)
        stores = [
            s
            for n in variables.stores(variable)
            if isinstance(n, ast.Name) and self._puts(s := statement_of(n))
        ]
        if stores:
            self.scopes[variable.scope] = variable.scope
            self.names[name.id] = None
            self.stores.update((s, s) for s in stores)
        elif isinstance(variable.scope, FUNCTIONS) and is_parameter(variable.scope, name.id):
            self._arguments(variable.scope, name.id)
        else:
            self.refusal = f"where `{name.id}` comes from is not known"

    def _arguments(self, function: callgraph.Function, name: str) -> None:
        given = self.script.analysis(callgraph.CallGraph).arguments(function, name)
        if not given:
            self.refusal = f"nothing in this project calls {getattr(function, 'name', 'the lambda')}(), which gets `{name}`"
        for call, expr in given:
            if expr is None:
                self.refusal = f"{at(call)} does not spell out `{name}`"
                return
            if any(id(t) in self.wanted for t in self.script.values(expr)):
                self.follow(expr)

    def _attribute(self, expr: ast.Attribute) -> None:
        owners = of_kind(self.script.values(expr.value), Inst)
        if not owners or len(owners) != len(self.script.values(expr.value)):
            self.refusal = f"what `{ast.unparse(expr.value)}` is on {at(expr)} is not known"
            return
        ids = {id(t) for t in owners}
        stores: list[ast.stmt] = []
        for node in self.script.each(ast.Attribute):
            if node.attr == expr.attr and is_stored(node):
                if any(id(t) in ids for t in self.script.values(node.value)) and self._puts(
                    statement_of(node)
                ):
                    stores.append(statement_of(node))
        if not stores or any(_named_self(s, expr.attr) is None for s in stores):
            self.refusal = f"`{ast.unparse(expr)}` is not set in a method of its own class"
            return
        self.owners.update((id(t), t) for t in owners)
        self.names[expr.attr] = None
        self.stores.update((s, s) for s in stores)

    def _puts(self, statement: ast.stmt) -> bool:
        """It stores one of the objects, not None or a placeholder."""
        value = statement.value if isinstance(statement, (ast.Assign, ast.AnnAssign)) else None
        held = with_contents(self.script.values(value)) if value is not None else ()
        return any(id(t) in self.wanted for t in held)


def _named_self(statement: ast.stmt, attr: str) -> str | None:
    """``self`` in ``self.attr = ...`` inside a method."""
    function = function_of(statement)
    if (
        not isinstance(function, ast.FunctionDef)
        or not isinstance(parent_of(function), ast.ClassDef)
        or not function.args.args
    ):
        return None
    this = function.args.args[0].arg
    targets = (
        statement.targets
        if isinstance(statement, ast.Assign)
        else [getattr(statement, "target", None)]
    )
    for target in (t for outer in targets if outer is not None for t in ast.walk(outer)):
        if (
            isinstance(target, ast.Attribute)
            and target.attr == attr
            and is_name(target.value, this)
        ):
            return this
    return None


def after_all(stores: Iterable[ast.stmt], busy: Nodes) -> list[ast.stmt]:
    """The statements after which all of ``stores`` (in one function) are done, one for each
    function.

    What is put there must not depend on a condition, so an ``if`` is left unless it holds something
    of ``busy``.
    """
    found: ByNode[ast.stmt] = {}
    by_scope = grouped((function_of(store), store) for store in stores)
    for group in by_scope.values():
        lifted = [_lifted(s, busy) for s in group]
        last = _last(lifted)
        for statement in [last] if last is not None else lifted:
            found[statement] = statement
    return list(found.values())


def _lifted(statement: ast.stmt, busy: Nodes) -> ast.stmt:
    while (
        isinstance(outer := parent_of(statement), (ast.If, ast.Try))
        and not nodes_of([outer]) & busy
    ):
        statement = outer
    return statement


def _last(statements: list[ast.stmt]) -> ast.stmt | None:
    """The last of them in the innermost block that holds them all."""
    for outer in [statements[0], *of_kind(ancestors(statements[0]), ast.stmt)]:
        here = statements_beside(outer)
        places = [place_in(here, s) for s in statements]
        if here and all(p >= 0 for p in places):
            return here[max(places)]
    return None
