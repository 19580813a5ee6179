"""Statements of a loop that only put a number away: into a sum, a list, an average, a record of
TensorBoard's.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from autofast.facts.host_io import COMPUTES, WRITERS
from autofast.flow.callgraph import CallGraph, code_of
from autofast.flow.loops import Loop
from autofast.flow.program import Flow
from autofast.flow.scopes import binds, mentions, stored_in
from autofast.model.calls import (
    is_call_of,
    is_method,
    is_name,
    is_same_code,
    names_in,
    root_of,
    short_name,
    targets_of,
    variable_name,
)
from autofast.model.kinds import is_module
from autofast.model.script import Script
from autofast.model.several import any_in, surely, wordset
from autofast.model.source import (
    Nodes,
    Source,
    contains_kind,
    first_line,
    function_of,
    live_nodes,
    nodes_in,
    parent_of,
    source_of,
    walk,
)
from autofast.model.syntax import PAUSES, has_star, is_attribute, is_read, is_stored
from autofast.model.values import (
    Arg,
    Cls,
    Const,
    Dict,
    Ext,
    Func,
    Inst,
    Module,
    Num,
    Ref,
    Seq,
    Tensor,
    Unknown,
    all_of,
    any_of,
    begins,
    certainly,
    is_const,
    is_named,
    of_kind,
    unbound,
)
from autofast.rule import Refusal
from autofast.techniques.syncs.reads import Read, gives_the_same

# Of Python's builtins.
PURE = wordset("float int round abs min max sum pow str len bool")
GOES_OVER = wordset("isinstance hasattr list tuple zip enumerate range sorted")
OF_LISTS = wordset("append appendleft pop popleft get setdefault items values keys clear")
SIZES = wordset("size numel dim nelement")
RECORDS = wordset("add_scalar add_scalars")
RECORDED = wordset("tag scalar_value main_tag tag_scalar_dict global_step")


@dataclass(eq=False)
class Sink:
    """A statement of a loop that puts what it reads into ``holder`` and does nothing else.

    Attributes:
        kind: ``number`` for a variable, ``object`` for a list, an array or an average meter,
            ``record`` for a writer of TensorBoard's.
        payload: what has to be kept in each turn: the tensors, then numbers that change from turn
            to turn.
        beside: the other statements of the loop that add to the same variable, and are put off
            with this one.
    """

    statement: ast.stmt
    reads: list[Read]
    holder: ast.expr
    kind: str
    payload: list[ast.expr] = field(default_factory=list)
    beside: Sequence[Sink] = ()

    @property
    def source(self) -> Source:
        return source_of(self.statement)


def sink_of(
    script: Script,
    statement: ast.stmt,
    reads: list[Read],
    loop: Loop,
    passed: frozenset[str] = frozenset(),
) -> Sink:
    """The sink that a statement is; raises :class:`Refusal`.

    ``passed`` are variables that the statements put off together with this one hand to it; a
    statement that only makes one of them (``psnr = 10 * log10(1 / mse.item())``) counts as a sink
    too.
    """
    match statement:
        case ast.AugAssign(target=ast.Name() as target, value=value):
            sink, parts = Sink(statement, reads, target, _kind(script, target)), [value]
            if _begins_as_unknown(script, target) or any(r.how == "numpy" for r in reads):
                sink.kind = "object"  # an array, which is added to in place
        case ast.Assign(targets=[ast.Name() as target], value=value) if (
            target.id in names_in(value) or target.id in passed
        ):
            sink, parts = Sink(statement, reads, target, _kind(script, value)), [value]
        case (
            ast.AugAssign(target=ast.Subscript() as target, value=value)
            | ast.Assign(targets=[ast.Subscript() as target], value=value)
        ):
            if contains_kind(target.slice, ast.Slice):
                raise Refusal("")
            sink, parts = Sink(statement, reads, target.value, "object"), [target.slice, value]
        case ast.Expr(value=ast.Call(func=ast.Attribute() as func, args=args) as call):
            record = is_record(script, call)
            if not record and (why := not_a_keeper(script, func)):
                raise Refusal(why)
            kind = "record" if record else "object"
            parts = [*args, *(k.value for k in call.keywords)]
            sink = Sink(statement, reads, func.value, kind)
        case _:
            raise Refusal("")
    if does_more(script, statement):
        raise Refusal(f"`{first_line(sink.holder)}` does something of its own with it")
    collector = _Collector(script, sink, loop, passed)
    if not isinstance(sink.holder, ast.Name) and not collector.is_one(sink.holder):
        raise Refusal(f"`{first_line(sink.holder)}` may be another one in each step")
    for part in parts:
        collector.visit(part)
    return sink


def does_more(script: Script, statement: ast.stmt) -> bool:
    """Whether an object of the project adds, or sets, by a method of its own."""
    targets = targets_of(statement) if isinstance(statement, (ast.Assign, ast.AugAssign)) else []
    for target in targets:
        match target:
            case ast.Name(id=name):
                same = [n for n in nodes_in(statement, ast.Name) if n.id == name]
                if any(isinstance(t, Inst) for n in same for t in script.values(n)):
                    return True
                continue
            case ast.Attribute(value=owner, attr=name):
                names = ["__setattr__", name]
            case ast.Subscript(value=owner):
                names = ["__setitem__"]
            case _:
                continue
        for thing in script.values(owner):
            if isinstance(thing, Module):
                return True  # its functions see the variable under another name
            if isinstance(thing, Inst):
                members = [t for n in names for t in thing.cls.find(n) or ()]
            else:
                members = []
            if any_of(members, Func):
                return True
    return False


def _kind(script: Script, expr: ast.expr) -> str:
    """``number``, or ``object`` for what is changed in place by ``+=`` (a tensor, an array, a
    list).
    """
    return "number" if all_of(script.values(expr), Num, Const, Arg) else "object"


def _begins_as_unknown(script: Script, target: ast.Name) -> bool:
    """Whether a variable may begin as an array, which ``+=`` changes in place: ``total =
    np.zeros(1)``.
    """
    for node in mentions(function_of(target), target.id):
        statement = parent_of(node)
        if isinstance(statement, ast.Assign) and node in statement.targets:
            known = certainly(script.values(statement.value), Num, Const, Arg)
            made = script.called(statement.value)
            known = known and not any(begins(t, Ref, "numpy.") for t in made)
            if not known and not isinstance(
                statement.value, (ast.Constant, ast.BinOp, ast.UnaryOp)
            ):
                return True
    return False


def is_record(script: Script, call: ast.AST) -> bool:
    """``writer.add_scalar(name, value, step)``, of a writer of TensorBoard's: what it says is the
    same whenever it is said, but for the time.
    """
    match call:
        case ast.Call(func=ast.Attribute(value=writer, attr=name), args=args, keywords=keywords):
            steps = len(args) > 2 or "global_step" in {k.arg for k in keywords}
            timed = len(args) > 3 or not {k.arg for k in keywords} <= RECORDED
            writers = (
                isinstance(t, Ext) and WRITERS.fullmatch(t.name) for t in script.values(writer)
            )
            return name in RECORDS and steps and not timed and surely(writers)
    return False


def not_a_keeper(script: Script, func: ast.Attribute) -> str:
    """Why a method may do more than keep its arguments; empty for ``list.append`` and for the
    ``update`` of an average meter.
    """
    things = script.values(func.value)
    if certainly(things, Seq) and func.attr == "append":
        return ""
    if not surely(isinstance(t, Inst) and not is_module(t) for t in things):
        return "-"
    for thing in things:
        assert isinstance(thing, Inst)
        if any(map(shares, (thing.cls, *thing.cls.ancestors()))):
            return f"objects of {thing.cls.node.name} have something in common"
        for method in thing.cls.find(func.attr) or ():
            inner = unbound(method)
            if not isinstance(inner, Func) or not only_counts(script, inner):
                return f"`{func.attr}` of {thing.cls.node.name} does more than keep its arguments"
    return ""


def shares(cls: Cls) -> bool:
    """Whether objects of a class may fill something that all of them have."""
    made = [s.value for s in cls.node.body if isinstance(s, ast.Assign)]
    filled = any_of(made, ast.List, ast.Dict, ast.Set, ast.Call)
    return filled or any(n.attr == "__class__" for n in nodes_in(cls.node, ast.Attribute))


# What no method does that only computes with numbers of its object.
MORE_THAN_COUNTS = (
    *(ast.Global, ast.Nonlocal, ast.Yield, ast.YieldFrom, ast.Await),
    *(ast.Raise, ast.With, ast.Try, ast.Delete, ast.Import),
)


def only_counts(script: Script, func: Func) -> bool:
    """Whether a method computes with numbers, and changes nothing but its own object."""
    return _only_counts(script, func, set())


def _only_counts(script: Script, func: Func, seen: Nodes) -> bool:
    seen.add(func.node)
    if isinstance(func.node, ast.Lambda) or not func.node.args.args:
        return False
    me = func.node.args.args[0].arg
    for node in (n for s in func.node.body for n in live_nodes(s)):
        if isinstance(node, MORE_THAN_COUNTS):
            return False
        match node:
            case ast.Attribute() | ast.Subscript() if is_stored(node) and _bottom(node) != me:
                return False
            case ast.Attribute(attr=name) if is_stored(node) and _is_set_by_code(func, name):
                return False
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner == me:
                if _is_from_outside(script, func, name):
                    return False
            case ast.Name(id=name) if is_read(node) and not binds(func.node, name):
                library = certainly(script.values(node), Ref)
                if not hasattr(builtins, name) and not library:  # it may be another one later
                    return False
            case ast.Call() if not _is_plain_call(script, func, node, me, seen):
                return False
    return True


def _is_set_by_code(func: Func, name: str) -> bool:
    """By a property, or by ``__setattr__``."""
    members = [
        t
        for n in (name, "__setattr__")
        for t in (func.owner.find(n) if func.owner is not None else None) or ()
    ]
    return any_of(members, Func)


def _is_from_outside(script: Script, func: Func, attr: str) -> bool:
    """Whether an attribute holds an object that was handed over, which others may change:
    ``self.state = state``.
    """
    classes = func.owner.lineage() if func.owner is not None else []
    for node in (n for c in classes for n in walk(c.node)):
        if isinstance(node, ast.Assign) and any(is_attribute(t, attr) for t in node.targets):
            for name in _handed_over(node.value):
                if script.may_be(name, Inst, Seq, Dict, Ext):
                    return True
    return False


def _handed_over(value: ast.expr) -> Iterator[ast.expr]:
    """The objects in an expression that stay what they are, and are not only used to compute
    something.
    """
    match value:
        case ast.Attribute() if _bottom(value) == "self":
            pass
        case ast.Name() | ast.Attribute() | ast.Subscript():
            yield value
        case ast.BoolOp() | ast.IfExp() | ast.Tuple() | ast.List() | ast.Dict():
            for child in ast.iter_child_nodes(value):
                if isinstance(child, ast.expr):
                    yield from _handed_over(child)


def _is_plain_call(script: Script, func: Func, call: ast.Call, me: str, seen: Nodes) -> bool:
    if isinstance(call.func, ast.Name):
        return call.func.id in PURE or call.func.id in GOES_OVER
    if not is_method(call):
        return False
    if _bottom(call.func) == me and isinstance(call.func.value, ast.Name):
        found = func.owner.find(call.func.attr) if func.owner is not None else None
        own = [unbound(t) for t in found or ()]
        return surely(
            isinstance(t, Func) and (t.node in seen or _only_counts(script, t, seen)) for t in own
        )
    if _bottom(call.func) == me:
        return call.func.attr in OF_LISTS
    return surely(
        isinstance(t, Ref) and COMPUTES.fullmatch(t.name) is not None for t in script.called(call)
    )


def _bottom(node: ast.expr) -> str:
    return short_name(root_of(node, ast.Attribute, ast.Subscript))


class _Collector:
    """Finds what a sink has to keep in each turn: everything in it that is not the same when it
    runs later.
    """

    def __init__(self, script: Script, sink: Sink, loop: Loop, passed: frozenset[str]):
        self.script, self.sink, self.loop = script, sink, loop
        self.live = passed | {variable_name(sink.holder)}
        self.reads = {r.node: r for r in sink.reads}
        self.changing = stored_in(loop) | {n for f in _globals_of(source_of(loop)) for n in f}

    def visit(self, expr: ast.expr) -> None:
        if expr in self.reads:
            self.keep(self.reads[expr].core)
        elif self.is_settled(expr):
            if not self.is_same_later(expr):
                self.keep_number(expr)
        elif isinstance(expr, (ast.BinOp, ast.UnaryOp, ast.Tuple, ast.List, ast.Dict, ast.Call)):
            if isinstance(expr, ast.Call):
                self.check_call(expr)
            for child in ast.iter_child_nodes(expr):
                if isinstance(child, ast.keyword):
                    self.visit(child.value)
                elif isinstance(child, ast.expr) and child is not getattr(expr, "func", None):
                    self.visit(child)
        elif not is_name(expr, *self.live):
            raise Refusal(f"`{first_line(expr)}` is computed in a way that is not understood")

    def is_settled(self, expr: ast.expr) -> bool:
        """Neither a read nor what is put off is in it: it can be computed in its turn."""
        return self.live.isdisjoint(names_in(expr)) and not any_in(walk(expr), self.reads)

    def is_same_later(self, expr: ast.expr) -> bool:
        match expr:
            case ast.Constant():
                return True
            case ast.Name(id=name):
                return name not in self.changing
            case ast.BinOp() | ast.UnaryOp() | ast.Tuple():
                parts = of_kind(ast.iter_child_nodes(expr), ast.expr)
                return all(map(self.is_same_later, parts))
        if is_call_of(expr, "len") and len(expr.args) == 1:
            fixed = (Ext, Inst, Tensor)
            return self.is_same_later(expr.args[0]) and all_of(
                self.script.values(expr.args[0]), fixed
            )
        return False

    def is_one(self, holder: ast.expr) -> bool:
        """Whether what holds the numbers is found by the same way later (that nothing else is put
        there is asked elsewhere).
        """
        match holder:
            case ast.Attribute(value=of):
                return self.is_one(of)
            case ast.Subscript(value=of, slice=index):
                return self.is_one(of) and self.is_same_later(index)
            case ast.Name(id=name):
                return name not in self.changing
        return False

    def keep(self, core: ast.expr) -> None:
        if not any(is_same_code(core, p) for p in self.sink.payload):
            self.sink.payload.append(core)
        elif not gives_the_same(self.script, core):
            raise Refusal(f"`{first_line(core)}` is computed twice")

    def keep_number(self, expr: ast.expr) -> None:
        if not is_number(self.script, expr) and not self.is_graph_count(expr):
            raise Refusal(
                f"`{first_line(expr)}` would have to be kept, and may be more than a number"
            )
        self.keep(expr)

    def is_graph_count(self, expr: ast.expr) -> bool:
        """``data.num_graphs`` of a batch of torch_geometric, which is a Python number."""
        loop = self.loop
        if (
            isinstance(loop, ast.While)
            or not isinstance(expr, ast.Attribute)
            or not isinstance(expr.value, ast.Name)
        ):
            return False
        over = [t for n in nodes_in(loop.iter, ast.expr) for t in self.script.values(n)]
        graphs = any(begins(t, Ext, "torch_geometric.") for t in over)
        return (
            graphs
            and expr.value.id in stored_in(loop.target)
            and expr.attr in ("num_graphs", "num_nodes", "num_edges")
        )

    def check_call(self, call: ast.Call) -> None:
        things = self.script.called(call)
        builtin = {"torch.tensor", *(f"builtins.{n}" for n in PURE)}
        pure = all(
            isinstance(t, Ref) and (t.name.startswith(("math.", "numpy.")) or t.name in builtin)
            for t in things
        )
        if not things or not pure or has_star(call.args):
            raise Refusal(f"`{first_line(call.func)}` gets it in each step")


def is_number(script: Script, expr: ast.expr, depth: int = 5) -> bool:
    """Whether an expression is certainly a Python number (or text), as far as the reader or its
    form tells.
    """
    if is_method(expr) and expr.func.attr in SIZES:
        return bool(expr.args) or expr.func.attr != "size"
    match expr:
        case ast.Subscript(value=ast.Attribute(attr="shape"), slice=index):
            return not isinstance(index, ast.Slice)
        case ast.Call(func=ast.Name("len")):
            return True
        case ast.Call() if depth and _returns_numbers(script, expr, depth - 1):
            return True
    values = script.values(expr)
    numbers = [isinstance(t, (Num, Arg)) or is_const(t, int, float, str) for t in values]
    if surely(numbers) or (any(numbers) and _is_option(script, expr)):
        return True
    parts = _computed_of(script, expr) if depth else []
    return bool(parts) and all(is_number(script, part, depth - 1) for part in parts)


def _is_option(script: Script, expr: ast.expr) -> bool:
    """``args.steps``, which a file of defaults may set, too."""
    if not is_attribute(expr):
        return False
    names = (is_named(t, Ext, "argparse.Namespace") for t in script.values(expr.value))
    known = all(isinstance(t, (Num, Arg, Const, Unknown)) for t in script.values(expr))
    return known and surely(names)


def _computed_of(script: Script, expr: ast.expr) -> list[ast.expr]:
    """What gives a number where all of these are: what gives a variable its value, or is computed
    with.
    """
    match expr:
        case ast.Name():
            return script.analysis(Flow).values(expr)
        case ast.BinOp(left=left, right=right):
            return [left, right]
        case ast.Call(args=[_, _, *_] as parts, keywords=[]):
            return parts if script.is_call(expr, "builtins.max", "builtins.min") else []
    return []


def _returns_numbers(script: Script, call: ast.Call, depth: int) -> bool:
    """``self._batch_size(x)``, a function of the project that returns ``x.size(0)``."""
    codes = [[c.func.node for c in code_of(t)] for t in script.called(call)]
    given = [script.analysis(CallGraph).results(f) for f in (f for code in codes for f in code)]
    plain = all(codes) and not any(contains_kind(f, *PAUSES) for code in codes for f in code)
    return plain and surely(r and all(is_number(script, e, depth) for e in r) for r in given)


def _globals_of(source: Source) -> Iterator[set[str]]:
    """Names that functions of a file declare global: their values may change in any call."""
    for node in source.each(ast.Global):
        yield set(node.names)
