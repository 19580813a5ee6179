"""What comes out of files: states, or whole networks."""

from __future__ import annotations

import ast

from autofast.flow.program import Flow
from autofast.model.calls import is_method
from autofast.model.script import Script
from autofast.model.several import wordset
from autofast.model.values import LOADED, Method, Thing, Unknown, const

PICKLES = wordset("pickle.load pickle.loads dill.load joblib.load cloudpickle.load")
OF_MODULES = wordset("eval train parameters named_parameters modules children forward")
MOVES = ("to", "cuda")  # of a tensor, too


def loads_networks(script: Script) -> bool:
    """Whether a network may be loaded whole, with the attributes it had when it was written: what
    comes out of a file is called, or taken for a module."""
    whole = (o.args.named.get("weights_only") for s in script.calls("torch.load") for o in s)
    pickled = any(given is None or const(given.values) is not True for given in whole)
    return (pickled or bool(script.calls(*PICKLES))) and any(
        _is_used(script, call) for call in script.each(ast.Call)
    )


def _is_used(script: Script, call: ast.Call) -> bool:
    for called in script.called(call):
        if _is_loaded(called):
            return True
        if isinstance(called, Method) and _is_loaded(called.this):
            if called.name in OF_MODULES:
                return True
            if called.name in MOVES and is_method(call) and _is_all(script, call.func.value):
                return True
    return False


def _is_loaded(thing: Thing) -> bool:
    return thing == LOADED or (isinstance(thing, Unknown) and thing.name in PICKLES)


def _is_all(script: Script, expr: ast.expr) -> bool:
    """Whether it is all that is loaded, not an entry of a checkpoint."""
    made = script.analysis(Flow).value(expr) if isinstance(expr, ast.Name) else expr
    return script.is_call(made, "torch.load", *PICKLES)
