"""What import statements bind."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from autofast.flow.scopes import variables_of
from autofast.model.calls import root_of
from autofast.model.names import canonical, first_part
from autofast.model.source import statement_of


@dataclass(frozen=True, order=True)
class Binding:
    """One name that an import binds: ``from module import name as bound``; without ``name``,
    ``import module as bound``.
    """

    is_from: bool
    module: str
    name: str
    bound: str

    @property
    def code(self) -> str:
        """The import that binds this name and no other."""
        original = self.name if self.is_from else self.module
        plain = self.name if self.is_from else first_part(self.module)
        suffix = "" if self.bound == plain else f" as {self.bound}"
        if self.is_from:
            return f"from {self.module} import {original}{suffix}"
        return f"import {original}{suffix}"

    @property
    def whole(self) -> str:
        """The module that the name of a plain import is: torch for `import torch.nn`, too."""
        return self.bound if self.bound == first_part(self.module) else self.module

    @property
    def meaning(self) -> str:
        """What the bound name stands for: `import torch` and `import torch.nn` both mean torch."""
        plain = not self.is_from and self.bound == first_part(self.module)
        return self.bound if plain else f"{self.module}:{self.name}"


def bindings(statement: ast.stmt) -> Iterator[Binding]:
    """What an import statement binds; nothing for other statements."""
    if isinstance(statement, ast.Import):
        for alias in statement.names:
            yield Binding(False, alias.name, "", alias.asname or first_part(alias.name))
    elif isinstance(statement, ast.ImportFrom):
        module = "." * statement.level + (statement.module or "")
        for alias in statement.names:
            yield Binding(True, module, alias.name, alias.asname or alias.name)


def imported_name(expr: ast.expr) -> str:
    """The full name of ``np.array`` by the imports of its file, also where the script never comes
    to it; empty where anything else binds its first part.
    """
    root = root_of(expr)
    variable = variables_of(root).of(root) if isinstance(root, ast.Name) else None
    if variable is None:
        return ""
    names = {_imported(store, variable.name) for store in variables_of(root).stores(variable)}
    if len(names) != 1 or not (name := names.pop()):
        return ""
    return canonical(name + ast.unparse(expr).removeprefix(variable.name))


def _imported(store: ast.AST, name: str) -> str:
    """What an import gives to a name; empty for everything else that binds it."""
    for binding in bindings(statement_of(store)):
        if binding.bound == name:
            module = binding.module
            return f"{module}.{binding.name}" if binding.is_from else binding.whole
    return ""


def parsed(code: str) -> list[Binding]:
    return [binding for statement in ast.parse(code).body for binding in bindings(statement)]
