"""Arguments of loaders: one finding for each place where one is to be written."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from autofast.edit.edits import Edit
from autofast.facts.settings import beside
from autofast.model.script import Loader, Script
from autofast.rule import Effect, Finding, Need
from autofast.write.arguments import Home, room


@dataclass(frozen=True, eq=False)
class Wish:
    """A loader that an argument should be added to."""

    loader: Loader
    # The value at a home, and what else it needs there.
    make: Callable[[Home], tuple[str, tuple[Edit, ...]]]
    effect: Effect | None = None
    needs: tuple[Need, ...] = ()  # rules without whose fix at ``key`` this would be wrong
    key: ast.AST | None = None  # the place of that fix; None for the home itself
    home: Home | None = None  # where it is written already, otherwise; None where it is not


def added(script: Script, name: str, message: str, wishes: list[Wish]) -> Iterator[Finding]:
    """One finding for each place where the argument is to be written: a call, or a dict that
    several of the loaders share.
    """
    calls = [wish.loader.node for wish in wishes]
    homes: dict[int, tuple[Home, list[Wish]]] = {}
    for wish in wishes:
        home = wish.home or room(script, wish.loader.args, name, calls)
        if isinstance(home, str) and (where := beside(wish.loader.args)):
            yield Finding(
                wish.loader.node, message, advice=f"set {name} beside the arguments of {where}"
            )
        elif isinstance(home, str):
            yield Finding(wish.loader.node, message, refusal=home)
        else:
            homes.setdefault(id(home.node), (home, []))[1].append(wish)
    for home, members in homes.values():
        value, more = members[0].make(home)
        effect = max((w.effect for w in members if w.effect is not None), default=None)
        needs = tuple(dict.fromkeys(rule for w in members for rule in w.needs))
        key = members[0].key or home.node
        yield Finding(
            home.node,
            message,
            edits=(home.set(name, value) if home.expr is None else home.replace(value), *more),
            effect=effect,
            key=key,
            needs=needs,
        )
