"""Loaders whose data can lie on the device: which, what speaks against it, and what is written."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from autofast.edit.edits import (
    Before,
    DropKeyword,
    Edit,
    Edits,
    Helper,
    Keyword,
    Rewrite,
    Written,
    plain_code,
)
from autofast.facts.augmentations import Augmentation
from autofast.facts.datasets import (
    returns_tuple,
    stored_tensors,
    why_not_rows,
)
from autofast.facts.extents import in_order, most_numbers
from autofast.facts.host_batches import computes_on_host, needs_host, shared_copies
from autofast.facts.loader_uses import ITERATING
from autofast.facts.loaders import (
    DEVICE_DEFAULTS,
    is_iterated_again,
    is_used,
    loader_argument,
    own_order,
)
from autofast.facts.several_processes import several_processes
from autofast.flow.program import Flow
from autofast.model.calls import variable_name
from autofast.model.events import LoopFrame
from autofast.model.roles import Loader
from autofast.model.script import Script
from autofast.model.several import surely, wordset
from autofast.model.source import at, is_at_top, source_of, statement_of
from autofast.model.syntax import VARIABLES
from autofast.model.values import Const, Thing, const
from autofast.rule import Effect, Options, Refusal
from autofast.techniques.loading.batched import (
    SIZES,
    batched_arguments,
    is_batched,
    looked_at,
    name_for_data,
    spelled_beside,
    statement_above,
    why_another,
    why_not_movable,
)
from autofast.techniques.loading.image_batches import function_text, name_of
from autofast.techniques.loading.resident_batches import (
    Batches,
    batch_method,
    batches_of,
    stored_batches,
)
from autofast.techniques.loading.resident_items import (
    ITEMS,
    ROWS,
    all_items,
    augmented_images,
    is_longer,
    may_vary,
)
from autofast.write.device_at import device_at
from autofast.write.spelling import chooses_devices_late, chooses_gpu_late, torch_in, uses_gpu

# Arguments that say nothing where no batch is made on the host.
OF_WORKERS = wordset("""num_workers pin_memory pin_memory_device persistent_workers prefetch_factor timeout worker_init_fn
    multiprocessing_context""")
ROOM = """\
def {name}(tensors, device):
    \"\"\"A dataset of them, on the device where they leave half of its free memory.\"\"\"
    size = sum(t.numel() * t.element_size() for t in tensors)
    if {torch}.device(device).type == "cuda" and size < {torch}.cuda.mem_get_info(device)[0] / 2:
        tensors = [t.to(device) for t in tensors]
    return {dataset}(*tensors)
"""
SMALL = 10**8  # numbers, of eight bytes at the most: every GPU has room for them


@dataclass(frozen=True)
class Kept:
    """Data are kept on the device: other rules on loaders have nothing to do there."""


class Augmented:
    """The decision that images which are cropped and flipped at random are kept on the device as
    well, and cropped and flipped there.
    """


@dataclass(frozen=True)
class Plan:
    """A loader whose data can lie on the device: how all its items are made, and where its batches
    go.

    ``items``: an expression for all, or the function that makes all images.
    ``made``: how images are cropped and flipped.
    ``batches``: a method of the dataset makes them at once, how.
    ``longer``: what it stores may have more rows than it has items.
    """

    loader: Loader
    dataset: ast.expr
    items: str
    device: str
    imports: Edits
    effect: Effect
    made: Augmentation | None = None
    batches: Batches | None = None
    longer: bool = False


def resident_plans(script: Script, options: Options) -> list[tuple[Loader, Plan | str]]:
    """The loaders whose data could be kept on the device, with a plan or the reason against it."""
    if options.target == "cpu" or not uses_gpu(script):
        return []
    found = script.analysis(_drawn if options.decides(Augmented) else _Plans).found
    if several_processes(options):
        return [(x, p if isinstance(p, str) else SEVERAL) for x, p in found]
    return found


SEVERAL = "several processes are to train, and each would keep all the data"


def random_images(loader: Loader) -> bool:
    """Whether it loads images of a library's that are made with random numbers."""
    return any(d.kind == "library" and d.random for d in loader.datasets)


def remaining_loaders(script: Script, options: Options) -> list[Loader]:
    """The loaders that go on as they are, for rules that use what decides :class:`Kept` and about
    processes: on the others there is nothing more to do.
    """
    kept = {x for x in script.loaders if x.kept}
    kept |= {x for x, _ in made_resident(script, options)}
    return [x for x in script.loaders if x not in kept]


def made_resident(script: Script, options: Options) -> list[tuple[Loader, Plan]]:
    """The loaders whose data come to lie on the device, as far as the rules are on that decide
    :class:`Kept` and :class:`Augmented`.
    """
    return [
        (x, plan)
        for x, plan in resident_plans(script, options)
        if isinstance(plan, Plan) and options.decides(Augmented if plan.made else Kept)
    ]


def is_left(script: Script, options: Options, things: list[Thing]) -> bool:
    """Whether some of these loaders, whose batches something gets, goes on as it is."""
    found = remaining_loaders(script, options)
    return any(t in things for loader in found for t in loader.things)


class _Plans:
    def __init__(self, script: Script, drawn: bool = False) -> None:
        """``drawn``: also for images that are cropped and flipped at random."""
        self.script = script
        self.found: list[tuple[Loader, Plan | str]] = []
        for loader in script.loaders:
            if not is_used(script, loader) or loader.kept or is_batched(loader):
                continue  # single items, or batches that the data make themselves
            if not _lie_in_memory(loader):
                if why := why_another(loader):
                    self.found.append((loader, why))
                continue
            try:
                self.found.append((loader, _plan(script, loader, drawn)))
            except Refusal as why:
                self.found.append((loader, str(why)))
        self._only_beside_training()

    def _only_beside_training(self) -> None:
        """A loader for evaluation alone is not worth its lines."""
        if not any(isinstance(p, Plan) and x.trains for x, p in self.found):
            self.found = [(x, p) for x, p in self.found if isinstance(p, str) and x.trains]


def _drawn(script: Script) -> _Plans:
    return _Plans(script, drawn=True)


def resident_edits(script: Script, plan: Plan) -> Edits:
    """The data on the device, and the loader that takes whole batches of them."""
    call = plan.loader.node
    source, statement, dataset = source_of(call), statement_of(call), plan.dataset
    torch, imports = torch_in(source)
    holes = {"data": dataset}
    data, lines = source.segment(dataset), ""
    if not isinstance(dataset, VARIABLES):
        once = plan.items == ROWS and not plan.longer
        data = "{data}" if once else name_for_data(call, dataset, "dataset")
        lines = f"{data} = {{data}}\n" * (not once)
    found: list[Edit] = [*imports, *plan.imports]
    parts = ["t"]
    if plan.batches is not None:
        parts, items, collate, more = stored_batches(plan.loader, plan.batches, data, plan.longer)
        found += [*more, *batch_method(plan.batches), Keyword(call, "collate_fn", collate)]
    elif plan.items == ITEMS:
        spelled, more = spelled_beside(call, "default_collate")
        items = ITEMS.format(collate=spelled, data=data)
        found += more
    elif plan.items == ROWS:
        items = f"{data}[: len({data})]" if plan.longer else f"{data}[:]"
        if script.is_call(dataset, "torch.utils.data.TensorDataset"):
            if not any(isinstance(a, ast.Starred) for a in dataset.args):
                holes |= {f"part_{n}": part for n, part in enumerate(dataset.args)}
                parts, items = [f"{{part_{n}}}" for n in range(len(dataset.args))], ""
    else:
        name = source.fresh("padded_tensors" if ".pad(" in plan.items else "as_tensors")
        found.append(Helper(source, name, plan.items.format(name=name, torch=torch)))
        items = f"{name}({data})"
    if plan.made is not None:
        name = source.fresh(name_of(plan.made))
        found.append(Helper(source, name, function_text(plan.made, name, torch)))
        found.append(Keyword(call, "collate_fn", name))
    name = name_for_data(call, dataset, "data", "tensors")
    made, more = _on_device(script, plan, parts, items)
    order, others = batched_arguments(plan.loader, name, _spread(plan.loader))
    sampler = name_for_data(call, dataset, "batches", "sampler")
    lines = f"{lines}{name} = {made}\n{sampler} = {plain_code(order)}"
    found += [*more, *others, Before(statement, lines, holes), Rewrite(dataset, name)]
    found.append(Keyword(call, "sampler", sampler))
    gone = (k.arg or "**" for k in call.keywords if k.arg is None or k.arg in OF_WORKERS)
    return (*found, *(DropKeyword(call, word) for word in gone))


def _on_device(script: Script, plan: Plan, parts: list[str], items: str) -> Written:
    """A dataset on the device, of these tensors or of one for each ``t`` of the items; where they
    may be large, if it has room for them.
    """
    loader, source = plan.loader, source_of(plan.loader.node)
    dataset, imports = spelled_beside(loader.node, "TensorDataset")
    # The sets of torchvision that lie in memory are small, in their own size.
    kept = [
        expr
        for d in loader.datasets
        if d.kind != "library"
        for expr, _ in stored_tensors(script, d) or [(None, [])]
    ]
    small = sum(most_numbers(script, e) for e in kept) < SMALL
    laid_out = [plan.items != ROWS or (e is not None and in_order(script, e)) for e in kept]
    if len(laid_out) != len(parts):
        laid_out = [all(laid_out)] * len(parts)
    device = plain_code(plan.device)
    move = f".to({device})" * small
    made = ", ".join(
        part + move + ".contiguous()" * (not plain)
        for part, plain in zip(parts, laid_out, strict=True)
    )
    if small:
        return f"{dataset}({f'*({made} for t in {items})' if items else made})", imports
    torch, _ = torch_in(source)
    name = source.fresh("on_device")
    code = ROOM.format(name=name, torch=torch, dataset=dataset)
    made = items if made == "t" else f"[{f'{made} for t in {items}' if items else made}]"
    return f"{name}({made}, {device})", (*imports, Helper(source, name, code))


def spread_for_nobody(script: Script, loaders: list[Loader]) -> dict[ast.Assign, list[Loader]]:
    """The dicts of arguments on workers that only these loaders were given, each with its
    loaders.
    """
    plain = [x for x in loaders if not _spread(x)]
    spread = {k.value: x for x in plain for k in x.node.keywords if k.arg is None}
    flow, found = script.analysis(Flow), dict[ast.Assign, list[Loader]]()
    for name, loader in spread.items():
        made = flow.definition(name)
        statement = made and statement_of(made.node)
        if made is not None and all(n in spread for n in flow.definitions(name).uses(made)):
            if isinstance(statement, ast.Assign) and statement.targets == [made.node]:
                found.setdefault(statement, []).append(loader)
    return found


# -------------------------------------------------------------------------------------------- which
def _lie_in_memory(loader: Loader) -> bool:
    """Where an expert would think of it: nothing but memory is read, and that is the host's."""
    return surely(
        not d.on_device
        and (d.kind == "tensors" or (d.in_memory and not d.iterable and not d.reads & {"file"}))
        for d in loader.datasets
    )


def _plan(script: Script, loader: Loader, drawn: bool) -> Plan:
    for why in (
        _of_script(script, loader),
        _of_loader(script, loader),
        why_not_movable(loader, _spread(loader)),
        looked_at(script, loader, (), ITERATING),
        may_vary(script, loader, drawn),
    ):
        if why:
            raise Refusal(why)
    made = batches = None
    items = ""
    if _of_project(loader):
        batches = batches_of(script, loader)
    elif any(d.random for d in loader.datasets):
        items, made = augmented_images(loader)
    else:
        items = all_items(script, loader)
    device, imports = device_at(script, loader)
    for why in (needs_host(script, loader), shared_copies(script, loader)):
        if why:
            raise Refusal(why)
    longer = True in [is_longer(script, d) for d in loader.datasets]
    dataset = _named(loader)
    drawn = made is not None or (batches is not None and batches.form.draws)
    effect = Effect.SAMPLING if drawn else _effect(loader)
    if computes_on_host(script, loader) or (batches is not None and batches.form.computes):
        effect = max(effect, Effect.ROUNDING)
    return Plan(loader, dataset, items, device, imports, effect, made, batches, longer)


def _named(loader: Loader) -> ast.expr:
    """Its dataset; refuses where the data on the device cannot get a name in a statement above."""
    dataset = loader_argument(loader, "dataset")
    assert dataset is not None and dataset.expr is not None  # see why_not_movable()
    if isinstance(why := statement_above(dataset.expr), str):
        raise Refusal(why)
    return dataset.expr


def _spread(loader: Loader) -> str:
    """The variable whose dict gives it arguments that it goes on to have."""
    spread = [k.value for k in loader.node.keywords if k.arg is None]
    through = {n for n, g in loader.args.named.items() if g.via} - OF_WORKERS
    if len(spread) > 1 or through - {"shuffle", *SIZES}:
        raise Refusal("its arguments come through dicts")
    return variable_name(spread[0]) if through else ""


def _of_project(loader: Loader) -> bool:
    """Whether code of the project makes the items, by more than a tuple of rows of tensors."""
    return any(
        d.kind == "project" and (d.random or why_not_rows(d, singly=True) or not returns_tuple(d))
        for d in loader.datasets
    )


def _of_script(script: Script, loader: Loader) -> str:
    if script.unread:
        return script.unread
    if others := [name for name in script.frameworks if name != "apex"]:
        return f"{others[0]} moves the batches itself"
    ranks = script.calls("torch.distributed.init_process_group")
    if script.processes or ranks:
        return "several processes train, and each would keep all the data"
    changed = script.calls(*DEVICE_DEFAULTS, "torch.set_default_dtype", "torch.cuda.device")
    if changed:
        return f"{at(changed[0])} changes where new tensors are, or of which type"
    place = statement_of(loader.node)
    if late := chooses_devices_late(script, place) or chooses_gpu_late(script, place):
        return f"{late} chooses the GPUs, perhaps after the data are on one"
    if source_of(loader.node).is_notebook and is_at_top(loader.node):
        return "cells that are run again would keep the data on the device twice"
    return ""


def _of_loader(script: Script, loader: Loader) -> str:
    if why := own_order(loader):
        return why
    if loader.loop is not None and not is_iterated_again(script, loader):
        return "it is made anew in a loop, and the data would be copied each time: make it above"
    size = loader_argument(loader, "batch_size")
    if size is None or Const(None) in size.values or const(size.values) == 1:
        return "its batches may be single items"
    return ""


def _effect(loader: Loader) -> Effect:
    """The same random numbers, but where workers that stay alive spare or shift a draw."""
    persistent, workers = (
        loader.args.named.get("persistent_workers"),
        loader_argument(loader, "num_workers"),
    )
    if persistent is not None and const(persistent.values) not in (False, None):
        return Effect.SAMPLING
    plain = all(
        not u.is_next and isinstance(u.stack[-1], LoopFrame) and len(u.stack[-1].loaders) == 1
        for u in loader.uses
    )
    forked = workers is not None and const(workers.values) != 0
    return Effect.SAMPLING if forked and not plain else Effect.EXACT
