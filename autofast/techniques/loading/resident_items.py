"""Items in memory: why they may be others in another epoch, and how all are made at once."""

from __future__ import annotations

from autofast.facts.aliases import learned, written_after
from autofast.facts.augmentations import Augmentation, augmentation
from autofast.facts.datasets import COLOUR, GREY, SPLIT, held, indexed, returns_tuple, to_tensor
from autofast.facts.loaders import again
from autofast.facts.workers.shared_state import changed_ever, changed_since_made
from autofast.model.names import last_part
from autofast.model.script import Dataset, Loader, Script
from autofast.model.source import first_line
from autofast.model.values import Ext, Thing, const, is_named
from autofast.rule import Refusal

SUBSETS = (SPLIT, "torch.utils.data.Subset")

ROWS = "        tensors = self.dataset[:]  # all items at once"
ITEMS = """\
        items = [self.dataset[i] for i in range(len(self.dataset))]
        tensors = self.collate_fn(items)  # all items as one batch"""
GREY_IMAGES = "        images = self.dataset.data.unsqueeze(1).float() / 255  # what ToTensor does"
COLOUR_IMAGES = (
    "        images = {torch}.from_numpy(self.dataset.data).permute(0, 3, 1, 2).float() / 255"
)
SVHN_IMAGES = "        images = {torch}.from_numpy(self.dataset.data).float() / 255"
COMPOSED = """
        for transform in self.dataset.transform.transforms[1:]:  # after ToTensor
            images = transform(images)"""
PADDED = "\n        images = {torch}.nn.functional.pad(images, [padding] * 4)  # black"
NORMALIZED = """
        for transform in self.dataset.transform.transforms[-{n}:]:  # after ToTensor
            images = transform(images)"""
TARGETS = "\n        tensors = [images, {torch}.as_tensor(self.dataset.{targets})]"


def may_vary(script: Script, loader: Loader, drawn: bool) -> str:
    """Why items may be others in another epoch; ``drawn``: but for random numbers that images are
    made with, as those may be drawn for batches.
    """
    if why := next((w for d in loader.datasets if (w := _of_dataset(script, d, drawn))), ""):
        return why
    # What a library's images are made of has to be what the library read.
    changed = changed_ever if _images(loader) else changed_since_made
    if why := changed(script, loader):
        return f"{why}, of which items are made"
    return ""


def _of_dataset(script: Script, dataset: Dataset, drawn: bool) -> str:
    if dataset.unknown:
        return f"{dataset.name} is not known: {dataset.unknown}"
    if dataset.random and dataset.kind != "project" and not (drawn and dataset.kind == "library"):
        return f"{dataset.name} draws random numbers for each item: a batch would need its own for each sample"
    if dataset.writes:
        return f"fetching an item changes {dataset.writes[0]}"
    if dataset.kind == "library":
        return ""
    if why := dataset.random or indexed(dataset, singly=True):
        # The code of the project: whether it has a form for batches is asked beside it
        # (resident_batches).
        return "" if dataset.kind == "project" else f"{dataset.name}: {why}"
    if not returns_tuple(dataset):
        return f"items of {dataset.name} are no tuples"
    for expr, made in held(script, dataset):
        if expr is None:
            return f"where the tensors of {dataset.name} come from is not known"
        if why := learned(script, expr):
            return f"`{first_line(expr)}` {why}"
        if why := written_after(script, expr, made):
            return why
    return ""


def all_items(script: Script, loader: Loader) -> str:
    """How the class makes all items; raises Refusal."""
    given = loader.args.get(0, "dataset")
    direct = all(any(t is d.thing for d in loader.datasets) for t in given)
    if not direct and not all(_is_part(t, loader.datasets) for t in given):
        raise Refusal("the dataset is wrapped in something that is not known")
    if not _images(loader) and not any(indexed(d) for d in loader.datasets):
        return ROWS
    if _images(loader):
        forms = {_image_form(d) for d in loader.datasets}
        if direct and len(forms) == 1:
            return forms.pop()
    if loader.trains and not again(script, loader):
        raise Refusal("it is gone through once, and making all items first would take as long")
    return ITEMS


def _images(loader: Loader) -> bool:
    return any(d.kind == "library" for d in loader.datasets)


def _is_part(thing: Thing, datasets: list[Dataset]) -> bool:
    """The dataset itself, or a part of it by a list of indices."""
    if is_named(thing, Ext, SUBSETS):
        return all(_is_part(t, datasets) for t in thing.args.get(0, "dataset"))
    return any(thing is d.thing for d in datasets)


def augmented(script: Script, loader: Loader) -> tuple[str, Augmentation]:
    """How images of a loader are made before they are cropped and flipped, and how that is done."""
    found = set()
    for dataset in loader.datasets:
        images, targets = _arrays(dataset)
        side = 28 if images is GREY_IMAGES else 32
        made = augmentation(dataset, side)
        if isinstance(made, str):
            raise Refusal(made)
        rest = NORMALIZED.replace("{n}", str(made.normalized)) if made.normalized else ""
        found.add((images + "{padded}" + rest + targets, made))
    given = loader.args.get(0, "dataset")
    if len(found) > 1 or not all(any(t is d.thing for d in loader.datasets) for t in given):
        raise Refusal("its dataset may be one of several, or is a part of one")
    return found.pop()


def _image_form(dataset: Dataset) -> str:
    images, targets = _arrays(dataset)
    assert isinstance(dataset.thing, Ext)
    composed = to_tensor(dataset.thing)
    if composed is None:
        raise Refusal(f"the transforms of {dataset.name} are not just ToTensor and Normalize")
    return images + (COMPOSED if composed else "") + targets


def _arrays(dataset: Dataset) -> tuple[str, str]:
    """How all images of a set of torchvision's become floats, and what the tensors are called."""
    thing = dataset.thing
    short = last_part(thing.name) if isinstance(thing, Ext) else ""
    if not isinstance(thing, Ext) or short not in (*GREY, *COLOUR, "SVHN"):
        raise Refusal(f"items of {dataset.name} are made in a way that is not known")
    if thing.args.open or any(
        const(thing.args.get(n, name)) is not None
        for n, name in ((3, "target_transform"), (-1, "transforms"))
        if thing.args.get(n, name)
    ):
        raise Refusal(f"{dataset.name} has more than one transform")
    if short == "SVHN" and const(thing.args.get(1, "split")) not in ("train", "test", ...):
        raise Refusal(f"the extra images of {dataset.name} are too many")
    images = COLOUR_IMAGES if short in COLOUR else GREY_IMAGES if short in GREY else SVHN_IMAGES
    targets = "labels" if short == "SVHN" else "targets"
    return images, TARGETS.replace("{targets}", targets)
