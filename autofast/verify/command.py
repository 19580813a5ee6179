"""``autofast verify`` from options to a ``Verification``: which two programs are compared, and
how.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import shlex
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from autofast.commands.rewriting import Rewritten, rewrite
from autofast.config import Config
from autofast.edit.passes import Passes
from autofast.edit.plan import PostConditionError
from autofast.model.disk import resolved_path
from autofast.model.measured import Facts
from autofast.model.source import BadInput
from autofast.report import diff
from autofast.report.progress import Tell
from autofast.report.record import Record
from autofast.report.style import Style, count
from autofast.verify import blame, diagnosis
from autofast.verify.evidence.record import FULL, Run, Words
from autofast.verify.facts import facts_of
from autofast.verify.request import Request
from autofast.verify.result import Arm, Parity, Verification
from autofast.verify.running import resuming
from autofast.verify.running.runs import OutOfTime, Program, Runner, Setup, ask, last_line
from autofast.verify.running.scratch import Scratch, in_place, make
from autofast.verify.series import LIGHT, ORIGINAL, REWRITTEN, NoRun, Series, Variant, Wanted

EFFECTS = ("exact", "rounding", "sampling", "recipe")


@contextlib.contextmanager
def ended_in_order() -> Iterator[None]:
    """When this process is ended from outside (a job's time is up, the terminal is closed), what it
    started ends with it.
    """

    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    kept = {}
    if threading.current_thread() is threading.main_thread():
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) == signal.SIG_DFL:
                kept[number] = signal.signal(number, leave)
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


@dataclass
class Pair:
    """The two programs and what is known of the difference."""

    original: Program
    rewritten: Program
    effect: str
    rules: Words
    diff: Mapping[str, str]
    plan: Passes | None = None
    warnings: list[str] = field(default_factory=list)
    # What autofast finds in the original; None where it could not be read.
    found: list[Record] | None = None


def verify(request: Request, tell: Tell) -> Verification:
    """Run and judge. Raises ``BadInput``, and ``NoRun`` where the original does not run."""
    began = time.monotonic()
    _check(request)
    tell("looking at the interpreter and the GPU")
    machine = ask(request.python)
    target = target_of(request, machine)
    pair = _pair(request, replace(request.config, target=target))
    if request.cwd is not None and pair.original.overlay:
        raise BadInput(
            f"{request.script}: --cwd runs scripts where they are; make one of the notebook: jupyter nbconvert --to script"
        )
    pair.rewritten = replace(
        pair.rewritten, launch=_words(request.launch_rewritten, "--launch-rewritten")
    )
    setup, placed = resuming.applied(request, setup_of(request, machine))
    wanted = Wanted(
        pair.effect,
        pair.rules or None,
        request.steps,
        request.budget,
        request.seed,
        request.seeds,
        request.margin,
        facts=request.facts,
    )
    with ended_in_order(), scratch_of(request, setup, pair.rewritten) as scratch:
        scratch.placed = placed
        runner = Runner(setup, scratch)
        series = Series(runner, pair.original, pair.rewritten, wanted, tell, began=began)
        entry = request.script.resolve()
        series.make(list(_variants(pair, entry)) if request.by_rule else ())
        _blame(series, pair, entry)
    found = amounted(series, pair, machine, target)
    return replace(found, facts=_facts(series, request, machine)) if request.facts else found


def _blame(series: Series, pair: Pair, entry: Path) -> None:
    """The rule that makes the difference is put before what else is known of where to look."""
    result, plan = series.parity, pair.plan
    if result is None or result.verdict not in blame.WRONG or plan is None or series.interrupted:
        return

    def judged(rules: Words) -> Parity | None:
        program = _program(entry, plan.subset(rules), f"with {', '.join(rules)}")
        return None if program is None else series.sameness_of(program, rules)

    try:
        said = blame.suspected(pair.rules, judged)
    except (KeyboardInterrupt, OutOfTime):
        return
    if said:
        series.parity = replace(result, lead="; ".join(filter(None, (said, result.lead))))


def _facts(series: Series, request: Request, machine: Mapping[str, str]) -> Facts | None:
    """Of the original; None where the run that looks for them failed."""
    timed = [run for run in series.runs if run.arm == ORIGINAL and run.detail == LIGHT and run.ok]
    if series.watched is None or not series.watched.record.watched or not timed:
        return None
    root = resolved_path(request.root)
    return facts_of(series.original, series.watched, timed, root, series.runner.setup, machine)


def setup_of(request: Request, machine: Mapping[str, str]) -> Setup:
    """What all runs have in common; raises ``BadInput`` for a folder or a launcher that cannot be
    meant.
    """
    threads = request.threads or (
        max(1, (os.cpu_count() or 2) // 2)
        if machine["device"] == "cpu" and "OMP_NUM_THREADS" not in os.environ
        else 0
    )
    setup = Setup(
        python=request.python,
        arguments=request.arguments,
        cwd=(request.cwd or Path.cwd()).resolve(),
        launch=_words(request.launch, "--launch"),
        threads=threads,
        limit=request.limit,
        cached=bool(machine.get("cached")),
    )
    if not setup.cwd.is_dir():
        raise BadInput(
            f"{request.cwd}: is no folder; --cwd names the folder in which the scripts run"
        )
    return setup


def target_of(request: Request, machine: Mapping[str, str]) -> str:
    """The hardware to rewrite for, where the user does not name it: what is there."""
    return request.target or ("cuda" if machine["device"] == "cuda" else "cpu")


def amounted(series: Series, pair: Pair, machine: Mapping[str, str], target: str) -> Verification:
    """What the runs of ``series`` amount to."""
    commands = [series.runner.shown(program) for program in (pair.original, pair.rewritten)]
    timed = [
        [run for run in series.runs if run.arm == arm and run.detail == LIGHT and run.ok]
        for arm in (ORIGINAL, REWRITTEN)
    ]
    return Verification(
        original=Arm(ORIGINAL, shown(pair.original.path), commands[0]),
        rewritten=Arm(REWRITTEN, shown(pair.rewritten.path), commands[1]),
        speed=series.speed,
        parity=series.parity,
        diagnosis=diagnosis.diagnose(timed[0], timed[1], pair.found, pair.rules)
        if timed[0]
        else None,
        contributions=tuple(series.contributions),
        diff=pair.diff,
        rules=pair.rules,
        runs=tuple(series.runs),
        rounds=tuple(series.rounds),
        dropped=series.dropped,
        steps=series.steps,
        interrupted=series.interrupted,
        warnings=(*pair.warnings, *warnings_of(machine, target, series.runs)),
        environment=environment_of(machine, series.runs, series.runner.setup.threads),
    )


def _words(launch: str, option: str) -> Words:
    try:
        return tuple(shlex.split(launch))
    except ValueError as error:
        raise BadInput(f"{option}: {str(error).lower()} in {launch!r}") from None


# --------------------------------------------------------------------------------- the two programs
def _check(request: Request) -> None:
    """Raise ``BadInput`` for what can be told before anything is run."""
    script = resolved_path(request.script)
    for path in (request.script, request.rewritten):
        if path is not None and path.is_dir():
            raise BadInput(f"{path}: is a folder; give the training script in it")
    if not script.is_file():
        raise BadInput(f"{request.script}: no such file; give the training script")
    if request.facts and script.suffix != ".py":
        raise BadInput(f"{request.script}: facts are recorded of scripts (.py) alone")
    if request.rewritten is not None and request.by_rule:
        raise BadInput(
            "--by-rule takes the rules from what autofast writes now: leave the second script out, or the option"
        )
    if request.launch_rewritten and request.by_rule:
        raise BadInput(
            "--by-rule starts the script with single rules, which --launch-rewritten does not fit: leave one of the two out"
        )
    if request.rewritten is not None and not request.rewritten.is_file():
        raise BadInput(
            f"{request.rewritten}: no such file; write it with: autofast rewrite {request.script} -o {request.rewritten}"
        )


def _pair(request: Request, config: Config) -> Pair:
    if request.rewritten is None:
        return _rewritten_now(request, config)
    script, other = resolved_path(request.script), request.rewritten.resolve()
    texts = {request.rewritten.name: _difference(script, other)}
    pair = Pair(
        Program.of(ORIGINAL, script),
        Program.of(REWRITTEN, other),
        request.effect or "unknown",
        (),
        texts,
    )
    if other == script:
        pair.warnings.append("both scripts are the same file: this measures the noise")
        pair.effect = request.effect or "exact"
    else:
        for ours in _written(request, config):
            pair.found = pair.found or ours.records
            if request.effect is None and ours.bytes_of(ours.script.entry) == other.read_bytes():
                pair.effect, pair.rules = strongest(ours), tuple(sorted(ours.plan.applied))
                pair.diff, pair.found = diffs(ours), ours.records
                break
    return pair


def _rewritten_now(request: Request, config: Config) -> Pair:
    result = rewrite(request.script, request.root, config)
    script = request.script.resolve()
    if not result.texts and request.facts:
        same = Program.of(REWRITTEN, script)
        told = "autofast changes nothing here: the script was compared with itself"
        return Pair(Program.of(ORIGINAL, script), same, "exact", (), {}, warnings=[told])
    if not result.texts:
        raise BadInput(
            f"{request.script}: autofast changes nothing here, so there is nothing to compare; `autofast check -v` says why"
        )
    overlay = {source.path: result.bytes_of(source) for source in result.texts}
    return Pair(
        Program.of(ORIGINAL, script),
        Program.of(REWRITTEN, script, overlay),
        strongest(result),
        tuple(sorted(result.plan.applied)),
        diffs(result),
        plan=result.plan,
        found=result.records,
        warnings=[*result.warnings, *result.notes],
    )


def _written(request: Request, config: Config) -> Iterator[Rewritten]:
    """What autofast would write now, for each target: the second script may be just that."""
    for target in dict.fromkeys((config.target, "cuda", "cpu")):
        with contextlib.suppress(BadInput, PostConditionError):
            yield rewrite(request.script, request.root, replace(config, target=target), alone=True)


def strongest(result: Rewritten) -> str:
    found = {record.effect for record in result.records if record.status == "fix"}
    return max(found, key=EFFECTS.index, default="exact")


def diffs(result: Rewritten) -> dict[str, str]:
    return {file.source.rel: diff.shown([file], Style()) for file in result.diffs()}


def _difference(before: Path, after: Path) -> str:
    old, new = (
        path.read_text(encoding="utf-8", errors="replace").splitlines() for path in (before, after)
    )
    return "\n".join(difflib.unified_diff(old, new, before.name, after.name, lineterm="")) + "\n"


def _variants(pair: Pair, entry: Path) -> Iterator[Variant]:
    """For each rule: the script with this rule alone, and with all but it."""
    if pair.plan is None:
        return
    for rule in pair.rules:
        alone = pair.plan.subset([rule])
        without = pair.plan.subset([other for other in pair.rules if other != rule])
        yield (
            rule,
            _program(entry, alone, f"{rule} alone"),
            _program(entry, without, f"without {rule}"),
        )


def _program(entry: Path, plan: Passes, name: str) -> Program | None:
    """None where the subset changes nothing, as the rule has nothing to do without another one."""
    texts = plan.texts()
    if not texts:
        return None
    return Program.of(
        name, entry, {source.path: source.encode(text) for source, text in texts.items()}
    )


# ------------------------------------------------------------------------------ where and what else
@contextlib.contextmanager
def scratch_of(request: Request, setup: Setup, rewritten: Program) -> Iterator[Scratch]:
    """The folder in which the runs are made, until they are."""
    parent = request.scratch
    if parent is not None and not parent.is_dir():
        raise BadInput(
            f"{parent}: is no folder; --scratch names the folder in which the copies are made"
        )
    if request.cwd is not None:
        if rewritten.overlay:
            raise BadInput(
                "--cwd runs the scripts where they are, so both must be files: write the second one with `autofast rewrite -o`"
            )
        scratch = in_place(parent)
    else:
        links = tuple(link.absolute() for link in request.links)
        folders = [request.root.resolve(), setup.cwd]
        if all(request.root.resolve() not in path.parents for path in [rewritten.path]):
            folders.append(rewritten.path.parent)
        scratch = make(folders, links, parent)
    try:
        yield scratch
    finally:
        scratch.close()


def warnings_of(machine: Mapping[str, str], target: str, runs: list[Run]) -> Iterator[str]:
    """What speaks against trusting the figures, a sentence each."""
    if machine["device"] == "cpu":
        yield "no GPU was found: the scripts ran on the CPU, and the figures say nothing about a GPU"
    elif target == "cpu":
        yield "the rewrite is for the CPU, though this machine has a GPU"
    close = [
        record
        for run in runs
        if run.arm == ORIGINAL and run.detail == FULL
        for record in run.records
    ]
    passes = [one for record in close for one in record.passes if one.training]
    if (
        passes
        and all(record.ending == "steps" for record in close)
        and not any(one.complete for one in passes)
    ):
        yield (
            f"the runs ended after {count(max(len(record.steps) for record in close), 'step')}, within the first pass over the training "
            "data: what comes after it (evaluation, schedules, checkpoints) was not compared; --steps N goes further, --steps 0 to the end"
        )
    cut = max((run.samples for run in runs), default=0)
    if cut:
        yield (
            f"passes over the data were cut to {count(cut, 'sample')} in the runs that are compared (not in those that are timed), so that "
            "these see what comes at their end; --steps N or --steps 0 leaves them whole"
        )
    outside = sorted(
        {path for run in runs for record in run.records for path in record.wrote_outside}
    )
    if outside:
        more = f" and {len(outside) - 3} more" if len(outside) > 3 else ""
        yield f"the scripts wrote outside of the copied folder, where the next run finds it: {', '.join(outside[:3])}{more}"
    yield from dict.fromkeys(
        note for run in runs for record in run.records for note in record.notes
    )


def environment_of(machine: Mapping[str, str], runs: list[Run], threads: int) -> dict[str, str]:
    """What the machine and the recorded runs say of where they ran, by name."""
    recorded = next((dict(run.record.environment) for run in runs if run.records), {})
    kept = {
        name: value
        for name, value in machine.items()
        if value and name not in ("executable", "cached")
    }
    return {**kept, **recorded, **({"threads": str(threads)} if threads else {})}


def shown(path: Path) -> str:
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


_LAUNCHER = (
    '; it wants a launcher: --launch "torchrun --nproc-per-node=N", N being the number of GPUs'
)
USAGE = 2  # exit code of argparse and click for arguments that are missing or wrong
_HINTS = {
    "rendezvous: environment variable": _LAUNCHER,
    **{f"KeyError: '{name}'": _LAUNCHER for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")},
    "EOFError: EOF when reading a line": "; a run has no standard input: give what the script asks for as arguments, behind --",
    "kept from ": "; give the script a path in the project, or say with --cwd DIR that it may write there",
}


def explain(error: NoRun) -> str:
    """One line for standard error: why the original did not run."""
    run = error.run
    if run.timed_out:
        steps = max((len(record.steps) for record in run.records), default=0)
        seen = f"after {count(steps, 'optimizer step')}" if steps else "without an optimizer step"
        running = f"the original script was still running after {run.seconds:.0f} s, {seen}"
        less = ", or lower --steps" * bool(steps)
        if error.budget:
            spent = f"the time budget of {error.budget:.0f} s is used up"
            return f"{running}, and {spent}; raise --time-budget{less}"
        return f"{running}; raise --limit{less}"
    if run.records and run.record.error:
        hint = next((hint for sign, hint in _HINTS.items() if sign in run.record.error), "")
        steps = run.steps_made  # one may be a backward whose step failed
        fails = f"fails after {steps} steps" if steps > 1 else "does not run"
        return f"the original script {fails}: {run.record.error}{hint}"
    last = last_line(run.stderr)
    if run.exit_code or not run.records:
        hint = "; its arguments stand behind --" if run.exit_code == USAGE else ""
        return f"the original script does not run (exit code {run.exit_code}): {last}{hint}"
    if run.resume and any(r.resumed is not None and r.resumed.read for r in run.records):
        return f"the original script loaded {run.resume} and made no optimizer step: its training ends there; raise its number of epochs, behind --"
    if run.resume and run.ok:
        return f"the original script did not read {run.resume} before its first step; give it the arguments with which it resumes, behind --"
    if run.record.unseen:
        return (
            "the original script ended without an optimizer step or a backward of its own "
            f"({'; '.join(run.record.unseen)}): name the script that trains, or train in one process"
        )
    return "the original script ended without an optimizer step or a backward; give it arguments with which it trains, behind --"
