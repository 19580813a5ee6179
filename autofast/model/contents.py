"""What is inside of values: the one walk through lists, dicts, objects and wrappers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from autofast.model.kinds import is_wrapper
from autofast.model.limits import WORK
from autofast.model.several import first_such
from autofast.model.values import COLLECTIONS, NOTHING, Bound, Dict, Ext, Inst, Thing, ordered

T = TypeVar("T")

# The attribute that holds what an object is as a dict; no script has one of that name.
ITEMS = "__items__"


def elements(thing: Thing) -> Iterable[Thing]:
    """What a tuple, list, set or dict holds."""
    return thing.any() if isinstance(thing, COLLECTIONS) else ()


def attributes(thing: Thing) -> Iterable[Thing]:
    """What an object of the project has, or a tuple, list, set or dict holds."""
    if isinstance(thing, Inst):
        return (t for values in thing.attrs.values() for t in values)
    return elements(thing)


def members(thing: Thing) -> Iterable[Thing]:
    """What any object has, holds, was made with or is bound to."""
    if isinstance(thing, Ext):
        own = (*thing.attrs.values(), *thing.args.each)
        return (t for values in own for t in values)
    return (thing.this,) if isinstance(thing, Bound) else attributes(thing)


def wrapped(thing: Thing) -> Iterable[Thing]:
    """What an iterator, a progress bar, a generator goes over: ``tqdm(x)``, ``enumerate(x)``,
    ``cycle(x)``.
    """
    return thing.attrs.get("over", ()) if isinstance(thing, Ext) else ()


def with_contents(roots: Iterable[T], opens: Callable[[T], Iterable[T]] = elements) -> Iterator[T]:  # type: ignore[assignment]
    """``roots`` and all inside of them, each once; ``opens`` says what is in one of them."""
    todo, seen = list(roots), set[int]()
    for thing in todo:  # which grows meanwhile
        if id(thing) not in seen:
            seen.add(id(thing))
            WORK.spend()
            yield thing
            todo.extend(opens(thing))


def each_once(todo: list[T]) -> Iterator[T]:
    """What a list holds, from its end, each thing once; what is added meanwhile, too."""
    seen: set[int] = set()
    while todo:
        here = todo.pop()
        if id(here) not in seen:
            seen.add(id(here))
            yield here


def without_wrappers(thing: Thing | None) -> list[Thing]:
    """The modules inside DDP, DataParallel, torch.compile, however many are around them."""
    start = [] if thing is None else [thing]
    return [t for t in with_contents(start, _inner) if not is_wrapper(t)]


def _inner(thing: Thing) -> list[Thing]:
    return wrapped_by(thing) if is_wrapper(thing) else []


def wrapped_by(wrapper: Ext) -> list[Thing]:
    """The module that DDP, DataParallel, torch.compile are given."""
    return ordered(wrapper.args.get(0, "module") | wrapper.args.get(0, "model"))


def dict_items(thing: Thing) -> Dict | None:
    """The items of an object of the project that is a dict, too; None for any other."""
    found = thing.attrs.get(ITEMS, NOTHING) if isinstance(thing, Inst) else NOTHING
    return first_such(found, Dict)
