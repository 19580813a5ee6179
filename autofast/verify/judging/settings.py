"""What no rewrite may change: learning rates, optimizers, their settings, clipping, counters."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from autofast.model.several import grouped
from autofast.report.style import count
from autofast.verify.estimates import fmean, gap
from autofast.verify.evidence import course
from autofast.verify.evidence.gathered import Evidence, taken
from autofast.verify.evidence.numbered import plain
from autofast.verify.evidence.record import Numbers, Record, Run, Step
from autofast.verify.judging.invariants import shown
from autofast.verify.result import Check, differs, holds, unclear, untold

RATES = "learning rates"
COUNTERS = "counters in the model"


def _same_lr(x: Numbers, y: Numbers) -> bool:
    return len(x) == len(y) and all(
        math.isclose(p, q, rel_tol=1e-6, abs_tol=1e-12) for p, q in zip(x, y, strict=True)
    )


def _rates(run: Run, skipped: bool = True) -> list[Numbers]:
    return [s.lr for s in (run.record.steps if skipped else taken(run))]


def _first_rate(a: Run, b: Run, skipped: bool = True) -> int | None:
    both = enumerate(zip(_rates(a, skipped), _rates(b, skipped), strict=False))
    return next((i for i, (x, y) in both if not _same_lr(x, y)), None)


def learning_rates(ev: Evidence) -> Check | None:
    """The learning rate of every parameter group at every step, to 1e-6. Where steps were skipped,
    by steps that were made.
    """
    if not any(_rates(ev.a)):
        return None
    if any(_first_rate(ev.a, o) is not None for o in course.runs(ev)):
        return _free_rates(ev)
    for a, b in course.pairs(ev):
        place = _first_rate(a, b)
        if (
            place is not None
            and (a.record.skipped or b.record.skipped)
            and _first_rate(a, b, False) is None
        ):
            place = None
        if place is not None:
            before, after = _rates(a)[place], _rates(b)[place]
            decided = len(before) == len(after) and course.numbers_decide(ev, a, b, place)
            if decided and not course.known(ev):
                text = f"they differ from step {place + 1} on: not yet known whether those of the original depend on its numbers; {course.more_seeds(ev)}"
                return unclear(text)
            both = enumerate(zip(before, after, strict=False))
            group = next((i for i, (x, y) in both if not _same_lr((x,), (y,))), 0)
            if len(before) != len(after):
                text = f"{len(after)} parameter groups at step {place + 1}, {len(before)} in the original"
            else:
                text = f"learning rate {after[group]:.6g} at step {place + 1}, {before[group]:.6g} in the original"
            return differs(text)
    steps = ev.a.steps_made
    return holds(f"equal at {'all ' * (steps > 1)}{count(steps, 'step')}")


def _factors(run: Run) -> set[float]:
    """By what the rates of the first group change from one step to the next, to four digits."""
    rates = [rate[0] for rate in _rates(run) if rate and rate[0] > 0]
    return {float(f"{y / x:.4g}") for x, y in zip(rates, rates[1:], strict=False) if x != y}


def _free_rates(ev: Evidence) -> Check:
    """Rates that depend on the training itself (a plateau): they change by the same factors, and
    are as high in the mean over seeds.
    """
    text = "the original's learning rates depend on the training itself"
    for a, b in course.pairs(ev):
        place = _first_rate(a, b)
        if place is not None and not course.numbers_decide(ev, a, b, place):
            drawn = a.record.steps[place].random == ""  # what was drawn by then is not known
            if not drawn and not (a.record.skipped or b.record.skipped):
                after, before = _rates(b)[place], _rates(a)[place]
                words = f"{', '.join(f'{r:.6g}' for r in after)} at step {place + 1}, {', '.join(f'{r:.6g}' for r in before)} in the original"
                return differs(f"{words}; until then not a bit differs")
    usual = {factor for run in course.runs(ev) for factor in _factors(run)}
    other = [sorted(_factors(b) - usual) for _, b in ev.pairs]
    if len(usual) <= 3 and len(other) >= course.LEAST and sum(map(bool, other)) > len(other) / 2:
        factor = next(some[0] for some in other if some)
        text = f"they change by {factor:g}, in the original by {', '.join(f'{f:g}' for f in sorted(usual))}"
        return differs(text)
    if means := course.off(ev, _level, course.ENOUGH, math.log(1.05)):
        times = math.exp(means[1] - means[0])
        words = f"{times:.3g} times as high in the mean over {means[2]} seeds"
        return differs(f"{words}; {text}")
    return untold(text)


def _level(run: Run) -> float:
    return fmean([math.log(r[0]) for r in _rates(run) if r and r[0] > 0] or [math.nan])


def optimizers(ev: Evidence) -> Check | None:
    """Kinds of optimizers. Whether an optimizer is fused is no kind."""
    before, after = (
        tuple(o.lower().replace("fused", "") for o in r.record.optimizers) for r in ev.both
    )
    counts = [Counter(r.record.optimizers).items() for r in ev.both]
    words = [", ".join(f"{n} × " * (n > 1) + kind for kind, n in some) for some in counts]
    if before == after:
        return holds(words[0]) if before else None
    return differs(f"{words[1] or 'none'}; in the original {words[0] or 'none'}")


def settings(ev: Evidence) -> Check | None:
    """Every other setting of every parameter group, at the first step and at the last: weight
    decay, momentum, betas, how many parameters.

    Settings that only one of the two has are left out (a fused kind may have names of its own), and
    the last step's where steps were
    skipped: a schedule of the momentum is then behind.
    """
    if len(ev.a.record.optimizers) != len(ev.b.record.optimizers):
        return None
    a, b = ev.a.record.settings, ev.b.record.settings
    steady = [
        k for k in a if all(o.record.settings.get(k) == a[k] for o in ev.originals if o.records)
    ]
    moved = bool(ev.a.record.skipped or ev.b.record.skipped)
    steady = [k for k in steady if k in b and not (moved and k.split("/")[1] == "last")]
    if not steady:
        return None
    sizes = [len({(k.split("/")[0], k.split("/")[2]) for k in one}) for one in (a, b)]
    if sizes[0] != sizes[1]:
        return differs(f"{sizes[1]} parameter groups, {sizes[0]} in the original")
    for key in sorted(steady, key=lambda k: k.split("/")[1]):
        if not _same_setting(a[key], b[key]):
            number, when, group, what = key.split("/", 3)
            which = f" of optimizer {int(number) + 1}" if len(ev.a.record.optimizers) > 1 else ""
            text = f"{what} {b[key]} in group {group}{which} at the {when} step, {a[key]} in the original"
            return differs(text)
    text = f"{len({tuple(k.split('/')[i] for i in (0, 2, 3)) for k in steady})} settings, equal at the first and last step"
    return holds(text)


def _same_setting(x: str, y: str) -> bool:
    if x == y:
        return True
    one, two = x.split(", "), y.split(", ")
    try:
        return len(one) == len(two) and all(
            math.isclose(float(p), float(q), rel_tol=1e-6) for p, q in zip(one, two, strict=True)
        )
    except ValueError:
        return False


CLIP = 1e-3  # clip_grad_norm_ leaves a norm that is its limit to 1e-6 / limit


def _clipped(steps: Sequence[Step]) -> float | None:
    """The limit to which gradients were clipped, as their norms tell: several lie exactly at their
    maximum, a fifth at least of those near it, and the last backward had left other ones.
    """
    values = [s.grad_norm or 0.0 for s in steps]
    top = max(values, default=0.0)
    at = sum(v >= top * (1 - CLIP) and _left_another(s) for s, v in zip(steps, values, strict=True))
    near = sum(v >= top * 0.95 for v in values)
    return top if top > 0 and at >= 3 and at >= near / 5 else None


def _left_another(step: Step) -> bool:
    left, norm = step.left_norm, step.grad_norm or 0.0
    return left is None or not math.isclose(left, norm, rel_tol=1e-6)


def _gradients(runs: Sequence[Run]) -> dict[int, list[Step]]:
    return grouped(
        (s.optimizer, s)
        for run in runs
        for s in taken(run)
        if s.grad_norm is not None and math.isfinite(s.grad_norm)
    )


def clipping(ev: Evidence) -> Check | None:
    """Clipped gradients have norms up to a limit and several exactly at it; the other script keeps
    the same limit.

    Over the steps of all seeds. 1 % is left for gradients in 16 bits, which clipping rounds once
    more.
    """
    before, after = map(_gradients, course.arms(ev))
    limits = []
    for optimizer, steps in before.items():
        some = (steps, after.get(optimizer, []))
        one, two = map(_clipped, some)
        a, b = ([s.grad_norm or 0.0 for s in arm] for arm in some)
        if one is not None:
            over = sum(v > one * 1.01 for v in b)
            if over:
                text = f"{over} of {len(b)} gradient norms exceed {one:.4g}, up to {max(b):.4g}; the original's are clipped to that"
                return differs(text)
            limits.append(one)
        if two is not None and (over := sum(v > two * 1.01 for v in a)):
            text = f"gradient norms are clipped to {two:.4g}; {over} of {len(a)} of the original's exceed that, up to {max(a):.4g}"
            return differs(text)
    text = f"to {', '.join(f'{x:.4g}' for x in limits)}, as in the original"
    return holds(text) if limits else None


def _counts(record: Record) -> dict[str, float]:
    whole = (
        (k, v) for k, v in record.model.items() if v.dtype.startswith("int") and math.prod(v.shape) == 1
    )  # fmt: skip
    return {plain(k): v.norm for k, v in whole}


def counters(ev: Evidence) -> Check | None:
    """Integer numbers among the model's buffers count something (batches that a BatchNorm saw,
    updates of an average): they end the same.

    Where the best state is loaded at the end, they tell which epoch was the best, and that is for
    the numbers to decide.
    """
    known = [_counts(o.record) for o in course.runs(ev)]
    usual, now = _counts(ev.a.record), _counts(ev.b.record)
    both = {k: (usual[k], now[k]) for k in usual if k in now}
    fixed = {k for k in both if all(m.get(k) == usual[k] for m in known)}
    if not fixed and (not both or len(ev.pairs) < course.LEAST):
        return None
    slack = abs(ev.a.record.skipped - ev.b.record.skipped)
    off = [
        f"{k} is {y:.0f}, {x:.0f} in the original"
        for k, (x, y) in both.items()
        if k in fixed and gap(x, y) > slack
    ]
    if off and not course.known(ev) and course.numbers_decide(ev, ev.a, ev.b, ev.a.steps_made):
        text = f"{shown(off, 1)}: not yet known whether the original's depend on its numbers; {course.more_seeds(ev)}"
        return unclear(text)
    off = off or [text for k in both if k not in fixed and (text := _counts_otherwise(ev, k))]
    if off:
        return differs(shown(off, 1))
    return holds(f"{len(both)} end the same" if fixed else "they end as seeds have it")


def _counts_otherwise(ev: Evidence, key: str) -> str:
    """A counter that the original's own numbers decide ends elsewhere than seeds explain."""
    found = course.off(ev, lambda run: _counts(run.record).get(key))
    if found is None:
        return ""
    before, after, seeds = found
    return f"{key} is {after:.4g} in the mean over {seeds} seeds, {before:.4g} in the original"
