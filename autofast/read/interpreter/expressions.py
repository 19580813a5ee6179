"""Expressions: what each may be."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from typing import Any

from autofast.model.events import BranchFrame, WithFrame
from autofast.model.limits import MOST_ITEMS, WORK
from autofast.model.several import is_numeric, surely
from autofast.model.source import children, walk
from autofast.model.syntax import IDENTITY, MEMBERSHIP, is_read
from autofast.model.tensors import binary
from autofast.model.values import (
    NOTHING,
    NUMBER,
    Arg,
    Arguments,
    Cls,
    Const,
    Dict,
    Entry,
    Env,
    Ext,
    Func,
    Inst,
    Num,
    Seq,
    Tensor,
    Thing,
    Unknown,
    Values,
    any_of,
    certainly,
    const,
    is_const,
    is_scalar,
    of_kind,
    one,
    ordered,
    things as values,
)
from autofast.model.values.thing import Row
from autofast.ops.families import COMPARES
from autofast.read.interpreter.comprehensions import Comprehensions
from autofast.read.interpreter.named import by_key, is_namespace
from autofast.read.library import loaded_settings, module_parts
from autofast.read.library.containers import begin_dict, revive
from autofast.read.library.iteration import element, iterate
from autofast.read.library.protocols import operate
from autofast.read.state.core import TooDeep, join, merge


class Expressions(Comprehensions):
    """One method for each kind of expression but calls, comprehensions and lambdas."""

    def expr(self, node: ast.expr, env: Env) -> Values:
        self.steps += 1
        WORK.spend()
        if self.steps > self.limits[-1]:
            raise TooDeep
        kind = type(node)
        method: Any = self.methods.get(kind)
        if method is None:
            method = getattr(self, "expr_" + kind.__name__, self.generic)
            self.methods[kind] = method
        found: Values = method(node, env)
        old = self.at.get(node)
        if old is found:
            return found
        if not found and not isinstance(node, ast.Subscript):
            found = values(Unknown("it has no value here"))
        self.at[node] = found if old is None or old == found else join(old, found)
        return found

    def generic(self, node: ast.expr, env: Env) -> Values:
        for child in children(node):
            if isinstance(child, ast.expr):
                self.expr(child, env)
        return NUMBER

    def expr_Constant(self, node: ast.Constant, env: Env) -> Values:
        found = self.constants.get(node)
        if found is None:
            found = self.constants[node] = values(Const(node.value))
        return found

    def expr_Name(self, node: ast.Name, env: Env) -> Values:
        return self.lookup(node.id, env)

    def expr_Attribute(self, node: ast.Attribute, env: Env) -> Values:
        base = ordered(self.expr(node.value, env))
        found = [self.attribute(thing, node.attr, node) for thing in base]
        return join(one(found, NOTHING.union(*found)))

    def expr_Subscript(self, node: ast.Subscript, env: Env) -> Values:
        base = self.expr(node.value, env)
        index = self.expr(node.slice, env)
        if is_namespace(node.value) and is_read(node):
            return by_key(self, index, env, node)
        found: Values = NOTHING
        if (
            isinstance(node.value, ast.Attribute)
            and node.value.attr == "data"
            and index == values(Const(0))
        ):
            if surely(is_scalar(t) for t in base):
                return self._old_item(base, node)
        for thing in ordered(base):
            found |= self.subscript(thing, index, node)
        return join(found) or values(Unknown(f"`{ast.unparse(node)[:60]}`: the key is never set"))

    def _old_item(self, base: Values, node: ast.Subscript) -> Values:
        """``loss.data[0]``: how the number was read before torch 0.4; an IndexError since."""
        for thing in ordered(base):
            self.emit("sync", node, thing, Arguments(node), how="item", old=True)
        return frozenset(Num(t) for t in base if isinstance(t, Tensor))

    def expr_Tuple(self, node: ast.Tuple | ast.List | ast.Set, env: Env) -> Values:
        items: list[Values] = []
        rest: Values = NOTHING
        known = not isinstance(node, ast.Set)
        for part in node.elts:
            if isinstance(part, ast.Starred):
                inner = self.expr(part.value, env)
                single = one(inner)
                if isinstance(single, Seq) and single.items is not None and not single.elem:
                    items.extend(single.items)
                else:
                    known = False
                    for thing in inner:
                        rest |= element(self, thing, None)
            else:
                items.append(self.expr(part, env))
        plain = [const(i) for i in items]
        if isinstance(node, ast.Tuple) and known and items and all(v is not ... for v in plain):
            return values(Const(tuple(plain)))
        kind = type(node).__name__.lower()
        seq = self.intern(Seq, (node,), lambda: Seq(node, (), NOTHING, kind, tuple(self.stack)))
        if not known:
            seq.items, seq.elem = None, join(seq.elem, seq.any(), rest, *items)
        else:
            self.fill(seq, tuple(items))
        return values(seq)

    expr_List = expr_Tuple
    expr_Set = expr_Tuple

    def expr_Dict(self, node: ast.Dict, env: Env) -> Values:
        given = [
            (self.expr(value, env), NOTHING if key is None else self.expr(key, env))
            for key, value in zip(node.keys, node.values, strict=True)
        ]
        made, past = begin_dict(self, node)
        for key, value, (found, called) in zip(node.keys, node.values, given, strict=True):
            if key is None:
                for thing in ordered(found):
                    self.spread(made, thing, sure=len(found) == 1)
                if not found:
                    made.widen("it is extended by something that is not known")
                continue
            name = const(called)
            if name is ...:
                made.rest = join(made.rest, found)
                made.open = "a key is computed"
            else:
                made.entries[name] = [Entry(found, value, node, True)]
        revive(made, past)
        for name, entries in made.entries.items():
            self.keep(
                NOTHING.union(*(e.values for e in entries)),
                made,
                name if isinstance(name, (str, int)) else None,
            )
        return values(made)

    def expr_JoinedStr(self, node: ast.JoinedStr, env: Env) -> Values:
        pattern = ""
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                found = self.expr(part.value, env)
                for thing in found:
                    if isinstance(thing, Tensor):
                        self.emit("format", part, thing)
                pattern += _text(found) or "*"
            elif isinstance(part, ast.Constant):
                pattern += str(part.value)
        return values(Num(pattern=pattern))

    def expr_NamedExpr(self, node: ast.NamedExpr, env: Env) -> Values:
        found = self.expr(node.value, env)
        home = env
        while home.kind == "comprehension" and home.outer is not None:
            home = home.outer
        if home is not env and isinstance(node.target, ast.Name):
            self.bind(node.target.id, found | home.vars.get(node.target.id, NOTHING), home)
        else:
            self.assign(node.target, found, env, node.value)
        return found

    def expr_Starred(self, node: ast.Starred, env: Env) -> Values:
        return self.expr(node.value, env)

    def expr_Slice(self, node: ast.Slice, env: Env) -> Values:
        self.generic(node, env)
        return NUMBER

    def expr_IfExp(self, node: ast.IfExp, env: Env) -> Values:
        test = self.truth(self.expr(node.test, env), node.test, env)
        if test is not None:
            return self.expr(node.body if test else node.orelse, env)
        found: Values = NOTHING
        before = env.vars
        ends = []
        for arm in self.arms(node, env):
            found = join(found, self.expr(node.body if arm else node.orelse, env))
            ends.append(env.vars)
        env.vars = merge([before, *ends]) if _has_walrus(node) else before
        return found

    def expr_BoolOp(self, node: ast.BoolOp, env: Env) -> Values:
        found: Values = NOTHING
        is_and = isinstance(node.op, ast.And)
        before, depth, sure = env.vars, len(self.stack), True
        for i, part in enumerate(node.values):
            value = self.expr(part, env)
            known = const(value)
            if known is not ... and bool(known) is not is_and:
                found = join(found, value)
                break
            if known is ... or i == len(node.values) - 1:
                found = join(found, value)
            if known is ... and sure:  # what follows may not be evaluated
                sure, before = False, dict(env.vars)
                env.vars = dict(before)
                self.stack.append(BranchFrame(node, is_and))
            if not sure and i < len(node.values) - 1:
                self.narrow(part, is_and, env)
        del self.stack[depth:]
        if not sure:
            env.vars = merge([before, env.vars]) if _has_walrus(node) else before
        return found

    def expr_UnaryOp(self, node: ast.UnaryOp, env: Env) -> Values:
        found = self.expr(node.operand, env)
        value = const(found)
        if isinstance(node.op, ast.Not):
            return NUMBER if value is ... else values(Const(not value))
        if is_numeric(value) and not isinstance(node.op, ast.Invert):
            return values(Const(-value if isinstance(node.op, ast.USub) else value))
        return binary(found, NOTHING, "USub")

    def expr_BinOp(self, node: ast.BinOp, env: Env) -> Values:
        left, right = self.expr(node.left, env), self.expr(node.right, env)
        if (own := operate(self, node, left, right)) is not None:
            return own
        a, b = const(left), const(right)
        if isinstance(node.op, ast.Mod) and isinstance(a, str):
            for thing in right:
                if isinstance(thing, Tensor):
                    self.emit("format", node, thing)
        if isinstance(node.op, ast.Add) and (texts := added_texts(left, right)):
            return texts
        if isinstance(node.op, ast.Mod) and isinstance(a, str):
            return values(Num(pattern=re.sub(r"%[-+ #0-9.]*[a-zA-Z]", "*", a)))
        if is_numeric(a) and is_numeric(b):
            try:
                return values(Const(_FOLD[type(node.op)](a, b)))
            except (KeyError, ArithmeticError, ValueError):
                return NUMBER
        both = [t for t in (one(left), one(right)) if module_parts.is_container(t)]
        if isinstance(node.op, ast.Add) and len(both) == 2:
            return module_parts.joined(self, node, both)
        if isinstance(node.op, (ast.Add, ast.Mult)) and any(_is_row(t) for t in (*left, *right)):
            if tensors := _with_tensors(left, right):
                return binary(*tensors, type(node.op).__name__)
            return values(self.joined_rows(node, left, right))
        if isinstance(node.op, ast.BitOr) and any_of((*left, *right), Dict):
            made, past = begin_dict(self, node)
            for side in (left, right):
                for thing in ordered(side):
                    self.spread(made, thing, len(side) == 1)
            revive(made, past)
            return values(made)
        if isinstance(node.op, ast.Div) and isinstance(b, str):
            if path := loaded_settings.divided(left, right):
                return path
        return binary(left, right, type(node.op).__name__)

    def joined_rows(self, node: ast.BinOp, left: Values, right: Values) -> Seq:
        """``a + b`` and ``a * n`` of lists and tuples."""
        every: Values = NOTHING
        for thing in (*left, *right):
            if _is_row(thing):
                every |= (
                    element(self, thing, None)
                    if isinstance(thing, Seq)
                    else values(*(Const(v) for v in thing.value))  # type: ignore[attr-defined]
                )
            elif isinstance(thing, Unknown):
                every |= {thing}
        kind = next((t.kind for t in (*left, *right) if isinstance(t, Seq)), "tuple")
        a, b = one(left), one(right)
        seq = self.intern(
            Seq, (node, left, right), lambda: Seq(node, None, NOTHING, kind, tuple(self.stack))
        )
        if (
            isinstance(node.op, ast.Add)
            and isinstance(a, Seq)
            and isinstance(b, Seq)
            and a.exact is not None
            and b.exact is not None
        ):
            if seq.items is None and not seq.elem:
                seq.items = (*a.exact, *b.exact)
                return seq
        seq.items, seq.elem = None, join(seq.any(), every)
        if isinstance(node.op, ast.Add) and isinstance(a, Seq) and a.kind == kind == "tuple":
            seq.head = a.head if a.exact is None else (*a.exact, *_head(b))
        return seq

    def expr_Compare(self, node: ast.Compare, env: Env) -> Values:
        left = self.expr(node.left, env)
        rights = [self.expr(c, env) for c in node.comparators]
        a = const(left)
        b = const(rights[0]) if len(rights) == 1 else ...
        if len(rights) == 1 and a is not ... and b is not ...:
            try:
                return values(Const(bool(COMPARES[type(node.ops[0])](a, b))))
            except (KeyError, TypeError):
                return NUMBER
        if len(rights) == 1 and isinstance(node.ops[0], MEMBERSHIP):
            given = _is_given(a, one(rights[0]))
            if given is not None:
                return values(Const(given is isinstance(node.ops[0], ast.In)))
        if len(rights) == 1 and b is None and isinstance(node.ops[0], IDENTITY) and left:
            if all(
                (
                    t.is_never_none
                    if isinstance(t, Arg)
                    else isinstance(t, (Inst, Ext, Tensor, Seq, Dict, Func, Cls))
                    and getattr(t, "rank", "") != "?"
                )
                for t in left
            ):
                return values(Const(isinstance(node.ops[0], ast.IsNot)))
        if any(isinstance(t, Tensor) for side in (left, *rights) for t in side) and not isinstance(
            node.ops[0], (ast.Is, ast.IsNot, ast.In, ast.NotIn)
        ):
            return binary(left, join(*rights), "Compare")
        return NUMBER

    def expr_Await(self, node: ast.Await, env: Env) -> Values:
        return self.expr(node.value, env)

    def expr_Yield(self, node: ast.Yield, env: Env) -> Values:
        record = self.records[-1]
        record.is_generator = True
        if node.value is not None:
            record.yields = join(record.yields, self.expr(node.value, env))
        record.contexts += of_kind(self.stack[record.depth :], WithFrame)
        return values(Const(None), Unknown("what is sent to a generator"))

    def expr_YieldFrom(self, node: ast.YieldFrom, env: Env) -> Values:
        record = self.records[-1]
        record.is_generator = True
        record.yields = join(record.yields, iterate(self, self.expr(node.value, env), node))
        return values(Unknown("what a generator returns"))


def _head(thing: Thing | None) -> Row:
    """What certainly stands first in it."""
    return (thing.exact or thing.head) if isinstance(thing, Seq) else ()


def _is_given(key: Any, thing: Thing | None) -> bool | None:
    """Whether ``key`` is among the keywords ``**kwargs`` of the call that runs; None where it is
    not known.
    """
    if not isinstance(key, str) or not isinstance(thing, Dict):
        return None
    if not isinstance(thing.node, ast.arg) or thing.open or thing.rest:
        return None
    return True if thing.holds(key) else None if key in thing.entries else False


_FOLD: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: lambda a, b: a * b if abs(a) < 1e15 and abs(b) < 1e15 else 0 / 0,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: lambda a, b: a**b if abs(a) <= 1024 and abs(b) <= 64 else 0 / 0,
}


def _has_walrus(node: ast.expr) -> bool:
    known: bool | None = getattr(node, "_af_has_walrus", None)
    if known is None:
        known = node._af_has_walrus = any_of(walk(node), ast.NamedExpr)  # type: ignore[attr-defined]
    return known


def _is_row(thing: Thing) -> bool:
    return (isinstance(thing, Seq) and thing.kind in ("list", "tuple")) or is_const(thing, tuple)


def _with_tensors(left: Values, right: Values) -> tuple[Values, Values] | None:
    """Both sides without lists and dicts, where one is tensors and the other may be a number: what
    no list is added to or multiplied by.
    """
    for one_side, other in ((left, right), (right, left)):
        if certainly(one_side, Tensor) and not all(
            isinstance(t, Dict) or _is_row(t) for t in other
        ):
            rest = values(
                *(t for t in ordered(other) if not isinstance(t, Dict) and not _is_row(t))
            )
            return (left, rest) if one_side is left else (rest, right)
    return None


def added_texts(left: Values, right: Values) -> Values:
    """``a + b`` where a side is certainly a string; empty otherwise."""
    if texts := _added(left, right) or loaded_settings.added(left, right):
        return texts
    sides = [_text(left), _text(right)]
    if sides == [None, None]:
        return NOTHING
    text = "".join("*" if side is None else side for side in sides)
    return values(Num(pattern=re.sub(r"\*+", "*", text)))


def _added(left: Values, right: Values) -> Values:
    """The strings that ``a + b`` may be, where each is one of a few constants; empty otherwise."""
    sides = [[t.value for t in ordered(side) if isinstance(t, Const)] for side in (left, right)]
    known = [of_kind(side, str) for side in sides]
    if [len(side) for side in known] != [len(left), len(right)]:
        return NOTHING
    if len(left) * len(right) > MOST_ITEMS:
        return NOTHING
    return values(*(Const(a + b) for a in known[0] for b in known[1]))


def _text(found: Values) -> str | None:
    """What is known of a string: ``models.*_model``; None where it need not be one."""
    thing = one(found)
    if is_const(thing, str):
        return str(thing.value)
    if isinstance(thing, Num):
        return thing.pattern or None
    texts = (is_const(t, str) or isinstance(t, Num) and t.pattern for t in found)
    return "*" if surely(texts) else None
