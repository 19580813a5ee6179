"""What depends on what, and which numbers of one process become those of all."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager

from autofast.facts.host_io import MADE, effect_of
from autofast.flow.positions import computed_before
from autofast.model.calls import arguments_of, call_of, receiver_of
from autofast.model.several import surely, wordset
from autofast.model.source import (
    ancestors,
    at,
    function_of,
    is_same_function,
    parent_of,
    statement_of,
)
from autofast.model.syntax import DEFINITIONS, DISPLAYS, is_operation
from autofast.model.values import Bound, Cls, Const, Func, Inst, Method, Tensor, any_of, of_kind
from autofast.rule import Refusal
from autofast.techniques.ddp.guards import caught
from autofast.techniques.ddp.uniformity.kinds import EQUAL, Kind
from autofast.techniques.ddp.uniformity.state import (
    Alone,
    Control,
    Note,
    differs_by_rank,
    in_words,
    short,
)
from autofast.techniques.ddp.uniformity.stores import Stores

PRINTS = wordset("print info debug warning error flush write log critical")


class Notes(Stores):
    """Conditions that what follows depends on, and the notes of what the rewrite has to do."""

    # -------------------------------------------------------------------------------------- control
    def under(self, test: ast.expr, kind: Kind) -> None:
        self.control.append(Control(test, kind if test not in self.decided else EQUAL))

    def leave(self) -> None:
        self.control.pop()

    def happens(self, node: ast.AST) -> None:
        """All processes must come here together."""
        if self.guarded:
            raise Alone(
                f"what {at(self.guarded[-1])} shows takes part in the training: put it into a variable first"
            )
        for control in list(self.all_control()):
            if control.kind.name == "equal" or control.test in self.decided:
                continue
            if control.kind.name == "near" and isinstance(control.test, ast.expr):
                self.decided[control.test] = control.test
            else:
                raise Refusal(
                    f"whether the script comes to {at(node)} depends on {in_words(control.kind)} ({at(control.test)})"
                )
        for block in self.trying:
            if any(not _ends(h) for h in block.handlers):
                raise Refusal(
                    f"an error on {at(node)} is caught on {at(block.handlers[0])}: the other processes would wait for ever"
                )

    def changes(self, node: ast.AST) -> None:
        """Something is changed that lasts: not in one process only."""
        if self.guarded:
            raise Alone(
                f"what {at(self.guarded[-1])} shows changes something on {at(node)}: put it into a variable first"
            )

    def draws(self, node: ast.AST) -> None:
        """Random numbers are drawn: before each process has its own, all must draw the same."""
        if self.guarded and not self.trained:
            raise Alone(
                f"what {at(self.guarded[-1])} shows or writes draws random numbers: put it into a variable first"
            )

    def outside(self, node: ast.Call) -> Kind | None:
        """The call of a function of the project in what one process does alone: where it does more
        than that, it is taken out.

        It then stands before the statement, so nothing that it could change may stand before it in
        there.
        """
        if (
            not self.guarded
            or node in self._inner
            or not any_of(self.things(node.func), Func, Bound, Inst, Cls)
        ):
            return None
        before, guarded, frames, control = (
            dict(self.state),
            self.guarded,
            len(self.frames),
            len(self.control),
        )
        self._inner.add(node)
        try:
            if node not in self.hoists:
                with self._quietly():
                    self._call(node)
                    self.state = dict(before)
                return self._call(node)
        except Alone:
            if not is_same_function(node, guarded[-1]) or self._reads_before(node):
                raise
            self.hoists[node] = node
            self.splits.add(guarded[-1])
            del self.frames[frames:], self.control[control:]
            self.state = before
        finally:
            self._inner.discard(node)
        self.guarded = []
        self._inner.add(node)
        try:
            return self._call(node)
        finally:
            self._inner.discard(node)
            self.guarded = guarded

    def files(self, node: ast.Call, kind: str) -> None:
        if kind in ("guard", "file"):
            effect = effect_of(self.script, node)
            if effect is not None and (
                MADE.fullmatch(effect.name)
                if kind == "guard"
                else isinstance(parent_of(node), ast.withitem)
            ):
                if not self.trained:
                    self._made_first(node)
                    return
            self.written = self.written or ast.unparse(node.func).split(".")[-1] not in PRINTS
        elif kind == "download":
            self.happens(node)
            self._in_group(node)
        elif self.written and kind == "read" and not self.guarded:
            self.happens(node)
            self._in_group(node)
            self.barriers[statement_of(node)] = statement_of(node)

    def _made_first(self, node: ast.Call) -> None:
        """A file is made before the training starts: the others wait for it, as they may read
        it.
        """
        with self._before_guard():
            self.happens(node)
            self._in_group(node)
        guard = self.host.guard_of(node)
        last = guard[1] if guard else statement_of(node)
        for outer in ancestors(last):
            if isinstance(outer, DEFINITIONS):
                break
            if isinstance(outer, (ast.For, ast.While, ast.With)):
                last = outer
        self.waits[last] = last

    def _in_group(self, node: ast.AST) -> None:
        if self.place != "in":
            when = "before the training starts" if not self.place else "after its end"
            raise Refusal(
                f"is carried out {when}, where the processes cannot wait for each other", node
            )

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

    def _reads_before(self, call: ast.Call) -> bool:
        """Whether its statement looks at something that the call might change before it comes to
        the call.
        """
        for node in computed_before(call):
            if isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)) and not _is_method(node):
                found = self.things(node.func) if isinstance(node, ast.Call) else []
                fixed = surely(
                    isinstance(t, Method) and isinstance(t.this, (Tensor, Const)) for t in found
                )
                if not fixed:
                    return True
        return False

    # -------------------------------------------------------------------------------- what is noted
    def note(self, expr: ast.expr, how: str) -> None:
        if how in ("mean", "sum", "first"):
            for outer in self.guarded:
                if not is_same_function(expr, outer):
                    raise Alone(
                        f"what {at(outer)} shows or writes needs a number of all processes ({at(expr)}): put its text into a variable first"
                    )
            with self._before_guard():
                self.happens(expr)
                self._in_group(expr)
        if not self.recording:
            return
        old = self.notes.get(expr)
        if old is not None and old.how != how:
            if {old.how, how} in ({"mean", "none"}, {"first", "none"}):
                # What is the same everywhere stays what it is.
                how = "mean" if "mean" in (old.how, how) else "first"
            else:
                raise self._two(expr)
        self.notes[expr] = Note(expr, how)

    def met(self, node: ast.expr, kind: Kind) -> None:
        if self.recording and kind.same and not kind.none:
            self.whole.add(node)

    def check_uses(self) -> None:
        """What is a part of a number in one use is never all of it in another (a function for
        training and evaluation).
        """
        for note in self.notes.values():
            if note.how in ("sum", "size", "per") and note.expr in self.whole:
                raise self._two(note.expr)

    def _two(self, expr: ast.expr) -> Refusal:
        return Refusal(
            f"`{short(expr)}` on {at(expr)} is a part of a number in one use and all of it in another: give training a function of its own"
        )

    def first_value(self, expr: ast.expr) -> None:
        self.note(expr, "first")

    def settle(self, expr: ast.expr, images: bool = False) -> None:
        """Where the value of ``expr`` goes, that of all processes together is meant."""
        kind = self.kinds.get(expr, EQUAL)
        if kind.same or kind.name == "loader":
            self.note(expr, "none")
            return
        if kind.items is None and kind.name in ("mean", "sum", "per"):
            if kind.sized and is_operation(expr, ast.Mult):
                sizes, others = self._sizes(expr.left, expr.right)
                if len(sizes) == 1 and any(
                    n in self.notes and self.notes[n].how != "none" for n in ast.walk(others[0])
                ):
                    # The number of samples itself: other rules may move what it is multiplied with.
                    self.settle(sizes[0])
                    return
            # `per` and `size` need no communication.
            self.note(expr, "size" if kind.sized else kind.name)
            return
        if kind.name == "batch" and not isinstance(expr, DISPLAYS):
            inner = []
        else:
            inner = [c for c in _operands(expr) if not self.kinds.get(c, EQUAL).same]
        if not inner or (isinstance(expr, ast.Call) and self._own_call(expr)):
            if images:
                return
            raise differs_by_rank(expr, kind)
        try:
            for child in inner:
                self.settle(child, images)
        except Alone:
            raise
        except Refusal:
            if kind.name == "other" and kind.why and expr not in self.decided:
                raise differs_by_rank(expr, kind) from None
            raise

    def _sizes(self, *factors: ast.expr) -> tuple[list[ast.expr], list[ast.expr]]:
        """Those that count samples, and the others."""
        sizes = [f for f in factors if self.kinds.get(f, EQUAL).sized]
        return sizes, [f for f in factors if f not in sizes]

    def kept(self, expr: ast.expr, kind: Kind) -> Kind:
        """A tensor that is no part of the loss is kept beyond its batch: from here on it is that of
        all processes.
        """
        tensors = of_kind(self.things(expr), Tensor)
        own = (
            kind.items is None
            and kind.name in ("mean", "sum")
            and not kind.sized
            and self._in_batches()
        )
        if own and tensors and not any(t.grad for t in tensors):
            self.settle(expr)
            return EQUAL
        return kind

    def _in_batches(self) -> bool:
        """This function goes over the batches that are shared out."""
        return any(
            isinstance(c.test, ast.For)
            and c.test in self._loops
            and function_of(c.test) is self.frames[-1].scope
            for c in self.control
        )

    def _own_call(self, call: ast.Call) -> bool:
        return any(not hasattr(t, "name") or isinstance(t, (Func,)) for t in self.things(call.func))


def _operands(expr: ast.expr) -> list[ast.expr]:
    match expr:
        case ast.Call():
            return [*filter(None, [receiver_of(expr)]), *arguments_of(expr)]
        case ast.IfExp(body=body, orelse=other):
            return [body, other]
    return of_kind(ast.iter_child_nodes(expr), ast.expr)


def _is_method(node: ast.AST) -> bool:
    """``x.item`` of ``x.item()``, ``logger.info`` of a call: looked at, not read."""
    match node:
        case ast.Attribute(value=ast.Name() | ast.Constant()):
            return call_of(node) is not None
    return False


def interrupt(handler: ast.ExceptHandler) -> bool:
    """The user ends the script: all processes get the signal."""
    return caught(handler) == {"KeyboardInterrupt"}


def exhausted(handler: ast.ExceptHandler) -> bool:
    """The end of an iterator, to which all processes come at once."""
    return caught(handler) == {"StopIteration"}


def _ends(handler: ast.ExceptHandler) -> bool:
    """The handler lets the error go on, or none can come from one process alone."""
    return interrupt(handler) or exhausted(handler) or isinstance(handler.body[-1], ast.Raise)
