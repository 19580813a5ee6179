"""Where code under autocast puts 16-bit values that outlive it, and what reads them from there:
attributes, lists and dicts, variables of others.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.facts.precision.activations import holds_output, is_activation
from autofast.facts.precision.code import Code
from autofast.facts.precision.full_outputs import FullOutputs
from autofast.flow.callgraph import CallGraph
from autofast.flow.defuse import bound_to
from autofast.flow.holders import Holders
from autofast.flow.positions import nodes_of
from autofast.flow.program import Flow
from autofast.flow.scopes import scope_of, variables_of
from autofast.model.calls import arguments_of, is_method, literal_of
from autofast.model.contents import attributes, with_contents
from autofast.model.script import Script
from autofast.model.several import certainly, of_kind, wordset
from autofast.model.source import at, function_of, parent_of
from autofast.model.syntax import SEQUENCES, VARIABLES, is_attribute, is_read, is_stored
from autofast.model.values import (
    COLLECTIONS,
    Cls,
    Func,
    Inst,
    Tensor,
    Thing,
    Unknown,
    Values,
    any_of,
    const,
)

FILLS = wordset("append extend insert update setdefault appendleft extendleft add put __setitem__")
EMPTIES = wordset("clear remove reverse sort discard empty qsize")
GIVES = wordset("pop popleft popitem values items keys get copy setdefault")
CASTS = wordset("float double int long bool byte item tolist argmax size dim")
ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div)
ASKING = ("builtins.getattr", "builtins.vars")
ANY = "*"  # attributes: getattr(x, name), vars(x), x.__dict__


class Places:
    """The places of one piece of code."""

    def __init__(self, code: Code):
        self.code, self.script = code, code.script
        self.flow, self.calls = self.script.analysis(Flow), self.script.analysis(CallGraph)
        self.holders, self.reads = self.script.analysis(Holders), self.script.analysis(_Reads)
        self.networks = nodes_of(c for m in code.models for c in m.classes)

    def all(self) -> Iterator[ast.expr]:
        """The attributes, the variables of others, the lists and dicts that get 16-bit values; what
        networks give is asked about where they are called.
        """
        seen: set[str] = set()
        for node in self.code.all:
            for place, value in self._stores(node):
                is_given = node not in self.networks and holds_output(self.script.values(value))
                if is_given or not self._outlives(place):
                    continue
                if self._may_be_half(value, place):
                    key = f"{ast.unparse(place)} {id(function_of(place))}"
                    if key not in seen:
                        seen.add(key)
                        yield place

    def _stores(self, node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
        """What a node puts where: the attribute or variable, the list or dict, the ``setattr``."""
        if isinstance(node, (ast.Attribute, ast.Name)) and is_stored(node):
            parent = parent_of(node)
            value = parent.value if isinstance(parent, ast.AugAssign) else bound_to(node)[0]
            if isinstance(value, ast.expr):
                yield node, value
        elif isinstance(node, ast.Subscript) and is_stored(node) and self.may_hold(node.value):
            yield node.value, bound_to(node)[0] or node
        elif is_method(node, *FILLS) and self.may_hold(node.func.value):
            yield from ((node.func.value, given) for given in arguments_of(node))
        elif isinstance(node, ast.expr) and (parts := set_by(self.script, node)):
            yield node, parts[-1]

    def may_hold(self, expr: ast.expr) -> bool:
        """Whether it may be a list or dict: a tensor takes what it is given in its own type."""
        found = self.script.values(expr)
        is_dict = is_attribute(expr, "__dict__")
        return is_dict or _is_unknown(found) or any_of(found, *COLLECTIONS)

    def _outlives(self, place: ast.expr) -> bool:
        """Whether it is there when the call of the function that it stands in is over."""
        return any(not self._is_own(base) for base in self._bases(place))

    def _is_own(self, base: ast.expr) -> bool:
        """A variable of the function that it stands in, and no parameter."""
        if not isinstance(base, ast.Name) or (variable := variables_of(base).of(base)) is None:
            return False
        given = any(d.is_parameter for d in self.flow.reaching(base))
        return variable.scope is scope_of(base) and not given

    def _bases(self, place: ast.expr) -> list[ast.expr]:
        """The attributes and variables that are, or hold, what is stored to or filled."""
        if is_stored(place) or set_by(self.script, place):
            return [place]
        return [e for c in self.holders.containers(holder_of(place)) for e in (c, holder_of(c))]

    def _may_be_half(self, value: ast.expr, place: ast.expr) -> bool:
        found = self.script.values(value)
        if is_method(value, *CASTS) or self._is_full(value) or self._is_promoted(value, place):
            return False
        if isinstance(value, SEQUENCES):
            return any(self._may_be_half(v, place) for v in value.elts)
        is_helper = value not in self.networks  # where what is not known is seldom a tensor
        inner = (
            t
            for t in with_contents(found, attributes)
            if not (is_helper and isinstance(t, Unknown))
        )
        return any(_is_half(t) or self._is_made_inside(t) for t in inner)

    def _is_full(self, value: ast.expr) -> bool:
        full = self.script.analysis(FullOutputs)
        return self.code.target != "cpu" and full.is_full(value)

    def _is_made_inside(self, thing: Thing) -> bool:
        """A function that is made under autocast, and has what is there."""
        return isinstance(thing, Func) and function_of(thing.node) in self.code.all

    def _is_promoted(self, value: ast.expr, place: ast.expr) -> bool:
        """``0.9 * self.mean + 0.1 * x`` is fp32 where the attribute was made so."""
        if isinstance(value, ast.BinOp) and isinstance(value.op, ARITHMETIC):
            return any(self._is_promoted(v, place) for v in (value.left, value.right))
        found = self.script.values(value)
        return (
            isinstance(value, ast.Attribute)
            and isinstance(place, ast.Attribute)
            and value.attr == place.attr
            and certainly(found, Tensor)
            and any(t.fresh for t in of_kind(found, Tensor))
            and not any(t.rank == "0d" for t in of_kind(found, Tensor))
        )

    # ------------------------------------------------------------------------------- who reads that
    def read_from(self, place: ast.expr) -> Iterator[ast.expr]:
        """The expressions that read what an attribute, a variable or a container was given."""
        if parts := set_by(self.script, place):
            yield from self._attributes(str(literal_of(parts[1])), self.script.values(parts[0]))
            return
        for base in self._bases(place):
            if isinstance(base, ast.Attribute):
                yield from self._attributes(base.attr, self.script.values(base.value))
            elif isinstance(base, ast.Name) and (variable := variables_of(base).of(base)):
                loads = variables_of(base).loads(variable)
                yield from (n for n in loads if not _fills(n))
        for thing in self.script.values(place):
            if isinstance(thing, COLLECTIONS):
                yield from (n for n in self.reads.collections.get(thing, ()) if not _fills(n))

    def _attributes(self, name: str, owners: Values) -> Iterator[ast.expr]:
        classes = _classes(owners)
        for key in (name, ANY):
            for node in self.reads.attributes.get(key, ()):
                of = node.value if isinstance(node, ast.Attribute) else node.args[0]
                others = self.script.values(of)
                is_odd = key != ANY and (_is_unknown(owners) or _is_unknown(others))
                if others & owners or classes & _classes(others) or is_odd:
                    yield node

    def lost(self, place: ast.expr) -> str:
        """Why who reads a list or dict is not known: a parameter, and nothing seen gives it."""
        if parts := set_by(self.script, place):
            named = isinstance(literal_of(parts[1]), str)
            return (
                "" if named else f"{at(place)} keeps 16-bit tensors under a name that is not known"
            )
        if is_attribute(place) and self._is_buffer(place):
            return f"`{ast.unparse(place)}` is a buffer, and would be saved in 16 bits ({at(place)}): give it .float()"
        known = is_stored(place) or any_of(self.script.values(place), *COLLECTIONS)
        for base in self._bases(place):
            given = [d for d in self.flow.reaching(base) if d.is_parameter]
            is_lost = any(not self.calls.gives(d) for d in given) and not is_stored(place)
            is_odd = not isinstance(base, VARIABLES) and not known
            if is_lost or is_odd or is_attribute(base, "__dict__"):
                return f"`{ast.unparse(base)}` keeps 16-bit tensors on {at(base)}, and who reads them is not known"
        return ""

    def _is_buffer(self, place: ast.Attribute) -> bool:
        owners = self.script.values(place.value)
        return is_stored(place) and any(
            o.this in owners and const(o.args.get(0, "name")) == place.attr
            for site in self.script.methods("register_buffer")
            for o in site
        )


def _fills(read: ast.expr) -> bool:
    """``kept.append(x)`` gives nothing."""
    return is_attribute(parent_of(read), *FILLS, *EMPTIES)


def holder_of(expr: ast.expr) -> ast.expr:
    """``kept`` of ``kept["a"]`` and ``kept.setdefault("a", [])``."""
    while isinstance(expr, ast.Subscript) or is_method(expr, *GIVES):
        expr = expr.value if isinstance(expr, ast.Subscript) else expr.func.value
    return expr


class _Reads:
    """``script.analysis(_Reads)``: what reads attributes, by their names, and lists and dicts."""

    def __init__(self, script: Script):
        self.attributes: dict[str, list[ast.Attribute | ast.Call]] = {}
        self.collections: dict[Thing, list[ast.expr]] = {}
        for node in script.nodes:
            if isinstance(node, ast.Attribute) and is_read(node):
                name = ANY if node.attr == "__dict__" else node.attr
                self.attributes.setdefault(name, []).append(node)
            elif isinstance(node, ast.Call) and script.is_call(node, *ASKING) and node.args:
                said = literal_of(node.args[1]) if len(node.args) > 1 else None
                self.attributes.setdefault(str(said or ANY), []).append(node)
            if isinstance(node, (ast.Name, ast.Attribute)) and is_read(node):
                for thing in script.values(node):
                    if isinstance(thing, COLLECTIONS):
                        self.collections.setdefault(thing, []).append(node)


def set_by(script: Script, node: ast.AST) -> list[ast.expr]:
    """The object, the name and the value of ``setattr(x, name, value)``; else nothing."""
    if is_method(node, "__setattr__"):
        return [node.func.value, *node.args]
    is_one = isinstance(node, ast.Call) and script.is_call(node, "builtins.setattr")
    return node.args if is_one and len(node.args) == 3 else []  # type: ignore[attr-defined]


def _is_half(thing: Thing) -> bool:
    """Whether a thing may be 16-bit, as what a layer gives; what comes of a batch alone is not."""
    unchanged = isinstance(thing, Tensor) and thing.batch and not (thing.grad or thing.models)
    return not unchanged and is_activation(frozenset({thing}))


def _classes(found: Values) -> set[Cls]:
    """The classes that objects are of, as copies of them are."""
    classes = {t.cls for t in of_kind(found, Inst)}
    return classes.union(of_kind(found, Cls))


def _is_unknown(found: Values) -> bool:
    return not found or any(isinstance(t, Unknown) for t in found)
