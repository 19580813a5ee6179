"""Worker processes: how many, where that is written, and how they may be started."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from autofast.edit.edits import Edits, Helper
from autofast.edit.toplevel import stand_in
from autofast.facts.loaders import has_no_workers, has_workers, values_given
from autofast.facts.parts import held_by
from autofast.facts.workers.shared_state import reads_late_state
from autofast.flow.program import definitions_of
from autofast.flow.scopes import declared, is_parameter, mentions
from autofast.model.calls import keyword_of
from autofast.model.roles import Loader
from autofast.model.script import Script
from autofast.model.several import wordset
from autofast.model.source import (
    Source,
    at,
    function_of,
    is_at_top,
    is_same_function,
    source_of,
    statement_of,
)
from autofast.model.syntax import is_read
from autofast.model.values import Cls, Func, Inst, Module, Ref, Thing, is_named
from autofast.read.library.determinism import asked
from autofast.read.requirements import for_python_2
from autofast.rule import Options
from autofast.write.imports import module_in

NAMES = ("workers", "loader_workers")
# What objects may hold as a whole: ``self.rng = np.random``.
MODULES = wordset(
    "random math os numpy numpy.random cv2 torch torch.nn torch.nn.functional PIL.Image PIL.ImageOps "
    "torchvision.transforms torchvision.transforms.functional scipy.ndimage librosa albumentations"
)
FREE = """\
{name} = {number}
"""
FORKED = """\
# Only with fork: {why}
{name} = {number} if {mp}.get_start_method() == "fork" else 0
"""
CORES = "{os}.cpu_count()"
SHARED = CORES + ' // int({os}.environ.get("LOCAL_WORLD_SIZE", 1))'
UNGUARDED = "a spawned worker would begin by running this script again"
UNSEEN = "a spawned worker would not have what this script sets in its modules"
STARTS = ("multiprocessing.set_start_method", "torch.multiprocessing.set_start_method")
# On a machine that also trains on its cores, more workers would only take them away.
MOST = {"cuda": 8, "cpu": 2}
PLAIN = {"cuda": 4, "cpu": 2}  # where the file would have to import `os` to ask for the cores
FEW = 2  # up to this many workers, a number was probably copied from an example


@dataclass(frozen=True)
class Helped:
    """The number of workers or the name that holds it, and the edits that define it in a file;
    ``some`` where it is never 0.
    """

    code: str
    edits: Edits
    some: bool = False


def against_starting(script: Script) -> str:
    """Why no workers can be started, whatever they load: they could only be forked, and the script
    decides how processes start.
    """
    why, sites = _fork_only(script), script.calls(*STARTS)
    if why and (old := for_python_2(script)):
        return f"{why}, and {old}, where nothing says how workers are started"
    if why and sites:
        return f"{why}, and {at(sites[0])} decides how workers are started"
    return ""


def worker_count(script: Script, source: Source, options: Options, alone: bool = False) -> Helped:
    """How many workers: the cores (of a rank, where ranks share them), up to a number; none where
    they may not be started.

    A constant for all loaders of a file; where a loader is ``alone``, or the file would have to
    import `os` first, the number itself.
    """
    os, imports = module_in(source, "os")
    why = _fork_only(script)
    ranks = several_ranks(script) and not options.workers and not why
    plain = options.workers or (why or imports) and not ranks and not options.any_workers
    plain = plain or _is_fixed(script)
    cores = (SHARED if ranks else CORES).format(os=os)
    mosts = [MOST[options.target], *MOST.values()]
    numbers = [f"min({n}, {cores})" for n in mosts]
    if plain:
        numbers, imports = [str(options.workers or PLAIN[options.target])], ()
    if (alone or plain) and not ranks and not why:
        return Helped(numbers[0], imports, some=True)
    form, some = FREE, not ranks and not why
    if why:
        mp, more = module_in(source, "multiprocessing")
        form, imports = (
            FORKED.format(mp=mp, why=why, name="{name}", number="{number}"),
            (*imports, *more),
        )
    if any(_holds(source, form.format(name=NAMES[0], number=n)) for n in numbers):
        return Helped(NAMES[0], (), some)  # another rule, or an earlier run, has put it there
    name = source.fresh(*NAMES)
    code = form.format(name=name, number=numbers[0])
    return Helped(name, (*imports, Helper(source, name, code)), some)


def as_beside(script: Script, place: ast.expr) -> Helped | None:
    """The number that another loader of the same function is given, unless that is none by
    default: ``args.num_workers``, or ``4``.

    What starts its workers starts these, too.
    """
    for other in script.loaders:
        number = keyword_of(other.node, "num_workers")
        root = number
        while isinstance(root, ast.Attribute):
            root = root.value
        if number is None or not is_same_function(other.node, place) or has_no_workers(other):
            continue
        is_chosen = isinstance(number, ast.Constant) and number.value not in range(FEW + 1)
        if is_chosen or (isinstance(root, ast.Name) and _is_the_same(script, root, place)):
            return Helped(ast.unparse(number), (), some=is_chosen)
    return None


def _is_the_same(script: Script, name: ast.Name, place: ast.expr) -> bool:
    """Whether a name means at another place of its function what it means here: it is bound once,
    and before.
    """
    function = function_of(place)
    bound = [n for n in mentions(function, name.id) if not is_read(n)]
    is_given = is_parameter(function, name.id)
    if name.id in declared(function) or len(bound) > (not is_given):
        return False
    here = definitions_of(script, name)
    return not bound or here.is_bound_at(statement_of(place), name.id)


def as_cores(script: Script, source: Source, options: Options) -> Helped:
    """As many workers as there are cores, where the script asks for a few.

    Its own number says that workers can be started there, on any system: nothing has to be asked
    but the cores.
    """
    if options.workers:
        return Helped(str(options.workers), (), some=True)
    os, imports = module_in(source, "os")
    if (imports and not options.any_workers) or _is_fixed(script):
        return Helped(str(PLAIN[options.target]), (), some=True)
    return Helped(f"min({MOST[options.target]}, {os}.cpu_count())", imports, some=True)


def _is_fixed(script: Script) -> bool:
    """Whether the number is the same on every machine: Python 2 cannot count cores, and runs that
    are to be the same everywhere draw by workers.
    """
    return bool(for_python_2(script)) or any(asked(script))


def several_ranks(script: Script) -> bool:
    """Whether the ranks of one machine may share its cores."""
    return bool(script.calls("torch.distributed.init_process_group"))


def _holds(source: Source, code: str) -> bool:
    """Whether the constant stands in the module as it would be written."""
    return NAMES[0] in source.names and stand_in(source.tree, code)


# ------------------------------------------------------------------------------------ start methods
def _fork_only(script: Script) -> str:
    """Why workers of this script can only be forked; empty where they can be started in any way."""
    if script.entry.is_notebook:
        # No worker runs it again, or can import what a cell defines.
        own = next(filter(None, (_unpicklable(x, script.entry) for x in script.loaders)), "")
        hidden = any(reads_late_state(script, x) for x in script.loaders if x.uses)
        return own or (UNSEEN if hidden else "")
    unguarded = [loader for loader in script.loaders if loader.uses and not loader.guarded]
    if (unguarded or not script.guarded) and not any(map(has_workers, unguarded)):
        return UNGUARDED
    if why := next(filter(None, map(_unpicklable, script.loaders)), ""):
        return why
    if any(reads_late_state(script, loader) for loader in script.loaders if loader.uses):
        return UNSEEN
    return ""


def _unpicklable(loader: Loader, cells: Source | None = None) -> str:
    """Why a worker that is not forked cannot get what it is given: a lambda, or something defined
    in a function (or in the cells of a notebook), is in it.
    """
    roots: list[Thing] = [d.thing for d in loader.datasets]
    for name in ("collate_fn", "worker_init_fn"):
        roots.extend(values_given(loader, name))
    return next(filter(None, (_local(thing, cells) for thing in held_by(*roots))), "")


def _local(thing: Thing, cells: Source | None) -> str:
    node = thing.node if isinstance(thing, (Func, Cls)) else None
    if isinstance(thing, Inst):
        node = thing.cls.node
    if isinstance(node, ast.Lambda):
        return "a lambda cannot be pickled for a spawned worker"
    if isinstance(thing, Module) or is_named(thing, Ref, MODULES):
        return "a module cannot be pickled for a spawned worker"
    if node is None or (is_at_top(node) and source_of(node) is not cells):
        return ""
    place = "this notebook defines" if source_of(node) is cells else "a function defines"
    return f"a spawned worker cannot import `{node.name}`, which {place}"
