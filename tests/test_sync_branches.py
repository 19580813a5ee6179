"""loss-item-sync: branches by how much there is of something, which come to the same unasked."""

from __future__ import annotations

import math
import textwrap

import pytest

from tests.onerule import Applied, apply, run
from tests.two_devices import run_on_both

SCRIPT = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = torch.device("cuda")
data = TensorDataset(torch.randn(24, 6), torch.arange(24) // 8 % 2 * (torch.arange(24) % 3))
loader = DataLoader(data, batch_size=4)
model, head = nn.Linear(6, 3).to(device), nn.Linear(6, 3).to(device)
parameters = [*model.parameters(), *head.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)
losses = []


def cut(each):
    return torch.log((each - 1).relu()), each


def either(each):
    if each.dim() == 1:
        return torch.log((each - 1).relu())
    return each


def squash(x):
    y = torch.clamp(x.sigmoid(), min=1e-4, max=1 - 1e-4)
    return y


class Criterion(nn.Module):
    def __init__(self, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, logits, y, x):
        mask = (y > 0).float()
        each = F.cross_entropy(logits, logits.argmax(1), reduction="none")
{body}


criterion = Criterion()
for epoch in range(2):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = criterion(model(x), y, x)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
weights = [p.detach().sum() for p in parameters]
"""
N = "n = mask.sum()\n"


def script(body: str) -> str:
    return SCRIPT.replace("{body}", textwrap.indent(body, " " * 8))


def same(body: str, *lines: str, rounds: bool = False) -> Applied:
    text = script(body)
    done = apply("loss-item-sync", text)
    assert done.lines == [*lines], (done.lines, done.advice)
    (one, before), (other, after) = run_on_both(text), run_on_both(done.text)
    assert after == 0 < before
    for name in ("losses", "weights"):
        for a, b in zip(map(float, one[name]), map(float, other[name]), strict=True):
            assert math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-6) if rounds else a == b
    assert any(map(float, one["losses"]))
    return done


MEAN = "loss = (each * mask).sum() / n"
ARMS = f"if n > 0:\n    {MEAN}\nelse:\n    loss = logits.sum() * 0\nreturn loss"
TOTAL = "total = each.mean()\n"


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        # of mutually exclusive ways to the same variable
        (
            N + f"if n > 0:\n    {MEAN}\nelse:\n    loss = logits.sum() * 0\nreturn loss",
            [f"{MEAN}.clamp(min=1)"],
        ),
        (
            f"if mask.sum().item() == 0:\n    loss = 0 * logits.mean()\nelse:\n    {MEAN.replace('/ n', '/ mask.sum()')}\nreturn loss",
            ["loss = (each * mask).sum() / mask.sum().clamp(min=1)"],
        ),
        (
            "if mask.any():\n    loss = (each * mask).mean()\nelse:\n    loss = logits.sum() * 0.0\nreturn loss",
            ["loss = (each * mask).mean()"],
        ),
        # objects as points: two sums, of which one divides both
        (
            "p = torch.sigmoid(logits).clamp(1e-4, 1 - 1e-4)\npos = y.gt(0).float()[:, None]\nn = pos.sum()\n"
            "hit = (torch.log(p) * (1 - p) ** 2 * pos).sum()\nmiss = (torch.log(1 - p) * p ** 2 * (1 - pos)).sum()\n"
            "loss = 0\nif n == 0:\n    loss = loss - miss\nelse:\n    loss = loss - (hit + miss) / n\nreturn loss",
            ["loss = loss - (hit + miss) / n.clamp(min=1)"],
        ),
        (
            "p = squash(logits)\npos = y.gt(0).float()[:, None]\nn = pos.sum()\n"
            "hit = (torch.log(p) * torch.pow(1 - p, 2) * pos).sum()\nmiss = (torch.log(1 - p) * torch.pow(p, 2) * (1 - pos)).sum()\n"
            "loss = 0\nif n == 0:\n    loss = loss - miss\nelse:\n    loss = loss - (hit + miss) / n\nreturn loss",
            ["loss = loss - (hit + miss) / n.clamp(min=1)"],
        ),
        # a result of its own
        (
            N + "other = (each * (1 - mask)).sum()\nif n == 0:\n    return other\nown = (each * mask).sum()\nreturn (own + other) / n",
            ["return (own + other) / n.clamp(min=1)"],
        ),
        # what is added
        (TOTAL + "if mask.sum() > 0:\n    total += (each * mask).mean()\nreturn total", ["total += (each * mask).mean()"]),
    ],
)  # fmt: skip
def test_both_arms_give_the_same(body: str, lines: list[str]) -> None:
    same(body, *lines)


LOOP = """\
prob = torch.softmax(logits, 1)
dice, n = 0., 0
for c in range(3):
    t = (y == c).float()
    if t.sum() == 0:
        continue
    hit = (prob[:, c] * t).sum()
    dice = dice + 1 - (2 * hit + self.eps) / (prob[:, c].sum() + t.sum() + self.eps)
    n += 1
return each.mean() + dice / max(n, 1)
"""
BEGIN = "dice, n = 0., torch.zeros((), device=y.device)"
ADDED = "present * (1 - (2 * hit + self.eps) / (prob[:, c].sum() + t.sum() + self.eps))"
SPLIT = [
    "dice = dice + present * (",
    "1 - (2 * hit + self.eps) / (prob[:, c].sum() + t.sum() + self.eps)",
    ")",
]


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        (
            LOOP,
            [BEGIN, "present = t.sum() > 0", *SPLIT, "n += present"]
            + ["return each.mean() + dice / n.clamp(min=1)"],
        ),
        (
            LOOP.replace("t.sum() == 0", "not t.any()").replace("dice, n = 0., 0", "dice = 0\nn = 0")
            .replace("n += 1", "n = n + 1")
            .replace("return each", "if n > 0:\n    dice /= n\nreturn each").replace(" / max(n, 1)", ""),
            ["n = torch.zeros((), device=y.device)", "present = t.any()", *SPLIT, "n = n + present"]
            + ["dice = dice / n.clamp(min=1)"],
        ),
        (
            LOOP.replace("dice = dice + 1 - (2", "dice -= (2").replace("    n += 1\n", "").replace("max(n, 1)", "3"),
            ["present = t.sum() > 0", "dice -= present * (", "(2 * hit + self.eps) / (prob[:, c].sum() + t.sum() + self.eps)", ")"],
        ),
    ],
)  # fmt: skip
def test_absent_classes(body: str, lines: list[str]) -> None:
    same(body, *lines, rounds=True)


@pytest.mark.parametrize(
    "body",
    [
        # a weight between 0 and 1 is no count
        "m = mask * 0.3\n" + N.replace("mask", "m") + "if n >= 1:\n    loss = (each * m).mean()\nelse:\n    loss = logits.sum() * 0\nreturn loss",
        "mask = mask * 0.1\n" + N + f"if n > 0:\n    {MEAN}\nelse:\n    loss = logits.sum() * 0\nreturn loss",
        # the arms differ
        N + f"if n > 0:\n    {MEAN}\nelse:\n    loss = logits.sum()\nreturn loss",
        N + f"if n > 1:\n    {MEAN}\nelse:\n    loss = logits.sum() * 0\nreturn loss",
        # 0 times infinity
        "if mask.sum() > 0:\n    loss = (torch.log(logits.relu()) * mask[:, None]).clamp(min=-9).mean()\nelse:\n    loss = logits.sum() * 0\nreturn loss",
        "q = each.detach() - each.detach()\n" + "if mask.sum() > 0:\n    loss = (each / q * mask).mean()\nelse:\n    loss = logits.sum() * 0\nreturn loss",
        # the means of none
        "keep = y > 0\nif keep.sum() > 0:\n    loss = each[keep].mean()\nelse:\n    loss = logits.sum() * 0\nreturn loss",
        # gradients of 0, with which weights decay, where there were none
        TOTAL + "if mask.sum() > 0:\n    total += (head(x).square().sum(1) * mask).mean()\nreturn total",
        "other = head(x).square().sum(1)\n" + TOTAL + "if mask.sum() > 0:\n    total += (other * mask).mean()\nreturn total",
        # random numbers
        TOTAL + "if mask.sum() > 0:\n    total += (F.dropout(each) * mask).mean()\nreturn total",
        # labels that are no classes, where none counts
        TOTAL + "if mask.sum() > 0:\n    total += (F.cross_entropy(logits, y - 1, reduction='none', ignore_index=-1) * mask).mean()\nreturn total",
        # a mask of the others, and one that goes below 0
        TOTAL + "if mask.sum() > 0:\n    total += (each * ~mask.bool()).mean()\nreturn total",
        TOTAL + "mask = mask - 1\nif mask.sum() == 0:\n    return total\nreturn total + (each * mask).mean()",
        "m = ~mask.long()\nif m.sum() > 0:\n    loss = (each * m).sum()\nelse:\n    loss = logits.sum() * 0\nreturn loss",
        # written to, before it is counted or behind that
        "mask[0] = 0.1\n" + N + ARMS,
        "mask.mul_(0.1)\n" + N + ARMS,
        N + "mask[0] = 1\n" + ARMS,
        N + "mask.fill_(1)\n" + ARMS.replace(" / n", ""),
        # another mask, written in the same way
        "n = (y > 0).sum()\ny = y.roll(1) + 1\nif n == 0:\n    return logits.sum() * 0\nreturn (each * (y > 0)).sum()",
        "n = (torch.rand_like(each) > 0.7).sum()\n" + ARMS.replace("mask)", "(torch.rand_like(each) > 0.7))"),
        # what is no number, where none counts
        "z = x[:, 0]\nmask = ~torch.isnan(z)\n" + N + ARMS.replace("each", "F.mse_loss(logits[:, 0], z, reduction='none')"),
        "z = x[:, 0]\nmask = z == z\n" + N + ARMS.replace("each", "F.mse_loss(logits[:, 0], z, reduction='none')"),
        "far = float('inf')\n" + N + ARMS.replace("each", "each * far"),
        # 16 bits
        "q = torch.sigmoid(logits.half() * 400)[:, 0]\n" + N + ARMS.replace("each", "torch.log(q + 1e-8)"),
        "q = logits.half()[:, 0]\n" + N + ARMS.replace("each", "(300 * q).square()"),
        "far, near = cut(each)\n" + N + ARMS.replace("each", "far"),
        # what single precision rounds to 1, and powers with no gradient at 0
        "p = torch.sigmoid(logits * 90)[:, 0].clamp(max=1 - 1e-8)\n" + N + ARMS.replace("each", "torch.log(1 - p)"),
        N + ARMS.replace("each", "torch.pow(each - each, 0.5)"),
        N + ARMS.replace("each", "torch.pow(each - 1, 1.5)"),
        # a function that gives something else in one of its ways
        "far = either(each)\n" + N + ARMS.replace("each", "far"),
        # a variable that others see
        "global own\n" + N + "if n == 0:\n    return logits.sum() * 0\nown = (each * mask).sum()\nreturn own / n",
    ],
)  # fmt: skip
def test_branches_that_decide(body: str) -> None:
    done = apply("loss-item-sync", script(body))
    assert not done.fixes and "ask in few steps only" in done.advice


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # a divisor may be 0 where the class is absent
        ("prob[:, c].sum() + t.sum() + self.eps)", "t.sum())"),
        ("prob[:, c].sum() + t.sum() + self.eps)", "logits[:, c].sum() + t.sum() + self.eps)"),
        # the number is looked at
        ("max(n, 1)", "(n if n else 1)"),
        ("    n += 1", "    n += 1\n    if n == 2:\n        break"),
        ("    n += 1", "    n += 1\n    losses.append(dice.detach())"),
        # a class has layers of its own
        ("(prob[:, c] * t).sum()", "(heads[c](x)[:, 0] * t).sum()"),
        # a variable of the turn before, or of the last
        ("    n += 1", "    n += 1\n    last = hit\nself.last = last"),
        # gradients of 0, where there were none
        ("torch.softmax(logits, 1)", "torch.softmax(head(x), 1)"),
        ("return each.mean() + ", "return "),
        # some that do not add up to 1
        ("(y == c).float()\n    if t.sum() == 0", "(y == c).float() * 0.3\n    if t.sum() < 1"),
        # it begins as something else
        ("dice, n = 0., 0", "dice, n = 1., 0"),
        ("dice, n = 0., 0", "dice, n = 0., 1"),
    ],
)
def test_loops_that_decide(old: str, new: str) -> None:
    text = script(LOOP.replace(old, new)).replace("losses = []", "losses, heads = [], [head] * 3")
    assert text != script(LOOP)
    assert not [f for f in apply("loss-item-sync", text).fixes if "something" in f.message]


@pytest.mark.parametrize("changed", ["each", "z.square().mean() + each"])
def test_classes_that_are_all_absent(changed: str) -> None:
    """What has gradients then has them by the rest of the loss, too."""
    body = LOOP.replace("range(3)", "range(1, 3)").replace("return each", f"return {changed}")
    body = body if changed == "each" else "z = head(x)\n" + body.replace("(logits, 1)", "(z, 1)")
    text = script(body)
    done = apply("loss-item-sync", text)
    assert "n += present" in done.lines
    (one, _), (other, after) = run_on_both(text), run_on_both(done.text)
    assert after == 0
    for name in ("losses", "weights"):
        assert list(map(float, one[name])) == pytest.approx(list(map(float, other[name])))


FUNCTION = """\
def mean_of(each, m):
    n = m.sum()
    if n == 0:
        return each.sum() * 0
    found = each * m
    return found.sum() / n


class Criterion("""
TWICE = "return mean_of(each, mask) + mean_of(each, {})"


@pytest.mark.parametrize(
    ("other", "fixed"), [("y == 2", True), ("mask * 0.1", False), ("x[:, 0]", False)]
)
def test_functions_that_several_places_call(other: str, fixed: bool) -> None:
    """What they are given at all of them decides."""
    text = script(TWICE.format(other)).replace("class Criterion(", FUNCTION)
    done = apply("loss-item-sync", text)
    assert done.lines == ["return found.sum() / n.clamp(min=1)"] * fixed
    (one, _), (two, after) = run_on_both(text), run_on_both(done.text)
    assert list(map(float, one["losses"])) == list(map(float, two["losses"]))
    assert (after == 0) is fixed


def test_a_count_that_is_read_to_divide_stays() -> None:
    text = script(N + ARMS.replace("/ n", "/ float(n)"))
    assert not apply("loss-item-sync", text).fixes


def test_long_chains_are_looked_at_once() -> None:
    chain = "".join(f"h{n + 1} = h{n} * h{n} + h{n}\n" for n in range(20))
    wide = "h = each\nfor k in range(3):\n" + "    h = h * h + h\n" * 4
    for code, last in ((f"h0 = each\n{chain}", "h20"), (wide, "h")):
        apply("loss-item-sync", script(code + N + ARMS.replace("each", last)))


def test_nothing_is_asked_twice() -> None:
    found = apply("loss-item-sync", script(LOOP))
    assert [f.effect and f.effect.name for f in found.fixes] == ["ROUNDING"]
    assert run(found.text.replace('"cuda"', '"cpu"'))["losses"]
