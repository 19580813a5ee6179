"""The momentum of fused SGD: where its buffers come into being at the wrong time, and how they are made beforehand.

SGD makes a buffer at a parameter's first gradient. The fused kernel (torch 2.13) makes all of them in its first step, and does not set
them where a GradScaler skips that step; and it takes all of them or none, so that a parameter which gets its first gradient later is an
error. Neither can happen to buffers that exist from the start, and for SGD without dampening a buffer of zeros is as good as none.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edits import After, Edit, Helper
from autofast.finding import Options
from autofast.order import Rank
from autofast.read.build import unwrapped
from autofast.read.events import Occurrence, Stack
from autofast.read.kinds import is_loss, is_scaler
from autofast.read.source import block_of, parent_of, source_of, statement_of
from autofast.read.values import Const, Unknown
from autofast.script import Optimizer, Script

from ._amp import only_without_bf16
from ._gradients import comes_late
from ._parts import parts_of
from ._places import happens_in, index, nodes_of, shared
from ._torch import torch_in

FRAMEWORKS = ("accelerate", "lightning", "fabric", "hf-trainer", "apex")
FROM_ZERO = '''def {name}(optimizer):
    """Start all momentum at zero: fused SGD cannot start it in a step that a GradScaler skips, or for one parameter at a time."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if optimizer.state[parameter].get("momentum_buffer") is None:
                optimizer.state[parameter]["momentum_buffer"] = {torch}.zeros_like(parameter)
'''


def has_momentum(script: Script, optimizer: Optimizer) -> bool:
    """SGD, unless it is certain that no group of it has momentum."""
    args = optimizer.args
    if optimizer.name != "SGD":
        return False
    if args.open or not args.get(2, "momentum") <= {Const(0), Const(0.0)}:
        return True
    return _is_said(script, "momentum")


def starts(script: Script, optimizer: Optimizer, options: Options) -> tuple[Edit, ...] | str:
    """What lets momentum start at zero where fused SGD could not start it by itself, nothing where it can; a reason where neither holds."""
    if not has_momentum(script, optimizer):
        return ()
    trouble = _trouble(script, optimizer, options)
    late = "" if trouble else _late(script, optimizer)
    if not trouble and not late:
        return ()
    place = _against(script, optimizer, options) or _place(script, optimizer, bool(late))
    return f"{trouble or late}, and {place}" if isinstance(place, str) else _edits(optimizer, place)


# ------------------------------------------------------------------------------------------------ what it cannot do by itself
def _trouble(script: Script, optimizer: Optimizer, options: Options) -> str:
    """A GradScaler that may skip the first step, in words."""
    for site in script.log.of("new"):
        scalers = [o for o in site if o.this is not None and is_scaler(o.this)]
        portable = options.target == "cuda" and options.precision == "auto" and all(only_without_bf16(script, o.args) for o in scalers)
        if scalers and not portable:
            return f"in steps that the GradScaler of line {_line(site.node)} skips, fused SGD spoils its momentum"
    if framework := next((f for f in script.frameworks if f in FRAMEWORKS), ""):
        return f"{framework} may scale the loss, and in steps that a GradScaler skips, fused SGD spoils its momentum"
    if options.precision == "fp16" or (options.target == "cuda" and script.calls("torch.nn.DataParallel")):
        return "with fp16 there may be a GradScaler, and in steps that it skips, fused SGD spoils its momentum"
    return ""


def _late(script: Script, optimizer: Optimizer) -> str:
    """A parameter that may get its first gradient later than others, in words."""
    models = optimizer.params or [m for step in script.steps if any(u in step.updates for u in optimizer.updates) for m in step.models]
    why = comes_late(script, models)
    return f"{why}: fused SGD with momentum is an error then" if why else ""


# ------------------------------------------------------------------------------------------------ whether it can start at zero
def _against(script: Script, optimizer: Optimizer, options: Options) -> str:
    """Why buffers cannot be made, filled with zeros, where the optimizer is made."""
    args = optimizer.args
    if args.open or not args.get(3, "dampening") <= {Const(0), Const(0.0)} or _is_said(script, "dampening"):
        return "with dampening, its momentum cannot start at zero"
    if any(f in FRAMEWORKS for f in script.frameworks):
        return "the framework may move the parameters after the optimizer is made"
    if "dataparallel-to-ddp" in options.asked:
        return "DataParallel, for which it would be, goes"
    if _is_said(script, "momentum_buffer") or any(_reads_state(script, optimizer, s.tree) for s in script.sources):
        return "the script handles the optimizer's state itself"
    return ""


def _place(script: Script, optimizer: Optimizer, late: bool) -> ast.stmt | str:
    """The statement after which the optimizer is made and its parameters are where they stay; or why there is none.

    Where gradients come ``late``, a state that was saved before may lack buffers, so that it has to be loaded by then, too.
    """
    target, statement = _target(optimizer), statement_of(optimizer.node)
    if target is None:
        return "its momentum could only start at zero where the optimizer is put into a variable of its own"
    here, place = block_of(statement), statement
    for node, stack in _changes(script, optimizer, late):
        frames = [id(f.node) for f in stack]
        after = next((s for s in here[index(here, statement) + 1 :] if nodes_of([s]) & {id(node), *frames}), None)
        if after is None:
            return f"line {_line(node)} changes its parameters or its state after it was made"
        if index(here, after) > index(here, place):
            place = after
    between = here[index(here, statement) + 1 : index(here, place) + 1]
    inside = nodes_of(between)
    if any(happens_in(o, s.node, inside) for s in script.methods("backward", "step") for o in s):
        return f"line {_line(place)} changes its parameters and trains"
    spelled = ast.unparse(target)
    if any(
        isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Store) and ast.unparse(n) == spelled
        for s in between
        for n in ast.walk(s)
    ):
        return f"`{spelled}` is something else after line {_line(place)}"
    return place


def _changes(script: Script, optimizer: Optimizer, late: bool) -> Iterator[tuple[ast.AST, Stack]]:
    """The places that may add, move or cast its parameters after it was made: buffers that are there already would stay behind."""
    for site in script.methods("add_param_group", *(("load_state_dict",) if late else ())):
        adds = site.kind == ".add_param_group"
        for o in site:
            if any(o.this is t for t in optimizer.things) or (adds and isinstance(o.this, Unknown)):
                yield site.node, o.stack
    models = [x for p in optimizer.params for x in unwrapped(p)]
    known = bool(models) and not any(isinstance(x, Unknown) for x in models)
    mine = parts_of(*models).keys()
    makes = [o for s in script.log.of("new") if s.node is optimizer.node for o in s]
    for site in script.log.of("move_model"):
        for o in site:
            if (
                o.this is not None
                and not is_loss(o.this)
                and (not known or mine & parts_of(*unwrapped(o.this)).keys())
                and _follows(o, makes)
            ):
                yield site.node, o.stack
    for transfer in script.transfers:
        for o in transfer.site:
            if transfer.unknown and not transfer.loops and _follows(o, makes):
                yield transfer.node, o.stack


def _follows(occurrence: Occurrence, makes: list[Occurrence]) -> bool:
    """It comes after the optimizer was made, on the way that both have in common."""
    depths = [shared(occurrence.stack, made.stack) for made in makes]
    return any(occurrence.order > made.order for made, depth in zip(makes, depths, strict=True) if depth == max(depths))


def _reads_state(script: Script, optimizer: Optimizer, tree: ast.AST) -> bool:
    return any(
        isinstance(n, ast.Attribute) and n.attr == "state" and any(t in optimizer.things for t in script.values(n.value))
        for n in ast.walk(tree)
    )


def _is_said(script: Script, word: str) -> bool:
    """A constant that may be the key of a parameter group or of a state."""
    return any(isinstance(n, ast.Constant) and n.value == word for source in script.sources for n in ast.walk(source.tree))


def _target(optimizer: Optimizer) -> ast.expr | None:
    """``optimizer`` in ``optimizer = SGD(...)``."""
    match parent_of(optimizer.node):
        case ast.Assign(targets=[ast.Name() | ast.Attribute() as target]) | ast.AnnAssign(target=ast.Name() | ast.Attribute() as target):
            return target
    return None


# ------------------------------------------------------------------------------------------------ edits
def _edits(optimizer: Optimizer, statement: ast.stmt) -> tuple[Edit, ...]:
    target = _target(optimizer)
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
    made = rest and isinstance(rest[0], ast.Assign) and ".amp.GradScaler(" in source_of(statement).segment(rest[0])
    return rest[0] if made else statement


def _line(node: ast.AST) -> int:
    return getattr(node, "lineno", 0)
