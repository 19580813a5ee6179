"""Checkpoints by value, at every save: the wrong weights in best.pt train as well as the right
ones.

Where training is the same to the bit, so is what is saved. Where it differs by rounding, so do the
tensors, as far as the final weights of runs that only rounding tells apart. Where other random
numbers are drawn, values cannot be compared, but for tensors that are all zero or hold what is no
number.
"""

from __future__ import annotations

import math
from dataclasses import replace

from autofast.report.style import count
from autofast.verify.estimates import rounded_alike
from autofast.verify.evidence import alike, course
from autofast.verify.evidence.gathered import SINGLE_STEP, Evidence
from autofast.verify.evidence.record import Record, Saved, TensorPrint
from autofast.verify.judging.exact import equal, reproducible, state_apart
from autofast.verify.judging.rounding import FAR, SEEN, single, yardsticks
from autofast.verify.judging.tensors import moved_by
from autofast.verify.result import Check, differs, holds, untold

NAME = "values of the checkpoints"
Pair = tuple[Saved, Saved]


def _last(record: Record) -> dict[str, Saved]:
    return {one.path: one for one in record.saves}


def _times(record: Record) -> list[tuple[str, int]]:
    return [(one.path, one.step) for one in record.saves]


def _common(a: Record, b: Record) -> tuple[Record, Record]:
    """Without saves under names that the other does not use: written beside and put in place, or a
    second copy.
    """
    paths = [{one.path for one in record.saves} for record in (a, b)]
    one, two = (
        replace(record, saves=tuple(s for s in record.saves if s.path in other))
        for record, other in zip((a, b), reversed(paths), strict=True)
    )
    return one, two


def _kind(print_: TensorPrint) -> str:
    """What a tensor is whatever was trained."""
    if print_.norm == 0:
        return "all zero"
    return "numbers" if math.isfinite(print_.norm) else "not finite"


def _exact(ev: Evidence, pairs: list[Pair]) -> str:
    others = [o.record.saves for o in ev.originals[1:] if o.records]
    for x, y in pairs:
        again = [s for saves in others for s in saves if (s.path, s.step) == (x.path, x.step)]
        for key, print_ in x.tensors.items():
            if any(key not in s.tensors or s.tensors[key].sha != print_.sha for s in again):
                continue
            if key in y.tensors and y.tensors[key].sha != print_.sha:
                return f"{x.path}, saved after step {y.step}: {key} is another tensor than in the original's of step {x.step}"
        for key, text in x.plain.items():
            if all(s.plain.get(key) == text for s in again) and y.plain.get(key, text) != text:
                if "param_groups" not in key and not rounded_alike(
                    text, y.plain[key]
                ):  # ``fused`` and the like
                    return f"{x.path}: {key} is {y.plain[key]}, {text} in the original"
    return ""


def _rounded(ev: Evidence, pairs: list[Pair]) -> str:
    # How far training itself ends up is for others to judge; what is saved is no further.
    own = max((state_apart(ev.a, run) for run in (ev.b, *yardsticks(ev))), default=0.0)
    others = [run.record.saves for run in yardsticks(ev) if run.records]
    # What follows a training that is the same to the bit, an average of its weights, has no
    # rounding of many steps in it.
    followed = course.trained_alike(ev.a.record, ev.b.record)
    walk = 4 * SINGLE_STEP * math.sqrt(max(25, ev.a.steps_made))  # a rounding in each step
    for x, y in pairs:
        if x.step != y.step:
            continue
        for key, print_ in x.tensors.items():
            if key not in y.tensors or print_.norm == 0 and y.tensors[key].norm < 1e-6:
                continue
            here = [
                moved_by(print_, s.tensors[key])
                for saves in others
                for s in saves
                if (s.path, s.step) == (x.path, x.step) and key in s.tensors
            ]
            if not here:
                continue
            far = moved_by(print_, y.tensors[key])
            carried = min(10 * SEEN, max(FAR * min(here), walk))
            if far > (carried if followed else max(FAR * max(here), FAR * own, 10 * SEEN)):
                return f"{x.path}, step {x.step}: {key} is {far:.2g} away from the original's"
    return ""


def _otherwise(ev: Evidence) -> str:
    """Saved at other times than in all runs of the original."""
    a, b = map(_times, _common(ev.a.record, ev.b.record))
    if a == b or any(_times(o.record) != _times(ev.a.record) for o in ev.originals if o.records):
        return ""
    place = next(
        (i for i, (p, q) in enumerate(zip(a, b, strict=False)) if p != q), min(len(a), len(b))
    )
    here = [
        f"{one[place][0]} after step {one[place][1]}" if place < len(one) else "none"
        for one in (b, a)
    ]
    return f"save {place + 1} is {here[0]}, {here[1]} in the original ({len(b)} saves, {len(a)} in the original)"


def values(ev: Evidence) -> Check | None:
    """The last file under each name, and every save where as many were made at the same steps."""
    a, b = ev.records
    if not a.saves or not b.saves:
        return None
    a, b = _common(a, b)
    one, two = _last(a), _last(b)
    pairs = [(x, two[path]) for path, x in one.items() if path in two]
    if _times(a) == _times(b):
        pairs = list(zip(a.saves, b.saves, strict=True))
    if not pairs:
        return None
    for x, y in pairs:
        for key, print_ in x.tensors.items():
            now = y.tensors.get(key)
            if now is not None and _kind(now) != _kind(print_):
                known = {
                    _kind(s.tensors[key])
                    for o in (*ev.originals, *ev.others)
                    for s in o.record.saves
                    if s.path == x.path and key in s.tensors
                }
                if len(known) < 2:
                    text = f"{key} is {_kind(now)}, {_kind(print_)} in the original"
                    return differs(f"{x.path}: {text}")
    exactly = reproducible(ev) and equal(ev.a, ev.b)
    if exactly and (text := _exact(ev, pairs) or _otherwise(ev)):
        return differs(text)
    if not exactly and alike.determined(ev) and ev.perturbed is not None and single(ev):
        if text := _rounded(ev, pairs):
            return differs(text)
        steady = all(_times(run.record) == _times(ev.a.record) for run in yardsticks(ev))
        if steady and (text := _otherwise(ev)):
            return differs(text)
    saves = count(len(pairs), "save")
    if not exactly:
        return untold(f"{saves}, as far as they can be compared")
    if any(rounded_alike(t, y.plain.get(k, t)) and y.plain.get(k, t) != t for x, y in pairs for k, t in x.plain.items()):  # fmt: skip
        return untold(f"{saves}, tensors equal bit for bit, numbers up to rounding")
    return holds(f"{saves}, equal bit for bit")
