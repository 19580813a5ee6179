"""What is read of an operation's result is what torch gives: dtypes, gradients, pairs of values and
indices.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autofast.model.values import Num, Seq, Tensor, Thing
from tests.reading import read

torch = pytest.importorskip("torch")
HEAD = """import torch
import torch.nn.functional as F
import probe

x = torch.nn.Linear(4, 4)(torch.ones(4, 4))
y, d, h = torch.rand(4, 4), torch.rand(4, 4, dtype=torch.float64), torch.rand(4, 4).half()
i, b = torch.arange(16).reshape(4, 4) % 4, torch.rand(4, 4) > 0.5
"""
EXPRESSIONS = """
x.any(); x.argsort(); torch.isnan(x); x.ge(0); (x > 0).all(0); x.count_nonzero(); torch.multinomial(y, 1); torch.isnan(x).sum()
x.max(1); x.max(1)[1]; x.max(dim=1).indices; torch.max(x, 1)[1].eq(i[0]).sum(); x.max(y); x.max(); x.max(1, keepdim=True)[1]
x.sort()[1]; torch.topk(y, 2)[1]; y.topk(2).indices; x.topk(2).values; y.median(1)[1]; y.mode()[0]; y.kthvalue(1)
i.acos(); b.exp(); F.sigmoid(i); torch.sigmoid(i); i.sqrt(); i.true_divide(2); i.add(2.0); i.add(2); i.mul(y); i.clamp(0.5)
i / 2; i // 2; i * 0.5; 2 + y.max(1)[1]; i.square(); i.pow(2); i ** 0.5; i.float_power(2); h.add(y); h + h; x + d; i + y; d - i; (i if y.max() > 9 else y) + i
i * (2.5 if y.max() > 9 else 2); i + (1 if y.max() > 9 else 1.5); i - (2 if y.max() > 9 else 3)
abs(x).sum(); abs(i); i + (x if y.max() > 9 else 1); torch.div(i, 2, rounding_mode="floor"); i.div(2, rounding_mode="trunc"); sum([i[0, 0], 0.5])
torch.as_tensor(x.detach(), dtype=torch.float64); torch.asarray([1.5]); torch.triu_indices(3, 3); torch.hann_window(4, dtype=torch.float64)
torch.tensor(2.5 if y.max() > 9 else 2); torch.full((2,), 1 if y.max() > 9 else 1.5); torch.arange(0, 4, 1.0 if y.max() > 9 else 1); torch.tensor([1, 2.5])
x.to(d.dtype); i.to(x.dtype); i.to(dtype=x.dtype); x.to(float); i.to(y); i.type_as(x); i.type(y.dtype); x.to("cpu", d.dtype)
x.new_zeros(3, dtype=torch.long); x.new_tensor([1]); torch.zeros(3, dtype=float); torch.zeros_like(x, dtype=torch.long)
y.sum(dtype=torch.float64); F.softmax(y, 1, dtype=torch.float64); b.sum(); b.float().mean(); i.cumsum(0); torch.bincount(i.view(-1))
torch.fft.fft(y); torch.fft.rfft(y).abs(); torch.fft.irfft(torch.fft.rfft(y)); torch.fft.fft(y).real; torch.linalg.eigvals(y)
torch.stft(y[0], 2, 1, return_complex=True); torch.stft(y[0], 2, 1, return_complex=False); y[0].stft(2, 1, return_complex=False)
F.one_hot(i); torch.bucketize(y, y[0]); torch.searchsorted(y, y); torch.logical_not(x); torch.where(b, x, y); torch.cat([i, y])
torch.numel(x); torch.equal(x, y); torch.allclose(x, y); torch.is_floating_point(x)
x.equal(y); torch.tensor([True]); x.is_floating_point(); x.allclose(y); F.max_pool1d(x, 2, return_indices=True)[1]
torch.LongTensor([1]); torch.IntTensor(3); torch.BoolTensor(3); torch.FloatTensor([1]); torch.HalfTensor(2); torch.DoubleTensor(2); torch.Tensor([1])
"""
LINES = [e.strip() for e in EXPRESSIONS.replace("\n", ";").split(";") if e.strip()]


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    code = HEAD + "".join(f"probe.show({e})\n" for e in LINES)
    folder: Path = tmp_path_factory.mktemp("project")
    script = read(folder, code)
    sites = {o.node.lineno: o.node.args[0] for o in script.calls("probe.show")}
    first = len(HEAD.splitlines()) + 1
    return {e: script.values(sites[first + n]) for n, e in enumerate(LINES)}


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    torch.manual_seed(0)
    space: dict[str, Any] = {}
    exec(HEAD.replace("import probe\n", ""), space)  # our own lines
    return space


@pytest.mark.parametrize("expression", LINES)
def test_a_result(expression: str, held: dict[str, Any], names: dict[str, Any]) -> None:
    result = eval(expression, dict(names))
    assert any(fits(result, t) for t in held[expression]), held[expression]


def fits(result: Any, thing: Thing) -> bool:
    if isinstance(thing, Seq):
        parts = thing.exact or ()
        return len(parts) == len(result) and all(
            any(fits(r, t) for t in part) for r, part in zip(result, parts, strict=True)
        )
    if isinstance(thing, Tensor) and isinstance(result, torch.Tensor):
        return thing.dtype in ("?", kind(result)) and (thing.grad or not result.requires_grad)
    return isinstance(thing, Num) and isinstance(result, (bool, int, float))


def kind(tensor: Any) -> str:
    if tensor.is_complex():
        return "complex"
    floats = {torch.float32: "f32", torch.float64: "f64", torch.float16: "half"}
    return floats.get(tensor.dtype, "int")


def test_what_is_known_is_said(held: dict[str, Any]) -> None:
    """The comparison above would be met by nothing but question marks."""
    for expression, dtype in {
        "x.any()": "int",
        "i.acos()": "f32",
        "x.max(1)[1]": "int",
        "torch.IntTensor(3)": "int",
        "torch.FloatTensor([1])": "f32",
        "y.topk(2).indices": "int",
        "torch.fft.fft(y)": "complex",
        "torch.stft(y[0], 2, 1, return_complex=True)": "complex",
        "y[0].stft(2, 1, return_complex=False)": "f32",
        "x.to(float)": "f64",
        "i + y": "f32",
        "torch.tensor([1, 2.5])": "f32",
        "abs(i)": "int",
        "d - i": "f64",
        "(i if y.max() > 9 else y) + i": "?",
    }.items():
        (thing,) = held[expression]
        assert (
            isinstance(thing, Tensor)
            and (thing.dtype, thing.grad) == (dtype, False)
            or (expression == "x.to(float)" and thing.dtype == dtype)
        )
