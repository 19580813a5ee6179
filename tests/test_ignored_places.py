"""loss-item-sync: what a mask picks for a cross-entropy is left out by the loss itself."""

from __future__ import annotations

import math

import pytest

from tests.onerule import apply
from tests.two_devices import run_on_both

SCRIPT = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = torch.device("cuda")
inside = (torch.arange(5) < torch.randint(1, 6, (24, 1))).long()
data = TensorDataset(torch.randn(24, 5, 6), torch.randint(0, 3, (24, 5)), inside)
loader = DataLoader(data, batch_size=4)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x, mask):
        return torch.tanh(self.layer(x)) * mask[:, :, None]


class Tagger(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.encoder, self.head, self.classes = Encoder(), nn.Linear(6, classes), classes

    def forward(self, x, labels, mask):
        scores = self.head(self.encoder(x, mask))
        loss_fct = nn.CrossEntropyLoss()
        active = mask.view(-1) == 1
        active_scores = scores.view(-1, self.classes)[active]
        active_labels = labels.view(-1)[active]
        return loss_fct(active_scores, active_labels)


model = Tagger(int("3")).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for epoch in range(2):
    for x, y, mask in loader:
        x, y, mask = x.to(device), y.to(device), mask.to(device)
        optimizer.zero_grad()
        loss = model(x, y, mask)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
weights = [p.detach().sum() for p in model.parameters()]
"""
MADE, CALL = "nn.CrossEntropyLoss()", "loss_fct(active_scores, active_labels)"
SCORES = "active_scores = scores.view(-1, self.classes)"


@pytest.mark.parametrize(
    ("old", "new", "ignored"),
    [
        ("", "", "-100"),
        (MADE, "nn.CrossEntropyLoss(ignore_index=2)", "2"),
        (MADE, "nn.CrossEntropyLoss(torch.ones(3, device=x.device))", "-100"),
        (MADE, "nn.CrossEntropyLoss(reduction='sum')", "-100"),
        (MADE, "nn.CrossEntropyLoss(ignore_index=int('1'))", "loss_fct.ignore_index"),
        (CALL, "F.cross_entropy(active_scores, active_labels, ignore_index=-1)", "-1"),
        ("self.encoder(x, mask)", "self.encoder(x, 1 * mask)", ""),
        (MADE, "nn.CrossEntropyLoss(label_smoothing=0.1)", ""),
        (CALL, "F.cross_entropy(active_scores, active_labels, reduction='none').mean()", ""),
        (CALL, f"{CALL} + active_scores.mean()", ""),
        (CALL, "F.nll_loss(active_scores.log_softmax(1), active_labels)", ""),
        (SCORES, f"scores = scores.log().neg()\n        {SCORES}", ""),
        ("active = mask.view(-1) == 1", "active = mask.view(-1).nonzero()[:, 0]", ""),
        ("labels.view(-1)[active]", "labels.view(-1)[active.roll(1)]", ""),
        ("active_labels = ", "active = active.roll(1)\n        active_labels = ", ""),
    ],
)
def test_what_a_mask_picks_for_a_loss(old: str, new: str, ignored: str) -> None:
    text = SCRIPT.replace(old, new) if old else SCRIPT
    done = apply("loss-item-sync", text)
    left_out = f"active_labels = labels.view(-1).masked_fill(~active, {ignored})"
    assert done.lines == ([SCORES, left_out] if ignored else []), (done.lines, done.refusals)
    if not ignored:
        return
    (one, _), (other, waits) = run_on_both(text), run_on_both(done.text)
    assert waits == 0
    for name in ("losses", "weights"):
        for a, b in zip(map(float, one[name]), map(float, other[name]), strict=True):
            assert math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-6)


def test_a_loss_of_few_classes_costs_hardly_more() -> None:
    text = SCRIPT.replace("self.encoder(x, mask)", "self.encoder(x, 1 * mask)")
    assert apply("loss-item-sync", text.replace('int("3")', "3")).fixes
