"""What no rewrite may change, whatever its numbers look like: how many steps, which learning rates, which tensors move, what is saved.

Each function compares the original's first run at seed 0 with the rewritten one's and gives a ``Check``, or None where there is nothing to
compare. What the original itself does not reproduce is not held against the other.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from autofast.report.style import count
from autofast.verify import course
from autofast.verify.estimates import difference, distance, fmean, gap, median
from autofast.verify.evidence import Evidence, summed, taken
from autofast.verify.numbered import plain
from autofast.verify.record import Record, Run, Step, TensorPrint
from autofast.verify.result import Check, Sameness

BROKEN, DIFFERENT = Sameness.BROKEN, Sameness.DIFFERENT
RATES = "learning rates"
COUNTERS = "counters in the model"
MOVED = 1e-6  # a tensor has moved when it changed by this share of its norm


def shown(names: Sequence[str], most: int = 3) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def ended(ev: Evidence) -> Check | None:
    """Every run of the rewritten script came to its proper end."""
    name = "runs to its end"
    if not ev.a.ok:
        why = next((r.error for r in ev.a.records if r.error), "")
        text = "the original itself did not run to its end" + (f": {why}" if why else "")
        return Check(name, None, text, verdict=Sameness.UNCLEAR)
    for run in ev.failed:
        if run.timed_out:
            text = f"the rewritten script was still running after {run.seconds:.0f} s"
        elif run.records and any(r.error for r in run.records):
            text = "the rewritten script stopped with " + next(
                r.error for r in run.records if r.error
            )
        elif run.records and not any(r.steps for r in run.records):
            text = "the rewritten script made no optimizer step"
        else:
            text = f"the rewritten script ended with exit code {run.exit_code}"
        return Check(name, False, text, verdict=BROKEN)
    whole = ev.uncut or ev
    as_original = "" if course.unequal(whole) else ", as the original"
    return Check(name, True, f"{count(course.made(whole.b), 'optimizer step')}{as_original}")


def enough(ev: Evidence) -> Check | None:
    """Gradients that are not cleared, rates that change, losses that are added up: all of it shows in the second step at the earliest."""
    if any(len(r.steps) != 1 or r.ending != "steps" for r in ev.a.records):
        return None
    return Check(
        "steps compared",
        None,
        "only the first step: what it leaves behind shows in later ones; --steps 20 would tell",
        verdict=Sameness.UNCLEAR,
    )


def finite(ev: Evidence) -> Check | None:
    """No loss, and no tensor of the final model, is infinite or nan where the original's are numbers."""
    name = "finite losses"
    for a, b in ev.pairs or ((ev.a, ev.b),):
        known = [x.record.losses for x in (ev.originals if a is ev.a else (a,)) if x.records]
        for i, loss in enumerate(b.record.losses):
            if not math.isfinite(loss) and all(i < len(k) and math.isfinite(k[i]) for k in known):
                return Check(
                    name,
                    False,
                    f"loss {i + 1} is {loss}, the original's is {known[0][i]:.6g} (seed {a.seed})",
                    verdict=BROKEN,
                )
        for key, (x, y) in _matched(a.record.model, b.record.model).items():
            if math.isfinite(x.norm) and not math.isfinite(y.norm):
                text = f"{key} of the final model holds {y.norm} (seed {a.seed})"
                if all(math.isfinite(k[key].norm) for k in _models(ev, a) if key in k):
                    return Check(name, False, text, verdict=BROKEN)
    bad = sum(not math.isfinite(x) for x in ev.a.record.losses)
    return Check(
        name,
        True,
        f"{bad} of the original's own losses are no numbers" if bad else "all losses are numbers",
    )


def _models(ev: Evidence, a: Run) -> list[Mapping[str, TensorPrint]]:
    return [run.record.model for run in (ev.originals if a is ev.a else (a,)) if run.records]


def _first(a: Sequence[float], b: Sequence[float]) -> int | None:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)


def steps(ev: Evidence) -> Check | None:
    """Numbers of optimizer steps, of backwards in each, and of steps that a GradScaler left out."""
    name = "optimizer steps and backwards"
    a, b = ev.a.record, ev.b.record
    steady = all(
        (len(o.record.steps), o.record.backwards) == (len(a.steps), a.backwards)
        for o in ev.originals
        if o.records
    )
    if ev.effect == "recipe" or not steady:
        text = f"{len(b.steps)} optimizer steps, {len(a.steps)} in the original; {b.backwards} backwards, {a.backwards} in the original"
        return Check(name, True if steady else None, text)
    apart = course.steps(ev.uncut or ev)
    if apart is not None and apart.passed is not True:
        return apart
    if len(a.steps) != len(b.steps):
        return Check(
            name,
            False,
            f"{len(b.steps)} optimizer steps, {len(a.steps)} in the original",
            verdict=BROKEN,
        )
    place = _first([s.backwards for s in a.steps], [s.backwards for s in b.steps])
    if place is not None:
        text = f"step {place + 1} has {b.steps[place].backwards} backwards, {a.steps[place].backwards} in the original"
        return Check(name, False, text, verdict=BROKEN)
    if a.backwards != b.backwards:
        return Check(
            name, False, f"{b.backwards} backwards, {a.backwards} in the original", verdict=BROKEN
        )
    # A GradScaler looks for its scale in the first steps.
    allowed = 0 if ev.effect == "exact" else max(4, len(a.steps) // 50)
    if abs(a.skipped - b.skipped) > allowed:
        return Check(
            name,
            False,
            f"{b.skipped} steps were skipped for infinite gradients, {a.skipped} in the original",
            verdict=BROKEN,
        )
    if apart is not None:
        return apart
    extra = (
        f", {b.skipped} skipped for infinite gradients ({a.skipped} in the original)"
        if a.skipped or b.skipped
        else ""
    )
    return Check(
        name, True, f"{count(len(a.steps), 'step')}, {count(a.backwards, 'backward')}{extra}"
    )


def _evaluations(run: Run) -> list[int]:
    return sorted(p.samples for r in run.records for p in r.passes if not p.training and p.complete)


def _cut(ev: Evidence) -> str:
    """Other batches of the same samples are no fault, and said."""
    batches = [
        sum(p.batches for r in run.records for p in r.passes if not p.training and p.complete)
        for run in (ev.a, ev.b)
    ]
    return "" if batches[0] == batches[1] else f", in {batches[1]} batches in place of {batches[0]}"


def _evaluated(ev: Evidence) -> Check | None:
    """Complete evaluations take the same samples; under a recipe each of them does, however many there are."""
    before, after = _evaluations(ev.a), _evaluations(ev.b)
    if not before or any(_evaluations(o) != before for o in ev.originals if o.records):
        return None
    name = "samples for evaluation"
    if ev.effect == "recipe":
        one, two = (set(found) for found in (before, after))
        if two - one:
            return Check(
                name,
                False,
                f"an evaluation takes {min(two - one)} samples, {max(one)} in the original",
                verdict=BROKEN,
            )
    elif before != after:
        text = f"{sum(after)} samples in {len(after)} complete evaluations, {sum(before)} in {len(before)} in the original"
        return Check(name, False, text, verdict=BROKEN)
    return Check(
        name,
        True,
        f"{count(sum(after), 'sample')} in {count(len(after), 'evaluation')}{_cut(ev)}",
    )


def samples(ev: Evidence) -> Check | None:
    """Samples taken for each step, summed over ranks, and for evaluation."""
    name = "samples for each step"
    a, b = ev.a, ev.b
    if ev.effect == "recipe":
        return _evaluated(ev)
    for kind, words in (
        ("samples", "training samples"),
        ("evaluation_samples", "samples for evaluation"),
    ):
        one, two = summed(a, kind), summed(b, kind)
        if kind == "samples" and bool(sum(one)) != bool(sum(two)):
            return _without_loader(ev, name)
        if any(summed(o, kind) != one for o in ev.originals[1:] if o.records):
            return Check(name, None, f"the {words} vary between two runs of the original")
        place = _first(one, two)
        if place is not None:
            text = f"{two[place]:.0f} {words} were taken for step {place + 1}, {one[place]:.0f} in the original"
            text += f"; in all {sum(two):.0f} and {sum(one):.0f}"
            return Check(name, False, text, verdict=BROKEN)
    wrong = _evaluated(ev)
    if wrong is not None and wrong.passed is False:
        return wrong
    total = sum(summed(a, "samples"))
    if not total:
        return None
    return Check(name, True, f"{total:.0f} samples for training, equal at every step")


def _without_loader(ev: Evidence, name: str) -> Check:
    """One of the two takes its samples from memory, not from a DataLoader: what the models are given in each step tells how many."""
    counts = []
    for run in (ev.a, ev.b):
        found = Counter[int]()
        for call in run.record.calls:
            found[call.step] += call.samples
        counts.append([found[i] for i in range(course.made(run))])
    text = "from a DataLoader in one of the two, from memory in the other"
    if not all(map(any, counts)):
        text += "; what the models are given was not seen: with a DataLoader in both, or a model of torch that is called, it would be"
        return Check(name, None, text, verdict=Sameness.UNCLEAR)
    place = _first(*counts)
    if place is None:
        return Check(name, True, f"{sum(counts[1])} for training, {text}, equal at every step")
    words = f"the models are given {counts[1][place]} samples in step {place + 1}, {counts[0][place]} in the original"
    text += ": with a DataLoader in both, or with this change alone left out, it would be clear"
    return Check(name, None, f"{words}, {text}", verdict=Sameness.UNCLEAR)


def _same_lr(x: tuple[float, ...], y: tuple[float, ...]) -> bool:
    return len(x) == len(y) and all(
        math.isclose(p, q, rel_tol=1e-6, abs_tol=1e-12) for p, q in zip(x, y, strict=True)
    )


def _rates(run: Run, skipped: bool = True) -> list[tuple[float, ...]]:
    return [s.lr for s in (run.record.steps if skipped else taken(run))]


def _first_rate(a: Run, b: Run, skipped: bool = True) -> int | None:
    return next(
        (
            i
            for i, (x, y) in enumerate(zip(_rates(a, skipped), _rates(b, skipped), strict=False))
            if not _same_lr(x, y)
        ),
        None,
    )


def learning_rates(ev: Evidence) -> Check | None:
    """The learning rate of every parameter group at every step, to 1e-6. Where steps were skipped, by steps that were made."""
    name = RATES
    if ev.effect == "recipe" or not any(_rates(ev.a)):
        return None
    if any(_first_rate(ev.a, o) is not None for o in course.runs(ev)):
        return _free_rates(ev, name)
    for a, b in ev.pairs or ((ev.a, ev.b),):
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
                return Check(name, None, text, verdict=Sameness.UNCLEAR)
            group = next(
                (
                    i
                    for i, (x, y) in enumerate(zip(before, after, strict=False))
                    if not _same_lr((x,), (y,))
                ),
                0,
            )
            if len(before) != len(after):
                text = f"{len(after)} parameter groups at step {place + 1}, {len(before)} in the original"
            else:
                text = f"learning rate {after[group]:.6g} at step {place + 1}, {before[group]:.6g} in the original"
            return Check(name, False, text)
    return Check(
        name,
        True,
        f"equal at {'all ' * (len(ev.a.record.steps) > 1)}{count(len(ev.a.record.steps), 'step')}",
    )


def _factors(run: Run) -> set[float]:
    """By what the rates of the first group change from one step to the next, to four digits."""
    rates = [rate[0] for rate in _rates(run) if rate and rate[0] > 0]
    return {float(f"{y / x:.4g}") for x, y in zip(rates, rates[1:], strict=False) if x != y}


def _free_rates(ev: Evidence, name: str) -> Check:
    """Rates that depend on the training itself (a plateau): they change by the same factors, and are as high in the mean over seeds."""
    text = "the original's learning rates depend on the training itself"
    for a, b in course.pairs(ev):
        place = _first_rate(a, b)
        if place is not None and not course.numbers_decide(ev, a, b, place):
            drawn = a.record.steps[place].random == ""  # what was drawn by then is not known
            if not drawn and not (a.record.skipped or b.record.skipped):
                after, before = _rates(b)[place], _rates(a)[place]
                words = f"{', '.join(f'{r:.6g}' for r in after)} at step {place + 1}, {', '.join(f'{r:.6g}' for r in before)} in the original"
                return Check(name, False, f"{words}; until then not a bit differs")
    usual = {factor for run in course.runs(ev) for factor in _factors(run)}
    other = [sorted(_factors(b) - usual) for _, b in ev.pairs]
    if len(usual) <= 3 and len(other) >= course.LEAST and sum(map(bool, other)) > len(other) / 2:
        factor = next(some[0] for some in other if some)
        return Check(
            name,
            False,
            f"they change by {factor:g}, in the original by {', '.join(f'{f:g}' for f in sorted(usual))}",
        )
    means = [
        tuple(fmean([math.log(r[0]) for r in _rates(run) if r and r[0] > 0] or [math.nan]) for run in pair)
        for pair in ev.pairs
    ]  # fmt: skip
    means = [(x, y) for x, y in means if math.isfinite(x) and math.isfinite(y)]
    if len(means) >= course.ENOUGH:
        found = difference([x for x, _ in means], [y for _, y in means])
        if abs(found.value) > max(math.log(1.05), found.half(0.9995)):
            words = f"{math.exp(found.value):.3g} times as high in the mean over {len(means)} seeds"
            return Check(name, False, f"{words}; {text}")
    return Check(name, None, text)


def optimizers(ev: Evidence) -> Check | None:
    """Kinds of optimizers. Whether an optimizer is fused is no kind."""
    name = "optimizers"
    before, after = (
        tuple(o.lower().replace("fused", "") for o in r.record.optimizers) for r in (ev.a, ev.b)
    )
    words = f"{', '.join(ev.b.record.optimizers) or 'none'}; in the original {', '.join(ev.a.record.optimizers) or 'none'}"
    if ev.effect == "recipe":
        return None
    if before == after:
        return Check(name, True, ", ".join(ev.a.record.optimizers)) if before else None
    return Check(name, False, words)


def settings(ev: Evidence) -> Check | None:
    """Every other setting of every parameter group, at the first step and at the last: weight decay, momentum, betas, how many parameters.

    Settings that only one of the two has are left out (a fused kind may have names of its own), and the last step's where steps were
    skipped: a schedule of the momentum is then behind.
    """
    name = "optimizer settings"
    if ev.effect == "recipe" or len(ev.a.record.optimizers) != len(ev.b.record.optimizers):
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
        return Check(name, False, f"{sizes[1]} parameter groups, {sizes[0]} in the original")
    for key in sorted(steady, key=lambda k: k.split("/")[1]):
        if not _same_setting(a[key], b[key]):
            number, when, group, what = key.split("/", 3)
            which = f" of optimizer {int(number) + 1}" if len(ev.a.record.optimizers) > 1 else ""
            text = f"{what} {b[key]} in group {group}{which} at the {when} step, {a[key]} in the original"
            return Check(name, False, text)
    return Check(
        name,
        True,
        f"{len({tuple(k.split('/')[i] for i in (0, 2, 3)) for k in steady})} settings, equal at the first and last step",
    )


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


def _clipped(values: Sequence[float]) -> float | None:
    """The limit to which gradients were clipped, as their norms tell: several lie exactly at their maximum, a fifth at least of those near it."""
    top = max(values, default=0.0)
    at = sum(v >= top * (1 - CLIP) for v in values)
    near = sum(v >= top * 0.95 for v in values)
    return top if top > 0 and at >= 3 and at >= near / 5 else None


def _gradients(runs: Sequence[Run]) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for run in runs:
        for s in taken(run):
            if s.grad_norm is not None and math.isfinite(s.grad_norm):
                found.setdefault(s.optimizer, []).append(s.grad_norm)
    return found


def clipping(ev: Evidence) -> Check | None:
    """Clipped gradients have norms up to a limit and several exactly at it; the other script keeps the same limit.

    Over the steps of all seeds. 1 % is left for gradients in 16 bits, which clipping rounds once more.
    """
    name = "gradient clipping"
    if ev.effect == "recipe":
        return None
    before, after = (_gradients([p[k] for p in ev.pairs] or [(ev.a, ev.b)[k]]) for k in (0, 1))
    limits = []
    for optimizer, a in before.items():
        b = after.get(optimizer, [])
        one, two = _clipped(a), _clipped(b)
        if one is not None:
            over = sum(v > one * 1.01 for v in b)
            if over:
                text = f"{over} of {len(b)} gradient norms exceed {one:.4g}, up to {max(b):.4g}; the original's are clipped to that"
                return Check(name, False, text)
            limits.append(one)
        if two is not None and (over := sum(v > two * 1.01 for v in a)):
            text = f"gradient norms are clipped to {two:.4g}; {over} of {len(a)} of the original's exceed that, up to {max(a):.4g}"
            return Check(name, False, text)
    return (
        Check(name, True, f"to {', '.join(f'{x:.4g}' for x in limits)}, as in the original")
        if limits
        else None
    )


def _counts(record: Record) -> dict[str, float]:
    whole = (
        (k, v) for k, v in record.model.items() if v.dtype.startswith("int") and math.prod(v.shape) == 1
    )  # fmt: skip
    return {plain(k): v.norm for k, v in whole}


def counters(ev: Evidence) -> Check | None:
    """Integer numbers among the model's buffers count something (batches that a BatchNorm saw, updates of an average): they end the same.

    Where the best state is loaded at the end, they tell which epoch was the best, and that is for the numbers to decide.
    """
    name = COUNTERS
    if ev.effect == "recipe":
        return None
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
    if off and not course.known(ev) and course.numbers_decide(ev, ev.a, ev.b, course.made(ev.a)):
        text = f"{shown(off, 1)}: not yet known whether the original's depend on its numbers; {course.more_seeds(ev)}"
        return Check(name, None, text, verdict=Sameness.UNCLEAR)
    off = off or [text for k in both if k not in fixed and (text := _counts_otherwise(ev, k))]
    if off:
        return Check(name, False, shown(off, 1))
    return Check(name, True, f"{len(both)} end the same" if fixed else "they end as seeds have it")


def _counts_otherwise(ev: Evidence, key: str) -> str:
    """A counter that the original's own numbers decide ends elsewhere than seeds explain."""
    pairs = [(_counts(a.record).get(key), _counts(b.record).get(key)) for a, b in ev.pairs]
    both = [(x, y) for x, y in pairs if x is not None and y is not None]
    if len(both) < course.LEAST:
        return ""
    found = difference([x for x, _ in both], [y for _, y in both])
    if abs(found.value) <= found.half(0.9995):
        return ""
    before, after = fmean([x for x, _ in both]), fmean([y for _, y in both])
    return f"{key} is {after:.4g} in the mean over {len(both)} seeds, {before:.4g} in the original"


def _matched(
    a: Mapping[str, TensorPrint], b: Mapping[str, TensorPrint]
) -> dict[str, tuple[TensorPrint, TensorPrint]]:
    other = {plain(k): v for k, v in b.items()}
    return {k: (v, other[plain(k)]) for k, v in a.items() if plain(k) in other}


def constants(record: Record) -> set[str]:
    """Buffers that are the same at the end as at the start: a table of places, a mask. Whether a script keeps them in the model or makes them
    anew is its own matter; what is saved of them is asked for with the checkpoints."""
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
    """Shapes of the tensors of models that are never called with gradients: an average of the weights, a teacher."""
    trained = {str(call.model) for call in record.calls}
    if not trained:
        return Counter()
    return Counter(t.shape for key, t in record.model.items() if key.split("/")[0] not in trained)


def _unseen(ev: Evidence) -> bool:
    """The rewritten script evaluates by other means than a call: all that is missing are the models that only evaluate."""
    a, b = (Counter(t.shape for t in m.values()) for m in without_constants(ev.a.record, ev.b.record))  # fmt: skip
    return a != b and not b - a and a - b == _idle(ev.a.record)


def tensors(ev: Evidence) -> Check | None:
    """The model has the same tensors: number, shapes, types."""
    name = "tensors of the model"
    a, b = without_constants(ev.a.record, ev.b.record)
    if not a or not b:
        return None
    one, two = Counter(t.shape for t in a.values()), Counter(t.shape for t in b.values())
    if one != two:
        if _unseen(ev):
            text = "a model that only evaluates is no longer called: what is made of it is compared"
            return Check(name, None, text)
        gone, new = list((one - two).elements()), list((two - one).elements())
        text = f"{len(b)} tensors, {len(a)} in the original; missing shapes: {shown(list(map(str, gone))) or 'none'}"
        text += f"; new: {shown(list(map(str, new))) or 'none'}"
        return Check(name, False, text)
    types = [
        f"{k}: {y.dtype}, was {x.dtype}"
        for k, (x, y) in _matched(a, b).items()
        if x.dtype != y.dtype
    ]
    if types:
        return Check(
            name,
            None if ev.effect == "recipe" else False,
            f"other types: {shown(types)}",
        )
    return Check(name, True, f"{count(len(a), 'tensor')} of equal shapes and types")


def moved_by(x: TensorPrint, y: TensorPrint) -> float:
    """Share of the norm by which two prints differ, by their sketches; infinite for those without, and where one alone is finite."""
    if x.sha == y.sha:
        return 0.0
    if not x.sketch or len(x.sketch) != len(y.sketch):
        return math.inf
    far = distance(x.sketch, y.sketch)
    return far / max(x.norm, y.norm, 1e-30) if 0 < far < math.inf else far


def _moved(record: Record) -> dict[str, float]:
    pairs = _matched(record.start, record.model)
    return {plain(k): moved_by(x, y) for k, (x, y) in pairs.items()}


def movement(ev: Evidence) -> Check | None:
    """Every tensor that training moves in the original moves, and no other does: an optimizer must hold the parameters that are in use."""
    name = "every parameter trains"
    a, b = _moved(ev.a.record), _moved(ev.b.record)
    if a and b:
        dead = [k for k, d in a.items() if d > MOVED and b.get(k, 1.0) == 0.0]
        if dead:
            return Check(
                name,
                False,
                f"{len(dead)} of {len(a)} tensors never move, though they do in the original: {shown(dead)}",
            )
        woken = [k for k, d in a.items() if d == 0.0 and b.get(k, 0.0) > MOVED]
        if woken and ev.effect != "recipe":
            return Check(
                name,
                False,
                f"{len(woken)} of {len(a)} tensors move, though they never do in the original: {shown(woken)}",
            )
    lost = sorted(
        {plain(k) for k in ev.b.record.trainable_unused}
        - {plain(k) for k in ev.a.record.trainable_unused}
    )
    if lost:
        return Check(
            name,
            False,
            f"{len(lost)} parameters receive gradients and are held by no optimizer: {shown(lost)}",
        )
    if not a or not b:
        return None
    return Check(
        name, True, f"{sum(d > 0 for d in a.values())} of {len(a)} tensors move, the same ones"
    )


def replicas(ev: Evidence) -> Check | None:
    """All processes end with the same parameters, unless those of the original do not."""
    name = "the same model in every process"
    if (
        any(_unlike(run) for run in ev.originals)
        or not ev.made
        or len(ev.made[0].records) < 2
        or not ev.made[0].record.model
    ):
        return None
    off = _unlike(ev.made[0])
    if off:
        return Check(
            name,
            False,
            f"{len(off)} of {len(ev.made[0].record.model)} tensors differ between processes: {shown(off)}",
        )
    return Check(name, True, f"in {len(ev.made[0].records)} processes")


def _unlike(run: Run) -> list[str]:
    """Parameters that not all ranks have the same of."""
    first, *others = [
        {k: v.sha for k, v in rank.model.items() if not v.buffer} for rank in run.records
    ] or [{}]
    return [k for k, sha in first.items() if any(sha != other.get(k) for other in others)]


def _modes(steps: Sequence[Step]) -> set[float]:
    return {mode for s in steps for mode in s.modes}


def _percent(modes: Sequence[float]) -> str:
    return " and ".join(f"{100 * m:.0f} %" for m in sorted(modes)) or "none"


def training_mode(ev: Evidence) -> Check | None:
    """Which shares of the modules are in training mode, at every step, in calls with gradients and in those without.

    The set of shares is compared, as evaluation may be cut into other batches; and the mean share of calls with gradients, unless one
    of the two evaluates without gradients and the other with them.
    """
    name = "training mode"
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
            return Check(
                name,
                False if _modes(a) - _modes(b) and {s.evaluating for s in b} != {None} else None,
                text,
            )
        return Check(
            name,
            abs(before - after) <= 1e-3,
            f"{100 * after:.0f} % of the modules train, {100 * before:.0f} % in the original",
        )
    seen = 0
    off = []
    unseen = _unseen(ev)
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        alike = (x.evaluating is None) == (y.evaluating is None) or not (x.modes and y.modes)
        if x.training is not None and y.training is not None:
            seen += 1
            if alike and abs(x.training - y.training) > 1e-3:
                off.append(
                    (
                        i,
                        f"{100 * y.training:.0f} % of the modules train at step {i + 1}, {100 * x.training:.0f} % in the original",
                    )
                )
                continue
        if x.modes and y.modes and x.modes != y.modes and not (unseen and {*y.modes} < {*x.modes}):
            text = f"{_percent(y.modes)} of the modules train in calls before step {i + 1}, {_percent(x.modes)} in the original"
            off.append((i, text))
    if off:
        return Check(name, False, f"{off[0][1]} ({len(off)} of {max(seen, len(off))} steps)")
    if not seen:
        return None
    last = next(s.training for s in reversed(a) if s.training is not None)
    return Check(
        name, True, f"{100 * last:.0f} % of the modules in training mode, equal at all steps"
    )
