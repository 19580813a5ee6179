"""Loaders whose data can lie on the device: which, what speaks against it, and what is written."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

from autofast.edit.edits import Edit, Helper, Keyword, Rewrite
from autofast.facts.augmentations import Augmentation
from autofast.facts.datasets import indexed, is_imported
from autofast.facts.host_batches import needs_host, rounds, shared_copies
from autofast.facts.loader_uses import ITERATING, is_known, uses, uses_of_iterators
from autofast.facts.loaders import DEVICE_DEFAULTS, SAMPLERS, again, counts, given
from autofast.facts.several_processes import several_processes
from autofast.model.device_loader import CLASS, IMAGES_CLASS, NAME
from autofast.model.events import LoopFrame
from autofast.model.script import Loader, Script
from autofast.model.several import surely, wordset
from autofast.model.source import Source, at, parent_of, source_of, statement_of
from autofast.model.syntax import is_stored
from autofast.model.values import Const, Ext, Ref, Thing, all_of, const
from autofast.rule import Effect, Options, Refusal
from autofast.techniques.loading.batched import is_batched
from autofast.techniques.loading.image_batches import function_text, name_of
from autofast.techniques.loading.resident_batches import Batches, batches_of, loader_class, method
from autofast.techniques.loading.resident_items import ITEMS, PADDED, all_items, augmented, may_vary
from autofast.write.device_at import device_at
from autofast.write.spelling import chooses_devices_late, chooses_gpu_late, torch_in, uses_gpu

OWN = ("collate_fn", "batch_sampler", "generator")
# What the class keeps of a DataLoader.
KEPT = wordset("dataset batch_size sampler batch_sampler drop_last num_workers")


@dataclass(frozen=True)
class Kept:
    """Data are kept on the device: other rules on loaders have nothing to do there."""


class Augmented:
    """The decision that images which are cropped and flipped at random are kept on the device as
    well, and cropped and flipped there.
    """


@dataclass(frozen=True)
class Plan:
    """A loader that can be one of the class: how all its items are made, and where its batches go.

    ``made``: of images of a file in which some are cropped or flipped, how; ``padded``: some of
    them have a border.
    ``batches``: a method of the dataset makes them at once, how.
    """

    loader: Loader
    items: str
    device: str
    imports: tuple[Edit, ...]
    effect: Effect
    made: Augmentation | None = None
    padded: bool = False
    batches: Batches | None = None

    @property
    def draws(self) -> bool:
        """Whether its images are cropped or flipped at random."""
        return self.made is not None and self.made.draws


def plans(script: Script, options: Options) -> list[tuple[Loader, Plan | str]]:
    """The loaders whose data could be kept on the device, with a plan or the reason against it."""
    if options.target == "cpu" or not uses_gpu(script):
        return []
    found = script.analysis(_drawn if options.decides(Augmented) else _Plans).found
    if several_processes(options):
        return [(x, p if isinstance(p, str) else SEVERAL) for x, p in found]
    return found


BESIDE = "its batches are made in another way than those of the loader that trains, beside it"
SEVERAL = "several processes are to train, and each would keep all the data"


def random_images(loader: Loader) -> bool:
    """Whether it loads images of a library's that are made with random numbers."""
    return any(d.kind == "library" and d.random for d in loader.datasets)


def left(script: Script, options: Options) -> list[Loader]:
    """The loaders that go on as they are, for rules that use what decides :class:`Kept` and about
    processes: on the others there is nothing more to do.
    """
    kept = {x for x in script.loaders if x.kept}
    kept |= {x for x, _ in made_resident(script, options)}
    return [x for x in script.loaders if x not in kept]


def made_resident(script: Script, options: Options) -> list[tuple[Loader, Plan]]:
    """The loaders that become one of the class, as far as the rules are on that decide
    :class:`Kept` and :class:`Augmented`.
    """
    return [
        (x, plan)
        for x, plan in plans(script, options)
        if isinstance(plan, Plan) and options.decides(Augmented if plan.draws else Kept)
    ]


def is_left(script: Script, options: Options, things: list[Thing]) -> bool:
    """Whether some of these loaders, whose batches something gets, goes on as it is."""
    found = left(script, options)
    return any(t in things for loader in found for t in loader.things)


class _Plans:
    def __init__(self, script: Script, drawn: bool = False) -> None:
        """``drawn``: also for images that are cropped and flipped at random."""
        self.script = script
        self.found: list[tuple[Loader, Plan | str]] = []
        for loader in script.loaders:
            if not counts(script, loader) or loader.kept or not _lie_in_memory(loader):
                continue
            if is_batched(loader):
                continue  # single items, or batches that the data make themselves
            try:
                self.found.append((loader, _plan(script, loader, drawn)))
            except Refusal as why:
                self.found.append((loader, str(why)))
        self._only_beside_training()
        self._one_class_a_file()

    def _only_beside_training(self) -> None:
        """A loader for evaluation alone is not worth the class."""
        if not any(isinstance(p, Plan) and x.trains for x, p in self.found):
            self.found = [(x, p) for x, p in self.found if isinstance(p, str) and x.trains]

    def _one_class_a_file(self) -> None:
        """All loaders of a file get one class, which knows the ways to make items of each."""
        files: dict[Source, list[Plan]] = {}
        for loader, plan in self.found:
            if isinstance(plan, Plan):
                files.setdefault(source_of(loader.node), []).append(plan)
        for n, (loader, plan) in enumerate(self.found):
            if isinstance(plan, Plan):
                together = files[source_of(loader.node)]
                if any(p.batches is not None for p in together):
                    self.found[n] = loader, self._of_batches(plan, together)
                elif drawing := [p for p in together if p.draws]:
                    self.found[n] = loader, self._of_images(plan, drawing[0], together)
                elif len({p.items for p in together}) > 1:
                    self.found[n] = loader, replace(plan, items=ITEMS)

    def _of_batches(self, plan: Plan, together: list[Plan]) -> Plan | str:
        """A plan for the class that makes batches by a method of the dataset, where the training's
        loader is one; or why it cannot be of that class.
        """
        leader = next((p for p in together if p.loader.trains), plan)
        if leader.batches is None or plan.batches is None:
            return plan if leader.batches is plan.batches else BESIDE
        if leader.batches.getitem is not plan.batches.getitem:
            return BESIDE
        ours = [p.batches for p in together if p.batches is not None]
        part = frozenset().union(*(b.part for b in ours if b.getitem is plan.batches.getitem))
        return replace(plan, batches=replace(plan.batches, part=part))

    def _of_images(self, plan: Plan, drawing: Plan, together: list[Plan]) -> Plan | str:
        """A plan for the class that crops and flips; or why it cannot be of that class."""
        items, made = plan.items, plan.made
        if made is None:
            try:
                items, made = augmented(self.script, plan.loader)
            except Refusal as why:
                return str(why)
        if items != drawing.items:
            return "its images are made in another way than those that are cropped and flipped beside it"
        if made.draws and made != drawing.made:
            return "images of another loader of the file are cropped and flipped in another way"
        padded = any(p.made is not None and p.made.padding for p in together)
        return replace(plan, items=items, made=made, padded=padded)


def _drawn(script: Script) -> _Plans:
    return _Plans(script, drawn=True)


def edits(script: Script, plan: Plan) -> tuple[Edit, ...]:
    """The class, and the call that makes one of it."""
    call, source = plan.loader.node, source_of(plan.loader.node)
    torch, imports = torch_in(source)
    name = source.fresh(NAME)
    if plan.batches is not None:
        code, more = loader_class(plan.loader, plan.batches, name, plan.batches.part)
        made = (Rewrite(call.func, name), Keyword(call, "device", plan.device))
        return (*more, *plan.imports, Helper(source, name, code), *method(plan.batches), *made)
    code = (IMAGES_CLASS if plan.made is not None else CLASS).format(
        name=name,
        base=source.segment(call.func),
        torch=torch,
        padding="padding=0, " if plan.padded else "",
        items=plan.items.format(torch=torch, padded=PADDED.format(torch=torch) * plan.padded),
    )
    own = [Keyword(call, "device", plan.device)]
    helpers = [Helper(source, name, code)]
    if plan.made is not None and plan.draws:
        function = source.fresh(name_of(plan.made))
        helpers.append(Helper(source, function, function_text(plan.made, function, torch)))
        if plan.made.padding:
            own.append(Keyword(call, "padding", str(plan.made.padding)))
        own.append(Keyword(call, "augment", function))
    return (*imports, *plan.imports, *helpers, Rewrite(call.func, name), *own)


# -------------------------------------------------------------------------------------------- which
def _lie_in_memory(loader: Loader) -> bool:
    """Where an expert would think of it: nothing but memory is read."""
    return surely(
        d.kind == "tensors"
        or (d.in_memory and not d.iterable and not d.reads & {"file"} and not d.on_device)
        for d in loader.datasets
    )


def _plan(script: Script, loader: Loader, drawn: bool) -> Plan:
    for why in (
        _of_script(script, loader),
        _of_loader(script, loader),
        _of_uses(script, loader),
        may_vary(script, loader, drawn),
    ):
        if why:
            raise Refusal(why)
    made = batches = None
    items = ""
    if _of_project(loader):
        batches = batches_of(script, loader)
    elif any(d.random for d in loader.datasets):
        items, made = augmented(script, loader)
    else:
        items = all_items(script, loader)
    device, imports = device_at(script, loader)
    if why := needs_host(script, loader) or shared_copies(script, loader):
        raise Refusal(why)
    drawn = made is not None or (batches is not None and batches.form.draws)
    effect = Effect.SAMPLING if drawn else _effect(loader)
    if rounds(script, loader) or (batches is not None and batches.form.computes):
        effect = max(effect, Effect.ROUNDING)
    return Plan(loader, items, device, imports, effect, made, batches=batches)


def _of_project(loader: Loader) -> bool:
    """Whether code of the project makes the items, by more than to index tensors."""
    return any(
        d.kind == "project" and (d.random or indexed(d, singly=True)) for d in loader.datasets
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
    if source_of(loader.node).is_notebook:
        return "cells that are run again would keep the data on the device twice"
    return ""


def _of_loader(script: Script, loader: Loader) -> str:
    if not all_of(loader.things, Ext):
        return "the loader is of a class of its own"
    if loader.args.open:
        return f"its arguments are not all known: {loader.args.open}"
    if loader.loop is not None and not again(script, loader):
        return "it is made anew in a loop, and the data would be copied each time: make it above"
    for name in OWN:
        if (value := given(loader, name)) is not None and const(value.values) is not None:
            return f"it has a {name} of its own"
    if not is_imported(loader.node):
        return "its class is not imported at the top of the file"
    size, sampler = given(loader, "batch_size"), given(loader, "sampler")
    if size is None or Const(None) in size.values or const(size.values) == 1:
        return "its batches may be single items"
    for thing in sampler.values if sampler is not None else ():
        if thing == Const(None):
            continue
        if not isinstance(thing, Ext) or thing.name not in SAMPLERS:
            return "its sampler is not one of torch that draws all indices of an epoch at once"
        if thing.args.open or (thing.args.get(-1, "generator") or {Const(None)}) != {Const(None)}:
            return "its sampler has a generator of its own"
    return ""


def _of_uses(script: Script, loader: Loader) -> str:
    """A place that uses more of the loader than the class keeps, or hands it to code that may."""
    for use in uses_of_iterators(script, loader):
        match use.node:
            case ast.Attribute(attr=attr):
                return f"{at(use)} uses `{attr}` of its iterator"
            case ast.Call(func=func) if Ref("builtins.len") in script.values(func):
                return f"{at(use)} asks for the length of its iterator"
    for use in uses(script, loader):
        match use.node:
            case ast.Attribute(attr=attr) as part:
                if attr not in KEPT or is_stored(part) or is_stored(parent_of(part) or part):
                    return f"{at(use)} uses its `{attr}`"
            case ast.Call() as call if not is_known(script, call, ITERATING):
                return f"{at(call)} hands it to code that is not known"
    return ""


def _effect(loader: Loader) -> Effect:
    """The same random numbers, but where workers that stay alive spare or shift a draw."""
    persistent, workers = loader.args.named.get("persistent_workers"), given(loader, "num_workers")
    if persistent is not None and const(persistent.values) not in (False, None):
        return Effect.SAMPLING
    plain = all(
        not u.is_next and isinstance(u.stack[-1], LoopFrame) and len(u.stack[-1].loaders) == 1
        for u in loader.uses
    )
    forked = workers is not None and const(workers.values) != 0
    return Effect.SAMPLING if forked and not plain else Effect.EXACT
