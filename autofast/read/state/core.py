"""What all parts of the interpreter share: its state, events, and small questions about the frames
around a place.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from autofast.model import limits, names
from autofast.model.changes import CLOCK, remember, remembered
from autofast.model.events import (
    BranchFrame,
    CallFrame,
    Frame,
    Log,
    LoopFrame,
    Stack,
    TryFrame,
    WithFrame,
    is_undecided,
)
from autofast.model.kinds import gradient_modes
from autofast.model.limits import MOST_ALIKE, MOST_CALLEES, MOST_HELD, MOST_VALUES, PASSES, WORK
from autofast.model.several import first_such
from autofast.model.source import ByNode, Nodes, Source, is_generator
from autofast.model.values import (
    NO_ARGUMENTS,
    NOTHING,
    OBJECTS,
    Arguments,
    ByName,
    Cls,
    Const,
    Dict,
    Entry,
    Env,
    Ext,
    Func,
    Inst,
    Located,
    Method,
    Module,
    Num,
    Ref,
    Seq,
    Setting,
    Thing,
    Unknown,
    Values,
    Where,
    any_of,
    ordered,
)
from autofast.model.values.thing import Row
from autofast.read.project import Project
from autofast.read.state.reachable import reached
from autofast.read.state.summaries import Summaries

T = TypeVar("T", bound=Thing)
TOO_MANY = Unknown("too many possibilities")
NUMBERS: tuple[type, ...] = (Const, Num, Setting, Located)


def join(*sets: Values) -> Values:
    """The union; a set that has grown too large becomes unknown."""
    if len(sets) == 2:  # nearly always
        one, other = sets
        largest = one if other <= one else other
        holds_all = largest is one or one <= other
    elif len(sets) == 1:
        largest, holds_all = sets[0], True
    else:
        largest = max(sets, key=len, default=NOTHING)
        holds_all = all(part <= largest for part in sets)
    if holds_all and len(largest) <= MOST_VALUES + 1:
        return largest
    out = NOTHING.union(*sets)
    if len(out) <= MOST_CALLEES:
        return out
    kinds = list(map(type, out))
    if kinds.count(Func) + kinds.count(Cls) > MOST_CALLEES:
        out |= {TOO_MANY}
    if len(out) > MOST_VALUES:
        if sum(map(kinds.count, NUMBERS)) > MOST_VALUES // 2:
            out = frozenset(t for t in out if not isinstance(t, (Const, Num))) | {Num()}
        if len(out) > MOST_VALUES and not _are_alike(out, largest if len(sets) > 1 else NOTHING):
            kept = frozenset(ordered(out)[:MOST_VALUES])
            _give_up(out - kept)
            out = kept | {TOO_MANY}
    return out


def _give_up(left_out: Values) -> None:
    """What is done by the set to things that it no longer names is not seen: they may change."""
    objects = (getattr(x, "this", x) for x in left_out)  # the one that a method belongs to
    news = [t for t in objects if isinstance(t, (Seq, Inst, Ext, Dict)) and not _is_given_up(t)]
    for thing in reached(news, MOST_HELD, _is_given_up) or news:
        if isinstance(thing, OBJECTS):
            thing.open = thing.open or TOO_MANY.why
        elif isinstance(thing, Dict):
            thing.widen(TOO_MANY.why)
        elif isinstance(thing, Seq):
            thing.elem |= {TOO_MANY}


def _is_given_up(thing: Thing) -> bool:
    """Whether it may have changed unseen already, with all that it held."""
    if isinstance(thing, Seq):
        return TOO_MANY in thing.elem
    return isinstance(thing, (Inst, Ext, Dict)) and bool(thing.open)


def _are_alike(found: Values, before: Values) -> bool:
    """Whether few kinds of things are in a set; ``before``, the largest part of it, was one such if
    it is large itself.
    """
    if len(found) > MOST_ALIKE:
        return False
    key = _are_alike, found, before
    if (known := remembered(key)) is None:
        new = set(map(kind_of, found - before))
        known = len(before) > MOST_VALUES and all(any(kind_of(t) == k for t in before) for k in new)
        known = known or len(new.union(map(kind_of, before))) <= MOST_VALUES
        remember(key, known)
    return bool(known)


def kind_of(thing: Thing) -> Hashable:
    """What things have in common that differ in the object alone: the blocks of a network, their
    layers, methods of these, closures.
    """
    match thing:
        case Inst():
            return thing.cls
        case Ext():
            return thing.name
        case Method():
            return thing.name, kind_of(thing.this)
        case Func():
            return thing.node
    return thing


def merge(ends: list[ByName]) -> ByName:
    """The variables after several ways have met."""
    out = dict(ends[0])
    for end in ends[1:]:
        if end is not out:
            for name, found in end.items():
                old = out.get(name)
                if old is not found:
                    out[name] = found if old is None else join(old, found)
    return out


def _is_lazy(frame: Frame) -> bool:
    """Whether a call only makes a generator, whose code runs some time later, if at all."""
    return isinstance(frame, CallFrame) and is_generator(frame.func.node)


class TooDeep(Exception):
    """The budget for one call is used up."""


class Again(Exception):
    """The budget is used up, and several networks one of which is chosen were followed."""


class NoValue(Exception):
    """A variable of the running function is read before it has a value, in a ``try``."""


class NotYet(Exception):
    """A function calls itself with what it got before, and nothing has come of that yet."""


class Recursion:
    """What the calls of a function got and gave since it began to call itself: all are followed
    again until they give no more.
    """

    def __init__(self, born: int) -> None:
        self.seen: list[ByName] = []  # what they got, in this pass
        self.names: dict[frozenset[tuple[str, Values]], str] = {}
        self.gave = Env("recursion", {}, born=born)  # in all passes
        # of that, what calls of this pass were told first (None: nothing was known)
        self.used: dict[str, Values | None] = {}
        self.passes = 1

    def name(self, got: ByName) -> str:
        return self.names.setdefault(frozenset(got.items()), str(len(self.names)))

    def go_on(self, got: ByName, found: Values, inner: bool) -> bool:
        """A call that got this has given that: whether all are to be followed again, as less was
        known when it was asked for; an ``inner`` call only says what it gave.
        """
        if inner or self.used:
            name = self.name(got)
            self.gave.vars[name] = join(self.gave.vars.get(name, NOTHING), found)
        known = all(self.gave.vars.get(name) == asked for name, asked in self.used.items())
        if inner or known or self.passes == PASSES:
            return False
        self.seen, self.used, self.passes = [got], {}, self.passes + 1
        return True


class Record:
    """What a running function or loop collects on the side."""

    def __init__(self) -> None:
        self.breaks: list[ByName] = []
        self.continues: list[ByName] = []
        self.returns: Values = NOTHING
        self.yields: Values = NOTHING
        self.is_generator = False
        self.depth = 0  # of the stack where the function began
        self.contexts: list[WithFrame] = []  # around its ``yield``
        self.missed: set[str] = set()

    def first_miss(self, name: str) -> bool:
        """Whether a name has no value, for the first time: a loop may give it one further down."""
        new = name not in self.missed
        self.missed.add(name)
        return new


class Core:
    """The state of one run. Results: ``log``, ``at`` (values of each expression), ``modules``,
    ``called``.
    """

    def __init__(self, project: Project, each: bool = True, wary: bool = False):
        self.project = project
        self.each = each  # of several networks one of which is chosen, each is followed
        self.several = False  # and that was done
        self.wary = wary  # a call for which Python's stack does not do is given up alone
        self.log = Log()
        self.at: ByNode[Values] = {}
        self.modules: dict[Source, Module] = {}
        self.called: Nodes = set()  # functions that were entered
        self.made: list[Ext | Inst] = []
        self.notes: list[str] = []
        self.stack: list[Frame] = []
        self.records: list[Record] = []
        self.active: list[ast.AST] = []
        self.entered: list[Func] = []  # the functions of ``active``
        self.again: ByNode[Recursion] = {}  # of each function
        self.steps = 0
        self.limits: list[int] = [limits.READING]
        self.grad_default = "on"
        self.things: dict[tuple[Any, ...], Any] = {}
        # Ways out before this place: at which depth of the stack, and what they leave.
        self.left: list[tuple[int, str]] = []
        # For each ``try`` around in this function: the variables between its statements.
        self.tries: list[ByName | None] = []
        self.registered: dict[tuple[Hashable, ...], int] = {}
        # of a group of commands, by the places that put them there
        self.commands: dict[Thing, dict[ast.expr, Values]] = {}
        self.zoo: ByName = {}  # models that are registered with timm, by name
        self.model_changes = (
            0  # the same for attributes of modules: their forward may give something else then
        )
        self.cut = ""  # a function or file that was not followed to its end
        self.cuts = 0
        self.changes = (
            0  # how often a thing got a value it did not have: loops run until there are no more
        )
        self.ever: dict[tuple[Hashable, ...], Values] = {}
        # Deep copies, with the calls that made them: copies of how many copies.
        self.copies: dict[tuple[Thing, Where], int] = {}
        self.building: list[Thing] = []  # objects whose __init__ runs
        self.functions: dict[Thing, Cls] = {}  # what `apply` of an autograd Function runs
        self.patched: ByName = {}  # names of libraries that the program assigns to
        self.summaries = Summaries()
        # By what tells calls apart: a call like an earlier one makes the same functions again, in
        # the same scope.
        self.scopes: dict[Hashable, Env] = {}
        self.constants: ByNode[Values] = {}
        self.methods: dict[type, Any] = {}  # for each kind of node
        self.libraries: set[str] = set(names.PACKAGES)  # names that are modules of libraries

    def step(self) -> None:
        """Work that is no expression of the program; raises :class:`TooDeep` where the budget is
        used up.
        """
        self.steps += 1
        WORK.spend()
        if self.steps > self.limits[-1]:
            raise TooDeep

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _opened(self) -> tuple[list[Any], ...]:
        return self.stack, self.records, self.tries, self.limits, self.active, self.entered

    def depths(self) -> tuple[int, ...]:
        """How much is open at this place: for :meth:`unwind`."""
        return tuple(len(kept) for kept in self._opened())

    def unwind(self, depths: tuple[int, ...]) -> None:
        """Leave all that was opened since: what is around a call that is given up is not around
        what comes next.
        """
        for kept, depth in zip(self._opened(), depths, strict=True):
            del kept[depth:]

    def cut_short(self, what: str, env: Env, given: Values = NOTHING) -> None:
        """The budget is used up: what this place can reach, by the names around it or what it was
        given, may have changed since.
        """
        if self.several:
            raise Again
        self.note(f"{what} is too large to follow to the end")
        self.cut = self.cut or what
        self.changes += 1
        self.cuts += 1
        CLOCK.shake()
        if self.cuts > limits.MOST_CUTS:
            self.limits = [0] * len(self.limits)
        self.forget(given, env, f"{what} is too large to follow")

    def emit(self, kind: str, node: Where, this: Thing | None = None, args: Arguments = NO_ARGUMENTS,
             result: Values = NOTHING, **data: Any) -> None:  # fmt: skip
        if node is not None:
            self.happen(kind, node, tuple(self.stack), this, args, result, self.grad_mode(), data)

    def happen(self, kind: str, node: ast.AST, stack: Stack, this: Thing | None, args: Arguments,
               result: Values, grad: str, data: dict[str, Any]) -> None:  # fmt: skip
        self.log.add(kind, node, stack, this, args, result, grad, data)
        self.summaries.event(kind, node, stack, this, args, result, grad, data)

    def grad_mode(self) -> str:
        """on | off | inference | maybe, from the contexts around this place."""
        return next((mode for _, _, mode in gradient_modes(self.stack)), self.grad_default)

    def grad_on(self) -> bool:
        return self.grad_mode() in ("on", "maybe")

    # ----------------------------------------------------------------------------------- statements

    def arms(self, node: ast.If | ast.IfExp, env: Env) -> Iterator[bool]:
        """The arms that may run, one after the other, each from the variables before."""
        before, possible = env.vars, {}
        for arm in (True, False):
            env.vars = dict(before)
            if self.narrow(node.test, arm, env):
                possible[arm] = env.vars
        for arm, env.vars in possible.items():
            self.stack.append(BranchFrame(node, arm, len(possible) == 1))
            yield arm
            self.stack.pop()

    def weak(self, made: tuple[Any, ...], once: bool = False) -> bool:
        """Whether a change made here to a thing that was made below the frames ``made`` may not
        happen, or happen to only one of many.

        So it is where a condition, ``try`` or loop has begun since, where an ``if`` before this
        place may have left the function or the loop, where the loop that made the thing has ended
        (it may have made several), or where it is one of several things. With ``once`` it is enough
        that it happens in training over the batches of a loader: there is at least one epoch and
        batch.
        """
        before = {f.node for f in made}
        once = once and any(isinstance(f, LoopFrame) and f.loaders for f in self.stack)
        for frame in self.stack:
            if _is_lazy(frame) and frame.node not in before:
                return True
            if (
                (isinstance(frame, (TryFrame, LoopFrame)) or (is_undecided(frame)))
                and not (isinstance(frame, LoopFrame) and frame.sure)
                and frame.node not in before
                and not (once and isinstance(frame, LoopFrame))
            ):
                return True
        for frame in made:
            if isinstance(frame, LoopFrame) and all(f.node is not frame.node for f in self.stack):
                return True
        return any(self.left_by(depth, kind, made, before) for depth, kind in self.left)

    @contextmanager
    def maybe(self) -> Iterator[None]:
        """What happens meanwhile may not happen, or not to the thing that it seems to happen to."""
        self.left.append((len(self.stack), "choice"))
        try:
            yield
        finally:
            self.left.pop()

    def left_by(self, depth: int, kind: str, made: tuple[Any, ...], before: Nodes) -> bool:
        """Whether the way out noted at ``depth`` leads past this place while the thing lives on."""
        if kind == "choice":
            return (
                len(made) <= depth
                or len(self.stack) <= depth
                or made[depth].node is not self.stack[depth].node
            )
        wanted = CallFrame if kind == "return" else LoopFrame
        frame = first_such(reversed(self.stack[:depth]), wanted)
        return frame is not None and frame.node not in before

    def in_loop(self) -> bool:
        """Whether this place may be reached again, with the same things."""
        return any_of(self.stack, LoopFrame)

    def keep(self, found: Values, *place: Hashable) -> None:
        """Note that a thing got these values at a place of it, which may be news to a loop that has
        passed it already.
        """
        old = self.ever.get(place, NOTHING)
        if not found <= old:
            self.ever[place] = old | found
            self.changes += 1

    # ---------------------------------------------------------------------------------- expressions

    def intern(self, kind: type[T], key: tuple[Any, ...], make: Callable[[], T]) -> T:
        """One object per place and way there: interpreting a place again gives the same thing
        again.
        """
        turns: list[int] = []
        below = kind is Dict  # the call that runs
        for frame in reversed(self.stack):
            if isinstance(frame, LoopFrame):
                if frame.unrolled or below:
                    turns.append(frame.turn)
            elif isinstance(frame, CallFrame):
                below = False
        # What a function is, its scope says: calls that share one must not each make another.
        way = () if kind is Func else self.summaries.context(self.stack)
        full = (kind, key, tuple(turns), way)
        found: T | None = self.things.get(full)
        if found is None:
            found = self.things[full] = make()
        self.summaries.interned(found, kind is Dict)
        return found

    def tuple_of(self, node: Where, items: Row, *key: Hashable) -> Values:
        """A tuple that is made at ``node``, for each choice of items one."""
        key = (node, *key, items)
        return frozenset({self.intern(Seq, key, lambda: Seq(node, items, NOTHING, "tuple"))})

    def fill(self, seq: Seq, items: Row) -> None:
        """A list is made here again, of ``items``; the one before may have been changed since."""
        if (
            seq.items is None
            or (seq.items and len(seq.items) != len(items))
            or (seq.elem and not items)
        ):
            seq.elem = join(seq.elem, seq.any(), *items)
            seq.items = None
        else:
            old = seq.items or ((NOTHING,) * len(items))
            seq.items = tuple(join(a, b) for a, b in zip(old, items, strict=True))

    # what the other parts provide
    if TYPE_CHECKING:

        def block(self, body: Iterable[ast.stmt], env: Env) -> bool: ...
        def expr(self, node: ast.expr, env: Env) -> Values: ...
        def few(self, over: ast.expr, found: Values, env: Env) -> Row: ...
        def truth(self, found: Values, test: ast.expr, env: Env) -> bool | None: ...
        def narrow(self, test: ast.expr, taken: bool, env: Env) -> bool: ...
        def assign(
            self, target: ast.expr, found: Values, env: Env, expr: ast.expr | None
        ) -> None: ...
        def attribute(self, thing: Thing, name: str, node: Where) -> Values: ...
        def bind_members(self, found: Values, this: Inst, node: Where) -> Values: ...
        def spread(self, into: Dict, thing: Thing, sure: bool) -> None: ...
        def choices(self, found: Values) -> Iterator[Thing]: ...
        def store_attribute(
            self, thing: Inst | Ext, name: str, found: Values, sure: bool = True
        ) -> None: ...
        def set_in_library(self, thing: Ref, name: str, found: Values, node: Where) -> None: ...
        def set_in_namespace(self, space: Ext, key: Any, found: Values) -> None: ...
        def set_entry(self, thing: Dict, key: Any, entry: Entry) -> None: ...
        def drop_entry(self, thing: Dict, key: Any) -> None: ...
        def open_attributes(self, thing: Thing, why: str) -> None: ...
        def forget(self, found: Values, scope: Env, why: str) -> None: ...
        def call_thing(self, thing: Thing, args: Arguments, node: Where) -> Values: ...
        def call_values(self, callee: Values, args: Arguments, node: Where) -> Values: ...
        def call_method_of(
            self, thing: Inst, name: str, args: list[Values], node: Where
        ) -> Values: ...
        def call_function(
            self, func: Func, args: Arguments, node: Where, this: Thing | None
        ) -> Values: ...
        def annotated(self, annotation: ast.expr | None, env: Env) -> Values: ...
        def run_module(self, source: Source, main: bool) -> Module: ...
        def run_class(self, cls: Cls) -> None: ...
