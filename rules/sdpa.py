"""sdpa: attention that is written out becomes one call."""

from __future__ import annotations

from collections.abc import Iterator

from autofast.edit.edits import Keyword
from autofast.facts.cost import gains
from autofast.model.script import Script
from autofast.rule import Effect, Finding, Options, Refusal, rule
from autofast.techniques.attention.call import against_script, no_hooks, one_call
from autofast.techniques.attention.written_out import attention, drops_weights, softmaxes

MESSAGE = (
    "writes attention out: the scores of all pairs are kept, and go through memory several times"
)

DROPPED = "asks attention for its weights and drops them, so that it is written out inside"


@rule(
    "sdpa",
    Effect.ROUNDING,
    groups=("compute",),
    relieves={"device": 8},
    asks=gains.usual(0.15, "attention in one kernel, without the scores in memory"),
    torch=(2, 1),  # scale=
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Compute attention in one call, scaled_dot_product_attention, where it is written out."""
    for softmax, given in softmaxes(script):
        try:
            found = attention(script, softmax, given)
            if found is None:
                continue
            if why := against_script(script):
                raise Refusal(why)
            edits, effect = one_call(script, found)
        except Refusal as why_not:
            yield Finding(softmax, MESSAGE, refusal=str(why_not))
            continue
        yield Finding(softmax, MESSAGE, edits=edits, effect=effect)
    for call, effect in drops_weights(script):
        edit, why = Keyword(call, "need_weights", "False"), against_script(script)
        try:
            no_hooks(script)
        except Refusal as why_not:
            why = str(why_not)
        yield Finding(call, DROPPED, edits=() if why else (edit,), refusal=why, effect=effect)
