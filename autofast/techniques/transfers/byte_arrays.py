"""Arrays that a step puts together, makes into floats, and then divides by 255, as the images of a
replay buffer:

    states = torch.FloatTensor(np.array(states)).to(device) / 255.0

What is divided so are bytes as a rule. They may cross as they are; of whatever else they are, the
device makes the same floats.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import Edit, Edits, Rewrite, Wrap
from autofast.model.calls import arguments_of, call_of, is_method, keyword_of
from autofast.model.roles import Transfer
from autofast.model.script import Script
from autofast.model.several import is_numeric, surely, wordset
from autofast.model.source import parent_of
from autofast.model.syntax import is_attribute
from autofast.model.tensors import dtype_of
from autofast.model.values import Ref
from autofast.techniques.transfers.factories import runs_often

JOINS = wordset("array stack concatenate vstack", "numpy.")  # what gives memory of its own
FLOATS = ("torch.FloatTensor",)
TYPED = ("torch.tensor", "torch.as_tensor")
VIEWS = "unsqueeze squeeze permute transpose view reshape flatten".split()
DIVIDES = ("div", "div_", "true_divide")


def byte_arrays(script: Script, hot: frozenset[ast.AST]) -> Iterator[tuple[ast.expr, Edits]]:
    """Each copy of such an array to the device, and what makes it a copy of bytes."""
    for transfer in script.transfers:
        if (
            transfer.how in ("to", "cuda")
            and transfer.to_device
            and transfer.only_moves
            and runs_often(transfer.site, hot)
            and _is_of_bytes(script, transfer)
            and (made := _whole_numbers(script, transfer.operand)) is not None
        ):
            yield transfer.node, (made, Wrap(transfer.node, "{}.float()"))


def _is_of_bytes(script: Script, transfer: Transfer) -> bool:
    """Whether the copy, or a view of it, is divided by 255."""
    node: ast.expr = transfer.node
    while is_attribute(method := parent_of(node), *VIEWS) and (outer := call_of(method)):
        node = outer
    match method:
        case ast.BinOp(left=left, op=ast.Div(), right=by) if left is node:
            return _is_255(script, by)
        case ast.Attribute(attr=name) if name in DIVIDES and (call := call_of(method)):
            return len(call.args) == 1 and _is_255(script, call.args[0])
    return False


def _is_255(script: Script, number: ast.expr) -> bool:
    known = script.constant(number)
    return is_numeric(known) and known == 255


def _whole_numbers(script: Script, expr: ast.expr | None) -> Edit | None:
    """What leaves an array as it is, where it is cast: ``torch.from_numpy(np.array(states))``."""
    while is_method(expr, *VIEWS):
        expr = expr.func.value
    match expr:
        case ast.Call(func=ast.Attribute(value=inner, attr="float"), args=[], keywords=[]) if (
            _is_array(script, inner, "torch.from_numpy")
        ):
            return Rewrite(expr, "{made}", {"made": inner})
        case ast.Call(func=ast.Attribute(value=torch), args=[array]) if _is_array(
            script, expr, *FLOATS
        ) or (_is_array(script, expr, *TYPED) and _is_to_float(script, expr)):
            return Rewrite(expr, "{torch}.from_numpy({array})", {"torch": torch, "array": array})
    return None


def _is_array(script: Script, made: ast.expr, *by: str) -> bool:
    """Whether it is a tensor made ``by`` such a function of an array that is new."""
    match made:
        case ast.Call(args=[ast.Call() as array]) if script.is_call(made, *by):
            kinds = {k.arg for k in made.keywords} <= {"dtype"}
            plain = not array.keywords and len(arguments_of(array)) == 1
            return kinds and plain and script.is_call(array, *JOINS)
    return False


def _is_to_float(script: Script, made: ast.Call) -> bool:
    dtype = keyword_of(made, "dtype")
    found = script.values(dtype) if dtype is not None else frozenset()
    return surely(isinstance(t, Ref) and dtype_of(t) == "f32" for t in found)
