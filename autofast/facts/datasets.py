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
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from autofast.facts.arrays import REDUCED, array_of, held_under, values_of
from autofast.facts.loader_uses import uses
from autofast.facts.loaders import DEVICE_DEFAULTS, again, own_argument
from autofast.facts.transforms import pipeline, short_name
from autofast.facts.workers.shared_state import changed_ever
from autofast.flow.memory import FACTORIES
from autofast.flow.program import Flow
from autofast.flow.provenance import assigned
from autofast.flow.reflection import whose_attributes
from autofast.flow.scopes import Expressions, declared
from autofast.model.calls import arguments_of, only_target, variable_name
from autofast.model.calls import short_name as called_as
from autofast.model.events import Occurrence, loops
from autofast.model.kinds import ways_made
from autofast.model.names import LEGACY_TENSORS, last_part
from autofast.model.roles import Dataset, Loader
from autofast.model.script import Script
from autofast.model.several import only, surely, wordset
from autofast.model.source import (
    ByNode,
    ancestors,
    at,
    is_generator,
    is_switched,
    live,
    live_block,
    parent_of,
    statement_of,
)
from autofast.model.syntax import (
    LOOPS,
    SEQUENCES,
    is_attribute,
    is_docstring,
    is_operation,
    is_read,
    is_stored,
)
from autofast.model.values import (
    Arguments,
    Ext,
    Func,
    Inst,
    Ref,
    Seq,
    Tensor,
    Thing,
    Values,
    any_of,
    are_numbers,
    begins,
    certainly,
    const,
    is_const,
    is_named,
    is_weight,
    one,
)
from autofast.ops import is_pointwise, reshapes
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
IN_ORDER = FACTORIES  # new tensors lie in memory row by row
OF_LISTS = frozenset(f"torch.{name}" for name in LEGACY_TENSORS)  # so do those of lists
JOINS = wordset("torch.stack torch.cat")
KEEP_ORDER = EXACT_METHODS | wordset(
    "to detach sum mean argmax view reshape flatten unsqueeze squeeze repeat"
)  # besides what is pointwise

# The arguments of these say how large a tensor or array is, by a tuple or one by one.
BY_SIDES = wordset("zeros ones empty rand randn random randperm eye")
MADE = BY_SIDES | wordset("arange full randint integers normal uniform standard_normal")
TAKEN = wordset("torch.from_numpy torch.as_tensor torch.FloatTensor torch.LongTensor")
KEEP_SIZE = KEEP_ORDER - {"repeat"} | wordset(
    "astype copy numpy permute transpose t clone cpu cuda"
)
ROW_BY_ROW = EXACT_METHODS | wordset(
    "to numpy astype copy tensor array asarray cpu from_numpy as_tensor FloatTensor LongTensor"
)
BESIDE_ROWS = REDUCED | wordset("argmax unsqueeze squeeze flatten")  # of other dimensions than rows
MANY = 10**12  # numbers: as many as there may be


# --------------------------------------------------------------------------------- tensors, indexed
def indexed(dataset: Dataset, singly: bool = False) -> str:
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
    """Whether items that are :func:`indexed` are tuples."""
    if dataset.getitem is None:
        return dataset.kind == "tensors"
    last = [*_running(dataset.getitem.body)][-1]
    return isinstance(last, ast.Return) and isinstance(last.value, ast.Tuple)


def _indexing(thing: Inst, getitem: ast.FunctionDef, singly: bool) -> str:
    """Whether ``__getitem__`` does nothing but index tensors and compute number by number."""
    params = [a.arg for a in getitem.args.args]
    body = [s for s in _running(getitem.body) if not is_docstring(s)]
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
        _rows(part, thing, params, known, singly) for part in _parts_of(last.value)
    ):
        return ""
    return f"{at(last)} does more than to index tensors"


def _running(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements, with the arm that runs in place of an ``if`` with a constant."""
    for stmt in body:
        yield from _running(live_block(stmt)) if is_switched(stmt) else (stmt,)


def _parts_of(value: ast.expr | None) -> list[ast.expr]:
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


def in_order(script: Script, expr: ast.expr, depth: int = 0) -> bool:
    """A tensor that certainly has its strides in the order of its dimensions, so that rows of it
    make a contiguous batch.

    ``stack`` of single rows always gives a contiguous batch; indexing a permuted tensor gives a
    permuted one, on which ``view`` fails.
    """
    match expr:
        case ast.Call(keywords=keywords) if any(
            k.arg in (None, "memory_format", "out") for k in keywords
        ):
            return False
        case ast.Call(func=func, args=args) if script.may_be(func, Ref):
            name = script.library_name(func)
            if name == "torch.nn.Parameter" and args:
                return in_order(script, args[0], depth)
            if name == "torch.tensor" and args and isinstance(args[0], (ast.List, ast.ListComp)):
                return True  # made from numbers
            if name in OF_LISTS and args:
                return certainly(script.values(args[0]), Seq)
            if is_pointwise(name):
                return surely(_keeps_order(script, a, depth) for a in args)
            parts = (
                args[0].elts if name in JOINS and args and isinstance(args[0], SEQUENCES) else []
            )
            return name in IN_ORDER or surely(in_order(script, part, depth) for part in parts)
        case ast.Call(func=ast.Attribute(value=inner, attr=attr), args=args):
            if is_pointwise(f".{attr}"):
                return all(_keeps_order(script, a, depth) for a in (inner, *args))
            return attr in KEEP_ORDER and in_order(script, inner, depth)
        case ast.BinOp(left=left, right=right):
            return all(_keeps_order(script, side, depth) for side in (left, right))
        case ast.Compare(left=left, comparators=[right]):
            return in_order(script, left, depth) and _keeps_order(script, right, depth)
        case ast.UnaryOp(operand=inner) | ast.Subscript(value=inner):
            return in_order(script, inner, depth)
        case ast.Name() | ast.Attribute() if getattr(expr, "attr", "") not in (
            "T",
            "mT",
            "H",
            "mH",
        ):
            values = _given_to(script, expr)
            return (
                bool(values)
                and depth < 8
                and not _is_laid_out_anew(script)
                and all(v is not None and in_order(script, v, depth + 1) for v in values)
            )
    return False


def _given_to(script: Script, expr: ast.Name | ast.Attribute) -> Expressions:
    """What a variable, or an attribute of the project's objects, was set to; empty where that is
    not known.
    """
    if isinstance(expr, ast.Name):
        # `x += 1` leaves the strides of x, and its size, as they are
        made = script.analysis(Flow).origins(expr)
        return [v for d in made if not d.is_augmented for v in values_of(script, d)]
    return [e for t in script.values(expr.value) for e in held_under(script, t, expr.attr)]


def most_numbers(script: Script, expr: ast.expr | None, depth: int = 0) -> int:
    """How many numbers a tensor or array holds at the most, as far as the script says how large it
    is made; else :data:`MANY`.
    """
    if expr is None or depth == 16:
        return MANY
    parts: list[ast.expr] = []
    match expr:
        case ast.Constant() | ast.Slice():
            return 1
        case ast.Call(func=func, args=args):
            name = script.library_name(func) or f".{called_as(func)}"
            short = last_part(name)
            if short in MADE and (sides := _sides(expr, short)):
                return math.prod(_most(script.values(side)) for side in sides)
            if name in JOINS and args and isinstance(args[0], SEQUENCES):
                return sum(most_numbers(script, part, depth + 1) for part in args[0].elts)
            if name in TAKEN or is_pointwise(name):
                parts = args
            if isinstance(func, ast.Attribute) and (name[0] == "."):
                parts = [func.value, *parts] if short in KEEP_SIZE or is_pointwise(name) else []
        case ast.Name() | ast.Attribute():
            if are_numbers(script.values(expr)):
                return 1
            values = _given_to(script, expr)
            return max((most_numbers(script, v, depth + 1) for v in values), default=MANY)
        case ast.BinOp() | ast.Compare() | ast.UnaryOp() | ast.Subscript() | ast.Tuple():
            parts = only(ast.iter_child_nodes(expr), ast.expr)
    return math.prod(most_numbers(script, p, depth + 1) for p in parts) if parts else MANY


def row_count(script: Script, expr: ast.expr | None, depth: int = 0) -> object:
    """What tells how many rows an array, a tensor or a list has: equal for two of one object that
    have as many; None where nothing does.
    """
    parts: Expressions = []
    match expr:
        case ast.Attribute():
            parts = _given_to(script, expr)
        case ast.Name() if made := script.analysis(Flow).definition(expr):
            parts = values_of(script, made) if made.is_parameter else [made.value]
        case ast.Compare(left=left, comparators=[right]) | ast.BinOp(left=left, right=right) if (
            not is_operation(expr, ast.MatMult)
        ):
            parts = [side for side in (left, right) if not are_numbers(script.values(side))]
        case ast.Subscript(value=inner, slice=ast.Tuple(elts=[ast.Slice(None, None, None), *_])):
            parts = [inner]
        case ast.Subscript(slice=index) if array_of(script, index) and (
            taken := _same(script, index)
        ):
            return taken, statement_of(expr)
        case ast.Call(func=func, args=args) if not any_of(script.called(expr), Func):
            short, name = called_as(func), script.library_name(func)
            if short in MADE and (sides := _sides(expr, short)):
                if (measured := measured_by(sides[0])) is None:
                    return _same(script, sides[0])
                parts = [measured]
            elif name or not isinstance(func, ast.Attribute):
                if len(args) == 1 and _is_by_row(name):
                    parts = [*args]
            elif _is_by_row(f".{short}"):
                parts = [func.value]
            elif short in BESIDE_ROWS:
                axes = map(script.constant, arguments_of(expr))
                if surely(type(axis) is int and axis > 0 for axis in axes):
                    parts = [func.value]
    found = one({depth < 9 and row_count(script, part, depth + 1) or None for part in parts})
    if isinstance(expr, ast.Name) and not script.may_be(expr, Seq):
        return found or _same(script, expr)
    return found


def _is_by_row(name: str) -> bool:
    return last_part(name) in ROW_BY_ROW or is_pointwise(name)


def _same(script: Script, size: ast.expr) -> object:
    """What tells the value of a number, an index or an array: the number, or the only definition of
    a variable; of one that is made in a loop, in a single statement.
    """
    known = script.constant(size)
    made = script.analysis(Flow).definition(size) if isinstance(size, ast.Name) else None
    if known is not ... or made is None:
        return None if known is ... else known
    return made, statement_of(size) if any_of(ancestors(made.node), LOOPS) else None


def measured_by(expr: ast.expr | None) -> ast.expr | None:
    """The array of ``len(x)``, ``x.shape[0]`` and ``x.size(0)``."""
    match expr:
        case (
            ast.Call(func=ast.Name(id="len"), args=[measured])
            | ast.Subscript(
                value=ast.Attribute(value=measured, attr="shape"), slice=ast.Constant(value=0)
            )
            | ast.Call(
                func=ast.Attribute(value=measured, attr="size"), args=[ast.Constant(value=0)]
            )
        ):
            return measured
    return None


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


def _most(values: Values) -> int:
    """The largest of these numbers; options may be given any."""
    return max((t.value if is_const(t, int) else MANY for t in values), default=MANY)


def _sides(call: ast.Call, short: str) -> list[ast.expr]:
    """The lengths of the sides of a tensor or array that a call makes, as far as it shows them."""
    named = [k.value for k in call.keywords if k.arg in ("size", "shape")]
    tuples = [a for a in (*named, *call.args) if isinstance(a, SEQUENCES)]
    plain = short in BY_SIDES or len(call.args) == 1
    last = [] if short == "arange" else call.args[2:]  # ``integers(0, 2, n)``
    return tuples[0].elts if tuples else named or (call.args if plain else last)


def _keeps_order(script: Script, expr: ast.expr, depth: int) -> bool:
    """An operand that leaves the result of a pointwise operation in order."""
    return are_numbers(script.values(expr)) or in_order(script, expr, depth)


def _is_laid_out_anew(script: Script) -> bool:
    """Somewhere the strides of a tensor that exists are changed. ``memory_format=`` and ``p.data =
    ...`` of a parameter do that to the parameters of a module alone, which no data set may hold; of
    a tensor ``memory_format=`` makes another one."""
    nodes = script.nodes
    return any(
        isinstance(n, ast.Attribute)
        and script.reached(n)
        and (
            reshapes(n.attr)
            or (n.attr == "data" and is_stored(n) and not _is_of_module(script, n.value))
        )
        for n in nodes
    )


def _is_of_module(script: Script, expr: ast.expr) -> bool:
    """A parameter of a model, in every way the script comes there."""
    return surely(is_weight(t) for t in script.values(expr))


def held(
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
    for node in live(dataset.getitem) if dataset.getitem is not None else ():
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute):
            if under is not None and node.value.attr not in under:
                continue
            sites = script.log.setting({thing}, node.value.attr)
            found += [(assigned(s.node), list(s)) for s in sites] or [(None, [])]
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


def images(script: Script) -> dict[ast.AST | None, Images | str]:
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
        i.kind for i in eligible.values() if any(x.trains and again(script, x) for x in i.loaders)
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
        for use in uses(script, loader):
            if is_attribute(use.node, "dataset") and not is_measured(script, use.node):
                return f"{at(use)} takes the dataset of a loader, which would be another"
        if any(loops(ways_made(t)) for t in loader.things):
            return f"the loader of {at(loader)} is made in a loop, and with it all images"
        taken = _readers(loader.args, things)
        if taken is None:
            return f"the loader of {at(loader)} reads it through something else"
        readers |= {expr: expr for expr in taken}
    kind = short_name_of(things[0]), normalized
    return Images(call, kind, loaders, list(readers.values()))


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
