"""Where a program asks for runs that are the same each time, be it by a helper of a library."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.model.events import Occurrence
from autofast.model.script import Script
from autofast.model.values import Const, const, consts

SWITCH = "torch.use_deterministic_algorithms"
LEVEL = "torch.set_deterministic_debug_mode"
# Helpers of libraries that set cudnn.deterministic, or the switch of torch.
HELPERS = tuple(
    """torch.set_deterministic monai.utils.set_determinism monai.utils.misc.set_determinism
    transformers.enable_full_determinism transformers.trainer_utils.enable_full_determinism
    composer.utils.reproducibility.configure_deterministic_mode""".split()
)
# ... and those that do where they are asked to: set_seed(0, deterministic=True).
ASKED = ("deterministic", "reproducible")
OF_SEEDS = ("seed", "seeds", "seed_everything")
CONTEXT = "torch.backends.cudnn.flags"


def asked(script: Script) -> Iterator[ast.AST]:
    """The places that ask for deterministic algorithms."""
    for site in script.flags("torch.backends.cudnn.deterministic"):
        if any(t != Const(False) for o in site for t in o.result):
            yield site.node
    for site in script.calls(SWITCH):
        if any(const(o.args.get(0, "mode")) is not False for o in site):
            yield site.node
    for site in script.calls(LEVEL):
        if any(consts(o.args.get(0, "debug_mode")) not in ({0}, {"default"}) for o in site):
            yield site.node
    yield from (s.node for s in script.calls(*HELPERS))
    for (kind, _), site in script.log.each():
        if kind == CONTEXT or ("." in kind and kind.endswith(OF_SEEDS)):
            if any(_asks(o) for o in site):
                yield site.node


def _asks(occurrence: Occurrence) -> bool:
    named = occurrence.args.named
    return any(const(named[n].values) not in (False, None) for n in ASKED if n in named)
