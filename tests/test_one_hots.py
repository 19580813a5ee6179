"""device-creation: rows of zeros and ones by labels that come to the host for that are made where
the labels are.
"""

from __future__ import annotations

import textwrap

import pytest

from autofast.rule import Effect
from tests.onerule import apply
from tests.two_devices import run_on_both

SCRIPT = """
import torch
from torch import nn

torch.manual_seed(0)
device = torch.device("cuda")
model = nn.Linear(4, 4).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses, seen, use_cuda = [], [], True


def loss_of(out, y):
{body}
    return -(rows * out.log_softmax(1)).sum(1).mean()


for step in range(6):
    x = torch.full((3, 4), 0.5, device=device)
    y = torch.randint(0, 4, (3,), device=device)
    optimizer.zero_grad()
    loss = loss_of(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(float(loss))
"""
# The copy of PointNet's train_partseg.py.
CATEGORICAL = """\
def categorical(y, n):
    rows = torch.eye(n)[y.cpu().data.numpy(),]
    if y.is_cuda:
        return rows.cuda()
    return rows
rows = categorical(y, 4)"""


def script(body: str) -> str:
    return SCRIPT.replace("{body}", textwrap.indent(body, " " * 4))


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("rows = torch.eye(4)[y.cpu()].to(out.device)", ["rows = torch.eye(4, device=y.device)[y].to(out.device)"]),
        ("rows = torch.eye(out.size(1))[y.detach().cpu()].view(3, 4).to(y.device)", ["rows = torch.eye(out.size(1), device=y.device)[y.detach()].view(3, 4)"]),
        ("rows = torch.eye(4)[y.data.cpu().numpy()].cuda()", ["rows = torch.eye(4, device=y.device)[y.data.long()].cuda()"]),
        ("rows = torch.eye(4)[y.unsqueeze(1).cpu().view(-1).numpy()].cuda()", ["rows = torch.eye(4, device=y.device)[y.unsqueeze(1).view(-1).long()].cuda()"]),
        ("k = y.cpu()\nrows = torch.eye(4)[k.numpy()].cuda()", ["k = y", "rows = torch.eye(4, device=y.device)[k.long()].cuda()"]),
        (CATEGORICAL, ["rows = torch.eye(n, device=y.device)[y.long(),]"]),
        (
            "y = y.contiguous().view(-1)\nr = torch.zeros(3, 4).scatter(1, y.cpu().view(-1, 1), 1).to(out.device)\nrows = r * 0.8 + (1 - r) * 0.2",
            ["r = torch.zeros(3, 4, device=y.device).scatter(1, y.view(-1, 1), 1).to(out.device)"],
        ),
        (
            "rows = torch.zeros(out.size()).scatter_(1, y.unsqueeze(1).data.cpu(), 1)\nif use_cuda:\n    rows = rows.cuda()\nrows = 0.9 * rows + 0.1",
            ["rows = torch.zeros(out.size(), device=y.device).scatter_(1, y.unsqueeze(1).data, 1)"],
        ),
    ],
)  # fmt: skip
def test_rows_are_made_where_the_labels_are(body: str, lines: list[str]) -> None:
    text = script(body)
    done = apply("device-creation", text)
    assert done.lines == lines, done.refusals
    assert {f.effect for f in done.fixes} <= {None, Effect.EXACT}
    (one, before), (other, after) = run_on_both(text), run_on_both(done.text)
    assert one["losses"] == other["losses"] and after < before


@pytest.mark.parametrize(
    "body",
    [
        # what comes out is looked at on the host
        "rows = torch.eye(4)[y.cpu()]\nseen.append(rows.numpy())\nrows = rows.to(device)",
        "rows = torch.eye(4)[y.cpu()]\nseen.append(rows)\nrows = rows.to(device)",
        # a mask, or not known to hold integers
        "rows = torch.eye(4)[:3][(y < 9).float().cpu().numpy() > 0].to(device)",
        "y = y > 0\nrows = torch.eye(4)[:3][y.cpu().numpy()].to(device)",
        "rows = torch.eye(4)[:3][(y > 0).cpu().numpy()].to(device)",
        "rows = torch.eye(4)[:3][y.cpu().bool().numpy()].to(device)",
        "k = y.byte()\nrows = torch.eye(4)[:3][k.cpu().numpy()].to(device)",
        # another label by then
        "rows = torch.zeros(3, 4)\nk = y.cpu()\ny = y * 0\nrows = rows.scatter_(1, k[:, None], 1).to(device)",
        # numbers that are no constant, another table, another device asked for
        "rows = torch.zeros(3, 4).scatter_(1, y.cpu()[:, None], out.detach().cpu()).to(device)",
        "rows = torch.rand(4, 4)[y.cpu()].to(device)",
        "rows = torch.eye(4, device='cpu')[y.cpu()].to(device)",
    ],
)
def test_rows_that_the_host_needs(body: str) -> None:
    assert "cpu()" in apply("device-creation", script(body)).text


@pytest.mark.parametrize(
    ("labels", "goes"),
    [
        ("torch.randint(0, 4, (3,), device=device)", True),
        ("torch.ones(3, device=device).long()", True),
        ("torch.LongTensor([0, 1, 2]).to(device)", True),
        ("x.argmax(1)", True),
        ("torch.tensor([True, False, True, True], device=device)", False),
        ("torch.tensor([1, 0, 1, 1], dtype=torch.uint8, device=device)", False),
        ("torch.randint(0, 2, (4,), dtype=torch.uint8, device=device)", False),
        ("LABELS[step].to(device)", False),
    ],
)
def test_arrays_of_places_and_masks(labels: str, goes: bool) -> None:
    """An array of truths, or of bytes, is a mask; ``long()`` of it would be places."""
    text = script("rows = torch.eye(4)[y.cpu().numpy()].to(out.device)")
    text = text.replace("torch.randint(0, 4, (3,), device=device)", labels)
    text = text.replace("losses, seen", "LABELS = torch.load('labels.pt')\nlosses, seen")
    assert ("y.long()" in apply("device-creation", text).text) is goes


@pytest.mark.parametrize("more", ["", "x.byte()", "torch.uint8", "x.cpu().numpy().astype('uint8')"])
def test_labels_of_a_loss(more: str) -> None:
    """It takes bytes, too, where the script has any."""
    rows = "rows = torch.eye(4)[y.cpu().numpy()].to(out.device)  # no byte()"
    text = script(f"{rows}\nreturn nn.functional.cross_entropy(out, y) + rows.mean()")
    text = text.replace("device=device)\n    opt", f"device=device) % 4\n    {more}\n    opt")
    assert ("y.long()" in apply("device-creation", text).text) is (not more)


def test_rows_that_are_handed_back_on_the_host() -> None:
    for other in ("if use_cuda:", "if x.is_cuda:"):
        text = script(CATEGORICAL.replace("if y.is_cuda:", other))
        assert "y.cpu()" in apply("device-creation", text).text
