"""One file of the user's project: its text, its syntax tree, and how to write it back unchanged.

Analysis works on :mod:`ast` (about ten times as fast as a concrete tree and typed); only the files
that are edited are parsed a second time, by LibCST, when the edits are composed. Every ``ast`` node
carries a link to its :class:`Source` and to its parent, so a node is a complete address.
"""

from __future__ import annotations

import ast
import codecs
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import chain, pairwise, takewhile
from pathlib import Path
from typing import Protocol, TypeGuard, TypeVar

from autofast.model.names import first_part
from autofast.model.several import any_of, first_such, grouped, one
from autofast.model.syntax import DEFINITIONS, Def, is_stored

N = TypeVar("N", bound=ast.AST)
T = TypeVar("T")
ByNode = dict[ast.AST, T]
Nodes = set[ast.AST]
Said = tuple[ast.AST, str]  # a place, and what is said of it
IGNORE = re.compile(r"#\s*autofast:\s*ignore(-file)?(?![\w-])(?:\[([^\]]*)\])?")


class BadInput(Exception):
    """Something the user must mend. ``str()`` is the one line that is shown."""


class Endless(BadInput):
    """A script that would take too long to read."""


class Source:
    """A readable Python file.

    Attributes:
        path: absolute path (``-`` for stdin).
        rel: posix path relative to the project root, as it is shown and written in reports.
        text: the decoded text with ``\\n`` line ends and without a byte order mark.
        tree: ``ast.Module`` of ``text``; each node has its source and parent (see
            :func:`source_of`, :func:`parent_of`).
        spared: the rules that the configuration keeps away from this file.
        is_notebook: its cells are run by hand, in one process that stays.
    """

    is_notebook = False

    def __init__(self, path: Path, rel: str, raw: bytes):
        self.path, self.rel, self.raw = path, rel, raw
        self.spared: frozenset[str] = frozenset()
        rel = shown_path(path) if path.is_absolute() else rel  # in what is said of it
        self.encoding, self.bom = _encoding(raw, rel)
        try:
            decoded = raw[len(codecs.BOM_UTF8) if self.bom else 0 :].decode(self.encoding)
        except (UnicodeDecodeError, LookupError) as error:
            raise BadInput(_no_text(raw, rel, error)) from None
        if "\0" in decoded:
            raise BadInput(f"{rel}:1: a binary file, not Python source; give a .py file")
        self.newline = _newline(decoded)
        self.text = decoded.replace("\r\n", "\n").replace("\r", "\n")
        self.tree = _parse(self.text, rel)
        _link(self.tree, self)

    def encode(self, text: str) -> bytes:
        """The bytes to write for ``text``: byte order mark, encoding and line ends as read."""
        if self.newline == "mixed":
            ends = re.findall(r"\r\n|\r|\n", self.raw.decode(self.encoding))
            other = next(n for n, end in enumerate(ends, 1) if end != ends[0])
            raise BadInput(
                f"{shown_path(self.path)}:{other}: has another line ending than the lines before; "
                "make them uniform first (e.g. with dos2unix)"
            )
        body = text.replace("\n", self.newline)
        return (codecs.BOM_UTF8 if self.bom else b"") + body.encode(self.encoding)

    def shown(self, line: int) -> int:
        """The line of the file, as users see it, that is line ``line`` of ``text``."""
        return line

    def cell(self, line: int) -> tuple[int, int] | None:
        """The cell of a notebook, and the line in it, that is line ``line`` of ``text``; None in a
        script.
        """
        return None

    def place(self, line: int) -> str:
        """``train.py:12``, ``train.ipynb:cell 3:5``: how people are told of a line of ``text``."""
        cell = self.cell(line)
        return f"{self.rel}:cell {cell[0]}:{cell[1]}" if cell else f"{self.rel}:{self.shown(line)}"

    def words(self, line: int) -> str:
        """``line 12``, or ``line 5 of cell 3``."""
        cell = self.cell(line)
        return f"line {cell[1]} of cell {cell[0]}" if cell else f"line {self.shown(line)}"

    @cached_property
    def lines(self) -> list[str]:
        """The lines of ``text`` without their ends; line ``n`` is ``lines[n - 1]``."""
        return self.text.split("\n")

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All nodes of ``tree``, in the order of :func:`ast.walk`, which takes far longer the
        second time too.
        """
        return tuple(walk(self.tree))

    def each(self, kind: type[N]) -> list[N]:
        """The nodes of one kind, in the same order."""
        return self._by_kind.get(kind, [])  # type: ignore[return-value]

    def attributes(self, name: str) -> list[ast.Attribute]:
        """The places that read, set or delete ``.name`` of anything, in the same order."""
        return self._by_attribute.get(name, [])

    @cached_property
    def _by_attribute(self) -> dict[str, list[ast.Attribute]]:
        return grouped((node.attr, node) for node in self.each(ast.Attribute))

    @cached_property
    def _by_kind(self) -> dict[type, list[ast.AST]]:
        return grouped((type(node), node) for node in self.nodes)

    def stored_in(self, statement: ast.AST) -> frozenset[str]:
        """The names that get a value anywhere in a statement of this file."""
        if statement not in self._stored:
            self._stored[statement] = frozenset(
                n.id for n in walk(statement) if isinstance(n, ast.Name) and is_stored(n)
            )
        return self._stored[statement]

    @cached_property
    def _stored(self) -> ByNode[frozenset[str]]:
        return {}

    @cached_property
    def ignores(self) -> dict[int, frozenset[str]]:
        """Line number -> names in its ``# autofast: ignore[...]`` comment; an empty set means every
        rule.
        """
        return {line: names for line, whole, names in self._comments if not whole}

    @cached_property
    def file_ignores(self) -> dict[int, frozenset[str]]:
        """The same of ``# autofast: ignore-file[...]`` comments, which speak of the whole file."""
        return {line: names for line, whole, names in self._comments if whole}

    @cached_property
    def _comments(self) -> list[tuple[int, bool, frozenset[str]]]:
        found: list[tuple[int, bool, frozenset[str]]] = []
        if "autofast" not in self.text:
            return found
        try:
            for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
                if token.type == tokenize.COMMENT and (match := IGNORE.search(token.string)):
                    names = frozenset(n.strip() for n in (match[2] or "").split(",") if n.strip())
                    found.append((token.start[0], bool(match[1]), names))
        except (tokenize.TokenError, IndentationError, SyntaxError):
            pass
        return found

    @cached_property
    def rebound(self) -> frozenset[str]:
        """The names that some function declares ``global`` or ``nonlocal``."""
        return frozenset(
            n
            for node in self.nodes
            if isinstance(node, (ast.Global, ast.Nonlocal))
            for n in node.names
        )

    @cached_property
    def names(self) -> frozenset[str]:
        """Every identifier that occurs anywhere in the file: a new name must be none of them."""
        found: set[str] = set()
        for node in self.nodes:
            if isinstance(node, ast.Name):
                found.add(node.id)
            elif isinstance(node, ast.arg):
                found.add(node.arg)
            elif isinstance(node, DEFINITIONS):
                found.add(node.name)
            elif isinstance(node, ast.alias):
                found.add(first_part(node.asname or node.name))
            elif isinstance(node, ast.ExceptHandler) and node.name:
                found.add(node.name)
        return frozenset(found)

    def fresh(self, *candidates: str) -> str:
        """The first of ``candidates`` (then ``candidates[0] + '_2'``, ...) that the file does not
        use.
        """
        for name in candidates:
            if name not in self.names:
                return name
        n = 2
        while f"{candidates[0]}_{n}" in self.names:
            n += 1
        return f"{candidates[0]}_{n}"

    def segment(self, node: ast.AST) -> str:
        """The source text of ``node``; empty for what stands nowhere. Columns of nodes count
        bytes.
        """
        end = getattr(node, "end_lineno", None)
        if end is None:
            return ""
        first, begin, stop = node.lineno, node.col_offset, node.end_col_offset  # type: ignore[attr-defined]
        lines = self._bytes[first - 1 : end]
        lines[-1] = lines[-1][:stop]
        lines[0] = lines[0][begin:]
        return b"\n".join(lines).decode()

    @cached_property
    def _bytes(self) -> list[bytes]:
        return [line.encode() for line in self.lines]

    def __repr__(self) -> str:
        return f"Source({self.rel})"


class Told(Source):
    """What a part of a library does, told in Python for the reader to follow: no file of anybody's,
    so nothing in it can be changed. ``rel`` names the part."""

    def place(self, line: int) -> str:
        return self.rel

    def words(self, line: int) -> str:
        return "a line"


# ------------------------------------------------------------------------------- nodes as addresses
def source_of(node: ast.AST) -> Source:
    """The file that ``node`` stands in."""
    source: Source = node._af_source  # type: ignore[attr-defined]
    return source


def first_line(node: ast.AST) -> str:
    """The text of ``node`` as it is shown: what stands on its first line."""
    return source_of(node).segment(node).split("\n")[0]


def line_of(node: ast.AST | None) -> int:
    """The line of ``node``; 1 for a module."""
    return getattr(node, "lineno", 1)


class Placed(Protocol):
    """What stands at a node of the tree."""

    @property
    def node(self) -> ast.AST | None: ...


def at(place: ast.AST | Placed | None) -> str:
    """A place in words, as people are told of it from wherever they stand: ``line 12 of data.py``,
    ``line 5 of cell 3 of train.ipynb``.

    What is said of a place in that file itself leaves the file out
    (:meth:`autofast.report.record.Record.of`).
    """
    node = place if isinstance(place, ast.AST) else getattr(place, "node", None)
    source: Source | None = getattr(node, "_af_source", None)
    line = line_of(node)
    return f"line {line}" if source is None else f"{source.words(line)} of {source.rel}"


def parent_of(node: ast.AST) -> ast.AST | None:
    """The node around ``node``; None for a module."""
    parent: ast.AST | None = node._af_parent  # type: ignore[attr-defined]
    return parent


def ancestors(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes around ``node``, innermost first."""
    parent = parent_of(node)
    while parent is not None:
        yield parent
        parent = parent_of(parent)


def outwards(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Each node and the one around it, from ``node`` on: from which side one comes to it."""
    return pairwise(chain((node,), ancestors(node)))


def children(node: ast.AST) -> tuple[ast.AST, ...]:
    """The nodes right below ``node``, which :func:`ast.iter_child_nodes` would look for each
    time.
    """
    known: tuple[ast.AST, ...] | None = getattr(node, "_af_children", None)
    return tuple(ast.iter_child_nodes(node)) if known is None else known


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """``node`` and all nodes below it, as :func:`ast.walk`; those of functions are kept."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and hasattr(node, "_af_children"):
        known: list[ast.AST] | None = getattr(node, "_af_below", None)
        if known is None:
            known = node._af_below = list(_walked(node))  # type: ignore[union-attr]
        return iter(known)
    return _walked(node)


def _walked(node: ast.AST) -> Iterator[ast.AST]:
    todo = [node]
    for here in todo:  # which grows meanwhile
        yield here
        try:
            todo += here._af_children  # type: ignore[attr-defined]
        except AttributeError:
            todo += ast.iter_child_nodes(here)


def nodes_in(tree: ast.AST, *kinds: type[N]) -> Iterator[N]:
    """The nodes of these kinds in ``tree``, itself included, in the order of :func:`walk`."""
    return (node for node in walk(tree) if isinstance(node, kinds))


def contains_kind(tree: ast.AST, *kinds: type[ast.AST]) -> bool:
    """Whether a node of one of these kinds is in ``tree``, itself included."""
    return any_of(walk(tree), kinds)


def enclosing(node: ast.AST, *kinds: type[N]) -> N | None:
    """The innermost node of one of these kinds around ``node``."""
    return first_such(ancestors(node), kinds)


def within(node: ast.AST, outer: ast.AST) -> bool:
    """Whether ``outer`` is ``node`` or stands around it."""
    return node is outer or outer in ancestors(node)


def any_within(nodes: Iterable[ast.AST], outer: ast.AST) -> bool:
    """Whether one of them is ``outer``, or is inside it."""
    return any(within(node, outer) for node in nodes)


def within_any(node: ast.AST, outers: Iterable[ast.AST]) -> bool:
    """Whether a node is one of those, or is inside one."""
    return any(within(node, outer) for outer in outers)


def statement_of(node: ast.AST) -> ast.stmt:
    """The innermost statement that holds ``node`` (``node`` itself if it is one)."""
    for outer in statements_around(node):
        return outer
    raise ValueError("a module has no statement around it")


def statements_around(node: ast.AST) -> Iterator[ast.stmt]:
    """The statement that holds ``node``, and those around that one, innermost first."""
    return (outer for outer in (node, *ancestors(node)) if isinstance(outer, ast.stmt))


def within_statement(node: ast.AST) -> Iterator[ast.AST]:
    """What stands around ``node`` in its statement, innermost first."""
    return takewhile(lambda outer: not isinstance(outer, ast.stmt), ancestors(node))


def function_of(node: ast.AST) -> Def | ast.Lambda | ast.Module:
    """The innermost function (or the module) whose code ``node`` is."""
    for outer in ancestors(node):
        if isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Module)):
            return outer
    raise ValueError("no scope")


def is_same_function(one: ast.AST, other: ast.AST) -> bool:
    """Whether two places stand in the same function, or both in none."""
    return function_of(one) is function_of(other)


def is_at_top(node: ast.AST) -> bool:
    """Whether a place stands in no function."""
    return isinstance(function_of(node), ast.Module)


def is_generator(function: ast.AST) -> bool:
    """Whether a call of a function gives a generator, and runs nothing yet."""
    known: bool | None = getattr(function, "_af_is_generator", None)
    if known is None:
        known = any(
            isinstance(n, (ast.Yield, ast.YieldFrom)) and function_of(n) is function
            for n in walk(function)
        )
        function._af_is_generator = known  # type: ignore[attr-defined]
    return known


def block_of(stmt: ast.stmt) -> list[ast.stmt]:
    """The list of statements that ``stmt`` is an element of."""
    parent = parent_of(stmt)
    for name in ("body", "orelse", "finalbody"):
        block = getattr(parent, name, None)
        if isinstance(block, list) and stmt in block:
            return block
    raise ValueError("a statement outside any block")


def is_elif(node: ast.AST) -> bool:
    """Whether it is an ``elif``, and no ``if`` that stands alone below an ``else``."""
    outer = parent_of(node)
    return (
        isinstance(node, ast.If)
        and isinstance(outer, ast.If)
        and outer.orelse == [node]
        and node.col_offset == outer.col_offset
    )


def live_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """``node`` and all nodes in it, but for branches that a constant keeps from running (``if
    False:``).

    What makes a function a generator, or a name global, does so there, too.
    """
    todo = [node]
    while todo:
        here = todo.pop()
        yield here
        if is_switched(here):
            live_arm = live_block(here)
            todo += live_arm
            dead = (n for s in (*here.body, *here.orelse) if s not in live_arm for n in walk(s))
            todo += [
                n
                for n in dead
                if isinstance(n, (ast.Global, ast.Nonlocal, ast.Yield, ast.YieldFrom))
            ]
        else:
            todo += children(here)


def live_block(switched: ast.If) -> list[ast.stmt]:
    """The arm of an ``if`` with a constant test that runs."""
    return switched.body if switched.test.value else switched.orelse  # type: ignore[attr-defined]


def running(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements, with the arm that runs in place of an ``if`` with a constant."""
    for stmt in body:
        yield from running(live_block(stmt)) if is_switched(stmt) else (stmt,)


def is_switched(node: ast.AST) -> TypeGuard[ast.If]:
    """An ``if`` whose test is a constant."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Constant)


def _link(tree: ast.Module, source: Source) -> None:
    tree._af_source, tree._af_parent = source, None  # type: ignore[attr-defined]
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        below = node._af_children = tuple(ast.iter_child_nodes(node))  # type: ignore[attr-defined]
        for child in below:
            if isinstance(
                child, (ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop)
            ):
                child._af_children = ()  # type: ignore[union-attr]
                continue  # these are shared singletons
            child._af_source, child._af_parent = source, node
            todo.append(child)


# ------------------------------------------------------------------------------------ reading bytes
def shown_path(path: Path) -> str:
    """``path`` as the user would type it: relative where it is below the current folder."""
    here = Path.cwd()
    return path.relative_to(here).as_posix() if here == path or here in path.parents else str(path)


def _encoding(raw: bytes, rel: str) -> tuple[str, bool]:
    bom = raw.startswith(codecs.BOM_UTF8)
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
    except (SyntaxError, UnicodeDecodeError) as error:
        raise BadInput(_no_text(raw, rel, error)) from None
    return ("utf-8" if encoding == "utf-8-sig" else encoding), bom


def _no_text(raw: bytes, rel: str, error: Exception) -> str:
    """What is wrong with a file that cannot be decoded."""
    if b"\0" in raw and not raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return f"{rel}:1: a binary file, not Python source; give a .py file"
    if str(error).startswith(("invalid or missing", "'utf-8' codec")):
        return f"{rel}:1: not UTF-8, and it names no other encoding that it is in; save it as UTF-8"
    return f"{rel}:1: not a Python text file ({error}); save it as UTF-8"


def _newline(text: str) -> str:
    crlf = text.count("\r\n")
    lf, cr = text.count("\n") - crlf, text.count("\r") - crlf
    kinds = [end for end, n in (("\r\n", crlf), ("\n", lf), ("\r", cr)) if n]
    return one(kinds, "mixed" if kinds else "\n")


_AS_READ = (
    f" (in Python {sys.version_info[0]}.{sys.version_info[1]}); mend it first, "
    "or run autofast with the Python that it is written for"
)


def _parse(text: str, rel: str) -> ast.Module:
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "invalid escape sequence" is the user's business
            return ast.parse(text)
    except SyntaxError as error:
        from autofast.model.python2 import leftovers

        raise BadInput(
            f"{rel}:{error.lineno or 1}: syntax error: {error.msg}{leftovers(text) or _AS_READ}"
        ) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise BadInput(f"{rel}:1: cannot be parsed ({type(error).__name__}: {error})") from None
