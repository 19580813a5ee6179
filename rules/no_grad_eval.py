"""no-grad-eval: evaluate without recording for a backward."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import Around, Decorator, Edit, Rewrite
from autofast.edit.order import Rank
from autofast.facts.cost import gains
from autofast.facts.cost.matmul_layers import convolves
from autofast.facts.forwards import is_dropped, is_measured, is_worth, may_record
from autofast.facts.running_sums import keeps_graphs
from autofast.facts.untrained import untrained
from autofast.flow.scopes import own_nodes
from autofast.model.events import Site, loops
from autofast.model.names import OWNERS
from autofast.model.roles import Evaluation
from autofast.model.script import Script
from autofast.model.several import surely
from autofast.model.source import at, nodes_in, source_of
from autofast.model.syntax import DEFS, VARIABLES
from autofast.model.tensors import is_unknown_in, tensors_in
from autofast.model.values import Ext, Inst, Ref, Tensor
from autofast.read.recover.evaluations import HOOKS
from autofast.read.recover.models import has_fast_path
from autofast.rule import Effect, Finding, Options, rule
from autofast.techniques.evaluation.phases import evaluating_turns
from autofast.techniques.evaluation.places import decorated, joined, trained_replicas
from autofast.write.spelling import inference_mode, torch_in

SINCE = (1, 9)  # inference_mode
DECORATOR = (1, 0)  # no_grad: since 0.4.1
# They evaluate without gradients themselves. One evaluation at the end gains nothing that shows by
# inference_mode; without any mode it may not even fit in memory.
ASKS = gains.counting
ONE_PASS = gains.nothing("one pass, outside of all loops")
DETACHED = gains.nothing("what it records is gone at once, and the GPU has images to convolve")

USUAL = 0.02, "no records for a backward"
UNLESS_ONCE = gains.usual(*USUAL, code=True)
UNLESS_BESIDE = gains.one_pass(*USUAL)

NAME = "no-grad-eval"
BELOW = "put the forward pass and the loss below"
UNTRAINED = "runs a network that nothing trains with gradients on: a backward computes those of its parameters, and nothing uses them"


@rule(
    NAME, Effect.EXACT, groups=("evaluation",), relieves={"evaluation": 1}, asks=gains.usual(*USUAL)
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Evaluate under inference_mode, or no_grad where tensors of the evaluation are used later."""
    owners = [owner for owner in OWNERS if owner in script.frameworks]
    if owners == ["lightning"]:
        for evaluation in script.evaluations:
            if (
                evaluation.kind == "function"
                and evaluation.mode == "on"
                and getattr(evaluation.node, "name", "") in HOOKS
                and _records(script, evaluation)
            ):
                yield from added(script, evaluation)
        return
    if not script.steps or owners:
        return
    new: list[Finding] = []
    for evaluation in script.evaluations:
        if evaluation.context is not None:
            yield from tightened(script, evaluation)
        elif evaluation.mode == "on" and any(map(may_record, evaluation.forwards)):
            new += added(script, evaluation)
    yield from joined(new, NAME)
    for stmt in untrained(script):
        torch, imports = torch_in(source_of(stmt))
        around = Around(stmt, stmt, f"with {torch}.no_grad():", rank=Rank.GRAD_MODE)
        yield Finding(stmt, UNTRAINED, edits=(*imports, around))
    for turn in evaluating_turns(script):
        advice = f"{BELOW} `with torch.set_grad_enabled({turn.test}):`"
        yield Finding(
            turn.forward,
            "runs that do not train record for a backward, too",
            edits=turn.edits,
            advice="" if turn.edits else advice,
            effect=turn.effect,
        )


GIVES_DATA = tuple(  # sets ``p.data`` to what was computed, silently
    f"torch.nn.utils.{module}vector_to_parameters" for module in ("", "convert_parameters.")
)


def tightened(script: Script, evaluation: Evaluation) -> Iterator[Finding]:
    """``no_grad`` becomes ``inference_mode``."""
    context = evaluation.context
    assert context is not None
    if evaluation.mode != "off" or not all(
        isinstance(t, (Ext, Ref)) and t.name == "torch.no_grad" for t in script.values(context)
    ):
        return
    called = context.func if isinstance(context, ast.Call) else context
    if not isinstance(called, VARIABLES) or getattr(context, "args", None):
        return  # a context that was made elsewhere
    if isinstance(called, ast.Name) and not script.may_be(called, Ref):
        return
    message = "evaluates under no_grad, which still counts versions of tensors and follows views"
    node: ast.AST = evaluation.node if evaluation.kind == "with" else context
    why = trained_replicas(script, evaluation)
    if evaluation.kind == "decorator" and (given := returned_tensors(script, evaluation.node)):
        why = f"{at(given)} gives tensors to its callers, which would be inference tensors for good"
    if evaluation.escapes:
        why = f"under inference_mode, what it makes could not be used later: {evaluation.escapes}"
    for site in script.calls(*GIVES_DATA):
        why = (
            f"{at(site)} gives parameters new data, which under inference_mode could not be trained"
        )
    if why:
        yield Finding(node, message, refusal=why)
        return
    name, imports = inference_mode(script, called)
    edit: Edit = Rewrite(context, name)
    if evaluation.kind == "decorator" and isinstance(evaluation.node, DEFS):
        edit = Decorator(evaluation.node, name, old=context)
    yield Finding(node, message, edits=(*imports, edit), asks=ASKS, torch=SINCE)


def returned_tensors(script: Script, function: ast.AST) -> ast.Return | None:
    """A ``return`` of a function that may give tensors to its callers."""
    for node in own_nodes(function):
        match node:
            case ast.Return(value=ast.expr() as value):
                if tensors_in(script.values(value)) or is_unknown_in(script.values(value)):
                    return node
    return None


def added(script: Script, evaluation: Evaluation) -> Iterator[Finding]:
    """``inference_mode`` (or ``no_grad``) where there is nothing yet."""
    node = evaluation.node
    message = "evaluates with gradients on: it keeps every intermediate result for a backward that never comes"
    if evaluation.unknown:
        yield Finding(node, message, refusal=evaluation.unknown)
        return
    asks = None if keeps_graphs(script, node) else UNLESS_ONCE
    if evaluation.kind == "statement":
        measured = is_measured(script, evaluation)
        if not measured and not is_worth(script, evaluation):
            return
        asks = ONE_PASS if _is_one_pass(evaluation, not measured) else UNLESS_BESIDE
    elif evaluation.kind == "function" and _is_one_pass(evaluation, True):
        asks = ONE_PASS
    if is_dropped(evaluation) and convolves(script):
        asks = DETACHED
    whole, told = decorated(script, evaluation)
    torch, imports = torch_in(source_of(whole or node))
    only = bool(script.torch.rules_out(SINCE) or script.calls(*GIVES_DATA))
    only = only or any(e.escapes or trained_replicas(script, e) for e in told)
    mode = f"{torch}.no_grad()" if only else f"{torch}.inference_mode()"
    if whole is not None:
        edit: Edit = Decorator(whole, mode, rank=Rank.GRAD_MODE)
    elif isinstance(node, DEFS):
        edit = Decorator(node, mode, rank=Rank.GRAD_MODE)
    else:
        assert isinstance(node, ast.stmt)
        edit = Around(node, node, f"with {mode}:", rank=Rank.GRAD_MODE)
    since = (DECORATOR if isinstance(edit, Decorator) else None) if only else SINCE
    rounds = any(has_fast_path(o.this) for e in told for s in e.forwards for o in s)
    effect = Effect.ROUNDING if rounds else None
    yield Finding(node, message, edits=(*imports, edit), asks=asks, torch=since, effect=effect)


def _is_one_pass(evaluation: Evaluation, all_data: bool) -> bool:
    """A look at what a layer gives, outside of all loops; without ``all_data`` at one batch."""
    passes = [o for site in evaluation.forwards for o in site]
    given = [t for o in passes for t in o.data.get("inputs", ())]
    one = all_data or surely(isinstance(t, Tensor) and t.batch for t in given)
    one = one or all(map(_takes_few, evaluation.forwards))
    return one and not any(loops(o.stack) for o in passes)


def _takes_few(forward: Site) -> bool:
    """``model(images[:10])``"""
    given = getattr(forward.node, "args", ())
    parts = [a.slice for a in given if isinstance(a, ast.Subscript)]
    return surely(isinstance(s, ast.Slice) and isinstance(s.upper, ast.Constant) for s in parts)


def _records(script: Script, evaluation: Evaluation) -> bool:
    """Whether a pass records anything: an average of weights goes below ``no_grad`` itself."""
    made = [o.this.cls for s in evaluation.forwards for o in s if isinstance(o.this, Inst)]
    own = [f.node for cls in made for f in cls.methods("forward")]
    modes = [any(script.is_call(n, "torch.no_grad") for n in nodes_in(f, ast.Call)) for f in own]
    return not own or not all(modes)
