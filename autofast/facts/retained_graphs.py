"""Forward passes that several backwards go back through."""

from __future__ import annotations

import ast

from autofast.flow.positions import position
from autofast.model.events import BranchFrame, Site
from autofast.model.roles import Backward
from autofast.model.script import Script


def gone_through_twice(script: Script) -> tuple[Backward, Backward, ast.AST] | None:
    """Two backwards that may both happen in one step and go back through the same call of a model,
    and that call.
    """
    for step in script.steps:
        reached: dict[int, Backward] = {}
        for backward in step.backwards:
            for forward in sorted({p for t in backward.tensors for p in t.passes}, key=position):
                first = reached.setdefault(id(forward), backward)
                if first is not backward and not _exclusive(first.site, backward.site):
                    return first, backward, forward
    return None


def _exclusive(a: Site, b: Site) -> bool:
    """Two arms of one condition lead to them."""
    arms = [
        {(f.node, f.arm) for f in o.stack if isinstance(f, BranchFrame)}
        for site in (a, b)
        for o in site
    ]
    return all(
        any((node, not arm) in y for node, arm in x)
        for x in arms[: len(a.occurrences)]
        for y in arms[len(a.occurrences) :]
    )
