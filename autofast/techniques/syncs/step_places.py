"""Which places are come to in few of the steps that read something, in whatever function."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cached_property

from autofast.facts.switches import is_often
from autofast.flow.callgraph import CallGraph
from autofast.flow.frequency import is_mostly_left_out
from autofast.flow.loops import Loop, loop_of, loops_around
from autofast.flow.program import graph_of
from autofast.model.events import loops
from autofast.model.script import Script
from autofast.model.source import Nodes, function_of, statement_of
from autofast.model.syntax import LOOPS
from autofast.techniques.syncs.reads import Read
from autofast.techniques.syncs.steps import InFew, is_step, runs_in_steps


class StepPlaces:
    """Places, held against the loops that come to ``reads``."""

    def __init__(self, script: Script, reads: Iterable[Read]):
        self.script, self.reads = script, list(reads)

    @cached_property
    def loops_around(self) -> list[Loop]:
        """The loops that come to one of the reads, in whatever function."""
        found: dict[int, Loop] = {}
        for read in self.reads:
            for occurrence in self.script.log.ways("sync", read.node):
                frames = (f for f in loops(occurrence.stack) if isinstance(f.node, LOOPS))
                found |= {id(f.node): f.node for f in frames}  # type: ignore[misc]
        return list(found.values())

    @property
    def loops(self) -> list[Loop]:
        """Those over batches."""
        return [loop for loop in self.loops_around if is_step(self.script, loop)]

    @cached_property
    def _often(self) -> Nodes:
        calls = self.script.analysis(CallGraph)
        return {f for loop in self.loops for f in calls.run_in(loop, often=True)}

    def is_seldom(self, node: ast.AST) -> bool:
        """Whether a place is come to in few steps."""
        loop = next((x for x in loops_around(statement_of(node)) if x in self.loops), None)
        if self.script.analysis(InFew).around(node) is not None:
            return True
        if loop is None and function_of(node) not in self._often:
            return True
        left_out = loop is None and is_mostly_left_out(graph_of(self.script, node), node)
        return left_out or not is_often(self.script, node, loop)


def is_in_steps(script: Script, read: Read, each: bool = True) -> bool:
    """Whether a number is read in a loop over batches; with ``each``, in most of its turns."""
    loop, site = loop_of(read.statement), script.log.at("sync", read.node)
    if read.how == "numpy" or site is None:
        return False
    inside = is_step(script, loop) or runs_in_steps(script, site, each=each)
    return inside and (not each or _is_often_in_step(script, read.node, loop))


def _is_often_in_step(script: Script, node: ast.AST, loop: Loop | None) -> bool:
    """Whether a place runs in more than few steps, as do the loops of the step around it."""
    often = is_often(script, node, loop)
    if loop is None or is_step(script, loop) or not often:
        return often
    return _is_often_in_step(script, loop, loop_of(loop))
