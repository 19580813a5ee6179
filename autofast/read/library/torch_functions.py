"""What functions of torch give."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import replace

from autofast.model import names
from autofast.model.kinds import is_module
from autofast.model.names import AUTOCAST, FACTORIES, FUNCTIONAL_LOSSES, NO_GRAD, last_part
from autofast.model.tensors import device_kinds, is_unknown_in, kind_asked, mixed, tensors_in
from autofast.model.values import (
    LOADED,
    NONE,
    NOTHING,
    NUMBER,
    SOMEWHERE,
    Arguments,
    Const,
    Ext,
    Func,
    Given,
    Ref,
    Seq,
    Tensor,
    Thing,
    Unknown,
    Values,
    Where,
    any_of,
    const,
    is_const,
    result_of,
    things as values,
)
from autofast.ops import is_in_place, op
from autofast.read.library.modules import loss
from autofast.read.library.table import gives_for, make
from autofast.read.library.tensor_results import result, result_dtype
from autofast.read.state.core import Core

ROOTS = "torch torch.nn.functional torch.Tensor torch.nn.init torch.cuda".split()
ROOTS += "torch.cuda.FloatTensor torch.fft".split()
MOVES = "to cuda cpu xpu type type_as float double half bfloat16 long int bool byte".split()
MOVES += "item tolist numpy".split()
GRADIENTS = ("torch.autograd.grad", "torch.autograd.functional.jacobian", "torch.func.grad")
# of what old constructors make; all others of them make integers
LEGACY = {"DoubleTensor": "f64", "FloatTensor": "f32", "HalfTensor": "half", "Tensor": "?"}
gives_for(*names.GENERATORS, *AUTOCAST, "peft.get_peft_model")(make)


@gives_for("torch.device", "torch.cuda.device")
def _device(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    return make(interp, "torch.device", args, node)


@gives_for(*NO_GRAD, "torch.set_grad_enabled")
def _gradient_mode(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    around = getattr(node, "_af_parent", None)
    if name == "torch.set_grad_enabled" and node is not None:
        if not isinstance(around, (ast.withitem, ast.FunctionDef, ast.AsyncFunctionDef)):
            flag = const(args.get(0, "mode"))
            unsure = flag is ... or interp.weak(())
            interp.grad_default = "maybe" if unsure else "on" if flag else "off"
    decorated = args.get(0, "func") if name == "torch.no_grad" else NOTHING
    if any_of(decorated, Func):
        return decorated
    return make(interp, name, args, node)


@gives_for("torch.compile")
def _compiled(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    if not args.positional and "model" not in args.named:
        return values(Ext("torch.compile.decorator", node, args))
    model = args.get(0, "model")
    return make(interp, name, args, node) if any(map(is_module, model)) else model


@gives_for(*(f"{root}.load" for root in ROOTS))
def _loaded(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    return values(LOADED)


@gives_for(*(f"torch.Tensor.{name}" for name in MOVES))
def _by_its_class(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    """``torch.Tensor.to(x, "cuda")``: another device or type, or no tensor any more."""
    return values(result_of(name))


@gives_for(*(f"{root}.*" for root in ROOTS))
def _operation(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    short = last_part(name)
    given = [g.values for g in args.every]
    tensors = tensors_in(*given)
    written = args.get(0, "self") if is_in_place(name) else args.get(-1, "out")
    direct = name in (f"torch.{short}", f"torch.Tensor.{short}")
    for tensor in tensors_in(written) if direct else ():
        interp.emit("inplace", node, tensor, args, name=short)
    if short in FACTORIES and name == f"torch.{short}":
        return values(_factory(short, args, node))
    if short in names.LEGACY_TENSORS:
        return values(
            Tensor(
                device="dev" if "cuda" in name else "cpu",
                dtype=LEGACY.get(short, "int"),
                fresh=short,
                made=node,
            )
        )
    if short in ("from_numpy", "as_tensor", "asarray"):
        made = mixed(tensors) if tensors else Tensor(device="cpu", fresh=short, made=node)
        return values(made.but(dtype=result_dtype(name, made.dtype, args)))
    if short in FUNCTIONAL_LOSSES:
        return loss(interp, Ref(name), args, node)
    if short in ("sigmoid", "softmax"):
        made = mixed(tensors, prob=node or SOMEWHERE if short == "sigmoid" else None)
        return values(made.but(dtype=result_dtype(name, made.dtype, args)))
    if (
        short in ("mean", "sum")
        and len(given) == 1
        and given[0]
        and all(isinstance(t, Tensor) and t.rank != "?" for t in given[0])
    ):
        return values(mixed(tensors, rank="0d" if args.known else ""))
    if tensors:
        known = op(name)
        if known is not None and known.numbers:
            return NUMBER
        return result(interp, name, tensors, args, node)
    if short[:1].isupper():
        return make(interp, name, args, node)
    if (known := op(name)) is not None and known.factory:  # `triu_indices`, `hann_window`
        made = _factory(short, args, node).but(fresh="")
        return values(made if "dtype" in args.named else made.but(dtype="?"))
    if short.startswith(("is_", "get_", "device_")) or short.endswith(("_count", "_available")):
        return NUMBER
    return values(result_of(name)) if is_unknown_in(*given) else NUMBER


@gives_for("torch.nn.parallel.data_parallel")
def _in_parallel(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    given = Given(args.get(1, "inputs"), None)
    return interp.call_values(args.get(0, "module"), Arguments(None, [given]), node)


@gives_for("torch.autograd.Variable")
def _variable(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    return frozenset(t.but(grad=False) if isinstance(t, Tensor) else t for t in args.get(0, "data"))


@gives_for(*GRADIENTS)
def _gradients(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    rank = "?" if "allow_unused" in args.named or args.open else ""  # None for what is not used
    made = mixed(tensors_in(args.get(1, "inputs")) or [Tensor()], grad=True, rank=rank)
    return values(Seq(node, None, values(made), "tuple"))


@gives_for(*(f"{name}**" if name.endswith(".") else name for name in names.ON_A_MODULE))
def _same_module(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    """The module itself, with other parameters or layers."""
    return args.get(0, "module")


@gives_for("torch.autograd.backward")
def _backward(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    roots: list[Tensor | None] = [*tensors_in(args.get(0, "tensors"))] or [None]
    for t in roots:
        interp.emit(".backward", node, t, args)
    return NONE


@gives_for("torch.nn.Parameter")
def _parameter(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    dtype = next((t.dtype for t in tensors_in(args.get(0, "data"))), "?")
    return values(Tensor(param="param", grad=True, dtype=dtype))


@gives_for("torch.nn.Embedding.from_pretrained", "torch.nn.EmbeddingBag.from_pretrained")
def _pretrained(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    """The layer; its constructor takes the sizes in place of the weights and ``freeze``."""
    if args.loose is not None:
        return values(result_of(name))
    size = Given(values(Unknown("a size of weights that are given")), None)
    freeze = args.given(1, "freeze") or Given(values(Const(True)), None)
    named = {k: g for k, g in args.named.items() if k not in ("embeddings", "freeze")}
    taken = [size, size, *args.positional[2:]]
    args = replace(args, positional=taken, named={**named, "_freeze": freeze})
    return make(interp, name.rpartition(".")[0], args, node)


@gives_for("torch.utils.data.random_split")
def _split(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    made = make(interp, name, args, node)
    return values(interp.intern(Seq, (node, "split"), lambda: Seq(node, None, made)))


@gives_for(*names.GRAPH_LOADERS)
def _loader_of_graphs(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    named = {**args.named, "collate_fn": Given(values(result_of(names.GRAPHS)), None)}
    return make(interp, names.LOADER, replace(args, named=named), node)


@gives_for("torch.accelerator.current_accelerator")
def _accelerator(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    kind = {"kind": values(Const("accel"))}
    return values(
        interp.intern(
            Ext, (node, "accel"), lambda: Ext("torch.device", node, Arguments(None), kind)
        )
    )


@gives_for("torch.nn.utils.rnn.**")
def _packed(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    tensors = tensors_in(*args.placed)
    made = mixed(tensors, sure=name.endswith(".pad_sequence"))
    return values(made if tensors else Unknown(f"what {name} returns"))


@gives_for("accelerate.Accelerator.prepare")
def _prepared(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    return values(Unknown("prepared by Accelerate"))


def _default_dtype(short: str, args: Arguments) -> str:
    """What a factory makes without ``dtype=``: integers of integers, where it asks for them."""
    if short in ("randint", "randint_like", "randperm"):
        return "int"
    if short not in ("arange", "range", "full", "tensor"):
        return "f32"
    given = [g.values for g in args.positional]
    asked = given[1:2] if short == "full" else given[:1] if short == "tensor" else given
    made = _of_all(map(_kind, asked))
    return "?" if made == "int" and short == "range" else made


def _kind(found: Values, around: tuple[Thing, ...] = ()) -> str:
    """What numbers there certainly are: ``f32`` of floats, or of floats among integers; ``int``;
    ``?`` where it may be one or the other, or is not known, as in a list that holds itself.
    """
    kinds = {_kind_of(t, around) for t in found}
    return kinds.pop() if len(kinds) == 1 else "?"


def _kind_of(thing: Thing, around: tuple[Thing, ...]) -> str:
    if isinstance(thing, Seq) and thing not in around:
        inner = (*around, thing)
        if thing.exact is None:
            return _kind(thing.any(), inner) if thing.any() else "f32"
        return _of_all(_kind(part, inner) for part in thing.exact) if thing.exact else "f32"
    numbers = thing.value if is_const(thing, tuple) else (getattr(thing, "value", None),)
    types = {type(n) for n in numbers} if isinstance(thing, Const) else {None}
    if not types <= {int, bool, float}:
        return "?"
    return "f32" if float in types else "int"


def _of_all(kinds: Iterable[str]) -> str:
    """What becomes of numbers of these kinds together."""
    found = set(kinds)
    return "?" if "?" in found or not found else "f32" if "f32" in found else "int"


def _factory(short: str, args: Arguments, node: Where) -> Tensor:
    like = tensors_in(args.get(0, "input")) if short.endswith("_like") else []
    where = args.named.get("device")
    device = like[0].device if like else "cpu"
    if where is not None:
        device = "cpu" if device_kinds(where.values) == {"cpu"} else "dev"
    if "dtype" in args.named:
        dtype = kind_asked(args.named["dtype"].values)
    else:
        dtype = like[0].dtype if like else _default_dtype(short, args)
    return Tensor(device=device, dtype=dtype or "?", fresh=short, made=node)
