"""cache-constant: compute once what comes out the same at every call."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import Remove
from autofast.facts.cost import gains
from autofast.facts.unread import GONE, UNREAD, idle
from autofast.flow.positions import nodes_of
from autofast.model.script import Script
from autofast.rule import Effect, Finding, Options, Question, rule
from autofast.techniques.precision.amp import Amp, amp
from autofast.techniques.transfers.constants import Constant, constants
from autofast.techniques.transfers.factories import loops_of_steps, run_once, runs_often
from autofast.techniques.transfers.literal_tensors import made_by_default
from autofast.techniques.transfers.prepared import prepared
from autofast.techniques.transfers.single_numbers import WHERE, filled_branches

OTHERS = "others may have the tensor that the constructor keeps; if nobody writes to it, make it a buffer: `register_buffer(..., persistent=False)`"
STORED = "files have whole networks, and older ones not what the constructor would keep (files of a `state_dict()` leave a buffer out that is not persistent)"
COPIES = "copies a number from the host in each step, to a device where all tensors are made"
COPIED = gains.usual(0.02, "a copy that is waited for at each use", code=True)
FILLS = "fills a tensor with one number for each step"
FILLED = gains.usual(0.02, "memory that is filled, and read, for one number", code=True)
COMPUTED = gains.usual(0.05, "computed again each time")
SENT = gains.usual(0.05, "computed and copied again each time", code=True)


@rule(
    "cache-constant",
    Effect.EXACT,
    groups=("transfer",),
    relieves={"transfer": 9, "host": 9},
    decides=Constant,
    uses=("autocast", "grad-scaler"),
    asks=COMPUTED,
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Compute once what comes out the same at every call."""
    hot = loops_of_steps(script)
    for site, filled in made_by_default(script):
        if runs_often(site, hot):
            yield Finding(site.node, COPIES, edits=(filled,), asks=COPIED)
    for site, edits in filled_branches(script, hot):
        yield Finding(site.node, FILLS, edits=edits, asks=FILLED, torch=WHERE)
    blocks = amp(script, options).blocks if options.decides(Amp) else []
    halves = nodes_of(part for block in blocks for part in block.region.parts)
    every = constants(script, hot or run_once(script), halves)
    found = [c for c in every if hot or c.copied]
    gone = set[ast.stmt]()
    for constant in found:
        stmt = idle(script, constant.node) if constant.unread else None
        if stmt is not None:
            if stmt not in gone:
                gone.add(stmt)
                said = GONE.format(constant.unread)
                yield Finding(stmt, said, edits=(Remove(stmt),), asks=gains.in_steps)
            continue
        yield Finding(
            constant.node,
            "copies the same to the device at each call"
            if constant.copied
            else "computes the same at each call",
            edits=constant.edits,
            refusal=_why_not(constant),
            asks=_question(constant),
            torch=constant.since,
        )
    for part in prepared(script, (c.slot for c in found)):
        asked = not part.advice or options.requested and part.edits
        yield Finding(
            part.node,
            "reads the same files in each epoch"
            if part.advice and not part.whole
            else "makes the same of an item in each epoch",
            edits=part.edits if asked else (),
            advice="" if asked else part.advice,
            effect=part.effect,
            asks=gains.remembered if part.whole else COMPUTED,
        )


def _question(constant: Constant) -> Question:
    if not constant.copied:
        return COMPUTED
    return SENT if constant.worked else gains.in_steps


def _why_not(constant: Constant) -> str:
    if constant.unread:
        return UNREAD.format(constant.unread)
    if constant.stored:
        return STORED
    return "" if constant.edits else OTHERS
