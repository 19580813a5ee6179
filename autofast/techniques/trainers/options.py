"""Options of a script's own that switch a technique on, and are off by default: what to pass on its
command line.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.model.calls import requirements
from autofast.model.events import BranchFrame, Occurrence, Site
from autofast.model.names import AUTOCAST, SCALER
from autofast.model.script import Script
from autofast.model.several import of_kind
from autofast.model.source import Nodes
from autofast.model.syntax import VARIABLES
from autofast.model.values import Arg, Const, Ref
from autofast.rule import Finding, Options
from autofast.techniques.trainers.spots import option_flag

WORDS = {
    "amp": "mixed precision",
    "channels-last": "channels_last order",
    "compile": "torch.compile",
}


def find(script: Script, options: Options, *, compiles: bool) -> Iterator[Finding]:
    """Advice for each option that is in the way of a technique."""
    if not script.steps:
        return
    said: Nodes = set()
    for technique, sites in _sites(script, options, compiles):
        ways = [_switch(script, o) for site in sites for o in site]
        switches = {w.node: w for w in ways if w is not None}
        if not ways or None in ways or len(switches) != 1 or said & switches.keys():
            continue  # it is on in some way already, or several options decide
        said |= switches.keys()
        (option,) = switches.values()
        where = " where the GPU has tensor cores" if technique == "amp" else ""
        yield Finding(
            option.node,
            f"{WORDS[technique]} is an option that is off by default",
            advice=f"run it with {option_flag(option)}{where}",
        )


def _sites(script: Script, options: Options, compiles: bool) -> Iterator[tuple[str, list[Site]]]:
    if options.target == "cuda":
        made = script.calls(*AUTOCAST, *SCALER)
        yield "amp", [s for s in made if len(script.called(s.node)) == 1]
    yield (
        "channels-last",
        [s for s in script.log.of("move_model") if any(_to_channels_last(o) for o in s)],
    )
    if compiles:
        yield "compile", script.calls("torch.compile")


def _to_channels_last(occurrence: Occurrence) -> bool:
    given = occurrence.args.named.get("memory_format")
    return given is not None and Ref("torch.channels_last") in given.values


def _switch(script: Script, occurrence: Occurrence) -> Arg | None:
    """The flag without which the script does not come here, if that is off unless it is asked
    for.
    """
    for frame in occurrence.stack:
        match frame:
            case BranchFrame(node=ast.If(test=test) | ast.IfExp(test=test), arm=True):
                pass
            case _:
                continue
        for part in requirements(test):
            found = [
                t
                for t in of_kind(script.values(part), Arg)
                if t.kind == "flag" and t.default == {Const(False)}
            ]
            if found and isinstance(part, VARIABLES):
                return found[0]
    return None
