"""Values that would be 16-bit under autocast."""

from __future__ import annotations

from collections.abc import Iterable

from autofast.model.contents import with_contents
from autofast.model.names import first_part
from autofast.model.several import of_kind, wordset
from autofast.model.values import Tensor, Unknown, Values

# Packages of Python whose functions give numbers, texts and lists of them, and never a tensor that
# they were given.
PLAIN = wordset("argparse configparser csv datetime json math os platform re string sys time")


def is_activation(found: Values) -> bool:
    """A tensor of numbers that comes out of a batch or a layer, or something that is not known."""
    return any(
        (isinstance(t, Unknown) and first_part(t.name) not in PLAIN)
        or (isinstance(t, Tensor) and not (t.loss or t.fresh or t.param) and t.dtype != "int")
        for t in found
    )


def holds_output(found: Values) -> bool:
    """A value that may be, or hold, what a network made and no fp32 loss has been made of."""
    return any(
        t.models and not t.loss and t.dtype != "int" for t in of_kind(with_contents(found), Tensor)
    )


def has_tensor(given: Iterable[object]) -> bool:
    return any(is_activation(getattr(g, "values", frozenset())) for g in given)
