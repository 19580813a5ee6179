"""What it takes the host to make an item in memory, at the least: by the calls that ``__getitem__``
makes, whatever the size of the data.

Measured with NumPy 2, Pillow 12 and torch 2.13 on one core with images of 32 x 32 pixels, and
halved, so that a fast host is not taken for a
slow one: most calls cost what calling them costs there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.facts.cost import inputs, machine
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


def worth_a_worker(script: Script, loader: Loader) -> bool:
    """Whether the items of a batch take so long that it pays to make them in another process."""
    size = inputs.batch_size(loader)
    times = [least(script, dataset) for dataset in loader.datasets]
    return size is not None and bool(times) and size * min(times) >= machine.COSTLY


def least(script: Script, dataset: Dataset) -> float:
    """Seconds that one item takes at the least; calls under conditions count as well."""
    return _time(script, dataset.getitem, 0) if dataset.getitem is not None else 0.0


def _time(script: Script, function: ast.AST, depth: int) -> float:
    calls = [n for n in live(function) if isinstance(n, ast.Call)] if depth < DEEP else []
    return sum(min((_of(script, t, depth) for t in script.values(c.func)), default=0.0) for c in calls)  # fmt: skip


def _of(script: Script, callee: Thing, depth: int) -> float:
    match callee:
        case Ref(name=name) if name not in CHEAP:
            return SLOW.get(name, SECONDS.get(name.partition(".")[0], 0.0))
        case Ext(name=name) if names.is_tokenizer(name):
            return TEXT
        case Method(this=Ext(name=name)) if names.is_tokenizer(name):
            return TEXT
        case Method(this=this) if not isinstance(this, (Seq, DictValue)):
            library = this.name.partition(".")[0] if isinstance(this, Unknown) else ""
            return SECONDS.get(library, METHOD)
    return sum(_time(script, node, depth + 1) for node in _functions(callee))


def _functions(callee: Thing) -> Iterator[ast.AST]:
    match callee:
        case Func(node=node) | Bound(func=Func(node=node)):
            yield node
        case Inst(cls=cls):
            for name in ("__call__", "forward"):
                yield from (f.node for f in cls.find(name) or () if isinstance(f, Func))
