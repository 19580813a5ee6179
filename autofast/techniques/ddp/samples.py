"""Whether a model treats the samples of a batch one by one: only then do parts of a batch give the
parts of the result.

What compares the samples with each other - a matrix product over the batch, a mean or a softmax
along its dimension - gives other values for a part of the batch than for the whole. Layers of torch
do not (but for the statistics of BatchNorm, which are those of the share); code of the project is
looked through, and what is not known in it is a refusal.
"""

from __future__ import annotations

import ast

from autofast.flow.callgraph import code_of
from autofast.model.calls import is_method, receiver_of
from autofast.model.events import BranchFrame, below
from autofast.model.kinds import is_loss, is_module
from autofast.model.names import last_part, makes_module
from autofast.model.script import Script
from autofast.model.several import surely, wordset
from autofast.model.source import at, function_of, nodes_in
from autofast.model.syntax import SEQUENCES, is_attribute, is_operation
from autofast.model.tensors import things_in
from autofast.model.values import (
    NOTHING,
    OBJECTS,
    Bound,
    Cls,
    Ext,
    Func,
    Inst,
    Method,
    Ref,
    Tensor,
    Thing,
    any_of,
    const,
    of_kind,
)
from autofast.ops import by_element
from autofast.ops.families import PAIRED
from autofast.rule import Refusal

# Besides operations on each element: what keeps the samples apart, or asks for no numbers.
APART = wordset("""adaptive_avg_pool1d adaptive_avg_pool2d adaptive_max_pool2d affine_grid alpha_dropout
    arange as_tensor avg_pool1d avg_pool2d avg_pool3d batch_norm bernoulli bool bucketize
    cat checkpoint chunk concat contiguous conv1d conv2d conv3d conv_transpose1d
    conv_transpose2d copy_ cpu cuda data detach detach_ device dim double dropout dropout1d
    dropout2d dropout3d dtype embedding empty empty_like enable_grad expand expand_as
    feature_dropout fill_ finfo flatten flatten_parameters float fold full full_like gather
    get_device glu grid_sample group_norm half index_select instance_norm int interpolate
    is_cuda is_floating_point item layer_norm linear linspace local_response_norm
    log_sigmoid long max_pool1d max_pool2d max_pool3d meshgrid narrow ndim new_full new_ones
    new_zeros no_grad normal_ numel numpy numpy_T one_hot ones ones_like outer pad
    pixel_shuffle pixel_unshuffle prelu rand rand_like randn randn_like repeat
    repeat_interleave requires_grad_ reshape scaled_dot_product_attention shape size slice
    split squeeze stack sum_to_size tensor to tril triu type type_as unbind unflatten unfold
    uniform_ unsqueeze upsample view view_as zero_ zeros zeros_like""")
REDUCTIONS = wordset("""mean sum std var max min amax amin argmax argmin softmax log_softmax logsumexp norm
    normalize cumsum cumprod prod sort argsort topk median all any cosine_similarity vector_norm
    kthvalue flip roll softmin gumbel_softmax""")
LOSSES = ("cross_entropy", "binary_cross_entropy", "kl_div", "binary_cross_entropy_with_logits")
TURNS = wordset("permute transpose t swapaxes swapdims movedim moveaxis rearrange T mT")
MATRIX = wordset("matmul mm bmm dot baddbmm addmm einsum cdist inner tensordot kron")
PYTHON = wordset(
    """len range int float bool str print isinstance list tuple dict enumerate zip min max
    abs sum getattr hasattr reversed sorted super type any all round map set format id repr next
    iter""",
    "builtins.",
)
LIBRARIES = ("torchvision.models.", "timm.", "torch.nn.")


def check_forward(script: Script, module: Thing) -> bool:
    """Raises :class:`Refusal` where a module may mix samples; whether the batch may be another
    dimension than the first inside it.
    """
    turned = False
    seen: set[int] = set()
    todo: list[Thing] = [module]
    while todo:
        thing = todo.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, Inst):
            functions = thing.cls.methods("forward")
            if not functions and not any(
                n.startswith("torch.nn.") and n != "torch.nn.Module" for n in thing.cls.external
            ):
                raise Refusal(f"what {thing.cls.node.name} computes is not known")
            for func in functions:
                turned |= _function(script, func.node, todo, seen)
        elif isinstance(thing, Ext):
            if not thing.name.startswith(LIBRARIES) and thing.name not in ("torch.compile",):
                raise Refusal(
                    f"whether {thing.name} treats the samples of a batch one by one is not known"
                )
            layer = thing.name.removeprefix("torch.nn.")
            if layer in PAIRED or layer.startswith("Transformer"):
                turned |= const(thing.arg("batch_first")) is not True
            given = things_in(*thing.args.each)
            todo.extend(t for t in given if is_module(t))
    return turned


def _function(script: Script, function: ast.AST, todo: list[Thing], seen: set[int]) -> bool:
    if id(function) in seen:
        return False
    seen.add(id(function))
    turned = False
    products: list[ast.AST] = []
    for node in ast.walk(function):
        if (
            node is not function
            and isinstance(node, (ast.Lambda, ast.FunctionDef))
            and function_of(node) is not function
        ):
            continue
        if not script.reached(node) and not isinstance(node, ast.Call):
            continue
        if is_operation(node, ast.MatMult):
            products.append(node)
        elif is_attribute(node, "T", "mT") and _is_activation(script, node.value):
            turned |= True
            if node.attr == "T":
                products += _products(script, function)
        elif isinstance(node, ast.Call) and script.called(node):
            turned |= _call(script, node, function, todo, seen, products)
    if (
        turned
        and (mixing := next((p for p in products if _both(script, p)), None)) is not None
        and _turns_batch(script, function)
    ):
        raise Refusal(
            f"the product on {at(mixing)} may compare the samples of a batch with each other"
        )
    return turned


def _products(script: Script, function: ast.AST) -> list[ast.AST]:
    return [n for n in nodes_in(function, ast.BinOp) if is_operation(n, ast.MatMult)]


def _both(script: Script, product: ast.AST) -> bool:
    """Both factors depend on the samples."""
    if isinstance(product, ast.BinOp):
        return _is_activation(script, product.left) and _is_activation(script, product.right)
    return True


def _is_activation(script: Script, expr: ast.expr) -> bool:
    found = script.values(expr)
    return not found or any(not (isinstance(t, Tensor) and t.param) for t in found)


def _turns_batch(script: Script, function: ast.AST) -> bool:
    """The first dimension is moved somewhere in the function."""
    for node in ast.walk(function):
        if is_attribute(node, "T") and _is_activation(script, node.value):
            return True
        if is_method(node) and node.func.attr in TURNS:
            if not _is_activation(script, node.func.value):
                continue
            given = [a for a in node.args if not isinstance(a, ast.Starred)]
            dims = [script.constant(a) for a in given]
            name = node.func.attr
            if script.may_be(node.func.value, Ref):
                dims = dims[1:]
            if name == "permute":
                if len(dims) == 1 and isinstance(given[-1], SEQUENCES):
                    dims = [script.constant(e) for e in given[-1].elts]
                if not dims or dims[0] != 0:
                    return True
            elif (
                name in ("t", "rearrange", "movedim", "moveaxis")
                or 0 in dims
                or ... in dims
                or not dims
            ):
                return True
    return False


def _call(
    script: Script,
    call: ast.Call,
    function: ast.AST,
    todo: list[Thing],
    seen: set[int],
    products: list[ast.AST],
) -> bool:
    turned = False
    for callee in script.called(call):
        if is_loss(callee):
            raise Refusal(
                f"the model computes its loss itself ({at(call)}): return the outputs and compute the loss outside"
            )
        if is_module(callee):
            todo.append(callee)
        elif isinstance(callee, (Func, Bound)):
            turned |= _function(script, code_of(callee)[0].function, todo, seen)
        elif isinstance(callee, (Ref, Method)):
            turned |= _named(script, call, callee.name, isinstance(callee, Method), products)
        elif isinstance(callee, Cls) or not isinstance(callee, OBJECTS):
            raise Refusal(
                f"what `{ast.unparse(call.func)}(...)` on {at(call)} does with the samples of a batch is not known"
            )
    return turned


def _named(
    script: Script, call: ast.Call, name: str, method: bool, products: list[ast.AST]
) -> bool:
    short = last_part(name)
    if not method and not name.startswith("torch."):
        if name in PYTHON or name.startswith(("math.", "builtins.", "warnings.", "logging.")):
            return False
        raise Refusal(f"what {name} on {at(call)} does with the samples of a batch is not known")
    of = receiver_of(call)
    whose = NOTHING if of is None else script.values(of)
    if method and of is not None and not any_of(whose, Tensor):
        if not any(is_module(t) for t in whose):
            return False  # a list, a string
    if short.endswith("_loss") or short in LOSSES:
        raise Refusal(
            f"the model computes its loss itself ({at(call)}): return the outputs and compute the loss outside"
        )
    if short in TURNS:
        return True
    if short == "einsum":
        _einsum(script, call)
        return False
    if short in MATRIX:
        if short in ("cdist", "tensordot", "inner", "kron"):
            raise Refusal(
                f"{short} on {at(call)} may compare the samples of a batch with each other"
            )
        products.append(call)
        return False
    if short in REDUCTIONS:
        rest = call.args if method else call.args[1:]
        if not any(
            _is_activation(script, a) for a in (call.args[:1] if not method else filter(None, [of]))
        ):
            return False
        each = short in ("normalize", "cosine_similarity") or (
            short in ("max", "min") and rest and isinstance(script.constant(rest[0]), (int, float))
        )
        if not each and first_dim(script, call, rest) is not False:
            raise Refusal(
                f"`{short}` on {at(call)} may go over the samples of a batch: each process has only a part of them"
            )
        return False
    if name == "torch.nn.parallel.data_parallel":
        if not _optional(script, call):
            raise Refusal(
                f"data_parallel on {at(call)} spreads the model over all GPUs itself: call the module instead"
            )
        return False
    if makes_module(name):
        return False  # what is made here is looked at where it is called
    if is_apart(short) or name.startswith(
        ("torch.cuda.", "torch.nn.init.", "torch.nn.Parameter", "torch.autocast", "torch.amp.")
    ):
        return False
    raise Refusal(f"what `{short}` on {at(call)} does with the samples of a batch is not known")


def is_apart(short: str) -> bool:
    """Whether a function or method keeps the samples apart."""
    return short in APART or by_element(short)


def _optional(script: Script, call: ast.Call) -> bool:
    """Only under a condition, as for an option that asks for several GPUs."""
    return surely(
        any(not f.known for f in of_kind(below(o.stack, function_of(call)), BranchFrame))
        for o in script.log.ways("torch.nn.parallel.data_parallel", call)
    )


def _einsum(script: Script, call: ast.Call) -> None:
    equation = script.constant(call.args[0]) if call.args else ...
    if isinstance(equation, str) and "->" in equation:
        left, right = equation.replace(" ", "").split("->")
        if right and all(
            not _is_activation(script, a) or part[:1] == right[0]
            for part, a in zip(left.split(","), call.args[1:], strict=False)
        ):
            return
    raise Refusal(f"einsum on {at(call)} may compare the samples of a batch with each other")


def first_dim(script: Script, call: ast.Call, arguments: list[ast.expr]) -> bool | None:
    """Whether an operation goes along the first dimension: True, False, or None where no dimension
    is named (it goes over all).
    """
    named = next((k.value for k in call.keywords if k.arg in ("dim", "axis", "dims")), None)
    expr = named if named is not None else next((a for a in arguments if _is_dims(script, a)), None)
    if expr is None:
        return None
    elements = expr.elts if isinstance(expr, SEQUENCES) else [expr]
    dims = [script.constant(e) for e in elements]
    if dims == [None]:
        return None
    if all(isinstance(d, int) and (d > 0 or d == -1) for d in dims):
        return False
    last = sorted(of_kind(dims, int)) == list(range(-len(dims), 0))
    return not (last and 1 < len(dims) < 4)


def _is_dims(script: Script, expr: ast.expr) -> bool:
    if isinstance(expr, SEQUENCES):
        return surely(isinstance(script.constant(e), int) for e in expr.elts)
    value = script.constant(expr)
    return type(value) is int
