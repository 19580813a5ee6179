"""unscale-before-clip: where the unscale comes, alone and together with a new scaler."""

from __future__ import annotations

import pytest
import torch

from autofast.rule import Effect
from tests.amp import HEAD, LOOP, amp, close, faked, script, trained, weights
from tests.onerule import apply

RULE = "unscale-before-clip"
CLIP = "torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)"
SCALED = (
    HEAD.replace("losses = []", 'losses = []\nscaler = torch.amp.GradScaler("cpu")')
    + f"""
for i in range(6):
    x, y = X[i].to(device), Y[i].to(device)
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    scaler.scale(loss).backward()
    {CLIP}
    scaler.step(optimizer)
    scaler.update()
    losses.append(loss.item())
"""
)


def changed(old: str, new: str, text: str = SCALED) -> str:
    assert old in text
    return text.replace(old, new)


def test_a_forgotten_unscale_is_mended():
    done = apply(RULE, SCALED)
    assert done.lines == ["scaler.unscale_(optimizer)"]
    plain = trained(
        script(LOOP.replace("    optimizer.step()", f"    {CLIP}\n    optimizer.step()"))
    )
    broken, mended = trained(done.before), trained(done.text)
    start = trained(HEAD)
    assert (weights(mended) - weights(plain)).norm() < 1e-5
    assert (weights(broken) - weights(start)).norm() < 0.1 * (
        weights(plain) - weights(start)
    ).norm()
    assert [(f.message[:6], f.effect) for f in done.fixes] == [("a bug:", Effect.RECIPE)]


@pytest.mark.parametrize(
    "text",
    [
        changed(f"    {CLIP}", f"    scaler.unscale_(optimizer)\n    {CLIP}"),
        changed(
            f"    {CLIP}\n    scaler.step(optimizer)",
            f"    scaler.unscale_(optimizer)\n    if i:\n        {CLIP}\n    scaler.step(optimizer)",
        ),
        changed(f"    {CLIP}\n", ""),
        changed("scaler.scale(loss)", "loss")
        .replace("scaler.step(optimizer)", "optimizer.step()")
        .replace("scaler.update()", "pass"),
        changed(
            f"    {CLIP}\n    scaler.step(optimizer)", f"    scaler.step(optimizer)\n    {CLIP}"
        ),
        changed(
            "    optimizer.zero_grad()",
            "    for p in model.parameters():\n        if p.grad is not None:\n            p.grad.zero_()",
        ).replace(f"    {CLIP}\n", ""),
    ],
)
def test_nothing_to_mend(text: str):
    assert not apply(RULE, text).fixes


def test_only_the_branch_with_the_scaler():
    text = changed(
        f"    scaler.scale(loss).backward()\n    {CLIP}\n    scaler.step(optimizer)\n    scaler.update()\n",
        f"""    if use_amp:
        scaler.scale(loss).backward()
        {CLIP}
        scaler.step(optimizer)
        scaler.update()
    else:
        loss.backward()
        {CLIP}
        optimizer.step()
""",
    ).replace("losses = []", "import sys\nuse_amp = len(sys.argv) < 99\nlosses = []")
    done = apply(RULE, text)
    assert done.lines == ["scaler.unscale_(optimizer)"] and done.text.count("unscale_") == 1
    assert f"        scaler.unscale_(optimizer)\n        {CLIP}\n        scaler.step" in done.text


def test_in_a_method():
    text = (
        HEAD
        + f"""
class Trainer:
    def __init__(self):
        self.scaler = torch.amp.GradScaler("cpu")
        self.opt = optimizer

    def step(self, x, y):
        self.opt.zero_grad()
        loss = criterion(model(x), y)
        self.scaler.scale(loss).backward()
        if len(x):
            {CLIP}
        self.scaler.step(self.opt)
        self.scaler.update()

trainer = Trainer()
for i in range(6):
    trainer.step(X[i].to(device), Y[i].to(device))
"""
    )
    done = apply(RULE, text)
    assert "self.scaler.unscale_(self.opt)\n        if len(x):" in done.text
    trained(done.text)


def test_a_step_that_comes_more_rarely_is_refused():
    text = changed(
        "    scaler.step(optimizer)\n    scaler.update()",
        "    if i % 2:\n        scaler.step(optimizer)\n        scaler.update()",
    )
    assert "depends on a condition" in apply(RULE, text).refusals


# -------------------------------------------------------------------------------- with a new scaler
@pytest.mark.parametrize(
    ("read", "before"),
    [
        (CLIP, CLIP),
        ("nn.utils.clip_grad_value_(model.parameters(), 0.5)", "nn.utils.clip_grad_value_"),
        ("if i:\n        " + CLIP, "if i:"),
        ("norm = sum(p.grad.norm() for p in model.parameters())", "norm ="),
        ("for p in model.parameters():\n        p.grad.clamp_(-0.1, 0.1)", "for p in"),
        ("clip(model)", "clip(model)"),
    ],
)
def test_before_whatever_reads_gradients(read: str, before: str):
    head = (
        HEAD + "\ndef clip(net):\n    for p in net.parameters():\n        p.grad.data.mul_(0.5)\n"
    )
    text = head + LOOP.replace("    optimizer.step()", f"    {read}\n    optimizer.step()")
    done = amp(text, target="cpu", precision="fp16")
    assert f"    scaler.unscale_(optimizer)\n    {before}" in done.text
    assert {f.rule for f in done.fixes} == {"autocast", "grad-scaler", RULE}
    old, new = trained(done.before), trained(done.text)
    assert close(old["losses"], new["losses"]) and torch.allclose(
        weights(old), weights(new), atol=0.02
    )


def test_the_scaler_unscales_also_where_this_rule_is_not_selected():
    text = script(LOOP.replace("    optimizer.step()", f"    {CLIP}\n    optimizer.step()"))
    assert amp(text).text == amp(text, rules="autocast grad-scaler").text
    assert not amp(text, rules=f"{RULE} autocast").text.count("unscale_")


def test_two_clips_before_one_step_are_one_unscale():
    text = script(
        LOOP.replace("    optimizer.step()", f"    {CLIP}\n    {CLIP}\n    optimizer.step()")
    )
    assert amp(text).text.count("unscale_") == 1


def test_reading_after_the_step_is_fine():
    text = script(
        LOOP.replace(
            "    optimizer.step()", "    optimizer.step()\n    norm = model.a.weight.grad.norm()"
        )
    )
    done = amp(text, target="cpu", precision="fp16")
    assert "unscale_" not in done.text
    assert float(trained(done.text)["norm"]) == pytest.approx(
        float(trained(done.before)["norm"]), rel=0.05
    )


def test_each_optimizer_is_unscaled_before_its_own_clip():
    text = script("""
other = Net().to(device)
opt_b = torch.optim.SGD(other.parameters(), lr=0.1)
for i in range(6):
    optimizer.zero_grad()
    opt_b.zero_grad()
    loss = criterion(other(X[i].to(device)) + model(X[i].to(device)), Y[i].to(device))
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    nn.utils.clip_grad_norm_(other.parameters(), 0.1)
    optimizer.step()
    opt_b.step()
    losses.append(loss.item())
""")
    done = amp(text, target="cpu", precision="fp16")
    assert "    scaler.unscale_(optimizer)\n    nn.utils.clip_grad_norm_(model" in done.text
    assert "    scaler.unscale_(opt_b)\n    nn.utils.clip_grad_norm_(other" in done.text
    assert close(trained(done.before)["losses"], trained(done.text)["losses"])


TWO = """
other = Net().to(device)
rest = list(other.parameters())
opt_b = torch.optim.SGD(rest, lr=0.1)
scaler = torch.amp.GradScaler("cpu")
for i in range(6):
    optimizer.zero_grad()
    opt_b.zero_grad()
    loss = criterion(other(X[i].to(device)) + model(X[i].to(device)), Y[i].to(device))
    scaler.scale(loss).backward()
    nn.utils.clip_grad_norm_({both}, 0.1)
    scaler.step(optimizer)
    scaler.step(opt_b)
    scaler.update()
    losses.append(loss.item())
"""
BOTH = [
    "list(model.parameters()) + rest",
    "[*model.parameters(), *rest]",
    "[p for net in (model, other) for p in net.parameters()]",
    "itertools.chain(model.parameters(), rest)",
]


@pytest.mark.parametrize("both", BOTH)
@pytest.mark.parametrize("own", [True, False])
def test_a_clip_of_two_optimizers_unscales_both(both: str, own: bool):
    """Also where the second one's parameters come by a variable: half of them would be clipped
    while they are scaled.
    """
    text = "import itertools\n" + script(TWO.format(both=both))
    plain = text.replace("scaler.scale(loss)", "loss").replace("scaler.update()", "pass")
    for name in ("optimizer", "opt_b"):
        plain = plain.replace(f"scaler.step({name})", f"{name}.step()")
    plain = plain.replace('scaler = torch.amp.GradScaler("cpu")\n', "")
    if own:
        done = apply(RULE, text)
    else:
        done = amp(plain, target="cpu", precision="fp16")
    found = [line for line in done.lines if "unscale_" in line]
    assert sorted(found) == ["scaler.unscale_(opt_b)", "scaler.unscale_(optimizer)"]
    after, before = trained(done.text), trained(plain)
    assert close(before["losses"], after["losses"], 0.02)


READ = """
def check(model):
    total = 0
    for p in model.parameters():
        total = total + p.grad.norm()
    seen.append(total.item())

"""


@pytest.mark.parametrize("below", [True, False])
def test_the_first_place_that_runs_is_unscaled_wherever_it_stands(below: bool):
    """``check`` reads gradients before they are clipped; its text stands above the loop or
    below.
    """
    train = """
def train():
    for i in range(6):
        x, y = X[i].to(device), Y[i].to(device)
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        scaler.scale(loss).backward()
        check(model)
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()

"""
    parts = (train, READ) if below else (READ, train)
    head = 'seen = []\nscaler = torch.amp.GradScaler("cpu")\n'
    done = apply(RULE, script(head + "".join(parts) + "train()\n"))
    assert "scaler.unscale_(optimizer)\n        check(model)\n" in done.text


# ------------------------------------------------------------------------------- what is left alone
SECOND = """    second = criterion(model((x + 0.1 * x.grad.sign()).detach()), y)
    scaler.scale(second).backward()
"""


def test_input_gradients_are_no_reason_to_unscale():
    text = changed(f"    {CLIP}\n", SECOND).replace(
        "X[i].to(device)", "X[i].to(device).requires_grad_()"
    )
    done = apply(RULE, text)
    assert done.text == done.before and not done.refusals and not faked(done)


@pytest.mark.parametrize(
    "read",
    [
        "if model.a.weight.grad is None:\n        continue",
        "model.a.weight.grad.zero_()",
        "shape = model.a.weight.grad.shape",
        "x.grad = None",
    ],
)
def test_what_does_not_depend_on_the_scale(read: str):
    assert not apply(RULE, changed(f"    {CLIP}", f"    {read}")).fixes


@pytest.mark.parametrize(
    "text",
    [
        # another backward adds to what would be unscaled
        changed(f"    {CLIP}", f"    {CLIP}\n    scaler.scale(criterion(model(x), y)).backward()"),
        changed(
            f"    scaler.scale(loss).backward()\n    {CLIP}",
            f"    for part in range(2):\n        scaler.scale(criterion(model(x), y)).backward()\n        {CLIP}",
        ),
        # the update may be left out
        changed(f"    {CLIP}", f"    if {CLIP} > 1e9:\n        continue"),
        changed(
            f"    {CLIP}\n    scaler.step(optimizer)",
            f"    norm = {CLIP}\n    if not torch.isfinite(norm):\n        continue\n    scaler.step(optimizer)",
        ),
        changed(
            f"    {CLIP}",
            f"    norm = {CLIP}\n    if i == 3:\n        optimizer.zero_grad()\n        continue",
        ),
    ],
)
def test_refused_where_it_would_be_unscaled_twice(text: str):
    done = apply(RULE, text)
    assert not done.fixes and done.refusals and done.text == done.before


def test_a_break_that_ends_the_training_does_no_harm():
    text = changed(f"    {CLIP}", f"    norm = {CLIP}\n    if norm > 1e9:\n        break")
    assert apply(RULE, text).lines == ["scaler.unscale_(optimizer)"]
