"""Numbers in the code, and sizes of gradients, that fp16 cannot hold."""

from __future__ import annotations

import ast
from contextlib import suppress

from autofast.facts.batch.calls import reduction_of
from autofast.facts.batch.losses_of_torch import loss_called
from autofast.facts.precision.code import Code
from autofast.facts.precision.full_outputs import FullOutputs
from autofast.flow.program import Flow
from autofast.model.calls import first_argument, receiver_of, taker_of
from autofast.model.names import last_part
from autofast.model.script import Script
from autofast.model.several import surely
from autofast.model.source import ancestors, at, parent_of, source_of, walk
from autofast.model.syntax import is_operation, is_unary
from autofast.model.values import Cls, Ext, Ref, Thing, any_of, begins
from autofast.rule import Refusal

FP16_MOST = 65504.0
FP16_LEAST = 6e-8  # what is smaller becomes 0 in fp16


def not_fp16(code: Code) -> str:
    """A constant that fp16 cannot hold, in words; empty where there is none."""
    for part in code.parts:
        for node in walk(part):
            if isinstance(node, ast.expr) and (value := _constant(code, node)) is not None:
                if abs(value) > FP16_MOST or 0 < abs(value) < FP16_LEAST:
                    return f"fp16 cannot hold {value:g} ({source_of(node).rel}:{node.lineno})"
    return ""


def summed_loss(code: Code) -> str:
    """A loss that is a sum over a batch, in words; empty where there is none.

    What a GradScaler begins with, 65536 times gradients of such a loss, is too much for fp16, and
    each step until the scale has been halved often enough is skipped.
    """
    script = code.script
    if surely(_is_quotient(script, b.node) for step in script.steps for b in step.backwards):
        return ""
    for call in (n for part in code.parts for n in walk(part) if isinstance(n, ast.Call)):
        operation = parent_of(call)
        if isinstance(operation, ast.BinOp) and isinstance(operation.op, ast.Div):
            continue
        for known, made in filter(None, map(loss_called, script.called(call))):
            with suppress(Refusal):
                if reduction_of(script, known, made, call)[0] == "sum":
                    return f"the loss on {at(call)} is a sum: scaled, its gradients do not fit fp16 at first, and those steps would be skipped"
    return ""


def _is_quotient(script: Script, backward: ast.Call) -> bool:
    """Whether it begins with what is divided by a number that is computed, as of elements."""
    loss = receiver_of(backward)
    made = script.analysis(Flow).value(loss) or loss
    return is_operation(made, ast.Div) and not isinstance(made.right, ast.Constant)


def _constant(code: Code, node: ast.expr) -> float | None:
    """The number that an operand or an argument is; not one of a layer, a loss or a functional
    norm, which compute in fp32.
    """
    parent = parent_of(node)
    if any_of(ancestors(node), ast.Slice):
        return None  # `rows[i : i + 65536]`
    if (call := taker_of(node)) is not None:
        if any(_keeps_fp32(t) for t in code.script.called(call)):
            return None
        tensor = _tensor_of(code, call)
        if tensor is not None and code.script.analysis(FullOutputs).is_full(tensor):
            return None  # `distances.clamp(min=1e-12)`
    elif isinstance(parent, ast.BinOp):
        other = parent.right if parent.left is node else parent.left
        if code.script.analysis(FullOutputs).is_full(other):
            return None  # a sum of squares, a softmax: fp32 under autocast, too
    elif not isinstance(parent, ast.arguments):
        return None
    if is_unary(node, ast.USub) and isinstance(node.operand, ast.Constant):
        number = node.operand.value
        value = -number if isinstance(number, (int, float)) else number
    elif isinstance(node, ast.Constant):
        value = node.value
    else:
        value = code.script.constant(node)
    return (
        float(value)
        if isinstance(value, (int, float))
        and not isinstance(value, bool)
        and value == value
        and abs(value) != float("inf")
        else None
    )


def _tensor_of(code: Code, call: ast.Call) -> ast.expr | None:
    """What a method or a function of torch computes with."""
    if surely(begins(t, Ref, "torch.") for t in code.script.called(call)):
        return first_argument(call)
    return receiver_of(call)


def _keeps_fp32(callee: Thing) -> bool:
    if isinstance(callee, Ref):
        last = last_part(callee.name)
        return callee.name.startswith(
            ("torch.nn.", "torch.optim.", "builtins.", "math.", "random.", "numpy.", "time.")
        ) or last in ("arange", "randint", "device")
    return isinstance(callee, (Cls, Ext)) or callee is None
