"""cudnn-benchmark: let cuDNN measure which algorithm is fastest for each convolution."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.facts.cost import gains
from autofast.facts.input_shapes import FLAG, why_inputs_vary
from autofast.facts.parts import not_known, trained_models, why_layers_unknown
from autofast.facts.sent_by_value import against_backends
from autofast.flow.positions import happens_in, index_in_block, nodes_of
from autofast.model.events import BranchFrame, Site, inside
from autofast.model.names import CONVOLVE
from autofast.model.roles import Model
from autofast.model.script import Script
from autofast.model.several import of_kind
from autofast.model.source import at, block_of, parent_of, source_of, statement_of
from autofast.model.values import Const
from autofast.rule import Effect, Finding, Options, rule
from autofast.write.placement import Spot, setup_place
from autofast.write.spelling import torch_in, uses_gpu

OFF = "torch.backends.cudnn.enabled"
ASKED = gains.nothing("an option asks for the same numbers in every run, and decides beside it")


@rule(
    "cudnn-benchmark",
    Effect.ROUNDING,
    groups=("backend",),
    relieves={"device": 4},
    asks=gains.algorithms,
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Let cuDNN measure which algorithm is fastest for each convolution."""
    if options.target == "cpu" or not script.steps or not uses_gpu(script):
        return
    if off := [s for s in script.flags(OFF) if all(t == Const(False) for o in s for t in o.result)]:
        yield Finding(
            off[0].node,
            "cuDNN is switched off: convolutions and recurrent layers run on slower kernels",
            advice="take it out, or keep it around the part that needs it: "
            "`with torch.backends.cudnn.flags(enabled=False):`",
        )
        return
    message = "cuDNN chooses algorithms for convolutions by a rule of thumb"
    spot = setup_place(script)
    spot = None if spot is None else above_tf32(spot)
    place = None if spot is None else spot.node
    if _decided(script) or spot is None or place is None or not _convolves(script):
        models = trained_models(script)
        if _convolves(script) or not models or any(not_known(m) for m in models):
            yield from _written(script, message)
        if not script.flags(FLAG) and (why := _why_silent(script, models)):
            yield Finding(place or script.steps[0].loop, message, refusal=why)
        return
    torch, imports = torch_in(source_of(place))
    value = _value(script, spot.leads, torch)
    if value is None:
        yield Finding(
            place,
            message,
            refusal=f"determinism is asked for on {at(script.deterministic[0])}: measured choices differ from run to run",
        )
    elif "lightning" in script.frameworks or "hf-trainer" in script.frameworks:
        yield Finding(place, message, refusal="the Trainer sets this: see trainer-args")
    elif why := against_backends(script, place):
        yield Finding(place, message, refusal=why)
    elif why := why_inputs_vary(script):
        todo = f"set {torch}.backends.cudnn.benchmark = {value} if all batches have one shape"
        yield Finding(place, message, advice=f"{todo}: {why}")
    else:
        yield Finding(
            place,
            message,
            edits=(*imports, spot.written(f"{torch}.backends.cudnn.benchmark = {value}")),
            asks=None if value == "True" else ASKED,
        )


def _convolves(script: Script) -> bool:
    """Whether what trains has convolutions: layers, or functions that are called with weights."""
    layers = {layer for m in trained_models(script) for layer in m.layers}
    kinds = [f"torch.nn.functional.{n}{d}d" for n in ("conv", "conv_transpose") for d in (1, 2, 3)]
    return any(layer.startswith(CONVOLVE) for layer in layers) or any(
        inside(o.stack, step.loop) for s in script.calls(*kinds) for o in s for step in script.steps
    )


def _why_silent(script: Script, models: list[Model]) -> str:
    """Why nothing is said where nobody has decided; empty where no network convolves."""
    if _convolves(script):
        return f"no statement of {script.entry.rel} is known to come before the network and to lead to the training"
    where = at(script.steps[0].loop)
    unknown = f"which network trains in the loop on {where} is not known" * (not models)
    return next(filter(None, map(why_layers_unknown, models)), unknown)


def _written(script: Script, message: str) -> Iterator[Finding]:
    """What is said of a flag that is written out: switched off, or on beside ``deterministic``,
    which leaves little to choose.
    """
    for site in script.flags(FLAG)[:1]:
        beside = [n for n in script.deterministic if _branch(n) is _branch(site.node)]
        if not any(map(_may_be_on, script.flags(FLAG))):
            why = f"`benchmark = False` is written out ({at(site)})"
            yield Finding(site.node, message, refusal=why)
        elif beside:
            why = f"it measures, and {at(beside[0])} leaves it deterministic algorithms only: take that out where runs need not be the same"
            yield Finding(site.node, message, advice=why)


# -------------------------------------------------------------------------------------- determinism
def _decided(script: Script) -> bool:
    """The flag is set somewhere; switching it off together with ``deterministic = True`` is part of
    asking for determinism.
    """
    asked = [_branch(node) for node in script.deterministic]
    return any(
        _branch(site.node) is None or _branch(site.node) not in asked or _may_be_on(site)
        for site in script.flags(FLAG)
    )


def _branch(node: ast.AST) -> ast.AST | None:
    """The ``if`` or function directly around a statement: what stands there runs together."""
    outer = parent_of(statement_of(node))
    return outer if isinstance(outer, (ast.If, ast.FunctionDef)) else None


def _may_be_on(site: Site) -> bool:
    return any(t != Const(False) for o in site for t in o.result)


def _value(script: Script, place: ast.stmt, torch: str) -> str | None:
    """True, or what says at run time that nobody has asked for determinism; None where it is asked
    for in any case.
    """
    if not script.deterministic:
        return "True"
    asked: dict[str, None] = {}
    for site in [
        *script.flags("torch.backends.cudnn.deterministic"),
        *script.calls("torch.use_deterministic_algorithms"),
    ]:
        if site.node not in script.deterministic:
            continue
        if any(all(f.known for f in of_kind(o.stack, BranchFrame)) for o in site) or not _before(
            script, site, place
        ):
            return None
        if site.kind == "set_flag":
            flag = "backends.cudnn.deterministic"
        else:
            flag = "are_deterministic_algorithms_enabled()"
        asked[f"{torch}.{flag}"] = None
    if len(asked) != 1 or any(
        not any(n is s.node for k in _ASKING for s in script.log.of(k))
        for n in script.deterministic
    ):
        return None
    return f"not {next(iter(asked))}"


_ASKING = ("set_flag", "torch.use_deterministic_algorithms")


def _before(script: Script, site: Site, place: ast.stmt) -> bool:
    """Whether the script comes to ``site`` before it comes to ``place``."""
    here = nodes_of([place])
    each = ((o, s.node) for _, s in script.log.each() for o in s)
    orders = [o.order for o, node in each if happens_in(o, node, here)]
    return bool(orders) and all(o.order < min(orders) for o in site)


# ------------------------------------------------------------------------------------------- shapes
def above_tf32(spot: Spot) -> Spot:
    """The flag stands above the one for TF32, whichever of them is written first."""
    here = block_of(spot.stmt)
    first = n = index_in_block(here, spot.stmt) + spot.below
    while n and "set_float32_matmul_precision" in source_of(spot.stmt).segment(here[n - 1]):
        n -= 1
    return spot if n == first else Spot(here[n], False, spot.node, spot.leads)
