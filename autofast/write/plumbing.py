"""Brings a value that is made in one place to others that need it, along the calls of the script.

The value is a variable of some function or module, or an attribute of some objects. Where it is
needed, it may be seen already (in the same function or one inside it, at module level of the same
file, through ``self``); where it is not, it becomes a parameter of that function, and every call of
the function passes it on, which may make it a parameter of the callers too::

    way = Way(script, Variable("scaler", main)) if isinstance(name := way.to(train), str): ...   #
    what to write for the value in train() way.refusal                                      # or why
    it cannot get there way.edits                                        # the parameters and
    arguments that bring it there

All calls must be known: a function that is also handed around as a value (a callback, the target of
a process) is refused. Other scripts, tests and notebooks of the project, which call it as it was,
go on to: the new parameter has a default. Where the function can do nothing without the value, it
is not changed when one of them uses it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping

from autofast.edit.edits import Edit, Edits, Keyword, Parameter, Written
from autofast.flow.callgraph import CallGraph
from autofast.flow.definition_sites import Attribute
from autofast.flow.graph import Function
from autofast.flow.importers import Importers
from autofast.flow.positions import in_main_guard
from autofast.flow.scopes import Variable, variables_of
from autofast.model.script import Script
from autofast.model.several import of_kind, surely
from autofast.model.source import (
    ByNode,
    Source,
    ancestors,
    at,
    function_of,
    nodes_in,
    parent_of,
    source_of,
)
from autofast.model.syntax import DEFS, FUNCTIONS, Def, positional_names, positional_parameters
from autofast.model.values import Cls, Inst

Plain = Callable[[Source], Written]


class Way:
    """The way of one value from where it is made to all places that need it."""

    def __init__(
        self,
        script: Script,
        origin: Variable | Attribute,
        known: Mapping[ast.AST, str] | None = None,
        parameter: str = "",
        plain: Plain | str = "",
        made: Iterable[ast.AST] = (),
        alone: bool = False,
    ):
        """``known`` names the value in functions (by their node) that have it already, as
        a parameter; ``parameter`` is the name of new ones, where it is another than that of the
        value. ``plain`` is the default of a new parameter, with which the function does what it did
        before: an expression, or what gives one for a file, with the edits that it needs there;
        empty where there is none. ``made`` is where the value is made: where that is below the main
        guard, its name means nothing to those who import a function that reads it. ``alone``: a
        function that someone else calls, too, is not given the value, as its default would not do
        for them."""
        self.script, self.origin = script, origin
        self.parameter = parameter or origin.name
        self.plain, self.alone = plain, alone
        places = list(made)
        self._guarded = bool(places) and all(map(in_main_guard, places))
        self.graph = script.analysis(CallGraph)
        self.refusal = ""
        self._names: ByNode[str] = dict(known or {})
        self._edits: dict[tuple[object, ...], Edit] = {}

    @property
    def edits(self) -> Edits:
        """The parameters and arguments that all calls of :meth:`to` so far ask for."""
        return tuple(self._edits.values())

    def to(self, scope: Function) -> str | None:
        """What to write for the value in the code of ``scope``; None, with :attr:`refusal`, where
        it cannot get there.
        """
        if scope in self._names:
            return self._names[scope]
        seen = self._seen_in(scope)
        if seen is not None and self._is_hidden(scope):
            seen = self._rather_through(scope, seen)
        elif seen is None and not self.refusal:
            seen = self._through(scope)
        if seen is not None:
            self._names[scope] = seen
        return seen

    # ---------------------------------------------------------------------------- seen without help
    def _seen_in(self, scope: Function) -> str | None:
        around = [
            scope,
            *(
                a
                for a in ancestors(scope)
                if isinstance(a, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Module))
            ),
        ]
        if isinstance(self.origin, Variable):
            return self.origin.name if self.origin.scope in around else None
        for function in around:
            if isinstance(function, DEFS) and (
                this := self._self_of(function) or self._owner_of(function)
            ):
                return f"{this}.{self.origin.name}"
        return None

    def _owner_of(self, function: Def) -> str:
        """A parameter that holds one of the objects that have the attribute, and nothing else."""
        assert isinstance(self.origin, Attribute)
        if self.script.analysis(Importers).user(function) is not None:
            return ""  # who may call it with others
        mine, table = {id(t) for t in self.origin.owners}, variables_of(function)
        for name in positional_names(function.args):
            variable = Variable(name, function)
            reads = [t for n in table.loads(variable) for t in self.script.values(n) or {None}]
            if surely(id(t) in mine for t in reads) and len(table.stores(variable)) == 1:
                return name
        return ""

    def _self_of(self, function: Def) -> str:
        """The name of ``self`` in a method of the objects that have the attribute."""
        assert isinstance(self.origin, Attribute)
        parent, params = parent_of(function), positional_parameters(function.args)
        if not isinstance(parent, ast.ClassDef) or not params or _is_special(function):
            return ""
        mine = set(self.origin.owners)
        others = [t for t in _instances(self.script) if t not in mine and _descends(t.cls, parent)]
        if not others and all(_descends(t.cls, parent) for t in self.origin.owners):
            return params[0].arg
        return ""

    def _is_hidden(self, scope: Function) -> bool:
        """Whether a function that reads the value by the name of a module's variable can no longer
        be imported and called.
        """
        here = isinstance(self.origin, Variable) and isinstance(self.origin.scope, ast.Module)
        if not (self._guarded and here) or isinstance(scope, ast.Module):
            return False
        outermost = of_kind((scope, *ancestors(scope)), FUNCTIONS)[-1]
        table = variables_of(scope)
        reads = (n for n in nodes_in(outermost, ast.Name))
        module = (v for n in reads if (v := table.of(n)) is not None and v.scope is table.tree)
        return not any(all(map(in_main_guard, table.stores(v))) for v in module if table.stores(v))

    def _rather_through(self, scope: Function, seen: str) -> str | None:
        """The value as a parameter; where that cannot be, the name ``seen``, unless someone imports
        the function.
        """
        if (name := self._through(scope)) is not None:
            return name
        user = self.script.analysis(Importers).user(scope)
        self.refusal = f"{user} imports what would read it, and {self.refusal}" if user else ""
        return None if user else seen

    # -------------------------------------------------------------------------- through a parameter
    def _through(self, scope: Function) -> str | None:
        """The value as a parameter, and no part of a way that does not get there."""
        names, edits = dict(self._names), dict(self._edits)
        if (name := self._along_calls(scope)) is None:
            self._names, self._edits = names, edits
        return name

    def _along_calls(self, scope: Function) -> str | None:
        name = self.parameter
        if why := self._against(scope):
            self.refusal = why
            return None
        assert isinstance(scope, DEFS)
        self._names[scope] = name  # before the callers: a function may call itself
        default, needed = self.plain(source_of(scope)) if callable(self.plain) else (self.plain, ())
        self._edits[(scope,)] = Parameter(scope, name, default or "None")
        self._edits.update(((scope, -n), edit) for n, edit in enumerate(needed, 1))
        for call in self.graph.sites(scope):
            for callee in self.graph.callees(call):
                if self.to(callee.function) is None:
                    return None
            given = self.to(function_of(call))
            if given is None:
                return None
            self._edits[(scope, call)] = Keyword(call, name, given)
        return name

    def _against(self, scope: Function) -> str:
        """Why ``scope`` cannot get another parameter."""
        if isinstance(scope, ast.Module):
            return f"{source_of(scope).rel} would have to import it"
        if isinstance(scope, ast.Lambda):
            return f"a lambda needs it ({at(scope)})"
        where = f"{scope.name}() ({at(scope)})"
        if why := self.graph.complete(scope):
            return why.replace(f"{scope.name}()", where, 1)
        other = next((c for c in self.graph.sites(scope) if self.graph.may_run_others(c)), None)
        if other is not None:
            return f"{at(other)} may call something else than {where}"
        user = (
            None if self.plain and not self.alone else self.script.analysis(Importers).user(scope)
        )
        return f"{user} calls {where}, too" if user is not None else ""


def _instances(script: Script) -> Iterator[Inst]:
    for site in script.log.of("new"):
        for occurrence in site:
            if isinstance(occurrence.this, Inst):
                yield occurrence.this


def _descends(cls: Cls, node: ast.ClassDef) -> bool:
    return cls.node is node or any(_descends(base, node) for base in cls.bases)


def _is_special(function: Def) -> bool:
    names = {d.id for d in function.decorator_list if isinstance(d, ast.Name)}
    return bool(names & {"staticmethod", "classmethod"})
