"""Stores that steps put numbers into, and that the host looks at in few of them: dicts, lists and
attributes, in whatever function the numbers are put there or looked at.

``self.total["loss"] += loss.item()`` makes the host wait in every step. As ``self.total["loss"] +=
loss.detach().double()`` it does not, and whoever looks at the store makes numbers of its elements
first:

    for key, value in self.total.items():
        self.total[key] = float(value)

What is in a store is at all times what the script would have there, as a number or as a tensor
without dimensions: nothing is left to be done when a loop ends, however it ends.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property

from autofast.edit.edits import Before, Edit, Rewrite, Wrap
from autofast.facts.copies import several_gpus
from autofast.flow.callgraph import CallGraph
from autofast.flow.frequency import rare_arm
from autofast.flow.loops import loop_of
from autofast.flow.positions import index_in_block, position, statements_beside
from autofast.flow.program import Flow
from autofast.flow.scopes import Expressions, stored_in
from autofast.model.calls import is_path, literal_of, root_of, variable_name
from autofast.model.script import Script
from autofast.model.several import any_in
from autofast.model.source import (
    any_within,
    at,
    first_line,
    function_of,
    is_elif,
    parent_of,
    source_of,
    statement_of,
    walk,
    within_any,
)
from autofast.model.syntax import (
    ASSIGNMENTS,
    DEFINITIONS,
    PAUSES,
    is_attribute,
    is_operation,
    is_read,
)
from autofast.model.values import (
    COLLECTIONS,
    Dict,
    Inst,
    Seq,
    Tensor,
    Thing,
    any_of,
    certainly,
    names_of,
)
from autofast.rule import Refusal
from autofast.techniques.syncs.kept import kept_template, without_graph
from autofast.techniques.syncs.reads import Read, by_statement
from autofast.techniques.syncs.scalar_tensors import is_scalar, kind_of
from autofast.techniques.syncs.sinks import does_more, is_number
from autofast.techniques.syncs.step_places import StepPlaces, is_in_steps
from autofast.techniques.syncs.steps import (
    InFew,
    catching_statements,
    is_step,
)
from autofast.techniques.syncs.store_uses import Place, Use, Uses, Write, write_of
from autofast.techniques.syncs.summable import EXACT, is_long, parts_of
from autofast.write.spelling import has_float64, is_taken, torch_in

Block = list[ast.stmt]
Look = tuple[ast.stmt, list[ast.expr]]  # a statement, and the places in it that look at the store


@dataclass(frozen=True)
class Changed:
    """The edits that let a store hold tensors (or ``why`` there are none), and the reads that they
    put off; ``rounds`` where a quotient differs in its last bit.
    """

    reads: list[Read]
    edits: list[Edit]
    rounds: bool = False
    why: str = ""


def changed_stores(script: Script, every: list[Read], lists: bool = False) -> Iterator[Changed]:
    """What becomes of the stores that steps put numbers into; with ``lists``, of those that are
    appended to, else of all others.
    """
    found = list(_together(script, every))
    mine = {r.node for _, _, writes in found for w in writes for r in w.reads}
    others = {(function_of(r.node), r.key) for r in every if r.node not in mine}
    for objects, attr, writes in found:
        again = any((function_of(r.node), r.key) in others for w in writes for r in w.reads)
        if not again and any(w.how == "append" for w in writes) is lists:
            try:
                yield Store(script, objects, attr, writes).changed()
            except Refusal as why:
                yield Changed([r for w in writes for r in w.reads], [], False, str(why))


def _together(
    script: Script, every: list[Read]
) -> Iterator[tuple[frozenset[Thing], str, list[Write]]]:
    """The places that put numbers into one store, some of them in every step."""
    groups: list[tuple[frozenset[Thing], str, list[Write]]] = []
    for statement, mine in by_statement([r for r in every if is_in_steps(script, r, False)]):
        write = write_of(statement, mine)
        objects = script.values(write.holder) if write is not None else frozenset()
        if write is None or not objects or does_more(script, statement):
            continue
        kinds = (Inst,) if write.attr else (Dict,) if write.how == "set" else COLLECTIONS
        if not certainly(objects, *kinds):
            continue
        same = [g for g in groups if g[0] & objects and g[1] == write.attr]
        groups = [g for g in groups if g not in same]
        whole = objects.union(*(g[0] for g in same))
        groups.append((whole, write.attr, [*(w for g in same for w in g[2]), write]))
    yield from (g for g in groups if any(is_in_steps(script, r) for w in g[2] for r in w.reads))


class Store:
    """The things that are one store, or the objects whose attribute ``attr`` it is."""

    def __init__(self, script: Script, objects: frozenset[Thing], attr: str, writes: list[Write]):
        self.script, self.objects, self.attr, self.writes = script, objects, attr, writes
        self.calls, self.flow = script.analysis(CallGraph), script.analysis(Flow)
        self.writers = set(self.calls.running(function_of(w.statement) for w in writes))
        self.places = StepPlaces(script, (r for w in writes for r in w.reads))
        self.rounds = False

    def changed(self) -> Changed:
        for write in self.writes:
            self._check(write)
        uses = Uses(self.script, self.objects, self.attr, self.writes)
        self.begins = {t for thing in self.objects for t in self._begins(thing)}
        self.begins |= {self._literal(value) for value in uses.others}
        self._check_sets(uses.found)
        self.kind = self._kind_of_all(any(use is Use.CHANGES for _, use in uses.found))
        edits: list[Edit] = [
            Rewrite(r.node, self._kept(w, r), {"core": r.core})
            for w in self.writes
            for r in w.reads
        ]
        looks = list(self._looks(uses.found))
        if not looks or not self._is_bounded(looks):
            raise Refusal("one tensor would be kept for each step")
        edits += [e for look in looks for e in self._numbers(look)]
        return Changed([r for w in self.writes for r in w.reads], edits, self.rounds)

    def _check(self, write: Write) -> None:
        """Whether the store may hold what is read as tensors."""
        for attempt in catching_statements(self.script, write.statement):
            raise Refusal(f"it is tried ({at(attempt)}): an error would show later")
        if write.how != "add":
            return
        kept_there = {r.node for r in write.reads} | set(write.taken_up)
        adds = isinstance(write.statement, ast.AugAssign)
        if adds is bool(write.taken_up):
            raise Refusal("")
        for part in parts_of(write.value, kept_there, (*EXACT, ast.Div)):
            inside = [n for n in ast.walk(part) if n in kept_there]
            if part not in kept_there and (inside or not is_number(self.script, part)):
                raise Refusal(f"`{first_line(part)}` may be more than a number")
        divided = [n for n in ast.walk(write.value) if is_operation(n, ast.Div)]
        if any(m in kept_there for d in divided for m in ast.walk(d.right)):
            raise Refusal("it is divided by a number of the device")
        self.rounds |= any(m in kept_there for d in divided for m in ast.walk(d.left))
        cores = [t for r in write.reads for t in r.tensors]
        devices = {t.device for c in cores for t in self.script.values(c) if isinstance(t, Tensor)}
        if devices != {"dev"} or several_gpus(self.script) or not has_float64(self.script):
            raise Refusal("the device may not add in float64")
        others = [w for w in self.writes if w is not write and self._may_share(w, write)]
        if others and not all(is_scalar(self.script, c) for c in cores):
            raise Refusal("it may have a dimension")

    def _may_share(self, one: Write, other: Write) -> bool:
        """Whether two places may put numbers under one key."""
        keys = [literal_of(getattr(w.place, "slice", None)) for w in (one, other)]
        return self.attr != "" or None in keys or keys[0] == keys[1]

    def _begins(self, thing: Thing) -> Iterator[str]:
        """The types of the numbers that a store begins with, by how it is made; raises
        :class:`Refusal` where that is not known.
        """
        made = getattr(thing, "node", None)
        if self.attr:
            return
        elements: list[ast.expr] = []
        keys: Expressions = []
        match made:
            case ast.Dict(keys=keys, values=values) if None not in keys:
                mine = {r.node for w in self.writes for r in w.reads}
                elements = [v for v in values if v not in mine]
                added = [literal_of(getattr(w.place, "slice", None)) for w in self.writes]
                if any(literal_of(k) not in added for k in keys):
                    yield from (k for v in elements if (k := self._literal(v)) != "zero")
                    yield "other"
                    return
            case ast.List(elts=elements):
                pass
            case ast.BinOp(left=ast.List(elts=elements), op=ast.Mult()):
                pass
            case ast.ListComp(elt=element) | ast.DictComp(value=element):
                elements = [element]
            case ast.Call(args=[], keywords=[]):
                pass
            case ast.Call(args=[factory], keywords=[]) if names := names_of(
                self.script.values(factory)
            ):
                if not names <= {"builtins.float", "builtins.int"}:
                    raise Refusal("")
                yield from ("float" if n.endswith("float") else "zero" for n in names)
            case _:
                raise Refusal("how it is made is not known")
        yield from map(self._literal, elements)

    def _literal(self, element: ast.expr) -> str:
        """The type of a number that is put there: ``float``, ``zero`` (which may become one), or
        another.
        """
        number = literal_of(element)
        if type(number) is float:
            return "float"
        if type(number) is int and number == 0:
            return "zero"
        if isinstance(number, (int, str)) or number is None or is_number(self.script, element):
            return "other"
        raise Refusal(f"`{first_line(element)}` may be more than a number")

    def _kind(self, write: Write, read: Read) -> str:
        """The type of the numbers that come of a read."""
        kinds = {kind_of(self.script, tensor) for tensor in read.tensors}
        kind = kinds.pop() if len(kinds) == 1 else ""
        kind = read.how if read.how in ("float", "int") else kind
        return "float" if write.how == "add" and self.begins == {"float"} else kind

    @cached_property
    def _kinds(self) -> set[str]:
        return {self._kind(w, r) for w in self.writes for r in w.reads}

    def _kind_of_all(self, changes: bool) -> str:
        """The type of all numbers in the store; empty where there may be several."""
        if changes and (self.begins != {"float"} or any(w.how != "add" for w in self.writes)):
            return ""
        if self._kinds == {"float"} and self.begins <= {"float", "zero"}:
            return "float"
        return "int" if self._kinds == {"int"} and self.begins <= {"zero"} else ""

    def _kept(self, write: Write, read: Read) -> str:
        if write.how != "add":
            mixed = any(w.how == "add" for w in self.writes)
            tensor = kept_template(self.script, read.core)
            return f"{tensor}.clone()" if mixed and not tensor.endswith(".clone()") else tensor
        tensor = without_graph(self.script, read.core)
        if self._kinds == {"float"}:
            return f"{tensor}.double()"
        counts = all(is_long(self.script, r.core) for w in self.writes for r in w.reads)
        if self._kinds != {"int"} or self.begins - {"zero"} or not counts:
            raise Refusal("what it comes to may be a count or not")
        if write.value is not read.node:
            raise Refusal("a count is computed with")
        return tensor

    def _check_sets(self, uses: list[tuple[ast.expr, Use]]) -> None:
        """What else is put there must go with tensors that are added to in place."""
        adds = [w for w in self.writes if w.how == "add"]
        changes = [n for n, use in uses if use is Use.CHANGES and not self.places.is_seldom(n)]
        for node in changes:
            statement = statement_of(node)
            match statement:
                case ast.AugAssign(op=ast.Add() | ast.Sub(), value=value) if len(adds) == len(
                    self.writes
                ) and is_number(self.script, value):
                    continue
            raise Refusal("computes with it in every step", node)
        modes = {
            o.grad
            for w in self.writes
            for r in w.reads
            for o in self.script.log.ways("sync", r.node)
        }
        if adds and len(modes) > 1:
            raise Refusal("it is added to with gradients on and off")

    def _puts(self, node: ast.AST) -> bool:
        """Whether something may be put into the store while a node runs."""
        own = {w.statement for w in self.writes}
        return any(
            n in own or isinstance(n, PAUSES) or any_in(self.calls.entered(n), self.writers)
            for n in walk(node)
        )

    def _looks(self, uses: list[tuple[ast.expr, Use]]) -> Iterator[Look]:
        """The statements before which the numbers are read."""
        places: dict[tuple[int, str], list[Look]] = {}
        looks = {n: n for n, use in uses if use in (Use.LOOKS, Use.CHANGES)}
        looks |= {n: n for n, use in uses if use is Use.GIVES and self.places.is_seldom(n)}
        for node in sorted(looks.values(), key=position):
            if not self.places.is_seldom(node):
                if self._is_other(node) or any(n is node and u is Use.CHANGES for n, u in uses):
                    continue
                raise Refusal(f"`{first_line(node)}` is used in every step ({at(node)})")
            if self._is_covered(node, looks):
                continue
            others = self.script.values(self._base(node)) - self.objects
            if not is_path(node) or any(not isinstance(t, Dict) or t.any() for t in others):
                raise Refusal(f"`{first_line(node)}` may be something else ({at(node)})")
            top = self._top(node)
            here = places.setdefault((id(statements_beside(top)), ast.dump(node)), [])
            above = statements_beside(top)
            last = here[-1][0] if here else None
            name = variable_name(root_of(node, ast.Attribute))
            if last is not None and not any(
                self._puts(s) or name in stored_in(s)
                for s in above[index_in_block(above, last) : index_in_block(above, top)]
            ):
                here[-1][1].append(node)
            else:
                here.append((top, [node]))
        yield from (self._lower(look) for found in places.values() for look in found)

    def _is_bounded(self, looks: list[Look]) -> bool:
        """Whether what grows by each step is made numbers before all is done."""
        fixed = [literal_of(getattr(w.place, "slice", None)) is not None for w in self.writes]
        if self.attr or all(fixed) or any(w.how == "add" for w in self.writes):
            return True
        outer = [n for n in self.places.loops_around if not is_step(self.script, n)]
        inside = {f for loop in outer for f in self.calls.run_in(loop)}
        tops = [top for top, _ in looks]
        often = any(function_of(t) in inside or within_any(t, outer) for t in tops)
        return often or not (outer or any_of(self.places.loops, ast.While))

    def _is_other(self, node: ast.expr) -> bool:
        """``total["n"]``, where steps put tensors under other keys."""
        keys = [literal_of(getattr(w.place, "slice", None)) for w in self.writes]
        key = literal_of(getattr(parent_of(node), "slice", None))
        return not self.attr and None not in (key, *keys) and key not in keys

    def _base(self, node: ast.expr) -> ast.expr:
        return node.value if self.attr and is_attribute(node) else node

    def _is_covered(self, node: ast.expr, looks: Collection[ast.AST]) -> bool:
        """Whether a parameter is given the store only where its numbers have just been read."""
        function = function_of(node)
        if not isinstance(node, ast.Name) or not self.flow.is_given(node):
            return False
        if not isinstance(function, ast.FunctionDef) or self.calls.complete(function):
            return False
        given = [e for _, e in self.calls.arguments(function, node.id)]
        mine = [e for e in given if e is not None and self.script.values(e) & self.objects]
        return bool(mine) and None not in given and all(e in looks for e in mine)

    def _top(self, node: ast.expr) -> ast.stmt:
        """The outermost statement around a look in which nothing is put into the store, and that
        runs no more often.
        """
        here = statement_of(node)
        name = variable_name(root_of(node, ast.Attribute))
        if self._puts(here) or isinstance(function_of(node), ast.Lambda):
            raise Refusal("looks at it and adds to it", here)
        if name in stored_in(here) and not isinstance(here, ASSIGNMENTS):
            raise Refusal(f"gives `{name}` another value", here)
        while isinstance(outer := parent_of(here), ast.stmt) and not isinstance(outer, DEFINITIONS):
            gate = isinstance(outer, ast.If) and rare_arm(outer) is (here in outer.body)
            gate = gate or here in self.script.analysis(InFew).gates
            if not is_elif(here) and (gate or self._puts(outer) or name in stored_in(outer)):
                break
            if is_elif(here) and self._puts(outer):
                raise Refusal("looks at it in a condition", here)
            here = outer
        return here

    def _lower(self, look: Look) -> Look:
        """Further in, where all places stand in one arm of a condition."""
        top, nodes = look
        while isinstance(top, (ast.If, ast.With)):
            arms = [top.body, top.orelse] if isinstance(top, ast.If) else [top.body]
            arm = next((a for a in arms if all(within_any(n, a) for n in nodes)), None)
            if not arm or is_elif(arm[0]):
                break
            top = next(s for s in arm if any_within(nodes, s))
        return top, nodes

    def _numbers(self, look: Look) -> list[Edit]:
        top, nodes = look
        source = source_of(top)
        kind = self.kind if not is_taken(source, self.kind) else ""
        if (single := self._single(top, nodes, kind)) is not None:
            return [Wrap(n, f"{kind}({{}})") for n in single]
        name = source.segment(nodes[0])
        if is_elif(top):
            raise Refusal("looks at it in a condition", top)
        value = source.fresh("value", "number", "reading")
        torch, imports = torch_in(source) if not kind else ("", ())

        def number(of: str) -> str:
            return f"{kind}({of})" if kind else f"{of}.item() if {torch}.is_tensor({of}) else {of}"

        if self.attr:
            return [*imports, Before(top, f"{name} = {number(name)}")]
        if any_of(self.objects, Seq):
            return [*imports, Before(top, f"{name}[:] = [{number(value)} for {value} in {name}]")]
        key = source.fresh("key", "name", "label")
        code = f"for {key}, {value} in {name}.items():\n    {name}[{key}] = {number(value)}"
        return [*imports, Before(top, code)]

    def _single(self, top: ast.stmt, nodes: list[ast.expr], kind: str) -> list[ast.expr] | None:
        """The elements that are looked at, where these are few, each read once, and left."""
        places = [n if self.attr else parent_of(n) for n in nodes]
        elements = [p for p in places if isinstance(p, Place)]
        fixed = all(
            self.attr or isinstance(getattr(p, "slice", None), ast.Constant) for p in elements
        )
        once = len({ast.dump(p) for p in elements}) == len(nodes) == len(elements) <= 2
        repeated = any(loop_of(p) is not loop_of(top) for p in elements)
        if not kind or not fixed or not once or repeated or not all(map(is_read, elements)):
            return None
        return list(elements)
