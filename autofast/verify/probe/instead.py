"""Another function in the place of one of torch's, or of another library's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def opaque(function: Any) -> Any:
    """torch.compile shall not look into this: it would trace the clock. Does what
    torch._dynamo.disable does, without importing dynamo.
    """
    function._torchdynamo_disable = True
    return function


def instead_of(name: str, *owners: Any, hidden: bool = False) -> Callable[[F], F]:
    """The decorated function is called where ``name`` of these owners is, and is given that of the
    first one before its arguments; ``hidden``: from torch.compile.
    """

    def put(function: F) -> F:
        original = getattr(owners[0], name)

        @functools.wraps(original)
        def called(*args: Any, **kwargs: Any) -> Any:
            return function(original, *args, **kwargs)

        for owner in owners:
            setattr(owner, name, opaque(called) if hidden else called)
        return function

    return put


def registered(name: str, owner: Any) -> None:
    """So that torch.jit.script still takes what stands in its place for the operation that it
    is.
    """
    from torch.jit import _builtins

    _builtins._register_builtin(getattr(owner, name), f"aten::{name}")
