"""New code does not use functions of Python where the script has made something else of their
names.
"""

from __future__ import annotations

import pytest

from tests.onerule import apply, run

SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
{before}

loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def train():
    {inside}
    for x, y in loader:
        loss = ((model(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


train()
"""


def refusals(before: str = "", inside: str = "pass") -> str:
    result = apply(
        "accumulation",
        SCRIPT.format(before=before, inside=inside),
        asked=True,
        accumulate=2,
        files={"own.py": "def len(x):\n    return 3\n"},
    )
    return "" if result.fixes else result.refusals


@pytest.mark.parametrize(
    ("before", "inside"),
    [
        ("len = lambda x: 3", "pass"),
        ("def len(x):\n    return 3", "pass"),
        ("from own import *", "pass"),
        ("from own import len", "pass"),
        ("import own as len", "pass"),
        ("", "len = 3"),
        ("", "for len in range(2):\n        pass"),
        ("", "global len\n    len = 3"),
        ("def elsewhere():\n    global len\n    len = 3", "pass"),
    ],
)
def test_what_is_taken_is_not_used(before: str, inside: str) -> None:
    assert "`len` is not Python's own in train.py" in refusals(before, inside)


@pytest.mark.parametrize(
    ("before", "inside"),
    [
        ("", "pass"),
        ("def elsewhere(len):\n    return len", "pass"),
        ("class Sized:\n    def len(self):\n        return 3", "pass"),
        ("sizes = [len for len in (1, 2)]", "pass"),
        ("", "size = dict(len=3)"),
        ("", "model.len = 3"),
    ],
)
def test_other_places_are_no_matter(before: str, inside: str) -> None:
    assert refusals(before, inside) == ""


LOSS = """
import torch

def one_hot(input, size):
    return torch.zeros(len(input), size).to(input.device).scatter_(1, input, 1.0)

model = torch.nn.Linear(4, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in torch.utils.data.DataLoader([(torch.ones(4), torch.ones(1).long())] * 8):
    loss = (model(x.cuda()) - one_hot(y.cuda(), 4)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_variable_that_has_a_name_of_python_is_meant() -> None:
    assert apply("device-creation", LOSS).lines == [
        "return torch.zeros(len(input), size, device=input.device).scatter_(1, input, 1.0)"
    ]


LATE = """
import os
os.environ["OMP_NUM_THREADS"] = "1"
{above}

def main():
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(TensorDataset(torch.randn(320, 64), torch.randn(320, 1)), batch_size=8)
    model = nn.Linear(64, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        for x, y in loader:
            loss = ((model(x.to(device)) - y.to(device)) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


main()
"""


@pytest.mark.parametrize(("above", "written"), [("", False), ("import torch", True)])
def test_torch_is_not_imported_before_what_it_reads_is_set(above: str, written: bool) -> None:
    found = apply("gpu-data", LATE.format(above=above))
    assert bool(found.fixes) is written and "torch_2" not in found.text
    assert (
        "torch is imported in functions alone (line 6 of train.py)" in found.refusals
    ) is not written


LISTED = """
import inspect
import torch
from torch import nn

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(4, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def saved(frame):
    return {{k: v for k, v in frame.f_locals.items() if isinstance(v, float)}}


def train():
    total, worst = 0.0, 0.0
    early = {early}
    for step in range(5):
        loss = (model(torch.randn(8, 4).to(device)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        worst = max(worst, loss.item())
    return {late}, total, worst


shown = train()
"""


@pytest.mark.parametrize(
    ("early", "late", "fine"),
    [
        ("1", "{k: v for k, v in locals().items() if isinstance(v, float)}", False),
        ("1", "sorted(vars())", False),
        ("1", "saved(inspect.currentframe())", False),
        ("1", "dict(**locals())['total']", False),
        ("{k: v for k, v in locals().items() if isinstance(v, float)}", "early", True),
        ("1", "'{step}'.format(**locals())", True),
        ("1", "locals()['step']", True),
        ("1", "'worst' in locals()", True),
    ],
)
def test_who_asks_for_all_variables_sees_no_new_one(early: str, late: str, fine: bool) -> None:
    text = LISTED.format(early=early, late=late)
    made = apply("loss-item-sync autocast", text)
    assert ("loss_value = loss.item()" in made.text) == fine
    assert fine or "would show a new variable" in made.refusals
    assert run(made.text)["shown"] == run(text)["shown"]
