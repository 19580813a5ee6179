"""Pipelines of torchvision's transforms: which transforms there are, in which order."""

from __future__ import annotations

from autofast.model.values import Ext, Seq, Thing, one, ordered

MODULE, V2 = "torchvision.transforms.", "torchvision.transforms.v2."


def short_name(part: Thing | None, v2: bool = True) -> str:
    """The short name of a transform of torchvision, with ``v2`` also of the newer ones; empty for
    anything else.
    """
    if not isinstance(part, Ext) or not part.name.startswith(MODULE):
        return ""
    if part.name.startswith(V2):
        return part.name.removeprefix(V2) if v2 else ""
    return part.name.removeprefix(MODULE)


def pipeline(composed: Thing | None) -> list[Thing | None]:
    """What a Compose (or a RandomApply, ...) does one by one, None for what is not known; nothing
    where it is not certain how many there are.
    """
    if not isinstance(composed, Ext) or composed.args.open:
        return []
    parts = one(composed.args.get(0, "transforms"))
    return [one(item) for item in parts.exact or ()] if isinstance(parts, Seq) else []


def steps_of(thing: Ext) -> list[Thing]:
    """All that may be done, pipelines in it opened; of a list that is not known one by one,
    whatever may be in it.
    """
    if not thing.name.endswith((".Compose", ".Sequential")):
        return [thing]
    inner: list[Thing] = []
    for given in thing.args.positional:
        for part in given.values:
            if isinstance(part, Seq) and part.items is not None:
                elements = part.items
            elif isinstance(part, Seq):
                elements = (part.any(),)
            else:
                elements = ()
            for element in elements:
                inner += [
                    s
                    for t in ordered(element)
                    for s in (steps_of(t) if isinstance(t, Ext) else [t])
                ]
    return inner
