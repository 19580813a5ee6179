"""What leaves a piece of code: whether a tensor made inside may meet autograd outside.

A tensor made under ``torch.inference_mode()`` may be read anywhere, but outside it must neither be
saved for a backward nor changed
in place: both are errors. So everything that may carry one out is followed - names, containers,
attributes, results of functions - to the places where it is used. Reading it as a number, printing
it and saving it is harmless; what is not understood is a leak. Not who holds it is asked, which
``flow/holders.py`` says, but what is done with it there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.flow.program import Flow
from autofast.flow.scopes import binds, declared, is_local
from autofast.flow.usage import usage_of
from autofast.flow.valueflow import first_reason
from autofast.model.calls import is_method
from autofast.model.contents import with_contents
from autofast.model.events import Occurrence
from autofast.model.names import CONTEXT
from autofast.model.script import Script
from autofast.model.source import (
    ByNode,
    at,
    function_of,
    is_at_top,
    nodes_in,
    parent_of,
    statement_of,
    walk,
)
from autofast.model.syntax import FUNCTIONS, is_stored
from autofast.model.values import COLLECTIONS, Ext, Tensor, Thing, certainly, is_named
from autofast.read.recover.leaks import (
    FRESH,
    Leaks,
    carries_tensor,
    forward_hooks,
    in_data,
    root_of,
)
from autofast.read.recover.region import Region

YIELDS = "it yields in between: what the caller does then would run in the same mode"


def leak(script: Script, region: Region) -> str:
    """How a tensor made in ``region`` may come to autograd outside it; empty where none can."""
    return first_reason(_Ways(script, region).reasons())


class _Ways:
    """The ways out of a region, each with the reason why it leads to autograd."""

    def __init__(self, script: Script, region: Region):
        self.script, self.region = script, region
        self.flow, self.leaks = script.analysis(Flow), Leaks(script, region)

    def reasons(self) -> Iterator[str]:
        region = self.region
        if region.yields:
            yield YIELDS
        for site in forward_hooks(self.script):
            yield f"the hook of {at(site)} may keep it"
        for (kind, _), site in self.script.log.each():
            if kind.startswith("pandas."):
                given = [v for o in site for v in o.args.all()]
                if any(isinstance(t, Tensor) for v in given for t in with_contents(v, in_data)):
                    yield f"{at(site)} gives tensors to pandas, which may keep them"
        yield from self.kept()
        yield from self.carried()
        yield from (self.leaks.follow(name, None) for name in self.tainted())
        for statement in region.statements:
            for part in nodes_in(statement, ast.Return):
                if part.value is not None and function_of(part) is region.scope:
                    yield self.leaks.returned(usage_of(part.value))

    # --------------------------------------------------------------------------------- what is kept
    def kept(self) -> Iterator[str]:
        """Stores other than in local variables, here and in the functions called here."""
        for site, occurrence in self.region.sites(self.script, "set_attribute", "set_elsewhere"):
            if (
                carries_tensor(occurrence.result)
                and not self.born_inside(occurrence.this)
                and (why := self.leaks.keeper(occurrence.this, getattr(site.node, "attr", "")))
            ):
                yield f"`{ast.unparse(site.node)}` keeps a tensor made here ({at(site)}){why}"
        for site, occurrence in self.region.sites(
            self.script, "append", "set_item", "tensor_write", "inplace"
        ):
            if (
                site.kind != "inplace"
                and not carries_tensor(occurrence.result)
                or self.born_inside(occurrence.this)
            ):
                continue
            root = root_of(site.node)
            if site.kind == "inplace" and _is_computed(site.node):
                continue
            if site.kind in ("inplace", "tensor_write") and _stays_normal(occurrence):
                continue
            if (root is not None and is_local(root)) or self.local_names(occurrence.this):
                continue  # followed as a variable
            yield f"{at(site)} changes something that outlives this place"
        for function in self.functions():
            for part in nodes_in(function, ast.Name):
                if is_stored(part) and part.id in declared(function_of(part)):
                    holder = parent_of(part)
                    holder = holder if isinstance(holder, ast.NamedExpr) else statement_of(part)
                    value = getattr(holder, "value", None)
                    here = function is not self.region.scope or self.region.holds(part)
                    if here and (value is None or carries_tensor(self.script.values(value))):
                        yield f"the global `{part.id}` may keep a tensor made here ({at(part)})"

    def carried(self) -> Iterator[str]:
        """By code that is made here and reads it later, by an error, or as a gradient."""
        for part in self.region.nodes():
            match part:
                case ast.Lambda() | ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    free = (n for n in nodes_in(part, ast.Name) if not binds(part, n.id))
                    if any(carries_tensor(self.script.values(n)) for n in free):
                        yield f"what {at(part)} makes may keep a tensor made here"
        for function in self.functions():
            whole = function is self.region.scope
            parts = self.region.nodes() if whole else walk(function)
            yield from filter(None, map(self.by_itself, parts))

    def by_itself(self, part: ast.AST) -> str:
        """Why a part of the code, wherever it runs, may carry a tensor out."""
        match part:
            case ast.Raise(exc=ast.expr() as error):
                given = (self.script.values(n) for n in nodes_in(error, ast.expr))
                if isinstance(error, ast.Name) or any(map(carries_tensor, given)):
                    return f"the error of {at(part)} may carry a tensor made here"
            case ast.Attribute(attr="grad") if is_stored(part):
                return f"{at(part)} sets a gradient"
            case ast.Attribute(attr="__dict__") | ast.Name(id="vars"):
                return f"{at(part)} reaches into an object"
        return ""

    def functions(self) -> list[ast.AST]:
        """The project's functions that run in the region."""
        found: ByNode[ast.AST] = {}
        if isinstance(self.region.scope, FUNCTIONS):
            found[self.region.scope] = self.region.scope
        for frame in self.region.calls(self.script):
            found[frame.func.node] = frame.func.node
        return list(found.values())

    def born_inside(self, thing: Thing | None) -> bool:
        made = getattr(thing, "made", None)
        node = getattr(thing, "node", None)
        context = is_named(thing, Ext, CONTEXT)  # of one call
        return (
            context
            or (isinstance(node, ast.AST) and self.region.holds(node))
            or (isinstance(made, tuple) and self.region.reaches(made))
        )

    def local_names(self, thing: Thing | None) -> list[ast.Name]:
        """The variables of the scope (no parameters) that hold this container."""
        if not isinstance(thing, COLLECTIONS):
            return []
        scope = self.region.scope
        names = [n for n in nodes_in(scope, ast.Name) if thing in self.script.values(n)]
        return [n for n in names if function_of(n) is scope and is_local(n)]

    # ---------------------------------------------------------------------------------------- names
    def tainted(self) -> Iterator[ast.Name]:
        """The places that read a local variable which may hold something made here: bound in the
        region, or a container filled there.
        """
        region = self.region
        if region.whole:
            return
        for part in (n for statement in region.statements for n in walk(statement)):
            if (
                isinstance(part, ast.Name)
                and is_stored(part)
                and function_of(part) is region.scope
                and not self.adds_to_one_from_outside(part)
            ):
                yield from self.leaks.reads(part)
        for site, occurrence in region.sites(
            self.script, "append", "set_item", "tensor_write", "inplace", "set_attribute"
        ):
            root = root_of(site.node) if region.holds(site.node) else None
            for name in [root] if root is not None else self.local_names(occurrence.this):
                if function_of(name) is region.scope and is_local(name):
                    yield from self.leaks.filled(name, region.node)

    def adds_to_one_from_outside(self, name: ast.Name) -> bool:
        """``hits += ...`` in place, of a tensor that was made before the region: it stays one that
        autograd takes.
        """
        statement = parent_of(name)
        if not isinstance(statement, ast.AugAssign):
            return False
        old = [t for o in self.script.log.ways("augment", statement) for t in o.data["old"]]
        origins = self.flow.origins(name)
        return certainly(old, Tensor) and not any(
            self.region.holds(d.node) for d in origins if not d.is_augmented
        )


def ends_with_call(node: ast.AST, region: Region) -> bool:
    """It goes into a variable of a function that the region calls, which can hand it on by its
    result only.
    """
    root = root_of(node.target if isinstance(node, ast.AugAssign) else node)
    return root is not None and not region.holds(node) and not is_at_top(root) and is_local(root)


def _stays_normal(occurrence: Occurrence) -> bool:
    """Numbers are written into a tensor: one that was made before stays a tensor as autograd takes
    them, whatever the mode is now.
    """
    return isinstance(occurrence.this, Tensor) and occurrence.data.get("name") != "set_"


def _is_computed(node: ast.AST) -> bool:
    """``x.sum().mul_(2)``: what is changed in place has just been computed, and nothing else holds
    it.
    """
    made = node.func.value if is_method(node) else None
    return is_method(made) and made.func.attr in FRESH
