"""Tensors that the constructor of a module keeps on the host, and every forward pass copies to the
device: as buffers they go there with the module, and the copy has nothing to do."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import Replace
from autofast.facts.averages import averages_buffers
from autofast.facts.invariants import Invariants, own_constructor
from autofast.flow.program import Flow
from autofast.model.calls import is_method, is_name, items_of
from autofast.model.kinds import is_module
from autofast.model.names import DDP, MODULE_BASES
from autofast.model.roles import Transfer
from autofast.model.script import Script
from autofast.model.several import surely, wordset
from autofast.model.source import ByNode, function_of, nodes_in
from autofast.model.syntax import is_attribute, is_read
from autofast.model.tensors import is_dtype
from autofast.model.values import Cls, Inst, Ref, Seq, Tensor, Unknown, of_kind, one
from autofast.techniques.transfers.factories import KEEPS, runs_often

SINCE = (1, 5)  # of register_buffer(persistent=False), which leaves checkpoints as they are
WRAPS = ("torch.nn.Parameter", "torch.autograd.Variable")
CASTS = tuple("to half float double bfloat16 type to_empty".split())
FORMATS = wordset("channels_last channels_last_3d preserve_format", "torch.")
# What asks whether a module has buffers, casts, saves or sends them.
TAKES = (
    "apex.amp.initialize", "deepspeed.initialize", "functorch.make_functional",
    "operator.attrgetter", "operator.methodcaller",
    "torch.distributed.fsdp.FullyShardedDataParallel", "torch.func.stack_module_state",
    "torch.jit.script", "torch.jit.trace", DDP,
)  # fmt: skip
# Methods of a class by which a buffer may be another thing than an attribute.
OWN = ("__getattr__", "__getattribute__", "__setattr__", "__delattr__", "register_buffer", *CASTS)


def buffers(
    script: Script, hot: frozenset[ast.AST]
) -> Iterator[tuple[ast.Call, tuple[Replace, ...]]]:
    """One copy of each attribute, and what to write where the constructor sets it; nothing where
    it alone sets it, but others may have the tensor."""
    copied: ByNode[Transfer] = {}
    for transfer in script.transfers:
        func = transfer.node.func
        if isinstance(func, ast.Attribute) and (
            transfer.to_device or goes_beside(script, transfer)
        ):
            copied[_root(script, func.value)] = transfer
    if not copied or script.torch.rules_out(SINCE) or changes_buffers(script):
        return
    said: set[object] = set()
    for node, transfer in copied.items():
        if not (isinstance(node, ast.Attribute) and runs_often(transfer.site, hot)):
            continue
        if (made := _set_by_constructor(script, node, copied)) is None:
            if _is_constant(script, node):
                yield transfer.node, ()
        elif made not in said:
            said.add(made)
            owner = ast.unparse(made.targets[0]).removesuffix(f".{node.attr}")
            text = f'{owner}.register_buffer("{node.attr}", {{made}}, persistent=False)'
            yield transfer.node, (Replace(made, text, {"made": made.value}),)


def _is_constant(script: Script, node: ast.Attribute) -> bool:
    """Whether the constructor of a module alone sets an attribute, to a tensor of the host."""
    init, found = own_constructor(function_of(node)), script.values(node)
    known, owners = script.analysis(Invariants), script.values(node.value)
    return (
        init is not None
        and surely(isinstance(t, Inst) and is_module(t) for t in owners)
        and surely(isinstance(t, Tensor) and t.device == "cpu" and not t.param for t in found)
        and not (known.open or known.is_set(node.attr, owners, init))
    )


def goes_beside(script: Script, transfer: Transfer) -> bool:
    """Whether it goes to where a tensor is, be that known or not."""
    target = transfer.target.expr if transfer.target is not None else None
    if isinstance(target, ast.Name):  # ``device = self.weight.device``
        target = script.analysis(Flow).value(target)
    return (
        is_attribute(target, "device")
        and script.may_be(target.value, Tensor)
        and script.must_be(target.value, Tensor, Unknown)
        and transfer.only_moves
        and not transfer.kinds & {"cpu", "type"}
    )


def _root(script: Script, expr: ast.expr) -> ast.expr:
    """``self.table`` in ``nn.Parameter(self.table[:, :n], requires_grad=False)``."""
    match expr:
        case ast.Call(func=ast.Attribute(value=inner, attr=attr)) if attr in KEEPS:
            return _root(script, inner)
        case ast.Call(args=[inner]) if script.is_call(expr, *WRAPS):
            return _root(script, inner)
        case ast.Subscript(value=inner, slice=at) if not any(
            isinstance(t, (Tensor, Seq)) for part in items_of(at) for t in script.values(part)
        ):  # a few rows of what may be as large as a data set, by indices of the host
            return _root(script, inner)
    return expr


def _set_by_constructor(
    script: Script, node: ast.Attribute, copied: ByNode[Transfer]
) -> ast.Assign | None:
    """The statement that alone sets the attribute, behind that of ``nn.Module``; None where others
    read it than the copies, and what the constructor does with it."""
    method, owners = function_of(node), script.values(node.value)
    cls = one({t.cls if isinstance(t, Inst) and is_module(t) else None for t in owners})
    init = own_constructor(method)
    known = script.analysis(Invariants)
    if (
        cls is None
        or init is None
        or known.open
        or any(cls.find(n) is not None for n in (*OWN, node.attr))
        or not (cls.external <= MODULE_BASES and script.must_be(node, Tensor))
        or not known.is_kept(node, init)
    ):
        return None
    name = f"{init.args.args[0].arg}.{node.attr}"
    sets = of_kind(init.body, ast.Assign)
    places = [s for s in sets if [ast.unparse(t) for t in s.targets] == [name]]
    begun = [c.lineno for c in nodes_in(init, ast.Call) if is_method(c, "__init__")]
    if len(places) != 1 or not begun or max(begun) > places[0].lineno:
        return None
    calls = (c for c in script.each(ast.Call) if c.args and _is_by_name(c, node.attr))
    if any(_are_modules(script, c.args[0]) for c in calls):
        return None
    for other in script.each(ast.Attribute):
        if other.attr == node.attr and other is not places[0].targets[0]:
            held = script.values(other.value)
            mine = not held or any(not isinstance(t, Inst) or t.cls is cls for t in held)
            fits = is_read(other) and (function_of(other) is init or other in copied)
            if mine and not fits:
                return None
    return places[0]


def changes_buffers(script: Script) -> bool:
    """Whether all buffers of a module are cast, averaged or looked through, or its attributes are
    taken from its dict."""
    if script.methods("buffers", "named_buffers", "_apply") or script.calls(*TAKES):
        return True
    if averages_buffers(script):
        return True
    for node in script.each(ast.Attribute):
        known = script.values(node.value) if node.attr in CASTS else ()
        unbound = any(isinstance(t, Cls) or t == Ref("torch.nn.Module") for t in known)
        looks = node.attr == "__dict__" and _are_modules(script, node.value)
        if node.attr == "_buffers" or looks or unbound:
            return True
    return casts_modules(script)


def casts_modules(script: Script) -> bool:
    """Whether the parameters of a module may get another type."""
    modules = [(s, o) for s in script.methods(*CASTS) for o in s if o.this and is_module(o.this)]
    given = [t for _, o in modules for t in o.args.things]
    return any(s.kind != ".to" for s, _ in modules) or any(
        is_dtype(t)
        or isinstance(t, (Tensor, Unknown))
        or (isinstance(t, Ref) and t.name not in FORMATS)
        for t in given
    )


def _is_by_name(call: ast.Call, attr: str) -> bool:
    """``getattr(module, "table")``, ``setattr(module, name, x)``, ``vars(module)``"""
    said = call.args[1] if len(call.args) > 1 else None
    other = isinstance(said, ast.Constant) and said.value != attr
    return is_name(call.func, "getattr", "setattr", "delattr") and not other


def _are_modules(script: Script, expr: ast.expr) -> bool:
    found = script.values(expr)
    return not found or any(is_module(t) or isinstance(t, Unknown) for t in found)
