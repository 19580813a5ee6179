"""Changes of a script's spelling that change nothing about what it does: findings must stay."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import black

Texts = Mapping[Path, str]
Change = Callable[[Texts], Texts]


def apply(change: Change, texts: Texts) -> tuple[Texts, Texts]:
    """The texts before and after ``change``: renaming starts from texts without layout, so that
    lines can be compared.
    """
    before = (
        {path: _unparsed(text, ast.parse(text)) for path, text in texts.items()}
        if change is renamed
        else texts
    )
    return before, change(before)


def _unparsed(text: str, tree: ast.Module) -> str:
    """``tree`` as code, under the declaration of the encoding that ``text`` begins with."""
    declared = [line for line in text.split("\n")[:2] if re.match(r"#.*coding[:=]", line)]
    return "\n".join([*declared, ast.unparse(tree), ""])


def place(node: ast.AST) -> str:
    """Where a finding is, in words that do not depend on layout: the code of an expression, the
    header of a statement.
    """
    if isinstance(node, ast.expr):
        return _plain(node)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return f"{type(node).__name__}"
    if isinstance(node, (ast.With, ast.AsyncWith)):
        return "with " + ", ".join(_plain(item) for item in node.items)
    if isinstance(node, (ast.For, ast.AsyncFor)):
        return f"for {_plain(node.target)} in {_plain(node.iter)}"
    if isinstance(node, (ast.While, ast.If)):
        return f"{type(node).__name__} {_plain(node.test)}"
    if isinstance(node, (ast.Try, ast.Module)):
        return type(node).__name__
    return _plain(node)


def _plain(node: ast.AST) -> str:
    return re.sub(NEW + r"(\w+)", r"\1", ast.unparse(node))


# -------------------------------------------------------------------------------------- the changes
def black_before(texts: Texts) -> Texts:
    return {
        path: black.format_str(text, mode=black.Mode(line_length=100))
        for path, text in texts.items()
    }


def comments_and_blank_lines(texts: Texts) -> Texts:
    return {
        path: _before_statements(text, lambda indent, _: [f"{indent}# a remark", "", ""], every=2)
        for path, text in texts.items()
    }


def logging_calls(texts: Texts) -> Texts:
    return {path: _before_statements(text, _logging, every=4) for path, text in texts.items()}


def dead_branches(texts: Texts) -> Texts:
    return {path: _before_statements(text, _dead, every=5) for path, text in texts.items()}


def renamed(texts: Texts) -> Texts:
    """All variables, parameters, functions and attributes of self that nothing refers to by a
    string or a keyword get new names.
    """
    trees = {path: ast.parse(text) for path, text in texts.items()}
    names = _renameable(list(trees.values()))
    return {
        path: _unparsed(texts[path], _Rename(names).visit(tree)) for path, tree in trees.items()
    }


CHANGES: list[Change] = [
    black_before,
    comments_and_blank_lines,
    logging_calls,
    dead_branches,
    renamed,
]


# ---------------------------------------------------------------------------------- inserting lines
def _logging(indent: str, number: int) -> list[str]:
    return [f'{indent}print("reached", {number})']


def _dead(indent: str, number: int) -> list[str]:
    step = "\t" if "\t" in indent else "    "
    return [f"{indent}if False:", f"{indent}{step}print({number})"]


def _before_statements(text: str, lines: Callable[[str, int], list[str]], every: int) -> str:
    """Insert lines before every so many of the statements that begin a line (never before
    docstrings and __future__).
    """
    rows = text.split("\n")
    starts = []
    for node in ast.walk(ast.parse(text)):
        for block in (getattr(node, name, None) for name in ("body", "orelse", "finalbody")):
            for k, stmt in enumerate(block if isinstance(block, list) else []):
                first = min([stmt.lineno, *(d.lineno for d in getattr(stmt, "decorator_list", []))])
                indent = rows[first - 1][: len(rows[first - 1]) - len(rows[first - 1].lstrip())]
                begins_line = len(indent.encode()) == stmt.col_offset and not (
                    k == 0 and isinstance(stmt, ast.Expr)
                )
                elif_or_class = isinstance(node, ast.ClassDef) or rows[
                    first - 1
                ].lstrip().startswith("elif")
                if begins_line and not elif_or_class and not isinstance(stmt, ast.ImportFrom):
                    starts.append((first, indent))
    for number, (first, indent) in reversed(list(enumerate(sorted(set(starts))))):
        if number % every == 0:
            rows[first - 1 : first - 1] = lines(indent, number)
    return "\n".join(rows)


# ----------------------------------------------------------------------------------------- renaming
NEW = "zz_"


def _renameable(trees: list[ast.Module]) -> set[str]:
    """Names that are bound as variables or parameters, and that nothing else may refer to by the
    same word.
    """
    bound: set[str] = set()
    taken: set[str] = set(dir(builtins)) | {"self", "cls"}
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                bound.add(node.id)
            elif isinstance(node, ast.arg):
                bound.add(node.arg)
            elif isinstance(node, ast.keyword) and node.arg:
                taken.add(node.arg)
            elif isinstance(node, ast.alias):
                taken.update(node.name.split("."))
                taken.add(node.asname or node.name)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                taken.add(node.value)
            elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                taken.add(node.name)
                if isinstance(
                    node, ast.ClassDef
                ):  # fields, which are attributes of its objects, and options of a command line
                    taken.update(
                        s.target.id
                        for s in node.body
                        if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)
                    )
            elif isinstance(node, (ast.Global, ast.Nonlocal)):
                taken.update(node.names)
            elif isinstance(node, ast.ExceptHandler) and node.name:
                taken.add(node.name)
        # what other files import, or reach as an attribute of the module, keeps its name
        if len(trees) > 1:
            taken.update(
                n.id
                for stmt in tree.body
                for n in ast.walk(stmt)
                if isinstance(n, ast.Name) and not _inside_function(stmt)
            )
    return {name for name in bound - taken if not name.startswith("__")}


def _inside_function(stmt: ast.stmt) -> bool:
    return isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))


class _Rename(ast.NodeTransformer):
    def __init__(self, names: set[str]):
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = NEW + node.id if node.id in self.names else node.id
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.arg = NEW + node.arg if node.arg in self.names else node.arg
        return node
