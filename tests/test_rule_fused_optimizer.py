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
ON_CUDA = 'fused=True if device.type == "cuda" else None'
IF_CUDA = "fused=torch.cuda.is_available() or None"


def script(
    optimizer: str = ADAM, *, device: str = DEVICE, move: str = ".to(device)", before: str = ""
) -> str:
    return HEAD.format(optimizer=optimizer, device=device, move=move, before=before)


def made(
    *args: str, target: str = "cuda", files: dict[str, str] | None = None, **parts: str
) -> Applied:
    return apply(RULE, script(*args, **parts), target=target, files=files)


def joined(done: Applied) -> str:
    return " ".join(done.lines)


def test_with_a_device() -> None:
    done = made()
    assert ON_CUDA in joined(done)
    assert run(done.text)["losses"] == run(done.before)["losses"]


@pytest.mark.parametrize(
    "device",
    [
        'device = "cuda" if torch.cuda.is_available() else "cpu"',  # a string has no .type
        'class Config:\n    device = torch.device("cuda")\n\n\ndevice = Config.device\nimport sys\ndevice = sys.argv[0] and "cpu"',
        'if torch.cuda.is_available():\n    device = torch.device("cuda")\nelse:\n    device = "cpu"',
    ],
)
def test_without_a_device_object(device: str) -> None:
    assert IF_CUDA in joined(made(device=device))


def test_where_the_device_is_found() -> None:
    both = 'if torch.cuda.is_available():\n    device = torch.device("cuda")\nelse:\n    device = torch.device("cpu")'
    assert ON_CUDA in joined(made(device=both))
    late = script(device="", move="")
    late = late.replace("losses = []", f"{DEVICE}\nmodel.to(device)\nlosses = []")
    assert IF_CUDA in joined(apply(RULE, late))  # not there yet
    function = """
    import torch
    from torch import nn
    from torch.optim import AdamW

    def configure(net, where):
        return AdamW(net.parameters(), 1e-3)

    def main(where):
        net = nn.Linear(2, 1).to(where)
        opt = configure(net, where)
        for i in range(2):
            net(torch.ones(1, 2, device=where)).sum().backward()
            opt.step()

    if __name__ == "__main__":
        main(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    """
    assert apply(RULE, function).lines == [
        "return AdamW(net.parameters(), 1e-3, fused=torch.cuda.is_available() or None)"
    ]
    used = function.replace("return AdamW", "print(where)\n        return AdamW")
    assert "where.type" in apply(RULE, used).text


def test_a_script_that_needs_cuda() -> None:
    done = made(device="", move=".cuda()")
    assert done.lines == ["optimizer = optim.Adam(model.parameters(), lr=1e-2, fused=True)"]
    maybe = made(device="import sys", before="", move="\nif len(sys.argv) > 1:\n    model.cuda()")
    assert IF_CUDA in joined(maybe)
    early = """
    import os
    import torch
    from torch import nn

    def setup():
        if "RANK" not in os.environ:
            return
        torch.cuda.set_device(int(os.environ["RANK"]))

    setup()
    net = nn.Linear(2, 1).to("cuda" if torch.cuda.is_available() else "cpu")
    opt = torch.optim.SGD(net.parameters(), 0.1)
    for i in range(2):
        net(torch.ones(1, 2)).sum().backward()
        opt.step()
    """
    assert IF_CUDA in joined(apply(RULE, early))


def test_torch_is_imported_where_it_is_missing() -> None:
    text = """
    from torch import nn, optim, randn

    net = nn.Linear(2, 1)
    import sys
    if len(sys.argv) > 1:
        net.cuda()
    opt = optim.SGD(net.parameters(), 0.1)
    for i in range(2):
        net(randn(1, 2)).sum().backward()
        opt.step()
    """
    done = apply(RULE, text)
    assert "import torch" in done.lines and IF_CUDA in joined(done)
    renamed = text.replace(
        "from torch import nn, optim, randn",
        "import torch as th\n    from torch import nn, optim, randn",
    )
    assert apply(RULE, renamed).lines == [
        "opt = optim.SGD(net.parameters(), 0.1, fused=th.cuda.is_available() or None)"
    ]


def test_arguments_in_a_dict() -> None:
    done = made(
        "optim.Adam(model.parameters(), **options)",
        before='options = {"lr": 0.1, "weight_decay": 0.9}',
    )
    assert '"fused": True if device.type == "cuda" else None' in joined(done)
    assert run(done.text)["losses"] == run(done.before)["losses"]
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
    assert run(done.text)["losses"] == run(done.before)["losses"]


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
    ],
)
def test_nothing_to_do(optimizer: str) -> None:
    assert made(optimizer).findings == ()


def test_scripts_without_a_gpu() -> None:
    assert made(device="", move="").findings == ()
    assert made(device="", move="", target="cpu").fixes


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
        ({"requirements.txt": "torchvision==0.8\ntorch  # any\n"}, False),
        ({"requirements.txt": "torch>=1.7,<2.0\n"}, True),
        ({"requirements.txt": "torch<=2.4\n"}, False),
        ({"requirements.txt": "torch~=2.0\n"}, False),
        ({"requirements.txt": "torch~=2.0.1\n"}, True),
        ({"requirements.txt": "torch==2.*\n"}, False),
        ({"requirements.txt": "# torch==1.0\ntorch>=1.8\n"}, False),
        ({"pyproject.toml": '[project]\ndependencies = ["numpy", "torch==2.1.0"]\n'}, True),
        ({"pyproject.toml": '[tool.poetry.dependencies]\ntorch = "^1.12"\n'}, True),
        ({"pyproject.toml": '[tool.poetry.dependencies]\ntorch = "^2.0"\n'}, False),
        ({"environment.yml": "dependencies:\n  - pytorch=1.4.0\n"}, True),
        (
            {
                "setup.py": "from setuptools import setup\nsetup(install_requires=['torch>=1.0', 'tqdm'])\n"
            },
            False,
        ),
    ],
)
def test_pins(files: dict[str, str], refused: bool) -> None:
    done = made(files=files)
    assert bool(done.fixes) is not refused
    assert ("fused=True is safe since 2.4" in done.refusals) is refused


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
FROM_ZERO = "momentum_from_zero(optimizer)"
BF16 = "fused=torch.cuda.is_bf16_supported(including_emulation=False) or None"


def test_fused_sgd_does_what_the_card_says() -> None:
    """The two faults that the conditions on momentum are there for; where one is mended, its condition can go."""
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
    assert optimizer.state[skipped]["momentum_buffer"] is not None


def test_momentum_needs_a_gpu_with_bf16() -> None:
    done = made(MOMENTUM)
    assert BF16 in joined(done)
    assert run(done.text)["losses"] == run(done.before)["losses"]
    assert BF16 in joined(made(MOMENTUM, device="", move=".cuda()"))
    assert ON_CUDA in joined(made("optim.SGD(model.parameters(), lr=0.1, momentum=0.0)"))
    assert ON_CUDA in joined(apply(RULE, script(MOMENTUM), precision="bf16"))
    assert made(MOMENTUM, target="cpu").lines == [f"optimizer = {MOMENTUM[:-1]}, fused=True)"]


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"before": 'scaler = torch.amp.GradScaler("cuda")'}, ""),
        (
            {"before": "from accelerate import Accelerator\naccelerator = Accelerator()"},
            "accelerate may scale",
        ),
        ({"move": ".to(device)\nmodel = nn.DataParallel(model)"}, ""),
    ],
)
def test_momentum_and_scalers(parts: dict[str, str], why: str) -> None:
    done = made(MOMENTUM, **parts)
    assert why in done.refusals if why else starts(done)
    assert FROM_ZERO not in made(ADAM, **parts).text and made(ADAM, **parts).fixes


def starts(done: Applied) -> bool:
    """Whether momentum is made to start at zero, directly below the optimizer."""
    return f")\n{FROM_ZERO}\n" in done.text and ON_CUDA in joined(done) and bool(done.fixes)


SKIPPED = """
import torch
from torch import nn, optim

torch.manual_seed(0)
model = nn.Linear(4, 1)
late = nn.Linear(4, 1)
optimizer = optim.SGD([*model.parameters(), *late.parameters()], lr=0.1, momentum=0.9, weight_decay=0.1, nesterov=True)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
losses = []
for i in range(8):
    optimizer.zero_grad()
    x = torch.randn(8, 4)
    loss = model(x).pow(2).mean()
    if i > 3:
        loss = loss + late(x).pow(2).mean()
    scaler.scale(loss * (float("inf") if i == 0 else 1)).backward()
    scaler.step(optimizer)
    scaler.update()
    losses.append(loss.item())
"""


def test_momentum_that_starts_at_zero_trains_the_same() -> None:
    """The first step is skipped, and half of the parameters get their first gradient later."""
    done = apply(RULE, SKIPPED, target="cpu")
    assert FROM_ZERO in done.lines and "fused=True" in done.text
    assert run(done.text)["losses"] == pytest.approx(run(done.before)["losses"], rel=1e-5)


MOVED = """
import os
import torch
from torch import nn, optim

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
losses = []


def main():
    model = nn.DataParallel(nn.Linear(4, 1))
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    {between}
    model.to(device)
    {after}
    for i in range(4):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 4, device=device)).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())


main()
"""


def moved(
    between: str = "pass", after: str = "pass", before: str = "", target: str = "cuda"
) -> Applied:
    text = MOVED.format(between=between, after=after).replace(
        "    model = nn.Data", f"    {before}\n    model = nn.Data", 1
    )
    return apply(RULE, text, target=target)


@pytest.mark.parametrize(
    "after",
    [
        "pass",
        "if os.cpu_count() > 1:\n        model.to(device)\n    else:\n        model.float()",
        "more = nn.Linear(4, 1).to(device)\n    optimizer.add_param_group({'params': more.parameters()})",
        "model.apply(lambda part: part.double())\n    model.float()",
        "model.module.weight.data = torch.ones(3, 4)\n    model.module.bias.data = torch.ones(3)",  # would write beyond a buffer made before
        "getattr(model, 'bfloat' + '16')()\n    model.float()",
    ],
)
def test_parameters_that_change_after_the_optimizer_is_made(after: str) -> None:
    for target in ("cuda", "cpu"):
        done = moved(after=after, target=target, before="scaler = torch.amp.GradScaler('cpu')")
        assert f"    {FROM_ZERO}\n    pass\n    model.to(device)\n" in done.text
        assert run(done.text)["losses"] == pytest.approx(run(done.before)["losses"], rel=1e-5)


def test_momentum_of_lazy_modules() -> None:
    """A parameter that has no shape yet when the optimizer is made."""
    done = apply(
        RULE,
        MOVED.format(between="pass", after="pass").replace("nn.Linear(4, 1)", "nn.LazyLinear(1)"),
    )
    assert FROM_ZERO in done.text
    assert run(done.text)["losses"] == run(done.before)["losses"]


def test_a_state_that_is_loaded_is_kept() -> None:
    """Momentum of a run that goes on is there already."""
    filled = (
        'state = {0: {"momentum_" + "buffer": torch.ones(1, 4)}, 1: {"momentum_" + "buffer": torch.ones(1)}}\n    '
        "optimizer.load_state_dict({**optimizer.state_dict(), 'sta' + 'te': state})"
    )
    for parts in ({"between": filled}, {"after": filled}):
        done = moved(**parts)
        assert FROM_ZERO in done.text
        assert run(done.text)["losses"] == run(done.before)["losses"] != run(moved().text)["losses"]


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"after": "print(len(optimizer.state))"}, "handles the optimizer's state itself"),
        (
            {"after": "import copy\n    model, optimizer = copy.deepcopy((model, optimizer))"},
            "the optimizer is copied",
        ),
        ({"after": "optimizer.register_step_post_hook(lambda *_: losses.append(0))"}, "its hooks"),
        ({"after": "optimizer.param_groups[0]['dampening'] = 0.5"}, "with dampening"),
        ({"after": "optimizer.param_groups[0].update(dampening=0.5)"}, "with dampening"),
    ],
)
def test_where_momentum_cannot_start_at_zero(parts: dict[str, str], why: str) -> None:
    done = moved(**parts)
    assert not done.fixes and why in done.refusals


def test_groups_that_are_added_while_it_trains() -> None:
    text = MOVED.format(between="pass", after="more = nn.Linear(4, 1).to(device)").replace(
        "        losses.append",
        "        if i == 1:\n            optimizer.add_param_group({'params': more.parameters()})\n        losses.append",
    )
    text = text.replace("pow(2).mean()", "pow(2).mean() + more(torch.ones(4, device=device)).sum()")
    done = apply(
        RULE,
        text.replace("    model =", "    scaler = torch.amp.GradScaler('cpu')\n    model =", 1),
        target="cpu",
    )
    assert FROM_ZERO in done.text and run(done.text)["losses"] == pytest.approx(
        run(done.before)["losses"], rel=1e-5
    )


def test_an_optimizer_that_begins_again() -> None:
    """Its state before the first step is empty, and stays so."""
    text = MOVED.format(between="empty = optimizer.state_dict()", after="pass").replace(
        "        optimizer.zero_grad",
        "        if i == 2:\n            optimizer.load_state_dict(empty)\n        optimizer.zero_grad",
    )
    done = apply(
        RULE,
        text.replace("    model =", "    scaler = torch.amp.GradScaler('cpu')\n    model =", 1),
        target="cpu",
    )
    assert FROM_ZERO in done.text and run(done.text)["losses"] == pytest.approx(
        run(done.before)["losses"], rel=1e-5
    )


def test_momentum_with_closures_is_left_alone() -> None:
    text = MOVED.format(between="pass", after="pass").replace(
        "optimizer.step()", "optimizer.step(lambda: loss)"
    )
    assert "with a closure" in apply(RULE, text).refusals


def test_momentum_of_an_optimizer_that_is_handed_on() -> None:
    text = MOVED.format(between="pass", after="pass").replace(
        "optimizer = optim.SGD", "optimizer = made_of(model)\n    ignored = optim.SGD", 1
    )
    text = text.replace(
        "def main",
        "def made_of(model):\n    return optim.SGD(model.parameters(), lr=0.1, momentum=0.9)\n\n\ndef main",
        1,
    )
    assert "put into a variable of its own" in apply(RULE, text).refusals
    named = text.replace("    return optim", "    sgd = optim", 1).replace(
        "momentum=0.9)\n\n\ndef main", "momentum=0.9)\n    return sgd\n\n\ndef main", 1
    )
    assert "    momentum_from_zero(sgd)\n    return sgd\n" in apply(RULE, named).text


AMP_DTYPE = """
def amp_dtype():
    if torch.cuda.is_available() and torch.cuda.get_device_capability()[0] < 8:
        return torch.float16
    return torch.bfloat16

scaler = torch.amp.GradScaler("cuda", enabled={enabled})
"""


def test_momentum_and_the_scaler_of_grad_scaler() -> None:
    ours = AMP_DTYPE.format(enabled="amp_dtype() == torch.float16")
    assert BF16 in joined(made(MOMENTUM, before=ours))
    for other in (
        AMP_DTYPE.format(enabled="True"),
        AMP_DTYPE.format(enabled="amp_dtype() == torch.bfloat16"),
        AMP_DTYPE.format(enabled="amp_dtype() != torch.float16"),
        ours.replace("< 8", "< 9"),
        ours.replace("torch.cuda.is_available() and ", ""),
        ours + 'second = torch.amp.GradScaler("cuda")',
    ):
        assert starts(made(MOMENTUM, before=other))
    assert FROM_ZERO in made(MOMENTUM, before=ours, target="cpu").text
    assert starts(apply(RULE, script(MOMENTUM, before=ours), precision="bf16"))


def test_momentum_with_fp16() -> None:
    assert starts(apply(RULE, script(MOMENTUM), precision="fp16"))
    assert FROM_ZERO in apply(RULE, script(MOMENTUM), precision="fp16", target="cpu").text


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
    done = apply(RULE, NETS.format(body=body, step=STEP))
    assert done.fixes and ("momentum_from_zero(opt)" in done.text) is late
    on_cpu = apply(RULE, NETS.format(body=body, step=STEP), target="cpu")
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
    done = apply(RULE, NETS.format(body="pass", step=step))
    assert done.fixes and ("momentum_from_zero(opt)" in done.text) is late


# ------------------------------------------------------------------------------------------------ what no fused kernel takes
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
