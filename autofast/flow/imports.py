"""What import statements bind."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from autofast.model.names import first_part


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


def parsed(code: str) -> list[Binding]:
    return [binding for statement in ast.parse(code).body for binding in bindings(statement)]
