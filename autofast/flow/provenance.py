"""Where a value is decided: the literal behind ``num_workers=args.workers``, however many names it
passes through on its way.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

from autofast.flow.scopes import defaults, variables_of
from autofast.model.calls import literal_of
from autofast.model.events import CallFrame, Site, Stack
from autofast.model.script import Script
from autofast.model.several import of_kind, wordset
from autofast.model.source import ByNode, function_of, nodes_in, parent_of
from autofast.model.syntax import VARIABLES, is_read
from autofast.model.values import (
    Arg,
    Arguments,
    Cls,
    Dict,
    Ext,
    Given,
    Inst,
    Ref,
    Values,
    any_named,
    one,
)

CASTS = wordset("builtins.int builtins.float builtins.bool builtins.str")


@dataclass(frozen=True, eq=False)
class Origin:
    """Where a value is decided.

    Attributes:
        kind: ``literal`` (a constant), ``option`` (of the command line, with a constant as its
            default) or ``computed``.
        expr: the constant, or what computes the value.
        node: what a report names: the ``add_argument`` call of an option, else ``expr``.
        shared: it reaches the place in question through a name, an option or a parameter, and may
            reach others too.
        key: what it is called in a dict, class or object with settings; empty where it does not
            stand in one.
    """

    kind: str
    expr: ast.expr
    node: ast.expr
    shared: bool
    key: str = ""


class Unresolved(Exception):
    """Why it is not known where a value is decided."""


@dataclass
class Trail:
    """Follows values back to where they are decided. ``seen`` are the expressions on the way, of
    all values followed so far.
    """

    script: Script
    seen: ByNode[ast.expr] = field(default_factory=dict)

    def of(self, given: Given, stacks: Iterable[Stack]) -> list[Origin] | str:
        """The origins of an argument in all the ways the script comes to it; or why they are not
        known.
        """
        exprs = [entry.expr for _, entry in given.via] if given.via else [given.expr]
        found: ByNode[Origin] = {}
        try:
            for stack in stacks:
                for expr in exprs:
                    if expr is None:
                        return "it is given in a way that is not followed"
                    origin = self._follow(expr, stack, False, 0)
                    found[origin.expr] = origin
        except Unresolved as why:
            return str(why)
        return list(found.values())

    def _follow(self, expr: ast.expr, stack: Stack, shared: bool, depth: int) -> Origin:
        self.seen[expr] = expr
        if depth > 20:
            raise Unresolved("it passes through too many names")
        if isinstance(expr, ast.Constant):
            return Origin("literal", expr, expr, shared)
        if isinstance(expr, ast.Name):
            return self._name(expr, stack, depth)
        if (
            isinstance(expr, ast.Call)
            and len(expr.args) == 1
            and not expr.keywords
            and self._is_cast(expr.func)
        ):
            return self._follow(expr.args[0], stack, shared, depth + 1)
        if isinstance(option := one(self.script.values(expr)), Arg):
            return self._option(option)
        if (held := self._setting(expr)) is not None and isinstance(held[1], ast.Constant):
            return Origin("literal", held[1], held[1], True, held[0])
        if isinstance(expr, ast.Attribute) and self.script.may_be(expr.value, Inst):
            return self._attribute(expr, depth)
        return Origin("computed", expr, expr, shared)

    def _option(self, option: Arg) -> Origin:
        if not isinstance(option.said, ast.Constant):
            raise Unresolved(f"the default of `--{option.name}` is not a constant")
        return Origin("option", option.said, option.node, True)

    def _is_cast(self, func: ast.expr) -> bool:
        return any_named(self.script.values(func), Ref, CASTS)

    def _name(self, expr: ast.Name, stack: Stack, depth: int) -> Origin:
        stores = _stores(expr)
        if len(stores) != 1:
            raise Unresolved(f"`{expr.id}` is set in {len(stores) or 'no'} places")
        if isinstance(stores[0], ast.arg):
            found = one(self.script.values(expr))
            option = found if isinstance(found, Arg) and found.said is not None else None
            try:  # also where the option is known: what gives it is on the way
                origin = self._parameter(expr.id, function_of(stores[0]), stack, depth)
            except Unresolved:
                if option is None:
                    raise
                return self._option(option)
            return self._option(option) if option and origin.kind == "computed" else origin
        value = assigned_value(stores[0])
        if value is None:
            raise Unresolved(f"`{expr.id}` is not set by a plain assignment")
        return self._follow(value, stack, True, depth + 1)

    def _parameter(self, name: str, scope: ast.AST, stack: Stack, depth: int) -> Origin:
        for n in reversed(range(len(stack))):
            frame = stack[n]
            if not isinstance(frame, CallFrame) or frame.func.node is not scope:
                continue
            given = frame.given.get(name)
            if given is not None and given.expr is not None and not given.via:
                return self._follow(given.expr, stack[:n], True, depth + 1)
            default = defaults(scope).get(name)
            # A function that nothing calls.
            if default is not None and (given is None or not isinstance(frame.node, ast.Call)):
                return self._follow(default, (), True, depth + 1)
        raise Unresolved(f"the parameter `{name}` gets it in a way that is not followed")

    def _attribute(self, expr: ast.Attribute, depth: int) -> Origin:
        owners = self.script.values(expr.value)
        sites = self._set_at(owners, expr.attr)
        value = assigned_value(sites[0].node) if len(sites) == 1 else None
        if value is None:
            raise Unresolved(f"`.{expr.attr}` is set in {len(sites) or 'no'} places")
        stack = next(o.stack for o in sites[0] if o.this in owners)
        return self._follow(value, stack, True, depth + 1)

    def _setting(self, expr: ast.expr) -> tuple[str, ast.expr] | None:
        """The name of a setting, and where it stands: in a dict, the body of a class, or the
        arguments of a namespace.
        """
        match expr:
            case ast.Subscript(value=holder, slice=ast.Constant(value=str(key))):
                pass
            case ast.Attribute(value=holder, attr=key):
                pass
            case _:
                return None
        match one(self.script.values(holder)):
            case Dict(entries=entries, rest=rest) if not rest:
                mine = entries.get(key, [])
                found = mine[0].expr if len(mine) == 1 and mine[0].sure else None
            case Ext(name="argparse.Namespace", args=Arguments(named=named)) if key in named:
                found = named[key].expr
            case Cls() as owner:
                found = _in_body(owner, key)
            case Inst(cls=cls) as owner if not self._set_at(frozenset({owner}), key):
                given = owner.args
                if given is not None and key in given.named:
                    found = given.named[key].expr
                else:
                    found = None if given and given.positional else _in_body(cls, key)
            case _:
                return None
        if found is None or self.script.values(found) != self.script.values(expr):
            return None
        return key, found

    def _set_at(self, owners: Values, name: str) -> list[Site]:
        """Where code of the project sets an attribute of these objects; the ``__init__`` of a
        dataclass is none.
        """
        return [
            s for s in self.script.log.of("set_attribute")
            if isinstance(s.node, ast.Attribute) and s.node.attr == name and any(o.this in owners for o in s)
        ]  # fmt: skip

    def read_elsewhere(self, origin: Origin) -> ast.expr | None:
        """A place that reads an option or setting and is not on any trail that was followed,
        comparisons left out.
        """
        if origin.key:
            return self._setting_elsewhere(origin)
        if origin.kind != "option":
            return None
        on_trail = {inner for expr in self.seen.values() for inner in ast.walk(expr)}
        for node in self.script.nodes:
            if isinstance(node, VARIABLES) and is_read(node) and node not in on_trail:
                if any(
                    isinstance(t, Arg) and t.node is origin.node for t in self.script.values(node)
                ):
                    if not isinstance(parent_of(node), (ast.Compare, ast.FormattedValue)):
                        return node
        return None

    def _setting_elsewhere(self, origin: Origin) -> ast.expr | None:
        for source in self.script.sources:
            for node in source.nodes if origin.key in source.text else ():
                if not isinstance(node, (ast.Attribute, ast.Subscript)) or node in self.seen:
                    continue
                name = node.attr if isinstance(node, ast.Attribute) else literal_of(node.slice)
                if name == origin.key and is_read(node):
                    if not isinstance(parent_of(node), (ast.Compare, ast.FormattedValue)):
                        return node
        return None


def _in_body(cls: Cls, name: str) -> ast.expr | None:
    """What the body of a class gives an attribute, where it does so once."""
    found = [n for s in cls.node.body for n in nodes_in(s, ast.Name) if n.id == name]
    return assigned_value(found[0]) if len(found) == 1 else None


def only_value(name: ast.Name) -> ast.expr | None:
    """The expression that a variable always holds: the right side of the only assignment to it."""
    stores = _stores(name)
    return assigned_value(stores[0]) if len(stores) == 1 else None


def _stores(name: ast.Name) -> list[ast.Name | ast.arg]:
    """The places that give a variable a value, or delete it; imports left out."""
    table = variables_of(name)
    variable = table.of(name)
    if variable is not None:
        return of_kind(table.stores(variable), (ast.Name, ast.arg))
    return []


def assigned_value(target: ast.AST) -> ast.expr | None:
    """The right side of the plain assignment to a target."""
    parent = parent_of(target)
    if isinstance(parent, ast.Assign) and target in parent.targets:
        return parent.value
    return parent.value if isinstance(parent, ast.AnnAssign) and parent.target is target else None
