"""What it takes the host to make an item, by the calls that ``__getitem__`` makes.

At the least, whatever the size of the data: measured with NumPy 2, Pillow 12 and torch 2.13 on one
core with images of 32 x 32 pixels, and halved, so that a fast host is not taken for a slow one.
And where files are decoded or parsed, of usual sizes: photos of 500 x 375 pixels, texts of 2,000
lines, ten seconds of sound; arrays, tensors and tables of some hundred kilobytes.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from autofast.facts.arrays import made_of
from autofast.facts.cost import bounds, inputs, machine
from autofast.facts.cost.run_counts import SHORT
from autofast.facts.extents import sides_of
from autofast.facts.transforms import short_name as kind_of, steps_of
from autofast.flow.loops import is_repeated
from autofast.model import names
from autofast.model.calls import is_method, root_of, short_name
from autofast.model.kinds import remembers
from autofast.model.names import first_part
from autofast.model.roles import Dataset, Loader
from autofast.model.script import Script
from autofast.model.several import all_known, surely, wordset
from autofast.model.source import live_nodes, nodes_in, outwards, walk
from autofast.model.syntax import COMPREHENSIONS, LOOPS, SEQUENCES, VARIABLES
from autofast.model.values import (
    Bound,
    Const,
    Dict as DictValue,
    Ext,
    Func,
    Inst,
    Method,
    Ref,
    Seq,
    Tensor,
    Thing,
    Unknown,
)

SECONDS = {
    "numpy": 1.5e-6, "torch": 4e-6, "PIL": 8e-6, "cv2": 4e-6, "torchvision": 15e-6,
    "scipy": 50e-6, "skimage": 50e-6, "librosa": 50e-6, "torchaudio": 15e-6,
}  # fmt: skip
SLOW = {"numpy.pad": 30e-6, "numpy.rot90": 6e-6, "numpy.clip": 5e-6, "torch.stft": 15e-6,
        "numpy.random.default_rng": 6e-6, "numpy.random.RandomState": 60e-6}  # fmt: skip
CHEAP = wordset("numpy.random.rand numpy.random.random torch.is_tensor")
METHOD = 1.5e-6  # of an array
OPERATION = 10e-9  # of Python, on numbers: 120 us for 1,024 turns with six of them
LISTED = 20e-9  # a number that torch takes out of a list, half of what was measured
TAKES_LISTS = wordset("tensor as_tensor FloatTensor LongTensor Tensor", "torch.")
DRAWN = 2.5e-9  # a number of a generator of NumPy
DRAWS = wordset("normal uniform rand randn random random_sample standard_normal")
TEXT = 20e-6  # of a fast tokenizer of transformers 5, for eight words
WORD = 0.7e-6  # of what texts are cut to, half of which they fill: 1.4 us a word were measured
COMPUTES = (ast.Call, ast.BinOp, ast.Compare, ast.Subscript)
PHOTO = 4e-3
FILES = {
    "PIL.Image.open": PHOTO, "cv2.imread": PHOTO, "skimage.io.imread": PHOTO, "imageio.imread": PHOTO,
    "matplotlib.pyplot.imread": PHOTO, "numpy.loadtxt": 8e-3, "numpy.genfromtxt": 16e-3, "librosa.load": 10e-3, "librosa.core.load": 10e-3,
    "numpy.load": 0.08e-3, "torch.load": 0.2e-3, "json.load": 0.02e-3, "pandas.read_csv": 0.3e-3, "h5py.File": 0.3e-3,
    "soundfile.read": 0.5e-3, "torchaudio.load": 0.5e-3, "tifffile.imread": 1e-3, "pydicom.dcmread": 2e-3,
    "nibabel.load": 30e-3, "plyfile.PlyData.read": 16e-3, "skimage.transform.resize": 8e-3, "skimage.transform.rotate": 8e-3,
}  # fmt: skip
UNPACKED = 2.5e-3  # arrays of 800 kB out of an .npz that is compressed
TURNS = {"Resize": 2e-3, "RandomResizedCrop": 2e-3, "ColorJitter": 4e-3, "RandomRotation": 2e-3,
         "RandomAffine": 2e-3, "ToTensor": 0.5e-3, "Normalize": 0.3e-3}  # fmt: skip
LARGE = re.compile(r"DIV2K|Flickr2K|cityscapes|mapillary", re.IGNORECASE)  # PNG, 3 MB each
TIMES = 10  # as long as a photo
LIKELY = 3  # as long as the least


@dataclass(frozen=True)
class Figure:
    """What is asked of code: seconds of each call ``of`` a library, by its name, beside them those
    of Python and of its numbers (but for ``files``), and turns of loops that are not ``known``.
    """

    of: Callable[[str], float]
    files: bool = False
    unknown: int = 1


def _least(name: str) -> float:
    return 0.0 if name in CHEAP else SLOW.get(name, SECONDS.get(first_part(name), 0.0))


def _of_file(name: str) -> float:
    return FILES.get(name, 0.0)


LEAST, USUAL, READING = Figure(_least), Figure(_least, unknown=SHORT), Figure(_of_file, files=True)


def worth_a_worker(script: Script, loader: Loader) -> bool:
    """Whether the items of a batch take so long that it pays to make them in another process: at
    the least, or by far where loops of theirs turn as often as is usual.
    """
    size = inputs.batch_size(loader) or 0
    return any(
        size * min((least(script, d, figure) for d in loader.datasets), default=0.0) >= enough
        for figure, enough in ((LEAST, machine.COSTLY), (USUAL, LIKELY * machine.COSTLY))
    )


def least(script: Script, dataset: Dataset, figure: Figure = LEAST) -> float:
    """Seconds that one item takes at the least; calls under conditions count as well."""
    return _time(script, dataset.getitem, figure) if dataset.getitem is not None else 0.0


def is_remembered(dataset: Dataset) -> bool:
    """Whether items are kept by a decorator of ``__getitem__``: ``@functools.lru_cache``."""
    thing = dataset.thing
    return isinstance(thing, Inst) and any(map(remembers, thing.cls.methods("__getitem__")))


def making(script: Script, loader: Loader, size: int) -> float:
    """Seconds that one process takes to make so many items, as likely as not: of images in memory,
    of files, of what ``__getitem__`` computes; 0 of other data.
    """
    sets = loader.datasets
    if surely(inputs.library_name_of(d.thing) in inputs.NATIVE for d in sets):
        return size * machine.PICTURE
    seconds = min((_of_files(script, d) for d in sets), default=0.0)
    if script.analysis(_speaks_of_large_files):
        seconds *= TIMES
    likely = LIKELY * min((least(script, d, USUAL) for d in sets), default=0.0)
    return size * (seconds + likely if size * likely >= machine.COSTLY else seconds)


def _speaks_of_large_files(script: Script) -> bool:
    """``script.analysis(_speaks_of_large_files)``: by a text anywhere."""
    return any(
        isinstance(n.value, str) and LARGE.search(n.value) for n in script.each(ast.Constant)
    )


def _of_files(script: Script, dataset: Dataset) -> float:
    """Seconds that an item takes which is read from files; 0 of others."""
    thing = dataset.thing
    if isinstance(thing, Ext) and inputs.library_name_of(thing) in inputs.FOLDERS:
        given = thing.args.get(-1, "transform")
        return PHOTO + min((_of(script, t, READING) for t in given), default=0.0)
    return least(script, dataset, READING) if "file" in dataset.reads else 0.0


def rows_of(script: Script, dataset: Dataset) -> int | None:
    """How many rows an item has at the most that is cut out of tensors in memory, by the slices in
    ``__getitem__``; None where what is taken of them is not known.
    """
    lengths: list[int | None] = [None] if "file" in dataset.reads else []
    for taken in live_nodes(dataset.getitem or ast.Pass()):
        if isinstance(taken, ast.Subscript):
            cut = [n for n in walk(taken.slice) if isinstance(n, ast.Slice)]
            lengths += [bounds.width(script, n.lower, n.upper) for n in cut if n.upper]
            if not cut and isinstance(taken.value, ast.Attribute):
                known = surely(isinstance(t, (Seq, Const)) for t in script.values(taken))
                lengths += [] if known else [None]
    return max(all_known(lengths), default=None)


class _Times(dict[tuple[ast.AST, Figure], float]):
    """``script.analysis(_Times)``: what functions take; nothing while they are followed."""

    def __init__(self, script: Script):
        super().__init__()


def _time(script: Script, function: ast.AST, figure: Figure) -> float:
    known, key = script.analysis(_Times), (function, figure)
    if key not in known:
        known[key] = 0.0
        times = (
            (_once(script, n, figure), n) for n in live_nodes(function) if isinstance(n, COMPUTES)
        )
        known[key] = sum(time * _turns(script, n, function, figure) for time, n in times if time)
    return known[key]


def _once(script: Script, node: ast.AST, figure: Figure) -> float:
    match node:
        case ast.Call(func=func):
            found = [_of(script, t, figure) for t in script.values(func)]
            more = WORD * _cut_to(script, node) + DRAWN * _drawn(script, node)
            more += LISTED * _listed(script, node)
            return min(found, default=0.0) + (0.0 if figure.files else more)
        case ast.Subscript(value=held) if not figure.files and script.must_be(held, Tensor):
            return METHOD
    return 0.0 if figure.files else OPERATION


def _drawn(script: Script, call: ast.Call) -> int:
    """How many numbers ``rng.normal(0, 1, (h, w))`` and ``rand(h, w)`` draw, as far as they are
    known; 0 of other calls.
    """
    if short_name(call.func) not in DRAWS:
        return 0
    sizes = [bounds.whole_number(script.values(e)) for e in sides_of(script, call)]
    return math.prod(n for n in sizes if n is not None) if len(sizes) > 1 else 0


def _listed(script: Script, call: ast.Call) -> int:
    """How many numbers of Python ``torch.tensor(rows[i][t : t + n])`` and ``torch.tensor([(h, 0)
    for h in range(n)])`` take one by one, as far as they are known; 0 of other calls.
    """
    if not call.args or not script.is_call(call, *TAKES_LISTS):
        return 0
    match given := call.args[0]:
        case ast.ListComp(elt=elt):
            each = len(elt.elts) if isinstance(elt, SEQUENCES) else 1
            return each * (bounds.range_turns(script, given) or 0)
        case ast.Subscript(slice=ast.Slice(lower=first, upper=ast.expr() as last)):
            return (bounds.width(script, first, last) or 0) if _is_a_list(script, given) else 0
    return 0


def _is_a_list(script: Script, part: ast.expr) -> bool:
    """Whether it certainly is a part of a list: of ``array.tolist()``, that an attribute holds."""
    if script.must_be(part, Seq):
        return True
    whole = root_of(part, ast.Subscript)
    made = made_of(script, whole) if isinstance(whole, VARIABLES) else []
    return surely(is_method(e, "tolist") for e in made)


def _cut_to(script: Script, call: ast.Call) -> int:
    """How many words ``tokenizer(text, truncation=True, max_length=n)`` leaves at most; 0 of other
    calls.
    """
    if not surely(names.is_tokenizer(_owner(t)) for t in script.called(call)):
        return 0
    given = (k.value for k in call.keywords if k.arg == "max_length")
    return next((bounds.whole_number(script.values(e)) or 0 for e in given), 0)


def _owner(callee: Thing) -> str:
    thing = callee.this if isinstance(callee, Method) else callee
    return thing.name if isinstance(thing, Ext) else ""


def _turns(script: Script, node: ast.AST, function: ast.AST, figure: Figure) -> int:
    """How often it runs in a function, by the loops there whose turns are known or guessed."""
    found = 1
    for here, outer in outwards(node):
        if outer is function:
            break
        again = isinstance(outer, COMPREHENSIONS) and not isinstance(here, ast.comprehension)
        again = is_repeated(here, outer) if isinstance(outer, LOOPS) else again
        turns = bounds.range_turns(script, outer)
        if turns is None and again:
            turns = figure.unknown
        if turns and not any(nodes_in(outer, ast.Break, ast.Return)):
            found *= turns
    return found


def _of(script: Script, callee: Thing, figure: Figure) -> float:
    match callee:
        case Ref(name="numpy.load") if figure.files and script.calls("numpy.savez_compressed"):
            return UNPACKED
        case Ref(name=name):
            return figure.of(name)
        case Ext() if figure.files:
            return sum(TURNS.get(kind_of(t), 0.0) for t in steps_of(callee))
        case Ext() | Method() if names.is_tokenizer(_owner(callee)):
            return TEXT
        case Method(this=this) if not isinstance(this, (Seq, DictValue)):
            library = first_part(this.name) if isinstance(this, Unknown) else ""
            return SECONDS.get(library, METHOD)
    return sum(_time(script, node, figure) for node in _functions(callee))


def _functions(callee: Thing) -> Iterator[ast.AST]:
    match callee:
        case Func(node=node) | Bound(func=Func(node=node)):
            yield node
        case Inst(cls=cls):
            for name in ("__call__", "forward"):
                yield from (f.node for f in cls.methods(name))
