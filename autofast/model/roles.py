"""The roles that things and places of a training program play: loaders, models, optimizers, steps,
evaluations, copies, reads.

Data with node handles, hardly any logic: what stands in the source is named by its ``ast`` node.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from autofast.model.calls import receiver_of
from autofast.model.events import LoopFrame, Site, Stack
from autofast.model.several import wordset
from autofast.model.values import (
    NOTHING,
    OBJECTS,
    Arguments,
    Ext,
    Given,
    Inst,
    Tensor,
    Thing,
    Values,
    Where,
)

# Kinds of device (``Transfer.kinds``) that are, or may be, no host; what else a copy may be.
GPUS = wordset("cuda mps accel option xpu")
NO_COPIES = wordset("tensor type ?")


@dataclass(eq=False)
class Dataset:
    """A dataset, and what its items cost and draw.

    Attributes:
        kind: ``project`` (a class of the user's), ``library``, ``tensors`` (TensorDataset),
            ``list`` or ``unknown``.
        iterable: an IterableDataset; ``sharded`` where it asks ``get_worker_info()`` how many
            workers there are.
        random: where its items draw random numbers: any of ``torch``, ``numpy``, ``python``,
            ``transform``, ``own`` (a generator object kept on the dataset, copied to every worker),
            ``unknown``.
        reads: what reading an item costs: any of ``file``, ``decode`` (images, audio), ``compute``
            (transforms, Python work); empty where an item is only indexed out of memory.
        in_memory: the data are tensors or arrays in memory.
        on_device: items live on the device already, in words.
        writes: attributes that fetching an item changes (a cache, a counter), in words: workers
            would change copies.
        set_outside: places outside the class that set an attribute of the dataset, or call a
            ``set_...`` method.
        unknown: why it is not known; empty where it is.
        unclear: where what its items draw is not known, in words.
    """

    thing: Thing
    kind: str
    node: Where
    name: str
    iterable: bool = False
    sharded: bool = False
    random: frozenset[str] = frozenset()
    reads: frozenset[str] = frozenset()
    in_memory: bool = False
    on_device: str = ""
    writes: tuple[str, ...] = ()
    set_outside: tuple[ast.AST, ...] = ()
    unknown: str = ""
    getitem: ast.FunctionDef | None = None
    unclear: str = ""


@dataclass(eq=False)
class Use:
    """One way a loader is consumed: a loop over it, or ``next(iter(loader))``."""

    node: ast.AST
    stack: Stack
    trains: bool  # a backward happens inside
    repeated: bool  # inside another loop (epochs), so it is iterated more than once
    is_next: bool = False


@dataclass(eq=False)
class Loader:
    """A ``torch.utils.data.DataLoader(...)`` of the program; ``node`` is the call that makes it.

    ``things`` are the loaders it makes (one for each way the script comes there); ``args`` holds
    the values of all.
    """

    things: list[Thing]
    node: ast.Call
    args: Arguments
    datasets: list[Dataset]
    uses: list[Use]
    moved: list[Transfer] = field(default_factory=list)  # where its batches go to a device
    loop: Where = None  # a loop around the place where it is made (not the epoch-free set-up)
    guarded: bool = True  # runs only below ``if __name__ == "__main__"``
    framework: str = ""  # made for Lightning, Accelerate, ...: who moves its batches
    batch: Values = NOTHING  # what a batch is made of; empty where nothing iterates the loader
    # Where its collate_fn draws random numbers, as in Dataset.random.
    collate_random: frozenset[str] = frozenset()
    collate_on_device: bool = False  # its collate_fn puts batches on a device
    kept: bool = False  # it takes whole batches of data on the device

    @property
    def trains(self) -> bool:
        return any(u.trains for u in self.uses)

    @property
    def drawn(self) -> frozenset[str]:
        """What its items and batches draw from, as in Dataset.random."""
        return self.collate_random.union(*(d.random for d in self.datasets))

    @property
    def name(self) -> str:
        return "DataLoader"


@dataclass(eq=False)
class Transfer:
    """``x.to(device)``, ``x.cuda()`` on a tensor (or something that may be one).

    Attributes:
        node: the call.
        how: ``to``, ``cuda``, ``cpu``, ``type``, ``type_as``.
        tensors: what may be moved.
        loaders: loaders whose batches these are (empty: not a batch).
        kinds: kinds of device it may go to: cpu, cuda, mps, accel, option, tensor, type, ?; empty
            for a dtype only.
        target: the device argument.
        loops: loops around it, outermost first.
        unknown: why the receiver is not known.
    """

    node: ast.Call
    how: str
    tensors: list[Tensor]
    loaders: list[Thing]
    kinds: set[str]
    target: Given | None
    args: Arguments
    loops: tuple[LoopFrame, ...]
    site: Site
    unknown: str = ""

    @property
    def operand(self) -> ast.expr | None:
        """``x`` of ``x.to(device)``; None where the method was taken before."""
        return receiver_of(self.node)

    @property
    def to_device(self) -> bool:
        """It may go to a GPU, and is certainly no copy back to the host, no cast and no copy beside
        another tensor.
        """
        return bool(self.kinds & GPUS) and not self.kinds & NO_COPIES

    @property
    def only_moves(self) -> bool:
        """``x.to(device)`` and ``x.cuda()``, with ``non_blocking`` at most: no cast, nothing like
        ``copy=True``.
        """
        return (
            self.how in ("to", "cuda")
            and "tensor" not in self.kinds
            and len(self.node.args) <= 1
            and {k.arg for k in self.node.keywords} <= {"device", "non_blocking"}
        )


@dataclass(eq=False)
class Backward:
    """``loss.backward()``; ``expr`` is what it is called on, scaler and divisor peeled off."""

    node: ast.Call
    expr: ast.expr
    site: Site
    scaled: bool = False  # through GradScaler.scale
    tensors: list[Tensor] = field(default_factory=list)
    double: bool = False  # create_graph=True
    framework: bool = False  # accelerator.backward, manual_backward, scale_loss


@dataclass(eq=False)
class Update:
    """``optimizer.step()`` or ``scaler.step(optimizer)``; ``optimizer`` is the expression of the
    optimizer.
    """

    node: ast.Call
    optimizer: ast.expr
    things: list[Thing]
    site: Site
    scaled: bool = False
    closure: bool = False


@dataclass(eq=False)
class Step:
    """A training loop: everything between fetching a batch and the update.

    ``loop`` is the innermost loop that holds forward, backward and update (also across function
    calls); the lists hold every place of a kind below it. ``body`` is the function (or module)
    whose code holds the backward.
    """

    loop: ast.AST
    loaders: list[Thing]
    forwards: list[Site]
    losses: list[Site]
    backwards: list[Backward]
    updates: list[Update]
    zeros: list[Site]
    clips: list[Site]
    unscales: list[Site]
    scaler_updates: list[Site]
    grad_reads: list[Site]
    schedules: list[Site]
    double_backward: list[ast.AST]
    # Existing autocast contexts around the forward (or apex, or a framework's).
    autocast: list[ast.AST]
    scalers: list[Thing]
    models: list[Thing]
    stack: Stack = ()

    @property
    def optimizers(self) -> list[Thing]:
        seen: dict[int, Thing] = {}
        for update in self.updates:
            for thing in update.things:
                seen[id(thing)] = thing
        return list(seen.values())


@dataclass(eq=False)
class Evaluation:
    """Forward passes whose results no backward reaches.

    Attributes:
        node: the loop, ``with`` block, function or statement that holds them; ``kind`` says which
            (``loop``, ``with``, ``function``, ``decorator`` for a function with a grad mode as
            decorator, ``statement``).
        mode: the gradient mode there: on | off | inference | maybe.
        context: the existing ``no_grad`` expression (in a ``with`` item or decorator), if there is
            one.
        escapes: how a tensor made inside may come to autograd outside; empty where none can (see
            :mod:`autofast.read.recover.escapes`).
        unknown: where gradients are on: why they must not be switched off; empty where nothing
            needs them.
        shared: the passes stand in code that training runs, too; only the way to them is one of an
            evaluation.
        whole: the same, with all of the function whose block directly holds the ``node``, where
            nothing in that needs gradients or makes a network; None otherwise.
    """

    node: ast.AST
    kind: str
    mode: str
    forwards: list[Site]
    context: ast.expr | None = None
    escapes: str = ""
    unknown: str = ""
    shared: bool = False
    whole: Evaluation | None = None


@dataclass(eq=False)
class Sync:
    """A read of a tensor's value by the host: ``.item()``, ``float(t)``, ``.tolist()``,
    ``.cpu().numpy()``.

    Attributes:
        node: the call.
        how: item, float, int, bool, tolist, numpy.
        loop: the innermost batch loop (of a step or an evaluation) it runs in on every iteration,
            None outside.
        gated: it runs only under a condition inside that loop (every ``log_interval`` steps).
        training: whether the loop trains.
        tensors: what is read.
    """

    node: ast.Call
    how: str
    loop: Where
    gated: bool
    training: bool
    tensors: list[Tensor]
    unknown: bool
    site: Site


@dataclass(eq=False)
class Optimizer:
    """A ``torch.optim`` optimizer made at ``node``; ``name`` is its class (``AdamW``)."""

    things: list[Thing]
    node: ast.Call
    name: str
    args: Arguments
    params: list[Thing]  # models whose parameters it gets; empty where that is not known
    updates: list[Update]


@dataclass(eq=False)
class Tick:
    """``scheduler.step()``; ``scheduler`` is the expression of the scheduler, ``things`` what it
    may be.

    ``unit`` says when it happens: ``update`` (in a training loop, once a batch or update),
    ``epoch`` (in a loop around one), ``other``.
    """

    node: ast.Call
    scheduler: ast.expr
    things: list[Thing]
    site: Site
    unit: str

    @property
    def given(self) -> bool:
        """It is given a metric or an epoch."""
        return bool(self.node.args or self.node.keywords)


@dataclass(eq=False)
class Scheduler:
    """A learning-rate scheduler of ``torch.optim.lr_scheduler`` (or a class of the project that
    extends one), made at ``node``.

    Attributes:
        name: its class (``CosineAnnealingLR``); ``own`` where that is one of the project.
        optimizers: whose learning rates it sets.
        updates: every place where one of these is stepped.
        inner: the schedulers that a SequentialLR or ChainedScheduler is made of; ``outer`` where it
            is part of one.
        ticks: the places that step it.
    """

    things: list[Thing]
    node: ast.Call
    name: str
    args: Arguments
    own: bool
    optimizers: list[Thing]
    updates: list[Update]
    ticks: list[Tick]
    inner: list[Thing] = field(default_factory=list)
    outer: bool = False

    @property
    def ways(self) -> list[Stack]:
        """The ways of the script to the place where it is made."""
        return [t.made for t in self.things if isinstance(t, OBJECTS)]


@dataclass(eq=False)
class Model:
    """An ``nn.Module`` that the program trains or evaluates (the outermost one of each forward).

    ``moves`` are the ``.to(device)`` / ``.cuda()`` calls on it, ``wraps`` the DDP / DataParallel /
    compile calls. ``layers`` are the names of all torch layers below it (``Conv2d``), ``unknown``
    why they are not known.
    """

    thing: Ext | Inst
    node: Where
    name: str
    forwards: list[Site]
    moves: list[Site]
    wraps: list[Ext]
    layers: frozenset[str]
    unknown: str = ""
    # Its class and the project classes below it.
    classes: list[ast.ClassDef] = field(default_factory=list)
    dtype: str = ""


@dataclass(eq=False)
class Trainer:
    """An object of a framework that owns the training loop, or the precision of one; ``node`` is
    the call that makes it.

    Attributes:
        framework: ``lightning``, ``lightning-cli``, ``fabric``, ``hf-trainer`` or ``accelerate``;
            ``name`` is its class there.
        things: the objects; ``args`` holds the arguments of all.
        settings: of the Hugging Face Trainer: the TrainingArguments it may get; ``unknown`` why it
            may get others.
        models: of the Hugging Face Trainer: what it trains.
        loader: of the Hugging Face Trainer: the loader that it makes itself of its
            ``train_dataset``, as if it stood in the script.
    """

    framework: str
    name: str
    node: ast.Call
    things: list[Ext | Inst]
    args: Arguments
    settings: list[Ext | Inst] = field(default_factory=list)
    unknown: str = ""
    models: list[Thing] = field(default_factory=list)
    loader: Loader | None = None
