"""The decisions that a training runs in several processes, each with its part of every batch."""

from __future__ import annotations

from autofast.rule import Options


class Distributed:
    """The decision that a training in one process runs in several."""


class Replaced:
    """The decision that DistributedDataParallel takes the place of DataParallel."""


def several_processes(options: Options) -> bool:
    """Whether the training is to run in several processes."""
    return options.decides(Distributed) or options.decides(Replaced)
