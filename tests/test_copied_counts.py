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


SHOWN = "print(f'{correct:.1f}', '{:.2f}'.format(100 * correct / 44), float(correct))"


@pytest.mark.parametrize(
    "counted",
    [
        "(out.argmax(1) == y).cpu().sum().item()",
        "(out.argmax(1) == y).cpu().numpy().sum()",
        "np.sum((out.argmax(1) == y).detach().cpu().numpy())",
        "int((out.argmax(1).cpu() == y.cpu()).sum())",
        "(out.argmax(1).cpu().numpy() == y.cpu().numpy()).sum()",
        "torch.sum(out.argmax(1).cpu() == y.cpu()).item()",
    ],
)
def test_what_the_host_counts_is_counted_on_the_device(counted: str) -> None:
    text = HEAD + training(f"correct += {counted}", "correct = 0", SHOWN)
    done = same(text, "correct += (out.argmax(1) == y).sum()")
    assert ".cpu()" not in done.text


@pytest.mark.parametrize(
    ("counted", "end"),
    [
        ("(out.argmax(1) == y).cpu().numpy().sum()", "print(correct.dtype)"),  # NumPy's number
        ("(out.argmax(1) == y).cpu().numpy().sum()", "kept = [correct]"),
        ("(out.argmax(1).cpu() == y.cpu()).sum()", "kept = correct + torch.ones(1)"),
        ("(out.cpu() * 2).sum().item()", SHOWN),
        ("out.cpu().sum().item()", SHOWN),  # it would round otherwise
        ("(out.argmax(1).cpu() == torch.zeros(len(out))).sum().item()", SHOWN),  # of the host
        ("(out.argmax(1) == y).cpu().sum(0).numpy()", SHOWN),
    ],
)
def test_what_the_host_goes_on_counting(counted: str, end: str) -> None:
    text = HEAD + training(f"correct += {counted}", "correct = 0", end)
    assert f"correct += {counted}" in apply("loss-item-sync", text).text


def test_what_is_compared_on_the_host() -> None:
    counted, end = "(out.argmax(1).cpu() == y.cpu()).sum()", "print(f'{correct}', float(correct))"
    text = HEAD + training(f"correct += {counted}", "correct = 0", end)
    assert ".cpu()" not in same(text, "correct += (out.argmax(1) == y).sum()").text


def test_numbers_of_python_are_read_anywhere() -> None:
    """Whatever is done with the sum, it is the number that it was."""
    text = training("correct += (out.argmax(1) == y).cpu().sum().item()\nif i % 3 == 0:\n    print(correct, [correct / 44])", "correct = 0", "kept.append((correct, type(correct)))\nprint(kept)")
    done = same(HEAD + "kept = []\n" + text, "correct += (out.argmax(1) == y).sum()")
    assert done.text.count("int(correct)") >= 2
