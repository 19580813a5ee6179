"""device-creation: tensors that the host makes in every step, where no fix is certain, get advice;
data do not.
"""

from __future__ import annotations

import pytest

from tests.onerule import apply, run

SCRIPT = """
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))
loader = DataLoader(data, batch_size=8)
beta = torch.distributions.beta.Beta(torch.tensor([0.6]), torch.tensor([0.6]))
rows = [torch.randn(4) for _ in range(8)]
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)
        self.table = torch.linspace(0, 1, 4)
    def forward(self, x):
        return self.fc(x{inside})
def matrix(n):
    made = torch.Tensor(n, n).fill_(1 / n)
    made.view(-1)[::n + 1] = 2 / n
    return made.log()
def filled(rows):
    made = torch.zeros(len(rows), 4)
    for n, row in enumerate(rows):
        made[n] = row
    return made
def mover(parts):
    return {{name: part.to(device) for name, part in parts.items()}}
model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for epoch in range(2):
    for i, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        {body}
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
"""
RULE = "device-creation"


@pytest.mark.parametrize(
    ("body", "inside", "advice"),
    [
        ("x = x * beta.rsample((8,)).to(device)", "", "make it on the device"),
        ("x = matrix(8).to(device) @ x", "", "make it on the device"),
        ("x = x + torch.FloatTensor(np.random.uniform(0, 1, size=4)).sort()[0].to(device)", "", ""),
        ("a = {'x': x, 'noise': torch.randn(8, 4)}\n        x = sum(mover(a).values())", "", "make it on the device"),
        ("n = torch.FloatTensor(8, 4).normal_(std=0.1)\n        x = x + n.exp().to(device) * n.to(device)", "", "make it on the device"),
        ("n = torch.FloatTensor(8, 4).normal_(std=0.1)\n        n[0] = 1\n        x = x + n.exp().to(device) * n.to(device)", "", ""),
        ("pass", " + self.table.to(x.device) * float(self.table.sum() > -9)", ""),
        ("x = x + filled(rows).to(device)", "", ""),
        ("if i % 100 == 99:\n            x = matrix(8).to(device) @ x", "", ""),
    ],
)  # fmt: skip
def test_what_the_host_makes_in_each_step(body: str, inside: str, advice: str) -> None:
    text = SCRIPT.format(body=body, inside=inside)
    run(text)
    found = apply(RULE, text)
    assert [f.status for f in found.findings] == (["advice"] if advice else [])
    assert advice in found.advice
