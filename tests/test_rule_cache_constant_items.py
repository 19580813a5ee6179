"""cache-constant: what ``__getitem__`` makes of the same item again in every epoch is made once."""

from __future__ import annotations

import pytest

from tests.onerule import Applied, apply, run

HEAD = """
import datetime
import functools
import os
import re
import tempfile
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

torch.manual_seed(0)
rng = np.random.RandomState(0)
FOLDER = tempfile.mkdtemp()
np.savez(os.path.join(FOLDER, "all.npz"), images=rng.rand(16, 4).astype(np.float32), labels=np.arange(16) % 3)
np.save(os.path.join(FOLDER, "all.npy"), rng.rand(16, 4).astype(np.float32))
"""
TRAIN = """
loader = DataLoader(data, batch_size=4, shuffle=True)
model = torch.nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append((loss.item(), str(x.dtype)))
"""
ARCHIVE = """
class Images(Dataset):
    def __init__(self, path):
        self.npz = np.load(path)
        self.labels = self.npz["labels"]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.npz["images"][index]
        return torch.from_numpy(image.copy()), int(self.labels[index])

data = Images(os.path.join(FOLDER, "all.npz"))
"""
FILE = """
class Rows(Dataset):
    def __init__(self, path):
        self.path = path

    def __len__(self):
        return 16

    def __getitem__(self, index):
        rows = np.load(self.path)
        return torch.from_numpy(rows[index] + np.float32(1)), index % 3

data = Rows(os.path.join(FOLDER, "all.npy"))
"""
LOGS = """
class Clicks(Dataset):
    def __init__(self, dense, labels):
        self.dense = dense
        self.labels = labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        x = torch.tensor(np.log1p(self.dense[index]), dtype=torch.float32)
        return x, int(self.labels[index])

dense = rng.gamma(2.0, 1.0, (16, 4))
data = Clicks(dense, rng.randint(0, 3, 16))
"""

TEXTS = """
def tokens(text):
    return re.findall("[a-z]+", text.lower())


class Vocabulary:
    def __init__(self, texts):
        self.ids = {}
        for text in texts:
            for word in tokens(text):
                if word not in self.ids:
                    self.ids[word] = len(self.ids) + 1

    def encode(self, text):
        return [self.ids.get(word, 0) for word in tokens(text)]


class News(Dataset):
    def __init__(self, texts, vocabulary):
        self.texts = texts
        self.vocabulary = vocabulary

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        ids = self.vocabulary.encode(self.texts[index])
        return torch.tensor(ids[:4], dtype=torch.float32), index % 3

texts = []
for k in range(16):
    texts.append("One two %s four Five" % ("three" if k % 3 else "seven"))
data = News(texts, Vocabulary(texts))
"""
ROWS = """
class Stays(Dataset):
    def __init__(self, stays, mean):
        self.stays = stays
        self.mean = mean

    def __len__(self):
        return len(self.stays)

    def filled(self, values, hours):
        out = np.zeros(len(values), dtype=np.float32)
        last = 0.0
        for k in range(len(values)):
            last = values[k] if values[k] > hours else last
            out[k] = last
        return out

    def __getitem__(self, index):
        stay = self.stays[index]
        values = stay["values"] - self.mean
        row = self.filled(values, stay["hours"])
        return torch.from_numpy(row), stay["label"]

stays = []
for k in range(16):
    stays.append({"values": rng.rand(4), "hours": rng.rand() / 2, "label": k % 3})
data = Stays(stays, 0.25)
"""
CHARS = """
class Chars(Dataset):
    def __init__(self, text: str):
        self.text = text
        self.codes = {c: i for i, c in enumerate(sorted(set(text)))}

    def __len__(self):
        return 16

    def __getitem__(self, index):
        start = 2 * index
        chunk = self.text[start : start + 4]
        ids = [self.codes[c] for c in chunk]
        return torch.tensor(ids, dtype=torch.float32), index % 3

with open(os.path.join(FOLDER, "text"), "w") as file:
    file.write("a text of many letters, of which windows are taken")
with open(os.path.join(FOLDER, "text")) as file:
    data = Chars(file.read())
"""
DATES = """
def features(dates):
    \"\"\"hour, day\"\"\"
    out = []
    for date in dates:
        d = datetime.datetime.strptime(date, "%Y-%m-%d %H")
        out.append([d.hour / 23.0 - 0.5, (d.day - 1) / 30.0])
    return np.array(out)


class Windows(Dataset):
    def __init__(self, dates):
        self.dates = dates

    def __len__(self):
        return len(self.dates) - 3

    def __getitem__(self, index):
        begin = index
        past = features(self.dates[begin : begin + 2])
        ahead = features(self.dates[begin + 1 : begin + 3])
        return torch.from_numpy(np.concatenate([past[0], ahead[1]])).float(), index % 3

start = datetime.datetime(2020, 1, 1)
data = Windows([(start + datetime.timedelta(hours=k)).strftime("%Y-%m-%d %H") for k in range(24)])
"""

HOURS = """
START = datetime.datetime(2020, 1, 1)


def calendar(hour):
    date = START + datetime.timedelta(hours=int(hour))
    return [date.hour / 24, date.timetuple().tm_yday / 366]


class Hours(Dataset):
    def __len__(self):
        return 16

    def __init__(self, past):
        self.past = past

    def __getitem__(self, index):
        hours = np.array([calendar(h) for h in range(index, index + self.past)], dtype=np.float32)
        return torch.from_numpy(hours.reshape(-1)), index % 3

data = Hours(2)
"""


def changed(text: str) -> Applied:
    return apply("cache-constant", HEAD + text + TRAIN)


def fitted(text: str) -> list[str]:
    """The new lines, where the losses stay the same."""
    found = changed(text)
    assert run(HEAD + text + TRAIN)["losses"] == run(found.text)["losses"]
    return found.lines


def test_an_array_of_an_open_file_is_unpacked_once() -> None:
    assert fitted(ARCHIVE) == [
        "npz = np.load(path)",
        'self.labels = npz["labels"]',
        'self.images = npz["images"]',
        "image = self.images[index]",
    ]


def test_a_file_that_others_need_stays_open() -> None:
    text = ARCHIVE.replace("return len(self.labels)", "return len(self.npz['labels'])")
    assert fitted(text) == ['self.images = self.npz["images"]', "image = self.images[index]"]


def test_a_file_is_read_once() -> None:
    assert fitted(FILE) == ["self.rows = np.load(self.path)", "rows = self.rows"]


def test_a_member_of_a_file_is_read_once() -> None:
    text = FILE.replace("np.load(self.path)", 'np.load(self.path)["images"]').replace("npy", "npz")
    assert fitted(text) == ['self.rows = np.load(self.path)["images"]', "rows = self.rows"]


def test_a_function_of_each_number_is_computed_of_the_whole_array() -> None:
    assert fitted(LOGS) == [
        "self.dense = np.log1p(dense)",
        "x = torch.tensor(self.dense[index], dtype=torch.float32)",
    ]


@pytest.mark.parametrize("dtype", ["np.float32", "np.float64", "np.int64"])
def test_rows_under_a_name(dtype: str) -> None:
    text = LOGS.replace(
        "        x = torch.tensor(np.log1p(self.dense[index]), dtype=torch.float32)\n",
        "        row = self.dense[index]\n"
        "        row = np.where(row < 1, 0.0, np.log1p(np.maximum(row, 0)) ** 2).astype(np.float32)\n"
        "        x = torch.tensor(row)\n",
    ).replace("rng.gamma(2.0, 1.0, (16, 4))", f"rng.gamma(2.0, 1.0, (16, 4)).astype({dtype})")
    assert fitted(text) == [
        "self.dense = np.where(dense < 1, 0.0, np.log1p(np.maximum(dense, 0)) ** 2).astype(np.float32)",
    ]


def test_a_function_of_each_element_is_called_once() -> None:
    assert fitted(TEXTS) == [
        "self.ids = [self.vocabulary.encode(text) for text in self.texts]",
        "ids = self.ids[index]",
    ]


def test_the_name_of_an_element_is_free() -> None:
    text = (
        TEXTS.replace("self.texts[index])", "self.texts[index] + text)")
        .replace("\n\nclass News", "\n\ntext = ' six'\n\n\nclass News")
        .replace(
            "for text in texts:\n            for word in tokens(text)",
            "for one in texts:\n            for word in tokens(one)",
        )
    )
    assert fitted(text)[0] == (
        "self.ids = [self.vocabulary.encode(one_text + text) for one_text in self.texts]"
    )


def test_several_rows_at_once() -> None:
    text = ROWS.replace("stay = self.stays[index]", "rows = self.stays[index]").replace(
        'stay["values"]', "rows"
    )
    text = (
        text.replace('stay["hours"]', "0.2")
        .replace('stay["label"]', "index % 3")
        .replace("data = Stays(stays, 0.25)", "data = Stays(rng.rand(16, 4), 0.25)")
    )
    assert (
        fitted(text)[0] == "self.row = [self.filled(rows - self.mean, 0.2) for rows in self.stays]"
    )
    assert not changed(text + "some = data.filled(data.stays[2:4, 0], 0.1)\nfew = data[3]\n").fixes


def test_a_list_that_others_get_is_copied() -> None:
    text = TEXTS.replace(
        "data = News",
        "def collate(batch):\n    for ids, _ in batch:\n        ids.append(0)\n"
        "    return torch.tensor([ids[-4:] for ids, _ in batch]).float(), torch.tensor([y for _, y in batch])\n\ndata = News",
    )
    text = text.replace("torch.tensor(ids[:4], dtype=torch.float32)", "ids")
    train = TRAIN.replace("shuffle=True", "shuffle=True, collate_fn=collate")
    found = apply("cache-constant", HEAD + text + train)
    assert run(HEAD + text + train)["losses"] == run(found.text)["losses"]
    assert found.lines[1] == "ids = self.ids[index].copy()"


def test_what_is_computed_before_goes_there_too() -> None:
    assert fitted(ROWS) == [
        'self.row = [self.filled(stay["values"] - self.mean, stay["hours"]) for stay in self.stays]',
        "row = self.row[index]",
    ]


def test_an_item_of_two_lists_is_remembered() -> None:
    text = ROWS.replace('stay["hours"])', "self.hours[index])").replace(
        "self.mean = mean", "self.mean = mean\n        self.hours = [0.1] * 16"
    )
    assert fitted(text) == ["@functools.lru_cache(maxsize=None)"]


def test_parts_of_an_element() -> None:
    text = ROWS.replace(
        "stay = self.stays[index]", "first, hours, label = self.stays[index]"
    ).replace('stay["values"] -', "first -")
    text = (
        text.replace('stay["hours"]', "hours")
        .replace('stay["label"]', "label")
        .replace(
            '{"values": rng.rand(4), "hours": rng.rand() / 2, "label": k % 3}',
            "(rng.rand(4), rng.rand() / 2, k % 3)",
        )
    )
    assert fitted(text) == [
        "self.row = [self.filled(first - self.mean, hours) for first, hours, label in self.stays]",
        "row = self.row[index]",
    ]


def test_windows_of_codes() -> None:
    assert fitted(CHARS) == [
        "self.ids = [self.codes[c] for c in self.text]",
        "ids = self.ids[start : start + 4]",
    ]


def test_windows_of_rows() -> None:
    assert fitted(DATES) == [
        "self.features = features(self.dates)",
        "past = self.features[begin : begin + 2]",
        "ahead = self.features[begin + 1 : begin + 3]",
    ]


def test_rows_written_to_are_copied() -> None:
    text = DATES.replace("        ahead =", "        past *= 2\n        ahead =")
    assert fitted(text)[1] == "past = self.features[begin : begin + 2].copy()"


def test_a_function_of_hours_remembers() -> None:
    assert fitted(HOURS) == ["@functools.lru_cache(maxsize=None)"]


STARTS = """
def calendar_of(first, length):
    return np.array([[np.sin(h / 24), np.cos(h / 24), h % 7 / 7, 1] for h in range(first, first + length)], dtype=np.float32).mean(0)


class Windows(Dataset):
    def __init__(self, count):
        self.starts = []
        for k in range(0, count, 2):
            self.starts.append(k)

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, index):
        k = self.starts[index]
        hours = calendar_of(k, 4)
        return torch.tensor(hours), index % 3

data = Windows(32)
"""


@pytest.mark.parametrize("text", [TEXTS, DATES], ids=["texts", "dates"])
def test_workers_have_what_the_constructor_made(text: str) -> None:
    train = TRAIN.replace("shuffle=True", "shuffle=True, num_workers=2")
    found = apply("cache-constant", HEAD + text + train)
    assert found.fixes
    assert run(HEAD + text + train)["losses"] == run(found.text)["losses"]


IN_PLACE = ARCHIVE.replace("        return torch", "        image *= 2\n        return torch")
UNPACKED = FILE.replace("rows[index]", 'rows["images"][index]').replace("npy", "npz")


@pytest.mark.parametrize(
    "text",
    [
        IN_PLACE,
        ARCHIVE.replace("image.copy()", "image")
        + "first = data[0][0]\nfirst += 1\n",
        ARCHIVE.replace("np.load(path)", 'np.load(path, mmap_mode="r")'),
        ARCHIVE + "data.npz = np.load(os.path.join(FOLDER, 'all.npz'))\n",
        ARCHIVE.replace('        image = self.npz["images"][index]', '        image = np.zeros(4, dtype=np.float32)\n        if index:\n            image = self.npz["images"][index]'),
        FILE + "np.save(os.path.join(FOLDER, 'all.npy'), np.ones((16, 4), dtype=np.float32))\n",
        FILE.replace("        rows = np.load(self.path)", "        self.path = self.path + ''\n        rows = np.load(self.path)"),
        UNPACKED,
        LOGS.replace("self.dense = dense", "self.dense = self.raw = dense"),
        LOGS.replace("dense, labels):\n        self.dense", "dense, labels, np=None):\n        self.dense"),
        LOGS + "dense += 1\n",
        LOGS + "data.dense = data.dense * 2\n",
        LOGS + "means = data.dense.mean()\n",
        LOGS.replace("(16, 4))", "16)").replace("np.log1p(self.dense[index]), dtype=torch.float32", "[np.log1p(self.dense[index]) * 2] * 4).float("),
        LOGS.replace("rng.gamma(2.0, 1.0, (16, 4))", "list(rng.gamma(2.0, 1.0, (16, 4)))"),
        LOGS.replace("        x =", "        self.dense[index] += 1\n        x ="),
        LOGS.replace("        self.dense = dense\n", "        self.dense = dense\n        self.top = self.dense.max()\n"),
        LOGS + "\nclass Others(Clicks):\n    def __init__(self, dense, labels):\n        super().__init__(dense, labels)\n        self.dense = dense * 2\n\ndata = Others(dense, data.labels)\n",
        TEXTS.replace('text.lower())', 'text.lower()[np.random.randint(2):])'),
        TEXTS.replace('    return re', '    global seen\n    seen = len(text)\n    return re'),
        TEXTS.replace('(word, 0)', '(word, 0) + datetime.datetime.now().second'),
        TEXTS + "texts[0] = 'four three two one'\n",
        TEXTS + "data.vocabulary = Vocabulary(['one two'] * 4)\n",
        TEXTS + "data.vocabulary.ids['one'] = 77\n",
        TEXTS.replace("return len(self.texts)", "return len(self.texts) - 3"),
        TEXTS.replace("[self.ids.get", "[[self.ids.get").replace("tokens(text)]\n\n\nclass News", "tokens(text)]]\n\n\nclass News").replace("        return torch", "        ids[0][0] += 1\n        ids = ids[0]\n        return torch"),
        TEXTS.replace("self.texts[index])", "self.texts[index][index % 2:])"),
        ROWS.replace("        row =", "        stay[\"hours\"] += 1\n        row ="),
        ROWS.replace("stay[\"hours\"])", "index / 20)"),
        ROWS.replace("        row =", "        row = values.astype(np.float32)\n        if index % 2:\n            row ="),
        CHARS + "data.codes['a'] = 9\n",
        CHARS.replace("[self.codes[c] for", "[[self.codes[c]] for").replace("tensor(ids", "tensor([n for n, in ids]"),
        CHARS.replace("[self.codes[c] for", "[self.codes[c] + np.random.randint(2) for"),
        DATES.replace("    out = []\n", "    out, d = [], start\n").replace("d = datetime.datetime.strptime(date", "d = (d - start) + datetime.datetime.strptime(date"),
        DATES.replace("d.hour / 23.0 - 0.5", "d.hour / 23.0 - 0.1 * len(dates[0])"),
        DATES.replace("d.hour / 23.0 - 0.5", "d.hour").replace("/ 30.0", ""),
        DATES.replace("def features(dates)", "def features(dates, first=0)"),
        DATES.replace("d.hour / 23.0", "HOURS[0] / 23.0").replace("def features", "HOURS = [1]\n\ndef features") + "HOURS[0] = 2\n",
        CHARS.replace("        ids =", "        start = 0\n        ids =").replace("tensor(ids", "tensor(ids[start:]"),
        STARTS,
        STARTS.replace("self.starts.append(k)", "self.starts.append((k, 4))").replace("k = self.starts[index]\n        hours = calendar_of(k, 4)", "k, n = self.starts[index]\n        hours = calendar_of(k, n)"),
        HOURS + "START = datetime.datetime(2021, 1, 1)\n",
        HOURS.replace("    date = START", "    global START\n    START = START + datetime.timedelta(hours=1)\n    date = START"),
        HOURS + "calendar(3)[0] = 1\n",
        HOURS + "half = calendar(1.5)\n",
        HOURS.replace("date = START", "date = datetime.datetime.now()"),
    ],
    ids=[
        "written to in place", "an item written to", "mapped", "another file", "under a condition",
        "a file that is written later", "a path that changes", "an open file for all",
        "two attributes", "a name of the constructor's own", "an array written to", "an attribute set from outside", "read elsewhere", "numbers, untyped",
        "a list", "written to by the item", "read by the constructor", "a class of it",
        "a function that draws", "a function that counts", "the clock", "texts that change", "another vocabulary",
        "a word that is added", "fewer items", "a list of lists that others get", "a part of each", "an element that is changed",
        "numbers of the index", "under a condition",
        "codes that change", "lists of codes", "a number that is drawn", "rows that depend on one another", "rows that depend on the first", "of any type",
        "a function of two", "rows of a global", "bounds that change", "where windows begin", "where windows of some length begin",
        "a date that changes", "another date", "a list written to", "a half hour", "the time",
    ],
)  # fmt: skip
def test_left_alone(text: str) -> None:
    run(HEAD + text + TRAIN)
    assert not changed(text).fixes


COLLATE = """
def doubled(batch):
    for x, _ in batch:
        x *= 2
    return torch.stack([x for x, _ in batch]), torch.tensor([y for _, y in batch])


class Own(DataLoader):
    def __init__(self, data, **settings):
        super().__init__(data, collate_fn=doubled, **settings)
"""


@pytest.mark.parametrize("train", [
    TRAIN.replace("DataLoader(", "Own("), TRAIN.replace("shuffle=True", "collate_fn=doubled"),
], ids=["a loader of its own", "a function of its own"])  # fmt: skip
def test_batches_that_others_make(train: str) -> None:
    text = HEAD + COLLATE + ARCHIVE.replace("image.copy()", "image") + train
    run(text)
    assert not apply("cache-constant", text).fixes


def test_left_alone_where_items_come_once() -> None:
    once = TRAIN.replace("for epoch in range(2):\n    for", "if True:\n    for")
    assert not apply("cache-constant", HEAD + LOGS + once).fixes
