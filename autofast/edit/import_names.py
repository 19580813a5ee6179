"""More names for an import that is there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import libcst as cst


def with_names(statement: cst.ImportFrom, names: Iterable[str]) -> cst.ImportFrom:
    """``from m import ...`` with ``names`` (``a`` or ``a as b``), in order where the names were.

    New commas look like those that are there; what was there keeps its own.
    """
    assert not isinstance(statement.names, cst.ImportStar)
    aliases = list(statement.names)
    former = aliases[-1]
    between = aliases[0].comma if len(aliases) > 1 else _comma(statement, former.comma)
    for name in names:
        aliases.insert(_place(aliases, name), _alias(name).with_changes(comma=between))
    if aliases[-1] is not former:
        at = aliases.index(former)
        aliases[at] = former.with_changes(comma=between)
        aliases[-1] = aliases[-1].with_changes(comma=former.comma)
    return statement.with_changes(names=aliases)


def _comma(
    statement: cst.ImportFrom, last: cst.Comma | cst.MaybeSentinel
) -> cst.Comma | cst.MaybeSentinel:
    """What stands between two names where there was one alone: its lines, if it stood on one of its
    own.
    """
    bracket = statement.lpar.whitespace_after if statement.lpar else None
    if isinstance(bracket, cst.ParenthesizedWhitespace):
        return cst.Comma(whitespace_after=bracket)
    if isinstance(last, cst.Comma):
        return last
    return cst.Comma(cst.SimpleWhitespace(""), cst.SimpleWhitespace(" "))


def _alias(name: str) -> cst.ImportAlias:
    original, _, bound = name.partition(" as ")
    asname = cst.AsName(cst.Name(bound)) if bound else None
    return cst.ImportAlias(cst.Name(original), asname)


def _place(aliases: Sequence[cst.ImportAlias], name: str) -> int:
    """Where ``name`` goes: to the end of names in no order, else to its place in theirs."""
    known = [alias.evaluated_name for alias in aliases]
    orders: tuple[Callable[[str], Any], ...] = (str, str.casefold, _by_kind)
    for key in orders:
        if known == sorted(known, key=key):
            return sum(key(k) <= key(name.split(" as ")[0]) for k in known)
    return len(aliases)


def _by_kind(name: str) -> tuple[int, str]:
    """As isort has it: CONSTANTS, Classes, functions."""
    return (0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2, name)
