"""New code: text of a rule turned into LibCST nodes that look as if the user had written them."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from string import Formatter
from typing import NamedTuple

import libcst as cst

from autofast.edit.edits import plain_code
from autofast.edit.parens import fitted
from autofast.edit.spans import blanks
from autofast.model.source import Source

ITSELF = ""  # the hole {} of a template
RULES_UNIT = 4  # rules write code with this many spaces per level
Fill = Callable[[str], cst.BaseExpression]  # name of a hole -> what stands there


TIGHT_COMMA = re.compile(r",(?: (?=\S)|(?=[^\s)\]}]))")  # within a line


class Style(NamedTuple):
    """How the user writes: the quotes of most strings, one level of indentation, and whether most
    commas have no space behind them.
    """

    quote: str
    unit: str
    tight: bool = False

    @classmethod
    def of(cls, source: Source, unit: str) -> Style:
        seen: Counter[str] = Counter()
        for node in source.each(ast.Constant):
            if isinstance(node.value, str) and node.col_offset < len(source.lines[node.lineno - 1]):
                seen[source.lines[node.lineno - 1][node.col_offset]] += 1
        commas = Counter(TIGHT_COMMA.findall(source.text))
        tight = commas[","] > commas[", "]
        steps = Counter(_steps(source))
        if steps and steps[unit] < max(steps.values()):  # LibCST takes the first of the file
            unit = steps.most_common(1)[0][0]
        return cls("'" if seen["'"] > seen['"'] else '"', unit, tight)


def _steps(source: Source) -> Iterator[str]:
    """By what each block is indented in the one around it."""
    for node in source.nodes:
        body = getattr(node, "body", None)
        if isinstance(node, ast.stmt) and isinstance(body, list) and body[0].lineno > node.lineno:
            outer, inner = (blanks(source.lines[n.lineno - 1]) for n in (node, body[0]))
            if inner.startswith(outer) and len(inner) > len(outer):
                yield inner[len(outer) :]


class TemplateError(ValueError):
    """A rule's template cannot be parsed, or names a hole that it does not define: a mistake in the
    rule.
    """


def expression(template: str, style: Style, fill: Fill) -> cst.BaseExpression:
    tree, names = _parsed(template, style, _as_expression)
    filled = _filled(tree, names, fill)
    assert isinstance(filled, cst.BaseExpression)
    return filled


def statements(template: str, style: Style, fill: Fill) -> list[cst.BaseStatement]:
    """The statements that ``template`` describes; comments above and below them stay with them."""
    tree, names = _parsed(template, style, _as_module)
    module = _filled(tree, names, fill)
    assert isinstance(module, cst.Module)
    body: list[cst.BaseStatement] = list(module.body)
    if body and module.header:
        body[0] = body[0].with_changes(leading_lines=[*module.header, *body[0].leading_lines])  # type: ignore[attr-defined]
    return body


def value(code: str, style: Style) -> cst.BaseExpression:
    """A plain expression: no template, braces mean what they say."""
    return expression(plain_code(code), style, _no_holes)


def block(code: str, style: Style) -> list[cst.BaseStatement]:
    """Plain statements: no template, braces mean what they say."""
    return statements(plain_code(code), style, _no_holes)


def holes(template: str) -> frozenset[str]:
    return frozenset(_split(template)[1].values())


def _no_holes(name: str) -> cst.BaseExpression:
    raise TemplateError(f"no expression for {{{name}}}")


@lru_cache(maxsize=1024)
def _split(template: str) -> tuple[str, Mapping[str, str]]:
    """The text with a name in place of each hole, and which hole each of these names stands for."""
    text = ""
    names: dict[str, str] = {}
    try:
        for literal, name, spec, conversion in Formatter().parse(template):
            text += literal
            if name is not None:
                if spec or conversion:
                    raise ValueError("double the braces of f-strings")
                stand_in = f"_autofast_hole_{len(names)}_"
                names[stand_in] = name
                text += stand_in
    except ValueError as error:
        raise TemplateError(f"bad template ({error}): {template}") from None
    return text, names


@lru_cache(maxsize=1024)
def _parsed(
    template: str, style: Style, parse: Callable[[str], cst.CSTNode]
) -> tuple[cst.CSTNode, Mapping[str, str]]:
    text, names = _split(template)
    try:
        tree = parse(text)
    except cst.ParserSyntaxError as error:
        raise TemplateError(f"bad template ({error.message}): {template}") from None
    adapted = tree.visit(_Adapt(style))
    assert isinstance(adapted, cst.CSTNode)
    return adapted, names


def _as_expression(text: str) -> cst.CSTNode:
    return cst.parse_expression(text)


def _as_module(text: str) -> cst.CSTNode:
    return cst.parse_module(text.strip("\n") + "\n")


class _Adapt(cst.CSTTransformer):
    """Quotes, blocks and continuation lines as the user has them."""

    def __init__(self, style: Style):
        super().__init__()
        self.style = style

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        return updated_node.with_changes(indent=self.style.unit)

    def leave_SimpleString(
        self, original_node: cst.SimpleString, updated_node: cst.SimpleString
    ) -> cst.SimpleString:
        return requoted(updated_node, self.style.quote)

    def visit_FormattedString(self, node: cst.FormattedString) -> bool:
        return False  # until Python 3.12, an f-string must not contain its own quotes

    def leave_ParenthesizedWhitespace(
        self, original_node: cst.ParenthesizedWhitespace, updated_node: cst.ParenthesizedWhitespace
    ) -> cst.ParenthesizedWhitespace:
        levels, rest = divmod(len(updated_node.last_line.value), RULES_UNIT)
        return updated_node.with_changes(
            last_line=cst.SimpleWhitespace(self.style.unit * levels + " " * rest)
        )


def requoted(string: cst.SimpleString, quote: str) -> cst.SimpleString:
    """``string`` in ``quote``, where that needs no escapes."""
    text, old = string.value, '"' if quote == "'" else "'"
    if not text.endswith(old) or text.endswith(old * 3) or "\\" in text or quote in text:
        return string
    return string.with_changes(value=text.replace(old, quote))


def without_own_quotes(string: cst.FormattedString) -> cst.FormattedString:
    """An f-string none of whose expressions has its own quotes, which Python forbids until 3.12."""
    if len(string.end) > 1:
        return string
    other = _Requote("'" if string.end == '"' else '"')
    parts = [
        part.visit(other) if isinstance(part, cst.FormattedStringExpression) else part
        for part in string.parts
    ]
    return string.with_changes(parts=parts)


class _Requote(cst.CSTTransformer):
    def __init__(self, quote: str):
        super().__init__()
        self.quote = quote

    def leave_SimpleString(
        self, original_node: cst.SimpleString, updated_node: cst.SimpleString
    ) -> cst.SimpleString:
        return requoted(updated_node, self.quote)


def _filled(tree: cst.CSTNode, names: Mapping[str, str], fill: Fill) -> object:
    return tree.visit(_Filler(names, fill)) if names else tree


class _Filler(cst.CSTTransformer):
    """Puts expressions into the holes, with parentheses where their new place needs them."""

    def __init__(self, names: Mapping[str, str], fill: Fill):
        super().__init__()
        self.names, self.fill = names, fill
        self.around: list[cst.CSTNode] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        self.around.insert(0, node)
        return True

    def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> cst.CSTNode:  # type: ignore[override]
        self.around.pop(0)
        if isinstance(original_node, cst.Name) and original_node.value in self.names:
            return fitted(self.fill(self.names[original_node.value]), original_node, self.around)
        return updated_node
