"""Tensors of numbers that never change, made on the host and copied to the device in every step."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.flow.program import Flow
from autofast.model.calls import arguments_of
from autofast.model.names import LEGACY_TENSORS
from autofast.model.script import Script
from autofast.model.syntax import is_attribute
from autofast.model.values import Arg, Cls, Const, Module, Ref, Setting, certainly
from autofast.techniques.transfers.factories import KEEPS, again_and_again
from autofast.techniques.transfers.listed import listed

FUNCTIONS = frozenset({"torch.from_numpy", "torch.as_tensor", "torch.tensor"})
DATA = FUNCTIONS | {"torch.Tensor"} | {f"torch.{name}" for name in LEGACY_TENSORS}
KEPT = KEEPS | {"type", "astype", "flatten", "ravel", "copy", "tolist", "T"}
PLAIN = frozenset("builtins.range builtins.list builtins.tuple builtins.float builtins.int".split())
DRAWN = ("numpy.random", "numpy.load", "numpy.fromfile", "numpy.genfromtxt", "numpy.loadtxt")


def fixed(script: Script, hot: frozenset[int]) -> Iterator[ast.expr]:
    """Where such a tensor is copied to the device, through names and methods that keep its
    numbers.
    """
    for transfer in script.transfers:
        data = transfer.operand
        if (
            data is not None
            and transfer.how in ("to", "cuda", "type_as")
            and not transfer.kinds <= {"cpu"}
            and any(again_and_again(o.stack, hot) for o in transfer.site)
            and _is_of_numbers(script, data)
        ):
            yield transfer.node


def _is_of_numbers(script: Script, expr: ast.expr) -> bool:
    """A tensor of numbers that never change."""
    made = made_of(script, expr)
    if made is None or listed(script, made, "") is not None:
        return False
    return not is_size(script, made) and is_fixed(script, made.args[0])


def made_of(script: Script, expr: ast.expr, depth: int = 0) -> ast.Call | None:
    """The call that makes a tensor of data, behind names and methods that keep its numbers:
    ``torch.tensor(a)`` of ``torch.tensor(a).float()``.
    """
    if depth > 8:
        return None
    match expr:
        case ast.Name():
            if (made := script.analysis(Flow).value(expr)) is not None:
                return made_of(script, made, depth + 1)
        case ast.Call(func=ast.Attribute(value=value, attr=attr)) if (
            attr in KEPT and not script.library_function(expr)
        ):
            return made_of(script, value, depth + 1)
        case ast.Call(args=[data]):
            name = script.library_function(expr)
            if name == "torch.autograd.Variable":
                return made_of(script, data, depth + 1)
            return expr if name in DATA else None
    return None


def is_size(script: Script, made: ast.Call) -> bool:
    """``torch.Tensor(n)`` has no numbers."""
    return script.library_function(made) not in FUNCTIONS and not isinstance(
        made.args[0], (ast.List, ast.Tuple, ast.Call)
    )


def is_fixed(script: Script, expr: ast.expr) -> bool:
    """Numbers that are the same whenever the script comes here: of constants, options and settings,
    by functions that draw and read nothing.
    """
    match expr:
        case ast.Constant():
            return True
        case ast.List() | ast.Tuple():
            return all(is_fixed(script, part) for part in expr.elts)
        case ast.UnaryOp(operand=operand):
            return is_fixed(script, operand)
        case ast.BinOp(left=left, right=right):
            return is_fixed(script, left) and is_fixed(script, right)
        case ast.Name() | ast.Attribute():
            found = script.values(expr)
            return certainly(found, Const, Arg, Setting, Ref, Module, Cls)
        case ast.Call():
            name = script.library_function(expr)
            known = name in PLAIN or (name.startswith("numpy.") and not name.startswith(DRAWN))
            parts = arguments_of(expr)
            if not known and is_attribute(expr.func, *KEPT, "reshape"):  # fmt: skip
                known, parts = True, [*parts, expr.func.value]
            return known and all(is_fixed(script, part) for part in parts)
    return False
