"""grad-scaler: where the scaler is made, how it gets everywhere, when it is updated, and when there is none."""

from __future__ import annotations

import pytest
import torch

from tests.amp import HEAD, LOOP, amp, close, script, trained, weights
from tests.onerule import Applied

MADE = 'scaler = torch.amp.GradScaler("cuda", enabled=amp_dtype() == torch.float16)'


def same(text: str, tolerance: float = 0.02, files: dict[str, str] | None = None) -> Applied:
    """Rewrite for the CPU in fp16 and compare with the original; the form for a CUDA machine must change nothing without a GPU."""
    done = amp(text, target="cpu", precision="fp16", files=files)
    assert any(f.rule == "grad-scaler" for f in done.fixes), done.refusals
    before, after = trained(done.before), trained(done.text)
    assert close(before["losses"], after["losses"], tolerance), (before["losses"], after["losses"])
    assert torch.allclose(weights(before), weights(after), atol=0.02)
    cuda = trained(amp(text).text)
    assert cuda["losses"] == before["losses"] and torch.equal(weights(before), weights(cuda))
    return done


def refused(text: str, precision: str = "auto") -> str:
    done = amp(text, precision=precision)
    assert not any(f.rule == "grad-scaler" for f in done.fixes)
    return "; ".join(f.refusal for f in done.findings if f.rule == "grad-scaler")


# ------------------------------------------------------------------------------------------------ the way of the scaler
def test_beside_the_optimizer():
    done = same(script())
    assert 'optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nscaler = torch.amp.GradScaler("cpu")\n' in done.text
    assert MADE in amp(script()).lines
    wanted = ["scaler.scale(loss).backward()", "scaler.step(optimizer)", "scaler.update()"]
    assert wanted == [line for line in done.lines if line[:7] == "scaler."]


def test_through_parameters():
    loop = """
def one(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

def train(model, opt, *, batches=6):
    for i in range(batches):
        one(model, opt, X[i].to(device), Y[i].to(device))

def build(net):
    return torch.optim.SGD(net.parameters(), lr=0.1)

def main():
    sgd = build(model)
    train(model, sgd)
    train(model, opt=sgd, batches=3)

main()
"""
    done = same(script(loop, HEAD.replace("optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n", "")))
    assert "def one(model, optimizer, x, y, scaler):" in done.lines
    assert 'sgd = build(model)\n    scaler = torch.amp.GradScaler("cpu")' in done.text
    assert "train(model, opt=sgd, batches=3, scaler=scaler)" in done.lines


def test_as_an_attribute():
    text = (
        HEAD
        + """
class Trainer:
    def __init__(self, net):
        self.net, self.opt = net.to(device), None

    def setup(self):
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def backward(self, loss):
        loss.backward()

    def step(self, x, y):
        self.opt.zero_grad()
        loss = criterion(self.net(x), y)
        self.backward(loss)
        self.opt.step()
        return loss.item()

trainer = Trainer(model)
trainer.setup()
for i in range(6):
    losses.append(trainer.step(X[i].to(device), Y[i].to(device)))
"""
    )
    done = same(text)
    assert 'self.scaler = torch.amp.GradScaler("cpu")' in done.lines and "self.scaler.scale(loss).backward()" in done.lines


def test_an_optimizer_that_is_given_to_a_trainer():
    text = (
        HEAD
        + """
class Trainer:
    def __init__(self, net, opt):
        self.net = net
        self.opt = opt

    def step(self, x, y):
        self.opt.zero_grad()
        loss = criterion(self.net(x), y)
        loss.backward()
        self.opt.step()
        return loss.item()

trainer = Trainer(model, optimizer)
for i in range(6):
    losses.append(trainer.step(X[i].to(device), Y[i].to(device)))
"""
    )
    assert 'self.opt = opt\n        self.scaler = torch.amp.GradScaler("cpu")' in same(text).text


def test_one_of_several_optimizers():
    head = HEAD.replace(
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
        'name = "sgd"\nif name == "adam":\n    optimizer = torch.optim.Adam(model.parameters())\nelse:\n    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)',
    )
    done = same(script(head=head))
    assert '\nscaler = torch.amp.GradScaler("cpu")' in done.text


def test_a_new_optimizer_for_each_fold():
    loop = """
for fold in range(2):
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i in range(3):
        optimizer.zero_grad()
        loss = criterion(model(X[i].to(device)), Y[i].to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
"""
    done = same(script(loop, HEAD.replace("optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n", "")))
    assert '    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n    scaler = torch.amp.GradScaler("cpu")\n' in done.text


def test_in_another_file():
    lib = """
    def step(model, optimizer, criterion, x, y):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        return loss
    """
    loop = "\nfrom lib import step\nfor i in range(6):\n    losses.append(step(model, optimizer, criterion, X[i].to(device), Y[i].to(device)).item())\n"
    done = amp(script(loop), files={"lib.py": lib})
    assert "def step(model, optimizer, criterion, x, y, scaler):" in done.texts["lib.py"]
    assert "import torch" in done.texts["lib.py"] and "def amp_dtype" in done.texts["lib.py"]
    assert "scaler=scaler" in done.text and MADE in done.lines


# ------------------------------------------------------------------------------------------------ when it is updated
def test_accumulation_updates_with_the_step():
    loop = """
optimizer.zero_grad()
for i in range(6):
    loss = criterion(model(X[i].to(device)), Y[i].to(device)) / 2
    loss.backward()
    if (i + 1) % 2 == 0:
        optimizer.step()
        optimizer.zero_grad()
    losses.append(loss.item())
"""
    done = same(script(loop))
    assert "        scaler.step(optimizer)\n        scaler.update()\n        optimizer.zero_grad()" in done.text


TWO = """
other = Net().to(device)
opt_a, opt_b = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.SGD(other.parameters(), lr=0.1)
for i in range(6):
    x, y = X[i].to(device), Y[i].to(device)
    opt_a.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    opt_a.step()
    opt_b.zero_grad()
    loss_b = criterion(other(x), y)
    loss_b.backward()
    {step}
    losses.append(loss.item() + loss_b.item())
"""


def test_several_optimizers_have_one_update():
    done = same(script(TWO.format(step="opt_b.step()")))
    assert done.text.count(".update()") == 1 and "    scaler.step(opt_b)\n    scaler.update()\n" in done.text


def test_a_conditional_step_is_followed_by_the_update():
    done = same(script(TWO.format(step="if i % 2:\n        opt_b.step()")))
    assert "        scaler.step(opt_b)\n    scaler.update()\n" in done.text


def test_exclusive_branches_update_in_each():
    loop = LOOP.replace(
        "    optimizer.step()", "    if i % 2:\n        optimizer.step()\n    else:\n        optimizer.step()\n        x = None"
    )
    done = same(script(loop))
    assert done.text.count("scaler.update()") == 2


def test_an_inner_loop_of_its_own():
    loop = """
other = Net().to(device)
opt_b = torch.optim.SGD(other.parameters(), lr=0.1)
for i in range(3):
    for j in range(2):
        opt_b.zero_grad()
        loss_b = criterion(other(X[j].to(device)), Y[j].to(device))
        loss_b.backward()
        opt_b.step()
    optimizer.zero_grad()
    loss = criterion(model(X[i].to(device)), Y[i].to(device))
    loss.backward()
    optimizer.step()
    losses.append(loss.item() + loss_b.item())
"""
    assert same(script(loop)).text.count("scaler.update()") == 2


def test_a_skipped_step_does_no_harm():
    loop = LOOP.replace("loss = criterion(model(x), y)", "loss = criterion(model(x), y) * (1e6 if i == 2 else 1)")
    done = amp(script(loop), target="cpu", precision="fp16")
    scope = trained(done.text)
    assert torch.isfinite(weights(scope)).all() and scope["scaler"].get_scale() < 256


# ------------------------------------------------------------------------------------------------ checkpoints
SAVE = """
import io
file = io.BytesIO()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 6}, file)
file.seek(0)
checkpoint = torch.load(file)
model.load_state_dict(checkpoint["model"])
optimizer.load_state_dict(checkpoint["optimizer"])
"""


def test_the_state_is_saved_and_loaded():
    done = same(script(LOOP + SAVE + LOOP))
    assert '"scaler": scaler.state_dict()' in done.text
    assert 'if checkpoint.get("scaler"):\n    scaler.load_state_dict(checkpoint["scaler"])' in done.text
    assert set(trained(done.text)["checkpoint"]) == {"model", "optimizer", "step", "scaler"}


def test_old_checkpoints_and_those_of_a_disabled_scaler_load():
    done = amp(script(SAVE + LOOP), target="cpu", precision="fp16")
    assert trained(done.text.replace(', "scaler": scaler.state_dict()', ""))["losses"]
    assert trained(done.text.replace('"scaler": scaler.state_dict()', '"scaler": {}'))["losses"]


def test_a_checkpoint_that_takes_no_other_keys():
    text = script(LOOP + "def restore(model, optimizer, step): pass\n" + SAVE + "restore(**checkpoint)\n")
    done = amp(text, target="cpu", precision="fp16")
    assert "scaler.state_dict" not in done.text and trained(done.text)["losses"]


def test_state_in_a_function_that_gets_the_optimizer():
    loop = (
        """
def save(model, optimizer):
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

"""
        + LOOP
        + "state = save(model, optimizer)\n"
    )
    assert '"scaler": scaler.state_dict()' in same(script(loop)).text


# ------------------------------------------------------------------------------------------------ refusals
def changed(old: str, new: str, text: str | None = None) -> str:
    text = text or script()
    assert old in text
    return text.replace(old, new)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (changed("    optimizer.step()", "    for p in model.parameters():\n        p.data -= 0.1 * p.grad"), "no optimizer is stepped"),
        (
            changed(
                "    optimizer.step()",
                "    if i:\n        optimizer.step()\n    else:\n        for p in model.parameters():\n            p.data -= 0.1 * p.grad",
            ),
            "reads gradients",
        ),
        (changed("    loss.backward()", "    loss.backward(torch.ones(()))"), "not the plain"),
        (changed("    loss.backward()", "    done = loss.backward()"), "part of an expression"),
        (changed("    optimizer.step()", "    done = optimizer.step()"), "part of an expression"),
        (
            changed("    optimizer.step()", "    if i % 2:\n        optimizer.step()\n    if i % 3:\n        optimizer.step()"),
            "depend on conditions",
        ),
        (
            changed("    optimizer.step()", "    optimizer.step()\n    if i == 3:\n        continue\n    opt_b.step()").replace(
                "losses = []", "losses = []\nopt_b = torch.optim.SGD(model.parameters(), lr=0.0)"
            ),
            "may leave the iteration",
        ),
        (
            changed(
                "    optimizer.step()",
                "    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n    if i % 2:\n        optimizer.step()",
            ),
            "without an update",
        ),
        (
            changed("optimizer = torch", "optimizers = {}\noptimizers['a'] = torch").replace("optimizer.", "optimizers['a']."),
            "into a variable first",
        ),
        (
            changed(
                "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
                "def make():\n    global optimizer\n    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nmake()",
            ),
            "global",
        ),
        (
            changed(
                "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
                """class Scheduled:
    def __init__(self, inner):
        self.inner = inner

    def step(self):
        self.inner.step()

    def zero_grad(self):
        self.inner.zero_grad()

optimizer = Scheduled(torch.optim.SGD(model.parameters(), lr=0.1))""",
            ),
            "cannot be brought to",
        ),
        (changed("torch.relu(self.a(x))", "self.a(x).masked_fill(x.sum(1, keepdim=True) > 99, -1e9)"), "fp16 cannot hold -1e+09"),
    ],
)
def test_refused(text: str, why: str):
    assert why in refused(text), refused(text)


def test_bf16_needs_none():
    done = amp(script(), precision="bf16")
    assert done.fixes and "GradScaler" not in done.text and refused(script(), "bf16") == ""


def test_nothing_without_autocast():
    done = amp(script(), rules="grad-scaler")
    assert not done.fixes


def test_already_there():
    text = changed("losses = []", 'losses = []\nscaler = torch.amp.GradScaler("cuda", enabled=False)').replace(
        "    loss.backward()\n    optimizer.step()", "    scaler.scale(loss).backward()\n    scaler.step(optimizer)\n    scaler.update()"
    )
    done = amp(text)
    assert not any(f.rule == "grad-scaler" for f in done.fixes)
    assert all("has_bf16" in line or "autocast" in line or "GradScaler" not in line for line in done.lines)
