"""Datasets in memory that can make a whole batch at once with the very numbers that they make item
by item.

Three kinds are told apart from what the reader found: ``TensorDataset``; datasets of the project
whose ``__getitem__`` only indexes tensors; and the image sets of torchvision that lie in memory,
with ``ToTensor`` and ``Normalize`` as their transforms. Arithmetic is allowed where IEEE 754 rounds
it the same for one number as for many (``+ - * /``, casts), which is not so for
``exp`` or ``sin``: their vectorised kernels differ from the scalar ones in the last bit.
"""

from __future__ import annotations

import ast
from collections.abc import Collection
from dataclasses import dataclass

from autofast.facts.loader_uses import loader_usages
from autofast.facts.loaders import DEVICE_DEFAULTS, is_iterated_again, own_argument
from autofast.facts.transforms import pipeline, short_name
from autofast.facts.workers.shared_state import changed_ever
from autofast.flow.provenance import assigned_value
from autofast.flow.reflection import whose_attributes
from autofast.flow.scopes import declared
from autofast.model.calls import only_target, variable_name
from autofast.model.events import CallFrame, Occurrence, Stack, loops
from autofast.model.kinds import ways_made
from autofast.model.roles import Dataset, Loader
from autofast.model.script import Script
from autofast.model.several import wordset
from autofast.model.source import (
    ByNode,
    at,
    is_generator,
    live_nodes,
    parent_of,
    running,
)
from autofast.model.syntax import (
    is_attribute,
    is_docstring,
    is_read,
)
from autofast.model.values import (
    Arguments,
    Ext,
    Inst,
    Ref,
    Tensor,
    Thing,
    begins,
    certainly,
    const,
    is_named,
    one,
)
from autofast.ops.families import ARITHMETIC
from autofast.read.recover.item_code import short_name_of

# `data` is a tensor (n, 28, 28) of bytes, `targets` a tensor.
GREY = wordset("MNIST FashionMNIST KMNIST")
# `data` is an array (n, 32, 32, 3) of bytes, `targets` a list.
COLOUR = wordset("CIFAR10 CIFAR100")
KINDS = frozenset(f"torchvision.datasets.{name}" for name in GREY | COLOUR)
SPLIT = "torch.utils.data.random_split"
EXACT_METHODS = wordset("float double long int half bool byte clone contiguous abs neg")
EXACT_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div)
# What is done to a row, and would be done to a batch along another dimension; as large as the row.
OF_ROW = wordset("unsqueeze squeeze view reshape flatten permute transpose flip item")


# --------------------------------------------------------------------------------- tensors, indexed
def why_not_rows(dataset: Dataset, singly: bool = False) -> str:
    """Why items of the dataset are not simply rows of tensors; empty where they are, and all can be
    made at once.

    ``singly``: each for itself, which may also be brought into another shape.
    """
    if dataset.kind == "tensors" and isinstance(dataset.thing, Ext):
        return ""
    if dataset.kind != "project" or not isinstance(dataset.thing, Inst) or dataset.getitem is None:
        return "its items are not rows of tensors in memory"
    if dataset.thing.cls.find("__getitems__") is not None:
        return "it has a __getitems__ of its own"
    return _indexing(dataset.thing, dataset.getitem, singly)


def returns_tuple(dataset: Dataset) -> bool:
    """Whether items that are :func:`why_not_rows` are tuples."""
    if dataset.getitem is None:
        return dataset.kind == "tensors"
    last = [*running(dataset.getitem.body)][-1]
    return isinstance(last, ast.Return) and isinstance(last.value, ast.Tuple)


def _indexing(thing: Inst, getitem: ast.FunctionDef, singly: bool) -> str:
    """Whether ``__getitem__`` does nothing but index tensors and compute number by number."""
    params = [a.arg for a in getitem.args.args]
    body = [s for s in running(getitem.body) if not is_docstring(s)]
    unusual = is_generator(getitem) or declared(getitem) or getitem.decorator_list
    if len(params) != 2 or unusual or not body:
        return "its __getitem__ is not a plain one"
    known: dict[str, bool] = {}
    for stmt in body[:-1]:
        name = variable_name(only_target(stmt))
        if name in ("", *params) or not _rows(stmt.value, thing, params, known, singly):  # type: ignore[attr-defined]
            return f"{at(stmt)} does more than to index tensors"
        known[name] = True
    last = body[-1]
    if isinstance(last, ast.Return) and all(
        _rows(part, thing, params, known, singly) for part in returned_parts(last.value)
    ):
        return ""
    return f"{at(last)} does more than to index tensors"


def returned_parts(value: ast.expr | None) -> list[ast.expr]:
    """What an item is made of."""
    if isinstance(value, ast.Tuple):
        return value.elts
    if isinstance(value, ast.Dict) and None not in value.keys:
        return value.values
    return [value] if value is not None else [ast.Constant(None)]


def _rows(
    expr: ast.expr, thing: Inst, params: list[str], known: dict[str, bool], singly: bool
) -> bool:
    """``self.x[index]``, possibly with arithmetic that is the same for one row and for many."""
    match expr:
        case ast.Subscript(
            value=ast.Attribute(value=ast.Name(id=this), attr=attr), slice=ast.Name(id=index)
        ):
            held = thing.attrs.get(attr, frozenset())
            return [this, index] == params and certainly(held, Tensor)
        case ast.Name(id=name):
            return name in known
        case ast.Call(func=ast.Attribute(value=inner, attr=method), args=[], keywords=[]):
            known_method = method in EXACT_METHODS or (singly and method in OF_ROW)
            return known_method and _rows(inner, thing, params, known, singly)
        case ast.Call(func=ast.Attribute(value=inner, attr=method), args=args, keywords=[]):
            numbers = all(_is_literal(a) for a in args)
            by_number = (method in ARITHMETIC and len(args) == 1) or (singly and method in OF_ROW)
            return numbers and by_number and _rows(inner, thing, params, known, singly)
        case ast.BinOp(left=left, op=op, right=right) if isinstance(op, EXACT_OPERATORS):
            # two tensors of unlike rank would be broadcast in another way as a batch
            left_is_number, right_is_number = (
                isinstance(left, ast.Constant),
                isinstance(right, ast.Constant),
            )
            return left_is_number is not right_is_number and _rows(
                right if left_is_number else left, thing, params, known, singly
            )
    return False


def _is_literal(expr: ast.expr) -> bool:
    """A number that is written out."""
    inner = expr.operand if isinstance(expr, ast.UnaryOp) else expr
    return isinstance(inner, ast.Constant) and isinstance(inner.value, (int, float))


def sets_method(script: Script, thing: Thing, *names: str) -> ast.AST | None:
    """A place that may give an object, or its class, another method of one of these names, or
    anything by any name.
    """
    for node in script.nodes:
        owner = whose_attributes(node)
        if owner is not None and thing in script.values(owner):
            return node
        match node:
            case ast.Attribute(attr=name) | ast.Constant(value=name) if name in names:
                if not is_read(node):
                    return node
    return None


def stored_tensors(
    script: Script, dataset: Dataset, under: Collection[str] | None = None
) -> list[tuple[ast.expr | None, list[Occurrence]]]:
    """The expressions of all tensors that items are rows of, with the ways the script comes there;
    None for one that is not found. ``under``: of these attributes of the project's object.
    """
    thing = dataset.thing
    if isinstance(thing, Ext):
        made = [o for s in script.log.of("new") if s.node is thing.node for o in s]
        return [
            (given.expr if not given.via else None, made) for given in thing.args.positional
        ] or [(None, made)]
    found: list[tuple[ast.expr | None, list[Occurrence]]] = []
    for node in live_nodes(dataset.getitem) if dataset.getitem is not None else ():
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute):
            if under is not None and node.value.attr not in under:
                continue
            sites = script.log.setting({thing}, node.value.attr)
            found += [(assigned_value(s.node), list(s)) for s in sites] or [(None, [])]
    return found


# ---------------------------------------------------------------------------- images of torchvision
@dataclass(frozen=True, eq=False)
class Images:
    """A call like ``datasets.MNIST(...)``; ``kind`` says what torchvision calls the set, and how
    many ``Normalize`` follow, ``readers`` where loaders and splits take it.
    """

    call: ast.Call
    kind: tuple[str, int]
    loaders: list[Loader]
    readers: list[ast.expr]


def image_sets(script: Script) -> dict[ast.AST | None, Images | str]:
    """The image sets in memory that loaders of the script read directly, by their call;
    or why they stay as they are.
    """
    things: dict[ast.Call, list[Ext]] = {}
    users: dict[ast.Call, list[Loader]] = {}
    for loader in script.loaders:
        for dataset in loader.datasets:
            thing = dataset.thing
            if isinstance(thing, Ext) and isinstance(thing.node, ast.Call) and thing.name in KINDS:
                things.setdefault(thing.node, []).append(thing)
                users.setdefault(thing.node, []).append(loader)
    found: dict[ast.AST | None, Images | str] = {
        call: _images(script, call, of, users[call]) for call, of in things.items()
    }
    eligible = {key: one_set for key, one_set in found.items() if isinstance(one_set, Images)}
    trained = {
        i.kind
        for i in eligible.values()
        if any(x.trains and is_iterated_again(script, x) for x in i.loaders)
    }
    for key, one_set in eligible.items():
        beside = {getattr(t, "node", None) for e in one_set.readers for t in script.values(e)}
        others = [eligible.get(k) for k in beside]
        if not trained:
            found[key] = "no training loop goes through it again and again"
        elif any(other is None or other.kind != one_set.kind for other in others):
            found[key] = "one place reads it and other data"
        elif trained != {one_set.kind}:
            found[key] = "another set of images, which is trained on, has other transforms"
    return found


def _images(
    script: Script, call: ast.Call, things: list[Ext], loaders: list[Loader]
) -> Images | str:
    transforms = {to_tensor(thing) for thing in things}
    if len(transforms) != 1 or (normalized := transforms.pop()) is None:
        return "its transforms are not just ToTensor and Normalize"
    if any(_is_given(thing, 3, "target_transform") for thing in things):
        return "it has a target_transform"
    if any(t != Ref(things[0].name) for t in script.called(call)):
        return "which dataset it is depends on the run"
    if sites := script.calls(*DEVICE_DEFAULTS, "torch.set_default_dtype"):
        return f"{at(sites[0])} changes what new tensors are"
    readers: ByNode[ast.expr] = {}
    for loader in loaders:
        if why := changed_ever(script, loader):
            return f"{why}, of which items are made"
        if own := own_argument(loader, "collate_fn", "batch_sampler"):
            return f"the loader of {at(loader)} has a {own} of its own"
        for use in loader_usages(script, loader):
            if is_attribute(use.node, "dataset") and not is_measured(script, use.node):
                return f"{at(use)} takes the dataset of a loader, which would be another"
        if any(loops(_in_process(script, ways_made(t))) for t in loader.things):
            return f"the loader of {at(loader)} is made in a loop, and with it all images"
        taken = _readers(loader.args, things)
        if taken is None:
            return f"the loader of {at(loader)} reads it through something else"
        readers |= {expr: expr for expr in taken}
    kind = short_name_of(things[0]), normalized
    return Images(call, kind, loaders, list(readers.values()))


def _in_process(script: Script, stack: Stack) -> Stack:
    """What of a way is in the process that comes to its end: each has its own images."""
    starts = {site.node for site in script.log.of("process")}
    begun = [n for n, f in enumerate(stack) if isinstance(f, CallFrame) and f.node in starts]
    return stack[begun[-1] + 1 :] if begun else stack


def _readers(arguments: Arguments, things: list[Ext]) -> list[ast.expr] | None:
    """The expressions by which a loader, or a split that it reads, takes the dataset; None where
    it is wrapped in something else.
    """
    given_ = arguments.given(0, "dataset")
    if given_ is None or given_.expr is None or given_.via:
        return None
    found: list[ast.expr] = []
    for thing in given_.values:
        if thing in things:
            found.append(given_.expr)
        elif is_named(thing, Ext, (SPLIT, "torch.utils.data.Subset")):
            if (inner := _readers(thing.args, things)) is None:
                return None
            found += inner
        elif not begins(thing, Ext, "torchvision.datasets."):
            return None
    return found


def to_tensor(thing: Ext) -> int | None:
    """How many ``Normalize`` follow ``ToTensor`` in the transform of an image set; None for what is
    anything else.
    """
    single = one(thing.args.get(2, "transform"))
    if short_name(single, v2=False) == "ToTensor":
        return 0
    names = [short_name(part, v2=False) for part in pipeline(single)]
    composed = short_name(single, v2=False) == "Compose" and names[:1] == ["ToTensor"]
    return len(names) - 1 if composed and set(names[1:]) <= {"Normalize"} else None


def _is_given(thing: Ext, index: int, name: str) -> bool:
    value = thing.args.given(index, name)
    return bool(thing.args.open) or (value is not None and const(value.values) is not None)


def is_measured(script: Script, node: ast.AST) -> bool:
    """``len(loader.dataset)``."""
    call = parent_of(node)
    return script.called(call) == {Ref("builtins.len")}
