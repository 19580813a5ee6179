"""How many dimensions a tensor has, by how it is made and brought into shape."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from autofast.facts.attribute_values import attribute_values
from autofast.facts.makers import ANY, Makers
from autofast.facts.rowwise import Rowwise
from autofast.flow.callgraph import CallGraph
from autofast.flow.defuse import Definition, taken_by
from autofast.flow.program import Flow, definitions_at, definitions_of, graph_of
from autofast.model.calls import (
    has_unpacking,
    is_method,
    items_of,
    keyword_of,
    literal_of,
    may_give,
)
from autofast.model.names import last_part
from autofast.model.script import Script
from autofast.model.several import surely, wordset
from autofast.model.source import function_of, parent_of, statement_of
from autofast.model.syntax import SEQUENCES, has_star, is_attribute, is_constant, is_text
from autofast.model.tensors import SHAPE
from autofast.model.values import (
    Const,
    Ext,
    Num,
    Seq,
    Tensor,
    are_numbers,
    certainly,
    is_named,
    of_kind,
)
from autofast.ops import is_pointwise
from autofast.ops.families import CELLS, RECURRENT

SIZED = wordset("view reshape permute")  # methods that are given each dimension
SAME = wordset("""transpose contiguous to bool float long int short type logical_not clone detach cuda cpu swapaxes swapdims
    numpy astype copy""")
GROWING = wordset("expand masked_fill eq ne")  # by what they are given
SHAPED = wordset("ones zeros full rand randn empty randint", "torch.")
NEW = wordset("new_zeros new_ones new_empty")
# As their last argument: the state that a step goes on with.
STEPS = frozenset(f"torch.nn.{layer}" for layer in (*CELLS, "Dropout"))
LAYERS = frozenset(f"torch.nn.{layer}" for layer in RECURRENT)
# Of so many dimensions, behind channels (``torch.nn.Conv2d``, ``torch.nn.functional.avg_pool2d``).
SPATIAL = re.compile(
    r"torch\.nn\.(?:functional\.)?(?:lazy|adaptive)?_?(?:conv(?:_?transpose)?|(?:avg|max|lp)_?pool|batch_?norm"
    r"|instance_?norm)_?([123])d",
    re.IGNORECASE,
)
EXTREMES = wordset("torch.max torch.min .max .min")  # of two tensors, place by place
REDUCES = wordset("mean sum prod amax amin logsumexp")
# Their sizes come together, behind other arguments or in front of them.
OF_SHAPES = wordset("torch.randint torch.full torch.normal")
MATRICES = wordset("torch.mm torch.addmm torch.eye")
TRIANGLES = wordset("tril triu")
VECTORS = wordset("torch.arange torch.linspace torch.randperm numpy.arange")
FILES = wordset("numpy.memmap numpy.fromfile numpy.frombuffer")  # rows of numbers
# As their argument.
MADE = wordset(
    "torch.tensor torch.as_tensor torch.LongTensor torch.from_numpy numpy.array numpy.asarray"
)
DEEPEST = 8
Way = tuple[ast.expr, ...]  # the expressions that are being asked for


@dataclass(frozen=True)
class Dimensions:
    """At least, and at most (None: nothing shows it)."""

    least: int = 0
    most: int | None = None


UNKNOWN = Dimensions()


def dimension_count(script: Script, expr: ast.expr) -> int | None:
    """The number of dimensions; None where it does not show, or is not always the same."""
    found = _possible(script, expr, ())
    (one,) = found if len(found) == 1 else (UNKNOWN,)
    return one.least if one.least == one.most else None


def least_dimensions(script: Script, expr: ast.expr) -> int:
    """How many dimensions a tensor has at the least; 0 where nothing shows it."""
    return min((d.least for d in _possible(script, expr, ())), default=0)


def may_be_vector(script: Script, expr: ast.expr) -> bool:
    """Whether one of the ways to make it gives one dimension."""
    return any(d.least == d.most == 1 for d in _possible(script, expr, ()))


def _possible(script: Script, expr: ast.expr, way: Way) -> frozenset[Dimensions]:
    """One for each way in which the value may be made."""
    if expr in way:
        return frozenset()  # made of itself, in a loop: what else it is made of decides
    if len(way) > DEEPEST:
        return frozenset({UNKNOWN})
    way = (*way, expr)
    ways: set[Dimensions] = set()
    match expr:
        case ast.Name():
            for definition in definitions_at(script, expr):
                ways |= _of_definition(script, definition, way)
            if sides := _sides_unpacked(script, expr):
                ways = {Dimensions(sides, sides)}
        case ast.Attribute():
            graph = script.analysis(CallGraph)
            got = [r for getter in graph.entered(expr) for r in graph.results(getter)]
            for made in (*attribute_values(script, expr), *got):
                ways |= _possible(script, made, way)
        case ast.BinOp(left=a, right=b) | ast.Compare(left=a, comparators=[b]):
            ways = {
                _broadcast(one, other)
                for one in _operand(script, a, way)
                for other in _operand(script, b, way)
            }
        case ast.Constant(value=None):
            return frozenset()  # no tensor
        case ast.UnaryOp(operand=a):
            ways = {*_possible(script, a, way)}
        case ast.IfExp(body=a, orelse=b):
            ways = {*_possible(script, a, way), *_possible(script, b, way)}
        case ast.Subscript(slice=cut) if is_text(cut):
            for made in script.analysis(Makers).all(expr):
                ways |= _possible(script, made, way)
        case ast.Subscript(value=value, slice=cut):
            ways = {_cut(script, d, cut) for d in _possible(script, value, way)}
        case ast.Call():
            ways = _of_call(script, expr, way)
            if not ways:
                return frozenset()
    if ways - {UNKNOWN}:
        return frozenset(ways)
    batch = any(t.batch for t in of_kind(script.values(expr), Tensor))
    return frozenset({Dimensions(1) if batch else UNKNOWN})


def _operand(script: Script, expr: ast.expr, way: Way) -> frozenset[Dimensions]:
    """The same for one side of an operation, where a number has no dimensions."""
    if certainly(script.values(expr), Num, Const):
        return frozenset({Dimensions(0, 0)})
    return _possible(script, expr, way)


def _broadcast(one: Dimensions, other: Dimensions) -> Dimensions:
    most = max(one.most, other.most) if one.most is not None and other.most is not None else None
    return Dimensions(max(one.least, other.least), most)


def _of_definition(
    script: Script, definition: Definition, way: Way
) -> frozenset[Dimensions] | set[Dimensions]:
    """The same for what a definition gives its variable."""
    if definition.value is not None:
        return _possible(script, definition.value, way)
    taker, place = taken_by(definition.node)
    match taker:
        case ast.Assign(value=ast.Call(args=[first, *_]) as call):
            if place == [0] and surely(is_named(t, Ext, LAYERS) for t in script.called(call)):
                return {*_possible(script, first, way)}
            if surely(is_named(t, Ext, STEPS) for t in script.called(call)):
                return {*_possible(script, call, way)}
    function = function_of(definition.node)
    if not definition.is_parameter or isinstance(function, ast.Module):
        return {UNKNOWN}
    found: set[Dimensions] = set()
    for call, argument in script.analysis(CallGraph).arguments(function, definition.name):
        if argument is not None:
            found |= _possible(script, argument, way)
        elif has_unpacking(call):
            found.add(UNKNOWN)  # else the default, which is no tensor
    return found


def _sides_unpacked(script: Script, name: ast.Name) -> int | None:
    """3 where ``b, t, f = x.shape`` ran before."""
    definitions, graph = definitions_of(script, name), graph_of(script, name)
    for use in (u for d in definitions.reaching(name) for u in definitions.uses(d)):
        asked = parent_of(use)
        outer = parent_of(asked) if asked is not None else None
        if is_attribute(asked, "size") and is_method(outer) and not outer.args:
            asked, outer = outer, parent_of(outer)
        match outer:
            case ast.Assign(targets=[ast.Tuple(elts=sides)], value=value) as unpacks if (
                value is asked
                and (is_attribute(asked, "shape") or isinstance(asked, ast.Call))
                and not has_star(sides)
                and definitions.reaching(use) == definitions.reaching(name)
                and graph.dominates(unpacks, statement_of(name))
            ):
                return len(sides)
    return None


def _is_turn(script: Script, index: ast.expr) -> bool:
    """Whether it counts the turns of a loop."""
    made = script.analysis(Flow).definition(index)
    taker, _ = taken_by(made.node) if made is not None else (None, [])
    return isinstance(taker, ast.For) and script.is_call(taker.iter, "builtins.range")


def _cut(script: Script, whole: Dimensions, cut: ast.expr) -> Dimensions:
    """What is left of a tensor by ``[:, None, :n]``; an index of unknown kind may be a tensor with
    dimensions of its own.
    """
    parts = items_of(cut)
    new = sum(is_constant(p, None) for p in parts)
    kept = sum(isinstance(p, ast.Slice) for p in parts)
    if kept == len(parts):
        return Dimensions(max(kept, whole.least), whole.most)
    turns = [p for p in parts if _is_turn(script, p)]
    if not (new or turns) or not all(
        isinstance(p, (ast.Slice, ast.Constant)) or p in turns for p in parts
    ):
        return Dimensions(new + kept)
    more = new - (len(parts) - new - kept)
    return Dimensions(max(new + kept, whole.least + more), whole.most and whole.most + more)


def sizes(script: Script, call: ast.Call) -> list[ast.expr] | None:
    """The sizes that a function of torch is given for a new tensor, one by one; None where they are
    the shape of something.
    """
    name = script.library_function(call)
    rows = (a for a in call.args if isinstance(a, SEQUENCES))
    shape = keyword_of(call, "size") or next(rows, None)
    if isinstance(shape, SEQUENCES):
        return None if has_star(shape.elts) else shape.elts
    if shape is not None or has_star(call.args) or name in OF_SHAPES:
        return None
    if len(call.args) == 1 and name not in VECTORS:
        found = script.values(call.args[0])
        if not are_numbers(found) or Num(pattern=SHAPE) in found:
            return None
    return call.args


def _of_call(script: Script, call: ast.Call, way: Way) -> set[Dimensions]:
    if (name := script.library_function(call)) in SHAPED:
        asked = sizes(script, call)
        return {UNKNOWN if asked is None else Dimensions(len(asked), len(asked))}
    if name in VECTORS or (name in FILES and _is_plain(call)):
        return {Dimensions(1, 1)}
    if (step := script.analysis(Rowwise).step(call)) is not None:
        return {*_possible(script, step[0], way)}
    names = {name or getattr(t, "name", "") for t in script.called(call)}
    if call.args and surely(match := [SPATIAL.fullmatch(str(n)) for n in names]):
        axes = min(int(m[1]) for m in match if m is not None)
        before = _possible(script, call.args[0], way)
        return {Dimensions(max(d.least, axes + 1), d.most) for d in before}
    if surely(is_named(t, Ext, STEPS) for t in script.called(call)):
        state = items_of((call.args or [call])[-1])[0]  # ``h`` of ``(h, c)``
        return {*_possible(script, state, way)} if call.args else {UNKNOWN}
    operation, operands = script.operation(call)
    if is_pointwise(operation) or (
        operation in EXTREMES and len(operands) == 2 and script.must_be(operands[1], Tensor)
    ):
        found = frozenset({Dimensions(0, 0)})
        for part in operands:
            more = _operand(script, part, way)
            found = frozenset(_broadcast(one, two) for one in found for two in more)
        return {*found}
    if (reduced := _reduced(script, call, way)) is not None:
        return reduced
    if name == "torch.cat":
        along = literal_of(keyword_of(call, "dim") or next(iter(call.args[1:]), None))
        least = along + 1 if isinstance(along, int) else 0
        parts = script.analysis(Makers).back(call.args[0], (ANY,)) if call.args else None
        joined = [_possible(script, part, way) for part, of in parts or () if not of]
        exact = (d for found in joined for d in found if len(found) == 1 and d.most == d.least)
        return {next(exact, Dimensions(least))}  # all have as many
    match call:
        case ast.Call(args=[inner, *_]) if name in MADE:
            if may_give(call, "ndmin"):
                return {UNKNOWN}
            given = script.values(inner)
            row = certainly(given, Seq) and all(are_numbers(t.any()) for t in of_kind(given, Seq))
            return {Dimensions(1, 1)} if row else {*_possible(script, inner, way)}
        case ast.Call() if name in MATRICES:
            return {Dimensions(2, 2)}
        case ast.Call(args=[inner, *_]) if name == "torch.nn.Parameter":
            return {*_possible(script, inner, way)}
        case ast.Call(args=[_, pattern, *_]) if name == "einops.rearrange":
            return {_rearranged(script.constant(pattern))}
        case ast.Call(args=[pattern, *_]) if name == "torch.einsum":
            return {_summed(script.constant(pattern))}
        case ast.Call(args=[inner, *_]) if name.removeprefix("torch.") in TRIANGLES:
            return _of_two(_possible(script, inner, way))
        case ast.Call(func=ast.Attribute(attr=attr), args=[first, *rest]) if attr in NEW:
            sides = first.elts if isinstance(first, SEQUENCES) else [first, *rest]
            known = not has_star(sides) and (rest or first not in sides)
            return {Dimensions(len(sides), len(sides)) if known else UNKNOWN}
        case ast.Call(func=ast.Attribute(attr=attr), args=args, keywords=[]) if attr in SIZED:
            each = len(args) > 1 and not has_star(args)
            each = each or (len(args) == 1 and isinstance(script.constant(args[0]), int))
            return {Dimensions(len(args), len(args)) if each else UNKNOWN}
        case ast.Call(func=ast.Attribute(value=inner, attr=attr)):
            before = _possible(script, inner, way)
            if attr in SAME:
                return {*before}
            if attr in TRIANGLES:
                return _of_two(before)
            if attr == "expand" and len(call.args) > 1 and not has_star(call.args):
                return {Dimensions(len(call.args), len(call.args))}
            if attr == "t":
                return {Dimensions(d.least, min(d.most or 2, 2)) for d in before}
            if attr in GROWING:
                return {Dimensions(d.least) for d in before}
            if attr == "unsqueeze":
                at = script.constant(call.args[0]) if len(call.args) == 1 else None
                shown = (at + 1 if at >= 0 else -at) if isinstance(at, int) else 1
                return {Dimensions(max(d.least + 1, shown), d.most and d.most + 1) for d in before}
    return {UNKNOWN}


def _reduced(script: Script, call: ast.Call, way: Way) -> set[Dimensions] | None:
    """What is left by ``torch.mean(x, [2, 3], keepdim=True)``; None where it is nothing such."""
    name, given = script.operation(call)
    if last_part(name) not in REDUCES or not given:
        return None
    if not (name.startswith("torch.") or script.must_be(given[0], Tensor)):
        return None
    before = _possible(script, given[0], way)
    along = keyword_of(call, "dim") or keyword_of(call, "axis") or next(iter(given[1:2]), None)
    kept = (
        keyword_of(call, "keepdim") or keyword_of(call, "keepdims") or next(iter(given[2:]), None)
    )
    if is_constant(kept, True):
        return {*before}
    if along is None:
        return {Dimensions(0, 0 if kept is None else None)}
    number = len(along.elts) if isinstance(along, SEQUENCES) else 1
    if kept is not None or not (
        isinstance(along, SEQUENCES) or type(script.constant(along)) is int
    ):
        return {UNKNOWN}
    return {Dimensions(max(0, d.least - number), d.most and d.most - number) for d in before}


def _is_plain(call: ast.Call) -> bool:
    """A file read as a row of single numbers: without a shape, and no dtype such as ``"2u2"`` or
    ``(np.uint16, (2,))``.
    """
    if len(call.args) > 4 or may_give(call, "shape"):
        return False
    for dtype in (*call.args[1:2], *(k.value for k in call.keywords if k.arg == "dtype")):
        if is_text(dtype):
            if not dtype.value.lstrip("<>=|")[:1].isalpha() or "," in dtype.value:
                return False
        elif isinstance(dtype, SEQUENCES):
            return False
    return True


def _of_two(before: frozenset[Dimensions]) -> set[Dimensions]:
    """The same, of what has two dimensions at the least."""
    return {Dimensions(max(2, d.least), d.most) for d in before}


def _given(pattern: object) -> str:
    return pattern.split("->")[1] if isinstance(pattern, str) and "->" in pattern else "..."


def _summed(pattern: object) -> Dimensions:
    """What torch gives by ``bhid, bhjd -> bhij``: a letter for each dimension."""
    shape = _given(pattern)
    axes = len(shape.replace(" ", ""))
    return UNKNOWN if "." in shape else Dimensions(axes, axes)


def _rearranged(pattern: object) -> Dimensions:
    """What einops gives by ``b n (h d) -> b h n d``."""
    shape = _given(pattern)
    if "." in shape:
        return UNKNOWN
    axes = len(re.sub(r"\([^)]*\)", "x", shape).split())
    return Dimensions(axes, axes)
