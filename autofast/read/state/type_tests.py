"""``isinstance(x, (tuple, list))``, ``type(x) in (tuple, list)``, ``torch.is_tensor(x)``: what a
variable may be in either arm.
"""

from __future__ import annotations

import ast
import re

from autofast.model.calls import short_name
from autofast.model.kinds import is_module
from autofast.model.names import LOADER, is_optimizer, is_scheduler
from autofast.model.several import wordset
from autofast.model.tensors import DTYPE, SHAPE
from autofast.model.values import (
    OBJECTS,
    Const,
    Dict,
    Ext,
    Inst,
    Num,
    Ref,
    Seq,
    Tensor,
    Thing,
    Values,
    is_named,
)

SEQUENCES = "tuple list str bytes range deque"
TYPES = {
    **{f"builtins.{name}": name for name in "tuple list dict set str bytes int float bool".split()},
    **dict.fromkeys(("torch.Tensor", "torch.is_tensor"), "tensor"),
    "torch.nn.Module": "module",
    "torch.utils.data.DataLoader": "loader",
    "torch.optim.Optimizer": "optimizer",
    "dataclasses.is_dataclass": "dataclass",
    **dict.fromkeys(("collections.abc.Mapping", "typing.Mapping"), "dict"),
    **dict.fromkeys(("collections.abc.Sequence", "typing.Sequence"), SEQUENCES),
}
ASKS = ("is_tensor", "is_dataclass")
OF_TENSORS = wordset("to cuda cpu device dtype shape size dim detach is_cuda")
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
        case ast.Call(func=asks, args=[ast.Name() as name]) if short_name(asks) in ASKS:
            return name, asks, True, False
        case ast.Call(func=ast.Name(id="hasattr"), args=[ast.Name() as name, asks]):
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
        elif is_named(thing, Ref, TYPES):
            names.update(TYPES[thing.name].split())
        elif isinstance(thing, Ref) and LAYER.fullmatch(thing.name):
            names.add(thing.name)
        elif isinstance(thing, Const) and thing.value in OF_TENSORS:
            names.update(("tensor", "module", f"hasattr {thing.value}"))
        else:
            return None
    return frozenset(names) or None


def is_one_of(thing: Thing, asked: frozenset[str], exactly: bool) -> bool | None:
    """Whether a value is of one of these types; None where that is not known, as for classes that
    may extend one of them where ``exactly`` these are asked for.
    """
    if isinstance(thing, Tensor):  # or a parameter
        another = exactly and "tensor" in asked and (thing.param or not thing.sure)
        if thing.sure is None:
            return False if asked == {"tensor"} else None
        return None if thing.rank == "?" or another else "tensor" in asked
    if isinstance(thing, Seq):
        of_its_own = exactly and thing.names and "tuple" in asked
        return None if of_its_own else thing.kind in asked
    if isinstance(thing, Dict):
        another = exactly and not isinstance(thing.node, (ast.Dict, ast.DictComp))
        return None if another and "dict" in asked else "dict" in asked
    if isinstance(thing, Num) and (is_anything(thing) or thing.pattern == DTYPE):
        return None  # an array of NumPy's; what `.tolist()` gives; a size
    if isinstance(thing, Num):
        return "str" in asked if thing.pattern else None if asked & {"int", "float"} else False
    if isinstance(thing, Const):
        return any(t.__name__ in asked for t in type(thing.value).__mro__[: 1 if exactly else None])
    if isinstance(thing, Inst) and thing.cls.external <= {"dataclass", "builtins.object"}:
        there = bool(asked & thing.cls.external)
        return None if any("hasattr" in name for name in asked) else there
    if isinstance(thing, OBJECTS) and is_module(thing) and not _is_container(thing):
        return None if "module" in asked else _is_layer(thing, asked)  # `type(x) is nn.Module`
    if isinstance(thing, Ext) and (role := _role(thing.name)) and not exactly:
        return None if any("hasattr" in name for name in asked) else role in asked
    return None


def _role(name: str) -> str:
    """What an object of torch that serves training is; none of them is a tensor or a module."""
    if is_optimizer(name):
        return "optimizer"
    return "loader" if name == LOADER else "scheduler" if is_scheduler(name) else ""


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


def is_anything(thing: Thing) -> bool:
    """Whether what is held for a tensor or a number may be something else after all."""
    if isinstance(thing, Num):
        return thing.pattern in ("", SHAPE) and not thing.scalar
    sure = isinstance(thing, (Inst, Ext, Dict, Seq, Const))
    return not sure and not (isinstance(thing, Tensor) and thing.sure)


def is_possible(have: Values, keep: Values) -> bool:
    """Whether the arm is come to for which ``keep`` is left of what the variable may hold
    (``have``).
    """
    return bool(keep) or any(map(is_anything, have))
