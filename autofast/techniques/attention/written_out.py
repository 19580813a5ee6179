"""Attention that is written out: ``softmax(q @ k.transpose(-2, -1) * scale + mask) @ v``, in one
expression or over several statements.

It is read from the softmax: down to the scores, up to the product with the values. Variables on the
way are looked through where nothing else reads them; the statements that give them their values go.

Calls of ``nn.MultiheadAttention`` that drop the weights, which it writes attention out for
unless it is told not to.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from autofast.facts.dimensions import dimension_count
from autofast.facts.dropped_results import DroppedResults
from autofast.flow.defuse import Definition, DefUse
from autofast.flow.program import definitions_of
from autofast.model.calls import is_method, put_into
from autofast.model.script import Script
from autofast.model.several import wordset
from autofast.model.source import (
    Nodes,
    at,
    block_of,
    function_of,
    line_of,
    live_nodes,
    parent_of,
    statement_of,
)
from autofast.model.syntax import VARIABLES, is_attribute
from autofast.model.values import (
    Const,
    Ext,
    Tensor,
    are_numbers,
    const,
    of_kind,
    one,
    surely_named,
)
from autofast.rule import Effect, Refusal
from autofast.techniques.attention.products import factors, of_scores, of_values

SOFTMAX = wordset("torch.softmax torch.nn.functional.softmax")
SINGLE = wordset("torch.float32 torch.float")
CALL = "scaled_dot_product_attention"
DROPOUT = "torch.nn.functional.dropout"
WHERE = "torch.where"
FILLS = wordset("masked_fill masked_fill_")
SHAPES = wordset("view reshape unsqueeze bool byte to type expand contiguous cuda")


@dataclass(frozen=True)
class Mask:
    """What scores are masked by: replaced by ``value`` where ``expr`` holds (``kept``: where it
    does not), or added to without a ``value``.

    ``unless_none`` is the variable of ``if mask is not None:`` around it, ``fill`` the statement
    below another condition that writes to the scores in place.
    """

    expr: ast.expr
    value: ast.expr | None = None
    kept: bool = False
    unless_none: ast.expr | None = None
    fill: ast.stmt | None = None


@dataclass(frozen=True)
class Scale:
    """``scores * by``, or ``scores / by`` where ``divides``."""

    by: ast.expr
    divides: bool


@dataclass
class Attention:
    """One place; ``product`` is the product with the values, ``statements`` are those that only
    lead to it.
    """

    softmax: ast.Call
    query: ast.expr = field(init=False)
    key: ast.expr = field(init=False)
    value: ast.expr = field(init=False)
    product: ast.expr = field(init=False)
    scale: Scale | None = None
    scales_mask: bool = False
    mask: Mask | None = None
    dropout: ast.Call | None = None
    may_drop_nothing: bool = False  # the dropout may be None
    unread: list[ast.expr] = field(default_factory=list)  # weights that are returned for nobody
    statements: list[ast.stmt] = field(default_factory=list)
    turns: dict[str, str] = field(default_factory=dict)  # of query, key, value and product


def softmaxes(script: Script) -> Iterator[tuple[ast.Call, ast.expr]]:
    """The calls of softmax over the last dimension, each with what it is taken of."""
    for source in script.sources:
        if "softmax" not in source.text.lower():
            continue
        for node in live_nodes(source.tree):
            if isinstance(node, ast.Call) and (given := _softmax(script, node)) is not None:
                yield node, given


def _softmax(script: Script, call: ast.Call) -> ast.expr | None:
    """What the softmax over the last dimension is taken of; None where the call is none."""
    args, keywords = list(call.args), {k.arg: k.value for k in call.keywords}
    layers = script.called(call)
    if surely_named(layers, Ext, "torch.nn.Softmax"):
        dims = {const(t.args.get(0, "dim")) for t in layers if isinstance(t, Ext)}
        dim = one(dims)
        return (
            args[0] if len(args) == 1 and not keywords and _is_last(script, args[0], dim) else None
        )
    if is_method(call, "softmax"):
        if script.must_be(call.func.value, Tensor):
            args.insert(0, call.func.value)
        elif script.library_function(call) not in SOFTMAX:
            return None
    elif script.library_function(call) not in SOFTMAX:
        return None
    if (dtype := keywords.get("dtype")) is not None and script.library_name(dtype) in SINGLE:
        del keywords["dtype"]  # as the call itself computes
    axis = args[1] if len(args) == 2 else keywords.pop("dim", None)
    if axis is None or len(args) > 2 or not args or keywords:
        return None
    return args[0] if _is_last(script, args[0], script.constant(axis)) else None


def _is_last(script: Script, expr: ast.expr, dim: object) -> bool:
    if dim == -1:
        return True
    deep = dimension_count(script, expr)
    if deep is None:
        pair = factors(script, expr)
        deep = dimension_count(script, pair[0]) if pair else None
    return deep is not None and dim == deep - 1


def attention(script: Script, softmax: ast.Call, given: ast.expr) -> Attention | None:
    """The attention around a softmax; None where it is another softmax.

    Raises :class:`Refusal` where it is attention, and something keeps it from being one call.
    """
    if any(_is_there(n) for n in ast.walk(function_of(softmax))):
        return None  # the script has the call, and a way for where there is none
    reader = _Reader(script, Attention(softmax))
    if not reader.scores(given) or not reader.weights(softmax):
        return None
    return reader.found


def _is_there(node: ast.AST) -> bool:
    return isinstance(node, VARIABLES) and CALL in (
        getattr(node, "attr", ""),
        getattr(node, "id", ""),
    )


def _cast_back(weights: ast.expr) -> ast.Call | None:
    """``weights.type_as(q)``, ``weights.to(q.dtype)``: the dtype that the call gives anyway."""
    method = parent_of(weights)
    match parent_of(method) if is_attribute(method) else None:
        case (
            ast.Call(func=ast.Attribute(attr="type_as"), args=[_], keywords=[])
            | ast.Call(
                func=ast.Attribute(attr="to"), args=[ast.Attribute(attr="dtype")], keywords=[]
            )
        ) as call:
            return call
    return None


def _user(node: ast.expr) -> ast.AST | None:
    """What a value is an operand of, also in a list of them: ``einsum("...", [weights, v])``."""
    outer = parent_of(node)
    return parent_of(outer) if isinstance(outer, ast.List) else outer


def _reshapes(statement: ast.stmt, mask: ast.expr) -> bool:
    """``mask = mask.unsqueeze(1)``: no None after it."""
    match statement, mask:
        case (
            ast.Assign(
                targets=[ast.Name(id=target)],
                value=ast.Call(func=ast.Attribute(value=ast.Name(id=of), attr=attr)),
            ),
            ast.Name(id=name),
        ):
            return target == of == name and attr in SHAPES
    return False


class _Reader:
    def __init__(self, script: Script, found: Attention):
        self.script, self.found = script, found
        self.flow: DefUse = definitions_of(script, found.softmax)
        # reads behind a condition in which the variable is set anew
        self.behind: Nodes = set()

    # --------------------------------------------------------------------------- down to the scores
    def scores(self, expr: ast.expr) -> bool:
        """Whether an expression is the scores of attention; what is done to them on the way is
        noted.
        """
        if (pair := of_scores(self.script, expr)) is not None:
            self.found.query, self.found.key = self._scaled(pair.left), pair.right
            self.found.turns |= {"q": pair.turns[0], "k": pair.turns[1]}
            return True
        match expr:
            case ast.Name():
                return self._variable(expr)
            case ast.Call(func=ast.Attribute(value=inner, attr="float"), args=[], keywords=[]):
                return self.scores(inner)  # as the call itself computes
            case ast.Call(
                func=ast.Attribute(value=inner, attr=attr), args=[where, value], keywords=[]
            ) if attr in FILLS:
                return self._masked(inner, Mask(where, value))
            case ast.Call(func=func, args=[where, a, b], keywords=[]) if (
                self.script.library_name(func) == WHERE
            ):
                return self._masked(a, Mask(where, b, kept=True)) or self._masked(b, Mask(where, a))
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._masked(left, Mask(right)) or self._masked(right, Mask(left))
            case ast.BinOp(left=left, op=ast.Mult(), right=right) if are_numbers(
                self.script.values(left)
            ):
                return self._scale(right, Scale(left, False))
            case ast.BinOp(left=left, op=(ast.Mult() | ast.Div()) as op, right=right) if (
                are_numbers(self.script.values(right))
            ):
                return self._scale(left, Scale(right, isinstance(op, ast.Div)))
        return False

    def _variable(self, use: ast.Name) -> bool:
        """What a variable holds, where nothing else reads it: the statement that sets it goes."""
        found = sorted(self.flow.reaching(use), key=lambda d: line_of(d.node))
        if len(found) == 2:
            return self._set_anew(use, *found)
        if len(found) != 1:
            return False
        (made,) = found
        filled, mask = self._filled(made, use)
        self.behind |= filled
        if not self._is_read_by(made, use):
            return False
        if made.value is None or made.statement is None or not self._tried(made.value):
            return False
        self.found.statements.append(made.statement)
        if mask is not None:
            fill = statement_of(mask.expr)
            self.found.statements += [fill] if mask.fill is None else []
            self._mask_by(mask)
        return True

    def _filled(self, made: Definition, use: ast.Name) -> tuple[Nodes, Mask | None]:
        """``scores`` of the ``scores.masked_fill_(...)`` on the way to ``use``, and the mask."""
        for name in of_kind(self.flow.uses(made), ast.Name):
            fill = statement_of(name)
            match fill:
                case ast.Expr(
                    value=ast.Call(
                        func=ast.Attribute(value=target, attr="masked_fill_"), args=[where, value]
                    )
                ) if target is name and made.statement is not None:
                    whole: ast.stmt = fill
                    mask = Mask(where, value)
                    match parent_of(fill):
                        case ast.If(orelse=[]) as gate:
                            whole, mask = gate, Mask(where, value, fill=fill)
                    here = block_of(made.statement)
                    ways = [here.index(s) if s in here else -1 for s in (whole, statement_of(use))]
                    if 0 <= ways[0] < ways[1]:
                        return {name}, mask
        return set(), None

    def _set_anew(self, use: ast.Name, first: Definition, then: Definition) -> bool:
        """``if mask is not None: scores = scores.masked_fill(...)``."""
        guard = parent_of(then.statement) if then.statement is not None else None
        match guard:
            case ast.If(
                test=ast.Compare(left=tested, ops=[ast.IsNot()], comparators=[ast.Constant(None)]),
                body=[*before, only],
                orelse=[],
            ) if (
                only is then.statement
                and self._is_read_by(then, use)
                and all(_reshapes(s, tested) for s in before)
            ):
                self.behind.add(use)
            case _:
                return False
        if then.value is None or not self._tried(then.value) or self.found.mask is None:
            return False
        self.found.mask = replace(self.found.mask, unless_none=tested)
        self.found.statements.append(only if before else guard)  # `mask = mask.unsqueeze(1)` stays
        return True

    def _is_read_by(self, definition: Definition, read: ast.Name) -> bool:
        """Whether it is ``name = value``, and nothing but ``read`` may read it."""
        statement = definition.statement
        return (
            isinstance(statement, ast.Assign)
            and statement.targets == [definition.node]
            and set(self.flow.uses(definition)) - self.behind == {read} - self.behind
        )

    def _masked(self, scores: ast.expr, mask: Mask) -> bool:
        if not self._tried(scores):
            return False
        self._mask_by(mask)
        return True

    def _mask_by(self, mask: Mask) -> None:
        if self.found.mask is not None:
            lines = f"{at(self.found.mask.expr)} and {at(mask.expr)}"
            raise Refusal(f"two masks are applied ({lines})")
        self.found.mask = mask

    def _scale(self, scores: ast.expr, scale: Scale) -> bool:
        if not self._tried(scores):
            return False
        self.found.scales_mask = self.found.mask is not None
        if self.found.scale is not None:
            raise Refusal(f"the scores are scaled twice ({at(scale.by)})")
        self.found.scale = scale
        return True

    def _tried(self, expr: ast.expr) -> bool:
        """:meth:`scores`, without a trace where it fails."""
        before = list(self.found.statements)
        if self.scores(expr):
            return True
        self.found.statements[:] = before
        return False

    def _scaled(self, query: ast.expr) -> ast.expr:
        """The query without a factor that is written at it."""
        match query:
            case ast.BinOp(left=left, op=(ast.Mult() | ast.Div()) as op, right=right) if (
                are_numbers(self.script.values(right))
            ):
                self.found.scale = Scale(right, isinstance(op, ast.Div))
                return left
        return query

    # ----------------------------------------------------------------------------- up to the values
    def weights(self, node: ast.expr) -> bool:
        """Whether the weights are multiplied with values; what is done to them on the way is
        noted.
        """
        outer = _user(node)
        if isinstance(outer, ast.expr) and (pair := of_values(self.script, outer)) is not None:
            if pair.left is node:
                self.found.product, self.found.value = outer, pair.right
                self.found.turns |= {"v": pair.turns[1], "product": pair.turns[2]}
                return True
            return False
        if (back := _cast_back(node)) is not None:
            return self.weights(back)
        if isinstance(outer, ast.Call) and self._is_dropout(outer, node):
            if self.found.dropout is not None:
                raise Refusal("is a second dropout", outer)
            self.found.dropout = outer
            return self.weights(outer)
        target = put_into(node)
        return isinstance(target, ast.Name) and self._kept(target)

    def _kept(self, target: ast.Name) -> bool:
        """The same for weights that are kept in a variable."""
        guarded, uses = self._guarded(target, self.flow.uses_of(target))
        unread = [u for u in uses if self.script.analysis(DroppedResults).is_dropped(u)]
        uses = [u for u in uses if u not in unread]
        if len(uses) == 1 and len(self.flow.reaching(uses[0])) == 1 + bool(guarded):
            self.found.statements += [statement_of(target), *guarded]
            self.found.unread += unread
            return self.weights(uses[0])
        for use in uses:
            if self._leads_to_values(use):
                other = next((u for u in uses if u is not use), use)
                raise Refusal("uses the attention weights, too", other)
        return False

    def _guarded(
        self, target: ast.Name, uses: list[ast.Name]
    ) -> tuple[list[ast.stmt], list[ast.Name]]:
        """``if dropout is not None: weights = dropout(weights)``, and the uses behind it."""
        for use in uses:
            match parent_of(statement_of(use)):
                case (
                    ast.If(
                        test=ast.Compare(
                            left=ast.Name(id=tested),
                            ops=[ast.IsNot()],
                            comparators=[ast.Constant(None)],
                        )
                        | ast.Name(id=tested),
                        body=[
                            ast.Assign(
                                targets=[ast.Name(id=name) as again],
                                value=ast.Call(
                                    func=ast.Name(id=layer), args=[given], keywords=[]
                                ) as call,
                            )
                        ],
                        orelse=[],
                    ) as guard
                ) if name == target.id and layer == tested and given is use:
                    layers = self.script.called(call) - {Const(None)}
                    later = self.flow.uses_of(again)
                    if surely_named(layers, Ext, "torch.nn.Dropout") and (
                        {u for u in uses if u is not use} == set(later)
                    ):
                        self.found.dropout, self.found.may_drop_nothing = call, True
                        return [guard], later
        return [], uses

    def _leads_to_values(self, use: ast.expr) -> bool:
        outer = _user(use)
        if isinstance(outer, ast.Call) and self._is_dropout(outer, use):
            use, outer = outer, _user(outer)
        pair = of_values(self.script, outer) if isinstance(outer, ast.expr) else None
        return pair is not None and pair.left is use

    def _is_dropout(self, call: ast.Call, node: ast.expr) -> bool:
        if not call.args or call.args[0] is not node:
            return False
        layers = self.script.called(call)
        is_layer = surely_named(layers, Ext, "torch.nn.Dropout")
        return is_layer or self.script.is_call(call, DROPOUT)


LAYER = "torch.nn.MultiheadAttention"
PLACE = 4  # need_weights, in forward(query, key, value, key_padding_mask, need_weights, ...)


def drops_weights(script: Script) -> Iterator[tuple[ast.Call, Effect]]:
    """The calls that ask for weights and drop them; ``sampling`` where there is dropout, which is
    drawn in another order.
    """
    for site in script.log.of("forward"):
        call = site.call
        if call is None or len(call.args) > PLACE:
            continue
        layers = script.called(call)
        if not surely_named(layers, Ext, LAYER):
            continue
        given = {k.arg for k in call.keywords}
        # With is_causal=True, the layer without weights looks at no mask.
        if None in given or {"need_weights", "is_causal"} & given or not _drops(script, call):
            continue
        none = all(
            t.args.get(2, "dropout") <= {Const(0), Const(0.0)} for t in layers if isinstance(t, Ext)
        )
        yield call, Effect.ROUNDING if none else Effect.SAMPLING


def _drops(script: Script, call: ast.Call) -> bool:
    """``layer(...)[0]``, ``x, _ = layer(...)`` where nothing reads ``_``."""
    match parent_of(call):
        case ast.Subscript(value=value, slice=index):
            return value is call and script.constant(index) == 0
        case ast.Assign(targets=[ast.Tuple(elts=[_, ast.Name() as second])], value=value) if (
            value is call
        ):
            return not definitions_of(script, second).uses_of(second)
    return False
