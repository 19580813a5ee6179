"""The time of a step, with what the fixes beside make of it: what any of them saves is held against
the slowest part of that.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Sequence
from dataclasses import replace

from autofast.facts.cost import machine
from autofast.facts.cost.bounds import largest_value
from autofast.facts.cost.gains.asking import is_written_at, loaders_of, touched_nodes
from autofast.facts.cost.gains.standing import waited
from autofast.facts.cost.inputs import batch_size
from autofast.facts.cost.items import LIKELY, making, rows_of
from autofast.facts.cost.recurrent_cells import Cells
from autofast.facts.cost.step import Cost, Estimate
from autofast.facts.loaders import has_no_workers, loader_argument
from autofast.flow.provenance import Trail
from autofast.model.kinds import ways_made
from autofast.model.roles import Loader
from autofast.model.script import Script
from autofast.model.several import all_known
from autofast.rule import Finding, Options, Question

AT_ONCE: set[Question] = set()  # of fixes that make a batch at once
TO_DEVICE: set[Question] = set()  # of those among them that put all data on the device


def step_of(script: Script, options: Options, beside: tuple[Finding, ...]) -> Estimate:
    """A step of the training, and the batch that it waits for. Where the work of the device is not
    known, what the host takes, at the least, and as much of the device as it takes at the most.
    """
    cost = script.analysis(Cost)
    step = cost.estimate(options.target)
    if options.target == "cpu":
        return step
    if step.why:
        step = step.with_kernels(script.analysis(Cells).kernels)
        step = replace(step, host=step.host + machine.ROUND * waited(script, beside))
    trained = [x for x in script.loaders if "training" in cost.purposes(x)]
    supplies = [_supply(script, x, beside) for x in trained]
    data, workers, batch = min(supplies, default=(0.0, 0, 0))
    rows = all_known(rows_of(script, d) for x in trained for d in x.datasets)
    each = cost.most(max(rows, default=0), batch) or machine.TAKEN
    most = (
        each * batch if step.why else step.device * (machine.CONVOLVED if step.convolutions else 1)
    )
    return replace(step, data=data, apart=not workers, at_most=most)


def _supply(script: Script, loader: Loader, beside: Sequence[Finding]) -> tuple[float, int, int]:
    """Seconds until a batch of a loader is there, at the least where the process that trains makes
    it; the workers that do, and its items.
    """
    workers = workers_of(script, loader, beside)
    size = batch_size(loader) or script.analysis(Cost).named  # of a sampler of the project
    at_once = _is_written(script, loader, beside, AT_ONCE)
    made = 0.0 if at_once else making(script, loader, size)
    return made / (workers or LIKELY), workers, size


def _is_written(
    script: Script, loader: Loader, beside: Sequence[Finding], asks: Container[object]
) -> bool:
    """Whether a fix that asks one of these questions is written for a loader."""
    there = (f.node for f in beside if f.edits and f.asks in asks)
    return any(loader in loaders_of(script, node) for node in there)


def workers_of(script: Script, loader: Loader, beside: Sequence[Finding]) -> int:
    """The processes that batches come out of, by an option's default or by what is written."""
    if _is_written(script, loader, beside, TO_DEVICE):
        return 0
    asked = loader_argument(loader, "num_workers")
    few = 0 if has_no_workers(loader) else machine.WORKERS
    few = (largest_value(script, asked.expr) or few) if few and asked is not None else few
    return max(few, machine.WORKERS) if is_given_workers(script, loader, beside) else few


def is_given_workers(script: Script, loader: Loader, beside: Sequence[Finding]) -> bool:
    """Whether the number of its workers is written, or changed where it comes from."""
    changed = {place for f in beside if f.edits for place in touched_nodes(f)}
    for edit in (e for f in beside for e in f.edits if getattr(e, "name", "") == "num_workers"):
        place = getattr(edit, "call", None) or getattr(edit, "display", loader.node)
        if isinstance(place, ast.AST) and (loader.node is place or is_written_at(loader, place)):
            return True
    asked = loader_argument(loader, "num_workers")
    origins = Trail(script).of(asked, [*map(ways_made, loader.things)]) if asked is not None else ""
    return not isinstance(origins, str) and any(o.expr in changed for o in origins)
