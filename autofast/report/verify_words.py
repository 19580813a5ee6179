"""A verification in words: numbers as people read them, verdicts, the sentence that stands first in
every report.

Only a verdict of FASTER is ever told as a gain; everything below the noise floor is told as no
difference.
"""

from __future__ import annotations

import math
import re
from pathlib import PurePath

from autofast.report.style import count, short
from autofast.verify.evidence.record import Run
from autofast.verify.result import Parity, Ratio, Sameness, Speed, SpeedVerdict, Verification
from autofast.verify.speed import floor_of as speed_floor

NONE = "–"
ORIGINAL, REWRITTEN = "original", "rewritten"  # the names of the two arms in ``Run.arm``

_CONTROL = re.compile(
    r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]"
)
LONG = 320  # characters of what was found out about sameness: the margin stands at its end
_SAME = (Sameness.IDENTICAL, Sameness.EQUIVALENT)

SPEED_WORDS = {
    SpeedVerdict.FASTER: ("faster", "good"),
    SpeedVerdict.SAME: ("no difference in speed shown", "even"),
    SpeedVerdict.SLOWER: ("slower", "bad"),
    SpeedVerdict.UNCLEAR: ("speed unclear", "open"),
}
SAMENESS_WORDS = {
    Sameness.IDENTICAL: ("trains identically", "good"),
    Sameness.EQUIVALENT: ("trains the same", "good"),
    Sameness.DIFFERENT: ("trains differently", "bad"),
    Sameness.SUSPICIOUS: ("suspicious", "open"),
    Sameness.BROKEN: ("broken", "bad"),
    Sameness.UNCLEAR: ("sameness unclear", "open"),
}


def seconds(value: float | None) -> str:
    """``850 µs``, ``42.1 ms``, ``3.20 s``, ``2 min 05 s``."""
    if value is None or not math.isfinite(value):
        return NONE
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(value) >= size or unit == "µs":
            break
    if unit == "s" and abs(value) >= 100:
        if abs(value) < 600:
            return f"{value:.0f} s"
        return f"{int(value) // 60} min {int(value) % 60:02d} s"
    return f"{_digits(value / size)} {unit}"


def memory(mib: float | None) -> str:
    if mib is None or not math.isfinite(mib):
        return NONE
    return f"{_digits(mib / 1024)} GiB" if mib >= 1024 else f"{mib:.0f} MiB"


def percent(share: float) -> str:
    if not math.isfinite(share):
        return NONE
    if share >= 0.01 or share == 0:
        return f"{100 * share:.0f} %"
    return "<1 %"


def number(value: float) -> str:
    if not math.isfinite(value):
        return NONE
    if abs(value) >= 1000:
        return f"{value:,.0f}".replace(",", "\u202f")
    return _digits(value)


def _digits(value: float) -> str:
    """Three of them."""
    return f"{value:.{0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2}f}"


def clean(text: str) -> str:
    """Without the control characters that a terminal would obey and a page must not have."""
    return _CONTROL.sub("", text)


def one_line(text: str, width: int = 180) -> str:
    """The text on one line, cut where it is too long."""
    return short(" ".join(clean(text).split()), width)


def ratio(r: Ratio | None) -> tuple[str, str]:
    """The value and its interval, with as many decimals as the interval is worth: ``("1.83",
    "1.76–1.90")``.
    """
    if r is None or not math.isfinite(r.value):
        return NONE, NONE
    width = r.high - r.low
    places = 1 if r.value >= 20 else 3 if width < 0.02 and r.value < 2 else 2
    low, high = (
        f"{x:.{places}f}" if math.isfinite(x) else "∞" if x > 0 else NONE for x in (r.low, r.high)
    )
    return f"{r.value:.{places}f}", f"{low}–{high}"


def interval(r: Ratio | None) -> str:
    """``1.83 (1.76–1.90)``."""
    value, between = ratio(r)
    if r is None or value == NONE:
        return value
    if r.low > 0 or r.high < math.inf:
        return f"{value} ({between})"
    return f"{value} ({count(r.pairs, 'pair')}, too few for an interval)"


def evidence(r: Ratio, what: str = "95 % CI") -> str:
    """``95 % CI 1.76–1.90, 6 pairs``."""
    if not math.isfinite(r.high - r.low):
        return f"{count(r.pairs, 'pair')}, too few for an interval"
    return f"{what} {ratio(r)[1]}, {count(r.pairs, 'pair')}"


def floor_of(noise: Ratio) -> float | None:
    """How far the original strays from itself, as a share, either way: what a verdict is held
    against; None where that was not measured.
    """
    widest = speed_floor(noise) - 1
    return widest if noise.pairs and math.isfinite(widest) else None


def floor(noise: Ratio) -> str:
    """``±2 %``."""
    widest = floor_of(noise)
    if widest is None:
        return "not measured"
    return f"±{100 * widest:.0f} %" if widest >= 0.015 else f"±{100 * widest:.1f} %"


def upside_down(r: Ratio) -> Ratio:
    """Time of the rewritten script over that of the original."""
    one = [1 / x if x else math.inf for x in (r.value, r.high, r.low)]
    return Ratio(one[0], one[1], one[2], r.pairs)


def speed_clause(speed: Speed | None) -> str:
    """What was found out about speed."""
    if speed is None:
        return "speed not measured"
    value, sure = ratio(speed.ratio)[0], evidence(speed.ratio)
    noise = f"noise floor {floor(speed.noise)}"
    if speed.verdict is SpeedVerdict.FASTER:
        return f"{value}× faster ({sure})"
    if speed.verdict is SpeedVerdict.SAME:
        return f"no difference in speed shown: {value}× ({sure}; {noise})"
    if speed.verdict is SpeedVerdict.SLOWER:
        other = upside_down(speed.ratio)
        return f"slower: a step takes {ratio(other)[0]}× as long ({evidence(other)})"
    why = f": {one_line(speed.reason).replace('; ', ', ')}" if speed.reason else ""
    if value == NONE or "too few" in why:
        return f"speed unclear{why}"
    return f"speed unclear, {value}× ({sure}; {noise}){why}"


def parity_clause(parity: Parity | None) -> str:
    """What was found out about sameness."""
    if parity is None:
        return "sameness not tested"
    said = one_line(parity.summary, LONG)
    if parity.verdict in _SAME:
        same = "not a bit differs" if parity.verdict is Sameness.IDENTICAL else "trains the same"
        return f"same training: {said or same}"
    if parity.verdict is Sameness.UNCLEAR:
        told = not parity.more_runs or "more seed" in said
        more = (
            "" if told else f", about {count(parity.more_runs, 'more run')} of each script needed"
        )
        return f"sameness unclear{f': {said}' if said else ''}{more}"
    word = {
        Sameness.DIFFERENT: "trains differently",
        Sameness.SUSPICIOUS: "suspicious, as it converges better than chance allows",
        Sameness.BROKEN: "broken",
    }[parity.verdict]
    return f"{word}: {_failed(parity) or said or 'no figures'}"


def sentence(v: Verification) -> str:
    """One sentence: what failed first, else the speed; then sameness, the break-even, and whether
    it was ended early.
    """
    clauses = _clauses(v)
    text = "; ".join(clauses)
    return text[:1].upper() + text[1:]


def _clauses(v: Verification) -> list[str]:
    error = script_error(v)
    if v.interrupted:
        early = [f"ended early ({one_line(v.interrupted, LONG)}), judged on what there is"]
    else:
        early = []
    if v.speed is None and v.parity is None:
        if error:
            return [f"no comparison: {error}"]
        return [
            f"nothing was measured ({one_line(v.interrupted)})"
            if v.interrupted
            else "nothing was measured"
        ]
    if v.parity is not None and v.parity.verdict is Sameness.BROKEN:
        return [f"broken: {error}" if error else parity_clause(v.parity), *early]
    speed, parity = speed_clause(v.speed), parity_clause(v.parity)
    if v.parity is not None and v.parity.verdict in (Sameness.DIFFERENT, Sameness.SUSPICIOUS):
        return [parity, speed, *early]
    return [speed, parity, *pays_back(v.speed), *early]


def pays_back(speed: Speed | None) -> list[str]:
    """When the time lost at the start is won back: of a gain alone."""
    if speed is None or speed.verdict is not SpeedVerdict.FASTER or speed.break_even == 0:
        return []
    if speed.break_even is None:
        return ["never pays back what its start costs"]
    if speed.own_steps is not None and speed.break_even > speed.own_steps:
        return [
            f"never pays back within the script's own {count(speed.own_steps, 'step')} "
            f"(only after {count(speed.break_even, 'step')})"
        ]
    return [f"pays back after {count(speed.break_even, 'step')}"]


def advice(v: Verification) -> str:
    """What to do now; empty where the first sentence has it."""
    before, after = names(v)
    keep = f"keep {before}"
    if v.parity is None or v.parity.verdict is Sameness.UNCLEAR:
        return ""
    if v.parity.verdict not in _SAME:
        return f"{keep} until that is mended"
    verdict = v.speed.verdict if v.speed else SpeedVerdict.UNCLEAR
    if verdict is SpeedVerdict.UNCLEAR:
        longer = "with a longer --time-budget, " * bool(v.interrupted)
        return f"run it again {longer}while nothing else runs on this machine"
    if verdict is SpeedVerdict.SAME:
        return f"{keep}: on this machine nothing is won"
    if verdict is SpeedVerdict.SLOWER:
        return keep + f"; `autofast tune {v.original.path}` leaves out what costs" * bool(v.rules)
    if "never" in "".join(pays_back(v.speed)):
        return f"{keep}, unless for a longer training"
    if v.original.path != v.rewritten.path:
        return f"{after} can take the place of {before}"
    target = " --target cpu" * (v.environment.get("device") == "cpu")
    return f"`autofast rewrite {v.original.path}{target} --in-place` writes it"


def _failed(parity: Parity) -> str:
    """The check that failed first, in one line."""
    failed = [c for c in parity.checks if c.passed is False]
    worst = [c for c in failed if c.verdict is parity.verdict] or failed
    if worst:
        named = f"{worst[0].name}: {worst[0].text}" if worst[0].text else worst[0].name
        return one_line(named, LONG)
    return ""


def script_error(v: Verification) -> str:
    """Why a script's run failed, in one line: the original's failure first, as nothing can be said
    then.
    """
    for arm, shown in zip((ORIGINAL, REWRITTEN), names(v), strict=True):
        for run in v.runs:
            if run.arm == arm and not run.ok:
                return f"{shown} {_failure(run)}"
    return ""


def names(v: Verification) -> tuple[str, str]:
    """What the two scripts are called in a sentence: by their files, where these have different
    names.
    """
    before, after = (PurePath(arm.path).name for arm in (v.original, v.rewritten))
    return (
        (before, after) if before != after else (f"the original {before}", f"the rewritten {after}")
    )


def _failure(run: Run) -> str:
    if run.timed_out:  # its records say how it was ended then
        return f"did not end within {seconds(run.seconds)}"
    errors = [r.error for r in run.records if r.error]
    if errors:
        return f"fails with {one_line(errors[0])}"
    last = [line for line in run.stderr.splitlines() if line.strip()]
    if run.exit_code or not run.records:
        return f"ends with exit code {run.exit_code}" + (f": {one_line(last[-1])}" if last else "")
    return "makes no optimizer step"


def badges(v: Verification) -> list[tuple[str, str]]:
    """Verdicts as (words, tone); the tone is good, even, bad, open or none. Speed is good only
    where the training is the same.
    """
    speed, same = ("speed not measured", "none"), ("sameness not tested", "none")
    if v.parity is not None:
        same = SAMENESS_WORDS[v.parity.verdict]
    if v.speed is not None:
        said, tone = SPEED_WORDS[v.speed.verdict]
        speed = said, "even" if tone == "good" != same[1] else tone
    return [speed, same]
