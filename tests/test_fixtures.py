"""Every fixture, before and after: what is found, that it trains the same, and what must hold for
any set of rules.
"""

from __future__ import annotations

import ast
import difflib
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path

import pytest

from autofast.edit.plan import Hunk, Plan
from autofast.model.script import Script
from autofast.model.source import Source, source_of
from autofast.read import read_script
from autofast.registry import ALL as EVERY_RULE, all_rules, select
from autofast.rule import Effect, Finding, Options
from tests import metamorphic
from tests.fixture import ALL, EFFECTS, EVERYTHING, KEYS, Fixture, Label, strongest, written
from tests.harness import HALF, HARNESS, HAVE_TORCH, ROUNDING, SAMPLING, Job, Tolerance, compare

SUBSETS = 4 if EVERYTHING else 2  # random sets of rules for each fixture
SPELLINGS = 5 if EVERYTHING else 3  # changes of each fixture's spelling, in turns
TARGETS = ("cuda", "cpu")
HELPERS = (
    "amp_dtype",
    "has_bf16",
)  # what rules add to a module; its order is that of its coming

each_fixture = pytest.mark.parametrize("fixture", ALL, ids=lambda fixture: fixture.name)
each_target = pytest.mark.parametrize("target", TARGETS)
# Plans for the CPU have fewer rules: every third fixture shows their composition, all of them with
# AUTOFAST_TESTS=all.
FOR_CPU = ALL[:: 1 if EVERYTHING else 3]
each_composition = pytest.mark.parametrize(
    ("target", "fixture"),
    [(target, f) for target in TARGETS for f in (ALL if target == "cuda" else FOR_CPU)],
    ids=lambda part: getattr(part, "name", part),
)


# ----------------------------------------------------------------------------- reading and planning
@cache
def script_of(fixture: Fixture) -> Script:
    return read_script(fixture.entry, fixture.folder)


@cache
def plan_of(
    fixture: Fixture, target: str = "cuda", effect: Effect = Effect.SAMPLING, *groups: str
) -> Plan:
    return planned(script_of(fixture), target, effect, groups, fixture.also, fixture.precision)


def planned(
    script: Script,
    target: str,
    effect: Effect,
    names: Iterable[str] = (),
    also: Iterable[str] = (),
    precision: str = "auto",
) -> Plan:
    return _planned(script, target, effect, tuple(names), tuple(also), precision)


@lru_cache(maxsize=64)
def _planned(
    script: Script,
    target: str,
    effect: Effect,
    names: tuple[str, ...],
    also: tuple[str, ...],
    precision: str,
) -> Plan:
    rules = list(
        {rule.name: rule for rule in (*select(names), *(select(also) if also else ()))}.values()
    )
    return Plan.make(
        script,
        Options(precision, target, frozenset(rule.name for rule in rules)),
        rules,
        effect,
    )


def contents(plan: Plan) -> dict[str, bytes]:
    """The files that a plan changes, as they would be written."""
    return {source.rel: source.encode(text) for source, text in plan.texts().items()}


def reread(fixture: Fixture, texts: Mapping[Source, str]) -> Script:
    return read(fixture, {source.path: source.encode(text) for source, text in texts.items()})


def read(fixture: Fixture, files: Mapping[Path, bytes]) -> Script:
    """The script of a fixture with other contents in some of its files; one that was read before
    where these are the same.
    """
    new = {path: raw for path, raw in files.items() if raw != path.read_bytes()}
    return _read(fixture, frozenset(new.items())) if new else script_of(fixture)


@lru_cache(maxsize=32)
def _read(fixture: Fixture, files: frozenset[tuple[Path, bytes]]) -> Script:
    return read_script(fixture.entry, fixture.folder, overlay=dict(files))


def shown(findings: Iterable[Finding]) -> str:
    lines = [
        f"  {source_of(f.node).rel}:{f.node.lineno} {f.rule} [{f.status}] {f.refusal or f.message}"
        for f in findings
    ]  # type: ignore[attr-defined]
    return "\n".join(lines) or "  nothing"


# ------------------------------------------------------------------------------------ what is found
def test_labels_are_well_formed():
    known = {rule.name for rule in select([EVERY_RULE])} | {"*"}
    for fixture in ALL:
        assert set(fixture.spec) <= KEYS, fixture.name
        assert fixture.spec["what"] and isinstance(fixture.spec["steps"], int), fixture.name
        for label in [*fixture.expect, *fixture.forbid]:
            assert label.rule in known, f"{fixture.name}: {label}"
            text = label.line_contains or label.near
            files = (
                [fixture.folder / label.file]
                if label.file
                else sorted(fixture.folder.rglob("*.py"))
            )
            assert any(text in path.read_text("latin-1") for path in files), (
                f"{fixture.name}: {label} is nowhere in the script"
            )
        assert all(label.why for label in fixture.forbid), (
            f"{fixture.name}: a forbidden fix needs a reason"
        )
        assert all(label.file for label in fixture.expect), (
            f"{fixture.name}: an expected fix needs a file"
        )


def plan_for(fixture: Fixture, label: Label) -> Plan:
    """The plan that an expectation is about: of all rules, or of its own alone where that is off
    unless asked for.
    """
    return (
        plan_of(fixture)
        if all_rules()[label.rule].default
        else plan_of(fixture, "cuda", Effect.RECIPE, label.rule)
    )


def written_for(fixture: Fixture) -> list[list[str]]:
    """For each expected fix, what the hunks write that carry it out, less what is said at an
    earlier one.
    """
    said: set[Hunk] = set()
    lines = []
    for label in fixture.expect:
        hunks = [
            hunk
            for hunk in plan_for(fixture, label).hunks()
            if hunk not in said and any(map(label.matches, hunk.findings))
        ]
        said.update(hunks)
        lines.append([line for hunk in hunks for line in written(hunk)])
    return lines


@each_fixture
def test_expected_fixes_are_found(fixture: Fixture):
    plan = plan_of(fixture)

    def met(label: Label) -> bool:
        return (
            len(
                {
                    getattr(f.node, "lineno", 1)
                    for f in plan_for(fixture, label).fixes
                    if label.matches(f)
                }
            )
            >= label.count
        )

    missing = [str(label) for label in fixture.expect if not met(label)]
    assert not missing, "\n".join(["missing:", *missing, "found:", shown(plan.findings)])
    left = [
        word
        for word in fixture.spec.get("gone", [])
        for text in plan.texts().values()
        if word in text
    ]
    assert not left, f"still there: {left}"


@each_fixture
def test_expected_fixes_write_what_is_said(fixture: Fixture):
    wrong: list[str] = []
    for label, lines in zip(fixture.expect, written_for(fixture), strict=True):
        wrong += difflib.unified_diff(
            label.becomes, lines, str(label), "written", lineterm="", n=99
        )
    assert not wrong, "\n".join(wrong)


@each_fixture
def test_forbidden_fixes_are_not_made(fixture: Fixture):
    wrong = []
    for target in TARGETS:
        for label in [label for label in fixture.forbid if label.target in ("", target)]:
            plan = plan_of(fixture, target, EFFECTS[label.effect], EVERY_RULE)
            wrong += [f"{target}: {label}\n{shown([f])}" for f in plan.fixes if label.matches(f)]
    assert not wrong, "\n".join(wrong)


# -------------------------------------------------------------------------- that it trains the same
@pytest.mark.skipif(not HAVE_TORCH, reason="running training scripts needs torch")
class TestExecution:
    """Originals and rewritten scripts run on the CPU, for each rule alone and for all together."""

    @each_fixture
    def test_the_original_runs_and_repeats(self, fixture: Fixture):
        first, again = HARNESS.run_many([job(fixture), job(fixture, limit=119.0)])
        assert first.ok, first.traceback + first.stderr
        assert first.steps == fixture.spec["steps"]
        assert compare(first, again, Effect.EXACT) == []

    @each_composition
    def test_each_rule_alone(self, fixture: Fixture, target: str):
        whole = plan_of(fixture, target)
        plans = {name: whole.subset([name]) for name in sorted(whole.applied)}
        trains_the_same(fixture, {name: plan for name, plan in plans.items() if plan.applied})

    @each_fixture
    @each_target
    def test_all_rules_together(self, fixture: Fixture, target: str):
        effects = (Effect.EXACT, Effect.ROUNDING, Effect.SAMPLING)
        if (
            target == "cpu" and fixture not in FOR_CPU
        ):  # what is written for a CPU alone changes rounding
            effects = (Effect.ROUNDING,)
        trains_the_same(
            fixture,
            {
                f"all up to {effect.name.lower()}": plan_of(fixture, target, effect)
                for effect in effects
            },
        )

    @each_fixture
    def test_mixed_precision_with_a_real_scaler(self, fixture: Fixture):
        """The form written for CUDA, really executed: fp16, and a scaler that scales (see
        ``fake_cuda_amp``).
        """
        whole = planned(script_of(fixture), "cuda", Effect.ROUNDING, (), fixture.also, "either")
        amp = whole.subset(["autocast", "grad-scaler", "unscale-before-clip", "legacy-amp-api"])
        trains_the_same(fixture, {"mixed precision": amp, "all up to rounding": whole}, fake=True)

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["module_level", "multi_file"])
    def test_where_workers_are_spawned(self, name: str):
        """As on Windows, on macOS, and on Linux from Python 3.14 on: a script without a main guard
        must not run again in each worker. The first pass over a loader shows it (each worker
        imports torch anew).
        """
        fixture = next(fixture for fixture in ALL if fixture.name == name)
        plan = plan_of(fixture).subset(["num-workers"])
        assert plan.applied
        before, after = HARNESS.run_many(
            replace(job(fixture, which), start_method="spawn", cpus=3, stop_after=3)
            for which in (None, plan)
        )
        assert compare(before, after, Effect.EXACT) == []


def job(
    fixture: Fixture, plan: Plan | None = None, *, fake: bool = False, limit: float = 120.0
) -> Job:
    files = contents(plan) if plan is not None else {}
    return Job(
        fixture.folder,
        args=fixture.args,
        then=fixture.then,
        files=files,
        fake_cuda_amp=fake,
        limit=limit,
        before=fixture.before,
    )


def trains_the_same(fixture: Fixture, plans: Mapping[str, Plan], *, fake: bool = False) -> None:
    """Run the original and what each plan makes of it; every difference that its effect does not
    allow is an error.
    """
    precise = fixture.spec.get("precise_args")
    original = job(fixture, fake=fake)
    if fake and precise is not None:
        original = Job(fixture.folder, args=tuple(precise))
    before, *runs = HARNESS.run_many(
        [original, *(job(fixture, plan, fake=fake) for plan in plans.values())]
    )
    assert before.ok, before.traceback
    wrong = []
    for (name, plan), after in zip(plans.items(), runs, strict=True):
        effect = Effect.ROUNDING if fake else strongest(plan)
        differences = compare(
            before,
            after,
            effect,
            tolerance(fixture, plan, effect, fake),
            same_samples=fixture.same_samples,
        )
        if differences:
            wrong += [
                f"{name} ({effect.name.lower()}; {', '.join(sorted(plan.applied))}):",
                *(f"  {line}" for line in differences),
            ]
            wrong += [line for hunk in plan.hunks() for line in hunk.lines]
    assert not wrong, "\n".join(wrong)


def tolerance(fixture: Fixture, plan: Plan, effect: Effect, fake: bool) -> Tolerance:
    """How far apart ``effect`` allows the runs to be, where they are executed on the CPU."""
    if effect >= Effect.SAMPLING:
        return SAMPLING
    half = fake or (
        plan.options.target == "cpu" and plan.applied & {"autocast", "grad-scaler", "trainer-args"}
    )
    return (
        replace(HALF, **fixture.spec.get("half", {}))
        if half
        else replace(ROUNDING, **fixture.spec.get("rounding", {}))
    )


# --------------------------------------------------------------------------------- any set of rules
@each_composition
def test_a_second_rewrite_changes_nothing(fixture: Fixture, target: str):
    for effect in (Effect.EXACT, Effect.ROUNDING, Effect.SAMPLING):
        plan = plan_of(fixture, target, effect)
        again = plan.check(lambda texts: reread(fixture, texts)) or plan
        assert not again.fixes, f"up to {effect.name.lower()}:\n{shown(again.fixes)}"
        assert not again.amendments, "a fix that the second reading refused"


@each_fixture
def test_no_rule_changes_nothing(fixture: Fixture):
    assert plan_of(fixture).subset([]).texts() == {}


def subsets(fixture: Fixture, names: Iterable[str]) -> list[frozenset[str]]:
    """Some sets of rules, always the same for one fixture."""
    draw, ordered = random.Random(fixture.name), sorted(names)
    return [
        frozenset(draw.sample(ordered, draw.randint(1, len(ordered))))
        for _ in range(SUBSETS if ordered else 0)
    ]


@each_composition
def test_some_rules_compose_and_are_idempotent(fixture: Fixture, target: str):
    whole = plan_of(fixture, target)
    for names in subsets(fixture, whole.applied):
        plan = whole.subset(names)
        plan.check(lambda texts: reread(fixture, texts))
        for source, text in plan.texts().items():
            compile(source.encode(text), source.rel, "exec")
        assert all(hunk.rules for hunk in plan.hunks()), (
            f"{sorted(names)}: a change that no rule owns"
        )


@each_composition
def test_staged_equals_at_once(fixture: Fixture, target: str):
    """Some rules first, the others on the result: the reader must see through what the first ones
    wrote.

    Rules whose fixes need each other (autocast in a form that needs the scaler, and the scaler) are
    applied at once, and so are those of
    ``BEFORE``: on the output of the first, the second one writes less, for the reason given there.
    """
    whole = plan_of(fixture, target)
    for names in subsets(fixture, whole.applied):
        first = _with_needs(whole, names)
        rest = whole.applied - first
        half_way = whole.subset(first)
        then = (
            planned(
                reread(fixture, half_way.texts()),
                target,
                Effect.SAMPLING,
                sorted(rest),
                precision=fixture.precision,
            )
            if rest
            else half_way
        )
        staged = {**contents(half_way), **contents(then)}
        wrong = difference(contents(whole), staged)
        assert not wrong, (
            f"{', '.join(sorted(first))} first, then {', '.join(sorted(rest))}:\n{wrong}"
        )


# Where the first one has switched gradients off, what the second one keeps needs no detach() any
# more. Where its collate_fn makes whole batches, nothing shows that these are of one size. Where
# autocast comes with them, sums over groups are taken in 32 bits. What a meter of the project keeps
# of an evaluation is not followed to where it is read.
BEFORE = {
    "no-grad-eval": "loss-item-sync",
    "loss-item-sync": "no-grad-eval",
    "gpu-data": "cudnn-benchmark",
    "python-loop": "autocast",
}


def _with_needs(plan: Plan, names: frozenset[str]) -> frozenset[str]:
    names |= {BEFORE[name] for name in names & BEFORE.keys()} & plan.applied
    while True:
        needed = frozenset(
            rule for finding in plan.fixes if finding.rule in names for rule, _ in finding.needs
        )
        if needed <= names:
            return names
        names |= needed


def difference(at_once: Mapping[str, bytes], staged: Mapping[str, bytes]) -> str:
    """How the code differs; line breaks and the order of keyword arguments, new parameters and
    helpers depend on what is touched together.
    """
    lines: list[str] = []
    for name in sorted({*at_once, *staged}):
        texts = [_without_layout(files.get(name, b"")) for files in (at_once, staged)]
        lines += difflib.unified_diff(*texts, f"{name} at once", f"{name} staged", lineterm="")
    return "\n".join(lines)


def _sort_parameters(args: ast.arguments) -> None:
    """Those that rules add are given by name. (What has no default comes first here: no rule
    changes whether one has.)
    """
    first = len(args.args) - len(args.defaults)
    plain = sorted(args.args[:first], key=lambda param: param.arg)
    optional = sorted(zip(args.args[first:], args.defaults, strict=True), key=lambda p: p[0].arg)
    args.args = [*plain, *(param for param, _ in optional)]
    args.defaults = [default for _, default in optional]


class _Apart(ast.NodeTransformer):
    """``x, y = x.cuda(), y.cuda()`` is written as two lines where it would be too long for the
    file.
    """

    def visit_Assign(self, stmt: ast.Assign) -> ast.Assign | list[ast.Assign]:
        match stmt:
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                pairs = list(zip(names, values, strict=True))
                if all(ast.unparse(v).startswith(ast.unparse(n) + ".") for n, v in pairs):
                    return [ast.Assign([n], v, lineno=stmt.lineno) for n, v in pairs]
        return stmt


def _defines(stmt: ast.stmt) -> str:
    """The name of a function, or of a constant."""
    target = stmt.targets[0] if isinstance(stmt, ast.Assign) else stmt
    return str(getattr(target, "name", getattr(target, "id", "")))


def _without_layout(raw: bytes) -> list[str]:
    tree = _Apart().visit(ast.parse(raw))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            node.keywords.sort(key=lambda keyword: keyword.arg or "")
        elif isinstance(node, ast.FunctionDef):
            _sort_parameters(node.args)
        elif isinstance(node, ast.ImportFrom):
            node.names.sort(key=lambda alias: alias.name)
    helpers = [stmt for stmt in tree.body if _defines(stmt) in HELPERS]
    tree.body = [stmt for stmt in tree.body if stmt not in helpers] + sorted(helpers, key=_defines)
    return ast.unparse(tree).splitlines()


# ------------------------------------------------------------------------- spelling does not matter
# a fix that may become this where an item, a meter or a model says something: once for a batch, or
# at another time
SHOWN = {
    ("logging_calls", "batched-dataset"): "advice",
    ("logging_calls", "loss-item-sync"): "refused",
    ("logging_calls", "compile"): "refused",
}


# What is done to many items, or rows, at once; what a function is given that only moves it.
SILENT = ("gpu-data", "python-loop", "device-creation")


@pytest.mark.parametrize(
    ("change", "fixture"),
    [
        (metamorphic.CHANGES[(number + turn) % len(metamorphic.CHANGES)], fixture)
        for number, fixture in enumerate(ALL)
        for turn in range(SPELLINGS)
    ],
    ids=lambda part: getattr(part, "name", getattr(part, "__name__", "")),
)
def test_spelling_does_not_matter(fixture: Fixture, change: metamorphic.Change):
    sources = script_of(fixture).sources
    before, after = metamorphic.apply(change, {source.path: source.text for source in sources})

    def found(
        texts: Mapping[object, str], names: Iterable[str] = ()
    ) -> Counter[tuple[str, str, str]]:
        overlay = {source.path: source.encode(texts[source.path]) for source in sources}
        plan = planned(
            read(fixture, overlay),
            "cuda",
            Effect.SAMPLING,
            names,
            fixture.also,
            fixture.precision,
        )
        said = Counter((f.rule, f.status, metamorphic.place(f.node)) for f in plan.findings)
        for rule, status, place in [*said]:  # advice about the inserted lines themselves
            if change is metamorphic.logging_calls and place.startswith("print('reached'"):
                del said[rule, status, place]
        return said

    old, new = found(before), found(after)
    if change is metamorphic.logging_calls and any(rule in SILENT for rule, _, _ in old - new):
        # What says something is done one by one: for all others it is as without the rule.
        others = [rule.name for rule in select(()) if rule.name not in SILENT]
        old, new = found(before, others), found(after, others)
    for rule, status, place in (old - new).elements():
        if status == "fix" and (instead := SHOWN.get((change.__name__, rule))) is not None:
            new[rule, instead, place] -= 1
            new[rule, status, place] += 1
    assert +new == old
