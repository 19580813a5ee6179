"""A piece of code with all that it calls: what would come under autocast, or into another
layout.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from autofast.facts.hooks import Hooks
from autofast.facts.precision.banned import AS_THEY_ARE, Probabilities
from autofast.flow.callgraph import CallGraph
from autofast.flow.positions import happens_in, nodes_of
from autofast.model.contents import without_wrappers
from autofast.model.events import Occurrence, Site
from autofast.model.kinds import is_autograd_function, is_module
from autofast.model.roles import Model
from autofast.model.script import Script
from autofast.model.several import of_kind
from autofast.model.source import ByNode, nodes_in
from autofast.model.values import Cls, Reason, Thing, Unknown, is_chosen


class Code:
    """Statements (or expressions), and all code of the project that they call.

    ``target``: the kind of device that 16 bits are for; hooks count then, those that run in a pass
    as code of it.
    """

    def __init__(
        self,
        script: Script,
        statements: Iterable[ast.AST],
        models: Iterable[Thing],
        probabilities: Probabilities = AS_THEY_ARE,
        target: str = "",
    ):
        self.script = script
        self.probabilities, self.target = probabilities, target
        self.statements = list(statements)
        self.here = nodes_of(self.statements)
        self.models = _models(script, models)
        hooks = script.analysis(Hooks)
        self.hooks = hooks.during(self.statements, self.models) if target else []
        self.parts: list[ast.AST] = [*self.statements, *self._called()]
        self.all = nodes_of(self.parts)

    def other(self, statements: Iterable[ast.AST], models: Iterable[Thing]) -> Code:
        """Other statements, under the same decisions."""
        return Code(self.script, statements, models, self.probabilities, self.target)

    def _called(self) -> list[ast.AST]:
        """The functions that are called, and the forward passes of the models, but no
        constructors.
        """
        found: ByNode[ast.AST] = {}
        todo: list[ast.AST] = list(self.statements)
        for model in self.models:
            for cls in model.classes:
                forwards = [s for s in of_kind(cls.body, ast.FunctionDef) if s.name == "forward"]
                found.update((f, f) for f in forwards)
                todo += forwards
        hooked = [c.function for h in self.hooks if h.is_forward for c in h.functions]
        found.update((f, f) for f in hooked)
        todo += hooked
        while todo:
            for func in self.script.of_node(_entered, todo.pop()):
                if func not in found:
                    found[func] = func
                    todo.append(func)
        return list(found.values())

    def events(self, *kinds: str, entered: bool = False) -> Iterator[tuple[Site, Occurrence]]:
        """What happens in this code, or in what it calls; with ``entered`` only what was seen to
        happen on the way from here.
        """
        for site in self.script.log.of(*kinds):
            mine = [o for o in site if happens_in(o, site.node, self.here)]
            if not entered and site.node in self.all and not mine and site.occurrences:
                # A forward that the reader entered once for all of its calls.
                mine = [site.occurrences[0]]
            for occurrence in mine:
                yield site, occurrence

    def kinds(self) -> list[str]:
        return sorted({kind for (kind, _), _ in self.script.log.each()})

    def is_known(self, site: Site) -> bool:
        """A call of a known model, of one that was loaded from a file in its place, or of an
        autograd Function of the project.
        """
        call = site.node
        if not isinstance(call, ast.Call):
            return False
        if applied_functions(self.script, call.func):
            return True  # an autograd Function, asked about elsewhere
        called = self.script.called(call)
        return any(map(is_module, called)) and not is_chosen(called)


def _entered(script: Script, node: ast.AST) -> list[ast.AST]:
    """The functions that are called in it, but for constructors."""
    calls = script.analysis(CallGraph)
    every = (c for n in nodes_in(node, ast.Call) for c in calls.callees(n))
    return [c.function for c in every if c.makes is None]


def applied_functions(script: Script, func: ast.expr) -> list[Cls]:
    """The autograd Functions of the project that calling ``func`` applies: ``Clip.apply``, or
    ``clip`` after ``clip = Clip.apply``.
    """
    names = {t.name for t in of_kind(script.values(func), Unknown) if t.reason is Reason.FUNCTION}
    if not names:
        return []
    asked = (n for n in script.each(ast.Attribute) if n.attr == "apply")
    owners = {id(t): t for n in asked for t in script.values(n.value) if isinstance(t, Cls)}
    return [c for c in owners.values() if c.node.name in names and is_autograd_function(c)]


def _models(script: Script, things: Iterable[Thing]) -> list[Model]:
    wanted = {inner for thing in things for inner in without_wrappers(thing)}
    return [m for m in script.models if m.thing in wanted]
