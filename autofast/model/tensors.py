"""Facts of tensors: what an operation makes of its operands, devices, dtypes, factories."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from autofast.model.changes import CLOCK, remember, remembered
from autofast.model.contents import with_contents
from autofast.model.names import last_part
from autofast.model.several import is_numeric, surely, wordset
from autofast.model.values import (
    COLLECTIONS,
    NOTHING,
    Arg,
    Arguments,
    Const,
    Ext,
    Given,
    Num,
    Ref,
    Setting,
    Tensor,
    Thing,
    Unknown,
    Values,
    all_of,
    any_of,
    const,
    is_const,
    is_named,
    of_kind,
    things as values,
)

# Kinds of device that may be another accelerator; some of these hold no double precision.
NOT_CUDA = wordset("mps xpu hpu accel option ?")
DTYPE = "torch.*"  # how ``str(x.dtype)`` reads
SHAPE = "torch.Size(*)"  # how ``str(x.shape)`` reads


def mixed(tensors: list[Tensor], **changes: Any) -> Tensor:
    """The facts of an operation's result, from its tensor operands."""
    key = (mixed, tuple(map(id, tensors)), tuple(changes.items()))
    known = remembered(key)
    if known is None:
        known = remember(key, (_mixed(tensors, changes), tensors))  # which keeps their ids theirs
    made: Tensor = known[0]
    return made


def _mixed(tensors: list[Tensor], changes: dict[str, Any]) -> Tensor:
    device = "?"
    kinds = {t.device for t in tensors}
    if kinds:
        device = "dev" if "dev" in kinds else "?" if "?" in kinds else "cpu"
    dtypes = {t.dtype for t in tensors}
    wide = next((d for d in ("complex", "f64") if d in dtypes), "?")
    dtype = "half" if {"half"} <= dtypes <= {"half", "int"} else wide
    dtype = dtypes.pop() if len(dtypes) == 1 else dtype
    floats = [t for t in tensors if t.dtype != "int"]  # whole numbers lend no precision
    facts: dict[str, Any] = dict(  # noqa: C408
        batch=frozenset().union(*(t.batch for t in tensors)),
        models=frozenset().union(*(t.models for t in floats or tensors)),
        passes=frozenset().union(*(t.passes for t in tensors)),
        device=device,
        dtype=dtype,
        grad=any(t.grad for t in tensors),
        loss=any(t.loss for t in tensors),
    )
    facts.update(changes)
    return Tensor(**facts)


def tensors_in(*sets: Values) -> list[Tensor]:
    """Every tensor in these values, also inside tuples, lists and dicts."""
    if not any(isinstance(t, COLLECTIONS) for values in sets for t in values):
        return list({id(t): t for values in sets for t in values if isinstance(t, Tensor)}.values())
    # One layer after the other is given the same, and asks.
    ticks, found = remembered((tensors_in, sets)) or (-1, [])
    if ticks != CLOCK.ticks:
        found = list(dict.fromkeys(of_kind(things_in(*sets), Tensor)))
        remember((tensors_in, sets), (CLOCK.ticks, found))
    return found


def is_unknown_in(*sets: Values) -> bool:
    """Whether there is something unknown in these values, also inside tuples, lists and dicts."""
    return any_of(things_in(*sets), Unknown)


def things_in(*sets: Values) -> Iterator[Thing]:
    """What is in these values, tuples, lists and dicts opened."""
    every = with_contents(t for values in sets for t in values)
    return (t for t in every if not isinstance(t, COLLECTIONS))


def binary(left: Values, right: Values, op: str) -> Values:
    """The result of an operator on abstract values."""
    tensors = of_kind((*left, *right), Tensor)
    if tensors:
        if op != "Compare" and all(
            t.rank == "0d" if isinstance(t, Tensor) else is_one_number(t) for t in (*left, *right)
        ):
            rank = "0d"
        else:
            rank = ""
        sure = any(side and side <= set(tensors) for side in (left, right)) and all(
            t.sure if isinstance(t, Tensor) else isinstance(t, (Num, Const))
            for t in (*left, *right)
        )
        if op == "Compare":
            return values(mixed(tensors, dtype="int", sure=sure))
        made = mixed(tensors, rank=rank, sure=sure)
        if made.dtype == "?" and (floating := _beside_integers(left, right)):
            made = made.but(dtype=floating)
        floats = any(_certainly_floats(side) for side in (left, right))
        if made.dtype == "int" and (op == "Div" or floats):
            made = made.but(dtype="f32")
        elif made.dtype == "int" and not all(map(_keeps_integers, (*left, *right))):
            made = made.but(dtype="?")  # the number may be an integer or not
        return values(made)
    unknown = of_kind((*left, *right), Unknown)
    numbers = all(map(is_one_number, (*left, *right)))
    return values(unknown[0]) if unknown else values(Num(scalar=numbers))


def _certainly_floats(side: Values) -> bool:
    return surely(is_const(t, float) for t in side)


def _keeps_integers(thing: Thing) -> bool:
    """Certainly leaves a tensor of integers beside it one of integers."""
    if isinstance(thing, Arg):
        typed = {k.arg: k.value for k in thing.node.keywords}.get("type")
        return isinstance(typed, ast.Name) and typed.id == "int"
    return isinstance(thing, Tensor) or is_const(thing, int)


def _beside_integers(left: Values, right: Values) -> str:
    """The dtype that integers on one side take from the other side; "" where that is not one."""
    if not all_of((*left, *right), Tensor):
        return ""  # a number may stand there, which leaves them integers
    one, other = ({t.dtype for t in side if isinstance(t, Tensor)} for side in (left, right))
    if one == {"int"} and len(other) == 1:
        return next(iter(other))
    return next(iter(one)) if other == {"int"} and len(one) == 1 else ""


def is_one_number(thing: Thing) -> bool:
    """Certainly a Python number, which an operation with a tensor leaves in the tensor's shape (a
    ``Num`` may be an array of NumPy's).
    """
    if isinstance(thing, Setting):
        return is_numeric(thing.value)
    if isinstance(thing, Num):
        return thing.scalar or (thing.synced is not None and thing.synced.rank == "0d")
    if isinstance(thing, Arg):
        return bool(thing.default) and all(map(is_one_number, thing.default))
    return is_const(thing, int, float)


def device_kinds(found: Values) -> set[str]:
    """The kinds of device these may name: cpu, cuda, mps, accel (whatever there is), option, ?."""
    kinds: set[str] = set()
    for thing in with_contents(found, _made_of):  # ``device = torch.device(device)`` in a loop
        if isinstance(thing, Const):
            if isinstance(thing.value, bool) or thing.value is None:
                kinds.add("cuda" if thing.value is None else "?")
            elif isinstance(thing.value, int):
                kinds.add("cuda")
            elif isinstance(thing.value, str):
                kinds.add(thing.value.split(":")[0])
        elif is_named(thing, Ext, "torch.device"):
            if not _made_of(thing):
                kinds.add(str(const(thing.attrs["kind"])) if "kind" in thing.attrs else "?")
        elif isinstance(thing, Arg) or (
            isinstance(thing, Setting) and isinstance(thing.value, str)
        ):
            kinds |= {"option"}
        elif isinstance(thing, Num) and thing.pattern.startswith(("cuda:", "mps:", "xpu:")):
            kinds.add(thing.pattern.split(":")[0])  # f"cuda:{rank}"
        else:
            kinds.add("?")
    return kinds


def _made_of(thing: Thing) -> Values:
    """What a ``torch.device`` is made of."""
    if not isinstance(thing, Ext) or thing.name != "torch.device":
        return frozenset()
    return thing.args.get(0, "type") or thing.args.get(0, "device")


def is_device(thing: Thing) -> bool:
    return is_named(thing, Ext, "torch.device") or (
        is_const(thing, str) and thing.value.split(":")[0] in ("cpu", "cuda", "mps", "xpu")
    )


def is_dtype(thing: Thing) -> bool:
    if isinstance(thing, Ref):
        return thing.name.startswith(("torch.", "builtins.")) and dtype_of(thing) != ""
    return isinstance(thing, Num) and thing.pattern == DTYPE


def kind_asked(found: Values) -> str:
    """The dtype that all of these values name, as in ``Tensor.dtype``, or ``?``."""
    kinds = {dtype_of(t) or "?" for t in found}
    return kinds.pop() if len(kinds) == 1 else "?"


def dtype_of(thing: Thing) -> str:
    """How ``Tensor.dtype`` names a type that is asked for (``f64``, ``f32``, ``half``, ``int``,
    ``complex``); empty for what is no dtype of torch or float of Python.
    """
    last = last_part(thing.name) if isinstance(thing, Ref) else ""
    if is_named(thing, Ref, "builtins.float"):
        return "f64"  # as torch takes Python's own type
    table = {
        **dict.fromkeys(("float64", "double", "DoubleTensor"), "f64"),
        **dict.fromkeys(("float32", "float", "FloatTensor"), "f32"),
        **dict.fromkeys(("float16", "half", "bfloat16", "HalfTensor"), "half"),
        **dict.fromkeys(("LongTensor", "IntTensor", "ByteTensor", "BoolTensor"), "int"),
    }
    if last in table:
        return table[last]
    if last.startswith("complex") or last == "cfloat":
        return "complex"
    if last in ("int64", "long", "int32", "int", "uint8", "bool", "int8", "int16", "short"):
        return "int"
    return ""


def target_of(name: str, args: Arguments) -> tuple[Given | None, set[str], Values]:
    """Where ``.to(...)`` / ``.cuda(...)`` moves to: the device argument, its kinds (empty: no
    device), the dtype values.
    """
    if name == "cpu":
        return None, {"cpu"}, NOTHING
    if name in ("cuda", "xpu"):
        given = args.given(0, "device")
        return given, {"cuda"}, NOTHING
    device, dtype = args.named.get("device"), NOTHING
    for given in args.positional:
        if any(is_dtype(t) for t in given.values):
            dtype |= given.values
        elif device is None and not all(
            t == Const(None) or is_const(t, bool) for t in given.values
        ):
            device = given
    if "dtype" in args.named:
        dtype |= args.named["dtype"].values
    if device is None:
        return None, set(), dtype
    if any_of(device.values, Tensor):
        return device, {"tensor"}, dtype
    return device, device_kinds(device.values), dtype
