"""cache-constant: small items that come out the same in every epoch are remembered."""

from __future__ import annotations

import pytest

from tests.onerule import Applied, apply, run

HEAD = """
import functools
import operator
import random
import torch
from collections import ChainMap
from torch.utils.data import DataLoader, Dataset, SequentialSampler, Subset

torch.manual_seed(0)
random.seed(0)
KINDS = ["one", "two", "three"]
"""
TRAIN = """
loader = DataLoader(data, batch_size=4, shuffle=True)
model = torch.nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses, seen = [], []
for epoch in range(3):
    with torch.inference_mode():
        for x, y in DataLoader(data, batch_size=4):
            seen.append((x.sum().item(), str(x.dtype)))
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
"""
WORDS = """
class Words(Dataset):
    def __init__(self, texts, most):
        self.texts = texts
        self.most = most

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        text = self.texts[index].split()
        ids = torch.zeros(self.most)
        for k, word in enumerate(text[: self.most]):
            ids[k] = KINDS.index(word) + 1
        return ids, KINDS.index(text[0])

data = Words([" ".join(random.choices(KINDS, k=random.randint(2, 5))) for _ in range(16)], 4)
"""
GRAPHS = """
class Graphs(Dataset):
    def __init__(self, graphs):
        self.graphs = graphs

    def __len__(self):
        return len(self.graphs)

    def __getitem__(self, index):
        g = self.graphs[index]
        x = torch.zeros(len(g["atoms"]), len(KINDS) + 1)
        for k, atom in enumerate(g["atoms"]):
            x[k, KINDS.index(atom)] = 1
        src, dst = [], []
        for i, j in g["bonds"]:
            src += [i, j]
            dst += [j, i]
        return x, torch.tensor([src, dst]), torch.tensor(g["y"])


def collate(batch):
    xs, edges, ys, offset = [], [], [], 0
    for x, edge, y in batch:
        xs.append(x.mean(0, keepdim=True))
        edges.append(edge + offset)
        ys.append(y)
        offset += len(x)
    return torch.cat(xs) + torch.cat(edges, dim=1).float().mean(), torch.stack(ys)

graphs = []
for k in range(16):
    atoms = [random.choice(KINDS) for _ in range(random.randint(2, 5))]
    graphs.append({"atoms": atoms, "bonds": [(j, j + 1) for j in range(len(atoms) - 1)], "y": k % 3})
data = Graphs(graphs)
"""
COLLATED = TRAIN.replace("batch_size=4", "batch_size=4, collate_fn=collate")
CACHED = ["@functools.lru_cache(maxsize=None)"]


def changed(text: str, train: str = TRAIN) -> Applied:
    return apply("cache-constant", HEAD + text + train)


@pytest.mark.parametrize(("text", "train"), [(WORDS, TRAIN), (GRAPHS, COLLATED)])
def test_small_items_are_remembered(text: str, train: str) -> None:
    found = changed(text, train)
    assert found.lines == CACHED
    before, after = run(HEAD + text + train), run(found.text)
    assert before["losses"] == after["losses"] and before["seen"] == after["seen"]
    made = after["data"].__class__.__getitem__.cache_info()
    assert made.misses == 16 and made.hits == 5 * 16


WORKERS = TRAIN.replace("shuffle=True", "shuffle=True, num_workers=1")


@pytest.mark.parametrize(
    ("text", "train"),
    [
        (WORDS, WORKERS),
        (WORDS, TRAIN.replace("DataLoader(data, batch_size=4, shuffle", "DataLoader(Subset(data, torch.randperm(16)), batch_size=4, shuffle")),
        (WORDS, TRAIN.replace("shuffle=True", "sampler=SequentialSampler(data)")),
        (WORDS.replace("], 4)", "], 5000)"), TRAIN.replace("(4, 3)", "(5000, 3)")),
        (WORDS.replace("zeros(self.most)", "zeros(int(text[-1] == 'one') * 0 + 4)"), TRAIN),
        (WORDS.replace("    def __len__", "    def __eq__(self, other):\n        return True\n\n    def __hash__(self):\n        return 1\n\n    def __len__"), TRAIN),
        (WORDS + "first = data[0]\nfirst[0][0] = 7\n", TRAIN),
        (WORDS + "first = data.__getitem__(0)\nfirst[0][0] = 7\n", TRAIN),
        (WORDS + "next(iter(data))[0][0] = 7\n", TRAIN),
        (WORDS + "for first, _ in zip(data, range(3)):\n    first[0][0] = 7\n", TRAIN),
        (WORDS + "list(map(torch.Tensor.zero_, [x for x, _ in list(data)]))\n", TRAIN),
        (WORDS + "first, *others = data\nfirst[0][0] = 7\n", TRAIN),
        (WORDS + "print(*(x.zero_() for x, _ in [*data]))\n", TRAIN),
        (WORDS + "for x, _ in Subset(data, [0, 1]):\n    x.zero_()\n", TRAIN),
        (WORDS + "one, two = torch.utils.data.random_split(data, [2, 14])\none[0][0].zero_()\n", TRAIN),
        (GRAPHS.replace("        src, dst =", "        near = torch.zeros(len(g['atoms']), len(g['atoms']))\n        src, dst ="), COLLATED),
        (GRAPHS.replace("            src += [i, j]", "            src += [i * len(g['atoms']) + j * 0 // len(KINDS) for _ in g['atoms']]\n            src = src[-2:]\n").replace("dst += [j, i]", "dst = [j, i]"), COLLATED),
    ],
    ids=["workers", "a subset", "a sampler", "long ones", "as long as a number says", "equal data sets", "an item that is changed",
         "an item asked for by name", "the first one", "several in turn", "a list of all",
         "all in variables", "all as arguments", "items of a subset", "items of a part",
         "a matrix of all pairs", "a list of pairs"],
)  # fmt: skip
def test_told_only(text: str, train: str) -> None:
    run(HEAD + text + train)
    found = changed(text, train)
    assert not found.fixes and "in a list that the constructor fills" in found.advice
    assert any("makes the same of an item" in f.message for f in found.findings)


@pytest.mark.parametrize(
    ("text", "train"),
    [
        (GRAPHS.replace("        xs.append", "        x += 1\n        xs.append"), COLLATED),
        (GRAPHS.replace("ys.append(y)", "ys.append(y)\n        kept.append(x)").replace("def collate", "kept = []\n\n\ndef collate"), COLLATED),
        (GRAPHS.replace("    return torch.cat(xs)", "    if len(batch) == 1:\n        return batch[0][0], torch.stack(ys)\n    return torch.cat(xs)"), COLLATED),
    ],
    ids=["a batch that changes items", "a batch that is kept", "a batch that is an item"],
)  # fmt: skip
def test_batches_that_share_memory(text: str, train: str) -> None:
    run(HEAD + text + train)
    assert not changed(text, train).fixes


EACH_EPOCH = [
    "vars(data).update(most=3)",
    "data.__dict__.update(most=3)",
    "state['most'] = 3",
    "state.update(most=3)",
    "data.__init__(data.texts, 3)",
    "Words.__init__(data, data.texts, 3)",
    "list.reverse(data.texts)",
    "list.__setitem__(data.texts, 0, 'three')",
    "put(0, 'three')",
    "operator.iconcat(data.texts, ['one'])",
    "data.texts.__iadd__(['one'])",
    "chained['most'] = 3",
    "take(data.texts)",
    "setter('three')",
    "globals()['data'].__dict__.update(most=3)",
]
BEFORE = {
    "state": "state = vars(data)",
    "put": "put = data.texts.__setitem__",
    "chained": "chained = ChainMap(vars(data))",
    "take": "take = operator.methodcaller('reverse')",
    "setter": "setter = functools.partial(data.texts.insert, 0)",
}


@pytest.mark.parametrize("change", EACH_EPOCH)
def test_what_items_are_made_of_changes(change: str) -> None:
    text = WORDS.replace("zeros(self.most)", "zeros(4)").replace("KINDS.index(word) + 1", "len(word)")
    text = text.replace("KINDS.index(text[0])", "len(KINDS[0]) % 3")
    assert changed(text).lines == CACHED
    text += "".join(f"{line}\n" for name, line in BEFORE.items() if change.startswith(name))
    train = TRAIN.replace("range(3):\n", f"range(3):\n    {change}\n")
    run(HEAD + text + train)
    found = changed(text, train)
    assert not found.fixes and not found.advice


@pytest.mark.parametrize(
    ("text", "train"),
    [
        (WORDS.replace("text = self", "text = random.choice(KINDS) + ' ' + self").replace("].split", "]\n        text = text.split"), TRAIN),
        (WORDS, TRAIN.replace("range(3):\n", "range(3):\n    data.texts[epoch] = 'one two'\n")),
        (WORDS, TRAIN.replace("range(3):\n", "range(3):\n    data.most = 4\n")),
        (WORDS, TRAIN.replace("range(3):\n", "range(3):\n    KINDS[0], KINDS[1] = KINDS[1], KINDS[0]\n")),
        (WORDS.replace("return len(self.texts)", "return 16"), TRAIN),
        (WORDS.replace("self.texts[index].split()", "self.texts[index].split()\n        self.count = index"), TRAIN),
        (WORDS + "operator.itemgetter(0)(data)[0][0] = 7\n", TRAIN),
        (WORDS + "functools.reduce(lambda _, item: item[0].zero_(), data)\n", TRAIN),
    ],
    ids=["drawn", "texts that change", "a number that changes", "a list that changes", "of another length", "counted",
         "an item by a number that is kept", "items that a library takes"],
)  # fmt: skip
def test_left_alone(text: str, train: str) -> None:
    run(HEAD + text + train)
    found = changed(text, train)
    assert not found.fixes and not found.advice


@pytest.mark.parametrize("library", ["random", "mixed"])
def test_what_chooses_of_a_list_for_items(library: str) -> None:
    """Another library's function of the same name may change what it is given."""
    train = TRAIN.replace("range(3):\n", f"range(3):\n    {library}.sample(KINDS, 2)\n")
    text = WORDS.replace("class Words", f"import {library}\n\n\nclass Words", 1)
    assert bool(changed(text, train).fixes) is (library == "random")


def test_what_is_remembered_needs_no_workers() -> None:
    """Workers that start anew in each epoch would forget it."""
    text = HEAD + WORDS + TRAIN.replace("batch_size=4, shuffle", "batch_size=256, shuffle")
    text = text.replace("            ids[k] =", "            for _ in word:\n                ids[k] =")
    both = apply("cache-constant num-workers", text, min_gain=0.006)
    assert [n for n in both.lines if "lru_cache" in n] == CACHED and "workers" not in both.text
    assert "num_workers=" in apply("num-workers", text, min_gain=0.006).text


@pytest.mark.parametrize(("most", "small"), [(1000, True), (1100, False)])
def test_items_are_small_by_their_sizes(most: int, small: bool) -> None:
    """A million of the largest take 8 GB: what is larger is told only."""
    words = WORDS.replace("for _ in range(16)], 4)", f"for _ in range(16)], {most})")
    text = HEAD + words + TRAIN.replace("Linear(4, 3)", f"Linear({most}, 3)")
    found = apply("cache-constant", text)
    assert ("lru_cache" in found.text) is small
    assert run(found.text)["losses"] == run(text)["losses"]
