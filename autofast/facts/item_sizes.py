"""Whether items are small: what code makes of an element has, whatever the element is, few numbers,
or few for each part of the element.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from autofast.facts.cost.bounds import largest_value, range_of
from autofast.facts.extents import sides_of
from autofast.flow.callgraph import Function
from autofast.flow.program import Flow
from autofast.flow.scopes import own_nodes
from autofast.model.calls import is_method
from autofast.model.names import last_part
from autofast.model.script import Script
from autofast.model.several import all_known, surely, wordset
from autofast.model.source import function_of, outwards
from autofast.model.syntax import SEQUENCES, is_attribute
from autofast.model.values import Bound, Const, Func, Num, Seq, certainly, of_kind

NUMBERS = 1024  # of an item, whatever it is made of: 8 kB, of a million items 8 GB
EACH = 32  # for each part of it: a letter, a word, an edge; 256 bytes at the most
TOO_MANY = NUMBERS + 1
MAKING = wordset("zeros ones full empty")
# What makes no more of what it is given, in the place of it.
KEEPING = MAKING | wordset(
    """tensor as_tensor from_numpy array asarray stack cat concatenate FloatTensor LongTensor len int
    float bool str min max abs round sum range enumerate zip sorted list tuple set dict reversed
    append extend get items keys values split strip rstrip lstrip lower upper startswith endswith
    index count isdigit isalpha long double astype clone copy view reshape unsqueeze squeeze t"""
)
GROWING = (ast.ListComp, ast.SetComp, ast.DictComp)


def are_small(script: Script, functions: Iterable[Function]) -> bool:
    """Whether what these functions make of an element, all of it, is small."""
    fixed = [_fixed(script, n) for function in functions for n in own_nodes(function)]
    return all(n is not None for n in fixed) and sum(all_known(fixed)) <= NUMBERS


def _fixed(script: Script, node: ast.AST) -> int | None:
    """How many numbers a node makes that are not of parts of an element; None where that may be too
    many, and of parts, where it is more than a few for each."""
    match node:
        case ast.While() | ast.BinOp(op=ast.MatMult() | ast.Pow()) | ast.Starred():
            return None
        case ast.Subscript(slice=ast.Constant(value=None)):
            return None
        case ast.Subscript(slice=ast.Tuple(elts=parts)):
            new = any(isinstance(p, ast.Constant) and p.value is None for p in parts)
            return None if new or any(is_attribute(p, "newaxis") for p in parts) else 0
        case ast.Call(func=func):
            callees = script.called(node)
            if surely(isinstance(t, (Func, Bound)) for t in callees):
                return 0
            name = (
                func.attr if isinstance(func, ast.Attribute) else last_part(getattr(func, "id", ""))
            )
            if name not in KEEPING:
                return None
            sides = sides_of(script, node) if name in MAKING else []
            grows = is_method(node, "append", "extend")
            return _made(script, node, sides, name in MAKING or grows)
        case ast.BinOp(op=ast.Mult(), left=left, right=right) if any(
            isinstance(e, SEQUENCES) or certainly(script.values(e), Seq) for e in (left, right)
        ):
            return _made(script, node, [right if isinstance(left, SEQUENCES) else left], True)
        case ast.AugAssign(op=ast.Add(), value=value):
            return _made(script, node, [], not certainly(script.values(value), Const, Num))
        case ast.AugAssign(op=ast.Mult()):
            return None
    if isinstance(node, GROWING):
        return _made(script, node, [], True)
    return 0


def _made(script: Script, node: ast.AST, sides: list[ast.expr], grows: bool) -> int | None:
    """The same of so many numbers, once in each turn of the loops around."""
    if not grows:
        return 0
    known = [largest_value(script, side) for side in sides]
    product, parts = 1, 0
    turns = list(_turns(script, node))
    for n, side in [*zip(known, sides, strict=True), *((n, None) for n in turns)]:
        product *= 1 if n is None else n
        parts += n is None
        if n is None and side is not None and not _counts_parts(script, side):
            return None
    if parts:
        return 0 if parts == 1 and product <= EACH else None
    return product if product <= NUMBERS else None


def _turns(script: Script, node: ast.AST) -> Iterator[int | None]:
    """Of the loops around, how often they turn; None where it is once for each part."""
    if isinstance(node, GROWING):
        yield from (_turns_over(script, part.iter) for part in node.generators)
    for _, outer in outwards(node):
        if outer is function_of(node):
            return
        match outer:
            case ast.For(iter=over):
                yield _turns_over(script, over)
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                yield from (_turns_over(script, part.iter) for part in outer.generators)


def _turns_over(script: Script, over: ast.expr) -> int | None:
    lists = of_kind(found := script.values(over), Seq)
    if certainly(found, Seq) and all(s.exact is not None for s in lists):
        return max(len(s.exact or ()) for s in lists)
    known = range_of(script, over)
    if known is None and script.is_call(over, "builtins.range"):
        last = over.args[len(over.args) > 1]
        return None if _counts_parts(script, last) else TOO_MANY
    return known


def _counts_parts(script: Script, side: ast.expr) -> bool:
    """``len(words)``, also under a name."""
    made = script.analysis(Flow).value(side) if isinstance(side, ast.Name) else side
    return script.is_call(made, "builtins.len")
