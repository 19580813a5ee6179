"""What happens to gradients and weights inside of a block that would run under autocast."""

from __future__ import annotations

import ast

from autofast.facts.precision.code import Code
from autofast.model.events import Occurrence
from autofast.model.kinds import gradient_modes, is_optimizer, is_scaler
from autofast.model.source import ancestors, at, walk
from autofast.model.syntax import FUNCTIONS, PAUSES
from autofast.model.values import is_weight


def structure(code: Code) -> str:
    return _yields(code) or gradient_changes(code) or both_modes(code)


def _yields(code: Code) -> str:
    for node in (n for s in code.statements for n in walk(s)):
        if isinstance(node, PAUSES) and not _in_function_below(node, code.statements):
            return f"{at(node)} leaves the block in the middle (yield)"
    return ""


def gradient_changes(code: Code) -> str:
    """What it does to gradients or weights between forward pass and loss, in words; empty where it
    does nothing.
    """
    for site, _ in code.events(
        ".backward",
        "torch.autograd.grad",
        "torch.autograd.backward",
        ".unscale_",
        "closure",
        entered=True,
    ):
        return f"{at(site)} computes gradients between the forward pass and the end of the loss"
    for site, occurrence in code.events(".step", entered=True):
        if is_optimizer(occurrence.this) or is_scaler(occurrence.this):
            return f"{at(site)} updates weights between the forward pass and the end of the loss"
    for site, occurrence in code.events("inplace", "tensor_write", "grad_write", entered=True):
        if is_weight(occurrence.this):
            return f"{at(site)} changes weights before the end of the loss: autocast would go on with the old ones"
    return ""


def both_modes(code: Code) -> str:
    """Why the code must not stand in one block: a model runs in it with gradients and without;
    empty where none does.
    """
    modes: dict[int, set[bool]] = {}
    for _, occurrence in code.events("forward", entered=True):
        if occurrence.data["outer"]:
            modes.setdefault(id(occurrence.this), set()).add(_is_switched(code, occurrence))
    if any(len(m) > 1 for m in modes.values()):
        return "one model runs with and without gradients in it: torch before 2.11 loses the gradients of weights that were cast without"
    return ""


def _is_switched(code: Code, occurrence: Occurrence) -> bool:
    """Whether gradients are switched off (or on) on the way to a place, inside of this code."""
    first = next(
        (n for n, f in enumerate(occurrence.stack) if f.node in code.here),
        len(occurrence.stack),
    )
    return any(True for _ in gradient_modes(occurrence.stack[first:]))


def _in_function_below(node: ast.AST, statements: list[ast.AST]) -> bool:
    tops = set(statements)
    for outer in ancestors(node):
        if outer in tops:
            return False
        if isinstance(outer, FUNCTIONS):
            return True
    return False
