"""Which rules each hunk comes from.

The lines that change when a rule is left out belong to it. Where a file repeats itself, a diff may
see such a change at another of several equal places; so a rule is only named where it has an edit
that reaches the hunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from autofast.edit.edits import After, Around, Before, Edit, Header, Helper, Import, Remove, Replace
from autofast.edit.hunks import Change, Hunk, Span, changes, lines_of, owners
from autofast.edit.merge import anchors, file_of
from autofast.edit.spans import own_lines
from autofast.edit.toplevel import additions
from autofast.model.source import Source, is_elif, statement_of
from autofast.rule import Finding


def hunks_of(
    source: Source,
    text: str,
    edits: Mapping[Edit, frozenset[str]],
    fixes: Sequence[Finding],
    without: Callable[[str], str],
) -> list[Hunk]:
    """The hunks that make ``text`` of a file by means of ``edits``, given with their owners;
    ``without`` leaves out a rule.
    """
    old, new = lines_of(source.text), lines_of(text)
    found = changes(old, new)
    names = sorted({name for who in edits.values() for name in who})
    by_absence = owners(new, found, {name: lines_of(without(name)) for name in names})
    reaches = {edit: reach(edit) for edit in edits}
    hunks = []
    for change, absent in zip(found, by_absence, strict=True):
        near = {name for edit, who in edits.items() if meets(reaches[edit], change) for name in who}
        who = absent & near or near or absent
        lines = (*_marked("-", old[slice(*change.old)]), *_marked("+", new[slice(*change.new)]))
        hunks.append(
            Hunk(
                source,
                change.old,
                change.new,
                lines,
                frozenset(who),
                _findings_at(source, change, who, fixes),
            )
        )
    return hunks


def reach(edit: Edit) -> Span:
    """The lines of the old text, counted from 0, that ``edit`` can change or stand next to."""
    source = file_of(edit)
    if isinstance(edit, (Import, Helper)):
        return _reach_of_addition(source, edit)
    nodes = anchors(edit)
    first, last = own_lines(statement_of(nodes[0]))
    if isinstance(edit, (Around, Header, Remove, Replace)) or is_elif(nodes[0]):
        last = nodes[-1].end_lineno or last
    elif isinstance(edit, After):
        first = last = nodes[0].end_lineno or last
    if isinstance(edit, Before):
        last = first
    return _with_idle_lines(source, first, last)


def _reach_of_addition(source: Source, edit: Import | Helper) -> Span:
    imports, helpers = ([edit], []) if isinstance(edit, Import) else ([], [edit])
    added = list(additions(source, imports, helpers))
    body = source.tree.body
    last = [body[a.after].end_lineno or 0 if a.after >= 0 else 0 for a in added]
    first = [
        body[a.after].lineno if a.names else end + 1 for a, end in zip(added, last, strict=True)
    ]
    return _with_idle_lines(source, min(first), max(last)) if added else (-1, -1)


def _with_idle_lines(source: Source, first: int, last: int) -> Span:
    """Lines ``first``..``last``, counted from 1, and the comments and blank lines around them: what
    is new goes beyond these.
    """
    lines = source.lines
    while first > 1 and _is_idle(lines[first - 2]):
        first -= 1
    while last < len(lines) and _is_idle(lines[last]):
        last += 1
    return first - 1, last


def _is_idle(line: str) -> bool:
    return line.lstrip()[:1] in ("", "#")


def meets(span: Span, change: Change) -> bool:
    """Whether ``change`` overlaps or touches ``span``."""
    return span[0] <= change.old[1] and change.old[0] <= span[1]


def _marked(mark: str, lines: Iterable[str]) -> Iterable[str]:
    return (mark + line.rstrip("\n") for line in lines)


def _findings_at(
    source: Source, change: Change, who: Iterable[str], fixes: Sequence[Finding]
) -> tuple[Finding, ...]:
    """The findings of the rules ``who`` that have an edit that reaches ``change``; where one has
    none, all of its in this file.
    """
    result: list[Finding] = []
    for name in sorted(who):
        here = [f for f in fixes if f.rule == name and any(file_of(e) is source for e in f.edits)]
        result += [
            f
            for f in here
            if any(file_of(e) is source and meets(reach(e), change) for e in f.edits)
        ] or here
    return tuple(result)
