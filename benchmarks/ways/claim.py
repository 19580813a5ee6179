"""A claim that rules rest on, as a script with places, and ways to go against it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field

PLACE = re.compile(r"^( *)\.\.\.(\w+)$", re.MULTILINE)
HEAD = """\
import collections
import contextlib
import copy
import ctypes
import dataclasses
import functools
import gc
import io
import itertools
import operator
import pickle
import queue
import random
import threading
import types
import weakref

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

torch.manual_seed(0)
np.random.seed(0)
random.seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
"""


@dataclass(frozen=True)
class Claim:
    """``script`` has lines like ``...inside``: there stands what a way says. A way is one text, for
    the place ``inside``, or one for each of several places.
    """

    name: str
    rules: str
    script: str
    ways: Mapping[str, str | Mapping[str, str]] = field(default_factory=dict)
    cuda: bool = False  # run with a second device
    digits: float = 0.0  # how far numbers may be apart
    configs: tuple[str, ...] = ("as it comes", "everything", "with workers", "on request")

    def text(self, way: str) -> str:
        said = self.ways[way]
        parts = {"inside": said} if isinstance(said, str) else said
        used = {m[2] for m in PLACE.finditer(self.script)}
        assert set(parts) <= used, f"{self.name}, {way}: {set(parts) - used}"

        def fill(found: re.Match[str]) -> str:
            return textwrap.indent(textwrap.dedent(parts.get(found[2], "")).strip(), found[1])

        return HEAD + PLACE.sub(fill, textwrap.dedent(self.script))
