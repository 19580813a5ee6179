"""Loops that take the time of a part of each turn, which depends on what waits for the device.

``start = time.time(); ...; used = time.time() - start`` of one turn is that of what is launched in
between where nothing waits. The time of whole turns, from one to the next or since the loop began,
is on average what it was.
"""

from __future__ import annotations

import ast

from autofast.facts.shows import Shows
from autofast.flow.frequency import Frequency, frequency
from autofast.flow.loops import Loop
from autofast.flow.program import Flow, definitions_of, graph_of
from autofast.model.calls import is_method, variable_name
from autofast.model.events import inside
from autofast.model.names import CLOCKS
from autofast.model.script import Script
from autofast.model.several import surely, wordset
from autofast.model.source import ancestors, function_of, nodes_in, parent_of, statement_of, within
from autofast.model.syntax import VARIABLES, is_operation, is_read
from autofast.model.values import Inst, Seq

GATHERS = wordset("update append add")


def takes_time_of_parts(script: Script, loop: Loop) -> bool:
    """Whether a loop takes the time of a part of its turns; not for what is only shown, as how long
    all has taken so far.
    """
    shows = script.analysis(Shows)
    return any(
        inside(o.stack, loop)
        and not shows.is_shower(function_of(site.node))
        and _begins_or_ends_part(script, site.node, loop)
        for site in script.calls(*CLOCKS, "torch.cuda.Event")
        for o in site
    )


def tells_times(script: Script, loop: Loop) -> ast.AST | None:
    """The place that shows, or needs, in every turn of a loop what a clock said: not where times
    are only added up, in a variable or a meter, that is looked at in few turns.
    """
    graph, function = graph_of(script, loop), function_of(loop)
    clocks = {s.node for s in script.calls(*CLOCKS) for o in s if inside(o.stack, loop)}
    here = [n for n in nodes_in(loop, *VARIABLES) if function_of(n) is function]
    told, todo = set[str](), [c for c in clocks if function_of(c) is function]
    while todo:
        node = todo.pop()
        stmt = statement_of(node)
        if frequency(graph, stmt, loop) is Frequency.RARE:
            continue
        match stmt:
            case ast.Assign(targets=[target]) | ast.AugAssign(target=target):
                holder = target
            case ast.Expr(ast.Call(func=ast.Attribute(value=holder, attr=attr))) if (
                attr in GATHERS
                and surely(isinstance(t, (Inst, Seq)) for t in script.values(holder))
            ):
                pass
            case _:
                return stmt
        if not (name := variable_name(holder)):
            return stmt
        if name not in told:
            told.add(name)
            todo += [n for n in here if variable_name(n) == name and is_read(n)]
    return None


def _begins_or_ends_part(script: Script, clock: ast.AST, loop: Loop) -> bool:
    """Whether a clock is asked where a part of a turn begins or ends."""
    if function_of(clock) is not function_of(loop):
        return True
    graph = graph_of(script, loop)
    match parent_of(clock):
        case ast.Assign(targets=[ast.Name() as begin]):
            ends = (u for u in definitions_of(script, loop).uses_of(begin) if within(u, loop))
            return any(
                graph.may_follow(u, clock, loop) and not _is_before_waiting(script, u) for u in ends
            )
        case ast.BinOp(op=ast.Sub(), left=end, right=ast.Name() as begin) if end is clock:
            made = [d.node for d in script.analysis(Flow).reaching(begin)]
            parts = (d for d in made if within(d, loop) and graph.may_follow(clock, d, loop))
            return any(parts) and not _is_before_waiting(script, clock)
    return not script.analysis(Shows).only_shows(statement_of(clock))


def _is_before_waiting(script: Script, use: ast.AST) -> bool:
    """``print("%f %f" % (loss, time.time() - start))``: all is asked first, and read then."""
    stmt = statement_of(use)
    shown = script.analysis(Shows).only_shows(stmt)
    reads = [s for s in script.log.within(stmt) if s.kind == "sync"]
    return shown and not reads and any(_is_filled_in(n) for n in ancestors(use) if within(n, stmt))


def _is_filled_in(node: ast.AST) -> bool:
    return is_operation(node, ast.Mod) or is_method(node, "format")
