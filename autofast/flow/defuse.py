"""Definitions and uses of variables: which binding may have given a variable the value it has at a
place, and whether one is still read.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property

from autofast.flow.accesses import Access, Kind, accesses
from autofast.flow.cfg import Graph, graph_of
from autofast.flow.frequency import arms_around
from autofast.flow.graph import PLACES, Function, Node
from autofast.flow.scopes import STAR, Variable, variables_of
from autofast.flow.solve import Problem, solve
from autofast.model.calls import is_augmented, names_in
from autofast.model.contents import each_once
from autofast.model.several import of_kind
from autofast.model.source import ByNode, Nodes, parent_of, statement_of, walk
from autofast.model.syntax import COMPREHENSIONS, SEQUENCES, TAKERS, has_star
from autofast.model.values import InOrder, Where


@dataclass(frozen=True)
class Definition:
    """A place that gives a variable a value.

    ``node`` is what binds the name: a ``Name`` (of an assignment, a loop, ``with``, ``:=``, a
    comprehension), an ``arg``, an ``alias`` of an import, a function or class, an ``except``
    handler, or a capture of a pattern.
    """

    name: str
    node: ast.AST

    @property
    def is_parameter(self) -> bool:
        return isinstance(self.node, ast.arg)

    @property
    def is_augmented(self) -> bool:
        """``x += ...``: the value is made of the one before."""
        return is_augmented(self.node)

    @property
    def statement(self) -> ast.stmt | None:
        """The statement that binds it; None for a parameter, which a call binds."""
        return None if self.is_parameter else statement_of(self.node)

    @property
    def value(self) -> ast.expr | None:
        """The expression whose value it gets; None where that is not written down (parameters,
        loops, ``+=``, imports, parts of a value).
        """
        value, whole = bound_to(self.node)
        return value if whole else None


class DefUse:
    """Definitions and uses in one function (module, lambda), by what may happen on any way through
    it.

    Only the variables of the function itself are followed along its ways. What another scope may
    change or read at any time (``global``, ``nonlocal``, closures, generator expressions that run
    later) counts with all its definitions, or as always live. Code in strings, ``locals()`` and a
    module's variables set from other files are not looked at.
    """

    def __init__(
        self, function: Function, graph: Graph | None = None, exported: Iterable[str] | None = None
    ):
        """``exported`` are the variables of a module that are read after its end, by whoever
        imports it; all where this is not given.
        """
        self.function = function
        self.graph = graph or graph_of(function)
        self.table = variables_of(function)
        self._accesses: dict[Node, list[tuple[Access, Variable]]] = {}
        self._inline: Nodes = set()
        # The variables of this code, each with all bits of its definitions.
        self._local: dict[Variable, int] = {}
        self._read_all()
        self._shared = {
            v for v in self._local if any(n not in self._inline for n in self.table.stores(v))
        }
        self._definitions: list[Definition | None] = []
        self._bits: dict[tuple[Variable, ast.AST], int] = {}
        self._unbound: dict[Variable, int] = {}
        self._number()
        self._reaching = self._solve()
        self._live = self._liveness(exported)

    # ------------------------------------------------------------------------------------ questions
    def reaching(self, load: ast.Name) -> frozenset[Definition]:
        """The definitions that may have given the variable the value it has at ``load`` (a read,
        ``del``, or the target of ``+=``).

        Empty for builtins, and in code that is never run.
        """
        variable = self.table.of(load)
        if variable is None:
            return frozenset()
        if variable not in self._local or variable in self._shared or load not in self._inline:
            return self.all(variable)
        state = self._reaching.get(load, 0)
        indices = _indices(state & self._local[variable])
        found = [self._definitions[n] for n in indices]
        # A class body then looks at the module's.
        if None in found and isinstance(variable.scope, ast.ClassDef):
            outer = self.table.find(variable.name, self.table.tree)
            found += self.all(outer) if outer is not None else ()
        return InOrder(d for d in found if d is not None)

    def origins(self, load: ast.Name) -> frozenset[Definition]:
        """All definitions that the value at ``load`` is made of: those that reach it and, where one
        is ``x += ...``, those that reach that.
        """
        found: list[Definition] = []
        todo = [load]
        for place in each_once(todo):
            found += (reaching := self.reaching(place))
            todo += [d.node for d in reaching if d.is_augmented and isinstance(d.node, ast.Name)]
        return InOrder(found)

    def may_be_unbound(self, load: ast.Name) -> bool:
        """Whether the variable may have no value at ``load`` (or none that is known: always True
        for another scope's).
        """
        variable = self.table.of(load)
        if variable not in self._local or variable in self._shared or load not in self._inline:
            return True
        return bool(self._reaching.get(load, 0) & self._unbound[variable])

    def is_bound_at(self, place: ast.AST, name: str) -> bool:
        """Whether a variable of the code of the function certainly has a value when the statement
        of ``place`` begins.

        For another scope's: whether this function has given it one.
        """
        variable = self.table.find(name, self.function)
        if variable is None:
            return False
        if variable not in self._local or variable in self._shared:
            stores = [
                n
                for n in self.table.stores(variable)
                if not isinstance(getattr(n, "ctx", None), ast.Del)
            ]
            return any(
                self.graph.place(n) is not self.graph.place(place)
                and self.graph.dominates(n, place)
                for n in stores
            )
        states = [self._states.get(n, 0) for n in self.graph.starts(place)]
        return bool(states) and not any(s & self._unbound[variable] for s in states)

    def may_come_unbound(
        self, variable: Variable, place: ast.AST, trusted: Collection[ast.AST] = frozenset()
    ) -> bool:
        """Whether some way leads to a read of the variable, or to the beginning of a statement, on
        which nothing has given it a value.

        Ways count only where they pass none of the reads in ``trusted``, which are known to
        have found a value. Unlike :meth:`may_be_unbound`, this also answers for a variable that
        other functions set; what they do is not looked at. Nor do ways count that come past a
        condition which held, or did not, as the same one around the place does.
        """
        closed = self._ruled_out(place)
        ends = set() if self._reads_here(place) else set(self.graph.starts(place))
        removed = [
            n
            for n, found in self._accesses.items()
            if any(v == variable and a.kind is Kind.REMOVE for a, v in found)
        ]
        todo = [
            self.graph.entry,
            *(n for node in removed if node in self.graph.live for n in self.graph.out(node)),
        ]
        for node in each_once(todo):
            if node in ends:
                return True
            through = True
            for access, other in self._accesses.get(node, ()):
                if access.node is place and other == variable:
                    return True
                star = access.name == STAR and variable.scope is self.function
                if star or (other == variable and access.sure):
                    if access.kind is Kind.USE and access.node in trusted:
                        through = False
                        break
                    if access.kind is Kind.DEFINE:
                        todo += self.graph.raises.get(node, ())
                        through = False
                        break
            if through:
                todo += [n for n in self.graph.out(node) if (node, n) not in closed]
        return False

    def _ruled_out(self, place: ast.AST) -> set[tuple[Node, Node]]:
        """The arms of conditions that no way to ``place`` takes: it stands below one that asks the
        same of the same variables.
        """
        graph, found = self.graph, set[tuple[Node, Node]]()
        for gate, arm in arms_around(place, None):
            test = ast.dump(gate.test)
            for node, arms in graph.arms.items():
                other = isinstance(node.ast, ast.If) and node.ast is not gate
                same = other and ast.dump(node.ast.test) == test  # type: ignore[attr-defined]
                if same and graph.dominates(node.ast, gate) and not self._differs(node.ast, gate):
                    found.add((node, arms[arm]))
        return found

    def _differs(self, asked: ast.AST, again: ast.If) -> bool:
        """Whether a variable of a test may get another value before it is asked again."""
        first, then = self.graph.starts(asked), {*self.graph.starts(again)}
        names = names_in(again.test)
        return any(
            any(v.name in names and a.kind is not Kind.USE for a, v in self._accesses.get(n, ()))
            and (n in then or not then.isdisjoint(self.graph.reachable([n], first)))
            for n in self.graph.reachable(first, first)
        )

    def _reads_here(self, place: ast.AST) -> bool:
        return isinstance(place, ast.Name) and place in self._inline

    def all(self, variable: Variable) -> frozenset[Definition]:
        """All definitions of a variable, wherever they are."""
        nodes = (
            n
            for n in self.table.stores(variable)
            if not isinstance(getattr(n, "ctx", None), ast.Del)
        )
        return InOrder(Definition(variable.name, n) for n in nodes)

    def uses(self, definition: Definition) -> list[ast.Name]:
        """The places that may read the value of a definition, in the order of the text; also
        ``del``, and the targets of ``+=``.
        """
        variable = self.table.of(definition.node)
        if variable is not None and variable.name == STAR:
            variable = Variable(definition.name, variable.scope)
        if variable is None:
            return []
        stores = of_kind(self.table.stores(variable), ast.Name)
        found = [*self.table.loads(variable), *(n for n in stores if _reads_too(n))]
        # A class body reads the module's variable where it has not set its own yet.
        if variable.scope is self.table.tree:
            found += [n for n in self._class_reads if n.id == variable.name]
        found = [n for n in found if definition in self.reaching(n)]
        return sorted(found, key=lambda n: (n.lineno, n.col_offset))

    def uses_of(self, target: ast.Name) -> list[ast.Name]:
        """The same of what a name is bound to where it stands."""
        return self.uses(Definition(target.id, target))

    def uses_after(self, variable: Variable, code: ast.AST) -> list[ast.Name]:
        """The places that may read what a variable holds while or after ``code`` of this function
        runs, before it gets another value.

        This follows an object that ``code`` changes, where :meth:`uses` follows one that is bound.
        In the order of the text.
        """
        found = self._readers(variable)
        if variable in self._local and variable not in self._shared:
            read = self._read_after(variable, code)
            found = [n for n in found if n in read or n not in self._inline]
        return sorted(found, key=lambda n: (n.lineno, n.col_offset))

    def _read_after(self, variable: Variable, code: ast.AST) -> Nodes:
        places = {self.graph.place(n) for n in walk(code) if n is code or isinstance(n, PLACES)}
        todo = [
            n
            for p in places
            for start in self.graph.copies.get(p, ())
            for n in self.graph.out(start)
        ]
        found: Nodes = set()
        for node in each_once(todo):
            lost = False
            for access, other in self._accesses.get(node, ()):
                if other == variable and access.kind is not Kind.USE:
                    lost = lost or access.sure
                elif other == variable and not lost:
                    found.add(access.node)
            todo += self.graph.raises.get(node, ()) if lost else self.graph.out(node)
        return found

    @cached_property
    def _class_reads(self) -> list[ast.Name]:
        pairs = (pair for found in self._accesses.values() for pair in found)
        reads = (
            a.node for a, v in pairs if a.kind is Kind.USE and isinstance(v.scope, ast.ClassDef)
        )
        return list({n: n for n in reads if isinstance(n, ast.Name)}.values())

    def live_after(self, stmt: ast.AST) -> frozenset[str]:
        """The function's variables whose value may be read after the statement of ``stmt`` is done,
        before they get another one.

        So are those that other scopes read, and those of other scopes that the function sets.
        """
        place = self.graph.place(stmt)
        if place is None:
            raise ValueError("a statement of another function")
        whole = place if isinstance(place, (ast.stmt, ast.expr)) else statement_of(place)
        after = self.graph.after.get(whole, [])
        if not hasattr(whole, "body") or isinstance(
            whole, (ast.FunctionDef, ast.AsyncFunctionDef, ast.expr)
        ):
            after = [n for node in self.graph.copies.get(whole, ()) for n in self.graph.out(node)]
        return self._live_at(after)

    def live_before(self, place: ast.AST) -> frozenset[str]:
        """The function's variables whose value may be read once a statement, handler or case
        begins, before they get another one.
        """
        return self._live_at(self.graph.starts(place))

    def _live_at(self, nodes: Iterable[Node]) -> frozenset[str]:
        bits = 0
        for node in nodes:
            bits |= self._live.get(node, 0)
        return (
            frozenset(
                v.name
                for n, v in enumerate(self._local)
                if bits >> n & 1 and v.scope is self.function
            )
            | self._always
        )

    # ------------------------------------------------------------------------- reaching definitions
    def _read_all(self) -> None:
        variables: ByNode[Variable | None] = {}
        for node in [self.graph.entry, *(n for found in self.graph.copies.values() for n in found)]:
            pairs = []
            for access in accesses(node):
                if access.node not in variables:
                    variables[access.node] = self.table.of(access.node)
                variable = variables[access.node]
                self._inline.add(access.node)
                if variable is not None:
                    pairs.append((access, variable))
                    if self._is_local(variable):
                        self._local[variable] = 0
            self._accesses[node] = pairs

    def _is_local(self, variable: Variable) -> bool:
        scope = variable.scope
        return scope is self.function or (
            isinstance(scope, (ast.ClassDef, *COMPREHENSIONS))
            and self.graph.place(scope) is not None
        )

    def _number(self) -> None:
        for variable in self._local:
            self._unbound[variable] = self._bit(variable, None)
        for pairs in self._accesses.values():
            for access, variable in pairs:
                if (
                    access.kind is Kind.DEFINE
                    and variable in self._local
                    and (variable, access.node) not in self._bits
                ):
                    if access.name == STAR:
                        targets = [v for v in self._local if v.scope is self.function]
                    else:
                        targets = [variable]
                    for target in targets:
                        self._bits[target, access.node] = self._bit(
                            target, Definition(target.name, access.node)
                        )

    def _bit(self, variable: Variable, definition: Definition | None) -> int:
        bit = 1 << len(self._definitions)
        self._definitions.append(definition)
        self._local[variable] |= bit
        return bit

    def _effect(self, state: int, access: Access, variable: Variable) -> int:
        if access.kind is Kind.USE or variable not in self._local:
            return state
        if access.kind is Kind.REMOVE:
            new = self._unbound[variable]
        elif access.name == STAR:
            for other in self._local:
                state |= self._bits.get((other, access.node), 0)
            return state
        else:
            new = self._bits[variable, access.node]
        return (state & ~self._local[variable] | new) if access.sure else state | new

    def _solve(self) -> ByNode[int]:
        start = 0
        for bit in self._unbound.values():
            start |= bit

        # What a node ends, what it adds, and all that it adds on the way.
        effects: dict[Node, tuple[int, int, int]] = {}
        for node, pairs in self._accesses.items():
            ended, added, passing = 0, 0, 0
            for access, variable in pairs:
                if access.kind is not Kind.USE and variable in self._local:
                    added = self._effect(added, access, variable)
                    passing |= added
                    ended |= self._local[variable] if access.sure and access.name != STAR else 0
            effects[node] = ended, added, passing
        nothing = (0, 0, 0)

        def step(node: Node, state: int) -> int:
            ended, added, _ = effects.get(node, nothing)
            return state & ~ended | added

        def raised(node: Node, state: int) -> int:
            return state | effects.get(node, nothing)[2]

        self._states = before = solve(self.graph, Problem(start, step, int.__or__, raised=raised))
        found: ByNode[int] = defaultdict(int)
        for node, state in before.items():
            for access, variable in self._accesses.get(node, ()):
                if access.kind is Kind.USE:
                    found[access.node] |= state
                state = self._effect(state, access, variable)
        return found

    # ------------------------------------------------------------------------------------- liveness
    def _liveness(self, exported: Iterable[str] | None) -> dict[Node, int]:
        bits = {variable: 1 << n for n, variable in enumerate(self._local)}
        always = {
            v.name
            for pairs in self._accesses.values()
            for _, v in pairs
            if v not in self._local and v.name != STAR
        }
        stored = {
            a.name
            for pairs in self._accesses.values()
            for a, v in pairs
            if a.kind is not Kind.USE and v not in self._local
        }
        self._always = frozenset(always & stored) | {
            v.name for v in self._local if v.scope is self.function and self._is_read_outside(v)
        }
        end = 0
        if isinstance(self.function, ast.Module):
            names = None if exported is None else set(exported)
            for variable, bit in bits.items():
                if variable.scope is self.function and (names is None or variable.name in names):
                    end |= bit

        def step(node: Node, state: int) -> int:
            for access, variable in reversed(self._accesses.get(node, ())):
                bit = bits.get(variable, 0)
                if access.kind is Kind.USE:
                    state |= bit
                elif access.sure and access.name != STAR:
                    state &= ~bit
            return state

        return solve(self.graph, Problem(end, step, int.__or__, backward=True))

    def _is_read_outside(self, variable: Variable) -> bool:
        """Whether code that runs at another time (a closure) reads the variable."""
        return any(n not in self._inline for n in self._readers(variable))

    def _readers(self, variable: Variable) -> list[ast.Name]:
        stores = of_kind(self.table.stores(variable), ast.Name)
        return [*self.table.loads(variable), *filter(_reads_too, stores)]


# ------------------------------------------------------------------------------------------- values
def taken_by(target: ast.AST) -> tuple[Where, list[int]]:
    """What gives a target its value (an assignment, a loop, an item of ``with``, ``:=``), and the
    way to its part of that: ``[1]`` for ``b`` in ``a, b = pair``, with -1 where ``*rest`` leaves a
    place open.
    """
    way: list[int] = []
    node, parent = target, parent_of(target)
    while isinstance(parent, (*SEQUENCES, ast.Starred)):
        if not isinstance(parent, ast.Starred):
            place = parent.elts.index(node)  # type: ignore[arg-type]
            way.insert(0, -1 if has_star(parent.elts[: place + 1]) else place)
        node, parent = parent, parent_of(parent)
    targets = [getattr(parent, name, None) for name in ("target", "optional_vars")]
    return (parent if node in (*targets, *getattr(parent, "targets", ())) else None), way


def bound_to(target: ast.AST) -> tuple[ast.expr | None, bool]:
    """The expression that a target gets its value from, and whether it gets the whole value.

    For a loop, ``with`` and an unpacked value that is the expression it gets an element of (or what
    its ``__enter__`` gives); None where there is none.
    """
    taker, way = taken_by(target)
    if isinstance(taker, TAKERS):
        return taker.iter, False
    match taker:
        case ast.withitem(context_expr=value):
            return value, False
        case ast.Assign(value=value):
            return _part_of(value, way)
        case ast.AnnAssign(value=value) | ast.NamedExpr(value=value):
            return value, True
    return None, False


def _part_of(value: ast.expr, way: list[int]) -> tuple[ast.expr, bool]:
    """``x`` of ``a, b = x, y``, down a way of places."""
    for place in way:
        plain = isinstance(value, SEQUENCES) and not has_star(value.elts)
        if not plain or not 0 <= place < len(value.elts):  # type: ignore[attr-defined]
            return value, False
        value = value.elts[place]  # type: ignore[attr-defined]
    return value, True


def _reads_too(name: ast.Name) -> bool:
    """Whether a name that binds or deletes its variable needs the value before: ``x += 1``, ``del
    x``.
    """
    return isinstance(name.ctx, ast.Del) or is_augmented(name)


def _indices(bits: int) -> Iterable[int]:
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low
