"""What no rewrite may change, whatever its numbers look like: how many steps, which learning rates,
which tensors move, what is saved.

Each function compares the original's first run at seed 0 with the rewritten one's and gives a
``Check``, or None where there is nothing to compare. What the original itself does not reproduce is
not held against the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

from autofast.model.several import grouped
from autofast.report.style import count
from autofast.verify.evidence import alike, course
from autofast.verify.evidence.gathered import Evidence, given, summed
from autofast.verify.evidence.numbered import plain
from autofast.verify.evidence.record import Prints, Run, TensorPrint
from autofast.verify.result import Check, Sameness, answer, differs, holds, unclear, untold

MOST_CALLS = 2000  # without gradients, that the probe keeps
BROKEN, DIFFERENT = Sameness.BROKEN, Sameness.DIFFERENT


def shown(names: Sequence[str], most: int = 3) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def ended(ev: Evidence) -> Check | None:
    """Every run of the rewritten script came to its proper end."""
    if not ev.a.ok:
        why = next((r.error for r in ev.a.records if r.error), "")
        text = "the original itself did not run to its end" + (f": {why}" if why else "")
        return unclear(text)
    for run in ev.failed:
        if run.timed_out:
            text = f"the rewritten script was still running after {run.seconds:.0f} s"
        elif any(r.error for r in run.records):
            text = "the rewritten script stopped with " + next(
                r.error for r in run.records if r.error
            )
        elif run.records and not any(r.steps for r in run.records):
            text = "the rewritten script made no optimizer step"
        else:
            text = f"the rewritten script ended with exit code {run.exit_code}"
        return differs(text)
    whole = ev.uncut or ev
    as_original = "" if course.unequal(whole) else ", as the original"
    return holds(f"{count(whole.b.steps_made, 'optimizer step')}{as_original}")


def matched(a: Prints, b: Prints) -> dict[str, tuple[TensorPrint, TensorPrint]]:
    other = {plain(k): v for k, v in b.items()}
    return {k: (v, other[plain(k)]) for k, v in a.items() if plain(k) in other}


def enough(ev: Evidence) -> Check | None:
    """Gradients that are not cleared, rates that change, losses that are added up: all of it shows
    in the second step at the earliest."""
    if any(len(r.steps) != 1 or r.ending != "steps" for r in ev.a.records):
        return None
    return unclear(
        "only the first step: what it leaves behind shows in later ones; --steps 20 would tell",
    )


def recorded(ev: Evidence) -> Check | None:
    """What the probe could not record in some run passes no check."""
    runs = (*ev.originals, *ev.rewritten, *(run for pair in ev.pairs for run in pair))
    notes = (note for run in runs for record in run.records for note in record.notes)
    lost = next((note for note in notes if " not recorded: " in f" {note}"), None)
    return unclear(lost) if lost else None


def finite(ev: Evidence) -> Check | None:
    """No loss, and no tensor of the final model, is infinite or nan where the original's are
    numbers. Where other numbers were drawn by then, chance may do that under some seeds."""
    chance = []
    for a, b in course.pairs(ev):
        known = [x.record.losses for x in (ev.originals if a is ev.a else (a,)) if x.records]
        for i, loss in enumerate(b.record.losses):
            if not math.isfinite(loss) and all(i < len(k) and math.isfinite(k[i]) for k in known):
                text = (
                    f"loss {i + 1} is {loss}, the original's is {known[0][i]:.6g} (seed {a.seed})"
                )
                if not alike.other_draws(a, b, i):
                    return differs(text)
                chance.append(text)
                break
        for key, (x, y) in matched(a.record.model, b.record.model).items():
            if math.isfinite(x.norm) and not math.isfinite(y.norm):
                text = f"{key} of the final model holds {y.norm} (seed {a.seed})"
                if not chance and all(math.isfinite(k[key].norm) for k in _models(ev, a) if key in k):  # fmt: skip
                    return differs(text)
    if len(ev.pairs) >= course.LEAST and 2 * len(chance) > len(ev.pairs):
        return differs(chance[0])
    if chance and all(math.isfinite(x) for run in course.runs(ev) for x in run.record.losses):
        return unclear(f"{chance[0]}: other numbers were drawn by then; {course.more_seeds(ev)}")  # fmt: skip
    bad = sum(not math.isfinite(x) for x in ev.a.record.losses)
    text = f"{bad} of the original's own losses are no numbers" if bad else "all losses are numbers"
    return holds(text)


def _models(ev: Evidence, a: Run) -> list[Prints]:
    return [run.record.model for run in (ev.originals if a is ev.a else (a,)) if run.records]


def _first(a: Sequence[float], b: Sequence[float]) -> int | None:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)


def steps(ev: Evidence) -> Check | None:
    """Numbers of optimizer steps, of backwards in each, and of steps that a GradScaler left out."""
    a, b = ev.records
    steady = all(
        (o.steps_made, o.record.backwards) == (len(a.steps), a.backwards)
        for o in ev.originals
        if o.records
    )
    if ev.effect == "recipe" or not steady:
        text = f"{len(b.steps)} optimizer steps, {len(a.steps)} in the original; {b.backwards} backwards, {a.backwards} in the original"
        return answer(True if steady else None, text)
    apart = course.steps(ev.uncut or ev)
    if apart is not None and apart.passed is not True:
        return apart
    if len(a.steps) != len(b.steps):
        text = f"{len(b.steps)} optimizer steps, {len(a.steps)} in the original"
        return differs(text)
    place = _first([s.backwards for s in a.steps], [s.backwards for s in b.steps])
    if place is not None:
        text = f"step {place + 1} has {b.steps[place].backwards} backwards, {a.steps[place].backwards} in the original"
        if course.numbers_decide(ev, ev.a, ev.b, place):
            return _searched(ev, text)
        return differs(text)
    if a.backwards != b.backwards:
        text = f"{b.backwards} backwards, {a.backwards} in the original"
        return differs(text)
    # A GradScaler looks for its scale in the first steps.
    allowed = 0 if ev.effect == "exact" else max(4, len(a.steps) // 50)
    if abs(a.skipped - b.skipped) > allowed:
        text = f"{b.skipped} steps were skipped for infinite gradients, {a.skipped} in the original"
        return differs(text)
    if apart is not None:
        return apart
    text = f"{count(len(a.steps), 'step')}, {count(a.backwards, 'backward')}"
    if a.skipped or b.skipped:
        text += f", {b.skipped} skipped for infinite gradients ({a.skipped} in the original)"
    return holds(text)


def _searched(ev: Evidence, text: str) -> Check:
    """A search along a line (L-BFGS) makes as many backwards as the numbers ask for."""
    searched = [[s.backwards for s in run.record.steps] for run in course.runs(ev)]
    if all(some == searched[0] for some in searched):
        if course.known(ev):
            return differs(text)
        text += f": not yet known whether seeds or rounding change that in the original; {course.more_seeds(ev)}"
        return unclear(text)
    if found := course.off(ev, lambda run: float(run.record.backwards)):
        before, after, seeds = found
        many = f"{after:.5g} backwards in the mean over {seeds} seeds, {before:.5g} in the original"
        return differs(many)
    return untold(f"{text}, where the original's depend on its numbers, too")


def _evaluations(run: Run) -> list[int]:
    return sorted(p.samples for r in run.records for p in r.passes if not p.training and p.complete)


def _cut(ev: Evidence) -> str:
    """Other batches of the same samples are no fault, and said."""
    batches = [
        sum(p.batches for r in run.records for p in r.passes if not p.training and p.complete)
        for run in ev.both
    ]
    return "" if batches[0] == batches[1] else f", in {batches[1]} batches in place of {batches[0]}"


def _evaluated(ev: Evidence) -> Check | None:
    """Complete evaluations take the same samples; under a recipe each of them does, however many
    there are."""
    before, after = _evaluations(ev.a), _evaluations(ev.b)
    if not before or any(_evaluations(o) != before for o in ev.originals if o.records):
        return None
    name = "samples for evaluation"
    if ev.effect == "recipe":
        one, two = (set(found) for found in (before, after))
        if two - one:
            text = f"an evaluation takes {min(two - one)} samples, {max(one)} in the original"
            return Check(name, False, text, verdict=BROKEN)
    elif before != after and not _evaluate_alike(ev):
        text = f"{sum(after)} samples in {len(after)} complete evaluations, {sum(before)} in {len(before)} in the original"
        return Check(name, False, text, verdict=BROKEN)
    text = f"{count(sum(after), 'sample')} in {count(len(after), 'evaluation')}{_cut(ev)}"
    return Check(name, True, text if before == after else "from memory in one of the two")


def samples(ev: Evidence) -> Check | None:
    """Samples taken for each step, summed over ranks, and for evaluation."""
    name = "samples for each step"
    a, b = ev.both
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
        if place is not None and _given_alike(ev, kind, one, two):
            continue
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


def _given_alike(ev: Evidence, kind: str, before: Sequence[float], after: Sequence[float]) -> bool:
    """Loaders tell otherwise, and the models are given as many samples: of batches that are taken
    ahead, and of evaluations from memory."""
    return _taken_ahead(ev, before, after) if kind == "samples" else _evaluate_alike(ev)


def _evaluate_alike(ev: Evidence) -> bool:
    """As many samples are given to the models without gradients between two steps."""
    if any(sum(e.calls for e in run.record.evaluations) >= MOST_CALLS for run in ev.both):
        return False
    one, two = (grouped((e.step, e.samples) for e in r.record.evaluations) for r in ev.both)
    return bool(one) and {k: sum(v) for k, v in one.items()} == {k: sum(v) for k, v in two.items()}


def _taken_ahead(ev: Evidence, before: Sequence[float], after: Sequence[float]) -> bool:
    """A thread, or a loop, of one of the two takes batches ahead: never later than the other, by no
    more in the end than at first, and the models are given as many in every step."""
    leads = [y - x for x, y in zip(accumulate(before), accumulate(after), strict=False)]
    leads = leads if max(leads) > 0 else [-lead for lead in leads]
    counts = [[given(run)[i] for i in range(run.steps_made)] for run in ev.both]
    early = max(leads[: len(leads) // 2 + 1])
    return min(leads) >= 0 and leads[-1] <= early and all(counts[0]) and counts[0] == counts[1]


def _without_loader(ev: Evidence, name: str) -> Check:
    """One of the two takes its samples from memory, not from a DataLoader: what the models are
    given in each step tells how many."""
    counts = [[given(run)[i] for i in range(run.steps_made)] for run in ev.both]
    text = "from a DataLoader in one of the two, from memory in the other"
    if not all(map(any, counts)):
        text += "; what the models are given was not seen: with a DataLoader in both, or a model of torch that is called, it would be"
        return unclear(text, name)
    place = _first(*counts)
    if place is None:
        return Check(name, True, f"{sum(counts[1])} for training, {text}, equal at every step")
    words = f"the models are given {counts[1][place]} samples in step {place + 1}, {counts[0][place]} in the original"
    text += ": with a DataLoader in both, or with this change alone left out, it would be clear"
    return unclear(f"{words}, {text}", name)
