"""Functions of the new text that no longer do what those outside of the script who call them count
on.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autofast.edit.hunks import Hunk
from autofast.flow.callgraph import CallGraph
from autofast.flow.importers import Importers, User
from autofast.flow.positions import in_main_guard
from autofast.flow.scopes import defaults, loaded_in, variables_of
from autofast.model.script import Script
from autofast.model.several import of_kind
from autofast.model.source import Source, parent_of, walk
from autofast.model.syntax import DEFS, Def, positional_names
from autofast.model.values import Seq, Tensor, Values, any_of


@dataclass(frozen=True)
class Changed:
    """A function that ``user`` calls; ``what`` would be other than before, and ``hunks`` are those
    in the function.
    """

    function: Def
    what: str
    user: User
    hunks: tuple[Hunk, ...]


def changed_interfaces(
    old: Script, new: Script, source: Source, hunks: Sequence[Hunk]
) -> Iterator[Changed]:
    """The functions that take or return something else now, and are used outside of the script."""
    fresh = new.source_at(source.path)
    after = _functions(fresh.tree) if fresh is not None else {}
    for name, function in _functions(source.tree).items():
        now = after.get(name)
        first, last = (now.lineno - 1, now.end_lineno or 0) if now is not None else (0, 0)
        inside = tuple(h for h in hunks if h.new[0] < last and h.new[1] >= first)
        if now is None or not inside:
            continue
        what = (
            _other_parameters(function, now)
            or _other_results(old, function, new, now)
            or _of_main(function, now)
        )
        if what and (user := old.analysis(Importers).user(function)) is not None:
            yield Changed(function, what, user, inside)


def _functions(tree: ast.Module) -> dict[str, Def]:
    """The functions at module level and the methods of classes there, by their qualified names."""
    found: dict[str, Def] = {}
    for node in walk(tree):
        if isinstance(node, DEFS):
            owner = parent_of(node)
            prefix = f"{owner.name}." if isinstance(owner, ast.ClassDef) else ""
            outer = owner if isinstance(owner, ast.ClassDef) else node
            if isinstance(parent_of(outer), ast.Module):
                found.setdefault(prefix + node.name, node)
    return found


def _other_parameters(before: Def, after: Def) -> str:
    """In words, why a call of the function as it was may no longer be one."""
    kept = positional_names(before.args)
    now = positional_names(after.args)
    known = defaults(before)
    wanted = [n for n, value in defaults(after).items() if value is None]
    for name in wanted:
        if name not in known or known[name] is not None:
            return f"would need `{name}`"
    gone = [n for n in known if n not in defaults(after)]
    if gone or now[: len(kept)] != kept:
        return "would take other arguments"
    return ""


def _other_results(old: Script, before: Def, new: Script, after: Def) -> str:
    """In words, what the function now returns in the place of something else."""
    made = [_joined(s, f) for s, f in ((old, before), (new, after))]
    if not made[0] or not made[1]:
        return ""
    parts = [_parts(values) for values in made]
    if len(parts[0]) != len(parts[1]):
        return "would return something else"
    for was, now in zip(*parts, strict=True):
        tensors = of_kind(now, Tensor)
        if was and tensors and not any_of(was, Tensor):
            return "would return a tensor in the place of a number"
        if any(t.grad for t in of_kind(was, Tensor)) and not any(t.grad for t in tensors):
            return "would return what no gradient goes through"
    return ""


def _of_main(before: Def, after: Def) -> str:
    """In words, what the function now reads that only the script sets, below its main guard."""
    known = loaded_in(before)
    table = variables_of(after)
    for name in sorted(loaded_in(after) - known):
        variable = table.find(name, after)
        if variable is not None and variable.scope is table.tree:
            stores = table.stores(variable)
            if stores and all(map(in_main_guard, stores)):
                return f"would read `{name}`, which only the script itself sets"
    return ""


def _joined(script: Script, function: Def) -> Values:
    every = (script.values(e) for e in script.analysis(CallGraph).results(function))
    return frozenset().union(*every)


def _parts(values: Values) -> list[Values]:
    """The elements of what is certainly one tuple; else the values as a whole."""
    if len(values) == 1:
        (only,) = values
        if isinstance(only, Seq) and only.exact is not None:
            return list(only.exact)
    return [values]
