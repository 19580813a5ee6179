"""Runs as they compare: those of unequal length as far as both go, with the steps, passes, saves
and prints that both have (see ``course``); and steps whose backwards are put together, or taken
apart, by the sum of their losses; and batches of which the two make the same in other places, as
the models are given them (``moved``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from autofast.model.several import not_none
from autofast.verify.evidence import moved, outputs
from autofast.verify.evidence.course import by_calls, unequal
from autofast.verify.evidence.figures import lines, skeleton
from autofast.verify.evidence.gathered import Evidence, given
from autofast.verify.evidence.record import Record, Run, Step, TensorPrint

T = TypeVar("T")


def shared(ev: Evidence) -> Evidence:
    """Unequal runs as far as both go; ``uncut`` of the result is ``ev``. As it is where no pair is
    unequal.
    """
    some = (*ev.originals, *ev.rewritten, *ev.others, *(b for _, b in ev.pairs), *ev.made)
    some = (*some, *(run for run in (ev.double, ev.perturbed) if run is not None))
    if ev.originals and ev.rewritten and (instead := moved.as_given(ev.a, ev.b, some)):
        ev = _with(ev, instead)
        some = tuple(instead.get(id(run), run) for run in some)
    if _in_portions(ev):
        ev = _with(ev, {id(run): _summed(run) for run in some})
    if not unequal(ev):
        return ev
    if by_calls(ev.a) and by_calls(ev.b):
        return replace(_with(ev, {id(run): _without_steps(run) for run in some}), uncut=ev)
    first = not_none((*ev.originals, *ev.rewritten, ev.double, ev.perturbed))
    cut = {id(run): run for run in (*first, *ev.others)}
    groups = [[r for r in first if r.ok]] if ev.a.steps_made != ev.b.steps_made else []
    groups += [
        list(pair) for pair in ev.pairs if pair[0].seed and pair[0].steps_made != pair[1].steps_made
    ]
    for group in groups:
        cut.update((id(old), new) for old, new in zip(group, _as_far(group), strict=True))

    return replace(_with(ev, cut), uncut=ev)


def _with(ev: Evidence, other: dict[int, Run]) -> Evidence:
    """Other runs in the places of those that have one."""

    def of(some: Iterable[Run]) -> tuple[Run, ...]:
        return tuple(other.get(id(run), run) for run in some)

    return replace(
        ev,
        originals=of(ev.originals),
        rewritten=of(ev.rewritten),
        double=None if ev.double is None else other.get(id(ev.double), ev.double),
        perturbed=None if ev.perturbed is None else other.get(id(ev.perturbed), ev.perturbed),
        pairs=tuple((other.get(id(a), a), other.get(id(b), b)) for a, b in ev.pairs),
        others=of(ev.others),
        made=of(ev.made),
    )


def _in_portions(ev: Evidence) -> bool:
    """The first step of the two has other numbers of backwards, and in every step the models are
    given as many samples: the gradient of a sum is the sum of gradients."""
    if ev.effect not in ("unknown", "sampling", "rounding") or not ev.originals or not ev.rewritten:
        return False
    if not ev.a.ok or not ev.b.ok or ev.a.steps_made != ev.b.steps_made or not ev.a.steps_made:
        return False
    one, two = (run.record.steps for run in ev.both)
    loaded = all(x.samples == y.samples for x, y in zip(one, two, strict=True))
    alike = loaded and given(ev.a) == given(ev.b) != Counter()
    return alike and one[0].backwards != two[0].backwards


def _summed(run: Run) -> Run:
    records = []
    for record in run.records:
        steps = tuple(
            replace(s, backwards=min(1, s.backwards), losses=(sum(s.losses),) if s.losses else ())
            for s in record.steps
        )
        losses = tuple(loss for step in steps for loss in step.losses)
        records.append(replace(record, steps=steps, losses=losses, backwards=len(losses)))
    return replace(run, records=tuple(records))


def _without_steps(run: Run) -> Run:
    """Those of the two are not the same ones, nor is what is counted by them."""
    none: dict[str, Any] = dict.fromkeys(("calls", "evaluations", "averages"), ())
    none |= {"steps": (Step(0, -1, 0.0, 0.0, {}),) * 2, "drawn": {}, "masks": None, "targets": {}}
    return replace(run, records=tuple(replace(one, **none) for one in run.records))


def _as_far(group: Sequence[Run]) -> list[Run]:
    until = min(run.steps_made for run in group)
    ranks = min(len(run.records) for run in group)
    records = [_records([run.records[k] for run in group], until) for k in range(ranks)]
    texts = _texts([f"{run.stdout}\n{outputs.written(run)}" for run in group])
    logs = _texts([outputs.log(run.log) for run in group])
    return [
        replace(
            run,
            records=tuple(by_rank[i] for by_rank in records),
            stdout=texts[i],
            log=logs[i],
            files=dict.fromkeys(run.files, ""),
        )
        for i, run in enumerate(group)
    ]


def _records(group: Sequence[Record], until: int) -> list[Record]:
    trained = [[p for p in r.passes if p.training and p.ended <= until] for r in group]
    rest = [[p for p in r.passes if not p.training and p.begun <= until] for r in group]
    trained, rest = _equally_many(trained), _equally_many(rest)
    saves = [
        [s for s in r.saves if s.step < until] + at_end
        for r, at_end in zip(
            group,
            _equally_many([[s for s in r.saves if s.step == until] for r in group]),
            strict=True,
        )
    ]
    found = []
    for record, one, two, saved in zip(group, trained, rest, saves, strict=True):
        steps = record.steps[:until]
        kept = {id(p) for p in (*one, *two)}
        backwards = sum(step.backwards for step in steps)
        found.append(
            replace(
                record,
                steps=steps,
                losses=record.losses[:backwards],
                backwards=backwards,
                skipped=sum(step.skipped for step in steps),
                passes=tuple(p for p in record.passes if id(p) in kept),
                fed=tuple(p for p in record.fed if p.ended <= until),
                saves=tuple(saved),
                calls=tuple(call for call in record.calls if call.step < until),
                evaluations=tuple(one for one in record.evaluations if one.step < until),
                model={k: replace(p, sketch=()) for k, p in record.model.items() if not _counts(p)},
                settings={k: v for k, v in record.settings.items() if k.split("/")[1] == "first"},
                scalars=(),
            )
        )
    return found


def _counts(print_: TensorPrint) -> bool:
    """A number of batches, which grows with the steps."""
    return print_.dtype.startswith("int") and len(print_.shape) == 0


def _equally_many(lists: list[list[T]]) -> list[list[T]]:
    least = min(map(len, lists))
    return [some[:least] for some in lists]


def _texts(texts: Sequence[str]) -> list[str]:
    """Without the numbers behind the place up to which all of them print the same kinds of lines
    equally often.

    That is told by those kinds that all print and some print more often: the lines of an epoch.
    Without any, all numbers go: what is printed once may be of the end.
    """
    rows = [lines(text) for text in texts]
    often = [Counter(map(skeleton, some)) for some in rows]
    least = {
        kind: min(one[kind] for one in often)
        for kind in often[0]
        if all(kind in one for one in often) and len({one[kind] for one in often}) > 1
    }
    return [_without_numbers(some, _end(some, least)) for some in rows]


def _end(rows: Sequence[str], least: dict[str, int]) -> int:
    seen: Counter[str] = Counter()
    end = 0
    for place, row in enumerate(rows):
        kind = skeleton(row)
        if kind in least:
            seen[kind] += 1
            if seen[kind] > least[kind]:
                return place
            end = place + 1
    return end


def _without_numbers(rows: Sequence[str], start: int) -> str:
    return "\n".join([*rows[:start], *map(skeleton, rows[start:])])
