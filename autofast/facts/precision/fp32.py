"""Where products of fp32 matrices need all their digits."""

from __future__ import annotations

import ast
import re

from autofast.facts.parts import trained_models
from autofast.facts.precision.algebra import FACTORING, LINALG, SAMPLING, is_of_tensor
from autofast.facts.precision.distances import written_out
from autofast.facts.precision.phases import phase_of_product
from autofast.facts.precision.quantised import quantised
from autofast.model.events import branches
from autofast.model.script import Script
from autofast.model.several import of_kind
from autofast.model.source import at
from autofast.model.tensors import dtype_of
from autofast.model.values import Ref, Tensor, Unknown, const, is_chosen

FLAGS = re.compile(r"allow_tf32|fp32_precision|float32_matmul_precision|NVIDIA_TF32_OVERRIDE")


SCIENCE = tuple(
    """scipy.linalg scipy.integrate torchdiffeq torchsde torchcde torchode gpytorch botorch pyro
    open3d pytorch3d pypose theseus lietorch geoopt""".split()
)


def is_precision_set(script: Script) -> bool:
    """Some file says already how precise fp32 products are, in whichever of the three interfaces; a
    comment decides nothing.
    """
    return any(
        "#" not in source.text[source.text.rfind("\n", 0, found.start()) + 1 : found.start()]
        for source in script.sources
        for found in FLAGS.finditer(source.text)
    )


def needs_digits(script: Script) -> str:
    """What this script computes that wants more than TF32's 10 bits of mantissa; empty where
    nothing does.
    """
    for site in script.calls("torch.set_default_dtype"):
        if any(
            isinstance(t, Ref) and dtype_of(t) in ("f64", "complex")
            for o in site
            for t in o.args.get(0, "d")
        ):
            return f"float64 is the default dtype ({at(site)}), which TF32 has no part in"
    if (place := quantised(script)) is not None:
        return f"{at(place)} prepares quantisation, which has to see the numbers that the model computes in fp32"
    for site in script.calls("torch.cdist"):
        if any(
            not branches(o.stack) and (const(o.args.get(2, "p")) not in WITHOUT_PRODUCT)
            for o in site
        ):
            return f"{at(site)} computes distances by way of a matrix product (torch.cdist)"
    if (distance := written_out(script, script.nodes)) is not None:
        return f"{at(distance)} computes distances by way of a matrix product"
    called = (s.node.func for s in script.log.of("forward") if isinstance(s.node, ast.Call))
    if not trained_models(script) or any(is_chosen(script.values(func)) for func in called):
        for site in script.calls("importlib.import_module", "hydra.utils.instantiate"):
            if script.may_be(site.node, Unknown):
                return f"{at(site)} finds something by a name that is not known, and perhaps the network: what it computes may need its digits"
    for model in trained_models(script) or script.models:
        if model.dtype in ("f64", "complex"):
            return f"{model.name} computes in float64, which TF32 has no part in"
    for step in script.steps:
        for backward in step.backwards:
            if any(t.dtype in ("f64", "complex") for t in of_kind(backward.tensors, Tensor)):
                return f"the loss is float64 ({at(backward)}): this script wants its digits"
    if positions := script.calls(*SAMPLING):
        return f"positions are computed for {at(positions[0])} (grid_sample): with TF32 they are off by up to a pixel"
    if (phase := phase_of_product(script)) is not None:
        return f"{at(phase)} takes the sine or cosine of a product: with TF32, one of 100 radians is off by a tenth"
    for (kind, _), site in script.log.each():
        root, _, short = kind.rpartition(".")
        algebraic = root in ("torch", "") and short in ALGEBRA
        if kind.startswith((*SCIENCE, *FACTORING)) or (
            algebraic and any(is_of_tensor(kind, o) for o in site)
        ):
            return f"{kind.lstrip('.')}() on {at(site)} is linear algebra, where 10 bits of mantissa may not do"
    return ""


# The reader drops "linalg." from names. Traces are taken of covariances: of a distance between
# distributions, whose terms cancel out.
ALGEBRA = LINALG | set(
    """trace cov corrcoef inv cond matrix_rank tensorinv tensorsolve ldl_factor""".split()
)


WITHOUT_PRODUCT = (0, 1, 0.0, 1.0, float("inf"))  # norms that torch.cdist computes from differences
