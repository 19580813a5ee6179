"""Findings that must be put otherwise once the new text is read: refused, or with an import that
stands early enough.

What a notebook shows below a cell is the value of the expression that ends it: that must stay the
last thing there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from autofast.edit.edits import TEXTS, Edits, Import
from autofast.edit.hunks import Hunk
from autofast.edit.interfaces import changed_interfaces
from autofast.edit.merge import anchors, file_of
from autofast.edit.plain_containers import missing_attributes
from autofast.edit.unbound import Unbound, unbound_reads
from autofast.flow.imports import Binding, bindings
from autofast.flow.scopes import bound_by
from autofast.model.names import first_part
from autofast.model.notebook import CELL, Notebook
from autofast.model.script import Script
from autofast.model.several import all_of
from autofast.model.source import (
    Source,
    ancestors,
    is_at_top,
    line_of,
    source_of,
    statement_of,
)
from autofast.model.torch_age import shown
from autofast.rule import Finding

MARK = re.compile(rf"^{re.escape(CELL)}(\d+)$")


def displaced(new: Script, source: Source, hunks: Sequence[Hunk]) -> Iterator[tuple[Hunk, int]]:
    """The hunks by which a cell ends in something else than the expression that it ended in, each
    with the line of that.
    """
    if not isinstance(source, Notebook):
        return
    fresh = new.source_at(source.path)
    ends = _ends(fresh) if fresh is not None else {}
    for cell, last in _ends(source).items():
        now = ends.get(cell)
        if isinstance(last, ast.Expr) and now is not None and not isinstance(now, ast.Expr):
            for hunk in hunks:
                if hunk.new[0] < (now.end_lineno or now.lineno) and hunk.new[1] >= now.lineno:
                    yield hunk, last.lineno


def _ends(source: Source) -> dict[int, ast.stmt]:
    """The last statement of each cell."""
    cells = [(n, int(m[1])) for n, line in enumerate(source.lines, 1) if (m := MARK.match(line))]
    found = {}
    for statement in source.tree.body:
        number = max((cell for line, cell in cells if line < statement.lineno), default=-1)
        found[number] = statement
    return found


Key = tuple[str, ast.AST, str]


@dataclass(frozen=True)
class Amendment:
    """What becomes of a finding: refused because of ``why``, or done with ``edits`` besides."""

    why: str = ""
    edits: Edits = ()

    def of(self, finding: Finding) -> Finding:
        """The finding as it stands now; one that is no fix stays as it is."""
        if not finding.edits:
            return finding
        if self.why:
            return replace(finding, edits=(), refusal=self.why)
        return replace(
            finding,
            edits=(*finding.edits, *(replace(edit, rule=finding.rule) for edit in self.edits)),
        )


Amendments = Mapping[Key, Amendment]


def key_of(finding: Finding) -> Key:
    """What names a finding in every plan for one script."""
    return finding.rule, finding.node, finding.message


def amendments(
    old: Script, new: Script, hunks: Mapping[Source, Sequence[Hunk]], known: Amendments
) -> dict[Key, Amendment]:
    """What must become of the findings whose text reads a variable where it may have no value, or
    that change what others call.

    ``known`` is what did not help.
    """
    found: dict[Key, Amendment] = {}
    for source, here in hunks.items():
        for changed in changed_interfaces(old, new, source, here):
            why = f"{changed.user} uses {changed.function.name}(), which {changed.what}"
            for finding in (f for h in changed.hunks for f in h.findings):
                found[key_of(finding)] = Amendment(why)
        for hunk, line in displaced(new, source, here):
            why = f"the notebook shows the expression on {source.words(line)}, which would no longer end its cell"
            found.update((key_of(finding), Amendment(why)) for finding in hunk.findings)
        for hunk, why in missing_attributes(new, source, here):
            found.update((key_of(finding), Amendment(why)) for finding in hunk.findings)
        for finding, why in _dated(old, new, source, here):
            found[key_of(finding)] = Amendment(why)
        for unbound in unbound_reads(old, new, source, here):
            for finding in _to_blame(source, unbound):
                key = key_of(finding)
                early = () if key in known else tuple(_early_import(source, unbound, finding))
                why = "" if early else _words(source, unbound, finding)
                merged = found.get(key, Amendment())
                found[key] = Amendment(merged.why or why, (*merged.edits, *early))
    return found


def _dated(
    old: Script, new: Script, source: Source, hunks: Sequence[Hunk]
) -> Iterator[tuple[Finding, str]]:
    """The findings that write what needs a newer torch than another line of the text runs with."""
    clash = None if old.torch.clash or new.torch.given else new.torch.clash
    place = None if clash is None else clash[1].node
    if clash is None or place is None or source_of(place).path != source.path:
        return
    why = f"{clash[0].words}, and what would be written needs torch {shown(clash[1].version)}"
    for hunk in hunks:
        if hunk.new[0] <= line_of(place) - 1 < hunk.new[1]:
            yield from ((finding, why) for finding in hunk.findings)


def _to_blame(source: Source, unbound: Unbound) -> list[Finding]:
    """The findings of the hunk that write the name; all of them where none does (the name was
    moved, or lost its value).
    """
    word = re.compile(rf"(?<![\w.]){re.escape(unbound.name)}\b")
    writing = [
        f
        for f in unbound.hunk.findings
        if any(
            word.search(text)
            for e in f.edits
            if file_of(e) is source
            for name in TEXTS
            if isinstance(text := getattr(e, name, None), str)
        )
    ]
    return writing or list(unbound.hunk.findings)


def _words(source: Source, unbound: Unbound, finding: Finding) -> str:
    line = next(
        (n.lineno for e in finding.edits if file_of(e) is source for n in anchors(e)),
        unbound.hunk.old[0] + 1,
    )
    stores = sorted(line_of(n) for n in source.nodes if unbound.name in bound_by(n))
    gets = f" (it gets one on {source.words(stores[0])})" if stores else ""
    return f"`{unbound.name}` may have no value yet on {source.words(line)}{gets}"


# ----------------------------------------------------------------------------- an import further up
def _early_import(source: Source, unbound: Unbound, finding: Finding) -> Iterator[Import]:
    """The import of the name, for a place above it, where that runs no code of the package earlier
    than the file itself does.
    """
    places = [statement_of(n) for e in finding.edits if file_of(e) is source for n in anchors(e)]
    every = [n for n in source.nodes if unbound.name in bound_by(n)]
    meant = {b for s in source.tree.body for b in bindings(s) if b.bound == unbound.name}
    if not places or len(meant) != 1 or not all_of(every, ast.alias):
        return
    (binding,) = meant
    place = min((_at_top(p) for p in places), key=lambda s: s.lineno)
    if all(is_at_top(n) for n in every) and _is_loaded(source, binding, place):
        yield Import(source, binding.code, above=place)


def _at_top(statement: ast.stmt) -> ast.stmt:
    return next(
        n
        for n in (statement, *ancestors(statement))
        if isinstance(n, ast.stmt) and n in n._af_source.tree.body  # type: ignore[attr-defined]
    )


def _is_loaded(source: Source, binding: Binding, place: ast.stmt) -> bool:
    """Whether the package is imported above ``place``, so that another import runs nothing."""
    root = first_part(binding.module)
    above = source.tree.body[: source.tree.body.index(place)]
    return bool(root) and any(first_part(b.module) == root for s in above for b in bindings(s))
