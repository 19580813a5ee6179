"""bce-with-logits: the same loss of what goes into the sigmoid, and the probability where it is
read.
"""

from __future__ import annotations

import math
import textwrap

import pytest

from tests.onerule import Applied, apply, run

RULE = "bce-with-logits"
SCRIPT = """
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(48, 6)
y = (x.sum(1, keepdim=True) > 0).float()
loader = DataLoader(TensorDataset(x, y), batch_size=16)
losses, seen = [], []


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        {layers}

    def forward(self, x):
        {forward}

{more}

model = Net()
criterion = {criterion}
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for epoch in range(3):
    for xb, yb in loader:
        {step}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        {measure}
"""
LAYERS = "self.main = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1), nn.Sigmoid())"
CALLED = """
self.fc = nn.Linear(6, 1)
self.sigmoid = nn.Sigmoid()
"""


def text(
    layers: str = LAYERS,
    forward: str = "return self.main(x)",
    step: str = "loss = criterion(model(xb), yb)",
    measure: str = "seen.append(((model(x) > 0.5) == y).sum().item())",
    criterion: str = "nn.BCELoss()",
    more: str = "",
) -> str:
    def deep(code: str, columns: int) -> str:
        return textwrap.indent(textwrap.dedent(code).strip(), " " * columns).strip()

    return SCRIPT.format(
        layers=deep(layers, 8),
        forward=deep(forward, 8),
        step=deep(step, 8),
        measure=deep(measure, 8),
        criterion=criterion,
        more=textwrap.dedent(more),
    )


def close(before: str, found: Applied) -> None:
    """Both scripts train alike, as far as rounding carries, and see the same probabilities."""
    one, other = run(before), run(found.text)
    assert len(one["losses"]) == 9 and one["losses"][0] > one["losses"][-1]
    for a, b in zip(one["losses"], other["losses"], strict=True):
        assert math.isclose(a, b, rel_tol=1e-4)
    assert len(one["seen"]) == len(other["seen"]) > 0
    for a, b in zip(one["seen"], other["seen"], strict=True):
        assert math.isclose(a, b, rel_tol=1e-4)
    assert one["model"].state_dict().keys() == other["model"].state_dict().keys()


WRITTEN = {
    "a last layer": (
        text(),
        [
            "self.main = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))",
            "criterion = nn.BCEWithLogitsLoss()",
            "seen.append(((torch.sigmoid(model(x)) > 0.5) == y).sum().item())",
        ],
    ),
    "a layer that is called": (
        text(CALLED, "return self.sigmoid(self.fc(x))"),
        [
            "return self.fc(x)",
            "criterion = nn.BCEWithLogitsLoss()",
            "seen.append(((torch.sigmoid(model(x)) > 0.5) == y).sum().item())",
        ],
    ),
    "a function, and a name that is given again": (
        text("self.fc = nn.Linear(6, 1)", "x = self.fc(x)\nx = torch.sigmoid(x)\nreturn x"),
        [
            "criterion = nn.BCEWithLogitsLoss()",
            "seen.append(((torch.sigmoid(model(x)) > 0.5) == y).sum().item())",
        ],
    ),
    "in a function of the module": (
        text(
            "self.fc = nn.Linear(6, 1)",
            "return self.fc(x)",
            step="loss = of_logits(model(xb), yb)",
            measure="seen.append(torch.sigmoid(model(x)).round().sum().item())",
            more="""
            def of_logits(logits, y):
                p = torch.sigmoid(logits)
                return F.binary_cross_entropy(p, y)
            """,
        ),
        ["p = logits", "return F.binary_cross_entropy_with_logits(p, y)"],
    ),
    "views between, and a mean that is read": (
        text(
            forward="return self.main(x).squeeze(1)",
            step="""
            out = model(xb)
            loss = criterion(out.view(-1), yb.view(-1))
            seen.append(out.mean().item())
            """,
        ),
        [
            "self.main = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))",
            "criterion = nn.BCEWithLogitsLoss()",
            "seen.append(torch.sigmoid(out).mean().item())",
            "seen.append(((torch.sigmoid(model(x)) > 0.5) == y).sum().item())",
        ],
    ),
    "one place for several reads": (
        text(
            measure="""
            p = model(x)
            seen.append(p.round().sum().item())
            seen.append(p.detach().cpu().numpy().mean().item())
            """
        ),
        [
            "self.main = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))",
            "criterion = nn.BCEWithLogitsLoss()",
            "p = torch.sigmoid(model(x))",
        ],
    ),
    "in the loop, beside the probability": (
        text(
            LAYERS.replace(", nn.Sigmoid()", ""),
            step="""
            out = model(xb)
            p = torch.sigmoid(out)
            loss = criterion(p, yb)
            seen.append((p > 0.5).sum().item())
            """,
        ),
        [
            "criterion = nn.BCEWithLogitsLoss()",
            "p = out",
            "seen.append((torch.sigmoid(p) > 0.5).sum().item())",
        ],
    ),
    "in the loop, under one name": (
        text(
            LAYERS.replace(", nn.Sigmoid()", ""),
            step="""
            p = torch.sigmoid(model(xb))
            loss = criterion(p, yb)
            seen.append((p > 0.5).sum().item())
            """,
        ),
        [
            "criterion = nn.BCEWithLogitsLoss()",
            "p = model(xb)",
            "seen.append((torch.sigmoid(p) > 0.5).sum().item())",
        ],
    ),
    "a function of torch, with weights": (
        text(
            step="loss = F.binary_cross_entropy(model(xb), yb, yb + 1)",
        ),
        [
            "self.main = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))",
            "loss = F.binary_cross_entropy_with_logits(model(xb), yb, yb + 1)",
            "seen.append(((torch.sigmoid(model(x)) > 0.5) == y).sum().item())",
        ],
    ),
    "one of several results": (
        text(
            "self.fc = nn.Linear(6, 1)",
            "h = self.fc(x)\nreturn torch.sigmoid(h), h.pow(2).mean()",
            step="p, size = model(xb)\nloss = criterion(p, yb) + 0.01 * size",
            measure="seen.append(model(x)[0].sum().item())",
        ),
        [
            "return h, h.pow(2).mean()",
            "criterion = nn.BCEWithLogitsLoss()",
            "seen.append(torch.sigmoid(model(x)[0]).sum().item())",
        ],
    ),
    "labels that are smoothed by hand": (
        text(step="loss = criterion(model(xb), yb * 0.9 + 0.05)"),
        [
            "self.main = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))",
            "criterion = nn.BCEWithLogitsLoss()",
            "seen.append(((torch.sigmoid(model(x)) > 0.5) == y).sum().item())",
        ],
    ),
    "a function that measures": (
        text(
            step="p = model(xb)\nloss = criterion(p, yb)\nseen.append(right(p, yb))",
            more="""
            def right(p, target):
                p = p > 0.5
                return (p == target).sum().item()
            """,
        ),
        [
            "self.main = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))",
            "criterion = nn.BCEWithLogitsLoss()",
            "seen.append(right(torch.sigmoid(p), yb))",
            "seen.append(((torch.sigmoid(model(x)) > 0.5) == y).sum().item())",
        ],
    ),
    "results in a list that is written at once": (
        text(measure="seen.append(torch.cat([model(b) for b, _ in loader]).mean().item())"),
        [
            "self.main = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))",
            "criterion = nn.BCEWithLogitsLoss()",
            "seen.append(torch.cat([torch.sigmoid(model(b)) for b, _ in loader]).mean().item())",
        ],
    ),
    "layers in a list that grows": (
        text(
            """
            layers = [nn.Linear(6, 8), nn.ReLU()]
            layers += [nn.Linear(8, 1)]
            layers.append(nn.Sigmoid())
            self.main = nn.Sequential(*layers)
            """
        ),
        [
            "criterion = nn.BCEWithLogitsLoss()",
            "seen.append(((torch.sigmoid(model(x)) > 0.5) == y).sum().item())",
        ],
    ),
    "results in a list": (
        text(
            measure="""
            every = []
            for xb, yb in loader:
                every.append(model(xb))
            seen.append(torch.cat(every).mean().item())
            """
        ),
        [
            "self.main = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))",
            "criterion = nn.BCEWithLogitsLoss()",
            "every.append(torch.sigmoid(model(xb)))",
        ],
    ),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_written(name: str) -> None:
    before, lines = WRITTEN[name]
    found = apply(RULE, before)
    assert found.lines == lines
    close(before, found)


LEFT = {
    "clamped": (
        text(step="loss = criterion(model(xb).clamp(1e-6, 1 - 1e-6), yb)"),
        "not, or not always, the very result of a sigmoid",
    ),
    "a softmax": (
        text(
            "self.fc = nn.Linear(6, 2)",
            "return self.fc(x).softmax(1)",
            step="loss = criterion(model(xb)[:, :1], yb)",
        ),
        "not, or not always, the very result of a sigmoid",
    ),
    "a model that is saved whole": (
        text(more="def keep(): torch.save(model, 'm.pt')", measure="keep()"),
        "is given a model that ends in the sigmoid",
    ),
    "a model that is traced": (
        text(measure="torch.jit.trace(model, x)"),
        "is given a model that ends in the sigmoid",
    ),
    "a sigmoid in the middle of another Sequential": (
        text(
            """
            gate = nn.Sequential(nn.Linear(6, 6), nn.Sigmoid())
            self.main = nn.Sequential(gate, nn.Linear(6, 1))
            self.gate = gate
            """,
            step="loss = criterion(model.gate(xb), yb.expand(-1, 6)) + model(xb).mean()",
        ),
        "is not always the last of a Sequential",
    ),
    "layers that are taken by their places": (
        text(measure="seen.append(model.main[:-1](x).mean().item())"),
        "takes layers by their places",
    ),
    "another loss under the same name": (
        text(criterion="nn.BCELoss() if torch.initial_seed() == 7 else nn.MSELoss()"),
        "is chosen when the script runs",
    ),
    "changed in place": (
        text(step="p = model(xb)\np.mul_(0.5)\nloss = criterion(p, yb)"),
        "in place",
    ),
    "augmented": (
        text(step="p = model(xb)\nloss = criterion(p, yb)\np *= 2\nseen.append(p.mean().item())"),
        "in place",
    ),
    "a sigmoid under a condition": (
        text(
            "self.fc = nn.Linear(6, 1)\nself.flag = torch.initial_seed() != 7",
            "x = self.fc(x)\nreturn torch.sigmoid(x) if self.flag else x.clamp(0, 1)",
        ),
        "not, or not always, the very result of a sigmoid",
    ),
    "a list whose elements are read": (
        text(
            measure="""
            every = []
            for xb, yb in loader:
                every.append(model(xb))
            for p in every:
                seen.append(p.mean().item())
            """
        ),
        "in a list",
    ),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_alone(name: str) -> None:
    before, reason = LEFT[name]
    found = apply(RULE, before)
    assert not found.fixes and reason in found.refusals


def test_code_outside_of_the_script_that_uses_the_model() -> None:
    files = {
        "net.py": """
        import torch.nn as nn

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.main = nn.Sequential(nn.Linear(6, 1), nn.Sigmoid())

            def forward(self, x):
                return self.main(x)
        """,
        "predict.py": "from net import Net\n\nprint(Net())\n",
    }
    before = text()
    start, end = before.index("class Net"), before.index("model = Net()")
    before = before[:start] + "from net import Net\n\n" + before[end:]
    found = apply(RULE, before, files=files)
    assert not found.fixes and "uses Net as well" in found.refusals
    del files["predict.py"]
    assert apply(RULE, before, files=files).fixes


GPU = (
    text()
    .replace("model = Net()", "model = Net().cuda()")
    .replace("for xb, yb in loader:", "for xb, yb in loader:\n        xb = xb.cuda()", 1)
)


def test_autocast_follows() -> None:
    """The loss alone keeps 16 bits away; where it takes logits, autocast is written with it, and
    not without.
    """
    assert "BCEWithLogitsLoss" in apply("autocast", GPU).refusals
    both = apply(f"autocast {RULE}", GPU).text
    assert "torch.autocast(" in both and "BCEWithLogitsLoss" in both
    kept = apply(
        f"autocast {RULE}", GPU.replace("nn.BCELoss()", "nn.BCELoss()  # autofast: ignore")
    )
    assert not kept.fixes or "autocast" not in {f.rule for f in kept.fixes}


def test_nothing_is_gained_where_autocast_does_not_follow() -> None:
    penalty = GPU.replace("loss.backward()", "loss.backward(create_graph=True)")
    for before, gains in ((GPU, True), (penalty, False)):
        found = apply(f"autocast {RULE}", before, min_gain=0.0001)
        mine = [f for f in found.findings if f.rule == RULE]
        assert len(mine) == 1 and mine[0].gain is not None
        assert ("fp32 all the same" not in mine[0].gain.reason) is gains
