"""What was probably meant by a name that nobody knows."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

NEAR, NEARLY_AS_NEAR = 0.7, 0.1  # of difflib's ratio


def hint(name: str, known: Iterable[str], otherwise: str) -> str:
    """``did you mean tf32?``, or ``otherwise`` where nothing is near. The dashes of options make
    them no nearer to each other.
    """
    plain = {one.lstrip("-"): one for one in known}
    name = name.lower().replace("_", "-").lstrip("-")
    close = difflib.get_close_matches(name, plain, n=2, cutoff=NEAR)
    close = [c for c in close if _ratio(c, name) >= _ratio(close[0], name) - NEARLY_AS_NEAR]
    return f"did you mean {' or '.join(plain[c] for c in close)}?" if close else otherwise


def _ratio(one: str, other: str) -> float:
    return difflib.SequenceMatcher(a=other, b=one).ratio()
