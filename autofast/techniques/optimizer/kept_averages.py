"""Averages of parameters that a dict has by their names:

    for name, p in net.named_parameters():
        shadow[name] = decay * shadow[name] + (1 - decay) * p.data

What is computed becomes lists; the loop stays, and fills them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from autofast.edit.edits import After, Before, Edits, Remove, Replace
from autofast.facts.parameter_loops import (
    PLAIN,
    SHARDED,
    ParameterLoop,
    has_parameters,
    named_tensors,
)
from autofast.flow.program import definitions_of
from autofast.model.calls import arguments_of, is_method, is_name, is_path
from autofast.model.script import Script
from autofast.model.source import nodes_in, source_of
from autofast.model.syntax import is_attribute, is_operation
from autofast.model.values import Dict
from autofast.rule import Refusal
from autofast.techniques.optimizer.foreach import Reader, is_floating


@dataclass(frozen=True, eq=False)
class Average:
    """``held[key] = old * held[key] + new * source``; ``gone`` are the statements that do it, and
    ``asked`` whether there may be none (a list must not be empty).
    """

    loop: ParameterLoop
    held: ast.expr
    key: str
    old: ast.expr
    new: ast.expr
    source: ast.expr
    gone: Sequence[ast.stmt]
    asked: bool

    def edits(self, torch: str) -> Edits:
        """The changes, with ``torch`` for the module."""
        node = self.loop.node
        fresh = source_of(node).fresh
        names, sources = fresh("names", "averaged", "shadow_names"), fresh("sources", "latest")
        averages = fresh("averages", "new_averages")
        fill = f"{names}.append({self.key})\n{sources}.append({{source}})"
        holes = {"held": self.held, "old": self.old, "new": self.new}
        lines = [
            f"{averages} = {torch}._foreach_mul([{{held}}[{self.key}] for {self.key} in {names}], {{old}})",
            f"{torch}._foreach_add_({averages}, {torch}._foreach_mul({sources}, {{new}}))",
            f"{{held}}.update(zip({names}, {averages}))",
        ]
        if self.asked:
            lines = [f"if {names}:", *(f"    {line}" for line in lines)]
        first, *others = self.gone
        whole = self.loop.is_of_states and first in node.body
        value = next(iter(self.loop.lists))
        asked = f"if {value}.is_floating_point():\n    " + fill.replace("\n", "\n    ")
        filled = (
            [Before(first, f"{asked}\n    continue", {"source": self.source})]
            if whole
            else [Replace(first, fill, {"source": self.source}), *map(Remove, others)]
        )
        start = Before(node, f"{names}, {sources} = [], []")
        return (start, *filled, After(node, "\n".join(lines), holes))


def kept_averages(script: Script) -> Iterator[Average]:
    """All that the script comes to."""
    if script.calls(*SHARDED):
        return
    for node in script.each(ast.For):
        named = named_tensors(script, node) if script.values(node.iter) else None
        if named is not None:
            key, value, call = named
            loop = ParameterLoop(node, {value: call})
            with suppress(Refusal):
                average = _average(script, loop, key)
                yield replace(average, asked=average.asked or not has_parameters(script, call))


def _average(script: Script, loop: ParameterLoop, key: str) -> Average:
    body, asked = _body(loop, key)
    made: ast.expr | None
    match [s for s in body if not _is_asserted(s)]:
        case [ast.Assign(targets=[ast.Name(id=name)], value=made) as first, last]:
            gone = [first, last]
        case [last]:
            gone, name, made = [last], "", None
        case _:
            raise Refusal
    match last:
        case ast.Assign(
            targets=[ast.Subscript(value=held, slice=ast.Name(id=at))], value=value
        ) if at == key and is_path(held) and script.must_be(held, Dict):
            while is_method(value, "clone", "detach") and not arguments_of(value):
                value = value.func.value
        case _:
            raise Refusal
    if made is not None:
        if not is_name(value, name) or name in definitions_of(script, loop.node).live_after(
            loop.node
        ):
            raise Refusal
        value = made
    if not is_operation(value, ast.Add):
        raise Refusal
    reader = Reader(script, loop)
    (a, x), (b, y) = reader.product(value.left), reader.product(value.right)
    here = ast.unparse(last.targets[0])
    if ast.unparse(y) == here:
        (a, x), (b, y) = (b, y), (a, x)
    if ast.unparse(x) != here or not reader.source(y) or not _is_plain(script, loop, y):
        raise Refusal
    return Average(loop, held, key, a, b, y, gone, asked)


def _body(loop: ParameterLoop, key: str) -> tuple[list[ast.stmt], bool]:
    """What is done to those that are averaged, and whether it is asked which these are."""
    match loop.node.body:
        case [ast.If(test=ast.Attribute(attr="requires_grad", value=of), body=body, orelse=[])] if (
            loop.element(of) is not None
        ):
            return body, True
        case [ast.If(test=test, body=body, orelse=others)] if is_floating(loop, test):
            if not all(_is_kept(loop, key, s) for s in others):
                raise Refusal
            return body, False
    return loop.node.body, False


def _is_kept(loop: ParameterLoop, key: str, stmt: ast.stmt) -> bool:
    """``held[key] = value.clone()`` of what is not averaged, which no other turn looks at."""
    match stmt:
        case ast.Pass() | ast.Continue():
            return True
        case ast.Assign(targets=[ast.Subscript(slice=ast.Name(id=at))], value=value) if at == key:
            while is_method(value, "clone", "detach") and not arguments_of(value):
                value = value.func.value
            return loop.element(value) is not None
    return False


def _is_asserted(stmt: ast.stmt) -> bool:
    """``assert name in self.shadow``"""
    match stmt:
        case ast.Assert(test=ast.Compare(left=ast.Name(), ops=[ast.In()]), msg=None):
            return True
    return False


def _is_plain(script: Script, loop: ParameterLoop, source: ast.expr) -> bool:
    """Whether nothing is recorded for a backward."""
    modes = {o.grad for o in script.log.ways("iterate", loop.node)}
    plain = any(is_attribute(n, *PLAIN) for n in nodes_in(source, ast.Attribute))
    return loop.is_of_states or plain or modes <= {"off", "inference"}
