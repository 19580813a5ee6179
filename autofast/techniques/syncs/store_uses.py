"""What code does with a store, a dict, list or attribute that steps put numbers into: it puts a
number in, hands the store on, or looks at what is in it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from autofast.flow.callgraph import CallGraph
from autofast.flow.importers import Importers
from autofast.flow.usage import Act, Usage, usage_of
from autofast.model.calls import (
    call_of,
    is_augmented,
    is_call_of,
    is_same_code,
    names_in,
    targets_of,
)
from autofast.model.contents import attributes, with_contents
from autofast.model.kinds import is_module
from autofast.model.script import Script
from autofast.model.several import surely, wordset
from autofast.model.source import (
    at,
    enclosing,
    first_line,
    function_of,
    nodes_in,
    parent_of,
    statement_of,
)
from autofast.model.syntax import (
    ASSIGNMENTS,
    DEFS,
    SIMPLE,
    VARIABLES,
    has_star,
    is_attribute,
    is_read,
    is_stored,
)
from autofast.model.values import (
    Bound,
    Cls,
    Const,
    Dict,
    Ext,
    Func,
    Inst,
    Method,
    Num,
    Ref,
    Thing,
    Unknown,
    all_of,
    begins,
    names_of,
    of_kind,
)
from autofast.rule import Refusal
from autofast.techniques.syncs.reads import Read

Place = ast.Subscript | ast.Attribute


class Use(Enum):
    """What is done with a store at one place."""

    KEEPS = "puts a tensor there, or takes it up to add to it"
    CHANGES = "adds a number of its own to what is there"
    GIVES = "gives it to functions of the project"
    LOOKS = "looks at what is there"
    IGNORES = "asks nothing of the numbers: gives it another name, asks how many there are"


@dataclass(frozen=True, eq=False)
class Write:
    """A place that puts numbers into a store that it has just read.

    Attributes:
        holder: the dict or list, the object whose attribute it is, or the display of a dict.
        how: ``set``, ``add`` or ``append``.
        place: the element, or the attribute; None for displays and ``append``.
    """

    statement: ast.stmt
    reads: tuple[Read, ...]
    holder: ast.expr
    how: str
    place: Place | None = None

    @property
    def attr(self) -> str:
        return self.place.attr if is_attribute(self.place) else ""

    @property
    def value(self) -> ast.expr:
        """What is put there or added."""
        match self.statement:
            case ast.Assign(value=value) | ast.AugAssign(value=value) if self.place is not None:
                return value
        return self.reads[0].node

    @property
    def taken_up(self) -> list[ast.expr]:
        """Where the value takes up what is there: ``total["loss"]`` of ``total["loss"] = 0.9 *
        total["loss"] + ...``, ``total.get("loss", 0)``.
        """
        return [n for n in nodes_in(self.value, ast.expr) if self._is_place(n)]

    def _is_place(self, node: ast.expr) -> bool:
        match self.place, node:
            case ast.Attribute(value=of, attr=name), ast.Attribute(value=other, attr=same):
                return name == same and is_same_code(of, other)
            case ast.Subscript(value=of, slice=key), (
                ast.Subscript(value=other, slice=same)
                | ast.Call(
                    func=ast.Attribute(value=other, attr="get"),
                    args=[same, ast.Constant(value=0 | 0.0)],
                )
            ):
                return is_same_code(of, other) and is_same_code(key, same)
        return False


def write_of(statement: ast.stmt, reads: list[Read]) -> Write | None:
    """What the statement does with the numbers that it reads, where it puts them into a store."""
    first, mine = reads[0].node, tuple(reads)
    match statement:
        case ast.AugAssign(
            target=ast.Subscript(value=holder) | ast.Attribute(value=holder) as place,
            op=ast.Add() | ast.Sub(),
        ):
            return Write(statement, mine, holder, "add", place)
        case ast.Assign(
            targets=[ast.Subscript(value=holder) | ast.Attribute(value=holder) as place],
            value=value,
        ) if not isinstance(getattr(place, "slice", None), ast.Slice):
            return Write(statement, mine, holder, "set" if value is first else "add", place)
        case ast.Expr(
            value=ast.Call(
                func=ast.Attribute(value=holder, attr="append"), args=[value], keywords=[]
            )
        ) if value is first:
            return Write(statement, mine, holder, "append")
    displays = {parent_of(r.node): parent_of(r.node) for r in reads}
    display = next(iter(displays.values()))
    if len(displays) > 1 or not isinstance(display, ast.Dict):
        return None
    whole = all(r.node in display.values for r in reads)
    match parent_of(display):
        case ast.Call(func=ast.Attribute(value=holder, attr="update"), args=[_]) if whole:
            return Write(statement, mine, holder, "set")
        case outer if whole and isinstance(outer, KEEPING):
            return Write(statement, mine, display, "set")
    return None


@dataclass(eq=False)
class Uses:
    """All places that have to do with the ``objects`` that hold the numbers of ``writes`` (under
    the attribute ``attr`` of these, where they are objects of the project).
    """

    script: Script
    objects: frozenset[Thing]
    attr: str
    writes: list[Write]
    found: list[tuple[ast.expr, Use]] = field(default_factory=list)
    others: list[ast.expr] = field(default_factory=list)  # what else is put there

    def __post_init__(self) -> None:
        self.kept = {n for w in self.writes for n in (w.place, *w.taken_up) if n is not None}
        self._check_objects()
        for node in self._mentions():
            self.found.append((node, self._use(node)))

    @property
    def _expressions(self) -> Iterator[ast.expr]:
        return (n for n in self.script.nodes if isinstance(n, ast.expr))

    def _mentions(self) -> Iterator[ast.expr]:
        mine = [n for n in self._expressions if self._is_mine(n)]
        names = {(function_of(n), n.id) for n in mine if isinstance(n, ast.Name)}
        attrs = {n.attr for n in mine if is_attribute(n)}
        known = set(mine)
        for node in self.script.nodes:
            if node in known:
                assert isinstance(node, ast.expr)
                yield node
                continue
            named = is_attribute(node, *attrs) if attrs else False
            if named and self.script.may_be(node.value, Unknown):  # type: ignore[attr-defined]
                raise Refusal("may look at it, too", node)
            if named and not self.script.reached(statement_of(node)) and self._may_be_mine(node):
                raise Refusal(f"`.{node.attr}` is used in code that is not reached ({at(node)})")  # type: ignore[attr-defined]
            if isinstance(node, ast.Name) and (function_of(node), node.id) in names:
                if is_read(node) and not self.script.reached(statement_of(node)):
                    raise Refusal(f"`{node.id}` is used in code that is not reached ({at(node)})")
                if is_augmented(node) and not is_read(node):
                    raise Refusal(f"extends `{node.id}`", node)

    def _is_mine(self, node: ast.expr) -> bool:
        if not self.attr:
            return not is_stored(node) and bool(self.script.values(node) & self.objects)
        return is_attribute(node, self.attr) and bool(self.script.values(node.value) & self.objects)

    def _may_be_mine(self, node: ast.AST) -> bool:
        """Whether a place that the reader never came to may stand in a class of the objects."""
        around = enclosing(node, ast.ClassDef)
        owners = of_kind(self._holding(), Inst)
        classes = {c.node.name for o in owners for c in (o.cls, *o.cls.ancestors())}
        return around is None or bool(
            classes & {around.name, *(n for b in around.bases for n in names_in(b))}
        )

    def _holding(self) -> list[Thing]:
        """The objects, the containers that hold one of them, and the objects of the project that
        have one of these.
        """
        around = self.script.analysis(holders_of)
        return list(
            with_contents(self.objects, lambda t: () if isinstance(t, Inst) else around.get(t, ()))
        )

    def _check_objects(self) -> None:
        holding = self._holding()
        owners: frozenset[Thing] = frozenset(t for t in holding if isinstance(t, Inst))
        held = frozenset(holding) - owners - self.objects
        self.names = {w.attr or getattr(w.holder, "attr", "") for w in self.writes} - {""}
        for node in self._expressions:
            found = self.script.values(node) if not is_stored(node) else frozenset()
            if found & held and not self._is_taken_apart(node):
                raise Refusal("holds it in something else", node)
            if found & owners and self._shows_all(node):
                raise Refusal("may show all that the object has", node)
        importers = self.script.analysis(Importers)
        for owner in owners:
            assert isinstance(owner, Inst)
            for name in self.names:
                if (user := importers.mention(name)) and importers.user(owner.cls.node):
                    raise Refusal(f"{user} may look at `.{name}`, too")

    def _is_taken_apart(self, node: ast.expr) -> bool:
        """``return loss, log`` and ``loss, log = step()``: a tuple that is only handed over."""
        parent = parent_of(node)
        match node, parent:
            case (ast.Tuple() | ast.Call(), ast.Return() | ast.Expr()):
                return True
            case (ast.Tuple() | ast.Call(), ast.Assign(targets=[ast.Tuple() as names])):
                return not has_star(names.elts)
        return self._consumer(node) is not None

    def _consumer(self, node: ast.expr) -> ast.Call | None:
        """The call of a library, known to keep nothing, that a display is given to."""
        call = taker(node)
        return call if call is not None and self._only_looks(call) else None

    def _only_looks(self, call: ast.Call) -> bool:
        found = self.script.called(call)
        return surely(
            (begins(t, Ref, LOOKING))
            or (isinstance(t, Method) and isinstance(t.this, (Ext, Const, Num)))
            for t in found
        )

    def _shows_all(self, node: ast.expr) -> bool:
        """``torch.save(trainer)``, ``vars(self)``, ``copy.deepcopy(model)``."""
        if is_attribute(parent_of(node), "__dict__"):
            return True
        call = taker(node)
        if call is None or call.func is node or is_call_of(call, *BLIND):
            return False
        found = self.script.called(call)
        if names_of(found) <= NAMED and len(call.args) > 1:
            name = self.script.constant(call.args[1])
            return not isinstance(name, str) or name in self.names
        return not all(
            isinstance(t, (Func, Bound, Cls))
            or (isinstance(t, Inst) and is_module(t))
            or begins(t, Ref, ("torch.nn.", "torch.optim."))
            for t in found
        )

    def _use(self, node: ast.expr) -> Use:
        if self.attr:
            assert is_attribute(node)
            return self._of_place(node)
        use = usage_of(node)
        match use.act, use.node:
            case ((Act.TAKEN | Act.FILLED), place):
                return self._of_place(place)  # type: ignore[arg-type]
            case Act.ASKED, method:
                return self._of_method(node, method)  # type: ignore[arg-type]
            case (Act.TESTED | Act.CHOSEN | Act.DROPPED, _) | (Act.COMPUTED, ast.UnaryOp()):
                return Use.IGNORES  # at most whether it is empty is asked
            case Act.BOUND, _ if all_of(use.targets, VARIABLES):
                return Use.IGNORES
            case (Act.RETURNED, _) | (Act.HELD, ast.Tuple()) if _is_handed_on(use):
                self._check_callers(node)
                return Use.IGNORES
            case Act.COMPARED, ast.Compare(ops=[ast.Is() | ast.IsNot()]):
                return Use.IGNORES
            case Act.COMPARED, ast.Compare(ops=[ast.In() | ast.NotIn()], left=key):
                if self._is_dict(node):
                    return Use.IGNORES if key is not node else Use.LOOKS
            case Act.LOOPED, _:
                return Use.IGNORES if self._is_dict(node) else Use.LOOKS
            case ((Act.SHOWN | Act.COMPUTED), _):
                return Use.LOOKS
            case (Act.GIVEN, _) | (Act.HELD, ast.Starred()):
                return self._of_argument(node)
            case Act.HELD, ast.Dict(keys=keys, values=values):  # ``{**log}``
                if any(k is None and v is node for k, v in zip(keys, values, strict=True)):
                    return Use.LOOKS
        if self._consumer(node) is not None:
            return Use.LOOKS
        raise Refusal(f"what {at(node)} does with `{first_line(node)}` is not understood")

    def _check_callers(self, node: ast.expr) -> None:
        function = function_of(node)
        if isinstance(statement_of(node), ast.Return) and isinstance(function, DEFS):
            unknown = self.script.analysis(CallGraph).complete(function)
            if why := unknown or self.script.analysis(Importers).user(function):
                raise Refusal(f"{why}, and may look at what it returns")

    def _is_dict(self, node: ast.expr) -> bool:
        return self.script.must_be(node, Dict)

    def _of_place(self, place: Place) -> Use:
        statement = parent_of(place)
        if place in self.kept:
            return Use.KEEPS
        if is_read(place):
            return Use.LOOKS
        if isinstance(statement, ASSIGNMENTS) and place in targets_of(statement):
            if isinstance(statement, ast.AugAssign):
                return Use.CHANGES
            if statement.value is not None and self._is_number(statement.value):
                self.others.append(statement.value)
                return Use.KEEPS
        elif isinstance(statement, ast.Delete):
            return Use.IGNORES
        raise Refusal("puts something else there", place)

    def _is_number(self, value: ast.expr) -> bool:
        match value:
            case ast.Subscript(slice=ast.Constant(value="lr")):
                return True  # of an optimizer
        return self.script.reached(value) and self.script.must_be(value, Num, Const)

    def _of_method(self, node: ast.expr, method: ast.Attribute) -> Use:
        call = call_of(method)
        parent = parent_of(call) if call is not None else None
        if call is None:
            raise Refusal(f"what {at(node)} does with `{first_line(method)}` is not understood")
        appended = {getattr(w.statement, "value", None) for w in self.writes}
        if call in self.kept or (method.attr == "append" and call in appended):
            return Use.KEEPS
        match method.attr:
            case "clear" | "keys":
                return Use.IGNORES
            case "append" if all(map(self._is_number, call.args)):
                self.others += call.args
                return Use.KEEPS
            case "update" if len(call.args) == 1 and not call.keywords:
                given = call.args[0]
                mine = {r.node for w in self.writes for r in w.reads}
                others = [v for v in getattr(given, "values", ()) if v not in mine]
                if isinstance(given, ast.Dict) and all(map(self._is_number, others)):
                    self.others += others
                    return Use.KEEPS
            case "items" | "values" if not isinstance(parent, (*ASSIGNMENTS, ast.Return)):
                return Use.LOOKS
            case "get" | "copy" | "count" | "index" | "pop":
                return Use.LOOKS
        raise Refusal(f"what {at(node)} does with `{first_line(method)}` is not understood")

    def _of_argument(self, node: ast.expr) -> Use:
        call, parent = taker(node), parent_of(node)
        if call is None:
            raise Refusal(f"what {at(node)} does with `{first_line(node)}` is not understood")
        if isinstance(parent, ast.Starred) or (
            isinstance(parent, ast.keyword) and parent.arg is None
        ):
            return Use.LOOKS
        if is_call_of(call, *BLIND):
            return Use.IGNORES
        calls = self.script.analysis(CallGraph)
        if calls.callees(call) and not calls.may_run_others(call):
            return Use.GIVES
        if self._only_looks(call):
            return Use.LOOKS
        raise Refusal(f"`{first_line(call.func)}` gets it ({at(call)}), and may keep it")


def _is_handed_on(use: Usage) -> bool:
    """``return log``, ``return loss, log``, ``old, new = log, {}``"""
    outer = parent_of(use.node) if use.act is Act.HELD else use.node
    return isinstance(outer, (ast.Return, ast.Assign))


def taker(node: ast.expr) -> ast.Call | None:
    """The call that gets a node, by itself or in a display."""
    here: ast.AST | None = parent_of(node)
    while isinstance(here, (ast.Dict, ast.List, ast.Tuple, ast.keyword, ast.Starred)):
        here = parent_of(here)
    return here if isinstance(here, ast.Call) else None


KEEPING = (*SIMPLE, ast.Tuple)
BLIND = wordset("len bool isinstance id type super hasattr")
NAMED = wordset("builtins.getattr builtins.setattr builtins.delattr")
# What these are given they look at, and forget.
LOOKING = tuple(
    """builtins. json. numpy. math. statistics. wandb.log pprint. copy. pickle. torch.save
    torch.tensor torch.stack torch.as_tensor torch.mean logging. yaml.""".split()
)


def holders_of(script: Script) -> dict[Thing, set[Thing]]:
    """What holds each thing: as an attribute, or among its elements."""
    around: dict[Thing, set[Thing]] = {}
    for thing in with_contents((t for found in script.at.values() for t in found), attributes):
        for part in attributes(thing):
            around.setdefault(part, set()).add(thing)
    return around
