"""Code that only computes: it changes nothing but its own variables, draws no random numbers, and
gives the same however often it runs.
"""

from __future__ import annotations

import ast
import re

from autofast.facts.host_io import COMPUTES, name_of
from autofast.facts.workers.item_changes import is_iterator
from autofast.flow.callgraph import CallGraph, Function
from autofast.flow.effects import Effects, Write
from autofast.flow.memory import Memory
from autofast.flow.scopes import binds, declared, is_parameter, mentions
from autofast.model.calls import root_of
from autofast.model.kinds import grad_mode_of, is_module
from autofast.model.names import last_part
from autofast.model.script import Script
from autofast.model.source import ByNode, live_nodes, parent_of
from autofast.model.syntax import is_stored
from autofast.model.values import Bound, Func, Inst, Method, Tensor, Thing
from autofast.ops import draws, is_in_place, op

# Operations of torch that set something.
SETTING = re.compile(r"backward|(set|use|manual_seed|seed)(_\w+)?")
# What neither an expression nor a function has that only computes.
MORE = (
    *(ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr, ast.Nonlocal, ast.Raise, ast.Delete),
    *(ast.AsyncWith, ast.Import, ast.ImportFrom, ast.Try, ast.ClassDef),
)
DISPLAYS = (ast.List, ast.Dict, ast.ListComp, ast.DictComp)
SPOKEN = ("__str__", "__repr__", "__format__")


class Computes:
    """``script.analysis(Computes)``"""

    computing = COMPUTES  # what libraries call functions that may be called

    def __init__(self, script: Script):
        self.script = script
        self.calls, self.effects = script.analysis(CallGraph), script.analysis(Effects)
        self.memory = script.analysis(Memory)
        self.known: ByNode[bool] = {}  # functions that only compute

    def only(self, code: ast.AST) -> bool:
        """Whether code changes nothing but the variables that it binds."""
        return all(self.is_harmless(n) for n in live_nodes(code))

    def allows(self, node: ast.AST) -> bool:
        """Whether a node may be there though it does more."""
        return False

    def may_set(self, function: Function, name: str) -> bool:
        """Whether a function may set a variable that is not its own."""
        return False

    def is_harmless(self, node: ast.AST, function: Function | None = None) -> bool:
        """Whether what a node does by itself is to compute; in a function, with what is its
        own.
        """
        if isinstance(node, MORE) or not all(map(self.keeps, self.calls.entered(node))):
            return False
        if self.allows(node):
            return True
        match node:
            case ast.Name() | ast.Attribute() if not self._is_silent(node):
                return False
            case ast.withitem(context_expr=context):
                return grad_mode_of(self.script.values(context)) is not None
            case ast.Call() if not isinstance(parent_of(node), ast.withitem):
                found = self.script.called(node)
                if not found or not all(map(self._is_plain, found)):
                    return False
        writes = [*self.effects.of(node)]
        if not isinstance(node, ast.AugAssign):  # of numbers, it writes to nothing
            writes += (Write(node, e) for e in self.memory.written(node))
        return all(self._is_own(w, function) for w in writes)

    def _is_silent(self, node: ast.expr) -> bool:
        """Whether an object of the project says what it is without doing anything besides."""
        if is_iterator(self.script.values(node)):
            return False  # which may be used up
        objects = [t for t in self.script.values(node) if isinstance(t, Inst) and not is_module(t)]
        spoken = (m for t in objects for name in SPOKEN for m in t.cls.find(name) or ())
        return all(self.keeps(m.node) for m in spoken if isinstance(m, Func))

    def keeps(self, function: Function) -> bool:
        """Whether a function changes nothing but what is its own."""
        if function not in self.known:
            self.known[function] = True  # as far as is known, where it calls itself
            self.known[function] = all(
                self.is_harmless(n, function)
                for n in live_nodes(function)
                if n is not function or isinstance(n, ast.AsyncFunctionDef)
            )
        return self.known[function]

    def _is_own(self, write: Write, function: Function | None) -> bool:
        if write.bound:
            given = function is not None and write.bound in declared(function)
            return not given or self.may_set(function, write.bound)  # type: ignore[arg-type]
        base = root_of(write.base, ast.Attribute, ast.Subscript) if write.base else None
        if function is None or not isinstance(base, ast.Name) or is_parameter(function, base.id):
            return False
        made = [parent_of(n) for n in mentions(function, base.id) if is_stored(n)]
        return binds(function, base.id) and (
            all(isinstance(m, ast.Assign) and isinstance(m.value, DISPLAYS) for m in made)
            or self.memory.is_apart(base)
        )

    def _is_plain(self, callee: Thing) -> bool:
        """Whether a call of it computes something, or runs code of the project, which is looked at
        by itself.
        """
        if isinstance(callee, (Func, Bound)):
            return True
        name = name_of(callee)
        short = callee.name if isinstance(callee, Method) else name
        sets = is_in_place(short, flags=True) and not is_in_place(short)
        if sets or draws(short) or SETTING.fullmatch(last_part(short)):
            return False
        if isinstance(callee, Method) and isinstance(callee.this, Tensor):
            return op(f".{short}") is not None
        plain = self.computing.fullmatch(name) is not None or op(name) is not None
        return plain or (not name and isinstance(callee, Method))
