"""What no rewrite may change: which tensors there are, which of them move, and in which mode they
train."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from autofast.report.style import count
from autofast.verify.estimates import distance, median
from autofast.verify.evidence import course
from autofast.verify.evidence.gathered import Evidence
from autofast.verify.evidence.numbered import plain
from autofast.verify.evidence.record import Record, Run, Step, TensorPrint
from autofast.verify.judging.invariants import matched, shown
from autofast.verify.result import Check, answer, differs, holds, unclear, untold

MOVED = 1e-6  # a tensor has moved when it changed by this share of its norm


def constants(record: Record) -> set[str]:
    """Buffers that are the same at the end as at the start: a table of places, a mask. Whether a
    script keeps them in the model or makes them anew is its own matter; what is saved of them is
    asked for with the checkpoints."""
    ends = {plain(key): print_ for key, print_ in record.model.items() if print_.buffer}
    return {
        plain(key)
        for key, print_ in record.start.items()
        if plain(key) in ends and ends[plain(key)].sha == print_.sha
    }


def without_constants(a: Record, b: Record) -> tuple[dict[str, TensorPrint], ...]:
    """The models' tensors without constant buffers that the other has not."""
    names = [{plain(key) for key in record.model} for record in (a, b)]
    alone = (constants(a) - names[1], constants(b) - names[0])
    return tuple(
        {key: value for key, value in record.model.items() if plain(key) not in mine}
        for record, mine in zip((a, b), alone, strict=True)
    )


def _idle(record: Record) -> Counter[tuple[int, ...]]:
    """Shapes of the tensors of models that are never called with gradients: an average of the
    weights, a teacher."""
    trained = {str(call.model) for call in record.calls}
    if not trained:
        return Counter()
    return Counter(t.shape for key, t in record.model.items() if key.split("/")[0] not in trained)


def _unseen(ev: Evidence) -> bool:
    """The rewritten script evaluates by other means than a call: all that is missing are the models
    that only evaluate."""
    a, b = (Counter(t.shape for t in m.values()) for m in without_constants(ev.a.record, ev.b.record))  # fmt: skip
    return a != b and not b - a and a - b == _idle(ev.a.record)


def tensors(ev: Evidence) -> Check | None:
    """The model has the same tensors: number, shapes, types."""
    a, b = without_constants(ev.a.record, ev.b.record)
    if not a or not b:
        return None
    one, two = Counter(t.shape for t in a.values()), Counter(t.shape for t in b.values())
    if one != two:
        if _unseen(ev):
            text = "a model that only evaluates is no longer called: what is made of it is compared"
            return untold(text)
        gone, new = list((one - two).elements()), list((two - one).elements())
        text = f"{len(b)} tensors, {len(a)} in the original; missing shapes: {shown(list(map(str, gone))) or 'none'}"
        text += f"; new: {shown(list(map(str, new))) or 'none'}"
        return differs(text)
    types = [
        f"{k}: {y.dtype}, was {x.dtype}"
        for k, (x, y) in matched(a, b).items()
        if x.dtype != y.dtype
    ]
    if types:
        return answer(None if ev.effect == "recipe" else False, f"other types: {shown(types)}")
    return holds(f"{count(len(a), 'tensor')} of equal shapes and types")


def moved_by(x: TensorPrint, y: TensorPrint) -> float:
    """Share of the norm by which two prints differ, by their sketches; infinite for those without,
    and where one alone is finite."""
    if x.sha == y.sha:
        return 0.0
    if not x.sketch or len(x.sketch) != len(y.sketch):
        return math.inf
    far = distance(x.sketch, y.sketch)
    return far / max(x.norm, y.norm, 1e-30) if 0 < far < math.inf else far


def _moved(record: Record) -> dict[str, float]:
    pairs = matched(record.start, record.model)
    return {plain(k): moved_by(x, y) for k, (x, y) in pairs.items()}


def movement(ev: Evidence) -> Check | None:
    """Every tensor that training moves in the original moves, and no other does: an optimizer must
    hold the parameters that are in use."""
    a, b = _moved(ev.a.record), _moved(ev.b.record)
    if a and b:
        dead = [k for k, d in a.items() if d > MOVED and b.get(k, 1.0) == 0.0]
        if dead:
            text = f"{len(dead)} of {len(a)} tensors never move, though they do in the original: {shown(dead)}"
            return differs(text)
        woken = [k for k, d in a.items() if d == 0.0 and b.get(k, 0.0) > MOVED]
        if woken and ev.effect != "recipe":
            text = f"{len(woken)} of {len(a)} tensors move, though they never do in the original: {shown(woken)}"
            return differs(text)
    lost = sorted(
        {plain(k) for k in ev.b.record.trainable_unused}
        - {plain(k) for k in ev.a.record.trainable_unused}
    )
    if lost:
        text = f"{len(lost)} parameters receive gradients, and no optimizer holds them"
        return differs(f"{text}: {shown(lost)}")
    if not a or not b:
        return None
    text = f"{sum(d > 0 for d in a.values())} of {len(a)} tensors move, the same ones"
    return holds(text)


def replicas(ev: Evidence) -> Check | None:
    """All processes end with the same parameters, unless those of the original do not."""
    if (
        any(_unlike(run) for run in ev.originals)
        or not ev.made
        or len(ev.made[0].records) < 2
        or not ev.made[0].record.model
    ):
        return None
    off = _unlike(ev.made[0])
    if off:
        text = f"{len(off)} of {len(ev.made[0].record.model)} tensors differ between processes: {shown(off)}"
        return differs(text)
    return holds(f"in {len(ev.made[0].records)} processes")


def _unlike(run: Run) -> list[str]:
    """Parameters that not all ranks have the same of."""
    first, *others = [
        {k: v.sha for k, v in rank.model.items() if not v.buffer} for rank in run.records
    ] or [{}]
    return [k for k, sha in first.items() if any(sha != other.get(k) for other in others)]


def _modes(steps: Sequence[Step]) -> set[float]:
    return {mode for s in steps for mode in s.modes}


def _mode(step: Step) -> tuple[object, ...]:
    return step.training, tuple(sorted(step.modes))


def _percent(modes: Sequence[float]) -> str:
    return " and ".join(f"{100 * m:.0f} %" for m in sorted(modes)) or "none"


def training_mode(ev: Evidence) -> Check | None:
    """Which shares of the modules are in training mode, at every step, in calls with gradients and
    in those without.

    The set of shares is compared, as evaluation may be cut into other batches; and the mean share
    of calls with gradients, unless one of the two evaluates without gradients and the other with
    them."""
    a, b = ev.a.record.steps, ev.b.record.steps
    # Other numbers of steps: the usual share, in the second half, and the shares there are.
    if ev.effect == "recipe":
        usual = [
            [s.training for s in steps[len(steps) // 2 :] if s.training is not None]
            for steps in (a, b)
        ]
        if not all(usual):
            return None
        before, after = map(median, usual)
        if _modes(a) != _modes(b) and all((_modes(a), _modes(b))) and abs(before - after) <= 1e-3:
            text = f"{_percent([*_modes(b)])} of the modules train in single calls, {_percent([*_modes(a)])} in the original"
            lost = _modes(a) - _modes(b) and {s.evaluating for s in b} != {None}
            return answer(False if lost else None, text)
        text = f"{100 * after:.0f} % of the modules train, {100 * before:.0f} % in the original"
        return answer(abs(before - after) <= 1e-3, text)
    seen = 0
    off = []
    unseen = _unseen(ev)
    calls = [Counter(call.step for call in run.record.calls) for run in ev.both]
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        alike = (x.evaluating is None) == (y.evaluating is None) or not (x.modes and y.modes)
        if x.training is not None and y.training is not None:
            seen += 1
            if alike and abs(x.training - y.training) > 1e-3:
                text = f"{100 * y.training:.0f} % of the modules train at step {i + 1}, {100 * x.training:.0f} % in the original"
                off.append((i, text))
                continue
        # Not called any more, nor with gradients in its place: a part of the model is, or nothing.
        gone = x.evaluating is not None and y.evaluating is None and calls[0][i] == calls[1][i]
        # Or only parts of it are called with gradients, which are not seen.
        blind = x.training is not None and y.training is None
        less = {*y.modes} < {*x.modes} and (unseen or gone or blind)
        if x.modes and y.modes and x.modes != y.modes and not less:
            text = f"{_percent(y.modes)} of the modules train in calls before step {i + 1}, {_percent(x.modes)} in the original"
            off.append((i, text))
    if off and course.numbers_decide(ev, ev.a, ev.b, off[0][0]):
        # Where passes are as long as draws have it, steps are not places: which modes there are is.
        if not course.known(ev):
            text = f"{off[0][1]}: not yet known whether draws decide when the original evaluates"
            return unclear(f"{text}; {course.more_seeds(ev)}")
        if len({tuple(map(_mode, o.record.steps)) for o in ev.others}) > 1:
            modes = {_mode(s) for o in ev.others for s in o.record.steps}
            off = [(i, text) for i, text in off if _mode(b[i]) not in modes]
    if off:
        return differs(f"{off[0][1]} ({len(off)} of {max(seen, len(off))} steps)")
    if not seen:
        return None
    last = next(s.training for s in reversed(a) if s.training is not None)
    text = f"{100 * last:.0f} % of the modules in training mode, equal at all steps"
    return holds(text)
