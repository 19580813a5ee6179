"""The statements that one process carries out alone, and what must be known of them for that.

What a script does outside its process - prints, logs, files, progress bars, downloads - is done
by one of the processes.

Statements that only do such things stand under ``if RANK == 0:``; files are opened as
``os.devnull`` by the others, so that whatever writes to them needs no change; a writer object is
None there, and all its uses are guarded; progress bars are disabled; downloads happen in one
process of a machine first. Where a guarded statement needs a value of all processes,
:mod:`.metrics` puts that before it.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from autofast.edit.edits import After, Around, Before, Edit, Keyword, Wrap
from autofast.facts.host_io import HostEffect
from autofast.flow.positions import index_in_block, statements_beside
from autofast.model.calls import call_of, is_method, items_of, keyword_of, may_give
from autofast.model.names import last_part
from autofast.model.script import Script
from autofast.model.several import wordset
from autofast.model.source import ByNode, ancestors, at, parent_of, statement_of, within_statement
from autofast.model.syntax import SIMPLE
from autofast.model.values import Ext, any_of
from autofast.rule import Refusal
from autofast.techniques.ddp.names import Ranks

ALONE = (
    ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.IfExp,
    ast.BoolOp,
)  # fmt: skip


class Host:
    """The effects of a script, sorted by what becomes of them.

    ``guards`` maps the id of each guarded statement to the first and last statement of the guard
    around it.
    """

    def __init__(self, script: Script, every: list[HostEffect]):
        self.script, self.all = script, every
        self.guards: ByNode[tuple[ast.stmt, ast.stmt]] = {}
        self.inline: list[HostEffect] = []  # in a lambda or comprehension
        for effect in self.all:
            if effect.kind in ("forbidden", "unknown"):
                raise Refusal(_refusal(effect))
        guarded = [e for e in self.all if e.kind == "guard"]
        mine: ByNode[ast.stmt] = {}
        for effect in guarded:
            statement = _statement(effect)
            if statement is None:
                self.inline.append(effect)
            else:
                mine[statement] = statement
        for statement in mine.values():
            self.guards[statement] = run(statement, mine)
        self.writers = [e for e in self.all if e.kind == "writer"]
        self._check_writers()

    def guard_of(self, node: ast.AST) -> tuple[ast.stmt, ast.stmt] | None:
        """The statements under one guard with ``node``, if it is guarded."""
        for outer in (node, *ancestors(node)):
            if outer in self.guards:
                return self.guards[outer]
        return None

    def _check_writers(self) -> None:
        """A writer is None in the other processes: all that is done with it must be guarded."""
        made = {id(t) for e in self.writers for t in self.script.values(e.node)}
        if any(not isinstance(t, Ext) for e in self.writers for t in self.script.values(e.node)):
            raise Refusal(f"what the writer on {at(self.writers[0])} is used for is not known")
        for effect in self.writers:
            if isinstance(parent_of(effect.node), (ast.withitem, ast.Attribute)):
                raise Refusal(f"the writer on {at(effect)} is not kept in a variable")
        for source in self.script.sources if made else ():
            for node in source.each(ast.Attribute):
                if any(id(t) in made for t in self.script.values(node.value)):
                    call = call_of(node)
                    if call is None or self.guard_of(call) is None:
                        raise Refusal(
                            f"`{ast.unparse(node)}` on {at(node)} uses a writer that one process has only"
                        )


def _statement(effect: HostEffect) -> ast.stmt | None:
    """The statement that does nothing but this."""
    node: ast.AST = effect.node
    outer = parent_of(node)
    if isinstance(outer, ast.Await):
        raise Refusal(f"`{short(effect)}` on {at(node)} runs in an event loop")
    if isinstance(outer, ast.Expr):
        return outer
    if any_of(within_statement(node), ALONE):
        return None
    match statement_of(node):
        case ast.Expr(value=ast.Call()):
            return None
    if effect.name.startswith("matplotlib"):
        return None
    raise Refusal(
        f"what `{short(effect)}` gives back is used on {at(node)}: give it a statement of its own"
    )


def run(statement: ast.stmt, mine: Collection[ast.AST]) -> tuple[ast.stmt, ast.stmt]:
    """The first and the last of neighbouring statements that are all guarded."""
    beside = statements_beside(statement)
    if not beside:
        raise Refusal("stands in a case of `match`", statement)
    here = index_in_block(beside, statement)
    first = last = here
    while first > 0 and beside[first - 1] in mine:
        first -= 1
    while last + 1 < len(beside) and beside[last + 1] in mine:
        last += 1
    return beside[first], beside[last]


def caught(handler: ast.ExceptHandler) -> set[str]:
    """The exceptions that a handler takes, as they are written; ``BaseException`` where it names
    none.
    """
    if handler.type is None:
        return {"BaseException"}
    return {ast.unparse(kind) for kind in (items_of(handler.type))}


def short(effect: HostEffect) -> str:
    text = ast.unparse(effect.node.func)
    return f"{text}()" if len(text) < 40 else f"{last_part(effect.name)}()"


def _refusal(effect: HostEffect) -> str:
    name, place = short(effect), at(effect)
    if effect.name == "builtins.input":
        return f"`input()` on {place} asks the user, which several processes cannot do"
    if effect.kind == "forbidden":
        return f"`{name}` on {place} starts or talks to something outside, which every process would do"
    return f"whether `{name}` on {place} writes something is not known: every process would do it"


NOTHING_BACK = wordset("builtins.print torch.save builtins.input")


def edits(script: Script, ranks: Ranks, host: Host) -> list[Edit]:
    """The edits by which each effect happens once; raises :class:`Refusal`."""
    made: list[Edit] = []
    for first, last in {(a, b): (a, b) for a, b in host.guards.values()}.values():
        made.append(Around(first, last, f"if {ranks.first(first)}:"))
    for effect in host.inline:
        if effect.name not in NOTHING_BACK:
            raise Refusal(
                f"`{short(effect)}` on {at(effect)} is part of a larger expression: give it a statement of its own"
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
    if may_give(call):
        raise Refusal(f"whether the progress bar on {at(call)} is shown comes through `**`")
    if present is None:
        yield Keyword(call, "disable", others)
    elif script.constant(present) is not True:
        yield Wrap(present, f"{others} or {{}}")


# ---------------------------------------------------------------------------------------- downloads
def _downloads(ranks: Ranks, host: Host) -> Iterator[Edit]:
    """One process of each machine downloads first; the others wait, then find what is there."""
    mine = {statement_of(e.node): statement_of(e.node) for e in host.all if e.kind == "download"}
    done: set[object] = set()
    for statement in mine.values():
        beside = statements_beside(statement)
        if not isinstance(statement, SIMPLE) or not beside:
            raise Refusal(
                f"the download on {at(statement)} is part of a larger statement: give it one of its own"
            )
        first, last = run(statement, mine)
        if first in done:
            continue
        done.add(first)
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
