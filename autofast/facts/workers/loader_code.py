"""One side of a loader: the code of the project that runs there, what it reads, what it changes,
and what others change of that.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from autofast.flow.callgraph import CallGraph, code_of
from autofast.flow.defuse import bound_to
from autofast.flow.effects import Effects, is_number
from autofast.flow.program import Flow, holder_of
from autofast.flow.scopes import variables_of
from autofast.model.calls import call_of
from autofast.model.events import CallFrame
from autofast.model.kinds import is_property
from autofast.model.names import last_part
from autofast.model.script import Script
from autofast.model.several import wordset
from autofast.model.source import ByNode, Nodes, live_nodes, nodes_in, parent_of, within
from autofast.model.syntax import VARIABLES, is_read
from autofast.model.values import (
    COLLECTIONS,
    OBJECTS,
    Arg,
    Arguments,
    Bound,
    Cls,
    Const,
    Ext,
    Func,
    Inst,
    Method,
    Module,
    Num,
    Partial,
    Ref,
    Tensor,
    Thing,
    Unknown,
    all_of,
    begins,
    library_names,
    of_kind,
    ordered,
)

CALLED = ("__call__", "forward")
GETTERS = ("__getitem__", "__getitems__", "__iter__", "__next__")
NO_PROTOCOL = wordset(
    "__init__ __new__ __del__ __getstate__ __setstate__ __repr__ __str__ __init_subclass__"
)
SETTLED = (
    "RandomSampler",
    "SequentialSampler",
    "WeightedRandomSampler",
    "DistributedSampler",
)  # they draw all indices at the beginning
PASSES = 8


class Side:
    """The project's code that runs for a loader in one place (fetching items, or choosing indices),
    and the objects it reads.
    """

    def __init__(
        self,
        script: Script,
        roots: Iterable[Thing],
        beside: Iterable[Thing] = (),
        more: tuple[str, ...] = (),
    ):
        """``more``: methods of ``roots`` that are asked about as well."""
        self.script = script
        self.graph, self.flow, self.effects = (
            script.analysis(CallGraph),
            script.analysis(Flow),
            script.analysis(Effects),
        )
        self.roots = list(roots)
        self.functions: ByNode[ast.AST] = {}
        self.starts: Nodes = set()  # functions that the loader (or a library) calls
        self.partials: ByNode[list[Partial]] = {}
        self.sites: ByNode[list[ast.Call]] = {}  # where this side's code calls a function
        self.loads: set[str] = set()  # attributes that it reads
        self.every = False  # ... and any other
        self.free: dict[tuple[ast.AST, str], ast.Name] = {}
        self.objects: dict[int, Thing] = {}
        self.classes: dict[int, Cls] = {}
        self.environment = False
        self.calls: list[ast.Call] = []
        self.beside = {f for thing in beside for f in run_by(thing, CALLED)}
        for thing in self.roots:
            self.enter(thing, GETTERS + CALLED + more)
        found = 0
        for _ in range(PASSES):
            known, found = found, self.collect()
            if known == found:
                break
        self.aliases, self.fields = self.given_names()

    # ---------------------------------------------------------------- functions
    def enter(self, thing: Thing, methods: tuple[str, ...] = CALLED) -> None:
        for function in run_by(thing, methods):
            self.starts.add(function)
            if isinstance(thing, Partial) and thing not in self.partials.get(function, ()):
                self.partials.setdefault(function, []).append(thing)
            self.function(function)

    def function(self, function: ast.AST) -> None:
        if function in self.functions or len(self.functions) > 300:
            return
        self.functions[function] = function
        body = (
            [function.body] if isinstance(function, ast.Lambda) else getattr(function, "body", [])
        )
        for node in (n for part in body for n in live_nodes(part)):
            if isinstance(node, ast.Attribute) and is_read(node):
                self.loads.add(node.attr)
                self.properties(node)
            elif isinstance(node, ast.Call):
                self.call(node)
            elif isinstance(node, ast.Name) and is_read(node):
                home = holder_of(node)
                if home not in self.functions and not within(home, function):
                    self.free.setdefault((home, node.id), node)
            if isinstance(node, ast.expr):
                self.value(node)

    def properties(self, node: ast.Attribute) -> None:
        for thing in self.script.values(node.value):
            for member in (thing.cls.find(node.attr) or ()) if isinstance(thing, Inst) else ():
                if isinstance(member, Func) and is_property(member):
                    self.starts.add(member.node)
                    self.function(member.node)

    def call(self, node: ast.Call) -> None:
        callees = self.script.called(node)
        for callee in self.graph.callees(node):
            self.sites.setdefault(callee.function, []).append(node)
            self.function(callee.function)
        names = library_names(callees)
        if "builtins.getattr" in names and len(node.args) > 1:
            keys = self.script.values(node.args[1])
            self.loads.update(str(k.value) for k in keys if isinstance(k, Const))
            self.every = self.every or not all_of(keys, Const)
        if names & {"builtins.vars", "builtins.globals", "builtins.eval", "builtins.exec"}:
            self.every = True
        if any(n.startswith(("os.environ", "os.getenv")) for n in names):
            self.environment = True
        self.calls.append(node)

    def value(self, node: ast.expr) -> None:
        """Functions that are passed on, and objects of the project that are used as a whole (``x in
        bag``, ``with lock``).
        """
        parent = parent_of(node)
        called = call_of(node) is not None
        for thing in self.script.values(node):
            if begins(thing, Ref, "os.environ"):
                self.environment = True
            if isinstance(thing, (Func, Bound, Partial)) and not called:
                self.enter(thing)
            elif (
                isinstance(thing, Inst)
                and isinstance(node, VARIABLES)
                and not isinstance(parent, ast.Attribute)
            ):
                names = [
                    n
                    for c in (thing.cls, *thing.cls.ancestors())
                    for n in c.members
                    if n.startswith("__") and n.endswith("__")
                ]
                self.enter(
                    thing,
                    tuple(
                        n
                        for n in names
                        if n not in NO_PROTOCOL and not (n == "__len__" and thing in self.roots)
                    ),
                )

    # ---------------------------------------------------------------- objects
    def collect(self) -> int:
        """Everything that this code may read, beginning with what the loader has and the names
        around; how much is known then.
        """
        todo = [*self.roots]
        for name in self.free.values():
            todo += ordered(self.script.values(name))
        for function in self.functions.values():
            for name in (n for n in nodes_in(function, ast.Name)):
                todo += of_kind(self.script.values(name), Cls)
        seen: set[object] = set()
        while todo and len(seen) < 4000:
            thing = todo.pop()
            if thing in seen or isinstance(thing, (Const, Num, Ref, Unknown, Tensor, Arg)):
                continue
            seen.add(thing)
            self.objects[id(thing)] = thing
            todo += [t for values in self.parts(thing) for t in values]
        return len(self.functions) + len(self.loads) + len(self.objects)

    def parts(self, thing: Thing) -> Iterator[Iterable[Thing]]:
        if isinstance(thing, Inst):
            whole = self.every or bool(
                {n for n in thing.cls.external if not n.startswith("torch.utils.data.")}
            )
            yield from (found for name, found in thing.attrs.items() if whole or name in self.loads)
            yield [thing.cls]
            self.enter(thing)  # a library may call it (in ``Compose([...])``)
        elif isinstance(thing, Cls):
            self.classes[id(thing)] = thing
            yield from (f for n, f in thing.members.items() if n in self.loads)
            yield thing.bases
        elif isinstance(thing, Ext):
            if last_part(thing.name) in SETTLED:
                return
            yield from thing.attrs.values()
            for values in thing.args.all():
                for held in values:
                    self.enter(held, GETTERS)  # as Subset does with a dataset
                yield values
        elif isinstance(thing, COLLECTIONS):
            yield thing.any()
        elif isinstance(thing, (Func, Bound, Partial)):
            self.enter(thing)
            if isinstance(thing, Bound):
                yield [thing.this]
            elif isinstance(thing, Partial):
                yield from (thing.func, *thing.args.all())
            else:
                yield from thing.defaults.values()
        elif isinstance(thing, Method):
            yield [thing.this]
        elif isinstance(thing, Module):
            yield from (f for n, f in thing.env.vars.items() if n in self.loads)

    def given_names(self) -> tuple[set[tuple[ast.AST, str]], set[tuple[int, str]]]:
        """The variables, and attributes of objects, that hold what was given to these objects when
        they were made.
        """
        names = {key for key, name in self.free.items() if not is_number(self.script.values(name))}
        names |= {key for key, name in self.free.items() if self.script.may_be(name, Num)}
        fields: set[tuple[int, str]] = set()
        for thing in self.objects.values():
            if isinstance(thing, OBJECTS) and isinstance(thing.args, Arguments):
                frames = of_kind(thing.made, CallFrame)
                for given_ in thing.args.every:
                    self.follow(given_.expr, frames, names, fields)
        return names, fields

    def follow(
        self,
        expr: ast.expr | None,
        frames: list[CallFrame],
        names: set[tuple[ast.AST, str]],
        fields: set[tuple[int, str]],
    ) -> None:
        while isinstance(expr, ast.Subscript):
            expr = expr.value
        if isinstance(expr, ast.Name):
            home = holder_of(expr)
            if (home, expr.id) in names:
                return
            names.add((home, expr.id))
            for n, frame in enumerate(frames):
                if frame.func.node is home and expr.id in frame.given:
                    self.follow(frame.given[expr.id].expr, frames[:n], names, fields)
            for value, whole in ever_bound(expr):
                if whole and isinstance(value, VARIABLES):
                    self.follow(value, frames, names, fields)
        elif isinstance(expr, ast.Attribute):
            fields |= {
                (id(t), expr.attr) for t in self.script.values(expr.value) if isinstance(t, OBJECTS)
            }


def run_by(thing: Thing, methods: tuple[str, ...]) -> list[ast.AST]:
    """The functions of the project that run when a thing is called, or an object is used by these
    methods.
    """
    if isinstance(thing, Inst):
        return [t.node for name in methods for t in thing.cls.methods(name)]
    return [c.function for c in code_of(thing) if c.makes is None]


def ever_bound(name: ast.Name) -> list[tuple[ast.expr | None, bool]]:
    """What a variable is bound to anywhere, and whether to the whole of it (see
    :func:`bound_to`).
    """
    table = variables_of(name)
    variable = table.of(name)
    return [bound_to(n) for n in table.stores(variable)] if variable is not None else []
