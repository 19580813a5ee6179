"""Each process gets its share of every training batch: a DistributedSampler, and a part of the
batch size.

With ``W`` processes that divide the batch, batch ``i`` of all processes together holds the same
samples as batch ``i`` of one process that goes through the same order; an epoch has the same number
of batches. The sampler repeats a few samples where the dataset does not divide.

Each epoch of a loader that is shared out goes through the samples in another order.
"""

from __future__ import annotations

import ast

from autofast.edit.edits import Before, Edit, Keyword, Rewrite, Wrap, plain_code
from autofast.facts.loaders import Whole, loader_argument, plain_text, whole_batches
from autofast.facts.updates import cadence
from autofast.flow.loops import loop_of
from autofast.flow.positions import computed_before, is_always
from autofast.flow.program import definitions_of
from autofast.flow.scopes import is_local, stored_in
from autofast.model.calls import literal_of, short_name
from autofast.model.events import LoopFrame, Stack
from autofast.model.kinds import is_loader
from autofast.model.names import first_part
from autofast.model.roles import Loader, Step
from autofast.model.script import Script
from autofast.model.several import any_in, of_kind, surely
from autofast.model.source import at, contains_kind, function_of, parent_of, statement_of
from autofast.model.syntax import is_constant
from autofast.model.values import Ext, Given, any_of, const
from autofast.rule import Refusal
from autofast.techniques.ddp.names import Ranks
from autofast.write.reach import Reach
from autofast.write.spelling import argument_expression

SAMPLER = "torch.utils.data.distributed", "DistributedSampler"


def share(script: Script, ranks: Ranks, loader: Loader) -> list[Edit]:
    """Gives each process its share of what ``loader`` gives."""
    if (whole := whole_batches(loader)) is not None:
        return _of_whole_batches(ranks, loader, whole)
    wanted = {
        name: loader_argument(loader, name)
        for name in ("batch_size", "shuffle", "drop_last", "dataset")
    }
    through = [g for g in wanted.values() if g is not None and g.via]
    if through:
        return _through_dict(script, ranks, loader, wanted)
    for name, value in wanted.items():
        if value is not None and (
            argument_expression(loader.node, value) is None or not value.sure
        ):
            raise Refusal(
                f"`{name}` of the loader on {at(loader)} is given in a way that cannot be changed"
            )
    return _at_call(script, ranks, loader, wanted)


def _of_whole_batches(ranks: Ranks, loader: Loader, whole: Whole) -> list[Edit]:
    dataset = loader_argument(loader, "dataset")
    assert dataset is not None and dataset.expr is not None
    arguments = [plain_text(dataset.expr), *([] if whole.random else ["shuffle=False"])]
    if whole.drop is not None and not is_constant(whole.drop, False):
        arguments.append(f"drop_last={ast.unparse(whole.drop)}")
    made = plain_code(f"{ranks.imported(*SAMPLER, loader.node)}({', '.join(arguments)})")
    shared = f"{made} if {ranks.several(loader.node)} else {{}}"
    return [Wrap(whole.inner, shared), Wrap(whole.size, f"{{}} // {ranks.world(loader.node)}")]


def _expr(wanted: dict[str, Given | None], name: str) -> ast.expr | None:
    value = wanted[name]
    return value.expr if value is not None else None


def _at_call(
    script: Script, ranks: Ranks, loader: Loader, wanted: dict[str, Given | None]
) -> list[Edit]:
    call, statement = loader.node, statement_of(loader.node)
    if not is_always(call, statement):
        raise Refusal(
            f"the loader on {at(call)} is made inside an expression: make it in a statement of its own"
        )
    dataset, size, shuffle = (_expr(wanted, name) for name in ("dataset", "batch_size", "shuffle"))
    assert dataset is not None and size is not None
    world = ranks.world(call)
    edits: list[Edit] = []
    lines, holes = [], {}
    name = plain_text(dataset)
    if not name:
        if any_of(computed_before(dataset), ast.Call):
            raise Refusal(
                f"the dataset of the loader on {at(call)} is made after other things in one statement: put it into a variable"
            )
        name = _name(script, ranks, loader, _dataset_name(script))
        lines.append(f"{name} = {{dataset}}")
        holes = {"dataset": dataset}
        edits.append(Rewrite(dataset, name))
    sampler = _name(script, ranks, loader)
    made, order = _sampler(ranks, loader, plain_code(name), wanted)
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
    name = ""
    match parent_of(loader.node):
        case ast.Assign(targets=[target, *_]):
            name = short_name(target)
        case ast.Dict(keys=keys, values=values):
            text = literal_of(
                next(k for k, v in zip(keys, values, strict=True) if v is loader.node)
            )
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
    if contains_kind(value.expr, ast.Call, ast.NamedExpr, ast.Await):
        raise Refusal(
            f"`{ast.unparse(value.expr)}` on {at(value.expr)} cannot be written twice: put it into a variable"
        )
    return plain_code(ast.unparse(value.expr))


def _through_dict(
    script: Script, ranks: Ranks, loader: Loader, wanted: dict[str, Given | None]
) -> list[Edit]:
    """``DataLoader(data, **kwargs)``: what is in ``kwargs`` is changed just before, in a copy where
    others use it, too.
    """
    call, where = loader.node, at(loader)
    spread = [k.value for k in call.keywords if k.arg is None]
    if len(spread) != 1 or not isinstance(spread[0], ast.Name):
        raise Refusal(f"the loader on {where} gets its arguments through more than one variable")
    if len(loader.things) != 1 or loop_of(call) is not None:
        raise Refusal(f"the loader on {where} is made several times: give it arguments of its own")
    dataset, size, shuffle, drop = (
        wanted[n] for n in ("dataset", "batch_size", "shuffle", "drop_last")
    )
    assert dataset is not None and size is not None
    if dataset.via or dataset.expr is None or not plain_text(dataset.expr):
        raise Refusal(f"the dataset of the loader on {where} is not in a variable: put it into one")
    table, edits = spread[0].id, list[Edit]()
    lines: list[str] = []
    if not is_local(spread[0]) or table in definitions_of(script, call).live_after(
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
            plain_text(dataset.expr),
            f"shuffle={order}",
            *([f"drop_last={dropped}"] if dropped else []),
        ]
        share.append(f'{table}["sampler"] = {ranks.imported(*SAMPLER, call)}({", ".join(given)})')
        share.append(f'{table}["shuffle"] = False')
    else:
        sampler = _name(script, ranks, loader)
        made, random = _sampler(
            ranks, loader, plain_text(dataset.expr), {**wanted, "drop_last": None}, dropped
        )
        lines.append(f"{sampler} = {made} if {ranks.several(call)} else None")
        edits += [
            Keyword(call, "sampler", sampler),
            *_not_shuffled(_expr(wanted, "shuffle"), random, sampler),
        ]
    if share:
        lines += [f"if {ranks.several(call)}:", *(f"    {line}" for line in share)]
    return [Before(statement_of(call), plain_code("\n".join(lines))), *edits]


def _own(call: ast.Call, value: Given, name: str) -> ast.expr:
    expr = argument_expression(call, value)
    if expr is None or not value.sure:
        raise Refusal(
            f"`{name}` of the loader on {at(call)} is given in a way that cannot be changed"
        )
    return expr


def epochs_of(step: Step, stack: Stack) -> ast.AST | None:
    """The loop around a training loop, across calls."""
    loops = [f for f in of_kind(stack, LoopFrame) if not f.unrolled]
    mine = next((n for n, f in enumerate(loops) if f.node is step.loop), None)
    return loops[mine - 1].node if mine else None


def another_order(script: Script, ranks: Ranks, loader: Loader) -> list[Edit]:
    """Another order in every epoch: DistributedSampler draws it from a seed and the epoch."""
    shuffle, whole = loader_argument(loader, "shuffle"), whole_batches(loader)
    if not (
        whole.random
        if whole is not None
        else shuffle is not None and const(shuffle.values) is not False
    ):
        return []
    sampler = "sampler" if whole is None else "sampler.sampler"
    edits: list[Edit] = []
    for step in script.steps:
        if not any_in(step.loaders, loader.things):
            continue
        stacks = [
            o.stack
            for b in step.backwards
            for o in b.site
            if any(f.node is step.loop for f in o.stack)
        ]
        outer = {e: e for s in stacks if (e := epochs_of(step, s)) is not None}
        if not outer:
            continue
        assert isinstance(step.loop, ast.For)
        edits += _by_number(
            script, ranks, loader, step, stacks, list(outer.values()), sampler
        ) or _by_count(script, ranks, step, sampler)
    return edits


def loader_expr(script: Script, loop: ast.For) -> ast.expr:
    """The loader in what a loop goes over, without counters and bars."""
    things = {t for x in script.loaders for t in x.things}
    expr: ast.expr = loop.iter
    for _ in range(5):
        found = script.values(expr)
        if surely(is_loader(t) and t in things for t in found):
            return expr
        inner = cadence.inside_bar(found)
        if inner is None:
            break
        expr = inner
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
    if function_of(step.loop) is scope and plain_text(expr):
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
        first_part(name).split("[")[0] in stored_in(loop)
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
    match expr:
        case ast.Call(func=ast.Name("range")):
            return True
        case ast.Call(args=[inner, *_]):
            names = [t.name for t in script.values(expr) if isinstance(t, Ext)]
            bar = surely(n.startswith("tqdm.") for n in names)
            return bar and _counts(script, inner)
    return False


def _by_count(script: Script, ranks: Ranks, step: Step, sampler: str) -> list[Edit]:
    """The sampler counts: its epoch grows by one before each pass."""
    assert isinstance(step.loop, ast.For)
    expr = loader_expr(script, step.loop)
    name = plain_text(expr)
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
