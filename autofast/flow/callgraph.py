"""Who calls whom in the project: what a call runs, where a function is called from, and what a call
gives for a parameter.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from autofast.flow.defuse import Definition
from autofast.flow.frequency import rare_arms_around
from autofast.flow.loops import Loop
from autofast.flow.scopes import Expressions, defaults, own_nodes
from autofast.model.calls import call_of, has_unpacking, may_give
from autofast.model.contents import with_contents
from autofast.model.events import CallFrame
from autofast.model.kinds import is_module, is_static
from autofast.model.script import Script
from autofast.model.several import surely
from autofast.model.source import ByNode, Nodes, at, function_of, parent_of, walk
from autofast.model.syntax import (
    LOOPS,
    VARIABLES,
    Def,
    has_star,
    is_read,
    positional_names,
)
from autofast.model.values import (
    NOTHING,
    Arguments,
    Bound,
    Cls,
    Func,
    Inst,
    Method,
    Partial,
    Thing,
    Unknown,
    Where,
    all_of,
    ordered,
)

Function = Def | ast.Lambda
MADE = ("__new__", "__init__", "__post_init__")  # what making an object of a class runs
PASSING = tuple(
    """torch.no_grad torch.inference_mode torch.enable_grad builtins.staticmethod
    builtins.classmethod""".split()
)


def _fits(function: Function, call: ast.Call | None, in_class: bool) -> bool:
    """Whether a function may be called so: ``text.decode("utf-8")`` calls no ``decode(self, ids,
    lengths)``, to which it gives too little.
    """
    if call is None or has_unpacking(call) or getattr(function, "decorator_list", []):
        return True
    spec, given = function.args, {k.arg for k in call.keywords}
    places = positional_names(spec)
    ready = {*places[: len(call.args) + in_class], *given}  # ``self`` is bound, or given
    return (
        (spec.vararg is not None or len(call.args) <= len(places))
        and (spec.kwarg is not None or given <= {p.arg for p in (*spec.args, *spec.kwonlyargs)})
        and all(name in ready for name, value in defaults(function).items() if value is None)
    )


@dataclass(frozen=True)
class Callee:
    """A function of the project that a call may run.

    Attributes:
        func: the function as a value; ``function`` is its node.
        this: what its first parameter is bound to (the object of a method, the class); None where
            the call fills it.
        kept: the arguments that a ``functools.partial`` puts before those of the call.
        makes: the class of which the call makes an object by running this (``__init__`` and the
            like).
    """

    func: Func
    this: Thing | None = None
    kept: Arguments | None = None
    makes: Cls | None = None

    @property
    def function(self) -> Function:
        return self.func.node

    @property
    def is_bound(self) -> bool:
        """Whether the first parameter is filled before the arguments of the call are."""
        return (self.this is not None or self.makes is not None) and not is_static(self.func)


def code_of(thing: Thing) -> list[Callee]:
    """The functions of the project that calling ``thing`` runs: a function, a method, a class, an
    object that can be called, a partial.
    """
    if isinstance(thing, Func):
        return [Callee(thing)]
    if isinstance(thing, Bound):
        return [Callee(thing.func, thing.this)]
    if isinstance(thing, Cls):
        return [
            replace(c, this=None, makes=thing)
            for name in MADE
            for t in ordered(thing.find(name) or NOTHING)
            for c in code_of(t)
        ]
    if isinstance(thing, Inst):
        found = thing.cls.find("__call__") or (
            thing.cls.find("forward") if is_module(thing) else None
        )
        return [
            replace(c, this=c.this or thing) for t in ordered(found or NOTHING) for c in code_of(t)
        ]
    if isinstance(thing, Partial):
        inner = [c for t in ordered(thing.func) for c in code_of(t)]
        return [
            replace(c, kept=thing.args if c.kept is None else _after(c.kept, thing.args))
            for c in inner
        ]
    return []


def _after(first: Arguments, then: Arguments) -> Arguments:
    return Arguments(
        then.call,
        [*first.positional, *then.positional],
        {**first.named, **then.named},
        [*first.dicts, *then.dicts],
        first.open or then.open,
    )


class CallGraph:
    """``script.analysis(CallGraph)``: the calls of all files of the project, by values."""

    def __init__(self, script: Script):
        self.script = script
        self._callees: ByNode[list[Callee]] = {}
        self._sites: ByNode[list[ast.Call]] = defaultdict(list)
        self._handed: ByNode[ast.AST] = {}  # function -> a place that uses it as a value
        # Name -> calls of something that is not known.
        self._unread: dict[str, list[ast.expr]] = defaultdict(list)
        self._entered: ByNode[ByNode[Function]] = defaultdict(dict)
        self._entries: ByNode[list[ast.AST]] = defaultdict(list)
        for node in script.nodes:
            self._look(node)
        self._follow_log()
        self._inner: ByNode[list[Function]] = {}  # what the code of a function runs

    def _look(self, node: ast.AST) -> None:
        if isinstance(node, ast.Call):
            callees = [c for t in ordered(self.script.called(node)) for c in code_of(t)]
            if callees:
                self._callees[node] = callees
            for function in _once(c.function for c in callees):
                self._sites[function].append(node)
                self._enter(node, function)
            self._look_unknown(node)
        elif isinstance(node, VARIABLES) and is_read(node) and call_of(node) is None:
            for thing in self.script.values(node):
                if isinstance(thing, (Func, Bound)):
                    code = thing.func if isinstance(thing, Bound) else thing
                    self._handed.setdefault(code.node, node)
        elif isinstance(node, ast.Lambda) and call_of(node) is None and not _is_named(node):
            self._handed.setdefault(node, node)

    def _look_unknown(self, call: ast.Call) -> None:
        found = self.script.called(call)
        if isinstance(call.func, ast.Attribute) and (
            not found
            or any(isinstance(t.this if isinstance(t, Method) else t, Unknown) for t in found)
        ):
            self._unread[call.func.attr].append(call.func)
        elif isinstance(call.func, ast.Name) and not found:
            self._unread[call.func.id].append(call.func)

    def _follow_log(self) -> None:
        """What else the reader has followed: functions that a library calls back, properties,
        hooks, the ``forward`` of wrapped models.
        """
        for frame in dict.fromkeys(f for stack in self.script.stacks for f in stack):
            if isinstance(frame, CallFrame) and frame.node is not frame.func.node:
                self._enter(frame.node, frame.func.node)

    def _enter(self, node: ast.AST, function: Function) -> None:
        if function not in self._entered[node]:
            self._entered[node][function] = function
            self._entries[function].append(node)

    # --------------------------------------------------------------------- from a call to functions
    def callees(self, call: ast.Call) -> list[Callee]:
        """What the call itself may run: what its ``func`` may be. A model that a library wraps is
        among :meth:`entered` only.
        """
        return self._callees.get(call, [])

    def entered(self, node: ast.AST) -> list[Function]:
        """The functions of the project that are run at a node: those a call calls, and whatever the
        reader has followed besides.
        """
        return list(self._entered.get(node, {}).values())

    def may_run_others(self, call: ast.Call) -> bool:
        """Whether the call may run something that is not among its callees: a library, or what is
        not known.
        """
        found = self.script.called(call)
        return not found or any(not code_of(t) for t in found)

    def argument(self, call: ast.Call, callee: Callee, parameter: str) -> ast.expr | None:
        """The expression that gives a parameter its value, in the call or in the ``partial`` that
        it calls.

        None where the call leaves it to its default, where it is bound (``self``), where it comes
        through ``*`` or ``**``, and for the parameters ``*args`` and ``**kwargs``.
        """
        spec = callee.function.args
        positional = positional_names(spec)[int(callee.is_bound) :]
        if parameter not in {p.arg for p in spec.posonlyargs}:
            for keyword in call.keywords:
                if keyword.arg == parameter:
                    if parameter in positional or any(p.arg == parameter for p in spec.kwonlyargs):
                        return keyword.value
                    return None
        kept = callee.kept or Arguments()
        if parameter in kept.named and not may_give(call):
            return kept.named[parameter].expr if not kept.named[parameter].via else None
        if parameter not in positional or kept.loose is not None:
            return None
        place = positional.index(parameter)
        if place < len(kept.positional):
            return kept.positional[place].expr
        place -= len(kept.positional)
        if place >= len(call.args) or has_star(call.args[: place + 1]):
            return None
        return call.args[place]

    def given_to(self, call: ast.Call, callee: Callee, argument: ast.expr) -> list[str]:
        """The parameters that an argument of the call may give a value to, ``*args`` and
        ``**kwargs`` among them.

        The other way round than :meth:`argument`. What stands after a ``*`` may go to all
        positional parameters from there on.
        """
        spec, kept = callee.function.args, callee.kept or Arguments()
        positional = positional_names(spec)[int(callee.is_bound) + len(kept.positional) :]
        named = [p.arg for p in (*spec.args, *spec.kwonlyargs)]
        rest, others = ([p.arg] if p is not None else [] for p in (spec.vararg, spec.kwarg))
        for keyword in (k for k in call.keywords if k.value is argument):
            if keyword.arg is None:
                return [*(n for n in named if all(k.arg != n for k in call.keywords)), *others]
            return [keyword.arg] if keyword.arg in named else others
        starred = next(
            (n for n, a in enumerate(call.args) if isinstance(a, ast.Starred)), len(call.args)
        )
        for place, given in enumerate(call.args):
            if argument is given or (isinstance(given, ast.Starred) and argument is given.value):
                if place >= starred:
                    return [*positional[starred:], *rest]
                return positional[place : place + 1] or rest
        return []

    def leaves_default(self, call: ast.Call, callee: Callee, parameter: str) -> bool:
        """Whether the call certainly gives nothing for a parameter, so that its default holds."""
        kept = callee.kept or Arguments()
        spread = has_unpacking(call) or bool(kept.open)
        return (
            not spread
            and parameter not in kept.named
            and self.argument(call, callee, parameter) is None
        )

    def arguments(
        self, function: Function, parameter: str, given: bool = False
    ) -> list[tuple[ast.Call, ast.expr | None]]:
        """The sites of a function, each with what it gives for a parameter (see
        :meth:`argument`); ``given``: without those that leave it to its default.
        """
        sites = (
            (call, c)
            for call in self.sites(function)
            for c in self.callees(call)
            if c.function is function and not (given and self.leaves_default(call, c, parameter))
        )
        return [(call, self.argument(call, callee, parameter)) for call, callee in sites]

    def gives(self, definition: Definition, given: bool = False) -> Expressions:
        """What a variable is given at a definition; of a parameter, at each call (``given``: that
        gives it).
        """
        function = function_of(definition.node)
        if not definition.is_parameter or isinstance(function, ast.Module):
            return [definition.value]
        return [value for _, value in self.arguments(function, definition.name, given)]

    # --------------------------------------------------------------------- from a function to calls
    def sites(self, function: Function) -> list[ast.Call]:
        """The calls that run a function directly, in the order of the files."""
        return self._sites.get(function, [])

    def entries(self, function: Function | ast.Module) -> list[ast.AST]:
        """The nodes at which a function is run: its sites, and where the reader has followed it
        besides (see :meth:`entered`).
        """
        return self._entries.get(function, [])

    def only_makes(self, function: Function | ast.Module) -> bool:
        """Whether it is a constructor, and runs where objects are made only: nobody calls it for
        one that is there, ``data.__init__(...)``.
        """
        return _is_constructor(function) and all(
            c.makes is not None or c.function is not function or _is_constructor(function_of(site))
            for site in self.sites(function)  # type: ignore[arg-type]
            for c in self.callees(site)
        )

    def complete(self, function: Function) -> str:
        """Why :meth:`sites` may not be all calls of a function, in words; empty where they
        certainly are.
        """
        name = getattr(function, "name", "the lambda")
        in_class = isinstance(parent_of(function), ast.ClassDef)
        if not isinstance(function, ast.Lambda):
            if name.startswith("__") and name.endswith("__"):
                return f"{name}() is called by Python"
            if name == "forward" and in_class:
                return "forward() is called by torch"
            if self.is_decorated(function):
                return f"{name}() has a decorator that may call it"
        if (place := self._handed.get(function)) is not None:
            return f"{name}{'' if isinstance(function, ast.Lambda) else '()'} is handed around as a value on {at(place)}"
        for unknown in self.unknown_calls(function):
            return f"{at(unknown)} may call {name}()"
        return "" if self.sites(function) else f"nothing in this project calls {name}()"

    def handed(self, function: Function) -> Where:
        """A place that uses a function as a value, after which anything may call it."""
        return self._handed.get(function)

    def is_decorated(self, function: Function) -> bool:
        """Whether a decorator may do something else than to call a function with all arguments
        whenever it is called itself.
        """
        return any(not self._passes_on(d) for d in getattr(function, "decorator_list", ()))

    def unknown_calls(self, function: Function) -> list[ast.expr]:
        """What is called under the name of a function and not known, so that it may be the
        function.
        """
        name, in_class = (
            getattr(function, "name", ""),
            isinstance(parent_of(function), ast.ClassDef),
        )
        named = [f for f in self._unread.get(name, ()) if isinstance(f, ast.Attribute) == in_class]
        return [f for f in named if _fits(function, call_of(f), in_class)]

    def is_unused(self, function: Function) -> bool:
        """Whether nothing in the project runs a function or hands it around; Python and torch run
        some by their names (``forward``).
        """
        return not (
            self.entries(function)
            or self.handed(function)
            or self.is_decorated(function)
            or self.unknown_calls(function)
        )

    def _passes_on(self, decorator: ast.expr) -> bool:
        """``@torch.no_grad()``, ``@staticmethod`` and their like call what they decorate when they
        are called, with all arguments.
        """
        found = self.script.values(decorator)
        return surely(
            getattr(t, "name", "").startswith(PASSING) and not isinstance(t, (Func, Bound, Cls))
            for t in found
        )

    def results(self, function: Function) -> list[ast.expr]:
        """The expressions that a function returns, in the order of the text; a ``return`` without
        one is left out.
        """
        if isinstance(function, ast.Lambda):
            return [function.body]
        return [
            n.value
            for n in own_nodes(function)
            if isinstance(n, ast.Return) and n.value is not None
        ]

    # ------------------------------------------------------------------------- across several calls
    def runs(self, function: Function) -> list[Function]:
        """The functions that a call of ``function`` may run, itself first, through any number of
        calls that are known.
        """
        return list(with_contents([function], self._entered_in))

    def running(self, functions: Iterable[Function | ast.Module]) -> list[Function | ast.Module]:
        """``functions`` and all code that may run one of them, through any known calls."""
        return list(with_contents(functions, lambda f: map(function_of, self.entries(f))))

    def code_in(self, loop: Loop) -> Nodes:
        """All of a loop, and of the functions that it runs."""
        return {n for part in (loop, *self.run_in(loop)) for n in walk(part)}

    def run_in(self, loop: Loop | Function | ast.With, often: bool = False) -> list[Function]:
        """The functions that iterations of a loop, a block or a call of a function may run, through
        any number of calls that are known.

        With ``often`` those that may be run by more than few of them: not only in the bodies of
        rare ``if`` statements.
        """
        found: ByNode[Function] = {}
        here = loop if isinstance(loop, LOOPS) else None
        todo: list[tuple[Function, ast.AST, Loop | None]] = [
            (f, n, here) for n in walk(loop) for f in self.entered(n)
        ]
        while todo:
            function, at, around = todo.pop()
            if function not in found and not (
                often and any(arm for _, arm in rare_arms_around(at, around))
            ):
                found[function] = function
                todo += [(f, n, None) for n in own_nodes(function) for f in self.entered(n)]
        return list(found.values())

    def _entered_in(self, function: Function) -> list[Function]:
        if function not in self._inner:
            entered = (f for n in own_nodes(function) for f in self.entered(n))
            self._inner[function] = _once(entered)
        return self._inner[function]


def _is_constructor(function: ast.AST) -> bool:
    return getattr(function, "name", "") in MADE


def _once(functions: Iterable[Function]) -> list[Function]:
    return list({f: f for f in functions}.values())


def _is_named(node: ast.Lambda) -> bool:
    """``f = lambda ...``: what becomes of it is what becomes of the name."""
    parent = parent_of(node)
    return isinstance(parent, ast.Assign) and all_of(parent.targets, ast.Name)
