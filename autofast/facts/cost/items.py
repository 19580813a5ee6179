"""What it takes the host to make an item, by the calls that ``__getitem__`` makes.

At the least, whatever the size of the data: measured with NumPy 2, Pillow 12 and torch 2.13 on one
core with images of 32 x 32 pixels, and halved, so that a fast host is not taken for a slow one.
And where files are decoded or parsed, of usual sizes: photos of 500 x 375 pixels, texts of 2,000
lines, ten seconds of sound.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from autofast.facts.cost import inputs, machine
from autofast.facts.cost.bounds import most
from autofast.facts.loaders import given, has_no_workers
from autofast.facts.transforms import short_name, steps_of
from autofast.model import names
from autofast.model.script import Dataset, Loader, Script
from autofast.model.source import live
from autofast.model.values import Bound, Ext, Func, Inst, Method, Ref, Seq, Thing, Unknown
from autofast.model.values import Dict as DictValue

SECONDS = {
    "numpy": 1.5e-6, "torch": 4e-6, "PIL": 8e-6, "cv2": 4e-6, "torchvision": 15e-6,
    "scipy": 50e-6, "skimage": 50e-6, "librosa": 50e-6, "torchaudio": 15e-6,
}  # fmt: skip
SLOW = {"numpy.pad": 30e-6, "numpy.rot90": 6e-6, "numpy.clip": 5e-6}
CHEAP = frozenset({"numpy.random.rand", "numpy.random.random", "torch.is_tensor"})
METHOD = 1.5e-6  # of an array
TEXT = 20e-6  # of a fast tokenizer of transformers 5, for eight words
DEEP = 6
PHOTO = 4e-3
FILES = {
    "PIL.Image.open": PHOTO, "cv2.imread": PHOTO, "skimage.io.imread": PHOTO, "imageio.imread": PHOTO,
    "matplotlib.pyplot.imread": PHOTO, "numpy.loadtxt": 8e-3, "numpy.genfromtxt": 16e-3, "librosa.load": 10e-3,
    "nibabel.load": 30e-3, "plyfile.PlyData.read": 16e-3, "skimage.transform.resize": 8e-3, "skimage.transform.rotate": 8e-3,
}  # fmt: skip
TURNS = {"Resize": 2e-3, "RandomResizedCrop": 2e-3, "ColorJitter": 4e-3, "RandomRotation": 2e-3,
         "RandomAffine": 2e-3, "ToTensor": 0.5e-3, "Normalize": 0.3e-3}  # fmt: skip
LARGE = re.compile(r"DIV2K|Flickr2K|cityscapes|mapillary", re.IGNORECASE)  # PNG, 3 MB each
TIMES = 10  # as long as a photo
Figure = Callable[[str], float]  # seconds of a call, by its name


def worth_a_worker(script: Script, loader: Loader) -> bool:
    """Whether the items of a batch take so long that it pays to make them in another process."""
    size = inputs.batch_size(loader)
    times = [least(script, dataset) for dataset in loader.datasets]
    return size is not None and bool(times) and size * min(times) >= machine.COSTLY


def least(script: Script, dataset: Dataset) -> float:
    """Seconds that one item takes at the least; calls under conditions count as well."""
    return _time(script, dataset.getitem, 0, _least) if dataset.getitem is not None else 0.0


def _least(name: str) -> float:
    return 0.0 if name in CHEAP else SLOW.get(name, SECONDS.get(name.partition(".")[0], 0.0))


def making(script: Script, loader: Loader) -> float:
    """Seconds that workers take to make a batch of images in memory, or of files, one by one; 0 of
    other data.
    """
    size, sets = inputs.batch_size(loader) or 0, loader.datasets
    if sets and all(inputs.library_name_of(d.thing) in inputs.NATIVE for d in sets):
        return size * machine.PICTURE / machine.WORKERS
    asked = given(loader, "num_workers")
    workers = 0 if asked is None or has_no_workers(loader) else most(script, asked.expr)
    seconds = min((_of_files(script, d) for d in sets), default=0.0)
    if any(isinstance(n.value, str) and LARGE.search(n.value) for n in script.each(ast.Constant)):
        seconds *= TIMES
    return size * seconds / (workers or machine.WORKERS) if workers is not None else 0.0


def _of_files(script: Script, dataset: Dataset) -> float:
    """Seconds that an item takes which is read from files; 0 of others."""
    thing = dataset.thing
    if isinstance(thing, Ext) and inputs.library_name_of(thing) in inputs.FOLDERS:
        given = thing.args.get(-1, "transform")
        return PHOTO + min((_of(script, t, 0, _of_file) for t in given), default=0.0)
    if dataset.getitem is None or "file" not in dataset.reads:
        return 0.0
    return _time(script, dataset.getitem, 0, _of_file)


def _of_file(name: str) -> float:
    return FILES.get(name, 0.0)


def _time(script: Script, function: ast.AST, depth: int, figure: Figure) -> float:
    calls = [n for n in live(function) if isinstance(n, ast.Call)] if depth < DEEP else []
    return sum(min((_of(script, t, depth, figure) for t in script.values(c.func)), default=0.0) for c in calls)  # fmt: skip


def _of(script: Script, callee: Thing, depth: int, figure: Figure) -> float:
    match callee:
        case Ref(name=name):
            return figure(name)
        case Ext() if figure is _of_file:
            return sum(TURNS.get(short_name(t), 0.0) for t in steps_of(callee))
        case Ext(name=name) if names.is_tokenizer(name):
            return TEXT
        case Method(this=Ext(name=name)) if names.is_tokenizer(name):
            return TEXT
        case Method(this=this) if not isinstance(this, (Seq, DictValue)):
            library = this.name.partition(".")[0] if isinstance(this, Unknown) else ""
            return SECONDS.get(library, METHOD)
    return sum(_time(script, node, depth + 1, figure) for node in _functions(callee))


def _functions(callee: Thing) -> Iterator[ast.AST]:
    match callee:
        case Func(node=node) | Bound(func=Func(node=node)):
            yield node
        case Inst(cls=cls):
            for name in ("__call__", "forward"):
                yield from (f.node for f in cls.find(name) or () if isinstance(f, Func))
