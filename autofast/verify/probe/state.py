"""The models: which are called from outside, their state at the first backward and at the end,
training flags, and perturbation.

A model is an outermost module with parameters or buffers: one that was called before any module
that holds it. Wrappers (DDP, DataParallel, torch.compile) are taken off, so that names agree
between a script that has them and one that has not.
"""

from __future__ import annotations

import zlib
from typing import Any

import torch
from torch.nn.modules import module as modules

from .core import Data, Probe
from .gradients import LATELY, by_parts, norm, parameters, together
from .prints import Printer
from .training import compiling
from .unaided import unwrapped

ASKING = "_forward_pre_hooks_with_kwargs"
# Wrappers that call what they hold, as anybody else would.
DRIVEN = 0.05  # size of gradients that are made
CALLING = ("DistributedDataParallel", "FullyShardedDataParallel")


def bare(module: Any) -> Any:
    while True:
        inner = module.__dict__.get("_modules", {}).get("_orig_mod")
        if inner is None and type(module).__name__ in (*CALLING, "DataParallel"):
            inner = module._modules.get("module") or module._modules.get("_fsdp_wrapped_module")
        if inner is None:
            return module
        module = inner


def plain(name: str) -> str:
    """A parameter's name without the parts that wrappers inside a model add."""
    return ".".join(
        part
        for part in name.split(".")
        if part not in ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
    )


lazy: Any = getattr(torch.nn.parameter, "is_lazy", lambda _: False)


def numbers(shape: Any, seed: int) -> Any:
    """Between -1 and 1, whatever is drawn elsewhere."""
    generator = torch._C.Generator()
    torch._C.Generator.manual_seed(generator, seed)
    return torch.rand(shape, generator=generator, dtype=torch.float64) * 2 - 1


def stateful(module: Any) -> bool:
    return next(module.parameters(), None) is not None or next(module.buffers(), None) is not None


class State:
    """``models`` keeps every outermost module, as it is printed at the end. Only in detailed
    runs.
    """

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.models: list[Any] = []
        self.outer: set[int] = set()
        self.inner: set[int] = set()
        # With gradients, without: modules called, in training mode.
        self.shares: dict[bool, list[int]] = {True: [0, 0], False: [0, 0]}
        self.kinds: set[float] = set()
        # Kept as well: at the end of a script's main() they would be gone.
        self.optimizers: list[Any] = []
        self.orphans: Data = {}
        self.start: Data = {}
        self.printer: Printer | None = None
        self.perturbed: dict[int, Any] = {}
        self.inputs: Any = None  # inputs.Inputs
        self.draws: Any = None  # draws.Draws
        self.outermost: dict[int, int] = {}
        self.trained: dict[int, None] = {}  # numbers of those that were called in training mode
        self.before: dict[tuple[str, str], Any] = {}  # tensors as the last step left them
        self.install()

    def install(self) -> None:
        """Two hooks of all modules. Those are called without keyword arguments, but for a module
        that lists the hook's number among those
        of its own that want them: the first hook enters the second there, for this one call, so
        that nothing of it is copied or saved.
        """
        thread = torch.is_grad_enabled

        def ask(module: Any, arguments: Any) -> None:
            # torch.compile traces this as well, as it stands: it must fold to nothing there.
            if compiling() or id(module) in self.inner:
                return
            asking = module.__dict__.get(ASKING)  # since torch 2.0
            if asking is not None:
                asking[handle.id] = True

        def before(module: Any, arguments: Any, keywords: Any = None) -> None:
            if compiling() or id(module) in self.inner:
                return
            module.__dict__.get(ASKING, {}).pop(handle.id, None)
            self.seen(module, thread(), arguments, keywords)

        modules.register_module_forward_pre_hook(ask)
        handle = modules.register_module_forward_pre_hook(before)

    def seen(self, module: Any, gradients: bool, arguments: Any = (), keywords: Any = None) -> None:
        # A copy that DataParallel makes at every call.
        if getattr(module, "_is_replica", False):
            return
        # An evaluation may call the model itself: that is the same model.
        if type(module).__name__ in CALLING or self.slice(module):
            return
        if id(module) not in self.outer:
            model = bare(module)
            if not stateful(model):
                return
            if not any(model is known for known in self.models):
                self.models.append(model)
                if self.inputs is not None:
                    self.inputs.known(len(self.models) - 1, model)
                if self.probe.settings.perturb or self.probe.settings.driven:
                    self.perturb(model)
            self.outer.add(id(module))
            self.inner.update(id(inside) for inside in module.modules() if inside is not module)
        number = self.outermost.get(id(module))
        if number is None:
            model = bare(module)
            number = next(i for i, known in enumerate(self.models) if known is model)
            self.outermost[id(module)] = number
        if gradients and self.inputs is not None:
            self.inputs.called(number, arguments, keywords)
        if self.draws is not None:
            self.draws.called(number, module, gradients, arguments, keywords)
        flags = [inside.training for inside in bare(module).modules()]
        self.shares[gradients][0] += len(flags)
        self.shares[gradients][1] += sum(flags)
        self.kinds.add(round(sum(flags) / len(flags), 6))
        if any(flags) and number not in self.trained:
            self.trained[number] = None
            self.moves([number])

    def slice(self, module: Any) -> bool:
        """Of a sequence that is known, made anew for a call: its own flag says nothing."""
        parts = [id(part) for part in module.children()]
        sequence = isinstance(module, torch.nn.Sequential) and id(module) not in self.outer
        return sequence and bool(parts) and self.inner.issuperset(parts)

    def moves(self, numbers: Any) -> Data:
        """Since the last call: how far floating-point buffers went (what a forward in training
        averages) and, where torch has no optimizer, parameters.
        """
        found: Data = {}
        kinds = {"state_norm": torch.nn.Module.named_buffers}
        if not self.probe.made:
            kinds["update_norm"] = torch.nn.Module.named_parameters
        for what, of in kinds.items():
            ways: list[Any] = []
            for number in numbers:
                for name, tensor in of(self.models[number]):
                    if tensor.is_floating_point() and not lazy(tensor):
                        key = what, f"{number}/{name}"
                        new = unwrapped(tensor.detach()).clone()
                        old = self.before.get(key, new)
                        self.before[key] = old if self.probe.settings.driven else new
                        same = old.shape == new.shape
                        ways.append(norm([new - old.to(new.device)]) if same else None)
                        if same and self.probe.settings.driven:
                            tensor.detach().copy_(old)
            if ways:
                found[what] = together([way for way in ways if way is not None])
                found[f"{what}s"] = by_parts(ways)
        return found

    def ended(self) -> Data:
        """Since the last step: record.Step's training, evaluating and modes, as far as something
        was called, and what moved.
        """
        names = {True: "training", False: "evaluating"}
        found: Data = {
            names[key]: trained / called for key, (called, trained) in self.shares.items() if called
        }
        if self.kinds:
            found["modes"] = sorted(self.kinds)
        self.shares, self.kinds = {True: [0, 0], False: [0, 0]}, set()
        try:
            return {**found, **self.moves(self.trained)}
        except Exception as error:
            self.probe.note(f"movement of the buffers not recorded: {error}")
            return found

    # --------------------------------------------------------------------------------- perturbation
    def perturb(self, model: Any) -> None:
        """Just before the model is called for the first time, so after any checkpoint was loaded
        and, under DDP, after the broadcast.
        """
        for tensor in model.parameters():
            self.perturb_tensor(tensor)

    def perturb_tensor(self, tensor: Any) -> None:
        if id(tensor) in self.perturbed or not tensor.is_floating_point():
            return
        size = (
            2 if self.probe.settings.driven else 1
        )  # what is drawn at first hardly tells inputs apart
        noise = numbers(tensor.shape, 30_011 + len(self.perturbed))
        self.perturbed[id(tensor)] = tensor
        with torch.no_grad():
            tensor.mul_(
                (size + self.probe.settings.perturb * noise).to(tensor.device, tensor.dtype)
            )

    def drive(self, optimizer: Any) -> None:
        """Gradients by numbers that follow from the step and from a tensor's place among the
        optimizer's of its shape, whatever its groups are, and which other models there are.
        """
        models = [one for model in self.models for one in model.parameters()]
        mine = {id(one): one for one in parameters(optimizer)}
        places: dict[Any, int] = {}
        for one in {id(one): one for one in [*models, *mine.values()] if id(one) in mine}.values():
            places[one.shape] = place = places.get(one.shape, 0) + 1
            if one.grad is not None and one.grad.layout == torch.strided:
                text = f"{self.probe.steps} {tuple(one.shape)} {place}"
                one.grad.copy_(DRIVEN * numbers(one.shape, zlib.crc32(text.encode())))

    def constructed(self, optimizer: Any) -> None:
        """Tensors that are no module's parameters are perturbed here: nothing tells of their first
        use.
        """
        self.optimizers.append(optimizer)
        if self.probe.settings.perturb:
            for tensor in parameters(optimizer):
                if not isinstance(tensor, torch.nn.Parameter):
                    self.perturb_tensor(tensor)

    # --------------------------------------------------------------------------------------- prints
    def first_backward(self) -> None:
        try:
            self.start = self.prints()
        except Exception as error:
            self.probe.note(f"the state at the first backward not recorded: {error}")

    def prints(self) -> Data:
        """Parameters and buffers of all models, once where a part of one is called by itself, too;
        then what optimizers hold besides: ``o0/0.2`` is the third of the first group.
        """
        printer = self.printer = self.printer or Printer()
        result: Data = {}
        done: set[int] = set()
        for number, model in enumerate(self.models):
            kinds = (False, model.named_parameters()), (True, model.named_buffers())
            for buffer, name, tensor in [
                (kind, *entry) for kind, entries in kinds for entry in entries
            ]:
                if not lazy(tensor) and id(tensor) not in done:
                    result[f"{number}/{plain(name)}"] = {**printer(tensor), "buffer": buffer}
                done.add(id(tensor))
        for number, optimizer in enumerate(self.optimizers):
            for place, group in enumerate(optimizer.param_groups):
                for index, tensor in enumerate(group["params"]):
                    if id(tensor) not in done:
                        done.add(id(tensor))
                        result[f"o{number}/{place}.{index}"] = printer(tensor)
        return result

    def look(self, models: int = LATELY) -> None:
        """At the first step of each optimizer, of the models that came last, and at the end, of
        all: parameters with a gradient that no optimizer holds (yet).
        """
        for number, model in [*enumerate(self.models)][-models:]:
            for name, tensor in model.named_parameters():
                if tensor.grad is not None:
                    self.orphans[f"{number}/{plain(name)}"] = tensor

    def unused(self) -> list[str]:
        self.look(len(self.models))
        held = {id(tensor) for optimizer in self.optimizers for tensor in parameters(optimizer)}
        return (
            [name for name, tensor in self.orphans.items() if id(tensor) not in held]
            if held
            else []
        )

    def found(self) -> Data:
        return {"model": self.prints(), "start": self.start, "trainable_unused": self.unused()}
