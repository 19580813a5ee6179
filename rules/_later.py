"""Statements that only put a number away, into a sum, a list, an average, are put off: the tensors are kept, and read when needed.

``total += loss.item() * n`` becomes ``unread_total.append((loss.detach(), n))``, and below the loop (or in the ``if`` that prints)

    for value, count in unread_total:
        total += value.item() * count

The very same Python arithmetic runs in the same order on the very numbers that ``item()`` would have given, so every result is the same to
the last bit, on every device: sums in float64 on the device would not be possible on MPS, and float32 would round in another way.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

from autofast.edits import After, Before, Edit, Remove, Replace
from autofast.order import Rank
from autofast.read.events import TryFrame, inside
from autofast.read.kinds import grad_mode_of, is_module
from autofast.read.source import Source, ancestors, function_of, live, parent_of, source_of
from autofast.read.values import Arg, Bound, Const, Dict, Ext, Func, Inst, Num, Ref, Seq, Tensor, Thing
from autofast.script import Script

from ._moves import Move, move_around
from ._reads import Read, kept
from ._turns import (
    Loop,
    binds,
    declared,
    first_in,
    functions_in,
    gate_of,
    in_body,
    is_parameter,
    leaves_early,
    loop_of,
    mentions,
    stored_in,
    tries_around,
    within,
)

PURE = frozenset({"float", "int", "round", "abs", "min", "max", "sum", "pow", "str", "len", "bool"})  # of Python's builtins
SIZES = frozenset({"size", "numel", "dim", "nelement"})
NAME = "loss-item-sync"
OUTERMOST = Rank.GRAD_MODE  # lists are made, and read, outside the block of an evaluation


class Unfit(Exception):
    """The statement cannot be put off; ``str()`` is the reason."""


@dataclass(eq=False)
class Sink:
    """A statement of a loop that puts what it reads into ``holder`` and does nothing else.

    Attributes:
        kind: ``number`` for a variable, ``attribute`` for ``self.total``, ``object`` for a list, a dict, an array or an average meter.
        payload: what has to be kept in each turn: the tensors, then numbers that change from turn to turn.
    """

    statement: ast.stmt
    reads: list[Read]
    holder: ast.expr
    kind: str
    payload: list[ast.expr] = field(default_factory=list)

    @property
    def source(self) -> Source:
        return source_of(self.statement)


# ------------------------------------------------------------------------------------------------ recognising one
def sink_of(script: Script, statement: ast.stmt, reads: list[Read], loop: Loop, passed: frozenset[str] = frozenset()) -> Sink:
    """The sink that a statement is; raises :class:`Unfit`.

    ``passed`` are variables that the statements put off together with this one hand to it; a statement that only makes one of
    them (``psnr = 10 * log10(1 / mse.item())``) counts as a sink too.
    """
    match statement:
        case ast.AugAssign(target=ast.Name() as target, value=value):
            sink, parts = Sink(statement, reads, target, _kind(script, target)), [value]
            if any(r.how == "numpy" for r in reads) and not _begins_as_number(target):
                sink.kind = "object"  # an array, which is added to in place
        case ast.AugAssign(target=ast.Attribute() as target, value=value):
            sink, parts = Sink(statement, reads, target, "attribute"), [value]
        case ast.Assign(targets=[ast.Name() as target], value=value) if _names(value, target.id) or target.id in passed:
            sink, parts = Sink(statement, reads, target, _kind(script, value)), [value]
        case ast.AugAssign(target=ast.Subscript() as target, value=value) | ast.Assign(targets=[ast.Subscript() as target], value=value):
            if any(isinstance(n, ast.Slice) for n in ast.walk(target.slice)):
                raise Unfit("")
            sink, parts = Sink(statement, reads, target.value, "object"), [target.slice, value]
        case ast.Expr(value=ast.Call(func=ast.Attribute() as func, args=args, keywords=keywords)):
            if why := _not_a_keeper(script, func):
                raise Unfit(why)
            sink, parts = Sink(statement, reads, func.value, "object"), [*args, *(k.value for k in keywords)]
        case _:
            raise Unfit("")
    collector = _Collector(script, sink, loop, passed)
    if not isinstance(sink.holder, ast.Name) and not collector.is_one(sink.holder):
        raise Unfit(f"`{_text(sink.holder)}` may be another one in each step")
    for part in parts:
        collector.visit(part)
    return sink


def _kind(script: Script, expr: ast.expr) -> str:
    """``number``, or ``object`` for what is changed in place by ``+=`` (a tensor, an array, a list)."""
    return "number" if all(isinstance(t, (Num, Const, Arg)) for t in script.values(expr)) else "object"


def _begins_as_number(target: ast.Name) -> bool:
    """Whether every assignment to a variable computes something new: no array that another variable holds too."""
    stores = [parent_of(n) for n in mentions(function_of(target), target.id) if isinstance(n.ctx, ast.Store)]
    made = [s.value for s in stores if isinstance(s, ast.Assign)]
    plain = all(isinstance(s, (ast.Assign, ast.AugAssign)) for s in stores)
    return plain and all(isinstance(v, (ast.Constant, ast.BinOp, ast.UnaryOp)) for v in made)


def _names(node: ast.AST, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(node))


def _not_a_keeper(script: Script, func: ast.Attribute) -> str:
    """Why a method may do more than keep its arguments; empty for ``list.append`` and for the ``update`` of an average meter."""
    things = script.values(func.value)
    if things and all(isinstance(t, Seq) for t in things) and func.attr == "append":
        return ""
    if not things or not all(isinstance(t, Inst) and not is_module(t) for t in things):
        return "-"
    for thing in things:
        assert isinstance(thing, Inst)
        for method in thing.cls.find(func.attr) or ():
            inner = method.func if isinstance(method, Bound) else method
            if not isinstance(inner, Func) or not _only_counts(script, inner, set()):
                return f"`{func.attr}` of {thing.cls.node.name} does more than keep its arguments"
    return ""


def _only_counts(script: Script, func: Func, seen: set[int]) -> bool:
    """A method that computes with numbers and changes nothing but its own object."""
    seen.add(id(func.node))
    if isinstance(func.node, ast.Lambda) or not func.node.args.args:
        return False
    me = func.node.args.args[0].arg
    for node in (n for s in func.node.body for n in live(s)):
        if isinstance(
            node, (ast.Global, ast.Nonlocal, ast.Yield, ast.YieldFrom, ast.Await, ast.Raise, ast.With, ast.Try, ast.Delete, ast.Import)
        ):
            return False
        if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, ast.Store) and _bottom(node) != me:
            return False
        if isinstance(node, ast.Call) and not _is_plain_call(script, func, node, me, seen):
            return False
    return True


def _is_plain_call(script: Script, func: Func, call: ast.Call, me: str, seen: set[int]) -> bool:
    if isinstance(call.func, ast.Name):
        return call.func.id in PURE | {"isinstance", "hasattr", "list", "tuple", "zip", "enumerate", "range", "sorted"}
    if not isinstance(call.func, ast.Attribute):
        return False
    if _bottom(call.func) == me and isinstance(call.func.value, ast.Name):
        found = func.owner.find(call.func.attr) if func.owner is not None else None
        own = [t.func if isinstance(t, Bound) else t for t in found or ()]
        return bool(own) and all(isinstance(t, Func) and (id(t.node) in seen or _only_counts(script, t, seen)) for t in own)
    if _bottom(call.func) == me:
        return call.func.attr in ("append", "appendleft", "pop", "popleft", "get", "setdefault", "items", "values", "keys", "clear")
    return all(isinstance(t, Ref) and t.name.startswith(("math.", "numpy.")) for t in script.values(call.func)) and bool(
        script.values(call.func)
    )


def _bottom(node: ast.expr) -> str:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


class _Collector:
    """Finds what a sink has to keep in each turn: everything in it that is not the same when it runs later."""

    def __init__(self, script: Script, sink: Sink, loop: Loop, passed: frozenset[str]):
        self.script, self.sink, self.loop = script, sink, loop
        self.live = passed | ({sink.holder.id} if isinstance(sink.holder, ast.Name) else set())
        self.reads = {id(r.node): r for r in sink.reads}
        self.changing = stored_in(loop) | {n for f in _globals_of(source_of(loop)) for n in f}

    def visit(self, expr: ast.expr) -> None:
        if id(expr) in self.reads:
            self.keep(self.reads[id(expr)].core)
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
        elif not (isinstance(expr, ast.Name) and expr.id in self.live):
            raise Unfit(f"`{_text(expr)}` is computed in a way that is not understood")

    def is_settled(self, expr: ast.expr) -> bool:
        """Neither a read nor what is put off is in it: it can be computed in its turn."""
        return not any(id(n) in self.reads or (isinstance(n, ast.Name) and n.id in self.live) for n in ast.walk(expr))

    def is_same_later(self, expr: ast.expr) -> bool:
        if isinstance(expr, ast.Constant):
            return True
        if isinstance(expr, ast.Name):
            return expr.id not in self.changing
        if isinstance(expr, ast.Attribute):
            return self.is_same_later(expr.value) and not self.is_set_inside(expr.attr)
        if isinstance(expr, (ast.BinOp, ast.UnaryOp, ast.Tuple)):
            return all(self.is_same_later(c) for c in ast.iter_child_nodes(expr) if isinstance(c, ast.expr))
        if isinstance(expr, ast.Call) and isinstance(expr.func, ast.Name) and expr.func.id == "len" and len(expr.args) == 1:
            fixed = (Ext, Inst, Tensor)
            return self.is_same_later(expr.args[0]) and all(isinstance(t, fixed) for t in self.script.values(expr.args[0]))
        return False

    def is_one(self, holder: ast.expr) -> bool:
        """Whether what holds the numbers is found by the same way later (that nothing else is put there is asked elsewhere)."""
        if isinstance(holder, ast.Attribute):
            return self.is_one(holder.value)
        if isinstance(holder, ast.Subscript):
            return self.is_one(holder.value) and self.is_same_later(holder.slice)
        return isinstance(holder, ast.Name) and holder.id not in self.changing

    def is_set_inside(self, name: str) -> bool:
        sites = self.script.log.of("set_attribute", "set_elsewhere", "set_flag")
        return bool(self.script.unread) or any(o.data.get("name") == name and inside(o.stack, self.loop) for s in sites for o in s)

    def keep(self, core: ast.expr) -> None:
        if not any(ast.dump(core) == ast.dump(p) for p in self.sink.payload):
            self.sink.payload.append(core)

    def keep_number(self, expr: ast.expr) -> None:
        if not is_number(self.script, expr) and not self.is_graph_count(expr):
            raise Unfit(f"`{_text(expr)}` would have to be kept, and may be more than a number")
        self.keep(expr)

    def is_graph_count(self, expr: ast.expr) -> bool:
        """``data.num_graphs`` of a batch of torch_geometric, which is a Python number."""
        match expr:
            case ast.Attribute(value=ast.Name(id=name), attr="num_graphs" | "num_nodes" | "num_edges") if name in stored_in(
                self.loop.target
            ):
                over = [t for n in ast.walk(self.loop.iter) if isinstance(n, ast.expr) for t in self.script.values(n)]
                return any(isinstance(t, Ext) and t.name.startswith("torch_geometric.") for t in over)
        return False

    def check_call(self, call: ast.Call) -> None:
        things = self.script.values(call.func)
        builtin = {f"builtins.{n}" for n in PURE}
        pure = all(isinstance(t, Ref) and (t.name.startswith(("math.", "numpy.")) or t.name in builtin) for t in things)
        if not things or not pure or any(isinstance(a, ast.Starred) for a in call.args):
            raise Unfit(f"`{_text(call.func)}` gets it in each step")


def is_number(script: Script, expr: ast.expr) -> bool:
    """Whether an expression is certainly a Python number (or text), as far as the reader or its form tells."""
    if isinstance(expr, ast.Call) and isinstance(expr.func, ast.Attribute) and expr.func.attr in SIZES:
        return bool(expr.args) or expr.func.attr != "size"
    if isinstance(expr, ast.Subscript) and isinstance(expr.value, ast.Attribute) and expr.value.attr == "shape":
        return not isinstance(expr.slice, ast.Slice)
    if isinstance(expr, ast.Call) and isinstance(expr.func, ast.Name) and expr.func.id == "len":
        return True
    values = script.values(expr)
    return bool(values) and all(
        isinstance(t, (Num, Arg)) or (isinstance(t, Const) and isinstance(t.value, (int, float, str))) for t in values
    )


def _globals_of(source: Source) -> Iterator[set[str]]:
    """Names that functions of a file declare global: their values may change in any call."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Global):
            yield set(node.names)


# ------------------------------------------------------------------------------------------------ where it is needed
@dataclass(eq=False)
class Needs:
    """Where the holder of a sink is looked at: in which conditions of the loop, and whether after it.

    ``moves`` are statements that look at it and have to move into such a condition.
    """

    gates: dict[int, tuple[ast.If, list[ast.AST]]] = field(default_factory=dict)
    after: bool = False
    moves: dict[int, Move] = field(default_factory=dict)

    def add(self, other: Needs) -> None:
        """Take in what is put off together with it."""
        self.after = self.after or other.after
        self.moves.update(other.moves)
        for key, (gate, nodes) in other.gates.items():
            self.gates.setdefault(key, (gate, []))[1].extend(nodes)

    @property
    def places(self) -> tuple[object, ...]:
        return self.after, *sorted(self.gates)


def needs_of(script: Script, sink: Sink, loop: Loop, together: Sequence[ast.stmt] = ()) -> Needs:
    """Where the results of a sink are needed, besides the statements that are put off together with it.

    Raises :class:`Unfit` where that is in each turn, or not known.
    """
    needs = Needs()
    if script.unread and sink.kind not in ("number", "passed"):
        raise Unfit(script.unread)
    if any(isinstance(n, (ast.Yield, ast.YieldFrom, ast.Await)) for n in ast.walk(loop)):
        raise Unfit("the loop hands over to its caller in between")
    for attempt in tries_around(sink.statement, loop):
        raise Unfit(f"it is tried (line {attempt.lineno}): an error would show later")
    outside: list[ast.AST] = []
    for node in _lookers(script, sink, loop):
        if any(within(node, s) for s in (sink.statement, *together)):
            continue
        if not within(node, loop):
            outside.append(node)
            continue
        gate = gate_of(node, loop) if in_body(node, loop) else None
        if gate is None and (move := move_around(script, NAME, node)) is not None:
            needs.moves[id(move.statement)], gate = move, move.gate
        if gate is None or within(sink.statement, gate):
            raise Unfit(f"`{_text(sink.holder)}` is used in every step (line {getattr(node, 'lineno', 0)})")
        needs.gates.setdefault(id(gate), (gate, []))[1].append(node)
    needs.after = any(not isinstance(getattr(n, "ctx", None), ast.Store) for n in outside) or sink.kind != "number"
    needs.after = needs.after or _goes_on(sink, loop, outside)
    _check_end(script, sink, loop, needs, outside)
    if sink.kind != "number" and (caught := _tried_by_caller(script, sink, loop)) is not None:
        raise Unfit(f"an exception in the loop may be caught (line {caught.lineno}), and the rest would never be read")
    return needs


def _goes_on(sink: Sink, loop: Loop, outside: Sequence[ast.AST]) -> bool:
    """Whether the loop is come to again with what it has left in a variable: no loop around it begins with another value."""
    outer = loop_of(loop)
    if outer is None:
        return False
    begins = [s for s in outer.body if s.lineno < loop.lineno and isinstance(s, (ast.Assign, ast.AnnAssign))]
    return not any(within(n, s) and isinstance(getattr(n, "ctx", None), ast.Store) for n in outside for s in begins)


def _tried_by_caller(script: Script, sink: Sink, loop: Loop) -> ast.Try | None:
    for site in script.log.of("sync", "return"):
        if any(site.node is r.node for r in sink.reads):
            for occurrence in site:
                for frame in occurrence.stack:
                    if frame.node is loop:
                        break
                    if isinstance(frame, TryFrame) and frame.part == "body" and isinstance(frame.node, ast.Try) and frame.node.handlers:
                        return frame.node
    return None


def _check_end(script: Script, sink: Sink, loop: Loop, needs: Needs, outside: Sequence[ast.AST]) -> None:
    """What is kept must be read when the loop ends, however it ends, and must not grow without limit."""
    if needs.after:
        if loop.orelse and any(within(n, s) for n in outside for s in loop.orelse):
            raise Unfit("the `else` of the loop uses it")
        here = function_of(loop)
        seen = (
            not isinstance(sink.holder, ast.Name) or is_parameter(here, sink.holder.id) or any(function_of(n) is not here for n in outside)
        )
        if sink.kind != "number" and seen and (leaving := leaves_early(loop)) is not None:
            raise Unfit(f"line {leaving.lineno} leaves the loop before the rest could be read")
        for attempt in tries_around(loop):
            early = [n for n in outside if getattr(n, "lineno", 0) < loop.lineno or any(within(n, s) for s in attempt.body)]
            if sink.kind != "number" or len(early) < len(outside):
                raise Unfit(f"an exception in the loop may be caught (line {attempt.lineno}), and the rest would never be read")
    if not needs.gates and _is_endless(script, loop):
        raise Unfit("the loop may not end: one tensor would be kept for each step")


def _is_endless(script: Script, loop: Loop) -> bool:
    if isinstance(loop, ast.While):
        return True
    todo: list[Thing] = list(script.values(loop.iter))
    seen: set[int] = set()
    while todo:
        thing = todo.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, Ext):
            if thing.name in ("itertools.cycle", "itertools.count", "itertools.repeat"):
                return True
            todo.extend(thing.attrs.get("over", ()))
        elif isinstance(thing, Seq) and thing.kind == "generator" and isinstance(thing.node, ast.AST):
            callee = script.values(thing.node.func) if isinstance(thing.node, ast.Call) else ()
            for t in callee:
                code = t.func.node if isinstance(t, Bound) else t.node if isinstance(t, Func) else None
                if code is not None and any(isinstance(n, ast.While) for n in ast.walk(code)):
                    return True
    return False


def _lookers(script: Script, sink: Sink, loop: Loop) -> Iterator[ast.AST]:
    """Every place that may look at, or change, what a sink fills."""
    holder = sink.holder
    if sink.kind == "attribute":
        assert isinstance(holder, ast.Attribute)
        yield from _of_attribute(script, holder, loop)
    elif isinstance(holder, ast.Name) and not any(isinstance(t, Inst) for t in script.values(holder)):
        yield from _of_variable(script, holder, sink, loop)
    else:
        yield from _of_object(script, holder, loop)


def _of_variable(script: Script, holder: ast.Name, sink: Sink, loop: Loop) -> Iterator[ast.AST]:
    scope = function_of(holder)
    name = holder.id
    if name in declared(scope) or (not isinstance(scope, ast.Module) and not binds(scope, name)):
        raise Unfit(f"`{name}` is a global")
    if is_parameter(scope, name) and sink.kind != "number":
        raise Unfit(f"`{name}` belongs to the caller")
    for node in mentions(scope, name):
        if function_of(node) is not scope:
            raise Unfit(f"`{name}` is used in a function of its own (line {node.lineno})")
        if sink.kind == "object" and not within(node, sink.statement) and (within(node, loop) or node.lineno < loop.lineno):
            if isinstance(node.ctx, ast.Load) and _gives_another_name(node):
                raise Unfit(f"`{name}` may get another name on line {node.lineno}")
        yield node


def _gives_another_name(node: ast.Name) -> bool:
    """``history = losses``, ``log["loss"] = losses``, ``Plot(losses)``: what is seen under another name would be seen too early."""
    parent = parent_of(node)
    if isinstance(parent, ast.Attribute) or (isinstance(parent, ast.Subscript) and parent.value is node):
        return False
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name):
        return parent.func.id not in PURE | {"print"}
    return not isinstance(parent, (ast.FormattedValue, ast.Compare, ast.BinOp, ast.BoolOp, ast.If, ast.UnaryOp))


def _of_attribute(script: Script, holder: ast.Attribute, loop: Loop) -> Iterator[ast.AST]:
    running = functions_in(script, loop)
    for source in script.sources:
        for node in ast.walk(source.tree):
            if _shows_all(script, node) and (within(node, loop) or id(function_of(node)) in running):
                raise Unfit(f"line {getattr(node, 'lineno', 0)} may show `.{holder.attr}` in every step")
            if isinstance(node, ast.Attribute) and node.attr == holder.attr:
                home = function_of(node)
                if home is not function_of(holder) and id(home) in running:
                    raise Unfit(f"`.{holder.attr}` is used in {getattr(home, 'name', 'a function')}(), which runs in every step")
                yield node


def _shows_all(script: Script, node: ast.AST) -> bool:
    """``vars(x)``, ``x.__dict__``, ``getattr(x, name)``: what comes to attributes without their names."""
    if isinstance(node, ast.Attribute):
        return node.attr == "__dict__"
    return isinstance(node, ast.Call) and any(t in (Ref("builtins.vars"), Ref("builtins.getattr")) for t in script.values(node.func))


def _of_object(script: Script, holder: ast.expr, loop: Loop) -> Iterator[ast.AST]:
    """Every expression, in the functions that are not the object's own, that is or holds the object."""
    objects = script.values(holder)
    if not objects or not all(isinstance(t, (Inst, Seq, Dict)) for t in objects):
        raise Unfit(f"what `{_text(holder)}` is is not known")
    holding = _holding(script, objects)
    own = {id(t.cls.node) for t in objects if isinstance(t, Inst)}  # whatever comes to their methods, comes by way of the object
    holders = {id(t.cls.node) for t in holding if isinstance(t, Inst)}
    mine = function_of(holder)
    running, often = functions_in(script, loop), functions_in(script, loop, each=True)
    for source in script.sources:
        for node in ast.walk(source.tree):
            if not isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) or not isinstance(node.ctx, ast.Load):
                continue
            if not any(t in holding for t in script.values(node) if isinstance(t, (Inst, Seq, Dict))):
                continue
            home = function_of(node)
            around = {id(a) for a in ancestors(node)} if home is not mine else set()
            seldom = id(home) not in often
            if around & own or (around & holders and seldom and id(home) in running):
                continue
            gated = home is mine and within(node, loop) and gate_of(node, loop) is not None
            if _passes_by(script, node, objects, holding, methods=not gated and (home is mine or id(home) in running)):
                continue
            if home is not mine and id(home) in running:
                raise Unfit(f"`{_text(holder)}` is used in {getattr(home, 'name', 'a function')}(), which runs in every step")
            yield node


def _passes_by(script: Script, node: ast.expr, objects: frozenset[Thing], holding: set[Thing], methods: bool) -> bool:
    """``self.step`` of an object that only holds the one in question, elsewhere; with ``methods`` also ``self.update``, which is looked at itself."""
    parent = parent_of(node)
    if not isinstance(parent, ast.Attribute) or parent.value is not node:
        return False
    for thing in script.values(node):
        if (
            not isinstance(thing, Inst)
            or thing in objects
            or thing.open
            or any(thing.cls.find(n) for n in ("__getattribute__", "__setattr__"))
        ):
            return False
        member = thing.cls.find(parent.attr) or frozenset()
        data = thing.attrs.get(parent.attr, frozenset())
        if not data and methods and member and all(isinstance(t, Func) and not t.decorators for t in member):
            continue
        if not data or not all(isinstance(t, Const) for t in member) or any(t in holding for t in data if isinstance(t, (Inst, Seq, Dict))):
            return False
    return True


def _holding(script: Script, objects: frozenset[Thing]) -> set[Thing]:
    """The objects and everything that holds one of them."""
    inside_of: dict[Thing, set[Thing]] = {}
    todo = [t for found in script.at.values() for t in found if isinstance(t, (Inst, Seq, Dict))]
    seen: set[int] = set()
    while todo:
        thing = todo.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        held = [t for v in thing.attrs.values() for t in v] if isinstance(thing, Inst) else list(thing.any())
        for part in held:
            if isinstance(part, (Inst, Seq, Dict)):
                inside_of.setdefault(part, set()).add(thing)
                todo.append(part)
    found: set[Thing] = set(objects)
    more = list(objects)
    while more:
        for outer in inside_of.get(more.pop(), ()):
            if outer not in found:
                found.add(outer)
                more.append(outer)
    return found


# ------------------------------------------------------------------------------------------------ the edits
def put_off(script: Script, sinks: list[Sink], loop: Loop, needs: Needs) -> list[Edit]:
    """The edits that put off a sink, together with those that take over what it computes."""
    source = sinks[0].source
    payload: list[ast.expr] = []
    for sink in sinks:
        payload += [p for p in sink.payload if not any(ast.dump(p) == ast.dump(q) for q in payload)]
    cores = {r.key for sink in sinks for r in sink.reads}
    tensors = [p for p in payload if ast.dump(p) in cores]
    payload = [*tensors, *(p for p in payload if ast.dump(p) not in cores)]
    names = _fresh_names(sinks, payload, len(tensors))
    unread = source.fresh(f"unread_{_word(next((s for s in sinks if s.kind != 'passed'), sinks[0]).holder)}")
    items = [_kept(script, sinks, p).replace("{core}", f"{{p{k}}}") if k < len(tensors) else f"{{p{k}}}" for k, p in enumerate(payload)]
    one = len(items) == 1
    append = f"{unread}.append({items[0] if one else '(' + ', '.join(items) + ')'})"
    target = names[0] if one else ", ".join(names)
    slots = {ast.dump(p): n for p, n in zip(payload, names, strict=True)}
    replay = f"for {target} in {unread}:\n" + "\n".join("    " + _escaped(_again(sink, slots)) for sink in sinks)
    edits: list[Edit] = [Replace(sinks[0].statement, append, holes={f"p{k}": p for k, p in enumerate(payload)})]
    edits += [Remove(sink.statement) for sink in sinks[1:]]
    around = _anchor(script, loop)
    edits.append(Before(around, f"{unread} = []", rank=OUTERMOST))
    for gate, nodes in needs.gates.values():
        edits.append(Before(first_in(gate, nodes), f"{replay}\n{unread}.clear()"))
    edits += [e for move in needs.moves.values() for e in move.edits]
    if needs.after:
        edits.append(After(around, replay, rank=OUTERMOST))
    return edits


def _kept(script: Script, sinks: list[Sink], core: ast.expr) -> str:
    ready = any(r.core is core and r.ready for s in sinks for r in s.reads)
    return "{core}" if ready else kept(script, core)


def _anchor(script: Script, loop: Loop) -> ast.stmt:
    """The loop, or the block of a gradient mode that holds nothing else."""
    outer = parent_of(loop)
    if isinstance(outer, ast.With) and len(outer.body) == 1 and outer.body[0] is loop:
        if all(grad_mode_of(script.values(i.context_expr)) is not None and i.optional_vars is None for i in outer.items):
            return outer
    return loop


def _fresh_names(sinks: list[Sink], payload: list[ast.expr], tensors: int) -> list[str]:
    """What the kept things are called where they are read: ``value``, ``count``, ``index``."""
    indices = {
        ast.dump(s.statement.targets[0].slice)
        for s in sinks
        if isinstance(s.statement, ast.Assign) and isinstance(s.statement.targets[0], ast.Subscript)
    }
    names: list[str] = []
    for k, part in enumerate(payload):
        stems = ("value", "number", "reading") if k < tensors else ("index", "place") if ast.dump(part) in indices else ("count", "weight")
        taken = [n for n in names if n.split("_")[0] in stems]
        name = sinks[0].source.fresh(*stems) if not taken else sinks[0].source.fresh(f"{taken[0]}_{len(taken) + 1}")
        names.append(name)
    return names


def _word(holder: ast.expr) -> str:
    """A word for a holder that no other holder in its function gets: its variable or attribute, else all its names."""
    holder = _bare(holder)
    word = holder.id if isinstance(holder, ast.Name) else holder.attr if isinstance(holder, ast.Attribute) else ""
    long = re.sub(r"\W+", "_", ast.unparse(holder)).strip("_")
    shared = any(
        word in (getattr(n, "id", ""), getattr(n, "attr", "")) and ast.unparse(n) != ast.unparse(holder)
        for n in ast.walk(function_of(holder))
    )
    return long if shared or not word else word


def _bare(holder: ast.expr) -> ast.expr:
    while isinstance(holder, ast.Subscript):
        holder = holder.value
    return holder


def _again(sink: Sink, slots: dict[str, str]) -> str:
    """The statement as it runs later: each read of a kept tensor, each number that was kept with it."""
    swaps: dict[int, str] = {id(r.node): r.of(slots[r.key]) for r in sink.reads}
    numbers = {ast.dump(p): slots[ast.dump(p)] for p in sink.payload if ast.dump(p) not in {r.key for r in sink.reads}}
    for node in ast.walk(sink.statement):
        if isinstance(node, ast.expr) and ast.dump(node) in numbers and not any(within(node, r.node) for r in sink.reads):
            swaps[id(node)] = numbers[ast.dump(node)]
    return swapped(sink.statement, swaps)


def swapped(statement: ast.stmt, swaps: dict[int, str]) -> str:
    """The text of a statement with other code in place of some expressions."""
    source = source_of(statement)
    if statement.lineno != statement.end_lineno:
        return ast.unparse(_Swap(swaps).visit(_copied(statement, swaps)))
    line = source.lines[statement.lineno - 1].encode()
    spots = [n for n in ast.walk(statement) if id(n) in swaps and not any(id(a) in swaps for a in ancestors(n))]
    start, end = statement.col_offset, statement.end_col_offset or len(line)
    out, here = b"", start
    for node in sorted(spots, key=lambda n: getattr(n, "col_offset", 0)):
        out += line[here : node.col_offset] + swaps[id(node)].encode()  # type: ignore[attr-defined]
        here = node.end_col_offset  # type: ignore[attr-defined]
    return (out + line[here:end]).decode()


class _Swap(ast.NodeTransformer):
    def __init__(self, swaps: dict[int, str]):
        self.swaps = swaps

    def visit(self, node: ast.AST) -> ast.AST:
        code = getattr(node, "_af_swap", None)
        return ast.parse(code, mode="eval").body if code is not None else self.generic_visit(node)


def _copied(statement: ast.stmt, swaps: dict[int, str]) -> ast.stmt:
    """A copy without links to the file, with a note where something is swapped."""
    for node in ast.walk(statement):
        if id(node) in swaps:
            node._af_swap = swaps[id(node)]  # type: ignore[attr-defined]
    memo: dict[int, object] = {id(source_of(statement)): None, id(parent_of(statement)): None}
    copy = deepcopy(statement, memo)
    for node in ast.walk(statement):
        if hasattr(node, "_af_swap"):
            del node._af_swap
    return copy


def _escaped(code: str) -> str:
    return code.replace("{", "{{").replace("}", "}}")


def _text(node: ast.AST) -> str:
    return source_of(node).segment(node).split("\n")[0]
