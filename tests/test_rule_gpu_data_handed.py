"""gpu-data for arrays that the data set is given: by functions, in folds, as items that are dicts
or single tensors.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from autofast.commands.rewriting import rewrite
from autofast.config import Config
from tests.onerule import apply, run, same_runs
from tests.test_names import notebook
from tests.test_rule_gpu_data import HEAD, PLAIN, RULE, text_of

torch = pytest.importorskip("torch")

ROWS = """
class Rows(Dataset):
    def __init__(self, features, targets):
        self.features = features
        self.targets = targets

    def __len__(self):
        return self.features.shape[0]

    def __getitem__(self, idx):
{item}
"""
DICT = """
        item = {
            'x': torch.tensor(self.features[idx, :], dtype=torch.float),
            'y': torch.tensor(self.targets[idx], dtype=torch.long),
        }
        return item
"""
SINGLE = """
        return torch.tensor(self.features[idx], dtype=torch.float)
"""
TRAIN = """
def simulate(n):
    rng = numpy.random.RandomState(0)
    x = rng.randn(n, 4)
    return x, (x.sum(1) > 0).astype(numpy.int64)


def scaled(x):
    return numpy.concatenate([(x - x.mean(axis=0)) / x.std(axis=0), numpy.ones((len(x), 1))], axis=1)


def train(model, loader, optimizer, device):
    for batch in loader:
        {step}
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        seen.append((x, torch.rand(1)))
        losses.append(loss.item())


def fold(number, features, targets):
    torch.manual_seed(number)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rest = numpy.arange(len(features)) % 3 != number
    loader = DataLoader(Rows(features[rest], targets[rest]), batch_size=8, shuffle=True)
    model = nn.Linear(5, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        train(model, loader, optimizer, device)


seen, losses = [], []
x, y = simulate(40)
features = scaled(x)
{run}
"""
OF_DICT = "x, y = batch['x'].to(device), batch['y'].to(device)"
OF_TENSOR = "x = batch.to(device)"
FOLDS = "for number in range(2):\n    fold(number, features, y)"


def script(item: str, step: str, run: str = FOLDS) -> str:
    return HEAD + ROWS.replace("{item}", item.strip("\n")) + TRAIN.format(step=step, run=run)


@pytest.mark.parametrize(("item", "step"), [(DICT, OF_DICT), (SINGLE, OF_TENSOR)])
def test_what_functions_make_and_hand_on(item: str, step: str) -> None:
    """Arrays of a function's results, by way of parameters: the same batches to the last bit."""
    text = script(item, step)
    found = apply(RULE, text)
    assert [f.rule for f in found.fixes] == [RULE], found.refusals
    assert "collate_fn=" in found.text and "def batch(self, arrays):" in found.text
    same_runs(text, found.text)


@pytest.mark.parametrize(
    "run",
    [
        FOLDS.replace("features, y)", "features.tolist() if number else features, y)"),
        FOLDS.replace("features, y)", "open('x').read(), y)"),
        f"{FOLDS}\nglobals()['fold'](2, [[1.0] * 5], [1])",
    ],
    ids=["a list in one call", "no array", "a call that is not seen"],
)
def test_what_may_be_handed_another_way(run: str) -> None:
    found = apply(RULE, script(DICT, OF_DICT, run))
    assert not found.fixes, found.text


def test_a_function_that_returns_two_kinds() -> None:
    two = "\n\ndef scaled(x):\n    if len(x) < 3:\n        return 0\n"
    text = script(DICT, OF_DICT).replace("\n\ndef scaled(x):\n", two)
    assert "is not known to be one array" in apply(RULE, text).refusals


def test_a_dict_of_what_is_changed_later() -> None:
    changed = """
        x = torch.tensor(self.features[idx, :], dtype=torch.float)
        item = {'x': x, 'y': torch.tensor(self.targets[idx], dtype=torch.long)}
        x = x + 1
        return item
"""
    found = apply(RULE, script(changed, OF_DICT))
    assert not found.fixes and "has no form for batches" in found.refusals


def test_constants_that_a_draw_chooses() -> None:
    """A draw may decide between rows, not between arrays of the module."""
    chosen = """
        x, mean = torch.tensor(self.features[idx], dtype=torch.float), MEAN
        if random.random() < 0.5:
            mean = OTHER
        return x - mean
"""
    head = "MEAN = torch.tensor([0.5, 0.5, 0.4, 0.4, 0.3])\n"
    head += "OTHER = torch.tensor([0.1, 0.1, 0.2, 0.2, 0.3])\n"
    text = script(chosen, OF_TENSOR).replace("class Rows", f"{head}\nclass Rows")
    found = apply(RULE, text)
    assert not found.fixes and "`mean` is something else by chance" in found.refusals


def test_cells_that_are_run_again(tmp_path: Path) -> None:
    """What a function of a notebook keeps on the device goes with it; what a cell keeps stays."""
    text = script(DICT, OF_DICT)
    start, end = text.index("def fold"), text.index("seen, losses")
    assert "def batch(self" in rewritten(tmp_path, text[:start], text[start:end], text[end:])
    head = text[end:].replace(FOLDS, "number, targets = 1, y")
    inside = textwrap.dedent(text[text.index("    torch.manual_seed(number)") : end])
    assert "def batch(self" not in rewritten(tmp_path, text[:start] + head, inside)


def rewritten(folder: Path, *cells: str) -> str:
    path = folder / "n.ipynb"
    path.write_text(notebook(*cells))
    done = rewrite(path, folder, Config(select=(RULE,)))
    return "".join(done.bytes_of(source).decode() for source in done.texts)


WRITES = [
    "features += 1", "features[0] = 1", "jitter(features)", "view = features.view(); view *= 2",
    "kept = [features]; kept[0] *= 2", "kept = dict(a=features); kept['a'] -= 1",
    "for row in features: row *= 2", "list(map(jitter, [features]))", "train.rows = features; train.rows *= 2",
    "numpy.clip(features, 0, 1, features)", "numpy.negative(features, features)", "exec('features *= 2')",
    "features.clip(0, 1, features)", "features.cumsum(0, None, features)", "features.round(1, features)",
    "numpy.cumsum(features, 0, None, features)", "numpy.tanh(features, features)", "numpy.nan_to_num(features, copy=False)",
    "numpy.ndarray.__setitem__(features, 0, 1)", "numpy.ndarray.__imul__(features, 2)", "numpy.ndarray.sort(features)",
    "features.take([0, 1], 0, features[:2])", "features.setfield(3, numpy.float64)", "features.flat[3] = 1", "torch.from_numpy(features).mul_(2)",
]  # fmt: skip
OTHERS = ["other = numpy.empty_like(features); features.clip(0, 1, other)",
    "total = 0; total += 1", "found = numpy.zeros(4); found[0] += 1", "seen = {'a': 0}; seen['a'] += 3"]  # fmt: skip
JITTER = """
def jitter(rows):
    rows += 1


def simulate"""


@pytest.mark.parametrize("write", [*WRITES, *OTHERS])
def test_arrays_that_something_else_writes_to(write: str) -> None:
    """What the data set was given is still known by other names: in each epoch one of them is used
    to change it, or something else.
    """
    text = script(DICT, OF_DICT).replace("features[rest], targets[rest]", "features, targets")
    text = text.replace("\n        train(model", f"\n        {write}\n        train(model")
    if "jitter" in write:
        text = text.replace("\ndef simulate", JITTER)
    found = apply(RULE, text)
    if write in OTHERS:
        assert found.fixes, found.refusals
        same_runs(text, found.text)
    else:
        assert not found.fixes
        assert "may write to it" in found.refusals or "of which items are made" in found.refusals


@pytest.mark.parametrize(
    "change",
    [
        "dataset.__dict__.update(features=dataset.features * 2)",
        "dataset.__dict__['features'] = dataset.features * 2",
        "vars(dataset).update(features=dataset.features * 2)",
        "dataset.__dict__ = dict(dataset.__dict__, features=2 * dataset.features)",
        "setattr(dataset, 'features', dataset.features * 2)",
        "object.__setattr__(dataset, 'features', dataset.features * 2)",
    ],
)
def test_a_data_set_that_gets_other_arrays(change: str) -> None:
    """Each epoch takes other items than the one before."""
    text = script(DICT, OF_DICT).replace("Rows(features[rest], targets[rest])", "dataset")
    text = text.replace(
        "    loader =", "    dataset = Rows(features[rest], targets[rest])\n    loader ="
    )
    assert apply(RULE, text).fixes
    text = text.replace("\n        train(model", f"\n        {change}\n        train(model")
    run(text)
    found = apply(RULE, text)
    assert not found.fixes, found.text


OWN = """
class Own(Dataset):
    def __init__(self):
        self.a = numpy.random.randn(30, 4)
        self.b = numpy.zeros(30)

    def __len__(self):
        return len(self.a)

    def __getitem__(self, idx):
        return torch.from_numpy(self.a[idx]), torch.tensor(self.b[idx])


"""


@pytest.mark.parametrize(
    ("hand", "writes"),
    [
        ("row = data[0][0]; row[0] = 1", True),
        ("row, _ = data[3]; row.mul_(2)", True),
        ("data[0][0].mul_(2)", True),
        ("for row, _ in data: row.mul_(2)", True),
        ("row = next(iter(data))[0]; row += 1", True),
        ("[row.zero_() for row, _ in data]", True),
        ("print(data[0][0].shape, len(data))", False),
        ("row = data[0][0].clone(); row += 1", False),
        ("row = 2 * data[0][0]; row += 1", False),
    ],
)
def test_items_that_are_taken_by_hand(hand: str, writes: bool) -> None:
    """They may be views of the arrays, which are written to through them."""
    text = text_of(f"data = Own()\n{PLAIN}", OWN)
    text = text.replace("torch.manual_seed(0)", "torch.manual_seed(0)\n    numpy.random.seed(0)")
    text = text.replace("            seen", f"            {hand}\n            seen")
    found = apply(RULE, text)
    if writes:
        run(text)
        assert not found.fixes and "may write to it" in found.refusals, found.text
    else:
        assert found.fixes, found.refusals
        same_runs(text, found.text)


COUNTS = [
    "len(self.features) - 10", "len(self.features) // 2", "20", "min(len(self.features), 16)", "self.features.shape[1]",
    "self.n", "len(self.features[:20])", "min(len(self.features), len(self.targets))",
]  # fmt: skip


@pytest.mark.parametrize("length", COUNTS)
def test_fewer_items_than_rows(length: str) -> None:
    text = script(DICT, OF_DICT).replace("self.features.shape[0]", length)
    text = text.replace("self.targets = targets", "self.targets = targets\n        self.n = 20")
    found = apply(RULE, text)
    assert "[: len(dataset)]" in found.text, found.refusals
    same_runs(text, found.text)


@pytest.mark.parametrize(
    ("length", "more"),
    [
        ("len(self.features) if self.features.any() else 3", ""),
        ("COUNT", ""),
        ("random.randint(3, 9)", ""),
        ("self.most(3)", ""),
        ("self.n", "\n        loader.dataset.n += 1"),
    ],
)
def test_counts_that_may_change(length: str, more: str) -> None:
    """Between epochs, too: the loader asks for it each time."""
    text = script(DICT, OF_DICT).replace("self.features.shape[0]", length)
    text = text.replace("self.targets = targets", "self.targets = targets\n        self.n = 20")
    text = text.replace("optimizer, device)\n\n", f"optimizer, device){more}\n\n").replace(
        "class Rows", "COUNT = 20\n\n\nclass Rows"
    )
    found = apply(RULE, text)
    assert not found.fixes, found.text
    assert "may have another number of items later" in found.refusals or more, found.refusals


@pytest.mark.parametrize(
    "wrapped", ["dataset", "Subset(dataset, range(20))", "random_split(dataset, [20, len(dataset) - 20])[0]"]
)  # fmt: skip
@pytest.mark.parametrize(
    "change",
    ["dataset.features = 2 * dataset.features", "dataset.rescale()", "for d in [dataset]: d.targets = 1 - d.targets"],
)  # fmt: skip
def test_data_sets_below_a_part_that_change(wrapped: str, change: str) -> None:
    """The loader has a part of the data set, which gets other arrays in each epoch."""
    text = script(DICT, OF_DICT).replace("Rows(features[rest], targets[rest])", wrapped)
    text = text.replace(
        "    loader =", "    dataset = Rows(features[rest], targets[rest])\n    loader ="
    )
    text = text.replace(
        "class Rows", "from torch.utils.data import Subset, random_split\n\n\nclass Rows"
    )
    found = apply(RULE, text)
    assert found.fixes, found.refusals
    text = text.replace("\n        train(model", f"\n        {change}\n        train(model")
    method = "    def rescale(self):\n        self.features = 2 * self.features\n\n    def __len__"
    text = text.replace("    def __len__", method) if "rescale" in change else text
    run(text)
    found = apply(RULE, text)
    assert not found.fixes and "of which items are made" in found.refusals, found.text


@pytest.mark.parametrize(
    ("length", "change"),
    [
        ("self.n", "dataset.n = 12"),
        ("self.n", "dataset.n = min(26, dataset.n + 3)"),
        ("self.n", "for d in [dataset]: d.n = 12"),
        ("self.n if self.small else len(self.features)", "dataset.small = False"),
    ],
)
def test_counts_that_are_set_later(length: str, change: str) -> None:
    """What `__len__` alone reads makes other batches, too."""
    text = script(DICT, OF_DICT).replace("self.features.shape[0]", length)
    fields = "self.targets = targets\n        self.n = 20\n        self.small = True"
    text = text.replace("self.targets = targets", fields)
    text = text.replace("Rows(features[rest], targets[rest])", "dataset")
    text = text.replace(
        "    loader =", "    dataset = Rows(features[rest], targets[rest])\n    loader ="
    )
    assert apply(RULE, text).fixes
    text = text.replace("\n        train(model", f"\n        {change}\n        train(model")
    run(text)
    found = apply(RULE, text)
    assert not found.fixes and "of which items are made" in found.refusals, found.text


@pytest.mark.parametrize(
    ("targets", "cut"),
    [
        ("numpy.concatenate([targets, targets])", True),
        ("numpy.zeros(100)", True),
        ("targets[rest]", True),
        ("x[:, 0]", False),
        ("(x.sum(axis=1) > 0).astype(numpy.int64)", False),
        ("numpy.ones((60, 4))[:50].sum(1)", True),
        ("numpy.zeros(len(x))", False),
        ("numpy.random.randint(0, 2, len(x))", False),
        ("numpy.zeros((len(x) + 9, 2))[:, 0]", True),
        ("(x[:, 0] + x[:, 1] > 0.5).astype(int)", False),
        ("(x.mean(1) < .1).astype(numpy.int64)", False),
        ("numpy.zeros((len(x), 2)) @ numpy.zeros((2, 3))", True),
    ],
)
def test_arrays_of_unlike_length(targets: str, cut: bool) -> None:
    """A `TensorDataset` takes no array that is longer, as a data set of the project may."""
    text = script(DICT, OF_DICT, FOLDS.replace(", y)", ", x)" if "x" in targets else ", y)"))
    text = text.replace("features[rest], targets[rest]", f"x, {targets}").replace(
        "number, features, targets", "number, x, targets"
    )
    text = text.replace("fold(number, features, x)", "fold(number, x, y)").replace(
        "fold(number, features, y)", "fold(number, x, y)"
    )
    text = text.replace(
        "rest = numpy.arange(len(features)) % 3 != number",
        "rest = numpy.arange(len(x)).tolist() + [0]",
    ).replace("Linear(5", "Linear(4")
    found = apply(RULE, text)
    assert found.fixes, found.refusals
    assert ("[: len(" in found.text) == cut, found.lines
    same_runs(text, found.text)


def test_rows_of_tensors_that_are_counted_otherwise() -> None:
    tuple_of = "        return self.features[idx], self.targets[idx]"
    text = script(tuple_of, "x = batch[0].to(device)")
    for made in ("torch.randn(30, 5), torch.zeros(30)", "torch.randn(30, 5), torch.zeros(31)"):
        one = text.replace("Rows(features[rest], targets[rest])", f"Rows({made})")
        for length in ("self.features.shape[0]", "len(self.features) - 10"):
            two = one.replace("self.features.shape[0]", length)
            found = apply(RULE, two)
            cut = "- 10" in length or "31" in made
            assert ("for t in dataset[: len(dataset)]" in found.text) == cut, found.text
            same_runs(two, found.text)


@pytest.mark.parametrize(
    "more",
    ["Rows.__getitem__ = lambda self, i: {'x': torch.ones(5), 'y': 0}", "setattr(Rows, '__len__', lambda self: 9)"],
)  # fmt: skip
def test_methods_that_are_set_anew(more: str) -> None:
    text = script(DICT, OF_DICT).replace("\nseen, losses", f"\n{more}\nseen, losses")
    found = apply(RULE, text)
    assert not found.fixes and "may give Rows another method" in found.refusals


@pytest.mark.parametrize(
    "label",
    ["torch.tensor(float(self.targets[idx]))", "torch.as_tensor(float(self.targets[idx]))",
     "torch.tensor([float(self.targets[idx])])", "float(self.targets[idx])"],
)  # fmt: skip
def test_floats_of_python(label: str) -> None:
    """torch.tensor() makes float32 of them, collating makes float64."""
    item = DICT.replace("torch.tensor(self.targets[idx], dtype=torch.long)", label)
    text = script(item, OF_DICT).replace("seen.append((x,", "seen.append((x, y,")
    found = apply(RULE, text)
    assert found.fixes, found.refusals
    same_runs(text, found.text)


ONE_ARRAY = """
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
rows = np.zeros((64, 4), dtype=np.float32)
seen = torch.from_numpy(rows)
arrays = dict(zip(["rows"], [rows]))


def pick(name):
    return [v for k, v in arrays.items() if k == name][0]


loader = DataLoader(TensorDataset(torch.from_numpy(pick("rows")), torch.randn(64, 2)), batch_size=16)
model = nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    seen[epoch] = 5.0
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        loss = (model(x) - y).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_an_array_that_is_not_followed_may_be_one_that_is_known() -> None:
    assert not apply(RULE, ONE_ARRAY).fixes
