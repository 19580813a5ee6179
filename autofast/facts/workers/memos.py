"""Dicts that items fill, of which each entry is made of nothing but its key, and of what stays:

    if key not in windows:
        windows[key] = torch.hann_window(size).to(x.dtype)

Whoever finds an entry has what would be made anew.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.facts.workers.loader_code import Side
from autofast.flow.effects import Effects, Write
from autofast.model.calls import arguments_of, is_same_code
from autofast.model.names import CLOCKS
from autofast.model.several import of_kind, surely
from autofast.model.source import function_of, nodes_in, parent_of, within
from autofast.model.syntax import DEFS, SIMPLE, VARIABLES, Def, is_stored
from autofast.model.values import Cls, Const, Dict, Func, Inst, Module, Ref, Tensor, Values, one

# What is another thing each time, or in another process.
CHANCE = (
    *("random.", "numpy.random.", "torch.rand", "torch.multinomial", "torch.bernoulli", "uuid."),
    *("torch.normal", "torch.poisson", "torch.empty", "secrets.", "os.getpid", "os.urandom"),
    *("torch.utils.data.get_worker_info", "builtins.next", "builtins.input", "builtins.id"),
    *CLOCKS,
)
DEEP = 12


class Memos:
    """Asked for the code of the items of one loader."""

    def __init__(self, code: Side):
        self.code, self.script, self.flow = code, code.script, code.flow

    @property
    def _expressions(self) -> Iterator[ast.expr]:
        for function in self.code.functions.values():
            yield from (n for n in nodes_in(function, *VARIABLES) if function_of(n) is function)

    def fills(self, node: ast.AST) -> bool:
        """Whether a place puts an entry into such a dict."""
        if not (isinstance(node, ast.Subscript) and isinstance(parent_of(node), ast.Assign)):
            return False
        held = self.script.values(node.value)
        if not surely(isinstance(t, Dict) and _is_made_empty(t) for t in held):
            return False
        uses = [e for e in self._expressions if self.script.values(e) & held]
        return (
            all(map(self._is_by_key, uses))
            and self._is_of_key(node)
            and all(self._is_alike(node, w.node) for w in self._stores(held))
        )

    def _stores(self, held: Values) -> Iterator[Write]:
        """All places of the program that put something into these dicts."""
        for write in self.script.analysis(Effects).writes:
            node = write.node
            if isinstance(node, ast.Subscript) and self.script.values(node.value) & held:
                yield write

    def _is_alike(self, one: ast.Subscript, other: ast.AST) -> bool:
        """Whether two places store what is made in the same way, by keys made in the same way."""
        match parent_of(one), other, parent_of(other):
            case ast.Assign(value=mine), ast.Subscript(slice=key), ast.Assign(value=value):
                pairs = (mine, value), (one.slice, key)
                return one is other or all(self._spelled(a) == self._spelled(b) for a, b in pairs)
        return False

    def _spelled(self, expr: ast.expr, depth: int = DEEP) -> str:
        """The code of an expression, with that of the variables that it is computed of."""
        names = [n for n in nodes_in(expr, ast.Name) if depth]
        made = ((n.id, self.flow.value(n)) for n in names)
        parts = sorted(f"{n}={self._spelled(v, depth - 1)}" for n, v in made if v is not None)
        return "; ".join([ast.dump(expr), *parts])

    # -------------------------------------------------------------------- what is asked of the dict
    def _is_by_key(self, held: ast.expr) -> bool:
        match parent_of(held):
            case ast.Subscript(value=value) as entry:
                alone = not isinstance(entry.ctx, ast.Del)
                whole = not is_stored(entry) or isinstance(parent_of(entry), ast.Assign)
                return value is held and alone and whole
            case ast.Compare(comparators=[only]) as test if only is held:
                return self._makes_what_is_missing(test)
            case ast.Assign(targets=[ast.Name()], value=value):
                return value is held
        return False

    def _makes_what_is_missing(self, test: ast.Compare) -> bool:
        """``if key not in kept: kept[key] = ...``, and ``if key in kept: return kept[key]``: it
        gives the same whether there is an entry or not.
        """
        match parent_of(test), test.ops:
            case ast.If(body=body, orelse=[]) as gate, [ast.NotIn()] if gate.test is test:
                function = function_of(gate)
                names = {n.id for s in body for n in nodes_in(s, ast.Name) if is_stored(n)}
                outside = (n for n in nodes_in(function, ast.Name) if not within(n, gate))
                plain = all(isinstance(s, SIMPLE) and not isinstance(s, ENDS) for s in body)
                return plain and names.isdisjoint(n.id for n in outside)
            case ast.If(body=[ast.Return(ast.Subscript(value=of) as entry)], orelse=[]), [ast.In()]:
                function = function_of(test)
                same = is_same_code(of, test.comparators[0]) and is_same_code(
                    entry.slice, test.left
                )
                return same and isinstance(function, DEFS) and self._gives_entry(function, entry)
        return False

    def _gives_entry(self, function: Def, entry: ast.Subscript) -> bool:
        """Whether all that a function gives is the entry, or the variable that it becomes."""

        def is_entry(other: ast.AST | None) -> bool:
            return isinstance(other, ast.Subscript) and (
                is_same_code(other.value, entry.value) and is_same_code(other.slice, entry.slice)
            )

        stores = [s for s in nodes_in(function, ast.Assign) if any(map(is_entry, s.targets))]
        others = [r.value for r in nodes_in(function, ast.Return) if r.value is not entry]
        return bool(stores) and all(
            is_entry(value) or any(self.flow.is_same(value, s.value) for s in stores)
            for value in others
        )

    # --------------------------------------------------------------------- what an entry is made of
    def _is_of_key(self, entry: ast.Subscript) -> bool:
        match parent_of(entry):
            case ast.Assign(value=value):
                made, function = self._parts(value), function_of(entry)
                if made is not None and self._tells_apart(entry.slice):
                    key = self._parts(entry.slice) or frozenset()
                    return all(self._stays(part, function) for part in made - key)
        return False

    def _tells_apart(self, key: ast.expr, depth: int = DEEP) -> bool:
        """Whether a key is another one for other parts: ``str(size) + "_" + str(x.dtype)``."""
        match key:
            case ast.Call(args=[ast.Name() | ast.Attribute() as part], keywords=[]):
                text = self.script.is_call(key, "builtins.str", "builtins.repr")
                return text and not self.script.may_be(part, Tensor)
            case ast.Name():
                value = self.flow.value(key)
                return value is None or (depth > 0 and self._tells_apart(value, depth - 1))
            case ast.BinOp(op=ast.Add()) | ast.JoinedStr() | ast.FormattedValue() | ast.Tuple():
                parts = of_kind(ast.iter_child_nodes(key), ast.expr)
                return all(self._tells_apart(p, depth - 1) for p in parts)
        return isinstance(key, (ast.Constant, ast.Attribute))

    def _parts(self, expr: ast.expr, depth: int = DEEP) -> frozenset[str] | None:
        """The parameters, or attributes of them, that an expression is computed of; None where that
        is not known.
        """
        found: list[frozenset[str] | None] = []
        match expr:
            case _ if depth == 0:
                return None
            case ast.Constant():
                return frozenset()
            case ast.Name():
                if isinstance(one(self.script.values(expr)), STAYING):
                    return frozenset()
                made = self.flow.definition(expr)
                if made is None:
                    return None
                if made.is_parameter:
                    return frozenset([expr.id])
                local = function_of(made.node) is function_of(expr)
                value = made.value if local else None
                return None if value is None else self._parts(value, depth - 1)
            case ast.Attribute(value=of, attr=attr):
                if isinstance(one(self.script.values(expr)), STAYING):
                    return frozenset()
                parts = self._parts(of, depth - 1)
                return None if parts is None else frozenset(f"{p}.{attr}" for p in parts)
            case ast.Call(func=func):
                if self._is_by_chance(expr):
                    return None
                found = [self._parts(a, depth - 1) for a in arguments_of(expr)]
                if isinstance(func, ast.Attribute):
                    found.append(self._parts(func.value, depth - 1))
            case ast.BinOp() | ast.JoinedStr() | ast.FormattedValue() | ast.Tuple() | ast.List():
                inner = of_kind(ast.iter_child_nodes(expr), ast.expr)
                found = [self._parts(e, depth - 1) for e in inner]
            case _:
                return None
        return None if None in found else frozenset[str]().union(*found)  # type: ignore[arg-type]

    def _is_by_chance(self, call: ast.Call) -> bool:
        graph = self.code.graph
        run = {f: f for c in graph.callees(call) for f in (c.function, *graph.run_in(c.function))}
        calls = [call, *(n for f in run for n in nodes_in(f, ast.Call))]
        if not self.script.called(call):
            return True
        return any(n.startswith(CHANCE) for c in calls for n in self.script.library_functions(c))

    def _stays(self, part: str, function: ast.AST, depth: int = DEEP) -> bool:
        """Whether a parameter of a function, or an attribute of it, is the same for all items."""
        name, *attrs = part.split(".")
        if not isinstance(function, DEFS) or depth == 0:
            return False
        uses = [n for n in nodes_in(function, ast.Name) if n.id == name]
        this = {id(t) for n in uses for t in self.script.values(n) if isinstance(t, Inst)}
        if attrs and len(this & self.code.objects.keys()) == 1:
            return True  # what changes it is a reason by itself
        if function in self.code.starts:
            return False
        graph, given = self.code.graph, list[bool]()
        for call in self.code.sites.get(function, ()):
            for callee in (c for c in graph.callees(call) if c.function is function):
                expr = graph.argument(call, callee, name)
                parts = None if expr is None else self._parts(expr)
                given.append(
                    graph.leaves_default(call, callee, name)
                    if parts is None
                    else all(self._stays(p, function_of(call), depth - 1) for p in parts)
                )
        return bool(given) and all(given)


def _is_made_empty(made: Dict) -> bool:
    match made.node:
        case ast.Dict(keys=keys):
            return not keys
        case ast.Call(args=args, keywords=keywords):
            return not args and not keywords
    return False


STAYING = (Const, Ref, Module, Cls, Func)
ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)
