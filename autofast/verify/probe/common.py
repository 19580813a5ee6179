"""Common random numbers: all generators start anew with every optimizer step, from its number.

Two scripts of which one has drawn a number more, or another order once, draw the same numbers
again from the next step on. What is drawn before the first step follows from the seed that the
script has set, from what is drawn, and how often it was before: a number more changes nothing else.
What a script seeds or restores by itself afterwards acts as it always does: an order that is the
same in every epoch stays one. What is drawn without gradients from the first step on comes from
numbers of its own, so that an evaluation that draws otherwise is the only thing that is another.
Generators that it makes for itself (own.py) are followed if they are
there before the first step.

An item of a map-style data set is made from random numbers that follow from the pass and its index,
wherever it is made: by the main process, which draws on afterwards as if it had made none, or by
any worker. How workers are seeded is not seen then."""

from __future__ import annotations

import random
import sys
import zlib
from collections.abc import Callable
from multiprocessing.sharedctypes import RawValue
from typing import Any

import torch
from torch.utils.data import dataloader, get_worker_info
from torch.utils.data._utils.fetch import _MapDatasetFetcher

from .core import Data, Probe
from .instead import instead_of, opaque
from .surroundings import random_digest


def begins() -> bool:
    """Weights of a module are drawn."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        owner = next(iter(frame.f_locals.values()), None)
        if isinstance(owner, torch.nn.Module) or frame.f_globals["__name__"] == "torch.nn.init":
            return True
        frame = frame.f_back
    return False


class Items:
    """A data set that says which item is made next."""

    def __init__(self, dataset: Any, begins: Callable[[Any], Any]) -> None:
        self.dataset, self.begins = dataset, begins

    def __getitem__(self, index: Any) -> Any:
        self.begins(index)
        return self.dataset[index]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.dataset, name)


class Common:
    def __init__(self, probe: Probe, sizes: Any, own: Any) -> None:
        self.probe, self.sizes, self.drawn = probe, sizes, sizes.drawn  # sizes.Sizes
        self.idle, self.fresh = False, ""  # what an evaluation of this step would begin with
        self.aside: Any = None  # states of that training, or evaluation, which does not run now
        sizes.drawing = self.drawing
        self.other = " otherwise" * (probe.settings.driven > 1)
        self.base, self.making, self.called_once = 0, False, False
        self.bases: dict[int, Any] = {}  # of persistent workers, by that of their first pass
        self.own = own  # own.Own
        own.torch(self)
        self.seed: Data = {}
        self.seeds: dict[str, str] = {}
        self.counts: dict[str, int] = {}
        self.wrap_seed(random, "seed", "random")
        self.wrap_seed(torch, "manual_seed", "torch")
        if "numpy" in sys.modules:
            self.wrap_seed(sys.modules["numpy"].random, "seed", "numpy")
        self.wrap_fetch()
        torch.nn.modules.module.register_module_forward_pre_hook(opaque(self.called()))

    def number(self, text: str) -> int:
        settings = self.probe.settings
        return zlib.crc32(f"{text} {self.probe.rank} {settings.shift}".encode()) >> 1

    def wrap_seed(self, owner: Any, name: str, family: str) -> None:
        """What is drawn before the first step hangs on the seed that the script sets."""
        self.seed[family] = getattr(owner, name)

        @instead_of(name, owner, hidden=True)
        def seeded(original: Any, *args: Any, **kwargs: Any) -> Any:
            self.seeds[family] = f"{args} {kwargs}"
            self.counts = {k: n for k, n in self.counts.items() if not k.startswith(family)}
            if self.turned(not self.idle):
                original(*args, **kwargs)
                self.turned(not self.idle)
            return original(*args, **kwargs)

    def before(self, key: str, name: str, args: Any, counts: dict[str, int]) -> str | None:
        """Of a draw before the first step: what it follows from."""
        if self.probe.steps or not self.probe.ours or self.making:
            return None
        what = [getattr(x, "shape", x) for x in args]
        key = f"{key} {name} {[x for x in what if isinstance(x, (int, tuple))]}"
        counts[key] = counts.get(key, 0) + 1
        return f"{key} {counts[key]}"

    def drawing(self, owner: Any, name: str, args: Any, kwargs: Any) -> None:
        self.turn()
        if kwargs.get("generator") is not None:
            self.own.drawing(kwargs["generator"], name, args)
            return
        family = owner.__name__.partition(".")[0]
        family = family if family in self.seed else "torch"
        text = self.before(family, name, args, self.counts)
        if text is not None:
            text = text if begins() else text + self.other
            self.seed[family](self.number(f"{self.seeds.get(family)} {text}"))

    def wrap_fetch(self) -> None:
        single: Any = dataloader._SingleProcessDataLoaderIter
        every: Any = dataloader._BaseDataLoaderIter

        @instead_of("__init__", every)
        def begun(original: Any, iterator: Any, loader: Any) -> None:
            original(iterator, loader)
            if getattr(loader, "persistent_workers", False):
                self.bases[iterator._base_seed] = RawValue("q", iterator._base_seed)

        @instead_of("_reset", every)
        def again(original: Any, iterator: Any, loader: Any, first_iter: bool = False) -> None:
            """The next pass of persistent workers draws what that of others draws."""
            original(iterator, loader, first_iter)
            if not first_iter:
                base = torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
                self.bases[iterator._base_seed].value = base.item()

        @instead_of("_next_data", single)
        def in_main(original: Any, iterator: Any) -> Any:
            self.base = iterator._base_seed
            return original(iterator)

        @instead_of("fetch", _MapDatasetFetcher)
        def made(original: Any, this: Any, indices: Any) -> Any:
            worker = get_worker_info()
            base = self.base if worker is None else worker.seed - worker.id
            base = self.bases[base].value if base in self.bases else base
            dataset, before = this.dataset, self.states()
            order, self.making = (self.drawn["sequence"], self.sizes.evaluated), True
            this.dataset = Items(dataset, lambda index: self.set(f"item {base} {index}"))
            self.set(f"batch {base} {indices}")
            try:
                return original(this, indices)
            finally:
                this.dataset = dataset
                self.restore(before)
                (self.drawn["sequence"], self.sizes.evaluated), self.making = order, False

    def states(self) -> tuple[Any, ...]:
        numpy, cuda = sys.modules.get("numpy"), sys.modules["torch.cuda"]
        arrays, device = numpy and numpy.random.get_state(), cuda.is_initialized()
        states = random.getstate(), torch.get_rng_state(), arrays, self.own.states()
        return (*states, device and torch.cuda.get_rng_state_all())

    def restore(self, states: tuple[Any, ...]) -> None:
        random.setstate(states[0])
        torch.set_rng_state(states[1])
        if states[2]:
            sys.modules["numpy"].random.set_state(states[2])
        self.own.restore(states[3])
        if states[4]:
            torch.cuda.set_rng_state_all(states[4])

    def turn(self) -> None:
        """Before each draw and call: an evaluation begins, goes on, or is left."""
        self.turned(self.sizes.idles())

    def turned(self, idle: bool) -> bool:
        """From the first step on."""
        if idle == self.idle or self.making or not self.probe.steps or not self.probe.ours:
            return False
        now, self.idle = self.states(), idle
        if self.aside is None:
            self.set(f"evaluation {self.probe.steps}")
            self.fresh = random_digest()
        else:
            self.restore(self.aside)
        self.aside = now
        return True

    def digest(self) -> str:
        """Of training, and of an evaluation in which something was drawn, else 0."""
        evaluated = "0"
        if self.aside is not None:
            self.turned(True)
            if (digest := random_digest()) != self.fresh or self.sizes.evaluated:
                evaluated = f"{digest}.{self.sizes.evaluated}"
            self.turned(False)
        return f"{random_digest()} {self.drawn['sequence']} {evaluated}"

    def called(self) -> Any:
        """Of the first call with gradients, and where an evaluation begins and ends."""

        def before(module: Any, arguments: Any) -> None:
            self.turn()
            if not self.probe.steps and torch.is_grad_enabled() and not self.called_once:
                self.called_once = True
                self.sizes.drawn["own"] = self.own.begun()
                self.again("call")

        return before

    def again(self, name: str) -> None:
        if self.probe.ours:
            self.idle, self.aside, self.sizes.evaluated = False, None, 0
            self.set(f"{name} {self.probe.steps}")
            if not self.probe.steps:
                self.drawn["sequence"] = 0

    def set(self, text: str) -> None:
        text += self.other * (not text.startswith("evaluation"))
        seeds = self.seed
        if self.making and not sys.modules["torch.cuda"].is_initialized():
            # Of a seed for a device that is not in use, torch notes the whole stack, for each item.
            seeds = {**seeds, "torch": torch.default_generator.manual_seed}
        for seed in seeds.values():
            seed(self.number(text))
        self.own.set(text)

    def step_ended(self) -> None:
        self.again("step")
