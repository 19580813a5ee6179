"""Loaders whose data can lie on the device: which, what speaks against it, and what is written."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from autofast.edit.edits import Edit, Helper, Keyword, Rewrite
from autofast.facts.aliases import learned, written_after
from autofast.facts.datasets import (
    COLOUR,
    GREY,
    SPLIT,
    held,
    indexed,
    is_imported,
    returns_tuple,
    to_tensor,
)
from autofast.facts.host_batches import SHAPE, needs_host, shared_copies
from autofast.facts.loaders import DEVICE_DEFAULTS, again, counts, given
from autofast.facts.several_processes import several_processes
from autofast.flow.scopes import mentions
from autofast.model.device_loader import CLASS, NAME
from autofast.model.events import LoopFrame
from autofast.model.script import Dataset, Loader, Script
from autofast.model.source import Source, function_of, parent_of, source_of
from autofast.model.values import Bound, Cls, Const, Ext, Func, Inst, Ref, Thing, const
from autofast.rule import Effect, Options, Refusal, at
from autofast.techniques.loading.batched import PASSING, is_batched
from autofast.write.device_at import device_at
from autofast.write.spelling import chooses_devices_late, torch_in, uses_gpu

OWN = ("collate_fn", "batch_sampler", "generator")
SAMPLERS = frozenset(
    f"torch.utils.data.{n}"
    for n in ("RandomSampler", "SequentialSampler", "WeightedRandomSampler", "SubsetRandomSampler")
)
# What the class keeps of a DataLoader.
KEPT = frozenset({"dataset", "batch_size", "sampler", "batch_sampler", "drop_last", "num_workers"})
HANDED = (PASSING | {"tqdm.auto.tqdm", "tqdm.trange"}) - {
    f"builtins.{n}" for n in ("list", "tuple", "dict", "print")
} - {"itertools.cycle"}  # fmt: skip
ARRAYS = frozenset({"data", "targets", "labels", "train_data", "train_labels"})
CHANGES = frozenset({"append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse"})
SUBSETS = (SPLIT, "torch.utils.data.Subset")

ROWS = "        tensors = self.dataset[:]  # all items at once"
ITEMS = """\
        items = [self.dataset[i] for i in range(len(self.dataset))]
        tensors = self.collate_fn(items)  # all items as one batch"""
GREY_IMAGES = "        images = self.dataset.data.unsqueeze(1).float() / 255  # what ToTensor does"
COLOUR_IMAGES = (
    "        images = {torch}.from_numpy(self.dataset.data).permute(0, 3, 1, 2).float() / 255"
)
SVHN_IMAGES = "        images = {torch}.from_numpy(self.dataset.data).float() / 255"
COMPOSED = """
        for transform in self.dataset.transform.transforms[1:]:  # after ToTensor
            images = transform(images)"""
TARGETS = "\n        tensors = [images, {torch}.as_tensor(self.dataset.{targets})]"


@dataclass(frozen=True)
class Kept:
    """Data are kept on the device: other rules on loaders have nothing to do there."""


@dataclass(frozen=True)
class Plan:
    """A loader that can be one of the class: how all its items are made, and where its batches go."""

    loader: Loader
    items: str
    device: str
    imports: tuple[Edit, ...]
    effect: Effect


def plans(script: Script, options: Options) -> list[tuple[Loader, Plan | str]]:
    """The loaders whose data lie in memory and could be kept on the device, each with a plan or the reason against it."""
    if options.target == "cpu" or not uses_gpu(script):
        return []
    found = script.analysis(_Plans).found
    if several_processes(options):
        return [(x, p if isinstance(p, str) else SEVERAL) for x, p in found]
    return found


SEVERAL = "several processes are to train, and each would keep all the data"


def left(script: Script, options: Options) -> list[Loader]:
    """The loaders that go on as they are, for rules that use what decides :class:`Kept` and about processes: on the others there is nothing more to do."""
    kept = {id(x) for x in script.loaders if x.kept}
    if options.decides(Kept):
        kept |= {id(x) for x, plan in plans(script, options) if isinstance(plan, Plan)}
    return [x for x in script.loaders if id(x) not in kept]


def is_left(script: Script, options: Options, things: list[Thing]) -> bool:
    """Whether some of these loaders, whose batches something gets, goes on as it is."""
    found = left(script, options)
    return any(t is x for loader in found for t in loader.things for x in things)


class _Plans:
    def __init__(self, script: Script) -> None:
        self.found: list[tuple[Loader, Plan | str]] = []
        for loader in script.loaders:
            if not counts(script, loader) or loader.kept or not _lie_in_memory(loader):
                continue
            if is_batched(loader):
                continue  # single items, or batches that the data make themselves
            try:
                self.found.append((loader, _plan(script, loader)))
            except Refusal as why:
                self.found.append((loader, str(why)))
        self._only_beside_training()
        self._one_class_a_file()

    def _only_beside_training(self) -> None:
        """A loader for evaluation alone is not worth the class."""
        if not any(isinstance(p, Plan) and x.trains for x, p in self.found):
            self.found = [(x, p) for x, p in self.found if isinstance(p, str) and x.trains]

    def _one_class_a_file(self) -> None:
        """All loaders of a file get one class: the ways to make items are joined to the one that does it for all."""
        files: dict[Source, set[str]] = {}
        for loader, plan in self.found:
            if isinstance(plan, Plan):
                files.setdefault(source_of(loader.node), set()).add(plan.items)
        for n, (loader, plan) in enumerate(self.found):
            if isinstance(plan, Plan) and len(files[source_of(loader.node)]) > 1:
                self.found[n] = loader, Plan(loader, ITEMS, plan.device, plan.imports, plan.effect)


def edits(script: Script, plan: Plan) -> tuple[Edit, ...]:
    """The class, and the call that makes one of it."""
    call, source = plan.loader.node, source_of(plan.loader.node)
    torch, imports = torch_in(source)
    base = source.segment(call.func)
    name = source.fresh(NAME)
    code = CLASS.format(name=name, base=base, torch=torch, items=plan.items.format(torch=torch))
    return (
        *imports,
        *plan.imports,
        Helper(source, name, code),
        Rewrite(call.func, name),
        Keyword(call, "device", plan.device),
    )


# ------------------------------------------------------------------------------------------------ which
def _lie_in_memory(loader: Loader) -> bool:
    """Where an expert would think of it: nothing but memory is read."""
    return bool(loader.datasets) and all(
        d.kind == "tensors"
        or (d.in_memory and not d.iterable and not d.reads & {"file"} and not d.on_device)
        for d in loader.datasets
    )


def _plan(script: Script, loader: Loader) -> Plan:
    for why in (
        _of_script(script, loader),
        _of_loader(loader),
        _of_uses(script, loader),
        *(_of_data(script, loader, d) for d in loader.datasets),
    ):
        if why:
            raise Refusal(why)
    items = _items(script, loader)
    device, imports = device_at(script, loader)
    if why := needs_host(script, loader) or shared_copies(script, loader):
        raise Refusal(why)
    return Plan(loader, items, device, imports, _effect(loader))


def _of_script(script: Script, loader: Loader) -> str:
    if script.unread:
        return script.unread
    if others := [name for name in script.frameworks if name != "apex"]:
        return f"{others[0]} moves the batches itself"
    ranks = script.calls("torch.distributed.init_process_group")
    if script.processes or ranks:
        return "several processes train, and each would keep all the data"
    changed = script.calls(*DEVICE_DEFAULTS, "torch.set_default_dtype", "torch.cuda.device")
    if sites := [*changed, *script.calls("torch.cuda.set_device")]:
        return f"{at(sites[0].node)} changes where new tensors are, or of which type"
    if line := chooses_devices_late(script, loader.node):  # type: ignore[arg-type]
        return f"line {line} chooses the GPUs, perhaps after the data are on one"
    if source_of(loader.node).path.suffix == ".ipynb":
        return "cells that are run again would keep the data on the device twice"
    return ""


def _of_loader(loader: Loader) -> str:
    if not all(isinstance(t, Ext) for t in loader.things):
        return "the loader is of a class of its own"
    if loader.args.open:
        return f"its arguments are not all known: {loader.args.open}"
    if loader.loop is not None:
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

    def is_loader(expr: ast.expr) -> bool:
        return any(t is x for t in script.values(expr) for x in loader.things)

    def is_iterator(expr: ast.expr) -> bool:
        found = (t for t in script.values(expr) if isinstance(t, Ext) and t.name == "builtins.iter")
        return any(x in t.attrs.get("over", ()) for t in found for x in loader.things)

    for source in script.sources:
        for node in source.nodes:
            if isinstance(node, ast.Attribute) and is_iterator(node.value):
                return f"{at(node)} uses `{node.attr}` of its iterator"
            if isinstance(node, ast.Call) and any(map(is_iterator, node.args)):
                if {Ref("builtins.len")} & script.values(node.func):
                    return f"{at(node)} asks for the length of its iterator"
            if isinstance(node, ast.Attribute) and is_loader(node.value):
                if node.attr not in KEPT or isinstance(node.ctx, ast.Store):
                    return f"{at(node)} uses its `{node.attr}`"
            elif isinstance(node, ast.Call):
                values = [*node.args, *(k.value for k in node.keywords)]
                plain = [a.value if isinstance(a, ast.Starred) else a for a in values]
                if any(map(is_loader, plain)) and not _passes(script, node):
                    return f"{at(node)} hands it to code that is not known"
    return ""


def _passes(script: Script, call: ast.Call) -> bool:
    callee = script.values(call.func)
    return bool(callee) and all(
        isinstance(t, (Func, Bound, Cls, Inst)) or (isinstance(t, Ref) and t.name in HANDED)
        for t in callee
    )


def _effect(loader: Loader) -> Effect:
    """The same random numbers, but where workers that stay alive spare a draw an epoch, or draw their order earlier."""
    persistent, workers = loader.args.named.get("persistent_workers"), given(loader, "num_workers")
    if persistent is not None and const(persistent.values) not in (False, None):
        return Effect.SAMPLING
    plain = all(
        not u.is_next and isinstance(u.stack[-1], LoopFrame) and len(u.stack[-1].loaders) == 1
        for u in loader.uses
    )
    forked = workers is not None and const(workers.values) != 0
    return Effect.SAMPLING if forked and not plain else Effect.EXACT


# ------------------------------------------------------------------------------------------------ data
def _of_data(script: Script, loader: Loader, dataset: Dataset) -> str:
    """Why items of a dataset may be others in another epoch."""
    if dataset.unknown:
        return f"{dataset.name} is not known: {dataset.unknown}"
    if dataset.random:
        return f"{dataset.name} draws random numbers for each item: a batch would need its own for each sample"
    if dataset.writes:
        return f"fetching an item changes `{dataset.writes[0]}` of {dataset.name}"
    if dataset.set_outside:
        return f"{at(dataset.set_outside[0])} changes {dataset.name}"
    for site in script.log.of("set_attribute"):
        if isinstance(dataset.thing, Ext) and any(o.this is dataset.thing for o in site):
            return f"{at(site.node)} changes {dataset.name}"
    if dataset.kind == "library":
        return _written_images(script, dataset)
    if why := indexed(dataset):
        return f"{dataset.name}: {why}"
    if not returns_tuple(dataset):
        return f"items of {dataset.name} are no tuples"
    for expr, made in held(script, dataset):
        if expr is None:
            return f"where the tensors of {dataset.name} come from is not known"
        if why := learned(script, expr):
            return f"`{_text(expr)}` {why}"
        if why := written_after(script, expr, made):
            return why
    return ""


def _written_images(script: Script, dataset: Dataset) -> str:
    """A place that may write to the images or labels; empty where all that is done with them is to read and to count."""
    for source in script.sources:
        for node in source.nodes:
            if not isinstance(node, ast.Attribute) or node.attr not in ARRAYS:
                continue
            if not any(t is dataset.thing for t in script.values(node.value)):
                continue
            parent = parent_of(node)
            match parent:
                case ast.Subscript(value=value, ctx=ast.Load()) if value is node and not isinstance(
                    parent_of(parent), ast.Subscript
                ):
                    continue
                case ast.Attribute(attr=attr) if attr in SHAPE:
                    continue
                case ast.Call(func=ast.Name(id="len" | "print" | "set" | "max" | "Counter")):
                    continue
            return f"{at(node)} may change `{node.attr}` of {dataset.name}"
    return ""


def _text(expr: ast.expr) -> str:
    return source_of(expr).segment(expr).split("\n")[0]


def _items(script: Script, loader: Loader) -> str:
    """How the class makes all items; raises Refusal."""
    given = loader.args.get(0, "dataset")
    direct = all(any(t is d.thing for d in loader.datasets) for t in given)
    if not direct and not all(_is_part(t, loader.datasets) for t in given):
        raise Refusal("the dataset is wrapped in something that is not known")
    if why := next((w for t in given if (w := _indices_change(script, t))), ""):
        raise Refusal(why)
    if all(d.kind != "library" for d in loader.datasets):
        return ROWS
    forms = {_image_form(script, d) for d in loader.datasets}
    if direct and len(forms) == 1:
        return forms.pop()
    if loader.trains and not again(script, loader):
        raise Refusal("it is gone through once, and making all items first would take as long")
    return ITEMS


def _is_part(thing: Thing, datasets: list[Dataset]) -> bool:
    """The dataset itself, or a part of it by a list of indices."""
    if isinstance(thing, Ext) and thing.name in SUBSETS:
        return all(_is_part(t, datasets) for t in thing.args.get(0, "dataset"))
    return any(thing is d.thing for d in datasets)


def _indices_change(script: Script, thing: Thing) -> str:
    """A place that may change which items belong to a part of the data; empty where there is none."""
    if not isinstance(thing, Ext) or thing.name not in SUBSETS:
        return ""
    for inner in thing.args.get(0, "dataset"):
        if why := _indices_change(script, inner):
            return why
    given = thing.args.given(1, "indices")
    if given is not None and isinstance(given.expr, ast.Name):
        names = mentions(function_of(given.expr), given.expr.id)
        if any(_may_write(n) for n in names):
            return f"`{given.expr.id}`, which says what belongs to it, may be changed"
    elif given is None or given.expr is None or isinstance(given.expr, ast.Attribute):
        return "which items belong to it may change" if thing.name != SPLIT else ""
    for source in script.sources:
        for node in source.nodes:
            if not isinstance(node, ast.Attribute) or node.attr not in ("indices", "dataset"):
                continue
            mine = any(t is thing for t in script.values(node.value))
            if mine and (isinstance(node.ctx, ast.Store) or _may_write(node)):
                return f"{at(node)} may change what belongs to it"
    return ""


def _may_write(node: ast.expr) -> bool:
    """``x.append(1)``, ``x[0] = 1``, ``x += y``; also where it is handed to a function."""
    parent = parent_of(node)
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return isinstance(parent, ast.AugAssign)
    match parent:
        case ast.Attribute(attr=attr):
            return attr in CHANGES
        case ast.Subscript(value=value, ctx=ast.Store() | ast.Del()):
            return value is node
        case ast.Call(func=func):
            return ast.unparse(func) in ("random.shuffle", "np.random.shuffle", "shuffle")
    return False


def _image_form(script: Script, dataset: Dataset) -> str:
    thing = dataset.thing
    short = thing.name.rsplit(".", 1)[-1] if isinstance(thing, Ext) else ""
    if not isinstance(thing, Ext) or short not in (*GREY, *COLOUR, "SVHN"):
        raise Refusal(f"items of {dataset.name} are made in a way that is not known")
    composed = to_tensor(thing)
    if composed is None:
        raise Refusal(f"the transforms of {dataset.name} are not just ToTensor and Normalize")
    if thing.args.open or any(
        const(thing.args.get(n, name)) is not None
        for n, name in ((3, "target_transform"), (-1, "transforms"))
        if thing.args.get(n, name)
    ):
        raise Refusal(f"{dataset.name} has more than one transform")
    if short == "SVHN" and const(thing.args.get(1, "split")) not in ("train", "test", ...):
        raise Refusal(f"the extra images of {dataset.name} are too many")
    images = COLOUR_IMAGES if short in COLOUR else GREY_IMAGES if short in GREY else SVHN_IMAGES
    targets = "labels" if short == "SVHN" else "targets"
    return images + (COMPOSED if composed else "") + TARGETS.replace("{targets}", targets)
