"""Training steps: which forward, loss, backward and update belong together."""

from __future__ import annotations

import ast

from autofast.flow.positions import common_frames
from autofast.model.calls import is_method
from autofast.model.events import CallFrame, LoopFrame, Occurrence, Site, Stack, WithFrame, inside
from autofast.model.kinds import is_autocast, is_optimizer, is_scaler, is_scheduler
from autofast.model.roles import Backward, Step, Update
from autofast.model.script import Script
from autofast.model.several import first_such
from autofast.model.source import ByNode, Nodes, function_of
from autofast.model.syntax import LOOPS
from autofast.model.values import (
    ById,
    Const,
    Ext,
    Tensor,
    Thing,
    Unknown,
    any_named,
    begins,
    of_kind,
)
from autofast.read.library import apex

CLIPS = tuple(
    f"torch.nn.utils.{n}"
    for n in "clip_grad_norm_ clip_grad_value_ clip_grads_with_norm_ get_total_norm".split()
)


def build_steps(script: Script) -> list[Step]:
    """All training steps, one for each loop (or loop-less function) that holds a backward and its
    update.
    """
    backwards = _backwards(script)
    updates = all_updates(script)
    homes: ByNode[ast.AST] = {}
    stacks: ByNode[Stack] = {}
    members: ByNode[list[Backward]] = {}
    for backward in backwards:
        for occurrence in backward.site:
            home = _home(occurrence, updates)
            homes[home] = home
            stacks.setdefault(home, occurrence.stack)
            mine = members.setdefault(home, [])
            if backward not in mine:
                mine.append(backward)
    return [_step(script, home, members[key], updates, stacks[key]) for key, home in homes.items()]


def _plain_loops(stack: Stack) -> list[LoopFrame]:
    return [f for f in of_kind(stack, LoopFrame) if isinstance(f.node, LOOPS)]


def _home(occurrence: Occurrence, updates: list[Update]) -> ast.AST:
    """The innermost loop around this backward and the update that follows it."""
    mine = _plain_loops(occurrence.stack)
    best: LoopFrame | None = None
    depth = -1
    for update in updates:
        for other in update.site:
            common = common_frames(mine, _plain_loops(other.stack))
            if common and common > depth:
                depth, best = common, mine[common - 1]
    if best is not None:
        return best.node
    if mine:
        return mine[-1].node
    last = first_such(reversed(occurrence.stack), CallFrame)
    return last.func.node if last is not None else function_of(occurrence_node(occurrence))


def occurrence_node(occurrence: Occurrence) -> ast.AST:
    """Some node at the place of an occurrence."""
    assert occurrence.args.call is not None
    return occurrence.args.call


def _backwards(script: Script) -> list[Backward]:
    found = []
    for site in script.log.of(".backward", ".manual_backward"):
        node = site.node
        if not isinstance(node, ast.Call):
            continue
        receivers = [o.this for o in site]
        scaled = [apex.scales(o.stack) for o in site]
        if scaled and all(scaled) and "apex" not in script.frameworks:
            continue  # apex is never initialised: scale_loss raises
        if not any(
            isinstance(t, (Tensor, Unknown)) or _is_framework(t) for t in receivers if t is not None
        ):
            continue
        framework = (
            any(_is_framework(t) for t in receivers)
            or site.kind == ".manual_backward"
            or any(scaled)
        )
        expr: ast.expr = (
            node.args[0]
            if framework and node.args
            else node.func.value
            if isinstance(node.func, ast.Attribute)
            else node.func
        )
        tensors = of_kind(receivers, Tensor)
        backward = Backward(node, expr, site, framework=framework, tensors=tensors)
        _peel(script, backward)
        backward.double = any(
            k.arg == "create_graph" and script.constant(k.value) is not False for k in node.keywords
        )
        found.append(backward)
    return found


def _is_framework(thing: Thing | None) -> bool:
    return begins(thing, Ext, ("accelerate.", "lightning.", "deepspeed."))


def _peel(script: Script, backward: Backward) -> None:
    """``scaler.scale(loss / 4).backward()`` is the backward of ``loss``, with a scaler and a
    divisor.
    """
    expr = backward.expr
    if is_method(expr, "scale") and expr.args:
        if any(is_scaler(t) or isinstance(t, Unknown) for t in script.values(expr.func.value)):
            backward.scaled = True
            expr = expr.args[0]
    if isinstance(expr, ast.BinOp) and isinstance(expr.op, ast.Div):
        expr = expr.left
    backward.expr = expr


def all_updates(script: Script) -> list[Update]:
    """Every place where an optimizer is stepped, or something unknown that may be one."""
    found = []
    for site in script.log.of(".step"):
        node = site.node
        if not is_method(node):
            continue
        for scaled in (False, True):
            things: ById = {}
            for occurrence in site:
                this = occurrence.this
                if this is None:
                    continue
                if scaled and is_scaler(this):
                    things.update((id(t), t) for t in occurrence.args.get(0, "optimizer"))
                elif (
                    not scaled
                    and is_optimizer(this)
                    or not scaled
                    and isinstance(this, Unknown)
                    and not node.args
                ):
                    things[id(this)] = this
            if things:
                expr = node.args[0] if scaled and node.args else node.func.value
                closure = script.log.at("closure", node) is not None or (
                    not scaled and bool(node.args or node.keywords)
                )
                found.append(Update(node, expr, list(things.values()), site, scaled, closure))
    return found


def _step(
    script: Script, home: ast.AST, backwards: list[Backward], updates: list[Update], stack: Stack
) -> Step:
    def here(site: Site) -> bool:
        return any(inside(o.stack, home) for o in site) or (
            isinstance(home, ast.Module) and function_of(site.node) is home
        )

    inner = _foreign_loops(script, home, backwards)
    mine = [
        s
        for s in script.log.of("forward")
        if any(o.data["outer"] for o in s) and here(s) and _trains(s, home, inner)
    ]
    losses = [s for s in script.log.of("loss") if here(s) and _trains(s, home, inner)]
    loaders: ById = {}
    for backward in backwards:
        for occurrence in backward.site:
            for frame in _plain_loops(occurrence.stack):
                if frame.node is home:
                    loaders.update((id(x), x) for x in frame.loaders)
    models: ById = {}
    autocast: ByNode[ast.AST] = {}
    for site in mine:
        for occurrence in site:
            if occurrence.this is not None and inside(occurrence.stack, home):
                models[id(occurrence.this)] = occurrence.this
            for around in occurrence.stack:
                if isinstance(around, WithFrame):
                    for expr, found in around.contexts:
                        if is_autocast(found) or any_named(found, Ext, "torch.autocast"):
                            autocast[expr] = expr
    double = [s.node for s in script.calls("torch.autograd.grad") if here(s) and _creates_graph(s)]
    double += [b.node for b in backwards if b.double]
    scalers: ById = {}
    for site in script.methods("scale", "step", "update", "unscale_"):
        scalers |= {id(t): t for t in site.owners if is_scaler(t) and here(site)}
    zeros = [s for s in script.methods("zero_grad") if here(s)]
    return Step(
        home, list(loaders.values()), mine, losses, backwards, [u for u in updates if here(u.site)], zeros,
        [s for s in script.calls(*CLIPS) if here(s)] + [s for s in script.methods("clip_grad_norm_", "clip_grad_value_") if here(s)],
        [s for s in script.methods("unscale_") if here(s)],
        [s for s in script.methods("update") if here(s) and any(map(is_scaler, s.owners))],
        [s for s in script.log.of("grad_read") if here(s)],
        [s for s in script.methods("step") if here(s) and any(map(is_scheduler, s.owners))],
        double, list(autocast.values()), list(scalers.values()), list(models.values()), stack,
    )  # fmt: skip


def _creates_graph(site: Site) -> bool:
    return any(any(t != Const(False) for t in o.args.get(4, "create_graph")) for o in site)


def _foreign_loops(script: Script, home: ast.AST, backwards: list[Backward]) -> Nodes:
    """Loops below ``home`` that hold no backward: an evaluation inside the training loop."""
    with_backward = {f.node for b in backwards for o in b.site for f in _plain_loops(o.stack)}
    found = set()
    for site in script.log.of("forward"):
        for occurrence in site:
            if inside(occurrence.stack, home):
                for frame in _plain_loops(occurrence.stack):
                    if frame.loaders and frame.node not in with_backward:
                        found.add(frame.node)
    return found


def _trains(site: Site, home: ast.AST, foreign: Nodes) -> bool:
    """With gradients, and not in an evaluation's loop."""
    for occurrence in site:
        if inside(occurrence.stack, home) and occurrence.grad in ("on", "maybe"):
            if not any(f.node in foreign for f in _plain_loops(occurrence.stack)):
                return True
    return False
