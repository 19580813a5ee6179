"""Loaders over ``range(n)``: what they give are batches of indices."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import Edits, Rewrite
from autofast.facts.loader_uses import ITERATING
from autofast.model.calls import first_argument, is_name, keyword_of
from autofast.model.roles import Loader
from autofast.model.script import Script
from autofast.model.several import surely
from autofast.model.source import parent_of, source_of
from autofast.model.syntax import is_read
from autofast.model.values import Arg, Ext, Ref, all_of, are_numbers, is_named
from autofast.rule import Effect, Finding
from autofast.write.imports import imports_of, unimported
from autofast.write.spelling import torch_in

RANGE = Ref("builtins.range")
KNOWN = {"batch_size", "shuffle", "drop_last", "num_workers", "pin_memory"}


def split_numbers(script: Script, loader: Loader) -> Edits:
    """``torch.randperm(n).split(size)`` in the place of ``DataLoader(range(n), size,
    shuffle=True)``, ``torch.arange(n).split(size)`` without ``shuffle``; empty for other loaders.
    """
    call = loader.node
    numbers = first_argument(call)
    if not all_of(loader.things, Ext):  # a class of the project gives others
        return ()
    if not isinstance(numbers, ast.Call) or script.called(numbers) != {RANGE}:
        return ()
    size = call.args[1] if len(call.args) > 1 else keyword_of(call, "batch_size")
    if size is None or len(call.args) > 2 or {k.arg for k in call.keywords} - KNOWN:
        return ()
    shuffles, drops = (
        False if (given := keyword_of(call, name)) is None else script.constant(given)
        for name in ("shuffle", "drop_last")
    )
    if len(numbers.args) > 1 or drops is not False or not isinstance(shuffles, bool):
        return ()
    if not _is_number(script, size) or not _is_gone_through(script, call):
        return ()
    torch, imports = torch_in(source_of(call))
    made = f"{torch}.{'randperm' if shuffles else 'arange'}({{n}}).split({{size}})"
    return Rewrite(call, made, {"n": numbers.args[0], "size": size}), *imports


def no_longer_imported(script: Script, calls: list[ast.Call]) -> Iterator[Finding]:
    """The imports of DataLoader that only these calls needed."""
    mine = {c.func: c for c in calls}
    for source in dict.fromkeys(map(source_of, calls)):
        for name, imports in imports_of(source, ["torch.utils.data"], "DataLoader").items():
            used = [n for n in source.nodes if is_name(n, name) and is_read(n)]
            if surely(n in mine for n in used):
                yield Finding(
                    imports[0],
                    "nothing needs the import of DataLoader any more",
                    edits=unimported(script, source, ["torch.utils.data"], "DataLoader"),
                    needs=tuple((None, mine[n]) for n in used),
                    effect=Effect.EXACT,
                )


def _is_number(script: Script, size: ast.expr) -> bool:
    """A whole number, where None would ask for single ones."""
    return are_numbers(
        [
            t
            for thing in script.values(size)
            for t in (thing.default or {thing} if isinstance(thing, Arg) else {thing})
        ]
    )


def _is_gone_through(script: Script, call: ast.Call) -> bool:
    """A loop goes through it, directly or by ``enumerate``, ``zip``, ``tqdm``; nobody keeps it."""
    taken: ast.expr = call
    taker = parent_of(call)
    if isinstance(taker, ast.Call) and all(
        is_named(t, Ref, ITERATING) for t in script.called(taker) or {None}
    ):
        taken, taker = taker, parent_of(taker)
    return isinstance(taker, (ast.For, ast.comprehension)) and taker.iter is taken
