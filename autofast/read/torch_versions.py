"""What is known of torch's versions, and of those of what goes with it: the one place for such
facts.

Sources: the release notes of torch (github.com/pytorch/pytorch/releases), torchvision and
torchtext, "Backwards Incompatible Changes" and "Deprecations"; "last" means the last release before
the one that names the change. What was only deprecated, and still runs in torch 2.13 (tried there),
is not here: ``size_average=``, ``volatile=``, ``F.upsample``, ``nn.init.xavier_uniform``,
``add_(alpha, x)``, ``addcmul_(value, x, y)``, ``torch.qr``, ``torch.svd``, ``torch.lu``,
``torch.cuda.amp``. Nor is what is NumPy's (``np.float``): any torch runs with an old NumPy, too;
nor ``torchtext.data.Field``: the torchtexts that have it ask for no version of torch.
"""

from __future__ import annotations

import re

from autofast.model.several import wordset
from autofast.model.torch_age import Version

# The last torch for a Python (python -> torch), as the wheels on PyPI go.
PYTHONS: dict[Version, Version] = {
    (2,): (1, 4), (3, 4): (1, 0), (3, 5): (1, 5), (3, 6): (1, 10), (3, 7): (1, 13), (3, 8): (2, 4), (3, 9): (2, 8),
}  # fmt: skip
PYTHON_37, PYTHON_38 = PYTHONS[3, 7], PYTHONS[3, 8]
# The first torch for a Python, by the same wheels. The oldest one that counts where a project names
# a lower bound is that of Python 3.9: older ones need a Python that has not been mended for years.
SINCE_PYTHON: dict[Version, Version] = {
    (3, 9): (1, 7), (3, 10): (1, 11), (3, 11): (1, 13), (3, 12): (2, 2), (3, 13): (2, 5), (3, 14): (2, 9),
}  # fmt: skip
LIVING = SINCE_PYTHON[3, 9]
# The last torch with wheels for a CUDA, by download.pytorch.org/whl: cu90, cu92.
CUDAS: dict[str, Version] = {
    "75": (0, 4), "80": (1, 0), "90": (1, 1), "91": (0, 4), "92": (1, 7), "100": (1, 4), "101": (1, 8),
}  # fmt: skip
# What else is pinned says when an environment was made: the first release of each package after
# each torch of OUT, by the dates of the files on PyPI. Where a row ends before torch 2.4, what came
# later is pinned for other reasons (NumPy 1.20, for its old names), and says nothing.
OUT = [(1, n) for n in range(14)] + [(2, n) for n in range(5)]
TIMES = {
    package: [tuple(map(int, version.split("."))) for version in since.split()]
    for package, since in {
        "numpy": "1.16.0 1.16.4 1.17.1 1.17.3 1.18.2 1.18.4 1.19.2 1.19.3 1.20.2",
        "pandas": "0.24.0 0.25.0 0.25.1 0.25.2 1.0.0 1.0.4 1.1.0 1.1.4 1.2.4 1.2.5 1.3.5 1.4.2 1.4.4 1.5.2 2.0.0 2.1.2 2.2.1 2.2.3 2.2.3",
        "scikit-learn": "0.20.2 0.20.4 0.22 0.22 0.22.2 0.23.0 0.23.2 0.24.0 0.24.2 1.0 1.0.1 1.1.0 1.1.2 1.2.0 1.3.0 1.3.2 1.4.2 1.5.0 1.5.2",
        "tqdm": "4.29.0 4.32.0 4.33.0 4.37.0 4.42.0 4.46.0 4.48.1 4.52.0 4.59.0 4.61.2 4.63.0 4.63.1 4.64.1 4.65.0 4.65.1 4.66.2 4.66.2 4.66.3 4.66.5",
        "transformers": "2.0.0 2.0.0 2.0.0 2.1.1 2.4.0 2.9.0 3.1.0 3.5.0 4.4.0 4.7.0 4.12.0 4.18.0 4.21.0 4.24.0 4.27.1 4.34.1 4.38.0 4.40.2 4.43.2",
        "timm": "0.1.1 0.1.1 0.1.14 0.1.16 0.1.16 0.1.22 0.2.1 0.3.0 0.4.5 0.4.12 0.5.4 0.6.5 0.6.5 0.6.12 0.6.13 0.9.8 0.9.16 1.0.3 1.0.8",
        "kornia": "0.1.4 0.1.4 0.1.4 0.2.0 0.2.0 0.2.2 0.3.2 0.5.0 0.5.0 0.5.5 0.6.0 0.6.4 0.6.6 0.6.9 0.6.11 0.7.1 0.7.2 0.7.3 0.7.4",
        "torchmetrics": "0.2.0 0.2.0 0.2.0 0.2.0 0.2.0 0.2.0 0.2.0 0.2.0 0.2.0 0.4.0 0.6.0 0.7.3 0.9.2 0.10.2 1.0.0 1.2.1 1.3.1 1.4.0 1.4.1",
        "pytorch-lightning": "0.0.2 0.2 0.4.0 0.5.2 0.5.3.3 0.7.5 0.9.0 1.0.4 1.2.2 1.3.6 1.5.0 1.6.0 1.6.5 1.8.0 2.0.1 2.1.0 2.1.4 2.2.4 2.4.0",
        "torchvision": "0.2.2 0.3.0 0.4.0 0.4.1 0.5.0 0.6.1 0.7.0 0.8.0 0.9.0 0.10.0 0.11.0 0.12.0 0.13.0 0.14.0 0.15.0 0.16.0 0.17.0 0.18.0 0.19.0",
    }.items()
}
# Packages of which each release runs with one torch (`_paired` in torch_age.py says which), and the
# first of theirs that asks for it: older ones take any. By the tables of versions in the READMEs of
# pytorch/vision and pytorch/text, and in the installation page of pytorch/audio.
PAIRED: dict[str, Version] = {"torchvision": (0, 3), "torchtext": (0, 9), "torchaudio": (0, 3)}

# What came late, and was soon gone: the torch that it came with.
BRIEF: dict[str, Version] = {"torchtext.legacy": (1, 8)}

# Packages that are not made for newer ones any more, and the last torch that they load with (by the
# metadata of their last releases; torchtext's, 0.18, is compiled for torch 2.3); and names of
# theirs that are gone: releases that have them are written in Python alone, for any torch.
LAST: dict[str, Version] = {"torchtext": (2, 3), "allennlp": (1, 12)}
IN_PYTHON = wordset("BucketIterator Example Field Iterator LabelField RawField TabularDataset")

_SCIPY = "since SciPy 1.3, and older ones want Python 3.7"
_SKIMAGE = "since scikit-image 0.18, and older ones want Python 3.8"
_SKLEARN = "since scikit-learn 0.23, and older ones want Python 3.8"
_TF1 = "since TensorFlow 2, and older ones want Python 3.7"
_LOADER = "torch.utils.data.dataloader"
# What is gone: the last torch that it goes with, and since when, in words.
GONE: dict[str, tuple[Version, str]] = {
    "torch._six": ((1, 13), "in torch 2.0"),
    "torch._utils._accumulate": ((2, 2), "in torch 2.3"),
    "torch.legacy": ((0, 4), "in torch 1.0"),
    "torch.utils.ffi": ((0, 4), "in torch 1.0"),
    "torch.utils.trainer": ((0, 4), "in torch 1.0"),
    "torch.utils.serialization.load_lua": ((0, 4), "in torch 1.0"),
    "torch.utils.serialization.read_lua_file": ((0, 4), "in torch 1.0"),
    f"{_LOADER}._DataLoaderIter": ((1, 1), "in torch 1.2"),
    f"{_LOADER}.DataLoaderIter": ((0, 4), "in torch 1.0"),
    f"{_LOADER}.numpy_type_map": ((1, 1), "in torch 1.2"),
    "torch.nn.modules.linear._LinearWithBias": ((1, 8), "in torch 1.9"),
    "torch.fft": ((1, 7), "as a function in torch 1.8"),
    **dict.fromkeys(("torch.ifft", "torch.rfft", "torch.irfft"), ((1, 7), "in torch 1.8")),
    **dict.fromkeys(
        ("torch.gesv", "torch.potrf", "torch.potri", "torch.potrs", "torch.pstrf", "torch.trtrs"),
        ((1, 1), "in torch 1.2"),
    ),
    **dict.fromkeys(("torch.btrifact", "torch.btrisolve"), ((1, 1), "in torch 1.2")),
    "torch.gels": ((1, 2), "in torch 1.3"),
    **dict.fromkeys(
        ("torch.eig", "torch.lstsq", "torch.matrix_rank", "torch.solve"), ((1, 12), "in torch 1.13")
    ),
    "torch.symeig": ((1, 13), "in torch 2.0"),
    "torchtext.legacy": ((1, 10), "since the torchtext of torch 1.11, and was new in that of 1.8"),
    "torchvision.models.utils": ((1, 12), "since the torchvision of torch 1.13"),
    **{
        f"torchvision.transforms.{name}": ((1, 11), "since the torchvision of torch 1.12")
        for name in ("Scale", "RandomSizedCrop")
    },
    **{
        f"scipy.misc.{name}": (PYTHON_37, _SCIPY)
        for name in (
            "bytescale fromimage imfilter imread imresize imrotate imsave imshow toimage".split()
        )
    },
    **{
        f"skimage.measure.compare_{name}": (PYTHON_38, _SKIMAGE)
        for name in ("mse", "nrmse", "psnr", "ssim")
    },
    **dict.fromkeys(
        ("sklearn.externals.joblib", "sklearn.externals.six", "sklearn.utils.linear_assignment_"),
        (PYTHON_38, _SKLEARN),
    ),
    **{
        f"tensorflow.{name}": (PYTHON_37, _TF1)
        for name in "contrib ConfigProto HistogramProto Session Summary placeholder summary.FileWriter".split()
    },
    "time.clock": (PYTHON_37, "since Python 3.8"),
}
MODULES = frozenset({"torch.fft"})  # what is gone as a function only
# What is gone and has another name today, with the same meaning; and where the names of a module
# are today.
RENAMED = {
    "torchvision.transforms.Scale": "Resize",
    "torchvision.transforms.RandomSizedCrop": "RandomResizedCrop",
    "time.clock": "process_time",
}
MOVED = {
    "torch._six.inf": "from math import inf",
    "torch._six.nan": "from math import nan",
    "torch._six.container_abcs": "import collections.abc as container_abcs",
}
# Methods of tensors that are gone, as functions of torch above.
METHODS = (
    "symeig eig lstsq solve gels gesv potrf potri potrs pstrf trtrs btrifact btrisolve".split()
)
# Keywords of calls that are gone: the last torch, since when, and the keyword of today.
_VERBOSE = ((2, 6), "in torch 2.7", "")
_LIGHTNING = ((1, 13), "in Lightning 1.7, which is older than torch 2", "")
GONE_KEYWORDS: dict[str, dict[str, tuple[Version, str, str]]] = {
    **{
        f"{package}.Trainer": dict.fromkeys(
            "progress_bar_refresh_rate weights_summary checkpoint_callback flush_logs_every_n_steps".split(),
            _LIGHTNING,
        )
        for package in ("pytorch_lightning", "lightning")
    },
    ".backward": {"retain_variables": ((0, 4), "in torch 1.0", "retain_graph")},
    **{
        f"torch.optim.lr_scheduler.{name}": {"verbose": _VERBOSE}
        for name in (
            "ChainedScheduler ConstantLR CosineAnnealingLR CosineAnnealingWarmRestarts CyclicLR ExponentialLR LambdaLR"
            " LinearLR MultiStepLR MultiplicativeLR OneCycleLR PolynomialLR ReduceLROnPlateau SequentialLR StepLR".split()
        )
    },
}


def _since(lines: str) -> list[tuple[Version, list[str]]]:
    """Versions, and what is written behind them."""
    found = map(str.split, lines.splitlines())
    return [((int(major), int(minor)), names) for major, minor, *names in found]


# What is new: the first torch that has it.
NEW: dict[str, Version] = {
    f"torch.{name}": version
    for version, names in _since("""\
0 4 no_grad as_tensor
1 1 nn.Identity nn.MultiheadAttention nn.SyncBatchNorm utils.tensorboard.SummaryWriter
1 1 optim.lr_scheduler.CyclicLR optim.lr_scheduler.CosineAnnealingWarmRestarts
1 2 nn.Transformer nn.TransformerEncoder nn.TransformerEncoderLayer nn.Flatten optim.AdamW
1 2 utils.data.IterableDataset
1 3 optim.lr_scheduler.OneCycleLR
1 4 nn.GELU
1 5 true_divide
1 6 cuda.amp.autocast cuda.amp.GradScaler optim.swa_utils.AveragedModel
1 7 nn.SiLU amax quantile
1 8 nan_to_num tile use_deterministic_algorithms nn.LazyLinear
1 9 inference_mode nn.Mish
1 10 autocast amp.autocast concat optim.NAdam optim.RAdam
1 10 optim.lr_scheduler.ConstantLR optim.lr_scheduler.LinearLR optim.lr_scheduler.SequentialLR
1 11 cuda.mem_get_info
1 12 set_float32_matmul_precision
2 0 compile func.functional_call func.grad func.vmap set_default_device
2 0 nn.functional.scaled_dot_product_attention
2 3 amp.GradScaler
2 4 amp.custom_fwd amp.custom_bwd""")
    for name in names
}
# The same of keywords of calls.
NEW_KEYWORDS: dict[str, dict[str, Version]] = {}
for _version, (_call, *_names) in _since("""\
1 2 torch.utils.data.DataLoader multiprocessing_context
1 6 torch.utils.data.DataLoader generator
1 7 torch.utils.data.DataLoader persistent_workers prefetch_factor
1 12 torch.utils.data.DataLoader pin_memory_device
1 7 .zero_grad set_to_none
1 7 torch.stft return_complex
1 8 torch.div rounding_mode
1 10 torch.nn.functional.cross_entropy label_smoothing
1 10 torch.nn.CrossEntropyLoss label_smoothing
1 10 torch.meshgrid indexing
1 13 torch.load weights_only
1 12 torch.optim.Adam foreach
2 0 torch.optim.Adam fused
1 12 torch.optim.AdamW foreach
2 0 torch.optim.AdamW fused
1 12 torch.optim.SGD foreach
2 3 torch.optim.SGD fused
2 1 torch.nn.functional.scaled_dot_product_attention scale"""):
    NEW_KEYWORDS.setdefault(_call, {}).update(dict.fromkeys(_names, _version))
# C++ and CUDA of extensions: what does not compile, the last torch that it compiles with, and since
# when.
CPP: tuple[tuple[re.Pattern[str], str, Version, str], ...] = (
    (re.compile(r"^(?!\s*#).*\bAT_CHECK\s*\(", re.M), "AT_CHECK", (1, 4), "in torch 1.5"),
    (re.compile(r"^\s*#\s*include\s*[<\"]THC?/\w+\.c?uh?\b|^\s*#\s*include\s*[<\"]THC?/THC?\w*\.h", re.M), "TH's headers", (1, 10), "in torch 1.11"),
)  # fmt: skip
