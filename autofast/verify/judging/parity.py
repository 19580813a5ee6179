"""Does the rewritten script still train the same: which runs tell, which tests they go through, and
what comes out.

``wanted`` names the runs to make next, ``judge`` judges those there are; both are functions of the
runs alone. All must keep what no rewrite may change (``table.STRUCTURE``); the strongest effect of
the applied rules chooses the test of the numbers (``table.NUMBERS``: exact, rounding, seeded), and
of a script that autofast did not write the strictest that it passes is named. The verdict is that
of the worst check. What that is worth is tried in tests/test_verify_parity.py."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from autofast.verify.evidence import alike, course
from autofast.verify.evidence.gathered import (
    DOUBLE,
    HALF_STEP,
    ORIGINAL,
    SINGLE_STEP,
    Evidence,
    Wish,
    gather,
)
from autofast.verify.evidence.record import FULL, Run
from autofast.verify.judging import (
    coverage,
    draws,
    driven,
    exact,
    parting,
    printed,
    rounding,
    saves,
    seeded,
    settings,
    table,
    weights,
)
from autofast.verify.judging.shared import shared
from autofast.verify.result import Check, Parity, Sameness, unclear

__all__ = ["Evidence", "Wish", "gather", "judge", "wanted"]

WORST = [*map(Sameness, "broken different suspicious unclear equivalent identical".split())]
BATCH = 4  # seeds are added by so many
# seeds of a script from elsewhere that is the same to the bit: one run need not reach what the
# change acts in
OTHERWISE = 3
# Checks that are left open for want of seeds, the first of what the training itself decides.
OWN = (course.NAME, settings.RATES, settings.COUNTERS)
BY_SEEDS = (seeded.EQUIVALENCE, seeded.LEARNS, seeded.BAND, *OWN)
COMMON = "with common random numbers"
MANY = 50  # more seeds than these nobody is told to run
REPEATS = 4  # runs of an original that does not repeat itself, so that its own scatter is known


def _structure(ev: Evidence) -> list[Check]:
    first = table.asked(table.STRUCTURE[:1], ev)
    if any(check.passed is not True for check in first):
        return first
    return table.asked(table.STRUCTURE, ev)


def wanted(effect: str, runs: Sequence[Run], **how: Any) -> list[Wish]:
    """The runs to make next, given those made so far (failed ones too); empty when the judgement
    cannot be made better, and where it fails: then ``judge`` does, and says so. ``how``: see
    ``gather``.

    Seeds are shifts: 0 runs the script with the seeds it sets itself."""
    with contextlib.suppress(Exception):
        return _wanted(shared(gather(effect, runs, **how)))
    return []


def judge(effect: str, runs: Sequence[Run], **how: Any) -> Parity:
    """From all runs made for ``wanted`` (timed ones left out); UNCLEAR where it fails."""
    try:
        return _judge(shared(gather(effect, runs, **how)))
    except Exception as error:
        check = table.failed("the judgement", error)
        return Parity(Sameness.UNCLEAR, effect, (check,), f"{check.name}: {check.text}")


def _wanted(ev: Evidence) -> list[Wish]:
    effect, arm = ev.effect, ev.arm
    wishes = [Wish(ORIGINAL, 0, FULL, "as it is"), Wish(ORIGINAL, 0, FULL, "once more")][
        len(ev.originals) :
    ]
    wishes += [Wish(arm, 0, FULL, "as it is")][len(ev.rewritten) :]
    if wishes or not ev.a.ok or not ev.b.ok:
        return wishes
    if _drawn_otherwise(ev):
        asks, told = _common_wishes(ev), _told(ev)
        if asks or told is not None and not _in_workers(ev, told):
            return asks
        ev = replace(ev, told=told.checks[0] if told else None)
    wrong = {check.name for check in _structure(ev) if check.passed is False}
    if wrong - {draws.NAME} or wrong and not draws.in_evaluation(ev):
        return []
    if effect == "unknown" and _drawn_otherwise(ev) and (asks := driven.wishes(ev)):
        return asks
    if wrong:
        return []
    same = exact.reproducible(ev)
    if exact.identical(ev):
        return _more_seeds(ev, OTHERWISE if effect == "unknown" else 0)
    if effect == "exact":
        again, other = (
            Wish(name, 0, FULL, "how far it repeats itself") for name in (ORIGINAL, arm)
        )
        more = [again] * (REPEATS - len(ev.originals)) + [other] * (2 - len(ev.rewritten))
        return [] if same else more
    if effect in ("rounding", "unknown") or effect == "sampling" and rounding.near(ev):
        eps = SINGLE_STEP if rounding.single(ev) else HALF_STEP
        moved = replace(FULL, perturb=eps)
        special = [Wish(ORIGINAL, 0, DOUBLE, "in double precision")]
        special.append(Wish(ORIGINAL, 0, moved, "parameters moved by one rounding"))
        made = {(d.double, bool(d.perturb)) for name, _, d in ev.tried if name == ORIGINAL}
        special = [w for w in special if (w.detail.double, bool(w.detail.perturb)) not in made]
        if special:
            return special
        decided = effect == "rounding" or effect == "unknown" and alike.agreeing_steps(ev) > 0
        if decided and any(c.passed is False for c in rounding.judge(ev)):
            return []
    return _more_seeds(ev, _seeds_wanted(ev))


def _drawn_otherwise(ev: Evidence) -> bool:
    both = zip(ev.a.record.steps, ev.b.record.steps, strict=False)
    states = [(x.random, y.random) for x, y in both if x.random and y.random]
    apart = not all(alike.same_draws(x, y) for x, y in states)
    apart = apart or alike.other_data(ev) is not None  # streams that are used by chance meet again
    return ev.effect in ("unknown", "sampling") and apart and not exact.equal(ev.a, ev.b)


def _both(ev: Evidence) -> Evidence:
    """With common random numbers."""
    seeds = min(ev.seeds, seeded.LEAST)
    how: Any = {"rules": ev.rules, "arm": ev.arm, "seeds": seeds, "margin": ev.margin}
    return shared(gather("unknown", ev.common, **how))


def _common_wishes(ev: Evidence) -> list[Wish]:
    """Runs of both with common random numbers, as long as these bring them together: then it is
    asked of those what is asked of any two that draw alike."""
    both = _both(ev)
    if len(both.originals) > 1 and both.rewritten and not _together(both):
        return []
    reason = "common random numbers, "
    return [
        replace(w, detail=replace(w.detail, common=True), reason=reason + w.reason)
        for w in _wanted(both)
    ]


def _in_workers(ev: Evidence, told: Parity) -> bool:
    """Then how they draw is still asked of both under their own seeds; what is trained is known."""
    return alike.workers(ev) and told.verdict is Sameness.EQUIVALENT


def _together(both: Evidence) -> bool:
    return both.a.ok and both.b.ok and alike.determined(both)


def _told(ev: Evidence) -> Parity | None:
    """What common random numbers tell of the two, if they do: all, where both draw and are given
    the same to the end; else whether the steps over which they are train the same."""
    both = _both(ev)
    if not _drawn_otherwise(ev) or len(both.originals) < 2 or not both.rewritten:
        return None
    if not both.a.ok or not both.b.ok:
        return None
    if _together(both):
        found = _judge(both)
        verdict = found.verdict
        if verdict is Sameness.UNCLEAR:
            return None
        verdict = Sameness.EQUIVALENT if verdict is Sameness.IDENTICAL else verdict
        text = f"{COMMON}: {found.summary}"
        checks = (Check(COMMON, verdict is Sameness.EQUIVALENT, found.summary), *found.checks)
        return replace(found, verdict=verdict, effect=ev.effect, checks=checks, summary=text)
    wrong = tuple(c for c in rounding.judge(both)[:1] if c.passed is False)
    if not wrong or not alike.agreeing_steps(both):
        return None
    text = f"{COMMON}: {wrong[0].name}: {wrong[0].text}"
    return Parity(Sameness.DIFFERENT, ev.effect, wrong, text, lead=parting.lead(both))


def _seeds_wanted(ev: Evidence) -> int:
    """How many pairs in all; 0: no more than there are."""
    if len(ev.pairs) < seeded.LEAST:
        return seeded.LEAST
    checks, more = _numeric(ev)
    if any(c.passed is False for c in checks) or not more and not _open(ev):
        return 0
    return len(ev.pairs) + BATCH


def _open(ev: Evidence) -> bool:
    """Whether more seeds would tell if the original's course hangs on its numbers, and is kept."""
    found = table.asked([row for row in table.STRUCTURE if row.name in OWN], ev)
    return any(c.passed is None and c.verdict is Sameness.UNCLEAR for c in found)


def _more_seeds(ev: Evidence, total: int) -> list[Wish]:
    """The lowest seeds that were not tried; a pair that failed counts as made, or it would be asked
    for for ever."""
    paired = {a.seed for a, _ in ev.pairs}
    tried = {seed for _, seed, detail in ev.tried if not detail.double and not detail.perturb}
    arms = {s: {name for name, seed, _ in ev.tried if seed == s} for s in tried - paired}
    half_made = [s for s in sorted(arms) if s and len(arms[s]) == 1]
    untried = [s for s in range(1, ev.seeds) if s not in tried]
    new = untried[: max(0, total - len(ev.pairs) - len(half_made))] if total else []
    made = {key[:2] for key in ev.tried}
    both = [(name, seed) for seed in (*half_made, *new) for name in (ORIGINAL, ev.arm)]
    return [Wish(*one, FULL, f"seed {one[1]}") for one in both if one not in made]


def _over_seeds(ev: Evidence) -> tuple[list[Check], int]:
    check, more = seeded.equivalence(ev)
    learns, further = seeded.learns(ev)
    along = seeded.course(ev)
    found = [check, *(one for one in (learns, along) if one), *seeded.levels(ev)]
    return [*found, *weights.checks(ev)], max(more, further)


def _rounding(ev: Evidence) -> tuple[list[Check], int]:
    close = rounding.judge(ev)
    if rounding.settled(ev, close) and (rounding.single(ev) or len(ev.pairs) < 2):
        curve = seeded.band(ev)
        more = max(0, seeded.LEAST - len(ev.pairs)) if curve.passed is None else 0
        return [*close, curve, *seeded.levels(ev)], more
    over, more = _over_seeds(ev)
    return [*close, *over], more


def _numeric(ev: Evidence) -> tuple[list[Check], int]:
    """The checks of the numbers, by effect, and how many more pairs of runs they need."""
    same = exact.reproducible(ev)
    if exact.identical(ev):
        return [exact.bitwise(ev)], 0
    if ev.told is not None:
        return [ev.told], max(0, seeded.LEAST - len(ev.pairs))
    if ev.effect == "exact":
        return [exact.bitwise(ev) if same else exact.as_close(ev)], 0
    if ev.effect == "rounding":
        return _rounding(ev)
    if ev.effect == "unknown":
        close = rounding.judge(ev)
        if alike.agreeing_steps(ev) > 0 and any(c.passed is False for c in close):
            return close, 0
        if alike.throughout(ev) or rounding.coincides(ev):
            checks, more = _rounding(ev)
            if all(c.passed is not False for c in checks) and any(c.passed for c in close):
                return checks, more
        checks = close
        over, more = _over_seeds(ev)
        if first := alike.given_otherwise(ev):
            text = f"not a bit differs in {first[0]} steps; in the next the same is drawn, and the models are given other data"
            late = Check("data", False, f"{text}, under every seed")
            over.append(late if len(set(first)) == 1 else unclear(text, "data"))
        elif alike.redrawn(ev) and not all(c.passed for c in close):
            text = "the same random numbers were drawn, and other data made of them: "
            among = "in the first steps orders, choices or whole numbers were drawn among others (rows, kinds) than in the original"
            asked = "no rewrite needs that, and seeds do not tell; used in the original's order they would compare"
            other = Check("data", False, text + among)
            over.append(unclear(text + asked, "data") if alike.drawn_among(ev) else other)
        # What rounding alone would have to keep is not asked of a script that may draw other
        # numbers: shown, not held against it.
        return [*(replace(c, passed=c.passed or None) for c in checks[:2]), *over], more
    if ev.effect == "sampling" and rounding.coincides(ev):
        return _rounding(ev)
    return _over_seeds(ev)


def _bit_for_bit(checks: Sequence[Check]) -> bool:
    return any(c.identical and c.name == "bit for bit" for c in checks)


def _rounded_beside(checks: Sequence[Check]) -> bool:
    """The training is the same to the bit, and what is printed or saved beside it is not."""
    return any(c.passed is None and c.name in (saves.NAME, printed.NAME) for c in checks)


def _verdict(checks: Sequence[Check], decided: bool) -> Sameness:
    found = {Sameness.EQUIVALENT} if decided else {Sameness.UNCLEAR}
    for check in checks:
        if check.passed is False:
            found.add(check.verdict)
        elif check.passed is None and check.verdict is Sameness.UNCLEAR:
            found.add(Sameness.UNCLEAR)
    if found == {Sameness.EQUIVALENT} and _bit_for_bit(checks) and not _rounded_beside(checks):
        return Sameness.IDENTICAL
    return min(found, key=WORST.index)


def _summary(verdict: Sameness, ev: Evidence, checks: Sequence[Check], more: int) -> str:
    failed = [c for c in checks if c.passed is False and c.verdict is verdict]
    # Other weights are saved wherever other weights are trained: then the training is what to name.
    worst = next((c for c in failed if c.name != saves.NAME), next(iter(failed), None))
    seen = coverage.words(ev) if ev.a.records and ev.b.records else ""
    if verdict is Sameness.IDENTICAL:
        what = "losses and final weights" if ev.a.record.model else "losses"
        return f"{what} equal bit for bit ({seen})"
    if worst is not None:
        alone = worst.name in ("runs to its end", "finite losses")
        return worst.text if alone else f"{worst.name}: {worst.text}"
    if verdict is Sameness.UNCLEAR:
        open_ = next(iter(_undecided(checks)), None)
        ask = _asked(ev, more) if more else ""
        if open_:
            words = f"{open_.name}: {open_.text}"
            return f"{ask} ({words})" if ask else words
        return (
            ask
            or "not enough was seen to compare the two; more steps (--steps N), or time for them (--time-budget), would tell"
        )
    if _bit_for_bit(checks):
        return f"losses and final weights equal bit for bit, printed or saved numbers up to rounding ({seen})"
    if ev.effect == "exact":
        return f"as close to the original as the original to itself ({seen})"
    if ev.told is not None:
        return f"{COMMON}: {ev.told.text}"
    pairs = f"{len(ev.pairs)} seed{'s' * (len(ev.pairs) != 1)}"
    if any(c.name == seeded.BAND for c in checks):
        return f"equal up to rounding, loss within seed noise ({pairs}; {seen})"
    return f"loss within {seeded.margin_words(ev)} ({pairs}; {seen})"


def _undecided(checks: Sequence[Check]) -> list[Check]:
    """What keeps the verdict open, first what no seeds decide."""
    found = [c for c in checks if c.passed is None and c.verdict is Sameness.UNCLEAR]
    return sorted(found, key=lambda check: check.name in BY_SEEDS)


def _asked(ev: Evidence, more: int) -> str:
    """What would tell: so many seeds, or something else where nobody would run that many."""
    seeds = f"about {more} more seed{'s' * (more != 1)}"
    if more > MANY:
        return f"seeds alone would hardly tell ({seeds}), {seeded.longer(ev)} would"
    total = len(ev.pairs) + more
    asked = f"--seeds {total}" if total > ev.seeds else "and a longer --time-budget lets them run"
    return f"{seeds} would tell, {asked}"


def _judge(ev: Evidence) -> Parity:
    effect = ev.effect
    if not ev.originals or not ev.rewritten:
        return Parity(Sameness.UNCLEAR, effect, (), "the two scripts were not both run", 1)
    told = _told(ev) if ev.a.ok and ev.b.ok and ev.common else None
    if told is not None and not _in_workers(ev, told):
        return told
    ev = replace(ev, told=told.checks[0] if told else None)
    checks = _structure(ev)
    if checks and checks[0].name == "runs to its end" and checks[0].passed is not True:
        verdict = _verdict(checks, False)
        return Parity(
            verdict, effect, tuple(checks), _summary(verdict, ev, checks, 0), lead=parting.lead(ev)
        )
    numeric, more = _numeric(ev)
    # No more runs were asked for then: what was not looked at is not shown.
    if any(c.passed is False for c in checks):
        numeric = [c for c in numeric if c.passed is not None]
    checks += numeric
    verdict = _verdict(checks, any(c.passed for c in numeric))
    seeds_tell = all(check.name in BY_SEEDS for check in _undecided(checks))
    more = more if verdict is Sameness.UNCLEAR and seeds_tell else 0
    lead = parting.lead(ev) if verdict in (Sameness.DIFFERENT, Sameness.BROKEN) else ""
    return Parity(verdict, effect, tuple(checks), _summary(verdict, ev, checks, more), more, lead)
