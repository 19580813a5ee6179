"""loss-item-sync: what is put off, read late or read once computes and prints the very same; and
what must stay.
"""

from __future__ import annotations

import contextlib
import io
import textwrap

import pytest

from tests.onerule import Applied, apply, run

HEAD = """\
import math
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = TensorDataset(torch.randn(44, 4), torch.randint(0, 3, (44,)))
loader, test_loader = DataLoader(data, batch_size=8, shuffle=True), DataLoader(data, batch_size=8)
model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
METER = """\
class Meter:
    def __init__(self):
        self.reset()

    def reset(self):
        self.val = self.sum = self.count = self.avg = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count

    def __str__(self):
        return f"{self.val!r} ({self.avg!r})"

"""


def training(step: str, start: str = "", end: str = "", before_backward: str = "") -> str:
    """A script with ``start`` before each epoch's loop, ``step`` after the update of each turn and
    ``end`` after the loop.
    """
    return (
        "for epoch in range(2):\n"
        + indented(start, 4)
        + "    for i, (x, y) in enumerate(loader):\n"
        + "        x, y = x.to(device), y.to(device)\n"
        + "        optimizer.zero_grad()\n"
        + "        out = model(x)\n"
        + "        loss = F.cross_entropy(out, y)\n"
        + indented(before_backward, 8)
        + "        loss.backward()\n"
        + "        optimizer.step()\n"
        + indented(step, 8)
        + indented(end, 4)
    )


def indented(text: str, by: int) -> str:
    return "".join(" " * by + line + "\n" for line in text.splitlines())


def output(text: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        run(text)
    return out.getvalue()


def same(text: str, *expected: str) -> Applied:
    """The rule writes lines with ``expected``, and both scripts print the same, to the last
    digit.
    """
    done = apply("loss-item-sync", text)
    for part in expected:
        assert any(part in line for line in done.lines), (part, done.lines, done.refusals)
    before = output(text)
    assert before and output(done.text) == before
    return done


def refused(text: str, reason: str) -> None:
    done = apply("loss-item-sync", text)
    assert not done.fixes, done.lines
    assert reason in done.refusals, done.refusals


def untouched(text: str) -> None:
    done = apply("loss-item-sync", text)
    assert not done.fixes, done.lines


@pytest.mark.parametrize(
    ("imports", "free"),
    [
        ("from models.train import WIDTH", True),
        ("import models.train as parts", True),
        ("from .train import WIDTH", True),
        ("from . import train", True),
        ("from models import train", True),
        ("from .. import train", False),
        ("import train", False),
        ("from train import *", False),
        ("from unknown.train import WIDTH", False),
    ],
)
def test_files_of_the_same_name_are_others(imports: str, free: bool) -> None:
    text = HEAD + "import models.net\n" + training("value = loss.item()\n", "", "print(value)")
    files = {"models/__init__.py": "", "models/train.py": "WIDTH = 2\n"}
    files["models/net.py"] = f"def late():\n    {imports}\n".replace("import *", "import value")
    assert bool(apply("loss-item-sync", text, files=files).fixes) is free


HITS = "(out.argmax(1) == y).sum()"


@pytest.mark.parametrize(
    ("step", "start", "fixed"),
    [
        ("value = loss.item()", "", False),
        (f"value += {HITS}.cpu()", "value = 0", False),
        (f"value += {HITS}.item()", "value = 0", True),
        ("value += loss.item()", "value = 0.0", True),
        ("value.append(loss.item())", "value = []", True),
    ],
)
def test_variables_that_other_files_may_read(step: str, start: str, fixed: bool) -> None:
    """They are in the end what they were: numbers, or on the host."""
    text = HEAD + training(step, start, f"print({'sum' if 'append' in step else 'float'}(value))")
    last = "def last():\n    import train\n    return train.value\n"
    done = apply("loss-item-sync", "from helper import last\n" + text, files={"helper.py": last})
    assert bool(done.fixes) is fixed and apply("loss-item-sync", text).fixes
    one, other = (run(t.replace("from helper import last", ""))["value"] for t in (text, done.text))
    assert one == other and type(one) is type(other)
    assert not isinstance(one, list) or [*map(type, one)] == [*map(type, other)]


# ------------------------------------------------------------------------------ sums, lists, meters
SUMS = [
    ("total += loss.item() / 3", "total = 0", "print(repr(total))"),
    ("total += loss.item() / x.size(0)", "total = 0.0", "print(repr(total / len(data)))"),
    ("total = total + float(loss) * len(x) / len(loader)", "total = 0", "print(repr(total))"),
    ("total += loss.data.item() / 3", "total = 0", "print(repr(total))"),
    ("total = total / 3 + loss.item()", "total = 0", "print(repr(total))"),
    ("total += math.exp(loss.item())", "total = 0", "print(repr(total))"),
    ("total = max(total, loss.item())", "total = 0", "print(repr(total))"),
    (
        "total += out.argmax(1).eq(y).sum(dtype=torch.int32).item()",
        "total = 0",
        "print(repr(total), repr(total / 44))",
    ),
    ("total += (out.argmax(1) == y).float().mean().item() / 3", "total = 0", "print(repr(total))"),
    ("total += loss.detach().cpu().numpy()", "total = 0", "print(repr(total), repr(total / 2))"),
    ("total.append(loss.data.cpu().numpy())", "total = []", "print(total, np.mean(total))"),
    (
        "v = loss.cpu().detach().numpy()\ntotal += v\nif writer:\n    print(v)",
        "total, writer = 0.0, None",
        "print(repr(total))",
    ),
    ("total.append((i, loss.item()))", "total = []", "print(total)"),
    (
        "psnr = 10 * math.log10(1 / loss.item())\ntotal += psnr",
        "total = 0",
        "print(repr(total), psnr)",
    ),
]


@pytest.mark.parametrize(("step", "start", "end"), SUMS)
def test_what_is_put_away_is_read_after_the_loop(step: str, start: str, end: str) -> None:
    done = same(HEAD + METER + training(step, start, end), " = []", ".append(")
    name = done.lines[0].split(" = ")[0].split(", ")[0]
    kept = [k[0] if isinstance(k, tuple) else k for k in run(done.text)[name]]
    assert len(kept) == 6 and not any(k.requires_grad for k in kept)


BY_HEADS = """\
class ByHeads(nn.Module):
    def __init__(self, average=True):
        super().__init__()
        self.average, self.criterion = average, self._squared

    def forward(self, outputs):
        if isinstance(outputs, (tuple, list)):
            loss = START
            for i, part in enumerate(outputs):
                loss += self.criterion(part)
            if self.average:
                loss /= i + 1
        else:
            loss = self.criterion(outputs)
        return loss

    def _squared(self, x):
        return F.mse_loss(x, torch.ones_like(x))

"""
MORE = "extra = ByHeads(i > 1)(list(model(x)))\nloss = loss + extra"


def test_a_loss_that_begins_as_a_number() -> None:
    """A number of Python has no `item()`: what is read is a tensor."""
    text = HEAD + BY_HEADS.replace("START", "0.0")
    step, end = "total += extra.item()", "print(repr(total))"
    done = same(text + training(step, "total = 0.0", end, MORE), "total += extra.detach()")
    assert len(done.fixes) == 1


@pytest.mark.parametrize(
    ("start", "read"), [("0.0", "float(extra)"), ("np.float64(0)", "extra.item()")]
)
def test_numbers_that_can_be_read_in_the_same_way(start: str, read: str) -> None:
    """``float()`` takes numbers, and those of NumPy's have an ``item()``."""
    text = HEAD + BY_HEADS.replace("START", start)
    untouched(text + training(f"total += {read}", "total = 0.0", "print(repr(total))", MORE))


FIXED = """\
class Fixed(torch.distributions.Categorical):
    def entropy(self):
        return super().entropy().sum(-1)

"""
WITH_INIT = "    def __init__(self, scores):\n        super().__init__(logits=scores)\n\n"


@pytest.mark.parametrize("own", [False, True])
def test_a_distribution_that_extends_one_of_torch(own: bool) -> None:
    """What it computes is on the device of its parameters."""
    made = "Fixed(model(x))" if own else "Fixed(logits=model(x))"
    text = HEAD + FIXED.replace("    def entropy", WITH_INIT * own + "    def entropy")
    step = "total += entropy.item()"
    more = f"entropy = {made}.entropy()\nloss = loss - 0.1 * entropy"
    end = "print(repr(total))"
    same(text + training(step, "total = 0", end, more), "entropy.detach()")


@pytest.mark.parametrize("made", ["Fixed(logits=model(x).cpu())", "Fixed(logits=torch.ones(8, 3))"])
def test_a_distribution_of_the_host(made: str) -> None:
    step, more = "total += entropy.item()", f"entropy = {made}.entropy()"
    untouched(HEAD + FIXED + training(step, "total = 0", "print(repr(total))", more))


@pytest.mark.parametrize("given", ["loss.item(), x.size(0)", "val=loss.item(), n=len(y)"])
def test_a_meter_keeps_tensors_until_somebody_asks(given: str) -> None:
    text = HEAD + METER + training(f"total.update({given})", "total = Meter()", "print(total)")
    done = same(text, f"total.keep({given.replace('.item()', '.detach()')})", "val.item()")
    assert not run(done.text)["total"].kept


IF_ANY = ["print(repr(float(total)))"]
# what is added, what the sum begins as, where it is used, what becomes of the last two
ON_DEVICE = [
    ("total += loss.item()", "total = 0", "print(repr(total))", IF_ANY),
    ("total += loss.item()", "total = 0.0", "print(repr(total))", ["print(repr(float(total)))"]),
    ("total += loss.item()", "total = 0.0", "print(total, -total)", ["total = float(total)"]),
    ("total -= loss.data.item()", "total = 0", "print(repr(total))", IF_ANY),
    ("total += loss.cpu().item()", "total = 0", "print(repr(total))", IF_ANY),
    ("total += float(loss.detach().cpu())", "total = 0", "print(repr(total))", IF_ANY),
    (
        "total += (loss > 0.5).sum().item()",
        "total = 0",
        "print(repr(total))",
        ["print(repr(int(total)))"],
    ),
    (
        "total += loss.item() * x.size(0)",
        "total = 0",
        "print(repr(total / len(data)))",
        ["print(repr(float(total) / len(data)))"],
    ),
    ("total = 0.9 * total + 0.1 * loss.item()", "total = 0", "print(repr(total))", IF_ANY),
    ("total = -loss.item() - (total - 2) * 3", "total = 0", "print(repr(total))", IF_ANY),
    ("total += loss.item() + out.mean().item()", "total = 0", "print(repr(total))", IF_ANY),
    ("total += float(out.argmax(1).eq(y).sum())", "total = 0", "print(repr(total))", IF_ANY),
    (
        "total += out.argmax(1).eq(y).sum().item()",
        "total = 0",
        "print(repr(total), repr(total / 44))",
        ["total += out.argmax(1).eq(y).sum()", "total = int(total)"],
    ),
    (
        "hits = out.argmax(1).eq(y).sum()\ntotal += hits.item()",
        "total = 0",
        "print(total)",
        ["total += hits", "print(int(total))"],
    ),
    (
        "hits = out.argmax(1).eq(y).sum()\ntotal += hits.item()",
        "total = 0.0",
        "print(total, total / 44)",
        ["total += hits.double()", "total = float(total)"],
    ),
    (
        "total += loss.item()\nif i % 2 == 1:\n    print(repr(total / 2))\n    total = 0.0",
        "total = 0.0",
        "",
        ["print(repr(float(total) / 2))"],
    ),
    (
        "total += loss.item()\nif i % 2 == 1:\n    print(total, -total)",
        "total = 0.0",
        "print(total)",
        ["total = float(total)"],
    ),
    (
        "if i % 2 == 1:\n    print(total)\n    total = 0.0\ntotal += loss.item()",
        "total = 0.0",
        "",
        ["print(float(total))"],
    ),
    (
        "total += loss.item()\nif i == 2:\n    break",
        "total = 0.0",
        "for k in range(2):\n    print(k, total)",
        ["total = float(total)"],
    ),
    (
        "total += loss.item()",
        "total = 0.0",
        "for total in [total]:\n    print(total)",
        ["for total in [float(total)]:"],
    ),
]


@pytest.mark.parametrize(("step", "start", "end", "written"), ON_DEVICE)
def test_sums_that_stay_on_the_device(step: str, start: str, end: str, written: list[str]) -> None:
    """The same to the last digit, without a list; what has no batch is the number that it began as,
    though 0 may be 0.0.
    """
    text = training(step, start, end)
    done = same(HEAD + text, *written)
    assert ".append(" not in done.text and "[]" not in done.text
    none = HEAD.replace("(44, 4)", "(0, 4)").replace("(44,)", "(0,)").replace(", shuffle=True", "")
    if "len(data)" not in text:
        empty = output(apply("loss-item-sync", none + text).text)
        assert empty.replace("0.0", "0") == output(none + text).replace("0.0", "0")


OTHER = "other = out.pow(2).mean()\n"


@pytest.mark.parametrize(
    ("step", "start", "end", "written"),
    [
        (
            f"total += loss.item()\n{OTHER}total += 2 * other.item()",
            "total = 0.0",
            "print(total / len(loader))",
            ["total += 2 * other.detach().double()", "print(float(total) / len(loader))"],
        ),
        (
            f"total += loss.item()\nif i % 2 == 1:\n    print(total)\n{OTHER}total -= other.item()",
            "total = 0",
            "print(total)",
            ["total -= other.detach().double()", "print(float(total))"],
        ),
        (
            f"total += loss.item()\n{OTHER}if other < 9:\n    total += other.item()",
            "total = 0.0",
            "print(total)",
            ["total += other.detach().double()"],
        ),
        (
            "total += loss.item()\ntotal += (out.argmax(1) == y).sum().item()",
            "total = 0.0",
            "print(total)",
            ["total += (out.argmax(1) == y).sum().double()"],
        ),
        (
            "hits += (out.argmax(1) == y).sum().item()\nhits += (out.argmin(1) == y).sum().item()",
            "hits = 0",
            "print(hits)",
            ["hits += (out.argmin(1) == y).sum()"],
        ),
    ],
)
def test_a_sum_that_several_statements_add_to(
    step: str, start: str, end: str, written: list[str]
) -> None:
    done = same(HEAD + training(step, start, end), *written)
    assert ".append(" not in done.text and "total.item()" not in done.text


@pytest.mark.parametrize(
    "step",
    [
        f"total += loss.item()\n{OTHER}total += other.item() / 3",  # CUDA multiplies by the inverse
        "total += loss.item()\ntotal += (out.argmax(1) == y).sum().item()",
        "total += loss.item()\ntotal += 1",
        f"total += loss.item()\n{OTHER}total += other.item()\nprint(total)",
    ],
)
def test_a_sum_of_several_kinds(step: str) -> None:
    refused(HEAD + training(step, "total = 0", "print(total)"), "`total` is used in every step")


NOT_THERE = [  # where the sum cannot be made on the device
    ("total += loss.item() / 3", "total = 0.0"),  # CUDA multiplies by the inverse
    ("total = total / 3 + loss.item()", "total = 0.0"),
    ("total += out.argmax(1).eq(y).sum(dtype=torch.int32).item()", "total = 0"),  # too small
    ("total += loss.item()", "total = np.float64(0)"),
    ("total += loss.item()", "total = sum([])"),
]


@pytest.mark.parametrize(("step", "start"), NOT_THERE)
def test_sums_that_would_not_be_the_same_on_the_device(step: str, start: str) -> None:
    done = same(HEAD + training(step, start, "print(repr(total))"))
    assert not any(line.startswith("total +=") and ".detach()" in line for line in done.lines)
    assert any(".append(" in line for line in done.lines), done.lines


def test_a_sum_that_nothing_reads_is_left_and_says_so() -> None:
    done = apply("loss-item-sync", HEAD + training("total += loss.item()", "total = 0"))
    assert not done.fixes and "the statement can go" in done.refusals


def test_a_meter_that_nothing_reads() -> None:
    text = """
import torch


class Meter:
    def __init__(self):
        self.sum = self.count = self.average = 0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n
        self.average = self.sum / self.count


device = torch.device("cuda")
model = torch.nn.Linear(4, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def validate(loader):
    losses, errors = Meter(), Meter()
    with torch.no_grad():
        for x, y in loader:
            output = model(x.to(device))
            losses.update(torch.nn.functional.mse_loss(output, y.to(device)).item(), len(x))
            errors.update((output - y.to(device)).abs().mean().item(), len(x))
    return errors.average


data = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(3)]
for epoch in range(2):
    for x, y in data:
        loss = torch.nn.functional.mse_loss(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(validate(data))
"""
    found = apply("loss-item-sync", text)
    assert "the statement can go" in found.refusals and "internal error" not in found.refusals


UNREAD = """\
def train(epochs, seen=None):
    {declared}
    for epoch in range(epochs):
        {start}
        steps = 0
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            {step}
            steps += 1
            optimizer.step()
        {end}
        print(steps, float(model[0].weight.detach().double().sum()))

train(2)
"""


def unread(step: str = "total += loss.item()", start: str = "total = 0", **others: str) -> str:
    lines = {"declared": "pass", "end": "pass", **others}
    return HEAD + UNREAD.format(step=step, start=start, **lines)


def test_a_sum_of_a_function_that_nothing_reads_goes() -> None:
    done = same(unread())
    assert done.fixes and "total" not in done.text
    kept = same(unread(start="total = float(epochs)"))  # perhaps there is more to it than a number
    assert "total = float(epochs)" in kept.text and ".item()" not in kept.text
    two = same(unread(end="print(total)\n        total = 0"))
    assert "total" in two.text


@pytest.mark.parametrize(
    "others",
    [
        {"declared": "global total"},
        {"end": "print(sorted(locals()))"},
        {"step": "total += loss.item() * torch.rand(1).item()"},
        {"declared": "def show(): print(total)", "end": "show()"},
    ],
)
def test_a_sum_that_somebody_may_read_stays(others: dict[str, str]) -> None:
    done = apply("loss-item-sync", unread(**others))
    assert "total +=" in done.text or "total = 0" in done.text


@pytest.mark.parametrize(
    "declared",
    [
        "config = locals()",
        "config = dict(**locals()); assert 'seen' in vars() and config['epochs'] == 2",
        "assert locals()['epochs'] == 2 and 'epochs' in locals()",
    ],
)
def test_variables_are_shown_before_they_are_set(declared: str) -> None:
    done = same(unread(end="print(total)", declared=declared))
    assert done.fixes and ".item()\n            steps" not in done.text


SETTINGS = """\
name, value = "steps_shown", 2
steps_shown = 3
assert name in globals()
globals()[name] = type(globals()[name])(value)
"""


def test_settings_by_their_names_before_the_training() -> None:
    text = SETTINGS + HEAD + training("total += loss.item()", "total = 0", "print(total)")
    done = same(text)
    assert done.fixes and "total += loss.item()" not in done.text
    again = "total += loss.item()\n" + SETTINGS
    for late in (
        SETTINGS + HEAD + training(again, "total = 0", "print(total)"),
        "shown = globals()\n" + HEAD + training("total += loss.item()", "total = 0", "print(shown['total'])"),
        "exec('x = 1')\n" + HEAD + training("total += loss.item()", "total = 0", "print(total)"),
    ):  # fmt: skip
        assert "total += loss.item()" in same(late).text


EVALUATION = """\
def distance(a, b):
    return torch.mean(torch.norm(a - b, dim=1))

total = 0.0
for x, y in loader:
    with torch.no_grad():
        model(x.to(device))
        total += distance(x.to(device), x.to(device)[:, :1]).item()
print(total)
"""


def test_means_are_floats_where_nothing_is_complex() -> None:
    start = HEAD + training("pass")
    done = same(start + EVALUATION, "total += distance(", "print(float(total))")
    assert ".append(" not in done.text
    said = (
        "# of more complexity\n"
        + start
        + "'A complex network, 3j'\nprint('fft of x')\n"
        + EVALUATION
    )
    assert ".append(" not in same(said, "total += distance(").text
    powers = EVALUATION.replace("torch.norm(a - b, dim=1)", "torch.fft.fft(a - b)")
    for more in ("import torch.fft\n", "print(1j)\n", "print(getattr(torch, 'complex64'))\n"):
        assert ".append(" in same(start + more + EVALUATION).text
    assert ".append(" in same(start + powers).text


def test_the_device_of_another_tensor_is_none_of_its_own() -> None:
    text = training("total += loss.item()", "total = 0.0", "print(total)")
    on = text.replace("y.to(device)", "y.to(model[0].weight.device)")
    assert on != text
    same(HEAD + on, "total += loss.detach().double()")
    asked = HEAD.replace(
        'torch.device("cuda" if torch.cuda.is_available() else "cpu")',
        'torch.device(__import__("os").environ.get("DEVICE", "cpu"))',
    )
    assert asked != HEAD
    assert "double()" not in apply("loss-item-sync", asked + on).text


def test_an_option_that_names_a_device() -> None:
    """No other line speaks of MPS, so that it is a CUDA device or the CPU."""
    named = HEAD.replace(
        'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")',
        "import argparse\nparser = argparse.ArgumentParser()\n"
        'parser.add_argument("--device", default="cpu")\n'
        "device = torch.device(parser.parse_args([]).device)",
    )
    assert named != HEAD
    text = named + training("total += loss.item()", "total = 0", "print(total)")
    same(text, "total += loss.detach().double()")


def test_devices_without_float64() -> None:
    mps = HEAD.replace(
        'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")',
        'device = torch.device("mps" if torch.backends.mps.is_available() else "cpu")',
    )
    assert mps != HEAD
    same(mps + training("total += loss.item()", "total = 0.0", "print(total)"), "losses.append(")
    count = training("total += out.argmax(1).eq(y).sum().item()", "total = 0", "print(total)")
    same(mps + count, "total += out.argmax(1).eq(y).sum()")


SOME, LOSS = "print(repr(total / len(loader)))", "total += loss.item()"
THIRD, SHORT = (
    "total += loss.item() / 3",
    "total += out.argmax(1).eq(y).sum(dtype=torch.int32).item()",
)
FORMS = [  # the loop has a turn where its length is divided by, and its values are read at once
    (THIRD, SOME, ["for value in torch.stack(losses).tolist():", "total += value / 3"]),
    (THIRD, "print(repr(total))", ["for value in losses:", "total += value.item() / 3"]),
    (
        THIRD,
        SOME.replace("loader", "loader.dataset"),
        ["for value in torch.stack(losses).tolist():"],
    ),
    (THIRD, "total /= len(data)\nprint(total)", ["for value in losses:"]),
    (THIRD, "if total:\n    print(total / len(loader))", ["for value in losses:"]),
    (THIRD, "print(total / len(test_loader))", ["for value in losses:"]),
    (THIRD + "\nn += 1", "print(total / n)", ["for value in losses:"]),
    ("if i == 9:\n    continue\n" + THIRD, SOME, ["for value in losses:"]),
    ("if i == 9:\n    break\n" + THIRD, SOME, ["for value in losses:"]),
    ("total += float(loss) / 3", SOME, ["total += value / 3"]),
    (
        "total += int(loss * 9)",
        SOME,
        ["for value in torch.stack(values).tolist():", "total += int(value)"],
    ),
    (
        "total += loss.item() / x.size(0)",
        "print(total)",
        ["losses.append((loss.detach(), x.size(0)))", "total += value.item() / count"],
    ),
    (
        SHORT,
        SOME,
        [
            "counts.append(out.argmax(1).eq(y).sum(dtype=torch.int32))",
            "total += value.item()",
        ],
    ),
    (SHORT, "print(total)", ["for value in counts:", "total += value.item()"]),
    (SHORT + "\nif i == 2:\n    total += 0.1", SOME, ["counts.clear()"]),
    ("kept.append(loss.item())", SOME, ["kept = [value.item() for value in kept]"]),
    (
        "kept.append(loss.item())",
        "print(sum(kept) / len(kept))",
        ["kept = torch.stack(kept).tolist()"],
    ),
    ("kept.append(loss.item())", "", ["kept = [value.item() for value in kept]"]),
    (
        "kept.append(loss.item())\nif i == 9:\n    kept.append(1.0)",
        "",
        ["kept.extend(value.item() for value in losses)"],
    ),
    ("kept.append((i, loss.item()))", SOME, ["kept.append((count, value.item()))"]),
    (
        "total += loss.item() / 3 + out.mean().item()",
        SOME,
        ["values.append((loss.detach(), out.mean().detach()))"],
    ),
    (
        "total += loss.item() / 3\nif i % 2 == 1:\n    print(total)\n    total = 0.0",
        "total = 0",
        ["for value in torch.stack(losses).tolist():", "losses.clear()"],
    ),
    (
        "if i % 2 == 1:\n    print(total)\n    total = 0.0\ntotal += loss.item() / 3",
        "",
        ["for value in losses:", "losses.clear()"],
    ),
]


@pytest.mark.parametrize(("step", "end", "written"), FORMS)
def test_what_is_kept_is_read_at_once_where_that_is_the_same(
    step: str, end: str, written: list[str]
) -> None:
    """Never by ``sum`` of floats, which rounds otherwise from Python 3.12 on."""
    start = "total, n, kept = 0, 0, []"
    done = same(HEAD + training(step, start, f"{end}\nprint(repr(total), kept)"))
    assert set(written) <= set(done.lines), done.lines


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int32", "bool"])
@pytest.mark.parametrize("start", ["0", "0.1"])
def test_no_type_makes_another_sum(dtype: str, start: str) -> None:
    step = f"total += out.mean().to(torch.{dtype}).item()"
    same(HEAD + training(step, f"total = {start}", SOME))


def test_loops_without_iterations_stay_without_effect() -> None:
    empty = HEAD.replace("(44, 4)", "(4, 4)").replace("(44,)", "(4,)")
    empty = empty.replace("shuffle=True", "drop_last=True")
    same(
        empty + training(THIRD, "total = 0", "print(total / len(data))"),
        "total += value.item() / 3",
    )
    caught = "try:\n    print(total / len(loader))\nexcept ZeroDivisionError:\n    print('none')"
    same(empty + training(THIRD, "total = 0", caught), "total += value.item() / 3")


# what follows the list of losses before the loop, the end; whether the list cannot be empty there
MEANS = [
    ("", "print(sum(kept) / len(kept))", True),
    ("", "mean = sum(kept) / len(kept)\nprint(mean, kept[-1], min(kept))", True),
    ("", "print(sum(kept) / max(len(kept), 1))", False),
    ("", "print(sum(kept) / len(kept) if kept else 0)", False),
    ("kept.append(1.0)", "print(sum(kept) / len(kept))", False),
]


@pytest.mark.parametrize(("start", "end", "is_filled"), MEANS)
def test_a_list_that_is_divided_by_its_length_is_not_empty(
    start: str, end: str, is_filled: bool
) -> None:
    form = "stack(kept).tolist()" if is_filled else "value.item() for value in kept"
    form = form.replace("kept", "losses") if start else form
    text = training("kept.append(loss.item())", f"kept = []\n{start}", end)
    done = same(HEAD + text)
    assert any(form in line for line in done.lines), done.lines


def test_names_of_python_that_the_file_has_taken() -> None:
    text = HEAD + "float = None\n" + training(LOSS, "total = 0.0", "print(total)")
    same(text, "total = total.item()")
    weighted = "total += loss.item() / len(x)"
    text = HEAD + "sum = zip = None\n" + training(weighted, "total = 0", SOME)
    same(text, "losses.append((loss.detach(), len(x)))")


LISTS = [  # the holder, how its list is called
    ("test_loss", "test_losses"),
    ("running_loss", "losses"),
    ("loss_G_sum", "losses_G"),
    ("trainLoss", "trainLosses"),
    ("total", "losses"),
]


@pytest.mark.parametrize(("holder", "name"), LISTS)
def test_lists_are_called_after_what_is_summed(holder: str, name: str) -> None:
    text = HEAD + training(f"{holder} += loss.item() / 3", f"{holder} = 0", f"print({holder})")
    assert f"{name}.append(loss.detach())" in apply("loss-item-sync", text).lines
    both = f"{holder} += loss.item() / 3\nlast = i\nother += loss.item() / 2"
    text = HEAD + training(both, f"{holder} = other = 0", f"print({holder}, other)")
    done = same(text, f"{name}.append(loss.detach())")
    assert sum(line.endswith(" = []") for line in set(done.lines)) == 2


CRITERION = """\
class Criterion(nn.Module):
    def forward(self, out, y):
        return F.cross_entropy(out, y) / 2, out.pow(2).mean()

criterion = Criterion()
"""


def test_numbers_that_a_module_returns() -> None:
    # as it was written before torch 0.4
    step = "first, second = criterion(out, y)\ntotal += first.data[0] + second.data[0]"
    done = apply("loss-item-sync", HEAD + CRITERION + training(step, "total = 0", "print(total)"))
    assert "total += first.detach().double() + second.detach().double()" in done.lines
    gathered = CRITERION.replace(
        "= Criterion()", "= nn.DataParallel(Criterion())"
    )  # one number for each GPU, in a vector
    untouched(HEAD + gathered + training(step, "total = 0", "print(total)"))


def test_no_batches() -> None:
    none = HEAD.replace("(44, 4)", "(0, 4)").replace("(44,)", "(0,)").replace(", shuffle=True", "")
    text = none + training(
        "total += loss.item()\nright += out.argmax(1).eq(y).sum().item()",
        "total = right = 0",
        "print(total, right)",
    )
    done = apply("loss-item-sync", text)
    assert "total += loss.detach().double()" in done.lines
    assert "print(float(total), int(right))" in done.lines
    assert output(text) == "0 0\n0 0\n" and output(done.text) == "0.0 0\n0.0 0\n"


def test_evaluations_and_what_decides_by_them() -> None:
    text = """\
def evaluate(best):
    model.eval()
    total, right = 0, 0
    with torch.no_grad():
        for x, y in test_loader:
            out = model(x.to(device))
            y = y.to(device)
            total += F.cross_entropy(out, y, reduction="sum").item()  # the sum
            right += out.argmax(1).eq(y).sum().item()
    print(total, right, round(total, 3), f"{right}/{len(data)}")
    return total / len(data) if right > best else best

"""
    done = same(
        HEAD + text + training("pass", end="print(evaluate(epoch))"),
        'total += F.cross_entropy(out, y, reduction="sum").double()  # the sum',
        "right = int(right)",
    )
    assert "    right = int(right)\n    print(" in done.text, (
        "outside the block, so that it makes no difference which rule is first"
    )


@pytest.mark.parametrize("grad", ["no_grad", "enable_grad"])
@pytest.mark.parametrize("loss", ["(1 - wrong(out, y))", "wrong(out, y)"])
def test_what_the_scripts_own_functions_compute_without_gradients(loss: str, grad: str) -> None:
    text = f"""\
def wrong(out, y):
    return (out.softmax(1) - F.one_hot(y, 3)).square().mean()

@torch.{grad}()
def evaluate():
    score = 0
    for x, y in test_loader:
        out, y = model(x.to(device)), y.to(device)
        score += {loss}.item()
    return score / len(test_loader)

"""
    kept = {"no_grad": "", "enable_grad": ".detach()"}[grad]
    same(HEAD + text + training("pass", end="print(evaluate())"), f"score += {loss}{kept}.double()")


def test_read_in_the_condition_that_prints() -> None:
    step = """\
running += loss.item()
if i % 2 == 1:
    print(f"{i} {running / 2!r}")
    running = 0.0
"""
    done = same(
        HEAD + training(step, "running = 0.0"),
        'print(f"{i} {float(running) / 2!r}")',
    )
    assert len(done.lines) == 2  # nothing is read after the loop, where nobody looks


NUMPY_METER = """\
class Meter:
    def __init__(self):
        self.begun = False

    def begin(self, val, weight):
        self.avg, self.count, self.sum = val, weight, np.multiply(val, weight)
        self.begun = True

    def update(self, val, weight=1):
        self.add(val, weight) if self.begun else self.begin(val, weight)

    def add(self, val, weight):
        self.sum = np.add(self.sum, np.multiply(val, weight))
        self.count = self.count + weight
        self.avg = self.sum / self.count
"""


def test_a_meter_that_computes_with_numpy() -> None:
    step = "losses.update(loss.item(), x.size(0))\nif i % 3 == 0:\n    print(repr(losses.avg))"
    text = training(step, "losses = Meter()", "print(repr(losses.avg))")
    same(HEAD + NUMPY_METER + text, "losses.keep(loss.detach(), x.size(0))")
    draws = NUMPY_METER.replace("np.add(self.sum,", "np.random.rand() + np.add(self.sum,")
    refused(HEAD + draws + text, "does more than keep its arguments")


METERS = """\
def train():
    losses, sizes, hits = Meter(), Meter(), Meter()
    for i, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        out = model(x)
        loss = F.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        size = out.abs().mean()
        losses.update(loss.item(), x.size(0))
        sizes.update(size.item(), x.size(0))
        hits.update(out.argmax(1).eq(y).sum().item())
        if i % 2 == 0:
            print(i, losses, sizes, hits)

train()
train()
"""


def test_meters_of_one_step() -> None:
    done = same(
        HEAD + METER + METERS,
        "losses.keep(loss.detach(), x.size(0))",
        "sizes.keep(size.detach(), x.size(0))",
        "hits.keep(out.argmax(1).eq(y).sum())",
    )
    assert done.text.count(".item()") == done.text.count("def keep(") == 1
    older = METERS.replace(
        "def train():\n    losses, sizes, hits",
        "hits = Meter()\n\ndef train():\n    losses, sizes, _",
    )
    same(HEAD + METER + older, "hits.keep(")
    epochs = METERS.replace(
        "    for i, (x, y)", "    for _ in range(2):\n      for i, (x, y)"
    ).replace("\n        ", "\n          ")
    same(HEAD + METER + epochs, "hits.keep(")


def test_read_in_conditions_and_after_the_loop() -> None:
    step = "meter.update(loss.item(), x.size(0))\nif i % 3 == 0:\n    print(i, meter)\nif i == len(loader) - 1:\n    print('last', meter.avg)\n"
    same(HEAD + METER + training(step, "meter = Meter()", "print(meter)"), "meter.read().avg")


@pytest.mark.parametrize(
    ("look", "read"),
    [
        *[("", 2), ("print(meters['size'])", 1), ("print(meters[name])", 0), ("print(meters)", 0)],
        ("for key in ('n', 'm'):\n    meters[key].update(i, 1)", 2),
        ("for key in ('n', 'size'):\n    meters[key].update(i, 1)", 2),
    ],
)
@pytest.mark.parametrize(
    "made",
    [
        "{'loss': Meter(), 'size': Meter(), 'n': Meter(), 'm': Meter()}",
        "{k: Meter() for k in ('loss', 'size', 'n', 'm', 'time')}",
    ],
)
def test_meters_in_a_dict(look: str, read: int, made: str) -> None:
    """One entry is no look at another; one whose key is not known may be any."""
    step = (
        "meters['loss'].update(loss.item(), 1)\n"
        f"meters['size'].update(out.abs().mean().item(), 1)\n{look}"
    )
    setup = f"meters, name = {made}, str(input)[:0] or 'loss'"
    text = HEAD + METER + training(step, setup, "print(meters['loss'], meters['size'])")
    if read:
        done = same(text)
        assert done.text.count("meters['loss'].update(loss.item()") == 0
        assert ("out.abs().mean().item()" in done.text) is (read == 1)
    else:
        refused(text, "is used in every step")


def test_a_meter_that_others_hold() -> None:
    text = (
        METER
        + "class Progress:\n    def __init__(self, *meters):\n        self.meters = meters\n\n    def show(self):\n        print(*self.meters)\n\n"
    )
    step = "meter.update(loss.item(), x.size(0))\nif i % 3 == 0:\n    progress.show()\n"
    same(
        HEAD
        + text
        + training(step, "meter = Meter()\nprogress = Progress(meter)", "progress.show()"),
        "losses.clear()",
    )
    refused(
        HEAD
        + text
        + training(
            step.replace("if i % 3 == 0", "if True"), "meter = Meter()\nprogress = Progress(meter)"
        ),
        "show(), which runs in every step",
    )


def test_attributes() -> None:
    text = """\
class Trainer:
    def __init__(self):
        self.total = 0.0

    def epoch(self):
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
            self.total += loss.item()

    def report(self):
        print(self.total)

trainer = Trainer()
for _ in range(2):
    trainer.epoch()
    trainer.report()
"""
    same(HEAD + text, "self.total += loss.detach().double()", "print(float(self.total))")
    refused(
        HEAD + text.replace("item()\n", "item()\n            self.report()\n", 1),
        "is used in every step",
    )


HOLDS = """\
class Trainer:
    def __init__(self):
        self.losses, self.meter, self.best = [], Meter(), {}
        self.steps = self.total = 0

    def last(self):
        return self.losses[-1:]

    def count(self, n):
        self.steps += n

    def epoch(self):
        for i, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
            STORE
            USE

trainer = Trainer()
for _ in range(2):
    trainer.epoch()
    print(trainer.losses, trainer.meter, trainer.best, trainer.total, trainer.steps)
"""
STORES = {
    "losses": "self.losses.append(loss.item())",
    "meter": "self.meter.update(loss.item())",
    "best": "self.best[i] = loss.item()",
    "total": "self.total += loss.item()",
}
KEPT = {  # how
    "losses": "append(loss.detach())",
    "meter": "self.meter.keep(loss.detach())",
    "best": "self.best[i] = loss.detach()",
    "total": "self.total += loss.detach().double()",
}
USES = {  # what looks at which of them in every step; * at all
    "self.steps += 1": "",
    "self.count(2)": "",
    "print(self.losses[-1:])": "losses",
    "print(self.last())": "losses",
    "print(trainer.losses)": "losses",
    "h = self.losses; print(h)": "losses",
    "print(self.meter)": "meter",
    "print(trainer.meter.avg)": "meter",
    "print(len(self.losses), self.best)": "best",
    "print(self.total)": "total",
    "print({k: str(v) for k, v in vars(self).items()})": "*",
    "if i == 2: print(self.losses, self.meter, self.best, self.total)": "",
    "if i % 2 == 1: self.losses = []": "",
    # true in most iterations, for most numbers in place of 2
    "if i % 2: self.meter.reset()": "meter",
    "if i % 2 == 1: self.meter.reset()": "",
    "if i % 2:\n                pass\n            else:\n                print(self.last(), self.meter)": "losses",
}


@pytest.mark.parametrize("held", STORES)
@pytest.mark.parametrize("use", USES)
def test_what_an_object_holds(use: str, held: str) -> None:
    text = HEAD + METER + HOLDS.replace("STORE", STORES[held]).replace("USE", use)
    if held in USES[use].split() or USES[use] == "*":
        refused(text, "every step" if held in ("losses", "meter") else "")
    else:
        same(text, KEPT[held])


def test_sums_of_one_name() -> None:
    step = "total += loss.item()\nstate.total += out.mean().item()"
    text = (
        HEAD
        + METER
        + "state = Meter()\nstate.total = 0\n"
        + training(step, "total = 0", "print(total, state.total)")
    )
    same(text, "total += loss.detach().double()", "state.total += out.mean().detach().double()")


def test_what_the_last_epoch_has_left() -> None:
    step = "total += loss.item() / 3\nif i % 3 == 0:\n    print(total)\nif i == 4:\n    break"
    same(HEAD + "total = 0\n" + training(step), "for value in losses")
    step = step.replace(" / 3", "", 1)
    same(HEAD + "total = 0\n" + training(step), "print(float(total))")


def test_a_loss_that_replaces_itself() -> None:
    same(
        HEAD
        + training("loss = loss.detach()\ntotal += loss.item() / 3", "total = 0", "print(total)"),
        "losses.append(loss)",
    )


@pytest.mark.parametrize(
    "step",
    [
        "lists[i % 2].append(loss.item())",
        "lists[i % 2][0] += loss.item()",
        "table.setdefault(i % 2, []).append(loss.item())",
        "one = lists[i % 2]\none.append(loss.item())",
        "meter = meters[i % 2]\nmeter.sum += loss.item()",
        "meters[i % 2].sum += loss.item()",
        "table['a'] = table['a'] if i % 2 else [0]\ntable['a'].append(loss.item())",
    ],
)
def test_one_of_several_holders(step: str) -> None:
    head = HEAD + METER + "lists, table, meters = [[0], [0]], {'a': [0]}, [Meter(), Meter()]\n"
    text = head + training(step, "", "print(lists, table, [m.sum for m in meters])")
    assert output(apply("loss-item-sync", text).text) == output(text)


def test_places_of_a_list() -> None:
    untouched(HEAD + training("total[-1:] = [loss.item()]", "total = []", "print(total)"))


def test_counts_of_graphs() -> None:
    text = HEAD.replace(
        "from torch.utils.data import DataLoader",
        "from {} import DataLoader\nfrom torch.utils.data import",
    ) + (
        "total = 0\nfor data in loader:\n    data = data.to(device)\n    loss = F.mse_loss(model(data.x), data.y)\n    loss.backward()\n"
        "    optimizer.step()\n    optimizer.zero_grad()\n    total += loss.item() * data.num_graphs\nprint(total)\n"
    )
    text = text.replace("import, TensorDataset", "import TensorDataset")
    known = apply("loss-item-sync", text.replace("{}", "torch_geometric.loader"))
    assert "total += loss.detach().double() * data.num_graphs" in known.lines
    refused(text.replace("{}", "graphs"), "may be more than a number")


def test_micro_batches() -> None:
    text = """\
for x, y in loader:
    optimizer.zero_grad()
    total = 0.0
    for part, target in zip(x.split(4), y.split(4)):
        loss = F.cross_entropy(model(part.to(device)), target.to(device))
        total += loss.item()
        loss.backward()
    optimizer.step()
    print(total)
"""
    same(HEAD + text, "total += loss.detach().double()", "print(float(total))")


# --------------------------------------------------------------------------------------- what stays
REFUSED = [
    ("total += loss.item()\nprint(total)", "total = 0", "used in every step"),
    ("total += loss.item()\nif total > 5:\n    break", "total = 0", "used in every step"),
    ("total += loss.item()\nlimit = total + 1", "total = 0", "used in every step"),
    (
        "total += loss.item()\nif i % 2:\n    print(i)\nelse:\n    print(total)",
        "total = 0",
        "used in every step",
    ),
    (
        "total += loss.item()\ntry:\n    pass\nfinally:\n    print(total)",
        "total = 0",
        "used in every step",
    ),
    ("try:\n    total += loss.item()\nexcept RuntimeError:\n    pass", "total = 0", "it is tried"),
    ("total += loss.item()\nshow = lambda: print(total)", "total = 0", "a function of its own"),
    ("total.append(loss.item())", "total = []\nhistory = total", "another name"),
    ("total.append(loss.item())\nprint(len(total))", "total = []", "used in every step"),
    ("total += shown(loss.item())", "total = 0", "gets it in each step"),
    ("total.update(loss.item())", "total = Loud()", "does more than keep"),
    ("value = loss.item()\nif value > 9:\n    break", "", "used in every step"),
    ("if not math.isfinite(loss.item()):\n    raise SystemExit", "", "its value is needed"),
    ("assert loss.item() < 9", "", "its value is needed"),
    ("print(loss.item())", "", "its value is needed"),
]
LOUD = "def shown(value):\n    print(value)\n    return value\n\nclass Loud:\n    def update(self, value):\n        print(value)\n\n"


@pytest.mark.parametrize(("step", "start", "reason"), REFUSED)
def test_what_is_needed_in_every_step_stays(step: str, start: str, reason: str) -> None:
    refused(HEAD + LOUD + training(step, start, "print(epoch)"), reason)


def test_loops_that_may_not_end() -> None:
    text = (
        HEAD
        + "total, n = 0, 0\nbatches = iter(loader)\nwhile True:\n    x, y = next(batches)\n    n += 1\n"
    )
    text += "    loss = F.cross_entropy(model(x.to(device)), y.to(device))\n    loss.backward()\n    optimizer.step()\n    total += loss.item()\n"
    same(text + "    if n > 3:\n        break\nprint(total)\n", "total += loss.detach().double()")
    text = text.replace("loss.item()", "loss.item() / 3")
    refused(text + "    if n > 3:\n        break\nprint(total)\n", "may not end")
    same(
        text
        + "    if n % 2 == 0:\n        print(total)\n    if n > 3:\n        break\nprint(total)\n",
        "losses.clear()",
    )


def test_other_ways_out_of_the_loop() -> None:
    body = training("meter.update(loss.item())\nif i > 3:\n    return", "")
    handed = "meter = Meter()\ntrain(meter)\nprint(meter)\n"
    text = HEAD + METER + "def train(meter):\n" + indented(body, 4) + handed
    same(text, "meter.keep(loss.detach())")
    local = (
        "def train():\n    meter = Meter()\n"
        + indented(body.replace("i > 3:", "i > 30:"), 4)
        + "    print(meter)\ntrain()\n"
    )
    same(HEAD + METER + local, "meter.keep(loss.detach())")
    body = training(
        "meter.update(loss.item())\nif i > 30:\n    raise ValueError(i)", ""
    )  # ends the script: nobody looks at the meter
    same(
        HEAD
        + METER
        + "def train(meter):\n"
        + indented(body, 4)
        + "meter = Meter()\ntrain(meter)\nprint(meter)\n",
        "meter.keep(loss.detach())",
    )
    caught = "meter = Meter()\ntry:\n    train(meter)\nexcept ValueError:\n    print(meter)\n"
    caught = HEAD + METER + "def train(meter):\n" + indented(body.replace("30", "3"), 4) + caught
    same(caught, "meter.keep(loss.detach())")
    text = training("total += loss.item()").replace(
        "for epoch in range(2):", "total = 0\nfor epoch in range(2):"
    )
    text = "try:\n" + indented(text, 4) + "except KeyboardInterrupt:\n    pass\nprint(total)\n"
    refused(HEAD + text, "may be caught")
    generator = (
        "def steps():\n    total = 0\n"
        + indented(training("total += loss.item()\nyield i"), 4)
        + "    print(total)\nlist(steps())\n"
    )
    refused(HEAD + generator, "hands over to its caller")


def test_globals() -> None:
    text = (
        "total = 0\ndef train():\n    global total\n"
        + indented(training("total += loss.item()"), 4)
        + "train()\nprint(total)\n"
    )
    refused(HEAD + text, "is a global")
    text = "total = 0\ndef show():\n    print(total)\n" + training("total += loss.item()\nshow()")
    refused(HEAD + text, "a function of its own")


def test_a_script_that_is_not_read_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    long = (
        "def long(show):\n    b = 0\n"
        + "".join(f"    a = [b, {i}]\n    b = [a, {i}]\n" for i in range(400))
        + "    print(show)\n"
    )

    def script(step: str, end: str = "") -> str:
        body = training(step, "total, meter = 0, Meter()", "print(total, meter)", end)
        return HEAD + METER + long + "def main():\n    long(0)\n" + indented(body, 4) + "main()\n"

    stays = script(
        "meter.update(loss.item())\nmean = total / 2\nif i % 2 == 0:\n    print(mean)\ntotal += float(loss)"
    )
    assert apply("loss-item-sync", stays).fixes
    monkeypatch.setattr("autofast.model.limits.READING", 2_500)
    refused(stays, "long() is too large to follow to the end")  # it may know the meter
    goes = script("total += loss.item() / 3\nprint(v)", "v = loss.item()")
    same(goes, "losses.append(loss.detach().clone())", "print(v.item())")


COUNTED = """\
ALL = []

class Counted(Meter):
    def __init__(self):
        {}

    def latest(self):
        return self.val

    def update(self, val, n=1):
        super().update(val, n)
        {}

def size(x):
    if isinstance(x, list):
        return x[0].size(0)
    return x.size(0)

"""


def read_in_part(step: str, end: str, init: str = "self.reset()", more: str = "pass") -> str:
    meter = METER + COUNTED.format(init, more).replace("super().update", "Meter.update")
    meter = meter.replace("Meter.update(val, n)", "self.add(val, n)")
    meter = meter.replace(
        "def update(self, val, n=1):\n        self.val", "def add(self, val, n):\n        self.val"
    )
    long = "def long(show):\n    b = 0\n" + "".join(
        f"    a = [b, {i}]\n    b = [a, {i}]\n" for i in range(400)
    )
    body = training(step, "meter = Counted()", end)
    return HEAD + meter + long + "def main():\n    long(0)\n" + indented(body, 4) + "main()\n"


UPDATE = "meter.update(loss.item(), size(x))\n"


def test_a_meter_of_a_function_that_nobody_else_can_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the script is not read to its end."""
    few = UPDATE + "if i % 4 == 0:\n    print(meter.avg, meter.latest())\n"
    for step, end in ((UPDATE, "print(meter.avg, meter.count)"), (few, "print(meter.val)")):
        monkeypatch.setattr("autofast.model.limits.READING", 2_500)
        same(read_in_part(step, end), "losses.append((loss.detach().clone(), size(x)))")


@pytest.mark.parametrize(
    "given",
    [
        {"end": "print(meter)"},
        {"end": "kept = meter\nprint(kept.avg)"},
        {"end": "print(meter.all)", "init": "self.reset()\n        self.all = []"},
        {"end": "print(meter.avg)", "init": "self.reset()\n        ALL.append(self)"},
        {"end": "print(meter.avg)", "more": "ALL.append(val)"},
        {"end": "print(meter.avg, sorted(locals())[0])"},
        {"end": "print((lambda: meter.avg)())"},
        {"step": UPDATE + "print(meter.avg)", "end": "print(meter.avg)"},
        {"step": UPDATE + "print(meter.latest())", "end": "print(meter.avg)"},
    ],
)
def test_a_meter_that_somebody_else_may_have(
    given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = read_in_part(**{"step": UPDATE, **given})
    assert output(text)
    monkeypatch.setattr("autofast.model.limits.READING", 2_500)
    done = apply("loss-item-sync", text)
    assert UPDATE.strip() in done.text, done.lines


@pytest.mark.parametrize(
    ("body", "given", "fits"),
    [
        ("return x.size(0)", "count(x)", True),
        ("return x.size(0) if i else x.clone()[0, 0]", "count(x, i)", False),
        ("return x.size()", "count(x)[0]", True),
        ("return [x]", "count(x, i)[0].norm(1)", False),
        ("yield x.size(0)", "next(count(x))", True),
    ],
)
def test_counts_that_a_function_gives(body: str, given: str, fits: bool) -> None:
    count = f"def count(x, i=0):\n    {body}\n\n"
    step = f"meter.update(loss.item(), {given})\ndel x"
    text = HEAD + METER + count + training(step, "meter = Meter()", "print(meter)")
    assert bool(same(text).fixes) is fits


def test_lists_of_the_caller() -> None:
    text = (
        "def train(total):\n"
        + indented(training("total.append(loss.item())"), 4)
        + "total = []\ntrain(total)\nprint(total)\n"
    )
    refused(HEAD + text, "belongs to the caller")


def test_an_array_that_the_loader_reads_too() -> None:
    shared = "class Scaled(TensorDataset):\n    def __init__(self, scale):\n        super().__init__(data.tensors[0])\n        self.scale = scale\n\n"
    shared += (
        "    def __getitem__(self, k):\n        return data[k][0] * self.scale[0], data[k][1]\n\n"
    )
    main = "def main():\n    scale = torch.ones(1)\n    loader = DataLoader(Scaled(scale), batch_size=8)\n"
    refused(
        HEAD + shared + main + indented(training("scale[0] = loss.item()"), 4) + "main()\n",
        "`scale` may get another name",
    )


QUIET = [
    training("if i % 2 == 0:\n    print(loss.item())"),  # rare already
    training("if i % 2 == 0:\n    total += loss.item()", "total = 0"),
    training("", end="total.append(loss.item())").replace(
        "for epoch", "total = []\nfor epoch"
    ),  # once per epoch
    training("loss.item()"),  # a wait on purpose
    training("", before_backward="loss = loss * (1 - loss.item())"),  # a constant of the gradient
]


@pytest.mark.parametrize("text", QUIET)
def test_places_that_are_no_waste(text: str) -> None:
    done = apply("loss-item-sync", HEAD + text)
    assert not done.fixes, done.lines


def test_scripts_that_wait_for_nothing() -> None:
    cpu = HEAD.replace(
        'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")', 'device = "cpu"'
    )
    text = training("total += loss.item()", "total = 0", "print(total)")
    assert not apply("loss-item-sync", cpu + text).findings
    assert not apply("loss-item-sync", HEAD + text, target="cpu").findings
    assert not apply(
        "loss-item-sync",
        "import lightning as L\nclass M(L.LightningModule):\n    pass\n" + HEAD + text,
    ).fixes


# ------------------------------------------------------------------------------------- what is kept
CLONED = [
    ("loss /= 2\nloss.backward()", "loss.detach().clone()"),  # changed in place after it was read
    ("loss = loss / 2\nloss.backward()", "loss.detach())"),
    (
        "total += model[0].weight[0, 0].item()\nloss.backward()",
        "weight[0, 0].detach().clone()",
    ),  # a view of a parameter
    ("part = loss\npart *= 2\npart.backward()", "loss.detach().clone()"),
]


@pytest.mark.parametrize(("after", "kept"), CLONED)
def test_changes_in_place_do_not_reach_what_is_kept(after: str, kept: str) -> None:
    read = "total += loss.item() / 3\n" if "total" not in after else ""
    text = training("", "total = 0", "print(repr(total))", read + after).replace(
        "        loss.backward()\n        optimizer.step()", "        optimizer.step()"
    )
    assert text.count("backward") == 1
    same(HEAD + text, kept)


def test_a_buffer_that_is_reused_is_copied() -> None:
    text = "state = torch.zeros((), device=device)\n" + training(
        "state.copy_(loss.detach())\ntotal += state.item()", "total = 0", "print(repr(total))"
    )
    same(HEAD + text, "state.detach().clone()")


def test_cuda_graphs_overwrite_their_outputs() -> None:
    text = training("total += loss.item() / 3", "total = 0", "print(total)")
    for mode, kept in (
        ("'reduce-overhead'", "loss.detach().clone()"),
        ("'default'", "loss.detach())"),
    ):
        done = apply("loss-item-sync", HEAD + f"fast = torch.compile(model, mode={mode})\n" + text)
        assert any(kept in line for line in done.lines)


def test_a_loss_that_the_graph_itself_gives_is_copied() -> None:
    head = HEAD + textwrap.dedent("""
        class Trained(nn.Module):
            def __init__(self, net):
                super().__init__()
                self.net = net

            def forward(self, x, y):
                return F.cross_entropy(self.net(x), y)


        trained = Trained(model)
        trained.compile(mode="reduce-overhead")
    """)
    text = training("total += loss.item() / 3", "total = 0", "print(total)")
    text = text.replace("F.cross_entropy(out, y)", "trained(x, y)")
    assert "trained(x, y)" in text
    assert any(
        "loss.detach().clone()" in line for line in apply("loss-item-sync", head + text).lines
    )


# ---------------------------------------------------------------------------------------- read late
def test_a_value_that_is_shown_seldom() -> None:
    shown = "if i % 4 == 0:\n    print(f'{i} {value:.6f}', value)"
    done = same(HEAD + training("value = loss.item()\n" + shown))
    assert "            value = loss.item()\n            print(f" in done.text  # it moves
    done = same(HEAD + training(shown, before_backward="value = loss.item()"))
    assert "            value = loss.item()\n            print(f" in done.text  # past other work
    done = same(
        HEAD
        + training(shown + "\nif i % 4 == 1:\n    print(value)", "", "", "value = loss.item()"),
        "value = loss.detach()",
        "value.item()",
    )
    assert "{value.item():.6f}" in done.text


def test_a_value_that_is_shown_after_the_loop() -> None:
    same(
        HEAD + training("last = loss.item()", end="print(last)"),
        "last = loss.detach()",
        "print(last.item())",
    )


def test_values_in_the_middle_of_a_step() -> None:
    text = training(
        "print(i, mean, norm)", before_backward="mean = out.mean().item()\nnorm = loss.item()"
    )
    done = same(HEAD + text, "mean = out.mean().detach()", "norm = loss.detach()", ".tolist()")
    assert "mean_value, norm_value = torch.hstack((mean, norm)).tolist()" in done.text


def test_a_value_that_is_also_added_up() -> None:
    step = "value = loss.item()\ntotal += value\nif i % 4 == 0:\n    print(value)"
    same(
        HEAD + training(step, "total = 0", "print(total)"),
        "total += value.double()",
        "print(value.item())",
    )


@pytest.mark.parametrize(
    ("step", "lines"),
    [
        ("print(v)\nprint(v + 1)", ["v = loss.detach()", "v = v.item()"]),
        ("if epoch < 5:\n    print(v)\n    print(v + 1)", ["v = loss.detach()", "v = v.item()"]),
        (
            "if i % 2 == 0:\n    print(v)\nif epoch:\n    print(v)\n    continue\nprint(v)",
            ["v = loss.detach()", "print(v.item())", "v = v.item()"],
        ),
        ("for j in range(2):\n    print(v)\n    print(v)", ["v = loss.detach()", "v = v.item()"]),
        ("if i == 3:\n    break\nprint(v, v)", ["v = loss.detach()", "v = v.item()"]),
    ],
)
def test_a_value_that_is_used_more_than_once_is_read_before_the_first_use(
    step: str, lines: list[str]
) -> None:
    assert same(HEAD + training(step, before_backward="v = loss.item()")).lines == lines


def test_a_value_is_added_up_before_it_is_read() -> None:
    step = "total += v\nprint(v, v)\nother += v"
    done = same(
        HEAD + training(step, "total = other = 0", "print(total, other, v)", "v = loss.item()"),
        "total += v.double()",
        "v = v.item()",
    )
    assert "        other += v\n" in done.text
    refused(
        HEAD + training("if i == 3:\n    break\nprint(v, v)", "", "print(v)", "v = loss.item()"),
        "`v` is used in every step",
    )


def test_a_value_that_a_condition_uses_is_read_there() -> None:
    step = "if writer is not None:\n    print(v)"
    assert same(HEAD + "writer = 1\n" + training("v = loss.item()\n" + step)).lines == [
        "v = loss.detach()",
        "print(v.item())",
    ]
    assert same(
        HEAD + "writer = 1\n" + training("v = loss.item()\n" + step + "\n    print(v, v)")
    ).lines == [
        "v = loss.detach()",
        "v = v.item()",
    ]
    refused(
        HEAD + "writer = 1\n" + training("v = loss.item()\n" + step + "\nelse:\n    print(v, v)"),
        "is used in every step",
    )


def test_arrays() -> None:
    text = HEAD + training(
        "v = loss.detach().cpu().numpy()\nif i % 2 == 0:\n    print(total, repr(v))\ntotal += v",
        "total = 0",
    )
    same(
        text,
        "v = loss.detach()",
        "print(total, repr(v.cpu().numpy()))",
        "total += value.cpu().numpy()",
    )
    step = "total += loss.detach().cpu().numpy()"
    same(
        HEAD + training(step, "total = np.zeros(())", "print(repr(total))"),
        "losses.append(loss.detach())",
    )
    shared = training(
        f"{step}\nprint(kept)", "total = np.zeros(())\nkept = total", "print(repr(total))"
    )
    refused(HEAD + shared, "may get another name")  # kept grows too
    untouched(
        HEAD + training("total.append(out.detach().cpu().numpy())", "total = []", "print(total)")
    )  # would fill the GPU's memory


ARMS = """\
if epoch:
    shown = (loss * 2).item()
elif len(x) > 4:
    shown = loss.item()
else:
    shown = (out.mean() + 0).item()
"""


def test_values_that_each_arm_of_a_condition_reads() -> None:
    done = same(
        HEAD + training("print(shown)", before_backward=ARMS),
        "shown = (loss * 2).detach()",
        "print(shown.item())",
    )
    assert done.text.count(".item()") == 1
    done = same(
        HEAD + training("total += shown", "total = 0", "print(total)", before_backward=ARMS),
        "total += shown.double()",
        "print(float(total))",
    )
    assert ".item()" not in done.text
    refused(HEAD + training(ARMS + "print(shown)"), "`shown` is used in every step")
    less = ARMS.replace("else:", "elif len(x) > 2:").replace("if epoch", "shown = 0.0\nif epoch", 1)
    refused(HEAD + training("print(shown)", before_backward=less), "gets other values too")


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ("if i % 4 == 1:\n    print(value)\nvalue = loss.item()", "used in the next step"),
        (
            "value = loss.item()\nif i % 4 == 0:\n    value += 1\n    print(value)\nelif i % 4 == 1:\n    print(value)",
            "gets other values too",
        ),
        (
            'value = loss.item()\nif i % 4 == 0:\n    print(f"{value=}")\nif i % 4 == 1:\n    print(value)',
            "prints the expression itself",
        ),
    ],
)
def test_values_that_cannot_wait(step: str, reason: str) -> None:
    refused(HEAD + "value = 0\n" + training(step), reason)


def test_a_value_with_another_start_is_not_read_after_the_loop() -> None:
    refused(
        HEAD + training("last = loss.item()", "last = None", "print(last)"), "gets other values too"
    )


def test_logged_values() -> None:
    step = """\
log = {}
log["loss"] = loss.item()
log["out"] = out.mean().item()
if i % 2 == 0:
    log["max"] = out.max().item()
if i % 4 == 0:
    print(", ".join(f"{k} {v!r}" for k, v in log.items()))
    print(log)
"""
    moved = same(HEAD + training(step), "if i % 2 == 0:", 'log["max"] = out.max().item()')
    assert moved.text.index("log = {}") > moved.text.index("if i % 4 == 0:")
    kept = step + "kept = log\n"
    same(HEAD + training(kept), 'log["loss"] = loss.detach()', "for key, value in log.items():")
    same(
        HEAD + training("log = {'loss': loss.item(), 'lr': 0.1}\nif i % 4 == 0:\n    print(log)"),
        "log = {'loss': loss.item(), 'lr': 0.1}",
    )
    untouched(
        HEAD
        + training(step.replace("if i % 4 == 0:", "if True:")).replace(
            "log = {}", "log = {}\n        history = log"
        )
    )
    same(HEAD + training(step.replace("log = {}\n", ""), "log = {}"), 'log["loss"] = loss.detach()')


# ---------------------------------------------------------------------------------- read by callers
STEP = """\
def step(x, y):
    optimizer.zero_grad()
    out = model(x.to(device))
    loss = F.cross_entropy(out, y.to(device))
    loss.backward()
    optimizer.step()
    right = out.argmax(1).eq(y.to(device)).sum().item()
    return loss.item(), right

"""


def test_callers_read_what_a_function_returns() -> None:
    text = (
        STEP
        + "right = 0\nfor i, (x, y) in enumerate(loader):\n    loss, hits = step(x, y)\n    right += hits\n    if i % 3 == 0:\n        print(loss)\nprint(right)\n"
    )
    done = same(
        HEAD + text,
        "return loss.detach(), right",
        "print(int(right))",
        "print(loss.item())",
    )
    assert ".sum()\n" in done.text


def test_a_single_result_that_is_added_up() -> None:
    text = (
        STEP.replace(", right\n", "\n")
        + "total = 0\nfor x, y in loader:\n    total += step(x, y)\nprint(total)\n"
    )
    same(HEAD + text, "total += step(x, y).double()")


def test_results_that_a_meter_gets_as_they_are() -> None:
    """What is no tensor of them is as it was returned."""
    text = METER + STEP.replace("right\n", "len(x)\n")
    text += "meter = Meter()\nfor i, (x, y) in enumerate(loader):\n    meter.update(*step(x, y))\n"
    text += "    if i % 3 == 0:\n        print(meter)\n        meter.reset()\nprint(meter)\n"
    done = same(HEAD + text, "meter.update(value[0].item(), value[1])", ".append(step(x, y))")
    assert "return loss.detach(), len(x)" in done.text
    refused(HEAD + text.replace("if i % 3 == 0:", "if i < 9:"), "used in every step")
    given = text.replace("loss.item(), len(x)", "loss.item(), x").replace("val * n", "val")
    refused(HEAD + given.replace("+= n", "+= 1"), "what else is returned may change")


@pytest.mark.parametrize(
    ("begins", "use", "expected"),
    [
        ("np.zeros(2)", "stats = 0.9 * stats + 0.1 * np.array(step(x, y))", "stats = 0.9 * stats + 0.1 * np.array("),
        ("np.zeros(2)", "stats += step(x, y)", "stats += ("),
        ("[]", "stats.append(step(x, y))", "stats.append("),
    ],
)  # fmt: skip
def test_results_that_are_put_away_together(begins: str, use: str, expected: str) -> None:
    """A running mean of all that an update of an agent returns."""
    text = "import numpy as np\n" + STEP.replace("right\n", "len(x)\n")
    text += f"stats = {begins}\nfor i, (x, y) in enumerate(loader):\n    {use}\n"
    text += (
        "    if i % 3 == 0:\n        print(np.mean(stats, axis=0))\nprint(np.mean(stats, axis=0))\n"
    )
    done = same(HEAD + text, "return loss.detach(), len(x)", ".append(step(x, y))")
    assert f"{expected}" in done.text and "value[0].item(), value[1]" in done.text
    refused(HEAD + text.replace("if i % 3 == 0:", "if i < 9:"), "used in every step")


@pytest.mark.parametrize(
    ("shown", "written"),
    [
        ("np.mean(losses)", True),
        ("np.median(losses, overwrite_input=True)", False),
        ("np.asarray(losses)", False),
    ],
)
def test_a_list_that_numpy_computes_with(shown: str, written: bool) -> None:
    """What is computed is none of the list, which may begin anew afterwards."""
    text = "import numpy as np\n" + STEP.replace(", right\n", "\n")
    text += "losses = []\nfor i, (x, y) in enumerate(loader):\n    losses.append(step(x, y))\n"
    text += f"    if i % 3 == 0:\n        print({shown})\n        losses = []\nprint(losses)\n"
    if written:
        same(HEAD + text, "return loss.detach()")
    else:
        refused(HEAD + text, "use it in every step")


def test_a_result_that_an_update_has_changed_since_it_was_read() -> None:
    """The temperature of a policy: read before, and returned behind the update."""
    text = "rest = torch.zeros(1, device=device, requires_grad=True)\n"
    text += "optimizer.add_param_group({'params': [rest]})\nclass Held:\n    scale = rest\nheld = Held()\n"
    step = STEP.replace("    out =", "    scale = held.scale.exp().item()\n    out =")
    step = step.replace("loss = F", "loss = scale * held.scale.exp().sum() * F")
    step = step.replace("return loss.item(), right", "return held.scale.exp().item(), right")
    text += (
        step
        + "total = 0\nfor x, y in loader:\n    a, hits = step(x, y)\n    total += a\nprint(total)\n"
    )
    assert "return held.scale.exp().detach()" in same(HEAD + text).text


@pytest.mark.parametrize(
    ("use", "reason"),
    [
        ("loss, hits = step(x, y)\n    print(loss, hits)", "use it in every step"),
        ("both = step(x, y)\n    print(both)", "unpacked in a way"),
        ("loss, hits = step(x, y)\n    again = step\n    print(loss)", "used in another way"),
        ("print(*map(step, [x], [y]))", "used in another way"),
    ],
)
def test_callers_that_need_it_at_once(use: str, reason: str) -> None:
    refused(HEAD + STEP + f"for x, y in loader:\n    {use}\n", reason)


def test_results_once_per_epoch_are_no_waste() -> None:
    text = "def test():\n    with torch.no_grad():\n        return F.cross_entropy(model(data.tensors[0]), data.tensors[1]).item()\n"
    assert not apply("loss-item-sync", HEAD + text + training("", end="print(test())")).fixes


# ---------------------------------------------------------------------------------------- read once
def test_the_same_tensor_is_read_once() -> None:
    step = "total += loss.item()\nprint(i, loss.item())\nbar = {'loss': loss.item()}\nprint(bar)"
    done = same(
        HEAD + training(step, "total = 0", "print(total)"),
        "loss_value = loss.item()",
        "total += loss_value",
    )
    assert done.text.count(".item()") == 1


def test_and_not_between_forward_and_backward() -> None:
    text = training(
        "print(i, loss.item())", "total = 0", "print(total)", "total += loss.item() * x.size(0)"
    )
    done = same(HEAD + text, "total += loss_value * x.size(0)")
    assert done.text.index("optimizer.step()") < done.text.index("loss_value = loss.item()")


def test_each_in_its_own_way() -> None:
    step = (
        "kept.append(float(loss))\nprint(i, loss.item())\nbar = {'loss': loss.item()}\nprint(bar)"
    )
    done = same(
        HEAD + training(step, "kept = []", "print(kept)"),
        "losses.append(",
        "loss_value = loss.item()",
    )
    assert done.text.count(".item()") == 1


def test_but_where_it_changes_in_between() -> None:
    untouched(HEAD + training("print(loss.item())\nloss = loss * 2\nprint(loss.item())"))
    untouched(HEAD + training("print(loss.item())\nloss.data.mul_(2)\nprint(loss.item())"))


@pytest.mark.parametrize(
    ("guard", "step", "reads"),
    [
        ("if not math.isfinite(loss.item()):\n    raise ValueError(loss.item())", "seen.update(a=loss.item())", 1),
        ("assert loss.item() == loss.item()", "if i > 2:\n    seen.update(a=loss.item())\nelse:\n    seen.update(b=loss.item())", 1),
        ("seen.update(c=loss.item())", "with torch.no_grad():\n    try:\n        seen.update(d=loss.item())\n    except KeyError:\n        pass", 1),
        ("seen.update(c=loss.item())", "if i > 2:\n    loss = loss * 2\nseen.update(e=loss.item())", 2),
        ("if i > 2:\n    seen.update(c=loss.item())", "seen.update(e=loss.item())", 2),
        ("def late():\n    return loss.item()\nseen.update(c=loss.item())", "loss = loss * 2\nseen.update(d=late())", 2),
    ],
)  # fmt: skip
def test_a_read_below_the_block_of_the_first_takes_its_number(
    guard: str, step: str, reads: int
) -> None:
    seen = "seen = Seen()\n"
    text = training(step, "", "print(seen)", guard)
    text = f"{HEAD}class Seen(dict):\n    def update(self, **given):\n        super().update({{k: round(v, 9) for k, v in given.items()}})\n{seen}{text}"
    done = apply("loss-item-sync", text)
    assert done.text.count("loss.item()") == reads, done.text
    assert output(done.text) == output(text)


def test_what_is_shown_together_is_copied_at_once() -> None:
    text = training(
        "print('%.3f %.3f' % (loss.item(), penalty.item()), loss.item())",
        before_backward="penalty = out.double().pow(2).mean()\nloss = loss + penalty",
    )
    done = same(HEAD + text, "loss_value = loss.item()")
    assert done.text.count("loss.item()") == 1


def test_tensors_of_one_element_that_may_have_dimensions() -> None:
    accuracy = """\
        def accuracy(out, y, topk):
            correct = out.topk(max(topk), 1)[1].t().eq(y.view(1, -1))
            return [correct[:k].reshape(-1).float().sum(0, keepdim=True).mul_(100 / len(y)) for k in topk]

        """
    step = "top1, top2 = accuracy(out, y, (1, 2))\nprint(loss.item(), top1.item(), top2.item())"
    text = HEAD + textwrap.dedent(accuracy) + training(step)
    same(
        text,
        "(loss, top1.reshape(1), top2.reshape(1))",
        "print(loss_value, top1_value, top2_value)",
    )
    whole = text.replace(".float().sum(", ".sum(").replace(
        ".mul_(100 / len(y))", ""
    )  # counts stay integers
    assert "hstack" not in apply("loss-item-sync", whole).text
    more = text.replace(" for k in topk]", " for k in topk] if len(topk) else None")
    assert "hstack" not in apply("loss-item-sync", more).text


@pytest.mark.parametrize(
    "shown",
    [
        "print(loss.item(), out.argmax(1).eq(y).sum().item())",  # a count must stay an integer
        "print(loss.item(), out[:1, :1].item())",  # perhaps of another shape
        "print(loss.item() if epoch else out.mean().item())",
        "assert loss.item() < 99, out.mean().item()",
        "print(loss.item(), abs(float(out.mean())))",
        "print(loss.item(), torch.complex(loss, loss).item())",
    ],
)
def test_but_not_where_that_could_change_a_value(shown: str) -> None:
    untouched(HEAD + training(shown))


def test_and_not_from_several_gpus() -> None:
    text = HEAD.replace('"cuda" if', '"cuda:0" if') + 'other = nn.Linear(3, 3).to("cuda:1")\n'
    untouched(text + training("print(loss.item(), out.mean().item())"))


@pytest.mark.parametrize(
    ("error", "fixes"),
    [
        ("F.mse_loss(out[:, 0], y.float(), reduction='mean' if mean else 'none')", False),
        ("F.mse_loss(out[:, 0], y.float(), reduction='mean' if mean else 'sum')", False),
        ("F.mse_loss(out[:, 0], y.float(), reduction='sum')", True),
        ("nn.MSELoss(reduce=mean)(out[:, 0], y.float())", False),
        ("(out.mean() if mean else out)", False),
    ],
)
def test_losses_that_may_be_one_of_each_sample_are_not_kept(error: str, fixes: bool) -> None:
    """Whole tensors would stay on the device until the end of the epoch."""
    step = f"error = {error}\nerrors.append(error.detach().cpu().numpy())"
    text = training(step, "errors = []", "print(np.concatenate([e.ravel() for e in errors]).sum())")
    head = HEAD + "import sys\nmean = len(sys.argv) > 1\n"
    done = apply("loss-item-sync", head + text)
    assert bool(done.fixes) == fixes
    assert output(head + text) == output(done.text)


# ----------------------------------------------------------------- what is prepared for a condition
INFO = "info = {'mean': total / (i + 1), 'loss': loss.item()}\n"


@pytest.mark.parametrize(
    ("step", "moved"),
    [
        (f"total += loss.item()\n{INFO}if i % 2 == 0:\n    print(info)", INFO.strip()),
        (
            "total += loss.item()\nn += len(x)\nmean = total / n\nif i % 2 == 0:\n    print(mean)\n    print(n)",
            "mean = total / n",
        ),
        (
            "meter.update(loss.item())\ntext = f'{meter.avg:.4f} {i}'\nif i % 2 == 0:\n    print(text)",
            "text = f'{meter.avg:.4f} {i}'",
        ),
        (
            "hits = (out.argmax(1) == y).sum().item()\ntotal += hits\nacc = total / len(y)\nif i % 2 == 0:\n    print(acc)",
            "acc = total / len(y)",
        ),
        (
            "info = [loss.item(), round(out.mean().item(), 3)]\nif i % 2 == 0:\n    print(info)",
            "info = [loss.item(), round(out.mean().item(), 3)]",
        ),
    ],
)
def test_what_is_prepared_for_a_condition_moves_there(step: str, moved: str) -> None:
    done = same(
        HEAD + METER + training(step, "total, n, meter = 0, 0, Meter()", "print(total, n, meter)")
    )
    assert f"            {moved}\n" in done.text and f"        {moved}\n" not in done.text.replace(
        "    " + "        " + moved, ""
    )
    gate = done.text[done.text.index("if i % 2 == 0:") :]
    assert gate.index(moved) < gate.index("print(")
    assert ".clear()" not in gate[gate.index(moved) :]  # sums are brought up to date before


@pytest.mark.parametrize(
    "step",
    [
        # the sum goes on in between
        f"{INFO}total += loss.item()\nif i % 2 == 0:\n    print(info)",
        # used in every step as well
        f"total += loss.item()\n{INFO}if i % 2 == 0:\n    print(info)\nprint(info)",
        f"total += loss.item()\n{INFO}if i % 2 == 0:\n    print(info)\nelse:\n    print(1, info)",
        f"total += loss.item()\n{INFO}if i % 2 == 0 and info:\n    print(info)",
        # does something each time
        "total += loss.item()\ninfo = total, next(others)\nif i % 2 == 0:\n    print(info)",
        "info = [loss.item(), total]\nloss = loss * 2\nif i % 2 == 0:\n    print(info)",
        "info = [out.mean().item(), total]\nout.add_(1)\nif i % 2 == 0:\n    print(info)",
        "info = [out[0].sum().item(), total]\nout[0] = 1\nif i % 2 == 0:\n    print(info)",
        "info = [model[0].weight.mean().item(), total]\noptimizer.step()\nif i % 2 == 0:\n    print(info)",
        "total += loss.item()\ninfo = total / 2  # autofast: ignore[loss-item-sync]\nif i % 2 == 0:\n    print(info)",
    ],
)
def test_what_may_not_move(step: str) -> None:
    text = (
        HEAD
        + "others = iter(range(99))\n"
        + training("out = out.detach()\n" + step, "total = 0", "print(total)")
    )
    done = apply("loss-item-sync", text)
    assert "            info =" not in done.text
    assert output(done.text) == output(text)


@pytest.mark.parametrize(
    "write",
    [
        "table[0] += 1",
        "table.fill(0.5)",
        "np.add(table, 0.1, table)",
        "np.copyto(table, 0.3)",
        "np.put_along_axis(table, np.array([0]), 0.5, 0)",
        "table.clip(0, 0.3, table)",
        "rng.shuffle(table)",
        "mine = table.reshape(2, -1)\nmine[0] = 0.2",
        "torch.from_numpy(table).mul_(0.9)",
        "change(table)",
        "",
    ],
)
def test_numbers_of_an_array_do_not_move_past_what_writes_to_it(write: str) -> None:
    head = "rng = np.random.default_rng(0)\ntable = np.linspace(0, 1, 8)\ndef change(t):\n    t *= 0.9\n"
    step = "info = {'loss': loss.item(), 'sum': float(table.sum()), 'first': float(table[0])}\n"
    text = HEAD + head + training(f"{step}{write}\nif i % 2 == 0:\n    print(info)")
    done = apply("loss-item-sync", text)
    assert ("            info =" in done.text) is (write == "")
    assert output(done.text) == output(text)


@pytest.mark.parametrize(
    ("own", "moves"), [("count", False), ("count.view(-1)", False), ("torch.zeros(1)", True)]
)
def test_what_writes_to_a_tensor_of_the_module_by_a_name_of_its_own(own: str, moves: bool) -> None:
    head = f"count = torch.zeros(1)\ndef note(i):\n    mine = {own}\n    mine.add_(1)\n    return i + 0.5\n"
    step = "info = {'loss': loss.item(), 'note': note(i)}\nif i % 2 == 0:\n    print(info)"
    text = HEAD + head + training(step, "", "print(count)")
    done = apply("loss-item-sync", text)
    assert ("            info =" in done.text) is moves
    assert output(done.text) == output(text)


OBJECT = """\
from collections import OrderedDict

class Object:
    def __init__(self):
        self.n = 3

    def more(self):
        pass

    def put(self, d):
        d["c"] = self.n

o = Object()
"""
PUT = "d = {}\nd['a'] = loss.item()\nd['b'] = out.mean().item()\n"
SHOW = "if i % 2 == 0:\n    for k, v in d.items():\n        print(k, repr(v))\n"
GEN = """\
if CASE:
    extra = (model(x) * 2).mean()
    optimizer.zero_grad()
    extra.backward()
    optimizer.step()
    d["g"] = extra.item()
"""


@pytest.mark.parametrize(
    ("step", "start", "moved"),
    [
        (PUT, "", "d['b'] = out.mean().item()"),
        (PUT.replace("{}", "OrderedDict()"), "", "d['b'] = out.mean().item()"),
        (PUT.replace("{}", "{'z': loss.item()}"), "", "d = {'z': loss.item()}"),
        (PUT + "d['c'] = d['a'] + d['b']\n", "", "d['c'] = d['a'] + d['b']"),
        (PUT + "d.update(c=loss.item())\n", "", "d.update(c=loss.item())"),
        (PUT + "if n:\n    d['c'] = out.sum().item()\n", "n = 1", "if n:"),
        (
            "d = {}\nfor k, v in (('a', loss), ('b', out.mean())):\n    d[k] = v.item()\n",
            "",
            "d[k] =",
        ),
        (
            "d = {}\nwith torch.no_grad():\n    d['a'] = (out * 2).mean().item()\n",
            "",
            "with torch.",
        ),
        ("v = loss.item()\nd = {}\nd['a'] = v\n", "", "v = loss.item()"),
        # a branch that stays: below its condition
        (PUT + GEN.replace("CASE", "i % 3 == 0"), "", 'd["g"] = extra.item()'),
        (PUT + GEN.replace("CASE", "i % o.n == 0"), "", 'd["g"] = extra.item()'),
        (PUT + GEN.replace("CASE", "i % 3 == 0") + "    d['h'] = extra.item()\n", "", "d['h'] ="),
        (
            PUT + GEN.replace("CASE", "i % 3 == 0") + "    if i == 3:\n        continue\n",
            "",
            'd["g"] =',
        ),
    ],
)
def test_what_is_put_into_a_dict_moves_with_it(step: str, start: str, moved: str) -> None:
    done = same(HEAD + OBJECT + training(step + SHOW, start))
    gate = done.text[done.text.index("if i % 2 == 0:") :]
    assert moved in gate and moved not in done.text[: -len(gate)]
    assert ".detach()" not in done.text and gate.count("if i % 3 == 0:") < 2
    if "extra" in step:  # of a read in few steps that moves along is told, too
        assert "extra = (model(x) * 2).mean()" in done.text[: -len(gate)]
        assert any("extra" in f.message for f in done.fixes)


def test_lists_move_as_dicts_do() -> None:
    step = (
        "d = []\nd.append(loss.item())\nd.append(out.mean().item())\nif i % 2 == 0:\n    print(d)"
    )
    done = same(HEAD + training(step), "d = []", "d.append(loss.item())")
    assert done.text.index("d = []") > done.text.index("if i % 2 == 0:")


@pytest.mark.parametrize(
    ("step", "start"),
    [
        (PUT + "e = d\ne['c'] = loss.item()\n" + SHOW, ""),  # another name
        (PUT.replace("d = {}", "o.d = d = {}") + SHOW, ""),
        (PUT + SHOW + "n += len(d)", "n = 0"),
        (PUT + SHOW + "if i % 3 == 0:\n    print(2, d)", ""),
        (PUT + "hist.append(d)\n" + SHOW, "hist = []"),
        (PUT + "o.put(d)\n" + SHOW, ""),
        (PUT + "f = lambda: d\n" + SHOW, ""),
        (PUT.replace("d = {}\n", "") + SHOW, "d = {}"),  # of all steps
        (PUT + "del d['b']\n" + SHOW, ""),
        (PUT + "d['n'] = n\nn += 1\n" + SHOW, "n = 0"),
        (PUT + "d['n'] = len(hist)\nhist.append(1)\n" + SHOW, "hist = []"),
        (PUT + "d['r'] = np.random.rand()\n" + SHOW, "np.random.seed(0)"),
        (PUT + "d[next(it)] = 1.0\n" + SHOW, "it = iter(range(99))"),
        (PUT + "out.mul_(2)\n" + SHOW, ""),
        (PUT + "loss += 1\n" + SHOW, ""),
        (PUT + "d['w'] = model[0].weight.mean().item()\noptimizer.step()\n" + SHOW, ""),
        (
            "v = model[0].weight.data[0, 0]\nd = {}\nd['a'] = v.item()\noptimizer.step()\n" + SHOW,
            "",
        ),
        # a condition that may not hold any more, or again
        (PUT + GEN.replace("CASE", "n % 3 == 0") + "n += 1\n" + SHOW, "n = 0"),
        (
            PUT + GEN.replace("CASE", "n % 3 == 0").replace("    d[", "    n = 1\n    d[") + SHOW,
            "n = 0",
        ),
        (PUT + GEN.replace("CASE", "i % o.n == 1") + "o.n += 1\n" + SHOW, "o.n = 3"),
        (PUT + GEN.replace("CASE", "i % o.n == 1") + "o.more()\n" + SHOW, ""),
        (PUT + GEN.replace("CASE", "len(hist) % 3 == 0") + "hist.append(1)\n" + SHOW, "hist = []"),
        (PUT + GEN.replace("CASE", "np.random.rand() < 0.5") + SHOW, "np.random.seed(0)"),
        (PUT + GEN.replace("CASE", "i % 3 == 0") + "extra = loss * 2\n" + SHOW, ""),
        (PUT + GEN.replace("CASE", "i % 3 == 0") + "    extra.data.mul_(2)\n" + SHOW, ""),
    ],
)
def test_what_may_not_move_into_a_condition_with_its_dict(step: str, start: str) -> None:
    text = OBJECT.replace("pass", "self.n += 1") if "more" in step else OBJECT
    text = HEAD + text + training(step, start)
    done = apply("loss-item-sync", text)
    assert "            d['a'] =" not in done.text
    assert output(done.text) == output(text)


@pytest.mark.parametrize("asked", ["shows", "shows and epoch", "not often"])
def test_a_condition_that_has_a_name(asked: str) -> None:
    step = (
        f"shows, often = i % 2 == 0, i % 2 != 0\ninfo = loss.item()\nif {asked}:\n    print(info)"
    )
    step = step.replace("shows, often = i % 2 == 0, ", "shows = i % 2 == 0\noften = ")
    done = same(HEAD + training(step), "info = loss.item()")
    assert done.text.index("info = loss.item()") > done.text.index(f"if {asked}:")


def test_reads_for_what_is_given_in_few_steps_are_not_looked_at() -> None:
    """They are as rare as below `if i % 50 == 0:`."""
    functions = """
    def divergence(x, store=None):
        parts = x.pow(2).mean(0)
        if store is not None:
            store["all"].append(parts.sum().item())
            for k in range(3):
                store[str(k)].append(parts[k].item())
        return parts.sum()

    class Steps:
        def __init__(self):
            self.n = 0

        def now(self, store):
            self.n += 1
            if self.n % 50 == 1:
                store = store
            else:
                store = None
            return store

    steps = Steps()
    """
    head = HEAD + "from collections import defaultdict\n" + textwrap.dedent(functions)
    few = training(
        "",
        "kept = defaultdict(list)",
        "print(kept)",
        "loss = loss + divergence(out, steps.now(kept))",
    )
    done = apply("loss-item-sync", head + few)
    assert not done.findings
    done = apply("loss-item-sync", head + few.replace("steps.now(kept)", "kept"))
    assert done.findings


def test_a_sum_that_is_changed_before_it_is_prepared_for_the_next_step() -> None:
    step = "if i % 2 == 0:\n    print(info)\ninfo = total / (i + 1)\ntotal += loss.item()"
    refused(HEAD + training(step, "total = info = 0"), "is used in every step")


# ------------------------------------------------------------------------------- spelling, comments
def test_names_and_files() -> None:
    text = training("total += loss.item() / 3", "total, losses = 0, 1", "print(total)")
    done = same(HEAD + text.replace("epoch", "value"), "loss_tensors.append(loss.detach())")
    assert "for number in loss_tensors:" in done.text


def test_ignore_comments_spare_a_group() -> None:
    step = "print(loss.item(), out.mean().item())  # autofast: ignore[loss-item-sync]"
    assert not apply("loss-item-sync", HEAD + training(step)).fixes
    step = "mean = out.mean().item()  # autofast: ignore\nprint(loss.item(), mean)"
    assert not apply("loss-item-sync", HEAD + training(step)).fixes


def test_statements_over_several_lines() -> None:
    step = 'total.update(\n    loss.item(),  # of the batch\n    n=x.size(0),\n)\nif i % 2 == 0:\n    print("{:.7f}".format(total.avg))'
    done = same(HEAD + METER + training(step, "total = Meter()", "print(total)"), "total.keep(")
    assert "# of the batch" in done.text


# --------------------------------------------------------------------- what a function reads anyway
ANYWAY = """\
class Trainer:
    def __init__(self):
        self.total, self.history = 0.0, []

    def step(self, x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        {other}
        {back}

trainer = Trainer()
for epoch in range(2):
    for i, (x, y) in enumerate(loader):
        value = trainer.step(x.to(device), y.to(device))
        trainer.history.append(value)
    print(trainer.total, trainer.history)
"""


def test_a_result_that_is_read_anyway_is_handed_on_as_a_number() -> None:
    done = same(
        HEAD + ANYWAY.format(other="self.total += loss.item()", back="return loss.item()"),
        "self.total += loss_value",
    )
    assert "detach" not in done.text and done.text.count(".item()") == 1


def test_a_result_that_is_not_read_otherwise_is_handed_on_as_a_tensor() -> None:
    same(
        HEAD + ANYWAY.format(other="self.total += 1", back="return loss.item()"),
        "return loss.detach()",
    )
    rare = "self.total += 1\n        if self.total % 5 == 0:\n            print(loss.item())"
    same(HEAD + ANYWAY.format(other=rare, back="return loss.item()"), "return loss.detach()")


# ---------------------------------------------------------------- sums that are shown in every step
SHOWN = "print(i, total, correct, n, 100.0 * correct / n)"
START = "total, correct, n = 0, 0, 0"
HITS = "hits = out.argmax(1) == y"
ELEMENTS = 'sums = {"n": 0, "loss": 0, "hits": 0}'


def test_sums_that_are_shown_in_every_step_stay() -> None:
    """The first read waits; the second finds the device at rest."""
    step = f"total += loss.item()\n{HITS}\nn += len(x)\ncorrect += hits.sum().item()\n{SHOWN}"
    refused(HEAD + training(step, START), "(line ")


def test_a_sum_in_a_dict_waits_while_another_element_is_used() -> None:
    step = "sums['n'] += len(x)\nsums['loss'] += loss.item()\nprint(sums['n'])"
    same(HEAD + training(step, ELEMENTS, "print(sums)"), "sums['loss'] += loss.detach().double()")
    refused(
        HEAD + training("sums['loss'] += loss.item()\nprint(sums['loss'])", ELEMENTS),
        "(line ",
    )


@pytest.mark.parametrize(
    "step",
    [
        # two tensors: the second may be one that cannot be reduced
        "assert y.min() >= 0 and x.max() < 99",
        "assert y.min() >= 0 and len(x)",
        "assert y.min() >= 0 and y.max() < check()",
        "assert 0 <= y.min() <= 2 and y.max() < 3",
        "assert y.min(0)[0] >= 0 and y.max() < 3",
        "assert not (y.min() < 0 or y.max() > 3)",
        "if i % 3 == 0:\n    assert y.min() >= 0 and y.max() < 3",
        "seen = y.cpu()\nassert seen.min() >= 0 and seen.max() < 3",
        "ok = y.min() >= 0 and y.max() < 3",
    ],
)
def test_conditions_that_stay(step: str) -> None:
    assert (
        " & "
        not in apply("loss-item-sync", HEAD + "def check():\n    return 3\n" + training(step)).text
    )


# ------------------------------------------------------- what sees or changes a value in other ways
INFO_2 = "if i % 2 == 0:\n    print(info)"
UPDATES = "class Keeper:\n    def __init__(self, state=None, lr=None):\n        self.log, self.state, self.lr = {}, state, lr\n"
# (in front of the training, before each epoch, before the backward, in each step, after the loop)
OTHERWISE = {
    "reset": (
        "total = 0\ndef reset():\n    global total\n    total = 0\n",
        "",
        "",
        "total += 1\ninfo = loss.item(), total\nreset()\n" + INFO_2,
        "",
    ),
    "gate": (
        "",
        "n = 0",
        "",
        "info = loss.item(), n\nif (n := n + 1) % 2 == 0:\n    print(info)",
        "",
    ),
    "gate that calls": (
        "n = 0\ndef more():\n    global n\n    n += 1\n    return n\n",
        "",
        "",
        "info = loss.item(), n\nif more() % 2 == 0:\n    print(info)",
        "",
    ),
    "alias": ("", "", "part = loss.detach()", "info = loss.item()\npart += 1\n" + INFO_2, ""),
    "kept alias": (
        "",
        "total = 0",
        "part = loss.detach()",
        "total += loss.item()\npart += 1",
        "print(total)",
    ),
    "weights": (
        "w = model[0].weight\n",
        "",
        "",
        "info = w.mean().item()\nfor p in model.parameters():\n    p.data.clamp_(-0.1, 0.1)\n"
        + INFO_2,
        "",
    ),
    "list": ("", "a = []\nb = a", "", "info = loss.item(), len(b)\na.append(i)\n" + INFO_2, ""),
    "match": (
        "",
        "n = 1",
        "",
        "info = loss.item(), n\nmatch i + 5:\n    case n:\n        pass\n" + INFO_2,
        "",
    ),
    "locals": (
        "",
        "",
        "v = loss.item()",
        "if i % 2 == 0:\n    print('{v}'.format(**locals()), v)",
        "",
    ),
    "globals": (
        "def show():\n    print(globals()['v'])\n",
        "",
        "v = loss.item()",
        "if i % 2 == 0:\n    show()\n    print(v)",
        "",
    ),
    "eval": ("", "", "v = loss.item()", "if i % 2 == 0:\n    print(eval('v'), v)", ""),
    "sum by locals": (
        "",
        "total = 0",
        "",
        "total += loss.item()\nprint('{total}'.format(**locals()))",
        "print(total)",
    ),
    "f-string": (
        "",
        "",
        "v = loss.item()",
        "if i % 2 == 0:\n    print(f'{v = } {v * 100=:.3f}')",
        "",
    ),
    "f-string of reads": ("", "", "", "print(f'{loss.item()=} {out.mean().item()=:.3f}')", ""),
    "list under two names": ("", "a = b = []", "", "b.append(loss.item())\nprint(len(a))", ""),
    "list in a dict": (
        "",
        "kept = {'a': []}\nlosses = kept['a']",
        "",
        "losses.append(loss.item())\nprint(len(kept['a']))",
        "",
    ),
    "bound method": (
        "",
        "losses = []\nput = losses.append",
        "",
        "losses.append(loss.item())\nput(1)",
        "print(losses)",
    ),
    "array under two names": (
        "",
        "total = np.zeros(1)\nkept = total",
        "",
        "total += loss.item()\nprint(kept)",
        "print(total)",
    ),
    "row": (
        "table = np.zeros((2, 9))\n",
        "total = table[0]",
        "",
        "total[i] = loss.item()\nprint(table.sum())",
        "",
    ),
    "value of another dict": (
        "table = {'a': {}}\n",
        "part = [d for d in table.values()][0]",
        "",
        "part['loss'] = loss.item()\nprint(list(table.values()))",
        "",
    ),
    "list of a class": (
        "class All:\n    seen = []\n    def update(self, v):\n        self.seen.append(v)\nm, k = All(), All()\n",
        "",
        "",
        "m.update(loss.item())\nprint(len(k.seen))",
        "",
    ),
    "number of a class": (
        "class All:\n    n = 0\n    def update(self, v):\n        self.__class__.n += v\nm = All()\n",
        "",
        "",
        "m.update(loss.item())\nprint(All.n)",
        "",
    ),
    "global sum": (
        "total = n = 0\ndef show():\n    print('s', total)\n",
        "",
        "",
        "total += loss.item()\nshow()\nhits = out.argmax(1) == y\nn += hits.sum().item()\nprint(total, n)",
        "",
    ),
    "tried sums": (
        "def check():\n    raise ValueError\n",
        "total = n = 0",
        "",
        "try:\n    total += loss.item()\n    if i == 2: check()\n    n += out.argmax(1).eq(y).sum().item()\n    print(total, n)\n"
        "except ValueError:\n    print('bad', total, n)",
        "",
    ),
    "read twice": ("", "", "", "print(loss.item())\nloss.data *= 2\nprint(loss.item())", ""),
    "reduced": (
        "def reduce(t):\n    t.data /= 2\n",
        "",
        "",
        "print(loss.item())\nreduce(loss)\nprint(loss.item())",
        "",
    ),
    "drawn": (
        "",
        "total = 0",
        "",
        "total += torch.rand((), device=device).item() * torch.rand((), device=device).item()",
        "print(total)",
    ),
    "next": (
        "c = iter(['a', 'bb', 'ccc'] * 9)\n",
        "total = []",
        "",
        "total.append((len(next(c)), len(next(c)), loss.item()))",
        "print(total)",
    ),
    "state": (
        "class State: step = 0\nstate = State()\n"
        + UPDATES
        + "    def update(self, v):\n        self.log[state.step] = v\nk = Keeper()\n",
        "",
        "",
        "k.update(loss.item())\nstate.step += 1",
        "print(k.log)",
    ),
    "state that is handed over": (
        "class State: step = 0\nstate = State()\n"
        + UPDATES
        + "    def update(self, v):\n        self.log[self.state.step] = v\nk = Keeper()\n"
        "k.state = state\nclass Other(Keeper):\n    def __init__(self, s):\n        self.log = {}\n        self.state = s\nk = Other(state)\n",
        "",
        "",
        "k.update(loss.item())\nstate.step += 1",
        "print(k.log)",
    ),
    "weight": (
        "W = 1\nclass Sum:\n    s = 0\n    def update(self, v):\n        self.s += v * W\nk = Sum()\n",
        "",
        "",
        "k.update(loss.item())\nW = i",
        "print(k.s)",
    ),
    "setter": (
        "class Loud(dict):\n    def __setitem__(self, k, v):\n        print(k, v)\nk = Loud()\n",
        "",
        "",
        "k[i] = loss.item()\nprint(i)",
        "",
    ),
    "operator": (
        "class Loud:\n    def __add__(self, v):\n        print(v)\n        return self\nk = Loud()\n",
        "",
        "",
        "k = k + loss.item()\nprint(i)",
        "",
    ),
    "shown whole": (
        "import dataclasses\n@dataclasses.dataclass\nclass State:\n    total: float = 0.0\ns = State()\n",
        "",
        "",
        "s.total += loss.item()\nprint(s)",
        "",
    ),
    "namespace": (
        "import argparse\ns = argparse.Namespace(total=0.0)\n",
        "",
        "",
        "s.total += loss.item()\nprint(s)",
        "",
    ),
    "setattr": (
        "class S: total = 0.0\ns = S()\n",
        "",
        "",
        "s.total += loss.item()\nsetattr(s, 'total', 0.0)",
        "print(s.total)",
    ),
}


@pytest.mark.parametrize("way", OTHERWISE)
def test_what_is_seen_or_changed_in_other_ways(way: str) -> None:
    front, start, before, step, end = OTHERWISE[way]
    text = HEAD + METER + front + training(step, start, end, before)
    assert output(apply("loss-item-sync", text).text) == output(text)


QUIET_EXIT = "class Quiet:\n    def __enter__(self):\n        return self\n    def __exit__(self, *error):\n        return True\n"
REPORT = "class Report:\n    def __enter__(self):\n        return self\n    def __exit__(self, *error):\n        print(kept)\n"


@pytest.mark.parametrize(
    "around", ["contextlib.suppress(ValueError)", "Quiet()", "Report()", "quiet()"]
)
@pytest.mark.parametrize("called", [False, True])
def test_contexts_that_see_exceptions(around: str, called: bool) -> None:
    loop = training("kept.update(loss.item())\nif i == 3:\n    raise ValueError")
    quiet = "@contextlib.contextmanager\ndef quiet():\n    try:\n        yield\n    except ValueError:\n        pass\n"
    text = HEAD + METER + "import contextlib\n" + QUIET_EXIT + REPORT + quiet + "kept = Meter()\n"
    text += "def train():\n" + indented(loop, 4) if called else ""
    inner = "train()\n" if called else loop
    text += "with contextlib.suppress(ValueError):\n" if around == "Report()" else ""
    by = 4 if around == "Report()" else 0
    text += indented(f"with {around}:\n" + indented(inner, 4), by) + "print(kept)\n"
    assert output(apply("loss-item-sync", text).text) == output(text)


def test_a_caller_that_shows_it_at_the_end_of_all() -> None:
    loop = "def train():\n" + indented(
        training("kept.update(loss.item())\nif i == 3:\n    raise SystemExit"), 4
    )
    text = (
        HEAD
        + METER
        + "kept = Meter()\n"
        + loop
        + "try:\n    try:\n        train()\n    finally:\n        print(kept)\nexcept SystemExit:\n    pass\n"
    )
    assert output(apply("loss-item-sync", text).text) == output(text)
    plain = "kept = Meter()\ndef end():\n    pass\n" + loop.replace("if i == 3", "if i == 30")
    same(
        HEAD + METER + plain + "try:\n    train()\nfinally:\n    pass\nprint(kept)\n", "kept.keep("
    )


@pytest.mark.parametrize(
    "use", ["kept.append(step(x, y))", "v = step(x, y)\n    if i % 5 == 0:\n        print(v)"]
)
@pytest.mark.parametrize("epochs", [0, 1])
def test_functions_that_may_return_something_else(use: str, epochs: int) -> None:
    one = "def step(x, y):\n    loss = F.cross_entropy(model(x.to(device)), y.to(device))\n    loss.backward()\n"
    two = (
        f"import sys\nepochs = {epochs} + len(sys.argv[99:])\nif epochs:\n"
        + indented(one + "    return loss.item()\n", 4)
        + "else:\n    def step(x, y):\n        return 0.5\n"
    )
    for made in (one + "    if len(x) == 8:\n        return loss.item()\n", two):
        text = (
            HEAD
            + "kept = []\n"
            + made
            + f"for i, (x, y) in enumerate(loader):\n    {use}\nprint(kept)\n"
        )
        assert output(apply("loss-item-sync", text).text) == output(text)


# ------------------------------------------------------------------------------ which value is read
def test_a_value_of_the_other_arm_is_not_what_is_read() -> None:
    arms = "err = (out - 1).abs().detach()\nif i % 2 == 0:\n    err = err.mean()\nelse:\n    rows.append(err.cpu().numpy())"
    untouched(HEAD + training(arms, "rows = []", "print(rows)"))
    same(
        HEAD + training(arms.replace("- 1).abs()", "- 1).abs().sum()"), "rows = []", "print(rows)"),
        "rows.append(",
    )


def test_the_argument_of_a_call_is_not_the_number_it_becomes() -> None:
    text = "def put(rows, err, i):\n    if i > 2:\n        err = err.mean()\n    rows.append(err.cpu().numpy())\n"
    untouched(HEAD + text + training("put(rows, out.detach(), i)", "rows = []", "print(rows)"))


def test_what_a_sum_begins_as_counts() -> None:
    untouched(
        HEAD
        + training(
            "err = out.detach()\nerr += loss.detach()\nrows.append(err.cpu().numpy())",
            "rows = []",
            "print(rows)",
        )
    )


PASSED = [
    ("nn.Identity()", "loss.detach()"),
    ("nn.Flatten(0)", "loss.detach().reshape(1)"),
    ("nn.Dropout(0.0).eval()", "loss.detach()"),
    ("nn.ReLU(inplace=True)", "loss.detach()"),
    ("nn.Sequential(nn.Identity())", "loss.detach()"),
]


@pytest.mark.parametrize(("layer", "given"), PASSED)
def test_layers_that_give_back_what_they_got(layer: str, given: str) -> None:
    step = f"first = {given}\nscore = layer(first)\ntotal += score.item()\nfirst.zero_()"
    same(
        HEAD + f"layer = {layer}\n" + training(step, "total = 0", "print(repr(total))"),
        ".detach().clone()",
    )


def test_layers_that_compute_need_no_copy() -> None:
    step = "score = layer(out.detach()[:1])\ntotal += score.item()"
    done = same(
        HEAD
        + "layer = nn.Linear(3, 1).to(device)\n"
        + training(step, "total = 0", "print(repr(total))"),
        "(score.detach())",
    )
    assert "clone" not in done.text


MEANWHILE = [
    "F.batch_norm(out.detach(), state, var, training=True)",
    "torch.nn.utils.vector_to_parameters(torch.zeros(3), [state])",
    "np.copyto(state.numpy(), 0.5)",
    "F.relu(state.neg_(), inplace=True)",
    "F.relu(state, True)",
]


@pytest.mark.parametrize("change", MEANWHILE)
def test_a_statement_does_not_move_past_a_change_in_place(change: str) -> None:
    start = "state, var = torch.zeros(3), torch.ones(3)"
    step = f"shown = {{'loss': loss.item(), 'state': state.sum().item()}}\n{change}\nif i % 2 == 0:\n    print(shown)"
    done = apply("loss-item-sync", HEAD + training(step, start))
    assert "shown = {'loss': loss.detach(), 'state': state.sum().item()}" in done.lines
    same(HEAD + training(step.replace(change, "F.relu(state)"), start), "shown = ")


HEADS = """
class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList([nn.Linear(4, 3) for _ in range(3)])

    def forward(self, x, y):
        losses, accuracies, total, named = [], [], 0.0, {}
        for k, head in enumerate(self.heads):
            out = head(x)
            loss = F.cross_entropy(out, y)
            hits = (out.argmax(1) == y).float().mean()
            losses.append(loss)
            {step}
        return torch.stack(losses).mean(), (accuracies, total, named)


model = Heads().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    loss, seen = model(x, y)
    loss.backward()
    optimizer.step()
    print(seen)
"""


@pytest.mark.parametrize(
    ("step", "lines"),
    [
        ("accuracies.append(hits.item())", ["accuracies.append(hits.detach())", "accuracies = torch.stack(accuracies).tolist() if accuracies else []"]),
        ("accuracies.append(float(hits))", ["accuracy_values.append(hits.detach())"]),
        ("total += hits.item()", ["total += hits.detach().double()"]),
        ("named[f'head{k}'] = hits.item()", ["named[index] = value.item()"]),
        ("accuracies.append(loss.item() if hits.item() > 0.5 else 0)", []),
        ("accuracies.append(hits.item())\n            if accuracies[-1] > 0.9:\n                break", []),
    ],
)  # fmt: skip
def test_an_inner_loop_of_a_step_reads_behind_its_last_turn(step: str, lines: list[str]) -> None:
    text = HEAD + HEADS.replace("{step}", step)
    done = same(text, *lines) if lines else apply("loss-item-sync", text)
    assert lines or not done.fixes, done.lines


GRAD_NORM = """
def grad_norm(model):
    total = 0.0
    for p in model.parameters():
        if p.grad is not None:
            {line}
    return total ** 0.5


"""


@pytest.mark.parametrize(
    "line",
    [
        "total += p.grad.data.norm(2).item() ** 2",
        "total += float(p.grad.norm()) ** 2 / 3",
        "norm = p.grad.norm()\n            total += norm.item() ** 2",
    ],
)
def test_norms_of_all_parameters_are_read_at_once(line: str) -> None:
    norms = GRAD_NORM.format(line=line)
    end = "print(repr(grad_norm(model)))"
    same(HEAD + norms + training(end), "in torch.stack(values).tolist() if values else []:")
    frozen = "for p in model.parameters():\n    p.requires_grad_(False)\n"
    done = apply("loss-item-sync", HEAD + norms + training("print(grad_norm(model))"))
    none = done.text.replace("for epoch", f"{frozen}print(grad_norm(model))\nfor epoch", 1)
    assert "0.0" in output(none.partition("for epoch")[0])  # no gradient at all: an empty list


CLIPPED = """
def clip_grad_value(parameters, limit=None):
    if isinstance(parameters, torch.Tensor):
        parameters = [parameters]
    parameters = {picked}
    total = 0
    for p in parameters:
        norm = {norm}
        total += norm.item() ** 2
        if limit is not None:
            p.grad.data.clamp_(min=-limit, max=limit)
    return total ** 0.5


"""
PICKED = (
    "list(filter(lambda p: p.grad is not None, parameters))",
    "[p for p in parameters if p.grad is not None]",
)


@pytest.mark.parametrize("limit", ["None", "0.01"])
@pytest.mark.parametrize("picked", PICKED)
def test_norms_of_those_that_have_a_gradient(picked: str, limit: str) -> None:
    """A generator is no tensor, which a function may take as well."""
    norms = CLIPPED.format(picked=picked, norm="p.grad.data.norm(2)")
    text = HEAD + norms + training(f"print(repr(clip_grad_value(model.parameters(), {limit})))")
    same(text, "in torch.stack(values).tolist() if values else []:")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("\noptimizer", '\nmodel[0].to("cpu")\noptimizer'),  # not all on one device
        ("p.grad.norm(2)", "p.grad[0].norm(2)"),
        ("p.grad.norm(2)", "p.grad.view(-1).norm(2, 0)"),
    ],
)
def test_such_norms_are_read_one_by_one(old: str, new: str) -> None:
    text = HEAD + CLIPPED.format(picked=PICKED[0], norm="p.grad.norm(2)")
    text += training("print(repr(clip_grad_value(model.parameters(), 0.1)))")
    assert old in text
    assert "torch.stack" not in apply("loss-item-sync", text.replace(old, new)).text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("\noptimizer", '\nmodel[0].to("cpu")\noptimizer'),  # not all on one device
        (".to(device)\nopt", "\nopt"),
        ("p.grad.norm(2)", "p.grad.norm(2, 0).max()"),  # not of the whole
        ("p.grad.norm(2)", "p.grad[0].norm(2)"),
    ],
)
def test_other_norms_stay(old: str, new: str) -> None:
    text = HEAD + GRAD_NORM.format(line="total += p.grad.norm(2).item() ** 2")
    text += training("print(repr(grad_norm(model)))")
    assert old in text
    untouched(text.replace(old, new))


SHORTENED = """
def shorten(parameters, longest):
    parameters = [p for p in parameters if p.grad is not None]
    length = torch.norm(torch.stack([p.grad.detach().norm(2) for p in parameters]), 2)
    factor = longest / (length + 1e-6)
    {scaled}
    return length


"""
WHOLE = "if factor < 1:\n        for p in parameters:\n            p.grad.data.mul_(factor)"
EACH = """for p in parameters:
        own = longest / (p.grad.norm() + 1e-6)
        if own <= 1.0:
            p.grad.detach().mul_(own)"""


@pytest.mark.parametrize("longest", ["0.001", "0.1", "1e6"])
@pytest.mark.parametrize(
    ("scaled", "written"),
    [(WHOLE, "p.grad.data.mul_(factor_clamped)"), (EACH, "mul_(own.clamp(max=1))")],
)
def test_gradients_are_shortened_without_to_ask(scaled: str, written: str, longest: str) -> None:
    """Times 1 they are what they were."""
    text = HEAD + SHORTENED.format(scaled=scaled)
    end = (
        f"length = shorten(model.parameters(), {longest})\nif i % 5 == 0:\n    print(length.item())"
    )
    same(text + training(end), written)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("factor < 1:", "factor < 2:"),  # what is not shortened would be
        ("factor < 1:", "factor > 1:"),
        ("data.mul_(factor)", "data.mul_(factor * 1)"),
        ("data.mul_(factor)", "data.add_(factor)"),
        ("data.mul_(factor)", "data.mul_(factor)\n            print('long')"),
        ("p.grad.data.mul_", "p.data.mul_"),
        ("            p.grad", "            parameters[0].grad.zero_()\n            p.grad"),
    ],
)
def test_what_a_branch_does_besides(old: str, new: str) -> None:
    text = HEAD + SHORTENED.format(scaled=WHOLE)
    assert old in text
    text = text.replace(old, new) + training("print(shorten(model.parameters(), 0.1))")
    assert "clamp" not in apply("loss-item-sync", text).text


EITHER = """
class Counted(nn.Module):
    def forward(self, out, y):
        return F.cross_entropy(out, y), 3


def fit(loss_fn):
    losses, total = [], 0
    for i, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        outputs = model(x)
        {pack}
        found = loss_fn(*outputs, y)
        {pick}
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
    return losses


print(fit(nn.CrossEntropyLoss()), fit(Counted()))
"""


@pytest.mark.parametrize(
    ("pack", "pick"),
    [
        (
            "outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)",
            "loss = found[0] if type(found) in (tuple, list) else found",
        ),
        (
            "if type(outputs) not in (tuple, list):\n            outputs = (outputs,)",
            "if isinstance(found, tuple):\n            loss = found[0]\n        else:\n            loss = found",
        ),
        (
            "if torch.is_tensor(outputs):\n            outputs = [outputs]",
            "loss = found if not isinstance(found, tuple) else found[0]",
        ),
    ],
)
def test_what_is_a_tensor_or_a_tuple_of_tensors(pack: str, pick: str) -> None:
    same(HEAD + EITHER.format(pack=pack, pick=pick), "losses.append(loss.detach().clone())")


def test_a_count_through_a_variable_is_summed_on_the_device() -> None:
    """``correct = (...).sum().item()``, ``total += correct``: no list of counts, though the
    variable comes between.
    """
    text = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    model = nn.Linear(4, 2).to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.randn(12, 4), torch.randint(0, 2, (12,))), batch_size=4)
    shown = []
    for epoch in range(2):
        total = 0
        for x, y in loader:
            out = model(x.to(device))
            loss = criterion(out, y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            correct = (out.argmax(dim=1) == y.to(device)).sum().item()
            total += correct
        shown.append(total / 12)
    """
    found = apply("loss-item-sync", text)
    assert found.lines[-2:] == [
        "correct = (out.argmax(dim=1) == y.to(device)).sum()",
        "shown.append(int(total) / 12)",
    ]
    assert run(found.text)["shown"] == run(text)["shown"]
    mean = text.replace("(out.argmax(dim=1) == y.to(device)).sum().item()", "loss.item()")
    done = apply("loss-item-sync", mean)
    assert "correct = loss.detach()" in done.lines and "total += correct.double()" in done.lines
    assert run(done.text)["shown"] == run(mean)["shown"]


def test_one_sum_in_the_loops_of_two_arms() -> None:
    """Where each loop may leave a number or a tensor, what comes below both takes either."""
    loops = """
for epoch in range(2):
    total = n = 0
    if epoch % 2:
        for x, y in loader:
            loss = criterion(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += len(x) * loss.item()
            n += len(x)
        seen.append(total / n)
    else:
        for x, y in loader:
            loss = 2 * criterion(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += len(x) * loss.item()
            n += len(x)
    seen.append(total / LENGTH)
"""
    head = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
model = nn.Linear(4, 2).to(device)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(12, 4), torch.randint(0, 2, (12,))), batch_size=4)
seen = []
"""
    once = loops.replace("        seen.append(total / n)\n", "")
    other = once.replace("else:\n        for x, y in loader", "else:\n        for x, y in other")
    other = "other = loader\nfor loader in [loader, other]:\n    pass\n" + other
    for text in (
        head + loops.replace("LENGTH", "n"),
        head + once.replace("LENGTH", "n"),
        head + once.replace("LENGTH", "len(loader)"),
        head + other.replace("LENGTH", "len(loader)"),
    ):
        done = apply("loss-item-sync", text)
        assert len(done.fixes) == 2, text
        assert run(done.text)["seen"] == run(text)["seen"]


def test_what_may_differ_is_kept_by_each_statement_for_itself() -> None:
    text = HEAD + textwrap.dedent("""\
        calls = []

        def measured(loss):
            calls.append(1)
            return loss * len(calls)

        squares, inverses = [], []
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
            squares.append(measured(loss).item() ** 2)
            inverses.append(1 / measured(loss).item())
        """)
    found = apply("loss-item-sync", text)
    assert found.fixes
    before, after = run(text), run(found.text)
    assert all(before[name] == after[name] for name in ("squares", "inverses", "calls"))


# ------------------------------------------------------------------------- one name, several values
SEVERAL = (
    HEAD
    + """\
def step(x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    {end}


total = 0.0
for i, (x, y) in enumerate(loader):
    loss = step(x.to(device), y.to(device))
    total += loss
    if i % 4 == 0:
        print(repr(loss))
    if i % 5 == 4:
        loss = {{"best": i}}
        print(loss)
print(repr(total))
"""
)


@pytest.mark.parametrize("end", ["return loss.item()", "loss = loss.item()\n    return loss"])
def test_a_name_that_also_holds_something_else(end: str) -> None:
    """Only where the number that is read arrives is the tensor read instead."""
    same(
        SEVERAL.format(end=end),
        "loss.detach()",
        "print(repr(loss.item()))",
        "total += loss.double()",
    )


@pytest.mark.parametrize(
    "rest",
    [
        "if i == 2:\n    value = 3.0\nif i % 4 == 1:\n    print(value)",
        "value += 1\nif i % 4 == 1:\n    print(value)\nif i % 4 == 2:\n    print(value)",
    ],
)
def test_a_place_that_either_value_may_come_to(rest: str) -> None:
    refused(HEAD + training("value = loss.item()\n" + rest), "gets other values too")


ROWS = """\
class Rows:
    def __init__(self):
        self.kept = []


rows, log, total = Rows(), [], 0.0
"""


@pytest.mark.parametrize(
    ("step", "line"),
    [
        ("row = {'loss': loss.item(), 'n': len(log)}\nlog.append(row)", ""),
        ("row = (loss.item(), len(rows.kept))\nrows.kept.append(row)", ""),
        ("rows.kept.append((loss.item(), len(rows.kept)))", ""),
        ("new = loss.item() * 2\ntotal += new\nlog.append((new, round(total)))", ""),
        ("log.append((loss.item(), len(log)))", "log.append((value.item(), len(log)))"),
        ("row = (loss.item(), len(x))\nlog.append(row)", "row = (value.item(), count)"),
    ],
)
def test_what_is_put_off_may_be_counted_in_the_loop(step: str, line: str) -> None:
    text = HEAD + ROWS + training(step, "", "print(log, rows.kept, total)")
    if line:
        same(text, line)
    else:
        untouched(text)


SWITCHES = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--debug", action="store_true")
parser.add_argument("--check", action="store_false")
args = parser.parse_args([])
DEBUG, MORE, seen = False, False, []

def is_bad(x):
    return torch.isnan(x)

def turns_on(x):
    global MORE
    MORE = True
    return torch.isnan(x)

def look(found, debug=False):
    for key in found:
        if torch.isnan(found[key]).any() and DEBUG:
            print("nan in", key)

"""


def switched(test: str) -> str:
    step = f"look({{'out': out, 'loss': loss}})\nif {test}:\n    print('bad')\nelse:\n    seen.append(i)"
    text = HEAD + SWITCHES + training(step, end="print(len(seen), float(loss.detach()))")
    return text if "key" in test else text.replace("look({'out'", "len({'out'")


@pytest.mark.parametrize(
    ("test", "after"),
    [
        ("(torch.isnan(out).any() or (out > 9).any()) and DEBUG", "DEBUG and (torch.isnan(out).any() or (out > 9).any())"),
        ("is_bad(out).any() and args.debug", "args.debug and is_bad(out).any()"),
        ("out.sum() > 9 and DEBUG and is_bad(x).any()", "DEBUG and out.sum() > 9 and is_bad(x).any()"),
        ("loss.item() > 9 and DEBUG", "DEBUG and loss.item() > 9"),
        ("i == 'key'", "DEBUG and torch.isnan(found[key]).any()"),
    ],
)  # fmt: skip
def test_a_switch_that_is_off_is_asked_first(test: str, after: str) -> None:
    done = same(switched(test), f"if {after}:")
    assert not apply("loss-item-sync", done.text).fixes


@pytest.mark.parametrize(
    "test",
    [
        "is_bad(out).any() and args.check",  # it is on
        "is_bad(out).any() or DEBUG",
        "turns_on(out).any() and MORE",
        "(seen.append(1) or is_bad(out).any()) and DEBUG",
        "torch.rand(3, device=device).sum() > 9 and DEBUG",
        "out.detach().add_(1).sum() > 99 and DEBUG",
        "(bad := is_bad(out).any()) and DEBUG",
        "is_bad(out).any() and missing",
        "is_bad(out).any() and seen",
    ],
)
def test_switches_that_must_wait(test: str) -> None:
    done = apply("loss-item-sync", switched(test))
    assert f"if {test}:" in done.text


@pytest.mark.parametrize(
    "keeps",
    [
        "setattr(box, 'loss', loss.detach())\nbox.loss.mul_(2)",
        "host = np.asarray(loss.detach())\nhost += 1",
        "turn = Turn(loss.detach())\nturn.loss.mul_(2)",
        "turn = Kept(loss.detach())\nturn.double()",
        "nn.Hardtanh(-1, 1, True)(loss.detach())",
        "kept = nn.Parameter(loss.detach())\nkept.data.mul_(2)",
        "kept = torch.autograd.Variable(loss.detach())\nkept.mul_(2)",
        "kept = TensorDataset(loss.detach().view(1))\nkept.tensors[0].mul_(2)",
        "largest = max(loss.detach(), torch.zeros(()))\nlargest.mul_(2)",
        "getattr(loss, 'data').mul_(2)",
        "part = next(iter(loss.detach().view(1)))\npart.mul_(2)",
        "part = loss.detach() or 0\npart.mul_(2)",
        "late = functools.partial(torch.Tensor.mul_, loss.detach(), 2)\nlate()",
        "hooked(loss.detach())\nbox.given[0].mul_(2)",
        "part = +loss.detach()\npart.mul_(2)",
        "part = loss.detach().to_dense()\npart.mul_(2)",
        "part = loss.detach().sum_to_size(())\npart.mul_(2)",
        "part = torch.utils.data.default_convert(loss.detach())\npart.mul_(2)",
        "part = torch.from_numpy(np.require(loss.detach().numpy()))\npart.mul_(2)",
    ],
)
def test_losses_that_get_another_name_are_copied(keeps: str) -> None:
    """What is put away keeps its number, whoever changes the tensor afterwards."""
    head = (
        "import functools\nfrom collections import namedtuple\nfrom dataclasses import dataclass\n"
        'Turn = namedtuple("Turn", "loss")\nclass Box:\n    pass\nbox, losses = Box(), []\n'
        "@dataclass\nclass Kept:\n    loss: object\n    def double(self):\n        self.loss.mul_(2)\n"
        "hooked = nn.ReLU()\nhooked.register_forward_hook(lambda m, i, o: setattr(box, 'given', i))\n"
    )
    same(HEAD + head + training(f"losses.append(loss.item())\n{keeps}", "", "print(losses)"))
