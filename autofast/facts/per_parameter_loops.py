"""Work on parameters that a training step does to one of them after the other, where it is none
that has a form for whole lists.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.facts.switches import in_every_iteration
from autofast.flow.scopes import stored_in
from autofast.model.calls import is_method, names_in
from autofast.model.contents import with_contents
from autofast.model.events import Site
from autofast.model.script import Script
from autofast.model.several import of_kind, wordset
from autofast.model.source import nodes_in, walk
from autofast.model.values import STATE_DICT, Ref, Tensor, Unknown, any_named

LOOPS = (ast.For, ast.ListComp, ast.GeneratorExp, ast.SetComp)
CHANGES = wordset("copy_ mul_ add_ sub_ div_ lerp_ clamp_ clamp_min_ clamp_max_ addcmul_ addcdiv_")
NORMS = wordset("torch.norm torch.vector_norm")
UPDATE = "updates one tensor of a model after the other in every step, each with kernels of its own"
NORM = "takes the norm of one parameter after the other in every step"
LISTS = (
    "put them into lists once, and update the lists by torch._foreach_mul_(), _foreach_add_() or "
    "_foreach_lerp_(); averages of weights: torch.optim.swa_utils.AveragedModel with "
    "multi_avg_fn=get_ema_multi_avg_fn(decay)"
)
NORMS_OF_ALL = (
    "torch._foreach_norm() takes those of a list at once; the norm of all is what clip_grad_norm_() "
    "returns (with a limit of infinity it clips nothing), or torch.nn.utils.get_total_norm(); read it once"
)


def per_parameter_work(script: Script) -> Iterator[tuple[ast.AST, str, str]]:
    """Loops over parameters, or over a ``state_dict()``, in every training step: what they do, and
    what could be done.
    """
    training = {step.loop for step in script.steps}
    for node in script.nodes:
        if not isinstance(node, LOOPS):
            continue
        names = _tensors(script, node)
        kind, place = _work(script, node, names) if names else ("", node)
        site = _site(script, node, place) if kind else None
        found = in_every_iteration(script, site, or_none=True) if site is not None else None
        if found is not None and found[0] in training:
            yield node, kind, LISTS if kind == UPDATE else NORMS_OF_ALL


def _site(script: Script, loop: ast.AST, work: ast.AST) -> Site | None:
    """Where a loop begins, or where the work is done of one that is an expression."""
    if isinstance(loop, ast.For):
        return script.log.at("iterate", loop)
    return next((s for s in script.log.of(*NORMS, ".norm") if s.node is work), None)


def _over(loop: ast.AST) -> ast.AST:
    return loop if isinstance(loop, ast.For) else loop.generators[0]  # type: ignore[attr-defined]


def _tensors(script: Script, loop: ast.AST) -> set[str]:
    """The variables of a loop, if it goes over parameters or the tensors of a ``state_dict()``."""
    head = _over(loop)
    names = names_in(head.target)  # type: ignore[attr-defined]
    loads = [n for n in nodes_in(loop, ast.Name) if n.id in names]
    found = with_contents(t for n in loads for t in script.values(n))
    of_parameters = any(t.param for t in of_kind(found, Tensor))
    over = head.iter  # type: ignore[attr-defined]
    of_states = any(is_method(n, "state_dict") for n in walk(over))
    of_states = of_states or STATE_DICT in script.values(over)
    return names if of_parameters or of_states else set()


def _work(script: Script, loop: ast.AST, names: set[str]) -> tuple[str, ast.AST]:
    """What is done to the tensors, in words, and where; no words where it is nothing that has a
    form for lists.
    """
    mine = names | (stored_in(loop) if isinstance(loop, ast.For) else set())
    for node in walk(loop):
        match node:
            case ast.Call(func=ast.Attribute(value=to, attr=attr)) if attr in CHANGES:
                if _mentions(node, names) and _mentions(to, mine):
                    return UPDATE, node
            case ast.Assign(targets=[ast.Attribute(attr="data") | ast.Subscript()], value=value):
                if _mentions(value, mine) and _computes(script, value):
                    return UPDATE, node
            case ast.Call(func=ast.Attribute(value=of, attr="norm")) if _mentions(of, names):
                return NORM, node
            case ast.Call(func=func, args=[of, *_]) if _mentions(of, names):
                if any_named(script.values(func), Ref, NORMS):
                    return NORM, node
    return "", loop


def _computes(script: Script, value: ast.expr) -> bool:
    """A sum, a product, or what a function makes of tensors."""
    sums = isinstance(value, ast.BinOp) or (isinstance(value, ast.Call) and len(value.args) > 1)
    return sums and script.may_be(value, Tensor, Unknown)


def _mentions(expr: ast.AST, names: set[str]) -> bool:
    return bool(names_in(expr) & names)
