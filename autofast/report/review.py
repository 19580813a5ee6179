"""A rewrite as one page for its reviewer: old and new side by side, each change with its rules and
reasons, and beside the rest of the code what is said of it. Nothing is loaded from elsewhere,
nothing needs JavaScript."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from autofast import __version__
from autofast.commands.rewriting import Rewritten
from autofast.edit.hunks import Hunk
from autofast.model.several import grouped
from autofast.model.source import Source, line_of, shown_path, source_of
from autofast.registry import all_rules
from autofast.report.record import Record
from autofast.report.style import count, expected
from autofast.report.summary import strongest
from autofast.report.text import not_worth
from autofast.report.verify_html import trimmed
from autofast.rule import Effect, Finding

CONTEXT = 3  # lines around a change
_STRENGTH = {"advice": 0, "refused": 1}


@dataclass(frozen=True)
class Line:
    """A line with its number, as people are told of it; ``said``: a note speaks of it."""

    number: str
    text: str
    said: bool = False


@dataclass(frozen=True)
class Note:
    """What is said of the code above it: ``kind`` is ``fix``, ``advice`` or ``refused``."""

    kind: str
    rule: str
    effect: str
    message: str
    reason: str = ""


@dataclass(frozen=True)
class Part:
    """Lines that stand side by side, and the notes below them; ``changed`` where they differ."""

    old: Sequence[Line]
    new: Sequence[Line]
    changed: bool = False
    notes: Sequence[Note] = ()


@dataclass(frozen=True)
class Region:
    """Lines of a file that are shown together."""

    place: str
    parts: Sequence[Part]


@dataclass(frozen=True)
class File:
    """One file, with all regions that something is said of or done to."""

    path: str
    regions: Sequence[Region]
    added: int
    removed: int


@dataclass(frozen=True)
class Applied:
    """One rule that changes something."""

    name: str
    effect: str
    summary: str
    places: int
    gain: str = ""


@dataclass
class _Said:
    """What is to be shown of one file: its changes, and notes by the line (counted from 0) that
    they speak of.
    """

    hunks: list[Hunk] = field(default_factory=list)
    notes: dict[int, list[Note]] = field(default_factory=dict)


def page(result: Rewritten) -> str:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("autofast.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    applied = list(_applied(result.records))
    html: str = environment.get_template("review.html.j2").render(
        version=__version__,
        name=shown_path(result.script.entry.path),
        applied=applied,
        headline=_headline(result, applied),
        badges=_badges(result.records),
        warnings=result.warnings,
        notes=[*result.notes, *_left_out(result)],
        files=list(files(result)),
        phases=(),
    )
    return trimmed(html)


def _headline(result: Rewritten, applied: Sequence[Applied]) -> str:
    if not applied:
        return "Nothing to rewrite"
    places = count(sum(rule.places for rule in applied), "place")
    return f"{count(len(applied), 'rule')}, {places} in {count(len(result.texts), 'file')}"


def _badges(records: Iterable[Record]) -> list[tuple[str, str]]:
    """The strongest effect, and how much is left to people."""
    records = list(records)
    effects = [Effect[r.effect.upper()] for r in records if r.status == "fix"]
    found = [(f"strongest effect: {max(effects).name.lower()}", "good")] if effects else []
    advice = sum(1 for r in records if r.status == "advice")
    refused = sum(1 for r in records if r.status == "refused")
    if advice:
        found.append((f"{count(advice, 'piece of advice')}", "open"))
    if refused:
        found.append((f"{refused} left alone", "none"))
    return found


def _left_out(result: Rewritten) -> Iterator[str]:
    yield from not_worth([r for r in result.records if r.status == "small"])
    if result.elsewhere:
        rules = ", ".join(sorted({r.rule for r in result.elsewhere}))
        yield f"not written, as they change other files: {rules}"


def _applied(records: Iterable[Record]) -> Iterator[Applied]:
    """The rules, what is expected to gain most first."""
    by_rule = grouped((record.rule, record) for record in records if record.status == "fix")

    def gained(name: str) -> float:
        return max((r.gain.share for r in by_rule[name] if r.gain is not None), default=0.0)

    for name in sorted(by_rule, key=lambda n: (-gained(n), n)):
        found = by_rule[name]
        best = max(found, key=lambda r: r.gain.share if r.gain is not None else -1.0)
        effect = strongest(found)
        summary = all_rules()[name].summary
        yield Applied(name, effect, summary, len(found), expected(best.gain))


# ---------------------------------------------------------------------------------------- the files
def files(result: Rewritten) -> Iterator[File]:
    """Every file that is changed or spoken of: the changed ones first."""
    said: dict[Source, _Said] = {source: _Said() for source in result.texts}
    for hunk in result.plan.hunks():
        said[hunk.source].hunks.append(hunk)
    for source, line, note in _remarks(result.plan.findings):
        said.setdefault(source, _Said()).notes.setdefault(line, []).append(note)
    for source, here in said.items():
        text = result.texts.get(source, source.text)
        removed = sum(h.old[1] - h.old[0] for h in here.hunks)
        added = sum(h.new[1] - h.new[0] for h in here.hunks)
        yield File(source.rel, list(_regions(source, text, here)), added, removed)


def _remarks(findings: Iterable[Finding]) -> Iterator[tuple[Source, int, Note]]:
    """Advice and refusals, each once, with the line (from 0) that they speak of."""
    found = [f for f in findings if f.status in _STRENGTH]
    seen = set()
    for finding in sorted(found, key=lambda f: (_STRENGTH[f.status], f.rule, f.message)):
        note = _note(finding)
        line = line_of(finding.node) - 1
        source = source_of(finding.node)
        if (source, line, note) not in seen:
            seen.add((source, line, note))
            yield source, line, note


def _note(finding: Finding) -> Note:
    record = Record.of(finding, all_rules()[finding.rule].effect)
    reason = record.reason or expected(record.gain)
    kind = record.status if record.status in _STRENGTH else "fix"
    return Note(kind, record.rule, record.effect, record.message, reason)


def _of_hunk(hunk: Hunk) -> list[Note]:
    """Why these lines change: the findings behind them; a rule that only has a share in them by its
    name alone.
    """
    notes = list(dict.fromkeys(_note(f) for f in hunk.findings))
    named = {note.rule for note in notes}
    for name in hunk.rules:
        if name not in named and (rule := all_rules().get(name)):
            notes.append(Note("fix", name, rule.effect.name.lower(), rule.summary.rstrip(".")))
    return notes


def _regions(source: Source, text: str, said: _Said) -> Iterator[Region]:
    """Stretches of the old text around what is said and done; those that meet are one."""
    last = len(_lines(source.text))
    spans = [(h.old[0] - CONTEXT, h.old[1] + CONTEXT) for h in said.hunks]
    spans += [(line - CONTEXT + 1, line + CONTEXT) for line in said.notes]
    joined: list[tuple[int, int]] = []
    for first, end in sorted((max(a, 0), min(b, last)) for a, b in spans):
        if joined and first <= joined[-1][1]:
            first, end = joined[-1][0], max(end, joined.pop()[1])
        joined.append((first, end))
    for span in joined:
        hunks = [h for h in said.hunks if span[0] <= h.old[0] and h.old[1] <= span[1]]
        place = source.words(span[0] + 1)
        yield Region(place, list(_parts(source, text, said, span, hunks)))


def _parts(
    source: Source, text: str, said: _Said, span: tuple[int, int], hunks: Sequence[Hunk]
) -> Iterator[Part]:
    old, new = _lines(source.text), _lines(text)
    # How far the new text is ahead of the old one, where the region begins.
    before = [h for h in said.hunks if h.old[1] <= span[0] and h not in hunks]
    ahead = sum((h.new[1] - h.new[0]) - (h.old[1] - h.old[0]) for h in before)
    here = span[0]

    def same(end: int) -> Iterator[Part]:
        nonlocal here
        stops = sorted(line + 1 for line in said.notes if here <= line < end)
        for stop in [*stops, end]:
            if stop > here:
                notes = said.notes.get(stop - 1, [])
                left = [_line(source, n, old[n], n in said.notes) for n in range(here, stop)]
                right = [Line(_number(source, n + ahead), old[n]) for n in range(here, stop)]
                yield Part(left, right, False, notes)
                here = stop

    for hunk in sorted(hunks, key=lambda h: h.old):
        yield from same(hunk.old[0])
        left = [_line(source, n, old[n], n in said.notes) for n in range(*hunk.old)]
        right = [Line(_number(source, n), new[n]) for n in range(*hunk.new)]
        remarks = [note for n in range(*hunk.old) for note in said.notes.get(n, [])]
        yield Part(left, right, True, [*_of_hunk(hunk), *remarks])
        here = hunk.old[1]
        ahead = hunk.new[1] - hunk.old[1]
    yield from same(span[1])


def _line(source: Source, number: int, text: str, said: bool) -> Line:
    cell = source.cell(number + 1)
    return Line(str(cell[1] if cell else number + 1), text, said)


def _number(source: Source, number: int) -> str:
    """Of a line of the new text; in a notebook, cells have numbers of their own."""
    return "" if source.cell(1) else str(number + 1)


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines
