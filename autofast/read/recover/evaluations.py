"""Evaluations: forward passes that no backward follows, the statements that hold them, and whether anything of them is needed later."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from autofast.model.events import CallFrame, LoopFrame, Occurrence, Site, Stack, WithFrame, inside
from autofast.model.kinds import grad_mode_of, is_autocast, is_module, is_optimizer
from autofast.model.names import WRAPPERS, is_of_model_library
from autofast.model.script import Evaluation, Script
from autofast.model.source import ancestors, at, function_of, statement_of
from autofast.model.syntax import DEFS, LOOPS
from autofast.model.tensors import tensors_in
from autofast.model.values import (
    Arguments,
    Ext,
    Inst,
    Ref,
    Tensor,
    Thing,
    Unknown,
    Values,
    const,
)
from autofast.read.recover.compiled import is_in_place, is_left_eager, records_graphs
from autofast.read.recover.escapes import YIELDS, ends_with_call, leak
from autofast.read.recover.eval_mode import switching_functions
from autofast.read.recover.leaks import carries
from autofast.read.recover.module_changes import changed_module
from autofast.read.recover.region import Region
from autofast.read.recover.sealed import Sealed
from autofast.read.recover.shared_passes import apart, keeps_gradients
from autofast.read.recover.trials import memory_trial

BACKWARDS = tuple(
    """.backward .manual_backward torch.autograd.grad torch.autograd.backward
    torch.autograd.functional.jacobian""".split()
)
# libraries that are given tensors to show, save or score them, never to train with them
# fmt: off
HARMLESS = frozenset({
    "torch", "torchvision", "numpy", "builtins", "math", "time", "os", "sys", "json", "logging", "PIL", "matplotlib", "sklearn", "scipy",
    "pandas", "seaborn", "wandb", "tqdm", "tensorboard", "tensorboardX", "visdom", "cv2", "imageio", "skimage", "einops", "torchmetrics",
    "torch_geometric", "torch_scatter", "timm", "evaluate", "rich", "datetime",
    "argparse", "random", "copy", "itertools", "functools", "collections", "string", "re",
})
SHOWS = (
    "torch.", "tqdm.", "wandb.", "tensorboard", "visdom.", "matplotlib.", "PIL.", "logging.", "builtins.", "argparse.", "time.",
    "accelerate.", "contextlib.",
)
GRAPH = frozenset({
    "requires_grad", "grad_fn", "is_leaf", "grad", "retains_grad", "retain_grad", "register_hook", "requires_grad_", "output_nr",
    "register_post_accumulate_grad_hook", "is_inference", "_version",
})
# fmt: on
REMEMBERS = ("functools.lru_cache", "functools.cache", "functools.cached_property")


def evaluations(script: Script) -> list[Evaluation]:
    """The program's evaluations, each at the smallest place that holds all its forwards."""
    training = _Training(script)
    sealed = Sealed(script, training.all + training.handed_out)
    found: dict[int, Evaluation] = {}
    for site in script.log.of("forward"):
        for occurrence in site:
            if not occurrence.data["outer"]:
                continue
            made = (
                _switched_off(occurrence)
                if occurrence.grad in ("off", "inference")
                else _plain(site, occurrence, training)
            )
            shared = False
            if made is None and occurrence.grad == "on":
                # Some backward is not known, or reaches these passes on other ways.
                function = sealed.around(occurrence.stack)
                made = (function, "function", None) if function is not None else None
                shared = True
            if made is None:
                continue
            node, kind, context = made
            evaluation = found.setdefault(
                id(node), Evaluation(node, kind, occurrence.grad, [], context)
            )
            evaluation.shared = evaluation.shared or shared
            if evaluation.mode != occurrence.grad:
                evaluation.mode = "maybe"
            if site not in evaluation.forwards:
                evaluation.forwards.append(site)
    for site, occurrence, node, kind in apart(
        script, training.passes, training.all + training.handed_out
    ):
        within = sealed.around(occurrence.stack)
        if not _blind(occurrence.stack, training.blind) and id(within) not in found:
            evaluation = found.setdefault(
                id(node), Evaluation(node, kind, "on", [], None, shared=True)
            )
            if site not in evaluation.forwards:
                evaluation.forwards.append(site)
    whole = {id(e.node) for e in found.values() if e.kind == "function"}
    for key, evaluation in list(found.items()):
        if evaluation.context is None and any(id(a) in whole for a in ancestors(evaluation.node)):
            del found[key]  # the whole function is one evaluation
    for key, evaluation in list(found.items()):
        region = region_of(script, evaluation)
        kept = evaluation.shared and evaluation.node not in sealed
        if kept and keeps_gradients(script, region, training.all + training.handed_out):
            del found[key]  # training goes on with what it computes
            continue
        evaluation.escapes = _hazard(script, evaluation, region) or leak(script, region)
        evaluation.unknown = (
            _needs_gradients(script, evaluation, region, training)
            if evaluation.context is None
            else ""
        )
    return list(found.values())


HOOKS = frozenset(
    "on_train_start on_train_epoch_start on_train_batch_end on_train_epoch_end on_train_end".split()
)  # of Lightning


def region_of(script: Script, evaluation: Evaluation) -> Region:
    """The code that an evaluation stands for."""
    node = evaluation.node
    if isinstance(node, DEFS):
        return Region(script.log, node, node.body, True)
    return Region(
        script.log,
        node,
        node.body
        if isinstance(node, (ast.With, ast.AsyncWith))
        else [node]
        if isinstance(node, ast.stmt)
        else [],
        False,
    )


# ------------------------------------------------------------------------------------------------ what trains
class _Training:
    """Which calls of models a backward reaches.

    ``passes`` are those it certainly may reach, as the reader followed the loss there. ``blind`` are the ways to the other backwards:
    whatever runs in the same loop or function may be trained by them.
    """

    def __init__(self, script: Script):
        self.passes: set[ast.AST] = set()
        self.blind: list[Stack] = []
        self.all: list[Stack] = []
        self.handed_out: list[Stack] = []  # the ways to code that may train with what it gets
        self.measuring = switching_functions(script)  # what they call is none of a training's
        for site in script.log.of(*BACKWARDS):
            for occurrence in site:
                self.all.append(occurrence.stack)
                self.add(_differentiated(occurrence), occurrence.stack)
        for (kind, _), site in script.log.each():
            for occurrence in site:
                if kind not in BACKWARDS and (given := _handed_out(kind, occurrence)):
                    passes = {p for t in tensors_in(given) for p in t.passes}
                    self.passes |= passes
                    if passes:
                        self.handed_out.append(occurrence.stack)

    def add(self, given: Values, stack: Stack) -> None:
        passes = {p for t in tensors_in(given) for p in t.passes}
        self.passes |= passes
        if not passes:
            self.blind.append(stack)


def _differentiated(occurrence: Occurrence) -> Values:
    if isinstance(occurrence.this, Tensor):
        return frozenset({occurrence.this})
    return (
        occurrence.args.positional[0].values
        if occurrence.args is not None and occurrence.args.positional
        else frozenset()
    )


def _handed_out(kind: str, occurrence: Occurrence) -> Values:
    """The tensors that leave the project here for code that may train with them."""
    if kind == "return":
        frame = next((f for f in reversed(occurrence.stack) if isinstance(f, CallFrame)), None)
        return (
            occurrence.result
            if frame is not None and not isinstance(frame.node, ast.Call)
            else frozenset()
        )
    known = isinstance(occurrence.this, Ref) and occurrence.this.name.split(".")[0] in HARMLESS
    foreign = isinstance(occurrence.this, Ref) and kind == occurrence.this.name and not known
    if (
        kind in ("call_unknown", "call_object")
        or foreign
        or (kind.startswith(".") and isinstance(occurrence.this, Unknown))
    ):
        given = occurrence.args
        return (
            frozenset().union(*(g.values for g in given.every))
            if given is not None
            else frozenset()
        )
    return frozenset()


# ------------------------------------------------------------------------------------------------ where it is
def _switched_off(occurrence: Occurrence) -> tuple[ast.AST, str, ast.expr | None] | None:
    for frame in reversed(occurrence.stack):
        if isinstance(frame, WithFrame):
            for expr, found in reversed(frame.contexts):
                if grad_mode_of(found) is not None:
                    return (
                        frame.node,
                        "with"
                        if isinstance(frame.node, (ast.With, ast.AsyncWith))
                        else "decorator",
                        expr,
                    )
    return None


def _plain(
    site: Site, occurrence: Occurrence, training: _Training
) -> tuple[ast.AST, str, ast.expr | None] | None:
    """The outermost loop over batches, else the function, else the statement around this forward that no backward happens in."""
    if (
        occurrence.grad != "on"
        or site.node in training.passes
        or not isinstance(site.node, ast.expr)
    ):
        return None
    best: tuple[ast.AST, str, ast.expr | None] | None = None
    last, call = _outside_models(site.node, occurrence.stack, training.all)
    for i in range(last, -1, -1):
        frame = occurrence.stack[i]
        prefix = occurrence.stack[: i + 1]
        if isinstance(frame, LoopFrame) and isinstance(frame.node, LOOPS):
            if _has_backward(prefix, training.all):
                break
            best = (
                (frame.node, "loop", None)
                if frame.loaders or best is None or best[1] == "function"
                else best
            )
            if frame.loaders:
                return best
        elif isinstance(frame, CallFrame):
            if is_hook(frame) and not any(inside(b, frame.func.node) for b in training.all):
                return frame.func.node, "function", None
            if not isinstance(frame.node, ast.Call) or _of_module(frame):
                # Nothing in the project calls it, or a model calls other code that does.
                return None  # who needs the result is not known
            if any(inside(b, frame.func.node) for b in training.all):
                break
            if best is None and isinstance(frame.func.node, ast.FunctionDef):
                best = (frame.func.node, "function", None)
    if _blind(occurrence.stack, training.blind) and not (best and best[0] in training.measuring):
        return None
    return best or (statement_of(call), "statement", None)


def _outside_models(call: ast.expr, stack: Stack, backs: list[Stack]) -> tuple[int, ast.expr]:
    """The last frame that is none of a model's own methods, and the call there: ``model.predict(x)`` rather than its layers.

    A method that trains is none that only computes.
    """
    last = len(stack) - 1
    for i in range(last, -1, -1):
        frame = stack[i]
        if isinstance(frame, CallFrame):
            trains = any(inside(b, frame.func.node) for b in backs)
            if trains or not _of_module(frame) or not isinstance(frame.node, ast.Call):
                break
            last, call = i - 1, frame.node
    return last, call


def is_hook(frame: CallFrame) -> bool:
    """A method of a LightningModule that Lightning calls beside training, with gradients on."""
    owner = frame.func.owner
    known = owner is not None and any(
        n.startswith("lightning.") and n.endswith("LightningModule") for n in owner.external
    )
    return known and frame.func.name in HOOKS and not isinstance(frame.node, ast.Call)


def _of_module(frame: CallFrame) -> bool:
    owner = frame.func.owner
    return owner is not None and is_module(Inst(owner, None))


def _has_backward(prefix: Stack, backs: list[Stack]) -> bool:
    node = prefix[-1].node
    loaders = prefix[-1].loaders if isinstance(prefix[-1], LoopFrame) else frozenset()
    for stack in backs:
        for frame in stack:
            if (
                frame.node is node
                and isinstance(frame, LoopFrame)
                and (not loaders or not frame.loaders or frame.loaders & loaders)
            ):
                return True
    return False


def _blind(stack: Stack, backs: list[Stack]) -> bool:
    """Whether a backward of something that is not known runs in a loop or function around this place."""
    return any(
        inside(b, f.func.node if isinstance(f, CallFrame) else f.node) for f in stack for b in backs
    ) or any(not b for b in backs)


# ------------------------------------------------------------------------------------------------ what speaks against
def _hazard(script: Script, evaluation: Evaluation, region: Region) -> str:
    """What happens here that ``inference_mode`` does not bear, besides tensors that leave."""
    for site, _ in region.sites(
        script, *BACKWARDS, "torch.enable_grad", "torch.set_grad_enabled", ".requires_grad_"
    ):
        if site.kind != "torch.set_grad_enabled" or site.node is not evaluation.context:
            return f"{at(site.node)} computes gradients here"
    for site, occurrence in region.sites(script, "builtins.setattr"):
        if occurrence.args is not None and carries(occurrence.args.get(2, "value")):
            return f"setattr() keeps a tensor made here ({at(site.node)})"
    return (
        changed_module(script, evaluation, region)
        or _compiled(script, evaluation, region)
        or _foreign_model(evaluation)
        or _caches(script, region)
        or _shared_objects(script, region)
        or _cast_outside(evaluation, region)
    )


def _compiled(script: Script, evaluation: Evaluation, region: Region) -> str:
    if (graphs := records_graphs(script)) is not None:
        if not all(is_left_eager(script, o) for site in evaluation.forwards for o in site):
            return f"{at(graphs)} has torch record CUDA graphs, and under inference_mode none can be recorded for a training"
    for name in ("torch.compile", "torch.jit.script", "torch.jit.trace"):
        for site in script.calls(name):
            if name != "torch.compile" or not is_in_place(site.node):
                return (
                    f"{at(site.node)} compiles: {name}() and inference_mode do not go well together"
                )
    for site, _ in region.sites(script, ".compile"):
        return f"{at(site.node)} compiles a model"
    return ""


# Models of transformers that compute all they need anew in each pass: no tables of positions that grow.
_KEEPS_NOTHING = re.compile(
    r"transformers\.(models\.\w+\.\w+\.)?"
    r"(Bert|Roberta|XLMRoberta|Camembert|DistilBert|Albert|Electra|GPT2|OpenAIGPT|T5|Bart|MBart|ViT|DeiT)"
    r"(Model|PreTrainedModel|LMHeadModel|DoubleHeadsModel|For[A-Z])"
)


# Checkpoints of such models, which an AutoModel is made of.
_CHECKPOINTS = re.compile(
    r"([\w-]+/)?(bert-|roberta-|xlm-roberta|camembert|distilbert|distilroberta|albert-|electra-|gpt2|distilgpt2|t5-|bart-|vit-|deit-)"
)


def _keeps_nothing(thing: Ext) -> bool:
    if thing.name.startswith("transformers.AutoModel"):
        checkpoint = const(thing.args.get(0, "pretrained_model_name_or_path"))
        return isinstance(checkpoint, str) and _CHECKPOINTS.match(checkpoint) is not None
    return _KEEPS_NOTHING.match(thing.name) is not None


def _foreign_model(evaluation: Evaluation) -> str:
    """A model of a library that keeps tables which it computes when they are first needed, or one that is not known."""
    for site in evaluation.forwards:
        for occurrence in site:
            for thing in _inner(occurrence.this):
                if (
                    isinstance(thing, Ext)
                    and not thing.name.startswith(("torch.nn.", "torchvision.", "timm.", *WRAPPERS))
                    and not is_of_model_library(thing.name)
                    and not _keeps_nothing(thing)
                ):
                    return f"{thing.name} may keep tensors that it computes here ({at(site.node)})"
                if not isinstance(thing, (Ext, Inst)):
                    return f"the model of {at(site.node)} is not known"
    return ""


AVERAGED = "torch.optim.swa_utils.AveragedModel"  # calls a copy of the model


def _inner(thing: Thing | None) -> list[Thing]:
    if isinstance(thing, Ext) and thing.name in (*WRAPPERS, AVERAGED):
        return [
            x for t in thing.args.get(0, "module") | thing.args.get(0, "model") for x in _inner(t)
        ]
    return [thing] if thing is not None else []


def _caches(script: Script, region: Region) -> str:
    """Results that are remembered: by ``lru_cache``, or by a dataset that is read in this process."""
    for frame in region.calls(script):
        for decorator in frame.func.decorators:
            if any(getattr(t, "name", "") in REMEMBERS for t in decorator):
                return f"{frame.func.name}() remembers its results, which may be tensors made here ({at(frame.node)})"
    read = {
        x
        for _, o in region.sites(script, "iterate")
        for x in getattr(o.stack[-1] if o.stack else None, "loaders", ())
    }
    read |= {x for _, o in region.sites(script, "next") for x in o.data.get("loaders", ())}
    for loader in script.loaders:
        if any(t in read for t in loader.things):
            for dataset in loader.datasets:
                if dataset.writes:
                    return f"the dataset {dataset.name} keeps what it makes here ({dataset.writes[0]}), also for training"
    return ""


def _shared_objects(script: Script, region: Region) -> str:
    """A library's object (a metric) that gets tensors here, and is used outside as well: its state is changed in place there."""
    for _, site in script.log.each():
        for occurrence in site:
            thing = occurrence.this
            if (
                not isinstance(thing, (Ext, Ref, Unknown))
                or occurrence.args is None
                or not region.meets(site, occurrence)
            ):
                continue
            if isinstance(thing, Ref) and thing.name.split(".")[0] in HARMLESS:
                continue
            if isinstance(thing, Ext) and (
                thing.name.startswith(SHOWS) or is_module(thing) or "over" in thing.attrs
            ):
                continue
            given = [g.values for g in occurrence.args.every]
            if not tensors_in(*given):
                continue
            if isinstance(thing, Ref):
                return f"{at(site.node)} gives a tensor to {thing.name}(), which is not known"
            if isinstance(thing, Unknown):
                # There it is another form of the model.
                if script.log.at("forward", site.node) is None:
                    return f"{at(site.node)} gives a tensor to something that is not known: {thing.why}"
            elif any(
                o.this is thing and not region.meets(s, o)
                for (k, _), s in script.log.each()
                for o in s
                if k != "new"
            ):
                return f"{thing.name} gets tensors on {at(site.node)}, and is used elsewhere too"
    return ""


def _cast_outside(evaluation: Evaluation, region: Region) -> str:
    """The cast weights that autocast keeps until its block ends would be used by a training pass in the same block."""
    for site in evaluation.forwards:
        for occurrence in (
            site if region.holds(site.node) else [o for o in site if region.reaches(o.stack)]
        ):
            for frame in occurrence.stack:
                if frame.node is evaluation.node or region.holds(frame.node):
                    break
                if isinstance(frame, WithFrame) and any(
                    is_autocast(found) for _, found in frame.contexts
                ):
                    return f"the autocast block around it ({at(frame.node)}) keeps the weights that are cast here, also for training"
    return ""


def _needs_gradients(
    script: Script, evaluation: Evaluation, region: Region, training: _Training
) -> str:
    """Why gradients must not be switched off here, where they are on now."""
    if region.yields:
        return YIELDS
    users = (
        *BACKWARDS,
        "torch.enable_grad",
        "torch.set_grad_enabled",
        ".requires_grad_",
        "torch.func.grad",
        ".step",
    )
    for site, _ in region.sites(script, *users):
        if site.kind != ".step" or evaluation.kind != "statement":
            return f"{at(site.node)} uses gradients"
    for site, occurrence in region.sites(script, "call_unknown"):
        if occurrence.args is not None and _trainable(occurrence.args):
            why = occurrence.this.why if isinstance(occurrence.this, Unknown) else ""
            return f"{at(site.node)} calls something that is not known: {why}"
    for site, occurrence in region.sites(script, "forward"):
        trained = site.node in training.passes and not evaluation.shared
        if occurrence.data["outer"] and trained:
            return f"the forward of {at(site.node)} is trained"
    for expr, result in _results(script, region) if not evaluation.shared else ():
        if any(t.grad and (not t.passes or t.passes & training.passes) for t in tensors_in(result)):
            return f"`{ast.unparse(expr)}` ({at(expr)}) may carry a gradient that is needed later"
    if why := memory_trial(script, evaluation, region):
        return why
    if any(True for _ in region.sites(script, "grad_read", ".retain_grad", ".register_hook")):
        return "it reads gradients"
    if node := _looks_at_graph(script, evaluation, region):
        return f"{at(node)} looks at the gradient of what is computed here"
    return _cast_outside(evaluation, region)


def _looks_at_graph(script: Script, evaluation: Evaluation, region: Region) -> ast.AST | None:
    """A place that asks a result of these forwards (or anything in them) whether it carries a gradient, or for its graph."""
    for site, _ in region.sites(script, "torch.is_grad_enabled"):
        return site.node
    forwards = {id(s.node) for s in evaluation.forwards}
    for node in script.nodes:
        if (
            isinstance(node, ast.Attribute)
            and node.attr in GRAPH
            and isinstance(node.ctx, ast.Load)
        ):
            receiver: ast.expr = node.value
        elif (
            isinstance(node, ast.Call)
            and len(node.args) > 1
            and isinstance(node.args[1], ast.Constant)
            and node.args[1].value in GRAPH
        ):
            receiver = node.args[0]  # getattr(x, "requires_grad")
        else:
            continue
        found = script.values(receiver)
        if any(id(p) in forwards for t in found if isinstance(t, Tensor) for p in t.passes):
            return node
        switched = getattr(node, "attr", "") == "requires_grad_"  # of a tensor, that is an event
        if any(
            isinstance(t, Unknown) or (isinstance(t, Tensor) and not (t.param or switched))
            for t in found
        ):
            if region.holds(node) or _runs_in(script, function_of(node), region):
                return node
    return None


def _runs_in(script: Script, function: ast.AST, region: Region) -> bool:
    """Whether the function is called from the region, at any depth."""
    return any(
        isinstance(f, CallFrame) and f.func.node is function
        for _, site in script.log.each()
        for o in site
        for f in region.below(o.stack)
    )


def _trainable(args: Arguments) -> bool:
    """Whether something that can be trained with is among the arguments."""
    given = [g.values for g in args.every]
    return any(t.grad for t in tensors_in(*given)) or any(
        is_module(t) or is_optimizer(t) for v in given for t in v
    )


def _results(script: Script, region: Region) -> Iterator[tuple[ast.expr, Values]]:
    """What the region computes and may hand on: to variables, objects, containers and callers."""
    for statement in region.statements:
        for part in ast.walk(statement):
            here = (
                not region.whole
                if isinstance(part, ast.Assign)
                else isinstance(part, ast.Return) and function_of(part) is region.scope
            )
            if here and isinstance(part, (ast.Assign, ast.Return)) and part.value is not None:
                yield part.value, script.values(part.value)
    for site, occurrence in region.sites(
        script, "set_attribute", "set_elsewhere", "append", "set_item", "augment"
    ):
        if isinstance(site.node, (ast.expr, ast.AugAssign)) and not ends_with_call(
            site.node, region
        ):
            yield (
                site.node.target if isinstance(site.node, ast.AugAssign) else site.node,
                occurrence.result,
            )
