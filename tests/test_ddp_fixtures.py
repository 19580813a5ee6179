"""Every fixture that `--ddp` rewrites: one process does to the bit what it did, two train one model
and print and write once.
"""

from __future__ import annotations

import pytest

from autofast.edit.plan import Plan
from autofast.registry import all_rules
from autofast.rule import Effect, Options
from tests.fixture import ALL, Fixture
from tests.harness import HARNESS, HAVE_TORCH, compare
from tests.test_fixtures import job, reread, script_of
from tests.torchrun import torchrun

RULES = ("ddp", "dataparallel-to-ddp")


@pytest.mark.skipif(not HAVE_TORCH, reason="running training scripts needs torch")
@pytest.mark.parametrize("fixture", ALL, ids=lambda fixture: fixture.name)
def test_one_process_and_two(fixture: Fixture):
    rules = [rule for name, rule in all_rules().items() if name in RULES]
    plan = Plan.make(
        script_of(fixture),
        Options(selected=frozenset(RULES), asked=frozenset(RULES)),
        rules,
        Effect.RECIPE,
    )
    if not plan.applied:
        assert any(f.refusal for f in plan.findings) or not script_of(fixture).steps
        return
    before, alone = HARNESS.run_many([job(fixture), job(fixture, plan)])
    assert before.ok, before.traceback
    assert compare(before, alone, Effect.EXACT, same_samples=fixture.same_samples) == []
    world = torchrun(job(fixture, plan), 2)
    assert world.ok, world.errors
    assert world.equal and not any(world.left_open)
    assert not world.ranks[1].stdout and not [
        name for name in world.written[1] if "." in name
    ]  # a folder may be made by all
    assert bool(world.ranks[0].stdout) == bool(before.stdout)


@pytest.mark.parametrize("fixture", ALL, ids=lambda fixture: fixture.name)
def test_beside_what_is_on_by_default(fixture: Fixture):
    rules = [rule for name, rule in all_rules().items() if rule.default or name in RULES]
    names = frozenset(rule.name for rule in rules)
    plan = Plan.make(
        script_of(fixture), Options(selected=names, asked=frozenset(RULES)), rules, Effect.RECIPE
    )
    if plan.applied & set(RULES):
        plan.check(lambda texts: reread(fixture, texts))
