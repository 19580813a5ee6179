"""What has changed in a file, and which rules it comes from."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import takewhile

from autofast.model.source import Source
from autofast.rule import Finding

Span = tuple[int, int]  # lines counted from 0, the end not included


@dataclass(frozen=True)
class Change:
    """Lines ``old`` of one text become lines ``new`` of the other; one of the two may be empty."""

    old: Span
    new: Span


@dataclass(frozen=True)
class Hunk:
    """One place of a file that changes.

    Attributes:
        old, new: the lines of the old and of the new text, counted from 0, the end not included.
        lines: the hunk as a diff shows it, without context: ``-`` lines, then ``+`` lines.
        owners: the rules without any one of which this hunk would be another, or would not be.
        findings: the findings of these rules that the hunk carries out.
    """

    source: Source
    old: Span
    new: Span
    lines: tuple[str, ...]
    owners: frozenset[str]
    findings: tuple[Finding, ...]

    @property
    def rules(self) -> tuple[str, ...]:
        """The owners in alphabetical order."""
        return tuple(sorted(self.owners))


def old_lines(hunks: Iterable[Hunk], line: int) -> Span:
    """The lines of the old text that a line of the new one comes from, all counted from 0."""
    moved = 0
    for hunk in hunks:
        if hunk.new[1] <= line:
            moved = hunk.old[1] - hunk.new[1]
        elif hunk.new[0] <= line:
            return hunk.old
    return line + moved, line + moved + 1


def old_line(hunks: Iterable[Hunk], line: int) -> int:
    """The line of the old text that a line of the new one was most likely written for, both counted
    from 0.
    """
    hunks = list(hunks)
    first, end = old_lines(hunks, line)
    hunk = next((h for h in hunks if h.old == (first, end) and h.new[0] <= line < h.new[1]), None)
    if hunk is None:
        return first
    at = line - hunk.new[0]
    if end - first == hunk.new[1] - hunk.new[0]:
        return first + at
    new = [text[1:].strip() for text in hunk.lines if text.startswith("+")][at]
    old = [text[1:].strip() for text in hunk.lines if text.startswith("-")]
    return first + max(range(len(old)), key=lambda n: _kept(old[n], new), default=0)


def _kept(old: str, new: str) -> int:
    """How many characters of one line are in another one, in the same order."""
    blocks = SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    return sum(block.size for block in blocks)


def lines_of(text: str) -> list[str]:
    """The lines of a text with their ends: a last line without an end differs from the same line
    with one.
    """
    lines = [line + "\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def changes(old: Sequence[str], new: Sequence[str]) -> list[Change]:
    """The differences between two texts, in order.

    Lines that occur once in both texts are matched first, as in a patience diff: unlike blank lines
    or a second ``optimizer.step()`` they cannot be mistaken for each other, so a change is found
    where it was made.
    """
    found: list[Change] = []
    here = (0, 0)
    for i, j, length in [
        *_matches(old, new, (0, len(old)), (0, len(new))),
        (len(old), len(new), 0),
    ]:
        if (i, j) != here:
            found.append(Change((here[0], i), (here[1], j)))
        here = i + length, j + length
    return found


def _matches(
    old: Sequence[str], new: Sequence[str], in_old: Span, in_new: Span
) -> Iterator[tuple[int, int, int]]:
    """Equal stretches within two spans, in order: where they begin, and how long they are."""
    (i, i_end), (j, j_end) = in_old, in_new
    head = _common(zip(old[i:i_end], new[j:j_end], strict=False))
    i, j = i + head, j + head
    tail = _common(zip(reversed(old[i:i_end]), reversed(new[j:j_end]), strict=False))
    i_end, j_end = i_end - tail, j_end - tail
    yield i - head, j - head, head
    pairs = _unique_pairs(old[i:i_end], new[j:j_end])
    if pairs:
        ends = [*((i + a, j + b) for a, b in pairs), (i_end, j_end)]
        for i_next, j_next in ends:
            yield from _matches(old, new, (i, i_next), (j, j_next))
            i, j = i_next, j_next
    else:
        blocks = SequenceMatcher(
            None, old[i:i_end], new[j:j_end], autojunk=False
        ).get_matching_blocks()
        yield from ((i + block.a, j + block.b, block.size) for block in blocks)
    yield i_end, j_end, tail


def _common(pairs: Iterable[tuple[str, str]]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _unique_pairs(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """The longest increasing sequence of places of lines that occur once in both texts."""
    in_old, in_new = Counter(old), Counter(new)
    place = {line: n for n, line in enumerate(new) if in_new[line] == 1}
    pairs = [(n, place[line]) for n, line in enumerate(old) if in_old[line] == 1 and line in place]
    # The lowest end of an increasing sequence of each length, and the pairs they belong to.
    tops: list[int] = []
    last: list[int] = []
    before: list[int] = []
    for index, (_, b) in enumerate(pairs):
        at = bisect_left(tops, b)
        tops[at:] = [b, *tops[at + 1 :]]
        last[at:] = [index, *last[at + 1 :]]
        before.append(last[at - 1] if at else -1)
    chain: list[tuple[int, int]] = []
    index = last[-1] if last else -1
    while index >= 0:
        chain.append(pairs[index])
        index = before[index]
    return chain[::-1]


def owners(
    text: Sequence[str], found: Sequence[Change], without: Mapping[str, Sequence[str]]
) -> list[set[str]]:
    """For each change that led to ``text``, the rules that it comes from.

    ``without`` has the text that comes of leaving out a rule. What differs from it belongs to the
    rule.
    """
    result: list[set[str]] = [set() for _ in found]
    for rule, other in without.items():
        for difference in changes(other, text):
            best = max(_slides(difference, other, text), key=lambda d: _fit(d, found))
            for number, change in enumerate(found):
                if _meet(best.new, change.new):
                    result[number].add(rule)
    return result


def _slides(change: Change, old: Sequence[str], new: Sequence[str]) -> Iterator[Change]:
    """Every way to see the same insertion or deletion: between equal lines it can be anywhere."""
    yield change
    (i1, i2), (j1, j2) = change.old, change.new
    if i1 == i2 and j1 < j2:
        shifts = _shifts(new, j1, j2)
    elif j1 == j2 and i1 < i2:
        shifts = _shifts(old, i1, i2)
    else:
        return
    for shift in shifts:
        yield Change((i1 + shift, i2 + shift), (j1 + shift, j2 + shift))


def _shifts(lines: Sequence[str], start: int, stop: int) -> Iterator[int]:
    up = 0
    while start - up > 0 and lines[start - up - 1] == lines[stop - up - 1]:
        up += 1
        yield -up
    down = 0
    while stop + down < len(lines) and lines[start + down] == lines[stop + down]:
        down += 1
        yield down


def _fit(change: Change, found: Iterable[Change]) -> int:
    """How well ``change`` lies within the changes found: lines of it in them, less lines
    outside.
    """
    start, stop = change.new
    if start == stop:
        return max(
            (
                2 if start == c.new[0] == c.new[1] else 1
                for c in found
                if c.new[0] <= start <= c.new[1]
            ),
            default=0,
        )
    return sum(1 for line in range(start, stop) if any(c.new[0] <= line < c.new[1] for c in found))


def _meet(one: Span, other: Span) -> bool:
    """Whether two spans overlap; an empty one meets what it touches."""
    if one[0] == one[1] or other[0] == other[1]:
        return one[0] <= other[1] and other[0] <= one[1]
    return one[0] < other[1] and other[0] < one[1]
