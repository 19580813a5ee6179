"""Where the numbers of a training are kept: variables, attributes, containers, objects."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.flow.callgraph import CallGraph
from autofast.flow.scopes import owner
from autofast.model.calls import receiver_of
from autofast.model.script import Script
from autofast.model.several import surely
from autofast.model.source import ByNode, Nodes, at, source_of, statement_of
from autofast.model.syntax import VARIABLES
from autofast.model.values import (
    Bound,
    Dict,
    Ext,
    Inst,
    Method,
    Module,
    Seq,
    Thing,
    any_of,
    of_kind,
)
from autofast.rule import Refusal
from autofast.techniques.ddp.guards import Host
from autofast.techniques.ddp.names import Training
from autofast.techniques.ddp.uniformity.calls import CLASSES
from autofast.techniques.ddp.uniformity.kinds import EQUAL, NEAR, NONE, Kind, join, of, other
from autofast.techniques.ddp.uniformity.state import Control, Frame, Note, State, in_words
from autofast.techniques.ddp.uniformity.values import Values


class Stores(Values):
    """What variables, attributes and containers hold; ``decided`` are conditions that the first
    process decides for all.
    """

    def __init__(
        self,
        script: Script,
        training: Training,
        host: Host,
        decided: ByNode[ast.expr],
        hoists: ByNode[ast.Call],
    ):
        self.script, self.training, self.host = script, training, host
        # Hoists: calls that are taken out of what one process does.
        self.decided, self.hoists = (decided, hoists)
        self.kinds: dict[ast.AST | None, Kind] = {}
        self.state: State = {}
        self.notes: ByNode[Note] = {}
        # expressions that are the same in all processes in some use
        self.whole: Nodes = set()
        self.barriers: ByNode[ast.stmt] = {}
        self.frames: list[Frame] = []
        self.control: list[Control] = []
        self.trying: list[ast.Try] = []
        self.recording = True
        self.written = False
        self.trained = False
        # after these, the others wait for the first process
        self.waits: ByNode[ast.stmt] = {}
        self.guarded: list[ast.AST] = []
        self.splits: Nodes = set()  # statements before which a guard must end
        self._inner: Nodes = set()
        self.place = ""  # before, in or after the time in which there is a group
        self.seen: Nodes = set()
        self._steps = 0
        self.calls = script.analysis(CallGraph)
        self.random_data = {
            id(d.thing) for x in script.loaders for d in x.datasets if d.random - {"own"}
        }
        self._loops = set(training.loops)
        self.passes = set(training.wrapped) | {
            p for s in training.steps for b in s.backwards for t in b.tensors for p in t.passes
        }
        self._matters = {b.node for s in training.steps for b in s.backwards} | {
            u.node for s in training.steps for u in s.updates
        }

    # -------------------------------------------------------------------------------------- objects
    def things(self, node: ast.expr) -> list[Thing]:
        """What an expression may be in the calls that are followed now."""
        found = list(self.script.values(node))
        if isinstance(node, ast.Name):
            scope = self._scope_of(node)
            frame = next((f for f in reversed(self.frames) if f.scope is scope), None)
            return frame.things[node.id] if frame is not None and node.id in frame.things else found
        if isinstance(node, ast.Attribute) and found:
            owners = self.things(node.value)
            bound = [t for t in found if isinstance(t, (Bound, Method))]
            if len(bound) == len(found):
                mine = {id(o) for o in owners}
                return [t for t in bound if id(t.this) in mine] or found
            if surely(isinstance(o, Inst) and node.attr in o.attrs for o in owners):
                kept = {
                    id(t)
                    for o in owners
                    if isinstance(o, Inst)
                    for t in (*o.attrs[node.attr], *o.past.get(node.attr, ()))
                }
                return [
                    t for t in found if id(t) in kept or not isinstance(t, (Inst, Ext, Seq, Dict))
                ]
        return found

    # ------------------------------------------------------------------------------------ variables
    def _scope_of(self, node: ast.Name) -> ast.AST:
        return owner(node) or source_of(node).tree

    def lookup(self, node: ast.Name) -> Kind:
        found = self.state.get(("v", self._scope_of(node), node.id))
        if found is None:
            found = self._imported(node)
        return self._inside(node, found)

    def _imported(self, node: ast.Name) -> Kind:
        for source in self.script.sources:
            kind = self.state.get(("v", source.tree, node.id))
            if (
                kind is not None
                and source is not source_of(node)
                and any(
                    any((a.asname or a.name) == node.id for a in n.names)
                    for n in of_kind(source_of(node).tree.body, ast.ImportFrom)
                )
            ):
                return kind
        return EQUAL

    def store(self, target: ast.expr, kind: Kind) -> None:
        match target:
            case ast.Name():
                self.state["v", self._scope_of(target), target.id] = self._raised(kind)
                self.kinds[target] = kind
            case ast.Tuple() | ast.List():
                self._unpack(target, kind)
            case ast.Starred():
                self.store(target.value, kind.whole)
            case ast.Attribute():
                self._store_attribute(target, self._raised(kind))
            case ast.Subscript():
                self.ev(target.slice)
                self.ev(target.value)
                self._store_item(target, self._raised(kind))

    def _unpack(self, target: ast.Tuple | ast.List, kind: Kind) -> None:
        if kind.items is not None and kind.name != "iter" and len(kind.items) == len(target.elts):
            for elt, part in zip(target.elts, kind.items, strict=True):
                self.store(elt, part)
            return
        part = kind.items[0] if kind.name == "iter" and kind.items else kind.whole
        for elt in target.elts:
            self.store(elt, part)

    def _store_attribute(self, target: ast.Attribute, kind: Kind) -> None:
        self.changes(target)
        receiver = self.ev(target.value)
        owners = of_kind(self.things(target.value), Inst)
        for thing in owners:
            key = ("a", id(thing), target.attr)
            self.state[key] = kind if len(owners) == 1 else join(self.state.get(key, NONE), kind)
        modules = of_kind(self.things(target.value), Module)
        for module in modules:
            self.state["v", module.source.tree, target.attr] = kind
        if not owners and not modules and receiver.whole.name != "batch":
            self._library_keeps(target, kind)

    def _library_keeps(self, target: ast.expr, kind: Kind) -> None:
        """``param_group["lr"] = x``: what is set decides how the training goes on."""
        if kind.whole.name != "equal":
            value = getattr(statement_of(target), "value", None)
            if (
                kind.whole.name == "near"
                and isinstance(value, ast.expr)
                and isinstance(statement_of(target), ast.Assign)
            ):
                self.first_value(value)
            elif not kind.whole.same:
                raise Refusal(f"`{ast.unparse(target)}` on {at(target)} is set to {in_words(kind)}")
        self.happens(target)

    def _store_item(self, target: ast.Subscript, kind: Kind) -> None:
        found = self.things(target.value)
        if any_of(found, CLASSES) or isinstance(target.value, VARIABLES) and not found:
            self.changes(target)
            self.hold(target.value, kind.whole)
            return
        receiver = self.kinds.get(target.value, EQUAL).whole
        if receiver.name == "batch":
            return
        if not kind.whole.same:
            self.hold(target.value, kind.whole)

    def hold(self, container: ast.expr, what: Kind) -> None:
        """A container holds ``what`` from now on, under all its names."""
        what = self._raised(what)
        found = of_kind(self.things(container), CLASSES)
        for thing in found:
            key = ("c", id(thing), "")
            self.state[key] = join(self.state.get(key, what), what)
        root = container
        while isinstance(root, (ast.Subscript, ast.Call)):
            root = root.value if isinstance(root, ast.Subscript) else receiver_of(root) or root.func
        if not found or root is not container:
            if isinstance(root, ast.Name):
                old = self.lookup(root)
                empty = old.items is not None and not old.items
                self.state["v", self._scope_of(root), root.id] = (
                    what if empty else join(old.whole, what)
                )
            elif isinstance(root, ast.Attribute):
                for inst in self.things(root.value):
                    if isinstance(inst, Inst):
                        key = ("a", id(inst), root.attr)
                        old = self.state.get(key, of())
                        self.state[key] = what if old.items == () else join(old.whole, what)

    def _raised(self, kind: Kind) -> Kind:
        """What is set under a condition that may differ may differ."""
        worst = self._worst()
        if worst is None:
            return kind
        if kind.items is not None:
            return of(*(self._raised(k) for k in kind.items)) if kind.name == "equal" else kind
        if worst.name == "near":
            return NEAR if kind.same or kind.sized else kind
        if kind.same or kind.sized:
            return other(worst.why or "it is set by each process for itself")
        return kind

    def all_control(self) -> Iterator[Control]:
        """The conditions that this point depends on."""
        yield from self.control
        for frame in self.frames:
            yield from frame.left
            for loop in frame.loops:
                yield from loop

    def _worst(self) -> Kind | None:
        found = None
        for control in self.all_control():
            if control.kind.name != "equal" and control.test not in self.decided:
                if control.kind.name != "near":
                    return control.kind
                found = control.kind
        return found
