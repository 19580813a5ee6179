"""Places that a mask picks for a cross-entropy, which leaves out by itself what it is told to:

    active = labels.view(-1)[mask]      active = labels.view(-1).masked_fill(~mask, -100)
    loss = ce(logits.view(-1, n)[mask], active)   ->   loss = ce(logits.view(-1, n), active)

The mean is over the same places, and the others have gradients of 0, as they had.
"""

from __future__ import annotations

import ast
from contextlib import suppress

from autofast.edit.edits import Edits, Rewrite
from autofast.facts.batch.losses_of_torch import LOSSES, loss_called
from autofast.facts.finite import Finite
from autofast.flow.program import Flow, definitions_of, graph_of
from autofast.model.calls import arguments_of, literal_of, variable_name
from autofast.model.kinds import is_module
from autofast.model.script import Script
from autofast.model.several import any_of, of_kind, one, surely
from autofast.model.source import ByNode, function_of, nodes_in, statement_of
from autofast.model.syntax import is_read
from autofast.model.values import Ext, Tensor, const
from autofast.ops.families import TRUTHS
from autofast.rule import Refusal

OPTIONS = {"weight", "ignore_index", "reduction"}
FEW_CLASSES = 256
IGNORED = -100  # by default


def ignored(script: Script) -> ByNode[Edits]:
    """``script.analysis(ignored)``: what such losses pick by a mask, both places of each loss with
    the edits for the two.
    """
    found: ByNode[Edits] = {}
    for call in script.nodes:
        match call:
            case ast.Call(args=[ast.expr() as scores, ast.expr() as classes]):
                with suppress(Refusal):
                    loss = _Loss(script, call)
                    places = [loss.picked(scores), loss.picked(classes)]
                    found |= dict.fromkeys(places, loss.edits(*places))
    return found


class _Loss:
    """A cross-entropy; raises :class:`Refusal` where it is none, or does more."""

    def __init__(self, script: Script, call: ast.Call):
        self.script, self.call, self.flow = script, call, script.analysis(Flow)
        known = [loss_called(t) for t in script.called(call)]
        if not surely(k is not None and k[0] is LOSSES["cross_entropy"] for k in known):
            raise Refusal
        self.made = of_kind([k[1] for k in known if k is not None], Ext)
        self.named = {k.arg: k.value for k in call.keywords}
        how = self.named.get("reduction")
        means = [literal_of(how) if how is not None else "mean"]
        if self.made:
            every = [t.args for t in self.made]
            means = [
                const(a.named["reduction"].values) if "reduction" in a.named else "mean"
                for a in every
            ]
            if not all(
                a.known and len(a.positional) < 2 and a.named.keys() <= OPTIONS for a in every
            ):
                raise Refusal
        if not self.named.keys() <= (set() if self.made else OPTIONS):
            raise Refusal
        if len(self.made) not in (0, len(known)) or not {"mean", "sum"}.issuperset(means):
            raise Refusal

    def picked(self, given: ast.expr) -> ast.Subscript:
        """``rows[mask]``, given itself, or by a variable that nothing else reads."""
        made = self.flow.definition(given)
        if made is not None and len(definitions_of(self.script, made.node).uses(made)) != 1:
            raise Refusal
        match self.flow.value(given) or given:
            case ast.Subscript(slice=ast.Name()) as place:
                return place
        raise Refusal

    def edits(self, scores: ast.Subscript, classes: ast.Subscript) -> Edits:
        """The edits where both are picked by one mask, of rows and of the classes of these."""
        mask = scores.slice
        if (
            scores is classes
            or not self.flow.is_same(mask, classes.slice)
            or not self._is_truths(mask)
            or _dimensions(scores.value) != 2
            or _dimensions(classes.value) != 1
            or not all(self.script.must_be(p.value, Tensor) for p in (scores, classes))
            or not self._leaves_few_out(scores)
            or not self.script.analysis(Finite).of(scores.value)  # 0 times infinity is no number
        ):
            raise Refusal
        left_out = f"{{rows}}.masked_fill(~{ast.unparse(mask)}, {self._ignored(classes)})"
        return (
            Rewrite(scores, "{rows}", {"rows": scores.value}),
            Rewrite(classes, left_out, {"rows": classes.value}),
        )

    def _leaves_few_out(self, scores: ast.Subscript) -> bool:
        """Whether a loss of all places costs hardly more: there are few classes, or the mask is of
        what is padded, as the network is told, too.
        """
        most = self.script.constant(scores.value.args[-1])  # type: ignore[attr-defined]
        if isinstance(most, int) and most <= FEW_CLASSES:
            return True
        made = self.flow.value(scores.slice)
        names = [n for n in nodes_in(made, ast.Name) if is_read(n)] if made is not None else []
        calls = nodes_in(function_of(self.call), ast.Call)
        passes = (c for c in calls if surely(map(is_module, self.script.called(c))))
        given = [a for c in passes for a in arguments_of(c)]
        return any(self.flow.is_same(n, a) for n in names for a in given)

    def _is_truths(self, mask: ast.expr) -> bool:
        match self.flow.value(mask):
            case ast.Compare():
                return True
            case ast.Call(func=ast.Attribute(attr=name)):
                return name in TRUTHS | {"bool"}
        return False

    def _ignored(self, place: ast.AST) -> str:
        """What the loss ignores, as it can be said at a place."""
        told = self.named.get("ignore_index")
        values = {IGNORED if told is None else self.script.constant(told)}
        if self.made:
            given = [t.args.named.get("ignore_index") for t in self.made]
            values = {IGNORED if g is None else const(g.values) for g in given}
        value = one(values)
        if type(value) is int:
            return str(value)
        func = self.call.func
        if not self.made or not variable_name(func):
            raise Refusal
        graph = graph_of(self.script, place)
        for name in nodes_in(func, ast.Name):
            made = self.flow.definition(name)
            if made is None or not (
                made.is_parameter or graph.dominates(statement_of(made.node), statement_of(place))
            ):
                raise Refusal
        return f"{ast.unparse(func)}.ignore_index"


def _dimensions(rows: ast.expr) -> int:
    """How many dimensions ``x.view(-1, n)`` has; 0 where it is something else."""
    match rows:
        case ast.Call(func=ast.Attribute(attr="view" | "reshape"), args=args, keywords=[]):
            return 0 if any_of(args, ast.Starred, ast.Tuple, ast.List) else len(args)
        case ast.Call(func=ast.Attribute(attr="flatten"), args=[], keywords=[]):
            return 1
    return 0
