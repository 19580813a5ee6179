"""What rules on loaders ask: which count, who moves their batches, how often they run.

Random splits into training and validation data, which depend on how many random numbers were
drawn before.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from autofast.flow.program import Flow
from autofast.model.calls import root_of
from autofast.model.contents import attributes, with_contents
from autofast.model.events import CallFrame, Occurrence, Stack, WithFrame, loops
from autofast.model.kinds import ways_made
from autofast.model.roles import Loader, Use
from autofast.model.script import Script
from autofast.model.several import any_in, any_of, of_kind, surely, wordset
from autofast.model.source import Nodes, parent_of, source_of
from autofast.model.tensors import device_kinds, is_device
from autofast.model.values import (
    Arg,
    Bound,
    Cls,
    Const,
    Ext,
    Func,
    Given,
    Inst,
    Method,
    Ref,
    Tensor,
    Thing,
    Values,
    all_of,
    const,
    is_named,
    ordered,
)
from autofast.read.library.frameworks import is_lightning

# the parameters of DataLoader that may be given by position
_POSITIONS = """dataset batch_size shuffle sampler batch_sampler num_workers collate_fn pin_memory drop_last timeout
    worker_init_fn multiprocessing_context generator""".split()
POSITION = {name: n for n, name in enumerate(_POSITIONS)}
# Lightning iterates what these return once an epoch.
EPOCH_HOOKS = wordset("train_dataloader val_dataloader")
# the same of loaders that ``fit(model, ...)`` is given; before 1.5, one was called
# ``train_dataloader``
FITTED = {
    "training": (("train_dataloaders", "train_dataloader"), 1),
    "validation": (("val_dataloaders",), 2),
}
ONCE_HOOKS = {"test_dataloader": "test", "predict_dataloader": "predict"}
HOOKS = {"train_dataloader": "training", "val_dataloader": "validation", **ONCE_HOOKS}
PLAIN_ORDERS = "torch.utils.data.RandomSampler", "torch.utils.data.SequentialSampler"
DEVICE_DEFAULTS = ("torch.set_default_device", "torch.set_default_tensor_type")


def made_elsewhere(script: Script, loader: Loader) -> ast.AST | None:
    """What puts new tensors on another device where batches are made: a default, or ``with
    torch.device("cuda"):`` around the loop.
    """
    if sites := script.calls(*DEVICE_DEFAULTS):
        return sites[0].node
    frames = (f for use in loader.uses for f in use.stack if isinstance(f, WithFrame))
    contexts = ((f.node, found) for f in frames for _, found in f.contexts)
    return next(
        (n for n, v in contexts if any(map(is_device, v)) and device_kinds(v) != {"cpu"}), None
    )


# of torch, which draw all indices of an epoch at its beginning
SAMPLERS = wordset(
    """RandomSampler SequentialSampler WeightedRandomSampler SubsetRandomSampler""",
    "torch.utils.data.",
)
OF_RANKS = frozenset(
    f"torch.utils.data.{n}DistributedSampler" for n in ("", "distributed.")
)  # the same, for one of several processes


def loader_argument(loader: Loader, name: str) -> Given | None:
    """An argument of the loader, by name or position."""
    return loader.args.given(POSITION.get(name, -1), name)


def values_given(loader: Loader, name: str) -> Values:
    """What an argument of the loader may be; nothing where it is not given."""
    return loader.args.get(POSITION.get(name, -1), name)


def own_argument(loader: Loader, *names: str) -> str:
    """The first of these arguments that it is given, or may be."""
    found = ((name, loader_argument(loader, name)) for name in names)
    return next((n for n, g in found if g is not None and const(g.values) is not None), "")


def says_no(argument: Given) -> bool:
    """The argument is certainly False, and the script says so."""
    return argument.sure and const(argument.values) is False


def stays_unpinned(script: Script, loader: Loader) -> str:
    """Why ``pin_memory=False`` is somebody's decision; empty where it only says the default, or
    where it is not written out.
    """
    argument = loader_argument(loader, "pin_memory")
    if argument is None or not says_no(argument):
        return ""
    expr = argument.expr
    if argument.via or not isinstance(expr, ast.Constant):
        return "pin_memory=False is written out"
    above, beside = source_of(expr).lines[expr.lineno - 2 : expr.lineno]
    within = expr.lineno > getattr(loader.node, "lineno", 0) or "memory" in above or "pin" in above
    if "#" in beside or (within and above.lstrip().startswith("#")):
        return "pin_memory=False is written out, with a comment"
    others = (loader_argument(x, "pin_memory") for x in script.loaders)
    if any(o is not None and not says_no(o) for o in others):
        return "pin_memory=False is written out, and other loaders pin"
    if has_no_workers(loader):
        return "pin_memory=False is written out, and there are no workers"
    return ""


def has_workers(loader: Loader) -> bool:
    """Whether the script certainly asks for worker processes; an option counts as its default."""
    return surely(n > 0 for n in _workers(loader))


def has_no_workers(loader: Loader) -> bool:
    """Whether it certainly asks for none."""
    if loader_argument(loader, "num_workers") is None:
        return not loader.args.open
    return set(_workers(loader)) == {0}


def _workers(loader: Loader) -> list[int]:
    """How many it may ask for; -1 for what is not known."""
    things = values_given(loader, "num_workers")
    found = [t for thing in things for t in (thing.default if isinstance(thing, Arg) else {thing})]
    known = [t.value if isinstance(t, Const) and type(t.value) is int else -1 for t in found]
    return [*known, *(-1 for t in of_kind(things, Arg) if not t.default)]


def is_used(script: Script, loader: Loader) -> bool:
    """The loader takes part in training or evaluation."""
    return (
        bool(loader.uses or lightning_hooks(script, loader) or is_managed(script, loader))
        and script.runs_networks
    )


def own_order(loader: Loader) -> str:
    """What decides which items come next, where that is not torch's own and may look at what the
    training does; empty where it is.
    """
    if not all_of(loader.things, Ext) or loader.args.open:
        return "the loader is of a class of its own, or its arguments are not all known"
    for name in ("sampler", "batch_sampler"):
        for thing in values_given(loader, name):
            if thing != Const(None) and not is_named(thing, Ext, SAMPLERS | OF_RANKS):
                return f"the loader has a {name} of its own"
    return ""


def pinning_advice(loader: Loader) -> str:
    """What to do where a DataLoader cannot pin the objects that batches are; else empty."""
    name = next((t.cls.node.name for t in ordered(loader.batch) if cannot_pin(t)), "")  # type: ignore[attr-defined]
    if not name:
        return ""
    return f"batches are {name} objects: give {name} a pin_memory() that pins its tensors and returns itself, which a DataLoader calls"


def of_array(script: Script, expr: ast.expr, depth: int = 2) -> bool:
    """``torch.from_numpy(batch[0])``: the batch has arrays, which are not pinned."""
    while isinstance(expr, (ast.Attribute, ast.Call)):
        if script.is_call(expr, "torch.from_numpy"):
            return True
        expr = expr.func if isinstance(expr, ast.Call) else expr.value
    made = script.analysis(Flow).values(expr) if depth else []
    return surely(isinstance(v, ast.Call) and of_array(script, v, depth - 1) for v in made)


def cannot_pin(thing: Thing) -> bool:
    """An object with tensors, of a class of the project without ``pin_memory()``."""
    return (
        isinstance(thing, Inst)
        and not thing.cls.external - {"dataclass"}
        and thing.cls.find("pin_memory") is None
        and any_of(attributes(thing), Tensor)
    )


# --------------------------------------------------------------------------------------- frameworks
def lightning_hooks(script: Script, loader: Loader) -> set[str]:
    """The Lightning methods that the loader is made for, of those that Lightning is told to call:
    ``self.train_dataloader = self.training_loader`` says so of a method with another name.
    """
    frames = [f for t in loader.things for f in ways_made(t) if isinstance(f, CallFrame)]
    kept = script.analysis(_kept_methods)
    other = (kept.get(f.func, ()) for f in frames if is_lightning(f.func.owner))
    found = {f.func.name for f in frames}.union(*other)
    cli = any(t.framework == "lightning-cli" for t in script.trainers)
    once = {name for name, call in ONCE_HOOKS.items() if cli or script.methods(call)}
    return found & (EPOCH_HOOKS | once)


def _kept_methods(script: Script) -> dict[Func, set[str]]:
    """The attributes that methods are kept in."""
    found: dict[Func, set[str]] = defaultdict(set)
    for o in (o for site in script.log.of("set_attribute") for o in site):
        for thing in o.result:
            if isinstance(thing, Bound):
                found[thing.func].add(o.data["name"])
    return found


def is_managed(script: Script, loader: Loader) -> bool:
    """A framework gets the loader and moves its batches to the device itself."""
    if lightning_hooks(script, loader) and script.frameworks.keys() & {"lightning", "fabric"}:
        return True
    for site in script.methods(
        "prepare", "prepare_data_loader", "setup_dataloaders", "fit", "validate"
    ):
        for occurrence in site:
            name = getattr(occurrence.this, "name", "")
            if name.startswith(("accelerate.", "lightning.")):
                every = with_contents(occurrence.args.things)
                if any_in(every, loader.things):
                    return True
    return False


def lightning_passes(script: Script, loader: Loader) -> set[str]:
    """What Lightning is told to go through the loader for: ``training`` and ``validation``, in
    every epoch, ``test`` and ``predict``.
    """
    found = {HOOKS[name] for name in lightning_hooks(script, loader)}
    return found | {purpose for purpose, _ in _fitted(script, loader)}


def _fitted(script: Script, loader: Loader) -> Iterator[tuple[str, Ext]]:
    """For what Lightning's ``fit()`` is given the loader, and by which Trainer."""
    for site in script.methods("fit"):
        for occurrence in site:
            trainer, args = occurrence.this, occurrence.args
            if not isinstance(trainer, Ext) or args is None:
                continue
            for purpose, (names, n) in FITTED.items():
                given = [t for name in names for t in with_contents(args.get(n, name))]
                of_it = any_in(given, loader.things)
                if of_it and trainer.name.startswith("lightning."):
                    yield purpose, trainer


def trainer_fits(script: Script) -> Iterator[tuple[ast.AST, Stack]]:
    """Where Lightning is told to begin, and with that to call the hooks that make loaders."""
    for site in script.methods("fit", "validate", "test", "predict"):
        for occurrence in site:
            if getattr(occurrence.this, "name", "").startswith("lightning."):
                yield site.node, occurrence.stack
    for trainer in script.trainers:
        if trainer.framework == "lightning-cli":
            yield from ((trainer.node, thing.made) for thing in trainer.things)


# ---------------------------------------------------------------------------------------- how often
def is_iterated_again(script: Script, loader: Loader) -> bool:
    """Certainly iterated more than once, from the beginning each time."""
    if loader.loop is not None:
        return any(epochs_of_its_own(loader, use) for use in loader.uses)
    if lightning_hooks(script, loader):
        return lightning_hooks(script, loader) <= EPOCH_HOOKS and "lightning" in script.frameworks
    return (
        any(use.repeated and not use.is_next for use in loader.uses)
        or any(f.is_statement for o in _restarts(script, loader) for f in loops(o.stack))
        or any(const(t.args.get(-1, "max_epochs")) != 1 for _, t in _fitted(script, loader))
    )


def made_in(loader: Loader) -> Nodes:
    """The loops around the making of a loader."""
    return {f.node for t in loader.things for f in loops(ways_made(t))}


def epochs_of_its_own(loader: Loader, use: Use) -> bool:
    """A use in a loop that is not one around the making of the loader: the epochs of one fold, for
    each of which there is a loader.
    """
    around = made_in(loader)
    inner = {f.node for f in loops(use.stack) if f.is_statement}
    return bool(around) and not use.is_next and bool(inner - around - {use.node})


def peeking_use(script: Script, loader: Loader) -> Use | None:
    """A use like ``next(iter(loader))``, which starts all workers for one batch: time and again, or
    there is no other use.
    """
    only = all(use.is_next for use in loader.uses)
    for use in loader.uses:
        if (
            use.is_next
            and (only or use.repeated)
            and isinstance(use.node, ast.Call)
            and use.node.args
            and _is_iter(script, use.node.args[0])
        ):
            return use
    return None


def first_use(script: Script, loader: Loader) -> int:
    """When the loader is iterated for the first time, in the order of the log."""
    ways = (script.log.ways(kind, u.node) for u in loader.uses for kind in ("iterate", "next"))
    return min((o.order for some in ways for o in some), default=0)


def _restarts(script: Script, loader: Loader) -> Iterator[Occurrence]:
    for site in script.calls("builtins.iter"):
        if isinstance(parent := parent_of(site.node), ast.Call) and site.node in parent.args:
            continue  # next(iter(loader)): that is not an epoch
        for occurrence in site:
            if any_in(occurrence.args.get(0, "object"), loader.things):
                yield occurrence


def _is_iter(script: Script, expr: ast.expr) -> bool:
    return isinstance(expr, ast.Call) and any(
        is_named(t, Ref, ("builtins.iter", "builtins.enumerate")) or is_named(t, Method, "__iter__")
        for t in script.called(expr)
    )


def project_bases(cls: Cls) -> list[Cls]:
    """A class of the project and its ancestors there."""
    return [cls, *(ancestor for base in cls.bases for ancestor in project_bases(base))]


@dataclass(frozen=True)
class Whole:
    """A loader whose sampler gives the indices of whole batches:
    ``BatchSampler(RandomSampler(data), batch_size=8, drop_last=False)``.
    """

    inner: ast.Call
    random: bool
    size: ast.expr
    drop: ast.expr | None


def whole_batches(loader: Loader) -> Whole | None:
    """How batches are put together, where the sampler does so in a plain loader's order."""
    sampler, dataset = loader_argument(loader, "sampler"), loader_argument(loader, "dataset")
    if sampler is None or len(sampler.values) != 1 or dataset is None or sampler.via:
        return None
    made = next(iter(sampler.values))
    if (
        not isinstance(made, Ext)
        or made.name != "torch.utils.data.BatchSampler"
        or made.node is not sampler.expr
    ):
        return None
    inner, size, drop = (
        made.args.given(n, name) for n, name in enumerate(("sampler", "batch_size", "drop_last"))
    )
    if (
        inner is None
        or size is None
        or size.expr is None
        or not isinstance(inner.expr, ast.Call)
        or len(inner.values) != 1
    ):
        return None
    order = next(iter(inner.values))
    plain = (
        isinstance(order, Ext)
        and not set(order.args.named) - {"data_source"}
        and len(order.args.positional) <= 1
        and not order.args.open
    )
    if (
        not plain
        or not isinstance(order, Ext)
        or order.name not in PLAIN_ORDERS
        or order.args.get(0, "data_source") != dataset.values
    ):
        return None
    if dataset.expr is None or not plain_text(dataset.expr):
        return None
    return Whole(
        inner.expr,
        order.name == PLAIN_ORDERS[0],
        size.expr,
        drop.expr if drop is not None else None,
    )


def plain_text(expr: ast.expr) -> str:
    """The text of a variable or attribute; empty for what may not be written twice."""
    match root := root_of(expr):
        case ast.Subscript(value=ast.Name(), slice=ast.Constant()):
            return ast.unparse(expr) if root is expr else ""
        case ast.Name():
            return ast.unparse(expr)
    return ""


SPLIT = "torch.utils.data.random_split"


def split_after(script: Script, places: Iterable[tuple[ast.AST, Stack]]) -> ast.AST | None:
    """A split by torch's own generator that may happen after one of these places: with other draws
    before it, it would be another one.
    """
    flow = script.analysis(Flow)
    ways = list(places)
    for site in script.calls(SPLIT):
        for o in site:
            given = o.args.given(2, "generator")
            shared = given is None or Const(None) in given.values
            if shared and any(flow.may_follow(site.node, o.stack, *place) for place in ways):
                return site.node
    return None
