"""What variables, attributes and containers hold, and what is put into them."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from autofast.facts.updates.rates import is_group
from autofast.flow.callgraph import Callee
from autofast.flow.scopes import owner
from autofast.model.calls import receiver_of, root_of
from autofast.model.kinds import is_optimizer
from autofast.model.several import surely
from autofast.model.source import at, source_of, statement_of
from autofast.model.syntax import is_attribute
from autofast.model.values import (
    COLLECTIONS,
    Bound,
    Dict,
    Ext,
    Inst,
    Method,
    Module,
    Seq,
    Tensor,
    Thing,
    any_of,
    of_kind,
)
from autofast.rule import Refusal
from autofast.techniques.ddp.uniformity.kinds import (
    EQUAL,
    SIZE,
    Kind,
    join,
    joined,
    share,
)
from autofast.techniques.ddp.uniformity.notes import Notes
from autofast.techniques.ddp.uniformity.state import differs_by_rank, in_words, short


class Stores(Notes):
    """What is held under names; what expressions are is :class:`.values.Values`'s."""

    def step(self) -> None:
        raise NotImplementedError

    def call_function(self, callee: Callee, node: ast.Call | None) -> Kind:
        raise NotImplementedError

    def ev(self, node: ast.expr | None) -> Kind:
        raise NotImplementedError

    # -------------------------------------------------------------------------------------- objects
    def things(self, node: ast.expr) -> list[Thing]:
        """What an expression may be in the calls that are followed now."""
        found = list(self.script.values(node))
        if isinstance(node, ast.Name):
            scope = self._scope_of(node)
            frame = next((f for f in reversed(self.frames) if f.run.function is scope), None)
            return found if frame is None else frame.things.get(node.id, found)
        if isinstance(node, ast.Attribute) and found:
            owners = self.things(node.value)
            bound = [t for t in found if isinstance(t, (Bound, Method))]
            if len(bound) == len(found):
                mine = {id(o) for o in owners}
                return [t for t in bound if id(t.this) in mine] or found
            if surely(isinstance(o, Inst) and node.attr in o.attrs for o in owners):
                kept = {
                    id(t)
                    for o in of_kind(owners, Inst)
                    for t in (*o.attrs[node.attr], *o.past.get(node.attr, ()))
                }
                return [
                    t for t in found if id(t) in kept or not isinstance(t, (Inst, Ext, Seq, Dict))
                ]
        return found

    # ---------------------------------------------------------------------------------------- names
    def _scope_of(self, node: ast.Name) -> ast.AST:
        return owner(node) or source_of(node).tree

    def _lookup(self, node: ast.Name) -> Kind:
        found = self.state.get(("v", self._scope_of(node), node.id))
        if found is not None:
            return found
        mine = source_of(node)
        for statement in of_kind(mine.tree.body, ast.ImportFrom):
            for alias in statement.names:
                if (alias.asname or alias.name) == node.id:
                    for source in self.script.sources:
                        if (kind := self.state.get(("v", source.tree, node.id))) is not None:
                            return kind
        return EQUAL

    def store(self, target: ast.expr, kind: Kind, value: ast.expr | None = None) -> None:
        """``value`` is what is stored, where that is known."""
        match target:
            case ast.Name():
                self.state["v", self._scope_of(target), target.id] = self.raised(kind)
                self.kinds[target] = kind
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                kinds = [kind.whole] * len(parts)
                if kind.name == "shape":
                    kinds = [SIZE, *[EQUAL] * (len(parts) - 1)]
                elif kind.items is not None:
                    several = kind.name != "each" and len(kind.items) == len(parts)
                    kinds = [*kind.items] if several else [joined(*kind.items)] * len(parts)
                for part, mine in zip(parts, kinds, strict=True):
                    self.store(part, mine)
            case ast.Starred():
                self.store(
                    target.value,
                    share("its length is not known") if kind.name == "shape" else kind.whole,
                )
            case ast.Attribute():
                self.changes(target)
                self.ev(target.value)
                if target.attr in ("data", "grad") and self._lasts(target.value):
                    self.changed_alike(target, [target.value, *([value] if value else [])])
                self._store_attribute(target, self._keep(target, kind, value), value)
            case ast.Subscript():
                self.ev(target.slice)
                holds = self.ev(target.value).whole
                if self._lasts(target.value):
                    self._set_for_all(target, kind, value)
                elif holds.name == "share":
                    self._in_place(target.value, [value] if value is not None else [])
                else:
                    self._hold(target.value, self._keep(target, kind, value))

    def _keep(self, target: ast.expr, kind: Kind, value: ast.expr | None) -> Kind:
        if value is None and not kind.whole.same:
            raise Refusal(
                f"`{ast.unparse(target)}` on {at(target)} keeps what differs between processes: {in_words(kind)}"
            )
        return self.raised(kind.whole) if value is None else self.kept(value, kind)

    def _store_attribute(self, target: ast.Attribute, kind: Kind, value: ast.expr | None) -> None:
        found = self.things(target.value)
        for thing in of_kind(found, Inst):
            key = ("a", id(thing), target.attr)
            old = self.state.get(key, kind)
            self.state[key] = kind if len(found) == 1 else join(old, kind)
        for module in of_kind(found, Module):
            self.state["v", module.source.tree, target.attr] = kind
        if not any_of(found, Inst, Module) and self.kinds[target.value].whole.name != "share":
            self._decide(target, kind, value)

    def _decide(self, target: ast.expr, kind: Kind, value: ast.expr | None) -> None:
        """``param_group["lr"] = x``: what is set decides how the training goes on."""
        if kind.name == "near" and value is not None:
            match statement_of(target):
                case ast.Assign() if self._is_number(value):
                    self.note(value, "first")
                case ast.Assign() | ast.AugAssign():
                    raise differs_by_rank(value, kind)
        self.happens(target)

    # --------------------------------------------------------------- what all processes go on from
    def _lasts(self, expr: ast.expr) -> bool:
        """Whether training goes on from it: a parameter, its gradient, what an optimizer keeps.
        Before the training starts, the models of the first process are sent to all.
        """
        if self.place != "in":
            return False
        held = any(t.param for t in of_kind(self.script.values(expr), Tensor))
        return held or is_group(self.script, expr) or self._is_kept(expr)

    def _is_kept(self, expr: ast.expr) -> bool:
        """``optimizer.state``, and what is in it."""
        inside = (n for n in ast.walk(expr) if is_attribute(n, "state", "defaults"))
        return any(is_optimizer(t) for n in inside for t in self.script.values(n.value))

    def _is_number(self, expr: ast.expr) -> bool:
        """No tensor with several elements, as far as is known."""
        return all(t.rank == "0d" for t in of_kind(self.script.values(expr), Tensor))

    def _set_for_all(self, target: ast.Subscript, kind: Kind, value: ast.expr | None) -> None:
        """A number that is drawn is that of the first process; all else must be the same."""
        match statement_of(target):
            case ast.AugAssign(value=added):
                value, kind = added, self.kinds.get(added, EQUAL)
        if kind.whole.name == "near" and value is not None and self._is_number(value):
            self.happens(target)
            self.note(value, "first")
        else:
            self.changed_alike(target, [target.value, *([value] if value else [])])

    def changed_alike(self, where: ast.AST, given: Iterable[ast.expr]) -> None:
        """All processes change what lasts, and by the same values."""
        self.happens(where)
        for expr in given:
            if self.kinds.get(expr, EQUAL).whole.name == "near":
                raise Refusal(
                    f"`{short(expr)}` may differ between processes, and changes on {at(where)} what all of them train on with"
                )
            self.settle(expr)

    def _hold(self, container: ast.expr, what: Kind) -> None:
        """A container holds ``what`` from now on, under all its names."""
        self.changes(container)
        found = of_kind(self.things(container), COLLECTIONS)
        for thing in found:
            key = ("c", id(thing), "")
            self.state[key] = join(self.state.get(key, what), what)
        root = root_of(container, ast.Subscript)
        if isinstance(root, ast.Call):
            root = receiver_of(root) or root.func
        if isinstance(root, ast.Name):
            self.state["v", self._scope_of(root), root.id] = join(self._lookup(root).whole, what)
        elif isinstance(root, ast.Attribute):
            for inst in of_kind(self.things(root.value), Inst):
                key = ("a", id(inst), root.attr)
                self.state[key] = join(self.state.get(key, EQUAL).whole, what)

    def _in_place(self, changed: ast.expr, given: Iterable[ast.expr]) -> None:
        """A value is changed in place, which nobody sees who asks where it comes from: all that
        may be done is what is done to each sample.
        """
        given = list(given)
        if self._lasts(changed):
            self.changed_alike(changed, [changed, *given])
            return
        shares = [e for e in given if not self.kinds.get(e, EQUAL).same]
        if self.kinds[changed].same and not shares:
            return
        root = changed
        while isinstance(root, (ast.Subscript, ast.Call)) or is_attribute(root, "data"):
            root = receiver_of(root) or root.func if isinstance(root, ast.Call) else root.value
        if not isinstance(root, ast.Name):
            raise Refusal(
                f"`{ast.unparse(root)}` is changed in place on {at(changed)}, in each process by its part of the batch"
            )
        if not self.numbers.are_rows(root, shares, self.frames[-1].run):
            self.store(root, share(f"it is changed in place on {at(changed)}"))

    def _inside(self, node: ast.expr, found: Kind) -> Kind:
        """What was put into the container that an expression may be, wherever that was done."""
        for thing in of_kind(self.things(node), COLLECTIONS):
            if (mine := self.state.get(("c", id(thing), ""))) is not None:
                found = join(found.whole, mine)
        return found
