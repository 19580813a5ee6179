"""loss-item-sync: a tensor that a loop adds numbers to is made on the device, and copied once."""

from __future__ import annotations

import pytest

from tests.onerule import apply
from tests.test_rule_loss_item_sync import HEAD, output, same, training

STEP = "sums += torch.tensor([loss.item(), out.max().item()])"
START = "sums = torch.zeros(2)"
END = "print((sums / len(loader)).tolist())"
WRITTEN = "sums += torch.stack([loss.detach(), out.max().detach()]).float()"


def test_numbers_are_added_on_the_device() -> None:
    done = same(HEAD + training(STEP, START, END), WRITTEN, "torch.zeros(2, device=device)")
    assert "print((sums.cpu() / len(loader)).tolist())" in done.lines
    done = same(HEAD + training(STEP, START, f"{END}\n{END}"), WRITTEN, "sums = sums.cpu()")


@pytest.mark.parametrize(
    ("start", "step", "end"),
    [
        (START, f"{STEP}\nprint(sums)", END),
        (START, STEP.replace("])", "], dtype=torch.float64)"), END),
        ("sums = torch.zeros(2, dtype=torch.float64)", STEP, END),
        (START, STEP.replace("out.max().item()", "1.0"), END),
        (START, STEP.replace("out.max().item()", "2 * out.max().item()"), END),
        (START, STEP.replace("+=", "-="), END),
        ("sums = 0", STEP, END),
    ],
)
def test_other_sums(start: str, step: str, end: str) -> None:
    done = apply("loss-item-sync", HEAD + training(step, start, end))
    assert "torch.stack([loss" not in done.text, done.lines
    assert output(done.text) == output(done.before)
