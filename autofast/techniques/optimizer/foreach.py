"""What a loop over parameters does to each of them, as operations that torch does to whole lists.

An operation reads and writes the tensors at one place of the lists only, so that doing it to all of
them before the next operation gives what the loop gives, also where the same parameter stands at
the same place of both lists. Below, how they are written.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace

from autofast.edit.edits import After, Before, Edits, Holes, Remove, Replace
from autofast.facts.computes import Computes
from autofast.facts.parameter_loops import PLAIN, ParameterLoop
from autofast.model.calls import is_method, is_same_code
from autofast.model.script import Script
from autofast.model.several import wordset
from autofast.model.source import nodes_in, source_of
from autofast.model.syntax import is_attribute, is_constant, is_operation
from autofast.model.values import Seq, Tensor, all_of
from autofast.rule import Refusal

COUNTED = (ast.Name, ast.Attribute, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Subscript)
FLOATING = wordset("{}.dtype.is_floating_point {}.is_floating_point() torch.is_floating_point({})")
PARTS = (ast.operator, ast.unaryop, ast.expr_context)


@dataclass(frozen=True, eq=False)
class Op:
    """``name`` of ``torch._foreach_...`` on the list of ``target``, with the list of ``other`` and
    a number.

    ``exact``: each number becomes the same as in the loop. ``new``: the loop gives the parameters
    new memory. ``low``: of ``clamp_`` of gradients, whose upper bound is the number. ``rest``: what
    is given is ``1 - number``.
    """

    name: str
    target: ast.expr
    other: ast.expr | None = None
    number: ast.expr | None = None
    negative: bool = False
    exact: bool = True
    new: bool = False
    low: ast.expr | None = None
    rest: bool = False


def body_operations(script: Script, loop: ParameterLoop) -> list[Op]:
    """What the body of the loop does; :class:`~autofast.rule.Refusal` without words where it does
    anything else.
    """
    found: list[Op] = []
    reader = Reader(script, loop)
    body, others = _parts(loop)
    for stmt in (s for s in body if s not in loop.taken):
        found += reader.statement(stmt)
    for stmt in others:
        reader.statement(stmt)
    return found


def _body(loop: ParameterLoop) -> list[ast.stmt]:
    """The statements, without the question whether there is a gradient, where nothing else is done
    than to that gradient.
    """
    match loop.node.body:
        case [
            ast.If(test=ast.Compare(left=held, ops=[ast.IsNot()]) as test, body=[only], orelse=[])
        ]:
            pass
        case [
            ast.If(
                test=ast.Compare(left=held, ops=[ast.Is()]) as test,
                body=[ast.Continue()],
                orelse=[],
            ),
            only,
        ]:
            pass
        case body:
            return body
    mine = loop.element(held)
    nothing = is_constant(test.comparators[0], None)
    uses = {loop.element(n) for n in nodes_in(only, ast.expr)}
    if mine is None or mine[1] != "grad" or not nothing or mine not in uses:
        raise Refusal
    return [only]


def _parts(loop: ParameterLoop) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """What is done to the tensors, of a state to those of floats, and to the others."""
    match loop.node.body:
        case [ast.If(test=test, body=floating, orelse=others)] if is_floating(loop, test):
            return floating, [s for s in others if not isinstance(s, (ast.Pass, ast.Continue))]
    return _body(loop), []


def is_floating(loop: ParameterLoop, test: ast.expr) -> bool:
    """``v.dtype.is_floating_point``, ``v.is_floating_point()``, of a state."""
    asked = (form.format(word) for form in FLOATING for word in loop.lists)
    return loop.is_of_states and ast.unparse(test) in asked


@dataclass
class Reader:
    script: Script
    loop: ParameterLoop

    def statement(self, stmt: ast.stmt) -> list[Op]:
        match stmt:
            case ast.Expr(value=ast.Call() as call):
                return self.chain(call)[1]
            case ast.AugAssign(target=target, op=op, value=value):
                name = {ast.Mult: "mul_", ast.Add: "add_", ast.Sub: "sub_", ast.Div: "div_"}
                if is_attribute(target) and target.attr != "data":
                    raise Refusal
                return [self.operation(name.get(type(op), ""), target, [value], {})]
            case ast.Assign(targets=[ast.Attribute(attr="data") as target], value=value) if (
                not self.loop.is_of_states  # whose tensors are views of the parameters
            ):
                self.written(target)
                return [replace(self.average(target, value), new=True)]
        raise Refusal

    def chain(self, call: ast.Call) -> tuple[ast.expr, list[Op]]:
        """``t.mul_(a).add_(...)``: the tensor, and the operations in their order."""
        named = {k.arg: k.value for k in call.keywords if k.arg is not None}
        if len(named) < len(call.keywords) or not is_method(call):
            raise Refusal
        receiver, name = call.func.value, call.func.attr
        before: list[Op] = []
        if isinstance(receiver, ast.Call) and self.loop.element(receiver) is None:
            receiver, before = self.chain(receiver)
        return receiver, [*before, self.operation(name, receiver, call.args, named)]

    def operation(
        self, name: str, target: ast.expr, args: list[ast.expr], named: dict[str, ast.expr]
    ) -> Op:
        """One call of a method, or an operator in its place."""
        kind = self.written(target)
        if kind == "grad":
            if name not in ("clamp_", "clip_"):
                raise Refusal
            low, high = self.bounds(args, named)
            return Op("clamp_", target, number=high, low=low)
        match name, args:
            case "mul_" | "div_", [number] if not named and self.is_number(number):
                return Op(name, target, number=number)
            case "lerp_", [other, number] if not named and self.source(other):
                return Op(name, target, other, self.number(number))
            case "copy_", [other] if not named and self.source(other):
                return Op(name, target, other)
            case "copy_", [value] if not named:
                return self.average(target, value)
            case "add_" | "sub_", [other] if self.source(other) and named.keys() <= {"alpha"}:
                if (number_ := named.get("alpha")) is not None:
                    self.number(number_)
                return Op("add_", target, other, number_, negative=name == "sub_")
            case "add_" | "sub_", [value] if not named:
                return self.scaled(name, target, value)
        raise Refusal

    def scaled(self, name: str, target: ast.expr, value: ast.expr) -> Op:
        """``t.add_(a * p)``, and ``t.add_(a * (p - t))``, which is an average."""
        number, other = self.product(value)
        if self.source(other):
            return Op("add_", target, other, number, negative=name == "sub_", exact=False)
        match other:
            case ast.BinOp(op=ast.Sub(), left=left, right=right):
                end, start = (left, right) if name == "add_" else (right, left)
                if self.source(end) and self.is_same(start, target):
                    return Op("lerp_", target, end, number, exact=False)
        raise Refusal

    # ------------------------------------------------------------------------- parts of expressions
    def average(self, target: ast.expr, value: ast.expr) -> Op:
        """``(1 - w) * t + w * p``, ``torch.lerp(t, p, w)``, ``torch.lerp(p, t, 1 - w)``"""
        if isinstance(value, ast.Call):
            return self.interpolation(target, value)
        if not is_operation(value, ast.Add):
            raise Refusal
        (a, x), (b, y) = self.product(value.left), self.product(value.right)
        if self.is_same(y, target):
            (a, x), (b, y) = (b, y), (a, x)
        if not self.is_same(x, target) or not self.source(y) or not _adds_to_one(self.script, a, b):
            raise Refusal
        return Op("lerp_", target, y, b, exact=False)

    def interpolation(self, target: ast.expr, call: ast.Call) -> Op:
        """``torch.lerp(t, p, w)``, or with its ends the other way round."""
        if not self.script.is_call(call, "torch.lerp") or len(call.args) != 3 or call.keywords:
            raise Refusal
        start, end, weight = call.args
        self.number(weight)
        if self.is_same(start, target) and self.source(end):
            return Op("lerp_", target, end, weight)
        if self.is_same(end, target) and self.source(start):
            return Op("lerp_", target, start, weight, exact=False, rest=True)
        raise Refusal

    def product(self, value: ast.expr) -> tuple[ast.expr, ast.expr]:
        """A number, and what it is multiplied with."""
        if is_operation(value, ast.Mult):
            for number, other in ((value.left, value.right), (value.right, value.left)):
                if self.is_number(number):
                    return number, other
        raise Refusal

    def bounds(self, args: list[ast.expr], named: dict[str, ast.expr]) -> tuple[ast.expr, ast.expr]:
        given = [*args, *(named[n] for n in ("min", "max") if n in named)]
        if len(given) != 2 or len(args) + len(named) != 2:
            raise Refusal
        return self.number(given[0]), self.number(given[1])

    def written(self, target: ast.expr) -> str:
        found = self.loop.element(target)
        if found is None:
            raise Refusal
        return found[1]

    def source(self, expr: ast.expr) -> bool:
        found = self.loop.element(expr)
        return found is not None and found[1] == "param"

    def is_same(self, expr: ast.expr, target: ast.expr) -> bool:
        return self.source(expr) and self.loop.element(expr) == self.loop.element(target)

    def number(self, expr: ast.expr) -> ast.expr:
        if not self.is_number(expr):
            raise Refusal
        return expr

    def is_number(self, expr: ast.expr) -> bool:
        """The same number in every turn: made of names and constants, and no tensor. A property
        that counts how often it is asked gives another one.
        """
        return (
            all_of(ast.walk(expr), *COUNTED, *PARTS)
            and not self.loop.mentions(expr)
            and not self.script.may_be(expr, Tensor, Seq)
            and self.script.analysis(Computes).only(expr)
        )


def _adds_to_one(script: Script, a: ast.expr, b: ast.expr) -> bool:
    """``a`` is ``1 - b``, or the other way round; or both are constants."""
    known = script.constant(a), script.constant(b)
    if all_of(known, int, float):
        return abs(float(known[0]) + float(known[1]) - 1) < 1e-12
    return _is_rest(a, b) or _is_rest(b, a)


def _is_rest(a: ast.expr, b: ast.expr) -> bool:
    match a:
        case ast.BinOp(op=ast.Sub(), left=ast.Constant(value=1 | 1.0), right=right):
            return is_same_code(right, b)
    return False


def is_symmetric(op: Op) -> bool:
    """``clamp_(-c, c)``"""
    match op.low:
        case ast.UnaryOp(op=ast.USub(), operand=inner) if op.number is not None:
            return is_same_code(inner, op.number)
    return False


# ------------------------------------------------------------------------------------------ as code
@dataclass
class Writer:
    """The statements for ``done``, with ``TORCH`` for the module; lists that are used twice get a
    name.
    """

    script: Script
    loop: ParameterLoop
    done: list[Op]
    holes: Holes = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)  # of lists that the loop fills

    def edits(self, torch: str) -> Edits:
        """The changes, with ``torch`` for the module."""
        loop, body = self.loop.node, _parts(self.loop)[0]
        rest = [s for s in body if s not in self.loop.taken]
        if not self.fills:
            return (Replace(loop, self.text().replace("TORCH", torch), self.holes),)
        fresh = source_of(loop).fresh
        lists = fresh("targets", "averages", "updated"), fresh("sources", "current", "latest")
        self.names = dict(zip(self.loop.lists, lists, strict=True))
        plain = {w: ".data" * self.is_plain(w) for w in self.names}
        into = [f"{name}.append({word}{plain[word]})" for word, name in self.names.items()]
        asked = f"if {next(iter(self.names))}.is_floating_point():"
        code = "\n".join(map(self.call, self.done))
        return (
            Before(loop, f"{', '.join(self.names.values())} = [], []"),
            After(loop, code.replace("TORCH", torch), self.holes),
            *(
                [Before(body[0], "\n    ".join([asked, *into, "continue"]))]
                if body is loop.body and not self.loop.taken
                else [Replace(rest[0], "\n".join(into)), *map(Remove, rest[1:])]
            ),
        )

    @property
    def fills(self) -> bool:
        """Whether the loop stays, and fills lists."""
        return self.loop.is_of_states or bool(self.loop.taken)

    def is_plain(self, word: str) -> bool:
        """Whether the loop has the memory of a parameter alone: ``q.data``."""
        parts = [e for op in self.done for e in (op.target, op.other) if e is not None]
        mine = [e for e in parts if (self.loop.element(e) or ("",))[0] == word]
        return not self.loop.is_of_states and any(
            is_attribute(n, *PLAIN) for e in mine for n in ast.walk(e)
        )

    def text(self) -> str:
        """The statements in the place of the loop."""
        words = [self.list_of(e) for op in self.done for e in (op.target, op.other) if e]
        lines = []
        for word in dict.fromkeys(words):
            if words.count(word) > 1:
                wanted = ("targets", "parameters")[len(self.loop.lists) == 1]
                names = (wanted, f"{wanted}_list", f"more_{wanted}", f"other_{wanted}")
                free = (n for n in names if n not in self.names.values())
                self.names[word] = source_of(self.loop.node).fresh(*free)
                lines.append(f"{self.names[word]} = {word}")
        return "\n".join([*lines, *map(self.call, self.done)])

    def call(self, op: Op) -> str:
        words = [self.list_of(e) for e in (op.target, op.other) if e]
        args = [self.names.get(word, word) for word in words]
        if op.number is not None:
            number = ("1 - " if op.rest else "") + self.hole(op.number)
            args.append(("alpha=" if op.name == "add_" else "") + number)
        name = "sub_" if op.negative else op.name
        return f"TORCH._foreach_{name}({', '.join(args)})"

    def hole(self, expr: ast.expr) -> str:
        name = next((n for n, e in self.holes.items() if e is expr), f"e{len(self.holes)}")
        self.holes[name] = expr
        return f"{{{name}}}"

    def list_of(self, expr: ast.expr) -> str:
        """``[p.data for p in net.parameters()]``: never a gradient where the loop had none."""
        found = self.loop.element(expr)
        assert found is not None
        if self.fills:
            return found[0]
        call = self.loop.lists[found[0]]
        assert is_method(call)
        each = f"{self.hole(call.func.value)}.parameters()"
        word = "data" if any(getattr(n, "attr", "") in PLAIN for n in ast.walk(expr)) else ""
        if not word and self.records(expr):
            word = "data"
        return f"[{found[0]}.{word} for {found[0]} in {each}]" if word else f"list({each})"

    def records(self, expr: ast.expr) -> bool:
        """Whether autograd is on where a parameter is only read."""
        modes = {o.grad for o in self.script.log.ways("iterate", self.loop.node)}
        return not modes <= {"off", "inference"} and not any(expr is op.target for op in self.done)
