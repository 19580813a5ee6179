"""Entering the project's functions: parameters, the run of the body, what it gives."""

from __future__ import annotations

import ast
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import replace

from autofast.model.events import CallFrame, Frame, WithFrame
from autofast.model.kinds import grad_mode_of, is_autocast, is_static
from autofast.model.limits import DEPTH, MOST_WRAPPERS, PASSES, SHARE
from autofast.model.source import nodes_in
from autofast.model.syntax import positional_parameters
from autofast.model.values import (
    COLLECTIONS,
    NONE,
    NOTHING,
    Arguments,
    ByName,
    Const,
    Dict,
    Env,
    Ext,
    Func,
    Given,
    Method,
    Num,
    Ref,
    Seq,
    Thing,
    Unknown,
    Values,
    Where,
    things as values,
)
from autofast.read.interpreter.binding import Binding
from autofast.read.library.containers import dict_of
from autofast.read.library.hydra import of_main
from autofast.read.library.options import of_command, options_of
from autofast.read.state.core import NotYet, Record, Recursion, TooDeep, join, kind_of
from autofast.read.state.summaries import key_of


class Entering(Binding):
    """Everything that happens in a function that is called."""

    def is_another_wrapper(self, func: Func) -> bool:
        """One decorator stands above a function several times: what it returned each time is no
        recursion.
        """
        entered = [f for f in self.entered if f.node is func.node]
        return func.env.kind == "function" and len(entered) < MOST_WRAPPERS and func not in entered

    def call_function(self, func: Func, args: Arguments, node: Where, this: Thing | None) -> Values:
        self.called.add(func.node)
        again = func.node in self.active and not self.is_another_wrapper(func)
        around = self.again.get(func.node)
        calls = around if again and around is not None else Recursion(self.summaries.calls + 1)
        nested = self.active.count(func.node)
        if again:
            args = _with_any_number(args, calls.seen, nested > 1)
        env = Env("function", {}, func.env, None)
        given = self.bind_parameters(func, args, this, env)
        repeats = len(self.active) - len(set(self.active))
        if again and repeats:
            alike = [got for got in calls.seen if _holds(got, env.vars, nested > 4)]
            if alike:
                return self.known_of(calls, alike, env, func)
        if len(self.active) >= DEPTH:
            where = f"{func.name}(), in calls that are nested too deeply,"
            self.cut_short(where, env, NOTHING.union(*env.vars.values()))
            return values(Unknown("calls are nested too deeply"))
        got = dict(env.vars)
        calls.seen.append(got)
        owner = func.owner
        if owner is not None:
            if this is not None:
                mine = values(this)
            elif (first := _first(func)) in given:
                mine = given[first].values
            else:
                mine = NOTHING
            if mine:
                env.vars["__super__"] = values(
                    self.intern(
                        Ext,
                        ("super", owner, mine),
                        lambda: Ext(
                            "builtins.super", None, Arguments(None), {"__this__": mine}, (owner,)
                        ),
                    )
                )
        frames: list[Frame] = [CallFrame(node if node is not None else func.node, func, given)]
        contexts = tuple(
            (d, v)
            for d, v in zip(getattr(func.node, "decorator_list", ()), func.decorators, strict=False)
            if grad_mode_of(v) or is_autocast(v)
        )
        if contexts:
            frames.append(WithFrame(func.node, contexts))
        forwards = tuple(map(id, self.__dict__.get("_forwards", ())))
        modes = (*forwards, self.grad_default, again)
        key = key_of(func, args, this, self.grad_mode(), modes)
        known = self.summaries.find(func, key, [*self.stack, *frames], self.active)
        if known is not None:
            self.stack.extend(frames)
            self.steps += self.summaries.replay(known, self.stack, self.happen) // 4
            del self.stack[len(self.stack) - len(frames) :]
            calls.go_on(got, known.result, again)
            return known.result
        self.again[func.node] = calls
        began = self.summaries.begin(func)
        if (like := self.scopes.pop(key, None)) is not None:
            like.again(env.vars)
            env = like
        env.born = began[0]
        result: Values | None = None
        try:
            result = self.follow(func, args, node, this, env, frames)
            while calls.go_on(got, result, again):
                env.again(dict(got))
                result = join(result, self.follow(func, args, node, this, env, frames))
        finally:
            self.summaries.end(began, key, [*self.stack, *frames], args, func, this, result)
            if env.captured:
                self.scopes[key] = env
            if not again and around is not None:
                self.again[func.node] = around
        return result

    def known_of(self, calls: Recursion, alike: list[ByName], env: Env, func: Func) -> Values:
        """What a call of the recursion has given so far that got the same, or what is ``alike``."""
        self.summaries.recursions.append(func.node)
        results = nodes_in(func.node, ast.Return, ast.Yield, ast.YieldFrom, ast.Lambda)
        if all(isinstance(n, ast.Return) and n.value is None for n in results):
            return NONE
        unknown = values(Unknown(f"{func.name}() calls itself"))
        got = next((got for got in alike if _holds(got, env.vars, None)), None)
        if got is None:
            return unknown
        name = calls.name(got)
        found = calls.used.setdefault(name, calls.gave.vars.get(name))
        self.summaries.read(calls.gave, name, found)
        if calls.passes == PASSES:
            return unknown | (found or NOTHING)
        if found is None:
            raise NotYet
        return found or unknown

    def follow(
        self,
        func: Func,
        args: Arguments,
        node: Where,
        this: Thing | None,
        env: Env,
        frames: list[Frame],
    ) -> Values:
        """What the body of ``func`` returns, with its parameters in ``env``."""
        top = not self.active
        noted = len(self.left)
        self.active.append(func.node)
        self.entered.append(func)
        self.stack.extend(frames)
        record = Record()
        record.depth = len(self.stack)
        self.records.append(record)
        self.tries.append(None)
        self.limits.append(
            self.limits[-1]
            if top
            else self.steps + max(int((self.limits[-1] - self.steps) * SHARE), 0)
        )
        inside = self.depths()
        try:
            if isinstance(func.node, ast.Lambda):
                with suppress(NotYet):
                    record.returns = self.expr(func.node.body, env)
            elif not self.block(func.node.body, env):
                record.returns = join(record.returns, NONE)
        except TooDeep:
            self.unwind(inside)
            if top:
                raise
            unknown = values(Unknown(f"{func.name}() is too large to follow"))
            self.cut_short(
                f"{func.name}()",
                env,
                NOTHING.union(
                    *args.all(), *func.defaults.values(), () if this is None else (this,)
                ),
            )
            record.returns = join(record.returns, unknown)
            record.yields = join(record.yields, unknown)
        finally:
            self.limits.pop()
            self.records.pop()
            self.tries.pop()
            del self.left[noted:]
            del self.stack[len(self.stack) - len(frames) :]
            self.active.pop()
            self.entered.pop()
        if record.is_generator:
            seq = self.intern(
                Seq,
                (node, func.node, "yield"),
                lambda: Seq(node, None, NOTHING, "generator"),
            )
            seq.elem = join(seq.elem, record.yields)
            if any(
                isinstance(t, Ref) and t.name.endswith("contextmanager")
                for d in func.decorators
                for t in d
            ):
                contexts = tuple((e, v) for frame in record.contexts for e, v in frame.contexts)
                made = self.intern(
                    Ext,
                    (node, func.node, "context"),
                    lambda: Ext("contextlib.manager", node, args),
                )
                made.attrs["over"] = values(seq)
                made.attrs["contexts"] = join(
                    made.attrs.get("contexts", NOTHING), *(v for _, v in contexts)
                )
                return values(made)
            return values(seq)
        return record.returns

    def bind_parameters(
        self, func: Func, args: Arguments, this: Thing | None, env: Env
    ) -> dict[str, Given]:
        spec = func.node.args
        positional = positional_parameters(spec)
        given: dict[str, Given] = {}
        start = 0
        if this is not None and positional and not is_static(func):
            env.vars[positional[0].arg] = values(this)
            start = 1
        elif this is not None and spec.vararg and not is_static(func):  # `def wrapper(*args)`
            args = completed(Arguments(args.call, [Given(values(this), None)]), args)
        names = [p.arg for p in positional[start:]]
        for i, name in enumerate(names):
            value = args.given(i, "")
            if value is not None:
                given[name] = value
        for name, value in args.named.items():
            if name in names or name in {p.arg for p in spec.kwonlyargs}:
                given[name] = (
                    Given(join(given[name].values, value.values), value.expr, value.via, value.sure)
                    if name in given
                    else value
                )
        for param in [*positional[start:], *spec.kwonlyargs]:
            name = param.arg
            default = func.defaults.get(name)
            if name in given:
                found = given[name].values
                if not given[name].sure:
                    found = join(
                        found,
                        default
                        if default is not None
                        else values(Unknown(args.open or f"`{name}` may not be given")),
                    )
            elif default is not None:
                if args.open and args.loose is None:
                    found = join(default, values(Unknown(args.open)))
                else:
                    found = default
            elif option := of_command(self, func, name) or of_main(self, func, name):
                found = option
            elif args.open:
                found = values(Unknown(args.open))
            else:
                found = self.annotated(param.annotation, func.env) or values(
                    Unknown(f"`{name}` of {func.name}() is not given")
                )
            env.vars[name] = found
        if spec.vararg:
            env.vars[spec.vararg.arg] = values(self.rest_of(spec.vararg, args, len(names)))
        if spec.kwarg:
            taken = {*names, *(p.arg for p in spec.kwonlyargs)}
            options = {n: Given(v, None) for n, v in options_of(self, func).items()}
            named = {n: g for n, g in {**options, **args.named}.items() if n not in taken}
            rest = Arguments(args.call, [], named, [], args.open)
            env.vars[spec.kwarg.arg] = values(dict_of(self, spec.kwarg, rest))
        return given

    def rest_of(self, param: ast.arg, args: Arguments, start: int) -> Seq:
        """``*rest``: the positional arguments from ``start`` on."""
        if args.loose is None:
            extra = tuple(g.values for g in args.positional[start:])
            seq = self.intern(Seq, (param, extra), lambda: Seq(param, extra, NOTHING, "tuple"))
            return seq
        every = NOTHING.union(*(g.values for g in args.positional[min(start, args.loose) :]))
        return self.intern(Seq, (param, every), lambda: Seq(param, None, every, "tuple"))


def _first(func: Func) -> str:
    spec = func.node.args
    return next((p.arg for p in positional_parameters(spec)), "")


def completed(kept: Arguments, args: Arguments) -> Arguments:
    """The arguments of a call of ``partial(f, ...)``: those kept, then those of the call, which
    win.
    """
    named = dict(kept.named.items())
    for name, given in args.named.items():
        old = named.get(name)
        if old is None or given.sure:
            named[name] = given
        else:
            named[name] = Given(given.values | old.values, None, given.via, old.sure)
    if kept.loose is not None:
        loose = kept.loose
    elif args.loose is None:
        loose = None
    else:
        loose = len(kept.positional) + args.loose
    return Arguments(
        args.call,
        [*kept.positional, *args.positional],
        named,
        [*kept.dicts, *args.dicts],
        kept.open or args.open,
        loose,
    )


def _holds(had: ByName, fresh: ByName, alike: bool | None) -> bool:
    """Whether one call got all that another one gets, or (but for None) what is ``alike``: parts of
    parts, and copies of copies, have no end.
    """
    for name, found in fresh.items():
        old = had.get(name, NOTHING)
        if not found <= old:
            if alike is None:
                return False
            known = {_content(t, alike) for t in old}
            if not all(_content(t, alike) in known for t in found):
                return False
    return True


def _content(thing: Thing, alike: bool) -> Hashable:
    """What tells things apart for a function that calls itself; things that are ``alike`` have a
    class, or what they hold, in common.
    """
    if isinstance(root := _root(thing), (Unknown, Num)) or root is not thing:
        return _outline(root)
    if alike and isinstance(thing, COLLECTIONS):
        return type(thing), frozenset(map(_outline, thing.any()))
    return kind_of(thing) if alike else thing


def _root(thing: Thing) -> Thing:
    """What the attribute of an attribute is of, or one of what has no known attributes:
    ``tree.left.right`` of an unknown tree, or of None, is no more than that.
    """
    root, outer = thing, thing
    while isinstance(root, Method):
        root, outer = root.this, root
    bare = isinstance(root, (Unknown, Num, Const))
    return root if bare or outer is not thing else thing


def _outline(thing: Thing) -> Hashable:
    """What is told of a part of what calls hand to themselves: trees have no end."""
    if isinstance(thing, (Seq, Dict, Const, Unknown, Num)):
        return type(thing).__name__
    return kind_of(thing)


def _with_any_number(args: Arguments, seen: list[ByName], texts: bool) -> Arguments:
    """What a function gets that calls itself: numbers, and with ``texts`` texts, that the calls
    before did not get are others each time.
    """
    kinds = (int, float, str) if texts else (int, float)
    known = NOTHING.union(*(found for had in seen for found in had.values()))

    def any_number(given: Given) -> Given:
        fresh = {t for t in given.values - known if isinstance(t, Const) and type(t.value) in kinds}
        number = Num(scalar=not any(isinstance(t.value, str) for t in fresh))
        return replace(given, values=given.values - fresh | {number}) if fresh else given

    named = {name: any_number(given) for name, given in args.named.items()}
    return replace(args, positional=list(map(any_number, args.positional)), named=named)
