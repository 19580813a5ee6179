"""Run before a script that needs torchvision: makes a CUDA build of it importable beside a CPU
build of torch.

Such a build cannot load its compiled operators, and ``import torchvision`` fails as it registers
shapes for operators that are not there. Declaring the two operators is enough for data sets,
transforms, models and utils; detection operators and image decoding stay unavailable. Where
torchvision imports by itself, or is not installed, nothing is done.
"""

import importlib
import importlib.util
import sys

import torch

MISSING = ("nms", "qnms")

if importlib.util.find_spec("torchvision") is not None:
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        torch.torchvision_shim = library = torch.library.Library("torchvision", "FRAGMENT")
        for name in MISSING:
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        importlib.import_module("torchvision")
