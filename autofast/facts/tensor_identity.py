"""Whether a tensor may stand where a second tensor object for the same values stood: ``x`` for
``Variable(x)``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from autofast.facts.loaders import loader_argument
from autofast.flow.callgraph import CallGraph
from autofast.flow.defuse import bound_to
from autofast.flow.program import definitions_at, definitions_of
from autofast.model.calls import is_method, is_name, may_give, parts_of, unstarred
from autofast.model.names import FACTORIES, LEGACY_TENSORS, is_loss
from autofast.model.roles import Loader
from autofast.model.script import Script
from autofast.model.several import of_kind, surely, wordset
from autofast.model.source import ancestors, nodes_in, parent_of, statement_of
from autofast.model.syntax import (
    ASSIGNMENTS,
    IDENTITY,
    SEQUENCES,
    is_attribute,
    is_stored,
    is_unary,
)
from autofast.model.values import (
    Const,
    Ext,
    Func,
    Reason,
    Ref,
    Seq,
    Tensor,
    Thing,
    Unknown,
    Values,
    any_of,
    library_names,
    surely_named,
)
from autofast.ops import is_in_place, may_share, op, reshapes

# fmt: off
# methods whose result is a tensor object of its own, or the receiver itself (the second kind)
NEW = wordset("view reshape clone unsqueeze transpose permute expand t repeat detach")
KEPT = wordset("""cuda cpu to type type_as float double half long int byte bool contiguous pin_memory
    squeeze fill_ zero_ normal_ uniform_ random_ exponential_""")
# what gives a tensor another shape, or a part in a graph, and so tells it from another object for
# the same values methods that make another tensor of the same kind
MAKING = wordset("new new_zeros new_ones new_empty new_full new_tensor")
STACKS = wordset("torch.stack torch.cat torch.hstack torch.vstack")
SIZES = wordset("size shape dim numel dtype device")
ASKING = wordset("requires_grad_ retain_grad register_hook detach_")
# fmt: on

NONE = Const(None)
VARIABLE = "torch.autograd.Variable"


class Plainness:
    """Asks about the tensors of one script."""

    def __init__(self, script: Script):
        self.script = script

    def same(self, data: ast.expr) -> bool:
        """Nothing tells ``data`` from a tensor of its own for the same values."""
        if not self._has_no_graph(data):
            return False
        return self.is_new(data) or not self._is_told_apart(data) or self._is_left(data)

    def _is_left(self, data: ast.expr) -> bool:
        """Nothing else holds the tensor, and nothing will: ``x = Variable(x.cuda())`` of a batch,
        or of what was made for this.
        """
        root = _root(data)
        statement = statement_of(data)
        if not isinstance(root, ast.Name) or not isinstance(statement, ast.Assign):
            return False
        targets = {n.id for t in statement.targets for n in nodes_in(t, ast.Name)}
        return root.id in targets and self._is_only_here(root, frozenset())

    def _is_only_here(self, use: ast.Name, seen: frozenset[ast.AST]) -> bool:
        definitions = definitions_at(self.script, use)
        return surely(
            d.node in seen or self._is_only_for(d.node, use, seen | {d.node}) for d in definitions
        )

    def _is_only_for(self, binding: ast.AST, use: ast.Name, seen: frozenset[ast.AST]) -> bool:
        """A name that gets what a loader gives, or what is new, and of which nothing but sizes is
        asked before ``use``.
        """
        if not isinstance(binding, ast.Name) or not (
            self._is_of_a_batch(binding)
            or self._is_given_new(binding)
            or self._is_moved(binding, seen)
        ):
            return False
        return all(
            n is use or _is_size(n) or self._is_passing_by(n) or self._goes_on(n) is not None
            for n in self._uses(binding)
        )

    def _is_moved(self, binding: ast.Name, seen: frozenset[ast.AST]) -> bool:
        """``x = x.cuda()`` of what nothing else holds: this, or a copy of it."""
        return any(
            name is binding
            and isinstance(root := _root(value), ast.Name)
            and self._goes_on(root) is binding
            and self._is_only_here(root, seen)
            for name, value in parts_of(statement_of(binding))
        )

    def _goes_on(self, use: ast.Name) -> ast.expr | None:
        """The same name, which gets the tensor where it stood, or a copy: ``x = x.cuda()``, ``x =
        Variable(x)``.

        Of two such statements, the second finds what the first has put there.
        """
        for name, value in parts_of(statement_of(use)):
            while value is not use and isinstance(value, ast.Call):
                if is_method(value) and value.func.attr in KEPT and self._is_method(value):
                    value = value.func.value
                elif self.script.is_call(value, VARIABLE) and value.args:
                    value = value.args[0]
                else:
                    break
            if value is use and is_name(name, use.id):
                return name
        return None

    def _is_passing_by(self, use: ast.Name) -> bool:
        """``x + y``, ``x[0]``, ``x[0] = 1``, ``torch.exp(x)``: what comes of it is another object,
        and nothing keeps this one.
        """
        match parent_of(use):
            case ast.BinOp() | ast.UnaryOp():
                return True
            case ast.Subscript(value=value):
                return value is use
            case ast.Call(func=func, args=args) if use in args:
                return surely(self._keeps_nothing(t) for t in self.script.values(func))
        return False

    def _keeps_nothing(self, called: Thing) -> bool:
        """A function of torch that gives something new, or a loss of torch."""
        if isinstance(called, Ext):
            return is_loss(called.name)
        known = op(called.name) if isinstance(called, Ref) else None
        return known is not None and not may_share(known.name)

    def _uses(self, binding: ast.Name) -> list[ast.Name]:
        return definitions_of(self.script, binding).uses_of(binding)

    def _is_of_a_batch(self, name: ast.Name) -> bool:
        """``for x, y in loader``, ``x, y = next(batches)``, and ``x, y = batch`` of one of these:
        collated for this turn.
        """
        statement = statement_of(name)
        whole = statement.value if isinstance(statement, ast.Assign) else None
        if isinstance(whole, ast.Name):
            made = definitions_at(self.script, whole)
            return all(
                isinstance(d.node, ast.Name)
                and not isinstance(getattr(statement_of(d.node), "value", None), ast.Name)
                and self._uses(d.node) == [whole]
                and self._is_of_a_batch(d.node)
                for d in made
            ) and bool(made)
        return any(
            (use.node is statement or (use.is_next and use.node is whole))
            and not _is_unbatched(loader)
            and self._collates_new(loader, name)
            for loader in self.script.loaders
            for use in loader.uses
        )

    def _collates_new(self, loader: Loader, name: ast.Name) -> bool:
        """Whether a part of a batch is an object that is made for it: by torch, or by
        ``torch.stack()`` in the project's own function.
        """
        collate = loader_argument(loader, "collate_fn")
        if collate is None or collate.values == {NONE}:
            return True
        tuple_ = parent_of(name)
        if not isinstance(tuple_, ast.Tuple) or parent_of(tuple_) is not statement_of(name):
            return False
        place = tuple_.elts.index(name)
        functions = [t.node for t in collate.values if isinstance(t, Func)]
        results = [r for f in functions for r in self.script.analysis(CallGraph).results(f)]
        return len(functions) == len(collate.values) > 0 < len(results) and all(
            isinstance(result, SEQUENCES)
            and len(result.elts) == len(tuple_.elts)
            and self._is_made(result.elts[place])
            for result in results
        )

    def _is_made(self, expr: ast.expr) -> bool:
        """``torch.stack(images)``, or a name that gets nothing else and is handed on at once."""
        if not isinstance(expr, ast.Name):
            return self._is_factory(expr) or self._is_stacked(expr)
        values = [(d.node, bound_to(d.node)) for d in definitions_at(self.script, expr)]
        return surely(
            isinstance(node, ast.Name)
            and whole
            and value is not None
            and (self._is_factory(value) or self._is_stacked(value))
            and self._uses(node) == [expr]
            for node, (value, whole) in values
        )

    def _is_stacked(self, expr: ast.expr) -> bool:
        return surely_named(self.script.called(expr), Ref, STACKS)

    def _is_given_new(self, name: ast.Name) -> bool:
        statement = parent_of(name)
        if not isinstance(statement, ast.Assign):
            return False
        value = statement.value
        return self.is_new(value) or self.script.called(value) == {Ref(VARIABLE)}

    # ------------------------------------------------------------------------------- one expression
    def is_new(self, expr: ast.expr) -> bool:
        """A tensor without a graph that nothing but this expression holds:
        ``torch.zeros(3).cuda()``.
        """
        if self._is_factory(expr) or (_is_passing(expr) and self._is_method(expr)):
            return True
        if is_method(expr) and self._is_method(expr):
            plain = all(self._is_plain(v) for v in self._arguments(expr))
            if expr.func.attr in KEPT:
                return plain and self.is_new(expr.func.value)
            return expr.func.attr in NEW and plain and self._has_no_graph(expr.func.value)
        if self._is_computed(expr) or self._is_part(expr):
            return True
        if is_unary(expr, ast.USub):
            return self._has_no_graph(expr.operand)
        if isinstance(expr, ast.BinOp):
            sides = (expr.left, expr.right)
            return any(self._are_tensors(side) for side in sides) and all(
                self._is_plain(self.script.values(side)) or self._has_no_graph(side)
                for side in sides
            )
        return False

    def _has_no_graph(self, expr: ast.expr) -> bool:
        if self._is_factory(expr) or (_is_passing(expr) and self._is_method(expr)):
            return True
        if is_method(expr) and expr.func.attr in NEW | KEPT and self._is_method(expr):
            if all(self._is_plain(v) for v in self._arguments(expr)) and self._has_no_graph(
                expr.func.value
            ):
                return True
        if self._is_computed(expr) or self._is_part(expr):
            return True
        found = self.script.values(expr)
        return surely(isinstance(t, Tensor) and _is_clean(t) for t in found) and not self._is_asked(
            found
        )

    def _is_computed(self, expr: ast.expr) -> bool:
        """``torch.atan2(x, y)``: what a function of torch makes of tensors without a graph, in
        memory of its own.
        """
        if not isinstance(expr, ast.Call) or may_give(expr, "out"):
            return False
        called = self.script.called(expr)
        names = library_names(called)
        if len(names) != len(called) or not names:
            return False
        if any(op(name) is None or may_share(name) for name in names):
            return False
        tensors = [a for a in expr.args if not self._is_number(a)]
        return surely(self._has_no_graph(a) for a in tensors)

    def _is_part(self, expr: ast.expr) -> bool:
        """``x[2:5]`` of a tensor without a graph: an object of its own."""
        return (
            isinstance(expr, ast.Subscript)
            and self._are_tensors(expr.value)
            and self._has_no_graph(expr.value)
        )

    def _is_number(self, expr: ast.expr) -> bool:
        found = self.script.values(expr)
        return bool(found) and not any_of(found, Tensor, Unknown, Seq)

    def _are_tensors(self, expr: ast.expr) -> bool:
        return self.script.must_be(expr, Tensor)

    def _is_factory(self, expr: ast.expr) -> bool:
        """``torch.zeros(3)``, ``x.new(3)``, ``torch.cuda.FloatTensor(array)``: made without a
        graph, whatever it is made of.
        """
        if not isinstance(expr, ast.Call) or may_give(expr, "requires_grad", "out"):
            return False
        if is_attribute(expr.func, *MAKING):
            return self._is_method(expr)
        callees = self.script.called(expr)
        names = [t.name for t in callees if isinstance(t, Ref)]
        if not names or len(names) != len(callees):
            return False
        made = {f"torch.{n}" for n in (*FACTORIES, *LEGACY_TENSORS, "from_numpy")} | {
            f"torch.cuda.{n}" for n in LEGACY_TENSORS
        }
        return all(n in made for n in names)

    def _is_method(self, expr: ast.expr) -> bool:
        """``x.name(...)`` or ``x.name`` of something that is certainly a tensor."""
        attribute = expr.func if isinstance(expr, ast.Call) else expr
        assert isinstance(attribute, ast.Attribute)
        return self._are_tensors(attribute.value)

    def _arguments(self, call: ast.Call) -> Iterator[Values]:
        for arg in call.args:
            yield self.script.values(unstarred(arg))
        for keyword in call.keywords:
            yield self.script.values(keyword.value)

    def _is_plain(self, found: Values) -> bool:
        """Certainly nothing with a graph: numbers, sizes, types, devices."""
        return not any(
            isinstance(t, Unknown) or (isinstance(t, Tensor) and not _is_clean(t)) for t in found
        ) and not self._is_asked(found)

    # ----------------------------------------------------------------------------- the whole script
    def _is_asked(self, found: Values) -> bool:
        """Somewhere gradients are asked for a tensor that may be among these, and is no parameter
        and no result of a model.
        """
        return any(_may_share(found, asked) for asked in self._asked)

    @cached_property
    def _asked(self) -> list[Values]:
        """What gradients are asked for."""
        found: list[Values] = []
        for node in self._nodes():
            if isinstance(node, ast.Call):
                if is_attribute(node.func, *ASKING) and self._may_be_meant(node.func.value):
                    found.append(self.script.values(node.func.value))
                if self._makes_leaf(node):
                    found.append(self.script.values(node))
            elif (
                isinstance(node, ast.Attribute)
                and is_stored(node)
                and node.attr in ("requires_grad", "grad")
                and self._may_be_meant(node.value)
            ):
                found.append(self.script.values(node.value))
        return found

    def _makes_leaf(self, call: ast.Call) -> bool:
        """``torch.zeros(3, requires_grad=True)``; parameters are told apart by what they are."""
        names = self.script.library_functions(call)
        given = [k.value for k in call.keywords if k.arg == "requires_grad"]
        if names == {"torch.autograd.Variable"}:
            given += call.args[1:2]
        elif any(n.endswith((".Parameter", ".Buffer")) for n in names):
            return False
        return any(self.script.constant(v) is not False for v in given) and any(
            n.startswith("torch.") for n in names
        )

    def _is_told_apart(self, data: ast.expr) -> bool:
        """Somewhere a tensor that may be this one is changed in a way that shows on one object
        only, or two objects are compared.
        """
        call = parent_of(data)
        mine = self.script.values(data)
        mine |= self.script.values(call) if isinstance(call, ast.Call) else frozenset()
        return self._is_asked(mine) or any(_may_share(mine, told) for told in self._told_apart)

    @cached_property
    def _told_apart(self) -> list[Values]:
        """What is changed in such a way, or compared."""
        return [
            self.script.values(told)
            for node in self._nodes()
            if (told := self._told(node)) is not None and self._may_be_meant(told)
        ]

    def _told(self, node: ast.AST) -> ast.expr | None:
        """The expression whose object something is done to that shows on it alone."""
        if is_method(node):
            name, receiver = node.func.attr, node.func.value
            grows = is_in_place(name) and any(self._has_graph(v) for v in self._arguments(node))
            return receiver if grows or (reshapes(name) and not _is_passing(receiver)) else None
        if isinstance(node, ast.Attribute) and is_stored(node):
            return node.value
        if isinstance(node, ast.Subscript) and is_stored(node):
            return node.value if self._stored_has_graph(node) else None
        if isinstance(node, ast.AugAssign) and not isinstance(node.target, ast.Subscript):
            return node.target if self._has_graph(self.script.values(node.value)) else None
        if isinstance(node, ast.Compare) and any_of(node.ops, IDENTITY):
            both = all(self._may_be_tensor(side) for side in (node.left, *node.comparators))
            return node.left if both else None
        return None

    def _nodes(self) -> Iterator[ast.AST]:
        for source in self.script.sources:
            yield from source.nodes

    def _may_be_meant(self, expr: ast.expr) -> bool:
        """Whether ``expr`` may be a tensor that is no parameter and no result of a model."""
        found = self.script.values(expr)
        if self.script.unread and not found:
            return True
        return any(
            (isinstance(t, Unknown) and t.reason is not Reason.UNDEFINED)
            or (isinstance(t, Tensor) and _is_clean(t))
            for t in found
        )

    def _may_be_tensor(self, expr: ast.expr) -> bool:
        return any(_is_clean(t) for t in of_kind(self.script.values(expr), Tensor))

    def _stored_has_graph(self, target: ast.AST) -> bool:
        for outer in ancestors(target):
            if isinstance(outer, ASSIGNMENTS):
                return outer.value is not None and self._has_graph(self.script.values(outer.value))
            if isinstance(outer, ast.stmt):
                return True
        return True

    def _has_graph(self, found: Values) -> bool:
        return any(
            isinstance(t, (Unknown, Seq)) or (isinstance(t, Tensor) and (t.grad or bool(t.param)))
            for t in found
        )


def _root(expr: ast.expr) -> ast.expr:
    """``x`` of ``x.cuda().float()``."""
    while isinstance(expr, (ast.Call, ast.Attribute)):
        expr = expr.func if isinstance(expr, ast.Call) else expr.value
    return expr


def _may_share(one: Values, other: Values) -> bool:
    """Whether two values may be the same tensor: they are alike in all that is known of them, or of
    one nothing is known.
    """
    return bool(one & other) or any(
        t.reason is not Reason.UNDEFINED for t in of_kind(other, Unknown)
    )


def _is_clean(tensor: Tensor) -> bool:
    return not (tensor.grad or tensor.models or tensor.param or tensor.loss or tensor.passes)


def _is_passing(expr: ast.expr) -> bool:
    """``x.data``: an object of its own, which is gone after the expression."""
    if isinstance(expr, ast.Attribute):
        return expr.attr == "data"
    return is_method(expr, "detach")


def _is_unbatched(loader: Loader) -> bool:
    """It hands on items of the dataset as they are: with ``batch_size=None``."""
    size = loader_argument(loader, "batch_size")
    return size is not None and NONE in size.values


def _is_size(use: ast.Name) -> bool:
    """``x.size()``, ``x.shape``: what keeps no tensor."""
    attribute = parent_of(use)
    return is_attribute(attribute, *SIZES)
