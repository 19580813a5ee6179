"""Mixed precision that a script has, and that is off unless an option or a setting says
otherwise.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.facts.by_default import behind_option
from autofast.facts.settings import setting, setting_place
from autofast.flow.provenance import Trail
from autofast.model.events import Site, Stack, WithFrame, inside
from autofast.model.kinds import is_autocast
from autofast.model.script import Script
from autofast.model.source import Said, at
from autofast.model.syntax import is_constant
from autofast.model.values import Arg, Ext, const, one


def switched_off(script: Script) -> Said | None:
    """A forward pass whose autocast is off by default, and where that is decided, in words; None
    where there is none, or it is on.
    """
    for step in script.steps:
        around = [
            (o, frame, context)
            for site in script.log.of("forward")  # also of layers, in the model
            for o in site
            if inside(o.stack, step.loop)
            for frame, context in _autocasts(o.stack)
        ]
        if not around:
            continue
        forward = step.forwards[0].node if step.forwards else around[0][1].node
        blocks = {frame.node: Site("with", frame.node) for _, frame, _ in around}
        for occurrence, frame, _ in around:
            blocks[frame.node].occurrences.append(occurrence)
        if (off := behind_option(script, blocks.values())) is not None:
            return forward, _where(f"`--{off.option.name}`", off.option.node)
        contexts = {id(context): (context, o.stack) for o, _, context in around}
        where = {_enabled(script, context, stack) for context, stack in contexts.values()}
        if len(where) == 1 and (words := where.pop()):
            return forward, words
    return None


def _autocasts(stack: Stack) -> Iterator[tuple[WithFrame, Ext]]:
    for frame in stack:
        if isinstance(frame, WithFrame):
            for _, found in frame.contexts:
                if is_autocast(found):
                    yield from ((frame, t) for t in found if isinstance(t, Ext))


def _enabled(script: Script, context: Ext, stack: Stack) -> str:
    """What sets ``enabled=`` to False, in words; empty where nothing certainly does."""
    given = context.args.named.get("enabled")
    if given is None:
        return ""
    if isinstance(option := one(given.values), Arg):
        is_off = const(option.default) in (False, None)
        return _where(f"`--{option.name}`", option.node) if is_off else ""
    if (said := setting(given.values)) is not None and given.expr is not None:
        words = f"`{ast.unparse(given.expr)}` ({setting_place(said)})"
        return words if said.value in (False, None) else ""
    found = Trail(script).of(given, [stack])
    if isinstance(found, str) or len(found) != 1:
        return ""
    origin = found[0]
    is_off = is_constant(origin.expr, False)
    return _where("the setting", origin.node) if is_off and origin.shared else ""


def _where(what: str, node: ast.expr) -> str:
    return f"{what} ({at(node)})"
