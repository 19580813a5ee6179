"""apex.amp (opt_level O1) in a script, and the edits by which torch.amp takes its place.

O1 keeps parameters in fp32, runs matrix products and convolutions in fp16 by wrapping functions of torch, and scales the loss
dynamically: what ``torch.autocast`` and ``torch.amp.GradScaler`` do, with the same constants. O2 and O3 keep the model itself in
fp16, which is something else.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from autofast.edit.edits import Edit, Header, Remove, Replace, Rewrite
from autofast.flow.defuse import Definition
from autofast.flow.program import Flow
from autofast.model.calls import spreads
from autofast.model.events import BranchFrame, LoopFrame, TryFrame
from autofast.model.script import Script
from autofast.model.source import Source, at, parent_of, source_of, statement_of
from autofast.model.values import Const, const
from autofast.rule import Options, Refusal
from autofast.techniques.precision.amp import Amp, instead_of

INITIALIZE, SCALE_LOSS, MASTER_PARAMS = (
    "apex.amp.initialize",
    "apex.amp.scale_loss",
    "apex.amp.master_params",
)
# Work with torch.amp as well.
KEPT = ("apex.normalization.", "apex.parallel.SyncBatchNorm", "apex.parallel.convert_syncbn_model")
KEY = "apex"  # what is only right without apex stands and falls with its going
POSITIONS = ("models", "optimizers", "enabled", "verbosity", "opt_level")
DEFAULTS: dict[str, tuple[object, ...]] = {  # what changes nothing of O1 as torch.amp does it
    "enabled": (True,),
    "opt_level": ("O1",),
    "loss_scale": ("dynamic", None),
    "cast_model_type": (None,),
    "patch_torch_functions": (True, None),
    "keep_batchnorm_fp32": (None,),
    "master_weights": (None,),
    "num_losses": (1,),
}


@dataclass(eq=False)
class Going:
    """``places`` are what names apex.amp, ``edits`` all that is to be done; ``refusal`` why it cannot be."""

    places: list[ast.Call]
    edits: list[Edit] = field(default_factory=list)
    refusal: str = ""


class _Made(dict[str, Going | None]):
    """``script.analysis(_Made)``: how apex goes, by the target."""

    def __init__(self, script: Script):
        super().__init__()


def apex_goes(script: Script, options: Options) -> bool:
    """Whether torch.amp is put in the place of apex in this plan."""
    going = without_apex(script, options) if options.decides(Going) else None
    return going is not None and not going.refusal


def without_apex(script: Script, options: Options) -> Going | None:
    """How torch.amp takes the place of apex.amp; None where the script does not use it."""
    known = script.analysis(_Made)
    if options.target not in known:
        known[options.target] = _without(script, options)
    return known[options.target]


def _without(script: Script, options: Options) -> Going | None:
    calls = [
        s.node
        for kind in (INITIALIZE, SCALE_LOSS)
        for s in script.calls(kind)
        if isinstance(s.node, ast.Call)
    ]
    if not calls or options.target == "cpu":  # apex works on CUDA only
        return None
    going = Going(calls)
    try:
        _check(script)
        initialized = list(_initialized(script))
        found = instead_of(script, options, "apex")
        if found.refused:
            raise Refusal(f"autocast cannot take its place: {found.refused[0][1]}")
        if found.scaling is None or not found.blocks:
            raise Refusal(
                f"a GradScaler cannot take its place: {found.no_scaler or 'no training step is known'}"
            )
        going.edits = [
            *_torch_amp(found),
            *initialized,
            *_losses(script, found),
            *_parameters(script),
        ]
        going.edits += _imports(script)
    except Refusal as why:
        going.refusal = str(why)
    return going


# ------------------------------------------------------------------------------------------------ may it go?
def _check(script: Script) -> None:
    if script.unread:
        raise Refusal(script.unread)
    done = {INITIALIZE, SCALE_LOSS, MASTER_PARAMS}
    for (kind, _), site in script.log.each():
        name = kind if kind != "new" else next((getattr(o.this, "name", "") for o in site), "")
        if not name.startswith("apex.") or name in done or name.startswith(KEPT):
            continue
        if name in ("apex.amp.state_dict", "apex.amp.load_state_dict"):
            raise Refusal(
                f"checkpoints hold the state of apex ({at(site.node)}), which a GradScaler cannot load: take it out first"
            )
        raise Refusal(f"{name} ({at(site.node)}) belongs to apex and has to be replaced by hand")
    sites = script.calls(INITIALIZE)
    if len(sites) != 1:
        raise Refusal(
            "amp.initialize() is called in several places"
            if sites
            else "amp.initialize() is not called in this project"
        )
    for occurrence in sites[0]:
        if any(isinstance(f, (BranchFrame, LoopFrame, TryFrame)) for f in occurrence.stack):
            raise Refusal(
                f"amp.initialize() is called under a condition ({at(sites[0].node)}): make the script use it always, or never"
            )


def _torch_amp(found: Amp) -> Iterator[Edit]:
    assert found.scaling is not None
    for block in found.blocks:
        yield from block.edits
    for made in found.makes.values():
        yield from made
    yield from found.scaling.edits


# ------------------------------------------------------------------------------------------------ what goes
def _initialized(script: Script) -> Iterator[Edit]:
    """``model, optimizer = amp.initialize(model, optimizer, opt_level="O1")`` leaves both as they are."""
    call = script.calls(INITIALIZE)[0].node
    assert isinstance(call, ast.Call)
    given = dict(zip(POSITIONS, call.args, strict=False))
    if len(call.args) > len(POSITIONS) or spreads(call):
        raise Refusal(f"what amp.initialize() is given on {at(call)} is not spelled out")
    given |= {k.arg: k.value for k in call.keywords if k.arg is not None}
    for name, expr in given.items():
        value = (
            const(script.values(expr))
            if name not in ("models", "optimizers", "verbosity")
            else None
        )
        if name == "opt_level" and value not in DEFAULTS[name]:
            known = (
                f"opt_level {value} keeps the model itself in another type than autocast"
                if value is not ...
                else "its opt_level is not certain"
            )
            raise Refusal(f"{known} ({at(call)}): only O1 is what torch.amp does")
        if name not in ("models", "optimizers", "verbosity") and value not in DEFAULTS.get(
            name, ()
        ):
            raise Refusal(
                f"amp.initialize() is given {name}= ({at(call)}), which torch.amp has not"
            )
    if "models" not in given:
        raise Refusal(f"what amp.initialize() is given on {at(call)} is not spelled out")
    parts = [
        given["models"],
        *([given["optimizers"]] if not _is_none(script, given.get("optimizers")) else []),
    ]
    statement = parent_of(call)
    if (
        isinstance(statement, ast.Expr)
        or isinstance(statement, ast.Assign)
        and len(statement.targets) == 1
        and _same(statement.targets[0], parts)
    ):
        yield Remove(statement)
    else:
        holes = {f"p{n}": part for n, part in enumerate(parts)}
        yield Rewrite(call, ", ".join("{" + hole + "}" for hole in holes), holes)


def _is_none(script: Script, expr: ast.expr | None) -> bool:
    return expr is None or script.values(expr) == {Const(None)}


def _same(target: ast.expr, parts: list[ast.expr]) -> bool:
    targets = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
    return [ast.unparse(t) for t in targets] == [ast.unparse(p) for p in parts]


def _losses(script: Script, found: Amp) -> Iterator[Edit]:
    """``with amp.scale_loss(loss, optimizer) as scaled: scaled.backward()`` is ``scaler.scale(loss).backward()``."""
    assert found.scaling is not None
    for site in script.calls(SCALE_LOSS):
        call = site.node
        item = parent_of(call)
        statement = statement_of(call)
        if (
            not isinstance(call, ast.Call)
            or not isinstance(item, ast.withitem)
            or not isinstance(statement, ast.With)
        ):
            raise Refusal(f"amp.scale_loss() on {at(call)} is not the head of a `with`")
        if len(statement.items) != 1 or not isinstance(item.optional_vars, ast.Name):
            raise Refusal(f"the `with` on {at(call)} does more than scale the loss")
        named = {k.arg for k in call.keywords}
        if (
            not call.args
            or len(call.args) > 2
            or not named <= {"optimizers", "delay_unscale"}
            or any(isinstance(a, ast.Starred) for a in call.args)
        ):
            raise Refusal(
                f"amp.scale_loss() on {at(call)} is given more than a loss and an optimizer"
            )
        name = item.optional_vars
        uses = script.analysis(Flow).definitions(name).uses(Definition(name.id, name))
        receivers = {
            id(b.func.value) for b in found.scaling.backwards if isinstance(b.func, ast.Attribute)
        }
        if len(uses) != 1 or id(uses[0]) not in receivers:
            raise Refusal(f"`{name.id}` on {at(call)} is used for more than its backward")
        yield Header(statement)
        yield Rewrite(uses[0], "{loss}", {"loss": call.args[0]})


def _parameters(script: Script) -> Iterator[Edit]:
    """``amp.master_params(optimizer)``: with O1, the optimizer's own parameters."""
    for site in script.calls(MASTER_PARAMS):
        call = site.node
        if (
            not isinstance(call, ast.Call)
            or len(call.args) != 1
            or call.keywords
            or isinstance(call.args[0], ast.Starred)
        ):
            raise Refusal(f"what amp.master_params() is given on {at(call)} is not clear")
        source = source_of(call)
        p, group = source.fresh("p", "param", "p_"), source.fresh("group", "param_group", "group_")
        yield Rewrite(
            call,
            f'[{p} for {group} in {{optimizer}}.param_groups for {p} in {group}["params"]]',
            {"optimizer": call.args[0]},
        )


def _imports(script: Script) -> Iterator[Edit]:
    """The imports of apex.amp at the top of a file, where all that uses them goes."""
    gone = {
        id(s.node.func)
        for kind in (INITIALIZE, SCALE_LOSS, MASTER_PARAMS)
        for s in script.calls(kind)
        if isinstance(s.node, ast.Call)
    }
    for source in script.sources:
        for node in source.nodes:
            if (
                isinstance(node, ast.ImportFrom)
                and isinstance(parent_of(node), ast.Module)
                and node.module in ("apex", "apex.amp")
            ):
                ours = [a for a in node.names if node.module == "apex.amp" or a.name == "amp"]
                if ours and not any(_is_used(source, a.asname or a.name, gone) for a in ours):
                    rest = ", ".join(
                        f"{a.name} as {a.asname}" if a.asname else a.name
                        for a in node.names
                        if a not in ours
                    )
                    yield (
                        Replace(node, f"from {node.module} import {rest}") if rest else Remove(node)
                    )
            elif (
                isinstance(node, ast.Import)
                and isinstance(parent_of(node), ast.Module)
                and len(node.names) == 1
            ):
                alias = node.names[0]
                if alias.name in ("apex", "apex.amp") and not _is_used(
                    source, alias.asname or "apex", gone
                ):
                    yield Remove(node)


def _is_used(source: Source, name: str, gone: set[int]) -> bool:
    for node in source.each(ast.Name):
        if node.id == name:
            outer: ast.AST = node
            while isinstance(parent := parent_of(outer), ast.Attribute):
                outer = parent
            if id(outer) not in gone:
                return True
    return False
