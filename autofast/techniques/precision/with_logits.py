"""The edits that give a binary cross entropy what goes into a sigmoid, and the sigmoid to those who
read the probability.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from autofast.edit.edits import DropElement, Edit, Edits, Import, Remove, Rewrite, Wrap
from autofast.facts.sigmoids import (
    Group,
    idle_layers,
    makes_layer,
    sigmoids,
    taken_by,
)
from autofast.model.calls import is_method, is_name
from autofast.model.script import Script
from autofast.model.source import at, parent_of, source_of, statement_of
from autofast.rule import Refusal
from autofast.write.spelling import torch_in

NEW = {"BCELoss": "BCEWithLogitsLoss", "binary_cross_entropy": "binary_cross_entropy_with_logits"}
HOMES = {"BCELoss": "torch.nn", "binary_cross_entropy": "torch.nn.functional"}


@dataclass(frozen=True, eq=False)
class WithLogits:
    """The losses of a script that are to take logits; ``nodes`` are their calls, and of
    the sigmoids that go.
    """

    groups: tuple[tuple[Group, Edits], ...] = ()

    @property
    def nodes(self) -> frozenset[ast.AST]:
        losses = (loss for group, _ in self.groups for loss, _ in group.losses)
        gone = (s for group, _ in self.groups for s in group.sigmoids)
        return frozenset((*losses, *gone))

    @property
    def keys(self) -> list[ast.AST]:
        """One for each group."""
        return [group.losses[0][0] for group, _ in self.groups]


def with_logits(script: Script) -> WithLogits:
    """What is to be done about the binary cross entropies of a script."""
    return script.analysis(_planned)


def _planned(script: Script) -> WithLogits:
    done = []
    for group in script.analysis(sigmoids) if script.steps else ():
        if group.refusal:
            continue
        try:
            done.append((group, tuple(edits_of(script, group))))
        except Refusal as why:
            group.refusal = str(why)
    return WithLogits(tuple(done))


def edits_of(script: Script, group: Group) -> list[Edit]:
    """What is written for a group of losses and the sigmoids that they share."""
    called = [c for c in group.calls if not makes_layer(script, c)]
    edits: list[Edit] = []
    for loss in group.written:
        edits += _with_logits(loss)
    for call in group.calls:
        edits += [_without_layer(call)] if call not in called else _without_call(call)
    edits += map(Remove, idle_layers(script, called))
    for read in group.reads:
        torch, needed = torch_in(source_of(read))
        edits += [Wrap(read, f"{torch}.sigmoid({{}})"), *needed]
    return edits


def _with_logits(call: ast.Call) -> list[Edit]:
    """``nn.BCELoss`` to ``nn.BCEWithLogitsLoss``: both take the same arguments, in the same
    order.
    """
    match call.func:
        case ast.Attribute(value=module, attr=attr) if attr in NEW:
            return [Rewrite(call.func, f"{{module}}.{NEW[attr]}", {"module": module})]
        case ast.Name(id=name) if name in NEW:
            needed = Import(source_of(call), f"from {HOMES[name]} import {NEW[name]}")
            return [Rewrite(call.func, NEW[name]), needed]
    raise Refusal(f"the loss goes by another name on {at(call)}")


def _without_call(call: ast.Call) -> list[Edit]:
    """``x`` for ``torch.sigmoid(x)``; nothing for ``x = torch.sigmoid(x)``."""
    inner = taken_by(call)
    assert inner is not None
    match parent_of(call):
        case ast.Assign(targets=[ast.Name(id=name)]) as statement if is_name(inner, name):
            return [Remove(statement)]
    return [Rewrite(call, "{x}", {"x": inner})]


def _without_layer(layer: ast.Call) -> Edit:
    """The layer is taken out of where it is put: layers before it keep their places, and the
    parameters their names.
    """
    item: ast.expr = layer
    outer = parent_of(layer)
    match outer, parent_of(outer or layer):
        case ast.Tuple() as pair, ast.List() as pairs:  # OrderedDict([("name", layer)])
            item, outer = pair, pairs
    match outer, statement_of(layer):
        case ast.Call(args=[_, *_, last], keywords=[]) as call, _ if last is item and not is_method(
            call, "append", "add_module"
        ):
            return DropElement(call, item)
        case ast.List(elts=[_, *_, last]) as several, _ if last is item:
            return DropElement(several, item)
        case ast.List(elts=[_]) as one, ast.AugAssign(value=value) as grows if value is one:
            return Remove(grows)
        case ast.Call() as call, ast.Expr(value=value) as adds if value is call and is_method(
            call, "append", "add_module"
        ):
            return Remove(adds)
    raise Refusal("makes the sigmoid in a way that it cannot be taken out of", layer)
