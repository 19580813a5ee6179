"""``torch.FloatTensor(states)`` of a list of arrays: torch takes their numbers one by one, as those
of Python; of one array it takes the memory.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import Edits, Keyword, Rewrite, Wrap
from autofast.facts.arrays import Array, array_of, dtype_named
from autofast.model.calls import is_method, keyword_of
from autofast.model.events import Site
from autofast.model.names import first_part
from autofast.model.script import Script
from autofast.model.several import of_kind, surely, wordset
from autofast.model.source import parent_of, source_of
from autofast.model.syntax import SEQUENCES
from autofast.model.values import Const, Num, Seq, Tensor, Thing, Unknown, Values
from autofast.ops.families import REGROUPING
from autofast.write.imports import numpy_in
from autofast.write.spelling import torch_in

OLD = wordset("FloatTensor DoubleTensor LongTensor IntTensor Tensor", "torch.")
TYPED = ("torch.tensor", "torch.as_tensor")
MAKERS = (*OLD, *TYPED)
# Libraries whose functions give arrays and numbers, and no tensors.
OF_NUMPY = wordset("numpy gym gymnasium scipy cv2 PIL pandas h5py skimage sklearn librosa random")
SPACES = ("action_space.", "observation_space.")  # what is drawn of those of an environment
DEFAULTS = ("torch.set_default_dtype", "torch.set_default_tensor_type")
DEEP = 4  # lists in lists
UNKNOWN = "it is not known what the list holds: a tensor of the device is no part of an array"


def lists_of_arrays(script: Script) -> Iterator[tuple[Site, Edits, str]]:
    """Calls that make a tensor of a list in which arrays may be, with what makes one array of it
    first, or why that may be something else.
    """
    for site in script.calls(*MAKERS):
        match site.node:
            case ast.Call(args=[given], keywords=keywords) if {k.arg for k in keywords} <= {
                "dtype",
                "device",
            }:
                found = script.values(given)
                held = is_list(found) and _may_hold_arrays(script, site.node, found)
                if held and _keeps_type(script, site.node):
                    yield site, *_as_one_array(script, given, found)
                elif edits := _without_a_list(script, site.node, given):
                    yield site, edits, ""


def is_list(found: Values) -> bool:
    return surely(isinstance(t, Seq) and t.kind in ("list", "tuple") for t in found)


def _as_one_array(script: Script, given: ast.expr, found: Values) -> tuple[Edits, str]:
    leaves = set(_leaves(found))
    if any(isinstance(t, Tensor) for t in leaves):
        return (), ""
    if not all(map(_is_of_numpy, leaves)):
        return (), UNKNOWN
    np, imports = numpy_in(source_of(given))
    return (*imports, Wrap(given, f"{np}.array({{}})")), ""


def _leaves(found: Values, depth: int = 0) -> Iterator[Thing]:
    for thing in found:
        if isinstance(thing, Seq) and thing.kind in ("list", "tuple") and depth < DEEP:
            yield from _leaves(thing.any(), depth + 1)
        else:
            yield thing


def _may_hold_arrays(script: Script, call: ast.Call, found: Values) -> bool:
    """Whether elements may be arrays, as far as is known: numbers of Python alone hardly take
    longer one by one.
    """
    given = call.args[0]
    if any(isinstance(t, Unknown) and first_part(t.name) != "random" for t in _leaves(found)):
        return True
    known = array_of(script, given)
    if known is not None and known.is_list:
        return known.rank != 1
    if isinstance(given, SEQUENCES):
        return any(array_of(script, e) is not None for e in given.elts)
    elements = [t for thing in of_kind(found, Seq) for t in thing.any()]
    plain = [t for t in elements if type(t) is Num and not t.scalar and t.synced is None]
    return bool(plain) and not _is_of_integers(script, call)


def _is_of_integers(script: Script, call: ast.Call) -> bool:
    """Whether the tensor has whole numbers, as indices that lists hold."""
    said = keyword_of(call, "dtype")
    dtype = dtype_named(script, said) if said is not None else ""
    return dtype.startswith("int") or script.is_call(call, "torch.LongTensor", "torch.IntTensor")


def _is_of_numpy(thing: Thing) -> bool:
    match thing:
        case Const(value=value):
            return isinstance(value, (int, float, tuple))
        case Num():
            return True
        case Unknown(name=name):
            return first_part(name) in OF_NUMPY or name.startswith(SPACES)
    return False


# ----------------------------------------------------------------------------------- of which type
def _keeps_type(script: Script, call: ast.Call) -> bool:
    """Whether the tensor's type does not depend on what the list holds: it is said, or that of all
    arrays, or it is cast to single precision before anything is computed.
    """
    name = script.library_function(call)
    if name in OLD or keyword_of(call, "dtype") is not None:
        return True
    known = array_of(script, call.args[0])
    if known is not None and known.is_list and known.plain and known.dtype:
        return (known.rank or 0) > 1
    return _is_cast(script, call)


def _is_cast(script: Script, made: ast.expr) -> bool:
    """``torch.tensor(rows).to(device).float()``"""
    outer = parent_of(parent_of(made) or made)
    while is_method(outer) and outer.func.value is made:
        if outer.func.attr == "float" and not outer.args:
            return True
        if outer.func.attr in ("to", "type"):
            given = [*outer.args, *(k.value for k in outer.keywords)]
            if any(dtype_named(script, e) == "float32" for e in given):
                return True
        elif outer.func.attr not in REGROUPING | {"cuda", "cpu"}:
            return False
        made, outer = outer, parent_of(parent_of(outer) or outer)
    return False


def _without_a_list(script: Script, call: ast.Call, given: ast.expr) -> Edits:
    """``torch.tensor(rows[i])`` for ``torch.tensor(rows[i].tolist())``, of the same type; nothing
    where that is not certain.
    """
    if not is_method(given, "tolist") or script.library_function(call) != "torch.tensor":
        return ()
    array = given.func.value
    known = array_of(script, array)
    if known is None or known.is_list or known.tensor or not known.plain:
        return ()
    taken = Rewrite(given, "{array}", {"array": array})
    if keyword_of(call, "dtype") is not None or known.dtype in ("int64", "bool"):
        return (taken,)
    if not _is_of_fractions(known) or script.calls(*DEFAULTS):
        return ()
    torch, imports = torch_in(source_of(call))
    return (*imports, taken, Keyword(call, "dtype", f"{torch}.float32"))


def _is_of_fractions(array: Array) -> bool:
    return array.dtype in ("float32", "float64")
