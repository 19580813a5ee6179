"""What happens to gradients besides backwards and updates: where they are set to zero, and clipped,
and whose they are.
"""

from __future__ import annotations

import ast

from autofast.facts.gradient_accesses import free_parameters
from autofast.facts.parts import parts_of
from autofast.facts.scaler import Event
from autofast.flow.defuse import bound_to
from autofast.flow.program import definitions_at
from autofast.model.contents import each_once, without_wrappers
from autofast.model.events import Occurrence, Site
from autofast.model.kinds import is_optimizer
from autofast.model.roles import Update
from autofast.model.script import Script
from autofast.model.several import surely, wordset
from autofast.model.tensors import tensors_in
from autofast.model.values import Ext, Inst, Ref, Thing, all_of, const, surely_named
from autofast.read.recover.steps import CLIPS
from autofast.rule import Refusal


def zero_grads(script: Script) -> list[Event]:
    """``optimizer.zero_grad()`` and ``model.zero_grad()``."""
    sites = script.methods("zero_grad")
    zeroed = parts_of(*(t for s in sites for t in s.owners))
    trained = [m for step in script.steps for t in step.models for m in without_wrappers(t)]
    found = []
    for site in sites:
        ids: set[int] = set()
        sure = True
        for thing in site.owners:
            models = parts_of(thing)
            for optimizer in script.optimizers:
                mine = [m for p in optimizer.params for m in without_wrappers(p)]
                if thing in optimizer.things:
                    ids |= {id(t) for t in optimizer.things if t is thing}
                elif not is_optimizer(thing) and (not mine or any(id(m) in models for m in mine)):
                    ids |= {id(t) for t in optimizer.things}
                    sure &= all(id(m) in zeroed for m in mine or trained) and (
                        bool(mine) or not free_parameters(script)
                    )
        found.append(Event("zero", site.node, frozenset(ids), sure))
    return found


def clips(script: Script, *, strict: bool = True) -> list[Event]:
    """The clips, with the optimizers whose gradients they read; only those of parameters may be,
    where this is ``strict``.
    """
    found = []
    for site in (*script.calls(*CLIPS), *script.methods("clip_grad_norm_", "clip_grad_value_")):
        given = clipped_parameters(site)
        things = optimizers_of(script, given) or None if given is not None else None
        if strict and given is not None:
            if any(_raises_on_overflow(o) for o in site):
                raise Refusal("raises where gradients overflow, which a scaler skips", site)
            if any(t.param != "param" for t in tensors_in(script.values(given))):
                raise Refusal(
                    "clips the gradient of something that is not known to be a parameter", site
                )
        found.append(Event("read", site.node, things))
    return found


def optimizers_of(script: Script, parameters: ast.expr) -> frozenset[int] | None:
    """The optimizers (ids) that update what an expression gives, of which there may be none; None
    where it may be any.
    """
    owners = parameter_owners(script, parameters)
    if owners is None or not all(o.params for o in script.optimizers):
        return None
    models = set(map(id, owners))
    mine = [
        o
        for o in script.optimizers
        if any(id(m) in models for p in o.params for m in without_wrappers(p))
    ]
    return frozenset(id(t) for o in mine for t in o.things)


def clipped_parameters(site: Site) -> ast.expr | None:
    """What a clip is given; None where it is a model's own method, or not seen."""
    for occurrence in site:
        given = occurrence.args.given(0, "parameters")
        if given is not None:
            return given.expr
    return None


def _raises_on_overflow(clip: Occurrence) -> bool:
    """Whether ``clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite)`` is, or may
    be, told to raise.
    """
    given = clip.args.given(3, "error_if_nonfinite")
    return given is not None and const(given.values) is not False


def stepped_together(updates: list[Update]) -> list[frozenset[int]]:
    """The ids of all optimizers that are stepped, together where in the same places."""
    places: dict[int, set[int]] = {}
    for update in updates:
        for thing in update.things:
            places.setdefault(id(thing), set()).add(id(update.node))
    groups: dict[frozenset[int], set[int]] = {}
    for thing_id, nodes in places.items():
        groups.setdefault(frozenset(nodes), set()).add(thing_id)
    return [frozenset(g) for g in groups.values()]


def parameter_owners(script: Script, expr: ast.expr) -> list[Thing] | None:
    """The models whose parameters ``expr`` gives, ``list(a.parameters()) + rest``; None where not
    all of it is known.
    """
    found: list[Thing] = []
    todo: list[ast.expr] = [expr]
    for part in each_once(todo):
        match part:
            case ast.Call(func=ast.Attribute(value=model, attr="parameters" | "named_parameters")):
                things = script.values(model)
                if not things or not all_of(things, Inst, Ext):
                    return None
                found += [inner for t in things for inner in without_wrappers(t)]
            case ast.Call(func=func, args=args, keywords=[]) if _only_passes(script, func):
                todo += [a for a in args if not isinstance(a, (ast.Lambda, ast.Constant))]
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                todo += [left, right]
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                todo += elements
            case ast.Starred(value=value):
                todo.append(value)
            case ast.ListComp(elt=ast.Name()) | ast.GeneratorExp(elt=ast.Name()):
                todo += [generator.iter for generator in part.generators]
            case ast.Name():
                values = [bound_to(d.node) for d in definitions_at(script, part)]
                if not surely(whole and value is not None for value, whole in values):
                    return None
                todo += [value for value, _ in values if value is not None]
            case _:
                return None
    return found


PASSING = wordset("list tuple filter iter sorted", "builtins.") | {"itertools.chain"}


def _only_passes(script: Script, func: ast.expr) -> bool:
    """Whether a function gives nothing but what it is given."""
    return surely_named(script.values(func), Ref, PASSING)
