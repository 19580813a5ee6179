"""``# autofast: ignore[rule]``: which comments speak about a finding, and which about none."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from autofast.edit.merge import anchors
from autofast.edit.spans import own_lines
from autofast.model.source import Source, ancestors, source_of
from autofast.rule import Finding


@dataclass(frozen=True)
class UnusedIgnore:
    """A comment, or some of the names in it, that kept nothing from being changed."""

    source: Source
    line: int
    names: tuple[str, ...]  # none: the comment names no rule

    def __str__(self) -> str:
        what = f"ignore[{', '.join(self.names)}]" if self.names else "ignore"
        return f"{self.source.rel}:{self.line}: unused `# autofast: {what}`"


class Ignores:
    """The comments of a project; they remember which of them were needed."""

    def __init__(self) -> None:
        self._used: set[tuple[Source, int, str]] = set()

    def apply(self, finding: Finding) -> Finding:
        """The finding; marked as ignored where a comment on its statement, or on the head of a block around it, says so.

        So does a comment at any other place that it would change: its edits are made together or not at all.
        """
        hit = False
        for node in (finding.node, *(n for edit in finding.edits for n in anchors(edit))):
            source = source_of(node)
            for line in _lines(node) if source.ignores else ():
                names = source.ignores.get(line)
                if names is not None and (not names or finding.rule in names):
                    self._used.add((source, line, finding.rule if names else ""))
                    hit = True
        return replace(finding, edits=(), ignored=True) if hit else finding

    def unused(self, sources: Iterable[Source], rules: frozenset[str]) -> Iterator[UnusedIgnore]:
        """What :meth:`apply` had no use for; names of rules that did not take part are given the benefit of the doubt."""
        for source in sources:
            for line, names in sorted(source.ignores.items()):
                idle = tuple(
                    sorted(n for n in names if n in rules and (source, line, n) not in self._used)
                )
                if idle or (not names and (source, line, "") not in self._used):
                    yield UnusedIgnore(source, line, idle)


def is_spared(node: ast.AST, rule: str) -> bool:
    """Whether a comment keeps ``rule`` from changing ``node``: for changes of several places that are made together or not at all."""
    ignores = source_of(node).ignores
    return bool(ignores) and any(
        (names := ignores.get(n)) is not None and (not names or rule in names) for n in _lines(node)
    )


def _lines(node: ast.AST) -> Iterator[int]:
    """Lines whose comments speak about ``node``."""
    for outer in (node, *ancestors(node)):
        if isinstance(outer, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            first, last = own_lines(outer)
            yield from range(first, last + 1)
