"""padded-vocabulary: advice where a large product has an odd number of outputs, and nothing
else.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.onerule import apply

RULE = "padded-vocabulary"
TEXT = Path(__file__).with_name("card_examples").joinpath("words.py").read_text("utf-8")


def test_advice() -> None:
    found = apply(RULE, TEXT)
    assert "pad it to 5,056" in found.advice
    assert not found.fixes


@pytest.mark.parametrize(
    "old, new",
    [
        ("5003", "5000"),
        ("5003", "503"),
        ("5003", "len(open('words').read())"),
        ("    loss.backward()\n    optimizer.step()", "    print(loss)"),
    ],
)
def test_nothing_to_say(old: str, new: str) -> None:
    assert not apply(RULE, TEXT.replace(old, new)).findings


def test_nothing_for_a_cpu() -> None:
    assert not apply(RULE, TEXT, target="cpu").findings
