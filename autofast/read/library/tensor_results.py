"""What an operation of torch gives: the dtype, and the pairs of values and indices."""

from __future__ import annotations

from autofast.model.tensors import is_dtype, kind_asked, mixed
from autofast.model.values import (
    NOTHING,
    Arguments,
    Const,
    Num,
    Ref,
    Seq,
    Tensor,
    Thing,
    Values,
    Where,
    const,
    things as values,
)
from autofast.ops import is_view, op
from autofast.read.state.core import Core

ONE = ("torch.stack", "torch.cat", "torch.concat")  # tensors are one afterwards
PAIR = ("values", "indices")


def result(interp: Core, name: str, tensors: list[Tensor], args: Arguments, node: Where) -> Values:
    """What ``torch.add``, ``torch.nn.functional.relu`` or (a method) ``.sum`` gives for these
    operands.
    """
    made = mixed(tensors, prob=tensors[0].prob if is_view(name) else None)
    dtype = result_dtype(name, made.dtype, args)
    if dtype == "int":
        made = made.but(grad=False, loss=False)
    known = op(name)
    plain = known is not None and (known.pointwise or known.name in ONE)
    plain = plain and not name.endswith(("where", "frexp"))  # which may give tuples
    made = made.but(dtype=dtype, sure=plain and any(t.sure for t in tensors))
    paired = _is_paired(name, args)
    if not paired or any(t.rank == "?" for t in tensors):
        return values(made if paired is False else made.but(rank="?"))
    indices = made.but(dtype="int", grad=False, loss=False, prob=None)
    parts = (values(made), values(indices))
    pair = interp.intern(
        Seq, (node, name, parts), lambda: Seq(node, parts, NOTHING, "tuple", names=PAIR)
    )
    return values(pair)


def result_dtype(name: str, dtype: str, args: Arguments) -> str:
    """The dtype of the result for operands of a dtype."""
    asked = args.named.get("dtype") or next(
        (g for g in args.positional if any(map(is_dtype, g.values))), None
    )
    if asked is not None and const(asked.values) is not None:
        return kind_asked(asked.values)
    known = op(name)
    if known is None:
        return dtype
    if known.name.endswith(".stft") and (given := _complex_asked(name, args)) is not True:
        return dtype if given is False else "?"
    if "rounding_mode" in args.named:
        return "?" if dtype == "int" else dtype
    if dtype == "complex" and known.real:
        return "?"
    if known.dtype == "float":
        return "f32" if dtype == "int" else dtype
    if known.dtype:
        return known.dtype
    if dtype == "int" and known.pointwise and any(_may_be_float(t) for t in args.things):
        return "?"
    return dtype


def _complex_asked(name: str, args: Arguments) -> bool | None:
    """Whether ``stft`` gives complex numbers: without ``return_complex`` pairs of real ones, up to
    torch 2.0, where real data have needed it since.
    """
    if args.open or args.loose:
        return None
    asked = args.get(8 if name.startswith(".") else 9, "return_complex")
    if not asked:
        return False
    flag = const(asked)
    return flag if isinstance(flag, bool) else None


def _is_paired(name: str, args: Arguments) -> bool | None:
    """Whether the result is a pair of values and indices; None where it may be."""
    flag = args.named.get("return_indices")
    if flag is not None and const(flag.values) is not False:
        return True if const(flag.values) is True else None
    known = op(name)
    if known is None or not known.indices:
        return False
    if known.indices == "always" or "dim" in args.named or "axis" in args.named:
        return True
    second = args.get(0 if name.startswith(".") else 1, "other")
    if all(isinstance(t, Tensor) and t.rank != "?" for t in second):
        return False if second or not (args.open or args.loose) else None
    number = const(second)
    return True if type(number) is int else None


def _may_be_float(thing: Thing) -> bool:
    """Whether an operand that is no tensor may be a Python float (or what is not known)."""
    if isinstance(thing, Const):
        return isinstance(thing.value, float)
    return isinstance(thing, Num) or not isinstance(thing, (Tensor, Ref, Seq))
