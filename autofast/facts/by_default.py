"""The script as it runs while an option of the command line has its default: the other way stays in
the text, and is not looked at.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from autofast.facts.arrays import held_under
from autofast.flow.callgraph import CallGraph
from autofast.flow.frequency import arms_around
from autofast.flow.loops import loops_around
from autofast.flow.program import Flow, definitions_at, graph_of
from autofast.flow.scopes import Expressions
from autofast.model.events import (
    BranchFrame,
    CallFrame,
    Frame,
    Log,
    Occurrence,
    Site,
    Stack,
    inside,
    is_undecided,
)
from autofast.model.kinds import ways_made
from autofast.model.roles import Step
from autofast.model.script import Script
from autofast.model.several import all_of, of_kind, surely, wordset
from autofast.model.source import ByNode, nodes_in
from autofast.model.syntax import IDENTITY, MEMBERSHIP, VARIABLES, is_written
from autofast.model.values import (
    OBJECTS,
    Arg,
    Cls,
    Const,
    Dict,
    Ext,
    Func,
    Inst,
    Located,
    Method,
    Module,
    Setting,
    Thing,
    Unknown,
    any_named,
    any_of,
    const,
    one,
    said,
)
from autofast.ops.families import COMPARES
from autofast.read.library.loaded_settings import LOADERS, MERGES as MERGING


@dataclass(frozen=True, eq=False)
class Asked:
    """What a test asks of an option.

    Attributes:
        option: the option; ``ask`` is the expression of it in the test (``args.fp16``).
        about: what is asked: nothing more than whether it is true, or how it compares with a
            constant.
        test: the test; ``default`` what it is by default.
    """

    option: Arg
    ask: ast.expr
    about: tuple[object, ...]
    test: ast.expr
    default: bool

    def is_default(self, ask: ast.expr) -> str:
        """What is true where the test is what it is by default, with ``ask`` for the option."""
        match self.test:
            case ast.Compare(ops=ops, comparators=others):
                opposite = OPPOSITES.get(type(ops[0])) if not self.default else None
                compared = ast.unparse(ast.Compare(ask, [opposite()] if opposite else ops, others))
                return compared if self.default or opposite else f"not {compared}"
        is_on = self.default != isinstance(self.test, ast.UnaryOp)
        return ast.unparse(ask) if is_on else f"not {ast.unparse(ask)}"

    def is_same(self, other: Asked) -> bool:
        return self.option == other.option and self.about == other.about


@dataclass(frozen=True, eq=False)
class Off:
    """An option that is off unless it is given, and the tests that ask for it.

    Attributes:
        option: the option; ``tests`` are what asks for it, by the test of its ``if``.
    """

    option: Arg
    tests: ByNode[Asked]

    def is_needed(self, stack: Stack) -> bool:
        """Whether the script comes this way only where the option is given."""
        return any(
            (known := self._default(f)) is not None and known != f.arm
            for f in of_kind(stack, BranchFrame)
        )

    def _default(self, frame: BranchFrame) -> bool | None:
        found = self.tests.get(getattr(frame.node, "test", frame.node))
        return None if found is None else found.default

    def settled(self, frame: Frame) -> Frame:
        """The frame, known where it is an arm that the default decides."""
        if is_undecided(frame) and self._default(frame) is not None:
            return replace(frame, known=True)
        return frame

    def is_off_at(self, script: Script, place: ast.stmt) -> str:
        """An expression that says at ``place`` that the option is not given; empty where none
        certainly does.
        """
        for asked in self.tests.values():
            if _means_the_same(script, asked.ask, place):
                return asked.is_default(asked.ask)
        return ""


def behind_option(script: Script, places: Iterable[Site]) -> Off | None:
    """The one option, off by default, without which the script comes to none of ``places``; None
    where there is none.
    """
    stacks = [o.stack for site in places for o in site]
    for off in _options(script, stacks, next(iter(stacks), ())):
        is_switch = all(
            a.about == TRUE and const(a.option.default) in (False, None) for a in off.tests.values()
        )
        if is_switch and all(off.is_needed(s) for s in stacks):
            return off
    return None


def not_by_default(script: Script, ways: Iterable[Stack]) -> str:
    """The test by which options at their defaults lead past each of ``ways``, in words; empty where
    they may go one.
    """
    found = ""
    for stack in ways:
        found = _past(script, stack)
        objects = (_objects(script, f) for f in of_kind(stack, CallFrame) if not found)
        for made in objects:  # a method of objects that are made only where an option asks for them
            tests = [not_made_by_default(script, t) for t in made]
            found = found or (tests[0] if all(tests) and tests else "")
        if not found:
            return ""
    return found


def not_made_by_default(script: Script, thing: Thing | None) -> str:
    """The same for the way to where an object is made, or the choice of another class."""
    if not isinstance(thing, OBJECTS):
        return ""
    past = _past(script, ways_made(thing))
    chosen = thing.cls if isinstance(thing, Inst) else thing
    return past or _chosen_past(script, thing.node, chosen)


def _past(script: Script, stack: Stack) -> str:
    tests = (f for f in of_kind(stack, BranchFrame) if not f.known)
    past = (f for f in tests if _by_default(script, f) not in (None, f.arm))
    found = (ast.unparse(test) for f in past if (test := _test(f)) is not None)
    calls = of_kind(stack, CallFrame)
    chosen = (_chosen_past(script, f.node, f.func) for f in calls)
    left = (script.of_node(_left_before, f.node) for f in stack)
    return next(found, "") or next(filter(None, (*chosen, *left)), "")


def _left_before(script: Script, node: ast.AST) -> str:
    """The test by which a default run leaves the function, or the turn of a loop, before it comes
    to a place; empty where it may come there.
    """
    graph, around = graph_of(script, node), dict(arms_around(node, None))
    leaving = graph.leaving_before(node)
    leaving += [s for loop in loops_around(node) for s in graph.leaving_before(node, loop)]
    for stmt in leaving:
        tests = [(f.test, arm) for f, arm in arms_around(stmt, None) if f not in around]
        if tests and all(truth_by_default(script, test) is arm for test, arm in tests):
            return ast.unparse(tests[0][0])
    return ""


def _chosen_past(script: Script, call: ast.AST | None, this: Thing) -> str:
    """What chooses the class or function that a call calls (``LOSSES[args.loss]``), where by
    default that is not this one.
    """
    choice = script.of_node(_chosen, call.func) if isinstance(call, ast.Call) else None
    if choice is None:
        return ""
    called = [getattr(t, "func", t) for t in choice.called]
    classes = of_kind((getattr(t, "cls", t) for t in choice.called), Cls)
    if isinstance(this, Func):
        called += [f for c in classes for f in c.find(this.name) or ()]
    elsewhere = any_of(called, Cls, Func) and this not in called
    return ast.unparse(choice.place) if elsewhere else ""


@dataclass(frozen=True)
class _Choice:
    """A place that chooses by options, and what is called while they have their defaults."""

    place: ast.expr
    called: list[Thing]


def _chosen(script: Script, func: ast.AST, steps: int = 4) -> _Choice | None:
    """The choice by which a function or a class is found, in a few steps; None where that is no
    choice, or not known.
    """
    match func:
        case ast.Name() if steps:
            given = _given(script, func)
            return _chosen(script, given[0], steps - 1) if len(given) == 1 and given[0] else None
        case (
            ast.Subscript(value=table, slice=key)
            | ast.Call(func=ast.Attribute(value=table, attr="get"), args=[key, *_])
        ):
            found = value_by_default(script, key)
            held = one(script.values(table))
            entry = held.get(found) if isinstance(held, Dict) and isinstance(found, str) else ()
            return _Choice(func, [*entry]) if entry else None
        case ast.Call(func=ast.Name(id="getattr"), args=[ast.expr() as module, key, *_]):
            found = value_by_default(script, key)
            held = one(script.values(module))
            entry = held.env.vars.get(found, ()) if isinstance(held, Module) else ()
            return _Choice(func, [*entry]) if entry else None
    return None


def _objects(script: Script, frame: CallFrame) -> list[Inst]:
    """The objects whose method a frame runs, or that are called."""
    called = getattr(frame.node, "func", None)  # a module: the method is its forward
    own = [called, called.value] if isinstance(called, ast.Attribute) else [called]
    found = (t for of in own if isinstance(of, ast.expr) for t in script.values(of))
    name = frame.func.name
    return [t for t in of_kind(found, Inst) if frame.func in (t.cls.find(name) or ())]


def is_taken(script: Script, frames: Iterable[Frame]) -> bool:
    """Whether conditions lead this way wherever options have their defaults."""
    tests = [f for f in of_kind(frames, BranchFrame) if not f.known]
    return all(_by_default(script, f) is f.arm for f in tests)


def _test(frame: BranchFrame) -> ast.expr | None:
    test = getattr(frame.node, "test", None)
    return test if isinstance(test, ast.expr) else None


def _by_default(script: Script, frame: BranchFrame) -> bool | None:
    """What a test is while options have their defaults, where that decides it."""
    test = _test(frame)
    found = script.of_node(truth_by_default, test) if test is not None else ...
    return None if found is ... else found


def truth_by_default(script: Script, test: ast.AST) -> Any:
    """Whether a test holds while options have their defaults; ``...`` where that is not known."""
    match test:
        case ast.BoolOp(op=op, values=parts):
            found = [truth_by_default(script, part) for part in parts]
            settles = isinstance(op, ast.Or)
            return settles if settles in found else ... if ... in found else not settles
        case ast.UnaryOp(op=ast.Not(), operand=part):
            asked = truth_by_default(script, part)
            return ... if asked is ... else not asked
    found = value_by_default(script, test)
    return ... if found is ... else bool(found)


def value_by_default(script: Script, expr: ast.AST) -> Any:
    """What an expression is while options have their defaults; ``...`` where that is not known."""
    match expr:
        case ast.BoolOp(op=op, values=parts):
            found = [value_by_default(script, part) for part in parts]
            return next(
                (v for v in found if v is ... or bool(v) is isinstance(op, ast.Or)), found[-1]
            )
        case ast.UnaryOp(op=ast.Not()):
            return truth_by_default(script, expr)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARES:
            sides = value_by_default(script, left), value_by_default(script, right)
            try:
                return ... if ... in sides else COMPARES[type(op)](*sides)
            except TypeError:  # of a string and a number
                return ...
        case ast.IfExp(test=test, body=then, orelse=other):
            asked = truth_by_default(script, test)
            return ... if asked is ... else value_by_default(script, then if asked else other)
        case ast.Call(args=[kind]) if script.is_call(expr, "torch.device"):
            return value_by_default(script, kind)
        case ast.BinOp(op=ast.Mod(), right=every) if value_by_default(script, every) == 1:
            return 0
        case ast.Call(func=ast.Attribute(value=of, attr=name), args=args) if name in TEXTS:
            text, *given = (value_by_default(script, e) for e in (of, *args))
            return getattr(text, name)(*given) if all_of([text, *given], str) else ...
        case ast.Call(args=[given]) if cast := CASTS.get(script.library_function(expr)):
            plain = value_by_default(script, given)
            try:
                return ... if plain is ... else cast(plain)
            except (TypeError, ValueError):
                return ...
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            items = [value_by_default(script, part) for part in parts]
            return ... if ... in items else items
    if not isinstance(expr, ast.expr):
        return ...
    found = _default_of(script.values(expr))
    found = script.analysis(_Followed).value(expr) if found is ... else found
    return _of_files(script, expr) if found is ... else found


def _default_of(found: Iterable[Thing]) -> Any:
    """What all of these are while options have their defaults, and files of the project hold the
    settings; ``...`` where that is not known.
    """
    told = [_default(t) for t in found]
    return told[0] if surely(value == told[0] for value in told) else ...


def _default(thing: Thing) -> Any:
    is_open = isinstance(thing, Arg) and (_is_required(thing) or _is_to_choose(thing))
    return ... if is_open else said(thing)


def _is_to_choose(option: Arg) -> bool:
    """It has choices, and none of them is the default."""
    told = {k.arg for k in option.node.keywords}
    return "choices" in told and "default" not in told


def _of_files(script: Script, expr: ast.expr) -> Any:
    """The same of a setting that files say which are not in the project, and its default besides;
    of one with a default in the code (``__getattr__`` of a class, yacs), what the file says.
    """
    if script.analysis(_names_files):
        return ...
    found = [t for t in script.values(expr) if not any_named([t], Unknown, LOADERS)]
    owners = script.values(expr.value) if isinstance(expr, ast.Attribute) else ()
    if any_of(owners, *OBJECTS):  # and what else may stand there, which has no such attribute
        found = [t for t in found if not isinstance(t, Method) or isinstance(t.this, OBJECTS)]
    merged = any(t.open and t.name.endswith(MERGED) for t in of_kind(owners, Ext))
    merged = merged or any(t.open for t in of_kind(owners, Dict))  # EasyDict
    if merged:
        found = [t for t in found if not isinstance(t, (Unknown, Method))]
    if merged or any(t.cls.find("__getattr__") for t in of_kind(owners, Inst)):
        found = of_kind(found, Setting) or found
    return _default_of(found)


def _names_files(script: Script) -> bool:
    """Whether settings come out of a file that has to be named."""
    sites = [s for (kind, _), s in script.log.each() if kind in LOADERS or kind.startswith(MERGES)]
    given = (t for s in sites for o in s for g in o.args.every for t in g.values)
    options = (t.by if isinstance(t, Located) else t for t in given)
    return any(map(_is_required, of_kind(options, Arg)))


class _Followed:
    """``script.analysis(_Followed)``: the values of variables by what they are given.

    Attributes:
        cuts: how often a variable was met that was being followed.
    """

    def __init__(self, script: Script):
        self.script = script
        self.asked: set[ast.expr] = set()
        self.known: dict[ast.expr, Any] = {}
        self.cuts = 0

    def value(self, expr: ast.expr) -> Any:
        if expr in self.known:
            return self.known[expr]
        if expr in self.asked:
            self.cuts += 1
            return ...
        before = self.cuts
        self.asked.add(expr)
        made = _given(self.script, expr)
        given = [value_by_default(self.script, e) if e else ... for e in made]
        self.asked.remove(expr)
        found = given[0] if surely(value == given[0] for value in given) else ...
        if self.cuts == before or not self.asked:
            self.known[expr] = found
        return found


def _given(script: Script, expr: ast.expr) -> Expressions:
    """What a variable or an attribute is given where options at their defaults may lead."""
    given: Expressions = []
    if isinstance(expr, ast.Name):
        calls = script.analysis(CallGraph)
        given = [e for d in definitions_at(script, expr) for e in calls.gives(d)]
    elif isinstance(expr, ast.Attribute) and not any_of(script.values(expr), Arg):
        owners = script.values(expr.value)
        given = [e for thing in owners for e in held_under(script, thing, expr.attr)]
    return [
        e
        for e in given
        if e is None
        or all(truth_by_default(script, f.test) in (..., arm) for f, arm in arms_around(e, None))
    ]


def options_within(script: Script, loops: Iterable[ast.AST]) -> list[Off]:
    """The options with a default that decide what happens within ``loops``."""
    stacks = [s for s in script.stacks if any(not f.known for f in of_kind(s, BranchFrame))]
    within = [s for s in stacks if any(inside(s, loop) for loop in loops)]
    return _options(script, stacks, [f for s in within for f in s])


def _options(script: Script, stacks: list[Stack], among: Iterable[Frame]) -> list[Off]:
    """The options that the conditions ``among`` frames ask for, each with all tests on ``stacks``
    that ask the same.
    """
    known: ByNode[Asked | None] = {}

    def asked(frame: Frame) -> Asked | None:
        test = _test(frame) if isinstance(frame, BranchFrame) else None
        if test is None:
            return None
        if test not in known:
            known[test] = _asked(script, test)
        return known[test]

    first: list[Asked] = []
    for frame in among:
        found = asked(frame)
        if found is not None and not any(found.is_same(f) for f in first):
            first.append(found)
    every = [a for s in stacks for f in s if (a := asked(f)) is not None]
    return [Off(f.option, {a.test: a for a in every if a.is_same(f)}) for f in first]


MERGED = (".CfgNode", ".ConfigDict")  # with files and what the command line says
MERGES = tuple(f".{name}" for name in MERGING)
TRUE = ("true",)
TEXTS = wordset("lower upper strip startswith endswith")
CASTS: dict[str, Callable[[Any], Any]] = {
    f"builtins.{kind.__name__}": kind for kind in (int, float, bool, str)
}

OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    one: other
    for pair in ((ast.Eq, ast.NotEq), IDENTITY, MEMBERSHIP)
    for one, other in (pair, pair[::-1])
}


def _asked(script: Script, test: ast.expr) -> Asked | None:
    """What a test asks of an option; None where it asks else, or of one without a default."""
    about: tuple[object, ...] = TRUE
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=ask):
            pass
        case ast.Compare(left=ask, ops=[op], comparators=[other]):
            if any(any_of(script.values(e), Arg, Setting) for e in nodes_in(other, ast.expr)):
                return None  # of one option beside another
            about = type(op).__name__, repr(value_by_default(script, other))
        case ask:
            pass
    option, default = _option(script, ask), truth_by_default(script, test)
    if option is None or default is ...:
        return None
    return Asked(option, ask, about, test, default)


def _option(script: Script, ask: ast.expr) -> Arg | None:
    option = one(script.values(ask)) if isinstance(ask, VARIABLES) else None
    if not isinstance(option, Arg) or const(option.default) is ...:
        return None
    return None if _is_required(option) else option


def _is_required(option: Arg) -> bool:
    """It has no default, as it has to be given."""
    told = {k.arg: k.value for k in option.node.keywords}
    match option.node:
        case ast.Call(
            func=ast.Attribute(attr="add_argument"), args=[ast.Constant(value=str(name)), *_]
        ) if not name.startswith("-"):
            several = told.get("nargs")
            rest = isinstance(several, ast.Attribute) and several.attr == "REMAINDER"
            return "default" not in told and not (rest or is_written(several, "?", "*", "..."))
    asks = (told.get(name) for name in ("required", "prompt"))
    return any(e is not None and not is_written(e, False, None) for e in asks)


# ---------------------------------------------------------------------------- the script without it
def by_default(script: Script, off: Off) -> Script:
    """The script as it runs without the option: what needs that does not happen, and what the tests
    are is known.
    """
    sites: list[Site] = []
    frames: dict[Frame, Frame] = {}

    def settled(frame: Frame) -> Frame:
        if frame not in frames:
            frames[frame] = off.settled(frame)
        return frames[frame]

    stacks = {s: tuple(map(settled, s)) for s in script.stacks if not off.is_needed(s)}
    for _, site in script.log.each():
        left = [
            o
            if (stack := stacks[o.stack]) == o.stack
            else Occurrence(stack, o.order, o.this, o.args, o.result, o.grad, o.data)
            for o in site
            if o.stack in stacks
        ]
        if left:
            sites.append(Site(site.kind, site.node, left))
    log = Log.holding(sites)
    known = {key: frozenset({Const(a.default)}) for key, a in off.tests.items()}

    def seen(found: list[Site]) -> list[Site]:
        return [s for f in found if (s := log.at(f.kind, f.node)) is not None]

    steps = [_step(s, seen, settled) for s in script.steps]
    return replace(
        script,
        log=log,
        at={**script.at, **known},
        steps=[s for s in steps if s.backwards],
        evaluations=[replace(e, forwards=f) for e in script.evaluations if (f := seen(e.forwards))],
        models=[replace(m, forwards=seen(m.forwards), moves=seen(m.moves)) for m in script.models],
        optimizers=[
            replace(o, updates=[u for u in o.updates if seen([u.site])]) for o in script.optimizers
        ],
        _analyses={},
    )


def _step(
    step: Step, seen: Callable[[list[Site]], list[Site]], settled: Callable[[Frame], Frame]
) -> Step:
    def one_of(site: Site) -> Site:
        return seen([site])[0]

    return replace(
        step,
        forwards=seen(step.forwards),
        losses=seen(step.losses),
        backwards=[replace(b, site=one_of(b.site)) for b in step.backwards if seen([b.site])],
        updates=[replace(u, site=one_of(u.site)) for u in step.updates if seen([u.site])],
        zeros=seen(step.zeros),
        clips=seen(step.clips),
        unscales=seen(step.unscales),
        scaler_updates=seen(step.scaler_updates),
        grad_reads=seen(step.grad_reads),
        schedules=seen(step.schedules),
        stack=tuple(map(settled, step.stack)),
    )


# ------------------------------------------------------------------------ where it can be asked for
def _means_the_same(script: Script, ask: ast.expr, place: ast.stmt) -> bool:
    """Whether an expression of a test is the option at ``place``, too."""
    root = ask.value if isinstance(ask, ast.Attribute) else ask
    return isinstance(root, ast.Name) and script.analysis(Flow).means_the_same(root, place)
