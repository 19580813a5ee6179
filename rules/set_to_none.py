"""set-to-none: drop gradients instead of filling them with zeros."""

from __future__ import annotations

from collections.abc import Iterator

from autofast.model.kinds import is_module, is_optimizer
from autofast.model.script import Script
from autofast.model.values import const
from autofast.rule import Effect, Finding, Options, rule

MESSAGE = (
    "fills gradients with zeros, to which the next backward adds, instead of letting it write them"
)
ADVICE = (
    "leave the argument out where every parameter gets a gradient in every step and nothing looks "
    "at one before the next backward: without a gradient, momentum and weight decay stop"
)


@rule(
    "set-to-none",
    Effect.EXACT,
    groups=("optimizer",),
    relieves={"optimizer": 2, "host": 3},
    torch=(1, 7),
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Point out gradients that are filled with zeros instead of dropped."""
    for site in script.methods("zero_grad"):
        asked = all(const(o.args.get(0, "set_to_none")) is False for o in site)
        owners = site.owners
        if asked and site.call and all(is_optimizer(t) or is_module(t) for t in owners):
            yield Finding(site.node, MESSAGE, advice=ADVICE)
