"""The script's own flag for CUDA: ``use_cuda = not args.no_cuda and torch.cuda.is_available()``."""

from __future__ import annotations

import ast
from collections import defaultdict

from autofast.edit.edits import Written
from autofast.flow.importers import Importers
from autofast.flow.program import definitions_of, graph_of
from autofast.flow.scopes import Expressions, is_parameter, own_nodes
from autofast.model.calls import variable_name
from autofast.model.script import Script
from autofast.model.several import any_in
from autofast.model.source import (
    ancestors,
    function_of,
    nodes_in,
    parent_of,
    source_of,
    statement_of,
    walk,
    within,
    within_any,
)
from autofast.model.syntax import CHOICES, VARIABLES, is_number, is_read, is_unary
from autofast.model.values import Arg, one
from autofast.write.spelling import cuda_test, device_before, requires_cuda, torch_in


def enabled_where_cuda(script: Script, place: ast.stmt) -> Written:
    """An expression that is true where training runs on CUDA, valid before ``place``; empty where
    it always does.
    """
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
    """A variable or attribute that certainly holds the flag when ``place`` runs, and that decides
    where a model goes; else empty.
    """
    flags = script.analysis(CudaFlags).of(source_of(place).tree)
    graph = graph_of(script, place)
    nodes = list(own_nodes(function_of(place)))
    stores = [n for n in nodes if _spelled(n) and not is_read(n)]
    kept = flags - set(map(_spelled, stores))
    later = {_spelled(n) for n in stores if not graph.dominates(n, place)}
    for node in nodes:
        text = _asked(node)
        here = statement_of(node) if text else place
        if here is place or not graph.dominates(here, place):
            name = _spelled(_option(node))
            stays = text in kept or (name not in later and _is_bound(script, place, node))
            asked = text in kept or _has_moved(script, here, node)
            if stays and asked and graph.postdominates(here, place):
                return text  # which is read in any case, further down
            continue
        head = here.test if isinstance(here, (ast.If, ast.While)) else here
        if (text in flags and within(node, head)) or _has_moved(script, here, node):
            return text
    return ""


def _option(test: ast.AST) -> ast.AST:
    """``args.gpu`` of ``args.gpu >= 0``; anything else as it is."""
    match test:
        case ast.Compare(left=left, ops=[_], comparators=[right]) if is_number(right):
            return left
    return test


def _asked(node: ast.AST) -> str:
    """A flag as it is spelled, or what is asked of an option: ``args.gpu >= 0``."""
    option = _option(node)
    return _spelled(node) if option is node else _spelled(option) and ast.unparse(node)


def _is_bound(script: Script, place: ast.stmt, flag: ast.AST) -> bool:
    flag = _option(flag)
    while isinstance(flag, ast.Attribute):
        flag = flag.value
    definitions = definitions_of(script, place)
    return isinstance(flag, ast.Name) and definitions.is_bound_at(place, flag.id)


def _has_moved(script: Script, gate: ast.stmt, flag: ast.AST) -> bool:
    """``if args.cuda: x = x.cuda()``, by an option that is a bool, or ``if args.gpu >= 0:``: where
    it was given, there is CUDA, else the line raises.

    All models must go there by the same option: without it, training runs on the host.
    """
    if not isinstance(gate, ast.If) or gate.test is not flag:
        return False
    asked = _question(script, gate.test)
    if asked is None or not (asked[1] or asked[0].kind == "flag"):
        return False

    def is_gated(node: ast.AST) -> bool:
        return any(
            isinstance(g, ast.If)
            and _question(script, g.test) == asked
            and within_any(node, g.body)
            for g in ancestors(node)
        )

    models = [site.node for site in script.log.of("move_model")]
    moved = [t.node for t in script.transfers if t.kinds == {"cuda"}]
    return any(map(is_gated, [*models, *moved])) and all(map(is_gated, models))


def _question(script: Script, test: ast.expr) -> tuple[Arg, str] | None:
    """What a test asks of which option: ``>= 0``, or nothing but whether it is true; None where it
    asks something else.
    """
    option = _option(test)
    only = one(script.values(option))
    asks = ast.unparse(test).removeprefix(ast.unparse(option))
    return (only, asks) if isinstance(only, Arg) else None


class CudaFlags:
    """The flags of each file, as they are spelled there."""

    def __init__(self, script: Script):
        self.script = script
        self._known: dict[ast.Module, frozenset[str]] = {}

    def of(self, module: ast.Module) -> frozenset[str]:
        """The variables and attributes that decide where a model goes, and that only hold bools
        that say no where there is no CUDA.
        """
        if module not in self._known:
            stored = _stored(module)
            flags = {
                text
                for text, values in stored.items()
                if all(v is not None and _needs_cuda(self.script, v) for v in values)
                and _decides(self.script, text)
            }
            # self.args = args
            for text, values in stored.items():
                if text.startswith("self.") and text.count(".") == 1:
                    names = {variable_name(v) for v in values}
                    owner = one(names, "")
                    mine = {f for f in flags if f.startswith(f"{owner}.")} if owner else ()
                    kept = {f"{text}.{flag.split('.', 1)[1]}" for flag in mine}
                    flags |= kept - stored.keys()
            self._known[module] = frozenset(flags)
        return self._known[module]


def _stored(module: ast.Module) -> dict[str, Expressions]:
    """What is put into each variable and attribute of a file, in any function; None where that is
    not an expression.
    """
    found: dict[str, Expressions] = defaultdict(list)
    for node in walk(module):
        if isinstance(node, ast.arg):
            found[node.arg].append(None)
        elif isinstance(node, VARIABLES) and not is_read(node):
            outer = parent_of(node)
            found[_spelled(node)].append(outer.value if isinstance(outer, ast.Assign) else None)
    found.pop("", None)
    return found


def _spelled(node: ast.AST) -> str:
    """``flag``, ``args.flag`` or ``self.args.flag``; empty for anything else."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name() | ast.Attribute(value=ast.Name()) as owner, attr=name):
            return f"{_spelled(owner)}.{name}"
    return ""


def _needs_cuda(script: Script, value: ast.expr) -> bool:
    asked = {site.node for site in script.calls("torch.cuda.is_available")}
    parts = value.values if isinstance(value, ast.BoolOp) else [value]
    if isinstance(value, ast.BoolOp) and not isinstance(value.op, ast.And):
        return False
    negated = [is_unary(p, ast.Not) for p in parts]
    return any_in(parts, asked) and all(
        n or p in asked for n, p in zip(negated, parts, strict=True)
    )


def _decides(script: Script, text: str) -> bool:
    """A device is chosen, or a model moved, where the flag is set."""
    for site in (*script.log.of("move_model"), *script.calls("torch.device")):
        for outer in ancestors(site.node):
            if isinstance(outer, CHOICES) and ast.unparse(outer.test) == text:
                return True
        if any(ast.unparse(n.test) == text for n in nodes_in(site.node, ast.IfExp)):
            return True
    return False
