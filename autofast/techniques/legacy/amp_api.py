"""Places that name torch.cuda.amp or torch.cpu.amp, and what they are today."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from autofast.edit.edits import Decorator, Edit, Holes, Replace, Rewrite
from autofast.model.calls import call_of, root_of, short_name
from autofast.model.names import last_part
from autofast.model.script import Script
from autofast.model.several import wordset
from autofast.model.source import Source, at, enclosing, parent_of
from autofast.model.syntax import DEFS, VARIABLES, Def, has_star, is_attribute, is_read
from autofast.model.values import library_names
from autofast.write.spelling import torch_in

OLD = {"torch.cuda.amp": "cuda", "torch.cpu.amp": "cpu"}


NAMES = wordset("autocast GradScaler custom_fwd custom_bwd")


# Of the old classes; the new one begins with device_type.
AUTOCAST_ORDER = ("enabled", "dtype", "cache_enabled")


@dataclass(frozen=True, eq=False)
class Use:
    """A place that names an old object.

    Attributes:
        call: the call of it.
        decorated: the function that it decorates without a call.
        binding: the import that binds the name it is reached by; None where that is ``torch``
            itself.
    """

    source: Source
    node: ast.Name | ast.Attribute
    name: str
    call: ast.Call | None
    decorated: Def | None
    binding: ast.Import | ast.ImportFrom | None

    @property
    def device(self) -> str:
        return OLD[self.name.rpartition(".")[0]]

    @property
    def short(self) -> str:
        return last_part(self.name)


def old_uses(script: Script, source: Source) -> Iterator[Use]:
    """Every place of a file that names an object of the old modules."""
    if "amp" not in source.text:
        return
    bound = dict(_bindings(source))
    for node in source.nodes:
        if not isinstance(node, VARIABLES) or not is_read(node):
            continue
        name = _named(script, node, bound)
        module, _, short = name.rpartition(".")
        if module in OLD and short in NAMES:
            parent = parent_of(node)
            call = call_of(node)
            function = (
                parent if isinstance(parent, DEFS) and node in parent.decorator_list else None
            )
            _, binding = bound.get(short_name(root_of(node)), ("", None))
            yield Use(source, node, name, call, function, binding)


def _bindings(source: Source) -> Iterator[tuple[str, tuple[str, ast.Import | ast.ImportFrom]]]:
    """Names that an import of the file binds to an old module or to an object of one."""
    for node in source.nodes:
        match node:
            case ast.ImportFrom(module=module, names=names, level=0):
                for alias in names:
                    full = f"{module}.{alias.name}"
                    if full in OLD or (module in OLD and alias.name in NAMES):
                        yield alias.asname or alias.name, (full, node)
            case ast.Import(names=names):
                for alias in names:
                    if alias.name in OLD and alias.asname:
                        yield alias.asname, (alias.name, node)


def _named(
    script: Script, node: ast.expr, bound: dict[str, tuple[str, ast.Import | ast.ImportFrom]]
) -> str:
    """The canonical name of what an expression means: as the reader found it, else by the file's
    imports.
    """
    found = library_names(script.values(node))
    if found:
        return next(iter(sorted(found)))
    parts: list[str] = []
    root = node
    while isinstance(root, ast.Attribute):
        parts.insert(0, root.attr)
        root = root.value
    if not isinstance(root, ast.Name):
        return ""
    return ".".join([bound[root.id][0] if root.id in bound else root.id, *parts])


def why_not_renamed(script: Script, use: Use) -> str:
    """Why a use cannot be changed; empty where it can."""
    where = f"{at(use)} of {use.source.rel}"
    if use.call is None and use.decorated is None:
        return f"{where} uses `{ast.unparse(use.node)}` as a value, not as a call"
    if use.binding is not None and enclosing(use.binding, ast.Try, ast.If):
        return (
            f"the import on {at(use.binding)} of {use.source.rel} depends on the version of torch"
        )
    if isinstance(use.binding, ast.ImportFrom) and use.binding.module in OLD:
        if other := [a.name for a in use.binding.names if a.name not in NAMES]:
            return f"{at(use.binding)} of {use.source.rel} imports `{other[0]}` too, which torch.amp has not"
    if use.binding is not None and (rest := _other_use(use, use.binding)) is not None:
        return f"`{ast.unparse(rest)}` on {at(rest)} of {use.source.rel} is not in torch.amp"
    if use.call is not None and has_star(use.call.args):
        return f"{where} passes arguments through `*`"
    if len(script.values(use.node)) > 1:
        return f"`{ast.unparse(use.node)}` on {where} may be several things"
    return ""


def _other_use(use: Use, binding: ast.Import | ast.ImportFrom) -> ast.expr | None:
    """Another attribute of the module that the import binds (``amp.common``)."""
    modules = {
        a.asname or a.name
        for a in binding.names
        if a.name in OLD or f"{getattr(binding, 'module', '')}.{a.name}" in OLD
    }
    for node in use.source.each(ast.Name):
        if node.id in modules and is_read(node):
            parent = parent_of(node)
            if not is_attribute(parent, *NAMES):
                return parent if is_attribute(parent) else node
    return None


def renaming_edits(source: Source, use: Use) -> Iterator[Edit]:
    """``autocast(True)`` → ``autocast("cuda", enabled=True)``; ``torch.cuda.amp.GradScaler()`` →
    ``torch.amp.GradScaler("cuda")``.
    """
    callee = _callee(source, use)
    if use.binding is None:
        yield from torch_in(source)[1]
    if use.decorated is not None:
        yield Decorator(use.decorated, f'{callee}(device_type="{use.device}")', old=use.node)
        return
    assert use.call is not None
    holes: Holes = {}
    parts: list[str] = [f'"{use.device}"'] if not use.short.startswith("custom") else []
    for n, value in enumerate(use.call.args):
        holes[f"a{n}"] = value
        parts.append(f"{AUTOCAST_ORDER[n]}={{a{n}}}" if use.short == "autocast" else f"{{a{n}}}")
    for n, keyword in enumerate(use.call.keywords):
        holes[f"k{n}"] = keyword.value
        parts.append(f"{keyword.arg}={{k{n}}}" if keyword.arg else f"**{{k{n}}}")
    if use.short.startswith("custom"):
        parts.append(f'device_type="{use.device}"')
    yield Rewrite(use.call, f"{callee}({', '.join(parts)})", holes)


def _callee(source: Source, use: Use) -> str:
    """How the new object is spelled: through the changed import, or from ``torch``."""
    if use.binding is not None:
        return ast.unparse(use.node)
    return f"{torch_in(source)[0]}.amp.{use.short}"


def import_edits(uses: list[Use]) -> Iterator[Edit]:
    """``from torch.cuda.amp import autocast`` → ``from torch.amp import autocast``; aliases are
    kept.
    """
    for binding in {u.binding: u.binding for u in uses if u.binding is not None}.values():
        if isinstance(binding, ast.ImportFrom) and binding.module in OLD:
            yield Replace(
                binding, f"from torch.amp import {', '.join(_alias(a) for a in binding.names)}"
            )
        elif isinstance(binding, ast.ImportFrom):
            moved = [a for a in binding.names if f"{binding.module}.{a.name}" in OLD]
            kept = [a for a in binding.names if a not in moved]
            lines = [f"from torch import {', '.join(map(_alias, moved))}"]
            lines += (
                [f"from {binding.module} import {', '.join(map(_alias, kept))}"] if kept else []
            )
            yield Replace(binding, "\n".join(lines))
        else:
            new = [ast.alias("torch.amp", a.asname) if a.name in OLD else a for a in binding.names]
            yield Replace(binding, f"import {', '.join(_alias(a) for a in new)}")


def _alias(alias: ast.alias) -> str:
    return f"{alias.name} as {alias.asname}" if alias.asname else alias.name
