"""Where DDP is put around models whose gradients are gathered over several batches, they are
exchanged once a window.
"""

from __future__ import annotations

from collections.abc import Iterator

from autofast.edit.edits import Edit, plain_code
from autofast.model.script import Script
from autofast.model.source import ByNode
from autofast.rule import Finding, Need, Options, Refusal
from autofast.techniques.accumulation import accumulated, existing

EXCHANGE = "the processes exchange gradients after every batch, and the last of a window is enough"


def without_exchange(
    script: Script, options: Options, wrapped: ByNode[str], beside: object
) -> Iterator[Finding]:
    """Where the gradients of several batches are gathered, the processes exchange them once a
    window.

    ``wrapped`` are the names by which the calls of models call them now, ``beside`` the key of the
    finding that names them so.
    """
    for step in script.steps:
        calls = [s.call for s in step.forwards if s.call and s.call in wrapped]
        if not calls:
            continue
        name = wrapped[calls[0]]
        planned = accumulated.planned(script, options, step.loop)
        edits: list[Edit] = []
        needs: tuple[Need, ...] = ((None, beside),)
        try:
            if planned is not None and planned.window is not None and planned.iteration is not None:
                condition = plain_code(planned.window.is_last)
                backwards = [e.node for e in planned.iteration.of("backward")]
                edits = accumulated.no_sync(
                    planned.iteration.loop,
                    backwards,
                    condition,
                    planned.edits,
                    calls,
                    name,
                    always=False,
                )
                needs = ((None, beside), (accumulated.Accumulated, step.loop))
            elif existing.existing_window(script, step) is None:
                continue
        except Refusal:
            pass
        if edits and all(wrapped[c] == name for c in calls):
            yield Finding(
                calls[0], EXCHANGE, edits=tuple(edits), key=("no_sync", step.loop), needs=needs
            )
        else:
            yield Finding(
                calls[0],
                EXCHANGE,
                refusal=f"where {name}.no_sync() would go is not understood; it is slower so, not wrong",
            )
