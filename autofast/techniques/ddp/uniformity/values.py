"""The kinds of expressions."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from autofast.flow.callgraph import Callee
from autofast.model.several import surely, wordset
from autofast.model.source import at
from autofast.model.syntax import IDENTITY, SEQUENCES
from autofast.model.values import (
    COLLECTIONS,
    Const,
    Dict,
    Ext,
    Func,
    Inst,
    Reason,
    Seq,
    Thing,
    Unknown,
    any_of,
    is_named,
    of_kind,
)
from autofast.rule import Refusal
from autofast.techniques.ddp.uniformity.kinds import (
    EQUAL,
    LOADER,
    NEAR,
    SHAPE,
    SHARE,
    SIZE,
    Kind,
    each,
    join,
    joined,
    of,
    share,
)
from autofast.techniques.ddp.uniformity.stores import Stores

# Asked of a tensor, and the same in all processes.
TYPES = wordset("device dtype ndim is_cuda requires_grad grad_fn is_leaf layout dim get_device")


class Values(Stores):
    """What expressions are; what calls give is :class:`.calls.Calls`'s."""

    def under(self, test: ast.expr, kind: Kind) -> None:
        raise NotImplementedError

    def _call(self, node: ast.Call) -> Kind:
        raise NotImplementedError

    def ev(self, node: ast.expr | None) -> Kind:
        if node is None:
            return EQUAL
        self.step()
        found = self._loader(node) if not isinstance(node, ast.Call) else None
        found = self._ev(node) if found is None else found
        self.kinds[node] = found
        if self.recording and found.same:
            self.whole.add(node)
        return found

    def _ev(self, node: ast.expr) -> Kind:
        match node:
            case ast.Name():
                return self._inside(node, self._lookup(node))
            case ast.BinOp(left=ast.expr() as left, right=right):
                kinds = self.ev(left), self.ev(right)
                if isinstance(node.op, ast.Mod) and isinstance(self.script.constant(left), str):
                    return self._text([right])
                return self._operation(node.op, (left, kinds[0]), (right, kinds[1]))
            case ast.UnaryOp(operand=operand):
                kind = self.ev(operand)
                return self._truth(operand) if isinstance(node.op, ast.Not) else kind.whole
            case ast.Compare():
                return self._compare(node)
            case ast.BoolOp(values=values):
                found = []
                for value in values:
                    found.append(self.condition(value))
                    self.under(value, found[-1])
                del self.control[-len(values) :]
                return joined(*found)
            case ast.IfExp():
                test = self.condition(node.test)
                self.under(node.test, test)
                kind = join(self.ev(node.body), self.ev(node.orelse))
                kind = self.raised(kind)
                self.control.pop()
                return kind
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                self._made_anew(node)
                found = [self.ev(e) for e in elts]
                starred = any_of(elts, ast.Starred)
                return _together(joined(*(k.whole for k in found))) if starred else of(*found)
            case ast.Attribute():
                return self._attribute(node)
            case ast.Subscript():
                return self._subscript(node)
            case ast.Call():
                return self._call(node)
            case ast.JoinedStr(values=values):
                return self._text(v.value for v in of_kind(values, ast.FormattedValue))
            case ast.NamedExpr():
                kind = self.ev(node.value)
                self.store(node.target, kind, node.value)
                return kind
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return self._comprehension(node)
            case ast.Constant() | ast.Lambda():
                return EQUAL
            case ast.Yield() | ast.YieldFrom() | ast.Await():
                raise Refusal(f"what `{ast.unparse(node)}` on {at(node)} gives is not followed")
        self._made_anew(node)
        parts = of_kind(ast.iter_child_nodes(node), ast.expr)
        held = joined(*(self.ev(p).whole for p in parts))
        return held if isinstance(node, (ast.Slice, ast.Starred)) else _together(held)

    def _loader(self, node: ast.expr) -> Kind | None:
        """A loader whose batches are shared out."""
        found = self.things(node)
        loaders = [t for t in of_kind(found, Ext) if self.training.shares(t)]
        if not loaders:
            return None
        rest = [t for t in found if t not in loaders and t != Const(None)]
        return share("it is one loader or another") if rest else LOADER

    def _made_anew(self, node: ast.expr) -> None:
        """An empty container again: what those made here before hold is known where they were
        put.
        """
        for thing in of_kind(self.things(node), COLLECTIONS):
            if getattr(thing, "node", None) is node:
                self.state.pop(("c", id(thing), ""), None)

    def _operation(
        self, op: ast.operator, left: tuple[ast.expr, Kind], right: tuple[ast.expr, Kind]
    ) -> Kind:
        kinds = a, b = left[1].whole, right[1].whole
        names = [k.name for k in kinds]
        if "share" in names:
            return self._mixed(left[0], kinds)
        if "size" not in names or {*names} - {"size", "equal", "near"}:
            return joined(*kinds)
        if a == b == SIZE and isinstance(op, (ast.Add, ast.Sub, ast.Div)):
            return EQUAL if isinstance(op, ast.Div) else SIZE
        if isinstance(op, (ast.Mult, ast.Div)) and EQUAL in kinds:
            if a == SIZE or isinstance(op, ast.Mult):
                return SIZE
        # Numbers of samples that go into a number in another way: those of all are meant.
        found = [self.read(e) if k == SIZE else k for e, k in (left, right)]
        return joined(*found)

    def _mixed(self, where: ast.expr, kinds: Iterable[Kind]) -> Kind:
        """What is made of a share and of others."""
        kinds = list(kinds)
        if any(k.counted for k in kinds):
            raise Refusal(
                f"a value of this process's part meets the number of samples of all on {at(where)}: divide sums by the size of the batch itself"
            )
        return next((k for k in kinds if k.why), SHARE)

    def _compare(self, node: ast.Compare) -> Kind:
        operands = [node.left, *node.comparators]
        kinds = [self.ev(o).whole for o in operands]
        if surely(isinstance(op, IDENTITY) for op in node.ops):
            return EQUAL
        if any(k.name == "share" for k in kinds):
            return self._mixed(node, kinds)
        return joined(*map(self.read, operands))

    def condition(self, test: ast.expr) -> Kind:
        self.ev(test)
        return self._truth(test)

    def _truth(self, test: ast.expr) -> Kind:
        """``if x``: a number that is compared is that of all."""
        if isinstance(test, ast.Compare) and not self.kinds[test].same:
            return joined(*map(self.read, (test.left, *test.comparators)))
        return self.read(test)

    def _attribute(self, node: ast.Attribute) -> Kind:
        """Of an object of a library: what the object is, since what differs by process comes from
        calls (``DRAWN``).
        """
        kind = self.ev(node.value).whole
        found = []
        for thing in of_kind(self.things(node.value), Inst):
            mine = self.state.get(("a", id(thing), node.attr))
            found += [mine] if mine is not None else []
            found += self._of_methods(thing, node.attr, "property")
        if found:
            return self._inside(node, joined(*found))
        if node.attr == "index" and any(map(_may_be_device, self.things(node.value))):
            return NEAR  # each process has a GPU of its own
        if node.attr in TYPES:
            return EQUAL
        if node.attr == "shape" and kind == SHARE:
            return SHAPE if self.numbers.has_rows(node.value, self.frames[-1].run) else SHARE
        return self._inside(node, kind)

    def _of_methods(self, thing: Inst, name: str, decorated: str = "") -> list[Kind]:
        """What a property gives, or a method without arguments."""
        return [
            self.call_function(Callee(func, thing), None)
            for func in of_kind(thing.cls.find(name) or (), Func)
            if not decorated
            or any(getattr(t, "name", "").endswith(decorated) for d in func.decorators for t in d)
        ]

    def _subscript(self, node: ast.Subscript) -> Kind:
        kind = self._inside(node.value, self.ev(node.value))
        index, key = self.ev(node.slice).whole, self.script.constant(node.slice)
        if any(id(t) in self.random_data for t in self.things(node.value)):
            self.draws(node)
        if kind.items is not None and isinstance(key, int) and kind.name != "each":
            if -len(kind.items) <= key < len(kind.items):
                return kind.items[key]
        kind = kind.whole
        if kind.name == "shape":
            if not isinstance(key, int) or key < 0:
                return SHARE
            return EQUAL if key else SIZE
        if kind.name == "share" or index.name in ("share", "size"):
            return self._mixed(node, (kind, index))
        return join(kind.items[0] if kind.items else kind, index)

    def _text(self, parts: Iterable[ast.expr]) -> Kind:
        """A text of values, which says what they are, or what their ``__str__`` says."""
        found = EQUAL
        for part in parts:
            elements = part.elts if isinstance(part, SEQUENCES) else [part]
            for element in elements:
                self.ev(element)
                own = [
                    kind
                    for thing in of_kind(self.things(element), Inst)
                    for name in ("__str__", "__repr__", "__format__")
                    for kind in self._of_methods(thing, name)
                ]
                found = join(found, joined(*own) if own else self.read(element))
        return found

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
    ) -> Kind:
        depth = len(self.control)
        for generator in node.generators:
            kind = self.element(generator.iter, self.ev(generator.iter))
            self.store(generator.target, kind)
            for test in generator.ifs:
                self.under(test, self.condition(test))
        if isinstance(node, ast.DictComp):
            self.ev(node.key)
            found = self.ev(node.value)
        else:
            found = self.ev(node.elt)
        found = self.raised(found.whole)
        del self.control[depth:]
        return each(found) if isinstance(node, ast.GeneratorExp) else _together(found)

    def element(self, expr: ast.expr, kind: Kind) -> Kind:
        """What a loop over ``expr`` gives."""
        kind = self._inside(expr, kind)
        if kind.items is not None:
            return joined(*kind.items)
        if kind.name == "loader":
            return SHARE
        if kind.same or (kind == SHARE and self.script.must_be(expr, Seq, Dict)):
            return kind
        return share(kind.why or "single samples of this process's part")


def _together(held: Kind) -> Kind:
    """A collection of these, which cannot be multiplied as a number of samples can."""
    return share("several numbers of samples at once") if held == SIZE else held


def _may_be_device(thing: Thing) -> bool:
    if isinstance(thing, Unknown):
        # A library's functions give no devices.
        return thing.reason not in (Reason.RESULT, Reason.METHOD)
    return is_named(thing, Ext, "torch.device")
