"""cache-constant: tensors of one number that each step copies to the device."""

from __future__ import annotations

import textwrap

import pytest
import torch
import torch.nn as nn

from tests.onerule import apply, run

SCRIPT = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Exposure(nn.Module):
    def __init__(self, level, steps):
        super().__init__()
        self.pool = nn.AvgPool2d(2)
        self.level, self.steps = level, steps

    def forward(self, x, y):
        mean = self.pool(torch.mean(x, 1, keepdim=True))
        BODY
        return torch.mean(torch.pow(mean, 2))


data = TensorDataset(torch.randn(16, 3, 8, 8), torch.randint(0, 3, (16,)))
loader = DataLoader(data, batch_size=4)
model = nn.Conv2d(3, 3, 3, padding=1).to(device)
criterion = Exposure(0.6, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for epoch in range(2):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
"""
LEVEL = "torch.FloatTensor([self.level]).to(device)"


def written(body: str, *changes: tuple[str, str], rules: str = "cache-constant") -> list[str]:
    """The new lines, where the losses stay the same to the last bit."""
    text = SCRIPT.replace("BODY", textwrap.indent(body, " " * 8).strip())
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    found = apply(rules, text)
    assert run(text)["losses"] == run(found.text)["losses"]
    return found.lines


@pytest.mark.parametrize(
    ("body", "new"),
    [
        (f"mean = mean - {LEVEL}", "mean = mean - self.level"),
        (f"mean = {LEVEL} - mean", "mean = self.level - mean"),
        (f"mean = mean * ({LEVEL})", "mean = mean * self.level"),
        ("mean = mean + torch.tensor([[0.1]]).to(x.device)", "mean = mean + 0.1"),
        ("mean = mean - torch.tensor(-0.3).to(device)", "mean = mean - -0.3"),
        ("mean = mean - torch.Tensor([self.level + 0.1]).to(device)", None),
        ("mean = torch.mul(mean, torch.FloatTensor([2]).to(device))", "mean = torch.mul(mean, 2)"),
        ("mean = mean.sub(torch.FloatTensor([2]).to(device))", "mean = mean.sub(2)"),
        (f"mean = mean * (mean > {LEVEL})", "mean = mean * (mean > self.level)"),
        (f"mean = F.max_pool2d(x, 2) * {LEVEL}", "mean = F.max_pool2d(x, 2) * self.level"),
        (f"mean = torch.where(mean > 0, mean, {LEVEL})", "mean = torch.where(mean > 0, mean, self.level)"),
        (f"mean = torch.where(mean > 0, {LEVEL}, mean)", "mean = torch.where(mean > 0, self.level, mean)"),
        (f"mean = x.mean((2, 3)) - {LEVEL}", "mean = x.mean((2, 3)) - self.level"),
        (
            f"zero = torch.zeros(1, device=x.device)\nmean = torch.max(mean, zero) * {LEVEL}",
            "mean = torch.max(mean, zero) * self.level",
        ),
    ],
)  # fmt: skip
def test_a_number_is_enough(body: str, new: str | None) -> None:
    assert written(body) == [new or "mean = mean - (self.level + 0.1)"]


@pytest.mark.parametrize(
    ("body", "changes"),
    [
        (f"mean = mean / {LEVEL}", ()),  # CUDA multiplies by the reciprocal of a number
        (f"mean = mean.mean() - {LEVEL}", ()),  # of one dimension, then
        ("mean = mean.mean((2, 3)) - torch.tensor([[[0.5]]]).to(device)", ()),
        (f"mean = torch.where({LEVEL} > 2, mean, -mean)", ()),
        (f"mean = torch.where(mean > 0, {LEVEL}, torch.tensor([0.5]).to(device)) + mean", ()),
        (f"mean = torch.max(mean, {LEVEL})", ()),  # another gradient where they are equal
        ("mean = mean - torch.FloatTensor([self.steps > 2]).to(device)", ()),
        ("mean = mean + (y[:, None, None, None] * torch.tensor([2]).to(device)).float()", ()),
        (f"mean = mean.double() - {LEVEL}", ()),
        (f"mean = (mean.half() - {LEVEL}).float()", ()),
        (
            f"mean = mean - {LEVEL}",
            (("= Exposure(0.6, 3)", "= Exposure([0.6, 0.5, 0.4, 0.3], 3)"),),
        ),
        (
            f"mean = mean - {LEVEL}",
            (("loss = criterion(", 'with torch.autocast("cpu"):\n            loss = criterion('),),
        ),
        (f"mean = mean - {LEVEL}", (("losses = []", "losses = []\nmodel.double().float()"),)),
        (f"level = {LEVEL}\nlevel += 1\nmean = mean - level", ()),
        (f"mean = mean - {LEVEL} * torch.tensor([0.2]).to(device)", ()),
    ],
)
def test_where_a_number_would_be_another_thing(
    body: str, changes: tuple[tuple[str, str], ...]
) -> None:
    lines = "\n".join(written(body, *changes))
    assert "- self.level" not in lines and "/ self.level" not in lines
    assert "2)" not in lines and "0.5)" not in lines


BOTH = """\
low = torch.max(mean, torch.FloatTensor([0]).to(device))
mean = low + torch.min(mean, torch.FloatTensor([0.3]).to(device)) / torch.FloatTensor([0.5]).to(device)
mean = torch.max(mean, torch.FloatTensor([0.3]).to(device)) / torch.FloatTensor([-7]).to(device)
"""


def test_equal_constants_are_one_buffer_with_a_name_that_says_what_it_is() -> None:
    assert written(BOTH) == [
        'self.register_buffer("zero", torch.FloatTensor([0]), persistent=False)',
        'self.register_buffer("constant_0_3", torch.FloatTensor([0.3]), persistent=False)',
        'self.register_buffer("one_half", torch.FloatTensor([0.5]), persistent=False)',
        'self.register_buffer("minus_constant_7", torch.FloatTensor([-7]), persistent=False)',
        "low = torch.max(mean, self.zero)",
        "mean = low + torch.min(mean, self.constant_0_3) / self.one_half",
        "mean = torch.max(mean, self.constant_0_3) / self.minus_constant_7",
        "criterion = Exposure(0.6, 3).to(device)",
    ]


def test_a_constant_below_a_condition_is_a_buffer_all_the_same() -> None:
    """Where it is spelled out: nothing can fail in the constructor."""
    body = "if len(x) > 2:\n    mean = torch.max(mean, torch.tensor([-1, 2]).to(device)[0])"
    made = 'self.register_buffer("constant", torch.tensor([-1, 2]), persistent=False)'
    assert made in written(body)
    assert "self.register_buffer" not in str(written(body.replace("-1, 2", "self.level, 2")))


CLAMP = """
class Clamp(nn.Module):
    def forward(self, x):
        x = torch.max(x, torch.tensor([-1.0]).to(device))
        if len(x) > 2:
            x = torch.max(x, torch.tensor([-1.0]).to(device))
        return self.upper(x)

    def upper(self, x) -> torch.Tensor:
        return torch.min(x, torch.tensor([0.5, 1.0]).to(device)[1:])


data ="""


@pytest.mark.parametrize("other", ["self", "this"])
def test_a_class_without_a_constructor_gets_one_for_all(other: str) -> None:
    upper = CLAMP.rpartition("def upper")[2]
    own = CLAMP.replace(upper, upper.replace("self", other)).lstrip("\n")
    model = "model = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), Clamp())"
    changes = (("data =", own), ("model = nn.Conv2d(3, 3, 3, padding=1)", model))
    lines = written("pass", *changes)
    made = [line.split(", ", 1)[0] for line in lines if "register_buffer" in line]
    assert lines.count("def __init__(self):") == 1
    assert made[0] == 'self.register_buffer("minus_one"'
    assert made[1:] == ['self.register_buffer("constant"'] * (other == "self")


def test_other_constants_of_one_name() -> None:
    body = """\
    low = torch.max(mean, torch.tensor([0]).to(device))
    mean = torch.max(torch.tensor([0.0]).to(device), low)
    """
    assert [line.split(",")[0] for line in written(textwrap.dedent(body))[:2]] == [
        'self.register_buffer("zero"',
        'self.register_buffer("zero_2"',
    ]


def test_a_loss_goes_where_a_network_went_by_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (torch.Tensor, nn.Module):
        monkeypatch.setattr(kind, "cuda", lambda self: self)
    body = "mean = torch.max(mean, torch.FloatTensor([0]).to(device))"
    plain = (".to(device)", ".cuda()")
    assert written(body, plain)[-1] == "criterion = Exposure(0.6, 3).cuda()"
    before = (
        "model = nn.Conv2d(3, 3, 3, padding=1).cuda()\ncriterion = Exposure(0.6, 3)",
        "criterion = Exposure(0.6, 3)\nmodel = nn.Conv2d(3, 3, 3, padding=1).cuda()",
    )
    gate = ("criterion = Exposure(", "if len(data) > 3:\n    model.cuda()\ncriterion = Exposure(")
    late = ("3, padding=1).cuda()", "3, padding=1)")
    for changes in ((before,), (late, gate)):
        assert not any("Exposure" in line for line in written(body, plain, *changes))


def test_equal_constants_of_a_function_are_one_function() -> None:
    loss = """
    def criterion(x, y):
        low = torch.max(x, torch.FloatTensor([0]).to(x.device))
        high = torch.min(x, torch.FloatTensor([0]).to(x.device))
        high = torch.min(high, torch.FloatTensor([-0.5]).to(x.device))
        return (low - 0.5 * high).mean()


    data ="""
    changes = (
        ("criterion = Exposure(0.6, 3)\n", ""),
        ("data =", textwrap.dedent(loss).lstrip("\n")),
    )
    assert written("pass", *changes) == [
        "import functools",
        "@functools.lru_cache(maxsize=None)",
        "def make_zero(device):",
        "return torch.FloatTensor([0]).to(device)",
        "@functools.lru_cache(maxsize=None)",
        "def make_minus_one_half(device):",
        "return torch.FloatTensor([-0.5]).to(device)",
        "low = torch.max(x, make_zero(x.device))",
        "high = torch.min(x, make_zero(x.device))",
        "high = torch.min(high, make_minus_one_half(x.device))",
    ]


@pytest.mark.parametrize(
    ("body", "unread"),
    [
        (f"low = torch.sign(mean - {LEVEL}) * 2\nhigh = low + 1", "low"),
        (f"low = torch.rand_like(mean) - {LEVEL}", "low"),  # others would be drawn next
        (f"low = self.weigh(mean) - {LEVEL}", ""),
        (f"low = mean.mul_(2) - {LEVEL}", ""),
        (f"low = mean\nfor _ in range(2):\n    low = low - {LEVEL}", "low"),
        (f"low = torch.max(mean, {LEVEL})\nmean = mean + 0 * low", ""),
        (f"low = torch.max(mean, {LEVEL})\ndef later():\n    return low\nlater()", ""),
        (f"low = torch.max(mean, {LEVEL})\nlocals()", ""),
        (f"low = self.register_buffer('seen', {LEVEL}, persistent=False)", ""),
        (f"global low\nlow = torch.max(mean, {LEVEL})", ""),
        (f"self.low = torch.max(mean, {LEVEL})", ""),
    ],
)
def test_what_nobody_reads_stays_as_it_is(body: str, unread: str) -> None:
    text = SCRIPT.replace("BODY", textwrap.indent(body, " " * 8).strip())
    found = apply("cache-constant device-creation", text)
    reason = f"nobody reads `{unread}`"
    assert (reason in found.refusals) is bool(unread)
    assert "low = " in found.text
    if unread:
        assert not found.fixes


@pytest.mark.parametrize(
    "line",
    [
        f"low = torch.max(mean, {LEVEL})",
        f"low = torch.max({LEVEL} - 10 * torch.min(mean, {LEVEL}), torch.FloatTensor([0.5]).to(device))",
    ],
)
def test_a_line_that_nobody_needs_goes(line: str) -> None:
    text = SCRIPT.replace("BODY", line)
    found = apply("cache-constant device-creation", text)
    assert line not in found.text and not found.lines
    assert run(found.text)["losses"] == run(text)["losses"]


def test_what_nobody_reads_is_not_made_on_the_device() -> None:
    body = "low = mean * torch.ones(mean.size()).to(device)"
    assert written(body, rules="device-creation") == []
    assert written(f"{body}\nmean = mean + low", rules="device-creation")


ATTENTION = """\
scores = x.flatten(2).mean(1)
{body}
mean = mean + scores.sum()
"""


@pytest.mark.parametrize(
    ("body", "new"),
    [
        ("none = -9e15 * torch.ones_like(scores)\nscores = torch.where(scores > 0, scores, none).softmax(1)", "-9e15"),
        ("none = torch.ones_like(scores) * -9e15\nscores = torch.where(scores > 0, scores, none).softmax(1)", "-9e15"),
        ("scores = torch.where(scores > 0, scores, torch.zeros_like(scores))", "0.0"),
        ("scores = torch.where(scores > 0, torch.full_like(scores, -3), scores)", "-3"),
        ("none = torch.zeros_like(scores)\na = torch.where(scores > 1, scores, none)\nscores = a * torch.where(scores > 2, none, scores)", "0.0"),
        ("kept = scores\nscores = torch.where(kept > 0, kept, torch.ones_like(kept))", "1.0"),
    ],
)  # fmt: skip
def test_a_branch_of_one_number(body: str, new: str) -> None:
    lines = written(ATTENTION.format(body=body))
    assert lines and all(f", {new}" in line for line in lines) and "_like" not in str(lines)


@pytest.mark.parametrize(
    "body",
    [
        "none = torch.zeros_like(scores)\nscores = torch.where(scores > 0, scores, none) + none",
        "none = torch.zeros_like(scores)\nnone += 1\nscores = torch.where(scores > 0, scores, none)",
        "none = torch.zeros_like(scores)\nnone[0] = 1\nscores = torch.where(scores > 0, scores, none)",
        "none = torch.zeros_like(scores)\nscores = scores[:1]\nscores = torch.where(scores > 0, scores, none)",
        "scores = torch.where(y[:, None] > 0, scores, torch.zeros_like(x)[:, 0, :1, 0])",
        "none = torch.zeros_like(scores)\nscores = torch.where(none > 0, scores, none)",
        "scores = torch.where(scores > 0, scores, torch.zeros_like(scores, dtype=torch.float64))",
        "scores = torch.where(y > 0, y, torch.zeros_like(y)).float()",  # whole numbers
        "kept = y\nscores = scores + torch.where(kept > 0, kept, 0.5 * torch.ones_like(kept))[:, None]",
        "scores = torch.where(scores > 0, scores, 2.0 + torch.ones_like(scores))",
        "none = torch.zeros_like(scores)\nseen = dict(locals())\nscores = torch.where(scores > 0, scores, none)",
        "none = torch.zeros_like(scores)\ndef later():\n    return none\nscores = torch.where(scores > 0, scores, none) + later()",
        "half = (scores * 1.0).half()\nscores = torch.where(half > 0, half, -9e15 * torch.ones_like(half)).clamp(-1, 1).float()",
    ],
)  # fmt: skip
def test_branches_that_stay(body: str) -> None:
    assert written(ATTENTION.format(body=body)) == []


def test_a_number_beyond_16_bits_and_autocast() -> None:
    body = ATTENTION.format(
        body="scores = torch.where(scores > 0, scores, -9e15 * torch.ones_like(scores)).softmax(1)"
    )
    change = ("loss = criterion(", 'with torch.autocast("cpu"):\n            loss = criterion(')
    assert written(body, change) == []
    assert written(body.replace("-9e15", "-9e3"), change)


def test_an_older_torch_takes_no_number_there() -> None:
    body = ATTENTION.format(
        body="scores = torch.where(scores > 0, scores, torch.zeros_like(scores))"
    )
    text = SCRIPT.replace("BODY", textwrap.indent(body, " " * 8).strip())
    found = apply("cache-constant", text, files={"requirements.txt": "torch==1.10.0\n"})
    assert not found.fixes and "1.13" in found.refusals


HALVES = """
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, x):
        d = self.a(x) - torch.FloatTensor([0.5]).to(device)
        return d.abs().mean()


model = Net().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
losses = []
for i in range(4):
    x = torch.randn(4, 3, 16, 16, device=device)
    loss = model(x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
"""


def test_what_a_tensor_makes_fp32_again_under_autocast() -> None:
    """16 bits less a number are 16 bits: the tensor is kept."""
    assert "self.a(x) - 0.5" in apply("cache-constant", HALVES).text
    found = apply("cache-constant autocast", HALVES)
    assert "torch.autocast(" in found.text and "self.a(x) - self.one_half" in found.text
    after = run(found.text)["losses"]
    assert after == pytest.approx(run(HALVES)["losses"], rel=0.02)
