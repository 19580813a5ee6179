"""Layers that each turn of a loop applies to its own part of a tensor: ``self.embed(ids[:, t])``.

They need nothing of the turn before, and are applied to the whole tensor ahead of the loop.
"""

from __future__ import annotations

import ast
from collections.abc import Collection
from dataclasses import dataclass, field

from autofast.edit.edits import Before, Edits, Remove, Rewrite
from autofast.facts.batch.samples import is_all, is_set_later
from autofast.facts.dimensions import least_dimensions
from autofast.facts.rowwise import Rowwise, Step
from autofast.flow.defuse import taken_by
from autofast.flow.memory import Memory
from autofast.flow.program import Flow, definitions_at
from autofast.model.calls import (
    is_path,
    is_same_code,
    items_of,
    literal_of,
    only_target,
    variable_name,
)
from autofast.model.script import Script
from autofast.model.several import any_of, surely
from autofast.model.source import children, nodes_in, source_of, statement_of, walk, within
from autofast.model.syntax import is_operation
from autofast.model.values import Ext, Tensor, is_named
from autofast.techniques.loops.rows import applied, bare, is_fixed

APART = (ast.Lambda, ast.IfExp, ast.BoolOp, ast.ListComp, ast.GeneratorExp, ast.DictComp)
ALWAYS = (ast.Assign, ast.Expr, ast.AugAssign)
EMBEDDING = "torch.nn.Embedding"


def ahead(script: Script, loop: ast.For, taken: Collection[ast.AST]) -> Edits:
    """What applies such layers ahead of a loop, but for what stands in the nodes that are taken."""
    if not script.is_call(loop.iter, "builtins.range"):
        return ()
    found, edits = _Ahead(script, loop), Edits()
    for statement in loop.body:
        if statement not in taken and any_of([statement], *ALWAYS):
            edits += found.below(statement, taken)
    return edits


@dataclass
class _Ahead:
    script: Script
    loop: ast.For
    names: list[str] = field(default_factory=list)

    def below(self, node: ast.AST, taken: Collection[ast.AST]) -> Edits:
        """The edits of the outermost expressions inside of a node."""
        edits: Edits = ()
        for inner in children(node):
            if inner not in taken and not any_of([inner], *APART):
                known = self.moved(inner) if any_of([inner], ast.expr) else ()  # type: ignore[arg-type]
                edits += known or self.below(inner, taken)
        return edits

    def moved(self, first: ast.expr) -> Edits:
        """What applies the layers of an expression ahead; nothing where they do not lead to a part
        that belongs to the turn.
        """
        script, flow = self.script, self.script.analysis(Flow)
        expr, steps, holes, gone = (
            first,
            list[tuple[ast.expr, ast.expr]](),
            dict[str, ast.expr](),
            list[ast.stmt](),
        )
        layers, last, looked_up = 0, False, False
        while (step := self.step(expr)) is not None:
            if not is_fixed(script, self.loop, expr, step[0]):
                return ()
            steps.append((expr, step[0]))
            looked_up = looked_up or self.looks_up(expr)
            layers, last = layers + step[1], (last or step[1]) and not looked_up
            expr = step[0]
        made = flow.value(expr) if variable_name(expr) else None
        if made is not None and within(made, self.loop):
            if flow.value_of_its_own(expr) is not None:  # type: ignore[arg-type]
                gone = [statement_of(made)]
            expr = made
        axis = self.axis(expr)
        if axis is None or not layers:
            return ()
        whole: ast.expr = expr.value  # type: ignore[attr-defined]
        if not self.stays(whole) or (last and least_dimensions(script, whole) < axis + 2):
            return ()
        if looked_up and not self.is_all(whole, axis):
            return ()  # what is never looked up may be no number of a row

        def hole(part: ast.expr) -> str:
            holes[name := f"e{len(holes)}"] = part
            return f"{{{name}}}"

        code = hole(whole)
        for outer, inner in reversed(steps):
            code = applied(outer, inner, code, hole)
        return (
            Before(self.loop, f"{self.name(first)} = {bare(code)}", holes),
            Rewrite(first, f"{self.names[-1]}[{':, ' * axis}{variable_name(self.loop.target)}]"),
            *map(Remove, gone),
        )

    def name(self, first: ast.expr) -> str:
        """For what an expression is in all turns."""
        statement = statement_of(first)
        whole = getattr(statement, "value", None) is first
        stem = variable_name(only_target(statement)) if whole else ""
        wanted = [f"all_{stem}"] * bool(stem) + ["inputs", *(f"inputs_{n}" for n in range(2, 9))]
        self.names.append(source_of(first).fresh(*(w for w in wanted if w not in self.names)))
        return self.names[-1]

    def step(self, expr: ast.expr) -> Step | None:
        """What a layer works on; whether on features, or it gives each number some."""
        if self.looks_up(expr):
            return expr.args[0], True  # type: ignore[attr-defined]
        return self.script.analysis(Rowwise).step(expr)

    def looks_up(self, expr: ast.expr) -> bool:
        """``self.embed(ids)``, of a table that stays as it is."""
        layers = self.script.called(expr) if any_of([expr], ast.Call) else ()
        return len(getattr(expr, "args", ())) == 1 and surely(
            is_named(t, Ext, EMBEDDING) and t.args.known and not t.args.get(3, "max_norm")
            for t in layers
        )

    def axis(self, part: ast.expr) -> int | None:
        """1 for ``x[:, t]``, of the variable of the loop."""
        if not any_of([part], ast.Subscript):
            return None
        *before, turn = items_of(part.slice)  # type: ignore[attr-defined]
        made = self.script.analysis(Flow).definition(turn)
        counted = made is not None and made.node is self.loop.target
        return len(before) if counted and all(map(is_all, before)) else None

    def stays(self, whole: ast.expr) -> bool:
        """Whether it is the same tensor in all turns, which nothing writes to."""
        memory = self.script.analysis(Memory)
        if not self.script.must_be(whole, Tensor) or not is_path(whole):
            return False
        made = (d for n in nodes_in(whole, ast.Name) for d in definitions_at(self.script, n))
        attributes = (is_set_later(self.script, a.attr) for a in nodes_in(whole, ast.Attribute))
        written = (e for n in walk(self.loop) for e in memory.written(n))
        return not (
            any(within(d.node, self.loop) for d in made)
            or any(attributes)
            or any(memory.may_share(e, whole) for e in written)
        )

    def is_all(self, whole: ast.expr, axis: int) -> bool:
        """Whether the loop turns for all parts of a tensor, or all but the last."""
        flow, over = self.script.analysis(Flow), self.loop.iter
        count: ast.expr = over.args[:2][-1]  # type: ignore[attr-defined]
        count = flow.value(count) or count
        if (
            any_of([count], ast.BinOp)
            and is_operation(count, ast.Sub)
            and literal_of(count.right) == 1
        ):
            count = count.left
        count = flow.value(count) or count
        made = flow.definition(count)
        taker, place = taken_by(made.node) if made is not None else (None, [])
        sizes = getattr(taker, "value", None) if place == [axis] else None
        match sizes or count:
            case (
                ast.Attribute(value=of, attr="shape")
                | ast.Call(func=ast.Attribute(value=of, attr="size"), args=[])
            ) if sizes is not None:
                return flow.is_same(of, whole) or is_same_code(of, whole)
            case (
                ast.Subscript(value=ast.Attribute(value=of, attr="shape"), slice=number)
                | ast.Call(func=ast.Attribute(value=of, attr="size"), args=[number])
            ):
                same = flow.is_same(of, whole) or is_same_code(of, whole)
                return same and literal_of(number) == axis
            case ast.Call(args=[of]) if self.script.is_call(count, "builtins.len"):
                return axis == 0 and is_same_code(of, whole)
        return False
