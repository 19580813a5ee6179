"""What events tell before rows are made: which spans lie in which, which iterations over loaders
were training, when there was evaluation.

The letters of events are explained in probe/core.py.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Span:
    kind: str
    start: float
    end: float
    rest: list[Any]
    inside: float = 0.0  # time of spans directly inside
    top: bool = True


@dataclass
class Iteration:
    """What is known of one pass."""

    loader: int = -1
    workers: int = 0
    length: int = 0  # batches of a whole pass, where known
    start: float = math.inf
    end: float = 0.0
    sizes: list[int] = field(default_factory=list)
    first: float = math.inf  # end of its first fetch
    last: float = 0.0  # end of its last fetch
    complete: bool = False
    training: bool = False


def nested(events: Iterable[list[Any]]) -> list[Span]:
    """In order of their starts, the outer before the inner, each knowing the time of what lies
    directly inside it.
    """
    spans = sorted(
        (Span(kind, start, end, rest) for kind, start, end, *rest in events),
        key=lambda span: (span.start, -span.end),
    )
    around: list[Span] = []
    for span in spans:
        while around and around[-1].end <= span.start:
            around.pop()
        if around and span.end <= around[-1].end:
            around[-1].inside += span.end - span.start
            span.top = False
        around.append(span)
    return spans


def passes(spans: list[Span]) -> dict[int, Iteration]:
    found: dict[int, Iteration] = {}
    for span in spans:
        if span.kind not in "ine":
            continue
        one = found.setdefault(span.rest[0], Iteration())
        one.start, one.end = min(one.start, span.start), max(one.end, span.end)
        if span.kind == "i":
            _, one.loader, one.workers, one.length = span.rest
        elif span.kind == "n":
            one.sizes.append(span.rest[1])
            one.first, one.last = min(one.first, span.end), max(one.last, span.end)
        else:
            one.complete = True
    # A script may compute gradients by torch.autograd.grad and never call backward.
    kinds = ([span.start for span in spans if span.kind == kind] for kind in "bou")
    signs = next(filter(None, kinds), [])
    fetches = [span.start for span in spans if span.kind in "ne"]
    for one in found.values():
        next_sign = after(signs, one.last)
        one.complete = one.complete or 0 < one.length <= len(one.sizes)
        one.training = bool(one.sizes) and (
            after(signs, one.first) <= one.end or next_sign < after(fetches, one.last)
        )
    return found


def after(times: list[float], moment: float) -> float:
    place = bisect.bisect_left(times, moment)
    return times[place] if place < len(times) else math.inf


def evaluations(
    spans: list[Span], iterations: Mapping[int, Iteration]
) -> list[tuple[float, float]]:
    """From the start of each iteration that is none of training to the next sign of training after
    its end; merged.
    """
    signs = [
        span.start
        for span in spans
        if span.kind in "boku"
        or span.kind in "ine"
        and (one := iterations[span.rest[0]]).training
        and one.sizes
    ]
    result: list[tuple[float, float]] = []
    for one in sorted(
        (one for one in iterations.values() if not one.training and one.sizes),
        key=lambda one: one.start,
    ):
        end = after(signs, one.end)
        if result and one.start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((one.start, end))
    return result


def overlap(intervals: list[tuple[float, float]], start: float, end: float) -> float:
    return sum(
        max(0.0, min(end, high) - max(start, low))
        for low, high in intervals
        if low < end and high > start
    )
