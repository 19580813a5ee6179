"""What methods and functions of torch make of the samples of a batch."""

from __future__ import annotations

import ast

from autofast.facts.batch.kinds import EACH, FREE, REDUCED, Kind, elementwise, unknown_value, words
from autofast.facts.batch.losses_of_torch import (
    DROPOUT,
    FACTORIES,
    LIKE,
    PLAIN_METHODS,
    REGROUPING,
    Loss,
)
from autofast.facts.batch.samples import (
    Activation,
    Shape,
    Shapes,
    ignored_label,
    why_not_per_sample,
)
from autofast.model.calls import arguments_of, keyword_of, spread_out
from autofast.model.names import last_part
from autofast.model.script import Script
from autofast.model.several import are_whole, wordset
from autofast.model.source import at
from autofast.model.syntax import SEQUENCES
from autofast.model.values import Ext, Tensor, any_of, const
from autofast.ops import by_element
from autofast.rule import Refusal

REDUCTIONS = {"mean": Kind.MEAN, "batchmean": Kind.MEAN, "sum": Kind.SUM, "none": Kind.ROWS}
OLD = ("size_average", "reduce")
# What mixes the elements along a dimension.
ALONG = wordset("norm std var max min amax amin argmax prod logsumexp softmax log_softmax")
# What leaves a single number what it is.
SAME = wordset("to cuda cpu float double contiguous clone squeeze view reshape")


class TorchCalls(Shapes):
    """Methods of tensors, functions and losses of torch."""

    def _method(self, expr: ast.Call, run: Activation) -> Shape:
        """A method of a tensor or of what holds some."""
        func = expr.func
        if not isinstance(func, ast.Attribute):
            raise unknown_value(expr)
        kind, name = self.shape(func.value, run), func.attr
        if (
            name == "size"
            and kind in EACH
            and len(expr.args) == 1
            and self.script.constant(expr.args[0]) == 0
        ):
            return Kind.SIZE
        if isinstance(kind, tuple):
            raise unknown_value(expr)
        if kind in FREE and self._all_free(arguments_of(expr), run):
            return Kind.FREE
        if name in ("items", "values", "keys") and kind is Kind.ROWS:
            return kind
        if kind in EACH:
            return self._on_rows(name, kind, expr.args, expr, run)
        if kind in REDUCED and name in SAME:
            return kind
        if kind in REDUCED and name in ("mean", "sum") and not expr.args and not expr.keywords:
            return kind
        return self._unlisted(name, kind, expr.args, expr, run)

    def _on_rows(
        self, name: str, kind: Kind, args: list[ast.expr], expr: ast.Call, run: Activation
    ) -> Shape:
        """A method or function of torch on rows; ``args`` are the arguments after the tensor."""
        if name in ("mean", "sum"):
            dims = self._dims(args, expr)
            if dims is None:
                if kind is Kind.OPAQUE:
                    raise Refusal(
                        f"whether `{words(expr)}` on {at(expr)} is over samples is not known: what the model returns is not followed"
                    )
                return Kind.MEAN if name == "mean" else Kind.SUM
            return self._along(dims, kind, expr)
        alone = by_element(name) and name != "where"  # which may give indices
        if alone or name in PLAIN_METHODS | DROPOUT:
            return self._elementwise(kind, [*args, *(k.value for k in expr.keywords)], expr, run)
        if name in ALONG:
            dims = self._dims(args[1:] if name == "norm" and args else args, expr)
            if dims is None:
                raise unknown_value(expr)
            return self._along(dims, kind, expr)
        if name in REGROUPING:
            return self._regrouped(name, kind, args, expr, run)
        return self._unlisted(name, kind, args, expr, run)

    def _unlisted(
        self, name: str, kind: Shape, args: list[ast.expr], expr: ast.Call, run: Activation
    ) -> Shape:
        """Any other operation on a value of this kind; ``args`` are the arguments after it."""
        raise unknown_value(expr)

    def _elementwise(
        self, kind: Kind, others: list[ast.expr], expr: ast.expr, run: Activation
    ) -> Kind:
        kinds = [kind]
        for other in others:
            if isinstance(other, ast.Constant):
                continue
            found = self.script.values(other)
            if isinstance(other, ast.Starred) or not found:
                raise unknown_value(expr)
            if any_of(found, Tensor):
                shape = self.shape(other, run)
                if isinstance(shape, tuple):
                    raise unknown_value(expr)
                kinds.append(shape)
        return elementwise(kinds, expr)

    def _dims(self, args: list[ast.expr], expr: ast.Call) -> list[int] | None:
        """The dimensions that a reduction is along; None for all."""
        given = (
            args[0]
            if args
            else next((k.value for k in expr.keywords if k.arg in ("dim", "axis")), None)
        )
        if any(
            k.arg not in ("dim", "axis", "keepdim", "p", "unbiased", "correction", "dtype")
            for k in expr.keywords
        ):
            raise unknown_value(expr)
        if given is None:
            return None
        found = self.script.constant(given)
        if not self.script.values(given):
            try:
                found = ast.literal_eval(given)
            except ValueError:
                raise unknown_value(expr) from None
        if isinstance(given, SEQUENCES):
            found = tuple(self.script.constant(e) for e in given.elts)
        dims = list(found) if isinstance(found, (tuple, list)) else [found]
        if not are_whole(dims):
            raise unknown_value(expr)
        return dims

    def _along(self, dims: list[int], kind: Kind, expr: ast.expr) -> Kind:
        if kind is Kind.TURNED:
            raise unknown_value(expr)
        if 0 in dims:
            raise Refusal(f"`{words(expr)}` on {at(expr)} goes over the samples of the batch")
        return kind

    def _regrouped(
        self, name: str, kind: Kind, args: list[ast.expr], expr: ast.Call, run: Activation
    ) -> Shape:
        """``view``, ``permute`` and the like: the first dimension has to stay that of the
        samples.
        """
        if expr.keywords and name not in ("flatten", "squeeze", "unsqueeze"):
            raise unknown_value(expr)
        named = (k.value for k in expr.keywords if k.arg in ("dim", "start_dim"))
        given = spread_out([*args, *named])
        first = self.script.constant(given[0]) if given else ...
        if name in ("view", "reshape"):
            if not given or not (first == -1 or self._is_size(given[0], run)):
                raise Refusal(
                    f"whether `{words(expr)}` on {at(expr)} keeps the samples apart is not known"
                )
            return kind
        if name == "flatten":
            return kind
        if name in ("transpose", "swapaxes"):
            both = [self.script.constant(a) for a in given]
            if len(both) == 2 and all(isinstance(d, int) and d > 0 for d in both):
                return kind
        if name == "permute" and first == 0:
            return kind
        if name == "squeeze":
            if (not given and not self.whole) or (isinstance(first, int) and first != 0):
                return kind
            if not given:
                raise Refusal(
                    f"`squeeze()` on {at(expr)} would drop the dimension of the samples where a batch has only one: name the dimension"
                )
        if name == "unsqueeze" and isinstance(first, int) and first != 0:
            return Kind.COLUMN if kind is Kind.ROWS else kind
        raise unknown_value(expr)

    def _is_size(self, expr: ast.expr, run: Activation) -> bool:
        try:
            return self.shape(expr, run) is Kind.SIZE
        except Refusal:
            return False

    def _function(self, name: str, expr: ast.Call, run: Activation) -> Shape:
        short = last_part(name)
        if name.startswith("builtins."):
            if short in ("float", "int", "range", "max", "min", "abs", "round") and self._all_free(
                expr.args, run
            ):
                return Kind.FREE
            if short == "sum" and len(expr.args) == 1:
                kind = self.shape(expr.args[0], run)
                if kind in FREE:
                    return kind
                if isinstance(kind, tuple) and kind:
                    total: Shape = kind[0]
                    for more in kind[1:]:
                        total = self._combined(ast.Add(), total, more, expr)
                    return total
            if short in ("tuple", "list") and len(expr.args) == 1:
                return self.shape(expr.args[0], run)
        if name.startswith("math.") and self._all_free(expr.args, run):
            return Kind.FREE
        if not name.startswith("torch."):
            raise unknown_value(expr)
        if name == "torch.autograd.Variable" and expr.args:
            return self.shape(expr.args[0], run)
        if short in LIKE and expr.args and self.shape(expr.args[0], run) in EACH:
            return Kind.ROWS
        if short in FACTORIES and expr.args:
            given = (
                expr.args[0].elts[0]
                if isinstance(expr.args[0], SEQUENCES) and expr.args[0].elts
                else expr.args[0]
            )
            if short == "randint":
                sizes = [a for a in expr.args if isinstance(a, SEQUENCES) and a.elts]
                given = sizes[0].elts[0] if sizes else given
            if self._is_size(given, run):
                return Kind.ROWS
            raise Refusal(
                f"`{words(expr)}` on {at(expr)} is not known to have a value for each sample"
            )
        if short in ("cat", "concat") and expr.args and isinstance(expr.args[0], SEQUENCES):
            dims = self._dims(expr.args[1:], expr)
            kinds = [self.shape(e, run) for e in expr.args[0].elts]
            if dims and 0 not in dims and all(k in EACH for k in kinds):
                return Kind.OPAQUE if Kind.OPAQUE in kinds else Kind.ROWS
        if not expr.args:
            raise unknown_value(expr)
        kind = self.shape(expr.args[0], run)
        if kind in FREE and self._all_free(arguments_of(expr), run):
            return Kind.FREE
        if isinstance(kind, Kind) and kind in EACH:
            if short in ("normalize", "cosine_similarity", "pairwise_distance"):
                return self._compared(short, kind, expr, run)
            return self._on_rows(short, kind, expr.args[1:], expr, run)
        if kind in REDUCED and short in ("mean", "sum") and len(expr.args) == 1:
            return kind
        return self._unlisted(short, kind, expr.args[1:], expr, run)

    def _compared(self, name: str, kind: Kind, expr: ast.Call, run: Activation) -> Kind:
        """``F.normalize(x)``, ``F.cosine_similarity(a, b)``: along the second dimension, unless it
        is named.
        """
        count = 1 if name == "normalize" else 2
        dim = keyword_of(expr, "dim")
        others = [self.shape(a, run) for a in expr.args[1:2]] if count == 2 else []
        plain = len(expr.args) == count and all(k.arg in ("dim", "p", "eps") for k in expr.keywords)
        if not plain or not all(k in (Kind.ROWS, Kind.OPAQUE) for k in others):
            raise unknown_value(expr)
        if dim is not None and not (
            isinstance(along := self.script.constant(dim), int) and along != 0
        ):
            raise unknown_value(expr)
        return Kind.OPAQUE if Kind.OPAQUE in (kind, *others) else kind

    def _loss(self, known: Loss, made: Ext | None, expr: ast.Call, run: Activation) -> Shape:
        """A loss of torch: ``made`` where it is an object."""
        reduction, given = reduction_of(self.script, known, made, expr)
        for value in given:
            kind = self.shape(value, run)
            if isinstance(kind, tuple) or kind not in EACH | FREE:
                raise Refusal(
                    f"what the loss on {at(expr)} compares is not a value for each sample (`{words(value)}`)"
                )
        if reduction in REDUCTIONS:
            return REDUCTIONS[reduction]
        raise Refusal(f"whether the loss on {at(expr)} is a mean or a sum is not known")


def reduction_of(
    script: Script, known: Loss, made: Ext | None, expr: ast.Call
) -> tuple[str, list[ast.expr]]:
    """How a loss is reduced (empty where that is not known), and what it compares; raises
    :class:`Refusal` for a mean over other things than samples.
    """
    reduction: object = "mean"
    # What went before ``reduction``, and goes before it where it is given.
    old: dict[str, object] = {}
    positional = list(expr.args)
    uneven = ""  # an option by which the mean is over other numbers in each part of a batch
    if made is not None:
        if (
            made.open
            or not made.args.known
            or made.args.dicts
            or made.args.positional
            or "reduction" in made.attrs
        ):
            raise Refusal(f"not all arguments of the loss on {at(made.node or expr)} are known")
        for name, given in made.args.named.items():
            if name == "reduction":
                reduction = const(given.values) if given.sure else ...
            elif name in OLD:
                old[name] = const(given.values) if given.sure else ...
            elif name in known.uneven:
                uneven = "" if const(given.values) is None else name
            elif name not in known.fine:
                raise Refusal(why_not_per_sample(name, made.node or expr))
    for keyword in expr.keywords:
        if keyword.arg == "reduction":
            reduction = script.constant(keyword.value)
        elif keyword.arg in OLD:
            old[keyword.arg] = script.constant(keyword.value)
        elif keyword.arg in known.inputs:
            positional.append(keyword.value)
        elif keyword.arg in known.uneven:
            uneven = keyword.arg or ""
        elif keyword.arg not in known.fine:
            raise Refusal(why_not_per_sample(keyword.arg or "**", expr))
    if len(positional) != len(known.inputs):
        raise Refusal(f"the arguments of the loss on {at(expr)} are more than its inputs")
    if any(v is not None and not isinstance(v, bool) for v in old.values()):
        reduction = ...
    elif any(v is not None for v in old.values()):
        reduction = (
            "none"
            if old.get("reduce") is False
            else "sum"
            if old.get("size_average") is False
            else "mean"
        )
    if reduction in ("mean", "batchmean"):
        if uneven:
            where = made.node if made is not None and made.node is not None else expr
            raise Refusal(why_not_per_sample(uneven, where))
        if known.uneven and (place := ignored_label(script)) is not None:
            raise Refusal(
                f"the loss on {at(expr)} leaves out targets of -100 ({at(place)}): its mean is over those that are left"
            )
    return (reduction if isinstance(reduction, str) else ""), positional
