"""What fused= needs, and why an optimizer must stay as it is; also one whose class a file with
settings says: ``getattr(torch.optim, settings["type"])``.

The momentum of SGD: it makes a buffer at a parameter's first gradient. The fused kernel (torch
2.13) makes all of them in its first step, and does not set them where a GradScaler skips that step:
they hold what was in memory, and the next step takes them for momentum. Whether a scaler is enabled
only on some machines (fp16 where there is no bf16) makes no difference there. And it takes all of
them or none, so that a parameter which gets its first gradient later is an error. What a plain
``fused=True`` cannot do stays as it is.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import Edit
from autofast.facts.gradients import comes_late
from autofast.facts.optimizers import (
    FUSED,
    SINCE,
    has_momentum,
    left_on_host,
    sparse_gradients,
)
from autofast.facts.settings import setting_place, settings_place
from autofast.flow.callgraph import CallGraph
from autofast.flow.program import definitions_at, function_around
from autofast.flow.scopes import mentions
from autofast.model import disk
from autofast.model.calls import arguments_of, literal_of
from autofast.model.events import CallFrame, Occurrence
from autofast.model.kinds import is_module, is_scaler
from autofast.model.names import ANY_OPTIMIZER
from autofast.model.roles import Optimizer
from autofast.model.script import Script
from autofast.model.several import any_in, wordset
from autofast.model.source import at, nodes_in, statement_of
from autofast.model.syntax import is_attribute, is_read
from autofast.model.tensors import dtype_of, tensors_in
from autofast.model.values import (
    COLLECTIONS,
    Arguments,
    Const,
    Dict,
    Ext,
    Ref,
    Setting,
    Tensor,
    Values,
    are_parameters,
    const,
    consts,
    is_named,
)
from autofast.rule import Finding
from autofast.write.arguments import Home, place_for_argument
from autofast.write.cuda_flag import enabled_where_cuda
from autofast.write.spelling import cuda_test, named_devices

# ----------------------------------------------------------------------- classes that settings name
# Not SGD: its momentum and a GradScaler do not go together with it.
PLAIN = tuple(name for name in FUSED if name != "SGD")
TORCH = Ref("torch.optim")


def named_in_settings(script: Script) -> Iterator[Finding]:
    """Advice to set ``fused`` beside the other arguments of an optimizer in the file."""
    if script.torch.rules_out(SINCE) or sparse_gradients(script):
        return
    chosen = [o for o in script.optimizers if o.name == "Optimizer"]
    handed_on = any(settings_place(o.args) for o in chosen)
    seen: set[tuple[str, int]] = set()
    for site in script.log.of("builtins.getattr"):
        for occurrence in site:
            for said in occurrence.args.get(1, "name"):
                if not isinstance(said, Setting) or said.value not in PLAIN:
                    continue
                if TORCH not in occurrence.args.get(0, "object") or (said.file, said.line) in seen:
                    continue
                seen.add((said.file, said.line))
                if handed_on:
                    todo = f"set fused to true among the arguments of {setting_place(said)}"
                else:
                    todo = f"pass fused=True with {said.value} ({setting_place(said)})"
                yield Finding(
                    _asked(script, occurrence, site.node),
                    f"runs the update of {said.value} as many small kernels",
                    advice=f"{todo}, if all parameters are on the GPU",
                )


def _asked(script: Script, occurrence: Occurrence, node: ast.AST) -> ast.AST:
    """The outermost call on the way that hands on ``torch.optim``: where the script asks for the
    optimizer.
    """
    for frame in occurrence.stack:
        match frame:
            case CallFrame(node=ast.Call() as call):
                if any(script.values(part) == {TORCH} for part in arguments_of(call)):
                    return call
    return node


# ------------------------------------------------------------------------ the momentum of fused SGD
FRAMEWORKS = ("accelerate", "lightning", "fabric", "hf-trainer", "apex")
SPOILT = "in steps that a GradScaler skips, fused SGD spoils its momentum"


def against_momentum(script: Script, optimizer: Optimizer, *, scaled: bool) -> str:
    """Why fused SGD could not start its momentum; empty where it can. ``scaled``: mixed precision
    may bring a GradScaler.
    """
    if not has_momentum(script, optimizer):
        return ""
    return _skipped(script, scaled) or _late(script, optimizer)


def _is_off(made: Occurrence) -> bool:
    """A scaler that is made to do nothing, such as the default of a parameter."""
    return const(made.args.get(-1, "enabled")) is False


def _skipped(script: Script, scaled: bool) -> str:
    """A GradScaler that may skip the first step, in words."""
    for site in script.log.of("new"):
        if any(is_scaler(o.this) and not _is_off(o) for o in site):
            return (
                f"in steps that the GradScaler of {at(site)} skips, fused SGD spoils its momentum"
            )
    for framework in (f for f in script.frameworks if f in FRAMEWORKS):
        return f"{framework} may scale the loss, and {SPOILT}"
    if scaled:
        return f"mixed precision needs a GradScaler on GPUs without bf16, and {SPOILT}: with --precision bf16 there is none"
    return ""


def _late(script: Script, optimizer: Optimizer) -> str:
    """A parameter that may get its first gradient later than others, in words."""
    models = optimizer.params or [
        m for step in script.steps if any_in(optimizer.updates, step.updates) for m in step.models
    ]
    why = comes_late(script, models)
    return f"{why}: fused SGD with momentum is an error then" if why else ""


OTHERS = wordset("mps xpu")


# Of Lightning.
NOT_MIXED = frozenset([32, 64, "32", "64", "32-true", "64-true", "16-true", "bf16-true"])


COMPLEX = wordset(
    "cfloat cdouble chalf complex32 complex64 complex128 complex view_as_complex polar"
)


def fused_edits(
    script: Script, home: Home, optimizer: Optimizer, target: str, unless: str = ""
) -> Iterator[Edit]:
    """``fused=True``, which CPUs and GPUs take, CPUs since torch 2.4: the script's own flag for
    CUDA where it may run without, and nothing says that it has one.

    Other accelerators got the kernels later: a script that may run on one says where it wants them,
    and never False, with which torch takes the loop over single parameters instead of the foreach
    kernels there. ``unless``: an expression that must be true.
    """
    if unless:
        yield home.set("fused", f"True if {unless} else None")
        return
    if not OTHERS & named_devices(script):
        new = target == "cpu" or script.frameworks or script.torch.is_at_least(SINCE)
        place = statement_of(home.node)
        asked = enabled_where_cuda(script, place, optimizer.params)
        test, imports = ("", ()) if new else asked
        yield from imports
        yield home.set("fused", test or "True")
        return
    test, imports = cuda_test(script, home.node)
    yield from imports
    yield home.set(
        "fused", f"{test} or None" if test.endswith("()") else f"True if {test} else None"
    )


def is_exact(optimizer: Optimizer) -> bool:
    """One of torch's own classes: a subclass may do anything in its step. :func:`fused_home` says
    whether it may be another.
    """
    own = (f"torch.optim.{optimizer.name}", ANY_OPTIMIZER)
    return optimizer.name in FUSED and all(is_named(t, Ext, own) for t in optimizer.things)


def fused_home(script: Script, optimizer: Optimizer, calls: list[ast.Call]) -> Home | str:
    """Where ``fused=`` goes; or why nowhere. In a class or function that is given the optimizer's
    class, it goes where that is named.
    """
    name = optimizer.node.func
    if not isinstance(name, ast.Name):
        return _only_those(script, optimizer) or place_for_argument(
            script, optimizer.args, "fused", calls
        )
    parameter = next((d for d in definitions_at(script, name) if d.is_parameter), None)
    if parameter is None:
        return _only_those(script, optimizer) or place_for_argument(
            script, optimizer.args, "fused", calls
        )
    function = function_around(parameter.node)
    assert not isinstance(function, ast.Module)
    given = script.analysis(CallGraph).arguments(function, parameter.name)
    if len(given) != 1 or not _passes_on(function, optimizer.node):
        where = f" ({at(given[0][0])})" if given else ""
        return f"`{name.id}` is whichever class is given{where}, and not all take fused="
    call, named = given[0]
    if named is None or script.values(named) != {Ref(f"torch.optim.{optimizer.name}")}:
        return f"`{name.id}` is chosen when it runs ({at(call)}), and not all take fused="
    return Home(call, None, (call,))


def _only_those(script: Script, optimizer: Optimizer) -> str:
    """A class that the call may make besides those that take ``fused=``, in words."""
    others = [
        t
        for t in script.called(optimizer.node)
        if not is_named(t, Ref, {f"torch.optim.{n}" for n in FUSED})
    ]
    return "its class is chosen when it runs, and not all take fused=" if others else ""


def _passes_on(function: ast.AST, call: ast.Call) -> bool:
    """Whether the ``**kwargs`` of a function go into the call, and nowhere else."""
    if not isinstance(function, ast.FunctionDef) or function.args.kwarg is None:
        return False
    rest = function.args.kwarg.arg
    used = [n for n in mentions(function, rest) if is_read(n)]
    spread = [k.value for k in call.keywords if k.arg is None]
    return len(used) == 1 and len(spread) == 1 and spread[0] is used[0]


def is_decided(args: Arguments) -> bool:
    """The script chooses the implementation itself."""
    return any(
        name in args.named and args.named[name].values != {Const(None)}
        for name in ("fused", "foreach")
    )


def why_not_fused(script: Script, optimizer: Optimizer, *, without_apex: bool) -> str:
    """Why this optimizer must stay as it is; empty where nothing speaks against."""
    for name in ("capturable", "differentiable"):
        if name in optimizer.args.named and const(optimizer.args.named[name].values) is not False:
            return f"it is given {name}=, with which it is not combined here"
    for site in script.methods("share_memory"):
        return f"the model is shared between processes ({at(site)}), which update it without locks"
    for framework in ("apex", "deepspeed"):
        if framework in script.frameworks and not (framework == "apex" and without_apex):
            return f"{framework} changes the optimizer ({at(script.frameworks[framework])})"
    for site in script.log.setting(optimizer.things, "step"):
        return f"its step() is replaced on {at(site)}"
    for site in script.methods("register_step_pre_hook", "register_step_post_hook"):
        if any(o.this in optimizer.things for o in site):
            return f"its hooks ({at(site)}) would run in steps that a GradScaler skips, too"
    if host := left_on_host(script, optimizer):
        return f"the module of {host} stays on the host, where its part is updated: move it to the device first"
    return sparse_gradients(script) or _complex(script, optimizer) or _lightning_clips(script)


def _complex(script: Script, optimizer: Optimizer) -> str:
    """A parameter that is complex: made so, given to the optimizer, of a layer or a model of that
    dtype.
    """
    for site in script.calls("torch.nn.Parameter"):
        if any(_is_complex(site.node, o) for o in site):
            return f"the parameter of {at(site)} is complex, which no fused kernel takes"
    given = optimizer.args.get(0, "params")
    for site in script.methods("add_param_group"):
        given |= frozenset().union(*(g.values for o in site for g in o.args.every))
    if any(t.dtype == "complex" for t in tensors_in(given)):
        return "a parameter of it is complex, which no fused kernel takes"
    for site in script.log.of("new", "move_model"):
        for occurrence in site:
            if is_module(occurrence.this) and any(
                dtype_of(t) == "complex" for t in occurrence.args.things
            ):
                return f"the parameters of {at(site)} are complex, which no fused kernel takes"
    if not _from_models(given):
        for node in script.nodes:
            if is_attribute(node, *COMPLEX) or isinstance(literal_of(node), complex):
                return f"what it updates is not all known, and {at(node)} makes complex tensors"
    return ""


def _is_complex(call: ast.AST, occurrence: Occurrence) -> bool:
    """The data of a parameter are complex, or computed with numbers that are."""
    if any(t.dtype == "complex" for t in tensors_in(occurrence.args.get(0, "data"))):
        return True
    return any(isinstance(n.value, complex) for n in nodes_in(call, ast.Constant))


def _from_models(given: Values) -> bool:
    """All that the optimizer gets are parameters of modules, as the modules give them."""
    parts = list(given)
    while parts:
        thing = parts.pop()
        if are_parameters(thing):
            continue
        if isinstance(thing, COLLECTIONS):
            held = thing.get("params") if isinstance(thing, Dict) else thing.any()
            if not held or (isinstance(thing, Dict) and thing.open):
                return False
            parts += held
        elif not (isinstance(thing, Tensor) and thing.param):
            return False
    return bool(given)


def _lightning_clips(script: Script) -> str:
    """In mixed precision, bfloat16 too, Lightning takes it for an error to clip the gradients of a
    fused optimizer.
    """
    why = "in mixed precision Lightning clips no gradients of fused optimizers"
    for trainer in script.trainers:
        clip = trainer.args.named.get("gradient_clip_val")
        precision = trainer.args.named.get("precision")
        values = consts(precision.values) if precision is not None else None
        if (
            trainer.framework == "lightning"
            and clip is not None
            and const(clip.values) not in (None, 0, 0.0)
        ):
            if values is None or not values <= NOT_MIXED:
                return f"{why} ({at(trainer)})"
        if trainer.framework == "lightning-cli" and (
            place := _configured(script, "gradient_clip_val")
        ):
            return f"{why} ({place})"
    for site in script.calls("lightning.Trainer.from_argparse_args"):
        return f"{why}, and its command line may ask for both ({at(site)})"
    if any(t.framework.startswith("lightning") for t in script.trainers):
        for site in script.methods("clip_gradients"):
            return f"{why} ({at(site)})"
    if any(t.framework == "fabric" for t in script.trainers):
        for site in script.methods("clip_gradients"):
            return f"in fp16 Fabric clips no gradients of fused optimizers ({at(site)})"
    return ""


def _configured(script: Script, word: str) -> str:
    """Where the defaults or the configuration files of a LightningCLI name an argument of its
    Trainer.
    """
    for node in script.each(ast.Constant):
        if isinstance(node.value, str) and node.value.removeprefix("trainer.") == word:
            return f"{at(node)}"
    folder = script.entry.path.parent
    for path in sorted(
        p for pattern in ("*.yaml", "*.yml", "conf*/*.yaml") for p in disk.matching(folder, pattern)
    ):
        try:
            if word in disk.text(path):
                return path.name
        except OSError:
            continue
    return ""
