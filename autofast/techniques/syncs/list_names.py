"""What the list is called that keeps the tensors of a loop: the plural of what is summed."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from autofast.flow.loops import Loop
from autofast.model.calls import root_of, short_name
from autofast.model.script import Script
from autofast.model.source import function_of, source_of, within
from autofast.model.syntax import is_attribute
from autofast.techniques.syncs.floats import kind_of
from autofast.techniques.syncs.sinks import Sink

OF_ALL = frozenset(  # words that say how numbers are put together, not what they are
    "total running epoch sum cum cumulative avg average mean num n all meter list history".split()
)


class ListNames:
    """The names that were given away, each with the statement and the loop that it is for."""

    def __init__(self, script: Script):
        self.given: list[tuple[str, ast.stmt, Loop]] = []

    def fresh(self, statement: ast.stmt, loop: Loop, *candidates: str) -> str:
        """The first name that neither the file nor another list of this loop, of one around it or
        of one in it has.
        """
        source = source_of(statement)
        near = {
            name
            for name, other, home in self.given
            if other is not statement
            and function_of(home) is function_of(loop)
            and (home is loop or within(home, loop) or within(loop, home))
        }
        numbered = (f"{candidates[0]}_{n}" for n in range(2, 100))
        name = next(n for n in (*candidates, *numbered) if n not in near and n not in source.names)
        if (name, statement, loop) not in self.given:
            self.given.append((name, statement, loop))
        return name


def name_of_list(script: Script, sink: Sink, cores: Sequence[ast.expr], loop: Loop) -> str:
    """A name for the list of what is read of the tensors for the sink.

    ``test_losses`` for ``test_loss``, ``losses`` for ``total``, to which a loss is added;
    ``correct_counts`` and ``psnr_values`` for others.
    """
    whole = _last(sink.holder)
    told = "_".join(p for p in whole.split("_") if p.lower() not in OF_ALL)
    word = re.sub("(?<=loss)es$|(?<!s)s$", "", re.sub("(?<=[^aeiou])ies$", "y", told))
    thing = _thing(cores[0]) if len(cores) == 1 else ""
    kind = "counts" if all(kind_of(script, c) == "int" for c in cores) else "values"
    if losses := _losses(word) or _losses(thing):
        names = [losses, *(p for p in [_losses(whole)] if p), f"{word or thing}_tensors"]
    else:
        plural = word if word.endswith("s") else f"{word}s"
        names = [plural if plural == kind or word.endswith(f"_{kind[:-1]}") else f"{word}_{kind}"]
        names = names if word else [kind]
    return script.analysis(ListNames).fresh(sink.statement, loop, *names, f"{whole}_{kind}")


def _losses(word: str) -> str:
    """``test_losses`` of ``test_loss``, ``losses_G`` of ``loss_G``; empty where it is no loss."""
    parts = word.split("_")
    if "loss" in parts:
        return "_".join("losses" if p == "loss" else p for p in parts)
    return f"{word}es" if word.lower().endswith("loss") else ""


def _last(holder: ast.expr) -> str:
    base = root_of(holder, ast.Subscript)
    return short_name(base).strip("_") if is_attribute(base) else short_name(base)


def _thing(core: ast.expr) -> str:
    """A word for a tensor: its variable, ``loss`` for a call of a loss function."""
    if not isinstance(core, ast.Call):
        return _last(core)
    called = ast.unparse(core.func).lower()
    return "loss" if any(w in called for w in ("loss", "criterion", "entropy")) else ""
