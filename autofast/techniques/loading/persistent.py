"""Why workers must not stay between epochs, and where their number is written."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.facts.loaders import (
    POSITION,
    first_use,
    is_used,
    loader_argument,
    peeking_use,
    project_bases,
    values_given,
)
from autofast.facts.workers.seeding import fixed_by_workers, seeded_anew
from autofast.facts.workers.shared_state import changed_between, changed_by_items, worker_code
from autofast.flow.program import Flow
from autofast.model.calls import literal_of, short_name
from autofast.model.events import CallFrame, Stack, loops
from autofast.model.kinds import ways_made
from autofast.model.roles import Loader, Use
from autofast.model.script import Script
from autofast.model.several import wordset
from autofast.model.source import ancestors, at, function_of, source_of
from autofast.model.syntax import is_attribute
from autofast.model.tensors import is_unknown_in, things_in
from autofast.model.values import OBJECTS, Cls, Ext, Inst, Ref, Thing, const, is_named, of_kind
from autofast.rule import Finding, Options
from autofast.techniques.loading.few_workers import NAME as WORKERS, wish_with_workers
from autofast.write.arguments import Home, Wish, places_of_argument

NAME = "persistent_workers"
SINCE = (1, 7)


MANY = 10_000_000  # a sampler with this many indices never comes to the end of an epoch


PURE = wordset("""builtins.int builtins.max builtins.min builtins.len builtins.abs os.cpu_count
    os.sched_getaffinity""")


PURE |= {
    "os.process_cpu_count",
    "multiprocessing.cpu_count",
    "torch.multiprocessing.cpu_count",
    "torch.cuda.device_count",
}


SIMPLE = (
    ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Compare,
    ast.BoolOp, ast.IfExp, ast.keyword, ast.expr_context,
)  # fmt: skip


OPERATORS = (ast.operator, ast.unaryop, ast.cmpop, ast.boolop)


def may_keep(script: Script, call: ast.Call, home: Home, members: list[Loader]) -> bool:
    """Whether a loader that need not keep its workers, as it may be gone through only once, may:
    they end with a function of its own.
    """
    if is_never_used(script, call):
        return True  # it never starts a worker
    function = function_of(call)
    if isinstance(function, ast.Module) or any(function_of(x.node) is function for x in members):
        return False
    for loader in script.loaders:
        if loader.node is call:
            fits = (
                is_used(script, loader)
                and loader_argument(loader, NAME) is None
                and not why_not_persistent(script, loader)
            )
            homes = places_of_argument(
                script, loader.args, WORKERS, [x.node for x in script.loaders], POSITION[WORKERS]
            )
            return (
                fits
                and not isinstance(homes, str)
                and len(homes) == 1
                and homes[0].expr is home.expr
            )
    return False


def is_never_used(script: Script, call: ast.Call) -> bool:
    """Whether nothing goes through the loaders that a call makes: a test set that a helper gives
    back, and the script leaves alone.
    """
    mine = [x for x in script.loaders if x.node is call]
    if script.unread or not mine or any(x.uses or x.framework for x in mine):
        return False
    things = {t for x in mine for t in x.things}
    for (kind, _), site in script.log.each():
        known = kind.startswith(("torch.", "builtins."))
        for o in site if not known else ():
            if any(things & set(given) for given in o.args.all()):
                return False  # whoever gets it may go through it
    return True


def workers_of(script: Script, loader: Loader, options: Options) -> Wish | list[Home] | str:
    """Where the number of workers is written, or the wish to go with those that num-workers adds;
    empty where there are none.
    """
    argument = loader_argument(loader, WORKERS)
    if argument is None:
        return wish_with_workers(script, loader, options, "{} > 0") or []
    if const(argument.values) == 0 and isinstance(argument.expr, ast.Constant):
        return []
    homes = places_of_argument(
        script, loader.args, WORKERS, [x.node for x in script.loaders], POSITION[WORKERS]
    )
    if isinstance(homes, str):
        return homes
    if any(home.expr is None or not _repeatable(script, home.expr) for home in homes):
        return "the number of workers is computed in a way that should not be written twice"
    return [
        home for home in homes if not isinstance(home.expr, ast.Constant) or _is_positive(home.expr)
    ]


def given_in_some_runs(loader: Loader) -> str:
    """What to do where a loader keeps its workers in some runs alone, though all have them."""
    given, workers = loader_argument(loader, NAME), loader_argument(loader, WORKERS)
    if given is None or given.sure or workers is None or not workers.sure:
        return ""
    if const(workers.values) == 0 or const(given.values) is False:
        return ""
    return f"{at(given.expr)} sets it in some runs alone: set it in the others, too, where there are workers"


def peeking_advice(script: Script) -> Iterator[Finding]:
    """Advice for loaders whose workers are started again and again, each time for one batch."""
    for loader in script.loaders:
        use, number = _drops(script, loader), loader_argument(loader, WORKERS)
        if (
            use is None
            or not use.repeated
            or number is None
            or loader_argument(loader, NAME) is not None
        ):
            continue
        if const(number.values) != 0 and is_used(script, loader):
            place = at(use)
            advice = (
                f"keep one iterator, call next() on it on {place}, and make a new one where it ends"
            )
            yield Finding(
                loader.node,
                f"all workers are started for the one batch that {place} takes",
                advice=advice,
            )


def made_anew(loader: Loader) -> Iterator[Finding]:
    """Advice for a loader with workers that is made in each epoch, of data from before."""
    number = loader_argument(loader, WORKERS)
    used = {f.node for use in loader.uses if use.trains for f in loops(use.stack)}
    made = [f.node for t in loader.things for f in loops(ways_made(t))]
    around = [loop for loop in made if loop in used]
    names = ("dataset", "sampler", "batch_sampler", "collate_fn")
    arguments = [values_given(loader, n) for n in names]
    parts = [t for t in things_in(*arguments) if isinstance(t, OBJECTS)]
    if (
        number is None
        or const(number.values) == 0
        or not around
        or is_unknown_in(*arguments)
        or any(f.node in around for t in parts for f in loops(t.made))
    ):
        return
    first = min(around, key=lambda loop: sum(1 for _ in ancestors(loop)))
    yield Finding(
        loader.node,
        "a loader is made anew in each turn of a loop, and all its workers are started again",
        advice=f"make it above the loop of {at(first)} (one for each part of the data), with {NAME}=True",
    )


def why_not_persistent(script: Script, loader: Loader) -> str:
    """Why workers must not stay between epochs; empty where nothing speaks against."""
    if source_of(loader.node).is_notebook:
        return "an interrupted cell of a notebook would leave them running"
    looked_at = any(a.attr == "_iterator" for a in script.each(ast.Attribute))
    if looked_at or "composer" in script.frameworks:  # its DataSpec raises a ValueError
        return "a second Trainer of Composer takes no loader whose workers have stayed"
    if (use := _drops(script, loader)) is not None:
        return (
            f"{at(use)} takes one batch and drops the iterator, and all workers fetch ahead for it"
        )
    if _never_ends(loader):
        return "nothing shows that its sampler comes to the end of an epoch"
    for dataset in loader.datasets:
        if dataset.kind == "unknown" or (dataset.unknown and dataset.kind == "project"):
            return f"whether its dataset is changed between epochs is not known: {dataset.unknown}"
        if "own" in dataset.random:
            return f"{dataset.name} has a random generator of its own, which would go on where each epoch begins with a copy of it"
        if place := _changed_later(script, loader, dataset.thing):
            return f"{place} changes {dataset.name} after the workers have got their copy of it: they would not see it"
        if functions := of_kind(dataset.set_outside, ast.FunctionDef):
            return f"{dataset.name}.{functions[0].name}() changes the dataset, which workers that stay would not see"
    if (anew := seeded_anew(script, loader)) is not None:
        return f"{at(anew[0])} sets the seed anew, which workers that stay would not follow"
    return (
        fixed_by_workers(loader)
        or changed_by_items(script, loader, staying=True)
        or changed_between(script, loader)
    )


def _drops(script: Script, loader: Loader) -> Use | None:
    """Where workers that stay would fetch ahead in vain, time and again: not before the epochs,
    which go on with the workers.
    """
    use = peeking_use(script, loader)
    around = {frame.node for frame in loops(use.stack)} if use is not None else set()
    epochs = [u for u in loader.uses if u.trains and u.repeated and not u.is_next]
    before = any(around.isdisjoint(frame.node for frame in loops(u.stack)) for u in epochs)
    return None if before else use


def _never_ends(loader: Loader) -> bool:
    for thing in values_given(loader, "sampler"):
        if isinstance(thing, Ext) and thing.name.endswith(".RandomSampler"):
            count = thing.args.given(2, "num_samples")
        else:
            count = None
        if count is not None and (not isinstance(n := const(count.values), int) or n >= MANY):
            return True
    return False


def _changed_later(script: Script, loader: Loader, dataset: Thing) -> str:
    """The line that changes the dataset, or what it holds, once workers may have started."""
    start = first_use(script, loader)
    epochs = {frame.node for use in loader.uses for frame in loops(use.stack)}
    side = worker_code(script, loader)
    held = {
        id(dataset),
        *(id(t) for values in getattr(dataset, "attrs", {}).values() for t in values),
    }
    for site in script.log.of("set_attribute", "append", "tensor_write"):
        for occurrence in site:
            unread = (
                site.kind == "set_attribute"
                and not side.every
                and occurrence.data["name"] not in side.loads
            )
            if id(occurrence.this) not in held or (unread and occurrence.this is not dataset):
                continue  # options that the dataset keeps, for example
            late = occurrence.order > start or any(
                frame.node in epochs for frame in loops(occurrence.stack)
            )
            made = (dataset, occurrence.this)  # a new object is none that workers have
            anew = any(_while_made(occurrence.stack, x) for x in made)
            if late and not anew:
                return at(site)
    return ""


def _while_made(stack: Stack, thing: Thing | None) -> bool:
    """In the constructor of an object of this class, as it is made: not by ``thing.__init__()``."""
    classes = project_bases(thing.cls) if isinstance(thing, Inst) else []
    return any(
        isinstance(f, CallFrame)
        and f.func.name == "__init__"
        and f.func.owner in classes
        and getattr(getattr(f.node, "func", None), "attr", "") != "__init__"
        for f in stack
    )


def is_positive(script: Script, expr: ast.expr) -> str:
    """``expr > 0``, or True where that is certain: without workers the argument is an error.

    A constant of the script is asked, since whoever sets it to 0 would meet that error; what counts
    the cores is not.
    """
    if _is_positive(expr) or _counts_cores(script, expr):
        return "True"
    code = source_of(expr).segment(expr)
    if isinstance(expr, (ast.BoolOp, ast.IfExp, ast.Compare)) or "\n" in code:
        return f"({code}) > 0"
    return f"{code} > 0"


def _counts_cores(script: Script, expr: ast.expr) -> bool:
    """Whether it is a variable that is ``min(8, os.cpu_count())`` all along."""
    match expr:
        case ast.Name():
            value = script.analysis(Flow).value(expr)
            return isinstance(value, ast.Call) and _is_positive(value)
    return False


def _is_positive(expr: ast.expr) -> bool:
    match expr:
        case ast.Constant(value=int() as value):
            return value > 0
        case ast.Call(func=func, args=args):
            name = short_name(func)
            if name == "min" and len(args) > 1:
                return all(map(_is_positive, args))
            numbers = [a for a in args if literal_of(a) is not None]
            return name == "cpu_count" or (name == "max" and any(map(_is_positive, numbers)))
    return False


def _repeatable(script: Script, expr: ast.expr) -> bool:
    """Nothing happens when it is evaluated twice, and the same comes out."""
    for node in ast.walk(expr):
        if isinstance(node, ast.Subscript) and _is_own(script, node.value):
            return False
        if isinstance(node, ast.Call):
            if _is_lookup(script, node):
                continue
            pure = all(is_named(t, Ref, PURE) for t in script.called(node)) and bool(
                script.called(node)
            )
            if not pure:
                return False
        elif not isinstance(node, (*SIMPLE, *OPERATORS)):
            return False
    return True


def _is_lookup(script: Script, call: ast.Call) -> bool:
    """``config.get("workers", 4)``, on what is no object of the project."""
    func = call.func
    return (
        is_attribute(func, "get") and 1 <= len(call.args) <= 2 and not _is_own(script, func.value)
    )


def _is_own(script: Script, expr: ast.expr) -> bool:
    """Whether a lookup there may run code of the project."""
    return script.may_be(expr, Inst, Cls)
