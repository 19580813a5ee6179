"""What a dataset is: where its items come from, what they cost, and what random numbers they
draw.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace

from autofast.model.contents import attributes, with_contents
from autofast.model.kinds import library_dataset
from autofast.model.names import last_part
from autofast.model.roles import Dataset
from autofast.model.several import of_kind, wordset
from autofast.model.tensors import tensors_in
from autofast.model.values import (
    Arg,
    Arguments,
    Ext,
    Func,
    Inst,
    Num,
    Seq,
    Tensor,
    Thing,
    Unknown,
    Values,
    is_named,
    is_on_device,
    ordered,
    why_unknown,
)
from autofast.read.library import hugging_face_data
from autofast.read.recover.item_code import GENERATORS, Walk, transform_randomness
from autofast.read.state.core import Core

IN_MEMORY_LIBRARY = wordset(
    "MNIST FashionMNIST KMNIST EMNIST QMNIST CIFAR10 CIFAR100 SVHN STL10 USPS FakeData"
)


WRAPPERS = tuple(f"torch.utils.data.{n}" for n in ("Subset", "ConcatDataset", "random_split"))


def describe(interp: Core, found: Values) -> list[Dataset]:
    """The datasets a loader may read, wrappers (Subset, random_split, ConcatDataset) opened."""
    every = with_contents(ordered(found), wrapped_datasets)
    return [_describe(interp, t) for t in every if not is_named(t, Ext, WRAPPERS)]


def wrapped_datasets(thing: Thing) -> Iterable[Thing]:
    """What a ``Subset``, a ``ConcatDataset``, a part of a ``random_split`` is made of."""
    if not is_named(thing, Ext, WRAPPERS):
        return ()
    inner = thing.args.get(0, "dataset") | thing.args.get(0, "datasets")
    return (x for t in inner for x in (t.any() if isinstance(t, Seq) else {t}))


def _describe(interp: Core, thing: Thing) -> Dataset:
    if isinstance(thing, Inst):
        return _of_project(interp, thing)
    if isinstance(thing, Ext):
        return _of_library(interp, thing)
    if isinstance(thing, (Seq, Tensor)):
        kind = "tensors" if isinstance(thing, Tensor) else "list"
        return Dataset(
            thing,
            kind,
            getattr(thing, "node", None),
            "a list" if kind == "list" else "a tensor",
            in_memory=True,
        )
    reason = thing.why if isinstance(thing, Unknown) else "its dataset is not resolved"
    return Dataset(thing, "unknown", None, "?", unknown=reason, random=frozenset({"unknown"}))


def _of_library(interp: Core, thing: Ext) -> Dataset:
    short = last_part(thing.name)
    if thing.name == "torch.utils.data.TensorDataset":
        held = tensors_in(*thing.args.placed)
        on_device = "its tensors are on the device" if any(t.device == "dev" for t in held) else ""
        mine = (thing, "tensors", thing.node, short)
        return Dataset(*mine, in_memory=True, on_device=on_device)
    if thing.name.startswith(("torchvision.datasets.", "torchaudio.datasets.")):
        given = [*thing.args.things, *(t for v in _given_later(thing) for t in v)]
        transforms = frozenset(t for t in given if not isinstance(t, (Num, Unknown, Arg)))
        draws, unknown = transform_randomness(interp, transforms)
        if not unknown and (why := _unknown_transform(thing, short)):
            draws, unknown = draws | {"unknown"}, why
        in_memory = short in IN_MEMORY_LIBRARY
        reads = frozenset({"compute"} if in_memory else {"file", "decode"})
        made = Dataset(thing, "library", thing.node, short, random=draws, reads=reads)
        made.in_memory, made.unknown = in_memory, unknown
        return made
    if hugging_face_data.is_dataset(thing) and "streaming" not in thing.arg_names():
        draws = frozenset({"unknown"} if hugging_face_data.draws(thing) else ())
        reads = wordset("file decode")
        return Dataset(thing, "library", thing.node, thing.name, random=draws, reads=reads)
    iterable = thing.name == "torch.utils.data.IterableDataset" or "streaming" in thing.arg_names()
    made = Dataset(thing, "library", thing.node, thing.name, iterable=iterable)
    made.random, made.unknown = frozenset({"unknown"}), "its code is not in this project"
    return made


def _unknown_transform(thing: Ext, short: str) -> str:
    """Why one of the transforms is not known."""
    first = 1 if short in ("ImageFolder", "DatasetFolder") else 2
    named = [
        given
        for name, given in thing.args.named.items()
        if name.endswith(("transform", "transforms"))
    ]
    found = [g.values for g in (*thing.args.positional[first : first + 2], *named)]
    return next((why for v in [*found, *_given_later(thing)] if (why := why_unknown(v))), "")


def _given_later(thing: Ext) -> list[Values]:
    """Transforms that a dataset is given when it is made: ``data.transform = Compose(...)``."""
    return [v for name, v in thing.attrs.items() if name.endswith(("transform", "transforms"))]


def _of_project(interp: Core, thing: Inst) -> Dataset:
    cls = thing.cls
    library = library_dataset(thing)
    if library:
        base = _of_library(interp, Ext(library, thing.node, thing.args or Arguments(None)))
    else:
        base = None
    if base is not None and cls.find("__getitem__") is None and cls.find("__iter__") is None:
        return replace(
            base, thing=thing, name=cls.node.name, set_outside=tuple(_set_outside(interp, thing))
        )
    getters = [f for name in ("__getitem__", "__getitems__", "__iter__") for f in cls.methods(name)]
    iterable = "torch.utils.data.IterableDataset" in cls.external
    walk = Walk(interp, getters)
    walk.follow_attributes(thing)
    tensors = of_kind(attributes(thing), Tensor)
    on_device = next(
        (
            f"its attribute `{n}` is on the device"
            for n, v in thing.attrs.items()
            for t in v
            if is_on_device(t)
        ),
        "",
    )
    if walk.device:
        on_device = on_device or "its items are moved to the device where they are fetched"
    item = next(
        (
            f.node
            for f in getters
            if isinstance(f.node, ast.FunctionDef) and f.name == "__getitem__"
        ),
        None,
    )
    own = [f"`{n}`" for n, v in thing.attrs.items() for t in v if is_named(t, Ext, GENERATORS)]
    random = walk.random | ({"own"} if own else set())
    if base is not None:  # its items come from the library's class
        random, walk.reads = random | base.random, walk.reads | base.reads
    unknown = "" if getters else f"class {cls.node.name} has no __getitem__ in this project"
    return Dataset(
        thing, "project", thing.node, cls.node.name, iterable, walk.sharded, frozenset(random), frozenset(walk.reads),
        in_memory=bool(tensors) or not walk.reads & {"file", "decode"}, on_device=on_device, writes=tuple(sorted(walk.writes)),
        set_outside=tuple(_set_outside(interp, thing)), unknown=unknown, getitem=item, unclear=walk.unclear,
    )  # fmt: skip


SETTERS = ("next_epoch", "shuffle", "mixup_off", "reset", "update")


def _set_outside(interp: Core, thing: Inst) -> Iterator[ast.AST]:
    constructors = [f.node for c in thing.cls.ancestors() for f in c.methods("__init__")]
    inside = {node for own in (thing.cls.node, *constructors) for node in ast.walk(own)}
    for site in interp.log.of("set_attribute"):
        if site.node not in inside and any(o.this is thing for o in site):
            yield site.node
    for name, found in thing.cls.members.items():
        if name.startswith("set_") or name in SETTERS:
            for func in found:
                if isinstance(func, Func) and func.node in interp.called:
                    yield func.node
