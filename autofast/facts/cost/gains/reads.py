"""What reads of the device that are put off save of a step."""

from __future__ import annotations

import ast
import re

from autofast.facts.cost import measured
from autofast.facts.cost.gains.asking import (
    EVALUATION,
    NOISE,
    Answer,
    Findings,
    begun_in,
    changed_nodes,
    code_once,
    nothing,
    of_device,
    of_its_rule,
    touched_nodes,
    usual,
)
from autofast.facts.cost.gains.batches import is_begun, waits_there
from autofast.facts.cost.gains.budget import step_of, workers_of
from autofast.facts.cost.gains.standing import (
    WAITING,
    are_few,
    in_every_turn,
    standing,
    waits_beside,
)
from autofast.facts.cost.step import Cost
from autofast.facts.dimensions import least_dimensions
from autofast.flow.frequency import rare_arms_around
from autofast.flow.loops import loops_around
from autofast.flow.positions import statements_beside
from autofast.model.calls import is_method
from autofast.model.events import loops
from autofast.model.roles import Transfer
from autofast.model.script import Script
from autofast.model.several import any_in, surely
from autofast.model.source import at, statement_of, walk
from autofast.model.syntax import LOOPS
from autofast.model.values import Ref, Tensor, Unknown, is_on_device, of_kind
from autofast.rule import Finding, Gain, Options

READ = 0.03  # of a step, by a read that the host waits for
# Of one read in the place of several of a tensor, with work for the device in between (``once``);
# where nothing is started in between; of statements whose work would be done at two places, or
# behind each arm of a condition; of one copy in the place of a read for each element.
once = usual(0.01, "one wait less in a step", code=True)
read_at_once = nothing("one read stays, and the others find the device at rest")
read_twice = nothing("what it does would have to stand at two places besides")
read_again = nothing("what is kept of each step would be read behind the loop, one by one")
read_late = nothing("it would be read in every step all the same, further down")
each = usual(READ, "a wait for each element", code=True)
fetched = usual(READ, "a wait in the middle of a step, and a copy", code=True)
HOST = re.compile(r"torch\.[A-Z][a-z0-9]+Tensor")  # types of tensors of the host


@of_device
def scores(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
    """Of one number copied for each place in an image, in the place of one for each class."""
    if least_dimensions(script, finding.node) > 2:  # type: ignore[arg-type]
        return Gain(0.05, "a copy of all classes of each place", known=False)
    images = any(t.rank == "4d" for t in of_kind(script.values(finding.node), Tensor))
    if images:
        return Gain(0.05, "a copy of all classes of each place", known=False)
    return Gain(0.0, "nothing shows that it has more than a few scores for each sample")


@of_device
def read_once(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
    """Of a read that goes, as another one of the same tensor stays."""
    gain = _beside_another(script, finding, beside)
    return gain or once(script, options, finding, beside)


@of_device
def elements(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
    """Of one copy in the place of a read for each element."""
    if waits := are_few(script, finding.node, beside):
        return Gain(0.0, f"{waits} other waits for the device stay in the same step")
    return _beside_data(script, options, finding, beside) or each(script, options, finding, beside)


@of_device
def read_back(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
    """Of numbers that stay on the host, where they come from."""
    return _beside_data(script, options, finding, beside) or fetched(
        script, options, finding, beside
    )


def _beside_data(
    script: Script, options: Options, finding: Finding, beside: Findings
) -> Gain | None:
    """Nothing, in a step that waits for data longer than for the device."""
    step = step_of(script, options, beside)
    if step.waits and not script.analysis(Cost).is_beside_training(finding.node):
        return Gain(0.0, step.words)
    return None


@of_device
def reads(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
    """Of a read that is put off: nothing where another stays in the same step, which waits, too;
    or, where workers make the batches, a copy to the device.
    """
    loop = _loop_of(script, finding.node)
    around = {
        id(u): [u.node, *(loops_around(u.node) if u.is_next else ())]
        for x in script.loaders
        for u in x.uses
    }
    over = [x for x in script.loaders if any(loop in around[id(use)] for use in x.uses)]
    kept = (read_once, read_at_once, read_twice, read_again, read_late, elements)
    stays = [f.node for f in of_its_rule(finding, beside) if not f.edits or f.asks in kept]
    changed = changed_nodes(beside)
    # Whether the next batch is there when a step ends, and its copy waits for the device; what was
    # measured says of each read, and each copy, what it waits for.
    ready = not over or any(workers_of(script, x, beside) for x in over)
    ready = ready and measured.for_target(script, options.target) is None
    small = {statement_of(f.node) for f in beside if f.gain and f.gain.share and not f.worth}
    moved = [t for t in script.transfers if _waits(t) or (ready and waits_there(script, t))]
    moved = [t for t in moved if t.node not in changed]
    stays += [t.node for t in moved if statement_of(t.node) not in small]  # else it could go
    unknown = script.methods("cuda") if ready else []  # of what nothing is known of
    stays += [s.node for s in unknown if not getattr(s.node, "keywords", ())]
    stays += standing(script, beside)
    if loop is not None:
        stays += [n for n in walk(loop) if _may_read(script, n) and n not in changed]
    here = statements_beside(statement_of(finding.node))
    beside_it = next((n for n in stays if statement_of(n) in here), None)
    if loop is not None and (node := in_every_turn(script, loop, stays) or beside_it) is not None:
        return Gain(0.0, f"{at(node)} waits for the device in the same step, and stays")
    if isinstance(loop, LOOPS):
        seldom = [statement_of(n) for n in touched_nodes(finding) if rare_arms_around(n, loop)]
        if (node := in_every_turn(script, loop, seldom)) is not None:
            return Gain(0.0, f"by default {at(node)} reads it in every step all the same")
    if gain := code_once(script, finding):
        return gain
    if gain := measured.reading(script, options.target, touched_nodes(finding)):
        return gain
    if gain := _beside_data(script, options, finding, beside):
        return gain
    if script.analysis(Cost).is_beside_training(finding.node):
        put_off = [f for f in of_its_rule(finding, beside) if f.edits and f.asks not in kept]
        same = [n for f in put_off if _loop_of(script, f.node) is loop for n in walk(f.node)]
        once = {ast.unparse(s.node) for s in script.syncs if s.node in same}  # `loss.item()` twice
        share = 4 * EVALUATION * READ * max(1, len(once))  # a forward is a part of a step
        return Gain(share, "one read a step of an evaluation")
    steps = script.analysis(Cost).steps
    often = f", {steps:,} steps an epoch" if steps else ""
    return Gain(READ, f"one read a step{often}", known=False)


WAITING.add(reads)


def metered(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
    """The same of numbers that a meter of the project would count later: its new code is not worth
    it for an evaluation alone.
    """
    cost = script.analysis(Cost)
    if cost.is_beside_training(finding.node):
        alike = [f for f in of_its_rule(finding, beside) if f.edits and f.asks is metered]
        if all(cost.is_beside_training(f.node) for f in alike):
            return Gain(NOISE, "new code in a meter, for an evaluation alone")
    return reads(script, options, finding, beside)


WAITING.add(metered)


@of_device
def unasked(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
    """Of a branch that goes: nothing directly beside a read that stays."""
    return _beside_another(script, finding, beside) or elements(script, options, finding, beside)


@of_device
def waits(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
    """Of a wait for the device in every step: nothing directly beside a read that stays, with
    nothing begun in between.
    """
    return _beside_another(script, finding, beside) or Gain(
        0.2, "a wait in every step", known=False
    )


def _beside_another(script: Script, finding: Finding, beside: Findings) -> Gain | None:
    """Nothing directly beside a read that stays, with nothing begun in between."""
    for back in (False, True):
        if (stmt := waits_beside(script, finding.node, beside, back)) is not None:
            return Gain(0.0, f"{at(stmt)} waits for the device directly beside it, and stays")
    return None


def _loop_of(script: Script, node: ast.AST) -> ast.AST | None:
    """The innermost loop around ``node`` in which something runs on the device (else the innermost
    of all), or the statement around the calls of its function where it is one: a comprehension on
    the way, ``[r.item() for r in right]``, is no loop that calls it.
    """
    around, begun = list(loops_around(node)), script.analysis(begun_in)
    at_work = (loop for loop in around if any_in(walk(loop), begun))
    if (loop := next(at_work, next(iter(around), None))) is not None:
        return loop
    stacks = [o.stack for site in script.log.within(node) for o in site]
    ways = [[f.node for f in loops(s) if isinstance(f.node, LOOPS)] for s in stacks]
    nodes = [way[-1] if way else None for way in ways]
    return nodes[0] if surely(n is nodes[0] for n in nodes) else None


def _may_read(script: Script, node: ast.AST) -> bool:
    """``x.item()`` of what is not known, and of what is on the device."""
    if not is_method(node, "item") or node.args:
        return False
    found = script.values(node.func.value)
    return surely(isinstance(t, Unknown) or (is_on_device(t)) for t in found)


def _waits(transfer: Transfer) -> bool:
    """A copy back to the host: ``logits.to("cpu")``, ``logits.type(torch.FloatTensor)``."""
    there = any(t.device == "dev" or t.models for t in transfer.tensors)
    given = transfer.args.get(0, "dtype")
    of_host = surely(isinstance(t, Ref) and HOST.fullmatch(t.name) for t in given)
    back = transfer.kinds == {"cpu"} or (transfer.how == "type" and of_host)
    return back and there and not is_begun(transfer)
