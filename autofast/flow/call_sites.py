"""Who calls whom in the project, and which functions are used in another way than by calling them."""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from autofast.model.script import Script
from autofast.model.source import parent_of
from autofast.model.values import Bound, Func, Inst

Function = ast.FunctionDef | ast.AsyncFunctionDef


Scope = Function | ast.Lambda | ast.Module


@dataclass(frozen=True)
class Variable:
    """The value is the variable ``name`` of ``scope``."""

    name: str
    scope: Scope


@dataclass(frozen=True)
class Attribute:
    """The value is the attribute ``name`` of every object in ``owners``."""

    name: str
    owners: tuple[Inst, ...]


class Calls:
    """Who calls whom in the project, and which functions are used in another way than by calling them."""

    def __init__(self, script: Script):
        self._by: dict[int, list[ast.Call]] = defaultdict(list)
        self._other: dict[int, ast.AST] = {}
        self._named: dict[str, list[ast.AST]] = defaultdict(list)
        self._script = script
        for source in script.sources:
            for node in ast.walk(source.tree):
                if isinstance(node, ast.Call):
                    for function in self.callees(node):
                        self._by[id(function)].append(node)
                elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
                    self._look(node)

    def _look(self, node: ast.Name | ast.Attribute) -> None:
        parent = parent_of(node)
        if isinstance(parent, ast.Call) and parent.func is node:
            if not self._script.values(node):
                self._named[node.id if isinstance(node, ast.Name) else node.attr].append(node)
            return
        for thing in self._script.values(node):
            if isinstance(thing, (Func, Bound)):
                function = thing.func.node if isinstance(thing, Bound) else thing.node
                self._other.setdefault(id(function), node)

    def callees(self, call: ast.Call) -> list[Scope]:
        """The functions of the project that a call may run."""
        found = [t.func.node if isinstance(t, Bound) else t.node for t in self._script.values(call.func) if isinstance(t, (Func, Bound))]
        return list({id(f): f for f in found}.values())

    def of(self, function: Function) -> list[ast.Call]:
        """The calls of a function."""
        return self._by.get(id(function), [])

    def elsewhere(self, function: Function) -> ast.AST | None:
        """A place that uses the function without calling it, or calls one of that name in code that the script never comes to."""
        by_name = [
            n for n in self._named.get(function.name, ()) if isinstance(n, ast.Attribute) == isinstance(parent_of(function), ast.ClassDef)
        ]
        return self._other.get(id(function)) or next(iter(by_name), None)


_CALLS: WeakKeyDictionary[Script, Calls] = WeakKeyDictionary()


def calls_of(script: Script) -> Calls:
    if script not in _CALLS:
        _CALLS[script] = Calls(script)
    return _CALLS[script]
