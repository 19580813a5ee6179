"""apex behind an option that is off by default: what runs without it gets autocast, and what runs
with it stays as it is.
"""

from __future__ import annotations

import ast
from dataclasses import replace

from autofast.facts.by_default import Off, behind_option, by_default
from autofast.facts.forwards import Region
from autofast.model.script import Script
from autofast.model.source import at
from autofast.techniques.precision.scaling import Scaling


def apex_option(script: Script) -> Off | None:
    """The option, off by default, without which the script has nothing to do with apex; None where
    there is none.
    """
    if "apex" not in script.frameworks:
        return None
    sites = [
        site
        for (kind, _), site in script.log.each()
        if kind.startswith("apex.amp.")
        or (
            kind == "new" and any(getattr(o.this, "name", "").startswith("apex.amp.") for o in site)
        )
    ]
    return behind_option(script, sites)


def script_without(script: Script, off: Off) -> Script:
    """The script as it runs while the option, and apex, are off."""
    frameworks = {name: node for name, node in script.frameworks.items() if name != "apex"}
    return replace(by_default(script, off), frameworks=frameworks)


def cannot_ask(script: Script, off: Off, regions: list[Region], scaling: Scaling | None) -> str:
    """A place that has to know whether the option is given and cannot, in words."""
    places = [*(r.first for r in regions), *(scaling.makes if scaling is not None else ())]
    return next((cannot(off, p) for p in places if not off.is_off_at(script, p)), "")


def cannot(off: Off, place: ast.stmt) -> str:
    """Why the way without the option cannot be told from the other one at a place."""
    return f"it stays as it is where `--{off.option.name}` is given, which cannot be asked on {at(place)}"
