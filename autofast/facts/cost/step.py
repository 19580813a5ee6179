"""What one step of a training costs, on the host and on the device."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from autofast.facts.by_default import not_by_default, not_made_by_default
from autofast.facts.cost import machine
from autofast.facts.cost.inputs import batch_size
from autofast.facts.cost.machine import Machine, seconds
from autofast.facts.cost.matmul_layers import PRODUCTS, dense_sizes
from autofast.facts.cost.meta.tensor import TRAINED
from autofast.facts.cost.passes import Passes
from autofast.facts.cost.run_counts import Often
from autofast.facts.cost.work import Unsized
from autofast.flow.frequency import Frequency, frequency, is_rare
from autofast.flow.program import graph_of
from autofast.model.contents import without_wrappers
from autofast.model.events import (
    BranchFrame,
    CallFrame,
    Occurrence,
    Site,
    Stack,
    below,
    inside,
    loops,
    way_of,
)
from autofast.model.names import WRAPPERS, last_part
from autofast.model.roles import Loader, Step
from autofast.model.script import Script
from autofast.model.several import all_known, any_in, grouped, wordset
from autofast.model.source import Nodes, at, statement_of
from autofast.model.syntax import LOOPS
from autofast.model.values import Ext, Tensor, Thing, is_named, of_kind

ROWS = 64  # of an item whose shape is not known, for a network of nothing but dense layers
BATCH = 4096  # rows that are given to such a network, where that is not known either
HEAD = 32  # numbers of a row that a head of attention takes, at the least
LARGEST = 512  # side of images that a network is tried with
# Work that is not in the layers of a model.
HEAVY = wordset("""matmul mm bmm einsum baddbmm addmm cdist tensordot linear bilinear conv1d conv2d conv3d unfold interpolate
    scaled_dot_product_attention multi_head_attention_forward grid_sample fft svd cholesky solve""")
MULTIPLY = HEAVY | {"forward", "call_object"}
Product = tuple[ast.AST, str, Thing | None, Stack]  # a place, its operation, its layer, the way
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
        narrow: the layers that multiply matrices are narrow, or few and small.
        why: what of the work on the device is not known, so that its times are those of a usual
            batch; empty where it is.
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
    narrow: bool = False
    why: str = ""

    @classmethod
    def unknown(cls, why: str) -> Estimate:
        """A step of which nothing is known."""
        return cls(0, machine.GPU.step, 0.0, 0.0, 0.0, 0, 0, why=why)

    def with_kernels(self, kernels: int) -> Estimate:
        """The same, where at least so many kernels are launched."""
        host = kernels * machine.GPU.launch + machine.GPU.step
        return replace(self, kernels=kernels, host=host) if kernels > self.kernels else self

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
        # a host and a device that are neither fast nor slow
        usual = replace(self.with_faster_device(2), host=2 * self.host)
        slower = usual._with(usual.host + 2 * launches, usual.device + accesses)
        return 1 - usual.seconds / slower

    def with_faster_device(self, times: float) -> Estimate:
        """The same on a device that is so many times as fast."""
        return replace(
            self,
            convolutions=self.convolutions / times,
            products=self.products / times,
            memory=self.memory / times,
        )

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
        self._estimates: dict[Machine, Estimate] = {}

    def estimate(self, target: str = "cuda") -> Estimate:
        """The step that costs most on the device."""
        return self._estimate(machine.CPU if target == "cpu" else machine.GPU, ROWS)

    def least(self) -> Estimate:
        """The same on a CPU, with arithmetic too short rather than too long."""
        return self._estimate(machine.FAST_CPU, 1)

    def _estimate(self, on: Machine, rows: int) -> Estimate:
        if on not in self._estimates:
            self._estimates[on] = self._longest(on, rows)
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

    def _longest(self, on: Machine, rows: int) -> Estimate:
        if not self.script.steps:
            return Estimate.unknown("the training loop is not in the script")
        found: list[Estimate] = []
        for step in self.training:
            try:
                found.append(self._step(step, on, rows))
            except Unsized as why:
                found.append(Estimate.unknown(str(why)))
        longest = max(found, key=lambda e: e.device / e.host)
        reason = next((e.why for e in found if e.why), "")
        narrow = all(e.narrow for e in found)
        return replace(longest, narrow=narrow, why=longest.why or reason)

    def _step(self, step: Step, on: Machine, rows: int) -> Estimate:
        found = [(s, o) for s, o in _passes(step) if self._is_in(s.node, step)]
        found = [(s, o) for s, o in found if inside(o.stack, step.loop)] or found
        found = [(s, o) for s, o in found if not not_by_default(self.script, [o.stack])] or found
        if not found:
            raise Unsized("what runs in a step is not known")
        places = [*grouped(((s.node, way_of(o.stack)), o) for s, o in found).values()]
        places = [self._usual(several) for several in places]
        counted = [[self.counted(f) for f in loops(below(p[0].stack, step.loop))] for p in places]
        times = [prod(n or 1 for n in each) for each in counted]
        whole = [*zip(places, times, strict=True)]
        work, why = Passes(self.script, whole, self._batch([o for _, o in found]), rows).work()
        if not why and any(None in each for each in counted):
            why = "how often a loop in the step turns is not known"
        kernels = int(work.kernels) + UPDATE * max(1, len(step.updates)) + 2 * len(step.losses)
        return Estimate(
            kernels,
            kernels * on.launch + on.step,
            work.convolutions / on.convolutions,
            work.products / on.products,
            work.activations * 4 * machine.PASSES / on.memory,
            work.parameters,
            work.tensors,
            on.overlaps,
            narrow=work.narrow,
            why=why or self._computes(),
        )

    def _usual(self, several: list[Occurrence]) -> list[Occurrence]:
        """Those by networks that are made while options have their defaults, if there are such."""
        if len(several) < 2:
            return several
        inner = [o for o in several if not is_named(o.this, Ext, WRAPPERS)] or several
        usual = [o for o in inner if not not_made_by_default(self.script, o.this)] or inner
        return [*{tuple(map(id, without_wrappers(o.this))): o for o in usual}.values()]

    def _batch(self, passes: list[Occurrence]) -> int:
        """How many items a batch has; 0 where that is not known."""
        found = self._loaders([x for o in passes for x in _inputs(o)])
        return max(all_known({batch_size(x) for x in found}), default=0) or self.named

    def _is_in(self, node: ast.AST, step: Step) -> bool:
        """Whether a place runs as the backward does: not a test every 50 steps; not what acts in
        every iteration, where few of them train.
        """
        if not isinstance(step.loop, LOOPS):
            return True
        graph = graph_of(self.script, step.loop)
        here, *trains = (
            frequency(graph, n, step.loop) is Frequency.RARE
            for n in (node, *(t.node for t in step.backwards or step.updates))
        )
        return here is bool(trains and all(trains))

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
    seen: set[tuple[object, ...]] = set()
    updated = {
        f.way for u in step.updates for o in u.site for f in o.stack if isinstance(f, BranchFrame)
    }
    for site in step.forwards:
        for occurrence in site:
            here = below(occurrence.stack, step.loop)
            turns = tuple(f.turn for f in loops(here) if f.unrolled)
            key = id(site), id(occurrence.this), turns
            rare = any(
                isinstance(f, BranchFrame) and is_rare(f) and f.way not in updated for f in here
            )
            if occurrence.this is not None and key not in seen and not rare:
                seen.add(key)
                yield site, occurrence


def _inputs(occurrence: Occurrence) -> list[Tensor]:
    return of_kind(occurrence.data.get("inputs", ()), Tensor)


def _products(script: Script) -> list[ast.BinOp]:
    found = (n for n in script.each(ast.BinOp) if isinstance(n.op, ast.MatMult))
    return [n for n in found if script.may_be(n, Tensor)]
