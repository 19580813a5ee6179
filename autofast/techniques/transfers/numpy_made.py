"""Arrays that NumPy draws or fills for a tensor, and what makes the same with torch, where the
tensor is wanted: ``torch.randn(n, m, device=...)`` for ``torch.from_numpy(np.random.randn(n, m))``.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from autofast.edit.edits import Edits, Holes, Rewrite
from autofast.facts.arrays import dtype_named
from autofast.flow.program import Flow
from autofast.flow.scopes import mentions
from autofast.model.calls import (
    call_of,
    is_method,
    is_name,
    keyword_of,
    names_in,
    only_target,
    spread_out,
    unstarred,
    variable_name,
)
from autofast.model.script import Script
from autofast.model.several import are_whole, surely, wordset
from autofast.model.source import (
    block_of,
    function_of,
    is_same_function,
    nodes_in,
    parent_of,
    source_of,
    statement_of,
)
from autofast.model.syntax import SEQUENCES, is_attribute, is_operation, is_read
from autofast.model.tensors import is_one_number
from autofast.model.values import Arg, Const, Seq, Setting, certainly, const, consts, is_const
from autofast.ops.families import COMPARED, SIGNS
from autofast.techniques.transfers.literal_tensors import goes_up
from autofast.write.spelling import torch_in

FLOATS = wordset("float32 float64")
WHOLE = FLOATS | {"int64"}
TYPES = WHOLE | wordset("int32 uint8 bool")
NUMBER = "number"  # int64 or a float, by what it is combined with
EXACT = 2**24  # whole numbers up to here have a float32 of their own


@dataclass(frozen=True)
class Made:
    """What torch has in the place of a function of NumPy, and the dtype that NumPy gives.

    ``numbers``: the names of what stands before the shape; ``known``: those for which ``name``
    needs none. ``fill``: the method that takes others. ``by_sides``: it gets its sizes one by one.
    ``fits``: the dtypes in which the numbers are the same, but for their last digits.
    """

    name: str
    dtype: str = "float64"
    fits: frozenset[str] = FLOATS
    numbers: tuple[str, ...] = ()
    known: tuple[int, ...] = ()
    fill: str = ""
    by_sides: bool = False


MADE = {
    "numpy.random.normal": Made("randn", numbers=("loc", "scale"), known=(0, 1), fill="normal_"),
    "numpy.random.randn": Made("randn", by_sides=True),
    "numpy.random.standard_normal": Made("randn"),
    "numpy.random.uniform": Made("rand", numbers=("low", "high"), known=(0, 1), fill="uniform_"),
    "numpy.random.random": Made("rand"),
    "numpy.random.random_sample": Made("rand"),
    "numpy.random.rand": Made("rand", by_sides=True),
    "numpy.random.binomial": Made("", "int64", TYPES, numbers=("n", "p"), fill="bernoulli_"),
    "numpy.random.randint": Made("randint", "int64", WHOLE, numbers=("low", "high")),
    "numpy.ones": Made("ones", fits=TYPES),
    "numpy.zeros": Made("zeros", fits=TYPES),
}
DRAWS = tuple(name for name in MADE if "random" in name)
TRIANGLES = {"numpy.triu": "triu", "numpy.tril": "tril"}
KEPT = wordset("from_numpy as_tensor tensor", "torch.")
OLD = {  # constructors, by the dtype of what they make
    "torch.Tensor": "float32",
    "torch.FloatTensor": "float32",
    "torch.DoubleTensor": "float64",
    "torch.LongTensor": "int64",
    "torch.cuda.FloatTensor": "float32",
    "torch.cuda.LongTensor": "int64",
}
CASTS = {"float": "float32", "double": "float64", "long": "int64", "bool": "bool"}
OTHER_DTYPES = "torch.set_default_dtype", "torch.set_default_tensor_type"


def numpy_made(script: Script, call: ast.Call, where: str, name: str = "") -> Edits:
    """What makes on the device ``where`` the tensor of a call, of which NumPy makes the array;
    nothing for other calls. A cast to another dtype right behind it goes into it. ``name`` is what
    it calls, where that is known.
    """
    taken = _taken(script, call, name)
    if taken is None or "{" in where or script.calls(*OTHER_DTYPES):
        return ()
    data, dtype = taken
    made = _made_above(script, call, data, where) if variable_name(data) else data
    torch, imports = torch_in(source_of(call))
    if made is None or _Writer(script, torch, where).array(made, dtype) is None:
        return ()
    for wanted, cast, inner in (*_casts(script, call), (dtype, None, call)):
        writer = _Writer(script, torch, where)
        if (code := writer.array(made, wanted)) is None:
            continue
        if cast is None and not dtype and writer.gives_indices(made):
            continue  # an order to index by, which keeps its numbers
        edits = [Rewrite(call if made is data else made, code, writer.holes)]
        if made is not data:
            edits.append(Rewrite(call, "{array}", {"array": data}))
        if cast is not None:
            edits.append(Rewrite(cast, "{made}", {"made": inner}))
        return (*edits, *imports)
    return ()


def is_drawn_by_numpy(script: Script, call: ast.Call, name: str = "") -> bool:
    """Whether the numbers of such a tensor are drawn."""
    made = (taken := _taken(script, call, name)) and taken[0]
    made = made and (script.analysis(Flow).value(made) or made)
    return made is not None and any(script.is_call(n, *DRAWS) for n in ast.walk(made))


def _taken(script: Script, call: ast.Call, name: str) -> tuple[ast.expr, str] | None:
    """The array that a call makes a tensor of, and as what; an empty dtype is the array's own."""
    name, said = name or script.library_function(call), keyword_of(call, "dtype")
    named = {k.arg for k in call.keywords}
    if len(call.args) != 1 or named - ({"dtype", "device"} if name in KEPT else set()):
        return None
    dtype = OLD.get(name, "") if said is None else dtype_named(script, said)
    known = name in OLD or (name in KEPT and (said is None or dtype in TYPES))
    return (call.args[0], dtype) if known else None


def _casts(script: Script, call: ast.Call) -> list[tuple[str, ast.Call, ast.Call]]:
    """The dtype that a tensor is cast to at once, or when it has been copied, the call that does,
    and what it casts."""
    made, cast = call, _method_of(call)
    if is_method(cast, "to", "cuda") and is_method(outer := _method_of(cast), *CASTS):
        made, cast = cast, outer
    match cast:
        case ast.Call(func=ast.Attribute(attr=name), args=[], keywords=[]) if name in CASTS:
            return [(CASTS[name], cast, made)]
        case ast.Call(func=ast.Attribute(attr="to" | "type"), args=[said], keywords=[]):
            dtype = dtype_named(script, said)
            return [(dtype, cast, made)] if dtype in TYPES else []
    return []


def _method_of(made: ast.expr) -> ast.Call | None:
    """``x.name(...)`` for ``x``."""
    above = parent_of(made)
    return call_of(above) if is_attribute(above) else None


def _made_above(script: Script, call: ast.Call, data: ast.expr, where: str) -> ast.expr | None:
    """What gives a variable the array, in a statement above in the same block, where nothing else
    reads it, and where the device has a name as well.
    """
    made, stmt = script.analysis(Flow).value_of_its_own(data), statement_of(call)  # type: ignore[arg-type]
    name = variable_name(data)
    if made is None or name in source_of(call).rebound:
        return None
    home, block = statement_of(made), block_of(stmt)
    if home not in block or not is_name(only_target(home), name):
        return None
    names = (n for s in block[block.index(home) : block.index(stmt)] for n in nodes_in(s, ast.Name))
    needed = names_in(ast.parse(where))
    shared = (is_same_function(n, stmt) for n in mentions(function_of(stmt), name))
    return made if all(shared) and all(is_read(n) for n in names if n.id in needed) else None


class _Writer:
    """Code of torch for arrays of NumPy; what it takes over of the script is in ``holes``."""

    def __init__(self, script: Script, torch: str, where: str):
        self.script, self.torch, self.where = script, torch, where
        self.holes: Holes = {}
        self.drawn = False
        self.beyond = False  # may hold whole numbers beyond those that are exact

    def array(self, expr: ast.expr, dtype: str) -> str | None:
        """The code for an array, as ``dtype``, or as what NumPy makes it where that is empty; None
        where there is none.
        """
        match expr:
            case ast.Call(func=ast.Attribute(value=inner, attr="astype"), args=[said], keywords=[]):
                kind = dtype_named(self.script, said)
                once = _Writer(self.script, self.torch, self.where)
                known = kind in TYPES and once.array(inner, kind) is not None
                return self.array(inner, dtype or kind) if known else None
            case ast.Compare(left=left, ops=[sign], comparators=[right]) if type(sign) in COMPARED:
                kind = "int64" if "int64" in (self._own(left), self._own(right)) else "float32"
                code = self._with_number(left, COMPARED[type(sign)], right, kind)
                cast = code is not None and dtype not in ("", "bool")
                return f"{code}.to({self.torch}.{dtype})" if cast else code
            case ast.BinOp(left=left, op=sign, right=right) if type(sign) in SIGNS:
                own = self._own(expr)
                kind = dtype or own
                known = kind == own == "int64" or (kind in FLOATS and own in WHOLE | {NUMBER})
                return self._with_number(left, SIGNS[type(sign)], right, kind) if known else None
            case ast.Call(args=[inner, *rest], keywords=named) if name := TRIANGLES.get(
                self.script.library_function(expr)
            ):
                rest += (k.value for k in named if k.arg == "k")
                code = self.array(inner, dtype)
                if code is None or len(rest) > 1 or len(named) > len(rest):
                    return None
                diagonal = "".join(f", diagonal={self._hole(k)}" for k in rest)
                return f"{self.torch}.{name}({code}{diagonal})"
            case ast.Call() if made := MADE.get(self.script.library_function(expr)):
                return self._made(expr, made, dtype)
            case ast.Call(
                args=[inner, ast.List(elts=sizes) | ast.Tuple(elts=sizes)], keywords=[]
            ) if self.script.is_call(expr, "numpy.reshape"):
                return self._row(inner, dtype, sizes)
            case ast.Call(func=ast.Attribute(value=inner, attr="reshape"), args=sizes, keywords=[]):
                return self._row(inner, dtype, spread_out(sizes))
            case ast.Call():
                return self._row(expr, dtype, ())
        return None

    def _row(self, expr: ast.expr, dtype: str, sizes: Sequence[ast.expr]) -> str | None:
        """Whole numbers one after the other, in one row or in another shape of these sizes."""
        match expr:
            case ast.Call(func=ast.Attribute(value=inner, attr="astype"), args=[said], keywords=[]):
                kind = dtype_named(self.script, said)
                return self._row(inner, dtype or kind, sizes) if kind in WHOLE else None
        ends = self._ends(expr)
        dtype = dtype or "int64"
        if ends is None or dtype not in WHOLE or not all(map(self._is_number, sizes)):
            return None
        same = len(ends) == 1 and ast.unparse(ends[0]) in map(ast.unparse, sizes)
        if not same and not goes_up(self.script, ends):
            return None  # a negative number is an error of torch, as it is of a size
        if any(n > EXACT for n in consts(self.script.values(ends[-1])) or ()):
            return None
        given = ", ".join(map(self._hole, ends))
        row = self._factory("arange", given, dtype, "int64")
        return f"{row}.view({', '.join(map(self._hole, sizes))})" if sizes else row

    def _ends(self, expr: ast.expr) -> list[ast.expr] | None:
        """``n`` of ``np.arange(n)`` or ``np.array(range(n))``"""
        match expr:
            case ast.Call(
                args=[ast.Call(args=[_] | [_, _] as ends, keywords=[]) as counted], keywords=[]
            ) if self.script.is_call(expr, "numpy.array", "numpy.asarray") and self.script.is_call(
                counted, "builtins.range"
            ):
                return ends
            case ast.Call(args=[_] | [_, _] as ends, keywords=[]) if self.script.is_call(
                expr, "numpy.arange"
            ):
                return ends  # a fraction is none of the sizes, and nothing that goes up
        return None

    def gives_indices(self, expr: ast.expr) -> bool:
        """Whether an array holds whole numbers that are drawn of a range."""
        drawn = any(self.script.is_call(n, "numpy.random.randint") for n in ast.walk(expr))
        return drawn and self._own(expr) == "int64"

    def _own(self, expr: ast.expr) -> str:
        """The dtype of an array as NumPy makes it; empty where that is not known, or where what is
        computed of it wraps."""
        match expr:
            case ast.Call(func=ast.Attribute(attr="astype"), args=[said], keywords=[]):
                return dtype_named(self.script, said)
            case ast.Call(args=[inner, *_]) if self.script.library_function(expr) in TRIANGLES:
                return self._own(inner)
            case ast.Call() if made := MADE.get(self.script.library_function(expr)):
                asked = (_given(expr, made) or {}).get("dtype")
                return dtype_named(self.script, asked) if asked is not None else made.dtype
            case ast.Compare():
                return "bool"
            case ast.BinOp(left=left, op=sign, right=right):
                array, number = (right, left) if self._is_number(left) else (left, right)
                return self._combined(self._own(array), sign, number)
        return ""

    def _combined(self, own: str, sign: ast.operator, number: ast.expr) -> str:
        """The dtype of an array of ``own`` with a number of Python, or maybe one of NumPy."""
        values = self.script.values(number)
        found, of_python = consts(values), certainly(values, Const, Arg, Setting)
        if own == "float64" or (own == "float32" and of_python):
            return own
        if own in ("int64", "bool"):
            if type(sign) is ast.Div or (found and all(type(n) is float for n in found)):
                return "float64"
            if found:
                return "int64" if are_whole(found) else ""
        return NUMBER if own in WHOLE | {NUMBER, "bool"} and not found else ""

    def _with_number(self, left: ast.expr, sign: str, right: ast.expr, dtype: str) -> str | None:
        """Numbers that are drawn, with one number."""
        for array, number in ((left, right), (right, left)):
            if dtype in WHOLE and self._is_number(number) and not self._may_be(number, bool):
                code = self.array(array, dtype)
                if self.beyond and sign in "+-":
                    return None  # digits that are lost may be all that a difference has
                if code is not None and self.drawn:
                    sides = (code, self._hole(number))
                    first, second = sides if array is left else sides[::-1]
                    return f"({first} {sign} {second})"
        return None

    def _made(self, call: ast.Call, made: Made, dtype: str) -> str | None:
        given = _given(call, made)
        if given is None:
            return None
        said, numbers = given.get("dtype"), [given.get(n) for n in made.numbers]
        dtype = dtype or (dtype_named(self.script, said) if said is not None else made.dtype)
        known = all(n is None or self._is_number(n) for n in numbers)
        if dtype not in made.fits or not known or not self._is_shape(given["size"]):
            return None
        self.drawn = self.drawn or self.script.is_call(call, *DRAWS)
        if made.name == "randint":
            return self._whole([n for n in numbers if n is not None], given["size"], dtype)
        sizes = self._sizes(given["size"])
        if made.fill == "bernoulli_":
            n, p = numbers
            if n is None or p is None or self.script.constant(n) != 1:
                return None
            return f"{self._factory('empty', sizes, dtype)}.bernoulli_({self._hole(p)})"
        pairs = [*zip(numbers, made.known, strict=True)]
        if all(n is None or self.script.constant(n) == usual for n, usual in pairs):
            return self._factory(made.name, sizes, dtype)
        first, second = (str(usual) if n is None else self._hole(n) for n, usual in pairs)
        if made.fill == "uniform_" and not self._in_order(pairs):
            if numbers[0] is not None and any(nodes_in(numbers[0], ast.Call)):
                return None  # it stands there twice
            drawn = self._factory(made.name, sizes, dtype)
            return f"({first} + ({second} - {first}) * {drawn})"
        return f"{self._factory('empty', sizes, dtype)}.{made.fill}({first}, {second})"

    def _in_order(self, ends: list[tuple[ast.expr | None, int]]) -> bool:
        """Whether the first of two numbers is certainly not above the other one."""
        low, high = ({n} if e is None else consts(self.script.values(e)) for e, n in ends)
        return max(low) <= min(high) if low and high else False

    def _whole(self, ends: list[ast.expr], size: ast.expr, dtype: str) -> str | None:
        """Whole numbers, which are drawn as such where a float may not hold them."""
        if not ends or any(map(self._may_be_fraction, ends)):
            return None
        found = [consts(self.script.values(n)) for n in ends]
        exact = all(f and all(abs(n) <= EXACT for n in f) for f in found)
        shape = self._sizes(size, is_tuple=True)
        given = "".join(f"{self._hole(n)}, " for n in ends) + shape
        if dtype == "int64" or exact:
            return self._factory("randint", given, dtype, "int64")
        self.beyond = True
        return f"{self._factory('randint', given, 'int64', 'int64')}.to({self.torch}.{dtype})"

    def _may_be_fraction(self, expr: ast.expr) -> bool:
        """NumPy cuts the ends of a range off to whole numbers, torch takes no others."""
        made = self.script.analysis(Flow).value(expr) or expr
        divided = any(is_operation(n, ast.Div) for n in ast.walk(made))
        return divided or self._may_be(expr, float, bool)

    def _may_be(self, expr: ast.expr, *kinds: type) -> bool:
        """Whether it may be a constant, or the default of an option, of these types."""
        found = self.script.values(expr)
        things = (t for f in found for t in (f.default if isinstance(f, Arg) else (f,)))
        return any(is_const(t, *kinds) for t in things)

    def _factory(self, name: str, given: str, dtype: str, usual: str = "float32") -> str:
        kind = "" if dtype == usual else f"dtype={self.torch}.{dtype}, "
        return f"{self.torch}.{name}({given}, {kind}device={self.where})"

    def _is_shape(self, size: ast.expr) -> bool:
        """Sizes that are written out, those of a tensor, a number or a tuple."""
        found = self.script.values(size)
        of_a_tensor = is_attribute(size, "shape") or is_method(size, "size")
        written = isinstance(size, SEQUENCES) and size.elts
        return bool(written or of_a_tensor) or surely(
            isinstance(t, Seq) or is_one_number(t) or isinstance(const(frozenset({t})), tuple)
            for t in found
        )

    def _is_number(self, expr: ast.expr) -> bool:
        return surely(map(is_one_number, self.script.values(expr)))

    def _sizes(self, size: ast.expr, is_tuple: bool = False) -> str:
        """A shape as arguments of a factory, or as one."""
        if not isinstance(size, SEQUENCES):
            whole = self._hole(size)
            single = is_tuple and self._is_number(size)
            return f"({whole},)" if single else whole
        sizes = ", ".join(map(self._hole, size.elts))
        return f"({sizes}{',' * (len(size.elts) < 2)})" if is_tuple else sizes

    def _hole(self, expr: ast.expr) -> str:
        """A part of the script in the new code."""
        name = f"n{len(self.holes)}"
        self.holes[name] = unstarred(expr)
        return f"{'*' * (self.holes[name] is not expr)}{{{name}}}"


def _given(call: ast.Call, made: Made) -> dict[str, ast.expr] | None:
    """What a function of NumPy is given, by name; ``size`` is the shape, which has to be there."""
    if made.by_sides:
        sizes = ast.Tuple(call.args, ast.Load())
        return {"size": sizes} if call.args and not call.keywords else None
    names = (*made.numbers, "size", "dtype")
    if any(unstarred(a) is not a for a in call.args) or len(call.args) > len(names):
        return None
    given = dict(zip(names, call.args, strict=False))
    for keyword in call.keywords:
        name = "size" if keyword.arg == "shape" else keyword.arg
        if name is None or name not in names or name in given:
            return None
        given[name] = keyword.value
    return given if "size" in given else None
