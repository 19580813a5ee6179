"""Tensors of numbers that never change, made on the host and copied to the device in every step."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import Rewrite
from autofast.flow.program import Flow
from autofast.model.calls import arguments_of
from autofast.model.names import LEGACY_TENSORS
from autofast.model.script import Script
from autofast.model.source import source_of
from autofast.model.syntax import is_attribute, is_number
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
            and any(again_and_again(script, o.stack, hot) for o in transfer.site)
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
            if (value := script.analysis(Flow).value(expr)) is not None:
                return made_of(script, value, depth + 1)
        case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in KEPT and not (
            _library(script, expr.func)
        ):
            return made_of(script, value, depth + 1)
        case ast.Call(args=[data]):
            name = _library(script, expr.func)
            if name == "torch.autograd.Variable":
                return made_of(script, data, depth + 1)
            return expr if name in DATA else None
    return None


def is_size(script: Script, made: ast.Call) -> bool:
    """``torch.Tensor(n)`` has no numbers."""
    return _library(script, made.func) not in FUNCTIONS and not isinstance(
        made.args[0], (ast.List, ast.Tuple, ast.Call)
    )


def _library(script: Script, func: ast.expr) -> str:
    found = [t.name for t in script.values(func) if isinstance(t, Ref)]
    return found[0] if len(found) == 1 == len(script.values(func)) else ""


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
            name = _library(script, expr.func)
            known = name in PLAIN or (name.startswith("numpy.") and not name.startswith(DRAWN))
            parts = arguments_of(expr)
            if not known and is_attribute(expr.func, *KEPT, "reshape"):  # fmt: skip
                known, parts = True, [*parts, expr.func.value]
            return known and all(is_fixed(script, part) for part in parts)
    return False


def single_numbers(script: Script, hot: frozenset[int]) -> Iterator[tuple[ast.Call, Rewrite]]:
    """``torch.Tensor([1e10])`` where all new tensors are on the GPU: the list is copied there, and
    ``torch.full`` would write the number there.
    """
    if not _on_gpu(script):
        return
    # The old constructor does not ask for the default device.
    kinds = (
        ["torch.tensor"]
        if script.calls("torch.set_default_device")
        else ["torch.tensor", "torch.Tensor"]
    )
    for site in script.calls(*kinds):
        call = site.call
        if call is None or call.keywords or len(call.args) != 1:
            continue
        number = _number(call.args[0])
        if number and any(again_and_again(script, o.stack, hot) for o in site):
            function = call.func
            if _library(script, function) and is_attribute(function):
                torch = source_of(call).segment(function.value)
                if site.kind == "torch.tensor" or "." in number or "e" in number:
                    yield call, Rewrite(call, f"{torch}.full((1,), {number})", {})


def _on_gpu(script: Script) -> bool:
    sites = script.calls("torch.set_default_tensor_type", "torch.set_default_device")
    if script.calls("torch.set_default_dtype") or not sites:
        return False
    given = [o.args.positional[0].values for s in sites for o in s if o.args and o.args.positional]
    names = {
        t.value if isinstance(t, Const) else t.name if isinstance(t, Ref) else ""
        for found in given
        for t in found
    }
    return bool(names) and names <= {"torch.cuda.FloatTensor", "cuda", "cuda:0"}


def _number(data: ast.expr) -> str:
    """The text of the only number of a list; empty for anything else."""
    match data:
        case ast.List(elts=[part]) if is_number(part):
            return source_of(data).segment(part)
    return ""
