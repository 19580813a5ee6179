"""tf32: let fp32 matrix products use the tensor cores of the GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator

from autofast.edits import Before
from autofast.finding import Effect, Finding, Options, rule
from autofast.read.source import source_of
from autofast.read.tensors import dtype_of
from autofast.read.values import Ref, Tensor, const
from autofast.script import Script

from ._hazards import LINALG
from ._setup import setup_place, trained_models, trainer_place
from ._switches import branches
from ._torch import chooses_devices_late, cuda_test, requires_cuda, torch_in, uses_gpu

FLAGS = re.compile(r"allow_tf32|fp32_precision|float32_matmul_precision|NVIDIA_TF32_OVERRIDE")
ALGEBRA = LINALG | {"inv", "cond", "matrix_rank", "tensorinv", "tensorsolve", "ldl_factor"}  # the reader drops "linalg." from names
WITHOUT_PRODUCT = (0, 1, 0.0, 1.0, float("inf"))  # norms that torch.cdist computes from differences
SCIENCE = ("scipy.linalg", "scipy.integrate", "torchdiffeq", "gpytorch", "botorch", "torchode", "pyro", "open3d", "pytorch3d")


@rule("tf32", Effect.ROUNDING, groups=("backend", "precision"))
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Let fp32 matrix products use the tensor cores of the GPU."""
    if options.target == "cpu" or not uses_gpu(script) or decided(script):
        return
    place = setup_place(script) if script.steps else trainer_place(script)
    if place is None:
        return
    message = "matrix products in fp32 leave the GPU's tensor cores unused"
    if why := against(script):
        yield Finding(place, message, refusal=why)
        return
    torch, imports = torch_in(source_of(place))
    setting = f'{torch}.set_float32_matmul_precision("high")'
    if requires_cuda(script):
        yield Finding(place, message, edits=(*imports, Before(place, setting)))
        return
    if line := chooses_devices_late(script, place):
        yield Finding(place, message, refusal=f"CUDA_VISIBLE_DEVICES is set on line {line}, perhaps after CUDA would have been asked for")
        return
    # on the CPU "high" may make oneDNN round too, and gain nothing: hence the condition
    test, more = cuda_test(script, place)
    yield Finding(place, message, edits=(*imports, *more, Before(place, f"if {test}:\n    {setting}")))


def decided(script: Script) -> bool:
    """Some file says already how precise fp32 products are, in whichever of the three interfaces."""
    return any(FLAGS.search(source.text) for source in script.sources)


def against(script: Script) -> str:
    """Why this script wants all 23 bits of the mantissa; empty where nothing says so."""
    if "hf-trainer" in script.frameworks:
        return "the Trainer sets this: see trainer-args"
    return needs_digits(script)


def needs_digits(script: Script) -> str:
    """What this script computes that wants more than TF32's 10 bits of mantissa; empty where nothing does."""
    for site in script.calls("torch.set_default_dtype"):
        if any(isinstance(t, Ref) and dtype_of(t) in ("f64", "complex") for o in site if o.args is not None for t in o.args.get(0, "d")):
            return f"float64 is the default dtype (line {getattr(site.node, 'lineno', 0)}), which TF32 has no part in"
    for site in script.calls("torch.cdist"):
        if any(not branches(o.stack) and (o.args is None or const(o.args.get(2, "p")) not in WITHOUT_PRODUCT) for o in site):
            return f"line {getattr(site.node, 'lineno', 0)} computes distances by way of a matrix product (torch.cdist)"
    for model in trained_models(script) or script.models:
        if model.dtype in ("f64", "complex"):
            return f"{model.name} computes in float64, which TF32 has no part in"
    for step in script.steps:
        for backward in step.backwards:
            if any(isinstance(t, Tensor) and t.dtype in ("f64", "complex") for t in backward.tensors):
                return f"the loss is float64 (line {backward.node.lineno}): this script wants its digits"
    for (kind, _), site in script.log.each():
        root, _, short = kind.rpartition(".")
        if kind.startswith(SCIENCE) or (root in ("torch", "") and short in ALGEBRA):
            line = getattr(site.node, "lineno", 0)
            return (
                f"{kind.lstrip('.')}() on line {line} of {source_of(site.node).rel} is linear algebra, where 10 bits of mantissa may not do"
            )
    return ""
