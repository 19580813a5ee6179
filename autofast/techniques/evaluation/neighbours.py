"""Evaluations that stand beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autofast.edit.edits import Around
from autofast.edit.ignores import is_spared
from autofast.rule import Finding
from autofast.write.neighbours import follows


def joined(found: Sequence[Finding], rule: str) -> list[Finding]:
    """The findings of a rule, with one block for those whose statements stand beside each other:
    under no_grad where one of them needs that.
    """
    runs: list[list[Around]] = []
    blocks = [_block(finding, rule) for finding in found]
    for block in blocks:
        if block is not None:
            run = next(
                (r for r in runs if follows(r[-1], replace(block, header=r[-1].header))), None
            )
            if run is None:
                runs.append(run := [])
            run.append(block)
    whole = {
        id(b): replace(run[0], last=run[-1].last, header=max(x.header for x in run))
        for run in runs
        for b in run
        if run[1:]
    }
    return [
        replace(f, edits=(*(e for e in f.edits if e is not b), whole[id(b)]))
        if id(b) in whole
        else f
        for f, b in zip(found, blocks, strict=True)
    ]


# `no_grad` comes behind `inference_mode` in the alphabet.
def _block(finding: Finding, rule: str) -> Around | None:
    """The block that a fix puts one evaluation in, which no comment keeps as it is."""
    blocks = [e for e in finding.edits if isinstance(e, Around)]
    return blocks[0] if blocks and not is_spared(blocks[0].first, rule) else None
