"""The flow of a whole script: graphs and definitions of all its functions, each made once and with
what the model knows of them.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator

from autofast.flow.build import is_try
from autofast.flow.callgraph import code_of
from autofast.flow.cfg import Graph
from autofast.flow.defuse import Definition, DefUse
from autofast.flow.graph import Function
from autofast.flow.importers import Importers
from autofast.flow.positions import common_frames
from autofast.flow.scopes import STAR, is_parameter, own_nodes, owner, scope_of, variables_of
from autofast.model.contents import each_once
from autofast.model.events import LoopFrame, Stack
from autofast.model.script import Script
from autofast.model.several import all_known, surely, wordset
from autofast.model.source import ByNode, is_at_top, is_same_function, source_of, statement_of
from autofast.model.syntax import IMPORTS, LOOPS, WITHS, is_read
from autofast.model.values import Ext, Func, Inst, Thing, Unknown, Where, any_of, is_named

SWALLOWING = wordset("contextlib.suppress contextlib.ExitStack contextlib.AsyncExitStack")


class Flow:
    """``script.analysis(Flow)``: graph and definitions of the function that a node runs in."""

    def __init__(self, script: Script):
        self.script = script
        self.swallows = _swallowing(script)
        self._graphs: ByNode[Graph] = {}
        self._definitions: ByNode[DefUse] = {}

    def graph(self, node: ast.AST) -> Graph:
        function = function_around(node)
        if function not in self._graphs:
            self._graphs[function] = Graph(function, self.swallows)
        return self._graphs[function]

    def definitions(self, node: ast.AST) -> DefUse:
        """Definitions and uses in the function that runs ``node``."""
        graph = self.graph(node)
        if graph.function not in self._definitions:
            self._definitions[graph.function] = DefUse(
                graph.function, graph, self.exported(graph.function)
            )
        return self._definitions[graph.function]

    def reaching(self, load: Where) -> frozenset[Definition]:
        """The definitions that may have given a variable the value it has at ``load``; none for
        other nodes.
        """
        known = isinstance(load, ast.Name)
        return self.definitions(load).reaching(load) if known else frozenset()  # type: ignore[arg-type]

    def definition(self, load: Where) -> Definition | None:
        """The only definition that may have given a variable its value; None for other nodes."""
        found = self.reaching(load)
        return next(iter(found)) if len(found) == 1 else None

    def origins(self, load: ast.Name) -> frozenset[Definition]:
        """Those that first gave a variable the object that it is here."""
        return self.definitions(load).origins(load)

    def value(self, load: Where) -> ast.expr | None:
        """What the only definition of a variable gives it; None where that is not written down."""
        made = self.definition(load)
        return None if made is None else made.value

    def values(self, load: Where) -> list[ast.expr]:
        """What all definitions of a variable give it; none where one does not write that down."""
        return all_known(made.value for made in self.reaching(load))

    def made_of(self, todo: list[ast.expr]) -> Iterator[ast.AST]:
        """The nodes of expressions, and of what the variables in them stand for."""
        for expr in each_once(todo):
            for node in ast.walk(expr):
                yield node
                if isinstance(node, ast.Name) and is_read(node):
                    todo += [d.value for d in self.reaching(node) if d.value is not None]

    def is_made_by(self, expr: ast.expr, is_one: Callable[[ast.expr], bool]) -> bool:
        """Whether an expression is such a one, or a variable made by nothing but such ones."""
        if not isinstance(expr, ast.Name):
            return is_one(expr)
        made = self.origins(expr)
        return surely(d.value is not None and is_one(d.value) for d in made)

    def value_of_its_own(self, load: ast.Name) -> ast.expr | None:
        """The same of a variable that is read at this place alone."""
        made = self.definition(load)
        alone = made is not None and len(self.definitions(load).uses(made)) == 1
        return made.value if made is not None and alone else None

    def is_same(self, one: Where, other: Where) -> bool:
        """Whether both read one variable, with the same value."""
        names = isinstance(one, ast.Name) and isinstance(other, ast.Name) and one.id == other.id
        return names and self.reaching(one) == self.reaching(other)

    def is_given(self, load: Where) -> bool:
        """Whether a variable is a parameter, whose value the callers alone decide."""
        return surely(made.is_parameter for made in self.reaching(load))

    def means_the_same(self, load: ast.Name, place: ast.stmt) -> bool:
        """Whether a name has at another place of the file the value that is read here: its variable
        has one definition, which runs before, or the last of several.
        """
        variables = variables_of(place)
        variable = variables.of(load) if source_of(load) is source_of(place) else None
        if variable is None or variables.find(variable.name, scope_of(place)) != variable:
            return False
        stores = variables.stores(variable)
        if is_parameter(variable.scope, variable.name):
            return not any_of(stores, ast.Name)
        own = [s for s in stores if getattr(s, "name", "") != STAR] or stores
        last = Definition(load.id, own[0]) if len(own) == 1 else self.definition(load)
        if last is None or last.statement is None:
            return False
        made = last.statement
        for other in {*map(statement_of, stores)} - {made}:  # `from models import *` above it
            if not is_same_function(other, made) or self.graph(made).may_follow(other, made):
                return False
        if not is_same_function(made, place):
            return is_at_top(made) and not isinstance(made, LOOPS)
        return made is not place and self.graph(place).dominates(made, place)

    def may_follow(self, later: ast.AST, way: Stack, earlier: ast.AST, other_way: Stack) -> bool:
        """Whether ``later`` may run after ``earlier``, each on its way through calls and loops."""
        depth = common_frames(way, other_way)
        if any_of(way[:depth], LoopFrame):
            return True
        ways = (
            [*(f.node for f in way[depth:]), later],
            [*(f.node for f in other_way[depth:]), earlier],
        )
        while len(ways[0]) > 1 and len(ways[1]) > 1 and ways[0][0] is ways[1][0]:
            ways[0].pop(0)  # the two arms of one statement
            ways[1].pop(0)
        return self.graph(ways[1][0]).may_follow(ways[0][0], ways[1][0])

    def exported(self, function: Function) -> Iterable[str] | None:
        """Nothing reads the variables of the entry file after its end, unless another file of the
        project imports it.
        """
        if function is not self.script.entry.tree or self.script.unread:
            return None
        others = (s for s in self.script.sources if s is not self.script.entry)
        imports = (n for s in others for n in s.nodes if isinstance(n, IMPORTS))
        return None if any(self._imports_entry(n) for n in imports) else ()

    def is_exported(self, function: ast.AST) -> bool:
        """Whether it is a file whose variables other files may read."""
        return isinstance(function, ast.Module) and self.exported(function) is None

    def _imports_entry(self, node: ast.Import | ast.ImportFrom) -> bool:
        """Whether an import may be one of the entry: that of ``models.train`` is none of a
        ``train.py`` beside the package.
        """
        level, base = getattr(node, "level", 0), getattr(node, "module", None)
        names = [a.name for a in node.names]
        if isinstance(node, ast.ImportFrom):
            names = [".".join(filter(None, (base, name))) for name in (None, *names)]
        entry = self.script.entry.path
        mine = [n for n in names if entry.stem in n.split(".")]
        found = [self.script.analysis(Importers).module(source_of(node), n, level) for n in mine]
        known = [path for path in found if path is not None]
        beside = not level and any(n.split(".")[0] == entry.stem for n in mine)
        return bool(mine) and (beside or not known or entry.resolve() in known)


def graph_of(script: Script, node: ast.AST) -> Graph:
    """The control flow of the function that runs ``node``."""
    return script.analysis(Flow).graph(node)


def definitions_of(script: Script, node: ast.AST) -> DefUse:
    """Definitions and uses in the function that runs ``node``."""
    return script.analysis(Flow).definitions(node)


def definitions_at(script: Script, load: ast.Name) -> frozenset[Definition]:
    """Those that may have given a variable the value that it has at ``load``."""
    return script.analysis(Flow).reaching(load)


def function_around(node: ast.AST) -> Function:
    """The function, lambda or module whose call runs ``node``; for a function its own code, for a
    default or decorator the one around.
    """
    if isinstance(node, Function):
        return node
    here = scope_of(node)
    while not isinstance(here, Function):
        here = scope_of(here)
    return here


def holder_of(name: ast.Name) -> Function:
    """The function or module that a variable belongs to, also one of a class or comprehension in
    it; the module for a builtin.
    """
    return function_around(owner(name) or source_of(name).tree)


def _swallowing(script: Script) -> frozenset[ast.AST]:
    """The ``with`` statements that may end an exception."""
    found = (n for n in script.nodes if isinstance(n, WITHS))
    return frozenset(
        n for n in found if any(may_swallow(script, item.context_expr) for item in n.items)
    )


def may_swallow(script: Script, context: ast.expr) -> bool:
    """Whether a context manager may end an exception of its block."""
    return any(_swallows(script, t, context) for t in script.values(context))


def _swallows(script: Script, thing: Thing, context: ast.expr) -> bool:
    if isinstance(thing, Inst):
        exits = [t for name in ("__exit__", "__aexit__") for t in thing.cls.find(name) or ()]
        return any(not isinstance(t, Func) or _may_answer_true(t.node) for t in exits)
    # A generator function of the project.
    if is_named(thing, Ext, "contextlib.manager"):
        functions = [f.function for t in script.called(context) for f in code_of(t)]
        return not functions or any(
            is_try(n) and n.handlers for f in functions for n in own_nodes(f)
        )
    return isinstance(thing, Unknown) or is_named(thing, Ext, SWALLOWING)


def _may_answer_true(function: ast.AST) -> bool:
    results = [
        n.value for n in own_nodes(function) if isinstance(n, ast.Return) and n.value is not None
    ]
    return isinstance(function, ast.Lambda) or any(
        not (isinstance(v, ast.Constant) and not v.value) for v in results
    )
