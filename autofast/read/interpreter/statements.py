"""Statements: what they bind, which way they go on."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from autofast.model.calls import is_name
from autofast.model.events import BranchFrame, GuardFrame, TryFrame, WithFrame
from autofast.model.kinds import entered
from autofast.model.source import children, walk
from autofast.model.syntax import LOOPS, TURN_ENDS, is_unary
from autofast.model.tensors import binary
from autofast.model.values import (
    NONE,
    NOTHING,
    NUMBER,
    Arguments,
    Cls,
    Const,
    Dict,
    Env,
    Ext,
    Given,
    Inst,
    Method,
    Num,
    Seq,
    Tensor,
    Thing,
    Unknown,
    Values,
    any_of,
    const,
    is_named,
    ordered,
    things as values,
)
from autofast.read.interpreter.definitions import Definitions
from autofast.read.interpreter.expressions import added_texts
from autofast.read.library.containers import extend, shuffle
from autofast.read.library.module_parts import displace_modules, is_container
from autofast.read.library.protocols import drop_attribute, operate, unwind_stack
from autofast.read.state.core import NotYet, NoValue, join, merge
from autofast.read.state.type_tests import is_one_of, is_possible, kinds, tested


class Statements(Definitions):
    """Everything but definitions, imports and loops."""

    def block(self, body: Iterable[ast.stmt], env: Env) -> bool:
        """Interpret statements; True where the end is not reached (return, raise, break,
        continue).
        """
        noted = len(self.left)
        opened = [(part, len(part)) for part in (self.stack, self.records, self.tries)]
        try:
            for stmt in body:
                if self.stmt(stmt, env):
                    return True
                if self.tries and (between := self.tries[-1]) is not None:
                    for name, found in env.vars.items():
                        if (old := between.get(name)) is not found:
                            between[name] = found if old is None else join(old, found)
                self.left.extend((len(self.stack), kind) for kind in ways_out(stmt))
            return False
        except NotYet:
            for part, length in opened:
                del part[length:]
            return True
        finally:
            del self.left[noted:]

    def stmt(self, node: ast.stmt, env: Env) -> bool:
        kind = type(node)
        method: Any = self.methods.get(kind)
        if method is None:
            method = getattr(self, "stmt_" + kind.__name__, self.stmt_of_expressions)
            self.methods[kind] = method
        return bool(method(node, env))

    def stmt_of_expressions(self, node: ast.stmt, env: Env) -> None:
        for child in children(node):
            if isinstance(child, ast.expr):
                self.expr(child, env)

    def stmt_Expr(self, node: ast.Expr, env: Env) -> None:
        self.expr(node.value, env)

    def stmt_Assign(self, node: ast.Assign, env: Env) -> None:
        found = self.expr(node.value, env)
        for target in node.targets:
            self.assign(target, found, env, node.value)

    def stmt_AnnAssign(self, node: ast.AnnAssign, env: Env) -> None:
        if node.value is not None:
            self.assign(node.target, self.expr(node.value, env), env, node.value)
        elif env.kind == "class" and isinstance(node.target, ast.Name):
            env.vars.setdefault(node.target.id, NOTHING)

    def stmt_AugAssign(self, node: ast.AugAssign, env: Env) -> None:
        old = self.expr(node.target, env)
        right = self.expr(node.value, env)
        result = self.extended(node, old, right) or operate(self, node, old, right)
        result = result or binary(old, right, type(node.op).__name__)
        self.emit("augment", node, result=right, old=old)
        self.assign(node.target, result, env, node.value)

    def extended(self, node: ast.AugAssign, old: Values, right: Values) -> Values:
        """``layers += [a, b]`` on lists, also of modules; empty where neither side is one."""
        if isinstance(node.op, ast.BitOr) and any_of(old, Dict):
            for thing in self.choices(old):
                if isinstance(thing, Dict):
                    for other in right:
                        self.spread(thing, other, len(right) == 1 and not self.weak(thing.made))
            return old
        if not isinstance(node.op, ast.Add):
            return NOTHING
        if text := added_texts(old, right):
            return text
        lists = [t for t in self.choices(old) if isinstance(t, Seq) or is_container(t)]
        for thing in lists:
            if isinstance(thing, Seq):
                extend(self, thing, right)
            else:
                added = Arguments(node, [Given(right, node.value)])
                self.call_thing(Method(thing, "extend"), added, node)
        return old if lists else NOTHING

    def stmt_Delete(self, node: ast.Delete, env: Env) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                env.vars.pop(target.id, None)
            elif isinstance(target, ast.Attribute):
                for thing in self.choices(self.expr(target.value, env)):
                    drop_attribute(self, thing, target.attr, target)
            elif isinstance(target, ast.Subscript):
                key = const(self.expr(target.slice, env))
                for thing in self.choices(self.expr(target.value, env)):
                    if isinstance(thing, Dict):
                        self.drop_entry(thing, key)
                    elif isinstance(thing, Seq):
                        shuffle(self, thing)
                    elif isinstance(thing, Inst) and thing.cls.find("__delitem__"):
                        self.call_method_of(thing, "__delitem__", [NUMBER], target)
                    elif is_container(thing):
                        displace_modules(self, thing)

    def stmt_Global(self, node: ast.Global, env: Env) -> None:
        env.globals.update(node.names)

    def stmt_Nonlocal(self, node: ast.Nonlocal, env: Env) -> None:
        env.nonlocals.update(node.names)

    def stmt_Return(self, node: ast.Return, env: Env) -> bool:
        found = self.expr(node.value, env) if node.value is not None else NONE
        self.records[-1].returns = join(self.records[-1].returns, found)
        self.emit("return", node, result=found)
        return True

    def stmt_Raise(self, node: ast.Raise, env: Env) -> bool:
        for part in (node.exc, node.cause):
            if part is not None:
                self.expr(part, env)
        return True

    def stmt_Break(self, node: ast.Break, env: Env) -> bool:
        self.emit("break", node)
        self.records[-1].breaks.append(dict(env.vars))
        return True

    def stmt_Continue(self, node: ast.Continue, env: Env) -> bool:
        self.emit("continue", node)
        self.records[-1].continues.append(dict(env.vars))
        return True

    def stmt_If(self, node: ast.If, env: Env) -> bool:
        test = self.truth(self.expr(node.test, env), node.test, env)
        if test is not None:
            self.stack.append(
                GuardFrame(node) if _is_main_guard(node) else BranchFrame(node, test, True)
            )
            try:
                return self.block(node.body if test else node.orelse, env)
            finally:
                self.stack.pop()
        before = env.vars
        ends = []
        for arm in self.arms(node, env):
            if not self.block(node.body if arm else node.orelse, env):
                ends.append(env.vars)
        env.vars = merge(ends) if ends else before
        return not ends

    def narrow(self, test: ast.expr, taken: bool, env: Env) -> bool:
        """In ``if x is None`` / ``if x`` the variable is known better inside; says whether its type
        lets it come here.
        """
        fits = True
        negated = False
        while is_unary(test, ast.Not):
            test, negated = test.operand, not negated
        truth = taken is not negated
        if isinstance(test, ast.Name) and test.id in env.vars:
            keep = frozenset(
                t for t in env.vars[test.id] if not isinstance(t, Const) or bool(t.value) is truth
            )
            env.vars[test.id] = keep or env.vars[test.id]
        match test:
            case ast.Compare(
                left=ast.Name(id=name), ops=[asks], comparators=[ast.Constant(value=None)]
            ) if name in env.vars:
                is_none = isinstance(asks, (ast.Is, ast.Eq)) is truth
                keep = frozenset(t for t in env.vars[name] if (t == Const(None)) is is_none)
                env.vars[name] = keep or env.vars[name]
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And if truth else ast.Or):
            for part in test.values:
                fits = min(self.narrow(part, truth, env), fits)
        if (asked := tested(test)) is not None:
            fits = self.narrow_type(asked, truth, env)
        match test:
            case ast.Call(func=ast.Name(id="issubclass"), args=[asked_of, parent]) if truth:
                self.narrow_class(asked_of, parent, env)
        return fits

    def narrow_type(
        self, test: tuple[ast.Name, ast.expr, bool, bool], truth: bool, env: Env
    ) -> bool:
        """Below ``if isinstance(name, types)``: what the variable may hold there, and whether
        anything is.
        """
        name, types, positive, exactly = test
        asked = kinds(self.at.get(types, NOTHING))
        if asked is not None and name.id in env.vars:
            have = env.vars[name.id]
            other = positive is not truth
            keep = frozenset(t for t in have if is_one_of(t, asked, exactly) is not other)
            if ("tensor" in asked) is other:
                no = (t.but(sure=None) if isinstance(t, Tensor) else t for t in keep or have)
                env.vars[name.id] = frozenset(no)
            else:
                env.vars[name.id] = keep or have
            # a model may hold more layers than are known
            return any("." in a for a in asked) or is_possible(have, keep)
        return True

    def narrow_class(self, name: ast.expr, parent: ast.expr, env: Env) -> None:
        """Below ``if issubclass(name, parent)``."""
        parents = {t for t in self.at.get(parent, NOTHING) if isinstance(t, Cls)}
        if isinstance(name, ast.Name) and name.id in env.vars and parents:
            keep = frozenset(
                t for t in env.vars[name.id] if isinstance(t, Cls) and parents & {t, *t.ancestors()}
            )
            env.vars[name.id] = keep or env.vars[name.id]

    def truth(self, found: Values, test: ast.expr, env: Env) -> bool | None:
        """The truth of a test where it is a constant of the program, not an option of it."""
        value = const(found)
        return None if value is ... else bool(value)

    def stmt_With(self, node: ast.With | ast.AsyncWith, env: Env) -> bool:
        contexts = []
        for item in node.items:
            found = self.expr(item.context_expr, env)
            contexts.append((item.context_expr, found))
            bound = self.enter(found, item.context_expr)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, bound, env, None)
        before = dict(env.vars)
        swallows = any(
            not isinstance(t, (Tensor, Seq, Num)) and self.swallows(t)
            for _, found in contexts
            for t in found
        )
        self.stack.append(WithFrame(node, tuple(contexts)))
        if swallows:
            self.stack.append(TryFrame(node, "body"))
        self.emit("with", node)
        grad = self.grad_default
        try:
            stopped = self.block(node.body, env)
        finally:
            del self.stack[len(self.stack) - 1 - swallows :]
        for expr, found in reversed(contexts):
            for thing in ordered(found):
                unwind_stack(self, thing, grad, expr)
                if isinstance(thing, Inst):
                    self.call_method_of(
                        thing,
                        "__exit__",
                        [values(Unknown("an exception, if there is one"))] * 3,
                        expr,
                    )
        if swallows:
            env.vars = merge([before, env.vars])
        return stopped and not swallows

    def enter(self, found: Values, expr: ast.expr) -> Values:
        """What ``with found as x`` binds."""
        bound = entered(
            frozenset(t for t in found if not (isinstance(t, Inst) and t.cls.find("__enter__")))
        )
        for thing in ordered(found):
            if isinstance(thing, Inst):
                bound |= self.call_method_of(thing, "__enter__", [], expr)
        return bound

    def swallows(self, thing: Thing) -> bool:
        """Whether a context may end an exception, so that its block need not run to the end."""
        if isinstance(thing, Inst):
            exits = [f.node for f in thing.cls.methods("__exit__")]
            return any(
                isinstance(n, ast.Return) and n.value is not None for f in exits for n in walk(f)
            )
        return is_named(thing, Ext, ("contextlib.suppress", "contextlib.ExitStack"))

    stmt_AsyncWith = stmt_With

    def stmt_Try(self, node: ast.Try, env: Env) -> bool:
        between = dict(env.vars)  # the variables where an exception may leave the body
        self.tries.append(between)
        self.stack.append(TryFrame(node, "body"))
        open_now = [(part, len(part)) for part in (self.stack, self.records, self.tries, self.left)]
        try:
            stopped = self.block(node.body, env)
        except NoValue:
            stopped = True
        for part, length in open_now:
            del part[length:]
        self.stack.pop()
        self.tries.pop()
        states = [between, env.vars]
        if not stopped:
            stopped = self.block(node.orelse, env)
        ends = [] if stopped else [env.vars]
        thrown = merge(states)
        for handler in node.handlers:
            env.vars = dict(thrown)
            if handler.type is not None:
                self.expr(handler.type, env)
            if handler.name:
                env.vars[handler.name] = values(Unknown("an exception"))
            self.stack.append(TryFrame(node, "handler"))
            if not self.block(handler.body, env):
                ends.append(env.vars)
            self.stack.pop()
            states.append(env.vars)
        if not node.finalbody:
            env.vars = merge(ends) if ends else env.vars
            return not ends
        env.vars = merge([*states, *ends])
        return self.block(node.finalbody, env) or not ends

    stmt_TryStar = stmt_Try

    def stmt_Match(self, node: ast.Match, env: Env) -> None:
        self.expr(node.subject, env)
        before, ends = env.vars, [env.vars]
        for case in node.cases:
            env.vars = dict(before)
            for name in walk(case.pattern):
                if isinstance(name, (ast.MatchAs, ast.MatchStar)) and name.name:
                    env.vars[name.name] = values(Unknown("matched by a pattern"))
            if case.guard is not None:
                self.expr(case.guard, env)
            self.stack.append(BranchFrame(case.pattern, True))
            if not self.block(case.body, env):
                ends.append(env.vars)
            self.stack.pop()
        env.vars = merge(ends)


_WAYS_OUT: dict[type[ast.stmt], str] = {
    ast.Return: "return",
    ast.Break: "loop",
    ast.Continue: "loop",
}


def ways_out(stmt: ast.stmt) -> list[str]:
    """What a statement may leave half-way: ``return`` (the function), ``loop``."""
    known: list[str] | None = getattr(stmt, "_af_ways_out", None)
    if known is None:
        found: set[str] = set()
        todo: list[tuple[ast.AST, bool]] = [(stmt, False)]
        while todo:
            node, in_loop = todo.pop()
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.expr)):
                continue
            if isinstance(node, ast.Return) or (isinstance(node, TURN_ENDS) and not in_loop):
                found.add(_WAYS_OUT[type(node)])
            inner = in_loop or isinstance(node, LOOPS)
            todo.extend((child, inner) for child in children(node))
        known = stmt._af_ways_out = sorted(found)  # type: ignore[attr-defined]
    return known


def _is_main_guard(node: ast.If) -> bool:
    return isinstance(node.test, ast.Compare) and is_name(node.test.left, "__name__")
