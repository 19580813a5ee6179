"""What loaders and copies that are made faster save of a step: by bytes, items and batches."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from autofast.facts.copies import is_batch_memory
from autofast.facts.cost import machine, measured
from autofast.facts.cost.bounds import largest_value, range_turns, whole_number
from autofast.facts.cost.gains.arithmetic import layout
from autofast.facts.cost.gains.asking import (
    EVALUATION,
    NOISE,
    Answer,
    Findings,
    changed_nodes,
    code_once,
    feeds_training,
    loader_once,
    loaders_of,
    of_default,
    of_device,
    of_its_rule,
    touched_nodes,
    usual,
)
from autofast.facts.cost.gains.budget import (
    AT_ONCE,
    TO_DEVICE,
    is_given_workers,
    step_of,
    workers_of,
)
from autofast.facts.cost.gains.standing import (
    FEW_WAITS,
    in_every_turn,
    standing,
    times_waited,
    waits_beside,
)
from autofast.facts.cost.inputs import batch_count
from autofast.facts.cost.items import is_remembered
from autofast.facts.cost.matmul_layers import is_pretrained, takes_images, takes_words
from autofast.facts.cost.step import Cost
from autofast.facts.datasets import Images, image_sets
from autofast.facts.extents import sides_of
from autofast.facts.loaders import has_no_workers, made_in
from autofast.facts.workers.legality import makes_batches
from autofast.facts.workers.seeding import draws_of, seed_of
from autofast.facts.workers.shared_state import keeps_what_it_reads
from autofast.flow.loops import loops_around
from autofast.model.calls import may_give
from autofast.model.events import loops
from autofast.model.names import FACTORIES
from autofast.model.roles import Dataset, Loader, Transfer
from autofast.model.script import Script
from autofast.model.several import of_kind, surely
from autofast.model.source import at, function_of, statement_of, within
from autofast.model.values import Ext, Seq, Tensor
from autofast.rule import Effect, Finding, Gain, Options, Question

# Where a tensor on the host comes from that stays there: others that are made for the device can be
# made on it.
ARRAYS = ("", "from_numpy", "as_tensor")
DRAWS = tuple(f"torch.{name}" for name, draws in FACTORIES.items() if draws)
FRESH = (*DRAWS, "torch.empty")  # torch's own numbers; others come from NumPy
MANY_ROWS = 4096  # of a batch, for each of which a number takes time to copy
MANY_EPOCHS = 200  # of which each is taken to be short
ANEW = Gain(0.0, "what is copied is computed from the batches on the host, and not pinned")
FEW = 4  # batches of a pass over a loader, for which no worker is started


def together(share: float, reason: str, copied: bool = False) -> Question:
    """A question whose answer is what taking whole batches at once saves: no more than the wait for
    data (with ``copied``: and the copies).
    """
    estimate = usual(share, reason)

    def ask(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
        loaders = loaders_of(script, finding.node)
        if all(d.kind == "tensors" for x in loaders for d in x.datasets) and is_pretrained(script):
            return Gain(NOISE, "rows of numbers of words, collated beside steps of a transformer")
        waiting, cost = measured.waiting(script, loaders), script.analysis(Cost)
        if waiting is None:
            each = min((cost.updates_of(x) for x in loaders if not has_no_workers(x)), default=0)
            if each >= FEW:
                return Gain(NOISE, f"{each} updates by one batch, while workers make the next one")
            if loaders and not any(
                feeds_training(script, f) for f in of_its_rule(finding, beside) if f.edits
            ):
                return Gain(NOISE, "new code for the batches of an evaluation alone")
            return estimate(script, options, finding, beside)
        facts = measured.for_target(script, options.target)
        more = facts.phases.get("transfer", 0.0) if facts is not None and copied else 0.0
        return measured.gain(waiting.share + more, waiting.words, known=facts is not None)

    AT_ONCE.add(ask)
    if copied:
        TO_DEVICE.add(ask)
    return ask


@of_device
def in_steps(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
    """Of tensors that are made on the device: nothing outside of the loops over batches."""
    if gain := code_once(script, finding):
        return gain
    if not script.analysis(Cost).runs_by_batch(finding.node):
        return Gain(0.0, "runs once an epoch, not once a step")
    if script.is_call(finding.node, "torch.randperm"):
        return Gain(0.0, "several kernels that sort keys, for one small copy")
    drawn = script.is_call(finding.node, *DRAWS)
    by_numpy = finding.effect is Effect.SAMPLING and not script.is_call(finding.node, *FRESH)
    seed = seed_of(script, "numpy.random.seed" if by_numpy else "torch.manual_seed")
    if seed is not None and (drawn or by_numpy):
        return Gain(0.0, f"other numbers than those that {at(seed)} seeds the host for")
    cost = script.analysis(Cost)
    if cost.is_beside_training(finding.node):
        words = "a copy from the host in every step of an evaluation"
        return Gain(EVALUATION * 0.02, words, joins=_is_in_place(finding))
    changed = changed_nodes(beside)
    moved = [
        t for t in script.transfers if t.to_device and not is_begun(t) and t.node not in changed
    ]
    copied = [t.node for t in moved if not t.tensors or any(x.device != "dev" for x in t.tensors)]
    waits = times_waited(script, finding.node, [*standing(script, beside), *copied])
    small = (
        cost.named < MANY_ROWS
        and not _is_shorter(finding)
        and not _of_rows(script, finding, beside)
    )
    if waits > FEW_WAITS and small:
        return Gain(0.0, f"{waits} other waits for the device stay in the same step")
    times = (cost.times(finding.node, s.loop, ()) for s in script.steps)
    step = step_of(script, options, beside)
    if step.waits:
        return Gain(0.0, step.words)
    share = max([1, *times]) * machine.WAIT / max(step.host, step.device)
    if cost.is_in_training(finding.node) and share < options.min_gain:
        words = "a small copy from the host beside many launches"
        return Gain(share, words, joins=_is_in_place(finding))
    return Gain(0.02, "a copy from the host in every step", known=False)


def _is_shorter(finding: Finding) -> bool:
    """Whether a fix leaves one statement, and a call less in it, without a further argument."""
    own, there = statement_of(finding.node), touched_nodes(finding)
    named = any(k.arg == "device" for n in there for k in getattr(n, "keywords", ()))
    more = any(getattr(edit, "name", "") for edit in finding.edits)
    return (named or not more) and all(statement_of(n) is own for n in there)


def _is_in_place(finding: Finding) -> bool:
    """Whether a fix changes the line of its finding alone."""
    own = statement_of(finding.node)
    return all(statement_of(n) is own for n in touched_nodes(finding))


def _of_rows(script: Script, finding: Finding, beside: Findings) -> bool:
    """Whether a tensor of several numbers for each row of the data is made there, or beside it in
    its function: as large as what a layer gives.
    """
    home = function_of(finding.node)
    made = [f.node for f in of_its_rule(finding, beside) if f.edits and function_of(f.node) is home]
    sides = [sides_of(script, call) for call in of_kind(made, ast.Call)]
    whole = [s for s in sides if len(s) > 1 or (s and script.must_be(s[0], Seq))]
    return any(largest_value(script, side) is None for s in whole for side in s)


def is_begun(copy: Transfer) -> bool:
    """Whether nothing waits for a copy: ``x.to(device, non_blocking=True)``."""
    return may_give(copy.node, "non_blocking")


@of_default
def for_others(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
    """Of what is written for other places alone: nothing where none of them is written."""
    if not any(f.edits and (finding.rule, finding.key) in f.needs for f in beside):
        return Gain(0.0, "no place that is written needs it")
    return in_steps(script, options, finding, beside)


@of_device
def copies(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
    """Of copies to the device that nothing waits for: nothing where hardly anything is copied."""
    loaders = loaders_of(script, finding.node)
    once = loader_once(script, finding) if loaders else code_once(script, finding)
    if once:
        return once
    if not loaders and (place := _copied_beside(script, options, finding, beside)) is not None:
        return Gain(0.0, f"{at(place)} copies to the device in the same step, and waits")
    if not loaders and (place := waits_beside(script, finding.node, beside)) is not None:
        return Gain(0.0, f"{at(place)} waits for the device directly behind the copy")
    cost = script.analysis(Cost)
    large = cost.decodes(finding.node) or takes_images(script)
    waits = times_waited(script, finding.node, standing(script, beside)) if not loaders else 0
    if waits > FEW_WAITS and not large:
        return Gain(0.0, f"{waits} other waits for the device stay in the same step")
    here = [t.node for t in script.transfers if t.loaders and within(t.node, finding.node)]
    if not loaders and not _are_of_batches(script, here):
        return ANEW
    size = cost.batch_bytes(finding.node)
    place = (
        None if loaders or size is not None else waits_beside(script, finding.node, beside, True)
    )
    if place is not None:
        mine = cost.moved_at(finding.node)
        pins = finding.needs and any(workers_of(script, x, beside) for x in mine)
        if not pins or not large:
            return Gain(0.002, f"{at(place)} waits for the device at the end of each step")
    if gain := measured.copying(script, options.target, cost.copies_at(finding.node)):
        return gain
    if (step := step_of(script, options, beside)).waits:
        return Gain(0.0, step.words)
    trains = _is_trained_with(script, finding.node)
    if cost.moves_batches(finding.node) and not trains:
        others = [f.node for f in of_its_rule(finding, beside) if f.edits]
        if not any(_is_trained_with(script, node) for node in others):
            return Gain(EVALUATION * NOISE, "batches of an evaluation alone")
    if size is None and not large and takes_words(script):
        return Gain(0.001, "numbers of words, some hundred kB a batch at most")
    if size is None:
        found = Gain(0.02, "one copy a step that the host waits for", known=False)
    else:
        words = f"{size / 1000:,.0f} kB" if size >= 1000 else f"{size} bytes"
        share = size / machine.COPY / step.likely
        found = Gain(min(0.5, share), f"copies of {words} a batch")
    if loaders or not cost.moves_batches(finding.node) or trains:
        return found
    share = EVALUATION * min(0.5, 3 * found.share)  # of a forward pass, a third of a step
    return Gain(share, f"{found.reason}, in an evaluation", joins=True)


def _is_trained_with(script: Script, node: ast.AST) -> bool:
    """Whether what a loader gives, or what is moved there, is trained with: one call may make the
    loaders of both.
    """
    cost = script.analysis(Cost)
    moves = not loaders_of(script, node) and cost.is_beside_training(node)
    return cost.trains(node) and not moves


def _copied_beside(
    script: Script, options: Options, finding: Finding, beside: Sequence[Finding]
) -> ast.AST | None:
    """A copy to the device that every turn of the same loop waits for as before."""
    loop = next(loops_around(finding.node), None)
    if loop is None:
        return None
    statement = statement_of(finding.node)
    # A copy that gets another memory format waits as before.
    changed = changed_nodes([f for f in beside if f.asks is not layout])
    moved = [t for t in script.transfers if t.node not in changed]
    others: list[ast.AST] = [t.node for t in moved if waits_there(script, t)]
    if (same := next((n for n in others if statement_of(n) is statement), None)) is not None:
        return same
    alike = of_its_rule(finding, beside)
    # data of the host, which the user has to move
    others += [f.node for f in alike if f.advice and f.node not in changed]
    stays = [f.node for f in alike if f.asks is not None and f.asks is not copies]
    known = (f.asks(script, options, f, ()) for f in alike if f.node in stays and f.asks)
    if not all(gain is not None and gain.known and not gain.share for gain in known):
        stays = []
    return in_every_turn(script, loop, [*others, *stays])


def _stays_on_host(script: Script, tensor: Tensor) -> bool:
    """Whether a tensor is made of data of the host: others can be made on the device."""
    if tensor.fresh != "Tensor":
        return tensor.fresh in ARRAYS
    given = getattr(tensor.made, "args", [])
    return (
        len(given) == 1 and whole_number(script.values(given[0])) is None
    )  # not `torch.Tensor(8)`


def waits_there(script: Script, transfer: Transfer) -> bool:
    """A copy of data of the host, behind all that the device has to do."""
    found = transfer.tensors
    there = all(t.device != "dev" and _stays_on_host(script, t) for t in found)
    return transfer.to_device and there and not is_begun(transfer)


@of_device
def pinning(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
    """The same of pinned batches: nothing where each loader is made for one batch, which the
    process that waits for it pins itself.
    """
    mine = loaders_of(script, finding.node)
    if mine and not any(workers_of(script, x, beside) for x in mine):
        return Gain(0.0, "without workers, the process that waits for a batch pins it itself")
    if mine and not any(_copies_memory(script, x) for x in mine):
        return ANEW
    moved, own = script.analysis(Cost).copies_at(finding.node), (finding.rule, finding.key)
    same = [f for f in beside if f.node in moved]
    theirs = [f for f in same if own[0] in [n[0] for n in f.needs if isinstance(n, tuple)]]
    for_it = [f for f in beside if own in f.needs] + theirs
    if for_it and not any(f.worth for f in for_it):
        return Gain(0.0, "no copy of these batches is worth not waiting for", joins=True)
    return copies(script, options, finding, beside)


def _copies_memory(script: Script, loader: Loader) -> bool:
    """Whether the memory of its batches may be copied to the device, by whomever."""
    others = bool(loader.framework or script.methods("copy_"))
    return others or _are_of_batches(script, [t.node for t in loader.moved if t.kinds != {"cpu"}])


def _are_of_batches(script: Script, copies: Sequence[ast.Call]) -> bool:
    """Whether one of some copies may be of the memory of a batch, or nothing is known of them."""
    copied = [call.func.value for call in copies if isinstance(call.func, ast.Attribute)]
    return not copied or any(is_batch_memory(script, source) for source in copied)


remembered = usual(0.05, "computed again each time")  # of items that come out the same
ONCE = Gain(0.0, "items are remembered: from the second epoch on nothing is left to make")


@of_device  # a CPU that trains has no cores to spare
def fetching(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
    """Of workers: nothing where a batch is a slice of what lies in memory, which one process cuts
    as fast as it can be handed on.
    """
    if gain := loader_once(script, finding, rarely=False):
        return gain
    made = script.analysis(image_sets)
    mine = loaders_of(script, finding.node)
    if mine and (few := max(batch_count(script, x) or FEW + 1 for x in mine)) <= FEW:
        return Gain(0.0, f"workers take longer to start than the {few} batches of a pass")
    if mine and all(_is_sliced(d, made) for x in mine for d in x.datasets):
        return Gain(0.0, "whole batches are taken out of memory at once")
    kept = {f.node for f in beside if f.edits and f.asks is remembered}
    sets = [d for x in mine for d in x.datasets]
    if surely(
        is_remembered(d) or any(d.getitem is not None and within(n, d.getitem) for n in kept)
        for d in sets
    ):
        return ONCE
    waiting = measured.waiting(script, mine)
    if waiting is None:
        if mine and not feeds_training(script, finding) and not _decodes(mine):
            return Gain(NOISE, "arrays of an evaluation, for which workers start each time anew")
        return Gain(0.3, "waits for data", known=False)
    handed = machine.HANDOVER / waiting.batch if waiting.batch else 1.0
    if waiting.workers == 0 and handed >= 1:
        return measured.gain(0.0, f"{waiting.words}, no more than handing it over takes")
    known = measured.for_target(script, options.target) is not None
    return measured.gain(waiting.share * (1 - min(1.0, handed)), waiting.words, known)


def _decodes(loaders: Sequence[Loader]) -> bool:
    """Whether items of all may be images or sound: they are decoded, or not all known."""
    sets = [d for x in loaders for d in x.datasets]
    return not sets or any("decode" in d.reads or d.unknown or d.kind != "project" for d in sets)


@of_default
def keeping(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
    """Of workers that stay: nothing where there is one epoch, for which they start in any case, and
    next to nothing where an epoch is known to be long.
    """
    mine = loaders_of(script, finding.node)
    if surely(_has_one_epoch(script, x) for x in mine):
        return Gain(0.0, "gone through once: the training has one epoch")
    if mine and not any(workers_of(script, x, beside) for x in mine):
        return Gain(0.0, "without workers, there are none that could stay")
    if any(keeps_what_it_reads(script, x) for x in mine):
        return Gain(0.1, "workers that start anew read again what others had kept", known=False)
    words = "workers start once, not in every epoch"
    found = loader_once(script, finding) or Gain(0.02, words, known=False)
    seed = seed_of(script) if not found.known else None
    cost, step = script.analysis(Cost), step_of(script, options, beside)
    epoch = (cost.steps or 0) * step.likely
    files = any("file" in d.reads for x in mine for d in x.datasets)
    many = (cost.epochs or 0) >= MANY_EPOCHS
    # Items draw other numbers in workers that are new than the seed gave before.
    new = surely(draws_of(x) and is_given_workers(script, x, beside) for x in mine)
    long = found.known or epoch >= machine.START / found.share
    if 0 < epoch < machine.START / found.share or new and not long:
        return found
    if many and not files and seed is None:
        return found
    if seed is None:
        return Gain(0.005, "half a second an epoch that is not known to be short")
    words = "half a second an epoch that is not known to be short, and the seed of"
    return Gain(0.0, f"{words} {at(seed)} would give other numbers from the second epoch on")


def _has_one_epoch(script: Script, loader: Loader) -> bool:
    """Whether one loop goes through the loader, and all loops around that turn once (of those that
    are not around its making).
    """
    if len(loader.uses) != 1 or loader.uses[0].is_next:
        return False
    use = loader.uses[0]
    ways = {tuple(f.node for f in o.stack) for o in script.log.ways("iterate", use.node)}
    if len(ways) != 1:
        return False  # a function that is called twice, or for other loaders
    made = made_in(loader)
    outer = [f.node for f in loops(use.stack) if f.node not in made | {use.node}]
    return surely(range_turns(script, loop) == 1 for loop in outer)


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


def _is_sliced(dataset: Dataset, made: Mapping[ast.AST | None, Images | str]) -> bool:
    node = dataset.thing.node if isinstance(dataset.thing, Ext) else None
    if isinstance(made.get(node), Images):
        return True
    return dataset.in_memory and makes_batches(dataset)
