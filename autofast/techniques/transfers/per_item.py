"""What items compute with functions of the project, of an element or of a slice of what the data
set keeps: the constructor does it for all elements, and the item takes its own."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence

from autofast.edit.edits import Decorator, Edit, Edits, Import, Remove, Rewrite
from autofast.facts.arrays import COPIED, FILLED, JOINED
from autofast.facts.item_constants import ItemReads, Items, OfItems, is_plain_value, makes_rows
from autofast.flow.callgraph import CallGraph, Function
from autofast.flow.program import Flow, holder_of
from autofast.flow.scopes import mentions, own_nodes, parameters
from autofast.model.calls import is_name, only_target, short_name, variable_name
from autofast.model.script import Script
from autofast.model.several import of_kind, one, surely
from autofast.model.source import (
    nodes_in,
    parent_of,
    source_of,
    statement_of,
    within_any,
)
from autofast.model.syntax import is_read
from autofast.model.values import Const, Num, Seq, Tensor, all_of, are_numbers, certainly
from autofast.techniques.transfers.constants import works
from autofast.techniques.transfers.kept import Prepared, at_end, name_of, text_of

PRIMARY = (ast.Name, ast.Call, ast.Attribute, ast.Subscript)
ARRAYS = COPIED | FILLED | JOINED
DEEP = 4  # calls that an element is followed through


# ------------------------------------------------------------------------------------ one by one
def of_each(items: Items) -> Iterator[Prepared]:
    """``self.encode(self.texts[index])``"""
    calls = items.script.analysis(CallGraph)
    for call in of_kind(own_nodes(items.getitem), ast.Call):
        run = [c.function for c in calls.callees(call)]
        if run and all(map(works, run)) and (found := _for_each(items, call)):
            yield found


def _for_each(items: Items, call: ast.Call) -> Prepared | None:
    element = Element(items)
    name, copied = name_of(items, call, "made"), _copied(items, call)
    if name is None or copied is None or not element.takes(call):
        return None
    held, target = element.of, element.target
    known = OfItems(items, element.places)
    if (
        held is None
        or not element.holds_data([call, *element.moved.values()])
        or not (items.is_list(held) or (items.is_array(held) and items.are_numbered))
        or not items.counts(items.name_of(held))
        or not all(known.holds(e, items.getitem) for e in (call, *element.moved.values()))
    ):
        return None
    made = f"[{element.code(call)} for {target} in {items.this}.{items.name_of(held)}]"
    edits = at_end(items, name, made), Rewrite(call, f"{items.this}.{name}[{items.index}]{copied}")
    return Prepared(call, name, (*edits, *element.idle([call])))


class Element:
    """What an expression of ``__getitem__`` is computed of: one element of what is kept.

    Attributes:
        of: where the data set keeps them, ``index``: which one it is, ``target``: what an element
            is called; ``anywhere``: the index may be anything.
        places: what stands for it, or for what is computed of it before, with other code for some.
        moved: variables that nothing else needs, with what is computed for them.
    """

    def __init__(self, items: Items, anywhere: bool = False):
        self.items, self.anywhere = items, anywhere
        self.of: ast.expr | None = None
        self.index: ast.expr | None = None
        self.target = ""
        self.places: dict[ast.expr, str] = {}
        self.moved: dict[ast.expr, ast.expr] = {}
        self.bound: set[ast.stmt] = set()

    def takes(self, expr: ast.expr) -> bool:
        """Whether all that ``expr`` has of the item is this element."""
        rows, names = nodes_in(expr, ast.Subscript), nodes_in(expr, ast.Name)
        return all(self._is_row(row) for row in rows) and all(
            self._is_given(name) for name in names if not within_any(name, self.places)
        )

    def _is_row(self, node: ast.Subscript) -> bool:
        name = singular(self.items.name_of(node.value))
        used = hasattr(builtins, name) or any(
            n.id == name for n in nodes_in(self.items.getitem, ast.Name)
        )
        taken = self.items.is_element(node) if self.anywhere else self.items.is_row(node)
        if not taken or within_any(node, self.places):
            return True
        return self._is_of(node, f"one_{name}" * used or name, node)

    def _is_given(self, name: ast.Name) -> bool:
        items, flow = self.items, self.items.script.analysis(Flow)
        if name.id == items.this or holder_of(name) is not items.getitem or not is_read(name):
            return True
        if bound := items.row_bound(name):
            target, row = bound
            self.bound.add(statement_of(row))
            return self._is_of(row, source_of(target).segment(target).strip("()"), name)
        value = flow.value(name) if self.anywhere else flow.value_of_its_own(name)
        if value is None or not variable_name(only_target(statement_of(value))):
            return False
        self.moved[name] = value
        self.places[name] = ""
        return self.takes(value)

    def _is_of(self, row: ast.Subscript, target: str, node: ast.expr) -> bool:
        """Whether it is this element, too."""
        name = self.items.name_of
        if self.of is not None and (
            (name(self.of), self.target) != (name(row.value), target)
            or not all_of([self.index, row.slice], ast.Name)
        ):
            return False
        self.of, self.index, self.target = row.value, row.slice, target
        self.places[node] = variable_name(node) or target
        return True

    def is_data(self, tree: ast.AST) -> bool:
        """The same of all that stands for it there."""
        for row in nodes_in(tree, ast.Subscript):
            self._is_row(row)
        for name in nodes_in(tree, ast.Name):
            self._is_given(name)
        return self.holds_data([tree])

    def holds_data(self, exprs: Sequence[ast.AST]) -> bool:
        """Whether something that they take of an element is no number: what is made of where a
        window begins may be far larger than what is there.
        """
        taken = (n for n, code in self.places.items() if code and within_any(n, exprs))
        return any(
            not are_numbers(self.items.script.values(n)) or self._is_taken_apart(n) for n in taken
        )

    def _is_taken_apart(self, place: ast.expr, depth: int = 0) -> bool:
        """``text.lower()``, ``text[0]``, ``for c in text``, also by a function that gets it."""
        match up := parent_of(place):
            case ast.Attribute() | ast.For() | ast.comprehension():
                return True
            case ast.Subscript(value=value):
                return value is place
            case ast.BinOp():
                return self._is_taken_apart(up, depth)
            case ast.Call() if depth < DEEP:
                calls = self.items.script.analysis(CallGraph)
                inside = [
                    n
                    for c in calls.callees(up)
                    for p in calls.given_to(up, c, place)
                    for n in mentions(c.function, p)
                ]
                return any(is_read(n) and self._is_taken_apart(n, depth + 1) for n in inside)
        return False

    def code(self, expr: ast.expr) -> str:
        inside = {n: code for n, code in self.places.items() if within_any(n, [expr])}
        for place, value in self.moved.items():
            if place in inside:
                inner = self.code(value)
                plain = all_of([value], PRIMARY) or all_of([parent_of(place)], ast.Call)
                inside[place] = inner if plain else f"({inner})"
        return text_of(expr, inside)

    def idle(self, gone: list[ast.expr]) -> Edits:
        """Statements that nothing needs any more."""
        flow, items = self.items.script.analysis(Flow), self.items
        there = [statement_of(v) for v in self.moved.values()]
        names = {n.id for s in self.bound for n in nodes_in(s, ast.Name) if not is_read(n)}
        left = [
            n
            for v in names
            for n in mentions(items.getitem, v)
            if is_read(n) and not within_any(n, [*gone, *there])
        ]
        used = {d.statement for n in left for d in flow.reaching(n)}
        return tuple(map(Remove, (*there, *(s for s in self.bound if s not in used))))


def singular(name: str) -> str:
    """What one of several is called: ``text`` of ``texts``."""
    name = name.strip("_")
    return name[:-1] if name.endswith("s") and len(name) > 2 else f"one_{name}"


def _copied(items: Items, made: ast.expr) -> str | None:
    """What makes a copy of what is kept, where others may write to what they get; None where
    nothing does."""
    script = items.script
    if not ItemReads(items).follow(made, None):
        return ""
    found = script.values(made)
    calls = script.analysis(CallGraph)
    results = [r for c in calls.callees(made) for r in calls.results(c.function)]  # type: ignore[arg-type]
    if surely(script.is_call(r, *ARRAYS) for r in results):
        return ".copy()"
    if certainly(found, Seq):
        flat = surely(isinstance(t, (Const, Num)) for s in of_kind(found, Seq) for t in s.any())
        return ".copy()" if flat and all(s.kind == "list" for s in of_kind(found, Seq)) else None
    return (
        ".clone()"
        if certainly(found, Tensor) and not any(t.grad for t in of_kind(found, Tensor))
        else None
    )


# ---------------------------------------------------------------------------------------- windows
def of_slices(items: Items) -> Iterator[Prepared]:
    """``[self.codes[c] for c in self.text[a:b]]``, ``features(self.dates[a:b])``: windows, which
    overlap, of what is made of each element."""
    name: str | None
    copied: str | None
    made: dict[tuple[str, str], tuple[ast.expr, str, list[Edit]]] = {}
    for node in own_nodes(items.getitem):
        match node:
            case ast.ListComp(elt=elt, generators=[ast.comprehension(iter=over, ifs=[])]):
                alike, begin = is_plain_value(items.script, elt), "made"
            case ast.Call(args=[over], keywords=[]):
                alike, begin = makes_rows(items.script, node), short_name(node.func)
            case _:
                continue
        if not alike or (part := items.slice_of(over)) is None:
            continue
        if all_of([node], ast.ListComp):
            name, copied = name_of(items, node, begin), ""
        else:
            name, copied = name_of(items, None, begin), _copied(items, node)
        if name is None or copied is None or not OfItems(items, {over}).holds(node, items.getitem):
            continue
        code = text_of(node, {over: f"{items.this}.{items.name_of(part.value)}"})
        taken = f"{items.this}.{name}[{text_of(part.slice)}]{copied}"
        edits = made.setdefault((name, code), (node, name, [at_end(items, name, code)]))[2]
        edits += [Rewrite(node, taken), *([] if part is over else [Remove(statement_of(part))])]
    for node, name, edits in made.values():
        yield Prepared(node, name, tuple(edits))


# ----------------------------------------------------------------------------------------- numbers
def of_numbers(items: Items) -> Iterator[Prepared]:
    """``np.array([calendar(h) for h in range(a, b)])``: the same numbers come in many items, and
    the function remembers what it made of them."""
    calls, known = items.script.analysis(CallGraph), set[ast.AST]()
    for node in of_kind(own_nodes(items.getitem), ast.ListComp):
        function = one([c.function for c in calls.callees(node.elt)])  # type: ignore[arg-type]
        if function is None or function in known or not _is_of_ranges(items, function):
            continue
        known.add(function)
        edits = (
            Decorator(function, "functools.lru_cache(maxsize=None)"),  # type: ignore[arg-type]
            Import(source_of(function), "import functools"),
        )
        yield Prepared(node.elt, "", edits)


def _is_of_ranges(items: Items, function: Function) -> bool:
    """Whether a function only computes, of whole numbers that ranges count, and nobody writes to
    what it gives."""
    script = items.script
    calls = script.analysis(CallGraph)
    return (
        parent_of(function) is source_of(function).tree
        and len([*parameters(function)]) == 1
        and not calls.complete(function)
        and OfItems(items).is_pure(function)
        and all(
            _counts(script, site) and not ItemReads(items).follow(site, None)
            for site in calls.sites(function)
        )
    )


def _counts(script: Script, call: ast.Call) -> bool:
    match call, parent_of(call):
        case ast.Call(args=[number], keywords=[]), ast.ListComp(generators=[part]):
            counted = script.is_call(part.iter, "builtins.range")
            return counted and is_name(part.target, variable_name(number))
    return False
