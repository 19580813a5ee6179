"""What a script does outside its process - prints, logs, files, progress bars, downloads - is done
by one of the processes.

Statements that only do such things stand under ``if RANK == 0:``; files are opened as
``os.devnull`` by the others, so that whatever writes to them needs no change; a writer object is
None there, and all its uses are guarded; progress bars are disabled; downloads happen in one
process of a machine first. Where a guarded statement needs a value of all processes,
:mod:`.metrics` puts that before it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import After, Around, Before, Edit, Keyword, Wrap
from autofast.facts.host_io import HostEffect
from autofast.flow.positions import block
from autofast.model.calls import is_method, keyword_of
from autofast.model.script import Script
from autofast.model.source import at, statement_of
from autofast.model.syntax import SIMPLE
from autofast.model.values import const
from autofast.rule import Refusal
from autofast.techniques.ddp.guards import Host, run, short
from autofast.techniques.ddp.names import Ranks

NOTHING_BACK = frozenset({"builtins.print", "torch.save", "builtins.input"})


def edits(script: Script, ranks: Ranks, host: Host) -> list[Edit]:
    """The edits by which each effect happens once; raises :class:`Refusal`."""
    made: list[Edit] = []
    for first, last in {(id(a), id(b)): (a, b) for a, b in host.guards.values()}.values():
        made.append(Around(first, last, f"if {ranks.first(first)}:"))
    for effect in host.inline:
        if effect.name not in NOTHING_BACK:
            raise Refusal(
                f"`{short(effect)}` on {at(effect.node)} is part of a larger expression: give it a statement of its own"
            )
        made.append(Wrap(effect.node, f"({{}} if {ranks.first(effect.node)} else None)"))
    for effect in host.all:
        made += _others(script, ranks, effect)
    return [*made, *_downloads(ranks, host)]


def _others(script: Script, ranks: Ranks, effect: HostEffect) -> Iterator[Edit]:
    call = effect.node
    if effect.kind == "writer":
        yield Wrap(call, f"{{}} if {ranks.first(call)} else None")
    elif effect.kind == "file":
        path = _path(call)
        if path is None:
            raise Refusal(f"which file is opened on {at(call)} is not known")
        yield Wrap(path, f"{{}} if {ranks.first(call)} else {ranks.module('os', call)}.devnull")
    elif effect.kind == "bar":
        yield from _bar(script, ranks, call)


def _path(call: ast.Call) -> ast.expr | None:
    """The argument of a call that is the path of the file it opens."""
    if is_method(call, "basicConfig"):
        return keyword_of(call, "filename")
    if call.args:
        return None if isinstance(call.args[0], ast.Starred) else call.args[0]
    return next((k.value for k in call.keywords if k.arg in ("file", "filename")), None)


def _bar(script: Script, ranks: Ranks, call: ast.Call) -> Iterator[Edit]:
    """``tqdm(..., disable=RANK != 0)``; what the script says about it itself holds in the first
    process.
    """
    others = f"{ranks.rank(call)} != 0"
    present = keyword_of(call, "disable")
    if any(k.arg is None for k in call.keywords):
        raise Refusal(f"whether the progress bar on {at(call)} is shown comes through `**`")
    if present is None:
        yield Keyword(call, "disable", others)
    elif const(script.values(present)) is not True:
        yield Wrap(present, f"{others} or {{}}")


# ---------------------------------------------------------------------------------------- downloads
def _downloads(ranks: Ranks, host: Host) -> Iterator[Edit]:
    """One process of each machine downloads first; the others wait, then find what is there."""
    mine = {
        id(statement_of(e.node)): statement_of(e.node) for e in host.all if e.kind == "download"
    }
    done: set[int] = set()
    for statement in mine.values():
        beside = block(statement)
        if not isinstance(statement, SIMPLE) or not beside:
            raise Refusal(
                f"the download on {at(statement)} is part of a larger statement: give it one of its own"
            )
        first, last = run(statement, mine)
        if id(first) in done:
            continue
        done.add(id(first))
        local, dist, several = ranks.local(first), ranks.dist(first), ranks.several(first)
        if isinstance(last, ast.Return):
            raise Refusal(
                f"the download on {at(last)} is returned at once: put it into a variable first"
            )
        later = f"{several} and {local} > 0" if ranks.imported_again(first) else f"{local} > 0"
        yield Before(
            first,
            f"if {later}:\n    {dist}.barrier()  # the first process downloads, the others wait",
        )
        yield After(last, f"if {several} and {local} == 0:\n    {dist}.barrier()")
