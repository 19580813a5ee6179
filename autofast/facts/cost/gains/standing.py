"""What waits for the device and stays as it is: beside it, one wait more or less hardly counts."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Iterator

from autofast.facts.by_default import is_taken, truth_by_default
from autofast.facts.cost.gains.asking import Findings, begun_in, changed_nodes, of_round
from autofast.facts.cost.step import Cost
from autofast.facts.read_back import lengths_given
from autofast.facts.switches import in_every_iteration
from autofast.flow.callgraph import CallGraph, Function
from autofast.flow.frequency import Frequency, arms_around, frequency
from autofast.flow.loops import loops_around
from autofast.flow.program import graph_of
from autofast.model.calls import arguments_of
from autofast.model.events import CallFrame, below, inside, loops
from autofast.model.kinds import is_scaler
from autofast.model.names import SYNCHRONIZE
from autofast.model.script import Script
from autofast.model.several import any_in, of_kind, surely
from autofast.model.source import Nodes, block_of, nodes_in, outwards, statement_of, walk
from autofast.model.syntax import DEFS, SIMPLE, is_read
from autofast.model.values import Ext, Ref, Tensor
from autofast.rule import Question

FEW_WAITS = 4  # in a step, beside which one more or less counts
WAITING: set[Question] = set()  # of advice on what waits for the device in each step


@of_round
def standing(script: Script, beside: Findings) -> Nodes:
    """The places that read what is on the device, or wait for it otherwise, and that nothing
    ``beside`` changes.
    """
    advised = {f.node for f in beside if f.advice and f.asks in WAITING}
    found = (script.analysis(_waiting) | advised) - changed_nodes(beside)
    return {_with_events(script, node) for node in found}


def _waiting(script: Script) -> Nodes:
    """``script.analysis(_waiting)``: all places that wait for the device as the script stands."""
    reads = [s.node for s in script.syncs if any(t.device != "cpu" for t in s.tensors)]
    waits = [s.node for s in script.calls(*SYNCHRONIZE)]
    return {*reads, *waits, *_reads_of_scale(script), *_reads_of_lengths(script)}


def _with_events(script: Script, node: ast.AST) -> ast.AST:
    """A place of which the ways are known: of ``x[mask]`` those of its statement."""
    node = getattr(node, "test", node)
    return node if script.log.within(node) or not is_read(node) else statement_of(node)


def _reads_of_scale(script: Script) -> Iterator[ast.AST]:
    """``scaler.state_dict()``, ``scaler.get_scale()``, and the calls of methods that do it."""
    for site in script.methods("state_dict", "get_scale"):
        for way in (o.stack for o in site if is_scaler(o.this)):
            yield from (site.node, *(f.node for f in way[-1:] if isinstance(f, CallFrame)))


def _reads_of_lengths(script: Script) -> Iterator[ast.Call]:
    """Calls, as of a CTC loss, that fetch the lengths they are given from the device."""
    for call in script.each(ast.Call):
        named = (t.name for t in script.called(call) if isinstance(t, (Ext, Ref)))
        lengths = [e for name in named for e in lengths_given(call, name)]
        if any(t.device == "dev" for e in lengths for t in of_kind(script.values(e), Tensor)):
            yield call


def every_turn(
    script: Script, loop: ast.AST, nodes: Iterable[ast.AST]
) -> Iterator[tuple[ast.AST, ast.AST]]:
    """The places among ``nodes`` that every iteration of the loop comes to while options have their
    defaults, in the loop itself or in a function that it calls, each with what is done there.
    """
    graph, cost = graph_of(script, loop), script.analysis(Cost)
    called: dict[ast.AST, ast.AST] = {}
    for node in nodes:
        if next(loops_around(node), None) is not loop:
            called |= dict.fromkeys(walk(node), node)
        elif frequency(graph, node, loop) is Frequency.EVERY or any(
            is_taken(script, below(way, loop)) for way in cost.ways(node) if inside(way, loop)
        ):
            yield node, node
    for _, site in script.log.each():
        if site.node in called and in_every_iteration(script, site):
            if any(cost.is_each_turn(o.stack, loop) for o in site):
                yield called[site.node], site.node


def in_every_turn(script: Script, loop: ast.AST, nodes: Iterable[ast.AST]) -> ast.AST | None:
    """The first of these places."""
    return next((place for _, place in every_turn(script, loop, nodes)), None)


def times_waited(script: Script, node: ast.AST, stay: Iterable[ast.AST]) -> int:
    """How many statements that stay wait in a step, each as often as it does when the step comes to
    ``node`` once.
    """
    mine, stay = _loops_around(script, node), list(stay)
    around = mine.intersection(step.loop for step in script.steps)
    return max((_in_turn(script, loop, stay, mine) for loop in around), default=0)


def are_few(script: Script, node: ast.AST, beside: Findings) -> int:
    """How many waits stay in a step beside so few that are within ``node``; 0 where these count."""
    here = {*walk(node)}
    reads, stay = [s.node for s in script.syncs if s.node in here], standing(script, beside) - here
    for loop in _loops_around(script, node).intersection(step.loop for step in script.steps):
        others, own = _in_turn(script, loop, stay, ()), _in_turn(script, loop, reads, ())
        if own and others > FEW_WAITS * own:
            return others
    return 0


def _loops_around(script: Script, node: ast.AST) -> Nodes:
    return {f.node for way in script.analysis(Cost).ways(node) for f in loops(way)}


@of_round
def waited(script: Script, beside: Findings) -> int:
    """The same of a step of the training: of all of them, the least."""
    training, stay = script.analysis(Cost).training, standing(script, beside)
    return min((_in_turn(script, step.loop, stay, ()) for step in training), default=0)


def _in_turn(
    script: Script, loop: ast.AST, stay: Iterable[ast.AST], besides: Container[ast.AST]
) -> int:
    cost, times = script.analysis(Cost), dict[ast.AST, int]()
    for node, _ in every_turn(script, loop, stay):
        there = statement_of(node)
        times[there] = max(times.get(there, 0), cost.times(node, loop, besides))
    return sum(times.values())


def waits_beside(
    script: Script, node: ast.AST, beside: Findings, back: bool = False
) -> ast.stmt | None:
    """The statement that waits for the device, and stays as it is, next behind (``back``: before)
    the one of ``node``, with nothing begun in between, not even in the next turn of the loop.
    """
    return waiting_beside(script, node, standing(script, beside), back)


def waiting_beside(
    script: Script, node: ast.AST, stay: Container[ast.AST], back: bool = False
) -> ast.stmt | None:
    """The same where ``stay`` are the places that wait."""
    loop, begun = next(loops_around(node), None), script.analysis(begun_in)
    blocks: list[list[ast.stmt]] = [getattr(loop, "body", [])]
    for here, _ in outwards(statement_of(node)):
        if here is loop or not isinstance(here, ast.stmt) or isinstance(here, DEFS):
            break
        own = block_of(here)
        cut = own.index(here)
        blocks.insert(-1, own[:cut] if back else own[cut + 1 :])
    for stmt in (s for block in blocks for s in (block[::-1] if back else block)):
        if _always_waits(script, stmt, stay, begun, back):
            return stmt
        graph = graph_of(script, stmt)
        if any(
            loop is None or frequency(graph, n, loop) is not Frequency.RARE
            for n in begun.intersection(walk(stmt))
        ):
            break
    return None


def _always_waits(
    script: Script,
    stmt: ast.stmt,
    stay: Container[ast.AST],
    begun: Nodes,
    back: bool,
    deeper: int = 3,
) -> bool:
    """Whether a statement comes to a wait on each way through it that defaults of options allow,
    before (``back``: behind) what it begins; also in functions that it calls, so many deep.
    """

    def first(body: list[ast.stmt], deeper: int = deeper) -> bool:
        for inner in reversed(body) if back else body:
            if _always_waits(script, inner, stay, begun, back, deeper):
                return True
            if any_in(walk(inner), begun):
                return False
        return False

    def runs(function: Function) -> bool:
        gates = _early_gates(function)
        asked = all(any(any_in(walk(gate.test), stay) for gate in ways) for ways in gates)
        return asked and not isinstance(function, ast.Lambda) and first(function.body, deeper - 1)

    match stmt:
        case ast.If(test=test, body=then, orelse=other):
            if any_in(walk(test), stay) and not (back and any_in(walk(stmt), begun)):
                return True
            found = ((then, True), (other, False))
            return all(first(a) for a, on in found if truth_by_default(script, test) in (..., on))
        case ast.With(body=body):
            return first(body)
    call = getattr(stmt, "value", None)
    if isinstance(call, ast.Call) and deeper:
        called = script.analysis(CallGraph).callees(call)
        given = {n for a in arguments_of(call) for n in walk(a)}
        if (back or given.isdisjoint(begun)) and surely(runs(c.function) for c in called):
            return True
    return isinstance(stmt, SIMPLE) and any_in(walk(stmt), stay)


def _early_gates(function: Function) -> list[list[ast.If]]:
    """Of each ``return`` but the last, the conditions that lead to it."""
    body = [] if isinstance(function, ast.Lambda) else function.body[:-1]
    early = (n for s in body for n in nodes_in(s, ast.Return))
    return [[gate for gate, _ in arms_around(n, None)] for n in early]
