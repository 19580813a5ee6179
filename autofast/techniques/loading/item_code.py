"""The code that makes a whole batch of what ``__getitem__`` makes of one item, statement by
statement, with draws of its own for each item.

Arrays of an item become tensors with one dimension more, random numbers become vectors, and what
all items share stays as it is. An ``if`` that a draw decides becomes ``torch.where``. What has no
such form raises :class:`Refusal`. Nothing here asks how many items there are, or of which size: an
item that differs from the others in its shape could not be collated.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autofast.flow.scopes import loaded_in
from autofast.model.calls import pairs_of
from autofast.model.script import Script
from autofast.model.source import is_switched, live_block
from autofast.rule import Refusal
from autofast.techniques.loading.item_expressions import Expressions, Stored
from autofast.techniques.loading.item_values import (
    Draw,
    Fixed,
    Items,
    Same,
    Several,
    Value,
    no_form,
)
from autofast.techniques.loading.windows import Sum


class Statements(Expressions):
    """Assignments, conditions, returns."""

    def body(self, function: ast.FunctionDef) -> Value:
        """The statements of a function; gives what it returns."""
        self.given = None
        self.block(function.body)
        if self.given is None:
            raise Refusal(f"`{function.name}` does not end in one return")
        return self.given

    def block(self, body: Sequence[ast.stmt]) -> None:
        for stmt in body:
            if is_switched(stmt):
                self.block(live_block(stmt))
            elif self.given is not None:
                raise Refusal("stands below its return", stmt)
            elif not _is_remark(stmt):
                self.statement(stmt)

    def statement(self, stmt: ast.stmt) -> None:
        match stmt:
            case ast.If(test=ast.Call(func=func, args=[ast.Name(id=name)])) if (
                name == self.index and self.script.library_name(func) == "torch.is_tensor"
            ):
                pass  # where it is: ``idx = idx.tolist()``
            case ast.If():
                self.branch(stmt)
            case ast.Return(value=ast.expr() as value) if not self.depth and not self.mask:
                self.given = self.value(value)
            case _:
                self.assignment(stmt)

    def assignment(self, stmt: ast.stmt) -> None:
        match stmt:
            case ast.Assign(targets=[target], value=value):
                self.assigned(target, value)
            case ast.AugAssign(target=ast.Name(id=name) as target, op=op, value=value):
                if name not in self.env:
                    raise Refusal(f"changes `{name}`, which is not made here", stmt)
                self.emit(name, self.in_place(self.env[name], op, self.value(value), target))
            case _:
                raise no_form(stmt)

    def assigned(self, target: ast.expr, value: ast.expr) -> None:
        pairs = pairs_of(target, value)
        names = [getattr(t, "id", "") for t, _ in pairs]
        for n, (_, part) in enumerate(pairs):
            if loaded_in(part) & set(names[:n]):
                raise Refusal("exchanges variables", target)
        for one, part in pairs:
            match one:
                case ast.Name(id=name):
                    self.bound(name, part)
                case ast.Tuple(elts=elts):
                    self.unpacked(elts, part)
                case _:
                    raise no_form(target)

    def bound(self, name: str, value: ast.expr) -> None:
        """A variable: what is stored under it becomes a parameter of that name."""
        attr = self.attribute(value)
        known = name in self.env or name == self.index
        new = attr not in self.stored and not known and not self.depth and not self.mask
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
            raise no_form(value)
        names = [getattr(target, "id", "") for target in targets]
        for n, (name, part) in enumerate(zip(names, found, strict=True)):
            read = loaded_in(ast.parse(getattr(part, "code", ""), mode="eval"))
            if read & set(names[:n]):
                raise Refusal("exchanges variables", value)
            if name and name != "_":
                self.emit(name, part)

    def emit(self, name: str, value: Value) -> None:
        """Sets a variable; where that is for some items only, the others keep what they had."""
        kept = [part for v in self.env.values() if isinstance(v, Several) for part in v.parts]
        stale = any(_is_used(name, [getattr(part, "code", "")]) for part in kept)
        is_dict = isinstance(value, Several) and value.names and not self.depth and not self.mask
        plain = is_dict or not isinstance(value, Several)
        if name in ("", self.index) or stale or not plain:
            raise Refusal("its __getitem__ has no form for batches")
        if self.mask and name in self.env:
            value = self.chosen(self.mask, value, self.env[name], name)
        if isinstance(value, (Fixed, Several)):
            self.env[name] = value
            return
        self.sums = {n: s for n, s in self.sums.items() if n != name and name not in s.terms}
        if value.code != name:
            self.lines.append("    " * self.depth + f"{name} = {self.plain(value.code)}")
        self.env[name] = _called(value, name)
        self.forget(name)

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
        self.env = {n: self.either(one[n], two[n], n) for n in both}

    def drawn_name(self, test: Value, node: ast.AST) -> str:
        """The variable that holds for which items a draw decides so."""
        if not isinstance(test, Draw):
            raise Refusal("decides by something else than draws what is done to an item", node)
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


@dataclass(frozen=True)
class Form:
    """The method: ``code``, which gets the ``stored`` rows of a batch.

    ``draws``: it draws random numbers; ``computes``: it rounds otherwise than the host may.
    """

    code: str
    stored: tuple[Stored, ...]
    draws: bool
    computes: bool


def form_of(script: Script, getitem: ast.FunctionDef, torch: str, name: str) -> Form:
    """The form of items' code for whole batches; raises Refusal."""
    ranks: dict[str, int] = {}
    # What is known of dimensions further down helps further up, the second time.
    Code(script, getitem, torch, ranks).method(name)
    return Code(script, getitem, torch, ranks).method(name)


class Code(Statements):
    """Walks the statements and writes them for a batch."""

    def method(self, name: str) -> Form:
        self.returned(self.body(self.getitem))
        first = next(iter(self.stored.values()), None)
        if first is None:
            raise Refusal("its items are not rows of arrays in memory")
        given = self.fresh("arrays")
        names = ", ".join(s.name for s in self.stored.values())
        taken = [f"{names}{',' * (len(self.stored) == 1)} = {given}"]
        rest = [
            f"{name} = {self.torch}.as_tensor({code}, dtype={self.torch}.float32, device={self.device})"
            for code, name in self.fixed
        ]
        if _is_used(self.each, self.lines):
            rest.append(f"{self.each} = {self.torch}.arange({self.n}, device={self.device})")
        every = ((self.n, f"len({first.name})"), (self.device, f"{first.name}.device"))
        pairs = [pair for pair in every if _is_used(pair[0], [*rest, *self.lines])]
        if pairs:
            taken.append(f"{', '.join(n for n, _ in pairs)} = {', '.join(c for _, c in pairs)}")
        draws = ", each with draws of its own" * self.draws
        said = f'"""What __getitem__ makes of one item, for a whole batch{draws}."""'
        body = [said, *taken, *rest, *_needed(self.lines)]
        text = f"def {name}({self.this}, {given}):\n" + "".join(f"    {x}\n" for x in body)
        return Form(text, tuple(self.stored.values()), self.draws, self.computes)

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


def _needed(lines: list[str]) -> list[str]:
    """The lines without those that set a variable for nobody: the end of a window."""
    for line in reversed(lines):
        name, sign, _ = line.partition(" = ")
        others = [x for x in lines if x is not line]
        if sign and name.isidentifier() and not _is_used(name, others):
            return _needed(others)
    return lines


def _is_used(name: str, lines: list[str]) -> bool:
    return any(re.search(rf"(?<![.\w]){name}\b", line) for line in lines)
