"""set-to-none: where None and zeros are the same, and where they are not."""

from __future__ import annotations

import pytest
import torch

from tests.onerule import Applied, apply, run

RULE = "set-to-none"
SCRIPT = """
import torch
from torch import nn

torch.manual_seed(0)


{net}


model = Net()
optimizer = {optimizer}
losses = []
for step in range(12):
    x = torch.randn(8, 4)
    {zero}
    {loss}
    loss.backward()
    {after}
    optimizer.step()
    losses.append(loss.item())
"""
NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.norm = nn.LayerNorm(4)
        self.head = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x)) + x
        h = self.mix(self.norm(x))
        return self.head(h)

    def mix(self, h):
        return h * self.scale
"""
ADAM = "torch.optim.AdamW(model.parameters(), lr=1e-2)"
FALSE = "optimizer.zero_grad(set_to_none=False)"
LOSS = "loss = model(x).pow(2).mean()"


def made(
    zero: str = FALSE, net: str = NET, optimizer: str = ADAM, loss: str = LOSS, after: str = "pass"
) -> Applied:
    parts = {"zero": zero, "loss": loss, "after": after}
    return apply(
        RULE,
        SCRIPT.format(
            net=net.strip(),
            optimizer=optimizer,
            **{k: v.replace("\n", "\n    ") for k, v in parts.items()},
        ),
    )


@pytest.mark.parametrize(
    ("zero", "expected"),
    [
        (FALSE, ["optimizer.zero_grad(set_to_none=True)"]),
        ("optimizer.zero_grad(False)", ["optimizer.zero_grad(True)"]),
        ("model.zero_grad(set_to_none=False)", ["model.zero_grad(set_to_none=True)"]),
    ],
)
def test_forms(zero: str, expected: list[str]) -> None:
    done = made(zero)
    assert done.lines == expected
    before, after = run(done.before), run(done.text)
    assert before["losses"] == after["losses"]
    for p, q in zip(before["model"].parameters(), after["model"].parameters(), strict=True):
        assert torch.equal(p, q)


@pytest.mark.parametrize(
    "zero",
    [
        "optimizer.zero_grad()",
        "optimizer.zero_grad(set_to_none=True)",
        "for p in model.parameters():\n    p.grad = None",
        "for p in model.parameters():\n    if p.grad is not None:\n        p.grad.zero_()",
        "for p in model.parameters():\n    if p.grad is not None:\n        p.grad.clamp_(-1, 1)",
        "for p in model.parameters():\n    if p.grad is not None:\n        p.grad.fill_(1)",
    ],
)
def test_nothing_to_do(zero: str) -> None:
    assert made(zero).findings == ()


LISTED = """
class Net(nn.Module):
    def __init__(self, sizes=(6, 5)):
        super().__init__()
        layers, size = [], 4
        for item in list(sizes):
            layers += [nn.Linear(size, item), nn.ReLU()]
            size = item
        layers += [nn.Linear(size, 1)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return self.layers(x)
"""


def test_layers_that_a_loop_puts_into_a_list() -> None:
    done = made(net=LISTED)
    assert done.lines == ["optimizer.zero_grad(set_to_none=True)"]
    assert run(done.before)["losses"] == run(done.text)["losses"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self.layers(x)", "x @ torch.ones(4, 1)"),
        ("nn.Sequential(*layers)", "nn.Sequential(*layers)\n        self.first = layers[0]"),
        ("        self.layers =", "        layers += unknown_layers()\n        self.layers ="),
    ],
)
def test_layers_in_a_list_that_may_be_left_out(old: str, new: str) -> None:
    assert old in LISTED
    assert not made(net="from secret import unknown_layers\n" + LISTED.replace(old, new)).fixes


def changed(old: str, new: str) -> str:
    assert old in NET
    return NET.replace(old, new)


@pytest.mark.parametrize(
    ("net", "why"),
    [
        (changed("return self.head(h)", "return self.head[0](h)"), "takes part"),
        (
            changed(
                "x = torch.relu(layer(x)) + x",
                "if torch.rand(1) > 0.5:\n                x = layer(x)",
            ),
            "leave a layer out",
        ),
        (changed("for layer in self.layers:", "for layer in self.layers[1:]:"), "takes part"),
        (changed("h = self.mix(self.norm(x))", "h = x"), "takes part"),
        (changed("return h * self.scale", "return h"), "scale takes part"),
        (changed("return self.head(h)", "return self.head(h), h")[:-1], "several values"),
        (changed("self.norm(x))", "self.norm(x).detach())"), "takes part"),
        (
            changed("h = self.mix", "if x.sum() > 0:\n            return x\n        h = self.mix"),
            "end in one place",
        ),
        (
            changed(
                "self.norm = nn.LayerNorm(4)",
                "self.norm = nn.AdaptiveLogSoftmaxWithLoss(4, 9, [2])",
            ),
            "which parameters",
        ),
        (changed("self.head(h)", "self.head(h)[:, :0] if False else self.head(h)"), "takes part"),
        (
            changed(
                "x = torch.relu(layer(x)) + x",
                "if torch.rand(1) > 0.5:\n                continue\n            x = layer(x)",
            ),
            "leave a layer out",
        ),
        (
            changed(
                "for layer in self.layers:",
                "for layer in __import__('random').sample(list(self.layers), 2):",
            ),
            "takes part",
        ),
        (
            changed("self.mix(self.norm(x))", "__import__('random').choice(self.layers)(x)"),
            "takes part",
        ),
        (
            changed("return self.head(h)", "out = dict(h=h, y=self.head(h))\n        return out"),
            "several values",
        ),
    ],
)
def test_layers_that_may_be_left_out(net: str, why: str) -> None:
    loss = (
        "out = model(x)\nloss = (out[0] if isinstance(out, tuple) else out['h']).pow(2).mean()"
        if "several" in why
        else LOSS
    )
    done = made(net=net, loss=loss)
    assert not done.fixes and why in done.refusals


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        (
            {
                "loss": "loss = model(x).pow(2).mean()\nif step % 2:\n    loss = x.sum() * model.scale.sum()"
            },
            "takes part",
        ),
        ({"loss": "h = model(x)\nloss = (model(x).mean() - h.detach()).pow(2).mean()"}, "detaches"),
        ({"loss": "model.head.requires_grad_(step % 2 == 0)\n" + LOSS}, "on and off"),
        (
            {
                "loss": "if step % 2 == 0:\n    out = model(x)\nelse:\n    out = model.head(x)\nloss = out.pow(2).mean()"
            },
            "takes part",
        ),
        ({"zero": FALSE + "\nprint(model.scale.grad)"}, "reads a gradient"),
        ({"after": "model.share_memory()"}, "addresses"),
        ({"after": "graph = torch.cuda.CUDAGraph()"}, "addresses"),
    ],
)
def test_steps_in_which_it_matters(parts: dict[str, str], why: str) -> None:
    done = made(**parts)
    assert not done.fixes and why in done.refusals


EPOCHS = """
import torch
from torch import nn

torch.manual_seed(0)


def freeze(part, epoch):
    if epoch == 2:
        part.requires_grad_(False)


model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
{before}
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for epoch in range(4):
    {epoch}
    for step in range(3):
        optimizer.zero_grad(set_to_none=False)
        loss = model(torch.randn(8, 4)).pow(2).mean()
        loss.backward()
        optimizer.step()
{then}
weights = [p.detach().clone() for p in model.parameters()]
"""
AGAIN = """model[0].requires_grad_(False)
for step in range(3):
    optimizer.zero_grad(set_to_none=False)
    loss = model(torch.randn(8, 4)).pow(2).mean()
    loss.backward()
    optimizer.step()"""


@pytest.mark.parametrize(
    ("parts", "applied"),
    [
        ({"epoch": "for p in model[0].parameters(): p.requires_grad = epoch < 2"}, False),
        ({"epoch": "freeze(model[0], epoch)"}, False),
        ({"then": AGAIN}, False),
        ({"before": "model[0].requires_grad_(False)"}, True),
        ({"then": "model.requires_grad_(False)"}, True),
    ],
)
def test_parameters_that_are_frozen_once_they_have_gradients(
    parts: dict[str, str], applied: bool
) -> None:
    before = EPOCHS.format(**({"before": "pass", "epoch": "pass", "then": "pass"} | parts))
    done = apply(RULE, before)
    assert (not done.refusals) is applied
    assert applied or "on and off" in done.refusals
    naive = before.replace("set_to_none=False", "set_to_none=True")
    one, other, naively = (run(text)["weights"] for text in (before, done.text, naive))
    assert all(map(torch.equal, one, other))
    assert all(map(torch.equal, one, naively)) is applied


def test_plain_sgd_moves_nothing_with_zeros() -> None:
    net = changed("return self.head(h)", "return self.head[0](h)")
    assert made(net=net, optimizer="torch.optim.SGD(model.parameters(), lr=0.1)").fixes
    assert not made(
        net=net, optimizer="torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)"
    ).fixes
    assert not made(
        net=net, optimizer="torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=1e-4)"
    ).fixes


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "flat, o = torch.zeros(200), 0\n"
            "for p in model.parameters():\n    p.grad = flat[o:o + p.numel()].view_as(p)\n    o += p.numel()",
            "flat.mul_(0.5)",
        ),
        ("", "if step == 0:\n    losses += [p.grad for p in model.parameters()]"),
        ("seen = []", "if not seen:\n    seen = [p.grad for p in model.parameters()]"),
        ("seen = {}", "for n, p in model.named_parameters():\n    seen[n] = p.grad"),
    ],
    ids=["flat", "added", "set once", "dictionary"],
)
def test_gradients_that_somebody_holds(before: str, after: str) -> None:
    """A flat buffer, or a list made in the first step: no backward would fill them again."""
    text = SCRIPT.format(net=NET, optimizer=ADAM, zero=FALSE, loss=LOSS, after=indent(after))
    done = apply(RULE, text.replace("losses = []", "losses = []\n" + before))
    assert not done.fixes and "expects it to be filled again" in done.refusals


HOLDING = "if step == 0:\n    for p in model.parameters():\n        {keep}\nlosses.append(sum(g.norm().item() for g in seen))"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("seen = []\ndef keep(g):\n    seen.append(g)", HOLDING.format(keep="keep(p.grad)")),
        (
            "seen = []\ndef keep(rows, g):\n    rows.append(g)",
            HOLDING.format(keep="keep(seen, p.grad)"),
        ),
        ("seen = []", HOLDING.format(keep="seen.append(p.grad.reshape(-1))")),
        ("seen = []", HOLDING.format(keep="g = p.grad\n        seen.append(g)")),
        (
            "seen = {}",
            "if step == 0:\n    seen.update(first=model.scale.grad)\nlosses += [g.item() for g in seen.values()]",
        ),
        (
            "seen = []",
            "for g in [p.grad for p in model.parameters()]:\n    seen.append(g) if step == 0 else None\n"
            "losses.append(sum(g.norm().item() for g in seen))",
        ),
        (
            "class Keeper:\n    def __init__(self, g):\n        self.g = g",
            "if step == 0:\n    kept = Keeper(model.scale.grad)\nlosses.append(kept.g.item())",
        ),
        (
            "buffer = torch.zeros(3)",
            "buffer[0] = model.scale.grad\nlosses.append(buffer[0].item())",
        ),
        ("total = torch.zeros(1)", "total += model.scale.grad\nlosses.append(total.item())"),
        (
            "def norm(g):\n    both = (g, g + 1)\n    return both[0].norm()",
            "losses.append(sum(norm(p.grad).item() for p in model.parameters()))",
        ),
    ],
    ids="called given reshaped variable keyword loop object item sum computed".split(),
)
def test_whoever_holds_a_gradient_is_found(before: str, after: str) -> None:
    """Exactly where running it with None gives other numbers."""
    text = SCRIPT.format(net=NET, optimizer=ADAM, zero=FALSE, loss=LOSS, after=indent(after))
    text = text.replace("losses = []", "losses = []\n" + before)
    done = apply(RULE, text)
    is_held = run(text)["losses"] != run(text.replace("=False", "=True"))["losses"]
    assert bool(done.fixes) != is_held
    if is_held:
        assert "expects it to be filled again" in done.refusals


def indent(text: str) -> str:
    return text.replace("\n", "\n    ")


@pytest.mark.parametrize(
    "after",
    [
        "grads = [p.grad for p in model.parameters()]\ntorch._foreach_mul_(grads, 0.5)",
        "for p in model.parameters():\n    if p.grad is not None:\n        g = p.grad\n        g.mul_(0.5)",
        "grads = []\nfor p in model.parameters():\n    grads.append(p.grad)\ntorch._foreach_mul_(grads, 0.5)",
    ],
)
def test_gradients_that_a_step_looks_at(after: str) -> None:
    done = made(after=after)
    assert done.fixes and run(done.text)["losses"] == run(done.before)["losses"]


def test_reading_after_the_backward_is_fine() -> None:
    done = made(
        after="norm = sum(p.grad.norm().item() for p in model.parameters())\ntorch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
    )
    assert done.fixes
    assert run(done.before)["losses"] == run(done.text)["losses"]


def test_what_is_not_known() -> None:
    text = SCRIPT.format(
        net="from elsewhere import Net", optimizer=ADAM, zero=FALSE, loss=LOSS, after="pass"
    )
    done = apply(RULE, text)
    assert not done.fixes and done.refusals
    alone = """
    import torch

    w = torch.randn(3, requires_grad=True)
    for step in range(3):
        (w * w).sum().backward()
        with torch.no_grad():
            w -= 0.1 * w.grad
            w.grad.zero_()
    """
    assert apply(RULE, alone).findings == ()


# ------------------------------------------------------------------------ several places that clear
TWICE = "if step % 2:\n    optimizer.zero_grad(set_to_none=False)\nelse:\n    for p in model.parameters():\n        {clear}"


@pytest.mark.parametrize(
    ("clear", "applied"),
    [
        ("p.grad = None if p.grad is None else torch.zeros_like(p.grad)", True),
        ("p.grad = torch.zeros_like(p.grad) if p.grad is not None else None", True),
        ("if p.grad is not None:\n            p.grad.zero_()", True),
        ("p.grad = torch.zeros_like(p)", True),
        ("p.grad.zero_()", False),
        ("p.grad.mul_(0).zero_()", False),
    ],
)
def test_two_places_that_clear_in_turn(clear: str, applied: bool) -> None:
    done = made(
        "pass",
        after=TWICE.format(clear=clear).replace("optimizer.", "0 or optimizer."),
        optimizer="torch.optim.SGD(model.parameters(), 0.01)",
    )
    assert bool(done.fixes) is applied
    if applied:
        assert "set_to_none=False" not in done.text
        assert run(done.before)["losses"] == run(done.text)["losses"]
