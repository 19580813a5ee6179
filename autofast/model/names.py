"""Canonical names of the library's objects, and what kind of object a name makes. Tables only."""

from __future__ import annotations

import re
import sys
from functools import cache

from autofast.model.several import wordset

# fmt: off
_MOVED = [
    (  # a public name by the module that defines it
        r"^torch\.(?:"
        r"(utils\.data)\.(?:dataloader|dataset|sampler|distributed|_utils\.(?:collate|worker))"
        r"|(autograd)\.(?:function|variable|grad_mode|anomaly_mode|gradcheck)"
        r"|(nn\.utils)\.(?:clip_grad|convert_parameters|fusion|init|memory_format|(?:weight|spectral)_norm)"
        r"|(nn\.parallel)\.(?:distributed|data_parallel|parallel_apply|replicate|scatter_gather)"
        r"|(nn)\.parameter|(distributed)\.(?:distributed_c10d|device_mesh|rendezvous)"
        r"|(amp|cuda\.amp)\.(?:autocast_mode|grad_scaler))\.(\w+)$",
        r"torch.\1\2\3\4\5\6\7.\8",
    ),
    (r"^torch\.amp\.autocast$", "torch.autocast"),
    (r"^torch\.optim\.(?!lr_scheduler|swa_utils|_multi_tensor)[a-z_]\w*\.([A-Z]\w*)$", r"torch.optim.\1"),
    (r"^torch\.nn\.modules\.(?:\w+\.)?([A-Z]\w*)$", r"torch.nn.\1"),
    (r"^torch\.nn\.parallel\.DataParallel$", "torch.nn.DataParallel"),
    (r"^torch\.autograd\.(no_grad|enable_grad|set_grad_enabled|inference_mode)$", r"torch.\1"),
    (r"^torch\.nn\.utils\.clip_grad_norm$", "torch.nn.utils.clip_grad_norm_"),
    (
        r"^(?:lightning\.pytorch|pytorch_lightning)\.demos\.mnist_datamodule\.MNIST$",
        "torchvision.datasets.MNIST",
    ),  # with a fallback for tests
    (
        r"^(?:lightning\.pytorch|pytorch_lightning)\.utilities\.model_helpers\.get_torchvision_model$",
        "torchvision.models.get_model",
    ),
    (r"^(?:lightning\.pytorch|pytorch_lightning)\.trainer\.(?:trainer\.)?Trainer\b", "lightning.Trainer"),
    (r"^(?:lightning\.pytorch|pytorch_lightning)\b", "lightning"),
    (r"^tqdm(?:\.\w+)?\.(?:tqdm|trange|tqdm_notebook)$", "tqdm.tqdm"),
    (r"^torch\.(?:special|linalg|functional)\.", "torch."),
    (
        r"^torch\.(?:serialization\.(load|save)|random\.((?:manual_|initial_)?seed|[gs]et_rng_state))$",
        r"torch.\1\2",
    ),
    (r"^torchvision\.models\.(?:\w+\.)?([a-z]\w*)$", r"torchvision.models.\1"),
    (r"^torchvision\.datasets\.(?:\w+\.)?([A-Z]\w*)$", r"torchvision.datasets.\1"),
]
# fmt: on
_PATTERNS = [(re.compile(p), r) for p, r in _MOVED]


def last_part(name: str) -> str:
    """What stands behind the last dot of a name."""
    return name.rpartition(".")[2]


def first_part(name: str) -> str:
    """What stands before the first dot of a name: the package."""
    return name.partition(".")[0]


@cache
def canonical(name: str) -> str:
    """One name for everything that is importable from several places."""
    for pattern, replacement in _PATTERNS:
        name = pattern.sub(replacement, name)
    return name


# Frameworks whose trainer owns the loop: `script.frameworks` names them.
OWNERS = tuple("lightning hf-trainer fastai ignite mmengine composer".split())
CLOCKS = tuple(
    "time.time time.perf_counter time.monotonic time.process_time timeit.default_timer".split()
)
# What waits until the device is done with all that it has to do.
SYNCHRONIZE = wordset(
    "cuda.synchronize mps.synchronize xpu.synchronize accelerator.synchronize", "torch."
)
SETTINGS_FILES = wordset(  # give what a file of settings holds: no tensors, nor arrays
    "yaml.safe_load yaml.load json.load json.loads tomllib.load tomllib.loads toml.load"
)
NAMED_TUPLE = "typing.NamedTuple"
CONTEXT = "torch.autograd.function.FunctionCtx"  # made for each call of a Function
LOADER = "torch.utils.data.DataLoader"
# of torch_geometric: DataLoaders of torch whose batches are objects that hold tensors
GRAPH_LOADERS = wordset(
    "loader.DataLoader data.DataLoader loader.dataloader.DataLoader", "torch_geometric."
)
GRAPHS = "torch_geometric.data.Batch.from_data_list"  # what puts such a batch together
DDP = "torch.nn.parallel.DistributedDataParallel"
WRAPPERS = frozenset(
    {
        DDP,
        "torch.nn.DataParallel",
        "torch.compile",
        "apex.parallel.DistributedDataParallel",
        "torch.jit.script",
    }
)
# Layers of torch.nn that only compute: no parameters, no state, no random numbers.
FORWARD_HOOKS = tuple(
    f"register_{name}hook" for name in ("forward_", "forward_pre_", "module_forward_")
)
HOOK_OF_ALL = "torch.nn.modules.module.register_module_forward_hook"
ACTIVATIONS = wordset(
    """CELU ELU GELU GLU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid LogSoftmax Mish ReLU ReLU6 SELU SiLU
    Sigmoid Softmax Softmax2d Softmin Softplus Softshrink Softsign Tanh Tanhshrink Threshold CosineSimilarity PairwiseDistance""",
    "torch.nn.",
)
# Layers of torch.nn without parameters and buffers.
WITHOUT_TENSORS = ACTIVATIONS | frozenset(
    f"torch.nn.{name}"
    for name in (
        *"Dropout AlphaDropout FeatureAlphaDropout Flatten Fold Identity RReLU PixelShuffle Unfold Upsample ZeroPad2d".split(),
        *(
            f"{n}{d}d"
            for d in (1, 2, 3)
            for n in ("Dropout", "ConstantPad", "ReflectionPad", "ReplicationPad")
        ),
        *(f"{a}{m}Pool{d}d" for d in (1, 2, 3) for a in ("", "Adaptive") for m in ("Avg", "Max")),
    )
)
CONTAINERS = wordset("torch.nn.Sequential torch.nn.ModuleList torch.nn.ModuleDict")
COLLATES = ("torch.utils.data.default_collate",)
CHAINS = wordset("torchvision.transforms.Compose torchvision.transforms.v2.Compose")
GRIDS = wordset("numpy.mgrid numpy.ogrid numpy.r_ numpy.c_")  # arrays by ``[]``
MODULE_BASES = wordset("torch.nn.Module lightning.LightningModule lightning.core.LightningModule")
DATASETS = ("torchvision.datasets.", "torchaudio.datasets.", "datasets.")
DATASET_BASES = wordset("torch.utils.data.Dataset torch.utils.data.IterableDataset")
NO_GRAD = {"torch.no_grad": "off", "torch.inference_mode": "inference", "torch.enable_grad": "on"}
AUTOCAST = wordset("torch.autocast torch.cuda.amp.autocast torch.cpu.amp.autocast")
SCALER = wordset("torch.amp.GradScaler torch.cuda.amp.GradScaler torch.cpu.amp.GradScaler")

# functions that change how a module gets its parameters, or exchange layers inside, and return it
ON_A_MODULE = (
    *(
        f"torch.nn.utils.{name}"
        for name in (
            "weight_norm spectral_norm remove_weight_norm remove_spectral_norm parametrizations. "
            "parametrize.register_parametrization prune."
        ).split()
    ),
    "torch.nn.SyncBatchNorm.convert_sync_batchnorm",
    "apex.parallel.convert_syncbn_model",
)
# torch functions that make a tensor of their own; True where they draw random numbers
FACTORIES = {
    **dict.fromkeys(
        "zeros ones full empty eye arange linspace logspace tensor range".split(), False
    ),
    **dict.fromkeys(("zeros_like", "ones_like", "full_like", "empty_like"), False),
    **dict.fromkeys(
        "rand randn randint randperm normal bernoulli rand_like randn_like randint_like".split(),
        True,
    ),
}
GENERATORS = wordset("""numpy.random.default_rng numpy.random.RandomState numpy.random.Generator random.Random
    torch.Generator""")
LEGACY_TENSORS = wordset(
    "FloatTensor DoubleTensor LongTensor HalfTensor IntTensor ByteTensor BoolTensor Tensor"
)
FUNCTIONAL_LOSSES = wordset(
    "binary_cross_entropy binary_cross_entropy_with_logits cosine_embedding_loss cross_entropy ctc_loss "
    "gaussian_nll_loss hinge_embedding_loss huber_loss "
    "kl_div l1_loss margin_ranking_loss mse_loss multi_margin_loss multilabel_margin_loss multilabel_soft_margin_loss nll_loss poisson_nll_loss "
    "smooth_l1_loss soft_margin_loss triplet_margin_loss triplet_margin_with_distance_loss"
)
# of torchvision's models: the others return a dict, a list, or a tuple in training
ONE_TENSOR = tuple(
    "resnet resnext wide_resnet vgg alexnet densenet mobilenet efficientnet squeezenet shufflenet mnasnet regnet convnext vit_ swin_ maxvit".split()
)
# of what ``from module import *`` binds: known from the running Python, and libraries that bind no
# name of a builtin
STANDARD = wordset(
    "math cmath random time datetime os os.path sys collections itertools functools typing copy string json re operator statistics dataclasses "
    "abc enum pathlib glob argparse pickle struct heapq bisect contextlib"
)
KNOWN_BASES = frozenset(sys.stdlib_module_names) | wordset(
    "builtins dataclass metaclass torch torchvision torchaudio torchtext lightning transformers accelerate numpy datasets ignite"
)  # where the bases of a class come from that are what their names say
NO_BUILTINS = wordset(
    "torch.nn torch.nn.functional torch.nn.init torch.optim torch.optim.lr_scheduler torch.utils.data torch.autograd torchvision "
    "torchvision.transforms torchvision.models torchvision.datasets torchvision.utils tqdm matplotlib.pyplot transformers "
    "sklearn.metrics sklearn.model_selection sklearn.preprocessing sklearn.datasets sklearn.utils"
)
PACKAGES = wordset(
    "torch torch.nn torch.nn.functional torch.nn.init torch.nn.utils torch.optim torch.utils torch.utils.data torch.autograd"
)
# what is certainly no class or function, whatever it is imported as
MODULES = (
    PACKAGES
    | NO_BUILTINS
    | frozenset(sys.stdlib_module_names)
    | wordset(
        "torchvision.ops torchvision.io numpy numpy.random numpy.linalg pandas scipy cv2 PIL.Image"
    )
) - {"tqdm"}
STARRED = {
    "tqdm": "tqdm trange tqdm_notebook",
    "tqdm.auto": "tqdm trange",
    "torch.autograd": "Variable Function grad backward no_grad enable_grad",
    "torch.nn": "Module Sequential ModuleList ModuleDict Linear Conv1d Conv2d Conv3d ConvTranspose2d BatchNorm1d BatchNorm2d LayerNorm ReLU LeakyReLU "
    "Sigmoid Tanh Softmax Dropout Embedding LSTM GRU RNN CrossEntropyLoss NLLLoss MSELoss BCELoss BCEWithLogitsLoss L1Loss Parameter DataParallel "
    "MaxPool2d AvgPool2d AdaptiveAvgPool2d Flatten Identity Upsample functional init utils parallel",
    "torch": "nn optim utils Tensor device tensor zeros ones rand randn cat stack no_grad save load manual_seed cuda backends autocast from_numpy",
    "torch.optim": "SGD Adam AdamW RMSprop Adagrad Adadelta LBFGS NAdam RAdam lr_scheduler",
    "torch.utils.data": "DataLoader Dataset TensorDataset Subset random_split ConcatDataset Sampler IterableDataset",
    "torch.optim.lr_scheduler": "StepLR MultiStepLR ExponentialLR CosineAnnealingLR ReduceLROnPlateau LambdaLR OneCycleLR",
}


@cache
def makes_module(name: str) -> bool:
    """Whether calling ``name`` gives an ``nn.Module`` of a library."""
    last = last_part(name)
    if name.startswith("torch.nn.") and not name.startswith(
        ("torch.nn.functional.", "torch.nn.init.", "torch.nn.utils.")
    ):
        return (
            last == "*"
            or last[:1].isupper()
            and last not in ("Parameter", "ParameterList", "ParameterDict", "Buffer")
        )
    if name.startswith("torchvision.models."):
        return (
            last == "*" or last[:1].islower() or last[:1].isupper() and not last.endswith("Weights")
        )
    return (
        is_of_model_library(name)
        or name in ("torch.compile", "torch.jit.script", "torch.optim.swa_utils.AveragedModel")
        or (
            name.startswith(("transformers.", "pytorch_transformers."))
            and (
                last in ("from_pretrained", "from_config")
                and ("Model" in name or "For" in name)
                or is_model_class(last)
            )
        )
    )


# Networks of images among the layers of a model: ``torchvision.models.resnet18``,
# ``timm.models.resnet18`` for ``timm.create_model("resnet18")``.
VISION, TIMM = "torchvision.models.", "timm.models."
CONVOLVE = ("Conv", "LazyConv", VISION, TIMM)  # how the names of layers that convolve begin
# Given targets, they give their losses by name, in fp32; where they evaluate, what they find.
DETECTORS = re.compile(
    r"torchvision\.models\.(?:\w+\.)*(?:(?:faster|mask|keypoint)_?rcnn|retinanet|fcos|ssd)"
)
BY_ARCHITECTURE = wordset("timm.create_model geffnet.create_model")
# Libraries of image models, all of layers of torch, and timm's own layers.
_MODELS = re.compile(
    r"(timm\.create_model|timm\.(models\.)?layers\.(\w+\.)?[A-Z]\w+|segmentation_models_pytorch\.(create_model|[A-Z]\w+)|geffnet\.(create_model|[a-z]\w+)"
    r"|efficientnet_pytorch\.EfficientNet(\.from_name|\.from_pretrained)?|pretrainedmodels\.[a-z]\w+|resnest\.torch\.resnest\w+)$"
)


def is_of_model_library(name: str) -> bool:
    """Whether calling ``name`` gives an image model of another library than torchvision."""
    return _MODELS.match(name) is not None


def is_model_class(name: str) -> bool:
    """``GPT2LMHeadModel``, ``BertForMaskedLM``; no ``DataCollatorForLanguageModeling``"""
    return name[:1].isupper() and (
        name.endswith("Model")
        or re.match(r"[A-Z][A-Za-z0-9]*For[A-Z][A-Za-z]+$", name) is not None
        and not name.startswith("DataCollator")
        and not name.endswith(("Config", "Output", "Pipeline", "Processor", "Tokenizer"))
    )


def is_tokenizer(name: str) -> bool:
    """``AutoTokenizer.from_pretrained``, ``BertTokenizerFast``: what it is called with says all of
    what it gives.
    """
    root, _, rest = name.partition(".")
    return root in ("transformers", "pytorch_transformers", "tokenizers") and (
        re.search(r"(^|\.)\w*Tokenizer(Fast)?(\.from_\w+)?$", rest) is not None
    )


def gives_one_tensor(name: str) -> bool:
    """Whether calling a module of this library class gives a tensor, and no tuple or dict of
    them.
    """
    last = last_part(name)
    return (name.startswith("torch.nn.") and last != "*") or (
        name.startswith("torchvision.models.") and last.startswith(ONE_TENSOR)
    )


ANY_OPTIMIZER = "torch.optim.*"  # getattr(torch.optim, name)
# of other libraries, with the interface of torch's
OPTIMIZERS = wordset("""transformers.AdamW transformers.Adafactor transformers.optimization.AdamW
    transformers.optimization.Adafactor pytorch_transformers.AdamW""")


def is_optimizer(name: str) -> bool:
    # those of _multi_tensor are the same with foreach=True
    return name in (ANY_OPTIMIZER, *OPTIMIZERS) or (
        name.startswith("torch.optim.")
        and name.replace("._multi_tensor", "").count(".") == 2
        and last_part(name)[:1].isupper()
    )


def is_scheduler(name: str) -> bool:
    last = last_part(name)
    if name.startswith(("transformers.", "pytorch_transformers.", "diffusers.")):
        # functions that make a LambdaLR of torch, and classes of old versions
        return (last.startswith("get_") and "schedule" in last) or last.endswith("Schedule")
    return name.startswith("torch.optim.lr_scheduler.") and last[:1].isupper()


def is_loss(name: str) -> bool:
    return name.startswith("torch.nn.") and name.endswith("Loss")


# Of processes or threads that run functions.
POOLS = ("concurrent.futures.", "multiprocessing.", "torch.multiprocessing.", "joblib.")
