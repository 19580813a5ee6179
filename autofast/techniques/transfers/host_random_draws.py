"""What speaks against making a tensor on the device: what deals out data later depends on how many
numbers the host has drawn."""

from __future__ import annotations

import ast

from autofast.model.events import inside
from autofast.model.script import Script
from autofast.model.source import at
from autofast.model.tensors import device_kinds
from autofast.model.values import Const
from autofast.rule import Effect
from autofast.techniques.transfers.factories import Creation, again_and_again
from autofast.techniques.transfers.numpy_made import is_drawn_by_numpy

SEEDS = ("numpy.random.seed", "numpy.random.set_state")
SPLITS = {  # what deals out data, by the generator that it draws from
    "torch": ("torch.utils.data.random_split", "torch.randperm"),
    "numpy": (
        "numpy.random.permutation",
        "numpy.random.shuffle",
        "numpy.random.choice",
        "sklearn.model_selection.train_test_split",
        "sklearn.model_selection.ShuffleSplit",
    ),
}


def why_not_on_device(script: Script, creation: Creation, hot: frozenset[ast.AST]) -> str:
    """Why this tensor must stay where it is made; empty where nothing speaks against."""
    if creation.refusal:
        return creation.refusal
    for o in creation.site:
        if o.args.open and o.args.dicts:
            return f"it may be given a device already: {o.args.open}"
        if "requires_grad" in o.args.named and o.args.named["requires_grad"].values != {
            Const(False)
        }:
            return "it requires a gradient, which would then belong to the tensor on the device"
        if "generator" in o.args.named and creation.effect is Effect.SAMPLING:
            return "it has a generator of its own, which belongs to one device"
    if creation.effect is not Effect.SAMPLING:
        return ""
    if script.deterministic:
        return f"determinism is asked for ({at(script.deterministic[0])}): the device would draw other numbers"
    for site in script.calls("torch.set_rng_state"):
        return f"{at(site)} sets the generator of the host back, and the device's would go on"
    kind = "numpy" if is_drawn_by_numpy(script, creation.call, creation.site.kind) else "torch"
    for site in script.calls(*SEEDS) if kind == "numpy" else ():
        if any(again_and_again(o.stack, hot) for o in site) or site.kind in SEEDS[1:]:
            return f"{at(site)} sets NumPy's generator back, and the device's would go on"
    return _splits(script, creation, hot, kind)


def _splits(script: Script, creation: Creation, hot: frozenset[ast.AST], kind: str) -> str:
    """A place that deals out the data by the numbers that the host draws next: others may be held
    out then than in the run before."""
    first = min((o.order for o in creation.site), default=0)
    for site in script.calls(*SPLITS[kind]):
        line = f"{at(site)}"
        for o in site:
            if "generator" in o.args.named and o.args.named["generator"].values != {Const(None)}:
                continue
            if {"random_state", "seed"} & o.args.named.keys():
                continue
            if "device" in o.args.named:
                kinds = device_kinds(o.args.named["device"].values)
                if {"accel", "cuda"} & kinds and "cpu" not in kinds:
                    continue  # drawn there, or all is on the host
            around = any(
                inside(o.stack, f.node) for c in creation.site for f in c.stack if f.node in hot
            )
            repeated = again_and_again(o.stack, hot)
            shuffles = repeated and site.kind != "torch.utils.data.random_split"  # of each epoch
            if around and not shuffles or (o.order > first and not repeated):
                return f"what {line} deals out depends on how many numbers the host has drawn"
    return ""
