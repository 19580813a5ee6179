"""What code makes of numbers and of a device alone: whenever these are the same, so is it."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterable, Sequence

from autofast.facts.invariants import IMPURE, Invariants
from autofast.facts.read_only import ASKED
from autofast.flow.callgraph import CallGraph, Function
from autofast.flow.defuse import Definition, bound_to
from autofast.flow.program import Flow
from autofast.flow.scopes import Expressions, mentions, owner, parameters
from autofast.model.calls import (
    arguments_of,
    is_augmented,
    is_name,
    keyword_of,
    root_of,
    targets_of,
)
from autofast.model.script import Script
from autofast.model.several import of_kind, surely
from autofast.model.source import ancestors, contains_kind, nodes_in, source_of, within_any
from autofast.model.syntax import COMPREHENSIONS, DEFS, is_attribute, is_read, is_stored
from autofast.model.values import (
    Arg,
    Const,
    Ext,
    Func,
    Module,
    Num,
    Ref,
    Seq,
    Setting,
    Tensor,
    Unknown,
    certainly,
    is_named,
)

DEEPEST = 6  # names of one number
COUNTING = ("builtins.len", "builtins.int", "builtins.min", "builtins.max", "math.")
PLACES = (ast.Subscript, ast.Attribute)
TEXTS = (ast.Lambda, ast.NamedExpr, ast.JoinedStr, ast.Starred)


class OfNumbers:
    """Statements of a function that make tensors of numbers, which stand for parameters.

    Attributes:
        inputs: what is given for each parameter, as code.
        spelled: the places where it is read, each with the parameter.
        bound: the variables of what is made.
    """

    def __init__(self, script: Script, function: Function):
        self.script, self.function = script, function
        self.known, self.flow = script.analysis(Invariants), script.analysis(Flow)
        self.inputs: dict[str, str] = {}
        self.spelled: dict[ast.expr, str] = {}
        self.bound: set[str] = set()
        self.globals: set[str] = set()

    # ------------------------------------------------------------------------------ statements
    def takes(self, stmt: ast.stmt) -> bool:
        """Whether a statement makes a tensor of numbers, or writes to one that is made."""
        match stmt:
            case ast.Assign(value=value) if self.is_given(value):
                return all(self._may_get(target, value) for target in targets_of(stmt))
            case ast.AugAssign(target=target, value=value):
                return self.is_given(value) and self._is_part(target)
        return self._takes_block(stmt)

    def _takes_block(self, stmt: ast.stmt) -> bool:
        match stmt:
            case ast.For(target=target, iter=over, orelse=[]) if self.is_given(over):
                names = [*nodes_in(target, ast.Name)]
                self.bound |= {n.id for n in names}
                return all(map(self._is_own, names)) and all(map(self.takes, stmt.body))
            case ast.If(test=test) if not source_of(stmt).stored_in(
                stmt
            ):  # or one may have no value
                return self.is_given(test) and all(map(self.takes, [*stmt.body, *stmt.orelse]))
        return False

    def takes_all(self, first: Sequence[ast.stmt], others: Iterable[ast.stmt]) -> list[ast.stmt]:
        """``first``, which are taken already, and what ``others`` compute of what these make."""
        taken, more = [*first], list[ast.stmt]()
        for stmt in others:
            before = (dict(self.inputs), dict(self.spelled), set(self.bound))
            if not self.takes(stmt):
                self.inputs, self.spelled, self.bound = before
                continue
            more.append(stmt)
            if self.reads(stmt) & {n for s in taken for n in written(s)}:
                needed = self.reads(stmt)
                taken += [s for s in more if s is stmt or written(s) & needed]
                more = [s for s in more if s not in taken]
        self.bound -= {n for s in more for n in written(s)}
        self.bound |= {n for s in taken for n in written(s)}
        self.spelled = {n: p for n, p in self.spelled.items() if not within_any(n, more)}
        used = {*self.spelled.values()}
        self.inputs = {p: given for p, given in self.inputs.items() if p in used}
        return sorted(taken, key=lambda s: s.lineno)

    def reads(self, tree: ast.AST) -> set[str]:
        """The function's variables that are read there, but for numbers that are given."""
        return {
            n.id
            for n in nodes_in(tree, ast.Name)
            if (is_read(n) or is_augmented(n)) and owner(n) is self.function and not self._is_key(n)
        }

    def is_set_by(self, statements: Sequence[ast.AST]) -> bool:
        """Whether nothing but these statements gives the variables a value."""
        given = {*self.inputs, *(p.arg for p in parameters(self.function))}
        sets = [n for name in self.bound for n in mentions(self.function, name) if is_stored(n)]
        return not (self.bound & given or self.globals & {*self.inputs}) and all(
            within_any(n, statements) for n in sets
        )

    def _may_get(self, target: ast.expr, value: ast.expr) -> bool:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            return len(target.elts) == len(value.elts) and all(
                map(self._may_get, target.elts, value.elts)
            )
        if isinstance(target, ast.Tuple):  # ``cos, sin = angles(length)``
            names = of_kind(target.elts, ast.Name)
            self.bound |= {name.id for name in names}
            return len(names) == len(target.elts) and all(
                isinstance(t, Seq)
                and len(t.exact or ()) == len(names)
                and all(certainly(part, Tensor) for part in t.exact or ())
                and self._is_own(name)
                for name in names
                for t in self.script.values(value) or (None,)
            )
        if isinstance(target, ast.Name):
            self.bound.add(target.id)
            return self._is_own(target) and self.script.must_be(value, Tensor)
        return self._is_part(target)

    def _is_own(self, target: ast.Name) -> bool:
        return owner(target) is self.function and target.id not in source_of(target).rebound

    def _is_part(self, target: ast.expr) -> bool:
        if isinstance(target, ast.Subscript):
            return self.is_given(target.slice) and self._is_part(target.value)
        return is_name(target, *self.bound)

    # ----------------------------------------------------------------------------- expressions
    def is_given(self, expr: ast.AST) -> bool:
        """Whether an expression has the same value whenever the numbers have."""
        match expr:
            case ast.Name(id=name):
                return (
                    name in self.bound
                    or isinstance(owner(expr), COMPREHENSIONS)
                    or (self.known.is_bound_once(expr) and self._is_global(expr))
                    or (self._is_key(expr) and self._gets(expr))
                )
            case ast.expr() if self._is_key(expr):
                return self._gets(expr)
            case ast.Attribute(value=inner, attr=attr):
                if self.script.must_be(expr, Ref, Module) or self.script.must_be(inner, Ref):
                    return self._is_global(expr)
                return attr in (*ASKED, "T", "mT") and self.is_given(inner)
            case ast.Call(func=func):
                parts = arguments_of(expr)
                if is_attribute(func) and not self.script.may_be(func, Ref, Func):
                    parts.append(func.value)
                elif not self._is_global(func):
                    return False
                return self.known.computes(expr, None) and all(map(self.is_given, parts))
            case ast.BinOp(op=ast.MatMult(), left=a, right=b) if self.known.is_lowered(a, b):
                return False
            case ast.expr() | ast.comprehension() if not isinstance(expr, (*IMPURE, *TEXTS)):
                return all(
                    self.is_given(part)
                    for part in ast.iter_child_nodes(expr)
                    if isinstance(part, (ast.expr, ast.comprehension)) and not is_stored(part)
                )
        return False

    def _is_global(self, expr: ast.expr) -> bool:
        """A name of the module or of Python, also with attributes, which other functions see."""
        root = root_of(expr, ast.Attribute)
        if not isinstance(root, ast.Name) or isinstance(owner(root), DEFS):
            return False
        self.globals.add(root.id)
        return True

    def _is_key(self, expr: ast.AST) -> bool:
        """A number, a text or a device that stands where nothing has to be computed for it."""
        match expr:
            case ast.Name(id=name):
                return name not in self.bound and self._is_hashable(expr)
            case ast.Attribute(attr="device", value=inner) if self.script.may_be(inner, Tensor):
                known = self.script.must_be(inner, Tensor, Unknown)
                return known and not self._is_made(inner)
            case (
                ast.Attribute(value=inner)
                | ast.Subscript(value=ast.Attribute(attr="shape", value=inner))
                | ast.Call(func=ast.Attribute(attr="size", value=inner), args=[ast.Constant()])
            ):
                other = self._is_made(inner) or self.script.must_be(inner, Ref)
                return not other and self._is_hashable(expr)
        return False

    def _is_hashable(self, expr: ast.expr) -> bool:
        """What a cache takes; 1 and 1.0 would be one key."""
        found = self.script.values(expr)
        kinds = {type(t.value) for t in found if isinstance(t, Const)} & {bool, int, float}
        return len(kinds) < 2 and surely(
            isinstance(t, (Const, Setting))
            or (isinstance(t, Num) and (bool(t.scalar or t.pattern) or self._is_told(expr)))
            or (isinstance(t, Arg) and keyword_of(t.node, "nargs") is None)
            or is_named(t, Ext, "torch.device")
            for t in found
        )

    def _is_told(self, expr: ast.expr) -> bool:
        """Whether a parameter is annotated as a number: it may be no array of NumPy's."""
        args = [a for a in parameters(self.function) if is_name(expr, a.arg)]
        return any(is_name(a.annotation, "int", "float", "bool", "str") for a in args)

    def _is_made(self, expr: ast.AST) -> bool:
        names = {n.id for n in nodes_in(expr, ast.Name)}
        return bool(names & self.bound) or contains_kind(expr, ast.Call)

    def _gets(self, expr: ast.expr) -> bool:
        """A parameter for what is given."""
        if not self.is_steady(expr):
            return False
        said = ast.unparse(expr)
        name = expr.id if isinstance(expr, ast.Name) else getattr(expr, "attr", "size")
        self.spelled[expr] = name
        return self.inputs.setdefault(name, said) == said

    def is_steady(self, expr: ast.expr, depth: int = 0) -> bool:
        """Whether a number is a size or a setting, of which few come again and again: none that
        counts steps, or is computed in them."""
        match expr:
            case ast.Name() if any(d.is_augmented for d in self.flow.reaching(expr)):
                return False
            case ast.Attribute(value=inner, attr=attr) if self.known.is_set(
                attr, self.script.values(inner), None
            ):
                return False
        if self.script.must_be(expr, Const, Arg, Setting, Ext, Tensor):
            return True
        match expr:
            case ast.Name() if depth < DEEPEST:
                made = self.flow.reaching(expr)
                given = [(d, e) for d in made for e in self._given(d)]
                return surely(
                    d.is_parameter if e is None else self.is_steady(e, depth + 1) for d, e in given
                )
            case ast.Subscript(value=ast.Attribute(attr="shape") as shape):
                return self.is_steady(shape)
            case ast.Attribute(attr="shape" | "device"):
                return True
            case ast.Attribute(value=inner):
                return bool(self.script.values(inner))
            case ast.Call(func=ast.Attribute(attr="size" | "dim" | "numel")):
                return True
            case ast.Call() if self.script.library_function(expr).startswith(COUNTING):
                return self.script.is_call(expr, "builtins.len") or all(
                    self.is_steady(a, depth) for a in arguments_of(expr)
                )
            case ast.BinOp() | ast.UnaryOp() | ast.Tuple():
                parts = of_kind(ast.iter_child_nodes(expr), ast.expr)
                return all(self.is_steady(part, depth) for part in parts)
        return False

    def _given(self, made: Definition) -> Expressions:
        """What a variable gets, or what it is a part of."""
        if made.is_parameter:
            return self.script.analysis(CallGraph).gives(made)
        return [bound_to(made.node)[0]]

    # ---------------------------------------------------------------------------------- its text
    @property
    def order(self) -> list[str]:
        """The parameters: as they are read, a device last."""
        places = {p: (n.lineno, n.col_offset) for n, p in self.spelled.items()}
        return sorted(self.inputs, key=lambda p: (p == "device", places[p]))

    def text(self, node: ast.AST, begin: ast.AST | None = None) -> str:
        """The code of it, from ``begin`` on, with parameters where numbers are read."""
        first, column = (begin or node).lineno, (begin or node).col_offset  # type: ignore[attr-defined]
        lines = [line.encode() for line in source_of(node).lines[first - 1 : node.end_lineno]]  # type: ignore[attr-defined]
        lines[-1] = lines[-1][: node.end_col_offset]  # type: ignore[attr-defined]
        for n in sorted(self.spelled, key=lambda n: (n.lineno, n.col_offset), reverse=True):
            if node in (n, *ancestors(n)):
                at, last = n.lineno - first, (n.end_lineno or n.lineno) - first
                end = lines[last][n.end_col_offset :]
                lines[at : last + 1] = [lines[at][: n.col_offset] + self.spelled[n].encode() + end]
        lines[0] = b" " * column + lines[0][column:]
        return textwrap.dedent(b"\n".join(lines).decode())


class OfObject(OfNumbers):
    """The same of what the constructor alone has set, and nothing else."""

    def __init__(self, script: Script, method: ast.FunctionDef, init: ast.FunctionDef | None):
        super().__init__(script, method)
        self.init = init

    def _is_key(self, expr: ast.AST) -> bool:
        given = self.function.args.args  # none, of a static method
        return (
            bool(given)
            and is_attribute(expr)
            and is_name(expr.value, given[0].arg)
            and self.known.is_kept(expr, self.init)
        )

    def _gets(self, expr: ast.expr) -> bool:
        return True


def needed(made: OfNumbers, above: Sequence[ast.stmt], node: ast.AST) -> list[ast.stmt]:
    """The statements of a block that give values to the variables that ``node`` is made of."""
    names, found = made.reads(node), list[ast.stmt]()
    for earlier in reversed(above):
        if written(earlier) & names:
            found.insert(0, earlier)
            names |= made.reads(earlier)
    return found


def written(stmt: ast.AST) -> set[str]:
    """The variables that get a value in a statement, or that it writes a part of."""
    places = [n for n in nodes_in(stmt, *PLACES) if is_stored(n)]
    roots = {n.id for p in places if isinstance(n := root_of(p, *PLACES), ast.Name)}
    return roots | source_of(stmt).stored_in(stmt)
