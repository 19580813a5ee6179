"""Arrays that NumPy draws or fills for a tensor, and what makes the same with torch, where the
tensor is wanted: ``torch.randn(n, m, device=...)`` for ``torch.from_numpy(np.random.randn(n, m))``.
"""

from __future__ import annotations

import ast
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
    unstarred,
    variable_name,
)
from autofast.model.script import Script
from autofast.model.several import surely, wordset
from autofast.model.source import (
    block_of,
    function_of,
    is_same_function,
    nodes_in,
    parent_of,
    source_of,
    statement_of,
)
from autofast.model.syntax import SEQUENCES, is_attribute, is_read
from autofast.model.tensors import is_one_number
from autofast.model.values import Seq, const
from autofast.ops.families import COMPARED, SIGNS
from autofast.write.spelling import torch_in

FLOATS = wordset("float32 float64")
WHOLE = FLOATS | {"int64"}
TYPES = WHOLE | wordset("int32 uint8 bool")


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
        if cast is None and script.is_call(made, "numpy.random.randint") and not dtype:
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
                code = self._with_number(left, COMPARED[type(sign)], right, "float32")
                cast = code is not None and dtype not in ("", "bool")
                return f"{code}.to({self.torch}.{dtype})" if cast else code
            case ast.BinOp(left=left, op=sign, right=right) if type(sign) in SIGNS:
                kind = dtype or "float64"
                return self._with_number(left, SIGNS[type(sign)], right, kind)
            case ast.Call(args=[inner, *rest], keywords=named) if (
                name := TRIANGLES.get(self.script.library_function(expr))
            ):
                rest += (k.value for k in named if k.arg == "k")
                code = self.array(inner, dtype)
                if code is None or len(rest) > 1 or len(named) > len(rest):
                    return None
                diagonal = "".join(f", diagonal={self._hole(k)}" for k in rest)
                return f"{self.torch}.{name}({code}{diagonal})"
            case ast.Call() if made := MADE.get(self.script.library_function(expr)):
                return self._made(expr, made, dtype)
        return None

    def _with_number(self, left: ast.expr, sign: str, right: ast.expr, dtype: str) -> str | None:
        """Fractions that are drawn, with one number."""
        for array, number in ((left, right), (right, left)):
            if dtype in FLOATS and self._is_number(number):
                code = self.array(array, dtype)
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
            ends = "".join(f"{self._hole(n)}, " for n in numbers if n is not None)
            shape = self._sizes(given["size"], is_tuple=True)
            return self._factory("randint", f"{ends}{shape}", dtype, "int64") if ends else None
        sizes = self._sizes(given["size"])
        if made.fill == "bernoulli_":
            n, p = numbers
            if n is None or p is None or self.script.constant(n) != 1:
                return None
            return f"{self._factory('empty', sizes, dtype)}.bernoulli_({self._hole(p)})"
        pairs = [*zip(numbers, made.known, strict=True)]
        if all(n is None or self.script.constant(n) == usual for n, usual in pairs):
            return self._factory(made.name, sizes, dtype)
        ends = ", ".join(str(usual) if n is None else self._hole(n) for n, usual in pairs)
        return f"{self._factory('empty', sizes, dtype)}.{made.fill}({ends})"

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
