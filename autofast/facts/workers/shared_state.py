"""What worker processes would not share: state that fetching an item changes, and state that others
change while items read it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, TypeVar

from autofast.facts.escapes import handed, may_escape
from autofast.facts.host_io import MADE, host_effects
from autofast.facts.loaders import values_given
from autofast.facts.workers.held import ARCHIVE, Held, opens
from autofast.facts.workers.item_changes import A_FILE, WRITERS, Changes, is_iterator, shown
from autofast.facts.workers.lifetime import Lifetime
from autofast.facts.workers.loader_code import Side
from autofast.facts.workers.memos import Memos
from autofast.facts.workers.shared_reads import Shared
from autofast.facts.workers.timing import Time
from autofast.flow.callgraph import CallGraph
from autofast.flow.effects import CHANGERS, Effects, Write
from autofast.flow.program import holder_of
from autofast.flow.scopes import parameters
from autofast.flow.usage import Usage
from autofast.flow.valueflow import Answer
from autofast.model.calls import is_name
from autofast.model.roles import Loader
from autofast.model.script import Script
from autofast.model.several import of_kind, surely
from autofast.model.source import (
    Nodes,
    ancestors,
    at,
    contains_kind,
    function_of,
    live_nodes,
    parent_of,
    statement_of,
)
from autofast.model.syntax import COMPREHENSIONS, VARIABLES, is_attribute, is_read
from autofast.model.values import (
    Cls,
    Method,
    Module,
    Ref,
    Thing,
    Unknown,
    any_named,
    begins,
    ordered,
)

T = TypeVar("T")
LOOPS = (ast.For, ast.AsyncFor, ast.While, *COMPREHENSIONS)
TARGET_FIRST = WRITERS - set(
    "torch.save pickle.dump json.dump joblib.dump torchvision.utils.save_image".split()
)
DICE = tuple(
    """random. numpy.random. torch.rand torch.multinomial torch.bernoulli torch.normal
    torch.poisson torch.empty""".split()
)
# Libraries that leave lists, dicts and objects that they are given as they are; what of theirs runs
# others' code.
READING = tuple(
    """torch. torchvision. torchaudio. numpy. scipy. pandas. sklearn. skimage. cv2. PIL. imageio.
    tifffile. h5py. zarr. nibabel. librosa. soundfile. wave. matplotlib. wandb. mlflow. tqdm. yaml.
    builtins. itertools. math. statistics. random. time. datetime. logging. pprint. json. pickle.
    csv. copy. re. string. os. sys. glob. pathlib. shutil. tempfile. argparse. collections.Counter
    collections.defaultdict collections.deque collections.OrderedDict""".split()
)
CALLING = tuple("builtins.map builtins.filter itertools.starmap".split())
UNPACKED = (
    ": where its arrays fit into memory, `dict(np.load(path))` reads each once, not for every item"
)


class _Sides:
    """``script.analysis(_Sides)``: the code on both sides of each loader, made when it is asked
    for.
    """

    def __init__(self, script: Script):
        self.script = script
        self.made: dict[tuple[int, tuple[str, ...]], Side] = {}
        self.known: dict[tuple[Any, Side], Any] = {}

    def of(self, loader: Loader, names: tuple[str, ...], beside: str = "") -> Side:
        key = id(loader), names
        if key not in self.made:
            roots = [t for n in names for t in ordered(values_given(loader, n))]
            self.made[key] = Side(
                self.script, roots, ordered(values_given(loader, beside)) if beside else ()
            )
        return self.made[key]


def worker_code(script: Script, loader: Loader) -> Side:
    """The code that would run in workers."""
    return script.analysis(_Sides).of(loader, ("dataset", "collate_fn"), "worker_init_fn")


def indices(script: Script, loader: Loader) -> Side:
    """The code that chooses indices, which stays in the main process but runs ahead of it."""
    return script.analysis(_Sides).of(loader, ("sampler", "batch_sampler"))


def _about(kind: Callable[[Side], T], side: Side) -> T:
    """What ``kind`` knows of a side, made once."""
    known = side.script.analysis(_Sides).known
    if (kind, side) not in known:
        known[kind, side] = kind(side)
    found: T = known[kind, side]
    return found


def changed_by_items(script: Script, loader: Loader, *, staying: bool = False) -> str:
    """What fetching an item or making a batch changes for good; empty where nothing is changed.

    ``staying``: but for what is the same for workers that stay and for new ones: files,
    opened before or written, and what was read from them and is kept by its index.
    """
    side = worker_code(script, loader)
    held = Held(side)
    if not staying and (opened := held.handle()) is not None:
        place, name = opened
        advice = UNPACKED if name == ARCHIVE else ""
        return f"items are read through {name} ({at(place)}), which workers would share{advice}"
    if (moved := held.on_device()) is not None:
        return f"items read what {at(moved)} put on the device: a worker would need the GPU"
    if (made := held.generator()) is not None:
        return (
            f"items draw from a random generator of their own ({at(made)}): each worker would get a copy "
            "and draw the same numbers"
        )
    changes = _about(Changes, side)
    for node, what in changes.writes:
        if staying and (
            what.startswith(A_FILE) or changes.comes_to_the_same(node, bool(loader.drawn))
        ):
            continue
        if what.startswith(A_FILE):
            return (
                f"fetching an item writes {what} ({at(node)}): several workers may write it at once"
            )
        return f"fetching an item changes {what} ({at(node)}): workers would change copies of it"
    trained = [m for step in script.steps for m in step.models] + [
        m for o in script.optimizers for m in o.params
    ]
    if any(id(model) in side.objects for model in trained):
        return "items are made by a model that is trained: workers would keep its first weights"
    return ""


def keeps_what_it_reads(script: Script, loader: Loader) -> bool:
    """Whether items of files are kept by their index, and workers that start anew read them
    again."""
    changes = _about(Changes, worker_code(script, loader))
    return any(changes.memoises(node, bool(loader.drawn)) for node, _ in changes.writes)


def changed_meanwhile(script: Script, loader: Loader) -> str:
    """What is changed while batches are fetched ahead."""
    time = Time(script, loader, _skip(worker_code(script, loader)))
    why = _changed(script, worker_code(script, loader), time.within, time)
    if why:
        return f"{why} while workers fetch items ahead: they would not see it"
    side = indices(script, loader)
    if side.functions or side.objects:
        ahead = Time(script, loader, _skip(side))
        if not _at_once(script, side) and (why := _changed(script, side, ahead.within, ahead)):
            return f"{why}, which its sampler reads, and workers ask for indices ahead of time"
        if why := _told(script, loader, side):
            return why
    return _files(script, loader, worker_code(script, loader), time)


def changed_between(script: Script, loader: Loader) -> str:
    """What is changed between epochs, or within them."""
    side = worker_code(script, loader)
    time = Time(script, loader, _skip(side))
    why = _changed(script, side, time.after, time)
    return (
        f"{why} after the workers have got their copy of it: they would not see it" if why else ""
    )


def changed_since_made(script: Script, loader: Loader) -> str:
    """What items, or the number of them, read and is changed once the loader has been made: all
    items that it took at once would be others.
    """
    side = Side(script, worker_code(script, loader).roots, more=("__len__",))
    time = Time.since_made(script, loader, _skip(side))
    return _changed(script, side, time.after, time)


def is_written_by_items(script: Script, loader: Loader) -> bool:
    """Whether fetching an item, or making a batch, changes anything that stays."""
    return bool(_about(Changes, worker_code(script, loader)).writes)


def may_make_others(script: Script, loader: Loader) -> bool:
    """Whether fetching an item, or making a batch, changes what later ones are made of: more than
    the files that are opened for the first one, and the items that are kept by their index.
    """
    changes = _about(Changes, worker_code(script, loader))
    return any(
        not changes.comes_to_the_same(node, draws=False) and not _opens_for_itself(script, node)
        for node, _ in changes.writes
    )


def _opens_for_itself(script: Script, node: ast.AST) -> bool:
    """``self.file = h5py.File(path)``."""
    match statement_of(node):
        case ast.Assign(targets=[target], value=value) if target is node:
            return surely(map(opens, script.library_functions(value)))
    return False


def changed_since_built(script: Script, loader: Loader, data: Thing) -> str:
    """The same of what only the items of a data set read, from the construction of it on."""
    side = worker_code(script, loader)
    time = Time.since_built(script, loader, _skip(side), data)
    return _changed(script, side, time.after, time)


def files_written_since_built(
    script: Script, loader: Loader, data: Thing, libraries: tuple[str, ...]
) -> bool:
    """Whether one of these libraries may write files from the construction of a data set on, and
    items be read after that."""
    time = Time.since_built(script, loader, lambda _: False, data)
    return any(
        time.after(node) and time.is_read_after(node)
        for node, name in script.analysis(_made_files)
        if name.startswith(libraries)
    )


def may_change_unseen(script: Script, loader: Loader) -> bool:
    """Whether data sets, or lists and dicts that items read, come to something that nobody follows,
    which may change them."""
    shared = _about(Shared, worker_code(script, loader))
    return may_escape(script, shared.places(), lambda use: _judged(script, use))


def _judged(script: Script, use: Usage) -> Answer:
    node = use.node
    if use.result is node and is_attribute(node, *CHANGERS) and script.may_be(node, Method):
        return "keeps a method of"
    return handed(script, use, (READING, CALLING))


def changed_ever(script: Script, loader: Loader) -> str:
    """What items read and is changed outside constructors, whenever that is: it is no longer as its
    class makes it.
    """
    return _changed(script, worker_code(script, loader), lambda _: True)


def reads_late_state(script: Script, loader: Loader) -> bool:
    """Items read variables of modules that the script sets as it runs: only a forked worker has
    their values.
    """
    side = worker_code(script, loader)
    shared = _about(Shared, side)
    held: set[int] = set(side.classes)
    todo = [
        t
        for name in side.free.values()
        for t in script.values(name)
        if isinstance(holder_of(name), ast.Module)
    ]
    while todo:
        thing = todo.pop()
        if id(thing) in side.objects and id(thing) not in held or isinstance(thing, Cls):
            if id(thing) not in held:
                held.add(id(thing))
                todo += [t for values in side.parts(thing) for t in values]
    for change in script.analysis(Effects).writes:
        function = function_of(change.node)
        if isinstance(function, ast.Module) and not _below_guard(change.node):
            continue
        if change.bound:
            if isinstance(holder_of(change.node), ast.Module) and shared.touched(change):  # type: ignore[arg-type]
                return True
        elif (
            change.base is not None and not _makes_itself(script, change) and shared.touched(change)
        ):
            parts = of_kind(ast.walk(change.base), VARIABLES)
            if any(id(t) in held for n in parts for t in script.values(n)):
                return True
    return False


def _below_guard(node: ast.AST) -> bool:
    tests = (a.test for a in ancestors(node) if isinstance(a, ast.If))
    return any(is_name(n, "__name__") for test in tests for n in ast.walk(test))


def _skip(side: Side) -> Callable[[ast.AST], bool]:
    def skip(node: ast.AST) -> bool:
        return any(a in side.functions or a in side.beside for a in (node, *ancestors(node)))

    return skip


def _changed(
    script: Script, side: Side, when: Callable[[ast.AST], bool], time: Time | None = None
) -> str:
    if not side.functions and not side.objects:
        return ""
    shared, skip = _about(Shared, side), _skip(side)
    for change in script.analysis(Effects).writes:
        if (
            skip(change.node)
            or _makes_itself(script, change)
            or not shared.touched(change)
            or not when(change.node)
            or (time is not None and time.of_new(change))
            or Memos(side).fills(change.node)
        ):
            continue
        what = change.bound or shown(
            change.node if not isinstance(change.node, ast.Call) else change.base or change.node
        )
        return f"{at(change)} changes `{what}`"
    return ""


def _makes_itself(script: Script, change: Write) -> bool:
    """``self.x = ...`` in a constructor: a new object."""
    function = function_of(change.node)
    if change.base is None or not script.analysis(CallGraph).only_makes(function):
        return False
    root: ast.AST = change.base
    while isinstance(root, (ast.Attribute, ast.Subscript, ast.Call)):
        root = root.func if isinstance(root, ast.Call) else root.value
    return is_name(root, *(p.arg for p in parameters(function)[:1]))


def _at_once(script: Script, side: Side) -> bool:
    """All indices are computed where the iterator is made: ``return
    iter(torch.randperm(n).tolist())``.
    """
    for function in (side.functions[n] for n in side.starts):
        parts = [
            n
            for n in live_nodes(function)
            if isinstance(n, (ast.Return, ast.Yield, ast.YieldFrom)) and function_of(n) is function
        ]
        for part in parts:
            call = part.value if isinstance(part, ast.Return) else None
            if not isinstance(call, ast.Call) or not any_named(
                script.called(call), Ref, "builtins.iter"
            ):
                return False
            if (
                not call.args
                or Lifetime(side).keeps(call.args[0])
                or isinstance(call.args[0], ast.GeneratorExp)
                or is_iterator(script.values(call.args[0]))
            ):
                return False
    return bool(side.functions)


def draws_ahead(script: Script, loader: Loader) -> bool:
    """Whether its sampler draws random numbers from one index to the next: with workers that
    happens earlier.
    """
    side = indices(script, loader)
    for call in side.calls:
        if any(begins(t, Ref, DICE) for t in script.called(call)) and _between(side, call, set()):
            return True
    return False


def seeds_generators(script: Script, loader: Loader) -> bool:
    """Whether items seed the generators, which a worker does with its own only."""
    calls = worker_code(script, loader).calls
    return any(
        isinstance(t, Ref) and t.name.endswith(("seed", "seed_all", "seed_everything"))
        for c in calls
        for t in script.called(c)
    )


def _between(side: Side, call: ast.Call, seen: Nodes) -> bool:
    """In a loop that yields, or in a function that is called there."""
    function = function_of(call)
    for loop in of_kind(ancestors(call), LOOPS):
        if function_of(loop) is function and contains_kind(loop, ast.Yield, ast.YieldFrom):
            return True
    if function in seen:
        return False
    seen.add(function)
    return isinstance(function, ast.Lambda) or any(
        _between(side, site, seen) for site in side.sites.get(function, ())
    )


def _told(script: Script, loader: Loader, side: Side) -> str:
    """The sampler notes something for the training loop to read, which would be ahead of it."""
    for node, what in _about(Changes, side).writes:
        if not isinstance(node, ast.Attribute):
            continue
        for read in script.nodes:
            if not is_attribute(read, node.attr) or not is_read(read) or _skip(side)(read):
                continue
            if any(
                id(t) in side.objects or isinstance(t, Unknown) for t in script.values(read.value)
            ):
                return f"its sampler changes {what} ({at(node)}), which {at(read)} reads, and workers ask it ahead of time"
    return ""


def _files(script: Script, loader: Loader, side: Side, time: Time) -> str:
    """Training writes files to where items are read from."""
    shared = _about(Shared, side)
    for node, path in script.analysis(_written_files):
        if time.skip(node):
            continue
        for part in ast.walk(path):
            if (
                isinstance(part, VARIABLES)
                and not script.may_be(part, Ref, Module)
                and shared.is_part(part)
                and time.within(node)
                and _names_entry(side, part)
            ):
                return f"{at(node)} writes a file by `{shown(part)}`, from which items are read: workers fetch them ahead"
    return ""


def _names_entry(side: Side, part: ast.expr) -> bool:
    """Of ``settings["paths"]["out"]``, the code of the items names the last key, too; true where
    there is none.
    """
    key, whole = "", parent_of(part)
    while isinstance(whole, ast.Subscript) and isinstance(whole.slice, ast.Constant):
        name, whole = whole.slice.value, parent_of(whole)
        key = name if isinstance(name, str) else key
    code = [*side.functions.values(), *(cls.node for cls in side.classes.values())]
    return not key or any(
        isinstance(n, ast.Constant) and n.value == key for c in code for n in ast.walk(c)
    )


def _written_files(script: Script) -> list[tuple[ast.Call, ast.expr]]:
    """The calls of library functions that write a file, each with the argument that names it."""
    found = []
    for source in script.sources:
        for node in live_nodes(source.tree):
            if isinstance(node, ast.Call):
                names = script.library_functions(node)
                place = 0 if names & TARGET_FIRST else 1
                if names & WRITERS and len(node.args) > place:
                    found.append((node, node.args[place]))
    return found


def _made_files(script: Script) -> list[tuple[ast.Call, str]]:
    """The calls that write files with something in them, each with the name of the library's."""
    return [(e.node, e.name) for e in host_effects(script) if MADE.fullmatch(e.name)]
