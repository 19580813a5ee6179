"""Iterating, unpacking and subscripting: what a batch of a loader is made of."""

from __future__ import annotations

import ast
from dataclasses import replace
from functools import partial
from typing import Any

from autofast.model.changes import CLOCK
from autofast.model.contents import dict_items, with_contents, wrapped
from autofast.model.kinds import is_dataset, is_loader, is_module, library_dataset
from autofast.model.limits import FETCHED, FEW
from autofast.model.names import GRAPHS, GRIDS, NAMED_TUPLE, last_part
from autofast.model.tensors import SHAPE, tensors_in
from autofast.model.values import (
    COLLECTIONS,
    COUNT,
    NOTHING,
    NUMBER,
    OBJECTS,
    Arg,
    Arguments,
    ById,
    Const,
    Dict,
    Ext,
    Given,
    Inst,
    Located,
    Method,
    Num,
    Ref,
    Seq,
    Tensor,
    Thing,
    Unknown,
    Values,
    Where,
    any_named,
    const,
    is_const,
    of_kind,
    ordered,
    things as values,
)
from autofast.read.library import module_parts
from autofast.read.state.core import Core, TooDeep


def loaders_in(over: Values) -> frozenset[Any]:
    """The loaders whose batches a loop over these values gets."""
    found: set[Any] = set()
    for thing in with_contents(over, lambda t: () if is_loader(t) else wrapped(t)):
        if is_loader(thing):
            found.add(thing)
        elif isinstance(thing, Seq) and thing.kind in ("generator", "zip"):
            found |= {x for t in tensors_in(thing.any()) for x in t.batch}
    return frozenset(found)


def iterate(interp: Core, over: Values, node: Where) -> Values:
    """What the loop variable of ``for x in over`` may be."""
    found: Values = NOTHING
    node = node or ast.Pass()
    for thing in _unwrapped(over):
        found |= _iterate(interp, thing, node)
    return found


def _unwrapped(over: Values) -> list[Thing]:
    """What ``over`` goes through in the end: what ``filter``, ``reversed``, ``tqdm`` are given,
    each once, however they are nested.
    """
    found: ById = {}
    todo, seen = ordered(over), set[int]()
    while todo:
        thing = todo.pop(0)
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, Ext) and "over" in thing.attrs and not _gives_others(thing):
            todo = [*ordered(thing.attrs["over"]), *todo]
        else:
            found[id(thing)] = thing
    return list(found.values())


def _gives_others(thing: Ext) -> bool:
    """A loader gives batches, ``enumerate`` pairs."""
    return is_loader(thing) or thing.name == "builtins.enumerate"


def _iterate(interp: Core, thing: Thing, node: ast.AST) -> Values:
    if is_loader(thing):
        if isinstance(thing, Inst) and thing.cls.find("__iter__") is not None:
            return by_iterator(interp, thing, node)
        return batch_of(interp, thing)
    if isinstance(thing, Ext) and "over" in thing.attrs:
        inner = iterate(interp, thing.attrs["over"], node)
        if thing.name == "builtins.enumerate":
            return interp.tuple_of(node, (COUNT, inner), thing)
        return inner
    if isinstance(thing, Seq):
        return thing.any() or values(Unknown("the list is empty here"))
    if isinstance(thing, Located) and thing.read:  # its lines
        return values(thing)
    if isinstance(thing, Dict):
        keys = values(*(Const(k) for k in thing.entries))
        if thing.open or thing.rest or not keys:
            return keys | values(Num(), Unknown(thing.open))
        return keys
    if isinstance(thing, Inst):
        if thing.cls.find("__iter__") is not None:
            return by_iterator(interp, thing, node)
        if (held := dict_items(thing)) is not None:
            return _iterate(interp, held, node)
        if thing.cls.find("__getitem__") is not None:
            return interp.call_method_of(thing, "__getitem__", [NUMBER], node)
    if isinstance(thing, OBJECTS) and is_module(thing):
        if module_parts.is_container(thing, module_parts.DICTS):
            return iterate(interp, module_parts.table(interp, thing), node)
        if isinstance(thing, Inst):
            return module_parts.any_part(thing) or values(Unknown("a submodule"))
    return element(interp, thing, None)


def following(interp: Core, over: Values, node: Where) -> Values:
    """What ``next(over)`` may be: an object with ``__next__`` is asked for it, whatever its
    ``__iter__`` gives.
    """
    found: Values = NOTHING
    node = node or ast.Pass()
    for thing in ordered(over):
        if isinstance(thing, Inst) and thing.cls.find("__next__") is not None:
            found |= interp.call_method_of(thing, "__next__", [], node)
        else:
            found |= _iterate(interp, thing, node)
    return found


def by_iterator(interp: Core, thing: Inst, node: ast.AST) -> Values:
    """What the iterator gives that ``__iter__`` returns: ``__next__`` of an object of the project,
    which may be ``thing`` itself.
    """
    found: Values = NOTHING
    for iterator in ordered(interp.call_method_of(thing, "__iter__", [], node)):
        if isinstance(iterator, Inst) and iterator.cls.find("__next__") is not None:
            found |= interp.call_method_of(iterator, "__next__", [], node)
        elif isinstance(iterator, Inst) and iterator.cls.find("__iter__") is not None:
            found |= values(Unknown("its iterator is not known"))
        else:
            found |= _iterate(interp, iterator, node)
    return found


def submodules(thing: Inst | Ext) -> list[Thing]:
    return [t for t in ordered(module_parts.any_part(thing)) if is_module(t)]


def loss_of(output: Tensor) -> Tensor:
    """The loss that a model of a library computes from the labels that it is given, in fp32 (see
    ``loss_first``).
    """
    return output.but(fresh="", rank="0d", loss=True, loss_first=False, dtype="f32")


def element(interp: Core, thing: Thing, index: int | None) -> Values:
    """An element of ``thing``: ``thing[i]``, or one part of an unpacking."""
    if isinstance(thing, Inst) and (named := fields_of(thing)):
        fields = [thing.attrs.get(name, NOTHING) for name in named]
        if index is not None and -len(fields) <= index < len(fields):
            return fields[index]
        return NOTHING.union(*fields)
    if isinstance(thing, Tensor):
        if thing.loss_first and index == 0:
            return values(loss_of(thing))
        return values(thing.but(fresh="", rank="", loss_first=False, sure=bool(thing.sure)))
    if isinstance(thing, Seq) and thing.items is not None and index is not None:
        if -len(thing.items) <= index < len(thing.items):
            return thing.items[index] | thing.elem
    if isinstance(thing, COLLECTIONS):
        return thing.any()
    if isinstance(thing, Const):
        if (
            isinstance(thing.value, (tuple, str))
            and index is not None
            and -len(thing.value) <= index < len(thing.value)
        ):
            return values(Const(thing.value[index]))
        return NUMBER
    if isinstance(thing, Ref) and thing.name.endswith(".__dict__"):
        # models.__dict__[name]: one of them.
        return values(Ref(thing.name[: -len("__dict__")] + "*"))
    if isinstance(thing, Ref) and thing.name in GRIDS:
        return NUMBER
    if module_parts.is_container(thing):
        return module_parts.part(thing, index) or values(Unknown("a submodule"))
    if module_parts.is_of_library(thing):
        return values(thing)  # `*vgg.features[:23]`
    if isinstance(thing, Ext):
        if is_dataset(thing):
            return sample_of(interp, thing)
        if "over" in thing.attrs:
            return _iterate(interp, thing, thing.node or ast.Pass())
        if thing.name == "argparse.parsed":
            return thing.attrs["namespace"] if index == 0 else values(Seq(None, None, NUMBER))
    if isinstance(thing, (Num, Arg)):
        return values(Num(scalar=isinstance(thing, Num) and thing.pattern == SHAPE))
    if isinstance(thing, Unknown):
        return values(thing)
    if isinstance(thing, Method) and module_parts.is_of_library(thing.this):
        return values(thing.this)  # `vgg.features[3]`: taken for the whole, as its children are
    return values(Unknown("an element of something that is not known"))


def made_with(loader: Ext | Inst) -> tuple[Arguments | None, Where]:
    """What a DataLoader was made with, and where; its ``collate_fn`` may have been set later."""
    inner = of_kind(loader.attrs.get("__loader__", NOTHING), Ext)
    args, node = (inner[0].args, inner[0].node) if inner else (loader.args, loader.node)
    set_later = loader.attrs.get("collate_fn", NOTHING)
    if args is not None and set_later and set_later != args.get(6, "collate_fn"):
        args = replace(args, named={**args.named, "collate_fn": Given(set_later, None)})
    return args, node


def batch_of(interp: Core, loader: Thing) -> Values:
    """What one batch of a DataLoader is made of."""
    cache: dict[int, Values] = interp.__dict__.setdefault("_batches", {})
    if id(loader) in cache:
        return cache[id(loader)]
    tag = frozenset({loader})
    cache[id(loader)] = values(
        Tensor(batch=tag, device="cpu")
    )  # a dataset that iterates its loader
    known = made_with(loader)[0] if isinstance(loader, OBJECTS) else None
    args = known or Arguments(None)
    stack, interp.stack = interp.stack, []
    interp.limits.append(min(interp.limits[-1], interp.steps + FETCHED))
    inside = interp.depths()
    try:
        sample = sample_of(interp, *args.get(0, "dataset"))
        alone = const(args.get(1, "batch_size")) is None and not args.get(4, "batch_sampler")
        collate = [t for t in args.get(6, "collate_fn") if t != Const(None)]
        if any_named(collate, Unknown, GRAPHS):
            made = values(Tensor(rank="?"))
        elif collate:
            given = sample if alone else values(Seq(None, None, sample))
            gathered = Arguments(None, [Given(given, None)])
            made = interp.call_values(frozenset(collate), gathered, None)
        else:
            made = sample
        how = "own" if collate else "item" if alone else "batch"
        found = _folded(Collation(interp, tag, how).every(made))
    except TooDeep:
        interp.unwind(inside)
        CLOCK.shake()
        found = values(Tensor(batch=tag, device="cpu"))
    finally:
        interp.limits.pop()
        interp.stack = stack
    cache[id(loader)] = found or values(Tensor(batch=tag, device="cpu"))
    # The script may put other things into the dict or list that it gets.
    as_made: dict[int, Values] = interp.__dict__.setdefault("_batches_as_made", {})
    copies = Collation(interp, tag, "own", "as made")
    as_made[id(loader)] = frozenset(
        copies.one(t) if isinstance(t, COLLECTIONS) else t for t in cache[id(loader)]
    )
    return cache[id(loader)]


def _folded(batches: Values) -> Values:
    """Of many dicts, as many datasets make them one of which is chosen, one that may be each."""
    several = of_kind(ordered(batches), Dict)
    if len(several) <= FEW:
        return batches
    one = Dict(None, open=next((t.open for t in several if t.open), ""))
    one.rest = NOTHING.union(*(t.rest for t in several))
    for key in dict.fromkeys(key for t in several for key in t.entries):
        in_all = all(t.holds(key) for t in several)
        found = [e for t in several for e in t.entries.get(key, ())]
        one.entries[key] = [replace(e, sure=e.sure and in_all) for e in found]
    return batches - frozenset(several) | {one}


def sample_of(interp: Core, *datasets: Thing) -> Values:
    """One item of a dataset."""
    found: Values = NOTHING
    for thing in datasets:
        if isinstance(thing, Inst):
            if thing.cls.find("__getitem__") is not None:
                found |= interp.call_method_of(thing, "__getitem__", [NUMBER], None)
            elif thing.cls.find("__iter__") is not None:
                found |= iterate(
                    interp, interp.call_method_of(thing, "__iter__", [], None), ast.Pass()
                )
            elif library := library_dataset(thing):
                base = interp.intern(
                    Ext,
                    ("base", id(thing)),
                    partial(Ext, library, thing.node, thing.args or Arguments(None)),
                )
                found |= _library_sample(interp, base)
            else:
                found |= values(Unknown("its items are not known"))
        elif isinstance(thing, Ext):
            found |= _library_sample(interp, thing)
        elif isinstance(thing, Seq):
            found |= thing.any()
        elif isinstance(thing, Tensor):
            found |= values(thing)
        else:
            found |= values(Unknown("its dataset is not known"))
    return found


def _library_sample(interp: Core, thing: Ext) -> Values:
    short = last_part(thing.name)
    if short == "TensorDataset":
        held = (frozenset(tensors_in(g.values)) for g in thing.args.positional)
        return interp.tuple_of(None, tuple(t or values(Tensor()) for t in held), "sample", thing)
    if short in ("Subset", "ConcatDataset", "random_split"):
        inner = thing.args.get(0, "dataset") | thing.args.get(0, "datasets")
        return sample_of(
            interp, *(x for t in inner for x in (t.any() if isinstance(t, Seq) else {t}))
        )
    if thing.name.startswith("torchvision.datasets."):
        image = Tensor(device="cpu", dtype="f32", rank="4d")
        label = Tensor(device="cpu", dtype="int")
        return interp.tuple_of(None, (values(image), values(label)), "sample", thing)
    return values(Unknown(f"the items of {thing.name} are not known"))


class Collation:
    """What torch makes of samples. ``how``: ``batch``: by ``default_collate``, of which numbers and
    arrays become tensors, tuples lists, and texts rows of texts; ``item``: by ``default_convert``,
    without a batch; ``own``: by a function of the script, whatever it gives.

    ``tag``: the loaders whose batch it is. ``key``: the things that are made for one are the same.
    """

    def __init__(self, interp: Core, tag: frozenset[Any], how: str, *key: Any):
        self.interp, self.tag, self.how = interp, tag, how
        self.key = ("collated", how, tag, *key)
        self.done: ById = {}  # containers, which may hold themselves

    def every(self, found: Values, texts: str = "list") -> Values:
        return frozenset(self.one(thing, texts) for thing in found)

    def one(self, thing: Thing, texts: str = "list") -> Thing:
        """``thing`` in a batch; ``texts``: what the texts of all samples come in at this place."""
        if id(thing) in self.done:
            return self.done[id(thing)]
        batched = self.how == "batch"
        if isinstance(thing, Tensor):
            device = "cpu" if thing.device == "?" else thing.device
            return thing.but(batch=self.tag, fresh="", device=device, made=None, param="")
        if is_const(thing, tuple) and self.how != "own":
            parts = tuple(values(Const(v)) for v in thing.value)
            return self.row(thing, Seq(None, parts), "list")
        if not batched and (is_text(thing) or isinstance(thing, Num) and thing.scalar):
            return thing
        if is_text(thing):
            made = Seq(None, None, values(thing), texts)
            row: Seq = self.interp.intern(Seq, (*self.key, thing, texts), lambda: made)
            return row
        if is_const(thing, int, float) and batched:
            dtype = "int" if isinstance(thing.value, int) else "f64"
            return Tensor(batch=self.tag, device="cpu", dtype=dtype, sure=True)
        if isinstance(thing, (Num, Unknown, Ext)):
            rank = "?" if isinstance(thing, Num) and not batched else ""
            sure = isinstance(thing, Num) and thing.scalar
            return Tensor(batch=self.tag, device="cpu", rank=rank, sure=sure)
        if isinstance(thing, Seq):
            kind = thing.kind if self.how == "own" or thing.names else "list"
            return self.row(thing, thing, kind)
        if isinstance(thing, Dict):
            table = self.done[id(thing)] = Dict(thing.node, open=thing.open)
            table.rest = self.every(thing.rest)
            for key, entries in thing.entries.items():
                table.entries[key] = [replace(e, values=self.every(e.values)) for e in entries]
            return table
        if isinstance(thing, Inst) and not is_loader(thing):
            return self.object(thing)
        return thing

    def row(self, thing: Thing, of: Seq, kind: str) -> Seq:
        made: Seq = self.interp.intern(
            Seq, (*self.key, thing, kind), lambda: Seq(of.node, None, NOTHING, kind, names=of.names)
        )
        self.done[id(thing)] = made
        made.elem = self.every(of.elem, "tuple")
        made.items = None if of.items is None else tuple(self.every(i, "tuple") for i in of.items)
        return made

    def object(self, thing: Inst) -> Inst:
        """A batch that is an object of the project: its tensors are those of a batch. Each batch is
        an object of its own, so ``past`` holds them, too.
        """
        kinds = (Tensor, Seq, Const, Num) if fields_of(thing) else (Tensor, Seq)
        parts = {
            name: frozenset(self.one(t, "tuple") if isinstance(t, kinds) else t for t in found)
            for name, found in thing.attrs.items()
        }
        made = Inst(thing.cls, thing.node, dict(parts), (), thing.args, dict(parts), thing.open)
        self.interp.made.append(made)
        return made


def is_text(thing: Thing) -> bool:
    written = is_const(thing, str, bytes)
    return written or isinstance(thing, Num) and thing.pattern not in ("", SHAPE)


def fields_of(thing: Thing) -> tuple[str, ...]:
    """The names of the parts of a named tuple; none for anything else."""
    if isinstance(thing, Seq):
        return thing.names
    if not isinstance(thing, Inst) or NAMED_TUPLE not in thing.cls.external:
        return ()
    classes = thing.cls.lineage()
    given = next((const(c.members["_fields"]) for c in classes if "_fields" in c.members), ...)
    if isinstance(given, tuple):
        return given
    return tuple(
        s.target.id
        for c in reversed(classes)
        for s in c.node.body
        if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)
    )
