"""Loops over batches that are copied to the device at their head, and could be copied during the
step before."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from autofast.edit.edits import Edits, Helper, Remove, Wrap, plain_code
from autofast.facts.loaders import has_workers, is_managed, own_order
from autofast.model.calls import pairs_of
from autofast.model.roles import Loader, Transfer
from autofast.model.script import Script
from autofast.model.source import at, source_of, walk
from autofast.model.values import Ref, Tensor, Values
from autofast.rule import Refusal
from autofast.techniques.transfers.copies import device_above
from autofast.write.spelling import may_be_mps, torch_in

NAME = "prefetched"
HELPER = '''\
def {name}(loader, device):
    """Batches on the device: each is copied on a stream of its own, during the step before it."""
    stream = {torch}.cuda.Stream(device) if {torch}.device(device).type == "cuda" else None
    ahead = None
    for batch in loader:
        with {torch}.cuda.stream(stream):
            batch = {copied}
        if ahead is not None:
            yield ahead
        if stream is not None:
            {torch}.cuda.current_stream(device).wait_stream(stream)
            {recorded}
        ahead = batch
    if ahead is not None:
        yield ahead
'''
COPIED = ("[x.to(device, non_blocking=True) for x in batch]", "batch.to(device, non_blocking=True)")
RECORDED = (
    "for x in batch:\n                x.record_stream({torch}.cuda.current_stream(device))",
    "batch.record_stream({torch}.cuda.current_stream(device))",
)


@dataclass(frozen=True, eq=False)
class Pass:
    """A loop of training over a loader, and the copies at its head: ``for x, y in loader: x, y =
    x.to(device), y.to(device)``."""

    loop: ast.For
    batches: ast.expr  # what gives the batches, without ``enumerate``
    single: bool  # a batch is one tensor
    copies: tuple[ast.Assign, ...]
    device: ast.expr | None  # None: the current GPU


def training_passes(script: Script) -> Iterator[tuple[Loader, ast.For]]:
    """The loops of training over the batches of a loader."""
    seen = set()
    for loader in script.loaders:
        for use in loader.uses:
            if isinstance(use.node, ast.For) and use.trains and use.node not in seen:
                seen.add(use.node)
                yield loader, use.node


def planned_pass(script: Script, loader: Loader, loop: ast.For) -> Pass:
    """How the loop is to be written; raises :class:`Refusal` where its copies cannot be made
    earlier."""
    if script.unread:
        raise Refusal(script.unread)
    if any(use.node is loop for x in script.loaders if x is not loader for use in x.uses):
        raise Refusal("the loop goes over several loaders")
    if is_managed(script, loader):
        raise Refusal("the framework copies the batches of this loader itself")
    _check_items(loader)
    batches, target = loop.iter, loop.target
    match batches, target:
        case ast.Call(func=func, args=[inner, *_]), ast.Tuple(elts=[_, items]):
            if script.values(func) == {Ref("builtins.enumerate")}:
                batches, target = inner, items
    single = not hasattr(target, "elts")
    parts = [target] if single else list(target.elts)  # type: ignore[attr-defined]
    names = tuple(p.id for p in parts if hasattr(p, "id"))
    if len(names) != len(parts):
        raise Refusal("the parts of a batch are not taken into one variable each")
    copies = _copies(script, loop, set(names))
    device = _device(script, loop, [t for _, transfers in copies for t in transfers])
    return Pass(loop, batches, single, tuple(stmt for stmt, _ in copies), device)


def prefetch_edits(planned: Pass) -> Edits:
    """The loop over ``prefetched(loader, device)`` without its copies, and the function once in the
    file."""
    source = source_of(planned.loop)
    torch, imports = torch_in(source)
    name = source.fresh(NAME)
    code = HELPER.format(
        name=name,
        torch=torch,
        copied=COPIED[planned.single],
        recorded=RECORDED[planned.single].format(torch=torch),
    )
    device = '"cuda"' if planned.device is None else source.segment(planned.device)
    return (
        *imports,
        Helper(source, name, code),
        Wrap(planned.batches, f"{name}({{}}, {plain_code(device)})"),
        *(Remove(stmt) for stmt in planned.copies),
    )


def _check_items(loader: Loader) -> None:
    """Nothing that happens in a step may show in the next batch, which is fetched before the step
    now."""
    if not has_workers(loader):
        raise Refusal(
            "batches are made in the main process, or may be: the next one would be made before the step, "
            "with other random numbers (num_workers)"
        )
    if why := own_order(loader):
        raise Refusal(f"{why}, and a step may change what it gives next")


def _copies(
    script: Script, loop: ast.For, names: set[str]
) -> list[tuple[ast.Assign, list[Transfer]]]:
    """The statements at the head of the loop that copy the batch, each part once."""
    known = {t.node: t for t in script.transfers}
    found: list[tuple[ast.Assign, list[Transfer]]] = []
    missing = set(names)
    for stmt in loop.body:
        match stmt:
            case ast.Assign(targets=[target]) if copied := _copied_by(stmt, target, known):
                if not copied.keys() <= missing:
                    break
                found.append((stmt, list(copied.values())))
                missing -= copied.keys()
            case _ if any(getattr(n, "id", "") in names for n in walk(stmt)):
                break
        if not missing:
            return found
    left = ", ".join(f"`{n}`" for n in sorted(missing))
    raise Refusal(f"{left} of the batch stays on the host, or is used before it is copied")


def _copied_by(
    stmt: ast.Assign, target: ast.expr, known: Mapping[ast.Call, Transfer]
) -> dict[str, Transfer]:
    """The names that ``x, y = x.to(device), y.to(device)`` copies; empty where it does anything
    else."""
    found = {}
    for pair in pairs_of(target, stmt.value):
        match pair:
            case ast.Name(id=name), ast.Call(func=ast.Attribute(value=ast.Name(id=of))) as call if (
                of == name and call in known
            ):
                found[name] = known[call]
            case _:
                return {}
    return found


def _device(script: Script, loop: ast.For, transfers: list[Transfer]) -> ast.expr | None:
    """The one device that all copies go to, whose expression means the same in the head of the
    loop."""
    texts: dict[str, ast.expr | None] = {}
    for transfer in transfers:
        if any(not isinstance(t, Tensor) or t.device != "cpu" for t in _copied(script, transfer)):
            raise Refusal(f"what {at(transfer)} copies may be no tensor of the host")
        if not transfer.kinds or not transfer.only_moves:
            raise Refusal("does more than to copy", transfer)
        if may_be_mps(script, transfer.kinds):
            raise Refusal("the device may be MPS, where there are no streams of CUDA")
        expr = device_above(transfer, loop)
        texts[source_of(transfer.node).segment(expr) if expr is not None else ""] = expr
    if len(texts) != 1:
        raise Refusal("the parts of a batch are copied to devices that are written differently")
    (expr,) = texts.values()
    return expr


def _copied(script: Script, transfer: Transfer) -> Values:
    receiver = getattr(transfer.node.func, "value", None)
    return script.values(receiver) if receiver is not None else frozenset()
