"""Methods of library objects (tensors, optimizers, scalers), and of containers, numbers, strings
and parsers.
"""

from __future__ import annotations

import ast
import re

from autofast.model.contents import dict_items, each_once
from autofast.model.kinds import is_dataset, is_loader, is_module, is_optimizer, is_scaler
from autofast.model.names import LOADER
from autofast.model.several import of_kind, wordset
from autofast.model.tensors import SHAPE, dtype_of, kind_asked, mixed, target_of, tensors_in
from autofast.model.values import (
    NONE,
    NOTHING,
    NUMBER,
    OBJECTS,
    SOMEWHERE,
    Arg,
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
    Reason,
    Ref,
    Seq,
    Tensor,
    Thing,
    Unknown,
    Values,
    Where,
    const,
    is_const,
    is_named,
    one,
    result_of,
    things as values,
)
from autofast.ops import is_in_place, op
from autofast.read.library import (
    chosen,
    dict_objects,
    distributions,
    frameworks,
    hugging_face_data,
    loaded_settings,
    module_parts,
    options,
    pretrained,
    protocols,
)
from autofast.read.library.containers import (
    NAMESPACES,
    deep_copied,
    dict_method,
    namespace_method,
    row_of,
    seq_method,
)
from autofast.read.library.iteration import batch_of, iterate, loaders_in
from autofast.read.library.modules import module_method
from autofast.read.library.tensor_results import result, result_dtype
from autofast.read.state.core import Core

# what a string that is known says of itself
OF_TEXT = wordset("""startswith endswith lower upper strip lstrip rstrip replace title capitalize isdigit islower
    isupper isalpha isidentifier removeprefix removesuffix find count zfill""")


def _of_text(text: str, name: str, args: Arguments) -> Values:
    """``arch.startswith("resnet")``, computed where all of it is known."""
    given = [one(g.values) for g in args.positional]
    known = [t.value for t in given if isinstance(t, Const)]
    if args.named or not args.known or len(known) != len(given):
        return NUMBER
    try:
        return values(Const(getattr(text, name)(*known)))
    except (TypeError, ValueError):
        return NUMBER


def _plain_method(
    interp: Core, this: Thing, name: str, args: Arguments, node: Where
) -> Values | None:
    """A method of a container, a number, a string or an argument parser; None where ``this`` is
    none of them.
    """
    if isinstance(this, Dict):
        return dict_method(interp, this, name, args, node)
    if isinstance(this, Inst) and (held := dict_items(this)) is not None:
        return dict_objects.method(interp, this, held, name, args, node)
    if isinstance(this, Seq):
        return seq_method(interp, this, name, args, node)
    if is_const(this, str) and name == "format":
        for given in args.every:
            for thing in given.values:
                if isinstance(thing, Tensor):
                    interp.emit("format", node, thing, args)
        return values(Num(pattern=re.sub(r"\{[^{}]*\}", "*", this.value)))
    if text := loaded_settings.method(interp, this, name, args, node):
        return text
    if isinstance(this, (Num, Const, Arg)):
        if (parts := chosen.parts_of_name(interp, this, name, args, node)) is not None:
            return parts
        if name in OF_TEXT and is_const(this, str):
            return _of_text(this.value, name, args)
        if name in ("split", "rsplit", "splitlines", "partition", "rpartition"):
            kind = "tuple" if name.endswith("partition") else "list"
            return values(row_of(interp, (node, "split"), node, NUMBER, kind))
        return NUMBER
    if is_named(this, Ext, "builtins.vars"):
        return namespace_method(interp, this, name, args, node)
    if options.is_parser(this):
        return options.parser_method(interp, this, name, args, node)
    if isinstance(this, Ext):
        if "over" in this.attrs and name in ("__next__", "next"):
            loaders = loaders_in(values(this))
            if loaders:
                interp.emit("next", node, None, args, values(this), loaders=loaders)
            return iterate(interp, values(this), node)
        if "over" in this.attrs:
            return NUMBER
    return None


COUNTS = tuple("size numel nelement dim ndimension element_size".split())
PARTS = wordset(
    "parameters buffers modules children named_parameters named_buffers named_modules named_children"
)
CASTS = {"double": "f64", "half": "half", "bfloat16": "half", "float": "f32"}
CASTS |= dict.fromkeys(("long", "int", "bool", "byte"), "int")


def call_method(interp: Core, this: Thing, name: str, args: Arguments, node: Where) -> Values:
    """A method of a library object (or of a project object that inherits it)."""
    result = _method(interp, this, name, args, node)
    # `self.table[:n].requires_grad_(False)` of a tensor without a gradient switches nothing
    if not (
        name == "requires_grad_"
        and isinstance(this, Tensor)
        and not (this.grad or this.param)
        and const(args.get(0, "requires_grad")) is False
    ):
        interp.emit("." + name, node, this, args, result)
    return result


def _method(interp: Core, this: Thing, name: str, args: Arguments, node: Where) -> Values:
    if (plain := protocols.spelled(this, name, args)) is not None:
        return interp.call_thing(Ref(plain[0]), plain[1], node)
    if (done := protocols.manual_context(interp, this, name, args, node)) is not None:
        return done
    if (done := protocols.in_pool(interp, this, name, args, node)) is not None:
        return done
    if isinstance(this, Cls):
        return pretrained.create(interp, this, args, node)
    if isinstance(this, Tensor):
        return tensor_method(interp, this, name, args, node)
    if is_named(this, Ext, "builtins.super"):
        return super_method(interp, this, name, args, node)
    if name == "__iter__" and isinstance(this, Ext) and (is_loader(this) or "over" in this.attrs):
        func = node.func if isinstance(node, ast.Call) else None
        of = func.value if isinstance(func, ast.Attribute) else None
        return interp.call_values(
            values(Ref("builtins.iter")), Arguments(None, [Given(values(this), of)]), node
        )
    if isinstance(this, Method) and module_parts.is_of_library(this.this) and name in PARTS:
        this = this.this  # `vgg.features.children()`: a part is taken for the whole
    if is_module(this):
        return module_method(interp, this, name, args, node)
    if (done := _plain_method(interp, this, name, args, node)) is not None:
        return done
    if (done := frameworks.method(interp, this, name, args, node)) is not None:
        return done
    if (done := hugging_face_data.method(interp, this, name, args)) is not None:
        return done
    if (done := distributions.method(this, name, args)) is not None:
        return done
    if isinstance(this, Unknown):
        if name in ("to", "cuda"):
            interp.emit("move", node, this, args)
        if name in ("item", "tolist", "numpy"):
            interp.emit("sync", node, this, args, how=name)
            return NUMBER
        tensors = tensors_in(*args.placed)
        if any(t.batch or t.models for t in tensors):
            return values(
                mixed(
                    tensors,
                    batch=frozenset(),
                    models=frozenset().union(*(t.models for t in tensors)),
                    grad=interp.grad_on(),
                )
            )
        return values(this)
    if is_scaler(this):
        if name == "scale":
            return args.get(0, "outputs")
        return NUMBER
    if is_optimizer(this) and name == "step":
        for closure in args.get(0, "closure"):
            if isinstance(closure, (Func, Bound)):
                interp.emit("closure", node, this, args)
                return interp.call_values(values(closure), Arguments(None), node)
        return NONE
    if is_named(this, Ext, "accelerate.Accelerator") and name == "prepare":
        parts = tuple(g.values for g in args.positional)
        return one(parts, interp.tuple_of(node, parts, name))
    if isinstance(this, Inst) and is_dataset(this):
        return values(result_of(f".{name}"))
    if is_named(this, Ext, "torch.optim.swa_utils.AveragedModel"):
        return NUMBER
    if name == "clone" and is_named(this, Ext, NAMESPACES):
        return values(deep_copied(interp, this, node))
    if isinstance(this, Ext) and name.startswith(loaded_settings.MERGES):
        loaded_settings.merge(interp, this, args, node)
        _merged(interp, this, f"what .{name}() sets is not known")
    owner = getattr(this, "name", type(this).__name__)
    return values(Unknown(f"what .{name}() of {owner} returns", Reason.METHOD, f"{owner}.{name}"))


def _merged(interp: Core, settings: Ext, why: str) -> None:
    """Settings that are kept as attributes (yacs and its kin) are set from elsewhere, those in them
    too.
    """
    todo = [settings]
    for thing in each_once(todo):
        interp.open_attributes(thing, why)
        inside = [t for found in thing.attrs.values() for t in found]
        todo += [t for t in inside if is_named(t, Ext, settings.name)]


def super_method(interp: Core, this: Ext, name: str, args: Arguments, node: Where) -> Values:
    """``super().name(...)`` where the parent is a library class."""
    inst = one(this.attrs["__this__"])
    if inst is None:
        return values(Unknown("super()"))
    if name == "__init_subclass__":
        return NONE
    if isinstance(inst, Inst) and (held := dict_items(inst)) is not None:
        return dict_objects.method(interp, inst, held, name, args, node)
    if name == "__init__":
        if isinstance(inst, Inst) and LOADER in inst.cls.external:
            made = interp.intern(
                Ext,
                (node, "loader", inst),
                lambda: Ext(LOADER, node, args, {}, tuple(interp.stack)),
            )
            made.args = args
            inst.attrs["__loader__"] = values(made)
            for key, given in args.named.items():
                inst.attrs.setdefault(key, given.values)
            if args.positional:
                inst.attrs.setdefault("dataset", args.positional[0].values)
        if module_parts.is_container(inst) and isinstance(inst, Inst):
            module_parts.keep_parts(interp, inst, args)
        distributions.begin(interp, inst, args, node)
        return NONE
    if name == "__iter__" and is_loader(inst):
        batches = interp.intern(
            Seq, (node, "batches", inst), lambda: Seq(node, None, NOTHING, "generator")
        )
        batches.elem |= batch_of(interp, inst)
        return values(batches)
    if name in ("__call__", "forward") and module_parts.is_container(inst, module_parts.SEQUENTIAL):
        assert isinstance(inst, OBJECTS)
        return module_parts.in_order(interp, inst, args, values(Tensor()))
    if name in ("__call__", "forward") and is_module(inst):
        return values(mixed(tensors_in(*args.placed) or [Tensor()], grad=interp.grad_on()))
    return _method(interp, inst, name, args, node)


def tensor_method(interp: Core, this: Tensor, name: str, args: Arguments, node: Where) -> Values:
    given = [g.values for g in args.every]
    if name in ("to", "cuda", "cpu", "type", "type_as", "xpu"):
        return values(moved(interp, this, name, args, node))
    if name in ("item", "tolist", "numpy", "__float__", "__int__", "__bool__"):
        interp.emit("sync", node, this, args, how=name)
        return values(Num(this))
    if name == "backward":
        return NONE
    if (known := op(f".{name}")) is not None and known.numbers:
        if name == "size" and not args.every:
            return values(Num(pattern=SHAPE))
        return values(Num(scalar=name in COUNTS))
    if name in ("detach", "detach_"):
        return values(this.but(grad=False))
    if name in CASTS:
        return values(this.but(dtype=CASTS[name]))
    if name in ("sigmoid", "sigmoid_"):
        return values(
            this.but(prob=node or SOMEWHERE, dtype=result_dtype(f".{name}", this.dtype, args))
        )
    if name in ("clone", "contiguous", "requires_grad_"):
        return values(this)
    if name in ("pin_memory", "share_memory_"):
        return values(this.but(fresh=""))
    if name in ("view", "reshape", "squeeze", "unsqueeze", "flatten"):
        return values(this.but(fresh="", rank=""))
    if name in ("mean", "sum"):
        dtype = result_dtype(f".{name}", this.dtype, args)
        whole = this.rank != "?" and not given and args.known
        return values(this.but(fresh="", prob=None, dtype=dtype, rank="0d" if whole else ""))
    if is_in_place(name):
        interp.emit("inplace", node, this, args, name=name)
        return values(this)
    if name.startswith("new_"):
        asked = args.named.get("dtype")
        dtype = kind_asked(asked.values) if asked is not None else this.dtype
        if name == "new_tensor" and asked is None:
            dtype = "?"  # as its data
        return values(Tensor(device=this.device, dtype=dtype, fresh=name, made=node))
    return result(interp, f".{name}", [this, *tensors_in(*given)], args, node)


def moved(interp: Core, this: Tensor, name: str, args: Arguments, node: Where) -> Tensor:
    if name in ("type", "type_as"):
        given = args.given(0, "dtype")
        cuda = given is not None and any(".cuda." in t.name for t in of_kind(given.values, Ref))
        kinds = {"cuda", "?"} if cuda else {"tensor"} if name == "type_as" else {"type"}
        interp.emit("move", node, this, args, target=given, kinds=kinds, how=name)
        others = given.values if given is not None else NOTHING
        dtypes = {t.dtype if isinstance(t, Tensor) else dtype_of(t) for t in others}
        return this.but(
            device="dev" if cuda else this.device if name == "type" else "?",
            dtype=(one(dtypes, "")) or "?",
            fresh="",
        )
    target, kinds, dtype = target_of(name, args)
    interp.emit("move", node, this, args, target=target, kinds=kinds, how=name)
    device = this.device if not kinds else "cpu" if kinds == {"cpu"} else "dev"
    kind = kind_asked(dtype) if dtype else this.dtype
    if kinds == {"tensor"} and target is not None:
        like = next((t for t in target.values if isinstance(t, Tensor)), Tensor(dtype="?"))
        device, kind = like.device, like.dtype
    if device == "cpu" and this.device == "dev":  # in memory of its own, that is no batch's
        return this.but(device=device, dtype=kind, fresh="", batch=frozenset())
    return this.but(device=device, dtype=kind, fresh="")
