"""grad-scaler: where the scaler is made, how it gets everywhere, when it is updated, and when there
is none.
"""

from __future__ import annotations

import pytest
import torch

from tests.amp import HEAD, LOOP, amp, close, faked, script, trained, weights
from tests.onerule import Applied

DTYPE = "amp_dtype = torch.bfloat16 if has_bf16 else torch.float16"
MADE = 'scaler = torch.amp.GradScaler("cuda", enabled=device.type == "cuda" and amp_dtype == torch.float16)'


def same(text: str, tolerance: float = 0.02, files: dict[str, str] | None = None) -> Applied:
    """Rewrite for the CPU in fp16 and compare with the original; the form for a CUDA machine must
    change nothing without a GPU.
    """
    done = amp(text, target="cpu", precision="fp16", files=files)
    assert any(f.rule == "grad-scaler" for f in done.fixes), done.refusals
    before, after = trained(done.before), trained(done.text)
    assert close(before["losses"], after["losses"], tolerance), (before["losses"], after["losses"])
    assert torch.allclose(weights(before), weights(after), atol=0.02)
    cuda = trained(amp(text).text)
    assert cuda["losses"] == before["losses"] and torch.equal(weights(before), weights(cuda))
    return done


def refused(text: str, precision: str = "either") -> str:
    done = amp(text, precision=precision)
    assert not any(f.rule == "grad-scaler" for f in done.fixes)
    return "; ".join(f.refusal for f in done.findings if f.rule == "grad-scaler")


# ---------------------------------------------------------------------------- the way of the scaler
def test_beside_the_optimizer():
    done = same(script())
    assert (
        'optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nscaler = torch.amp.GradScaler("cpu")\n'
        in done.text
    )
    assert MADE in amp(script()).lines
    wanted = ["scaler.scale(loss).backward()", "scaler.step(optimizer)", "scaler.update()"]
    assert wanted == [line for line in done.lines if line[:7] == "scaler."]


def test_a_method_of_the_project_that_is_called_like_a_hook_of_torchs():
    text = (
        script()
        + """

class Runner:
    def __init__(self):
        self.hooks = []

    def register_hook(self, hook):
        self.hooks.append(hook)


runner = Runner()
runner.register_hook(print)
"""
    )
    same(text)


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
    done = same(
        script(loop, HEAD.replace("optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n", ""))
    )
    assert (
        "def one(model, optimizer, x, y, scaler=torch.amp.GradScaler(enabled=False)):" in done.lines
    )
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
    assert (
        'self.scaler = torch.amp.GradScaler("cpu")' in done.lines
        and "self.scaler.scale(loss).backward()" in done.lines
    )


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
    done = same(
        script(loop, HEAD.replace("optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n", ""))
    )
    assert (
        '    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n    scaler = torch.amp.GradScaler("cpu")\n'
        in done.text
    )


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
    assert "x, y, scaler=torch.amp.GradScaler(enabled=False)" in done.texts["lib.py"]
    assert "dtype=amp_dtype" in done.texts["lib.py"]
    assert all(text.count("amp_dtype = ") == 1 for text in (done.texts["lib.py"], done.text))
    assert "scaler=scaler" in done.text and ".GradScaler(" in done.text


# ------------------------------------------------------------------------------- when it is updated
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
    assert (
        "        scaler.step(optimizer)\n        scaler.update()\n        optimizer.zero_grad()"
        in done.text
    )


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
    assert (
        done.text.count(".update()") == 1
        and "    scaler.step(opt_b)\n    scaler.update()\n" in done.text
    )


def test_a_conditional_step_is_followed_by_the_update():
    done = same(script(TWO.format(step="if i % 2:\n        opt_b.step()")))
    assert "        scaler.step(opt_b)\n    scaler.update()\n" in done.text


def test_exclusive_branches_update_in_each():
    loop = LOOP.replace(
        "    optimizer.step()",
        "    if i % 2:\n        optimizer.step()\n    else:\n        optimizer.step()\n        x = None",
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
    loop = LOOP.replace(
        "loss = criterion(model(x), y)", "loss = criterion(model(x), y) * (1e6 if i == 2 else 1)"
    )
    done = amp(script(loop), target="cpu", precision="fp16")
    scope = trained(done.text)
    assert torch.isfinite(weights(scope)).all() and scope["scaler"].get_scale() < 256


# -------------------------------------------------------------------------------------- checkpoints
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
    assert (
        'if checkpoint.get("scaler"):\n    scaler.load_state_dict(checkpoint["scaler"])'
        in done.text
    )
    assert set(trained(done.text)["checkpoint"]) == {"model", "optimizer", "step", "scaler"}


def test_old_checkpoints_and_those_of_a_disabled_scaler_load():
    done = amp(script(SAVE + LOOP), target="cpu", precision="fp16")
    assert trained(done.text.replace(', "scaler": scaler.state_dict()', ""))["losses"]
    assert trained(done.text.replace('"scaler": scaler.state_dict()', '"scaler": {}'))["losses"]


def test_a_checkpoint_that_takes_no_other_keys():
    text = script(
        LOOP + "def restore(model, optimizer, step): pass\n" + SAVE + "restore(**checkpoint)\n"
    )
    done = amp(text, target="cpu", precision="fp16")
    assert "scaler.state_dict" not in done.text and trained(done.text)["losses"]


FOLDER = "import tempfile\nfolder = tempfile.mkdtemp()\n"


def test_state_in_a_function_that_gets_the_optimizer():
    loop = (
        """
def save(model, optimizer):
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

"""
        + LOOP
        + 'torch.save(save(model, optimizer), folder + "/a.pt")\n'
        + 'saved = torch.load(folder + "/a.pt")\noptimizer.load_state_dict(saved["optimizer"])\n'
    )
    loop = FOLDER + loop
    assert '"scaler": scaler.state_dict()' in same(script(loop)).text


PARTS = """
saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
parts = {"model": model, "optimizer": optimizer}
for name, state in saved.items():
    parts[name].load_state_dict(state)
"""
REPORT = """
def show(optimizer):
    print(len(optimizer))


report = dict(optimizer=optimizer.state_dict())
show(**report)
"""
NAMES = """
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder + "/a.pt")
saved = torch.load(folder + "/a.pt")
optimizer.load_state_dict(saved["optimizer"])
for key, value in saved.items():
    assert key in ("model", "optimizer")
"""
LISTED = """
torch.save(optimizer.state_dict(), folder + "/o.pt")
saved = [None, torch.load(folder + "/o.pt")]
optimizer.load_state_dict(saved[1])
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder + "/a.pt")
"""


@pytest.mark.parametrize("rest", [PARTS, REPORT, NAMES])
def test_states_that_are_not_saved_or_whose_keys_are_counted(rest: str):
    done = amp(script(FOLDER + LOOP + rest), target="cpu", precision="fp16")
    assert "scaler.step(optimizer)" in done.text and "scaler.state_dict()" not in done.text
    assert trained(done.text)["losses"]


def test_states_in_a_list():
    done = amp(script(FOLDER + LOOP + LISTED), target="cpu", precision="fp16")
    assert "saved.get(" not in done.text and trained(done.text)["losses"]


STATES_BY_FUNCTIONS = """
def keep(state, best, path):
    torch.save(state, path)
    if best:
        print(state["epoch"])


state = {"epoch": 3, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
keep(state, True, path=folder + "/a.pt")
checkpoint = torch.load(folder + "/a.pt")
optimizer.load_state_dict(checkpoint["optimizer"])
"""


def test_a_state_that_a_function_saves():
    done = amp(script(FOLDER + LOOP + STATES_BY_FUNCTIONS), target="cpu", precision="fp16")
    assert '"scaler": scaler.state_dict()' in done.text and trained(done.text)["losses"]


@pytest.mark.parametrize(
    "clip",
    [
        "nn.utils.clip_grad_norm_(model.parameters(), 1.0, 2.0, True)",
        "nn.utils.clip_grad_norm_(parameters=model.parameters(), max_norm=1.0, error_if_nonfinite=True)",
        "nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)",
    ],
)
def test_a_clip_that_raises_on_overflow(clip: str):
    loop = LOOP.replace("    optimizer.step()", f"    {clip}\n    optimizer.step()")
    assert "raises where gradients overflow" in refused(script(loop))


# ----------------------------------------------------------------------------------------- refusals
def changed(old: str, new: str, text: str | None = None) -> str:
    text = text or script()
    assert old in text
    return text.replace(old, new)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            changed(
                "    optimizer.step()",
                "    for p in model.parameters():\n        p.data -= 0.1 * p.grad",
            ),
            "no optimizer is stepped",
        ),
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
            changed(
                "    optimizer.step()",
                "    if i % 2:\n        optimizer.step()\n    if i % 3:\n        optimizer.step()",
            ),
            "depend on conditions",
        ),
        (
            changed(
                "    optimizer.step()",
                "    optimizer.step()\n    if i == 3:\n        continue\n    opt_b.step()",
            ).replace(
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
            changed("optimizer = torch", "optimizers = {}\noptimizers['a'] = torch").replace(
                "optimizer.", "optimizers['a']."
            ),
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
        (
            changed(
                "torch.relu(self.a(x))", "self.a(x).masked_fill(x.sum(1, keepdim=True) > 99, -1e9)"
            ),
            "fp16 cannot hold -1e+09",
        ),
        (changed("CrossEntropyLoss()", 'CrossEntropyLoss(reduction="sum")'), "is a sum"),
    ],
)
def test_refused(text: str, why: str):
    assert why in refused(text), refused(text)


def test_numbers_beside_what_autocast_computes_in_fp32():
    """A sum of squares is fp32, and so is what is compared with it."""
    done = amp(
        changed("criterion(model(x), y)", "model(x).pow(2).sum(dim=1).clamp(min=1e-12).mean()")
    )
    assert {"autocast", "grad-scaler"} <= {f.rule for f in done.fixes}, done.refusals


def test_a_sum_that_is_divided_is_no_large_loss():
    text = changed("CrossEntropyLoss()", 'CrossEntropyLoss(reduction="sum")')
    done = amp(text.replace("criterion(model(x), y)", "criterion(model(x), y) / len(y)"))
    assert {"autocast", "grad-scaler"} <= {f.rule for f in done.fixes}, done.refusals


@pytest.mark.parametrize(
    ("below", "divided"),
    [
        ("loss = loss.sum() / int(y.numel())", True),
        ("n = len(y)\n    loss = loss / n", True),
        ("loss = loss / 2", False),
        ("loss = loss + loss.detach() / len(y)", False),
        ("if i % 2:\n        loss = loss / len(y)", False),
        ("scaled = loss / len(y)", False),
    ],
)
def test_a_sum_that_is_divided_before_the_backward(below: str, divided: bool) -> None:
    text = changed("CrossEntropyLoss()", 'CrossEntropyLoss(reduction="sum")')
    text = text.replace("criterion(model(x), y)", f"criterion(model(x), y)\n    {below}")
    done = amp(text)
    assert ("grad-scaler" in {f.rule for f in done.fixes}) is divided, done.refusals
    assert divided or "is a sum" in "".join(f.refusal for f in done.findings) or done.fixes


def test_the_sum_of_an_evaluation_is_no_gradient():
    text = (
        script()
        + """
    with torch.no_grad():
        total = nn.functional.mse_loss(model(x), torch.zeros_like(model(x)), reduction="sum")
"""
    )
    done = amp(text)
    assert {"autocast", "grad-scaler"} <= {f.rule for f in done.fixes}, done.refusals


def test_bf16_needs_none():
    done = amp(script(), precision="bf16")
    assert done.fixes and "GradScaler" not in done.text and refused(script(), "bf16") == ""


def test_nothing_without_autocast():
    done = amp(script(), rules="grad-scaler")
    assert not done.fixes


def test_already_there():
    text = changed(
        "losses = []", 'losses = []\nscaler = torch.amp.GradScaler("cuda", enabled=False)'
    ).replace(
        "    loss.backward()\n    optimizer.step()",
        "    scaler.scale(loss).backward()\n    scaler.step(optimizer)\n    scaler.update()",
    )
    done = amp(text)
    assert not any(f.rule == "grad-scaler" for f in done.fixes)
    assert all(
        "has_bf16" in line or "autocast" in line or "GradScaler" not in line for line in done.lines
    )


# ------------------------------------------------------------- gradients that somebody else touches
STEP = "    loss.backward()\n    optimizer.step()"
CLIP = "    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"


def stepped(new: str, before: str = "") -> str:
    """The plain script with another backward and step, and ``before`` before its loop."""
    return changed(STEP, new).replace("losses = []", "losses = []\n" + before)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        # gradients of something else than parameters
        (
            stepped(
                "    loss.backward()\n    x2 = (x + 0.1 * x.grad.sign()).detach()\n    criterion(model(x2), y).backward()\n    optimizer.step()"
            ).replace("X[i].to(device)", "X[i].to(device).requires_grad_()"),
            "the gradient of `x`, which is not known to be a parameter",
        ),
        (
            stepped(
                "    loss.backward()\n    delta.data += delta.grad\n    optimizer.step()",
                "delta = nn.Parameter(torch.zeros(16, 8, device=device))\n",
            ).replace("model(x)", "model(x + delta)"),
            "the gradient of `delta`",
        ),
        (
            stepped(
                "    loss.backward()\n    seen.append(other.a.weight.grad.norm().item())\n    optimizer.step()",
                "seen = []\nother = Net().to(device)\n",
            ).replace("model(x)", "model(x) + other(x)"),
            "`other.a.weight`, which no optimizer updates",
        ),
        (
            stepped(
                "    loss.backward()\n    size = sum(getattr(p, 'grad').norm() for p in model.parameters())\n    optimizer.step()"
            ),
            "by name",
        ),
        # gradients of one backward before the next
        (
            stepped(
                """    loss.backward(retain_graph=True)
    first = [p.grad.clone() for p in model.parameters()]
    optimizer.zero_grad()
    loss.backward()
    for p, g in zip(model.parameters(), first):
        p.grad = (p.grad + g) / 2
    optimizer.step()"""
            ),
            "still scaled",
        ),
        (
            stepped(
                "    loss.backward(retain_graph=True)\n"
                + CLIP
                + "    (0.5 * loss).backward()\n    optimizer.step()"
            ),
            "still scaled",
        ),
        (
            stepped(
                "    size = [p.grad.norm() for p in model.parameters() if p.grad is not None]\n    loss.backward()\n    if i % 2:\n        optimizer.step()\n        optimizer.zero_grad()"
            ).replace("    optimizer.zero_grad()\n    loss =", "    loss ="),
            "still scaled",
        ),
        (
            stepped(
                "    loss.backward()\n    print(sum(g.norm().item() for g in kept if g is not None))\n    optimizer.step()"
            ).replace(
                "    optimizer.zero_grad()\n",
                "    optimizer.zero_grad(set_to_none=False)\n    kept = [p.grad for p in model.parameters()]\n",
            ),
            "still scaled",
        ),
        # hooks, and gradients that no scaler sees
        (
            stepped(
                STEP,
                "for p in model.parameters():\n    p.register_hook(lambda g: g.clamp(-1e-3, 1e-3))\n",
            ),
            "register_hook() on line",
        ),
        (
            stepped(
                STEP,
                "for p in model.parameters():\n    p.register_post_accumulate_grad_hook(lambda p: [p.grad.clamp_(-1e-3, 1e-3)].clear())\n",
            ),
            "register_post_accumulate_grad_hook()",
        ),
        (
            stepped(
                STEP,
                "seen = []\nmodel.a.register_full_backward_hook(lambda m, gi, go: seen.append(go[0].norm().item()))\n",
            ),
            "register_full_backward_hook()",
        ),
        (
            script().replace(
                "        return self.b(torch.relu(self.a(x)))",
                "        h = torch.relu(self.a(x))\n        if h.requires_grad:\n            h.register_hook(lambda g: print(g.norm().item()))\n        return self.b(h)",
            ),
            "register_hook()",
        ),
        (
            stepped(
                "    direction = torch.autograd.grad(loss, x, retain_graph=True)[0].sign()\n" + STEP
            ).replace("X[i].to(device)", "X[i].to(device).requires_grad_()"),
            "torch.autograd.grad() on line",
        ),
        (
            script()
            .replace(
                "model = Net()",
                """class Clamp(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, g):
        return g.clamp(-1e-3, 1e-3)

model = Net()""",
            )
            .replace("criterion(model(x), y)", "criterion(Clamp.apply(model(x)), y)"),
            "has a backward of its own",
        ),
        # ways out that leave the step or the update out
        (
            stepped(
                "    loss.backward()\n"
                + CLIP
                + "    if not torch.isfinite(norm):\n        continue\n    optimizer.step()"
            ),
            "a second time",
        ),
        (
            stepped(
                "    loss.backward()\n"
                + CLIP
                + "    if norm > 1e9:\n        print('large')\n    else:\n        optimizer.step()",
            ),
            "without an update",
        ),
        (
            script(
                """
def step(x, y):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if not torch.isfinite(norm):
        return loss
    optimizer.step()
    return loss

for i in range(6):
    losses.append(step(X[i].to(device), Y[i].to(device)).item())
"""
            ),
            "a second time",
        ),
        (
            stepped(
                """    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    try:
        if not torch.isfinite(norm):
            raise ValueError
        optimizer.step()
    except ValueError:
        print("not finite")"""
            ),
            "without an update",
        ),
        (
            script(
                "\nfor epoch in range(2):"
                + LOOP.replace("\n", "\n    ").replace(
                    "        optimizer.step()",
                    "    "
                    + CLIP
                    + "        if norm > 1e9:\n            break\n        optimizer.step()",
                )
            ),
            "a second time",
        ),
        (
            script(
                "\nimport contextlib\nfor turn in range(2):\n    with contextlib.suppress(ZeroDivisionError):"
                + LOOP.replace("\n", "\n        ").replace(
                    "            optimizer.step()",
                    "        " + CLIP + "            1 / (i % 2)\n            optimizer.step()",
                )
            ),
            "a second time",
        ),
        (
            stepped(
                "    loss.backward()\n"
                + CLIP
                + "    if not torch.isfinite(norm):\n        raise ValueError\n    optimizer.step()"
            ),
            "gradients that overflow",
        ),
        (
            stepped(
                "    loss.backward()\n"
                + CLIP
                + "    assert torch.isfinite(norm)\n    optimizer.step()"
            ),
            "gradients that overflow",
        ),
        (
            stepped(
                "    loss.backward()\n"
                + CLIP
                + "    if not torch.isfinite(norm):\n        break\n    optimizer.step()"
            ),
            "gradients that overflow",
        ),
        (
            stepped(
                "    loss.backward()\n"
                + CLIP
                + "    if not torch.isfinite(norm):\n        exit()\n    optimizer.step()"
            ),
            "gradients that overflow",
        ),
        (
            stepped(
                "    loss.backward()\n"
                + CLIP.replace("1.0)", "1.0, error_if_nonfinite=True)")
                + "    optimizer.step()"
            ),
            "gradients overflow",
        ),
        (script("torch.autograd.set_detect_anomaly(True)\n" + LOOP), "finds its scale"),
        # steps and gradients that do not belong together
        (script().replace("    optimizer.zero_grad()\n", ""), "not scaled any more"),
        (
            stepped("    if i % 3:\n        loss.backward()\n    optimizer.step()").replace(
                "    optimizer.zero_grad()\n", "    optimizer.zero_grad(set_to_none=False)\n"
            ),
            "without a backward before it",
        ),
        # what is not seen
        (script("exec('def after(): optimizer.zero_grad()')\n" + LOOP), "exec()"),
        (
            stepped(
                "    loss.backward()\n    if i > 9:\n        unheard.of(optimizer)\n    optimizer.step()",
                "try:\n    import unheard\nexcept ImportError:\n    unheard = None\n",
            ),
            "still scaled",
        ),
    ],
)
def test_no_scaler_where_somebody_touches_gradients(text: str, why: str):
    """bf16 is written instead, and runs where the GPU has it, as if there were nothing."""
    done = amp(text)
    assert why in refused(text) != "", refused(text)
    assert "GradScaler" not in done.text and "enabled=has_bf16)" in done.text
    assert not faked(done), faked(done)


# -------------------------------------------------------------------------- where a scaler is right
STAGE = """
other = Net().to(device)
first = torch.optim.SGD(other.parameters(), lr=0.1)
for i in range(3):
    first.zero_grad()
    loss = criterion(other(X[i].to(device)), Y[i].to(device))
    loss.backward()
    first.step()
model.load_state_dict(other.state_dict())
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
"""
PLAIN = HEAD.replace("optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n", "")


def test_made_below_the_scheduler_of_the_optimizer():
    """Nobody puts a scaler between the two lines that belong together."""
    schedule = "scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)\n"
    done = amp(script(LOOP, HEAD.replace("losses = []\n", schedule + "losses = []\n")))
    assert "lr=0.1)\nscheduler = " in done.text
    assert f"{schedule}has_bf16 = " in done.text and not faked(done)


def test_made_before_the_first_of_two_stages():
    done = amp(script(STAGE + LOOP, PLAIN))
    assert (
        "first = torch.optim.SGD(other.parameters(), lr=0.1)\nhas_bf16" in done.text
        and f"{DTYPE}\nscaler = torch.amp.GradScaler(" in done.text
    )
    assert done.text.count("GradScaler(") == 1 and not faked(done)


def test_made_before_the_first_stage_in_a_function():
    body = (STAGE + LOOP).replace("\n", "\n    ")
    done = amp(script("\ndef main():" + body + "\n\nmain()\n", PLAIN))
    assert (
        "    first = torch.optim.SGD(other.parameters(), lr=0.1)\n    has_bf16" in done.text
        and f"    {DTYPE}\n    scaler = torch.amp.GradScaler(" in done.text
    )
    assert not faked(done)


def test_made_before_a_stage_that_may_be_left_out():
    first = "\nimport sys\nif len(sys.argv) < 9:" + STAGE.rpartition("optimizer =")[0].replace(
        "\n", "\n    "
    )
    done = amp(
        script(first + "\noptimizer = torch.optim.SGD(model.parameters(), lr=0.05)\n" + LOOP, PLAIN)
    )
    assert done.text.index("GradScaler(") < done.text.index("if len(sys.argv) < 9")
    assert not faked(done)


@pytest.mark.parametrize(
    "text",
    [
        stepped("    if torch.isnan(loss):\n        continue\n" + STEP),
        stepped(
            "    loss.backward()\n"
            + CLIP
            + "    if torch.isfinite(norm):\n        pass\n    optimizer.step()"
        ),
        stepped(
            "    loss.backward()\n    seen.append(model.a.weight.grad.norm().item())\n"
            + CLIP
            + "    optimizer.step()",
            "seen = []\n",
        ),
        stepped(
            "    loss.backward()\n    for p in model.parameters():\n        p.grad.mul_(0.5)\n    optimizer.step()"
        ),
        stepped(
            "    loss.backward()\n    with torch.no_grad():\n        for p in model.parameters():\n            p.grad += 1e-3 * p\n    optimizer.step()"
        ),
        stepped(
            "    loss.backward()\n    print(sum(g.norm().item() for g in grads()))\n    optimizer.step()",
            "def grads():\n    return [p.grad for p in model.parameters() if p.grad is not None]\n",
        ),
        stepped(STEP).replace(
            "    optimizer.zero_grad()\n",
            "    for p in model.parameters():\n        if p.grad is not None:\n            p.grad.zero_()\n",
        ),
        stepped(STEP).replace(
            "    optimizer.zero_grad()\n",
            "    for p in model.parameters():\n        p.grad = None\n",
        ),
        stepped(STEP).replace("    optimizer.zero_grad()\n", "    model.zero_grad()\n"),
        stepped(
            """    loss = loss / 2
    loss.backward()
    if (i + 1) % 2 == 0:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()"""
        ).replace("    optimizer.zero_grad()\n    loss =", "    loss ="),
        script(
            """
for phase in ("train", "check"):
    learn = phase == "train"
    for i in range(6):
        if learn:
            optimizer.zero_grad()
        loss = criterion(model(X[i].to(device)), Y[i].to(device))
        if learn:
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
"""
        ),
        script(
            "\nfor epoch in range(2):\n    try:"
            + LOOP.replace("\n", "\n        ")
            + "\n    except KeyboardInterrupt:\n        break\n"
        ),
    ],
)
def test_a_scaler_where_gradients_are_unscaled_once(text: str):
    done = amp(text)
    assert "scaler.update()" in done.text, refused(text)
    assert not faked(done), faked(done)


def test_a_function_without_a_backward_is_no_reason():
    plain = """class Detect(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x > 0

model = Net()"""
    same(script().replace("model = Net()", plain))
    extended = plain.replace(
        "model = Net()",
        """class Clamp(Detect):
    @staticmethod
    def backward(ctx, g):
        return g.clamp(-1e-3, 1e-3)

model = Net()""",
    )
    assert "has a backward of its own" in refused(script().replace("model = Net()", extended))


def test_callbacks_take_it_from_the_object_that_they_get():
    text = """
class Saved:
    def on_epoch(self, learner):
        torch.save({"net": learner.net.state_dict(), "opt": learner.opt.state_dict()}, FILE)

    def on_begin(self, learner):
        if os.path.exists(FILE):
            state = torch.load(FILE)
            learner.opt.load_state_dict(state["opt"])


class Counted:
    def on_begin(self, learner):
        pass

    def on_epoch(self, learner):
        self.count = len(list(learner.net.parameters()))


class Learner:
    def __init__(self, net, parts):
        self.net, self.parts = net.to(device), parts
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def call(self, hook, *args):
        for part in self.parts:
            getattr(part, hook)(self, *args)

    def fit(self):
        self.call("on_begin")
        for i in range(6):
            self.opt.zero_grad()
            loss = criterion(self.net(X[i].to(device)), Y[i].to(device))
            loss.backward()
            self.opt.step()
            losses.append(loss.item())
        self.call("on_epoch")


Learner(model, [Saved(), Counted()]).fit()
"""
    file = "import os, tempfile\nFILE = tempfile.mkdtemp() + '/a.pt'\n"
    done = same(HEAD + file + text)
    assert "self.scaler.update()" in done.lines
    assert "def on_epoch(self, learner):" in done.text and "enabled=False" not in done.text
    assert '"scaler": learner.scaler.state_dict()' in done.text


CODES = """
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
codes = nn.Embedding(6, 8)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4)).cuda()
optimizer = torch.optim.Adam([
    {"params": model.parameters(), "lr": 0.01}, {"params": codes.parameters(), "lr": 0.1}])
for step in range(6):
    optimizer.zero_grad()
    out = model(codes(torch.tensor([step])).cuda())
    loss = F.cross_entropy(out, torch.tensor([step % 4]).cuda())
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("made", "written"), [("", False), (".cuda()", True)])
def test_parameters_that_stay_on_the_host(made: str, written: bool) -> None:
    """A scaler copies its scale there without waiting for it."""
    text = CODES.replace("nn.Embedding(6, 8)", f"nn.Embedding(6, 8){made}")
    if made:
        text = text.replace("torch.tensor([step]))", "torch.tensor([step]).cuda())")
    done = amp(text)
    assert ("GradScaler" in done.text) == written
    reasons = [f.refusal for f in done.findings if "stays on the host" in f.refusal]
    assert bool(reasons) != written


# ---------------------------------------------------------------------- optimizers of several rates
RATES = """
head = torch.optim.SGD(model.b.parameters(), lr=0.1)
body = torch.optim.SGD(model.a.parameters(), lr=0.1)
for i in range(6):
    x, y = X[i].to(device), Y[i].to(device)
    head.zero_grad()
    CLEAR
    loss = criterion(model(x), y)
    loss.backward()
    head.step()
    if i % 2:
        body.step()
        body.zero_grad()
    losses.append(loss.item())
"""


def test_gradients_that_wait_for_a_later_step_keep_their_scale():
    """``update()`` behind the step of one optimizer would change it for those of the other."""
    assert "by another scale than theirs" in refused(script(RATES.replace("CLEAR", "")))
    same(script(RATES.replace("CLEAR", "body.zero_grad()")))
