"""What Python calls by itself on objects of the project: their operators, descriptors,
``__setattr__`` and its kin, and functions that a library calls back at once (``sorted(key=f)``,
``pool.map(f, items)``)."""

from __future__ import annotations

import ast

from autofast.model import names
from autofast.model.kinds import entered, grad_mode_of
from autofast.model.several import of_kind, wordset
from autofast.model.values import (
    NONE,
    NOTHING,
    OBJECTS,
    Arguments,
    Bound,
    Cls,
    Const,
    Ext,
    Func,
    Given,
    Inst,
    Method,
    Partial,
    Ref,
    Thing,
    Unknown,
    Values,
    Where,
    is_named,
    things as values,
)
from autofast.read.library import dict_objects
from autofast.read.library.iteration import iterate
from autofast.read.state.core import Core

PROPERTY = "builtins.property"
STACKS = wordset("contextlib.ExitStack contextlib.AsyncExitStack")
WEAK = wordset("weakref.ref weakref.WeakMethod")
OPERATORS = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "truediv", ast.FloorDiv: "floordiv", ast.Mod: "mod", ast.Pow: "pow",
    ast.MatMult: "matmul", ast.BitOr: "or", ast.BitAnd: "and", ast.BitXor: "xor", ast.LShift: "lshift", ast.RShift: "rshift",
}  # fmt: skip
# The function that a special method is another way to write.
SPELLED = {
    "__setattr__": "builtins.setattr",
    "__delattr__": "builtins.delattr",
    "__getattribute__": "builtins.getattr",
    "__getattr__": "builtins.getattr",
}


def operate(
    interp: Core, node: ast.BinOp | ast.AugAssign, left: Values, right: Values
) -> Values | None:
    """``a + b`` or ``a += b`` by the methods of classes of the project; None where none of them has
    one.
    """
    name = OPERATORS[type(node.op)]
    asked = [f"__{name}__"] if isinstance(node, ast.BinOp) else [f"__i{name}__", f"__{name}__"]
    found, others = NOTHING, False
    for thing in interp.choices(left):
        method = next((m for m in asked if isinstance(thing, Inst) and thing.cls.find(m)), "")
        if method and isinstance(thing, Inst):
            found |= interp.call_method_of(thing, method, [right], node)
        else:
            others = True
    if others:
        for thing in interp.choices(right):
            if isinstance(thing, Inst) and thing.cls.find(f"__r{name}__"):
                found |= interp.call_method_of(thing, f"__r{name}__", [left], node)
    if not found:
        return None
    return found | (values(Unknown("what an operator gives")) if others else NOTHING)


def get(interp: Core, member: Thing, this: Inst, node: Where) -> Values:
    """What a member of a class that is no function gives where an object is asked for it."""
    if is_named(member, Ext, PROPERTY):
        return interp.call_values(
            member.args.get(0, "fget"), Arguments(node, [Given(values(this), None)]), node
        )
    if isinstance(member, Inst) and member.cls.find("__get__"):
        return interp.call_method_of(member, "__get__", [values(this), values(this.cls)], node)
    if name := dict_objects.unbound(member):
        return values(Method(this, name))
    return values(member)


def put(interp: Core, this: Thing, name: str, found: Values, node: ast.AST) -> bool:
    """``this.name = found`` by the class's own ``__setattr__``, property or descriptor; False where
    it has none.
    """
    if not isinstance(this, Inst):
        return False
    if (own := this.cls.find("__setattr__")) and not _runs(interp, own, this):
        interp.call_method_of(this, "__setattr__", [values(Const(name)), found], node)
        return True
    done = False
    for member in this.cls.find(name) or NOTHING:
        if is_named(member, Ext, PROPERTY):
            given = Arguments(node, [Given(values(this), None), Given(found, None)])
            interp.call_values(member.args.get(1, "fset"), given, node)
            done = True
        elif isinstance(member, Inst) and member.cls.find("__set__"):
            interp.call_method_of(member, "__set__", [values(this), found], node)
            done = True
    return done


def own_getter(interp: Core, this: Inst) -> bool:
    """Whether a method of the class answers for every attribute, and does not ask itself here."""
    own = this.cls.find("__getattribute__")
    return bool(own) and not _runs(interp, own or NOTHING, this)


def _runs(interp: Core, methods: Values, this: Inst) -> bool:
    return any(t.node in interp.active for t in of_kind(methods, Func))


def spelled(this: Thing, name: str, args: Arguments) -> tuple[str, Arguments] | None:
    """``x.__setattr__(n, v)``, ``object.__setattr__(x, n, v)`` and ``super().__setattr__(n, v)`` as
    ``setattr(x, n, v)``.
    """
    builtin = SPELLED.get(name)
    if builtin is None:
        return None
    if isinstance(this, (Ref, Cls)):
        return builtin, args
    if is_named(this, Ext, "builtins.super"):
        owner = this.attrs.get("__this__", NOTHING)
    else:
        owner = values(this)
    first = Given(owner, None)
    loose = None if args.loose is None else args.loose + 1
    return builtin, Arguments(
        args.call, [first, *args.positional], dict(args.named), args.dicts, args.open, loose
    )


def drop_attribute(interp: Core, this: Thing, name: str, node: Where) -> None:
    """``del this.name``: a class attribute shows again, and where this may not happen both are
    possible.
    """
    if not isinstance(this, OBJECTS):
        return
    if isinstance(this, Inst) and this.cls.find("__delattr__"):
        interp.call_method_of(this, "__delattr__", [values(Const(name))], node)
        return
    below = this.cls.find(name) or NOTHING if isinstance(this, Inst) else NOTHING
    left = below or values(Unknown(f"`.{name}` is deleted"))
    interp.store_attribute(this, name, left)
    interp.emit("set_attribute", node, this, result=left, name=name)


def run_often(interp: Core, func: Values, args: Arguments, node: Where) -> None:
    """A library calls a function any number of times: what it changes may be changed, or not."""
    own = frozenset(t for t in func if isinstance(t, (Func, Bound, Partial)))
    for _ in range(2 if own else 0):  # the second call sees what the first has changed
        with interp.maybe():
            interp.call_values(own, args, node)


def in_pool(interp: Core, this: Thing, name: str, args: Arguments, node: Where) -> Values | None:
    """``pool.map(f, items)`` and ``pool.submit(f, x)``: the function runs, here or in another
    process.
    """
    known = this.name if isinstance(this, (Ext, Unknown)) else ""
    if not known.startswith(names.POOLS) or not args.positional:
        return None
    func, rest = args.positional[0].values, args.positional[1:]
    if name == "submit":
        given = Arguments(node, rest, dict(args.named))
    elif name in ("map", "imap", "imap_unordered", "map_async"):
        items = [iterate(interp, g.values, node or ast.Pass()) for g in rest]
        given = Arguments(node, [Given(i, None) for i in items])
    elif name in ("starmap", "starmap_async", "apply", "apply_async"):
        given = Arguments(node, open="what a pool hands on is not known")
    else:
        return None
    run_often(interp, func, given, node)
    return values(Unknown(f"what .{name}() of a pool returns"))


def manual_context(
    interp: Core, this: Thing, name: str, args: Arguments, node: Where
) -> Values | None:
    """``stack.enter_context(cm)`` of an ExitStack, and ``torch.no_grad().__enter__()``: contexts
    without a block of their own.
    """
    if not isinstance(this, Ext):
        return None
    if name in ("__enter__", "__exit__") and grad_mode_of(values(this)) is not None:
        interp.grad_default = "maybe"
        return values(this)
    if this.name not in STACKS or name not in ("enter_context", "enter_async_context", "callback"):
        return None
    given = args.get(0, "cm")
    this.attrs[name] = this.attrs.get(name, NOTHING) | given
    if name == "callback":
        return given
    if grad_mode_of(given) is not None:
        interp.grad_default = "maybe"
    own = frozenset(t for t in of_kind(given, Inst) if t.cls.find("__enter__"))
    found = entered(given - own)
    for thing in own:
        found |= interp.call_method_of(thing, "__enter__", [], node)
    return found


def unwind_stack(interp: Core, this: Thing, grad: str, node: Where) -> None:
    """The block of an ExitStack ends: what was entered is left, and gradients are as they were
    before it.
    """
    if not isinstance(this, Ext) or this.name not in STACKS:
        return
    interp.grad_default = grad
    with interp.maybe():
        for thing in this.attrs.get("enter_context", NOTHING):
            if isinstance(thing, Inst):
                error = values(Unknown("an exception, if there is one"))
                interp.call_method_of(thing, "__exit__", [error] * 3, node)
        interp.call_values(this.attrs.get("callback", NOTHING), Arguments(node), node)


def referred(thing: Thing) -> Values | None:
    """What a weak reference gives when it is called."""
    if is_named(thing, Ext, WEAK):
        return thing.args.get(0, "object") | NONE
    return None
