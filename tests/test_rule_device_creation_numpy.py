"""device-creation: arrays that NumPy draws or fills for a tensor, and what torch makes there."""

from __future__ import annotations

import pytest

from autofast.rule import Effect
from tests.onerule import Applied, apply, run, same

RULE = "device-creation"
SCRIPT = """
import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
np.random.seed(0)
cuda = torch.cuda.is_available()
device = torch.device("cuda" if cuda else "cpu")
LongTensor = torch.cuda.LongTensor if cuda else torch.LongTensor
model = nn.Linear(8, 8).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
keep = 0.75
drawn = []
{before}
for step in range(3):
    x = torch.ones(200, 5, 8, device=device)
    n = x.size(0)
    {make}
    drawn.append(z)
    optimizer.zero_grad()
    loss = (model(x) * z.float().to(device).reshape(n, -1).mean(1).view(n, 1, 1)).mean()
    loss.backward()
    optimizer.step()
"""


def made(make: str, before: str = "", **wanted: object) -> Applied:
    text = SCRIPT.format(make=make.replace("\n", "\n    "), before=before)
    return apply(RULE, text, **wanted)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        ("z = torch.from_numpy(np.random.normal(0, 1, (n, 5, 8))).float().to(device)", ["z = torch.randn(n, 5, 8, device=device)"]),
        ("z = torch.tensor(np.random.randn(n, 5, 8), dtype=torch.float32).to(device)", ["z = torch.randn(n, 5, 8, device=device)"]),
        ("z = torch.from_numpy(np.random.randn(*x.shape)).to(device).float()", ["z = torch.randn(*x.shape, device=device)"]),
        ("z = torch.from_numpy(np.random.standard_normal(x.shape)).to(device)", ["z = torch.randn(x.shape, dtype=torch.float64, device=device)"]),
        ("z = torch.FloatTensor(np.random.uniform(-1, 1, size=(n, 8))).to(device)", ["z = torch.empty(n, 8, device=device).uniform_(-1, 1)"]),
        ("z = torch.Tensor(np.random.normal(scale=0.1, size=x.size())).to(x.device)", ["z = torch.empty(x.size(), device=x.device).normal_(0, 0.1)"]),
        ("z = torch.as_tensor(np.random.rand(n, 8).astype(np.float32)).to(device)", ["z = torch.rand(n, 8, device=device)"]),
        ("z = torch.from_numpy(np.random.binomial(1, keep, size=(n, 8))).to(torch.bool).to(device)", ["z = torch.empty(n, 8, dtype=torch.bool, device=device).bernoulli_(keep)"]),
        ("z = torch.Tensor(np.random.binomial(1, 0.8, x.shape)).to(device)", ["z = torch.empty(x.shape, device=device).bernoulli_(0.8)"]),
        ("z = torch.LongTensor(np.random.randint(0, 5, n)).to(device)", ["z = torch.randint(0, 5, (n,), device=device)"]),
        ("z = torch.as_tensor(np.random.randint(5, size=(n, 8)), dtype=torch.float32).to(device)", ["z = torch.randint(5, (n, 8), dtype=torch.float32, device=device)"]),
        ("z = torch.from_numpy(np.random.randint(0, 5, (n,))).float().to(device)", ["z = torch.randint(0, 5, (n,), dtype=torch.float32, device=device)"]),
        ("z = LongTensor(np.random.randint(0, 5, n))", ['z = torch.randint(0, 5, (n,), device="cuda" if cuda else "cpu")']),
        ("z = torch.from_numpy(np.random.random((n, 8)) < keep).to(device)", ["z = torch.rand(n, 8, device=device) < keep"]),
        ("z = torch.from_numpy((0.5 > np.random.rand(n, 8)).astype(np.float32)).to(device)", ["z = (0.5 > torch.rand(n, 8, device=device)).to(torch.float32)"]),
        ("z = torch.from_numpy(2 * np.random.rand(n, 8) - 1).float().to(device)", ["z = (2 * torch.rand(n, 8, device=device)) - 1"]),
        ("z = torch.from_numpy(np.random.randn(n, 8) * 3).long().to(device)", ["z = (torch.randn(n, 8, dtype=torch.float64, device=device) * 3).long()"]),
        ("z = np.random.uniform(low=-1.0, high=1.0, size=(n, 8))\nz = torch.from_numpy(z).float()\nz = z.to(device)", ["z = torch.empty(n, 8, device=device).uniform_(-1.0, 1.0)"]),
        ("noise = np.random.rand(n).astype('float32')\nz = torch.tensor(noise).to(device)", ["noise = torch.rand(n, device=device)", "z = noise"]),
        ("z = torch.tensor(np.random.rand(n, 8), dtype=torch.float, device=device)", ["z = torch.rand(n, 8, device=device)"]),
        ("z = torch.as_tensor(np.random.rand(n, 8) < 0.15, device=x.device)", ["z = torch.rand(n, 8, device=x.device) < 0.15"]),
        ("z = torch.from_numpy(np.random.rand(n, 8)).float()\nif x.is_cuda:\n    z = z.cuda()", ["z = torch.rand(n, 8, device=x.device)"]),
    ],
)  # fmt: skip
def test_what_numpy_draws(make: str, expected: list[str]) -> None:
    done = made(make)
    assert done.lines == expected
    assert done.fixes[0].effect is Effect.SAMPLING
    before, after = (torch_stack(run(text)["drawn"]) for text in (done.before, done.text))
    assert before.dtype is after.dtype and before.shape == after.shape
    one, other = before.double(), after.double()
    assert abs(one.mean() - other.mean()) < 0.35 and abs(one.std() - other.std()) < 0.35
    assert (one[0] != one[1]).any() and (other[0] != other[1]).any()


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        ("z = torch.from_numpy(1 - np.random.binomial(1, 0.2, size=(n, 8))).to(device)", "1 - torch.empty(n, 8, dtype=torch.int64, device=device).bernoulli_(0.2)"),
        ("z = torch.from_numpy(1 - np.random.binomial(1, 0.2, (n, 8))).float().to(device)", "1 - torch.empty(n, 8, device=device).bernoulli_(0.2)"),
        ("z = torch.from_numpy(1 - np.random.binomial(1, 0.2, (n, 8))).bool().to(device)", "(1 - torch.empty(n, 8, dtype=torch.int64, device=device).bernoulli_(0.2)).bool()"),
        ("z = torch.from_numpy(np.random.binomial(1, 0.5, (n, 8)) * 2).to(device)", "torch.empty(n, 8, dtype=torch.int64, device=device).bernoulli_(0.5) * 2"),
        ("z = torch.from_numpy(np.random.binomial(1, 0.5, (n, 8)).astype(bool) * 2).to(device)", "torch.empty(n, 8, dtype=torch.int64, device=device).bernoulli_(0.5) * 2"),
        ("z = torch.from_numpy(np.random.binomial(1, 0.5, (n, 8)) / 2).to(device)", "torch.empty(n, 8, dtype=torch.float64, device=device).bernoulli_(0.5) / 2"),
        ("z = torch.from_numpy(0.5 * np.random.binomial(1, 0.5, (n, 8))).to(device)", "0.5 * torch.empty(n, 8, dtype=torch.float64, device=device).bernoulli_(0.5)"),
        ("z = torch.from_numpy(1 - (np.random.rand(n, 8) < keep)).to(device)", "1 - (torch.rand(n, 8, device=device) < keep).to(torch.int64)"),
        ("z = torch.from_numpy((np.random.rand(n, 8) < keep) / keep).to(device)", "(torch.rand(n, 8, device=device) < keep).to(torch.float64) / keep"),
        ("z = torch.from_numpy(np.random.rand(n, 8).astype(np.float32) * 2 - 1).to(device)", "(torch.rand(n, 8, device=device) * 2) - 1"),
        ("z = torch.from_numpy(np.random.rand(n, 8) * n).to(device)", "torch.rand(n, 8, dtype=torch.float64, device=device) * n"),
        ("z = torch.LongTensor(2 * np.random.randint(0, 2, (n, 8)) - 1).to(device)", "(2 * torch.randint(0, 2, (n, 8), device=device)) - 1"),
        ("z = torch.from_numpy(np.random.randint(0, 10, (n, 8)) + 1).float().to(device)", "torch.randint(0, 10, (n, 8), dtype=torch.float32, device=device) + 1"),
        ("z = torch.from_numpy(np.random.randint(0, 5, (n, 8)) - 1 < 2).to(device)", "(torch.randint(0, 5, (n, 8), device=device) - 1) < 2"),
        ("z = torch.from_numpy(np.random.randint(0, 2 ** 26, size=(n, 8))).float().to(device)", "torch.randint(0, 2 ** 26, (n, 8), device=device).to(torch.float32)"),
        ("z = torch.from_numpy(np.random.randint(0, n, (n, 8))).float().to(device)", "torch.randint(0, n, (n, 8), device=device).to(torch.float32)"),
        ("z = torch.from_numpy(np.random.randint(0, n, (n, 8)) / n).float().to(device)", "torch.randint(0, n, (n, 8), device=device).to(torch.float32) / n"),
        ("z = torch.from_numpy(np.random.uniform(2, -1, (n, 8))).to(device)", "2 + (-1 - 2) * torch.rand(n, 8, dtype=torch.float64, device=device)"),
        ("b = -0.5\nz = torch.from_numpy(np.random.uniform(0.5, b, (n, 8))).float().to(device)", "0.5 + (b - 0.5) * torch.rand(n, 8, device=device)"),
        ("z = torch.from_numpy(np.random.uniform(high=-n, size=(n, 8)) * 2).float().to(device)", "(0 + (-n - 0) * torch.rand(n, 8, device=device)) * 2"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("error")
def test_dtypes_and_ranges_are_those_of_numpy(make: str, expected: str) -> None:
    done = made(make)
    assert done.lines == [f"z = {expected}"]
    before, after = (torch_stack(run(text)["drawn"]) for text in (done.before, done.text))
    assert before.dtype is after.dtype and before.shape == after.shape
    one, other = before.double(), after.double()
    spread = float(one.std())
    assert abs(one.mean() - other.mean()) < 0.15 * spread
    assert abs(other.std() - spread) < 0.15 * spread
    assert not apply(RULE, done.text).fixes


def test_labels_stay_labels() -> None:
    """``cross_entropy`` takes classes as int64, and fractions only of the shape of the input."""
    make = "z = torch.from_numpy(1 - np.random.binomial(1, 0.2, size=(n, 5))).to(device)\n"
    loss = "drawn.append(nn.functional.cross_entropy(model(x).transpose(1, 2), z))"
    done = made(make + loss)
    assert done.lines == [
        "z = 1 - torch.empty(n, 5, dtype=torch.int64, device=device).bernoulli_(0.2)"
    ]
    before, after = (torch_stack(run(text)["drawn"][::2]) for text in (done.before, done.text))
    assert abs(before.mean() - after.mean()) < 0.2


def torch_stack(drawn: list):  # type: ignore[no-untyped-def,type-arg]
    import torch

    return torch.stack(drawn)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        ("z = torch.from_numpy(np.ones((n, 8))).float().to(device)", ["z = torch.ones(n, 8, device=device)"]),
        ("z = torch.tensor(np.zeros(x.shape), dtype=torch.float).to(device)", ["z = torch.zeros(x.shape, device=device)"]),
        ("z = torch.from_numpy(np.ones(n, dtype=np.int64)).to(device)", ["z = torch.ones(n, dtype=torch.int64, device=device)"]),
        ("z = np.zeros((n, 8), np.float32)\nz = torch.from_numpy(z).to(device)", ["z = torch.zeros(n, 8, device=device)"]),
        ("z = torch.from_numpy(np.tril(np.ones((n, n)), k=-1)).bool().to(device)", ["z = torch.tril(torch.ones(n, n, dtype=torch.bool, device=device), diagonal=-1)"]),
    ],
)  # fmt: skip
def test_what_numpy_fills(make: str, expected: list[str]) -> None:
    done = made(make)
    assert done.lines == expected and done.fixes[0].effect in (None, Effect.EXACT)
    before, after = (torch_stack(run(text)["drawn"]) for text in (done.before, done.text))
    assert before.dtype is after.dtype and (before == after).all()


@pytest.mark.parametrize(
    "make",
    [
        "z = np.random.rand(n, 8)\nprint(z.mean())\nz = torch.from_numpy(z).float().to(device)",
        "z = np.zeros((n, 8))\nz[:, 0] = 1\nz = torch.from_numpy(z).to(device)",
        "z = noise = np.zeros((n, 8))\nnoise[0] = 1\nz = torch.from_numpy(z).to(device)",
        "z = np.random.rand(n, 8)\nx, device = x, torch.device('cpu')\nz = torch.from_numpy(z).to(device)",
        "z = torch.from_numpy(np.random.randint(0, 999, (n, 8)).astype(np.uint8)).float().to(device)",  # they wrap
        "z = torch.tensor(np.random.randn(n, 8), dtype=torch.long).to(device)",  # they are cut off
        "z = torch.from_numpy(np.random.randn(n, 8).astype(int)).float().to(device)",
        "z = torch.from_numpy(np.random.binomial(3, 0.5, (n, 8))).to(device)",
        "z = torch.from_numpy(np.random.binomial(1, np.full(8, 0.5), (n, 8))).to(device)",
        "z = torch.from_numpy(np.random.normal(np.zeros(8), 1, (n, 8))).to(device)",
        "z = torch.from_numpy(np.random.rand(n, 8) < np.random.rand(n, 8)).to(device)",
        "z = torch.from_numpy(np.random.rand(n, 8) * np.arange(8)).to(device)",
        "z = torch.from_numpy(np.random.randint(0, 10, (n, 8)) + 1).to(device)",  # maybe to index by
        "z = torch.from_numpy(2 * np.random.randint(0, 2, (n, 8)) - 1).to(device)",
        "z = torch.from_numpy(np.random.binomial(1, 0.5, (n, 8)) * x.size(0)).to(device)",  # of any type
        "z = torch.from_numpy(np.random.rand(n, 8).astype(np.float32) * n).to(device)",
        "z = torch.from_numpy(np.random.binomial(1, 0.5, (n, 8)) // 2).to(device)",
        "z = torch.from_numpy(-np.random.binomial(1, 0.5, (n, 8))).to(device)",
        "z = torch.from_numpy(np.random.binomial(1, 0.5, (n, 8)).astype(np.uint8) - 1).float().to(device)",  # 255
        "z = torch.from_numpy(np.random.binomial(1, 0.5, (n, 8)).astype(np.int32) * 2).to(device)",
        "z = torch.from_numpy((1 - np.random.binomial(1, 0.5, (n, 8))).astype(np.uint8)).to(device)",
        "z = torch.tensor(1 - np.random.binomial(1, 0.5, (n, 8)), dtype=torch.uint8).to(device)",
        "z = torch.tensor(np.random.binomial(1, 0.5, (n, 8)) * 0.5, dtype=torch.long).to(device)",
        "z = torch.from_numpy((np.random.rand(n, 8) < keep) + True).to(device)",
        "z = torch.from_numpy(np.random.rand(n, 8) - True).to(device)",  # which torch takes from nothing
        "z = torch.from_numpy(np.ones((n, 8), dtype=int) * 0.5).to(device)",
        "z = torch.from_numpy(np.random.randint(0, 5, (n, 8), dtype=np.int32)).to(device)",
        "z = torch.from_numpy(np.random.randint(0, 5, (n, 8), dtype=np.uint8) - 3).float().to(device)",
        "z = torch.FloatTensor(np.random.randint(0, 2 ** 26, (n, 8)) - 2 ** 25).to(device)",
        "z = torch.from_numpy(np.random.randint(0, 7.5, (n, 8))).float().to(device)",
        "z = torch.from_numpy(np.random.randint(0, n / 2, (n, 8))).float().to(device)",
        "z = torch.from_numpy(np.random.uniform(float(n), 1, (n, 8))).float().to(device)",
        "z = torch.from_numpy(np.random.beta(1.0, 1.0, n)).to(device)",
        "z = torch.from_numpy(np.random.rand(n, 8)).float().cpu()",
        "torch.set_default_dtype(torch.float32)\nz = torch.from_numpy(np.random.rand(n, 8)).to(device)",
        "z = torch.tensor(np.random.rand(n, 8), device='cpu').to(device)",
        "z = torch.tensor(np.random.rand(n, 8), dtype=x.dtype, device=device)",
        "z = np.random.rand(n)\ndef show():\n    return z\nz = torch.from_numpy(z).to(device)",
        "rng = np.random.RandomState(0)\nz = torch.from_numpy(rng.rand(n, 8)).to(device)",
    ],
)  # fmt: skip
def test_left_alone(make: str) -> None:
    assert not made(make).fixes


def test_a_function_is_told_where() -> None:
    helper = "def noise(a, b, p=0.5):\n    return torch.from_numpy(np.random.binomial(1, p, size=(a, b))).bool()\nfirst = noise(3, 4)"
    done = made("z = noise(n, 8).to(x.device)", helper)
    assert done.lines == [
        "def noise(a, b, p=0.5, device=None):",
        "return torch.empty(a, b, dtype=torch.bool, device=device).bernoulli_(p)",
        "z = noise(n, 8, device=x.device)",
    ]
    assert run(done.text)["first"].dtype is run(done.before)["first"].dtype


@pytest.mark.parametrize(
    ("before", "word"),
    [
        ("held = np.random.permutation(9)", ""),
        ("torch.use_deterministic_algorithms(True)", "determinism is asked for"),
    ],
)
def test_what_forbids_other_draws(before: str, word: str) -> None:
    done = made("z = torch.from_numpy(np.random.rand(n, 8)).float().to(device)", before)
    assert word in done.refusals and bool(done.fixes) is not bool(word)
    again = "np.random.seed(0)\nz = torch.from_numpy(np.random.rand(n, 8)).float().to(device)"
    assert "sets NumPy's generator back" in made(again).refusals
    later = "z = torch.from_numpy(np.random.rand(n, 8)).float().to(device)\norder = np.random.permutation(9)"
    text = SCRIPT.format(make=later.split("\n")[0], before="") + later.split("\n")[1] + "\n"
    assert "deals out depends on how many numbers" in apply(RULE, text).refusals


@pytest.mark.parametrize("cast", ["torch.FloatTensor", "torch.LongTensor"])
def test_a_type_of_the_host_would_bring_it_back(cast: str) -> None:
    """``.type(torch.FloatTensor)`` of what is made on the device copies it to the host."""
    for make in (
        f"z = torch.rand(n, 8).type({cast}).to(device)",
        f"z = torch.cat([torch.rand(n, 8)]).type({cast}).to(device)",
        f"z = torch.rand(n, 8)\nz = z.type({cast})\nz = z.to(device)",
        f"z = torch.from_numpy(np.random.rand(n, 8)).type({cast}).to(device)",
    ):
        assert not made(make).fixes


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        ("z = torch.Tensor(np.reshape(np.array(range(n)), [n, 1])).to(device)", "torch.arange(n, dtype=torch.float32, device=device).view(n, 1)"),
        ("z = torch.from_numpy(np.arange(200)).to(x.device)", "torch.arange(200, device=x.device)"),
        ("z = torch.from_numpy(np.arange(len(x))).float().to(device)", "torch.arange(len(x), dtype=torch.float32, device=device)"),
        ("z = torch.from_numpy(np.arange(n).astype(np.float32).reshape(n, 1)).to(device)", "torch.arange(n, dtype=torch.float32, device=device).view(n, 1)"),
        ("z = torch.LongTensor(np.arange(10, 210).reshape((n, 1))).to(device)", "torch.arange(10, 210, device=device).view(n, 1)"),
        ("z = torch.as_tensor(np.asarray(range(len(x)))).to(device)", "torch.arange(len(x), device=device)"),
        ("z = torch.FloatTensor(np.arange(sides).reshape(sides, n // n)).to(device)", "torch.arange(sides, dtype=torch.float32, device=device).view(sides, n // n)"),
        ("z = torch.FloatTensor(np.arange(sides)).to(device)", ""),  # which may be negative
        ("z = torch.FloatTensor(np.arange(n * 1.0)).to(device)", ""),
        ("z = torch.FloatTensor(np.arange(0, 200, 1)).to(device)", ""),
        ("z = torch.FloatTensor(np.arange(2**25, 2**25 + 200)).to(device)", ""),
        ("z = torch.from_numpy(np.arange(200, dtype=np.int32)).to(device)", ""),
        ("z = torch.from_numpy(np.arange(200).astype(np.int32)).to(device)", ""),
        ("z = torch.from_numpy(np.arange(200).astype(np.uint8)).to(device)", ""),
        ("a = np.arange(200)\na[0] = 3\nz = torch.from_numpy(a).to(device)", ""),
    ],
)  # fmt: skip
def test_what_numpy_counts(make: str, expected: str) -> None:
    options = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--sides', type=int, default=200)\nsides = parser.parse_args([]).sides"
    done = made(make, options)
    assert done.lines == [f"z = {expected}"] if expected else "torch.arange" not in done.text
    assert all(fix.effect is Effect.EXACT for fix in done.fixes)
    before, after = (run(text)["drawn"] for text in (done.before, done.text))
    for one, other in zip(before, after, strict=True):
        same(one, other)
