"""What depends on what, and which numbers of one process become those of all."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager

from autofast.facts.host_io import MADE, effect_of
from autofast.flow.callgraph import CallGraph
from autofast.model.script import Script
from autofast.model.several import wordset
from autofast.model.source import (
    ByNode,
    Nodes,
    ancestors,
    at,
    is_same_function,
    parent_of,
    statement_of,
)
from autofast.model.syntax import DEFINITIONS, SEQUENCES
from autofast.model.values import Tensor, of_kind
from autofast.rule import Refusal
from autofast.techniques.ddp.guards import Host, caught
from autofast.techniques.ddp.names import Training
from autofast.techniques.ddp.uniformity.kinds import EQUAL, NEAR, SIZE, Kind, of, share
from autofast.techniques.ddp.uniformity.numbers import Numbers
from autofast.techniques.ddp.uniformity.state import (
    Control,
    Frame,
    Note,
    State,
    differs_by_rank,
    in_words,
    short,
)

PRINTS = wordset("print info debug warning error flush write log critical")
COUNTED = Kind("equal", counted=True)


class Notes:
    """Conditions that what follows depends on, and the notes of what the rewrite has to do;
    ``decided`` are conditions that the first process decides for all.
    """

    def __init__(self, script: Script, training: Training, host: Host, decided: ByNode[ast.expr]):
        self.script, self.training, self.host, self.decided = script, training, host, decided
        self.numbers = Numbers(script)
        self.calls = script.analysis(CallGraph)
        self.kinds: dict[ast.AST | None, Kind] = {}
        self.state: State = {}
        self.notes: ByNode[Note] = {}
        # expressions that are the same in all processes in some use
        self.whole: Nodes = set()
        self.barriers: ByNode[ast.stmt] = {}
        # after these, the others wait for the first process
        self.waits: ByNode[ast.stmt] = {}
        self.frames: list[Frame] = []
        self.control: list[Control] = []
        self.trying: list[ast.Try] = []
        self.guarded: list[ast.AST] = []
        self.recording, self.written, self.trained = True, False, False
        self.place = ""  # before, in or after the time in which there is a group
        self.seen: Nodes = set()
        self.random_data = {
            id(d.thing) for x in script.loaders for d in x.datasets if d.random - {"own"}
        }
        self.passes = set(training.wrapped) | {
            p for s in training.steps for b in s.backwards for t in b.tensors for p in t.passes
        }
        self.matters = {b.node for s in training.steps for b in s.backwards} | {
            u.node for s in training.steps for u in s.updates
        }

    # -------------------------------------------------------------------------------------- control
    def all_control(self) -> Iterator[Control]:
        """The conditions that this point depends on, and that may differ."""
        found = [*self.control]
        for frame in self.frames:
            found += [*frame.left, *(c for loop in frame.loops for c in loop)]
        return (c for c in found if c.kind.name != "equal" and c.test not in self.decided)

    def raised(self, kind: Kind) -> Kind:
        """What is set under a condition that may differ may differ."""
        worst: Kind | None = None
        for control in self.all_control():
            if worst is None or worst.name == "near":
                worst = control.kind
        if worst is None or kind.name == "each":
            return kind
        if kind.items is not None:
            return of(*map(self.raised, kind.items))
        if worst.name == "near":
            return Kind("near", kind.counted) if kind.same else kind
        return share(worst.why or "it is set by each process for itself")

    def happens(self, node: ast.AST) -> None:
        """All processes must come here together."""
        self.changes(node)
        for control in list(self.all_control()):
            if control.kind.name == "near" and isinstance(control.test, ast.expr):
                self.decided[control.test] = control.test
            else:
                raise Refusal(
                    f"not all processes may come to {at(node)}, for what decides on {at(control.test)} differs between them: {in_words(control.kind)}"
                )
        for block in self.trying:
            if any(not _ends(h) for h in block.handlers):
                raise Refusal(
                    f"an error on {at(node)} is caught on {at(block.handlers[0])}: the other processes would wait for ever"
                )

    def changes(self, node: ast.AST) -> None:
        """Something is changed that lasts: not in one process only."""
        if self.guarded:
            raise Refusal(
                f"what {at(self.guarded[-1])} shows takes part in the training or changes something on {at(node)}: put it into a variable first"
            )

    def draws(self, node: ast.AST) -> None:
        """Random numbers are drawn: before each process has its own, all must draw the same."""
        if self.guarded and not self.trained:
            raise Refusal(
                f"what {at(self.guarded[-1])} shows or writes draws random numbers: put it into a variable first"
            )

    # ---------------------------------------------------------------------------------------- files
    def files(self, node: ast.Call, kind: str) -> None:
        if kind in ("guard", "file"):
            effect = effect_of(self.script, node)
            made = effect is not None and (
                MADE.fullmatch(effect.name)
                if kind == "guard"
                else isinstance(parent_of(node), ast.withitem)
            )
            if made and not self.trained:
                self._made_first(node)
            else:
                self.written |= ast.unparse(node.func).split(".")[-1] not in PRINTS
        elif kind == "download" or (kind == "read" and self.written and not self.guarded):
            self.happens(node)
            self._in_group(node)
            if kind == "read":
                self.barriers[statement_of(node)] = statement_of(node)

    def _made_first(self, node: ast.Call) -> None:
        """A file is made before the training starts: the others wait for it, as they may read
        it.
        """
        with self.before_guard():
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
    def before_guard(self) -> Iterator[None]:
        """What is done here stands before the guard."""
        guarded, self.guarded = self.guarded, []
        try:
            yield
        finally:
            self.guarded = guarded

    # -------------------------------------------------------------------------------- what is noted
    def note(self, expr: ast.expr, how: str) -> None:
        if how in ("mean", "sum", "first"):
            for outer in self.guarded:
                if not is_same_function(expr, outer):
                    raise Refusal(
                        f"what {at(outer)} shows or writes needs a number of all processes ({at(expr)}): put its text into a variable first"
                    )
            with self.before_guard():
                self.happens(expr)
                self._in_group(expr)
        if not self.recording:
            return
        old = self.notes.get(expr)
        if old is not None and old.how != how:
            both = {old.how, how} - {"none"}
            if both not in ({"mean"}, {"first"}):
                raise _two(expr)
            (how,) = both  # what is the same everywhere stays what it is
        self.notes[expr] = Note(expr, how)

    def check_uses(self) -> None:
        """What is a part of a number in one use is never all of it in another (a function for
        training and evaluation).
        """
        for note in self.notes.values():
            if note.how in ("sum", "size") and note.expr in self.whole:
                raise _two(note.expr)

    def read(self, expr: ast.expr) -> Kind:
        """``expr`` becomes a number or text of the host, or is asked for its truth: that of all
        processes together is meant.
        """
        kind = self.kinds.get(expr, EQUAL)
        whole = kind.whole
        if whole.same or whole.name == "loader":
            self.note(expr, "none")
            return Kind("near" if whole.name == "near" else "equal", whole.counted)
        if kind.items is not None and isinstance(expr, SEQUENCES):
            for part in expr.elts:
                if not self.read(part).same:
                    return self.read(part)
            return NEAR
        if kind == SIZE:
            self.note(expr, "size")
            return COUNTED
        if whole.why or whole.name != "share":
            return share(in_words(whole))
        try:
            how = self.numbers.together(expr, self.frames[-1].run)
        except Refusal as why:
            return share(str(why))
        self.note(expr, how)
        return EQUAL

    def settle(self, expr: ast.expr) -> None:
        """Where ``expr`` goes, the number of all processes must."""
        found = self.read(expr)
        if not found.same:
            raise differs_by_rank(expr, found)

    def kept(self, expr: ast.expr, kind: Kind) -> Kind:
        """What is kept beyond the variables of a function is that of all processes, from here
        on.
        """
        if kind.whole.same:
            return self.raised(kind.whole)
        if kind.whole.why:
            raise differs_by_rank(expr, kind)
        tensors = of_kind(self.script.values(expr), Tensor)
        if kind.whole.name == "share" and (not tensors or any(t.grad for t in tensors)):
            raise Refusal(
                f"`{short(expr)}` on {at(expr)} keeps what one process has of a batch, or its gradients: keep a number (`.item()`)"
            )
        self.settle(expr)
        return EQUAL


def _two(expr: ast.expr) -> Refusal:
    return Refusal(
        f"`{short(expr)}` on {at(expr)} is a part of a number in one use and all of it in another: give training a function of its own"
    )


def interrupt(handler: ast.ExceptHandler) -> bool:
    """The user ends the script, or an iterator ends: all processes come to it at once."""
    return caught(handler) <= {"KeyboardInterrupt", "StopIteration"}


def _ends(handler: ast.ExceptHandler) -> bool:
    """The handler lets the error go on, or none can come from one process alone."""
    return interrupt(handler) or isinstance(handler.body[-1], ast.Raise)
