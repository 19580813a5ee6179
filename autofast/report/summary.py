"""What is said about a rewrite: on standard error, so that standard output is the product alone."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from autofast.commands.output import STDOUT, Delivery, Destination
from autofast.commands.rewriting import Rewritten
from autofast.model.several import grouped
from autofast.model.source import shown_path
from autofast.report.record import Record
from autofast.report.style import Style, count, expected
from autofast.report.text import not_worth
from autofast.rule import Effect, Gain


def summary(result: Rewritten, to: Destination, delivery: Delivery, style: Style) -> str:
    """Rules applied, places left alone and why, work for a person, what was written, what to run
    next.
    """
    return "".join(line + "\n" for line in _lines(result, to, delivery, style))


def _lines(result: Rewritten, to: Destination, delivery: Delivery, style: Style) -> Iterator[str]:
    name = shown_path(result.script.entry.path)
    applied = [r for r in result.records if r.status == "fix"]
    yield style(_headline(name, applied, alone=bool(result.elsewhere)), "bold")
    yield from _applied(applied, style)
    yield from _section(
        "Left alone", [r for r in result.records if r.status == "refused"], style, "yellow"
    )
    yield from _section(
        "Advice", [r for r in result.records if r.status == "advice"], style, "cyan"
    )
    yield from not_worth([r for r in result.records if r.status == "small"])
    if result.elsewhere:
        yield style(
            "Not written, as they change other files (--in-place, --output-dir DIR or --patch FILE writes them):",
            "yellow",
        )
        yield from _applied(result.elsewhere, style)
    for warning in result.warnings:
        yield f"{style('Warning:', 'yellow', 'bold')} {warning}"
    for note in [*result.notes, *_imports_left_behind(result, to)]:
        yield f"{style('Note:', 'bold')} {note}"
    if delivery.written:
        yield f"Wrote {', '.join(_typed(path) for path in delivery.written)}"
    for made in delivery.commits:
        yield f"Commit {made}"
    if applied:
        yield from _next(result, to, delivery, name)


def _imports_left_behind(result: Rewritten, to: Destination) -> Iterator[str]:
    """A script in another folder no longer finds the modules beside the original."""
    home = result.script.entry.path.parent
    if (
        to.mode == "file"
        and to.path != STDOUT
        and len(result.script.sources) > 1
        and Path(to.path).resolve().parent != home
    ):
        yield f"the script imports files of its project: run {to.path} with PYTHONPATH={home}, or use --output-dir"


def _next(result: Rewritten, to: Destination, delivery: Delivery, name: str) -> Iterator[str]:
    """The commands that follow from this one."""
    if result.stdin:
        return
    entry = shlex.quote(name)
    if to.mode == "diff":
        yield f"Nothing was written; to write it: autofast rewrite {entry} --in-place (or -o FILE, --output-dir DIR, --patch FILE)"
    if to.mode == "patch" and to.path != STDOUT:
        yield f"To apply it: git apply {shlex.quote(to.path)} (in {_typed(result.root)})"
    if to.mode == "patches" and delivery.written:
        patches = " ".join(shlex.quote(_typed(path)) for path in delivery.written)
        yield f"To apply them, in this order: git apply {patches} (in {_typed(result.root)})"
    if to.mode == "file" and to.path != STDOUT:
        entry += f" {shlex.quote(to.path)}"
    elif to.mode == "folder":
        entry += f" {shlex.quote(str(Path(to.path) / result.script.entry.rel))}"
    elif to.mode == "commits":
        yield f"As it was: git worktree add ../before {delivery.start[:10]} (in {_typed(result.root)})"
        before = result.root.resolve().parent / "before" / result.script.entry.rel
        entry = f"{shlex.quote(shown_path(before))} {entry}"
    elif to.mode == "in-place":
        if delivery.kept is None:
            return
        yield f"As it was: {delivery.kept}"
        entry = f"{shlex.quote(str(delivery.kept / result.script.entry.rel))} {entry}"
    if any(
        rule.several_processes and rule.name in result.plan.applied for rule in result.plan.rules
    ):
        entry += (
            " --ddp" * (to.mode == "diff") + ' --launch-rewritten "torchrun --nproc-per-node=2"'
        )
    yield f"To verify: autofast verify {entry}"


def _typed(path: Path) -> str:
    return shown_path(path.resolve())


def _headline(name: str, applied: Sequence[Record], alone: bool) -> str:
    if not applied:
        return f"{name}: nothing to rewrite{' in this file alone' if alone else ''}"
    rules, places, files = ({r.rule for r in applied}, len(applied), {r.path for r in applied})
    what = f"{count(len(rules), 'rule')}, {count(places, 'place')} in {count(len(files), 'file')}"
    return f"{name}: {what}; strongest effect: {strongest(applied)}"


def strongest(records: Iterable[Record]) -> str:
    return max(Effect[record.effect.upper()] for record in records).name.lower()


def _applied(records: Iterable[Record], style: Style) -> Iterator[str]:
    """One line for each rule and file, what is expected to gain most first, with the lines of the
    original that it changes.
    """
    every = list(records)
    best = {rule: _best(r for r in every if r.rule == rule) for rule in {r.rule for r in every}}
    ordered = sorted(every, key=lambda r: (-_share(best[r.rule]), r.rule, r.path, r.line))
    width = max((len(r.rule) for r in ordered), default=0)
    told: set[str] = set()
    for (rule, _), group in groupby(ordered, key=lambda r: (r.rule, r.path)):
        places = list(group)
        why = "" if rule in told else expected(best[rule])
        told.add(rule)
        yield (
            f"  {style(rule.ljust(width), 'green')}  {strongest(places):8}  {_places(places)}"
            + (f"  ({why})" if why else "")
        )


def _best(records: Iterable[Record]) -> Gain | None:
    """The greatest gain that is expected of one rule."""
    return max((r.gain for r in records if r.gain is not None), key=_share, default=None)


def _share(gain: Gain | None) -> float:
    return gain.share if gain is not None else 0.0


def _section(title: str, records: Sequence[Record], style: Style, colour: str) -> Iterator[str]:
    """One line for each thing to say, however many places and rules it is said of."""
    if records:
        yield style(title + ":", colour)
    said = grouped(((record.path, record.reason), record) for record in records)
    for (_, reason), places in said.items():
        rules = ", ".join(dict.fromkeys(r.rule for r in places))
        yield f"  {_places(places)}: {style(rules, 'bold')}: {reason}"


def _places(records: Sequence[Record]) -> str:
    lines = dict.fromkeys(r.shown for r in records)
    return f"{shown_path(records[0].file)}:{', '.join(lines)}"
