"""What of the original and of the changes was seen in the runs: no verdict reaches further.

A *hunk* is a run of changed lines: those taken out of the original, those put in its place. One of
which no line ran, on either side, was
not judged at all: it is named, and keeps the verdict from being more than UNCLEAR. So does an
evaluation or a save that the script has and that runs which end early did not come to.
"""

from __future__ import annotations

import ast
import difflib
import os
from collections.abc import Iterator
from dataclasses import dataclass

from autofast.model.several import wordset
from autofast.report.style import count
from autofast.verify.evidence.gathered import Evidence
from autofast.verify.evidence.record import Lines, Run
from autofast.verify.judging import resumed
from autofast.verify.result import Check, holds, unclear


@dataclass(frozen=True)
class Hunk:
    """Lines of the file before and after, the first and the one behind the last."""

    before: str
    after: str
    old: tuple[int, int]
    new: tuple[int, int]

    @property
    def words(self) -> str:
        one, (first, last) = (
            (self.after, self.new) if self.new[1] > self.new[0] else (self.before, self.old)
        )
        place = f"line {first}" if last - first == 1 else f"lines {first} to {last - 1}"
        return f"{place} of {one}{'' if self.new[1] > self.new[0] else ' (taken out)'}"


def hunks(ev: Evidence) -> list[Hunk]:
    """Of every file that differs; names are relative to the scripts' folders, as the probe names
    lines.
    """
    found: list[Hunk] = []
    for before, after, old, new in _files(ev.a, ev.b):
        one, two = old.splitlines(), new.splitlines()
        matcher = difflib.SequenceMatcher(None, one, two, autojunk=False)
        found += [
            Hunk(before, after, (i + 1, j + 1), (k + 1, m + 1))
            for tag, i, j, k, m in matcher.get_opcodes()
            if tag != "equal"
        ]
    return found


def _files(a: Run, b: Run) -> Iterator[tuple[str, str, str, str]]:
    folder = os.path.dirname(b.script[0])
    for path, (old, new) in b.changed.items():
        name = os.path.relpath(path, folder)
        yield name, name, old, new
    if a.script != b.script and b.script[0] not in b.changed:
        yield os.path.basename(a.script[0]), os.path.basename(b.script[0]), a.script[1], b.script[1]


def _ran(lines: Lines | None, span: tuple[int, int]) -> bool | None:
    """None: there is no code in these lines, or it is not known."""
    if lines is None or not any(span[0] <= n < span[1] for n in lines.code):
        return None
    return any(span[0] <= n < span[1] for n in lines.ran)


def _seen(runs: list[Run], name: str) -> Lines | None:
    """Over all ranks and runs of one script at seed 0."""
    known = [r.lines[name] for run in runs for r in run.records if name in r.lines]
    if not known:
        return None
    return Lines(known[0].code, tuple({n for one in known for n in one.ran}))


def unreached(ev: Evidence) -> tuple[list[Hunk], int]:
    """Hunks that never ran, and how many there are that hold code."""
    found = _with_code(ev)
    return [hunk for hunk, ran in found if not ran], len(found)


def reached_hunks(ev: Evidence) -> list[Hunk]:
    """Hunks of which a line ran."""
    return [hunk for hunk, ran in _with_code(ev) if ran]


def _with_code(ev: Evidence) -> list[tuple[Hunk, bool]]:
    """Hunks that hold code, and whether any of it ran."""
    found = []
    for hunk in hunks(ev):
        ran = [
            _ran(_seen([ev.a], hunk.before), hunk.old),
            _ran(_seen([ev.b], hunk.after), hunk.new),
        ]
        if set(ran) != {None}:
            found.append((hunk, True in ran))
    return found


def truncated(ev: Evidence) -> bool:
    return any(record.ending == "steps" for record in ev.a.records)


def changes(ev: Evidence) -> Check | None:
    """Every hunk ran: one that did not keeps the verdict open, however far the runs went."""
    if not ev.a.record.lines or not ev.b.record.lines:
        return None
    missed, number = unreached(ev)
    if not missed:
        return holds(f"{count(number, 'changed place')}, all ran") if number else None
    text = f"never ran: {'; '.join(hunk.words for hunk in missed[:3])}"
    text += f" and {len(missed) - 3} more" if len(missed) > 3 else ""
    what = (
        "--steps N goes further"
        if truncated(ev)
        else "not with these arguments on this machine; arguments that reach it stand behind --"
    )
    return unclear(f"{text} ({what})")


def reached(ev: Evidence) -> Check | None:
    """Runs that end early saw an evaluation and a save, where lines of the script that make one did
    not run.
    """
    if ev.effect != "unknown" or not truncated(ev) or not ev.a.record.lines:
        return None  # of the rules' own rewrites the first sentence says what was not seen
    record = ev.a.record
    evaluated = any(not p.training for p in record.passes) or any(
        s.evaluating is not None for s in record.steps
    )
    saved = bool(record.saves or record.checkpoints)
    lacking = []
    for seen, names, word in ((evaluated, EVALUATES, "evaluation"), (saved, SAVES, "save")):
        place = None if seen else _not_run(ev, names)
        if place:
            lacking.append(f"no {word} ({place})")
    if not lacking:
        return None
    text = f"{' and '.join(lacking)} was reached (--steps auto cuts passes short to reach it, --steps 0 runs to the end)"
    return unclear(text)


def followed(ev: Evidence) -> Check | None:
    """No process in which something trains, or a program of the project runs, was left out of
    sight.
    """
    records = [r for run in (ev.a, *ev.made, *ev.failed) for r in run.records]
    unseen = list(dict.fromkeys(text for record in records for text in record.unseen))
    if not unseen:
        return None
    text = f"{'; '.join(unseen)}: what it does is not compared; compare the scripts that train by themselves"
    return unclear(text)


EVALUATES = wordset("eval no_grad inference_mode")
SAVES = wordset("save save_file save_model save_pretrained save_checkpoint")


def _not_run(ev: Evidence, names: frozenset[str]) -> str:
    """The first call of a method of one of these names that did not run, as a place; empty where
    all ran.
    """
    folder, found = os.path.dirname(ev.a.script[0]), ""
    texts = {os.path.basename(ev.a.script[0]): ev.a.script[1]}
    texts |= {
        os.path.relpath(p, os.path.dirname(ev.b.script[0]) or folder): old
        for p, (old, _) in ev.b.changed.items()
    }
    for name, text in texts.items():
        lines = _seen([ev.a], name)
        try:
            tree = ast.parse(text)
        except SyntaxError:
            continue
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if node.func.attr in names:
                ran = _ran(lines, (node.lineno, (node.end_lineno or node.lineno) + 1))
                if ran is False and not found:
                    found = f"line {node.lineno} of {name}"
    return found


def words(ev: Evidence) -> str:
    """What was seen of the original, in a few words for the first sentence of the report."""
    uneven = ev.uncut
    ev = ev.uncut or ev
    record = ev.a.record
    training = [p for p in record.passes if p.training and p.complete]
    evaluations = [p for p in record.passes if not p.training and p.complete]
    rates = [s.lr for s in record.steps]
    changed = sum(x != y for x, y in zip(rates, rates[1:], strict=False))
    on = resumed.place(ev.a)
    parts = [f"{count(len(record.steps), 'step')}{on and ' '}{on}"]
    cut = f" cut to {count(ev.a.samples, 'sample')}" if ev.a.samples else ""
    for number, one, many in (
        (len(training), "pass", "passes"),
        (len(evaluations), "evaluation", "evaluations"),
        (len(record.saves) or len(record.checkpoints), "save", "saves"),
        (changed, "change of the learning rate", "changes of the learning rate"),
    ):
        if number:
            parts.append(f"{number} {one if number == 1 else many}{cut if one == 'pass' else ''}")
    text = ", ".join(parts)
    if truncated(ev):
        evaluated = evaluations or any(s.evaluating is not None for s in record.steps)
        passed = training or not any(p.training for p in record.passes)
        saved = record.saves or record.checkpoints
        seen = {"no complete pass": passed, "no evaluation": evaluated, "no save": saved}
        lacking = [words for words, some in seen.items() if not some]
        text = f"of the first {text}{'; ' if lacking else ''}{', '.join(lacking)}{' was seen' if lacking else ''}"
    else:
        text = f"{text}, to the end{' of the script with passes that are cut' if cut else ''}"
    if uneven is not None:
        text += f"; it stops by its own numbers, the other after {count(ev.b.steps_made, 'step')}"
    missed = unreached(ev)[0] if record.lines and ev.b.record.lines else []
    if missed:
        more = f" and {count(len(missed) - 1, 'further place')}" if len(missed) > 1 else ""
        text += f"; {missed[0].words}{more} never ran"
    return text
