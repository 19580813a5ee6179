"""Whose variable a name is, by Python's own rules: functions, classes and comprehensions have
scopes, ``global`` and ``nonlocal`` lead out of them.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from autofast.model.names import first_part
from autofast.model.several import of_kind
from autofast.model.source import ByNode, ancestors, children, nodes_in, parent_of, source_of, walk
from autofast.model.syntax import (
    COMPREHENSIONS,
    DEFS,
    FUNCTIONS,
    Def,
    is_read,
    positional_parameters,
)

Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
Scope = ast.Module | Def | ast.Lambda | ast.ClassDef | Comprehension
Expressions = list[ast.expr | None]  # None where one is not written down
WITH_BODIES = (*FUNCTIONS, ast.ClassDef)
SCOPES = (ast.Module, *WITH_BODIES, *COMPREHENSIONS)
TYPE_PARAMETERS = tuple(
    getattr(ast, n) for n in ("TypeVar", "ParamSpec", "TypeVarTuple") if hasattr(ast, n)
)
NAMED = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.ExceptHandler,
    ast.MatchAs,
    ast.MatchStar,
    *TYPE_PARAMETERS,
)
STAR = "*"  # the name that ``from m import *`` binds: any


# --------------------------------------------------------------------------------------- parameters
def parameters(function: ast.AST) -> list[ast.arg]:
    """The parameters of a function, ``*args`` and ``**kwargs`` last; none of anything else."""
    spec = getattr(function, "args", None)
    if not isinstance(spec, ast.arguments):
        return []
    return [
        *spec.posonlyargs,
        *spec.args,
        *spec.kwonlyargs,
        *(a for a in (spec.vararg, spec.kwarg) if a is not None),
    ]


def is_parameter(function: ast.AST, name: str) -> bool:
    return any(a.arg == name for a in parameters(function))


def defaults(function: ast.AST | None) -> dict[str, ast.expr | None]:
    """The parameters of a function (not ``*args``, ``**kwargs``), each with its default or None."""
    spec = getattr(function, "args", None)
    if not isinstance(spec, ast.arguments):
        return {}
    positional = positional_parameters(spec)
    given: Expressions = [
        *[None] * (len(positional) - len(spec.defaults)),
        *spec.defaults,
    ]
    return {
        p.arg: d
        for p, d in (
            *zip(positional, given, strict=True),
            *zip(spec.kwonlyargs, spec.kw_defaults, strict=True),
        )
    }


# ------------------------------------------------------------------------------ the code of a scope
def own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run as code of a scope, in the order of the text; kept, as :func:`walk` does.

    Functions and classes inside are given with their decorators, defaults and bases, but without
    their bodies and parameters. Comprehensions, which run in place, are given with all of theirs.
    For a function itself: its parameters, then its body.
    """
    if not hasattr(scope, "_af_children"):
        return _own_nodes(scope)
    known: list[ast.AST] | None = getattr(scope, "_af_own", None)
    if known is None:
        known = scope._af_own = list(_own_nodes(scope))  # type: ignore[attr-defined]
    return iter(known)


def _own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    yield from parameters(scope)
    body = scope.body if isinstance(scope, (ast.Module, *WITH_BODIES)) else [*children(scope)]
    todo: list[ast.AST] = [body] if isinstance(body, ast.AST) else [*reversed(body)]
    while todo:
        node = todo.pop()
        yield node
        todo += reversed(
            [*(outside_parts(node) if isinstance(node, WITH_BODIES) else children(node))]
        )


def outside_parts(
    node: Def | ast.Lambda | ast.ClassDef,
) -> Iterator[ast.AST]:
    """What the scope around a definition evaluates: decorators, defaults, annotations, bases."""
    yield from getattr(node, "decorator_list", ())
    if isinstance(node, ast.ClassDef):
        yield from (*node.bases, *node.keywords)
        return
    yield from node.args.defaults
    yield from (d for d in node.args.kw_defaults if d is not None)
    yield from (a.annotation for a in parameters(node) if a.annotation is not None)
    if not isinstance(node, ast.Lambda) and node.returns is not None:
        yield node.returns


def bound_by(node: ast.AST) -> list[str]:
    """The names that a node binds (or deletes) by itself; :data:`STAR` for ``from m import *``."""
    if isinstance(node, ast.Name):
        return [node.id] if not is_read(node) else []
    if isinstance(node, ast.arg):
        return [node.arg]
    if isinstance(node, ast.alias):
        return [first_part(node.asname or node.name)] if node.asname is None else [node.asname]
    if isinstance(node, ast.MatchMapping):
        return [node.rest] if node.rest else []
    if isinstance(node, NAMED):
        return [node.name] if node.name else []
    return []


def stored_in(node: ast.AST) -> set[str]:
    """Names that code in ``node`` may bind or delete, whosever they are (parameters left out)."""
    return {name for n in walk(node) if not isinstance(n, ast.arg) for name in bound_by(n)}


def loaded_in(node: ast.AST) -> set[str]:
    """Names that code in ``node`` reads, whosever they are."""
    return {n.id for n in nodes_in(node, ast.Name) if is_read(n)}


# ------------------------------------------------------------------------------------------- scopes
def scope_of(node: ast.AST) -> Scope:
    """The scope in which ``node`` is evaluated; for something that binds a name, the scope it binds
    it in (but for ``global``).

    A decorator, a default and a base class belong to the scope around their function or class, the
    first iterable of a comprehension to the one around it, and so does the target of ``:=``. A
    module is its own scope.
    """
    here, parent = node, parent_of(node)
    walrus = isinstance(parent, ast.NamedExpr) and parent.target is node
    while parent is not None:
        if isinstance(parent, ast.Lambda):
            if here is parent.body or (isinstance(node, ast.arg) and here is parent.args):
                return parent
        elif isinstance(parent, DEFS):
            if isinstance(here, (ast.stmt, *TYPE_PARAMETERS)) or (
                isinstance(node, ast.arg) and here is parent.args
            ):
                return parent
        elif isinstance(parent, ast.ClassDef):
            if isinstance(here, (ast.stmt, *TYPE_PARAMETERS)):
                return parent
        elif isinstance(parent, COMPREHENSIONS) and not walrus:
            if not (here is parent.generators[0] and _in_iter(node, parent.generators[0])):
                return parent
        elif isinstance(parent, ast.Module):
            return parent
        here, parent = parent, parent_of(parent)
    assert isinstance(node, ast.Module)
    return node


def _in_iter(node: ast.AST, generator: ast.comprehension) -> bool:
    here: ast.AST | None = node
    while here is not None and here is not generator:
        if here is generator.iter:
            return True
        here = parent_of(here)
    return False


@dataclass
class _Table:
    """The variables of a scope: what it binds itself, and what it declares to be another's."""

    bound: set[str] = field(default_factory=set)
    globals: set[str] = field(default_factory=set)
    nonlocals: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Variable:
    """A variable of a file: its name and the scope that owns it."""

    name: str
    scope: Scope


class Variables:
    """All variables of one file: who owns them, where they are bound and where they are read."""

    def __init__(self, tree: ast.Module):
        self.tree = tree
        self._tables: ByNode[_Table] = defaultdict(_Table)
        self._stores: dict[Variable, list[ast.AST]] = defaultdict(list)
        self._loads: dict[Variable, list[ast.Name]] = defaultdict(list)
        self._of: ByNode[Variable | None] = {}  # by the nodes of this tree
        found: list[tuple[str, ast.AST, Scope]] = []
        read: list[tuple[ast.Name, Scope]] = []
        for node in _in_order(tree):
            names = bound_by(node)
            if names:
                found.append((names[0], node, scope_of(node)))
            elif isinstance(node, ast.Name):
                read.append((node, scope_of(node)))
            elif isinstance(node, ast.Global):
                self._tables[scope_of(node)].globals.update(node.names)
            elif isinstance(node, ast.Nonlocal):
                self._tables[scope_of(node)].nonlocals.update(node.names)
        for name, _, scope in found:
            table = self._tables[scope]
            if name in table.globals:
                self._tables[tree].bound.add(name)
            elif name not in table.nonlocals:
                table.bound.add(name)
        for name, node, scope in found:
            self._of[node] = variable = self.find(name, scope)
            if variable is not None and not _is_bare(node):
                self._stores[variable].append(node)
        for load, scope in read:
            self._of[load] = variable = self.find(load.id, scope)
            if variable is not None:
                self._loads[variable].append(load)

    def find(self, name: str, scope: Scope) -> Variable | None:
        """The variable that ``name`` is in ``scope``; None for a builtin, or what nothing binds."""
        here: Scope | None = scope
        while here is not None:
            table = self._tables.get(here, _NONE)
            if name in table.globals:
                here = self.tree
                table = self._tables.get(here, _NONE)
            if (
                (here is scope or not isinstance(here, ast.ClassDef))
                and name not in table.nonlocals
                and name in table.bound
            ):
                return Variable(name, here)
            if here is self.tree:
                return Variable(name, here) if STAR in table.bound else None
            here = scope_of(here)
        return None

    def of(self, node: ast.AST) -> Variable | None:
        """The variable that a node names or binds; None for a builtin, or what nothing binds."""
        try:
            return self._of[node]
        except KeyError:  # it binds no name, or was made since
            names = [node.id] if isinstance(node, ast.Name) else bound_by(node)
            return self.find(names[0], scope_of(node)) if names else None

    def stores(self, variable: Variable) -> list[ast.AST]:
        """Everything in the file that binds or deletes a variable, in any scope; for a module's
        also what may: ``from m import *``.
        """
        own = self._stores.get(variable, [])
        stars = (
            self._stores.get(Variable(STAR, self.tree), [])
            if variable.scope is self.tree and variable.name != STAR
            else []
        )
        return [*own, *stars]

    def loads(self, variable: Variable) -> list[ast.Name]:
        """Every place in the file that reads a variable, in any scope."""
        return self._loads.get(variable, [])

    def bound(self, scope: Scope) -> frozenset[str]:
        """The names of the variables that a scope owns."""
        return frozenset(self._tables.get(scope, _NONE).bound)

    def of_others(self, scope: ast.AST) -> frozenset[str]:
        table = self._tables.get(scope, _NONE)
        return frozenset(table.globals | table.nonlocals)


_NONE = _Table()


def _is_bare(node: ast.AST) -> bool:
    """``x: int`` makes a variable and gives it no value."""
    parent = parent_of(node)
    return isinstance(parent, ast.AnnAssign) and parent.target is node and parent.value is None


def _in_order(tree: ast.AST) -> Iterator[ast.AST]:
    todo = [tree]
    while todo:
        node = todo.pop()
        yield node
        todo += reversed(list(children(node)))


def variables_of(node: ast.AST) -> Variables:
    """The variables of the file that ``node`` stands in, found once."""
    tree = source_of(node).tree
    known: Variables | None = getattr(tree, "_af_variables", None)
    if known is None:
        known = tree._af_variables = Variables(tree)  # type: ignore[attr-defined]
    return known


# ---------------------------------------------------------------------------------------- questions
def owner(name: ast.AST) -> Scope | None:
    """The scope whose variable a name is; None for a builtin, or what nothing in the file binds."""
    variable = variables_of(name).of(name)
    return variable.scope if variable is not None else None


def binds(scope: ast.AST, name: str) -> bool:
    """Whether a scope has a variable of this name: a parameter, or bound in it and its own."""
    return name in variables_of(scope).bound(scope)  # type: ignore[arg-type]


def declared(scope: ast.AST) -> frozenset[str]:
    """Names that a scope declares ``global`` or ``nonlocal``."""
    return variables_of(scope).of_others(scope)


def mentions(scope: ast.AST, name: str) -> list[ast.Name]:
    """Every name in ``scope`` that stands for what ``name`` is in its code, also in scopes inside
    that share it, in the order of the text.
    """
    table = variables_of(scope)
    variable = table.find(name, scope)  # type: ignore[arg-type]
    if variable is None:
        return []
    found = [
        *table.loads(variable),
        *of_kind(table.stores(variable), ast.Name),
    ]
    here = [n for n in found if scope in ancestors(n)]
    return sorted(here, key=lambda n: (n.lineno, n.col_offset))


def is_local(name: ast.Name) -> bool:
    """Whether a name is a variable, but no parameter, of the function (or module) that it stands
    in, shared with no other by ``nonlocal``.
    """
    here: Scope = scope_of(name)
    while isinstance(here, COMPREHENSIONS):
        here = scope_of(here)
    return owner(name) in (here, scope_of(name)) and not is_parameter(here, name.id)
