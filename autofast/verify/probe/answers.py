"""What a model makes of given weights and inputs (record.Answer): a copy of each model, in
evaluation mode, is asked once, before the first step.

Where two scripts draw other random numbers their trainings cannot be compared number by number;
what their models compute can. Weights, and the values of the inputs (in the shapes that the first
call has), come from generators with fixed seeds. A run that does this is made for nothing else.
"""

from __future__ import annotations

import copy
import hashlib
import zlib
from typing import Any

import torch

from .core import Probe
from .inputs import named
from .prints import Printer
from .state import plain
from .surroundings import random_digest
from .walk import entries, walk

MOST = 200_000_000  # parameters: a copy of more may not fit


def generator(name: str) -> Any:
    result = torch.Generator()
    torch._C.Generator.manual_seed(result, zlib.crc32(name.encode()))
    return result


def lengths(tensor: Any) -> bool:
    """Whole numbers that may not be 0."""
    return tensor.dim() == 1 and not tensor.is_floating_point() and int(tensor.min()) > 0


def values_for(name: str, tensor: Any) -> Any:
    """Floats scatter around 0; whole numbers and truths are 0 and 1, which are places in any table
    of two rows.
    """
    if tensor.is_floating_point():
        made = torch.randn(tensor.shape, generator=generator(name), dtype=torch.float64)
    elif tensor.is_complex():
        raise TypeError("complex inputs")
    elif tensor.numel() and lengths(tensor):
        made = torch.ones(tensor.shape)
    else:
        made = torch.randint(0, 2, tuple(tensor.shape), generator=generator(name))
    return made.to(tensor.device, tensor.dtype)


def replaced(value: Any, path: str = "") -> Any:
    """Arguments with other values in their tensors; what else they hold stays."""
    if isinstance(value, torch.Tensor):
        return values_for(path, value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(replaced(part, f"{path}.{i}") for i, part in enumerate(value)))
    if isinstance(value, (list, tuple)):
        return type(value)(replaced(part, f"{path}.{i}") for i, part in enumerate(value))
    if isinstance(value, dict):
        return {key: replaced(part, f"{path}.{key}") for key, part in value.items()}
    if entries(value) is not None:
        raise TypeError(f"inputs of a {type(value).__name__}")
    return value


def fill(model: Any) -> None:
    """Matrices as wide as keeps the size of what goes through them; all else lies around 1, as a
    norm's scale may stand under a root.
    """
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            made = generator(plain(name))
            if tensor.dim() > 1:
                wide = max(1, tensor.numel() // tensor.shape[0])
                drawn = torch.randn(tensor.shape, generator=made, dtype=torch.float64) / wide**0.5
            else:
                drawn = 0.5 + torch.rand(tensor.shape, generator=made, dtype=torch.float64)
            tensor.copy_(drawn.to(tensor.dtype))


def kept(model: Any) -> Any:
    """Buffers, and tensors and arrays that modules hold as plain attributes."""
    yield from model.named_buffers()
    for name, module in model.named_modules():
        own = {key: value for key, value in vars(module).items() if not key.startswith("_")}
        for path, leaf in walk(own):
            if isinstance(leaf, torch.nn.Module):
                raise TypeError(f"a module that {name or 'the model'} does not know as its own")
            if isinstance(leaf, torch.Tensor) or type(leaf).__module__ == "numpy":
                yield ".".join((name, *path)), leaf


class Answers:
    """``found``: by number of the model."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.found: dict[str, Any] = {}
        self.busy = False

    def called(self, number: int, model: Any, arguments: Any, keywords: Any) -> None:
        """Just before the first call with gradients."""
        if str(number) in self.found or self.probe.steps:
            return
        self.busy = True
        try:
            self.found[str(number)] = self.asked(model, arguments, keywords or {})
        except Exception as error:  # no copy can be made, or it does not take such values
            self.found[str(number)] = {"failed": f"{type(error).__name__}: {error}"[:200]}
        finally:
            self.busy = False

    def asked(self, model: Any, arguments: Any, keywords: Any) -> dict[str, Any]:
        if sum(p.numel() for p in model.parameters()) > MOST:
            raise ValueError("too large a model")
        asked, printer = copy.deepcopy(model).eval(), Printer()
        fill(asked)
        state = hashlib.sha256()
        for name, parameter in asked.named_parameters():
            state.update(f"{plain(name)} {tuple(parameter.shape)}".encode())
        for name, held in sorted(kept(asked)):
            state.update(f"{name} {printer(torch.as_tensor(held))['sha']}".encode())
        given = [replaced(arguments, "a"), replaced(keywords, "k")]
        shapes = [f"{name} {tuple(t.shape)} {t.dtype}" for name, t in named(given)]
        before = random_digest()
        parameters = {n: p for n, p in asked.named_parameters() if p.requires_grad}
        with torch.enable_grad():
            results = [
                (name, tensor)
                for name, tensor in named(asked(*given[0], **given[1]))
                if tensor.is_floating_point()
            ]
            if random_digest() != before:
                raise RuntimeError("it draws random numbers, in evaluation too")
            total = sum(
                (tensor.double() * values_for("r" + name, tensor)).sum()
                for name, tensor in results
                if tensor.requires_grad
            )
            gradients: Any = (
                torch.autograd.grad(total, list(parameters.values()), allow_unused=True)
                if isinstance(total, torch.Tensor) and parameters
                else ()
            )
        return {
            "given": shapes,
            "state": state.hexdigest(),
            "results": {name: printer(tensor) for name, tensor in results},
            "forms": {
                f"{name} {form}": printer(made)
                for name, tensor in results
                for form, made in forms(tensor.detach().float())
            },
            "gradients": {
                name: printer(gradients[i])
                for i, name in enumerate(parameters)
                if gradients and gradients[i] is not None
            },
        }


def forms(tensor: Any) -> Any:
    """A last function may stand in the model or in the loss."""
    yield "sigmoid", tensor.sigmoid()
    for dim in {1, tensor.dim() - 1} if tensor.dim() > 1 else ():
        yield f"softmax{dim}", tensor.softmax(dim)
        yield f"log_softmax{dim}", tensor.log_softmax(dim)
