"""Who gets the items of a dataset, and where their batches are copied to the device: whether all of
them could be given bytes."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from autofast.facts.copies import against_copy
from autofast.facts.loaders import is_managed, loader_argument
from autofast.flow.callgraph import CallGraph
from autofast.flow.defuse import Definition
from autofast.flow.importers import Importers
from autofast.flow.program import Flow
from autofast.flow.reflection import namespace_calls
from autofast.flow.usage import Act, Usage, is_identity, usage_of
from autofast.flow.valueflow import Answer, Verdict, expressions_holding, first_bad
from autofast.model.calls import call_of, only_target
from autofast.model.contents import elements, with_contents
from autofast.model.roles import Loader, Transfer
from autofast.model.script import Script
from autofast.model.several import any_in, surely, wordset
from autofast.model.source import ByNode, at, function_of, parent_of, source_of
from autofast.model.syntax import DISPLAYS, SEQUENCES, has_star, is_read
from autofast.model.values import (
    Bound,
    Cls,
    Const,
    Ext,
    Func,
    Inst,
    Module,
    Ref,
    Seq,
    Thing,
    Values,
    all_of,
    begins,
    certainly,
    is_named,
)
from autofast.ops.families import REGROUPING
from autofast.rule import Refusal

WRAPPERS = wordset("Subset random_split ConcatDataset", "torch.utils.data.")
HANDED = (
    WRAPPERS
    | {"torch.utils.data.DataLoader"}
    | {f"builtins.{n}" for n in ("len", "isinstance", "print")}
)
HANDED |= {
    f"torch.utils.data.{n}" for n in ("RandomSampler", "SequentialSampler", "DistributedSampler")
}
LOOPED = wordset("builtins.enumerate tqdm.tqdm tqdm.auto.tqdm")
ASKED = wordset("dataset batch_size sampler num_workers drop_last")
SHAPE = wordset("shape size dim ndim")
Key = int | str | None  # of a tuple, of a dict; None: an item is nothing else


@dataclass(frozen=True, eq=False)
class Items:
    """Items whose part ``key`` is to be given as bytes: of datasets of the project with one of
    ``getitems``, and of ``sets`` of a library.

    ``transforms`` make them; ``calls``: where the project's code calls these.
    """

    key: Key
    getitems: tuple[ast.FunctionDef, ...]
    sets: tuple[Thing, ...] = ()
    transforms: tuple[Thing, ...] = ()
    calls: tuple[ast.Call, ...] = ()

    def come_from(self, thing: Thing) -> bool:
        """Whether it is a dataset that gives them."""
        if isinstance(thing, Inst):
            made = thing.cls.find("__getitem__") or ()
            return any(isinstance(f, Func) and f.node is g for f in made for g in self.getitems)
        return thing in self.sets


@dataclass(frozen=True, eq=False)
class Copy:
    """Where such a part of a batch is copied to the device, in a loop over batches."""

    transfer: Transfer
    loop: ast.For


def copies_of(script: Script, items: Items) -> list[Copy]:
    """Where the part of all batches of the items is copied to the device. Raises :class:`Refusal`
    where anybody else has a use for it."""
    if script.unread:
        raise Refusal(script.unread)  # who uses the items may be missing
    for getitem in items.getitems:
        owner = parent_of(getitem)
        if (user := script.analysis(Importers).user(owner if owner else getitem)) is not None:
            raise Refusal(f"{user} uses {getattr(owner, 'name', 'the dataset')}, too")
        if sites := script.analysis(CallGraph).sites(getitem):
            raise Refusal("makes items as well", sites[0])
    _others(script, items)
    _of_library(script, items)
    loaders = [x for x in script.loaders if any(items.come_from(d.thing) for d in x.datasets)]
    things = {id(t) for x in loaders for t in x.things}
    found: ByNode[Copy] = {}
    for loader in loaders:
        _against(script, loader, items)
        for part, loop in _loaded(script, loader, things, items.key):
            transfer = _copied(script, part)
            if transfer is not None:
                found[transfer.node] = Copy(transfer, loop)
    return list(found.values())


def _against(script: Script, loader: Loader, items: Items) -> None:
    where = f"the loader of {at(loader)}"
    if not all(items.come_from(d.thing) for d in loader.datasets):
        raise Refusal(f"{where} has other items as well")
    if (
        loader.args.open
        or is_managed(script, loader)
        or not all(type(t) is Ext for t in loader.things)
    ):
        raise Refusal(f"who gets the batches of {where} is not known")
    value = loader_argument(loader, "collate_fn")
    if value is not None and value.values != {Const(None)}:
        raise Refusal(f"{where} has a collate_fn of its own")
    things = set(loader.things)
    handling = _Handling(script, LOOPED | {"builtins.len"}, ASKED, iterated=True)
    if bad := first_bad(script, lambda found: any_in(found, things), handling.judge):
        node, why = bad
        raise Refusal(f"{why} of {at(loader)}", node)


def _of_library(script: Script, items: Items) -> None:
    """Raises :class:`Refusal` for another use of what makes items of a library's set: of its
    transforms, and of the code that makes it."""
    if not items.transforms:
        return
    if changed := script.calls("torch.set_default_dtype", "torch.set_default_tensor_type"):
        raise Refusal("changes of which type the floats of its transforms are", changed[0])
    makers = {t.name for t in items.sets if isinstance(t, Ext)} | {"builtins.print"}
    calls = {c.func for c in items.calls}
    handling = _Handling(script, makers, ("",))
    for node in expressions_holding(script, bool):
        inside = list(with_contents(script.values(node), elements))
        if any_in(inside, items.transforms) and node not in calls:
            if isinstance(why := handling.judge(usage_of(node)), str):
                raise Refusal(f"{why}, a transform", node)
        for t in inside:
            if begins(t, Ext, "torchvision.datasets."):
                given = set(t.args.things)
                if any_in(items.transforms, given) and not items.come_from(t):
                    raise Refusal("has another set with the same transform", node)
    for read in script.each(ast.Attribute):
        if read.attr in ("transform", "transforms") and not _is_own(script.values(read.value)):
            raise Refusal(f"uses `{ast.unparse(read)}`, perhaps a transform of the set", read)
    for made in (*items.transforms, *items.sets):
        place = getattr(made, "node", None)
        function = function_of(place) if place is not None else None
        name = getattr(function, "name", "")
        if function is not None and name:
            if (user := script.analysis(Importers).user(function)) is not None:
                raise Refusal(f"{user} uses {name}, too")
        elif place is None or source_of(place) is not script.entry:
            raise Refusal("its set or transform is made where other files may import it")


def _is_own(found: Values) -> bool:
    """Certainly an object of the project, or a module."""
    return certainly(found, Inst, Ref, Module)


# -------------------------------------------------------------------------------------- the dataset
def _others(script: Script, items: Items) -> None:
    """Raises :class:`Refusal` for a place that may take items out of the dataset itself."""
    handling = _Handling(script, HANDED)
    if bad := first_bad(
        script,
        lambda found: any(items.come_from(t) for t in with_contents(found, _given)),
        handling.judge,
    ):
        node, why = bad
        raise Refusal(f"{why}, a dataset", node)


def _given(thing: Thing) -> Iterable[Thing]:
    if is_named(thing, Ext, WRAPPERS):
        return thing.args.things
    return elements(thing)


@dataclass(frozen=True)
class _Handling:
    """What may be done with a dataset or loader, or a list of some: the reader follows them.

    Known are code of the project, ``functions`` of libraries, ``attributes`` (none: all but those
    that make items), and, for what may be ``iterated``, loops.
    """

    script: Script
    functions: Collection[str]
    attributes: Collection[str] = ()
    iterated: bool = False

    def judge(self, use: Usage) -> Answer:
        node, text = use.node, ast.unparse(use.expr)
        match use.act:
            case Act.ASKED:
                fine = self._asks(node)  # type: ignore[arg-type]
                return Verdict.GOES_ON if fine else f"uses `{ast.unparse(node)}`"
            case Act.GIVEN | Act.CALLED:
                fine = self._knows(node)  # type: ignore[arg-type]
                return Verdict.GOES_ON if fine else f"hands on `{text}`"
            case Act.LOOPED if self.iterated and isinstance(node, ast.For):
                return Verdict.GOES_ON
            case Act.HELD if isinstance(node, DISPLAYS):
                return Verdict.GOES_ON
            case Act.TAKEN | Act.FILLED | Act.INDEXES | Act.LOOPED | Act.HELD:
                several = all_of(self.script.values(use.expr), Seq)
                return Verdict.GOES_ON if several else f"takes something out of `{text}`"
            case Act.TARGET | Act.BOUND | Act.RETURNED | Act.DROPPED | Act.TESTED:
                return Verdict.GOES_ON
            case Act.CHOSEN if isinstance(node, ast.IfExp):
                return Verdict.GOES_ON
            case Act.COMPARED if is_identity(node):
                return Verdict.STOPS
        return f"has a use for `{text}` that is not followed"

    def _asks(self, node: ast.Attribute) -> bool:
        if not self.attributes:
            return node.attr not in ("__getitem__", "__iter__")
        return node.attr in self.attributes and not isinstance(parent_of(node), ast.Subscript)

    def _knows(self, call: ast.Call) -> bool:
        callee = self.script.called(call)
        return surely(
            isinstance(t, (Func, Bound, Cls)) or is_named(t, Ref, self.functions) for t in callee
        )


# -------------------------------------------------------------------------------------- its batches
def _loaded(
    script: Script, loader: Loader, things: Collection[int], key: Key
) -> Iterator[tuple[ast.expr, ast.For]]:
    """All reads of the part ``key`` of the loader's batches, each with its loop; ``things`` are all
    loaders of such items."""
    for use in loader.uses:
        loop = use.node
        if use.is_next or not isinstance(loop, ast.For):
            raise Refusal("takes batches otherwise than by a for loop", use)
        if namespace_calls(function_of(loop)):
            raise Refusal(f"text or locals() may use the batches of {at(loop)}")
        target, expr = loop.target, loop.iter
        while isinstance(expr, ast.Call):
            if library := next(iter(script.called(expr)), None):
                if library == Ref("builtins.enumerate"):
                    target = _element(target, 1)
                elif not is_named(library, Ref, LOOPED):
                    raise Refusal(f"what {at(loop)} iterates is not known")
            expr = expr.args[0] if expr.args else ast.Constant(None)
        if not all(id(t) in things for t in script.values(expr)):
            raise Refusal("goes through other loaders as well", loop)
        yield from ((read, loop) for read in _reads(script, target, key))


def _element(target: ast.expr, index: int) -> ast.expr:
    if isinstance(target, SEQUENCES) and index < len(target.elts):
        if not has_star(target.elts):
            return target.elts[index]
    raise Refusal(f"how {at(target)} takes a batch apart is not followed")


def _reads(script: Script, target: ast.expr, key: Key) -> Iterator[ast.expr]:
    """The reads of a part of what ``target`` is bound to."""
    if isinstance(target, SEQUENCES) and isinstance(key, int):
        target, key = _element(target, key), None
    if not isinstance(target, ast.Name):
        raise Refusal(f"how {at(target)} takes a batch apart is not followed")
    flow, definition = script.analysis(Flow), Definition(target.id, target)
    for read in flow.definitions(target).uses(definition):
        if flow.reaching(read) != {definition}:
            raise Refusal(f"`{target.id}` may be something else on {at(read)}")
        parent = parent_of(read)
        part: ast.expr | None = read if key is None else None
        if key is not None and isinstance(parent, ast.Subscript) and parent.value is read:
            index = script.constant(parent.slice)
            if not is_read(parent) or not isinstance(index, type(key)):
                raise Refusal(f"does something else with `{target.id}`", read)
            if index != key:
                continue
            part, parent = parent, parent_of(parent)
        if (renamed := only_target(parent)) is not None:
            yield from _reads(script, renamed, key if part is None else None)
        elif part is None:
            raise Refusal(f"does something else with `{target.id}`", read)
        else:
            yield part


def _copied(script: Script, read: ast.expr) -> Transfer | None:
    """The copy to the device that a read of a batch is for; None where it only asks for the
    shape."""
    parent = parent_of(read)
    while isinstance(parent, ast.Attribute):
        if parent.attr in SHAPE:
            return None
        if (call := call_of(parent)) is None:
            break
        transfer = next((t for t in script.transfers if t.node is call), None)
        if transfer is not None and transfer.how in ("to", "cuda"):
            if why := against_copy(transfer, ast.unparse(read)):
                raise Refusal(f"{at(call)}: {why}")
            return transfer
        if parent.attr not in REGROUPING:
            break
        parent = parent_of(call)
    if script.is_call(parent, "builtins.len"):
        return None
    raise Refusal(f"uses `{ast.unparse(read)}` in host memory, before it is on the device", read)
