"""What options at their defaults lead past is not worth its lines, both ways: where a default run
comes there, and where nobody can say, it is.
"""

from __future__ import annotations

import pytest

from tests.onerule import apply, run

EVALUATED = """
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--test", default={default}{more})
parser.add_argument("--every", type=int, default=0)
args = parser.parse_args([{given}])
torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
train_loader = DataLoader(data, batch_size=8)
test_loader = DataLoader(data, batch_size=8) if args.test is not None else None


class Trainer:
    def __init__(self, model, loader, other):
        self.model, self.loader, self.other = model, loader, other
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        self.total = 0.0

    def train(self):
        self.turn(self.loader)

    def test(self):
        self.turn(self.other, train=False)

    def turn(self, loader, train=True):
        for x, y in loader:
            loss = nn.functional.mse_loss(self.model(x), y)
            self.total += loss.item()
            if train:
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()


trainer = Trainer(nn.Linear(8, 1), train_loader, test_loader)
for epoch in range(5):
    trainer.train()
    if {test}:
        trainer.test()
total = trainer.total
"""


def evaluated(
    default: str = "None",
    more: str = "",
    given: str = "",
    test: str = "test_loader is not None",
) -> str:
    return EVALUATED.format(default=default, more=more, given=given, test=test)


@pytest.mark.parametrize(
    ("text", "worth"),
    [
        (evaluated(), False),
        (evaluated(test="args.test"), False),
        (evaluated(test="args.every and epoch % args.every == 0"), False),
        (evaluated("'test.csv'"), True),
        (evaluated(more=", choices=['a', 'b']").replace("default=None, ", ""), True),
        (evaluated(more=", required=True", given="'--test', 'a'"), True),
        (evaluated(test="test_loader is not None or epoch == 0"), True),
        (evaluated().replace("if test_loader is not None:\n        trainer.test()", "trainer.test()"), True),
    ],
)
def test_an_evaluation_for_which_an_option_is_given(text: str, worth: bool) -> None:
    found = apply("no-grad-eval", text, min_gain=0.01)
    assert bool(found.fixes) is worth, [f.gain for f in found.findings]
    if not worth:
        reasons = {f.gain.reason for f in found.findings if f.gain}
        assert any("defaults lead past it" in why for why in reasons), reasons
    whole = apply("no-grad-eval", text)  # with all that is known to be right
    assert whole.fixes
    if "required" in text:
        assert run(whole.text)["total"] == run(text)["total"]


LOSSES = """
import argparse
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--loss", default={default!r})
parser.add_argument("--steps", type=int, default=100000)
args = parser.parse_args()
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Plain:
    def __call__(self, x):
        return x.square().mean()


class Weighted:
    def __init__(self):
        self.weights = [1.0, 2.0, 3.0]

    def __call__(self, x):
        return (x * torch.tensor([1.0, 2.0, 3.0]).to(x.device)).mean()


{registry}

loss_of = make(args.loss)
model = nn.Linear(3, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(args.steps):
    loss = loss_of(model(torch.randn(64, 3, device=device)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
BY_IF = """
def make(name):
    if name == "plain":
        return Plain()
    elif name == "weighted":
        return Weighted()
    raise ValueError(name)
"""
BY_DICT = """
KNOWN = {"plain": Plain, "weighted": Weighted}

def make(name):
    return KNOWN[name]()
"""
BY_GET = """
def make(name):
    kind = {"plain": Plain, "weighted": Weighted}.get(name, Plain)
    return kind()
"""


@pytest.mark.parametrize("registry", [BY_IF, BY_DICT, BY_GET])
@pytest.mark.parametrize(("default", "worth"), [("plain", False), ("weighted", True), ("other", None)])
def test_a_class_that_an_option_chooses(registry: str, default: str, worth: bool | None) -> None:
    text = LOSSES.format(default=default, registry=registry)
    found = apply("cache-constant device-creation", text, min_gain=0.01)
    assert apply("cache-constant device-creation", text).fixes
    if worth is not None:
        assert bool(found.fixes) is worth, [(f.rule, f.gain) for f in found.findings]


def test_a_class_that_a_required_option_chooses() -> None:
    for registry in (BY_IF, BY_DICT):
        text = LOSSES.format(default="plain", registry=registry)
        text = text.replace("default='plain'", "required=True")
        assert apply("cache-constant device-creation", text, min_gain=0.01).fixes


PLAIN = """
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

{settings}
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
loader, valid = DataLoader(data, batch_size=8, shuffle=True), DataLoader(data, batch_size=8)
model = nn.Linear(8, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def evaluate():
    total = 0.0
    for x, y in valid:
        x, y = x.to(device), y.to(device)
        total += nn.functional.mse_loss(model(x), y).item()
    return total


def main():
    shown = []
    for epoch in range(10):
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        {body}
    return shown, model(data[0][0].to(device)).item()


shown, last = main()
"""
OPTION = "p = argparse.ArgumentParser()\np.add_argument({})\nargs = p.parse_args([])"
TEST, EVERY = OPTION.format("'--test'"), OPTION.format("'--every', type=int, default=0")
NOW = "shown.append(evaluate())"
EACH = f"if every and epoch % every == 0:\n            {NOW}"
GIVEN = EACH.replace("every", "args.every")


@pytest.mark.parametrize(
    ("settings", "body", "worth"),
    [
        (OPTION.format("'--no-eval', action='store_true'"), f"if not args.no_eval:\n            {NOW}", True),
        (TEST, f"if args.test:\n            pass\n        else:\n            {NOW}", True),
        (TEST, f"if args.test is None:\n            continue\n        {NOW}", False),
        (TEST, f"if epoch > 5 and args.test:\n            {NOW}", False),
        (TEST, f"if epoch > 5 or args.test:\n            {NOW}", True),
        (TEST, f"if args.test:\n            {NOW}\n        if epoch == 9:\n            {NOW}", True),
        (TEST, f"try:\n            if args.test:\n                {NOW}\n        finally:\n            pass", False),
        (
            f"{TEST}\ndef show(shown):\n    if args.test is None:\n        return\n    {NOW}",
            "show(shown)",
            False,
        ),
        (
            f"{TEST}\ndef show(shown):\n    if args.test is not None:\n        return\n    {NOW}",
            "show(shown)",
            True,
        ),
        (f"{EVERY}\nevery = args.every", EACH, False),
        (f"{EVERY}\nevery = args.every or 5", EACH, True),
        (f"{EVERY}\nevery = args.every\nevery += 1", EACH, True),
        (f"{EVERY}\nargs.every = 3", GIVEN, True),
        (f"{EVERY}\nsetattr(args, 'every', 3)", GIVEN, True),
        (f"{EVERY}\nvars(args)['every'] = 3", GIVEN, True),
        ("import os\nevery = int(os.environ.get('EVERY', '3'))", EACH, True),
        ("class C:\n    every = 0\nclass D(C):\n    every = 5\nargs = D()", GIVEN, True),
        (
            "class C:\n    kept = 0\n    @property\n    def every(self):\n        return self.kept or 5\nargs = C()",
            GIVEN,
            True,
        ),
    ],
)
def test_who_comes_to_an_evaluation(settings: str, body: str, worth: bool) -> None:
    text = PLAIN.format(settings=settings, body=body)
    found = apply("no-grad-eval", text, min_gain=0.001)
    assert bool(found.fixes) is worth, [f.gain for f in found.findings]
    whole = apply("no-grad-eval", text)
    assert whole.fixes
    ran, before = run(whole.text), run(text)
    assert (ran["shown"], ran["last"]) == (before["shown"], before["last"])
    assert bool(before["shown"]) is worth  # what a default run comes to


@pytest.mark.parametrize(
    ("end", "worth"),
    [
        ("    return total\n", True),
        ("        return total\n", False),
        ("        break\n    return total\n", False),
        ("        if total < 0:\n            continue\n        break\n    return total\n", True),
    ],
)
def test_a_loop_that_ends_in_its_first_turn(end: str, worth: bool) -> None:
    body = NOW
    text = PLAIN.format(settings="", body=body).replace("    return total\n", end)
    assert bool(apply("no-grad-eval", text, min_gain=0.01).fixes) is worth
    whole = apply("no-grad-eval", text)
    assert run(whole.text)["shown"] == run(text)["shown"]
