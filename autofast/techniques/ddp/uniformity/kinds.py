"""What a value of one process is to the values of all.

==========  ===================================================================================
``equal``   the same in all processes
``near``    made of the same data in each, but perhaps not the same bits (an evaluation, a time)
``size``    the number of samples of a batch, or a multiple of it: that of this process's part
``share``   made of this process's part of the batches: what it is together is asked of
            :mod:`.numbers` where it is read; ``why`` says that it cannot be read
``loader``  what gives batches that are shared out; ``shape``: the shape of a batch
``each``    what gives ``items[0]`` when it is gone through
==========  ===================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """What a value of one process is to those of all. ``counted``: a number of samples of all
    processes, that is no size of what one has; ``items``: of a tuple whose parts are known."""

    name: str
    counted: bool = False
    items: tuple[Kind, ...] | None = None
    why: str = ""

    @property
    def same(self) -> bool:
        """The same in all processes, but for the last bits."""
        return self.whole.name in ("equal", "near")

    @property
    def whole(self) -> Kind:
        """The kind of a collection, without its parts."""
        if self.items is None or self.name == "each":
            return self
        return joined(*self.items)


EQUAL = Kind("equal")
NEAR = Kind("near")
SIZE = Kind("size")
SHARE = Kind("share")
LOADER = Kind("loader")
SHAPE = Kind("shape")


def share(why: str) -> Kind:
    """What differs, and cannot be read."""
    return Kind("share", why=why)


def of(*items: Kind) -> Kind:
    """A tuple or list."""
    return Kind("equal", items=items)


def each(item: Kind) -> Kind:
    return Kind("each", items=(item,))


def join(a: Kind, b: Kind) -> Kind:
    """What may be either."""
    if a == b:
        return a
    if a.items is not None and b.items is not None and len(a.items) == len(b.items):
        if a.name == b.name:
            return Kind(a.name, items=tuple(map(join, a.items, b.items)))
    a, b = a.whole, b.whole
    if a == b:
        return a
    if a.same and b.same:
        name = "near" if "near" in (a.name, b.name) else "equal"
        return Kind(name, counted=a.counted or b.counted)
    for kind in (a, b):
        if kind.why:
            return kind
    rest = {a.name, b.name} - {"equal", "near"}
    if rest == {"share"}:
        return SHARE
    return share("it may be one thing or another, of which each process has its own")


def joined(*kinds: Kind) -> Kind:
    found = kinds[0] if kinds else EQUAL
    for kind in kinds[1:]:
        found = join(found, kind)
    return found
