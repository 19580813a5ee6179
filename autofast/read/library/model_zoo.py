"""Models that a project registers with timm: what ``create_model(name)`` makes of a name that is
its own.
"""

from __future__ import annotations

from dataclasses import replace

from autofast.model.several import wordset
from autofast.model.values import (
    NOTHING,
    Arg,
    Arguments,
    Const,
    Given,
    Unknown,
    Values,
    Where,
    any_of,
    const,
    ordered,
    things as values,
)
from autofast.read.library.table import gives_for, make
from autofast.read.state.core import Core

REGISTERS = wordset(
    "registry.register_model _registry.register_model register_model", "timm.models."
)
MAKERS = wordset("timm.create_model timm.models.create_model")
MOST_MODELS = 12
# What timm keeps to itself; all else goes to the function that is registered.
KEPT = wordset(
    "model_name scriptable exportable no_jit checkpoint_path pretrained_cfg "
    "pretrained_cfg_overlay cache_dir"
)
OTHERS = Unknown("the model's name is an option, and many are registered")


def register(interp: Core, name: str, made: Values) -> None:
    """Keep a function that ``@register_model`` stands above."""
    interp.zoo[name] = interp.zoo.get(name, NOTHING) | made


@gives_for(*MAKERS)
def _created(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    own = _own(interp, args, node)
    optional = any_of(args.get(0, "model_name"), Arg)  # another may be given
    return own | make(interp, "timm.create_model", args, node) if optional or not own else own


def _own(interp: Core, args: Arguments, node: Where) -> Values:
    """The models of the project that the name may mean; nothing where it may be none of them by
    default.

    An option may name any other model that is registered.
    """
    named = ordered(args.get(0, "model_name"))
    if len(named) != 1 or args.open or args.dicts:
        return NOTHING
    (name,) = named
    default = const(name.default) if isinstance(name, Arg) else const(frozenset(named))
    if not isinstance(default, str) or default not in interp.zoo:
        return NOTHING
    chosen = [default]
    if isinstance(name, Arg):
        chosen += [other for other in interp.zoo if other != default]
    found = values(OTHERS) if len(chosen) > MOST_MODELS else NOTHING
    given = _handed_on(args)
    for func in (t for key in chosen[:MOST_MODELS] for t in ordered(interp.zoo[key])):
        found |= interp.call_thing(func, given, node)
    return found


def _handed_on(args: Arguments) -> Arguments:
    """timm leaves out what is None: such options are for models that know them."""
    nothing = frozenset({Const(None)})
    named = {k: g for k, g in args.named.items() if k not in KEPT and g.values != nothing}
    named.setdefault("pretrained", Given(values(Const(False)), None))
    if len(args.positional) > 1:
        named["pretrained"] = args.positional[1]
    return replace(args, positional=[], named=named)
