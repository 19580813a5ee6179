"""Estimates from few numbers: location with an exact interval, Student's t, differences with their
standard error.

Standard library only. Every function takes plain sequences of floats; an empty one gives nan rather
than an exception.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from statistics import fmean, median, pstdev, stdev

__all__ = [
    "Difference", "difference", "distance", "fmean", "gap", "hodges_lehmann", "median",
    "pstdev", "rounded_alike", "spread", "stdev", "t_quantile", "times"
]  # fmt: skip
CELLS = 60_000  # in which a distribution is summed


def gap(x: float, y: float) -> float:
    """``abs(x - y)``; 0 where both are nan or the same infinity, infinite where else one of the two
    is no finite number.

    For comparisons with a limit, which nan would pass on either side.
    """
    if x == y or (x != x and y != y):
        return 0.0
    return abs(x - y) if math.isfinite(x) and math.isfinite(y) else math.inf


def rounded_alike(x: str, y: str) -> bool:
    """Two numbers as texts, neither of them an integer, that differ by no more than sums of single
    precision in another order.
    """
    try:
        one, two = float(x), float(y)
    except ValueError:
        return False
    whole = all(text.lstrip("+-").isdigit() for text in (x, y))
    return not whole and gap(one, two) <= 2e-6 * max(abs(one), abs(two)) < math.inf


def distance(x: Sequence[float], y: Sequence[float]) -> float:
    """Euclidean, of vectors of equal length; by ``gap``."""
    return math.hypot(*map(gap, x, y))


def spread(values: Sequence[float]) -> float:
    """Standard deviation (n - 1), 0 for fewer than two values."""
    return stdev(values) if len(values) > 1 else 0.0


@lru_cache(maxsize=256)
def t_quantile(p: float, freedom: float) -> float:
    """The t below which a share ``p`` of Student's distribution lies.

    By t = sqrt(freedom) tan(x) the density becomes cos(x)^(freedom - 1), which is summed from 0 to
    a quarter turn.
    """
    if p < 0.5:
        return -t_quantile(1 - p, freedom)
    width = math.pi / 2 / CELLS
    cells = [math.cos((i + 0.5) * width) ** (freedom - 1) for i in range(CELLS)]
    below = [0.0, *accumulate(cells)]
    wanted = (2 * p - 1) * below[-1]
    place = min(bisect_right(below, wanted), CELLS) - 1
    share = (wanted - below[place]) / cells[place]
    return math.sqrt(freedom) * math.tan((place + share) * width)


@lru_cache(maxsize=256)
def signed_rank_cut(n: int, alpha: float = 0.05) -> int:
    """How many Walsh averages to leave out at each end, so that the interval covers the centre with
    at least 1 - ``alpha``.

    The largest k with P(W+ <= k - 1) <= alpha / 2, where W+ is the sum of the ranks with positive
    sign, all 2^n signs being equally
    likely (Hollander, Wolfe, Chicken: Nonparametric Statistical Methods, 3rd ed., section 3.3). 0:
    no interval of this level exists.
    """
    top = n * (n + 1) // 2
    ways = [1] + [0] * top
    for rank in range(1, n + 1):
        for total in range(top, rank - 1, -1):
            ways[total] += ways[total - rank]
    cut, tail = 0, 0
    for total in range(top + 1):
        tail += ways[total]
        if tail > alpha / 2 * 2**n:
            break
        cut = total + 1
    return cut


def hodges_lehmann(values: Sequence[float], alpha: float = 0.05) -> tuple[float, float, float]:
    """Centre of ``values`` and its interval: the median of all means of two (also of a value with
    itself), and two of them in order.

    From six values on the interval is that of Wilcoxon's signed-rank test, exact for any symmetric
    distribution. Three to five have no such interval at 95 %: Student's, which leans on a normal
    distribution, is given instead. Fewer: infinite.
    """
    n = len(values)
    if n == 0:
        return math.nan, -math.inf, math.inf
    walsh = sorted((values[i] + values[j]) / 2 for i in range(n) for j in range(i, n))
    centre, cut = median(walsh), signed_rank_cut(n, alpha)
    if cut:
        return centre, walsh[cut - 1], walsh[-cut]
    if n >= 3:
        half = t_quantile(1 - alpha / 2, n - 1) * spread(values) / math.sqrt(n)
        return centre, centre - half, centre + half
    return centre, -math.inf, math.inf


@dataclass(frozen=True)
class Difference:
    """Mean of ``after`` less mean of ``before``, its standard error and degrees of freedom;
    ``paired`` says how they were found.
    """

    value: float
    error: float
    freedom: float
    paired: bool

    def half(self, p: float) -> float:
        """Half the width of an interval whose upper bound lies at the quantile ``p``."""
        if self.error == 0:
            return 0.0
        return t_quantile(p, self.freedom) * self.error if self.freedom > 0 else math.inf


def difference(before: Sequence[float], after: Sequence[float]) -> Difference:
    """Paired where the pairs go together (correlation above 0.5 halves the variance at least),
    Welch's otherwise.

    Welch (1947), Biometrika 34, 28-35. Below a correlation of 0.5 pairing costs more degrees of
    freedom than it saves variance.
    """
    n = len(before)
    value = fmean(after) - fmean(before)
    if n < 2:
        return Difference(value, math.inf, 0, True)
    deltas = [b - a for a, b in zip(before, after, strict=True)]
    one, two, both = spread(before) ** 2, spread(after) ** 2, spread(deltas) ** 2
    if both <= 0.5 * (one + two):  # var(b - a) = var(a) + var(b) - 2 cov
        return Difference(value, math.sqrt(both / n), n - 1, True)
    total = one + two
    return Difference(value, math.sqrt(total / n), total**2 / ((one**2 + two**2) / (n - 1)), False)


def times(before: Sequence[float], after: Sequence[float], least: float, risk: float) -> str:
    """How many times as large ``after`` is in the mean, both being logarithms; nothing where that
    is no more than ``least``, or than chance makes it at this risk."""
    found = difference(before, after)
    if abs(found.value) <= max(least, found.half(1 - risk / 2)):
        return ""
    return f"{math.exp(found.value):.3g} times the original's, in the mean over {len(before)} seeds"
