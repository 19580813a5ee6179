"""Evaluations that stand beside each other."""

from __future__ import annotations

from dataclasses import replace

from autofast.edit.edits import Around
from autofast.edit.ignores import is_spared
from autofast.flow.positions import block, index
from autofast.rule import Finding

NAME = "no-grad-eval"


def joined(found: list[Finding]) -> list[Finding]:
    """The findings, with one block for those whose statements stand beside each other."""
    done = list(found)
    for n, finding in enumerate(done):
        for k in range(n):
            one, other = _block(done[k]), _block(finding)
            if one is None or other is None or one.header != other.header:
                continue
            here = block(one.last)
            if index(here, other.first) == index(here, one.last) + 1:
                whole = replace(one, last=other.last)
                for m in range(n + 1):
                    if m == n or _block(done[m]) is one:
                        edits = [e for e in done[m].edits if e is not one and e is not other]
                        done[m] = replace(done[m], edits=(*edits, whole))
                break
    return done


def _block(finding: Finding) -> Around | None:
    """The block that a fix puts one evaluation in, which no comment keeps as it is."""
    blocks = [e for e in finding.edits if isinstance(e, Around)]
    return blocks[0] if blocks and not is_spared(blocks[0].first, NAME) else None
