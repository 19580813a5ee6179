"""dataparallel-to-ddp: DistributedDataParallel, started by torchrun, in the place of
DataParallel.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import Edit, Keyword, Wrap
from autofast.facts.several_processes import Replaced
from autofast.model.calls import has_unpacking, keyword_of
from autofast.model.script import Script
from autofast.model.several import any_in
from autofast.model.source import at
from autofast.rule import Effect, Finding, Options, Refusal, rule
from autofast.techniques.accumulation.exchange import without_exchange
from autofast.techniques.ddp.names import Ranks
from autofast.techniques.ddp.planned import edits_for

MESSAGE = "DataParallel copies the model to every GPU at every step, in one process; DistributedDataParallel has a process for each"


@rule(
    "dataparallel-to-ddp",
    Effect.RECIPE,
    groups=("parallel",),
    default=False,
    option="--ddp",
    told=True,
    decides=Replaced,
    relieves={"communication": 1},
    several_processes=True,
    uses=("accumulation",),
    torch=(1, 10),
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Train in one process for each GPU instead of by DataParallel in one for all."""
    calls = [s.call for s in script.calls("torch.nn.DataParallel") if s.call]
    if not calls:
        return
    try:
        for call in calls:
            _check(script, call)
        edits, note, wrapped = edits_for(
            script, options, lambda ranks: [e for c in calls for e in _held_to_one(ranks, c)]
        )
    except Refusal as why:
        for call in calls:
            yield Finding(call, MESSAGE, refusal=str(why))
    else:
        yield Finding(calls[0], MESSAGE + note, edits=tuple(edits), key=calls[0])
        yield from without_exchange(script, options, wrapped, calls[0])


def _check(script: Script, call: ast.Call) -> None:
    """What it wraps is one of the models that train, spelled out."""
    made = set(script.values(call))
    trained = [m for m in script.models if any_in(m.wraps, made)]
    if not trained:
        raise Refusal(f"which model DataParallel on {at(call)} is put around is not known")
    if has_unpacking(call):
        raise Refusal(f"the arguments of DataParallel on {at(call)} are not spelled out")
    if len(call.args) > 3 or any(k.arg == "dim" for k in call.keywords):
        raise Refusal(
            f"DataParallel on {at(call)} cuts batches along another dimension than the first"
        )


def _held_to_one(ranks: Ranks, call: ast.Call) -> Iterator[Edit]:
    """Among several processes DataParallel only hands on: to the GPU of its process. The keys of
    checkpoints stay what they were.
    """
    local, several = ranks.local(call), f"{ranks.world(call)} > 1"
    for name, position, mine in (("device_ids", 1, f"[{local}]"), ("output_device", 2, local)):
        given = keyword_of(call, name)
        if given is None and len(call.args) > position:
            given = call.args[position]
        if given is not None:
            yield Wrap(given, f"{mine} if {several} else {{}}")
        elif name == "device_ids":
            yield Keyword(call, name, f"{mine} if {several} else None")
