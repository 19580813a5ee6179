"""Whether the kernels of a compiled model may be recorded in CUDA graphs
(``mode="reduce-overhead"``), and which evaluations have to stay out.

Each run overwrites what the run before gave: outputs, and gradients, which a second backward would
add to itself. So a model is only recorded that is called once a step, with inputs of one shape,
whose gradients are dropped in every step, and whose output nobody holds any longer.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from autofast.edit.edits import Around, Decorator, Edit, Edits
from autofast.facts.cost import measured
from autofast.facts.cost.step import Cost
from autofast.facts.input_shapes import why_inputs_vary
from autofast.facts.precision.code import Code
from autofast.facts.switches import in_every_iteration
from autofast.flow.holders import FOLLOWED, Holder, Holders
from autofast.flow.loops import Loop, loop_of
from autofast.flow.program import definitions_of
from autofast.model.calls import keyword_of
from autofast.model.contents import without_wrappers
from autofast.model.events import CallFrame, LoopFrame, Site, below, inside
from autofast.model.names import WRAPPERS
from autofast.model.roles import Evaluation, Model, Step
from autofast.model.script import Script
from autofast.model.several import any_in, surely, wordset
from autofast.model.source import at, function_of, parent_of, source_of, within
from autofast.model.syntax import LOOPS, is_attribute
from autofast.model.values import Tensor, const, of_kind
from autofast.write.spelling import torch_in

SINCE = (2, 6)  # torch.compiler.set_stance
EAGER = '.compiler.set_stance("force_eager")'
READS = wordset("item tolist cpu numpy")  # what may be put off to the end of an epoch


@dataclass(frozen=True)
class Recorded:
    """A model that may be recorded: ``uneven`` where the last batch may be smaller, ``eager`` keeps
    evaluations as they are.
    """

    uneven: bool
    eager: Edits


def recorded(script: Script, model: Model) -> Recorded | str:
    """How a model is recorded; or why it is not, in words."""
    if why := _launches(script):
        return why
    if model.wraps or any(
        getattr(t, "name", "") in WRAPPERS for s in script.steps for t in s.models
    ):
        return "several GPUs share the work"
    mine = [s for s in script.steps if any(_is(model, t) for t in s.models)]
    if len(mine) != 1 or len(script.steps) != 1:
        return "it is trained in several loops"
    (step,) = mine
    checks: tuple[Callable[[Script, Model, Step], str], ...] = (_calls, _gradients, _shapes, _kept)
    if why := next((why for check in checks if (why := check(script, model, step))), ""):
        return why
    eager = _evaluations(script, model, step)
    if isinstance(eager, str):
        return eager
    loaders = [x for x in script.loaders if any_in(x.things, step.loaders)]
    even = all(const(x.args.get(8, "drop_last")) is True for x in loaders)
    return Recorded(not even, tuple(eager))


def _is(model: Model, thing: object) -> bool:
    return model.thing in without_wrappers(thing)  # type: ignore[arg-type]


def _launches(script: Script) -> str:
    """Why a step is not known to wait for the host to begin operations."""
    facts = measured.for_target(script, "cuda")
    if facts is not None and facts.idle is not None:
        idles = facts.idle >= measured.MOST_IDLE
        return "" if idles else f"measured: the GPU idles {measured.percent(facts.idle)} of a step"
    found = script.analysis(Cost).estimate("cuda")
    if found.why:
        unknown = f"whether launches bound a step is not known: {found.why}"
        return "" if found.narrow else unknown
    return "" if found.host >= found.device else found.words


# ----------------------------------------------------------------------------------------- the step
def _calls(script: Script, model: Model, step: Step) -> str:
    """Called once a step, with one backward and one update for each call."""
    sites = [s for s in model.forwards if any(o.grad in ("on", "maybe") for o in s)]
    if len(sites) != 1 or sites[0] not in step.forwards or len(step.forwards) != 1:
        return "it is called at several places of a step"
    if len(step.backwards) != 1 or len(step.updates) != 1:
        return "a step has several backwards or updates"
    for site in (sites[0], step.backwards[0].site, step.updates[0].site):
        if not in_every_iteration(script, site):
            return f"{at(site)} does not run in every step"
        if any(isinstance(f, LoopFrame) for o in site for f in below(o.stack, step.loop)):
            return f"{at(site)} runs several times in a step"
    if step.updates[0].closure:
        return "its optimizer calls it again"
    return ""


def _gradients(script: Script, model: Model, step: Step) -> str:
    """Dropped in every step, and not between the call and its backward, when those of the step
    before would be overwritten already.
    """
    forward = max(o.order for s in step.forwards for o in s)
    backward = max(o.order for o in step.backwards[0].site)
    for zero in step.zeros:
        given = keyword_of(zero.node, "set_to_none")  # type: ignore[arg-type]
        to_none = given is None or script.constant(given) is True
        clears = getattr(getattr(zero.node, "func", None), "attr", "") == "zero_grad"
        order = max(o.order for o in zero)
        if clears and to_none and in_every_iteration(script, zero):
            if not forward < order < backward:
                return ""
    return "its gradients are not set to None in every step before it is called again"


def _shapes(script: Script, model: Model, step: Step) -> str:
    """Why what it is called with may differ in shape, but for a smaller last batch."""
    if why := why_inputs_vary(script):
        return why
    own = Code(script, (), (model.thing,)).all
    items = {d.getitem for x in script.loaders for d in x.datasets}  # of one shape, as is known
    stacks = [
        of_kind(below(s, step.loop), CallFrame) for s in script.stacks if inside(s, step.loop)
    ]
    functions = {
        f.func.node: f.func.node
        for calls in stacks
        if not any(f.func.node in items for f in calls)
        for f in calls
    }
    for part in (step.loop, *functions.values()):
        for node in ast.walk(part):
            match node:
                case ast.Subscript(value=cut, slice=index) if node not in own:
                    of_tensor = script.may_be(cut, Tensor)
                    if of_tensor and _varies(script, index):
                        return f"{at(node)} may cut a batch to another size"
    return ""


def _varies(script: Script, index: ast.expr) -> bool:
    """Whether what is taken by an index may be more or less another time: bounds that are no
    constants, masks.
    """
    match index:
        case ast.Tuple(elts=parts):
            return any(_varies(script, part) for part in parts)
        case ast.Slice(lower=lower, upper=upper):
            return any(b is not None and script.constant(b) is ... for b in (lower, upper))
    return script.may_be(index, Tensor)


def _kept(script: Script, model: Model, step: Step) -> str:
    """Where an output, or a view of it, is still there when the next one overwrites it, or may be
    once its reads are put off.
    """
    (site,) = step.forwards
    call: ast.expr = site.node  # type: ignore[assignment]
    if _gives_its_loss(script, site):
        return "it gives the loss itself, or several things"
    loop = step.loop if isinstance(step.loop, LOOPS) else loop_of(call)
    holders = script.analysis(Holders)
    for holder in holders.ever(call):
        if holder.how not in FOLLOWED:
            return f"{at(holder.node)} may keep what it gives"
        if loop is None or _outlives(script, holder, loop):
            return f"what it gives on {at(call)} is kept beyond the step"
    for whole in map(holders.whole, holders.mentions(call)):
        if is_attribute(parent_of(whole), *READS):
            return f"{at(whole)} is read as a whole"
    return ""


def _outlives(script: Script, holder: Holder, loop: Loop) -> bool:
    """Whether the tensor itself, not something computed from it, is put where it is still there in
    the next turn of the loop.
    """
    home, flow = script.analysis(Holders).home(holder), definitions_of(script, loop)
    if home is not function_of(loop) or not isinstance(holder.node, ast.Name):
        return isinstance(home, ast.Module) or home is function_of(loop)
    return holder.node.id in flow.live_before(loop.body[0]) | flow.live_after(loop)


def _gives_its_loss(script: Script, forward: Site) -> bool:
    """Whether a model may give a loss, or several things: memory of the graph itself, and not what
    the script computes of it.
    """
    assert isinstance(forward.node, ast.expr)
    given = script.values(forward.node)
    return not surely(
        isinstance(t, Tensor) and not t.loss and t.rank not in ("?", "0d") for t in given
    )


# -------------------------------------------------------------------------------------- evaluations
def _evaluations(script: Script, model: Model, step: Step) -> list[Edit] | str:
    """What keeps all other calls as they are: under inference_mode graphs cannot be recorded for a
    training, and outputs are often collected.
    """
    edits: list[Edit] = []
    left: dict[int, Site] = {id(s): s for s in model.forwards if s not in step.forwards}
    done: set[object] = set()
    for evaluation in script.evaluations:
        mine = [s for s in evaluation.forwards if id(s) in left]
        if not mine:
            continue
        if evaluation.shared or within(step.loop, evaluation.node):
            return f"{at(evaluation)} evaluates in code that trains, too"
        for site in mine:
            left.pop(id(site))
        if evaluation.node not in done:
            done.add(evaluation.node)
            edits += _kept_eager(script, evaluation)
    if left:
        site = next(iter(left.values()))
        return f"the call on {at(site)} is no evaluation that could be left as it is"
    return edits


def _kept_eager(script: Script, evaluation: Evaluation) -> Iterator[Edit]:
    node = evaluation.node
    torch, imports = torch_in(source_of(node))
    yield from imports
    match _function(script, evaluation), node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() as function, _:
            yield Decorator(function, torch + EAGER)
        case _, ast.stmt() as first:
            yield Around(first, first, f"with {torch}{EAGER}:")


def _function(script: Script, evaluation: Evaluation) -> ast.AST | None:
    """The function that runs models nowhere but in this evaluation."""
    around = function_of(evaluation.node)
    match evaluation.node, around:
        case ast.FunctionDef() | ast.AsyncFunctionDef(), _:
            return evaluation.node
        case _, ast.FunctionDef():
            here = {site.node for site in evaluation.forwards}
            runs = [s.node for s in script.log.of("forward") if within(s.node, around)]
            steps = [step for step in script.steps if within(step.loop, around)]
            calls = (f for step in script.steps for f in step.stack if isinstance(f, CallFrame))
            trains = steps or any(f.func.node is around for f in calls)
            return None if trains or any(n not in here for n in runs) else around
    return None
