"""loss-item-sync: numbers that only tensors are computed with stay tensors: a soft actor-critic's
temperature.
"""

from __future__ import annotations

import contextlib
import io

import pytest

from autofast.rule import Effect
from tests.onerule import Applied, apply
from tests.two_devices import run_on_both

SCRIPT = """
import torch
import torch.nn.functional as F
from torch import nn, optim

torch.manual_seed(0)
device = torch.device("cuda")
autotune, fixed = torch.rand(1).item() < 2, 0.2


class Writer:
    def __init__(self):
        self.rows = []

    def add_scalar(self, name, value, step):
        self.rows.append((name, float(value), step))


writer = Writer()
actor, critic = nn.Linear(4, 2).to(device), nn.Linear(4, 1).to(device)
a_optimizer = optim.Adam(actor.parameters(), lr=0.01)
q_optimizer = optim.Adam(critic.parameters(), lr=0.01)
if autotune:
    log_alpha = torch.zeros({size}, requires_grad=True, device=device)
    alpha = log_alpha.exp().item()
    t_optimizer = optim.Adam([log_alpha], lr=0.05)
else:
    alpha = fixed
losses = []
for step in range(1, 101):
    x = torch.randn(8, 4, device=device)
    with torch.no_grad():
        log_pi = actor(x).log_softmax(1).mean(1, keepdim=True)
        target = {target}
    q_loss = F.mse_loss(critic(x), target)
    q_optimizer.zero_grad()
    q_loss.backward()
    q_optimizer.step()
    log_pi = actor(x).log_softmax(1).mean(1, keepdim=True)
    actor_loss = ({product} - critic(x)).mean()
    a_optimizer.zero_grad()
    actor_loss.backward()
    a_optimizer.step()
    losses.append(actor_loss.detach())
    if autotune:
        alpha_loss = (-log_alpha.exp() * (log_pi.detach() + 1.0)).mean()
        t_optimizer.zero_grad()
        alpha_loss.backward()
        t_optimizer.step()
        alpha = log_alpha.exp().item()
    {rest}
final = [p.detach().clone() for p in (*actor.parameters(), *critic.parameters(), log_alpha)]
"""
SHOWN = 'if step % 100 == 0:\n        writer.add_scalar("alpha", alpha, step)\n        print(f"{alpha:.6f}")'


def script(
    rest: str = SHOWN,
    target: str = "critic(x) - alpha * log_pi",
    product: str = "(alpha * log_pi)",
    size: str = "1",
) -> str:
    text = SCRIPT.replace("{rest}", rest).replace("{target}", target)
    return text.replace("{product}", product).replace("{size}", size)


def same(text: str) -> Applied:
    done = apply("loss-item-sync", text)
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        one, before = run_on_both(text)
        other, after = run_on_both(done.text)
    assert after < before
    for name in ("losses", "final"):
        assert all(bool((a == b).all()) for a, b in zip(one[name], other[name], strict=True))
    assert one["writer"].rows == other["writer"].rows
    out = shown.getvalue().splitlines()
    assert out[: len(out) // 2] == out[len(out) // 2 :]
    return done


@pytest.mark.parametrize("size", ["1", "()"])
@pytest.mark.parametrize(
    ("target", "product"),
    [
        ("critic(x) - alpha * log_pi", "(alpha * log_pi)"),
        ("critic(x) - log_pi * alpha", "-alpha * -log_pi"),
        ("critic(x) + alpha", "(log_pi - alpha)"),
    ],
)
def test_the_tensor_is_computed_with(target: str, product: str, size: str) -> None:
    done = same(script(SHOWN, target, product, size))
    kept = "alpha = log_alpha.exp().detach().squeeze()"
    shown = [
        'writer.add_scalar("alpha", float(alpha), step)',
        'print(f"{float(alpha):.6f}")',
    ]
    assert done.lines == [kept, kept, *shown], done.refusals
    assert {f.effect for f in done.fixes} == {Effect.EXACT}


def test_a_number_that_is_always_read() -> None:
    text = script().replace("else:\n    alpha = fixed\n", "")
    assert 'print(f"{alpha.item():.6f}")' in same(text).lines


def test_it_rounds_beside_16_bits() -> None:
    text = script().replace("log_pi = actor(x)", "log_pi = actor(x).to(torch.bfloat16).float()")
    assert {f.effect for f in apply("loss-item-sync", text).fixes} == {Effect.ROUNDING}


@pytest.mark.parametrize(
    "text",
    [
        script(rest='writer.add_scalar("alpha", alpha, step)'),  # in every step
        script(rest="if alpha < 0.01:\n        break"),
        script(target="critic(x) - (1 - alpha) * log_pi"),  # computed by Python, in 64 bits
        script(product="log_pi / alpha"),  # which the device does otherwise for numbers
        script(product="log_pi * alpha ** 2"),
        script(rest="losses.append(alpha)"),
        script(rest="scale = alpha"),
        script(target="critic(x) - (alpha * log_pi.cpu()).to(device)"),  # on the host
        script(target="critic(x) - torch.tensor(alpha, device=device) * log_pi"),
        script() + "\n\ndef change():\n    global alpha\n    alpha = None\n",
        script().replace("alpha = fixed", "alpha = 1"),  # shown as it is
        script().replace("alpha = fixed", "alpha = None"),
        script().replace("requires_grad=True", "requires_grad=True, dtype=torch.float64"),
        script(product='(alpha * log_pi.to("cuda:1")).to("cuda:0")'),  # on another one
    ],
)
def test_a_number_that_the_host_needs(text: str) -> None:
    assert text.count("alpha = log_alpha.exp().item()") == apply("loss-item-sync", text).text.count(
        "alpha = log_alpha.exp().item()"
    )


def test_a_function_that_hands_it_back() -> None:
    """It is called in every step: the number would be read there all the same."""
    text = """
import torch
from torch import nn
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(4, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
seen = []
def update(x):
    out = model(x)
    scale = out.std().item()
    loss = (out * scale).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return {result}
for step in range(100):
    seen.append(update(torch.randn(8, 4, device=device)))
"""
    assert "out.std().item()" in apply("loss-item-sync", text.replace("{result}", "scale")).text
    assert "out.std().detach()" in apply("loss-item-sync", text.replace("{result}", "1")).text
