"""gpu-data for items that the project's own code makes: each item by draws of its own, with the
values that ``__getitem__`` makes of the same draws; and what has no form for batches."""

from __future__ import annotations

import random
import sys
import textwrap
import types
from typing import Any

import numpy
import pytest

from autofast.rule import Effect
from tests.onerule import Applied, apply, run, same, same_runs
from tests.test_rule_gpu_data import BODY, LOOP, PLAIN, RULE, text_of

torch = pytest.importorskip("torch")
IMAGES = """
self.images = numpy.random.default_rng(0).integers(0, 256, (count, 12, 12, 3)).astype(numpy.uint8)
self.labels = numpy.random.default_rng(1).integers(0, 2, count)
"""
PAIRS = """
rng = numpy.random.default_rng(0)
self.images, self.masks = [], []
for _ in range(count):
    image = rng.integers(0, 256, (8, 8)).astype(numpy.uint8)
    self.images.append(image)
    self.masks.append((image > 99).astype(numpy.uint8))
"""
# Of how many dimensions these are, only numpy.mgrid says.
DISCS = """
rng = numpy.random.default_rng(0)
y, x = numpy.mgrid[0:8, 0:8]
self.images, self.masks = [], []
for _ in range(count):
    middle = rng.uniform(2, 6, 2)
    mask = (x - middle[0]) ** 2 + (y - middle[1]) ** 2 < 4
    self.masks.append(mask.astype(numpy.uint8))
    self.images.append((100 * mask + rng.integers(0, 120, mask.shape)).astype(numpy.uint8))
"""
SIGNALS = """
self.signals = torch.randn(count, 3, 40)
self.labels = torch.randint(0, 2, (count,))
"""
TO_TENSOR = "return torch.from_numpy(image.transpose(2, 0, 1).copy()), int(self.labels[index])"
ARRAYS = """
import numpy as np
MEAN = np.array([0.5, 0.4, 0.3], dtype=np.float32)
STD = np.array([0.2, 0.3, 0.4], dtype=np.float32)
"""
CIFAR = f"""
image = self.images[index]
if self.train:
    image = numpy.pad(image, ((2, 2), (2, 2), (0, 0)))
    top, left = numpy.random.randint(0, 5), numpy.random.randint(0, 5)
    image = image[top : top + 12, left : left + 12]
    if numpy.random.rand() < 0.5:
        image = image[:, ::-1]
image = (image.astype(numpy.float32) / 255 - MEAN) / STD
{TO_TENSOR}
"""
UNET = """
image, mask = self.images[index], self.masks[index]
if random.random() > 0.5:
    image, mask = numpy.fliplr(image), numpy.fliplr(mask)
turns = random.randint(0, 3)
image, mask = numpy.rot90(image, turns), numpy.rot90(mask, turns)
image = torch.from_numpy(image.copy()).float() / 255.0
return image.unsqueeze(0), torch.from_numpy(mask.copy()).float()
"""

FLIPPED = f"""
image = self.images[index]
if random.random() < 0.5:
    image = image[:, ::-1]
{TO_TENSOR}
"""


def dataset(init: str, getitem: str, method: str = "") -> str:
    return f"""{ARRAYS}
class Pictures(Dataset):
    def __init__(self, count, train=True):
        self.train = train
        self.shift = 4
{textwrap.indent(init.strip(), "        ")}

    def __len__(self):
        return len(self.{"signals" if "signals" in init else "images"})

    def __getitem__(self, index):
{textwrap.indent(getitem.strip(), "        ")}
{textwrap.indent(method, "    ")}
"""


def script(
    init: str,
    getitem: str,
    setup: str = PLAIN,
    method: str = "",
    body: str = BODY,
    loop: str = LOOP,
) -> str:
    made = dataset(init, getitem, method)
    if "masks" in init:
        body += "\ny = y.flatten(1).amax(1)"
    return text_of(f"data = Pictures(30)\n{setup}", made, loop=loop, body=body)


def written(text: str) -> Applied:
    found = apply(RULE, text)
    assert any(f.rule == RULE for f in found.fixes), (found.refusals, found.advice)
    return found


# ----------------------------------------------------------------------------------- the same draws
class Replayed:
    """Draws of batches, noted, and given to ``__getitem__`` once more, each at its place in the
    code.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.patch = monkeypatch
        self.drawn: list[Any] = []
        self.places: set[tuple[int, int]] = set()
        self.item = 0
        for name in ("rand", "randn", "randint"):
            self.patch.setattr(torch, name, self._noting(getattr(torch, name)))

    def _noting(self, function: Any) -> Any:
        def noting(*args: Any, **given: Any) -> Any:
            found = function(*args, **given)
            if "device" in given:
                self.drawn.append(found)
            return found

        return noting

    def give(self) -> None:
        """From now on the draws are those that were noted, for ``self.item``."""

        def place() -> Any:
            frame = sys._getframe(2)
            self.places |= {(frame.f_lineno, frame.f_lasti)}
            n = sorted(self.places).index((frame.f_lineno, frame.f_lasti))
            return self.drawn[n][self.item] if n < len(self.drawn) else torch.zeros(())

        def unit(*size: Any) -> Any:
            return _plain(place())

        def whole(*bounds: Any) -> int:
            return int(place())

        def span(low: float = 0.0, high: float = 1.0) -> float:
            return low + (high - low) * float(place())

        def bell(mean: float = 0.0, width: float = 1.0, size: Any = None) -> Any:
            drawn = place()
            if size is not None and drawn.shape != tuple(size):
                return numpy.zeros(size)
            return mean + width * _plain(drawn)

        def like(given: Any) -> Any:
            drawn = place()
            return drawn if drawn.shape == given.shape else torch.zeros_like(given)

        for module in (random, numpy.random):
            self.patch.setattr(module, "random", unit)
            self.patch.setattr(module, "randint", whole)
            self.patch.setattr(module, "uniform", span)
        for name, function in (("rand", unit), ("randn", unit), ("normal", bell)):
            self.patch.setattr(numpy.random, name, function)
        self.patch.setattr(random, "gauss", bell)
        self.patch.setattr(torch, "rand", lambda *_: place().reshape(1))
        self.patch.setattr(torch, "randint", lambda *_: place().reshape(1))
        self.patch.setattr(torch, "randn_like", like)


def _plain(drawn: Any) -> Any:
    return float(drawn) if drawn.dim() == 0 else drawn.numpy().astype(float)


def made_in(text: str) -> tuple[Any, Any]:
    """The loader that a script makes, and its dataset."""
    text = text.replace('__name__ == "__main__"', "False")
    made: tuple[Any, Any] = run(text.replace("    model = ", "    return loader, data\n    model = "))["main"]()  # fmt: skip
    return made


def batches_alike(text: str, monkeypatch: pytest.MonkeyPatch, near: float = 0.0) -> str:
    """Asserts that whole batches are what ``__getitem__`` makes of each item with the same draws;
    gives the rewritten text.
    """
    new = written(text).text
    # The last batch has 6 items.
    loader, data = made_in(written(text.replace(", shuffle=True", "")).text)
    replayed = Replayed(monkeypatch)
    batches = iter(loader)
    for number in range(4):
        replayed.drawn.clear()
        monkeypatch.undo()
        replayed.__init__(monkeypatch)  # type: ignore[misc]
        made = next(batches)
        indices = range(number * 8, min(30, number * 8 + 8))
        for drawn in replayed.drawn:
            assert len(drawn) == len(indices)  # one for each item, or many
        replayed.give()
        for _ in range(2):  # the first time, the places are found
            items = []
            for replayed.item, index in enumerate(indices):
                items.append(data[index])
        collated = torch.utils.data.default_collate(items)
        if not near:
            same(collated, made)
            continue
        pairs = zip(*(list(b.values() if isinstance(b, dict) else b) for b in (collated, made)), strict=True)  # fmt: skip
        for one, other in pairs:
            assert one.dtype == other.dtype and one.stride() == other.stride()
            assert torch.allclose(one, other, rtol=near, atol=near)
    monkeypatch.undo()
    assert len(list(loader)) == len(loader) == 4
    run(new)  # and the script runs
    return new


@pytest.mark.parametrize(
    ("init", "getitem"),
    [
        (PAIRS, UNET.replace(" / 255.0", "")),
        (DISCS, UNET.replace(" / 255.0", "")),
        (IMAGES, f"image = self.images[index]\nif random.random() < 0.3:\n    image = image[::-1]\n{TO_TENSOR}"),
        (IMAGES, f"image = self.images[index]\nif random.random() < 0.5:\n    image = numpy.flip(image, axis=(0, 1))\n{TO_TENSOR}"),
        (IMAGES, f"image = self.images[index].copy()\nk = numpy.random.randint(4)\nimage = numpy.rot90(image, k)\n{TO_TENSOR}"),
        (IMAGES, f"image = self.images[index]\nif self.train and numpy.random.rand() < 0.5:\n    image = numpy.flipud(image)\n{TO_TENSOR}"),
        (IMAGES, f"p = random.random()\nimage = self.images[index]\nif p < 0.3:\n    image = image[:, ::-1]\nelif p < 0.6:\n    image = image[::-1]\nelse:\n    image = image[::-1, ::-1]\n{TO_TENSOR}"),
        (IMAGES, f"image = self.images[index]\nif random.random() < 0.6:\n    image = image[:, ::-1]\n    if random.random() < 0.6:\n        image = image[::-1]\n{TO_TENSOR}"),
        (IMAGES, f"image = self.images[index]\nh, w = image.shape[:2]\ny = random.randint(0, h - 8)\nx = random.randint(0, w - 8)\nimage = image[y : y + 8, x : x + 8]\n{TO_TENSOR}"),
        (IMAGES, f"image = self.images[index]\nx = numpy.random.randint(0, self.shift + 1)\nimage = image[:, x : x + 8]\n{TO_TENSOR}"),
        (IMAGES, "x = torch.from_numpy(self.images[index]).permute(2, 0, 1)\nx = nn.functional.pad(x, (2, 2, 2, 2))\ni = torch.randint(0, 5, (1,)).item()\nj = torch.randint(0, 5, (1,)).item()\nreturn x[:, i : i + 12, j : j + 12], torch.tensor(self.labels[index], dtype=torch.long)"),
        (SIGNALS, "x = self.signals[index]\ns = random.randint(0, 8)\nx = x[:, s : s + 32]\nif torch.rand(1) < 0.5:\n    x = x.flip(-1)\nif torch.rand(1).item() < 0.5:\n    x = x * -1\nreturn x, self.labels[index]"),
        (SIGNALS.replace("randn(count, 3, 40)", "randint(0, 9, (count, 3, 40))"), "x = self.signals[index]\nif torch.rand(1) < 0.5:\n    x = x.flip(-1)\nreturn x.float(), self.labels[index]"),
        (IMAGES, "if torch.is_tensor(index):\n    index = index.tolist()\nimage = self.images[index]\nif random.random() < 0.5:\n    image = numpy.fliplr(image)\nx = torch.from_numpy(image.copy()).float()\nreturn x.reshape(-1), torch.tensor(self.labels[index])"),
    ],
)  # fmt: skip
def test_moves(init: str, getitem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flips, turns and crops of the same draws: the same batches to the last bit, in the same
    memory order.
    """
    batches_alike(script(init, getitem), monkeypatch)


def test_functions_that_stay() -> None:
    code = "def changed(image):\n    return image[::-1]\n"
    getitem = f"image = self.images[index]\nif random.random() < 0.5:\n    image = image[::-1]\nimage = changed(image)\n{TO_TENSOR}"
    found = apply(RULE, script(IMAGES, getitem).replace("\ndef main", f"{code}\ndef main"))
    assert not found.fixes and "`changed` has no form for batches" in found.refusals, found.refusals


def test_a_dataset_in_a_file_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The method goes there, where small arrays of that file are known."""
    head = "import random\nimport numpy\nimport torch\nfrom torch.utils.data import Dataset\n"
    text = text_of(f"data = Pictures(30)\n{PLAIN}", "from pictures import Pictures\n")
    for getitem in (FLIPPED, CIFAR):
        found = apply(RULE, text, files={"pictures.py": head + dataset(IMAGES, getitem)})
        assert "def batch(self, arrays):" in found.texts["pictures.py"]
        module = types.ModuleType("pictures")
        exec(found.texts["pictures.py"], module.__dict__)
        monkeypatch.setitem(sys.modules, "pictures", module)
        assert len(run(found.text)["seen"]) == 12


@pytest.mark.parametrize(
    "getitem",
    [
        "return torch.from_numpy(self.images[index : index + 4]), self.labels[index]",
        "return torch.from_numpy(self.images[index + 1]), self.labels[index]",
        "return torch.from_numpy(self.images[index]), index",
        f"image = self.images[index]\nif index % 2:\n    image = image[::-1]\n{TO_TENSOR}",
    ],
)
def test_windows_and_indices_have_no_form(getitem: str) -> None:
    found = apply(RULE, script(IMAGES, getitem))
    assert not found.fixes and "for something else than to index arrays" in found.refusals


@pytest.mark.parametrize(
    ("init", "getitem"),
    [
        (IMAGES, CIFAR),
        (PAIRS, UNET),
        (IMAGES, f"image = self.images[index].astype(numpy.float32) / 255.0\nimage = image * random.uniform(0.8, 1.2)\nimage = image + numpy.random.normal(0, 0.1, image.shape)\nimage = numpy.clip(image, 0, 1).astype(numpy.float32)\n{TO_TENSOR}"),
        (IMAGES, f"image = self.images[index].astype(float) / 255.0\nif random.random() < 0.5:\n    gain = random.uniform(0.5, 1.5)\n    image = image * gain\nimage = (image + 0.1 * numpy.random.randn(*image.shape)).astype(numpy.float32)\n{TO_TENSOR}"),
        (IMAGES, "image = self.images[index].astype(numpy.float32)\nimage /= 255.0\nimage -= 0.5\nx = torch.from_numpy(image.transpose(2, 0, 1))\nif random.random() < 0.5:\n    x = x + 0.05 * torch.randn_like(x)\nreturn {'image': x, 'label': int(self.labels[index])}"),
        (IMAGES, f"image = numpy.log1p(self.images[index].astype(numpy.float32))\nimage = numpy.sqrt(image) * random.uniform(0.8, 1.2)\n{TO_TENSOR}"),
        (SIGNALS, "x = self.signals[index].abs().sqrt().to(torch.float)\nif random.random() < 0.7:\n    x = torch.tanh(x)\nreturn x, self.labels[index]"),
        (SIGNALS, "x = self.signals[index]\nif random.random() < 0.7:\n    x = x * random.gauss(1.0, 0.2)\nx = (x - x.new_zeros(1) if False else x).div(2.0)\nreturn x.clamp(-1, 1), self.labels[index]"),
    ],
)  # fmt: skip
def test_arithmetic(init: str, getitem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise, factors and normalisation of the same draws: the same batches, but for rounding."""
    text = script(init, getitem)
    if "return {" in getitem:
        body = "x, y = batch['image'].to(device), batch['label'].to(device)"
        text = script(init, getitem, body=body, loop="for batch in loader:")
    if "new_zeros" in getitem:
        assert "has no form for batches" in apply(RULE, text).refusals
        text = text.replace("x = (x - x.new_zeros(1) if False else x)", "x = x")
    batches_alike(text, monkeypatch, near=2e-6)


def test_what_is_written() -> None:
    lines = written(script(IMAGES, CIFAR)).lines
    assert "def batch(self, arrays):" in lines and "image, labels = arrays" in lines
    assert "mean = torch.as_tensor(MEAN, dtype=torch.float32, device=device)" in lines
    assert "image = torch.where(chosen[:, None, None, None], image.flip(2), image)" in lines
    assert "image = (image.float() / 255 - mean) / std" in lines
    assert "return [image.permute(0, 3, 1, 2).contiguous(), labels]" in lines
    made = (
        "torch.as_tensor(numpy.ascontiguousarray(t)).to(device) for t in (data.images, data.labels)"
    )
    assert f"*({made})" in lines
    assert (
        "loader = DataLoader(tensors, batch_size=None, collate_fn=data.batch, sampler=batches)"
        in lines
    )


# -------------------------------------------------------------------------------------------- draws
def test_draws_within_a_batch_are_independent() -> None:
    """All flips and places are equally frequent, and an image's say nothing of those of the one
    beside it.
    """
    text = script(IMAGES, CIFAR).replace("range(3)", "range(120)")
    scope = run(written(text).text)
    data = scope["Pictures"](30)
    padded = numpy.pad(data.images, ((0, 0), (2, 2), (2, 2), (0, 0)))
    known: dict[bytes, tuple[int, int, int]] = {}
    for image in padded:
        for top in range(5):
            for left in range(5):
                part = image[top : top + 12, left : left + 12]
                for flip, one in enumerate((part, part[:, ::-1])):
                    known[one[4:8, 4:8].tobytes()] = top, left, flip
    mean, std = (scope[n].reshape(3, 1, 1) for n in ("MEAN", "STD"))
    counts, pairs = torch.zeros(50), []
    for x, *_ in scope["seen"]:
        pixels = ((x.numpy() * std + mean) * 255).round().astype(numpy.uint8).transpose(0, 2, 3, 1)
        found = [known[numpy.ascontiguousarray(p[4:8, 4:8]).tobytes()] for p in pixels]
        for top, left, flip in found:
            counts[top * 10 + left * 2 + flip] += 1
        pairs += zip(found, found[1:], strict=False)
    expected = counts.sum() / 50
    assert counts.sum() == 120 * 30
    assert ((counts - expected) ** 2 / expected).sum() < 50 + 4 * 100**0.5  # chi squared
    for part, places in enumerate((5, 5, 2)):
        alike = sum(a[part] == b[part] for a, b in pairs) / len(pairs)
        spread = (1 / places * (1 - 1 / places) / len(pairs)) ** 0.5
        assert abs(alike - 1 / places) < 4 * spread


def test_a_draw_for_a_whole_batch_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above fail for a method that draws once."""
    text = script(IMAGES, CIFAR)
    new = written(text).text
    once = new.replace("torch.rand(n, device=device) < 0.5", "(torch.rand(1, device=device) < 0.5).expand(n)")  # fmt: skip
    assert once != new
    monkeypatch.setattr(sys.modules[__name__], "written", lambda _: Applied((), {"train.py": once}, text))  # fmt: skip
    with pytest.raises(AssertionError):
        batches_alike(text, monkeypatch, near=2e-6)


def test_effects() -> None:
    assert {f.effect for f in written(script(IMAGES, CIFAR)).fixes} == {Effect.SAMPLING}
    plain = f"image = self.images[index].astype(numpy.float32) / 255\n{TO_TENSOR}"
    assert {f.effect for f in written(script(IMAGES, plain)).fixes} == {Effect.ROUNDING}
    cast = f"image = self.images[index].astype(numpy.float32)\n{TO_TENSOR}"
    assert {f.effect for f in written(script(IMAGES, cast)).fixes} == {Effect.EXACT}


def test_items_without_draws_are_the_same_training() -> None:
    """Casts and moves alone: the same batches, losses and random numbers as before."""
    text = script(IMAGES, f"image = self.images[index].astype(numpy.float32)\n{TO_TENSOR}")
    same_runs(text, written(text).text)


# ------------------------------------------------------------------------------------------ loaders
@pytest.mark.parametrize(
    ("setup", "sizes"),
    [
        ("loader = DataLoader(data, batch_size=8, shuffle=True, drop_last=True)", [8, 8, 8]),
        ("part = Subset(data, range(3, 24))\nloader = DataLoader(part, batch_size=8, shuffle=True)", [8, 8, 5]),
        ("train, rest = random_split(data, [20, 10])\nloader = DataLoader(train, batch_size=8, shuffle=True)", [8, 8, 4]),
        ("loader = DataLoader(data, batch_size=8, sampler=WeightedRandomSampler(torch.ones(30), 20))", [8, 8, 4]),
        ("loader = DataLoader(Subset(data, [5, 4, 3, 2]), batch_size=3)", [3, 1]),
    ],
)  # fmt: skip
def test_loaders(setup: str, sizes: list[int]) -> None:
    """The same items in the same batches, whatever the loader takes of the data: here by their
    labels and red corners.
    """
    getitem = CIFAR.replace("if self.train:", "if self.train and False:")
    text = script(IMAGES, CIFAR, setup)
    new = written(text).text
    assert "collate_fn=" in new
    plain = run(script(IMAGES, getitem, setup))
    made = run(new.replace("        if self.train:\n            image = torch", "        if False:\n            image = torch"))  # fmt: skip
    assert [len(x) for x, *_ in made["seen"]] == sizes * 3
    for (x, y, *_), (u, v, *_) in zip(plain["seen"], made["seen"], strict=True):
        assert torch.equal(y, v) and torch.allclose(x, u, atol=1e-6)


def test_a_loader_for_evaluation_is_served_beside_it() -> None:
    setup = f"{PLAIN}\nvalid = DataLoader(Pictures(12, train=False), batch_size=5)"
    setup += "\nglobal shown\nshown = []\nfor u, v in valid:\n    u, v = u.to(device), v.to(device)\n    shown.append((u, v))"
    text = script(IMAGES, CIFAR, setup)
    new = written(text).text
    assert "collate_fn=data.batch" in new and "collate_fn=valid_dataset.batch" in new
    for (u, v), (x, y) in zip(run(text)["shown"], run(new)["shown"], strict=True):
        assert torch.allclose(u, x, atol=1e-6) and torch.equal(v, y)


def test_a_whole_or_a_part_stays() -> None:
    setup = "loader = DataLoader(data if len(data) > 40 else Subset(data, [5, 4]), batch_size=3)"
    found = apply(RULE, script(IMAGES, CIFAR, setup))
    assert not found.fixes and "may be the whole or a part" in found.refusals


# --------------------------------------------------------------------------------------- what stays
KEEPS = f"image = self.images[index]\n{{}}\n{TO_TENSOR}"


@pytest.mark.parametrize(
    ("getitem", "reason"),
    [
        (KEEPS.format("if self.labels[index] == 1:\n    image = image[::-1]"), "has no form for batches"),
        (KEEPS.format("image = image if other[index] else image[::-1]"), "has no form for batches"),
        (KEEPS.format("numpy.random.seed(index)\nif numpy.random.rand() < 0.5:\n    image = image[::-1]"), "has no form for batches"),
        (KEEPS.format("for _ in range(2):\n    if random.random() < 0.5:\n        image = image[::-1]"), "has no form for batches"),
        (KEEPS.format("if random.random() < 0.5:\n    image = image[2:10, 2:10]"), "may have another shape by chance"),
        (KEEPS.format("if random.random() < 0.5:\n    image = image.astype(numpy.float32)"), "is of another type or shape by chance"),
        (KEEPS.format("x = numpy.random.randint(-3, 3)\nimage = image[x : x + 4]"), "where a part begins is not known"),
        (KEEPS.format("x = numpy.random.randint(0, 1)\nimage = image[x : x + 40]"), "whether a part ends in the image is not known"),
        (KEEPS.format("x = numpy.random.randint(0, int(self.shift) - 3)\nimage = image[x : x + 40]"), "whether a part ends in the image is not known"),
        (KEEPS.format("n = random.randint(4, 12)\nimage = image[:n]"), "has no form for batches"),
        (KEEPS.format("image += 1"), "may change the data themselves"),
        (KEEPS.format("y = random.randint(0, 4)\nimage = image[y : y + 8]\nimage += 1"), "may change the data themselves"),
        (KEEPS.format("image = numpy.asarray(image)\nimage += 1"), "may change the data themselves"),
        (KEEPS.format("image[0] = 0\nif random.random() < 0.5:\n    image = image[::-1]"), "has no form for batches"),
        (KEEPS.format("image = image * 300"), "leaves the range of bytes"),
        (KEEPS.format("if random.random() < 0.5:\n    image = image[::-1]\nimage = image / 255"), "gives items of type float64"),
        (KEEPS.format("image = numpy.pad(image, ((2, 2), (2, 2), (0, 0)), mode='reflect')\nif random.random() < 0.5:\n    image = image[::-1]"), "fills borders in a way"),
        (KEEPS.format("if random.random() < 0.5:\n    image = numpy.rot90(image, random.choice([1, 3]))"), "has no form for batches"),
        (KEEPS.format("image = image[::-1] if random.random() < 0.5 else image"), "has no form for batches"),
        (KEEPS.format("image = image * other[index] if random.random() < 0.5 else image"), "has no form for batches"),
        (KEEPS.format("if random.random() < 0.5:\n    return image, 0"), "has no form for batches"),
        ("index = self.labels[index]\nimage = self.images[index].astype(numpy.float32)\n" + TO_TENSOR, "has no form for batches"),
        ("if random.random() < 0.5:\n    image = self.images[index]\nelse:\n    image = self.images[0]\n" + TO_TENSOR, "has no form for batches"),
    ],
)  # fmt: skip
def test_items_that_stay(getitem: str, reason: str) -> None:
    found = apply(RULE, script(IMAGES, getitem).replace("def main", "other = [1]\n\ndef main"))
    assert not found.fixes and reason in found.refusals, found.refusals


@pytest.mark.parametrize(
    ("init", "getitem", "reason"),
    [
        ("self.images = [numpy.zeros((8 + i, 8), dtype=numpy.uint8) for i in range(count)]", "x = random.randint(0, 2)\nimage = self.images[index][x : x + 4]\nreturn torch.from_numpy(image.copy()), 1.0", "cuts images of a list"),
        ("self.images = {i: numpy.zeros((8, 8), dtype=numpy.uint8) for i in range(count)}", "image = self.images[index]\nif random.random() < 0.5:\n    image = image[::-1]\nreturn torch.from_numpy(image.copy()), torch.zeros(2)", "is not known to be one array"),
        ("self.images = numpy.load('images.npy', mmap_mode='r')", "image = self.images[index]\nif random.random() < 0.5:\n    image = image[::-1]\nreturn torch.from_numpy(image.copy()), torch.zeros(2)", "is not known to be one array"),
        ("self.images = numpy.load('images.npy')", "image = torch.from_numpy(self.images[index]).float()\nimage -= 0.5\nreturn image, torch.zeros(2)", "may change the data themselves"),
        ("self.images = numpy.load('images.npy')", "image = self.images[index].astype(numpy.float32)\nif random.random() < 0.5:\n    image = image[::-1]\nreturn torch.from_numpy(image), 1", "of which type"),
        (IMAGES + "\nself.seen = 0", CIFAR.replace("image = self.images[index]", "image = self.images[index]\nself.seen += 1"), "changes `self.seen`"),
    ],
)  # fmt: skip
def test_data_that_stay(init: str, getitem: str, reason: str) -> None:
    found = apply(RULE, script(init, getitem))
    assert not found.fixes and reason in found.refusals, found.refusals


@pytest.mark.parametrize(
    "write", ["data.images[0] = 1", "data.images = data.images[::-1]", "data.train = False", "MEAN[0] = 1"]
)  # fmt: skip
def test_data_that_are_changed_stay(write: str) -> None:
    found = apply(RULE, script(IMAGES, CIFAR, f"{PLAIN}\n{write}"))
    assert not found.fixes and "of which items are made" in found.refusals, found.refusals


def test_other_methods_and_classes_stay() -> None:
    base = script(IMAGES, CIFAR).replace("Pictures(Dataset)", "Pictures(some.Base, Dataset)")
    assert "may have a method of its own" in apply(RULE, f"import some\n{base}").refusals
    own = script(IMAGES, CIFAR, method="def batch(self):\n    return 1\n")
    assert "it has a `batch` of its own" in apply(RULE, own).refusals
    other = dataset(IMAGES, CIFAR).replace("class Pictures", "class Others").replace(ARRAYS, "")
    setup = f"{PLAIN}\nvalid = DataLoader(Others(9), batch_size=5)\nfor u, v in valid:\n    u = u.to(device)"
    text = script(IMAGES, CIFAR, setup).replace("\ndef main", f"{other}\n\ndef main")
    found = written(text)
    assert found.text.count("def batch(self, arrays):") == 2
    run(found.text)
