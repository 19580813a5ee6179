"""Where a script uses a loader: attributes, and calls that get it. The reader
follows them.
"""

from __future__ import annotations

import ast

from autofast.flow.usage import Act, Usage, usage_of
from autofast.flow.valueflow import expressions_holding
from autofast.model.roles import Loader
from autofast.model.script import Script
from autofast.model.several import any_in, surely, wordset
from autofast.model.values import Bound, Cls, Func, Inst, Ref, is_named

# Functions that go through a loader, ask how long it is, or which object it is.
ITERATING = wordset("enumerate iter len next zip", "builtins.")
ITERATING |= {"builtins.isinstance", "builtins.id", "builtins.type"}
ITERATING |= wordset("tqdm.tqdm tqdm.auto.tqdm tqdm.trange itertools.islice itertools.chain")
# ... and those that keep the batches, or the loader itself.
KEEPING = wordset("print list tuple dict", "builtins.")
KEEPING |= {"itertools.cycle"}


def loader_usages(script: Script, loader: Loader) -> list[Usage]:
    """Where something of a loader is asked for, and then where it is an argument."""
    every = expressions_holding(script, lambda found: any_in(found, loader.things))
    found = [usage_of(e) for e in every]
    return [u for act in (Act.ASKED, Act.GIVEN) for u in found if u.act is act]


def is_known(script: Script, call: ast.Call, functions: frozenset[str]) -> bool:
    """Whether a call is of code of the project, which is read as well, or of one of these
    functions.
    """
    callee = script.called(call)
    return surely(
        isinstance(t, (Func, Bound, Cls, Inst)) or is_named(t, Ref, functions) for t in callee
    )
