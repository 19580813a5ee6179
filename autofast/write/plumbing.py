"""Brings a value that is made in one place to others that need it, along the calls of the script.

The value is a variable of some function or module, or an attribute of some objects. Where it is needed, it may be seen already
(in the same function or one inside it, at module level of the same file, through ``self``); where it is not, it becomes a
parameter of that function, and every call of the function passes it on, which may make it a parameter of the callers too::

    way = Way(script, Variable("scaler", main))
    if isinstance(name := way.to(train), str): ...   # what to write for the value in train()
    way.refusal                                      # or why it cannot get there
    way.edits                                        # the parameters and arguments that bring it there

All calls must be known: a function that is also handed around as a value (a callback, the target of a process) is refused.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

from autofast.edit.edits import Edit, Keyword, Parameter
from autofast.flow.call_sites import Attribute, Function, Scope, Variable, calls_of
from autofast.model.script import Script
from autofast.model.source import ancestors, function_of, parent_of, source_of
from autofast.model.values import Bound, Cls, Func, Inst, Thing


class Way:
    """The way of one value from where it is made to all places that need it."""

    def __init__(self, script: Script, origin: Variable | Attribute, known: Mapping[int, str] | None = None, parameter: str = ""):
        """``known`` names the value in functions (by the id of their node) that have it already, as a parameter; ``parameter`` is the name
        of new ones, where it is another than that of the value."""
        self.script, self.origin = script, origin
        self.parameter = parameter or origin.name
        self.calls = calls_of(script)
        self.refusal = ""
        self._names: dict[int, str] = dict(known or {})
        self._edits: dict[tuple[int, ...], Edit] = {}

    @property
    def edits(self) -> tuple[Edit, ...]:
        """The parameters and arguments that all calls of :meth:`to` so far ask for."""
        return tuple(self._edits.values())

    def to(self, scope: Scope) -> str | None:
        """What to write for the value in the code of ``scope``; None, with :attr:`refusal`, where it cannot get there."""
        if id(scope) in self._names:
            return self._names[id(scope)]
        seen = self._seen_in(scope)
        if seen is None and not self.refusal:
            seen = self._through(scope)
        if seen is not None:
            self._names[id(scope)] = seen
        return seen

    # ------------------------------------------------------------------------------------------------ seen without help
    def _seen_in(self, scope: Scope) -> str | None:
        around = [scope, *(a for a in ancestors(scope) if isinstance(a, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Module)))]
        if isinstance(self.origin, Variable):
            return self.origin.name if any(s is self.origin.scope for s in around) else None
        for function in around:
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) and (this := self._self_of(function)):
                return f"{this}.{self.origin.name}"
        return None

    def _self_of(self, function: Function) -> str:
        """The name of ``self`` in a method of the objects that have the attribute."""
        assert isinstance(self.origin, Attribute)
        parent, params = parent_of(function), [*function.args.posonlyargs, *function.args.args]
        if not isinstance(parent, ast.ClassDef) or not params or _is_special(function):
            return ""
        mine = {id(t) for t in self.origin.owners}
        others = [t for t in _instances(self.script) if id(t) not in mine and _descends(t.cls, parent)]
        return params[0].arg if not others and all(_descends(t.cls, parent) for t in self.origin.owners) else ""

    # ------------------------------------------------------------------------------------------------ through a parameter
    def _through(self, scope: Scope) -> str | None:
        name = self.parameter
        if why := self._against(scope):
            self.refusal = why
            return None
        assert isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef))
        self._names[id(scope)] = name  # before the callers: a function may call itself
        self._edits[(id(scope),)] = Parameter(scope, name)
        for call in self.calls.of(scope):
            for other in self.calls.callees(call):
                if self.to(other) is None:
                    return None
            given = self.to(function_of(call))
            if given is None:
                return None
            self._edits[(id(scope), id(call))] = Keyword(call, name, given)
        return name

    def _against(self, scope: Scope) -> str:
        """Why ``scope`` cannot get another parameter."""
        if isinstance(scope, ast.Module):
            return f"{source_of(scope).rel} would have to import it"
        if isinstance(scope, ast.Lambda):
            return f"a lambda needs it (line {scope.lineno})"
        where = f"{scope.name}() (line {scope.lineno} of {source_of(scope).rel})"
        if scope.name.startswith("__") or scope.name == "forward":
            return f"{where} is called by Python or by torch, not by the script"
        if scope.decorator_list and not all(_is_harmless(self.script, d) for d in scope.decorator_list):
            return f"{where} has a decorator that may call it"
        if not self.calls.of(scope):
            return f"nothing in this project calls {where}"
        if (other := self.calls.elsewhere(scope)) is not None:
            return f"{where} is handed around as a value on line {getattr(other, 'lineno', 0)}"
        for call in self.calls.of(scope):
            if any(not isinstance(t, (Func, Bound)) for t in self.script.values(call.func)):
                return f"line {call.lineno} may call something else than {where}"
        return ""


def _instances(script: Script) -> Iterator[Inst]:
    for site in script.log.of("new"):
        for occurrence in site:
            if isinstance(occurrence.this, Inst):
                yield occurrence.this


def _descends(cls: Cls, node: ast.ClassDef) -> bool:
    return cls.node is node or any(_descends(base, node) for base in cls.bases)


def _is_special(function: Function) -> bool:
    names = {d.id for d in function.decorator_list if isinstance(d, ast.Name)}
    return bool(names & {"staticmethod", "classmethod"})


def _is_harmless(script: Script, decorator: ast.expr) -> bool:
    """``@torch.no_grad()`` and its like, ``@staticmethod``, ``@classmethod``: they pass every argument on."""
    found: Iterable[Thing] = script.values(decorator)
    names = {getattr(t, "name", "") for t in found}
    return (
        bool(names)
        and all(n.startswith(("torch.no_grad", "torch.inference_mode", "torch.enable_grad", "builtins.")) for n in names)
        and not any(isinstance(t, (Func, Bound, Cls)) for t in found)
    )
