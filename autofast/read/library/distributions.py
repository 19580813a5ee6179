"""torch.distributions: tensors that are computed of a distribution's parameters."""

from __future__ import annotations

from autofast.model.several import wordset
from autofast.model.tensors import is_unknown_in, mixed, tensors_in
from autofast.model.values import Arguments, Ext, Thing, Values, things as values

MODULE = "torch.distributions."
DRAWN = wordset("sample sample_n")  # without gradients, whatever the parameters carry
COMPUTED = wordset("rsample log_prob cdf icdf entropy perplexity")
PROPERTIES = wordset("mean mode stddev variance loc scale probs logits rate")


def method(this: Thing, name: str, args: Arguments) -> Values | None:
    """What a method of a distribution returns; None where its parameters are not known."""
    if not isinstance(this, Ext) or name not in DRAWN | COMPUTED:
        return None
    given = [g.values for g in args.every]
    return _of(this, given if name in COMPUTED else [], grad=name not in DRAWN)


def attribute(this: Ext, name: str) -> Values | None:
    """``normal.mean``; None where its parameters are not known."""
    return _of(this, [], grad=True) if name in PROPERTIES else None


def _of(this: Ext, given: list[Values], grad: bool) -> Values | None:
    if not this.name.startswith(MODULE) or this.args.open or this.open:
        return None
    parameters = [g.values for g in this.args.every]
    tensors = tensors_in(*parameters, *given)
    if not tensors_in(*parameters) or is_unknown_in(*parameters, *given):
        return None
    made = mixed(tensors, dtype="?", batch=frozenset(), loss=False)
    return values(made if grad else made.but(grad=False, passes=frozenset()))
