"""The questions that rules ask of the cost model: what a fix of theirs is expected to save, and
why.

A rule names one of them (``@rule(..., asks=gains.half)``), and ``autofast.edit.worth`` decides by
the answer. Where the sizes of a script are not known, the answer is what is usual for the technique
(from published measurements, see the cards), which only ranks it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace

from autofast.facts.copies import is_batch_memory
from autofast.facts.cost import machine, measured
from autofast.facts.cost.batch_parts import is_number_each
from autofast.facts.cost.cells import Cells
from autofast.facts.cost.heads import (
    holds_weights,
    is_narrow,
    is_small_head,
    only_convolves,
    only_embeds,
)
from autofast.facts.cost.inputs import batches, number, turns
from autofast.facts.cost.step import CONVOLUTIONS, Cost, Estimate
from autofast.facts.datasets import Images, images
from autofast.facts.loaders import given, has_no_workers
from autofast.facts.optimizers import has_momentum
from autofast.facts.switches import in_every_iteration
from autofast.flow.frequency import Frequency, frequency, is_rare
from autofast.flow.loops import loops_around
from autofast.flow.program import Flow
from autofast.flow.provenance import Trail
from autofast.model.calls import is_method
from autofast.model.events import BranchFrame, inside, loops
from autofast.model.script import Dataset, Loader, Script, Transfer
from autofast.model.source import at, function_of, statement_of, walk
from autofast.model.values import Ext, Inst, Ref, Tensor, Unknown
from autofast.rule import Finding, Gain, Options, Question

Findings = Sequence[Finding]
Answer = Gain | None
EVALUATION = 1 / 18  # of an epoch: a sixth of the samples, and a forward is a third of a step
EPOCHS = 10  # where their number is not known
MOST_RESHAPES = (
    2  # statements that channels_last may touch, beside the one that converts the network
)
# Where a tensor on the host comes from that stays there: others that are made for the device can be
# made on it.
ARRAYS = ("", "from_numpy", "as_tensor")
HEAD = "convolutions use TF32 without it, and only a small head multiplies matrices"
READ = 0.03  # of a step, by a read that the host waits for
HOST = re.compile(r"torch\.[A-Z][a-z0-9]+Tensor")  # types of tensors of the host
NARROW = Gain(
    0.0, "bound by launches and memory: the layers that multiply are narrow, or few and small"
)
FEW = 4  # batches of a pass over a loader, for which no worker is started
NOISE = 0.005  # of an evaluation that is made faster by a class of its own


def _of_arithmetic(
    script: Script,
    options: Options,
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
    cost = script.analysis(Cost)
    found = cost.least() if casts and options.target == "cpu" else cost.estimate(options.target)
    if isinstance(found, str) and products == memory == 1:
        return _of_convolutions(script, options, usual, convolutions, found)
    if isinstance(found, str):
        return Gain(usual, f"usual where arithmetic takes the time; here {found}", known=False)
    more = casts * found.tensors
    share = found.saved(convolutions, products, memory, more)
    return _in_all(script, share, found) or Gain(share, found.words)


def _of_convolutions(
    script: Script, options: Options, usual: float, factor: float, why: str
) -> Gain:
    """The same of faster convolutions beside work that is not known, which only makes a step longer
    where it convolves nothing.
    """
    found = script.analysis(Cost).estimate(options.target, CONVOLUTIONS)
    if isinstance(found, str):
        return Gain(usual, f"usual where arithmetic takes the time; here {why}", known=False)
    share = (1 - factor) * found.convolutions / found.seconds
    words = f"at most {1e3 * found.convolutions:.1f} ms of convolutions a step"
    return _in_all(script, share, found) or Gain(share, words, known=share < options.min_gain)


def _in_all(script: Script, share: float, step: Estimate) -> Gain | None:
    """Nothing, for a training that is so short that hardly a second is saved of it."""
    updates = script.analysis(Cost).updates
    saved = share * step.seconds * updates if updates is not None and step.overlaps else None
    if saved is None or saved >= machine.NOTICED or share < NOISE:
        return None
    most = 1e3 * step.seconds
    words = f"a training of {updates:,} steps, {most:.1f} ms each, saves less than {machine.NOTICED:.0f} s"
    return Gain(0.0, words)


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
    step = measured.step(script, options.target, on)
    if step is None:
        return None
    found = script.analysis(Cost).estimate(options.target)
    if isinstance(found, str):
        return measured.gain(step.saved(min(convolutions, products, memory)), step.words)
    parts = (found.convolutions, convolutions), (found.products, products), (found.memory, memory)
    left = sum(part * factor for part, factor in parts) / found.device if found.device else 1.0
    return measured.gain(step.saved(left, casts * found.tensors * on.launch), step.words)


def half(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
    """Of 16 bits: half of products, convolutions and memory, and casts of each parameter."""
    if place := script.analysis(Cells).place:
        return Gain(0.0, f"bound by launches: {place} goes through a sequence cell by cell")
    gain = _of_arithmetic(script, options, 0.4, machine.HALF, machine.HALF, 0.5, casts=2)
    return gain if gain.known or not is_narrow(script) else NARROW


def tensor_cores(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
    """Of TF32, for products of matrices alone: convolutions use it unless told otherwise."""
    cost = script.analysis(Cost)
    if not cost.multiplies_elsewhere and only_convolves(script):
        return Gain(0.0, "convolutions use TF32 without it, and nothing else multiplies matrices")
    if not cost.multiplies_elsewhere and cost.convolves_by_function and holds_weights(script):
        return Gain(0.0, HEAD)
    if place := script.analysis(Cells).place:
        return Gain(0.0, f"bound by launches: {place} goes through a sequence cell by cell")
    gain = _of_arithmetic(script, options, 0.1, products=machine.TENSOR_CORES)
    if not gain.known and is_narrow(script):
        return NARROW
    if gain.known or cost.multiplies_elsewhere or not is_small_head(script):
        return gain
    return Gain(0.0, HEAD)


def layout(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
    """Of channels_last, for convolutions; of an evaluation's images, that they come in order."""
    cost = script.analysis(Cost)
    if cost.moves_batches(finding.node) and cost.channels(finding.node) == {1}:
        return Gain(0.0, "images of one channel lie in memory as they would in either order")
    if cost.moves_batches(finding.node) and not cost.trains(finding.node):
        return Gain(0.002, "images of an evaluation, which its first layer would convert")
    if only_embeds(script):
        return Gain(0.0, "only patches are convolved, and all the rest multiplies matrices")
    own = statement_of(finding.node)
    others = {id(statement_of(p)) for p in _touched(finding) if isinstance(p, ast.expr)} - {id(own)}
    if len(others) > MOST_RESHAPES:
        return Gain(0.0, f"{len(others)} statements would have to reshape for it")
    return _of_arithmetic(script, options, 0.1, convolutions=machine.CHANNELS_LAST)


def algorithms(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
    """Of cuDNN's choice by measurement, for convolutions."""
    return _of_arithmetic(script, options, 0.05, convolutions=machine.BENCHMARK)


def counting(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
    """Of tensors without versions and views, beside no_grad: little, of what evaluations take."""
    if once := _code_once(script, finding):
        return replace(once, share=machine.COUNTING * once.share)
    facts = measured.for_target(script, options.target)
    evaluations = facts.phases.get("evaluation", 0.0) if facts is not None else EVALUATION
    words = "a tenth of what evaluations take, beside no_grad, at most"
    return Gain(machine.COUNTING * evaluations, words, measured=facts is not None)


def together(share: float, reason: str, copied: bool = False) -> Question:
    """A question whose answer is what taking whole batches at once saves: no more than the wait for
    data (with ``copied``: and the copies).
    """
    estimate = usual(share, reason)

    def ask(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
        loaders = _loaders_of(script, finding.node)
        waiting = measured.waiting(script, loaders)
        if waiting is None:
            if (
                copied
                and loaders
                and not any(_trains(script, f) for f in _alike(finding, beside) if f.edits)
            ):
                return Gain(NOISE, "new code for the batches of an evaluation alone")
            return estimate(script, options, finding, beside)
        facts = measured.for_target(script, options.target)
        more = facts.phases.get("transfer", 0.0) if facts is not None and copied else 0.0
        return measured.gain(waiting.share + more, waiting.words, known=facts is not None)

    return ask


def renaming(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
    """Of today's name for the same thing, which costs some microseconds at most: nothing but beside
    what changes its functions anyway.
    """
    others = [f for f in beside if f.edits and (f.renews or f.asks is not renaming)]
    theirs = {id(unit_of(place)) for f in others for place in _touched(f)}
    mine = [n for n in _touched(finding) if not isinstance(n, (ast.ImportFrom, ast.Import))]
    if any(id(unit_of(n)) in theirs for n in mine):
        return None
    return Gain(0.0, "another name for the same, in loops and functions that nothing else changes")


def unit_of(node: ast.AST) -> ast.AST:
    """The innermost loop or function around: what a reader takes in at one look."""
    return next(loops_around(node), None) or function_of(node)


def nothing(reason: str) -> Question:
    """A question whose answer is that nothing is gained."""

    def ask(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
        return Gain(0.0, reason)

    return ask


# ------------------------------------------------------------------------------------- by how often
def usual(share: float, reason: str, code: bool = False) -> Question:
    """A question whose answer is what is usual for a technique, but for loaders (with ``code``:
    places) that are used once.
    """

    def ask(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
        once = _code_once if code else _loader_once
        return once(script, finding) or Gain(share, reason, known=False)

    return ask


def _loader_once(script: Script, finding: Finding, rarely: bool = True) -> Gain | None:
    """Next to nothing, for a loader that is gone through once, or (with ``rarely``) now and then,
    beside the passes over the training data; None for others.
    """
    uses = [use for x in _loaders_of(script, finding.node) for use in x.uses]
    if not uses or any(map(script.analysis(Cost).trains_with, uses)):
        return None
    if not any(use.repeated for use in uses):
        return _small(script.analysis(Cost))
    if rarely and all(
        any(isinstance(f, BranchFrame) and is_rare(f) for f in use.stack) for use in uses
    ):
        return Gain(EVALUATION / EPOCHS, "runs now and then, beside many steps of training")
    return None


def _trains(script: Script, finding: Finding) -> bool:
    """Whether a loader of the finding is trained with."""
    trains_with = script.analysis(Cost).trains_with
    return any(trains_with(use) for x in _loaders_of(script, finding.node) for use in x.uses)


def _code_once(script: Script, finding: Finding) -> Gain | None:
    """The same for a place in the code."""
    cost = script.analysis(Cost)
    if cost.runs_alone(finding.node):
        return Gain(0.0, "runs once, beside all steps of the training")
    if cost.runs_seldom(finding.node):
        return Gain(EVALUATION / EPOCHS, "runs now and then, beside many steps of training")
    return _small(cost) if cost.runs_once(finding.node) else None


def _small(cost: Cost) -> Gain | None:
    if cost.epochs == 1:
        return None
    passes = "several passes" if cost.epochs is None else f"{cost.epochs} passes"
    share = EVALUATION / (cost.epochs or EPOCHS) / 2
    return Gain(share, f"runs once, beside {passes} over the training data")


def _loaders_of(script: Script, node: ast.AST) -> list[Loader]:
    """The loaders made at ``node``, fed by a dict there, or fed with a dataset made there."""
    return [
        x
        for x in script.loaders
        if x.node is node or _feeds(x, node) or any(d.node is node for d in x.datasets)
    ]


def _feeds(loader: Loader, home: ast.AST) -> bool:
    """Whether an argument of the loader is written at ``home``: a dict, or a place in one."""
    inside = {id(n) for n in walk(home)}
    given = loader.args.every
    entries = [entry.expr for g in given for _, entry in g.via]
    return any(id(expr) in inside for expr in entries if expr is not None)


def reads(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
    """Of a read that is put off: nothing where another stays in the same step, which waits, too."""
    loop = _loop_of(script, finding.node)
    kept = (read_once, read_at_once, read_twice, read_again, read_late, elements)
    stays = [f.node for f in _alike(finding, beside) if not f.edits or f.asks in kept]
    changed = _changed(beside)
    stays += [t.node for t in script.transfers if _waits(t) and id(t.node) not in changed]
    if loop is not None:
        stays += [n for n in walk(loop) if _may_read(script, n) and id(n) not in changed]
    if loop is not None and (node := _in_every_turn(script, loop, stays)) is not None:
        return Gain(0.0, f"{at(node)} waits for the device in the same step, and stays")
    if gain := _code_once(script, finding):
        return gain
    if gain := measured.reading(script, options.target, _touched(finding)):
        return gain
    steps = script.analysis(Cost).steps
    often = f", {steps:,} steps an epoch" if steps else ""
    return Gain(READ, f"one read a step{often}", known=False)


def _loop_of(script: Script, node: ast.AST) -> ast.AST | None:
    """The innermost loop around ``node``, or around the calls of its function where it is one."""
    if (loop := next(loops_around(node), None)) is not None:
        return loop
    inner = {id(n) for n in ast.walk(node)}
    sites = [site for _, site in script.log.each() if id(site.node) in inner]
    found = [next(reversed(loops(o.stack)), None) for site in sites for o in site]
    nodes = [frame.node if frame is not None else None for frame in found]
    return nodes[0] if nodes and all(n is nodes[0] for n in nodes) else None


def _alike(finding: Finding, findings: Sequence[Finding]) -> list[Finding]:
    """What the rule of the finding has found besides."""
    return [f for f in findings if f.rule == finding.rule]


def _changed(findings: Sequence[Finding]) -> set[int]:
    """The ids of all that fixes change: not what stands in a block that they put code around."""
    places = [place for f in findings if f.edits for place in _touched(f)]
    return {id(n) for place in places if not hasattr(place, "body") for n in walk(place)}


def _may_read(script: Script, node: ast.AST) -> bool:
    """``x.item()`` of what is not known, and of what is on the device."""
    if not is_method(node, "item") or node.args:
        return False
    found = script.values(node.func.value)
    return bool(found) and all(
        isinstance(t, Unknown) or (isinstance(t, Tensor) and t.device == "dev") for t in found
    )


def _waits(transfer: Transfer) -> bool:
    """A copy back to the host: ``logits.to("cpu")``, ``logits.type(torch.FloatTensor)``."""
    spelled = any(k.arg == "non_blocking" for k in transfer.node.keywords)
    there = any(t.device == "dev" or t.models for t in transfer.tensors)
    given = transfer.args.get(0, "dtype")
    of_host = bool(given) and all(isinstance(t, Ref) and HOST.fullmatch(t.name) for t in given)
    back = transfer.kinds == {"cpu"} or (transfer.how == "type" and of_host)
    return back and there and not spelled


def _touched(finding: Finding) -> list[ast.AST]:
    """The place of a finding, and all that its edits change."""
    places = [getattr(edit, place.name) for edit in finding.edits for place in fields(edit)]
    return [finding.node, *(place for place in places if isinstance(place, ast.AST))]


def read_once(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
    """Of one read in the place of several of a tensor, between which the device is given work."""
    return _code_once(script, finding) or Gain(0.01, "one wait less in a step", known=False)


def read_at_once(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
    """The same where nothing is started in between: the first read has waited for the others."""
    return Gain(0.0, "one read stays, and the others find the device at rest")


def read_twice(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
    """Of statements whose work would be done behind the loop, and before a look at it inside."""
    return Gain(0.0, "what it does would have to stand at two places besides")


def elements(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
    """Of one copy in the place of a read for each element."""
    return _code_once(script, finding) or Gain(READ, "a wait for each element", known=False)


def read_late(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
    """Of a number that each arm of a condition reads, and that every step looks at: it would be
    read further down in the same step.
    """
    return Gain(0.0, "it would be read in every step all the same, further down")


def read_again(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
    """Of statements that a loop behind the loop would carry out: too little in an evaluation."""
    if not script.analysis(Cost).is_in_training(finding.node):
        return Gain(EVALUATION * READ, "one read a step of an evaluation")
    return reads(script, options, finding, beside)


def _in_every_turn(script: Script, loop: ast.AST, nodes: Sequence[ast.AST]) -> ast.AST | None:
    """A place among ``nodes`` that every iteration of the loop comes to, in the loop itself or in a
    function that it calls.
    """
    graph = script.analysis(Flow).graph(loop)
    called = set()
    for node in nodes:
        if next(loops_around(node), None) is not loop:
            called |= {id(n) for n in walk(node)}
        elif frequency(graph, node, loop) is Frequency.EVERY:
            return node
    for _, site in script.log.each():
        if id(site.node) in called and in_every_iteration(script, site):
            if any(inside(o.stack, loop) for o in site):
                return site.node
    return None


def in_steps(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
    """Of tensors that are made on the device: nothing outside of the loops over batches."""
    if gain := _code_once(script, finding):
        return gain
    if not script.analysis(Cost).runs_by_batch(finding.node):
        return Gain(0.0, "runs once an epoch, not once a step")
    return Gain(0.02, "a copy from the host in every step", known=False)


def for_others(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
    """Of what is written for other places alone: nothing where none of them is written."""
    if not any(f.edits and (finding.rule, finding.key) in f.needs for f in beside):
        return Gain(0.0, "no place that is written needs it")
    return in_steps(script, options, finding, beside)


# ------------------------------------------------------------------------------- by bytes and items
def copies(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
    """Of copies to the device that nothing waits for: nothing where hardly anything is copied."""
    loaders = _loaders_of(script, finding.node)
    once = _loader_once(script, finding) if loaders else _code_once(script, finding)
    if once:
        return once
    if not loaders and (place := _copied_beside(script, options, finding, beside)) is not None:
        return Gain(0.0, f"{at(place)} copies to the device in the same step, and waits")
    if not loaders and _copies_numbers(script, finding):
        return Gain(0.0, "one number for each item of a batch is all that is copied")
    cost = script.analysis(Cost)
    if gain := measured.copying(script, options.target, cost.copies_at(finding.node)):
        return gain
    size = cost.batch_bytes(finding.node)
    step = cost.estimate(options.target)
    if size is None or (isinstance(step, str) and size >= machine.TINY):
        return Gain(0.02, "one copy a step that the host waits for", known=False)
    words = f"{size / 1000:,.0f} kB" if size >= 1000 else f"{size} bytes"
    share = size / machine.COPY / (machine.SHORTEST if isinstance(step, str) else step.seconds)
    if size >= machine.TINY and not cost.trains(finding.node):
        return Gain(share / 6, f"copies of {words} a batch, in evaluations", known=False)
    return Gain(min(0.5, share), f"copies of {words} a batch")


def _copies_numbers(script: Script, finding: Finding) -> bool:
    """Whether all that is copied of these batches, there or elsewhere, is one number for each item:
    the network takes the rest by itself.
    """
    here = statement_of(finding.node)
    mine = [x for x in script.loaders if any(statement_of(t.node) is here for t in x.moved)]
    moved = [t for x in mine for t in x.moved if t.to_device or t.how == "type"]
    return bool(moved) and all(
        isinstance(t.node.func, ast.Attribute) and is_number_each(script, mine, t.node.func.value)
        for t in moved
    )


def _copied_beside(
    script: Script, options: Options, finding: Finding, beside: Sequence[Finding]
) -> ast.AST | None:
    """A copy to the device that every turn of the same loop waits for as before."""
    loop = next(loops_around(finding.node), None)
    if loop is None:
        return None
    statement, changed = statement_of(finding.node), _changed(beside)
    others: list[ast.AST] = [
        t.node
        for t in script.transfers
        if t.to_device
        and all(x.device == "cpu" and _stays_on_host(script, x) for x in t.tensors)
        and id(t.node) not in changed
    ]
    if (same := next((n for n in others if statement_of(n) is statement), None)) is not None:
        return same
    alike = _alike(finding, beside)
    # data of the host, which the user has to move
    others += [f.node for f in alike if f.advice and id(f.node) not in changed]
    stays = [f.node for f in alike if f.asks is not None and f.asks is not copies]
    known = (f.asks(script, options, f, ()) for f in alike if f.node in stays and f.asks)
    if not all(gain is not None and gain.known and not gain.share for gain in known):
        stays = []
    return _in_every_turn(script, loop, [*others, *stays])


def _stays_on_host(script: Script, tensor: Tensor) -> bool:
    """Whether a tensor is made of data of the host: others can be made on the device."""
    if tensor.fresh != "Tensor":
        return tensor.fresh in ARRAYS
    given = getattr(tensor.made, "args", [])
    return len(given) == 1 and number(script.values(given[0])) is None  # not `torch.Tensor(8)`


def pinning(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
    """The same of pinned batches: nothing where each loader is made for one batch, which the
    process that waits for it pins itself.
    """
    mine = _loaders_of(script, finding.node)
    if mine and not any(_gets_workers(script, x, beside) for x in mine):
        return Gain(0.0, "without workers, the process that waits for a batch pins it itself")
    if mine and not any(_copies_memory(script, x) for x in mine):
        return Gain(0.0, "what is copied is computed from the batches on the host, and not pinned")
    for_it = [f for f in beside if (finding.rule, finding.key) in f.needs]
    if for_it and not any(f.worth for f in for_it):
        return Gain(0.0, "no copy of these batches is worth not waiting for")
    return copies(script, options, finding, beside)


def _copies_memory(script: Script, loader: Loader) -> bool:
    """Whether the memory of its batches may be copied to the device, by whomever."""
    there = [t.node.func for t in loader.moved if t.kinds != {"cpu"}]
    copied = [func.value for func in there if isinstance(func, ast.Attribute)]
    return (
        not copied
        or bool(loader.framework)
        or bool(script.methods("copy_"))
        or any(is_batch_memory(script, source) for source in copied)
    )


def _gets_workers(script: Script, loader: Loader, beside: Sequence[Finding]) -> bool:
    """Whether batches come out of other processes, by an option's default or by what is written."""
    if not has_no_workers(loader):
        return True
    edits = [edit for f in beside for edit in f.edits]
    for edit in (e for e in edits if getattr(e, "name", "") == "num_workers"):
        place = getattr(edit, "call", None) or getattr(edit, "display", loader.node)
        if isinstance(place, ast.AST) and (loader.node is place or _feeds(loader, place)):
            return True
    number = given(loader, "num_workers")
    ways = [getattr(t, "made", ()) for t in loader.things]
    origins = Trail(script).of(number, ways) if number is not None else ""
    changed = {id(place) for f in beside if f.edits for place in _touched(f)}
    return not isinstance(origins, str) and any(id(o.expr) in changed for o in origins)


def fetching(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
    """Of workers: nothing where a batch is a slice of what lies in memory, which one process cuts
    as fast as it can be handed on.
    """
    if gain := _loader_once(script, finding, rarely=False):
        return gain
    made = images(script)
    mine = _loaders_of(script, finding.node)
    if mine and (few := max(batches(script, x) or FEW + 1 for x in mine)) <= FEW:
        return Gain(0.0, f"workers take longer to start than the {few} batches of a pass")
    if mine and all(_is_sliced(d, made) for x in mine for d in x.datasets):
        return Gain(0.0, "whole batches are taken out of memory at once")
    waiting = measured.waiting(script, mine)
    if waiting is None:
        return Gain(0.3, "waits for data", known=False)
    handed = machine.HANDOVER / waiting.batch if waiting.batch else 1.0
    if waiting.workers == 0 and handed >= 1:
        return measured.gain(0.0, f"{waiting.words}, no more than handing it over takes")
    known = measured.for_target(script, options.target) is not None
    return measured.gain(waiting.share * (1 - min(1.0, handed)), waiting.words, known)


def keeping(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
    """Of workers that stay: nothing where there is one epoch, for which they start in any case."""
    mine = _loaders_of(script, finding.node)
    if mine and all(_has_one_epoch(script, x) for x in mine):
        return Gain(0.0, "gone through once: the training has one epoch")
    return usual(0.02, "workers start once, not in every epoch")(script, options, finding, beside)


def _has_one_epoch(script: Script, loader: Loader) -> bool:
    """Whether one loop goes through the loader, and all loops around that turn once (of those that
    are not around its making).
    """
    if len(loader.uses) != 1 or loader.uses[0].is_next:
        return False
    use = loader.uses[0]
    site = script.log.at("iterate", use.node)
    ways = {tuple(f.node for f in o.stack) for o in site} if site is not None else set()
    if len(ways) != 1:
        return False  # a function that is called twice, or for other loaders
    made = {f.node for t in loader.things for f in loops(getattr(t, "made", ()))}
    outer = [f.node for f in loops(use.stack) if f.node not in made | {use.node}]
    return bool(outer) and all(turns(script, loop) == 1 for loop in outer)


def more_workers(enough: str, loaders: Sequence[Loader]) -> Question:
    """A question about more workers in the place of a few: nothing where these are ``enough`` and
    no wait was measured.
    """

    def ask(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
        seen = measured.waiting(script, loaders) is not None
        return (
            Gain(0.0, enough) if enough and not seen else fetching(script, options, finding, beside)
        )

    return ask


def _is_sliced(dataset: Dataset, made: Mapping[int, Images | str]) -> bool:
    node = dataset.thing.node if isinstance(dataset.thing, Ext) else None
    if isinstance(made.get(id(node)), Images):
        return True
    fetches = isinstance(dataset.thing, Inst) and dataset.thing.cls.find("__getitems__") is not None
    return dataset.in_memory and fetches


def launches(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
    """Of an update in a few kernels: next to nothing beside hundreds of passes through cells."""
    times, place = script.analysis(Cells).turns
    share = machine.UPDATE / (times * machine.TURN) if times else 1.0
    if share < 0.03:
        return Gain(share, f"one update, and {times} passes through {place}, a step")
    optimizer = next((o for o in script.optimizers if o.node is finding.node), None)
    fewer, accesses = machine.UPDATE, machine.ACCESSES
    if optimizer is not None and optimizer.name == "SGD" and options.target != "cpu":
        if not has_momentum(script, optimizer):
            return Gain(0.0, "without momentum, one operation takes all parameters already")
        fewer, accesses = machine.SGD_UPDATE, machine.SGD_ACCESSES
    found = script.analysis(Cost).estimate(options.target)
    if isinstance(found, str) or not found.tensors or options.target == "cpu":
        return Gain(0.03, "kernels of the update, for each parameter", known=False)
    moved = 4 * accesses * found.parameters / machine.GPU.memory
    share = found.fused(fewer * machine.GPU.launch, moved)
    words = f"the update of {found.tensors} parameters in one kernel"
    return _in_all(script, share, found) or Gain(share, words)
