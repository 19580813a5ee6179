"""Checkpoints of a script with a scaler that hold the optimizer's state, but not the scaler's."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.facts.attribute_values import given
from autofast.flow.callgraph import CallGraph
from autofast.flow.program import Flow
from autofast.flow.scopes import own_nodes
from autofast.model.calls import is_name
from autofast.model.kinds import is_scaler
from autofast.model.script import Script
from autofast.model.source import ancestors, at, function_of, nodes_in, parent_of, statement_of
from autofast.model.syntax import FUNCTIONS, is_read, is_stored
from autofast.model.values import Values
from autofast.rule import Finding, Refusal
from autofast.techniques.precision.scaler_state import checkpoints, places


def forgotten(script: Script, message: str) -> Iterator[Finding]:
    """The places where the state of the script's own scaler is to be saved and loaded; nothing
    where it is.
    """
    updates = [u for s in script.steps for u in s.updates if u.scaled]
    optimizers = list({id(t): t for u in updates for t in u.things}.values())
    if any(
        o.this is not None and is_scaler(o.this)
        for site in script.methods("state_dict", "load_state_dict")
        for o in site
    ):
        return
    saved = checkpoints(script, optimizers)
    scalers = {id(t) for step in script.steps for t in step.scalers}
    if saved and len(scalers) > 1:
        yield Finding(saved[0], message, refusal="there are several GradScalers, each with a state")
        return
    try:
        found = places(script, optimizers, _Names(script).seen_from)
    except Refusal as why:
        yield Finding(saved[0], message, refusal=str(why))
        return
    edits = tuple(place.edit for place in found)
    for place in found:
        yield Finding(place.node, message, edits=edits)


class _Names:
    """What the script's one scaler is called at a place."""

    def __init__(self, script: Script):
        self.script = script
        self.flow = script.analysis(Flow)

    def seen_from(self, place: ast.AST) -> str:
        """Raises :class:`Refusal` where it has no name there, or may not be made yet."""
        function = function_of(place)
        names = {n.id for n in own_nodes(function) if isinstance(n, ast.Name) and self._is(n)}
        for name in sorted(names):
            if self._is_set(function, name, place):
                return name
        for holder in self._attributes(function):
            if self._is_kept(holder, place):
                return ast.unparse(holder)
        raise Refusal(
            f"the GradScaler is not at hand on {at(place)}, or not made on every way there"
        )

    def _is(self, expr: ast.expr) -> bool:
        value = expr
        match parent_of(expr):
            case ast.Assign(targets=[target], value=made) if target is expr:
                value = made
        return _are_scalers(self.script.values(value))

    # ------------------------------------------------------------------------------------ variables
    def _is_set(self, function: ast.AST, name: str, place: ast.AST) -> bool:
        """Whether the variable is a scaler whenever the place is come to."""
        flow = self.flow.definitions(place)
        variable = flow.table.find(name, flow.function)
        if variable is None or variable.scope is not function:
            return False
        made = flow.all(variable)
        values = [
            self.script.values(d.value) if d.value is not None else self._given(function, name)
            for d in made
        ]
        return (
            bool(values)
            and all(map(_are_scalers, values))
            and flow.is_bound_at(statement_of(place), name)
        )

    def _given(self, function: ast.AST, name: str) -> Values:
        """What a parameter may be, as its first read shows."""
        reads = (n for n in own_nodes(function) if is_name(n, name))
        return next((self.script.values(n) for n in reads), frozenset())

    # ----------------------------------------------------------------------------------- attributes
    def _attributes(self, function: ast.AST) -> Iterator[ast.Attribute]:
        """``self.scaler`` of the class that the method belongs to, as it stands in one of its
        methods.
        """
        cls = parent_of(function)
        if not isinstance(cls, ast.ClassDef):
            return
        for node in nodes_in(cls, ast.Attribute):
            if is_read(node) and is_name(node.value, _self_of(function)) and self._is(node):
                yield node

    def _is_kept(self, attribute: ast.Attribute, place: ast.AST) -> bool:
        """Whether ``__init__`` always sets it, to a scaler, before the place is come to, and
        nothing sets it to anything else.
        """
        stores = [
            n for n in self.script.each(ast.Attribute) if n.attr == attribute.attr and is_stored(n)
        ]
        first = [n for n in stores if self._always_runs_first(n, place)]
        values = [self.script.values(made) for made in given(self.script, attribute)]
        return bool(first) and len(values) == len(stores) and all(map(_are_scalers, values))

    def _always_runs_first(self, store: ast.Attribute, place: ast.AST) -> bool:
        first, then = function_of(store), function_of(place)
        if getattr(first, "name", "") != "__init__" or not any(
            outer is parent_of(first) for outer in ancestors(place)
        ):
            return False
        graph = self.flow.graph(first)
        if then is first:
            return graph.dominates(store, place)
        if not isinstance(then, FUNCTIONS) or parent_of(statement_of(store)) is not first:
            return False
        calls = self.script.analysis(CallGraph)
        return all(graph.dominates(store, n) for n in own_nodes(first) if calls.reaches(n, then))


def _self_of(method: ast.AST) -> str:
    arguments = getattr(method, "args", None)
    first = [*arguments.posonlyargs, *arguments.args][:1] if arguments is not None else []
    return first[0].arg if first else ""


def _are_scalers(values: Values) -> bool:
    return bool(values) and all(map(is_scaler, values))
