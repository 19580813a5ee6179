"""What a loss is of the samples of its batch: their mean, or their sum.

Only then the losses of several batches make up that of one large batch. :class:`Losses` goes back from the loss to the batch through operations
that keep the samples apart; whatever it does not know is a reason to refuse: a loss that compares samples with each other (contrastive, ranking in
the batch), one that counts tokens or classes (``ignore_index``, ``weight``), a square root of a mean.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace

from autofast.read.kinds import is_loss, is_module
from autofast.read.names import ONE_TENSOR
from autofast.read.source import ancestors, function_of, parent_of, statement_of
from autofast.read.tensors import tensors_in
from autofast.read.values import Arg, Bound, Const, Dict, Ext, Func, Inst, Method, Num, Ref, Seq, Tensor, Thing, const
from autofast.script import Script

from ._accum_names import (
    ELEMENTWISE,
    FACTORIES,
    LAYERS,
    LIKE,
    PLAIN_METHODS,
    REGROUPING,
    Loss,
    loss_called,
)
from ._accum_scopes import ROWS, Kind, Scope, Shape, reaching
from ._pace import Refused, at
from ._turns import FUNCTIONS, mentions


class Losses:
    """Asks for the losses of one training loop. ``whole``: batches may become smaller, so that nothing may depend on their size."""

    def __init__(self, script: Script, whole: bool):
        self.script, self.whole = script, whole
        self._open: set[int] = set()
        self._calls: list[ast.AST] = []

    def of(self, expr: ast.expr, scope: Scope) -> Kind:
        """``MEAN``, ``SUM`` or ``FREE``; raises :class:`Refused` for everything else."""
        kind = self.shape(expr, scope)
        if isinstance(kind, tuple) or kind not in (Kind.MEAN, Kind.SUM, Kind.FREE):
            raise Refused(
                f"`{_short(expr)}` on {at(expr)} is neither a mean nor a sum over the samples of the batch, as far as can be seen"
            )
        return kind

    # ------------------------------------------------------------------------------------------------ expressions
    def shape(self, expr: ast.expr, scope: Scope) -> Shape:
        match expr:
            case ast.Constant():
                return Kind.NONE if expr.value is None or expr.value in (0, 0.0) else Kind.FREE
            case ast.Name():
                return self._name(expr, scope)
            case ast.Tuple() | ast.List():
                return tuple(self.shape(e, scope) for e in expr.elts)
            case ast.Call():
                return self._call(expr, scope)
            case ast.BinOp():
                return self._binary(expr, scope)
            case ast.UnaryOp(op=ast.USub() | ast.UAdd()):
                return self.shape(expr.operand, scope)
            case ast.Attribute():
                return self._attribute(expr, scope)
            case ast.Subscript():
                return self._subscript(expr, scope)
            case ast.IfExp():
                return _joined([self.shape(expr.body, scope), self.shape(expr.orelse, scope)], expr)
            case ast.ListComp() | ast.GeneratorExp() | ast.DictComp() | ast.Dict():
                return self._display(expr, scope)
            case ast.NamedExpr():
                return self.shape(expr.value, scope)
            case ast.Compare():
                found = [self.shape(e, scope) for e in (expr.left, *expr.comparators)]
                if all(k in (Kind.ROWS, Kind.FREE, Kind.NONE) for k in found):
                    return Kind.ROWS if Kind.ROWS in found else Kind.FREE
        if self._is_free(expr):
            return Kind.FREE
        raise _unknown(expr)

    def _is_free(self, expr: ast.expr) -> bool:
        """It has nothing to do with the batch: numbers of the configuration, and what is made of parameters only."""
        found = self.script.values(expr)
        if not found:
            return False
        for thing in found:
            if isinstance(thing, Num) and thing.synced is None and not _counts_something(expr):
                continue
            if isinstance(thing, (Const, Arg)):
                continue
            if isinstance(thing, Tensor) and thing.param and not thing.batch and not thing.models:
                continue
            return False
        return True

    def _display(self, expr: ast.expr, scope: Scope) -> Shape:
        """``{k: v.to(device) for k, v in batch.items()}``, ``[t.to(device) for t in batch]``."""
        if isinstance(expr, ast.Dict):
            kinds = [self.shape(v, scope) for v in expr.values]
        else:
            assert isinstance(expr, (ast.ListComp, ast.GeneratorExp, ast.DictComp))
            local = dict(scope.local)
            for part in expr.generators:
                kind = self.shape(part.iter, replace(scope, local=local))
                if not isinstance(kind, Kind) or kind not in (Kind.ROWS, Kind.FREE) or part.ifs:
                    raise _unknown(expr)
                local.update((n.id, kind) for n in ast.walk(part.target) if isinstance(n, ast.Name))
            kinds = [self.shape(expr.value if isinstance(expr, ast.DictComp) else expr.elt, replace(scope, local=local))]
        for kind in (Kind.ROWS, Kind.FREE):
            if kinds and all(k is kind for k in kinds):
                return kind
        raise _unknown(expr)

    # ------------------------------------------------------------------------------------------------ names
    def _name(self, expr: ast.Name, scope: Scope) -> Shape:
        """What the stores that may reach this place have put into the variable."""
        if expr.id in scope.local:
            return scope.local[expr.id]
        stores, sure = reaching(expr, scope)
        stores = [n for n in stores if self.script.reached(statement_of(n)) or statement_of(n) is scope.loop]
        kinds: list[Shape] = []
        if not sure:
            if expr.id in scope.given:
                kinds.append(scope.given[expr.id]())
            elif scope.loop is not None and any(
                _in(n, scope.loop) for n in mentions(scope.function, expr.id) if isinstance(n.ctx, ast.Store)
            ):
                raise Refused(f"`{expr.id}` on {at(expr)} is carried from batch to batch")
            elif self._is_free(expr):
                kinds.append(Kind.FREE)
            else:
                raise _unknown(expr)
        added: list[tuple[ast.operator, Shape, ast.AST]] = []
        for node in stores:
            if id(node) in self._open:
                continue  # defined by itself, in a loop: what else it is made of decides
            self._open.add(id(node))
            try:
                statement = statement_of(node)
                if isinstance(statement, ast.AugAssign) and statement.target is node:
                    added.append((statement.op, self.shape(statement.value, scope), statement))
                else:
                    kinds.append(self._bound(node, statement, scope))
            finally:
                self._open.discard(id(node))
        kind = _joined(kinds, expr)
        for op, other, where in reversed(added):
            kind = self._combined(op, kind, other, where)
        return kind

    def _bound(self, node: ast.Name, statement: ast.stmt, scope: Scope) -> Shape:
        """What an assignment or a loop puts into a variable."""
        if statement is scope.loop:
            if node.id in scope.batch:
                return Kind.ROWS
            raise _unknown(node)
        if isinstance(parent_of(node), ast.NamedExpr):
            return self.shape(parent_of(node).value, scope)  # type: ignore[union-attr]
        if isinstance(statement, ast.AnnAssign) and statement.value is not None and statement.target is node:
            return self.shape(statement.value, scope)
        if isinstance(statement, ast.Assign):
            kind = self.shape(statement.value, scope)
            for target in statement.targets:
                if target is node:
                    return kind
                if isinstance(target, (ast.Tuple, ast.List)) and not any(isinstance(e, ast.Starred) for e in target.elts):
                    for n, part in enumerate(target.elts):
                        if part is node:
                            return self._part(kind, n, node)
                        if isinstance(part, ast.Tuple) and any(x is node for x in part.elts):
                            return self._part(self._part(kind, n, node), next(k for k, x in enumerate(part.elts) if x is node), node)
        if isinstance(statement, ast.For) and any(n is node for n in ast.walk(statement.target)):
            kind = self.shape(statement.iter, scope)
            if isinstance(kind, tuple) and statement.target is node:
                return _joined(list(kind), node)
            if kind is Kind.ROWS and isinstance(self._container(statement.iter), bool) and self._container(statement.iter):
                return Kind.ROWS
        raise _unknown(node)

    def _part(self, kind: Shape, index: int, node: ast.AST) -> Shape:
        if isinstance(kind, tuple):
            if index >= len(kind):
                raise _unknown(node)
            return kind[index]
        if kind in (Kind.ROWS, Kind.OPAQUE, Kind.FREE):
            return kind
        raise _unknown(node)

    # ------------------------------------------------------------------------------------------------ parts
    def _attribute(self, expr: ast.Attribute, scope: Scope) -> Shape:
        if self._is_free(expr):
            return Kind.FREE
        if isinstance(expr.value, ast.Name) and expr.value.id in ("self", "cls"):
            raise _unknown(expr)
        kind = self.shape(expr.value, scope)
        if expr.attr in ("data",) and kind in ROWS:
            return kind
        if kind is Kind.OPAQUE and expr.attr in ("logits", "last_hidden_state", "sample", "pooler_output"):
            return kind
        raise _unknown(expr)

    def _container(self, expr: ast.expr) -> bool:
        """A tuple, list or dict and no tensor."""
        found = self.script.values(expr)
        return bool(found) and all(isinstance(t, (Seq, Dict)) for t in found)

    def _subscript(self, expr: ast.Subscript, scope: Scope) -> Shape:
        if isinstance(expr.value, ast.Attribute) and expr.value.attr == "shape" and const(self.script.values(expr.slice)) == 0:
            if self.shape(expr.value.value, scope) in ROWS:
                return Kind.SIZE
        if self._is_free(expr):
            return Kind.FREE
        kind = self.shape(expr.value, scope)
        if isinstance(kind, tuple):
            index = const(self.script.values(expr.slice)) if not isinstance(expr.slice, ast.Constant) else expr.slice.value
            if isinstance(index, int) and -len(kind) <= index < len(kind):
                return kind[index]
            raise _unknown(expr)
        if kind in (Kind.ROWS, Kind.OPAQUE):
            if isinstance(expr.slice, ast.Constant) and (isinstance(expr.slice.value, str) or self._container(expr.value)):
                return kind
            if isinstance(expr.slice, ast.Tuple) and _is_all(expr.slice.elts[0]):
                rest = expr.slice.elts[1:]
                if all(isinstance(r, (ast.Slice, ast.Constant, ast.UnaryOp)) for r in rest):
                    return Kind.COLUMN if any(isinstance(r, ast.Constant) and r.value is None for r in rest) else kind
        raise _unknown(expr)

    # ------------------------------------------------------------------------------------------------ arithmetic
    def _binary(self, expr: ast.BinOp, scope: Scope) -> Shape:
        return self._combined(expr.op, self.shape(expr.left, scope), self.shape(expr.right, scope), expr)

    def _combined(self, op: ast.operator, left: Shape, right: Shape, where: ast.AST) -> Shape:
        if isinstance(left, tuple) or isinstance(right, tuple):
            raise _unknown(where)
        both = {left, right}
        if isinstance(op, (ast.Add, ast.Sub)) and Kind.NONE in both:
            return right if left is Kind.NONE else left
        both = {Kind.FREE if k is Kind.NONE else k for k in both}
        left, right = (Kind.FREE if k is Kind.NONE else k for k in (left, right))
        if both == {Kind.FREE}:
            return Kind.FREE
        if both <= {Kind.ROWS, Kind.FREE} and not isinstance(op, ast.MatMult):
            return Kind.ROWS
        if both == {Kind.OPAQUE, Kind.ROWS} or both == {Kind.OPAQUE, Kind.FREE} or both == {Kind.OPAQUE}:
            if not isinstance(op, ast.MatMult):
                return Kind.OPAQUE
        if both == {Kind.COLUMN, Kind.FREE} and not isinstance(op, ast.MatMult):
            return Kind.COLUMN
        if isinstance(op, (ast.Add, ast.Sub)):
            if both in ({Kind.MEAN}, {Kind.MEAN, Kind.FREE}):
                return Kind.MEAN
            if both == {Kind.SUM}:
                return Kind.SUM
            if both & {Kind.SUM} and both & {Kind.MEAN, Kind.FREE}:
                raise Refused(f"the loss on {at(where)} adds a sum over the samples and something that is none")
        if isinstance(op, ast.Mult):
            if both in ({Kind.MEAN, Kind.FREE}, {Kind.SUM, Kind.FREE}):
                return Kind.MEAN if Kind.MEAN in both else Kind.SUM
            if both == {Kind.MEAN, Kind.SIZE}:
                return Kind.SUM
        if isinstance(op, ast.Div):
            if (left, right) == (Kind.SUM, Kind.SIZE):
                return Kind.MEAN
            if (left, right) == (Kind.MEAN, Kind.FREE):
                return Kind.MEAN
            if (left, right) == (Kind.SUM, Kind.FREE):
                if self.whole:
                    return Kind.SUM
                raise Refused(f"the sum on {at(where)} is divided by a number: whether that is the size of the batch is not known")
        raise _unknown(where)

    # ------------------------------------------------------------------------------------------------ calls
    def _call(self, expr: ast.Call, scope: Scope) -> Shape:
        if any(isinstance(a, ast.Starred) for a in expr.args) or any(k.arg is None for k in expr.keywords):
            if not self._is_model_given_rows(expr, scope):
                raise _unknown(expr)
            return Kind.OPAQUE
        if isinstance(expr.func, ast.Name) and expr.func.id == "len" and len(expr.args) == 1:
            if self.shape(expr.args[0], scope) is Kind.ROWS and not self._container(expr.args[0]):
                return Kind.SIZE
            raise _unknown(expr)
        callees = self.script.values(expr.func)
        if (made := self.script.values(expr)) and all(isinstance(t, Seq) and t.kind == "parameters" for t in made):
            return Kind.FREE
        if callees and all(isinstance(t, Method) and isinstance(t.this, (Tensor, Seq, Dict)) for t in callees):
            return self._method(expr, scope)
        kinds = {id(t): t for t in callees}
        if not kinds:
            raise _unknown(expr)
        shapes = [self._called(t, expr, scope) for t in kinds.values()]
        return _joined(shapes, expr)

    def _called(self, callee: Thing, expr: ast.Call, scope: Scope) -> Shape:
        if (made := loss_called(callee)) is not None:
            return self._loss(*made, expr, scope)
        if isinstance(callee, Ref):
            return self._function(callee.name, expr, scope)
        if isinstance(callee, (Func, Bound)):
            func = callee.func if isinstance(callee, Bound) else callee
            return self._inline(func, expr, scope, isinstance(callee, Bound))
        if is_module(callee):
            return self._module(callee, expr, scope)
        if self._is_free(expr):
            return Kind.FREE
        raise _unknown(expr)

    def _method(self, expr: ast.Call, scope: Scope) -> Shape:
        """A method of a tensor or of what holds some."""
        func = expr.func
        if not isinstance(func, ast.Attribute):
            raise _unknown(expr)
        kind, name = self.shape(func.value, scope), func.attr
        if name == "size" and kind in ROWS and len(expr.args) == 1 and const(self.script.values(expr.args[0])) == 0:
            return Kind.SIZE
        if isinstance(kind, tuple):
            raise _unknown(expr)
        if kind is Kind.FREE and all(
            self.shape(a, scope) in (Kind.FREE, Kind.NONE) for a in (*expr.args, *(k.value for k in expr.keywords))
        ):
            return Kind.FREE
        if name in ("items", "values", "keys") and kind is Kind.ROWS:
            return kind
        if kind in ROWS:
            return self._on_rows(name, kind, expr.args, expr, scope)
        if kind in (Kind.MEAN, Kind.SUM) and name in ("to", "cuda", "cpu", "float", "double", "contiguous", "squeeze"):
            return kind
        if kind is Kind.MEAN and name == "mean" and not expr.args and not expr.keywords:
            return kind
        raise _unknown(expr)

    def _on_rows(self, name: str, kind: Kind, args: list[ast.expr], expr: ast.Call, scope: Scope) -> Shape:
        """A method or function of torch on rows; ``args`` are the arguments after the tensor."""
        if name in ("mean", "sum"):
            dims = self._dims(args, expr)
            if dims is None:
                if kind is Kind.OPAQUE:
                    raise Refused(
                        f"whether `{_short(expr)}` on {at(expr)} is over samples is not known: what the model returns is not followed"
                    )
                return Kind.MEAN if name == "mean" else Kind.SUM
            return self._along(dims, kind, expr)
        if name in PLAIN_METHODS or name in ELEMENTWISE:
            for other in (*args, *(k.value for k in expr.keywords)):
                self._only_free_or(other, kind, scope, expr)
            return kind
        if name in ("norm", "std", "var", "max", "min", "amax", "amin", "argmax", "prod", "logsumexp", "softmax", "log_softmax"):
            dims = self._dims(args[1:] if name == "norm" and args else args, expr)
            if dims is None:
                raise _unknown(expr)
            return self._along(dims, kind, expr)
        if name in REGROUPING:
            return self._regrouped(name, kind, args, expr, scope)
        raise _unknown(expr)

    def _only_free_or(self, other: ast.expr, kind: Kind, scope: Scope, where: ast.expr) -> None:
        if isinstance(other, (ast.Constant, ast.Starred)) or not self.script.values(other):
            if isinstance(other, ast.Constant):
                return
            raise _unknown(where)
        if any(isinstance(t, Tensor) for t in self.script.values(other)) and self.shape(other, scope) not in (Kind.ROWS, kind):
            raise _unknown(where)

    def _dims(self, args: list[ast.expr], expr: ast.Call) -> list[int] | None:
        """The dimensions that a reduction is along; None for all."""
        given = args[0] if args else next((k.value for k in expr.keywords if k.arg in ("dim", "axis")), None)
        if any(k.arg not in ("dim", "axis", "keepdim", "p", "unbiased", "correction", "dtype") for k in expr.keywords):
            raise _unknown(expr)
        if given is None:
            return None
        found = const(self.script.values(given))
        if not self.script.values(given):
            try:
                found = ast.literal_eval(given)
            except ValueError:
                raise _unknown(expr) from None
        if isinstance(given, (ast.Tuple, ast.List)):
            found = tuple(const(self.script.values(e)) for e in given.elts)
        dims = list(found) if isinstance(found, (tuple, list)) else [found]
        if not all(isinstance(d, int) and not isinstance(d, bool) for d in dims):
            raise _unknown(expr)
        return dims

    def _along(self, dims: list[int], kind: Kind, expr: ast.expr) -> Kind:
        if 0 in dims:
            raise Refused(f"`{_short(expr)}` on {at(expr)} goes over the samples of the batch")
        return kind

    def _regrouped(self, name: str, kind: Kind, args: list[ast.expr], expr: ast.Call, scope: Scope) -> Shape:
        """``view``, ``permute`` and the like: the first dimension has to stay that of the samples."""
        if expr.keywords and name not in ("flatten", "squeeze", "unsqueeze"):
            raise _unknown(expr)
        given = [*args, *(k.value for k in expr.keywords if k.arg in ("dim", "start_dim"))]
        if len(given) == 1 and isinstance(given[0], (ast.Tuple, ast.List)):
            given = list(given[0].elts)
        first = const(self.script.values(given[0])) if given else ...
        if name in ("view", "reshape"):
            if not given or not (first == -1 or self._is_size(given[0], scope)):
                raise Refused(f"whether `{_short(expr)}` on {at(expr)} keeps the samples apart is not known")
            return kind
        if name == "flatten":
            return kind
        if name in ("transpose", "swapaxes"):
            both = [const(self.script.values(a)) for a in given]
            if len(both) == 2 and all(isinstance(d, int) and d > 0 for d in both):
                return kind
        if name == "permute" and first == 0:
            return kind
        if name == "squeeze":
            if (not given and not self.whole) or (isinstance(first, int) and first != 0):
                return kind
            if not given:
                raise Refused(
                    f"`squeeze()` on {at(expr)} would drop the dimension of the samples where a batch has only one: name the dimension"
                )
        if name == "unsqueeze" and isinstance(first, int) and first != 0:
            return Kind.COLUMN if kind is Kind.ROWS else kind
        raise _unknown(expr)

    def _is_size(self, expr: ast.expr, scope: Scope) -> bool:
        try:
            return self.shape(expr, scope) is Kind.SIZE
        except Refused:
            return False

    def _function(self, name: str, expr: ast.Call, scope: Scope) -> Shape:
        """A function of torch."""
        short = name.rsplit(".", 1)[-1]
        if name.startswith("builtins."):
            if short in ("float", "int", "range", "max", "min", "abs", "round") and self._is_free(expr):
                return Kind.FREE
            if short == "sum" and len(expr.args) == 1:
                kind = self.shape(expr.args[0], scope)
                if kind is Kind.FREE:
                    return kind
                if isinstance(kind, tuple) and kind:
                    total: Shape = kind[0]
                    for more in kind[1:]:
                        total = self._combined(ast.Add(), total, more, expr)
                    return total
            if short in ("tuple", "list") and len(expr.args) == 1:
                return self.shape(expr.args[0], scope)
        if not name.startswith("torch."):
            raise _unknown(expr)
        if name == "torch.autograd.Variable" and expr.args:
            return self.shape(expr.args[0], scope)
        if short in LIKE and expr.args and self.shape(expr.args[0], scope) in ROWS:
            return Kind.ROWS
        if short in FACTORIES and expr.args:
            given = expr.args[0].elts[0] if isinstance(expr.args[0], (ast.Tuple, ast.List)) and expr.args[0].elts else expr.args[0]
            if short == "randint":
                sizes = [a for a in expr.args if isinstance(a, (ast.Tuple, ast.List)) and a.elts]
                given = sizes[0].elts[0] if sizes else given
            if self._is_size(given, scope):
                return Kind.ROWS
            raise Refused(f"`{_short(expr)}` on {at(expr)} is not known to have a value for each sample")
        if short in ("cat", "concat") and expr.args and isinstance(expr.args[0], (ast.Tuple, ast.List)):
            dims = self._dims(expr.args[1:], expr)
            kinds = [self.shape(e, scope) for e in expr.args[0].elts]
            if dims and 0 not in dims and all(k in ROWS for k in kinds):
                return Kind.OPAQUE if Kind.OPAQUE in kinds else Kind.ROWS
        if not expr.args:
            raise _unknown(expr)
        kind = self.shape(expr.args[0], scope)
        if kind is Kind.FREE and all(
            self.shape(a, scope) in (Kind.FREE, Kind.NONE) for a in (*expr.args, *(k.value for k in expr.keywords))
        ):
            return Kind.FREE
        if isinstance(kind, Kind) and kind in ROWS:
            if short in ("normalize", "cosine_similarity", "pairwise_distance"):
                return self._compared(short, kind, expr, scope)
            return self._on_rows(short, kind, expr.args[1:], expr, scope)
        if kind is Kind.MEAN and short == "mean" and len(expr.args) == 1:
            return kind
        raise _unknown(expr)

    def _compared(self, name: str, kind: Kind, expr: ast.Call, scope: Scope) -> Kind:
        """``F.normalize(x)``, ``F.cosine_similarity(a, b)``: along the second dimension, unless it is named."""
        count = 1 if name == "normalize" else 2
        dim = next((k.value for k in expr.keywords if k.arg == "dim"), None)
        others = [self.shape(a, scope) for a in expr.args[1:2]] if count == 2 else []
        plain = len(expr.args) == count and all(k.arg in ("dim", "p", "eps") for k in expr.keywords)
        if not plain or not all(k in (Kind.ROWS, Kind.OPAQUE) for k in others):
            raise _unknown(expr)
        if dim is not None and not (isinstance(along := const(self.script.values(dim)), int) and along != 0):
            raise _unknown(expr)
        return Kind.OPAQUE if Kind.OPAQUE in (kind, *others) else kind

    def _loss(self, known: Loss, made: Ext | None, expr: ast.Call, scope: Scope) -> Shape:
        """A loss of torch."""
        reduction: object = "mean"
        options = list(expr.keywords)
        positional = list(expr.args)
        if made is not None:
            if (
                made.open
                or made.args.open
                or made.args.dicts
                or made.args.loose is not None
                or made.args.positional
                or "reduction" in made.attrs
            ):
                raise Refused(f"not all arguments of the loss on {at(made.node or expr)} are known")
            for name, given in made.args.named.items():
                if name == "reduction":
                    reduction = const(given.values) if given.sure else ...
                elif name not in known.fine:
                    raise Refused(_weighted(name, made.node or expr))
        for keyword in options:
            if keyword.arg == "reduction":
                reduction = const(self.script.values(keyword.value))
            elif keyword.arg in known.inputs:
                positional.append(keyword.value)
            elif keyword.arg not in known.fine:
                raise Refused(_weighted(keyword.arg or "**", expr))
        if len(positional) != len(known.inputs):
            raise Refused(f"the arguments of the loss on {at(expr)} are more than its inputs")
        if known.skips and (place := _skipped(self.script)) is not None:
            raise Refused(f"the loss on {at(expr)} leaves out targets of -100 ({at(place)}): its mean is over those that are left")
        for given_ in positional:
            kind = self.shape(given_, scope)
            if isinstance(kind, tuple) or kind not in (*ROWS, Kind.FREE):
                raise Refused(f"what the loss on {at(expr)} compares is not a value for each sample (`{_short(given_)}`)")
        if reduction in ("mean", "batchmean"):
            return Kind.MEAN
        if reduction == "sum":
            return Kind.SUM
        if reduction == "none":
            return Kind.ROWS
        raise Refused(f"whether the loss on {at(expr)} is a mean or a sum is not known")

    # ------------------------------------------------------------------------------------------------ code of the project
    def _module(self, callee: Thing, expr: ast.Call, scope: Scope) -> Shape:
        for given in (*expr.args, *(k.value for k in expr.keywords)):
            kind = self.shape(given, scope)
            if any(k not in (*ROWS, Kind.FREE, Kind.NONE, Kind.SIZE) for k in (kind if isinstance(kind, tuple) else (kind,))):
                raise _unknown(given)
        if is_loss(callee) and not isinstance(callee, Inst):
            raise Refused(f"what the loss on {at(expr)} does with the samples of a batch is not known")
        if isinstance(callee, Ext):
            short = callee.name.rsplit(".", 1)[-1]
            if callee.name.startswith("torch.nn.") and short in LAYERS:
                return Kind.ROWS
            if callee.name.startswith("torchvision.models.") and short.startswith(ONE_TENSOR):
                return Kind.ROWS
            return self._container_module(callee, expr)
        assert isinstance(callee, Inst)
        found = callee.cls.find("forward") or frozenset()
        forwards = [t for t in found if isinstance(t, Func)]
        says_loss = any(t.loss for t in tensors_in(self.script.values(expr)))
        if len(forwards) == 1:
            try:
                return self._inline(forwards[0], expr, scope, True)
            except Refused:
                if says_loss or callee.cls.external & {"torch.nn.modules.loss._Loss"} or is_loss(callee):
                    raise
        return Kind.OPAQUE

    def _container_module(self, callee: Ext, expr: ast.Call) -> Shape:
        """Wrappers and containers: their layers decide, but these are not followed."""
        if any(t.loss for t in tensors_in(self.script.values(expr))):
            raise Refused(f"what the model on {at(expr)} does with the samples of a batch is not known")
        if callee.name == "torch.nn.Sequential":
            layers = [t for g in callee.args.positional for t in g.values]
            if layers and not callee.args.named and all(_is_layer(t) for t in layers):
                return Kind.ROWS
        return Kind.OPAQUE

    def _is_model_given_rows(self, expr: ast.Call, scope: Scope) -> bool:
        """``model(**batch)`` of a model whose result is no loss."""
        callees = self.script.values(expr.func)
        if (
            not callees
            or not all(is_module(t) and not is_loss(t) for t in callees)
            or any(t.loss for t in tensors_in(self.script.values(expr)))
        ):
            return False
        given = [a.value if isinstance(a, ast.Starred) else a for a in expr.args] + [k.value for k in expr.keywords]
        return all(self.shape(g, scope) in (*ROWS, Kind.FREE, Kind.NONE) for g in given)

    def _inline(self, func: Func, expr: ast.Call, scope: Scope, bound: bool) -> Shape:
        """What a function of the project returns for these arguments."""
        node = func.node
        if len(self._calls) > 12 or any(c is node for c in self._calls):
            raise _unknown(expr)
        spec = node.args
        if spec.vararg or spec.kwarg:
            raise _unknown(expr)
        names = [a.arg for a in (*spec.posonlyargs, *spec.args)][1 if bound else 0 :]
        if len(expr.args) > len(names):
            raise _unknown(expr)
        given: dict[str, Callable[[], Shape]] = {n: _later(self, a, scope) for n, a in zip(names, expr.args, strict=False)}
        given.update({k.arg: _later(self, k.value, scope) for k in expr.keywords if k.arg})
        defaults = dict(zip([a.arg for a in (*spec.posonlyargs, *spec.args)][::-1], spec.defaults[::-1], strict=False))
        defaults.update({a.arg: d for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if d is not None})
        for name, default in defaults.items():
            if name not in given:
                given[name] = _later(self, default, Scope(function_of(node)))
        if bound and (spec.posonlyargs or spec.args):
            this = (*spec.posonlyargs, *spec.args)[0].arg
            given[this] = _self(expr)
        inner = Scope(node, given)
        self._calls.append(node)
        try:
            if isinstance(node, ast.Lambda):
                return self.shape(node.body, inner)
            returns = [r for r in _returns(node) if r.value is not None and self.script.reached(r.value)]
            if not returns:
                raise _unknown(expr)
            return _joined([self.shape(r.value, inner) for r in returns if r.value is not None], expr)
        finally:
            self._calls.pop()


# ------------------------------------------------------------------------------------------------ small things
def _later(losses: Losses, expr: ast.expr, scope: Scope) -> Callable[[], Shape]:
    return lambda: losses.shape(expr, scope)


def _self(expr: ast.Call) -> Callable[[], Shape]:
    def refuse() -> Shape:
        raise _unknown(expr)

    return refuse


def _unknown(node: ast.AST) -> Refused:
    return Refused(f"how `{_short(node)}` on {at(node)} depends on the samples of a batch is not known")


def _weighted(name: str, node: ast.AST) -> str:
    if name == "ignore_index":
        return f"the loss on {at(node)} has `ignore_index`: its mean is over the targets that are left, of which batches have different numbers"
    if name == "weight":
        return f"the loss on {at(node)} has `weight`: its mean is over the weights of the targets, which differ from batch to batch"
    return f"what `{name}` of the loss on {at(node)} does to its mean is not known"


def _short(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 60 else text[:57] + "..."


def _joined(kinds: list[Shape], where: ast.AST) -> Shape:
    """The one thing that all of these are."""
    tuples = [k for k in kinds if isinstance(k, tuple)]
    if tuples:
        if len(tuples) != len(kinds) or len({len(t) for t in tuples}) != 1:
            raise _unknown(where)
        return tuple(_joined([t[n] for t in tuples], where) for n in range(len(tuples[0])))
    found = {k for k in kinds if k is not Kind.NONE}
    if not found:
        return Kind.NONE
    if found == {Kind.ROWS, Kind.OPAQUE}:
        return Kind.OPAQUE
    if found == {Kind.ROWS, Kind.COLUMN}:
        return Kind.COLUMN
    if len(found) != 1:
        raise _unknown(where)
    return found.pop()


def _counts_something(expr: ast.expr) -> bool:
    """A number that may be that of a batch: ``len(x)``, ``x.size(0)``, ``x.shape[0]``."""
    return any(
        (isinstance(n, ast.Name) and n.id == "len")
        or (isinstance(n, ast.Attribute) and n.attr in ("size", "shape", "numel", "item", "sum"))
        for n in ast.walk(expr)
    )


def _skipped(script: Script) -> ast.AST | None:
    """A place that writes -100, which the losses of classes leave out."""
    for source in script.sources:
        for node in ast.walk(source.tree):
            if (
                isinstance(node, ast.UnaryOp)
                and isinstance(node.op, ast.USub)
                and isinstance(node.operand, ast.Constant)
                and node.operand.value == 100
            ):
                return node
    return None


def _is_layer(thing: Thing) -> bool:
    return isinstance(thing, Ext) and thing.name.startswith("torch.nn.") and thing.name.rsplit(".", 1)[-1] in LAYERS


def _is_all(node: ast.expr) -> bool:
    return (isinstance(node, ast.Slice) and node.lower is None and node.upper is None and node.step is None) or (
        isinstance(node, ast.Constant) and node.value is Ellipsis
    )


def _in(node: ast.AST, loop: ast.AST) -> bool:
    return any(a is loop for a in ancestors(node))


def _returns(node: ast.AST) -> Iterator[ast.Return]:
    todo = list(ast.iter_child_nodes(node))
    while todo:
        here = todo.pop()
        if isinstance(here, ast.Return):
            yield here
        if not isinstance(here, (*FUNCTIONS, ast.ClassDef)):
            todo += ast.iter_child_nodes(here)
