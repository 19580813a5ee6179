"""Places that set gradients to zero, and who could tell zero from None."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from autofast.edit.edits import Edit, Keyword, Rewrite
from autofast.facts.gradients import left_out
from autofast.facts.kept_tensors import kept_gradient
from autofast.model.contents import unwrapped
from autofast.model.events import Site, inside
from autofast.model.kinds import is_module, is_optimizer
from autofast.model.script import Optimizer, Script, Step
from autofast.model.source import at, function_of, outwards, parent_of
from autofast.model.syntax import FUNCTIONS, IDENTITY, is_constant
from autofast.model.values import Const, Thing, const

GRAPHS = ("torch.cuda.CUDAGraph", "torch.cuda.graph", "torch.cuda.make_graphed_callables")


@dataclass(frozen=True, eq=False)
class Zeroing:
    """A place that sets gradients to zero."""

    node: ast.AST
    site: Site
    # The optimizers or models whose gradients these are; empty where that is not known.
    owners: list[Thing]
    edits: tuple[Edit, ...]


def explicit(script: Script) -> Iterator[Zeroing]:
    """``optimizer.zero_grad(set_to_none=False)``."""
    for site in script.methods("zero_grad"):
        node = site.call
        if node is None or not all(
            o.args is not None and const(o.args.get(0, "set_to_none")) is False for o in site
        ):
            continue
        owners = list({id(o.this): o.this for o in site if o.this is not None}.values())
        if not all(is_optimizer(t) or is_module(t) for t in owners):
            continue
        if any(k.arg == "set_to_none" for k in node.keywords):
            yield Zeroing(node, site, owners, (Keyword(node, "set_to_none", "True"),))
        elif len(node.args) == 1 and not isinstance(node.args[0], ast.Starred):
            yield Zeroing(node, site, owners, (Rewrite(node.args[0], "True"),))


def against(script: Script, zeroing: Zeroing) -> str:
    """Why zeros and None may differ here; empty where they cannot."""
    if not zeroing.owners:
        return "whose gradients these are is not known"
    for site in [*script.calls(*GRAPHS), *script.methods("share_memory")]:
        return f"{at(site.node)} keeps the addresses of gradients"
    steps = [
        s
        for s in script.steps
        if any(inside(o.stack, s.loop) for o in zeroing.site)
        or function_of(zeroing.site.node) is s.loop
    ]
    if not steps:
        return "nothing shows which training step this belongs to"
    return next(
        (
            why
            for step in steps
            if (
                why := _read(script, zeroing, step)
                or _kept(script, step)
                or _skipped(script, zeroing, step)
            )
        ),
        "",
    )


def _read(script: Script, zeroing: Zeroing, step: Step) -> str:
    for node in _reads(script, zeroing, step):
        return f"{at(node)} reads a gradient that would be None there"
    return ""


def _kept(script: Script, step: Step) -> str:
    node = kept_gradient(script, step)
    return (
        ""
        if node is None
        else f"somebody has the gradient of {at(node)}, and expects it to be filled again"
    )


def _reads(script: Script, zeroing: Zeroing, step: Step) -> Iterator[ast.AST]:
    """The places that read a gradient between here and the next backward."""
    here = min(o.order for o in zeroing.site)
    backward = min((o.order for b in step.backwards for o in b.site), default=0)
    for site in script.log.of("grad_read"):
        if _is_test(site.node):
            continue
        for o in site:
            between = (
                here < o.order < backward if here < backward else not backward < o.order < here
            )
            if between and (inside(o.stack, step.loop) or here > backward):
                yield site.node
                break


def _is_test(node: ast.AST) -> bool:
    """``p.grad is not None``, or a place that is only come to where it is: ``None if p.grad is None
    else p.grad.norm()``.
    """
    parent = parent_of(node)
    if _compares(parent):
        return True
    for here, outer in outwards(node):
        if (
            isinstance(outer, (ast.IfExp, ast.If))
            and here is not outer.test
            and _compares(outer.test)
        ):
            assert isinstance(outer.test, ast.Compare)
            body = outer.body if isinstance(outer.body, list) else [outer.body]
            if any(here is b for b in body) is isinstance(
                outer.test.ops[0], ast.IsNot
            ) and ast.unparse(outer.test.left) == ast.unparse(node):
                return True
        if isinstance(outer, FUNCTIONS):
            return False
    return False


def _compares(node: ast.AST | None) -> bool:
    """``... is None`` or ``... is not None``."""
    if (
        not isinstance(node, ast.Compare)
        or len(node.ops) != 1
        or not isinstance(node.ops[0], IDENTITY)
    ):
        return False
    return is_constant(node.comparators[0], None)


def _skipped(script: Script, zeroing: Zeroing, step: Step) -> str:
    """A parameter that an optimizer would move with a gradient of zeros, and leaves alone with
    None.
    """
    mine = [
        o
        for o in script.optimizers
        if any(u in step.updates for u in o.updates) and _concerns(o, zeroing)
    ]
    if not mine:
        return "which optimizer uses these gradients is not known"
    for optimizer in mine:
        if _still(optimizer):
            continue
        if not optimizer.params:
            return "which parameters the optimizer has is not known"
        if why := left_out(script, step, optimizer.params):
            return f"{why}, and {optimizer.name} would no longer move parameters that have none"
    return ""


def _concerns(optimizer: Optimizer, zeroing: Zeroing) -> bool:
    """The optimizer updates some of the parameters whose gradients are cleared."""
    if any(t is x for t in optimizer.things for x in zeroing.owners):
        return True
    cleared = {id(x) for t in zeroing.owners if is_module(t) for x in unwrapped(t)}
    return (
        not optimizer.params
        or any(id(p) in cleared for p in optimizer.params)
        or any(is_module(t) for t in zeroing.owners)
    )


def _still(optimizer: Optimizer) -> bool:
    """SGD without momentum and decay does not move what has a gradient of zeros."""
    args = optimizer.args
    plain = all(
        args.get(i, n) <= {Const(0), Const(0.0)} for i, n in ((2, "momentum"), (4, "weight_decay"))
    )
    return optimizer.name == "SGD" and plain and not args.open
