"""frozen-critic: compute no gradients for a model that drops them, while another one learns from
it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import After, Before, Wrap, plain_code
from autofast.edit.order import Rank
from autofast.facts.cost import gains
from autofast.facts.several_processes import several_processes
from autofast.model.script import Script
from autofast.model.several import any_in
from autofast.rule import Effect, Finding, Options, rule
from autofast.techniques.compiling.legality import Compiled
from autofast.techniques.optimizer.frozen import dropped_backwards, ended_backwards

OWNERS = ("lightning", "accelerate", "hf-trainer", "deepspeed", "fabric")


@rule(
    "frozen-critic",
    Effect.EXACT,
    groups=("optimizer",),
    uses=("compile", "ddp", "dataparallel-to-ddp"),
    relieves={"device": 9, "cpu": 6},
    torch=(1, 2),  # Module.requires_grad_
    asks=gains.usual(0.08, "a third of a pass through the model, of about four in a step"),
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Compute no gradients for a model that drops them, while another one learns from it."""
    if any_in(OWNERS, script.frameworks):
        return
    names = set()
    ended = list(ended_backwards(script))
    short = {call for call, why in ended if not why}
    for found, why in dropped_backwards(script):
        if found.calls <= short:
            continue
        names.add(found.name)
        if options.decides(Compiled):
            why = why or "models are compiled, and would be so again where parameters are frozen"
        if several_processes(options):
            why = why or "DistributedDataParallel waits for the gradients of all parameters"
        message = f"computes gradients for the parameters of `{found.name}`, which are dropped"
        if why:
            yield Finding(found.backward.node, message, refusal=why)
            continue
        off = plain_code(f"{found.name}.requires_grad_(False)")
        on = plain_code(f"{found.name}.requires_grad_(True)")
        frozen = (
            After(found.zero, off)
            if found.zero is not None
            else Before(found.first, off, rank=Rank.GRAD_MODE)
        )
        yield Finding(found.backward.node, message, edits=(frozen, After(found.last, on)))
    for call, why in ended:
        name = ast.unparse(call.func)
        if name not in names:
            message = f"a backward goes through `{name}`, whose gradients are dropped"
            if several_processes(options):
                why = why or "DistributedDataParallel waits for the gradients of all parameters"
            detached = () if why else (Wrap(call, "{}.detach()"),)
            yield Finding(call, message, refusal=why, edits=detached)
