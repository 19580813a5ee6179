"""What a call is given."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace

from autofast.model.values.containers import Dict, Entry
from autofast.model.values.thing import NOTHING, Values


@dataclass(eq=False)
class Given:
    """One argument of a call: its values, its expression, and the ways it came there.

    ``via`` lists dict entries that supply it through ``**``; empty where the call itself spells it
    out. ``sure`` is False where it is only given under a condition.
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
    loose: int | None = None  # from here on, positional ones may stand anywhere (after ``*``)

    def get(self, index: int, name: str) -> Values:
        """The argument that stands at ``index`` or is called ``name``."""
        given = self.given(index, name)
        return given.values if given is not None else NOTHING

    @property
    def known(self) -> bool:
        """All arguments are known, each with its place."""
        return not self.open and self.loose is None

    @property
    def every(self) -> list[Given]:
        """The arguments that are known one by one, positional ones first."""
        return [*self.positional, *self.named.values()]

    @property
    def each(self) -> list[Values]:
        """The values of each of these."""
        return [given.values for given in self.every]

    @property
    def placed(self) -> list[Values]:
        """The values of each positional one."""
        return [given.values for given in self.positional]

    def all(self) -> list[Values]:
        """The values of each argument, and what is spread."""
        return [*self.each, frozenset(self.dicts)]

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


NO_ARGUMENTS = Arguments()  # of what is no call, or of one whose arguments nobody knows


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
        if out.loose is None:
            out.loose = args.loose
        elif args.loose is None:
            out.loose = out.loose
        else:
            out.loose = min(out.loose, args.loose)
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
