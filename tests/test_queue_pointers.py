"""loss-item-sync: where a queue is written next stays on the device; checkpoints are the same."""

from __future__ import annotations

import pytest

from tests.onerule import apply
from tests.two_devices import run_on_both

SCRIPT = """
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
device = torch.device("cuda")


class MoCo(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size, self.encoder = size, nn.Linear(4, 3)
        self.names, self.kept = [""] * size, torch.zeros(3, size)
        self.register_buffer("queue", F.normalize(torch.randn(3, size), dim=0))
        self.register_buffer("labels", torch.zeros(size, dtype=torch.long))
        self.register_buffer("queue_ptr", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def enqueue(self, keys):
        {body}

    def forward(self, x):
        q = F.normalize(self.encoder(x), dim=1)
        loss = F.cross_entropy(q @ self.queue.clone(), torch.arange(len(x), device=x.device))
        self.enqueue(q.detach(){cast})
        return loss


model = MoCo(16).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for epoch in range(2):
    for step in range(3):
        loss = model(torch.randn(4, 4, device=device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
state = {k: v.clone() for k, v in model.state_dict().items()}
"""
OWN = """ptr = int(self.queue_ptr)
        n = keys.shape[0]
        assert self.size % n == 0
        self.queue[:, ptr:ptr + n] = keys.T
        self.queue_ptr[0] = (ptr + n) % self.size"""
FIRST = """ptr = int(self.queue_ptr)
        assert self.size % keys.shape[0] == 0
        self.queue[:, ptr:ptr + keys.shape[0]] = keys.T
        self.labels[ptr:ptr + keys.shape[0]] = 1 + torch.arange(4, device=keys.device)
        ptr = (ptr + keys.shape[0]) % self.size
        self.queue_ptr[0] = ptr"""


@pytest.mark.parametrize("cast", ["", ".to(torch.bfloat16)"])
@pytest.mark.parametrize("body", [OWN, FIRST])
def test_the_pointer_stays_a_tensor(body: str, cast: str) -> None:
    text = SCRIPT.replace("{body}", body).replace("{cast}", cast)
    done = apply("loss-item-sync", text)
    assert "ptr = self.queue_ptr.clone()" in done.lines, done.refusals
    (one, before), (other, after) = run_on_both(text), run_on_both(done.text)
    assert (before, after) == (6, 0)
    for name in ("queue", "labels", "queue_ptr", "encoder.weight"):
        a, b = one["state"][name], other["state"][name]
        assert a.shape == b.shape and a.dtype == b.dtype and bool((a == b).all())
    assert all(bool(a == b) for a, b in zip(one["losses"], other["losses"], strict=True))


@pytest.mark.parametrize(
    "body",
    [
        OWN + "\n        print(ptr)",
        OWN.replace("assert self.size % n == 0", "if ptr + n > self.size:\n            return"),
        OWN.replace("(ptr + n) % self.size", "min(ptr + n, self.size)"),
        OWN.replace("self.queue[:, ptr:ptr + n] = keys.T", "self.queue[:, ptr:ptr + n] = keys.T * ptr"),
        OWN.replace("self.queue[:, ptr:ptr + n] = keys.T", "self.queue[:, ptr:ptr + n].copy_(keys.T)"),
        OWN.replace("self.queue[:, ptr:ptr + n] = keys.T", "self.queue[:, ptr:ptr + n] += keys.T"),
        OWN.replace("ptr:ptr + n", "ptr:ptr + n:1"),
        OWN + "\n        self.last = ptr",
        # numbers, which fill what is left of a queue; what is no tensor, or not on the device
        OWN.replace("self.queue[:, ptr:ptr + n] = keys.T", "self.labels[ptr:ptr + n] = 1"),
        OWN.replace("self.queue[:, ptr:ptr + n] = keys.T", "self.queue[:, ptr:ptr + n] = keys.mean()"),
        OWN.replace("self.queue[:, ptr:ptr + n] = keys.T", "self.names[ptr:ptr + n] = keys.T"),
        OWN.replace("self.queue[:, ptr:ptr + n] = keys.T", "self.kept[:, ptr:ptr + n] = keys.T"),
        "global ptr\n        " + OWN,
    ],
)  # fmt: skip
def test_a_pointer_that_the_host_needs(body: str) -> None:
    text = SCRIPT.replace("{body}", body).replace("{cast}", "")
    assert apply("loss-item-sync", text.replace(body, OWN)).fixes
    assert "ptr = int(self.queue_ptr)" in apply("loss-item-sync", text).text


@pytest.mark.parametrize(
    ("shape", "stays"), [("(1, 1)", False), ("1, 1", False), ("(1,)", True), ("[1]", True)]
)
def test_the_dimensions_of_a_pointer(shape: str, stays: bool) -> None:
    text = SCRIPT.replace("{body}", OWN).replace("{cast}", "")
    text = text.replace("zeros(1, dtype=torch.long)", f"zeros({shape}, dtype=torch.long)")
    found = apply("loss-item-sync", text)
    assert bool(found.fixes) is stays
    one, other = (run_on_both(t)[0]["losses"] for t in (text, found.text))
    assert all(bool(a == b) for a, b in zip(one, other, strict=True))
