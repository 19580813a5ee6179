"""How often a place runs in a loop, and which conditions hold now and then: every 100 iterations,
in the last, when a counter is full.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from enum import Enum
from weakref import WeakKeyDictionary

from autofast.flow.cfg import Graph
from autofast.flow.graph import Node
from autofast.flow.loops import Loop, loops_around
from autofast.flow.scopes import is_parameter
from autofast.model.calls import is_name, names_in, short_name
from autofast.model.contents import each_once
from autofast.model.events import BranchFrame
from autofast.model.source import ByNode, function_of, nodes_in, outwards, source_of
from autofast.model.syntax import FUNCTIONS, IDENTITY, MEMBERSHIP, is_stored, is_unary


class Frequency(Enum):
    """In how many iterations of a loop a place runs."""

    EVERY = "in every iteration that is followed by another one"
    SOME = "in some iterations"
    RARE = "in few iterations: every n-th, in the last, after an exception"
    NEVER = "in none: it stands elsewhere, or nothing leads there"


Way = tuple[Node, Node]  # where an iteration begins, and what decides on the next


@dataclass
class Answers:
    """What was asked of one graph: frequencies by statement and loop, the edges that few iterations
    of a loop take; of an iteration, the nodes that it comes to (with or without these edges) and
    those that every way through it comes to.
    """

    frequencies: dict[tuple[ast.AST, ast.AST], Frequency] = field(default_factory=dict)
    rare: ByNode[frozenset[tuple[Node, Node]]] = field(default_factory=dict)
    reached: dict[tuple[Way, ast.AST | None], frozenset[Node]] = field(default_factory=dict)
    always: dict[tuple[Way, ast.AST], frozenset[Node]] = field(default_factory=dict)


_KNOWN: WeakKeyDictionary[Graph, Answers] = WeakKeyDictionary()


def frequency(graph: Graph, node: ast.AST, loop: Loop) -> Frequency:
    """In how many iterations the statement of ``node`` runs; exceptions are taken to be rare."""
    place = graph.place(node)
    if place is None or loop not in loops_around(node):
        return Frequency.NEVER
    known, key = _KNOWN.setdefault(graph, Answers()).frequencies, (place, loop)
    if key not in known:
        known[key] = _frequency(graph, place, loop)
    return known[key]


def _frequency(graph: Graph, place: ast.AST, loop: Loop) -> Frequency:
    """The same for a statement that stands in ``loop``."""
    wanted = {
        n
        for n in graph.copies.get(place, ())
        if not n.part or (place is loop and n.part == "target")
    }
    iterations = graph.iteration.get(loop, [])
    if not any(wanted & _reached(graph, way) for way in iterations):
        return Frequency.RARE if graph.starts(place) else Frequency.NEVER
    if place is loop or not any(_avoids(graph, way, wanted, loop) for way in iterations):
        return Frequency.EVERY
    if not any(wanted & _reached(graph, way, loop) for way in iterations):
        return Frequency.RARE
    return Frequency.SOME


def _walk(
    graph: Graph, way: Way, closed: Set[tuple[Node, Node]], wanted: Set[Node]
) -> Iterator[Node]:
    """The nodes of one iteration without exceptions; not what follows ``wanted``, nor what lies
    behind edges that are closed.
    """
    begin, head = way
    todo = [begin]
    for node in each_once(todo):
        yield node
        if node is not head and node not in wanted:
            todo += [n for n in graph.succ.get(node, ()) if (node, n) not in closed]


def _reached(graph: Graph, way: Way, usual: Loop | None = None) -> frozenset[Node]:
    """The nodes of an iteration; with ``usual``, its loop, those that not only few come to."""
    known = _KNOWN.setdefault(graph, Answers())
    key = way, usual
    if key not in known.reached:
        closed: frozenset[tuple[Node, Node]] = frozenset()
        if usual is not None:
            if usual not in known.rare:
                known.rare[usual] = frozenset(_rare_arms(graph, usual))
            closed = known.rare[usual]
        known.reached[key] = frozenset(_walk(graph, way, closed, frozenset()))
    return known.reached[key]


def _avoids(graph: Graph, way: Way, wanted: set[Node], loop: Loop) -> bool:
    """Whether an iteration may come to the next one (or, without one, its end) past ``wanted``."""
    reached = _reached(graph, way)
    ends = {way[1]} if way[1] in reached else set(graph.ends) | set(graph.after.get(loop, ()))
    here = wanted & reached
    if len(here) == 1 and not here & ends:
        known, key = _KNOWN.setdefault(graph, Answers()).always, (way, loop)
        if key not in known:
            known[key] = _on_every_way(graph, way, ends)
        return bool(known[key]) and not here <= known[key]
    return any(n in ends and n not in wanted for n in _walk(graph, way, frozenset(), wanted))


def _on_every_way(graph: Graph, way: Way, ends: set[Node]) -> frozenset[Node]:
    """The nodes that every way from the beginning of an iteration to its ends comes to: they stand
    on any one such way, and no way round leads from before them to behind them.
    """
    before: dict[Node, Node | None] = {way[0]: None}
    todo = [way[0]]
    for node in todo:  # which grows meanwhile
        for other in () if node in ends else graph.succ.get(node, ()):
            if other not in before:
                before[other] = node
                todo.append(other)
    last = next((node for node in todo if node in ends), None)
    one: list[Node] = []
    while last is not None:
        one.append(last)
        last = before[last]
    number = {node: n for n, node in enumerate(reversed(one))}
    found, seen, furthest = set(), set(number), 0
    for node, n in number.items():
        if furthest <= n:
            found.add(node)
        todo = [node]
        while todo:
            for other in graph.succ.get(todo.pop(), ()):
                if other in number or other in ends:
                    furthest = max(furthest, number.get(other, len(number) - 1))
                elif other not in seen:
                    seen.add(other)
                    todo.append(other)
    return frozenset(found)


def _rare_arms(graph: Graph, loop: Loop) -> Iterator[tuple[Node, Node]]:
    """The edges into arms of conditions that few iterations take."""
    for node, (yes, no) in graph.arms.items():
        if isinstance(node.ast, ast.If) and loop in loops_around(node.ast):
            arm = rare_arm(node.ast)
            if arm is not None:
                yield node, yes if arm else no


# --------------------------------------------------------------------------------------- conditions
def rare_arm(gate: ast.If) -> bool | None:
    """The value of the test that few iterations of the loop around it see: True, False, or None
    where neither is rare.

    Rare are a remainder (``i % 100 == 0``), an equation with something that the loop changes (``i
    == last``), a counter that is set back when it is full (``if waited >= n: ...; waited = 0``),
    what is only made where it is missing (``if self.mask is None: self.mask = ...``), and a name
    that each iteration gives such a truth (``shows = i % 100 == 0``). A condition on the
    configuration or the rank is not.
    """
    known: tuple[bool | None] | None = getattr(gate, "_af_rare_arm", None)  # asked very often
    if known is None:
        rare = next((value for value in (True, False) if is_seldom(gate.test, value, gate)), None)
        known = gate._af_rare_arm = (rare,)  # type: ignore[attr-defined]
    return known[0]


def is_rare(frame: BranchFrame) -> bool:
    """Whether few iterations take this arm."""
    return isinstance(frame.node, ast.If) and rare_arm(frame.node) is frame.arm


def is_usual(frame: BranchFrame) -> bool:
    """Whether all but few iterations take this arm."""
    return isinstance(frame.node, ast.If) and rare_arm(frame.node) is (not frame.arm)


def is_first_time(frame: BranchFrame) -> bool:
    """Whether this rare arm makes what is missing, and is not taken again while it is there; or
    begins what goes on for many turns.
    """
    gate = frame.node
    if not isinstance(gate, ast.If):
        return False
    tests = list(nodes_in(gate.test, ast.Compare, ast.Call))
    looked_for = [_missing(test) for test in tests]
    return (
        any(_is_kept(found[0], found[2], gate) for found in looked_for if found)
        or any(_is_counted(test, gate) for test in tests if isinstance(test, ast.Compare))
        or _renews(gate, frame.arm)
    )


def rare_arms_around(node: ast.AST, loop: Loop | None) -> list[tuple[ast.If, bool]]:
    """The conditions around ``node`` that few iterations of ``loop`` (calls of its function,
    without one) pass, innermost first, each with its arm.
    """
    if loop is not None and loop not in loops_around(node):
        return []
    return [(gate, arm) for gate, arm in arms_around(node, loop) if rare_arm(gate) is arm]


def is_mostly_left_out(graph: Graph, node: ast.AST) -> bool:
    """Whether ``if step % 50: return`` or the like stands before ``node`` in its function."""
    return any(
        rare_arm(gate) is (not arm)
        for leaving in graph.leaving_before(node)
        for gate, arm in arms_around(leaving, None)
    )


def arms_around(node: ast.AST, end: ast.AST | None) -> Iterator[tuple[ast.If, bool]]:
    """The conditions around ``node`` in ``end`` (in its function, without one), innermost first,
    each with the arm that it stands in.
    """
    for here, outer in outwards(node):
        if outer is end or (end is None and isinstance(outer, (*FUNCTIONS, ast.Module))):
            return
        if isinstance(outer, ast.If) and here is not outer.test:
            yield outer, here in outer.body


def is_seldom(
    test: ast.expr, value: bool, gate: ast.AST, seen: frozenset[str] = frozenset()
) -> bool:
    """Whether ``test`` is rarely ``value``, as ``gate`` asks it; one rare part makes all of it
    rare, also of ``or``.
    """
    if isinstance(gate, ast.If) and test is gate.test and _renews(gate, value):
        return True
    if is_unary(test, ast.Not):
        return is_seldom(test.operand, not value, gate, seen)
    if isinstance(test, ast.BoolOp):
        parts = [is_seldom(v, value, gate, seen) for v in test.values]
        return any(parts) if value or isinstance(test.op, ast.Or) else all(parts)
    if isinstance(test, ast.NamedExpr):
        return is_seldom(test.value, value, gate, seen)
    if isinstance(test, ast.Name):
        return test.id not in seen and _is_named(test.id, value, gate, seen)
    if (missing := _missing(test)) is not None and value is missing[1]:
        return isinstance(gate, ast.If) and _is_kept(missing[0], missing[2], gate)
    if not isinstance(test, ast.Compare):
        return not value and _has_remainder(test)  # ``if i % 100:``
    equal = isinstance(test.ops[0], (ast.Eq, ast.Is))
    unequal = isinstance(test.ops[0], (ast.NotEq, ast.IsNot))
    if _has_remainder(test):
        return value is not unequal
    if value and isinstance(gate, ast.If) and _is_counted(test, gate):
        return True
    if not _changed_by_loop(gate) & names_in(test):
        return False
    if equal or unequal:
        return value is equal and not isinstance(test.ops[0], IDENTITY)
    if not value or not isinstance(gate, ast.If):
        return False
    full = isinstance(test.ops[0], (ast.Gt, ast.GtE)) and names_in(test.left) & _set_back(gate)
    return bool(full)


def _is_named(name: str, value: bool, gate: ast.AST, seen: frozenset[str]) -> bool:
    """Whether each iteration gives a variable what is rarely ``value``, or the other truth."""
    scope = next(loops_around(gate), None) or function_of(gate)
    bound = [n for n in nodes_in(function_of(gate), ast.Name) if n.id == name and is_stored(n)]
    made = [a for a in nodes_in(scope, ast.Assign) if len(a.targets) == 1 and a.targets[0] in bound]
    others = [a.value for a in made if not is_seldom(a.value, value, a, seen | {name})]
    own = len(bound) == len(made) and not is_parameter(function_of(gate), name)
    return (
        own
        and len(others) < len(made)
        and all(isinstance(v, ast.Constant) and bool(v.value) is not value for v in others)
    )


def _is_counted(test: ast.Compare, gate: ast.If) -> bool:
    """Whether an object counts to what is asked, and begins again: ``if self.seen == n: self.seen =
    0``; or remembers what is new: ``if task != self.task: self.task = task``.
    """
    asked = {ast.unparse(test.left), ast.unparse(test.comparators[0])}
    full = isinstance(test.ops[0], (ast.Eq, ast.Gt, ast.GtE))
    counts = [ast.unparse(n.target) for n in nodes_in(function_of(gate), ast.AugAssign)]
    for then in (a for stmt in gate.body for a in nodes_in(stmt, ast.Assign)):
        target, value = ast.unparse(then.targets[0]), ast.unparse(then.value)
        if isinstance(then.targets[0], ast.Attribute) and (
            (isinstance(test.ops[0], ast.NotEq) and {target, value} == asked)
            or (full and target == ast.unparse(test.left) and target in counts)
        ):
            return True
    return False


def _renews(gate: ast.If, arm: bool) -> bool:
    """Whether an arm makes anew all that an object keeps and the condition asks for, so that it
    fits the next time: ``if channels == self.channels: ... else: self.channels = channels``.
    """
    block = gate.body if arm else gate.orelse
    made = [a for stmt in block for a in nodes_in(stmt, ast.Assign)]
    stored = {ast.unparse(t): ast.unparse(a.value) for a in made for t in a.targets}
    asked = {ast.unparse(a) for a in nodes_in(gate.test, ast.Attribute) if is_name(a.value, "self")}
    compared = (
        [ast.unparse(side) for side in (test.left, test.comparators[0])]
        for test in nodes_in(gate.test, ast.Compare)
        if isinstance(test.ops[0], ast.NotEq if arm else ast.Eq)
    )
    fits = any(stored.get(a) == b or stored.get(b) == a for a, b in compared)
    return fits and asked <= stored.keys()


def _missing(test: ast.expr) -> tuple[str, bool, str] | None:
    """What a test looks for in an object that outlives the call, as it is spelled, the value that
    says that it is not there, and the name of the attribute.
    """
    match test:
        case ast.Compare(left=ast.Attribute() as kept, ops=[op], comparators=[ast.Constant(None)]):
            return ast.unparse(kept), isinstance(op, (ast.Is, ast.Eq)), kept.attr
        case ast.Compare(left=key, ops=[op], comparators=[ast.Attribute() as table]):
            if isinstance(op, MEMBERSHIP):
                spelled = f"{ast.unparse(table)}[{ast.unparse(key)}]"
                return spelled, isinstance(op, ast.NotIn), table.attr
        case ast.Call(func=ast.Name(id="hasattr"), args=[owner, ast.Constant(str() as name)]):
            return f"{ast.unparse(owner)}.{name}", False, name
    return None


def _is_kept(missing: str, name: str, gate: ast.If) -> bool:
    """Whether the arms of a condition store what was missing, and nothing takes it away again."""
    emptied = any(
        isinstance(target, ast.Attribute) and target.attr == name and not _is_apart(assign, gate)
        for assign in source_of(gate).each(ast.Assign)
        if isinstance(assign.value, (ast.Constant, ast.Dict))
        for target in assign.targets
    )
    todo: list[ast.stmt] = [] if emptied else [gate]
    for part in each_once(todo):
        stored = (t for a in nodes_in(part, ast.Assign) for t in a.targets)
        if any(ast.unparse(target) == missing for target in stored):
            return True
        called = {short_name(n.func) for n in nodes_in(part, ast.Call)}
        todo += (f for f in source_of(gate).each(ast.FunctionDef) if f.name in called)
    return False


def _is_apart(assign: ast.Assign, gate: ast.If) -> bool:
    """Whether it runs where the object is made, or in the other arm of a condition around."""
    if getattr(function_of(assign), "name", "") == "__init__":
        return True
    mine, theirs = dict(arms_around(gate, None)), dict(arms_around(assign, None))
    return any(theirs.get(outer, arm) is not arm for outer, arm in mine.items())


def _has_remainder(test: ast.AST) -> bool:
    return any(
        isinstance(n, ast.BinOp)
        and isinstance(n.op, ast.Mod)
        and not isinstance(n.left, ast.Constant)
        for n in ast.walk(test)
    )


def _changed_by_loop(gate: ast.AST) -> frozenset[str]:
    loop = next(loops_around(gate), None)
    return source_of(loop).stored_in(loop) if loop is not None else frozenset()


def _set_back(gate: ast.If) -> set[str]:
    parts = [
        n for s in gate.body for n in nodes_in(s, ast.Assign) if isinstance(n.value, ast.Constant)
    ]
    return {t.id for part in parts for t in part.targets if isinstance(t, ast.Name)}
