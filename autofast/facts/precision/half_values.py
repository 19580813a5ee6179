"""Where the 16-bit results of autocast go, and whether they may: what is done to a model's output
in and after the block.

Under autocast, a model returns bf16 or fp16. PyTorch's own losses take that and compute in fp32,
and reading a class out of it (``argmax``) or giving it to the next network of the block is as good
as before. Arithmetic by hand loses digits, and NumPy, buffers of fp32 and other libraries do not
take bf16 at all. :class:`Half` finds the first such use.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeGuard

from autofast.facts.precision.activations import holds_output
from autofast.facts.precision.banned import AS_THEY_ARE, Probabilities
from autofast.facts.precision.full_outputs import NORMALIZE, FullOutputs
from autofast.facts.used_parameters import WITHOUT
from autofast.flow.scopes import mentions, scope_of
from autofast.flow.usage import Act, Usage
from autofast.flow.valueflow import Answer, ValueFlow, Verdict, first_reason
from autofast.model.calls import arguments_of, short_name
from autofast.model.kinds import is_loss, is_module
from autofast.model.names import last_part
from autofast.model.roles import Model
from autofast.model.script import Script
from autofast.model.several import surely, wordset
from autofast.model.source import Nodes, at, parent_of, source_of, statement_of
from autofast.model.syntax import SEQUENCES, is_read, is_unary
from autofast.model.values import (
    COLLECTIONS,
    OBJECTS,
    Bound,
    Ext,
    Func,
    Inst,
    Ref,
    Thing,
    Unknown,
    is_named,
)
from autofast.ops import autocast

# computed in fp32 by autocast on every device: torch/include/ATen/autocast_mode.h, the losses that
# were there in torch 2.0
FP32_LOSSES = wordset("""CrossEntropyLoss NLLLoss MSELoss L1Loss SmoothL1Loss BCEWithLogitsLoss KLDivLoss
    CosineEmbeddingLoss HingeEmbeddingLoss MarginRankingLoss MultiLabelMarginLoss
    MultiMarginLoss SoftMarginLoss TripletMarginLoss PoissonNLLLoss cross_entropy nll_loss
    mse_loss l1_loss smooth_l1_loss binary_cross_entropy_with_logits kl_div
    cosine_embedding_loss hinge_embedding_loss margin_ranking_loss multilabel_margin_loss
    multi_margin_loss soft_margin_loss triplet_margin_loss poisson_nll_loss""")
NUMBERS = wordset("""argmax argmin argsort multinomial eq ne lt gt le ge equal size dim numel nelement ndimension
    element_size item float double long int bool nonzero isnan isinf isfinite requires_grad_
    retain_grad register_hook is_contiguous stride""")
FACTS = wordset("shape ndim device is_cuda requires_grad grad_fn is_leaf layout")
MOVES = wordset("""detach detach_ data T mT view reshape flatten squeeze unsqueeze permute transpose t
    contiguous clone cpu cuda to expand expand_as repeat chunk split unbind narrow select
    index_select gather max min topk sort view_as relu abs neg clamp clamp_min clamp_max cat
    stack values items keys get copy pop mT unflatten movedim swapaxes roll flip masked_select
    squeeze_""")
# Give values and indices.
WITH_INDICES = wordset("max min topk sort kthvalue mode median")
LOOKS = wordset("isinstance len type id float int bool hasattr", "builtins.")
PASSES = wordset("tuple list iter reversed enumerate zip dict next", "builtins.")
RESULTS = wordset(
    "data T mT values indices loss logits last_hidden_state pooler_output hidden_states"
)  # attributes that hold tensors
DICTS = (ast.Dict, ast.Set, ast.DictComp)
IN_TORCH = ("torch.", "torch.nn.functional.", "torch.Tensor.")


class Half(ValueFlow[bool]):
    """Follows 16-bit tensors through a script; of a place, it has to know whether it is in a
    function that is called under autocast.

    ``inside`` are all nodes in the statements under autocast; ``target`` is the kind of
    device it is for; ``probabilities`` as in ``Code``.
    """

    def __init__(
        self,
        script: Script,
        inside: Nodes,
        target: str,
        probabilities: Probabilities = AS_THEY_ARE,
    ):
        super().__init__(script)
        self.around, self.cuda, self.logits = inside, target == "cuda", probabilities.logits
        self.full = FullOutputs(script, probabilities.full)
        self.networks = {id(m.thing): is_network(script, m) for m in script.models}

    def misuse(self, expr: ast.expr) -> str:
        """The first use of ``expr``, a 16-bit tensor made under autocast, that must not be; empty
        where there is none.
        """
        self._seen.clear()
        if self._is_full(expr):
            return ""
        entered, parent = expr not in self.around, parent_of(expr)
        match parent:
            case ast.Assign(targets=[ast.Tuple(elts=names)]) if parent.value is expr:
                half = (name for n, name in enumerate(names) if not self._is_full(expr, n))
                return first_reason(self.bind(name, entered) for name in half)
        return self.follow(expr, entered)

    def misuse_of_part(self, call: ast.Call, part: int, target: ast.Name) -> str:
        """The first use of a variable that gets a part of a 16-bit output under autocast, and that
        must not be.
        """
        self._seen.clear()
        return "" if self._is_full(call, part) else self.bind(target, target not in self.around)

    def _is_full(self, expr: ast.expr, part: int | None = None) -> bool:
        """Whether autocast computes it in fp32 anyway."""
        return self.cuda and self.full.is_full(expr, part)

    def is_of_losses(self, call: ast.Call) -> bool:
        """Whether all that a call may call are losses in the form of a module."""
        called = self.script.called(call)
        return bool(called) and not any(self.networks.get(id(t), True) for t in called)

    # -------------------------------------------------------------------------------------- one use
    def judge(self, use: Usage, context: bool) -> Answer:
        match use.act:
            case Act.ASKED:
                return self._asked(use, context)
            case Act.TAKEN if _is_index(use.node):
                return Verdict.STOPS
            case Act.FILLED if isinstance(parent_of(use.node), (ast.Assign, ast.Delete)):
                return self.lost(use) if self._is_tensor(use.expr) else Verdict.STOPS
            case Act.COMPARED | Act.TESTED | Act.DROPPED:
                return Verdict.STOPS
            case Act.CHOSEN if isinstance(use.node, ast.BoolOp):
                return Verdict.STOPS
            case Act.COMPUTED if not is_unary(use.node, ast.USub):
                return self.lost(use)
            case Act.HELD if isinstance(use.node, DICTS):
                return self.lost(use)
            case Act.TAKEN | Act.CHOSEN | Act.COMPUTED | Act.HELD:
                return Verdict.GOES_ON
            case Act.BOUND | Act.LOOPED | Act.RETURNED:
                return Verdict.GOES_ON
        return self.lost(use)

    def lost(self, use: Usage) -> str:
        return _bad(use.expr)

    def _asked(self, use: Usage, entered: bool) -> Answer:
        node, call = use.node, use.result
        assert isinstance(node, ast.Attribute)
        if node.attr in FACTS:
            return Verdict.STOPS
        if call is node:
            if node.attr in RESULTS:
                return Verdict.STOPS if node.attr == "loss" else Verdict.GOES_ON
            if surely(_has_fields(t) for t in self.script.values(node.value)):
                return Verdict.GOES_ON if self._holds_output(node) else Verdict.STOPS
            return _bad(node.value)
        if node.attr in NUMBERS or (node.attr == "to" and self._casts(call)):
            return Verdict.STOPS
        if node.attr in MOVES:
            return Verdict.GOES_ON
        if autocast(node.attr) == "fp32" and self.inside(node, entered) and self.cuda:
            return Verdict.STOPS
        return _bad(node.value)

    def _casts(self, call: ast.AST | None) -> bool:
        """``t.to(torch.float32)``"""
        given = arguments_of(call) if isinstance(call, ast.Call) else []
        return any(
            is_named(t, Ref, ("torch.float", "torch.float32", "torch.float64", "torch.double"))
            for a in given
            for t in self.script.values(a)
        )

    # ---------------------------------------------------------------------------------------- calls
    def inside(self, call: ast.AST, context: bool) -> bool:
        return context or call in self.around

    def outside(self, call: ast.Call, context: bool) -> bool:
        return False

    def given(self, use: Usage, callee: Thing, context: bool) -> Answer:
        call, here = use.node, self.inside(use.node, context)
        assert isinstance(call, ast.Call)
        if isinstance(callee, Ref):
            return self._by_library(call, callee.name, here) or self.lost(use)
        if isinstance(callee, (Func, Bound)):
            return Verdict.ENTERS
        if is_loss(callee):
            short = last_part(callee.name) if isinstance(callee, Ext) else ""
            fine = here and (short in FP32_LOSSES or call in self.logits)
        elif (
            isinstance(callee, Inst)
            and is_module(callee)
            and not self.networks.get(id(callee), True)
        ):
            return Verdict.ENTERS
        elif isinstance(callee, Unknown):  # the same model, loaded from a file
            others = self.script.called(call)
            fine = here and any(is_module(t) and not is_loss(t) for t in others)
        else:
            fine = here and isinstance(callee, OBJECTS) and is_module(callee)
        return Verdict.STOPS if fine else self.lost(use)

    def _by_library(self, call: ast.Call, name: str, here: bool) -> Verdict | None:
        short = last_part(name)
        if name in LOOKS:
            return Verdict.STOPS
        if name in PASSES or name == "torch.autograd.Variable":
            return Verdict.GOES_ON
        if not name.startswith(IN_TORCH):
            return None
        if (
            short in NUMBERS
            or (here and (short in FP32_LOSSES or call in self.logits))
            or (here and self.cuda and (autocast(short) == "fp32" or name == NORMALIZE))
        ):
            return Verdict.STOPS
        return Verdict.GOES_ON if short in MOVES else None

    # ---------------------------------------------------------------------------------------- names
    def reads(self, bound: ast.Name | ast.arg) -> Iterator[ast.Name]:
        return (n for n in super().reads(bound) if self._holds_output(n))

    def bind(self, target: ast.expr | ast.arg, context: bool) -> str:
        """``values`` in ``values, indices = t.topk(5)``."""
        if isinstance(target, SEQUENCES) and len(target.elts) == 2:
            made = getattr(parent_of(target), "value", None)
            if isinstance(made, ast.Call) and short_name(made.func) in WITH_INDICES:
                target = target.elts[0]
        return super().bind(target, context)

    def put(self, target: ast.Subscript, context: bool) -> str:
        container = target.value
        if not isinstance(container, ast.Name) or self._is_tensor(container):
            return _bad(target)
        loads = mentions(scope_of(target), container.id)
        return first_reason(self.follow(n, context) for n in loads if self._holds_output(n))

    def kept(self, target: ast.Attribute, context: bool) -> str:
        owners = self.script.values(target.value)
        return first_reason(
            self.follow(node, context)
            for node in self.script.each(ast.Attribute)
            if node.attr == target.attr
            and self.script.values(node.value) & owners
            and self._holds_output(node)
        )

    def _holds_output(self, read: ast.Name | ast.Attribute) -> bool:
        found = self.script.values(read)
        fields = (v for t in found if _has_fields(t) for vs in t.attrs.values() for v in vs)
        return is_read(read) and holds_output(frozenset((*found, *fields)))

    def _is_tensor(self, expr: ast.expr) -> bool:
        found = self.script.values(expr)
        return not found or any(not isinstance(t, COLLECTIONS) for t in found)


def _has_fields(thing: Thing) -> TypeGuard[Inst]:
    """An object that is no network: a dataclass of what one gives."""
    return isinstance(thing, Inst) and not is_module(thing)


def _bad(node: ast.expr) -> str:
    text = " ".join(source_of(node).segment(node).split())
    short = text if len(text) <= 40 else text[:37] + "..."
    return f"`{short}` would be a 16-bit number on {at(statement_of(node))}"


def _is_index(node: ast.AST) -> bool:
    """``t.max(1)[1]``"""
    return (
        isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Call)
        and short_name(node.value.func) in WITH_INDICES
        and isinstance(node.slice, ast.Constant)
        and node.slice.value in (1, -1)
    )


def is_network(script: Script, model: Model) -> bool:
    """A module with layers of its own that multiply matrices; not a loss or a post-processing step
    in the form of a module: pools, say, and kernels that nothing trains.
    """
    if not isinstance(model.thing, Inst):
        return True
    layers = {name for name in model.layers if not name.endswith("Loss")}
    trained = [o.params for o in script.optimizers]
    untrained = all(trained) and not any(model.thing in params for params in trained)
    return bool(layers - WITHOUT) or (bool(layers) and not untrained)
