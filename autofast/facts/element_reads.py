"""What a loop of the host does with tensors of the device: whether it only looks at their elements,
so that it could as well have them on the host.

It does where all that it does with them is to take elements out, to view or cast them, to compare,
add and multiply them, and to use them as numbers of Python: as conditions, indices, bounds, in
texts. What it keeps, writes to, gives to others or computes in another way stays where it is.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.facts.host_batches import CASTS, SAME, SHAPE
from autofast.flow.callgraph import CallGraph
from autofast.flow.program import definitions_at, definitions_of
from autofast.flow.scopes import binds, declared, is_local, mentions
from autofast.flow.usage import Act, Usage, is_identity, usage_of
from autofast.model.calls import items_of
from autofast.model.script import Script
from autofast.model.several import wordset
from autofast.model.source import (
    function_of,
    is_same_function,
    live_nodes,
    nodes_in,
    parent_of,
    within,
)
from autofast.model.syntax import FUNCTIONS, is_attribute
from autofast.model.values import (
    Inst,
    Method,
    Tensor,
    Unknown,
    all_of,
    any_of,
    is_scalar,
    library_name,
    of_kind,
)

ONE = SAME - {"chunk", "split", "unbind"}  # what gives one tensor
SIZES = SHAPE - {"grad", "requires_grad"}  # what a copy has, too
READS, COPIES = wordset("item tolist"), wordset("cpu numpy")
VIEWS = wordset("data T mT")
NUMBERS = wordset("int float bool range", "builtins.")
PASSING = wordset("enumerate zip reversed", "builtins.")
LENGTH = frozenset({"builtins.len"})
ALIKE = (  # on every device
    *(ast.Add, ast.Sub, ast.Mult, ast.BitAnd, ast.BitOr),
    *(ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE),
)
ELSE, OVER = "", "@"  # no names of variables
Over = ast.For | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def runs_here(loop: Over) -> bool:
    """Whether it runs where it stands, as a whole, and no other code in between."""
    lazy = isinstance(loop, ast.GeneratorExp) and not isinstance(parent_of(loop), ast.Call)
    between = (*FUNCTIONS, ast.ClassDef, ast.Yield, ast.YieldFrom, ast.Await)
    return not lazy and not any_of(live_nodes(loop), between)


class LookedAt:
    """What a loop does with tensors of the device: those whose elements it only looks at may be
    copied to the host before it.

    Tensors that it computes with, or compares, must be on one device: they, and the variables that
    get their elements, make a group (``_groups``), which is copied as a whole or not at all.
    """

    def __init__(self, script: Script, loop: Over):
        self.script, self.loop = script, loop
        # tensors that it goes over, each under a name of its own
        self.over: dict[str, ast.expr] = {}
        self.uses: dict[str, list[ast.Name]] = {}  # of variables that are bound above the loop
        self._groups: dict[str, str] = {ELSE: ELSE}
        self._reads: set[str] = set()
        self._stays: set[str] = {ELSE}
        self._judge_all()

    def is_copied(self, name: str) -> bool:
        group = self._group(name)
        stays = {self._group(n) for n in self._stays}
        return group not in stays and group in {self._group(n) for n in self._reads}

    def _judge_all(self) -> None:
        loop = self.loop
        first = loop.iter if isinstance(loop, ast.For) else loop.generators[0].iter
        target = loop.target if isinstance(loop, ast.For) else loop.generators[0].target
        for n, over in enumerate(_gone_over(self.script, first)):
            if _is_there(self.script, over):
                self.over[f"{OVER}{n}"] = over
                self._join(f"{OVER}{n}", *(t.id for t in nodes_in(target, ast.Name)))
                if not is_tensor(self.script, over):
                    self._stays.add(f"{OVER}{n}")
        for expr in live_nodes(loop):
            if isinstance(expr, ast.expr) and not within(expr, first):
                if _is_there(self.script, expr):
                    names = self._names(expr)
                    self._join(*names)
                    if isinstance(expr, ast.Name) and isinstance(expr.ctx, ast.Load):
                        self._found(expr)
                    if not self._is_looked_at(usage_of(expr), names):
                        self._stays |= names

    # --------------------------------------------------------------------------------------- groups
    def _group(self, name: str) -> str:
        while self._groups.setdefault(name, name) != name:
            name = self._groups[name]
        return name

    def _join(self, *names: str) -> None:
        for name in names[1:]:
            self._groups[self._group(name)] = self._group(names[0])

    def _names(self, expr: ast.AST) -> set[str]:
        """The variables that an expression computes its tensor of; else :data:`ELSE`."""
        if isinstance(expr, ast.expr) and not _is_there(self.script, expr):
            return set()
        match expr:
            case ast.Name(id=name):
                return {name}
            case ast.Attribute(value=value) if _is_there(self.script, value):
                return self._names(value)
            case ast.Call(func=ast.Attribute(value=value), args=args) if _is_there(
                self.script, value
            ):
                return self._names(value).union(*map(self._names, args))
            case ast.Subscript(value=value, slice=index):
                parts = items_of(index)
                return self._names(value).union(*map(self._names, parts))
            case ast.BinOp() | ast.UnaryOp() | ast.Compare() | ast.BoolOp() | ast.IfExp():
                return set().union(*map(self._names, ast.iter_child_nodes(expr)))
        return {ELSE} if isinstance(expr, ast.expr) else set()

    def _found(self, name: ast.Name) -> None:
        """A use of a variable: bound above the loop, or in it."""
        made = definitions_at(self.script, name)
        outside = [d for d in made if not within(d.node, self.loop)]
        if outside:
            self.uses.setdefault(name.id, []).append(name)
            if len(outside) < len(made) or _is_shared(name) or not is_tensor(self.script, name):
                self._stays.add(name.id)

    # ----------------------------------------------------------------------------------------- uses
    def _is_looked_at(self, use: Usage, names: set[str]) -> bool:
        """Whether a use comes to the same on the host, and leaves nothing behind the loop."""
        node, script = use.node, self.script
        match node:
            case ast.Attribute():
                return self._asked(use, names)
            case ast.Compare() | ast.BinOp() | ast.UnaryOp():
                parts = of_kind(ast.iter_child_nodes(node), ast.expr)
                known = not any(isinstance(t, Unknown) for p in parts for t in script.values(p))
                signs = of_kind(ast.iter_child_nodes(node), (ast.operator, ast.cmpop))
                return is_identity(node) or (known and all_of(signs, ALIKE))
            case ast.FormattedValue():  # a format is an error for more than one number
                self._reads |= names
                return node.format_spec is not None or _is_number(script, use.expr)
            case ast.Call() if use.act is Act.GIVEN:
                return self._given(use, names)
        match use.act:
            case Act.CALLED | Act.TAKEN | Act.DROPPED:
                return True
            case Act.INDEXES | Act.HELD:
                return self._indexes(node, names)
            case Act.TESTED | Act.CHOSEN:
                self._reads |= (
                    names if not isinstance(node, ast.IfExp) or use.act is Act.TESTED else set()
                )
                return True
            case Act.BOUND | Act.LOOPED | Act.TARGET if not isinstance(node, ast.NamedExpr):
                return self._bound([use.expr] if use.act is Act.TARGET else use.targets, names)
        return False

    def _given(self, use: Usage, names: set[str]) -> bool:
        assert isinstance(use.node, ast.Call)
        of = self.script.called(use.node)
        if library_name(of) in PASSING:
            use = usage_of(use.node)
            if use.act is Act.LOOPED:
                return self._bound(use.targets, names)
            return use.act is Act.GIVEN and self._given(use, names)
        shown = {t.name for t in of if isinstance(t, Method)} == {"format"}
        self._reads |= names if shown or library_name(of) in NUMBERS else set()
        return library_name(of) in NUMBERS | LENGTH or (shown and _is_number(self.script, use.expr))

    def _asked(self, use: Usage, names: set[str]) -> bool:
        node: ast.AST = use.node
        while is_attribute(node, *COPIES) and use.result is not None:
            use = usage_of(use.result)  # of a copy, which may be kept or changed, only a number
            node = use.node
            if use.act is Act.GIVEN:
                return self._is_looked_at(use, names)
            if not is_attribute(node, *COPIES, *READS):
                return False
        assert isinstance(node, ast.Attribute)
        self._reads |= names if node.attr in READS else set()
        return node.attr in READS | SIZES | CASTS | ONE | VIEWS

    def _indexes(self, node: ast.AST | None, names: set[str]) -> bool:
        """A place in a list, a dict, a tensor, of which each counts with the number."""
        bound = isinstance(node, ast.Slice)
        while isinstance(node, (ast.Slice, ast.Tuple)):
            node = parent_of(node)
        if not isinstance(node, ast.Subscript):
            return False
        there = _is_there(self.script, node.value)
        self._reads |= names if bound or not there else set()
        if there and not bound:
            self._join(*names, *self._names(node.value))
        return not self.script.may_be(node.value, Inst)

    def _bound(self, targets: list[ast.expr], names: set[str]) -> bool:
        bound = [n for t in targets for n in nodes_in(t, ast.Name)]
        self._join(*names, *(n.id for n in bound))
        parts = [n for t in targets for n in ast.walk(t)]
        plain = not any_of(parts, ast.Subscript, ast.Attribute)
        return plain and all(stays_inside(self.script, n, self.loop) for n in bound)


def _is_there(script: Script, expr: ast.expr) -> bool:
    return any(t.device != "cpu" for t in of_kind(script.values(expr), Tensor))


def is_tensor(script: Script, expr: ast.expr) -> bool:
    """Certainly a tensor, whoever calls the function."""
    made = definitions_at(script, expr) if isinstance(expr, ast.Name) else ()
    function = function_of(expr)
    given = any(d.is_parameter for d in made) and not isinstance(function, ast.Module)
    known = not given or not script.analysis(CallGraph).complete(function)  # type: ignore[arg-type]
    return known and script.must_be(expr, Tensor)


def _is_number(script: Script, expr: ast.expr) -> bool:
    return all(is_scalar(t) for t in script.values(expr))


def _gone_over(script: Script, first: ast.expr) -> Iterator[ast.expr]:
    """The tensors whose elements a loop gets: ``y`` and ``out`` of ``enumerate(zip(y, out))``."""
    if script.is_call(first, *PASSING):
        for given in first.args:
            yield from _gone_over(script, given)
    elif script.may_be(first, Tensor):
        yield first


def _is_shared(name: ast.Name) -> bool:
    """Whether a function inside of this one, or around it, may use the variable."""
    scope = function_of(name)
    shared = name.id in declared(scope) or not binds(scope, name.id)
    return shared or any(function_of(n) is not scope for n in mentions(scope, name.id))


def stays_inside(script: Script, target: ast.Name, loop: Over) -> bool:
    """Whether nothing behind the loop sees what a variable is given in it."""
    if not isinstance(loop, ast.For):
        return True
    if not is_local(target):
        return False
    uses = mentions(function_of(target), target.id)
    after = definitions_of(script, loop).live_after(loop)
    return target.id not in after and all(is_same_function(n, loop) for n in uses)
