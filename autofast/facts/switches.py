"""Where a switch or a hindrance is on for good: not behind an option, not in an error handler, not
gated.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from autofast.flow.callgraph import CallGraph
from autofast.flow.frequency import (
    Frequency,
    frequency,
    is_mostly_left_out,
    is_usual,
    rare_arms_around,
)
from autofast.flow.loops import Loop
from autofast.flow.program import Flow, definitions_at, graph_of
from autofast.flow.provenance import assigned_value
from autofast.flow.scopes import own_nodes
from autofast.flow.seldom import Seldom
from autofast.model import names
from autofast.model.events import (
    BranchFrame,
    CallFrame,
    Frame,
    LoopFrame,
    Occurrence,
    Site,
    Stack,
    TryFrame,
    below,
    branches,
    inside,
)
from autofast.model.script import Script
from autofast.model.several import surely, wordset
from autofast.model.source import (
    ByNode,
    Nodes,
    ancestors,
    function_of,
    is_elif,
    live_nodes,
    nodes_in,
    parent_of,
    within,
)
from autofast.model.syntax import DEFS, LOOPS, VARIABLES
from autofast.model.values import Arg, Const, Setting, certainly, names_of, of_kind
from autofast.read.library.frameworks import batch_at

ONCE = ("test_step", "predict_step")
KINDS = wordset("builtins.isinstance torch.is_tensor")


def with_every_step(script: Script, site: Site) -> bool:
    """Reached in every run that trains: under no condition that is not one of training itself, and
    no error handler.
    """
    trained = [
        branches(step.stack[: len(step.stack) - len(below(step.stack, step.loop))])
        for step in script.steps
    ]
    if any(isinstance(f, TryFrame) and f.part != "body" for o in site for f in o.stack):
        return False
    return any(branches(o.stack) <= mine for o in site for mine in trained)


def in_every_iteration(
    script: Script, site: Site, *, or_none: bool = False
) -> tuple[ast.AST, Occurrence] | None:
    """The training or evaluation loop each of whose iterations (but for few) comes to this place,
    and how.

    ``or_none``: it is enough that each does in some runs, and none in others, as below ``if
    args.verbose:``.
    """
    for loop in batch_loops(script):
        for occurrence in site:
            if not inside(occurrence.stack, loop):
                continue
            rest = below(occurrence.stack, loop)
            if any(f.part != "body" for f in of_kind(rest, TryFrame)):
                continue
            if any(
                not f.known
                and not _is_true_there(script, f)
                and not _is_given(f)
                and not is_usual(f)
                and not (or_none and (is_settled(script, f.node) or _chooses_by_name(f.node, rest)))
                for f in of_kind(rest, BranchFrame)
            ):
                continue
            flow = script.analysis(Flow)
            ways = [*(f.node for f in rest if isinstance(f, CallFrame)), site.node]
            seldom = script.analysis(Seldom)
            if not any(
                is_mostly_left_out(flow.graph(node), node) or seldom.around(node, None)
                for node in ways
            ):
                return loop, occurrence
    return None


def _chooses_by_name(node: ast.AST, way: Stack) -> bool:
    """``if "weight" in name:`` in a loop over ``named_parameters()``, some turn of which comes
    there.
    """
    asked = {n.id for n in nodes_in(getattr(node, "test", node), ast.Name)}
    for loop in (f.node for f in of_kind(way, LoopFrame) if within(node, f.node)):
        match loop:
            case ast.For(
                target=ast.Tuple(elts=[ast.Name(id=name), _]),
                iter=ast.Call(func=ast.Attribute(attr="named_parameters" | "named_modules")),
            ):
                return asked == {name}
    return False


def in_every_epoch(script: Script, site: Site) -> bool:
    """Whether each turn of a loop around one that trains comes to this place, in front of that loop
    or below it.
    """
    if in_every_iteration(script, site) is not None:
        return False
    epochs = {
        f.node: f.node
        for step in script.steps
        for b in step.backwards
        for o in b.site
        if inside(o.stack, step.loop)
        for f in o.stack[: len(o.stack) - len(below(o.stack, step.loop))]
        if isinstance(f, LoopFrame) and f.node is not step.loop
    }
    inner = set(batch_loops(script))
    for o in site:
        around = [n for n, f in enumerate(o.stack) if f.node in epochs]
        rest = o.stack[around[-1] + 1 :] if around else ()
        plain = not any(
            isinstance(f, (BranchFrame, TryFrame, LoopFrame)) and not _is_sure(script, f)
            for f in rest
        )
        if around and plain and not any(f.node in inner for f in o.stack):
            return True
    return False


def _is_sure(script: Script, frame: Frame) -> bool:
    return isinstance(frame, BranchFrame) and (frame.known or _is_true_there(script, frame))


def batch_loops(script: Script) -> list[ast.AST]:
    """The innermost loops that train, and those that evaluate, batch by batch; not those over
    epochs or trials around them, but those around the steps of a critic. Methods that a framework
    calls for each batch count, too.
    """
    return script.analysis(_batch_loops)


def batch_hooks(script: Script) -> ByNode[ast.AST]:
    """What frameworks that own the loop call for each batch."""
    found: ByNode[ast.AST] = {}
    owned = not script.frameworks.keys().isdisjoint(names.OWNERS)
    for _, site in script.log.each() if owned else ():
        for frame in site.occurrences[-1].stack:
            if isinstance(frame, CallFrame):
                called = frame.func.name == "forward" and frame.node is frame.func.node
                if called or batch_at(frame.func) is not None:
                    found[frame.func.node] = frame.func.node
    return found


def _around(ways: Iterable[tuple[Stack, ast.AST]]) -> Nodes:
    """What stands around the loops on these ways."""
    outside = ((stack[: len(stack) - len(below(stack, loop))], loop) for stack, loop in ways)
    return {f.node for frames, loop in outside for f in frames if f.node is not loop}


def _batch_loops(script: Script) -> list[ast.AST]:
    ways = [
        (o.stack, step.loop)
        for step in script.steps
        for b in step.backwards
        for o in b.site
        if inside(o.stack, step.loop)
    ]
    trains = {loop for _, loop in ways}
    around = _around(ways) - {loop for loop in trains if _trains_beside(loop, ways)}
    for evaluation in script.evaluations:
        for site in evaluation.forwards:
            for o in site:
                loops = of_kind(o.stack, LoopFrame)
                free = of_kind(_outside_of_models(o.stack), LoopFrame)
                over = [f for f in loops if f.loaders] or free[-1:]  # batches, users, a range
                ways += [(o.stack, f.node) for f in over]
    mine: ByNode[ast.AST] = {loop: loop for _, loop in ways if isinstance(loop, LOOPS)}
    outer = _around(ways)
    mine = {k: n for k, n in mine.items() if k not in (around if k in trains else outer)}
    called = script.analysis(batch_hooks).values()
    return [*mine.values(), *(f for f in called if getattr(f, "name", "") not in ONCE)]


def _trains_beside(loop: ast.AST, ways: Iterable[tuple[Stack, ast.AST]]) -> bool:
    """Whether each turn of a loop trains, besides what an inner loop does with batches that it
    takes one by one: the generator, after several steps of its critic.
    """
    inside_of = [below(stack, loop) for stack, _ in ways if inside(stack, loop)]
    inner = [[f for f in of_kind(rest, LoopFrame) if f.node is not loop] for rest in inside_of]
    return not all(inner) and not any(f.loaders for frames in inner for f in frames)


def _outside_of_models(stack: Stack) -> Stack:
    """The frames before the first method of a module: loops in there go over layers."""
    for n, frame in enumerate(stack):
        owner = frame.func.owner if isinstance(frame, CallFrame) else None
        if owner is not None and any(
            x in names.MODULE_BASES or names.makes_module(x) for x in owner.external
        ):
            return stack[:n]
    return stack


def goes_by_batch(script: Script, loop: ast.AST) -> bool:
    """Whether a loop that trains or evaluates takes one batch in each turn: it goes over a loader,
    asks one for its next, or stands inside another loop.
    """
    if loop in script.analysis(batch_hooks):
        return True
    if any(
        o.data.get("loaders") and inside(o.stack, loop) for s in script.log.of("next") for o in s
    ):
        return True
    sites = [b.site for s in script.steps if s.loop is loop for b in s.backwards]
    sites += [f for e in script.evaluations for f in e.forwards]
    for o in (o for site in sites for o in site if inside(o.stack, loop)):
        around = of_kind(o.stack, LoopFrame)
        if any(f.node is loop for f in around):
            here = next(n for n, f in enumerate(around) if f.node is loop)
        else:
            here = 0
        if here > 0 or (around and around[here].loaders):
            return True
    return False


def is_often(script: Script, node: ast.AST, loop: Loop | None) -> bool:
    """Whether a place runs in more than few iterations of its loop, or calls of its function."""
    if script.analysis(Seldom).around(node, loop):
        return False
    if loop is None:
        return not rare_arms_around(node, None)
    return frequency(graph_of(script, node), node, loop) in (
        Frequency.EVERY,
        Frequency.SOME,
    )


def frequent_nodes(
    script: Script, kinds: type[ast.AST] | tuple[type[ast.AST], ...]
) -> Iterator[tuple[ast.AST, ast.AST]]:
    """The nodes of these kinds that run in more than few turns of loops over batches, each with its
    loop: in it, and in functions that are called there.
    """
    calls = script.analysis(CallGraph)
    for loop in batch_loops(script):
        if isinstance(loop, (*LOOPS, *DEFS)) and goes_by_batch(script, loop):
            around = loop if isinstance(loop, LOOPS) else None  # or what a framework calls
            scope = function_of(loop) if around else loop
            here = [n for n in live_nodes(loop) if isinstance(n, kinds) and n is not loop]
            here = [n for n in here if function_of(n) is scope and is_often(script, n, around)]
            there = [n for f in calls.run_in(loop, often=True) for n in own_nodes(f)]
            there = [n for n in there if isinstance(n, kinds) and is_often(script, n, None)]
            yield from ((loop, n) for n in (*here, *there))


def about_hardware(script: Script, test: ast.AST | None) -> bool:
    """``torch.cuda.is_available()``, ``device.type == "cuda"``, a variable or an attribute that
    has nothing else: true on every machine that this is about.
    """
    match test:
        case ast.Name():
            return surely(_asks_for_gpu(d.value) for d in definitions_at(script, test))
        case ast.Attribute(value=owner, attr=attr):
            things = script.values(owner)
            sites = script.log.setting(things, attr)
            return surely(_asks_for_gpu(assigned_value(s.node)) for s in sites)
    return _asks_for_gpu(test)


def _asks_for_gpu(test: ast.AST | None) -> bool:
    match test:
        case ast.Call(func=ast.Attribute(attr="is_available")):
            return True
        case ast.Compare(ops=[ast.Eq()], comparators=[ast.Constant(value=str(kind))]):
            return kind.split(":")[0] in ("cuda", "mps", "xpu")
    return False


def _is_true_there(script: Script, frame: BranchFrame) -> bool:
    """The arm that runs where there is a GPU."""
    test = getattr(frame.node, "test", None)
    return frame.arm is True and about_hardware(script, test)


def _is_given(frame: BranchFrame) -> bool:
    """In the arm of ``if log is not None:``: what is switched on by giving it is on in every step,
    or in none.
    """
    match getattr(frame.node, "test", None):
        case ast.Compare(ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]):
            return frame.arm is True
        case ast.Compare(ops=[ast.Is()], comparators=[ast.Constant(value=None)]):
            return frame.arm is False
    return False


def is_settled(script: Script, node: ast.AST) -> bool:
    """Whether a condition has one answer all along: it asks options, settings and constants, or
    what kind of thing something is.
    """
    parts = list(nodes_in(getattr(node, "test", node), ast.expr))
    kinds = of_kind(parts, ast.Call)
    if any(names_of(script.called(n)) - KINDS for n in kinds):
        return False
    if kinds:
        return getattr(node, "test", None) in kinds
    read = of_kind(parts, VARIABLES)
    leaves = [n for n in read if not isinstance(parent_of(n), ast.Attribute)]
    found = [script.values(n) for n in leaves]
    return surely(certainly(v, Arg, Const, Setting) for v in found)


def in_each_turn_or_none(script: Script, node: ast.AST, loop: Loop) -> bool:
    """Whether each turn of a loop comes to a place that stands in it, or none does: all conditions
    around it have one answer all along.
    """
    gates = [n for n in ancestors(node) if isinstance(n, ast.If) and within(n, loop)]
    settled = all(is_settled(script, gate) for gate in gates)
    place = gates[-1] if gates and settled else node
    return frequency(graph_of(script, loop), place, loop) is Frequency.EVERY


def whole_statement(script: Script, node: ast.AST) -> ast.stmt | None:
    """The statement that is nothing but this call, or an ``if`` around it that is about the
    hardware and holds nothing else.
    """
    stmt = parent_of(node)
    if not isinstance(stmt, ast.Expr):
        return None
    outer = parent_of(stmt)
    if (
        isinstance(outer, ast.If)
        and len(outer.body) == 1
        and not outer.orelse
        and about_hardware(script, outer.test)
    ):
        return None if is_elif(outer) else outer
    return stmt
