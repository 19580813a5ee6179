"""loss-item-sync: counts that are copied to the host to be added up stay on the device."""

from __future__ import annotations

import pytest

from autofast.rule import Effect
from tests.onerule import apply
from tests.test_rule_loss_item_sync import HEAD, same, training

HITS = "out.argmax(1).eq(y)"
END = "print('{}/{}'.format(correct, len(data)), f'{correct:d}', float(correct), correct.item())"


@pytest.mark.parametrize("copied", [".cpu().sum()", ".sum().cpu()", ".to('cpu').sum()"])
def test_counts_stay_on_the_device(copied: str) -> None:
    text = HEAD + training(f"correct += {HITS}{copied}", "correct = 0", END)
    done = same(text, f"correct += {HITS}.sum()")
    assert [f.effect for f in done.fixes] == [None]


def test_a_quotient_is_another_rounding() -> None:
    step = (
        f"correct += {HITS}.cpu().sum()\nif i % 3 == 0:\n    print(f'{{100.0 * correct / 44:.1f}}')"
    )
    done = same(HEAD + training(step, "correct = 0"), f"correct += {HITS}.sum()")
    assert [f.effect for f in done.fixes] == [Effect.ROUNDING]


@pytest.mark.parametrize(
    ("start", "step", "end"),
    [
        ("correct = 0", "correct += (out.max(1)[0] - y).cpu().sum()", END.replace(":d", "")),
        ("correct = 0", f"correct += {HITS}.cpu().sum()", "print(correct)"),
        ("correct = 0", f"correct += {HITS}.cpu().sum()", "print(f'{correct!r}')"),
        ("correct = 0", f"correct += {HITS}.cpu().sum()", "print('%s' % correct)"),
        ("correct = 0", f"correct += {HITS}.cpu().sum()", "kept = correct + torch.ones(1)"),
        ("correct = 0", f"correct += {HITS}.cpu().sum()\nprint(f'{{correct}}')", END),
        ("correct = torch.zeros(1)", f"correct += {HITS}.cpu().sum()", "print(f'{float(correct)}')"),
        ("correct = 0", f"correct += {HITS}.cpu().sum()", "print((lambda: float(correct))())"),
        ("correct = 0", f"correct += {HITS}.cpu().sum(0)", END),
        ("correct = 0", f"correct -= {HITS}.cpu().sum()", END),
    ],
)  # fmt: skip
def test_what_stays_on_the_host(start: str, step: str, end: str) -> None:
    done = apply("loss-item-sync", HEAD + training(step, start, end))
    assert ".cpu()" in done.text, done.lines


def test_a_function_that_returns_the_count() -> None:
    text = training(f"correct += {HITS}.cpu().sum()", "correct = 0", "return correct")
    text = "def train():\n" + "".join(f"    {line}\n" for line in text.splitlines())
    done = apply("loss-item-sync", HEAD + text + "print(train())\n")
    assert ".cpu()" in done.text, done.lines
