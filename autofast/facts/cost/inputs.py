"""What a batch is: how many items, and of what shape, as far as the script says so."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from math import prod

from autofast.facts.cost.bounds import largest, range_of, whole_number
from autofast.facts.input_shapes import CROPS
from autofast.facts.transforms import MODULE, steps_of
from autofast.flow.callgraph import CallGraph
from autofast.model.calls import short_name
from autofast.model.contents import attributes
from autofast.model.kinds import library_dataset
from autofast.model.names import last_part
from autofast.model.roles import Dataset, Loader
from autofast.model.script import Script
from autofast.model.several import all_known, of_kind, wordset
from autofast.model.source import live_nodes
from autofast.model.values import (
    OBJECTS,
    Const,
    Ext,
    Given,
    Inst,
    Seq,
    Tensor,
    Thing,
    Values,
    begins,
    const,
    is_named,
    one,
)

# torchvision's sets of equal images: channels and sides, and the images of their training sets
NATIVE = {
    "MNIST": (1, 28, 60_000), "FashionMNIST": (1, 28, 60_000), "KMNIST": (1, 28, 60_000),
    "QMNIST": (1, 28, 60_000), "EMNIST": (1, 28, 112_800), "USPS": (1, 16, 7_291),
    "CIFAR10": (3, 32, 50_000), "CIFAR100": (3, 32, 50_000), "SVHN": (3, 32, 73_257),
    "STL10": (3, 96, 5_000),
}  # fmt: skip
TENSORS = "torch.utils.data.TensorDataset"
SUBSET, SPLIT = "torch.utils.data.Subset", "torch.utils.data.random_split"
ONCE = ("SequentialSampler", "SubsetRandomSampler", "DistributedSampler")
SIZED = wordset("zeros ones rand randn empty")
# sets of files of any size
FOLDERS = wordset("ImageFolder ImageNet Places365 CelebA LSUN")
# Transforms that leave the size of an image as it is.
SAME_SIZE = wordset("""ToTensor PILToTensor ToImage ToDtype ConvertImageDtype Normalize RandomHorizontalFlip RandomVerticalFlip RandomRotation
    RandomAffine ColorJitter RandomErasing AutoAugment RandAugment TrivialAugmentWide Grayscale RandomGrayscale GaussianBlur
    HorizontalFlip VerticalFlip Flip Rotate RandomRotate90 ShiftScaleRotate Affine ElasticTransform GridDistortion OpticalDistortion
    RandomBrightnessContrast HueSaturationValue RGBShift RandomGamma CLAHE GaussNoise Blur MotionBlur MedianBlur CoarseDropout
    ToFloat ToTensorV2""")
MODULES = (MODULE, "albumentations.")
SIZES_OF_IMAGES = ("size", "dsize", "output_shape")
WIDE_FIRST = (".", "cv2.")  # libraries that name the width of an image before its height


@dataclass(frozen=True)
class Shape:
    """Of an item: its channels or features (None: not known), and its other dimensions."""

    channels: int | None
    dims: tuple[int, ...] = ()

    @property
    def positions(self) -> int:
        return prod(self.dims)

    @property
    def elements(self) -> int | None:
        return None if self.channels is None else self.channels * self.positions


def batch_size(loader: Loader) -> int | None:
    """The items in a batch, at the most (``8 // world_size``); None where that is not known."""
    given, written = loader.args.get(1, "batch_size"), loader.args.given(1, "batch_size")
    for sampler in loader.args.get(3, "sampler") | loader.args.get(4, "batch_sampler"):
        if isinstance(sampler, Ext) and sampler.name.endswith(".BatchSampler"):
            given = sampler.args.get(1, "batch_size")
            written = sampler.args.given(1, "batch_size")
    if (most := _most(written)) is not None:
        return most
    own = loader.args.get(4, "batch_sampler") - {Const(None)}
    return largest(given) if given or own or loader.args.open else 1


def _most(given: Given | None) -> int | None:
    """What ``8 // world_size`` is at the most."""
    match given.expr if given is not None else None:
        case ast.BinOp(left=ast.Constant(value=int(most)), op=ast.FloorDiv()):
            return most
    return None


def item_shape(script: Script, dataset: Dataset) -> Shape | None:
    """The shape of what a model is given of one item; None where that is not known."""
    thing = _pictured(script, dataset)
    if is_named(thing, Ext, TENSORS) and thing.args.positional:
        return _row(script, thing.args.positional[0].values)
    name = library_name_of(thing)
    channels, side = None, None
    if name in NATIVE and isinstance(thing, OBJECTS) and thing.args is not None:
        channels, side, _ = NATIVE[name]
        side = _side(thing.args.get(-1, "transform"), side)
    elif name in FOLDERS and isinstance(thing, Ext):
        channels, side = 3, _side(thing.args.get(-1, "transform"), 0)
    elif isinstance(thing, Inst):
        held = [t for t in attributes(thing) if begins(t, Ext, MODULES)]
        sides = {_side(frozenset({t}), 0) for t in held} - {0}
        side = one(sides)
        if not sides and dataset.getitem is not None:
            resized = script.of_node(_resized, dataset.getitem)
            return Shape(None, resized) if resized else None
    return Shape(channels, (side, side)) if side else None


def _resized(script: Script, getitem: ast.AST) -> tuple[int, ...] | None:
    """Height and width to which ``__getitem__``, and what it calls, resize images; None where
    nothing does, or to several sizes, or where images are cut.
    """
    code = script.analysis(CallGraph).runs(getitem)  # type: ignore[arg-type]
    calls = [n for function in code for n in live_nodes(function) if isinstance(n, ast.Call)]
    if any("crop" in short_name(call.func).lower() for call in calls):
        return None
    return one({_size(script, call) for call in calls if short_name(call.func) == "resize"})


def _size(script: Script, call: ast.Call) -> tuple[int, ...] | None:
    """``image.resize((w, h))``, ``cv2.resize(image, (w, h))``, ``resize(image, (h, w))``."""
    name, given = script.operation(call)
    named = [k.value for k in call.keywords if k.arg in SIZES_OF_IMAGES]
    for expr in (*named, *given[1:2]):
        sides = all_known(map(largest, _parts(script.values(expr))))
        if len(sides) == 2:
            return tuple(reversed(sides) if name.startswith(WIDE_FIRST) else sides)
    return None


def _parts(size: Values) -> list[Values]:
    """Of a tuple or list, each element; nothing for others."""
    match one(size):
        case Seq() as row:
            return list(row.exact or ())
        case Const(value=tuple(row)):
            return [frozenset({Const(n)}) for n in row]
    return []


def batch_count(script: Script, loader: Loader) -> int | None:
    """How many batches a pass over a loader takes, at the most; None where that is not known."""
    size = batch_size(loader)
    own = loader.args.get(3, "sampler") | loader.args.get(4, "batch_sampler")
    if not size or not all(t == Const(None) or _takes_each_once(t) for t in own):
        return None
    held = all_known(_held(script, loader, thing) for thing in loader.args.get(0, "dataset"))
    return -(-max(held) // size) if held else None


def _takes_each_once(sampler: Thing) -> bool:
    """Whether it is one of torch's that takes each item, or batch, of its data once at the most."""
    if not isinstance(sampler, Ext):
        return False
    name = last_part(sampler.name)
    if name == "BatchSampler":
        return all(map(_takes_each_once, sampler.args.get(0, "sampler")))
    drawn = sampler.args.get(1, "replacement") | sampler.args.get(2, "num_samples")
    return name in ONCE or (name == "RandomSampler" and not drawn)


def _held(script: Script, loader: Loader, thing: Thing) -> int | None:
    """How many items are in what a loader is given, at the most."""
    if is_named(thing, Ext, SUBSET):
        given = thing.args.given(1, "indices")
        if given is not None and isinstance(given.expr, ast.Call):
            return range_of(script, given.expr)
    if is_named(thing, Ext, SPLIT):
        parts = one(thing.args.get(1, "lengths"))
        lengths = [whole_number(p) for p in parts.exact or ()] if isinstance(parts, Seq) else []
        return max(all_known(lengths), default=None)
    mine = [d for d in loader.datasets if d.thing is thing]
    return _items(script, mine[0]) if mine else None


def _items(script: Script, dataset: Dataset) -> int | None:
    """How many items a dataset holds, at the most; None where that is not known, and of random
    tensors, which stand in for data.
    """
    name = library_name_of(_pictured(script, dataset))
    return NATIVE[name][2] if name in NATIVE else None


def _pictured(script: Script, dataset: Dataset) -> Thing:
    """The image set that a TensorDataset is made of; else the dataset."""
    thing = dataset.thing
    made = ast.walk(thing.node) if is_named(thing, Ext, TENSORS) and thing.node else ()
    for node in of_kind(made, ast.Name):
        owners = script.values(node)
        if len({library_name_of(t) for t in owners} & NATIVE.keys()) == 1:
            return next(t for t in owners if library_name_of(t) in NATIVE)
    return thing


def library_name_of(thing: Thing) -> str:
    if isinstance(thing, Inst):
        return last_part(library_dataset(thing))
    if begins(thing, Ext, "torchvision.datasets."):
        return last_part(thing.name)
    return ""


def _side(transform: Values, side: int) -> int | None:
    """The side of a square image behind its transforms."""
    for thing in transform:
        if thing == one(transform) and const(transform) is None:
            return side
        if not isinstance(thing, Ext) or len(transform) != 1:
            return None
        for step in steps_of(thing):
            short = last_part(step.name) if isinstance(step, Ext) else ""
            if isinstance(step, Ext) and (short in CROPS or short in ("Resize", "Scale")):
                size = step.args.get(0, "size") or step.args.get(-1, "height")
                found = all_known(map(whole_number, _parts(size) or [size]))
                if not found:
                    return None
                side = max(found)
            elif short not in SAME_SIZE:
                return None
    return side


def _row(script: Script, values: Values) -> Shape | None:
    """The shape of a row of a tensor that a factory made: ``torch.randn(1000, 3, 32, 32)``."""
    thing = one(values)
    if not isinstance(thing, Tensor) or thing.fresh not in SIZED:
        return None
    given = getattr(thing.made, "args", [])[1:]  # the first one says how many rows there are
    sizes = all_known(largest(script.values(a)) for a in given)
    return Shape(sizes[0], tuple(sizes[1:])) if sizes else None
