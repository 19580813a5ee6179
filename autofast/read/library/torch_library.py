"""What the library's objects do when they are called or asked for an attribute: the way into the knowledge of torch."""

from __future__ import annotations

import ast
from dataclasses import replace

from autofast.model import names
from autofast.model.calls import call_of
from autofast.model.kinds import (
    is_classmethod,
    is_dataset,
    is_loader,
    is_loss,
    is_module,
)
from autofast.model.names import (
    AUTOCAST,
    FACTORIES,
    FUNCTIONAL_LOSSES,
    NO_GRAD,
    WRAPPERS,
)
from autofast.model.tensors import (
    DTYPE,
    device_kinds,
    is_unknown_in,
    kind_asked,
    mixed,
    tensors_in,
)
from autofast.model.values import (
    NOTHING,
    SOMEWHERE,
    Arguments,
    Bound,
    Cls,
    Const,
    Dict,
    Ext,
    Func,
    Given,
    Inst,
    Method,
    Num,
    Ref,
    Seq,
    Tensor,
    Thing,
    Unknown,
    Values,
    const,
    joined,
    one,
    result_of,
)
from autofast.model.values import things as values
from autofast.ops import is_in_place, op
from autofast.read.library import (
    apex,
    distributions,
    hugging_face_data,
    model_zoo,
    module_parts,
    protocols,
)
from autofast.read.library import python_library as pylib
from autofast.read.library.containers import (
    named_tuple,
)
from autofast.read.library.iteration import (
    loss_of,
)
from autofast.read.library.methods import call_method
from autofast.read.library.modules import forward, loss
from autofast.read.library.tensor_results import result, result_dtype
from autofast.read.state.core import Core

# Attributes of tensors that are not called.
OF_TENSORS = frozenset("grad_fn is_leaf itemsize nbytes is_sparse is_quantized is_meta".split())


def attribute(interp: Core, thing: Thing, name: str, node: ast.AST | None) -> Values:
    if isinstance(thing, Tensor):
        if name == "loss" and (thing.loss_first or thing.rank == "?" and thing.models):
            return values(loss_of(thing))
        if name in ("data", "T", "mT", "real", "imag", "H"):
            dtype = "?" if name in ("real", "imag") and thing.dtype == "complex" else thing.dtype
            return values(thing.but(grad=thing.grad and name != "data", dtype=dtype))
        if name == "grad":
            interp.emit("grad_read", node, thing)
            return values(Tensor(param="grad" if thing.param else "", device=thing.device))
        if name == "device":
            return values(
                interp.intern(
                    Ext,
                    ("device", thing.device),
                    lambda: Ext(
                        "torch.device",
                        None,
                        Arguments(None),
                        {
                            "kind": values(
                                Const({"cpu": "cpu", "dev": "accel"}.get(thing.device, "?"))
                            )
                        },
                    ),
                )
            )
        if name == "dtype":
            return values(Num(pattern=DTYPE))
        if name in ("shape", "ndim", "is_cuda", "requires_grad", "names", "layout"):
            return values(Num())
        # Of `x.max(1)`, where it is not known whether it is a pair.
        if name in ("values", "indices") and (node is None or call_of(node) is None):
            return values(thing if name == "values" else thing.but(grad=False, dtype="int"))
        if thing.rank == "?" and _is_part(name, node):
            if name.startswith("num_"):
                return values(Num())
            return values(thing.but(rank="", fresh="", loss_first=False))
    if isinstance(thing, Ext):
        if thing.name == "builtins.super":
            return _super_attribute(interp, thing, name, node)
        if thing.name == "argparse.Namespace":
            return values(Unknown(f"the option `{name}` is not declared in this project"))
        if thing.name in ("torch.nn.ModuleDict", "torch.nn.ParameterDict"):
            table = one(thing.args.get(0, "modules"))
            if isinstance(table, Dict) and name in table.entries:
                return table.get(name)
        if name == "_modules" and thing.name in names.CONTAINERS and not thing.open:
            return module_parts.table(interp, thing)
        if thing.name in WRAPPERS and name == "module":
            return thing.args.get(0, "module")
        if thing.name == "torch.device":
            return values(Num())
        if thing.name in WRAPPERS:
            found: Values = NOTHING
            for inner in thing.args.get(0, "module"):
                if isinstance(inner, Inst) and (name in inner.attrs or inner.cls.find(name)):
                    found |= interp.attribute(inner, name, node)
            if found:
                return found
        if is_loader(thing) or is_dataset(thing):
            if name in ("dataset", "datasets"):
                return thing.args.get(0, "dataset") or values(Unknown("its dataset is not known"))
            if name in (
                "batch_size",
                "num_workers",
                "sampler",
                "batch_sampler",
                "collate_fn",
            ) and thing.arg(name):
                return thing.arg(name)
        if (computed := distributions.attribute(thing, name)) is not None:
            return computed
        if is_module(thing) and name in ("weight", "bias"):
            return values(Tensor(param="param", grad=True))
        if thing.name == "torch.utils.data.TensorDataset" and name == "tensors":
            return values(
                Seq(
                    None,
                    None,
                    frozenset().union(*(g.values for g in thing.args.positional))
                    if thing.args.positional
                    else NOTHING,
                )
            )
    return values(Method(thing, name))


def _is_part(name: str, node: ast.AST | None) -> bool:
    """``outputs.logits``: an attribute that is read and not called, and that no tensor has."""
    called = node is not None and call_of(node) is not None
    return not called and not name.startswith("_") and name not in OF_TENSORS


def _super_attribute(interp: Core, thing: Ext, name: str, node: ast.AST | None) -> Values:
    this = one(thing.attrs["__this__"])
    owner = thing.made[0]
    cls = this.cls if isinstance(this, Inst) else this if isinstance(this, Cls) else owner
    found = cls.find(name, owner)
    if found and isinstance(this, Inst):
        return interp.bind_members(found, this, node)
    if found and isinstance(this, Cls):
        return frozenset(
            Bound(t, this) if isinstance(t, Func) and is_classmethod(t) else t for t in found
        )
    return values(Method(thing, name))


# ------------------------------------------------------------------------------------------------ calls
def call(interp: Core, thing: Thing, args: Arguments, node: ast.AST | None) -> Values:
    """Calling anything that is not a function or class of the project."""
    if isinstance(thing, Ref):
        return call_ref(interp, thing.name, args, node)
    if isinstance(thing, Method):
        return call_method(interp, thing.this, thing.name, args, node)
    if (meant := protocols.referred(thing)) is not None:
        return meant
    if isinstance(thing, Ext) and thing.name == "collections.namedtuple":
        return named_tuple(interp, thing, args, node)
    if isinstance(thing, Ext):
        if is_loss(thing):
            return loss(interp, thing, args, node)
        if is_module(thing):
            return forward(interp, thing, args, node)
        if thing.name in names.CHAINS and not args.named:
            return _chain(interp, thing, args, node)
        if thing.name == "torch.utils.data.DataLoader" or thing.name.startswith("torchvision."):
            return values(Unknown(f"{thing.name} objects are not functions"))
        given = [g.values for g in args.every]
        tensors = tensors_in(*given)
        interp.emit("call_object", node, thing, args)
        return (
            values(mixed(tensors))
            if tensors and not thing.name.startswith("torch.autograd")
            else values(Unknown(f"what {thing.name} returns"))
        )
    if isinstance(thing, Unknown):
        interp.emit("call_unknown", node, thing, args)
        tensors = tensors_in(*(g.values for g in args.every))
        if any(t.batch or t.models for t in tensors):
            return values(
                mixed(
                    tensors,
                    batch=frozenset(),
                    models=frozenset().union(*(t.models for t in tensors)) | {thing},
                    grad=interp.grad_on(),
                    rank="?",
                )
            )
        return values(thing)
    return values(Unknown("what a call of it returns"))


def _chain(interp: Core, thing: Ext, args: Arguments, node: ast.AST | None) -> Values:
    """``Compose([...])(x)``: each transform gets what the one before it gave."""
    parts = one(thing.args.get(0, "transforms"))
    exact = parts.exact if isinstance(parts, Seq) else None
    if exact is None or thing.args.open:
        return values(Unknown(f"which transforms {thing.name} holds"))
    for part in exact:
        found = interp.call_values(part, args, node)
        args = Arguments(node, [Given(found, None)])
    return args.positional[0].values if args.positional else NOTHING


def call_ref(interp: Core, name: str, args: Arguments, node: ast.AST | None) -> Values:
    root, _, short = name.rpartition(".")
    if short in protocols.SPELLED:  # `object.__setattr__(x, name, value)`
        name = protocols.SPELLED[short]
    interp.emit(name, node, Ref(name), args)
    if name in names.GENERATORS:
        return make(interp, name, args, node)
    if hugging_face_data.is_made(name):
        return make(interp, name, args, node)
    if name in model_zoo.MAKERS:
        own = model_zoo.create(interp, args, node)
        others = not own or model_zoo.is_option(args)
        return own | make(interp, "timm.create_model", args, node) if others else own
    if name in names.GRAPH_LOADERS:
        collate = Given(values(result_of(names.GRAPHS)), None)
        named = {**args.named, "collate_fn": collate}
        return make(interp, names.LOADER, replace(args, named=named), node)
    if (done := pylib.call(interp, name, args, node)) is not None:
        return done
    if name.startswith("apex.amp.") and (done := apex.call(interp, name, args, node)) is not None:
        return done
    root, _, short = name.rpartition(".")
    if short in (
        "Process",
        "Thread",
        "spawn",
        "start_processes",
    ) and "target" in args.named | dict.fromkeys(
        ["target"] if short in ("spawn", "start_processes") else []
    ):
        return _other_process(interp, short, args, node)
    if root in (
        "torch",
        "torch.nn.functional",
        "torch.Tensor",
        "torch.nn.init",
        "torch.cuda",
        "torch.cuda.FloatTensor",
        "torch.fft",
    ):
        return torch_function(interp, name, short, args, node)
    if name == "torch.nn.parallel.data_parallel":
        given = args.get(1, "inputs")
        return interp.call_values(
            args.get(0, "module"), Arguments(None, [Given(given, None)]), node
        )
    if name == "torch.autograd.Variable":
        return frozenset(
            t.but(grad=False) if isinstance(t, Tensor) else t for t in args.get(0, "data")
        )
    if name in ("torch.autograd.grad", "torch.autograd.functional.jacobian", "torch.func.grad"):
        return values(
            Seq(
                node,
                None,
                values(mixed(tensors_in(args.get(1, "inputs")) or [Tensor()], grad=True)),
            )
        )
    if name.startswith(names.ON_A_MODULE):
        return args.get(0, "module")  # the module itself, with other parameters or layers
    if name == "torch.autograd.backward":
        roots: list[Tensor | None] = [*tensors_in(args.get(0, "tensors"))] or [None]
        for t in roots:
            interp.emit(".backward", node, t, args)
        return values(Const(None))
    if name in ("torch.nn.Parameter", "torch.nn.parameter.Parameter"):
        return values(
            Tensor(
                param="param",
                grad=True,
                dtype=next((t.dtype for t in tensors_in(args.get(0, "data"))), "?"),
            )
        )
    if name == "torch.compile" and not args.positional and "model" not in args.named:
        return values(Ext("torch.compile.decorator", node, args))
    if name == "torch.utils.data.random_split":
        made = make(interp, name, args, node)
        return values(interp.intern(Seq, (id(node), "split"), lambda: Seq(node, None, made)))
    if name == "torch.accelerator.current_accelerator":
        return values(
            interp.intern(
                Ext,
                (id(node), "accel"),
                lambda: Ext(
                    "torch.device", node, Arguments(None), {"kind": values(Const("accel"))}
                ),
            )
        )
    if name == "torch.nn.utils.rnn.pack_padded_sequence" or name.startswith("torch.nn.utils.rnn."):
        tensors = tensors_in(*(g.values for g in args.positional))
        return values(mixed(tensors)) if tensors else values(Unknown(f"what {name} returns"))
    if (
        name.startswith("torchvision.models.")
        or names.makes_module(name)
        or names.is_tokenizer(name)
    ):
        return make(interp, name, args, node)
    if name == "peft.get_peft_model":
        return make(interp, name, args, node)
    if name == "accelerate.Accelerator.prepare":
        return values(Unknown("prepared by Accelerate"))
    if (
        short[:1].isupper()
        or name in ("torchvision.datasets.*", names.ANY_OPTIMIZER)
        or names.is_scheduler(name)
        or name in ("torch.device", "torch.autocast", *AUTOCAST, *NO_GRAD, "torch.set_grad_enabled")
    ):
        if name == "torch.set_grad_enabled" and node is not None and not _in_with(node):
            flag = const(args.get(0, "mode"))
            interp.grad_default = (
                "maybe" if flag is ... or interp.weak(()) else "on" if flag else "off"
            )
        return make(interp, name, args, node)
    tensors = tensors_in(*(g.values for g in args.every))
    if tensors and root.startswith(("torch", "einops", "torchvision", "kornia", "torchmetrics")):
        return values(mixed(tensors))
    if name.startswith("numpy."):
        return values(Num())
    return values(result_of(name))


def _other_process(interp: Core, short: str, args: Arguments, node: ast.AST | None) -> Values:
    """``Process(target=f, args=(...))`` and ``mp.spawn(f, args=(...))``: the function runs with these arguments."""
    target = args.named["target"].values if "target" in args.named else args.get(0, "fn")
    given: list[Given] = [] if short in ("Process", "Thread") else [Given(values(Num()), None)]
    single = one(args.named["args"].values) if "args" in args.named else one(args.get(1, "args"))
    if isinstance(single, Seq) and single.items is not None:
        given += [Given(item, None) for item in single.items]
    elif isinstance(single, Const) and isinstance(single.value, tuple):
        given += [Given(values(Const(v)), None) for v in single.value]
    interp.emit("process", node, None, args)
    interp.call_values(target, Arguments(None, given), node)
    return values(Num())


def _in_with(node: ast.AST) -> bool:
    parent = getattr(node, "_af_parent", None)
    return isinstance(parent, (ast.withitem, ast.FunctionDef, ast.AsyncFunctionDef))


def make(interp: Core, name: str, args: Arguments, node: ast.AST | None) -> Values:
    """A new object of a library class."""

    def new() -> Ext:
        ext = Ext(name, node, args, {}, tuple(interp.stack))
        interp.made.append(ext)
        return ext

    ext: Ext = interp.intern(Ext, (id(node), name), new)
    ext.args = args if ext.args is args else joined([ext.args, args])
    interp.emit("new", node, ext, args)
    return values(ext)


def torch_function(
    interp: Core, name: str, short: str, args: Arguments, node: ast.AST | None
) -> Values:
    given = [g.values for g in args.every]
    tensors = tensors_in(*given)
    written = args.get(0, "self") if is_in_place(name) else args.get(-1, "out")
    for tensor in tensors_in(written) if name == f"torch.{short}" else ():
        interp.emit("inplace", node, tensor, args, name=short)
    if short in FACTORIES and name == f"torch.{short}":
        return values(_factory(short, args, node))
    if short in names.LEGACY_TENSORS:
        return values(
            Tensor(
                device="dev" if "cuda" in name else "cpu",
                dtype="f64" if short == "DoubleTensor" else "?",
                fresh=short,
                made=node,
            )
        )
    if short in ("from_numpy", "as_tensor"):
        return values(mixed(tensors) if tensors else Tensor(device="cpu", fresh=short, made=node))
    if short in FUNCTIONAL_LOSSES:
        return loss(interp, Ref(name), args, node)
    if short in ("sigmoid", "softmax"):
        made = mixed(tensors, prob=node or SOMEWHERE if short == "sigmoid" else None)
        return values(made.but(dtype=result_dtype(name, made.dtype, args)))
    if short in ("device",):
        return make(interp, "torch.device", args, node)
    if name in NO_GRAD or name in AUTOCAST or name in ("torch.set_grad_enabled", "torch.compile"):
        if name == "torch.compile" and not args.positional and "model" not in args.named:
            return values(Ext("torch.compile.decorator", node, args))
        if name == "torch.set_grad_enabled" and node is not None and not _in_with(node):
            flag = const(args.get(0, "mode"))
            interp.grad_default = (
                "maybe" if flag is ... or interp.weak(()) else "on" if flag else "off"
            )
        if name in ("torch.no_grad",) and any(isinstance(t, Func) for t in args.get(0, "func")):
            return args.get(0, "func")
        if name == "torch.compile" and not any(is_module(t) for t in args.get(0, "model")):
            return args.get(0, "model")
        return make(interp, name, args, node)
    if short == "load":
        return values(Unknown("it is loaded from a file"))
    if (
        short in ("mean", "sum")
        and len(given) == 1
        and given[0]
        and all(isinstance(t, Tensor) and t.rank != "?" for t in given[0])
    ):
        return values(mixed(tensors, rank="0d" if args.loose is None and not args.open else ""))
    if tensors:
        known = op(name)
        if known is not None and known.numbers:
            return values(Num())
        return result(interp, name, tensors, args, node)
    if short[:1].isupper():
        return make(interp, name, args, node)
    if short.startswith(("is_", "get_", "device_")) or short.endswith(("_count", "_available")):
        return values(Num())
    return values(result_of(name)) if is_unknown_in(*given) else values(Num())


def _default_dtype(short: str, args: Arguments) -> str:
    """What a factory makes without ``dtype=``: integers of integers, where it asks for them."""
    if short in ("randint", "randint_like", "randperm"):
        return "int"
    if short not in ("arange", "range", "full", "tensor"):
        return "f32"
    given = [g.values for g in args.positional]
    asked = given[1:2] if short == "full" else given[:1] if short == "tensor" else given
    kinds = {kind for found in asked for t in found for kind in _kinds(t)}
    if float in kinds and kinds <= {float, int, bool}:
        return "f32"
    return "int" if kinds and kinds <= {int, bool} and short != "range" else "?"


def _kinds(thing: Thing) -> set[type | None]:
    """The Python types of the numbers in a value; None among them for what is not known."""
    if isinstance(thing, Seq):
        return {kind for t in thing.any() for kind in _kinds(t)} or {float}
    if isinstance(thing, Const) and isinstance(thing.value, tuple):
        return {type(v) for v in thing.value}
    return {type(thing.value) if isinstance(thing, Const) else None}


def _factory(short: str, args: Arguments, node: ast.AST | None) -> Tensor:
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
