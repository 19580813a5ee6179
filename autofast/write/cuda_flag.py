"""The script's own flag for CUDA: ``use_cuda = not args.no_cuda and torch.cuda.is_available()``."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection

from autofast.edit.edits import Written
from autofast.flow.changes import may_change
from autofast.flow.importers import Importers
from autofast.flow.program import Flow, definitions_of, graph_of
from autofast.flow.scopes import Expressions, is_parameter, own_nodes
from autofast.model.calls import variable_name
from autofast.model.script import Script
from autofast.model.several import any_in
from autofast.model.source import (
    ancestors,
    block_of,
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
from autofast.model.tensors import is_dtype
from autofast.model.values import Arg, Ext, Tensor, Thing, const, is_const, is_named, one
from autofast.write.spelling import (
    argument_expression,
    cuda_test,
    device_before,
    is_evaluated,
    requires_cuda,
    torch_in,
)

IS_AVAILABLE = "torch.cuda.is_available"


def enabled_where_cuda(script: Script, place: ast.stmt, modules: Collection[Thing] = ()) -> Written:
    """An expression that is true where training runs on CUDA, valid before ``place``; empty where
    it always does. ``modules``: whose parameters are to be there.
    """
    if requires_cuda(script):
        return "", ()
    if flag := flag_before(script, place):
        return flag, ()
    function = function_of(place)
    device = device_before(script, place) or ""
    torch, imports = torch_in(source_of(place))
    anywhere = f"{torch}.cuda.is_available()"
    test = anywhere, imports
    if not is_parameter(function, device) or script.analysis(Importers).user(function) is None:
        test = cuda_test(script, place)  # else others may pass a string
    if test[0] == anywhere and (moved := _device_of(script, place, modules)) is not None:
        names = {const(frozenset({t})) for t in script.values(moved)}
        if names <= {"cuda", "cpu"}:
            return f'{ast.unparse(moved)} == "cuda"', ()
        return f'{torch}.device({ast.unparse(moved)}).type == "cuda"', imports
    return test


def _device_of(
    script: Script, place: ast.stmt, modules: Collection[Thing]
) -> ast.Name | ast.Attribute | None:
    """The device, or the name of one, that modules went to just before, in the same block."""
    block, left = block_of(place), {*modules}
    if not left:
        return None
    device: ast.Name | ast.Attribute | None = None
    for site in script.log.of("move_model"):
        stmt, given = statement_of(site.node), site.occurrences[0].data.get("target")
        moved = argument_expression(site.node, given) if isinstance(site.node, ast.Call) else None
        if (
            stmt not in block[: block.index(place)]
            or not isinstance(moved, VARIABLES)
            or not is_evaluated(site.node)
            or (device is not None and ast.unparse(device) != ast.unparse(moved))
        ):
            continue
        between = block[block.index(stmt) + 1 : block.index(place)]
        if _is_device(script, moved) and may_change(script, between, moved) is None:
            device = moved
            left -= {o.this for o in site}
    return device if not left else None


def _is_device(script: Script, moved: ast.Name | ast.Attribute) -> bool:
    """Whether it is known to be a device, or its name, which is more than that there is CUDA."""
    found = script.values(moved)
    made = script.analysis(Flow).value(moved)
    plain = isinstance(made, ast.IfExp) and script.is_call(made.test, IS_AVAILABLE)
    known = (
        is_named(t, Ext, "torch.device") or isinstance(t, Arg) or is_const(t, str) for t in found
    )
    others = any(is_dtype(t) or isinstance(t, Tensor) for t in found)
    return any(known) and not (plain or others)


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
    asked = {site.node for site in script.calls(IS_AVAILABLE)}
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
