"""The code that keeps tensors, and numbers that belong to them, in a list, and that runs a
statement on all of them later.

They are read by one copy where they can be stacked: one tensor each time, of one kind, on one
device, without dimensions (or with one of length 1), and one at least. Else they are read one by
one, which is right for an empty list, too.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from autofast.edit.edits import Edit, literal
from autofast.flow.filled_lists import is_only_filled
from autofast.flow.loops import Loop
from autofast.model.script import Script
from autofast.model.source import within
from autofast.model.values import Seq, Tensor
from autofast.techniques.syncs.common_reads import several_gpus
from autofast.techniques.syncs.floats import kind_of
from autofast.techniques.syncs.iterations import begins_whole
from autofast.techniques.syncs.reads import Read
from autofast.techniques.syncs.scalars import is_scalar
from autofast.techniques.syncs.sinks import Sink
from autofast.techniques.syncs.swapping import swapped
from autofast.write.spelling import is_taken, torch_in


@dataclass(eq=False)
class Kept:
    """What is kept for the sinks: ``tensors``, then ``weights`` (numbers), each called as in
    ``values`` where it is used again.

    Attributes:
        name: the list. numbers: the lists of the weights, where the tensors are ``split`` from them
            to be stacked.
        rounds: sums of floats may be made by ``sum()``, which rounds less than ``+=`` from Python
            3.12 on.
    """

    script: Script
    sinks: list[Sink]
    tensors: Sequence[ast.expr]
    weights: Sequence[ast.expr]
    values: list[str]
    name: str = ""
    numbers: list[str] = field(default_factory=list)
    split: bool = False
    rounds: bool = False

    def may_be_stacked(self) -> bool:
        """Whether all elements of a list that is not empty can be read at once, and are then the
        numbers they were.
        """
        core = self.tensors[0]
        devices = {t.device for t in self.script.values(core) if isinstance(t, Tensor)}
        return (
            len(self.tensors) == 1
            and all(r.how in ("item", "float", "int") for s in self.sinks for r in s.reads)
            and kind_of(self.script, core) != ""
            and is_scalar(self.script, core)
            and devices == {"dev"}
            and not several_gpus(self.script)
            and not (self.weights and is_taken(self.sinks[0].source, "zip"))
        )

    # ---------------------------------------------------------------------------------- in the loop
    def empty(self) -> str:
        names = [self.name, *self.numbers]
        return f"{', '.join(names)} = {', '.join('[]' for _ in names)}"

    def append(self, items: Sequence[str]) -> str:
        if self.split:
            lists = zip([self.name, *self.numbers], items, strict=True)
            return "\n".join(f"{name}.append({item})" for name, item in lists)
        return (
            f"{self.name}.append({items[0] if len(items) == 1 else '(' + ', '.join(items) + ')'})"
        )

    def cleared(self) -> str:
        return "\n".join(f"{name}.clear()" for name in (self.name, *self.numbers))

    # ----------------------------------------------------------------------------- where it is read
    @property
    def imports(self) -> tuple[Edit, ...]:
        return torch_in(self.sinks[0].source)[1] if self.split else ()

    def in_place_of(self, sink: Sink, loop: Loop, is_filled: bool) -> tuple[ast.expr, str] | None:
        """What a loop alone fills keeps the tensors itself: what is appended, and the template of
        the statement that makes them numbers.
        """
        match sink.statement:
            case ast.Expr(
                value=ast.Call(
                    func=ast.Attribute(value=ast.Name() as held, attr="append"), args=[value]
                )
            ) if [r.node for r in sink.reads] == [value] and isinstance(loop, ast.For):
                if sink.reads[0].how != "item" or not is_only_filled(held, loop):
                    return None
                self.name, value_name = held.id, self.values[0]
                each = f"[{value_name}.item() for {value_name} in {held.id}]"
                numbers = self._all() if is_filled and self.may_be_stacked() else each
                return value, literal(f"{held.id} = {numbers}")
        return None

    def replay(self) -> str:
        """The template of the code that does what the sinks did, for all that was kept."""
        return literal(self._whole() or self._each())

    def _all(self) -> str:
        """The numbers, read at once."""
        found = self.script.values(self.tensors[0])
        flat = all(isinstance(t, Tensor) and t.rank == "0d" for t in found)
        torch = torch_in(self.sinks[0].source)[0]
        return f"{torch}.{'stack' if flat else 'hstack'}({self.name}).tolist()"

    def _each(self) -> str:
        target, over = ", ".join(self.values), self.name
        if self.split:
            over = self._all()
            if self.numbers:
                over = f"zip({', '.join((over, *self.numbers))})"
        body = "\n".join("    " + self._again(sink) for sink in self.sinks)
        return f"for {target} in {over}:\n{body}"

    def _whole(self) -> str:
        """One statement for all: the sum of counts, ``extend`` for ``append``."""
        sink = self.sinks[0]
        if len(self.sinks) > 1 or self.weights or [r.how for r in sink.reads] != ["item"]:
            return ""
        match sink.statement:
            case ast.AugAssign(target=ast.Name() as target, op=ast.Add(), value=value) if (
                value is sink.reads[0].node
            ):
                numbers = self._count()
                if numbers and sink.kind == "number" and begins_whole(self.script, target):
                    return f"{target.id} += {numbers}"
                return f"{target.id} += {self._total()}" if self.is_total else ""
            case ast.Expr(
                value=ast.Call(
                    func=ast.Attribute(value=holder, attr="append"), args=[value], keywords=[]
                )
            ) if value is sink.reads[0].node:
                things = self.script.values(holder)
                if not all(isinstance(t, Seq) and t.kind == "list" for t in things):
                    return ""
                name = self.values[0]
                numbers = self._all() if self.split else f"{name}.item() for {name} in {self.name}"
                return f"{sink.source.segment(holder)}.extend({numbers})"
        return ""

    @property
    def is_total(self) -> bool:
        """Whether the sum of the list is made by ``sum()``."""
        sink = self.sinks[0]
        match sink.statement:
            case ast.AugAssign(op=ast.Add(), value=value) if value is sink.reads[0].node:
                return (
                    self.rounds
                    and len(self.sinks) == 1
                    and not self.weights
                    and sink.kind == "number"
                    and [r.how for r in sink.reads] == ["item"]
                    and kind_of(self.script, self.tensors[0]) == "float"
                    and not is_taken(sink.source, "sum")
                )
        return False

    def _total(self) -> str:
        """The sum of the list in one line, where these are floats."""
        name = self.values[0]
        return f"sum({self._all() if self.split else f'{name}.item() for {name} in {self.name}'})"

    def _count(self) -> str:
        """The sum of the list, where these are whole numbers: exact, in any order."""
        core = self.tensors[0]
        if kind_of(self.script, core) != "int" or is_taken(self.sinks[0].source, "sum", "int"):
            return ""
        if self.split:
            return f"sum({self._all()})"
        # a sum of integers is of 64 bits, and does not overflow; nothing is 0
        match core:
            case ast.Call(func=ast.Attribute(attr="sum"), args=[], keywords=[]):
                return f"int(sum({self.name}))" if self.may_be_stacked() else ""
        return ""

    def _again(self, sink: Sink) -> str:
        """The statement as it runs later: each read of a kept tensor, each number that was kept
        with it.
        """
        slots = {
            ast.dump(p): n for p, n in zip((*self.tensors, *self.weights), self.values, strict=True)
        }
        swaps: dict[int, str] = {id(r.node): self._number(r, slots[r.key]) for r in sink.reads}
        numbers = {
            ast.dump(p): slots[ast.dump(p)]
            for p in sink.payload
            if ast.dump(p) not in {r.key for r in sink.reads}
        }
        for node in ast.walk(sink.statement):
            if (
                isinstance(node, ast.expr)
                and ast.dump(node) in numbers
                and not any(within(node, r.node) for r in sink.reads)
            ):
                swaps[id(node)] = numbers[ast.dump(node)]
        return swapped(sink.statement, swaps)

    def _number(self, read: Read, name: str) -> str:
        if not self.split:
            return read.of(name)
        kind = kind_of(self.script, read.core)
        return name if read.how in ("item", kind) else f"{read.how}({name})"
