"""What was measured of a script, where the cost model would estimate: the one place that asks for
it.

Times of the host hold on any device: making a batch costs what it costs. What share of a step that
is, and all that the device does, was measured on one kind of device, and decides only where the
script is rewritten for that kind.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autofast.facts.cost import machine
from autofast.facts.cost.machine import Machine, seconds
from autofast.facts.cost.step import Estimate
from autofast.model.measured import Facts, Fetches, at
from autofast.model.roles import Loader
from autofast.model.script import Script
from autofast.rule import Gain

WARM = 2  # steps before those in which copies and reads were watched
MOST_IDLE = 0.4  # share of a step: a GPU that idles longer waits for the host


@dataclass(frozen=True)
class Waiting:
    """For batches of loaders. share: of the training's time. batch: seconds of one, the longest."""

    share: float
    batch: float
    workers: int

    @property
    def words(self) -> str:
        by = f" of {self.workers} workers" if self.workers > 1 else " of a worker"
        return (
            f"{percent(self.share)} of the time waits for data, {seconds(self.batch)} for a batch"
            f"{by if self.workers else ''}"
        )


def percent(share: float) -> str:
    """``38 %``."""
    return f"{100 * share:.0f} %" if share >= 0.01 else "less than 1 %"


def gain(share: float, reason: str, known: bool = True) -> Gain:
    """What a fix saves of the training by what was measured."""
    return Gain(min(1.0, max(0.0, share)), reason, known, measured=True)


def for_target(script: Script, target: str) -> Facts | None:
    """The facts, where they are of the device that the script is rewritten for."""
    facts = script.facts
    return facts if facts is not None and (facts.device == "cpu") == (target == "cpu") else None


# ------------------------------------------------------------------------------------------ loaders
def fetches(script: Script, loader: Loader) -> list[Fetches]:
    """Of one loader; nothing where another stands in its line, or where it was not iterated."""
    if script.facts is None:
        return []
    found = at(script.facts.fetches, [loader.node])
    others = [x.node for x in script.loaders if x.node is not loader.node]
    return [] if at(found, others) else found


def waiting(script: Script, loaders: Sequence[Loader]) -> Waiting | None:
    """How long the training waits for batches of ``loaders``; None where one gave none."""
    facts = script.facts
    if facts is None or not loaders or not facts.step:
        return None
    by_place = {loader.node: fetches(script, loader) for loader in loaders}
    if not all(by_place.values()):
        return None
    found = [one for same in by_place.values() for one in same]
    whole = facts.step * (facts.steps + WARM)
    return Waiting(
        min(1.0, sum(one.waited * one.batches for one in found) / whole),
        max(one.waited for one in found),
        max(one.workers for one in found),
    )


def is_costly(script: Script, loader: Loader) -> bool | None:
    """Whether making a batch takes so long that a worker pays; None where that was not measured."""
    found = fetches(script, loader)
    return max(one.batch for one in found) >= machine.COSTLY if found else None


def made(script: Script, loader: Loader) -> str:
    """That a batch is made too fast for a worker to pay, in words."""
    batch = max(one.batch for one in fetches(script, loader))
    return f"measured: a batch is made in {seconds(batch)}, which no worker is worth"


# ------------------------------------------------------------------------------------------- places
def reading(script: Script, target: str, nodes: Iterable[ast.AST]) -> Gain | None:
    """Of reads in ``nodes`` that are put off: no more than they wait for, nor the device idles."""
    facts = for_target(script, target)
    found = at(facts.reads, nodes) if facts is not None else []
    if facts is None or not found or not facts.step or not facts.steps:
        return None
    waited = sum(one.seconds for one in found) / facts.steps
    share = waited / facts.step
    told = f"{seconds(waited)} of a step wait for the device here, {percent(share)}"
    if facts.idle is not None and facts.idle < share:
        return gain(facts.idle, f"{told}, and the GPU idles {percent(facts.idle)} of it")
    return gain(share, told)


def copying(script: Script, target: str, nodes: Iterable[ast.AST]) -> Gain | None:
    """Of copies to the device in ``nodes``: no more than the host spends on them."""
    facts = for_target(script, target)
    found = at(facts.copies, nodes) if facts is not None else []
    if facts is None or not found or not facts.step or not facts.steps:
        return None
    spent = sum(one.seconds for one in found) / facts.steps
    moved = sum(one.bytes for one in found) / facts.steps
    size = f"{moved / 1e6:,.1f} MB" if moved >= 1e5 else f"{moved / 1e3:,.1f} kB"
    share = spent / facts.step
    return gain(share, f"{seconds(spent)} of a step copy {size} to the device, {percent(share)}")


def measured_variation(script: Script, nodes: Iterable[ast.AST]) -> str:
    """How the shapes that models are called with in ``nodes`` vary, in words; empty where they do
    not, or were not seen.
    """
    found = at(script.facts.forwards, nodes) if script.facts is not None else []
    for one in found:
        if not one.fixed:
            more = " or more" if one.others else ""
            return f"{len(one.shapes)}{more} shapes in {one.calls} calls"
    return ""


# ------------------------------------------------------------------------------------------- a step
def step(script: Script, target: str, on: Machine) -> tuple[Estimate, str] | None:
    """A step as it was measured, without the wait for data, and that in words; None where too
    little of it was.
    """
    facts = for_target(script, target)
    if facts is None or facts.operations is None or not facts.step:
        return None
    apart = ("data", "evaluation", "transfer", "communication")
    rest = facts.step * (1 - sum(facts.phases.get(name, 0.0) for name in apart))
    kernels = max(1, round(facts.operations))
    launches = facts.operations * on.launch
    if rest <= 0:
        return None
    count = f"about {facts.operations:,.0f} {'kernels' if on.overlaps else 'operations'}"
    if not on.overlaps:
        host = min(rest, launches)
        told = f"{count} take {seconds(rest)} of a step"
        return Estimate(kernels, host, 0, rest - host, 0, 0, 0, False), told
    if facts.idle is None:
        return None
    device = min(rest, facts.step * (1 - facts.idle))
    waits = sum(one.seconds for one in facts.reads) / max(1, facts.steps)
    # A device that idles though nothing waits for it has its work handed out too slowly.
    bound = 1 - device / rest >= MOST_IDLE and waits < 0.05 * rest
    host = rest if bound else min(rest, launches + on.step)
    told = f"{count} in {seconds(rest)} of a step, of which the GPU is at work {seconds(device)}"
    return Estimate(kernels, host, 0, device, 0, 0, 0), f"{'bound by launches: ' * bound}{told}"
