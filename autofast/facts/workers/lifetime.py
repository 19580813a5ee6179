"""What outlives an item: whether a value of the code behind a loader may have been there before,
and be there afterwards.
"""

from __future__ import annotations

import ast

from autofast.facts.workers.loader_code import CALLED, Side, run_by
from autofast.flow.callgraph import Callee
from autofast.flow.defuse import Definition, bound_to, taken_by
from autofast.flow.program import holder_of
from autofast.flow.scopes import defaults, parameters
from autofast.model.calls import is_method, is_name, unstarred
from autofast.model.several import of_kind, wordset
from autofast.model.source import function_of, live_nodes, parent_of
from autofast.model.syntax import SEQUENCES, has_star
from autofast.model.values import (
    Bound,
    Cls,
    Ext,
    Func,
    Inst,
    Method,
    Thing,
    Unknown,
    Values,
    any_of,
    library_names,
)
from autofast.ops import is_view

# A default of this kind is one object for all calls.
MUTABLE = (ast.List, ast.Dict, ast.Set, ast.Call)
# fmt: off
PARTS = wordset("get pop popleft popitem setdefault values items keys __getitem__ loc iloc __iter__ requires_grad_")
COPIES = wordset("copy clone astype tolist item convert resize crop rotate read decode encode lower upper strip split join format replace numpy "
    "mean sum max min transpose load open sample")
# Functions whose result may be their argument, or hold parts of it.
PASSING = wordset("""
    builtins.iter builtins.next builtins.enumerate builtins.zip builtins.reversed builtins.map
    builtins.filter builtins.getattr builtins.vars random.choice torch.from_numpy torch.as_tensor
    numpy.asarray numpy.ascontiguousarray numpy.squeeze numpy.expand_dims numpy.transpose
    numpy.reshape numpy.ravel numpy.atleast_1d numpy.atleast_2d torch.squeeze torch.unsqueeze
    torch.reshape torch.transpose operator.itemgetter typing.cast builtins.super
""")
# fmt: on
SHALLOW = wordset(
    "builtins.dict builtins.list builtins.tuple builtins.set builtins.sorted builtins.frozenset collections.OrderedDict "
    "collections.deque copy.copy"
)
DEEP = 24


class Lifetime:
    """Answers for the code of one side of a loader, each asked for once."""

    def __init__(self, code: Side):
        self.code, self.script, self.graph, self.flow = code, code.script, code.graph, code.flow
        self._kept: dict[object, bool] = {}

    def keeps(self, expr: ast.expr | None, depth: int = 0) -> bool:
        """Whether what ``expr`` is, in this code, may have been there before and be there
        afterwards.
        """
        if expr is None or depth > DEEP:
            return False
        match expr:
            case ast.Name():
                return self.keeps_name(expr, depth)
            case ast.Attribute() | ast.Subscript():
                return self.keeps_parts(expr.value, depth + 1)
            case ast.Starred() | ast.Await():
                return self.keeps(expr.value, depth + 1)
            case ast.NamedExpr():
                return self.keeps(expr.value, depth + 1)
            case ast.IfExp():
                return self.keeps(expr.body, depth + 1) or self.keeps(expr.orelse, depth + 1)
            case ast.BoolOp():
                return any(self.keeps(v, depth + 1) for v in expr.values)
            case ast.Call():
                return self.keeps_result(expr, depth)
        return False

    def keeps_parts(self, expr: ast.expr, depth: int) -> bool:
        """Whether a part of what ``expr`` is may have been there before: also of a shallow copy,
        ``dict(self.rows[i])``.
        """
        if self.keeps(expr, depth) or depth > DEEP:
            return depth <= DEEP
        match expr:
            case ast.Name():
                key = "parts", expr
                if key not in self._kept:
                    self._kept[key] = False
                    values = (bound_to(d.node)[0] for d in self.flow.reaching(expr))
                    self._kept[key] = any(
                        self.keeps_parts(v, depth + 1) for v in values if v is not None
                    )
                return self._kept[key]
            case ast.IfExp():
                parts = (expr.body, expr.orelse)
                return any(self.keeps_parts(part, depth + 1) for part in parts)
            case ast.BoolOp():
                return any(self.keeps_parts(part, depth + 1) for part in expr.values)
            case ast.ListComp(elt=elt) | ast.GeneratorExp(elt=elt):
                return self.keeps(elt, depth + 1)
            case ast.Call():
                names = self.script.library_functions(expr)
                if names & SHALLOW:
                    return any(self.keeps_parts(a, depth + 1) for a in expr.args)
                if is_method(expr, "copy") and not names:
                    return self.keeps_parts(expr.func.value, depth + 1)
        return False

    def keeps_name(self, name: ast.Name, depth: int) -> bool:
        if name not in self._kept:
            self._kept[name] = False  # where it depends on itself
            outside = holder_of(name) not in self.code.functions
            self._kept[name] = outside or any(
                self.binds_kept(d, depth) for d in self.flow.reaching(name)
            )
        return self._kept[name]

    def binds_kept(self, definition: Definition, depth: int) -> bool:
        if definition.is_parameter:
            key = "parameter", definition.node
            if key not in self._kept:
                self._kept[key] = False
                self._kept[key] = self.parameter(
                    function_of(definition.node), definition.name, depth
                )
            return self._kept[key]
        if definition.is_augmented:
            return self.keeps_name(definition.node, depth)  # type: ignore[arg-type]
        value, whole = bound_to(definition.node)
        if not whole and isinstance(value, (ast.Tuple, ast.List, ast.Set)):
            return any(self.keeps(part, depth + 1) for part in value.elts)
        taker, way = taken_by(definition.node)
        if isinstance(taker, ast.Assign) and isinstance(value, ast.Call) and len(way) == 1:
            return self.keeps_result(value, depth + 1, way[0])
        if value is not None and not whole:
            return self.keeps_parts(value, depth + 1)
        return self.keeps(value, depth + 1)

    def parameter(self, function: ast.AST, name: str, depth: int) -> bool:
        index = [p.arg for p in parameters(function)].index(name)
        started = function in self.code.starts
        method = isinstance(parent_of(function), ast.ClassDef) and not any(
            is_name(d, "staticmethod") for d in getattr(function, "decorator_list", ())
        )
        if started and method and index == 0:
            return True
        for partial in self.code.partials.get(function, ()):
            if (
                index < len(partial.args.positional) + method
                or name in partial.args.named
                or partial.args.open
            ):
                return True
        shared = isinstance(defaults(function).get(name), MUTABLE)
        for site in self.code.sites.get(function, ()):
            for callee in self.graph.callees(site):
                if callee.function is not function or (callee.makes is not None and index == 0):
                    continue  # another one, or a new object
                if callee.is_bound and index == 0:
                    if self.keeps_receiver(site, callee.this, depth):
                        return True
                    continue
                given = self.given(site, callee, name)
                if any(self.keeps(a, depth + 1) for a in given) or (shared and not given):
                    return True
        return started and index > 0 and shared

    def given(self, site: ast.Call, callee: Callee, name: str) -> list[ast.expr]:
        """What a call may give for a parameter; nothing where its default holds."""
        argument = self.graph.argument(site, callee, name)
        if argument is not None:
            return [argument]
        if name in defaults(callee.function) and self.graph.leaves_default(site, callee, name):
            return []
        return [unstarred(a) for a in site.args] + [k.value for k in site.keywords]

    def keeps_receiver(self, site: ast.Call, this: Thing | None, depth: int) -> bool:
        """Whether the object whose method is called, or which is called itself, is kept."""
        if this in self.script.called(site):
            return self.keeps(site.func, depth + 1)
        return not isinstance(site.func, ast.Attribute) or self.keeps(site.func.value, depth + 1)

    def keeps_result(self, call: ast.Call, depth: int, place: int | None = None) -> bool:
        """With ``place``: whether that part of a tuple which it returns is kept."""
        callees = self.script.called(call)
        if is_name(call.func, "super"):
            first = [Definition(p.arg, p) for p in parameters(function_of(call))[:1]]
            return any(self.binds_kept(d, depth) for d in first)
        names = library_names(callees)
        if names & PASSING:
            return any(self.keeps(a, depth + 1) for a in call.args)
        if "builtins.type" in names or "builtins.globals" in names:
            return True
        for thing in callees:
            if any(self.returns_kept(function, depth, place) for function in run_by(thing, CALLED)):
                return True
        if not isinstance(call.func, ast.Attribute) or names or any_of(callees, Func, Bound, Cls):
            return False
        if call.func.attr in PARTS or is_view(call.func.attr):
            return self.keeps(call.func.value, depth + 1)
        held = self.script.values(call.func.value)
        if any_of(held, Ext, Inst, Unknown) and call.func.attr not in COPIES and not draws(held):
            return self.keeps(call.func.value, depth + 1) and any_of(callees, Method)
        return False

    def returns_kept(self, function: ast.AST, depth: int, place: int | None = None) -> bool:
        key = ("returns", function, place)
        if key not in self._kept:
            self._kept[key] = False
            if isinstance(function, ast.Lambda):
                self._kept[key] = self.keeps(function.body, depth + 1)
            else:
                ends = [
                    n
                    for n in live_nodes(function)
                    if isinstance(n, (ast.Return, ast.Yield)) and function_of(n) is function
                ]
                place = None if any_of(ends, ast.Yield) else place
                self._kept[key] = any(self.keeps_end(n.value, depth + 1, place) for n in ends)
        return self._kept[key]

    def keeps_end(self, result: ast.expr | None, depth: int, place: int | None) -> bool:
        """Whether what a function returns is kept, or the part of it at ``place``."""
        if isinstance(result, SEQUENCES):
            known = place in range(len(result.elts)) and not has_star(result.elts)
            return any(
                self.keeps(p, depth) for n, p in enumerate(result.elts) if not known or n == place
            )
        if isinstance(result, ast.Call):
            return self.keeps_result(result, depth, place)
        return self.keeps(result, depth)


def draws(found: Values) -> bool:
    return any("andom" in t.name or t.name.startswith("logging.") for t in of_kind(found, Ext))
