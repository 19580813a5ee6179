"""Averages of the weights of a network, as ``torch.optim.swa_utils.AveragedModel`` keeps them."""

from __future__ import annotations

from collections.abc import Iterator

from autofast.model.script import Script
from autofast.model.several import surely
from autofast.model.source import within_any
from autofast.model.values import Arguments, Const, Inst, Values

AVERAGED = "torch.optim.swa_utils.AveragedModel"


def averages_buffers(script: Script) -> bool:
    """Whether the buffers of a network may be averaged, too: whole numbers are cut off then."""
    told = (o.data.get("name") for s in script.log.of("set_attribute") for o in s)
    return "use_buffers" in told or not all(map(_leaves_buffers, _made_with(script)))


def _made_with(script: Script) -> Iterator[Arguments]:
    """What each is made with, also by a class of the project that extends it."""
    yield from (o.args for s in script.calls(AVERAGED, f"{AVERAGED}.__init__") for o in s)
    made = [(o, o.this) for s in script.log.of("new") for o in s if isinstance(o.this, Inst)]
    own = [(o, t.cls) for o, t in made if AVERAGED in t.cls.external]
    bodies = [c.node for _, cls in own for c in cls.lineage()]
    for site in script.methods("__init__") if own else ():
        if within_any(site.node, bodies):
            yield from (o.args for o in site)
    yield from (o.args for o, cls in own if cls.find("__init__") is None)


def _leaves_buffers(args: Arguments) -> bool:
    """Older ones take ``use_buffers`` as the fourth argument."""
    given: list[Values] = [g.values for g in args.positional[3:]]
    given += [g.values for name, g in args.named.items() if name == "use_buffers"]
    off = (surely(isinstance(t, Const) and not t.value for t in each) for each in given)
    return args.known and all(off)
