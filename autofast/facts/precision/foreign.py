"""Code that nobody has prepared for 16-bit tensors: autograd Functions of the project, other libraries, what is not known."""

from __future__ import annotations

import ast

from autofast.facts.parts import not_known
from autofast.facts.precision.activations import has_tensor
from autofast.facts.precision.code import Code, applied
from autofast.model.calls import short_name
from autofast.model.source import at, walk
from autofast.model.values import Cls, Unknown

KNOWN_LIBRARIES = frozenset(
    """torch torchvision torchaudio builtins math numpy random time tqdm logging collections
    functools itertools einops timm segmentation_models_pytorch efficientnet_pytorch geffnet
    pretrainedmodels resnest transformers warnings os sys contextlib typing copy string re
    datetime dataclasses abc operator json pathlib wandb tensorboardX visdom torchinfo
    torchsummary rich""".split()
)


def foreign(code: Code) -> str:
    for model in code.models:
        if why := not_known(model):
            return why
        if any(w.name.startswith("torch.jit") for w in model.wraps):
            return f"{model.name} is a TorchScript module"
    for site, occurrence in code.events("call_unknown"):
        if (
            not isinstance(occurrence.this, Unknown)
            or occurrence.args is None
            or code.is_known(site)
        ):
            continue
        if has_tensor(occurrence.args.positional):
            return f"{at(site.node)} gives tensors to something that is not known: {occurrence.this.why}"
    for kind in code.kinds():
        root = kind.split(".")[0]
        if "." in kind and root and root not in KNOWN_LIBRARIES:
            for site, occurrence in code.events(kind):
                if occurrence.args is not None and has_tensor(occurrence.args.every):
                    return (
                        f"{at(site.node)} gives tensors to {kind}(), which may not take 16-bit ones"
                    )
    return ""


def custom_function(code: Code) -> str:
    """An autograd Function of the project that nobody has prepared for other dtypes and layouts, in words."""
    names = (n for p in code.parts for n in walk(p) if isinstance(n, (ast.Name, ast.Attribute)))
    for name, thing in ((n, t) for n in names for t in applied(code.script, n)):
        if not _marked(thing) and not _elementwise(thing):
            return f"{thing.node.name}, an autograd Function, is not marked with torch.amp.custom_fwd ({at(name)})"
    return ""


# Number by number, in the dtype that is given: autocast casts nothing for them. Not what jumps (round, sign).
ELEMENTWISE = frozenset(
    """sigmoid tanh relu clamp clamp_min clamp_max abs neg mul add sub div where gt ge lt le eq ne
    zeros_like ones_like view_as reshape clone detach masked_fill masked_fill_ expand expand_as size contiguous
    save_for_backward mark_non_differentiable set_materialize_grads numel dim""".split()
)


def _elementwise(cls: Cls) -> bool:
    """A Function of nothing but elementwise operations, which compute in any dtype; autograd casts what its backward gives."""
    methods = [m for m in cls.node.body if isinstance(m, ast.FunctionDef) and m.name[:2] != "__"]
    if {m.name for m in methods} != {"forward", "backward"}:
        return False
    for node in (n for m in methods for s in m.body for n in walk(s)):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
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
