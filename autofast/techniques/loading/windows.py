"""Windows that are cut out of a long row one by one: ``torch.stack([data[i : i + length] for i in
starts])``.

All windows of a row are one strided view of it, and those that begin at ``starts`` are rows of that
view: one index operation copies them. The numbers are copied as they are, into a tensor that lies
in memory as ``stack`` lays it out. What has to be proven: the row has one dimension (the windows of
a matrix would have their dimensions in another order), no start is negative (a slice counts from
the end then), and the last window ends inside the row (a slice is cut off there, a view has no such
row).
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from autofast.edit.edits import Edits, Rewrite, plain_code
from autofast.facts.dimensions import dimension_count
from autofast.flow.cfg import Graph
from autofast.flow.loops import loop_of
from autofast.flow.program import graph_of
from autofast.flow.provenance import only_value
from autofast.flow.scopes import mentions
from autofast.model.calls import arguments_of, is_name, may_give
from autofast.model.events import LoopFrame
from autofast.model.script import Script
from autofast.model.several import surely, wordset
from autofast.model.source import (
    function_of,
    is_same_function,
    nodes_in,
    parent_of,
    source_of,
    statement_of,
)
from autofast.model.syntax import SEQUENCES, VARIABLES, is_read, is_stored
from autofast.model.values import (
    Arg,
    Num,
    Ref,
    Tensor,
    any_of,
    certainly,
    is_const,
    surely_named,
)
from autofast.ops import reshapes
from autofast.rule import Refusal
from autofast.write.imports import module_in

STACKS = ("torch.stack", "numpy.stack")
# Whole numbers from ``low`` (0 where it is not given) up to ``high``.
DRAWN = {"torch.randint": "torch", "numpy.random.randint": "numpy"}
NUMPY_CASTS = wordset("astype copy")
TORCH_CASTS = wordset("long int float short to cpu cuda clone contiguous type")
DEVICES = ("torch.set_default_device", "torch.set_default_tensor_type")


@dataclass(frozen=True, eq=False)
class Cut:
    """Windows that are cut one by one; ``edits`` cut them at once, or ``refusal`` says why that is
    not certain to be the same.
    """

    call: ast.Call
    edits: Edits = ()
    refusal: str = ""


def cuts(script: Script) -> Iterator[Cut]:
    """The windows that the script cuts again and again."""
    for site in script.calls(*STACKS):
        match site.node:
            case ast.Call(args=[ast.ListComp() as comp], keywords=[]) as call:
                windows = _windows(script, call, comp)
            case _:
                continue
        if windows is None or not any(
            isinstance(f, LoopFrame) and f.is_statement for o in site for f in o.stack
        ):
            continue
        try:
            yield Cut(site.node, windows.at_once(script, _library(script, windows.row)))
        except Refusal as why:
            yield Cut(site.node, refusal=str(why))


def _windows(script: Script, call: ast.Call, comp: ast.ListComp) -> Windows | None:
    """What is cut, where it is cut by ``data[i : i + length]`` for ``i`` in ``starts``."""
    loop = comp.generators[0]
    if (
        len(comp.generators) != 1
        or loop.ifs
        or loop.is_async
        or not isinstance(loop.target, ast.Name)
        or not isinstance(loop.iter, ast.Name)
    ):
        return None
    index, window = loop.target.id, _window(script, comp.elt, loop.target.id)
    match window:
        case ast.Subscript(
            value=ast.Name() as row,
            slice=ast.Slice(lower=ast.expr() as first, upper=ast.expr() as last, step=None),
        ):
            if any(isinstance(t, Tensor) and t.models for t in script.values(row)):
                return None
            try:
                lower, upper = Sum.of(first), Sum.of(last)
            except Refusal:
                return None
            offset = lower.without(index)
            if lower.terms[index] == upper.terms[index] == 1 and not offset.terms:
                return Windows(call, comp.elt, window, row, loop.iter, upper - lower, offset.number)
    return None


def _window(script: Script, expr: ast.expr, index: str) -> ast.Subscript | None:
    """The slice in ``torch.from_numpy(data[i : i + n].astype(np.int64))``: what is done to it is
    done number by number.
    """
    match expr:
        case ast.Subscript():
            return expr
        case ast.Call(args=[inner], keywords=[]) if _is(script, expr.func, "torch.from_numpy"):
            return _window(script, inner, index)
        case ast.Call(func=ast.Attribute(value=inner, attr=method)) if (
            method in NUMPY_CASTS | TORCH_CASTS
        ):
            if may_give(expr, "order") or (
                method in NUMPY_CASTS and len(expr.args) > (method == "astype")
            ):
                return None  # all windows together would lie in memory in another order
            arguments = [n for a in arguments_of(expr) for n in ast.walk(a)]
            return (
                None if any(is_name(n, index) for n in arguments) else _window(script, inner, index)
            )
    return None


@dataclass(frozen=True, eq=False)
class Windows:
    """``call`` stacks ``each`` window ``row[start + offset : start + offset + length]`` for all
    ``starts``.
    """

    call: ast.Call
    each: ast.expr
    window: ast.Subscript
    row: ast.Name
    starts: ast.Name
    length: Sum
    offset: int

    def at_once(self, script: Script, kind: str) -> Edits:
        """The edits that take all windows at once, out of a row of this kind."""
        if not kind or _is_reshaped(script):
            raise Refusal(f"whether `{self.row.id}` has one dimension is not known")
        drawn = _inside(script, self)
        if script.calls(*DEVICES):
            raise Refusal("new tensors are made on another device")
        as_tensor = _is(script, self.call.func, "torch.stack")
        if as_tensor != (
            kind == "torch"
            or any(_is(script, n.func, "torch.from_numpy") for n in nodes_in(self.each, ast.Call))
        ):
            raise Refusal(f"`{self.row.id}` is of another library than what is stacked")
        if kind == "torch" and drawn == "numpy":
            raise Refusal(f"`{self.starts.id}` is an array of NumPy, and `{self.row.id}` a tensor")
        begin = (
            f"{self.starts.id}.numpy()" if kind == "numpy" and drawn == "torch" else self.starts.id
        )
        begin += (
            f" + {self.offset}" if self.offset > 0 else f" - {-self.offset}" if self.offset else ""
        )
        imports: Edits = ()
        if kind == "torch":
            rows = f"{self.row.id}.unfold(0, {self.length.code()}, 1)[{begin}]"
        else:
            numpy, imports = module_in(source_of(self.call), "numpy")
            rows = f"{numpy}.lib.stride_tricks.sliding_window_view({self.row.id}, {self.length.code()})[{begin}]"
        return (
            Rewrite(self.call, "{each}", {"each": self.each}),
            Rewrite(self.window, plain_code(rows)),
            *imports,
        )


def _is_reshaped(script: Script) -> bool:
    """Somewhere a tensor or array that exists gets other dimensions."""
    nodes = script.each(ast.Attribute)
    return any(reshapes(n.attr) or (n.attr in ("data", "shape") and is_stored(n)) for n in nodes)


# --------------------------------------------------------------------------------------------- sums
@dataclass
class Sum:
    """A sum of names, attributes and a number; ``terms`` counts them by their text."""

    terms: Counter[str] = field(default_factory=Counter)
    number: int = 0
    nodes: dict[str, ast.expr] = field(default_factory=dict)

    @staticmethod
    def of(expr: ast.expr) -> Sum:
        match expr:
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return Sum.of(left) + Sum.of(right)
            case ast.BinOp(left=left, op=ast.Sub(), right=right):
                return Sum.of(left) - Sum.of(right)
            case ast.Constant(value=int(value)) if not isinstance(value, bool):
                return Sum(number=value)
            case ast.Name() | ast.Attribute() | ast.Call() | ast.Subscript():
                text = ast.unparse(expr)
                return Sum(Counter({text: 1}), 0, {text: expr})
        raise Refusal(f"`{ast.unparse(expr)}` is no sum of names and numbers")

    def __add__(self, other: Sum) -> Sum:
        return self._with(other, 1)

    def __sub__(self, other: Sum) -> Sum:
        return self._with(other, -1)

    def _with(self, other: Sum, sign: int) -> Sum:
        keys = [*self.terms, *(k for k in other.terms if k not in self.terms)]
        terms = Counter({k: n for k in keys if (n := self.terms[k] + sign * other.terms[k])})
        return Sum(terms, self.number + sign * other.number, self.nodes | other.nodes)

    def without(self, name: str) -> Sum:
        return Sum(
            Counter({k: n for k, n in self.terms.items() if k != name}), self.number, self.nodes
        )

    def code(self) -> str:
        """The sum of variables and a number, where nothing but the number may be negative."""
        if any(
            n != 1 or not isinstance(self.nodes[k], VARIABLES) for k, n in self.terms.items()
        ) or not (self.terms or self.number > 0):
            raise Refusal("what length the windows have is not known")
        number = (
            f" + {self.number}" if self.number > 0 else f" - {-self.number}" if self.number else ""
        )
        return " + ".join(self.terms) + number if self.terms else str(self.number)


# ------------------------------------------------------------------------------------------- starts
def _inside(script: Script, windows: Windows) -> str:
    """Whether all windows lie inside the row; the library that has drawn their starts."""
    starts, row = windows.starts, windows.row.id
    unknown = Refusal(
        f"whether the windows that begin at `{starts.id}` lie inside `{row}` is not known"
    )
    call = only_value(starts)
    names = script.library_functions(call)
    if (
        not isinstance(call, ast.Call)
        or len(names) != 1
        or not names <= DRAWN.keys()
        or not is_same_function(call, starts)
    ):
        raise unknown
    scope = function_of(call)
    order = graph_of(script, call)
    if any(
        order.may_follow(n, call)
        for name in (row, *windows.length.terms)
        for n in mentions(scope, name)
        if not is_read(n)
    ):
        raise unknown  # it is another one when the windows are cut
    if _is_touched(order, starts, call):
        raise Refusal(f"`{starts.id}` may be changed after it was drawn")
    given = {k.arg: k.value for k in call.keywords}
    size = given.pop("size", None)
    if given.keys() - {"low", "high", "dtype", "generator"} or (
        names == {"torch.randint"} and "dtype" in given
    ):
        raise Refusal(f"where `{starts.id}` is made is not known")
    positional = list(call.args)
    if size is None and positional:
        size = positional.pop()
    bounds = [*positional, *(given[k] for k in ("low", "high") if k in given)]
    if not 1 <= len(bounds) <= 2 or size is None or not _is_flat(script, size):
        raise Refusal(f"`{starts.id}` is no plain row of starts")
    low = 0 if len(bounds) == 1 else script.constant(bounds[0])
    if not isinstance(low, int) or isinstance(low, bool) or low + windows.offset < 0:
        raise Refusal(f"`{starts.id}` may be negative")
    last = Sum.of(bounds[-1])  # one beyond the largest start
    whole = [
        k
        for k in last.terms
        if k in (f"len({row})", f"{row}.size(0)", f"{row}.shape[0]", f"{row}.numel()")
    ]
    if len(whole) != 1 or last.terms[whole[0]] != 1:
        raise unknown
    beyond = last.without(whole[0]) + windows.length + Sum(number=windows.offset)
    if beyond.terms or beyond.number > 1:
        raise unknown
    return DRAWN[names.pop()]


def _is_touched(order: Graph, starts: ast.Name, call: ast.Call) -> bool:
    """Something other than windows is made of the starts before they are used: a name, a view or a
    function that may change them.
    """
    cut, loop = statement_of(starts), loop_of(call)
    return any(
        order.may_follow(n, call, loop)
        and (statement_of(n) is cut or order.may_follow(cut, n, loop))
        for n in mentions(function_of(starts), starts.id)
        if is_read(n)
        and not (isinstance(parent := parent_of(n), ast.comprehension) and parent.iter is n)
    )


def _is_flat(script: Script, size: ast.expr) -> bool:
    """``(n,)`` or ``n``."""
    if isinstance(size, SEQUENCES):
        return len(size.elts) == 1 and not isinstance(size.elts[0], ast.Starred)
    found = script.values(size)
    return surely(isinstance(t, (Num, Arg)) or is_const(t, int) for t in found)


def _library(script: Script, row: ast.Name) -> str:
    """``torch`` or ``numpy`` where the row certainly has one dimension; else empty."""
    found = script.values(row)
    if dimension_count(script, row) != 1:
        return ""
    if certainly(found, Tensor):
        return "torch"
    return "" if any_of(found, Tensor) else "numpy"


def _is(script: Script, func: ast.expr, name: str) -> bool:
    return surely_named(script.values(func), Ref, name)
