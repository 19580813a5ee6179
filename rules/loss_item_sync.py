"""loss-item-sync: read losses and counts when they are needed, not in every step."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from autofast.facts.cost import gains
from autofast.model.names import OWNERS
from autofast.model.script import Script
from autofast.model.several import any_in
from autofast.model.source import Nodes, at, within_any
from autofast.rule import Effect, Finding, Options, rule
from autofast.techniques.loops.planned import gone
from autofast.techniques.syncs.branches import asked_last
from autofast.techniques.syncs.code_motion import NAME, move_around
from autofast.techniques.syncs.copied_counts import copied_counts
from autofast.techniques.syncs.element_loops import by_elements
from autofast.techniques.syncs.fetched_back import BACK, FetchedBack
from autofast.techniques.syncs.few_steps import Supposed, supposed_in_few
from autofast.techniques.syncs.filled import extended_lists
from autofast.techniques.syncs.implicit_syncs import (
    ASKED,
    SHOWN,
    findings,
    waits_itself,
    whole_statement,
    without_wait,
)
from autofast.techniques.syncs.largest_first import largest_first
from autofast.techniques.syncs.planned import (
    in_functions,
    in_loops_and_meters,
    in_moves,
    in_scripts_read_in_part,
    in_stores,
    left_to_read,
)
from autofast.techniques.syncs.queue_pointers import queue_pointers
from autofast.techniques.syncs.reads import Read, recorded, scalar_reads
from autofast.techniques.syncs.steps import FEW, InFew
from autofast.techniques.syncs.tensor_numbers import in_arithmetic
from autofast.write.spelling import uses_gpu

SWITCHED = "asks the device in every step, and then a switch that is off by default"
KEEP = "keep what the host has under a name of its own, and take that here: "


@rule(
    NAME,
    Effect.EXACT,
    groups=("sync",),
    uses=("python-loop",),
    relieves={"host": 1},
    asks=gains.reads,
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Read losses and counts from the device when they are needed, not in every step."""
    left, found = gone(script, options), list(_reads(script, options))
    # What waits in several places, and is told at each, stays where one of them is gone.
    needing = gone(script, options, masks=False)
    others = {id(f.edits): f.node for f in found if f.edits and within_any(f.node, needing)}
    for finding in (f for f in found if not within_any(f.node, left)):
        if (loop := others.get(id(finding.edits))) is not None:
            why = f"what is written for {at(loop)} uses the copy"
            finding = replace(finding, edits=(), advice=f"{KEEP}{why}")
        yield finding


def _reads(script: Script, options: Options) -> Iterator[Finding]:
    owned = any_in(OWNERS, script.frameworks)
    if options.target == "cpu" or not script.runs_networks or not uses_gpu(script):
        return  # on the CPU, nothing waits for anything
    back = script.analysis(FetchedBack)
    yield from back.findings
    yield from queue_pointers(script)
    every = [r for r in scalar_reads(script) if {r.node, r.core}.isdisjoint(back.nodes)]
    switched = script.analysis(asked_last)
    every = [r for r in every if r.statement not in switched]
    for branch, edits in switched.items():
        yield Finding(branch, SWITCHED, edits=edits, asks=gains.waits)
    if owned:
        yield from _everywhere(script, set())
    elif script.unread:
        yield from (finding for finding, _ in in_scripts_read_in_part(script, every))
    elif options.effect is Effect.RECIPE:
        every += [r for r in recorded(script) if r.node not in {r.node for r in every}]
        few: Supposed | None = None
        less = supposed_in_few(script)
        while less is not few:
            few, found = less, list(_in_few(less, every))
            waits = {getattr(f.node, "test", f.node) for f in found if not f.edits}
            less = few.where_nothing_waits(waits)
        yield from found
    else:
        yield from _found(script, every, options.effect)


def _in_few(few: Supposed, every: list[Read]) -> Iterator[Finding]:
    """What becomes of the reads where what is only shown is shown in few steps."""
    rest = [r for r in every if r.statement not in few.gates]
    shown = {r.statement: r.statement for r in every if r.statement in few.gates}
    script = few.script
    left, found = script.analysis(InFew).why, list(_found(script, rest, Effect.RECIPE))
    used = {gate for f in found for gate in few.counted_on(f)}
    for finding in found:
        place = whole_statement(finding.node)
        shown.pop(place, None)  # type: ignore[call-overload]
        if FEW in finding.advice and (why := left.get(place)):
            finding = replace(finding, advice=f"{finding.advice}; it is not written: {why}")
        spares = finding.edits or few.gates.get(place) in used or waits_itself(script, place)
        yield few.with_gates(finding) if spares else finding
    for statement in shown.values():  # below a condition of the configuration
        yield few.with_gates(Finding(statement, SHOWN.message))


def _found(script: Script, every: list[Read], level: Effect) -> Iterator[Finding]:
    """What becomes of the reads, and what else waits."""
    taken: set[ast.expr] = set()
    answered: Nodes = set()
    found: list[Finding] = []
    rest = left_to_read(script, every)
    for finding, used in (
        *in_moves(script, every),
        *in_arithmetic(script, rest),
        *in_stores(script, rest),
        *in_functions(script, rest),
        *in_loops_and_meters(script, rest, level),
        *in_stores(script, rest, lists=True),
    ):
        if not taken & used:
            if not finding.edits:
                finding = without_wait(script, finding.node, ASKED) or finding
            taken |= used if finding.edits else set()
            answered |= {whole_statement(finding.node)}
            answered |= {r.statement for r in every if r.node in used}
            found.append(finding)
    changed = {f.node for f in found if f.edits}
    refused: Nodes = set()
    for finding in found:  # of several reasons the first
        if finding.edits or finding.node not in changed | refused:
            yield finding
            refused |= set() if finding.edits else {finding.node}
    for statement, name, edits in extended_lists(script):
        answered.add(statement)
        message = f"extends `{name}` by numbers of the device in every step, and waits for them"
        yield Finding(statement, message, edits=tuple(edits), asks=gains.read_again)
    for adds, core, uncopied, effect in copied_counts(script):
        if adds not in answered:
            answered.add(adds)
            message = f"copies `{ast.unparse(core)}` to the host in every step to add it up"
            yield Finding(adds, message, edits=uncopied, effect=effect)
    for largest, scores, there in largest_first(script):
        if whole_statement(scores) not in answered:
            answered |= {whole_statement(scores), whole_statement(largest)}
            message = f"copies all of `{ast.unparse(scores)}` to the host in every step, to look for the largest there"
            yield Finding(scores, message, edits=there, asks=gains.scores)
    yield from _everywhere(script, answered)


def _everywhere(script: Script, answered: Nodes) -> Iterator[Finding]:
    """What does not ask whose loop it is: the script's, or a framework's that calls it."""
    back = script.analysis(FetchedBack)
    answered |= script.analysis(asked_last).keys()
    answered |= {whole_statement(n) for n in back.waits}
    for loop, names, edits in by_elements(script, back.nodes):
        if move_around(script, loop) is not None:
            continue
        answered |= set(ast.walk(loop)) | {whole_statement(loop)}
        message = f"reads {names} from the device element by element in every step"
        yield Finding(loop, message, edits=tuple(edits), asks=gains.elements)
    for node, why in back.needed.items():
        if whole_statement(node) not in answered:
            answered.add(whole_statement(node))
            yield Finding(node, BACK, advice=f"{KEEP}{why}")
    yield from findings(script, answered)
