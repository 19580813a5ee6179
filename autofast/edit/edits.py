"""The closed set of edits. Rules return them; only ``compose`` knows how they are carried out.

An edit names a place by a node of the original tree (``ast``, see :mod:`autofast.model.source`) and
is applied to the *updated* node, so edits inside one another keep each other. New code is quoted as
text:

- in a template ``{}`` stands for the anchor itself and ``{name}`` for ``holes[name]``, another node
  of the original tree (usually inside the anchor); either keeps every edit made inside it; literal
  braces are doubled;
- what takes ``holes``, or is put around an anchor, is a template; ``value``, ``default`` and the
  ``code`` of Decorator, Import and Helper are plain code, in which braces mean what they say;
- a rule that quotes an expression in Before or After and rewrites it in its place moves it: the
  quotation has the edits inside the expression, and what others wrap around it stays in its place;
- code blocks are written at column 0 with 4 spaces and double quotes; the engine fits them to the
  place and to the user's style.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from autofast.edit.order import Rank
from autofast.model.source import Source
from autofast.model.syntax import Def

if TYPE_CHECKING:
    from autofast.model.script import Script

# the attributes of edits that hold new code
TEXTS = ("code", "template", "value", "header", "default")


def plain_code(code: str) -> str:
    """Code as a template without holes."""
    return code.replace("{", "{{").replace("}", "}}")


@dataclass(frozen=True, eq=False)
class Edit:
    """What all edits have: ``rule`` is filled in by the plan, ``rank`` decides who goes inside whom
    (order.py).

    ``moot``: nothing is lost where the statement, or the expression, goes altogether (an old
    spelling that is gone then, too). ``alike``: whatever else runs this code gets the same from it
    (``.reshape`` for ``.view``), or whether that is so of a script.
    """

    rule: str = field(default="", kw_only=True)
    moot: bool = field(default=False, kw_only=True)
    alike: bool | Callable[[Script], bool] = field(default=False, kw_only=True)
    rank: Rank = field(default=Rank.LEAF, kw_only=True)


Edits: TypeAlias = tuple[Edit, ...]
Written: TypeAlias = tuple[str, Edits]  # code, and the edits that it needs
Holes: TypeAlias = dict[str, ast.expr]  # what stands for each name in a template


@dataclass(frozen=True, eq=False)
class Keyword(Edit):
    """``call(..., name=value)``: adds the keyword, or replaces its value where the call spells it
    out.

    Refused by the engine (EditConflict) when two rules ask for different values.
    """

    call: ast.Call
    name: str
    value: str


@dataclass(frozen=True, eq=False)
class DropKeyword(Edit):
    """Removes ``name=...`` from a call that spells it out; ``**``: what is spread there."""

    call: ast.Call
    name: str


@dataclass(frozen=True, eq=False)
class DropElement(Edit):
    """Removes a positional argument of a call, or an element of a list."""

    outer: ast.Call | ast.List
    element: ast.expr


@dataclass(frozen=True, eq=False)
class DictItem(Edit):
    """``{..., "name": value}`` (or ``dict(..., name=value)``): adds the item or replaces its
    value.
    """

    display: ast.Dict | ast.Call
    name: str
    value: str


@dataclass(frozen=True, eq=False)
class OfExpression(Edit):
    """What an expression becomes: a template, with holes for what is kept of it."""

    expr: ast.expr
    template: str
    holes: Mapping[str, ast.expr] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class OfStatement(Edit):
    """New statements at the place of a statement."""

    stmt: ast.stmt
    code: str
    holes: Mapping[str, ast.expr] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Wrap(OfExpression):
    """Puts an expression into a template: ``scaler.scale({})``. The engine adds parentheses where
    needed.
    """


@dataclass(frozen=True, eq=False)
class Rewrite(OfExpression):
    """Replaces an expression by a template over parts of it: ``torch.zeros({size},
    device={device})``.
    """


@dataclass(frozen=True, eq=False)
class Before(OfStatement):
    """New statements before ``stmt``; comments that stand directly above ``stmt`` stay with
    ``stmt``.
    """


@dataclass(frozen=True, eq=False)
class Moved(Before):
    """The statement ``moved``, with all edits inside it, as a new one before ``stmt``; its own
    place loses it by a ``Remove`` beside. With ``led``, the comments directly above go with it.
    Below ``if {test}:`` as ``code`` it stands with what else moves there from that test.
    """

    moved: ast.stmt = field(kw_only=True)
    led: bool = field(default=True, kw_only=True)


@dataclass(frozen=True, eq=False)
class After(OfStatement):
    """New statements after ``stmt``."""


@dataclass(frozen=True, eq=False)
class Around(Edit):
    """Indents ``first``..``last`` (same block) under ``header`` (``with torch.no_grad():``)."""

    first: ast.stmt
    last: ast.stmt
    header: str
    holes: Mapping[str, ast.expr] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Header(Edit):
    """Replaces one item of an existing ``with`` (by ``Rewrite`` of its expression) - or removes the
    whole ``with``,
    keeping its body in place: ``Header(with_stmt)``."""

    stmt: ast.With


@dataclass(frozen=True, eq=False)
class Replace(OfStatement):
    """Replaces a whole statement by new statements (its comments stay above the new code)."""

    takes_all: ClassVar[bool] = True  # also what stands in its block


@dataclass(frozen=True, eq=False)
class Remove(Edit):
    """Removes a statement; comments above it stay, ``pass`` is left where a block would be
    empty. With ``moved`` its code stands elsewhere, with the comments in it.
    """

    stmt: ast.stmt
    moved: bool = False


@dataclass(frozen=True, eq=False)
class Decorator(Edit):
    """Adds ``@code`` as the innermost decorator of a function, or replaces the decorator
    ``old``.
    """

    function: Def
    code: str
    old: ast.expr | None = None


@dataclass(frozen=True, eq=False)
class Parameter(Edit):
    """Adds a parameter to a function, after the last positional one: ``name=default``."""

    function: Def
    name: str
    default: str


@dataclass(frozen=True, eq=False)
class Import(Edit):
    """A module-level import (``import os`` / ``from torch import nn``); nothing happens where the
    name is bound by it already.

    With ``above`` only what binds it above that statement of the module counts.
    """

    source: Source
    code: str
    above: ast.stmt | None = None


@dataclass(frozen=True, eq=False)
class Helper(Edit):
    """A function (or constant) at module level after the imports, once per file however many rules
    ask for it.

    With ``below`` it also stands after that statement of the module.
    """

    source: Source
    name: str
    code: str
    below: ast.stmt | None = None


class EditConflict(Exception):
    """Two rules want different things at one place; the plan drops the later rule's finding and
    says so.
    """

    def __init__(self, first: Edit, second: Edit, why: str):
        super().__init__(why)
        self.first, self.second = first, second
