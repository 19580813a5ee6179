"""What one process of one run did: the file that the probe writes, as data. Times are seconds,
sizes MiB unless a name says otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Ending = Literal["steps", "end", "exit", "error"]
"""Why a run ended: the wanted number of steps, the script's own end, ``sys.exit``, an exception."""

PHASES = tuple("data transfer forward backward optimizer communication evaluation other".split())
"""Where the time of a step can go; together they are its wall time."""


NORMS = {
    "grad_norm": "gradient norm",
    "left_norm": "gradient norm before clipping",
    "update_norm": "update norm",
    "state_norm": "movement of the buffers",
}
"""What of a step is a norm, in words; and of those with another ``s``, of groups of tensors."""

Words: TypeAlias = tuple[str, ...]
Numbers: TypeAlias = tuple[float, ...]  # one for each batch, layer, group, ..., as the field says


@dataclass(frozen=True)
class Step:
    """One optimizer step, from the end of the one before it to its own end.

    A step that a GradScaler skipped is a step too (``skipped``). A script with several optimizers
    has a row for each of their steps. Where no optimizer of torch's is seen at work, every backward
    (without any: every change of the parameters) ends a row, ``optimizer`` is -1, and
    ``update_norm`` is of all parameters since the row before.

    Attributes:
        wall: seconds; by CUDA events where the script works on a GPU, by the host's clock
            otherwise.
        phases: seconds by phase (PHASES), by the host's clock; forward is what remains between the
            others.
        samples, batches: taken from DataLoaders for training since the step before; 0 where the
            script has no DataLoader.
        evaluation_samples: taken from DataLoaders without a backward that followed.
        backwards: calls of backward since the step before.
        losses: the value of each of them before loss scaling; NaN where it was no number.
        lr: the learning rate of each parameter group, at the time of the step.
        grad_norm: 2-norm of all gradients of this optimizer just before its step, after unscaling;
            None unless asked for.
        left_norm: the same as the last backward before the step left them, before anything was done
            to them (clipping); None also where no backward came since the step before.
        update_norm: 2-norm of the change of this optimizer's parameters in this step; None unless
            asked for.
        state_norm: 2-norm of the change since the step before of all floating-point buffers of the
            models that were called in training mode (running averages); None unless asked for.
        grad_norms, update_norms, state_norms: the same of groups of tensors that follow each other
            in the optimizer or model, six at most.
        training: share of the modules called since the step before, with gradients enabled, that
            were in training mode; None unless asked for.
        evaluating: the same share of those called without gradients; None also where none was
            called so.
        modes: the different shares in training mode of single calls, with gradients or without;
            empty unless asked for.
        random: a digest of the states of all random generators at its end, and one of the calls
            that drew; empty unless asked for."""

    index: int
    optimizer: int
    end: float
    wall: float
    phases: Mapping[str, float]
    samples: int = 0
    batches: int = 0
    evaluation_samples: int = 0
    backwards: int = 0
    losses: Numbers = ()
    lr: Numbers = ()
    skipped: bool = False
    grad_norm: float | None = None
    update_norm: float | None = None
    left_norm: float | None = None
    grad_norms: Numbers = ()
    update_norms: Numbers = ()
    state_norm: float | None = None
    state_norms: Numbers = ()
    training: float | None = None
    evaluating: float | None = None
    modes: Numbers = ()
    random: str = ""


@dataclass(frozen=True)
class TensorPrint:
    """What is kept of a tensor so that two runs can be compared without it.

    ``sha`` is of its bytes; ``sketch`` are dot products, in float64, with fixed vectors of random
    signs scaled by 1/sqrt(len(sketch)), so that the distance of two sketches estimates the distance
    of the tensors (Johnson-Lindenstrauss). ``buffer``: it is none of a module's parameters: a
    forward in training mode may change it."""

    shape: tuple[int, ...]
    dtype: str
    sha: str
    norm: float
    sketch: Numbers = ()
    buffer: bool = False


Prints = Mapping[str, TensorPrint]


@dataclass(frozen=True)
class Pass:
    """One iteration over a DataLoader, from ``iter()`` to its end or to the end of the run.

    Attributes:
        loader: number of the loader, in the order in which loaders were first iterated over.
        training: whether a backward followed its batches.
        complete: whether it was run through.
        checksums: one number for each batch, from all its values, in order. Equal for equal batches
            whatever the order of samples *in* the batch would be summed in (float64 sum of every
            tensor's values, weighted by its position in the batch's structure); empty unless asked
            for.
        leaves: the same for every tensor of the batch's structure by itself, in its order: a tuple
            over batches for each. So that labels tell of the order where images are random. Empty
            where batches differ in their structure.
        items: for each batch the indices of its samples, and for every tensor of more than one
            dimension three rows of numbers, one for each sample (weighted sum, sum of squares,
            sum); empty for what is no map-style data set, and beyond a number of samples.
        sketches: for the same batches and tensors a random projection of each sample.
        begun, ended: optimizer steps made before its start and before its end.
        made: images were loaded as bytes, or something else than a model is given, and the numbers
            are those of what a model was given of them."""

    loader: int
    training: bool
    batches: int
    samples: int
    complete: bool
    workers: int = 0
    checksums: Numbers = ()
    leaves: tuple[Numbers, ...] = ()
    items: tuple[tuple[tuple[int, ...], tuple[Numbers, ...]], ...] = ()
    sketches: tuple[tuple[tuple[Numbers, ...], ...], ...] = ()
    begun: int = 0
    ended: int = 0
    made: bool = False


@dataclass(frozen=True)
class Checkpoint:
    """A file saved by ``torch.save`` during the run: its keys (nested keys joined with ``/``) with
    type, dtype and shape, as one string."""

    path: str
    keys: Mapping[str, str]
    loads: bool
    error: str = ""


@dataclass(frozen=True)
class Saved:
    """One call of ``torch.save``, in the order of calls.

    Attributes:
        step: optimizer steps made before.
        tensors, plain: what was saved, by nested key: prints of tensors, other values in words.
    """

    path: str
    step: int
    tensors: Prints
    plain: Mapping[str, str]


@dataclass(frozen=True)
class Resumed:
    """What the script did with the checkpoint that it was to go on from, before its first step.

    Attributes:
        read: it was opened.
        numbers: whole numbers in it, by name.
        models, optimizers: how many got a state.
    """

    read: bool
    numbers: Mapping[str, int]
    models: int
    optimizers: int


@dataclass(frozen=True)
class Call:
    """One call of a model with gradients: its number, its samples, a checksum of every tensor it
    was given, by name, optimizer steps made before, and in the first step a digest of the states of
    the random generators and for every tensor a checksum of the order in the batch. looks: of
    tensors of floats the mean of squares, the share of zeros, and how evenly values lie down the
    samples and across the last dimension. laws: of the calls up to this one, how numbers of single
    samples lie (probe/laws.py)."""

    model: int
    samples: int
    sums: Mapping[str, float]
    step: int = 0
    random: str = ""
    order: Mapping[str, float] = field(default_factory=dict)
    looks: Mapping[str, Numbers] = field(default_factory=dict)
    laws: Mapping[str, Numbers] = field(default_factory=dict)


@dataclass(frozen=True)
class Target:
    """What losses of one kind are given in training beside outputs of models.

    Attributes:
        calls, numbers: how many.
        laws: as those of a Call, for every ten calls.
        again: samples that came again with the input that they had before.
        same: of these, those whose target was the same, too.
        left_out: numbers that a loss leaves out as it stands (``ignore_index``).
        by_hand: numbers given to losses with weights for classes, or that are not put together: the
            script may leave some out by itself."""

    calls: int
    numbers: int
    laws: tuple[Numbers, ...] = ()
    again: int = 0
    same: int = 0
    left_out: int = 0
    by_hand: int = 0


@dataclass(frozen=True)
class Evaluation:
    """The calls of one model without gradients, or in evaluation mode, between two optimizer steps.

    Attributes:
        step: optimizer steps made before.
        samples: in all calls.
        sums: over all calls, a checksum of every tensor it was given, by name.
        result: a checksum of what came out.
        weights: steps made when its weights were first seen as they are; -1: not recorded."""

    model: int
    step: int
    calls: int
    samples: int
    sums: Mapping[str, float]
    result: float = 0.0
    weights: int = -1


@dataclass(frozen=True)
class Followed:
    """An average of the weights has moved by ``rate`` of its distance to a parameter (its number):
    to the weights before the last of ``step`` steps (``late``) or to those after it."""

    step: int
    parameter: int
    late: bool
    rate: float


@dataclass(frozen=True)
class Lines:
    """Of one file of the project: lines that hold code, and those of them that ran."""

    code: tuple[int, ...]
    ran: tuple[int, ...]


@dataclass(frozen=True)
class Device:
    """One GPU as seen during the run. Utilisation in per cent and power in watts, sampled; empty
    where nvidia-ml-py has no answer."""

    name: str
    peak_memory: float
    utilisation: Numbers = ()
    power: Numbers = ()


@dataclass(frozen=True)
class Moments:
    """Seconds since the process was started by the operating system."""

    torch_imported: float
    script_started: float
    first_step: float | None  # end of the first optimizer step
    ended: float
    compiling: float = 0.0  # spent in torch.compile, all in all


@dataclass(frozen=True)
class Record:
    """One process of a run. Several under torchrun: one for each rank.

    Attributes:
        steps: see ``Step``; may be empty.
        losses: of every backward, in order, also of those after the last step.
        backwards, skipped: numbers.
        passes: iterations over DataLoaders.
        model: state of all models that were called, at the end: ``{"0/layer.weight": TensorPrint,
            ...}``, parameters and buffers, the first part numbering the outermost modules in the
            order of their first call; empty unless asked for.
        start: the same at the first backward.
        checkpoints: what was saved; empty unless asked for.
        syncs: host waits for the device, by source line ``file.py:12`` -> number; empty on the CPU
            unless asked for.
        wrote_outside: files opened for writing outside the working folder and the temporary folder.
        environment: strings by name: python, torch, cuda, driver, gpu, cpu, threads, precision
            flags.
        optimizers: class names, in the order of their first step.
        settings: entries of the optimizers' parameter groups at their first and last step, by
            ``optimizer/first/group/name``, numbers as ``repr`` of a float; ``tensors`` and
            ``elements`` count the parameters that require gradients. Without learning rates and
            without what chooses an implementation; empty unless asked for.
        trainable_unused: names of parameters that received gradients and are held by no optimizer;
            only with ``Detail``.
        notes: what could not be recorded, in words.
        saves: every call of torch.save by value.
        calls: what the models were given in training.
        modules: settings of their modules, in words, by name.
        precision: what was computed in ("autocast cpu bfloat16", "forward float32", "gradient
            float32", "TF32 matmul").
        lines: by file, relative to the script's folder.
        written: texts that were opened for writing in the working folder.
        dropouts: modules of dropout that were called in training mode, by name.
        masks: sizes of the masks of dropout, of modules and functions, that were drawn with
            gradients in the first steps (None: not recorded).
        mask_rates: the share that each drops.
        idle_masks: how many were drawn without.
        fed: passes again, with the items as a model was given them, where that is something else
            than the loader gave.
        evaluations: see ``Evaluation``.
        drawn: by model, "calls" in training, and of the first ones those in which it "drew"; under
            "whole" how often numbers (and orders, or choices among many) were drawn, by how many at
            a time, "idle": without gradients; under "sizes" digests of the "sequence" of the first
            of these calls and of what they drew "among".
        rows: by the length of data, of which rows are taken in training: how many, and numbers of
            their order (probe/rows.py).
        targets: by kind, what losses are given beside outputs.
        scalars: what TensorBoard was given: name, step (None: none was given), value.
            All of these only with ``Detail.state``.
        watched: what probe/watch.py gives, as lists and numbers; only with ``Detail.facts``.
        resumed: None where the run was not to go on from a checkpoint.
        averages: of the weights, as they were seen to move.
        unseen: processes that it started and that were not followed, in words.
    """

    version: int
    rank: int
    world_size: int
    ending: Ending
    exit_code: int
    moments: Moments
    steps: tuple[Step, ...]
    losses: Numbers
    backwards: int
    skipped: int
    optimizers: Words = ()
    passes: tuple[Pass, ...] = ()
    model: Prints = field(default_factory=dict)
    start: Prints = field(default_factory=dict)
    checkpoints: tuple[Checkpoint, ...] = ()
    syncs: Mapping[str, int] = field(default_factory=dict)
    peak_memory: float = 0.0
    peak_memory_children: float = 0.0
    devices: tuple[Device, ...] = ()
    wrote_outside: Words = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    trainable_unused: Words = ()
    error: str = ""
    traceback: str = ""
    notes: Words = ()
    saves: tuple[Saved, ...] = ()
    calls: tuple[Call, ...] = ()
    modules: Mapping[str, str] = field(default_factory=dict)
    precision: Words = ()
    lines: Mapping[str, Lines] = field(default_factory=dict)
    written: Words = ()
    dropouts: Words = ()
    scalars: tuple[tuple[str, int | None, float], ...] = ()
    masks: tuple[int, ...] | None = None
    mask_rates: Numbers = ()
    idle_masks: int = 0
    fed: tuple[Pass, ...] = ()
    watched: Mapping[str, Any] = field(default_factory=dict)
    resumed: Resumed | None = None
    evaluations: tuple[Evaluation, ...] = ()
    drawn: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    rows: Mapping[str, Numbers] = field(default_factory=dict)
    averages: tuple[Followed, ...] = ()
    targets: Mapping[str, Target] = field(default_factory=dict)
    unseen: Words = ()


@dataclass(frozen=True)
class Detail:
    """How closely the probe looks. Everything here costs time or adds syncs: off in runs that are
    timed.

    Attributes:
        gradients: norms of gradients and updates at every step.
        batches: checksums of batches.
        state: prints of the models' state at start and end, checkpoints, training flags, random
            state.
        double: run in double precision where the script allows it (the reference of the test for
            rounding).
        perturb: relative size of a random change that is made to every parameter before its first
            use: how far rounding alone carries a training, as a yardstick; 0 for none.
        facts: lines at which batches are made, copied and read, shapes, operations: what
            ``--facts`` writes.
        common: all random generators start anew with every step, from its number: two scripts that
            draw otherwise at first draw the same from then on.
        driven: with these, gradients are numbers that follow from the step, and floating-point
            buffers stay as they are, so that weights move by themselves; 2: all is drawn
            otherwise but what they begin with, and what evaluations draw."""

    gradients: bool = False
    batches: bool = False
    state: bool = False
    double: bool = False
    perturb: float = 0.0
    facts: bool = False
    common: bool = False
    driven: int = 0


FULL = Detail(gradients=True, batches=True, state=True)
FACTS = Detail(facts=True)


@dataclass(frozen=True)
class Run:
    """One run of one arm: what each of its processes recorded, and what was seen from outside.

    Attributes:
        samples: to which passes over DataLoaders were shortened; 0: they were not.
        resume: the name of the checkpoint from which the script was to go on; empty: it was not.
        arm: "original", "rewritten", or the name of a subset of rules.
        seed: seeds set from outside, and shift added to the seeds that the script sets itself (0:
            none).
        records: by rank; empty when the script died before its first line.
        stdout: all of it.
        stderr: its last part.
        log: all of it, empty where it is very long.
        files: texts that it wrote in its working folder, by name.
        script: the entry file, its path and its text.
        changed: further files that differ from the original's, by path: text before, after.
        pressure: share of time in which processes waited for a CPU (Linux: /proc/pressure/cpu, in
            per cent), None where unknown."""

    __hash__ = object.__hash__  # a key of caches, by itself

    arm: str
    seed: int
    detail: Detail
    records: tuple[Record, ...]
    exit_code: int
    seconds: float
    stdout: str = ""
    stderr: str = ""
    pressure: float | None = None
    timed_out: bool = False
    log: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    script: tuple[str, str] = ("", "")
    changed: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    samples: int = 0
    resume: str = ""

    @property
    def steps_made(self) -> int:
        return len(self.record.steps)

    @property
    def record(self) -> Record:
        """Of rank 0."""
        return self.records[0]

    @property
    def ok(self) -> bool:
        """Every process ended as it should and at least one step, or one backward, was seen."""
        fine = all(
            r.ending in ("steps", "end") or (r.ending == "exit" and r.exit_code == 0)
            for r in self.records
        )
        return fine and not self.timed_out and any(r.steps for r in self.records)
