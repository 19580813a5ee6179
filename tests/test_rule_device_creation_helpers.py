"""device-creation: tensors that are made for a function which only moves what it is given."""

from __future__ import annotations

import pytest

from tests.onerule import Applied, apply, run

HELPER = """
def put(tensor, volatile=False):
    '''Moves it.'''
    if torch.cuda.is_available():
        tensor = tensor.cuda()
    return Variable(tensor)
"""
SCRIPT = """
import torch
from torch import nn
from torch.autograd import Variable

torch.manual_seed(0)
use_cuda = torch.cuda.is_available()
device = torch.device("cuda" if use_cuda else "cpu")
model = nn.Linear(4, 4).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses, kept = [], []
{helper}
for step in range(6):
    x = put(torch.full((3, 4), 0.5).clamp(0, 1))
    out = model(x)
    {make}
    optimizer.zero_grad()
    loss = (out - z).pow(2).mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
"""
ASKED = 'device="cuda" if torch.cuda.is_available() else "cpu"'


def made(make: str, helper: str = HELPER) -> Applied:
    text = SCRIPT.format(make=make.replace("\n", "\n    "), helper=helper)
    found = apply("device-creation", text)
    assert run(found.text)["losses"] == run(text)["losses"]
    return found


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        ("z = put(torch.ones(3, 4))", [f"z = put(torch.ones(3, 4, {ASKED}))"]),
        (
            "z = put(torch.ones(out.size(0)).long()).unsqueeze(1)",
            ["z = put(torch.ones(out.size(0), device=out.device, dtype=torch.long)).unsqueeze(1)"],
        ),
        (
            "z = put(Variable(torch.zeros(out.shape[0], 1)))",
            ["z = put(Variable(torch.zeros(out.shape[0], 1, device=out.device)))"],
        ),
        ("z = torch.ones(3, 4)\nz = put(z)", [f"z = torch.ones(3, 4, {ASKED})"]),
        (
            "z = put(torch.FloatTensor(out.size(0), 1).fill_(2))",
            ["z = put(torch.full((out.size(0), 1), 2.0, device=out.device))"],
        ),
    ],
)
def test_it_is_made_there_for_the_function(make: str, expected: list[str]) -> None:
    assert made(make).lines == expected


@pytest.mark.parametrize(
    ("helper", "expected"),
    [
        ("def put(t):\n    return t.to(device)", "device=device"),
        ("def put(t):\n    return t.cuda() if use_cuda else t", 'device="cuda" if use_cuda else "cpu"'),
        ("def put(t):\n    t = Variable(t.to(device))\n    return t", "device=device"),
        (
            "def put(t):\n    if use_cuda:\n        return Variable(t.cuda())\n    return Variable(t)",
            'device="cuda" if use_cuda else "cpu"',
        ),
        ("def put(t, where=device):\n    return t.to(where)", ""),
        ("def put(t, device=device):\n    return t.to(device)", ""),
    ],
)  # fmt: skip
def test_the_forms_of_the_function(helper: str, expected: str) -> None:
    found = made("z = put(torch.ones(3, 4))", helper)
    assert found.lines == ([f"z = put(torch.ones(3, 4, {expected}))"] if expected else [])


def test_the_device_that_the_call_gives() -> None:
    helper = "def move(t, where):\n    return t.to(where)\ndef put(t):\n    return t.to(device)"
    found = made("z = move(torch.ones(3, 4), device)", helper)
    assert found.lines == ["z = move(torch.ones(3, 4, device=device), device)"]
    other = 'def move(t, where):\n    return t.to(where)\ndef put(t):\n    return t.to(device)'
    assert not made("z = move(torch.ones(3, 4), pick(device))", other + "\npick = lambda d: d").lines


def test_a_method_with_the_device_of_its_object() -> None:
    text = SCRIPT.format(helper=HELPER, make="z = trainer.target()").replace(
        "losses, kept = [], []",
        """losses = []
class Trainer:
    def __init__(self):
        self.device = device
    def put(self, t):
        return t.to(self.device)
    def target(self):
        return self.put(torch.ones(3, 4))
trainer = Trainer()""",
    )
    found = apply("device-creation", text)
    assert found.lines == ["return self.put(torch.ones(3, 4, device=self.device))"]
    assert run(found.text)["losses"] == run(text)["losses"]


def test_in_another_file() -> None:
    helper = "import torch\nfrom torch.autograd import Variable\n" + HELPER
    files = {"utils.py": helper}
    text = SCRIPT.format(helper="from utils import put", make="z = put(torch.ones(3, 4))")
    found = apply("device-creation", text, files=files)
    assert found.lines == [f"z = put(torch.ones(3, 4, {ASKED}))"]
    # What it reads has no name here.
    device = 'import torch\ndevice = torch.device("cpu")\ndef put(t):\n    return t.to(device)\n'
    assert not apply("device-creation", text, files={"utils.py": device}).lines


@pytest.mark.parametrize(
    ("helper", "make"),
    [  # it does more, or others have the tensor
        (HELPER.replace("    return", "    kept.append(tensor)\n    return"), "z = put(torch.ones(3, 4))"),
        (HELPER.replace("tensor.cuda()", "tensor.cuda() + 1"), "z = put(torch.ones(3, 4))"),
        (HELPER.replace("tensor.cuda()", "tensor.double().cuda()"), "z = put(torch.ones(3, 4))"),
        (HELPER.replace("tensor.cuda()", "tensor.pin_memory().cuda()"), "z = put(torch.ones(3, 4))"),
        (HELPER.replace("return Variable(tensor)", "return Variable(tensor + 1)"), "z = put(torch.ones(3, 4))"),
        (HELPER.replace("def put", "@torch.no_grad()\ndef put"), "z = put(torch.ones(3, 4))"),
        (HELPER, "z = torch.ones(3, 4)\nkept.append(z)\nz = put(z)"),
        (HELPER, "z = torch.ones(3, 4)\nkept.append(z.numpy())\nz = put(z)"),
        (HELPER, "z = torch.ones(3, 4)\nw = put(z)\nkept.append(w)"),
        (HELPER, "z = put(torch.ones(1).expand(3, 4))"),
        (HELPER, "z = put(torch.zeros_like(x))"),
        (HELPER, "z = put(torch.ones(3, 4).numpy() if False else x.detach())"),
        ("def put(t):\n    return t.cuda() if use_cuda else t.cpu()", "z = put(torch.ones(3, 4))"),
        ("def put(t):\n    if not use_cuda:\n        return t\n    return t.cuda()", "z = put(torch.ones(3, 4))"),
        ("def put(t):\n    return t if not use_cuda else t.cuda()", "z = put(torch.ones(3, 4))"),
        ("def put(t):\n    if losses:\n        if use_cuda:\n            t = t.cuda()\n    return t", "z = put(torch.ones(3, 4))"),
        ("def put(t):\n    t = t[:2].to(device)\n    return t", "z = put(torch.ones(4, 4))[:1]"),
        ("def put(t):\n    return t if not use_cuda else t.to('cpu')", "z = put(torch.ones(3, 4))"),
    ],
)  # fmt: skip
def test_what_stays(helper: str, make: str) -> None:
    if "pin_memory" in helper or "z.numpy" in make:
        found = apply(
            "device-creation",
            SCRIPT.format(make=make.replace("\n", "\n    "), helper=helper),
        )
    else:
        found = made(make, helper)
    assert not any("device=" in line for line in found.lines)


def test_a_name_of_the_caller_hides_the_device() -> None:
    text = SCRIPT.format(
        helper="def put(t):\n    return t.to(device)\ndef target(device):\n    return put(torch.ones(3, 4))",
        make='z = target("meta")',
    )
    assert not apply("device-creation", text).lines


def test_either_of_two_functions() -> None:
    helper = HELPER + "\ndef other(t):\n    return t * 2\nput = put if len(sys.argv) < 99 else other\n"
    text = SCRIPT.format(make="z = put(torch.ones(3, 4))", helper="import sys\n" + helper)
    assert not apply("device-creation", text).lines
