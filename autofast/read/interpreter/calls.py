"""Calls: arguments, parameters, instances, and entering the project's functions."""

from __future__ import annotations

import ast
from dataclasses import replace

from autofast.model.calls import is_name
from autofast.model.changes import CLOCK
from autofast.model.device_loader import MARK, is_device_loader
from autofast.model.events import CallFrame, Frame, WithFrame
from autofast.model.kinds import grad_mode_of, is_autocast, is_module, is_static
from autofast.model.limits import DEPTH, MOST_WRAPPERS, SEVERAL, SHARE
from autofast.model.names import LOADER
from autofast.model.source import parent_of
from autofast.model.syntax import is_read
from autofast.model.values import (
    NOTHING,
    Arguments,
    Bound,
    Cls,
    Const,
    Dict,
    Env,
    Ext,
    Func,
    Given,
    Inst,
    Module,
    Partial,
    Reason,
    Ref,
    Seq,
    Thing,
    Unknown,
    Values,
    joined,
    one,
    ordered,
)
from autofast.model.values import things as values
from autofast.read.interpreter.binding import Binding
from autofast.read.interpreter.named import evaluated, is_namespace
from autofast.read.library import module_parts
from autofast.read.library import torch_library as torchlib
from autofast.read.library.chosen import networks_in, one_of
from autofast.read.library.containers import as_table, dict_of
from autofast.read.library.hydra import of_main
from autofast.read.library.iteration import element, fields_of
from autofast.read.library.modules import forward
from autofast.read.library.options import of_command
from autofast.read.library.unfollowed import bodies, changes_others, is_one
from autofast.read.state.core import TOO_MANY, Record, TooDeep, join
from autofast.read.state.summaries import key_of

EVAL = values(Ref("builtins.eval"))


def _is_only_read(node: ast.Call) -> bool:
    """``globals()[name]``, which sets nothing."""
    around = parent_of(node)
    return isinstance(around, ast.Subscript) and around.value is node and is_read(around)


class Calls(Binding):
    """Everything that happens at ``f(...)``."""

    def expr_Call(self, node: ast.Call, env: Env) -> Values:
        if is_name(node.func, "super"):
            for given in node.args:
                self.expr(given, env)
            return self.super_of(env)
        callee = self.expr(node.func, env)
        args = self.arguments(node, env)
        if callee == EVAL and len(node.args) == 1 and not node.keywords:
            found = evaluated(self, node.args[0], env, node)
            if found is not None:
                return found
        if is_namespace(node) and _is_only_read(node):
            return values(Unknown("the variables of a scope as a dict"))
        if any(
            isinstance(t, Ref) and t.name in ("builtins.exec", "builtins.globals") for t in callee
        ):
            self.changes += not env.module.opaque
            if not env.module.opaque:
                CLOCK.shake()
            env.module.opaque = env.module.opaque or "exec() may have changed it"
        return self.call_values(callee, args, node)

    def super_of(self, env: Env) -> Values:
        scope: Env | None = env
        while scope is not None:
            this = scope.vars.get("__super__")
            if this:
                return this
            scope = scope.outer
        return values(Unknown("super() outside a class"))

    def arguments(self, node: ast.Call, env: Env) -> Arguments:
        args = Arguments(node)
        for part in node.args:
            if isinstance(part, ast.Starred):
                self.spread_positional(args, self.expr(part.value, env))
            else:
                args.positional.append(Given(self.expr(part, env), part))
        for keyword in node.keywords:
            found = self.expr(keyword.value, env)
            if keyword.arg is not None:
                args.named[keyword.arg] = Given(found, keyword.value)
                continue
            several = len(found) > 1
            for thing in (as_table(self, t) for t in ordered(found)):
                if isinstance(thing, Dict):
                    self.spread_arguments(args, thing, several)
                else:
                    args.open = "keywords come through `**`, from something that is not known"
        return args

    def spread_positional(self, args: Arguments, found: Values) -> None:
        """``f(*found)``."""
        single = one(found)
        if isinstance(single, Seq) and single.exact is not None:
            args.positional.extend(Given(item, None) for item in single.exact)
        elif isinstance(single, Const) and isinstance(single.value, tuple):
            args.positional.extend(Given(values(Const(v)), None) for v in single.value)
        else:
            args.open = "positional arguments come through `*`"
            args.loose = len(args.positional) if args.loose is None else args.loose
            every = NOTHING.union(*(element(self, thing, None) for thing in found))
            args.positional.append(
                Given(every or values(Unknown("what comes through `*`")), None, sure=False)
            )

    def spread_arguments(self, args: Arguments, thing: Dict, several: bool) -> None:
        args.dicts.append(thing)
        self.steps += len(thing.entries) // 4
        if thing.open:
            args.open = f"keywords come through `**`, and {thing.open}"
        for key, entries in thing.entries.items():
            given = args.named.setdefault(key, Given(NOTHING, None, []))
            given.values = join(given.values, thing.rest, *(entry.values for entry in entries))
            for entry in entries:
                given.via.append((thing, entry))
                given.expr = entry.expr
            given.sure = any(e.sure for e in entries) and not several

    def call_values(self, callee: Values, args: Arguments, node: ast.AST | None) -> Values:
        if TOO_MANY in callee:  # following some of a thousand tells nothing of what this calls
            for func in (f for t in ordered(callee) if is_one(t) for f in bodies(t)):
                if changes_others(func):
                    self.forget(NOTHING.union(*args.all()), func.env, TOO_MANY.why)
            callee = frozenset(t for t in callee if not is_one(t)) | one_of(callee)
        classes = networks_in(callee)
        if classes and not self.each:
            callee = callee - classes | one_of(classes)
        self.several = self.several or bool(classes and self.each)
        if not self.several or len(callee) < 2:
            return self.call_each(callee, args, node)
        self.limits.append(min(self.limits[-1], self.steps + SEVERAL))
        try:
            return self.call_each(callee, args, node)
        finally:
            self.limits.pop()

    def call_each(self, callee: Values, args: Arguments, node: ast.AST | None) -> Values:
        found: Values = NOTHING
        for thing in self.choices(
            frozenset(t for t in callee if self.takes(t, args)) or callee
            if len(callee) > 1
            else callee
        ):
            found = join(found, self.call_thing(thing, args, node))
        return found

    def takes(self, thing: Thing, args: Arguments) -> bool:
        """Whether it may be this that is called: False where the call would only raise, as it is no
        function or an argument is missing.

        ``models.__dict__[name](num_classes=10)`` calls none of the layers and modules beside the
        functions that make models.
        """
        if isinstance(thing, (Const, Module)) or (
            isinstance(thing, Ref) and thing.name in self.libraries
        ):
            return False
        this = not isinstance(thing, Func)
        for func in (
            thing.find("__init__") or ()
            if isinstance(thing, Cls)
            else (thing.func if isinstance(thing, Bound) else thing,)
        ):
            if not isinstance(func, Func) or func.decorators or args.open or args.loose is not None:
                continue
            spec = func.node.args
            positional = [p.arg for p in (*spec.posonlyargs, *spec.args)]
            asked = [*positional[len(args.positional) + this :], *(p.arg for p in spec.kwonlyargs)]
            if any(name not in args.named and name not in func.defaults for name in asked):
                return False
        return True

    def call_thing(self, thing: Thing, args: Arguments, node: ast.AST | None) -> Values:
        if isinstance(thing, Func):
            return self.call_function(thing, args, node, None)
        if isinstance(thing, Bound):
            return self.call_function(thing.func, args, node, thing.this)
        if isinstance(thing, Cls):
            return self.instantiate(thing, args, node)
        if isinstance(thing, Partial):
            return self.call_values(thing.func, _completed(thing.args, args), node)
        if isinstance(thing, Inst):
            return self.call_instance(thing, args, node)
        return torchlib.call(self, thing, args, node)

    def call_instance(self, thing: Inst, args: Arguments, node: ast.AST | None) -> Values:
        own = thing.cls.find("__call__")
        if own:
            return self.call_values(self.bind_members(own, thing, node), args, node)
        if is_module(thing):
            return forward(self, thing, args, node)
        return values(Unknown(f"{thing.cls.node.name} objects are not functions"))

    def call_method_of(
        self, thing: Inst, name: str, args: list[Values], node: ast.AST | None
    ) -> Values:
        method = thing.cls.find(name)
        if not method:
            return NOTHING
        return self.call_values(
            self.bind_members(method, thing, node),
            Arguments(node, [Given(a, None) for a in args]),
            node,
        )

    def instantiate(self, cls: Cls, args: Arguments, node: ast.AST | None) -> Values:
        if is_device_loader(cls.node):
            return self.device_loader(cls, args, node)

        def make() -> Inst:
            inst = Inst(cls, node, {}, tuple(self.stack))
            self.made.append(inst)
            return inst

        inst: Inst = self.intern(Inst, (id(node), cls), make)
        for name, found in inst.attrs.items():  # of the objects made here before
            inst.past[name] = join(inst.past.get(name, NOTHING), found)
        inst.args = args if inst.args is None else joined([inst.args, args])
        self.emit("new", node, inst, args)
        self.building.append(inst)
        try:
            init = cls.find("__init__")
            if not init or "dataclass" in cls.external:
                self.fields(inst, cls, args, node)
            if not init and module_parts.is_container(inst):
                module_parts.keep_parts(self, inst, args)
            for func in ordered(init or NOTHING):
                self.call_values(self.bind_members(values(func), inst, node), args, node)
        finally:
            self.building.pop()
        if "metaclass" in cls.external and not any(
            n.startswith(("abc.", "enum.")) for n in cls.external
        ):
            return values(inst, Unknown(f"{cls.node.name} has a metaclass"))
        if cls.find("__new__"):
            return values(inst, Unknown(f"{cls.node.name} has its own __new__"))
        return values(inst)

    def device_loader(self, cls: Cls, args: Arguments, node: ast.AST | None) -> Values:
        """The DataLoader that it is, whose data are on the device: its methods do nothing that
        another loader does not do.
        """
        self.called |= {id(f.node) for v in cls.members.values() for f in v if isinstance(f, Func)}
        given = replace(args, named={k: g for k, g in args.named.items() if k != "device"})
        made = torchlib.call(self, Ref(LOADER), given, node)
        for thing in made:
            if isinstance(thing, Ext):
                thing.attrs[MARK] = values(Const(True))
        return made

    def fields(self, inst: Inst, cls: Cls, args: Arguments, node: ast.AST | None) -> None:
        """Annotated attributes of a class (a dataclass, a NamedTuple, ...) as the arguments of its
        constructor.
        """
        if (
            not args.positional
            and not args.named
            and not args.open
            and "dataclass" not in cls.external
        ):
            return
        names: dict[str, None] = {}
        for base in reversed([cls, *cls.ancestors()]):
            names.update(
                (s.target.id, None)
                for s in base.node.body
                if isinstance(s, ast.AnnAssign)
                and isinstance(s.target, ast.Name)
                and "ClassVar" not in ast.unparse(s.annotation)
            )
        names.update((name, None) for name in fields_of(inst))
        for i, name in enumerate(names):
            given = args.given(i, name)
            found = given.values if given is not None else NOTHING
            if given is None or not given.sure:
                found |= self.field_default(cls.find(name) or NOTHING) or values(
                    Unknown(f"`{name}` has no default")
                )
            if given is None and args.open:
                found |= values(Unknown(args.open))
            self.store_attribute(inst, name, found)
        if (after := cls.find("__post_init__")) is not None:
            self.call_values(
                self.bind_members(after, inst, node),
                Arguments(node, open="fields for the initialisation only"),
                node,
            )

    def field_default(self, found: Values) -> Values:
        """``x: int = 4``, ``x: int = field(default=4)``, ``x: list =
        field(default_factory=list)``.
        """
        out: Values = NOTHING
        for thing in ordered(found):
            if (
                isinstance(thing, Unknown)
                and thing.reason is Reason.RESULT
                and thing.name.startswith("dataclasses.field")
            ):
                continue
            if isinstance(thing, Ext) and thing.name == "dataclasses.field":
                factory = thing.args.get(-1, "default_factory")
                out |= thing.args.get(-1, "default") | (
                    self.call_values(factory, Arguments(thing.node), thing.node)
                    if factory
                    else NOTHING
                )
            else:
                out |= values(thing)
        return out

    def is_another_wrapper(self, func: Func) -> bool:
        """One decorator stands above a function several times: what it returned each time is no
        recursion.
        """
        entered = [f for f in self.entered if f.node is func.node]
        return (
            func.env.kind == "function"
            and len(entered) < MOST_WRAPPERS
            and all(f is not func for f in entered)
        )

    def call_function(
        self, func: Func, args: Arguments, node: ast.AST | None, this: Thing | None
    ) -> Values:
        self.called.add(id(func.node))
        repeats = len(self.active) - len(set(self.active))
        again = id(func.node) in self.active and not self.is_another_wrapper(func)
        if (repeats and again) or len(self.active) >= DEPTH:
            self.summaries.recursions.append(id(func.node))
            return values(
                Unknown(
                    f"{func.name}() calls itself"
                    if id(func.node) in self.active
                    else "calls are nested too deeply"
                )
            )
        env = Env("function", {}, func.env, None)
        given = self.bind_parameters(func, args, this, env)
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
        around = (*forwards, self.grad_default, repeats > 0)
        key = key_of(func, args, this, self.grad_mode(), around)
        known = self.summaries.find(func, key, [*self.stack, *frames], self.active)
        if known is not None:
            self.stack.extend(frames)
            self.steps += self.summaries.replay(known, self.stack, self.happen) // 4
            del self.stack[len(self.stack) - len(frames) :]
            return known.result
        began = self.summaries.begin(func)
        if (like := self.scopes.pop(key, None)) is not None:
            like.again(env.vars)
            env = like
        env.born = began[0]
        result: Values | None = None
        try:
            result = self.follow(func, args, node, this, env, frames)
        finally:
            self.summaries.end(began, key, [*self.stack, *frames], args, func, this, result)
            if env.captured:
                self.scopes[key] = env
        return result

    def follow(
        self,
        func: Func,
        args: Arguments,
        node: ast.AST | None,
        this: Thing | None,
        env: Env,
        frames: list[Frame],
    ) -> Values:
        """What the body of ``func`` returns, with its parameters in ``env``."""
        top = not self.active
        noted = len(self.left)
        self.active.append(id(func.node))
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
                record.returns = self.expr(func.node.body, env)
            elif not self.block(func.node.body, env):
                record.returns = join(record.returns, values(Const(None)))
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
            seq: Seq = self.intern(
                Seq,
                (id(node), id(func.node), "yield"),
                lambda: Seq(node, None, NOTHING, "generator"),
            )
            seq.elem = join(seq.elem, record.yields)
            if any(
                isinstance(t, Ref) and t.name.endswith("contextmanager")
                for d in func.decorators
                for t in d
            ):
                contexts = tuple((e, v) for frame in record.contexts for e, v in frame.contexts)
                made: Ext = self.intern(
                    Ext,
                    (id(node), id(func.node), "context"),
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
        positional = [*spec.posonlyargs, *spec.args]
        given: dict[str, Given] = {}
        start = 0
        if this is not None and positional and not is_static(func):
            env.vars[positional[0].arg] = values(this)
            start = 1
        elif this is not None and spec.vararg and not is_static(func):  # `def wrapper(*args)`
            args = _completed(Arguments(args.call, [Given(values(this), None)]), args)
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
            rest = Arguments(
                args.call,
                [],
                {n: g for n, g in args.named.items() if n not in taken},
                [],
                args.open,
            )
            env.vars[spec.kwarg.arg] = values(dict_of(self, spec.kwarg, rest))
        return given

    def rest_of(self, param: ast.arg, args: Arguments, start: int) -> Seq:
        """``*rest``: the positional arguments from ``start`` on."""
        if args.loose is None:
            extra = tuple(g.values for g in args.positional[start:])
            seq: Seq = self.intern(
                Seq, (id(param), extra), lambda: Seq(param, extra, NOTHING, "tuple")
            )
            return seq
        every = NOTHING.union(*(g.values for g in args.positional[min(start, args.loose) :]))
        seq = self.intern(Seq, (id(param), every), lambda: Seq(param, None, every, "tuple"))
        return seq


def _first(func: Func) -> str:
    spec = func.node.args
    return next((p.arg for p in (*spec.posonlyargs, *spec.args)), "")


def _completed(kept: Arguments, args: Arguments) -> Arguments:
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
