"""Places that change something, whose variable a name is, and who calls a function: what is read off the code of the project."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from autofast.flow.variables import assigns
from autofast.model.script import Script
from autofast.model.source import ancestors, function_of, live, parent_of, source_of
from autofast.model.values import Arg, Bound, Cls, Const, Func, Inst, Method, Num, Partial, Ref, Thing, Values, ordered
from autofast.ops import is_in_place as in_place

BINDERS = (ast.Global, ast.Nonlocal, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.alias, ast.ExceptHandler, ast.Name)
CALLED = ("__call__", "forward")
RUN = (*CALLED, "__init__", "__post_init__", "__new__")  # what a call of an object or class runs
# fmt: off
CHANGERS = frozenset(  # methods that change what they are called on
    "append appendleft extend extendleft insert add remove discard pop popleft popitem clear update setdefault sort reverse rotate "
    "put put_nowait get_nowait fill itemset resize partition setflags intersection_update difference_update symmetric_difference_update "
    "__setitem__ __delitem__ __setattr__ __next__ send move_to_end subtract".split()
)
HANDLES = frozenset(  # methods of open files, databases, sockets: there is one position in them
    "read read1 readinto readline readlines seek tell write writelines flush truncate execute executemany executescript commit cursor "
    "fetchone fetchall fetchmany recv sendall acquire release".split()
)
FIRST = frozenset({  # functions that change their first argument
    "random.shuffle", "numpy.random.shuffle", "builtins.setattr", "builtins.delattr", "heapq.heappush", "heapq.heappop", "heapq.heapify",
    "heapq.heappushpop", "heapq.heapreplace", "bisect.insort", "bisect.insort_left", "bisect.insort_right", "numpy.copyto", "numpy.put",
    "numpy.place", "numpy.putmask", "numpy.fill_diagonal", "operator.setitem", "operator.delitem", "operator.iadd",
})
DRAWING = frozenset({"cv2.rectangle", "cv2.circle", "cv2.line", "cv2.putText", "cv2.fillPoly", "cv2.polylines", "cv2.ellipse"})
# fmt: on


@dataclass(frozen=True, eq=False)
class Change:
    """A place that changes an object: ``base`` is the object, ``name`` the attribute; or the name ``bound`` in a scope gets a new value."""

    node: ast.AST
    base: ast.expr | None
    name: str = ""
    bound: str = ""
    computed: bool = False  # an attribute whose name is computed


def changes_in(script: Script, node: ast.AST) -> Iterator[Change]:
    """What one node changes by itself."""
    if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, (ast.Store, ast.Del)):
        yield Change(node, node.value, node.attr if isinstance(node, ast.Attribute) else "")
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield Change(node, None, bound=node.id)
        parent = parent_of(node)
        if isinstance(parent, ast.AugAssign) and not is_number(script.values(node)):
            yield Change(node, node)
    elif isinstance(node, ast.Call):
        yield from _by_call(script, node)


def _by_call(script: Script, node: ast.Call) -> Iterator[Change]:
    func = node.func
    callees = script.values(func)
    names = {t.name for t in callees if isinstance(t, Ref)}
    if isinstance(func, ast.Attribute) and not names:
        inplace = in_place(func.attr, flags=True)
        if func.attr in CHANGERS | HANDLES or inplace or func.attr.startswith("set_"):
            if not any(isinstance(t, (Func, Bound, Cls)) for t in callees):
                yield Change(node, func.value)
    elif any(n.startswith("os.environ.") and n.rsplit(".", 1)[-1] in CHANGERS for n in names) and isinstance(func, ast.Attribute):
        yield Change(node, func.value)
    if any(isinstance(t, Method) and t.name in CHANGERS | HANDLES for t in callees) and not isinstance(func, ast.Attribute):
        yield Change(node, func)  # a method that was taken from its object before: ``pop = pool.pop``
    elif isinstance(func, ast.Attribute) and any(
        isinstance(t, Method) and t.name != func.attr and t.name in CHANGERS | HANDLES for t in callees
    ):
        yield Change(node, func)
    first = node.args[0] if node.args else None
    if names & {"builtins.setattr", "builtins.delattr"} and first is not None:
        keys = script.values(node.args[1]) if len(node.args) > 1 else frozenset()
        for key in ordered(keys):
            known = isinstance(key, Const) and isinstance(key.value, str)
            yield Change(node, first, str(key.value) if known else "", computed=not known)  # type: ignore[union-attr]
    elif first is not None and (names & (FIRST | DRAWING) or any(is_in_place(n) for n in names)):
        yield Change(node, first)
    for keyword in node.keywords:
        if keyword.arg == "out":
            yield Change(node, keyword.value)
    if names & {"os.putenv", "os.unsetenv"}:
        yield Change(node, func)


def changes(script: Script) -> list[Change]:
    """Every change of the project's code that is reached (or may be, where it is not read to the end)."""
    known: list[Change] | None = script.__dict__.get("_changes")
    if known is None:
        known = script.__dict__["_changes"] = [c for s in script.sources for n in live(s.tree) for c in changes_in(script, n)]
    return known


def is_in_place(name: str) -> bool:
    return name.startswith("torch.") and in_place(name, flags=True)


def is_number(found: Values) -> bool:
    """Numbers and strings: ``+=`` gives a new one."""
    return bool(found) and all(isinstance(t, (Const, Num, Arg)) for t in found)


def shown(node: ast.AST) -> str:
    text = " ".join((source_of(node).segment(node) or "it").split())
    return text if len(text) <= 40 else text[:37] + "..."


# ------------------------------------------------------------------------------------------------ names
Binding = tuple[ast.expr | None, bool, ast.AST]  # what a name is bound to, whether it is only an element of that, and where


@dataclass
class Scope:
    """The variables of one function, and what each may be bound to."""

    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    parameters: list[str] = field(default_factory=list)
    declared: set[str] = field(default_factory=set)


_SCOPES: dict[int, tuple[ast.AST, Scope]] = {}


def scope_of(function: ast.AST) -> Scope:
    kept = _SCOPES.get(id(function))
    if kept is not None and kept[0] is function:
        return kept[1]
    if len(_SCOPES) > 5000:
        _SCOPES.clear()
    scope = Scope()
    spec = getattr(function, "args", None)
    if isinstance(spec, ast.arguments):
        every = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, *(a for a in (spec.vararg, spec.kwarg) if a)]
        scope.parameters = [a.arg for a in every]
    for node in ast.walk(function):
        if node is function or not isinstance(node, BINDERS) or function_of(node) is not function:
            continue
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            scope.declared.update(node.names)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            scope.bindings.setdefault(node.name, []).append((None, False, node))
        elif isinstance(node, ast.alias):
            scope.bindings.setdefault((node.asname or node.name).split(".")[0], []).append((None, False, node))
        elif isinstance(node, ast.ExceptHandler) and node.name:
            scope.bindings.setdefault(node.name, []).append((None, False, node))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            scope.bindings.setdefault(node.id, []).extend(_value_of(node))
    _SCOPES[id(function)] = function, scope
    return scope


def _value_of(name: ast.Name) -> list[Binding]:
    """What a name is bound to where it stands as a target."""
    path: list[int] = []
    node: ast.AST = name
    parent = parent_of(node)
    while isinstance(parent, (ast.Tuple, ast.List, ast.Starred)):
        path.append(parent.elts.index(node) if isinstance(parent, (ast.Tuple, ast.List)) else -1)  # type: ignore[arg-type]
        node, parent = parent, parent_of(parent)
    value: ast.expr | None = None
    element = bool(path)
    if isinstance(parent, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
        value = parent.value
        for n in reversed(path):
            if isinstance(value, (ast.Tuple, ast.List)) and 0 <= n < len(value.elts):
                value = value.elts[n]
                element = False
    elif isinstance(parent, (ast.For, ast.AsyncFor, ast.comprehension)):
        value, element = parent.iter, True
    elif isinstance(parent, ast.withitem):
        value = parent.context_expr
    elif isinstance(parent, ast.AugAssign):
        return []
    return [(value, element, name)]


def reaching(name: ast.Name, home: ast.AST) -> tuple[list[Binding], bool]:
    """The bindings of a variable that may hold at a place in its function, and whether there certainly is one (else it may be a parameter)."""
    bound = scope_of(home).bindings.get(name.id, [])
    last = _settled(name) if function_of(name) is home else None
    if last is None:
        return bound, False
    start = last.lineno, last.col_offset
    return [b for b in bound if (getattr(b[2], "lineno", 0), getattr(b[2], "col_offset", 0)) >= start], True


def _settled(name: ast.Name) -> ast.stmt | None:
    """The last statement before a place, and certainly on the way to it, that binds the name."""
    here: ast.AST = name
    for outer in ancestors(name):
        if isinstance(here, ast.stmt):
            for field_ in ("body", "orelse", "finalbody", "handlers"):
                block = getattr(outer, field_, None)
                if isinstance(block, list) and any(s is here for s in block):
                    before = block[: next(n for n, s in enumerate(block) if s is here)]
                    found: ast.stmt | None = next((s for s in reversed(before) if assigns(s, name.id)), None)
                    if found is not None:
                        return found
        if isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Module)):
            return None
        here = outer
    return None


def home_of(name: ast.Name) -> ast.AST:
    """The function or module whose variable this is."""
    function: ast.AST = function_of(name)
    while not isinstance(function, ast.Module):
        scope = scope_of(function)
        if name.id in scope.declared:
            if any(isinstance(n, ast.Global) and name.id in n.names for n in ast.walk(function)):
                return source_of(name).tree
        elif name.id in scope.parameters or name.id in scope.bindings:
            return function
        function = function_of(function)
    return function


def scope_at(node: ast.AST, function: ast.AST) -> ast.AST:
    return function if node is function else function_of(node)


# ------------------------------------------------------------------------------------------------ functions
def functions_of(thing: Thing, methods: tuple[str, ...]) -> list[ast.AST]:
    """The functions of the project that run when a thing is used by these methods."""
    if isinstance(thing, Func):
        return [thing.node]
    if isinstance(thing, Bound):
        return [thing.func.node]
    if isinstance(thing, Partial):
        return [f for t in thing.func for f in functions_of(t, methods)]
    cls = thing.cls if isinstance(thing, Inst) else thing if isinstance(thing, Cls) else None
    if cls is None:
        return []
    made = isinstance(thing, Cls)
    wanted = [m for m in methods if (m in ("__init__", "__post_init__", "__new__")) is made]
    return [t.node for name in wanted for t in cls.find(name) or () if isinstance(t, Func)]


def is_static_method(function: ast.AST) -> bool:
    return any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in getattr(function, "decorator_list", ()))


def callers(script: Script) -> dict[int, tuple[list[ast.AST], bool]]:
    """For each function of the project the calls of it, and whether it is handed to something that may call it at any time."""
    known: dict[int, tuple[list[ast.AST], bool]] | None = script.__dict__.get("_callers")
    if known is not None:
        return known
    known = {}
    for source in script.sources:
        for node in ast.walk(source.tree):
            if not isinstance(node, (ast.Call, ast.Name, ast.Attribute, ast.Lambda)):
                continue
            if isinstance(node, ast.Call):
                for thing in script.values(node.func):
                    for function in functions_of(thing, RUN):
                        known.setdefault(id(function), ([], False))[0].append(node)
                continue
            parent = parent_of(node)
            if not isinstance(parent, (ast.Call, ast.keyword)) or (isinstance(parent, ast.Call) and parent.func is node):
                continue
            for thing in script.values(node):
                if isinstance(thing, (Func, Bound, Partial)):
                    for function in functions_of(thing, ()):
                        calls, _ = known.get(id(function), ([], False))
                        known[id(function)] = calls, True
    script.__dict__["_callers"] = known  # not before it is whole: a rule that raises must leave no half of it to the others
    return known


def unread_calls(script: Script, name: str) -> list[ast.AST]:
    """Calls that the reader has not come to, of something with this name."""
    if not script.unread:
        return []
    calls = [n for s in script.sources for n in ast.walk(s.tree) if isinstance(n, ast.Call) and not script.values(n.func)]
    return [n for n in calls if name in (getattr(n.func, "id", ""), getattr(n.func, "attr", ""))]
