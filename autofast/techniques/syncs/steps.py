"""Which loops take one batch in each iteration, and what runs in all, in few, or between two places
of an iteration.

Where an exception in a loop may be caught, or looked at: what the loop has put off by then would
never be read.

Whether a loop has certainly had an iteration where what each of them keeps is read.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from autofast.facts.loaders import loader_argument, whole_batches
from autofast.facts.switches import batch_loops
from autofast.facts.updates.cadence import inside_bar
from autofast.flow.build import is_try
from autofast.flow.callgraph import Function, code_of
from autofast.flow.filled_lists import is_only_filled
from autofast.flow.frequency import Frequency, frequency, rare_arm, rare_arms_around
from autofast.flow.loops import Loop, common_loop, loop_of
from autofast.flow.positions import is_always
from autofast.flow.program import Flow, graph_of, may_swallow
from autofast.flow.scopes import binds
from autofast.model.calls import is_name
from autofast.model.events import BranchFrame, CallFrame, Occurrence, loops
from autofast.model.roles import Loader
from autofast.model.script import Script
from autofast.model.several import of_kind, surely
from autofast.model.source import (
    ByNode,
    Nodes,
    ancestors,
    any_within,
    function_of,
    nodes_in,
    parent_of,
    statement_of,
    within,
    within_any,
)
from autofast.model.syntax import (
    FUNCTIONS,
    LOOPS,
    SIMPLE,
    WITHS,
    is_attribute,
    is_constant,
    is_read,
)
from autofast.model.values import Cls, Func, Inst, Ref, Unknown
from autofast.techniques.syncs.sinks import Sink


def is_step(script: Script, loop: ast.AST | None) -> bool:
    """Whether one iteration of the loop is one batch: of training, or of an evaluation. A loop over
    epochs is none.
    """
    return loop is not None and loop in script.analysis(_step_loops)


def _step_loops(script: Script) -> Nodes:
    around: ByNode[Nodes] = {}
    for site in script.log.of("forward", "call_unknown"):
        for occurrence in site:
            if occurrence.data.get("outer", True):
                plain = [f for f in loops(occurrence.stack) if isinstance(f.node, LOOPS)]
                for k, frame in enumerate(plain[-1:] + [f for f in plain if f.loaders]):
                    outer = plain[:-1] if k == 0 else plain[: plain.index(frame)]
                    around.setdefault(frame.node, set()).update(f.node for f in outer)
    outside = {n for outer in around.values() for n in outer}
    batches = {loop for loop in batch_loops(script) if isinstance(loop, LOOPS)}
    return {step.loop for step in script.steps} | (set(around) - outside) | batches


def runs_in_steps(script: Script, occurrences: Iterable[Occurrence], each: bool = False) -> bool:
    """Whether a place is come to from a loop over batches, across function calls and inner loops;
    with ``each``, in all of its iterations.
    """
    for occurrence in occurrences:
        plain = [f for f in loops(occurrence.stack) if isinstance(f.node, LOOPS)]
        if steps := [f for f in plain if is_step(script, f.node)]:
            rest = occurrence.stack[occurrence.stack.index(steps[-1]) :]
            arms = (
                f for f in of_kind(rest, BranchFrame) if isinstance(f.node, ast.If) and not f.known
            )
            if not each or not any(rare_arm(f.node) is f.arm for f in arms):  # type: ignore[arg-type]
                return True
    return False


class InFew:
    """``script.analysis(InFew)``: conditions that are not there yet, around what is shown in every
    step and would be in few, by statement; none, unless they are supposed.

    Attributes:
        is_asked: whether what is only shown may be shown in few steps.
        why: of other statements of loops over batches, why none is supposed around them.
    """

    def __init__(self, script: Script):
        self.is_asked = False
        self.gates: ByNode[ast.If] = {}
        self.why: ByNode[str] = {}

    def around(self, node: ast.AST) -> ast.If | None:
        """The condition that would hold a place."""
        here = (node, *ancestors(node)) if self.gates else ()
        return next((self.gates[n] for n in here if n in self.gates), None)


EVERY = 100  # steps
FEW = f"`if step % {EVERY} == 0:`"


def where_shown(script: Script, node: ast.AST) -> str:
    """What there is to say of a place that needs a number in every step, which it may only show:
    how it is shown in few, or why it stays.
    """
    few = script.analysis(InFew)
    by_hand = f"; what is only shown could be shown in few steps, below {FEW}"
    if not few.is_asked:
        return f"{by_hand}, as `--effect recipe` writes it for prints and progress bars"
    why = few.why.get(statement_of(node))
    return f", and stays there: {why}" if why else by_hand


def rare_branch(script: Script, node: ast.AST, loop: Loop | None) -> ast.If | None:
    """The outermost ``if`` whose body holds ``node`` and runs in few iterations of ``loop`` (in few
    calls).
    """
    for condition, arm in reversed(rare_arms_around(node, loop)):
        if arm:
            return condition
    supposed = script.analysis(InFew).around(node)
    return supposed if supposed is not None and loop_of(supposed.body[0]) is loop else None


def place_of(branch: ast.If) -> ast.stmt:
    """Where a condition stands, or would."""
    return branch if parent_of(branch.body[0]) is branch else branch.body[0]


def first_in(branch: ast.If, nodes: list[ast.AST]) -> ast.stmt:
    """The first statement of ``branch`` that holds one of ``nodes``; its very first where one of
    them has yet to move there.
    """
    if not all(within_any(n, branch.body) for n in nodes):
        return branch.body[0]
    return next(s for s in branch.body if any_within(nodes, s))


def works_between(script: Script, first: ast.stmt, last: ast.stmt) -> bool:
    """Whether a forward or backward pass, or an update, is started between two statements of one
    iteration (or call).
    """
    scope, graph, loop = (
        function_of(first),
        graph_of(script, first),
        common_loop(first, last),
    )
    for site in script.log.of("forward", ".backward", ".step"):
        for occurrence in site:
            for node in (
                site.node,
                *(f.node for f in occurrence.stack if isinstance(f, CallFrame)),
            ):
                if (
                    function_of(node) is scope
                    and not within(node, first)
                    and not within(node, last)
                ):
                    if graph.may_follow(node, first, loop) and graph.may_follow(last, node, loop):
                        return True
    return False


def catching_statements(
    script: Script, node: ast.AST, stop: ast.AST | None = None
) -> Iterator[ast.Try | ast.With | ast.AsyncWith]:
    """The statements around ``node``, up to ``stop`` or the function's end, that see what it
    raises: ``try``, ``with suppress(...)``.
    """
    here = node
    for outer in ancestors(node):
        if outer is stop or isinstance(outer, FUNCTIONS):
            return
        if is_try(outer) and (outer.handlers or outer.finalbody) and here in outer.body:
            yield outer
        if isinstance(outer, WITHS) and here in outer.body:
            if any(_sees(script, item.context_expr) for item in outer.items):
                yield outer
        here = outer


def _sees(script: Script, manager: ast.expr) -> bool:
    """Whether a manager may end an exception or, at the end of its block, look at what the loop
    fills; not, if nothing is known of it.
    """
    if may_swallow(script, manager) and not script.may_be(manager, Unknown):
        return True
    things = script.values(manager) | (script.called(manager))
    exits = [e for t in things if isinstance(t, Inst) for e in t.cls.find("__exit__") or ()]
    functions = [
        c.function
        for t in (*exits, *(t for t in things if not isinstance(t, (Inst, Cls))))
        for c in code_of(t)
    ]
    return not all(_keeps_to_itself(script, f) for f in functions)


def _keeps_to_itself(script: Script, function: Function) -> bool:
    """Whether a function looks at nothing but its arguments and what is imported."""
    loads = (n for n in nodes_in(function, ast.Name) if is_read(n))
    outside = (n for n in loads if not binds(function_of(n), n.id))
    return all(isinstance(t, (Ref, Func, Cls)) for n in outside for t in script.values(n))


ERRORS = ("ZeroDivisionError", "ArithmeticError")


def runs_at_all(script: Script, sink: Sink, loop: Loop) -> bool:
    """Whether a sink has certainly run when ``loop`` has ended and what follows does not raise: it
    runs in every iteration, and without one, ``total / len(loader)`` below would divide by zero.
    """
    graph = graph_of(script, loop)
    return (
        isinstance(loop, ast.For)
        and frequency(graph, sink.statement, loop) is Frequency.EVERY
        and not graph.leaving_before(sink.statement, loop)
        and not any(name in s.names for s in script.sources for name in ERRORS)
        and any(
            graph.may_follow(node, loop)
            and not within(node, loop)
            and graph.postdominates(statement_of(node), loop)
            and _raises_without(script, sink, node, loop)
            for node in nodes_in(function_of(loop), ast.AugAssign, ast.BinOp)
        )
    )


def _raises_without(script: Script, sink: Sink, node: ast.AST, loop: ast.For) -> bool:
    """Whether it divides a number that the sink fills, ``total`` or ``sum(losses)``, by zero where
    the loop has had no iteration.
    """
    match node:
        case ast.AugAssign(op=ast.Div(), target=dividend, value=divisor):
            pass
        case ast.BinOp(op=ast.Div(), left=dividend, right=divisor):
            stmt = statement_of(node)
            if not isinstance(stmt, SIMPLE) or not is_always(node, stmt):
                return False
        case _:
            return False
    match dividend:
        case ast.Call(func=ast.Name(id="sum"), args=[ast.Name(id=name)], keywords=[]):
            mine = is_name(sink.holder, name)
        case _:
            mine = sink.kind == "number" and ast.unparse(dividend) == ast.unparse(sink.holder)
    match divisor:
        case ast.Call(func=ast.Name(id="len"), args=[sized]) if mine:
            return _is_empty_without(script, sink, sized, loop)
    return False


def _is_empty_without(script: Script, sink: Sink, sized: ast.expr, loop: ast.For) -> bool:
    """``loader``, ``loader.dataset``, or ``losses``, a list that the loop alone fills."""
    over, flow = loop.iter, script.analysis(Flow)
    while (inner := inside_bar(script.values(over))) is not None:
        over = inner
    if is_attribute(sized, "dataset"):
        loaders = [x for x in script.loaders if any(use.node is loop for use in x.uses)]
        whole = surely(_gives_all(x) for x in loaders)
        return whole and flow.is_same(over, sized.value)
    held = sink.holder
    if isinstance(held, ast.Name) and is_name(sized, held.id):
        return is_only_filled(held, loop)
    return flow.is_same(over, sized)


def _gives_all(loader: Loader) -> bool:
    """Whether a loader passes over no sample: its sampler is its own, or one of whole batches."""
    if any(loader_argument(loader, name) is not None for name in ("drop_last", "batch_sampler")):
        return False
    whole = whole_batches(loader)
    return loader_argument(loader, "sampler") is None or (
        whole is not None and is_constant(whole.drop, False)
    )
