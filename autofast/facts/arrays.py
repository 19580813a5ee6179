"""What an array, a tensor or a list in memory holds: its type of numbers and its dimensions, as far
as the code that makes it tells.

Arrays of NumPy are no values of the reader. What is asked here is asked of the expressions that
make them.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from autofast.facts.aliases import array_written_after
from autofast.flow.callgraph import CallGraph
from autofast.flow.defuse import Definition
from autofast.flow.memory import Memory
from autofast.flow.program import Flow, definitions_at, function_around, holder_of
from autofast.flow.scopes import Expressions, defaults
from autofast.model.calls import first_argument, keyword_of, pairs_of, short_name
from autofast.model.contents import with_contents
from autofast.model.names import GRIDS
from autofast.model.roles import Dataset
from autofast.model.script import Script
from autofast.model.several import all_known, is_numeric, of_kind, surely, wordset
from autofast.model.source import ByNode, function_of, is_generator, parent_of, statement_of
from autofast.model.syntax import SEQUENCES, TAKERS, VARIABLES
from autofast.model.values import (
    Bound,
    Const,
    Ext,
    Func,
    Inst,
    Ref,
    Seq,
    Tensor,
    Thing,
    Unknown,
    Values,
    all_of,
    are_numbers,
    begins,
    certainly,
    const,
    is_named,
    library_name,
    one,
)

TYPES = {
    **{name: name for name in "uint8 int8 int16 int32 int64 bool float16 float32 float64".split()},
    "bool_": "bool",
    "float": "float64",
    "int": "int64",
    "int_": "int64",
    "intp": "int64",
    "long": "int64",
    "single": "float32",
    "double": "float64",
}
# As torch calls them, where it is otherwise.
OF_TORCH = {"long": "int64", "float": "float32", "double": "float64", "half": "float16", "int": "int32", "short": "int16"}  # fmt: skip
OF_TENSORS = {"f32": "float32", "f64": "float64"}
FILLED = wordset("zeros ones empty full", "numpy.")
DICE = ("numpy.random.", "numpy.random.default_rng.", "numpy.random.RandomState.")
BY_SIZE = wordset("normal uniform random random_sample standard_normal integers randint beta gamma")
BY_SIDES = wordset("rand randn")
WHOLE = wordset("integers randint")
COPIED = wordset("numpy.array numpy.asarray numpy.ascontiguousarray numpy.copy")
TYPED = ("numpy.array", "numpy.asarray", "numpy.ascontiguousarray")
ALIKE = wordset("copy clip transpose round")
REDUCED = wordset("mean sum max min std")  # along some dimensions
JOINED = wordset("numpy.concatenate numpy.vstack numpy.hstack numpy.stack")
LOADED = wordset("numpy.load numpy.fromfile numpy.loadtxt numpy.genfromtxt")
TAKING = wordset("iter next enumerate zip list tuple map", "builtins.")


@dataclass(frozen=True)
class Array:
    """``dtype`` as NumPy calls it and ``rank``, the number of dimensions, where they are known.

    ``plain``: it holds certainly no objects of Python. ``is_list``: a list, of arrays as ``dtype``
    and ``rank`` describe them with the list's
    own dimension, or of numbers. ``tensor``: a tensor.
    """

    dtype: str = ""
    rank: int | None = None
    plain: bool = True
    is_list: bool = False
    tensor: bool = False


def dtype_named(script: Script, expr: ast.expr) -> str:
    """The type that ``np.float32``, ``torch.float32``, ``float`` or ``"float32"`` names; empty for
    anything else.
    """
    found = script.values(expr)
    said, name = const(found), library_name(found)
    if isinstance(said, str):
        return TYPES.get(said, "")
    package, _, short = name.rpartition(".")
    if package == "torch":
        return OF_TORCH.get(short, TYPES.get(short, ""))
    return TYPES.get(short, "") if package in ("numpy", "builtins") else ""


class Known:
    """``script.analysis(Known)``: what has been found out of an expression; nothing while it is
    asked of what it is made of itself.
    """

    def __init__(self, script: Script):
        self.found: ByNode[tuple[ast.expr, Array | None]] = {}


def array_of(script: Script, expr: ast.expr) -> Array | None:
    """What ``expr`` holds, if it is certainly an array, a tensor on the host or a list of such."""
    known = script.analysis(Known).found
    if expr not in known:
        known[expr] = expr, None
        known[expr] = expr, _array_of(script, expr)
    return known[expr][1]


def _array_of(script: Script, expr: ast.expr) -> Array | None:
    found = script.values(expr)
    if certainly(found, Tensor):
        types = {OF_TENSORS.get(t.dtype, "") for t in found if isinstance(t, Tensor)}
        return Array(one(types, ""), tensor=True)
    match expr:
        case ast.Name() if parts := _taken_apart(script, expr):
            rows = _joined(parts, script)
            return rows and replace(rows, rank=None)
        case ast.Name() | ast.Attribute():
            return _joined(made_of(script, expr), script)
        case ast.Subscript(value=inner) if script.library_name(inner) in GRIDS:
            return Array()
        case ast.List() | ast.ListComp():
            return _of_list(script, expr)
        case ast.BinOp(left=left, right=right):
            return _of_two(script, left, right)
        case ast.Compare(left=left, comparators=[right]):
            sides = [array_of(script, side) for side in (left, right)]
            arrays = [s for s in sides if s is not None and not s.is_list and not s.tensor]
            rank = (
                arrays[0].rank if len(arrays) == 1 and are_numbers(script.values(right)) else None
            )
            return Array("bool", rank) if arrays else None
        case ast.Subscript(value=inner, slice=index):
            base = array_of(script, inner)
            return base and replace(base, rank=_taken(script, base, index))
        case ast.Call():
            return _of_call(script, expr)
    return None


def _joined(made: Iterable[ast.expr | None], script: Script) -> Array | None:
    """What all these have in common."""
    same = all_known([array_of(script, e) if e is not None else None for e in made])
    if not same:
        return None
    first = same[0]
    if len({(k.is_list, k.tensor) for k in same}) > 1:
        return None
    dtype = first.dtype if len({k.dtype for k in same}) == 1 else ""
    rank = first.rank if len({k.rank for k in same}) == 1 else None
    return Array(dtype, rank, all(k.plain for k in same), first.is_list, first.tensor)


def made_of(script: Script, expr: ast.Name | ast.Attribute) -> Expressions:
    """The expressions that it may have its value from; None for one that is not an expression."""
    match expr:
        case ast.Name():
            made = definitions_at(script, expr)
            return [v for d in made for v in values_of(script, d)]
        case ast.Attribute(value=owner, attr="values"):
            return [owner] if _is_frame(script.values(owner)) else []
        case ast.Attribute(value=owner, attr=attr):
            return [e for thing in script.values(owner) for e in held_under(script, thing, attr)]


def values_of(script: Script, definition: Definition) -> Expressions:
    """What a variable is given at a definition; of a parameter, in each call (of a constructor:
    which the reader has seen).
    """
    if not definition.is_parameter:
        return _part_returned(script, definition.node) or [_value(definition.node)]
    function, calls = function_around(definition.node), script.analysis(CallGraph)
    if getattr(function, "name", "__init__") != "__init__" and calls.complete(function):  # type: ignore[arg-type]
        return [None]
    given = calls.gives(definition) or [None]
    return [*given, defaults(function).get(definition.name)] if None in given else given


def _returned(script: Script, call: ast.AST) -> list[ast.expr]:
    """What the functions of the project return that a call runs, and nothing but these."""
    calls = script.analysis(CallGraph)
    known = isinstance(call, ast.Call) and all_of(script.called(call), Func, Bound)
    functions = [c.func.node for c in calls.callees(call)] if known else []  # type: ignore[arg-type]
    if any(map(is_generator, functions)):
        return []
    return [result for function in functions for result in calls.results(function)]


def _part_returned(script: Script, target: ast.AST) -> Expressions:
    """What a function returns in the place of one of several targets: ``x, y = load()``."""
    match parent_of(target), statement_of(target):
        case ast.Tuple() as whole, ast.Assign(targets=[single], value=value) if whole is single:
            given = [pairs_of(whole, result) for result in _returned(script, value)]
            return [next((v for t, v in pairs if t is target), None) for pairs in given]
    return []


def array_origins(script: Script, array: ast.expr) -> set[ast.expr]:
    """The expressions that an array may come from: names for it, what it is a view of, what made
    it.
    """

    def below(node: ast.expr) -> Iterator[ast.expr]:
        index = node.slice if isinstance(node, ast.Subscript) else None
        if isinstance(node, VARIABLES):
            yield from filter(None, made_of(script, node))
            yield from filter(
                None, _taken_apart(script, node) if isinstance(node, ast.Name) else ()
            )
        elif index is None or array_of(script, index) is None:  # else a copy
            yield from _returned(script, node)
            yield from script.analysis(Memory).viewed(node)

    return set(with_contents([array], below))


def arrays_change(script: Script, dataset: Dataset, under: Collection[str]) -> str:
    """Why arrays of a data set that something else has a name for may change after a copy."""
    for site in script.log.of("set_attribute"):
        made = [o for o in site if o.this is dataset.thing and o.data["name"] in under]
        expr = _value(site.node)
        if not made or expr is None:
            continue
        every, home = array_origins(script, expr), {function_of(site.node)}
        elsewhere = any({function_of(n), holder_of(n)} != home for n in of_kind(every, ast.Name))
        if elsewhere or _is_taken_by_hand(script, dataset):
            if why := array_written_after(script, every, expr, made):
                return why
    return ""


def _is_taken_by_hand(script: Script, dataset: Dataset) -> bool:
    """Whether the script takes items itself, which may be views of the arrays."""
    uses = (parent_of(n) for n in script.nodes if dataset.thing in script.values(n))
    return any(isinstance(u, (ast.Subscript, *TAKERS)) or script.is_call(u, *TAKING) for u in uses)


def _taken_apart(script: Script, name: ast.Name) -> Expressions:
    """What a variable is a row of, where it always is: ``y, x = numpy.mgrid[0:9, 0:9]``."""
    found: Expressions = []
    for definition in definitions_at(script, name):
        match parent_of(definition.node), statement_of(definition.node):
            case ast.Tuple() as target, ast.Assign(targets=[single], value=value) if (
                target is single
                and not isinstance(value, SEQUENCES)
                and not _returned(script, value)
            ):
                found.append(value)
            case _:
                return []
    return found


def _is_frame(found: Values) -> bool:
    return surely(begins(t, Unknown, "pandas.") for t in found)


def held_under(script: Script, thing: Thing, name: str) -> Expressions:
    """What is put under the name of an attribute of an object of the project, or of the options;
    None for what is not an expression.
    """
    if not isinstance(thing, Inst) and not is_named(thing, Ext, "argparse.Namespace"):
        return [None]
    return [_value(site.node) for site in script.log.setting({thing}, name)]


def _value(target: ast.AST) -> ast.expr | None:
    """The right side for a target, also for one of several: ``a, b = [], []``."""
    match statement_of(target):
        case ast.Assign(targets=targets, value=value):
            pairs = [pair for t in targets for pair in pairs_of(t, value)]
            return next((v for t, v in pairs if t is target), None)
        case ast.AnnAssign(target=single, value=value) if single is target:
            return value
    return None


def _taken(script: Script, base: Array, index: ast.expr) -> int | None:
    """The dimensions of rows of it."""
    if isinstance(index, ast.Slice) or base.rank is None:
        return base.rank
    by_array = array_of(script, index)
    known = by_array is not None and by_array.rank is not None and by_array.dtype != "bool"
    return base.rank - 1 + by_array.rank if known and by_array and by_array.rank else None


# -------------------------------------------------------------------------------------------- lists
def _of_list(script: Script, expr: ast.List | ast.ListComp) -> Array | None:
    """A list whose elements are all arrays of one kind, or all numbers."""
    elements = list(_elements(script, expr, script.values(expr)))
    if not elements or None in elements:
        return None
    if all(e is not None and _is_whole(script, e) for e in elements):
        return Array("int64", 1, is_list=True)
    each = _joined(elements, script)
    if each is None or each.is_list or not each.plain:
        return None
    return replace(each, rank=None if each.rank is None else each.rank + 1, is_list=True)


def _elements(
    script: Script, expr: ast.List | ast.ListComp, things: Values
) -> Iterator[ast.expr | None]:
    match expr:
        case ast.ListComp(elt=elt):
            yield elt
        case ast.List(elts=elts):
            yield from elts
    if not surely(isinstance(t, Seq) and t.node is expr for t in things):
        yield None
        return
    for node in script.each(ast.Attribute):
        if not script.values(node.value) & things:
            continue
        match parent_of(node):
            case ast.Call(func=func, args=[element], keywords=[]) if (
                func is node and node.attr == "append"
            ):
                yield element
            case _:
                yield None
    for grown in script.each(ast.AugAssign):
        if script.values(grown.target) & things:
            yield None


def _is_whole(script: Script, expr: ast.expr) -> bool:
    """A whole number of Python."""
    match expr:
        case ast.Call(func=func):
            return script.library_name(func) in ("builtins.int", "builtins.len")
    return surely(isinstance(t, Const) and type(t.value) is int for t in script.values(expr))


# --------------------------------------------------------------------------------------- operations
def _of_two(script: Script, left: ast.expr, right: ast.expr) -> Array | None:
    pair = [array_of(script, side) for side in (left, right)]
    for mine, other, side in ((pair[0], pair[1], right), (pair[1], pair[0], left)):
        if mine is None or mine.is_list or mine.tensor:
            continue
        if other is not None and other.plain and not other.is_list and not other.tensor:
            ranks = (mine.rank, other.rank)
            rank = None if None in ranks else max(r for r in ranks if r is not None)
            return Array(mine.dtype if mine.dtype == other.dtype else "", rank, mine.plain)
        if other is None and are_numbers(script.values(side)):
            whole = isinstance(script.constant(side), int)
            keeps = mine.dtype.startswith("float") or (whole and mine.dtype != "bool")
            return replace(mine, dtype=mine.dtype if keeps else "")
    return None


def _of_call(script: Script, call: ast.Call) -> Array | None:
    callee, name = script.called(call), script.library_function(call)
    if results := _returned(script, call):
        return _joined(results, script)
    dtype = keyword_of(call, "dtype")
    if dtype is None and (name in TYPED or name in FILLED):  # ``np.zeros(n, np.int64)``
        dtype = next(iter(call.args[2 if name == "numpy.full" else 1 :]), None)
    typed = dtype_named(script, dtype) if dtype is not None else ""
    first = first_argument(call)
    if drawn := _dice(script, call):
        return _drawn(script, call, drawn, typed)
    if name in FILLED and first is not None and (typed or dtype is None):
        return Array(typed or ("float64" if name != "numpy.full" else ""), _sides(script, first))
    if name in COPIED and first is not None:
        copied = array_of(script, first) or _literal(script, first)
        if copied is not None and not copied.tensor and (typed or dtype is None):
            return replace(copied, dtype=typed or copied.dtype, is_list=False)
        return Array(typed) if typed else None
    if name in JOINED and first is not None:
        return Array()
    if name in LOADED:
        return None if keyword_of(call, "mmap_mode") else Array(typed)
    match call.func:
        case ast.Attribute(value=inner, attr="numpy") if script.may_be(inner, Tensor):
            return Array()
        case ast.Attribute(value=inner, attr="to_numpy") if _is_frame(script.values(inner)):
            return Array(typed, plain=bool(typed))
        case ast.Attribute(value=inner, attr=attr) if not isinstance(one(callee), Ref):
            base = array_of(script, inner)
            if base is None or base.is_list or base.tensor:
                return None
            if attr == "astype" and first is not None and (kind := dtype_named(script, first)):
                return Array(kind, base.rank)
            if attr == "reshape":
                sides = len(call.args) if len(call.args) > 1 else _sides(script, call.args[0])
                return replace(base, rank=sides)
            if attr in REDUCED and (first is not None or call.keywords):
                return Array("float64" if attr == "std" else "")
            return base if attr in ALIKE else None
    return None


def _dice(script: Script, call: ast.Call) -> str:
    """The short name of a function that draws an array: ``integers`` for ``rng.integers(9)``."""
    short = short_name(call.func)
    names = {script.library_function(call)}
    names |= {t.name for t in script.values(call) if isinstance(t, Unknown)}
    known = short in BY_SIZE | BY_SIDES
    return short if known and any(f"{dice}{short}" in names for dice in DICE) else ""


def _drawn(script: Script, call: ast.Call, drawn: str, typed: str) -> Array | None:
    dtype = typed or ("int64" if drawn in WHOLE else "float64")
    if drawn in BY_SIDES:
        return Array(dtype, len(call.args)) if call.args else None
    place = {"random": 0, "random_sample": 0, "standard_normal": 0}.get(drawn, 2)
    size = keyword_of(call, "size") or (call.args[place] if len(call.args) > place else None)
    return Array(dtype, _sides(script, size)) if size is not None else None


def _sides(script: Script, size: ast.expr) -> int | None:
    """The number of dimensions of what has this size."""
    match size:
        case ast.Tuple(elts=elts) | ast.List(elts=elts):
            return len(elts)
    found = script.values(size)
    if isinstance(const(found), tuple):
        return len(const(found))
    whole = surely(isinstance(t, Const) and type(t.value) is int for t in found)
    return 1 if whole else None


def _literal(script: Script, expr: ast.expr) -> Array | None:
    """``[0.5, 0.4]``, ``((1, 2), (3, 4))``."""
    match expr:
        case ast.List(elts=[first, *rest]) | ast.Tuple(elts=[first, *rest]):
            known = all_known(_literal(script, e) for e in (first, *rest))
            ranks = {p.rank for p in known if p.rank is not None}
            if len(ranks) != 1:
                return None
            whole = all(p.dtype == "int64" for p in known)
            return Array("int64" if whole else "float64", ranks.pop() + 1)
        case ast.Constant(value=value) if is_numeric(value):
            return Array("int64" if type(value) is int else "float64", 0)
        case ast.UnaryOp(op=ast.USub(), operand=number):
            return _literal(script, number)
        case ast.BinOp(left=left, right=right):
            sides = [_literal(script, side) for side in (left, right)]
            return Array("float64", 0) if all(s and s.rank == 0 for s in sides) else None
    return None


def constant_array(script: Script, expr: ast.expr) -> Array | None:
    """A small array or tensor of the module that is written out in numbers and has this one value
    all along: ``MEAN = np.array([0.5, 0.4])``.
    """
    found = {_written_out(script, e) if e is not None else None for e in _held(script, expr)}
    return one(found)


def _held(script: Script, expr: ast.expr) -> Expressions:
    """What makes a value, under the names that it goes by."""
    match expr:
        case ast.Name():
            made = script.analysis(Flow).definition(expr)
            return [_value(made.node) if made is not None else None]
        case ast.Attribute(value=owner, attr=attr):
            return [e for t in script.values(owner) for e in held_under(script, t, attr)]
    return [expr]


def _written_out(script: Script, expr: ast.expr) -> Array | None:
    match expr:
        case ast.Call(func=ast.Attribute(value=inner, attr="view" | "reshape"), args=sides) if (
            script.library_function(expr) == ""
        ):
            base = _written_out(script, inner)
            flat = sides[0].elts if sides and isinstance(sides[0], ast.Tuple) else sides
            return base and replace(base, rank=len(flat))
        case ast.Call(func=func, args=[given], keywords=keywords):
            name = script.library_name(func)
            typed = dtype_named(script, keywords[0].value) if keywords else ""
            if name not in ("numpy.array", "numpy.asarray", "torch.tensor") or len(keywords) > 1:
                return None
            if keywords and (keywords[0].arg != "dtype" or not typed):
                return None
            found = _literal(script, given)
            if found is None or not found.rank:
                return None
            tensor = name == "torch.tensor"
            dtype = "float32" if tensor and found.dtype == "float64" else found.dtype
            return replace(found, dtype=typed or dtype, tensor=tensor)
        case ast.Call(func=ast.Attribute(value=inner, attr="astype"), args=[kind]):
            base, typed = _written_out(script, inner), dtype_named(script, kind)
            return base and replace(base, dtype=typed) if typed else None
    return None
