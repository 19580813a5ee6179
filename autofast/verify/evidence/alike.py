"""What two runs have in common before any number is compared: precision, random draws, data.

The tolerance of a comparison follows from what the runs really computed in, never from the size of
the difference: a difference that is too large for float32 is no proof of 16 bits. And as long as
both have drawn the same random numbers and were given the same data, whatever differs between them
has to be rounding."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from autofast.model.several import grouped, surely
from autofast.verify.estimates import gap
from autofast.verify.evidence import course
from autofast.verify.evidence.gathered import Evidence
from autofast.verify.evidence.record import Call, Record, Run

SAME = 1e-6  # checksums of the same data, brought to the device in another way
MOST_CALLS = 4000  # that the probe keeps
LOW = ("bfloat16", "float16", "TF32", "float8")


def low(run: Run) -> bool | None:
    """It computed in 16 bits or TF32 somewhere; None: not recorded."""
    seen = [name for record in run.records for name in record.precision]
    return any(part in name for name in seen for part in LOW) if seen else None


def known_low(ev: Evidence) -> bool | None:
    """Either of the two did; by their rules where nothing was recorded, and None where those are
    not known either."""
    found = [low(run) for run in ev.both]
    return ev.half if None in found else any(found)


def _close(x: float, y: float, share: float) -> bool:
    far = gap(x, y)
    return not far or far < math.inf and far <= share * max(abs(x), abs(y))


def _data(ev: Evidence) -> Iterator[tuple[Call, Call, list[str]]]:
    """Calls of both in order, with the names of those tensors that are data: rounding does not
    touch them. Where a step calls a model more often in one of the two (real and fake samples at
    once), what its calls are given is added up."""
    others = [r.record.calls for r in (*ev.originals[1:], ev.perturbed) if r is not None and r.ok]
    known = [_known(i, x, others) for i, x in enumerate(ev.a.record.calls)]
    after = _by_step(ev.b.record.calls)
    for step, places in _by_step(ev.a.record.calls).items():
        before = [ev.a.record.calls[i] for i in places]
        now = [ev.b.record.calls[i] for i in after.get(step, ())]
        if [x.model for x in before] == [y.model for y in now] or not now:
            yield from zip(before, now, (known[i] for i in places), strict=False)
            continue
        for model in dict.fromkeys(x.model for x in before):
            mine = [i for i in places if ev.a.record.calls[i].model == model]
            names = set.intersection(*(set(known[i]) for i in mine))
            rows = ([ev.a.record.calls[i] for i in mine], [y for y in now if y.model == model])
            one, two = (_added(some, names, model, step) for some in rows)
            yield one, two, sorted(names)


def _known(i: int, x: Call, others: Sequence[Sequence[Call]]) -> list[str]:
    nothing = float("nan")
    return [
        name
        for name, value in x.sums.items()
        if all(i < len(o) and _close(value, o[i].sums.get(name, nothing), 1e-12) for o in others)
    ]


def _by_step(calls: Sequence[Call]) -> dict[int, list[int]]:
    """Places of the calls; without those of a step in which no more were kept."""
    found = grouped((call.step, i) for i, call in enumerate(calls))
    if len(calls) >= MOST_CALLS:
        found.popitem()
    return found


def _added(some: Sequence[Call], names: Iterable[str], model: int, step: int) -> Call:
    nothing = float("nan")
    sums = {name: sum(one.sums.get(name, nothing) for one in some) for name in names}
    return Call(model, sum(one.samples for one in some), sums, step)


def _same_rates(x: Sequence[float], y: Sequence[float]) -> bool:
    return len(x) != len(y) or all(_close(p, q, SAME) for p, q in zip(x, y, strict=True))


def steps(ev: Evidence) -> int:
    """Over how many optimizer steps the two drew the same random numbers and the models were given
    the same data; 0 where not known."""
    a, b = ev.a.record.steps, ev.b.record.steps
    compiled = any(run.record.moments.compiling for run in ev.both)  # draws that none counts
    states = [(x.random, y.random) for x, y in zip(a, b, strict=False)]
    if compiled:
        states = [(_state(x), _state(y)) for x, y in states]
    until = next((i for i, (x, y) in enumerate(states) if not same_draws(x, y)), len(states))
    # A rate that falls on a plateau, by the numbers of the training.
    rates = ((x.lr, y.lr) for x, y in zip(a, b, strict=False))
    other = (i for i, (x, y) in enumerate(rates) if not _same_rates(x, y))
    until = min(until, next(other, until))
    other_step = other_data(ev)
    return until if other_step is None else min(until, other_step)


def same_draws(x: str, y: str) -> bool:
    """Of two digests of a step. What is drawn in evaluation alone stands last with common random
    numbers: in one of the two alone, it shows in what is printed and saved, and in nothing else."""
    one, two = x.split(), y.split()
    evaluated = {*one[2:], *two[2:]}
    return bool(x) and one[:2] == two[:2] and (len(evaluated) < 2 or "0" in evaluated)


def _state(random: str) -> str:
    return random.partition(" ")[0]


def other_data(ev: Evidence) -> int | None:
    """How many steps were made before the models were first given other data; None: they never
    were."""
    for x, y, names in _data(ev):
        if x.model != y.model or any(
            not _close(x.sums[n], y.sums.get(n, float("nan")), SAME) for n in names
        ):
            return x.step
    return None


def redrawn(ev: Evidence) -> bool:
    """The same random numbers to the end, in the main process alone, and yet the models are given
    other data."""
    # Streams of which some are used by chance may meet again.
    counted = [
        {**run.record.drawn, "sizes": run.record.drawn.get("sizes", {}).get("sequence")}
        for run in ev.both
    ]
    alike = drawn_alike(ev.a, ev.b) and counted[0] == counted[1]
    return alike and not workers(ev) and not throughout(ev)


def given_otherwise(ev: Evidence) -> list[int]:
    """By seed, how many steps are the same to the bit, where the next one, from the same random
    numbers, is given other data."""
    place = other_data(ev)
    first = [course.together(a.record, b.record) for a, b in ev.pairs]
    same = place and place in first[:1] and drawn_alike(ev.a, ev.b, place + 1)
    return first if same and not workers(ev) else []


def workers(ev: Evidence) -> bool:
    return any(p.workers for run in ev.both for r in run.records for p in r.passes)


def drawn_among(ev: Evidence) -> bool:
    """In the first steps the orders, choices and whole numbers are drawn among as many, as far as
    the original does so in all its runs."""
    *known, now = (run.record.drawn.get("sizes", {}).get("among") for run in (*ev.originals, ev.b))
    return now in known or len(set(known)) > 1


def drawn_alike(a: Run, b: Run, until: int | None = None) -> bool:
    """The same random numbers to the end, or over so many steps."""
    both = zip(a.record.steps[:until], b.record.steps, strict=False)
    states = [(x.random, y.random) for x, y in both]
    return surely(same_draws(x, y) for x, y in states)


def other_draws(a: Run, b: Run, backward: int) -> bool:
    """Other random numbers were drawn before this backward, or in its step."""
    made = sum(n <= backward for n in accumulate(step.backwards for step in b.record.steps))
    both = zip(a.record.steps[: made + 1], b.record.steps, strict=False)
    return not all(same_draws(x.random, y.random) or not (x.random and y.random) for x, y in both)


def throughout(ev: Evidence) -> bool:
    return 0 < ev.a.steps_made <= steps(ev)


def _quiet(ev: Evidence) -> bool:
    """Nothing is drawn in the models, in the first step or, by what was counted, in any."""
    calls: Sequence[Call] = [call for call in ev.a.record.calls if call.random]
    first = _state(ev.a.record.steps[0].random) if ev.a.record.steps else ""
    records = [run.record for run in ev.both]
    later = any(
        drawn["drew"] for one in records for key, drawn in one.drawn.items() if key.isdigit()
    )
    quiet = surely(call.random == first for call in calls) and not later
    return quiet or all(map(_draws_nothing, records))


def _masked_alike(ev: Evidence) -> int:
    """Over how many steps the same random states give the same dropout masks: precision and layout
    are the same, and neither calls nor masks are put together (loss and state need not tell: a mask
    may act on gradients alone)."""
    if set(ev.a.record.precision) != set(ev.b.record.precision) or not in_order(ev):
        return 0
    if None not in (masks := [run.record.masks for run in ev.both]) and masks[0] != masks[1]:
        return 0
    one, two = (_sizes(run.record) for run in ev.both)
    return min((step for step in one if one[step] != two.get(step, one[step])), default=steps(ev))


def _sizes(record: Record) -> dict[int, list[tuple[int, int]]]:
    """By step, what the models are given in each call."""
    places = _by_step(record.calls).items()
    return {
        k: [(record.calls[i].model, record.calls[i].samples) for i in some] for k, some in places
    }


def _draws_nothing(record: Record) -> bool:
    """Within calls of models in training: what is drawn beside them goes by its place in the
    whole."""
    drew = [drawn["drew"] for model, drawn in record.drawn.items() if model.isdigit()]
    return record.masks == () and bool(drew) and not any(drew)


def in_order(ev: Evidence) -> bool:
    """Samples stand in the same places of the first step's batches: else masks drawn by place meet
    other samples."""
    nothing = float("nan")
    return all(
        _close(x.order.get(name, nothing), y.order.get(name, nothing), SAME)
        for x, y, names in _data(ev)
        for name in names
        if not x.step and not y.step
    )


def determined(ev: Evidence) -> bool:
    """Over the whole run whatever differs has to be rounding."""
    return 0 < ev.a.steps_made <= agreeing_steps(ev)


def agreeing_steps(ev: Evidence) -> int:
    """Over how many optimizer steps whatever differs has to be rounding: the same draws and data,
    and the same masks made of them."""
    return steps(ev) if _quiet(ev) else min(steps(ev), _masked_alike(ev))
