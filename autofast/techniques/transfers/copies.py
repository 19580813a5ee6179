"""Copies to the device that happen again and again, and why one must wait."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from autofast.edit.edits import Edit, Keyword
from autofast.facts.aliases import HANDED, tensor_writes
from autofast.facts.batch_escapes import BatchEscapes
from autofast.facts.loaders import cannot_pin, is_managed, of_array, pinning_advice, stays_unpinned
from autofast.flow import scopes
from autofast.flow.memory import Memory
from autofast.flow.program import graph_of
from autofast.model.calls import is_method, literal_of, may_give, short_name
from autofast.model.events import BranchFrame, Occurrence, Site, below, inside, loops
from autofast.model.roles import Transfer
from autofast.model.script import Script
from autofast.model.several import any_in, wordset
from autofast.model.source import ancestors, at, is_same_function, nodes_in, parent_of, source_of
from autofast.model.syntax import LOOPS, VARIABLES
from autofast.model.tensors import NOT_CUDA
from autofast.model.values import (
    NOTHING,
    STATE_DICT,
    Ext,
    Inst,
    Tensor,
    Thing,
    Unknown,
    Values,
    all_of,
    any_of,
    is_scalar,
    of_kind,
    why_unknown,
)
from autofast.read.requirements import rules_out
from autofast.rule import Refusal
from autofast.write.spelling import argument_expression, is_device_object, may_be_mps, torch_in

SHARED = wordset(
    "numpy __array__ asarray asanyarray from_dlpack Tensor FloatTensor"
)  # arrays in its memory
GRAPHS = "torch-geometric"
SHAPES = wordset("squeeze_ unsqueeze_ t_ transpose_ swapaxes_ swapdims_ requires_grad_")


@dataclass(frozen=True, eq=False)
class Move:
    """A copy of something to the device, in a loop: ``x.to(device)`` or ``buffer.copy_(x)``."""

    node: ast.Call
    source: ast.expr  # what is copied
    values: Values
    loaders: list[Thing]
    site: Site
    transfer: Transfer | None = None


def batch_copies(script: Script) -> Iterator[Move]:
    """The blocking copies of batches that happen again and again."""
    for transfer in script.transfers:
        moved = transfer.operand
        if moved is None or not transfer.loaders or _spelled_out(transfer):
            continue
        if not any(t.device == "cpu" for t in transfer.tensors):
            continue  # it is there already
        if _repeated(transfer) and _to_gpu(transfer):
            yield Move(
                transfer.node,
                moved,
                script.values(moved),
                transfer.loaders,
                transfer.site,
                transfer,
            )
    for site in script.methods("copy_"):
        node = site.call
        if node is None or len(node.args) != 1 or node.keywords:
            continue
        receivers = [o.this for o in site]
        found = script.values(node.args[0])
        loaders = list({id(x): x for t in found if isinstance(t, Tensor) for x in t.batch}.values())
        if (
            loaders
            and all_of(receivers, Tensor)
            and any(t.device == "dev" for t in receivers if isinstance(t, Tensor))
        ):
            yield Move(node, node.args[0], found, loaders, site)


def _repeated(transfer: Transfer) -> bool:
    return any(isinstance(f.node, LOOPS) for f in transfer.loops)


def _to_gpu(transfer: Transfer) -> bool:
    if transfer.how == "type":
        return "cuda" in transfer.kinds
    return (
        transfer.how in ("to", "cuda")
        and bool(transfer.kinds & {"cuda", *NOT_CUDA})
        and "tensor" not in transfer.kinds
    )


def _spelled_out(transfer: Transfer) -> bool:
    """The call says already whether it waits: ``non_blocking=...``, or by position."""
    node, most = transfer.node, 2 if transfer.how == "to" else 1
    flags = [a for a in node.args if isinstance(literal_of(a), bool)]
    return bool(flags) or len(node.args) > most or may_give(node, "non_blocking")


def why_not_asynchronous(script: Script, move: Move) -> str:
    """Why this copy must stay as it is; empty where nothing speaks against."""
    text = source_of(move.node).segment(move.source)
    if unknown := why_unknown(move.values):
        return f"what `{text}` is is not known: {unknown}"
    if any_of(move.values, Inst, Ext):
        return f"`{text}` may be no tensor: its own .to() need not take non_blocking"
    if isinstance(move.source, ast.Name) and (old := rules_out(script, (1, 5), GRAPHS)):
        return f"{old}, and the .to() of its batches took no non_blocking then"
    if any(t.device != "cpu" for t in move.values if isinstance(t, Tensor)) and not _to_the_models(
        script, move
    ):
        return f"`{text}` may be on a GPU: a copy back that does not wait would be read before it is there"
    for loader in script.loaders:
        if not any_in(move.loaders, loader.things):
            continue
        if is_managed(script, loader):
            return f"the framework moves the batches of this loader ({at(loader)}): this copy does nothing and can go"
        if why := stays_unpinned(script, loader):
            return f"{why} ({at(loader)}): only pinned memory is copied in the background"
        if pinning_advice(loader) or _is_part(script, move):
            return f"the batches of {at(loader)} are objects without pin_memory(): only pinned memory is copied in the background"
    if of_array(script, move.source):
        return "it is made of an array where it is copied, in memory that no loader pins: the host waits for such a copy"
    if written := _written_after(script, move):
        return f"the batch is changed in place afterwards ({written}), perhaps while it is still being copied"
    return ""


def _to_the_models(script: Script, move: Move) -> bool:
    """Never back to the host: to a GPU, or to where a model is, and what has been moved before is
    there too."""
    transfer = move.transfer
    if transfer is None:
        return False
    if not transfer.kinds & {"cpu", "option", "?"}:
        return True
    targets = [o.data.get("target") for site in script.log.of("move_model") for o in site]
    return transfer.target is not None and any(
        t is not None and t.values == transfer.target.values for t in targets
    )


def _is_part(script: Script, move: Move) -> bool:
    """``batch.images`` of an object that nothing pins."""
    of = move.source.value if isinstance(move.source, ast.Attribute) else None
    return of is not None and any(cannot_pin(t) for t in script.values(of))


def _written_after(script: Script, move: Move) -> str:
    """The line of an in-place change of the batch on the host that follows the copy in the same
    loop over batches."""
    first = move.site.occurrences[0]
    around = loops(first.stack)
    loop = next((f for f in reversed(around) if f.loaders), None)
    # Where the loop itself gives the batches, each turn has another one.
    own = [n for n in ancestors(move.node) if loop is not None and n is loop.node]
    turn = next((n for n in own if isinstance(n, LOOPS)), None)
    # The batch is copied on some ways through the loop alone.
    within = below(first.stack, loop.node) if loop is not None else first.stack
    chosen = any(not f.known for f in of_kind(within, BranchFrame))
    memory, escapes = script.analysis(Memory), script.analysis(BatchEscapes)
    known_of = script.analysis(_Known)
    arrays = {n for n, held in known_of.shared if any(_is_from(t, move.loaders) for t in held)}
    for node, held in known_of.handed:
        if any(_is_from(t, move.loaders) for t in held):
            return f"{at(node)}, under another name"
    for node, changed, written in script.analysis(tensor_writes)[1]:
        call = parent_of(node) if isinstance(node, ast.Attribute) else node
        if is_method(call, *SHAPES):  # another shape of the same memory
            continue
        mine = any(_is_from(t, move.loaders) for t in changed) or (
            written is not None and not arrays.isdisjoint(memory.sources(written))
        )
        anything = call is not node and any_of(changed - {STATE_DICT}, Unknown)
        handed = HANDED in changed
        if not mine and not handed and not anything:
            continue
        apart = handed or not escapes.comes_of(written, move.loaders)
        if not mine and apart and not escapes.escape(move.loaders):
            continue  # nothing that is not followed has got a batch
        if written is not None and memory.is_apart(written):
            continue
        known = [o for s in known_of.sites.get(call, ()) for o in s]
        if known and chosen and all(map(_gets_both, known)):
            continue  # what was copied comes here: what was not, on ways without the copy
        here = handed or (
            is_same_function(node, move.node)
            and graph_of(script, node).may_follow(node, move.node, turn)
        )
        if (not known and (mine or handed) and here) or any(
            o.order > first.order
            and (loop is None or not loop.is_statement or inside(o.stack, loop.node))
            for o in known
        ):
            return at(node)
    return ""


class _Known:
    """``script.analysis(_Known)``: what is asked for each copy of a batch: what happens at a node,
    the host tensors of batches that arrays share memory with, and those in other names' memory.
    """

    def __init__(self, script: Script):
        self.sites: dict[ast.AST | None, list[Site]] = {}
        for _, site in script.log.each():
            self.sites.setdefault(site.node, []).append(site)
        sharing = (n for n in script.each(ast.Call) if short_name(n.func) in SHARED)
        self.shared = [(n, _batches_in(script, n)) for n in sharing]
        handed = script.analysis(Memory).handed
        self.handed = [(node, _batches_in(script, expr)) for node, expr in handed]


def _batches_in(script: Script, expr: ast.expr) -> list[Tensor]:
    """The tensors of batches in an expression and in its parts."""
    found = (t for e in nodes_in(expr, ast.expr) for t in of_kind(script.values(e), Tensor))
    return [t for t in found if t.batch]


def _gets_both(occurrence: Occurrence) -> bool:
    """Whether the same variable holds a batch of the device here, or one of the host."""
    given = [frozenset({occurrence.this}) if occurrence.this else NOTHING]
    given += occurrence.args.all()
    return any({"dev", "cpu"} <= {t.device for t in of_kind(found, Tensor)} for found in given)


def _is_from(thing: Thing | None, loaders: list[Thing]) -> bool:
    """A tensor in host memory with values of a batch, which may be the batch's own memory: the
    result of a sum or a mean is not.
    """
    return (
        isinstance(thing, Tensor)
        and thing.device != "dev"
        and not is_scalar(thing)
        and any_in(thing.batch, loaders)
    )


def asynchronous(script: Script, move: Move) -> Iterator[Edit]:
    """``non_blocking=``: true but on MPS, where such a copy may read memory that is released too
    early (pytorch#139550, #189690)."""
    transfer = move.transfer
    kinds = {"?"} if transfer is None else transfer.kinds if transfer.how != "type" else set()
    if not may_be_mps(script, kinds):
        yield Keyword(move.node, "non_blocking", "True")
        return
    expr = argument_expression(move.node, transfer.target) if transfer is not None else None
    if isinstance(expr, VARIABLES) and is_device_object(script.values(expr)):
        yield Keyword(move.node, "non_blocking", f'{source_of(expr).segment(expr)}.type == "cuda"')
        return
    torch, imports = torch_in(source_of(move.node))
    yield from imports
    yield Keyword(move.node, "non_blocking", f"{torch}.cuda.is_available()")


def device_above(transfer: Transfer, loop: ast.AST) -> ast.expr | None:
    """The device of a copy, where that means the same above the loop; None: the current GPU. Raises
    :class:`Refusal` otherwise."""
    expr = argument_expression(transfer.node, transfer.target)
    if transfer.how == "cuda" and (expr is not None or transfer.target is not None):
        raise Refusal(f"the device of {at(transfer)} may be None, which means the current one")
    match expr:
        case None if transfer.how == "cuda":
            return None
        case ast.Name() | ast.Attribute() | ast.Constant():
            if scopes.loaded_in(expr) & scopes.stored_in(loop):
                raise Refusal("the device is set in the loop")
            return expr
    raise Refusal("the device is worked out in each step")
