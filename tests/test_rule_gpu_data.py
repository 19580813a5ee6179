"""gpu-data: the same batches to the last bit, in the same order, with the same random numbers; and
what is left alone.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest

from autofast.rule import Effect
from tests.onerule import Applied, apply, same_runs
from tests.pretend.torchvision import modules

torch = pytest.importorskip("torch")
RULE = "gpu-data"
HEAD = """
import random
import numpy
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler, Subset, SubsetRandomSampler, TensorDataset, WeightedRandomSampler, random_split
"""
TENSORS = "a = torch.randn(30, 4)\nb = (a.sum(1) > 0).long()\ndata = TensorDataset(a, b)"
PART = "rest = list(range(20))\ndata = Subset(data, rest)\nloader = DataLoader(data, batch_size=8, shuffle=True)"
PLAIN = "loader = DataLoader(data, batch_size=8, shuffle=True)"
TRAIN = """
def main():
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    {setup}
    model = nn.Linear(4, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        {loop}
            {body}
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x.reshape(len(x), -1)[:, :4].float()), y.long())
            loss.backward()
            optimizer.step()
            seen.append((x, y, torch.rand(1), torch.get_rng_state()))
            losses.append(loss.item())

if __name__ == "__main__":
    seen, losses = [], []
    main()
"""
LOOP = "for x, y in loader:"
BODY = "x, y = x.to(device), y.to(device)"


def text_of(setup: str, before: str = "", loop: str = LOOP, body: str = BODY) -> str:
    return (
        HEAD
        + before
        + TRAIN.format(
            setup=setup.replace("\n", "\n    "),
            loop=loop,
            body=body.replace("\n", "\n            "),
        )
    )


def checked(
    setup: str, before: str = "", loop: str = LOOP, body: str = BODY, extra: str = ""
) -> Applied:
    """What becomes of a script with this loader; asserts that it is the same training, batch by
    batch and bit by bit.
    """
    text = text_of(setup, before, loop, body)
    found = apply(f"{RULE} {extra}", text)
    assert any(f.rule == RULE for f in found.fixes), (found.refusals, found.advice)
    same_runs(text, found.text)
    return found


# ------------------------------------------------------------------------------------------ tensors
@pytest.mark.parametrize(
    "loader",
    [
        "DataLoader(data, batch_size=8, shuffle=True)",
        "DataLoader(data, batch_size=8)",
        "DataLoader(data, 8, True, drop_last=True)",
        "DataLoader(dataset=data, batch_size=2 * 4, shuffle=False)",
        "DataLoader(data, batch_size=8, sampler=RandomSampler(data))",
        "DataLoader(data, batch_size=8, sampler=RandomSampler(data, replacement=True, num_samples=50))",
        "DataLoader(data, batch_size=8, sampler=WeightedRandomSampler(torch.ones(30), 30))",
        "DataLoader(data, batch_size=8, sampler=SubsetRandomSampler([1, 2, 3, 5, 8, 13, 21, 4, 7, 11]))",
        "DataLoader(data, batch_size=8, sampler=SubsetRandomSampler(range(20)), drop_last=True)",
        "DataLoader(data, batch_size=8, shuffle=True, pin_memory=torch.cuda.is_available())",
        "DataLoader(data, batch_size=8, shuffle=True, num_workers=2, pin_memory=True, timeout=9, prefetch_factor=3)",
        "DataLoader(data, batch_size=7, shuffle=a.sum().item() < 9, drop_last=len(data) > 3)",
        "DataLoader(data, batch_size=40, shuffle=True)",
        "DataLoader(data, batch_size=8)\nassert len(iter(loader)) == len(loader) == 4",
    ],
)
def test_tensors(loader: str) -> None:
    found = checked(f"{TENSORS}\nloader = {loader}")
    assert "tensors = TensorDataset(*(t.to(device) for t in data[:]))" in found.text
    assert "batch_size=None" in found.text or "None," in found.text
    assert not {"class", "num_workers", "pin_memory"} & set(found.text.replace("=", " ").split())


@pytest.mark.parametrize(
    "data",
    [
        "a = torch.randn(30, 4).clamp(-1, 1)\nb = (a[:, 0] > 0).long()",
        "raw = torch.randn(30, 4)\na = (raw - raw.mean(0)) / raw.std(0)\nb = raw.sum(1).round().long().clamp(0, 1)",
    ],
)
def test_computed_data_beside_writes_to_other_tensors(data: str) -> None:
    body = f"{BODY}\nmask = torch.zeros(len(x))\nfor i in range(len(x)):\n    mask[i] = 1"
    checked(f"{data}\ndata = TensorDataset(a, b)\n{PLAIN}", body=body)


AVERAGE = """
mean = nn.Linear(4, 2)
{more}
for key, value in mean.state_dict().items():
    if value.dtype.is_floating_point:
        value.mul_(0.5).add_(model.state_dict()[key], alpha=0.5)
"""


@pytest.mark.parametrize(
    ("more", "shared"),
    [
        ("", False),
        ("mean.register_buffer('rows', tensor=a)", True),
        ("mean.rows = nn.Buffer(data=a)", True),
    ],
)
def test_an_average_of_weights(more: str, shared: bool) -> None:
    """What a ``state_dict()`` gives is no data, unless a module keeps data."""
    data = (
        "a = torch.randn(30, 4).clamp(-1, 1)\nb = (a[:, 0] > 0).long()\ndata = TensorDataset(a, b)"
    )
    text = text_of(f"{data}\n{PLAIN}").replace("            seen", "            average(a, model)\n            seen")  # fmt: skip
    average = AVERAGE.format(more=more).replace("\n", "\n    ")
    text = text.replace("def main", f"def average(a, model):{average}\n\ndef main")
    found = apply(RULE, text)
    if shared:
        assert not found.fixes and "`a` may be a parameter" in found.refusals
    else:
        assert found.fixes, found.refusals
        same_runs(text, found.text)


@pytest.mark.parametrize("write", ["a.mul_(2)", "a[0] = 1", "view = a.view(-1)\nview[0] = 1"])
def test_computed_data_that_are_written_to(write: str) -> None:
    data = (
        "a = torch.randn(30, 4).clamp(-1, 1)\nb = (a[:, 0] > 0).long()\ndata = TensorDataset(a, b)"
    )
    found = apply(RULE, text_of(f"{data}\n{PLAIN}\n{write}"))
    assert not found.fixes and "may write to it" in found.refusals


def test_a_dataset_that_is_made_in_the_call() -> None:
    setup = "x = torch.randn(30, 4)\nloader = DataLoader(TensorDataset(x, (x.sum(1) > 0).long()), batch_size=8, shuffle=True)"
    found = checked(setup)
    assert "data = TensorDataset(x.to(device), (x.sum(1) > 0).long().to(device))" in found.lines
    other = checked(setup.replace("TensorDataset(x,", "TensorDataset(2 * x.t().clone().t(),"))
    made = " ".join(other.text.split()).replace("( ", "(")
    assert "data = TensorDataset((2 * x.t().clone().t()).to(device).contiguous()," in made
    pair = checked(setup.replace("loader =", "loader, size =") + ", 8")
    assert "data = TensorDataset(x.to(device), (x.sum(1) > 0).long().to(device))" in pair.lines
    large = checked(setup.replace("randn(30, 4)", "randn(3, 4).repeat(10, 1)"))
    assert "data = on_device([x, (x.sum(1) > 0).long()], device)" in large.lines


@pytest.mark.parametrize(
    ("options", "written"),
    [
        ("{'batch_size': 8, 'shuffle': True}", 'batches = BatchSampler(RandomSampler(tensors), options["batch_size"], drop_last=False)'),
        ("{'batch_size': 8, 'drop_last': True}", 'batches = BatchSampler(SequentialSampler(tensors), options["batch_size"], drop_last=options["drop_last"])'),
        ("{'batch_size': 8}\nif torch.rand(1) < 2:\n    options.update({'shuffle': True, 'num_workers': 1})", 'RandomSampler(tensors) if options.get("shuffle") else SequentialSampler(tensors)'),
        ("{'batch_size': 8}\nif torch.rand(1) > 2:\n    options.update({'shuffle': True, 'num_workers': 1})", 'RandomSampler(tensors) if options.get("shuffle") else SequentialSampler(tensors)'),
    ],
)  # fmt: skip
def test_arguments_in_a_dict(options: str, written: str) -> None:
    """The tutorial's way to give them."""
    found = checked(f"{TENSORS}\noptions = {options}\nloader = DataLoader(data, **options)")
    text = " ".join(found.text.replace("'", '"').split())
    assert written in text.replace("( ", "(").replace(" )", ")")


OTHERS = "TensorDataset(a[:9], b[:9])"


@pytest.mark.parametrize(
    ("more", "stays"),
    [
        ("", False),
        ("print(len(kwargs))", True),
        (f"other = DataLoader({OTHERS}, batch_size=3, collate_fn=list, **kwargs)\nfor y in other:\n    pass", True),
    ],
)  # fmt: skip
def test_arguments_of_workers_in_a_dict(more: str, stays: bool) -> None:
    """The dict goes, where no other loader gets it."""
    setup = f"{TENSORS}\nkwargs = {{'num_workers': 1, 'persistent_workers': False}}\n{more}"
    found = checked(f"{setup}\nloader = DataLoader(data, batch_size=8, shuffle=True, **kwargs)")
    assert ("kwargs = " in found.text) is stays
    assert ("kwargs" in found.text) is stays


def test_a_generator_of_its_own() -> None:
    setup = f"{TENSORS}\ng = torch.Generator().manual_seed(3)\n"
    for loader in (
        "DataLoader(data, batch_size=8, shuffle=True, generator=g)",
        "DataLoader(data, batch_size=8, sampler=RandomSampler(data, generator=g), generator=g)",
        "DataLoader(data, batch_size=8, sampler=WeightedRandomSampler(torch.ones(30), 20, generator=g))",
    ):
        checked(f"{setup}loader = {loader}", body=f"{BODY}\nseen.append((g.get_state(),))")


@pytest.mark.parametrize(
    ("data", "checked_for_room"),
    [
        ("a = torch.randn(30, 4)\nb = (a.sum(1) > 0).long()", False),
        ("a = torch.stack([torch.rand(30) * 3, torch.zeros(30).cos(), torch.ones(30), -torch.ones(30)], dim=1)\nb = torch.arange(30) % 2", False),
        ("numpy.random.seed(0)\na = torch.from_numpy(numpy.random.normal(0, 1, (30, 4))).float()\nb = torch.zeros(30)", False),
        ("a = torch.tensor(numpy.loadtxt([f'{i} 2 3 4' for i in range(30)])).float()\nb = torch.zeros(30)", True),
        ("a = torch.zeros(10 ** 5 // 3334, 4).repeat(1, 1)\nb = torch.zeros(len(a))", True),
        ("n = int(os.environ.get('ROWS', 30))\na = torch.randn(n, 4)\nb = torch.zeros(n)", True),
        ("n = int(os.environ.get('ROWS', 30))\nrows = numpy.ones((n, 4))\na = torch.from_numpy(rows).float()\nb = torch.zeros(30)", True),
        ("a = torch.randn(2, 4)[torch.zeros(30).long()]\nb = torch.zeros(30)", False),
        ("numpy.random.seed(0)\na = torch.from_numpy(numpy.random.normal(0, 1, 120)).float().view(30, 4)\nb = torch.zeros(30)", False),
    ],
)  # fmt: skip
def test_room_for_the_data_is_asked_where_their_size_is_not_known(
    data: str, checked_for_room: bool
) -> None:
    before = "import os\n"
    found = checked(f"{data}\ndata = TensorDataset(a, b)\n{PLAIN}", before)
    assert ("mem_get_info" in found.text) is checked_for_room
    assert ("tensors = on_device(" in found.text) is checked_for_room


def test_parts_of_data() -> None:
    setup = f"{TENSORS}\ntrain, test = random_split(data, [20, 10])\nloader = DataLoader(train, batch_size=8, shuffle=True)"
    checked(setup)
    checked(f"{TENSORS}\n{PLAIN.replace('data,', 'Subset(data, range(3, 25)),')}")
    # What is done to the indices before the loader is made is over by then.
    shuffled = PART.replace("\nloader", "\nrandom.Random(0).shuffle(rest)\nrest.pop()\nloader")
    checked(f"{TENSORS}\n{shuffled}")


def test_a_dataset_of_the_project() -> None:
    before = """
class Rows(Dataset):
    def __init__(self, count):
        self.x = (torch.rand(count, 4) * 255).byte()
        self.y = torch.randint(0, 2, (count,))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        x = self.x[index].float() / 255
        return (x - 0.5) / 0.3, self.y[index]

"""
    found = checked(f"data = Rows(30)\n{PLAIN}", before)
    assert "for t in data[:]" in found.text


SHAPED = """
class Rows(Dataset):
    def __init__(self, count):
        self.x = (torch.rand(count, 4) * 255).byte()
        self.y = torch.randint(0, 2, (count,))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        x = self.x[index].float().div(255)
        x = (x - 0.5) / 0.3
        return x.view(2, 2).unsqueeze(0), self.y[index].item()

"""


def test_a_dataset_that_shapes_its_rows() -> None:
    """All at once they would be shaped along another dimension: each is made for itself, once."""
    found = checked(f"data = Rows(30)\n{PLAIN}", SHAPED)
    assert "default_collate([data[i] for i in range(len(data))])" in found.text
    assert [f.effect for f in found.fixes] == [Effect.EXACT]


@pytest.mark.parametrize(
    "item",
    ["x.expand(9, 2, 4)", "x.repeat(99, 1)", "x[:index]", "x.view(index)", "torch.rand(4) + x"],
)
def test_items_that_may_be_large_or_unlike(item: str) -> None:
    before = SHAPED.replace("x.view(2, 2).unsqueeze(0)", item)
    found = apply(RULE, text_of(f"data = Rows(30)\n{PLAIN}", before))
    assert not found.fixes and found.refusals


def test_batches_can_be_changed_in_place() -> None:
    loader = "loader = DataLoader(data, batch_size=8)"
    checked(f"{TENSORS}\n{loader}", body=f"{BODY}\nx -= 1")


def test_tensors_in_another_order_of_memory() -> None:
    checked(f"a = torch.randn(4, 30).t()\ndata = TensorDataset(a, torch.zeros(30))\n{PLAIN}")


@pytest.mark.parametrize(
    "loop",
    [
        "for i, (x, y) in enumerate(loader):",
        "for (x, y), (z, _) in zip(loader, loader):",
        "for x, y in iter(loader):",
    ],
)
def test_loops(loop: str) -> None:
    checked(f"{TENSORS}\n{PLAIN}", loop=loop, body=BODY)


@pytest.mark.parametrize(
    "body",
    [
        "x = x.to(device)\ny = y.to(device=device)",
        "x, y = (t.to(device) for t in (x, y))",
        "n = x.size(0)\nx, y = x.float().to(device), y.view(-1).to(device)",
        "if torch.cuda.is_available():\n    x, y = x.cuda(), y.cuda()",
    ],
)
def test_ways_to_the_device(body: str) -> None:
    checked(f"{TENSORS}\n{PLAIN}", body=body)


@pytest.mark.parametrize(
    "body", [f"x = x / 3\n{BODY}", "x, y = (2 * x - 1).to(device), y.to(device)"]
)
def test_arithmetic_with_numbers(body: str) -> None:
    """It is done where the batches are; a GPU divides by way of the reciprocal."""
    found = checked(f"{TENSORS}\n{PLAIN}", body=body)
    assert [f.effect for f in found.fixes] == [Effect.ROUNDING]


def test_a_single_batch_by_hand() -> None:
    checked(
        f"{TENSORS}\n{PLAIN}", loop="for _ in range(2):", body=f"x, y = next(iter(loader))\n{BODY}"
    )


@pytest.mark.parametrize(("free", "moved"), [(0, 0), (959, 0), (961, 1), (10**9, 1)])
def test_too_little_memory(monkeypatch: pytest.MonkeyPatch, free: int, moved: int) -> None:
    """480 bytes go to the device where it has twice as many, and stay on the host elsewhere."""
    found = checked(f"a = torch.zeros(30, 4).repeat(1, 1)\ndata = TensorDataset(a)\n{PLAIN}", loop="for (x,) in loader:", body="x = x.to(device)\ny = x.new_zeros(len(x))")  # fmt: skip
    scope: dict[str, Any] = {"__name__": "other"}
    exec(compile(found.text, "train.py", "exec"), scope)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 10**9))
    to: list[Any] = []
    monkeypatch.setattr(torch.Tensor, "to", lambda t, device: to.append(device) or t)
    for device in ("cuda", torch.device("cuda:1")):
        data = scope["on_device"]([torch.ones(30, 4)], device)
        assert to == [device] * moved and torch.equal(data.tensors[0], torch.ones(30, 4))
        to.clear()
    scope["on_device"]([torch.ones(30, 4)], "cpu")
    assert not to


def test_nothing_is_left_for_other_rules() -> None:
    others = (
        "batched-dataset num-workers persistent-workers pin-memory non-blocking prefetch-factor"
    )
    found = checked(f"{TENSORS}\n{PLAIN}", extra=others)
    assert {f.rule for f in found.findings} == {RULE}


def test_on_a_cpu_it_has_nothing_to_do() -> None:
    assert not apply(RULE, text_of(f"{TENSORS}\n{PLAIN}"), target="cpu").findings


# ------------------------------------------------------------------------------------------- images
@pytest.fixture
def torchvision(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for as much of torchvision as the scripts need."""
    for name, module in modules().items():
        monkeypatch.setitem(sys.modules, name, module)


IMPORTS = "from torchvision import datasets, transforms\n"
GREY = "transforms.Normalize((0.1307,), (0.3081,))"
COLOUR = "transforms.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))"


@pytest.mark.parametrize(
    ("name", "transform"),
    [
        ("MNIST", f"transforms.Compose([transforms.ToTensor(), {GREY}])"),
        ("MNIST", "transforms.ToTensor()"),
        ("CIFAR10", f"transforms.Compose([transforms.ToTensor(), {COLOUR}])"),
    ],
)
@pytest.mark.usefixtures("torchvision")
def test_images(name: str, transform: str) -> None:
    setup = f"data = datasets.{name}('data', transform={transform})\n{PLAIN}"
    assert ".float() / 255" in checked(setup, IMPORTS).text


@pytest.mark.usefixtures("torchvision")
def test_a_part_of_the_images() -> None:
    setup = "data = datasets.MNIST('data', transform=transforms.ToTensor())\n"
    setup += f"data, rest = random_split(data, [20, 10])\n{PLAIN}"
    assert "default_collate([data[i] for i in range(len(data))])" in checked(setup, IMPORTS).text


def test_images_of_torchvision() -> None:
    real = pytest.importorskip("torchvision")
    numpy = pytest.importorskip("numpy")
    transform = real.transforms.Compose(
        [real.transforms.ToTensor(), real.transforms.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))]
    )
    for name, shape in (
        ("MNIST", (30, 28, 28)),
        ("CIFAR10", (30, 32, 32, 3)),
        ("SVHN", (30, 3, 32, 32)),
    ):
        cls = getattr(real.datasets, name)
        data = cls.__new__(cls)
        bytes_ = numpy.random.RandomState(0).randint(0, 256, shape, dtype=numpy.uint8)
        data.data = torch.from_numpy(bytes_) if name == "MNIST" else bytes_
        data.transform, data.target_transform = transform, None
        if name == "MNIST":
            data.transform = real.transforms.Compose(
                [real.transforms.ToTensor(), real.transforms.Normalize((0.1307,), (0.3081,))]
            )
        data.targets = torch.arange(30) if name == "MNIST" else list(range(30))
        data.labels = numpy.arange(30)
        setup = f"t = transforms.Compose([transforms.ToTensor(), {GREY}])\n"
        text = apply(
            RULE, text_of(f"{setup}data = datasets.{name}('d', transform=t)\n{PLAIN}", IMPORTS)
        ).text
        scope: dict[str, Any] = {"__name__": "module"}
        exec(compile(text, "train.py", "exec"), scope)
        runs = []
        made = torch.utils.data.TensorDataset(*scope["as_tensors"](data))
        batches = torch.utils.data.BatchSampler(torch.utils.data.RandomSampler(made), 8, False)
        for loader in (
            torch.utils.data.DataLoader(data, batch_size=8, shuffle=True),
            torch.utils.data.DataLoader(made, batch_size=None, sampler=batches),
        ):
            torch.manual_seed(0)
            runs.append([tensor for _ in range(2) for batch in loader for tensor in batch])
        for one, other in zip(*runs, strict=True):
            assert one.dtype == other.dtype and one.stride() == other.stride()
            assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("setup", "reason"),
    [
        ("data = datasets.MNIST('d', transform=transforms.Compose([transforms.RandomCrop(28, 4), transforms.ToTensor()]))", "draws random numbers for each item"),
        ("data = datasets.MNIST('d', transform=transforms.Compose([transforms.Resize(64), transforms.ToTensor()]))", "are not just ToTensor and Normalize"),
        ("data = datasets.MNIST('d', transform=transforms.ToTensor(), target_transform=lambda y: y % 2)", "has more than one transform"),
        ("data = datasets.MNIST('d', transform=transforms.ToTensor())\ndata.targets[:] = 1", "changes `data.targets[:]`, of which"),
        ("data = datasets.MNIST('d', transform=transforms.ToTensor())\ndata.targets = data.targets % 2", "changes `data.targets`, of which"),
        ("data = datasets.SVHN('d', split='extra', transform=transforms.ToTensor())", "are too many"),
    ],
)  # fmt: skip
def test_images_that_stay(setup: str, reason: str) -> None:
    found = apply(RULE, text_of(f"{setup}\n{PLAIN}", IMPORTS))
    assert not found.fixes and reason in found.refusals, found.refusals


# --------------------------------------------------------------------------------------- left alone
@pytest.mark.parametrize(
    ("setup", "reason"),
    [
        (PLAIN.replace("True)", "True, collate_fn=lambda items: items)"), "has a collate_fn of its own"),
        (PLAIN.replace("True)", "True, generator=torch.Generator())"), "its generator has no name"),
        (PLAIN.replace("shuffle=True", "sampler=SubsetRandomSampler(torch.randperm(30))"), "something else than whole numbers"),
        (f"{PLAIN}\nprint(loader.batch_size)", "uses its `batch_size`"),
        (f"{PLAIN}\nprint(loader.dataset.tensors)", "uses its `dataset`"),
        ("loader = DataLoader(data, batch_size=8) if len(data) > 3 else None", "in the middle of a statement"),
        ("size, loader = len(a), DataLoader(TensorDataset(a, b), batch_size=8)", "has no name"),
        (f"{PLAIN}\na.add_(1)", "may write to it"),
        (f"{PLAIN}\ntorch._foreach_mul_([a], 0.5)", "may write to it"),
        (f"import operator\n{PLAIN}\noperator.imul(a, 0.5)", "may write to it"),
        (f"{PLAIN}\nlist(map(torch.Tensor.neg_, a))", "may write to it"),
        (f"import functools\n{PLAIN}\nfunctools.partial(torch.Tensor.mul_, a)(-1)", "may write to it"),
        (f"import operator\n{PLAIN}\noperator.methodcaller('neg_')(a)", "may write to it"),
        (f"{PLAIN}\neval('a.neg_()')", "may write to it"),
        (f"{PLAIN}\nexec('a *= -1')", "may write to it"),
        (f"def flip(f):\n    return lambda *given: f(*given)\n{PLAIN}\nflip(torch.Tensor.neg_)(a)", "may write to it"),
        (f"{PLAIN}\nrows = a.numpy()\nrows *= -1", "may write to it"),
        (f"import numpy as np\n{PLAIN}\nrows = a.numpy()\nnp.multiply(rows, -1, rows)", "may write to it"),
        (f"import ctypes\n{PLAIN}\nctypes.memset(a.data_ptr(), 0, 4)", "may write to it"),
        (f"{PLAIN}\ntorch.ops.aten.neg_.default(a)", "may write to it"),
        (f"{PLAIN}\ntorch.utils.swap_tensors(a, -a)", "may write to it"),
        (f"{PLAIN}\na.grad = torch.ones_like(a)", "may be a parameter"),
        (f"{PLAIN}\nnn.Module().register_buffer('rows', a)", "may be a parameter"),
        (f"{PLAIN}\nnn.Embedding.from_pretrained(a)", "may be a parameter"),
        (f"import contextlib\n{PLAIN}\nwith contextlib.nullcontext(a) as t:\n    t.neg_()", "may write to it"),
        (f"import dataclasses\n{PLAIN}\ndataclasses.make_dataclass('D', ['t'])(a).t.neg_()", "may write to it"),
        (f"import numpy as np\n{PLAIN}\nbox = np.empty(1, dtype=object)\nbox[0] = a\nbox[0].neg_()", "may write to it"),
        (f"{PLAIN}\nnn.Identity()(a).neg_()", "may write to it"),
        (f"def changes():\n    while True:\n        a.neg_()\n        yield\n{PLAIN}\ngo = changes()", "may write to it"),
        (f"{PLAIN}\nvars(data)['tensors'] = (-a, a)", "changes"),
        (f"{PLAIN}\nloader.batch_sampler.batch_size = 4", "uses its `batch_sampler`"),
        (f"{PLAIN}\ntorch.sort(a, dim=0, out=(a, torch.empty(0, dtype=torch.long)))", "may write to it"),
        (f"import numpy as np\n{PLAIN}\nrows = a.numpy()\nnp.add.at(rows, [0], 1)", "may write to it"),
        (f"{PLAIN}\ndata.tensors = (a, a)", "changes"),
        (f"{PLAIN}\nmake = loader._get_iterator", "uses its `_get_iterator`"),
        (f"{PLAIN}\nbatches = list(loader)", "hands it to code that is not known"),
        (f"torch.set_default_dtype(torch.float64)\n{PLAIN}", "changes where new tensors are"),
        (f"{PLAIN}\nif torch.cuda.is_available():\n    torch.cuda.set_device(0)", "chooses the GPUs, perhaps after"),
        (f"{PART}\nrest.append(3)", "changes `rest`, of which"),
        (f"{PART}\nrandom.Random(0).shuffle(rest)", "changes `rest`, of which"),
        (f"{PART}\nnumpy.random.default_rng(0).shuffle(rest)", "changes `rest`, of which"),
        (f"{PART}\nother = rest\nother.pop()", "changes `other`, of which"),
        (f"{PART}\ndel rest[0]", "changes `rest[0]`, of which"),
        (f"def drop(rows):\n        rows.pop()\n{PART}\ndrop(rest)", "changes `rows`, of which"),
        (f"data = Subset(data, range(9))\n{PLAIN}\ndata.indices = [1, 2]", "changes `data.indices`, of which"),
        (f"{PLAIN}\ndevice = torch.device('cpu')", "does not say to which device"),
        (f"import numpy as np\nn = np.zeros((30, 4))\ndata = TensorDataset(torch.from_numpy(n))\n{PLAIN}\nn[0] = 1", "may write to it"),
        *((f"import numpy as np\nn = a.numpy()\ndata = TensorDataset(torch.from_numpy(n), b)\n{PLAIN}\n{write}", "may write to it")
          for write in ("n[:8] *= 0.9", "n[0] = 3", "np.multiply(n, 2, out=n)", "a[:8] *= 0.9", "torch.as_tensor(n).neg_()")),
        (f"import numpy as np\nn = np.zeros((30, 4))\ndata = TensorDataset(torch.from_numpy(n))\nt = torch.from_numpy(n)\n{PLAIN}\nt += 1", "may write to it"),
        *((f"import numpy as np\nn = np.zeros((30, 4))\nm = np.{view}\ndata = TensorDataset(torch.from_numpy(n))\n{PLAIN}\nm[0] = 1", "may write to it")
          for view in ("transpose(n)", "ravel(n)", "split(n, 2)[0]", "flip(n)", "atleast_2d(n)")),
        (f"t = torch.Tensor(a)\n{PLAIN}\nt += 1", "may write to it"),
        (f"import numpy as np\nn = np.zeros((30, 4), dtype=np.float32)\ndata = TensorDataset(torch.Tensor(n))\n{PLAIN}\nn[0] = 1", "may write to it"),
        (f"t = torch.empty(0)\nt.data = a\n{PLAIN}\nt *= 0.9", "gives its memory to another tensor"),
        (f"t = torch.empty(0)\nt.set_(a)\n{PLAIN}\nt *= 0.9", "gives its memory to another tensor"),
        (f"layer = nn.Linear(4, 30)\nlayer.weight.data = a\n{PLAIN}\nlayer.weight.data.mul_(2)", "gives its memory to another tensor"),
        (f"p = nn.Parameter(a, requires_grad=False)\n{PLAIN}\np.data.mul_(2)", "gives its memory to another tensor"),
    ],
)  # fmt: skip
def test_loaders_that_stay(setup: str, reason: str) -> None:
    found = apply(RULE, text_of(f"{TENSORS}\n{setup}"))
    assert not found.fixes and reason in found.refusals, found.refusals


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (f"z = y.numpy()\n{BODY}", "uses `y` in host memory"),
        (f"x = x + torch.randn(x.shape)\n{BODY}", "computes with `x`"),
        (f"x = x / x.sum()\n{BODY}", "computes with `x`"),
        (f"x = x ** 2\n{BODY}", "computes with `x`"),
        (f"z = torch.rand_like(x)\n{BODY}", "hands on `x`"),
        (f"x.sub_(1)\n{BODY}", "uses `x`"),
        (f"x[0] = 1\n{BODY}", "writes to `x`"),
        ("w = x.to(device)\nw += 1\nx, y = x.to(device), y.to(device)", "another copy"),
        ("z = x\nx = x.to(device)\ny = y.to(device)\nx += 1\nw = z.to(device)", "another copy"),
        (f"x = x.pin_memory()\n{BODY}", "uses `x`"),
        (f"x = x.type(torch.FloatTensor)\n{BODY}", "uses `x`"),
        (f"assert isinstance(x, torch.FloatTensor)\n{BODY}", "hands on"),
        (f"x = x[y == 1]\n{BODY}", "indexes"),
        (f"z = [x]\nz = torch.cat(z)\n{BODY}", "hands on"),
        ("if epoch:\n    x = x.cuda()\n    y = y.cuda()", "not known yet"),
        ("x = x.to(device)\nprint(y)", "hands on `y`"),
        ("x, y = x.to(device), y.to('cuda:1')", "may go to several devices"),
        (f"z = torch.zeros(3, device=x.device)\n{BODY}", "asks for `.device`"),
    ],
)
def test_batches_that_are_needed_on_the_host(body: str, reason: str) -> None:
    found = apply(RULE, text_of(f"{TENSORS}\n{PLAIN}", body=body))
    assert not found.fixes and reason in found.refusals, found.refusals


COUNTED = """
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def __init__(self):
        self.steps = {start}

    def fit(self, rows):
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        model = nn.Linear(4, 2).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        data = TensorDataset(torch.from_numpy(rows).float())
        loader = DataLoader(data, batch_size=8, shuffle=True)
        for epoch in range(3):
            for (x,) in loader:
                loss = model(x.to(device)).pow(2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                self.steps += 1


Trainer().fit(np.random.randn(32, 4))
"""


def test_a_counter_in_an_attribute_is_no_array() -> None:
    assert "may write to it" not in apply(RULE, COUNTED.replace("{start}", "0")).refusals
    array = apply(RULE, COUNTED.replace("{start}", "np.zeros(4)"))
    assert "may write to it" in array.refusals


TRAINER = """
from types import SimpleNamespace

class Trainer:
    def __init__(self, model, loader, cfg, device):
        self.model, self.loader, self.cfg = model.to(device), loader, cfg
        self.device = device
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def fit(self):
        for epoch in range(3):
            for x, y in self.loader:
                x, y = x.to({where}), y.to({where})
                loss = nn.functional.cross_entropy(self.model(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                seen.append((x, y, torch.rand(1), torch.get_rng_state()))
                losses.append(loss.item())

def main():
    torch.manual_seed(0)
    cfg = SimpleNamespace(device="cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    a = torch.randn(30, 4)
    data = TensorDataset(a, (a.sum(1) > 0).long())
    loader = DataLoader(data, batch_size=8, shuffle=True)
    {more}
    Trainer(nn.Linear(4, 2), loader, cfg, device).fit()

if __name__ == "__main__":
    seen, losses = [], []
    main()
"""


@pytest.mark.parametrize(
    ("where", "told"), [("self.cfg.device", "cfg.device"), ("self.device", "device")]
)
def test_the_device_of_an_object_that_is_made_later(where: str, told: str) -> None:
    text = HEAD + TRAINER.format(where=where, more="pass")
    found = apply(RULE, text)
    assert f"TensorDataset(*(t.to({told}) for t in data[:]))" in found.text, found.refusals
    same_runs(text, found.text)


@pytest.mark.parametrize(
    ("where", "more"),
    [
        ("self.device", "device = torch.device('cuda:1')"),
        ("self.cfg.device", "cfg = SimpleNamespace(device='cuda:1')"),
        ("self.cfg.device", "cfg.device = 'cuda:1'"),
    ],
)
def test_an_object_that_may_have_another_device(where: str, more: str) -> None:
    found = apply(RULE, HEAD + TRAINER.format(where=where, more=more))
    assert not found.fixes and "may be another one" in found.refusals


FOLDS = """
def main():
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    a, b = torch.randn(30, 4), torch.randint(0, 2, (30,))
    for fold in range(3):
        mine = torch.arange(30) % 3 != fold
        {first}
        model = nn.Linear(4, 2).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range({epochs}):
            {second}
            for x, y in loader:
                x, y = x.to(device), y.to(device)
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                seen.append((x, y, torch.rand(1), torch.get_rng_state()))
                losses.append(loss.item())

if __name__ == "__main__":
    seen, losses = [], []
    main()
"""
OF_FOLD = "loader = DataLoader(TensorDataset(a[mine], b[mine]), batch_size=8, shuffle=True)"


def test_the_data_of_one_fold_stay_for_its_epochs() -> None:
    text = HEAD + FOLDS.format(first=OF_FOLD, second="pass", epochs=4)
    found = apply(RULE, text)
    assert found.fixes, found.refusals
    same_runs(text, found.text)


def test_data_that_would_be_copied_in_each_epoch() -> None:
    found = apply(RULE, HEAD + FOLDS.format(first="pass", second=OF_FOLD, epochs=4))
    assert not found.fixes and "made anew in a loop" in found.refusals
