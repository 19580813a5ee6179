"""Whether all batches have one shape."""

from __future__ import annotations

import ast
from collections.abc import Container

from autofast.facts.collations import stacks_items
from autofast.facts.cost.bounds import least_count
from autofast.facts.datasets import why_not_rows
from autofast.facts.transforms import steps_of
from autofast.facts.workers.shared_state import changed_since_made, may_make_others
from autofast.flow.loops import loops_around
from autofast.flow.scopes import stored_in
from autofast.model.calls import names_in, short_name
from autofast.model.contents import attributes
from autofast.model.events import CallFrame, inside
from autofast.model.kinds import library_dataset
from autofast.model.names import last_part
from autofast.model.roles import Dataset, Loader
from autofast.model.script import Script
from autofast.model.several import any_in, not_none, of_kind, wordset
from autofast.model.source import at, contains_kind, nodes_in
from autofast.model.syntax import SEQUENCES
from autofast.model.values import (
    Arg,
    Const,
    Ext,
    Inst,
    Seq,
    Setting,
    Tensor,
    Thing,
    Unknown,
    Values,
    begins,
    const,
    one,
    ordered,
    said,
)
from autofast.read.recover.datasets import IN_MEMORY_LIBRARY

FLAG = "torch.backends.cudnn.benchmark"
SHUFFLES = ("random.shuffle", "numpy.random.shuffle")
# what leaves an image as large as it is
WHOLE = wordset(
    "__getitem__ super fromarray asarray array from_numpy numpy astype int float len long copy clone print"
)
SIZES = wordset("size scale_factor")
CROPS = wordset("CenterCrop RandomCrop RandomResizedCrop FiveCrop TenCrop")


def why_inputs_vary(script: Script) -> str:
    """Why inputs may have other shapes from one step to the next; empty where they certainly have
    one.
    """
    loaders = [x for x in script.loaders if x.trains]
    if not loaders:
        return "what the steps train on does not come from a DataLoader, so its shape is not known"
    for loader in loaders:
        if why := why_batches_vary(script, loader):
            return why
    trained = {d.node for x in loaders for d in x.datasets}
    for loader in (x for x in script.loaders if x.uses and not x.trains):
        others = not loader.datasets or any(d.node not in trained for d in loader.datasets)
        if others and (why := _varies_one_by_one(script, loader)):
            return why
    for site in script.calls("torch.nn.functional.interpolate", "torch.nn.functional.upsample"):
        for occurrence in site:
            inner = {f.func.name for f in occurrence.stack if isinstance(f, CallFrame)}
            if (
                "forward" not in inner
                and any(inside(occurrence.stack, step.loop) for step in script.steps)
                and not _gives_one_size(script, site.call)
            ):
                return f"batches are resized on {at(site)}"
    for node in script.each(ast.Subscript):
        loops = list(loops_around(node))
        in_step = any(loop is step.loop for loop in loops for step in script.steps)
        if in_step and _cut_to_size(script, node, stored_in(loops[-1])):
            return f"batches are cut on {at(node)}, to a size that may change"
    return ""


def _cut_to_size(script: Script, node: ast.Subscript, changing: Container[str]) -> bool:
    """``x[..., :width]`` of a batch; not ``x[..., i : i + 32]``, and not what takes some of the
    samples, ``x[:n]``.
    """
    parts = node.slice.elts[1:] if isinstance(node.slice, ast.Tuple) else []
    ends = [end for p in parts if isinstance(p, ast.Slice) for end in _ends(p)]
    if not any(_changes(end, changing) for end in ends):
        return False
    return any(t.batch and not t.models for t in of_kind(script.values(node.value), Tensor))


def _ends(cut: ast.Slice) -> list[ast.expr]:
    """What tells how many numbers a slice takes."""
    match cut:
        case ast.Slice(
            lower=ast.expr() as low, upper=ast.BinOp(left=left, op=ast.Add(), right=size)
        ):
            if ast.unparse(low) == ast.unparse(left):
                return [size]
    return not_none((cut.lower, cut.upper))


def _changes(size: ast.expr, changing: Container[str]) -> bool:
    """It is drawn there, or made of a variable that the loops set."""
    return contains_kind(size, ast.Call) or any_in(names_in(size), changing)


def _gives_one_size(script: Script, call: ast.Call | None) -> bool:
    """``F.interpolate(x, (opt.height, opt.width))``, ``size=x.shape[2:]``: one size, as long as
    ``x`` has one."""
    sizes = [a for n, a in enumerate(call.args) if n in (1, 2)] if call is not None else []
    sizes += [k.value for k in call.keywords if k.arg in SIZES] if call is not None else []
    parts = [p for size in sizes for p in (size.elts if isinstance(size, SEQUENCES) else [size])]
    return bool(parts) and all(_is_size(script, p) for p in parts)


def _is_size(script: Script, expr: ast.expr) -> bool:
    """A number that is written out or an option, or sizes of a tensor."""
    match expr:
        case (
            ast.Attribute(value=tensor, attr="shape")
            | ast.Call(func=ast.Attribute(value=tensor, attr="size"))
            | ast.Subscript(
                value=ast.Attribute(value=tensor, attr="shape")
                | ast.Call(func=ast.Attribute(value=tensor, attr="size"))
            )
        ):
            return script.must_be(tensor, Tensor)
    return isinstance(one(script.values(expr)), (Const, Arg, Setting))


def why_batches_vary(script: Script, loader: Loader) -> str:
    """Why batches of this loader may have other shapes from one to the next."""
    data = loader.datasets
    for given, may in (("collate_fn", "pad batches to"), ("batch_sampler", "gather images of")):
        if any(t != Const(None) for t in loader.args.get(-1, given)):
            if given == "collate_fn":
                fits = all(_stacks(script, loader, d) for d in data) and stacks_items(
                    script, loader
                )
            else:  # it says which images a batch holds
                fits = all(map(one_size, data))
            if not data or not fits:
                where = f"the loader on {at(loader)}"
                return f"{where} has its own {given}, which may {may} different sizes"
    if not loader.datasets:
        return f"the dataset of the loader on {at(loader)} is not known"
    for dataset in loader.datasets:
        if not one_size(dataset) and not _stacks(script, loader, dataset):
            return f"nothing shows that all images of {dataset.name} get one size"
    return ""


def _varies_one_by_one(script: Script, loader: Loader) -> str:
    """Why an evaluation may see an image of another size in each batch: they may come one by one,
    as that needs no common size.
    """
    if 1 not in _sizes_of_batches(loader):
        return ""
    why = why_batches_vary(script, loader)
    return f"in an evaluation, {why}" if why else ""


def _sizes_of_batches(loader: Loader) -> list[object]:
    """All that the size of a batch may be; of an option or a setting, its default."""
    sizes = loader.args.get(1, "batch_size")
    if not sizes and not loader.args.open:
        return [1]
    return [said(t) for t in sizes]


def _stacks(script: Script, loader: Loader, dataset: Dataset) -> bool:
    """Any two items may meet in a batch, and the default collate function stacks only what has one
    shape.
    """
    mixes = any(t != Const(False) for t in loader.args.get(2, "shuffle")) or any(
        t != Const(None) for t in loader.args.get(3, "sampler")
    )
    return (
        (mixes or _is_shuffled(script, dataset))
        and not (dataset.iterable or dataset.unknown)
        and _takes_several(script, loader)
        and not (dataset.writes and may_make_others(script, loader))
        and not (dataset.set_outside and changed_since_made(script, loader))
    )


def _is_shuffled(script: Script, dataset: Dataset) -> bool:
    """``random.shuffle(self.files)``: a list that items are made of has been shuffled for good."""
    made = nodes_in(dataset.getitem, ast.Attribute) if dataset.getitem is not None else ()
    held, read = getattr(dataset.thing, "attrs", {}), {n.attr for n in made}
    lists = {t for name in read for t in of_kind(held.get(name, ()), Seq)}
    for site in script.calls(*SHUFFLES):
        match site.node:
            case ast.Call(args=[ast.Attribute(value=owner, attr=name)]) if name in read:
                if dataset.thing in script.values(owner):
                    return True
        if any(any_in(o.args.get(0, "x"), lists) for o in site):
            return True
    return False


def _takes_several(script: Script, loader: Loader) -> bool:
    """Whether a batch holds more than one item; of an option or a setting, its default counts."""
    if many := of_kind(_sizes_of_batches(loader), int):
        return min(many) > 1
    given = loader.args.given(1, "batch_size")
    return given is not None and (least_count(script, given.expr) or 0) > 1


def one_size(dataset: Dataset) -> bool:
    """Whether all items certainly have one shape: rows of tensors, equal images, or a transform
    that crops or resizes to a fixed size.
    """
    thing = dataset.thing
    if not why_not_rows(dataset):
        return True
    if isinstance(thing, Ext):
        sizes = _sizes(frozenset(thing.args.things))
        in_memory = last_part(thing.name) in IN_MEMORY_LIBRARY
        return bool(sizes or in_memory) and False not in sizes
    if isinstance(thing, Inst):
        given = frozenset(attributes(thing))
        images = _has_images_of_one_size(dataset)
        is_handed_on = bool(library_dataset(thing)) and dataset.getitem is None
        if (images or is_handed_on) and thing.args is not None:
            given |= frozenset(thing.args.things)
        sizes = _sizes(given)
        return False not in sizes if sizes else images
    return False


def _has_images_of_one_size(dataset: Dataset) -> bool:
    """A class of the project that takes whole images of torchvision's, as ``class
    Indexed(CIFAR10)`` which gives the index, too.
    """
    thing = dataset.thing
    known = {f"torchvision.datasets.{n}" for n in IN_MEMORY_LIBRARY}
    if not isinstance(thing, Inst) or not thing.cls.external <= known or not thing.cls.external:
        return False
    if dataset.getitem is None:
        return True
    called = {short_name(call.func) for call in nodes_in(dataset.getitem, ast.Call)}
    cut = any(nodes_in(dataset.getitem, ast.Slice))
    return not cut and all(n in WHOLE or "transform" in n for n in called)


def _sizes(found: Values) -> list[bool]:
    """For each pipeline of transforms among these things: whether its last word about the size is a
    fixed one.
    """
    verdicts: list[bool] = []
    for thing in ordered(found):
        if begins(thing, Ext, "torchvision.transforms"):
            steps = steps_of(thing)
            words = [w for step in steps if (w := _word(step)) is not None]
            if words:
                verdicts.append(words[-1])
    return verdicts


def _word(step: Thing) -> bool | None:
    """True: fixes the size. False: leaves sizes different, or may. None: says nothing about the
    size.
    """
    if isinstance(step, Unknown):
        return False
    if not isinstance(step, Ext):
        return None
    short = last_part(step.name)
    if short in CROPS:
        return True
    # Resize(256) keeps the ratio of the sides: only a pair fixes both.
    if short in ("Resize", "Scale"):
        size = step.args.get(0, "size")
        given = const(size)
        pair = any(len(t.items or "hw") == 2 for t in of_kind(size, Seq))
        return pair or (isinstance(given, tuple) and len(given) == 2) or None
    return False if short in ("RandomApply", "RandomChoice") else None  # Pad adds as much to each
