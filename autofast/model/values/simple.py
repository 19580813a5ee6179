"""Values without parts: constants, numbers, what stands in libraries, options, and what is not
known.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from autofast.model.changes import Pooled, steady
from autofast.model.several import surely
from autofast.model.values.tensor import Tensor
from autofast.model.values.thing import Thing, Values


@dataclass(frozen=True)
class Const(Thing):
    """A Python constant (None, bool, number, string) or a tuple of constants used as one."""

    value: Any

    def __hash__(self) -> int:
        try:
            known: int = self._hash  # type: ignore[attr-defined]
        except AttributeError:
            known = self.__dict__["_hash"] = steady(repr(self.value))
        return known

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Const) or type(other.value) is not type(self.value):
            return False
        if type(self.value) is str:
            return bool(other.value == self.value)
        return repr(other.value) == repr(self.value)


@dataclass(frozen=True)
class Num(Thing, metaclass=Pooled):
    """A Python number or string that is not known.

    ``synced`` is the tensor read to get it (``loss.item()``); ``pattern`` is what is known of a
    string, with ``*`` for the rest. ``scalar``: it certainly is one number, and no array of
    NumPy's: a size, a length, and what is computed of such.
    """

    synced: Tensor | None = None
    pattern: str = ""
    scalar: bool = field(default=False, kw_only=True)

    def __hash__(self) -> int:
        synced = hash(self.synced) if self.synced else 0
        return hash((7, synced, steady(self.pattern), self.scalar))


@dataclass(frozen=True)
class Setting(Num):
    """A number or string out of a file with settings; ``value`` is what the file of the project
    says, which another file may say otherwise.

    ``file`` is the file's path from the project's root, ``line`` its line there.
    """

    value: Any = None
    file: str = ""
    line: int = 0

    def __hash__(self) -> int:
        return steady(f"{self.file} {self.line} {self.value!r}")


@dataclass(frozen=True)
class Located(Num):
    """The path of a file that may hold settings, the file opened, or its text (``read``); ``by`` is
    the option or constant that names it.
    """

    by: Arg | Const | None = None
    read: bool = False

    def __hash__(self) -> int:
        return hash((8, self.by, self.read))


@dataclass(frozen=True)
class Ref(Thing, metaclass=Pooled):
    """Something outside the project, by its canonical dotted name: ``torch.nn.functional``,
    ``builtins.print``.
    """

    name: str

    def __hash__(self) -> int:
        return steady(self.name)


class Reason(Enum):
    """Why something is not resolved."""

    RESULT = "a function of a library returned it"
    METHOD = "a method of a library's object returned it"
    UNDEFINED = "nothing in the file binds the name"
    UNSET = "the attribute is never set"
    FOREIGN = "the name is imported from code that is not read"
    CHOSEN = "it is chosen by a name that is not known"
    FUNCTION = "it applies an autograd Function of the project"
    OTHER = "as the words say"


@dataclass(frozen=True)
class Unknown(Thing, metaclass=Pooled):
    """Not resolved; ``why`` completes "... is not known: ..." and is for people only: code asks
    ``reason`` and ``name``.

    ``name`` is the library's function or method that returned it (``torch.load``,
    ``pandas.DataFrame.groupby``), or the name that is not resolved.
    """

    why: str = "not resolved"
    reason: Reason = Reason.OTHER
    name: str = ""

    def __hash__(self) -> int:
        try:
            known: int = self._hash  # type: ignore[attr-defined]
        except AttributeError:
            known = self.__dict__["_hash"] = steady(self.why) + 1
        return known


STATE_DICT = Unknown("a state dict")  # of a module: also what is in it
LOADED = Unknown("it is loaded from a file")  # what torch.load gives, and what is in it


@dataclass(frozen=True)
class Method(Thing, metaclass=Pooled):
    """A method of a library object: ``optimizer.step``, ``tensor.to``."""

    this: Thing
    name: str

    def __hash__(self) -> int:
        try:
            known: int = self._hash  # type: ignore[attr-defined]
        except AttributeError:
            known = self.__dict__["_hash"] = hash((hash(self.this), steady(self.name)))
        return known


@dataclass(frozen=True)
class Arg(Thing):
    """A command-line option: ``args.workers``; ``node`` is the call that declares it, ``default``
    its default, which stands at ``said``.
    """

    name: str
    default: Values
    node: ast.Call
    kind: str = ""  # "flag" for store_true / store_false; "number" for an int or float
    said: ast.expr | None = None

    def __hash__(self) -> int:
        return hash((steady(self.name), self.node.lineno))

    @property
    def is_never_none(self) -> bool:
        """Neither its default is None, nor what the command line gives."""
        return self.kind == "number" and surely(
            isinstance(t, Const) and t.value is not None for t in self.default
        )


def result_of(name: str) -> Unknown:
    """What a function of a library returns, of which nothing else is known."""
    return Unknown(f"what {name}() returns", Reason.RESULT, name)


NUMBER: Values = frozenset({Num()})  # any number
COUNT: Values = frozenset({Num(scalar=True)})  # one number of Python's
NONE: Values = frozenset({Const(None)})
