"""device-creation: which tensors are made on the device, with which effect, and which stay."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest

from autofast.facts.of_numbers import OfObject
from autofast.read import read_script
from autofast.rule import Effect
from tests.onerule import Applied, apply, run

RULE = "device-creation"
SCRIPT = """
import numpy as np
import torch
from torch import nn
from torch.autograd import Variable

torch.manual_seed(0)
cuda = torch.cuda.is_available()
device = torch.device("cuda" if cuda else "cpu")
Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor
model = nn.Linear(4, 4).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
latent = 4
labels = {{"real": 1, "fake": 0}}
losses = []
class Labels:
    real = 0.9
    sos = 1
def label():
    return 1
{before}
for step in range(6):
    x = torch.full((3, 4), 0.5, device=device)
    {make}
    optimizer.zero_grad()
    loss = (model(x) - z).pow(2).mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
"""


def made(make: str, before: str = "") -> Applied:
    return apply(RULE, SCRIPT.format(make=make.replace("\n", "\n    "), before=before))


@pytest.mark.parametrize(
    ("make", "expected", "effect"),
    [
        ("z = torch.zeros(3, 4).to(device)", ["z = torch.zeros(3, 4, device=device)"], Effect.EXACT),
        ("z = torch.ones(3, 4).long().to(device=device).float()", ["z = torch.ones(3, 4, device=device, dtype=torch.long).float()"], Effect.EXACT),
        ("z = torch.full((3, 4), 2.0).to(device, non_blocking=True)", ["z = torch.full((3, 4), 2.0, device=device)"], Effect.EXACT),
        ("z = torch.eye(4)[None, :3][0].to(device)", ["z = torch.eye(4, device=device)[None, :3][0]"], Effect.EXACT),
        ("z = torch.eye(4)[None, :3, ...][0]\nif x.is_cuda:\n    z = z.cuda()", ["z = torch.eye(4, device=x.device)[None, :3, ...][0]"], Effect.EXACT),
        ("z = torch.ones(4)\nif x.data.is_cuda:\n    z = z.cuda()", ["z = torch.ones(4, device=x.device)"], Effect.EXACT),
        ("z = torch.eye(3, 4).to(device, torch.float64)", ["z = torch.eye(3, 4, device=device).to(torch.float64)"], Effect.EXACT),
        ("z = torch.zeros(3, 4).to(device, dtype=torch.float64)", ["z = torch.zeros(3, 4, device=device).to(torch.float64)"], Effect.EXACT),
        ("z = torch.ones(3, 4).long().to(device=device, dtype=torch.float64)", ["z = torch.ones(3, 4, device=device, dtype=torch.long).to(torch.float64)"], Effect.EXACT),
        ("z = torch.ones(3, 4).to(device, torch.float64, copy=True)", ["z = torch.ones(3, 4, device=device).to(device, torch.float64, copy=True)"], Effect.EXACT),
        ("z = torch.arange(0, 4).view(1, 4).long().to(device).float()", ["z = torch.arange(0, 4, device=device).view(1, 4).float()"], Effect.EXACT),
        ("z = torch.arange(0, 4, dtype=torch.int).long().to(device).float()", ["z = torch.arange(0, 4, dtype=torch.int, device=device).long().float()"], Effect.EXACT),
        ("z = torch.zeros(3, 4, 1, 1).contiguous(memory_format=torch.channels_last).to(device).flatten(1)", ["z = (", "torch.zeros(3, 4, 1, 1, device=device)", ".contiguous(memory_format=torch.channels_last)", ".flatten(1)", ")"], Effect.EXACT),
        ("z = torch.zeros(3, 4).contiguous().to(device)", ["z = torch.zeros(3, 4, device=device)"], Effect.EXACT),
        ("z = torch.ones(4, 3).t().contiguous().to(device)", ["z = torch.ones(4, 3, device=device).t().contiguous()"], Effect.EXACT),
        ("z = torch.arange(4).float().unsqueeze(0).to(device)", ["z = torch.arange(4, device=device).float().unsqueeze(0)"], Effect.EXACT),
        ("z = torch.ones(4, 1).T.repeat(1, 1).flatten().to(device)", ["z = torch.ones(4, 1, device=device).T.repeat(1, 1).flatten()"], Effect.EXACT),
        ("n = torch.tensor(4)\nz = torch.arange(n).float().to(device)", ["z = torch.arange(n, device=device).float()"], Effect.ROUNDING),
        ("n = np.full(1, 4).max()\nz = torch.eye(3, n).to(device)", ["z = torch.eye(3, n, device=device)"], Effect.EXACT),
        ("z = torch.zeros_like(torch.ones(3, 4)).to(device)", ["z = torch.zeros_like(torch.ones(3, 4), device=device)"], Effect.EXACT),
        ("z = torch.LongTensor(range(x.size(1))).to(x.device)", ["z = torch.arange(x.size(1), device=x.device)"], Effect.EXACT),
        ("z = torch.tensor(range(len('four'))).to(device)", ["z = torch.arange(len('four'), device=device)"], Effect.EXACT),
        ("n = x.shape[1]\nz = torch.tensor([2] * n).to(device)", ["z = torch.full((n,), 2, device=device)"], Effect.EXACT),
        ("z = torch.tensor([step] * 4).to(device)", ["z = torch.full((4,), step, device=device)"], Effect.EXACT),
        ("z = torch.LongTensor([Labels.sos] * x.size(1)).to(device)", ["z = torch.full((x.size(1),), Labels.sos, device=device)"], Effect.EXACT),
        ("z = torch.FloatTensor([[range(0, 2 * 2)]]).to(device)", ["z = torch.arange(0, 2 * 2, dtype=torch.float32, device=device).view(1, 1, -1)"], Effect.EXACT),
        ("z = torch.FloatTensor([range(4)]).to(device)", ["z = torch.arange(4, dtype=torch.float32, device=device).unsqueeze(0)"], Effect.EXACT),
        ("z = torch.tensor(list(range(0, 4))).to(device)", ["z = torch.arange(0, 4, device=device)"], Effect.EXACT),
        ("p = torch.zeros(3, 4)\np[:, :2] = x[:, :2]\nz = p.to(x.device)", ["p = torch.zeros(3, 4, device=x.device)", "z = p"], Effect.EXACT),
        ("z = torch.zeros(3, 4)\nfor i in range(3):\n    z[i, : i + 1] = x[i, : i + 1]\nz = z.to(x.device)", ["z = torch.zeros(3, 4, device=x.device)"], Effect.EXACT),
        ("p = torch.zeros(3, 4)\nz = 2 * p.to(x.device)", ["p = torch.zeros(3, 4, device=x.device)", "z = 2 * p"], Effect.EXACT),
        ("z = torch.ones(x.size(0), 1).type_as(x)", ["z = x.new_ones(x.size(0), 1)"], Effect.EXACT),
        ("z = torch.ones(x.size(0), 1).to(x)", ["z = x.new_ones(x.size(0), 1)"], Effect.EXACT),
        ("z = torch.zeros((3, 4)).type_as(x)", ["z = x.new_zeros((3, 4))"], Effect.EXACT),
        ("z = torch.zeros(3, 4).float().to(device)", ["z = torch.zeros(3, 4, device=device, dtype=torch.float)"], Effect.EXACT),
        ("z = torch.zeros([3, 4]).float().to(device).contiguous()", ["z = torch.zeros([3, 4], device=device, dtype=torch.float).contiguous()"], Effect.EXACT),
        ("z = torch.zeros(3, 4, dtype=torch.long).float().to(device)", ["z = torch.zeros(3, 4, dtype=torch.long, device=device).float()"], Effect.EXACT),
        ("z = torch.ones(3, 4, dtype=torch.float64).to(x)", ["z = torch.ones(3, 4, dtype=torch.float64, device=x.device).to(x)"], Effect.EXACT),
        ("z = torch.zeros(x.shape).to(x.device).to(x.dtype)", ["z = torch.zeros(x.shape, device=x.device).to(x.dtype)"], Effect.EXACT),
        ("z = torch.randn(3, 4).to(device).to(x.dtype)", ["z = torch.randn(3, 4, device=device).to(x.dtype)"], Effect.SAMPLING),
        ("z = Variable(torch.zeros(3, 4)).to(device)", ["z = Variable(torch.zeros(3, 4, device=device))"], Effect.EXACT),
        ("z = torch.tensor(1.5).to(device)", ["z = torch.tensor(1.5).to(device)"], Effect.EXACT),
        ("z = torch.zeros(3, 2)\nz = z.to(device).repeat(1, 2)", ["z = torch.zeros(3, 2, device=device)", "z = z.repeat(1, 2)"], Effect.EXACT),
        ("z = torch.rand(3) < settings[0]\nz = z.to(device).view(-1, 1).float()", ["z = torch.rand(3, device=device) < settings[0]", "z = z.view(-1, 1).float()"], Effect.SAMPLING),
        ("h = torch.zeros(3, 4)\nz, c = h.to(x.device), h.clone().to(x.device)\nc += 1", ["h = torch.zeros(3, 4, device=x.device)", "z, c = h, h.clone()"], Effect.EXACT),
        ("h = torch.zeros(3, 4)\nz = h.clone().to(device)\nc = h.clone().unsqueeze(0).to(device)", ["h = torch.zeros(3, 4, device=device)", "z = h.clone()", "c = h.clone().unsqueeze(0)"], Effect.EXACT),
        ("z = torch.zeros(3, 4)\nz = z.to(device)", ["z = torch.zeros(3, 4, device=device)"], Effect.EXACT),
        ("z = torch.zeros(3, 4)\nz = z.type_as(x)", ["z = torch.zeros(3, 4, device=x.device)"], Effect.EXACT),
        ("z = Variable(Tensor(np.ones((3, 4))))", ['z = Variable(torch.ones(3, 4, device="cuda" if cuda else "cpu"))'], Effect.EXACT),
        ("z = Tensor(np.zeros(x.shape))", ['z = torch.zeros(x.shape, device="cuda" if cuda else "cpu")'], Effect.EXACT),
        ("z = Tensor(np.ones(shape=(3, *shape)))", ['z = torch.ones(3, *shape, device="cuda" if cuda else "cpu")'], Effect.EXACT),
        ("z = torch.FloatTensor(3, 4).zero_().to(device)", ["z = torch.zeros(3, 4, device=device)"], Effect.EXACT),
        ("z = torch.FloatTensor(x.size()).fill_(1).to(device)", ["z = torch.ones(x.size(), device=device)"], Effect.EXACT),
        ("z = torch.Tensor(3, 4).fill_(-2).to(device)", ["z = torch.full((3, 4), -2.0, device=device)"], Effect.EXACT),
        ("z = torch.FloatTensor(3, 4).fill_(0x10).to(device)", ["z = torch.full((3, 4), 16.0, device=device)"], Effect.EXACT),
        ("from torch import zeros\nz = zeros(3, 4).to(device)", ["z = zeros(3, 4, device=device)"], Effect.EXACT),
        ("z = torch.FloatTensor(3, 4).fill_(latent).to(device)", ["z = torch.full((3, 4), latent, dtype=torch.float32, device=device)"], Effect.EXACT),
        ("z = torch.FloatTensor(x.data.size()).fill_(label()).to(device)", ["z = torch.full(x.data.size(), label(), dtype=torch.float32, device=device)"], Effect.EXACT),
        ("z = Variable(torch.Tensor(3, 4).fill_(step / 2)).to(device)", ["z = Variable(torch.full((3, 4), step / 2, dtype=torch.float32, device=device))"], Effect.EXACT),
        ("z = torch.DoubleTensor(4).fill_(Labels.real).to(device)", ["z = torch.full((4,), Labels.real, dtype=torch.float64, device=device)"], Effect.EXACT),
        ("z = torch.LongTensor(3, 4).fill_(labels['fake']).to(device).float()", ["z = torch.full((3, 4), labels['fake'], dtype=torch.long, device=device).float()"], Effect.EXACT),
        ("z = torch.DoubleTensor(4).fill_(1e3).to(device)", ["z = torch.full((4,), 1e3, dtype=torch.float64, device=device)"], Effect.EXACT),
        ("z = torch.LongTensor(3, 4).fill_(2).to(device).float()", ["z = torch.full((3, 4), 2, dtype=torch.long, device=device).float()"], Effect.EXACT),
        ("z = Variable(torch.ByteTensor(x.size(0), 1).zero_()).to(device)", ["z = Variable(torch.zeros(x.size(0), 1, dtype=torch.uint8, device=device))"], Effect.EXACT),
        ("z = torch.BoolTensor(x.size()).fill_(0).to(device).float()", ["z = torch.zeros(x.size(), dtype=torch.bool, device=device).float()"], Effect.EXACT),
        ("z = torch.FloatTensor(3, 4).zero_()\nz = z.to(device)", ["z = torch.zeros(3, 4, device=device)"], Effect.EXACT),
        ("z = torch.linspace(0, 1, 4).to(device)", ["z = torch.linspace(0, 1, 4, device=device)"], Effect.ROUNDING),
        ("z = torch.arange(0, 1, 0.25).to(device)", ["z = torch.arange(0, 1, 0.25, device=device)"], Effect.ROUNDING),
        ("z = torch.randn(3, 4).to(device)", ["z = torch.randn(3, 4, device=device)"], Effect.SAMPLING),
        ("z = torch.randint(0, 9, (3, 4)).float().to(device)", ["z = torch.randint(0, 9, (3, 4), device=device).float()"], Effect.SAMPLING),
        ("z = Tensor(np.random.normal(0, 1, (3, latent)))", ['z = torch.randn(3, latent, device="cuda" if cuda else "cpu")'], Effect.SAMPLING),
        ("z = Tensor(np.random.randn(3, latent))", ['z = torch.randn(3, latent, device="cuda" if cuda else "cpu")'], Effect.SAMPLING),
        ("z = Tensor(np.random.normal(size=(3, 4)))", ['z = torch.randn(3, 4, device="cuda" if cuda else "cpu")'], Effect.SAMPLING),
        ("z = Tensor(np.random.normal(0, 0.02, (3, latent)))", ['z = torch.empty(3, latent, device="cuda" if cuda else "cpu").normal_(0, 0.02)'], Effect.SAMPLING),
        ("z = Tensor(np.random.uniform(-1, 1, 4))", ['z = torch.empty(4, device="cuda" if cuda else "cpu").uniform_(-1, 1)'], Effect.SAMPLING),
        ("z = Tensor(np.random.random((3, 1)))", ['z = torch.rand(3, 1, device="cuda" if cuda else "cpu")'], Effect.SAMPLING),
    ],
)  # fmt: skip
def test_forms(make: str, expected: list[str], effect: Effect) -> None:
    done = made(make, before="import json\nshape, settings = (4,), json.loads('[0.5]')")
    assert done.lines == expected
    assert (done.fixes[0].effect or Effect.EXACT) is effect
    before, after = run(done.before)["losses"], run(done.text)["losses"]
    assert len(before) == len(after)
    if effect is not Effect.SAMPLING or "torch" in make:
        assert before == after  # on the CPU it is the same generator


@pytest.mark.parametrize(
    ("make", "device"),
    [
        ("z = torch.zeros(3, 4).cuda()", '"cuda"'),
        ("z = torch.zeros(3, 4).cuda(1)", "1"),
        ("z = torch.zeros(3, 4).to(0)", "0"),
    ],
)
def test_cuda(make: str, device: str) -> None:
    assert made(make).lines == [f"z = torch.zeros(3, 4, device={device})"]


@pytest.mark.parametrize(
    "make",
    [
        "z = torch.zeros(3, 4, device=device)",
        "z = torch.zeros(3, 4, device=device).to(device)",
        "z = torch.zeros_like(x).to(device)",  # x is there: nothing is copied
        "z = torch.ones_like(x, dtype=torch.float32).cuda()",
        "z = torch.zeros_like(x).unsqueeze(0).to(y.device)",
        "z = torch.zeros(3, 4).cpu()",
        'z = torch.zeros(3, 4).to("cpu")',
        "z = torch.zeros(3, 4).to(torch.float64)",
        "z = torch.tensor(losses[-1:] or [0.0]).to(device)",
        "z = torch.zeros(3, 4)\nprint(z.sum())\nz = z.to(device)",
        "z = torch.zeros(3, 4)\nwhere, device = device, device\nz = z.to(device)",
        "z = torch.dropout(torch.ones(3, 4), 0.5, True).to(device)",
        "z = torch.normal(torch.zeros(3, 4), 1.0).to(device)",
        "z = Tensor(3, 4).fill_(1)",
        "z = Tensor(np.asarray(losses[-1:] or [0.0]))",
        "z = Tensor(np.random.normal(0, 1))",
        "cuda = step > 3\nz = Tensor(np.ones((3, 4)))",
        "def cuda():\n    pass\nz = Tensor(np.ones((3, 4)))",
        "torch.set_default_dtype(torch.float32)\nz = Tensor(np.ones((3, 4)))",
        "z = torch.FloatTensor((3.0, 4.0)).zero_().to(device).mean()",  # these are data
        "z = torch.FloatTensor(3, 4).fill_(x.mean()).to(device)",
        "z = torch.LongTensor(3, 4).fill_(latent / 3).to(device).float()",
        "z = torch.LongTensor(3, 4).fill_(1.5).to(device).float()",
        "torch.set_default_dtype(torch.float32)\nz = torch.Tensor(3, 4).zero_().to(device)",
    ],
)
def test_nothing_to_do(make: str) -> None:
    assert not made(make).fixes


@pytest.mark.parametrize(
    "make",
    [
        # each copy is a tensor of its own
        "h = torch.zeros(3, 4)\nz, c = h.to(device), h.to(device)\nc += 1",
        "h = torch.zeros(3, 4)\nz, c = h.to(device), h.fill_(2).clone().to(device)",
        "h, z = torch.zeros(3, 4), 0\nfor n in range(2):\n    c = h.clone().to(device)\n    z = z + h.to(device).add_(n)",
        # the host looks at it, too
        "h = torch.zeros(3, 4)\nz, c = h.to(device), h.clone().to(device)\nlabels[0] = h",
        # where there is no such device
        "h = torch.zeros(3, 4)\nz = h\nif cuda:\n    z, c = h.cuda(), h.clone().cuda()",
        "h = torch.zeros(3, 4)\nz = x\nif cuda:\n    z, c = h.cuda(), h.clone().cuda()",
        "h = torch.zeros(3, 4)\nw = device\nw = x.device\nz, c = h.to(w), h.clone().to(device)",
        "h = torch.zeros(3, 4)\nw = x.device\nz, c = h.to(w), h.clone().to(w)",
    ],
)  # fmt: skip
def test_several_copies_that_stay(make: str) -> None:
    done = made(make)
    assert "h = torch.zeros(3, 4)\n" in done.text or "torch.zeros(3, 4), 0\n" in done.text
    run(done.before)


def test_the_host_is_a_plain_tensor() -> None:
    text = SCRIPT.format(make="z = Tensor(np.ones((3, 4)))", before="")
    done = apply(RULE, text.replace("else torch.FloatTensor", "else torch.Tensor"))
    assert done.lines == ['z = torch.ones(3, 4, device="cuda" if cuda else "cpu")']
    assert run(done.text)["losses"] == run(done.before)["losses"]


def test_the_flag_by_its_name() -> None:
    """In a function it may be another variable's; one of another function's is of no account."""
    for given, there in (("cuda", False), ("other", True)):
        helper = f"def noise({given}):\n    return Tensor(np.ones((3, 4)))\ndef more(cuda):\n    return cuda\n"
        done = made("z = noise(step > 3)", before=helper)
        assert bool(done.lines) is there
        assert run(done.text)["losses"] == run(done.before)["losses"]


def test_only_in_loops() -> None:
    assert made("z = fixed", before="fixed = torch.zeros(3, 4).to(device)").findings == ()
    helper = "def noise():\n    return torch.zeros(3, 4).to(device)\n"
    assert made("z = noise()", before=helper).fixes
    other = "for i in range(3):\n    table = torch.zeros(3).to(device)"
    assert made("z = torch.zeros(3, 4, device=device)", before=other).findings == ()


def test_not_in_datasets() -> None:
    text = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, Dataset

    class Items(Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, i):
            for _ in range(2):
                x = torch.zeros(4).to("cuda")
            return x

    net = nn.Linear(4, 1).cuda()
    opt = torch.optim.SGD(net.parameters(), 0.1)
    for x in DataLoader(Items(), batch_size=2):
        net(x).sum().backward()
        opt.step()
    """
    assert apply(RULE, text).findings == ()


@pytest.mark.parametrize(
    ("make", "before", "why"),
    [
        ("z = torch.zeros(3, 4, requires_grad=True).to(device)", "", "requires a gradient"),
        (
            "z = torch.randn(3, 4, generator=draw).to(device)",
            "draw = torch.Generator()",
            "generator",
        ),
        (
            "z = torch.randn(3, 4).to(device)",
            "torch.use_deterministic_algorithms(True)",
            "determinism",
        ),
        (
            "part, _ = torch.utils.data.random_split(range(9), [3, 6])\nz = torch.randn(3, 4).to(device)",
            "",
            "how many numbers the host has drawn",
        ),
    ],
)
def test_refusals(make: str, before: str, why: str) -> None:
    done = made(make, before)
    assert not done.fixes and why in done.refusals


def test_where_the_default_device_is_set() -> None:
    assert (
        made("z = torch.zeros(3, 4).to(device)", before='torch.set_default_device("cpu")').findings
        == ()
    )


KEEPS = """
class Mask:
    kept = None
    def of(self, size):
        if {asked}:
            self.kept = torch.tril(torch.ones(size, size)).log().exp().to(device)
        return self.kept
mask = Mask()
"""


@pytest.mark.parametrize(
    ("asked", "each", "found"),
    [
        ("self.kept is None", "", 0),
        ("self.kept is None or self.kept.size(0) != size", "", 0),
        ("self.kept is None", "mask.kept = None", 1),
        ("size", "", 1),
    ],
)
def test_what_is_kept_and_made_once(asked: str, each: str, found: int) -> None:
    done = made(f"{each}\nz = mask.of(4)[:3]", before=KEEPS.format(asked=asked))
    assert len(done.findings) == found
    if found:
        assert done.lines == [
            "self.kept = torch.tril(torch.ones(size, size, device=device)).log().exp()"
        ]


TABLE = """
import numpy
class Table(torch.nn.Module):
    def __init__(self):
        super().__init__()
        {kept}
    def forward(self, x):
        return x * self.used.to(device)
table = Table()
"""


@pytest.mark.parametrize(
    "kept",
    [
        'self.used = torch.tensor(numpy.load("used.npy"))',
        'self.register_buffer("used", torch.tensor(numpy.load("used.npy")))',
    ],
)
def test_what_a_module_keeps_is_no_new_tensor(kept: str) -> None:
    assert not made("z = table(x)", before=TABLE.format(kept=kept)).findings


def test_lightning() -> None:
    text = """
    import lightning.pytorch as pl
    import torch
    from torch import nn

    class Net(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 1)

        def training_step(self, batch, batch_idx):
            images, _ = batch
            valid = torch.ones(images.size(0), 1)
            valid = valid.type_as(images)
            return (self.layer(images) - valid).mean()

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters())

    pl.Trainer().fit(Net())
    """
    assert apply(RULE, text).lines == [
        "valid = torch.ones(images.size(0), 1, device=images.device)"
    ]


CAUSAL = """
def causal(size):
    shape = (1, size, size)
    mask = np.triu(np.ones(shape), k=1).astype("uint8")
    return torch.from_numpy(mask) == 0
"""
SQUARE = """
def causal(size):
    mask = (torch.triu(torch.ones(size, size)) == 1).transpose(0, 1)
    mask = mask.float().masked_fill(mask == 0, float("-9")).masked_fill(mask == 1, float(0.0))
    return mask
"""
LOWER = """
def causal(size):
    return torch.tril(torch.ones((size, size))).type(torch.uint8)
"""


@pytest.mark.parametrize(
    ("helper", "line"),
    [
        (CAUSAL, "mask = torch.triu(torch.ones(shape, dtype=torch.uint8, device=device), diagonal=1)"),
        (SQUARE, "mask = (torch.triu(torch.ones(size, size, device=device)) == 1).transpose(0, 1)"),
        (LOWER, "return torch.tril(torch.ones((size, size), device=device)).type(torch.uint8)"),
        (CAUSAL.replace(", k=1", "").replace('"uint8"', "np.float32"),
         "mask = torch.triu(torch.ones(shape, device=device))"),
        (CAUSAL.replace('.astype("uint8")', ""),
         "mask = torch.triu(torch.ones(shape, dtype=torch.float64, device=device), diagonal=1)"),
        ("def causal(size):\n    return torch.zeros(size, size) + 1\n",
         "return torch.zeros(size, size, device=device) + 1"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("causal(4).to(x.device).float()", "causal(4, device=x.device).float()"),
        ("causal(4).type_as(x)", "causal(4, device=x.device).type_as(x)"),
        ("causal(4).type_as((x != 0).data).float()", "causal(4, device=x.device).type_as((x != 0).data).float()"),
        ("causal(4).to(x)", "causal(4, device=x.device).to(x)"),
        ("torch.stack([causal(4).to(device)]).float()", "torch.stack([causal(4, device=device)]).float()"),
    ],
)  # fmt: skip
def test_helpers_are_told_where(helper: str, line: str, call: str, told: str) -> None:
    make = f"z = {call}.reshape(-1, 4)[-3:]"
    done = made(make, before=f"import torch\n{helper}\nfirst = causal(4).float().mean()")
    assert done.lines == ["def causal(size, device=None):", line, *(
        ["return mask == 0"] if "from_numpy" in helper else []
    ), make.replace(call, told)]  # fmt: skip
    before, after = run(done.before), run(done.text)
    assert before["losses"] == after["losses"] and before["first"] == after["first"]
    assert before["z"].dtype is after["z"].dtype


BY_EPOCH = f"""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
{LOWER}
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(4, 4).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(12, 4)), batch_size=4)
for epoch in range(2):
    mask = causal(4).to(device)
    for (x,) in loader:
        x = x.to(device)
        loss = model(x).pow(2).mean() + causal(4).float().mean()WHERE + mask.float().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_a_helper_that_nobody_would_tell_stays() -> None:
    """Its result is moved once an epoch, which is not worth a line; in the steps it stays."""
    text = BY_EPOCH.replace("WHERE", ".item()")
    assert not apply(RULE, text, min_gain=0.01).fixes
    moved = BY_EPOCH.replace("causal(4).float().mean()WHERE", "causal(4).to(device).float().mean()")
    told = apply(RULE, moved)
    assert any("causal(size, device=None)" in line for line in told.lines)


@pytest.mark.parametrize(
    "make",
    ["arange(0, 3, 1 / 3)", "arange(0, 3, 1 / k)", "arange(0.0, 3.0, 0.1)", "linspace(0, 9, k)"],
)
def test_fractions_that_are_cut_off_stay(make: str) -> None:
    """Another last digit, and another integer comes out."""
    done = made(f"k = len(x)\nz = torch.{make}.to(device).sum()")
    assert {f.effect for f in done.fixes} == {Effect.ROUNDING}
    casts = (".long().to(device)", ".to(device).long()", ".to(device, torch.int64)")
    for cast in casts:
        assert not made(f"k = len(x)\nz = torch.{make}{cast}.sum()").fixes


@pytest.mark.parametrize(
    "helper",
    [
        CAUSAL.replace("np.ones(shape)", "np.ones(shape) * latent"),  # more than it knows of
        LOWER.replace("size):", "size, device=None):"),
        LOWER.replace("size):", "*size):").replace("(size, size)", "(size[0], size[0])"),
        LOWER.replace("def", "@functools.lru_cache\ndef"),
        LOWER.replace("return", "if size > 9:\n        size = 9\n    return"),
        LOWER.replace("torch.tril(", "x.mean() + torch.tril("),
        "def causal(size):\n    ones = torch.ones(size, size)\n    keep.append(ones)\n    return ones\n",
        "def causal(size):\n    return torch.ones(size, size, requires_grad=True)\n",
    ],
)
def test_helpers_that_do_more_stay(helper: str) -> None:
    before = "import functools\nkeep = []\nx = torch.ones(1)\n" + helper
    assert not made("z = causal(4).to(x.device).float()[:3].mean()", before=before).fixes


@pytest.mark.parametrize(
    "make",
    [
        "p = torch.zeros(3, 4)\np[:, :2] = x[:, :2].cpu()\nz = p.to(device)",  # from the host
        "p = torch.zeros(3, 4)\np[p < 1] = 2.0\nz = p.to(device)",  # a mask of the host
        "p = torch.zeros(3, 4)\np[:, :2] += x[:, :2]\nz = p.to(device)",
        "p = torch.zeros(3, 4)\nz = p.to(device)\nlosses.append(p.numpy().sum())",
        "z = torch.LongTensor([list(range(Labels.sos, 0))] * 3).to(device)",
        "z = torch.LongTensor([range(4, Labels.sos)]).to(device).sum()",
    ],
)
def test_what_is_filled_from_the_host_or_used_there(make: str) -> None:
    assert not made(make).fixes


@pytest.mark.parametrize(("value", "there"), [("2.0", False), ("v.sum()", True)])
def test_a_helper_that_fills_by_numbers_alone(value: str, there: bool) -> None:
    """One by one on the host they cost less than a kernel each."""
    fill = f"def fill(t, v):\n    for i in range(3):\n        t[i] = {value}\n    t[0] = 0"
    done = made("z = torch.FloatTensor(3, 4)\nfill(z, x)\nz = z.to(device)", fill)
    assert bool(done.fixes) is there
    assert run(done.before)["losses"] == run(done.text)["losses"]


def test_nothing_on_a_cpu() -> None:
    assert (
        apply(
            RULE, SCRIPT.format(make="z = torch.zeros(3, 4).to(device)", before=""), target="cpu"
        ).findings
        == ()
    )


def test_devices_that_come_from_elsewhere() -> None:
    before = 'where = {"device": device}\n'
    assert not made("z = torch.zeros(3, 4).to(**where)", before=before).fixes


# -------------------------------------------------------------------------- what is dealt out later
@pytest.mark.parametrize(
    ("make", "after", "kept"),
    [
        (
            "z = torch.randn(3, 4).to(device)",
            "a, b = torch.utils.data.random_split(range(9), [3, 6])",
            True,
        ),
        (
            "z = torch.rand(3, 4).to(device)",
            "order = torch.randperm(9)\nheld_out = order[:3]",
            True,
        ),
        (
            "z = torch.randn(3, 4).to(device)",
            "def split():\n    return torch.utils.data.random_split(range(9), [3, 6])\nsplit()",
            True,
        ),
        (
            "z = Variable(torch.cuda.FloatTensor(np.random.normal(0, 1, (3, 4))))",
            "order = np.random.permutation(9)",
            True,
        ),
        (
            "z = torch.zeros(3, 4).to(device)",
            "a, b = torch.utils.data.random_split(range(9), [3, 6])",
            False,
        ),
        ("z = torch.randn(3, 4).to(device)", "order = np.random.permutation(9)", False),
        (
            "z = torch.randn(3, 4).to(device)",
            "order = torch.randperm(9, device=z.device)\nheld_out = order[:3]",
            False,
        ),
        (
            "z = torch.randn(3, 4).to(device)",
            "order = torch.randperm(9, device='cpu')\nheld_out = order[:3]",
            True,
        ),
        (
            "z = torch.randn(3, 4).to(device)",
            "own = torch.Generator()\na, b = torch.utils.data.random_split(range(9), [3, 6], generator=own)",
            False,
        ),
    ],
)
def test_data_that_are_dealt_out_after_the_draws(make: str, after: str, kept: bool) -> None:
    found = apply(RULE, SCRIPT.format(make=make, before="") + after + "\n")
    assert bool(found.fixes) is not kept
    assert ("deals out depends on how many numbers the host has drawn" in found.refusals) is kept


def test_a_split_before_the_draws_and_a_permutation_of_each_epoch_do_not_matter() -> None:
    before = "a, b = torch.utils.data.random_split(range(9), [3, 6])"
    assert made("order = torch.randperm(3)\nz = torch.randn(3, 4).to(device)", before).fixes


IN_TWO = "z = torch.zeros(3, 4)\n{more}if cuda:\n    {move}\n"
WHERE = 'device="cuda" if cuda else "cpu"'


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (IN_TWO.format(more="", move="z = z.cuda()"), [f"z = torch.zeros(3, 4, {WHERE})"]),
        (
            IN_TWO.format(more="", move="x, z = x.cuda(), z.cuda()"),
            [f"z = torch.zeros(3, 4, {WHERE})", "x, z = x.cuda(), z"],
        ),
        (IN_TWO.format(more="", move="x = x.cuda(); z = z.cuda()"), [f"z = torch.zeros(3, 4, {WHERE})", "x = x.cuda()"]),
        (IN_TWO.format(more="", move="z = z.cuda()").replace("if cuda", "if torch.cuda.is_available()"),
         ['z = torch.zeros(3, 4, device="cuda" if torch.cuda.is_available() else "cpu")']),
        (IN_TWO.format(more="", move="x = x + z; z = z.cuda()"), []),
        (IN_TWO.format(more="", move="z, x = x, z.cuda()"), []),
        (IN_TWO.format(more="cuda = step > 9\n", move="z = z.cuda()"), []),
        (IN_TWO.format(more="z += 1\n", move="z = z.cuda()"), []),
        (IN_TWO.format(more="", move="z = z.cuda()") + "else:\n    z = z + 1\n", []),
        (IN_TWO.format(more="", move="z = z.cuda()").replace("if cuda", "if losses.append(0.0)"), []),
        ("z = torch.zeros(3, 1)\nz = z.expand(3, 4)\nz = z.cuda() if cuda else z", [f"z = torch.zeros(3, 1, {WHERE})"]),
        ("z = torch.zeros(3, 4)\nz = z + (z.cuda() if cuda else z)", []),
        ("z = torch.zeros(3, 4)\nz = z.cuda() if cuda else z + 1", []),
        ("z = torch.zeros(3, 4)\nz = z.cuda() if losses.append(0.0) else z", []),
        ("z = torch.zeros(3, 1)\nz = z.expand(3, 4)\nz = z.clone().cuda() if cuda else z.clone()\nz.add_(1)", []),
        ("z = torch.zeros(3, 1)\nz = z.expand(3, 4)\nz = z.cuda() if cuda else z\nif cuda:\n    z.add_(1)", []),
        ("z = torch.zeros(3, 1)\nz = z.expand(3, 4)\nz = z.cuda() if cuda else z.clone()\nz[0, 1] = 2", []),
        ("z = torch.zeros(3, 1)\nz = z.expand(3, 4)\nz = z.cuda() if cuda else z\nif cuda:\n    w = z[0]\n    w[1] = 2", []),
    ],
)  # fmt: skip
def test_made_and_moved_under_a_condition(make: str, expected: list[str]) -> None:
    done = made(make)
    assert done.lines == expected, done.refusals
    assert run(done.text)["losses"] == run(done.before)["losses"]


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        ("z = torch.tensor([1.0, 2, step, latent]).to(device)", "z = torch.tensor([1.0, 2, step, latent], device=device)"),
        ("z = torch.tensor([[1.0], [2.0], [3.0 * step]]).to(device)", "z = torch.tensor([[1.0], [2.0], [3.0 * step]], device=device)"),
        ("z = torch.tensor([[1.0], [2.0], [3.0]]).to(device)", "z = torch.tensor([[1.0], [2.0], [3.0]]).to(device)"),
        ("z = torch.tensor([loss.item()] if step else [0.0]).to(device)", ""),
        ("z = torch.tensor(losses[-1:] or [0.0]).to(device)", ""),
        ("z = torch.tensor([x[0, 0], 1.0, 2.0, 3.0]).to(device)", ""),
    ],
)  # fmt: skip
def test_lists_of_numbers(make: str, expected: str) -> None:
    done = made(make)
    assert done.lines == [expected] if expected else not done.fixes
    assert run(done.text)["losses"] == run(done.before)["losses"]


@pytest.mark.parametrize(
    "make",
    [
        "z = torch.from_numpy(np.eye(4, dtype=np.float32))[:3].to(device)",
        "z = torch.from_numpy(np.array([1, 0, 0, 1]).astype(np.float32)).view(1, 4).to(device) + 0",
        "z = Variable(torch.from_numpy(np.array([1, 0, 0, 1], dtype='float32'))).repeat(3, 1)\nif x.is_cuda:\n    z = z.cuda()",
        "z = torch.FloatTensor([0.4, 0.5, 0.6, 0.7]).to(device) + 0",
    ],
)  # fmt: skip
def test_numbers_that_never_change_are_to_be_made_once(make: str) -> None:
    advised = "the same every time" in made(make).advice
    assert advised is ("[:3]" not in make)  # a part of it is not followed


@pytest.mark.parametrize(
    "make",
    [
        "z = torch.from_numpy(np.random.randn(3, 4).astype('float32')).to(device)",
        "z = torch.Tensor(np.full((3, 4), step)).to(device)",
        "z = torch.Tensor(losses[:1] * 4 or [0.0]).to(device)",
        "z = torch.from_numpy(x.cpu().numpy()).to(device)",
    ],
)
def test_numbers_that_change_are_not(make: str) -> None:
    assert "make it once" not in made(make).advice


@pytest.mark.parametrize(
    ("before", "make", "advised"),
    [
        ("table = torch.randn(9, 4)", "z = table[step:step + 3].to(device)", True),
        ("table = torch.randn(4, 9)", "part = table[:, step:step + 3].t()\nz = part.to(device)", True),
        ("table = torch.randn(9, 4)", "table[step] = 1.0\nz = table[step:step + 3].to(device)", False),
        ("", "table = torch.randn(9, 4)\nz = table[step:step + 3].to(device)", False),
        ("table = x = torch.zeros(9, 4, device=device)", "z = table[step:step + 3].to(device)", False),
    ],
)  # fmt: skip
def test_parts_of_what_stays_are_to_be_taken_there(before: str, make: str, advised: bool) -> None:
    assert ("copy all of it once" in made(make, before).advice) is advised


# ------------------------------------------------------------------------------------------ indices
@pytest.mark.parametrize(
    ("make", "expected", "effect"),
    [
        (
            "i = [0, 1, 2]\nz = x[torch.arange(x.size(0)), i].unsqueeze(1)",
            "z = x[torch.arange(x.size(0), device=x.device), i].unsqueeze(1)",
            Effect.EXACT,
        ),
        (
            "out = model(x)\nz = out[torch.arange(3).long(), 0].unsqueeze(1)",
            "z = out[torch.arange(3, device=out.device).long(), 0].unsqueeze(1)",
            Effect.EXACT,
        ),
        (
            "i = torch.ones(3, 2, dtype=torch.long)\nz = x[torch.arange(3)[:, None], i].repeat(1, 2)",
            "z = x[torch.arange(3, device=x.device)[:, None], i].repeat(1, 2)",
            Effect.EXACT,
        ),
        (
            "rows = torch.arange(3)[:, None]\nz = x[rows, np.array([[0, 3]])].repeat(1, 2)",
            "rows = torch.arange(3, device=x.device)[:, None]",
            Effect.EXACT,
        ),
        (
            "order = torch.arange(x.size(0))\nz = x[order] + x[order, 0:1]",
            "order = torch.arange(x.size(0), device=x.device)",
            Effect.EXACT,
        ),
        (
            "order = torch.randperm(x.size(0))\nz = x[order]",
            "order = torch.randperm(x.size(0), device=x.device)",
            Effect.SAMPLING,
        ),
        (  # its size is in a variable
            "n = x.size(0)\norder = torch.randperm(n)\nz = 0.5 * x + 0.5 * x[order, :]",
            "order = torch.randperm(n, device=x.device)",
            Effect.SAMPLING,
        ),
        (  # of copies that were made before it
            "a, b = x.clone(), x.clone()\norder = torch.randperm(x.size(0))\nz = a[order] + b[order]",
            "order = torch.randperm(x.size(0), device=a.device)",
            Effect.SAMPLING,
        ),
    ],
)
def test_indices_are_made_where_the_tensor_is(make: str, expected: str, effect: Effect) -> None:
    done = made(make)
    assert done.lines == [expected] and done.fixes[0].effect is effect
    assert run(done.text)["losses"] == run(done.before)["losses"]


@pytest.mark.parametrize(
    "make",
    [
        "rows = np.ones((3, 4))\nz = torch.as_tensor(rows[torch.arange(3)]).float()",  # of NumPy
        "order = torch.arange(x.size(0))\nz = x[order] + order.numpy().sum()",  # used on the host
        "order = torch.arange(x.size(0))\nx = torch.ones(3, 4)\nz = x[order]",  # another tensor
        "n = x.size(0)\norder = torch.arange(n)\nif step:\n    x = x.cpu()\nz = x[order].to(device)",
        "order = torch.arange(x.size(0))\na = x.clone()\nz = a[order]",  # not there yet
        "order = torch.arange(x.size(0))\nkept.append(order)\nz = x[order]",
        "y = torch.ones(3, 4, device='cpu')\nz = y[torch.arange(3)]",  # stays on the host
    ],
)
def test_indices_that_stay_on_the_host(make: str) -> None:
    assert not made(make, "kept = []").fixes


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (
            "z = torch.cat([torch.zeros(3, 1), torch.ones(3, 3)], dim=1).to(device)",
            ["z = torch.cat([torch.zeros(3, 1, device=device), torch.ones(3, 3, device=device)], dim=1)"],
        ),
        (
            "z = torch.cat([torch.arange(4) for i in range(3)])\nz = (z.view(3, 4) == z.view(3, 4)).float()\nz = z.to(device)",
            ["z = torch.cat([torch.arange(4, device=device) for i in range(3)])"],
        ),
        (
            "one = torch.ones(3, 1)\nrest = torch.zeros(3, 3)\nz = torch.cat((one, rest), 1)\nz = z.to(device)",
            ["one = torch.ones(3, 1, device=device)", "rest = torch.zeros(3, 3, device=device)"],
        ),
        (
            "one = torch.ones(3, 1)\nz = torch.cat((one, torch.zeros(3, 3)), 1)\nif x.is_cuda:\n    w = x.cuda()\n    z = z.cuda()",
            ["one = torch.ones(3, 1, device=x.device)", "w = x.cuda()"],
        ),
        (
            "z = torch.arange(4).view(1, 4).expand(3, 4).float()\nz = Variable(z, requires_grad=False)\nif x.is_cuda:\n    z = z.cuda()",
            ['z = torch.arange(4, device=x.device).view(1, 4).expand(3, 4).float()'],
        ),
        (
            "z = Variable(torch.ones(3, 4)).double()\nz = z.to(device)",
            ["z = Variable(torch.ones(3, 4, device=device)).double()"],
        ),
        (
            "z = torch.zeros(3, 4).float()\nif x.is_cuda:\n    z = z.cuda()",
            ["z = torch.zeros(3, 4, device=x.device, dtype=torch.float)"],
        ),
        (
            "z = Variable(torch.ones(3, 4), requires_grad=False).to(device)",
            ["z = Variable(torch.ones(3, 4, device=device), requires_grad=False)"],
        ),
        ("z = torch.triu(torch.ones(3, 4), diagonal=1).to(device)", ["z = torch.triu(torch.ones(3, 4, device=device), diagonal=1)"]),
        ("z = (2 * torch.ones(3, 4) - 1).to(device)", ["z = (2 * torch.ones(3, 4, device=device) - 1)"]),
    ],
)  # fmt: skip
def test_several_made_tensors_become_one(make: str, expected: list[str]) -> None:
    done = made(make)
    for line in expected:
        assert ast.unparse(ast.parse(line)) in ast.unparse(ast.parse(done.text))
    assert ".to(" not in "".join(done.lines) and ".cuda(" not in "".join(done.lines)
    assert run(done.before)["losses"] == run(done.text)["losses"]


@pytest.mark.parametrize(
    "make",
    [
        "z = torch.cat([torch.zeros(3, 1), x.cpu()[:, :3]], dim=1).to(device)",  # data of the host
        "z = torch.ones(3, 4)\nw = z.sum()\nz = z.view(3, 4)\nz = z.to(device)",  # used on the host
        "made = torch.arange(4) * 2.0\nz = made.to(device)[None]\nw = made.sum()",
        "z = torch.cat([torch.full((3, 1), float(device)) for device in range(4)], 1).to(device)",
        "one = torch.ones(3, 4)\nz = torch.cat((one,), 1)\nw = one.sum()\nz = z.to(device)",
        "one = torch.ones(3, 4)\nz = torch.cat((one,), 1)\nif x.is_cuda:\n    w = z.sum()\n    z = z.cuda()",
        "y = x\none = torch.ones(3, 4)\ny = y.cpu()\nz = torch.cat((one,), 1)\nz = z.to(y.device)",
        "if step:\n    one = torch.ones(3, 4)\nelse:\n    one = torch.zeros(3, 4)\nz = torch.cat((one,), 1)\nz = z.to(device)",
    ],
)
def test_what_is_put_together_of_more_stays(make: str) -> None:
    assert not made(make).fixes


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        ("z = (torch.ones(3, 4) / 3).to(device)", "z = torch.ones(3, 4, device=device) / 3"),
        ("z = torch.exp(torch.arange(4) * -0.3)\nz = z.to(device)", "z = torch.exp(torch.arange(4, device=device) * -0.3)"),
        ("made = torch.exp(torch.arange(4) * -0.3)\nz = made.to(device)[None]", "made = torch.exp(torch.arange(4, device=device) * -0.3)"),
        ("z = 2.0 ** (torch.arange(4.0) / 3)\nz = z.cos()\nz = z.to(device)", "z = 2.0 ** (torch.arange(4.0, device=device) / 3)"),
        ("z = torch.pow(3.0, torch.arange(4.0)).to(device)", "z = torch.pow(3.0, torch.arange(4.0, device=device))"),
    ],
)  # fmt: skip
def test_what_each_device_computes_in_its_own_way_rounds(make: str, expected: str) -> None:
    done = made(make)
    assert [f.effect for f in done.fixes] == [Effect.ROUNDING]
    assert expected in [line.strip() for line in done.lines]
    assert ".to(" not in "".join(done.lines) and ".cuda(" not in "".join(done.lines)
    assert run(done.before)["losses"] == run(done.text)["losses"]


@pytest.mark.parametrize(
    "make",
    [
        "z = (torch.arange(4) / 3).long().to(device)",
        "z = (torch.arange(4) / 3).to(device).long()",
        "z = torch.arange(4) / 3\nz = z.long()\nz = z.to(device)",
        "z = torch.exp(torch.arange(4.0)) > 7.389\nz = z.to(device)",
        "z = torch.exp(torch.arange(4.0)).to(torch.int).to(device)",
        "z = torch.ones(4).masked_fill(torch.arange(4) / 3 == 1, 0).to(device)",
    ],
)
def test_where_a_last_digit_is_another_integer(make: str) -> None:
    assert not made(make).fixes


def test_two_rules_at_lines_beside_each_other() -> None:
    """What variable-api leaves behind is new for device-creation, though the line above was
    changed, too.
    """
    text = SCRIPT.format(
        make="z = torch.ones(3, 4, requires_grad=False).to(device)\n"
        "    z = z + torch.autograd.Variable(torch.zeros(3, 4), volatile=False).to(device)",
        before="",
    )
    done = apply(f"{RULE} variable-api", text)
    assert "z = torch.ones(3, 4, requires_grad=False, device=device)" in done.lines


@pytest.mark.parametrize(
    "make",
    [
        "z = torch.tensor([first * step] * 4).to(device)",  # it may be a number of NumPy, of another dtype
        "z = torch.DoubleTensor(range(4)).to(device)",
        "z = torch.tensor(range(4 + len([]) - 0)).to(device)",  # fewer than none: an error
        "z = torch.tensor(range(len(losses), 9)).to(device)[-4:]",
    ],
)
def test_lists_that_a_factory_might_make_otherwise_stay(make: str):
    assert not made(make, "first = np.float32(2)").fixes


def test_a_dtype_in_a_variable_is_no_device() -> None:
    """``.to(dtype)`` only casts, however the dtype came there: ``dtype = x.dtype``."""
    text = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)


    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 2)

        def forward(self, x):
            dtype = x.dtype
            zero = torch.tensor(0).to(dtype).to(x.device)
            other = torch.tensor(0).to(dtype)
            return self.a(x) + zero + float(other)


    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for x, y in DataLoader(TensorDataset(torch.randn(12, 4), torch.randn(12, 2)), batch_size=4):
        loss = (model(x.to(device)) - y.to(device)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    """
    done = apply("device-creation", text)
    assert "device=dtype" not in done.text
    assert run(done.text)["losses"] == run(text)["losses"]


# What a function makes, and whoever calls it moves.
NOISE = """
class Noise:
    def __init__(self, steps, where):
        self.steps, self.place = steps, where

    def draw(self, n):
        return torch.randint(low=1, high=self.steps, size=(n, 4))


noise = Noise(9, device)


def rows(n):
    return torch.ones(n, 4)
"""
TOLD = ("def rows(n, device=None):", "return torch.ones(n, 4, device=device)")


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (
            "z = noise.draw(3).to(device)",
            [
                "def draw(self, n, device=None):",
                "return torch.randint(low=1, high=self.steps, size=(n, 4), device=device)",
                "z = noise.draw(3, device=device)",
            ],
        ),
        (
            "z = rows(3).to(device) + rows(1).to(device)",
            [*TOLD, "z = rows(3, device=device) + rows(1, device=device)"],
        ),
        (  # not all are moved
            "z = rows(3).to(device) + rows(1).sum().to(device)",
            [*TOLD, "z = rows(3, device=device) + rows(1).sum().to(device)"],
        ),
        (  # it may be called elsewhere
            "other = rows\nz = other(3).to(device)",
            [*TOLD, "z = other(3, device=device)"],
        ),
        (
            "def place(device):\n    return rows(3).to(device)\nz = place(device)",
            [*TOLD, "return rows(3, device=device)"],
        ),
    ],
)
def test_what_a_function_makes_and_callers_move(make: str, expected: list[str]) -> None:
    done = made(make, NOISE)
    assert done.lines == expected
    assert len(run(done.text)["losses"]) == 6


def test_an_old_constructor_of_one_array_is_given_data() -> None:
    """`torch.Tensor(a)` copies the array, and is no tensor of sizes that something fills."""
    done = made("z = torch.Tensor(np.ones((3, 4)) * 2).to(device)")
    assert "torch.empty" not in done.text


@pytest.mark.parametrize("make", ["torch.randn(3, 4)", "torch.zeros(3, 4)"])
def test_a_generator_that_is_set_back_draws_on(make: str) -> None:
    text = SCRIPT.format(make=f"z = {make}.to(device)", before="state = torch.get_rng_state()\n")
    found = apply(RULE, text + "torch.set_rng_state(state)\n")
    drawn = "randn" in make
    assert bool(found.fixes) is not drawn
    assert ("sets the generator of the host back" in found.refusals) is drawn


def test_the_device_of_what_a_function_that_calls_itself_has_moved() -> None:
    text = """\
import torch
from torch import nn

def move(found, device):
    if torch.is_tensor(found):
        return found.to(device)
    if isinstance(found, dict):
        return {key: move(value, device) for key, value in found.items()}
    if isinstance(found, (list, tuple)):
        return type(found)(move(value, device) for value in found)
    return found

def collate(rows):
    return {"net": {"x": nn.utils.rnn.pad_sequence(rows)[0], "sizes": [len(r) for r in rows]}, "y": torch.ones(3), "ids": ([1], "a")}

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x, sizes):
        ones = torch.ones(x.size(0), 4).to(x.device)
        return self.layer(x * ones).squeeze(1)

model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rows = [torch.ones(3, 4) for _ in range(9)]
batches = torch.utils.data.DataLoader(rows, batch_size=3, collate_fn=collate)
losses = []
for batch in batches:
    batch = move(batch, device)
    loss = (model(**batch["net"]) - batch["y"]).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
"""
    found = apply(RULE, text)
    assert "ones = torch.ones(x.size(0), 4, device=x.device)" in found.lines, (
        found.refusals + found.advice
    )
    seeded = "import torch\ntorch.manual_seed(0)\n"
    assert run(seeded + found.text)["losses"] == run(seeded + text)["losses"]


def test_in_the_forward_of_a_function() -> None:
    before = """
class Counted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ones = torch.ones(len(x)).to(x.device)
        ctx.save_for_backward(ones)
        return x + ones.sum()

    @staticmethod
    def backward(ctx, grad):
        return grad
"""
    found = made("z = Counted.apply(x)", before)
    assert "ones = torch.ones(len(x), device=x.device)" in found.text
    assert (
        run(found.text)["losses"]
        == run(SCRIPT.format(make="z = Counted.apply(x)", before=before))["losses"]
    )


def test_the_device_of_what_has_been_asked_whether_it_is_on_a_gpu() -> None:
    """A list that the reader takes it for as well has no ``is_cuda``."""
    mixed = "y = [x, []][step % 1]\nz = torch.zeros(3, 4)\nif y.is_cuda:\n    z = z.cuda()"
    assert made(mixed).lines == ["z = torch.zeros(3, 4, device=y.device)"]


ROUND_TRIP = """
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(4, 4).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
table = torch.cumprod(1 - torch.linspace(1e-4, 0.05, 10), 0)
rows = torch.randn(10, 4)
seen = []


def picked(a, t, shape):
    {body}


for step in range(6):
    x = torch.full((3, 4), 0.5, device=device)
    t = torch.randint(0, 4, (3,), device=device)
    optimizer.zero_grad()
    loss = (model(x) * picked({given}, t, x.shape)).pow(2).mean()
    loss.backward()
    optimizer.step()
    seen.append(loss.item())
"""
GATHERED = "out = a.gather(-1, t.cpu())\n    return out.reshape(t.shape[0], *((1,) * (len(shape) - 1))).to(t.device)"
ONE_HOT = "y = torch.zeros(len(t), 4)\n    y = y.scatter_(1, t.cpu().unsqueeze(1), 1.0).to(t.device)\n    return y"


SMOOTHED = "t = torch.zeros(a.size(0), 4).scatter_(1, t.unsqueeze(1).data.cpu(), 1)\n    if torch.cuda.is_available():\n        t = t.cuda()\n    return (0.9 * t + 0.1)[:3, :4]"


def round_trip(body: str, given: str = "table") -> Applied:
    return apply(
        RULE, "import torch\nfrom torch import nn\n" + ROUND_TRIP.format(body=body, given=given)
    )


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        (GATHERED, ["out = a.to(t.device).gather(-1, t)", "return out.reshape(t.shape[0], *((1,) * (len(shape) - 1)))"]),
        ("return a[t.cpu()].to(t.device).view(-1, 1)", ["return a.to(t.device)[t].view(-1, 1)"]),
        ("return a[t.detach().cpu().long()].float().to(t.device)[:, None].view(-1, 1)", ["return a.to(t.device)[t.detach().long()].float()[:, None].view(-1, 1)"]),
        (ONE_HOT, ["y = torch.zeros(len(t), 4, device=t.device)", "y = y.scatter_(1, t.unsqueeze(1), 1.0)"]),
        ("return torch.zeros(3, 4).scatter_(1, t.unsqueeze(1).cpu(), 1).to(t.device)", ["return torch.zeros(3, 4, device=t.device).scatter_(1, t.unsqueeze(1), 1)"]),
        (SMOOTHED, ["t = torch.zeros(a.size(0), 4, device=t.device).scatter_(1, t.unsqueeze(1).data, 1)"]),
    ],
)  # fmt: skip
def test_indices_stay_where_they_are(body: str, lines: list[str]) -> None:
    found = round_trip(body)
    once = ["table = table.to(device)"] * ("a.to" in lines[0] or "return a" in lines[0])
    assert found.lines == [*once, *lines] and {f.effect for f in found.fixes} <= {
        None,
        Effect.EXACT,
    }
    before = "import torch\nfrom torch import nn\n" + ROUND_TRIP.format(body=body, given="table")
    assert run(found.text)["seen"] == run(before)["seen"]


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("return a[t.cpu()].to(device).unsqueeze(1)", "return a.to(t.device)[t].to(device).unsqueeze(1)"),
        (
            "like = torch.ones(3, device=device)\n    return a[t.cpu()].float().to(like.device)[:, None]",
            "return a.to(t.device)[t].float().to(like.device)[:, None]",
        ),
        ("u = t.cpu()\n    return a[u].to(device).unsqueeze(1)", ""),  # under another name
    ],
)  # fmt: skip
def test_indices_whose_device_has_another_name(body: str, line: str) -> None:
    found = round_trip(body)
    assert found.lines == [line] * bool(line)
    before = "import torch\nfrom torch import nn\n" + ROUND_TRIP.format(body=body, given="table")
    assert run(found.text)["seen"] == run(before)["seen"]


@pytest.mark.parametrize(
    ("body", "given"),
    [
        ("return a[t.cpu()].to(t.device)", "rows"),  # as large as it may be
        ("return a[t.cpu()].view(-1, 1)", "table"),  # what comes out stays on the host
        ("out = a.gather(-1, t.cpu())\n    seen.append(out.numpy())\n    return out.view(-1, 1).to(t.device)", "table"),
        ("i = t.cpu()\n    seen.append(i.numpy())\n    return a[i].view(-1, 1).to(t.device)", "table"),
        ("u = t.cpu()\n    t = t * 0\n    return a[u].view(-1, 1).to(t.device)", "table"),  # another t
        ("y = torch.zeros(3, 4)\n    seen.append(y)\n    return y.scatter_(1, t.cpu().unsqueeze(1), 1).to(t.device)", "table"),
        ("return a.expand(3, 4).scatter_(1, t.cpu().unsqueeze(1), 1).to(t.device)", "table[:3, None] * torch.ones(1, 4)"),
        ("return torch.zeros(3, 4).scatter_(1, t.cpu().unsqueeze(1), a[:3, None]).to(t.device)", "table"),
        (SMOOTHED.replace("    if", "    seen.append(t.numpy())\n    if"), "table"),
    ],
)  # fmt: skip
def test_round_trips_that_somebody_may_notice(body: str, given: str) -> None:
    found = round_trip(body, given)
    assert not found.fixes, found.lines


MPS = 'torch.device("mps" if torch.backends.mps.is_available() else "cpu")'


@pytest.mark.parametrize(
    ("table", "refusal"),
    [
        ("torch.linspace(1e-4, 0.05, 10, dtype=torch.float32)", ""),
        ("torch.linspace(1e-4, 0.05, 10, dtype=torch.float64)", "may be of float64"),
        ("torch.from_numpy(numpy.linspace(1e-4, 0.05, 10))", "may be of float64"),
    ],
)
def test_tables_of_doubles_stay_on_the_host_where_the_device_may_have_none(
    table: str, refusal: str
) -> None:
    body = "return a[t.cpu()].float().to(t.device).view(-1, 1)"
    text = "import numpy\nimport torch\nfrom torch import nn\n" + ROUND_TRIP.format(
        body=body, given="table"
    )
    text = text.replace("torch.cumprod(1 - torch.linspace(1e-4, 0.05, 10), 0)", table)
    cuda = 'torch.device("cuda" if torch.cuda.is_available() else "cpu")'
    found = apply(RULE, text.replace(cuda, MPS))
    assert refusal in found.refusals and bool(found.fixes) == (not refusal)
    assert "a.to(t.device)[t].float()" in apply(RULE, text).text


SCHEDULE = """
import torch
from torch import nn

torch.manual_seed(0)


def schedule(steps):
    f = torch.cos(torch.linspace(0, 1, steps + 1)) ** 2
    return torch.clip(1 - f[1:] / f[:-1], 0.0001, 0.9999)


def extract(a, t, shape):
    out = a.gather(-1, t.cpu())
    return out.reshape(t.shape[0], *((1,) * (len(shape) - 1))).to(t.device)


{tables}


def noisy(x, t, noise):
    return extract(kept, t, x.shape) * x + extract(betas, t, x.shape) * noise


{device}
model = nn.Linear(4, 4).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
seen = []
for step in range(6):
    x = torch.full((3, 4), 0.5, device=device)
    t = torch.randint(0, 10, (3,), device=device)
    noise = torch.randn_like(x)
    optimizer.zero_grad()
    loss = (model(noisy(x, t, noise)) - noise).pow(2).mean()
    loss.backward()
    optimizer.step()
    seen.append(loss.item())
{after}
"""
TABLES = "betas = schedule(10)\nalphas = 1.0 - betas\nkept = torch.sqrt(torch.cumprod(alphas, 0))"
DEVICE = 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")'
KEPT, BETAS = "kept = kept.to(device)", "betas = betas.to(device)"


def schedule(tables: str = TABLES, device: str = DEVICE, after: str = "") -> tuple[str, list[str]]:
    """The script, and what is written beside the index."""
    script = SCHEDULE.format(tables=tables, device=device, after=after)
    found = apply(RULE, script)
    assert "a.to(t.device).gather(-1, t)" in found.text
    assert run(found.text)["seen"] == run(script)["seen"]
    return found.text, [x for x in found.lines if "extract" not in x and "out" not in x]


def test_schedules_go_to_the_device_once_with_the_numbers_of_the_host() -> None:
    text, lines = schedule(f"{DEVICE}\n{TABLES}", "")
    assert lines == [BETAS, KEPT]
    assert text.index("alphas = 1.0") < text.index(BETAS) < text.index("kept = torch")


def test_schedules_go_there_where_the_device_is_known() -> None:
    text, lines = schedule()
    assert sorted(lines) == [BETAS, KEPT]
    assert text.index("device = torch.device") < text.index(BETAS)


@pytest.mark.parametrize(
    ("tables", "after", "lines"),
    [
        (TABLES, "print(kept.numpy())", [BETAS]),
        (TABLES, "def show():\n    return kept.numpy()", [BETAS]),
        (TABLES, "alphas = locals()", []),
        (TABLES, "kept = None", [BETAS]),
        (TABLES + "\nfirst = kept[:1]", "first += 1", [BETAS]),  # a view, written to later
        ("alphas = 1.0 - schedule(10)\nkept = betas = alphas", "alphas.zero_()", []),
        (TABLES.replace("kept =", "if alphas[0] > 0:\n    kept ="), "", [BETAS]),
        (TABLES.replace("sqrt(", "sqrt(0 + "), "look = lambda: kept.numpy()", [BETAS]),
        (TABLES + "\nkept.requires_grad_()", "", []),
    ],
)  # fmt: skip
def test_schedules_that_the_host_needs_stay(tables: str, after: str, lines: list[str]) -> None:
    assert schedule(tables, after=after)[1] == lines


def test_a_schedule_that_its_reader_looks_at_on_the_host_stays() -> None:
    script = SCHEDULE.format(tables=TABLES, device=DEVICE, after="")
    script = script.replace("    out = a.", "    seen.append(a[0].item())\n    out = a.")
    assert not any(x in apply(RULE, script).lines for x in (BETAS, KEPT))


@pytest.mark.parametrize(
    ("make", "line"),
    [
        ("z = torch.empty(3, 4).bernoulli_(0.5).to(device)", "z = torch.empty(3, 4, device=device).bernoulli_(0.5)"),
        ("z = torch.empty(3, x.size(1)).normal_(0, 0.1) / 2\nz = z.to(x.device)", "z = torch.empty(3, x.size(1), device=x.device).normal_(0, 0.1) / 2"),
        ("z = torch.zeros(12).view(3, 4).uniform_().to(device)", "z = torch.zeros(12, device=device).view(3, 4).uniform_()"),
    ],
)  # fmt: skip
def test_what_is_drawn_into_a_new_tensor_is_drawn_there(make: str, line: str) -> None:
    found = made(make)
    assert found.lines == [line]
    assert [f.effect for f in found.fixes][:1] == [Effect.SAMPLING]
    assert len(run(found.text)["losses"]) == 6


@pytest.mark.parametrize(
    ("make", "before"),
    [
        ("z = torch.empty(3, 4).bernoulli_(odds).to(device)", "odds = torch.rand(3, 4)"),
        ("z = torch.empty(3, 4).normal_(generator=own).to(device)", "own = torch.Generator()"),
        ("z = torch.empty(3, 4).normal_().to(device)", "torch.use_deterministic_algorithms(True)"),
    ],
)
def test_what_the_host_draws_for_a_reason_stays(make: str, before: str) -> None:
    assert not made(make, before).fixes


def test_rows_that_a_tensor_of_the_host_picks_stay() -> None:
    found = made("rows = torch.tensor([2, 0, 1])\nz = torch.eye(4)[rows].to(device)")
    assert "z = torch.eye(4)[rows].to(device)" in found.text


SAME = """
import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
np.random.seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(4, 4).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
points, values = np.random.RandomState(0).rand(3, 4), torch.rand(3, 4)
seen = []


def loss_of(x, y):
    {loss}


for epoch in range(2):
    count = 0
    for step in range(3):
        {first}
        x = {copy}
        y = values.to(device)
        optimizer.zero_grad()
        loss = loss_of(x, y)
        loss.backward()
        optimizer.step()
        count += loss
        {last}
        seen.append(loss.item())
"""
COPY = "torch.tensor(points[:, 0:4]).float().to(device)"
LOSS = "return (model(x) - y).pow(2).mean()"


def same(
    copy: str = COPY, loss: str = LOSS, first: str = "pass", last: str = "pass", before: str = ""
) -> list[str]:
    """What is written, once the losses are the same."""
    script = SAME.format(copy=copy, loss=loss, first=first, last=last)
    script = script.replace("seen = []", f"{before}\nseen = []")
    found = apply(RULE, script)
    assert run(found.text)["seen"] == run(script)["seen"]
    return found.lines


@pytest.mark.parametrize(
    "copy",
    [
        COPY,
        "torch.tensor([0.5, 1.0, 2.0, 3.0]).to(device)",
        "torch.Tensor(np.eye(4)[:3]).to(device)",
        "values[0:2].repeat(3, 1)[:3].view(3, 4).to(device)",
    ],
)
def test_what_is_the_same_in_each_turn_is_copied_before_the_loops(copy: str) -> None:
    text = apply(RULE, SAME.format(copy=copy, loss=LOSS, first="pass", last="pass")).text
    assert same(copy) == [f"x = {copy}", "y = values.to(device)"]
    assert text.index("y = values.to(device)") < text.index("for epoch")


@pytest.mark.parametrize(
    "changed",
    [
        {"last": "points[0] += 1"},
        {"last": "np.random.shuffle(points)"},
        {"last": "points = points * 2"},
        {"last": "kept['p'][0] += 1", "before": "kept = {'p': points}"},
        {"last": "kept[0][0] = step", "before": "kept = [points]"},
        {"last": "x += 1"},
        {"last": "x.mul_(2)"},
        {"last": "part = empty(x)\n        part.mul_(2)", "before": "empty = nn.Sequential()"},
        {"last": "part = +x\n        part.mul_(2)"},
        {"last": "x = x + 1"},
        {"first": "part = points[0]\n        part[0] += 1"},
        {"loss": "x.mul_(2)\n    return (model(x) - y).pow(2).mean()"},
        {"loss": "points[0] += 1\n    return (model(x) - y).pow(2).mean()"},
        {"loss": "x.requires_grad = True\n    return (model(x) - y).pow(2).mean()"},
        {"loss": "x.requires_grad_()\n    return (model(x) - y).pow(2).mean()"},
        {"first": "if step == 1: continue"},
        {"copy": "torch.tensor(points * step).float().to(device)"},
        {"copy": "torch.tensor(points + np.random.rand(3, 4)).float().to(device)"},
        {"copy": "torch.tensor(points, dtype=torch.float32, requires_grad=True).to(device)"},
    ],
)  # fmt: skip
def test_what_may_be_another_in_each_turn_is_copied_there(changed: dict[str, str]) -> None:
    assert not [line for line in same(**changed) if line.startswith("x =")]


WEIGHED = """
import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Weighed(nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = [0.5, 1.0, 2.0, 3.0]

    def forward(self, x, y):
        {before}
        return ((x - y).pow(2) * torch.tensor(self.weights).to(x.device)).mean()


model, criterion = nn.Linear(4, 4).to(device), Weighed()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    x = torch.full((3, 4), 0.5, device=device)
    optimizer.zero_grad()
    criterion(model(x), x).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("before", "same"),
    [
        ("pass", True),
        ("assert len(self.weights) == x.size(1)", True),
        ("self.weights.append(self.weights.pop(0))", False),
        ("self.weights = self.weights[::-1]", False),
        ("self.weights[0] += 1", False),
    ],
)
def test_numbers_that_a_module_keeps_are_the_same(before: str, same: bool) -> None:
    assert ("the same every time" in apply(RULE, WEIGHED.format(before=before)).advice) is same


HOISTED = """
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
X, Y = torch.randn(24, 4), torch.randint(0, 2, (24, 3)).float()


def weights():
    return (Y.sum(0) + 1).tolist()


def train(model, optimizer, pos_weight, device):
    losses = []
    for i in range(0, 24, 8):
        x, y = X[i : i + 8].to(device), Y[i : i + 8].to(device)
        weight = torch.tensor(pos_weight).to(device)
        loss = F.binary_cross_entropy_with_logits(model(x), y, pos_weight=weight)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


model = nn.Linear(4, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
pos_weight = weights()
losses = [loss for epoch in range(2) for loss in train(model, optimizer, pos_weight, device)]
"""


def test_a_copy_goes_above_the_loop_of_a_function() -> None:
    found = apply("device-creation", HOISTED)
    assert found.lines == ["weight = torch.tensor(pos_weight).to(device)"]
    assert run(HOISTED)["losses"] == run(found.text)["losses"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("        losses.append", "        pos_weight[0] += 1\n        losses.append"),
        ("        losses.append", "        weight += 1\n        losses.append"),
        ("        losses.append", "        weight.mul_(2)\n        losses.append"),
        ("        losses.append", "        pos_weight = [1.0, 2.0, loss.item()]\n        losses.append"),
        ("torch.tensor(pos_weight)", "(torch.tensor(pos_weight) + torch.rand(3))"),
    ],
)  # fmt: skip
def test_copies_that_stay_in_the_loop(old: str, new: str) -> None:
    text = HOISTED.replace(old, new)
    assert old in HOISTED and not apply("device-creation", text).fixes


SCORES = """
import torch
import torch.nn as nn

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
X = torch.randn(24, 5, 4)


class Net(nn.Module):
    def __init__(self, start):
        super().__init__()
        self.layer, self.start = nn.Linear(4, 4), start

    def forward(self, x):
        n, t = len(x), x.size(1)
        first = torch.full((n, 4), -10.0)
        first[:, self.start] = 0.0
        scores = self.layer(x).sum(1) + first.to(x.device)
        mask = torch.tril(torch.ones(t, t))[t - 2 :].to(x.device)
        return (torch.logsumexp(scores, 1) + mask.sum()).mean()


model = Net(2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for i in range(0, 24, 8):
    loss = model(X[i : i + 8].to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
"""


def test_numbers_are_put_in_and_rows_taken_out_on_the_device() -> None:
    found = apply("device-creation", SCORES)
    assert found.lines == [
        "first = torch.full((n, 4), -10.0, device=x.device)",
        "scores = self.layer(x).sum(1) + first",
        "mask = torch.tril(torch.ones(t, t, device=x.device))[t - 2 :]",
    ]
    assert run(SCORES)["losses"] == run(found.text)["losses"]


@pytest.mark.parametrize(
    ("old", "new", "stays"),
    [
        ("        first[:, self.start] = 0.0", "        for k in range(2):\n            first[:, k] = 0.0", "first.to"),
        ("first[:, self.start] = 0.0", "first[:, self.start] = torch.rand(n)", "first.to"),
        ("[t - 2 :]", "[torch.arange(t)]", ".to(x.device)\n        return"),
    ],
)  # fmt: skip
def test_what_is_put_in_many_times_stays(old: str, new: str, stays: str) -> None:
    assert old in SCORES and stays in apply("device-creation", SCORES.replace(old, new)).text


@pytest.mark.parametrize(("above", "below"), [(True, False), (False, True)])
def test_flags_beside_star_imports(above: bool, below: bool) -> None:
    """A star import may give the flag another value below its definition, but not above it."""
    star = "from networks import *"
    text = SCRIPT.format(make="z = Tensor(np.ones((3, 4)))", before=star if below else "")
    if above:
        text = text.replace("import torch\n", f"import torch\n{star}\n", 1)
    found = apply(RULE, text, files={"networks.py": "import torch\n\nwidth = torch.ones(1)\n"})
    written = "z = torch.ones(3, 4, device=" in found.text
    assert written is above


# ------------------------------------------------------------------- copies to where a tensor lies
@pytest.mark.parametrize(
    ("make", "expected"),
    [
        ("z = x.new_tensor(torch.arange(4))", "z = x.new_tensor(torch.arange(4, device=x.device))"),
        ("z = x.new_tensor(torch.eye(3, 4) * 2).abs()", "z = x.new_tensor(torch.eye(3, 4, device=x.device) * 2).abs()"),
        ("f = torch.arange(0, 6).unfold(0, 4, 2)\nf = x.new_tensor(f).long()\nz = f[:1].float()", "f = torch.arange(0, 6, device=x.device).unfold(0, 4, 2)"),
        ("f = torch.arange(4)\nz = x.new_tensor(f) + f.to(device).float()", ""),  # used on the host, too
        ("f = torch.arange(4)\nx, old = x + 1, x\nz = x.new_tensor(f)", ""),  # not there yet
        ("c = torch.zeros(3)\nz = c.new_tensor(torch.arange(4)).to(device)", ""),
        ("z = x.new_tensor([1.0, 2.0, 3.0, 4.0])", ""),
    ],
)  # fmt: skip
def test_what_is_copied_to_where_a_tensor_lies(make: str, expected: str) -> None:
    done = made(make)
    assert done.lines == ([expected] if expected else [])
    assert run(done.text)["losses"] == run(done.before)["losses"]


def test_what_is_told_its_device_goes_above_the_loop() -> None:
    text = """
    import torch
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = torch.nn.Linear(3, 3).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    X, losses = torch.randn(4, 8, 3), []
    for step in range(4):
        scale = torch.tensor([0.2, 0.3, 0.5], device=device)
        level = torch.tensor([step, 1.0, 1.0], device=device)
        loss = (model(X[step].to(device)) * scale + level).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    """
    found = apply("device-creation", text)
    assert found.lines == ["scale = torch.tensor([0.2, 0.3, 0.5], device=device)"]
    assert "device=device)\nfor step" in found.text
    assert run(found.text)["losses"] == run(text)["losses"]
    other = text.replace("scale +", "scale.mul_(2) +")
    assert not apply("device-creation", other).lines


# ------------------------------------------------------------------------ made in another block
BRANCHES = """
import torch
from torch import nn
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
kept = []


class Net(nn.Module):
    def __init__(self, kind="mlp"):
        super().__init__()
        self.kind = kind
        self.parts = nn.ModuleList([nn.Linear(1, 3) for _ in range(3)])
        self.head = nn.Linear(3, 2)

    def forward(self, x, n):
        where, h = x.device, x.size(1)
{code}
        return self.head(rows.mean(1))


model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
X, losses = torch.randn(4, 8, 3), []
for step in range(4):
    x = X[step].to(device)
    loss = (model(x, 1) + model(x, -1)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
"""
FILLED_ROWS = """
if self.kind == "mlp":
    rows = torch.empty(len(x), h, 3)
    for i in range(3):
        rows[:, i, :] = self.parts[i](x[:, i : i + 1])
else:
    raise ValueError(self.kind)
rows = rows.to(where)
"""
ROLLED = """
if n >= 0:
    head = torch.arange(h - n) + n
    tail = torch.arange(n)
else:
    head = torch.arange(-n) + (h + n)
    tail = torch.arange(h + n)
order = torch.cat([head, tail]).to(x.device)
rows = x[:, order].unsqueeze(-1).repeat(1, 1, 3)
"""


def branches(code: str) -> str:
    return BRANCHES.replace("{code}", textwrap.indent(code, " " * 8))


def test_what_is_filled_in_another_block_is_made_there() -> None:
    text = branches(FILLED_ROWS)
    found = apply("device-creation", text)
    assert found.lines == ["rows = torch.empty(len(x), h, 3, device=where)"]
    assert "rows.to" not in found.text
    assert run(found.text)["losses"] == run(text)["losses"]


def test_parts_of_two_branches_are_made_there() -> None:
    text = branches(ROLLED)
    found = apply("device-creation", text)
    assert found.lines == [
        "head = torch.arange(h - n, device=x.device) + n",
        "tail = torch.arange(n, device=x.device)",
        "head = torch.arange(-n, device=x.device) + (h + n)",
        "tail = torch.arange(h + n, device=x.device)",
        "order = torch.cat([head, tail])",
    ]
    assert run(found.text)["losses"] == run(text)["losses"]


@pytest.mark.parametrize(
    ("code", "old", "new"),
    [
        (FILLED_ROWS, "rows = rows.to", "kept.append(rows)\nrows = rows.to"),  # others have it
        (FILLED_ROWS, "rows = rows.to(where)", "where = kept or where\nrows = rows.to(where)"),
        (FILLED_ROWS, "rows = rows.to(where)", "if h > 9:\n    rows = rows.to(where)"),
        (FILLED_ROWS, "rows = rows.to(where)", "for _ in range(2):\n    rows = rows.to(where)"),
        (ROLLED, "order =", "kept.append(tail)\norder ="),
        (ROLLED, "order =", "x = x + 1\norder ="),  # another tensor says where
        (ROLLED, "    tail = torch.arange(n)", "    tail = torch.tensor(kept, dtype=torch.long)"),
    ],
)
def test_what_other_blocks_do_with_it(code: str, old: str, new: str) -> None:
    assert old in code
    found = apply("device-creation", branches(code.replace(old, new, 1)))
    assert not any("device=" in line for line in found.lines)


def test_a_static_method_without_arguments_has_no_object(tmp_path: Path) -> None:
    text = "class Model:\n    @staticmethod\n    def weight():\n        return scale.value\n"
    (tmp_path / "train.py").write_text(text)
    script = read_script(tmp_path / "train.py", tmp_path)
    (method,) = script.each(ast.FunctionDef)
    (value,) = (n for n in script.each(ast.Attribute) if n.attr == "value")
    assert not OfObject(script, method, None).is_given(value)
