"""Expressions of a method whose value is the same whenever it runs, for as long as the object
lives: made of constants and of what the constructor alone has set, by functions that only compute.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from itertools import takewhile

from autofast.facts.arrays import array_of, array_origins, held_under
from autofast.facts.read_only import (
    ARRAYS,
    ASKED,
    Held,
    Made,
    ReadOnly,
    has_only_constants,
    only_reads,
)
from autofast.flow.callgraph import MADE, CallGraph, Function
from autofast.flow.effects import Effects
from autofast.flow.memory import Memory
from autofast.flow.program import graph_of, holder_of
from autofast.flow.reflection import namespace_calls, whose_attributes
from autofast.flow.scopes import mentions, own_nodes, owner, parameters
from autofast.flow.usage import usage_of
from autofast.model.calls import arguments_of, call_of, is_augmented, may_give
from autofast.model.names import last_part
from autofast.model.script import Script
from autofast.model.several import any_in, surely, wordset
from autofast.model.source import (
    ancestors,
    contains_kind,
    function_of,
    nodes_in,
    parent_of,
    statement_of,
    within,
)
from autofast.model.syntax import (
    COMPREHENSIONS,
    DEFS,
    VARIABLES,
    Def,
    has_star,
    is_attribute,
    is_number,
    is_read,
    is_stored,
)
from autofast.model.tensors import tensors_in
from autofast.model.values import (
    Arg,
    Bound,
    Cls,
    Const,
    Ext,
    Func,
    Inst,
    Method,
    Module,
    Num,
    Ref,
    Seq,
    Setting,
    Tensor,
    Thing,
    Unknown,
    Values,
    any_of,
    certainly,
    const,
    is_named,
    of_kind,
    one,
)
from autofast.ops import autocast, draws, is_in_place, op

LITERAL = wordset("tensor Tensor FloatTensor LongTensor", "torch.")
OPERANDS = ("numpy.einsum", "builtins.zip")  # all that they are given without a name
TEXTS = wordset("startswith endswith lower upper strip split replace join")
# What a function that only computes does without.
IMPURE = (
    ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal, ast.With, ast.Try, ast.Import,
    ast.ImportFrom,
)  # fmt: skip
DECIDING = (ast.If, ast.Try, ast.While, ast.IfExp, ast.BoolOp, ast.Assert, *COMPREHENSIONS)
SIMPLE = (Const, Arg, Setting, Ref, Module, Cls, Func, Bound)
# What decides where, and of which type, new tensors are made.
DEFAULTS = wordset(
    "set_default_dtype set_default_device set_default_tensor_type cuda.set_device", "torch."
)
DEEPEST = 6  # functions that call one another


class Invariants:
    """``script.analysis(Invariants)``"""

    def __init__(self, script: Script):
        self.script = script
        self.effects, self.calls = script.analysis(Effects), script.analysis(CallGraph)
        shown = [owner for n in script.nodes if (owner := whose_attributes(n)) is not None]
        # Whether names of modules may be set, or where and of which type tensors are made; whether
        # attributes may, too, of more than what a library gives (``vars(parser.parse_args())``).
        self.unsure = (
            script.unread
            or script.log.full
            or script.calls("builtins.exec", *DEFAULTS)
            or not all(script.must_be(owner, Ext, Inst) for owner in shown)
        )
        self.open = self.unsure or not all(script.must_be(owner, Ext) for owner in shown)

    def holds(
        self, expr: ast.expr, method: ast.FunctionDef, known: bool = False, safe: bool = False
    ) -> bool:
        """Whether ``expr`` has the same value at each call of the method, which is also what it has
        at the end of the constructor of its class (of one that has none, in a new one); ``known``:
        it is made of nothing but constants and of what the constructor sets; ``safe``: it fails
        nowhere, and costs next to nothing.
        """
        init = own_constructor(method)
        return (
            not self.open
            and (method not in self.calls.runs(init) if init is not None else has_none(method))
            and (safe or _is_always_run(self.script, expr, method) or self._is_literal(expr))
            and (known or self._is_same(expr, method, init))
        )

    def _is_literal(self, expr: ast.expr) -> bool:
        """``torch.tensor([0.5])``, which fails nowhere, and costs next to nothing."""
        if not isinstance(expr, ast.Call) or not self.script.is_call(expr, *LITERAL):
            return False
        parts = [n for a in arguments_of(expr) for n in ast.walk(a)]
        return all(isinstance(n, (ast.List, ast.Load, ast.USub)) or is_number(n) for n in parts)

    # -------------------------------------------------------------------------- what it is made of
    def _is_same(self, expr: ast.AST, method: Function, init: ast.FunctionDef | None) -> bool:
        found = self.script.values(expr) if isinstance(expr, ast.expr) else frozenset()
        match expr:
            case ast.Name(ctx=ast.Load()):
                return isinstance(owner(expr), COMPREHENSIONS) or self.is_bound_once(expr)
            case ast.Attribute(value=ast.Name(id=name)) if (
                isinstance(method, ast.FunctionDef) and name == method.args.args[0].arg
            ):
                return self.is_kept(expr, init)
            case ast.Attribute(value=inner):
                if certainly(found, Ref, Module):
                    return True
                if expr.attr in ASKED | ARRAYS:
                    return self._is_same(inner, method, init)
                owners = self.script.values(inner)
                return (
                    _is_simple(found)
                    and (len(found) == 1 or not any_of(owners, Module))
                    and self._is_same(inner, method, init)
                    and not self.is_set(expr.attr, owners, None)
                )
            case ast.Call():
                parts = [*arguments_of(expr)]
                if isinstance(expr.func, ast.Name) and isinstance(owner(expr.func), DEFS):
                    return False  # another function each time, or one that has no name elsewhere
                if isinstance(expr.func, ast.Attribute) and not certainly(found, Ref):
                    if not any_of(self.script.values(expr.func), Ref, Func, Bound):
                        parts.append(expr.func.value)
                return self.computes(expr, init) and all(
                    self._is_same(part, method, init) for part in parts
                )
            case ast.Starred() | ast.Lambda() | ast.Await() | ast.Yield() | ast.NamedExpr():
                return False
            case ast.BinOp(op=ast.MatMult(), left=a, right=b) if self.is_lowered(a, b):
                return False
            case ast.expr() | ast.comprehension():
                return all(
                    self._is_same(part, method, init)
                    for part in ast.iter_child_nodes(expr)
                    if not is_stored(part)
                    and isinstance(part, (ast.expr, ast.comprehension, ast.Slice))
                )
        return False

    def is_bound_once(self, name: ast.Name) -> bool:
        """Whether a name of the module, or of Python, has one plain value all along."""
        scope, found = holder_of(name), self.script.values(name)
        if not isinstance(scope, ast.Module):
            return False
        shown = [parent_of(call) for call in namespace_calls(scope)]
        once = len([n for n in mentions(scope, name.id) if not is_read(n)]) < 2 and all(
            isinstance(use, ast.Subscript) and is_read(use) for use in shown
        )
        if not once:
            return False
        return _is_simple(found) or self._is_plain_list(found) or self._is_plain_array(name)

    def _is_plain_array(self, name: ast.Name) -> bool:
        """An array of NumPy's that a file makes for itself, and that nobody writes to."""
        made = array_of(self.script, name)
        if made is None or made.tensor or made.is_list or not made.plain:
            return False
        scope = holder_of(name)
        mine = array_origins(self.script, name)
        elsewhere = any(
            isinstance(n, ast.alias)
            and n.name == name.id
            or is_attribute(n, name.id)
            and self.script.may_be(n.value, Module)
            for kind in (ast.alias, ast.Attribute)
            for n in self.script.each(kind)
        )
        return (
            not elsewhere
            and not self._writes_to(mine, None)
            and not any(
                ReadOnly(self.script).follow(n, None)
                for n in mentions(scope, name.id)
                if is_read(n)
            )
        )

    def _is_plain_list(self, found: Values) -> bool:
        """Lists of constants, which nobody writes to under whatever name."""
        lists = of_kind(found, Seq)
        return (
            has_only_constants(found)
            and not any(
                any_in(lists, self.script.values(base))
                for w in self.effects.writes
                for base in (w.base, w.node)
                if isinstance(base, ast.expr) and (base is w.base or is_augmented(base))
            )
            and not any(
                Held(self.script).follow(n, None)
                for kind in VARIABLES
                for n in self.script.each(kind)
                if is_read(n) and any_in(lists, self.script.values(n))
            )
        )

    def is_kept(self, attribute: ast.Attribute, init: ast.FunctionDef | None) -> bool:
        """``self.x``: set by the constructor alone, a plain value or one that nobody writes to."""
        found, owners = self.script.values(attribute), self.script.values(attribute.value)
        if not found or Const(None) in found or self.is_set(attribute.attr, owners, init):
            return False
        if _is_simple(found) or all(isinstance(t, Inst) and _is_plain(t) for t in found):
            return True
        if init is None or any(t.param or t.grad or t.device != "cpu" for t in tensors_in(found)):
            return False
        if any_of(found, Const, Arg) and certainly(found, Const, Arg, Unknown):
            return True  # a number; what else it may be is not known
        if not certainly(found, Const, Num, Seq, Tensor):
            return False
        alone = certainly(found, Tensor)
        if alone and self._is_shared(attribute, init) and not self._is_of_array(attribute, init):
            return False
        if not alone and self._is_written(attribute, init):
            return False
        return not any(
            n.attr == attribute.attr
            and is_read(n)
            and (alone or function_of(n) is not init or self._is_taken(n))
            and self._may_be(n.value, owners)
            and (
                Made(self.script, n.attr, init) if function_of(n) is init else ReadOnly(self.script)
            ).follow(n, None)
            for n in self.script.each(ast.Attribute)
        )

    def _may_be(self, held: ast.expr, owners: Values) -> bool:
        """Whether it may be one of these objects: what is not known, too, unless it is ``self`` in
        a class of others."""
        if found := self.script.values(held):
            return not owners.isdisjoint(found)
        method = function_of(held)
        cls = parent_of(method)
        if not (
            isinstance(held, ast.Name) and isinstance(method, DEFS) and _is_first(method, held)
        ):
            return True
        return not isinstance(cls, ast.ClassDef) or any(
            not isinstance(t, Inst) or any(c.node is cls for c in t.cls.lineage()) for t in owners
        )

    def _is_written(self, attribute: ast.Attribute, init: ast.FunctionDef) -> bool:
        """Whether somebody may write to what it holds, under another name."""
        lists = of_kind(self.script.values(attribute), Seq)
        return self._writes_to(array_origins(self.script, attribute), init, lists)

    def _writes_to(
        self, mine: set[ast.expr], init: ast.FunctionDef | None, lists: Sequence[Seq] = ()
    ) -> bool:
        """Whether somebody writes to one of these arrays or lists, outside of the constructor."""
        return any(
            not mine.isdisjoint(array_origins(self.script, base))
            or any_in(lists, self.script.values(base))
            for w in self.effects.writes
            if init is None or function_of(w.node) is not init
            for base in (w.base, w.node)
            if isinstance(base, ast.expr) and (base is w.base or is_augmented(base))
        )

    def _is_shared(self, attribute: ast.Attribute, init: ast.FunctionDef) -> bool:
        """Whether the memory of a tensor may come to anybody else, from where it was made on."""
        memory, question = self.script.analysis(Memory), Made(self.script, attribute.attr, init)
        return any(
            not isinstance(site, ast.expr)
            or (isinstance(site, ast.Call) and may_give(site, "requires_grad"))
            or question.follow(site, None)
            for owner in self.script.values(attribute.value)
            for given in held_under(self.script, owner, attribute.attr)
            for site in (given and memory.made_by(given))
            or {
                m
                for t in of_kind(self.script.values(attribute), Tensor)
                for m in memory.memory_of(t.made)
            }
        )

    def _is_of_array(self, attribute: ast.Attribute, init: ast.FunctionDef) -> bool:
        """Whether a tensor is another name of an array that nobody writes to."""
        return surely(
            isinstance(given, ast.Call)
            and self.script.is_call(given, "torch.from_numpy")
            and self._is_only_read(array_origins(self.script, given.args[0]), init)
            for owner in self.script.values(attribute.value)
            for given in held_under(self.script, owner, attribute.attr)
        )

    def _is_only_read(self, array: set[ast.expr], init: ast.FunctionDef) -> bool:
        """Whether nobody writes to an array, also of those who take it from an object that has
        it."""
        kept = {n.attr for n in of_kind(array, ast.Attribute)}
        kept |= {t.attr for e in array for t in of_kind(usage_of(e).targets, ast.Attribute)}
        reads = (n for n in self.script.each(ast.Attribute) if n.attr in kept and is_read(n))
        follows = Held(self.script)
        return not self._writes_to(array, init) and not any(
            follows.follow(e, None) for e in (*array, *reads)
        )

    def _is_taken(self, held: ast.Attribute) -> bool:
        """Whether its method is kept, to be called later: ``self.add = self.scale.append``."""
        method = parent_of(held)
        return (
            isinstance(method, ast.Attribute)
            and certainly(self.script.values(method), Method)
            and not call_of(method)
        )

    def is_set(self, name: str, owners: frozenset[Thing], init: ast.FunctionDef | None) -> bool:
        """Whether somebody else than the constructor may set the attribute of one of these objects
        (with no constructor at hand: anybody but their own)."""
        if any(_answers(t.cls, name) for t in of_kind(owners, Inst) if name not in t.attrs):
            return True
        classes = {t.cls for t in of_kind(owners, Inst)} | {*of_kind(owners, Cls)}
        for write in self.effects.writes:
            if write.base is None or not (write.name == name or write.computed):
                continue
            mine = self.script.values(write.base)
            if mine and not any(
                isinstance(t, (Unknown, Arg))
                or (_are_kin(t, classes) if isinstance(t, (Inst, Cls)) else t in owners)
                for t in mine
            ):
                continue
            home = function_of(write.node)
            if not (home is init if init is not None else self.calls.only_makes(home)):
                return True
        return False

    # ------------------------------------------------------------------------------ what it calls
    def computes(self, call: ast.Call, init: ast.FunctionDef | None, depth: int = 0) -> bool:
        """Whether a call does nothing but compute, of what it is given."""
        spread = has_star(call.args) and not self.script.is_call(call, *OPERANDS)
        return not (spread or may_give(call)) and surely(
            self._only_computes(callee, call, init, depth) for callee in self.script.called(call)
        )

    def is_lowered(self, *factors: ast.expr) -> bool:
        """Whether a product of matrices may have another type where autocast is on: that for CUDA
        leaves arrays as they are, and what the host computes."""
        host = all(
            surely(
                isinstance(t, Num) or (isinstance(t, Tensor) and t.device == "cpu") for t in made
            )
            for made in map(self.script.values, factors)
        )
        return (
            not host
            or bool(self.script.frameworks)
            or any(
                const(o.args.get(0, "device_type")) != "cuda"
                and self._comes_to(site.node, factors[0])
                for site in self.script.calls("torch.autocast", "torch.cpu.amp.autocast")
                for o in site
            )
        )

    def _comes_to(self, context: ast.AST, place: ast.AST) -> bool:
        match statement_of(context):
            case ast.With() as block:
                run = self.calls.run_in(block)
                return within(place, block) or function_of(place) in run
        return True

    def _only_computes(
        self, callee: Thing, call: ast.Call, init: ast.FunctionDef | None, depth: int
    ) -> bool:
        if any(k.arg in ("out", "generator", "requires_grad") for k in call.keywords):
            return False
        match callee:
            case Ref(name=name):
                lowers = not name.startswith("numpy.") and autocast(last_part(name)) == "lower"
                others = draws(name) or (lowers and self.is_lowered(*call.args))
                return only_reads(name) and not others
            case Method(this=Const() | Num(), name=name) if name in TEXTS:
                return True
            case Method(name=name):
                others = draws(name) or is_in_place(name)
                if autocast(name) == "lower":
                    others = others or self.is_lowered(call.func.value, *call.args)  # type: ignore[attr-defined]
                return name in ARRAYS or (op(f".{name}") is not None and not others)
            case Func(node=function):
                return self.is_pure(function, init, depth)
            case Bound(func=Func(node=function), this=Inst()):
                return (
                    init is not None
                    and parent_of(function) is parent_of(init)
                    and self.is_pure(function, init, depth)
                )
        return isinstance(callee, Unknown) and is_attribute(call.func, *ARRAYS)

    def is_pure(
        self, function: Function, init: ast.FunctionDef | None = None, depth: int = 0
    ) -> bool:
        """Whether a function computes its result of its arguments, constants, and what the
        constructor has set."""
        if depth > DEEPEST or self.calls.is_decorated(function):
            return False
        mine = init is not None and parent_of(function) is parent_of(init)
        given = {p.arg for p in parameters(function)}
        for node in own_nodes(function):
            if isinstance(node, IMPURE):
                return False
            match node:
                case ast.Call(func=func) if not is_attribute(func, "append", "extend"):
                    if not self.computes(node, init, depth + 1):
                        return False
                case ast.Name(ctx=ast.Load()) if isinstance(holder_of(node), ast.Module):
                    if not self.is_bound_once(node):
                        return False
                case ast.Attribute(value=ast.Name(id=name), ctx=ast.Load()) if (
                    mine and given and name == next(iter(parameters(function))).arg
                ):
                    bound = certainly(self.script.values(node), Func, Bound)
                    if init is not None and not bound and not self.is_kept(node, init):
                        return False
                case ast.Attribute(value=held, attr=name, ctx=ast.Load()):
                    owners = self.script.values(held)
                    if any_of(owners, Cls) and self.is_set(name, owners, None):
                        return False
                case ast.BinOp(op=ast.MatMult(), left=a, right=b) if self.is_lowered(a, b):
                    return False
            if any(
                w.base is not None and self._is_given(w.base, function)
                for w in self.effects.of(node)
            ):
                return False
        return True

    def _is_given(self, written: ast.expr, function: Function) -> bool:
        """Whether what is written to may be more than a variable's own."""
        memory = self.script.analysis(Memory)
        return any(
            isinstance(n, (ast.arg, ast.Attribute))
            or (isinstance(n, ast.Name) and holder_of(n) is not function)
            for n in memory.sources(written)
        )


def own_constructor(method: ast.AST) -> ast.FunctionDef | None:
    """The constructor that the class of a method has itself, which runs to its end."""
    cls = parent_of(method)
    if not (isinstance(method, ast.FunctionDef) and isinstance(cls, ast.ClassDef)):
        return None
    if not method.args.args or method.name in MADE:
        return None
    init = one([s for s in of_kind(cls.body, ast.FunctionDef) if s.name == "__init__"])
    return init if init is not None and not contains_kind(init, ast.Return, ast.Yield) else None


def has_none(method: ast.FunctionDef) -> bool:
    """Whether the class of a method has nothing of its own that makes its objects."""
    cls = parent_of(method)
    return isinstance(cls, ast.ClassDef) and not any(
        isinstance(n, DEFS) and n.name in MADE for n in cls.body
    )


def _is_always_run(script: Script, expr: ast.expr, method: ast.FunctionDef) -> bool:
    """Whether nothing decides whether the method comes to ``expr``."""
    above = [*takewhile(lambda n: n is not method, ancestors(expr))]
    return not any(isinstance(n, DECIDING) for n in above) and graph_of(script, expr).one_dominates(
        above[-1:], None
    )


def _is_first(method: Def, held: ast.Name) -> bool:
    """Whether it is the first parameter, which has no other value."""
    first = [p.arg for p in parameters(method)][:1]
    return first == [held.id] and not any(
        is_stored(n) and n.id == held.id for n in nodes_in(method, ast.Name)
    )


def _answers(cls: Cls, name: str) -> bool:
    """Whether code of a class may give an attribute: a property, a descriptor, ``__getattr__``."""
    member = cls.find(name) or cls.find("__getattr__") or frozenset()
    return any_of(member, Func, Unknown, Ext) or any(
        t.cls.find("__get__") for t in of_kind(member, Inst)
    )


def _are_kin(thing: Inst | Cls, classes: set[Cls]) -> bool:
    cls = thing if isinstance(thing, Cls) else thing.cls
    return any(c is cls or c in cls.ancestors() or cls in c.ancestors() for c in classes)


def _is_plain(thing: Inst) -> bool:
    """An object whose attributes are found where its constructor, or its class, sets them."""
    return not any(
        thing.cls.find(name) for name in ("__getattr__", "__getattribute__", "__setattr__")
    )


def _is_simple(found: Values) -> bool:
    """Numbers, text, devices and code, which nobody can change."""
    return surely(
        isinstance(t, SIMPLE)
        or is_named(t, Ext, "torch.device")
        or (isinstance(t, Num) and bool(t.pattern or t.scalar))
        for t in found
    )
