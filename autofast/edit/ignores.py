"""``# autofast: ignore[rule]`` and ``ignore-file[rule]``: which comments speak about a finding, and
which about none.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from autofast.edit.merge import anchors
from autofast.edit.spans import own_lines
from autofast.model.source import Source, ancestors, source_of
from autofast.rule import REGISTRY, Finding


@dataclass(frozen=True)
class UnusedIgnore:
    """A comment, or some of the names in it, that kept nothing from being changed."""

    source: Source
    line: int
    names: tuple[str, ...]  # none: the comment names no rule

    @property
    def kind(self) -> str:
        """The word behind ``autofast:``."""
        return "ignore-file" if self.line in self.source.file_ignores else "ignore"

    def __str__(self) -> str:
        what = self.kind
        if self.names:
            what += f"[{', '.join(self.names)}]"
        return f"{self.source.place(self.line)}: unused `# autofast: {what}`"


class Ignores:
    """The comments of a project; they remember which of them were needed."""

    def __init__(self) -> None:
        self._used: set[tuple[Source, int, str]] = set()

    def apply(self, finding: Finding) -> Finding:
        """The finding; marked as ignored where a comment on its statement, or on the head of a
        block around it, says so.

        So does a comment at any other place that it would change: its edits are made together or
        not at all.
        """
        hit = False
        for node in (finding.node, *(n for edit in finding.edits for n in anchors(edit))):
            source = source_of(node)
            hit = hit or finding.rule in source.spared
            for line, names in _comments(node):
                if meant := _meant(names, finding.rule):
                    self._used |= {(source, line, name) for name in meant}
                    hit = True
        return replace(finding, edits=(), ignored=True) if hit else finding

    def unused(self, sources: Iterable[Source], rules: frozenset[str]) -> Iterator[UnusedIgnore]:
        """What :meth:`apply` had no use for; names of rules that did not take part are given the
        benefit of the doubt.
        """
        for source in sources:
            for line, names in sorted({**source.ignores, **source.file_ignores}.items()):
                idle = tuple(
                    sorted(
                        n
                        for n in names
                        if _rules(n) <= rules and (source, line, n) not in self._used
                    )
                )
                if idle or (not names and (source, line, "") not in self._used):
                    yield UnusedIgnore(source, line, idle)


def is_spared(node: ast.AST, rule: str) -> bool:
    """Whether a comment, or the configuration, keeps ``rule`` from changing ``node``: for changes
    of several places that are made together or not at all."""
    return rule in source_of(node).spared or any(
        _meant(names, rule) for _, names in _comments(node)
    )


def _comments(node: ast.AST) -> Iterator[tuple[int, frozenset[str]]]:
    """The comments that speak about ``node``: line and names."""
    source = source_of(node)
    yield from source.file_ignores.items()
    if source.ignores:
        yield from ((n, source.ignores[n]) for n in _lines(node) if n in source.ignores)


def _meant(names: frozenset[str], rule: str) -> frozenset[str]:
    """Those of the names that mean ``rule``, by itself or by a group; the empty one where a comment
    names none.
    """
    return frozenset(n for n in names if rule in _rules(n)) if names else frozenset({""})


def _rules(name: str) -> frozenset[str]:
    of_group = frozenset(r.name for r in REGISTRY.values() if name in r.groups)
    return of_group or frozenset({name})


def _lines(node: ast.AST) -> Iterator[int]:
    """Lines whose comments speak about ``node``."""
    for outer in (node, *ancestors(node)):
        if isinstance(outer, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            first, last = own_lines(outer)
            yield from range(first, last + 1)
