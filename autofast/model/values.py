"""What an expression may be: abstract values.

The interpreter gives every expression a *set* of things it may evaluate to (:data:`Values`). A thing says
what an object is and where it was made, never how it was spelled. What is not known is :class:`Unknown`,
with the reason that ends up in a refusal.
"""

from __future__ import annotations

import ast
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from autofast.model.changes import Mutable, Numbered, Pooled, Watched, steady

if TYPE_CHECKING:
    from autofast.model.source import Source

Values: TypeAlias = "frozenset[Thing]"
NOTHING: Values = frozenset()
SOMEWHERE = ast.Pass()  # the place of a call that stands nowhere in the text


@dataclass(frozen=True)
class Const:
    """A Python constant (None, bool, number, string) or a tuple of constants used as one."""

    value: Any

    def __hash__(self) -> int:
        known: int | None = self.__dict__.get("_hash")
        if known is None:
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
class Num(metaclass=Pooled):
    """A Python number or string that is not known.

    ``synced`` is the tensor read to get it (``loss.item()``); ``pattern`` is what is known of a string, with ``*`` for the rest.
    """

    synced: Tensor | None = None
    pattern: str = ""

    def __hash__(self) -> int:
        return hash((7, hash(self.synced) if self.synced else 0, steady(self.pattern)))


@dataclass(frozen=True)
class Setting(Num):
    """A number or string out of a file with settings; ``value`` is what the file of the project says, which another file may say otherwise.

    ``file`` is the file's path from the project's root, ``line`` its line there.
    """

    value: Any = None
    file: str = ""
    line: int = 0

    def __hash__(self) -> int:
        return steady(f"{self.file} {self.line} {self.value!r}")


@dataclass(frozen=True)
class Located(Num):
    """The path of a file that may hold settings, the file opened, or its text; ``by`` is the option or constant that names it."""

    by: Arg | Const | None = None

    def __hash__(self) -> int:
        return hash((8, self.by))


@dataclass(frozen=True)
class Ref(metaclass=Pooled):
    """Something outside the project, by its canonical dotted name: ``torch.nn.functional``, ``builtins.print``."""

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
    FUNCTION = "it applies an autograd Function of the project"
    OTHER = "as the words say"


@dataclass(frozen=True)
class Unknown(metaclass=Pooled):
    """Not resolved; ``why`` completes "... is not known: ..." and is for people only: code asks ``reason`` and ``name``.

    ``name`` is the library's function or method that returned it (``torch.load``, ``pandas.DataFrame.groupby``), or the name that is not resolved.
    """

    why: str = "not resolved"
    reason: Reason = Reason.OTHER
    name: str = ""

    def __hash__(self) -> int:
        known: int | None = self.__dict__.get("_hash")
        if known is None:
            known = self.__dict__["_hash"] = steady(self.why) + 1
        return known


@dataclass(frozen=True, eq=False, repr=False)
class Module(Numbered):
    """A module of the project."""

    source: Source
    env: Env


@dataclass(frozen=True, eq=False, repr=False)
class Func(Numbered):
    """A function or lambda of the project, with the scope it was defined in."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    env: Env
    owner: Cls | None = None
    decorators: tuple[Values, ...] = ()
    defaults: dict[str, Values] = field(default_factory=Watched)
    attrs: dict[str, Values] = field(default_factory=Watched)

    @property
    def name(self) -> str:
        return getattr(self.node, "name", "<lambda>")


@dataclass(frozen=True)
class Bound:
    """A project function with its ``self`` (or ``cls``)."""

    func: Func
    this: Thing

    def __hash__(self) -> int:
        return hash((hash(self.func), hash(self.this)))


@dataclass(frozen=True)
class Method(metaclass=Pooled):
    """A method of a library object: ``optimizer.step``, ``tensor.to``."""

    this: Thing
    name: str

    def __hash__(self) -> int:
        known: int | None = self.__dict__.get("_hash")
        if known is None:
            known = self.__dict__["_hash"] = hash((hash(self.this), steady(self.name)))
        return known


@dataclass(eq=False, repr=False)
class Partial(Mutable):
    """``functools.partial(func, *args, **kwargs)``."""

    func: Values
    args: Arguments


@dataclass(eq=False, repr=False)
class Cls(Mutable):
    """A class of the project. ``external`` holds the dotted names of all library classes among its ancestors."""

    node: ast.ClassDef
    env: Env
    bases: tuple[Cls, ...] = ()
    external: frozenset[str] = frozenset()
    members: dict[str, Values] = field(default_factory=dict)

    def ancestors(self) -> list[Cls]:
        """The classes of the project that it derives from, in the order in which Python asks them."""
        return list(_lineage(self)[1:])

    def find(self, name: str, after: Cls | None = None) -> Values | None:
        """The class attribute ``name`` along the classes of the project; only those that come after ``after``, as ``super()`` does."""
        order = _lineage(self)
        if after is not None:
            order = order[order.index(after) + 1 :] if after in order else after.bases
        for cls in order:
            if name in cls.members:
                return cls.members[name]
        return None


def _lineage(cls: Cls) -> tuple[Cls, ...]:
    """The method resolution order (C3); depth first where there is none."""
    if len(cls.bases) < 2:  # nearly always
        return (cls, *(_lineage(cls.bases[0]) if cls.bases else ()))
    todo = [list(_lineage(base)) for base in cls.bases] + [list(cls.bases)]
    order = [cls]
    while todo := [line for line in todo if line]:
        heads = (line[0] for line in todo)
        best = next((h for h in heads if not any(h in line[1:] for line in todo)), todo[0][0])
        order.append(best)
        todo = [[c for c in line if c is not best] for line in todo]
    return tuple(order)


@dataclass(eq=False, repr=False)
class Inst(Mutable):
    """An object of a project class, made at ``node`` (a call)."""

    cls: Cls
    node: ast.AST | None
    attrs: dict[str, Values] = field(default_factory=dict)
    made: tuple[Any, ...] = ()  # the frames around the place where it was made
    args: Arguments | None = None
    # Attributes of the objects made here before (in a loop).
    past: dict[str, Values] = field(default_factory=dict)
    open: str = ""  # why attributes may have been set that are not known


@dataclass(eq=False, repr=False)
class Ext(Mutable):
    """An object of a library class, by its canonical dotted name, made at ``node`` by ``args``."""

    name: str
    node: ast.AST | None
    args: Arguments
    attrs: dict[str, Values] = field(default_factory=dict)
    made: tuple[Any, ...] = ()
    open: str = ""  # why attributes may have been set that are not known

    def arg(self, name: str) -> Values:
        """The values of an argument; empty where it is not given."""
        given = self.args.named.get(name)
        return given.values if given else NOTHING

    def arg_names(self) -> set[str]:
        """The names of all keyword arguments."""
        return set(self.args.named)


@dataclass(eq=False, repr=False)
class Seq(Mutable):
    """A list, tuple or set: ``items`` where they are known one by one; ``elem`` may stand at any place, and after them."""

    node: ast.AST | None
    items: tuple[Values, ...] | None
    elem: Values = NOTHING
    kind: str = "list"
    made: tuple[Any, ...] = ()
    names: tuple[str, ...] = ()  # of a named tuple
    head: tuple[Values, ...] = ()  # what stands first in a tuple of which no more is known

    @property
    def exact(self) -> tuple[Values, ...] | None:
        """The elements one by one, where there are certainly no others."""
        return None if self.elem else self.items

    def any(self) -> Values:
        """What an element may be."""
        return self.elem.union(*self.items) if self.items else self.elem


@dataclass(eq=False)
class Entry:
    """One value that a dict may hold under a key, and where it is written."""

    values: Values
    expr: ast.expr | None  # the value's expression
    home: ast.AST | None  # the dict display, dict() call or assignment that holds it
    sure: bool  # False where it is set under a condition

    def alike(self, other: Entry) -> bool:
        """Whether another entry says the same."""
        mine, others = (self.values, self.sure), (other.values, other.sure)
        return mine == others and self.expr is other.expr and self.home is other.home


@dataclass(eq=False, repr=False)
class Dict(Mutable):
    """A dict with string (or constant) keys; ``rest`` are all values under keys that are not known (one may be Unknown: then anything is)."""

    node: ast.AST | None
    entries: dict[Any, list[Entry]] = field(default_factory=dict)
    rest: Values = NOTHING
    open: str = ""  # why there may be keys that are not known
    made: tuple[Any, ...] = ()
    removed: frozenset[Any] = frozenset()  # keys that are taken out of it, or of what it is made of

    def get(self, key: Any) -> Values:
        found: Values = NOTHING
        for entry in self.entries.get(key, ()):
            found |= entry.values
        return found | self.rest

    def holds(self, key: Any) -> bool:
        """Whether there is certainly a value under ``key``."""
        return any(entry.sure for entry in self.entries.get(key, ()))

    def widen(self, why: str) -> None:
        """Anything may have been set."""
        self.open = self.open or why
        self.rest |= {Unknown(why)}

    def any(self) -> Values:
        found = self.rest
        for entries in self.entries.values():
            for entry in entries:
                found |= entry.values
        return found


@dataclass(frozen=True)
class Arg:
    """A command-line option: ``args.workers``; ``node`` is the call that declares it, ``default`` its default, which stands at ``said``."""

    name: str
    default: Values
    node: ast.Call
    kind: str = ""  # "flag" for store_true / store_false
    said: ast.expr | None = None

    def __hash__(self) -> int:
        return hash((steady(self.name), self.node.lineno))


_WORDS: dict[
    tuple[Any, ...], int
] = {}  # what tensors are, and a number of it that is the same in every run


@dataclass(frozen=True)
class Tensor(metaclass=Pooled):
    """A tensor. Two tensors with the same facts are one value, so loops come to rest.

    Attributes:
        batch: loaders whose batches it comes from, not through a model.
        models: models whose forward made it (with or without a gradient).
        passes: the calls of models that a backward through it reaches; none where it carries no gradient.
        device: ``cpu``, ``dev`` (moved to the device of the script, perhaps a GPU) or ``?``.
        dtype: ``f64``, ``complex``, ``half``, ``int``, ``f32`` or ``?``.
        grad: a backward through it reaches parameters.
        prob: it is the direct result of a sigmoid (or a view of it), which stands here: the call, or the layer where a container calls it.
        loss: a loss function made it.
        fresh: made by a factory (``zeros``, ``randn``...), named here, with no data of its own.
        param: it is a model's parameter, or a parameter's ``.grad`` or ``.data``.
        rank: ``4d`` where it is known to be an image batch, ``0d`` where it has no dimensions (a loss, a mean), ``?`` where it may
            not be a tensor at all but a tuple or dict.
        loss_first: it is no tensor but what a model of a library gives that was given labels: its first part is the loss.
    """

    batch: frozenset[Any] = frozenset()
    models: frozenset[Any] = frozenset()
    device: str = "?"
    dtype: str = "?"
    grad: bool = False
    prob: ast.AST | None = None
    loss: bool = False
    fresh: str = ""
    param: str = ""
    rank: str = ""
    made: ast.AST | None = None
    loss_first: bool = False

    def __hash__(self) -> int:
        known: int | None = self.__dict__.get("_hash")
        if known is None:
            words = (self.device, self.dtype, self.grad, getattr(self.prob, "lineno", 0), self.loss,
                     self.fresh, self.param, self.rank, self.loss_first)  # fmt: skip
            if words not in _WORDS:
                _WORDS[words] = steady(" ".join(map(str, words)))
            owners = sum(hash(x) for x in (*self.batch, *self.models))
            known = hash(
                (
                    _WORDS[words],
                    owners,
                    getattr(self.made, "lineno", 0),
                    getattr(self.made, "col_offset", 0),
                )
            )
            self.__dict__["_hash"] = known
        return known

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Tensor) and self._facts == other._facts)

    @cached_property
    def _facts(self) -> tuple[object, ...]:
        """All that is said of it, put together once: tensors are compared far more often than made."""
        return tuple(map(self.__dict__.__getitem__, self.__dataclass_fields__))

    passes: frozenset[Any] = frozenset()

    def but(self, **facts: Any) -> Tensor:
        """The same with other facts: one object for each, as most are asked for again and again."""
        known: dict[Any, Tensor] = self.__dict__.setdefault("_but", {})
        key = tuple(facts.items())
        if key not in known:
            known[key] = replace(self, **facts)
        return known[key]

    def __post_init__(self) -> None:
        if self.grad and self.dtype == "int":  # no gradient goes through integers and booleans
            object.__setattr__(self, "grad", False)
        if self.passes and not self.grad:
            object.__setattr__(self, "passes", frozenset())


Thing = Union[
    Const,
    Num,
    Ref,
    Unknown,
    Module,
    Func,
    Bound,
    Method,
    Partial,
    Cls,
    Inst,
    Ext,
    Seq,
    Dict,
    Arg,
    Tensor,
]


@dataclass(eq=False)
class Given:
    """One argument of a call: its values, its expression, and the ways it came there.

    ``via`` lists dict entries that supply it through ``**``; empty where the call itself spells it out.
    ``sure`` is False where it is only given under a condition.
    """

    values: Values
    expr: ast.expr | None
    via: list[tuple[Dict, Entry]] = field(default_factory=list)
    sure: bool = True


@dataclass(eq=False)
class Arguments:
    """The arguments of a call, as bound: positional ones in order, the rest by name."""

    call: ast.AST | None = None
    positional: list[Given] = field(default_factory=list)
    named: dict[str, Given] = field(default_factory=dict)
    dicts: list[Dict] = field(default_factory=list)  # what is spread with ``**``
    open: str = ""  # why there may be arguments that are not known
    loose: int | None = (
        None  # from here on, positional arguments may stand anywhere (after ``*`` of something of unknown length)
    )

    def get(self, index: int, name: str) -> Values:
        """The argument that stands at ``index`` or is called ``name``."""
        given = self.given(index, name)
        return given.values if given is not None else NOTHING

    @property
    def every(self) -> list[Given]:
        """The arguments that are known one by one, positional ones first."""
        return [*self.positional, *self.named.values()]

    def all(self) -> list[Values]:
        """The values of each argument, and what is spread."""
        return [*(g.values for g in self.every), frozenset(self.dicts)]

    def given(self, index: int, name: str) -> Given | None:
        if name in self.named:
            return self.named[name]
        if self.loose is not None and index >= self.loose:
            return Given(
                NOTHING.union(*(g.values for g in self.positional[self.loose :])), None, sure=False
            )
        return self.positional[index] if 0 <= index < len(self.positional) else None

    def alike(self, other: Arguments) -> bool:
        """Whether two ways to a call give it the same."""
        if (self.open, self.loose, len(self.positional), len(self.named)) != (
            other.open,
            other.loose,
            len(other.positional),
            len(other.named),
        ) or self.dicts != other.dicts:
            return False
        pairs = [
            *zip(self.positional, other.positional, strict=True),
            *((g, other.named.get(n)) for n, g in self.named.items()),
        ]
        return all(
            y is not None and x.values == y.values and x.sure == y.sure and x.expr is y.expr
            for x, y in pairs
        )


def joined(several: list[Arguments]) -> Arguments:
    """The arguments of one call in all the ways the script comes there."""
    first = several[0]
    if all(first.alike(other) for other in several[1:]):
        return several[-1]
    out = Arguments(
        first.call,
        list(first.positional),
        dict(first.named),
        list(first.dicts),
        first.open,
        first.loose,
    )
    for args in several[1:]:
        out.open = out.open or args.open
        out.dicts += [d for d in args.dicts if d not in out.dicts]
        out.loose = (
            args.loose
            if out.loose is None
            else out.loose
            if args.loose is None
            else min(out.loose, args.loose)
        )
        shared = min(len(out.positional), len(args.positional))
        both = [both_given(a, b) for a, b in zip(out.positional, args.positional, strict=False)]
        out.positional = [
            *both,
            *(
                replace(g, sure=False)
                for g in (*out.positional[shared:], *args.positional[shared:])
            ),
        ]
        for name in (*out.named, *(n for n in args.named if n not in out.named)):
            a, b = out.named.get(name), args.named.get(name)
            only = a or b
            assert only is not None
            out.named[name] = both_given(a, b) if a and b else replace(only, sure=False)
    return out


def both_given(a: Given, b: Given) -> Given:
    """An argument that is given in two ways."""
    via = [
        *a.via,
        *(v for v in b.via if not any(v[0] is w[0] and v[1].expr is w[1].expr for w in a.via)),
    ]
    return Given(a.values | b.values, a.expr or b.expr, via, a.sure and b.sure)


@dataclass(eq=False)
class Env:
    """A scope: module, function call, class body or comprehension; ``owner`` is the class of a class body."""

    kind: str
    vars: dict[str, Values]
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
    # Functions that were made in it live on; a call like the one whose scope it was takes it over, and leaves here what it held before.
    captured: bool = False
    past: dict[str, Values] = field(default_factory=dict)

    def held(self, name: str) -> Values | None:
        """What a function that was made in it finds under a name."""
        found, before = self.vars.get(name), self.past.get(name)
        return found if before is None else before if found is None else found | before

    def again(self, variables: dict[str, Values]) -> None:
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


# ------------------------------------------------------------------------------------------------ small questions
def result_of(name: str) -> Unknown:
    """What a function of a library returns, of which nothing else is known."""
    return Unknown(f"what {name}() returns", Reason.RESULT, name)


def things(*found: Thing) -> Values:
    """A set of things."""
    return frozenset(found)


def ordered(values: Values) -> list[Thing]:
    """The things in an order that is the same in every run (strings and types hash differently in each)."""
    if len(values) < 2:
        return list(values)
    return sorted(values, key=_rank)


def _rank(thing: Thing) -> tuple[str, int, str]:
    kind = type(thing).__name__
    if isinstance(thing, Numbered):
        return kind, thing.serial, ""
    if isinstance(thing, Bound):
        return kind, hash(thing.this) if isinstance(thing.this, Numbered) else 0, thing.func.name
    if isinstance(thing, Method):
        return kind, hash(thing.this) if isinstance(thing.this, Numbered) else 0, thing.name
    if isinstance(thing, Tensor):
        known: tuple[str, int, str] | None = thing.__dict__.get("_rank")
        if known is not None:
            return known
        makers = sorted(hash(x) for x in (*thing.models, *thing.batch) if isinstance(x, Numbered))
        sigmoid = getattr(thing.prob, "lineno", 0)
        known = (
            kind,
            getattr(thing.made, "lineno", 0),
            f"{thing.device} {thing.dtype} {thing.grad} {sigmoid} {thing.loss} {thing.fresh} {thing.param} {thing.rank} {makers}",
        )
        thing.__dict__["_rank"] = known
        return known
    if isinstance(thing, Arg):
        return kind, thing.node.lineno, thing.name
    text = (
        repr(thing.value)
        if isinstance(thing, Const)
        else thing.name
        if isinstance(thing, Ref)
        else getattr(thing, "why", "")
    )
    return kind, 0, text


def one(values: Values) -> Thing | None:
    """The single thing that ``values`` must be, if there is one."""
    return next(iter(values)) if len(values) == 1 else None


def certainly(values: Collection[Thing], *kinds: type) -> bool:
    """Whether there are some, and all of these kinds."""
    return bool(values) and all(isinstance(thing, kinds) for thing in values)


def are_numbers(values: Collection[Thing]) -> bool:
    """Whether there are some, and all are numbers of Python."""
    return bool(values) and all(
        isinstance(t, Num) or (isinstance(t, Const) and isinstance(t.value, (int, float)))
        for t in values
    )


def const(values: Values) -> Any:
    """The constant that ``values`` must be; :data:`Ellipsis` where it is not certain."""
    thing = one(values)
    return thing.value if isinstance(thing, Const) else ...


def library_name(values: Values) -> str:
    """The canonical name of the library's object that ``values`` must be; empty where it is not certain."""
    thing = one(values)
    return thing.name if isinstance(thing, Ref) else ""


def library_names(values: Values) -> set[str]:
    """The canonical names of the libraries' objects among ``values``."""
    return {t.name for t in values if isinstance(t, Ref)}


def consts(values: Values) -> set[Any] | None:
    """All constants that ``values`` may be, options by their defaults left out; None where any is not a constant."""
    found = set()
    for thing in values:
        if not isinstance(thing, Const):
            return None
        found.add(thing.value)
    return found


def why_unknown(values: Values) -> str:
    """The reason of the first unknown thing."""
    return next((t.why for t in values if isinstance(t, Unknown)), "")


def expand(values: Values, kind: type) -> list[Any]:
    """The things of one kind."""
    return [t for t in values if isinstance(t, kind)]
