"""cast-on-device: which casts go behind the copy, beside non-blocking, too, and which stay."""

from __future__ import annotations

import pytest

from tests.onerule import Applied, apply, run

RULE = "cast-on-device"
SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = {device}
whole = {whole}
loader = DataLoader(TensorDataset(whole, torch.randn(24, 1)), batch_size=8)
model = nn.Linear(4, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
losses, first = [], []
for epoch in range(2):
    for x, y in loader:
        {move}
        first.append(x.clone())
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x.float().clamp(-9, 9)), y.to(device, non_blocking=True))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
"""
AUTO = 'torch.device("cuda" if torch.cuda.is_available() else "cpu")'
BYTES = "torch.randint(0, 256, (24, 4), dtype=torch.uint8)"
PLAIN, TURNED = "x = x.float().to(device)", "x = x.to(device).float()"
OF_HAND = "x = x.float().to(device, non_blocking=True)"
BOTH = "x = x.to(device, non_blocking=True).float()"


def made(
    move: str, rules: str = RULE, whole: str = BYTES, device: str = AUTO, target: str = "cuda"
) -> Applied:
    text = SCRIPT.format(move=move.replace("\n", "\n        "), whole=whole, device=device)
    return apply(rules, text, target=target)


def same(found: Applied) -> bool:
    """Both texts train on the same tensors and come to the same losses."""
    import torch

    before, after = run(found.before), run(found.text)
    alike = [
        a.dtype == b.dtype and torch.equal(a, b)
        for a, b in zip(before["first"], after["first"], strict=True)
    ]
    return before["losses"] == after["losses"] and len(alike) == 6 and all(alike)


@pytest.mark.parametrize(
    ("move", "expected"),
    [
        (PLAIN, TURNED),
        ("x = x.double().to(device=device)", "x = x.to(device=device).double()"),
        ("x = x.half().to(device)", "x = x.to(device).half()"),
        ("x = x.bfloat16().to(device)", "x = x.to(device).bfloat16()"),
        ("x = x.to(torch.float32).to(device)", "x = x.to(device).to(torch.float32)"),
        ("x = x.type(torch.float64).to(device)", "x = x.to(device).type(torch.float64)"),
        (
            "x = x.view(-1, 4).float().to(device) / 255",
            "x = x.view(-1, 4).to(device).float() / 255",
        ),
        (PLAIN + "\nx -= 1", TURNED),
    ],
)
def test_the_copy_goes_first(move: str, expected: str) -> None:
    found = made(move)
    assert found.lines == [expected] and len(found.fixes) == 1
    assert same(found)


@pytest.mark.parametrize(
    "move",
    [
        "x = (x.float() / 255).to(device)",
        "x = x.float().div(255).to(device)",
        "x = (x / 255).to(device)",
    ],
)
def test_arithmetic_stays(move: str) -> None:
    assert not made(move).findings


def test_cuda() -> None:
    assert made("x = x.float().cuda(0)").lines == ["x = x.cuda(0).float()"]


@pytest.mark.parametrize(
    "dtype", ["torch.int8", "torch.int16", "torch.int32", "torch.int64", "torch.bool"]
)
def test_every_integer(dtype: str) -> None:
    """Also those that a float cannot hold exactly."""
    whole = f"torch.arange(-48, 48).mul(2**24 + 1).to({dtype}).view(24, 4)"
    found = made(PLAIN, whole=whole)
    assert found.lines == [TURNED] and same(found)


@pytest.mark.parametrize(
    ("rules", "move", "expected"),
    [
        (f"{RULE} non-blocking", PLAIN, BOTH),
        (f"non-blocking {RULE}", PLAIN, BOTH),
        ("non-blocking", PLAIN, OF_HAND),
        (RULE, OF_HAND, BOTH),
        ("non-blocking", TURNED, BOTH),
    ],
)
def test_with_non_blocking(rules: str, move: str, expected: str) -> None:
    """In one plan, or one after the other in either order."""
    found = made(move, rules)
    assert found.lines == [expected] and same(found)


def test_in_memory_of_channels_last() -> None:
    found = made(
        "x = x.float().to(device, memory_format=torch.channels_last)\nx = x.flatten(1)",
        whole="torch.randint(0, 256, (24, 1, 2, 2), dtype=torch.uint8)",
    )
    assert found.lines == ["x = x.to(device, memory_format=torch.channels_last).float()"] and same(
        found
    )


UNKNOWN = "__import__('pickle').loads(__import__('pickle').dumps(torch.randn(24, 4)))"


@pytest.mark.parametrize(
    ("move", "goes"),
    [
        ("x = x.double().to(device)", "x = x.to(device).double()"),
        ("x = x.to(torch.float64).to(device)", "x = x.to(device).to(torch.float64)"),
        ("x = x.type(torch.DoubleTensor).to(device)", "x = x.to(device).double()"),
        (PLAIN, ""),
        ("x = x.half().to(device)", ""),
    ],
)
@pytest.mark.parametrize("whole", ["torch.randn(24, 4)", UNKNOWN])
def test_nothing_is_larger_than_float64(move: str, goes: str, whole: str) -> None:
    found = made(move, whole=whole)
    assert found.lines == ([goes] if goes else []) and same(found)


@pytest.mark.parametrize(
    ("move", "whole"),
    [
        (TURNED, BYTES),
        (PLAIN, "torch.randn(24, 4)"),
        (PLAIN, "torch.randn(24, 4).double()"),
        ("x = x.float()\nx = x.to(device)", BYTES),
        ("x = x.float().to('cpu')", BYTES),
        ("x = x.float().to(y)", BYTES),
        ("x = x.long().to(device)", BYTES),
        ("x = x.to(device).float().to(device)", BYTES),
        ("x = x.to('cpu', torch.float32).to(device)", BYTES),
    ],
)
def test_nothing_to_find(move: str, whole: str) -> None:
    assert not made(move, whole=whole).findings


def test_outside_of_a_loop() -> None:
    text = (
        SCRIPT.format(move="x = x.to(device)", whole=BYTES, device=AUTO)
        + "x, y = next(iter(loader))\nx = x.float().to(device)\n"
    )
    assert not apply(RULE, text).findings


def test_on_the_cpu() -> None:
    assert not made(PLAIN, target="cpu").findings


@pytest.mark.parametrize(
    ("move", "whole", "device", "reason"),
    [
        (
            PLAIN,
            "torch.from_numpy(__import__('numpy').zeros((24, 4)))",
            AUTO,
            "not certain that `x` holds integers",
        ),
        (
            "x, y = [t.float().to(device) for t in (x, y)]",
            BYTES,
            AUTO,
            "not certain that `t` holds integers",
        ),
        ("x = x.float().to(device, torch.float16)", BYTES, AUTO, "it may be a cast as well"),
        ("x = x.float().to(device, dtype=torch.float16)", BYTES, AUTO, "it may be a cast as well"),
        (
            "x = x.float().to(device, **__import__('settings').how)",
            BYTES,
            AUTO,
            "it may be a cast as well",
        ),
        (
            "x = x.float().to(device, *__import__('settings').how)",
            BYTES,
            AUTO,
            "it may be a cast as well",
        ),
        (
            PLAIN,
            BYTES,
            "__import__('settings').device",
            "the device to which `x` goes is not known",
        ),
        (
            "z = x.float().to(device, non_blocking=True)\nx.fill_(0)\nx = z",
            BYTES,
            AUTO,
            "changed in place (line 15 of train.py)",
        ),
        (
            "z = x.float().to(device, non_blocking=True)\nx += 1\nx = z",
            BYTES,
            AUTO,
            "changed in place (line 15 of train.py)",
        ),
    ],
)
def test_left_alone(move: str, whole: str, device: str, reason: str) -> None:
    found = made(move, whole=whole, device=device)
    assert not found.fixes and reason in found.refusals


@pytest.mark.parametrize(
    ("move", "expected"),
    [
        ("x = x.type(torch.FloatTensor).to(device)", "x = x.to(device).float()"),
        ("x = x.type('torch.DoubleTensor').to(device)", "x = x.to(device).double()"),
        ("x = x.float().unsqueeze(0).to(device).squeeze(0)", "x = x.unsqueeze(0).to(device).float().squeeze(0)"),
        ("x = x.type(torch.FloatTensor).view(8, 4).to(device)", "x = x.view(8, 4).to(device).float()"),
    ],
)  # fmt: skip
def test_old_types_and_views(move: str, expected: str) -> None:
    """``.type(torch.FloatTensor)`` of what is on the GPU would bring it back to the host."""
    found = made(move)
    assert found.lines == [expected]
    assert same(found)


def test_old_types_of_the_gpu_stay() -> None:
    assert not made("x = x.type(torch.cuda.FloatTensor)").fixes
