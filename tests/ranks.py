"""A script before and after a rule that shares its training out: what one process did, what one does, and what several do together."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from autofast.finding import Effect
from tests.harness import HARNESS, Job, Run, compare
from tests.onerule import Applied, apply
from tests.torchrun import World, same_order, torchrun


@dataclass
class Shared:
    """The rewritten script, its run in one process, the original in the order of several, and the runs in several."""

    made: Applied
    before: Run
    one: Run
    worlds: dict[int, World]

    @property
    def text(self) -> str:
        return self.made.text


def shared(rule: str, text: str, files: Mapping[str, str] | None = None, ranks: tuple[int, ...] = (2,), **given: object) -> Shared:
    """Rewrite and run; one process must do bit for bit what the original does, several must end alike."""
    made = apply(rule, text, files=files)
    assert made.fixes, made.refusals
    plain = {**(files or {}), "train.py": made.before}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        job = Job(root, **given)  # type: ignore[arg-type]
        fresh = {name: content.encode() for name, content in made.texts.items()}
        old = {name: content.encode() for name, content in plain.items()} if not files else {**_clean(plain)}
        first = Job(**{**job.__dict__, "files": {**_clean(plain), **old}})
        then = Job(**{**job.__dict__, "files": {**_clean(plain), **fresh}})
        before, one = HARNESS.run_many([first, then])
        assert before.ok, before.traceback
        assert compare(before, one, Effect.EXACT) == [], made.text
        worlds = {}
        for number in ranks:
            world = torchrun(then, number)
            assert world.ok, f"{made.text}\n{world.errors}"
            assert world.equal, made.text
            ordered = HARNESS.run(Job(**{**first.__dict__, "before": same_order(number)}))
            worlds[number] = world
            before = ordered if number == ranks[0] else before
        return Shared(made, before, one, worlds)


def _clean(files: Mapping[str, str]) -> dict[str, bytes]:
    import textwrap

    return {name: textwrap.dedent(content).lstrip("\n").encode() for name, content in files.items()}
