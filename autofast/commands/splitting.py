"""``--split-patches``: one patch for each rule, each for what the one before has made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autofast.commands.files import Output, write_all
from autofast.commands.rewriting import Rewritten
from autofast.edit.hunks import changes, lines_of
from autofast.edit.passes import Passes
from autofast.faults import PostConditionError
from autofast.model.opening import open_source
from autofast.model.source import BadInput, Source
from autofast.report import diff
from autofast.report.diff import Change, FileDiff


@dataclass(frozen=True)
class Step:
    """What ``rules`` change, where all earlier steps have been taken."""

    rules: tuple[str, ...]
    diffs: tuple[FileDiff, ...]


def write_patches(result: Rewritten, folder: Path, *, force: bool) -> list[Path]:
    """Write the patches below ``folder``, in the order of their names; raises ``BadInput``, and
    then nothing was written.
    """
    if notebook := next((s.rel for s in result.texts if s.is_notebook), ""):
        raise BadInput(
            f"{notebook}: a patch of a notebook's code fits no file; write it with -o or --in-place"
        )
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder}: is not a folder; give another name")
    found = list(steps(result))
    if found and not force and folder.is_dir() and any(folder.glob("*.patch")):
        raise BadInput(
            f"{folder}: has patches; give another folder, or write over those of the same name with --force"
        )
    outputs = [
        Output(folder / f"{n:02}-{'+'.join(step.rules)}.patch", diff.patch(step.diffs))
        for n, step in enumerate(found, 1)
    ]
    write_all(outputs, force=force, parents=True)
    return [output.path for output in outputs]


def steps(result: Rewritten) -> Iterator[Step]:
    """The rewrite, rule by rule; the last step ends where the rewrite does.

    A rule that changes nothing without another one, or whose part does not stand by itself, goes
    together with those after it.
    """
    order = sorted(result.plan.applied)
    before = {source: source.text for source in result.texts}
    done: frozenset[str] = frozenset()
    for n in range(1, len(order) + 1):
        made = _part(result, order[:n]) if n < len(order) else result.plan
        if made is None:
            continue
        texts = made.texts()
        if set(texts) - set(before):
            continue  # the whole rewrite leaves that file alone
        after = {source: texts.get(source, source.text) for source in before}
        rules = tuple(sorted(made.applied - done)) or (order[n - 1],)
        if diffs := tuple(_diffs(before, after, rules)):
            yield Step(rules, diffs)
            before, done = after, made.applied


def _part(result: Rewritten, rules: list[str]) -> Passes | None:
    """The rewrite with some of its rules; None where it does not stand."""
    try:
        return result.plan.subset(rules)
    except PostConditionError:
        return None


def _diffs(
    before: dict[Source, str], after: dict[Source, str], rules: tuple[str, ...]
) -> Iterator[FileDiff]:
    for source, text in after.items():
        if text != before[source]:
            old = open_source(source.path, source.rel, source.encode(before[source]))
            found = changes(lines_of(before[source]), lines_of(text))
            yield FileDiff(old, text, [Change(c.old, c.new, rules) for c in found])
