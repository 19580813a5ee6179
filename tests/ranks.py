"""A small script before and after a rule that shares its training out among processes: what one
does, and what several do together.
"""

from __future__ import annotations

import tempfile
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from autofast.rule import Effect
from tests.harness import HARNESS, ROUNDING, Job, Run, compare
from tests.onerule import Applied, apply
from tests.torchrun import World, same_order, torchrun


@dataclass
class Shared:
    """The rewritten script, the original in the order in which several processes take the samples,
    and these processes.
    """

    made: Applied
    before: Run
    world: World

    @property
    def text(self) -> str:
        return self.made.text

    @property
    def said(self) -> str:
        """What the first process printed."""
        return self.world.ranks[0].stdout


def shared(
    text: str,
    files: Mapping[str, str] | None = None,
    *,
    ranks: int = 2,
    first: int = 0,
    same: bool = True,
    rule: str = "ddp",
) -> Shared:
    """Rewrite and run. One process must do bit for bit what the original does; several must train,
    print and write what it does with the same batches, all of it in the first (``same``), and end
    with the same weights. ``first`` is the number of the first epoch."""
    made = apply(rule, text, files=files)
    assert made.fixes, made.refusals
    plain = {
        name: textwrap.dedent(content).lstrip("\n")
        for name, content in {**(files or {}), "train.py": made.before}.items()
    }
    with tempfile.TemporaryDirectory() as folder:
        old = Job(Path(folder), files={name: content.encode() for name, content in plain.items()})
        new = Job(
            Path(folder),
            files={name: content.encode() for name, content in {**plain, **made.texts}.items()},
        )
        original, one, ordered = HARNESS.run_many(
            [old, new, replace(old, before=same_order(ranks, first=first))]
        )
        assert original.ok, original.traceback
        assert compare(original, one, Effect.EXACT) == [], made.text
        world = torchrun(new, ranks)
    assert world.ok, f"{made.text}\n{world.errors}"
    assert world.equal, made.text
    assert not any(world.left_open)
    assert all(run.stdout == "" for run in world.ranks[1:])
    if same:
        alike = replace(
            world.ranks[0],
            losses=ordered.losses,
            loads=ordered.loads,
            warnings=ordered.warnings,
            files=world.files,
        )
        assert compare(ordered, alike, Effect.ROUNDING, ROUNDING) == [], made.text
    return Shared(made, ordered, world)


def refused(text: str, files: Mapping[str, str] | None = None, rule: str = "ddp") -> str:
    """The reason why a script stays as it is."""
    made = apply(rule, text, files=files)
    assert not made.fixes, made.text
    assert made.text == made.before
    return made.refusals
