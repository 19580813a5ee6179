"""What a loss is of the samples of its batch: their mean, or their sum.

Only then the losses of several batches make up that of one large batch. :class:`Losses` goes back
from the loss to the batch through operations that keep the samples apart; whatever it does not know
is a reason to refuse: a loss that compares samples with each other (contrastive, ranking in the
batch), one that counts tokens or classes (``ignore_index``, ``weight``), a square root of a mean.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace

from autofast.facts.batch.calls import TorchCalls
from autofast.facts.batch.kinds import EACH, FREE, REDUCED, Kind, elementwise, unknown_value, words
from autofast.facts.batch.losses_of_torch import LAYERS, loss_called
from autofast.facts.batch.samples import Activation, Shape, is_all, is_layer, joined
from autofast.flow.callgraph import Callee, CallGraph, code_of
from autofast.flow.defuse import Definition, taken_by
from autofast.flow.graph import Function
from autofast.flow.loops import loops_around
from autofast.flow.program import Flow
from autofast.flow.scopes import defaults, owner
from autofast.model.calls import arguments_of, has_unpacking, is_name, items_of, unstarred
from autofast.model.kinds import is_loss, is_module
from autofast.model.names import ONE_TENSOR, last_part
from autofast.model.script import Script
from autofast.model.several import of_kind, surely, wordset
from autofast.model.source import Nodes, at, function_of, line_of, nodes_in, statement_of
from autofast.model.syntax import is_attribute, is_constant, is_text
from autofast.model.tensors import tensors_in
from autofast.model.values import (
    Bound,
    Dict,
    Ext,
    Func,
    Inst,
    Method,
    Ref,
    Seq,
    Tensor,
    Thing,
    any_of,
    are_parameters,
)
from autofast.rule import Refusal

OUTPUTS = wordset("logits last_hidden_state sample pooler_output")


class Losses(TorchCalls):
    """Asks for the losses of one training loop. ``whole``: batches may become smaller, so that
    nothing may depend on their size.
    """

    def __init__(self, script: Script, whole: bool):
        super().__init__(script, whole)
        self.flow = script.analysis(Flow)
        self._open: Nodes = set()  # definitions whose value is being asked for
        # Those of them that were asked for again meanwhile: the answer holds inside them only.
        self._met: Nodes = set()
        self._calls: list[Function] = []
        self._known: dict[tuple[int, int], tuple[ast.expr, Activation, Shape | Refusal]] = {}

    def of(self, expr: ast.expr, run: Activation) -> Kind:
        """``MEAN``, ``SUM`` or ``FREE``; raises :class:`Refusal` for everything else."""
        kind = self.shape(expr, run)
        if isinstance(kind, tuple) or kind not in REDUCED | {Kind.FREE}:
            raise Refusal(
                f"`{words(expr)}` on {at(expr)} is neither a mean nor a sum over the samples of the batch, as far as can be seen"
            )
        return kind

    # ---------------------------------------------------------------------------------- expressions
    def shape(self, expr: ast.expr, run: Activation) -> Shape:
        """What an expression is. Each is asked for once: code that mentions everything twice would
        take 2 ** lines otherwise.
        """
        key = (id(expr), id(run))
        if key not in self._known:
            met, self._met = self._met, set()
            answer: Shape | Refusal
            try:
                answer = self._shape(expr, run)
            except Refusal as refused:
                answer = refused
            inside = self._met & self._open
            self._met = met | inside
            if inside:
                return _given(answer)
            # With its keys, whose ids are theirs as long as they live.
            self._known[key] = (expr, run, answer)
        return _given(self._known[key][2])

    def _shape(self, expr: ast.expr, run: Activation) -> Shape:
        match expr:
            case ast.Constant():
                return Kind.NONE if expr.value is None or expr.value in (0, 0.0) else Kind.FREE
            case ast.Name():
                return self._name(expr, run)
            case ast.Tuple() | ast.List():
                return tuple(self.shape(e, run) for e in expr.elts)
            case ast.Call():
                return self._call(expr, run)
            case ast.BinOp():
                return self._binary(expr, run)
            case ast.UnaryOp(op=ast.USub() | ast.UAdd()):
                return self.shape(expr.operand, run)
            case ast.Attribute():
                return self._attribute(expr, run)
            case ast.Subscript():
                return self._subscript(expr, run)
            case ast.IfExp():
                return joined([self.shape(expr.body, run), self.shape(expr.orelse, run)], expr)
            case ast.ListComp() | ast.GeneratorExp() | ast.DictComp() | ast.Dict():
                return self._display(expr, run)
            case ast.NamedExpr():
                return self.shape(expr.value, run)
            case ast.Compare():
                found = [self.shape(e, run) for e in (expr.left, *expr.comparators)]
                if not any_of(found, tuple):
                    return elementwise((k for k in found if not isinstance(k, tuple)), expr)
        if self._is_free(expr):
            return Kind.FREE
        raise unknown_value(expr)

    def _display(self, expr: ast.expr, run: Activation) -> Shape:
        """``{k: v.to(device) for k, v in batch.items()}``, ``[t.to(device) for t in batch]``."""
        if isinstance(expr, ast.Dict):
            kinds = [self.shape(v, run) for v in expr.values]
        else:
            assert isinstance(expr, (ast.ListComp, ast.GeneratorExp, ast.DictComp))
            local = dict(run.local)
            for part in expr.generators:
                kind = self.shape(part.iter, replace(run, local=local))
                if not isinstance(kind, Kind) or kind not in FREE | {Kind.ROWS} or part.ifs:
                    raise unknown_value(expr)
                local.update((n.id, kind) for n in nodes_in(part.target, ast.Name))
            kinds = [
                self.shape(
                    expr.value if isinstance(expr, ast.DictComp) else expr.elt,
                    replace(run, local=local),
                )
            ]
        for kind in (Kind.ROWS, Kind.FREE):
            if surely(k is kind for k in kinds):
                return kind
        raise unknown_value(expr)

    # ---------------------------------------------------------------------------------------- names
    def _name(self, expr: ast.Name, run: Activation) -> Shape:
        """What the definitions that may reach this place have put into the variable."""
        if expr.id in run.local:
            return run.local[expr.id]
        kinds: list[Shape] = []
        found = self._made_in(expr, run)
        if not found:
            kinds.append(self._from_outside(expr))
        for definition in found:
            if definition.node in self._open:
                self._met.add(definition.node)
                continue  # defined by itself, in a loop: what else it is made of decides
            self._open.add(definition.node)
            try:
                kinds.append(self._defined(definition, expr, run))
            finally:
                self._open.discard(definition.node)
        return joined(kinds, expr)

    def _made_in(self, expr: ast.Name, run: Activation) -> list[Definition]:
        """The definitions of this run that may reach a place, the last first; none of a variable
        that is made before it.

        Raises :class:`Refusal` where the value may be that of the batch before.
        """
        if owner(expr) is not run.function:
            return []
        found = [
            d
            for d in self.flow.reaching(expr)
            if d.is_parameter
            or self.script.reached(statement_of(d.node))
            or d.statement is run.loop
        ]
        if run.loop is not None:
            here = [d for d in found if run.loop in loops_around(d.node)]
            if here and (
                len(here) < len(found) or self.flow.definitions(expr).may_be_unbound(expr)
            ):
                raise Refusal(f"`{expr.id}` on {at(expr)} is carried from batch to batch")
            found = here
        return sorted(
            found, key=lambda d: (line_of(d.node), getattr(d.node, "col_offset", 0)), reverse=True
        )

    def _from_outside(self, expr: ast.Name) -> Kind:
        if self._is_free(expr):
            return Kind.FREE
        raise unknown_value(expr)

    def _defined(self, definition: Definition, expr: ast.Name, run: Activation) -> Shape:
        node, statement = definition.node, definition.statement
        if statement is None:  # a parameter
            if definition.name in run.given:
                return run.given[definition.name]()
            return self._from_outside(expr)
        if not isinstance(node, ast.Name):
            raise unknown_value(expr)
        if isinstance(statement, ast.AugAssign) and statement.target is node:
            more = self.shape(statement.value, run)
            return self._combined(statement.op, self.shape(node, run), more, statement)
        return self._bound(node, statement, run)

    def _bound(self, node: ast.Name, statement: ast.stmt, run: Activation) -> Shape:
        """What an assignment or a loop puts into a variable."""
        if statement is run.loop:
            if node.id in run.batch:
                return Kind.ROWS
            raise unknown_value(node)
        taker, way = taken_by(node)
        match taker:
            case (
                ast.Assign(value=ast.expr() as value)
                | ast.AnnAssign(value=ast.expr() as value)
                | ast.NamedExpr(value=value)
            ) if -1 not in way:
                kind = self.shape(value, run)
                for place in way:
                    kind = self._part(kind, place, node)
                return kind
            case ast.For(iter=over):
                kind = self.shape(over, run)
                if isinstance(kind, tuple) and not way:
                    return joined(list(kind), node)
                if kind is Kind.ROWS and self._container(over) is True:
                    return kind
        raise unknown_value(node)

    def _part(self, kind: Shape, index: int, node: ast.AST) -> Shape:
        if isinstance(kind, tuple):
            if index >= len(kind):
                raise unknown_value(node)
            return kind[index]
        if kind in FREE | {Kind.ROWS, Kind.TURNED, Kind.OPAQUE}:
            return kind
        raise unknown_value(node)

    # ---------------------------------------------------------------------------------------- parts
    def _attribute(self, expr: ast.Attribute, run: Activation) -> Shape:
        if self._is_free(expr):
            return Kind.FREE
        if is_name(expr.value, "self", "cls"):
            raise unknown_value(expr)
        kind = self.shape(expr.value, run)
        if expr.attr in ("data",) and kind in EACH:
            return kind
        if kind is Kind.OPAQUE and expr.attr in OUTPUTS:
            return kind
        raise unknown_value(expr)

    def _subscript(self, expr: ast.Subscript, run: Activation) -> Shape:
        if is_attribute(expr.value, "shape") and self.script.constant(expr.slice) == 0:
            if self.shape(expr.value.value, run) in EACH:
                return Kind.SIZE
        if self._is_free(expr):
            return Kind.FREE
        kind = self.shape(expr.value, run)
        if isinstance(kind, tuple):
            if not isinstance(expr.slice, ast.Constant):
                index = self.script.constant(expr.slice)
            else:
                index = expr.slice.value
            if isinstance(index, int) and -len(kind) <= index < len(kind):
                return kind[index]
            raise unknown_value(expr)
        if kind in (Kind.ROWS, Kind.TURNED, Kind.OPAQUE):
            if self._container(expr.value) or is_text(expr.slice):
                return kind
            parts = items_of(expr.slice)
            if is_all(parts[0]):
                rest = parts[1:]
                if all(map(self._is_fixed, rest)):
                    return Kind.COLUMN if any(is_constant(r, None) for r in rest) else kind
        if kind in FREE:  # what is picked for each sample is a row of its own
            parts = items_of(expr.slice)
            kinds = [self.shape(p, run) for p in parts if not isinstance(p, ast.Slice)]
            if not any_of(kinds, tuple):
                return elementwise([kind, *of_kind(kinds, Kind)], expr)
        raise unknown_value(expr)

    def _is_fixed(self, index: ast.expr) -> bool:
        """A slice or a number that is the same for every batch."""
        return isinstance(index, (ast.Slice, ast.Constant, ast.UnaryOp)) or isinstance(
            self.script.constant(index), int
        )

    # ----------------------------------------------------------------------------------- arithmetic
    def _binary(self, expr: ast.BinOp, run: Activation) -> Shape:
        return self._combined(
            expr.op, self.shape(expr.left, run), self.shape(expr.right, run), expr
        )

    # ---------------------------------------------------------------------------------------- calls
    def _call(self, expr: ast.Call, run: Activation) -> Shape:
        if has_unpacking(expr):
            if not self._is_model_given_rows(expr, run):
                raise unknown_value(expr)
            return joined([self._output(t, expr) for t in self.script.called(expr)], expr)
        if is_name(expr.func, "len") and len(expr.args) == 1:
            if self.shape(expr.args[0], run) is Kind.ROWS and not self._container(expr.args[0]):
                return Kind.SIZE
            raise unknown_value(expr)
        callees = self.script.called(expr)
        if (made := self.script.values(expr)) and all(are_parameters(t) for t in made):
            return Kind.FREE
        if surely(
            isinstance(t, Method) and isinstance(t.this, (Tensor, Seq, Dict)) for t in callees
        ):
            return self._method(expr, run)
        kinds = {id(t): t for t in callees}
        if not kinds:
            raise unknown_value(expr)
        shapes = [self._called(t, expr, run) for t in kinds.values()]
        return joined(shapes, expr)

    def _called(self, callee: Thing, expr: ast.Call, run: Activation) -> Shape:
        if (made := loss_called(callee)) is not None:
            return self._loss(*made, expr, run)
        if isinstance(callee, Ref):
            return self._function(callee.name, expr, run)
        if isinstance(callee, (Func, Bound)):
            return self._inline(code_of(callee)[0], expr, run)
        if is_module(callee):
            return self._module(callee, expr, run)
        if self._is_free(expr):
            return Kind.FREE
        raise unknown_value(expr)

    # -------------------------------------------------------------------------- code of the project
    def _module(self, callee: Thing, expr: ast.Call, run: Activation) -> Shape:
        for given in arguments_of(expr):
            kind = self.shape(given, run)
            if any(
                k not in EACH | FREE | {Kind.SIZE}
                for k in (kind if isinstance(kind, tuple) else (kind,))
            ):
                raise unknown_value(given)
        if is_loss(callee) and not isinstance(callee, Inst):
            raise Refusal(
                f"what the loss on {at(expr)} does with the samples of a batch is not known"
            )
        if isinstance(callee, Ext):
            short = last_part(callee.name)
            if callee.name.startswith("torch.nn.") and short in LAYERS:
                return Kind.ROWS
            if callee.name.startswith("torchvision.models.") and short.startswith(ONE_TENSOR):
                return Kind.ROWS
            return self._container_module(callee, expr)
        assert isinstance(callee, Inst)
        forwards = code_of(callee)
        says_loss = any(t.loss for t in tensors_in(self.script.values(expr)))
        if len(forwards) == 1:
            try:
                return self._inline(forwards[0], expr, run)
            except Refusal:
                if (
                    says_loss
                    or callee.cls.external & {"torch.nn.modules.loss._Loss"}
                    or is_loss(callee)
                ):
                    raise
        return self._output(callee, expr)

    def _output(self, model: Thing, expr: ast.Call) -> Kind:
        """What a model gives for rows whose code is not followed."""
        return Kind.OPAQUE

    def _container_module(self, callee: Ext, expr: ast.Call) -> Shape:
        """Wrappers and containers: their layers decide, but these are not followed."""
        if any(t.loss for t in tensors_in(self.script.values(expr))):
            raise Refusal(
                f"what the model on {at(expr)} does with the samples of a batch is not known"
            )
        if callee.name == "torch.nn.Sequential":
            layers = [t for g in callee.args.positional for t in g.values]
            if layers and not callee.args.named and all(is_layer(t) for t in layers):
                return Kind.ROWS
        return self._output(callee, expr)

    def _is_model_given_rows(self, expr: ast.Call, run: Activation) -> bool:
        """``model(**batch)`` of a model whose result is no loss."""
        callees = self.script.called(expr)
        if not surely(is_module(t) and not is_loss(t) for t in callees) or any(
            t.loss for t in tensors_in(self.script.values(expr))
        ):
            return False
        given = [unstarred(a) for a in expr.args] + [k.value for k in expr.keywords]
        return all(self.shape(g, run) in EACH | FREE for g in given)

    def _inline(self, callee: Callee, expr: ast.Call, run: Activation) -> Shape:
        """What a function of the project returns for these arguments."""
        function, calls = callee.function, self.script.analysis(CallGraph)
        if len(self._calls) > 12 or function in self._calls:
            raise unknown_value(expr)
        inner = self._entered(callee, expr, run)
        self._calls.append(function)
        try:
            results = [
                r
                for r in calls.results(function)
                if isinstance(function, ast.Lambda) or self.script.reached(r)
            ]
            if not results:
                raise unknown_value(expr)
            return joined([self.shape(r, inner) for r in results], expr)
        finally:
            self._calls.pop()

    def _entered(self, callee: Callee, expr: ast.Call, run: Activation) -> Activation:
        """The run of a function that a call in another run starts."""
        function, calls = callee.function, self.script.analysis(CallGraph)
        spec = function.args
        if (
            spec.vararg
            or spec.kwarg
            or len(expr.args) + callee.is_bound > len(spec.posonlyargs) + len(spec.args)
        ):
            raise unknown_value(expr)
        given: dict[str, Callable[[], Shape]] = {}
        for name, default in defaults(function).items():
            if (argument := calls.argument(expr, callee, name)) is not None:
                given[name] = self._later(argument, run)
            elif default is not None:
                given[name] = self._later(default, Activation(function_of(function)))
        return Activation(function, given)

    def _later(self, expr: ast.expr, run: Activation) -> Callable[[], Shape]:
        """An argument, asked for where it stands: not inside the function that gets it."""
        calls, opened = list(self._calls), set(self._open)

        def value() -> Shape:
            inside = self._calls, self._open
            self._calls, self._open = list(calls), set(opened)
            try:
                return self.shape(expr, run)
            finally:
                self._calls, self._open = inside

        return value


def _given(answer: Shape | Refusal) -> Shape:
    if isinstance(answer, Refusal):
        raise Refusal(*answer.args)
    return answer
