"""Methods of containers, numbers, strings and parsers."""

from __future__ import annotations

import ast
import re

from autofast.model.values import (
    Arg,
    Arguments,
    Const,
    Dict,
    Ext,
    Located,
    Num,
    Seq,
    Tensor,
    Thing,
    Values,
    one,
)
from autofast.model.values import things as values
from autofast.read.library import chosen, loaded_settings, options
from autofast.read.library.containers import dict_method, namespace_method, row_of, seq_method
from autofast.read.library.iteration import iterate, loaders_in
from autofast.read.state.core import Core

# what a string that is known says of itself
OF_TEXT = frozenset(
    """startswith endswith lower upper strip lstrip rstrip replace title capitalize isdigit islower
    isupper isalpha isidentifier removeprefix removesuffix find count zfill""".split()
)


def _of_text(text: str, name: str, args: Arguments) -> Values:
    """``arch.startswith("resnet")``, computed where all of it is known."""
    given = [one(g.values) for g in args.positional]
    known = [t.value for t in given if isinstance(t, Const)]
    if args.named or args.open or args.loose is not None or len(known) != len(given):
        return values(Num())
    try:
        return values(Const(getattr(text, name)(*known)))
    except (TypeError, ValueError):
        return values(Num())


def method(
    interp: Core, this: Thing, name: str, args: Arguments, node: ast.AST | None
) -> Values | None:
    """A method of a container, a number, a string or an argument parser; None where ``this`` is
    none of them.
    """
    if isinstance(this, Dict):
        return dict_method(interp, this, name, args, node)
    if isinstance(this, Seq):
        return seq_method(interp, this, name, args, node)
    if isinstance(this, Const) and isinstance(this.value, str) and name == "format":
        for given in args.every:
            for thing in given.values:
                if isinstance(thing, Tensor):
                    interp.emit("format", node, thing, args)
        return values(Num(pattern=re.sub(r"\{[^{}]*\}", "*", this.value)))
    if isinstance(this, Located) and name in loaded_settings.KEPT:
        return values(this)
    if isinstance(this, (Num, Const, Arg)):
        if (parts := chosen.parts_of_name(interp, this, name, args, node)) is not None:
            return parts
        if name in OF_TEXT and isinstance(this, Const) and isinstance(this.value, str):
            return _of_text(this.value, name, args)
        if name in ("split", "rsplit", "splitlines", "partition", "rpartition"):
            return values(row_of(interp, (id(node), "split"), node, values(Num())))
        return values(Num())
    if isinstance(this, Ext) and this.name == "builtins.vars":
        return namespace_method(interp, this, name, args)
    if options.is_parser(this):
        return options.parser_method(interp, this, name, args, node)
    if isinstance(this, Ext):
        if "over" in this.attrs and name in ("__next__", "next"):
            loaders = loaders_in(values(this))
            if loaders:
                interp.emit("next", node, None, args, values(this), loaders=loaders)
            return iterate(interp, values(this), node)
        if "over" in this.attrs:
            return values(Num())
    return None
