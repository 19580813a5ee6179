"""The code that makes a whole batch of what ``__getitem__`` makes of one item, statement by statement, with draws of its own for each item.

Arrays of an item become tensors with one dimension more, random numbers become vectors, and what all items share stays as it is. An ``if`` that
a draw decides becomes ``torch.where``. What has no such form raises :class:`Refusal`. Nothing here asks how many items there are, or of which
size: an item that differs from the others in its shape could not be collated.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autofast.facts.arrays import Array, array_of, constant
from autofast.flow.scopes import loaded_in, stored_in
from autofast.model.calls import is_method, pairs_of
from autofast.model.script import Script
from autofast.model.source import at, is_switched, live, live_block, parent_of, source_of
from autofast.model.values import Arg, Bound, Const, Func, Inst, Thing, const, library_name
from autofast.rule import Refusal
from autofast.techniques.loading.item_calls import Calls
from autofast.techniques.loading.item_values import Draw, Fixed, Items, Same, Several, Value
from autofast.techniques.loading.windows import Sum

SPREAD = "per_item"
SPREAD_CODE = '''\
def {name}(draws, items):
    """One number for each item, in a shape in which it meets all of its numbers."""
    return draws.view(-1, *[1] * (items.dim() - 1))
'''


@dataclass(frozen=True)
class Stored:
    """An attribute of the dataset whose rows are items, and the parameter that gets them."""

    attr: str
    name: str
    array: Array


@dataclass(frozen=True)
class Form:
    """The method: ``code``, with the parameters that it gets for ``stored`` rows and for ``fixed`` arrays.

    ``draws``: it draws random numbers; ``computes``: it rounds otherwise than the host may; ``spread``: it uses that function.
    ``by_index``: it is given all that is stored and the items' indices, in place of rows.
    """

    code: str
    stored: tuple[Stored, ...]
    fixed: tuple[str, ...]
    draws: bool
    computes: bool
    spread: bool
    by_index: bool


def form_of(script: Script, getitem: ast.FunctionDef, torch: str, name: str, spread: str) -> Form:
    """The form of items' code for whole batches; raises Refusal."""
    ranks: dict[str, int] = {}
    # What is known of dimensions further down helps further up, the second time.
    Code(script, getitem, torch, spread, ranks).method(name)
    return Code(script, getitem, torch, spread, ranks).method(name)


class Code(Calls):
    """Walks the statements and writes them for a batch."""

    def __init__(
        self,
        script: Script,
        getitem: ast.FunctionDef,
        torch: str,
        spread: str,
        ranks: dict[str, int],
    ) -> None:
        super().__init__(torch, spread, ranks)
        self.script, self.getitem = script, getitem
        self.lines: list[str] = []
        self.depth = 0
        self.mask = ""
        self.env: dict[str, Value] = {}
        self.given: Value | None = None
        self.stored: dict[str, Stored] = {}
        self.fixed: list[tuple[str, str]] = []
        parameters = [a.arg for a in getitem.args.args]
        plain = not (getitem.decorator_list or getitem.args.vararg or getitem.args.kwonlyargs)
        if len(parameters) != 2 or not plain:
            raise Refusal("its __getitem__ is not a plain one")
        self.this, self.index = parameters
        self.root, self.root_index = parameters
        uses = [n for n in live(getitem) if getattr(n, "id", "") == self.index]
        self.by_index = not all(_only_indexes(n) for n in uses)
        self.within_this = self.this  # as the method calls the object that the code belongs to
        self.own = stored_in(getitem)
        self.called: dict[str, str] = {}  # variables of a function that has its code written here
        self.base = 0
        self.inside: list[ast.AST] = [getitem]
        self.taken = self.own | loaded_in(getitem) | set(parameters)

    # -------------------------------------------------------------------------------------------- the method
    def method(self, name: str) -> Form:
        self.returned(self.body(self.getitem))
        first = next(iter(self.stored.values()), None)
        if first is None:
            raise Refusal("its items are not rows of arrays in memory")
        held = self.index if self.by_index else first.name
        rest = []
        if self.uses_each:
            rest.append(f"{self.each} = {self.torch}.arange({self.n}, device={self.device})")
        used = ((self.uses_n, "_n", f"len({held})"), (self.uses_device, "_device", f"{held}.device"))  # fmt: skip
        pairs = [(getattr(self, kept), code) for is_used, kept, code in used if is_used]
        named, given = ", ".join(n for n, _ in pairs), ", ".join(c for _, c in pairs)
        head = [f"{named} = {given}", *rest] if pairs else rest
        parameters = [
            self.this,
            *[self.index] * self.by_index,
            *(s.name for s in self.stored.values()),
            *(p for _, p in self.fixed),
        ]
        draws = ", each with draws of its own" * self.draws
        said = f'"""What __getitem__ makes of one item, for a whole batch{draws}."""'
        body = [said, *head, *_needed(self.lines)]
        text = f"def {name}({', '.join(parameters)}):\n" + "".join(f"    {x}\n" for x in body)
        fixed = tuple(code for code, _ in self.fixed)
        return Form(
            text,
            tuple(self.stored.values()),
            fixed,
            self.draws,
            self.computes,
            self.spreads,
            self.by_index,
        )

    # -------------------------------------------------------------------------------------------- statements
    def body(self, function: ast.FunctionDef) -> Value:
        """The statements of a function; gives what it returns."""
        self.given = None
        self.block(function.body)
        if self.given is None:
            raise Refusal(f"`{function.name}` does not end in one return")
        return self.given

    def block(self, body: Sequence[ast.stmt]) -> None:
        for n, stmt in enumerate(body):
            if is_switched(stmt):
                self.block(live_block(stmt))
            elif self.given is not None:
                raise Refusal(f"{at(stmt)} stands below its return")
            elif not _is_remark(stmt):
                match stmt:
                    case ast.If(test=test, body=[ast.Return(value=ast.expr() as left)], orelse=[]):
                        self.leaves(test, left, body[n + 1 :])
                        return
                self.statement(stmt)

    def leaves(self, test: ast.expr, left: ast.expr, rest: Sequence[ast.stmt]) -> None:
        """``if random.random() < 0.5: return image``, and what is returned otherwise."""
        if self.depth != self.base or self.mask:
            raise Refusal(f"{at(test)} has no form for batches")
        decided = self.value(test)
        names: list[str] = []

        def keep(value: Value) -> Value:
            parts = value.parts if isinstance(value, Several) else (value,)
            names.extend(self.fresh("result") for _ in range(len(parts) - len(names)))
            if len(parts) != len(names):
                raise Refusal(f"{at(left)} returns more or less than another return")
            for name, part in zip(names, parts, strict=True):
                self.emit(name, part)
            kept = tuple(self.env[n] for n in names)
            return replace(value, parts=kept) if isinstance(value, Several) else kept[0]

        def otherwise() -> None:
            self.base += 1
            self.block(rest)
            self.base -= 1
            if self.given is None:
                raise Refusal(f"{at(left)} is not the only return, and the code ends without one")
            keep(self.given)

        if isinstance(decided, Same):
            made: list[Value] = []
            self.switched(decided, lambda: made.append(keep(self.value(left))), otherwise)
            self.given = self.again(made[0], names)
            return
        name = self.drawn_name(decided, test)
        one = keep(self.value(left))
        self.block(rest)
        if self.given is None:
            raise Refusal(f"{at(left)} is not the only return, and the code ends without one")
        self.given = self.both(name, one, self.given, left)

    def again(self, value: Value, names: list[str]) -> Value:
        """What is returned, as it is in the variables."""
        kept = tuple(self.env[n] for n in names)
        return replace(value, parts=kept) if isinstance(value, Several) else kept[0]

    def both(self, mask: str, one: Value, other: Value, node: ast.AST) -> Value:
        """For each item the one or the other, of several each."""
        match one, other:
            case Several(parts=ours, names=names), Several(parts=theirs, names=others) if (
                len(ours) == len(theirs) and names == others
            ):
                pairs = zip(ours, theirs, strict=True)
                return Several(tuple(self.chosen(mask, a, b, "") for a, b in pairs), names)
            case Several(), _:
                raise Refusal(f"{at(node)} returns more or less than another return")
        return self.chosen(mask, one, other, "")

    def statement(self, stmt: ast.stmt) -> None:
        match stmt:
            case ast.If(test=ast.Call(func=func, args=[ast.Name(id=name)])) if (
                name == self.index and library_name(self.script.values(func)) == "torch.is_tensor"
            ):
                pass  # where it is: ``idx = idx.tolist()``
            case ast.If():
                self.branch(stmt)
            case ast.Return(value=ast.expr() as value) if self.depth == self.base and not self.mask:
                self.given = self.value(value)
            case _:
                self.assignment(stmt)

    def assignment(self, stmt: ast.stmt) -> None:
        match stmt:
            case ast.Assign(targets=[target], value=value):
                self.assigned(target, value)
            case ast.AugAssign(target=ast.Name(id=name) as target, op=op, value=value):
                if name not in self.env:
                    raise Refusal(f"{at(stmt)} changes `{name}`, which is not made here")
                self.emit(name, self.in_place(self.env[name], op, self.value(value), target))
            case _:
                raise Refusal(f"{at(stmt)} has no form for batches")

    def assigned(self, target: ast.expr, value: ast.expr) -> None:
        pairs = pairs_of(target, value)
        names = [getattr(t, "id", "") for t, _ in pairs]
        for n, (_, part) in enumerate(pairs):
            if loaded_in(part) & set(names[:n]):
                raise Refusal(f"{at(target)} exchanges variables")
        for one, part in pairs:
            match one:
                case ast.Name(id=name):
                    self.bound(name, part)
                case ast.Tuple(elts=elts):
                    self.unpacked(elts, part)
                case _:
                    raise Refusal(f"{at(target)} has no form for batches")

    def bound(self, name: str, value: ast.expr) -> None:
        """A variable: what is stored under it becomes a parameter of that name."""
        attr = self.attribute(value)
        new = attr not in self.stored and name not in self.env and not self.depth and not self.mask
        new = new and len(self.inside) == 1 and not self.by_index
        match value:
            case ast.Subscript() if attr and new:
                self.env[name] = self.row(value, attr, name)
            case _:
                self.emit(name, made := self.value(value))
                if (
                    isinstance(made, Draw)
                    and made.kind == "int"
                    and not self.mask
                    and not self.depth
                ):
                    self.noted(name, value)

    def noted(self, name: str, value: ast.expr) -> None:
        """``end = begin + self.length``, for the length of what lies between."""
        try:
            total = self.expanded(Sum.of(value))
        except Refusal:
            return
        if name not in total.terms:
            self.sums[name] = total

    def unpacked(self, targets: list[ast.expr], value: ast.expr) -> None:
        """``h, w = image.shape[:2]``."""
        found: Sequence[Value] = ()
        match value:
            case ast.Call():
                given = self.value(value)
                found = given.parts if isinstance(given, Several) else ()
            case _:
                found = self.sides(value, len(targets))
        if len(found) != len(targets):
            raise Refusal(f"{at(value)} has no form for batches")
        names = [getattr(target, "id", "") for target in targets]
        for n, (name, part) in enumerate(zip(names, found, strict=True)):
            read = loaded_in(ast.parse(getattr(part, "code", ""), mode="eval"))
            if read & {self.called.get(x, x) for x in names[:n]}:
                raise Refusal(f"{at(value)} exchanges variables")
            if name and name != "_":
                self.emit(name, part)

    def emit(self, name: str, value: Value) -> None:
        """Sets a variable; where that is for some items only, the others keep what they had."""
        if not name or isinstance(value, Several):
            raise Refusal("its __getitem__ has no form for batches")
        if isinstance(value, Fixed):
            self.env[name] = value
            return
        if self.mask and name in self.env:
            old = self.env[name]
            value = self.chosen(self.mask, value, old, name)
        assert not isinstance(value, Several)
        said = self.called.get(name, name)
        self.sums = {n: s for n, s in self.sums.items() if n != name and name not in s.terms}
        if value.code != said:
            self.lines.append("    " * self.depth + f"{said} = {self.plain(value.code)}")
        self.env[name] = _called(value, said)
        self.forget(said)

    def returned(self, given: Value) -> None:
        parts = given.parts if isinstance(given, Several) else (given,)
        codes = [self.plain(self.finished(part, self.getitem.body[-1])) for part in parts]
        if isinstance(given, Several) and given.names:
            pairs = [f'"{k}": {code}' for k, code in zip(given.names, codes, strict=True)]
            self.lines.append(f"return {{{', '.join(pairs)}}}")
        else:
            self.lines.append(
                f"return [{', '.join(codes)}]"
                if isinstance(given, Several)
                else f"return {codes[0]}"
            )

    # -------------------------------------------------------------------------------------------- branches
    def branch(self, stmt: ast.If) -> None:
        match stmt.test:
            case ast.BoolOp(op=ast.And(), values=[first, second]) if not stmt.orelse:
                # `if self.train and random.random() < 0.5`
                one = self.value(first)
                if isinstance(one, Same):
                    self.switched(one, lambda: self.drawn(self.value(second), stmt), None)
                    return
        test = self.value(stmt.test)
        if isinstance(test, Same):
            other = (lambda: self.block(stmt.orelse)) if stmt.orelse else None
            self.switched(test, lambda: self.block(stmt.body), other)
        else:
            self.drawn(test, stmt)

    def switched(self, test: Same, body: object, other: object) -> None:
        """An ``if`` that is decided for all items at once."""
        before, places = dict(self.env), []
        for word, block in ((f"if {self.plain(test.code)}:", body), ("else:", other)):
            self.env = dict(before)
            if callable(block):
                self.lines.append("    " * self.depth + word)
                start = len(self.lines)
                self.depth += 1
                block()
                if len(self.lines) == start:
                    self.lines.append("    " * self.depth + "pass")
                self.depth -= 1
            places.append(self.env)
            self.forget()
        one, two = places
        both = [n for n in one if n in two]
        self.env = {n: self.either(one[n], two[n], self.called.get(n, n)) for n in both}

    def drawn_name(self, test: Value, node: ast.AST) -> str:
        """The variable that holds for which items a draw decides so."""
        if not isinstance(test, Draw):
            raise Refusal(
                f"{at(node)} decides by something else than draws what is done to an item"
            )
        name = self.fresh("chosen")
        code = test.code if test.kind == "bool" else f"({test.code}) != 0"
        self.lines.append("    " * self.depth + f"{name} = {self.plain(code)}")
        return name

    def drawn(self, test: Value, stmt: ast.If) -> None:
        """An ``if`` that is decided for each item by itself."""
        name = self.drawn_name(test, stmt.test)
        outer, known = self.mask, set(self.env)
        for mask, block in ((name, stmt.body), (f"~{name}", stmt.orelse)):
            if block:
                self.mask = f"({outer}) & ({mask})" if outer else mask
                self.block(block)
            self.mask = outer
        self.env = {n: v for n, v in self.env.items() if n in known}

    # -------------------------------------------------------------------------------------------- expressions
    def value(self, expr: ast.expr) -> Value:
        match expr:
            case ast.Constant(value=value):
                return Same(repr(value), value)
            case ast.Name(id=name) if name in self.env:
                return self.env[name]
            case ast.Name() | ast.Attribute():
                return self.shared(expr)
            case ast.Tuple(elts=elts):
                return Several(tuple(self.value(e) for e in elts))
            case ast.Dict(keys=keys, values=values) if all(
                isinstance(getattr(k, "value", None), str) for k in keys
            ):
                names = tuple(getattr(k, "value", "") for k in keys)
                return Several(tuple(self.value(v) for v in values), names)
            case ast.Subscript():
                return self.subscript(expr)
            case ast.Call():
                return self.call(expr)
        return self.operation(expr)

    def operation(self, expr: ast.expr) -> Value:
        match expr:
            case ast.BinOp(left=left, op=op, right=right):
                return self.two(self.value(left), op, self.value(right), expr)
            case ast.UnaryOp(op=op, operand=inner):
                return self.one(op, self.value(inner), expr)
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self.compared(self.value(left), op, self.value(right), expr)
            case ast.BoolOp(op=op, values=values):
                return self.joined(op, [self.value(v) for v in values], expr)
            case ast.IfExp(test=test, body=body, orelse=other):
                return self.conditional(self.value(test), self.value(body), self.value(other), expr)
        raise Refusal(f"{at(expr)} has no form for batches")

    def shared(self, expr: ast.Name | ast.Attribute) -> Value:
        """What all items share: a constant, an attribute of the dataset, a small array of the module."""
        match expr:
            case ast.Attribute(value=inner, attr="T"):
                return self.turned(self.value(inner), expr)
            case ast.Attribute(value=inner, attr="shape"):
                return Several(tuple(self.sides(expr, None)))
            case ast.Name(id=name) if name == self.index and self.by_index:
                return Draw(self.root_index, "int", 0, index=True)
            case ast.Name(id=name) if name == self.index:
                raise Refusal(f"{at(expr)} uses `{name}` for something else than to index arrays")
            case ast.Name(id=name) if name == self.this:
                raise Refusal(f"{at(expr)} hands on the dataset itself")
            case ast.Name(id=name) if name in self.own:
                raise Refusal(f"{at(expr)}: what `{name}` is is not known")
        is_here = source_of(expr) is source_of(self.getitem)
        code = self.path(expr) if _is_of(expr, self.this) else ast.unparse(expr)
        if is_here and (array := constant(self.script, expr)) is not None:
            known = next((p for c, p in self.fixed if c == code), "")
            if not known:
                known = self.fresh(code.rsplit(".", 1)[-1].lower())
                self.fixed.append((code, known))
            assert array.rank is not None
            return Fixed(known, array.rank, array.dtype)
        if not is_here and not _is_of(expr, self.this):
            if type(value := const(self.script.values(expr))) in (int, float, str, bool):
                return Same(repr(value), value)
            raise Refusal(f"{at(expr)} is of another file")
        match expr:
            case ast.Attribute(value=ast.Name(id=name)) if name != self.this:
                if not isinstance(const(self.script.values(expr)), (int, float, str)):
                    raise Refusal(f"{at(expr)}: what `{code}` is is not known")
        return Same(code, self.number(expr))

    def number(self, expr: ast.expr) -> object:
        """The constant that it is; ``int`` or ``float`` for an option of that type; ``...`` where it may be anything."""
        found = self.script.values(expr)
        if (value := const(found)) is not ...:
            return value
        values = [v for t in found for v in _constants(t)]
        if found and ... not in values and values:
            types = {type(v) for v in values}
            return types.pop() if len(types) == 1 else ...
        return ...

    def attribute(self, expr: ast.expr) -> str:
        """``images`` for ``self.images[index]``."""
        match expr:
            case ast.Subscript(
                value=ast.Attribute(value=ast.Name(id=this), attr=attr), slice=ast.Name(id=index)
            ) if (this, index) == (self.this, self.index) and self.within_this == self.root:
                return attr
        return ""

    def row(self, expr: ast.Subscript, attr: str, name: str = "") -> Items:
        """Rows of what is stored under an attribute."""
        known = self.held(expr, attr, name)
        array = known.array
        code = f"{known.name}[{self.root_index}]" if self.by_index else known.name
        return Items(
            code,
            attr,
            dtype=array.dtype,
            made=array.dtype,
            numpy=not array.tensor,
            shape=attr,
            taken=array.tensor,
        )

    def held(self, expr: ast.Subscript, attr: str, name: str = "") -> Stored:
        """What is stored under an attribute, and the parameter for it."""
        known = self.stored.get(attr)
        if known is None:
            array = array_of(self.script, expr.value)
            if array is None or not array.plain:
                raise Refusal(
                    f"what `{ast.unparse(expr.value)}` holds is not known to be one array or tensor"
                )
            if array.rank is not None:
                self.ranks[attr] = array.rank - 1
            name = name or (self.fresh(attr) if attr in self.taken else attr)
            self.taken.add(name)
            known = self.stored[attr] = Stored(attr, name, array)
        return known

    def of_stored(self, expr: ast.Subscript) -> Items | None:
        """``self.data[index + 1]``, ``self.data[index : index + self.length]``."""
        match expr.value:
            case ast.Attribute(value=ast.Name(id=this), attr=attr) if (
                self.by_index and this == self.this and self.within_this == self.root
            ):
                pass
            case _:
                return None
        first, *rest = getattr(expr.slice, "elts", [expr.slice])
        match first:
            case ast.Slice(lower=ast.expr() as lower, upper=ast.expr() as upper, step=None):
                start = self.value(lower)
                if not isinstance(start, Draw):
                    return None
                known = self.held(expr, attr)
                if known.array.is_list:
                    raise Refusal(f"{at(expr)} takes parts of a list")
                length = self.length(lower, upper, expr)
                self.within(start, length, expr)
                steps = f"{self.torch}.arange({length.code}, device={self.device})"
                code, more = f"{known.name}[({start.code})[:, None] + {steps}]", 1
            case ast.Slice():
                return None
            case _:
                start = self.value(first)
                if not isinstance(start, Draw) or start.kind != "int" or not start.index:
                    return None
                known = self.held(expr, attr)
                code, more = f"{known.name}[{start.code}]", 0
        array = known.array
        items = Items(code, attr, more, array.dtype, array.dtype, not array.tensor, shape=self.new_shape(), taken=array.tensor)  # fmt: skip
        return self.columns(items, rest, expr) if rest else items

    def columns(self, items: Items, rest: list[ast.expr], node: ast.AST) -> Items:
        """``[..., :, 0]``: of the dimensions behind the first, which a window has."""
        plain, fewer = [":"] * items.more, 0
        for part in rest:
            match part:
                case ast.Slice(lower=lower, upper=upper, step=None):
                    plain.append(self.plain_slice(lower, upper, node))
                case _ if type(place := const(self.script.values(part))) is int:
                    plain.append(str(place))
                    fewer += 1
                case _:
                    raise Refusal(f"{at(node)} has no form for batches")
        if all(p == ":" for p in plain):
            return items
        code = f"({items.code})[:, {', '.join(plain)}]"
        return replace(items, code=code, more=items.more - fewer, laid_out=False)

    def subscript(self, expr: ast.Subscript) -> Value:
        if attr := self.attribute(expr):
            return self.row(expr, attr)
        if (items := self.of_stored(expr)) is not None:
            return items
        match expr:
            case ast.Subscript(value=ast.Attribute(value=inner, attr="shape"), slice=index):
                place = const(self.script.values(index))
                if isinstance(place, int):
                    return self.side(self.items(self.value(inner), expr), place)
                raise Refusal(f"{at(expr)} has no form for batches")
        base = self.value(expr.value)
        if isinstance(base, Several):
            place = const(self.script.values(expr.slice))
            if isinstance(place, int) and abs(place) < len(base.parts):
                return base.parts[place]
        if isinstance(base, Draw) and const(self.script.values(expr.slice)) == 0:
            return base  # ``torch.rand(1)[0]``
        return self.cut(self.items(base, expr), getattr(expr.slice, "elts", [expr.slice]), expr)

    def sides(self, expr: ast.expr, count: int | None) -> list[Same]:
        """The sides that ``image.shape`` or ``image.shape[:2]`` gives."""
        match expr:
            case ast.Attribute(value=inner, attr="shape"):
                items = self.items(self.value(inner), expr)
                if count is not None:
                    self.learn(items, count)
                if (rank := self.rank(items)) is None:
                    raise Refusal(f"{at(expr)}: how many dimensions it has is not known")
                return [self.side(items, n) for n in range(rank)]
            case ast.Subscript(
                value=ast.Attribute(value=inner, attr="shape"),
                slice=ast.Slice(lower=lower, upper=upper, step=None),
            ):
                items = self.items(self.value(inner), expr)
                first = 0 if lower is None else const(self.script.values(lower))
                last = None if upper is None else const(self.script.values(upper))
                if first == 0 and type(last) is int and last > 0:
                    return [self.side(items, n) for n in range(last)][: count or last]
                if type(first) is int and last is None and count is not None:
                    if first > 0:
                        self.learn(items, first + count)
                        return [self.side(items, first + n) for n in range(count)]
                    if first == -count:
                        return [self.side(items, first + n) for n in range(count)]
        raise Refusal(f"{at(expr)} has no form for batches")

    # -------------------------------------------------------------------------------------------- functions of the project
    def project(self, call: ast.Call) -> Value | None:
        """What a function of the project gives, whose code is written here; None for anything else."""
        found = self.script.values(call.func)
        functions = {id(f.node): f for t in found for f in _functions(t)}
        if not functions:
            return None
        if len(functions) > 1 or not all(_functions(t) or t == Const(None) for t in found):
            raise Refusal(f"{at(call)} may call one function or another")
        (func,) = functions.values()
        node = func.node
        match node:
            case ast.FunctionDef(args=ast.arguments(vararg=None, kwonlyargs=[], kwarg=None)) if (
                not node.decorator_list and node not in self.inside and len(self.inside) < 5
            ):
                return self.written_here(call, node, func.owner is not None)
        raise Refusal(f"{at(call)}: `{ast.unparse(call.func)}` has no form for batches")

    def written_here(self, call: ast.Call, function: ast.FunctionDef, bound: bool) -> Value:
        this, index = "", ""
        names = [a.arg for a in function.args.args]
        env: dict[str, Value] = {}
        if bound:
            # A method, or an object that is called.
            this = self.path(call.func.value if is_method(call, function.name) else call.func)
            names = names[1:]
        given: dict[str, ast.expr] = dict(zip(names, call.args, strict=False))
        given |= {k.arg: k.value for k in call.keywords if k.arg}
        spare = dict(zip(reversed(names), reversed(function.args.defaults), strict=False))
        for name in names:
            value = given.get(name, spare.get(name))
            match value:
                case ast.Name(id=passed) if passed == self.index and this == self.root:
                    index = name
                case ast.expr():
                    env[name] = self.value(value)
        if (
            len(call.args) > len(names)
            or set(given) - set(names)
            or len(env) + bool(index) < len(names)
        ):
            raise Refusal(f"{at(call)} has no form for batches")
        return self.apart(function, this, index, env)

    def apart(
        self, function: ast.FunctionDef, this: str, index: str, env: dict[str, Value]
    ) -> Value:
        """The code of a function, with variables of its own."""
        kept = (
            "sums",
            "this",
            "index",
            "within_this",
            "own",
            "env",
            "called",
            "mask",
            "given",
            "base",
        )
        before = {name: getattr(self, name) for name in kept}
        parameters = [a.arg for a in function.args.args]
        self.own = stored_in(function)
        self.called = {n: self.fresh(n) for n in sorted(self.own)}
        self.env, self.mask, self.base, self.sums = {}, "", self.depth, {}
        self.this = parameters[0] if this else ""
        self.within_this, self.index = this, index
        self.inside.append(function)
        for name, value in env.items():
            match value:
                case Items(code=code) | Draw(code=code) if (
                    name in self.own or not code.isidentifier()
                ):
                    self.called.setdefault(name, self.fresh(name))
                    self.emit(name, value)
                case _:
                    self.env[name] = value
        found = self.body(function)
        self.inside.pop()
        for name in kept:
            setattr(self, name, before[name])
        return found

    def path(self, owner: ast.expr) -> str:
        """An object that the dataset holds, as the method of the dataset calls it."""
        match owner:
            case ast.Attribute(value=inner, attr=attr):
                return f"{self.path(inner)}.{attr}"
            case ast.Name(id=found) if found == self.this and found:
                return self.within_this
        raise Refusal(f"{at(owner)}: `{ast.unparse(owner)}` has no form for batches")

    def not_listed(self, items: Items, node: ast.AST) -> None:
        known = self.stored.get(items.root)
        if known is None or known.array.is_list:
            raise Refusal(f"{at(node)} cuts images of a list, which may be of different sizes")


def _functions(thing: Thing) -> list[Func]:
    """The function of the project that a call of it runs."""
    match thing:
        case Func():
            return [thing]
        case Bound(func=func):
            return [func]
        case Inst(cls=cls):
            found = cls.find("__call__") or cls.find("forward") or ()
            return [f for f in found if isinstance(f, Func)]
    return []


def _only_indexes(name: ast.AST) -> bool:
    """The index of an item picks a row, or is handed on to a method that may do no more."""
    match parent_of(name):
        case ast.Subscript(value=ast.Attribute(), slice=index):
            return index is name
        case ast.Call(args=args):
            return name in args
        case ast.Attribute(attr="tolist") | ast.Assign():
            return True  # where it is a tensor
    return False


def _is_of(expr: ast.expr, name: str) -> bool:
    """``self.transform.p``."""
    match expr:
        case ast.Attribute(value=owner):
            return _is_of(owner, name)
        case ast.Name(id=found):
            return bool(name) and found == name
    return False


def _is_remark(stmt: ast.stmt) -> bool:
    """A docstring."""
    match stmt:
        case ast.Expr(value=ast.Constant()):
            return True
    return False


def _called(value: Value, name: str) -> Value:
    """What a variable holds once it is set."""
    match value:
        case Items() | Same() | Draw() | Fixed():
            return replace(value, code=name)
    return value


def _needed(lines: list[str]) -> list[str]:
    """The lines without those that set a variable for nobody: the end of a window whose length is known."""
    for line in reversed(lines):
        name, sign, _ = line.partition(" = ")
        others = [x for x in lines if x is not line]
        if sign and name.isidentifier() and not any(re.search(rf"\b{name}\b", x) for x in others):
            return _needed(others)
    return lines


def _constants(thing: Thing) -> list[object]:
    """The constants that a thing may be; ``...`` for anything else."""
    if isinstance(thing, Const):
        return [thing.value]
    if isinstance(thing, Arg):
        return [v for t in thing.default for v in _constants(t)] or [...]
    return [...]
