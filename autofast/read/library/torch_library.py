"""What the library's objects do when they are called or asked for an attribute: the way into the
knowledge of torch.
"""

from __future__ import annotations

from autofast.model import names
from autofast.model.calls import call_of
from autofast.model.kinds import is_classmethod, is_dataset, is_loader, is_loss, is_module
from autofast.model.names import WRAPPERS, last_part
from autofast.model.several import wordset
from autofast.model.tensors import DTYPE, SHAPE, mixed, tensors_in
from autofast.model.values import (
    NOTHING,
    NUMBER,
    Arguments,
    Bound,
    ByName,
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
    Where,
    is_const,
    is_named,
    one,
    result_of,
    things as values,
)
from autofast.read.library import (  # noqa: F401 (some only register what they know)
    apex,
    dict_objects,
    distributions,
    hugging_face_data,
    iterables,
    model_zoo,
    module_parts,
    objects,
    options,
    protocols,
    steppers,
    torch_functions,
)
from autofast.read.library.containers import named_tuple
from autofast.read.library.iteration import loss_of
from autofast.read.library.methods import call_method
from autofast.read.library.modules import forward, loss
from autofast.read.library.table import first_of, known, make
from autofast.read.state.core import Core

SPAWNS = ("spawn", "start_processes")
# Attributes of tensors that are not called.
OF_TENSORS = wordset("grad_fn is_leaf itemsize nbytes is_sparse is_quantized is_meta")

TO_TENSORS = ("ToTensor", "PILToTensor", "Normalize")
OF_LOADERS = wordset("batch_size num_workers sampler batch_sampler collate_fn")


def attribute(interp: Core, thing: Thing, name: str, node: Where) -> Values:
    if isinstance(thing, Tensor):
        if name == "loss" and (thing.loss_first or thing.rank == "?" and thing.models):
            return values(loss_of(thing))
        if name in ("data", "T", "mT", "real", "imag", "H"):
            dtype = "?" if name in ("real", "imag") and thing.dtype == "complex" else thing.dtype
            return values(thing.but(grad=thing.grad and name != "data", dtype=dtype))
        if name == "grad":
            interp.emit("grad_read", node, thing)
            # None at first
            return values(Tensor(param=thing.param and "grad", device=thing.device, rank="?"))
        if name == "device" and thing.sure is None:
            return values(Unknown("the device of what is no tensor"))
        if name == "device":
            kind = values(Const({"cpu": "cpu", "dev": "accel"}.get(thing.device, "?")))
            device = Ext("torch.device", None, Arguments(None), {"kind": kind})
            return values(interp.intern(Ext, ("device", thing.device), lambda: device))
        if name == "dtype":
            return values(Num(pattern=DTYPE))
        if name == "shape":
            return values(Num(pattern=SHAPE))
        if name in ("ndim", "is_cuda", "requires_grad", "names", "layout"):
            return values(Num(scalar=name == "ndim"))
        # Of `x.max(1)`, where it is not known whether it is a pair.
        if name in ("values", "indices") and (node is None or call_of(node) is None):
            return values(thing if name == "values" else thing.but(grad=False, dtype="int"))
        if thing.rank == "?" and _is_part(name, node):
            if name.startswith("num_"):
                return NUMBER
            return values(thing.but(rank="", fresh="", loss_first=False, sure=False))
    if (computed := distributions.attribute(thing, name)) is not None:
        return computed
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
            return NUMBER
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
            if name in OF_LOADERS and thing.arg(name):
                return thing.arg(name)
        if is_module(thing) and name in ("weight", "bias"):
            sure = name == "weight" and "Norm" not in thing.name  # or the layer may have none
            return values(Tensor(param="param", grad=True, rank="" if sure else "?"))
        if thing.name == "torch.utils.data.TensorDataset" and name == "tensors":
            return values(Seq(None, None, NOTHING.union(*thing.args.placed), "tuple"))
    if is_named(thing, Method, name):
        return values(thing)  # `node = node.next`: of what is not known, once and for all
    if isinstance(thing, Tensor):  # asked for again and again, of many tensors at once
        methods: ByName = thing.__dict__.setdefault("_methods", {})
        if name not in methods:
            methods[name] = values(Method(thing, name))
        return methods[name]
    return values(Method(thing, name))


def _is_part(name: str, node: Where) -> bool:
    """``outputs.logits``: an attribute that is read and not called, and that no tensor has."""
    called = node is not None and call_of(node) is not None
    return not called and not name.startswith("_") and name not in OF_TENSORS


def _super_attribute(interp: Core, thing: Ext, name: str, node: Where) -> Values:
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


# -------------------------------------------------------------------------------------------- calls
def call(interp: Core, thing: Thing, args: Arguments, node: Where) -> Values:
    """Calling anything that is not a function or class of the project."""
    if isinstance(thing, Ref):
        if dict_objects.unbound(thing) and args.positional:
            return dict_objects.of_class(interp, thing, args, node)
        return call_ref(interp, thing.name, args, node)
    if isinstance(thing, Method):
        return call_method(interp, thing.this, thing.name, args, node)
    if (meant := protocols.referred(thing)) is not None:
        return meant
    if is_named(thing, Ext, "collections.namedtuple"):
        return named_tuple(interp, thing, args, node)
    if isinstance(thing, Ext):
        if is_loss(thing):
            return loss(interp, thing, args, node)
        if is_module(thing):
            return forward(interp, thing, args, node)
        if thing.name in names.CHAINS and not args.named:
            return _chain(interp, thing, args, node)
        if thing.name.startswith("torchvision.") and last_part(thing.name) in TO_TENSORS:
            tensors = tensors_in(*args.each) or [Tensor(device="cpu")]
            return values(mixed(tensors, sure=True))
        if thing.name == "torch.utils.data.DataLoader" or thing.name.startswith("torchvision."):
            return values(Unknown(f"{thing.name} objects are not functions"))
        tensors = tensors_in(*[g.values for g in args.every])
        interp.emit("call_object", node, thing, args)
        if tensors and not thing.name.startswith("torch.autograd"):
            return values(mixed(tensors))
        return values(Unknown(f"what {thing.name} returns"))
    if isinstance(thing, Unknown):
        interp.emit("call_unknown", node, thing, args)
        tensors = tensors_in(*args.each)
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
        if tensors and thing in interp.functions:
            return values(thing, mixed(tensors, grad=interp.grad_on(), dtype="?", rank="?"))
        return values(thing)
    return values(Unknown("what a call of it returns"))


def _chain(interp: Core, thing: Ext, args: Arguments, node: Where) -> Values:
    """``Compose([...])(x)``: each transform gets what the one before it gave."""
    parts = one(thing.args.get(0, "transforms"))
    exact = parts.exact if isinstance(parts, Seq) else None
    if exact is None or thing.args.open:
        return values(Unknown(f"which transforms {thing.name} holds"))
    for part in exact:
        args = Arguments(node, [Given(interp.call_values(part, args, node), None)])
    return first_of(args)


def call_ref(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    """What a function of a library gives; emits the call by the function's canonical name."""
    name = protocols.SPELLED.get(last_part(name), name)  # `object.__setattr__(x, n, v)`
    interp.emit(name, node, Ref(name), args)
    if (found := known(interp, name, args, node)) is not None:
        return found
    root, _, short = name.rpartition(".")
    if short in SPAWNS or short in ("Process", "Thread") and "target" in args.named:
        return _other_process(interp, short, args, node)
    if (
        short[:1].isupper()
        or name.startswith("torchvision.models.")
        or name in ("torchvision.datasets.*", names.ANY_OPTIMIZER)
        or names.makes_module(name)
        or names.is_tokenizer(name)
        or names.is_scheduler(name)
    ):
        return make(interp, name, args, node)
    tensors = tensors_in(*args.each)
    if tensors and root.startswith(("torch", "einops", "torchvision", "kornia", "torchmetrics")):
        return values(mixed(tensors))
    return NUMBER if name.startswith("numpy.") else values(result_of(name))


def _other_process(interp: Core, short: str, args: Arguments, node: Where) -> Values:
    """``Process(target=f, args=(...))`` and ``mp.spawn(f, args=(...))``: the function runs with
    these arguments.
    """
    target = args.named["target"].values if "target" in args.named else args.get(0, "fn")
    given: list[Given] = [] if short in ("Process", "Thread") else [Given(NUMBER, None)]
    single = one(args.named["args"].values) if "args" in args.named else one(args.get(1, "args"))
    if isinstance(single, Seq) and single.items is not None:
        given += [Given(item, None) for item in single.items]
    elif is_const(single, tuple):
        given += [Given(values(Const(v)), None) for v in single.value]
    interp.emit("process", node, None, args)
    interp.call_values(target, Arguments(None, given), node)
    return NUMBER
