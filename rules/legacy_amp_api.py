"""legacy-amp-api: use torch.amp, which torch.cuda.amp and torch.cpu.amp are deprecated for."""

from __future__ import annotations

from collections.abc import Iterator

from autofast.facts.cost import gains
from autofast.model.script import Script
from autofast.rule import Effect, Finding, Options, rule
from autofast.techniques.legacy.amp_api import (
    import_edits,
    old_uses,
    renaming_edits,
    why_not_renamed,
)

SINCE = (2, 4)  # custom_fwd(device_type=...); torch.amp.GradScaler is there since 2.3
SAME = gains.nothing("other names for the same, which warn")


@rule("legacy-amp-api", Effect.EXACT, groups=("modernize",), asks=SAME, torch=SINCE)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Use torch.amp, which torch.cuda.amp and torch.cpu.amp are deprecated for."""
    uses = [use for source in script.sources for use in old_uses(script, source)]
    if not uses:
        return
    message = "torch.cuda.amp and torch.cpu.amp are deprecated for torch.amp and warn at every call"
    reason = next((why for use in uses if (why := why_not_renamed(script, use))), "")
    for source in script.sources:
        mine = [use for use in uses if use.source is source]
        if mine and reason:
            yield Finding(mine[0].node, message, refusal=reason)
            continue
        bound = [use for use in mine if use.binding is not None]
        together = tuple(edit for use in bound for edit in renaming_edits(source, use)) + tuple(
            import_edits(bound)
        )
        for use in mine:  # an import and all calls through it change together
            yield Finding(
                use.call or use.node,
                message,
                edits=tuple(renaming_edits(source, use)) if use.binding is None else together,
            )
