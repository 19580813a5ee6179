"""Arguments of calls and items of dictionaries: added and removed in the layout that the user
chose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import libcst as cst

from autofast.model.several import all_of

Space = cst.BaseParenthesizableWhitespace
Display = TypeVar("Display", cst.Call, cst.Dict)
_NOTHING = cst.SimpleWhitespace("")
_SPACE = cst.SimpleWhitespace(" ")


@dataclass(frozen=True)
class Room:
    """How much of a line is left: the column at which the statement begins, and the column no line
    should pass.

    ``tight``: the file puts no space behind its commas.
    """

    indent: int
    limit: int
    tight: bool = False


# -------------------------------------------------------------------------------------------- calls
def set_keyword(call: cst.Call, name: str, value: cst.BaseExpression, room: Room) -> cst.Call:
    """``call`` with ``name=value``: in place of the value it spells out, or added before
    ``**kwargs`` or at the end.
    """
    for n, arg in enumerate(call.args):
        if arg.keyword is not None and arg.keyword.value == name:
            return call.with_changes(
                args=[*call.args[:n], arg.with_changes(value=value), *call.args[n + 1 :]]
            )
    equal = next(
        (arg.equal for arg in call.args if arg.keyword is not None),
        cst.AssignEqual(_NOTHING, _NOTHING),
    )
    new = cst.Arg(value=value, keyword=cst.Name(name), equal=equal)
    args = [_guarded(arg) for arg in call.args]
    stars = [n for n, arg in enumerate(args) if arg.star == "**"]
    if stars:
        return call.with_changes(args=_inserted(args, stars[0], new, call.whitespace_before_args))
    return _append_argument(call, args, new, room)


def drop_keyword(call: cst.Call, name: str) -> cst.Call:
    """``call`` without ``name=...``, or without ``**...``."""
    for n, arg in enumerate(call.args):
        if name == (arg.keyword.value if arg.keyword is not None else arg.star):
            return drop_argument(call, n)
    return call


def drop_argument(call: cst.Call, n: int) -> cst.Call:
    """``call`` without the argument that stands at ``n``."""
    args = list(call.args)
    if n and n == len(args) - 1:
        args[n - 1] = _closing_like(args[n - 1], args[n])
    return call.with_changes(args=[*args[:n], *args[n + 1 :]])


def drop_element(display: cst.List, n: int) -> cst.List:
    """``display`` without the element that stands at ``n``."""
    elements = list(display.elements)
    if n and n == len(elements) - 1:
        elements[n - 1] = elements[n - 1].with_changes(comma=elements[n].comma)
    return display.with_changes(elements=[*elements[:n], *elements[n + 1 :]])


def _closing_like(arg: cst.Arg, last: cst.Arg) -> cst.Arg:
    """``arg`` with what now follows it: what closed the call behind ``last``, less the comment on
    ``last``.
    """
    own = _parted(arg.comma.whitespace_after)[0] if isinstance(arg.comma, cst.Comma) else None
    if isinstance(last.comma, cst.Comma):
        closing = _with_comment(_parted(last.comma.whitespace_after)[1], own)
        return arg.with_changes(comma=last.comma.with_changes(whitespace_after=closing))
    closing = _with_comment(_parted(last.whitespace_after_arg)[1], own)
    return arg.with_changes(comma=cst.MaybeSentinel.DEFAULT, whitespace_after_arg=closing)


def _append_argument(call: cst.Call, args: list[cst.Arg], new: cst.Arg, room: Room) -> cst.Call:
    if not args:
        opening = call.whitespace_before_args
        return call.with_changes(
            args=[new], whitespace_before_args=opening if _parted(opening)[0] else _NOTHING
        )
    last = args[-1]
    if isinstance(last.comma, cst.Comma):
        closing, trailing = last.comma.whitespace_after, True
    else:
        closing, trailing = last.whitespace_after_arg, False
    end_of_line, closing = _parted(closing)

    def joined(separator: Space) -> cst.Call:
        comma = cst.Comma(whitespace_after=_with_comment(separator, end_of_line))
        if trailing:
            added = new.with_changes(comma=cst.Comma(whitespace_after=closing))
        else:
            added = new.with_changes(whitespace_after_arg=closing)
        return call.with_changes(
            args=[*args[:-1], last.with_changes(comma=comma, whitespace_after_arg=_NOTHING), added]
        )

    return _first_that_fits(
        joined,
        _separators(args, call.whitespace_before_args, end_of_line, _is_broken(closing), room),
        room,
    )


def _guarded(arg: cst.Arg) -> cst.Arg:
    """A generator that is no longer the only argument needs parentheses."""
    if isinstance(arg.value, cst.GeneratorExp) and not arg.value.lpar:
        return arg.with_changes(
            value=arg.value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        )
    return arg


# ------------------------------------------------------------------------------------- dictionaries
def set_item(
    display: cst.Dict, name: str, value: cst.BaseExpression, quote: str, room: Room
) -> cst.Dict:
    """``display`` with ``"name": value``: in place of the value it spells out, or added at the end
    (where it wins over ``**other``).
    """
    elements = list(display.elements)
    for n, element in enumerate(elements):
        if isinstance(element, cst.DictElement) and _spells(element.key, name):
            elements[n] = element.with_changes(value=value)
            return display.with_changes(elements=elements)
    new = cst.DictElement(cst.SimpleString(f"{quote}{name}{quote}"), value)
    if not elements:
        return display.with_changes(elements=[new])
    last, rbrace = elements[-1], display.rbrace
    trailing = isinstance(last.comma, cst.Comma)
    end_of_line, closing = _parted(rbrace.whitespace_before)

    def joined(separator: Space) -> cst.Dict:
        comma = cst.Comma(whitespace_after=_with_comment(separator, end_of_line))
        added = new.with_changes(comma=cst.Comma()) if trailing else new
        return display.with_changes(
            elements=[*elements[:-1], last.with_changes(comma=comma), added],
            rbrace=rbrace.with_changes(whitespace_before=closing),
        )

    return _first_that_fits(
        joined,
        _separators(
            elements, display.lbrace.whitespace_after, end_of_line, _is_broken(closing), room
        ),
        room,
    )


def _spells(key: cst.BaseExpression, name: str) -> bool:
    return isinstance(key, cst.SimpleString) and key.evaluated_value == name


# ------------------------------------------------------------------------------------------- layout
def _separators(
    items: Sequence[cst.Arg] | Sequence[cst.BaseDictElement],
    opening: Space,
    comment: cst.TrailingWhitespace | None,
    alone: bool,
    room: Room,
) -> list[Space]:
    """What may stand between the last item and a new one, best first: one item a line stays one
    item a line.

    Between items of one line it is what stands between the others, else what the file is used to.
    Where the bracket that closes is ``alone`` on its line, or most items are, and the last item is,
    the new one is, too.
    """
    between = [
        item.comma.whitespace_after for item in items[:-1] if isinstance(item.comma, cst.Comma)
    ]
    breaks = [_clean(w) for w in (*between, opening) if isinstance(w, cst.ParenthesizedWhitespace)]
    all_broken = breaks and all_of(between, cst.ParenthesizedWhitespace)
    if comment is not None:  # the end of the line is taken
        return [breaks[0] if breaks else _clean(cst.ParenthesizedWhitespace(last_line=_SPACE))]
    beside = [w.value for w in between if isinstance(w, cst.SimpleWhitespace)]
    space = _NOTHING if (not any(beside) if beside else room.tight) else _SPACE
    many = sum(map(_is_broken, between)) > len(between) / 2
    last_alone = (alone or many) and bool(between) and _is_broken(between[-1])
    return breaks[:1] if all_broken or last_alone else [space, *breaks[:1]]


def _is_broken(space: Space) -> bool:
    return isinstance(space, cst.ParenthesizedWhitespace)


def _first_that_fits(
    joined: Callable[[Space], Display], separators: Sequence[Space], room: Room
) -> Display:
    """The result with the first separator that keeps within the limit; where none does, the
    formatter will see to it.
    """
    results = [joined(separator) for separator in separators]
    for result in results[:-1]:
        text = cst.Module([]).code_for_node(result)
        if "\n" not in text or room.indent + len(text.rsplit("\n", 1)[-1]) <= room.limit:
            return result
    return results[-1]


def _inserted(args: list[cst.Arg], at: int, new: cst.Arg, opening: Space) -> list[cst.Arg]:
    """``args`` with ``new`` before ``args[at]``, parted from it as the items around it are
    parted.
    """
    if at:
        before = args[at - 1].comma
        separator = _clean(before.whitespace_after) if isinstance(before, cst.Comma) else _SPACE
    else:
        separator = _clean(opening) if isinstance(opening, cst.ParenthesizedWhitespace) else _SPACE
    return [*args[:at], new.with_changes(comma=cst.Comma(whitespace_after=separator)), *args[at:]]


def _parted(closing: Space) -> tuple[cst.TrailingWhitespace | None, Space]:
    """A comment that ends the line of the last item, and what is left to stand before the closing
    bracket.
    """
    if isinstance(closing, cst.ParenthesizedWhitespace) and closing.first_line.comment is not None:
        return closing.first_line, closing.with_changes(first_line=cst.TrailingWhitespace())
    return None, closing


def _clean(space: Space) -> Space:
    """The same line break without its comments and blank lines."""
    if isinstance(space, cst.ParenthesizedWhitespace):
        return space.with_changes(first_line=cst.TrailingWhitespace(), empty_lines=[])
    return space


def _with_comment(space: Space, line: cst.TrailingWhitespace | None) -> Space:
    if line is None:
        return space
    if isinstance(space, cst.ParenthesizedWhitespace):
        return space.with_changes(first_line=line)
    return _broken(line, space)


def _broken(line: cst.TrailingWhitespace, rest: Space) -> Space:
    """The end of a line with its comment, then ``rest`` at the beginning of the next."""
    assert isinstance(rest, cst.SimpleWhitespace)
    return cst.ParenthesizedWhitespace(first_line=line, indent=True, last_line=rest)
