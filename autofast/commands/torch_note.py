"""What a rewrite has to do with the version of torch, in one line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from autofast.model.torch_age import Newest, TorchAge, shown

if TYPE_CHECKING:
    from autofast.edit.passes import Passes
    from autofast.model.script import Script


def torch_note(script: Script, plan: Passes) -> Iterator[str]:
    """Which versions run the script where that keeps something from being written; else which one
    the rewritten script needs.
    """
    age = script.torch
    needed = max((f.torch or (0, 0) for p in plan.plans for f in p.fixes), default=(0, 0))
    refused = [f.refusal for f in plan.findings if f.status == "refused"]
    if left := [n for n in age.newest if any(n.words in why for why in refused)]:
        least = _least(left)
        yield (
            f"it runs with {_interval(age, least)} ({least.words}): what needs a newer one is left out"
            "; --torch VERSION says which one you have"
        )
    elif anew := [n for n in age.in_the_way(needed) if n.anew]:
        least = _least(anew)
        yield (
            f"it needs torch {shown(needed)} or newer; as it was, it ran with {least.limit} at most"
            f" ({least.words}), and that is written anew"
        )
    elif (bound := age.promised) and any(bound.words in why for why in refused):
        yield (
            f"it runs with torch {shown(bound.limit.newest)} or newer, as {bound.words}: what needs"
            " a newer one than that is left out; --torch VERSION says which one you have"
        )
    elif needed > (2, 0) and not age.is_at_least(needed):
        said = max((o for o in age.oldest if o.node is None), key=lambda o: o.version, default=None)
        what = said.words if said else "the project's requirements do not say which it has"
        yield f"it needs torch {shown(needed)} or newer; {what}"


def _least(found: Sequence[Newest]) -> Newest:
    return min(found, key=lambda n: (n.limit.newest, n.limit.included))


def _interval(age: TorchAge, newest: Newest) -> str:
    """``torch 1.1 to 1.6``"""
    limit = newest.limit
    if age.least and not limit.is_below(age.least) and limit.included:
        older = f"{shown(age.least)} to " * (age.least < limit.newest)
        return f"torch {older}{shown(limit.newest)}"
    return f"{limit}" if not limit.included else f"{limit} or older"
