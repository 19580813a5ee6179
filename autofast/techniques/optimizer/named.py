"""Optimizers of which a file with settings says the class: ``getattr(torch.optim,
settings["type"])``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.facts.optimizers import FUSED, SINCE, sparse
from autofast.facts.settings import beside, place
from autofast.model.calls import arguments_of
from autofast.model.events import CallFrame, Occurrence
from autofast.model.script import Script
from autofast.model.values import Ref, Setting
from autofast.rule import Finding

# Not SGD: its momentum and a GradScaler do not go together with it.
PLAIN = tuple(name for name in FUSED if name != "SGD")
TORCH = Ref("torch.optim")


def named_in_settings(script: Script) -> Iterator[Finding]:
    """Advice to set ``fused`` beside the other arguments of an optimizer in the file."""
    if script.torch.rules_out(SINCE) or sparse(script):
        return
    chosen = [o for o in script.optimizers if o.name == "Optimizer"]
    handed_on = any(beside(o.args) for o in chosen)
    seen: set[tuple[str, int]] = set()
    for site in script.log.of("builtins.getattr"):
        for occurrence in site:
            for said in occurrence.args.get(1, "name") if occurrence.args is not None else ():
                if not isinstance(said, Setting) or said.value not in PLAIN:
                    continue
                if not _of_torch(occurrence) or (said.file, said.line) in seen:
                    continue
                seen.add((said.file, said.line))
                if handed_on:
                    todo = f"set fused to true among the arguments of {place(said)}"
                else:
                    todo = f"pass fused=True with {said.value} ({place(said)})"
                yield Finding(
                    _asked(script, occurrence, site.node),
                    f"runs the update of {said.value} as many small kernels",
                    advice=f"{todo}, if all parameters are on the GPU",
                )


def _of_torch(occurrence: Occurrence) -> bool:
    return occurrence.args is not None and TORCH in occurrence.args.get(0, "object")


def _asked(script: Script, occurrence: Occurrence, node: ast.AST) -> ast.AST:
    """The outermost call on the way that hands on ``torch.optim``: where the script asks for the
    optimizer.
    """
    for frame in occurrence.stack:
        match frame:
            case CallFrame(node=ast.Call() as call):
                if any(script.values(part) == {TORCH} for part in arguments_of(call)):
                    return call
    return node
