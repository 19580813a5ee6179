"""What bounds a script, and the rules that address it."""

from __future__ import annotations

from pathlib import Path

import pytest

from autofast.registry import all_rules
from autofast.report.record import Record
from autofast.verify.diagnosis import BY_HAND, answers, diagnose, rules_for
from autofast.verify.evidence.record import PHASES, Device, Run
from tests.verify_runs import gpu, record, run, step


def script(devices: tuple[Device, ...] = (), **phases: float) -> Run:
    return run(record([step(i, sum(phases.values()), phases) for i in range(20)], devices=devices))


def test_rules_exist() -> None:
    bounds = {bound for rule in all_rules().values() for bound in rule.relieves}
    assert bounds == set(BY_HAND)
    for bound in bounds:  # no two rules are equally promising
        ranks = sorted(
            rule.relieves[bound] for rule in all_rules().values() if bound in rule.relieves
        )
        assert ranks == list(range(1, len(ranks) + 1)), bound


@pytest.mark.parametrize(
    "made, bound, words",
    [
        (script(data=6.2, forward=2, backward=1.8), "data", "waits for data 62 % of a step"),
        (script(gpu(30), data=5, forward=5), "data", "waits for data 50 %"),
        (script(gpu(35), forward=5, backward=5), "host", "host-bound"),
        (script(gpu(97), forward=5, backward=5), "device", "device-bound"),
        (script(gpu(97), forward=2, transfer=8), "device", "device-bound"),
        (script(forward=4, backward=6), "cpu", "forward 40 %, backward 60 %"),
        (script(communication=4, backward=6), "communication", "communication"),
        (script(optimizer=4, backward=6), "optimizer", "optimizer"),
        (script(evaluation=4, backward=6), "evaluation", "evaluation"),
        (script((Device("GPU", 1.0),), forward=1), "unknown", "not timed closely enough"),
        (run(record([])), "unknown", "not timed closely enough"),
        (run([]), "unknown", "not timed closely enough"),
    ],
)
def test_bounds(made: Run, bound: str, words: str) -> None:
    found = diagnose([made, made], [])
    assert (found.bound, found.rules) == (bound, rules_for(bound))
    assert words in found.sentence


def test_what_remains_is_said() -> None:
    found = diagnose([script(data=6, forward=4)] * 3, [script(data=1, forward=9)] * 3)
    assert (
        found.sentence
        == "The original waits for data 60 % of a step; the rewritten script computes on the CPU most of a step (forward 90 %, backward 0 %, optimizer 0 %)."
    )
    assert sum(found.before.values()) == pytest.approx(1) and set(found.before) == set(PHASES)


def record_of(rule: str, status: str, line: int, reason: str = "") -> Record:
    return Record("a.py", line, 1, rule, "exact", line, "why", status, reason, Path("a.py"))


def test_what_became_of_each_rule_is_said() -> None:
    records = [
        record_of("num-workers", "refused", 3, "items change `self.cache`"),
        record_of("pin-memory", "fix", 3),
        record_of("pin-memory", "fix", 9),
        record_of("persistent-workers", "advice", 3, "an interrupted cell"),
    ]
    names = ("num-workers", "pin-memory", "persistent-workers", "batched-dataset", "compile")
    found = {a.rule: a for a in answers(names, records, {"pin-memory"})}
    assert found["num-workers"].state == "refused" and "self.cache" in found["num-workers"].reason
    assert (found["pin-memory"].state, found["pin-memory"].places) == ("applied", 2)
    assert found["persistent-workers"].state == "advised"
    assert found["batched-dataset"].state == "nothing"
    assert (found["compile"].state, found["compile"].reason) == ("on request", "--compile")
    assert answers(["pin-memory"], records, ())[0].state == "possible"
    assert answers(["pin-memory"], None, ())[0].state == "unknown"
