"""How many random numbers were drawn: the states of the generators, and how many words lie between
two of them.

Python's generator, NumPy's and that of torch on the CPU are the same Mersenne Twister (Matsumoto,
Nishimura 1998): 624 words and a place among them. So a generator of Python's that is set to the one
state and draws on comes to the other.
"""

from __future__ import annotations

import random
import struct
import sys
from typing import Any

import torch

SIZE = 624
MOST = 400  # rounds of SIZE words; as many or more are counted as these
State = tuple[tuple[int, ...], int]


def states() -> dict[str, State]:
    """Of the generators that scripts use when they make none of their own."""
    own = random.getstate()[1]
    found: dict[str, State] = {"python": (own[:-1], own[-1])}
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        kind, key, place = numpy.random.get_state()[:3]
        if kind == "MT19937":
            found["numpy"] = (tuple(key.tolist()), int(place))
    found["torch"] = of_torch()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # Philox: a seed and an offset
        seed, offset = struct.unpack_from("=Qq", bytes(torch.cuda.get_rng_state().tolist()))
        found["cuda"] = ((seed,), offset)
    return found


def of_torch() -> State:
    """On the CPU."""
    raw = bytes(torch.get_rng_state().tolist())
    # seed, words left, whether seeded, next word, words (ATen/CPUGeneratorImpl.cpp)
    _, left, _, _, *key = struct.unpack_from(f"=QiiQ{SIZE}Q", raw)
    return tuple(key), SIZE + 1 - left


def words(before: State, after: State) -> int:
    """Drawn between the two; MOST rounds where they lie further apart, or the generator was seeded
    anew.
    """
    (key, place), (other, end) = before, after
    if key == other and end >= place:
        return end - place
    if len(key) != SIZE:
        return MOST * SIZE
    twister = random.Random(0)
    twister.setstate((3, (*key, place), None))
    for round_ in range(MOST):
        twister.getrandbits(32 * SIZE)
        if twister.getstate()[1][:-1] == other:
            return (round_ + 1) * SIZE + end - place
    return MOST * SIZE
