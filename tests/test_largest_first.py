"""loss-item-sync: scores whose largest is looked for on the host."""

from __future__ import annotations

import pytest

from tests.onerule import Applied, apply, run

SCRIPT = """
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = TensorDataset(torch.randn(8, 3, 6, 6), torch.randint(0, 5, (8, 6, 6)))
loader = DataLoader(data, batch_size=4)
model = nn.Conv2d(3, 5, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
seen = []
with torch.no_grad():
    for x, y in loader:
        output = model(x.to(device)).round()  # many are equal
        BODY
        seen.append((pred == y.numpy()).mean())
        kinds = pred.dtype, pred.shape
"""


def made(body: str) -> Applied:
    return apply("loss-item-sync", SCRIPT.replace("BODY", body.replace("\n", "\n        ")))


@pytest.mark.parametrize(
    ("body", "written"),
    [
        ("pred = output.data.cpu().numpy()\npred = np.argmax(pred, axis=1)", "pred = output.data.argmax(1).cpu().numpy()"),
        ("scores = output.cpu().numpy()\npred = np.argmax(scores, 1)", "scores = output.argmax(1).cpu().numpy()\n        pred = scores"),
        ("pred = np.argmax(output.detach().cpu().numpy(), axis=1)", "pred = output.detach().argmax(1).cpu().numpy()"),
        ("pred = np.argmax(output.permute(0, 2, 3, 1).cpu().detach().numpy(), axis=-1)", "pred = output.permute(0, 2, 3, 1).argmax(-1).cpu().detach().numpy()"),
    ],
)  # fmt: skip
def test_the_largest_is_looked_for_on_the_device(body: str, written: str) -> None:
    """Of several that are largest it is the first, as in NumPy."""
    done = made(body)
    assert written in done.text and "np.argmax" not in done.text, done.refusals
    before, after = run(done.before), run(done.text)
    assert before["seen"] == after["seen"] and before["kinds"] == after["kinds"]


@pytest.mark.parametrize(
    "body",
    [
        "pred = output.cpu().numpy()\nbest = pred.max(1)\npred = np.argmax(pred, axis=1)",
        "pred = output.cpu().numpy()\npred = np.argmax(pred, axis=1, keepdims=True)[:, 0]",
        "pred = np.unravel_index(np.argmax(output.cpu().numpy()), output.shape)[2] * np.ones((4, 6, 6))",
        "pred = output.cpu().numpy()\nif len(seen):\n    pred = pred + 1\npred = np.argmax(pred, axis=1)",
        "pred = output.cpu().mul(2).numpy()\npred = np.argmax(pred, axis=1)",
        "output = output > 0\npred = np.argmax(output.cpu().numpy(), axis=1)",
        "pred = np.argmax(torch.fft.fft2(output).cpu().numpy(), axis=1)",
        "pred = x[:, 0].numpy()[:, None]\npred = np.argmax(pred, axis=1)",
    ],
)
def test_what_needs_the_scores_or_has_them_on_the_host(body: str) -> None:
    assert ".argmax(" not in made(body).text.replace("np.argmax(", "")
