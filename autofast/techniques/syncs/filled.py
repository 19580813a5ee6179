"""Tensors that a loop fills with numbers, made on the device: ``losses[k] = loss.item()`` becomes
``losses[k] = loss``.

    losses = torch.zeros(steps, device=device)
    for k in range(steps):
        losses[k] = model(x)
    mean = losses.cpu().mean()

The numbers are copied to the host once, where they are used, and what is computed with them is
computed there, as before.
"""

from __future__ import annotations

import ast

from autofast.edit.edits import After, Edit, Keyword, Rewrite
from autofast.edit.order import Rank
from autofast.flow.defuse import Definition
from autofast.flow.loops import Loop, loop_of, loops_around
from autofast.flow.program import Flow
from autofast.model.calls import call_of, is_method
from autofast.model.script import Script
from autofast.model.source import ancestors, function_of, parent_of, within
from autofast.model.syntax import COMPREHENSIONS
from autofast.model.values import Tensor
from autofast.techniques.syncs.freshness import without_graph
from autofast.techniques.syncs.liveness import Needs
from autofast.techniques.syncs.reads import Read
from autofast.techniques.syncs.sinks import Sink
from autofast.write.spelling import device_named_before, only_cuda

MAKERS = frozenset(f"torch.{n}" for n in ("zeros", "ones", "empty", "full"))


def filled(script: Script, sink: Sink, loop: Loop, needs: Needs, *, around: ast.stmt) -> list[Edit]:
    """The edits that keep the numbers on the device; none where the statement fills no such tensor,
    or it is used in the loop.
    """
    match sink:
        case Sink(
            statement=ast.Assign(targets=[ast.Subscript(value=ast.Name() as tensor)], value=value),
            reads=[Read(how="item", node=node) as read],
        ) if node is value:
            pass
        case _:
            return []
    if needs.gates or needs.moves or not needs.after:
        return []
    flow = script.analysis(Flow).definitions(tensor)
    match list(flow.reaching(tensor)):
        case [Definition(value=ast.Call() as made) as definition] if not within(made, loop):
            pass
        case _:
            return []
    device = device_named_before(script, made) if _makes_floats(script, made) else None
    uses = [use for use in flow.uses(definition) if use is not tensor]
    inside = any(within(u, loop) or function_of(u) is not function_of(loop) for u in uses)
    if device is None or not uses or inside:
        return []
    edits: list[Edit] = [
        Keyword(made, "device", device),
        Rewrite(
            read.node,
            "{core}" if read.ready else without_graph(script, read.core),
            holes={"core": read.core},
        ),
    ]
    near = loop_of(uses[0]) in (None, *loops_around(made))
    if len(uses) == 1 and near and _is_once(uses[0]):
        attribute = parent_of(uses[0])
        copies = attribute is not None and is_method(call_of(attribute), "tolist", "cpu")
        return edits if copies else [*edits, Rewrite(uses[0], f"{tensor.id}.cpu()")]
    return [*edits, After(around, f"{tensor.id} = {tensor.id}.cpu()", rank=Rank.GRAD_MODE)]


def _makes_floats(script: Script, call: ast.Call) -> bool:
    """``torch.zeros(n)``: floats in memory of the host, for which nothing else is asked."""
    if script.library_function(call) not in MAKERS:
        return False
    given = {k.arg for k in call.keywords}
    kinds = ("f32", "f64") if only_cuda(script) else ("f32",)  # MPS has no float64
    floats = all(isinstance(t, Tensor) and t.dtype in kinds for t in script.values(call))
    return floats and bool(script.values(call)) and given <= {"dtype", "size", "fill_value"}


def _is_once(use: ast.Name) -> bool:
    """Whether the use is come to once, and nothing is stored to it."""
    inner = (*COMPREHENSIONS, ast.Lambda, ast.Subscript)
    return not any(isinstance(a, inner) for a in ancestors(use))
