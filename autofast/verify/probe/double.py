"""The same run in double precision, with the same random draws: what rounding alone does to a
training is measured against it.

A dispatch mode sees every operator below autograd and autocast. It turns requests for a smaller
float into float64, casts what is still small up where the two meet, and lets random operators draw
as they would have drawn in float32: a generator gives other numbers for float64.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from .core import Data
from .instead import instead_of

SMALL = (torch.float32, torch.float16, torch.bfloat16)
BIG = torch.float64


def up(value: Any) -> Any:
    return value.to(BIG) if isinstance(value, torch.Tensor) and value.dtype in SMALL else value


def down(value: Any) -> Any:
    return (
        value.to(torch.float32) if isinstance(value, torch.Tensor) and value.dtype == BIG else value
    )


def tensors(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value]
    return (
        [tensor for entry in value for tensor in tensors(entry)]
        if isinstance(value, (list, tuple))
        else []
    )


def unscaled() -> None:
    """Every GradScaler is a disabled one: float64 needs none, and its kernel takes factors in
    float32 only.
    """
    scaler: Any = getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler

    @instead_of("__init__", scaler)
    def construct(original: Any, this: Any, *args: Any, **kwargs: Any) -> None:
        original(this, *args, **kwargs)
        this._enabled = False


class Double(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __enter__(self) -> Any:
        torch.set_default_dtype(BIG)
        unscaled()
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if torch.Tag.nondeterministic_seeded in func.tags:
            return self.draw(func, args, kwargs)
        if kwargs.get("dtype") in SMALL:
            kwargs["dtype"] = BIG
        changed = {
            place
            for place, argument in enumerate(func._schema.arguments)
            if argument.alias_info and argument.alias_info.is_write
        }
        names = [argument.name for argument in func._schema.arguments]
        found = tensors(args) + tensors(list(kwargs.values()))
        if any(tensor.dtype == BIG for tensor in found) and any(
            tensor.dtype in SMALL for tensor in found
        ):
            if not func._schema.name.startswith("aten::copy_"):
                # What is written to keeps its type. Fused optimizers read their step count as
                # float32, whatever the parameters are.
                args = [
                    value
                    if place in changed or names[place] == "state_steps"
                    else tree_map(up, value)
                    for place, value in enumerate(args)
                ]
                kwargs = {
                    name: value if name in ("out", "state_steps") else tree_map(up, value)
                    for name, value in kwargs.items()
                }
        if func._schema.name.startswith("aten::_fused_") and "state_steps" in names:
            place = names.index("state_steps")
            if place < len(args):
                args = [
                    tree_map(down, value) if index == place else value
                    for index, value in enumerate(args)
                ]
        if "dtype" not in kwargs and "dtype" in names and names.index("dtype") < len(args):
            place = names.index("dtype")
            args = [
                BIG if index == place and value in SMALL else value
                for index, value in enumerate(args)
            ]
        result = func(*args, **kwargs)
        # torch.tensor(..., dtype=torch.float32) fills its memory before any operator is called.
        return up(result) if func is torch.ops.aten.lift_fresh.default else result

    def draw(self, func: Any, args: Any, kwargs: Data) -> Any:
        name = func._schema.name
        if name.endswith("_") and args and isinstance(args[0], torch.Tensor):
            target = args[0]
            if target.dtype != BIG:
                return func(*args, **kwargs)
            drawn = func(
                torch.empty_like(target, dtype=torch.float32), *map(down, args[1:]), **kwargs
            )
            return target.copy_(drawn)
        if name == "aten::native_dropout":
            value, share, train = args
            if not train:
                return func(*args, **kwargs)
            _, mask = func(torch.ones_like(value, dtype=torch.float32), share, train)
            return up(value) * mask / (1 - share) if share < 1 else torch.zeros_like(value), mask
        if kwargs.get("dtype") in (*SMALL, BIG):
            kwargs["dtype"] = torch.float32
        elif (
            "dtype" in [argument.name for argument in func._schema.arguments]
            and not tensors(args)
            and kwargs.get("dtype") is None
        ):
            if not name.startswith(("aten::randint", "aten::randperm")):
                kwargs["dtype"] = torch.float32
        return tree_map(up, func(*[tree_map(down, value) for value in args], **kwargs))
