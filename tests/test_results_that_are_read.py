"""loss-item-sync: a function that returns a list of numbers which it reads returns the tensors; a
device that a tensor has is none that the script leaves open.
"""

from __future__ import annotations

import pytest

from autofast.rule import Effect
from tests.onerule import apply
from tests.test_rule_loss_item_sync import HEAD, METER, output, same, training

APPENDED = """\
def accuracy(output, target, topk=(1,)):
    with torch.no_grad():
        _, pred = output.topk(max(topk), 1, True, True)
        correct = pred.t().eq(target.view(1, -1).expand_as(pred.t()))
        res = []
        for k in topk:
            correct_k = correct[:k].reshape(-1).float().sum(0)
            res.append(correct_k.mul_(100.0 / target.size(0)).item())
        return res

"""
COMPUTED = """\
def accuracy(output, target, topk=(1,)):
    _, pred = output.topk(max(topk), 1, True, True)
    correct = pred.t().eq(target.view(1, -1).expand_as(pred.t()))
    return [correct[:k].sum().item() * 100.0 / target.size(0) for k in topk]

"""
START = "top1, top2 = Meter(), Meter()"
STEP = """\
acc1, acc2 = accuracy(out, y, topk=(1, 2))
top1.update(acc1, x.size(0))
top2.update(acc2, x.size(0))
if i % 3 == 0:
    print(top1, top2)"""
END = "print(top1)"
THREE = STEP.replace("acc1, acc2 =", "_, acc1, acc2 =")


def test_appended_elements_stay_on_the_device() -> None:
    text = HEAD + METER + APPENDED + training(STEP, START, END)
    done = same(text, "res.append(correct_k.mul_(100.0 / target.size(0)))", "top1_values.append(")
    assert all(f.effect is None for f in done.fixes)


def test_elements_are_computed_on_the_device() -> None:
    text = HEAD + METER + COMPUTED + training(STEP, START, END)
    done = same(text, "[correct[:k].sum().double() * 100.0 / target.size(0) for k in topk]")
    assert all(f.effect is Effect.ROUNDING for f in done.fixes)


def test_one_element_is_taken() -> None:
    step = "acc = accuracy(out, y)[0]\nif i % 3 == 0:\n    print(repr(acc))"
    same(HEAD + APPENDED + training(step), "acc = accuracy(out, y)[0]")  # moves there


@pytest.mark.parametrize(
    ("function", "step"),
    [
        (APPENDED.replace("        return res", "        print(res)\n        return res"), STEP),
        (APPENDED.replace("return res", "return [0.0, *res]"), THREE),
        (APPENDED.replace("res = []", "res = [0.0]"), THREE),
        (COMPUTED.replace("* 100.0 / target.size(0)", "** 0.5"), STEP),
        (COMPUTED.replace("correct[:k].sum().item() * 100.0", "1 / (1 + correct[:k].sum().item())"), STEP),
        (APPENDED, STEP.replace("acc1, acc2 =", "both =").replace("(acc1", "(sum(both)").replace("acc2", "max(both)")),
        (APPENDED, STEP + "\nbest = max(accuracy(out, y))"),
        (APPENDED, STEP + "\nlast = accuracy\nprint(last(out, y))"),
    ],
)  # fmt: skip
def test_lists_that_stay_numbers(function: str, step: str) -> None:
    done = apply("loss-item-sync", HEAD + METER + function + training(step, START, END))
    assert "top1_values" not in done.text, done.lines
    assert output(done.text) == output(done.before)


DEVICES = """\
try:
    import samples_of_mine
except ImportError:
    samples_of_mine = None


class Shifted(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 3)

    def forward(self, x):
        return self.inner(x + torch.ones(x.size(1)).to(x.device))


model = Shifted().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if samples_of_mine is not None:
    model(samples_of_mine.load())
"""


def test_a_tensor_that_is_not_known_on_all_ways_has_the_device_of_the_script() -> None:
    step = 'for k, v in (("loss", loss), ("top", out.max())):\n    running[k] += v.item() / len(loader)'
    start, end = 'running = {"loss": 0.0, "top": 0.0}', "print({**running})"
    done = same(HEAD + DEVICES + training(step, start, end), "running[k] += v.detach().double()")
    assert all(f.effect is Effect.ROUNDING for f in done.fixes)
