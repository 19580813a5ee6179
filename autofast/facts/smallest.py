"""How small the whole numbers of an expression are at the least: lengths, counts, places."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cached_property

from autofast.facts.arrays import held_under
from autofast.facts.loaders import values_given
from autofast.flow.callgraph import CallGraph, code_of
from autofast.flow.defuse import Definition, taken_by
from autofast.flow.effects import Effects
from autofast.flow.memory import Memory
from autofast.flow.program import Flow
from autofast.model.calls import is_method, keyword_of, variable_name
from autofast.model.contents import with_contents
from autofast.model.names import LEGACY_TENSORS, last_part
from autofast.model.roles import Loader
from autofast.model.script import Script
from autofast.model.several import any_in, not_none, of_kind, one, wordset
from autofast.model.syntax import SEQUENCES, TAKERS, Def
from autofast.model.values import Const, Func, Seq, certainly

Way = tuple[object, ...]  # to a part of a value: places in tuples, keys, ANY element
ANY = ...
# Never negative; what is as small as its first argument; ways around the things that loops go over.
COUNTS = wordset("len size numel nelement dim argmax argmin nonzero argsort")
KEEP = LEGACY_TENSORS | wordset(
    """to cuda cpu detach long int short item tolist numpy view reshape flatten squeeze unsqueeze
    expand repeat contiguous clone copy astype type max min sum tensor as_tensor from_numpy array
    asarray stack cat sorted list tuple reversed clamp"""
)
AROUND = wordset("tqdm trange list tuple sorted reversed iter")
DEEP = 40


class Smallest:
    """``script.analysis(Smallest)``"""

    def __init__(self, script: Script):
        self.script, self.flow = script, script.analysis(Flow)
        self.calls = script.analysis(CallGraph)
        self._open: set[tuple[ast.expr, Way]] = set()
        self._assumed: set[tuple[ast.expr, Way]] = set()
        self._depth = 0

    def of(self, expr: ast.expr | None, way: Way = ()) -> float | None:
        """A number that nothing in the expression (in its part at the end of the way) is below;
        None where nothing shows one.
        """
        if expr is None or self._depth > DEEP:
            return None
        if not isinstance(expr, ast.Name):
            self._depth += 1
            found = self._of(expr, way)
            self._depth -= 1
            return found
        key = expr, way
        if key in self._open:  # in terms of itself: not negative, if what it begins with is not
            self._assumed.add(key)
            return 0
        self._open.add(key)
        made = self.flow.reaching(expr)
        written = any(d.node in self._written for d in made)
        found = None if written else _least(self._defined(d, way) for d in made)
        self._open.discard(key)
        if key in self._assumed:
            self._assumed.discard(key)
            return None if found is None or found < 0 else 0
        return found

    @cached_property
    def _written(self) -> frozenset[ast.AST]:
        """What gave variables the lists, arrays and tensors that something writes to: by a view of
        them, or in a function that is given them, too.
        """
        memory = self.script.analysis(Memory)

        def below(node: ast.AST) -> Iterable[ast.AST]:
            if isinstance(node, ast.arg):
                return not_none(self.calls.gives(Definition(node.arg, node)))
            return memory.below(node)

        writes = self.script.analysis(Effects).writes
        bases: list[ast.AST] = [w.base for w in writes if w.base is not None]
        return frozenset(with_contents(bases, below))

    def _of(self, expr: ast.expr, way: Way) -> float | None:
        found = self.script.values(expr)
        if not way and certainly(found, Const):
            numbers = [t.value for t in of_kind(found, Const)]
            return min(numbers) if all(type(n) is int for n in numbers) else None
        match expr:
            case ast.Compare() | ast.UnaryOp(op=ast.Not()):
                return 0
            case ast.Attribute(attr="shape" | "ndim"):
                return 0
            case ast.Attribute(value=owner, attr=name):
                things = self.script.values(owner)
                held = [e for t in things for e in held_under(self.script, t, name)]
                return _least(self.of(e, way) for e in held)
            case ast.Subscript(value=inner, slice=index):
                return self.of(inner, (self.script.constant(index), *way))
            case ast.IfExp(body=body, orelse=other):
                return _least(self.of(e, way) for e in (body, other))
            case ast.List(elts=elts) | ast.Tuple(elts=elts):
                if way and type(key := way[0]) is int and -len(elts) <= key < len(elts):
                    return self.of(elts[key], way[1:])
                return _least(self.of(e, way[1:]) for e in elts)
            case ast.Dict(keys=keys, values=values) if way:
                named = [v for k, v in zip(keys, values, strict=True) if _says(k, way[0])]
                return self.of(one(named), way[1:])
            case ast.ListComp(elt=elt) | ast.GeneratorExp(elt=elt):
                return self.of(elt, way[1:])
            case ast.DictComp(value=value, generators=[only]) if is_method(only.iter, "items"):
                # {k: v.to(device) for k, v in batch.items()}
                kept = {*map(variable_name, _moved(value))}
                if kept == {variable_name(getattr(only.target, "elts", [None])[-1])}:
                    return self.of(only.iter.func.value, way)
            case ast.BinOp(left=left, op=op, right=right) if not self.script.may_be(expr, Seq):
                return self._combined(op, left, right)
            case ast.Call():
                return self._called(expr, way)
        return None

    def _combined(self, op: ast.operator, left: ast.expr, right: ast.expr) -> float | None:
        first, other = self.of(left), self.of(right)
        if first is None:
            return None
        match op:
            case ast.Sub() if type(known := self.script.constant(right)) is int:
                return first - known
            case ast.Add() if other is not None:
                return first + other
            case ast.Mult() if other is not None and min(first, other) >= 0:
                return first * other
            case ast.FloorDiv() if other is not None and other >= 1:
                return min(first, 0)
        return None

    def _called(self, call: ast.Call, way: Way) -> float | None:
        codes = [code_of(thing) for thing in self.script.called(call)]
        if codes and all(codes):
            every = (self.calls.results(c.function) for code in codes for c in code)
            return _least(self.of(r, way) for results in every for r in results)
        function, given = self.script.operation(call)
        name = last_part(function)
        if name in COUNTS or (way and way[-1] == 1 and name in ("max", "min", "topk", "sort")):
            return 0
        low = keyword_of(call, "min") or keyword_of(call, "low")
        if name in ("clamp", "clip", "clamp_min"):
            bounds = call.args[given[0] in call.args :]
            return self.of(low or next(iter(bounds), None))
        if name in ("arange", "range", "randrange") and len(call.args) > 2:
            return None  # it may count down
        if name in ("randint", "randrange", "integers", "arange", "range"):
            several = low or (len(given) > 1 and not isinstance(given[1], SEQUENCES))
            return self.of(low or given[0]) if several else 0
        if name not in KEEP or not given:
            return None
        others = given[1:] if name in ("min", "max", "sum") else []
        found = _least([self.of(given[0], way), *(self.of(e) for e in others)])
        return found if found is None or name != "sum" else min(found, 0)

    def _defined(self, made: Definition, way: Way) -> float | None:
        """Of what a definition gives its variable."""
        if made.is_parameter:
            return _least(self.of(e, way) for e in self.calls.gives(made))
        taker, places = taken_by(made.node)
        if isinstance(taker, TAKERS) and -1 not in places:
            return self._element(taker.iter, (*places, *way))
        if isinstance(taker, ast.Assign) and -1 not in places:
            return self.of(taker.value, (*places, *way))
        return None

    def _element(self, over: ast.expr, way: Way) -> float | None:
        """Of what a loop over this gets."""
        found = self.script.values(over)
        loaders = [x for x in self.script.loaders if any_in(found, x.things)]
        if loaders and len(found) <= sum(len(x.things) for x in loaders):
            return _least(n for x in loaders for n in self._batch(x, way))
        match over:
            case ast.Call(args=[inner, *_]) if name := last_part(
                self.script.library_name(over.func)
            ):
                if name == "enumerate" and way:
                    return self._element(inner, way[1:]) if way[0] == 1 else 0
                if name == "zip" and way and type(way[0]) is int and way[0] < len(over.args):
                    return self._element(over.args[way[0]], way[1:])
                if name in AROUND:
                    return self._element(inner, way)
        return self.of(over, (ANY, *way))

    def _batch(self, loader: Loader, way: Way) -> Iterable[float | None]:
        """Of a part of the batches of a loader: what its ``collate_fn``, or its items, return."""
        collate = values_given(loader, "collate_fn")
        functions: list[Def | ast.Lambda | None] = [t.node for t in of_kind(collate, Func)]
        if not collate:
            functions = [d.getitem for d in loader.datasets]
        for function in functions or [None]:
            results = self.calls.results(function) if function is not None else []
            yield _least(self.of(r, way) for r in results)


def _moved(value: ast.expr) -> list[ast.expr]:
    """``v``, for ``v.to(device) if torch.is_tensor(v) else v`` both times."""
    if isinstance(value, ast.IfExp):
        return [*_moved(value.body), *_moved(value.orelse)]
    return _moved(value.func.value) if is_method(value, "to", "cuda") else [value]


def _says(key: ast.expr | None, name: object) -> bool:
    return isinstance(key, ast.Constant) and key.value == name


def _least(found: Iterable[float | None]) -> float | None:
    known = list(found)
    return None if None in known or not known else min(n for n in known if n is not None)
