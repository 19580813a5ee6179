"""Worker processes: the helper that says how many, where it is needed, and what must not be moved into one."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from autofast.edit.edits import Edit, Helper
from autofast.facts.loaders import given
from autofast.facts.parts import held_by
from autofast.facts.workers.shared_state import unseen
from autofast.model.script import Loader, Script
from autofast.model.source import Source, function_of
from autofast.model.values import Cls, Func, Inst, Thing
from autofast.rule import Options
from autofast.write.imports import module_in

HELPER = "loader_workers"
BODY = '''\
def {name}(most={most}):
    """Workers for one DataLoader: this process's cores, shared by local ranks, less one."""
{guard}    if hasattr({os}, "sched_getaffinity"):
        cores = len({os}.sched_getaffinity(0))
    else:
        cores = {os}.cpu_count() or 1
    ranks = {os}.environ.get("LOCAL_WORLD_SIZE") or {os}.environ.get("WORLD_SIZE") or 1
    cores //= int(ranks)
    return min(most, cores - 1) if cores > 2 else 0
'''
GUARD = """\
    start = {mp}.get_start_method(allow_none=True)
    if (start or {mp}.get_all_start_methods()[0]) != "fork":  # the first is the default
        return 0  # {why}
"""
UNGUARDED = "other workers would begin by running this script again"
UNSEEN = "other workers would not have what this script sets in variables of its modules"
UNPICKLABLE = "other workers would need to pickle what cannot be pickled"
MOST = {
    "cuda": 8,
    "cpu": 2,
}  # on a machine that also trains on its cores, more workers would only take them away


@dataclass(frozen=True)
class Helped:
    """A call of the helper, and the edits that define it in a file."""

    code: str
    edits: tuple[Edit, ...]


def helper(script: Script, source: Source, options: Options) -> Helped:
    """``loader_workers()`` for a file: one definition for all loaders of the script, as careful as the most delicate needs it."""
    os, imports = module_in(source, "os")
    why = _fork_only(script)
    guard = ""
    if why:
        mp, more = module_in(source, "multiprocessing")
        guard, imports = GUARD.format(mp=mp, why=why), (*imports, *more)
    most = MOST[options.target]
    for (
        node
    ) in source.tree.body:  # it is there already: another rule, or an earlier run, has put it there
        if isinstance(node, ast.FunctionDef) and node.name.startswith(HELPER):
            for cap in MOST.values():
                if ast.dump(node) == ast.dump(
                    ast.parse(BODY.format(name=node.name, os=os, guard=guard, most=cap)).body[0]
                ):
                    return Helped(f"{node.name}()", ())
    name = source.fresh(HELPER)
    return Helped(
        f"{name}()",
        (*imports, Helper(source, name, BODY.format(name=name, os=os, guard=guard, most=most))),
    )


def is_helper(script: Script, call: ast.AST) -> bool:
    """A call of the helper that an earlier run has put into the script."""
    return isinstance(call, ast.Call) and any(
        isinstance(t, Func) and t.name.startswith(HELPER) for t in script.values(call.func)
    )


# ------------------------------------------------------------------------------------------------ start methods
def _fork_only(script: Script) -> str:
    """Why workers of this script can only be forked; empty where they can be started in any way."""
    if any(not loader.guarded for loader in script.loaders if loader.uses) or not script.guarded:
        return UNGUARDED
    if script.entry.path.suffix == ".ipynb":
        return (
            UNPICKLABLE  # a class that is defined in a cell cannot be imported by another process
        )
    if any(_unpicklable(loader) for loader in script.loaders):
        return UNPICKLABLE
    if any(unseen(script, loader) for loader in script.loaders if loader.uses):
        return UNSEEN
    return ""


def _unpicklable(loader: Loader) -> bool:
    """A lambda, or something defined in a function, is in what a worker gets."""
    roots: list[Thing] = [d.thing for d in loader.datasets]
    for name in ("collate_fn", "worker_init_fn"):
        argument = given(loader, name)
        roots.extend(argument.values if argument is not None else ())
    return any(_is_local(thing) for thing in held_by(*roots).values())


def _is_local(thing: Thing) -> bool:
    node = thing.node if isinstance(thing, (Func, Cls)) else None
    if isinstance(thing, Inst):
        node = thing.cls.node
    return isinstance(node, ast.Lambda) or (
        node is not None and not isinstance(function_of(node), ast.Module)
    )
