"""python-loop: operate on whole tensors, not on one row after the other in a loop."""

from __future__ import annotations

from collections.abc import Iterator

from autofast.facts.cost import gains
from autofast.facts.parts_alike import parts_alike
from autofast.facts.row_by_row import row_by_row
from autofast.model.script import Script
from autofast.rule import Effect, Finding, Options, rule
from autofast.techniques.loops.planned import Batched, batched, in_half
from autofast.techniques.precision.amp import Amp, amp
from autofast.write.spelling import uses_gpu

SINCE = (1, 7)  # amax
ROW_BY_ROW = "computes with one row after the other, each with kernels of its own"
ADVICE = (
    "no turn needs what another leaves: compute with all rows at once, in one more dimension, with a "
    "mask for what is left out and index_add_ or scatter_reduce for sums over groups"
)
PARTS = (
    "applies parts of one class to the same input one after the other, each with kernels of its own"
)
ONE_LAYER = (
    "let one layer of all their outputs stand for the layers of the parts (`nn.Linear(width, parts * size)`), and "
    "make the parts one more dimension of what it gives; checkpoints get other keys"
)


@rule(
    "python-loop",
    Effect.EXACT,
    groups=("sync",),
    decides=Batched,
    uses=("autocast", "grad-scaler", "bce-with-logits"),
    relieves={"host": 10},
    asks=gains.elements,
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Operate on whole tensors, not on one row after the other in a loop."""
    if options.target == "cpu" or not uses_gpu(script):
        return  # on the CPU, nothing is launched
    plans = script.analysis(batched)
    if plans and options.decides(Amp) and (found := amp(script, options)).blocks:
        plans = plans if found.refused else script.analysis(in_half)
    for plan in plans:
        if plan.refusal:
            yield Finding(plan.loop, plan.message, refusal=plan.refusal)
        else:
            yield Finding(
                plan.loop, plan.message, edits=plan.edits, effect=plan.effect, torch=SINCE
            )
    for parts in parts_alike(script):
        yield Finding(parts, PARTS, advice=ONE_LAYER)
    for loop in row_by_row(script, [plan.loop for plan in plans]):
        yield Finding(loop, ROW_BY_ROW, advice=ADVICE)
