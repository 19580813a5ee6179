"""Layers that each turn of a loop applies to what is only collected: ``ys.append(self.out(h))``.

What the layer works on is collected in their place, and the layer applied once, to all turns.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from autofast.edit.edits import Edits, Holes, Remove, Rewrite
from autofast.facts.dimensions import least_dimensions
from autofast.facts.rowwise import Rowwise
from autofast.flow.changes import may_change
from autofast.flow.memory import Memory
from autofast.flow.program import Flow
from autofast.model.calls import is_method, keyword_of, literal_of, variable_name
from autofast.model.script import Script
from autofast.model.several import any_of
from autofast.model.source import (
    ancestors,
    block_of,
    nodes_in,
    statement_of,
    walk,
    within,
)
from autofast.model.syntax import LOOPS
from autofast.rule import Refusal
from autofast.techniques.loops.rows import appended, applied, bare, is_fixed, put_together

Step = tuple[ast.expr, ast.expr]  # an expression, and what of it a layer or operation works on


def collected(script: Script, loop: ast.For) -> Edits:
    """What applies such layers behind a loop."""
    edits: Edits = ()
    for statement in nodes_in(loop, ast.Expr):
        found = appended(statement)
        if found and next(n for n in ancestors(statement) if isinstance(n, LOOPS)) is loop:
            edits += _Layers(script, loop, statement).edits(*found)
    return edits


@dataclass
class _Layers:
    script: Script
    loop: ast.For
    statement: ast.stmt  # that collects
    gone: list[ast.stmt] = field(default_factory=list)
    holes: Holes = field(default_factory=dict)
    layers: int = 0
    squeezed: bool = False

    def edits(self, held: ast.Name, value: ast.expr) -> Edits:
        """Those of one list; none where no layer is applied to what it collects."""
        try:
            call, _, place = put_together(self.script, self.loop, held)
        except Refusal:
            return ()
        axis = literal_of(value.args[0]) if is_method(value, "unsqueeze") and value.args else None
        first = value.func.value if is_method(value) and axis is not None else value
        steps = self.steps(first)
        if not self.layers:
            return ()
        leaf = steps[-1][1]
        if not self.keeps_features(call, leaf, axis) or self.may_differ(leaf, place):
            return ()
        code = "{}"
        for outer, inner in reversed(steps):
            code = applied(outer, inner, code, self.hole)
        return (
            Rewrite(first, "{leaf}", {"leaf": leaf}),
            *map(Remove, self.gone),
            Rewrite(call, bare(code), self.holes),
        )

    def steps(self, expr: ast.expr) -> list[Step]:
        """The way from a value back to what the first of the layers works on."""
        rowwise, flow = self.script.analysis(Rowwise), self.script.analysis(Flow)
        steps: list[Step] = []
        last = False
        while True:
            value = flow.value_of_its_own(expr) if variable_name(expr) else expr  # type: ignore[arg-type]
            if value is None or not within(value, self.loop):
                return steps
            step = rowwise.step(value)
            if is_method(value, "squeeze") and [ast.unparse(a) for a in value.args] == ["-1"]:
                step, self.squeezed = None if last else (value.func.value, True), not last
            elif step is not None and is_fixed(self.script, self.loop, value, step[0]):
                self.layers += step[1]
            if step is None or not is_fixed(self.script, self.loop, value, step[0]):
                return steps
            if value is not expr:
                self.gone.append(statement_of(value))
            steps.append((value, step[0]))
            expr, last = step[0], last or step[1]

    def keeps_features(self, call: ast.Call, leaf: ast.expr, axis: object) -> bool:
        """Whether the last dimension stays the last when all turns are put together."""
        script = self.script
        along = keyword_of(call, "dim") or next(iter(call.args[1:]), None)
        dim = 0 if along is None else script.constant(along)
        stacks = script.is_call(call, "torch.stack")
        if not isinstance(dim, int) or (axis is not None and (stacks or axis != dim)):
            return False
        if dim < 0:
            return dim < -1 and not self.squeezed
        needed = dim + 2 - (stacks or axis is not None)
        return needed == 1 or least_dimensions(script, leaf) >= needed

    def may_differ(self, leaf: ast.expr, place: ast.stmt) -> bool:
        """Whether what is collected may be another one when it is put together, or where it is
        collected.
        """
        memory, block = self.script.analysis(Memory), block_of(self.statement)
        around = [n for n in ancestors(self.statement) if within(n, self.loop)]
        if any_of(around, ast.With, ast.Try, ast.AsyncWith) or not all(
            s in block for s in self.gone
        ):
            return True
        first = min((block.index(s) for s in self.gone), default=block.index(self.statement))
        between = [s for s in block[first : block.index(self.statement)] if s not in self.gone]
        behind = block_of(self.loop)
        code = [self.loop, *behind[behind.index(self.loop) + 1 : behind.index(place)]]
        return may_change(self.script, between, leaf) is not None or any(
            memory.may_share(e, leaf) for s in code for n in walk(s) for e in memory.written(n)
        )

    def hole(self, expr: ast.expr) -> str:
        name = f"e{len(self.holes)}"
        self.holes[name] = expr
        return f"{{{name}}}"
