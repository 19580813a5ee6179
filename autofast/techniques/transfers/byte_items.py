"""Floats that items of a dataset are made into at their very end: from which bytes, and by which
operations on each number.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from autofast.edit.edits import DropKeyword, Edit, Remove, Rewrite
from autofast.facts.arrays import Channels, by_channel
from autofast.facts.byte_values import LAYOUT, is_bytes, is_picture
from autofast.flow.program import Flow
from autofast.flow.reflection import showing
from autofast.model.calls import is_method, is_name, literal_of, spread_out
from autofast.model.script import Loader, Script
from autofast.model.source import at, function_of, live, statement_of
from autofast.model.syntax import is_number
from autofast.model.values import Func, Inst, Ref, Tensor, Thing, const, one
from autofast.ops.families import ARITHMETIC, SIGNS
from autofast.rule import Refusal

Constants = tuple[Channels, Channels]
Key = int | str | None  # of a tuple, of a dict; None: an item is nothing else
KEPT = frozenset({"contiguous", "copy", "clone"})
LAID_OUT = frozenset(f"numpy.{n}" for n in ("transpose", "moveaxis", "ascontiguousarray"))
SINGLE = frozenset({"torch.float32", "torch.float", "numpy.float32"})
SHARING = frozenset({"torch.from_numpy", "torch.as_tensor", "torch.tensor"})
TYPED = frozenset({"torch.tensor", "numpy.array", "numpy.asarray"})
CAST = ".float()"
MEAN, STD = "<mean>", "<std>"  # of channels, which are constants of the project
TO_FRONT = (2, 0, 1)  # (height, width, channels) to (channels, height, width)


@dataclass(frozen=True, eq=False)
class Items:
    """Items whose part ``key`` is to be given as bytes: of datasets of the project with one of
    ``getitems``, and of ``sets`` of a library.

    ``transforms`` make them; ``calls``: where the project's code calls these.
    """

    key: Key
    getitems: tuple[ast.FunctionDef, ...]
    sets: tuple[Thing, ...] = ()
    transforms: tuple[Thing, ...] = ()
    calls: tuple[ast.Call, ...] = ()

    def come_from(self, thing: Thing) -> bool:
        """Whether it is a dataset that gives them."""
        if isinstance(thing, Inst):
            made = thing.cls.find("__getitem__") or ()
            return any(isinstance(f, Func) and f.node is g for f in made for g in self.getitems)
        return any(thing is x for x in self.sets)


@dataclass(frozen=True)
class Operation:
    """On each number: ``.float()`` or ``/ 255``. ``node`` is the expression, ``inner`` what it is
    done to, an array or a tensor.
    """

    node: ast.expr
    inner: ast.expr
    text: str
    array: bool
    keyword: bool = False  # the cast is a ``dtype=``
    own: bool = False  # the array has just been made, in memory of its own
    channels: Channels | None = None  # in place of a number in the text


@dataclass
class Floats:
    """A part of the items of a dataset: its ``key``, the outermost conversion, and all of them, the
    last one first.

    ``why``: the reason for which it has to stay, if there is one.
    """

    key: Key
    node: ast.AST
    getitem: ast.FunctionDef
    found: list[Operation] = field(default_factory=list)
    why: str = ""

    @property
    def items(self) -> Items:
        return Items(self.key, (self.getitem,))

    @property
    def constants(self) -> Constants | None:
        """Mean and deviation of the channels; None where there are none."""
        means, stds = (
            [o.channels for o in self.found if o.channels and o.text.endswith(n)]
            for n in (MEAN, STD)
        )
        return (means[0], stds[0]) if len(means) == len(stds) == 1 else None

    def template(self, mean: str, std: str) -> str:
        """The operations on a batch, ``{}``; the cast comes first, whatever the host did in double
        precision before it.
        """
        texts = [o.text.replace(MEAN, mean).replace(STD, std) for o in reversed(self.found)]
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

    def edits(self, script: Script) -> Iterator[Edit]:
        """Leave the bytes as they are, in memory of their own where an array was cast: it may lie
        backwards, or be read-only.
        """
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
        and is_name(statement.targets[0], inner.id)
    ):
        yield Remove(statement)
    else:
        yield Rewrite(node, "{inner}", {"inner": inner})


def made_of_bytes(script: Script, loaders: Sequence[Loader]) -> Iterator[Floats]:
    """What the items of ``loaders`` that the project's code makes of bytes end in."""
    seen: dict[int, ast.FunctionDef] = {}
    for dataset in (d for x in loaders for d in x.datasets):
        if dataset.kind == "project" and dataset.getitem is not None:
            seen[id(dataset.getitem)] = dataset.getitem
    for getitem in seen.values():
        try:
            if (floats := floats_of(script, getitem)) is not None:
                yield floats
        except Refusal as why:
            yield Floats(None, getitem.body[-1], getitem, why=str(why))


def floats_of(script: Script, getitem: ast.FunctionDef) -> Floats | None:
    """The part of the items that is made of bytes at their end; None where there is none. Raises
    :class:`Refusal` where it may be other than bytes.
    """
    value = returned(getitem)
    if value is None:
        return None
    parts = [(Floats(key, part, getitem), part) for key, part in parts_of(value)]
    ends = [(floats, _down(script, floats, part)) for floats, part in parts]
    made = [
        (floats, base)
        for floats, base in ends
        if floats.found
        and (any(o.text == CAST for o in floats.found) or not floats.found[-1].array)
    ]
    for floats, _ in made:  # mean and deviation come together, or are arithmetic that is not moved
        if any(o.channels for o in floats.found) and floats.constants is None:
            return None
        if (wrapped := _in_bytes(floats.found)) is not None:
            raise Refusal(f"{at(wrapped)} computes in bytes, where 10 - 128 is 138")
    sure = [f for f, base in made if is_bytes(script, base) or is_picture(script, base)]
    for floats, base in made:
        if not sure and any(o.text.startswith("/ 255") for o in floats.found):
            said = f"`{ast.unparse(base)[:60]}` holds bytes"
            raise Refusal(
                f"it is not certain that {said}: a cast to uint8 where it is read would say so"
            )
    return sure[0] if len(sure) == 1 else None


def _in_bytes(found: Sequence[Operation]) -> ast.expr | None:
    """An operation with a whole number that comes before any that makes floats: it wraps around."""
    for operation in reversed(found):
        if operation.text == CAST or operation.text[0] == "/" or operation.channels:
            return None
        if "." in operation.text or "e" in operation.text:
            return None
        return operation.node
    return None


def returned(getitem: ast.FunctionDef) -> ast.expr | None:
    """What a plain ``__getitem__`` gives, where that stands in one place."""
    match [n for n in live(getitem) if isinstance(n, ast.Return)]:
        case [only] if only is getitem.body[-1] and not getitem.decorator_list:
            return None if showing(getitem) else only.value
    return None


def parts_of(value: ast.expr) -> list[tuple[Key, ast.expr]]:
    """What an item is made of, by their keys."""
    match value:
        case ast.Tuple(elts=elts):
            return list(enumerate(elts))
        case ast.Dict(keys=keys, values=values):
            pairs = zip(map(literal_of, keys), values, strict=True)
            return [(k, v) for k, v in pairs if isinstance(k, str)]
    return [(None, value)]


def _down(script: Script, floats: Floats, part: ast.expr) -> ast.expr:
    """Collects the operations from the outside to what they begin with, which it gives."""
    expr, layouts = part, list[ast.expr]()
    while not is_bytes(script, expr):
        operation = _operation(script, expr) or _by_channel(script, expr, layouts)
        if operation is not None and not operation.keyword and is_picture(script, operation.inner):
            break  # ``np.float32(picture)``
        inner = (
            operation.inner
            if operation is not None
            else _same_numbers(script, expr, floats.getitem)
        )
        if operation is not None:
            if not floats.found:
                floats.node = expr
            floats.found.append(operation)
        elif inner is not None and isinstance(expr, ast.Call):
            layouts.append(expr)
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
        case ast.BinOp(left=inner, op=op, right=number) if type(op) in SIGNS and is_number(number):
            return made(inner, f"{SIGNS[type(op)]} {ast.unparse(number)}")
        case ast.Call(func=ast.Attribute(value=inner, attr="float"), args=[], keywords=[]):
            return made(inner, CAST)
        case ast.Call(func=ast.Attribute(value=inner, attr=attr), args=[given], keywords=[]):
            if attr in ARITHMETIC and is_number(given):
                return made(inner, f"{ARITHMETIC[attr]} {ast.unparse(given)}")
            if attr in ("to", "type", "astype") and _is_single(script, given):
                return made(inner, CAST)
            if script.is_call(expr, "numpy.float32"):
                return made(given, CAST)
        case ast.Call(args=[given], keywords=[ast.keyword(arg="dtype", value=kind)]):
            name = script.library_function(expr)
            spelled = name != "numpy.asarray" or is_method(expr)
            if name in TYPED and spelled and _is_single(script, kind):
                return Operation(expr, given, CAST, name != "torch.tensor", keyword=True)
    return None


def _by_channel(script: Script, expr: ast.expr, layouts: Sequence[ast.expr]) -> Operation | None:
    """``- MEAN`` or ``/ STD``, of which each channel has its own number; ``layouts`` are done to it
    after that.
    """
    match expr:
        case ast.BinOp(left=inner, op=ast.Sub() | ast.Div() as op, right=other):
            found = by_channel(script, other)
            turns = [n for n in layouts if not _keeps_order(script, n)]
            front = len(turns) == 1 and _turned(script, turns[0]) == TO_FRONT
            if found is None or not (not turns if found.first else front):
                return None
            text = f"- {MEAN}" if isinstance(op, ast.Sub) else f"/ {STD}"
            array = not any(isinstance(t, Tensor) for t in script.values(inner))
            return Operation(expr, inner, text, array, channels=found)
    return None


def _keeps_order(script: Script, call: ast.expr) -> bool:
    name = script.library_function(call)
    method = getattr(getattr(call, "func", None), "attr", "")
    return name in SHARING | {"numpy.ascontiguousarray"} or (not name and method in KEPT)


def _turned(script: Script, call: ast.expr) -> tuple[object, ...]:
    """The order of dimensions in ``image.transpose(2, 0, 1)`` and ``np.transpose(image, (2, 0,
    1))``.
    """
    match call:
        case ast.Call(func=ast.Attribute(attr="transpose" | "permute"), args=args, keywords=[]):
            given = args[1:] if script.library_function(call) else args
            return tuple(const(script.values(e)) for e in spread_out(given))
    return ()


def _is_made(script: Script, expr: ast.expr) -> bool:
    """Whether it is what ``numpy.array(picture)`` gives; ``asarray`` with a type becomes that."""
    made = script.analysis(Flow).value(expr) or expr
    typed = bool(getattr(made, "keywords", ()))
    return script.is_call(made, "numpy.array") or (script.is_call(made, "numpy.asarray") and typed)


def _same_numbers(script: Script, expr: ast.expr, getitem: ast.FunctionDef) -> ast.expr | None:
    """What has the same numbers, perhaps in another order, and is used for nothing else."""
    match expr:
        case ast.Name():
            flow = script.analysis(Flow)
            found = flow.definition(expr)
            if found is None or function_of(found.node) is not getitem:
                return None
            if [n for n in flow.definitions(expr).uses(found) if n is not expr]:
                return None
            return found.value
        case ast.Call(func=ast.Attribute(), args=[given, *_]):
            name = script.library_function(expr)
            if name in LAID_OUT or (name in SHARING and len(expr.args) == 1 and not expr.keywords):
                return given
    match expr:
        case ast.Call(func=ast.Attribute(value=inner, attr=attr)) if attr in LAYOUT:
            return None if isinstance(one(script.values(expr.func)), Ref) else inner
    return None


def _is_single(script: Script, expr: ast.expr) -> bool:
    found = one(script.values(expr))
    return (isinstance(found, Ref) and found.name in SINGLE) or const(
        script.values(expr)
    ) == "float32"
