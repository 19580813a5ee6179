"""Crops and flips of whole batches of images, each image by its own draws, as written."""

from __future__ import annotations

from autofast.facts.augmentations import Augmentation

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
    return images.permute(0, 3, 1, 2).contiguous()
"""
WHOLE = """\
    flips = {torch}.rand(n, 1, 1, 1, device=device) < {p}
    images = {torch}.where(flips, images.flip({dim}), images)
"""
NAMES = {"columns": "RandomHorizontalFlip", "rows": "RandomVerticalFlip"}


def name_of(made: Augmentation) -> str:
    return "_and_".join(["crop"] * bool(made.size) + ["flip"] * bool(made.flips))


def function_text(made: Augmentation, name: str, torch: str) -> str:
    lines = [
        f"def {name}(images):\n",
        f'    """{_said(made)} for a batch: each image by draws of its own."""\n',
    ]
    lines.append("    n, device = len(images), images.device\n")
    if made.size:
        places = made.side + 2 * made.padding - made.size + 1
        lines.append(CROP.format(places=places, size=made.size, torch=torch))
        lines += [FLIPPED.format(axis=axis, p=p, torch=torch) for axis, p in made.flips]
        lines.append(PICKED.format(size=made.size, torch=torch))
    else:
        for axis, p in made.flips:
            lines.append(WHOLE.format(dim=3 if axis == "columns" else 2, p=p, torch=torch))
        lines.append("    return images\n")
    return "".join(lines)


def _said(made: Augmentation) -> str:
    """The transforms as called: ``RandomCrop(32, padding=4) and RandomHorizontalFlip()``."""
    border = f", padding={made.padding}" if made.padding else ""
    said = [f"RandomCrop({made.size}{border})"] if made.size else []
    said += [f"{NAMES[axis]}({'' if p == 0.5 else p})" for axis, p in made.flips]
    return " and ".join(said)
