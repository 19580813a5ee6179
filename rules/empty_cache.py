"""empty-cache: do not empty the allocator's cache, or wait for the GPU, in every step."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from autofast.edit.edits import Remove
from autofast.facts.comments import said_beside
from autofast.facts.cost import gains
from autofast.facts.switches import in_every_epoch, in_every_iteration, whole_statement
from autofast.facts.timed import takes_time_of_parts, tells_times
from autofast.flow.positions import index_in_block
from autofast.flow.slices import is_unused
from autofast.model.events import Site, inside
from autofast.model.names import CLOCKS, SYNCHRONIZE
from autofast.model.roles import Transfer
from autofast.model.script import Script
from autofast.model.several import any_in
from autofast.model.source import at, block_of, statement_of
from autofast.model.syntax import LOOPS
from autofast.model.values import Arguments, Const, const, is_on_device
from autofast.rule import Effect, Finding, Options, Question, rule

EMPTY = (
    "torch.cuda.empty_cache",
    "torch.mps.empty_cache",
    "torch.xpu.empty_cache",
    "torch.accelerator.empty_cache",
)
OWN_ORDER = tuple(
    """torch.cuda.Stream torch.cuda.stream torch.cuda.Event torch.cuda.CUDAGraph torch.cuda.graph
    torch.cuda.set_stream""".split()
)
# What comments say where memory was short once.
SCARCE = "a comment there says that memory did not suffice"
SHORT = re.compile(
    r"\bOOM\b|out[- ]of[- ](\w+[- ])?memory|memory (leak|error)|fragment", re.IGNORECASE
)
QUIET = (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign)


@rule("empty-cache", Effect.EXACT, groups=("sync",), relieves={"host": 5}, asks=gains.waits)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Do not empty the allocator's cache, or wait for the GPU, in every step."""
    for site in script.calls(*EMPTY):
        yield from _remove(
            script,
            site,
            "gives all unused GPU memory back in every step, only to ask for it again",
            SCARCE if said_beside(statement_of(site.node), SHORT) else "",
            gains.usual(0.2, "memory is given back and asked for again"),
        )
        if in_every_epoch(script, site):
            yield Finding(
                site.node,
                "gives all unused GPU memory back in every epoch, only to ask for it again",
                advice="leave it out, unless another program on the GPU needs the memory: the allocator does it by itself before it runs out",
            )
    for site in script.calls(*SYNCHRONIZE):
        yield from _remove(
            script,
            site,
            "waits for the GPU in every step, which then waits for the host",
            _needed(script, site),
        )
    for site in [*script.calls("torch.distributed.barrier"), *script.methods("wait_for_everyone")]:
        if in_every_iteration(script, site) and _is_barrier(site):
            if _after_gradients(script, site):
                why = ""
            else:
                why = "nothing shows that all processes have just exchanged their gradients"
            yield from _remove(
                script, site, "makes all processes wait for each other in every step", why
            )
    for site in script.calls("gc.collect"):
        if in_every_iteration(script, site):
            yield Finding(
                site.node,
                "collects garbage in every step",
                advice="collect once an epoch, if memory allows: Python does it by itself too",
            )


def _remove(
    script: Script, site: Site, message: str, why: str, asks: Question | None = None
) -> Iterator[Finding]:
    """A finding where the call is reached in every step: behind an option or in an error handler it
    is there on purpose.
    """
    if in_every_iteration(script, site) is None:
        return
    stmt = whole_statement(script, site.node)
    if stmt is None:
        return
    if why:
        yield Finding(site.node, message, refusal=why)
    else:
        yield Finding(site.node, message, edits=(Remove(stmt),), asks=asks)


# ------------------------------------------------------------------------------ waiting for the GPU
def _needed(script: Script, site: Site) -> str:
    """Why the program waits on purpose; empty where nothing shows that."""
    found = in_every_iteration(script, site)
    if found is not None and (clock := _clock(script, found[0])) is not None:
        return f"the time is taken in the same loop ({at(clock)}): without waiting it would be that of launching only"
    for other in script.calls(*OWN_ORDER):
        return f"{at(other)} works with streams of its own, which this may keep in order"
    for transfer in script.transfers:
        if _may_leave_device(transfer) and _asynchronous(transfer.args):
            return (
                f"{at(transfer)} copies to the host without waiting: the values are read after this"
            )
    for copy in script.methods("copy_"):
        if any(not is_on_device(o.this) and _asynchronous(o.args) for o in copy):
            return (
                f"{at(copy)} may copy to the host without waiting: the values are read after this"
            )
    for other in script.log.of(
        ".isend", ".irecv", "torch.distributed.isend", "torch.distributed.irecv"
    ):
        return f"{at(other)} communicates in the background"
    for _, other in script.log.each():
        if any(
            "async_op" in o.args.named and const(o.args.named["async_op"].values) is not False
            for o in other
        ):
            return f"{at(other)} communicates in the background"
    return ""


def _clock(script: Script, loop: ast.AST) -> Site | None:
    """Where the time of a part of a turn is taken, or that of single turns is shown; not that of
    whole turns which is only shown in few of them: on average it is what it was.
    """
    for clock in script.calls(*CLOCKS, "torch.cuda.Event"):
        used = clock.call is None or not is_unused(script, clock.call)
        if used and any(inside(o.stack, loop) for o in clock):
            whole = isinstance(loop, LOOPS) and not takes_time_of_parts(script, loop)
            if not whole or tells_times(script, loop) is not None:  # type: ignore[arg-type]
                return clock
    return None


def _may_leave_device(transfer: Transfer) -> bool:
    return "cpu" in transfer.kinds and (
        transfer.kinds <= {"cpu"} or any(t.device == "dev" or t.models for t in transfer.tensors)
    )


def _asynchronous(args: Arguments) -> bool:
    """``non_blocking=True``, by name or by position."""
    named = args.named.get("non_blocking")
    if named is not None:
        return const(named.values) is not False
    return any(const(given.values) is True for given in args.positional[1:])


# --------------------------------------------------------------------------- waiting for each other
def _is_barrier(site: Site) -> bool:
    if site.kind == ".wait_for_everyone":
        return all(getattr(o.this, "name", "") == "accelerate.Accelerator" for o in site)
    return all(all(v.values == {Const(None)} for v in o.args.named.values()) for o in site)


def _after_gradients(script: Script, site: Site) -> bool:
    """Between the backward of the step, whose exchange of gradients all processes wait for, and
    here the same happens in all of them.
    """
    if not (
        "accelerate" in script.frameworks
        or any(w.name.endswith("DistributedDataParallel") for m in script.models for w in m.wraps)
    ):
        return False
    stmt = statement_of(site.node)
    before = block_of(stmt)
    before = before[: index_in_block(before, stmt)]
    backwards = {n for step in script.steps for b in step.backwards for n in [b.node]}
    for earlier in reversed(before):
        if any_in(ast.walk(earlier), backwards):
            return True
        if not isinstance(earlier, QUIET):
            return False
    return False
