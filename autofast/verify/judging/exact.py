"""The test for exact rewrites: not a bit differs where the original repeats itself to the bit, and
no more than it does elsewhere."""

from __future__ import annotations

import math
from itertools import combinations

from autofast.verify.estimates import distance, gap, median
from autofast.verify.evidence import course
from autofast.verify.evidence.gathered import Evidence
from autofast.verify.evidence.numbered import plain
from autofast.verify.evidence.record import Prints, Record, Run, TensorPrint
from autofast.verify.judging import parting
from autofast.verify.judging.invariants import matched
from autofast.verify.judging.tensors import without_constants
from autofast.verify.result import Check, unclear

UNSEEN = "neither a loss nor the model's state was seen: a backward of torch's, or a module that is called as a function, would show them"
# where the original differs from itself, the other may differ from it so many times as much
FACTOR = 3.0


def _same(x: Record, y: Record) -> bool:
    steps = max(len(x.steps), len(y.steps))
    if repr(x.losses) != repr(y.losses) or course.together(x, y, draws=False) < steps:
        return False
    a, b = without_constants(x, y)
    return _weights(a) == _weights(b)


def _weights(model: Prints) -> dict[str, str]:
    return {plain(k): v.sha for k, v in model.items()}


def equal(x: Run, y: Run) -> bool:
    """Losses, norms and final weights of all ranks are the same bits."""
    return len(x.records) == len(y.records) and all(map(_same, x.records, y.records))


def reproducible(ev: Evidence) -> bool:
    return len(ev.originals) > 1 and all(equal(ev.a, o) for o in ev.originals[1:])


def identical(ev: Evidence) -> bool:
    """Where the original repeats itself: every pair is equal, under other seeds too."""
    return reproducible(ev) and equal(ev.a, ev.b) and all(equal(a, b) for a, b in ev.pairs)


def bitwise(ev: Evidence) -> Check:
    """Losses, gradient and update norms and final weights, bit for bit. Only where the original
    repeats itself."""
    name = "bit for bit"
    a, b = ev.records
    counted = [f"{len(a.losses)} losses"]
    counted += [f"{len(a.model)} tensors of the final model"] if a.model else []
    if not a.losses and not a.model:
        return unclear(UNSEEN, name)
    drawn = [course.trained_alike(a, run.record, draws=True) for run in (*ev.originals, ev.b)]
    if equal(ev.a, ev.b) and (ev.effect != "exact" or drawn[-1] or not all(drawn[:-1])):
        return Check(name, True, f"{' and '.join(counted)} are equal bit for bit", identical=True)
    if equal(ev.a, ev.b) or not course.trained_alike(a, b) or repr(a.losses) != repr(b.losses):
        return Check(name, False, parting.place(ev))
    first, second = map(_weights, without_constants(a, b))
    off = [k for k, sha in first.items() if second.get(k) != sha]
    if off:
        text = f"equal losses, but {len(off)} of {len(a.model)} final tensors differ: {off[0]}"
        return Check(name, False, text)
    return Check(name, False, "the processes other than the first differ")


def apart(x: Run, y: Run, steps: int | None = None) -> float:
    """Root mean square of the relative differences of the losses, over the first ``steps``;
    infinite where one alone is no number."""
    found = spans(x, y, steps)
    return math.hypot(*found) / math.sqrt(len(found)) if found else 0.0


def spans(x: Run, y: Run, steps: int | None = None) -> list[float]:
    """Relative difference of each two losses, by the size of losses in the median; infinite where
    one alone is no number."""
    pairs = list(zip(x.record.losses[:steps], y.record.losses[:steps], strict=False))
    size = median([abs(p) for p, _ in pairs if math.isfinite(p)] or [0.0]) or 1e-30
    return [gap(p, q) / size for p, q in pairs]


def state_apart(x: Run, y: Run, buffers: bool | None = None) -> float:
    """Distance of the final states by their sketches, as a share of their norm; 0 where there are
    none, infinite where a tensor of one alone is
    finite. ``buffers``: of these alone (those of floating point), or of parameters alone."""
    both = [*matched(x.record.model, y.record.model).values()]
    if buffers is not None:
        both = [
            (p, q)
            for p, q in both
            if p.buffer is buffers and not p.dtype.startswith(("int", "uint", "bool"))
        ]
    both = [(p, q) for p, q in both if p.sketch and len(p.sketch) == len(q.sketch)]
    size = math.hypot(*(norm for p, q in both for norm in _finite(p, q)))
    far = math.hypot(*(distance(p.sketch, q.sketch) for p, q in both))
    return far / size if size else far


def _finite(x: TensorPrint, y: TensorPrint) -> list[float]:
    """The larger of two norms, if both are numbers."""
    return [max(x.norm, y.norm)] if math.isfinite(x.norm) and math.isfinite(y.norm) else []


def as_close(ev: Evidence) -> Check:
    """Where the original differs from run to run at equal seed: the rewritten run is, in the
    median, at most FACTOR times as far from the original's runs as the farthest two of those are
    from each other, in losses and in final weights."""
    name = "as close as the original to itself"
    if len(ev.originals) < 2:
        text = "the original was run only once; a longer --time-budget lets it run again"
        return unclear(text, name)
    if not ev.a.record.losses and not ev.a.record.model:
        return unclear(UNSEEN, name)
    words = []
    for what, measure in (("losses", apart), ("final weights", state_apart)):
        own = max(measure(x, y) for x, y in combinations(ev.originals, 2))
        other = median([measure(o, b) for o in ev.originals for b in ev.rewritten if b.ok])
        words.append(f"{what} {other:.2g} away, the original's runs {own:.2g} from each other")
        if not other <= FACTOR * own:
            return Check(name, False, f"{words[-1]}: more than {FACTOR:g} times as far")
    return Check(name, True, "not reproducible bit for bit; " + "; ".join(words))
