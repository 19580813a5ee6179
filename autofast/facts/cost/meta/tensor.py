"""Tensors that have a shape alone, and what their operations cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from autofast.facts.cost.work import Unsized, Work

Dims = tuple[int, ...]
# A backward computes the gradients of the input and of the weights: twice the forward.
TRAINED = 3


@dataclass(frozen=True)
class Meta:
    """A tensor: its sizes; ``whole`` where it holds whole numbers or truths, ``weight`` where it is
    a parameter.
    """

    dims: Dims
    whole: bool = False
    weight: bool = False

    @property
    def count(self) -> int:
        return prod(self.dims)

    def like(self, *dims: int, whole: bool | None = None) -> Meta:
        """Another one of these sizes, with such numbers."""
        return Meta(dims, self.whole if whole is None else whole)


class Nothing:
    """What is not known: any object, number or tensor; the only one is :data:`UNKNOWN`."""

    def __repr__(self) -> str:
        return "?"


UNKNOWN = Nothing()
MOST = 60_000  # steps, each of an expression or statement: a tenth of a second
IN_ALL = 200_000  # with all sides of images that are tried
MOST_ITEMS = 5_000  # of a list, with all that is in it; turns of a loop; parts of a network
TOO_LONG = "it takes too long to follow"
LARGEST = 10**12  # numbers of a tensor
# A product with a side of so many numbers is bound by memory: 32 floating-point operations for each
# byte of what comes in and goes out.
NARROW = 128
# So few layers with such sides are bound by launches: 512 rows through one of them are 0.27 GFLOP,
# 5 to 15 µs of a GPU.
SMALL, SEVERAL = 512, 6
# A recurrent layer of so many numbers is bound by its steps, one after the other.
RECURRING = 256
FEW, MANY = 16, 4096  # items of a batch, where their number is not known; rows
BATCH = "how many items a batch has is not known"
SIDE = "the size of its images is not known"


@dataclass(frozen=True)
class Guess:
    """What is given to a network, where the script does not say so.

    Attributes:
        batch: how many items there are; 0 where that is not known.
        rows: of each item, for dense layers, at the most.
        side: of an image, or of a volume; ``sure`` where the script says that.
        length: of a text, or another sequence.
    """

    batch: int
    rows: int = 1
    side: int = 64
    length: int = 64
    sure: bool = False

    @property
    def items(self) -> int:
        return self.batch or FEW

    @property
    def together(self) -> int:
        """Rows that a dense layer is given, at the most."""
        return self.batch * self.rows or MANY


@dataclass
class Budget:
    """Steps that running code may take, in one attempt and in all; raises :class:`Unsized`."""

    here: int = 0
    total: int = 0

    def spend(self, steps: int = 1) -> None:
        self.here += steps
        self.total += steps
        if self.here > MOST or self.total > IN_ALL:
            raise Unsized(TOO_LONG)


@dataclass
class Ledger:
    """What has been spent so far, in one pass or several; ``grad``: what runs now keeps a graph, so
    that a backward comes behind it. ``guessed`` says what was taken for granted, where anything
    was.
    """

    guess: Guess
    budget: Budget = field(default_factory=Budget)
    work: Work = field(default_factory=Work)
    grad: bool = True
    guessed: str = ""
    parameters: int = 0  # of all layers that were used; ``tensors`` that they are in
    tensors: int = 0
    taken: Meta | None = None  # what was not known was taken for this first, and for that last
    last: Meta | None = None
    # Of the network that runs, by their names in its forward.
    inputs: dict[str, Meta] = field(default_factory=dict)
    # Of each product by weights: its shorter and its longer side.
    sides: dict[object, tuple[int, int]] = field(default_factory=dict)
    is_partial: bool = False  # more than sizes is not known
    _layer: object = None  # the one that runs, and is used so
    _used: set[int] = field(default_factory=set)
    _kept: list[object] = field(default_factory=list)  # whose ids these are

    def unsure(self, why: str, only_sizes: bool = False) -> None:
        """Something is not known: the first of its kind is told."""
        self.guessed = self.guessed or why
        self.is_partial = self.is_partial or not only_sizes

    def launch(self, forwards: float = 1, backwards: float = 1) -> None:
        self.work.kernels += forwards + backwards * self.grad

    def multiply(self, multiplications: float, convolves: bool = False) -> None:
        """So many products are summed up."""
        flop = 2 * multiplications * (TRAINED if self.grad else 1)
        if convolves:
            self.work.convolutions += flop
        else:
            self.work.products += flop

    def weigh(self, *sides: int) -> None:
        """A product by weights of these sides; of none that counts as narrow."""
        found = sides or (LARGEST,)
        self.sides[id(self._layer), sides] = min(found), max(found)

    @property
    def is_narrow(self) -> bool:
        """Whether matrices are multiplied in narrow layers alone, or in few small ones: of a
        policy, of a few columns.
        """
        sides = self.sides.values()
        narrow = all(least <= NARROW for least, _ in sides)
        small = len(sides) <= SEVERAL and all(most <= SMALL for _, most in sides)
        return bool(sides) and not self.is_partial and (narrow or small)

    def put_out(self, numbers: int) -> None:
        """A layer writes so many numbers, which the next ones read."""
        self.work.activations += numbers * (1 if self.grad else 1 / TRAINED)

    def use(self, layer: object, parameters: int, tensors: int) -> None:
        """A layer of so many parameters, which count once."""
        self._layer = layer
        if id(layer) not in self._used:
            self._used.add(id(layer))
            self._kept.append(layer)
            self.parameters += parameters
            self.tensors += tensors

    def _taken(self, for_: Meta) -> Meta:
        self.taken, self.last = self.taken or for_, for_
        return for_

    def _items(self) -> int:
        if not self.guess.batch:
            self.unsure(BATCH, only_sizes=True)
        return self.guess.items

    # ------------------------------------------------------- what a tensor is taken for by a layer
    def image(self, value: Any, channels: int, n: int = 2) -> Meta:
        """A batch of images (``n`` = 2), sequences or volumes, as a convolution takes it."""
        if isinstance(value, Meta):
            x = Meta((1, *value.dims)) if len(value.dims) == n + 1 else value
            if len(x.dims) != n + 2 or x.dims[1] != channels:
                raise Unsized(f"a convolution of {channels} channels is given {x.dims}")
            return x
        if not self.guess.sure:
            self.unsure(SIDE, only_sizes=True)
        side = self.guess.length if n == 1 else self.guess.side
        return self._taken(Meta((self._items(), channels, *(side,) * n)))

    def rows(self, value: Any, features: int) -> Meta:
        """Rows, as a dense layer takes them."""
        if isinstance(value, Meta):
            if not value.dims or value.dims[-1] != features:
                over = 1 if value.dims and value.dims[-1] > features else -1
                raise Unsized(f"a layer of {features} features is given {value.dims}", over)
            return value
        return Meta((self.guess.together, features))

    def sequence(self, value: Any, features: int, batch_first: bool) -> Meta:
        """A batch of sequences, as a recurrent layer takes it."""
        if isinstance(value, Meta):
            x = Meta((1, *value.dims)) if len(value.dims) == 2 else value
            if len(x.dims) != 3 or x.dims[-1] != features:
                raise Unsized(f"a recurrent layer of {features} features is given {x.dims}")
            return x
        self.unsure("the length of its sequences is not known", only_sizes=True)
        both = self._items(), self.guess.length
        return self._taken(Meta((*(both if batch_first else both[::-1]), features)))

    def indices(self, value: Any) -> Meta:
        """Whole numbers of a batch of texts, as a table of words takes them."""
        if isinstance(value, Meta):
            return value
        self.unsure("the length of its texts is not known", only_sizes=True)
        return self._taken(Meta((self._items(), self.guess.length), whole=True))


def broadcast(tensors: Sequence[Meta]) -> Dims:
    """The sizes of what an operation by element gives; of rows, whose number is taken for granted
    where they do not fit a batch of sequences, those of the batch.
    """
    most = max((t.dims for t in tensors), key=len)
    dims: list[int] = []
    for n in range(1, 1 + len(most)):
        sizes = {t.dims[-n] for t in tensors if len(t.dims) >= n} - {1}
        if len(sizes) > 1:
            batches = [t for t in tensors if not (len(t.dims) == 2 and t.dims[-1] == most[-1])]
            if len(most) == 3 and len(batches) < len(tensors):
                return broadcast(batches)
            raise Unsized(f"{' and '.join(str(t.dims) for t in tensors)} do not fit together")
        dims.insert(0, max(sizes, default=1))
    return tuple(dims)


def checked(found: Any) -> Any:
    """The same; raises :class:`Unsized` for tensors that no memory holds."""
    for x in found if isinstance(found, (tuple, list)) else (found,):
        if isinstance(x, Meta) and (len(x.dims) > 16 or x.count > LARGEST):
            raise Unsized("its tensors are too large")
    return found


def few(many: int) -> int:
    """The same; raises :class:`Unsized` for more than are followed."""
    if many > MOST_ITEMS:
        raise Unsized(TOO_LONG)
    return many


def axis(n: Any, of: int) -> int:
    """The place of a dimension that may be counted from the end."""
    if not isinstance(n, int) or not -of <= n < of:
        raise Unsized("a dimension is not known")
    return n % of
