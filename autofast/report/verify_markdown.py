"""A verification for a comment on a pull request: GitHub's Markdown, the sentence and the figures
first, the rest folded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from autofast.report import verify_facts as facts, verify_words as words
from autofast.verify.result import Verification

LIMIT = 60_000  # characters; GitHub takes 65,536
DIFF = 24_000  # of these for the diff

_MEANING = re.compile(r"[*_`|@\[\]~\\#$]")  # something, to Markdown or to GitHub
_OUTCOMES = {
    "passed": "✓ passed",
    "identical": "✓ identical",
    "failed": "✗ **failed**",
    "not decided": "? not decided",
}
_MARKS = {"good": "🟢", "even": "⚪", "bad": "🔴", "open": "🟡", "none": "⚪"}


def markdown(v: Verification) -> str:
    said = words.sentence(v)
    head = [
        f"### {_said(said)}" if len(said) <= 130 else f"**{_said(said)}**",
        " · ".join(f"{_MARKS[tone]} {text}" for text, tone in words.badges(v)),
        _names(v),
    ]
    last = [*facts.conclusions(v)][:-1]
    head.append("\n".join(f"- {label}: {_said(said)}" for label, said in last if said))
    rows = [(r.label.strip(), r.before, r.after, r.change) for r in facts.comparisons(v)]
    if rows:
        head.append(_table(("", "original", "rewritten", "change"), rows, right=(1, 2, 3)))
    text = "\n\n".join(head) + "\n"
    for title, body in _folded(v):
        block = f"\n<details><summary>{_html(title)}</summary>\n\n{body}\n\n</details>\n"
        text += (
            block
            if len(text) + len(block) <= LIMIT
            else f"\n*{_said(title)}: too long for a comment.*\n"
        )
    return text


def _names(v: Verification) -> str:
    same = v.original.path == v.rewritten.path
    return f"{_code(v.original.path)} → {'its rewritten form' if same else _code(v.rewritten.path)}"


def _folded(v: Verification) -> Iterator[tuple[str, str]]:
    """Title and body of what is folded."""
    for what, trace in facts.errors(v):
        yield f"Failed run ({what})", _fenced(trace[-6000:], "text")
    for part in facts.details(v):
        said = f"{_said(part.said)}\n\n" * bool(part.said)
        yield part.title, said + _table(part.columns or ("", ""), part.rows, part.right)
    if v.diff:
        yield "What was changed", _diff(v)


def _diff(v: Verification) -> str:
    text = "\n".join(diff.rstrip("\n") for diff in v.diff.values())
    if len(text) > DIFF:
        shown = text[:DIFF].rpartition("\n")[0]
        left = text.count("\n") - shown.count("\n")
        return f"{_fenced(shown, 'diff')}\n\n*{left} more lines are left out.*"
    return _fenced(text, "diff")


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> str:
    lines = [
        map(_said, columns),
        ("---:" if n in right else "---" for n in range(len(columns))),
        *([_OUTCOMES.get(cell) or _said(cell) for cell in row] for row in rows),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _said(text: str) -> str:
    """Text on one line that means nothing to Markdown, to HTML, or to GitHub's mentions and
    references.
    """
    flat = escape(words.one_line(text, 2000), quote=False)
    return (
        re.sub(r"([\\`*_{}\[\]|#~$])", r"\\\1", flat)
        .replace("@", "&#64;")
        .replace("://", "&#58;//")
    )


def _code(text: str) -> str:
    """Code in a line, also in a cell of a table."""
    return f"<code>{_html(text)}</code>"


def _html(text: str) -> str:
    """Text for a place where Markdown may or may not be read."""
    return _MEANING.sub(lambda c: f"&#{ord(c[0])};", escape(words.one_line(text, 400), quote=False))


def _fenced(text: str, kind: str) -> str:
    """A block of code, whatever is in it."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return f"{fence}{kind}\n{words.clean(text)}\n{fence}"
