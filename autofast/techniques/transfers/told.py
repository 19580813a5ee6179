"""Calls that make tensors of numbers of the host and are told a device: the numbers are copied
there, and the host waits, as for any other copy."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.model.calls import keyword_of
from autofast.model.events import Site
from autofast.model.roles import GPUS
from autofast.model.script import Script
from autofast.model.syntax import is_attribute
from autofast.model.tensors import device_kinds
from autofast.model.values import Arg, Const, Num, Tensor, certainly

CALLS = ("torch.tensor", "torch.as_tensor")
TAKEN = {"device", "dtype"}


def told(script: Script) -> Iterator[tuple[ast.Call, Site]]:
    """``torch.tensor(numbers, device=x.device)``, of more than one number."""
    for site in script.calls(*CALLS):
        match site.node:
            case ast.Call(args=[data], keywords=given) as call if (
                {k.arg for k in given} <= TAKEN
                and not script.may_be(data, Tensor)
                and not _is_number(script, data)
                and (device := keyword_of(call, "device")) is not None
                and is_there(script, device)
            ):
                yield call, site


def is_there(script: Script, device: ast.expr) -> bool:
    """Whether a device is that of a tensor which may be on the GPU, or the GPU if there is one."""
    if is_attribute(device, "device") and script.may_be(device.value, Tensor):
        return not all(
            isinstance(t, Tensor) and t.device == "cpu" for t in script.values(device.value)
        )
    kinds = device_kinds(script.values(device))
    return bool(kinds & GPUS) and "?" not in kinds


def _is_number(script: Script, data: ast.expr) -> bool:
    found = script.values(data)
    sequences = any(isinstance(t, Const) and isinstance(t.value, tuple) for t in found)
    plain = all(bool(t.scalar) for t in found if isinstance(t, Num))
    return certainly(found, Const, Num, Arg) and plain and not sequences
