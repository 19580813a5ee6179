"""What happens to gradients besides backwards and updates: where they are set to zero, and clipped, and whose they are."""

from __future__ import annotations

import ast

from autofast.facts.gradient_accesses import free_parameters
from autofast.facts.parts import parts_of
from autofast.facts.scaler import Event
from autofast.model.kinds import is_optimizer
from autofast.model.script import Script, Update
from autofast.model.tensors import tensors_in
from autofast.model.values import Ext, Inst, Thing, const
from autofast.read.recover.build import unwrapped
from autofast.read.recover.steps import CLIPS
from autofast.rule import Refusal, at


def zeros(script: Script) -> list[Event]:
    """``optimizer.zero_grad()`` and ``model.zero_grad()``."""
    sites = script.methods("zero_grad")
    zeroed = parts_of(*(o.this for s in sites for o in s if o.this is not None))
    trained = [m for step in script.steps for t in step.models for m in unwrapped(t)]
    found = []
    for site in sites:
        ids: set[int] = set()
        sure = True
        for thing in (o.this for o in site if o.this is not None):
            models = parts_of(thing)
            for optimizer in script.optimizers:
                mine = [m for p in optimizer.params for m in unwrapped(p)]
                if any(t is thing for t in optimizer.things):
                    ids |= {id(t) for t in optimizer.things if t is thing}
                elif not is_optimizer(thing) and (not mine or any(id(m) in models for m in mine)):
                    ids |= {id(t) for t in optimizer.things}
                    sure &= all(id(m) in zeroed for m in mine or trained) and (
                        bool(mine) or not free_parameters(script)
                    )
        found.append(Event("zero", site.node, frozenset(ids), sure))
    return found


def clips(script: Script, *, strict: bool = True) -> list[Event]:
    """The clips, with the optimizers whose gradients they read; only those of parameters may be, where this is ``strict``."""
    found = []
    for site in (*script.calls(*CLIPS), *script.methods("clip_grad_norm_", "clip_grad_value_")):
        call = site.node
        things: frozenset[int] | None = None
        if isinstance(call, ast.Call) and call.args:
            models = {id(m) for m in parameter_owners(script, call.args[0])}
            mine = [
                o
                for o in script.optimizers
                if any(id(m) in models for p in o.params for m in unwrapped(p))
            ]
            things = frozenset(id(t) for o in mine for t in o.things) or None
            if strict and any(
                k.arg == "error_if_nonfinite" and const(script.values(k.value)) is not False
                for k in call.keywords
            ):
                raise Refusal(f"{at(call)} raises where gradients overflow, which a scaler skips")
            given = tensors_in(script.values(call.args[0]))
            if strict and any(t.param != "param" for t in given):
                raise Refusal(
                    f"{at(call)} clips the gradient of something that is not known to be a parameter"
                )
        found.append(Event("read", call, things))
    return found


def alike(updates: list[Update]) -> list[frozenset[int]]:
    """The ids of all optimizers that are stepped, those together that are stepped in the same places."""
    places: dict[int, set[int]] = {}
    for update in updates:
        for thing in update.things:
            places.setdefault(id(thing), set()).add(id(update.node))
    groups: dict[frozenset[int], set[int]] = {}
    for thing_id, nodes in places.items():
        groups.setdefault(frozenset(nodes), set()).add(thing_id)
    return [frozenset(g) for g in groups.values()]


def parameter_owners(script: Script, expr: ast.expr) -> list[Thing]:
    """The models in ``model.parameters()``."""
    found: list[Thing] = []
    for node in ast.walk(expr):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("parameters", "named_parameters")
        ):
            found += [
                inner
                for t in script.values(node.func.value)
                if isinstance(t, (Inst, Ext))
                for inner in unwrapped(t)
            ]
    return found
