"""An explanation for people."""

from __future__ import annotations

from collections.abc import Iterator

from autofast.explain.explanation import Explanation, Value, Verdict
from autofast.explain.words import names
from autofast.report.style import Style

_STATUS = {
    "fix": "is applied",
    "small": "is not worth its lines",
    "advice": "is for you to do",
    "refused": "is left alone",
    "ignored": "is kept away by a comment",
    "change": "changes this line",
}
_COLOUR = {"fix": "green", "change": "green", "advice": "cyan", "refused": "yellow"}


def shown(found: Explanation, style: Style) -> str:
    return "".join(line + "\n" for line in _lines(found, style))


def _lines(found: Explanation, style: Style) -> Iterator[str]:
    yield f"{style(found.place, 'bold')}: {found.code.strip()}"
    if found.entry != found.place.partition(":")[0]:
        yield f"read as a part of {found.entry}"
    if not found.reached:
        yield "nothing runs here, as far as autofast reads the script: it is no statement, or nothing leads there"
    for title, lines in (
        ("runs", found.runs),
        ("what it is", found.roles),
        ("values", [f"{v.expr}: {v.value}{_set(v)}" for v in found.values]),
        ("rules", [_verdict(v, style) for v in found.rules]),
    ):
        if lines:
            yield ""
            yield style(title, "bold")
            yield from (f"  {line}" for line in lines)
    if found.reached and not found.rules:
        yield ""
        yield "no rule has anything to say here"


def _verdict(verdict: Verdict, style: Style) -> str:
    status = _STATUS[verdict.status]
    if colour := _COLOUR.get(verdict.status):
        status = style(status, colour)
    sign = ";" if verdict.status in ("fix", "small") else ":"  # before what is expected of it
    more = f"{sign} {verdict.reason}" if verdict.reason else ""
    return f"{style(verdict.rule, 'bold')} [{verdict.effect}] {verdict.message} ({status}{more})"


def _set(value: Value) -> str:
    """Where it is set, as far as that is not where it is said to be made."""
    where = [place for place in value.set_at if not names(value.value, place)]
    return f" (set at {', '.join(where)})" if where else ""
