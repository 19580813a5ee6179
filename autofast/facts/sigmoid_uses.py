"""Where what a sigmoid gives goes: to the loss, along the calls, or to a place that reads the
probability.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping

from autofast.flow.callgraph import CallGraph, Function
from autofast.flow.importers import Importers
from autofast.flow.program import Flow
from autofast.model.calls import call_of, stands_alone, taker_of
from autofast.model.contents import with_contents
from autofast.model.script import Script
from autofast.model.several import of_kind, wordset
from autofast.model.source import ByNode, Nodes, at, function_of, parent_of, statement_of
from autofast.model.syntax import DISPLAYS, is_attribute
from autofast.model.values import (
    COLLECTIONS,
    Cls,
    Dict,
    Method,
    Seq,
    Tensor,
    Thing,
    all_of,
    any_of,
    is_named,
    library_names,
)
from autofast.ops import is_in_place, is_view
from autofast.rule import Refusal

# They say nothing of the numbers.
ABOUT = wordset("""shape size dim ndim ndimension numel nelement device dtype layout is_cuda requires_grad
    get_device element_size new_zeros new_ones new_full new_empty is_contiguous stride""")
ABOUT_TOO = frozenset(
    {f"builtins.{n}" for n in "len isinstance type id hasattr".split()}
    | {f"torch.{n}_like" for n in "zeros ones full empty rand randn randint".split()}
)
LIKE = wordset("type_as view_as expand_as reshape_as new_tensor")  # methods of others
# The numbers stay what they are, and a sigmoid may be taken before or after them.
SAME = wordset("detach clone contiguous float to cuda cpu data type_as view_as")
ADDERS = wordset("append extend insert appendleft")


class Probabilities:
    """``script.analysis(Probabilities)``: the expressions that are, or hold, what a sigmoid has
    given.
    """

    def __init__(self, script: Script):
        self.of: ByNode[list[ast.expr]] = defaultdict(list)
        self.holding: ByNode[list[ast.expr]] = defaultdict(list)
        self.held: dict[int, frozenset[ast.AST]] = {}  # container -> the sigmoids in it
        for node in (
            script.nodes if any("igmoid" in source.text for source in script.sources) else ()
        ):
            if not isinstance(node, ast.expr):
                continue
            found = script.values(node)
            for thing in found:
                if isinstance(thing, Tensor) and thing.prob is not None:
                    self.of[thing.prob].append(node)
            for sigmoid in frozenset().union(*(self._inside(t) for t in found)):
                self.holding[sigmoid].append(node)

    def _inside(self, thing: Thing) -> frozenset[ast.AST]:
        if not isinstance(thing, COLLECTIONS):
            return frozenset()
        if id(thing) not in self.held:
            every: list[Thing] = [thing]
            inner = of_kind(with_contents(every), Tensor)
            self.held[id(thing)] = frozenset(t.prob for t in inner if t.prob is not None)
        return self.held[id(thing)]


class Uses:
    """What becomes of the results of some sigmoids, of which ``losses`` are to get what goes into
    these instead.

    ``reads`` are the expressions that have to be given the probability;
    :class:`~autofast.rule.Refusal` where one cannot be.
    """

    def __init__(
        self, script: Script, sigmoids: Iterable[ast.AST], losses: Mapping[ast.Call, ast.expr]
    ):
        self.script = script
        self.calls, self.flow = script.analysis(CallGraph), script.analysis(Flow)
        self.losses = losses  # call -> what it is given
        known = script.analysis(Probabilities)
        keys = list(sigmoids)
        self.sigmoids = frozenset(keys)
        self.mine = {e: e for k in keys for e in known.of[k]}
        self.holding = {e: e for k in keys for e in known.holding[k]}
        self.known = known
        self.gathered: set[int] = set()  # lists that get the probability, as it is appended to them
        self.closed = self._closed()
        roots = {r: r for e in self.mine.values() if (r := self._read_at(e)) is not None}
        for carrier in self.holding.values():
            self._carried(carrier)
        self.reads = self._together(list(roots.values()))

    def _closed(self) -> ByNode[Function]:
        """Functions that are given the probability: they neither lead to the loss nor give it back,
        nor do those that they call.
        """
        found: ByNode[Function] = {}
        for expr in self.mine.values():
            call = taker_of(expr)
            if call is None or self._leads(call) or self.losses.get(call) is expr:
                continue
            found |= {f: f for c in self.calls.callees(call) for f in self.calls.runs(c.function)}
        for expr in self.mine.values():
            call = taker_of(expr)
            inside = function_of(expr) in found
            if inside and not isinstance(self._root(expr), ast.Name):
                raise Refusal("gets the result of the sigmoid in a function that reads it", expr)
            if call is not None and self._leads(call) and not inside:
                for callee in self.calls.callees(call):
                    if callee.function in found:
                        raise Refusal("and others give it to one function in two ways", call)
        return found

    def _leads(self, call: ast.Call) -> bool:
        """Whether a function that is called leads to the loss, or gives back what it gets."""
        inside = {f for c in self.calls.callees(call) for f in self.calls.runs(c.function)}
        return self._gives_it(call) or any(function_of(e) in inside for e in self.losses.values())

    # ------------------------------------------------------------------------------------ one place
    def _read_at(self, expr: ast.expr) -> ast.expr | None:
        """What is to be wrapped so that the place which ``expr`` goes to gets a probability; None
        where that reads nothing of it.
        """
        if not isinstance(getattr(expr, "ctx", ast.Load()), ast.Load):
            raise Refusal("changes what the sigmoid gives in place", expr)
        if function_of(expr) in self.closed or not self._is_read(expr):
            return None
        root = self._root(expr)
        others = [
            t
            for t in self.script.values(root)
            if not isinstance(t, Tensor) or t.prob not in self.sigmoids
        ]
        if others:
            raise Refusal(f"what {at(root)} reads is not always what the sigmoid gives")
        return root

    def _is_read(self, expr: ast.expr) -> bool:
        """Whether the place that an expression stands in looks at its numbers; False where it hands
        them on, to where others look.
        """
        parent = parent_of(expr)
        match parent:
            case ast.Attribute(attr=attr):
                return self._is_read_by(parent, call_of(parent) or parent, attr)
            case ast.Subscript(value=value, ctx=ctx) if value is expr:
                if not isinstance(ctx, ast.Load):
                    raise Refusal("writes into what the sigmoid gives", parent)
                return parent not in self.mine
            case ast.keyword() if isinstance(call := parent_of(parent), ast.Call):
                return self._is_read_in(call, expr)
            case ast.Call() as call:
                return self._is_read_in(call, expr)
            case ast.stmt():
                return self._is_read_by_statement(parent)
            case ast.Tuple() | ast.List() | ast.Dict():
                return not self._hands_on(parent)
            case ast.NamedExpr():
                return False
            case ast.ListComp() | ast.SetComp():
                self.gathered |= {id(t) for t in self.script.values(parent) if isinstance(t, Seq)}
            case ast.IfExp(test=test):
                return test is expr or parent not in self.mine
            case ast.Compare(ops=[ast.Is() | ast.IsNot()]):
                return False
            case ast.Lambda() | ast.Yield() | ast.YieldFrom() | ast.Await() | ast.withitem():
                raise Refusal(f"where what the sigmoid gives goes from {at(expr)} is not followed")
        return True

    def _is_read_by_statement(self, statement: ast.stmt) -> bool:
        if isinstance(statement, ast.Return):
            self._returned(statement)
            return False
        targets = _targets(statement)
        return targets is None or any(self._is_stored_away(t) for t in targets)

    def _is_read_by(self, attribute: ast.expr, whole: ast.expr, attr: str) -> bool:
        """``p.size()``, ``p.view(-1)``, ``p.round()``."""
        if attr in ABOUT:
            return False
        if is_in_place(attr):
            raise Refusal("changes what the sigmoid gives in place", attribute)
        if whole not in self.mine:
            return True
        if attr in SAME or is_view(attr):
            return False
        raise Refusal("stands between the sigmoid and the loss", attribute)

    def _is_read_in(self, call: ast.Call, expr: ast.expr) -> bool:
        if self.losses.get(call) is expr:
            return False
        found = self.script.called(call)
        names = library_names(found)
        if found and len(names) == len(found):
            if names <= ABOUT_TOO or (call in self.mine and all(map(is_view, names))):
                return False
        if any_of(found, Cls):
            raise Refusal("puts what the sigmoid gives into an object", call)
        methods = {t.name for t in found if isinstance(t, Method)}
        if methods and methods <= LIKE and all_of(found, Method):
            return False
        adds = [t.this for t in found if is_named(t, Method, ADDERS)]
        if adds and len(adds) == len(found):
            self.gathered |= {id(t) for t in adds if isinstance(t, Seq)}
            return True
        if not self.calls.callees(call) and call in self.mine:
            raise Refusal("stands between the sigmoid and the loss", call)
        return not self._leads(call)

    def _gives_it(self, expr: ast.expr) -> bool:
        return expr in self.mine or expr in self.holding

    def _is_stored_away(self, target: ast.expr) -> bool:
        """Stored where it is not followed: in an array, a tensor."""
        match target:
            case ast.Subscript(value=into):
                found = self.script.values(into)
                if any_of(found, Seq):
                    raise Refusal("puts what the sigmoid gives into a list", target)
                return not found or not all_of(found, Dict)
        return False

    def _returned(self, node: ast.Return) -> None:
        """What leaves a function comes to calls of it, all of which are known."""
        function = function_of(node)
        if isinstance(function, ast.Module):
            return
        name = getattr(function, "name", "")
        if (place := self.calls.handed(function)) is not None:
            raise Refusal(f"{name}() gives it, and is handed around as a value on {at(place)}")
        if self.calls.is_decorated(function):
            raise Refusal(f"{name}() gives it, and has a decorator that is not known")
        self.used_elsewhere(function)
        for entry in self.calls.entries(function):
            is_call = isinstance(entry, ast.Call) and not stands_alone(entry)
            if is_call and not self._gives_it(entry):  # type: ignore[arg-type]
                raise Refusal(f"what becomes of the result on {at(entry)} is not known")

    def used_elsewhere(self, place: ast.AST) -> None:
        """Refuse where code outside of the script uses the function, or the class, that a place is
        in.
        """
        outer = function_of(place) if not isinstance(place, ast.FunctionDef) else place
        while not isinstance(outer, ast.Module):
            home = parent_of(outer)
            owner = home if isinstance(home, ast.ClassDef) else outer
            if (user := self.script.analysis(Importers).user(owner)) is not None:
                name = getattr(owner, "name", "it")
                raise Refusal(
                    f"{user} uses {name} as well, and would get what goes into the sigmoid"
                )
            outer = function_of(outer)

    # ------------------------------------------------------------------------- tuples, lists, dicts
    def _hands_on(self, display: ast.expr) -> bool:
        """Whether a tuple, list or dict is returned, unpacked or kept under a name, so that what is
        taken out of it is seen.
        """
        match parent_of(display):
            case ast.Return() as node:
                self._returned(node)
                return True
            case ast.Assign(value=value):
                return value is display
            case ast.Tuple() | ast.List() | ast.Dict() as outer:
                return self._hands_on(outer)
        return False

    def _carried(self, expr: ast.expr) -> None:
        """Refuse where something looks into what holds the result of a sigmoid, other than by
        taking it out.
        """
        if function_of(expr) in self.closed:
            return
        if isinstance(expr, DISPLAYS) and not self._hands_on(expr):
            return  # what is in it is read there
        parent = parent_of(expr)
        found = [t for t in self.script.values(expr) if self.known.held.get(id(t))]
        is_list = {id(t) for t in found} <= self.gathered
        match parent:
            case ast.Return():
                self._returned(parent)
                return
            case ast.Tuple() | ast.NamedExpr():
                return
            case ast.stmt() if _targets(parent) is not None:
                return
            case ast.Attribute(attr=attr) if is_list and attr in {*ADDERS, "clear"}:
                return
            case ast.Subscript(value=value, ctx=ast.Load()) if value is expr and not is_list:
                return
            case ast.Subscript(value=value, ctx=ast.Store()) if value is expr:
                return
            case ast.For(iter=over) | ast.comprehension(iter=over) if over is expr and not is_list:
                return
            case ast.Call() as call if expr is not call.func:
                names = self.script.library_functions(call)
                if names and (names <= ABOUT_TOO or is_list) or self.calls.callees(call):
                    return
        raise Refusal(f"holds what the sigmoid gives in a {_kind(found)}", expr)

    # ----------------------------------------------------------------- where the sigmoid is written
    def _root(self, expr: ast.expr) -> ast.expr:
        """``p`` of ``p.view(-1).detach()``."""
        while True:
            match expr:
                case ast.Call(func=ast.Attribute(value=inner)) if inner in self.mine:
                    expr = inner
                case ast.Call(args=[inner, *_]) if inner in self.mine and not self.calls.callees(
                    expr
                ):
                    expr = inner
                case ast.Attribute(value=inner) | ast.Subscript(value=inner) if inner in self.mine:
                    expr = inner
                case _:
                    return expr

    def _together(self, roots: list[ast.expr]) -> list[ast.expr]:
        """One place for all reads of a variable, where it is given its value, if nothing else is
        done with that.
        """
        reads: Nodes = set(roots)
        found: ByNode[ast.expr] = {}
        for root in roots:
            value = self._given(root, reads) if isinstance(root, ast.Name) else None
            chosen = root if value is None else self._root(value)
            found[chosen] = chosen
        return list(found.values())

    def _given(self, name: ast.Name, reads: Nodes) -> ast.expr | None:
        made = self.flow.reaching(name)
        definition = self.flow.definition(name)
        if definition is None or not isinstance(definition.node, ast.Name):
            return None
        statement = statement_of(definition.node)
        match statement:
            case ast.Assign(targets=[target], value=value) if target is definition.node:
                pass
            case _:
                return None
        uses = self.flow.definitions(name).uses(definition)
        alone = all(self.flow.reaching(u) == made and self._only_reads(u, reads) for u in uses)
        return value if alone and value in self.mine else None

    def _only_reads(self, use: ast.expr, reads: Nodes) -> bool:
        """Whether a use of a variable is a read, or asks for no numbers."""
        if use in reads:
            return True
        parent = parent_of(use)
        return is_attribute(parent, *ABOUT)


def _kind(found: list[Thing]) -> str:
    return next((t.kind for t in found if isinstance(t, Seq)), "dict")


def _targets(statement: ast.AST) -> list[ast.expr] | None:
    """What an assignment gives its value to, a value that stands alone to nothing; None for any
    other statement.
    """
    match statement:
        case ast.Expr():
            return []
        case ast.Assign(targets=targets):
            return targets
        case ast.AnnAssign(target=target):
            return [target]
    return None
