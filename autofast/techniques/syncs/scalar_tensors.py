"""What a tensor that is read as one number certainly is, by what it is computed of: without
dimensions, or with one of length 1, and of floats.

``prec1`` of ``prec1, prec5 = accuracy(output, target, topk=(1, 5))`` holds floats, where
``accuracy`` returns a list that gets ``k.float().sum(0) / n``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from autofast.flow.callgraph import CallGraph, Function, code_of
from autofast.flow.defuse import Definition
from autofast.flow.program import Flow
from autofast.flow.scopes import mentions
from autofast.model.calls import may_give
from autofast.model.kinds import is_loss
from autofast.model.script import Script
from autofast.model.several import surely, wordset
from autofast.model.source import parent_of
from autofast.model.syntax import has_star, is_attribute
from autofast.model.values import (
    Ext,
    Method,
    Ref,
    Tensor,
    Thing,
    const,
    is_named,
    of_kind,
)

WHOLE = ("mean", "sum", "max", "min", "norm")  # without arguments: of all elements
NORM = ("torch.norm", 2)  # ``torch.norm(x, 2)``
# Keep the shape.
SAME = tuple("detach clone float double cpu to abs sqrt exp log".split())
CASTS = wordset("float double half bfloat16")
KEEPS = wordset("mul mul_ div div_ add add_ sub sub_ sum reshape squeeze flatten detach clone abs")
# Give floats, of whatever numbers: real ones, but for a mean of complex numbers.
REAL = wordset("norm std var")
MEANS = wordset("mean nanmean sigmoid softmax log_softmax logsumexp")
COMPLEX = re.compile(r"complex|cfloat|cdouble|chalf|fft|stft|hilbert|polar")
DEEP = 6


def _given_by(script: Script, thing: Thing) -> list[ast.expr]:
    """All that a function of the project may give; nothing where it is none, or where that is not
    known.
    """
    found = [script.analysis(CallGraph).results(c.function) for c in code_of(thing)]
    return [e for some in found for e in some] if all(found) else []


# ----------------------------------------------------------------------------------- one number
def is_scalar(script: Script, expr: ast.expr, depth: int = 0) -> bool:
    """Whether an expression is certainly such a tensor: a loss, a mean, arithmetic with such."""
    found = script.values(expr)
    if surely(isinstance(t, Tensor) and t.rank == "0d" for t in found) and not script.unread:
        return True
    match expr:
        case ast.BinOp(left=left, right=right):
            return all(
                is_scalar(script, p, depth) for p in (left, right) if script.may_be(p, Tensor)
            )
        case ast.UnaryOp(operand=operand):
            return is_scalar(script, operand, depth)
        case ast.Call():
            return _calls_scalar(script, expr, depth)
        case ast.Name() if depth < 5:
            made = script.analysis(Flow).origins(expr)
            return surely(_makes_scalar(script, d, depth + 1) for d in made)
    return False


def _makes_scalar(script: Script, made: Definition, depth: int) -> bool:
    statement = made.statement
    value = statement.value if isinstance(statement, ast.AugAssign) else made.value
    if value is None:
        return False
    return (
        not script.reached(value)
        or not script.may_be(value, Tensor)
        or is_scalar(script, value, depth)
    )


def _calls_scalar(script: Script, call: ast.Call, depth: int) -> bool:
    func = call.func
    plain = not call.keywords and not has_star(call.args)
    if is_attribute(func) and script.may_be(func.value, Tensor):
        order = int(func.attr == "norm")  # ``x.norm(2)``
        return (func.attr in WHOLE and plain and len(call.args) <= order) or (
            func.attr in SAME and is_scalar(script, func.value, depth)
        )
    for thing in script.values(func):
        if is_loss(thing) or (isinstance(thing, Ref) and script.log.at("loss", call) is not None):
            if not all(t.loss for t in script.values(call) if isinstance(t, Tensor)):
                return False
            if _may_keep_elements(script, call):
                return False
        elif is_named(thing, Ref, [f"torch.{n}" for n in WHOLE]):
            if not plain or len(call.args) != 1 and (thing.name, len(call.args)) != NORM:
                return False
        else:
            given = _given_by(script, thing)
            if depth >= 4 or not surely(is_scalar(script, e, depth + 1) for e in given):
                return False
    return bool(script.values(func))


def _may_keep_elements(script: Script, call: ast.Call) -> bool:
    """Whether a loss may be one of each element: ``reduction="mean" if average else "none"``."""
    for occurrence in script.log.ways("loss", call):
        own = occurrence.this.args if isinstance(occurrence.this, Ext) else occurrence.args
        for name, whole in (("reduction", ("mean", "sum", "batchmean")), ("reduce", (True, None))):
            given = own.named.get(name)
            if given is not None and const(given.values) not in whole:
                return True
    return False


# ----------------------------------------------------------------------------------------- floats
def is_float(script: Script, core: ast.expr) -> bool:
    """Whether ``core`` is certainly a tensor of real floats, by its values or by what it is
    computed of.
    """
    if holds_floats(script, core):
        return True
    values = of_kind(script.values(core), Tensor)
    if not values or any(t.dtype == "complex" for t in values):
        return False
    real = all(t.loss for t in values) or not script.analysis(_may_be_complex)
    return real and all(t.grad or t.loss or t.dtype in ("f32", "f64", "half") for t in values)


def kind_of(script: Script, core: ast.expr) -> str:
    """``float``, or ``int`` for a count; empty where it may be either, or complex."""
    if is_float(script, core):
        return "float"
    found = of_kind(script.values(core), Tensor)
    return "int" if surely(t.dtype == "int" and not (t.grad or t.loss) for t in found) else ""


def holds_floats(script: Script, expr: ast.expr, depth: int = 0) -> bool:
    """Whether ``expr`` is certainly a tensor of real floats."""
    if depth > DEEP or any(t.dtype == "complex" for t in of_kind(script.values(expr), Tensor)):
        return False
    match expr:
        case ast.Call() if (name := _called(script, expr)) in REAL | MEANS:
            return name in REAL or not script.analysis(_may_be_complex)
        case ast.Call(func=ast.Attribute(value=tensor, attr=name), args=[], keywords=[]) if (
            name in CASTS
        ):
            return script.must_be(tensor, Tensor)
        case ast.Call(func=ast.Attribute(value=tensor, attr=name), keywords=[]) if name in KEEPS:
            return script.must_be(tensor, Tensor) and holds_floats(script, tensor, depth + 1)
        case ast.Call(func=ast.Attribute(value=tensor, attr="sum" | "mean")) if all(
            k.arg in ("dim", "keepdim") for k in expr.keywords
        ):
            return script.must_be(tensor, Tensor) and holds_floats(script, tensor, depth + 1)
        case ast.BinOp(left=left, right=right, op=ast.Mult() | ast.Div()):
            return any(
                script.must_be(side, Tensor) and holds_floats(script, side, depth + 1)
                for side in (left, right)
            )
        case ast.Subscript(value=ast.Call() as call, slice=ast.Constant(value=int())):
            return _each(script, call, depth)
        case ast.Subscript(value=tensor):
            return script.must_be(tensor, Tensor) and holds_floats(script, tensor, depth + 1)
        case ast.Call():
            return _returns(script, expr, depth)
        case ast.Name():
            made = script.analysis(Flow).origins(expr)
            return surely(_assigns(script, d, depth) for d in made)
    return False


def _called(script: Script, call: ast.Call) -> str:
    """The operation of torch that a call is certainly one of, as a function or a method of a
    tensor; empty where a type is asked for.
    """
    if may_give(call, "dtype"):
        return ""
    names = {
        t.name.removeprefix("torch.nn.functional.")
        .removeprefix("torch.linalg.")
        .removeprefix("torch.")
        if isinstance(t, Ref)
        else t.name
        for t in script.called(call)
        if isinstance(t, Ref) or (isinstance(t, Method) and isinstance(t.this, Tensor))
    }
    known = len(names) == 1 and len(script.called(call)) > 0
    return names.pop() if known and script.must_be(call, Tensor) else ""


def _may_be_complex(script: Script) -> bool:
    """Whether any code of the project speaks of complex numbers; words of comments are none."""
    return any(map(_is_complex, script.nodes))


def _is_complex(node: ast.AST) -> bool:
    match node:
        case ast.Constant(value=complex()):
            return True
        case ast.Constant(value=str(word)) if " " in word or "\n" in word:
            return False
        case (
            ast.Name(id=str(word)) | ast.Attribute(attr=str(word)) | ast.alias(name=str(word))
            | ast.arg(arg=str(word)) | ast.keyword(arg=str(word)) | ast.Constant(value=str(word))
        ):  # fmt: skip
            return COMPLEX.search(word) is not None
    return False


def _assigns(script: Script, made: Definition, depth: int) -> bool:
    """Whether a definition puts such a tensor into a variable, by itself or among the results of a
    function.
    """
    statement = made.statement
    match statement:
        case ast.AugAssign(op=op):
            return isinstance(op, (ast.Mult, ast.Div))  # the type stays as it is
        case _ if made.value is not None:
            return holds_floats(script, made.value, depth + 1)
        case ast.Assign(targets=targets, value=ast.Call() as call):
            return parent_of(made.node) in targets and _each(script, call, depth)
    return False


def _returns(script: Script, call: ast.Call, depth: int) -> bool:
    """Whether all that a function of the project returns is such a tensor."""
    given = [_given_by(script, t) for t in script.called(call)]
    return (
        bool(given)
        and all(given)
        and all(holds_floats(script, e, depth + 1) for some in given for e in some)
    )


def _each(script: Script, call: ast.Call, depth: int) -> bool:
    """Whether everything in the list or tuple that a function of the project returns is such a
    tensor.
    """
    callees = [code_of(t) for t in script.called(call)]
    functions = [c.function for code in callees for c in code]
    parts = [e for f in functions for e in _elements(script, f)]
    return all(callees) and surely(
        e is not None and holds_floats(script, e, depth + 1) for e in parts
    )


def _elements(script: Script, function: Function) -> Iterator[ast.expr | None]:
    """What is in the results of a function; None for what is not understood."""
    results = script.analysis(CallGraph).results(function)
    if not results:
        yield None
    for result in results:
        match result:
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                yield from parts
            case ast.ListComp(elt=part):
                yield part
            case ast.Name() as name:
                yield from _appended(function, name)
            case _:
                yield None


def _appended(function: Function, name: ast.Name) -> Iterator[ast.expr | None]:
    """What a list holds that a function begins empty and appends to."""
    for node in mentions(function, name.id):
        parent = parent_of(node)
        call = parent_of(parent) if parent is not None else None
        match parent, call:
            case ast.Return(), _:
                continue
            case ast.Assign(value=ast.List(elts=[])), _:
                continue
            case ast.Attribute(attr="append"), ast.Call(args=[part], keywords=[]):
                yield part
            case _:
                yield None
