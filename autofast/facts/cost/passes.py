"""The passes of a training step through its networks, one after the other."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from autofast.facts.cost.bounds import largest
from autofast.facts.cost.inputs import batch_size, item_shape
from autofast.facts.cost.meta import functions
from autofast.facts.cost.meta.networks import Networks
from autofast.facts.cost.meta.tensor import SIDE, UNKNOWN, Guess, Ledger, Meta
from autofast.facts.cost.work import Unsized, Work
from autofast.flow.callgraph import CallGraph
from autofast.flow.program import definitions_at
from autofast.flow.scopes import parameters, stored_in
from autofast.model.calls import receiver_of
from autofast.model.events import Occurrence
from autofast.model.kinds import is_module
from autofast.model.names import last_part
from autofast.model.script import Script
from autofast.model.several import of_kind, one
from autofast.model.source import parent_of
from autofast.model.values import Func, Given, Inst, Method, Ref, Tensor, Thing

DEEP = 12  # expressions that one is followed through
NOT_RUN = "what it runs is not followed"
GIVES = ("torch.", "numpy.random.")  # functions whose results are followed
RGB = 3  # channels of images of which no more is known
LENGTH = 64  # of a text or another sequence, as is usual
LENGTHS = re.compile(
    r"(?:max_?)?(?:seq(?:uence)?_?|context_?|src_?|text_?)?len(?:gth)?|block_size|bptt|context_(?:size|window)"
)
USUAL = (64, 128, 256, 512)  # sides of images
LARGEST = 512  # side of images that a network is tried with
# By one of several networks, of which one is chosen, and how often a step makes it.
Pass = tuple[list[Occurrence], int]


def named_length(script: Script) -> int:
    """``script.analysis(named_length)``: the largest number that a script calls the length of a
    text; what is usual where it has none.
    """
    found = [n for kind in (ast.Name, ast.Attribute) for n in script.each(kind)]
    named = [n for n in found if LENGTHS.fullmatch(getattr(n, "id", "") or getattr(n, "attr", ""))]
    return max((largest(script.values(n)) or 0 for n in named), default=0) or LENGTH


def _inputs(thing: Thing, found: dict[str, Meta]) -> dict[str, Meta]:
    """What layers take for the arguments of a network's forward, by their names and places."""
    func = one(thing.cls.find("forward") or ()) if isinstance(thing, Inst) else None
    names = [p.arg for p in parameters(func.node)[1:]] if isinstance(func, Func) else []
    changed = stored_in(func.node) if isinstance(func, Func) else ()
    known = {n: found.get(n) if n not in changed else None for n in names}
    places = {str(k): known[n] for k, n in enumerate(names)}
    return {n: x for n, x in (known | places).items() if x is not None}


class Passes:
    """Runs the passes of a step."""

    def __init__(self, script: Script, passes: list[Pass], batch: int, rows: int):
        self.script, self.passes, self.batch = script, passes, batch
        self.guess = Guess(batch, rows, length=script.analysis(named_length))
        self.networks = Networks(script, Ledger(self.guess))
        self._gave: dict[int, Any] = {}  # by the network: what it gave last

    def work(self) -> tuple[Work, str]:
        """What they cost, and what of that was taken for granted; raises :class:`Unsized` where
        nothing is known.
        """
        side = self._known_side()
        if side is not None:
            self.guess = replace(self.guess, side=side, sure=True)
        found = self._tried(follows=True)
        failed = found if isinstance(found, Unsized) else None
        if failed is not None:  # what comes to it may have another shape
            found = self._tried(follows=False)
        if isinstance(found, Unsized):
            raise found
        return found.work, found.guessed or (str(failed) if failed is not None else "")

    def _tried(self, follows: bool) -> Ledger | Unsized:
        """All of them, with images of the largest side that fits."""
        try:
            first = self._run(self.guess, follows)
        except Unsized as why:
            if not why.over or self.guess.sure:
                return why
            first = None
        if first is not None and first.guessed != SIDE:
            return first
        found = self._fitting(lambda side: self._run(replace(self.guess, side=side), follows))
        return found or first or Unsized(SIDE)

    def _fitting(self, run: Callable[[int], Ledger]) -> Ledger | None:
        """With the largest side that fits what is behind the convolutions; where any side fits,
        with a usual one that is large enough; None where none is known to.
        """
        low, high, best = 1, LARGEST, None
        while low <= high:
            middle = high if best is None and high == LARGEST else (low + high) // 2
            try:
                best, low = run(middle), middle + 1
            except Unsized as why:
                if not why.over:
                    return None
                low, high = (low, middle - 1) if why.over > 0 else (middle + 1, high)
            else:
                if middle == LARGEST:
                    return self._usual(run)
        if best is not None and best.guessed == SIDE:
            best.guessed = ""  # it follows from the network
        return best

    def _usual(self, run: Callable[[int], Ledger]) -> Ledger | None:
        for side in USUAL:
            with suppress(Unsized):
                return run(side)
        return None

    def _run(self, guess: Guess, follows: bool) -> Ledger:
        """The passes with what is known; those that cannot be run are left out, unless all are."""
        ledger, failed = Ledger(guess), list[Unsized]()
        self.networks.restart(ledger)
        self._gave.clear()
        total = Work()
        for several, times in self.passes:
            done = [self._alone(o, ledger, follows) for o in several]
            failed += of_kind(done, Unsized)
            if works := of_kind(done, Work):
                if len(several) > 1:
                    ledger.unsure("which network is trained is not known", only_sizes=True)
                total.add(max(works, key=lambda w: w.convolutions + w.products), times)
        if not total.kernels:
            raise failed[0] if failed else Unsized("its layers are not known")
        counts = ledger.parameters, ledger.tensors
        ledger.work = replace(
            total, parameters=counts[0], tensors=counts[1], narrow=ledger.is_narrow
        )
        return ledger

    def _alone(self, occurrence: Occurrence, ledger: Ledger, follows: bool) -> Work | Unsized:
        """What one pass costs, or why that is not known."""
        ledger.work, ledger.grad = Work(), occurrence.grad != "off"
        try:
            self._pass(occurrence, follows)
        except Unsized as why:
            if why.over:
                raise
            ledger.unsure(str(why))
            return why
        except Exception:  # code of any kind, with arguments that are partly guessed
            ledger.unsure(NOT_RUN)
            return Unsized(NOT_RUN)
        return ledger.work

    def _pass(self, occurrence: Occurrence, follows: bool) -> None:
        thing, given = occurrence.this, occurrence.args
        assert thing is not None
        args = [self._given(g, follows) for g in given.positional]
        named = {n: self._given(g, follows) for n, g in given.named.items()}
        ledger = self.networks.ledger
        ledger.taken, ledger.inputs = None, {}
        failed = None
        try:
            self._gave[id(thing)] = self.networks.run(thing, args, named)
        except Unsized as why:
            failed = why
        inputs = _inputs(thing, ledger.inputs)
        is_guessed = ledger.taken is not None and args[:1] == [UNKNOWN]
        if not is_guessed and not (failed and inputs):
            if failed:
                raise failed
            return
        # With batches as its layers take them first, which others may be given as well.
        if is_guessed and ledger.taken not in inputs.values():
            args = [ledger.taken, *args[1:]]
        args = [inputs.get(str(n), a) if a is UNKNOWN else a for n, a in enumerate(args)]
        named = {n: inputs.get(n, a) if a is UNKNOWN else a for n, a in named.items()}
        ledger.work = Work()
        self._gave[id(thing)] = self.networks.run(thing, args, named)

    # ------------------------------------------------------------------------- what they are given
    def _given(self, given: Given, follows: bool) -> Any:
        known = self.networks.given(given)
        if known is not UNKNOWN or given.expr is None:
            return known
        return self._followed(given.expr) if follows else UNKNOWN

    def _followed(self, expr: ast.expr, depth: int = 0) -> Any:
        """What an expression of the step gives: what a network gave before, a batch of a loader,
        and what torch makes of these.
        """
        if isinstance(expr, (ast.Tuple, ast.List)):
            return [self._followed(e, depth + 1) for e in expr.elts]
        known = self.networks.given(Given(self.script.values(expr), expr))
        if known is not UNKNOWN or depth > DEEP:
            return known
        found: Any = UNKNOWN
        match expr:
            case ast.Name():
                graph, made = self.script.analysis(CallGraph), definitions_at(self.script, expr)
                given = one([e for d in made for e in graph.gives(d)])
                found = UNKNOWN if given is None else self._followed(given, depth + 1)
                loop = one([parent_of(d.node) for d in made])
                if isinstance(loop, ast.For) and isinstance(loop.target, ast.Name):
                    found = self._turn(self._followed(loop.iter, depth + 1))
            case ast.Call():
                found = self._called(expr, depth + 1)
            case ast.BinOp(left=left, right=right):
                sides = [self._followed(e, depth + 1) for e in (left, right)]
                found = max(of_kind(sides, Meta), key=lambda x: x.count, default=UNKNOWN)
        return self._of_loader(expr) if found is UNKNOWN else found

    def _turn(self, over: Any) -> Any:
        """What a loop over a tensor takes in a turn."""
        rows = isinstance(over, Meta) and len(over.dims) > 1
        return over.like(*over.dims[1:]) if rows else UNKNOWN

    def _called(self, call: ast.Call, depth: int) -> Any:
        callees = self.script.called(call)
        modules = [t for t in callees if is_module(t)]
        if modules:
            return self._gave.get(id(modules[0]), UNKNOWN) if len(callees) == 1 else UNKNOWN
        name = one({last_part(t.name) for t in callees if isinstance(t, (Ref, Method))}, "")
        given = [self._followed(a, depth) for a in call.args]
        if all(isinstance(t, Method) for t in callees):
            receiver = receiver_of(call)
            given.insert(0, UNKNOWN if receiver is None else self._followed(receiver, depth))
        elif not all(isinstance(t, Ref) and t.name.startswith(GIVES) for t in callees):
            return UNKNOWN
        named = {k.arg: self._followed(k.value, depth) for k in call.keywords if k.arg}
        if name in functions.MAKE:
            given = self._with_batch(given)
        try:
            return functions.operate(Ledger(self.guess), name, given, named)
        except Exception:  # of what is partly guessed
            return UNKNOWN

    def _with_batch(self, given: list[Any]) -> list[Any]:
        """``torch.randn(images.size(0), 100, 1, 1)``: the first of several sizes."""
        if len(given) > 1 and given[0] is UNKNOWN:
            return [self.guess.items, *given[1:]]
        return [self._with_batch(x) if isinstance(x, list) else x for x in given]

    def _of_loader(self, expr: ast.expr) -> Any:
        """A batch of images or rows as a loader gives it."""
        for tensor in of_kind(self.script.values(expr), Tensor):
            for loader in self.script.loaders:
                if tensor.batch.isdisjoint(loader.things) or tensor.models:
                    continue
                shape = one({item_shape(self.script, d) for d in loader.datasets})
                size = batch_size(loader) or self.batch
                if shape is None or not size or tensor.dtype == "int":
                    return UNKNOWN
                return Meta((size, shape.channels or RGB, *shape.dims))
        return UNKNOWN

    def _known_side(self) -> int | None:
        """The side of the images of the loaders that the step is given."""
        things = {
            t
            for several, _ in self.passes
            for o in several
            for x in of_kind(o.data.get("inputs", ()), Tensor)
            for t in x.batch
        }
        found = [x for x in self.script.loaders if not things.isdisjoint(x.things)]
        shape = one({item_shape(self.script, d) for x in found for d in x.datasets})
        return shape.dims[0] if shape is not None and shape.dims else None
