"""docs/soundness.md names a test for each silent corruption: they are there, and what no rule may
write is written by none.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from autofast.edit.plan import Plan
from autofast.registry import all_rules
from autofast.rule import Effect, Options
from tests.fixture import ALL, Fixture
from tests.test_fixtures import script_of

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "soundness.md"
NEVER = re.compile(r"\b(Stream|wait_stream|record_stream|CUDAGraph)\b")


def test_every_corruption_has_its_tests():
    rows = [
        line.split(" | ")
        for line in PAGE.read_text(encoding="utf-8").splitlines()
        if re.match(r"\| \d", line)
    ]
    assert [int(row[0].strip("| ")) for row in rows] == list(range(1, 27))
    for row in rows:
        named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", row[-1])
        assert named, row[0]
        for file, test in named:
            tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
            assert test in {
                node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)
            }, f"{row[0]}: {file}::{test}"


@pytest.mark.parametrize("fixture", ALL, ids=lambda fixture: fixture.name)
def test_what_no_rule_writes(fixture: Fixture):
    rules = dict(all_rules())
    del rules["cuda-prefetch"]  # which waits for its stream: test_rule_cuda_prefetch.py
    options = Options(selected=frozenset(rules), asked=frozenset(rules), accumulate=2)
    made = Plan.make(script_of(fixture), options, rules.values(), Effect.RECIPE)
    for source, text in made.texts().items():
        assert len(NEVER.findall(text)) <= len(NEVER.findall(source.text)), source.rel
