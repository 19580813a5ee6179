"""How the script has torch compile its models, and what it keeps out of that."""

from __future__ import annotations

import ast

from autofast.model.events import CallFrame, Occurrence, WithFrame
from autofast.model.script import Script
from autofast.model.several import wordset
from autofast.model.source import statement_of

MODES = wordset("reduce-overhead max-autotune")
STANCE = "torch.compiler.set_stance"


def records_graphs(script: Script) -> ast.AST | None:
    """A ``mode=`` of torch.compile that records CUDA graphs."""
    for node in script.each(ast.keyword):
        if node.arg == "mode":
            written = getattr(node.value, "value", None)
            known = written if isinstance(written, str) else script.constant(node.value)
            if known in MODES:
                return node.value
    return None


def is_left_eager(script: Script, occurrence: Occurrence) -> bool:
    """Whether a call stands under ``set_stance("force_eager")``: in a block, or in a function that
    it decorates.
    """
    contexts: list[ast.expr] = []
    for frame in occurrence.stack:
        if isinstance(frame, WithFrame):
            contexts += [expr for expr, _ in frame.contexts]
        elif isinstance(frame, CallFrame):
            contexts += getattr(frame.func.node, "decorator_list", [])
    return any(_is_eager(script, expr) for expr in contexts)


def _is_eager(script: Script, context: ast.expr) -> bool:
    match context:
        case ast.Call(func=func, args=[ast.Constant(value="force_eager")]):
            return script.library_name(func) == STANCE
    return False


def is_in_place(call: ast.AST) -> bool:
    """``model.forward = torch.compile(model.forward)``: as ``model.compile()``, for a container of
    torch.
    """
    match call, statement_of(call):
        case ast.Call(args=[given]), ast.Assign(targets=[target], value=value):
            spelled = ast.unparse(given)
            return value is call and ast.unparse(target) == spelled and spelled.endswith(".forward")
    return False
