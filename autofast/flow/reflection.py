"""What shows a variable without its name, or the text of an expression besides its value."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from autofast.model.calls import call_of, is_method, is_name, is_same_code, short_name
from autofast.model.several import wordset
from autofast.model.source import ancestors, function_of, nodes_in, parent_of, source_of

if TYPE_CHECKING:
    import libcst as cst

BY_TEXT = wordset("eval exec")
FRAMES = wordset("currentframe _getframe")  # of inspect and sys
# methods of a dict that ask for, or set, what has a name
NAMED = wordset("get setdefault update pop __getitem__ __setitem__ __contains__")


def namespace_calls(scope: ast.AST) -> list[ast.Call]:
    """The calls by which a scope asks for its variables, ``locals()``, ``vars()``, ``globals()``,
    or runs text: ``"{loss}".format(**locals())``.
    """
    known: list[ast.Call] | None = getattr(scope, "_af_showing", None)
    if known is None:
        found = [n for n in nodes_in(scope, ast.Call) if _shows(n, scope)]
        known = scope._af_showing = found  # type: ignore[attr-defined]
    return known


def _shows(call: ast.Call, scope: ast.AST) -> bool:
    if (key := _key(call)) and not any(n.id == key for n in source_of(call).each(ast.Name)):
        return False
    if isinstance(scope, ast.Module) and is_name(call.func, "globals", *BY_TEXT):
        return True
    asks = is_name(call.func, "locals", *BY_TEXT) or is_name(call.func, "vars") and not call.args
    asks = asks or short_name(call.func) in FRAMES
    return asks and function_of(call) is scope


def _key(call: ast.Call) -> str:
    """``LR`` of ``globals().get("LR", 1e-3)``, ``globals()["LR"]``; empty where it may be any."""
    match parent_of(call):
        case ast.Subscript(slice=ast.Constant(str() as name)):
            return name
        case ast.Attribute(attr="get") as method:
            match call_of(method):
                case ast.Call(args=[ast.Constant(str() as name), *_]):
                    return name
    return ""


def is_glance(show: ast.Call, scope: ast.AST) -> bool:
    """Whether it shows what the variables are then, not later: ``config = locals()`` in a function,
    ``globals()[name]``.
    """
    if function_of(show) is not scope or is_name(show.func, *BY_TEXT):
        return False
    return not isinstance(scope, ast.Module) or isinstance(
        parent_of(show), (ast.Subscript, ast.Compare)
    )


def lists_all(show: ast.Call) -> bool:
    """Whether it is asked for all variables, ``{k: v for k, v in globals().items()}``, and not for
    some by their names, as ``"{loss}".format(**locals())`` is.
    """
    match parent_of(show):
        case ast.Subscript() | ast.Compare() | ast.BinOp(op=ast.Mod()):
            return False
        case ast.Attribute(attr=name) if name in NAMED:
            return False
        case ast.keyword(arg=None) as spread:
            return not is_method(parent_of(spread), "format")
    return not is_name(show.func, *BY_TEXT)


def is_spelled(node: ast.expr) -> bool:
    """Whether ``node`` stands in ``f"{loss.item() = }"``, which prints its text."""
    for outer in (node, *ancestors(node)):
        if isinstance(outer, ast.stmt):
            return False
        if isinstance(outer, ast.FormattedValue) and isinstance(
            string := parent_of(outer), ast.JoinedStr
        ):
            n = next(i for i, v in enumerate(string.values) if v is outer)
            before = string.values[n - 1] if n else None
            if (
                isinstance(before, ast.Constant)
                and str(before.value).rstrip().endswith("=")
                and _in_text(string, outer.value)
            ):
                return True
    return False


def _in_text(string: ast.JoinedStr, value: ast.expr) -> bool:
    """Whether a string shows an expression together with its text, or that cannot be told."""
    import libcst as cst  # which takes longer to import than all else, for what few scripts have

    try:
        whole = cst.parse_expression(f"({source_of(string).segment(string)})")
        for part in _fields(whole):
            if part.equal is not None and _same(
                cst.Module([]).code_for_node(part.expression), value
            ):
                return True
    except (cst.ParserSyntaxError, SyntaxError):
        return True
    return False


def _fields(node: cst.CSTNode) -> list[cst.FormattedStringExpression]:
    import libcst as cst

    found = [node] if isinstance(node, cst.FormattedStringExpression) else []
    return found + [part for child in node.children for part in _fields(child)]


def _same(code: str, value: ast.expr) -> bool:
    return is_same_code(ast.parse(f"({code.strip()})", mode="eval").body, value)


def whose_attributes(node: ast.AST) -> ast.expr | None:
    """The object whose attributes ``vars(x)`` or ``x.__dict__`` gives, to be set by any name."""
    match node:
        case (
            ast.Attribute(attr="__dict__", value=owner)
            | ast.Call(func=ast.Name(id="vars"), args=[owner])
        ):
            return owner
    return None
