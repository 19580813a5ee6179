"""``autofast tune`` from options to a ``Tuned``."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

from autofast.commands.discover import untrained_hint
from autofast.commands.planning import trains_nothing
from autofast.commands.rewriting import Rewritten
from autofast.model.source import BadInput
from autofast.report.progress import Tell
from autofast.tune.measuring import Measuring
from autofast.tune.result import Found, Tuned
from autofast.tune.search import Search
from autofast.tune.setting import Setting
from autofast.tune.space import Space
from autofast.verify.command import (
    Pair,
    amounted,
    diffs,
    ended_in_order,
    environment_of,
    scratch_of,
    setup_of,
    shown,
    target_of,
    warnings_of,
)
from autofast.verify.request import Request
from autofast.verify.result import Verification
from autofast.verify.running.runs import Program, Runner, ask
from autofast.verify.series import ORIGINAL as OF_ORIGINAL, REWRITTEN, Series, Wanted

STEPS = 0.004  # of the budget, for the steps of one run: a search makes many
CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


@dataclass(frozen=True)
class Programs:
    """What runs for a setting."""

    space: Space

    def program(self, setting: Setting, arm: str) -> Program:
        return Program.of(arm, self.space.entry, self.space.overlay(setting))

    def effect(self, setting: Setting) -> str:
        return self.space.effect(setting)


def tune(request: Request, tell: Tell, *, alone: bool = False) -> tuple[Tuned, Rewritten]:
    """Search, and the rewrite that is kept. Raises ``BadInput``, and ``NoRun`` where the original
    does not run.

    ``alone``: only the script itself may change, no other file of its project.
    """
    began = time.monotonic()
    entry = _entry(request.script)
    tell("looking at the interpreter and the GPU")
    machine = ask(request.python)
    target = target_of(request, machine)
    space = Space(entry, request.root, replace(request.config, target=target), alone)
    setup = setup_of(request, machine)
    original = Program.of(OF_ORIGINAL, entry)
    whole = space.whole()
    if trains_nothing(whole.script, whole.plan.first):
        raise BadInput(f"{request.script}: {untrained_hint(request.script)}")
    wanted = Wanted(
        "exact",
        None,
        request.steps,
        request.budget,
        request.seed,
        request.seeds,
        request.margin,
        STEPS,
    )

    def amount(series: Series, setting: Setting) -> Verification:
        kept = space.result(setting)
        rewritten = Program.of(REWRITTEN, entry, space.overlay(setting))
        rules = tuple(sorted(setting.rules))
        effect = space.effect(setting)
        pair = Pair(original, rewritten, effect, rules, diffs(kept), found=whole.records)
        return amounted(series, pair, machine, target)

    with ended_in_order(), scratch_of(request, setup, original) as scratch:
        # Compiled once for all runs: what is compared are steps, and a search has no time for
        # minutes of compiling in each run.
        kept_there = {name: str(scratch.folder / "compiled") for name in CACHES}
        runner = Runner(replace(setup, environment=kept_there), scratch)
        measuring = Measuring(runner, Programs(space), wanted, amount, tell, began)
        found = Found()
        if space.units:
            measuring.begin()
            found = Search(space.units, measuring, tell).make()
        command = runner.shown(original)
    kept = space.result(found.kept)
    tuned = Tuned(
        script=shown(entry),
        command=command,
        found=found,
        confirmation=measuring.confirmation,
        noise=measuring.noise(),
        diff=diffs(kept),
        steps=measuring.steps,
        runs=len(measuring.runs),
        seconds=time.monotonic() - began,
        budget=request.budget,
        warnings=(
            *whole.warnings,
            *warnings_of(machine, target, [run for run in measuring.runs if run.ok]),
        ),
        environment=environment_of(machine, measuring.runs, setup.threads),
    )
    return tuned, kept


def _entry(script: Path) -> Path:
    if str(script) == "-":
        raise BadInput("tune runs the script, which standard input cannot be: give a file")
    if script.is_dir():
        raise BadInput(f"{script}: is a folder; give the training script in it")
    if not script.is_file():
        raise BadInput(f"{script}: no such file; give the training script")
    if script.suffix == ".ipynb":
        raise BadInput(
            f"{script}: is a notebook; tune takes scripts: make one of it with `jupyter nbconvert --to script`"
        )
    return script.resolve()
