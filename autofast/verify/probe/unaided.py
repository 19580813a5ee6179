"""Training in which torch's backward and its optimizers have no part.

A gradient of parameters by ``torch.autograd.grad`` or ``torch.func.grad`` stands for a backward
where the script has none ("g"). Where it asks for no gradient at all and has no optimizer (an
evolution strategy, updates by hand), a step is made when a model is called whose parameters are
others than when it was called before ("u").
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.nn.modules import module as modules

from .core import Probe
from .instead import instead_of
from .training import Training, compiling, kept

BEFORE = 2  # changes that are no training: an initialisation, a checkpoint


def unwrapped(tensor: Any) -> Any:
    """What torch.func has wrapped: of ``vmap``, all of it."""
    inside: Any = getattr(torch._C, "_functorch", None)
    while (
        isinstance(tensor, torch.Tensor) and inside and inside.is_functorch_wrapped_tensor(tensor)
    ):
        tensor = inside.get_unwrapped(tensor)
    return tensor


class Unaided:
    def __init__(self, probe: Probe, training: Training) -> None:
        self.probe, self.training = probe, training
        self.known: dict[int, tuple[Any, Any]] = {}  # outermost modules, their parameters
        self.inner: set[int] = set()
        self.changes = self.gradients = self.depth = 0
        self.handle: Any = modules.register_module_forward_pre_hook(self.hook())
        self.wrap_autograd()
        self.wrap_functions()

    def hook(self) -> Any:
        def called(module: Any, arguments: Any) -> None:
            if not compiling():
                self.called(module)

        return called

    def called(self, module: Any) -> None:
        probe, key = self.probe, id(module)
        if probe.made or probe.backwards or self.gradients:  # another sign of training
            self.handle.remove()
        elif probe.ours and key not in self.inner:
            if key not in self.known:
                self.inner.update(id(inside) for inside in module.modules() if inside is not module)
            before, now = self.known.get(key), self.look(module)
            self.known[key] = module, now
            if before is not None and now != before[1]:
                self.changes += 1
                if self.changes > BEFORE:
                    self.stepped(any(unwrapped(one) is not one for one in module.parameters()))

    def look(self, module: Any) -> Any:
        with torch.no_grad():
            values = [unwrapped(one.detach()).double() for one in module.parameters()]
            return [(float(one.sum()), float(one.square().sum())) for one in values]

    def stepped(self, inside: bool) -> None:
        """``inside`` of vmap nothing of what training begins with can be printed."""
        probe = self.probe
        probe.trains()
        probe.resumed()
        if not inside:
            self.training.begins()
        now = probe.clock()
        probe.events.append(("u", now, now, self.training.ended()))
        probe.step_ended(now)

    def went_back(self, start: float, loss: Any) -> None:
        self.gradients += 1
        if not self.probe.backwards:
            self.training.went_back("g", start, self.probe.clock(), loss)

    def wrap_autograd(self) -> None:
        @instead_of("grad", torch.autograd, hidden=True)
        def grad(original: Any, outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            inputs = tuple(inputs) if hasattr(inputs, "__next__") else inputs
            some = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
            ours = any(isinstance(one, torch.nn.Parameter) for one in some)
            if not ours or self.probe.backwards:
                return original(outputs, inputs, *args, **kwargs)
            self.training.goes_back()
            loss, start = self.training.loss(outputs), self.probe.clock()
            result = original(outputs, inputs, *args, **kwargs)
            self.went_back(start, loss)
            return result

    def wrap_functions(self) -> None:
        from torch import func

        def differentiated(original: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
            return original(self.telling(function), *args, **kwargs)

        for name in ("grad", "grad_and_value"):
            instead_of(name, func)(differentiated)

    def telling(self, function: Any) -> Any:
        """``function``, whose value is a loss; under ``vmap`` those of all samples are summed."""

        @functools.wraps(function)
        def told(*args: Any, **kwargs: Any) -> Any:
            if compiling() or self.depth or self.probe.backwards:
                return function(*args, **kwargs)
            self.depth, start = 1, self.probe.clock()
            try:
                result = function(*args, **kwargs)
            finally:
                self.depth = 0
            loss = unwrapped(result[0] if isinstance(result, tuple) else result)
            self.went_back(start, kept(loss.detach().sum()))
            return result

        return told
