"""What a piece of code does to modules whose parameters it does not leave as they are: ones it
makes, copies, moves, gives tensors to.

Under ``torch.inference_mode()`` the new parameters and buffers are inference tensors. Training them
is an error in some operations, and in
others silently does something else: their version is not counted, so a forward before the update
and a backward after it pass.
"""

from __future__ import annotations

from autofast.model.calls import call_of
from autofast.model.contents import attributes, with_contents
from autofast.model.events import Occurrence, branches
from autofast.model.kinds import is_loss, is_module, is_optimizer
from autofast.model.names import WITHOUT_TENSORS
from autofast.model.roles import Evaluation
from autofast.model.script import Script
from autofast.model.source import at
from autofast.model.tensors import dtype_of
from autofast.model.values import OBJECTS, Arguments, Ext, const, is_named
from autofast.read.recover.region import Region

COPIES = ("copy.deepcopy", "pickle.dumps")
GROWS = (".register_buffer", ".register_parameter")
CASTS = tuple(".double .half .float .bfloat16 .type .to_empty".split())
REWORKS = ("torch.nn.utils.", "torch.quantization.", "torch.ao.")  # put other tensors into a module
READS = ("torch.nn.utils.clip_grad", "torch.nn.utils.parameters_to_vector")


def changed_module(script: Script, evaluation: Evaluation, region: Region) -> str:
    """Which module gets parameters or buffers here that training could not go on with; empty where
    none does.
    """
    return (
        _lazy(script, evaluation)
        or _made(script, region)
        or _copied(script, region)
        or _given(script, region)
        or _moved(script, region)
        or _renewed(script, region)
    )


def _lazy(script: Script, evaluation: Evaluation) -> str:
    """A model whose first forward makes its parameters: that may be one of these."""
    called = {id(o.this) for site in evaluation.forwards for o in site}
    for model in script.models:
        if called & {id(model.thing), *map(id, model.wraps)}:
            if lazy := next((n for n in sorted(model.layers) if n.startswith("Lazy")), ""):
                return f"{lazy} makes its parameters in the first forward, which may be this one"
    return ""


def _made(script: Script, region: Region) -> str:
    for site, occurrence in region.sites(script, "new", ".step"):
        thing = occurrence.this
        if thing is not None and is_optimizer(thing):
            return f"an optimizer is used here ({at(site)})"
        if (
            site.kind == "new"
            and isinstance(thing, OBJECTS)
            and is_module(thing)
            and not is_loss(thing)
            and not is_named(thing, Ext, WITHOUT_TENSORS)
            and call_of(site.node) is None
        ):
            return f"a module is made here ({at(site)}): its parameters could not be trained"
    return ""


def _copied(script: Script, region: Region) -> str:
    for site, occurrence in region.sites(script, *COPIES):
        if _holds_module(occurrence.args):
            return f"a module is copied here ({at(site)}): the copy could not be trained"
    return ""


def _holds_module(args: Arguments) -> bool:
    given = with_contents((t for values in args.all() for t in values), attributes)
    return any(is_module(t) or is_optimizer(t) for t in given)


def _given(script: Script, region: Region) -> str:
    """New tensors for a module: a buffer that it registers, a state that replaces its parameters, a
    parametrization.
    """
    for site, occurrence in region.sites(script, *GROWS):
        if is_module(occurrence.this):
            return f"{at(site)} gives a module a tensor that is made here"
    for site, occurrence in region.sites(script, ".load_state_dict"):
        given = occurrence.args.given(2, "assign")
        if given is not None and const(given.values) is not False:
            return f"{at(site)} puts other tensors into a module"
    for (kind, _), site in script.log.each():
        if kind.startswith(REWORKS) and not kind.startswith(READS):
            for occurrence in site:
                if any(
                    is_module(t) for given in occurrence.args.all() for t in given
                ) and region.meets(site, occurrence):
                    return f"{at(site)} puts other tensors into a module"
    return ""


def _moved(script: Script, region: Region) -> str:
    """Moves and casts: they give a module new parameters, unless it is there already."""
    for site, occurrence in region.sites(script, *CASTS):
        if is_module(occurrence.this):
            return f"{at(site)} casts a module: its new parameters could not be trained"
    for site, _ in region.sites(script, ".flatten_parameters"):
        return f"{at(site)} puts the weights of a recurrent layer into other memory"
    for site, occurrence in region.sites(script, "move_model"):
        if not _is_there(script, region, occurrence):
            return f"{at(site)} moves a module: its new parameters could not be trained"
    return ""


def _renewed(script: Script, region: Region) -> str:
    """``self.scale.data = ...``: the parameter takes over a tensor that is made here."""
    for site, occurrence in region.sites(script, "tensor_write", "set_elsewhere"):
        if occurrence.data.get("name") == "data":
            return f"{at(site)} gives a parameter new data: it could not be trained"
    return ""


def _is_there(script: Script, region: Region, move: Occurrence) -> bool:
    """All moves of the module go to one kind of device and cast nothing, and one of them certainly
    came before the region.
    """
    same = [(site, o) for site in script.log.of("move_model") for o in site if o.this is move.this]
    kinds = {frozenset(o.data["kinds"]) for _, o in same}
    casts = any(dtype_of(t) for _, o in same for t in o.data["dtype"])
    return (
        len(kinds) == 1
        and not casts
        and any(
            o.order < move.order
            and not region.meets(site, o)
            and branches(o.stack) <= branches(move.stack)
            for site, o in same
        )
    )
