"""Attributes, subscripts, texts and elements: parts of what one process has; and what arithmetic,
comparisons and conditions make of that and of what all have.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import replace

from autofast.flow.callgraph import Callee
from autofast.model.calls import is_method
from autofast.model.several import wordset
from autofast.model.source import nodes_in, parent_of
from autofast.model.syntax import IDENTITY, SEQUENCES, is_operation
from autofast.model.values import Ext, Func, Inst, Reason, Thing, Unknown, all_of, is_named
from autofast.techniques.ddp.uniformity.calls import CLASSES, LibraryCalls
from autofast.techniques.ddp.uniformity.kinds import (
    BATCH,
    EQUAL,
    NEAR,
    SIZE,
    Kind,
    add,
    join,
    joined,
    other,
    over,
    times,
)
from autofast.techniques.ddp.uniformity.state import differs_by_rank
from autofast.techniques.ddp.uniformity.tensors import is_tensor


class Operators(LibraryCalls):
    """Operators and conditions."""

    def _binary(self, node: ast.AST, a: Kind, b: Kind, op: ast.operator) -> Kind:
        if is_operation(node, ast.Mod) and isinstance(self.script.constant(node.left), str):
            return self._text([node.right])
        match op:
            case ast.Add() | ast.Sub():
                found = add(a, b)
            case ast.Mult():
                found = times(a, b)
            case ast.Div():
                found = over(a, b)
            case _ if a.whole.same and b.whole.same:
                found = join(replace(a.whole, zero=False), replace(b.whole, zero=False))
            case _ if "batch" in (a.whole.name, b.whole.name):
                found = times(a, b)
            case _:
                found = other("a part of a larger number is taken apart")
        if found.name == "other" and is_operation(node):
            return self._scaled([(node.left, a.whole), (node.right, b.whole)], found)
        return found

    def _scaled(self, operands: list[tuple[ast.expr, Kind]], otherwise: Kind) -> Kind:
        """Numbers of samples that go into a number in another way than a sum: those of all
        processes are meant.
        """
        if not any(k.sized for _, k in operands) or not all(k.sized or k.same for _, k in operands):
            return otherwise
        found = EQUAL
        for expr, kind in operands:
            if kind.sized:
                self.settle(expr)
            else:
                found = join(found, replace(kind, zero=False, none=False))
        return found

    def _compare(self, node: ast.Compare) -> Kind:
        operands = [node.left, *node.comparators]
        kinds = [self.ev(o).whole for o in operands]
        if all_of(node.ops, IDENTITY):
            return EQUAL
        if any(k.name == "batch" for k in kinds):
            if all(k.name == "batch" or k.same for k in kinds):
                return joined(*(k for k in kinds if k.name == "batch"))
            return other("samples are compared with a part of something")
        if any(k.name in ("other", "loader") for k in kinds):
            return next(k for k in kinds if k.name in ("other", "loader"))
        for expr, kind in zip(operands, kinds, strict=True):
            if not kind.same:
                self.settle(expr)
        return NEAR if any(k.name == "near" for k in kinds) else EQUAL

    def _agreed(self, expr: ast.expr, whole: Kind) -> Kind | None:
        """What a value is on the host where all processes have the same, or come to the same
        together; None where each has its own.
        """
        if whole.same:
            return replace(whole, zero=False, none=False)
        if whole.name in ("mean", "sum", "per"):
            self.settle(expr)
            return EQUAL
        return None

    def _truth(self, expr: ast.expr, kind: Kind) -> Kind:
        """``not x``, or x as a condition."""
        whole = kind.whole
        if (same := self._agreed(expr, whole)) is not None:
            return same
        if whole.name == "loader":
            return EQUAL
        if whole.name == "batch":
            return other("it depends on single samples of this process's part")
        return whole

    def _bool(self, node: ast.BoolOp) -> Kind:
        found: Kind | None = None
        depth = 0
        for n, value in enumerate(node.values):
            kind = self.ev(value)
            truth = self._truth(value, kind)
            found = (
                truth if found is None else joined(found, truth) if found.name != "other" else found
            )
            if n < len(node.values) - 1:
                self.under(value, truth)
                depth += 1
        for _ in range(depth):
            self.leave()
        assert found is not None
        return found

    def _if(self, node: ast.IfExp) -> Kind:
        test = self.condition(node.test)
        self.under(node.test, test)
        kind = join(self.ev(node.body), self.ev(node.orelse))
        self.leave()
        if test.name == "equal":
            return kind
        if test.same and kind.same:
            return NEAR
        if kind.name == "mean":
            return kind
        return other("it is chosen by each process")

    def condition(self, test: ast.expr) -> Kind:
        return self._truth(test, self.ev(test))


# Attributes of tensors that are the same in all processes.
ALIKE = wordset("device dtype ndim is_cuda requires_grad grad_fn is_leaf layout")


class Parts(Operators):
    """Parts of values."""

    def _attribute(self, node: ast.Attribute) -> Kind:
        """Of an object of a library: what the object is, since what differs by process comes from
        calls (``calls.DRAWN``).
        """
        receiver = self.ev(node.value)
        found: Kind | None = None
        for thing in self.things(node.value):
            mine = self.state.get(("a", id(thing), node.attr)) if isinstance(thing, Inst) else None
            if node.attr == "__dict__":
                mine = self.contents(thing, _fields(node))
            if isinstance(thing, Inst) and mine is None:
                mine = self._property(thing, node.attr)
            if mine is not None:
                found = mine if found is None else join(found, mine)
        if found is not None:
            return self._inside(node, found)
        kind = receiver.whole
        if node.attr == "index" and any(_may_be_device(t) for t in self.things(node.value)):
            return NEAR  # each process has a GPU of its own
        if node.attr in ALIKE:
            return EQUAL
        if kind.name == "batch":
            if node.attr in ("shape",):
                return replace(BATCH, axis=kind.axis, shape=True)
            if node.attr in ("data", "grad"):
                return kind
            if node.attr in ("T", "mT"):
                return replace(kind, axis={0: 1, 1: 0}.get(kind.axis, "?"))  # type: ignore[call-overload]
            if not is_tensor(self.script, node.value):
                return BATCH
            return other(f"`.{node.attr}` of a batch")
        if kind.name in ("mean", "sum"):
            if node.attr in ("data", "T"):
                return kind
            return other(f"`.{node.attr}` of a part of a larger number")
        if kind.name == "loader":
            return SIZE if node.attr == "batch_size" else EQUAL
        return replace(kind, zero=False, none=False)

    def _property(self, thing: Inst, name: str) -> Kind | None:
        for func in thing.cls.methods(name):
            if any(getattr(t, "name", "").endswith("property") for d in func.decorators for t in d):
                return self.call_function(Callee(func, thing), None, {})
        return None

    def _inside(self, node: ast.expr, found: Kind) -> Kind:
        """What was put into the container that an expression may be, wherever that was done."""
        for thing in self.things(node):
            if (
                isinstance(thing, CLASSES)
                and (mine := self.state.get(("c", id(thing), ""))) is not None
            ):
                found = (
                    mine if found.items is not None and not found.items else join(found.whole, mine)
                )
        return found

    def _subscript(self, node: ast.Subscript) -> Kind:
        kind = self._inside(node.value, self.ev(node.value))
        index = node.slice
        self.ev(index)
        if any(id(t) in self.random_data for t in self.things(node.value)):
            self.draws(node)
        key = self.script.constant(index)
        if (
            kind.items is not None
            and isinstance(key, int)
            and -len(kind.items) <= key < len(kind.items)
        ):
            return kind.items[key]
        kind = kind.whole
        if kind.name == "batch":
            return self._rows(node, kind, key)
        if kind.same and self.kinds[index].whole.name == "batch":
            if self.kinds[index].whole.axis == 0:
                return BATCH
            return other("the shapes are not known")
        if kind.name == "iter":
            return kind.items[0] if kind.items else EQUAL
        return replace(kind, zero=False, none=False)

    def _rows(self, node: ast.Subscript, kind: Kind, key: object) -> Kind:
        if kind.shape:
            if isinstance(key, int) and key == kind.axis:
                return SIZE
            if isinstance(key, int) and key >= 0 and kind.axis in (0, 1):
                return EQUAL
            return other("the shape of a batch")
        if not is_tensor(self.script, node.value):
            return kind
        if isinstance(node.slice, ast.Tuple) and node.slice.elts:
            first = node.slice.elts[0]
        else:
            first = node.slice
        everything = (
            isinstance(first, ast.Slice)
            and first.lower is None
            and first.upper is None
            and first.step is None
        )
        if kind.axis == 0 and everything:
            return kind
        if kind.axis == 1 and not isinstance(node.slice, ast.Tuple):
            if isinstance(first, ast.Slice):
                return kind
            if isinstance(key, int):
                return replace(kind, axis=0)
            return other("a part of a batch")
        if self.kinds.get(first, EQUAL).name == "batch" and not isinstance(node.slice, ast.Tuple):
            return replace(kind, axis="some")
        return other("a part of the batch")

    def _formatted(self, expr: ast.expr) -> Kind:
        """``f"{x}"``: x is read, or says by ``__str__`` what it is."""
        kind = self.ev(expr)
        texts = [self._own_text(t) for t in self.things(expr) if isinstance(t, Inst)]
        if texts:
            found = joined(*texts)
            if found.name in ("batch", "other"):
                raise differs_by_rank(expr, found)
            return found
        return self._read_whole(expr, kind)

    def contents(self, thing: Thing, among: set[str] | None) -> Kind:
        """All attributes of an object at once, or those ``among`` some names."""
        mine = [
            kind.whole
            for (what, of, name), kind in self.state.items()
            if (what, of) == ("a", id(thing)) and (among is None or name in among)
        ]
        own = "made of attributes, of which each process has its own"
        return EQUAL if all(k.same for k in mine) else other(own)

    def _own_text(self, thing: Inst) -> Kind:
        for name in ("__str__", "__repr__", "__format__"):
            for func in thing.cls.find(name) or ():
                if isinstance(func, Func):
                    return self.call_function(Callee(func, thing), None, {})
        return EQUAL

    def _text(self, parts: Iterable[ast.expr]) -> Kind:
        found = EQUAL
        for part in parts:
            kind = self._formatted(part.value if isinstance(part, ast.FormattedValue) else part)
            found = join(found, kind) if kind.same else kind
        return found

    def _read_whole(self, expr: ast.expr, kind: Kind) -> Kind:
        """A value becomes a number or text of the host."""
        if kind.items is not None and isinstance(expr, SEQUENCES):
            return joined(
                EQUAL, *(self._read_whole(e, k) for e, k in zip(expr.elts, kind.items, strict=True))
            )
        whole = kind.whole
        if (same := self._agreed(expr, whole)) is not None:
            return same
        return other("single samples of this process's part") if whole.name == "batch" else whole

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
    ) -> Kind:
        depth = 0
        for generator in node.generators:
            self.store(generator.target, self.element(generator.iter, self.ev(generator.iter)))
            for test in generator.ifs:
                self.under(test, self.condition(test))
                depth += 1
        if isinstance(node, ast.DictComp):
            self.ev(node.key)
            found = self.ev(node.value)
        else:
            found = self.ev(node.elt)
        for _ in range(depth):
            self.leave()
        if found.items is None:
            return found
        if isinstance(node, ast.GeneratorExp):
            return Kind("iter", items=(found,))
        return found.whole

    def element(self, expr: ast.expr, kind: Kind) -> Kind:
        """What a loop over ``expr`` gives."""
        if kind.name == "loader":
            return BATCH
        if kind.name == "iter":
            assert kind.items is not None
            return kind.items[0]
        kind = self._inside(expr, kind)
        if kind.items is not None:
            return joined(*kind.items) if kind.items else EQUAL
        if kind.name == "batch":
            if is_tensor(self.script, expr):
                return other("single samples of this process's part")
            return kind
        return replace(kind, zero=False, none=False)


def _may_be_device(thing: Thing) -> bool:
    if isinstance(thing, Unknown):
        # A library's functions give no devices.
        return thing.reason not in (Reason.RESULT, Reason.METHOD)
    return is_named(thing, Ext, "torch.device")


def _fields(held: ast.Attribute) -> set[str] | None:
    """The names in the text of ``"{val} ({avg})".format(**self.__dict__)``; None where ``held`` is
    used for anything else.
    """
    given = parent_of(held)
    call = parent_of(given) if isinstance(given, ast.keyword) else None
    texts = nodes_in(call.func, ast.Constant) if is_method(call, "format") else ()
    names = {n for t in texts for n in re.findall(r"{(\w+)", str(t.value))}
    return names or None
