"""Places that set gradients to zero, and who could tell zero from None."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from autofast.edit.edits import Edit, Keyword, Remove, Replace, Rewrite
from autofast.facts.gradients import left_out
from autofast.facts.kept_tensors import kept_gradient
from autofast.model.events import Site, inside
from autofast.model.kinds import is_module, is_optimizer
from autofast.model.script import Optimizer, Script, Step
from autofast.model.source import ancestors, at, block_of, function_of, parent_of, statement_of
from autofast.model.syntax import FUNCTIONS
from autofast.model.values import Const, Seq, Tensor, Thing, const
from autofast.read.recover.build import unwrapped

GRAPHS = ("torch.cuda.CUDAGraph", "torch.cuda.graph", "torch.cuda.make_graphed_callables")


@dataclass(frozen=True, eq=False)
class Zeroing:
    """A place that sets gradients to zero. ``own`` are nodes that read a gradient only to clear it."""

    node: ast.AST
    site: Site
    # The optimizers or models whose gradients these are; empty where that is not known.
    owners: list[Thing]
    edits: tuple[Edit, ...]
    own: frozenset[int] = frozenset()


def explicit(script: Script) -> Iterator[Zeroing]:
    """``optimizer.zero_grad(set_to_none=False)``."""
    for site in script.methods("zero_grad"):
        node = site.node
        if not isinstance(node, ast.Call) or not all(
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


def by_hand(script: Script) -> Iterator[Zeroing]:
    """``for p in model.parameters(): p.grad.zero_()``, and ``p.grad = torch.zeros_like(p)``."""
    for site in script.log.of("inplace", "grad_write"):
        stmt = statement_of(site.node)
        holder = _cleared(script, site)
        loop = parent_of(stmt)
        while isinstance(loop, ast.If):
            loop = parent_of(loop)
        if holder is None or not isinstance(loop, ast.For) or not isinstance(holder, ast.Name):
            continue
        owners = _owners(script, loop.iter)
        detached = [s for s in block_of(stmt) if _detaches(s, holder.id)]
        edits = (Replace(stmt, f"{holder.id}.grad = None"), *(Remove(s) for s in detached))
        own = frozenset(id(n) for s in (loop,) for n in ast.walk(s))
        yield Zeroing(loop, site, owners, edits, own)


def _cleared(script: Script, site: Site) -> ast.expr | None:
    """The parameter ``p`` of ``p.grad.zero_()``, ``p.grad.data.fill_(0)`` or ``p.grad = torch.zeros_like(p)``."""
    node = site.node
    match node:
        case ast.Call(
            func=ast.Attribute(value=receiver, attr="zero_" | "fill_" as name), args=given
        ):
            if not all(
                isinstance(o.this, Tensor) and o.this.param == "grad" for o in site
            ) or not isinstance(parent_of(node), ast.Expr):
                return None
            if name == "fill_" and (
                len(given) != 1 or const(script.values(given[0])) not in (0, 0.0)
            ):
                return None
            if isinstance(receiver, ast.Attribute) and receiver.attr == "data":
                receiver = receiver.value
            return (
                receiver.value
                if isinstance(receiver, ast.Attribute) and receiver.attr == "grad"
                else None
            )
        case ast.Attribute(value=holder, attr="grad"):
            zeros = all(
                isinstance(t, Tensor) and t.fresh == "zeros_like" for o in site for t in o.result
            )
            return holder if zeros and any(o.result for o in site) else None
    return None


def _detaches(stmt: ast.stmt, name: str) -> bool:
    return isinstance(stmt, ast.Expr) and ast.unparse(stmt) == f"{name}.grad.detach_()"


def _owners(script: Script, over: ast.expr) -> list[Thing]:
    """The models whose parameters a loop goes through."""
    found: list[Thing] = []
    for thing in script.values(over):
        if (
            not isinstance(thing, Seq)
            or thing.kind != "parameters"
            or not isinstance(thing.node, ast.Call)
        ):
            return []
        func = thing.node.func
        found += (
            [t for t in script.values(func.value) if is_module(t)]
            if isinstance(func, ast.Attribute)
            else []
        )
    return found


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


def readers(script: Script, zeroing: Zeroing) -> Iterator[ast.AST]:
    """The places that keep gradients from being None here."""
    for step in script.steps:
        yield from _reads(script, zeroing, step)


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
        if id(site.node) in zeroing.own or _is_test(site.node):
            continue
        for o in site:
            between = (
                here < o.order < backward if here < backward else not backward < o.order < here
            )
            if between and (inside(o.stack, step.loop) or here > backward):
                yield site.node
                break


def _is_test(node: ast.AST) -> bool:
    """``p.grad is not None``, or a place that is only come to where it is: ``None if p.grad is None else p.grad.norm()``."""
    parent = parent_of(node)
    if _compares(parent):
        return True
    here = node
    for outer in ancestors(node):
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
        here = outer
    return False


def _compares(node: ast.AST | None) -> bool:
    """``... is None`` or ``... is not None``."""
    if (
        not isinstance(node, ast.Compare)
        or len(node.ops) != 1
        or not isinstance(node.ops[0], (ast.Is, ast.IsNot))
    ):
        return False
    return isinstance(node.comparators[0], ast.Constant) and node.comparators[0].value is None


def _skipped(script: Script, zeroing: Zeroing, step: Step) -> str:
    """A parameter that an optimizer would move with a gradient of zeros, and leaves alone with None."""
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
