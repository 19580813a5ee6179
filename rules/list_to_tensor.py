"""list-to-tensor: make one array of a list of arrays before torch makes a tensor of it."""

from __future__ import annotations

from collections.abc import Iterator

from autofast.facts.cost import gains
from autofast.model.events import CallFrame, Site
from autofast.model.script import Script
from autofast.model.several import of_kind
from autofast.rule import Effect, Finding, Options, rule
from autofast.techniques.transfers.factories import loops_of_steps, runs_often
from autofast.techniques.transfers.lists_of_arrays import lists_of_arrays

ONE_BY_ONE = "numbers of arrays in a list are taken one by one, 0.1 us each"
MESSAGE = "makes a tensor of a list, number by number"


@rule(
    "list-to-tensor",
    Effect.EXACT,
    groups=("transfer",),
    relieves={"host": 11, "data": 9},
    asks=gains.usual(0.03, ONE_BY_ONE, code=True),
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Make one array of a list of arrays before torch makes a tensor of it."""
    hot = loops_of_steps(script)
    for site, edits, why in lists_of_arrays(script):
        if (edits or why) and (runs_often(site, hot) or _makes_items(script, site)):
            yield Finding(site.node, MESSAGE, edits=edits, refusal=why)


def _makes_items(script: Script, site: Site) -> bool:
    """Whether it runs for each item of a data set that a loader is given."""
    items = {d.getitem for x in script.loaders for d in x.datasets}
    return any(f.func.node in items for o in site for f in of_kind(o.stack, CallFrame))
