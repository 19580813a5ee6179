"""Questions about a thing: is it a module, a loader, a loss? And what contexts do."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TypeGuard

from autofast.model import names
from autofast.model.events import Frame, Stack, WithFrame
from autofast.model.names import AUTOCAST, LOADER, NO_GRAD, WRAPPERS, canonical, first_part
from autofast.model.several import any_in
from autofast.model.values import (
    NOTHING,
    NUMBER,
    OBJECTS,
    Arguments,
    Cls,
    Ext,
    Func,
    Inst,
    Located,
    Num,
    Ref,
    Seq,
    Tensor,
    Thing,
    Unknown,
    Values,
    any_named,
    any_of,
    const,
    is_named,
    names_of,
    things as values,
)

REMEMBERS = ("functools.lru_cache", "functools.cache", "functools.cached_property")


def is_module(thing: Thing | None) -> bool:
    """An ``nn.Module``: of the project, of torch, or wrapped."""
    if isinstance(thing, Inst):
        if any(n in names.MODULE_BASES or names.makes_module(n) for n in thing.cls.external):
            return True
        return bool(foreign_bases(thing.cls)) and thing.cls.find("forward") is not None
    return isinstance(thing, Ext) and (
        names.makes_module(thing.name) or thing.name in WRAPPERS or thing.name in names.MODULE_BASES
    )


def foreign_bases(cls: Cls) -> frozenset[str]:
    """The bases of a class that come from code nothing is known of; with a ``forward`` of its own
    it is taken for a module.
    """
    return frozenset(n for n in cls.external if first_part(n) not in names.KNOWN_BASES)


def ways_made(thing: Thing) -> Stack:
    """The frames in which an object is made; none of what nobody makes."""
    return thing.made if isinstance(thing, OBJECTS) else ()


def is_loader(thing: Thing) -> bool:
    if isinstance(thing, Inst):
        return LOADER in thing.cls.external
    return is_named(thing, Ext, LOADER)


def is_optimizer(thing: Thing | None) -> bool:
    if isinstance(thing, Inst):
        return any(
            n == "torch.optim.Optimizer" or names.is_optimizer(n) for n in thing.cls.external
        )
    return isinstance(thing, Ext) and names.is_optimizer(thing.name)


def is_scheduler(thing: Thing | None) -> bool:
    if isinstance(thing, Inst):
        return any(names.is_scheduler(n) for n in thing.cls.external)
    return isinstance(thing, Ext) and names.is_scheduler(thing.name)


def is_scaler(thing: Thing | None) -> bool:
    return is_named(thing, Ext, names.SCALER)


def is_autograd_function(cls: Cls) -> bool:
    """A class of the project that extends ``torch.autograd.Function``."""
    return any(n.startswith("torch.autograd.") for n in cls.external)


def is_loss(thing: Thing) -> bool:
    if isinstance(thing, Inst):
        return any(names.is_loss(n) for n in thing.cls.external)
    return isinstance(thing, Ext) and names.is_loss(thing.name)


def is_dataset(thing: Thing) -> bool:
    """What a DataLoader takes items from: a class with ``__getitem__``, or one of a library."""
    if isinstance(thing, Inst):
        return (
            bool(thing.cls.external & names.DATASET_BASES)
            or thing.cls.find("__getitem__") is not None
            or bool(library_dataset(thing))
        )
    return isinstance(thing, Ext) and (
        thing.name.startswith(names.DATASETS) or thing.name.startswith("torch.utils.data.")
    )


def library_dataset(thing: Inst) -> str:
    """The dataset class of torchvision or torchaudio that a class of the project extends; empty
    where it extends none.
    """
    return next(
        (
            n
            for n in sorted(thing.cls.external)
            if n.startswith(("torchvision.datasets.", "torchaudio.datasets."))
        ),
        "",
    )


def of_type(name: str) -> Values:
    """An object of a library class of which nothing else is known (from an annotation)."""
    if name == "torch.Tensor":
        return values(Tensor())
    if name in ("builtins.int", "builtins.float", "builtins.str", "builtins.bool"):
        return NUMBER
    if (
        name in names.MODULE_BASES
        or names.makes_module(name)
        or name == LOADER
        or name == "torch.device"
    ):
        return values(Ext(name, None, Arguments(None, open="it is a parameter")))
    if (
        name in ("torch.optim.Optimizer",)
        or names.is_optimizer(name)
        or names.is_scheduler(name)
        or name in names.DATASET_BASES
    ):
        return values(Ext(name, None, Arguments(None, open="it is a parameter")))
    return NOTHING


def star(module: str) -> list[tuple[str, Thing]]:
    """What ``from module import *`` binds, for the modules people do that with."""
    return [(n, Ref(canonical(f"{module}.{n}"))) for n in names.STARRED.get(module, "").split()]


def grad_mode_of(contexts: Values) -> str | None:
    """The gradient mode inside ``with contexts``: on | off | inference | maybe; None where they do
    not set it.
    """
    modes = set()
    if any_named(contexts, Ext, "contextlib.manager"):
        inner = NOTHING.union(
            *(
                t.attrs["contexts"] if isinstance(t, Ext) and "contexts" in t.attrs else {t}
                for t in contexts
            )
        )
        return grad_mode_of(frozenset(t for t in inner if not isinstance(t, Unknown)))
    for thing in contexts:
        name = thing.name if isinstance(thing, (Ext, Ref)) else ""
        if name in NO_GRAD:
            modes.add(_inference(thing) if name == "torch.inference_mode" else NO_GRAD[name])
        elif name == "torch.set_grad_enabled" and isinstance(thing, Ext):
            flag = const(thing.args.get(0, "mode"))
            modes.add("maybe" if flag is ... else "on" if flag else "off")
    return None if not modes else modes.pop() if len(modes) == 1 and len(contexts) == 1 else "maybe"


def gradient_modes(stack: Sequence[Frame]) -> Iterator[tuple[WithFrame, ast.expr, str]]:
    """What sets the gradient mode on the way to a place: its block or decorator, its expression,
    and the mode; the innermost first.
    """
    for frame in reversed(stack):
        if isinstance(frame, WithFrame):
            for expr, contexts in reversed(frame.contexts):
                if (mode := grad_mode_of(contexts)) is not None:
                    yield frame, expr, mode


def remembers(func: Func) -> bool:
    """Whether a function keeps its results: ``@lru_cache``."""
    return any(any_in(names_of(decorator), REMEMBERS) for decorator in func.decorators)


def _inference(thing: Thing) -> str:
    """The mode of ``inference_mode(mode)``; used as a decorator without a call, its argument is the
    function.
    """
    given = thing.args.given(0, "mode") if isinstance(thing, Ext) else None
    if given is None or any_of(given.values, Func):
        return "inference"
    flag = const(given.values)
    return "maybe" if flag is ... or not given.sure else "inference" if flag else "on"


def is_wrapper(thing: Thing) -> TypeGuard[Ext]:
    """A module around another one: DDP, DataParallel, torch.compile."""
    return is_named(thing, Ext, WRAPPERS)


def is_autocast(contexts: Values) -> bool:
    return any(isinstance(t, (Ext, Ref)) and t.name in AUTOCAST for t in contexts)


def entered(contexts: Values) -> Values:
    """What ``with context as x`` binds."""
    found: Values = NOTHING
    for thing in contexts:
        if is_named(thing, Ext, "contextlib.manager"):
            found |= NOTHING.union(*(t.any() for t in thing.attrs["over"] if isinstance(t, Seq)))
        elif is_named(thing, Ext, "apex.amp.scale_loss"):
            found |= thing.args.get(0, "loss")
        elif isinstance(thing, Ext) and (
            thing.name.startswith(("tqdm.", "lightning", "contextlib.", *names.POOLS))
            or "over" in thing.attrs
        ):
            found |= values(thing)
        elif isinstance(thing, Seq):
            found |= thing.any()
        elif isinstance(thing, (Inst, Tensor, Located)):
            found |= values(thing)
        else:
            name = thing.name if isinstance(thing, Ext) else ""
            bound = Unknown("it is bound by `with`", name=name)
            found |= values(Num() if isinstance(thing, Num) else bound)
    return found


def is_static(func: Func) -> bool:
    return any(is_named(t, Ref, "builtins.staticmethod") for d in func.decorators for t in d)


def is_classmethod(func: Func) -> bool:
    return any(is_named(t, Ref, "builtins.classmethod") for d in func.decorators for t in d)


def is_property(func: Func) -> bool:
    wanted = {"builtins.property", "functools.cached_property"}
    return any(is_named(t, Ref, wanted) for d in func.decorators for t in d)
