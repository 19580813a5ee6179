"""Calls: arguments, what is called, instances."""

from __future__ import annotations

import ast
from dataclasses import replace

from autofast.model import limits
from autofast.model.calls import call_of, is_name
from autofast.model.changes import CLOCK
from autofast.model.contents import dict_items
from autofast.model.events import CallFrame
from autofast.model.kinds import is_module
from autofast.model.limits import MANY, SEVERAL
from autofast.model.names import CONTEXT, DATASET_BASES
from autofast.model.several import wordset
from autofast.model.source import parent_of
from autofast.model.syntax import is_read, positional_names
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
    Num,
    Partial,
    Reason,
    Ref,
    Seq,
    Thing,
    Unknown,
    Values,
    Where,
    any_named,
    any_of,
    is_const,
    is_named,
    joined,
    of_kind,
    one,
    ordered,
    things as values,
    unbound,
)
from autofast.read.interpreter.entering import Entering, completed
from autofast.read.interpreter.named import evaluated, is_namespace
from autofast.read.library import dict_objects, module_parts, torch_library as torchlib
from autofast.read.library.chosen import networks_in, one_of
from autofast.read.library.containers import as_table
from autofast.read.library.iteration import element, fields_of
from autofast.read.library.modules import forward
from autofast.read.library.options import COMMAND_LINE, of_field, run_commands
from autofast.read.library.unfollowed import bodies, changes_others, is_one
from autofast.read.state.core import TOO_MANY, join

EVAL = values(Ref("builtins.eval"))
READING = wordset("get items keys values copy")
SCALARS = ("int", "float", "bool", "str")


def _is_only_read(node: ast.Call) -> bool:
    """``globals()[name]``, ``globals().get(name)``, ``name in globals()``, which set nothing."""
    match parent_of(node):
        case ast.Subscript(value=value) as around:
            return value is node and is_read(around)
        case ast.Compare():
            return True
        case ast.Attribute(attr=name) as method:
            return name in READING and call_of(method) is not None
    return False


class Calls(Entering):
    """Everything that happens at ``f(...)``."""

    def expose(self, env: Env) -> None:
        """``exec()``, ``globals()``: anything may be set now; at the top of a file, not what gets
        its value behind it.
        """
        module = env.module
        top = env is module and not any_of(self.stack, CallFrame)
        before = module.exposed or frozenset() if top else None
        if module.opaque and module.exposed is None:
            before = None
        exposed = None if before is None else before | module.vars.keys()
        if not module.opaque or exposed != module.exposed:
            self.changes += 1
            CLOCK.shake()
        module.opaque = module.opaque or "exec() may have changed it"
        module.exposed = exposed

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
        if any_named(callee, Ref, ("builtins.exec", "builtins.globals")):
            self.expose(env)
        if not self.wary:
            return self.call_values(callee, args, node)
        inside = self.depths()
        try:
            return self.call_values(callee, args, node)
        except RecursionError:
            self.unwind(inside)
            what = f"the call on line {node.lineno}"
            self.cut_short(what, env, callee.union(*args.all()))
            return values(Unknown(f"{what} is too large to follow"))

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
        elif is_const(single, tuple):
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

    def call_values(self, callee: Values, args: Arguments, node: Where) -> Values:
        if TOO_MANY in callee:  # following some of a thousand tells nothing of what this calls
            for func in (f for t in ordered(callee) if is_one(t) for f in bodies(t)):
                if changes_others(func):
                    self.forget(NOTHING.union(*args.all()), func.env, TOO_MANY.why)
            callee = frozenset(t for t in callee if not is_one(t)) | one_of(callee)
        classes = networks_in(callee)
        if classes and not self.each:
            callee = callee - classes | one_of(classes)
        self.several = self.several or bool(classes and self.each)
        own = of_kind(callee, Cls)
        many = len(own) >= MANY
        if not many and (not self.several or len(callee) < 2):
            return self.call_each(callee, args, node)
        data = many and all(t.external & DATASET_BASES for t in own)
        most = limits.CHOSEN if data else SEVERAL
        self.limits.append(min(self.limits[-1], self.steps + most))
        try:
            return self.call_each(callee, args, node)
        finally:
            self.limits.pop()

    def call_each(self, callee: Values, args: Arguments, node: Where) -> Values:
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
        function, an argument is missing, or there are more than it takes.

        ``models.__dict__[name](num_classes=10)`` calls none of the layers and modules beside the
        functions that make models.
        """
        if isinstance(thing, (Const, Module)) or is_named(thing, Ref, self.libraries):
            return False
        this = not isinstance(thing, Func)
        for func in thing.find("__init__") or () if isinstance(thing, Cls) else (unbound(thing),):
            if not isinstance(func, Func) or func.decorators:
                continue
            spec = func.node.args
            positional = positional_names(spec)
            if args.loose is None and not spec.vararg:
                if len(args.positional) + this > len(positional):
                    return False
            if not args.known:
                continue
            asked = [*positional[len(args.positional) + this :], *(p.arg for p in spec.kwonlyargs)]
            if any(name not in args.named and name not in func.defaults for name in asked):
                return False
        return True

    def call_thing(self, thing: Thing, args: Arguments, node: Where) -> Values:
        if isinstance(thing, Func):
            found = self.call_function(thing, args, node, None)
            run_commands(self, thing, node)
            return found
        if isinstance(thing, Bound):
            return self.call_function(thing.func, args, node, thing.this)
        if isinstance(thing, Cls):
            return self.instantiate(thing, args, node)
        if isinstance(thing, Partial):
            return self.call_values(thing.func, completed(thing.args, args), node)
        if isinstance(thing, Inst):
            return self.call_instance(thing, args, node)
        if thing in self.functions:
            self.apply_function(self.functions[thing], args, node)
        run_commands(self, thing, node)
        return torchlib.call(self, thing, args, node)

    def apply_function(self, cls: Cls, args: Arguments, node: Where) -> None:
        """What ``Clip.apply(x)`` runs: ``forward``, whose result is given another graph."""
        context = self.intern(
            Ext, ("context", cls), lambda: Ext(CONTEXT, cls.node, Arguments(None))
        )
        if not cls.find("setup_context"):
            args = replace(args, positional=[Given(values(context), None), *args.positional])
        for func in ordered(cls.find("forward") or NOTHING):
            if isinstance(func, Func) and len(func.decorators) < 2:  # `staticmethod`
                self.call_function(func, args, node, None)

    def call_instance(self, thing: Inst, args: Arguments, node: Where) -> Values:
        own = thing.cls.find("__call__")
        if own:
            return self.call_values(self.bind_members(own, thing, node), args, node)
        if is_module(thing):
            return forward(self, thing, args, node)
        return values(Unknown(f"{thing.cls.node.name} objects are not functions"))

    def call_method_of(self, thing: Inst, name: str, args: list[Values], node: Where) -> Values:
        method = thing.cls.find(name)
        if not method:
            return NOTHING
        return self.call_values(
            self.bind_members(method, thing, node),
            Arguments(node, [Given(a, None) for a in args]),
            node,
        )

    def instantiate(self, cls: Cls, args: Arguments, node: Where) -> Values:

        def make() -> Inst:
            inst = Inst(cls, node, {}, tuple(self.stack))
            self.made.append(inst)
            return inst

        inst = self.intern(Inst, (node, cls), make)
        for name, found in inst.attrs.items():  # of the objects made here before
            inst.past[name] = join(inst.past.get(name, NOTHING), found)
        inst.args = args if inst.args is None else joined([inst.args, args])
        self.emit("new", node, inst, args)
        self.building.append(inst)
        dict_objects.begin(inst)
        try:
            init = cls.find("__init__")
            if not init or "dataclass" in cls.external:
                self.fields(inst, cls, args, node)
            if not init and module_parts.is_container(inst):
                module_parts.keep_parts(self, inst, args)
            if not init and (held := dict_items(inst)) is not None:
                dict_objects.method(self, inst, held, "__init__", args, node)
            for func in ordered(init or NOTHING):
                self.call_values(self.bind_members(values(func), inst, node), args, node)
        finally:
            self.building.pop()
        if "metaclass" in cls.external:
            return values(inst, Unknown(f"{cls.node.name} has a metaclass"))
        if cls.find("__new__"):
            return values(inst, Unknown(f"{cls.node.name} has its own __new__"))
        return values(inst)

    def fields(self, inst: Inst, cls: Cls, args: Arguments, node: Where) -> None:
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
        names: dict[str, str] = {}  # with what they are said to be
        for base in reversed(cls.lineage()):
            names.update(
                (s.target.id, ast.unparse(s.annotation))
                for s in base.node.body
                if isinstance(s, ast.AnnAssign)
                and isinstance(s.target, ast.Name)
                and "ClassVar" not in ast.unparse(s.annotation)
            )
        names.update((name, "") for name in fields_of(inst))
        for i, (name, kind) in enumerate(names.items()):
            given = args.given(i, name)
            found = given.values if given is not None else NOTHING
            default = self.field_default(cls.find(name) or NOTHING)
            if given is None and args.open:
                asked = default and (args.open == COMMAND_LINE or kind in SCALARS)
                option = of_field(cls, name, kind, default, node) if asked else None
                unsaid = Num() if kind in ("int", "float") else Unknown(args.open)
                found = values(option) if option else default | values(unsaid)
            elif given is None or not given.sure:
                found |= default or values(Unknown(f"`{name}` has no default"))
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
            if is_named(thing, Ext, "dataclasses.field"):
                factory = thing.args.get(-1, "default_factory")
                out |= thing.args.get(-1, "default") | (
                    self.call_values(factory, Arguments(thing.node), thing.node)
                    if factory
                    else NOTHING
                )
            else:
                out |= values(thing)
        return out
