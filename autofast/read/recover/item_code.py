"""What the code does that fetches an item: the random numbers that it draws, what it costs, and
what it changes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import TypeGuard

from autofast.flow.scratch import is_scratch
from autofast.model import names
from autofast.model.calls import is_name, method_name, targets_of
from autofast.model.contents import with_contents
from autofast.model.names import first_part, last_part
from autofast.model.several import wordset
from autofast.model.source import Nodes, ancestors, at, function_of, live_nodes
from autofast.model.tensors import device_kinds, is_device
from autofast.model.values import (
    Arg,
    Bound,
    Cls,
    Const,
    Ext,
    Func,
    Inst,
    Method,
    Num,
    Partial,
    Ref,
    Seq,
    Tensor,
    Thing,
    Unknown,
    Values,
    begins,
    is_named,
    of_kind,
    ordered,
)
from autofast.ops import draws
from autofast.read.state.core import Core

FILES = (
    "PIL.Image.open cv2.imread numpy.load numpy.loadtxt numpy.fromfile torch.load torchvision.io. torchaudio.load "
    "soundfile. librosa.load librosa.core.load "
    "imageio. skimage.io scipy.misc.imread scipy.ndimage.imread scipy.io. matplotlib.pyplot.imread matplotlib.image.imread "
    "tifffile. SimpleITK.ReadImage pydicom. decord. "
    "blobfile. fsspec. smart_open. zarr. netCDF4. av. turbojpeg. accimage. trimesh. plyfile. laspy. "
    "h5py.File lmdb. tables.open_file zipfile. tarfile. gzip.open cv2.VideoCapture "
    "builtins.open pickle.load nibabel.load rasterio.open pandas.read_ json.load torchvision.datasets.folder"
).split()
GENERATORS = names.GENERATORS
# scipy.stats.norm.rvs, skimage.util.random_noise, os.urandom.
SOME_DICE = re.compile(r"^(?!torch).*(rand|\.rvs$|\.sample$|\.shuffle$)")
# Libraries whose functions draw no random numbers, or only by what is known here: torch and the
# standard library first, then arrays, images, sound, text, and files and their formats.
WITHOUT_DICE = wordset("""torch torchvision torchaudio numpy random builtins math os sys io json re csv copy time
    pickle pathlib glob itertools functools collections struct string typing datetime
    operator warnings logging PIL cv2 skimage scipy librosa soundfile pandas h5py zipfile
    gzip tarfile lmdb tifffile pydicom matplotlib nibabel SimpleITK imageio rasterio einops
    transformers tokenizers nltk albumentations imgaug contextlib blobfile fsspec smart_open
    pyarrow zarr netCDF4 msgpack msgpack_numpy yaml ujson orjson xml pycocotools decord av
    turbojpeg accimage trimesh plyfile laspy sentencepiece jieba hashlib unicodedata bisect
    heapq enum dataclasses tempfile shutil traceback base64 zlib bz2 decimal fractions
    statistics textwrap threading contextvars types abc ast html urllib array wave mmap locale
    unidecode anyascii inflect num2words regex ftfy emoji pypinyin phonemizer g2p_en pyworld
    parselmouth resampy shapely pyproj diskcache joblib tqdm""")
# ... and libraries of which that is true of the methods of their objects.
OBJECTS_WITHOUT_DICE = wordset("""sklearn torchtext argparse omegaconf yacs easydict addict munch ml_collections tqdm loguru
    shapely pyquaternion lvis openslide pyvips zmq redis pymongo sqlite3
    queue multiprocessing""")
SHOWN = ("builtins.print", "logging.", "warnings.")  # what an item says costs nothing
CHEAP = wordset(
    "size dim view reshape float long clone contiguous unsqueeze squeeze item numpy append len int str range tensor from_numpy as_tensor "
    "float32 flatten to copy"
)
# Transforms of albumentations that do the same to each image where no `p` is given.
FIXED_ALBUMENTATIONS = wordset(
    """Resize SmallestMaxSize LongestMaxSize CenterCrop PadIfNeeded Normalize ToFloat FromFloat ToTensorV2"""
)
COMPOSERS = ("Compose", "RandomApply", "Lambda", "Sequential", "RandomChoice")
DECODERS = tuple("PIL. cv2. torchvision.io torchaudio imageio skimage librosa soundfile".split())
DRAWS = wordset(
    "random rand randn randint choice shuffle uniform normal sample permutation integers rvs"
)
DROPS = ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "RReLU")  # layers, as transforms
AUGMENTS = wordset(
    "ColorJitter AutoAugment TrivialAugmentWide RandAugment AugMix GaussianBlur ElasticTransform"
)


class Walk:
    """Walks the code that fetches an item, through the project's functions, and notes what it
    does.
    """

    def __init__(self, interp: Core, funcs: list[Func]):
        self.interp = interp
        self.random: set[str] = set()
        self.reads: set[str] = set()
        self.writes: set[str] = set()
        self.unclear = ""
        self.asks = self.counts = self.device = False
        self.seen: Nodes = set()
        for func in funcs:
            self.function(func)

    def function(self, func: Func) -> None:
        if func.node in self.seen or len(self.seen) > 60:
            return
        self.seen.add(func.node)
        for node in live_nodes(func.node):
            if isinstance(node, ast.Call):
                self.call(node)
            elif isinstance(node, ast.Attribute):
                self.counts = self.counts or node.attr == "num_workers"
            elif isinstance(node, (ast.Assign, ast.AugAssign)):
                for target in targets_of(node):
                    self.target(target)
            elif isinstance(node, (ast.For, ast.While, ast.ListComp)):
                self.reads.add("compute")

    @property
    def sharded(self) -> bool:
        """It asks how many workers there are; one that asks only for its number or seed need not
        share anything out.
        """
        return self.asks and self.counts

    def target(self, target: ast.expr) -> None:
        part = target
        while isinstance(part, ast.Subscript):
            part = part.value
        if (
            isinstance(part, ast.Attribute)
            and is_name(part.value, "self")
            and not is_scratch(target, self.interp.project.sources.values(), self.values)
        ):
            owner = next((a.name for a in ancestors(part) if isinstance(a, ast.ClassDef)), "")
            self.writes.add(f"`self.{part.attr}`" + (f" of {owner}" if owner else ""))

    def call(self, node: ast.Call) -> None:
        if self.interp.cut and node.func not in self.interp.at:
            self.is_unclear(f"{at(node)} is not read")
        self.device = self.device or self.moves(node)
        for thing in self.interp.at.get(node.func, frozenset()):
            if isinstance(thing, Func):
                self.function(thing)
            elif isinstance(thing, Bound):
                self.function(thing.func)
            elif isinstance(thing, Cls):
                self.reads.add("compute")
            elif isinstance(thing, Inst):
                for func in thing.cls.find("__call__") or thing.cls.find("forward") or ():
                    if isinstance(func, Func):
                        self.function(func)
                self.reads.add("compute")
            elif isinstance(thing, Ref):
                self.library(thing.name, node)
            elif isinstance(thing, Ext):
                self.random |= transform_randomness(self.interp, frozenset({thing}))[0]
                self.reads.add("compute")
            elif isinstance(thing, Method):
                self.method(thing)
            elif isinstance(thing, Unknown):
                self.is_unclear(f"{at(node)} calls something that is not known: {thing.why}")
                self.reads.add("compute")

    def moves(self, node: ast.Call) -> bool:
        """``x.cuda()``, ``x.to(device)``, ``torch.zeros(3, device=device)``, where the device may
        be another than the CPU.
        """
        method = method_name(node)
        if method == "cuda":
            return True
        named = [k.value for k in node.keywords if k.arg == "device"]
        for target in (*named, *(node.args[:1] if method == "to" else ())):
            for thing in self.interp.at.get(target, frozenset()):
                if isinstance(thing, Ext) and thing.node is None:
                    continue  # `tensor.device`: where the others are
                unknown = isinstance(thing, (Arg, Num)) or (
                    target in named and isinstance(thing, Unknown)
                )
                if unknown or (is_device(thing) and device_kinds(frozenset({thing})) != {"cpu"}):
                    return True
        return False

    def values(self, expr: ast.expr) -> Values:
        return self.interp.at.get(expr, frozenset())

    def is_unclear(self, why: str) -> None:
        """Random numbers may be drawn."""
        self.random.add("unknown")
        self.unclear = self.unclear or why

    def library(self, name: str, node: ast.Call) -> None:
        if name.startswith(SHOWN):
            return
        if name == "torch.utils.data.get_worker_info":
            self.asks = True
        if name in GENERATORS:
            pass  # made anew for each item: what is drawn from it is not the same in all workers
        elif name.startswith("numpy.random."):
            self.random.add("numpy")
        elif name.startswith("random."):
            self.random.add("python")
        elif name.startswith("torch.") and draws(name):
            self.random.add("torch")
        elif first_part(name) not in WITHOUT_DICE or SOME_DICE.search(name):
            self.is_unclear(f"{at(node)} calls {name}()")
        elif (
            name.startswith(("torchvision.transforms", "albumentations", "imgaug"))
            and "functional" not in name
        ):
            self.reads.add("compute")
        if name.startswith(tuple(FILES)):
            self.reads.add("file")
            if name.startswith(DECODERS):
                self.reads.add("decode")
        elif last_part(name) not in CHEAP:
            self.reads.add("compute")

    def method(self, thing: Method) -> None:
        if begins(thing.this, Ext, SHOWN):
            return
        if begins(thing.this, Ext, "imgaug."):
            self.random.add("own")
        elif isinstance(thing.this, Ext) and not _draws_nothing(thing):
            self.is_unclear(f"{thing.this.name}.{thing.name}()")
        if is_named(thing.this, Ext, GENERATORS):
            local = thing.this.node is not None and function_of(thing.this.node) in self.seen
            self.random.add("numpy" if local else "own")
        if isinstance(thing.this, Tensor) and draws(thing.name):
            self.random.add("torch")
        if thing.name not in CHEAP:
            self.reads.add("compute")
        if isinstance(thing.this, Unknown) and thing.name in DRAWS:
            self.random.add("own")

    def follow_attributes(self, inst: Inst) -> None:
        """Transforms kept on the dataset (``self.transform(x)``) that the call itself did not
        resolve.
        """
        for name, found in inst.attrs.items():
            if "transform" in name or "augment" in name:
                self.random |= transform_randomness(self.interp, found)[0]


def collating(interp: Core, found: Values) -> Walk:
    """What was followed through the functions that collate batches."""
    funcs: list[Func] = []
    for thing in found:
        if isinstance(thing, Partial):
            funcs += of_kind(thing.func, Func)
        elif isinstance(thing, (Func, Bound)):
            funcs.append(thing.func if isinstance(thing, Bound) else thing)
        elif isinstance(thing, Inst):
            funcs += thing.cls.methods("__call__")
    walk = Walk(interp, funcs)
    if any(begins(t, Ext, "transformers.DataCollator") for t in found):
        walk.random.add("torch")  # some of them mask words at random
    return walk


def transform_randomness(interp: Core, transforms: Values) -> tuple[frozenset[str], str]:
    """Random numbers drawn by transforms, and why that is not known."""
    found: set[str] = set()
    unknown = ""
    for thing in _objects(transforms):
        if begins(thing, Ext, SHOWN):
            continue  # a logger
        if isinstance(thing, Ext):
            last = last_part(thing.name)
            if thing.name.startswith("albumentations."):
                if last not in FIXED_ALBUMENTATIONS or "p" in thing.arg_names():
                    found.add("albumentations")
            elif thing.name.startswith("imgaug."):
                found.add("own")  # a generator of the library, which a worker gets a copy of
            elif last.startswith("Random") or last in AUGMENTS or last.endswith(DROPS):
                found.add("transform")
            elif not thing.name.startswith(
                ("torchvision.transforms", "torch.nn")
            ) and not names.is_tokenizer(thing.name):
                found.add("unknown")
                unknown = f"what {thing.name} does"
        elif isinstance(thing, Func):
            found |= Walk(interp, [thing]).random
        elif isinstance(thing, Inst):
            call = thing.cls.find("__call__") or thing.cls.find("forward") or frozenset()
            found |= Walk(interp, of_kind(call, Func)).random
        elif isinstance(thing, Unknown):
            found.add("unknown")
            unknown = thing.why
    return frozenset(found), unknown


def _objects(found: Values) -> Iterator[Thing]:
    """Transforms inside Compose, lists, arguments."""
    for thing in with_contents(ordered(found), _composed):
        is_drawn = isinstance(thing, Ext) and short_name_of(thing) in (
            "RandomApply",
            "RandomChoice",
        )
        if is_drawn or not isinstance(thing, (Const, Num, Seq)) and not _composes(thing):
            yield thing


def _composes(thing: Thing) -> TypeGuard[Ext]:
    return isinstance(thing, Ext) and short_name_of(thing) in COMPOSERS


def _composed(thing: Thing) -> Iterable[Thing]:
    if _composes(thing):
        return thing.args.things
    return thing.any() if isinstance(thing, Seq) else ()


def short_name_of(thing: Ext) -> str:
    return last_part(thing.name)


def _draws_nothing(method: Method) -> bool:
    """A method of an object of a library whose functions draw no random numbers, or only by what is
    known here.
    """
    assert isinstance(method.this, Ext)
    name = method.this.name
    known = name in GENERATORS or first_part(name) in WITHOUT_DICE | OBJECTS_WITHOUT_DICE
    return known and (name in GENERATORS or not SOME_DICE.search(f"scipy.{method.name}"))
