"""ddp: train in several processes, one for each GPU, with DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Iterator

from autofast.facts.several_processes import Distributed
from autofast.model.script import Script
from autofast.rule import Effect, Finding, Options, Refusal, rule
from autofast.techniques.accumulation.exchange import without_exchange
from autofast.techniques.ddp.planned import edits_for

MESSAGE = "trains in one process on one device; torchrun can start one for each GPU, and each takes its part of every batch"


@rule(
    "ddp",
    Effect.RECIPE,
    groups=("parallel",),
    default=False,
    option="--ddp",
    decides=Distributed,
    relieves={"device": 7},
    several_processes=True,
    uses=("accumulation",),
    torch=(1, 10),
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Train in several processes, one for each GPU, with DistributedDataParallel."""
    if not script.steps and not script.frameworks:
        return
    place = script.steps[0].loop if script.steps else next(iter(script.frameworks.values()))
    try:
        edits, note, wrapped = edits_for(script, options)
    except Refusal as why:
        yield Finding(place, MESSAGE, refusal=str(why))
    else:
        yield Finding(place, MESSAGE + note, edits=tuple(edits), key=place)
        yield from without_exchange(script, options, wrapped, place)
