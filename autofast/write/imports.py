"""How a file spells something of a library, and the import that it needs for that."""

from __future__ import annotations

import ast
from collections.abc import Collection

from autofast.edit.edits import Edit, Edits, Import, Remove, Replace
from autofast.flow.importers import Importers
from autofast.flow.imports import bindings
from autofast.model.names import first_part
from autofast.model.script import Script
from autofast.model.several import grouped
from autofast.model.source import Source, parent_of
from autofast.model.syntax import is_attribute

Spelled = tuple[str, tuple[Import, ...]]  # a name, and the imports that it needs


def module_in(source: Source, module: str) -> Spelled:
    """The name of a module in a file: ``os`` for ``import os`` or ``import os.path``."""
    for binding in (b for stmt in source.tree.body for b in bindings(stmt)):
        plain = binding.bound == first_part(binding.module)
        if not binding.is_from and (
            binding.module == module or (plain and binding.bound == module)
        ):
            return binding.bound, ()
    name = source.fresh(module)
    return name, (
        Import(source, f"import {module}" if name == module else f"import {module} as {name}"),
    )


def numpy_in(source: Source) -> Spelled:
    """The name of NumPy in a file, ``np`` where it has none."""
    name, imports = module_in(source, "numpy")
    if not imports:
        return name, ()
    name = source.fresh("np", "numpy")
    return name, (Import(source, f"import numpy as {name}"),)


def imported(source: Source, module: str, name: str) -> Spelled:
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


def functional_in(source: Source) -> Spelled:
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


# -------------------------------------------------------------- imports that nothing needs any more
def imports_of(
    source: Source, modules: Collection[str], name: str
) -> dict[str, list[ast.ImportFrom]]:
    """The names that imports of a file bind to ``name`` of one of these modules, with the
    imports.
    """
    return grouped(
        (alias.asname or alias.name, node)
        for node in source.each(ast.ImportFrom)
        for alias in (node.names if node.level == 0 and node.module in modules else ())
        if alias.name == name
    )


def unimported(script: Script, source: Source, modules: Collection[str], name: str) -> Edits:
    """The imports of ``name`` without it, for a file that no longer uses it; empty where something
    else may: another file, or text (``__all__``).
    """
    bound = imports_of(source, modules, name)
    if any(_may_take(script, o, source, set(bound), modules) for o in script.sources):
        return ()
    if source.rel.endswith("__init__.py") or any(
        n.value in bound for n in source.each(ast.Constant)
    ):
        return ()
    edits: list[Edit] = []
    for node in {node: node for nodes in bound.values() for node in nodes}.values():
        if not isinstance(parent_of(node), ast.Module):
            return ()
        rest = [a for a in node.names if a.name != name]
        names = ", ".join(f"{a.name} as {a.asname}" if a.asname else a.name for a in rest)
        edits.append(Replace(node, f"from {node.module} import {names}") if rest else Remove(node))
    return tuple(edits)


def _may_take(
    script: Script, other: Source, source: Source, names: set[str], modules: Collection[str]
) -> bool:
    """Whether another file may have a name from ``source``: by its own import, as an attribute of
    the module, or by ``*``.
    """
    for node in other.nodes if other is not source else ():
        if isinstance(node, ast.ImportFrom) and node.module not in modules:
            asked = {a.name for a in node.names}
            if asked & names or ("*" in asked and _may_be(script, other, node, source)):
                return True
        elif is_attribute(node) and node.attr in names:
            return True
    return False


def _may_be(script: Script, importer: Source, node: ast.ImportFrom, source: Source) -> bool:
    """Whether an import is of a file of the script that has its names from ``source``, or of one
    that is not found.
    """
    name = node.module or ""
    if first_part(name) == "torch" and not node.level:
        return False
    known = {s.path.resolve(): s for s in script.sources}
    path = script.analysis(Importers).module(importer, name, node.level)
    found = known.get(path) if path is not None else None
    if found is None or found is source:
        return True
    return any(a.name == "*" for n in found.each(ast.ImportFrom) for a in n.names)
