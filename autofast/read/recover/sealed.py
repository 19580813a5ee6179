"""Functions that no gradient leaves: whatever backward runs outside of them, none reaches the
passes of models in them.
"""

from __future__ import annotations

import ast

from autofast.flow.scopes import is_local, parameters
from autofast.model.events import CallFrame, Stack, inside
from autofast.model.script import Script
from autofast.model.source import function_of, nodes_in
from autofast.model.tensors import tensors_in, things_in
from autofast.model.values import Const, Ext, Inst, Num, Ref, Tensor, Values
from autofast.read.recover.leaks import root_of
from autofast.read.recover.region import Region
from autofast.read.recover.shared_passes import KEEPS

KEEP_NOTHING = ("torch", "numpy", "math", "builtins")  # libraries that keep no tensor they get


class Sealed:
    """Answers for the functions of a script, each asked for once."""

    def __init__(self, script: Script, backwards: list[Stack]):
        self.script, self.backwards = script, backwards
        self._known: dict[int, bool] = {}

    def __contains__(self, node: object) -> bool:
        return self._known.get(id(node), False)

    def around(self, stack: Stack) -> ast.FunctionDef | None:
        """The innermost function on this way that no gradient leaves and no backward runs in."""
        for frame in reversed(stack):
            if self.script.unread:
                return None  # more may happen in it than is known
            if not isinstance(frame, CallFrame) or not isinstance(frame.func.node, ast.FunctionDef):
                continue
            node = frame.func.node
            if any(inside(b, node) for b in self.backwards):
                return None
            if id(node) not in self._known:
                self._known[id(node)] = self.holds_all(node)
            if self._known[id(node)]:
                return node
        return None

    def holds_all(self, node: ast.FunctionDef) -> bool:
        region = Region(self.script.log, node, node.body, True)
        functions = [node, *(frame.func.node for frame in region.calls(self.script))]
        if region.yields or any(
            isinstance(n, (ast.Global, ast.Nonlocal)) for f in functions for n in ast.walk(f)
        ):
            return False
        ends = [n for n in nodes_in(node, ast.Return) if function_of(n) is node]
        if not all(_is_free(self.script.values(n.value)) for n in ends if n.value is not None):
            return False
        for site, occurrence in region.sites(self.script, *KEEPS):
            if not _is_local_variable(site.node) and not _is_free(occurrence.result):
                return False
        return not self.hands_on(region)

    def hands_on(self, region: Region) -> bool:
        """Whether something with a gradient is given to an object or function that may keep it."""
        for _, site in self.script.log.each():
            for occurrence in site:
                this, args = occurrence.this, occurrence.args
                if args is None or isinstance(this, (Tensor, Inst)):
                    continue
                if not region.meets(site, occurrence):
                    continue
                known = isinstance(this, (Ref, Ext)) and this.name.split(".")[0] in KEEP_NOTHING
                if known and site.kind != "builtins.setattr":
                    continue
                given = (g.values for g in args.every)
                if any(t.grad for t in tensors_in(*given)):
                    return True
        return False


def _is_free(found: Values) -> bool:
    """Numbers, arrays and texts alone: a tensor that was computed with something unknown may carry
    a gradient without being known to.
    """
    return bool(found) and all(isinstance(t, (Const, Num)) for t in things_in(found))


def _is_local_variable(node: ast.AST) -> bool:
    """It goes into a variable that is its function's own: what leaves of it leaves by a result or
    another place.
    """
    root = root_of(node.target if isinstance(node, ast.AugAssign) else node)
    return (
        root is not None
        and not isinstance(function_of(root), ast.Module)
        and is_local(root)
        and root.id not in {p.arg for p in parameters(function_of(root))}
    )
