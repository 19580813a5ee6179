"""Whether a script would go on as before if the batches of a loader were on the device from the
beginning.

It does where all that it does with them in host memory is to hand them on, to ask for their shape,
to view or cast them, to add numbers to them or multiply them with numbers, and to copy them to the
device. Such arithmetic may round otherwise on the device (:func:`computes_on_host`); other
arithmetic would round, draw or fail differently there, and NumPy cannot read what lies there.
"""

from __future__ import annotations

import ast

from autofast.flow.program import definitions_at
from autofast.flow.usage import Act, Usage, is_identity
from autofast.flow.valueflow import Answer, Verdict, expressions_holding, first_bad
from autofast.model.roles import Loader
from autofast.model.script import Script
from autofast.model.several import any_in, surely, wordset
from autofast.model.source import at, first_line, parent_of
from autofast.model.syntax import is_stored
from autofast.model.tensors import NOT_CUDA, tensors_in
from autofast.model.values import (
    Bound,
    Cls,
    Const,
    Func,
    Inst,
    Num,
    Ref,
    Thing,
    Values,
    is_named,
    is_on_device,
)

MOVES = wordset("to cuda")
# What is said of a tensor, wherever it is.
SHAPE = wordset("""shape size dim ndim numel nelement dtype stride is_contiguous
    is_floating_point element_size requires_grad grad ndimension nbytes""")
CASTS = wordset("float double half bfloat16 long int bool byte")
SAME = wordset("""contiguous clone detach view reshape flatten squeeze unsqueeze permute transpose
    t expand narrow unflatten movedim swapaxes chunk split unbind select repeat""")
CONTAINERS = wordset("items values keys get pop")
PASSING = frozenset(
    {
        *(f"builtins.{n}" for n in ("enumerate", "iter", "next", "zip", "len")),
        "tqdm.tqdm",
        "tqdm.auto.tqdm",
        "itertools.islice",
        "torch.autograd.Variable",
    }
)  # fmt: skip


def needs_host(script: Script, loader: Loader) -> str:
    """A place that needs batches of the loader in host memory, in words; empty for none."""
    needs = _Needs(script, loader)
    found = first_bad(script, needs.is_on_host, needs.judge)
    if found is None:
        return ""
    node, why = found
    text = first_line(node)
    return f"{at(node)} {why} `{text}` in host memory, before it is on the device"


def computes_on_host(script: Script, loader: Loader) -> bool:
    """Whether the script computes with batches in host memory: the device may round the last bit
    otherwise.
    """
    batches = expressions_holding(script, _Needs(script, loader).is_on_host)
    return any(isinstance(parent_of(node), ast.BinOp) for node in batches)


def shared_copies(script: Script, loader: Loader) -> str:
    """A batch that may be copied to the device twice, of which one copy is written to, in words:
    both would be one tensor.
    """
    for site in script.log.of("inplace", "tensor_write", "augment"):
        for occurrence in site:
            changed = occurrence.data["old"] if site.kind == "augment" else {occurrence.this}
            if any(_is_copy(t, loader) for t in changed) and not _are_distinct(script, loader):
                return f"{at(site)} writes to a batch, of which there may be another copy"
    return ""


def _is_copy(thing: Thing | None, loader: Loader) -> bool:
    return is_on_device(thing) and not thing.models and any_in(thing.batch, loader.things)


def _are_distinct(script: Script, loader: Loader) -> bool:
    """Every copy to the device within a loop is of a variable of its own, which the loop itself
    sets.
    """
    seen: set[object] = set()
    for move in loader.moved:
        func = move.node.func
        if not move.to_device or not any(t.device == "cpu" for t in move.tensors):
            continue
        name = func.value if isinstance(func, ast.Attribute) else None
        loop = move.loops[-1].node if move.loops else None
        if not isinstance(name, ast.Name) or not isinstance(loop, ast.For):
            return False
        mine = {d.node for d in definitions_at(script, name)}
        targets = set(ast.walk(loop.target))
        if not mine or any(n not in targets or n in seen for n in mine):
            return False
        seen |= set(mine)
    return True


class _Needs:
    """What needs batches of a loader in host memory. The reader follows them."""

    def __init__(self, script: Script, loader: Loader):
        self.script, self.loader = script, loader

    def is_on_host(self, found: Values) -> bool:
        """Something in it is a batch that no way has brought to the device; a copy under a
        condition is for machines without one.
        """
        things = self.loader.things
        tensors = [t for t in tensors_in(found) if not t.models and any_in(t.batch, things)]
        return bool(tensors) and not any(t.device == "dev" for t in tensors)

    def judge(self, use: Usage) -> Answer:
        node = use.node
        match use.act:
            case Act.TARGET if _is_stored(use.expr):
                return "writes to"  # `self.x = batch` is followed, like a variable
            case Act.ASKED:
                return self._asked(use) or Verdict.STOPS
            case Act.GIVEN:
                assert isinstance(node, ast.Call)
                return self._handed(node) or Verdict.GOES_ON
            case Act.FILLED if _is_stored(node):
                return "writes to"
            case Act.TAKEN if not self._is_plain(node.slice):  # type: ignore[attr-defined]
                return "indexes"
            case Act.COMPARED if not is_identity(node):
                return "computes with"
            case Act.COMPUTED:
                return Verdict.GOES_ON if self._scales(use) else "computes with"
            case Act.CHOSEN if isinstance(node, ast.BoolOp):
                return "computes with"
            case Act.HELD if isinstance(node, (ast.Set, ast.SetComp)):
                return "computes with"
            case Act.INDEXES | Act.ADDED | Act.TESTED | Act.SHOWN | Act.OTHER:
                return "computes with"
        return Verdict.GOES_ON

    def _scales(self, use: Usage) -> bool:
        """A number is added to it, or multiplied with it; the result is judged in its turn."""
        match use.node:
            case (
                ast.BinOp(
                    left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div(), right=right
                ) as result
            ):
                other = self.script.values(right if left is use.expr else left)
                ours = self.is_on_host(self.script.values(result))
                return ours and bool(other) and all(map(_is_number, other))
        return False

    def _asked(self, use: Usage) -> str:
        node, called = use.node, use.result is not use.node
        assert isinstance(node, ast.Attribute)
        attr = node.attr
        if attr in SHAPE or attr in CONTAINERS or (called and attr in MOVES | SAME):
            return ""
        if called and attr in CASTS:
            wide = [
                t
                for t in tensors_in(self.script.values(node.value))
                if t.dtype not in ("f32", "int", "half")
            ]
            return "casts" if wide and any(m.kinds & NOT_CUDA for m in self.loader.moved) else ""
        if attr in ("T", "mT", "data"):
            return ""
        return "uses" if called else f"asks for `.{attr}` of"

    def _handed(self, call: ast.Call) -> str:
        """Functions of the project are followed, and few of Python's do nothing with it."""
        callee = self.script.called(call)
        known = surely(
            isinstance(t, (Func, Bound, Cls))
            or (isinstance(t, Inst) and t.cls.find("forward") is not None)
            or (isinstance(t, Inst) and t.cls.find("__call__") is not None)
            or is_named(t, Ref, PASSING)
            for t in callee
        )
        return "" if known else "hands on"

    def _is_plain(self, index: ast.expr) -> bool:
        """Numbers, names of keys and slices by numbers: no tensor or array."""
        if isinstance(index, ast.Tuple):
            return all(self._is_plain(part) for part in index.elts)
        if isinstance(index, ast.Slice):
            bounds = (index.lower, index.upper, index.step)
            return all(b is None or self._is_plain(b) for b in bounds)
        if isinstance(index, ast.Constant):
            return True
        return bool(found := self.script.values(index)) and all(_is_number(t) for t in found)


def _is_stored(expr: ast.AST) -> bool:
    """``batches[i]`` in ``batches[i] = batch``."""
    return isinstance(expr, ast.Subscript) and is_stored(expr)


def _is_number(thing: Thing) -> bool:
    return isinstance(thing, (Const, Num))
