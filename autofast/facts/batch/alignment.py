"""Which tensors have a row for each sample of one batch, and which have the same shape."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import cached_property

from autofast.facts.batch.kinds import Kind, unknown_value
from autofast.facts.batch.losses import Losses
from autofast.facts.batch.losses_of_torch import FACTORIES, loss_called
from autofast.facts.batch.samples import Activation, Shape, joined
from autofast.facts.loaders import values_given
from autofast.facts.makers import Makers
from autofast.facts.switches import batch_loops
from autofast.flow.callgraph import CallGraph, code_of
from autofast.flow.defuse import Definition, taken_by
from autofast.flow.loops import loops_around
from autofast.flow.program import Flow
from autofast.flow.scopes import parameters
from autofast.model.calls import is_method, is_same_code, keyword_of, literal_of
from autofast.model.names import last_part
from autofast.model.script import Script
from autofast.model.several import wordset
from autofast.model.source import function_of, nodes_in
from autofast.model.syntax import is_attribute, is_constant
from autofast.rule import Refusal

EACH = (Kind.ROWS, Kind.OPAQUE)
# What leaves the shape as it is; of scores, the place of the largest, too.
KEEPING = wordset(
    """to cuda cpu detach long int float contiguous clone data softmax log_softmax exp sigmoid"""
)
MOVED = wordset("cuda cpu detach contiguous clone data")  # and the type as well
PACK, PAD = (f"torch.nn.utils.rnn.{n}" for n in ("pack_padded_sequence", "pad_packed_sequence"))
FLAT = wordset("view reshape flatten")
JOINED = ("torch.cat", "numpy.concatenate", "builtins.filter")


class Alignment:
    """``script.analysis(Alignment)``"""

    def __init__(self, script: Script):
        self.script, self.flow = script, script.analysis(Flow)
        self.losses, self.makers = Losses(script, whole=False), script.analysis(Makers)
        self._runs: dict[tuple[ast.AST, ast.AST | None], Activation] = {}

    def have_same_rows(self, one: ast.expr, other: ast.expr) -> bool:
        """Whether two tensors of one function have as many rows."""
        packed = self._packed(one) or self._packed(other)
        if packed is not None and any(self._is_same(packed, self._plain(e)) for e in (one, other)):
            return True
        return self.have_same_shape(one, other) or all(self._kind(e) in EACH for e in (one, other))

    def are_samples(self, rows: ast.expr) -> bool:
        """Whether it has a row for each sample of a batch, of which there is one at the least."""
        return self._kind(rows) in EACH or self._kind(self._model(rows)) in EACH

    def have_same_shape(self, one: ast.expr, other: ast.expr) -> bool:
        """Whether two tensors of one function certainly have the same shape: labels, and the
        classes of the scores that a loss compares with them.
        """
        flat = is_flat(one), is_flat(other)
        if all(flat):
            assert isinstance(one, ast.Call) and isinstance(other, ast.Call)
            one, other = one.func.value, other.func.value  # type: ignore[attr-defined]
        elif any(flat):
            return False
        one, other = self._plain(one), self._plain(other)
        return (
            self._is_same(one, other)
            or self._is_same(self._model(one), other)
            or self._is_same(self._model(other), one)
            or self._are_compared(self._scores(one), other)
            or self._are_compared(self._scores(other), one)
        )

    def is_choice(self, expr: ast.expr) -> bool:
        """Whether it is the place of the largest of scores: ``logits.argmax(1)``."""
        expr = expr.func.value if is_flat(expr) and is_method(expr) else expr
        return self._scores(expr) is not None

    def is_compared(self, labels: ast.expr) -> bool:
        """Whether a loss of classes has it for labels, of the type that it is, in the same
        function: integers of 64 bits, or bytes.
        """
        labels = labels.func.value if is_flat(labels) and is_method(labels) else labels
        labels = self._plain(labels, MOVED)
        targets = (self._plain(c.args[1], MOVED) for c in self._losses(labels))
        return any(self._is_same(labels, target) for target in targets)

    # ------------------------------------------------------------------------------------- samples
    def _is_of_samples(self, name: ast.Name) -> bool:
        """Whether no function of the project that puts batches together is seen to give this part
        of them other rows than one for each sample.
        """
        found = self.makers.sources(self.makers.defined(Definition(name.id, name), ()))
        parts = (
            p for r in found or self._results for p in getattr(r, "elts", getattr(r, "values", [r]))
        )
        return not any(map(self._has_others, parts))

    @cached_property
    def _results(self) -> list[ast.expr]:
        """All that functions give which put batches together."""
        given = [t for x in self.script.loaders for t in values_given(x, "collate_fn")]
        calls = self.script.analysis(CallGraph)
        return [r for t in given for c in code_of(t) for r in calls.results(c.function)]

    def _has_others(self, part: ast.expr) -> bool:
        """``torch.tensor(lengths[:2])``, ``[len(x) for x, y in batch if y]``, ``torch.cat(x)``"""
        match self._plain(self.flow.value(part) or part):
            case (
                ast.Subscript(slice=ast.Slice())
                | ast.ListComp(generators=[ast.comprehension(ifs=[_, *_])])
            ):
                return True
            case ast.Call(args=[inner, *_]) as call:
                return self.script.is_call(call, *JOINED) or self._has_others(inner)
        return False

    # --------------------------------------------------------------------------------------- shapes
    def _is_same(self, one: ast.expr, other: ast.expr) -> bool:
        return self.flow.is_same(one, other) or (
            not isinstance(one, ast.Name) and is_same_code(one, other)
        )

    def _model(self, made: ast.expr) -> ast.expr:
        """``x`` of ``torch.zeros(x.shape)`` and ``torch.zeros_like(x)``; else what is given."""
        call = self._plain(self.flow.value(made) or made)
        match call:
            case ast.Call(args=[shape, *_]) if name := self.script.library_function(call):
                if name.endswith("_like"):
                    return shape
                if name.removeprefix("torch.") in FACTORIES:
                    if is_attribute(shape, "shape"):
                        return shape.value
                    if is_method(shape, "size") and not shape.args:
                        return shape.func.value
        return made

    def _plain(self, expr: ast.expr, keeping: frozenset[str] = KEEPING) -> ast.expr:
        """``y`` of ``y.long().cpu()``, ``F.softmax(y, dim=1)``."""
        while True:
            match expr:
                case ast.Call(args=[inner, *_]) if self.script.called(expr) and (
                    last_part(self.script.library_function(expr)) in keeping
                ):
                    expr = inner
                case ast.Call(func=ast.Attribute(value=inner, attr=attr)) if attr in keeping:
                    expr = inner
                case ast.Attribute(value=inner, attr="data"):
                    expr = inner
                case _:
                    return expr

    def _scores(self, places: ast.expr) -> ast.expr | None:
        """``logits`` where ``places`` are ``logits.argmax(1)``, ``torch.max(logits, 1)[1]``."""
        places, second = self._plain(places), False
        if isinstance(places, ast.Name):
            made = self.flow.definition(places)
            taker, way = taken_by(made.node) if made is not None else (None, [])
            if not isinstance(taker, ast.Assign) or way not in ([], [1]):
                return None
            if not way:
                return self._scores(taker.value)
            places, second = self._plain(taker.value), True
        elif is_attribute(places, "indices") or (
            isinstance(places, ast.Subscript) and is_constant(places.slice, 1)
        ):
            places, second = self._plain(places.value), True
        if not isinstance(places, ast.Call):
            return None
        name, given = self.script.operation(places)
        if last_part(name) != ("max" if second else "argmax") or len(given) != 2:
            return None
        return self._plain(given[0]) if literal_of(given[1]) in (1, -1) else None

    def _are_compared(self, scores: ast.expr | None, labels: ast.expr) -> bool:
        """Whether a loss of classes is computed of these scores and these labels."""
        if scores is None:
            return False
        compared = ([self._plain(e) for e in call.args] for call in self._losses(scores))
        return any(
            self._is_same(given, scores) and self._is_same(target, labels)
            for given, target in compared
        )

    def _losses(self, place: ast.AST) -> Iterator[ast.Call]:
        """The losses of classes in a function, of scores and labels."""
        for call in nodes_in(function_of(place), ast.Call):
            found = [loss_called(t) for t in self.script.called(call)]
            if len(call.args) == 2 and found and all(f and f[0].uneven for f in found):
                yield call

    # ----------------------------------------------------------------------------------------- rows
    def _packed(self, rows: ast.expr) -> ast.expr | None:
        """The lengths of what ``pad_packed_sequence`` gives, by what was packed."""
        call, packed = self._part_of(rows), False
        for _ in range(4):
            if not isinstance(call, ast.Call) or not call.args:
                return None
            name = self.script.library_function(call)
            if name in (PACK, PAD):
                if self.script.constant(keyword_of(call, "batch_first") or call) is not True:
                    return None
            if name == PACK:
                return self._plain(call.args[1]) if packed and len(call.args) > 1 else None
            packed = packed or name == PAD
            call = self._part_of(call.args[0])
        return None

    def _part_of(self, name: ast.expr) -> ast.expr | None:
        """The call whose result, or the first part of it, a variable is."""
        made = self.flow.definition(name)
        taker, way = taken_by(made.node) if made is not None else (None, [])
        return taker.value if isinstance(taker, ast.Assign) and way in ([], [0]) else None

    def _kind(self, expr: ast.expr) -> Shape | None:
        try:
            return self.losses.shape(expr, self._run(expr))
        except Refusal:
            return None

    def _run(self, place: ast.AST) -> Activation:
        """The run of a function that a batch brings there: in a turn of its loop, or called in
        one.
        """
        function, loops = function_of(place), batch_loops(self.script)
        here = (n for n in loops_around(place) if isinstance(n, ast.For) and n in loops)
        loop = next(here, None)
        if (function, loop) not in self._runs:
            parts = nodes_in(loop.target, ast.Name) if loop else ()
            names = frozenset(n.id for n in parts if self._is_of_samples(n))
            given = (
                {} if loop else {p.arg: self._given(function, p.arg) for p in parameters(function)}
            )
            self._runs[function, loop] = Activation(function, given, loop, names)
        return self._runs[function, loop]

    def _given(self, function: ast.AST, name: str) -> Callable[[], Shape]:
        def kind() -> Shape:
            given = self.script.analysis(CallGraph).arguments(function, name)  # type: ignore[arg-type]
            found = [self.losses.shape(e, self._run(call)) for call, e in given if e is not None]
            if not found or len(found) < len(given):
                raise unknown_value(function)
            return joined(found, function)

        return kind


def is_flat(expr: ast.expr) -> bool:
    """``y.view(-1)``, ``y.flatten()``: in one dimension."""
    if not is_method(expr, *FLAT) or expr.keywords:
        return False
    if not expr.args:
        return expr.func.attr == "flatten"
    return len(expr.args) == 1 and expr.func.attr != "flatten" and ast.unparse(expr.args[0]) == "-1"
