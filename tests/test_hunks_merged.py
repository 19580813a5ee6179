"""Lines that a reviewer merges: each kind that was rejected, as a pair of source and expected text,
in several styles.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from autofast.edit.aligned import hangs
from autofast.edit.edits import Import, Keyword, Remove
from autofast.edit.toplevel import additions
from autofast.facts.cost.step import Cost
from autofast.model.source import Source
from autofast.read import read_script
from autofast.rule import Effect
from tests.engine import call, edited
from tests.onerule import apply, run
from tests.test_worth import ROWS, rewritten

# ---------------------------------------------------------------------------------------- arguments
CALLS = {
    "one a line, two in the first": (
        "loader = make(data, sampler=s,\n    batch=8,\n    drop=True,\n)\n",
        "    drop=True,\n    pin=True,\n)",
    ),
    "bracket alone, no comma": (
        "loader = make(\n    data, s,\n    drop=True\n)\n",
        "    drop=True,\n    pin=True\n)",
    ),
    "most of them aligned": (
        "loader = make(data, shuffle=False,\n              sampler=s,\n              drop=True)\n",
        "              drop=True,\n              pin=True)",
    ),
    "all in one line": ("loader = make(data, drop=True)\n", "make(data, drop=True, pin=True)"),
    "two lines of several": (
        "loader = make(data, a=1, b=2,\n              c=3, d=4)\n",
        "              c=3, d=4, pin=True)",
    ),
}


@pytest.mark.parametrize(("text", "expected"), CALLS.values(), ids=CALLS)
def test_an_argument_stands_where_its_neighbours_stand(text: str, expected: str) -> None:
    def one(s: Source) -> list[Keyword]:
        return [Keyword(call(s, "make"), "pin", "True", rule="a")]

    assert expected in edited(text, one, 100)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f(\n    a,\n    b,\n)\n", True),
        ("f(\n    a, b\n)\n", True),
        ("f(\n    a, b)\n", False),
        ("f(a % (\n    b, c\n))\n", False),
        ("f(a,\n  b)\n", False),
    ],
)
def test_what_black_does(text: str, expected: bool) -> None:
    assert hangs(text) is expected


# ----------------------------------------------------------------------------------------- comments
@pytest.mark.parametrize(
    ("comment", "stays"),
    [
        ("#(b,h,n,n)", False),
        ("# [B, N, 2*C]", False),
        ("# (see the paper)", True),
        ("# scores", True),
    ],
)
def test_the_shape_of_what_goes_is_no_remark_on_what_stays(comment: str, stays: bool) -> None:
    text = f"x = 1\nscore = f(x)  {comment}\ny = 2\n"
    left = edited(text, lambda s: [Remove(s.tree.body[1], rule="a")], 100)
    assert left == (f"x = 1\n{comment}\ny = 2\n" if stays else "x = 1\ny = 2\n")


# ------------------------------------------------------------------------------------------ imports
IMPORTS = {
    "no import of the standard library": (
        "import numpy\n",
        "import os",
        "import os\nimport numpy\n",
    ),
    "below a comment that begins the file": (
        "# A licence.\n\nimport numpy\n",
        "import os",
        "# A licence.\n\nimport os\nimport numpy\n",
    ),
    "among those of the standard library": (
        "import json\nimport sys\nimport numpy\n",
        "import os",
        "import json\nimport os\nimport sys\nimport numpy\n",
    ),
    "beside the same package that begins the file": (
        "from torch.utils.data import DataLoader\nfrom .sets import A\nfrom .sets import B\n",
        "import torch",
        "from torch.utils.data import DataLoader\nimport torch\nfrom .sets import A\nfrom .sets import B\n",
    ),
    "a comment directly above": (
        "# for arrays\nimport numpy\n",
        "import os",
        "# for arrays\nimport numpy\nimport os\n",
    ),
}


@pytest.mark.parametrize(("text", "code", "expected"), IMPORTS.values(), ids=IMPORTS)
def test_an_import_goes_where_its_like_are(text: str, code: str, expected: str) -> None:
    assert edited(text, lambda s: [Import(s, code, rule="a")], 100) == expected


@pytest.mark.parametrize(
    ("own", "place"),
    [
        ("def load(): ...\n", 0),
        ("import torch\nimport os\nos.environ['A'] = '1'\n", 0),
        ("import os\nos.environ['OMP_NUM_THREADS'] = '1'\nimport torch\n", 1),
    ],
)
def test_a_package_is_imported_above_the_files_of_the_project(
    tmp_path: Path, own: str, place: int
) -> None:
    """Not where one of these may set what the package reads."""
    (tmp_path / "tools.py").write_text(own, "utf-8")
    text = "import argparse\nfrom tools import load\n"
    mine = Source(tmp_path / "train.py", "train.py", text.encode())
    assert [a.after for a in additions(mine, [Import(mine, "import torch", rule="a")], [])] == [
        place
    ]


# --------------------------------------------------------------------------------------------- sums
SUM = """
import torch
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("mps" if torch.backends.mps.is_available() else "cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
model = torch.nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(12, 4), torch.randint(0, 2, (12,))), batch_size=4)
totals = []
for epoch in range(2):
    total = 0.0
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    totals.append(total / len(loader))
"""


def test_a_sum_on_a_device_without_float64_is_one_line() -> None:
    done = apply("loss-item-sync", SUM)
    assert "total = sum(torch.stack(losses).tolist())" in done.lines  # in place of the 0
    assert "total = 0.0" not in done.text and "for value" not in done.text
    assert {f.effect for f in done.fixes} == {Effect.ROUNDING}
    assert run(done.text)["totals"] == pytest.approx(run(SUM)["totals"], rel=1e-12)


@pytest.mark.parametrize(
    ("begin", "behind"),
    [
        ("total = 0.0\n    print(total)", ""),
        ("total = 1.0", ""),
        ("if not epoch:\n        total = 0.0", ""),
        ("total = 0.0\n    if epoch:\n        total = 2.0", ""),
        ("total = 0.0", "\n        total += 1.0"),
    ],
)
def test_what_a_sum_begins_as_may_be_asked_for(begin: str, behind: str) -> None:
    text = SUM.replace("total = 0.0", begin).replace("loss.item()", f"loss.item(){behind}")
    done = apply("loss-item-sync", text)
    assert "losses = []" not in done.text or "total += sum(torch.stack" in done.text
    assert run(done.text)["totals"] == pytest.approx(run(text)["totals"], rel=1e-12)


def test_the_same_tensor_in_two_sums_is_not_kept_twice() -> None:
    text = SUM.replace(
        "total += loss.item()", "total += loss.item() / 3\n        more.append(loss.item())"
    )
    text = text.replace("total = 0.0\n", "total = 0.0\n    more = []\n")
    assert apply("loss-item-sync", text).fixes
    assert not apply("loss-item-sync", text, min_gain=0.01).fixes


# --------------------------------------------------------------------------- what stays in the step
def test_a_read_beside_one_that_stays_gains_nothing() -> None:
    other = "total += loss.item()\n        print(unknown(x).item())"
    text = SUM.replace('"mps" if torch.backends.mps.is_available() else ', "")
    text = text.replace("import torch\n", "import torch\nfrom elsewhere import unknown\n", 1)
    assert apply("loss-item-sync", text, min_gain=0.01).fixes
    assert not apply(
        "loss-item-sync", text.replace("total += loss.item()", other), min_gain=0.01
    ).fixes


# ------------------------------------------------------------------------- other names for the same
LATER = """

def kept(batch):
    return Variable(batch * 2)


print(kept(next(iter(loader))[0]).sum())
"""
SHOWN = "        shown = Variable(torch.ones(2))\n"
EVALUATED = """
    for x, y in loader:
        x = Variable(x, volatile=True).to(device)
        {then}
"""


def without_variables(folder: Path, inside: str, below: str = "") -> str:
    """What becomes of a script with Variables in its training loop, and of those below it."""
    text = ROWS.replace("import torch\n", "import torch\nfrom torch.autograd import Variable\n", 1)
    last = "        total += loss.item()\n"
    return "".join(rewritten(folder, text.replace(last, last + inside) + below).texts.values())


def test_a_detach_for_a_variable_is_not_worth_its_lines() -> None:
    text = SUM.replace("import torch\n", "import torch\nfrom torch.autograd import Variable\n", 1)
    text = text.replace(
        "    total = 0.0\n",
        "    total = 0.0\n    mask = torch.ones(2)\n    kept = Variable(mask)\n    mask.resize_(1)\n",
    )
    assert "kept = mask.detach()" in apply("variable-api", text).text
    assert not apply("variable-api", text, min_gain=0.01).fixes


@pytest.mark.parametrize(
    ("inside", "below", "gone", "stays"),
    [
        (SHOWN, "", "shown = torch.ones(2)", ""),
        ("", LATER, "", "return Variable(batch * 2)"),  # a function that nothing else changes
        (SHOWN, LATER, "return batch * 2", ""),  # whoever reads it asks why one stays
        (SHOWN + "        more = list(map(Variable, [loss]))\n", "", "", SHOWN),  # others stay
        ("", EVALUATED.format(then="print(model(x).mean().item())"), "x = x.to(device", ""),
        ("", EVALUATED.format(then="model(x).mean().backward()"), "", "Variable(x, volatile=True)"),
    ],
)
def test_variables_go_with_what_changes_around_them(
    tmp_path: Path, inside: str, below: str, gone: str, stays: str
) -> None:
    text = without_variables(tmp_path, inside, below)
    assert gone in text and stays in text
    assert ("import Variable" in text) is bool(stays)


@pytest.mark.parametrize(
    ("rule", "old", "new"),
    [
        ("variable-api", "mse_loss(model(x), y)", "mse_loss(model(x), y, size_average=False)"),
        ("legacy-amp-api", "for epoch", "scaler = torch.cuda.amp.GradScaler()\nfor epoch"),
    ],
)
def test_names_alone_gain_nothing(rule: str, old: str, new: str) -> None:
    assert apply(rule, ROWS.replace(old, new)).fixes
    assert not apply(rule, ROWS.replace(old, new), min_gain=0.01).fixes


# ------------------------------------------------------------------------------------------- layout
def test_what_only_attacks_does_not_train(tmp_path: Path) -> None:
    """A step without an update, of an evaluation, is none of the training."""
    attack = """
for x, y in loader:
    x = x.to(device).requires_grad_()
    torch.nn.functional.cross_entropy(model(x), y.to(device)).backward()
"""
    path = tmp_path / "train.py"
    path.write_text(SUM + attack, "utf-8")
    script = read_script(path, tmp_path)
    assert len(script.steps) == 2 and len(script.analysis(Cost).training) == 1


EXPLODED = "test = make(\n    data,\n    size=val_size,\n)\n"


def test_all_arguments_of_one_line_that_becomes_too_long() -> None:
    """One a line, where the file is black's."""

    def one(s: Source) -> list[Keyword]:
        return [Keyword(call(s, "make"), "pin", "torch.cuda.is_available()", rule="a")]

    line = "train = make(\n    data, size=train_size, shuffle=True, workers=workers\n)\n"
    expected = "    shuffle=True,\n    workers=workers,\n    pin=torch.cuda.is_available(),\n)"
    assert expected in edited(line + EXPLODED, one, 60)
