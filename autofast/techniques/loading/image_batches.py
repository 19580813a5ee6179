"""The functions that are written for images of torchvision: all at once, and crops and flips of
whole batches, each image by its own draws.
"""

from __future__ import annotations

from autofast.facts.augmentations import Augmentation
from autofast.facts.datasets import COLOUR, GREY

AS_TENSORS = """\
def {{name}}(dataset):
    \"\"\"All images and labels at once, as its transforms make them one by one.\"\"\"
    images = {images}.float() / 255
{padded}{normalized}    return images{laid_out}, {{torch}}.as_tensor(dataset.{labels})
"""
PADDED = "    images = {{torch}}.nn.functional.pad(images, [{n}] * 4)  # black\n"
NORMALIZED = "    images = dataset.transform.transforms[-1](images)  # Normalize\n"
SEVERAL = """\
    for transform in dataset.transform.transforms[-{n}:]:  # after ToTensor
        images = transform(images)
"""

CROP = """\
    top, left = {torch}.randint({places}, (2, n, 1), device=device)
    rows = top + {torch}.arange({size}, device=device)
    columns = left + {torch}.arange({size}, device=device)
"""
FLIPPED = """\
    flips = {torch}.rand(n, 1, device=device) < {p}
    {axis} = {torch}.where(flips, {axis}.flip(1), {axis})
"""
PICKED = """\
    each = {torch}.arange(n, device=device)[:, None, None]
    images = images[each, :, rows[:, :, None], columns[:, None]]  # (n, {size}, {size}, channels)
    return [images.permute(0, 3, 1, 2).contiguous(), targets]
"""
WHOLE = """\
    flips = {torch}.rand(n, 1, 1, 1, device=device) < {p}
    images = {torch}.where(flips, images.flip({dim}), images)
"""
NAMES = {"columns": "RandomHorizontalFlip", "rows": "RandomVerticalFlip"}


def as_tensors(short: str, normalized: int, padding: int = 0) -> str:
    """The function for a set that torchvision calls so, of which the last transforms normalize."""
    array = "{torch}.from_numpy(dataset.data)"
    normalizes = NORMALIZED if normalized == 1 else SEVERAL.format(n=normalized)
    return AS_TENSORS.format(
        images="dataset.data.unsqueeze(1)"
        if short in GREY
        else array + ".permute(0, 3, 1, 2)" * (short in COLOUR),
        padded=PADDED.format(n=padding) if padding else "",
        normalized=normalizes if normalized else "",
        laid_out=".contiguous()" * (short in COLOUR),
        labels="labels" if short == "SVHN" else "targets",
    )


def name_of(made: Augmentation) -> str:
    return "_and_".join(["crop"] * bool(made.size) + ["flip"] * bool(made.flips))


def function_text(made: Augmentation, name: str, torch: str) -> str:
    """The function that crops and flips a batch of images (N, C, H, W) on its device."""
    lines = [
        f"def {name}(batch):\n",
        f'    """{_said(made)} for a batch: each image by draws of its own."""\n',
    ]
    lines.append("    images, targets = batch\n    n, device = len(images), images.device\n")
    if made.size:
        places = made.side + 2 * made.padding - made.size + 1
        lines.append(CROP.format(places=places, size=made.size, torch=torch))
        lines += [FLIPPED.format(axis=axis, p=p, torch=torch) for axis, p in made.flips]
        lines.append(PICKED.format(size=made.size, torch=torch))
    else:
        for axis, p in made.flips:
            lines.append(WHOLE.format(dim=3 if axis == "columns" else 2, p=p, torch=torch))
        lines.append("    return [images, targets]\n")
    return "".join(lines)


def _said(made: Augmentation) -> str:
    """The transforms as called: ``RandomCrop(32, padding=4) and RandomHorizontalFlip()``."""
    border = f", padding={made.padding}" if made.padding else ""
    said = [f"RandomCrop({made.size}{border})"] if made.size else []
    said += [f"{NAMES[axis]}({'' if p == 0.5 else p})" for axis, p in made.flips]
    return " and ".join(said)
