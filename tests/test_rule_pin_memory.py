"""pin-memory: where the condition comes from, where it is written, and what is left alone."""

from __future__ import annotations

import pytest

from tests.loaders import DEVICE, FILES, script
from tests.onerule import apply, run

RULE = "pin-memory"
PLAIN = "DataLoader(Files(), batch_size=4)"


WORKERS = "batch_size=4, num_workers=2"


def lines(text: str) -> list[str]:
    return apply(RULE, text).lines


def test_the_device_decides() -> None:
    assert lines(script(PLAIN)) == [
        'loader = DataLoader(Files(), batch_size=4, pin_memory=device.type == "cuda")'
    ]


@pytest.mark.parametrize(
    "device",
    [
        '"cuda:0" if torch.cuda.is_available() else "cpu"',
        '0 if torch.cuda.is_available() else "cpu"',
    ],
)
def test_a_device_that_is_no_object_has_no_type(device: str) -> None:
    assert lines(script(PLAIN, device=f"device = {device}")) == [
        "loader = DataLoader(Files(), batch_size=4, pin_memory=torch.cuda.is_available())"
    ]


def test_a_device_that_is_made_later_is_not_used() -> None:
    text = script("", more=f"loader = DataLoader(Files(), batch_size=4)\n{DEVICE}", device="pass")
    assert lines(text) == [
        "loader = DataLoader(Files(), batch_size=4, pin_memory=torch.cuda.is_available())"
    ]


@pytest.mark.parametrize(
    ("first", "asked"),
    [
        ("device = torch.device(device)", 'device.type == "cuda"'),
        ("if n > 3:\n        device = torch.device(device)", "torch.cuda.is_available()"),
    ],
)
def test_a_device_that_is_made_of_a_parameter(first: str, asked: str) -> None:
    text = script(PLAIN, device=first).replace("main()", "main(input(), 4)")
    text = text.replace("def main(input(), 4)", "def main(device, n)")
    assert lines(text) == [f"loader = DataLoader(Files(), batch_size=4, pin_memory={asked})"]


def test_torch_under_another_name() -> None:
    text = script(PLAIN, device='device = "cuda" if th.cuda.is_available() else "cpu"').replace(
        "import torch\n", "import torch as th\n"
    )
    assert (
        "pin_memory=th.cuda.is_available()"
        in apply(
            RULE, text.replace("torch.load", "th.load").replace("torch.optim", "th.optim")
        ).text
    )


def test_cuda_calls_without_a_device() -> None:
    text = (
        script(PLAIN, device="pass")
        .replace("x.to(device), y.to(device)", "x.cuda(), y.cuda()")
        .replace(".to(device)", ".cuda()")
    )
    (line,) = lines(text)
    assert line in (
        f"loader = {PLAIN[:-1]}, pin_memory={value})"
        for value in ("True", "torch.cuda.is_available()")
    )


def test_one_entry_for_a_shared_dict() -> None:
    text = script(
        "DataLoader(Files(), **kwargs)",
        more="kwargs = dict(batch_size=4)\nval = DataLoader(Files(8), **kwargs)",
        epoch="for x, y in val:\n    model(x.to(device))",
    )
    found = apply(RULE, text)
    assert found.lines == ['kwargs = dict(batch_size=4, pin_memory=device.type == "cuda")']
    assert len(found.fixes) == 1


def test_a_dict_that_also_feeds_a_loader_of_strings_stays_as_it_is() -> None:
    names = "class Names(Dataset):\n    def __len__(self):\n        return 3\n    def __getitem__(self, index):\n        return 'abc'[index]\n"
    more = "kwargs = dict(batch_size=4)\nnames = DataLoader(Names(), **kwargs)"
    text = script(
        "DataLoader(Files(), **kwargs)",
        dataset=FILES + names,
        more=more,
        epoch="for name in names:\n    print(name)",
    )
    found = apply(RULE, text)
    assert found.lines == [
        'loader = DataLoader(Files(), pin_memory=device.type == "cuda", **kwargs)'
    ]
    assert "never moved" in found.refusals


@pytest.mark.parametrize(
    "given",
    [
        f"{WORKERS}, pin_memory=False",
        f"pin_memory=False, {WORKERS}",
        "batch_size=4,\n        pin_memory=False,\n        num_workers=2",
        "4, True, None, None, 2, None, False",
        "batch_size=4, num_workers=int(os.environ['N']), pin_memory=False",
    ],
)
def test_the_default_that_is_written_out_beside_workers(given: str) -> None:
    text = script(
        f"DataLoader(Files(), {given})", more="# Data loader", dataset="import os" + FILES
    )
    found = apply(RULE, text)
    wanted = text.replace("=False", '=device.type == "cuda"')
    wanted = wanted.replace("None, False", 'None, device.type == "cuda"')
    assert "".join(found.text.split()) == "".join(wanted.split())
    both = apply(f"{RULE} non-blocking", text)
    assert "x.to(device, non_blocking=True)" in both.text and not both.refusals


@pytest.mark.parametrize(
    "given", ["pin_memory=True", "pin_memory=torch.cuda.is_available()", "**{'pin_memory': True}"]
)
def test_nothing_where_it_is_there(given: str) -> None:
    assert not apply(RULE, script(f"DataLoader(Files(), batch_size=4, {given})")).findings


def test_nothing_where_it_is_there_under_a_condition() -> None:
    more = "kwargs = {}\nif torch.cuda.is_available():\n    kwargs = {'pin_memory': True}"
    assert not apply(
        RULE, script("DataLoader(Files(), batch_size=4, **kwargs)", more=more)
    ).findings


def test_nothing_for_the_cpu() -> None:
    assert not apply(RULE, script(PLAIN), target="cpu").findings


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (script("DataLoader(Files(), batch_size=4, pin_memory=False)"), "there are no workers"),
        (script(f"DataLoader(Files(), {WORKERS}, pin_memory=False)  # memory is short"), "with a comment"),
        (script(f"DataLoader(Files(), {WORKERS}, pin_memory=False)", more="# too little memory to pin"), "with a comment"),
        (script(f"DataLoader(Files(),\n        # not here\n        pin_memory=False, {WORKERS})"), "with a comment"),
        (script(f"DataLoader(Files(), {WORKERS}, pin_memory=PIN)", more="PIN = False"), "written out"),
        (script(f"DataLoader(Files(), **dict({WORKERS}, pin_memory=False))"), "written out"),
        (
            script(
                f"DataLoader(Files(), {WORKERS}, pin_memory=False)",
                more=f"other = DataLoader(Files(), {WORKERS}, pin_memory=True)",
                epoch="for x, y in other:\n    model(x.to(device))",
            ),
            "other loaders pin",
        ),
        (script("DataLoader(Files(), batch_size=4, **options())", dataset="from options import options\n" + FILES), "may be given already"),
        (script(PLAIN).replace("x, y = x.to(device), y.to(device)", "pass"), "never moved to a GPU"),
        (script(PLAIN, more='torch.set_default_device("cuda")'), "puts new tensors on another device"),
        (
            script("DataLoader(TensorDataset(a, a.sum(1)), batch_size=4)", more="a = torch.randn(16, 4).to(device)"),
            "on the device already",
        ),
        (script(PLAIN, dataset=FILES.replace("torch.load(self.paths[index])", "torch.load(self.paths[index]).cuda()")), "on the device already"),
    ],
)  # fmt: skip
def test_what_is_left_alone(text: str, reason: str) -> None:
    found = apply(RULE, text)
    assert reason in found.refusals
    assert not found.fixes


def test_batches_that_are_collated_on_the_device() -> None:
    collate = "\ndef collate(items):\n    x = torch.stack([i[0] for i in items]).cuda()\n    return x, x.sum(1)\n"
    text = script("DataLoader(Files(), batch_size=4, collate_fn=collate)", dataset=FILES + collate)
    assert "on the device" in apply(RULE, text).refusals


def test_a_buffer_on_the_device() -> None:
    text = script(PLAIN, more="buffer = torch.zeros(4, 4).to(device)")
    text = text.replace(
        "x, y = x.to(device), y.to(device)",
        "buffer.copy_(x)\n            x, y = buffer, buffer.sum(1)",
    )
    assert "pin_memory" in apply(RULE, text).text


def test_loaders_of_lightning() -> None:
    text = """
    import lightning as L
    import torch
    from torch.utils.data import DataLoader
    from torchvision.datasets import CIFAR10

    class Data(L.LightningDataModule):
        def train_dataloader(self):
            return DataLoader(CIFAR10("data"), batch_size=32)

    class Model(L.LightningModule):
        def training_step(self, batch, index):
            return torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])

    L.Trainer(max_epochs=3).fit(Model(), Data())
    """
    assert (
        'CIFAR10("data"), batch_size=32, pin_memory=torch.cuda.is_available()'
        in apply(RULE, text).text
    )


def test_a_loader_that_nothing_uses_is_nobody_s_business() -> None:
    unused = (
        "\ndef mean_and_std():\n    return [x.mean() for x in DataLoader(Files(), batch_size=9)]\n"
    )
    assert "batch_size=9)]" in apply(RULE, script(PLAIN, dataset=FILES + unused)).text


SPELLED = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def init():
    data = TensorDataset(torch.randn(24, 4), torch.arange(24) % 2)
    loader = DataLoader(data, batch_size=8, shuffle=True)

    def gen(n):
        batches = loader.__iter__()
        for i in range(n):
            try:
                x, y = next(batches)
            except StopIteration:
                batches = loader.__iter__()
                x, y = batches.__next__()
            yield {"x": x, "y": y}

    return lambda n: gen(n)


model = nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches, losses = init()(8), []
for i in range(8):
    batch = next(batches)
    x, y = batch["x"].to(device), batch["y"].to(device)
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
"""


def test_iterators_that_are_made_by_name() -> None:
    """``loader.__iter__()`` is ``iter(loader)``, also in a generator that another function hands
    out.
    """
    found = apply("pin-memory", SPELLED)
    assert len(found.fixes) == 1
    assert run(found.text)["losses"] == run(SPELLED)["losses"]
    assert len(apply("non-blocking", found.text).fixes) == 1


def test_iterators_that_are_made_by_name_in_each_turn() -> None:
    """They start the workers anew, as ``iter(loader)`` does."""
    text = SPELLED.replace("shuffle=True", "shuffle=True, num_workers=2")
    assert apply("persistent-workers", text).fixes
    once = text.replace("                batches = loader.__iter__()\n", "")
    once = once.replace("batches.__next__()", "x[:0], y[:0]")
    assert not apply("persistent-workers", once).fixes


def test_batches_whose_parts_the_loop_replaces() -> None:
    """What the loop puts into a batch is on the device; what the loader gives is not."""
    named = FILES.replace("return x, x.sum()", 'return {"x": x, "y": x.sum()}')
    text = script(PLAIN).replace(FILES, named)
    moved = """for batch in loader:
            for key in batch:
                batch[key] = batch[key].to(device)
            x, y = batch["x"], batch["y"]
"""
    text = text.replace("for x, y in loader:\n", moved)
    assert "batch[key].to(device)" in text and named in text
    assert lines(text) == [
        'loader = DataLoader(Files(), batch_size=4, pin_memory=device.type == "cuda")'
    ]


@pytest.mark.parametrize(("workers", "pins"), [("", False), (", num_workers=2", True)])
def test_a_loader_that_is_made_for_one_batch_is_not_worth_pinning(workers: str, pins: bool) -> None:
    """The process that waits for the batch would pin it itself: nothing happens meanwhile."""
    text = f"""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Files(torch.utils.data.Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, n):
        return torch.randn(4), torch.randn(1)


data = Files()
model = nn.Linear(4, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for episode in range(20):
    loader = DataLoader(data, batch_size=8, shuffle=True{workers})
    x, y = next(iter(loader))
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
"""
    done = apply("pin-memory non-blocking", text, min_gain=0.01)
    assert ("pin_memory=" in done.text) is pins
    assert ("non_blocking" in done.text) is pins


OTHERS = {
    "lib.py": """
from torch.utils.data import DataLoader


def batches(data, **kwargs):
    return DataLoader(data, batch_size=8, **kwargs)
""",
    "other.py": "import lib\n\nlib.batches(list(range(24)), pin_memory=False)\n",
}


@pytest.mark.parametrize("named", ["other.py", "notes.txt"])
def test_what_others_may_give_by_kwargs_is_not_written_at_the_call(named: str) -> None:
    """Given twice, it would be a TypeError in their scripts."""
    text = """
import lib
import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = torch.utils.data.TensorDataset(torch.randn(24, 4), torch.randn(24, 1))
model = nn.Linear(4, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in lib.batches(data, shuffle=True):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x.to(device)), y.to(device)).backward()
        optimizer.step()
"""
    files = {"lib.py": OTHERS["lib.py"], named: OTHERS["other.py"]}
    done = apply("pin-memory", text, files=files)
    scope: dict[str, object] = {}
    exec(done.texts.get("lib.py", files["lib.py"]), scope)
    if named == "other.py":
        scope["batches"](list(range(24)), pin_memory=False)  # type: ignore[operator]
        assert "other.py:3 calls batches() too" in done.refusals
    else:
        assert "pin_memory" in done.texts["lib.py"]


TRAINER = """
import torch
from torch.utils.data import DataLoader
class Trainer:
    def __init__(self, model):
        self.model, self.device = model, torch.device("cuda" if torch.cuda.is_available() else "cpu")
    def loader(self, data, more):
        return DataLoader(data, batch_size=8, num_workers=2, **more)
    def fit(self, data, **kwargs):
        loader = self.loader(data, kwargs)
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        for epoch in range(2):
            for x, y in loader:
                x, y = x.to(self.device), y.to(self.device)
                loss = torch.nn.functional.cross_entropy(self.model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
"""
FIT = """
import torch
from torch.utils.data import TensorDataset
from trainer import Trainer
data = TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))
Trainer(torch.nn.Linear(4, 2).to("cuda" if torch.cuda.is_available() else "cpu")).fit(data{})
"""


def test_keywords_of_others_that_come_through_a_parameter() -> None:
    """A sibling script may give `pin_memory=` to `fit(**kwargs)`, which hands it on: it must not be
    written beside.
    """
    alone = apply("pin-memory persistent-workers", FIT.format(""), files={"trainer.py": TRAINER})
    assert len(alone.fixes) == 2
    both = {"trainer.py": TRAINER, "other.py": FIT.format(", pin_memory=True")}
    found = apply("pin-memory persistent-workers", FIT.format(""), files=both)
    assert not found.fixes and found.refusals.count("calls fit() too") == 2


def test_batches_whose_crops_the_loop_moves_in_place() -> None:
    """``images[0] = images[0].cuda()`` writes into the list that the loader made, as contrastive
    training does.
    """
    found = apply(
        RULE,
        """
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, Dataset


        class Crops(Dataset):
            def __init__(self):
                self.base = torch.rand(16, 4)

            def __getitem__(self, i):
                return [self.base[i] + 1, self.base[i] - 1], i

            def __len__(self):
                return 16


        model = nn.Linear(4, 1)
        if torch.cuda.is_available():
            model.cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = DataLoader(Crops(), batch_size=4)
        for images, _ in loader:
            if torch.cuda.is_available():
                images[0] = images[0].cuda(non_blocking=True)
                images[1] = images[1].cuda(non_blocking=True)
            loss = (model(images[0]) - model(images[1])).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    )
    assert found.fixes, found.refusals


ARRAYS = """
import numpy as np

def gather(items):
    return np.stack([x.numpy() for x, _ in items]), np.array([float(y) for _, y in items])

"""


@pytest.mark.parametrize(
    "moves",
    [
        "x, y = torch.from_numpy(x).to(device), torch.from_numpy(y).float().to(device)",
        "x, y = torch.from_numpy(x), torch.from_numpy(y).float()\n            x, y = x.to(device), y.to(device)",
    ],
)
def test_arrays_are_not_pinned(moves: str) -> None:
    text = script("DataLoader(Files(), batch_size=4, collate_fn=gather)", dataset=FILES + ARRAYS)
    found = apply(RULE, text.replace("x, y = x.to(device), y.to(device)", moves))
    assert not found.fixes and "never moved to a GPU as they are" in found.refusals
    one = text.replace("x, y = x.to(device)", "x, y = torch.from_numpy(x).to(device)")
    assert apply(RULE, one).fixes


ON_CUDA = """
import argparse

import torch
from torch.utils.data import DataLoader
from data import Files


def train(args, model, optimizer):
    loader = DataLoader(Files(), batch_size=4, num_workers=2)
    {}
    for epoch in range(2):
        for x, y in loader:
            {}
            loss = model(x).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


parser = argparse.ArgumentParser()
parser.add_argument("--no_cuda", action="store_true")
args = parser.parse_args()
args.cuda = not args.no_cuda and torch.cuda.is_available()
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.Adam(model.parameters())
train(args, model, optimizer)
"""
CHOSEN = 'device = torch.device("cuda" if args.cuda else "cpu")'


@pytest.mark.parametrize(
    ("device", "moved", "written"),
    [
        ("pass", "x = x.cuda()", "True"),
        ("pass", "x = x.cuda() if args.cuda else x", "torch.cuda.is_available()"),
        (CHOSEN, "x = x.to(device)", "args.cuda"),  # which is read below, in any case
        (f"args.cuda = bool(args.cuda); {CHOSEN}", "x = x.to(device)", "torch.cuda.is_available()"),
    ],
)
def test_nothing_is_asked_that_the_script_knows(device: str, moved: str, written: str) -> None:
    text = ON_CUDA.format(device, moved)
    found = apply(RULE, text, files={"data.py": FILES_OF})
    assert f"num_workers=2, pin_memory={written}" in found.text


FILES_OF = "import torch\nfrom torch.utils.data import Dataset\n\n\n" + FILES
BY_OPTION = """
import argparse
import torch
from torch.utils.data import DataLoader
from data import Files


def main(args):
    {first}
    loader = DataLoader(Files(), batch_size=4, num_workers=2)
    model = torch.nn.Linear(4, 1)
    {model}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        if args.cuda:
            x, y = x.cuda(), y.cuda()
        optimizer.zero_grad()
        (model(x).squeeze() - y).pow(2).mean().backward()
        optimizer.step()


parser = argparse.ArgumentParser()
parser.add_argument("--cuda", action="store_true")
main(parser.parse_args())
"""


@pytest.mark.parametrize(
    ("first", "model", "written"),
    [
        ("cuda = args.cuda", "if cuda: model = model.cuda()", "cuda"),
        ("cuda = args.cuda\n    if cuda: print(1)", "if cuda: model.cuda()", "cuda"),
        ("pass", "if args.cuda: model.cuda()", "args.cuda"),  # which is read below
        ("pass", "model.to(input())", "torch.cuda.is_available()"),
        ("pass", "if not args.cuda: model.cuda()", "torch.cuda.is_available()"),
        ("pass", "cuda = args.cuda; model.cuda() if cuda else model", "torch.cuda.is_available()"),
    ],
)
def test_the_option_by_which_training_goes_to_cuda(first: str, model: str, written: str) -> None:
    text = BY_OPTION.format(first=first, model=model)
    found = apply(RULE, text, files={"data.py": FILES_OF})
    assert f"num_workers=2, pin_memory={written}" in found.text
