"""Where a model goes as an object, beside being trained: pickled, copied, kept in lists and dicts,
traced.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from autofast.facts.precision.code import Code
from autofast.model.calls import arguments_of, short_name
from autofast.model.contents import with_contents, without_wrappers
from autofast.model.events import Site
from autofast.model.roles import Model
from autofast.model.script import Script
from autofast.model.several import wordset
from autofast.model.source import at
from autofast.model.values import Inst, Thing, Values

STATE = ("__getstate__", "__reduce__", "__reduce_ex__", "__deepcopy__", "__copy__")
TRACERS = wordset(
    "add_graph summary profile get_model_complexity_info FlopCountAnalysis torchinfo trace"
)


def against_replaced_forward(script: Script, things: Iterable[Thing]) -> str:
    """Where the object itself is written or copied: its new ``forward`` cannot be pickled, and a
    copy would call the original's.
    """
    for site in passed_on(script, {id(t) for t in things}):
        does = "copies" if site.kind.startswith("copy.") else "writes"
        return f"{at(site)} {does} the module itself, and a compiled torch.nn container cannot be pickled or copied"
    for site in script.calls("torch.optim.swa_utils.AveragedModel"):
        return f"the AveragedModel copies the module ({at(site)}), and a copy would call the forward of the original"
    return ""


def own_state(script: Script, model: Model, code: Code) -> str:
    """What is pickled or copied of an ``nn.Module`` leaves out its compiled call, but not where the
    class says itself what that is.
    """
    if not isinstance(model.thing, Inst):
        return ""
    cls = model.thing.cls
    own = next((name for name in STATE if cls.find(name)), "")
    for site in passed_on(script, {id(model.thing)}) if own else ():
        return f"{at(site)} writes or copies the module itself, and what {cls.node.name}.{own}() gives would hold its compiled call"
    return ""


def passed_on(script: Script, mine: set[int]) -> Iterator[Site]:
    """The places that write or copy one of these modules as an object."""
    for site in script.calls(
        "torch.save",
        "pickle.dump",
        "pickle.dumps",
        "joblib.dump",
        "dill.dump",
        "copy.deepcopy",
        "copy.copy",
    ):
        if any(holds(v, mine) for o in site for v in o.args.all()):
            yield site


def holds(values: Values, mine: set[int]) -> bool:
    return any(id(inner) in mine for t in with_contents(values) for inner in without_wrappers(t))


def tracing_calls(script: Script, mine: set[int]) -> list[ast.Call]:
    """``writer.add_graph(model, x)``, ``summary(model, ...)``: calls that run the model once in a
    way that a compiled one is not made for.
    """
    named = (n for n in script.each(ast.Call) if short_name(n.func) in TRACERS)
    return [n for n in named if any(holds(script.values(a), mine) for a in arguments_of(n))]
