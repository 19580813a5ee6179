"""Copies of numbers that the host has to the device which no method of a tensor says: an index by
an array or a list, ``x.new_tensor(array)``, ``torch.tensor(numbers, device=x.device)``."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from autofast.edit.edits import Edits, plain_code
from autofast.facts.arrays import array_of
from autofast.facts.copies import several_gpus
from autofast.facts.whole_numbers import LONG, NUMBERS, goes_back, numbers_of
from autofast.flow.program import Flow
from autofast.model.calls import is_path, items_of, keyword_of
from autofast.model.contents import with_contents
from autofast.model.kinds import is_module
from autofast.model.names import last_part
from autofast.model.script import Script
from autofast.model.several import is_numeric, surely, wordset
from autofast.model.source import function_of, nodes_in, parent_of, source_of
from autofast.model.syntax import VARIABLES, is_attribute
from autofast.model.values import (
    Const,
    Inst,
    Seq,
    Tensor,
    Unknown,
    Values,
    certainly,
    of_kind,
)
from autofast.techniques.transfers.factories import runs_often
from autofast.techniques.transfers.told import told
from autofast.write.spelling import torch_in

OTHERS = (ast.Slice, ast.Constant, ast.Starred)
FLOAT, FLOATS = "f32", wordset("float32 float64")


@dataclass(frozen=True, eq=False)
class Once:
    """``node`` is replaced; ``made`` is computed once, and kept as ``code`` says; ``copied``: to
    the device; ``idle`` has nothing to do then.

    ``behind``: what is still done in the place, with ``like`` in it. ``stem``: for the name.
    ``safe``: the constructor can make it, also where the method does not always come there.
    """

    node: ast.expr
    made: ast.expr
    copied: bool
    idle: Edits = ()
    code: str = "{made}"
    behind: str = ""
    like: ast.expr | None = None
    stem: str = ""
    safe: bool = False


def uploads(script: Script, hot: frozenset[ast.AST], often: dict[ast.AST, None]) -> Iterator[Once]:
    """One for each place in a method of a module."""
    alone = not several_gpus(script)
    for subscript, part in indexed(script, {*often, *hot}) if alone else ():
        if _is_method_of_module(script, part) and is_there(script, subscript.value):
            yield _tensor_of(script, part, part, "index")
    for site in script.methods("new_tensor"):
        if runs_often(site, hot) and (made := _beside(script, site.node)) is not None:
            yield made
    for call, site in told(script):
        if runs_often(site, hot) and (made := _told(script, call)) is not None:
            yield made


def _is_method_of_module(script: Script, node: ast.AST) -> bool:
    match function_of(node):
        case ast.FunctionDef(args=ast.arguments(args=[first, *_])) as method:
            this = (n for n in nodes_in(method, ast.Name) if n.id == first.arg)
            each = (script.values(n) for n in this)
            return any(surely(isinstance(t, Inst) and is_module(t) for t in own) for own in each)
    return False


# ----------------------------------------------------------------------------------------- an index
def indexed(script: Script, often: Collection[ast.AST]) -> Iterator[tuple[ast.Subscript, ast.expr]]:
    """Each index by numbers of the host in functions that run ``often``, and what it is a part
    of."""
    for subscript in script.each(ast.Subscript):
        if function_of(subscript) in often:
            for part in items_of(subscript.slice):
                if _index(script, part, part is not subscript.slice):
                    yield subscript, part


def _tells_type(script: Script, data: ast.expr) -> bool:
    """Whether a tensor of it certainly has integers of 64 bits, without being told."""
    whole = numbers_of(script, data) == LONG
    return whole and (_is_array(script, data) or _is_filled(script, data))


def index_code(script: Script, data: ast.expr, code: str) -> str:
    """What makes a tensor on the device of an index, whose code that is."""
    torch, _ = torch_in(source_of(data))
    told = "" if _tells_type(script, data) else f"dtype={torch}.long, "
    return f"{torch}.tensor({code}, {told}device=device)"


def _tensor_of(
    script: Script,
    node: ast.expr,
    data: ast.expr,
    end: str,
    dtype: str = "long",
    like: ast.expr | None = None,
) -> Once:
    """``torch.tensor(data)``, kept under a name that ends with ``end``; with the dtype of ``like``
    in the place."""
    torch, imports = torch_in(source_of(node))
    sure = dtype == "long" and _tells_type(script, data)
    told = f", dtype={torch}.{dtype}" if dtype and not sure else ""
    stem = last_part(ast.unparse(data)).lower() if isinstance(data, VARIABLES) else ""
    alone = end if end == "index" else "constant"
    stem = f"{stem}_{end}" if stem and end not in stem else stem or alone
    behind = ".to({like}.dtype)" if like is not None else ""
    code = f"{torch}.tensor({{made}}{told})"
    return Once(node, data, True, imports, code, behind, like, stem, safe=True)


def _index(script: Script, part: ast.expr, inside: bool) -> str:
    """What kind of numbers it takes from the host; empty where none are, or it is not certain.

    A tuple is an index of its own only beside others (``inside``), and so is a list of lists.
    """
    found = script.values(part)
    if isinstance(part, OTHERS) or any(isinstance(t, Tensor) for t in found):
        return ""
    tuples = [t for t in of_kind(found, Const) if isinstance(t.value, tuple)]
    single = certainly(found, Const) and not tuples
    tuples += [t for t in of_kind(found, Seq) if t.kind != "list"]  # type: ignore[misc]
    if single or (tuples and not inside):
        return ""
    kind = numbers_of(script, part)
    if kind == NUMBERS and not _is_array(script, part):
        return ""
    return "" if goes_back(script, part) else kind


def _is_array(script: Script, part: ast.expr) -> bool:
    return not certainly(script.values(part), Seq, Const)


def _is_filled(script: Script, data: ast.expr) -> bool:
    """Whether a list or tuple certainly has elements: the type of an empty one is another."""
    return surely(
        bool(t.value) if isinstance(t, Const) else isinstance(t, Seq) and bool(t.exact)
        for t in script.values(data)
    )


def is_there(script: Script, tensor: ast.expr) -> bool:
    """Whether a tensor is where its module is, as far as can be told."""
    found = script.values(tensor)
    tensors = of_kind(found, Tensor)
    known = len(tensors) == len(found) or (
        certainly(found, Tensor, Unknown) and _is_asked_for_device(script, tensor)
    )
    return (
        known
        and all(t.device != "cpu" for t in tensors)
        and any(t.device != "?" or t.models for t in tensors)
    )


def _is_asked_for_device(script: Script, tensor: ast.expr) -> bool:
    """Whether its device is asked for in the same function: it is a tensor, whoever gave it."""
    same = script.analysis(Flow).is_same
    return any(
        is_attribute(parent_of(n), "device") and same(n, tensor)
        for n in nodes_in(function_of(tensor), ast.Name)
    )


# ------------------------------------------------------------------------------- a call that copies
def _beside(script: Script, call: ast.AST) -> Once | None:
    """``x.new_tensor(numbers)``, which has the dtype of ``x``."""
    match call:
        case ast.Call(func=ast.Attribute(value=like), args=[data], keywords=[]) if (
            is_path(like)
            and is_there(script, like)
            and _is_method_of_module(script, call)
            and not goes_back(script, data)
        ):
            return _alike(script, call, data, like)
    return None


def _alike(script: Script, call: ast.Call, data: ast.expr, like: ast.expr) -> Once | None:
    """What is made with the dtype of another tensor."""
    if numbers_of(script, data) == LONG:
        return _tensor_of(script, call, data, "tensor", like=like)
    if _has_floats(script, data) and _is_single(script, like):
        dtype = "float32" if _is_array(script, data) else ""
        return _tensor_of(script, call, data, "tensor", dtype, like)
    return None


def _told(script: Script, call: ast.Call) -> Once | None:
    """``torch.tensor(numbers, device=x.device)``"""
    data, dtype = call.args[0], keyword_of(call, "dtype")
    device = keyword_of(call, "device")
    if goes_back(script, data):
        return None
    if not _is_method_of_module(script, call):
        return Once(call, call, True)
    if is_attribute(device, "device") and script.may_be(device.value, Tensor):
        if not is_there(script, device.value):
            return None
    if is_attribute(dtype, "dtype") and script.must_be(dtype.value, Tensor):
        return _alike(script, call, data, dtype.value) if is_path(dtype.value) else None
    if dtype is not None and not script.library_name(dtype).startswith("torch."):
        return None
    if not (numbers_of(script, data) or _has_floats(script, data)):
        return None
    once = _tensor_of(script, call, data, "tensor", "")
    if dtype is None:
        return once
    return replace(once, code=once.code[:-1] + f", dtype={plain_code(ast.unparse(dtype))})")


def _has_floats(script: Script, data: ast.expr) -> bool:
    """Numbers of Python, or an array of floats."""
    found = script.values(data)
    if certainly(found, Seq, Const):
        return has_only_numbers(found)
    made = array_of(script, data)
    return made is not None and made.dtype in FLOATS and not (made.tensor or made.is_list)


def has_only_numbers(found: Values) -> bool:
    """Lists and tuples of numbers, and lists of such."""
    each = [*with_contents(found)]
    numbers = [t.value for t in of_kind(each, Const)]
    flat = [n for v in numbers for n in (v if isinstance(v, tuple) else (v,))]
    sequences = any(isinstance(v, tuple) for v in numbers) or any(isinstance(t, Seq) for t in each)
    return sequences and bool(flat) and all(is_numeric(n) for n in flat)


def _is_single(script: Script, like: ast.expr) -> bool:
    """Whether a tensor has no more than 32 bits for each float: of its own, or as a network gives
    it."""
    return surely(
        isinstance(t, Tensor) and (t.dtype == FLOAT or (t.dtype == "?" and bool(t.models)))
        for t in script.values(like)
    )
