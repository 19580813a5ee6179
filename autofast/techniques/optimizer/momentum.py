"""The momentum of fused SGD: where its buffers come into being at the wrong time, and how they are made beforehand.

SGD makes a buffer at a parameter's first gradient. The fused kernel (torch 2.13) makes all of them in its first step, and does not set
them where a GradScaler skips that step; and it takes all of them or none, so that a parameter which gets its first gradient later is an
error. Neither can happen to buffers that exist before the step, and for SGD without dampening a buffer of zeros is as good as none. They
are made in a hook that runs before each step, for parameters that have a gradient and no buffer: whatever happened to the parameters or to
the state since the last step (moved, cast, replaced, loaded, groups added), it finds them as SGD itself would.
"""

from __future__ import annotations

import ast

from autofast.edit.edits import After, Edit, Helper
from autofast.edit.order import Rank
from autofast.facts.gradients import comes_late
from autofast.facts.parts import held_by
from autofast.flow.positions import index
from autofast.model.events import Occurrence
from autofast.model.kinds import is_scaler
from autofast.model.script import Optimizer, Script
from autofast.model.source import block_of, line_of, parent_of, source_of, statement_of
from autofast.model.values import Const, const
from autofast.rule import Options
from autofast.write.half_dtype import only_without_bf16
from autofast.write.spelling import torch_in

FRAMEWORKS = ("accelerate", "lightning", "fabric", "hf-trainer", "apex")
FROM_ZERO = '''def {name}(optimizer):
    """Have momentum start at zero: fused SGD cannot start it in a step that a GradScaler skips, or for one parameter at a time."""

    def start(optimizer, args, kwargs):
        for group in optimizer.param_groups:
            for parameter in group["params"] if group["momentum"] else []:
                if parameter.grad is not None and optimizer.state[parameter].get("momentum_buffer") is None:
                    optimizer.state[parameter]["momentum_buffer"] = {torch}.zeros_like(parameter)

    optimizer.register_step_pre_hook(start)
'''
COPIES = (
    "copy.deepcopy",
    "copy.copy",
    "pickle.dump",
    "pickle.dumps",
    "torch.save",
)  # the copy of an optimizer has no hooks


def has_momentum(script: Script, optimizer: Optimizer) -> bool:
    """SGD, unless it is certain that no group of it has momentum."""
    args = optimizer.args
    if optimizer.name != "SGD":
        return False
    if args.open or not args.get(2, "momentum") <= {Const(0), Const(0.0)}:
        return True
    return _is_said(script, "momentum")


def starts(
    script: Script, optimizer: Optimizer, options: Options, *, parallel_goes: bool
) -> tuple[Edit, ...] | str:
    """What lets momentum start at zero where fused SGD could not start it by itself, nothing where it can; a reason where neither holds."""
    if not has_momentum(script, optimizer):
        return ()
    trouble = _trouble(script, optimizer, options)
    late = "" if trouble else _late(script, optimizer)
    if not trouble and not late:
        return ()
    why = _against(script, optimizer, parallel_goes)
    return f"{trouble or late}, and {why}" if why else _edits(optimizer)


# ------------------------------------------------------------------------------------------------ what it cannot do by itself
def _is_off(made: Occurrence) -> bool:
    """A scaler that is made to do nothing, such as the default of a parameter."""
    return made.args is not None and const(made.args.get(-1, "enabled")) is False


def _trouble(script: Script, optimizer: Optimizer, options: Options) -> str:
    """A GradScaler that may skip the first step, in words."""
    for site in script.log.of("new"):
        scalers = [o for o in site if o.this is not None and is_scaler(o.this) and not _is_off(o)]
        portable = (
            options.target == "cuda"
            and options.precision == "auto"
            and all(only_without_bf16(script, o.args) for o in scalers)
        )
        if scalers and not portable:
            return f"in steps that the GradScaler of line {line_of(site.node)} skips, fused SGD spoils its momentum"
    if framework := next((f for f in script.frameworks if f in FRAMEWORKS), ""):
        return f"{framework} may scale the loss, and in steps that a GradScaler skips, fused SGD spoils its momentum"
    if options.precision == "fp16" or (
        options.target == "cuda" and script.calls("torch.nn.DataParallel")
    ):
        return "with fp16 there may be a GradScaler, and in steps that it skips, fused SGD spoils its momentum"
    return ""


def _late(script: Script, optimizer: Optimizer) -> str:
    """A parameter that may get its first gradient later than others, in words."""
    models = optimizer.params or [
        m
        for step in script.steps
        if any(u in step.updates for u in optimizer.updates)
        for m in step.models
    ]
    why = comes_late(script, models)
    return f"{why}: fused SGD with momentum is an error then" if why else ""


# ------------------------------------------------------------------------------------------------ whether it can start at zero
def _against(script: Script, optimizer: Optimizer, parallel_goes: bool) -> str:
    """Why buffers cannot be made, filled with zeros, before the steps of the optimizer."""
    args = optimizer.args
    if (
        args.open
        or not args.get(3, "dampening") <= {Const(0), Const(0.0)}
        or _is_said(script, "dampening")
    ):
        return "with dampening, its momentum cannot start at zero"
    if any(f in FRAMEWORKS for f in script.frameworks):
        return "the framework may take another optimizer in its place"
    if parallel_goes:
        return "DataParallel, for which it would be, goes"
    if _is_said(script, "momentum_buffer") or any(
        _reads_state(script, optimizer, s.tree) for s in script.sources
    ):
        return "the script handles the optimizer's state itself"
    if any(u.closure for u in optimizer.updates):
        return "its steps compute the gradients themselves, with a closure"
    for site in script.calls(*COPIES):
        given = held_by(
            *(t for o in site if o.args is not None for g in o.args.positional for t in g.values)
        )
        if any(id(t) in given for t in optimizer.things):
            return f"the optimizer is copied on line {line_of(site.node)}"
    if _target(optimizer) is None:
        return "its momentum could only start at zero where the optimizer is put into a variable of its own"
    return ""


def _reads_state(script: Script, optimizer: Optimizer, tree: ast.AST) -> bool:
    return any(
        isinstance(n, ast.Attribute)
        and n.attr in ("state", "__init__", "__setstate__")
        and any(t in optimizer.things for t in script.values(n.value))
        for n in ast.walk(tree)
    )


def _is_said(script: Script, word: str) -> bool:
    """A constant, or a keyword of ``dict`` or ``update``, that may be the key of a parameter group or of a state."""
    for node in (n for source in script.sources for n in ast.walk(source.tree)):
        if isinstance(node, ast.Constant) and node.value == word:
            return True
        if isinstance(node, ast.Call) and any(k.arg == word for k in node.keywords):
            if getattr(node.func, "attr", getattr(node.func, "id", "")) in ("dict", "update"):
                return True
    return False


def _target(optimizer: Optimizer) -> ast.expr | None:
    """``optimizer`` in ``optimizer = SGD(...)``."""
    match parent_of(optimizer.node):
        case (
            ast.Assign(targets=[ast.Name() | ast.Attribute() as target])
            | ast.AnnAssign(target=ast.Name() | ast.Attribute() as target)
        ):
            return target
    return None


# ------------------------------------------------------------------------------------------------ edits
def _edits(optimizer: Optimizer) -> tuple[Edit, ...]:
    target, statement = _target(optimizer), statement_of(optimizer.node)
    assert target is not None
    source = source_of(statement)
    torch, imports = torch_in(source)
    name = source.fresh("momentum_from_zero")
    code = f"{name}({source.segment(target)})"
    return (
        *imports,
        Helper(source, name, FROM_ZERO.format(name=name, torch=torch)),
        After(_below_scaler(statement), code, rank=Rank.STEP),
    )


def _below_scaler(statement: ast.stmt) -> ast.stmt:
    """It stands below a scaler that is made beside the optimizer, whichever of them is written first."""
    rest = block_of(statement)[index(block_of(statement), statement) + 1 :]
    made = (
        rest
        and isinstance(rest[0], ast.Assign)
        and ".amp.GradScaler(" in source_of(statement).segment(rest[0])
    )
    return rest[0] if made else statement
