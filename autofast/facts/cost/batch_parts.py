"""Which parts of a batch are one number for each item, as classes are: a few hundred bytes."""

from __future__ import annotations

import ast

from autofast.facts.arrays import array_of
from autofast.facts.cost.inputs import library_name_of
from autofast.flow.callgraph import CallGraph
from autofast.flow.program import Flow
from autofast.model.script import Dataset, Loader, Script
from autofast.model.source import live, parent_of
from autofast.model.values import Const, Ext, Ref, const

Key = int | str  # of a tuple or a dict
# torchvision's sets of images with one class each, in the second place.
CLASSIFIED = frozenset(
    """MNIST FashionMNIST KMNIST QMNIST EMNIST USPS CIFAR10 CIFAR100 SVHN STL10 ImageFolder DatasetFolder ImageNet Caltech101 Caltech256
    Food101 StanfordCars Flowers102 OxfordIIITPet GTSRB DTD EuroSAT FGVCAircraft Places365 RenderedSST2 Country211 PCAM FakeData""".split()
)
NUMBERS = frozenset(f"builtins.{n}" for n in ("int", "float", "bool", "len"))
DEPTH = 6


def is_number_each(script: Script, loaders: list[Loader], expr: ast.expr) -> bool:
    """Whether ``expr`` is certainly a part of their batches that is one number for each item."""
    key = _part(script, expr)
    datasets = [d for x in loaders for d in x.datasets]
    plain = all(_is_collated(x) for x in loaders)
    return (
        key is not None
        and plain
        and bool(datasets)
        and all(key in _numbers(script, d) for d in datasets)
    )


def _is_collated(loader: Loader) -> bool:
    """By torch itself, in batches."""
    own = loader.args.get(6, "collate_fn")
    return not loader.args.open and (not own or own == {Const(None)})


# --------------------------------------------------------------------------------------- which part
def _part(script: Script, expr: ast.expr) -> Key | None:
    """Where a part stands: 1 for ``y`` of ``for x, y in loader``, ``"y"`` for ``batch["y"]``."""
    match expr:
        case ast.Name():
            found = {_place(script, d.node) for d in script.analysis(Flow).reaching(expr)}
            return found.pop() if len(found) == 1 else None
        case ast.Subscript(value=ast.Name() as batch, slice=index):
            key = const(script.values(index))
            whole = [_path(script, d.node) for d in script.analysis(Flow).reaching(batch)]
            if isinstance(key, (int, str)) and whole and all(p == [] for p in whole):
                return key
    return None


def _place(script: Script, target: ast.AST) -> Key | None:
    path = _path(script, target)
    return path[0] if path is not None and len(path) == 1 else None


def _path(script: Script, target: ast.AST) -> list[int] | None:
    """The way from a batch to what a name is bound to: [] for the batch itself; None where it is
    bound otherwise.
    """
    path: list[int] = []
    node, parent = target, parent_of(target)
    while isinstance(parent, (ast.Tuple, ast.List)):
        path.insert(0, next(n for n, e in enumerate(parent.elts) if e is node))
        node, parent = parent, parent_of(parent)
    if isinstance(parent, (ast.For, ast.comprehension)) and parent.target is node:
        counted = any(
            isinstance(t, Ext) and t.name == "builtins.enumerate"
            for t in script.values(parent.iter)
        )
        return path if not counted else path[1:] if path[:1] == [1] else None
    match parent:
        case ast.Assign(targets=[only], value=ast.Name() as batch) if only is node and path:
            whole = [_path(script, d.node) for d in script.analysis(Flow).reaching(batch)]
            return path if whole and all(p == [] for p in whole) else None
    return None


# ------------------------------------------------------------------------------------ what it holds
def _numbers(script: Script, dataset: Dataset) -> frozenset[Key]:
    """The parts of its items that are certainly single numbers."""
    if dataset.getitem is None:
        known = library_name_of(dataset.thing) in CLASSIFIED
        return frozenset({1}) if known else frozenset()
    given = [n.value for n in live(dataset.getitem) if isinstance(n, ast.Return)]
    return _in_all(script, given, 0)


def _in_all(script: Script, given: list[ast.expr | None], depth: int) -> frozenset[Key]:
    found = [_numbers_in(script, value, depth) for value in given]
    return frozenset[Key].intersection(*found) if found else frozenset()


def _numbers_in(script: Script, value: ast.expr | None, depth: int) -> frozenset[Key]:
    match value:
        case ast.Call() if depth < DEPTH and (made := _given_by(script, value)):
            return _in_all(script, made, depth + 1)
        case ast.Tuple(elts=parts):
            return frozenset(n for n, e in enumerate(parts) if _is_one(script, e))
        case ast.Dict(keys=keys, values=parts):
            named = zip(keys, parts, strict=True)
            return frozenset(
                k.value
                for k, e in named
                if isinstance(k, ast.Constant) and isinstance(k.value, str) and _is_one(script, e)
            )
    return frozenset()


def _is_one(script: Script, expr: ast.expr | None, depth: int = 0) -> bool:
    """Whether an expression is certainly a single number."""
    if expr is None or depth > DEPTH:
        return False
    found = script.values(expr)
    if found and all(isinstance(t, Const) and isinstance(t.value, (int, float)) for t in found):
        return True
    match expr:
        case ast.Call(func=func):
            return all(isinstance(t, Ref) and t.name in NUMBERS for t in script.values(func)) and (
                bool(script.values(func))
            )
        case ast.Attribute() if given := _given_by(script, expr):  # a property
            return all(_is_one(script, value, depth + 1) for value in given)
        case ast.Name():
            made = [d.value for d in script.analysis(Flow).reaching(expr)]
            if made and all(_is_one(script, value, depth + 1) for value in made):
                return True
    array = array_of(script, expr)
    return array is not None and array.rank == 0 and not array.is_list


def _given_by(script: Script, node: ast.expr) -> list[ast.expr | None]:
    """What the functions of the project return that run at a node; nothing where others may run."""
    graph = script.analysis(CallGraph)
    functions = [f for f in graph.entered(node) if isinstance(f, ast.FunctionDef)]
    if isinstance(node, ast.Call) and graph.may_run_others(node):
        return []
    return [n.value for f in functions for n in live(f) if isinstance(n, ast.Return)]
