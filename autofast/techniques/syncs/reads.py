"""Reads of a tensor's value by the host - ``loss.item()``, ``float(loss)``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from autofast.flow.positions import statements_beside
from autofast.flow.program import Flow
from autofast.flow.reflection import is_spelled
from autofast.model.calls import arguments_of, is_method, short_name
from autofast.model.script import Script
from autofast.model.several import grouped, surely
from autofast.model.source import statement_of
from autofast.model.syntax import is_attribute
from autofast.model.tensors import is_one_number
from autofast.model.values import NOTHING, Const, Tensor, certainly
from autofast.ops import draws, is_in_place
from autofast.techniques.syncs.scalar_tensors import is_scalar


@dataclass(frozen=True, eq=False)
class Read:
    """One read.

    Attributes:
        node: the expression that is the number: ``loss.detach().cpu().item()``.
        core: the tensor that is read: ``loss``.
        how: ``item``, ``float``, ``int`` or ``numpy`` (an array without dimensions); or a template
            with ``{}`` of several reads, ``{}[0].item(), {}[1]``.
        origins: where ``core`` is a variable that has been given a tensor to keep instead of the
            number, these tensors.
    """

    node: ast.expr
    core: ast.expr
    how: str
    origins: tuple[ast.expr, ...] = ()

    @property
    def ready(self) -> bool:
        """Whether ``core`` is a variable that holds the tensor already."""
        return bool(self.origins)

    @property
    def tensors(self) -> tuple[ast.expr, ...]:
        """The tensors that may be read, as the script computes them."""
        return self.origins or (self.core,)

    @property
    def statement(self) -> ast.stmt:
        return statement_of(self.node)

    @property
    def key(self) -> str:
        return ast.dump(self.core)

    def of(self, tensor: str) -> str:
        """The code that reads ``tensor`` in the same way."""
        return read_template(self.how).replace("{}", tensor)


def read_template(how: str) -> str:
    """The template that reads a tensor."""
    if "{}" in how:
        return how
    return {"item": "{}.item()", "numpy": "{}.cpu().numpy()"}.get(how, f"{how}({{}})")


def scalar_reads(script: Script) -> list[Read]:
    """The reads of single numbers that may make the host wait for a device, in the order of the
    code of each file.
    """
    found = []
    for site in script.log.of("sync"):
        node = site.node
        how = site.occurrences[-1].data.get("how", "item")
        if isinstance(node, ast.Subscript):  # ``loss.data[0]``
            read, how = node.value, "item"
        elif how in ("item", "numpy") and is_method(node) and not node.args and not node.keywords:
            read = node.func.value
        elif how in ("float", "int") and isinstance(node, ast.Call) and len(node.args) == 1:
            read = node.args[0]
        else:
            continue
        core = without_detach(read)
        there = [o.this for o in site if how != "numpy"]
        if not any(map(on_device, (*script.values(core), *there))):
            continue
        if how != "numpy" or is_scalar(script, core):
            found.append(Read(node, core, how))
    return [r for r in found if _is_tensor(script, r) and not is_spelled(r.node)]


def recorded(script: Script) -> Iterator[Read]:
    """The tensors that TensorBoard is given, and reads itself: ``writer.add_scalar(name, loss,
    step)``, ``writer.add_scalars(name, {"train": loss}, step)``.
    """
    for site in script.log.of(".add_scalar", ".add_scalars"):
        given = arguments_of(site.call) if site.call is not None else []
        for value in (e for g in given for e in _parts(g)):
            core = without_detach(value)
            if is_scalar(script, core) and surely(map(on_device, script.values(core))):
                yield Read(value, core, "item")


def _parts(given: ast.expr) -> list[ast.expr]:
    match given:
        case ast.Dict(values=parts):
            return parts
    return [given]


def _is_tensor(script: Script, read: Read) -> bool:
    """Whether nothing but a tensor is read; what may be None besides, or a number of Python's that
    is asked for its ``item()``, would be an error already.
    """
    core, by_method = read.core, read.how == "item" and is_method(read.node, "item")
    if all(
        isinstance(t, Tensor) or t == Const(None) or (by_method and is_one_number(t))
        for t in script.values(core)
    ):
        return True
    here = [getattr(s, "value", None) for s in statements_beside(statement_of(core))]
    backwards = (call.func.value for call in here if is_method(call, "backward"))
    return any(script.analysis(Flow).is_same(loss, core) for loss in backwards)


def on_device(thing: object) -> bool:
    """Whether it is a tensor that may be on a device."""
    return isinstance(thing, Tensor) and thing.device != "cpu"


def without_detach(expr: ast.expr) -> ast.expr:
    """``loss`` of ``loss.detach().cpu()`` and ``loss.data``."""
    while True:
        if is_method(expr) and not expr.args and not expr.keywords:
            if expr.func.attr not in ("detach", "cpu"):
                return expr
            expr = expr.func.value
        elif is_attribute(expr, "data"):
            expr = expr.value
        else:
            return expr


def by_statement(found: list[Read]) -> list[tuple[ast.stmt, list[Read]]]:
    return list(grouped((read.statement, read) for read in found).items())


def gives_the_same(script: Script, expr: ast.expr) -> bool:
    """Whether an expression gives the same when it is computed twice: nothing in it draws numbers,
    or takes the next of something.
    """
    for node in ast.walk(expr):
        if isinstance(node, (ast.NamedExpr, ast.Await, ast.Yield)):
            return False
        if isinstance(node, ast.Call):
            of = script.values(node.func.value) if is_method(node) else NOTHING
            name = short_name(node.func)
            tensors = (
                certainly(of, Tensor) and not is_in_place(name, flags=True) and not draws(name)
            )
            if not tensors and name not in ("len", "size", "numel", "float", "int"):
                return False
    return True
