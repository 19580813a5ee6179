"""fused-optimizer: which optimizers it takes, how it asks for the device, what it leaves alone."""

from __future__ import annotations

import pytest
import torch

from tests.onerule import Applied, apply, run

RULE = "fused-optimizer"
HEAD = """
import torch
from torch import nn, optim

torch.manual_seed(0)
{device}
{before}
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)){move}
optimizer = {optimizer}
losses = []
for step in range(20):
    x = torch.randn(8, 4, device=next(model.parameters()).device)
    optimizer.zero_grad()
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
"""
ADAM = "optim.Adam(model.parameters(), lr=1e-2)"
DEVICE = 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")'


def script(
    optimizer: str = ADAM, *, device: str = DEVICE, move: str = ".to(device)", before: str = ""
) -> str:
    return HEAD.format(optimizer=optimizer, device=device, move=move, before=before)


def made(
    *args: str,
    target: str = "cuda",
    precision: str = "",
    files: dict[str, str] | None = None,
    **parts: str,
) -> Applied:
    return apply(RULE, script(*args, **parts), target=target, precision=precision, files=files)


def joined(done: Applied) -> str:
    return " ".join(done.lines)


PLAIN = ["optimizer = optim.Adam(model.parameters(), lr=1e-2, fused=True)"]


def test_plainly() -> None:
    """GPUs have the kernels, and CPUs with torch 2.4 or newer: no condition there."""
    for done in (
        made(files={"requirements.txt": "torch>=2.4"}),
        made(target="cpu"),
        made(device="", move=".cuda()"),
    ):
        assert done.lines == PLAIN
    done = made(target="cpu")
    assert run(done.text)["losses"] == pytest.approx(run(done.before)["losses"], rel=1e-5)


FLAG = "use_cuda = torch.cuda.is_available()\ndevice = torch.device('cuda' if use_cuda else 'cpu')"
NAMED = "device = 'cuda' if torch.cuda.is_available() else 'cpu'"


@pytest.mark.parametrize(
    ("device", "test"),
    [
        (DEVICE, 'device.type == "cuda"'),
        (FLAG, "use_cuda"),
        (NAMED, "torch.cuda.is_available()"),
    ],
)
def test_where_cuda_is_in_a_script_that_may_run_without(device: str, test: str) -> None:
    """CPUs have the kernels since torch 2.4 only, and nothing says that it is that new."""
    done = made(device=device)
    assert joined(done).endswith(f"fused={test})") or f"fused={test}" in done.lines[-2]
    assert run(done.text)["losses"] == run(done.before)["losses"]


@pytest.mark.parametrize(
    ("caught", "plain"), [("KeyboardInterrupt", True), ("RuntimeError", False)]
)
def test_a_script_that_stops_where_no_cuda_is(caught: str, plain: bool) -> None:
    text = script(device="", move=".cuda()")
    head, _, body = text.partition("torch.manual_seed(0)\n")
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    main = f"def main():\n    if True:\n{lines}\ntry:\n    main()\nexcept {caught}:\n    pass\n"
    assert ("fused=True" in apply(RULE, head + main).text) is plain


@pytest.mark.parametrize(
    ("device", "written"),
    [
        (
            'device = torch.device("mps" if torch.backends.mps.is_available() else "cpu")',
            'fused=True if device.type == "cuda" else None',
        ),
        (
            # a string has no .type
            'device = "mps" if torch.backends.mps.is_available() else "cpu"',
            "fused=torch.cuda.is_available() or None",
        ),
    ],
)
def test_other_accelerators_got_the_kernels_later(device: str, written: str) -> None:
    done = made(device=device)
    assert written in joined(done)
    assert run(done.text)["losses"] == run(done.before)["losses"]


def test_arguments_in_a_dict() -> None:
    done = made(
        "optim.Adam(model.parameters(), **options)",
        before='options = {"lr": 0.1, "weight_decay": 0.9}',
    )
    assert '"fused": device.type == "cuda"' in joined(done)
    assert run(done.text)["losses"] == pytest.approx(run(done.before)["losses"], rel=1e-5)
    before = 'options = dict(lr=0.1)\nif model_is_new:\n    options["fused"] = True'
    assert not made(
        "optim.SGD(model.parameters(), **options)", before="model_is_new = True\n" + before
    ).fixes


def test_wrapped_and_grouped() -> None:
    groups = "optim.AdamW([{'params': model[0].parameters(), 'lr': 1e-3}, {'params': model[2].parameters()}], lr=1e-2)"
    assert "fused" in joined(made(groups))
    wrapper = """
class Scheduled:
    def __init__(self, inner):
        self.inner = inner
    def zero_grad(self):
        self.inner.zero_grad()
    def step(self):
        self.inner.step()
"""
    done = made(f"Scheduled({ADAM})", before=wrapper)
    assert "fused" in joined(done)
    assert run(done.text)["losses"] == pytest.approx(run(done.before)["losses"], rel=1e-5)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad"])
def test_on_a_cpu(name: str) -> None:
    done = made(f"optim.{name}(model.parameters(), lr=1e-2)", target="cpu")
    assert done.lines == [f"optimizer = optim.{name}(model.parameters(), lr=1e-2, fused=True)"]
    before, after = run(done.before), run(done.text)
    assert after["losses"] == pytest.approx(before["losses"], rel=1e-5)
    for p, q in zip(before["model"].parameters(), after["model"].parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)


def test_adagrad_on_cuda_depends_on_the_version() -> None:
    adagrad = "optim.Adagrad(model.parameters(), lr=1e-2)"
    assert "2.8" in made(adagrad).advice
    assert made(adagrad, files={"requirements.txt": "torch>=2.9\n"}).fixes


@pytest.mark.parametrize(
    "optimizer",
    [
        "optim.RMSprop(model.parameters())",
        "optim.Adadelta(model.parameters())",
        "optim.LBFGS(model.parameters())",
        "optim.Adam(model.parameters(), fused=True)",
        "optim.Adam(model.parameters(), foreach=False)",
        "torch.optim._multi_tensor.Adam(model.parameters())",  # which is foreach=True
    ],
)
def test_nothing_to_do(optimizer: str) -> None:
    assert made(optimizer).findings == ()


def test_scripts_without_a_gpu() -> None:
    done = made(device="", move="")
    assert not done.fixes and done.refusals == "nothing in this script goes to a GPU"
    assert made(device="", move="", target="cpu").fixes


OTHER = "optim.SGD(model.parameters(), lr=1e-2{momentum})"


@pytest.mark.parametrize(
    ("before", "optimizer"),
    [
        ("TUNE = False", "{other} if TUNE else optim.Adam(model.parameters())"),
        ("NAME = 'adam'", "optim.Adam(model.parameters()) if NAME == 'adam' else {other}"),
        ("TUNE = 0", "optim.Adam(model.parameters())\nextra = None if not TUNE else {other}"),
    ],
)
def test_an_arm_that_is_not_taken(before: str, optimizer: str) -> None:
    for momentum in ("", ", momentum=0.9"):  # which a GradScaler would spoil
        text = optimizer.format(other=OTHER.format(momentum=momentum))
        done = made(text, before=before, precision="either")
        assert len(done.fixes) == 1 and "Adam(model.parameters(), fused=dev" in done.text
        assert ("leads past it" in done.advice) is not bool(momentum)


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"optimizer": "optim.Adam(model.parameters(), capturable=True)"}, "capturable"),
        ({"optimizer": "optim.Adam(model.parameters(), differentiable=True)"}, "differentiable"),
        (
            {
                "optimizer": "optim.SGD(model.parameters(), 0.1)",
                "before": "table = nn.Embedding(9, 4, sparse=True)",
            },
            "sparse gradients",
        ),
        ({"before": "extra = nn.Parameter(torch.zeros(3, dtype=torch.cfloat))"}, "complex"),
        ({"move": ".to(device)\nmodel.share_memory()"}, "shared between processes"),
        ({"optimizer": ADAM + "\noptimizer.step = lambda: None"}, "step() is replaced"),
    ],
)
def test_refusals(parts: dict[str, str], why: str) -> None:
    done = made(**parts)
    assert not done.fixes and why in done.refusals


@pytest.mark.parametrize(
    ("files", "refused"),
    [
        ({"requirements.txt": "torch==1.13.1\n"}, True),
        ({"requirements.txt": "torchvision==0.19\ntorch  # any\n"}, False),
        ({"requirements.txt": "torchvision==0.8\ntorch  # any\n"}, True),
        ({"environment.yml": "dependencies:\n  - python=3.6.9\n  - pytorch\n"}, True),
        ({"environment.yml": "dependencies:\n  - python>=3.6\n  - pytorch\n"}, False),
        ({"requirements.txt": "torch>=1.7,<2.0\n"}, True),
        ({"requirements.txt": "torch<=2.4\n"}, False),
        ({"requirements.txt": "torch~=2.0\n"}, True),
        ({"requirements.txt": "torch~=2.0.1\n"}, True),
        ({"requirements.txt": "torch==2.*\n"}, True),
        ({"requirements.txt": "torch>=2.4\n"}, False),
        ({"requirements.txt": "torch>=1.6\n"}, True),
        ({"requirements.txt": "# torch==1.0\ntorch>=1.8\n"}, True),
        ({"pyproject.toml": '[project]\ndependencies = ["numpy", "torch==2.1.0"]\n'}, True),
        ({"pyproject.toml": '[tool.poetry.dependencies]\ntorch = "^1.12"\n'}, True),
        ({"pyproject.toml": '[tool.poetry.dependencies]\ntorch = "^2.0"\n'}, True),
        ({"environment.yml": "dependencies:\n  - pytorch=1.4.0\n"}, True),
        (
            {
                "setup.py": "from setuptools import setup\nsetup(install_requires=['torch>=1.0', 'tqdm'])\n"
            },
            True,
        ),
    ],
)
def test_pins(files: dict[str, str], refused: bool) -> None:
    done = made(files=files)
    assert bool(done.fixes) is not refused
    assert ("what would be written needs torch 2.4" in done.refusals) is refused


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("from torch._six import inf\n", True),
        (
            "try:\n    from torch._six import inf\nexcept ImportError:\n    from torch import inf\n",
            False,
        ),
    ],
)
def test_what_an_import_says_of_torchs_age(line: str, refused: bool) -> None:
    """Only a torch before 2.0 has the module: what autofast would write is newer than any torch
    that runs the script.
    """
    done = apply(RULE, line + script())
    assert bool(done.fixes) is not refused
    assert ("uses torch._six, which is gone in torch 2.0" in done.refusals) is refused


def test_subclasses_are_not_ours() -> None:
    own = "class Mine(optim.Adam):\n    def step(self, closure=None):\n        return super().step(closure)"
    assert made("Mine(model.parameters())", before=own).findings == ()


LIGHTNING = """
import torch
import lightning.pytorch as pl
from torch import nn

class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def training_step(self, batch, batch_idx):
        return self.layer(batch).mean()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)

trainer = pl.Trainer({options})
trainer.fit(Net())
"""


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ("max_epochs=1", False),
        ("gradient_clip_val=1.0", True),
        ('precision="16-mixed"', False),
        ('precision="bf16-mixed", gradient_clip_val=1.0', True),
        ('precision="16-mixed", gradient_clip_val=1.0', True),
        ("precision=16, gradient_clip_val=0.5", True),
        ('precision="32-true", gradient_clip_val=1.0', False),
    ],
)
def test_lightning(options: str, refused: bool) -> None:
    done = apply(RULE, LIGHTNING.format(options=options))
    assert bool(done.fixes) is not refused
    assert ("Lightning" in done.refusals) is refused


MOMENTUM = "optim.SGD(model.parameters(), lr=0.1, momentum=0.9)"


@pytest.mark.parametrize(
    ("precision", "clip", "refused"),
    [
        (", precision='16-mixed'", True, True),
        (", precision=option", True, True),
        ("", True, True),  # which precision it is told is not asked
        (", precision='16-mixed'", False, False),
    ],
)
def test_fabric_that_clips(precision: str, clip: bool, refused: bool) -> None:
    """lightning_fabric/plugins/precision/amp.py: with a GradScaler it takes it for an error."""
    text = f"""
    import sys
    import torch
    from torch import nn
    from lightning.fabric import Fabric
    option = sys.argv[1]
    fabric = Fabric(accelerator="cuda"{precision})
    model = nn.Linear(4, 1).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model, optimizer = fabric.setup(model, optimizer)
    for x in torch.randn(3, 8, 4):
        optimizer.zero_grad()
        fabric.backward(model(x).pow(2).mean())
        {"fabric.clip_gradients(model, optimizer, max_norm=1.0)" if clip else "pass"}
        optimizer.step()
    """
    done = apply(RULE, text)
    assert bool(done.fixes) is not refused
    assert ("Fabric clips no gradients" in done.refusals) is refused


def test_fused_sgd_does_what_the_card_says() -> None:
    """The two faults that the conditions on momentum are there for; where one is mended, its
    condition can go.
    """
    late = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
    optimizer = torch.optim.SGD(late, lr=0.1, momentum=0.9, fused=True)
    late[0].sum().backward()
    optimizer.step()
    late[1].sum().backward()
    with pytest.raises(TypeError):
        optimizer.step()
    skipped = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([skipped], lr=0.1, momentum=0.9, fused=True)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(skipped.sum() * float("inf")).backward()
    scaler.step(optimizer)
    kept = optimizer.state[skipped]["momentum_buffer"]
    kept.fill_(8.0)  # it was never set: this could be in it
    skipped.grad = torch.ones(2)
    before = skipped.detach().clone()
    optimizer.step()
    assert torch.allclose(before - skipped, torch.tensor(0.1 * (0.9 * 8.0 + 1.0)))


@pytest.mark.parametrize(
    ("head", "trainer"),
    [
        ("accelerate import Accelerator", "Accelerator(mixed_precision='fp16')"),
        ("lightning import Trainer", "Trainer(max_epochs=1)"),
    ],
)
def test_momentum_and_frameworks(head: str, trainer: str) -> None:
    """Whether they have a scaler, which skips steps, is not asked."""
    done = made(MOMENTUM, before=f"from {head}\ntrainer = {trainer}")
    assert not done.fixes and "may scale the loss" in done.refusals


SPECTRA = """
import torch
from torch import nn, optim


class Spectra(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(33, 2000)

    def forward(self, x):
        return self.out(torch.fft.rfft(x).abs())


model = nn.DataParallel(Spectra()).cuda()
optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step in range(4):
    optimizer.zero_grad()
    model(torch.randn(8, 64).cuda()).square().mean().backward()
    optimizer.step()
"""


def test_momentum_under_data_parallel() -> None:
    """Where autocast does not come, no scaler does, under DataParallel as elsewhere."""
    assert apply(RULE, SPECTRA).fixes
    mixed = apply(RULE, SPECTRA.replace("torch.fft.rfft(x).abs()", "x[:, :33]"))
    assert not mixed.fixes and "with --precision bf16 there is none" in mixed.refusals


def test_momentum_without_a_scaler() -> None:
    plain = [f"optimizer = {MOMENTUM[:-1]}, fused=True)"]
    for done in (
        made(MOMENTUM, target="cpu"),
        apply(RULE, script(MOMENTUM, device="", move=".cuda()"), precision="bf16"),
        made(
            MOMENTUM,
            files={"requirements.txt": "torch>=2.4"},
            before="cell = nn.LSTM(2, 2)\ntorch.autograd.set_detect_anomaly(True)",
        ),
    ):
        assert done.lines == plain
    for done in (made(MOMENTUM, target="cpu"), made(MOMENTUM)):
        assert run(done.text)["losses"] == pytest.approx(run(done.before)["losses"], rel=1e-5)


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        # mixed precision, now or in a later rewrite
        ({"precision": "either"}, "with --precision bf16 there is none"),
        ({"before": 'scaler = torch.amp.GradScaler("cuda")'}, "the GradScaler of line"),
        (
            {"before": "from accelerate import Accelerator\naccelerator = Accelerator()"},
            "accelerate may scale",
        ),
    ],
)
def test_momentum_and_scalers(parts: dict[str, str], why: str) -> None:
    done = made(MOMENTUM, **parts)
    assert not done.fixes and why in done.refusals
    assert made(ADAM, **parts).fixes
    assert made(MOMENTUM.replace("0.9", "0.0"), **parts).fixes


def test_no_scaler_beside_fused_momentum() -> None:
    """Mixed precision comes to a script whose SGD is fused already without a scaler: in bf16
    only.
    """
    text = script(
        MOMENTUM.replace(")", ", fused=True)", 2).replace(
            "parameters(, fused=True)", "parameters()"
        )
    )
    done = apply("autocast grad-scaler", text)
    assert "GradScaler" not in done.text and "spoils its momentum" in done.refusals


LATE = """
import torch
from torch import nn, optim

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
losses = []


def main():
    model = nn.Linear(4, 1)
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    {between}
    model.to(device)
    for i in range(4):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 4, device=device)).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())


main()
"""


@pytest.mark.parametrize(
    "between",
    [
        "pass",
        "optimizer.param_groups[0]['dampening'] = 0.5",
        "import copy\n    model, optimizer = copy.deepcopy((model, optimizer))",
        'state = {0: {"momentum_buffer": torch.ones(1, 4)}, 1: {"momentum_buffer": torch.ones(1)}}\n    '
        "optimizer.load_state_dict({**optimizer.state_dict(), 'state': state})",
    ],
)
def test_momentum_trains_the_same(between: str) -> None:
    done = apply(RULE, LATE.format(between=between), target="cpu")
    assert "momentum=0.9, fused=True" in done.text
    assert run(done.text)["losses"] == pytest.approx(run(done.before)["losses"], rel=1e-5)


NETS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, extra=True):
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.extra = nn.Linear(4, 4) if extra else None

    def forward(self, x, which=0):
        x = self.a(x)
        {body}
        return x

net = Net().to("cuda" if torch.cuda.is_available() else "cpu")
opt = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
for i in range(4):
    {step}
    loss.backward()
    opt.step()
"""
STEP = "loss = net(torch.ones(1, 4), i % 2).sum()"


@pytest.mark.parametrize(
    ("body", "late"),
    [
        ("if self.extra is not None:\n            x = self.extra(x)", False),
        ("for layer in self.b:\n            x = layer(x)", False),
        ("for i in range(3):\n            x = self.b[i](x)", False),
        ("if self.training:\n            x = self.extra(x)", False),
        ("if torch.rand(1) > 0.5:\n            x = self.extra(x)", True),
        ("x = self.extra(x) if which else x", True),
        ("if x.sum() > 0:\n            return x\n        x = self.extra(x)", True),
        ("x = self.b[which](x)", True),
        (
            "for layer in self.b:\n            if which:\n                break\n            x = layer(x)",
            True,
        ),
    ],
)
def test_layers_that_come_late(body: str, late: bool) -> None:
    on_cpu = apply(RULE, NETS.format(body=body, step=STEP), target="cpu")
    assert bool(on_cpu.fixes) is not late and ("is an error then" in on_cpu.refusals) is late
    torch.manual_seed(1)
    before = run(on_cpu.before)["loss"].item()
    torch.manual_seed(1)
    assert run(on_cpu.text)["loss"].item() == pytest.approx(before, rel=1e-5)
    assert apply(
        RULE,
        NETS.format(body=body, step=STEP).replace(
            "SGD(net.parameters(), 0.1, momentum=0.9)", "Adam(net.parameters())"
        ),
    ).fixes


@pytest.mark.parametrize(
    ("step", "late"),
    [
        (
            "if i > 1:\n        loss = net(torch.ones(1, 4)).sum()\n    else:\n        loss = net(torch.zeros(1, 4)).sum()",
            False,
        ),
        ("if i == 2:\n        net.a.requires_grad_(True)\n    " + STEP, True),
        ("for p in net.b.parameters():\n        p.requires_grad = i > 1\n    " + STEP, True),
        (
            "loss = torch.ones(1, 4, requires_grad=True).sum()\n    if i > 1:\n        loss = net(torch.ones(1, 4)).sum()",
            True,
        ),
    ],
)
def test_steps_that_leave_layers_out(step: str, late: bool) -> None:
    done = apply(RULE, NETS.format(body="pass", step=step), target="cpu")
    assert bool(done.fixes) is not late and ("is an error then" in done.refusals) is late


# ----------------------------------------------------------------------- what no fused kernel takes
COMPLEX = """
import torch
from torch import nn, optim

torch.manual_seed(0)
model = nn.Linear(4, 8)
{make}
optimizer = optim.Adam({params}, lr=1e-2)
for step in range(3):
    loss = {loss} + model(torch.randn(2, 4)).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("make", "params", "loss"),
    [
        ("w = torch.randn(4, dtype=torch.cfloat, requires_grad=True)", "[w]", "w.abs().sum()"),
        (
            "w = torch.randn(4, dtype=torch.cfloat).requires_grad_()",
            "[*model.parameters(), w]",
            "w.abs().sum()",
        ),
        (
            "w = torch.randn(4, dtype=torch.cfloat, requires_grad=True)",
            "list(model.parameters()) + [w]",
            "w.abs().sum()",
        ),
        (
            "w = torch.view_as_complex(torch.randn(4, 2)).requires_grad_()",
            '[{"params": [w]}]',
            "w.abs().sum()",
        ),
        (
            "w = torch.complex(torch.ones(4), torch.ones(4)).requires_grad_()",
            "(p for p in [w])",
            "w.abs().sum()",
        ),
        ("w = (torch.randn(4) * 1j).detach()\nw.requires_grad = True", "[w]", "w.abs().sum()"),
        ("w = nn.Parameter(torch.randn(4) + 1j * torch.randn(4))", "[w]", "w.abs().sum()"),
        (
            "net = nn.Linear(4, 4, dtype=torch.complex64)",
            "net.parameters()",
            "net(torch.ones(1, 4).cfloat()).abs().sum()",
        ),
        (
            "net = nn.Linear(4, 4).to(torch.cfloat)",
            "net.parameters()",
            "net(torch.ones(1, 4).cfloat()).abs().sum()",
        ),
    ],
)
def test_complex_parameters(make: str, params: str, loss: str) -> None:
    text = COMPLEX.format(make=make, params=params, loss=loss)
    run(text)
    with pytest.raises(RuntimeError, match="fused"):
        run(text.replace("lr=1e-2", "lr=1e-2, fused=True"))
    done = apply(RULE, text, target="cpu")
    assert not done.fixes and "complex" in done.refusals


def test_complex_numbers_between_real_parameters() -> None:
    text = COMPLEX.format(
        make="",
        params="model.parameters()",
        loss="torch.fft.fft(model.weight.cfloat() * 1j).abs().sum()",
    )
    done = apply(RULE, text, target="cpu")
    assert "fused=True" in done.text
    run(done.text)


def test_sparse_gradients_of_gather() -> None:
    make = "index = torch.zeros(1, 4, dtype=torch.long)"
    text = COMPLEX.format(
        make=make,
        params="[model.weight]",
        loss="torch.gather(model.weight, 0, index, sparse_grad=True).sum()",
    )
    done = apply(RULE, text, target="cpu")
    assert not done.fixes and "sparse" in done.refusals


WRAPPER = """
class Lookahead:
    def __init__(self, base_optimizer, params, alpha=0.5, **kwargs):
        self.optimizer = base_optimizer(params, {given})
        self.alpha, self.slow = alpha, None

    def zero_grad(self):
        self.optimizer.zero_grad()

    def step(self):
        self.optimizer.step()
"""
GIVEN = "Lookahead(optim.Adam, model.parameters(), lr=1e-2)"


@pytest.mark.parametrize(
    ("optimizer", "given", "why"),
    [
        (GIVEN, "**kwargs", ""),
        (GIVEN, "lr=1e-2", "whichever class is given"),
        (GIVEN, "**dict(kwargs)", "whichever class is given"),
        (f"{GIVEN}\noptimizer = {GIVEN}", "**kwargs", "whichever"),
        (
            GIVEN.replace("optim.Adam", "getattr(optim, name[0] if name else 'Adam')"),
            "**kwargs",
            "chosen when it runs",
        ),
    ],
)
def test_a_wrapper_that_is_given_the_class(optimizer: str, given: str, why: str) -> None:
    before = "import sys\nname = sys.argv[99:]\n" + WRAPPER.format(given=given)
    done = made(optimizer, target="cpu", before=before)
    assert why in done.refusals and "base_optimizer(params, fused" not in done.text
    assert ("lr=1e-2, fused=True)" in joined(done)) is not bool(why)
    assert run(done.text)["losses"] == pytest.approx(run(done.before)["losses"], rel=1e-4)


OPTIONAL_APEX = """
import argparse
import torch
from torch import nn
from apex import amp

parser = argparse.ArgumentParser()
parser.add_argument("--use-amp", action="store_true")
args = parser.parse_args([])
model = nn.Linear(4, 4).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
if args.use_amp:
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for step in range(6):
    loss = model(torch.ones(3, 4, device="cuda")).pow(2).mean()
    optimizer.zero_grad()
    if args.use_amp:
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
    else:
        loss.backward()
    optimizer.step()
"""


def test_apex_that_is_never_initialised_changes_nothing() -> None:
    initialised = 'if args.use_amp:\n    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")\n'
    never = OPTIONAL_APEX.replace(initialised, "")
    assert initialised in OPTIONAL_APEX
    assert apply("fused-optimizer", never).lines == [
        "optimizer = torch.optim.Adam(model.parameters(), lr=0.1, fused=True)"
    ]


def test_apex_behind_an_option_keeps_its_optimizer() -> None:
    lines = apply("fused-optimizer", OPTIONAL_APEX).lines
    assert lines == [
        "optimizer = torch.optim.Adam(",
        "model.parameters(), lr=0.1, fused=True if not args.use_amp else None",
        ")",
    ]
    always = OPTIONAL_APEX.replace("if args.use_amp:\n    model", "if True:\n    model")
    assert "apex changes the optimizer" in apply("fused-optimizer", always).refusals


TABLE = """
table = nn.Embedding(8, 4){made}
rows = torch.arange(8)
{moved}
"""


@pytest.mark.parametrize(
    ("made_with", "moved", "written"),
    [
        ("", "", False),
        (".to(device)", "", True),
        ("", "table.to(device)", True),
        ("", "for part in (table,):\n    part.to(device)", True),
    ],
)
def test_a_module_that_stays_on_the_host(made_with: str, moved: str, written: bool) -> None:
    """Before torch 2.4 the mix is an error; since then its rows are updated on the host."""
    both = "optim.Adam([{'params': model.parameters()}, {'params': table.parameters()}], lr=1e-2)"
    text = script(both, before=TABLE.format(made=made_with, moved=moved)).replace(
        "model(x)", "model(x + table(rows.to(table.weight.device)).to(x.device))"
    )
    done = apply(RULE, text)
    assert bool(done.fixes) is written
    assert written or "stays on the host" in done.refusals
    assert run(done.text)["losses"] == pytest.approx(run(done.before)["losses"])


HELD = """
import argparse

import torch
from torch import nn, optim

torch.manual_seed(0)
parser = argparse.ArgumentParser()
parser.add_argument("--no-cuda", action="store_true")
args = parser.parse_args([])
use = torch.cuda.is_available() and not args.no_cuda
losses = []


def train(args):
    model = nn.Linear(4, 1)
    {before}
    optimizer = optim.Adam(model.parameters(), lr=1e-2)
    for step in range(20):
        loss = model(torch.randn(8, 4).to(args.device)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())


args.device = torch.device("cuda:0" if use else "cpu")
{more}
train(args)
"""
MOVED = "model = model.to(args.device)"
WHERE_IT_WENT = 'torch.device(args.device).type == "cuda"'


@pytest.mark.parametrize(
    ("before", "more", "asked"),
    [
        (MOVED, "", 'args.device.type == "cuda"'),
        ("model = model.to(args.device) if args.device else model.cuda()", "", "is_available()"),
        (f"if not losses:\n        {MOVED}", "", "is_available()"),
        (f"{MOVED}\n    args = argparse.Namespace(device='cpu')", "", "is_available()"),
        (MOVED, "other = argparse.Namespace()\nother.device = 'cpu'", WHERE_IT_WENT),
        (MOVED, "args.device = str(args.device)", "is_available()"),
        (f"{MOVED}\n    args.device = str(args.device)", "", "is_available()"),
    ],
)
def test_a_device_that_options_hold(before: str, more: str, asked: str) -> None:
    """Only where it is certainly there, and a ``torch.device``: a string has no ``type``."""
    done = apply(RULE, HELD.format(before=before, more=more))
    assert f"fused={asked}" in done.text.replace("fused=torch.cuda.", "fused=")
    assert run(done.text)["losses"] == pytest.approx(run(done.before)["losses"])


HELPER = """
import argparse

import torch
from torch import nn, optim

torch.manual_seed(0)
parser = argparse.ArgumentParser()
parser.add_argument("--no-cuda", action="store_true")
parser.add_argument("--device", default="cpu")
args = parser.parse_args([])
use = torch.cuda.is_available() and not args.no_cuda
device = torch.device("cuda" if use else "cpu")
losses = []


class Critic:
    def __init__(self, device, other, **options):
        self.device = device
        {made}
        self.optimizer = optim.Adam(self.net.parameters(), lr=1e-2)

    def step(self, x):
        loss = self.net(x.to(next(self.net.parameters()).device)).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        losses.append(loss.item())


def make(**given):
    return Critic(given["device"], given["other"])


critic = make(**{given})
for step in range(20):
    critic.step(torch.randn(8, 4))
"""
VARS = "dict(other=device, device=device, **vars(args))"
NET = "self.net = nn.Linear(4, 1).to(self.device)"


@pytest.mark.parametrize(
    ("made", "given", "asked"),
    [
        (NET, "dict(other=device, device=device)", 'device.type == "cuda"'),
        (NET, "dict(other=device, device='cuda' if use else 'cpu')", 'self.device == "cuda"'),
        (NET, "dict(other=device, device=args.device)", 'torch.device(self.device).type == "cuda"'),
        (NET, "dict(vars(args), other=device)", 'torch.device(self.device).type == "cuda"'),
        (
            "self.net = nn.Sequential(nn.Linear(4, 1)).to(device=other)\n        self.net.train()",
            "dict(device=3, other=args.device)",
            'torch.device(other).type == "cuda"',
        ),
        (
            NET.replace("self.device", "args.device") + "\n        other = args.device = 'cpu'",
            "dict(device=3, other=args.device)",
            "torch.cuda.is_available()",
        ),
        (
            "self.net = nn.Linear(4, 1).to(other if other else 'cpu')",
            "dict(device=3, other=args.device)",
            "torch.cuda.is_available()",
        ),
        (
            "self.net = nn.Linear(4, 1)\n        if use:\n            self.net.to(other)",
            "dict(device=3, other=args.device)",
            "use",
        ),
        (
            "self.net = nn.Linear(4, 1)\n        use and self.net.to(other)",
            "dict(device=3, other=args.device)",
            "use",
        ),
        (
            "self.net = nn.ModuleList([nn.Linear(4, 1)])[0]\n        self.rest = nn.Linear(4, 1).to(other)",
            "dict(device=3, other=args.device)",
            "torch.cuda.is_available()",
        ),
    ],
)
def test_the_device_that_the_parameters_went_to(made: str, given: str, asked: str) -> None:
    """Which says more than that there is CUDA: with --no-cuda they lie on the host."""
    done = apply(RULE, HELPER.format(made=made, given=given))
    assert f"fused={asked}" in done.text
    assert run(done.text)["losses"] == pytest.approx(run(done.before)["losses"])
