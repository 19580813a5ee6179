"""apex.amp: what ``initialize`` gives back and what ``with scale_loss(...)`` binds."""

from __future__ import annotations

from autofast.model.events import Stack, WithFrame
from autofast.model.values import (
    NONE,
    Arguments,
    Ext,
    Seq,
    Tensor,
    Unknown,
    Values,
    Where,
    any_of,
    is_named,
    of_kind,
    one,
    said,
    things as values,
)
from autofast.read.library.table import gives_for
from autofast.read.state.core import Core

SCALE_LOSS = "apex.amp.scale_loss"


@gives_for(SCALE_LOSS)
def _scaled(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    made = interp.intern(Ext, (node, name), lambda: Ext(name, node, args))
    made.args = args
    return values(made)


@gives_for("apex.amp.master_params")
def _parameters(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    elem = values(Tensor(param="param", grad=True))
    return values(interp.intern(Seq, (node, name), lambda: Seq(node, None, elem, "parameters")))


@gives_for("apex.amp.initialize")
def _initialize(interp: Core, name: str, args: Arguments, node: Where) -> Values | None:
    """The models and optimizers that it is given, where they stay what they are: O1 changes the
    functions of torch instead.
    """
    level = _level(args.get(4, "opt_level")) if args.given(4, "opt_level") is not None else "O1"
    models, optimizers = args.get(0, "models"), args.get(1, "optimizers")
    if level != "O1" or not args.known or not models or any_of(models, Unknown):
        return None
    if not optimizers or optimizers == NONE:
        return models
    return interp.tuple_of(node, (models, optimizers), "apex")


def _level(given: Values) -> object:
    """The opt_level that is given; of an option, its default."""
    return said(one(given))


def scales(stack: Stack) -> bool:
    """Whether a place is below ``with amp.scale_loss(...)``."""
    frames = of_kind(stack, WithFrame)
    return any(
        is_named(t, Ext, SCALE_LOSS) for f in frames for _, found in f.contexts for t in found
    )
