"""How a file spells something of a library, and the import that it needs for that."""

from __future__ import annotations

import ast

from autofast.edit.edits import Import
from autofast.flow.imports import bindings
from autofast.model.source import Source


def module_in(source: Source, module: str) -> tuple[str, tuple[Import, ...]]:
    """The name of a module in a file: ``os`` for ``import os`` or ``import os.path``."""
    for binding in (b for stmt in source.tree.body for b in bindings(stmt)):
        plain = binding.bound == binding.module.split(".")[0]
        if not binding.is_from and (
            binding.module == module or (plain and binding.bound == module)
        ):
            return binding.bound, ()
    name = source.fresh(module)
    return name, (
        Import(source, f"import {module}" if name == module else f"import {module} as {name}"),
    )


def imported(source: Source, module: str, name: str) -> tuple[str, tuple[Import, ...]]:
    """The name of ``module.name`` in a file that imports single names: ``from torch.utils.data
    import BatchSampler``.
    """
    for stmt in source.tree.body:
        for binding in bindings(stmt) if isinstance(stmt, ast.ImportFrom) else ():
            if binding.module == module and binding.name == name:
                return binding.bound, ()
    free = source.fresh(name)
    return free, (
        Import(source, f"from {module} import {name}" + ("" if free == name else f" as {free}")),
    )


def functional_in(source: Source) -> tuple[str, tuple[Import, ...]]:
    """How a file calls ``torch.nn.functional``: ``F``, ``nn.functional``,
    ``torch.nn.functional``.
    """
    found = [b for stmt in source.tree.body for b in bindings(stmt)]
    for b in found:
        whole = f"{b.module}.{b.name}" if b.is_from else b.module
        if whole == "torch.nn.functional" and "." not in b.bound and b.bound != "torch":
            return b.bound, ()
    for b in found:
        whole = f"{b.module}.{b.name}" if b.is_from else b.module
        if whole == "torch.nn" and b.bound != "torch":
            return f"{b.bound}.functional", ()
    name, imports = module_in(source, "torch")
    return f"{name}.nn.functional", imports
