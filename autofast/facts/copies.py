"""What is copied to the device, and whether another source of the same values may be copied in its
place.
"""

from __future__ import annotations

import ast
from collections.abc import Set

from autofast.facts.batch.samples import is_all
from autofast.flow.memory import Memory
from autofast.flow.program import definitions_at
from autofast.model.calls import is_method, items_of
from autofast.model.roles import Transfer
from autofast.model.script import Script
from autofast.model.several import of_kind, surely, wordset
from autofast.model.source import at
from autofast.model.syntax import is_constant
from autofast.model.values import Const, Num, Ref, Tensor, is_named

OF_ARRAYS = wordset("torch.from_numpy torch.as_tensor torch.asarray")
# Of Tensor.to and Tensor.cuda: they leave the values alone.
PLAIN = wordset("device non_blocking memory_format")


def batch_dtypes(script: Script, expr: ast.expr) -> set[str]:
    """The dtypes of a tensor of a batch in host memory (as in ``Tensor.dtype``); empty where
    ``expr`` may be anything else.
    """
    found = script.values(expr)
    if not all(
        isinstance(t, Tensor) and t.batch and t.device != "dev" and t.rank != "?" for t in found
    ):
        return set()
    return {t.dtype for t in found if isinstance(t, Tensor)}


# A loader gives hardly anything in these: what is cast to one is made anew on the host, while
# `long()` may leave a batch as it is, and `float()` one that is known to be in fp32.
RECAST = ("double", "half", "bfloat16")


def is_batch_memory(script: Script, source: ast.expr) -> bool:
    """Whether the memory of a batch may be what is copied, not that of something computed from it
    on the host, or of a NumPy array.
    """
    call = source
    while is_method(call) and (found := script.called(call)):
        if all(is_named(t, Ref, OF_ARRAYS) for t in found):
            return False  # pin_memory knows tensors only
        if _recasts(script, call):
            return False
        call = call.func.value
    if isinstance(call, ast.Name):
        made = [d.value for d in definitions_at(script, call)]
        if surely(_recasts(script, m) or _is_apart(script, m) for m in made):
            return False
    if _is_apart(script, call):
        return False
    return script.analysis(Memory).made_by(source) is None


def _is_apart(script: Script, part: ast.AST | None) -> bool:
    """``x[:, 1:]``: its numbers do not lie together, so the host puts them into other memory before
    they are copied, which is not pinned.
    """
    match part:
        case ast.Subscript(value=whole, slice=index) if script.must_be(whole, Tensor):
            parts = [p for p in items_of(index) if not is_constant(p, None)]
        case _:
            return False
    while parts and not is_all(parts[0]) and script.must_be(parts[0], Const, Num):
        parts = parts[1:]  # one row, which lies together
    return any(not is_all(p) for p in parts[1:])


def _recasts(script: Script, call: ast.AST | None) -> bool:
    if is_method(call, "float"):
        return batch_dtypes(script, call.func.value) != {"f32"}
    return is_method(call, *RECAST)


def against_source(
    script: Script, transfer: Transfer, batch: ast.expr, smaller: Set[str] = frozenset({"int"})
) -> str:
    """Why what ``batch`` holds may not be copied where floats made of it are, which others than the
    ``smaller`` dtypes may be larger than; empty where nothing speaks against it.
    """
    name = ast.unparse(batch)
    dtypes = batch_dtypes(script, batch)
    if not dtypes or not dtypes <= smaller:
        return f"it is not certain that `{name}` holds integers: others are not smaller than the floats"
    if why := against_copy(transfer, name):
        return why
    if (place := written_batch(script, batch)) is not None:
        return f"`{name}` is changed in place ({at(place)}), perhaps while it is copied"
    return ""


def against_copy(transfer: Transfer, name: str) -> str:
    """Why what is copied may not be cast behind the copy; empty where nothing speaks against it."""
    args = transfer.args
    if not transfer.to_device:
        return f"the device to which `{name}` goes is not known"
    if not args.known or len(args.positional) > 1 or not set(args.named) <= PLAIN:
        return "the copy is given more than a device: it may be a cast as well"
    return ""


def written_batch(script: Script, batch: ast.expr) -> ast.AST | None:
    """A place that writes to host memory of the batches of loaders that ``batch`` is of."""
    loaders = frozenset[object]().union(
        *(t.batch for t in script.values(batch) if isinstance(t, Tensor))
    )
    memory = script.analysis(Memory)
    for node in script.nodes:
        for target in memory.written(node):
            if not (isinstance(node, ast.AugAssign) and memory.begins_as_number(target)) and any(
                t.batch & loaders and t.device != "dev"
                for t in of_kind(script.values(target), Tensor)
            ):
                return node
    return None


def several_gpus(script: Script) -> bool:
    """Whether the script names more than one GPU: its tensors may live on different ones."""
    named: set[object] = set()
    for site in script.log.of("move", "move_model", "torch.device"):
        for occurrence in site:
            for given in occurrence.args.every:
                named |= {t.value for t in of_kind(given.values, Const) if _names_gpu(t.value)}
    return len(named) > 1


def _names_gpu(value: object) -> bool:
    return type(value) is int or (isinstance(value, str) and value.startswith("cuda:"))
