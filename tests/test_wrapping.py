"""New lines as the file has them: broken where it breaks its own, imports in its order, remarks where they were."""

from __future__ import annotations

import pytest

from autofast.edit.aligned import broken, is_habit
from autofast.edit.edits import Import, Keyword, Parameter, Rewrite
from autofast.model.source import Source
from tests.engine import call, edited, source

ALIGNED = """
loss = cross_entropy(outputs, labels,
                     reduction="mean")
"""
HANGING = """
loss = cross_entropy(
    outputs, labels, reduction="mean"
)
"""
SIGNATURE = """
def train(args, model, device, train_loader, optimizer, epoch):
    f(args)
"""


def test_what_a_file_does_with_long_lines() -> None:
    assert is_habit(ALIGNED) and not is_habit(HANGING) and not is_habit(SIGNATURE)
    assert not is_habit(ALIGNED + HANGING.replace("loss", "other"))


def parameter(s: Source) -> list[Parameter]:
    function = next(n for n in s.nodes if getattr(n, "name", "") == "train")
    return [Parameter(function, "scaler", "GradScaler(enabled=False)", rule="a")]  # type: ignore[arg-type]


def test_a_signature_is_broken_as_the_file_breaks_its_lines() -> None:
    text = edited(SIGNATURE + ALIGNED, parameter, 70)
    assert text.startswith(
        """
def train(args, model, device, train_loader, optimizer, epoch,
          scaler=GradScaler(enabled=False)):
    f(args)
"""
    )
    text = edited(SIGNATURE + HANGING, parameter, 70)
    assert "def train(\n    args," in text


@pytest.mark.parametrize(
    ("line", "limit", "lines"),
    [
        ("f(aaaa, bbbb, cccc)", 15, ["f(aaaa, bbbb,", "  cccc)"]),
        ("f(aaaa, [bbbb, cccc])", 20, ["f(aaaa,", "  [bbbb, cccc])"]),
        ("x = g(1)(aaaa, bbbb)  # why", 22, ["x = g(1)(aaaa,", "         bbbb)  # why"]),
        ("f(aaaa_bbbb_cccc)", 10, None),
        ("x, y = f(aaaa), f(bbbb)", 12, None),
        ("\tf(aaaa, bbbb)", 10, None),
        ("a_name_that_is_long(a, b)", 22, None),
    ],
)
def test_a_line_is_broken_after_commas(line: str, limit: int, lines: list[str] | None) -> None:
    assert broken(line, limit) == lines


def test_a_remark_that_made_a_line_too_long_stays_at_its_end() -> None:
    remark = "  # what the loss of the batch comes to, summed up over all the samples in it"
    before = f"total += f(loss){remark}\n"
    after = edited(before, lambda s: [Keyword(call(s, "f"), "n", "4", rule="a")], 60)
    assert after == f"total += f(loss, n=4){remark}\n"
    longer = edited(
        before,
        lambda s: [Rewrite(call(s, "f"), "f(loss, " + "reduction, " * 6 + "n)", rule="a")],
        60,
    )
    assert len(longer.splitlines()) > 1  # too long without it, too


@pytest.mark.parametrize(
    ("before", "code", "after"),
    [
        ("import argparse\nimport sys\n", "import os", "import argparse\nimport os\nimport sys\n"),
        ("import sys\nimport argparse\n", "import os", "import sys\nimport argparse\nimport os\n"),
        (
            "import sys\nfrom torch import nn\nimport numpy\n",
            "import torch",
            "import sys\nimport torch\nfrom torch import nn\nimport numpy\n",
        ),
        (
            "import sys\n# the library\nfrom torch import nn\nimport numpy\n",
            "import torch",
            "import sys\n# the library\nfrom torch import nn\nimport numpy\nimport torch\n",
        ),
        (
            '"""What it is."""\nimport sys\nimport time\n',
            "import os",
            '"""What it is."""\n\nimport os\nimport sys\nimport time\n',
        ),
    ],
)
def test_an_import_goes_where_the_file_would_have_it(before: str, code: str, after: str) -> None:
    text = source(before + "\n\nf()\n")
    assert edited(text.text, lambda s: [Import(s, code, rule="a")], None) == after + "\n\nf()\n"
