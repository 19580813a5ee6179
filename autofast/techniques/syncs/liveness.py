"""Where the results of a sink are needed: in which conditions of its loop, and whether after it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from autofast.flow.callgraph import CallGraph, code_of
from autofast.flow.loops import Loop, common_loop, loop_of
from autofast.flow.program import Flow, definitions_of, graph_of
from autofast.flow.reflection import is_glance, namespace_calls
from autofast.flow.scopes import binds, declared, is_parameter, mentions
from autofast.model.calls import call_of, is_name, names_in, variable_name
from autofast.model.contents import with_contents, wrapped
from autofast.model.events import CallFrame, inside
from autofast.model.script import Script
from autofast.model.several import of_kind, surely, wordset
from autofast.model.source import (
    ByNode,
    ancestors,
    at,
    contains_kind,
    first_line,
    function_of,
    is_at_top,
    parent_of,
    walk,
    within,
    within_any,
)
from autofast.model.syntax import TARGETS, WITHS, is_attribute, is_read, is_stored
from autofast.model.values import (
    COLLECTIONS,
    OBJECTS,
    Bound,
    Const,
    Dict,
    Ext,
    Func,
    Inst,
    Seq,
    Thing,
    all_of,
    consts,
    is_named,
)
from autofast.rule import Refusal
from autofast.techniques.syncs.code_motion import Move, move_around
from autofast.techniques.syncs.sinks import PURE, Sink, not_a_keeper, only_counts
from autofast.techniques.syncs.steps import (
    InFew,
    catching_statements,
    is_step,
    rare_branch,
    where_shown,
)
from autofast.techniques.syncs.store_uses import holders_of
from autofast.techniques.syncs.summable import is_summed

# Functions that compute something new of a list, or an array.
COMPUTES_ANEW = wordset(
    "mean sum std var min max median average percentile quantile array stack", "numpy."
) | wordset("mean fmean median stdev", "statistics.")
CHOOSES = {"axis", "dtype", "keepdims", "ddof", "q"}
KNOWN_BEFORE = wordset("shape size ndim dtype")
LEAVING = wordset("sys.exit builtins.exit builtins.quit os._exit os.abort")
RECORDED_LATER = "`--effect recipe` keeps it, and writes what was kept of 100 steps at once"


@dataclass(eq=False)
class Needs:
    """Where the holder of a sink is looked at: in which conditions of the loop, and whether after
    it.

    ``moves`` are statements that look at it and have to move into such a condition.
    """

    gates: dict[ast.If, list[ast.AST]] = field(default_factory=dict)
    after: bool = False
    moves: ByNode[Move] = field(default_factory=dict)

    def add(self, other: Needs) -> None:
        """Take in what is put off together with it."""
        self.after = self.after or other.after
        self.moves.update(other.moves)
        for gate, nodes in other.gates.items():
            self.gates.setdefault(gate, []).extend(nodes)

    @property
    def places(self) -> tuple[object, ...]:
        return self.after, frozenset(self.gates)


def needs_of(script: Script, sink: Sink, loop: Loop, together: Sequence[Sink] = ()) -> Needs:
    """Where the results of a sink are needed, besides what is put off together with it; what these
    statements keep is computed in its turn.

    Raises :class:`Refusal` where that is in each turn, or not known.
    """
    needs = Needs()
    if script.unread and sink.kind not in ("number", "passed"):
        if not is_private(script, sink.holder):
            raise Refusal(script.unread)
    if contains_kind(loop, ast.Yield, ast.YieldFrom, ast.Await):
        raise Refusal("the loop hands over to its caller in between")
    for attempt in catching_statements(script, sink.statement, loop):
        raise Refusal(f"it is tried ({at(attempt)}): an error would show later")
    if sink.kind == "record":
        _check_record(script, sink, loop)
        return Needs(after=True)
    outside: list[ast.AST] = []
    away = (sink, *together)
    kept = [p for s in away for p in s.payload]
    for node in _lookers(script, sink, loop):
        if within_any(node, [s.statement for s in away]) and not within_any(node, kept):
            continue
        if not within(node, loop):
            outside.append(node)
            continue
        gate = rare_branch(script, node, loop)
        if gate is None and (move := move_around(script, node)) is not None:
            needs.moves[move.statements[0]], gate = move, move.gate
        if gate is None or within(sink.statement, gate):
            used = f"`{first_line(sink.holder)}` is used in every step ({at(node)})"
            raise Refusal(f"{used}{where_shown(script, node)}")
        needs.gates.setdefault(gate, []).append(node)
    needs.after = _is_used_after(script, sink, loop, outside)
    _check_end(script, sink, loop, needs, outside)
    if sink.kind != "number":
        _check_callers(script, sink, loop)
    return needs


def _check_callers(script: Script, sink: Sink, loop: Loop) -> None:
    if (caught := _tried_by_caller(script, sink, loop)) is not None:
        raise Refusal(
            f"an exception in the loop may be caught ({at(caught)}), and the rest would never be read"
        )


def _check_record(script: Script, sink: Sink, loop: Loop) -> None:
    """Whether records may be written some steps later, as they are where less is shown in each."""
    if not script.analysis(InFew).is_asked:
        raise Refusal(f"it is recorded in every step; {RECORDED_LATER}")
    if not is_step(script, loop):
        raise Refusal("behind the inner loop, it would be read in every step all the same")
    for leaving in of_kind(graph_of(script, loop).exits(loop), ast.Return):
        raise Refusal("leaves the loop before the rest could be written", leaving)
    for attempt in catching_statements(script, loop):
        raise Refusal(
            f"an exception in the loop may be caught ({at(attempt)}): the rest is not written"
        )
    _check_callers(script, sink, loop)
    writers = script.values(sink.holder)
    for closed in (*script.methods("close"), *script.methods("flush")):
        if any(o.this in writers and inside(o.stack, loop) for o in closed):
            raise Refusal("closes the writer in the loop, or writes what it has", closed.node)
    name, code = getattr(sink.holder, "attr", ""), list(script.analysis(CallGraph).code_in(loop))
    for node in code if name else ():
        if is_attribute(node, name) and is_stored(node):
            raise Refusal("makes another writer in the loop", node)
    ends = [c for c in of_kind(code, ast.Call) if script.library_functions(c) & LEAVING]
    raised = (r for r in of_kind(code, ast.Raise) if "SystemExit" in names_in(r))
    for node in (*ends, *raised):
        raise Refusal("may end the script before the rest could be written", node)


def _is_used_after(script: Script, sink: Sink, loop: Loop, outside: Sequence[ast.AST]) -> bool:
    """Whether what a sink fills may be looked at after its loop; ``outside`` are all places out of
    it that do.
    """
    flow, here = definitions_of(script, loop), function_of(loop)
    if sink.kind == "number":
        return variable_name(sink.holder) in flow.live_after(loop)
    if not isinstance(sink.holder, ast.Name) or isinstance(here, ast.Module):
        return True
    definitions = flow.reaching(sink.holder)
    if not definitions or any(function_of(d.node) is not here for d in definitions):
        return True
    for made in definitions:
        # made anew each time that the loop begins: what the last turns have left is then forgotten
        if not isinstance(made.value, (ast.Call, ast.List, ast.Dict)):
            return True
        if loop_of(made.node) is not loop_of(loop) or within(made.node, loop):
            return True
    graph = graph_of(script, loop)
    inner = loop_of(loop)
    return any(function_of(n) is not here or graph.may_follow(n, loop, inner) for n in outside)


def _tried_by_caller(script: Script, sink: Sink, loop: Loop) -> ast.stmt | None:
    for site in script.log.of("sync", "return"):
        if any(site.node is r.node for r in sink.reads):
            for occurrence in site:
                for frame in occurrence.stack:
                    if frame.node is loop:
                        break
                    if isinstance(frame, CallFrame):
                        for attempt in catching_statements(script, frame.node):
                            if (
                                not isinstance(attempt, ast.Try)
                                or attempt.handlers
                                or _looks(script, attempt.finalbody, sink)
                            ):
                                return attempt
    return None


def _looks(script: Script, statements: Sequence[ast.stmt], sink: Sink) -> bool:
    """Whether the ``finally`` of a caller may look at what the loop fills."""
    name = sink.holder.attr if isinstance(sink.holder, ast.Attribute) else ""
    for node in (n for s in statements for n in walk(s)):
        if is_attribute(node, name):
            return True
        if isinstance(node, ast.Call) and script.may_be(node.func, Bound, Func):
            return True
        if isinstance(node, ast.expr) and script.values(node) & script.values(sink.holder):
            return True
    return False


def _check_end(
    script: Script, sink: Sink, loop: Loop, needs: Needs, outside: Sequence[ast.AST]
) -> None:
    """What is kept must be read when the loop ends, however it ends, and must not grow without
    limit.
    """
    if any(within(n, s) for n in outside for s in loop.orelse):
        raise Refusal("the `else` of the loop uses it")
    graph, here = graph_of(script, loop), function_of(loop)
    name = variable_name(sink.holder)
    seen = not name or is_parameter(here, name) or any(function_of(n) is not here for n in outside)
    if sink.kind != "number" and seen:
        for leaving in of_kind(graph.exits(loop), ast.Return):
            raise Refusal("leaves the loop before the rest could be read", leaving)
    for attempt in catching_statements(script, loop):
        if sink.kind != "number" or name in _live_when_caught(script, attempt):
            raise Refusal(
                f"an exception in the loop may be caught ({at(attempt)}), and the rest would never be read"
            )
    if not needs.gates and _is_endless(script, loop) and not is_summed(script, sink):
        raise Refusal("the loop may not end: one tensor would be kept for each step")


def _live_when_caught(
    script: Script, attempt: ast.Try | ast.With | ast.AsyncWith
) -> frozenset[str]:
    """The variables whose values may be read after ``attempt`` has seen an exception of its
    block.
    """
    flow = definitions_of(script, attempt)
    if isinstance(attempt, WITHS):
        return flow.live_after(attempt)
    return frozenset().union(
        *(flow.live_before(place) for place in (*attempt.handlers, *attempt.finalbody[:1]))
    )


ENDLESS = ("itertools.cycle", "itertools.count", "itertools.repeat")


def _is_endless(script: Script, loop: Loop) -> bool:
    if isinstance(loop, ast.While):
        return True
    for thing in with_contents(script.values(loop.iter), wrapped):
        if is_named(thing, Ext, ENDLESS):
            return True
        if (
            isinstance(thing, Seq)
            and thing.kind == "generator"
            and isinstance(thing.node, ast.Call)
        ):
            callees = script.analysis(CallGraph).callees(thing.node)
            if any(isinstance(n, ast.While) for c in callees for n in walk(c.function)):
                return True
    return False


def _lookers(script: Script, sink: Sink, loop: Loop) -> Iterator[ast.AST]:
    """Every place that may look at, or change, what a sink fills."""
    holder = sink.holder
    if script.unread and script.may_be(holder, Inst):  # a private one
        check_own(script, function_of(holder), variable_name(holder))
        yield from mentions(function_of(holder), variable_name(holder))
    elif isinstance(holder, ast.Name) and not script.may_be(holder, Inst):
        yield from _of_variable(script, holder, sink, loop)
    else:
        yield from _of_object(script, holder, loop)


def is_private(script: Script, holder: ast.expr) -> bool:
    """Whether nobody but its function can have the average meter of a variable: it is made there,
    and asked for numbers and methods by this name alone.
    """
    scope, made = function_of(holder), script.analysis(Flow).definition(holder)
    if made is None or is_at_top(holder) or not script.must_be(holder, Inst):
        return False
    uses = [n for n in mentions(scope, variable_name(holder)) if n is not made.node]
    inits = [c.func for t in script.called(made.value) for c in code_of(t)]
    return surely(only_counts(script, f) for f in inits) and all(
        function_of(n) is scope and is_read(n) and _asks_for_a_number(script, parent_of(n))
        for n in uses
    )


def _asks_for_a_number(script: Script, asked: ast.AST | None) -> bool:
    """``meter.avg``, ``meter.update(x)``: no object of the meter's gets another name."""
    if not is_attribute(asked) or not is_read(asked):
        return False
    if call_of(asked) is not None:
        return not not_a_keeper(script, asked)
    return script.reached(asked) and not script.may_be(asked, *OBJECTS, *COLLECTIONS, Func, Bound)


def check_own(script: Script, scope: ast.AST, name: str) -> None:
    """Raises :class:`Refusal` where a variable is not the function's own, or may be looked at by
    its name.
    """
    if name in declared(scope) or (not isinstance(scope, ast.Module) and not binds(scope, name)):
        raise Refusal(f"`{name}` is a global")
    set_at = [n for n in mentions(scope, name) if is_stored(n)]
    if any(
        not is_glance(show, scope)
        or any(graph_of(script, show).may_follow(show, n) for n in set_at)
        for show in namespace_calls(scope)
    ):
        raise Refusal(f"`{name}` may be shown by locals() or the like")


def check_hidden(script: Script, scope: ast.AST, name: str) -> None:
    """The same where the variable would be a tensor in the end, which other files may read."""
    check_own(script, scope, name)
    if script.analysis(Flow).is_exported(scope):
        raise Refusal(f"other files may read `{name}`")


def _of_variable(script: Script, holder: ast.Name, sink: Sink, loop: Loop) -> Iterator[ast.AST]:
    scope, graph = function_of(holder), graph_of(script, loop)
    name = holder.id
    check_own(script, scope, name)
    if is_parameter(scope, name) and sink.kind != "number":
        raise Refusal(f"`{name}` belongs to the caller")
    if sink.kind == "object" and (other := _under_another_name(script, holder, loop)) is not None:
        raise Refusal(f"`{name}` may get another name on {at(other)}")
    for node in mentions(scope, name):
        if function_of(node) is not scope:
            raise Refusal(f"`{name}` is used in a function of its own ({at(node)})")
        if (
            sink.kind == "object"
            and not within(node, sink.statement)
            and (within(node, loop) or graph.may_follow(loop, node, common_loop(loop, node)))
        ):
            if is_read(node) and _gives_another_name(script, node):
                raise Refusal(f"`{name}` may get another name on {at(node)}")
        yield node


def _under_another_name(script: Script, holder: ast.Name, loop: Loop) -> ast.AST | None:
    """A place in the loop, or in a function that it runs, where a list or dict is known by another
    name than ``holder``.
    """
    scope = function_of(holder)
    objects: set[Thing] = {t for t in script.values(holder) if isinstance(t, COLLECTIONS)}
    views = [n for n in mentions(scope, holder.id) if is_stored(n) and _is_part(parent_of(n))]
    if not objects:
        return next(iter(views), None)  # an array that may be a part of another one
    holding = _holding(script, frozenset(objects))
    running = set(script.analysis(CallGraph).run_in(loop))
    for node in script.nodes:
        if not isinstance(node, TARGETS) or not is_read(node):
            continue
        if is_name(node, holder.id) and function_of(node) is scope:
            continue
        seen = script.values(node)
        parent = parent_of(node)
        held = all_of(seen, Seq, Dict)  # only methods are asked of it
        whole = held or not isinstance(parent, ast.Attribute) or parent.value is not node
        if not (objects & seen or (whole and holding & seen)):
            continue
        if within(node, loop) or function_of(node) in running:
            return node
    return None


def _is_part(statement: ast.AST | None) -> bool:
    """``row = table[0]``, ``a = b = np.zeros(3)``, ``kept = other``."""
    if not isinstance(statement, ast.Assign):
        return False
    return len(statement.targets) > 1 or isinstance(statement.value, TARGETS)


def _gives_another_name(script: Script, node: ast.Name) -> bool:
    """``history = losses``, ``log["loss"] = losses``, ``Plot(losses)``: what is seen under another
    name would be seen too early.
    """
    parent = parent_of(node)
    if isinstance(parent, ast.Attribute):
        return call_of(parent) is None and parent.attr not in KNOWN_BEFORE
    if isinstance(parent, ast.Subscript) and parent.value is node:
        return False
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name):
        return parent.func.id not in PURE | {"print"}
    if script.is_call(parent, *COMPUTES_ANEW) and node in parent.args[:1]:
        return not {k.arg for k in parent.keywords} <= CHOOSES
    return not isinstance(
        parent, (ast.FormattedValue, ast.Compare, ast.BinOp, ast.BoolOp, ast.If, ast.UnaryOp)
    )


def _of_object(script: Script, holder: ast.expr, loop: Loop) -> Iterator[ast.AST]:
    """Every expression, in the functions that are not the object's own, that is or holds the
    object.
    """
    objects = script.values(holder)
    if not objects or not all_of(objects, Inst, Seq, Dict):
        raise Refusal(f"what `{first_line(holder)}` is is not known")
    holding = _holding(script, objects)
    # Whatever comes to their methods, comes by way of the object.
    own = {t.cls.node for t in objects if isinstance(t, Inst)}
    holders = {t.cls.node for t in holding if isinstance(t, Inst)}
    mine = function_of(holder)
    running, often = (
        set(script.analysis(CallGraph).run_in(loop, often)) for often in (False, True)
    )
    for node in script.nodes:
        if not isinstance(node, TARGETS) or not is_read(node):
            continue
        if not any(t in holding for t in script.values(node) if isinstance(t, (Inst, Seq, Dict))):
            continue
        home = function_of(node)
        around = set(ancestors(node)) if home is not mine else set()
        seldom = home not in often
        if around & own or (around & holders and seldom and home in running):
            continue
        gated = home is mine and within(node, loop) and rare_branch(script, node, loop) is not None
        if _passes_by(
            script,
            node,
            objects,
            holding,
            methods=not gated and (home is mine or home in running),
        ):
            continue
        if home is not mine and home in running:
            raise Refusal(
                f"`{first_line(holder)}` is used in {getattr(home, 'name', 'a function')}(), which runs in every step"
            )
        yield node


def _passes_by(
    script: Script, node: ast.expr, objects: frozenset[Thing], holding: set[Thing], methods: bool
) -> bool:
    """``self.step`` of an object that only holds the one in question, elsewhere, or ``meters["a"]``
    of a dict that holds it as ``meters["b"]``; with ``methods`` also ``self.update``, which is
    looked at itself.
    """
    parent = parent_of(node)
    if isinstance(parent, ast.Subscript) and parent.value is node and is_read(parent):
        keys = consts(script.values(parent.slice)) or [None]
        return all(
            isinstance(t, Dict)
            and not t.open
            and isinstance(key, (str, int))
            and t.get(key).isdisjoint(holding)
            for t in script.values(node)
            for key in keys
        )
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
        if (
            not data
            and methods
            and surely(isinstance(t, Func) and not t.decorators for t in member)
        ):
            continue
        if (
            not data
            or not all_of(member, Const)
            or any(t in holding for t in data if isinstance(t, (Inst, Seq, Dict)))
        ):
            return False
    return True


def _holding(script: Script, objects: frozenset[Thing]) -> set[Thing]:
    """The objects and everything that holds one of them."""
    around = script.analysis(holders_of)
    return set(with_contents(objects, lambda t: around.get(t, ())))
