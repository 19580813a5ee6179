"""device-creation: make tensors on the device instead of copying them there in every step."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import Keyword
from autofast.facts.cost import gains
from autofast.facts.unread import UNREAD, unread
from autofast.model.script import Script
from autofast.model.several import of_kind
from autofast.rule import Effect, Finding, Options, rule
from autofast.techniques.loops.planned import gone
from autofast.techniques.transfers.constants import Constant, constants
from autofast.techniques.transfers.creations import copied_alike, moved_creations
from autofast.techniques.transfers.device_parameters import given_a_device
from autofast.techniques.transfers.drawn_arrays import from_numpy
from autofast.techniques.transfers.factories import loops_of_steps, run_once
from autofast.techniques.transfers.hoisted import hoisted_copies
from autofast.techniques.transfers.host_random_draws import why_not_on_device
from autofast.techniques.transfers.index_arrays import index_arrays
from autofast.techniques.transfers.indices import counted, indices
from autofast.techniques.transfers.made_each_step import made_each_step
from autofast.techniques.transfers.moved_by_helpers import moved_by_helpers
from autofast.techniques.transfers.moved_several_times import moved_several_times
from autofast.techniques.transfers.one_hots import one_hots
from autofast.techniques.transfers.rollouts import rows_of_steps
from autofast.techniques.transfers.round_trips import round_trips

DEFAULTS = ("torch.set_default_device", "torch.set_default_tensor_type")
SERVES = gains.for_others
COPIES = gains.nothing("torch.tensor copies its numbers from the host, wherever it is told to")
INDEXED = gains.usual(0.02, "the indices are copied, and waited for, at each use", code=True)
ARRAY = "indexes tensors on the device with an array of NumPy, which each use copies there"
COUNTED = "counts rows on the host for a tensor on the device, and copies the numbers there"
ONCE = "copy the indices there once, where they are drawn: `torch.from_numpy(...).to(device)`"
ROW = "copies what a step gives to a row on the device, which is read after all steps"
MESSAGE = "makes a tensor in host memory and copies it to the device"


@rule(
    "device-creation",
    Effect.EXACT,
    groups=("transfer",),
    uses=("cache-constant", "python-loop"),
    relieves={"transfer": 3, "host": 6},
    asks=gains.in_steps,
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Make tensors on the device instead of copying them there in every step."""
    if options.target == "cpu" or script.calls(*DEFAULTS):
        return
    hot = loops_of_steps(script) or run_once(script)
    creations = [*hoisted_copies(script, hot), *one_hots(script, hot)]
    once = {n for c in creations for n in ast.walk(c.call)}
    kept = constants(script, hot) if options.decides(Constant) else ()
    once |= {n for c in kept for place in (c.node, *c.made) for n in ast.walk(place)}
    once |= {n for stmt in gone(script, options) for n in ast.walk(stmt)}
    for row, edits in rows_of_steps(script, hot):
        once |= {*ast.walk(row)}
        yield Finding(row, ROW, edits=edits)
    others = (
        *moved_creations(script, hot),
        *copied_alike(script, hot),
        *from_numpy(script, hot),
        *indices(script, hot),
        *round_trips(script, hot),
        *given_a_device(script, hot),
        *moved_by_helpers(script, hot),
        *moved_several_times(script, hot),
    )
    creations += [c for c in others if c.call not in once]
    known = once | {n for c in creations for place in (c.call, *c.moves) for n in ast.walk(place)}
    for node, advice in made_each_step(script, hot, known):
        yield Finding(node, MESSAGE, advice=advice)
    for index, edits in index_arrays(script, hot):
        yield Finding(index, ARRAY, edits=edits, advice="" if edits else ONCE, asks=INDEXED)
    for index, edits in counted(script, hot):
        if index not in once:
            yield Finding(index, COUNTED, edits=edits, asks=INDEXED)
    for creation in creations:
        nobody = unread(script, creation.call)
        why = UNREAD.format(nobody) if nobody else why_not_on_device(script, creation, hot)
        if why:
            yield Finding(creation.call, MESSAGE, refusal=why, effect=creation.effect)
        else:
            told = any(e.call is creation.call for e in of_kind(creation.edits, Keyword))
            copied = script.is_call(creation.call, "torch.tensor") and not creation.moves
            yield Finding(
                creation.call,
                MESSAGE,
                edits=creation.edits,
                effect=creation.effect,
                key=creation.key,
                needs=((None, creation.needs),) if creation.needs is not None else (),
                asks=COPIES if told and copied else SERVES if creation.key is not None else None,
            )
