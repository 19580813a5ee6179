"""uint8-transfer where transforms of torchvision make the floats: the bytes cross to the device,
and become the same floats there.
"""

from __future__ import annotations

import itertools

import pytest

from tests.onerule import apply, run, same_runs
from tests.test_rule_gpu_data import torchvision

pytest.importorskip("PIL")
pytestmark = pytest.mark.usefixtures("torchvision")
__all__ = ["torchvision"]  # a fixture
RULE = "uint8-transfer"
NORMALIZE = "transforms.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))"
SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
normalize = NORMALIZE
train = datasets.CIFAR10("d", transform=transforms.Compose([
    transforms.RandomCrop(32, padding=4),
    transforms.RandomHorizontalFlip(),
    transforms.ToTensor(),
    normalize,
]))
test = datasets.CIFAR10("d", train=False, transform=transforms.Compose([transforms.ToTensor(), normalize]))
loader = DataLoader(train, batch_size=8, shuffle=True)
tests = DataLoader(test, batch_size=8)
model = nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.Flatten(), nn.Linear(900, 3)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
losses, seen = [], []
for epoch in range(2):
    model.train()
    for i, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        seen.append(x)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        for images, labels in tests:
            images = images.to(device)
            losses.append(model(images).sum().item() * len(images))
""".replace("NORMALIZE", NORMALIZE)
COMPOSED = """transforms.Compose([
    transforms.RandomCrop(32, padding=4),
    transforms.RandomHorizontalFlip(),
    transforms.ToTensor(),
    normalize,
])"""


def changed(*pairs: tuple[str, str]) -> str:
    text = SCRIPT
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


def test_what_is_written() -> None:
    done = apply(RULE, SCRIPT)
    assert done.lines == [
        "transforms.PILToTensor(),",
        'test = datasets.CIFAR10("d", train=False, transform=transforms.Compose([transforms.PILToTensor()]))',
        "mean = torch.tensor([0.5, 0.4, 0.3], device=device).view(3, 1, 1)",
        "std = torch.tensor([0.2, 0.3, 0.4], device=device).view(3, 1, 1)",
        "x = (x.float() / 255 - mean) / std",
        "images = (images.float() / 255 - mean) / std",
    ]
    assert "normalize" not in done.text and done.text.count("mean = ") == 1
    same_runs(SCRIPT, done.text)  # bit for bit on a CPU


def test_numbers_stay_as_they_are_written() -> None:
    text = changed((NORMALIZE, "transforms.Normalize((0.50, 0.4, 3e-1), (0.2, 0.30, 0.4))"))
    done = apply(RULE, text)
    assert "mean = torch.tensor([0.50, 0.4, 3e-1], device=device).view(3, 1, 1)" in done.lines
    same_runs(text, done.text)


def test_what_crosses_is_bytes() -> None:
    more = "\nsizes = [next(iter(x))[0].nbytes for x in (loader, tests)]\n"
    before, after = run(SCRIPT + more)["sizes"], run(apply(RULE, SCRIPT).text + more)["sizes"]
    assert [4 * n for n in after] == before


@pytest.mark.parametrize(
    ("pairs", "line"),
    [
        # one number for all channels needs no tensors
        (((NORMALIZE, "transforms.Normalize((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))"),), "x = (x.float() / 255 - 0.5) / 0.25"),
        (((NORMALIZE, "transforms.Normalize([0.5], [0.25])"),), "x = (x.float() / 255 - 0.5) / 0.25"),
        (((f"normalize = {NORMALIZE}\n", ""), (", normalize]", "]"), ("    normalize,\n", "")), "x = x.float() / 255"),
        (((f"normalize = {NORMALIZE}\n", ""), (COMPOSED, "transforms.ToTensor()"), ("transforms.Compose([transforms.ToTensor(), normalize])", "transforms.ToTensor()")), ""),  # kept on the device whole: gpu-data
        # spelled in other ways
        ((("import datasets, transforms\n", "import datasets, transforms\nfrom torchvision.transforms import ToTensor\n"), ("transforms.ToTensor()", "ToTensor()")),
         "x = (x.float() / 255 - mean) / std"),
        ((("datasets, transforms", "datasets, transforms\nimport torchvision.transforms as T"), ("transforms.To", "T.To")), "x = (x.float() / 255 - mean) / std"),
        ((("x.to(device), y.to(device)", "x.cuda(), y.cuda()"), ("images.to(device)", "images.cuda()")), None),
        # transforms v2
        ((("datasets, transforms", "datasets\nfrom torchvision.transforms import v2 as transforms"), ("transforms.ToTensor()", "transforms.ToImage(), transforms.ToDtype(torch.float32, scale=True)")),
         "x = (x.float() / 255 - mean) / std"),
        ((("datasets, transforms", "datasets\nfrom torchvision.transforms import v2 as transforms"),), "x = (x.float() / 255 - mean) / std"),
        # in functions, with the device as a parameter
        ((("for epoch in range(2):\n", "def go(loader, tests, device):\n  for epoch in range(2):\n"),), None),
    ],
)  # fmt: skip
def test_forms(pairs: tuple[tuple[str, str], ...], line: str | None) -> None:
    text = changed(*pairs)
    if "def go" in text:  # the body of the loop is indented once more
        head, body = text.split("def go(loader, tests, device):\n")
        text = f"{head}def go(loader, tests, device):\n" + "".join(
            f"    {x}\n" if x else "\n" for x in body.replace("  for epoch", "for epoch", 1).split("\n")
        ) + "\ngo(loader, tests, device)\n"  # fmt: skip
    done = apply(RULE if line != "" else f"{RULE} gpu-data", text)
    if line == "":
        assert not [f for f in done.fixes if f.rule == RULE]
        return
    assert [f for f in done.fixes if f.rule == RULE], done.refusals
    if line is not None:
        assert line in done.lines
    if ".cuda()" in text:
        assert 'device="cuda"' in done.text
        return
    same_runs(text, done.text)


PHOTOS = """
import numpy as np
from PIL import Image
from torch.utils.data import Dataset


class Photos(Dataset):
    def __init__(self, transform=None):
        self.transform = transform
        self.pictures = np.random.default_rng(0).integers(0, 256, (24, 32, 32, 3), np.uint8)

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, i):
        picture = Image.fromarray(self.pictures[i]).convert("RGB")
        BODY


train = Photos("""
BODIES = (
    "return self.transform(picture), i % 3",
    "if self.transform is not None:\n            picture = self.transform(picture)\n        return picture, i % 3",
    "if self.transform:\n            picture = self.transform(picture)\n        return picture, i % 3",
    "image = self.transform(picture)\n        return image, i % 3",
)


def photos(body: str) -> str:
    text = SCRIPT.replace('train = datasets.CIFAR10("d", ', PHOTOS.replace("BODY", body))
    text = text.replace("transforms.RandomCrop(32, padding=4),\n    transforms.RandomHorizontal", "transforms.RandomVertical")  # fmt: skip
    text = text.replace(
        "    transforms.RandomVerticalFlip(),\n", ""
    )  # of PIL, which the stand-in has not
    return text.replace('datasets.CIFAR10("d", train=False, ', "Photos(")


@pytest.mark.parametrize("body", BODIES)
def test_datasets_of_the_project(body: str) -> None:
    text = photos(body)
    done = apply(RULE, text)
    assert "images = (images.float() / 255 - mean) / std" in done.lines, done.refusals
    same_runs(text, done.text)


def test_modes_of_pictures() -> None:
    """Of what is opened, three numbers for three channels tell that it has eight bits in each; one
    number does not.
    """
    text = photos(BODIES[0]).replace('.convert("RGB")', "")
    done = apply(RULE, text)
    assert "images = (images.float() / 255 - mean) / std" in done.lines, done.refusals
    same_runs(text, done.text)
    grey = text.replace(NORMALIZE, "transforms.Normalize((0.5,), (0.2,))")
    assert "is a picture of eight bits a channel" in apply(RULE, grey).refusals


@pytest.mark.parametrize(
    ("pairs", "why"),
    [
        # what transforms make
        ((("    normalize,\n", "    normalize,\n    transforms.RandomErasing(),\n"),), "RandomErasing comes after ToTensor"),
        ((("    transforms.RandomCrop(32, padding=4),\n", "    lambda image: image,\n"),), "it is not certain that one of the transforms makes bytes of bytes"),
        ((("    transforms.RandomCrop(32, padding=4),\n", "    transforms.Lambda(print),\n"),), "it is not certain that Lambda makes bytes of bytes"),
        ((("datasets, transforms", "datasets\nfrom torchvision.transforms import v2 as transforms"),
          ("transforms.ToTensor()", "transforms.ToImage(), transforms.ToDtype(torch.float32)")), "what ToDtype makes of a picture here is not known"),
        ((("(0.5, 0.4, 0.3)", "torch.rand(3).tolist()"),), "no numbers that are written out"),
        ((("torch.manual_seed(0)", "torch.set_default_dtype(torch.float64)"),), "changes of which type the floats of its transforms are"),
        # who else uses them
        ((("losses, seen = [], []\n", "losses, seen = [], []\nshown = train[0]\n"),), "takes something out of `train`"),
        ((("losses, seen = [], []\n", "losses, seen = [], []\ntrain.transform = transforms.ToTensor()\n"),), "uses `train.transform`"),
        ((("losses, seen = [], []\n", "losses, seen = [], []\nloader.dataset.transform = None\n"),), "uses `loader.dataset.transform`"),
        ((("losses, seen = [], []\n", "losses, seen = [], []\ntrain.transform.transforms.insert(0, print)\n"),), "uses `train.transform"),
        ((("        seen.append(x)\n", "        seen.append(x)\n        print(train.data.shape, x)\n"), ("        x, y = x.to(device), y.to(device)\n", "        x2, y = x.to(device), y.to(device)\n")),
         "in host memory, before it is on the device"),
        ((("images = images.to(device)", "images = (images + 1).to(device)"),), "in host memory"),
        ((("images = images.to(device)", "if epoch:\n                images = images.to(device)"),), "`images` may be something else"),
        ((("shuffle=True)", "shuffle=True, collate_fn=torch.utils.data.default_collate)"),), "collate_fn"),
        ((("x.to(device), y.to(device)", "x.cuda(None), y.cuda(None)"),), "may be None"),
        ((("    model.train()\n", "    model.train()\n    device = torch.device(device)\n"),
          ("        x, y = x", "        device = torch.device(device)\n        x, y = x")), "the device is set in the loop"),
    ],
)  # fmt: skip
def test_left_alone(pairs: tuple[tuple[str, str], ...], why: str) -> None:
    done = apply(RULE, changed(*pairs))
    assert why in done.refusals, done.refusals
    assert "x.float()" not in done.text  # (items for the test alone may be bytes)


def test_one_transform_for_another_use() -> None:
    text = SCRIPT.replace(COMPOSED, "both").replace("train = ", f"both = {COMPOSED}\ntrain = ")
    assert apply(RULE, text).fixes
    for use in ("shown = both(train.data[0])", "both.transforms.append(print)"):
        done = apply(RULE, f"{text}\n{use}\n")
        assert not done.fixes and "a transform" in done.refusals


def test_transforms_that_end_in_different_ways_are_told_apart() -> None:
    """Each set is normalised by its own numbers."""
    other = "transforms.Normalize((0.1, 0.2, 0.3), (0.2, 0.3, 0.4))"
    text = changed(("[transforms.ToTensor(), normalize]", f"[transforms.ToTensor(), {other}]"))
    done = apply(RULE, text)
    assert len(done.fixes) == 2 and "mean_2 = torch.tensor([0.1, 0.2, 0.3]" in done.text
    same_runs(text, done.text)


def test_a_loop_for_loaders_of_both_kinds() -> None:
    other = "transforms.Normalize((0.1, 0.2, 0.3), (0.2, 0.3, 0.4))"
    text = changed(
        ("[transforms.ToTensor(), normalize]", f"[transforms.ToTensor(), {other}]"),
        ("in tests:", "in [*tests, *loader]:"),
    )
    assert not apply(RULE, text).fixes


def test_another_script_uses_the_loaders() -> None:
    body = SCRIPT[SCRIPT.index("normalize =") : SCRIPT.index("model =")]
    inner = "".join(f"    {line}\n" for line in body.strip().split("\n"))
    text = SCRIPT.replace(body, f"def loaders():\n{inner}    return loader, tests\n\n\nloader, tests = loaders()\n")  # fmt: skip
    assert apply(RULE, text).fixes
    other = "from train import loaders\n\nfor x, y in loaders()[1]:\n    print(x.mean())\n"
    done = apply(RULE, text, files={"show.py": other})
    assert not done.fixes and "show.py:3 uses loaders, too" in done.refusals


RULES = ("pin-memory", "non-blocking", "channels-last", "gpu-augmentation", "autocast", "num-workers")  # fmt: skip


@pytest.mark.parametrize("others", [c for n in (1, 2, 6) for c in itertools.combinations(RULES, n)])
def test_beside_other_rules(others: tuple[str, ...]) -> None:
    """With every subset the images that the model is given are the same, but where these draw
    otherwise.
    """
    done = apply(" ".join((RULE, *others)).replace("augmentation", "augmentation gpu-data"), SCRIPT)
    mine = [f for f in done.fixes if f.rule == RULE]
    assert bool(mine) is ("gpu-augmentation" not in others)
    if mine and not {"autocast", "num-workers"} & set(others):
        before, after = run(SCRIPT)["seen"], run(done.text)["seen"]
        assert all(bool((a == b).all()) for a, b in zip(before, after, strict=True))
