from .data import PackedTokens, ResumableSampler  # noqa: F401
from .model import LM, Cache  # noqa: F401
from .sched import CosineWithWarmup  # noqa: F401
