"""Edits of many rules brought together: identical ones become one with several owners,
contradictory ones are refused.

Everything is decided on the abstract tree, before anything is composed, so that a finding that
cannot be applied is known as a refusal even where no text is ever made. Three things contradict
each other: two values for one slot (an argument, a statement, a name); blocks that cross; and an
edit inside code that another edit throws away.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields

from autofast.edit.edits import (
    Around,
    Decorator,
    DictItem,
    DropElement,
    DropKeyword,
    Edit,
    EditConflict,
    Header,
    Helper,
    Import,
    Keyword,
    Moved,
    OfExpression,
    OfStatement,
    Parameter,
    Remove,
    Replace,
    Rewrite,
    Wrap,
)
from autofast.flow.imports import parsed
from autofast.model.calls import keyword_of
from autofast.model.several import any_in, any_of, first_such
from autofast.model.source import ByNode, Nodes, Source, ancestors, block_of, source_of

Slot = tuple[object, ...]


class Pool:
    """Edits that can be composed with each other. ``edits`` maps each to the names of the rules
    that asked for it.
    """

    def __init__(self) -> None:
        self.edits: dict[Edit, set[str]] = {}
        self._same: dict[Slot, Edit] = {}
        self._slots: dict[Slot, tuple[Edit, object]] = {}
        # Id of a node -> the edit after which nothing of it is left.
        self._gone: ByNode[Edit] = {}
        self._holes: Nodes = set()

    def add(self, edits: Sequence[Edit]) -> None:
        """Take in all ``edits``, or none: raises :class:`EditConflict`, whose ``second`` is the
        edit that came too late.
        """
        before = dict(self._same), dict(self._slots), dict(self._gone), set(self._holes)
        owners = {edit: set(names) for edit, names in self.edits.items()}
        try:
            for edit in edits:
                self._holes.update(holes_of(edit).values())
                self._holes |= {edit.moved} if isinstance(edit, Moved) else set()
            for edit in edits:
                self._add(edit)
        except EditConflict:
            self._same, self._slots, self._gone, self._holes = before
            self.edits = owners
            raise

    def _add(self, edit: Edit) -> None:
        wish = identity(edit)
        if (same := self._same.get(wish)) is not None:
            self.edits[same].add(edit.rule)
            return
        if edit.moot and (other := self._rewritten(edit)) is not None:
            self.edits[other].add(edit.rule)
            return
        _check_form(edit)
        self._check_slots(edit)
        self._check_crossing(edit)
        self._check_places(edit)
        self._same[wish] = edit
        self._slots.update((slot, (edit, content)) for slot, content in _slots(edit))
        self._gone.update((node, edit) for node in discarded(edit))
        self.edits[edit] = {edit.rule}

    def _rewritten(self, edit: Edit) -> Rewrite | None:
        """The edit that writes something else at the very place of ``edit``."""
        places = (self._gone.get(anchor) for anchor in anchors(edit))
        return first_such(places, Rewrite)

    def _check_slots(self, edit: Edit) -> None:
        for slot, content in _slots(edit):
            other, present = self._slots.get(slot, (edit, content))
            if present != content:
                raise _conflict(other, edit)

    def _check_crossing(self, edit: Edit) -> None:
        if not isinstance(edit, Around):
            return
        block = block_of(edit.first)
        first, last = _index(block, edit.first), _index(block, edit.last)
        if last < first:
            raise ValueError(
                f"{edit.rule}: the last statement of an Around stands before the first"
            )
        for other in self.edits:
            if isinstance(other, Around) and other.first in block:
                start, stop = _index(block, other.first), _index(block, other.last)
                if start < first <= stop < last or first < start <= last < stop:
                    raise _conflict(other, edit)

    def _check_places(self, edit: Edit) -> None:
        """Would ``edit`` be lost, as another edit throws its place away, or throw away the place of
        another?
        """
        for node, whole in self._thrown_away(edit, self._gone):
            if _loses(self._gone[node], edit, whole):
                raise _conflict(self._gone[node], edit)
        gone = set(discarded(edit))
        for other in self.edits if gone else ():
            if any(_loses(edit, other, whole) for _, whole in self._thrown_away(other, gone)):
                raise _conflict(other, edit)

    def _thrown_away(self, edit: Edit, gone: Collection[ast.AST]) -> Iterator[tuple[ast.AST, bool]]:
        """What is gone of the places of ``edit`` and what is around them, and whether that is a
        place itself.
        """
        for anchor in anchors(edit):
            for node in (anchor, *ancestors(anchor)):
                if node in self._holes:
                    break  # moved, not thrown away
                if node in gone:
                    yield node, node is anchor


def _conflict(first: Edit, second: Edit) -> EditConflict:
    return EditConflict(first, second, f"{first.rule} {_deed(first)}")


# ---------------------------------------------------------------------------- what an edit is about
def anchors(edit: Edit) -> tuple[ast.expr | ast.stmt, ...]:
    """The nodes at which ``edit`` acts; none for what concerns a whole file."""
    match edit:
        case Keyword() | DropKeyword():
            return (edit.call,)
        case DropElement():
            return (edit.outer,)
        case DictItem():
            return (edit.display,)
        case OfExpression():
            return (edit.expr,)
        case Around():
            return edit.first, edit.last
        case OfStatement() | Header() | Remove():
            return (edit.stmt,)
        case Decorator() | Parameter():
            return (edit.function,)
    return ()


def holes_of(edit: Edit) -> Mapping[str, ast.expr]:
    """The expressions that ``edit`` quotes."""
    found: Mapping[str, ast.expr] = getattr(edit, "holes", {})
    return found


def file_of(edit: Edit) -> Source:
    return edit.source if isinstance(edit, (Import, Helper)) else source_of(anchors(edit)[0])


def spelled_out(call: ast.Call | ast.Dict, name: str) -> ast.expr | None:
    """The value of the keyword or item ``name``, where it is written in so many words."""
    if isinstance(call, ast.Call):
        return keyword_of(call, name)
    pairs = zip(call.keys, call.values, strict=True)
    return next((v for k, v in pairs if isinstance(k, ast.Constant) and k.value == name), None)


def keeps_anchor(edit: OfExpression) -> bool:
    """Whether the template has a place for the anchor itself."""
    return (
        "{}" in edit.template.replace("{{", "").replace("}}", "")
        or edit.expr in edit.holes.values()
    )


def discarded(edit: Edit) -> Iterator[ast.AST]:
    """The nodes of which nothing is left but what is quoted in holes."""
    match edit:
        case Rewrite() if not keeps_anchor(edit):
            yield edit.expr
        case Replace() | Remove():
            yield edit.stmt
        case DropElement():
            yield edit.element
        case Header():
            yield from (item.context_expr for item in edit.stmt.items)
        case Keyword() | DropKeyword():
            value = spelled_out(edit.call, edit.name)
            yield from [value] if value is not None else []
        case DictItem():
            value = spelled_out(edit.display, edit.name)
            yield from [value] if value is not None else []
        case Decorator() if edit.old is not None:
            yield edit.old


def _loses(outer: Edit, inner: Edit, same_node: bool) -> bool:
    """Whether what ``inner`` does at a node that ``outer`` discards (or somewhere inside) would be
    lost.
    """
    if inner is outer:
        return False
    if isinstance(inner, Remove) and isinstance(outer, (Remove, Replace)):
        return False  # gone is gone
    if inner.moot and isinstance(outer, (Remove, Replace)):
        return False
    if not same_node:
        return True
    if isinstance(outer, Rewrite):
        # A wrapper goes around whatever stands there; two rewrites meet in their slot.
        return not isinstance(inner, Wrap)
    if isinstance(outer, (Remove, Replace)):
        return isinstance(inner, (Decorator, Parameter))
    return True


def _slots(edit: Edit) -> Iterator[tuple[Slot, object]]:
    """The things of which there can be only one, and what the edit makes of them: two different
    wishes contradict each other.
    """
    match edit:
        case Keyword():
            yield ("argument", edit.call, edit.name), edit.value.strip()
        case DropKeyword():
            yield ("argument", edit.call, edit.name), None
        case DropElement():
            yield ("element", edit.element), None
        case DictItem():
            yield ("argument", edit.display, edit.name), edit.value.strip()
        case Rewrite() if not keeps_anchor(edit):
            yield ("expression", edit.expr), identity(edit)
        case Replace() | Remove() | Header():
            yield ("statement", edit.stmt), identity(edit)
        case Decorator() if edit.old is not None:
            yield ("decorator", edit.old), edit.code.strip()
        case Parameter():
            yield ("parameter", edit.function, edit.name), edit.default
        case Helper():
            yield ("name", id(edit.source), edit.name), edit.code.strip()
        case Import():
            for binding in parsed(edit.code):
                yield ("name", id(edit.source), binding.bound), binding.meaning


def _check_form(edit: Edit) -> None:
    """Mistakes in a rule, and the few places that LibCST has no node for."""
    for anchor in anchors(edit):
        if isinstance(anchor, (ast.Slice, ast.Starred, ast.FormattedValue)):
            raise EditConflict(edit, edit, f"{type(anchor).__name__} cannot be edited as a whole")
        if any_of(ancestors(anchor), ast.JoinedStr) and _is_unfit_for_fstring(edit):
            raise EditConflict(edit, edit, "this code cannot be written inside an f-string")
        around = set(ancestors(anchor))
        if isinstance(edit, OfExpression) and any_in(edit.holes.values(), around):
            raise ValueError(
                f"{edit.rule}: a hole holds the expression that it is to be put into: {edit.template}"
            )


def _is_unfit_for_fstring(edit: Edit) -> bool:
    """Whether the code of ``edit`` has what Python forbids in f-strings until 3.12: a backslash, a
    comment, or both kinds of quotes.
    """
    code = getattr(edit, "template", "") + getattr(edit, "value", "")
    return any_in("\\#\n", code) or ("'" in code and '"' in code)


def identity(edit: Edit) -> Slot:
    """Equal for edits that do the same at the same place."""
    values = (getattr(edit, f.name) for f in fields(edit) if f.name != "rule")
    return (type(edit), *map(_key, values))


def _key(value: object) -> object:
    if isinstance(value, (ast.AST, Source)):
        return id(value)
    if isinstance(value, Mapping):
        return tuple(sorted((name, id(node)) for name, node in value.items()))
    return value.strip() if isinstance(value, str) else value


def _index(block: list[ast.stmt], stmt: ast.stmt) -> int:
    for index, other in enumerate(block):
        if other is stmt:
            return index
    raise ValueError("the statements of an Around stand in different blocks")


def _deed(edit: Edit) -> str:
    """What ``edit`` does, in the words of a refusal."""
    match edit:
        case Keyword():
            return f"sets {edit.name}={edit.value} here"
        case DictItem():
            return f"sets {edit.name!r} here"
        case DropKeyword():
            return f"drops {edit.name} here"
        case DropElement():
            return f"drops {ast.unparse(edit.element)} here"
        case Parameter() | Helper():
            return f"defines {edit.name} in another way"
        case Replace() | Remove() | Header():
            return "takes this statement away"
        case Around():
            return f"puts statements under `{edit.header}` that only partly coincide with these"
        case Import():
            return f"has `{edit.code}`, which gives a name another meaning"
    return "changes this place in another way"
