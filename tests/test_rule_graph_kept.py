"""graph-kept: sums and lists of losses that no backward goes through are made of detached tensors,
with the same numbers.
"""

from __future__ import annotations

import pytest
import torch

from tests.onerule import Applied, apply, run

RULE = "graph-kept"
SCRIPT = """
import torch
from torch import nn


class Meter:
    def __init__(self):
        self.reset()

    def reset(self):
        self.val, self.whole, self.count = 0, 0, 0

    def update(self, val, n=1):
        self.val = val
        self.whole += val * n
        self.count += n


def mean(values):
    return sum(values) / len(values)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
meter, rates, k = Meter(), [], 3
for epoch in range(2):
    total, losses, weight = 0, [], 1.0
    meter.reset()
    for i in range(6):
        x, y = torch.randn(6, 4), torch.randn(6, 2)
        loss = (model(x) - y).pow(2).mean()
        {body}
        optimizer.step()
        optimizer.zero_grad()
    rates.append(float(loss))
"""
STEP = "loss.backward()\n"


def made(body: str, rule: str = RULE) -> Applied:
    return apply(rule, SCRIPT.format(body=body.replace("\n", "\n        ")))


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (STEP + "total += loss", "total += loss.detach()"),
        (STEP + "total = total + loss * x.size(0)", "total = total + loss.detach() * x.size(0)"),
        ("total = loss / 2 + total\n" + STEP, "total = loss.detach() / 2 + total"),
        (STEP + "total += loss + loss", "total += (loss + loss).detach()"),
        (STEP + "losses.append(loss)", "losses.append(loss.detach())"),
        (STEP + "meter.update(loss, x.size(0))", "self.whole += val.detach() * n"),
        (
            STEP + "total += loss\nif i % 4 == 3:\n    print(total / 4)\n    total = 0",
            "total += loss.detach()",
        ),
        (
            "loss = 0\nfor scale in (1, 2):\n    loss += (model(x) - y).pow(2).mean() / scale\n"
            + STEP
            + "total += loss",
            "total += loss.detach()",
        ),
        (
            "loss = torch.mul(loss, 2)\nloss.backward()\nlosses.append(loss)\nprint(torch.stack(losses))",
            "losses.append(loss.detach())",
        ),
        (
            STEP + "if i == 0:\n    kept = {'loss': losses}\nkept['loss'].append(loss)",
            "kept['loss'].append(loss.detach())",
        ),
    ],
)
def test_what_is_detached(body: str, line: str) -> None:
    found = made(body)
    assert line in found.lines
    old, new = run(found.before), run(found.text)
    assert old["rates"] == new["rates"]
    for a, b in zip(held(old), held(new), strict=True):
        assert torch.equal(torch.as_tensor(a), torch.as_tensor(b))
    assert any(graph(v) for v in held(old)) and not any(graph(v) for v in held(new))


def held(scope: dict[str, object]) -> list[object]:
    losses = scope["losses"]
    assert isinstance(losses, list)
    return [scope["total"], getattr(scope["meter"], "whole"), *losses]  # noqa: B009


def graph(value: object) -> bool:
    return getattr(value, "grad_fn", None) is not None


@pytest.mark.parametrize(
    "body",
    [
        "total += loss\nif i % 3 == 2:\n    total.backward()\n    total = 0",
        "losses.append(loss)\nif i % 3 == 2:\n    torch.stack(losses).mean().backward()\n    losses = []",
        "losses.append(loss)\nif i % 3 == 2:\n    mean(losses).backward()\n    losses.clear()",
        "if i == 0:\n    kept = {'l': losses}\nkept['l'].append(loss)\nif i % 3 == 2:\n    mean(kept['l']).backward()\n    losses.clear()",
        "total = 0\ntotal += loss\n" + STEP,
        "parts = []\nparts.append(loss)\n" + STEP,
        "loss = loss * weight\nloss.backward(retain_graph=True)\nlosses.append(loss)\nweight = losses[0] / loss",
        STEP + "total += loss.detach()",
        STEP + "total += loss.item()",
        STEP + "total += torch.sum(model(x) > y)",  # numbers that no gradient goes through
        STEP + "losses.append((torch.max(model(x), 1)[1] == 1).sum())",
    ],
)
def test_what_stays(body: str) -> None:
    """A backward goes through it, or it does not outlive the step."""
    assert not made(body).findings


@pytest.mark.parametrize(
    "seen",
    [
        "kept = [l is loss for l in losses]",
        "kept = [id(l) for l in losses]",
        "kept = losses.index(loss)",
        "kept = loss in losses",
        "kept = {}\nfor l in losses:\n    kept[l] = i",
        "kept = losses[-1].requires_grad",
    ],
)
def test_tensors_that_are_told_apart(seen: str) -> None:
    """A detached tensor is another object, and asks for no gradient."""
    assert not made(STEP + "losses.append(loss)\n" + seen).findings


def test_a_place_by_a_number_tells_no_tensors_apart() -> None:
    best = "\nbest = max(range(len(rates)), key=lambda k: rates[k])\nprint(rates[best])\n"
    kept = (STEP + "losses.append(loss)").replace("\n", "\n        ")
    text = SCRIPT.format(body=kept).replace("float(loss)", "torch.stack(losses).mean().item()")
    done = apply(RULE, text + best)
    assert done.lines == ["losses.append(loss.detach())"]
    assert run(text + best)["rates"] == run(done.text)["rates"]


@pytest.mark.parametrize(
    ("put", "back"),
    [
        ("parts.setdefault('a', []).append(total)", "sum(parts['a'])"),
        ("names = losses\nnames.append(total)", "sum(losses)"),
        ("keep(losses, total)", "sum(losses)"),
    ],
)
def test_a_backward_goes_through_what_it_is_put_into(put: str, back: str) -> None:
    body = f"total += loss\n{put}\nif i == 5:\n    {back}.backward()"
    text = SCRIPT.format(body=body.replace("\n", "\n        "))
    text = text.replace("def mean", "def keep(held, x):\n    held.append(x)\n\n\ndef mean")
    assert not apply(RULE, text.replace("torch.manual", "parts = {}\ntorch.manual")).findings


BOX = """
import torch
from torch import nn


class Box:
    def __init__(self):
        self.losses = []

    def add(self, loss):
        self.losses.append(loss)

    @property
    def total(self):
        return sum(self.losses)

    def each(self):
        for loss in self.losses:
            yield loss

    def __iter__(self):
        return iter(self.losses)


class Log:
    def __init__(self):
        self.losses = []

    def put(self, losses):
        self.losses.append(losses)


def back(held):
    sum(held.losses).backward()


torch.manual_seed(0)
net = nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
box, log = Box(), Log()
for epoch in range(2):
    kept = []
    for i in range(6):
        loss = net(torch.randn(8, 4)).pow(2).mean()
        {body}
        opt.step()
        opt.zero_grad()
    log.put(kept)
"""


@pytest.mark.parametrize(
    "back",
    [
        "box.total.backward()",
        "sum(l for l in box).backward()",
        "sum(box.each()).backward()",
        "sum(getattr(box, 'losses')).backward()",
        "sum(vars(box)['losses']).backward()",
        "back(box)",
    ],
)
def test_what_an_object_gives_back(back: str) -> None:
    """Properties, generators and the object as a whole are ways to what was put into it."""
    body = f"box.add(loss)\n        if i == 5:\n            {back}"
    assert not apply(RULE, BOX.format(body=body)).findings


def test_attributes_of_one_name_in_other_classes() -> None:
    """A backward goes through ``box.losses``, and not through ``log.losses``."""
    body = "box.losses = [loss]\n        sum(box.losses).backward()\n        kept.append(loss)"
    found = apply(RULE, BOX.format(body=body))
    assert "kept.append(loss.detach())" in found.lines
    assert torch.equal(run(found.before)["net"].weight, run(found.text)["net"].weight)


BOTH = """
import torch
from torch import nn
model = nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    total, seen = 0, 0.0
    for i in range(6):
        x, y = torch.randn(6, 4).cuda(), torch.randn(6, 2).cuda()
        loss = (model(x) - y).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss
        seen += loss.item()
    print(total, seen)
"""


def test_with_the_sums_that_are_read_in_each_step() -> None:
    lines = apply(RULE + " loss-item-sync", BOTH).lines
    assert "total += loss.detach()" in lines and "seen += loss.detach().double()" in lines
