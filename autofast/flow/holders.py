"""Who holds a value: the one analysis of escape. Whatever asks whether something else has what an
expression gives, or whether it outlives the function where it was made, asks it here.

What counts is the object itself or a view of its memory (``g``, ``g[0]``, ``g.view(-1)``), alone or
in a tuple, list, dict, record or method that is bound to it. What is computed from it, or copied
into other memory, is another value. It is followed by variables, attributes, arguments and results
through the project; where that ends, the holder says so (:attr:`How.LATER`, :attr:`How.LIBRARY`,
:attr:`How.UNKNOWN`), so an empty answer is a proof.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from autofast.flow.callgraph import CallGraph, code_of
from autofast.flow.defuse import Definition
from autofast.flow.effects import CHANGERS, CONTAINERS, FIRST, SETTING
from autofast.flow.graph import Function
from autofast.flow.memory import Memory, base_of, passes_on, renames, views_around
from autofast.flow.program import Flow, function_around, holder_of
from autofast.flow.scopes import owner, parameters
from autofast.flow.usage import Act, usage_of
from autofast.model.calls import (
    arguments_of,
    is_augmented,
    is_method,
    receiver_of,
    taker_of,
)
from autofast.model.contents import with_contents
from autofast.model.kinds import is_module, is_optimizer
from autofast.model.names import FORWARD_HOOKS, HOOK_OF_ALL, last_part
from autofast.model.script import Script
from autofast.model.several import wordset
from autofast.model.source import ancestors, function_of, nodes_in, parent_of, source_of
from autofast.model.syntax import DEFINITIONS, FUNCTIONS, TARGETS, is_read
from autofast.model.values import (
    COLLECTIONS,
    NOTHING,
    OBJECTS,
    Bound,
    Cls,
    Const,
    Dict,
    Ext,
    Func,
    Method,
    Num,
    Ref,
    Seq,
    Tensor,
    Thing,
    any_of,
    library_names,
    ordered,
)
from autofast.ops import is_in_place, op

ADDERS = wordset(
    "append appendleft extend extendleft insert add setdefault update put __iadd__ __setitem__"
)
# What gives the same objects: functions, and methods of containers and iterators.
PASSING = wordset(
    "zip list tuple set dict enumerate reversed sorted iter next filter max min getattr",
    "builtins.",
) | {"functools.partial", "copy.copy", "contextlib.nullcontext"}
GIVING = wordset("items values get pop popleft popitem copy setdefault __getitem__")
# Libraries whose functions keep nothing of what they are given, but for those that give an object.
COMPUTING = tuple("torch. builtins. numpy. math. copy. time.".split())
RUNNING = wordset("map filter exec eval", "builtins.")
LATER = (*DEFINITIONS, ast.Lambda)  # what reads a variable when it runs


Counts = Callable[[ast.expr], bool]


class How(Enum):
    VARIABLE = "a variable: the Name that binds it, or the parameter"
    ATTRIBUTE = "an attribute: the Attribute that is set, or the call of setattr()"
    CONTAINER = "an object that it is put into: the expression for that"
    GENERATOR = "whoever iterates over what yields it: the Yield"
    LATER = "code that may run later and reads it: the function, lambda or class"
    LIBRARY = "a library, which may keep it, but changes nothing: the call"
    UNKNOWN = "whoever gets it where nobody follows it: the call or statement"


FOLLOWED = (How.VARIABLE, How.ATTRIBUTE, How.CONTAINER, How.GENERATOR)


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
        self.memory = script.analysis(Memory)

    # ------------------------------------------------------------------------------------ questions
    def at(self, expr: ast.expr, counts: Counts = bool) -> list[Holder]:
        """Who gets the value of ``expr`` by the code around it. ``counts`` says of expressions that
        may be it, or hold it, whether it matters what becomes of them.
        """
        return [h for part in self.around(expr) if counts(part) for h in self._at(part)]

    def ever(self, expr: ast.expr, counts: Counts = bool) -> list[Holder]:
        """Who gets it where it stands, and whoever gets it from there on."""
        found = (h for e in self.mentions(expr, counts) for h in self.at(e, counts))
        return list(dict.fromkeys(found))

    def beyond(self, expr: ast.expr, counts: Counts = bool) -> list[Holder]:
        """Who may still hold it when the functions have returned that it comes to."""
        found = self.ever(expr, counts)
        return [h for h in found if isinstance(self.home(h), ast.Module)]

    def writes(self, mentions: Iterable[ast.expr]) -> Iterator[ast.AST]:
        """What writes to one of these, or to a view of it; not what gives a list items."""
        for part in (p for mention in mentions for p in self.around(mention)):
            outer = taker_of(part) or parent_of(part)
            item = isinstance(outer, ast.Subscript) and not is_augmented(outer)
            if item and self.script.must_be(part, *COLLECTIONS):
                continue
            if outer is not None and part in self.memory.written(outer):
                yield outer

    def home(self, holder: Holder) -> Function:
        """The function whose variable it is, or is in; a file for what is in none of a function."""
        node = base_of(holder.node) if holder.how is How.CONTAINER else holder.node  # type: ignore[arg-type]
        if isinstance(node, ast.Name) and holder.how in (How.VARIABLE, How.CONTAINER):
            return holder_of(node)
        return function_around(node) if holder.how is How.VARIABLE else source_of(node).tree

    def mentions(self, expr: ast.expr, counts: Counts = bool) -> Iterator[ast.expr]:
        """``expr``, and all that may be the same value: calls that return it, loads of variables
        and attributes that hold it or something that it is in.
        """

        def further(mention: ast.expr) -> list[ast.expr]:
            found: list[ast.expr] = []
            for holder in self.at(mention, counts):
                if holder.how is How.VARIABLE:
                    found += self.reads(holder.node)
                elif holder.how is How.ATTRIBUTE:
                    found += self._attribute_reads(holder.node)
            return found + [s for p in self.around(mention) if counts(p) for s in self._sites(p)]

        return with_contents([expr], further)

    def reads(self, bound: ast.AST) -> list[ast.expr]:
        """The places that read what a name (or a parameter) is bound to, or add to it."""
        name = next(filter(None, (getattr(bound, n, "") for n in ("id", "arg", "name"))))
        uses = self.flow.definitions(bound).uses(Definition(name, bound))
        return [n for n in uses if is_read(n) or is_augmented(n)]

    def _attribute_reads(self, place: ast.AST) -> list[ast.expr]:
        """The places that read an attribute which is set there, or in the body of a class."""
        owners, name, values = NOTHING, getattr(place, "id", ""), self.script.values
        match place:
            case (
                ast.Attribute(value=of, attr=name)
                | ast.Call(args=[of, ast.Constant(value=str() as name), _])
            ):
                owners = values(of)
        found = self._attributes[name]
        return [n for n in found if not owners or not owners.isdisjoint(values(n.value) or owners)]

    @cached_property
    def _attributes(self) -> dict[str, list[ast.Attribute]]:
        found: dict[str, list[ast.Attribute]] = defaultdict(list)
        for node in self.script.each(ast.Attribute):
            if is_read(node) or is_augmented(node):
                found[node.attr].append(node)
        return found

    def _sites(self, whole: ast.expr) -> list[ast.expr]:
        """The calls of the function that returns or yields it there."""
        outer = parent_of(whole)
        gives = isinstance(outer, (ast.Return, ast.Yield, ast.YieldFrom))
        function = function_of(outer) if gives else outer  # type: ignore[arg-type]
        return [*self.calls.sites(function)] if isinstance(function, FUNCTIONS) else []

    # ------------------------------------------------------------------------------------ one place
    def around(self, node: ast.expr) -> Iterator[ast.expr]:
        """``node``, and the expressions around it that are it, a view of it, or hold it."""
        outer: ast.expr | None = node
        while outer is not None:
            yield (node := outer)
            outer = views_around(node)
            outer = outer if outer is not node else self._around(node)

    def whole(self, node: ast.expr) -> ast.expr:
        """The largest of these."""
        return [*self.around(node)][-1]

    def _around(self, node: ast.expr) -> ast.expr | None:
        use, values = usage_of(node), self.script.values
        result = use.result
        match use.act, use.node:
            case Act.HELD | Act.CHOSEN | Act.TAKEN, _:
                return result
            case Act.BOUND | Act.YIELDED, ast.NamedExpr() | ast.Await():
                return result
            case Act.COMPUTED, outer if any_of(values(outer), *COLLECTIONS):
                return result
            case Act.GIVEN, ast.Call() as call if self._passes(call):
                return result
            case Act.ASKED, ast.Attribute(attr=attr) as outer if result is not outer:
                return result if attr in GIVING or is_in_place(attr, flags=True) else None
            case Act.ASKED, ast.Attribute(attr=attr) as outer:
                holds = any_of(values(node), *OBJECTS, *COLLECTIONS)
                return result if holds or any_of(values(outer), Method, Bound) else None
            case Act.LOOPED, ast.comprehension() as over:
                made = parent_of(over)
                return made if isinstance(made, ast.GeneratorExp) else None
        return None

    def _passes(self, call: ast.Call) -> bool:
        """Whether what a call gives may be an argument, or hold it, and no code of the project says
        so.
        """
        found = self.script.values(call)
        objects = any_of(found, *COLLECTIONS, *OBJECTS)
        return any(
            t.name in PASSING or renames(t.name) or (objects and op(t.name) is None)
            if isinstance(t, Ref)
            else passes_on(t)
            if is_module(t)
            else objects and isinstance(t, (Cls, Ext)) and not code_of(t)
            for t in self.script.called(call)
        )

    def _at(self, part: ast.expr) -> Iterator[Holder]:
        yield from self._read_later(part)
        use = usage_of(part)
        match use.act, use.node:
            case Act.BOUND | Act.LOOPED, _:
                yield from (h for target in use.targets for h in self._by_target(target))
            case Act.OTHER, ast.withitem(optional_vars=ast.expr() as target):
                yield from self._by_target(target)
            case Act.OTHER, ast.Match() as matched:
                captures = nodes_in(matched, ast.MatchAs, ast.MatchStar)
                yield from (Holder(How.VARIABLE, c) for c in captures if c.name)  # type: ignore[attr-defined]
            case Act.TARGET, ast.AugAssign(target=ast.Name() as target):
                yield Holder(How.VARIABLE, target)
            case Act.ADDED, ast.AugAssign(target=target) if not self._is_tensor(target):
                yield from self._by_container(target)
            case Act.YIELDED, ast.Yield() | ast.YieldFrom() as gives:
                yield Holder(How.GENERATOR, gives)
            case Act.RETURNED, gives if self.calls.handed(function_of(gives)):  # type: ignore[arg-type]
                yield Holder(How.UNKNOWN, gives)
            case Act.GIVEN, ast.Call() as call if not self._passes(call):
                yield from self._by_call(call, part)
            case Act.GIVEN, call if library_names(self.script.called(call)) & RUNNING:
                yield Holder(How.UNKNOWN, call)
            case (Act.CALLED, outer) | (Act.OTHER, outer) if not isinstance(outer, ast.Lambda):
                yield Holder(How.UNKNOWN, part)

    def _read_later(self, part: ast.expr) -> Iterator[Holder]:
        """A variable of a function that is read in another one, or a generator that is kept."""
        home = holder_of(part) if isinstance(part, ast.Name) else None
        for outer in ancestors(part) if isinstance(home, FUNCTIONS) else ():
            kept = isinstance(outer, ast.GeneratorExp) and taker_of(outer) is None
            if kept or isinstance(outer, LATER) and outer is not home:
                yield Holder(How.LATER, outer)
            if kept or isinstance(outer, (*LATER, ast.Module)):
                return

    def _by_target(self, target: ast.expr) -> Iterator[Holder]:
        match target:
            case ast.Name():
                yield Holder(How.VARIABLE, target)
                if isinstance(owner(target), ast.ClassDef):
                    yield Holder(How.ATTRIBUTE, target)
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
        """The expressions that may be one list or dict, here, at callers and in what is called."""
        found = with_contents([container], self._same_container)
        return (e for e in found if e is container or isinstance(e, TARGETS))

    def _same_container(self, expr: ast.expr) -> Iterator[ast.expr]:
        if isinstance(expr, ast.Call):
            made = (c for c in self.calls.callees(expr) if c.makes is None)
            yield from (r for c in made for r in self.calls.results(c.function))
        for definition in self._definitions(expr):
            for given in self.calls.gives(definition):
                named = isinstance(given, (*TARGETS, ast.Call))
                if given is not None and (named or definition.is_parameter):
                    yield given

    def _definitions(self, expr: ast.expr) -> list[Definition]:
        found = self.flow.reaching(base_of(expr))
        return [d for d in found if isinstance(d.node, (ast.Name, ast.arg))]

    # ---------------------------------------------------------------------------------------- calls
    def _by_call(self, call: ast.Call, argument: ast.expr) -> Iterator[Holder]:
        for callee in self.calls.callees(call):
            names = self.calls.given_to(call, callee, argument)
            for parameter in parameters(callee.function):
                if parameter.arg in names:
                    yield Holder(How.VARIABLE, parameter)
        found = self.script.called(call)
        for thing in ordered(found) if found else (None,):
            if thing is None or not code_of(thing):
                yield from self._by_other(thing, call, argument)

    def _by_other(
        self, thing: Thing | None, call: ast.Call, argument: ast.expr
    ) -> Iterator[Holder]:
        """Who gets an argument of what is no code of the project."""
        first, receiver = call.args[:1], receiver_of(call)
        match thing:
            case Ref(name=name) if name in SETTING:
                yield from () if argument in first else [Holder(How.ATTRIBUTE, call)]
            case Ref(name=name) if name in FIRST or (
                name.startswith(CONTAINERS) and last_part(name) in CHANGERS
            ):
                yield from (
                    [Holder(How.UNKNOWN, call)]
                    if argument in first
                    else self._by_container(first[0])
                )
            case Ref(name=name) if name.startswith(COMPUTING) and name not in RUNNING:
                return
            case Method(this=Tensor() | Num(), name=name) if name != "set_":
                return
            case Method(name=name) if name in ADDERS:
                kept = receiver if is_method(call, name) else None
                yield from self._by_container(kept) if kept else [Holder(How.UNKNOWN, call)]
            case Method(this=Seq() | Dict() | Const()):
                return
            case Method(this=this, name="load_state_dict") if is_module(this) or is_optimizer(this):
                return  # copies
            case Ext() if is_module(thing):
                yield from [Holder(How.UNKNOWN, call)] if self._hooked else ()
            case Ref() | Ext() | Method(this=Ext() | Ref()):
                given = (self.script.values(a) for a in arguments_of(call))
                runs = any(any_of(found, Func, Bound, Method) for found in given)
                yield Holder(How.UNKNOWN if runs else How.LIBRARY, call)
            case _:
                if is_method(call, *ADDERS):
                    yield from self._by_container(call.func.value)
                yield Holder(How.UNKNOWN, call)

    @cached_property
    def _hooked(self) -> bool:
        return bool(self.script.methods(*FORWARD_HOOKS) or self.script.calls(HOOK_OF_ALL))

    def _is_tensor(self, expr: ast.expr) -> bool:
        """What is put into a tensor is copied."""
        return self.script.must_be(expr, Tensor)
