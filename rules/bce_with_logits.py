"""bce-with-logits: binary cross entropy takes what goes into the sigmoid."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.facts.cost import gains
from autofast.facts.sigmoids import Group, sigmoids
from autofast.model.script import Script
from autofast.rule import Effect, Finding, Options, rule
from autofast.techniques.precision.amp import Amp, amp
from autofast.techniques.precision.with_logits import WithLogits, with_logits

MESSAGE = "binary cross entropy of a sigmoid, an error under autocast: the loss can take what goes into the sigmoid"


@rule(
    "bce-with-logits",
    Effect.ROUNDING,
    # the results of the models get another meaning: logits in place of probabilities
    default=False,
    groups=("precision",),
    decides=WithLogits,
    uses=("autocast", "grad-scaler"),
    asks=gains.half,
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Give binary cross entropy what goes into the sigmoid, as autocast needs it."""
    done = with_logits(script)
    follows = done.groups and options.decides(Amp) and amp(script, options).blocks
    asks = (
        None if follows else gains.nothing("one kernel less: the models stay in fp32 all the same")
    )
    for (group, edits), key in zip(done.groups, done.keys, strict=True):
        yield Finding(_place(group), MESSAGE, edits=edits, key=key, asks=asks)
    for group in script.analysis(sigmoids) if script.steps else ():
        if group.refusal:
            yield Finding(_place(group), MESSAGE, refusal=group.refusal)


def _place(group: Group) -> ast.AST:
    """Where the loss is made, else where it is computed."""
    return group.made[0] if group.made else group.losses[0][0]
