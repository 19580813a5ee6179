"""What says how old the torch of a project is: its requirement files, and what its code uses that is gone since."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import chain

from autofast.model.events import BranchFrame, Occurrence
from autofast.model.script import Script
from autofast.model.source import Source, source_of, statement_of
from autofast.model.torch_age import Limit, TorchAge, Version
from autofast.model.values import Arguments, Ext, Ref
from autofast.read.requirements import limits, lower

# The last torch for a Python (python -> torch), as the wheels on PyPI go.
PYTHONS: dict[Version, Version] = {
    (2,): (1, 4),
    (3, 4): (1, 0),
    (3, 5): (1, 5),
    (3, 6): (1, 10),
    (3, 7): (1, 13),
    (3, 8): (2, 4),
    (3, 9): (2, 8),
}
PYTHON_37, PYTHON_38 = PYTHONS[3, 7], PYTHONS[3, 8]
FIRST_PAIRED = (0, 3)  # torchvision: older ones take any torch

_SCIPY = "since SciPy 1.3, and older ones want Python 3.7"
_SKIMAGE = "since scikit-image 0.18, and older ones want Python 3.8"
_SKLEARN = "since scikit-learn 0.23, and older ones want Python 3.8"
_TF1 = "since TensorFlow 2, and older ones want Python 3.7"
# What is gone: the last torch that it goes with, and since when, in words.
GONE: dict[str, tuple[Version, str]] = {
    "torch._six": ((1, 13), "in torch 2.0"),
    "torch._utils._accumulate": ((2, 2), "in torch 2.3"),
    "torch.legacy": ((0, 4), "in torch 1.0"),
    "torch.utils.ffi": ((0, 4), "in torch 1.0"),
    "torch.utils.serialization": ((0, 4), "in torch 1.0"),
    "torch.utils.data.dataloader._DataLoaderIter": ((1, 1), "in torch 1.2"),
    "torch.fft": ((1, 7), "as a function in torch 1.8"),
    **dict.fromkeys(("torch.ifft", "torch.rfft", "torch.irfft"), ((1, 7), "in torch 1.8")),
    **dict.fromkeys(("torch.eig", "torch.lstsq"), ((1, 12), "in torch 1.13")),
    "torch.symeig": ((1, 13), "in torch 2.0"),
    "torchtext.legacy": ((1, 10), "since the torchtext of torch 1.11"),
    "torchvision.models.utils": ((1, 12), "since the torchvision of torch 1.13"),
    **{
        f"torchvision.transforms.{name}": ((1, 11), "since the torchvision of torch 1.12")
        for name in ("Scale", "RandomSizedCrop")
    },
    **{
        f"scipy.misc.{name}": (PYTHON_37, _SCIPY)
        for name in (
            "bytescale fromimage imfilter imread imresize imrotate imsave imshow toimage".split()
        )
    },
    **{
        f"skimage.measure.compare_{name}": (PYTHON_38, _SKIMAGE)
        for name in ("mse", "nrmse", "psnr", "ssim")
    },
    **dict.fromkeys(
        ("sklearn.externals.joblib", "sklearn.externals.six", "sklearn.utils.linear_assignment_"),
        (PYTHON_38, _SKLEARN),
    ),
    **{
        f"tensorflow.{name}": (PYTHON_37, _TF1)
        for name in "contrib ConfigProto HistogramProto Session Summary placeholder summary.FileWriter".split()
    },
    "time.clock": (PYTHON_37, "since Python 3.8"),
}
MODULES = frozenset({"torch.fft"})  # what is gone as a function only


def torch_age(script: Script) -> TorchAge:
    """What limits the torch of a script's project."""
    found = chain(
        _pins(script), _imports(script), _calls(script), _stft(script), _functions(script)
    )
    asked = [lower(spec) for _, spec, _ in limits(script, "torch")]
    return TorchAge(tuple(found), max(asked, default=()))


def _pins(script: Script) -> Iterator[tuple[str, Limit]]:
    for place, spec, limit in limits(script, "torch"):
        if limit is not None:
            yield f"{place} asks for torch {spec}", limit
    for place, spec, limit in limits(script, "torchvision"):
        if limit is not None and len(limit.newest) > 1 and limit.newest >= FIRST_PAIRED:
            paired = Limit(_paired(limit.newest), limit.included)
            yield f"{place} asks for torchvision {spec}", paired
    for place, spec, limit in limits(script, "python"):
        for python, torch in PYTHONS.items():
            if limit is not None and _ends_with(limit, python):
                yield f"{place} asks for Python {spec}", Limit(torch)
                break


def _paired(vision: Version) -> Version:
    """The torch that a torchvision is made for: 0.14 for 1.13, 0.15 for 2.0."""
    minor = vision[1]
    return (1, minor - 1) if vision[0] == 0 and minor < 15 else (2, minor - 15)


def _ends_with(limit: Limit, python: Version) -> bool:
    """Whether ``python`` is the newest that is allowed, or newer than that."""
    return limit.is_below((*python[:-1], python[-1] + 1))


def _imports(script: Script) -> Iterator[tuple[str, Limit]]:
    """What a file imports, whatever happens."""
    for source in script.sources:
        for node in source.tree.body:
            for name in _imported(node):
                known = next((k for k in GONE if f"{name}.".startswith(f"{k}.")), "")
                if known and known not in MODULES:
                    yield _used(source, node, known)


def _imported(node: ast.stmt) -> list[str]:
    match node:
        case ast.ImportFrom(module=str(module), names=aliases, level=0):
            return [f"{module}.{alias.name}" for alias in aliases]
        case ast.Import(names=aliases):
            return [alias.name for alias in aliases]
    return []


def _calls(script: Script) -> Iterator[tuple[str, Limit]]:
    """What is called in every run; behind an option, the rest of a script may run with what is new."""
    for site in script.calls(*GONE):
        if any(map(_is_certain, site)):
            yield _used(source_of(site.node), site.node, site.kind)


def _is_certain(occurrence: Occurrence) -> bool:
    return not any(isinstance(f, BranchFrame) and not f.known for f in occurrence.stack)


def _stft(script: Script) -> Iterator[tuple[str, Limit]]:
    """``torch.stft(x, n)`` of real numbers; not where another call of it says ``return_complex``, for a newer torch."""
    calls = [(site.node, o) for site in script.calls("torch.stft") for o in site]
    if all(o.args is not None and _is_bare(o.args) for _, o in calls):
        for node, o in calls:
            if _is_certain(o):
                words = "calls torch.stft without return_complex, which is an error since torch 2.0"
                yield f"{source_of(node).rel}:{getattr(node, 'lineno', 1)} {words}", Limit((1, 13))


def _is_bare(args: Arguments) -> bool:
    return not args.open and args.loose is None and args.given(9, "return_complex") is None


def _used(source: Source, node: ast.AST, name: str) -> tuple[str, Limit]:
    newest, since = GONE[name]
    line = getattr(node, "lineno", 1)
    return f"{source.rel}:{line} uses {name}, which is gone {since}", Limit(newest)


def _functions(script: Script) -> Iterator[tuple[str, Limit]]:
    """What functions have given back, and classes have been, in older versions."""
    for site in script.calls("torch.nn.utils.rnn.pack_padded_sequence"):
        match statement_of(site.node):
            case ast.Assign(targets=[ast.Tuple(elts=[_, ast.Name()])], value=value) if (
                value is site.node
            ):
                words = "takes a PackedSequence for two values, and it has four since torch 1.1"
                yield f"{source_of(value).rel}:{value.lineno} {words}", Limit((1, 0))
    for source in script.sources:
        for node in source.each(ast.ClassDef):
            if _is_old_function(script, node):
                words = (
                    "is an autograd.Function whose forward is not static, an error since torch 1.5"
                )
                yield f"{source.rel}:{node.lineno} {words}", Limit((1, 4))


def _is_old_function(script: Script, node: ast.ClassDef) -> bool:
    named = {
        thing.name
        for base in node.bases
        for thing in script.values(base)
        if isinstance(thing, (Ext, Ref))
    }
    return "torch.autograd.Function" in named and any(
        isinstance(stmt, ast.FunctionDef) and stmt.name == "forward" and not stmt.decorator_list
        for stmt in node.body
    )
