"""legacy-amp-api: every spelling of the old classes, imports and calls together."""

from __future__ import annotations

import warnings

import pytest

from tests.onerule import apply, run

SCRIPT = """\
import torch
{imports}
torch.manual_seed(0)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = {scaler}
losses = []
for step in range(3):
    with {autocast}:
        loss = model(torch.randn(2, 4)).pow(2).sum()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    losses.append(loss.item())
"""
SPELLINGS = [
    ("from torch.cuda.amp import autocast, GradScaler", "GradScaler(2.0**10)", "autocast(True)"),
    (
        "from torch.cuda.amp import autocast as cast, GradScaler as Scaler",
        "Scaler(enabled=True)",
        "cast()",
    ),
    ("from torch.cuda import amp", "amp.GradScaler()", "amp.autocast(enabled=False)"),
    ("import torch.cuda.amp as amp", "amp.GradScaler()", "amp.autocast(False, torch.float16)"),
    (
        "from torch.cuda.amp.grad_scaler import GradScaler",
        "torch.cuda.amp.GradScaler()",
        "torch.cuda.amp.autocast(**{'enabled': False})",
    ),
    (
        "",
        "torch.cuda.amp.GradScaler(init_scale=8.0)",
        "torch.cuda.amp.autocast(dtype=torch.bfloat16)",
    ),
    ("", "torch.amp.GradScaler('cpu')", "torch.cpu.amp.autocast(True, torch.bfloat16)"),
]


@pytest.mark.parametrize(("imports", "scaler", "autocast"), SPELLINGS)
def test_every_spelling_runs_without_the_warning_and_computes_the_same(
    imports: str, scaler: str, autocast: str
) -> None:
    text = SCRIPT.format(imports=imports, scaler=scaler, autocast=autocast)
    done = apply("legacy-amp-api", text)
    assert done.fixes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = run(text)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        warnings.simplefilter("ignore", UserWarning)  # CUDA is not there: so said both
        after = run(done.text)
    assert before["losses"] == after["losses"]


def test_a_positional_argument_keeps_its_meaning() -> None:
    text = SCRIPT.format(
        imports="from torch.cuda.amp import autocast, GradScaler",
        scaler="GradScaler()",
        autocast="autocast(False, torch.bfloat16)",
    )
    assert (
        'with autocast("cuda", enabled=False, dtype=torch.bfloat16):'
        in apply("legacy-amp-api", text).text
    )


def test_decorators_of_autograd_functions() -> None:
    text = """
    import torch
    from torch.cuda.amp import custom_bwd, custom_fwd


    class Double(torch.autograd.Function):
        @staticmethod
        @custom_fwd
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        @custom_bwd
        def backward(ctx, g):
            return 2 * g


    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):
        Double.apply(model(torch.ones(1, 2))).sum().backward()
        optimizer.step()
    """
    done = apply("legacy-amp-api", text)
    assert (
        '@custom_fwd(device_type="cuda")' in done.text
        and '@custom_bwd(device_type="cuda")' in done.text
    )
    run(done.text)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("assert isinstance(scaler, torch.cuda.amp.GradScaler)", "as a value"),
        ("make = torch.cuda.amp.autocast", "as a value"),
    ],
)
def test_an_old_class_as_a_value_stops_everything(line: str, reason: str) -> None:
    text = (
        SCRIPT.format(
            imports="", scaler="torch.cuda.amp.GradScaler()", autocast="torch.cuda.amp.autocast()"
        )
        + line
        + "\n"
    )
    done = apply("legacy-amp-api", text)
    assert not done.fixes and reason in done.refusals


def test_an_import_for_several_versions_stays() -> None:
    imports = (
        "try:\n    from torch.cuda.amp import autocast, GradScaler\nexcept ImportError:\n    raise"
    )
    done = apply(
        "legacy-amp-api",
        SCRIPT.format(imports=imports, scaler="GradScaler()", autocast="autocast()"),
    )
    assert not done.fixes and "version of torch" in done.refusals


def test_a_project_with_an_older_torch_stays() -> None:
    text = SCRIPT.format(
        imports="", scaler="torch.cuda.amp.GradScaler()", autocast="torch.cuda.amp.autocast()"
    )
    done = apply("legacy-amp-api", text, files={"requirements.txt": "torch==1.13.1\n"})
    assert not done.fixes and "1.13.1" in done.refusals


def test_each_call_is_a_place_of_its_own() -> None:
    text = SCRIPT.format(
        imports="from torch.cuda.amp import autocast, GradScaler",
        scaler="GradScaler()",
        autocast="autocast()",
    )
    done = apply("legacy-amp-api", text)
    assert sorted(f.node.lineno for f in done.fixes) == [
        i
        for i, line in enumerate(text.splitlines(), 1)
        if "autocast()" in line or "Scaler()" in line
    ]  # type: ignore[attr-defined]


def test_what_else_the_import_brings_stays() -> None:
    text = SCRIPT.format(
        imports="from torch.cuda import amp, is_available",
        scaler="amp.GradScaler()",
        autocast="amp.autocast(is_available())",
    )
    done = apply("legacy-amp-api", text)
    assert "from torch import amp\nfrom torch.cuda import is_available\n" in done.text
    run(done.text)


def test_what_torch_amp_has_not_stops_everything() -> None:
    text = (
        SCRIPT.format(
            imports="from torch.cuda import amp",
            scaler="amp.GradScaler()",
            autocast="amp.autocast()",
        )
        + "print(amp.common)\n"
    )
    done = apply("legacy-amp-api", text)
    assert not done.fixes and "`amp.common`" in done.refusals
