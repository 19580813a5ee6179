"""Where the 16-bit results of autocast go, and whether they may: what is done to a model's output in and after the block.

Under autocast, a model returns bf16 or fp16. PyTorch's own losses take that and compute in fp32, and reading a class out of
it (``argmax``) or giving it to the next network of the block is as good as before. Arithmetic by hand loses digits, and
NumPy, buffers of fp32 and other libraries do not take bf16 at all. :class:`Half` finds the first such use.
"""

from __future__ import annotations

import ast

from autofast.facts.precision.activations import holds_output
from autofast.facts.precision.full_outputs import NORMALIZE, FullOutputs
from autofast.flow.callgraph import CallGraph, code_of
from autofast.flow.program import Flow
from autofast.flow.scopes import FUNCTIONS, mentions, scope_of
from autofast.model.calls import arguments_of, call_of, short_name
from autofast.model.kinds import is_loss, is_module
from autofast.model.script import Model, Script
from autofast.model.source import at, function_of, parent_of, source_of, statement_of
from autofast.model.values import (
    Bound,
    Dict,
    Ext,
    Func,
    Inst,
    Ref,
    Seq,
    Thing,
    Unknown,
)
from autofast.ops import autocast

# computed in fp32 by autocast on every device: torch/include/ATen/autocast_mode.h, the losses that were there in torch 2.0
FP32_LOSSES = frozenset(
    """CrossEntropyLoss NLLLoss MSELoss L1Loss SmoothL1Loss BCEWithLogitsLoss KLDivLoss
    CosineEmbeddingLoss HingeEmbeddingLoss MarginRankingLoss MultiLabelMarginLoss
    MultiMarginLoss SoftMarginLoss TripletMarginLoss PoissonNLLLoss cross_entropy nll_loss
    mse_loss l1_loss smooth_l1_loss binary_cross_entropy_with_logits kl_div
    cosine_embedding_loss hinge_embedding_loss margin_ranking_loss multilabel_margin_loss
    multi_margin_loss soft_margin_loss triplet_margin_loss poisson_nll_loss""".split()
)
NUMBERS = frozenset(
    """argmax argmin argsort eq ne lt gt le ge equal size dim numel nelement ndimension
    element_size item float double long int bool nonzero isnan isinf isfinite requires_grad_
    retain_grad register_hook is_contiguous stride""".split()
)
FACTS = frozenset(
    [
        "shape",
        "ndim",
        "device",
        "is_cuda",
        "requires_grad",
        "grad_fn",
        "is_leaf",
        "layout",
    ]
)
MOVES = frozenset(  # what only moves, picks or copies values
    """detach detach_ data T mT view reshape flatten squeeze unsqueeze permute transpose t
    contiguous clone cpu cuda to expand expand_as repeat chunk split unbind narrow select
    index_select gather max min topk sort view_as relu abs neg clamp clamp_min clamp_max cat
    stack values items keys get copy pop mT unflatten movedim swapaxes roll flip masked_select
    squeeze_""".split()
)
# Give values and indices.
WITH_INDICES = frozenset(["max", "min", "topk", "sort", "kthvalue", "mode", "median"])
LOOKS = frozenset(
    f"builtins.{n}" for n in ("isinstance", "len", "type", "id", "float", "int", "bool", "hasattr")
)
PASSES = frozenset(
    f"builtins.{n}"
    for n in ("tuple", "list", "iter", "reversed", "enumerate", "zip", "dict", "next")
)
RESULTS = frozenset(
    "data T mT values indices loss logits last_hidden_state pooler_output hidden_states".split()
)  # attributes that hold tensors
IN_TORCH = ("torch.", "torch.nn.functional.", "torch.Tensor.")


class Half:
    """Follows 16-bit tensors through a script.

    ``inside`` are the ids of all nodes in the statements under autocast; ``target`` is the kind of device it is for; ``logits`` as in ``Code``.
    """

    def __init__(
        self,
        script: Script,
        inside: set[int],
        target: str,
        logits: frozenset[int] = frozenset(),
    ):
        self.script, self.inside, self.cuda = script, inside, target == "cuda"
        self.logits = logits
        self.calls = script.analysis(CallGraph)
        self.networks = {id(m.thing): is_network(m) for m in script.models}
        self._seen: set[tuple[int, bool]] = set()

    def misuse(self, expr: ast.expr) -> str:
        """The first use of ``expr``, a 16-bit tensor made under autocast, that must not be; empty where there is none."""
        self._seen = set()
        if self._is_full(expr):
            return ""
        entered, parent = id(expr) not in self.inside, parent_of(expr)
        match parent:
            case ast.Assign(targets=[ast.Tuple(elts=names)]) if parent.value is expr:
                bad = [n for n in range(len(names)) if not self._is_full(expr, n)]
                return next((why for n in bad if (why := self._bind(names[n], entered))), "")
        return self._use(expr, entered)

    def _is_full(self, expr: ast.expr, part: int | None = None) -> bool:
        """Whether autocast computes it in fp32 anyway."""
        return self.cuda and self.script.analysis(FullOutputs).is_full(expr, part)

    # ------------------------------------------------------------------------------------------------ one expression
    def _use(self, node: ast.AST, entered: bool) -> str:
        """What happens to the value of ``node``, which may stand in a function that was ``entered`` from a block under autocast."""
        if (id(node), entered) in self._seen:
            return ""
        self._seen.add((id(node), entered))
        parent = parent_of(node)
        match parent:
            case ast.Attribute():
                return self._attribute(parent, entered)
            case ast.Subscript() if parent.value is node:
                return "" if _is_index(parent) else self._use(parent, entered)
            case ast.Starred() | ast.Tuple() | ast.List() | ast.IfExp() | ast.NamedExpr() if not (
                isinstance(parent, ast.IfExp) and parent.test is node
            ):
                return (
                    self._bind(parent.target, entered) if isinstance(parent, ast.NamedExpr) else ""
                ) or self._use(parent, entered)
            case (
                ast.Compare()
                | ast.Expr()
                | ast.If()
                | ast.While()
                | ast.Assert()
                | ast.BoolOp()
                | ast.IfExp()
                | ast.Delete()
            ):
                return ""
            case ast.Assign():
                targets = [_floats_of(t, node) for t in parent.targets]
                return next((w for t in targets if (w := self._bind(t, entered))), "")
            case ast.AnnAssign():
                return self._bind(parent.target, entered)
            case ast.For() | ast.AsyncFor() if parent.iter is node:
                return self._bind(parent.target, entered)
            case ast.comprehension() if parent.iter is node:
                return self._bind(parent.target, entered)
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp() if parent.elt is node:
                return self._use(parent, entered)
            case ast.UnaryOp(op=ast.USub()):
                return self._use(parent, entered)
            case ast.Call():
                return self._argument(parent, node, entered)
            case ast.keyword():
                call = parent_of(parent)
                return (
                    self._argument(call, node, entered)
                    if isinstance(call, ast.Call)
                    else self._bad(node)
                )
            case ast.Return():
                return self._returned(parent, entered)
        return self._bad(node)

    def _bad(self, node: ast.AST) -> str:
        stmt = statement_of(node)
        return f"`{_short(node)}` would be a 16-bit number on {at(stmt)}"

    def _attribute(self, node: ast.Attribute, entered: bool) -> str:
        if node.attr in FACTS:
            return ""
        if (call := call_of(node)) is not None:
            if node.attr in NUMBERS or (node.attr == "to" and self._casts(call)):
                return ""
            if node.attr in MOVES:
                return self._use(call, entered)
            if autocast(node.attr) == "fp32" and self._is_inside(node, entered) and self.cuda:
                return ""
            return self._bad(node.value)
        if node.attr in RESULTS:
            return "" if node.attr == "loss" else self._use(node, entered)
        return self._bad(node.value)

    def _casts(self, call: ast.Call) -> bool:
        """``t.to(torch.float32)``"""
        given = arguments_of(call)
        return any(
            isinstance(t, Ref)
            and t.name in ("torch.float", "torch.float32", "torch.float64", "torch.double")
            for a in given
            for t in self.script.values(a)
        )

    def _is_inside(self, node: ast.AST, entered: bool) -> bool:
        return entered or id(node) in self.inside

    # ------------------------------------------------------------------------------------------------ calls
    def _argument(self, call: ast.Call, node: ast.AST, entered: bool) -> str:
        here = self._is_inside(call, entered)
        callees = self.script.values(call.func)
        if not callees:
            return self._bad(node)
        if here and any(is_module(t) and not is_loss(t) for t in callees):
            # The same model, loaded from a file.
            callees = frozenset(t for t in callees if not isinstance(t, Unknown))
        return next(
            (why for callee in callees if (why := self._callee(call, callee, node, here, entered))),
            "",
        )

    def _callee(
        self, call: ast.Call, callee: Thing, node: ast.AST, here: bool, entered: bool
    ) -> str:
        if isinstance(callee, Ref):
            return self._library(call, callee.name, node, here, entered)
        if isinstance(callee, (Func, Bound)):
            return self._parameters(call, callee, node, here)
        if isinstance(callee, (Ext, Inst)) and is_loss(callee):
            name = callee.name if isinstance(callee, Ext) else ""
            short = name.rsplit(".", 1)[-1]
            fine = short in FP32_LOSSES or id(call) in self.logits
            return "" if here and fine else self._bad(node)
        if (
            isinstance(callee, Inst)
            and is_module(callee)
            and not self.networks.get(id(callee), True)
        ):
            return self._parameters(call, callee, node, here)
        if isinstance(callee, (Ext, Inst)) and is_module(callee):
            return "" if here else self._bad(node)
        return self._bad(node)

    def _library(self, call: ast.Call, name: str, node: ast.AST, here: bool, entered: bool) -> str:
        short = name.rsplit(".", 1)[-1]
        if name in LOOKS:
            return ""
        if name in PASSES or name == "torch.autograd.Variable":
            return self._use(call, entered)
        if not name.startswith(IN_TORCH):
            return self._bad(node)
        if (
            short in NUMBERS
            or (here and (short in FP32_LOSSES or id(call) in self.logits))
            or (here and self.cuda and (autocast(short) == "fp32" or name == NORMALIZE))
        ):
            return ""
        return self._use(call, entered) if short in MOVES else self._bad(node)

    def _parameters(self, call: ast.Call, callee: Thing, node: ast.AST, here: bool) -> str:
        """The uses of the parameters of project functions that get the value."""
        found = [
            (c.function, p)
            for c in code_of(callee)
            for p in self.calls.given_to(call, c, node)  # type: ignore[arg-type]
        ]
        return next(
            (why for c, name in found if (why := self._loads(c, name, here, _parameter(c, name)))),
            "" if found else self._bad(node),
        )

    def _returned(self, node: ast.Return, entered: bool) -> str:
        """The uses of a function's result, at each of its calls."""
        func = function_of(node)
        calls = self.calls.sites(func) if not isinstance(func, ast.Module) else []
        return next(
            (why for call in calls if (why := self._use(call, False))),
            "" if calls else self._bad(node),
        )

    # ------------------------------------------------------------------------------------------------ names
    def _bind(self, target: ast.expr, entered: bool) -> str:
        if isinstance(target, ast.Name):
            return self._loads(scope_of(target), target.id, entered, target)
        if isinstance(target, (ast.Tuple, ast.List)):
            return next((why for t in target.elts if (why := self._bind(t, entered))), "")
        if isinstance(target, ast.Starred):
            return self._bind(target.value, entered)
        if isinstance(target, ast.Attribute):
            return self._attribute_loads(target, entered)
        if (
            isinstance(target, ast.Subscript)
            and isinstance(target.value, ast.Name)
            and not self._is_tensor(target.value)
        ):
            return self._loads(scope_of(target), target.value.id, entered)
        return self._bad(target)

    def _is_tensor(self, expr: ast.expr) -> bool:
        found = self.script.values(expr)
        return not found or any(not isinstance(t, (Seq, Dict)) for t in found)

    def _loads(
        self,
        scope: ast.AST,
        name: str,
        entered: bool,
        made: ast.Name | ast.arg | None = None,
    ) -> str:
        """The uses of a variable, wherever it may hold a model's output; of the definition ``made`` only, where there is one."""
        loads = (
            n
            for n in mentions(scope, name)
            if isinstance(n.ctx, ast.Load)
            and holds_output(self.script.values(n))
            and (made is None or self._may_be_of(n, made, scope))
        )
        return next((why for n in loads if (why := self._use(n, entered))), "")

    def _may_be_of(self, load: ast.Name, made: ast.Name | ast.arg, scope: ast.AST) -> bool:
        """Whether a definition reaches a use. Of a use in a function inside, that is not asked."""
        if scope_of(load) is not scope:
            return True
        return any(d.node is made for d in self.script.analysis(Flow).reaching(load))

    def misuse_of_part(self, call: ast.Call, part: int, target: ast.Name) -> str:
        """The first use of a variable that gets a part of a 16-bit output under autocast, and that must not be."""
        self._seen = set()
        return (
            "" if self._is_full(call, part) else self._bind(target, id(target) not in self.inside)
        )

    def _attribute_loads(self, target: ast.Attribute, entered: bool) -> str:
        owners = self.script.values(target.value)
        for node in self.script.each(ast.Attribute):
            if node.attr == target.attr and isinstance(node.ctx, ast.Load):
                if self.script.values(node.value) & owners and holds_output(
                    self.script.values(node)
                ):
                    if why := self._use(node, entered):
                        return why
        return ""


def _parameter(function: ast.AST, name: str) -> ast.arg | None:
    """A parameter as a definition of its variable."""
    args = function.args if isinstance(function, FUNCTIONS) else None
    every = [*args.posonlyargs, *args.args, *args.kwonlyargs] if args is not None else []
    return next((a for a in every if a.arg == name), None)


def _floats_of(target: ast.expr, value: ast.AST) -> ast.expr:
    """``values`` in ``values, indices = t.topk(5)``."""
    if (
        isinstance(target, (ast.Tuple, ast.List))
        and len(target.elts) == 2
        and isinstance(value, ast.Call)
    ):
        return target.elts[0] if short_name(value.func) in WITH_INDICES else target
    return target


def _is_index(node: ast.Subscript) -> bool:
    """``t.max(1)[1]``"""
    return (
        isinstance(node.value, ast.Call)
        and short_name(node.value.func) in WITH_INDICES
        and isinstance(node.slice, ast.Constant)
        and node.slice.value in (1, -1)
    )


def is_network(model: Model) -> bool:
    """A module with layers of its own that multiply matrices; not a loss or a post-processing step in the form of a module."""
    return any(not name.endswith("Loss") for name in model.layers) or not isinstance(
        model.thing, Inst
    )


def _short(node: ast.AST) -> str:
    text = " ".join(source_of(node).segment(node).split())
    return text if len(text) <= 40 else text[:37] + "..."
