"""What a loop over the rows of tensors does in all its turns together.

In ``for i, n in enumerate(lengths):`` the whole of ``n``, and of ``lengths[i]``, is ``lengths``: an
expression of one turn stands for a row of an expression of tensors, where it is made of rows and
numbers by operations on each element.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property

from autofast.edit.edits import Edits, Holes
from autofast.facts.batch.alignment import Alignment, is_flat
from autofast.facts.batch.samples import is_all, is_set_later
from autofast.facts.dimensions import dimension_count
from autofast.facts.element_reads import stays_inside
from autofast.facts.extents import measured_by, row_count, same_number
from autofast.flow.defuse import taken_by
from autofast.flow.filled_lists import is_only_filled
from autofast.flow.program import Flow, definitions_at, definitions_of
from autofast.model.calls import is_method, is_name, is_same_code
from autofast.model.script import Script
from autofast.model.several import all_of, any_of, one, surely, wordset
from autofast.model.source import block_of, nodes_in, parent_of, statement_of, within
from autofast.model.syntax import is_stored
from autofast.model.values import (
    Arg,
    Const,
    Num,
    Seq,
    Tensor,
    are_numbers,
    certainly,
    of_kind,
)
from autofast.ops.families import COMPARED, SIGNS
from autofast.rule import Effect, Refusal

SAME = wordset("cpu detach numpy data")  # what gives the same numbers
Planned = tuple[Edits, Effect]
READS = wordset("item tolist")
NUMBERS = wordset("builtins.int builtins.float builtins.bool")
ATOMS = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant)
FIXED = wordset("size dim view reshape flatten long argmax cpu detach")
PURE = wordset("len int float min max abs range", "builtins.")
EXACT = (ast.Add, ast.Sub, ast.Mult)  # of whole numbers


@dataclass
class Whole:
    """An expression of tensors: its code (a template), the tensors whose rows the turns have.

    ``atom``: the code needs no parentheses. ``read``: the loop reads it as a number of Python;
    ``real``: by ``float()``.
    """

    code: str
    parts: list[ast.expr] = field(default_factory=list)
    atom: bool = True
    is_bool: bool = False
    read: bool = False
    real: bool = False

    def __str__(self) -> str:
        return self.code if self.atom else f"({self.code})"


class Rows:
    """A loop over rows; raises :class:`Refusal` without words for any other.

    Attributes:
        index: the variable that counts the rows, or empty.
        over: the tensors that it gets rows of, by the variables that get them.
        count: how often it turns, of ``range(count)``.
        holes: what stands for the names in the code of :class:`Whole`.
        half: the loop runs under autocast.
        lists: what ``torch`` is called, where lists of numbers may become tensors; else empty.
    """

    def __init__(self, script: Script, loop: ast.For, half: bool = False):
        self.half = half
        self.script, self.loop, self.flow = script, loop, script.analysis(Flow)
        self.index, self.over, self.holes = "", dict[str, ast.expr](), Holes()
        self.count: ast.expr | None = None
        self.lists = ""
        self._flat = False
        if loop.orelse:
            raise Refusal
        self._read(loop.target, loop.iter)

    def _read(self, target: ast.expr, over: ast.expr) -> None:
        match target, over:
            case ast.Name(id=name), ast.Call(args=[count]) if self._calls(over, "range"):
                self.index, self.count = name, count
            case ast.Tuple(elts=[ast.Name(id=name), inner]), ast.Call(args=[rows]) if self._calls(
                over, "enumerate"
            ):
                self.index = name
                self._read(inner, rows)
            case ast.Tuple(elts=targets), ast.Call(args=several) if self._calls(over, "zip"):
                if len(targets) != len(several):
                    raise Refusal
                for each, rows in zip(targets, several, strict=True):
                    self._read(each, rows)
            case ast.Name(id=name), _ if self.script.may_be(over, Tensor) or self.is_list(over):
                self.over[name] = over
            case _:
                raise Refusal

    def _calls(self, node: ast.Call, name: str) -> bool:
        plain = all(k.arg == "strict" for k in node.keywords)
        return plain and self.script.is_call(node, f"builtins.{name}")

    def check_names(self, kept: Container[ast.expr] = ()) -> None:
        """Raises where something behind the loop reads a variable that it binds, but for those that
        are kept.
        """
        for name in nodes_in(self.loop, ast.Name):
            if (
                is_stored(name)
                and name not in kept
                and not stays_inside(self.script, name, self.loop)
            ):
                raise Refusal(f"`{name.id}` of its last turn may be read behind it")

    # -------------------------------------------------------------------------------- whole tensors
    def hole(self, expr: ast.expr) -> str:
        """An expression of the script in the new code."""
        name = next((n for n, e in self.holes.items() if e is expr), f"e{len(self.holes)}")
        self.holes[name] = expr
        plain = type(expr) in ATOMS
        return f"{{{name}}}" if plain else f"({{{name}}})"

    def stays(self, expr: ast.expr) -> bool:
        """Whether an expression is the same in all turns: the loop binds none of its variables, and
        nothing is called but what always gives the same.
        """
        if not all(
            is_method(call, *FIXED) or self.script.is_call(call, *PURE)
            for call in nodes_in(expr, ast.Call)
        ):
            return False
        names = nodes_in(expr, ast.Name)
        return not any(
            within(d.node, self.loop) for n in names for d in definitions_at(self.script, n)
        )

    def whole(self, expr: ast.expr) -> Whole:
        """What an expression is in all turns; raises :class:`Refusal` where that is not known."""
        match expr:
            case ast.Name(id=name):
                made = self.flow.definition(expr)
                if made is not None and within(made.node, self.loop.target):
                    if name in self.over:
                        return self._rows(self.over[name])
                elif made is not None and made.value is not None and within(made.node, self.loop):
                    return self.whole(made.value)
            case ast.Subscript(value=rows, slice=index) if is_name(index, self.index or "?"):
                if self.flow.definition(index) and self.stays(rows):
                    return self._rows(rows)
            case ast.Call(func=ast.Attribute(value=inner, attr=name), args=[], keywords=[]):
                found = self.whole(inner)
                if name in READS:
                    found.read = True
                if name in READS | SAME:
                    return found
                if name in ("long", "int", "float"):
                    found.code, found.atom = f"{found}.{name}()", True
                    return found
            case ast.Attribute(value=inner, attr="data"):
                return self.whole(inner)
            case ast.Call(args=[inner], keywords=[]) if self.script.is_call(expr, *NUMBERS):
                return self._cast(self.script.library_function(expr), self.whole(inner))
            case ast.Compare(left=left, ops=[sign], comparators=[right]) if type(sign) in COMPARED:
                one, other = self.whole(left), self.whole(right)
                if any(w.read and not all(map(self._is_whole, w.parts)) for w in (one, other)):
                    raise Refusal  # Python compares in 64 bits
                if not all(w.parts and w.atom for w in (one, other)):  # two tensors: so does torch
                    one, other = self._number(one), self._number(other)
                return self._combined(COMPARED[type(sign)], one, other, is_bool=True)
            case ast.BinOp(left=left, op=sign, right=right) if isinstance(sign, EXACT):
                both = self._number(self.whole(left)), self._number(self.whole(right))
                return self._combined(SIGNS[type(sign)], *both)
        if self.stays(expr) and self.script.must_be(expr, Const, Num, Arg):
            return Whole(self.hole(expr))
        raise Refusal

    def is_list(self, rows: ast.expr) -> bool:
        """Whether it is a list of numbers."""
        found = self.script.values(rows)
        return certainly(found, Seq) and all(are_numbers(t.any()) for t in of_kind(found, Seq))

    def check_plain(self, expr: ast.expr) -> None:
        """Raises without words where the loop may do more than to name a row."""
        try:
            self.whole(expr)
        except Refusal:
            raise Refusal from None

    def check_device(self, parts: list[ast.expr]) -> None:
        """Raises without words where all tensors are on the host, and nothing is launched."""
        found = [t for p in parts for t in of_kind(self.script.values(p), Tensor)]
        if surely(t.device == "cpu" for t in found):
            raise Refusal

    def _rows(self, rows: ast.expr) -> Whole:
        if self.lists and self.is_list(rows):
            return Whole(f"{self.lists}.tensor({self.hole(rows)})", [rows])
        if not self.script.may_be(rows, Tensor):
            raise Refusal
        if not self.script.must_be(rows, Tensor):
            raise Refusal(f"nothing shows that `{ast.unparse(rows)}` is a tensor")
        flat = self._flat and not self._is_vector(rows)
        return Whole(self.hole(rows) + ".flatten()" * flat, [rows])

    def first(self) -> ast.expr:
        """One of the tensors that it goes over."""
        return next(iter(self.over.values()))

    def place(self, index: ast.expr) -> Whole:
        """The whole of an index, as integers of 64 bits."""
        found = self.whole(index)
        if not found.parts:
            raise Refusal
        if not found.code.endswith(".long()") and not all(map(self._is_int64, found.parts)):
            found.code, found.atom = f"{found}.long()", True
        return found

    def _is_int64(self, rows: ast.expr) -> bool:
        """Whether its type is certainly that: a loss takes labels of bytes, too."""
        return self.script.analysis(Alignment).is_choice(rows)

    def _cast(self, kind: str, found: Whole) -> Whole:
        found.read, found.real = True, found.real or kind.endswith("float")
        if kind.endswith("bool"):
            raise Refusal
        if kind.endswith("int") and not found.is_bool and not all(map(self._is_whole, found.parts)):
            found.code, found.atom = f"{found}.long()", True
        return found

    def _is_whole(self, rows: ast.expr) -> bool:
        """Whether a tensor certainly has whole numbers."""
        types = {t.dtype for t in of_kind(self.script.values(rows), Tensor)}
        return types == {"int"} or self.script.analysis(Alignment).is_compared(rows)

    def _number(self, found: Whole) -> Whole:
        """What is computed with as a number of Python: truths, and whole numbers that the loop
        reads, are none of their own few bits.
        """
        few = found.read and found.parts and all(map(self._is_whole, found.parts))
        if found.is_bool or (few and not all(map(self._is_int64, found.parts))):
            found.code, found.atom, found.is_bool = f"{found}.long()", True, False
        return found

    def _combined(self, sign: str, one: Whole, other: Whole, is_bool: bool = False) -> Whole:
        code, parts = f"{one} {sign} {other}", [*one.parts, *other.parts]
        return Whole(code, parts, False, is_bool, one.read or other.read, one.real or other.real)

    # --------------------------------------------------------------------------------------- shapes
    def check_rows(self, parts: list[ast.expr]) -> None:
        """Raises where the turns may be others than the rows of these tensors."""
        turns = [*self.over.values()]
        counts: set[object] = set()
        if self.count is not None:
            measured = self.measured(self.count)
            if measured is None:
                raise Refusal("nothing shows that it goes over all rows")
            counts = {same_number(self.script, self.count), row_count(self.script, measured)}
            turns.append(measured)
        together = self.script.analysis(Alignment)
        for turn in turns:
            for part in (*parts, *turns):
                if row_count(self.script, part) in counts - {None}:
                    continue
                listed = any(map(self.is_list, (turn, part)))  # which may leave rows out
                alike = self.flow.is_same if listed else together.have_same_rows
                if turn is not part and not alike(turn, part):
                    named = f"`{ast.unparse(turn)}` and `{ast.unparse(part)}`"
                    raise Refusal(f"nothing shows that {named} have as many rows")

    @contextmanager
    def in_one_shape(self, exprs: list[ast.expr]) -> Iterator[None]:
        """What stands together in one operation: :meth:`whole` gives tensors of one shape."""
        parts = list[ast.expr]()
        for part in (p for e in exprs for p in self.whole(e).parts):
            if not any(is_same_code(part, p) for p in parts):
                parts.append(part)
        self.check_device(parts)
        self.check_rows(parts)
        together = self.script.analysis(Alignment)
        alike = all(together.have_same_shape(parts[0], p) for p in parts[1:])
        single = [any(is_same_code(p, s) for s in self._single) for p in parts]
        if not all(s or self._is_vector(p) for s, p in zip(single, parts, strict=True)) and not (
            alike and any(single)
        ):
            named = ", ".join(f"`{ast.unparse(p)}`" for p in parts)
            raise Refusal(
                f"nothing shows that {named} {'has' if len(parts) == 1 else 'have'} one number in each row"
            )
        self._flat = not alike and not all(map(self._is_vector, parts))
        yield
        self._flat = False

    def _is_vector(self, rows: ast.expr) -> bool:
        return is_flat(rows) or dimension_count(self.script, rows) == 1

    @cached_property
    def _single(self) -> list[ast.expr]:
        """The tensors of whose rows a number of Python is made in the loop."""
        found = list[ast.expr]()
        for node in nodes_in(self.loop, ast.expr):
            tested = any_of([parent_of(node)], ast.If) and any_of([node], ast.Compare)
            read = is_method(node, *READS) or self.script.is_call(node, *NUMBERS)
            if tested or read:
                with suppress(Refusal):
                    found += self.whole(node).parts
        return found

    def measured(self, count: ast.expr) -> ast.expr | None:
        """The tensor whose rows a number counts: ``x`` of ``x.size(0)``, ``n`` of ``n = len(x)``,
        ``b`` of ``b, t = x.shape``.
        """
        made = self.flow.definition(count)
        if made is None:
            return measured_by(count)
        if made.value is not None:
            return self.measured(made.value)
        match taken_by(made.node):
            case ast.Assign(value=ast.Attribute(value=of, attr="shape")), [0]:
                return of
            case ast.Assign(value=ast.Call(func=ast.Attribute(value=of, attr="size"), args=[])), [
                0
            ]:
                return of
        return None


def one_cut(cuts: list[ast.expr]) -> ast.Slice:
    """The one of some parts of an index that is not all of its dimension; raises :class:`Refusal`
    without words where there is none.
    """
    bounded = [cut for cut in of_kind(cuts, ast.Slice) if not is_all(cut)]
    if len(bounded) != 1 or not all_of(cuts, ast.Slice) or bounded[0].step is not None:
        raise Refusal
    return bounded[0]


def is_fixed(script: Script, loop: ast.For, outer: ast.expr, inner: ast.expr) -> bool:
    """Whether an expression gives the same in all turns of a loop where the tensor inside of it
    does.
    """
    if not script.must_be(inner, Tensor):
        return False
    rest = [n for n in nodes_in(outer, ast.expr) if n is not outer and not within(n, inner)]
    made = (d for n in of_kind(rest, ast.Name) for d in definitions_at(script, n))
    set_later = (is_set_later(script, a.attr) for a in of_kind(rest, ast.Attribute))
    return not (any_of(rest, ast.Call) or any(within(d.node, loop) for d in made) or any(set_later))


def applied(outer: ast.expr, inner: ast.expr, code: str, hole: Callable[[ast.expr], str]) -> str:
    """The code of an expression with other code in the place of a part of it."""
    match outer:
        case ast.BinOp(left=left, op=op, right=right):
            one, other = (code if e is inner else hole(e) for e in (left, right))
            return f"({one} {SIGNS.get(type(op), '**')} {other})"
        case ast.UnaryOp():
            return f"(-{code})"
        case ast.Call(func=func, args=args, keywords=keywords):
            given = [bare(code) if a is inner else hole(a) for a in args]
            named = [f"{k.arg}={hole(k.value)}" for k in keywords]
            of = getattr(func, "value", None)
            called = f"{code}.{func.attr}" if of is inner else hole(func)  # type: ignore[attr-defined]
            return f"{called}({', '.join([*given, *named])})"
    raise Refusal


def bare(code: str) -> str:
    """Code without the parentheses around all of it."""
    depth = 0
    for place, letter in enumerate(code):
        depth += (letter == "(") - (letter == ")")
        if not depth:
            return code[1:-1] if code[0] == "(" and place == len(code) - 1 else code
    return code


def appended(statement: ast.stmt) -> tuple[ast.Name, ast.expr] | None:
    """``held`` and ``value`` of ``held.append(value)``."""
    match statement:
        case ast.Expr(
            value=ast.Call(
                func=ast.Attribute(value=ast.Name() as held, attr="append"), args=[value]
            )
        ):
            return held, value
    return None


def put_together(
    script: Script, loop: ast.For, held: ast.Name
) -> tuple[ast.Call, ast.Assign, ast.stmt]:
    """The one use of a list that a loop fills: the ``torch.cat`` or ``torch.stack`` of it in the
    same block, the statement that makes the list, and the one of the call; raises :class:`Refusal`
    without words where it is used otherwise.
    """
    definitions, block = definitions_of(script, held), block_of(loop)
    made = one(definitions.reaching(held))
    uses = [u for u in definitions.uses(made) if not within(u, loop)] if made else []
    if made is None or not is_only_filled(held, loop) or len(uses) != 1:
        raise Refusal
    call, home, place = parent_of(uses[0]), made.statement, statement_of(uses[0])
    if not script.is_call(call, "torch.cat", "torch.stack") or call.args[:1] != uses:
        raise Refusal
    if home not in block or place not in block or not isinstance(home, ast.Assign):
        raise Refusal
    return call, home, place
