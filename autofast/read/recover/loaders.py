"""The loaders of a script, and how each is gone through."""

from __future__ import annotations

import ast

from autofast.model import names
from autofast.model.events import CallFrame, GuardFrame, LoopFrame, Stack, inside, loops
from autofast.model.kinds import is_loader
from autofast.model.roles import Loader, Use
from autofast.model.script import Script
from autofast.model.several import any_in, first_such, of_kind, surely
from autofast.model.source import ByNode
from autofast.model.syntax import LOOPS
from autofast.model.values import (
    NOTHING,
    Arguments,
    Ext,
    Inst,
    Thing,
    any_of,
    const,
    is_named,
    joined,
)
from autofast.read.interpreter.interpreter import Interpreter
from autofast.read.library.iteration import made_with
from autofast.read.recover.datasets import describe
from autofast.read.recover.item_code import collating


def build_loaders(interp: Interpreter, script: Script) -> list[Loader]:
    """The DataLoaders that the script makes, one for each place."""
    made: ByNode[list[tuple[Ext | Inst, Arguments]]] = {}
    nodes: ByNode[ast.Call] = {}
    for thing in interp.made:
        own = isinstance(thing, Inst) and is_loader(thing) and "__loader__" in thing.attrs
        if not own and not is_named(thing, Ext, names.LOADER):
            continue
        args, node = made_with(thing)
        if isinstance(node, ast.Call) and args is not None:
            made.setdefault(node, []).append((thing, args))
            nodes[node] = node
    return [_loader(interp, script, nodes[key], group) for key, group in made.items()]


def _loader(
    interp: Interpreter, script: Script, node: ast.Call, group: list[tuple[Ext | Inst, Arguments]]
) -> Loader:
    things: list[Thing] = [t for t, _ in group]
    args = joined([a for _, a in group])
    loader = Loader(
        things, node, args, describe(interp, args.get(0, "dataset")), _uses(script, things)
    )
    collate = collating(interp, args.get(6, "collate_fn"))
    loader.collate_random, loader.collate_on_device = frozenset(collate.random), collate.device
    there = surely(d.on_device for d in loader.datasets)
    loader.kept = there and const(args.get(1, "batch_size")) is None
    starts = {site.node for site in script.processes}
    for thing, _ in group:
        begin = max(
            (n for n, f in enumerate(thing.made) if isinstance(f, CallFrame) and f.node in starts),
            default=0,
        )
        outer = [f for f in loops(thing.made[begin:]) if isinstance(f.node, LOOPS)]
        loader.loop = loader.loop or (outer[-1].node if outer else None)
    made_at = [is_guarded(t.made) for t, _ in group]
    loader.guarded = all(is_guarded(u.stack) for u in loader.uses) if loader.uses else all(made_at)
    loader.moved = [t for t in script.transfers if any_in(t.loaders, things)]
    loader.framework = next(
        (n for n in ("lightning", "accelerate", "hf-trainer", "fabric") if n in script.frameworks),
        "",
    )
    loader.batch = NOTHING.union(
        *(interp.__dict__.get("_batches_as_made", {}).get(id(t), NOTHING) for t in things)
    )
    return loader


def _uses(script: Script, things: list[Thing]) -> list[Use]:
    uses: ByNode[Use] = {}
    backs = script.backward_stacks
    for site in script.log.of("iterate", "next"):
        for occurrence in site:
            is_next = site.kind == "next"
            if is_next:
                if not any_in(things, occurrence.data.get("loaders", ())):
                    continue
                outer = [f for f in loops(occurrence.stack) if f.is_statement]
                trains = bool(outer) and any(inside(b, outer[-1].node) for b in backs)
                repeated = bool(outer)
            else:
                frame = occurrence.stack[-1]
                if not isinstance(frame, LoopFrame) or not any_in(things, frame.loaders):
                    continue
                outer = [f for f in loops(occurrence.stack[:-1]) if f.is_statement]
                trains = any(inside(b, frame.node) and _through(b, frame) for b in backs)
                repeated = bool(outer)
            old = uses.get(site.node)
            if old is None:
                uses[site.node] = Use(site.node, occurrence.stack, trains, repeated, is_next)
            else:
                old.trains |= trains
                old.repeated |= repeated
    return list(uses.values())


def _through(stack: Stack, frame: LoopFrame) -> bool:
    """Whether a backward's way leads through this loop over these very loaders (one function may
    train and evaluate).
    """
    return any(
        f.node is frame.node and f.loaders & frame.loaders for f in of_kind(stack, LoopFrame)
    )


def is_guarded(stack: Stack) -> bool:
    """Not run again when a worker imports the entry script: below a main guard, or not reached from
    its top level.
    """
    if any_of(stack, GuardFrame):
        return True
    first = first_such(stack, CallFrame)
    return first is not None and isinstance(
        first.node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
    )
