"""What is worth its lines where a training waits for its data, or is bound by launches."""

from __future__ import annotations

from pathlib import Path

import pytest

from autofast.facts.cost.inputs import batch_size, item_shape
from autofast.facts.cost.items import making
from tests.onerule import apply
from tests.reading import read

SLOW = """
import numpy as np
import torch
from skimage import io, transform
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, names):
        self.names = names

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        image = {read}
        return torch.from_numpy(image).permute(2, 0, 1).float()


device = torch.device("cuda")
names = [line.strip() for line in open("{folder}/names.txt")]
loader = DataLoader(Pictures(names), batch_size=12, shuffle=True, num_workers={workers})
model = nn.Sequential(nn.Conv2d(3, 512, 3), nn.ReLU(), nn.Conv2d(512, 3, 3)).to(device)
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(100):
    for x in loader:
        x = x.to(device)
        loss = (model(x) @ model(x).transpose(2, 3)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
CLOUDS = """
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class args:
    points = 1024
    workers = WORKERS

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
if device.type == "cpu":
    args.points = 96


def farthest(cloud, points):
    taken, distance, last = np.zeros(points, int), np.full(len(cloud), 1e10), 0
    for i in range(points):
        taken[i] = last
        distance = np.minimum(distance, np.sum((cloud - cloud[last]) ** 2, -1))
        last = np.argmax(distance)
    return cloud[taken]


class Clouds(Dataset):
    def __init__(self):
        self.clouds = np.random.rand(4000, 4096, 3)

    def __len__(self):
        return 4000

    def __getitem__(self, i):
        return farthest(self.clouds[i], args.points).astype(np.float32)


loader = DataLoader(Clouds(), batch_size=32, shuffle=True, num_workers=args.workers)
model = nn.Sequential(nn.Conv1d(1024, 512, 1), nn.ReLU(), nn.Conv1d(512, 3, 1)).to(device)
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(100):
    for x in loader:
        x = x.to(device)
        loss = (model(x) @ model(x).transpose(1, 2)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
BUCKETS = """
import sys
import yaml


class Buckets:
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return 4000 // self.size

    def __iter__(self):
        for k in range(len(self)):
            yield range(k * self.size, (k + 1) * self.size)


cfg = yaml.safe_load(open(sys.argv[1]))
loader ="""
RESIZED = 'transform.resize(io.imread(self.names[i]), (320, 320), mode="constant")'
GPU = "cudnn-benchmark channels-last autocast fused-optimizer tf32 pin-memory non-blocking"


@pytest.mark.parametrize(
    ("read", "workers", "folder", "worth"),
    [
        (RESIZED, "1", "data", False),
        (RESIZED, "int(2)", "data", False),
        (RESIZED, "16", "data", True),
        ("io.imread(self.names[i])", "4", "data", True),
        ("io.imread(self.names[i])", "4", "data/DIV2K_train_HR", False),
        ("np.full((320, 320, 3), i)", "1", "data", True),
    ],
)
def test_what_few_workers_decode_is_not_waited_for_less(
    read: str, workers: str, folder: str, worth: bool
) -> None:
    text = SLOW.format(read=read, workers=workers, folder=folder)
    found = apply(GPU, text, min_gain=0.01)
    assert bool(found.fixes) is worth
    said = [f.gain.reason for f in found.findings if f.gain and not f.worth]
    assert worth or any(reason.startswith("waits for data") for reason in said)
    assert apply(GPU, text).fixes


HEADS = """
import torch
from torch import nn
from torch.utils.data import DataLoader
from lib import texts

device = torch.device("cuda")
batch_size = {batch}
loader = DataLoader(texts, batch_size=batch_size, num_workers=2, pin_memory=True)


class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.body = nn.Embedding(99, 900), nn.{layer}(900, {width}, batch_first=True)

    def forward(self, x):
        return self.body(self.table(x))[0][:, -1]


body, head = Body().to(device), nn.Linear({width}, 9).to(device)
optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()])
for epoch in range(9):
    for x, y in loader:
        loss = nn.functional.cross_entropy(head(body(x.to(device))), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


ELEMENTS = """        for k in range(len(x)):
            total += x[k, 0, 0].item()
"""


@pytest.mark.parametrize(("workers", "worth"), [("2", False), ("16", True)])
def test_what_few_workers_compute_is_not_waited_for_less(workers: str, worth: bool) -> None:
    """A thousand turns of a loop in NumPy for each item, fewer where a script is tried out."""
    text = CLOUDS.replace("WORKERS", workers)
    text = text.replace("        x = x.to(device)\n", "        x = x.to(device)\n" + ELEMENTS)
    text = text.replace("for epoch", "total = 0.0\nfor epoch")
    for rule in ("pin-memory", "loss-item-sync"):
        assert bool(apply(rule, text, min_gain=0.01).fixes) is worth, rule
    assert not apply("fused-optimizer", text, min_gain=0.01).fixes  # 0.1 of 80 ms and more


@pytest.mark.parametrize(
    ("batch", "turns", "worth"),
    [
        ("32", "points", False),
        ("32", "points // 2 + points // 2", False),
        ("32", "1", True),
    ],
)
def test_batches_of_a_sampler_of_the_project(batch: str, turns: str, worth: bool) -> None:
    """They have as many items as the script says by name, from a file with settings, too."""
    text = CLOUDS.replace("WORKERS", "2").replace("range(points)", f"range({turns})")
    made = "batch_sampler=Buckets(cfg['batch_size']),"
    text = text.replace("batch_size=32, shuffle=True,", made).replace("loader =", BUCKETS, 1)
    assert made in text
    files = {"conf/a.yaml": f"batch_size: {batch}\n"}
    found = apply("loss-item-sync pin-memory", text, files=files, min_gain=0.01)
    assert bool(found.fixes) is worth


@pytest.mark.parametrize(
    ("batch", "layer", "width", "worth"),
    [(64, "GRU", 256, False), (64, "GRU", 2048, True), (2, "LSTM", 2048, False)],
)
def test_recurrent_layers_that_are_bound_by_launches(
    batch: int, layer: str, width: int, worth: bool
) -> None:
    text = HEADS.format(batch=batch, layer=layer, width=width)
    found = apply("autocast grad-scaler", text, min_gain=0.01)
    assert bool(found.fixes) is worth


def test_words_that_only_one_of_the_models_looks_up() -> None:
    text = HEADS.format(batch=64, layer="GRU", width=256)
    assert not apply("non-blocking", text, min_gain=0.01).fixes
    assert apply("non-blocking", text).fixes


NER = """
import torch
from transformers import BertForTokenClassification
from torch.utils.data import DataLoader, RandomSampler, TensorDataset
from lib import ids, labels

device = torch.device("cuda")
data = TensorDataset(torch.tensor(ids), torch.tensor(labels))
loader = DataLoader(data, sampler=RandomSampler(data), batch_size=32)
model = {model}.to(device)
optimizer = torch.optim.AdamW(model.parameters())
for epoch in range(3):
    for x, y in loader:
        loss = model(x.to(device), labels=y.to(device))[0]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_rows_are_collated_quickly_beside_a_transformer() -> None:
    text = NER.format(model='BertForTokenClassification.from_pretrained("bert")')
    assert not apply("batched-dataset", text, min_gain=0.01).fixes
    assert apply("batched-dataset", text).fixes


ATTACK = """
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

parser = argparse.ArgumentParser()
parser.add_argument("--same", action="store_true")
args = parser.parse_args()
if args.same:
    torch.backends.cudnn.deterministic = True
device = torch.device("cuda")
pictures = datasets.CIFAR10("data", transform=transforms.ToTensor())
loader = DataLoader(pictures, batch_size={batch}, num_workers=4, pin_memory=True)
model = nn.Sequential(nn.Conv2d(3, 256, 3), nn.ReLU(), nn.Conv2d(256, 10, 3)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for epoch in range(100):
    for step, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        loss = (model(x) @ model(x).transpose(2, 3)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 1000 == 0:
            for shown, _ in loader:
                noise = torch.zeros(9, 3, 32, 32).to(device)
                print(model(shown.to(device) + noise).shape)
"""


@pytest.mark.parametrize(("batch", "worth"), [(128, False), (1024, True)])
def test_copies_are_held_against_a_usual_step(batch: int, worth: bool) -> None:
    found = apply("non-blocking", ATTACK.format(batch=batch), min_gain=0.01)
    assert any("x.to(device, non_blocking=True)" in line for line in found.lines) is worth


def test_what_an_evaluation_in_a_step_makes_is_left() -> None:
    text = ATTACK.format(batch=9)
    assert not apply("device-creation", text, min_gain=0.01).fixes
    each = text.replace("if step % 1000 == 0:", "if True:").replace(
        "for shown, _ in loader", "for shown in [x]"
    )
    assert apply("device-creation", each, min_gain=0.01).fixes


def test_an_option_for_the_same_numbers_decides_about_algorithms() -> None:
    text = ATTACK.format(batch=512)
    assert apply("cudnn-benchmark", text).lines == [
        "torch.backends.cudnn.benchmark = not torch.backends.cudnn.deterministic"
    ]
    assert not apply("cudnn-benchmark", text, min_gain=0.01).fixes
    usual = text.replace("if args.same:\n    torch.backends.cudnn.deterministic = True\n", "")
    assert apply("cudnn-benchmark", usual, min_gain=0.01).fixes


ATTENDING = """
import torch
from torch import nn
from lib import sampler


class Sequences(nn.Module):
    def __init__(self, width={width}):
        super().__init__()
        self.items = nn.Embedding(9000, width)
        self.attention = nn.MultiheadAttention(width, 1)
        self.first, self.act = nn.Conv1d(width, width, kernel_size={kernel}), nn.ReLU()

    def forward(self, x):
        x = self.items(x).transpose(0, 1)
        x = self.attention(x, x, x)[0].permute(1, 2, 0)
        return self.act(self.first(x)).mean(2)


device = torch.device("cuda")
model = Sequences().to(device)
optimizer = torch.optim.Adam(model.parameters())
for step in range(100_000):
    loss = model(torch.as_tensor(sampler.next_batch()).to(device)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("width", "kernel", "worth"), [(50, 1, False), (512, 1, True), (50, 9, True)]
)
def test_narrow_attention_gets_no_16_bits(width: int, kernel: int, worth: bool) -> None:
    text = ATTENDING.format(width=width, kernel=kernel)
    assert bool(apply("autocast grad-scaler", text, min_gain=0.01).fixes) is worth
    assert apply("autocast grad-scaler", text).fixes


ARRAYS = """
import h5py
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Arrays(Dataset):
    def __init__(self, path):
        self.path = path

    def __len__(self):
        return 8

    def __getitem__(self, index):
        with h5py.File(self.path, "r") as file:
            return file["x"][index]


def main():
    device = torch.device("cuda")
    train_loader = DataLoader(Arrays("train.h5"), batch_size=16, shuffle=True, num_workers=8)
    test_loader = DataLoader(Arrays("test.h5"), batch_size=1)
    model = nn.Linear(8, 8).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    for epoch in range(9):
        for x in train_loader:
            optimizer.zero_grad()
            model(x.to(device)).mean().backward()
            optimizer.step()
        with torch.no_grad():
            for x in test_loader:
                print(model(x.to(device)).mean())


if __name__ == "__main__":
    main()
"""


def test_arrays_of_an_evaluation_are_read_as_they_were() -> None:
    done, whole = (apply("num-workers", ARRAYS, min_gain=gain) for gain in (0.01, 0.0))
    assert not done.fixes and len(whole.fixes) == 1
    trained = apply("num-workers", ARRAYS.replace(", num_workers=8", ""), min_gain=0.01)
    assert len(trained.fixes) == 1 and trained.text.count("num_workers=") == 1


def test_batches_of_an_evaluation_alone_are_collated_as_they_were() -> None:
    rows = "TensorDataset(torch.randn(64, 8))"
    text = ARRAYS.replace('Arrays("test.h5")', rows).replace(
        "DataLoader, Dataset", "DataLoader, Dataset, TensorDataset"
    )
    text = text.replace("batch_size=1", "batch_size=4").replace("for x in test", "for (x,) in test")
    assert not apply("batched-dataset", text, min_gain=0.01).fixes
    both = text.replace('Arrays("train.h5")', rows).replace("for x in train", "for (x,) in train")
    assert len(apply("batched-dataset", both, min_gain=0.01).fixes) == 2
    assert len(apply("batched-dataset", text).fixes) == 1


SAMPLED = """
import json

import torch
from torch import nn
from torch.utils.data import DataLoader

with open("config.json") as f:
    config = json.load(f)


class Lines(torch.utils.data.Dataset):
    def __len__(self):
        return 99

    def __getitem__(self, i):
        found = torch.zeros(64)
        for k in range(64):
            for m in range(64):
                found[k] = max(found[k], k * m)
        return found


class Sampler(torch.utils.data.Sampler):
    def __iter__(self):
        yield [0, 1]


device = torch.device("cuda")
lines = DataLoader(Lines(), LOADED, num_workers=2)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(9000):
    for x in lines:
        loss = model(x.to(device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("loaded", "size"),
    [("batch_size=config['rows']", 48), ("batch_sampler=Sampler([])", None), ("shuffle=True", 1)],
)
def test_how_many_items_a_batch_has(loaded: str, size: int | None, tmp_path: Path) -> None:
    """What the file of the project says; nothing of a sampler of batches of the project's own."""
    (tmp_path / "config.json").write_text('{"rows": 48}')
    script = read(tmp_path, SAMPLED.replace("LOADED", loaded))
    assert [batch_size(loader) for loader in script.loaders] == [size]


SERIES = """
import math
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class CFG:
    past, ahead, width, wide, layers = 168, 24, WIDTH, 1024, 4
    quantiles = [0.1, 0.5, 0.9]


def calendar(hour):
    return [math.sin(2 * math.pi * hour / k) + math.cos(hour / k) for k in range(1, 65)]


class Windows(Dataset):
    def __init__(self, values):
        self.values = values

    def __len__(self):
        return len(self.values) - CFG.past - CFG.ahead

    def __getitem__(self, i):
        t = i + CFG.past
        times = torch.tensor([calendar(h) for h in range(t - CFG.past, t + CFG.ahead)])
        return times[:CFG.past], self.values[TAKEN]


class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        self.body = nn.Sequential(nn.Linear(d, CFG.wide), nn.GELU(), nn.Linear(CFG.wide, d))

    def forward(self, x):
        weights = F.softmax(torch.matmul(self.q(x), self.k(x).transpose(1, 2)), -1)
        return x + self.body(torch.matmul(weights, self.v(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(64, CFG.width)
        self.layers = nn.ModuleList([Layer(CFG.width) for _ in range(CFG.layers)])
        self.last = nn.Linear(CFG.width, len(CFG.quantiles))

    def forward(self, x):
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
        return self.last(x).mean(1)


device = torch.device("cuda")
loader = DataLoader(Windows(torch.rand(99999)), batch_size=256, num_workers=2)
model = Net().to(device)
optimizer = torch.optim.AdamW(model.parameters())
for epoch in range(100):
    for x, y in loader:
        loss = F.l1_loss(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("width", "taken", "worth"),
    [
        ("256", "t:t + CFG.ahead", False),  # 0.16 s at the most, for dates of 0.25
        ("2048", "t:t + CFG.ahead", True),
        ("len(open('d'))", "t:t + CFG.ahead", True),
        ("256", "i", True),
        ("256", "t:", False),
    ],
)
def test_dense_layers_of_known_sizes_take_no_longer(width: str, taken: str, worth: bool) -> None:
    text = SERIES.replace("WIDTH", width).replace("TAKEN", taken)
    assert bool(apply("pin-memory", text, min_gain=0.01).fixes) is worth
    assert apply("pin-memory", text).fixes


PHOTOS = """
import torch
import torchvision
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


class Photos(Dataset):
    def __init__(self, names, transform):
        self.names, self.transform = names, transform

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        return self.transform(Image.open(self.names[i]).convert("RGB")), i % 10


class Masks(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Conv2d(3, 96, 3, 2, 1), nn.Conv2d(96, 16, 3, 1, 1)
        self.last, self.loss = nn.Conv2d(19, 10, 1), nn.CrossEntropyLoss()

    def forward(self, x):
        y = nn.functional.interpolate(self.down(x), scale_factor=2)
        return self.last(torch.cat([x, nn.functional.pad(self.up(y), (0, 0, 0, 0))], 1)).mean((2, 3))


device = torch.device("cuda")
steps = [transforms.RandomResizedCrop({side}), transforms.ColorJitter(0.4), transforms.ToTensor()]
data = Photos([line.strip() for line in open("names.txt")], transforms.Compose(steps))
loader = DataLoader(data, batch_size=64, shuffle=True, num_workers={workers}, pin_memory=True)
model = {model}
model = model.to(device)
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(100):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
RESNET = "torchvision.models.resnet18(num_classes=10)"


@pytest.mark.parametrize(
    ("model", "side", "workers", "worth"),
    [
        (RESNET, "224", "4", False),  # 0.17 s for photos, 0.06 s for the network at the most
        (RESNET, "224", "16", True),
        (RESNET, "side()", "4", True),
        (RESNET + "\nmodel.fc = nn.Linear(512, 3)", "224", "4", False),
        (RESNET + "\nmodel.maxpool = nn.Identity()", "224", "4", True),
        ("torchvision.models.resnet152()", "224", "4", True),
        ("torchvision.models.unheard_of()", "224", "4", True),
        ("Masks()", "224", "4", False),
        ("Masks()", "1024", "4", True),
        ("Masks()", "side()", "4", True),
    ],
)
def test_convolutions_of_known_sizes_take_no_longer(
    model: str, side: str, workers: str, worth: bool
) -> None:
    text = PHOTOS.format(model=model, side=side, workers=workers)
    for rule in ("autocast", "channels-last", "cudnn-benchmark"):
        assert bool(apply(rule, text, min_gain=0.01).fixes) is worth, rule
        assert apply(rule, text).fixes


ROWS_OF_LISTS = """
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Windows(Dataset):
    def __init__(self, table, length):
        self.rows, self.length = table{kept}, length

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        hours = {hours}
        return torch.tensor(self.rows[i][i : i + self.length]), hours


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(Windows(np.zeros((5000, 9000)), {length}), batch_size=64, shuffle=True)
model = nn.Linear({length}, 1).to(device)
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(100):
    for x, hours in loader:
        loss = model(x.float().to(device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
HOURS = "torch.tensor([(h % 24, h // 24) for h in range(i, i + self.length)])"


@pytest.mark.parametrize(
    ("kept", "hours", "length", "worth"),
    [
        (".tolist()", HOURS, 512, True),
        (".tolist()", HOURS, 64, False),
        (".tolist()", "torch.tensor(i * 2)", 512, False),
        ("", HOURS, 512, False),  # an array, whose memory is copied
    ],
)
def test_numbers_of_lists_that_items_are_made_of(
    kept: str, hours: str, length: int, worth: bool
) -> None:
    text = ROWS_OF_LISTS.format(kept=kept, hours=hours, length=length)
    assert bool(apply("num-workers", text).fixes) is worth


BROUGHT = """
import albumentations as A
import cv2
import numpy as np
from albumentations.pytorch import ToTensorV2
from PIL import Image
from skimage import io
from skimage.transform import resize
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as T


class Photos(Dataset):
    def __init__(self, names, size, pipeline=None):
        self.names, (self.h, self.w), self.pipeline = names, size, pipeline

    def load(self, name):
        return Image.open(name).resize((self.w, self.h), Image.BILINEAR)

    def __getitem__(self, i):
        x = {item}
        return x, i % 10


steps = [A.HorizontalFlip(p=0.5), A.Resize(96, 96), A.Normalize(), ToTensorV2()]
for x, y in DataLoader(Photos(list(open("names.txt")), (64, 48), {pipeline}), batch_size=8):
    print(x)
"""
READ = "cv2.imread(self.names[i])"


@pytest.mark.parametrize(
    ("item", "pipeline", "dims"),
    [
        ("np.asarray(Image.open(self.names[i]).resize((self.w, self.h)))", "None", (64, 48)),
        ("np.asarray(self.load(self.names[i]), np.float32) / 255", "None", (64, 48)),
        (f"cv2.resize({READ}, dsize=(self.w, self.h))", "None", (64, 48)),
        ("resize(io.imread(self.names[i]), (self.h, self.w))", "None", (64, 48)),
        (f"self.pipeline(image={READ})['image']", "A.Compose(steps)", (96, 96)),
        (f"self.pipeline(image={READ})['image']", "A.Compose([A.HorizontalFlip()])", None),
        ("self.pipeline(Image.open(self.names[i]))", "T.Compose([T.Resize((96, 96))])", (96, 96)),
        ("np.asarray(self.load(self.names[i]).random_crop(32))", "None", None),
        (f"cv2.resize({READ}, None, fx=0.5, fy=0.5)", "None", None),
        (f"(self.load(self.names[i]), cv2.resize({READ}, (32, 32)))", "None", None),
    ],
)
def test_sizes_that_items_are_brought_to(
    item: str, pipeline: str, dims: tuple[int, int] | None, tmp_path: Path
) -> None:
    script = read(tmp_path, BROUGHT.format(item=item, pipeline=pipeline))
    (dataset,) = script.loaders[0].datasets
    shape = item_shape(script, dataset)
    assert (shape and shape.dims) == dims


def test_workers_that_are_raised_are_counted() -> None:
    """A network that is slower than eight workers, and faster than two."""
    text = PHOTOS.format(model=RESNET, side="384", workers="2")
    assert not apply("autocast", text, min_gain=0.01).fixes
    both = apply("autocast num-workers", text, min_gain=0.01)
    assert {f.rule for f in both.fixes} == {"autocast", "num-workers"}


@pytest.mark.parametrize(
    ("load", "saved", "least", "most"),
    [
        ("np.load(self.names[i])", "savez_compressed", 2e-3, 4e-3),
        ("np.load(self.names[i])", "savez", 0.0, 0.2e-3),
        ("torch.load(self.names[i])", "savez", 0.1e-3, 1e-3),
        ("Image.open(self.names[i])", "savez", 2e-3, 8e-3),
    ],
)
def test_files_take_their_time_by_their_kind(
    load: str, saved: str, least: float, most: float, tmp_path: Path
) -> None:
    text = PHOTOS.replace('self.transform(Image.open(self.names[i]).convert("RGB"))', load)
    text = text.replace(
        "import torch", f"import numpy as np\nimport torch\n\nnp.{saved}('a.npz', a=np.ones(9))", 1
    )
    script = read(tmp_path, text.format(model=RESNET, side="9", workers="2"))
    assert least <= making(script, script.loaders[0], 1) <= most


HELPED = """
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import datasets, transforms

to_tensor = transforms.Compose([transforms.Resize(28), transforms.ToTensor()])


class Pictures(Dataset):
    def __init__(self, names):
        self.names = names

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        return to_tensor(Image.open(self.names[i]).convert("L")), 0


def moved(tensor):
    return tensor.cuda() if torch.cuda.is_available() else tensor


def main():
    names = [line.strip() for line in open("names.txt")]
    digits = datasets.MNIST("data", transform=transforms.ToTensor())
    first = DataLoader(digits, batch_size=64, shuffle=True)
    other = DataLoader(Pictures(names), batch_size=64, shuffle=True)
    model = nn.Sequential(nn.Conv2d(1, 64, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10))
    model(torch.zeros(1, 1, 28, 28))
    if torch.cuda.is_available():
        model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(20):
        for loader in (first, other):
            for x, y in loader:
                loss = nn.functional.cross_entropy(model(moved(x)), moved(y))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()


if __name__ == "__main__":
    main()
"""


def test_a_copy_of_several_loaders_counts_on_those_that_get_workers() -> None:
    """MNIST becomes tensors, which need no workers: its own process would pin the batches. The
    pictures get workers, and pinned batches: all in one rewrite (``apply`` tries a second one).
    """
    rules = "batched-dataset num-workers pin-memory non-blocking"
    done = apply(rules, HELPED, min_gain=0.01)
    assert "tensor.cuda(non_blocking=True)" in done.text
    assert done.text.count("pin_memory=") == 1
    pictures = done.text[done.text.index("DataLoader(Pictures") :]
    assert "pin_memory=" in pictures[: pictures.index("model")]
