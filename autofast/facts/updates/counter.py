"""Conditions that hold for every so many batches of a loop: ``(i + 1) % steps == 0``."""

from __future__ import annotations

import ast
from collections.abc import Callable

from autofast.flow.scopes import stored_in
from autofast.model.calls import is_name, is_same_code, keyword_of
from autofast.model.script import Script
from autofast.model.syntax import VARIABLES, is_operation, is_unary


class Counter:
    """Reads conditions about the number of the batch, which ``name`` holds; ``target`` is where it
    gets it.
    """

    def __init__(self, script: Script, loop: ast.For):
        self.script = script
        self.name, self.start = "", 0
        self.target: ast.Name | None = None
        call, target = loop.iter, loop.target
        while isinstance(call, ast.Call) and isinstance(call.func, VARIABLES) and call.args:
            if getattr(call.func, "id", "") == "enumerate":
                given = call.args[1] if len(call.args) > 1 else keyword_of(call, "start")
                start = 0 if given is None else script.constant(given)
                if (
                    isinstance(target, ast.Tuple)
                    and isinstance(target.elts[0], ast.Name)
                    and isinstance(start, int)
                ):
                    self.target, self.start = target.elts[0], start
                    others = {n for e in target.elts[1:] for n in stored_in(e)}
                    self.name = "" if self.target.id in others else self.target.id
                return
            call = call.args[0]

    def every(self, test: ast.expr, arm: bool) -> ast.expr | None:
        """``(i + 1) % k == 0``: k."""
        if is_unary(test, ast.Not):
            return self.every(test.operand, not arm)
        rest: ast.expr = ast.Constant(0)
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            wanted = isinstance(test.ops[0], ast.Eq) if arm else isinstance(test.ops[0], ast.NotEq)
            if not wanted:
                return None
            rest, test = test.comparators[0], test.left
        elif arm:
            return None  # `if i % k:` is true in all but one
        if not is_operation(test, ast.Mod) or (n := self.offset(test.left)) is None:
            return None
        if is_operation(rest, ast.Sub) and is_same_code(rest.left, test.right):
            off = self.script.constant(rest.right)
            missing = n + off if isinstance(off, int) else None
        else:
            if not isinstance(rest, ast.Constant):
                off = self.script.constant(rest)
            else:
                off = rest.value
            missing = n - off if isinstance(off, int) else None
        return test.right if missing in (0, 1) else None

    def offset(self, expr: ast.expr) -> int | None:
        """c, where ``expr`` is the number of the batch (from 0) plus c."""
        return _plus(expr, lambda e: self.start if is_name(e, self.name) else None, self.script)


def _plus(expr: ast.expr, base: Callable[[ast.expr], int | None], script: Script) -> int | None:
    if (known := base(expr)) is not None:
        return known
    if is_operation(expr, ast.Add, ast.Sub):
        for this, other in ((expr.left, expr.right), (expr.right, expr.left)):
            inner, more = _plus(this, base, script), script.constant(other)
            if inner is not None and isinstance(more, int):
                if isinstance(expr.op, ast.Add):
                    return inner + more
                return inner - more if this is expr.left else None
    return None
