"""What the tests of the engine share: sources from text, nodes found by their spelling, and rules
made of them.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

from autofast.edit.compose import compose
from autofast.edit.edits import Edit
from autofast.model.source import Source
from autofast.model.torch_age import TorchAge
from autofast.rule import Effect, Finding, Rule


def source(text: str | bytes, name: str = "train.py") -> Source:
    """A file with exactly this text."""
    return Source(Path("/project") / name, name, text if isinstance(text, bytes) else text.encode())


def script(*sources: Source) -> Any:
    """As much of a script as a plan looks at."""
    log = SimpleNamespace(each=lambda: ())
    made = SimpleNamespace(
        entry=sources[0], sources=list(sources), log=log, unread="", torch=TorchAge()
    )
    made.replaced = None
    made.values = lambda node: frozenset()
    made.of_node = lambda question, node: question(made, node)
    made.nodes = [node for file in sources for node in file.nodes]
    made.each = lambda kind: (node for file in sources for node in file.each(kind))
    made.source_at = lambda path: next((file for file in sources if file.path == path), None)
    known: dict[Any, Any] = {}

    def analysis(kind: Any) -> Any:
        if kind not in known:
            known[kind] = kind(made)
        return known[kind]

    made.analysis, made.forget = analysis, known.clear
    return made


def expr(file: Source, spelling: str, nth: int = 0) -> Any:
    """The ``nth`` expression that is spelled so."""
    return [
        n for n in ast.walk(file.tree) if isinstance(n, ast.expr) and file.segment(n) == spelling
    ][nth]


def stmt(file: Source, spelling: str, nth: int = 0) -> Any:
    """The ``nth`` statement whose text begins so."""
    return [
        n
        for n in ast.walk(file.tree)
        if isinstance(n, ast.stmt) and file.segment(n).startswith(spelling)
    ][nth]


def call(file: Source, function: str, nth: int = 0) -> Any:
    """The ``nth`` call of a function, in the order of the code."""
    found = [
        n
        for n in ast.walk(file.tree)
        if isinstance(n, ast.Call) and ast.unparse(n.func) == function
    ]
    return sorted(found, key=lambda n: (n.lineno, n.col_offset))[nth]


def edited(text: str, edits: Callable[[Source], Iterable[Edit]], limit: int | None = None) -> str:
    """The text after edits; both are given without the indentation that the test has."""
    file = source(dedent(text))
    return compose(edits(file), limit).get(file, file.text)


def rule(
    name: str,
    edits: Callable[[Source], Iterable[tuple[ast.AST, Iterable[Edit]]]],
    effect: Effect = Effect.EXACT,
    own: Effect | None = None,
    **more: Any,
) -> Rule:
    """A rule of this ``effect`` with one finding (of its ``own`` effect) for each node and edits
    that ``edits`` yields for a file.
    """

    def find(of: Any, options: object) -> Any:
        for file in of.sources:
            for node, wanted in edits(file):
                yield Finding(node, f"{name} speaks", tuple(wanted), effect=own, **more)

    return Rule(name, effect, f"{name}.", find)
