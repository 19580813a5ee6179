"""Each process gets its share of every training batch: a DistributedSampler, and a part of the
batch size.

With ``W`` processes that divide the batch, batch ``i`` of all processes together holds the same
samples as batch ``i`` of one process that goes through the same order; an epoch has the same number
of batches. The sampler repeats a few samples where the dataset does not divide.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from autofast.edit.edits import Before, Edit, Keyword, Rewrite, Wrap, literal
from autofast.facts.loaders import given, managed
from autofast.facts.updates import cadence
from autofast.flow.loops import loop_of
from autofast.flow.program import Flow
from autofast.flow.scopes import is_local, stored_in
from autofast.model.calls import is_name, root_of, short_name
from autofast.model.events import LoopFrame, Stack
from autofast.model.kinds import is_loader
from autofast.model.script import Loader, Script, Step
from autofast.model.source import ancestors, at, function_of, holds, parent_of, statement_of
from autofast.model.syntax import DEFS, FUNCTIONS, is_constant
from autofast.model.values import Const, Ext, Given, const
from autofast.rule import Refusal
from autofast.techniques.ddp.names import Ranks
from autofast.write.reach import Reach
from autofast.write.share_helper import is_share
from autofast.write.spelling import spelled

SAMPLER = "torch.utils.data.distributed", "DistributedSampler"
OWN_ORDER = ("sampler", "batch_sampler", "generator", "collate_fn", "worker_init_fn")
PLAIN_ORDERS = "torch.utils.data.RandomSampler", "torch.utils.data.SequentialSampler"
READ = frozenset({"dataset"})  # what may be asked of a loader that gives a share only


# -------------------------------------------------------------------------------------------- which
def loaders_of(script: Script) -> list[Loader]:
    """The loaders whose batches are trained on; raises :class:`Refusal` where one cannot be shared
    out.
    """
    found: dict[int, Loader] = {}
    for step in script.steps:
        _check_step(step)
        for thing in step.loaders:
            loader = next((x for x in script.loaders if any(t is thing for t in x.things)), None)
            if loader is None:
                raise Refusal(
                    f"where the batches of the loop on {at(step.loop)} come from is not known"
                )
            found[id(loader.node)] = loader
    for loader in found.values():
        _check_loader(script, loader)
        _check_uses(script, loader)
    return list(found.values())


def _check_step(step: Step) -> None:
    if not isinstance(step.loop, ast.For) or not step.loaders:
        raise Refusal(
            f"the loop on {at(step.loop)} takes its batches from no DataLoader, so it is not known how to share them out: "
            "put the data into a Dataset and a DataLoader first"
        )
    if len({id(x) for x in step.loaders}) != len(step.loaders) or _zipped(step):
        raise Refusal(f"the loop on {at(step.loop)} goes over several loaders at once")


def _zipped(step: Step) -> bool:
    return isinstance(step.loop, ast.For) and any(
        is_name(n, "zip", "cycle", "chain") for n in ast.walk(step.loop.iter)
    )


@dataclass(frozen=True)
class Whole:
    """A loader whose sampler gives the indices of whole batches:
    ``BatchSampler(RandomSampler(data), batch_size=8, drop_last=False)``.
    """

    inner: ast.Call
    random: bool
    size: ast.expr
    drop: ast.expr | None


def whole_batches(script: Script, loader: Loader) -> Whole | None:
    """How the batches are put together, where the sampler does that in the order of a plain
    loader.
    """
    sampler, dataset = given(loader, "sampler"), given(loader, "dataset")
    if sampler is None or len(sampler.values) != 1 or dataset is None or sampler.via:
        return None
    made = next(iter(sampler.values))
    if (
        not isinstance(made, Ext)
        or made.name != "torch.utils.data.BatchSampler"
        or made.node is not sampler.expr
    ):
        return None
    inner, size, drop = (
        made.args.given(n, name) for n, name in enumerate(("sampler", "batch_size", "drop_last"))
    )
    if (
        inner is None
        or size is None
        or size.expr is None
        or not isinstance(inner.expr, ast.Call)
        or len(inner.values) != 1
    ):
        return None
    order = next(iter(inner.values))
    plain = (
        isinstance(order, Ext)
        and not set(order.args.named) - {"data_source"}
        and len(order.args.positional) <= 1
        and not order.args.open
    )
    if (
        not plain
        or not isinstance(order, Ext)
        or order.name not in PLAIN_ORDERS
        or order.args.get(0, "data_source") != dataset.values
    ):
        return None
    if dataset.expr is None or not _plain(dataset.expr):
        return None
    return Whole(
        inner.expr,
        order.name == PLAIN_ORDERS[0],
        size.expr,
        drop.expr if drop is not None else None,
    )


def size_of(script: Script, loader: Loader) -> Given | None:
    """The argument that is the size of a batch."""
    whole = whole_batches(script, loader)
    return (
        given(loader, "batch_size")
        if whole is None
        else Given(script.values(whole.size), whole.size)
    )


def _check_loader(script: Script, loader: Loader) -> None:
    where = at(loader.node)
    if not all(isinstance(t, Ext) for t in loader.things):
        raise Refusal(f"the loader on {where} is of a class of its own")
    if managed(script, loader):
        raise Refusal("a framework gets the loader and shares its batches out itself")
    if loader.args.open:
        raise Refusal(
            f"the arguments of the loader on {where} are not all known: {loader.args.open}"
        )
    if loader.loop is not None:
        raise Refusal(f"the loader on {where} is made anew in a loop ({at(loader.loop)})")
    for name in ("sampler", "batch_sampler"):
        value = given(loader, name)
        if whole_batches(script, loader) is not None:
            break
        if value is not None and value.values != frozenset({Const(None)}):
            kind = next(
                (t.name.rsplit(".", 1)[-1] for t in value.values if isinstance(t, Ext)), "its own"
            )
            raise Refusal(
                f"the loader on {where} has a {name.replace('_', ' ')} ({kind}): which samples it draws would change if each process got a part"
            )
    for name in ("generator",):
        value = given(loader, name)
        if value is not None and value.values != frozenset({Const(None)}):
            raise Refusal(f"the loader on {where} has a generator of its own for the order")
    collate = given(loader, "collate_fn")
    if collate is not None and collate.values != frozenset({Const(None)}):
        raise Refusal(
            f"the loader on {where} has a collate_fn: batches of different shapes would weigh otherwise in each process"
        )
    size = size_of(script, loader)
    if size is None or const(size.values) in (1, None):
        raise Refusal(
            f"the loader on {where} gives single samples (batch_size {const(size.values) if size else 1}): there is nothing to share out"
        )
    if not loader.datasets:
        raise Refusal(f"the dataset of the loader on {where} is not known")
    for dataset in loader.datasets:
        if dataset.iterable:
            raise Refusal(
                f"{dataset.name} is an IterableDataset: every process would get all of it, unless it shares itself out by rank"
            )
        if dataset.unknown or dataset.kind == "unknown":
            raise Refusal(
                f"what the dataset of the loader on {where} is is not known: {dataset.unknown or dataset.name}"
            )


def _check_uses(script: Script, loader: Loader) -> None:
    for use in loader.uses:
        if use.is_next:
            raise Refusal(
                f"single batches are taken from the loader on {at(use.node)}: go through it in a `for` loop"
            )
        if not use.trains:
            raise Refusal(
                f"the loader on {at(loader.node)} is also gone through without training on {at(use.node)}: make a second one for that"
            )
    for source in script.sources:
        for node in source.nodes:
            if (
                isinstance(node, ast.Attribute)
                and node.attr not in READ
                and not is_share(function_of(node))  # a quotient of numbers that are shares all
                and any(t is x for t in script.values(node.value) for x in loader.things)
            ):
                raise Refusal(
                    f"`{ast.unparse(node)}` on {at(node)} would mean the share of one process"
                )


# --------------------------------------------------------------------------------------- the loader
def share(script: Script, ranks: Ranks, loader: Loader) -> list[Edit]:
    """Gives each process its share of what ``loader`` gives."""
    if (whole := whole_batches(script, loader)) is not None:
        return _of_whole_batches(ranks, loader, whole)
    wanted = {
        name: given(loader, name) for name in ("batch_size", "shuffle", "drop_last", "dataset")
    }
    through = [g for g in wanted.values() if g is not None and g.via]
    if through:
        return _through_dict(script, ranks, loader, wanted)
    for name, value in wanted.items():
        if value is not None and (spelled(loader.node, value) is None or not value.sure):
            raise Refusal(
                f"`{name}` of the loader on {at(loader.node)} is given in a way that cannot be changed"
            )
    return _at_call(script, ranks, loader, wanted)


def _of_whole_batches(ranks: Ranks, loader: Loader, whole: Whole) -> list[Edit]:
    dataset = given(loader, "dataset")
    assert dataset is not None and dataset.expr is not None
    arguments = [_plain(dataset.expr), *([] if whole.random else ["shuffle=False"])]
    if whole.drop is not None and not is_constant(whole.drop, False):
        arguments.append(f"drop_last={ast.unparse(whole.drop)}")
    made = literal(f"{ranks.imported(*SAMPLER, loader.node)}({', '.join(arguments)})")
    shared = f"{made} if {ranks.several(loader.node)} else {{}}"
    return [Wrap(whole.inner, shared), Wrap(whole.size, f"{{}} // {ranks.world(loader.node)}")]


def _expr(wanted: dict[str, Given | None], name: str) -> ast.expr | None:
    value = wanted[name]
    return value.expr if value is not None else None


def _at_call(
    script: Script, ranks: Ranks, loader: Loader, wanted: dict[str, Given | None]
) -> list[Edit]:
    call, statement = loader.node, statement_of(loader.node)
    if any(
        isinstance(
            a, (*FUNCTIONS, ast.GeneratorExp, ast.ListComp, ast.DictComp, ast.IfExp, ast.BoolOp)
        )
        and not isinstance(a, DEFS)
        for a in _inside(call, statement)
    ):
        raise Refusal(
            f"the loader on {at(call)} is made inside an expression: make it in a statement of its own"
        )
    dataset, size, shuffle = (_expr(wanted, name) for name in ("dataset", "batch_size", "shuffle"))
    assert dataset is not None and size is not None
    world = ranks.world(call)
    edits: list[Edit] = []
    lines, holes = [], {}
    name = _plain(dataset)
    if not name:
        if any(isinstance(n, ast.Call) for n in _before(dataset, statement)):
            raise Refusal(
                f"the dataset of the loader on {at(call)} is made after other things in one statement: put it into a variable"
            )
        name = _name(script, ranks, loader, _dataset_name(script))
        lines.append(f"{name} = {{dataset}}")
        holes = {"dataset": dataset}
        edits.append(Rewrite(dataset, name))
    sampler = _name(script, ranks, loader)
    made, order = _sampler(ranks, loader, literal(name), wanted)
    lines.append(f"{sampler} = {made} if {ranks.several(call)} else None")
    edits += [
        Before(statement, "\n".join(lines), holes),
        Keyword(call, "sampler", sampler),
        Wrap(size, f"{{}} // {world}"),
    ]
    return [*edits, *_not_shuffled(shuffle, order, sampler)]


def _not_shuffled(shuffle: ast.expr | None, order: bool | None, sampler: str) -> list[Edit]:
    """A loader with a sampler must not shuffle."""
    if shuffle is None or order is False:
        return []
    if order is True:
        return [Rewrite(shuffle, f"{sampler} is None")]
    return [Rewrite(shuffle, f"{{shuffle}} and {sampler} is None", {"shuffle": shuffle})]


def _inside(call: ast.expr, statement: ast.stmt) -> Iterator[ast.AST]:
    for outer in ancestors(call):
        if outer is statement:
            return
        yield outer


def _plain(expr: ast.expr) -> str:
    """The text of a variable or attribute; empty for what may not be written twice."""
    root = root_of(expr)
    if (
        isinstance(root, ast.Subscript)
        and isinstance(root.slice, ast.Constant)
        and isinstance(root.value, ast.Name)
    ):
        return ast.unparse(expr) if root is expr else ""
    return ast.unparse(expr) if isinstance(root, ast.Name) else ""


def _before(expr: ast.expr, statement: ast.stmt) -> Iterator[ast.AST]:
    """What a statement computes before one of its expressions."""
    around = {id(outer) for outer in _inside(expr, statement)}
    start = expr.lineno, expr.col_offset
    for node in ast.walk(statement):
        if isinstance(node, ast.expr) and id(node) not in around:
            if (node.lineno, node.col_offset) < start:
                yield node


def _name(script: Script, ranks: Ranks, loader: Loader, dataset: str = "") -> str:
    """A name for the sampler, or the ``dataset``, that no other loader of the same statement
    gets.
    """
    taken: list[str] = []
    for other in script.loaders:
        if statement_of(other.node) is statement_of(loader.node):
            taken.append(ranks.fresh(dataset or _sampler_name(other), besides=taken))
            if other.node is loader.node:
                break
    return taken[-1]


def _dataset_name(script: Script) -> str:
    return "train_data" if len([x for x in script.loaders if x.trains]) == 1 else "shared_data"


def _sampler_name(loader: Loader) -> str:
    """``train_sampler`` for ``train_loader``."""
    parent = parent_of(loader.node)
    name = short_name(parent.targets[0]) if isinstance(parent, ast.Assign) else ""
    if isinstance(parent, ast.Dict):
        key = next(k for k, v in zip(parent.keys, parent.values, strict=True) if v is loader.node)
        text = key.value if isinstance(key, ast.Constant) else None
        name = text if isinstance(text, str) and text.isidentifier() else ""
    for ending in ("_dataloader", "_loader", "_dl", "dataloader", "loader"):
        if name.endswith(ending) and name != ending:
            return f"{name[: -len(ending)].rstrip('_')}_sampler"
    return "sampler" if name in ("loader", "dataloader", "") else f"{name}_sampler"


def _sampler(
    ranks: Ranks,
    loader: Loader,
    dataset: str,
    wanted: dict[str, Given | None],
    dropped: str | None = None,
) -> tuple[str, bool | None]:
    """The code of the sampler, and whether the order is random: None where that depends on the
    run.
    """
    cls = ranks.imported(*SAMPLER, loader.node)
    shuffle, drop = wanted["shuffle"], wanted["drop_last"]
    order = False if shuffle is None else const(shuffle.values)
    order = order if isinstance(order, bool) else None
    given = [dataset]
    if order is not True:
        given.append("shuffle=False" if order is False else f"shuffle={_text(shuffle, loader)}")
    if dropped is not None:
        given.append(f"drop_last={dropped}")
    elif drop is not None and const(drop.values) is not False:
        given.append(
            "drop_last=True" if const(drop.values) is True else f"drop_last={_text(drop, loader)}"
        )
    return f"{cls}({', '.join(given)})", order


def _text(value: Given | None, loader: Loader) -> str:
    assert value is not None and value.expr is not None
    if holds(value.expr, ast.Call, ast.NamedExpr, ast.Await):
        raise Refusal(
            f"`{ast.unparse(value.expr)}` on {at(value.expr)} cannot be written twice: put it into a variable"
        )
    return literal(ast.unparse(value.expr))


def _through_dict(
    script: Script, ranks: Ranks, loader: Loader, wanted: dict[str, Given | None]
) -> list[Edit]:
    """``DataLoader(data, **kwargs)``: what is in ``kwargs`` is changed just before, in a copy where
    others use it, too.
    """
    call, where = loader.node, at(loader.node)
    spread = [k.value for k in call.keywords if k.arg is None]
    if len(spread) != 1 or not isinstance(spread[0], ast.Name):
        raise Refusal(f"the loader on {where} gets its arguments through more than one variable")
    if len(loader.things) != 1 or loop_of(call) is not None:
        raise Refusal(f"the loader on {where} is made several times: give it arguments of its own")
    dataset, size, shuffle, drop = (
        wanted[n] for n in ("dataset", "batch_size", "shuffle", "drop_last")
    )
    assert dataset is not None and size is not None
    if dataset.via or dataset.expr is None or not _plain(dataset.expr):
        raise Refusal(f"the dataset of the loader on {where} is not in a variable: put it into one")
    table, edits = spread[0].id, list[Edit]()
    lines: list[str] = []
    if not is_local(spread[0]) or table in script.analysis(Flow).definitions(call).live_after(
        statement_of(call)
    ):
        original, table = table, _name(script, ranks, loader).replace("sampler", "args")
        lines.append(f"{table} = dict({original})")
        edits.append(Rewrite(spread[0], table))
    world = ranks.world(call)
    share: list[str] = []
    if not size.via:
        edits.append(Wrap(_own(call, size, "batch_size"), f"{{}} // {world}"))
    elif size.sure:
        share.append(f'{table}["batch_size"] //= {world}')
    else:
        raise Refusal(f"whether the loader on {where} has a batch size depends on the run")
    dropped = _text(drop, loader) if drop is not None and not drop.via else None
    if drop is not None and drop.via:
        dropped = f'{table}["drop_last"]' if drop.sure else f'{table}.get("drop_last", False)'
    if shuffle is not None and shuffle.via:
        order = f'{table}["shuffle"]' if shuffle.sure else f'{table}.get("shuffle", False)'
        given = [
            _plain(dataset.expr),
            f"shuffle={order}",
            *([f"drop_last={dropped}"] if dropped else []),
        ]
        share.append(f'{table}["sampler"] = {ranks.imported(*SAMPLER, call)}({", ".join(given)})')
        share.append(f'{table}["shuffle"] = False')
    else:
        sampler = _name(script, ranks, loader)
        made, random = _sampler(
            ranks, loader, _plain(dataset.expr), {**wanted, "drop_last": None}, dropped
        )
        lines.append(f"{sampler} = {made} if {ranks.several(call)} else None")
        edits += [
            Keyword(call, "sampler", sampler),
            *_not_shuffled(_expr(wanted, "shuffle"), random, sampler),
        ]
    if share:
        lines += [f"if {ranks.several(call)}:", *(f"    {line}" for line in share)]
    return [
        Before(statement_of(call), literal("\n".join(lines))),
        *edits,
    ]


def _own(call: ast.Call, value: Given, name: str) -> ast.expr:
    expr = spelled(call, value)
    if expr is None or not value.sure:
        raise Refusal(
            f"`{name}` of the loader on {at(call)} is given in a way that cannot be changed"
        )
    return expr


# ---------------------------------------------------------------------------------------- the epoch
def epochs_of(step: Step, stack: Stack) -> ast.AST | None:
    """The loop around a training loop, across calls."""
    loops = [f for f in stack if isinstance(f, LoopFrame) and not f.unrolled]
    mine = next((n for n, f in enumerate(loops) if f.node is step.loop), None)
    return loops[mine - 1].node if mine else None


def another_order(script: Script, ranks: Ranks, loader: Loader) -> list[Edit]:
    """Another order in every epoch: DistributedSampler draws it from a seed and the epoch."""
    shuffle, whole = given(loader, "shuffle"), whole_batches(script, loader)
    if not (
        whole.random
        if whole is not None
        else shuffle is not None and const(shuffle.values) is not False
    ):
        return []
    sampler = "sampler" if whole is None else "sampler.sampler"
    edits: list[Edit] = []
    for step in script.steps:
        if not any(t is x for t in step.loaders for x in loader.things):
            continue
        stacks = [
            o.stack
            for b in step.backwards
            for o in b.site
            if any(f.node is step.loop for f in o.stack)
        ]
        outer = {id(e): e for s in stacks if (e := epochs_of(step, s)) is not None}
        if not outer:
            continue
        assert isinstance(step.loop, ast.For)
        edits += _by_number(
            script, ranks, loader, step, stacks, list(outer.values()), sampler
        ) or _by_count(script, ranks, step, sampler)
    return edits


def loader_expr(script: Script, loop: ast.For) -> ast.expr:
    """The loader in what a loop goes over, without counters and bars."""
    things = {id(t) for x in script.loaders for t in x.things}
    expr: ast.expr = loop.iter
    for _ in range(5):
        found = script.values(expr)
        if found and all(is_loader(t) and id(t) in things for t in found):
            return expr
        inner = {
            id(t.args.positional[0].expr): t.args.positional[0].expr
            for t in found
            if isinstance(t, Ext) and t.args.positional
        }
        plain = all(isinstance(t, Ext) and t.name.startswith(cadence.BARS) for t in found)
        (step,) = inner.values() if len(inner) == 1 else (None,)
        if not found or not plain or step is None:
            break
        expr = step
    raise Refusal(f"what the loop on {at(loop)} goes over is not known")


def _by_number(
    script: Script,
    ranks: Ranks,
    loader: Loader,
    step: Step,
    stacks: list[Stack],
    outer: list[ast.AST],
    sampler: str,
) -> list[Edit]:
    """``sampler.set_epoch(epoch)`` at the beginning of the loop over epochs, where both are to be
    had; else nothing.
    """
    loop = outer[0]
    if (
        len(outer) != 1
        or not isinstance(loop, ast.For)
        or not isinstance(loop.target, ast.Name)
        or not _counts(script, loop.iter)
    ):
        return []
    if set(loop.target.id) == {"_"}:
        return []
    assert isinstance(step.loop, ast.For)
    expr = loader_expr(script, step.loop)
    scope = function_of(loop)
    if function_of(step.loop) is scope and _plain(expr):
        name = ast.unparse(expr)
    else:
        reach = Reach(script, "loader", expr, loader.things, stacks)
        try:
            name = reach.to(scope)
        except Refusal:
            return []
        if reach.edits:
            return []
    if (
        name.split(".")[0].split("[")[0] in stored_in(loop)
        or not name.isidentifier()
        and "." not in name
    ):
        return []
    return [
        Before(
            loop.body[0],
            f"if {ranks.world(loop)} > 1:\n    {name}.{sampler}.set_epoch({loop.target.id})",
        )
    ]


def _counts(script: Script, expr: ast.expr) -> bool:
    """``range(...)``, perhaps in a progress bar."""
    names = [t.name for t in script.values(expr) if isinstance(t, Ext)]
    if isinstance(expr, ast.Call) and is_name(expr.func, "range"):
        return True
    bar = (
        isinstance(expr, ast.Call)
        and bool(expr.args)
        and bool(names)
        and all(n.startswith("tqdm.") for n in names)
    )
    return bar and isinstance(expr, ast.Call) and _counts(script, expr.args[0])


def _by_count(script: Script, ranks: Ranks, step: Step, sampler: str) -> list[Edit]:
    """The sampler counts: its epoch grows by one before each pass."""
    assert isinstance(step.loop, ast.For)
    expr = loader_expr(script, step.loop)
    name = _plain(expr)
    if not name:
        raise Refusal(
            f"the loader in `{ast.unparse(expr)}` on {at(step.loop)} has no name: put it into a variable"
        )
    place = f"{name}.{sampler}"
    return [
        Before(
            step.loop, f"if {ranks.world(step.loop)} > 1:\n    {place}.set_epoch({place}.epoch + 1)"
        )
    ]
