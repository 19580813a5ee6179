"""Whether values come to something that nobody follows, which could give them back, or change them,
under another name. Asked of things by their values, wherever they are: the reader knows who holds
them, and only what it does not know is looked for (of one expression: ``flow/holders.py``).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from autofast.flow.usage import Act, Usage, usage_of
from autofast.flow.valueflow import Answer, Verdict
from autofast.model.calls import is_name
from autofast.model.kinds import is_module
from autofast.model.script import Script
from autofast.model.several import surely
from autofast.model.values import (
    Bound,
    Cls,
    Const,
    Dict,
    Ext,
    Func,
    Inst,
    Method,
    Num,
    Partial,
    Ref,
    Seq,
    Tensor,
    Thing,
    Unknown,
    any_of,
)
from autofast.read.interpreter.named import is_namespace

# Text, which may have any name; what finds objects without one.
RUNNING = ("builtins.exec", "builtins.eval", "gc.get_objects", "gc.get_referrers", "sys._getframe")
Libraries = tuple[tuple[str, ...], tuple[str, ...]]  # followed ones, and what is lost among them


def is_all_followed(script: Script) -> bool:
    """Whether no code is left out, and none reaches things but by their names."""
    return not (
        script.unread
        or script.log.full
        or script.calls(*RUNNING)
        or any(map(is_namespace, script.each(ast.Call)))
    )


def may_escape(
    script: Script, places: Iterator[ast.expr], judge: Callable[[Usage], Answer]
) -> bool:
    """Whether one of these expressions, or code that is not read, hands on what it has."""
    return not is_all_followed(script) or any(isinstance(judge(usage_of(e)), str) for e in places)


def handed(script: Script, use: Usage, libraries: Libraries) -> Answer:
    """What comes of a use as an argument, or by getting another name."""
    node = use.node
    match use.act:
        case Act.GIVEN if isinstance(node, ast.Call) and not is_name(node.func, "super"):
            if not surely(_is_followed(t, libraries) for t in script.called(node)):
                return "hands on"
        case Act.BOUND | Act.ADDED if not all(_is_known(script, t) for t in use.targets):
            return "keeps"
        case Act.OTHER:
            return "does something else with"
    return Verdict.GOES_ON


def _is_known(script: Script, target: ast.expr) -> bool:
    """A variable, or a place in something that is followed."""
    if isinstance(target, ast.Attribute | ast.Subscript):
        owners = script.values(target.value)
        return bool(owners) and not any_of(owners, Unknown, Ref)
    return True


def _is_followed(callee: Thing, libraries: Libraries) -> bool:
    """What is called, or has the method that is."""
    match callee:
        case Func() | Bound() | Cls() | Const():
            return True
        case Inst():
            return is_module(callee) or callee.cls.find("__call__") is not None
        case Partial(func=functions):
            return surely(_is_followed(t, libraries) for t in functions)
        case Ext() | Ref():
            followed, lost = libraries
            return callee.name.startswith(followed) and not callee.name.startswith(lost)
        case Method(this=this):
            return isinstance(this, Tensor | Seq | Dict | Num) or _is_followed(this, libraries)
    return False
