"""What to write for an object of the script in the code of another function, and whether it is made
by then.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from autofast.edit.edits import Edits, Parameter
from autofast.flow.callgraph import CallGraph
from autofast.flow.definition_sites import Home, home_of
from autofast.flow.graph import Function as Scope
from autofast.flow.positions import node_in
from autofast.flow.program import graph_of
from autofast.flow.scopes import Variable, binds, defaults, mentions
from autofast.model.events import CallFrame, Stack
from autofast.model.script import Script
from autofast.model.several import surely
from autofast.model.source import ByNode, Nodes, ancestors, at, function_of, source_of, statement_of
from autofast.model.syntax import DEFS, FUNCTIONS, Def, is_read, is_stored
from autofast.model.values import NOTHING, Const, Dict, Thing, Values, of_kind, one
from autofast.rule import Refusal
from autofast.write.plumbing import Way


class Reach:
    """One object on its way from where ``expr`` has it from; ``stacks`` are ways of the script on
    which functions get it.
    """

    def __init__(
        self,
        script: Script,
        what: str,
        expr: ast.expr,
        objects: Iterable[Thing],
        stacks: Iterable[Stack],
    ):
        self.script, self.what, self.expr = script, what, expr
        self.objects = list(objects)
        self.stacks = list(stacks)
        self.suffix = ""
        if isinstance(expr, ast.Subscript):
            self._subscript(expr)
        self.known = _parameters({id(t) for t in self.objects}, self.stacks)
        self._way: Way | None = None
        self._scopes: list[Scope] = []
        self._home: Home | None = None

    def _subscript(self, expr: ast.Subscript) -> None:
        """``loaders["train"]`` goes the way of ``loaders``."""
        tables = of_kind(self.script.values(expr.value), Dict)
        keys = {k for t in tables for k in t.entries if t.get(k) & frozenset(self.objects)}
        key = one(keys)
        fine = isinstance(key, (str, int)) and all(
            key in t.entries and t.get(key) <= frozenset(self.objects) and not t.rest
            for t in tables
        )
        if not tables or len(tables) != len(self.script.values(expr.value)) or not fine:
            raise Refusal(f"which {self.what} `{ast.unparse(expr)}` is on {at(expr)} is not known")
        quote = '"' if isinstance(key, str) and '"' not in key else ""
        self.suffix = f"[{quote}{key}{quote}]" if quote or isinstance(key, int) else f"[{key!r}]"
        self.expr, self.objects = expr.value, list(tables)

    @property
    def edits(self) -> Edits:
        """The parameters and arguments that bring it there."""
        return self._way.edits if self._way is not None else ()

    @property
    def home(self) -> Home:
        if self._home is None:
            found = home_of(self.script, [self.expr], self.objects, self.what)
            if isinstance(found, str):
                raise Refusal(found)
            if len(found.names) != 1:
                raise Refusal(f"the {self.what} has several names: {', '.join(found.names)}")
            self._home = found
        return self._home

    def to(self, scope: Scope) -> str:
        """What to write for it in ``scope``; raises :class:`Refusal`."""
        if scope in self.known:
            return self.known[scope] + self.suffix
        if self._way is None:
            self._way = self._new_way("")
        name = self._name(self._way, scope)
        self._scopes.append(scope)
        if any(binds(e.function, e.name) for e in self._way.edits if isinstance(e, Parameter)):
            taken = frozenset().union(*(source.names for source in self.script.sources))
            free = next(
                n
                for n in (
                    f"{self.what}",
                    f"the_{self.what}",
                    *(f"{self.what}_{k}" for k in range(2, 99)),
                )
                if n not in taken
            )
            self._way = self._new_way(free)
            name = [self._name(self._way, s) for s in self._scopes][-1]
        if isinstance(self._way.origin, Variable) and not any(
            e.function is scope for e in of_kind(self._way.edits, Parameter)
        ):
            for inner in (scope, *of_kind(ancestors(scope), FUNCTIONS)):
                if inner is self._way.origin.scope:
                    break
                if binds(inner, name):
                    raise Refusal(f"`{name}` is something else on {at(inner)}")
        return name + self.suffix

    def _new_way(self, parameter: str) -> Way:
        origin = self.home.beside(self.home.names[0])
        return Way(self.script, origin, self.known, parameter, made=self.home.stores)

    def _name(self, way: Way, scope: Scope) -> str:
        name = way.to(scope)
        if name is None:
            where = at(scope) if not isinstance(scope, ast.Module) else source_of(scope).rel
            raise Refusal(f"the {self.what} cannot be brought to {where}: {way.refusal}")
        return name

    # -------------------------------------------------------------------------------------- in time
    def check_made(self, node: ast.AST, made: Iterable[Stack]) -> None:
        """It is certainly there, and stays what it is, when the script comes to ``node`` on its
        ways ``made``.
        """
        if function_of(node) in self.known:
            return
        stores = self.home.stores
        for stack in made:
            if not any(_done(self.script, s, stores, stack, node, set()) for s in stores):
                line = f"{at(stores[0])}"
                raise Refusal(
                    f"the {self.what} is made on {line}, and whether that is before {at(node)} is not clear: make it first"
                )
        if self.home.scope is not None:
            every = [
                statement_of(n)
                for n in mentions(self.home.scope, self.home.names[0])
                if is_stored(n)
            ]
            if other := next(
                (s for s in every if s not in stores and self.script.reached(s)),
                None,
            ):
                raise Refusal(f"`{self.home.names[0]}` is set again on {at(other)}")


def _parameters(wanted: set[int], stacks: Iterable[Stack]) -> ByNode[str]:
    """The parameters that hold nothing else on any of these ways, by their function."""
    held: ByNode[dict[str, bool]] = {}
    functions: ByNode[Def] = {}
    for stack in stacks:
        for frame in stack:
            if not isinstance(frame, CallFrame) or not isinstance(frame.func.node, DEFS):
                continue
            function = functions.setdefault(frame.func.node, frame.func.node)
            mine = held.setdefault(function, {})
            for name in defaults(function):
                values: Values = frame.given[name].values if name in frame.given else NOTHING
                real = [t for t in values if t != Const(None)]
                mine[name] = mine.get(name, True) and surely(id(t) in wanted for t in real)
    found: ByNode[str] = {}
    for key, params in held.items():
        for name, fine in params.items():
            if fine and all(is_read(n) for n in mentions(functions[key], name)):
                found.setdefault(key, name)
    return found


# ------------------------------------------------------------------------------------------- before
def _done(
    script: Script,
    store: ast.stmt,
    stores: Sequence[ast.stmt],
    stack: Stack,
    node: ast.AST,
    seen: Nodes,
) -> bool:
    """Whether one of ``stores`` was certainly carried out when the script comes to ``node``."""
    if store in seen:
        return False
    seen.add(store)
    function, graph = function_of(store), graph_of(script, store)
    if (here := node_in(function, stack, node)) is not None:
        return graph.one_dominates(stores, statement_of(here))
    if not isinstance(function, DEFS) or not graph.one_dominates(stores, None):
        return False
    if function.name == "__init__":
        return True  # ``self`` is there, and not from inside its __init__
    calls = [statement_of(c) for c in script.analysis(CallGraph).sites(function)]
    return any(_done(script, c, [c], stack, node, seen) for c in calls)
