"""The functions that are written to choose a 16-bit dtype at run time, and how they are known again."""

from __future__ import annotations

import ast

from autofast.model.script import Script
from autofast.model.values import Arguments, Func, Ref, one

HAS_BF16 = '''def {name}():
    """Whether there is a GPU that computes in bfloat16 (Ampere and newer)."""
    return {torch}.cuda.is_available() and {torch}.cuda.get_device_capability()[0] >= 8
'''


def only_without_bf16(script: Script, made: Arguments | None) -> bool:
    """Whether a scaler is made as ``grad-scaler`` writes it: ``enabled=amp_dtype() == torch.float16``."""
    enabled = made.named.get("enabled") if made is not None else None
    match enabled.expr if enabled is not None and enabled.sure and not enabled.via else None:
        case ast.Compare(
            left=ast.Call(func=helper, args=[], keywords=[]), ops=[ast.Eq()], comparators=[half]
        ):
            func = one(script.values(helper))
            return (
                isinstance(func, Func)
                and _is_amp_dtype(script, func)
                and script.values(half) == {Ref("torch.float16")}
            )
    return False


def _is_amp_dtype(script: Script, func: Func) -> bool:
    """Whether a function of the script is the one that is written here."""
    if not isinstance(func.node, ast.FunctionDef) or func.node.decorator_list:
        return False
    torch = next(
        (
            n.id
            for n in ast.walk(func.node)
            if isinstance(n, ast.Name) and script.values(n) == {Ref("torch")}
        ),
        "",
    )
    return bool(torch) and _said(func.node) == _said(
        ast.parse(AMP_DTYPE.format(name=func.name, torch=torch)).body[0]
    )


AMP_DTYPE = '''def {name}():
    """bfloat16 where the GPU computes in it (Ampere and newer), else float16."""
    if {torch}.cuda.is_available() and {torch}.cuda.get_device_capability()[0] < 8:
        return {torch}.float16
    return {torch}.bfloat16
'''


def _said(function: ast.stmt) -> list[str]:
    """The statements of a function without its docstring."""
    assert isinstance(function, ast.FunctionDef)
    return [
        ast.dump(s)
        for s in function.body
        if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))
    ]
