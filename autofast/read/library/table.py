"""The one table of what functions of libraries give: by name, by the module they stand in, or by
the package.

A function that knows some of them is registered for their names: ``torch.stack`` is that function,
``torch.fft.*`` all that stand in the module themselves, ``json.**`` all below. It gives None for
what it does not know after all; the next one is asked then, first those of the name, in the order
in which they were registered (a module that another falls back from is imported by it).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeAlias

from autofast.model.values import NOTHING, Arguments, Ext, Values, Where, joined, things as values
from autofast.read.state.core import Core

Function: TypeAlias = Callable[[Core, str, Arguments, "Where"], "Values | None"]
TABLE: dict[str, list[Function]] = {}


def gives_for(*names: str) -> Callable[[Function], Function]:
    """Registers what the functions of these names give."""

    def register(function: Function) -> Function:
        for name in names:
            TABLE.setdefault(name, []).append(function)
        return function

    return register


def known(interp: Core, name: str, args: Arguments, node: Where) -> Values | None:
    """What calling a library's function or class gives; None where nothing in the table says it."""
    for function in _functions(name):
        if (found := function(interp, name, args, node)) is not None:
            return found
    return None


@cache
def _functions(name: str) -> list[Function]:
    """Those that may know it, in the order in which they are asked."""
    root = name.rpartition(".")[0]
    keys = [name, f"{root}.*"]
    while root:
        keys.append(f"{root}.**")
        root = root.rpartition(".")[0]
    return [function for key in keys for function in TABLE.get(key, ())]


def make(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    """A new object of a library class."""

    def new() -> Ext:
        ext = Ext(name, node, args, {}, tuple(interp.stack))
        interp.made.append(ext)
        return ext

    ext = interp.intern(Ext, (node, name), new)
    ext.args = args if ext.args is args else joined([ext.args, args])
    interp.emit("new", node, ext, args)
    return values(ext)


def first_of(args: Arguments) -> Values:
    """What stands first in a call; nothing where nothing does."""
    return args.positional[0].values if args.positional else NOTHING


def plain(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    """What a call gives of which the reader knows no more than its arguments."""
    return values(interp.intern(Ext, (node, name), lambda: Ext(name, node, args)))
