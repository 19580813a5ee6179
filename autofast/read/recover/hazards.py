"""What speaks against switching gradients off around an evaluation, or against inference mode."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from autofast.flow.scopes import is_local
from autofast.model.contents import members, with_contents, wrapped_by
from autofast.model.events import Frame, WithFrame
from autofast.model.kinds import grad_mode_of, is_autocast, is_module, is_optimizer, remembers
from autofast.model.names import WRAPPERS, first_part, is_of_model_library
from autofast.model.roles import Evaluation
from autofast.model.script import Script
from autofast.model.several import any_in, wordset
from autofast.model.source import at, function_of, nodes_in
from autofast.model.syntax import is_read
from autofast.model.tensors import tensors_in
from autofast.model.values import (
    OBJECTS,
    Arguments,
    Ext,
    Inst,
    Ref,
    Tensor,
    Thing,
    Unknown,
    Values,
    Where,
    const,
    is_named,
    names_of,
)
from autofast.read.recover.backward_needs import Wanted
from autofast.read.recover.compiled import is_in_place, is_left_eager, records_graphs
from autofast.read.recover.escapes import YIELDS, ends_with_call
from autofast.read.recover.leaks import carries_tensor, forward_hooks
from autofast.read.recover.memory_trials import memory_trial
from autofast.read.recover.models import leaves_out_padding
from autofast.read.recover.module_changes import changed_module
from autofast.read.recover.region import Region
from autofast.read.recover.shared_passes import is_only_looked_at
from autofast.read.recover.trained import BACKWARDS, HARMLESS, Training, is_entered

# fmt: off
SHOWS = tuple("""torch. tqdm. wandb. tensorboard visdom. matplotlib. PIL. logging. builtins. argparse. time.
    accelerate. contextlib.""".split())
GRAPH = wordset("""requires_grad grad_fn is_leaf grad retains_grad retain_grad register_hook requires_grad_
    output_nr register_post_accumulate_grad_hook is_inference _version""")
# fmt: on
# fmt: on
AVERAGED = "torch.optim.swa_utils.AveragedModel"  # calls a copy of the model


def hazard(script: Script, evaluation: Evaluation, region: Region) -> str:
    """What happens here that ``inference_mode`` does not bear, besides tensors that leave."""
    for site, _ in region.sites(
        script, *BACKWARDS, "torch.enable_grad", "torch.set_grad_enabled", ".requires_grad_"
    ):
        if site.kind != "torch.set_grad_enabled" or site.node is not evaluation.context:
            return f"{at(site)} computes gradients here"
    for site, occurrence in region.sites(script, "builtins.setattr"):
        if carries_tensor(occurrence.args.get(2, "value")):
            return f"setattr() keeps a tensor made here ({at(site)})"
    return (
        changed_module(script, evaluation, region)
        or _compiled(script, evaluation, region)
        or _foreign_model(evaluation)
        or _caches(script, region)
        or _shared_objects(script, region)
        or _cast_outside(script, evaluation, region)
    )


def _compiled(script: Script, evaluation: Evaluation, region: Region) -> str:
    if (graphs := records_graphs(script)) is not None:
        if not all(is_left_eager(script, o) for site in evaluation.forwards for o in site):
            return f"{at(graphs)} has torch record CUDA graphs, and under inference_mode none can be recorded for a training"
    for name in ("torch.compile", "torch.jit.script", "torch.jit.trace"):
        for site in script.calls(name):
            if name != "torch.compile" or not is_in_place(site.node):
                return f"{at(site)} compiles: {name}() and inference_mode do not go well together"
    for site, _ in region.sites(script, ".compile"):
        return f"{at(site)} compiles a model"
    return ""


# Models of transformers that compute all they need anew in each pass: no tables of positions that
# grow.
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
    """A model of a library that keeps tables which it computes when they are first needed, or one
    that is not known.
    """
    for site in evaluation.forwards:
        for occurrence in site:
            for thing in _inner(occurrence.this):
                if (
                    isinstance(thing, Ext)
                    and not thing.name.startswith(("torch.nn.", "torchvision.", "timm.", *WRAPPERS))
                    and not is_of_model_library(thing.name)
                    and not _keeps_nothing(thing)
                ):
                    return f"{thing.name} may keep tensors that it computes here ({at(site)})"
                if not isinstance(thing, OBJECTS):
                    return f"the model of {at(site)} is not known"
    return ""


def _inner(thing: Thing | None) -> list[Thing]:
    if is_named(thing, Ext, (*WRAPPERS, AVERAGED)):
        return [x for t in wrapped_by(thing) for x in _inner(t)]
    return [thing] if thing is not None else []


def _ends_inference(decorator: Values) -> bool:
    """``@torch.inference_mode(False)``; gradients alone do not end it."""
    return grad_mode_of(decorator) == "on" and "torch.inference_mode" in names_of(decorator)


def _caches(script: Script, region: Region) -> str:
    """Results that are remembered: by ``lru_cache``, or by a dataset that is read in this
    process.
    """
    for frame in region.calls(script):
        name, decorators = frame.func.name, frame.func.decorators
        if remembers(frame.func) and not any(map(_ends_inference, decorators)):
            return f"{name}() remembers its results, which may be tensors made here ({at(frame)})"
    read = {
        x
        for _, o in region.sites(script, "iterate")
        for x in getattr(o.stack[-1] if o.stack else None, "loaders", ())
    }
    read |= {x for _, o in region.sites(script, "next") for x in o.data.get("loaders", ())}
    for loader in script.loaders:
        if any_in(loader.things, read):
            for dataset in loader.datasets:
                if dataset.writes:
                    return f"the dataset {dataset.name} keeps what it makes here ({dataset.writes[0]}), also for training"
    return ""


def _shared_objects(script: Script, region: Region) -> str:
    """A library's object (a metric) that gets tensors here, and is used outside as well: its state
    is changed in place there.
    """
    for _, site in script.log.each():
        for occurrence in site:
            thing = occurrence.this
            if not isinstance(thing, (Ext, Ref, Unknown)) or not region.meets(site, occurrence):
                continue
            if isinstance(thing, Ref) and first_part(thing.name) in HARMLESS:
                continue
            if isinstance(thing, Ext) and (
                thing.name.startswith(SHOWS) or is_module(thing) or "over" in thing.attrs
            ):
                continue
            if not tensors_in(*[g.values for g in occurrence.args.every]):
                continue
            if isinstance(thing, Ref):
                return f"{at(site)} gives a tensor to {thing.name}(), which is not known"
            if isinstance(thing, Unknown):
                # There it is another form of the model, or code that is looked at for itself.
                if script.log.at("forward", site.node) is None and not is_entered(script, site):
                    return f"{at(site)} gives a tensor to something that is not known: {thing.why}"
            elif any(
                o.this is thing and not region.meets(s, o)
                for (k, _), s in script.log.each()
                for o in s
                if k != "new"
            ):
                return f"{thing.name} gets tensors on {at(site)}, and is used elsewhere too"
    return ""


def _cast_outside(script: Script, evaluation: Evaluation, region: Region) -> str:
    """The cast weights that autocast keeps until its block ends would be used by a training pass in
    the same block.
    """
    for site in evaluation.forwards:
        for occurrence in (o for o in site if region.meets(site, o)):
            for frame in occurrence.stack:
                if frame.node is evaluation.node or region.holds(frame.node):
                    break
                if _casts(frame) and not _has_weights_alone(script, occurrence.this, region):
                    return f"the autocast block around it ({at(frame)}) keeps the weights that are cast here, also for training"
    return ""


def _casts(frame: Frame) -> bool:
    return isinstance(frame, WithFrame) and any(is_autocast(found) for _, found in frame.contexts)


def _has_weights_alone(script: Script, thing: Thing | None, region: Region) -> bool:
    """Whether no pass elsewhere, and no function under autocast, gets weights of a module of the
    project: a teacher that is made for itself, or is a deep copy of the student.
    """
    if not isinstance(thing, Inst) or not thing.args or script.calls("copy.copy"):
        return False
    mine = set(with_contents([thing], members))  # type: ignore[arg-type]
    for (kind, _), site in script.log.each():
        for o in site:
            if region.meets(site, o):
                continue
            if kind == "forward" and o.data["outer"]:
                if not isinstance(o.this, OBJECTS):
                    return False
                theirs = set(with_contents(site.owners, members))
                # the reader's copies have the layers of what they are made from
                twin = o.this.args is thing.args
                if thing in theirs or (not twin and any(map(is_module, theirs & mine))):
                    return False
            elif any(map(_casts, o.stack)) and any(t.param for t in tensors_in(*o.args.each)):
                return False
    return True


PADDING = "what is padded is zeros then (with enable_nested_tensor=False, they only round)"


def needs_gradients(
    script: Script, evaluation: Evaluation, region: Region, training: Training
) -> str:
    """Why gradients must not be switched off here, where they are on now."""
    if region.yields:
        return YIELDS
    for site in forward_hooks(script):
        return f"{at(site)} registers a hook, which may keep what passes through"
    users = (*BACKWARDS, "torch.enable_grad", "torch.set_grad_enabled")
    users += (".requires_grad_", "torch.func.grad", ".step")
    for site, _ in region.sites(script, *users):
        if site.kind != ".step" or evaluation.kind != "statement":
            return f"{at(site)} uses gradients"
    for site, occurrence in region.sites(script, "call_unknown"):
        if _trainable(occurrence.args) and not is_entered(script, site):
            why = occurrence.this.why if isinstance(occurrence.this, Unknown) else ""
            return f"{at(site)} calls something that is not known: {why}"
    for site, occurrence in region.sites(script, "forward"):
        trained = site.node in training.passes and not evaluation.shared
        # In a function that training calls, too, it is told below what comes of it here.
        trained = trained and region.holds(site.node)
        if occurrence.data["outer"] and trained:
            return f"the forward of {at(site)} is trained"
        if leaves_out_padding(occurrence.this):
            return f"{at(site)} runs an encoder, which takes other kernels without gradients: {PADDING}"
    for expr in _needed(script, region, training) if not evaluation.shared else ():
        return f"`{ast.unparse(expr)}` ({at(expr)}) may carry a gradient that is needed later"
    if why := memory_trial(script, evaluation, region):
        return why
    if any(True for _ in region.sites(script, "grad_read", ".retain_grad", ".register_hook")):
        return "it reads gradients"
    if node := _looks_at_graph(script, evaluation, region):
        return f"{at(node)} looks at the gradient of what is computed here"
    return _cast_outside(script, evaluation, region)


def _looks_at_graph(script: Script, evaluation: Evaluation, region: Region) -> Where:
    """A place that asks a result of these forwards (or anything in them) whether it carries a
    gradient, or for its graph.
    """
    for site, _ in region.sites(script, "torch.is_grad_enabled"):
        return site.node
    forwards = {s.node for s in evaluation.forwards}
    for node in script.nodes:
        if isinstance(node, ast.Attribute) and node.attr in GRAPH and is_read(node):
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
        if any(p in forwards for t in found if isinstance(t, Tensor) for p in t.passes):
            return node
        switched = getattr(node, "attr", "") == "requires_grad_"  # of a tensor, that is an event
        if any(
            isinstance(t, Unknown) or (isinstance(t, Tensor) and not (t.param or switched))
            for t in found
        ):
            function = function_of(node)
            if region.holds(node) or any(f.func.node is function for f in region.calls(script)):
                return node
    return None


def _trainable(args: Arguments) -> bool:
    """Whether something that can be trained with is among the arguments."""
    given = [g.values for g in args.every]
    return any(t.grad for t in tensors_in(*given)) or any(
        is_module(t) or is_optimizer(t) for v in given for t in v
    )


def _needed(script: Script, region: Region, training: Training) -> Iterator[ast.expr]:
    """What the region computes and hands on to a backward, perhaps: by variables, objects,
    containers, or to callers.
    """

    def carries_on(found: Values) -> bool:
        tensors = (t for t in tensors_in(found) if t.grad)
        return any(not t.passes or t.passes & training.passes for t in tensors)

    for statement in region.statements:
        assigned = [] if region.whole else [n.value for n in nodes_in(statement, ast.Assign)]
        ends = [n for n in nodes_in(statement, ast.Return) if function_of(n) is region.scope]
        for value in (*assigned, *(n.value for n in ends if n.value is not None)):
            if carries_on(script.values(value)) and Wanted(script).follow(value, ()):
                yield value
    for site, occurrence in region.sites(
        script, "set_attribute", "set_elsewhere", "append", "set_item", "augment"
    ):
        node = site.node.target if isinstance(site.node, ast.AugAssign) else site.node
        if isinstance(site.node, ast.AugAssign) and isinstance(node, ast.Name) and is_local(node):
            if not Wanted(script).follow(site.node.value, ()):
                continue
        if isinstance(node, ast.expr) and not ends_with_call(site.node, region):
            if carries_on(occurrence.result) and not is_only_looked_at(
                script, site, training.all + training.handed_out, region
            ):
                yield node
