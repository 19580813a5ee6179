"""Where a training starts and ends, so that the group of processes is made before and left after
it; and what is chosen once for all.

The extent of a training is the innermost function (or the module) below which everything happens
that belongs to the training: datasets, models, optimizers, steps, evaluations. The group is made
before its first statement that does anything but read the command line.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from autofast.edit.edits import After, Before, Edit, Rewrite
from autofast.facts.set_up import chooses_devices
from autofast.flow.graph import Function
from autofast.flow.positions import common_frames, is_sure, node_in, place_in
from autofast.model.events import (
    BranchFrame,
    CallFrame,
    GuardFrame,
    LoopFrame,
    Occurrence,
    Stack,
    TryFrame,
    is_undecided,
)
from autofast.model.script import Script
from autofast.model.several import wordset
from autofast.model.source import at, parent_of
from autofast.model.values import (
    OBJECTS,
    Arg,
    Const,
    Ext,
    any_of,
    begins,
    certainly,
    const,
    is_const,
    names_of,
    of_kind,
)
from autofast.rule import Refusal
from autofast.techniques.ddp.names import Ranks
from autofast.write.spelling import uses_gpu

QUIET = tuple(
    """argparse. builtins. .add_argument .parse_ .add_mutually .add_argument_group .add_subparsers
    .set_defaults""".split()
)
QUIET_KINDS = wordset("set_attribute set_item return iterate augment raise with call_unknown")
SEEDS = tuple(
    "torch.manual_seed torch.seed lightning.seed_everything accelerate.utils.set_seed".split()
)
Happening = tuple[Stack, ast.AST]


@dataclass(eq=False)
class Extent:
    """The code in which a training happens.

    Attributes:
        scope: a function or the module.
        block: the statements of it that hold all, those below a main guard where all are there.
        first: before it the group is made.
        last: after it (before it, where it is a ``return``) the group is left.
    """

    scope: Function
    block: list[ast.stmt]
    first: ast.stmt
    last: ast.stmt

    def statement(self, stack: Stack, node: ast.AST) -> ast.stmt | None:
        """The statement of the block in which something happens."""
        return in_block(self.block, self.scope, stack, node)


def in_block(
    block: list[ast.stmt], scope: Function, stack: Stack, node: ast.AST
) -> ast.stmt | None:
    """The statement of ``block`` (in the code of ``scope``) below which the script comes to
    ``node``; None where it is not below it.
    """
    here = node_in(scope, stack, node)
    place = -1 if here is None else place_in(block, here)
    return block[place] if place >= 0 else None


def extent_of(script: Script, happenings: Iterable[Happening]) -> Extent:
    """The extent that holds all ``happenings``; raises :class:`Refusal`."""
    stacks = [stack for stack, _ in happenings]
    calls = [tuple(of_kind(stack, CallFrame)) for stack in stacks]
    common = calls[0]
    for other in calls[1:]:
        common = common[: common_frames(common, other)]
    scope: Function = script.entry.tree
    if common:
        scope = common[-1].func.node
        _check_once(stacks, common[-1])
    block = _block_of(scope, stacks)
    first = _first(script, scope, block)
    last = _last(scope, block, stacks)
    return Extent(scope, block, first, last)


def _check_once(stacks: list[Stack], call: CallFrame) -> None:
    for stack in stacks:
        for frame in stack:
            if frame is call or (isinstance(frame, CallFrame) and frame.node is call.node):
                break
            if isinstance(frame, (LoopFrame, TryFrame)) or (
                is_undecided(frame) and frame.arm is False
            ):
                if isinstance(frame, BranchFrame):
                    continue
                raise Refusal(
                    f"{call.func.name}() may run several times or be cut off ({at(frame)})"
                )


def _block_of(scope: Function, stacks: list[Stack]) -> list[ast.stmt]:
    """The body of it: below the main guard where everything is there."""
    if isinstance(scope, ast.Lambda):
        raise Refusal(f"the training is started by a lambda ({at(scope)})")
    body = scope.body
    guards = {f.node: f.node for stack in stacks for f in stack if isinstance(f, GuardFrame)}
    inside = isinstance(scope, ast.Module) and all(any_of(stack, GuardFrame) for stack in stacks)
    if inside and len(guards) == 1 and isinstance(guard := next(iter(guards.values())), ast.If):
        return guard.body
    return body


def _first(script: Script, scope: Function, block: list[ast.stmt]) -> ast.stmt:
    order = {s: n for n, s in enumerate(block)}
    first = len(block)
    for (kind, _), site in script.log.each():
        if kind in QUIET_KINDS or kind.startswith(QUIET):
            continue
        for occurrence in site:
            if kind == "new" and (occurrence.this is None or not _matters(occurrence)):
                continue
            statement = in_block(block, scope, occurrence.stack, site.node)
            if statement is not None:
                first = min(first, order[statement])
    if first == len(block):
        raise Refusal("where the training starts is not known")
    return block[first]


def _matters(occurrence: Occurrence) -> bool:
    """Not an object of the command line's."""
    return not begins(occurrence.this, Ext, ("argparse.", "builtins."))


def _last(scope: Function, block: list[ast.stmt], stacks: list[Stack]) -> ast.stmt:
    """The last statement of the block: the last one of the module is below the main guard, where
    the training is there.
    """
    last = block[-1]
    guards = {f.node for stack in stacks for f in stack if isinstance(f, GuardFrame)}
    if isinstance(last, ast.If) and last in guards:
        return last.body[-1]
    return last


# ---------------------------------------------------------------------------------------- the group
def group(script: Script, ranks: Ranks, extent: Extent) -> list[Edit]:
    """The statements that make the group and leave it.

    The work of the last collective is kept in a variable. Without that, gloo's own thread may be
    the last to hold it, and waits for the GIL to let it go, while the wrapped model, with the GIL,
    ends the group and waits for that thread (measured with torch 2.13: one run in six hung).
    """
    node = extent.first
    torch, dist = ranks.torch(node), ranks.dist(node)
    lines = []
    backend = '"gloo"'
    if gpu := uses_gpu(script):
        lines += [
            f"if {torch}.cuda.is_available():",
            f"    {torch}.cuda.set_device({ranks.local(node)})",
        ]
        backend = f'"cpu:gloo,cuda:nccl" if {torch}.cuda.is_available() else "gloo"'
    lines.append(f"{dist}.init_process_group({backend})")
    lines += _one_seed(script, ranks, extent)
    world = f"{ranks.world(node)} > 1"
    start = f'{world} and __name__ == "__main__"' if ranks.imported_again(node) else world
    edits: list[Edit] = [
        Before(node, f"if {start}:\n" + "".join(f"    {line}\n" for line in lines))
    ]
    if gpu and (chosen := next(chooses_devices(script), None)) is not None:
        raise Refusal(
            f"CUDA_VISIBLE_DEVICES is set on {at(chosen)}: leave the choice to the shell that starts torchrun"
        )
    name = ranks.fresh("together", "all_together")
    end = (
        f"if {world}:\n"
        "    # kept until the group has ended: its thread must not be the last to let go of it\n"
        f"    {name} = {dist}.barrier(async_op=True)\n"
        f"    {name}.wait()\n"
        f"    {dist}.destroy_process_group()"
    )
    edits.append(
        Before(extent.last, end)
        if isinstance(extent.last, ast.Return) or _leaves(script, extent.last)
        else After(extent.last, end)
    )
    return edits


def _leaves(script: Script, statement: ast.stmt) -> bool:
    """``sys.exit()`` at the end."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    names = names_of(script.called(call))
    return bool(names & {"sys.exit", "builtins.exit", "builtins.quit", "os._exit"})


def _one_seed(script: Script, ranks: Ranks, extent: Extent) -> list[str]:
    """Where the script seeds not all that it draws from: splits, data and first weights must still
    be the same everywhere.
    """
    loose = []
    for module, seeds in (
        ("torch", SEEDS),
        ("numpy.random", ("numpy.random.seed",)),
        ("random", ("random.seed",)),
    ):
        used = module == "torch" or any(
            kind.startswith(f"{module}.") for (kind, _), _ in script.log.each()
        )
        if used and not any(is_sure(o) and _fixed(o) for s in script.calls(*seeds) for o in s):
            loose.append(module)
    if not loose:
        return []
    torch, dist, node = ranks.torch(extent.first), ranks.dist(extent.first), extent.first
    name = ranks.fresh("seed", "shared_seed", "first_seed")
    lines = [f"{name} = [{torch}.initial_seed()]", f"{dist}.broadcast_object_list({name})"]
    made = {
        "torch": f"manual_seed({name}[0])",
        "numpy.random": f"seed({name}[0] % 2**32)",
        "random": f"seed({name}[0])",
    }
    return lines + [
        f"{torch if module == 'torch' else _spelled(ranks, module, node)}.{made[module]}"
        for module in loose
    ]


def _spelled(ranks: Ranks, module: str, node: ast.AST) -> str:
    if module == "numpy.random":
        return f"{ranks.module('numpy', node)}.random"
    return ranks.module(module, node)


def _fixed(occurrence: Occurrence) -> bool:
    """Seeded by a constant or an option, not by something that is drawn or read from the clock."""
    return certainly(
        occurrence.args.positional[0].values if occurrence.args.positional else frozenset(),
        Const,
        Arg,
    )


def own_seeds(ranks: Ranks, script: Script, node: ast.AST) -> list[str]:
    """From here on, every rank draws its own random numbers."""
    torch, rank = ranks.torch(node), ranks.rank(node)
    lines = [
        "# from here on, every rank draws its own random numbers",
        f"{torch}.manual_seed({torch}.initial_seed() + {rank})",
    ]
    kinds = {kind for (kind, _), _ in script.log.each()}
    if any(k.startswith("numpy.random.") for k in kinds):
        lines.append(
            f"{ranks.module('numpy', node)}.random.seed(({torch}.initial_seed() + {rank}) % 2**32)"
        )
    if any(k.startswith("random.") for k in kinds):
        lines.append(f"{ranks.module('random', node)}.seed({torch}.initial_seed() + {rank})")
    return lines


# -------------------------------------------------------------------------------- devices by number
def devices(script: Script, ranks: Ranks) -> list[Edit]:
    """``cuda:0`` is this process's own GPU; raises :class:`Refusal` where the script chooses
    another.
    """
    edits: list[Edit] = []
    for node in script.each(ast.Constant):
        if isinstance(node.value, str) and node.value.startswith("cuda:") and script.reached(node):
            if node.value != "cuda:0":
                raise Refusal(
                    f"`{node.value}` on {at(node)}: give each process its own GPU first, by `cuda`"
                )
            if isinstance(parent_of(node), (ast.Compare, ast.JoinedStr)):
                raise Refusal(f"`cuda:0` is part of a condition or a text on {at(node)}")
            edits.append(Rewrite(node, f'f"cuda:{{{{{ranks.local(node)}}}}}"'))
    for site in script.calls("torch.cuda.set_device", "torch.cuda.device"):
        if site.call and site.call.args:
            edits += _numbered(script, ranks, site.call.args[0])
    for kind in ("move", "move_model", "torch.device"):
        for site in script.log.of(kind):
            if site.call:
                given = [
                    *site.call.args,
                    *(k.value for k in site.call.keywords if k.arg == "device"),
                ]
                for expr in given if kind == "torch.device" else given[:1]:
                    edits += _numbered(script, ranks, expr)
    return list({id(getattr(e, "expr", e)): e for e in edits}.values())


def _numbered(script: Script, ranks: Ranks, expr: ast.expr) -> Iterator[Edit]:
    """The edit for a GPU that is given by its number."""
    numbers = {
        t.value for t in script.values(expr) if is_const(t, int) and not isinstance(t.value, bool)
    }
    options = [t for t in of_kind(script.values(expr), Arg) if isinstance(const(t.default), int)]
    if options or numbers - {0}:
        raise Refusal(
            f"the GPU is chosen by its number (`{ast.unparse(expr)}` on {at(expr)}): leave the choice to torchrun"
        )
    if numbers:
        if not isinstance(expr, ast.Constant):
            raise Refusal(
                f"the GPU is chosen by its number (`{ast.unparse(expr)}` on {at(expr)}): leave the choice to torchrun"
            )
        yield Rewrite(expr, ranks.local(expr))


def made_at(thing: object) -> Happening | None:
    if isinstance(thing, OBJECTS) and thing.node is not None:
        return thing.made, thing.node
    return None
