"""What fused optimizers ask of a training."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.facts.parts import moved_models, parts_of
from autofast.flow.effects import CHANGERS
from autofast.model.calls import is_method, may_give, short_name
from autofast.model.kinds import is_module, is_scaler
from autofast.model.roles import Optimizer
from autofast.model.script import Script
from autofast.model.source import ancestors, at, parent_of
from autofast.model.syntax import CHOICES, is_constant, is_stored
from autofast.model.values import OBJECTS, Const, const, consts

# Fused SGD on CUDA since 2.3, on the CPU since 2.4; before, CPU parameters were an error at
# construction.
SINCE = (2, 4)


def left_on_host(script: Script, optimizer: Optimizer) -> str:
    """A module of the optimizer that nothing moves to a device, beside others of it that go there:
    where it is made, if there is one.
    """
    if script.calls("torch.set_default_device", "torch.set_default_tensor_type"):
        return ""
    moved = parts_of(*moved_models(script))
    stays = [t for t in optimizer.params if parts_of(t).keys().isdisjoint(moved)]
    for thing in stays if len(stays) < len(optimizer.params) else ():
        made = thing.node if isinstance(thing, OBJECTS) and is_module(thing) else None
        if isinstance(made, ast.Call) and not may_give(made, "device"):
            return at(made)
    return ""


SPARSE = (
    "torch.nn.Embedding",
    "torch.nn.EmbeddingBag",
    "torch.nn.functional.embedding",
    "torch.nn.functional.embedding_bag",
)


def where_it_grows(script: Script) -> str:
    """A place where an optimizer gets other parameters than those it is made with, if any does."""
    for node in script.nodes:
        if isinstance(node, ast.Attribute) and node.attr == "add_param_group":
            return at(node)
        if isinstance(node, ast.Subscript) and is_constant(node.slice, "params"):
            around = parent_of(node)
            if is_stored(node) or isinstance(around, ast.Attribute) and around.attr in CHANGERS:
                return at(node)
    return ""


def sparse_gradients(script: Script) -> str:
    """A place whose gradients may be sparse, in words; empty where there is none."""
    for site in script.log.of("new", *SPARSE):
        for occurrence in site:
            name = getattr(occurrence.this, "name", "")
            place = 7 if name.endswith(".embedding_bag") else 6
            if name in SPARSE:
                flag = occurrence.args.given(place, "sparse")
            else:
                flag = None
            if flag is not None and const(flag.values) is not False:
                return f"the embedding of {at(site)} may have sparse gradients, which no fused kernel takes"
    for node in script.nodes:
        if isinstance(node, ast.Call):
            pretrained = is_method(node, "from_pretrained")
            for keyword in node.keywords:
                asked = keyword.arg == "sparse_grad" or (pretrained and keyword.arg == "sparse")
                if asked and script.constant(keyword.value) is not False:
                    return f"{at(node)} may give sparse gradients, which no fused kernel takes"
    return ""


FUSED = ("SGD", "Adam", "AdamW", "Adagrad")  # the classes that take fused= (torch 2.13)


def unreached_optimizers(
    script: Script, may_scale: bool
) -> Iterator[tuple[ast.Call, str, ast.expr]]:
    """Optimizers that could be fused in an arm that the script does not take as it stands: the
    call, the class, and the test.

    Not SGD with momentum where there may be a GradScaler (``may_scale``).
    """
    may_scale = may_scale or any(is_scaler(o.this) for s in script.log.of("new") for o in s)
    for source in script.sources:
        imported = {
            alias.asname or alias.name
            for node in source.nodes
            if isinstance(node, ast.ImportFrom) and node.module == "torch.optim"
            for alias in node.names
        }
        for call in source.nodes:
            if not isinstance(call, ast.Call) or script.called(call):
                continue
            owner, _, name = ast.unparse(call.func).rpartition(".")
            if name not in FUSED or not (owner in ("torch.optim", "optim") or name in imported):
                continue
            given = {k.arg for k in call.keywords}
            spoils = name == "SGD" and ("momentum" in given or len(call.args) > 2) and may_scale
            if {"fused", "foreach", "capturable", "differentiable", None} & given or spoils:
                continue
            tests = (outer.test for outer in ancestors(call) if isinstance(outer, CHOICES))
            test = next(tests, None)
            if test is not None and script.values(test):
                yield call, name, test


def has_momentum(script: Script, optimizer: Optimizer) -> bool:
    """SGD, unless it is certain that no group of it has momentum."""
    return asks_momentum(optimizer) or (
        optimizer.name in ("SGD", "Optimizer") and _says_momentum(script)
    )


def asks_momentum(optimizer: Optimizer) -> bool:
    """SGD, unless its own arguments give it none: as a rule, groups say nothing else."""
    args = optimizer.args
    if optimizer.name not in ("SGD", "Optimizer"):  # the second one is any
        return False
    return bool(args.open) or not args.get(2, "momentum") <= {Const(0), Const(0.0)}


def fused_with_momentum(script: Script) -> str:
    """SGD that is fused and has momentum, in words: where a GradScaler skips its first step, its
    buffers keep what was in memory (torch 2.13).
    """
    for optimizer in script.optimizers:
        fused = optimizer.args.named.get("fused")
        if (
            fused is not None
            and consts(fused.values) not in ({None}, {False})
            and has_momentum(script, optimizer)
        ):
            return (
                f"the fused SGD of {at(optimizer)} spoils its momentum in steps that a scaler skips"
            )
    return ""


def _says_momentum(script: Script) -> bool:
    """A constant, or a keyword of ``dict`` or ``update``, that may be a key of a group or state."""
    for node in script.nodes:
        if isinstance(node, ast.Constant) and node.value == "momentum":
            return True
        if isinstance(node, ast.Call) and any(k.arg == "momentum" for k in node.keywords):
            if short_name(node.func) in ("dict", "update"):
                return True
    return False
