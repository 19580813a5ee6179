"""What a script does outside its process - prints, logs, files, progress bars, downloads - is done by one of the processes.

Statements that only do such things stand under ``if RANK == 0:``; files are opened as ``os.devnull`` by the others, so that whatever
writes to them needs no change; a writer object is None there, and all its uses are guarded; progress bars are disabled; downloads
happen in one process of a machine first. Where a guarded statement needs a value of all processes, :mod:`_ddp_metrics` puts that before it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edits import After, Around, Before, Edit, Keyword, Wrap
from autofast.read.source import ancestors, parent_of, statement_of
from autofast.read.values import Ext, const
from autofast.script import Script

from ._ddp_effects import Effect, effects
from ._ddp_names import Ranks, Refused, Training, at
from ._places import block, index

NOTHING_BACK = frozenset({"builtins.print", "torch.save", "builtins.input"})
ALONE = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.IfExp, ast.BoolOp)


class Host:
    """The effects of a script, sorted by what becomes of them.

    ``guards`` maps the id of each guarded statement to the first and last statement of the guard around it.
    """

    def __init__(self, script: Script):
        self.script = script
        self.all = list(effects(script))
        self.guards: dict[int, tuple[ast.stmt, ast.stmt]] = {}
        self.inline: list[Effect] = []  # in a lambda or comprehension
        for effect in self.all:
            if effect.kind in ("forbidden", "unknown"):
                raise Refused(_refusal(effect))
        guarded = [e for e in self.all if e.kind == "guard"]
        mine: dict[int, ast.stmt] = {}
        for effect in guarded:
            statement = _statement(effect)
            if statement is None:
                self.inline.append(effect)
            else:
                mine[id(statement)] = statement
        for statement in mine.values():
            self.guards[id(statement)] = _run(statement, mine)
        self.writers = [e for e in self.all if e.kind == "writer"]
        self._check_writers()

    def guard_of(self, node: ast.AST) -> tuple[ast.stmt, ast.stmt] | None:
        """The statements under one guard with ``node``, if it is guarded."""
        for outer in (node, *ancestors(node)):
            if id(outer) in self.guards:
                return self.guards[id(outer)]
        return None

    def _check_writers(self) -> None:
        """A writer is None in the other processes: all that is done with it must be guarded."""
        made = {id(t) for e in self.writers for t in self.script.values(e.node)}
        if any(not isinstance(t, Ext) for e in self.writers for t in self.script.values(e.node)):
            raise Refused(f"what the writer on {at(self.writers[0].node)} is used for is not known")
        for effect in self.writers:
            if isinstance(parent_of(effect.node), (ast.withitem, ast.Attribute)):
                raise Refused(f"the writer on {at(effect.node)} is not kept in a variable")
        for source in self.script.sources if made else ():
            for node in ast.walk(source.tree):
                if isinstance(node, ast.Attribute) and any(id(t) in made for t in self.script.values(node.value)):
                    call = parent_of(node)
                    if not (isinstance(call, ast.Call) and call.func is node and self.guard_of(call) is not None):
                        raise Refused(f"`{ast.unparse(node)}` on {at(node)} uses a writer that one process has only")


def edits(script: Script, ranks: Ranks, training: Training) -> list[Edit]:
    """The edits by which each effect happens once; raises :class:`Refused`."""
    host = Host(script)
    made: list[Edit] = []
    for first, last in {(id(a), id(b)): (a, b) for a, b in host.guards.values()}.values():
        made.append(Around(first, last, f"if {ranks.first(first)}:"))
    for effect in host.inline:
        if effect.name not in NOTHING_BACK:
            raise Refused(f"`{_short(effect)}` on {at(effect.node)} is part of a larger expression: give it a statement of its own")
        made.append(Wrap(effect.node, f"({{}} if {ranks.first(effect.node)} else None)"))
    for effect in host.all:
        made += _others(script, ranks, effect)
    return [*made, *_downloads(script, ranks, host)]


def _others(script: Script, ranks: Ranks, effect: Effect) -> Iterator[Edit]:
    call = effect.node
    if effect.kind == "writer":
        yield Wrap(call, f"{{}} if {ranks.first(call)} else None")
    elif effect.kind == "file":
        path = _path(call)
        if path is None:
            raise Refused(f"which file is opened on {at(call)} is not known")
        yield Wrap(path, f"{{}} if {ranks.first(call)} else {ranks.module('os', call)}.devnull")
    elif effect.kind == "bar":
        yield from _bar(script, ranks, call)


def _path(call: ast.Call) -> ast.expr | None:
    """The argument of a call that is the path of the file it opens."""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "basicConfig":
        return next((k.value for k in call.keywords if k.arg == "filename"), None)
    if call.args:
        return None if isinstance(call.args[0], ast.Starred) else call.args[0]
    return next((k.value for k in call.keywords if k.arg in ("file", "filename")), None)


def _bar(script: Script, ranks: Ranks, call: ast.Call) -> Iterator[Edit]:
    """``tqdm(..., disable=RANK != 0)``; what the script says about it itself holds in the first process."""
    others = f"{ranks.rank(call)} != 0"
    present = next((k.value for k in call.keywords if k.arg == "disable"), None)
    if any(k.arg is None for k in call.keywords):
        raise Refused(f"whether the progress bar on {at(call)} is shown comes through `**`")
    if present is None:
        yield Keyword(call, "disable", others)
    elif const(script.values(present)) is not True:
        yield Wrap(present, f"{others} or {{}}")


# ------------------------------------------------------------------------------------------------ guards
def _statement(effect: Effect) -> ast.stmt | None:
    """The statement that does nothing but this."""
    node: ast.AST = effect.node
    outer = parent_of(node)
    if isinstance(outer, ast.Await):
        raise Refused(f"`{_short(effect)}` on {at(node)} runs in an event loop")
    if isinstance(outer, ast.Expr):
        return outer
    if any(isinstance(a, ALONE) for a in _within_statement(node)):
        return None
    statement = statement_of(node)
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return None
    if effect.name.startswith("matplotlib"):
        return None
    raise Refused(f"what `{_short(effect)}` gives back is used on {at(node)}: give it a statement of its own")


def _within_statement(node: ast.AST) -> Iterator[ast.AST]:
    for outer in ancestors(node):
        if isinstance(outer, ast.stmt):
            return
        yield outer


def _run(statement: ast.stmt, mine: dict[int, ast.stmt]) -> tuple[ast.stmt, ast.stmt]:
    """The first and the last of neighbouring statements that are all guarded."""
    beside = block(statement)
    if not beside:
        raise Refused(f"{at(statement)} stands in a case of `match`")
    here = index(beside, statement)
    first = last = here
    while first > 0 and id(beside[first - 1]) in mine:
        first -= 1
    while last + 1 < len(beside) and id(beside[last + 1]) in mine:
        last += 1
    return beside[first], beside[last]


def _short(effect: Effect) -> str:
    text = ast.unparse(effect.node.func)
    return f"{text}()" if len(text) < 40 else f"{effect.name.rsplit('.', 1)[-1]}()"


def _refusal(effect: Effect) -> str:
    name, place = _short(effect), at(effect.node)
    if effect.name == "builtins.input":
        return f"`input()` on {place} asks the user, which several processes cannot do"
    if effect.kind == "forbidden":
        return f"`{name}` on {place} starts or talks to something outside, which every process would do"
    return f"whether `{name}` on {place} writes something is not known: every process would do it"


# ------------------------------------------------------------------------------------------------ downloads
def _downloads(script: Script, ranks: Ranks, host: Host) -> Iterator[Edit]:
    """One process of each machine downloads first; the others wait, then find what is there."""
    mine = {id(statement_of(e.node)): statement_of(e.node) for e in host.all if e.kind == "download"}
    done: set[int] = set()
    for statement in mine.values():
        beside = block(statement)
        if not isinstance(statement, (ast.Assign, ast.AnnAssign, ast.Expr, ast.Return)) or not beside:
            raise Refused(f"the download on {at(statement)} is part of a larger statement: give it one of its own")
        first, last = _run(statement, mine)
        if id(first) in done:
            continue
        done.add(id(first))
        local, dist, several = ranks.local(first), ranks.dist(first), ranks.several(first)
        if isinstance(last, ast.Return):
            raise Refused(f"the download on {at(last)} is returned at once: put it into a variable first")
        later = f"{several} and {local} > 0" if ranks.imported_again(first) else f"{local} > 0"
        yield Before(first, f"if {later}:\n    {dist}.barrier()  # the first process downloads, the others wait")
        yield After(last, f"if {several} and {local} == 0:\n    {dist}.barrier()")
