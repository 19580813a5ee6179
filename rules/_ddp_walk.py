"""Follows a training through its statements, in order, and notes where the numbers of one process must become those of all.

Every variable, attribute and container has a kind (:mod:`_ddp_kinds`) at every point; loops are followed until nothing changes, functions
wherever they are called. Numbers are read where a tensor becomes one of the host: there a mean or a sum over processes is taken, which all
processes must come to equally often. So whatever decides about that must be the same in all: a condition on numbers that may differ
in their last bits (an evaluation) is decided by the first process for all, one on anything else is refused.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from autofast.read.source import ancestors, function_of, parent_of, source_of, statement_of
from autofast.read.values import Bound, Cls, Const, Dict, Ext, Func, Inst, Method, Module, Seq, Tensor, Thing, const
from autofast.script import Script

from ._ddp_calls import CLASSES
from ._ddp_effects import MADE, effect_of
from ._ddp_guards import Host
from ._ddp_kinds import EQUAL, NEAR, NONE, Kind, join, of, other
from ._ddp_names import Refused, Training, at
from ._ddp_values import Values

STEPS = 1_000_000
DEPTH = 24
Key = tuple[str, int, str]
State = dict[Key, Kind]
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass
class Control:
    """A condition that what follows depends on."""

    test: ast.expr | ast.stmt | ast.ExceptHandler
    kind: Kind


@dataclass
class Frame:
    """A function that is followed; ``things`` are what its parameters are in this call,
    ``left`` conditions under which it may have ended already."""

    scope: ast.AST
    things: dict[str, list[Thing]] = field(default_factory=dict)
    returns: list[Kind] = field(default_factory=list)
    yields: list[Kind] = field(default_factory=list)
    left: list[Control] = field(default_factory=list)
    exits: list[State] = field(default_factory=list)  # what holds where it returns
    passes: list[list[State]] = field(default_factory=list)  # ... and where its loops are left or go on, innermost last
    loops: list[list[Control]] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Note:
    """What becomes of an expression: ``mean`` or ``sum`` (over processes), ``size`` (times their number), ``per`` (divided by it), ``first``
    (that of the first process) or ``none``."""

    expr: ast.expr
    how: str


class _Alone(Refused):
    """One process would do alone what all must do."""


class Walk(Values):
    """One pass through the script; ``decided`` are conditions that the first process decides for all (by id)."""

    def __init__(self, script: Script, training: Training, host: Host, decided: dict[int, ast.expr], hoists: dict[int, ast.Call]):
        self.script, self.training, self.host = script, training, host
        self.decided, self.hoists = decided, hoists  # hoists: calls that are taken out of what one process does
        self.kinds: dict[int, Kind] = {}
        self.state: State = {}
        self.notes: dict[int, Note] = {}
        self.whole: set[int] = set()  # expressions that are the same in all processes in some use
        self.barriers: dict[int, ast.stmt] = {}
        self.frames: list[Frame] = []
        self.control: list[Control] = []
        self.trying: list[ast.Try] = []
        self.recording = True
        self.written = False
        self.trained = False
        self.waits: dict[int, ast.stmt] = {}  # after these, the others wait for the first process
        self.guarded: list[ast.AST] = []
        self.splits: set[int] = set()  # statements before which a guard must end
        self._inner: set[int] = set()
        self.place = ""  # before, in or after the time in which there is a group
        self.seen: set[int] = set()
        self._steps = 0
        self._locals: dict[int, frozenset[str]] = {}
        self.random_data = {id(d.thing) for x in script.loaders for d in x.datasets if d.random - {"own"}}
        self._loops = {id(loop) for loop in training.loops}
        self.passes = set(training.wrapped) | {id(p) for s in training.steps for b in s.backwards for t in b.tensors for p in t.passes}
        self._matters = {id(b.node) for s in training.steps for b in s.backwards} | {id(u.node) for s in training.steps for u in s.updates}

    def run(self) -> None:
        self.frames.append(Frame(self.script.entry.tree))
        for source in reversed(self.script.sources):
            if source is not self.script.entry:
                self.block(source.tree.body)
        self.block(self.script.entry.tree.body)

    def step(self) -> None:
        self._steps += 1
        if self._steps > STEPS:
            raise Refused("the training is too large to follow")

    # -------------------------------------------------------------------------------------------- objects
    def things(self, node: ast.expr) -> list[Thing]:
        """What an expression may be in the calls that are followed now."""
        every = list(self.script.values(node))
        if isinstance(node, ast.Name):
            scope = self._scope_of(node)
            frame = next((f for f in reversed(self.frames) if f.scope is scope), None)
            return frame.things[node.id] if frame is not None and node.id in frame.things else every
        if isinstance(node, ast.Attribute) and every:
            owners = self.things(node.value)
            bound = [t for t in every if isinstance(t, (Bound, Method))]
            if len(bound) == len(every):
                mine = {id(o) for o in owners}
                return [t for t in bound if id(t.this) in mine] or every
            if owners and all(isinstance(o, Inst) and node.attr in o.attrs for o in owners):
                kept = {id(t) for o in owners if isinstance(o, Inst) for t in (*o.attrs[node.attr], *o.past.get(node.attr, ()))}
                return [t for t in every if id(t) in kept or not isinstance(t, (Inst, Ext, Seq, Dict))]
        return every

    # -------------------------------------------------------------------------------------------- variables
    def _scope_of(self, node: ast.Name) -> ast.AST:
        scope: ast.AST = function_of(node)
        while not isinstance(scope, ast.Module):
            if node.id in self._locals_of(scope):
                return scope
            scope = function_of(scope)
        return scope

    def _locals_of(self, scope: ast.AST) -> frozenset[str]:
        found = self._locals.get(id(scope))
        if found is None:
            names = {a.arg for a in _parameters(scope)}
            outside: set[str] = set()
            for node in _own(scope):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    names.add(node.id)
                elif isinstance(node, (ast.Global, ast.Nonlocal)):
                    outside.update(node.names)
            found = self._locals[id(scope)] = frozenset(names - outside)
        return found

    def lookup(self, node: ast.Name) -> Kind:
        found = self.state.get(("v", id(self._scope_of(node)), node.id))
        if found is None:
            found = self._imported(node)
        return self._inside(node, found)

    def _imported(self, node: ast.Name) -> Kind:
        for source in self.script.sources:
            kind = self.state.get(("v", id(source.tree), node.id))
            if (
                kind is not None
                and source is not source_of(node)
                and any(
                    isinstance(n, ast.ImportFrom) and any((a.asname or a.name) == node.id for a in n.names)
                    for n in source_of(node).tree.body
                )
            ):
                return kind
        return EQUAL

    def store(self, target: ast.expr, kind: Kind) -> None:
        match target:
            case ast.Name():
                self.state["v", id(self._scope_of(target)), target.id] = self._raised(kind)
                self.kinds[id(target)] = kind
            case ast.Tuple() | ast.List():
                self._unpack(target, kind)
            case ast.Starred():
                self.store(target.value, kind.whole)
            case ast.Attribute():
                self._store_attribute(target, self._raised(kind))
            case ast.Subscript():
                self.ev(target.slice)
                self.ev(target.value)
                self._store_item(target, self._raised(kind))

    def _unpack(self, target: ast.Tuple | ast.List, kind: Kind) -> None:
        if kind.items is not None and kind.name != "iter" and len(kind.items) == len(target.elts):
            for elt, part in zip(target.elts, kind.items, strict=True):
                self.store(elt, part)
            return
        part = kind.items[0] if kind.name == "iter" and kind.items else kind.whole
        for elt in target.elts:
            self.store(elt, part)

    def _store_attribute(self, target: ast.Attribute, kind: Kind) -> None:
        self.changes(target)
        receiver = self.ev(target.value)
        owners = [t for t in self.things(target.value) if isinstance(t, Inst)]
        for owner in owners:
            key = ("a", id(owner), target.attr)
            self.state[key] = kind if len(owners) == 1 else join(self.state.get(key, NONE), kind)
        modules = [t for t in self.things(target.value) if isinstance(t, Module)]
        for module in modules:
            self.state["v", id(module.source.tree), target.attr] = kind
        if not owners and not modules and receiver.whole.name != "batch":
            self._library_keeps(target, kind)

    def _library_keeps(self, target: ast.expr, kind: Kind) -> None:
        """``param_group["lr"] = x``: what is set decides how the training goes on."""
        if kind.whole.name != "equal":
            value = getattr(statement_of(target), "value", None)
            if kind.whole.name == "near" and isinstance(value, ast.expr) and isinstance(statement_of(target), ast.Assign):
                self.first_value(value)
            elif not kind.whole.same:
                raise Refused(f"`{ast.unparse(target)}` on {at(target)} is set to {_words(kind)}")
        self.happens(target)

    def _store_item(self, target: ast.Subscript, kind: Kind) -> None:
        found = self.things(target.value)
        if any(isinstance(t, CLASSES) for t in found) or isinstance(target.value, (ast.Name, ast.Attribute)) and not found:
            self.changes(target)
            self.hold(target.value, kind.whole)
            if not any(isinstance(t, CLASSES) for t in found):
                return
            return
        receiver = self.kinds.get(id(target.value), EQUAL).whole
        if receiver.name == "batch":
            return
        if not kind.whole.same:
            self.hold(target.value, kind.whole)
        if not isinstance(target.value, ast.Name) or kind.whole.name == "near":
            return

    def hold(self, container: ast.expr, what: Kind) -> None:
        """A container holds ``what`` from now on, under all its names."""
        what = self._raised(what)
        found = [t for t in self.things(container) if isinstance(t, CLASSES)]
        for thing in found:
            key = ("c", id(thing), "")
            self.state[key] = join(self.state.get(key, what), what)
        root = container
        while isinstance(root, (ast.Subscript, ast.Call)):
            root = root.value if isinstance(root, ast.Subscript) else root.func.value if isinstance(root.func, ast.Attribute) else root.func
        if not found or root is not container:
            if isinstance(root, ast.Name):
                old = self.lookup(root)
                empty = old.items is not None and not old.items
                self.state["v", id(self._scope_of(root)), root.id] = what if empty else join(old.whole, what)
            elif isinstance(root, ast.Attribute):
                for owner in self.things(root.value):
                    if isinstance(owner, Inst):
                        key = ("a", id(owner), root.attr)
                        old = self.state.get(key, of())
                        self.state[key] = what if old.items == () else join(old.whole, what)

    def _raised(self, kind: Kind) -> Kind:
        """What is set under a condition that may differ may differ."""
        worst = self._worst()
        if worst is None:
            return kind
        if kind.items is not None:
            return of(*(self._raised(k) for k in kind.items)) if kind.name == "equal" else kind
        if worst.name == "near":
            return NEAR if kind.same or kind.sized else kind
        return other(worst.why or "it is set by each process for itself") if kind.same or kind.sized else kind

    def _worst(self) -> Kind | None:
        found = None
        for control in self._all_control():
            if control.kind.name != "equal" and id(control.test) not in self.decided:
                if control.kind.name != "near":
                    return control.kind
                found = control.kind
        return found

    # -------------------------------------------------------------------------------------------- control
    def _all_control(self) -> Iterator[Control]:
        yield from self.control
        for frame in self.frames:
            yield from frame.left
            for loop in frame.loops:
                yield from loop

    def under(self, test: ast.expr, kind: Kind) -> None:
        self.control.append(Control(test, kind if id(test) not in self.decided else EQUAL))

    def leave(self) -> None:
        self.control.pop()

    def happens(self, node: ast.AST) -> None:
        """All processes must come here together."""
        if self.guarded:
            raise _Alone(f"what {at(self.guarded[-1])} shows takes part in the training: put it into a variable first")
        for control in list(self._all_control()):
            if control.kind.name == "equal" or id(control.test) in self.decided:
                continue
            if control.kind.name == "near" and isinstance(control.test, ast.expr):
                self.decided[id(control.test)] = control.test
            else:
                raise Refused(f"whether the script comes to {at(node)} depends on {_words(control.kind)} ({at(control.test)})")
        for block in self.trying:
            if any(not _ends(h) for h in block.handlers):
                raise Refused(f"an error on {at(node)} is caught on {at(block.handlers[0])}: the other processes would wait for ever")

    def changes(self, node: ast.AST) -> None:
        """Something is changed that lasts: not in one process only."""
        if self.guarded:
            raise _Alone(f"what {at(self.guarded[-1])} shows changes something on {at(node)}: put it into a variable first")

    def draws(self, node: ast.AST) -> None:
        """Random numbers are drawn: before each process has its own, all must draw the same."""
        if self.guarded and not self.trained:
            raise _Alone(f"what {at(self.guarded[-1])} shows or writes draws random numbers: put it into a variable first")

    def outside(self, node: ast.Call) -> Kind | None:
        """The call of a function of the project in what one process does alone: where it does more than that, it is taken out.

        It then stands before the statement, so nothing that it could change may stand before it in there.
        """
        if not self.guarded or id(node) in self._inner or not any(isinstance(t, (Func, Bound, Inst, Cls)) for t in self.things(node.func)):
            return None
        before, guarded, frames, control = dict(self.state), self.guarded, len(self.frames), len(self.control)
        self._inner.add(id(node))
        try:
            if id(node) not in self.hoists:
                with self._quietly():
                    self._call(node)
                    self.state = dict(before)
                return self._call(node)
        except _Alone:
            if function_of(node) is not function_of(guarded[-1]) or self._reads_before(guarded[-1], node):
                raise
            self.hoists[id(node)] = node
            self.splits.add(id(guarded[-1]))
            del self.frames[frames:], self.control[control:]
            self.state = before
        finally:
            self._inner.discard(id(node))
        self.guarded = []
        self._inner.add(id(node))
        try:
            return self._call(node)
        finally:
            self._inner.discard(id(node))
            self.guarded = guarded

    def files(self, node: ast.Call, kind: str) -> None:
        if kind in ("guard", "file"):
            effect = effect_of(self.script, node)
            if effect is not None and (MADE.fullmatch(effect.name) if kind == "guard" else isinstance(parent_of(node), ast.withitem)):
                if not self.trained:
                    self._made_first(node)
                    return
            self.written = self.written or not _is_text(node)
        elif kind == "download":
            self.happens(node)
            self._in_group(node)
        elif self.written and kind == "read" and not self.guarded:
            self.happens(node)
            self._in_group(node)
            self.barriers[id(statement_of(node))] = statement_of(node)

    def _made_first(self, node: ast.Call) -> None:
        """A file is made before the training starts: the others wait for it, as they may read it."""
        with self._before_guard():
            self.happens(node)
            self._in_group(node)
        guard = self.host.guard_of(node)
        last = guard[1] if guard else statement_of(node)
        for outer in ancestors(last):
            if isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                break
            if isinstance(outer, (ast.For, ast.While, ast.With)):
                last = outer
        self.waits[id(last)] = last

    def _in_group(self, node: ast.AST) -> None:
        if self.place != "in":
            when = "before the training starts" if not self.place else "after its end"
            raise Refused(f"{at(node)} is carried out {when}, where the processes cannot wait for each other")

    @contextmanager
    def _before_guard(self) -> Iterator[None]:
        """What is done here stands before the guard."""
        guarded, self.guarded = self.guarded, []
        try:
            yield
        finally:
            self.guarded = guarded

    @contextmanager
    def _quietly(self) -> Iterator[None]:
        before, self.recording = self.recording, False
        try:
            yield
        finally:
            self.recording = before

    def _reads_before(self, statement: ast.AST, call: ast.Call) -> bool:
        """Whether the statement looks at something that the call might change before it comes to the call."""
        around = {id(call), *(id(a) for a in ancestors(call)), *(id(n) for n in ast.walk(call) if isinstance(n, ast.expr))}
        for node in ast.walk(statement):
            if isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)) and id(node) not in around and not _is_method(node):
                found = self.things(node.func) if isinstance(node, ast.Call) else []
                fixed = bool(found) and all(isinstance(t, Method) and isinstance(t.this, (Tensor, Const)) for t in found)
                if (node.lineno, node.col_offset) < (call.lineno, call.col_offset) and not fixed:
                    return True
        return False

    # -------------------------------------------------------------------------------------------- what is noted
    def note(self, expr: ast.expr, how: str) -> None:
        if how in ("mean", "sum", "first"):
            for outer in self.guarded:
                if function_of(expr) is not function_of(outer):
                    raise _Alone(f"{at(expr)} is reached while {at(outer)} is carried out, in one process only")
            with self._before_guard():
                self.happens(expr)
                self._in_group(expr)
        if not self.recording:
            return
        old = self.notes.get(id(expr))
        if old is not None and old.how != how:
            if {old.how, how} in ({"mean", "none"}, {"first", "none"}):
                how = "mean" if "mean" in (old.how, how) else "first"  # what is the same everywhere stays what it is
            else:
                raise self._two(expr)
        self.notes[id(expr)] = Note(expr, how)

    def met(self, node: ast.expr, kind: Kind) -> None:
        if self.recording and kind.same and not kind.none:
            self.whole.add(id(node))

    def check_uses(self) -> None:
        """What is a part of a number in one use is never all of it in another (a function for training and evaluation)."""
        for note in self.notes.values():
            if note.how in ("sum", "size", "per") and id(note.expr) in self.whole:
                raise self._two(note.expr)

    def _two(self, expr: ast.expr) -> Refused:
        return Refused(
            f"`{_short(expr)}` on {at(expr)} is a part of a number in one use and all of it in another: give training a function of its own"
        )

    def first_value(self, expr: ast.expr) -> None:
        self.note(expr, "first")

    def settle(self, expr: ast.expr, images: bool = False) -> None:
        """Where the value of ``expr`` goes, that of all processes together is meant."""
        kind = self.kinds.get(id(expr), EQUAL)
        if kind.same or kind.name == "loader":
            self.note(expr, "none")
            return
        if kind.items is None and kind.name in ("mean", "sum", "per"):
            if kind.sized and isinstance(expr, ast.BinOp) and isinstance(expr.op, ast.Mult):
                sizes, others = self._sizes(expr.left, expr.right)
                if len(sizes) == 1 and any(id(n) in self.notes and self.notes[id(n)].how != "none" for n in ast.walk(others[0])):
                    self.settle(sizes[0])  # the number of samples itself: other rules may move what it is multiplied with
                    return
            self.note(expr, "size" if kind.sized else kind.name)  # `per` and `size` need no communication
            return
        inner = (
            []
            if kind.name == "batch" and not isinstance(expr, (ast.Tuple, ast.List, ast.Dict))
            else [c for c in _operands(expr) if not self.kinds.get(id(c), EQUAL).same]
        )
        if not inner or (isinstance(expr, ast.Call) and self._own_call(expr)):
            if images:
                return
            raise Refused(f"`{_short(expr)}` on {at(expr)} is {_words(kind)}")
        try:
            for child in inner:
                self.settle(child, images)
        except _Alone:
            raise
        except Refused:
            if kind.name == "other" and kind.why and id(expr) not in self.decided:
                raise Refused(f"`{_short(expr)}` on {at(expr)} is {kind.why}") from None
            raise

    def _sizes(self, *factors: ast.expr) -> tuple[list[ast.expr], list[ast.expr]]:
        """Those that count samples, and the others."""
        sizes = [f for f in factors if self.kinds.get(id(f), EQUAL).sized]
        return sizes, [f for f in factors if f not in sizes]

    def kept(self, expr: ast.expr, kind: Kind) -> Kind:
        """A tensor that is no part of the loss is kept beyond its batch: from here on it is that of all processes."""
        tensors = [t for t in self.things(expr) if isinstance(t, Tensor)]
        own = kind.items is None and kind.name in ("mean", "sum") and not kind.sized and self._in_batches()
        if own and tensors and not any(t.grad for t in tensors):
            self.settle(expr)
            return EQUAL
        return kind

    def _in_batches(self) -> bool:
        """This function goes over the batches that are shared out."""
        return any(
            isinstance(c.test, ast.For) and id(c.test) in self._loops and function_of(c.test) is self.frames[-1].scope for c in self.control
        )

    def _own_call(self, call: ast.Call) -> bool:
        return any(not hasattr(t, "name") or isinstance(t, (Func,)) for t in self.things(call.func))

    # -------------------------------------------------------------------------------------------- functions
    def call_function(self, func: Func, this: Thing | None, node: ast.Call | None, kinds: list[Kind], named: dict[str, Kind]) -> Kind:
        scope = func.node
        if len(self.frames) > DEPTH or sum(f.scope is scope for f in self.frames) > 1:
            fine = all(k.same for k in (*kinds, *named.values()))
            return NEAR if fine else other("a function that calls itself")
        frame = Frame(scope, self._given(func, this, node))
        self._bind(func, this, node, kinds, named)
        self.frames.append(frame)
        self.seen.add(id(scope))
        try:
            if isinstance(scope, ast.Lambda):
                return self.ev(scope.body)
            self.block(scope.body)
        finally:
            self.frames.pop()
            for state in frame.exits:
                self.state = merged(self.state, state)
        if frame.yields:
            found = frame.yields[0]
            for kind in frame.yields[1:]:
                found = join(found, kind)
            return Kind("iter", items=(found,))
        if not frame.returns:
            return NONE
        found = frame.returns[0]
        for kind in frame.returns[1:]:
            found = join(found, kind)
        return found

    def _given(self, func: Func, this: Thing | None, node: ast.Call | None) -> dict[str, list[Thing]]:
        """The objects that a call hands over, where the parameter stays what it is."""
        spec = func.node.args
        names = [a.arg for a in (*spec.posonlyargs, *spec.args)]
        stored = {n.id for n in _own(func.node) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
        found: dict[str, list[Thing]] = {}
        if this is not None and names:
            found[names.pop(0)] = [this]
        for name, expr in zip(names, node.args if node is not None else (), strict=False):
            if isinstance(expr, ast.Starred):
                break
            found[name] = self.things(expr)
        for keyword in node.keywords if node is not None else ():
            if keyword.arg in {*names, *(a.arg for a in spec.kwonlyargs)}:
                found[keyword.arg] = self.things(keyword.value)
        return {name: things for name, things in found.items() if name not in stored and things}

    def _bind(self, func: Func, this: Thing | None, node: ast.Call | None, kinds: list[Kind], named: dict[str, Kind]) -> None:
        spec = func.node.args
        names = [a.arg for a in (*spec.posonlyargs, *spec.args)]
        for name in self._locals_of(func.node):
            self.state.pop(("v", id(func.node), name), None)
        if this is not None and names:
            names = names[1:]
        spread = [n for n, a in enumerate(node.args) if isinstance(a, ast.Starred)] if node is not None else []
        loose = [k for n, k in named.items() if n.startswith("**")]
        given: dict[str, Kind] = {}
        for n, kind in enumerate(kinds):
            if spread and n >= spread[0]:
                loose.append(kind)
            elif n < len(names):
                given[names[n]] = kind
            elif spec.vararg is not None:
                old = given.get(spec.vararg.arg)
                given[spec.vararg.arg] = of(*(old.items if old is not None and old.items else ()), kind)
        every = {*names, *(a.arg for a in spec.kwonlyargs)}
        for name, kind in named.items():
            if name in every:
                given[name] = kind
            elif not name.startswith("**") and spec.kwarg is not None:
                given[spec.kwarg.arg] = join(given[spec.kwarg.arg], kind.whole) if spec.kwarg.arg in given else kind.whole
        for kind in loose:
            for name in every - set(given):
                given[name] = join(kind.whole, EQUAL) if kind.items is None else kind.whole
        for name, kind in given.items():
            self.state["v", id(func.node), name] = self._raised(kind) if kind.items is None else kind

    # -------------------------------------------------------------------------------------------- statements
    def block(self, body: Iterable[ast.stmt]) -> None:
        for statement in body:
            if statement is self.training.setup:
                self.place = "in"
            self.statement(statement)
            if statement is self.training.end:
                self.place = "after"

    def statement(self, node: ast.stmt) -> None:
        self.step()
        self.seen.add(id(node))
        if id(node) in self.host.guards:
            self.guarded.append(node)
            try:
                self._statement(node)
            finally:
                self.guarded.pop()
        else:
            self._statement(node)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Expr(value=value):
                if isinstance(value, (ast.Yield, ast.YieldFrom)):
                    kind = self.ev(value.value) if value.value is not None else NONE
                    self.frames[-1].yields.append(kind if isinstance(value, ast.Yield) else self.element(value.value, kind))
                    return
                self.ev(value)
                self._mattering(value)
            case ast.Assign(targets=targets, value=value):
                kind = self.ev(value)
                self._mattering(value)
                for target in targets:
                    self.store(target, kind)
            case ast.AnnAssign(target=target, value=value) if value is not None:
                self.store(target, self.ev(value))
            case ast.AugAssign():
                self._augmented(node)
            case ast.Return(value=value):
                self.frames[-1].returns.append(self._raised(self.ev(value)) if value is not None else NONE)
                self._jump(self.frames[-1].left)
                self.frames[-1].exits.append(dict(self.state))
            case ast.Break() | ast.Continue():
                self._jump(self.frames[-1].loops[-1] if self.frames[-1].loops else self.frames[-1].left)
                if self.frames[-1].passes:
                    self.frames[-1].passes[-1].append(dict(self.state))
            case ast.If():
                self._branches(node)
            case ast.For() | ast.AsyncFor():
                self._for(node)
            case ast.While():
                self._while(node)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    kind = self.ev(item.context_expr)
                    if item.optional_vars is not None:
                        self.store(item.optional_vars, kind)
                self.block(node.body)
            case ast.Try():
                self._try(node)
            case ast.Assert(test=test):
                self.ev(test)
            case ast.Raise(exc=exc):
                self.ev(exc)
            case ast.Delete():
                pass
            case ast.Match():
                raise Refused(f"`match` on {at(node)} is not followed")

    def _mattering(self, value: ast.expr) -> None:
        for call in ast.walk(value):
            if id(call) in self._matters:
                self.trained = True
                self.happens(call)

    def _augmented(self, node: ast.AugAssign) -> None:
        as_load = self.ev(_loaded(node.target))
        value = self.ev(node.value)
        if value.sized and value.items is None and as_load.whole.same and self._counted_here(node.value):
            self.settle(node.value)
            value = EQUAL
        value = self.kept(node.value, value) if as_load.whole.same else value
        found = self._binary(node, as_load, value, node.op)
        if (
            found.name == "other"
            and isinstance(node.op, (ast.Add, ast.Sub))
            and as_load.items is None
            and as_load.same
            and value.whole.name == "sum"
        ):
            # a number that has a value already grows by a number of samples: by those of all
            self.settle(node.value)
            found = as_load
        if as_load.items is not None and isinstance(node.op, ast.Add):
            self.hold(node.target, self.element(node.value, value).whole)
            return
        self.store(node.target, found)

    def _counted_here(self, expr: ast.expr) -> bool:
        """``total += labels.size(0)``: the number of samples is asked for here, not handed on."""
        return any(isinstance(n, (ast.Call, ast.Subscript)) and self.kinds.get(id(n), EQUAL).sized for n in ast.walk(expr))

    def _jump(self, pending: list[Control]) -> None:
        pending += [c for c in self.control if c.kind.name != "equal" and id(c.test) not in self.decided]

    def _branches(self, node: ast.If) -> None:
        test = self.condition(node.test)
        known = const(self.script.values(node.test))
        if isinstance(known, bool) or not self._any_reached(node.body) or (node.orelse and not self._any_reached(node.orelse)):
            arms = [a for a in (node.body, node.orelse) if self._any_reached(a)]
            for arm in arms[:1] if isinstance(known, bool) else arms:
                self._arm(node.test, test, arm)
            return
        before = dict(self.state)
        self._arm(node.test, test, node.body)
        after = self.state
        self.state = before
        self._arm(node.test, test, node.orelse)
        if _goes(node.body):
            return
        if node.orelse and _goes(node.orelse):
            self.state = after
            return
        self.state = merged(after, self.state)

    def _any_reached(self, body: list[ast.stmt]) -> bool:
        return any(isinstance(s, (ast.Pass, ast.Break, ast.Continue, ast.Return, ast.Global)) or self.script.reached(s) for s in body)

    def _arm(self, test: ast.expr, kind: Kind, body: list[ast.stmt]) -> None:
        self.under(test, kind)
        self.block(body)
        self.leave()

    def _for(self, node: ast.For | ast.AsyncFor) -> None:
        over = self.ev(node.iter)
        each = self._each(node)
        if each is not None:
            self.frames[-1].passes.append([])
            for value in each:
                self.store(node.target, value)
                self._pass(node, EQUAL)
                for state in self.frames[-1].passes[-1]:
                    self.state = merged(self.state, state)
            self.frames[-1].passes.pop()
            self.block(node.orelse)
            return
        control = (
            over.whole if over.name not in ("iter", "loader") and over.items is None and over.whole.name in ("near", "other") else EQUAL
        )
        if _is_loader(self.script, node.iter):
            control = EQUAL  # the same data in each

        def once() -> None:
            self.store(node.target, self.element(node.iter, over))
            self._pass(node, control)

        self._loop(once)
        self.block(node.orelse)

    def _each(self, node: ast.For | ast.AsyncFor) -> list[Kind] | None:
        """The values of a loop over a few parts, each of its own kind."""
        kind = self.kinds.get(id(node.iter), EQUAL)
        if kind.name == "equal" and kind.items and len({*kind.items}) > 1 and not any(isinstance(n, ast.Break) for n in ast.walk(node)):
            return list(kind.items)
        return None

    def _pass(self, node: ast.For | ast.AsyncFor | ast.While, control: Kind) -> None:
        self.control.append(Control(node, control))
        self.block(node.body)
        self.control.pop()

    def _while(self, node: ast.While) -> None:
        def once() -> None:
            kind = self.condition(node.test)
            self.under(node.test, kind)
            self.block(node.body)
            self.leave()

        self._loop(once)
        self.block(node.orelse)

    def _loop(self, once: Callable[[], None]) -> None:
        frame = self.frames[-1]
        frame.loops.append([])

        def turn() -> None:
            before = dict(self.state)
            frame.passes.append([])
            once()
            for state in (*frame.passes.pop(), before):
                self.state = merged(self.state, state)

        for _ in range(8):
            before = dict(self.state)
            with self._quietly():
                turn()
            if self.state == before:
                break
        turn()
        frame.loops.pop()

    def _try(self, node: ast.Try) -> None:
        before = dict(self.state)
        if node.handlers:
            self.trying.append(node)
        self.block(node.body)
        if node.handlers:
            self.trying.pop()
        self.block(node.orelse)
        normal = self.state
        for handler in node.handlers:
            self.state = merged(dict(before), normal)
            self.control.append(
                Control(handler, EQUAL if _interrupt(handler) or _exhausted(handler) else other("an error in one of the processes"))
            )
            self.block(handler.body)
            self.control.pop()
            normal = merged(normal, self.state)
        self.state = normal
        self.block(node.finalbody)


# ------------------------------------------------------------------------------------------------ small questions
def merged(a: State, b: State) -> State:
    found = dict(a)
    for key, kind in b.items():
        found[key] = join(found[key], kind) if key in found else kind
    return found


def _own(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions inside it."""
    todo = list(ast.iter_child_nodes(scope))
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            todo += ast.iter_child_nodes(node)


def _parameters(scope: ast.AST) -> list[ast.arg]:
    if not isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        return []
    spec = scope.args
    return [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, *(a for a in (spec.vararg, spec.kwarg) if a is not None)]


def _loaded(target: ast.expr) -> ast.expr:
    return target


def _operands(expr: ast.expr) -> list[ast.expr]:
    if isinstance(expr, ast.Call):
        receiver = [expr.func.value] if isinstance(expr.func, ast.Attribute) else []
        return [*receiver, *expr.args, *(k.value for k in expr.keywords)]
    if isinstance(expr, ast.IfExp):
        return [expr.body, expr.orelse]
    found: list[ast.expr] = []
    for child in ast.iter_child_nodes(expr):
        if isinstance(child, ast.expr):
            found.append(child)
    return found


def _words(kind: Kind) -> str:
    whole = kind.whole
    if whole.name == "batch":
        return "made of single samples, of which each process has a part"
    if whole.name == "near":
        return "a number that may differ between processes"
    return whole.why or "a part of a larger number"


def _short(expr: ast.expr) -> str:
    text = ast.unparse(expr)
    return text if len(text) < 50 else text[:47] + "..."


def _is_method(node: ast.AST) -> bool:
    """``x.item`` of ``x.item()``, ``logger.info`` of a call: looked at, not read."""
    outer = parent_of(node)
    return (
        isinstance(node, ast.Attribute)
        and isinstance(outer, ast.Call)
        and outer.func is node
        and isinstance(node.value, (ast.Name, ast.Constant))
    )


def _goes(body: list[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], (ast.Return, ast.Raise, ast.Continue, ast.Break))


def _named(handler: ast.ExceptHandler) -> list[str]:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type] if handler.type is not None else []
    return [ast.unparse(k) for k in kinds]


def _interrupt(handler: ast.ExceptHandler) -> bool:
    """The user ends the script: all processes get the signal."""
    return _named(handler) == ["KeyboardInterrupt"]


def _exhausted(handler: ast.ExceptHandler) -> bool:
    """The end of an iterator, to which all processes come at once."""
    return _named(handler) == ["StopIteration"]


def _ends(handler: ast.ExceptHandler) -> bool:
    """The handler lets the error go on, or none can come from one process alone."""
    return _interrupt(handler) or _exhausted(handler) or isinstance(handler.body[-1], ast.Raise)


def _is_text(call: ast.Call) -> bool:
    """A print: no file that the script could read again."""
    text = ast.unparse(call.func)
    return text.split(".")[-1] in ("print", "info", "debug", "warning", "error", "flush", "write", "log", "critical")


def _is_loader(script: Script, expr: ast.expr) -> bool:
    names = {getattr(t, "name", "") for t in script.values(expr)}
    return bool(names) and all(n.startswith(("torch.utils.data.", "builtins.enumerate", "tqdm", "builtins.zip")) for n in names if n)


def outer_function(node: ast.AST) -> ast.AST:
    return next((a for a in ancestors(node) if isinstance(a, (ast.FunctionDef, ast.Module))), node)
