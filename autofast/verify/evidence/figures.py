"""Numbers in what a run says. A *quantity* is one number of one kind of line: ("epoch # loss #",
second number). Times, rates and sizes of memory are left out.
"""

from __future__ import annotations

import functools
import re
from collections import Counter

from autofast.verify.evidence.outputs import said
from autofast.verify.evidence.record import Run

NUMBER = re.compile(
    r"(?<![A-Za-z_])[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|\b(?:nan|inf)\b", re.I
)
TIME = re.compile(
    r"time|took|elapsed|eta\b|speed|throughput|duration|second|latency|per.?sec|memory|\bmem\b|\bsec\b|/s\b|\b[mun]?s(?:ec)?/|\bin $",
    re.I,
)
_UNIT = re.compile(
    r"\s*(?:s|sec|secs|seconds?|ms|us|min|mins|minutes?|h|hours?|it/s|s/it|img/s|[a-z]+/s(?:ec)?|[KMG]i?B|%\|)(?![A-Za-z])"
)
_CLOCK = re.compile(r"\d{1,2}:\d{2}(?::\d{2})?(?:[.,]\d+)?|\d{4}-\d\d-\d\d|0x[0-9a-fA-F]+")
MOST_LINES = 5000
_LOSS = re.compile(r"loss|err|nll|cost|ppl|perplexity|\bm[as]e\b", re.I)
_GAIN = re.compile(r"fitness|reward|return|score|acc", re.I)  # rises

Quantity = tuple[str, int]
Printed = dict[Quantity, list[str]]


def lines(text: str) -> list[str]:
    split = [line.strip() for line in re.split(r"[\r\n]+", text)]
    return [line for line in split if line][:MOST_LINES]


def skeleton(line: str) -> str:
    """A line without its numbers, its spacing, and the names of scripts."""
    line = re.sub(
        r"(?<!\S)\S+\.py\b", "@.py", _CLOCK.sub("#", line)
    )  # from the start of a word: else the square of its length
    return re.sub(r"([^\w\s])\1+", r"\1", re.sub(r"\s+", " ", NUMBER.sub("#", line)))


@functools.lru_cache(maxsize=64)  # every judgement looks at the same texts again
def kinds(text: str) -> Counter[str]:
    """How often each kind of line stands in it. Not to be changed."""
    return Counter(map(skeleton, lines(text)))


@functools.lru_cache(maxsize=64)
def printed(text: str) -> Printed:
    """Quantity -> its values, as they were written, in order. Those that look like times are left
    out. Not to be changed.
    """
    found: Printed = {}
    for line in lines(text):
        kind = skeleton(line)
        bare = _CLOCK.sub(lambda m: " " * len(m.group()), line)
        end = 0
        for place, match in enumerate(NUMBER.finditer(bare)):
            before, end = re.split(r"[,;|()]", bare[end : match.start()])[-1], match.end()
            if TIME.search(before) or _UNIT.match(bare, match.end()):
                continue
            found.setdefault((kind, place), []).append(match.group())
    return found


def unit(text: str) -> float:
    """Size of the last digit."""
    mantissa, _, exponent = text.lower().partition("e")
    digits = len(mantissa.partition(".")[2])
    try:
        return 10.0 ** (int(exponent or 0) - digits)
    except (ValueError, OverflowError):  # part of a digest: 5e91234
        return 0.0


def shown(run: Run) -> list[float]:
    """The loss as the script prints it, three times at least: falling, where it is a reward."""
    found = printed(said(run))
    for names, sign in ((_LOSS, 1.0), (_GAIN, -1.0)):
        for (kind, place), texts in found.items():
            if len(texts) > 2 and names.search(kind.split("#")[place]):
                return [sign * float(text) for text in texts]
    return []
