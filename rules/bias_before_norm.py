"""bias-before-norm: no bias in convolutions whose result is normalised."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.facts.cost import gains
from autofast.facts.loaders import split_after
from autofast.facts.normalised import in_other_ways, normalised, reads_bias
from autofast.flow.program import definitions_at
from autofast.model.events import BranchFrame
from autofast.model.script import Script
from autofast.model.source import at
from autofast.model.values import Ext, any_of, one
from autofast.rule import Effect, Finding, Options, rule
from autofast.write.arguments import place_for_argument

MESSAGE = "adds a bias to each channel, which the normalisation behind it takes away with the mean"
PLACE = 7  # bias, in all convolutions
SAVED = ("torch.load", ".load_state_dict", "torch.hub.load_state_dict_from_url")


@rule(
    "bias-before-norm",
    Effect.RECIPE,
    groups=("compute",),
    default=False,
    asks=gains.usual(0.01, "a kernel less for each of these layers, forward and backward"),
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Leave the bias out of convolutions whose result is normalised."""
    found = normalised(script)
    why_not = _against(script, [t for made in found.values() for t in made]) if found else ""
    for made in found.values():
        call, args = made[0].node, made[0].args
        if not isinstance(call, ast.Call) or args.given(PLACE, "bias") is not None:
            continue  # someone has decided
        home = place_for_argument(script, args, "bias", [])
        why = why_not or (home if isinstance(home, str) else "")
        edits = () if why or isinstance(home, str) else (home.set("bias", "False"),)
        yield Finding(call, MESSAGE, edits=edits, refusal=why)


def _against(script: Script, layers: list[Ext]) -> str:
    """Why no layer of a script should lose its bias; empty where nothing speaks against it."""
    if script.unread:
        return f"the biases may be used where {script.unread}"
    for name in SAVED:
        for site in script.log.of(name):
            sure = any(not any_of(o.stack, BranchFrame) for o in site)
            if sure and not _of_this_run(script, site.node):
                return f"{at(site)} loads weights, which may have been saved with biases"
    if why := in_other_ways(script):
        return why
    if place := reads_bias(script, layers):
        return f"{place} uses biases, and does not ask whether there are any"
    if split := split_after(script, ((t.node, t.made) for t in layers if t.node is not None)):
        return f"{at(split)} draws what is trained on and what is not, by numbers that come after those of the biases: give it a generator"
    return ""


def _of_this_run(script: Script, load: ast.AST) -> bool:
    """``target.load_state_dict(model.state_dict())``, also of a copy that was kept: both have the
    same layers.
    """
    given = next(iter(getattr(load, "args", ())), None)
    while given is not None:
        match given:
            case ast.Call(func=ast.Attribute(attr="state_dict")):
                return True
            case ast.Call(func=ast.Attribute(attr="deepcopy" | "copy"), args=[inner, *_]):
                given = inner
            case ast.Call(func=ast.Name(id="deepcopy"), args=[inner]):
                given = inner
            case ast.Name():
                made = {d.value for d in definitions_at(script, given)}
                plain = {m for m in made if not isinstance(m, ast.Constant)}  # None at first
                given = one(plain)
            case _:
                return False
    return False
