"""batched-dataset: the same batches to the last bit, in the same order, with the same random
numbers; and what is left alone.
"""

from __future__ import annotations

import ast
import struct
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from tests.loaders import FILES, script
from tests.onerule import Applied, apply, run, same, same_runs

torch = pytest.importorskip("torch")
RULE = "batched-dataset"
TENSORS = "a = torch.randn(30, 4)\nb = a.sum(1)\ndata = TensorDataset(a, b)"
CHECK = """
def main():
    torch.manual_seed(0)
    {setup}
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-7)
    for epoch in range(3):
        for batch in loader:
            seen.append((batch, torch.rand(1), torch.get_rng_state()))
            x = batch[0] if isinstance(batch, (list, tuple)) else batch["x"] if isinstance(batch, dict) else batch
            loss = model(x.reshape(len(x), -1)[:, :4].float()).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())

if __name__ == "__main__":
    seen, losses = [], []
    main()
"""


def checked(setup: str, dataset: str = "") -> Applied:
    """What becomes of a script with this loader; asserts that it is the same training, batch by
    batch and bit by bit.
    """
    head = "import torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader, Dataset, RandomSampler, TensorDataset, WeightedRandomSampler, random_split\n"
    text = head + dataset + CHECK.format(setup=setup.replace("\n", "\n    "))
    found = apply(RULE, text)
    same_runs(text, found.text)
    return found


# ------------------------------------------------------------------------------------------ tensors
@pytest.mark.parametrize(
    ("loader", "expected"),
    [
        ("DataLoader(data, batch_size=8, shuffle=True)", "BatchSampler(RandomSampler(data), 8, drop_last=False)"),
        ("DataLoader(data, batch_size=8)", "BatchSampler(SequentialSampler(data), 8, drop_last=False)"),
        ("DataLoader(data, 8, True, drop_last=True)", "BatchSampler(RandomSampler(data), 8, drop_last=True)"),
        ("DataLoader(data, 8, shuffle=False)", "BatchSampler(SequentialSampler(data), 8, drop_last=False)"),
        ("DataLoader(dataset=data, batch_size=2 * 4)", "BatchSampler(SequentialSampler(data), 2 * 4, drop_last=False)"),
        ("DataLoader(data, batch_size=8, sampler=RandomSampler(data))", "BatchSampler(RandomSampler(data), 8, drop_last=False)"),
        (
            "DataLoader(data, batch_size=8, sampler=WeightedRandomSampler(torch.ones(30), 30))",
            "BatchSampler(WeightedRandomSampler(torch.ones(30), 30), 8, drop_last=False)",
        ),
        ("DataLoader(data, batch_size=8, shuffle=True, num_workers=2)", "BatchSampler(RandomSampler(data), 8, drop_last=False)"),
    ],
)  # fmt: skip
def test_a_sampler_of_batches(loader: str, expected: str) -> None:
    text = " ".join(checked(f"{TENSORS}\nloader = {loader}").text.split())
    assert f"sampler={expected}" in text
    assert (
        "batch_size=None" in text
        or "DataLoader( data, None, " in text
        or "DataLoader(data, None, " in text
    )


def test_shuffle_that_depends_on_something() -> None:
    text = "def make(data, train):\n    return DataLoader(data, batch_size=8, shuffle=train)\n"
    found = checked(f"{TENSORS}\nloader = make(data, torch.rand(1).item() < 2)", text)
    assert "RandomSampler(data) if train else SequentialSampler(data)" in found.text


def test_a_dataset_without_a_name_gets_one() -> None:
    found = checked(
        "x = torch.randn(30, 4)\nloader = DataLoader(TensorDataset(x), batch_size=8, shuffle=True)"
    )
    assert "    dataset = TensorDataset(x)\n" in found.text
    assert "sampler=BatchSampler(RandomSampler(dataset), 8, drop_last=False)" in found.text


def test_a_dataset_that_is_made_deep_in_a_statement() -> None:
    """Nothing is computed before it there, no number drawn."""
    made = "pick([DataLoader(TensorDataset(torch.randn(30, 4)), batch_size=8, shuffle=True)])"
    found = checked(f"loader = {made}", "def pick(loaders):\n    return loaders[0]\n")
    assert "    dataset = TensorDataset(torch.randn(30, 4))\n" in found.text


def test_a_random_split() -> None:
    assert checked(
        f"{TENSORS}\nfirst, rest = random_split(data, [20, 10])\nloader = DataLoader(first, batch_size=8, shuffle=True)"
    ).fixes


@pytest.mark.parametrize(
    "made",
    [
        "torch.randn(30, 3, 4, 5).permute(0, 2, 3, 1)",
        "torch.randn(30, 3, 4, 5).to(memory_format=torch.channels_last)",
        "torch.from_numpy(__import__('numpy').zeros((30, 4, 5, 3)).transpose(0, 3, 1, 2)).float()",
        "torch.randn(4, 30, 5).transpose(0, 1)",
    ],
)
def test_permuted_tensors_give_contiguous_batches_as_before(made: str) -> None:
    found = checked(
        f"x = {made}\ndata = TensorDataset(x, torch.arange(30))\nloader = DataLoader(data, batch_size=8, shuffle=True)"
    )
    assert "TensorDataset(x.contiguous(), torch.arange(30))" in found.text


def test_tensors_in_order_need_no_copy() -> None:
    assert "contiguous" not in checked(f"{TENSORS}\nloader = DataLoader(data, batch_size=8)").text


@pytest.mark.parametrize(
    ("made", "copied"),
    [
        ("torch.sin(x[:, 0]) + 0.5 * x[:, 1] * x[:, 2]", False),
        ("torch.where(x > 0, x, 0.1 * torch.exp(x))", False),
        ("x.clamp(0, 1).log1p()", False),
        ("torch.sin(x.t()).t().sum(1).expand(30)", True),
        ("torch.exp(torch.randn(4, 30).t())", True),
        ("torch.maximum(x, torch.randn(4, 30).t())", True),
    ],
)
def test_pointwise_functions_keep_the_order(made: str, copied: bool) -> None:
    found = checked(
        f"x = torch.randn(30, 4)\ny = {made}\ndata = TensorDataset(x, y)"
        "\nloader = DataLoader(data, batch_size=8)"
    )
    assert ("TensorDataset(x, y)" in found.text) is not copied


PROJECT = """
class Rows(Dataset):
    def __init__(self, n):
        self.x = torch.randint(0, 256, (n, 4), dtype=torch.uint8)
        self.y = torch.arange(n)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        {item}
"""


@pytest.mark.parametrize(
    "item",
    [
        "return self.x[index], self.y[index]",
        "return self.x[index]",
        "return {'x': self.x[index], 'y': self.y[index]}",
        "return self.x[index].float() / 255, self.y[index]",
        "return (self.x[index].float() - 127.5) * 0.3, 2 * self.y[index]",
        "x = self.x[index].float()\n        return x / 255 - 0.5, self.y[index].float()",
        "if False:\n            print(index)\n        return self.x[index], self.y[index]",
        "if True:\n            return self.x[index]\n        else:\n            return self.y[index].item()",
    ],
)
def test_a_dataset_that_only_indexes(item: str) -> None:
    assert checked(
        "loader = DataLoader(Rows(30), batch_size=8, shuffle=True)", PROJECT.format(item=item)
    ).fixes


@pytest.mark.parametrize(
    "item",
    [
        "return self.x[index].float().exp(), self.y[index]",
        "return self.x[index].float() + self.y[index], self.y[index]",
        "return self.x[index].unsqueeze(0), self.y[index]",
        "return self.x[index], int(self.y[index])",
        "return self.x[index], index",
        "return self.x[-index], self.y[index]",
        "if index:\n            return self.x[index], self.y[index]\n        return self.x[0], self.y[0]",
        "if False:\n            yield 0\n        return self.x[index], self.y[index]",
    ],
)
def test_a_dataset_that_does_more_is_left_to_its_author(item: str) -> None:
    found = apply(
        RULE, script("DataLoader(Rows(30), batch_size=8)", dataset=PROJECT.format(item=item))
    )
    assert not found.fixes


def test_batches_can_be_changed_in_place() -> None:
    setup = f"{TENSORS}\nloader = DataLoader(data, batch_size=8)"
    text = (
        checked(setup)
        .text.replace("loss = model", "x.zero_()\n            loss = model")
        .replace("def main():", "def main():\n    global data")
    )
    scope: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, "train.py", "exec"), scope)
    assert scope["data"].tensors[0].abs().sum() > 0


def test_one_of_two_samplers_is_a_sampler() -> None:
    setup = f"""{TENSORS}
if torch.cuda.device_count() > 1:
    order = torch.utils.data.SequentialSampler(data)
else:
    order = RandomSampler(data)
loader = DataLoader(data, batch_size=8, sampler=order)"""
    text = " ".join(checked(setup).text.split())
    assert "sampler=BatchSampler(order, 8, drop_last=False)" in text


def test_clipping_writes_to_gradients_alone() -> None:
    """Of parameters that are not known, too: the rows may still be copied into another order."""
    text = script(
        "DataLoader(TensorDataset(rows), batch_size=8)",
        more="from secret import amp\nrows = torch.tensor(amp.table())",
        epoch="torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)",
    )
    found = apply(RULE, text)
    assert "clip_grad_norm_" not in found.refusals
    assert "may write to it" not in found.refusals
    other = apply(RULE, text.replace("clip_grad_norm_(", "fill_(").replace("nn.utils.", ""))
    assert "may write to it" in other.refusals


ROWS = "TensorDataset(torch.randn(30, 4), torch.randn(30))"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (script(f"DataLoader({ROWS}, batch_size=8, collate_fn=torch.utils.data.default_collate)"), "collate_fn of its own"),
        (script(f"DataLoader({ROWS}, batch_size=8, shuffle=True, generator=torch.Generator())"), "its generator has no name"),
        (script("DataLoader(data, batch_size=8, sampler=pick())", more=f"data = {ROWS}", dataset="from secret import pick\n"), "sampler may give something else"),
        (script("DataLoader(data, **options)", more=f"data = {ROWS}\noptions = {{'batch_size': 8}}"), "comes through a dict"),
        (script("DataLoader(data, batch_size=8)", more=f"data = {ROWS}", epoch="print(loader.batch_size)"), "uses its `batch_size`"),
        (script("DataLoader(data, batch_size=8)", more=f"data = {ROWS}", epoch="watch(loader)", dataset="from secret import watch\n"), "not known"),
        (script("DataLoader(torch.utils.data.ConcatDataset([data, data]), batch_size=8)", more=f"data = {ROWS}"), "one index at a time"),
        (script("DataLoader(data, batch_size=8, sampler=s)", more=f"data = {ROWS}\ns = None\nif torch.rand(1) > 0:\n    s = torch.utils.data.RandomSampler(data)"), "depends on the run"),
        (script("pick(torch.rand(1), [DataLoader(TensorDataset(torch.randn(8, 4)), batch_size=8)])", dataset="def pick(_, x):\n    return x[0]\n"), "has no name"),
    ],
)  # fmt: skip
def test_what_is_left_alone(text: str, reason: str) -> None:
    found = apply(RULE, text)
    assert reason in found.refusals
    assert not found.fixes


@pytest.mark.parametrize(
    "loader",
    [
        f"DataLoader({ROWS}, batch_size=None)",
        f"DataLoader({ROWS})",
        "DataLoader(Files(), batch_size=8)",
    ],
)
def test_nothing_to_gain(loader: str) -> None:
    assert not apply(RULE, script(loader, dataset=FILES)).findings


@pytest.mark.parametrize(
    "call",
    ["print(index)", "logging.info('item %d', index)", "log.debug(index)", "warnings.warn('slow')"],
)
def test_what_an_item_says_would_be_said_once_for_a_batch(call: str) -> None:
    more = "import logging\nimport warnings\nlog = logging.getLogger(__name__)\n"
    found = apply(
        RULE,
        script(
            "DataLoader(Rows(30), batch_size=8)",
            dataset=more + PROJECT.format(item=f"{call}\n        return self.x[index]"),
        ),
    )
    assert "does more than to index tensors" in found.advice and not found.fixes


def test_lists_of_tensors_get_advice() -> None:
    rows = PROJECT.format(item="return self.rows[index]").replace(
        "self.y = torch.arange(n)", "self.rows = [(torch.rand(4), torch.rand(1)) for _ in range(n)]"
    )
    found = apply(RULE, script("DataLoader(Rows(30), batch_size=8)", dataset=rows))
    assert "could be taken at once" in found.advice and not found.fixes


# ------------------------------------------------------------------------------------------- images
@pytest.fixture
def digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder ``data`` with files like those of MNIST."""
    pytest.importorskip("torchvision")
    raw = tmp_path / "data" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for split in ("train", "t10k"):
        images = torch.randint(0, 256, (40, 28, 28), dtype=torch.uint8)
        (raw / f"{split}-images-idx3-ubyte").write_bytes(
            struct.pack(">BBBBIII", 0, 0, 8, 3, *images.shape) + images.numpy().tobytes()
        )
        labels = torch.randint(0, 10, (40,), dtype=torch.uint8)
        (raw / f"{split}-labels-idx1-ubyte").write_bytes(
            struct.pack(">BBBBI", 0, 0, 8, 1, 40) + labels.numpy().tobytes()
        )
    monkeypatch.chdir(tmp_path)
    return tmp_path


IMPORTS = "from torchvision import datasets, transforms\n"
COMPOSED = "transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])"


@pytest.mark.parametrize(
    "transform", [COMPOSED, "transforms.ToTensor()", "transforms.Compose([transforms.ToTensor()])"]
)
@pytest.mark.parametrize(
    "loader",
    [
        "DataLoader(data, batch_size=16, shuffle=True)",
        "DataLoader(data, 16, num_workers=2, drop_last=True)",
    ],
)
def test_digits(digits: Path, transform: str, loader: str) -> None:
    found = checked(
        f"data = datasets.MNIST('data', transform={transform})\nloader = {loader}", IMPORTS
    )
    assert "DataLoader(TensorDataset(*as_tensors(data))," in found.text.replace("(\n    ", "(")


def test_digits_split_at_random(digits: Path) -> None:
    setup = f"data = datasets.MNIST('data', transform={COMPOSED})\nfirst, rest = random_split(data, [30, 10])\nloader = DataLoader(first, batch_size=8, shuffle=True)"
    assert checked(setup, IMPORTS).fixes


def test_arguments_in_dicts_stay_where_they_are(digits: Path) -> None:
    setup = f"options = {{'batch_size': 8}}\noptions.update({{'shuffle': True}})\nloader = DataLoader(datasets.MNIST('data', transform={COMPOSED}), **options)"
    assert checked(setup, IMPORTS).fixes


def test_colour_images() -> None:
    torchvision = pytest.importorskip("torchvision")
    import numpy as np

    transform = "transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))])"
    text = apply(
        RULE,
        script(
            "DataLoader(datasets.CIFAR10('d', transform=t), batch_size=4)",
            dataset=IMPORTS,
            more=f"t = {transform}",
        ),
    ).text
    scope: dict[str, Any] = {"torch": torch, "TensorDataset": torch.utils.data.TensorDataset}
    exec(text[text.index("def as_tensors") : text.index("\n\n\n", text.index("def as_t"))], scope)
    cls = torchvision.datasets.CIFAR10
    data = cls.__new__(cls)
    data.data = np.random.RandomState(0).randint(0, 256, (30, 32, 32, 3), dtype=np.uint8)
    data.targets, data.target_transform = list(range(30)), None
    data.transform = eval(transform, {"transforms": torchvision.transforms})
    batches = []
    for one in (data, torch.utils.data.TensorDataset(*scope["as_tensors"](data))):
        torch.manual_seed(0)
        batches.append(
            [
                b
                for workers in (0, 2)
                for b in torch.utils.data.DataLoader(
                    one, batch_size=8, shuffle=True, num_workers=workers
                )
            ]
        )
    same(*batches)


def plain(
    transform: str = COMPOSED,
    more: str = "",
    loader: str = "DataLoader(data, batch_size=8)",
    **given: str,
) -> str:
    return script(
        loader,
        dataset=given.pop("imports", IMPORTS),
        more=f"data = datasets.MNIST('data', transform={transform})\n{more}".strip(),
        **given,
    )  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        plain("transforms.Compose([transforms.RandomCrop(28, 2), transforms.ToTensor()])"),
        plain("transforms.Compose([transforms.Resize(32), transforms.ToTensor()])"),
        plain("transforms.Compose([transforms.ToTensor(), lambda x: x])"),
        plain("None"),
        plain(f"{COMPOSED}, target_transform=lambda y: y"),
        plain(more="data.targets = data.targets % 2"),
        plain(loader="DataLoader(data, batch_size=8, collate_fn=list)"),
        plain(more="data.targets[0] = 3"),
        plain().replace("    for epoch", "    print(loader.dataset.classes)\n    for epoch"),
        plain(more="torch.set_default_dtype(torch.float64)"),
        plain().replace("for epoch in range(3):", "if True:"),
        plain(imports=IMPORTS, loader="DataLoader(torch.utils.data.ConcatDataset([data, data]), batch_size=8)"),
    ],
)  # fmt: skip
def test_other_images_are_left_alone(text: str) -> None:
    assert not apply(RULE, text).fixes


def test_one_function_for_all_images_of_a_script() -> None:
    """A set with other transforms than the one that is trained on stays, also the second time."""
    more = "test = datasets.MNIST('data', train=False, transform=transforms.ToTensor())"
    text = plain(more=f"{more}\nother = DataLoader(test, batch_size=8)").replace(
        "        for x, y in loader:",
        "        for x, y in other:\n            model(x)\n        for x, y in loader:",
    )
    done = apply(RULE, text)
    assert "as_tensors(data)" in done.text and "DataLoader(test, " in done.text
    again = apply(RULE, done.text)
    assert not again.fixes and "DataLoader(test, " in again.text


def test_bytes_do_not_become_floats_twice() -> None:
    """The images that are made into tensors at once are not to be scaled on the device as well."""
    found = apply(f"{RULE} uint8-transfer", plain("transforms.ToTensor()"))
    assert "as_tensors(data)" in found.text and found.text.count("255") == 1
    assert "see batched-dataset" in found.refusals


def test_what_is_made_at_once_is_what_the_step_sees(digits: Path) -> None:
    text = plain("transforms.ToTensor()", more="losses, seen = [], []")
    text = text.replace("loss = (model(x)", "x = x.flatten(1)[:, :4]; loss = (model(x)").replace(
        "loss.backward()", "seen.append(x); losses.append(loss.item()); loss.backward()"
    )
    text = text.replace("def main():\n", "").replace("\n    ", "\n")
    text = text[: text.index('if __name__ == "__main__"')]
    found = apply(f"{RULE} uint8-transfer", text)
    assert "as_tensors(data)" in found.text and found.text.count("255") == 1
    assert "see batched-dataset" in found.refusals
    assert (
        "/ 255" in apply("uint8-transfer", text.replace("datasets.MNIST", "datasets.EMNIST")).text
    )
    torch.manual_seed(0)
    one = run(text)["seen"]
    same(one, run(found.text)["seen"])


def test_workers_are_not_added_where_batches_are_made_at_once() -> None:
    assert "whole batches at once" in apply("num-workers", plain()).refusals
    assert "read out of memory" in apply("num-workers", apply(RULE, plain()).text).refusals


@pytest.mark.parametrize("other", ["num-workers", "pin-memory", "persistent-workers"])
def test_the_order_of_rules_does_not_matter(other: str) -> None:
    text = plain(loader="DataLoader(data, batch_size=8, num_workers=1)")
    one, two = apply(other, apply(RULE, text).text).text, apply(RULE, apply(other, text).text).text
    assert sorted(map(ast.dump, ast.parse(one).body)) == sorted(
        map(ast.dump, ast.parse(two).body)
    )  # helpers may stand in another order


# ------------------------------------------------------------- tensors that would have to be copied
LOADED = "\nloader = DataLoader(data, batch_size=8, shuffle=True)"


@pytest.mark.parametrize(
    ("setup", "why"),
    [
        (
            "x = torch.randn(4, 30).t()\ndata = TensorDataset(x)" + LOADED + "\nx.mul_(2)",
            "may write to it",
        ),
        (
            "x = torch.randn(4, 30).t()\ndata = TensorDataset(x)" + LOADED + "\nx -= x.mean(0)",
            "may write to it",
        ),
        (
            "x = torch.randn(4, 30).t()\ndata = TensorDataset(x)" + LOADED + "\nx[:10] = 0",
            "may write to it",
        ),
        (
            "x = torch.randn(4, 30)\ndata = TensorDataset(x.t())" + LOADED + "\nx[:, :10] = 0",
            "may write to it",
        ),
        (
            "x = torch.randn(4, 30)\ny = x.t()\ndata = TensorDataset(y)"
            + LOADED
            + "\ntorch.nn.init.zeros_(x)",
            "may write to it",
        ),
        (
            "x = torch.randn(4, 30).t()\ndata = TensorDataset(x)" + LOADED + "\nf = x.mul_\nf(2)",
            "may write to it",
        ),
        (
            "x = torch.randn(4, 30).t()\ndata = TensorDataset(x)"
            + LOADED
            + '\ngetattr(x, "mul_")(2)',
            "may write to it",
        ),
        (
            "x = torch.randn(4, 30).t()\ndata = TensorDataset(x)"
            + LOADED
            + "\ntorch.Tensor.mul_(x, 2)",
            "may write to it",
        ),
        (
            "x = torch.randn(4, 30).t()\ndata = TensorDataset(x)"
            + LOADED
            + "\ntorch.neg(x, out=x)",
            "may write to it",
        ),
        (
            "x = torch.randn(4, 30).t()\ndata = TensorDataset(x)"
            + LOADED
            + "\nx.data = torch.zeros(30, 4)",
            "may write to it",
        ),
        (
            "x = torch.randn(4, 30).t()\ndata = TensorDataset(x)"
            + LOADED
            + "\nfor row in x:\n    row.zero_()",
            "may write to it",
        ),
        (
            "x = torch.randn(4, 30).t()\ndata = TensorDataset(x)"
            + LOADED
            + "\nlist(map(lambda row: row.zero_(), x))",
            "may write to it",
        ),
        (
            "x = torch.randn(4, 30).t()\ndata = TensorDataset(x)"
            + LOADED
            + "\nnn.ReLU(inplace=True)(x)",
            "may write to it",
        ),
        (
            "import numpy as np\na = np.ones((4, 30), 'f').T\nx = torch.from_numpy(a)\ndata = TensorDataset(x)"
            + LOADED
            + "\na[3] = 7",
            "may write to it",
        ),
        (
            "import numpy as np\na = np.ones((4, 30), 'f').T\nx = torch.from_numpy(a)\ndata = TensorDataset(x)"
            + LOADED
            + "\na -= 7",
            "may write to it",
        ),
        (
            "w = nn.Parameter(torch.randn(4, 30).t())\ndata = TensorDataset(w)" + LOADED,
            "is a parameter",
        ),
        (
            "w = torch.randn(4, 30).t().requires_grad_()\ndata = TensorDataset(w)" + LOADED,
            "may need a gradient",
        ),
        (
            "w = nn.Linear(30, 4).weight\nx = w.data.t()\ndata = TensorDataset(x)" + LOADED,
            "may be a view of a parameter",
        ),
    ],
)
def test_what_is_written_later_is_not_copied(setup: str, why: str) -> None:
    found = checked(setup)
    assert not found.fixes and why in found.refusals


TURNED = "import numpy as np\na = np.ones((4, 30), 'f').T\nx = torch.from_numpy(a)\ndata = TensorDataset(x)"
STATE = "w = torch.ones(2)\nstate = w.new({})\nstate.zero_()"


@pytest.mark.parametrize(
    "later",
    [
        "line = str(len(loader))\nline += ' of ' + str(len(loader))",
        "line = str(len(loader))\nline += f'{len(loader)}'",
        "line = str(len(loader))\nline += '%d' % len(loader) + ', '.join('ab')",
        "total = torch.zeros(3)\ntotal += 1\ntotal /= 2",
        "total = np.zeros(3)\nfor _ in range(2):\n    total += np.ones(3)\ntotal /= 2",
        STATE.format("3, 2"),
    ],
)
def test_writes_to_what_is_no_tensor_or_made_later(later: str) -> None:
    assert "contiguous()" in checked(TURNED + LOADED + "\n" + later).text


AGAIN = """held = torch.randn(4, 30).t()
for turn in range(2):
    if turn:
        data = TensorDataset(held)
        loader = DataLoader(data, batch_size=8)
        made += 1
    else:
        made = torch.ones(4, 30)
        held = made.t()"""


@pytest.mark.parametrize(
    "setup",
    [
        TURNED + LOADED + "\ntotal = x\ntotal += 1\ntotal += 1",
        TURNED + LOADED + "\ntotal = torch.zeros(30, 4) if epochs == 2 else x\ntotal += 1",
        TURNED + LOADED + "\n" + STATE.replace("torch.ones(2)", "x").format("x"),
        AGAIN,
    ],
)
def test_writes_that_only_look_as_if_made_later(setup: str) -> None:
    found = checked("epochs = 3\n" + setup)
    assert not found.fixes and "may write to it" in found.refusals


def test_a_write_in_a_function_that_runs_later_counts() -> None:
    dataset = "def spoil(t):\n    t.mul_(2)\n\ndef make():\n    x = torch.randn(4, 30).t()\n    data = TensorDataset(x)\n    return x, DataLoader(data, batch_size=8)\n"
    found = checked("x, loader = make()\nspoil(x)", dataset)
    assert not found.fixes and "may write to it" in found.refusals


@pytest.mark.parametrize(
    "body",
    [
        "rows.mul_(2)",
        "global rows\n    rows *= 2",
        "mine = rows\n    mine.mul_(2)",
        "mine = given()\n    mine.mul_(2)",
    ],
)
def test_a_function_that_writes_to_what_the_module_has(body: str) -> None:
    dataset = f"rows = torch.arange(120.0).view(4, 30).t()\n\ndef given():\n    return rows\n\ndef spoil():\n    {body}\n"
    found = checked("data = TensorDataset(rows)" + LOADED + "\nspoil()", dataset)
    assert not found.fixes and "may write to it" in found.refusals
    mine = dataset.replace(body, "mine = torch.randn(4, 30)\n    mine.mul_(2)")
    assert "contiguous()" in checked("data = TensorDataset(rows)" + LOADED + "\nspoil()", mine).text


def test_writes_before_the_copy_and_to_other_tensors_do_not_count() -> None:
    dataset = "def load():\n    x = torch.randn(4, 30)\n    x -= x.mean()\n    return x.t()\n"
    found = checked(
        "x = load()\nx /= x.std()\ndata = TensorDataset(x)\ntotal = x[:1]\ntotal += 1" + LOADED,
        dataset,
    )
    assert not found.fixes
    found = checked(
        "x = load()\nx /= x.std()\ndata = TensorDataset(x)\ntotal = 0\ntotal += 1" + LOADED, dataset
    )
    assert "TensorDataset(x.contiguous())" in found.text


ARRAYS = """
import numpy as np

def table(seed):
    rows = np.zeros((4, 30), dtype=np.float32)
    rows[:] = np.random.RandomState(seed).rand(4, 30)
    return rows.T

def spoilt(arr):
    rows = arr{copy}
    rows[3] = 7
    return rows

def rows(arr):
    data = TensorDataset(torch.from_numpy(arr))
    return DataLoader(data, batch_size=8)

"""


def test_arrays_that_another_function_makes_for_itself() -> None:
    """A function that is not running when the rows are copied writes to arrays of its own alone."""
    text = ARRAYS.replace("{copy}", ".copy()")
    setup = "loader = rows(table(1))\nother = table(2)\nspoilt(other)"
    assert "contiguous()" in checked(setup, text).text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("arr.copy()", "arr"),
        ("arr.copy()", "arr.T"),
        ("arr.copy()", "np.asarray(arr)"),
        ("rows = arr.copy()\n    rows[3] = 7", "rows = [arr].copy()\n    rows[0] += 1.0"),
        ("rows = arr.copy()\n    rows[3] = 7", "rows = [arr].copy()\n    rows[0][3] = 1"),
    ],
)
def test_arrays_that_may_be_those_of_the_rows(old: str, new: str) -> None:
    text = ARRAYS.replace("{copy}", ".copy()")
    assert old in text
    setup = "arr = table(1)\nloader = rows(arr)\nspoilt(arr)"
    found = checked(setup, text.replace(old, new))
    assert not found.fixes and "may write to it" in found.refusals


def test_a_function_that_is_still_running_may_write_later() -> None:
    text = """
import numpy as np

def rows(arr):
    data = TensorDataset(torch.from_numpy(arr))
    return DataLoader(data, batch_size=8)

def load():
    arr = np.ones((4, 30), dtype=np.float32)
    loader = rows(arr.T)
    arr[:] = 2
    return loader

"""
    found = checked("loader = load()", text)
    assert not found.fixes and "may write to it" in found.refusals


def test_options_are_no_arrays() -> None:
    """`seed += 1` of an option writes to nothing that a tensor could hold."""
    text = """
import argparse
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=1)

def seeded(seed):
    seed += 1
    torch.manual_seed(seed)

def rows(arr):
    data = TensorDataset(torch.from_numpy(arr))
    return DataLoader(data, batch_size=8)

"""
    setup = (
        "args = parser.parse_args([])\nloader = rows(np.ones((4, 30), 'f').T)\nseeded(args.seed)"
    )
    assert "contiguous()" in checked(setup, text).text
    other = text.replace("type=int", "type=lambda t: np.ones(3)").replace(
        "default=1", "default='1'"
    )
    found = checked(setup, other.replace("torch.manual_seed(seed)", "torch.manual_seed(1)"))
    assert not found.fixes and "may write to it" in found.refusals


def test_loops_below_the_write_do_not_bring_it_back() -> None:
    text = """
import numpy as np

def rows(arr):
    for _ in range(2):
        data = TensorDataset(torch.from_numpy(arr))
    return DataLoader(data, batch_size=8)

"""
    setup = "arr = np.ones((4, 30), dtype=np.float32)\narr[1] = 3\nloader = rows(arr.T)"
    assert "contiguous()" in checked(setup, text).text
    again = "for _ in range(2):\n    arr[1] = 3\n    loader = rows(arr.T)"
    found = checked("arr = np.ones((4, 30), dtype=np.float32)\n" + again, text)
    assert not found.fixes and "may write to it" in found.refusals


def test_contiguous_tensors_get_no_copy_though_they_are_changed() -> None:
    setup = (
        "a = torch.zeros(30, 4)\nw = nn.Parameter(torch.randn(30, 4))\ndata = TensorDataset(a, w)"
        + LOADED
        + "\na += 1\na[3] = 2"
    )
    found = checked(setup)
    assert found.fixes and "contiguous" not in found.text


def test_sums_that_are_counted_from_zero_write_to_nothing_else() -> None:
    """Arrays of NumPy share their memory here: `count += ...` might be one of them, if it were not
    for the zero.
    """
    helper = "def count(loader):\n    found = 0\n    for a, b in loader:\n        found += {}\n    return found / 2\n\n"
    tensors = "a = np.asfortranarray(np.arange(120.0).reshape(30, 4))\ndata = TensorDataset(torch.from_numpy(a), torch.arange(30))\n"
    use = "loader = DataLoader(data, batch_size=8)\ncount(loader)"
    head = "import numpy as np\n"
    for added in ("(a > 0).sum().item()", "np.mean(a.numpy())", "len(b)"):
        assert checked(tensors + use, head + helper.format(added)).fixes
    own = helper.replace("found = 0", "found = np.zeros(30)")
    assert checked(tensors + use, head + own.format("np.mean(a.numpy())")).fixes
    begun = helper.replace("found = 0", "found = loader.dataset.tensors[0].numpy()")
    other = checked(tensors + use, head + begun.format("np.mean(a.numpy())"))
    assert not other.fixes and "may write to it" in other.refusals
    kept = helper.replace("return found", "return torch.from_numpy(found)").format("a.numpy()[:1]")
    assert "may write to it" in checked(tensors + use, head + kept).refusals


GIVEN = """
class Rows(Dataset):
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]

"""


@pytest.mark.parametrize(
    ("x", "copied"),
    [
        ("torch.FloatTensor(rows)", False),
        ("torch.Tensor(rows).float()", False),
        ("torch.FloatTensor(rows).t().reshape(30, 4)", True),
        ("torch.FloatTensor([r[::-1] for r in rows]).t().t()", True),
    ],
)
def test_tensors_that_a_constructor_is_given(x: str, copied: bool) -> None:
    """Tensors of lists are in order; that something else writes in place is then no matter."""
    setup = "rows = [[float(i + k) for k in range(4)] for i in range(30)]\n"
    setup += "rows[0][1] = 3.0\n" if not copied else ""
    setup += f"data = Rows({x}, y=torch.arange(30))" + LOADED
    found = checked(setup, GIVEN.replace("self.x, self.y = x, y", "self.x = x\n        self.y = y"))
    assert found.fixes and ("contiguous()" in found.text) is copied


PROCESSES = """
import torch
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

def train(rank, data, given, out):
    torch.manual_seed(rank)
    loader = DataLoader(data, **given)
    model = nn.Linear(784, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    {before}
    for epoch in range(2):
        for x, y in loader:
            loss = model(x.flatten(1)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            out.append(loss.item())

if __name__ == "__main__":
    data = datasets.MNIST("data", transform=transforms.ToTensor())
    losses = []
    for rank in range(2):
        {start}
"""
START = "p = mp.Process(target=train, args=(rank, data, {'batch_size': 16, 'shuffle': True}, losses))\n        p.start(); p.join()"
CALL = "train(rank, data, {'batch_size': 16, 'shuffle': True}, losses)"


class Digits(torch.utils.data.Dataset):
    """In the place of torchvision's."""

    def __init__(self, root: str, transform: Any) -> None:
        made = torch.Generator().manual_seed(0)
        self.data = torch.randint(0, 256, (40, 28, 28), generator=made, dtype=torch.uint8)
        self.targets, self.transform = torch.arange(40) % 10, transform

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.transform(self.data[index]), int(self.targets[index])


def test_each_process_has_its_own_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that starts processes makes none of them make its images again."""
    parts = {
        "datasets": types.SimpleNamespace(MNIST=Digits),
        "transforms": types.SimpleNamespace(ToTensor=lambda: lambda x: x[None].float() / 255),
    }
    monkeypatch.setitem(sys.modules, "torchvision", types.SimpleNamespace(**parts))  # type: ignore[arg-type]
    text = PROCESSES.format(start=START, before="pass")
    found = apply(RULE, text)
    assert "DataLoader(TensorDataset(*as_tensors(data)), **given)" in found.text
    runs = [run(t.replace(START, CALL))["losses"] for t in (text, found.text)]
    assert runs[0] == runs[1] and len(runs[0]) == 12
    # A loop in the process, or without processes, would make them again and again.
    assert not apply(RULE, PROCESSES.format(start=CALL, before="pass")).fixes
    anew = PROCESSES.format(start=START, before="pass").replace(
        "    for epoch in range(2):\n", "    for epoch in range(2):\n        loader = DataLoader(data, **given)\n"
    )
    assert not apply(RULE, anew).fixes


ANOTHER = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--data", default="rows")
args = parser.parse_args([])
"""


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ("library.data(args.data)", "what library.data() returns"),
        ("Files()", "in other runs it has another data set: Files"),
    ],
)
def test_items_that_are_at_hand_in_some_runs_alone(other: str, reason: str) -> None:
    setup = f"""if args.data == "rows":
    data = TensorDataset(torch.randn(30, 4), torch.randn(30))
else:
    data = {other}"""
    text = script("DataLoader(data, batch_size=8)", dataset="import library\n" + FILES + ANOTHER, more=setup)
    for rule in (RULE, "gpu-data"):
        found = apply(rule, text)
        assert reason in found.refusals and not found.fixes
        assert found.refusals.count("in other runs") == 1
    plain = text.replace(f"data = {other}", "data = TensorDataset(torch.randn(9, 4), torch.randn(9))")
    assert "in other runs" not in apply(RULE, plain).refusals
