"""Where the nodes of the abstract tree (``ast``) stand in the concrete one (LibCST).

Both trees describe the same text, so a node is found by its position. The two disagree in few
places, all handled
here: ``ast`` counts columns in UTF-8 bytes and LibCST in characters; ``ast`` counts the parentheses
of a tuple or a generator as part of it; and before Python 3.12 ``ast`` cannot be trusted inside
f-strings.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache, cached_property

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider

from autofast.edit.spans import blanks
from autofast.model.calls import unstarred
from autofast.model.several import first_such, grouped, of_kind
from autofast.model.source import Source, ancestors

Span = tuple[int, int, int, int]
Statement = cst.BaseSmallStatement | cst.BaseCompoundStatement

# What a node of one tree may be in the other; a pair that is not in this table is a mistake of the
# search.
_ALIKE = (
    "Attribute Await Call Dict DictComp GeneratorExp IfExp Lambda List ListComp Name NamedExpr Set SetComp"
    " Subscript Tuple Yield"
)
KINDS: dict[type[ast.expr], tuple[type[cst.BaseExpression], ...]] = {
    **{getattr(ast, name): (getattr(cst, name),) for name in _ALIKE.split()},
    ast.BinOp: (cst.BinaryOperation,),
    ast.BoolOp: (cst.BooleanOperation,),
    ast.Compare: (cst.Comparison,),
    ast.Constant: (cst.BaseNumber, cst.BaseString, cst.Name, cst.Ellipsis),
    ast.JoinedStr: (cst.BaseString,),
    ast.UnaryOp: (cst.UnaryOperation, cst.BaseNumber),
    ast.YieldFrom: (cst.Yield,),
}


class Unplaceable(Exception):
    """The concrete tree has no counterpart of an anchor. ``str()`` is the line that is shown."""


class Places:
    """The concrete tree of one file; :meth:`find` maps nodes of the abstract tree to its own."""

    def __init__(self, source: Source):
        self.source = source
        self._found: dict[int, cst.BaseExpression] = {}
        try:
            self.module = cst.parse_module(source.text)
        except cst.ParserSyntaxError as error:
            raise Unplaceable(
                f"{source.rel}:{error.raw_line}: this syntax cannot be rewritten yet ({error.message})"
            ) from None

    # -------------------------------------------------------------------------------- ast -> LibCST
    def statement(self, node: ast.stmt) -> Statement:
        found = self._statements.get((node.lineno, self._column(node.lineno, node.col_offset)))
        if found is None:
            raise Unplaceable(f"{self.source.rel}:{node.lineno}: no such statement to edit")
        return found

    def expression(self, node: ast.expr) -> cst.BaseExpression:
        known = self._found.get(id(node))
        if known is None:
            known = self._found[id(node)] = self._searched(node)
        return known

    def _searched(self, node: ast.expr) -> cst.BaseExpression:
        strings = of_kind(ancestors(node), ast.JoinedStr)
        found: cst.BaseExpression | None
        if strings:
            found = self._in_fstring(node, strings[-1])
        elif isinstance(node, ast.Tuple):
            found = self._around(node.elts[0], cst.Tuple) if node.elts else self._empty_tuple(node)
        elif isinstance(node, ast.GeneratorExp):
            found = self._around(node.elt, cst.GeneratorExp)
        else:
            found = self._at(node)
        if found is None:
            raise Unplaceable(
                f"{self.source.rel}:{node.lineno}: {type(node).__name__} cannot be edited as a whole"
            )
        return found

    def _at(self, node: ast.expr) -> cst.BaseExpression | None:
        end_line, end_col = node.end_lineno or 0, node.end_col_offset or 0
        key = (
            node.lineno,
            self._column(node.lineno, node.col_offset),
            end_line,
            self._column(end_line, end_col),
        )
        return first_such(self._expressions.get(key, ()), KINDS.get(type(node), ()))

    def _empty_tuple(self, node: ast.Tuple) -> cst.BaseExpression | None:
        line, column = node.lineno, self._column(node.lineno, node.col_offset) + 1
        return first_such(self._expressions.get((line, column, line, column), ()), cst.Tuple)

    def _around(self, part: ast.expr, kind: type[cst.BaseExpression]) -> cst.BaseExpression | None:
        """The nearest ``kind`` around ``part``: found from within, as nobody agrees whose the
        parentheses are.
        """
        inner: cst.CSTNode = self.expression(unstarred(part))
        for outer in self.ancestors(inner):
            if isinstance(outer, kind):
                return outer
            if isinstance(outer, (cst.BaseExpression, cst.BaseSmallStatement)) and not isinstance(
                outer, cst.StarredElement
            ):
                break
        return None

    def _in_fstring(self, node: ast.expr, string: ast.JoinedStr) -> cst.BaseExpression | None:
        """The n-th expression of this spelling in the (outermost) string, as positions are not to
        be trusted there.
        """
        wanted = _spelling(node)
        nth = next(
            i
            for i, n in enumerate(
                n for n in _preorder(string) if type(n) is type(node) and _spelling(n) == wanted
            )
            if n is node
        )
        for other in _descendants(self._at(string)):
            if isinstance(other, KINDS.get(type(node), ())) and self._dump(other) == wanted:
                if nth == 0:
                    assert isinstance(other, cst.BaseExpression)
                    return other
                nth -= 1
        return None

    def _dump(self, node: cst.CSTNode) -> str:
        try:
            return _spelling(ast.parse(f"({self.module.code_for_node(node)}\n)", mode="eval").body)
        except SyntaxError:
            return ""

    def _column(self, line: int, byte: int) -> int:
        """LibCST's column for one of ``ast``."""
        text = self.source.lines[line - 1]
        column = byte if text.isascii() else len(text.encode()[:byte].decode())
        indent = blanks(text)
        # It writes none of these, see `Document`.
        return column - indent[:column].count("\f") if "\f" in indent else column

    # ------------------------------------------------------------------------------------ positions
    @cached_property
    def _positions(self) -> Mapping[cst.CSTNode, CodeRange]:
        return MetadataWrapper(self.module, unsafe_skip_copy=True).resolve(PositionProvider)

    @cached_property
    def _statements(self) -> dict[tuple[int, int], Statement]:
        found: dict[tuple[int, int], Statement] = {}
        for node, at in self._positions.items():
            if isinstance(node, (cst.BaseSmallStatement, cst.BaseCompoundStatement)):
                found[at.start.line, at.start.column] = node
        return found

    @cached_property
    def _expressions(self) -> dict[Span, list[cst.BaseExpression]]:
        return grouped(
            ((at.start.line, at.start.column, at.end.line, at.end.column), node)
            for node, at in self._positions.items()
            if isinstance(node, cst.BaseExpression)
        )

    def indent_of(self, node: cst.CSTNode) -> int:
        """The column of the first character of ``node``'s first line that is not a blank."""
        return len(blanks(self.source.lines[self._positions[node].start.line - 1]))

    def touches_word(self, node: cst.BaseExpression) -> bool:
        """Whether a word stands directly before or after ``node`` and its parentheses, as in
        ``return(x)`` or ``[x]if y``.
        """
        at, lines = self._positions[node], self.source.lines
        before = lines[at.start.line - 1][: at.start.column]
        after = lines[at.end.line - 1][at.end.column :]
        for _ in node.lpar:
            before = before.rstrip().removesuffix("(")
            after = after.lstrip().removeprefix(")")
        return _is_word(before[-1:]) or _is_word(after[:1])

    # ------------------------------------------------------------------------------------ ancestors
    def ancestors(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """The nodes around ``node``, innermost first; the module is the last."""
        parents = self._parents
        while (parent := parents.get(id(node))) is not None:
            yield parent
            node = parent

    @cached_property
    def _parents(self) -> dict[int, cst.CSTNode]:
        parents: dict[int, cst.CSTNode] = {}
        todo: list[cst.CSTNode] = [self.module]
        while todo:
            node = todo.pop()
            for child in children(node):
                parents[id(child)] = node
                todo.append(child)
        return parents


def children(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The parts of ``node`` that are code, in order; whitespace and punctuation are left out
    (``node.children`` rebuilds the node).
    """
    for name in _fields(type(node)):
        value = getattr(node, name)
        if isinstance(value, cst.CSTNode):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from value


@cache
def _fields(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind) if not _PUNCTUATION.search(f.name))


_PUNCTUATION = re.compile(
    r"whitespace|lines|^(lpar|rpar|lbracket|rbracket|lbrace|rbrace|comma|semicolon|equal|operator|header|footer|indent|newline)$"
)


def _descendants(node: cst.CSTNode | None) -> Iterator[cst.CSTNode]:
    if node is not None:
        yield node
        for child in children(node):
            yield from _descendants(child)


def _preorder(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _preorder(child)


def _spelling(node: ast.AST) -> str:
    return ast.dump(node).replace("ctx=Store()", "ctx=Load()")


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"
