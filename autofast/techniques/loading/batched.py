"""Loaders that can take whole batches out of memory: what it takes, or why not."""

from __future__ import annotations

import ast
from collections.abc import Collection

from autofast.edit.edits import (
    Before,
    DropKeyword,
    Edit,
    Edits,
    Helper,
    Keyword,
    Rewrite,
    Wrap,
    Written,
)
from autofast.facts.aliases import why_trainable, written_after
from autofast.facts.datasets import SPLIT, Images, is_measured, stored_tensors
from autofast.facts.extents import in_order
from autofast.facts.loader_uses import ITERATING, KEEPING, is_known, loader_usages
from autofast.facts.loaders import is_managed, loader_argument, own_argument
from autofast.flow.memory import Memory
from autofast.model.calls import receiver_of, short_name, taker_of
from autofast.model.roles import Dataset, Loader
from autofast.model.script import Script
from autofast.model.several import surely, wordset
from autofast.model.source import (
    at,
    children,
    contains_kind,
    first_line,
    function_of,
    parent_of,
    source_of,
    statement_of,
)
from autofast.model.syntax import SEQUENCES, VARIABLES
from autofast.model.values import (
    Const,
    Ext,
    Seq,
    Thing,
    all_of,
    are_numbers,
    const,
    is_named,
    one,
)
from autofast.techniques.loading.image_batches import as_tensors
from autofast.write.imports import imported
from autofast.write.share_helper import is_share
from autofast.write.spelling import torch_in

NAMELESS = "its dataset has no name: put it into a variable first"


MOVED = ("batch_size", "shuffle", "sampler", "drop_last")  # what the sampler of batches takes over


BY_POSITION = ("dataset", "batch_size", "shuffle")
SIZES = ("batch_size", "drop_last")


SAMPLERS = wordset(
    """DistributedSampler WeightedRandomSampler RandomSampler SequentialSampler""",
    "torch.utils.data.",
)  # they give int


def only_collects(loader: Loader) -> bool:
    """The items are at hand, and making a batch is no more than to collect them."""
    return surely(map(_is_at_hand, loader.datasets))


def _is_at_hand(dataset: Dataset) -> bool:
    own = dataset.kind == "project" and dataset.in_memory
    return dataset.kind == "tensors" or (
        own and not (dataset.iterable or dataset.random or dataset.reads)
    )


def why_another(loader: Loader) -> str:
    """Where items are at hand in some runs alone: which other data set it may have."""
    others = [d for d in loader.datasets if not _is_at_hand(d)]
    if not others or len(others) == len(loader.datasets):
        return ""
    first = next((d for d in others if d.unknown), others[0])
    return f"in other runs it has another data set: {first.unknown or first.name}"


def is_batched(loader: Loader) -> bool:
    """Batches of one item, or made by the dataset already."""
    size = loader_argument(loader, "batch_size")
    if size is not None:
        return const(size.values) in (None, 1)
    return not loader.args.open and loader_argument(loader, "batch_sampler") is None


def why_not_batched(script: Script, loader: Loader) -> str:
    """Why batches must be collated item by item; empty where nothing speaks against."""
    if script.unread:
        return script.unread  # who looks at the loader may be missing
    if not all_of(loader.things, Ext):
        return "the loader is of a class of its own"
    if is_managed(script, loader):
        return "a framework gets the loader and looks at its batch_size"
    if loader.args.open:
        return f"its arguments are not all known: {loader.args.open}"
    # The indices of a split are whole numbers of Python.
    if not all(
        is_dataset_or_part(t, loader.datasets, {SPLIT}) for t in loader.args.get(0, "dataset")
    ):
        return "the dataset is wrapped in something that takes one index at a time"
    return why_not_movable(loader) or looked_at(script, loader, ("dataset",), ITERATING | KEEPING)


def is_dataset_or_part(thing: Thing, datasets: list[Dataset], parts: Collection[str]) -> bool:
    """One of the datasets itself, or a part of it as these make them."""
    if is_named(thing, Ext, parts):
        return all(is_dataset_or_part(t, datasets, parts) for t in thing.args.get(0, "dataset"))
    return any(thing is d.thing for d in datasets)


def why_not_movable(loader: Loader, spread: str = "") -> str:
    """Why its arguments cannot be those of a sampler of batches; ``spread``: the variable whose
    dict may be read.
    """
    if own := own_argument(loader, "collate_fn", "batch_sampler"):
        return f"it has a {own} of its own"
    for name in ("dataset", *MOVED, "generator"):
        if (value := loader_argument(loader, name)) is None:
            continue
        read = spread and (name == "shuffle" or (name in SIZES and value.sure))
        if not read and (value.via or value.expr is None or not value.sure):
            return f"`{name}` comes through a dict"
        if name not in (*BY_POSITION, *loader.args.named):
            return f"`{name}` is given by its position"
        unnamed = not isinstance(value.expr, VARIABLES) and const(value.values) is not None
        if name == "generator" and unnamed:
            return "its generator has no name"
    sampler = loader_argument(loader, "sampler")
    if sampler is not None and len(sampler.values) > 1 and Const(None) in sampler.values:
        return "whether it has a sampler depends on the run"
    if sampler is not None and not all(
        t == Const(None) or is_named(t, Ext, SAMPLERS) or _picks_numbers(t) for t in sampler.values
    ):
        return "its sampler may give something else than whole numbers"
    return ""


def _picks_numbers(sampler: Thing) -> bool:
    """``SubsetRandomSampler`` of a list of whole numbers: tensors in it would index otherwise."""
    if not is_named(sampler, Ext, "torch.utils.data.SubsetRandomSampler"):
        return False
    indices = one(sampler.args.get(0, "indices"))
    return isinstance(indices, Seq) and are_numbers(indices.any())


def looked_at(
    script: Script, loader: Loader, kept: Collection[str], functions: frozenset[str]
) -> str:
    """A place that uses more of the loader than the attributes that are kept and the length of its
    dataset, or hands it to more than these functions.
    """
    for use in loader_usages(script, loader):
        match use.node:
            case ast.Attribute(attr=attr) as node:
                if not (attr in kept or is_measured(script, node) or is_share(function_of(node))):
                    return f"{at(node)} uses its `{attr}`"
            case ast.Call() as call if not is_known(script, call, functions):
                return f"{at(call)} hands it to code that is not known"
    return ""


def sampler_of_batches(script: Script, loader: Loader) -> Edits | str:
    """``DataLoader(data, batch_size=None, sampler=BatchSampler(RandomSampler(data), 64, False))``;
    or why it cannot be written.
    """
    call, source = loader.node, source_of(loader.node)
    value = loader_argument(loader, "dataset")
    assert value is not None and value.expr is not None  # see why_not_batched()
    edits: list[Edit] = []
    data = source.segment(value.expr)
    if not isinstance(value.expr, VARIABLES):
        if isinstance(statement := statement_above(value.expr), str):
            return statement
        data = name_for_data(call, value.expr, "dataset")
        edits += [
            Before(statement, f"{data} = {{data}}", {"data": value.expr}),
            Rewrite(value.expr, data),
        ]
    for dataset in loader.datasets:
        if isinstance(wrapped := _contiguous(script, dataset), str):
            return wrapped
        edits += wrapped
    sampler, more = batched_arguments(loader, data)
    return (*edits, *more, Keyword(call, "sampler", sampler))


def statement_above(data: ast.expr) -> ast.stmt | str:
    """The statement above which the data of a loader can be made as they are in it, or why not:
    they always are, and nothing but variables is asked for before.
    """
    node: ast.AST = data
    around = (*SEQUENCES, ast.Dict, ast.Call, ast.keyword, ast.Assign, ast.Return, ast.Expr)
    while isinstance(outer := parent_of(node), around):
        parts = list(children(outer))
        earlier = [] if isinstance(data, VARIABLES) else parts[: parts.index(node)]
        if any(contains_kind(part, ast.Call, ast.NamedExpr, ast.Await) for part in earlier):
            return NAMELESS
        if isinstance(outer, ast.stmt):
            return outer
        node = outer
    return "it is made in the middle of a statement: give it a name above"


def batched_arguments(loader: Loader, data: str, spread: str = "") -> tuple[str, list[Edit]]:
    """A sampler of batches of ``data``, and the other arguments of a loader that has it;
    ``spread``: the variable whose dict gives it some.
    """
    call, edits, code = loader.node, list[Edit](), dict[str, str]()
    every = {
        n: value for n in (*MOVED, "generator") if (value := loader_argument(loader, n)) is not None
    }
    for name, value in every.items():
        code[name] = source_of(call).segment(value.expr) if value.expr is not None else ""
        if value.via:
            code[name] = f'{spread}["{name}"]' if value.sure else f'{spread}.get("{name}")'

    def made(name: str, *arguments: str) -> str:
        spelled, imports = spelled_beside(call, name)
        edits.extend(imports)
        return f"{spelled}({', '.join(arguments)})"

    own = [f"generator={code['generator']}"] if "generator" in code else []
    shuffle = const(every["shuffle"].values) if "shuffle" in every else False
    if "sampler" in every and const(every["sampler"].values) is not None:
        order = code["sampler"]
    elif shuffle is ... or (shuffle and not every["shuffle"].sure):
        order = f"{made('RandomSampler', data, *own)} if {code['shuffle']} else {made('SequentialSampler', data)}"
    else:
        order = made("RandomSampler", data, *own) if shuffle else made("SequentialSampler", data)
    drop = f"drop_last={code.get('drop_last', 'False')}"
    sampler = made("BatchSampler", order, code["batch_size"], drop)
    for name, value in every.items():
        if name not in loader.args.named and value.expr is not None:
            edits.append(Rewrite(value.expr, "None"))
        elif name == "batch_size":
            edits.append(Keyword(call, name, "None"))
        elif name in ("shuffle", "drop_last"):
            edits.append(DropKeyword(call, name))
    return sampler, edits


def name_for_data(call: ast.Call, data: ast.expr, *words: str) -> str:
    """A name for the data of a loader: ``train_dataset`` for ``train_loader``."""
    match statement_of(call):
        case ast.Assign(targets=[target], value=value) if value is call:
            name = short_name(target)
        case _:
            name = short_name(data)
    head = name.replace("dataloader", "loader").removesuffix("loader")
    ends = {name: "_", "": ""}.get(head, "")
    return source_of(call).fresh(*(f"{head}{ends}{word}" for word in words))


def spelled_beside(call: ast.Call, name: str) -> Written:
    """A class of torch.utils.data, written as the call writes ``DataLoader``, if that is short."""
    if isinstance(package := receiver_of(call), ast.Name):
        return f"{source_of(call).segment(package)}.{name}", ()
    return imported(source_of(call), "torch.utils.data", name)


def _contiguous(script: Script, dataset: Dataset) -> list[Edit] | str:
    """Edits after which batches that are indexed at once lie in memory as collated ones do."""
    edits: list[Edit] = []
    for expr, made in stored_tensors(script, dataset):
        if expr is None:
            return f"how the tensors of {dataset.name} lie in memory is not known"
        if in_order(script, expr):
            continue
        if why := why_trainable(script, expr):
            return f"`{first_line(expr)}` {why}, and may lie in memory in another order: it would have to be copied"
        if not script.analysis(Memory).is_fresh(expr) and (
            why := written_after(script, expr, made)
        ):
            return f"`{first_line(expr)}` may lie in memory in another order, and cannot be copied: {why}"
        edits.append(Wrap(expr, "{}.contiguous()"))
    return edits


def as_dataset(image_set: Images) -> Edits:
    """Where a loader takes the image set, all of its images as a TensorDataset."""
    edits: list[Edit] = []
    for expr in image_set.readers:
        source, taker = source_of(expr), taker_of(expr)
        assert taker is not None  # a loader, or a split that it reads
        torch, imports = torch_in(source)
        dataset, more = spelled_beside(taker, "TensorDataset")
        name = source.fresh("as_tensors")
        code = as_tensors(*image_set.kind).format(name=name, torch=torch, parameter="", padded="")
        edits += [*imports, *more, Helper(source, name, code)]
        edits.append(Wrap(expr, f"{dataset}(*{name}({{}}))"))
    return tuple(edits)
