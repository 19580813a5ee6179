"""autocast: which statements it takes in, which precision it writes, what it leaves alone."""

from __future__ import annotations

import re
import sys
import types
from dataclasses import replace
from pathlib import Path
from textwrap import indent

import pytest
import torch

from autofast.commands.planning import options_of
from autofast.config import Config
from autofast.registry import all_rules
from autofast.rule import Effect
from tests.amp import AMP, HEAD, LOOP, amp, close, faked, script, trained
from tests.harness import HALF, HARNESS, Job, compare
from tests.onerule import Applied, apply, run

EITHER = 'with torch.autocast("cuda", dtype=amp_dtype, enabled=device.type == "cuda"):'
NATIVE = 'with torch.autocast("cuda", dtype=torch.bfloat16, enabled=has_bf16):'
CPU = 'with torch.autocast("cpu", dtype=torch.bfloat16):'


def alone(text: str, **kwargs: str) -> Applied:
    return amp(text, rules="autocast", **kwargs)


def same(text: str, tolerance: float = 0.02) -> Applied:
    """Rewrite for the CPU, run both, compare the losses; without a GPU the form for CUDA gives the
    very same ones.
    """
    done = alone(text, target="cpu")
    before, after = trained(done.before)["losses"], trained(done.text)["losses"]
    assert before != after or not done.fixes
    assert close(before, after, tolerance), (before, after)
    assert trained(amp(text).text)["losses"] == before
    return done


# -------------------------------------------------------------------------------------------- forms
@pytest.mark.parametrize(
    ("rules", "target", "precision", "header"),
    [
        ("autocast grad-scaler", "cuda", "auto", NATIVE),
        ("autocast", "cuda", "auto", NATIVE),
        ("autocast grad-scaler", "cuda", "either", EITHER),
        ("autocast", "cuda", "either", NATIVE),
        (
            "autocast",
            "cuda",
            "bf16",
            'with torch.autocast("cuda", dtype=torch.bfloat16, enabled=device.type == "cuda"):',
        ),
        (
            "autocast grad-scaler",
            "cuda",
            "fp16",
            'with torch.autocast("cuda", dtype=torch.float16, enabled=device.type == "cuda"):',
        ),
        ("autocast grad-scaler", "cpu", "auto", CPU),
        ("autocast grad-scaler", "cpu", "either", CPU),
        ("autocast", "cpu", "bf16", CPU),
        ("autocast grad-scaler", "cpu", "fp16", 'with torch.autocast("cpu", dtype=torch.float16):'),
    ],
)
def test_forms(rules: str, target: str, precision: str, header: str):
    done = amp(script(), rules=rules, target=target, precision=precision)
    assert header in done.lines
    assert trained(done.text)["losses"]


def test_fp16_needs_the_scaler():
    assert (
        "fp16 needs a GradScaler, and the rule grad-scaler is not selected"
        in alone(script(), precision="fp16").refusals
    )


def test_it_trains_the_same():
    done = same(script())
    assert [f.node.lineno for f in done.fixes] == [
        len(done.before[: done.before.index("    loss = crit")].splitlines()) + 1
    ]


@pytest.mark.parametrize(("major", "dtype"), [(7, "float16"), (8, "bfloat16"), (9, "bfloat16")])
def test_the_dtype_is_asked_when_it_runs(
    monkeypatch: pytest.MonkeyPatch, major: int, dtype: str
) -> None:
    done = amp(script())
    assert not trained(done.text)["scaler"].is_enabled()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (major, 0))
    constant = [line for line in done.lines if line.startswith(("has_bf16 = ", "amp_dtype = "))]
    assert run("import torch\n" + "\n".join(constant))["amp_dtype"] == getattr(torch, dtype)
    assert ASKED in alone(script()).lines
    assert run(f"import torch\n{ASKED}")["has_bf16"] is (major >= 8)  # the default: fp32 before


def test_existing_names_are_kept():
    text = script(head=HEAD.replace("losses = []", "losses = []\namp_dtype = scaler = None"))
    done = amp(text)
    assert "dtype=amp_dtype_2," in done.text and "grad_scaler.scale(loss).backward()" in done.text


def test_torch_under_another_name():
    text = (
        script()
        .replace("import torch  #", "import torch as th  #", 1)
        .replace("torch.", "th.")
        .replace("th.nn.functional", "torch.nn.functional")
    )
    assert 'with th.autocast("cpu", dtype=th.bfloat16):' in alone(text, target="cpu").text


# ------------------------------------------------------------------------------------------ regions
def test_forward_and_loss_go_in_and_the_rest_stays_out():
    loop = """
for i in range(6):
    x, y = X[i].to(device), Y[i].to(device)
    out = model(x)
    loss = F.cross_entropy(out, y)  # mean
    penalty = 1e-3 * sum(p.pow(2).sum() for p in model.parameters())
    total = loss + penalty
    right = (out.argmax(1) == y).sum().item()

    optimizer.zero_grad()
    total.backward()
    optimizer.step()
    losses.append(total.item())
"""
    done = same(script(loop))
    start = done.text.index(CPU)
    assert "\n        total = loss + penalty\n" in done.text[start:]
    assert (
        "\n    right = (out" in done.text[start:]
        and "\n    optimizer.zero_grad()" in done.text[start:]
    )


def test_helper_functions():
    loop = """
def compute_loss(x, y):
    return criterion(model(x), y)

def update(loss):
    loss.backward()
    optimizer.step()

for i in range(6):
    optimizer.zero_grad()
    loss = compute_loss(X[i].to(device), Y[i].to(device))
    update(loss)
    losses.append(loss.item())
"""
    done = same(script(loop))
    assert f"    {CPU}\n        loss = compute_loss(" in done.text


def test_branches_are_taken_in_whole():
    loop = """
for i in range(6):
    x, y = X[i].to(device), Y[i].to(device)
    optimizer.zero_grad()
    if i % 2:
        out = model(x)
    else:
        out = model(x * 2)
    loss = criterion(out, y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
"""
    assert f"    {CPU}\n        if i % 2:" in same(script(loop)).text


def test_a_loop_inside_a_step():
    loop = """
for i in range(6):
    optimizer.zero_grad()
    loss = 0
    for part in range(2):
        loss = loss + criterion(model(X[i][part::2].to(device)), Y[i][part::2].to(device))
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
"""
    assert f"    {CPU}\n        for part in range(2):" in same(script(loop)).text


def test_one_block_for_each_micro_batch():
    loop = """
for i in range(6):
    optimizer.zero_grad()
    for part in range(2):
        loss = criterion(model(X[i][part::2].to(device)), Y[i][part::2].to(device)) / 2
        loss.backward()
        losses.append(loss.item())
    optimizer.step()
"""
    assert f"        {CPU}\n            loss = criterion(" in same(script(loop)).text


def test_one_statement_for_all():
    loop = """
for i in range(6):
    optimizer.zero_grad()
    criterion(model(X[i].to(device)), Y[i].to(device)).backward()
    optimizer.step()
    losses.append(criterion(model(X[i].to(device)), Y[i].to(device)).item())
"""
    done = same(script(loop))
    assert (
        f"    {CPU}\n        loss = criterion(model(X[i].to(device)), Y[i].to(device))\n    loss.backward()"
        in done.text
    )
    scaled = amp(script(loop), target="cpu", precision="fp16")
    assert "    scaler.scale(loss).backward()" in scaled.text
    assert close(trained(scaled.before)["losses"], trained(scaled.text)["losses"])


def test_two_players_get_a_block_for_each_backward():
    loop = """
G, D = Net().to(device), nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 1)).to(device)
opt_g, opt_d = torch.optim.SGD(G.parameters(), lr=0.1), torch.optim.SGD(D.parameters(), lr=0.1)
bce = nn.BCEWithLogitsLoss()
real = torch.randn(16, 4, device=device)
for i in range(6):
    opt_d.zero_grad()
    err_real = bce(D(real), torch.ones(16, 1, device=device))
    err_real.backward()
    fake = G(X[i].to(device))
    err_fake = bce(D(fake.detach()), torch.zeros(16, 1, device=device))
    err_fake.backward()
    opt_d.step()
    opt_g.zero_grad()
    err = bce(D(fake), torch.ones(16, 1, device=device))
    err.backward()
    opt_g.step()
    losses.append(err.item() + err_fake.item() + err_real.item())
"""
    done = same(script(loop))
    assert done.text.count(CPU) == 3
    assert f"    {CPU}\n        fake = G(X[i].to(device))\n        err_fake" in done.text


def test_evaluation_gets_the_precision_of_training():
    loop = (
        LOOP
        + """
model.eval()
right = total = 0
with torch.no_grad():
    for i in range(6):
        out = model(X[i].to(device))
        total += F.cross_entropy(out, Y[i].to(device), reduction="sum").item()
        right += out.argmax(1).eq(Y[i].to(device)).sum().item()
losses.append(total / 96)
"""
    )
    done = same(script(loop))
    assert (
        f"        {CPU}\n            out = model(X[i].to(device))\n            total +="
        in done.text
    )
    assert f"\n        right += out.argmax" in done.text  # noqa: F541


def test_an_evaluation_now_and_then_is_no_part_of_the_step():
    """Gradients are on in it, but no backward reaches what it computes."""
    loop = """
def measured():
    model.eval()
    total = 0.0
    for j in range(6):
        total += criterion(model(X[j].to(device)), Y[j].to(device)).item()
    model.train()
    return total / 6


for i in range(6):
    if i % 3 == 0:
        losses.append(measured())
    x, y = X[i].to(device), Y[i].to(device)
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
"""
    text = same(script(loop)).text
    assert f"    x, y = X[i].to(device), Y[i].to(device)\n    {CPU}\n        loss = " in text
    assert text.count(CPU) == 2


def test_one_loop_for_training_and_evaluation():
    loop = """
for epoch in range(2):
    for phase in ("train", "val"):
        for i in range(3):
            optimizer.zero_grad()
            with torch.set_grad_enabled(phase == "train"):
                loss = criterion(model(X[i].to(device)), Y[i].to(device))
                if phase == "train":
                    loss.backward()
                    optimizer.step()
            losses.append(loss.item())
"""
    assert same(script(loop)).text.count(CPU) == 1


def test_a_trainer_class():
    text = (
        HEAD
        + """
class Trainer:
    def __init__(self, net):
        self.net = net.to(device)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def loss(self, x, y):
        return criterion(self.net(x), y)

    def step(self, x, y):
        self.opt.zero_grad()
        loss = self.loss(x, y)
        loss.backward()
        self.opt.step()
        return loss.item()

trainer = Trainer(model)
for i in range(6):
    losses.append(trainer.step(X[i].to(device), Y[i].to(device)))
"""
    )
    assert f"        {CPU}\n            loss = self.loss(x, y)" in same(text).text


def test_a_hidden_state_is_carried_on():
    text = (
        HEAD.replace("class Net", "class Unused")
        + """
class RNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(8, 32)
        self.out = nn.Linear(32, 4)

    def forward(self, x, h):
        y, h = self.rnn(x, h)
        return self.out(y), h

def detach(h):
    return tuple(v.detach() for v in h)

model = RNN().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
hidden = (torch.zeros(1, 1, 32).to(device), torch.zeros(1, 1, 32).to(device))
for i in range(6):
    hidden = detach(hidden)
    out, hidden = model(X[i].unsqueeze(1).to(device), hidden)
    loss = criterion(out.view(-1, 4), Y[i].to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
""".replace("model = Net", "model = RNN")
    )
    text = text.replace("model = Net().to(device)\n", "model = nn.Linear(8, 4).to(device)\n")
    done = same(text)
    assert ".float()" not in done.text


# ----------------------------------------------------------------------------------- 16-bit outputs
@pytest.mark.parametrize(
    "use",
    [
        "kept.append(out.detach())",
        "kept.append(out.detach().cpu().numpy())",
        "print(out)",
        "mean = out.mean().item()",
        "kept = kept + [o for o in out]",
        "probability = torch.softmax(out, 1)",
        "buffer[: len(out)] += out.detach()",
    ],
)
def test_outputs_that_are_used_by_hand_become_fp32(use: str):
    loop = LOOP.replace(
        "loss = criterion(model(x), y)", "out = model(x)\n    loss = criterion(out, y)"
    )
    loop = "\nkept, buffer = [], torch.zeros(16, 4)\n" + loop.replace(
        "    optimizer.step()", f"    optimizer.step()\n    {use}"
    )
    done = same(script(loop))
    assert "out = model(x).float()" in done.text


@pytest.mark.parametrize(
    "use",
    [
        "right = (out.argmax(1) == y).sum().item()",
        "_, right = torch.max(out.data, 1)",
        "_, right = out.topk(2, 1, True, True)",
        "right = out.detach().max(1)[1].eq(y).sum()",
        "n = out.size(0), out.shape, len(out)",
        "right = out.float().softmax(1)",
        "out = None",
    ],
)
def test_outputs_that_are_only_looked_at_stay_16_bits(use: str):
    loop = LOOP.replace(
        "loss = criterion(model(x), y)", "out = model(x)\n    loss = criterion(out, y)"
    )
    done = same(script(loop.replace("    optimizer.step()", f"    optimizer.step()\n    {use}")))
    assert "out = model(x)\n" in done.text


def test_a_loss_by_hand_is_computed_in_fp32():
    loop = LOOP.replace(
        "loss = criterion(model(x), y)",
        "out = model(x)\n    loss = (out - F.one_hot(y, 4)).abs().mean()",
    )
    assert "out = model(x).float()" in same(script(loop)).text


MANY = """out = model(x)
    target = F.one_hot(y, 4).float()
    weight = 1 + target.sum(0)
    error = (out - target) * weight
    loss = error.abs().mean()
    # the second pass
    if len(losses) % 2:
        far = model(-x)
        total = (far * far).mean()
        loss = loss + total"""


def test_many_statements_are_not_indented_where_outputs_become_fp32():
    done = same(script(LOOP.replace("loss = criterion(model(x), y)", MANY)))
    block = "    {around}{line} = model({x}).float()\n"
    for indented, line, x in (("    ", "out", "x"), ("        ", "far", "-x")):
        around = f"{CPU}\n{indented}    "
        assert block.format(around=around, line=line, x=x) in done.text
    assert "\n    error = (out - target) * weight\n    loss = error.abs().mean()\n" in done.text
    one = "out = model(x)\n    loss = (out - F.one_hot(y, 4) * out.detach()).abs().mean()"
    done = same(script(LOOP.replace("loss = criterion(model(x), y)", one)))
    assert "        out = model(x).float()\n    loss = " in done.text


PULL = """class Pull(nn.Module):
    def forward(self, rows, labels):
        apart = torch.logsumexp(rows @ rows.t() / 0.1, 1) - (rows * rows).sum(1) / 0.1
        return apart.mean() + F.cross_entropy(rows, labels)
class Net"""


def test_a_loss_in_the_form_of_a_module_is_computed_in_fp32_as_a_whole():
    """Its own products of matrices, too: what it says is what it says of these outputs in fp32."""
    loop = LOOP.replace(
        "loss = criterion(model(x), y)",
        "rows = model(x)\n    loss = pull(rows, y)\n    kept.append((rows.detach(), y, loss.item()))",
    )
    head = HEAD.replace("class Net", PULL).replace(
        "losses = []", "losses, kept, pull = [], [], Pull()"
    )
    done = same(script(loop, head))
    assert "        rows = model(x).float()\n    loss = pull(rows, y)\n" in done.text
    made = trained(done.text)
    assert len(done.fixes) == 1 and made["kept"]
    assert all(made["pull"](rows, y).item() == loss for rows, y, loss in made["kept"])


def test_targets_that_are_made_behind_the_forward_pass_stay_outside():
    """The block ends above what has to do with no network, and the loss is computed from fp32."""
    loss = """out = torch.sigmoid(model(x))
    mse = nn.MSELoss()
    target = torch.zeros(len(y), 4).scatter_(1, y[:, None].cpu(), 1).to(device)
    loss = mse(out, target)"""
    done = same(script(LOOP.replace("loss = criterion(model(x), y)", loss)))
    assert f"{CPU}\n        out = torch.sigmoid(model(x).float())\n    mse =" in done.text
    one = loss.replace("    mse = nn.MSELoss()\n", "").replace("mse(", "F.mse_loss(")
    done = same(script(LOOP.replace("loss = criterion(model(x), y)", one)))
    assert "\n    loss = F.mse_loss(out, target)" in done.text


def test_passes_whose_outputs_are_kept_in_a_list_and_become_fp32():
    """The block ends behind the last pass, whatever the statement does with what it gives."""
    loss = """parts = [model(x[:8])]
    for part in x[8:].split(4):
        parts.append(model(part))
    p = torch.softmax(torch.cat(parts), dim=1)
    loss = ((p - F.one_hot(y, 4).float()) ** 2).mean()"""
    done = same(script(LOOP.replace("loss = criterion(model(x), y)", loss)))
    assert f"{CPU}\n        parts = [model(x[:8]).float()]\n        for part" in done.text
    assert "parts.append(model(part).float())\n    p = torch.softmax" in done.text


def test_a_network_that_brings_its_weights_to_a_dtype_stays():
    """What it is given decides, fp32 by choice: under autocast it would be 16 bits all the same."""
    own = """class Linear(nn.Linear):
    def forward(self, x):
        return F.linear(x, self.weight.to(dtype=x.dtype), self.bias)


class Net"""
    text = script(LOOP, HEAD.replace("class Net", own).replace("= nn.Linear", "= Linear"))
    done = amp(text)
    assert not done.fixes and "brings weights to a dtype that the script chooses" in done.refusals
    assert amp(text.replace(".to(dtype=x.dtype)", ".to(x.device)")).fixes


def test_another_name_of_the_loss_stays_outside():
    text = script(LOOP.replace("(model(x), y)", "(model(x), y)\n    losses[-2:]\n    total = loss"))
    done = same(text.replace("loss.backward()", "total.backward()"))
    assert "        loss = criterion(model(x), y)\n    losses[-2:]\n    total = loss\n" in done.text


def test_a_loss_module_of_the_script_is_followed():
    text = (
        HEAD
        + """
class Dice(nn.Module):
    def forward(self, out, y):
        p = torch.softmax(out, 1)
        return 1 - (p * F.one_hot(y, 4)).sum() / (p.sum() + len(y))

dice = Dice()
"""
        + LOOP.replace("criterion(model(x), y)", "dice(model(x), y)")
    )
    assert "dice(model(x).float(), y)" in same(text).text


def test_metrics_in_helper_functions_are_followed():
    text = (
        HEAD
        + """
def accuracy(out, y):
    _, pred = out.topk(1, 1, True, True)
    return pred.t().eq(y.view(1, -1)).float().mean().item()

def spread(out):
    return out.std().item()
"""
    )
    loop = LOOP.replace(
        "loss = criterion(model(x), y)", "out = model(x)\n    loss = criterion(out, y)"
    )
    assert "model(x)\n" in same(text + loop + "    accuracy(out, y)\n").text
    assert "model(x).float()\n" in same(text + loop + "    spread(out)\n").text


# --------------------------------------------------------------------------- the forward pass alone
def changed(old: str, new: str) -> str:
    text = script()
    assert old in text
    return text.replace(old, new)


BCE = "loss = nn.BCELoss()(torch.sigmoid(model(x)), F.one_hot(y, 4).float())"
FIRST = "output = model(x).float()"
LOSS = "loss = criterion(model(x), y)"


EYE = "torch.eye(4, device=x.device)"
NORMAL = f"torch.distributions.MultivariateNormal({EYE}[0], {EYE})"


@pytest.mark.parametrize(
    ("loss", "lines"),
    [
        (BCE, [FIRST, BCE.replace("model(x)", "output")]),
        (f"out = model(x)\n    {BCE.replace('model(x)', 'out')}", [f"out = {FIRST[9:]}"]),
        ("loss = criterion((model(x) * torch.tensor(1j, device=x.device)).abs(), y)", [FIRST]),
        (f"loss = (model(x)[:4].softmax(1) + {EYE}).inverse().pow(2).mean()", [FIRST]),
        (f"d = {NORMAL}\n    loss = -d.log_prob(model(x)).mean()", [FIRST]),
        (
            "loss = torch.fft.rfft(torch.cat((model(x), model(-x)))).abs().mean()",
            ["output_1 = model(x).float()", "output_2 = model(-x).float()"],
        ),
        (
            f"{LOSS}\n    with torch.no_grad():\n        old = criterion(model(x), y)\n    loss = loss + old",
            [FIRST, "loss = criterion(output, y)"],
        ),
        (
            "def compute(x, y):\n        return nn.BCELoss()(torch.sigmoid(model(x)), F.one_hot(y, 4).float())\n    loss = compute(x, y)",
            [FIRST],
        ),
    ],
)
def test_the_forward_pass_alone_where_the_loss_must_stay_in_fp32(loss: str, lines: list[str]):
    done = same(changed(LOSS, loss))
    assert all(line in done.lines for line in lines), done.lines
    assert "scaler.scale(" in amp(done.before).text


def test_the_forward_pass_alone_where_the_backward_is_in_the_same_statement():
    text = changed(f"{LOSS}\n    loss.backward()", BCE[7:] + ".backward()")
    done = same(text.replace("loss.item()", "model.b.weight.sum().item()"))
    assert (
        FIRST in done.lines and f"{BCE[7:].replace('model(x)', 'output')}.backward()" in done.lines
    )


def test_it_does_not_run_earlier_than_it_would():
    """What stands before a call in its statement, and may draw or change something, stays before
    it.
    """
    for loss in (
        "loss = torch.fft.rfft(torch.rand(16, 4) + model(x)).abs().mean()",
        "loss = torch.fft.rfft(model(x) if i else x[:, :4]).abs().mean()",
        "loss = sum(torch.fft.rfft(model(x)).abs().mean() for _ in range(2))",
    ):
        done = alone(changed(LOSS, loss))
        assert not done.fixes and "Fourier" in done.refusals


def test_metrics_in_numpy_in_an_evaluation():
    measure = (
        "\ndef measure(out, y):\n    return float((out.numpy().argmax(1) == y.numpy()).mean())\n"
    )
    evaluation = """
data = torch.utils.data.TensorDataset(X.flatten(0, 1), Y.flatten())
with torch.no_grad():
    for x, y in torch.utils.data.DataLoader(data, 32):
        losses.append(measure(model(x.to(device)).cpu(), y))
"""
    done = same(HEAD + measure + LOOP + evaluation, 0.2)
    assert "output = model(x.to(device)).float()" in done.lines


def test_what_a_model_returns_as_a_tuple_becomes_fp32():
    text = HEAD.replace(
        "return self.b(torch.relu(self.a(x)))",
        "h = self.a(x)\n        return self.b(torch.relu(h)), h",
    ) + LOOP.replace(
        "loss = criterion(model(x), y)",
        "out, h = model(x)\n    loss = criterion(out, y) + 0.1 * (h.exp() - h).mean()",
    )
    outside = "        out, h = model(x)\n    out = out.float()\n    h = h.float()\n    loss = "
    assert outside in same(text).text
    kept = text.replace("out, h = model(x)", "both = model(x)\n    out, h = both")
    assert "both = tuple(part.float() for part in model(x))" in same(kept).lines


# ----------------------------------------------------------------------------------------- refusals


SWISH = """class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * (s * (1 + x * (1 - s)))


class Net"""


def test_a_function_of_elementwise_operations_needs_no_mark():
    text = changed("class Net", SWISH).replace("torch.relu(", "Swish.apply(")
    assert same(text).fixes


def test_a_training_whose_forward_is_not_seen_keeps_the_rest_in_fp32():
    """What is trained in fp32 (here by meta-learning) is not adapted in 16 bits."""
    text = (
        HEAD
        + """
from torch.func import functional_call
import copy
for x, y in zip(X, Y):
    fast = dict(model.named_parameters())
    loss = criterion(functional_call(model, fast, (x.to(device),)), y.to(device))
    grads = torch.autograd.grad(loss, fast.values(), create_graph=True)
    fast = {k: p - 0.1 * g for (k, p), g in zip(fast.items(), grads)}
    optimizer.zero_grad()
    loss = criterion(functional_call(model, fast, (x.to(device),)), y.to(device))
    loss.backward()
    optimizer.step()
clone = copy.deepcopy(model)
inner = torch.optim.SGD(clone.parameters(), lr=0.1)
for x, y in zip(X, Y):
    inner.zero_grad()
    l = criterion(clone(x.to(device)), y.to(device))
    l.backward()
    inner.step()
"""
    )
    found = apply("autocast", text)
    assert not found.fixes and "differentiates gradients" in found.refusals


PENALTY = """loss = criterion(model(x), y)
    (g,) = torch.autograd.grad(loss, [model.a.weight], create_graph=True)
    loss = loss + g.pow(2).sum()"""
CLOSURE = """def closure():
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        return loss
    loss = optimizer.step(closure)"""
FUNCTION = """class Clamp(torch.autograd.Function):
    @staticmethod
    {mark}
    def forward(ctx, x):
        return x.masked_scatter(x < 0, torch.zeros_like(x))

    @staticmethod
    def backward(ctx, g):
        return g


class Net"""
SIGMOID_INSIDE = ("self.b(torch.relu(self.a(x)))", "torch.sigmoid(self.b(torch.relu(self.a(x))))")
LOG_OF_REST = (
    "self.b(torch.relu(self.a(x)))",
    "torch.log(1 - torch.sigmoid(self.b(torch.relu(self.a(x)))).clamp(max=0.99999))",
)


def clamped(returns: str, before: str = "p = model(x)\n    ") -> str:
    """A network that keeps its probabilities from 0 and 1, and a loss that counts on it."""
    text = changed(LOSS, f"{before}loss = -(torch.log(p) + torch.log(1 - p)).mean()")
    forward = f"h = self.b(torch.relu(self.a(x)))\n        return {returns}"
    return text.replace("return self.b(torch.relu(self.a(x)))", forward)


STEP = f"{LOSS}\n    loss.backward()\n    optimizer.step()"


@pytest.mark.parametrize(
    "text",
    [
        changed(LOSS, "loss = -torch.log(1 - model(x)).mean()").replace(*SIGMOID_INSIDE),
        clamped("torch.sigmoid(h).clamp(1e-4, 1 - 1e-4)"),
        clamped("torch.clip(h.sigmoid(), max=1 - 1e-4).view(-1, 4)"),
        clamped("0.9998 * torch.sigmoid(h) + 1e-4"),
        clamped("torch.sigmoid(h).clamp(max=0.9999), h", "p, _ = model(x)\n    "),
        clamped('{"heat": torch.sigmoid(h).clamp(max=0.9999)}', "p = model(x)['heat']\n    "),
    ],
)
def test_a_sigmoid_whose_logarithm_is_taken_computes_in_fp32(text: str) -> None:
    """In 16 bits it is 1 for what is nearly 1, and so is the bound."""
    done = amp(text, precision="fp16", asked=True)
    sigmoids = [line for line in done.text.splitlines() if "sigmoid(" in line]
    assert sigmoids and all(".float()" in line for line in sigmoids), done.refusals
    assert not faked(done)


def test_a_logarithm_of_a_sigmoid_that_a_container_calls() -> None:
    text = clamped("self.act(h)").replace(
        "self.b = ", "self.act = nn.Sequential(nn.Sigmoid())\n        self.b = "
    )
    done = amp(text, rules="autocast", asked=True)
    assert not done.fixes and "logarithm of a sigmoid" in done.refusals


def test_a_gate_is_no_probability_whose_logarithm_is_taken() -> None:
    """What is left of 1 does not show in what it is multiplied by."""
    gated = clamped("h * torch.sigmoid(h)").replace("torch.log(1 - p)", "torch.log(p * p + 1)")
    assert amp(gated, rules="autocast").fixes
    assert torch.sigmoid(torch.tensor(7.0).bfloat16()).clamp(max=1 - 1e-4) == 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (changed(LOSS, BCE).replace(*SIGMOID_INSIDE), "use BCEWithLogitsLoss"),
        (
            changed(LOSS, BCE.replace("nn.BCELoss()", "F.binary_cross_entropy")).replace(
                *SIGMOID_INSIDE
            ),
            "use binary_cross_entropy_with_logits",
        ),
        (changed(*LOG_OF_REST).replace("sigmoid", "tanh"), "logarithm of what is left of 1"),
        (changed(LOSS, PENALTY), "create_graph"),
        (changed("    loss.backward()", "    loss.backward(create_graph=True)"), "create_graph"),
        (
            changed(STEP, CLOSURE).replace(
                "SGD(model.parameters(), lr=0.1)", "LBFGS(model.parameters())"
            ),
            "closure",
        ),
        (changed("Net().to(device)", "Net().double().to(device)"), "float64 by choice"),
        (changed("Net().to(device)", "Net().half().to(device)"), "16-bit by choice"),
        (
            changed("x, y = X[i].to(device)", "x, y = X[i].to(device).to(torch.complex64)"),
            "complex data",
        ),
        (
            changed("torch.manual_seed(0)", "torch.set_default_dtype(torch.float64)"),
            "makes float64 the default",
        ),
        (
            changed("class Net", FUNCTION.format(mark="")).replace("torch.relu(", "Clamp.apply("),
            "not marked with torch.amp.custom_fwd",
        ),
        (
            changed("self.b(torch.relu(self.a(x)))", "torch.inverse(self.b(self.a(x)))"),
            "linear algebra",
        ),
        (
            changed(
                "self.b(torch.relu(self.a(x)))",
                "F.grid_sample(self.b(self.a(x)), F.affine_grid(self.c(x), (4, 1, 8, 8)))",
            ),
            "samples at positions",
        ),
        (
            changed("self.b(torch.relu(self.a(x)))", "self.b(torch.fft.rfft(self.a(x)).real)"),
            "Fourier",
        ),
        (
            changed(
                "return self.b(torch.relu(self.a(x)))",
                "h, w = self.a(x), self.b.weight\n"
                "        squares = torch.sum(h**2, dim=1, keepdim=True) + w.pow(2).sum(1)\n"
                "        return -(squares - 2 * torch.matmul(h, w.t()))",
            ),
            "computes distances by way of a product",
        ),
        (
            changed(  # the nearest, as a network of points asks for them: the largest negatives
                "return self.b(torch.relu(self.a(x)))",
                "h = self.a(x)\n"
                "        inner = -2 * torch.matmul(h, h.t())\n"
                "        squares = torch.sum(h**2, dim=1, keepdim=True)\n"
                "        near = (-squares - inner - squares.t()).topk(k=2, dim=-1)[1]\n"
                "        return self.b(torch.relu(h[near].mean(1)))",
            ),
            "computes distances by way of a product",
        ),
        (
            changed(  # Fourier features
                "return self.b(torch.relu(self.a(x)))",
                "angles = 6.28 * (x @ self.a.weight.detach().t())\n"
                "        return self.b(torch.sin(angles))",
            ),
            "sine or cosine of a product",
        ),
        (
            changed(  # filters that are made of their frequencies
                "return self.b(torch.relu(self.a(x)))",
                "low = torch.abs(self.a.weight[:, :1])\n"
                "        angle = torch.matmul(low, torch.arange(16.0)[None])\n"
                "        return self.b(F.linear(x, (angle.cos() / 2).view(32, 16)))",
            ),
            "sine or cosine of a product",
        ),
        (
            changed("torch.relu(self.a(x))", "torch.sin(30 * self.a(x))"),
            "sine or cosine of a product",
        ),
        (
            changed(  # rotary positions
                "return self.b(torch.relu(self.a(x)))",
                "h, at = self.a(x), torch.arange(16.0)\n"
                "        turn = torch.einsum('i,j->ij', at, 0.5 ** torch.arange(32.0))\n"
                "        return self.b(h * turn.cos() + h.roll(1, 1) * turn.sin())",
            ),
            "sine or cosine of a product",
        ),
        (
            changed(  # the logits of a contrastive loss
                "return self.b(torch.relu(self.a(x)))",
                "h, k = self.a(x), self.b(self.a(x))\n        return (h @ h.T) / 0.07",
            ),
            "compares samples by way of a product",
        ),
        (
            changed(
                "self.b(torch.relu(self.a(x)))",
                "self.b(torch.sparse.mm(x.to_sparse(), self.a.weight.t()))",
            ),
            "sparse",
        ),
        (
            changed("from torch import nn\n", "from torch import nn\nimport fancy_ops\n").replace(
                "torch.relu(", "fancy_ops.relu("
            ),
            "fancy_ops.relu()",
        ),
        (
            changed(
                "from torch import nn\n", "from torch import nn\nfrom .ops import act\n"
            ).replace("torch.relu(", "act("),
            "not known",
        ),
        (
            changed(
                "return self.b(torch.relu(self.a(x)))",
                "out = torch.zeros(16, 32)\n        out[x[:, 0] > 0] = self.a(x)\n        return self.b(out)",
            ),
            "into a part of a tensor that is fp32",
        ),
        (
            changed(
                "return self.b(torch.relu(self.a(x)))",
                "h = self.a(x)\n        return self.b(torch.zeros(16, 32).index_copy_(0, torch.arange(16), h))",
            ),
            "into a tensor that is fp32",
        ),
        (
            changed(
                "return self.b(torch.relu(self.a(x)))",
                "h = self.a(x)\n        print(h.detach().numpy())\n        return self.b(h)",
            ),
            "NumPy",
        ),
        (
            changed(
                LOSS,
                "with torch.no_grad():\n        old = model(x)\n    loss = criterion(model(x), old.argmax(1))",
            ),
            "",
        ),
        (
            changed(
                LOSS,
                "loss = criterion(model(x), y)\n    loss = loss + sum(criterion(model(x), y) for _ in range(2) if not torch.no_grad().__enter__())",
            ),
            "",
        ),
        (
            changed(
                LOSS,
                "out = model(x)\n    with torch.no_grad():\n        for p in model.parameters():\n            p.clamp_(-1, 1)\n    loss = criterion(out, y)",
            ),
            "changes weights",
        ),
        (script().replace(".to(device)", "").replace("device =", "_ ="), ""),
        (
            script(
                head=HEAD.replace(
                    'torch.device("cuda" if torch.cuda.is_available() else "cpu")', '"cpu"'
                )
            ),
            "nothing in this script goes to a GPU",
        ),
        (
            script(
                head=HEAD.replace(
                    'torch.device("cuda" if torch.cuda.is_available() else "cpu")', "None"
                )
            )
            .replace("Net().to(device)", "Net()")
            .replace(".to(device)", ".to(next(model.parameters()).device)"),
            "nothing in this script goes to a GPU",
        ),
        (
            "import torch.multiprocessing as mp\n"
            + changed(
                "model = Net().to(device)", "model = Net().to(device)\nmodel.share_memory()"
            ).replace("\nfor i", "\ndef work():\n  for i")
            + "\nmp.Process(target=work).start()\n",
            "several processes",
        ),
        (changed("Net().to(device)", "nn.Linear(8, 4).to(device)"), "one small linear layer"),
        (
            script()
            + """
table = nn.Linear(8, 8).to(device)
with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
    features = table(X[0].to(device)).float()
""",
            "the training was left out of it",
        ),
        (changed("Net().to(device)", "torch.jit.script(Net().to(device))"), "TorchScript"),
        (changed("Net().to(device)", "nn.DataParallel(Net().to(device))"), "DataParallel"),
        (
            "import pytorch_lightning\nfrom accelerate import Accelerator\naccelerator = Accelerator()\n"
            + script(),
            "decides about precision",
        ),
        (
            "import warps\nwarp = warps.Warp(3)\n"
            + changed("torch.relu(self.a(x))", "warp(self.a(x))"),
            "gives tensors to warps.Warp",
        ),
        (changed("torch.relu(", "torch.ops.warps.relu("), "gives tensors to torch.ops.warps.relu"),
        (
            "from torch.utils.cpp_extension import load\nWARP = load(name='w', sources=['w.cu'])\n"
            + changed("torch.relu(", "WARP.forward("),
            "gives tensors to a compiled extension",
        ),
    ],
)
def test_refused(text: str, why: str):
    done = alone(text)
    if why:
        assert not done.fixes
        assert why in done.refusals, done.refusals


def test_marked_functions_are_fine():
    text = changed(
        "class Net", FUNCTION.format(mark='@torch.amp.custom_fwd(device_type="cpu")')
    ).replace("torch.relu(", "Clamp.apply(")
    assert alone(text).fixes


KEPT = [
    ("class Net", "clamp = Clamp.apply\n\n\nclass Net", "clamp("),
    ("    def __init__", "    clamp = Clamp.apply\n\n    def __init__", "self.clamp("),
    (
        "super().__init__()\n",
        "super().__init__()\n        self.clamp = Clamp.apply\n",
        "self.clamp(",
    ),
]


@pytest.mark.parametrize("mark", ["", '@torch.amp.custom_fwd(device_type="cpu")'])
@pytest.mark.parametrize(("old", "new", "call"), KEPT)
def test_functions_that_are_kept_in_a_variable(old: str, new: str, call: str, mark: str):
    text = changed(old, new).replace("torch.relu(", call)
    first = "clamp = Clamp" if old == "class Net" else "class Net"
    text = text.replace(first, FUNCTION.format(mark=mark).replace("class Net", first), 1)
    if mark:
        assert same(text).fixes
    else:
        done = alone(text)
        assert not done.fixes and "Clamp, an autograd Function, is not marked" in done.refusals


def test_a_teacher_without_gradients_is_fine():
    text = changed("losses = []", "losses = []\nteacher = Net().to(device)")
    done = same(
        text.replace(
            LOSS,
            "with torch.no_grad():\n        old = teacher(x).argmax(1)\n    loss = criterion(model(x), old)",
        )
    )
    assert done.fixes


@pytest.mark.parametrize(
    "form",
    [
        'with torch.autocast("cuda", dtype=torch.float16):\n        loss = criterion(model(x), y)',
        "with torch.cuda.amp.autocast():\n        loss = criterion(model(x), y)",
        'ctx = torch.autocast("cuda")\n    with ctx:\n        loss = criterion(model(x), y)',
        'import functools\n    ctx = functools.partial(torch.autocast, "cuda")\n    with ctx():\n        loss = criterion(model(x), y)',
        'import contextlib\n    ctx = torch.autocast("cuda") if i else contextlib.nullcontext()\n    with ctx:\n        loss = criterion(model(x), y)',
    ],
)
def test_already_there(form: str):
    done = amp(changed(LOSS, form))
    assert not done.fixes and not done.refusals


def test_data_parallel_is_fp16_with_a_scaler():
    done = amp(changed("Net().to(device)", "nn.DataParallel(Net().to(device))"))
    assert (
        'with torch.autocast("cuda", dtype=torch.float16, enabled=device.type == "cuda"):'
        in done.lines
    )
    assert 'scaler = torch.amp.GradScaler("cuda", enabled=device.type == "cuda")' in done.lines
    assert "(fp16: DataParallel runs" in next(f.message for f in done.fixes if f.rule == "autocast")


FP16 = 'with torch.autocast("cuda", dtype=torch.float16, enabled=device.type == "cuda"):'
ALWAYS_SCALED = 'scaler = torch.amp.GradScaler("cuda", enabled=device.type == "cuda")'


def with_recurrent(layer: str) -> str:
    return changed("        self.b", f"        self.r = {layer}\n        self.b").replace(
        "torch.relu(self.a(x))", "self.r(self.a(x).unsqueeze(0))[0].squeeze(0)"
    )


@pytest.mark.parametrize("layer", ["LSTM(32, 32)", "GRU(32, 32)", "RNN(32, 32)", "named"])
def test_recurrent_networks_are_fp16_with_a_scaler(layer: str):
    """On CUDA autocast casts to fp16 for cuDNN, also where it is asked for bf16."""
    text = with_recurrent("getattr(nn, cell)(32, 32)" if layer == "named" else f"nn.{layer}")
    if layer == "named":
        text = text.replace("import torch ", "import sys\nimport torch ", 1)
        text = text.replace("X = ", 'cell = (["LSTM", *sys.argv[9:]])[-1]\nX = ', 1)
    done = amp(text)
    assert FP16 in done.lines and ALWAYS_SCALED in done.lines
    assert trained(done.text)["losses"] == trained(done.before)["losses"]  # without a GPU
    assert (
        "needs a GradScaler: `--precision either` writes both"
        in amp(text, precision="auto").refusals
    )
    assert "small gradients become zero" in amp(text, precision="bf16").refusals
    on_cpu = alone(text, target="cpu")
    assert CPU in on_cpu.lines and close(
        trained(on_cpu.before)["losses"], trained(on_cpu.text)["losses"]
    )


def test_recurrent_cells_get_the_dtype_asked_for():
    text = with_recurrent("nn.LSTMCell(32, 32)").replace(
        "self.r(self.a(x).unsqueeze(0))[0].squeeze(0)", "self.r(self.a(x))[0]"
    )
    assert EITHER in amp(text).lines


def test_an_activation_that_is_chosen_by_its_name_is_not_recurrent():
    text = changed("torch.relu(self.a(x))", "getattr(nn, name)()(self.a(x))")
    assert EITHER in amp(text.replace("X = ", 'name = input() or "GELU"\nX = ', 1)).lines


@pytest.mark.parametrize(
    "layers",
    [
        "nn.Sequential(*list(vgg16().features)[:31])",
        "vgg16().features[:9]",
        "nn.Sequential(*[layer for layer in vgg16().features])",
    ],
)
def test_layers_taken_out_of_a_model_of_torchvision(layers: str):
    text = "from torchvision.models import vgg16\n" + script()
    text = text.replace(
        "model = Net()",
        f"""class Perceptual(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = {layers}

    def forward(self, x):
        return self.net(x).flatten(1).mean(1)

perceptual = Perceptual().to(device)
model = Net()""",
    ).replace(
        "loss = criterion(model(x), y)", "loss = criterion(model(x), y) + perceptual(x).mean()"
    )
    done = amp(text)
    assert EITHER in done.lines, done.refusals


def test_where_a_part_ends_is_no_number_of_a_tensor() -> None:
    done = amp(changed("torch.relu(self.a(x))", "torch.relu(self.a(x))[0 : 0 + 65536]"))
    assert "scaler.scale(loss).backward()" in done.lines, done.refusals


@pytest.mark.parametrize("value", ["-1e9", "1e-12", "float('-inf')", "1e-3"])
def test_numbers_that_fp16_cannot_hold(value: str):
    done = amp(
        changed(
            "torch.relu(self.a(x))", f"self.a(x).masked_fill(x.sum(1, keepdim=True) > 99, {value})"
        )
    )
    assert (NATIVE in done.lines) == (value in ("-1e9", "1e-12"))
    if value in ("-1e9", "1e-12"):
        assert "fp16 cannot hold" in done.refusals


@pytest.mark.parametrize(
    ("inner", "fits"),
    [
        ("h / (h.pow(2).sum(1, keepdim=True).sqrt() + 1e-10)", True),
        ("h / ((h**2).sum(1, keepdim=True) + 1e-10).sqrt()", True),
        ("h * (torch.softmax(h, 1) + 1e-12)", True),
        ("h / (h.var(1, keepdim=True).sqrt() + 1e-10)", False),  # computed in 16 bits
        ("h / (h + h.abs().mean(1, keepdim=True) + 1e-10)", False),
    ],
)
def test_numbers_that_are_added_to_what_autocast_computes_in_fp32(inner: str, fits: bool):
    text = changed(
        "return self.b(torch.relu(self.a(x)))",
        f"h = torch.relu(self.a(x)) + 0.1\n        return self.b({inner})",
    )
    done = amp(text)
    assert (EITHER in done.lines) == fits, done.refusals
    if fits:
        same(text)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        ("h.new_zeros(16, 32)", ""),
        ("torch.zeros_like(h)", ""),
        ("torch.zeros(16, 32, device=x.device)", "writes 16-bit values"),
        ("h.new_zeros(16, 32, dtype=torch.float32)", "writes 16-bit values"),
        ("x.new_zeros(16, 32)", "writes 16-bit values"),
    ],
)
def test_sums_in_a_tensor_made_with_the_dtype_of_what_is_added(made: str, why: str):
    text = changed(
        "return self.b(torch.relu(self.a(x)))",
        f"h = self.a(x)\n        total = {made}\n"
        "        total.index_add_(0, torch.arange(16, device=x.device), h.view(16, 32))\n"
        "        return self.b(torch.relu(total))",
    )
    done = amp(text)
    assert bool(done.fixes) == (not why) and why in done.refusals, done.refusals
    if not why:
        same(text)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("h = torch.ones(16, 32).lerp_(h, 0.5)", "tensors of one dtype"),
        ("h = torch.lerp(h, torch.ones_like(x[:, :1]), 0.5)", "tensors of one dtype"),
        ("h = torch.zeros(16, 32).masked_scatter(h > 0, h)", "tensors of one dtype"),
        ("h = torch.zeros_like(h).scatter(1, h.argmax(1, True), torch.ones(16, 1))", "one dtype"),
        (
            "h = torch.zeros(16, 32).scatter_(dim=1, index=h.argmax(1, True), src=h)",
            "writes 16-bit",
        ),
        (
            "h = torch.zeros_like(h).scatter_(1, h.argmax(1, True), torch.ones(16, 1))",
            "writes fp32",
        ),
        ("h = torch.zeros_like(h).scatter_(1, h.argmax(1, True), 1.0) * h", ""),
        ("h = torch.index_add(torch.zeros(4, 32), 0, x[:, 0].long() * 0, h)", "writes 16-bit"),
        ("h.index_add_(0, torch.arange(4), torch.ones(4, 32))", "writes fp32"),
        ("h = h.clone()\n        h[x[:, 0] > 0] = torch.zeros(32)", "writes fp32"),
        ("h = h.clone()\n        h[x[:, 0] > 0] = self.a.bias", "writes fp32"),
        ("h = h.clone()\n        h[x[:, 0] > 0] = 0.0", ""),
        (
            "z = torch.zeros_like(h)\n        for _ in range(2):\n            z = torch.zeros_like(z)\n        z[x[:, 0] > 0] = torch.ones(32)",
            "writes fp32",
        ),
        ("h = h.clone()\n        h[:, 0] = self.a.bias[0]", ""),
        ("x = x.clone()\n        x[x[:, 0] > 0] = torch.zeros(8)", ""),
        ("h = torch.mm(h.detach(), torch.eye(32), out=torch.empty(16, 32)) + h", "has `out`"),
        ("h = torch.mul(h.detach(), 2.0, out=torch.empty(16, 32)) + h", ""),
        (
            "h = h * F.embedding_bag(x.long() % 32, torch.eye(32), per_sample_weights=h[:, :8], mode='sum')",
            "the weights of",
        ),
        (
            "h = h * F.embedding_bag(x.long() % 32, torch.eye(32), per_sample_weights=x, mode='sum')",
            "",
        ),
        ("h = h + h.view(torch.int32) % 2", "reads the bits"),
        ("assert h.dtype == torch.float32", "demands a dtype"),
        ("if h.dtype != x.dtype:\n            raise TypeError", "demands a dtype"),
        ("assert x.dtype == torch.float32", ""),
        ("h = h.view(16, -1)", ""),
        ("h = h + torch.zeros(16, 32).scatter(1, h.argmax(1, keepdim=True), 1.0)", ""),
    ],
)
def test_code_that_wants_its_own_dtype(line: str, why: str) -> None:
    text = changed(
        "return self.b(torch.relu(self.a(x)))",
        f"h = self.a(x)\n        {line}\n        return self.b(torch.relu(h))",
    )
    done = amp(text)
    assert bool(done.fixes) == (not why) and why in done.refusals, done.refusals
    if not why:
        same(text)


@pytest.mark.parametrize(
    ("weight", "why"),
    [
        ("torch.randn(8, 32) + 1j * torch.randn(8, 32)", "is complex"),
        ("torch.view_as_complex(torch.randn(8, 32, 2))", "is complex"),
        ("torch.randn(8, 32, dtype=torch.cfloat)", "is complex"),
        ("torch.randn(8, 32).double()", "float64"),
        ("torch.randn(8, 32, dtype=torch.float64)", "float64"),
        ("torch.from_numpy(__import__('numpy').ones((8, 32)))", "float64"),
    ],
)
def test_complex_and_double_parameters(weight: str, why: str):
    head = HEAD.replace(
        "        self.a = nn.Linear(8, 32)",
        f"        self.a = nn.Linear(8, 32)\n        self.w = nn.Parameter({weight})",
    )
    head = head.replace(
        "torch.relu(self.a(x))",
        "torch.relu(self.a(x) + (x.to(self.w.dtype) @ self.w).abs().float())",
    )
    free = HEAD.replace(
        "optimizer = ", f"w = {weight}\nw.requires_grad_()\nv = nn.Parameter(w)\noptimizer = ", 1
    )
    for text in (
        head + LOOP,
        free.replace("model.parameters()", "[*model.parameters(), v]") + LOOP,
    ):
        done = amp(text)
        assert not done.fixes and why in done.refusals, done.refusals
        assert trained(done.before)["losses"]


EACH = """
losses += [round(criterion(model(X[i].to(device)), Y[i].to(device)).item(), 6) for i in range(6)]
"""
CALLED = """
def measure(i):
    return criterion(model(X[i].to(device)), Y[i].to(device)).item()


losses.append(measure(0))
"""


@pytest.mark.parametrize(
    "measures",
    [EACH, CALLED, "losses.append(criterion(model(X[0].to(device)), Y[0].to(device)).item())"],
)
@pytest.mark.parametrize("target", ["cuda", "cpu"])
def test_an_evaluation_in_one_statement_is_found_before_it_is_under_no_grad_too(
    measures: str, target: str
):
    """Both rules at once, and one after the other, must give the same."""
    text = script() + measures
    both = apply(f"{AMP} no-grad-eval", text, target=target)
    first = apply("no-grad-eval", text, target=target)
    assert (
        both.text
        == apply(AMP, first.text, target=target).text
        != apply(AMP, script(), target=target).text
    )
    assert len([f for f in both.fixes if f.rule == "autocast"]) == 2
    assert close(trained(both.before)["losses"], trained(both.text)["losses"], 0.02)


def test_a_measurement_that_is_made_now_and_then_stays():
    """Neither rule looks at it, in whichever order they come."""
    loop = (
        LOOP
        + "    if i % 3 == 0:\n        print(criterion(model(X[0].to(device)), Y[0].to(device)).item())\n"
    )
    done = apply(f"{AMP} no-grad-eval", script(loop), target="cpu")
    assert [f.rule for f in done.fixes] == ["autocast"]


# --------------------------------------------------------------------------- one precision for both
ROLLOUT = """
from torch.distributions import Categorical

for epoch in range(2):
    x = X[epoch].to(device)
    with torch.no_grad():
        dist = Categorical(logits=model(x))
        act = dist.sample()
        old = dist.log_prob(act)
    for _ in range(3):
        new = Categorical(logits=model(x)).log_prob(act)
        {ratio}
        loss = -ratio.clamp(0.8, 1.2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
"""


@pytest.mark.parametrize(
    ("ratio", "why"),
    [
        ("ratio = torch.exp(new - old)", "the ratio of both would not start at 1"),
        ("ratio = (new - old.detach()).sum(-1, keepdim=True).exp()", "would not start at 1"),
        ("difference = new - old\n        ratio = torch.exp(difference)", "would not start at 1"),
        ("weigh = lambda a, b: (a - b).exp()\n        ratio = weigh(new, old)", "would not start"),
        ("ratio = torch.exp(new - new.max())", ""),
        ("ratio = torch.exp(new - 1.0)", ""),
        ("ratio = new", ""),
    ],
)
def test_the_policy_of_a_rollout_and_of_an_update_round_alike(ratio: str, why: str):
    done = amp(HEAD + ROLLOUT.format(ratio=ratio))
    assert bool(done.fixes) is not bool(why) and why in done.refusals, done.refusals
    assert trained(done.text)["losses"] == trained(done.before)["losses"]


def test_a_ratio_in_a_method():
    text = (
        HEAD
        + """
from torch.distributions import Categorical


class Agent:
    def collect(self, x):
        with torch.no_grad():
            dist = Categorical(logits=model(x))
            self.act = dist.sample()
            return {"x": x, "old": dist.log_prob(self.act)}

    def loss(self, data):
        x, old = data["x"], data["old"]
        new = Categorical(logits=model(x)).log_prob(self.act)
        return -torch.exp(new - old).mean()


agent = Agent()
for epoch in range(2):
    data = agent.collect(X[epoch].to(device))
    loss = agent.loss(data)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
"""
    )
    done = amp(text)
    assert not done.fixes and "would not start at 1" in done.refusals


def test_a_ratio_of_what_a_buffer_has_gathered():
    text = (
        HEAD
        + """
from torch.distributions import Categorical


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = model

    def evaluate(self, x, act):
        dist = Categorical(logits=self.actor(x))
        return dist.log_prob(act), dist.entropy()


policy, kept, acts = Policy(), [], []
for epoch in range(2):
    x = X[epoch].to(device)
    with torch.no_grad():
        dist = Categorical(logits=policy.actor(x))
        act = dist.sample()
        kept.append(dist.log_prob(act).detach())
    old = torch.squeeze(torch.stack(kept[-1:], dim=0)).detach().to(device)
    for _ in range(2):
        new, entropy = policy.evaluate(x, act)
        loss = -torch.exp(new - old.detach()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
"""
    )
    done = amp(text)
    assert not done.fixes and "would not start at 1" in done.refusals


@pytest.mark.parametrize(
    "prepares",
    [
        "torch.ao.quantization.prepare_qat(model.train(), inplace=True)",
        "import torch.ao.quantization as tq\ntq.prepare(model, inplace=True)",
        "from torch.ao.quantization.quantize_fx import prepare_qat_fx\nmodel = prepare_qat_fx(model, {}, (X[0],))",
        "fake = torch.ao.quantization.FakeQuantize()",
        "torch.fake_quantize_per_tensor_affine(model.a.weight, 1.0, 0, 0, 255)",
    ],
)
def test_training_that_knows_of_quantisation_stays_in_fp32(prepares: str):
    done = apply(f"{AMP} tf32", changed("optimizer = ", f"{prepares}\noptimizer = "))
    assert not done.fixes and "prepares quantisation" in done.refusals


@pytest.mark.parametrize(
    "forward",
    [
        "h = self.b(torch.relu(self.a(x)))\n        return h + torch.linalg.eigvalsh(h[:4, :4])",
        "h = self.b(torch.relu(self.a(x)))\n        return h + (h.mT @ h + torch.eye(4)).cholesky()[0]",
        "h = self.b(torch.relu(self.a(x)))\n        return h + torch.distributions.MultivariateNormal(h, torch.eye(4)).rsample()",
    ],
)
def test_factorisations_in_a_model_stay_in_fp32(forward: str):
    done = alone(changed("return self.b(torch.relu(self.a(x)))", forward))
    assert not done.fixes and "linear algebra" in done.refusals


def test_sines_of_what_no_product_gives():
    """Fp32 data times numbers are fp32 under autocast."""
    assert alone(changed("torch.relu(self.a(x))", "torch.relu(self.a(torch.sin(30 * x)))")).fixes
    learned = "w = self.a.weight[:1].view(1, -1)\n        h = torch.sin(x * w * 2 * 3.14)\n"
    body = f"{learned}        return self.b(torch.relu(self.a(h)))"
    assert alone(changed("return self.b(torch.relu(self.a(x)))", body)).fixes


@pytest.mark.parametrize(
    "angle", ["h = self.a(x)\n        h *= 2\n        h", "h = self.a(x).view(-1, 32)\n        h"]
)
def test_sines_of_what_a_layer_gives(angle: str):
    body = f"{angle} = 30 * h\n        return self.b(torch.sin(h))"
    done = alone(changed("return self.b(torch.relu(self.a(x)))", body))
    assert not done.fixes and "sine or cosine" in done.refusals


# ------------------------------------------------------------------------- where it would be slower
WIDE = "nn.Linear(256, 256)"


@pytest.mark.parametrize("target", ["cuda", "cpu"])
@pytest.mark.parametrize(
    ("layers", "small"),
    [
        ("nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)", True),
        ("nn.Linear(8, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.Linear(4096, 4)", False),
        ("nn.Unflatten(1, (1, 8)), nn.Conv1d(1, 64, 3), nn.Flatten(), nn.Linear(384, 4)", False),
    ],
)
def test_networks_bound_by_launches_stay_in_fp32(target: str, layers: str, small: bool):
    text = changed("Net().to(device)", f"nn.Sequential({layers}).to(device)")
    done = apply(AMP, text, target=target, min_gain=0.01)
    assert bool(done.fixes) is not small
    assert apply(AMP, text, target=target).fixes


@pytest.mark.parametrize(
    ("layers", "small"),
    [
        ("nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 4)", True),
        (f"nn.Linear(8, 256), nn.ReLU(), {WIDE}, nn.Linear(256, 4)", True),
        ("nn.Linear(8, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.Linear(4096, 4)", False),
        ("nn.Unflatten(1, (1, 8)), nn.Conv1d(1, 64, 3), nn.Flatten(), nn.Linear(384, 4)", False),
        ("nn.Linear(len(X[0, 0]), 128), nn.Linear(128, 4)", True),
        ("nn.Linear(len(X[0, 0]), 512), nn.Linear(512, 4)", True),
        ("nn.Linear(len(X[0, 0]), 2048), nn.Linear(2048, 2048), nn.Linear(2048, 4)", False),
    ],
)
def test_networks_bound_by_launches_stay_in_fp32_unless_asked_for(layers: str, small: bool):
    text = changed("Net().to(device)", f"nn.Sequential({layers}).to(device)")
    done = apply(AMP, text, min_gain=0.01)
    assert bool(done.fixes) is not small
    assert all(f.gain and "bound by launches" in f.gain.reason for f in done.findings) is small
    assert apply(AMP, text).fixes
    assert trained(done.text)["losses"]


def test_a_first_network_for_digits_stays_in_fp32_on_a_gpu():
    layers = "nn.Unflatten(1, (1, 8)), nn.Conv1d(1, 32, 3), nn.Flatten(), nn.Linear(192, 4)"
    text = changed("Net().to(device)", f"nn.Sequential({layers}).to(device)")
    done = apply(AMP, text, min_gain=0.01)
    assert not done.fixes
    assert any(f.gain and "32 channels at the most" in f.gain.reason for f in done.findings)
    assert apply(AMP, text).fixes and apply(AMP, text, target="cpu", min_gain=0.01).fixes


EVALUATE = """
@torch.no_grad()
def evaluate(model, loader):
    total = 0.0
    for x, y in loader:
        total += criterion(model(x.to(device)), y.to(device)).item()
    return total

print(evaluate(model, DataLoader(list(zip(X[0], Y[0])), batch_size=4)))
"""


@pytest.mark.parametrize("model", ["layers", "Wide()"])
def test_an_evaluation_goes_on_in_fp32_unless_asked_for(model: str):
    """Also where the layers are called by a class of the script."""
    wide = """
layers = nn.Sequential(nn.Linear(8, 4096), nn.Linear(4096, 4096), nn.Linear(4096, 4))

class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = layers

    def forward(self, x):
        return self.layers(x)

"""
    loaded = "from torch.utils.data import DataLoader\n"
    text = changed("Net().to(device)", f"{model}.to(device)").replace(
        "model =", wide + "model =", 1
    )
    text += loaded + EVALUATE
    done, whole = apply(AMP, text, min_gain=0.01), apply(AMP, text)
    blocks = [sum("autocast" in line for line in found.lines) for found in (done, whole)]
    assert blocks[1] == blocks[0] + 1 > 1


def test_who_names_the_rule_gets_it():
    def named(*select: str, precision: str = "auto") -> frozenset[str]:
        config = replace(Config(), select=select, precision=precision)
        return options_of(config, list(all_rules().values())).named

    assert not named() and not named("all") and named("autocast") == {"autocast"}
    assert {"autocast", "grad-scaler"} <= named("precision") & named(precision="bf16")


# ---------------------------------------------------------- where the constant stands, what enables
CONSTANT = "amp_dtype = torch.bfloat16 if has_bf16 else torch.float16"
ASKED = "has_bf16 = torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 8"
IN_FUNCTIONS = """
def train_one(model, optimizer, device, i):
    optimizer.zero_grad()
    loss = criterion(model(X[i].to(device)), Y[i].to(device))
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

for i in range(6):
    train_one(model, optimizer, device, i)
"""


def test_the_constant_is_beside_the_optimizer_where_all_blocks_follow() -> None:
    assert f"lr=0.1)\n{ASKED}\n" in alone(script()).text
    body = script().split("\nmodel = ")
    done = alone(f"{body[0]}\ndef main():\n" + indent("model = " + body[1], "    ") + "\nmain()\n")
    assert f"lr=0.1)\n    {ASKED}\n" in done.text


def test_the_constant_is_below_the_imports_where_functions_need_it() -> None:
    assert f"functional as F\n\n{ASKED}\n" in alone(script(IN_FUNCTIONS)).text
    done = amp(script(IN_FUNCTIONS))
    assert done.text.count(CONSTANT) == 1 and f"{CONSTANT}\n\ntorch.manual_seed" in done.text
    assert trained(done.text)["losses"] == trained(done.before)["losses"] and not faked(done)


def test_an_optimizer_that_is_made_under_a_condition() -> None:
    made = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
    choice = f"if len(X) > 3:\n    {made}\nelse:\n    {made.replace('SGD', 'Adam')}"
    done = alone(script().replace(made, choice, 1))
    assert f"functional as F\n\n{ASKED}\n" in done.text and NATIVE in done.lines


@pytest.mark.parametrize(
    "said", ["# os.environ['CUDA_VISIBLE_DEVICES'] = '0'\n", "'CUDA_VISIBLE_DEVICES=0 train.py'\n"]
)
def test_devices_that_only_words_choose(said: str) -> None:
    """A comment, or a docstring that says how to start it, sets nothing: a constant will do."""
    head = HEAD.replace(
        "import torch.nn.functional as F\n", f"import torch.nn.functional as F\n{said}"
    )
    text = amp(script(IN_FUNCTIONS, head)).text
    assert "\namp_dtype = " in text and "amp_dtype()" not in text


@pytest.mark.parametrize(
    ("change", "files"),
    [
        (
            "import os\ndef choose():\n    os.environ['CUDA_VISIBLE_DEVICES'] = ''\nchoose()\n",
            {},
        ),
        ("from multiprocessing import Pool\n", {}),
        ("import torch.multiprocessing as mp\n", {}),
        ("from multiprocessing import Pool\n", {"requirements.txt": "torch==2.3.1\n"}),
    ],
)
def test_fp16_asks_nothing_where_a_constant_would_ask_too_early(
    change: str, files: dict[str, str]
) -> None:
    head = HEAD.replace(
        "import torch.nn.functional as F\n", f"import torch.nn.functional as F\n{change}"
    )
    done = amp(script(IN_FUNCTIONS, head), files=files)
    assert "amp_dtype" not in done.text and "dtype=torch.float16, enabled=" in done.text
    assert ".GradScaler(" in done.text and "dtype ==" not in done.text
    assert not trained(done.text)["scaler"].is_enabled()


LOOPS = """
def train(batches):
    for _ in range(3):
        for i in batches:
            optimizer.zero_grad()
            loss = criterion(model(X[i].to(device)), Y[i].to(device))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())


{}
"""
PER_BATCH = """
def train_one(x, y):
    for _ in range(3):
        optimizer.zero_grad()
        loss = criterion(model(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())


data = torch.utils.data.TensorDataset(X.flatten(0, 1), Y.flatten())
for epoch in range(2):
    for x, y in torch.utils.data.DataLoader(data, batch_size=16):
        train_one(x, y)
"""


def test_a_function_asks_above_its_loops_and_the_import_of_its_module_does_not() -> None:
    done = alone(script(LOOPS.format("train(range(6))")))
    assert f"def train(batches):\n    {ASKED}\n    for _" in done.text
    assert done.text.count("has_bf16 = ") == 1
    assert trained(done.text)["losses"] == trained(done.before)["losses"]


def test_three_functions_share_a_constant() -> None:
    more = "".join(
        LOOPS.format("").replace("train(", f"train_{n}(") + f"\n\ntrain_{n}(range(6))\n"
        for n in range(3)
    )
    done = alone(script(more))
    assert done.text.count("has_bf16 = ") == 1 and f"\n{ASKED}\n" in done.text
    assert trained(done.text)["losses"] == trained(done.before)["losses"]


def test_a_function_that_runs_for_each_batch_does_not_ask() -> None:
    done = alone(script(PER_BATCH))
    assert done.text.count("has_bf16 = ") == 1 and f"\n{ASKED}\n" in done.text
    assert trained(done.text)["losses"] == trained(done.before)["losses"]


@pytest.mark.parametrize(
    "change",
    [
        "import os\ndef choose():\n    os.environ['CUDA_VISIBLE_DEVICES'] = ''\nchoose()\n",
        "import torch.multiprocessing as mp\n",
    ],
)
def test_a_function_asks_for_bf16_where_its_module_would_ask_too_early(change: str) -> None:
    head = HEAD.replace(
        "import torch.nn.functional as F\n", f"import torch.nn.functional as F\n{change}"
    )
    done = alone(script(IN_FUNCTIONS, head))
    assert done.text.count(f"    {ASKED}\n") == 1 and NATIVE in done.lines
    assert trained(done.text)["losses"] == trained(done.before)["losses"]


def test_a_constant_stands_below_the_line_that_chooses_the_devices() -> None:
    chosen = "import os\n\nos.environ['CUDA_VISIBLE_DEVICES'] = ''\n"
    head = HEAD.replace(
        "import torch.nn.functional as F\n", f"import torch.nn.functional as F\n{chosen}"
    )
    done = amp(script(IN_FUNCTIONS, head))
    assert "def amp_dtype():" not in done.text and "dtype=amp_dtype," in done.text
    assert 0 < done.text.index("VISIBLE_DEVICES'] = ") < done.text.index("\namp_dtype = ")
    assert not trained(done.text)["scaler"].is_enabled()


@pytest.mark.parametrize(
    ("cuda", "asked"),
    [
        ('"cuda"', "has_bf16 = torch.cuda.get_device_capability()[0] >= 8 amp_dtype"),
        (None, "torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 8"),
    ],
)
def test_any_torch_is_asked_what_it_knows(cuda: str | None, asked: str) -> None:
    text = script(IN_FUNCTIONS)
    if cuda:
        text = text.replace('torch.device("cuda" if torch.cuda.is_available() else "cpu")', cuda)
    done = amp(text, files={"requirements.txt": "torch==1.13.1\n"})
    assert asked in " ".join(done.text.split())
    assert ("torch.cuda.is_available() and" in done.text) is (cuda is None)
    assert "scaler = torch.cuda.amp.GradScaler(" in done.text and "is_bf16" not in done.text
    if not cuda:
        with pytest.warns(FutureWarning, match="deprecated"):
            assert not run(done.text)["scaler"].is_enabled()


def test_a_module_can_still_be_imported_where_no_gpu_is() -> None:
    step = """\
        import torch.nn.functional as F

        def step(model, optimizer, x, y):
            loss = F.cross_entropy(model(x.to("cuda")), y.to("cuda"))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """
    entry = """\
        import torch
        from torch.utils.data import DataLoader, TensorDataset
        from stepping import step

        model = torch.nn.Sequential(torch.nn.Linear(512, 4096), torch.nn.Linear(4096, 10)).to("cuda")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        data = TensorDataset(torch.randn(4096, 512), torch.randint(0, 10, (4096,)))
        for x, y in DataLoader(data, batch_size=256):
            step(model, optimizer, x, y)
    """
    done = amp(entry, files={"stepping.py": step})
    module = done.texts["stepping.py"]
    assert "has_bf16 = torch.cuda.is_available() and torch.cuda.get_device_capability" in module
    assert run(module)["amp_dtype"] is torch.float16


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("asked", ["==1.8", ">=1.8"])
def test_autocast_of_a_torch_that_takes_no_dtype(asked: str) -> None:
    done = amp(script(), files={"requirements.txt": f"torch{asked}\n"})
    assert 'with torch.cuda.amp.autocast(enabled=device.type == "cuda"):' in done.lines
    assert 'scaler = torch.cuda.amp.GradScaler(enabled=device.type == "cuda")' in done.lines
    assert run(done.text)["losses"] == run(script())["losses"]
    by_default = amp(script(), files={"requirements.txt": f"torch{asked}\n"}, precision="auto")
    assert by_default.text == done.text
    assert not any("bf16" in f.message for f in by_default.fixes)
    assert any("--precision either" in f.message for f in amp(script(), precision="auto").fixes)
    done = amp(script(), files={"requirements.txt": f"torch{asked}\n"}, precision="bf16")
    needed = f"torch {asked}, and what would be written needs torch 1.10"
    assert not done.fixes and needed in done.refusals


def test_no_condition_where_cuda_is_required() -> None:
    text = script().replace(
        'torch.device("cuda" if torch.cuda.is_available() else "cpu")', '"cuda"'
    )
    done = amp(text)
    assert 'with torch.autocast("cuda", dtype=amp_dtype):' in done.lines
    assert 'scaler = torch.amp.GradScaler("cuda", enabled=amp_dtype == torch.float16)' in done.lines
    done = amp(text, precision="fp16")
    assert 'scaler = torch.amp.GradScaler("cuda")' in done.lines


FLAGGED = """
import argparse
import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--no-cuda", action="store_true")
args = parser.parse_args([])
args.cuda = {flag}
torch.manual_seed(0)
X, Y = torch.randn(6, 16, 8), torch.randint(0, 4, (6, 16))
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
if args.cuda:
    model.cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []


def train():
    for x, y in zip(X, Y):
        if args.cuda:
            x, y = x.cuda(), y.cuda()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())


train()
"""


def test_the_flag_of_the_script() -> None:
    done = amp(FLAGGED.format(flag="not args.no_cuda and torch.cuda.is_available()"))
    assert 'with torch.autocast("cuda", dtype=amp_dtype, enabled=args.cuda):' in done.lines
    assert (
        'scaler = torch.amp.GradScaler("cuda", enabled=args.cuda and amp_dtype == torch.float16)'
        in done.text
    )
    assert trained(done.text)["losses"] == trained(done.before)["losses"] and not faked(done)


@pytest.mark.parametrize(
    "flag",
    [
        "not args.no_cuda",
        "torch.cuda.is_available() or args.no_cuda",
        "input() and torch.cuda.is_available()",
    ],
)
def test_a_flag_that_may_be_true_without_cuda_or_no_bool(flag: str) -> None:
    done = amp(FLAGGED.format(flag=flag))
    assert (
        'with torch.autocast("cuda", dtype=amp_dtype, enabled=torch.cuda.is_available()):'
        in done.lines
    )


def test_an_option_without_which_nothing_goes_to_the_gpu() -> None:
    """Where it is given, the batches were moved above: there is CUDA."""
    option = FLAGGED.replace("--no-cuda", "--cuda").replace("args.cuda = {flag}\n", "")
    done = amp(option)
    assert 'with torch.autocast("cuda", dtype=amp_dtype, enabled=args.cuda):' in done.lines
    assert trained(done.text)["losses"] == trained(done.before)["losses"]
    text = option.replace(
        "if args.cuda:\n    model.cuda()", "if torch.cuda.is_available():\n    model.cuda()"
    )
    assert "enabled=args.cuda" not in amp(text).text
    value = option.replace('action="store_true"', "type=int, default=0")
    assert "enabled=args.cuda" not in amp(value).text


def test_the_number_of_a_gpu_without_which_nothing_goes_there() -> None:
    """It is -1 by default: the model stays on the host of a machine that has a GPU."""
    number = FLAGGED.replace('"--no-cuda", action="store_true"', '"--gpu", type=int, default=-1')
    number = number.replace("args.cuda = {flag}\n", "").replace(
        "if args.cuda:", "if args.gpu >= 0:"
    )
    number = number.replace(".cuda()", ".cuda(args.gpu)")
    done = amp(number)
    assert 'with torch.autocast("cuda", dtype=amp_dtype, enabled=args.gpu >= 0):' in done.lines
    assert '"cuda", enabled=args.gpu >= 0 and amp_dtype == torch.float16' in done.text
    assert trained(done.text)["losses"] == trained(done.before)["losses"]
    gate, model = "if args.gpu >= 0:\n    ", "model.cuda(args.gpu)"
    assert gate + model in number
    another = (
        "def place(args):\n    if args.gpu >= 0:\n        model.cuda(args.gpu)\n\n"
        'second = argparse.ArgumentParser()\nsecond.add_argument("--gpu", type=int, default=0)\n'
        "place(second.parse_args([]))"
    )
    for other in (f"if torch.cuda.is_available():\n    {model}", another):
        assert "enabled=args.gpu" not in amp(number.replace(gate + model, other)).text


@pytest.mark.parametrize("where", ["above", "below"])
def test_a_function_asks_the_device_that_is_known_where_it_is_defined(where: str) -> None:
    place = 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n'
    step = """
def train():
    for x, y in zip(X, Y):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

"""
    above, head = (place, "") if where == "above" else ("", place)
    text = HEAD.replace(place, above + step + head).replace("8)", "8).to(device)")
    done = amp(text.replace("(6, 16))", "(6, 16)).to(device)") + "train()\n")
    asked = 'device.type == "cuda"' if where == "above" else "torch.cuda.is_available()"
    assert f'with torch.autocast("cuda", dtype=amp_dtype, enabled={asked}):' in done.lines
    assert trained(done.text)["losses"] == trained(done.before)["losses"]


TRAINER = """

class Trainer:
    def __init__(self, args):
        self.args = args

    def train(self):
        for x, y in zip(X, Y):
            if self.args.cuda:
                x, y = x.cuda(), y.cuda()
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())


Trainer(args).train()
"""


@pytest.mark.parametrize(("more", "own"), [("", True), ("self.args = copy(args)", False)])
def test_the_flag_of_the_script_in_an_attribute(more: str, own: bool) -> None:
    text = FLAGGED.format(flag="not args.no_cuda and torch.cuda.is_available()")
    trainer = TRAINER.replace("self.args = args", f"self.args = args\n        {more}")
    done = amp("from copy import copy\n" + text[: text.index("\n\ndef train")] + trainer)
    asked = "self.args.cuda" if own else "torch.cuda.is_available()"
    assert f'"cuda", dtype=amp_dtype, enabled={asked}' in done.text
    assert trained(done.text)["losses"] == trained(done.before)["losses"]


ENGINE = """
import torch
import torch.nn.functional as F


def train_one(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()
"""
BY_ENGINE = "for i in range(6):\n    losses.append(train_one(model, optimizer, X[i].to(device), Y[i].to(device)))\n"


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("engine.py", "from engine import train_one"),
        ("lib/engine.py", "from lib.engine import train_one"),
    ],
)
def test_a_constant_in_each_of_two_files(tmp_path: Path, name: str, line: str) -> None:
    head = HEAD.replace("from torch import nn", f"from torch import nn\n{line}")
    done = amp(script(BY_ENGINE, head), files={name: ENGINE})
    assert done.texts[name].count(CONSTANT) == done.text.count(CONSTANT) == 1
    for path, text in {"train.py": done.before, name: ENGINE}.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    files = {path: text.encode() for path, text in done.texts.items()}
    for fake, effect in ((False, Effect.EXACT), (True, Effect.ROUNDING)):
        before, after = HARNESS.run_many(
            [Job(tmp_path), Job(tmp_path, files=files, fake_cuda_amp=fake)]
        )
        assert before.ok and not compare(before, after, effect, HALF)


@pytest.mark.parametrize(
    ("other", "asked"),
    [
        ("", 'dtype=amp_dtype, enabled=device.type == "cuda"'),
        (  # it would train in fp16 without a scaler: bf16 alone
            "from engine import train_one\ntrain_one(None, None, None, None, 'cpu')\n",
            "dtype=torch.bfloat16, enabled=has_bf16",
        ),
    ],
)
def test_a_function_that_another_script_calls_and_its_device(other: str, asked: str) -> None:
    engine = ENGINE.replace("x, y)", "x, y, device)", 1).replace(
        "(x), y)", "(x.to(device)), y.to(device))"
    )
    loop = BY_ENGINE.replace("X[i].to(device), Y[i].to(device)", "X[i], Y[i], device")
    head = HEAD.replace(
        "from torch import nn", "from torch import nn\nfrom engine import train_one"
    )
    done = amp(script(loop, head), files={"engine.py": engine, "other.py": other})
    assert f"{asked}):" in done.texts["engine.py"]
    assert ("scaler" in done.texts["engine.py"]) == (not other)


# ----------------------------------------------------------------------------------- there, and off
SWITCH = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--mixed', action='store_true')\nargs = parser.parse_args([])\n"


@pytest.mark.parametrize(
    ("before", "form", "advice"),
    [
        (
            SWITCH,
            'with torch.autocast("cuda", enabled=args.mixed):\n        loss = criterion(model(x), y)',
            "it is there, and off by default: turn on `--mixed` (line 4 of train.py)",
        ),
        (
            SWITCH,
            'if args.mixed:\n        with torch.autocast("cuda"):\n            loss = criterion(model(x), y)\n    else:\n'
            "        loss = criterion(model(x), y)",
            "turn on `--mixed` (line 4 of train.py)",
        ),
        (
            "MIXED = False\n",
            'with torch.autocast("cuda", enabled=MIXED):\n        loss = criterion(model(x), y)',
            "turn on the setting (line 2 of train.py)",
        ),
        (
            SWITCH,
            "with torch.cuda.amp.autocast(enabled=args.mixed):\n        out = model.a(x)\n"
            "    loss = criterion(model.b(out.float()), y)",
            "turn on `--mixed` (line 4 of train.py)",
        ),
        (
            SWITCH.replace("store_true", "store_false"),
            'with torch.autocast("cuda", enabled=args.mixed):\n        loss = criterion(model(x), y)',
            "",
        ),
        (
            "",
            'with torch.autocast("cuda", enabled=False):\n        loss = criterion(model(x), y)',
            "",
        ),
    ],
)
def test_there_and_off_by_default(before: str, form: str, advice: str):
    """What the script can do already is only to be turned on; what is spelled out as off is wanted
    so.
    """
    done = amp("import torch\n" + before + changed(LOSS, form), rules="autocast")
    assert not done.fixes
    assert advice in done.advice if advice else not done.advice


IN_A_FILE = """
import torch
import yaml

with open("configs/base.yaml") as f:
    config = yaml.safe_load(f)
"""


@pytest.mark.parametrize(
    ("files", "advice"),
    [
        (
            {"configs/base.yaml": "lr: 0.1\ntrain:\n  mixed: false  # slow\n"},
            "turn on `config['train']['mixed']` (line 3 of configs/base.yaml)",
        ),
        ({"configs/base.yaml": "train:\n  mixed: true\n"}, ""),
    ],
)
def test_off_in_a_file_of_settings(files: dict[str, str], advice: str):
    form = 'with torch.autocast("cuda", enabled=config["train"]["mixed"]):\n        loss = criterion(model(x), y)'
    done = amp(IN_A_FILE + changed(LOSS, form), rules="autocast", files=files)
    assert not done.fixes
    assert advice in done.advice if advice else not done.advice


LABELLER = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Labeller(nn.Module):
    def __init__(self, weigh):
        super().__init__()
        self.weigh = weigh
        self.body = nn.Conv1d(8, 64, 3, padding=1)
        self.head = nn.Linear(64, 10)
        self.gate = nn.Linear(64, 64)

    def forward(self, x, lengths):
        lengths, order = torch.sort(lengths, descending=True)
        x = torch.relu(self.body(x[order])).transpose(1, 2)
        weights = self.gate(x) if self.weigh else None
        return self.head(x), weights, lengths.tolist(), order


model = Labeller(False).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
losses = []
for step in range(6):
    x = torch.randn(4, 8, 12).to(device)
    y, n = torch.randint(0, 10, (4, 12)).to(device), torch.randint(3, 12, (4,)).to(device)
    optimizer.zero_grad()
    scores, weights, lengths, order = model(x, n)
    packed = pack_padded_sequence(scores, lengths, batch_first=True).data
    wanted = pack_padded_sequence(y[order], lengths, batch_first=True).data
    loss = F.cross_entropy(packed, wanted)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
"""


def test_the_part_of_an_output_that_must_be_fp32():
    """The other parts are None, a list and indices, which have no float()."""
    done = same(LABELLER)
    assert (
        "scores, weights, lengths, order = model(x, n)\n        scores = scores.float()"
        in done.text
    )


def test_a_variable_that_gets_another_output_elsewhere():
    """Now and then the model is run in fp32 under the same name: what is done with that is not
    asked of the block.
    """
    later = LABELLER.replace(
        "    packed = pack_padded_sequence(scores, lengths, batch_first=True).data\n", ""
    ).replace("    wanted = pack_padded_sequence(y[order], lengths, batch_first=True).data\n", "")
    later = later.replace("cross_entropy(packed, wanted)", "cross_entropy(scores.mean(1), y[:, 0])")
    later = later.replace("scores.mean(1)", "scores.flatten(0, 1)").replace(
        "y[:, 0]", "y.flatten()"
    )
    once = "    if step % 3 == 2:\n        with torch.no_grad():\n            scores, _, _, _ = model(x, n)\n            spread = scores * 3.0\n"
    done = same(later + once)
    assert "float()" not in done.text


def test_a_network_that_is_not_in_the_project_is_not_known_for_its_wrapper():
    """DataParallel is a module whatever is in it."""
    text = HEAD.replace("import torch ", "from elsewhere import Network\nimport torch ", 1)
    text = text.replace("Net().to(device)", "nn.DataParallel(Network(8)).to(device)")
    done = amp(text + LOOP)
    assert not done.fixes and "what Network is made of is not known" in done.refusals
    assert not amp(text + LOOP, rules="compile channels-last").fixes


def test_one_function_trains_and_evaluates_in_one_statement() -> None:
    """The second call comes after the backward of the first: the statement is no training step of
    its own.
    """
    text = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = nn.Sequential(nn.Linear(2000, 2000), nn.ReLU(), nn.Linear(2000, 10)).to(device)
    opt, crit = torch.optim.Adam(model.parameters(), 0.01), nn.CrossEntropyLoss()
    data = DataLoader(TensorDataset(torch.randn(640, 2000), torch.zeros(640).long()), batch_size=64)

    def run(data, train):
        model.train(train)
        total = 0
        for src, trg in data:
            src, trg = src.to(device), trg.to(device)
            out = model(src)
            loss = crit(out, trg)
            if train:
                opt.zero_grad()
                loss.backward()
                opt.step()
            total += loss.item()
        return total

    for epoch in range(3):
        one, other = run(data, True), run(data, False)
        print(one, other)
    """
    done = apply("autocast grad-scaler", text)
    assert not done.refusals and "        scaler.scale(loss).backward()" in done.text
    assert "        loss = crit(out, trg)" in done.text.split("torch.autocast(")[1]


KEPT = """
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"


EVERY = []


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.all = nn.Linear(200, 200), nn.Linear(200, 10), []

    def forward(self, x):
        self.feature = torch.relu(self.a(x))
        self.all.append(self.feature.detach())
        EVERY.append(self.feature.detach().cpu())
        return self.b(self.feature)


teacher, student = Net().to(device), Net().to(device)
optimizer = torch.optim.Adam(student.parameters(), 0.01)
loader = DataLoader(TensorDataset(torch.randn(64, 200), torch.zeros(64).long()), batch_size=32)
kept, found = [], {}


def hook(module, given, output):
    found["first"] = output.detach()


student.a.register_forward_hook(hook)


def soft(x):
    with torch.no_grad():
        out = teacher(x)
    kept.append(out.cpu())
    return out


for x, y in loader:
    x, y = x.to(device), y.to(device)
    s = student(x)
    loss = F.cross_entropy(s, y) + F.mse_loss(s, soft(x))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    seen = None
"""


def test_what_a_teacher_gives_is_kept_in_fp32() -> None:
    text = KEPT.replace("seen = None", "seen = kept[-1].numpy()")
    layers = "nn.Sequential(nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10))"
    text = text.replace("Net()", layers).replace("student.a.", "student[0].")
    done = apply("autocast", text)
    assert "out = teacher(x).float()" in done.text
    here = re.sub(r'autocast\("cuda".*\):', 'autocast("cpu", dtype=torch.bfloat16):', done.text)
    assert run(here)["seen"].dtype == "float32"
    with pytest.raises(TypeError, match="BFloat16"):
        run(here.replace("teacher(x).float()", "teacher(x)"))


@pytest.mark.parametrize(
    ("read", "place"),
    [
        ("student.feature.detach().cpu().numpy()", "student.feature"),
        ("found['first'].cpu().numpy()", "found['first'].cpu()"),
        ("[f.cpu().numpy() for f in student.all]", "student.all"),
        ("torch.cat(student.all).cpu().numpy()", "student.all"),
        ("[f.numpy() for f in EVERY]", "EVERY"),
    ],
)
def test_what_is_kept_under_autocast_is_not_given_to_numpy(read: str, place: str) -> None:
    text = KEPT.replace("seen = None", f"seen = {read}")
    done = apply("autocast", text)
    assert f"`{place}` " in done.refusals and "16-bit" in done.refusals and not done.fixes
    cast = (
        read.replace(".detach()", "")
        .replace(".cpu()", "")
        .replace(".numpy()", ".detach().float().cpu().numpy()")
    )
    assert "torch.autocast" in apply("autocast", KEPT.replace("seen = None", f"seen = {cast}")).text


INTEGERS = """
    def last(self, x):
        return torch.full((len(x),), x.size(1) - 1)

    def forward(self, x):
        return self.b(torch.relu(self.a(x))), self.last(x)
"""


def test_what_may_be_integers_is_not_cast():
    """Of a method of the model, whose numbers the reader does not know: an index stays one."""
    forward = HEAD[HEAD.index("    def forward") : HEAD.index("\n\nmodel = ")]
    text = HEAD.replace(forward, INTEGERS) + LOOP.replace(
        "loss = criterion(model(x), y)",
        "out, last = model(x)\n    loss = criterion(out, y) + 0.0 * last.sum()\n    out[0, last[0] % 4]",
    )
    assert "last.float()" not in same(text).text


SIZES = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader
from lib import rows

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(512, 1024)

    def forward(self, x, sizes):
        return self.a(x), sizes

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.part, self.b = Part(), nn.Linear(1024, 9)

    def forward(self, x, sizes):
        x, sizes = self.part(x, sizes // 2)
        return self.b(x), sizes

model = Net().to(device)
optimizer = torch.optim.Adam(model.parameters())
for x, sizes, y, lengths in DataLoader(rows, batch_size=32):
    out, sizes = model(x.to(device), sizes.to(device))
    loss = F.ctc_loss(out.float().log_softmax(2).transpose(0, 1), y.to(device), sizes, lengths)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    sizes.cpu().numpy()
"""


def test_integers_that_a_part_of_the_model_hands_on_are_not_cast() -> None:
    """`ctc_loss` takes no floats for lengths."""
    found = apply("autocast", SIZES)
    assert "out, sizes = as_fp32(model(x.to(device), sizes.to(device)))" in found.lines
    floats = SIZES.replace("return self.a(x), sizes", "return self.a(x), self.a(x)[0, 0, sizes]")
    assert "sizes = sizes.float()" in apply("autocast", floats).text


COMPARED = """
import torch
from lib import Wrapped, batches
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Linear(512, 512).to(device)
optimizer = torch.optim.Adam(model.parameters())
for x, y in batches:
    loss = (model(x.to(device)) - y.to(device)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
wrapped = Wrapped(8)
optimizer = torch.optim.Adam(wrapped.{params})
for x, y in batches:
    loss = (wrapped(x.to(device)) - y.to(device)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_of_two_trainings_both_or_neither() -> None:
    """A notebook compares them: the other one trains a network of which nothing is known."""
    done = apply(AMP, COMPARED.format(params="parameters()"))
    assert not done.fixes and "no call of a model is seen" in done.refusals
    assert apply(AMP, COMPARED.format(params="positions")).fixes


BOXES = """
import torch
import torchvision
from data import loader

device = torch.device("cuda")
model = torchvision.models.detection.{network}(weights="DEFAULT")
model.to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for images, targets in loader:
    images = [image.to(device) for image in images]
    targets = [{{k: v.to(device) for k, v in t.items()}} for t in targets]
    {found}
    loss = sum(loss for loss in losses.values())
    print(loss.item())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("network", "found", "is_known"),
    [
        ("fasterrcnn_resnet50_fpn", "losses = model(images, targets)", True),
        ("ssd300_vgg16", "losses = model(images, targets=targets)", True),
        ("retinanet_resnet50_fpn", "losses = model(images, targets)", True),
        ("fasterrcnn_resnet50_fpn", "losses = model(images)[0]", False),
        ("secret_net", "losses = model(images, targets)", False),
        ("fasterrcnn_resnet50_fpn", "model.eval()\n    losses = model(images, targets)", False),
        (
            "fasterrcnn_resnet50_fpn",
            "model.eval()\n    model.train()\n    losses = model(images, targets)",
            True,
        ),
    ],
)
def test_losses_by_their_names(network: str, found: str, is_known: bool) -> None:
    """Networks of torchvision that find boxes compute their losses in fp32."""
    done = amp(BOXES.format(network=network, found=found))
    assert ("with torch.autocast(" in done.text) is is_known, done.refusals


TAGGED = """
class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 4)
        self.crf = CRF(4, batch_first=True)

    def forward(self, x, y):
        return -self.crf(self.b(torch.relu(self.a(x))), y, reduction="mean")


model = Tagger().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(6):
    x, y = X[i].to(device).reshape(4, 4, 8), Y[i].to(device).reshape(4, 4)
    optimizer.zero_grad()
    loss = model(x, y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
"""


class Field(torch.nn.Module):
    """What torchcrf computes: sums and `logsumexp` of parameters in fp32 and what it is given."""

    def __init__(self, tags: int, batch_first: bool = False):
        super().__init__()
        self.first = torch.nn.Parameter(torch.linspace(-0.1, 0.1, tags))
        self.pairs = torch.nn.Parameter(torch.linspace(-0.1, 0.1, tags * tags).view(tags, tags))

    def forward(self, scores: torch.Tensor, tags: torch.Tensor, reduction: str) -> torch.Tensor:
        rows, every, own = (
            torch.arange(len(tags)),
            self.first + scores[:, 0],
            self.first[tags[:, 0]],
        )
        own += scores[rows, 0, tags[:, 0]]
        for i in range(1, tags.shape[1]):
            own += self.pairs[tags[:, i - 1], tags[:, i]] + scores[rows, i, tags[:, i]]
            each = every.unsqueeze(2) + self.pairs + scores[:, i].unsqueeze(1)
            every = torch.logsumexp(each, dim=1)
        assert every.dtype == own.dtype == torch.float32
        return (own - torch.logsumexp(every, dim=1)).mean()


@pytest.mark.parametrize(("name", "known"), [("torchcrf", True), ("somecrf", False)])
def test_a_field_that_computes_in_fp32_whatever_it_is_given(
    name: str, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = types.ModuleType(name)
    stand_in.CRF = Field  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, name, stand_in)
    text = script(
        TAGGED,
        HEAD.replace("from torch import nn", f"from torch import nn\nfrom {name} import CRF"),
    )
    done = amp(text, target="cpu", precision="bf16")
    assert bool(done.fixes) is known and ("which may not take 16-bit" in done.refusals) is not known
    if known:
        assert close(trained(text)["losses"], trained(done.text)["losses"])
