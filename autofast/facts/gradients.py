"""Whether every parameter gets a gradient in every step: where one does not, a gradient of None is
not the same as one of zeros.

Proven for models whose ``forward`` is a straight line: what flows into its result is followed
backwards through assignments and loops over lists of layers. A condition around a layer, an early
return or anything else that is not understood is no proof.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from autofast.facts.used_parameters import parameters_of, used_parameters
from autofast.flow.loops import loops_around
from autofast.flow.program import Flow, graph_of
from autofast.flow.scopes import owner, parameters
from autofast.model.contents import without_wrappers
from autofast.model.events import (
    BranchFrame,
    CallFrame,
    LoopFrame,
    Site,
    Stack,
    TryFrame,
    below,
    inside,
    is_undecided,
)
from autofast.model.kinds import is_loss, is_module
from autofast.model.roles import Backward, Step
from autofast.model.script import Script
from autofast.model.several import of_kind
from autofast.model.source import at, contains_kind, nodes_in, walk
from autofast.model.syntax import TURN_ENDS, is_stored
from autofast.model.values import Cls, Dict, Inst, Ref, Seq, Tensor, Thing, Unknown, all_of, any_of
from autofast.rule import Refusal


def left_out(script: Script, step: Step, models: Iterable[Thing]) -> str:
    """What shows that a step may leave parameters of ``models`` without a gradient; empty where all
    of them certainly get one.
    """
    try:
        reached = [
            x
            for b in step.backwards
            if _always(step, b)
            for m in _makers(b)
            for x in without_wrappers(m)
        ]
        if several := _gives_several(script, step):
            return f"{at(several)} returns several values, and the loss need not use all of them"
        used = {
            key for x in reached if _is_called(script, step, x) for key in used_parameters(x, ())
        }
        missing = next(
            (
                name
                for model in models
                for x in without_wrappers(model)
                for key, name in parameters_of(x)
                if key not in used
            ),
            "",
        )
    except Refusal as why:
        return str(why)
    if missing:
        return f"nothing shows that {missing} takes part in the loss of every step"
    return _switched(script, step)


# ------------------------------------------------------------------------ what happens in each step
def _always(step: Step, backward: Backward) -> bool:
    """This backward runs in every iteration that gets as far."""
    return any(not _conditions(below(o.stack, step.loop)) for o in backward.site)


def _makers(backward: Backward) -> frozenset[Thing]:
    """The models behind the loss, whichever way it was computed."""
    every = [t.models for t in backward.tensors]
    if every and all(t.grad for t in backward.tensors):
        return frozenset.intersection(*every)
    return frozenset()


def _conditions(stack: Stack) -> bool:
    return any(isinstance(f, TryFrame) or (is_undecided(f)) for f in stack)


def _is_called(script: Script, step: Step, model: Thing) -> bool:
    """One call of the model, with gradients, runs in every iteration."""
    for site in step.forwards:
        for o in site:
            mine = (
                model in without_wrappers(o.this) and inside(o.stack, step.loop) and o.grad == "on"
            )
            if (
                mine
                and isinstance(site.node, ast.Call)
                and not _conditions(below(o.stack, step.loop))
            ):
                calls = [
                    site.node,
                    *(f.node for f in below(o.stack, step.loop) if isinstance(f, CallFrame)),
                ]
                single = len([t for t in script.called(site.node) if is_module(t)]) == 1
                if single and not any(_left_before(script, step, call) for call in calls):
                    return True
    return False


def _gives_several(script: Script, step: Step) -> ast.AST | None:
    """A call of a model in the step whose result has parts, however they are put together."""
    calls = (s.node for s in step.forwards if any(inside(o.stack, step.loop) for o in s))
    return next(
        (node for node in calls if script.may_be(node, Seq, Dict, Inst)),
        None,
    )


def _left_before(script: Script, step: Step, call: ast.AST) -> bool:
    """An earlier statement may leave the function of this call, or the iteration."""
    graph = graph_of(script, call)
    loop = next((outer for outer in loops_around(call) if outer is step.loop), None)
    return any(not isinstance(s, ast.Raise) for s in graph.leaving_before(call, loop))


def _switched(script: Script, step: Step) -> str:
    """A place in the step that cuts results off from their gradients, or one that switches
    parameters on and off once it has run.
    """
    flow = script.analysis(Flow)
    for site in script.log.of(
        ".detach", ".detach_", ".requires_grad_", "tensor_write", "set_attribute"
    ):
        switches = site.kind == ".requires_grad_"
        for o in site:
            if switches or o.data.get("name") == "requires_grad":
                trained = any(
                    flow.may_follow(site.node, o.stack, s.loop, s.stack) for s in script.steps
                )
                if trained and flow.may_follow(step.loop, step.stack, site.node, o.stack):
                    return f"{at(site)} switches gradients on and off"
            elif (
                inside(o.stack, step.loop)
                and site.kind.startswith(".detach")
                and isinstance(o.this, Tensor)
                and o.this.models
                and o.this.grad
                and not o.this.loss
            ):
                return f"{at(site)} detaches a result, so that what made it may get no gradient"
    return ""


# ------------------------------------------------------------------- signs that gradients come late
def comes_late(script: Script, models: Iterable[Thing]) -> str:
    """A sign that some parameters get their first gradient later than others; empty where there is
    none (which is no proof).
    """
    wanted = {id(x): x for t in models for x in without_wrappers(t)}
    mine = [m for m in script.models if id(m.thing) in wanted]
    if not wanted or any_of(wanted.values(), Unknown) or len(mine) < len(wanted):
        return "what the optimizer updates is not known, and so whether all of it gets gradients from the first step on"
    for model in mine:
        if model.unknown or _is_foreign(model.layers):
            return f"whether all of {model.name} gets gradients from the first step on is not known"
        for cls in model.classes:
            if place := _varies(script, cls):
                return f"a layer of {cls.name} may be left out ({place}), and get its first gradient later than others"
    return _later_in_steps(script, set(wanted))


def _is_foreign(layers: Iterable[str]) -> bool:
    """Models of other libraries than torch and torchvision; they may leave layers out."""
    return (
        any("." in name and not name.startswith("torchvision.models.") for name in layers)
        or "create_model" in layers
    )


def _varies(script: Script, cls: ast.ClassDef) -> str:
    """The line of a layer that is used under a condition which may change from step to step."""
    for method in (n for n in of_kind(cls.body, ast.FunctionDef) if n.name != "__init__"):
        calls = [n for n in nodes_in(method, ast.Call) if _is_layer(script, n.func)]
        graph = graph_of(script, method)
        for node in walk(method) if calls else ():
            if isinstance(node, (ast.If, ast.IfExp, ast.While)) and not _fixed(
                script, cls, method, node.test
            ):
                inside_it = set(walk(node))
                leaves = contains_kind(node, ast.Return, *TURN_ENDS)
                if any(c in inside_it or (leaves and graph.may_follow(c, node)) for c in calls):
                    return at(node)
        for call in calls:
            if isinstance(call.func, ast.Subscript) and not _is_counted(method, call.func.slice):
                return at(call)
    return ""


def _is_layer(script: Script, func: ast.expr) -> bool:
    found = script.values(func)
    if isinstance(func, ast.Subscript) and isinstance(func.value, ast.Attribute):
        return True
    return any(is_module(t) and not is_loss(t) for t in found)


def _fixed(script: Script, cls: ast.ClassDef, method: ast.FunctionDef, test: ast.expr) -> bool:
    """The test asks for what was decided when the model was made: attributes that only ``__init__``
    sets, and constants.
    """
    names = [n for n in nodes_in(test, ast.Name) if not _is_this(method, n)]
    asked = {n.attr for n in nodes_in(test, ast.Attribute)}
    calls = list(nodes_in(test, ast.Call))
    setters = [n for n in of_kind(cls.body, ast.FunctionDef) if n.name != "__init__"]
    changed = {n.attr for f in setters for n in nodes_in(f, ast.Attribute) if is_stored(n)}
    library = all(bool(found := script.values(n)) and all_of(found, Ref, Cls) for n in names)
    return (
        library
        and all(script.called(c) <= ASKS and script.called(c) for c in calls)
        and not asked & changed
    )


ASKS = frozenset(Ref(f"builtins.{n}") for n in ("isinstance", "len", "hasattr", "bool"))


def _is_this(method: ast.FunctionDef, name: ast.Name) -> bool:
    """The object whose method it is: ``self``."""
    return name.id in [p.arg for p in parameters(method)[:1]] and owner(name) is method


def _is_counted(method: ast.FunctionDef, index: ast.expr) -> bool:
    """A constant, or the variable of a loop: every element has its turn."""
    loops = {
        n.id
        for f in walk(method)
        if isinstance(f, (ast.For, ast.comprehension))
        for n in nodes_in(f.target, ast.Name)
    }
    names = list(nodes_in(index, ast.Name))
    return all(n.id in loops or _is_this(method, n) for n in names) and not contains_kind(
        index, ast.Call
    )


def _later_in_steps(script: Script, wanted: set[int]) -> str:
    """A model that only some steps call, or parameters that are switched on while training."""
    for step in script.steps:
        around = {f.node for f in step.stack if isinstance(f, LoopFrame)}
        for site in script.log.of(".requires_grad_", "tensor_write", "set_attribute"):
            switches = site.kind == ".requires_grad_" or any(
                o.data.get("name") == "requires_grad" for o in site
            )
            if switches and any(f.node in around for o in site for f in o.stack):
                return f"{at(site)} switches gradients on or off while training"
        for site in step.forwards:
            for o in site:
                mine = any(id(x) in wanted for x in without_wrappers(o.this))
                if (
                    mine
                    and inside(o.stack, step.loop)
                    and not _is_unconditional(step.forwards, o.this, step)
                ):
                    return f"not every step calls what is called on {at(site)}"
    return ""


def _is_unconditional(sites: list[Site], model: Thing | None, step: Step) -> bool:
    """Some call of the model stands under no condition, or one stands in each arm of the same
    condition.
    """
    ways = [
        below(o.stack, step.loop)
        for s in sites
        for o in s
        if o.this is model and inside(o.stack, step.loop)
    ]
    arms = {(f.node, f.arm) for way in ways for f in way if is_undecided(f)}
    return any(
        all((f.node, not f.arm) in arms for f in of_kind(way, BranchFrame) if not f.known)
        for way in ways
    )
