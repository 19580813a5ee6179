"""What one step of a training costs, on the host and on the device."""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from math import prod

from autofast.facts.by_default import not_by_default
from autofast.facts.cost import machine
from autofast.facts.cost.inputs import batch_size, item_shape
from autofast.facts.cost.machine import Machine, seconds
from autofast.facts.cost.matmul_layers import PRODUCTS, dense_sizes
from autofast.facts.cost.network import Network
from autofast.facts.cost.run_counts import Often
from autofast.facts.cost.shapes import TRAINED, Shape, Unsized, Work
from autofast.flow.frequency import Frequency, frequency, is_rare
from autofast.flow.program import Flow, graph_of
from autofast.model.calls import is_method, keyword_of, literal_of, spread_out
from autofast.model.events import (
    BranchFrame,
    CallFrame,
    LoopFrame,
    Occurrence,
    Site,
    Stack,
    below,
    inside,
    loops,
)
from autofast.model.names import last_part
from autofast.model.roles import Loader, Step
from autofast.model.script import Script
from autofast.model.several import all_known, any_in, not_none, one, wordset
from autofast.model.source import Nodes, at, statement_of
from autofast.model.syntax import LOOPS
from autofast.model.values import Ext, Tensor, Thing, of_kind

ROWS = 64  # of an item whose shape is not known, for a network of nothing but dense layers
BATCH = 4096  # rows that are given to such a network, where that is not known either
HEAD = 32  # numbers of a row that a head of attention takes, at the least
LARGEST = 512  # side of images that a network is tried with
# Work that is not in the layers of a model.
HEAVY = wordset("""matmul mm bmm einsum baddbmm addmm cdist tensordot linear bilinear conv1d conv2d conv3d unfold interpolate
    scaled_dot_product_attention multi_head_attention_forward grid_sample fft svd cholesky solve""")
MULTIPLY = HEAVY | {"forward", "call_object"}
Product = tuple[ast.AST, str, Thing | None, Stack]  # a place, its operation, its layer, the way
Sized = tuple[Shape, int]  # of an item, and how many there are
DEEP = 8
UPDATE = 5  # kernels of an optimizer's step over all its parameters, in groups


@dataclass(frozen=True)
class Estimate:
    """One step. Times on the device are too long rather than too short, those of the host too short
    rather than too long.

    Attributes:
        kernels: that are launched.
        host: seconds to issue them.
        convolutions, products, memory: seconds on the device.
        parameters: numbers of them; ``tensors`` that they are in.
        data: seconds until a batch is made; ``apart``: by the process that trains, which does
            nothing else meanwhile; else by workers, beside the step.
        at_most: seconds on the device, at the most.
        why: why the work on the device is not known; empty where it is.
    """

    kernels: int
    host: float
    convolutions: float
    products: float
    memory: float
    parameters: int
    tensors: int
    overlaps: bool = True
    data: float = 0.0
    apart: bool = False
    at_most: float = 0.0
    why: str = ""

    @classmethod
    def unknown(cls, why: str, kernels: int) -> Estimate:
        """A step of which the host's time is known, at the least."""
        host = kernels * machine.GPU.launch + machine.GPU.step
        return cls(kernels, host, 0.0, 0.0, 0.0, 0, 0, why=why)

    @property
    def device(self) -> float:
        return self.convolutions + self.products + self.memory

    def saved(
        self, convolutions: float = 1, products: float = 1, memory: float = 1, more: int = 0
    ) -> float:
        """The share of a step's time that is saved where the work on the device takes this part of
        its time, with ``more`` kernels.
        """
        device = self.convolutions * convolutions + self.products * products + self.memory * memory
        host = self.host * (self.kernels + more) / self.kernels
        return max(0.0, 1 - self._with(host, device) / self.seconds)

    def fused(self, launches: float, accesses: float) -> float:
        """The share of a step's time that its update saves: so many seconds of launches, and so
        many seconds of memory.
        """
        return 1 - self.seconds / self._with(self.host + launches, self.device + accesses)

    @property
    def seconds(self) -> float:
        """What a step takes."""
        return self._with(self.host, self.device)

    def _with(self, host: float, device: float) -> float:
        busy = max(host, device) if self.overlaps else host + device
        return busy + self.data if self.apart else max(busy, self.data)

    @property
    def likely(self) -> float:
        """The same, or what is usual, where the device may take longer than is known."""
        return max(self.seconds, machine.USUAL) if self.why else self.seconds

    @property
    def waits(self) -> bool:
        """For data, whatever the device takes, and a host that is slower by half."""
        return not self.apart and self.data > max(1.5 * self.host, self.at_most)

    @property
    def words(self) -> str:
        """What a step is made of."""
        if self.overlaps and self.data > max(self.host, self.at_most):
            return f"waits for data, which takes {seconds(self.data)} a batch"
        bound = "launches" if self.host >= self.device else "arithmetic"
        most = "" if self.why else f", {seconds(self.device)} of arithmetic at most"
        return f"bound by {bound}: {seconds(self.host)} of launches{most}"


class Cost(Often):
    """``script.analysis(Cost)``: estimates of a script's training."""

    def __init__(self, script: Script):
        super().__init__(script)
        self._estimates: dict[Machine, Estimate | str] = {}
        self._given: dict[int, Sized] = {}  # by the network, in the step that is looked at

    def estimate(self, target: str = "cuda") -> Estimate | str:
        """The step that costs most on the device; why it is not known where one is not."""
        return self._estimate(machine.CPU if target == "cpu" else machine.GPU, ROWS)

    def least(self) -> Estimate | str:
        """The same on a CPU, with arithmetic too short rather than too long."""
        return self._estimate(machine.FAST_CPU, 1)

    def _estimate(self, on: Machine, rows: int) -> Estimate | str:
        if on not in self._estimates:
            self._estimates[on] = self._computes() or self._longest(on, rows)
        return self._estimates[on]

    def most(self, rows: int, batch: int) -> float | None:
        """Seconds that an item of so many rows takes on a GPU, at the most; None where anything but
        dense layers of known sizes, and products of what these give, may multiply matrices, or
        where a loop in the step turns as often as nobody knows.
        """
        known = all_known(self._most(step, rows, batch) for step in self.training)
        return max(known, default=None)

    def _most(self, step: Step, rows: int, batch: int) -> float | None:
        flop = numbers = between = widest = 0
        for _, name, thing, stack in self.script.of_node(_multiplying, step.loop):
            turns = [self.counted(loop) for loop in loops(below(stack, step.loop))]
            sizes = dense_sizes(self.script, thing) if isinstance(thing, Ext) else []
            if name not in PRODUCTS | {"forward"} or sizes is None or None in turns:
                return None
            times = prod(all_known(turns))
            between += times * (name != "forward")
            for into, out in sizes:
                flop += times * into * out
                numbers += times * out
                widest = max(widest, into, out)
        pairs, on = between * max(rows, batch) * widest, machine.GPU
        memory = 4 * machine.PASSES * (numbers + pairs / HEAD) / on.memory
        return rows * (2 * TRAINED * (flop + pairs) / on.products + memory)

    def _longest(self, on: Machine, rows: int) -> Estimate | str:
        found: list[Estimate] = []
        if not self.script.steps:
            return "the training loop is not in the script"
        for step in self.training:
            try:
                found.append(self._step(step, on, rows))
            except Unsized as why:
                return str(why)
        return max(found, key=lambda e: e.device / e.host)

    def _step(self, step: Step, on: Machine, rows: int) -> Estimate:
        total = Work()
        self._given.clear()
        passes = [(s, o) for s, o in _passes(step) if self._is_in(s.node, step)]
        if not passes:
            raise Unsized("what runs in a step is not known")
        if len({id(s) for s, _ in passes}) > 1 and any(
            isinstance(f, LoopFrame) for _, o in passes for f in below(o.stack, step.loop)
        ):
            raise Unsized("how often a loop in the step turns is not known")
        for site, occurrence in passes:
            assert occurrence.this is not None
            work, batch = self._pass(occurrence.this, site.node, occurrence, rows)
            total.add(work, batch)
        kernels = total.kernels + UPDATE * max(1, len(step.updates)) + 2 * len(step.losses)
        return Estimate(
            kernels,
            kernels * on.launch + on.step,
            total.convolutions / on.convolutions,
            total.products / on.products,
            total.activations * 4 * machine.PASSES / on.memory,
            total.parameters,
            total.tensors,
            on.overlaps,
        )

    def _is_in(self, node: ast.AST, step: Step) -> bool:
        """Whether a place runs as the update does: not a test every 50 steps; not what acts in
        every iteration, where few of them train.
        """
        if not isinstance(step.loop, LOOPS):
            return True
        graph = graph_of(self.script, step.loop)
        here, *updates = (
            frequency(graph, n, step.loop) is Frequency.RARE
            for n in (node, *(u.node for u in step.updates))
        )
        return here is bool(updates and all(updates))

    def _computes(self) -> str:
        """Where a step multiplies outside of its networks, which count what they do."""
        known = (self.script.of_node(_multiplying, step.loop) for step in self.training)
        for node, kind, _, way in (found for each in known for found in each):
            inner = (f.func.name for f in way if isinstance(f, CallFrame))
            if kind != "forward" and "forward" not in inner:
                return f"what {at(node)} computes is not known"
        return ""

    def is_elsewhere(self, stack: Stack) -> bool:
        """Whether an item of a dataset is made there, on the host, or no step comes there."""
        made = any(isinstance(f, CallFrame) and f.func.node in self._on_host for f in stack)
        return made or self._is_beside(stack)

    def _is_beside(self, stack: Stack) -> bool:
        """Whether a way certainly leads past the steps: in a loop over other batches, now and then,
        or where an option has to be given.
        """
        over = (f.node for f in loops(stack) if f.loaders)
        return (
            not all(node in self._around for node in over)
            or any(isinstance(f, BranchFrame) and is_rare(f) for f in stack)
            or bool(not_by_default(self.script, [stack]))
        )

    @cached_property
    def _around(self) -> Nodes:
        """The loops of the steps, and those around them."""
        steps = self.training
        return {s.loop for s in steps} | {f.node for s in steps for f in loops(s.stack)}

    @cached_property
    def _on_host(self) -> Nodes:
        """The functions that make items of datasets, where these stay on the host."""
        datasets = [d for x in self.script.loaders for d in x.datasets if not d.on_device]
        return {d.getitem for d in datasets if d.getitem is not None}

    # ------------------------------------------------------------------------ passes through models
    def _pass(
        self, thing: Thing, call: ast.AST, occurrence: Occurrence, rows: int
    ) -> tuple[Work, int]:
        """What a pass costs for each item of a batch, and how many there are; ``rows`` of an item
        whose shape is not known.
        """
        found = self._loaders(_inputs(occurrence))
        sizes = {batch_size(x) for x in found}
        shapes = {item_shape(self.script, d) for x in found for d in x.datasets}
        batch = max(all_known(sizes), default=0)
        batch = batch or self.named
        tried: list[Shape] = not_none(shapes) if batch and len(shapes) == 1 else []
        if not found and (made := self._of_others(call)) is not None:
            tried, batch = [made[0]], made[1]
        for shape in (*tried, Shape(None, (rows if batch else 1,))):
            with suppress(Unsized):  # what comes to it may have another shape than a loader gives
                return self._through(thing, shape, batch or BATCH)
        square = Shape(None, self._square(thing)) if batch else Shape(None)
        return self._through(thing, square, batch)

    def _of_others(self, call: ast.AST) -> Sized | None:
        """What comes to a network of those that the step has come through before, and how many
        items; None where that is not known.
        """
        given = call.args if isinstance(call, ast.Call) and not call.keywords else []
        return self._sized(given[0]) if len(given) == 1 else None

    def _sized(self, expr: ast.expr, depth: int = 0) -> Sized | None:
        """``torch.cat((net(a), net(b)), 0).detach()`` has the items of two batches."""
        value = self.script.analysis(Flow).value(expr) or expr
        if is_method(value, "detach", "clone", "contiguous") and depth < DEEP:
            return self._sized(value.func.value, depth + 1)
        if self.script.is_call(value, "torch.cat") and depth < DEEP:
            along = keyword_of(value, "dim") or next(iter(value.args[1:]), None)
            parts = spread_out(value.args[:1]) if literal_of(along) in (0, None) else []
            known = [self._sized(part, depth + 1) for part in parts]
            shapes = {sized[0] if sized else None for sized in known}
            shape = one(shapes)
            return (shape, sum(n for _, n in not_none(known))) if shape is not None else None
        called = one(self.script.called(value))
        return None if called is None else self._given.get(id(called))

    def _through(self, thing: Thing, shape: Shape, batch: int = 1) -> tuple[Work, int]:
        network = Network(self.script)
        self._given[id(thing)] = network.run(thing, shape), batch
        return network.work, batch

    def _square(self, thing: Thing) -> tuple[int, int]:
        """The largest images that fit a network which has a dense layer behind its convolutions."""

        def over(side: int) -> int:
            try:
                self._through(thing, Shape(None, (side, side)))
            except Unsized as why:
                if not why.over:
                    raise
                return why.over
            return 0

        fits = bisect_right(range(LARGEST + 1), 0, lo=1, key=over) - 1
        if fits in (0, LARGEST) or over(fits):
            raise Unsized("the size of its images is not known")
        return fits, fits

    def _loaders(self, inputs: list[Tensor]) -> list[Loader]:
        things = {t for tensor in inputs for t in tensor.batch}
        return [x for x in self.script.loaders if any_in(x.things, things)]


def _multiplying(script: Script, loop: ast.AST) -> list[Product]:
    """Layers and products in the steps of a loop, and calls of what is not known."""
    cost = script.analysis(Cost)
    ways: list[Product] = [
        (site.node, last_part(kind), o.this, o.stack)
        for (kind, _), site in script.log.each()
        for o in site
    ]
    for node in _products(script):
        ways += [(node, "matmul", None, way) for way in cost.ways(statement_of(node))]
    return [
        one
        for one in ways
        if one[1] in MULTIPLY and inside(one[3], loop) and not cost.is_elsewhere(one[3])
    ]


def _passes(step: Step) -> Iterator[tuple[Site, Occurrence]]:
    """Each model at each place where every step calls it: not for samples now and then."""
    seen: set[tuple[int, int]] = set()
    updated = {
        f.way for u in step.updates for o in u.site for f in o.stack if isinstance(f, BranchFrame)
    }
    for site in step.forwards:
        for occurrence in site:
            key = id(site), id(occurrence.this)
            rare = any(
                isinstance(f, BranchFrame) and is_rare(f) and f.way not in updated
                for f in below(occurrence.stack, step.loop)
            )
            if occurrence.this is not None and key not in seen and not rare:
                seen.add(key)
                yield site, occurrence


def _inputs(occurrence: Occurrence) -> list[Tensor]:
    return of_kind(occurrence.data.get("inputs", ()), Tensor)


def _products(script: Script) -> list[ast.BinOp]:
    found = (n for n in script.each(ast.BinOp) if isinstance(n.op, ast.MatMult))
    return [n for n in found if script.may_be(n, Tensor)]
