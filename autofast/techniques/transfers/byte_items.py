"""Floats that items of a dataset are made into at their very end: from which bytes, and by which operations on each number."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from autofast.edit.edits import DropKeyword, Edit, Remove, Rewrite
from autofast.facts.byte_values import is_bytes, is_picture
from autofast.flow.program import Flow
from autofast.flow.reflection import shows_names
from autofast.model.script import Script
from autofast.model.source import function_of, live, statement_of
from autofast.model.values import Ref, Tensor, const, library_name
from autofast.rule import Refusal

Key = int | str | None  # of a tuple, of a dict; None: an item is nothing else

SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
METHODS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
LAYOUT = frozenset("permute transpose contiguous unsqueeze squeeze view reshape flip".split())
LAID_OUT = frozenset(f"numpy.{n}" for n in ("transpose", "moveaxis", "ascontiguousarray"))
SINGLE = frozenset({"torch.float32", "torch.float", "numpy.float32"})
SHARING = frozenset({"torch.from_numpy", "torch.as_tensor", "torch.tensor"})
TYPED = frozenset({"torch.tensor", "numpy.array", "numpy.asarray"})
CAST = ".float()"


@dataclass(frozen=True)
class Operation:
    """On each number: ``.float()`` or ``/ 255``. ``node`` is the expression, ``inner`` what it is done to, an array or a tensor."""

    node: ast.expr
    inner: ast.expr
    text: str
    array: bool
    keyword: bool = False  # the cast is a ``dtype=``
    own: bool = False  # the array has just been made, in memory of its own


@dataclass
class Floats:
    """A part of the items of a dataset: its ``key``, the outermost conversion, and all of them, the last one first."""

    key: Key
    node: ast.expr
    found: list[Operation] = field(default_factory=list)

    @property
    def template(self) -> str:
        """The operations on a batch, ``{}``; the cast comes first, whatever the host did in double precision before it."""
        texts = [o.text for o in reversed(self.found)]
        if texts[0] != CAST and self.found[-1].array:
            texts = [CAST, *(t for t in texts if t != CAST)]
        made, low, plain = "{}", False, True
        for text in texts:
            if text == CAST:
                made, low, plain = made + text if plain else f"({made}){text}", False, True
            else:
                made = f"({made}) {text}" if low and text[0] in "*/" else f"{made} {text}"
                low, plain = text[0] in "+-", False
        return made

    @property
    def edits(self) -> Iterator[Edit]:
        """Leave the bytes as they are, in memory of their own where an array was cast: it may lie backwards, or be read-only."""
        runs: list[list[Operation]] = []
        for before, operation in pairwise([None, *self.found]):
            assert operation is not None
            joined = before is not None and before.inner is operation.node
            if joined and before is not None and not (before.keyword or operation.keyword):
                runs[-1].append(operation)
            else:
                runs.append([operation])
        for run in runs:
            yield from _edit(run)


def _edit(run: list[Operation]) -> Iterator[Edit]:
    node, inner = run[0].node, run[-1].inner
    statement = statement_of(node)
    if run[0].keyword:
        assert isinstance(node, ast.Call)
        yield DropKeyword(node, "dtype")
        if run[0].array and ast.unparse(node.func).endswith("asarray"):  # which may be read-only
            yield Rewrite(node.func, ast.unparse(node.func).removesuffix("asarray") + "array")
    elif run[-1].array and not run[-1].own:  # as ``astype`` lays it out
        yield Rewrite(node, '{inner}.copy(order="K")', {"inner": inner})
    elif (
        isinstance(statement, ast.Assign)
        and statement.value is node
        and isinstance(inner, ast.Name)
        and isinstance(statement.targets[0], ast.Name)
        and statement.targets[0].id == inner.id
    ):
        yield Remove(statement)
    else:
        yield Rewrite(node, "{inner}", {"inner": inner})


def floats_of(script: Script, getitem: ast.FunctionDef) -> Floats | None:
    """The part of the items that is made of bytes at their end; None where there is none. Raises :class:`Refusal` where it may be other than bytes."""
    value = returned(getitem)
    if value is None:
        return None
    parts = [Floats(key, part) for key, part in parts_of(value)]
    ends = [(floats, _down(script, floats, getitem)) for floats in parts]
    made = [
        (floats, base)
        for floats, base in ends
        if floats.found
        and (any(o.text == CAST for o in floats.found) or not floats.found[-1].array)
    ]
    sure = [f for f, base in made if is_bytes(script, base) or is_picture(script, base)]
    for floats, base in made:
        if not sure and any(o.text.startswith("/ 255") for o in floats.found):
            raise Refusal(f"it is not certain that `{ast.unparse(base)[:60]}` holds bytes")
    return sure[0] if len(sure) == 1 else None


def returned(getitem: ast.FunctionDef) -> ast.expr | None:
    """What a plain ``__getitem__`` gives, where that stands in one place."""
    returns = [n for n in live(getitem) if isinstance(n, ast.Return)]
    if len(returns) != 1 or returns[0] is not getitem.body[-1]:
        return None
    return None if getitem.decorator_list or shows_names(getitem) else returns[0].value


def parts_of(value: ast.expr) -> list[tuple[Key, ast.expr]]:
    """What an item is made of, by their keys."""
    if isinstance(value, ast.Tuple):
        return list(enumerate(value.elts))
    if isinstance(value, ast.Dict):
        keys = [const_of(k) for k in value.keys]
        return [(k, v) for k, v in zip(keys, value.values, strict=True) if isinstance(k, str)]
    return [(None, value)]


def const_of(expr: ast.AST | None) -> object:
    """What is written out."""
    return expr.value if isinstance(expr, ast.Constant) else None


def _down(script: Script, floats: Floats, getitem: ast.FunctionDef) -> ast.expr:
    """Collects the operations from the outside to what they begin with, which it gives."""
    expr = floats.node
    while not is_bytes(script, expr):
        operation = _operation(script, expr)
        if operation is not None and not operation.keyword and is_picture(script, operation.inner):
            break  # ``np.float32(picture)``
        inner = operation.inner if operation is not None else _same_numbers(script, expr, getitem)
        if operation is not None:
            if not floats.found:
                floats.node = expr
            floats.found.append(operation)
        if inner is None:
            break
        expr = inner
    return expr


def _operation(script: Script, expr: ast.expr) -> Operation | None:
    """The operation on each number that ``expr`` is, if it is one."""

    def made(inner: ast.expr, text: str) -> Operation:
        array = not any(isinstance(t, Tensor) for t in script.values(inner))
        return Operation(expr, inner, text, array, own=_is_made(script, inner))

    match expr:
        case ast.BinOp(left=inner, op=op, right=number) if type(op) in SIGNS and _number(number):
            return made(inner, f"{SIGNS[type(op)]} {ast.unparse(number)}")
        case ast.Call(func=ast.Attribute(value=inner, attr="float"), args=[], keywords=[]):
            return made(inner, CAST)
        case ast.Call(func=ast.Attribute(value=inner, attr=attr), args=[given], keywords=[]):
            if attr in METHODS and _number(given):
                return made(inner, f"{METHODS[attr]} {ast.unparse(given)}")
            if attr in ("to", "type", "astype") and _is_single(script, given):
                return made(inner, CAST)
            if library_name(script.values(expr.func)) == "numpy.float32":
                return made(given, CAST)
        case ast.Call(args=[given], keywords=[ast.keyword(arg="dtype", value=kind)]):
            name = library_name(script.values(expr.func))
            spelled = name != "numpy.asarray" or isinstance(expr.func, ast.Attribute)
            if name in TYPED and spelled and _is_single(script, kind):
                return Operation(expr, given, CAST, name != "torch.tensor", keyword=True)
    return None


def _is_made(script: Script, expr: ast.expr) -> bool:
    """Whether it is what ``numpy.array(picture)`` gives; ``asarray`` with a type becomes that."""
    if isinstance(expr, ast.Name):
        found = list(script.analysis(Flow).reaching(expr))
        return (
            len(found) == 1
            and isinstance(found[0].value, ast.Call)
            and _is_made(script, found[0].value)
        )
    if not isinstance(expr, ast.Call):
        return False
    name = library_name(script.values(expr.func))
    return name == "numpy.array" or (name == "numpy.asarray" and bool(expr.keywords))


def _same_numbers(script: Script, expr: ast.expr, getitem: ast.FunctionDef) -> ast.expr | None:
    """What has the same numbers, perhaps in another order, and is used for nothing else."""
    match expr:
        case ast.Name():
            flow = script.analysis(Flow)
            found = list(flow.reaching(expr))
            if len(found) != 1 or function_of(found[0].node) is not getitem:
                return None
            if [n for n in flow.definitions(expr).uses(found[0]) if n is not expr]:
                return None
            return found[0].value
        case ast.Call(args=[given, *_]) if isinstance(expr.func, ast.Attribute):
            name = library_name(script.values(expr.func))
            if name in LAID_OUT or (name in SHARING and len(expr.args) == 1 and not expr.keywords):
                return given
    match expr:
        case ast.Call(func=ast.Attribute(value=inner, attr=attr)) if attr in LAYOUT:
            return None if isinstance(_first(script, expr.func), Ref) else inner
    return None


def _number(expr: ast.expr) -> bool:
    """A number that is written out."""
    inner = expr.operand if isinstance(expr, ast.UnaryOp) else expr
    return isinstance(inner, ast.Constant) and type(inner.value) in (int, float)


def _is_single(script: Script, expr: ast.expr) -> bool:
    found = _first(script, expr)
    return (isinstance(found, Ref) and found.name in SINGLE) or const(
        script.values(expr)
    ) == "float32"


def _first(script: Script, expr: ast.expr) -> object:
    found = script.values(expr)
    return next(iter(found)) if len(found) == 1 else None
