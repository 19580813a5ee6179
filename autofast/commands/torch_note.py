"""What a rewrite has to do with the version of torch, in one line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from autofast.model.torch_age import Newest, shown

if TYPE_CHECKING:
    from autofast.edit.passes import Passes
    from autofast.model.script import Script


def torch_note(script: Script, plan: Passes) -> Iterator[str]:
    """What says which torch runs the script, where that keeps something from being written, with
    how much that is; else which one the rewritten script needs."""
    age = script.torch
    needed = max((f.torch or (0, 0) for p in plan.plans for f in p.fixes), default=(0, 0))
    bound = age.promised
    reasons = [*age.newest, *([bound] if bound is not None else [])]
    refused = {
        id(f): n
        for f in plan.findings
        if f.status == "refused"
        for n in reasons
        if n.words in f.refusal
    }
    if refused:
        yield _left_out(
            _least(list(refused.values())),
            len(refused),
            max(f.torch or (0, 0) for f in plan.findings if id(f) in refused),
        )
    elif anew := [n for n in age.in_the_way(needed) if n.anew]:
        least = _least(anew)
        yield (
            f"it needs torch {shown(needed)} or newer; as it was, it ran with {least.limit} at most"
            f" ({least.words}), and that is written anew"
        )
    elif not age.is_at_least(needed):
        said = max((o for o in age.oldest if o.node is None), key=lambda o: o.version, default=None)
        if said is not None or needed > (2, 0):
            what = said.words if said else "the project's requirements do not say which it has"
            yield f"it needs torch {shown(needed)} or newer; {what}"


def _least(found: Sequence[Newest]) -> Newest:
    return min(found, key=lambda n: (n.limit.newest, n.limit.included))


def _left_out(because: Newest, count: int, needed: tuple[int, int]) -> str:
    if count == 1:
        what = "1 fix needs a newer torch and was"
    else:
        what = f"{count} fixes need a newer torch and were"
    hint = f"; with a newer one give --torch {shown(needed)}" * (
        because.is_said and needed > because.limit.newest
    )
    return f"{because.words}: {what} left out{hint}"
