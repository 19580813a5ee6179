"""The kinds of tensors: what their methods make of the share of a batch."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import replace

from autofast.flow.callgraph import Callee, CallGraph
from autofast.model.calls import is_method, keyword_of, receiver_of, spread_out
from autofast.model.script import Script
from autofast.model.several import surely, wordset
from autofast.model.source import Nodes
from autofast.model.syntax import SEQUENCES
from autofast.model.values import Tensor, Thing
from autofast.ops import by_element
from autofast.techniques.ddp.names import Training
from autofast.techniques.ddp.uniformity.kinds import (
    BATCH,
    EQUAL,
    KEEPING,
    LINEAR,
    NONE,
    PER_ROW,
    SIZE,
    Called,
    Given,
    Kind,
    add,
    of,
    other,
    over,
    reduced,
    times,
)
from autofast.techniques.ddp.uniformity.state import State

# Asked of a tensor, and the same in all processes; these and the sizes are no tensors.
ALIKE = wordset("dim ndimension get_device is_floating_point element_size")
COMPUTES = {
    name: do
    for do, names in (
        (add, "add add_ sub sub_ __add__"),
        (times, "mul mul_"),
        (over, "div div_ true_divide"),
    )
    for name in names.split()
}
SIZED = wordset("view reshape expand repeat to")  # may be given a number of samples
# Layers as functions, which go over the first dimension one by one.
BY_SAMPLE = wordset(
    "interpolate pad max_pool2d avg_pool2d adaptive_avg_pool2d conv2d linear relu embedding "
    "layer_norm batch_norm"
)
Follow = Callable[[ast.expr, Kind], Kind]


class Followed:
    """What the parts of the walk share; :class:`.walk.Walk` has it all."""

    script: Script
    training: Training
    calls: CallGraph
    kinds: dict[ast.AST | None, Kind]
    passes: Nodes  # the calls of models that train
    guarded: list[ast.AST]  # what is done by one process now
    random_data: set[int]  # datasets whose items are random
    state: State

    # what Walk has
    things: Callable[[ast.expr], list[Thing]]
    lookup: Callable[[ast.Name], Kind]
    store: Callable[[ast.expr, Kind], None]
    call_function: Callable[[Callee, ast.Call | None, Given], Kind]
    read: Follow
    settle: Callable[..., None]
    under: Callable[[ast.expr, Kind], None]
    leave: Callable[[], None]
    happens: Callable[[ast.AST], None]
    changes: Callable[[ast.AST], None]
    first_value: Callable[[ast.expr], None]
    kept: Follow
    draws: Callable[[ast.AST], None]
    contents: Callable[[Thing, set[str] | None], Kind]
    met: Callable[[ast.expr, Kind], None]
    outside: Callable[[ast.Call], Kind | None]
    files: Callable[[ast.Call, str], None]
    step: Callable[[], None]
    ev: Callable[[ast.expr | None], Kind]
    element: Follow
    _read_whole: Follow
    _text: Callable[[Iterable[ast.expr]], Kind]
    _forward: Callable[[Called], Kind]
    _opaque: Callable[[Iterable[Kind], str], Kind]
    _put: Callable[[Called], None]


class Tensors(Followed):
    """Methods of tensors, and the functions of the same names."""

    def _tensor(self, name: str, kind: Kind, call: Called) -> Kind:
        """A method of a tensor, or the function of the same name."""
        node, args, kinds = call.node, call.args, call.wholes
        receiver = node.args[0] if call.shift else receiver_of(node)
        if worse := next((k for k in (kind, *kinds) if k.name == "other"), None):
            return worse
        if name in ("item", "tolist") or (name == "numpy" and kind.name != "batch"):
            assert receiver is not None
            return self._read_whole(receiver, kind)
        if name in ALIKE or name in ("size", "numel", "nelement", "stride"):
            return self._size(name, node, kind)
        if name in COMPUTES and args and not call.shift:
            found = COMPUTES[name](kind, args[0])
            if name.endswith("_") and receiver is not None and not isinstance(receiver, ast.Call):
                self.store(receiver, found)
            return found
        if kind.name in ("mean", "sum"):
            linear = name in LINEAR and all(k.same for k in kinds)
            if linear and not kind.sized:
                return kind
            return other(f"`{name}` of a part of a larger number")
        if any(k.name in ("mean", "sum") for k in kinds) and name not in SIZED:
            return other("samples and a part of a number are mixed")
        return self._of_batch(name, kind, call)

    def _size(self, name: str, node: ast.Call, kind: Kind) -> Kind:
        if kind.name != "batch":
            return EQUAL
        if kind.axis == "some":
            return EQUAL if name in ALIKE else other("the number of some samples")
        if name in ("numel", "nelement"):
            return SIZE
        if name != "size":
            return EQUAL
        if not node.args:
            return replace(BATCH, axis=kind.axis, shape=True)
        dim = self.script.constant(node.args[0])
        if isinstance(dim, int) and dim < 0 and self._is_image(node):
            dim += 4
        if not isinstance(dim, int) or kind.axis not in (0, 1) or dim < 0:
            return other("the size of a batch")
        return SIZE if dim == kind.axis else EQUAL

    def _is_image(self, node: ast.Call) -> bool:
        found = self.things(node.func.value) if is_method(node) else []
        return surely(isinstance(t, Tensor) and t.rank == "4d" for t in found)

    def _of_batch(self, name: str, kind: Kind, call: Called) -> Kind:
        node, args, shift = call.node, call.args, call.shift
        if kind.shape:
            return other("the shape of a batch")
        if name in ("sum", "mean", "nanmean", *PER_ROW) and not (
            name in ("max", "min") and any(k.whole.name == "batch" for k in args)
        ):
            position = 1 if name in ("topk", "norm") else 0
            keepdim = keyword_of(node, "keepdim")
            keeps = keepdim is not None and self.script.constant(keepdim) is True
            return reduced(name, kind, self._dims(node, position + shift), keeps)
        if name == "masked_select":
            return replace(kind, axis="some")
        if name in ("view", "reshape", "flatten"):
            return self._reshaped(name, kind, node.args[shift:])
        if name in ("t", "T"):
            return replace(kind, axis={0: 1, 1: 0}.get(kind.axis, "?"))  # type: ignore[call-overload]
        if name in ("expand_as", "view_as", "reshape_as") and args:
            if args[0].whole.name == "batch":
                return args[0].whole
            return other("the shapes are not known")
        if name == "unsqueeze":
            dim = self._dims(node, shift)
            if not isinstance(dim, int) or not isinstance(kind.axis, int):
                return other("the shapes are not known")
            return replace(kind, axis=kind.axis + 1) if 0 <= dim <= kind.axis else kind
        if name == "squeeze":
            return kind if kind.axis == 0 else other("the shapes are not known")
        if name in ("items",):
            return Kind("iter", items=(of(EQUAL, kind),))
        if name in ("values", "keys", "get"):
            if name != "get":
                return Kind("iter", items=(kind if name == "values" else EQUAL,))
            return kind
        if name in ("permute", "transpose"):
            dims = [self.script.constant(a) for a in node.args[shift:]]
            if name == "permute":
                fixed = dims and dims[0] == 0
            else:
                fixed = all(isinstance(d, int) and d != 0 for d in dims)
            return kind if kind.axis == 0 and fixed else other("the shapes are not known")
        if name in KEEPING or by_element(name):
            axes = {k.whole.axis for k in args if k.whole.name == "batch"} - {kind.axis}
            return kind if not axes else other("the shapes are not known")
        if name in ("backward", "retain_grad", "register_hook"):
            return NONE
        if name in BY_SAMPLE or name in ("repeat", "expand"):
            fixed = kind.axis == 0 and name in BY_SAMPLE
            return kind if fixed else other("the shapes are not known")
        return other(f"what `{name}` makes of a batch")

    def _dims(self, node: ast.Call, position: int) -> object:
        """The dimension that a call is given: None, a number, a tuple; ``...`` where it is not
        known.
        """
        expr = keyword_of(node, "dim") or keyword_of(node, "axis")
        if expr is None and len(node.args) > position:
            expr = node.args[position]
        if expr is None:
            return None
        if isinstance(expr, SEQUENCES):
            return tuple(self.script.constant(e) for e in expr.elts)
        return self.script.constant(expr)

    def _reshaped(self, name: str, kind: Kind, args: list[ast.expr]) -> Kind:
        given = spread_out(args)
        dims = [self.script.constant(g) for g in given]
        if name == "flatten":
            start = dims[0] if dims else 0
            if start == 0:
                return replace(kind, axis="flat")
            if kind.axis == 0:
                return kind
            return other("the shapes are not known")
        if dims == [-1]:
            return replace(kind, axis="flat") if kind.axis != "flat" else kind
        if len(dims) == 2 and dims[0] == 1 and dims[1] == -1 and kind.axis == 0:
            return replace(kind, axis=1)
        rows = dims and (dims[0] == -1 or self.kinds.get(given[0], EQUAL).sized)
        if rows and kind.axis in (0, "flat"):
            return replace(kind, axis=0)
        return other("the shapes are not known")


def is_tensor(script: Script, expr: ast.expr) -> bool:
    """Certainly no tuple, list or dict."""
    return surely(isinstance(t, Tensor) and t.rank != "?" for t in script.values(expr))
