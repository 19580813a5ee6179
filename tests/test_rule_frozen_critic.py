"""frozen-critic: where a model is frozen, that the training stays the same bit for bit, and what
would not.
"""

from __future__ import annotations

import pytest

from tests.harness import HAVE_TORCH
from tests.onerule import apply, run

needs_torch = pytest.mark.skipif(not HAVE_TORCH, reason="needs torch")
RULE = "frozen-critic"

GAN = """
import operator
import torch
import torch.nn as nn

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
shared = nn.Linear(4, 4)
generator = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4)).to(device)
critic = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.LeakyReLU(0.2), nn.Linear(8, 1)).to(device)
optimizer_g = torch.optim.Adam(generator.parameters(), lr=0.01)
optimizer_c = torch.optim.Adam(critic.parameters(), lr=0.01, weight_decay=0.01)
criterion = nn.BCEWithLogitsLoss()
losses = []
for step in range(6):
    real = torch.randn(5, 4, device=device)
    noise = torch.randn(5, 3, device=device)
    optimizer_c.zero_grad()
    fake = generator(noise)
    first = criterion(critic(real), torch.ones(5, 1, device=device))
    first.backward()
    second = criterion(critic(fake.detach()), torch.zeros(5, 1, device=device))
    second.backward()
    optimizer_c.step()
    optimizer_g.zero_grad()
    score = critic(fake)
    loss = criterion(score, torch.ones(5, 1, device=device))
    loss.backward()
    optimizer_g.step()
    losses += [first.item(), second.item(), loss.item()]
weights = [p.tolist() for m in (generator, critic) for p in m.parameters()]
"""
ACTOR = """
import torch
import torch.nn as nn

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, state, action):
        return self.net(torch.cat([state, action], 1))


class Agent:
    def __init__(self):
        self.actor = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).to(device)
        self.critic = Critic().to(device)
        self.actor_optimizer = torch.optim.SGD(self.actor.parameters(), lr=0.1)
        self.critic_optimizer = torch.optim.SGD(self.critic.parameters(), lr=0.1, momentum=0.9)

    def learn(self, state, action, value):
        critic_loss = (self.critic(state, action) - value).pow(2).mean()
        self.critic_optimizer.zero_grad()
        critic_loss.backward()
        self.critic_optimizer.step()
        actor_loss = -self.critic(state, self.actor(state)).mean()
        self.actor_optimizer.zero_grad()
        actor_loss.backward()
        self.actor_optimizer.step()
        return critic_loss.item(), actor_loss.item()


agent = Agent()
losses = []
for step in range(6):
    losses += agent.learn(torch.randn(5, 4).to(device), torch.randn(5, 2).to(device), torch.randn(5, 1).to(device))
weights = [p.tolist() for m in (agent.actor, agent.critic) for p in m.parameters()]
"""
OFF, ON = "critic.requires_grad_(False)", "critic.requires_grad_(True)"


def changed(*changes: tuple[str, str], text: str = GAN) -> str:
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


def test_what_is_written() -> None:
    found = apply(RULE, GAN)
    assert found.lines == [OFF, ON]
    assert f"optimizer_g.zero_grad()\n    {OFF}\n    score = critic(fake)" in found.text
    assert f"loss.backward()\n    {ON}\n    optimizer_g.step()" in found.text


WAYS = {
    "a discriminator": GAN,
    "the generator first": changed(
        ("    optimizer_c.zero_grad()\n    fake", "    fake"),
        ("    optimizer_g.zero_grad()\n    score", "    score"),
        ("    first =", "    optimizer_c.zero_grad()\n    first ="),
        ("    real = ", "    optimizer_g.zero_grad()\n    real = "),
    ),
    "every second step": changed(
        ("    optimizer_g.zero_grad()\n    score = critic(fake)\n    loss = criterion(score, torch.ones(5, 1, device=device))\n    loss.backward()\n    optimizer_g.step()\n",
         "    if step % 2 == 0:\n        optimizer_g.zero_grad()\n        score = critic(fake)\n        loss = criterion(score, torch.ones(5, 1, device=device))\n        loss.backward()\n        optimizer_g.step()\n"),
    ),
    "cleared by the module": changed(("optimizer_c.zero_grad()", "critic.zero_grad()")),
    "an actor": ACTOR,
}  # fmt: skip


@needs_torch
@pytest.mark.parametrize("way", WAYS)
def test_the_same_bit_for_bit(way: str) -> None:
    found = apply(RULE, WAYS[way])
    assert len(found.fixes) == 1
    before, after = run(WAYS[way]), run(found.text)
    assert before["losses"] == after["losses"] and before["weights"] == after["weights"]


SCORE = "    score = critic(fake)\n"
PARTS = {
    "behind zero_grad()": ("    optimizer_g.zero_grad()\n", [(SCORE, f"    more = generator(noise)\n{SCORE}")]),
    "its own part of the step": ("    if step % 2 == 0:\n", [
        ("    optimizer_g.zero_grad()\n", "    optimizer_g.zero_grad()\n    if step % 2 == 0:\n        more = generator(noise)\n"),
        *((line, f"    {line}") for line in (SCORE, "    loss = criterion(", "    loss.backward()", "    optimizer_g.step()")),
    ]),
    "right before": ("    more = critic(real)\n", [(SCORE, f"    more = critic(real)\n{SCORE}")]),
}  # fmt: skip


@needs_torch
@pytest.mark.parametrize("where", PARTS)
def test_frozen_where_the_part_of_the_step_begins(where: str) -> None:
    """If nothing computes with the critic in between."""
    line, changes = PARTS[where]
    text = changed(*changes)
    found = apply(RULE, text)
    indent = " " * (8 if "if" in line else 4)
    assert f"{line}{indent}{OFF}\n" in found.text
    before, after = run(text), run(found.text)
    assert before["losses"] == after["losses"] and before["weights"] == after["weights"]


FAKE_MADE = "    fake = generator(noise)\n"
SOMETIMES = {
    "a mode": [(FAKE_MADE, f"    with torch.set_grad_enabled(step > 2):\n    {FAKE_MADE}")],
    "detached": [(FAKE_MADE, f"{FAKE_MADE}    if step % 3 == 2:\n        fake = fake.detach()\n")],
    "data": [(FAKE_MADE, "    fake = real if step < 3 else generator(noise)\n")],
    "data by a branch": [(FAKE_MADE, f"{FAKE_MADE}    if step < 3:\n        fake = real\n")],
    "a pool": [("losses = []", "losses, pool = [], []\ndef query(x):\n    pool.append(x.detach())\n    return pool[0] if len(pool) % 2 else x\n"), ("critic(fake)", "critic(query(fake))")],
    "rounded": [("losses = []", "losses = []\ndef sample(z, hard):\n    made = generator(z)\n    return made.round().detach() if hard else made\n"), (FAKE_MADE, "    fake = sample(noise, step % 2)\n")],
    "beside data": [("critic(fake)\n", "critic(torch.cat([real, fake.detach() if step < 2 else fake]))\n"), ("score, torch.ones(5, 1", "score, torch.ones(10, 1")],
    "another loss": [("    loss = criterion(score, torch.ones(5, 1, device=device))\n", "    loss = criterion(score, torch.ones(5, 1, device=device))\n    if step == 1:\n        loss = criterion(critic(real), torch.ones(5, 1, device=device))\n")],
}  # fmt: skip


@needs_torch
@pytest.mark.parametrize("why", SOMETIMES)
def test_a_loss_that_needs_no_gradient_of_the_other_in_some_steps(why: str) -> None:
    """Of parameters that are frozen alone, backward() is an error."""
    text = changed(*SOMETIMES[why])
    run(text)
    found = apply(RULE, text)
    assert not found.fixes and "in some steps the loss may need no" in found.refusals


ALWAYS = {
    "two ways": [(FAKE_MADE, f"    if step % 2:\n    {FAKE_MADE}    else:\n        fake = generator(noise * 2)\n")],
    "a function": [("losses = []", "losses = []\ndef sample(z):\n    if len(z) > 3:\n        return generator(z)\n    return generator(-z)\n"), (FAKE_MADE, "    fake = sample(noise)\n")],
    "beside data": [("critic(fake)\n", "critic(torch.cat([real, fake]))\n"), ("score, torch.ones(5, 1", "score, torch.ones(10, 1")],
    "a sum": [("    loss.backward()\n", "    loss = loss * 0.5\n    loss += critic(real).mean()\n    (loss / 2).backward()\n")],
    "an attribute": [("losses = []", "losses = []\nclass Kept:\n    pass\nbox = Kept()\n"), (FAKE_MADE, "    box.fake = generator(noise)\n    fake = box.fake\n")],
}  # fmt: skip


@needs_torch
@pytest.mark.parametrize("way", ALWAYS)
def test_a_loss_that_always_needs_one(way: str) -> None:
    text = changed(*ALWAYS[way])
    found = apply(RULE, text)
    assert OFF in found.text
    before, after = run(text), run(found.text)
    assert before["losses"] == after["losses"] and before["weights"] == after["weights"]


@needs_torch
def test_nothing_is_computed_for_it() -> None:
    asks = (("    optimizer_g.step()\n", "    optimizer_g.step()\n    kept = [p.grad.clone() for p in critic.parameters()]\n"),)  # fmt: skip
    before, after = (run(changed(*asks, text=t))["kept"] for t in (GAN, apply(RULE, GAN).text))
    assert any(not (a == b).all() for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize(("asked", "there"), [("1.1.0", False), ("1.2.0", True)])
def test_modules_are_frozen_at_once_since_torch_1_2(asked: str, there: bool) -> None:
    found = apply(RULE, GAN, files={"requirements.txt": f"torch=={asked}\n"})
    assert bool(found.fixes) is there
    assert there or "what would be written needs torch 1.2" in found.refusals


def test_with_other_rules() -> None:
    found = apply(f"{RULE} autocast grad-scaler fused-optimizer", GAN)
    assert {OFF, ON} <= set(found.lines) and "with torch.autocast(" in found.text


USED = {
    "stepped": [("    optimizer_g.step()\n", "    optimizer_g.step()\n    optimizer_c.step()\n")],
    "cleared to zeros": [("optimizer_c.zero_grad()", "optimizer_c.zero_grad(set_to_none=False)")],
    "cleared now and then": [("    optimizer_c.zero_grad()", "    if step % 2 == 0:\n        optimizer_c.zero_grad()")],
    "clipped": [("    optimizer_g.step()", "    nn.utils.clip_grad_norm_(critic.parameters(), 1.0)\n    optimizer_g.step()")],
    "read": [("    optimizer_g.step()", "    losses.append(critic[0].weight.grad.norm().item())\n    optimizer_g.step()")],
    "one optimizer for both": [("(generator.parameters(), lr", "([*generator.parameters(), *critic.parameters()], lr")],
    "cleared too late": [("    optimizer_c.zero_grad()\n", ""), ("    optimizer_c.step()", "    optimizer_c.step()\n    optimizer_c.zero_grad()")],
    "another call in between": [("    loss = criterion(", "    other = critic(real)\n    loss = criterion(")],
    "another call by a function": [("losses = []", "losses = []\ndef judge(x):\n    return critic(x)\n"), ("    loss = criterion(", "    other = judge(real)\n    loss = criterion(")],
    "handed to a function": [("losses = []", "losses = []\ndef judge(model, x):\n    return model(x)\n"), ("    loss = criterion(", "    other = judge(critic, real)\n    loss = criterion(")],
    "a layer of it": [("    loss = criterion(", "    other = critic[0](real)\n    loss = criterion(")],
    "its layers in another": [("    loss = criterion(", "    other = nn.Sequential(*critic)(real)\n    loss = criterion(")],
    "its weights": [("    loss = criterion(", "    other = nn.functional.linear(real, critic[0].weight)\n    loss = criterion(")],
    "frozen already": [("    score = ", "    for p in critic.parameters():\n        p.requires_grad = False\n    score = "), ("    optimizer_g.step()", "    for p in critic.parameters():\n        p.requires_grad = True\n    optimizer_g.step()")],
    "used again": [("    loss.backward()\n", "    loss.backward(retain_graph=True)\n    optimizer_c.zero_grad()\n    criterion(score, torch.zeros(5, 1, device=device)).backward()\n    optimizer_c.step()\n")],
    "read by name": [("    optimizer_g.step()", "    losses += [g.sum().item() for g in map(operator.attrgetter('grad'), critic.parameters())]\n    optimizer_g.step()")],
    "read by a text": [("    optimizer_g.step()", "    losses.append(eval('critic[0].weight.grad').sum().item())\n    optimizer_g.step()")],
    "stepped by a method": [("losses = []", "losses = []\ngo = optimizer_c.step"), ("    optimizer_g.step()", "    go()\n    optimizer_g.step()")],
    "frozen by name": [("optimizer_g =", "setattr(critic[0].weight, 'requires_grad', False)\noptimizer_g =")],
    "frozen by a method's name": [("optimizer_g =", "operator.methodcaller('requires_grad_', False)(critic[0])\noptimizer_g =")],
    "partly frozen": [("optimizer_g =", "critic[0].requires_grad_(False)\noptimizer_g =")],
}  # fmt: skip


@pytest.mark.parametrize("why", USED)
def test_left_alone(why: str) -> None:
    assert not apply(RULE, changed(*USED[why])).fixes


@needs_torch
@pytest.mark.parametrize("why", ["stepped", "clipped", "cleared now and then", "cleared too late"])
def test_each_of_these_would_train_otherwise(why: str) -> None:
    text = changed(*USED[why])
    asked = "    weights.append(nn.utils.clip_grad_norm_" if why == "clipped" else ""
    if asked:
        text = text.replace("    nn.utils.clip_grad_norm_(critic.parameters(), 1.0)", "    losses.append(nn.utils.clip_grad_norm_(critic.parameters(), 1.0).item())")  # fmt: skip
    wrong = changed(("    score =", f"    {OFF}\n    score ="), ("    loss.backward()\n", f"    loss.backward()\n    {ON}\n"), text=text)  # fmt: skip
    one, other = run(text), run(wrong)
    assert one["losses"] != other["losses"] or one["weights"] != other["weights"]


REFUSED = {
    "shares layers": [("nn.Linear(8, 4))", "nn.Linear(8, 4), shared)"), ("nn.Sequential(nn.Linear(4, 8)", "nn.Sequential(shared, nn.Linear(4, 8)")],
    "registers a hook": [("losses = []", "losses = []\ncritic[0].register_full_backward_hook(lambda *given: None)")],
    "more parameters": [("losses = []", "losses = []\noptimizer_g.add_param_group({'params': critic.parameters()})")],
    "may be of this model": [("losses = []", "losses = []\noptimizer_g.param_groups[0]['params'].extend(critic.parameters())")],
    "compiles": [("losses = []", "losses = []\ncritic.compile()")],
    "waits for the gradients": [("optimizer_g =", "critic = nn.parallel.DistributedDataParallel(critic)\noptimizer_g =")],
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_refused(why: str) -> None:
    found = apply(RULE, changed(*REFUSED[why]))
    assert not found.fixes and why in found.refusals


def test_not_beside_compile() -> None:
    found = apply(f"{RULE} compile", GAN)
    assert not any(f.rule == RULE for f in found.fixes) and "would be so again" in found.refusals


CRITIC_FIRST = """
import torch
import torch.nn as nn
import torch.utils.checkpoint as cp

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
generator = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4)).to(device)
critic = nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1)).to(device)
optimizer_c = torch.optim.Adam(filter(lambda p: p.requires_grad, critic.parameters()), lr=0.01)
optimizer_g = torch.optim.Adam(generator.parameters(), lr=0.01)
losses, kept = [], []
for step in range(6):
    real = torch.randn(5, 4, device=device)
    for _ in range(2):
        z = torch.randn(5, 3, device=device)
        optimizer_c.zero_grad()
        optimizer_g.zero_grad()
        if step % 2:
            fake = generator(z)
            loss_c = critic(fake).mean() - critic(real).mean()
        else:
            loss_c = critic(real).exp().mean() - critic(generator(z)).mean()
        loss_c.backward()
        optimizer_c.step()
    z = torch.randn(5, 3, device=device)
    optimizer_c.zero_grad()
    optimizer_g.zero_grad()
    loss_g = -critic(generator(z)).mean()
    loss_g.backward()
    optimizer_g.step()
    losses += [loss_c.item(), loss_g.item()]
weights = [p.tolist() for m in (generator, critic) for p in m.parameters()]
"""
FAKE, BACK = "            fake = generator(z)\n", "        loss_c.backward()\n"


@needs_torch
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ("critic = nn.Sequential(", "critic = nn.Sequential(nn.ReLU(inplace=True), "),
        (FAKE, f"{FAKE}            kept.append(fake)\n"),
        (FAKE, f"{FAKE}            fake = (fake, z)[0]\n"),
        ("        optimizer_g.zero_grad()\n        if", "        if"),
    ],
)
def test_what_the_critic_is_given_is_detached(old: str, new: str) -> None:
    """Where a backward of another model's goes on through the one that made it."""
    text = changed((old, new), text=CRITIC_FIRST)
    found = apply(RULE, text)
    assert "fake = generator(z).detach()" in found.text and len(found.fixes) == 2
    assert "loss_c = critic(real).exp().mean() - critic(generator(z).detach()).mean()" in found.text
    before, after = run(text), run(found.text)
    assert before["losses"] == after["losses"] and before["weights"] == after["weights"]


ONCE = "    optimizer_c.zero_grad()\n    optimizer_g.zero_grad()\n    loss_g"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # its gradients are used: added to those of the next backward, read, clipped, stepped with
        (ONCE, "    optimizer_c.zero_grad()\n    loss_g"),
        ("optimizer_g.zero_grad()", "optimizer_g.zero_grad(set_to_none=False)"),
        (BACK, f"{BACK}        losses.append(generator[0].weight.grad.sum().item())\n"),
        (BACK, f"{BACK}        nn.utils.clip_grad_norm_(generator.parameters(), 1)\n"),
        (BACK, f"{BACK}        optimizer_g.step()\n"),
        # another backward goes through the same results
        (BACK, "        loss_c.backward(retain_graph=True)\n        loss_c.backward()\n"),
        (BACK, f"{BACK}        again = fake.mean()\n        again.backward()\n"),
        (BACK, f"{BACK}        kept.append(fake.mean())\n        kept.pop().backward()\n"),
        (f"{BACK}        optimizer_c.step()\n", "        def closure():\n            loss_c.backward()\n            return loss_c\n        optimizer_c.step(closure)\n"),
        # somebody asks for their graph, or for a gradient of them
        (FAKE, f"{FAKE}            losses.append(float(fake.requires_grad))\n"),
        (FAKE, f"{FAKE}            fake.retain_grad()\n"),
        (FAKE, f"{FAKE}            losses.append(torch.autograd.grad(critic(fake).sum(), fake)[0].sum().item())\n"),
        (FAKE, f"{FAKE}            fake.register_hook(lambda g: losses.append(g.sum().item()))\n"),
        ("critic(fake)", "cp.checkpoint(critic, fake, use_reentrant=True)"),
        # what it is given needs one
        ("        z = torch.randn(5, 3, device=device)", "        z = torch.randn(5, 3, device=device, requires_grad=True)"),
        (FAKE, f"            z.requires_grad_()\n{FAKE}"),
        # it may be frozen then, and there is nothing to detach
        (FAKE, f"            for p in generator.parameters():\n                p.requires_grad = False\n{FAKE}"),
        # layers that learn by this backward
        ("critic = nn.Sequential(", "critic = nn.Sequential(nn.Linear(4, 8), *generator[1:], "),
    ],
)  # fmt: skip
def test_what_the_critic_is_given_stays(old: str, new: str) -> None:
    found = apply(RULE, changed((old, new), text=CRITIC_FIRST))
    assert "fake = generator(z).detach()" not in found.text, found.lines


@needs_torch
@needs_torch
def test_one_word_in_place_of_two_lines() -> None:
    """A generator whose gradients are dropped could be frozen, too."""
    text = changed(("critic(fake.detach())", "critic(generator(noise))"), ("    first.backward()\n", ""), ("second.backward()", "(first + second).backward()"))  # fmt: skip
    found = apply(RULE, text)
    assert "critic(generator(noise).detach())" in found.text
    assert "generator.requires_grad_" not in found.text and OFF in found.text
    before, after = run(text), run(found.text)
    assert before["losses"] == after["losses"] and before["weights"] == after["weights"]


@needs_torch
def test_a_loss_from_which_nobody_learns_keeps_a_gradient() -> None:
    text = changed(("    optimizer_g.step()\n", ""), text=CRITIC_FIRST)
    found = apply(RULE, text)
    assert "loss_g = -critic(generator(z)).mean()" in found.text
    assert run(text)["losses"] == run(found.text)["losses"]


def test_a_parameter_that_both_models_have_by_hand() -> None:
    """Of the generator's gradient, a part goes through the critic's layer."""
    tied = GAN.replace("optimizer_g = ", "critic[0].bias = generator[0].bias\noptimizer_g = ", 1)
    done = apply(RULE, tied)
    assert not done.fixes and "the parameter of another" in done.refusals


@needs_torch
@pytest.mark.parametrize("asked", ["critic[0].weight", "list(critic.parameters())"])
def test_gradients_of_the_critic_that_are_asked_for(asked: str) -> None:
    text = GAN.replace(
        "    loss.backward()\n",
        f"    slope = torch.autograd.grad(loss, {asked}, retain_graph=True)[0].norm()\n    loss.backward()\n",
    )
    done = apply(RULE, text)
    assert not done.fixes
    assert run(done.text)["losses"] == run(text)["losses"]
