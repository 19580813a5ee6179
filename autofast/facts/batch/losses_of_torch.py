"""Names of torch that keep the samples of a batch apart, and the losses that are means or sums over
them. Tables only.
"""

from __future__ import annotations

from dataclasses import dataclass

from autofast.model.names import last_part
from autofast.model.several import wordset
from autofast.model.values import Ext, Ref, Thing, begins


@dataclass(frozen=True)
class Loss:
    """A loss: what it compares, the options that leave its reduction alone, and those by which its
    mean is one over other numbers than those of the samples.

    A loss with such options leaves out targets of -100 by itself.
    """

    inputs: tuple[str, ...] = ("input", "target")
    fine: frozenset[str] = frozenset()
    uneven: frozenset[str] = frozenset()


def _loss(*inputs: str, fine: str = "", uneven: str = "") -> Loss:
    inputs = inputs or ("input", "target")
    return Loss(inputs, frozenset(fine.split()), frozenset(uneven.split()))


LOSSES = {
    "cross_entropy": _loss(fine="label_smoothing", uneven="weight ignore_index"),
    "nll_loss": _loss(uneven="weight ignore_index"),
    "mse_loss": _loss(),
    "l1_loss": _loss(),
    "smooth_l1_loss": _loss(fine="beta"),
    "huber_loss": _loss(fine="delta"),
    "binary_cross_entropy": _loss(fine="weight"),
    "binary_cross_entropy_with_logits": _loss(fine="weight pos_weight"),
    "kl_div": _loss(fine="log_target"),
    "poisson_nll_loss": _loss(fine="log_input full eps"),
    "gaussian_nll_loss": _loss("input", "target", "var", fine="full eps"),
    "soft_margin_loss": _loss(),
    "multilabel_soft_margin_loss": _loss(fine="weight"),
    "multilabel_margin_loss": _loss(),
    "multi_margin_loss": _loss(fine="p margin weight"),
    "hinge_embedding_loss": _loss(fine="margin"),
    "cosine_embedding_loss": _loss("input1", "input2", "target", fine="margin"),
    "margin_ranking_loss": _loss("input1", "input2", "target", fine="margin"),
    "triplet_margin_loss": _loss("anchor", "positive", "negative", fine="margin p eps swap"),
    "ctc_loss": _loss(
        "log_probs", "targets", "input_lengths", "target_lengths", fine="blank zero_infinity"
    ),
}
CLASSES: dict[str, str] = dict(
    pair.split("=")
    for pair in """
    CrossEntropyLoss=cross_entropy NLLLoss=nll_loss NLLLoss2d=nll_loss MSELoss=mse_loss
    L1Loss=l1_loss SmoothL1Loss=smooth_l1_loss HuberLoss=huber_loss BCELoss=binary_cross_entropy
    BCEWithLogitsLoss=binary_cross_entropy_with_logits KLDivLoss=kl_div
    PoissonNLLLoss=poisson_nll_loss GaussianNLLLoss=gaussian_nll_loss
    SoftMarginLoss=soft_margin_loss MultiLabelSoftMarginLoss=multilabel_soft_margin_loss
    MultiLabelMarginLoss=multilabel_margin_loss MultiMarginLoss=multi_margin_loss CTCLoss=ctc_loss
    HingeEmbeddingLoss=hinge_embedding_loss CosineEmbeddingLoss=cosine_embedding_loss
    MarginRankingLoss=margin_ranking_loss TripletMarginLoss=triplet_margin_loss
    """.split()
)


def loss_called(callee: Thing) -> tuple[Loss, Ext | None] | None:
    """The loss that is called, and the object where it is one."""
    short = last_part(getattr(callee, "name", ""))
    if begins(callee, Ref, "torch.") and short in LOSSES:
        return LOSSES[short], None
    if begins(callee, Ext, "torch.nn.") and short in CLASSES:
        return LOSSES[CLASSES[short]], callee
    return None


DROPOUT = wordset("dropout dropout2d")
# what gives the same values in another form
PLAIN_METHODS = wordset(
    "to cuda cpu float double half bfloat16 long int bool type type_as contiguous detach clone requires_grad_ data pin_memory byte short"
)
REGROUPING = wordset("view reshape flatten transpose swapaxes permute squeeze unsqueeze")
LIKE = wordset("zeros_like ones_like randn_like rand_like full_like empty_like bernoulli")
FACTORIES = wordset("zeros ones randn rand full randint empty")
# layers that take one batch and give one, a sample for each sample
LAYERS = wordset(
    "Linear Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d Embedding Flatten Identity Dropout Dropout1d Dropout2d Dropout3d "
    "AlphaDropout BatchNorm1d BatchNorm2d BatchNorm3d LayerNorm GroupNorm InstanceNorm1d InstanceNorm2d InstanceNorm3d RMSNorm MaxPool1d MaxPool2d MaxPool3d "
    "AvgPool1d AvgPool2d AvgPool3d AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveMaxPool1d AdaptiveMaxPool2d Upsample ZeroPad2d ReflectionPad2d "
    "ReplicationPad2d PixelShuffle ReLU ReLU6 LeakyReLU PReLU ELU SELU GELU SiLU Mish Sigmoid Tanh Softplus Softsign Hardtanh Hardswish LogSigmoid"
)
