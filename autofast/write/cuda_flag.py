"""The script's own flag for CUDA: ``use_cuda = not args.no_cuda and torch.cuda.is_available()``."""

from __future__ import annotations

import ast

from autofast.edit.edits import Edit
from autofast.flow.importers import Importers
from autofast.flow.program import Flow
from autofast.flow.scopes import is_parameter, own_nodes
from autofast.model.script import Script
from autofast.model.source import Source, ancestors, function_of, parent_of, source_of, statement_of
from autofast.write.spelling import cuda_test, device_before, requires_cuda, torch_in


def enabled_where_cuda(script: Script, place: ast.stmt) -> tuple[str, tuple[Edit, ...]]:
    """An expression that is true where training runs on CUDA, valid before ``place``; empty where it always does."""
    if requires_cuda(script):
        return "", ()
    if flag := flag_before(script, place):
        return flag, ()
    function = function_of(place)
    device = device_before(script, place) or ""
    if is_parameter(function, device) and script.analysis(Importers).user(function) is not None:
        torch, imports = torch_in(source_of(place))  # others may pass a string
        return f"{torch}.cuda.is_available()", imports
    return cuda_test(script, place)


def flag_before(script: Script, place: ast.stmt) -> str:
    """A variable or attribute that certainly holds the flag when ``place`` runs, and that decides where a model goes; else empty."""
    graph = script.analysis(Flow).graph(place)
    flags = _flags(script, source_of(place))
    for node in own_nodes(function_of(place)) if flags else ():
        if not isinstance(node, (ast.Name, ast.Attribute)):
            continue
        if isinstance(node, ast.Attribute) and not isinstance(node.value, ast.Name):
            continue
        text, here = ast.unparse(node), statement_of(node)
        if here is place or text not in flags or not _decides(script, text):
            continue
        head = here.test if isinstance(here, (ast.If, ast.While)) else here
        if graph.dominates(here, place) and any(n is node for n in ast.walk(head)):
            return text
    return ""


def _flags(script: Script, source: Source) -> set[str]:
    """The variables and attributes for which all that is put there in the file says no where there is no CUDA, and is a bool."""
    stored: dict[str, list[ast.expr | None]] = {}
    for node in source.nodes:
        if isinstance(node, ast.arg):
            stored.setdefault(node.arg, []).append(None)
        if isinstance(node, (ast.Name, ast.Attribute)) and not isinstance(node.ctx, ast.Load):
            outer = parent_of(node)
            value = outer.value if isinstance(outer, ast.Assign) else None
            stored.setdefault(ast.unparse(node), []).append(value)
    return {
        text
        for text, values in stored.items()
        if all(v is not None and _needs_cuda(script, v) for v in values)
    }


def _needs_cuda(script: Script, value: ast.expr) -> bool:
    asked = {id(site.node) for site in script.calls("torch.cuda.is_available")}
    parts = value.values if isinstance(value, ast.BoolOp) else [value]
    if isinstance(value, ast.BoolOp) and not isinstance(value.op, ast.And):
        return False
    negated = [isinstance(p, ast.UnaryOp) and isinstance(p.op, ast.Not) for p in parts]
    return any(id(p) in asked for p in parts) and all(
        n or id(p) in asked for n, p in zip(negated, parts, strict=True)
    )


def _decides(script: Script, text: str) -> bool:
    """A device is chosen, or a model moved, where the flag is set."""
    for site in (*script.log.of("move_model"), *script.calls("torch.device")):
        for outer in ancestors(site.node):
            if isinstance(outer, (ast.If, ast.IfExp)) and ast.unparse(outer.test) == text:
                return True
        if any(
            isinstance(n, ast.IfExp) and ast.unparse(n.test) == text for n in ast.walk(site.node)
        ):
            return True
    return False
