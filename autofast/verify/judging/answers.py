"""What the models compute, where draws differ: the same weights and inputs given, they must answer
the same, and send the same gradients back.

Seeds tell of a changed model only what shows in the loss. Inputs, results and parameters must be of
the same names and shapes, and what the modules hold besides parameters the same in both. Asked
under two seeds, the original must answer itself the same: else it computes with something drawn
that nobody sees, and nothing is said.
"""

from __future__ import annotations

from collections.abc import Mapping

from autofast.verify.evidence.gathered import ORIGINAL, Evidence, Wish
from autofast.verify.evidence.numbered import plain
from autofast.verify.evidence.record import ANSWERS, Answer, Run, TensorPrint
from autofast.verify.judging.tensors import moved_by
from autofast.verify.result import Check

NAME = "what the models compute"
# Distance as a share of the norm: float32, also through a few dozen layers; 16 bits and TF32.
CLOSE, HALF = 2e-3, 8e-2
GRADIENTS = 4  # times as far: they go there and back
# of the largest gradient: a bias before a normalisation gets what rounding leaves of nothing
LITTLE = 1e-3
SEEDS = (0, 1)


def wishes(ev: Evidence, arm: str) -> list[Wish]:
    made = {(run.arm, run.seed) for run in ev.answers}
    return [
        Wish(name, seed, ANSWERS, "what the models compute")
        for seed in SEEDS
        for name in (ORIGINAL, arm)
        if (name, seed) not in made
    ]


def _of(run: Run) -> dict[str, Answer]:
    return dict(run.record.answers) if run.records else {}


def _far(a: Mapping[str, TensorPrint], b: Mapping[str, TensorPrint]) -> tuple[float, str]:
    """The largest distance of what both have, or one alone, as a share of its norm, or of what is
    nothing beside the largest; and where.
    """
    one, two = ({plain(k): v for k, v in some.items()} for some in (a, b))
    nothing = LITTLE * max((v.norm for v in one.values()), default=0.0)
    found = [(0.0, "")]
    for k in sorted(one.keys() | two.keys()):
        known = [some[k] for some in (one, two) if k in some]
        size = max(v.norm for v in known)
        share = moved_by(*known) if len(known) == 2 else 1.0
        found.append((share * min(1.0, size / nothing) if nothing and size else share, k))
    return max(found)


def _otherwise_written(a: Answer, b: Answer, close: float) -> bool:
    """A sigmoid or a softmax at the end stands in one of the models and in the other's loss."""

    def within(key: str) -> bool:
        x, y = a.results[key], b.results[key]
        ways = [(x, y), *((x, v) for k, v in b.forms.items() if k.startswith(f"{key} "))]
        ways += [(y, v) for k, v in a.forms.items() if k.startswith(f"{key} ")]
        return any(moved_by(*way) <= close for way in ways)

    return all(map(within, a.results))


def check(ev: Evidence, half: bool) -> Check | None:
    by_place = {(run.arm == ORIGINAL, run.seed): _of(run) for run in reversed(ev.answers)}
    if len(by_place) < 2 * len(SEEDS):
        return None
    ours = [by_place[True, seed] for seed in SEEDS]
    theirs = [by_place[False, seed] for seed in SEEDS]
    close, asked = HALF if half else CLOSE, 0
    for number, a in ours[0].items():
        again, b = ours[1].get(number), theirs[0].get(number)
        if again is None or b is None or a.failed or again.failed or b.failed:
            continue
        if not a.results or not same_question(a, b):
            continue
        if same_question(a, again) and not _steady(a, again, close):
            continue
        asked += 1
        far, where = _far(a.results, b.results)
        if far > close and _otherwise_written(a, b, close):
            continue
        if far <= close:
            far, where = _far(a.gradients, b.gradients)
            where = f"the gradient of {number}/{where}"
            allowed = GRADIENTS * close
        else:
            where, allowed = f"result {where or 0} of model {number}", close
        if far > allowed:
            share = f"{100 * min(far, 1):.0f}" if far >= 0.1 else f"{100 * far:.2g}"
            text = (
                f"the same weights and inputs given, {where} is {share} % away from the original's"
            )
            return Check(NAME, False, text)
    said = f"{asked} model{'s' * (asked != 1)}, the same weights and inputs given"
    return Check(NAME, True, f"{said}: results and gradients are the same") if asked else None


def _steady(a: Answer, again: Answer, close: float) -> bool:
    gradients = _far(a.gradients, again.gradients)[0]
    return _far(a.results, again.results)[0] <= close and gradients <= GRADIENTS * close


def same_question(a: Answer, b: Answer) -> bool:
    return (a.given, a.state, a.results.keys()) == (b.given, b.state, b.results.keys())
