"""Mixed precision for a whole script: what runs under autocast, in which 16-bit type, and whether a
GradScaler goes with it.

``autocast`` and ``grad-scaler`` write one form between them, so both ask here. By ``--precision``:

- auto: bf16 where the GPU computes in it, else fp32;
- bf16, or fp16 with a scaler: on every GPU;
- either: bf16 where the GPU computes in it, else fp16 with the scaler enabled; as auto where there
  can be no scaler.

Two things compute in fp16 whatever was asked for: with them, the form is fp16 and a scaler. So it
is for a torch whose autocast knows fp16 only.

- ``torch.nn.DataParallel`` runs its replicas in threads of their own, which get only the fact that
  autocast is on, not its dtype (torch/nn/parallel/parallel_apply.py).
- LSTM, GRU and RNN on CUDA: autocast casts to fp16 for cuDNN
  (:func:`autofast.facts.precision.layers.recurrent_layers`). Without a scaler, networks with them
  stay in fp32, and others that are called by themselves need not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from autofast.edit.edits import Edits
from autofast.facts.by_default import Off, by_default, options_within
from autofast.facts.double_backward import step_against_half
from autofast.facts.forwards import Region, evaluation_regions, training_regions
from autofast.facts.forwards_alone import forwards_alone
from autofast.facts.precision.banned import Probabilities
from autofast.facts.precision.between import gradient_changes
from autofast.facts.precision.code import Code
from autofast.facts.precision.floats import is_weightless
from autofast.facts.precision.fp16_numbers import not_fp16, summed_loss
from autofast.facts.precision.half_values import Half, is_network
from autofast.facts.precision.hazards import has_autocast, probability_ratio, why_not_autocast
from autofast.facts.precision.layers import recurrent_layers
from autofast.facts.precision.left_behind import carried_over
from autofast.facts.precision.whole_script import against_script
from autofast.flow.positions import nodes_of
from autofast.model.calls import is_method
from autofast.model.roles import Step
from autofast.model.script import Script
from autofast.model.several import any_in, surely
from autofast.model.source import Nodes, Said, nodes_in, within
from autofast.model.tensors import tensors_in
from autofast.model.values import is_weight, of_kind
from autofast.rule import Options
from autofast.techniques.precision.blocks import Block, block_edits, is_cast_whole, joined
from autofast.techniques.precision.forms import DTYPE_SINCE, Precision, shared
from autofast.techniques.precision.probabilities import log_of_rounded, probabilities_of
from autofast.techniques.precision.scaling import (
    Scaling,
    apex_option,
    cannot,
    cannot_ask,
    scaling,
    script_without,
)
from autofast.techniques.precision.with_logits import WithLogits, with_logits
from autofast.write.spelling import uses_gpu

TARGETS = 2  # statements that have to do with no network, from which on a block ends above them

Accepted = tuple[Region, Code]


# Blocks come down to the forward passes, where all that these give is written as fp32 anyway, or
# end where only targets are prepared.
def narrowed(script: Script, options: Options, accepted: Sequence[Accepted]) -> Iterator[Accepted]:
    """The regions, or their forward passes: what is computed from fp32 is the same, or more exact,
    outside of autocast.
    """
    inside = {n for region, _ in accepted for n in nodes_of(region.parts)}
    for region, code in accepted:
        whole = region.is_forward_only or region.hoisted or region.first is region.last
        yield from ([] if whole else _alone(script, options, region, inside, code)) or [
            (region, code)
        ]


def _alone(
    script: Script, options: Options, region: Region, inside: Nodes, code: Code
) -> list[Accepted]:
    """The forward passes, where all that they give is cast as a whole; else none. A loss in the
    form of a module is no forward pass: it is computed from fp32.

    So is any loss below statements that only prepare targets for it (copied labels, masks).
    """
    behind = _behind(region)
    prepares = sum(not _concerns(script, part, region) for part in behind) >= TARGETS
    below = nodes_of(behind) if region.trains and prepares else set()
    half = Half(script, inside - below, options.target, probabilities_of(script, options))
    others = {c for c in region.forwards if half.is_of_losses(c) or _is_of_no_weights(script, c)}
    passes = [c for c in region.outputs if c not in others]
    if set(region.forwards) - others != set(passes):
        return []
    if not all(half.misuse(c) and is_cast_whole(script, half, c) for c in passes):
        return []
    things = [t for t in region.things if half.networks.get(id(t), True)]
    short = replace(region, forwards=passes, outputs=passes, things=things)
    alone = [replace(r, hoisted=[]) if below else r for r in forwards_alone(short)]
    if not alone or any(r.hoisted for r in alone):
        last = [part for part in region.parts if _holds(part, short)][-1:]
        alone = [replace(short, last=s, is_forward_only=True) for s in of_kind(last, ast.stmt)]
    found = [(r, code.other(r.parts, r.things)) for r in alone]
    return [] if any(why_not_autocast(c) for _, c in found) else found


def _is_of_no_weights(script: Script, call: ast.Call) -> bool:
    """Whether all modules that a call may call are layers without weights: ``nn.Identity()``."""
    return surely(
        o.this is not None and is_weightless(o.this) for o in script.log.ways("forward", call)
    )


def _behind(region: Region) -> Sequence[ast.AST]:
    """The statements of a region below the last one that holds a forward pass."""
    passes = [n for n, part in enumerate(region.parts) if _holds(part, region)]
    return region.parts[passes[-1] + 1 :] if passes else []


def _holds(part: ast.AST, region: Region) -> bool:
    """Whether a forward pass stands in a statement."""
    return any_in(region.forwards, nodes_of([part]))


def _concerns(script: Script, part: ast.AST, region: Region) -> bool:
    """Whether a statement calls a network, computes from what one gave, or holds more than one
    simple statement.
    """
    if not isinstance(part, (ast.Assign, ast.AnnAssign)) or _holds(part, region):
        return True
    reads = (n for n in nodes_in(part, ast.expr))
    return any(t.models for n in reads for t in tensors_in(script.values(n)))


MOST_BLOCKS = 6  # for the training of a script: more would be a change of every line
MOST_OPTIONS = 6  # without which a script is looked at once more


@dataclass(eq=False)
class Amp:
    """Attributes:
    blocks: what runs under autocast.
    refused: a place that does not, and why.
    scaling: the scaler, and ``makes``, the edits that make it; None where there is none, with
    ``no_scaler`` where one was wanted.
    torch: the oldest torch that runs the blocks. logits: the losses that are to take logits, which
    they count on; None where they do not. remark: on the type that the blocks compute in.
    """

    blocks: list[Block] = field(default_factory=list)
    refused: list[Said] = field(default_factory=list)
    scaling: Scaling | None = None
    makes: dict[ast.stmt, Edits] = field(default_factory=dict)
    no_scaler: str = ""
    torch: tuple[int, int] = DTYPE_SINCE
    logits: WithLogits | None = None
    remark: str = ""


class _Made(dict[tuple[str, str, bool, Probabilities], Amp]):
    """``script.analysis(_Made)``: what mixed precision means for a script, by the options that it
    depends on.
    """

    def __init__(self, script: Script):
        super().__init__()


def amp(script: Script, options: Options) -> Amp:
    """What mixed precision means for this script, under these options."""
    with_scaler = options.decides(Scaling)
    made = probabilities_of(script, options)
    key = options.precision, options.target, with_scaler, made
    known = script.analysis(_Made)
    if key not in known:
        known[key] = _amp(script, options, with_scaler)
    return known[key]


def _amp(script: Script, options: Options, with_scaler: bool) -> Amp:
    if not script.steps:
        return Amp()
    if off := apex_option(script):
        return _planned(script_without(script, off), options, with_scaler, off)
    found = _planned(script, options, with_scaler)
    if found.blocks or not found.refused:
        return found
    # what stands in the way may be behind an option, and off by default
    for off in options_within(script, [s.loop for s in script.steps])[:MOST_OPTIONS]:
        without = _planned(by_default(script, off), options, with_scaler, off)
        if without.blocks:
            return without
    return found


def _planned(script: Script, options: Options, with_scaler: bool, off: Off | None = None) -> Amp:
    """What mixed precision means for a script that runs without the option ``off``."""
    found = Amp()
    if why := against_script(script, options.target, uses_gpu(script)):
        found.refused += [(node, why) for node in _first_forwards(script)]
        return found
    accepted = list(narrowed(script, options, list(_accepted(script, options, found))))
    if not accepted:
        return found
    if off is not None:
        asks = [(r, c) for r, c in accepted if r.trains or off.is_off_at(script, r.first)]
        known = {r for r, _ in asks}
        found.refused += [
            (r.forwards[0], cannot(off, r.first)) for r, _ in accepted if r not in known
        ]
        accepted = asks
    inside = {n for region, _ in accepted for n in nodes_of(region.parts)}
    for region, code in accepted:
        if region.trains and (why := carried_over(code, inside)):
            found.refused.append((region.forwards[0], why))
            return found
    precision = _precision(script, options, with_scaler, accepted, found)
    if isinstance(precision, str) and (parted := _without_recurrent(script, options, accepted)):
        accepted = parted
        inside = {n for region, _ in accepted for n in nodes_of(region.parts)}
        precision = _precision(script, options, with_scaler, accepted, found)
    if isinstance(precision, str):
        found.refused += [(r.forwards[0], precision) for r, _ in accepted if r.trains]
        return found
    precision = shared(script, precision, [r for r, _ in accepted], found.scaling)
    if off is not None:
        if why := cannot_ask(script, off, [r for r, _ in accepted], found.scaling):
            found.scaling = None
            found.refused += [(r.forwards[0], why) for r, _ in accepted if r.trains]
            return found
        precision = replace(precision, off=off)
    found.torch = precision.torch
    for region, _ in accepted:
        edits = block_edits(script, options, region, precision, inside)
        if isinstance(edits, str):
            found.refused.append((region.forwards[0], edits))
        else:
            found.blocks.append(Block(region, edits))
    if any(not _is_there(found, r) for r, _ in accepted if r.trains):
        # one part of the training stays in fp32: the rest stays with it
        found.blocks, found.scaling, found.makes = [], None, {}
    found.blocks = joined(script, found.blocks)
    training = [b for b in found.blocks if b.region.trains]
    if len(training) > MOST_BLOCKS:
        why = f"{len(training)} blocks would be needed, as what stands between them has to stay in fp32"
        found.refused += [(b.region.forwards[0], why) for b in training]
        found.blocks, found.scaling, found.makes = [], None, {}
    if found.scaling is not None:
        for place in found.scaling.makes:
            found.makes[place] = precision.scaler(script, place, found.scaling)
    return found


def _without_recurrent(
    script: Script, options: Options, accepted: Sequence[Accepted]
) -> list[Accepted]:
    """The passes of the networks without recurrent layers, beside those of others that stay in
    fp32: a decoder that is an LSTM need not keep its encoder from 16 bits. Empty where nothing
    that trains is left.
    """
    if options.target != "cuda" or _is_data_parallel(script):
        return []
    parted: list[Accepted] = []
    for region, code in accepted:
        if not recurrent_layers(code):
            parted.append((region, code))
            continue
        for alone in forwards_alone(_of_networks(script, region)):
            called = {id(t) for c in alone.forwards for t in script.called(c)}
            mine = replace(alone, things=[t for t in region.things if id(t) in called])
            part = code.other(mine.parts, mine.things)
            if not recurrent_layers(part):
                if not mine.things or why_not_autocast(part):
                    return []
                parted.append((mine, part))
    return parted if any(region.trains for region, _ in parted) else []


def _is_there(found: Amp, region: Region) -> bool:
    return any(b.region is region for b in found.blocks)


def _first_forwards(script: Script) -> Iterator[ast.AST]:
    for step in script.steps:
        if step.forwards and not step.autocast:
            yield step.forwards[0].node


# --------------------------------------------------------------------------------- what can be done
def _accepted(script: Script, options: Options, found: Amp) -> Iterator[tuple[Region, Code]]:
    """The regions that can run under autocast. A step takes part as a whole, and evaluations only
    beside training.
    """
    training: list[tuple[Region, Code]] = []
    made = probabilities_of(script, options)
    found.logits = with_logits(script) if made.logits else None
    for step in script.steps:
        if any(b.framework for b in step.backwards) or step.autocast:
            return
        regions = training_regions(script, step)
        mine = [(r, Code(script, r.parts, r.things, made, options.target)) for r in regions]
        if any(has_autocast(code) for _, code in mine):
            return
        if why := _unseen(script, step):
            found.refused.append((step.backwards[0].node, why))
        for region, code in mine:
            against = step_against_half(region.home) if isinstance(region.home, Step) else ""
            fit = against or _fit(script, region, code)
            if isinstance(fit, str):
                if not _only_measures(script, step):
                    found.refused.append((_place(region), fit))
            else:  # a function that two steps call is taken in once
                known = {c for r, _ in training for c in r.forwards}
                training += [
                    (r, c) for r, c in fit if not r.is_forward_only or not any_in(r.forwards, known)
                ]
    if found.refused or not training:
        return
    yield from training
    taken = {n for r, _ in training for n in nodes_of(r.parts)}
    models = {t for r, _ in training for t in r.things}
    for evaluation in script.evaluations:
        for region in evaluation_regions(script, evaluation):
            nodes = nodes_of([*region.parts, *region.forwards])
            if nodes & taken or not any_in(region.things, models):
                continue
            code = Code(script, region.parts, region.things, made, options.target)
            if has_autocast(code):
                continue
            fit = _fit(script, region, code)
            if isinstance(fit, str):
                found.refused.append((_place(region), fit))
                continue
            taken |= nodes
            yield from fit


def _only_measures(script: Script, step: Step) -> bool:
    """Whether no update follows its backward, but for those of other steps inside of its loop: it
    looks at gradients (Grad-CAM), and may stay in fp32 beside training that does not.
    """
    others = [s for s in script.steps if s is not step]
    below = [s for s in others if not step.updates or within(s.loop, step.loop)]
    known = {u.node for s in below for u in s.updates}
    by_hand = any(
        is_weight(o.this) and any(f.is_of(step.loop) for f in o.stack)
        for site in script.log.of("inplace", "tensor_write")
        for o in site
    )
    return bool(known) and not by_hand and all(u.node in known for u in step.updates)


def _place(region: Region) -> ast.AST:
    return region.forwards[0] if region.forwards else region.first


def _fit(script: Script, region: Region, code: Code) -> list[tuple[Region, Code]] | str:
    """The region as a whole, or its forward passes alone where the rest must stay in fp32; a reason
    where even they must.
    """
    span = code.other(region.span, region.things)
    if why := region.refusal or gradient_changes(code) or _in_fp32_too(script, span, region):
        return why
    if not (why := why_not_autocast(code)):
        return [(region, code)]
    networks = _of_networks(script, region)
    alone = [(r, code.other(r.parts, r.things)) for r in forwards_alone(networks)]
    return why if not alone or any(why_not_autocast(c) for _, c in alone) else alone


def _of_networks(script: Script, region: Region) -> Region:
    """The region without calls of losses and metrics in the form of modules."""
    known = {id(m.thing): is_network(script, m) for m in script.models}

    def is_one(call: ast.Call) -> bool:
        called = script.called(call)
        return not called or any(known.get(id(t), True) for t in called)

    passes = [c for c in region.forwards if is_one(c)]
    things = [t for t in region.things if known.get(id(t), True)]
    return replace(region, forwards=passes, outputs=passes, things=things)


def _in_fp32_too(script: Script, span: Code, region: Region) -> str:
    """What would go wrong in 16 bits although what is made of it is computed in fp32."""
    return (probability_ratio(span) if region.trains else "") or log_of_rounded(
        script, span, region.outputs
    )


def _unseen(script: Script, step: Step) -> str:
    """Why a step that trains a model, but in which no call of one is seen, keeps all training in
    fp32; empty where it does not.
    """
    its = [o for o in script.optimizers if any_in(o.updates, step.updates)]
    trains = any(o.params or any(is_method(n, "parameters") for n in ast.walk(o.node)) for o in its)
    if step.forwards or not step.backwards or not trains:
        return ""
    return step_against_half(step) or "no call of a model is seen that this loss comes from"


def _precision(
    script: Script, options: Options, with_scaler: bool, accepted: list[Accepted], found: Amp
) -> Precision | str:
    """The precision to write; a reason where there is none. Sets ``scaling`` or ``no_scaler``."""
    device, wanted, code = options.target, options.precision, [c for _, c in accepted]
    fp16_anyway = _in_fp16_anyway(script, code) if device == "cuda" else ""
    too_wide = next(filter(None, map(not_fp16, code)), "")
    too_wide = too_wide or next(filter(None, (summed_loss(c) for r, c in accepted if r.trains)), "")
    if wanted == "bf16" or (device == "cpu" and wanted != "fp16"):
        if fp16_anyway:
            return f"{fp16_anyway}: without a GradScaler small gradients become zero"
        return Precision("bf16", device)
    if wanted == "auto" and fp16_anyway and not _is_data_parallel(script):
        return f"{fp16_anyway}, which needs a GradScaler: `--precision either` writes both"
    if wanted == "auto" and not (fp16_anyway or script.torch.rules_out(DTYPE_SINCE)):
        found.remark = "bf16, on GPUs that have it; --precision either: fp16 on others"
        return Precision("native", device)
    made: Scaling | str = too_wide or (
        scaling(script) if with_scaler else "the rule grad-scaler is not selected"
    )
    if isinstance(made, Scaling):
        found.scaling, found.remark = made, fp16_anyway and f"fp16: {fp16_anyway}"
        return Precision("fp16" if fp16_anyway or wanted == "fp16" else "either", device)
    found.no_scaler = made
    if wanted == "fp16":
        return f"fp16 needs a GradScaler, and {made}"
    if fp16_anyway:
        return f"{fp16_anyway}, which needs a GradScaler, and {made}"
    return Precision("native", device)


def _in_fp16_anyway(script: Script, code: list[Code]) -> str:
    """What computes in fp16 whichever type autocast is asked for, in words; or empty."""
    if _is_data_parallel(script):
        return "DataParallel runs its replicas in fp16, whatever autocast is set to"
    return next(filter(None, map(recurrent_layers, code)), "")


def _is_data_parallel(script: Script) -> bool:
    wraps = any(w.name == "torch.nn.DataParallel" for m in script.models for w in m.wraps)
    return (
        wraps
        or any("DataParallel" in m.layers for m in script.models)
        or bool(script.calls("torch.nn.parallel.data_parallel"))
    )
