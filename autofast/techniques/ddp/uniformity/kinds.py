"""What a value of one process is to the values of all: the same, a part of a mean or of a sum, or
the share of a batch.

=========
=====================================================================================================
``equal``  the same in all processes; ``zero`` and ``none`` are constants that are a part of
anything ``near``   made of the same data in each, but perhaps not the same bits (an evaluation, a
time, a random number) ``mean``   the value for the whole batch is the mean over the processes
(every process has as many samples) ``sum``    it is the sum over the processes; ``sized``: a number
of samples, the same in each ``per``    it is as many times larger as there are processes: something
divided by a number of samples ``batch``  one row, or more, for each sample of this process's share,
along ``axis`` (``flat``: in one dimension; ``some``: of some samples) ``other``  anything else that
differs; ``why`` says what ``loader`` what gives batches that are shared out =========
=====================================================================================================
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

from autofast.model.calls import arguments_of
from autofast.model.several import all_of, wordset
from autofast.model.source import ByNode


@dataclass(frozen=True)
class Kind:
    """What a value of one process is of that of all: the same, a part, a mean, a sum, a count."""

    name: str
    zero: bool = False
    none: bool = False
    sized: bool = False
    axis: object = 0
    shape: bool = False  # of a batch: its shape
    items: tuple[Kind, ...] | None = None  # of a tuple whose parts are known
    why: str = ""

    @property
    def same(self) -> bool:
        """The same in all processes, but for the last bits."""
        return self.name in ("equal", "near") and (
            self.items is None or all(k.same for k in self.items)
        )

    @property
    def whole(self) -> Kind:
        """The kind of a collection, without its parts."""
        return self if self.items is None else joined(*self.items) if self.items else EQUAL


# What a call is given: the kinds of its arguments, by their expressions.
Given = ByNode[Kind]


@dataclass(frozen=True)
class Called:
    """A call, and the kinds of what it is given; ``shift`` is 1 where ``args`` are without the
    first, as of a function that stands for a method of it.
    """

    node: ast.Call
    args: list[Kind]
    named: dict[str, Kind]
    receiver: Kind
    shift: int = 0

    @property
    def kinds(self) -> list[Kind]:
        return [*self.args, *self.named.values()]

    @property
    def wholes(self) -> list[Kind]:
        return [k.whole for k in self.kinds]

    @property
    def given(self) -> Given:
        parts = arguments_of(self.node)
        return dict(zip(parts, self.kinds, strict=True))


EQUAL = Kind("equal")
ZERO = Kind("equal", zero=True)
NONE = Kind("equal", none=True)
NEAR = Kind("near")
MEAN = Kind("mean")
SUM = Kind("sum")
SIZE = Kind("sum", sized=True)
PER = Kind("per")
BATCH = Kind("batch")
LOADER = Kind("loader")


def other(why: str) -> Kind:
    return Kind("other", why=why)


def of(*items: Kind) -> Kind:
    """A tuple or list."""
    return Kind("equal", items=items)


def join(a: Kind, b: Kind) -> Kind:
    """What may be either."""
    if a == b or b.none:
        return a
    if a.none:
        return b
    if a.items is not None and b.items is not None and len(a.items) == len(b.items):
        return of(*(join(x, y) for x, y in zip(a.items, b.items, strict=True)))
    a, b = a.whole, b.whole
    if a == b:
        return a
    for x, y in ((a, b), (b, a)):
        if x.name == "other":
            return x
        if x.zero:
            if y.name in ("sum", "mean", "equal", "near"):
                return replace(y, zero=False)
            return other("it may be a number or a part of a batch")
        if x.name in ("equal", "near") and y.name == "mean":
            return MEAN
    if a.same and b.same:
        return NEAR if "near" in (a.name, b.name) else EQUAL
    if {a.name, b.name} == {"batch"}:
        return other("its shape is not known")
    return other("it may be one thing or another, of which each process has its own")


def joined(*kinds: Kind) -> Kind:
    found = kinds[0]
    for kind in kinds[1:]:
        found = join(found, kind)
    return found


# --------------------------------------------------------------------------------------- arithmetic
def add(a: Kind, b: Kind) -> Kind:
    """``a + b`` and ``a - b``."""
    a, b = a.whole, b.whole
    if (worse := _worse(a, b)) is not None:
        return worse
    if a.zero or b.zero:
        found = b if a.zero else a
        return replace(found, zero=False)
    if a.same and b.same:
        return join(a, b)
    names = {a.name, b.name}
    if names <= {"mean", "equal", "near"}:
        return MEAN
    if names == {"sum"}:
        return SIZE if a.sized and b.sized else SUM
    return other("a sum over samples and something else are added")


def times(a: Kind, b: Kind) -> Kind:
    """``a * b``"""
    a, b = a.whole, b.whole
    if (worse := _worse(a, b)) is not None:
        return worse
    if a.zero or b.zero:
        return ZERO
    if a.same and b.same:
        return join(a, b)
    for x, y in ((a, b), (b, a)):
        if x.same:
            return NEAR if y.sized and x.name == "near" else replace(y, zero=False, none=False)
        if x.sized and y.name == "mean":
            return SUM
        if x.name == "per" and y.name == "sum":
            return EQUAL if y.sized else MEAN
    return other("two parts of larger numbers are multiplied")


def over(a: Kind, b: Kind) -> Kind:
    """``a / b``."""
    a, b = a.whole, b.whole
    if (worse := _worse(a, b)) is not None:
        return worse
    if a.zero:
        return ZERO
    if a.same and b.same:
        return join(a, b)
    if b.same:
        return NEAR if a.sized and b.name == "near" else replace(a, zero=False)
    if b.sized and a.name == "sum":
        return EQUAL if a.sized else MEAN
    if b.sized and a.same:
        return PER
    return other("it is divided by a part of a larger number")


def _worse(a: Kind, b: Kind) -> Kind | None:
    for kind in (a, b):
        if kind.name == "other":
            return kind
        if kind.name == "loader":
            return other("it is made of a loader")
    for x, y in ((a, b), (b, a)):
        if x.name == "batch":
            if x.shape or y.name in ("sum", "per"):
                return other("single samples and a number of samples are mixed")
            if y.name == "batch" and y.axis != x.axis:
                return other("the shapes are not known")
            return x
    return None


# ------------------------------------------------------------------------------------------ tensors
# Besides operations on each element: what keeps the rows of a batch.
KEEPING = wordset("""array as_tensor asarray bernoulli bool byte conj contiguous copy_ cpu cuda detach
    double dropout empty_like fill_ float from_numpy full_like gather half imag index_select
    int log_softmax long normalize numpy one_hot ones_like pin_memory rand_like randn_like
    real repeat_interleave requires_grad requires_grad_ resolve_conj scatter scatter_
    softmax tensor to type type_as zero_ zeros_like""")
LINEAR = wordset(
    "float double half to cuda cpu detach clone contiguous numpy type type_as neg squeeze unsqueeze view reshape flatten sum mean t data "
    "requires_grad_ view_as expand as_tensor stack cat tensor array asarray zeros_like mean_ nanmean retain_grad"
)
PER_ROW = wordset(
    "argmax argmin max min topk sort norm std var prod median cumsum amax amin logsumexp any all cosine_similarity argsort"
)
PAIRS = wordset("max min topk sort median")


def reduced(name: str, kind: Kind, dims: object, keepdim: bool) -> Kind:
    """``sum``, ``mean``, ``max``, ... of a batch: ``dims`` is None (over everything), a number, a
    tuple of numbers, or ... where not known.
    """
    axis = kind.axis
    if name == "sum":
        whole = SUM
    elif name in ("mean", "nanmean"):
        whole = MEAN
    else:
        whole = other(f"the {name} of a batch is no sum or mean over processes")
    if axis == "some":
        if name == "sum" and dims in (None, 0):
            return whole
        return other(f"the {name} of some samples is no mean over processes")
    if dims is None or axis == "flat":
        return whole if dims is None or dims in (0, -1) else other("the shapes are not known")
    if dims is ...:
        return other("the shapes are not known")
    several = dims if isinstance(dims, (tuple, list)) else (dims,)
    if not all_of(several, int):
        return other("the shapes are not known")
    if axis in several:
        return whole
    if any(d < 0 for d in several) and whole.name != "other":
        return other(
            "whether this goes over samples is not known: count the dimension from the front"
        )
    assert isinstance(axis, int)
    row = kind if keepdim else replace(kind, axis=axis - sum(0 <= d < axis for d in several))
    return of(row, row) if name in PAIRS and not isinstance(dims, (tuple, list)) else row
