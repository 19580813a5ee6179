"""Imports and loops: the statements that take more than one pass, or another file."""

from __future__ import annotations

import ast
import importlib

from autofast.model import names
from autofast.model.calls import is_name
from autofast.model.changes import CLOCK
from autofast.model.events import LoopFrame
from autofast.model.kinds import star
from autofast.model.limits import PASSES
from autofast.model.names import canonical, first_part
from autofast.model.source import walk
from autofast.model.values import (
    COUNT,
    NOTHING,
    OBJECTS,
    ByName,
    Const,
    Env,
    Ext,
    Inst,
    Module,
    Reason,
    Ref,
    Seq,
    Unknown,
    Values,
    any_of,
    const,
    one,
    things as values,
)
from autofast.model.values.thing import Row
from autofast.read.interpreter.statements import Statements, ways_out
from autofast.read.library.iteration import iterate, loaders_in
from autofast.read.state.core import Record, join, merge


class Loops(Statements):
    """``for``, ``while``, ``import``."""

    def stmt_Import(self, node: ast.Import, env: Env) -> None:
        for alias in node.names:
            found = self.import_module(alias.name, 0, env, node)
            if alias.asname:
                env.vars[alias.asname] = found
            else:
                top = first_part(alias.name)
                env.vars[top] = (
                    found if "." not in alias.name else self.import_module(top, 0, env, node)
                )

    def stmt_ImportFrom(self, node: ast.ImportFrom, env: Env) -> None:
        source = env.module.source
        assert source is not None
        target = self.project.find(node.module or "", node.level, source)
        if target is not None:
            module = self.run_module(target, False)
        for alias in node.names:
            if alias.name == "*":
                if target is not None:
                    self.star(module, env)
                else:
                    self.star_of_library(node.module or "", env)
                continue
            if target is not None and alias.name in module.env.vars:
                self.summaries.read(module.env, alias.name, module.env.vars[alias.name])
                found = module.env.vars[alias.name]
            elif (
                sub := self.project.find(
                    f"{node.module or ''}.{alias.name}".strip("."), node.level, source
                )
            ) is not None:
                found = values(self.run_module(sub, False))
            elif target is not None:
                found = values(
                    Unknown(
                        f"`{alias.name}` is not found in {target.rel}", Reason.FOREIGN, alias.name
                    )
                )
            elif node.level:
                why = f"`{alias.name}` comes from a module that is not in this project"
                found = values(Unknown(why, Reason.FOREIGN, alias.name))
            else:
                found = values(Ref(canonical(f"{node.module}.{alias.name}")))
            env.vars[alias.asname or alias.name] = found

    def import_module(self, name: str, level: int, env: Env, node: ast.AST) -> Values:
        source = env.module.source
        assert source is not None
        target = self.project.find(name, level, source)
        if target is not None:
            return values(self.run_module(target, False))
        found = canonical(name)
        self.libraries.add(found)
        return values(Ref(found))

    def star(self, module: Module, env: Env) -> None:
        listed = const(module.env.vars.get("__all__", NOTHING))
        for name, found in list(module.env.vars.items()):
            if (listed is ... and not name.startswith("_")) or (
                isinstance(listed, tuple) and name in listed
            ):
                env.vars[name] = found

    def star_of_library(self, name: str, env: Env) -> None:
        for bound, thing in star(name):
            env.vars[bound] = values(thing)
        if name in names.STANDARD:
            found = vars(importlib.import_module(name))
            for bound in found.get("__all__", [n for n in found if not n.startswith("_")]):
                env.vars[bound] = values(Ref(canonical(f"{name}.{bound}")))
        elif not env.module.starred or name not in names.NO_BUILTINS:
            CLOCK.shake()
            env.module.starred = name or "another module"

    def stmt_For(self, node: ast.For | ast.AsyncFor, env: Env) -> None:
        over = self.expr(node.iter, env)
        items = self.few(node.iter, over, env)
        single = [one(item) for item in items]  # of a dict's items(), tuples are made here
        if not all(
            isinstance(t, (Const, Ext, Inst)) or isinstance(t, Seq) and t.node is node.iter
            for t in single
        ):
            items = ()
        if items:
            self.unroll(node, items, over, env)
        else:
            self.loop(node, over, env)

    stmt_AsyncFor = stmt_For

    def unroll(self, node: ast.For | ast.AsyncFor, items: Row, over: Values, env: Env) -> None:
        """A loop over a few known values (``for phase in ("train", "val")``) runs once for each."""
        left: list[ByName] = []
        reached, sure = True, not any(map(ways_out, node.body))
        for turn, item in enumerate(items):
            self.stack.append(LoopFrame(node, over, turn=turn, unrolled=True, sure=sure))
            self.assign(node.target, item, env, None)
            record = Record()
            self.records.append(record)
            stopped = self.block(node.body, env)
            self.collect()
            self.stack.pop()
            left += record.breaks
            ends = [*record.continues, *([] if stopped else [env.vars])]
            if not ends:
                reached = False
                break
            env.vars = merge(ends)
        if reached:
            self.block(node.orelse, env)
            left.append(env.vars)
        env.vars = merge(left) if left else env.vars

    def loop(self, node: ast.For | ast.AsyncFor | ast.While, over: Values, env: Env) -> None:
        loaders = loaders_in(over)
        self.forget_counters(node, env)
        left: dict[int, ByName] = {}
        for turn in range(PASSES):
            before = dict(env.vars)
            known = len(self.made), self.changes, self.grad_default
            record = Record()
            self.records.append(record)
            self.stack.append(LoopFrame(node, over, loaders, min(turn, 1)))
            if isinstance(node, ast.While):
                test = self.expr(node.test, env)
                self.narrow(node.test, True, env)
                stopped = const(test) is False or self.block(node.body, env)
            else:
                self.emit("iterate", node, result=over)
                self.assign(node.target, iterate(self, over, node), env, None)
                stopped = self.block(node.body, env)
            self.stack.pop()
            self.collect()
            left.update((id(end), end) for end in record.breaks)
            env.vars = merge([before, *record.continues, *([] if stopped else [env.vars])])
            news = [
                name
                for name, found in env.vars.items()
                if name in before and not found <= before[name]
            ]
            if not news and known == (len(self.made), self.changes, self.grad_default):
                break
        else:
            for name in news:
                env.vars[name] = join(
                    env.vars[name], values(Unknown("it keeps changing in a loop"))
                )
        self.block(node.orelse, env)
        env.vars = merge([env.vars, *left.values()])

    def forget_counters(self, node: ast.For | ast.AsyncFor | ast.While, env: Env) -> None:
        """What a loop counts up (``step += 1``) is no constant in it, not even the first time."""
        for part in _augmented(node):
            match part:
                case ast.Name(id=name) if _is_number(env.vars.get(name)):
                    env.vars[name] = COUNT
                case ast.Name(id=name) if _is_number(env.module.vars.get(name)):
                    CLOCK.tick(env.module.vars, name)
                    env.module.vars[name] = COUNT
                case ast.Attribute(value=owner, attr=name):
                    for thing in self.expr(owner, env):
                        if isinstance(thing, OBJECTS) and _is_number(thing.attrs.get(name)):
                            thing.attrs[name] = COUNT

    def collect(self) -> None:
        """A loop's record ends: what it returned belongs to the function around it."""
        record = self.records.pop()
        self.records[-1].returns = join(self.records[-1].returns, record.returns)
        self.records[-1].yields = join(self.records[-1].yields, record.yields)
        self.records[-1].is_generator |= record.is_generator

    def stmt_While(self, node: ast.While, env: Env) -> bool:
        self.loop(node, NOTHING, env)
        forever = isinstance(node.test, ast.Constant) and bool(node.test.value)
        return forever and not any_of(walk(node), ast.Break)


def _is_number(found: Values | None) -> bool:
    return isinstance(const(found or NOTHING), (int, float))


def _augmented(node: ast.AST) -> list[ast.expr]:
    """The targets that a loop's body changes from their own value."""
    known: list[ast.expr] | None = getattr(node, "_af_augmented", None)
    if known is not None:
        return known
    found: list[ast.expr] = []
    for part in walk(node):
        match part:
            case ast.AugAssign(target=target):
                found.append(target)
            case ast.Assign(targets=[ast.Name(id=name) as target], value=value):
                if any(is_name(n, name) for n in walk(value)):
                    found.append(target)
    node._af_augmented = found  # type: ignore[attr-defined]
    return found
