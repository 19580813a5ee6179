"""Which expressions make a value, or a part of it: followed back through variables, calls, tuples,
lists that are filled, and the loaders whose batches it comes with.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from autofast.facts.arrays import held_under
from autofast.facts.loaders import values_given
from autofast.flow.callgraph import CallGraph, code_of
from autofast.flow.defuse import Definition, taken_by
from autofast.flow.filled_lists import is_empty
from autofast.flow.program import Flow
from autofast.flow.scopes import is_local, mentions
from autofast.model.calls import call_of, is_method, short_name as called_as, variable_name
from autofast.model.names import last_part
from autofast.model.roles import Loader
from autofast.model.script import Script
from autofast.model.several import all_known, any_in, wordset
from autofast.model.source import function_of, parent_of
from autofast.model.syntax import TAKERS, Def, is_stored, is_text

Way = tuple[object, ...]  # to a part of a value: places in tuples, keys, ANY element
Place = tuple[ast.expr, Way]
ANY = ...
DEEPEST = 8  # parts inside each other: a function that calls itself would go on for ever
AROUND = wordset("tqdm trange list tuple sorted reversed iter")


class Makers:
    """``script.analysis(Makers)``

    ``items``: an item of a data set counts as a part of the batch that it comes into.
    """

    items = False

    def __init__(self, script: Script):
        self.script, self.flow = script, script.analysis(Flow)
        self.calls = script.analysis(CallGraph)

    def all(self, expr: ast.expr) -> list[ast.expr]:
        """The expressions that make a value; none where nothing shows all of them."""
        return self.sources([(expr, ())])

    def sources(self, places: list[Place]) -> list[ast.expr]:
        """The same of what stands at several places."""
        found: list[ast.expr] = []
        for place in each_place(places):
            back = self.back(*place)
            if back is None and not place[1]:
                found.append(place[0])
            elif not back:
                return []
            else:
                places += back
        return found

    def back(self, expr: ast.expr, way: Way) -> list[Place] | None:
        """What gives an expression (its part at the end of the way) its value, one step back: none
        where that does not show; None where it is made here.
        """
        if len(way) > DEEPEST:
            return []
        match expr:
            case ast.Name():
                return _together(self.defined(d, way) for d in self.flow.reaching(expr))
            case ast.Attribute(value=owner, attr=name) if name not in ("shape", "ndim"):
                things = self.script.values(owner)
                held = [e for t in things for e in held_under(self.script, t, name)]
                return [(e, way) for e in all_known(held)]
            case ast.Subscript(value=inner, slice=text) if is_text(text):
                return [(inner, (self.script.constant(text), *way))]
            case ast.IfExp(body=body, orelse=other):
                return [(body, way), (other, way)]
            case ast.List(elts=elts) | ast.Tuple(elts=elts) if way:
                if type(key := way[0]) is int and -len(elts) <= key < len(elts):
                    return [(elts[key], way[1:])]
                return [(e, way[1:]) for e in elts]
            case ast.Dict(keys=keys, values=values) if way:
                named = [v for k, v in zip(keys, values, strict=True) if _says(k, way[0])]
                return [(e, way[1:]) for e in named if len(named) == 1]
            case ast.ListComp(elt=elt, generators=[only]) if way and way[0] is not ANY:
                # [d.to(device) for d in batch]
                moved = {*map(variable_name, _moved(elt))} == {variable_name(only.target)}
                return [(only.iter, way) if moved and not only.ifs else (elt, way[1:])]
            case ast.ListComp(elt=elt) | ast.GeneratorExp(elt=elt) if way:
                return [(elt, way[1:])]
            case ast.DictComp(value=value, generators=[only]) if is_method(only.iter, "items"):
                # {k: v.to(device) for k, v in batch.items()}
                kept = {*map(variable_name, _moved(value))}
                if kept == {variable_name(getattr(only.target, "elts", [None])[-1])}:
                    return [(only.iter.func.value, way)]
            case ast.Call():
                codes = [code_of(thing) for thing in self.script.called(expr)]
                if codes and all(codes):
                    functions = (c.function for code in codes for c in code)
                    return _together(self._results(f, way) for f in functions)
        return None

    def defined(self, made: Definition, way: Way) -> list[Place]:
        """The same of what a definition gives its variable."""
        if made.is_parameter:
            return [(e, way) for e in all_known(self.calls.gives(made))]
        taker, places = taken_by(made.node)
        if isinstance(taker, TAKERS) and -1 not in places:
            return self.element(taker.iter, (*places, *way))
        if isinstance(taker, ast.Assign) and -1 not in places:
            if way and (filled := self.filled(made.node)):
                return [(e, way[1:]) for e in filled]
            return [(taker.value, (*places, *way))]
        return []

    def filled(self, held: ast.AST) -> list[ast.expr]:
        """What a local list is extended by that begins empty, and is else only given to functions
        of libraries; none of others.
        """
        found: list[ast.expr] = []
        if not isinstance(held, ast.Name) or not is_local(held):
            return found
        for name in mentions(function_of(held), held.id):
            outer = parent_of(name)
            call = call_of(outer) if outer is not None else None
            if is_stored(name) and is_empty(name):
                continue
            if is_method(call, "append") and len(call.args) == 1:
                found.append(call.args[0])
            elif not isinstance(outer, ast.Call) or not self.script.library_function(outer):
                return []
        return found

    def element(self, over: ast.expr, way: Way) -> list[Place]:
        """The same of what a loop over this gets; a number that counts is a part of the call that
        counts.
        """
        found = self.script.values(over)
        loaders = [x for x in self.script.loaders if any_in(found, x.things)]
        if loaders and len(found) <= sum(len(x.things) for x in loaders):
            return _together(self._batch(x, way) for x in loaders)
        match over:
            case ast.Name():  # bar = tqdm(loader)
                around = self.flow.value(over)
                if isinstance(around, ast.Call) and called_as(around.func) in AROUND:
                    return self.element(around, way)
            case ast.Call(args=[inner, *_]) if name := last_part(
                self.script.library_name(over.func)
            ):
                if name == "enumerate" and way:
                    return self.element(inner, way[1:]) if way[0] == 1 else [(over, (0,))]
                if name == "zip" and way and type(way[0]) is int and way[0] < len(over.args):
                    return self.element(over.args[way[0]], way[1:])
                if name in AROUND:
                    return self.element(inner, way)
        return [(over, (ANY, *way))]

    def _batch(self, loader: Loader, way: Way) -> list[Place]:
        """A part of the batches of a loader: what its ``collate_fn``, or its items, return."""
        collate = values_given(loader, "collate_fn")
        codes = [code_of(t) for t in collate]
        functions: list[Def | ast.Lambda | None] = []
        if all(codes):
            functions += [c.function for code in codes for c in code]
        if not collate and self.items:
            functions = [d.getitem for d in loader.datasets]
        return _together(self._results(f, way) for f in functions)

    def _results(self, function: Def | ast.Lambda | None, way: Way) -> list[Place]:
        return [(r, way) for r in self.calls.results(function)] if function is not None else []


class Items(Makers):
    """``script.analysis(Items)``"""

    items = True


def each_place(todo: list[Place]) -> Iterator[Place]:
    """What a list holds, from its end, each place once; what is added meanwhile, too."""
    seen: set[Place] = set()
    while todo:
        place = todo.pop()
        if place not in seen:
            seen.add(place)
            yield place


def _together(found: Iterable[list[Place]]) -> list[Place]:
    known = list(found)
    return [place for places in known for place in places] if all(known) else []


def _moved(value: ast.expr) -> list[ast.expr]:
    """``v``, for ``v.to(device) if torch.is_tensor(v) else v`` both times."""
    if isinstance(value, ast.IfExp):
        return [*_moved(value.body), *_moved(value.orelse)]
    return _moved(value.func.value) if is_method(value, "to", "cuda") else [value]


def _says(key: ast.expr | None, name: object) -> bool:
    return isinstance(key, ast.Constant) and key.value == name
