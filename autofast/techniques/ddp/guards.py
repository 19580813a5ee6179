"""The statements that one process carries out alone, and what must be known of them for that."""

from __future__ import annotations

import ast

from autofast.facts.host_io import HostEffect
from autofast.flow.positions import block, index
from autofast.model.calls import call_of, items_of
from autofast.model.script import Script
from autofast.model.source import ancestors, at, parent_of, statement_of, within_statement
from autofast.model.values import Ext
from autofast.rule import Refusal

ALONE = (
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
    ast.IfExp,
    ast.BoolOp,
)


class Host:
    """The effects of a script, sorted by what becomes of them.

    ``guards`` maps the id of each guarded statement to the first and last statement of the guard
    around it.
    """

    def __init__(
        self, script: Script, every: list[HostEffect], splits: frozenset[int] = frozenset()
    ):
        """``splits`` are statements (by id) before which no guard goes on."""
        self.script, self.all = script, every
        self.guards: dict[int, tuple[ast.stmt, ast.stmt]] = {}
        self.inline: list[HostEffect] = []  # in a lambda or comprehension
        for effect in self.all:
            if effect.kind in ("forbidden", "unknown"):
                raise Refusal(_refusal(effect))
        guarded = [e for e in self.all if e.kind == "guard"]
        mine: dict[int, ast.stmt] = {}
        for effect in guarded:
            statement = _statement(effect)
            if statement is None:
                self.inline.append(effect)
            else:
                mine[id(statement)] = statement
        for statement in mine.values():
            self.guards[id(statement)] = run(statement, mine, splits)
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
            raise Refusal(f"what the writer on {at(self.writers[0].node)} is used for is not known")
        for effect in self.writers:
            if isinstance(parent_of(effect.node), (ast.withitem, ast.Attribute)):
                raise Refusal(f"the writer on {at(effect.node)} is not kept in a variable")
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
    if any(isinstance(a, ALONE) for a in within_statement(node)):
        return None
    match statement_of(node):
        case ast.Expr(value=ast.Call()):
            return None
    if effect.name.startswith("matplotlib"):
        return None
    raise Refusal(
        f"what `{short(effect)}` gives back is used on {at(node)}: give it a statement of its own"
    )


def run(
    statement: ast.stmt, mine: dict[int, ast.stmt], splits: frozenset[int] = frozenset()
) -> tuple[ast.stmt, ast.stmt]:
    """The first and the last of neighbouring statements that are all guarded."""
    beside = block(statement)
    if not beside:
        raise Refusal(f"{at(statement)} stands in a case of `match`")
    here = index(beside, statement)
    first = last = here
    while first > 0 and id(beside[first - 1]) in mine and id(beside[first]) not in splits:
        first -= 1
    while (
        last + 1 < len(beside)
        and id(beside[last + 1]) in mine
        and id(beside[last + 1]) not in splits
    ):
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
    return f"{text}()" if len(text) < 40 else f"{effect.name.rsplit('.', 1)[-1]}()"


def _refusal(effect: HostEffect) -> str:
    name, place = short(effect), at(effect.node)
    if effect.name == "builtins.input":
        return f"`input()` on {place} asks the user, which several processes cannot do"
    if effect.kind == "forbidden":
        return f"`{name}` on {place} starts or talks to something outside, which every process would do"
    return f"whether `{name}` on {place} writes something is not known: every process would do it"
