"""One table of torch's operations: which of them make views, write to an argument, draw, reduce,
wait, ...

``torch_ops.toml`` is made from torch's own schemas (``scripts/torch_ops.py``),
``beyond_schemas.toml`` is what they do not say.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent
SPACES = {  # the way a key of the tables begins, for the place where an operation is found
    "torch.nn.functional.": "F.",
    "torch.nn.init.": "init.",
    "torch.Tensor.": ".",
    "torch.": "torch.",
    ".": ".",
}
LISTS = {"F.": "functional", "init.": "init", ".": "methods", "torch.": "functions"}
# torch.linalg.norm is linalg_norm there; the reader's canonical name for it is torch.norm.
ATEN = ("linalg", "fft", "special")


@dataclass(frozen=True)
class Op:
    """What an operation of torch does. What holds for one overload (``max(x)``, ``max(x, y)``)
    holds for the name.

    Attributes:
        view: whether the result may share, or always shares, memory with an argument.
        mutates: positions of the arguments that are written to (a method's tensor is 0), without
            ``out=`` and ``inplace=``.
        inplace: the position of a parameter ``inplace`` that has it write to argument 0; None
            without one.
        out: it takes ``out=``.
        reshapes: what it writes to gets another shape, or other strides.
        flags: it writes to the tensor object alone, not to the numbers in it.
        pointwise: each element of the result depends on the elements of the operands at the same
            place.
        reduces: a dimension, or all of them, may be reduced.
        factory: a new tensor, of no operand's values.
        random: it may draw random numbers.
        syncs: the host may wait for the device.
        autocast: what autocast on CUDA does with its floating-point operands.
        gradient: a gradient can flow through it.
        dtype: what its result has where it is not what torch makes of the operands' dtypes: ``int``
            (integers or bool), ``float`` (floats of integers, too), ``complex``, ``?`` (something
            else).
        real: complex operands give real results.
        numbers: it gives a number or a bool of Python.
        indices: it gives a pair whose second part is a tensor of indices: it may, or always.
    """

    name: str
    view: Literal["", "maybe", "always"] = ""
    mutates: frozenset[int] = frozenset()
    inplace: int | None = None
    out: bool = False
    reshapes: bool = False
    flags: bool = False
    pointwise: bool = False
    reduces: bool = False
    factory: bool = False
    random: bool = False
    syncs: bool = False
    autocast: Literal["", "lower", "fp32", "promote"] = ""
    gradient: bool = True
    dtype: Literal["", "int", "float", "complex", "?"] = ""
    real: bool = False
    numbers: bool = False
    indices: Literal["", "maybe", "always"] = ""


UNKNOWN = Op("")  # an operation that the tables do not know


@cache
def op(name: str) -> Op | None:
    """The operation that is called ``torch.add``, ``torch.nn.functional.relu``,
    ``torch.Tensor.view`` or (a method) ``.view``.

    None where the tables do not know it.
    """
    prefix = next((p for p in SPACES if name.startswith(p)), "")
    if not prefix:
        return None
    space, short = SPACES[prefix], name.removeprefix(prefix)
    keys = _keys(space, short)
    return _op(name, keys) if keys else None


def _named(name: str) -> Op | None:
    """The same; a name alone is a method's."""
    return op(name if "." in name else f".{name}")


def is_new(name: str) -> bool:
    """Whether ``torch.nn`` has nothing of this name: what a program puts there is its own alone."""
    space, _, short = name.rpartition(".")
    return space == "torch.nn" and short not in _tables().names["modules"]


def is_in_place(name: str, flags: bool = False) -> bool:
    """Whether a function or method writes to the numbers of its first argument (or to its
    ``flags``).

    As the table says; else by torch's convention, a name that ends in one underscore.

    ``name`` may be a method's name alone, of an object that may be no tensor.
    """
    known = _named(name)
    if known is not None:
        return 0 in known.mutates and (flags or not known.flags)
    short = name.rpartition(".")[2]
    return short.endswith("_") and not short.startswith("_") and not short.endswith("__")


def is_view(name: str) -> bool:
    """Whether the result of a function, method or attribute may be a view of an argument, or the
    argument itself; no if not known.
    """
    return bool((_named(name) or UNKNOWN).view)


def may_share(name: str) -> bool:
    """Whether the result of a function or method may share memory with an argument, or be it:
    views, and what works in place.
    """
    known = _named(name)
    return bool(known.view) or 0 in known.mutates if known is not None else is_in_place(name)


def is_pointwise(name: str) -> bool:
    """Whether a function or method works on each place of its operands for itself, and makes a new
    tensor; no if not known.
    """
    return (op(name) or UNKNOWN).pointwise and not may_share(name)


def draws(name: str) -> bool:
    """Whether a function or method may draw random numbers: as the table says, no where it does not
    know it.
    """
    return (_named(name) or UNKNOWN).random


def reshapes(name: str) -> bool:
    """Whether a method gives the tensor that it is called on another shape or other strides; no if
    not known.
    """
    known = _named(name) or UNKNOWN
    return known.reshapes and not known.flags


def autocast(short: str) -> str:
    """What autocast on CUDA does with the operands of a method or function of this name, given
    without its module: lower, fp32, ...
    """
    return next((o.autocast for o in _called(short) if o.autocast), "")


def by_element(short: str) -> bool:
    """Whether each element of what a method or function of this name gives, also in place, comes of
    the elements at its place; the name is given without its module.
    """
    return any(o.pointwise for o in _called(short))


def _called(short: str) -> list[Op]:
    """The method and the functions of a name."""
    found = (op(f"{space}{short}") for space in (".", "torch.", "torch.nn.functional."))
    return [one for one in found if one is not None]


def _keys(space: str, short: str) -> tuple[str, ...]:
    """The keys under which the tables may know an operation; none where they do not know it."""
    tables = _tables()
    found = [space + short] if space + short in tables.qualified else []
    first, _, last = short.partition(".")
    if first in ATEN and last:
        aten = [f"{first}_{last}"]
    elif space == "torch.":
        aten = [short, *(f"{a}_{short}" for a in ATEN)]
    else:
        aten = [short]
    listed = next((a for a in aten if a in tables.names[LISTS[space]]), "")
    return (*found, space + short, listed) if listed else tuple(found)


def _op(name: str, keys: tuple[str, ...]) -> Op:
    tables = _tables()

    def has(property: str) -> bool:
        return any(k in tables.names.get(property, ()) for k in keys) and not any(
            k in tables.excepted.get(property, ()) for k in keys
        )

    return Op(
        name,
        view="always" if has("always_view") else "maybe" if has("maybe_view") else "",
        mutates=frozenset(
            n for n, names in tables.mutates.items() if any(k in names for k in keys)
        ),
        inplace=next(
            (
                n
                for n, names in tables.inplace.items()
                if name.startswith("torch.nn.functional.") and keys[-1] in names
            ),
            None,
        ),
        out=has("out"),
        reshapes=has("inplace_view"),
        flags=has("flags"),
        pointwise=has("pointwise"),
        reduces=has("reduces"),
        factory=has("factory"),
        random=has("random"),
        syncs=has("syncs"),
        autocast="lower"
        if has("autocast_lower")
        else "fp32"
        if has("autocast_fp32")
        else "promote"
        if has("autocast_promote")
        else "",
        gradient=not has("no_gradient"),
        dtype="int"
        if has("gives_integers")
        else "float"
        if has("gives_floats")
        else "complex"
        if has("gives_complex")
        else "?"
        if has("other_dtype")
        else "",
        real=has("gives_reals"),
        numbers=has("gives_numbers"),
        indices="always" if has("with_indices") else "maybe" if has("maybe_with_indices") else "",
    )


@dataclass(frozen=True)
class _Tables:
    names: dict[str, frozenset[str]]
    mutates: dict[int, frozenset[str]]
    inplace: dict[int, frozenset[str]]
    excepted: dict[str, frozenset[str]]
    qualified: frozenset[str]  # names that only the table by hand has


@cache
def _tables() -> _Tables:
    made, ours = (
        tomllib.loads((HERE / f).read_text()) for f in ("torch_ops.toml", "beyond_schemas.toml")
    )
    extra = _words(ours)
    positions = _words(ours["mutates"])
    mutates = _words(made["mutates"])
    names = {p: words | extra.get(p, frozenset()) for p, words in (extra | _words(made)).items()}
    every = [w for words in (*extra.values(), *positions.values()) for w in words]
    return _Tables(
        names,
        {
            int(p): mutates.get(p, frozenset()) | positions.get(p, frozenset())
            for p in mutates | positions
        },
        {int(p): words for p, words in _words(made["inplace"]).items()},
        _words(ours["except"]),
        frozenset(w for w in every if "." in w),
    )


def _words(table: dict[str, Any]) -> dict[str, frozenset[str]]:
    return {k: frozenset(v.split()) for k, v in table.items() if isinstance(v, str)}
