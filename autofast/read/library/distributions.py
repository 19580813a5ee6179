"""torch.distributions: tensors that are computed of a distribution's parameters."""

from __future__ import annotations

from autofast.model.several import wordset
from autofast.model.tensors import is_unknown_in, mixed, tensors_in
from autofast.model.values import (
    Arguments,
    Ext,
    Inst,
    Thing,
    Values,
    Where,
    one,
    things as values,
)
from autofast.read.state.core import Core

MODULE = "torch.distributions."
PARENT = "__distribution__"  # what a class of the project makes of itself by `super().__init__`
DRAWN = wordset("sample sample_n")  # without gradients, whatever the parameters carry
COMPUTED = wordset("rsample log_prob cdf icdf entropy perplexity")
PROPERTIES = wordset("mean mode stddev variance loc scale probs logits rate")


def begin(interp: Core, this: Thing, args: Arguments, node: Where) -> None:
    """The constructor of the distribution that a class of the project extends."""
    if isinstance(this, Inst) and (name := _extended(this)):
        made = interp.intern(Ext, (node, name, this), lambda: Ext(name, node, args))
        made.args = args
        this.attrs[PARENT] = values(made)


def method(this: Thing, name: str, args: Arguments) -> Values | None:
    """What a method of a distribution returns; None where its parameters are not known."""
    if name not in DRAWN | COMPUTED:
        return None
    given = [g.values for g in args.every]
    return _of(this, given if name in COMPUTED else [], grad=name not in DRAWN)


def attribute(this: Thing, name: str) -> Values | None:
    """``normal.mean``; None where its parameters are not known."""
    return _of(this, [], grad=True) if name in PROPERTIES else None


def _of(this: Thing, given: list[Values], grad: bool) -> Values | None:
    made_with = _parameters(this)
    if made_with is None or made_with.open or getattr(this, "open", ""):
        return None
    parameters = [g.values for g in made_with.every]
    tensors = tensors_in(*parameters, *given)
    if not tensors_in(*parameters) or is_unknown_in(*parameters, *given):
        return None
    made = mixed(tensors, dtype="?", batch=frozenset(), loss=False)
    return values(made if grad else made.but(grad=False, passes=frozenset()))


def _parameters(this: Thing) -> Arguments | None:
    """What a distribution is made with, of torch or of a class that extends one of torch's."""
    if isinstance(this, Ext):
        return this.args if this.name.startswith(MODULE) else None
    if not isinstance(this, Inst) or not _extended(this):
        return None
    if this.cls.find("__init__") is None:
        return this.args
    parent = one(this.attrs.get(PARENT, ()))
    return parent.args if isinstance(parent, Ext) else None


def _extended(this: Inst) -> str:
    """The distribution of torch's that the class of an object extends, by its name."""
    return next((name for name in sorted(this.cls.external) if name.startswith(MODULE)), "")
