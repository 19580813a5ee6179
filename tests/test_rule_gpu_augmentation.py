"""gpu-augmentation: every image of a batch is cropped and flipped by draws of its own, with the
distribution that it had; and what is left alone.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from autofast.commands import planning
from autofast.config import Config
from autofast.rule import Effect
from tests.onerule import Applied, apply, run, same
from tests.pretend.torchvision import CIFAR10
from tests.test_rule_gpu_data import (
    COLOUR,
    GREY,
    IMPORTS,
    PLAIN,
    text_of as plain_text,
    torchvision,
)

torch = pytest.importorskip("torch")
__all__ = ["torchvision"]  # a fixture
RULE = "gpu-augmentation"
CROP, FLIP = "transforms.RandomCrop(32, padding=4)", "transforms.RandomHorizontalFlip()"
TEST_SET = f"test = datasets.CIFAR10('d', train=False, transform=transforms.Compose([transforms.ToTensor(), {COLOUR}]))"
TESTED = f"{TEST_SET}\ntests = DataLoader(test, batch_size=10)"


def text_of(*drawn: str, name: str = "CIFAR10", after: str = COLOUR, more: str = "") -> str:
    parts = ", ".join([*drawn, "transforms.ToTensor()", *([after] if after else [])])
    data = f"data = datasets.{name}('d', transform=transforms.Compose([{parts}]))"
    return plain_text("\n".join(filter(None, [data, PLAIN, more])), IMPORTS)


def written(text: str, rules: str = "gpu-data") -> Applied:
    found = apply(f"{RULE} {rules}", text)
    assert any(f.rule == RULE for f in found.fixes), (found.refusals, found.advice)
    return found


def middle(image: Any) -> tuple[float, ...]:
    """A part of an image (channels, height, width) of noise, by which it is known."""
    n = image.shape[1] // 2
    return tuple(image[:, n - 1 : n + 1, n - 1 : n + 1].flatten().tolist())


def crops(image: Any, size: int, flips: tuple[int, ...]) -> list[tuple[float, ...]]:
    """The middles of all that may become of a padded image, by what was drawn: place, then flip."""
    places = range(image.shape[1] - size + 1)
    each = [image[:, y : y + size, x : x + size] for y in places for x in places]
    return [middle(v) for one in each for v in (one, one.flip(flips))[: 1 + bool(flips)]]


# ------------------------------------------------------------------------------------ what is drawn
@pytest.mark.parametrize(
    ("drawn", "size", "padding", "flips"),
    [
        ((CROP, FLIP), 32, 4, (2,)),
        ((FLIP, CROP), 32, 4, (2,)),
        (("transforms.Pad(2)", FLIP, "transforms.RandomCrop((32, 32))"), 32, 2, (2,)),
        (("transforms.RandomCrop(24)", "transforms.RandomVerticalFlip()"), 24, 0, (1,)),
        ((FLIP,), 32, 0, (2,)),
        ((CROP,), 32, 4, ()),
    ],
)
@pytest.mark.usefixtures("torchvision")
def test_every_image_has_draws_of_its_own(
    drawn: tuple[str, ...], size: int, padding: int, flips: tuple[int, ...]
) -> None:
    """Each image of a batch is one of the crops that it may become, and all of them are equally
    frequent.
    """
    scope = run(written(text_of(*drawn)).text.replace("range(3)", "range(60)"))
    data = CIFAR10("d")
    whole = torch.from_numpy(data.data).permute(0, 3, 1, 2).float() / 255
    whole = torch.nn.functional.pad(whole, [padding] * 4)
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in ((0.5, 0.4, 0.3), (0.2, 0.3, 0.4)))
    each = [crops(image, size, flips) for image in (whole - mean) / std]
    known = {made: which for image in each for which, made in enumerate(image)}
    counts = torch.zeros(len(each[0]))
    for x, *_ in scope["seen"]:
        batch = []
        assert x.is_contiguous()
        for image in x:
            batch.append(known[middle(image)])
            counts[batch[-1]] += 1
        assert len(set(batch)) > 1 or len(counts) == 2
    assert counts.sum() == 60 * 30
    expected = counts.sum() / len(counts)
    spread = ((counts - expected) ** 2 / expected).sum()
    assert spread < len(counts) + 4 * (2 * len(counts)) ** 0.5  # chi squared, four deviations


@pytest.mark.usefixtures("torchvision")
def test_draws_within_a_batch_are_independent() -> None:
    """Whether an image is flipped says nothing of the one beside it."""
    scope = run(written(text_of(FLIP)).text.replace("range(3)", "range(200)"))
    data = CIFAR10("d")
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in ((0.5, 0.4, 0.3), (0.2, 0.3, 0.4)))
    whole = torch.from_numpy(data.data).permute(0, 3, 1, 2).float() / 255
    plain = set(map(middle, (whole - mean) / std))
    pairs = []
    for x, *_ in scope["seen"]:
        unflipped = [middle(image) in plain for image in x]
        pairs += [*zip(unflipped, unflipped[1:], strict=False)]
    alike = sum(a == b for a, b in pairs) / len(pairs)
    assert abs(alike - 0.5) < 4 * 0.5 / len(pairs) ** 0.5


@pytest.mark.usefixtures("torchvision")
def test_other_data_and_transforms() -> None:
    grey = written(text_of("transforms.RandomCrop(28, padding=2)", name="MNIST", after=GREY))
    assert run(grey.text)["seen"][0][0].shape == (8, 1, 28, 28)
    bare = written(text_of(FLIP, after=""))
    assert "transforms[-" not in bare.text and "padding" not in bare.text
    batch = run(bare.text)["seen"][0][0]
    assert batch.min() >= 0 and batch.max() <= 1


# --------------------------------------------------------------------------------------- what stays
@pytest.mark.usefixtures("torchvision")
def test_images_for_evaluation_are_the_same_to_the_last_bit() -> None:
    more = f"{TESTED}\nglobal shown\nshown = []\nfor u, v in tests:\n    u = u.to(device)\n    shown.append(u)"
    text = text_of(CROP, FLIP, more=more)
    both = written(text)
    assert "tests_data = TensorDataset(*(t.to(device) for t in as_tensors(test)))" in both.lines
    assert "mem_get_info" not in both.text  # it is known how large they are
    same(run(text)["shown"], run(both.text)["shown"])


@pytest.mark.parametrize(
    ("drawn", "reason"),
    [
        ("transforms.RandomRotation(15)", "RandomRotation has no form for batches"),
        ("transforms.ColorJitter(0.1)", "ColorJitter has no form for batches"),
        ("transforms.RandomCrop(32, padding=4, fill=128)", "RandomCrop has no form for batches"),
        ("transforms.RandomCrop(32, 4, padding_mode='reflect')", "RandomCrop has no form for batches"),
        ("transforms.RandomCrop((32, 24), padding=4)", "what the transforms of CIFAR10 are given is not known"),
        ("transforms.RandomCrop(64)", "RandomCrop(64) is larger than the images"),
        (f"{FLIP}, {FLIP}", "RandomHorizontalFlip has no form for batches"),
        ("transforms.RandomHorizontalFlip(p=rate)", "what the transforms of CIFAR10 are given is not known"),
        (f"transforms.Pad(4), {FLIP}", "what the transforms of CIFAR10 are given is not known"),
        ("Cutout(), transforms.RandomHorizontalFlip()", "one of its transforms has no form for batches"),
        (f"{FLIP}, transforms.ToTensor(), transforms.RandomErasing()", "RandomErasing comes after ToTensor"),
    ],
)  # fmt: skip
def test_images_that_stay(drawn: str, reason: str) -> None:
    text = text_of(drawn).replace(
        "def main",
        "import os\nclass Cutout:\n    def __call__(self, x):\n        return x\n\ndef main",
    )
    found = apply(
        f"{RULE} gpu-data",
        text.replace("main():\n", "main():\n    rate = float(os.environ['RATE'])\n", 1),
    )
    assert not found.fixes and reason in found.refusals, found.refusals


MADE = "of which items are made"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("parts.transforms.append(Cutout())", MADE),
        ("if os.environ:\n    parts.transforms.insert(0, Cutout())", MADE),
        ("parts.transforms += [Cutout()]", MADE),
        ("parts.transforms[0].p = 0.9", MADE),
        ("data.transform.transforms.append(Cutout())", MADE),
        ("loader.dataset.transform = Cutout()", "uses its `dataset`"),
        ("data.targets[0] = 1", MADE),
    ],
)
def test_transforms_that_are_changed_stay(change: str, reason: str) -> None:
    """``transform.transforms.append(Cutout(16))`` is how many scripts put their own in."""
    text = text_of(FLIP, more=change).replace(
        "data = datasets", "parts = transform\n    data = datasets"
    )
    text = text.replace("transform=transforms.Compose", "transform=parts")
    made = f"parts = transforms.Compose([{FLIP}, transforms.ToTensor(), {COLOUR}])"
    head, tail = text.split("    parts = transform\n")
    tail = f"    data = datasets.CIFAR10('d', transform=parts)\n{tail.split(chr(10), 1)[1]}"
    text = head.replace(
        "def main",
        "import os\nclass Cutout:\n    p = 1\n    def __call__(self, x):\n        return x\n\ndef main",
    )
    found = apply(f"{RULE} gpu-data", f"{text}    {made}\n{tail}")
    assert not found.fixes and reason in found.refusals, found.refusals


def test_parts_stay() -> None:
    part = text_of(FLIP).replace("DataLoader(data,", "DataLoader(Subset(data, range(20)),")
    assert "is a part of one" in apply(RULE, part).refusals


@pytest.mark.parametrize(("drawn", "fixes"), [(CROP, 2), ("transforms.RandomHorizontalFlip(0.1)", 1)])  # fmt: skip
@pytest.mark.usefixtures("torchvision")
def test_two_ways(drawn: str, fixes: int) -> None:
    """One name stands for one of them."""
    other = TEST_SET.replace("[", f"[{drawn}, ")
    more = f"{other}\ntests = DataLoader(test, batch_size=10)\nfor u, v in tests:\n    u = u.to(device)"
    found = apply(RULE, text_of(FLIP, more=more))
    assert len(found.fixes) == fixes and ("another way" in found.refusals) is (fixes == 1)
    run(found.text)


def test_without_the_rule_the_others_go_on() -> None:
    others = "num-workers persistent-workers pin-memory non-blocking prefetch-factor gpu-data"
    text = text_of(CROP, FLIP)
    alone, both = apply(others, text), apply(f"{others} {RULE}", text)
    assert {"num-workers", "pin-memory"} <= {f.rule for f in alone.fixes}
    assert {f.rule for f in both.findings} == {RULE}
    assert "draws random numbers for each item" in alone.refusals


def test_on_a_cpu_it_has_nothing_to_do() -> None:
    assert not apply(RULE, text_of(CROP, FLIP), target="cpu").findings


def test_draws_come_from_the_seed_of_torch(torchvision: None) -> None:
    text = written(text_of(CROP, FLIP)).text
    random.seed(1)
    one = run(text)
    random.seed(2)
    same(one["seen"], run(text)["seen"])


def test_it_is_offered_on_request(tmp_path: Path) -> None:
    """Also where one process on one GPU is not all that may be asked for."""
    (tmp_path / "train.py").write_text(
        text_of(CROP, FLIP).replace("(x, y, torch.rand(1), torch.get_rng_state())", "len(x)")
    )
    config = Config(effect=Effect.RECIPE)
    script = planning.read(tmp_path / "train.py", tmp_path, None, config)
    offered, warnings = planning.on_request(script, planning.plan(script, config), config)
    said = {record.rule: record.message for record in offered}
    assert "(on request: --select gpu-augmentation)" in said[RULE] and "ddp" in said
    assert not warnings
