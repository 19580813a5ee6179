"""Each epoch of a loader that is shared out goes through the samples in another order."""

from __future__ import annotations

import ast

from autofast.edit.edits import Before, Edit
from autofast.facts.loaders import given, plain_text, whole_batches
from autofast.facts.updates import cadence
from autofast.flow.scopes import stored_in
from autofast.model.events import LoopFrame, Stack
from autofast.model.kinds import is_loader
from autofast.model.script import Loader, Script, Step
from autofast.model.source import at, function_of
from autofast.model.values import Ext, const
from autofast.rule import Refusal
from autofast.techniques.ddp.names import Ranks
from autofast.write.reach import Reach


def epochs_of(step: Step, stack: Stack) -> ast.AST | None:
    """The loop around a training loop, across calls."""
    loops = [f for f in stack if isinstance(f, LoopFrame) and not f.unrolled]
    mine = next((n for n, f in enumerate(loops) if f.node is step.loop), None)
    return loops[mine - 1].node if mine else None


def another_order(script: Script, ranks: Ranks, loader: Loader) -> list[Edit]:
    """Another order in every epoch: DistributedSampler draws it from a seed and the epoch."""
    shuffle, whole = given(loader, "shuffle"), whole_batches(loader)
    if not (
        whole.random
        if whole is not None
        else shuffle is not None and const(shuffle.values) is not False
    ):
        return []
    sampler = "sampler" if whole is None else "sampler.sampler"
    edits: list[Edit] = []
    for step in script.steps:
        if not any(t is x for t in step.loaders for x in loader.things):
            continue
        stacks = [
            o.stack
            for b in step.backwards
            for o in b.site
            if any(f.node is step.loop for f in o.stack)
        ]
        outer = {id(e): e for s in stacks if (e := epochs_of(step, s)) is not None}
        if not outer:
            continue
        assert isinstance(step.loop, ast.For)
        edits += _by_number(
            script, ranks, loader, step, stacks, list(outer.values()), sampler
        ) or _by_count(script, ranks, step, sampler)
    return edits


def loader_expr(script: Script, loop: ast.For) -> ast.expr:
    """The loader in what a loop goes over, without counters and bars."""
    things = {id(t) for x in script.loaders for t in x.things}
    expr: ast.expr = loop.iter
    for _ in range(5):
        found = script.values(expr)
        if found and all(is_loader(t) and id(t) in things for t in found):
            return expr
        inner = cadence.inside_bar(found)
        if inner is None:
            break
        expr = inner
    raise Refusal(f"what the loop on {at(loop)} goes over is not known")


def _by_number(
    script: Script,
    ranks: Ranks,
    loader: Loader,
    step: Step,
    stacks: list[Stack],
    outer: list[ast.AST],
    sampler: str,
) -> list[Edit]:
    """``sampler.set_epoch(epoch)`` at the beginning of the loop over epochs, where both are to be
    had; else nothing.
    """
    loop = outer[0]
    if (
        len(outer) != 1
        or not isinstance(loop, ast.For)
        or not isinstance(loop.target, ast.Name)
        or not _counts(script, loop.iter)
    ):
        return []
    if set(loop.target.id) == {"_"}:
        return []
    assert isinstance(step.loop, ast.For)
    expr = loader_expr(script, step.loop)
    scope = function_of(loop)
    if function_of(step.loop) is scope and plain_text(expr):
        name = ast.unparse(expr)
    else:
        reach = Reach(script, "loader", expr, loader.things, stacks)
        try:
            name = reach.to(scope)
        except Refusal:
            return []
        if reach.edits:
            return []
    if (
        name.split(".")[0].split("[")[0] in stored_in(loop)
        or not name.isidentifier()
        and "." not in name
    ):
        return []
    return [
        Before(
            loop.body[0],
            f"if {ranks.world(loop)} > 1:\n    {name}.{sampler}.set_epoch({loop.target.id})",
        )
    ]


def _counts(script: Script, expr: ast.expr) -> bool:
    """``range(...)``, perhaps in a progress bar."""
    match expr:
        case ast.Call(func=ast.Name("range")):
            return True
        case ast.Call(args=[inner, *_]):
            names = [t.name for t in script.values(expr) if isinstance(t, Ext)]
            bar = bool(names) and all(n.startswith("tqdm.") for n in names)
            return bar and _counts(script, inner)
    return False


def _by_count(script: Script, ranks: Ranks, step: Step, sampler: str) -> list[Edit]:
    """The sampler counts: its epoch grows by one before each pass."""
    assert isinstance(step.loop, ast.For)
    expr = loader_expr(script, step.loop)
    name = plain_text(expr)
    if not name:
        raise Refusal(
            f"the loader in `{ast.unparse(expr)}` on {at(step.loop)} has no name: put it into a variable"
        )
    place = f"{name}.{sampler}"
    return [
        Before(
            step.loop, f"if {ranks.world(step.loop)} > 1:\n    {place}.set_epoch({place}.epoch + 1)"
        )
    ]
