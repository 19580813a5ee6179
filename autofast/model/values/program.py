"""What a program is made of: scopes, modules, functions, classes and their objects."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from autofast.model.changes import Mutable, Numbered, Watched
from autofast.model.several import of_kind
from autofast.model.syntax import Def
from autofast.model.values.arguments import Arguments
from autofast.model.values.thing import NOTHING, ByName, Row, Thing, Values

if TYPE_CHECKING:
    from autofast.model.source import Source


T = TypeVar("T", bound=Thing)


@dataclass(eq=False)
class Env:
    """A scope: module, function call, class body or comprehension; ``owner`` is the class of a
    class body.
    """

    kind: str
    vars: ByName
    outer: Env | None = None
    source: Source | None = None
    globals: set[str] = field(default_factory=set)
    nonlocals: set[str] = field(default_factory=set)
    opaque: str = ""  # why anything may have been set that is not known
    starred: str = ""  # a library of which everything was imported
    owner: Cls | None = None
    born: int = 0  # the number of the call whose scope it is; 0 for a module

    # Where it is opaque: names that functions declare global or nonlocal.
    rebound: frozenset[str] = frozenset()
    # Where it is opaque: the names that were there when anything was set; None: all.
    exposed: frozenset[str] | None = None
    # Functions that were made in it live on; a call like the one whose scope it was takes it over,
    # and leaves here what it held before.
    captured: bool = False
    past: ByName = field(default_factory=dict)

    def held(self, name: str) -> Values | None:
        """What a function that was made in it finds under a name."""
        found, before = self.vars.get(name), self.past.get(name)
        return found if before is None else before if found is None else found | before

    def again(self, variables: ByName) -> None:
        """It is the scope of one more call, which begins with these variables."""
        for name, found in self.vars.items():
            if (old := self.past.get(name)) is not found:
                self.past[name] = found if old is None else old | found
        self.vars = variables

    @property
    def module(self) -> Env:
        env = self
        while env.outer is not None:
            env = env.outer
        return env


@dataclass(frozen=True, eq=False, repr=False)
class Module(Numbered, Thing):
    """A module of the project."""

    source: Source
    env: Env


@dataclass(frozen=True, eq=False, repr=False)
class Func(Numbered, Thing):
    """A function or lambda of the project, with the scope it was defined in."""

    node: Def | ast.Lambda
    env: Env
    owner: Cls | None = None
    decorators: Row = ()
    defaults: ByName = field(default_factory=Watched)
    attrs: ByName = field(default_factory=Watched)

    @property
    def name(self) -> str:
        return getattr(self.node, "name", "<lambda>")


@dataclass(frozen=True)
class Bound(Thing):
    """A project function with its ``self`` (or ``cls``)."""

    func: Func
    this: Thing

    def __hash__(self) -> int:
        return hash((hash(self.func), hash(self.this)))


@dataclass(eq=False, repr=False)
class Partial(Mutable, Thing):
    """``functools.partial(func, *args, **kwargs)``."""

    func: Values
    args: Arguments


@dataclass(eq=False, repr=False)
class Cls(Mutable, Thing):
    """A class of the project. ``external`` holds the dotted names of all library classes among its
    ancestors.
    """

    node: ast.ClassDef
    env: Env
    bases: tuple[Cls, ...] = ()
    external: frozenset[str] = frozenset()
    members: ByName = field(default_factory=dict)

    def ancestors(self) -> list[Cls]:
        """The classes of the project that it derives from, in the order in which Python asks
        them.
        """
        return self.lineage()[1:]

    def lineage(self) -> list[Cls]:
        """The class itself and these: the method resolution order (C3); depth first where there is
        none.
        """
        if len(self.bases) < 2:  # nearly always
            return [self, *(self.bases[0].lineage() if self.bases else ())]
        known = self.__dict__.get("_lineage")
        if known is None or known[0] != self.bases:
            known = self.__dict__["_lineage"] = self.bases, self._merged()
        return [*known[1]]

    def _merged(self) -> list[Cls]:
        todo = [base.lineage() for base in self.bases] + [list(self.bases)]
        order = [self]
        while todo := [line for line in todo if line]:
            heads = (line[0] for line in todo)
            best = next((h for h in heads if not any(h in line[1:] for line in todo)), todo[0][0])
            order.append(best)
            todo = [[c for c in line if c is not best] for line in todo]
        return order

    def methods(self, name: str) -> list[Func]:
        """What :meth:`find` gives, as far as it is functions of the project."""
        return of_kind(self.find(name) or (), Func)

    def find(self, name: str, after: Cls | None = None) -> Values | None:
        """The class attribute ``name`` along the classes of the project; only those that come after
        ``after``, as ``super()`` does.
        """
        order = self.lineage()
        if after is not None:
            order = order[order.index(after) + 1 :] if after in order else [*after.bases]
        for cls in order:
            if name in cls.members:
                return cls.members[name]
        return None


@dataclass(eq=False, repr=False)
class Inst(Mutable, Thing):
    """An object of a project class, made at ``node`` (a call)."""

    cls: Cls
    node: ast.AST | None
    attrs: ByName = field(default_factory=dict)
    made: tuple[Any, ...] = ()  # the frames around the place where it was made
    args: Arguments | None = None
    # Attributes of the objects made here before (in a loop).
    past: ByName = field(default_factory=dict)
    open: str = ""  # why attributes may have been set that are not known


@dataclass(eq=False, repr=False)
class Ext(Mutable, Thing):
    """An object of a library class, by its canonical dotted name, made at ``node`` by ``args``."""

    name: str
    node: ast.AST | None
    args: Arguments
    attrs: ByName = field(default_factory=dict)
    made: tuple[Any, ...] = ()
    open: str = ""  # why attributes may have been set that are not known

    def arg(self, name: str) -> Values:
        """The values of an argument; empty where it is not given."""
        given = self.args.named.get(name)
        return given.values if given else NOTHING

    def arg_names(self) -> set[str]:
        """The names of all keyword arguments."""
        return set(self.args.named)


OBJECTS = (Inst, Ext)  # what a call of a class of the project, or of a library, makes


def unbound(thing: T) -> T | Func:
    """The function of a bound method; anything else as it is."""
    return thing.func if isinstance(thing, Bound) else thing
