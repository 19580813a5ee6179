"""What faster arithmetic, and an update in fewer kernels, save of a step."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from math import inf

from autofast.facts.cost import machine, measured
from autofast.facts.cost.bounds import largest_value, whole_number
from autofast.facts.cost.gains.asking import (
    EVALUATION,
    NOISE,
    Answer,
    Findings,
    code_once,
    of_default,
    of_device,
    touched_nodes,
)
from autofast.facts.cost.gains.budget import step_of
from autofast.facts.cost.matmul_layers import (
    convolves,
    convolves_along,
    goes_along_few,
    multiplies,
    only_embeds,
    only_looks_up,
    tensors,
)
from autofast.facts.cost.recurrent_cells import Cells
from autofast.facts.cost.step import Cost, Estimate
from autofast.facts.extents import most_numbers
from autofast.facts.optimizers import asks_momentum
from autofast.facts.parts import parts_of, trained_models
from autofast.model.roles import Optimizer
from autofast.model.script import Script
from autofast.model.several import all_known, surely
from autofast.model.source import statement_of
from autofast.model.values import Ext, const, of_kind
from autofast.rule import Finding, Gain, Options

CONVOLVES = re.compile(r"torch\.nn\.Conv")
ONE_LAYER = 10_000_000  # numbers that are many for one layer
FEW_NUMBERS = 16  # of all parameters of an optimizer
FEW_CHANNELS = 32  # of all convolutions: they are bound by launches and memory
SMALL = Gain(0.0, f"its convolutions have {FEW_CHANNELS} channels at the most")
ONE_CHANNEL = Gain(0.0, "in fp32, from images of one channel to numbers")
NARROW_FP32 = 64  # channels of all convolutions, which TF32 takes as fast in either order
THIN = Gain(0.0, f"in fp32, convolutions of {NARROW_FP32} channels at the most")
IN_ORDER = Gain(0.0, "on a GPU, GroupNorm gives its result in the usual order of memory each time")
MOST_RESHAPES = (
    2  # statements that channels_last may touch, beside the one that converts the network
)
ALONG = Gain(0.0, "few convolutions, of sequences or patches, beside recurrent or dense layers")
CONVOLVED = "layers of cuDNN use TF32 without it, and no other products are known to count"
LOOKS_UP = Gain(0.0, "bound by memory: it looks up rows of tables, and no layer multiplies them")
NARROW = Gain(
    0.0,
    "bound by launches and memory: the layers that multiply are narrow, or few and small",
    slower=True,
)


@of_device
def half(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
    """Of 16 bits: half of products, convolutions and memory, and casts of each parameter."""
    measures = any(s.node is finding.node for e in script.evaluations for s in e.forwards)
    if measures and not script.analysis(Cost).is_in_training(finding.node):
        return Gain(0.005, "an evaluation, which shows and chooses by what it computes")
    if options.target != "cpu" and _has_few_channels(script):
        return SMALL
    if why := _by_launches(script, options):
        return replace(why, slower=True)
    gain = _of_arithmetic(script, options, beside, 0.4, machine.HALF, machine.HALF, 0.5, casts=2)
    if not gain.known and only_looks_up(script):
        return LOOKS_UP
    narrow = script.analysis(Cost).estimate(options.target).narrow
    return gain if gain.known or not narrow else NARROW


@of_device
def tensor_cores(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
    """Of TF32, for products of matrices alone: convolutions use it unless told otherwise."""
    if why := _by_launches(script, options):
        return why
    gain = _of_arithmetic(script, options, beside, 0.1, products=machine.TENSOR_CORES)
    if gain.known:
        return gain
    multiply = multiplies(script)
    return replace(gain, reason=multiply) if multiply else Gain(0.0, CONVOLVED)


def _by_launches(script: Script, options: Options) -> Gain | None:
    """Nothing of products, where few are made at once."""
    place = script.analysis(Cells).place
    few = place and f"{place} goes through a sequence cell by cell"
    if not few and options.target != "cpu":
        few = goes_along_few(script, script.analysis(Cost).named)
    return Gain(0.0, f"bound by launches: {few}") if few else None


@of_device
def layout(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
    """Of channels_last, for convolutions; of an evaluation's images, that they come in order."""
    cost = script.analysis(Cost)
    if cost.moves_batches(finding.node) and cost.channels(finding.node) == {1}:
        return Gain(0.0, "images of one channel lie in memory as they would in either order")
    if cost.moves_batches(finding.node) and not cost.trains(finding.node):
        return Gain(0.002, "images of an evaluation, which its first layer would convert")
    if only_embeds(script):
        return Gain(0.0, "only patches are convolved, and all the rest multiplies matrices")
    if _is_pointwise(script):
        return Gain(0.0, "convolutions of one position are products of matrices in either order")
    half_wide = any(f.asks is half and f.edits for f in beside)
    if _is_depthwise(script) and not half_wide:
        return Gain(0.0, "its depthwise convolutions are slower in that order in fp32")
    if _has_few_channels(script):
        return SMALL
    layers = [x.name for x in _layers(script)]
    convolutions = sum(map(bool, map(CONVOLVES.match, layers)))
    if options.target != "cpu" and 3 * layers.count("torch.nn.GroupNorm") >= convolutions > 0:
        return IN_ORDER
    own = statement_of(finding.node)
    others = {statement_of(p) for p in touched_nodes(finding) if isinstance(p, ast.expr)} - {own}
    if len(others) > MOST_RESHAPES:
        return Gain(0.0, f"{len(others)} statements would have to reshape for it")
    gain = _of_arithmetic(script, options, beside, 0.1, convolutions=machine.CHANNELS_LAST)
    wide = half_wide or any(step.autocast for step in script.steps)
    if gain.known or wide:
        return gain
    return ONE_CHANNEL if _takes_one_channel(script) else THIN if _is_thin(script) else gain


def _layers(script: Script) -> list[Ext]:
    parts = [p for m in trained_models(script) for p in parts_of(m.thing).values()]
    return of_kind(parts, Ext)


def _has_few_channels(script: Script) -> bool:
    """Whether all that is trained convolves to a few channels, in front of dense layers: a first
    network for digits.
    """
    names = {x.name for x in _layers(script)}
    whole = all(name.startswith("torch.nn.") for name in names)
    return whole and "torch.nn.Linear" in names and _channels(script) <= FEW_CHANNELS


def _is_thin(script: Script) -> bool:
    """Whether all that is trained convolves to few channels, and its images are of unknown size."""
    return bool(script.analysis(Cost).estimate().why) and _channels(script) <= NARROW_FP32


def _channels(script: Script) -> float:
    """How many channels the convolutions of what is trained give, at the most; infinity where that
    is not known.
    """
    given = [x.args.given(1, "out_channels") for x in _layers(script) if CONVOLVES.match(x.name)]
    sizes = [largest_value(script, x.expr) if x is not None else None for x in given]
    known = not any(m.unknown for m in trained_models(script))
    return max(all_known(sizes), default=inf) if known else inf


def _takes_one_channel(script: Script) -> bool:
    """Whether a convolution takes one channel, in front of dense layers: a network for digits."""
    names = {x.name for x in _layers(script)}
    given = {
        whole_number(x.args.get(0, "in_channels")) for x in _layers(script) if "Conv" in x.name
    }
    return 1 in given and "torch.nn.Linear" in names


def _is_pointwise(script: Script) -> bool:
    """Whether all convolutions of images in what trains look at one position, as those of point
    clouds do."""
    layers = _layers(script)
    kernels = [x.args.get(2, "kernel_size") for x in layers if x.name == "torch.nn.Conv2d"]
    whole = all(x.name.startswith("torch.nn.") for x in layers)
    return whole and surely(const(k) in (1, (1, 1)) for k in kernels)


def _is_depthwise(script: Script) -> bool:
    """Whether every fifth convolution of what trains takes each channel by itself."""
    layers = [x.args for x in _layers(script) if x.name == "torch.nn.Conv2d"]
    sizes = [(args.given(0, "in_channels"), args.given(6, "groups")) for args in layers]
    alone = [
        ins.expr
        for ins, groups in sizes
        if ins and groups and ins.expr and groups.expr
        if ast.unparse(ins.expr) == ast.unparse(groups.expr)
    ]
    return bool(alone) and 5 * len(alone) >= len(layers)


@of_device
def algorithms(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
    """Of cuDNN's choice by measurement, for convolutions."""
    if not convolves(script):
        return Gain(0.0, "no network that options at their defaults choose convolves")
    if _has_few_channels(script):
        return SMALL
    if options.target != "cpu" and convolves_along(script):
        return ALONG
    return _of_arithmetic(script, options, beside, 0.05, convolutions=machine.BENCHMARK)


@of_device
def launches(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
    """Of an update in a few kernels: next to nothing beside hundreds of passes through cells."""
    optimizer = next((o for o in script.optimizers if o.node is finding.node), None)
    if optimizer is not None and _updates_single_numbers(script, optimizer):
        return Gain(0.0, "it updates a few numbers, in a few kernels as it is")
    fewer, accesses = machine.UPDATE, machine.ACCESSES
    if optimizer is not None and optimizer.name == "SGD" and options.target != "cpu":
        if not asks_momentum(optimizer):
            return Gain(0.0, "without momentum, one operation takes all parameters already")
        fewer, accesses = machine.SGD_UPDATE, machine.SGD_ACCESSES
    step = step_of(script, options, beside)
    if step.waits:
        return Gain(0.0, step.words)
    if step.why or not step.tensors or options.target == "cpu":
        if fewer == machine.SGD_UPDATE:
            return Gain(0.0, "of SGD with momentum, two operations take all parameters already")
        if short := _is_short(script, 0.03):
            return short
        words = "kernels of the update, for each parameter"
        if optimizer is not None and options.target != "cpu":
            if one := _of_one_layer(script, optimizer, fewer, accesses):
                return one
        saved = (fewer + tensors(script) / 2) * machine.GPU.launch
        share = saved / (step.with_faster_device(2).seconds + saved)
        if share >= min(options.min_gain, machine.KEYWORD):
            return Gain(0.03, words, known=False)
        return Gain(share, f"{words}, in a step {step.words}")
    moved = 4 * accesses * step.parameters / machine.GPU.memory
    share = step.fused(fewer * machine.GPU.launch, moved)
    words = f"the update of {step.tensors} parameters in one kernel"
    return _in_all(script, share, step) or Gain(share, words)


def _of_one_layer(
    script: Script, optimizer: Optimizer, fewer: float, accesses: float
) -> Gain | None:
    """Nothing, for the weights and biases of one layer, such as a classifier on fixed features has,
    that are updated so seldom that hardly a second is saved however long a step is.
    """
    several = tensors(script, optimizer.params)
    updates = script.analysis(Cost).updates_with(optimizer)
    if not 0 < several <= 2 or updates is None:
        return None
    saved = fewer * machine.GPU.launch + 4 * accesses * ONE_LAYER / machine.GPU.memory
    if updates * saved >= machine.NOTICED:
        return None
    return Gain(0.0, f"one layer is updated {updates:,} times")


def _updates_single_numbers(script: Script, optimizer: Optimizer) -> bool:
    """``Adam([log_alpha])``: nothing but the temperature of a policy, the weight of a penalty."""
    given = optimizer.args.given(0, "params")
    match given.expr if given is not None else None:
        case ast.List(elts=[_, *_] as parts) | ast.Tuple(elts=[_, *_] as parts):
            return sum(most_numbers(script, e) for e in parts) <= FEW_NUMBERS
    return False


@of_default
def counting(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
    """Of tensors without versions and views, beside no_grad: little, of what evaluations take."""
    if once := code_once(script, finding):
        return replace(once, share=machine.COUNTING * once.share)
    facts = measured.for_target(script, options.target)
    evaluations = facts.phases.get("evaluation", 0.0) if facts is not None else EVALUATION
    words = "a tenth of what evaluations take, beside no_grad, at most"
    return Gain(machine.COUNTING * evaluations, words, measured=facts is not None)


def _of_arithmetic(
    script: Script,
    options: Options,
    beside: Findings,
    usual: float,
    convolutions: float = 1,
    products: float = 1,
    memory: float = 1,
    casts: int = 0,
) -> Gain:
    """What less work on the device saves of a step; nothing where the host is what a step waits
    for.

    On a CPU, casts take part of the time that 16 bits save: there they have to outweigh them for
    certain.
    """
    if seen := _measured(script, options, convolutions, products, memory, casts):
        return seen
    step = step_of(script, options, beside)
    if casts and options.target == "cpu":
        step = script.analysis(Cost).least()
    if step.waits:
        return Gain(0.0, step.words)
    if step.why:
        words = f"usual where arithmetic takes the time; here {step.why}"
        return _is_short(script, usual) or Gain(usual, words, known=False)
    if not step.apart:  # as the device may take longer
        step = replace(step, data=0.0)
    share = step.saved(convolutions, products, memory, casts * step.tensors)
    return _in_all(script, share, step) or Gain(share, step.words, slower=casts > 0 and not share)


def _is_short(script: Script, usual: float) -> Gain | None:
    """Nothing, for a training of so few steps that, were they long, hardly a second were saved."""
    updates = script.analysis(Cost).updates
    if updates is None or updates * machine.LONG_STEP * usual >= machine.NOTICED:
        return None
    return Gain(0.0, f"a training of {updates:,} steps")


def _in_all(script: Script, share: float, step: Estimate) -> Gain | None:
    """Nothing, for a training that is so short that hardly a second is saved of it."""
    updates = script.analysis(Cost).updates
    saved = share * step.seconds * updates if updates is not None and step.overlaps else None
    if saved is None or saved >= machine.NOTICED or share < NOISE:
        return None
    words = f"a training of {updates:,} steps, {1e3 * step.seconds:.1f} ms each, saves less than"
    return Gain(0.0, f"{words} {machine.NOTICED:.0f} s")


def _measured(
    script: Script,
    options: Options,
    convolutions: float,
    products: float,
    memory: float,
    casts: int,
) -> Gain | None:
    """The same by what a step was measured to take: of operations that are not known, no more than
    where all were of the kind that gains most.

    Where casts on a CPU have to outweigh products, a time does not tell how much of it is products.
    """
    if casts and options.target == "cpu":
        return None
    on = machine.CPU if options.target == "cpu" else machine.GPU
    seen = measured.step(script, options.target, on)
    if seen is None:
        return None
    step, words = seen
    found = script.analysis(Cost).estimate(options.target)
    if isinstance(found, str):
        return measured.gain(step.saved(products=min(convolutions, products, memory)), words)
    parts = (found.convolutions, convolutions), (found.products, products), (found.memory, memory)
    left = sum(part * factor for part, factor in parts) / found.device if found.device else 1.0
    return measured.gain(step.saved(products=left, more=casts * found.tensors), words)
