"""What all abstract values have in common, and the set of them that an expression may be."""

from __future__ import annotations

import ast
from typing import TypeAlias


class Thing:
    """Something that an expression may evaluate to."""

    __slots__ = ()


Values: TypeAlias = frozenset[Thing]
NOTHING: Values = frozenset()
SOMEWHERE = ast.Pass()  # the place of a call that stands nowhere in the text
