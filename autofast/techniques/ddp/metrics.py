"""The numbers of a training that people or decisions see are those of all processes together.

In the training loops each process has its part of every batch. What the script makes a number of
(``loss.item()``, a printed tensor) becomes the mean or the sum over processes there, by whichever
of the two it is for the whole batch; numbers of samples are multiplied by the number of processes.
Evaluations run on all data in every process, so they stay what they were; a decision on what they
find is the first process's.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import After, Before, Edit, Helper, Rewrite, Wrap
from autofast.flow.effects import CHANGERS
from autofast.flow.positions import is_always
from autofast.flow.scopes import is_local, owner, scope_of
from autofast.model.calls import arguments_of, call_of, root_of, short_name
from autofast.model.events import CallFrame
from autofast.model.script import Script
from autofast.model.several import wordset
from autofast.model.source import Source, ancestors, at, parent_of, source_of, statement_of
from autofast.model.syntax import VARIABLES, is_attribute, is_read, is_stored
from autofast.rule import Refusal
from autofast.techniques.ddp.guards import Host
from autofast.techniques.ddp.names import Ranks, Training
from autofast.techniques.ddp.uniformity.calls import ADDERS
from autofast.techniques.ddp.uniformity.state import Note
from autofast.techniques.ddp.uniformity.walk import Walk

HELPERS = {
    "mean": (
        "mean_over_ranks",
        '''
def {name}(value):
    """The mean of a tensor over all processes."""
    return {total}(value) / {world} if {world} > 1 and {torch}.is_tensor(value) else value
''',
    ),
    "sum": (
        "sum_over_ranks",
        '''
def {name}(value):
    """The sum of a tensor over all processes."""
    if {world} > 1 and {torch}.is_tensor(value):
        value = value.detach().clone()
        {dist}.all_reduce(value)
    return value
''',
    ),
    "first": (
        "from_rank_0",
        '''
def {name}(value):
    """What the first process has, in all: they must decide alike."""
    if {world} > 1:
        values = [value.item() if hasattr(value, "item") else value]
        {dist}.broadcast_object_list(values)
        value = values[0]
    return value
''',
    ),
}
READS = wordset("data item cpu detach float double squeeze mean sum")


def edits(script: Script, ranks: Ranks, training: Training, host: Host, walk: Walk) -> list[Edit]:
    """The edits by which every number means what it meant; raises :class:`Refusal`."""
    walk.check_uses()
    _check_followed(script, host, walk)
    words = _Words(ranks)
    made: list[Edit] = []
    hoisted: dict[tuple[ast.AST, str, str], str] = {}
    for note in walk.notes.values():
        if note.how == "none":
            continue
        if note.how == "size":
            made.append(Wrap(note.expr, f"{{}} * {ranks.world(note.expr)}"))
            continue
        helper = words.helper(source_of(note.expr), note.how, note.expr)
        guard = host.guard_of(note.expr)
        if guard is None:
            made.append(Wrap(note.expr, f"{helper}({{}})"))
            continue
        key = guard[0], note.how, ast.unparse(note.expr)
        if key not in hoisted:
            _check_once(note.expr, guard[0])
            hoisted[key] = _name_for(ranks, note, set(hoisted.values()))
            made.append(
                Before(guard[0], f"{hoisted[key]} = {helper}({{value}})", {"value": note.expr})
            )
        made.append(Rewrite(note.expr, hoisted[key]))
    for test in walk.decided.values():
        made.append(Wrap(test, f"{words.helper(source_of(test), 'first', test)}({{}})"))
    after = [s for s in walk.waits.values() if s is not training.end]  # all wait there
    for edit, here in ((Before, walk.barriers.values()), (After, after)):
        for statement in here:
            wait = f"{ranks.dist(statement)}.barrier()  # the file is there"
            made.append(edit(statement, f"if {ranks.several(statement)}:\n    {wait}"))
    return made + words.edits


def _check_once(expr: ast.expr, shown: ast.stmt) -> None:
    """It may be computed before what shows it: not for each element, nor where a condition may keep
    it from being computed at all.
    """
    is_there = isinstance(expr, VARIABLES) and scope_of(expr) is scope_of(shown)
    if not is_there and not is_always(expr, statement_of(expr)):
        raise Refusal(
            f"`{ast.unparse(expr)}` on {at(expr)} is computed for each element, or not always: put it into a variable first"
        )


def _check_followed(script: Script, host: Host, walk: Walk) -> None:
    """All has been looked at: nothing of it stands in code that libraries call."""
    for step in script.steps:
        for backward in step.backwards:
            if statement_of(backward.node) not in walk.seen:
                raise Refusal(f"what becomes of the numbers around {at(backward)} is not followed")
    _check_kept(script, walk)
    for sync in script.syncs:
        inner = any(
            isinstance(f, CallFrame) and f.func.name in ("forward", "__getitem__")
            for o in sync.site
            for f in o.stack
        )
        if sync.training and not inner and statement_of(sync.node) not in walk.seen:
            raise Refusal(f"what is read on {at(sync)} is not followed")
    for effect in host.all:
        if effect.kind == "guard" and statement_of(effect.node) not in walk.seen:
            if any(not isinstance(g, ast.Constant) for g in arguments_of(effect.node)):
                raise Refusal(
                    f"what is shown or written on {at(effect)} is made where batches are worked on, by parts in each process"
                )


def _check_kept(script: Script, walk: Walk) -> None:
    """What code keeps that libraries call (hooks, a model's forward, a dataset) is not asked for in
    code that is followed.
    """
    kept: dict[str, ast.AST] = {}
    asked: dict[str, ast.AST] = {}
    handed = _handed_over(script)
    for node in script.nodes:
        if isinstance(node, ast.stmt) and not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            if not script.reached(node) and not any(
                isinstance(a, ast.FunctionDef) and a.name in handed for a in ancestors(node)
            ):
                continue
            mine = asked if node in walk.seen else kept
            for name, place in _names_in(node, stored=mine is kept):
                mine.setdefault(name, place)
        elif isinstance(node, ast.Lambda) and node not in walk.seen:
            for name, place in _names_in(node.body, stored=True):
                kept.setdefault(name, place)
    both = next((n for n in kept if n in asked), None)
    if both is not None:
        raise Refusal(
            f"`{both}` on {at(asked[both])} comes from {at(kept[both])}, where each process works on its own part of the batches"
        )


def _handed_over(script: Script) -> set[str]:
    """The names of functions that are handed over as they are (hooks), and that nothing calls by
    name.
    """
    found: set[str] = set()
    for node in script.nodes:
        if isinstance(node, VARIABLES) and is_read(node):
            if call_of(node) is None and not is_attribute(parent_of(node)):
                found.add(short_name(node))
    return found


def _names_in(statement: ast.AST, stored: bool) -> Iterator[tuple[str, ast.AST]]:
    """The attributes and outer variables that a statement changes (without those of the blocks in
    it), or looks at.
    """
    todo: list[ast.AST] = [statement]
    while todo:
        node = todo.pop()
        todo += [
            c
            for c in ast.iter_child_nodes(node)
            if not isinstance(c, (ast.stmt, ast.ExceptHandler))
        ]
        match node:
            case ast.Name() | ast.Attribute() if not stored and is_read(node):
                yield short_name(node), node
            case _ if not stored:
                pass
            case ast.Attribute(attr=name) if is_stored(node):
                yield name, node
            case ast.Subscript(value=of) if is_stored(node):
                yield from _root(of)
            case ast.Call(func=ast.Attribute(value=of, attr=name)) if name in ADDERS | CHANGERS:
                yield from _root(of)
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                yield from ((name, node) for name in names)


def _root(expr: ast.expr) -> Iterator[tuple[str, ast.AST]]:
    expr = root_of(expr, ast.Subscript)
    if isinstance(expr, ast.Attribute):
        yield expr.attr, expr
    elif isinstance(expr, ast.Name) and (isinstance(owner(expr), ast.Module) or not is_local(expr)):
        yield expr.id, expr


def _name_for(ranks: Ranks, note: Note, taken: set[str]) -> str:
    """``mean_loss`` for the mean of ``loss`` over processes."""
    expr: ast.expr = note.expr
    while isinstance(expr, (ast.Attribute, ast.Call, ast.Subscript)):
        if is_attribute(expr) and expr.attr not in READS:
            break
        expr = expr.func if isinstance(expr, ast.Call) else expr.value
    base = short_name(expr) or "value"
    first = {"mean": "mean", "sum": "total"}.get(note.how, "first")
    base = base.lower().strip("_") or "value"
    return ranks.fresh(f"{first}_{base}", besides=taken)


class _Words:
    """The helper functions, once in each file that needs them."""

    def __init__(self, ranks: Ranks):
        self.ranks = ranks
        self.edits: list[Edit] = []
        self._names: dict[tuple[Source, str], str] = {}

    def helper(self, source: Source, how: str, node: ast.AST) -> str:
        key = source, how
        if key not in self._names:
            total = self.helper(source, "sum", node) if how == "mean" else ""
            name = self.ranks.fresh(HELPERS[how][0])
            self._names[key] = name
            text = HELPERS[how][1].format(
                name=name,
                total=total,
                world=self.ranks.world(node),
                dist=self.ranks.dist(node),
                torch=self.ranks.torch(node),
            )
            self.edits.append(Helper(source, name, text.strip("\n")))
        return self._names[key]
