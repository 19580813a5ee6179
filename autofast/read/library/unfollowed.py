"""Functions one of which is called, and too many to follow each: whether they are to be feared."""

from __future__ import annotations

import ast
from typing import TypeGuard

from autofast.model.calls import is_method
from autofast.model.several import wordset
from autofast.model.source import nodes_in, walk
from autofast.model.syntax import is_stored
from autofast.model.values import Cls, Func, Thing

CHANGE = wordset(
    "add append appendleft clear extend insert pop popitem remove reverse setdefault sort update __setitem__ __setattr__"
)


def is_one(thing: Thing) -> TypeGuard[Func | Cls]:
    """A function or class of the project."""
    return isinstance(thing, (Func, Cls))


def bodies(thing: Func | Cls) -> list[Func]:
    """The functions that a call of it runs first."""
    if isinstance(thing, Func):
        return [thing]
    return thing.methods("__init__")


def changes_others(func: Func) -> bool:
    """Whether its own code sets something on what it is given or finds around it; what the
    functions that it calls do is not asked. The object that is made is its own.
    """
    mine = _fresh(func)
    for node in walk(func.node):
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            return True
        if isinstance(node, (ast.Attribute, ast.Subscript)):
            changed: ast.expr = (
                node if isinstance(node.ctx, (ast.Store, ast.Del)) else ast.Constant(0)
            )
        elif is_method(node):
            changed = node.func if node.func.attr in CHANGE else ast.Constant(0)
        else:
            continue
        while isinstance(changed, (ast.Attribute, ast.Subscript)):
            changed = changed.value
        if isinstance(changed, ast.Name) and changed.id not in mine:
            return True
    return False


def _fresh(func: Func) -> set[str]:
    """Names that stand for something of its own: ``**kwargs``, the object that ``__init__`` is
    called for, and what it makes.
    """
    arguments = func.node.args
    given = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    own = {n.id for n in nodes_in(func.node, ast.Name) if is_stored(n)}
    rest = {a.arg for a in (arguments.vararg, arguments.kwarg) if a is not None}
    this = {arguments.args[0].arg} if func.name == "__init__" and arguments.args else set()
    return (own - given) | rest | this
