"""``isinstance(x, (tuple, list))``, ``type(x) in (tuple, list)``, ``torch.is_tensor(x)``: what a
variable may be in either arm.
"""

from __future__ import annotations

import ast
import re

from autofast.model.kinds import is_module
from autofast.model.tensors import SHAPE
from autofast.model.values import Const, Dict, Ext, Inst, Num, Ref, Seq, Tensor, Thing, Values

TYPES = {
    **{f"builtins.{name}": name for name in ("tuple", "list", "dict")},
    **dict.fromkeys(("torch.Tensor", "torch.is_tensor"), "tensor"),
    "torch.nn.Module": "module",
}
# Not those that extend or hold another one.
LAYER = re.compile(
    r"torch\.nn\.(Linear|(Conv|ConvTranspose|BatchNorm|InstanceNorm|Dropout|MaxPool|AvgPool)[123]d"
    r"|GroupNorm|LayerNorm|Embedding|ReLU|LeakyReLU|Sigmoid|Tanh|GELU|Dropout|Identity|GRU|LSTM|Sequential|ModuleList)"
)


def tested(test: ast.expr) -> tuple[ast.Name, ast.expr, bool, bool] | None:
    """The variable whose type is asked for, the types (or the function that asks), whether they
    are what it must be, and whether a class that extends one of them is none.
    """
    match test:
        case ast.Call(func=ast.Name(id="isinstance"), args=[ast.Name() as name, types]):
            return name, types, True, False
        case ast.Call(func=ast.Attribute(attr="is_tensor") as asks, args=[ast.Name() as name]):
            return name, asks, True, False
        case ast.Compare(
            left=ast.Call(func=ast.Name(id="type"), args=[ast.Name() as name]),
            ops=[ast.In() | ast.Is() | ast.Eq() | ast.NotIn() | ast.IsNot() | ast.NotEq() as asks],
            comparators=[types],
        ):
            return name, types, isinstance(asks, (ast.In, ast.Is, ast.Eq)), True
    return None


def kinds(found: Values) -> frozenset[str] | None:
    """The types that are asked for: tuple, list, dict, tensor, module, torch's layers by their
    names; None where others are among them.
    """
    names: set[str] = set()
    for thing in found:
        if isinstance(thing, Seq) and thing.items is not None and not thing.elem:
            inner = [kinds(part) for part in thing.items]
            if any(i is None for i in inner):
                return None
            names.update(*(i for i in inner if i is not None))
        elif isinstance(thing, Ref) and thing.name in TYPES:
            names.add(TYPES[thing.name])
        elif isinstance(thing, Ref) and LAYER.fullmatch(thing.name):
            names.add(thing.name)
        else:
            return None
    return frozenset(names) or None


def is_one_of(thing: Thing, asked: frozenset[str], exactly: bool) -> bool | None:
    """Whether a value is of one of these types; None where that is not known, as for classes that
    may extend one of them where ``exactly`` these are asked for.
    """
    if isinstance(thing, Tensor):  # or a parameter
        return None if thing.rank == "?" or exactly and "tensor" in asked else "tensor" in asked
    if isinstance(thing, Seq):
        of_its_own = exactly and thing.names and "tuple" in asked
        return None if thing.kind == "parameters" or of_its_own else thing.kind in asked
    if isinstance(thing, Dict):
        return None if exactly and "dict" in asked else "dict" in asked
    if isinstance(thing, Num):  # an array of NumPy's; what `.tolist()` gives; a size
        return None if thing.pattern in ("", SHAPE) and not thing.scalar else False
    if isinstance(thing, Const):
        return type(thing.value).__name__ in asked
    if isinstance(thing, (Ext, Inst)) and is_module(thing) and not _is_container(thing):
        return None if "module" in asked else _is_layer(thing, asked)  # `type(x) is nn.Module`
    return None


def _is_layer(thing: Ext | Inst, asked: frozenset[str]) -> bool | None:
    """No where a module is none of the layers that are asked for; None where it may be one, or
    have been put in the place of one since.
    """
    names = thing.cls.external - {"torch.nn.Module"} if isinstance(thing, Inst) else {thing.name}
    other = not names & asked and all(map(LAYER.fullmatch, names))
    return False if other or not any(map(LAYER.fullmatch, asked)) else None


def _is_container(thing: Ext | Inst) -> bool:
    """A class of the project that extends a module and a container of Python at once."""
    return isinstance(thing, Inst) and any(
        not name.startswith("torch.") for name in thing.cls.external
    )


def is_possible(have: Values, keep: Values) -> bool:
    """Whether the arm is come to for which ``keep`` is left of what the variable may hold
    (``have``): what is held for a tensor or a number may be something else after all.
    """
    return bool(keep) or not all(isinstance(t, (Inst, Ext, Dict, Seq)) for t in have)
