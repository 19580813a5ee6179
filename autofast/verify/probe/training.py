"""Optimizers, backward and GradScaler: the events from which steps are made.

torch offers global hooks around every optimizer's step
(torch.optim.optimizer.register_optimizer_step_pre_hook, 2.0 and later); they fire for subclasses of
a script's own too. ``Tensor.backward`` looks ``torch.autograd.backward`` up when it is called, so
one wrapper sees both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import optimizer as optim

from .core import Data, Probe
from .instead import instead_of, opaque

compiling: Any = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)
# in the optimizer's own __dict__: no reference that would keep a discarded optimizer and its state
# alive
NUMBER = "_autofast_number"
HELD = "_autofast_held"


def held(optimizer: Any) -> bool:
    """Whether something of earlier steps is in its state."""
    parts = [part for part in optimizer.state.values() if isinstance(part, dict)]
    values = (value for part in parts for value in part.values())
    return any(v.any().item() if isinstance(v, torch.Tensor) else bool(v) for v in values)


def kept(value: Any) -> Any:
    """A copy of a number: as a float where that is free, as a tensor where reading it would wait
    for the device.

    A copy, as scripts change losses in place (``total += loss``) and CUDA graphs write the next
    loss to the same memory.
    """
    if not isinstance(value, torch.Tensor):
        return float(value) if isinstance(value, (int, float)) else float("nan")
    if value.numel() != 1:
        return float("nan")
    value = value.detach()
    return value.item() if value.device.type == "cpu" and not value.is_complex() else value.clone()


class Training:
    """Installs the hooks; ``before`` and ``after`` are called around each step with the optimizer
    where gradients are asked for.
    """

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        # Steps that have begun: optimizer, time, learning rates, extras.
        self.open: list[list[Any]] = []
        # Results of GradScaler.scale and what they were made from.
        self.scaled: list[tuple[Any, Any]] = []
        self.scale: Any = None
        self.in_backward = False
        self.detailed = probe.settings.detailed
        self.watch: Any = None  # gradients.Watch
        self.models: Callable[[], Data] = dict  # state.State.ended
        self.options: Any = None  # options.Options
        self.kinds: Callable[[list[Any]], None] = lambda parameters: None  # precision.Precision
        self.random: Callable[[], str] | None = None  # surroundings.random_digest
        self.first_of_optimizer: Callable[[], None] = lambda: None
        self.first_backward: list[Callable[[], None]] = []
        self.each_backward: Callable[[], None] = lambda: None  # averages.Averages
        self.constructed: list[Callable[[Any], None]] = []
        optim.register_optimizer_step_pre_hook(opaque(self.before_hook()))
        optim.register_optimizer_step_post_hook(opaque(self.after_hook()))
        self.wrap_construction()
        self.wrap_backward()
        self.wrap_scaler()

    def begins(self) -> None:
        for callback in self.first_backward:
            callback()
        self.first_backward.clear()

    def ended(self) -> Data:
        """What is known of a step at its end, whoever makes it."""
        return {**self.models(), **({"random": self.random()} if self.random else {})}

    # ----------------------------------------------------------------------------------- optimizers
    def number(self, optimizer: Any) -> int:
        """One whose state was cleared goes as another: as good as made anew."""
        number: int | None = optimizer.__dict__.get(NUMBER)
        if number is None:
            number = optimizer.__dict__[NUMBER] = len(self.probe.optimizers)
            self.probe.optimizers.append(type(optimizer).__name__)
        return number

    def rates(self, optimizer: Any) -> tuple[Any, ...]:
        """As a tuple: the garbage collector stops looking at one of plain numbers, and thousands of
        lists would slow its rounds.
        """
        rates = [group.get("lr", 0.0) for group in optimizer.param_groups]
        return tuple([rate if type(rate) is float else kept(rate) for rate in rates])

    def wrap_construction(self) -> None:
        @instead_of("__init__", optim.Optimizer, hidden=True)
        def construct(original: Any, optimizer: Any, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            self.probe.made += 1
            for callback in self.constructed:
                callback(optimizer)

    def before_hook(self) -> Callable[..., Any]:
        """Closures are timed: with them forward and backward lie inside the step (LBFGS,
        Lightning).
        """
        probe, clock, stack = self.probe, self.probe.clock, self.open

        def before(optimizer: Any, args: tuple[Any, ...], kwargs: Data) -> Any:
            probe.resumed()
            self.begins()
            for place, entry in enumerate(stack):
                if entry[0] is optimizer:  # an earlier step of it ended in an exception
                    del stack[place:]
                    break
            entry = [optimizer, clock(), self.rates(optimizer), {}]
            stack.append(entry)
            # Inside another one's step, as with Lookahead or ZeroRedundancyOptimizer: the outer
            # one is the step.
            if len(stack) > 1:
                return None
            if optimizer.__dict__.get(HELD) and not held(optimizer):
                optimizer.__dict__.pop(NUMBER, None)
            # Fused optimizers are told by GradScaler, and skip on the device.
            found = getattr(optimizer, "found_inf", None)
            if found is not None:
                entry[3]["inf"] = found
            closure = args[1] if len(args) > 1 else kwargs.get("closure")
            if closure is None:
                if self.watch is not None:
                    self.watch.before(optimizer, entry[3])
                if self.detailed:
                    self.kinds([p for group in optimizer.param_groups for p in group["params"]])
                entry[1] = clock()
                return None
            timed = self.closure(closure, optimizer, entry[3])
            if len(args) > 1:
                return (args[0], timed, *args[2:]), kwargs
            return args, {**kwargs, "closure": timed}

        return before

    def closure(self, closure: Any, optimizer: Any, extras: Data) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            start = self.probe.clock()
            result = closure(*args, **kwargs)
            self.probe.events.append(("f", start, self.probe.clock()))
            if self.watch is not None and "grad_norm" not in extras:
                self.watch.before(optimizer, extras)
            return result

        return timed

    def after_hook(self) -> Callable[..., None]:
        probe, clock, stack = self.probe, self.probe.clock, self.open

        def after(optimizer: Any, args: tuple[Any, ...], kwargs: Data) -> None:
            now = clock()
            if not stack or stack[-1][0] is not optimizer:
                return
            _, start, rates, extras = stack.pop()
            if stack:
                return
            if self.detailed:
                optimizer.__dict__[HELD] = held(optimizer)
                if self.watch is not None:
                    self.watch.after(optimizer, extras)
                extras.update(self.ended())
                if NUMBER not in optimizer.__dict__:
                    self.first_of_optimizer()
                if self.options is not None:
                    self.options.seen(self.number(optimizer), optimizer)
            probe.events.append(("o", start, now, self.number(optimizer), rates, extras or None))
            probe.step_ended(now)

        return after

    # ------------------------------------------------------------------------------------- backward
    def wrap_backward(self) -> None:
        probe, clock = self.probe, self.probe.clock

        @instead_of("backward", torch.autograd, hidden=True)
        def backward(original: Any, tensors: Any, *args: Any, **kwargs: Any) -> None:
            if self.in_backward:  # reentrant checkpointing calls it from inside a backward
                original(tensors, *args, **kwargs)
                return
            self.goes_back()
            scale = self.scale if self.scaled else None
            loss = self.loss(tensors)
            self.in_backward = True
            start = clock()
            try:
                original(tensors, *args, **kwargs)
            finally:
                self.in_backward = False
            now = clock()
            if self.watch is not None:
                self.watch.after_backward(scale)
            probe.backwards += 1
            self.went_back("b", start, now, loss)

    def goes_back(self) -> None:
        """A backward begins, or what stands for one."""
        self.probe.trains()
        if self.probe.stopping:
            self.probe.resumed()
        self.begins()
        self.each_backward()

    def went_back(self, kind: str, start: float, now: float, loss: Any) -> None:
        """Where no optimizer of torch's has stepped (none was made, or none steps in a hundred
        backwards) it ends a step.
        """
        probe = self.probe
        many = probe.settings.steps and probe.backwards >= 100 * probe.settings.steps
        ends = not (probe.steps and probe.optimizers) and (not probe.made or many)
        probe.events.append((kind, start, now, loss, self.ended() if ends else None))
        if ends:
            probe.step_ended(now)

    def loss(self, tensors: Any) -> Any:
        if isinstance(tensors, torch.Tensor):
            return kept(self.unscaled(tensors))
        values = [kept(self.unscaled(tensor)) for tensor in tensors]
        return sum(values[1:], values[0]) if values else float("nan")

    # ----------------------------------------------------------------------------------- GradScaler
    def unscaled(self, tensor: Any) -> Any:
        if not self.scaled:
            return tensor
        for place, (scaled, loss) in enumerate(self.scaled):
            if scaled is tensor:
                del self.scaled[place]
                return loss
        # Something computed from scaled losses, such as their sum.
        self.scaled.clear()
        return tensor if self.scale is None else tensor.detach() / self.scale.to(tensor.device)

    def wrap_scaler(self) -> None:
        """torch.cuda.amp.GradScaler and torch.cpu.amp.GradScaler derive from torch.amp's since 2.3;
        before, there is only the first.
        """
        scaler: Any = getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler
        probe = self.probe

        @instead_of("scale", scaler, hidden=True)
        def remember(original: Any, this: Any, outputs: Any) -> Any:
            result = original(this, outputs)
            if isinstance(outputs, torch.Tensor):
                self.scaled = [(result, outputs.detach())]
            elif isinstance(outputs, (list, tuple)):
                self.scaled = [
                    (r, o.detach())
                    for r, o in zip(result, outputs)  # noqa: B905
                    if isinstance(o, torch.Tensor)
                ]
            self.scale = getattr(this, "_scale", None)
            return result

        @instead_of("step", scaler, hidden=True)
        def watched(original: Any, this: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            steps, start = probe.steps, probe.clock()
            result = original(this, optimizer, *args, **kwargs)
            # No hook fired: it found an infinity. It has read that from the device itself, so
            # nothing needs to be asked.
            if (
                probe.steps == steps
                and this.is_enabled()
                and getattr(type(optimizer).step, "hooked", False)
            ):
                now = probe.clock()
                probe.events.append(
                    ("k", start, now, self.number(optimizer), self.rates(optimizer))
                )
                probe.step_ended(now)
            return result
