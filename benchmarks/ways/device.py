"""A second device that is the CPU with another name, for machines without a GPU.

Tensors on it are told from those of the host by their storage. What CUDA refuses is refused: a
computation of both, ``.numpy()``. Its random numbers are its own; a copy that nobody waits for is
looked at again, or arrives, at the next wait; pinned memory is other memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

Tensor = torch.Tensor
HOST, CUDA = torch.device("cpu"), torch.device("cuda", 0)
STALE = "changed before it was copied"
WAITS = {
    "item",
    "tolist",
    "__float__",
    "__int__",
    "__bool__",
    "__index__",
    "__format__",
    "__repr__",
}
MIXED = ("copy_", "_to_copy", "set_data", "index", "index_put_", "index_put", "_index_put_impl_")
SIDE = "Expected all tensors to be on the same device, but found cuda:0 and cpu"


class Place:
    """Which storages are on the device, and what is on its way."""

    def __init__(self) -> None:
        self.held: dict[int, Any] = {}
        self.making = False
        self.copies: list[tuple[Tensor, Tensor]] = []
        self.arriving: list[tuple[Tensor, Tensor]] = []
        self.random = torch.Generator().manual_seed(4711).get_state()
        self.pinned: dict[int, Any] = {}

    def has(self, tensor: Tensor) -> bool:
        try:
            return tensor.untyped_storage()._cdata in self.held
        except (RuntimeError, NotImplementedError, ValueError):  # it has none, or not yet
            return False

    def put(self, value: Any, there: bool = True) -> Any:
        for tensor in tree_flatten(value)[0]:
            if isinstance(tensor, Tensor) and tensor.layout is torch.strided:
                storage = tensor.untyped_storage()
                if there:
                    self.held[storage._cdata] = storage
                else:
                    self.held.pop(storage._cdata, None)
        return value

    def wait(self) -> None:
        copies, self.copies = self.copies, []
        arriving, self.arriving = self.arriving, []
        for source, copied in copies:
            if not torch.equal(source, copied):
                print(STALE)
        for source, target in arriving:
            target.data.copy_(source)

    @contextlib.contextmanager
    def draws(self, there: bool) -> Iterator[None]:
        if not there:
            yield
            return
        host = torch.default_generator.get_state()
        torch.default_generator.set_state(self.random)
        try:
            yield
        finally:
            self.random = torch.default_generator.get_state()
            torch.default_generator.set_state(host)


class Kernels(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, place: Place) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.place = place

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        place = self.place
        tensors = [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, Tensor)]
        there = [place.has(t) for t in tensors]
        on = any(there) or (not tensors and place.making)
        name = func._schema.name.split("::")[1]
        if any(there) and not all(there):
            if name in ("index", "index_put_", "index_put", "_index_put_impl_"):
                if not there[0]:
                    raise RuntimeError("indices should be on the same device as the indexed tensor")
                if name != "index" and not there[-1] and tensors[-1].dim():
                    raise RuntimeError(SIDE)
            elif name == "copy_":
                on = False
            elif name in ("cat", "stack") or not (
                all(t.dim() == 0 for t, x in zip(tensors, there, strict=True) if not x)
                or name.startswith(("_fused_", "_amp_"))
            ):
                raise RuntimeError(f"{SIDE} ({name})")
        if torch.Tag.nondeterministic_seeded in func.tags:
            with place.draws(on and kwargs.get("generator") is None):
                made = func(*args, **kwargs)
        else:
            made = func(*args, **kwargs)
        return place.put(made) if on else made


class Calls(TorchFunctionMode):
    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        place = self.place
        name = getattr(func, "__name__", "")
        this = args[0] if args and isinstance(args[0], Tensor) else None
        if name == "__get__":
            owner = getattr(getattr(func, "__self__", None), "__name__", "")
            return self.attribute(owner, this, func, args, kwargs)
        if name in WAITS or (name == "numpy" and this is not None):
            place.wait()
        if this is not None and place.has(this) and name in ("numpy", "__array__"):
            raise TypeError("can't convert cuda:0 device type tensor to numpy.")
        if this is not None and hasattr(Tensor, name):
            if name in ("cpu", "cuda"):
                waits = not kwargs.pop("non_blocking", False)
                return self.moved(this, HOST if name == "cpu" else CUDA, {}, waits)
            if name == "to":
                return self.to(this, args[1:], kwargs)
            if name == "backward":  # whose hooks and Functions ask for devices, too
                if "gradient" in kwargs:
                    kwargs["grad_tensors"] = kwargs.pop("gradient")
                if len(args) > 2:
                    kwargs["retain_graph"] = args[2]
                with self:
                    torch.autograd.backward(this, *args[1:2], **kwargs)
                return None
            if name == "get_device":
                return 0 if place.has(this) else -1
            if name == "pin_memory":
                return self.pin(this)
            if name == "is_pinned":
                return this.untyped_storage()._cdata in place.pinned
            if name == "type":
                kinds = args[1:] or tuple(kwargs.values())
                if not kinds or kinds[0] is None:
                    said = func(this)
                    return said.replace("torch.", "torch.cuda.") if place.has(this) else said
                kind = kinds[0]
                if isinstance(kind, str) and "cuda" in kind:
                    dtype = this.type(kind.replace("cuda.", "")).dtype
                    return self.moved(this, CUDA, {"dtype": dtype}, True)
                if isinstance(kind, torch.dtype):
                    return func(this, kind)
                return place.put(self.moved(this, HOST, {}, True).type(kind), False)
            if name in ("type_as", "new", "copy_"):
                return self.by_other(name, this, func, args, kwargs)
        device = kwargs.get("device")
        if device is None and name in ("as_tensor", "asarray") and this is not None:
            return func(*args, **kwargs)
        if device is not None:
            device = CUDA if isinstance(device, int) else torch.device(device)
            kwargs["device"] = HOST
            if name == "as_tensor" and this is not None:
                return self.moved(
                    this, device, {k: kwargs[k] for k in ("dtype",) if k in kwargs}, True
                )
            before, place.making = place.making, device.type == "cuda"
            try:
                with place.draws(False):
                    made = func(*args, **kwargs)
            finally:
                place.making = before
            if name == "load" or not isinstance(made, Tensor):
                return made
            if made.untyped_storage()._cdata in place.held and device.type == "cpu":
                made = made.clone()
            return place.put(made, device.type == "cuda")
        before, place.making = place.making, this is not None and place.has(this)
        try:  # what an operation makes for itself is where its tensors are
            made = func(*args, **kwargs)
        finally:
            place.making = before
        if name in ("tensor", "from_numpy"):
            place.put(made, False)
        return made

    def attribute(self, owner: str, this: Any, func: Any, args: Any, kwargs: Any) -> Any:
        place = self.place
        if owner == "device":
            return CUDA if place.has(this) else HOST
        if owner == "is_cuda":
            return place.has(this)
        if owner == "is_cpu":
            return not place.has(this)
        made = func(*args, **kwargs)
        if owner == "grad" and made is not None:
            place.put(made, place.has(this))
        return made

    def to(self, this: Tensor, given: tuple[Any, ...], named: dict[str, Any]) -> Tensor:
        rest = dict(named)
        waits = not rest.pop("non_blocking", False)
        copies = rest.pop("copy", False)
        device, dtype = rest.pop("device", None), rest.pop("dtype", None)
        flags = 0
        for value in given:
            if isinstance(value, Tensor):
                device = CUDA if self.place.has(value) else HOST
                dtype = value.dtype
            elif isinstance(value, torch.dtype):
                dtype = value
            elif isinstance(value, bool):
                flags += 1
                if flags == 1:
                    waits = not value
                else:
                    copies = value
            elif value is not None:
                device = value
        if device is None:
            device = CUDA if self.place.has(this) else HOST
        if dtype is not None:
            rest["dtype"] = dtype
        device = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
        made = self.moved(this, device, rest, waits)
        return (
            self.place.put(made.clone(), device.type == "cuda") if copies and made is this else made
        )

    def moved(self, this: Tensor, device: Any, rest: dict[str, Any], waits: bool) -> Tensor:
        place = self.place
        there = torch.device(device).type == "cuda"
        if place.has(this) == there:
            made = this.to(**rest) if rest else this
            return made if made is this else place.put(made, there)
        if not there and waits:
            place.wait()
        made = this.to(**rest) if rest else this
        if made is this:
            made = this.clone()
        place.put(made, there)
        if not waits and there and this.untyped_storage()._cdata in place.pinned:
            place.copies.append((this.detach(), this.detach().clone()))
        if not waits and not there and made.numel():
            place.arriving.append((made.detach().clone(), made.detach()))
            made.data.fill_(77)
        return made

    def pin(self, this: Tensor) -> Tensor:
        if self.place.has(this):
            raise RuntimeError(
                "cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned"
            )
        storage = this.untyped_storage()
        if storage._cdata in self.place.pinned:
            return this
        made = this.detach().clone()
        storage = made.untyped_storage()
        self.place.pinned[storage._cdata] = storage
        return made

    def by_other(self, name: str, this: Tensor, func: Any, args: Any, kwargs: Any) -> Any:
        place = self.place
        if name == "copy_":
            source = args[1] if len(args) > 1 else kwargs["src"]
            free = kwargs.get("non_blocking", False)
            if place.has(this) != place.has(source):
                if free and place.has(this) and source.untyped_storage()._cdata in place.pinned:
                    place.copies.append((source.detach(), source.detach().clone()))
                elif not free:
                    place.wait()
            return func(*args, **kwargs)
        if name == "type_as":
            there = CUDA if place.has(args[1]) else HOST
            return self.moved(this, there, {"dtype": args[1].dtype}, True)
        return place.put(func(*args, **kwargs), place.has(this))


class Stream:
    def __init__(self, *_: Any, **__: Any) -> None: ...
    def wait_stream(self, _: Any) -> None: ...
    def wait_event(self, _: Any) -> None: ...
    def synchronize(self) -> None: ...
    def record(self, *_: Any) -> None: ...
    def query(self) -> bool:
        return True


@contextlib.contextmanager
def _stream(_: Any) -> Iterator[None]:
    yield


def install() -> Place:
    """From here on, ``torch.cuda`` is there."""
    place = Place()
    cuda = torch.cuda
    says: dict[str, Any] = {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_name": "a CPU",
        "get_device_capability": (8, 0),
        "is_bf16_supported": True,
        "is_initialized": True,
        "memory_allocated": 0,
        "max_memory_allocated": 0,
        "empty_cache": None,
        "mem_get_info": (2**34, 2**34),
        "init": None,
        "set_device": None,
        "_lazy_init": None,
        "current_stream": Stream(),
        "is_current_stream_capturing": False,
    }
    for name, value in says.items():
        setattr(cuda, name, lambda *_, value=value, **__: value)
    cuda.synchronize = lambda *_, **__: place.wait()
    cuda.Stream = cuda.Event = Stream  # type: ignore[assignment, misc]
    cuda.stream = _stream  # type: ignore[assignment]
    Tensor.record_stream = lambda *_: None  # type: ignore[method-assign]
    start = torch.Generator.manual_seed

    def seeded(seed: int) -> None:
        place.random = start(torch.Generator(), int(seed) + 1).get_state()

    cuda.manual_seed = cuda.manual_seed_all = seeded
    cuda.get_rng_state = lambda *_: place.random

    def restored(state: Tensor, *_: Any) -> None:
        place.random = state

    cuda.set_rng_state = restored  # type: ignore[assignment]

    def both(number: int) -> Any:
        made = start(torch.default_generator, int(number))
        seeded(number)
        return made

    torch.manual_seed = both  # type: ignore[assignment]
    torch.random.manual_seed = both  # type: ignore[assignment]
    _autocast()
    _pinning(place)

    def tagged(storage: Any) -> str | None:
        return "cuda:0" if storage._cdata in place.held else None

    def restored_there(storage: Any, location: str) -> Any:
        if not location.startswith("cuda"):
            return None
        place.held[storage._cdata] = storage
        return storage

    torch.serialization.register_package(1, tagged, restored_there)
    Kernels(place).__enter__()  # type: ignore[no-untyped-call]
    Calls(place).__enter__()  # type: ignore[no-untyped-call]
    return place


def _autocast() -> None:
    old = torch.autocast.__init__

    def made(self: Any, device_type: str, dtype: Any = None, *rest: Any, **named: Any) -> None:
        if device_type == "cuda":
            device_type, dtype = "cpu", dtype or torch.float16
        old(self, device_type, dtype, *rest, **named)

    torch.autocast.__init__ = made  # type: ignore[method-assign]


def _pinning(place: Place) -> None:
    from torch.utils.data import dataloader
    from torch.utils.data._utils import pin_memory

    def pinning(cls: Any) -> None:
        old: Callable[..., Any] = cls._next_data

        def fetched(self: Any) -> Any:
            data = old(self)
            return pin_memory.pin_memory(data) if self.pins else data  # type: ignore[no-untyped-call]

        cls._next_data = fetched

    start = dataloader._BaseDataLoaderIter.__init__

    def started(self: Any, loader: Any) -> None:
        start(self, loader)
        self.pins = loader.pin_memory

    dataloader._BaseDataLoaderIter.__init__ = started  # type: ignore[method-assign]
    pinning(dataloader._SingleProcessDataLoaderIter)
    pinning(dataloader._MultiProcessingDataLoaderIter)
