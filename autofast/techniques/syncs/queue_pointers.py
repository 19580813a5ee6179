"""Where a queue on the device is written next, as a buffer says: ``ptr = int(self.queue_ptr)``
waits for it in every step, as MoCo's dictionary of keys does.

The pointer stays a tensor: columns ``ptr`` to ``ptr + n`` are those at ``ptr + torch.arange(n)``,
which take only what is of their type and device. The buffer holds the same numbers, so checkpoints
are what they were.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import Edit, Replace, Rewrite
from autofast.facts.cost import gains
from autofast.facts.parts import moved_models, parts_of
from autofast.facts.switches import frequent_nodes
from autofast.flow.scopes import binds, declared, mentions
from autofast.model.calls import is_name, items_of, names_in, only_target, put_into
from autofast.model.script import Script
from autofast.model.several import all_of, any_in, surely
from autofast.model.source import function_of, parent_of, source_of, statement_of
from autofast.model.syntax import SEQUENCES, VARIABLES, is_attribute, is_read
from autofast.model.values import Tensor, Thing, const
from autofast.rule import Finding
from autofast.techniques.syncs.scalar_tensors import is_scalar
from autofast.write.spelling import torch_in

SIGNS = (ast.Add, ast.Sub, ast.Mod)
MESSAGE = "reads `{}` from the device in every step, to write to a queue there"


def queue_pointers(script: Script) -> Iterator[Finding]:
    """Each read of such a pointer whose queues can be written to by tensors of indices."""
    calls = {n: n for _, n in frequent_nodes(script, ast.Call)} if script.analysis(_buffers) else {}
    for call in calls:
        name = put_into(call)
        match call:
            case ast.Call(args=[ast.Attribute() as pointer]) if (
                isinstance(name, ast.Name)
                and script.is_call(call, "builtins.int")
                and _is_buffer(script, pointer)
                and surely(map(_is_pointer, script.values(pointer)))
            ):
                if edits := _edits(script, call, pointer, name):
                    message = MESSAGE.format(ast.unparse(pointer))
                    yield Finding(call, message, edits=edits, asks=gains.read_back)


def _buffers(script: Script) -> set[object]:
    """The names of the buffers of models."""
    return {const(o.args.get(0, "name")) for s in script.methods("register_buffer") for o in s}


def _is_buffer(script: Script, held: ast.expr) -> bool:
    """Whether it is a tensor that goes to the device with its module."""
    return (
        is_attribute(held)
        and held.attr in script.analysis(_buffers)
        and any_in(map(id, script.values(held.value)), parts_of(*moved_models(script)))
        and script.must_be(held, Tensor)
    )


def _is_pointer(thing: Thing) -> bool:
    """``torch.zeros(1, dtype=torch.long)``, ``torch.tensor([0])``: with a dimension, or none."""
    match thing:
        case Tensor(dtype="int", made=ast.Call(args=[part])):
            given = part.elts if isinstance(part, SEQUENCES) else [part]
            return len(given) < 2 and all_of(given, ast.Constant)
    return False


def _edits(
    script: Script, call: ast.Call, pointer: ast.Attribute, name: ast.Name
) -> tuple[Edit, ...]:
    """None where the number is used in another way."""
    scope = function_of(name)
    if not binds(scope, name.id) or name.id in declared(scope):
        return ()
    torch, imports = torch_in(source_of(call))
    edits: dict[ast.stmt, Edit] = {}
    for use in mentions(scope, name.id):
        statement = statement_of(use)
        target = only_target(statement)
        if function_of(use) is not scope or target is None:
            return ()
        if not is_read(use):
            value: ast.expr = statement.value  # type: ignore[attr-defined]
            if use is not target or (use is not name and name.id not in names_in(value)):
                return ()  # but `ptr = (ptr + n) % size`
        elif isinstance(parent_of(use), ast.Slice) or _is_upper(use):
            if (code := _written(script, statement, name.id, torch)) is None:
                return ()
            edits[statement] = Replace(statement, code, {"v": statement.value})  # type: ignore[attr-defined]
        elif not (_goes_on(script, use, statement, name.id) and _is_own(target, pointer, name.id)):
            return ()
    kept = Rewrite(call, "{p}.clone()", {"p": pointer})
    return (*imports, kept, *edits.values()) if edits else ()


def _is_upper(use: ast.Name) -> bool:
    """``ptr`` of ``[ptr : ptr + n]``"""
    added = parent_of(use)
    return isinstance(added, ast.BinOp) and isinstance(parent_of(added), ast.Slice)


def _written(script: Script, statement: ast.stmt, name: str, torch: str) -> str | None:
    """``queue[:, ptr + torch.arange(n)] = {v}.to(queue)`` of ``queue[:, ptr : ptr + n] = keys``."""
    source, parts, cuts = source_of(statement), [], 0
    target = only_target(statement)
    value: ast.expr = statement.value  # type: ignore[attr-defined]
    # A number, or a tensor like one, also goes into what a slice leaves off at the end.
    if not script.must_be(value, Tensor) or is_scalar(script, value):
        return None
    if not isinstance(target, ast.Subscript) or name in names_in(value):
        return None
    for part in items_of(target.slice):
        match part:
            case ast.Slice(lower=None, upper=None, step=None):
                parts.append(":")
            case ast.Slice(
                lower=ast.Name(id=low),
                upper=ast.BinOp(left=ast.Name(id=high), op=ast.Add(), right=size),
                step=None,
            ) if low == high == name and not script.may_be(size, Tensor):
                cuts += 1
                text = source.segment(size)
                parts.append(f"{name} + {torch}.arange({text}, device={name}.device)")
            case _:
                return None
    queue = source.segment(target.value)
    given = "{v}" if isinstance(value, (*VARIABLES, ast.Call)) else "({v})"
    whole = f"{queue}[{', '.join(parts)}] = {given}.to({queue})"
    return whole if cuts == 1 and _is_buffer(script, target.value) else None


def _goes_on(script: Script, use: ast.expr, statement: ast.stmt, name: str) -> bool:
    """Whether the statement does nothing but to compute a number with it, by other numbers."""
    while (outer := parent_of(use)) is not statement:
        if not isinstance(outer, ast.BinOp) or not isinstance(outer.op, SIGNS):
            return False
        other = outer.right if outer.left is use else outer.left
        if script.may_be(other, Tensor) or name in names_in(other):
            return False
        use = outer
    return use is getattr(statement, "value", None)


def _is_own(target: ast.expr, pointer: ast.Attribute, name: str) -> bool:
    """``ptr`` and ``self.queue_ptr[0]``"""
    match target:
        case ast.Subscript(value=ast.Attribute() as held, slice=ast.Constant(value=0)):
            return ast.dump(held.value) == ast.dump(pointer.value) and held.attr == pointer.attr
    return is_name(target, name)
