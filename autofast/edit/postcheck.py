"""What a rewritten file must fulfil before it may be written."""

from __future__ import annotations

import ast
import builtins
import symtable
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from autofast.edit.hunks import Hunk, lines_of
from autofast.faults import PostConditionError
from autofast.model.source import Source

# Names that every module has without defining them.
MODULE_NAMES = frozenset(
    f"__{name}__"
    for name in "file name doc package spec loader builtins path annotations class qualname module".split()
)


class Amendable(PostConditionError):
    """The output is fit to be written once some findings are refused, or carried out otherwise
    (:mod:`autofast.edit.amend`).
    """

    def __init__(self, message: str, amendments: Mapping[Any, Any]):
        super().__init__(message)
        self.amendments = amendments


def parses(source: Source, text: str) -> None:
    """``text`` compiles."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, source.rel, "exec", dont_inherit=True)
    except RecursionError:
        raise PostConditionError(
            f"{source.rel}: the new text is nested too deeply for Python's compiler"
        ) from None
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        raise PostConditionError(
            f"{source.rel}: the new text is no Python (line {line}: {getattr(error, 'msg', error)})"
        ) from None


def defines_its_names(source: Source, text: str) -> None:
    """``text`` uses no name that nothing defines, unless the user did so already."""
    new = undefined(text, source.rel) - undefined(source.text, source.rel)
    if new:
        raise PostConditionError(
            f"{source.rel}: the new text uses undefined name{'s'[: len(new) > 1]} {', '.join(sorted(new))}"
        )


def keeps_other_lines(source: Source, text: str, hunks: Sequence[Hunk]) -> None:
    """Outside the hunks nothing has changed, and every hunk belongs to a rule."""
    rebuilt, here = [], 0
    old, new = lines_of(source.text), lines_of(text)
    for hunk in hunks:
        if not hunk.owners:
            raise PostConditionError(
                f"{source.rel}:{hunk.old[0] + 1}: a change that belongs to no rule"
            )
        rebuilt += [*old[here : hunk.old[0]], *new[slice(*hunk.new)]]
        here = hunk.old[1]
    if rebuilt + old[here:] != new:
        raise PostConditionError(f"{source.rel}: lines changed outside the hunks")


def undefined(text: str, name: str) -> frozenset[str]:
    """Names that nothing in the module binds; none where a star import may bind anything."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(text)
        if any(
            isinstance(n, ast.ImportFrom) and any(a.name == "*" for a in n.names)
            for n in ast.walk(tree)
        ):
            return frozenset()
        tables = list(_tables(symtable.symtable(text, name, "exec")))
    bound = {
        s.get_name()
        for s in tables[0].get_symbols()
        if s.is_assigned() or s.is_imported() or s.is_namespace()
    }
    used: set[str] = set()
    for table in tables:
        for symbol in table.get_symbols():
            is_global = table is tables[0] or symbol.is_global()
            if is_global and symbol.is_referenced():
                used.add(symbol.get_name())
            if is_global and symbol.is_assigned():  # `global x` in a function
                bound.add(symbol.get_name())
    return frozenset(used - bound - set(dir(builtins)) - MODULE_NAMES)


def _tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _tables(child)
