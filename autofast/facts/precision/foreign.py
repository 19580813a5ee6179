"""Code that nobody has prepared for 16-bit tensors: autograd Functions of the project, other
libraries, what is not known.
"""

from __future__ import annotations

import ast

from autofast.facts.parts import not_known
from autofast.facts.precision.activations import has_tensor
from autofast.facts.precision.code import Code, applied_functions
from autofast.model.calls import short_name
from autofast.model.names import first_part
from autofast.model.several import of_kind, wordset
from autofast.model.source import Said, at, walk
from autofast.model.syntax import VARIABLES, is_operation
from autofast.model.tensors import dtype_of
from autofast.model.values import Cls, Ext, Thing, Unknown, begins

KNOWN_LIBRARIES = wordset("""torch torchvision torchaudio builtins math numpy random time tqdm logging collections
    functools itertools einops timm segmentation_models_pytorch efficientnet_pytorch geffnet
    pretrainedmodels resnest transformers warnings os sys contextlib typing copy string re
    datetime dataclasses abc operator json pathlib wandb tensorboardX visdom torchinfo
    torchsummary rich""")


# Libraries of models, losses and measures that are made of torch's own layers and functions.
PLAIN_TORCH = wordset("""torchmetrics diffusers open_clip peft sentence_transformers kornia monai lpips piq pytorch_msssim
    pytorch_metric_learning vit_pytorch x_transformers entmax torchcrf""")
# Operators that a program has loaded or compiled itself.
COMPILED, OWN_OPERATORS = "torch.utils.cpp_extension.", "torch.ops."
OPERATORS = ("torch.ops.aten.", "torch.ops.torchvision.")
LOADED_IN_16 = ("torch_dtype", "dtype", "load_in_8bit", "load_in_4bit", "quantization_config")


def unfollowed_use(code: Code) -> str:
    """What gets tensors here and is not followed, so that 16 bits may not suit it, in words; empty
    where there is nothing.
    """
    for model in code.models:
        if why := not_known(model):
            return why
        if any(w.name.startswith("torch.jit") for w in model.wraps):
            return f"{model.name} is a TorchScript module"
    for site, occurrence in code.events("call_unknown"):
        if not isinstance(occurrence.this, Unknown) or code.is_known(site):
            continue
        if has_tensor(occurrence.args.positional):
            return f"{at(site)} gives tensors to something that is not known: {occurrence.this.why}"
    node, name = handed_out(code) or (None, "")
    return f"{at(node)} gives tensors to {name}, which may not take 16-bit ones" if node else ""


def handed_out(code: Code) -> Said | None:
    """Where tensors go into compiled code, or into code of a library that is not made of torch's
    operations, and whose it is.
    """
    for kind in code.kinds():
        called = f"{kind}()" if is_foreign(kind) else ""
        if not called and not any(_owner(o.this) for s in code.script.log.of(kind) for o in s):
            continue
        for site, occurrence in code.events(kind):
            name = called or _owner(occurrence.this)
            if name and has_tensor(occurrence.args.every):
                return site.node, name
    return None


def is_foreign(name: str) -> bool:
    """Whether a function or class is of a library that is not known to do with tensors what torch
    does.
    """
    root = first_part(name)
    own = name.startswith(OWN_OPERATORS) and not name.startswith(OPERATORS)
    return own or ("." in name and root != "" and root not in KNOWN_LIBRARIES | PLAIN_TORCH)


def _owner(thing: Thing | None) -> str:
    """The library whose object, or part, is called; empty where it is a known one or none."""
    if isinstance(thing, Ext) and is_foreign(thing.name):
        return thing.name
    compiled = begins(thing, Unknown, COMPILED)
    return "a compiled extension" if compiled else ""


def loaded_in_16(thing: Thing) -> str:
    """The argument by which a model of a library is loaded in other numbers than fp32; empty where
    it is not.
    """
    for name in LOADED_IN_16:
        given = thing.args.named.get(name) if isinstance(thing, Ext) else None
        if given is not None and any(
            getattr(t, "value", "set") not in (None, False) and dtype_of(t) != "f32"
            for t in given.values
        ):
            return name
    return ""


def custom_function(code: Code) -> str:
    """An autograd Function of the project that nobody has prepared for other dtypes and layouts, in
    words.
    """
    names = (n for p in code.parts for n in walk(p) if isinstance(n, VARIABLES))
    for name, thing in ((n, t) for n in names for t in applied_functions(code.script, n)):
        if not _marked(thing) and not _elementwise(thing):
            return f"{thing.node.name}, an autograd Function, is not marked with torch.amp.custom_fwd ({at(name)})"
    return ""


# Number by number, in the dtype that is given: autocast casts nothing for them. Not what jumps
# (round, sign).
ELEMENTWISE = wordset("""sigmoid tanh relu clamp clamp_min clamp_max abs neg mul add sub div where gt ge lt le eq ne
    zeros_like ones_like view_as reshape clone detach masked_fill masked_fill_ expand expand_as size contiguous
    save_for_backward mark_non_differentiable set_materialize_grads numel dim""")


def _elementwise(cls: Cls) -> bool:
    """A Function of nothing but elementwise operations, which compute in any dtype; autograd casts
    what its backward gives.
    """
    methods = [m for m in of_kind(cls.node.body, ast.FunctionDef) if m.name[:2] != "__"]
    if {m.name for m in methods} != {"forward", "backward"}:
        return False
    for node in (n for m in methods for s in m.body for n in walk(s)):
        if is_operation(node, ast.MatMult):
            return False
        if isinstance(node, ast.Call):
            name = short_name(node.func)
            if name not in ELEMENTWISE:
                return False
    return True


def _marked(cls: Cls) -> bool:
    """``@custom_fwd`` on forward: the author has thought of autocast."""
    return any(
        "custom_fwd" in ast.dump(d)
        for f in cls.node.body
        if isinstance(f, ast.FunctionDef) and f.name == "forward"
        for d in f.decorator_list
    )
