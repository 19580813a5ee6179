"""Linear algebra, Fourier transforms and sampling at computed positions, which need fp32."""

from __future__ import annotations

from autofast.facts.precision.code import Code
from autofast.model.events import Occurrence
from autofast.model.several import wordset
from autofast.model.source import at
from autofast.model.values import Ext, Ref, Tensor, Unknown

SAMPLING = (
    "torch.nn.functional.grid_sample",
    "torch.nn.functional.affine_grid",
    "torch.grid_sampler",
    "torch.affine_grid_generator",
)
LINALG = wordset("""inverse inv svd eig eigh eigvals eigvalsh qr cholesky cholesky_ex det slogdet logdet solve
    lstsq pinv matrix_exp matrix_power lu lu_solve triangular_solve cholesky_solve
    cholesky_inverse symeig geqrf orgqr householder_product pca_lowrank svd_lowrank""")
FACTORING = tuple(  # distributions that factor their covariance
    f"torch.distributions.{n}"
    for n in ("MultivariateNormal", "LowRankMultivariateNormal", "Wishart", "LKJCholesky")
)
OF_DISTRIBUTIONS = (".log_prob", ".sample", ".rsample", ".entropy", ".kl_divergence")


# methods of a tensor that take nothing by position: with arguments, something else is asked
WITHOUT_ARGUMENTS = wordset("inverse det slogdet logdet matrix_exp inv trace")


def is_of_tensor(kind: str, occurrence: Occurrence) -> bool:
    """A function of torch, or a method of what may be a tensor: no ``flow.inverse(z)`` of a
    network.
    """
    if isinstance(occurrence.this, Unknown) and kind.lstrip(".") in WITHOUT_ARGUMENTS:
        return not occurrence.args.positional
    return isinstance(occurrence.this, (Ref, Tensor, Unknown, type(None)))


def algebra(code: Code) -> str:
    for site, occurrence in code.events(
        *(f"{root}.{n}" for root in ("torch", "") for n in LINALG),
        *FACTORING,
        *OF_DISTRIBUTIONS,
        *(k for k in code.kinds() if k.startswith("torch.fft.")),
    ):
        thing = occurrence.this
        if (
            thing.name in FACTORING
            if isinstance(thing, Ext)
            else is_of_tensor(site.kind, occurrence) and site.kind not in OF_DISTRIBUTIONS
        ):
            return f"{at(site)} does linear algebra or a Fourier transform, which needs fp32"
    for site, _ in code.events(*SAMPLING):
        return f"{at(site)} samples at positions that would be computed in 16 bits: in bf16, up to a pixel off where an image has 224"
    return ""
