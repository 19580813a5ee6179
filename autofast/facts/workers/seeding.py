"""Seeds that are set anew while the script runs: which random numbers a worker draws then, and
which one draws that stays or is new.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.facts.by_default import not_by_default
from autofast.facts.loaders import values_given
from autofast.facts.workers.shared_state import worker_code
from autofast.facts.workers.timing import Time
from autofast.flow.callgraph import CallGraph, Function, code_of
from autofast.model.calls import names_in
from autofast.model.names import last_part
from autofast.model.roles import Loader
from autofast.model.script import Script
from autofast.model.several import any_in, wordset
from autofast.model.source import ancestors, at, function_of, nodes_in, parent_of
from autofast.model.syntax import is_attribute

ALL = wordset("torch numpy python")
# fmt: off
SEEDS = {
    "torch.manual_seed": {"torch"}, "torch.seed": {"torch"}, "torch.set_rng_state": {"torch"},
    "torch.random.fork_rng": {"torch"},
    "numpy.random.seed": {"numpy"}, "numpy.random.set_state": {"numpy"}, "random.seed": {"python"}, "random.setstate": {"python"},
}
# fmt: on
NUMPY_SEEDS = ("np.random.seed", "numpy.random.seed")
SEED_ALL = ("seed_everything", "set_seed", "set_random_seed")  # of libraries


def seed_of(script: Script, seeds: str = "torch.manual_seed") -> ast.AST | None:
    """What gives torch's generator on the host, or NumPy's (``numpy.random.seed``), the same
    numbers in every run, by default.
    """
    for (kind, _), site in script.log.each():
        if kind == seeds or kind.endswith(SEED_ALL):
            if not not_by_default(script, [o.stack for o in site]):
                return site.node
    return None


def draws_of(loader: Loader) -> frozenset[str]:
    """The generators (``torch``, ``numpy``, ``python``) that items and batches draw from."""
    drawn = loader.drawn
    return ALL if drawn - ALL else frozenset(drawn)


def seeded_anew(script: Script, loader: Loader) -> tuple[ast.AST, frozenset[str]] | None:
    """A place that seeds a generator again after the loader has been gone through, which its items
    draw from; and all that are seeded so.
    """
    drawn = draws_of(loader)
    if not drawn:
        return None
    side = worker_code(script, loader)
    inside = set(side.functions) | set(side.beside)
    time = Time(script, loader, lambda node: any_in((node, *ancestors(node)), inside))
    found = [
        (node, kinds)
        for node, kinds in _seeds(script, loader)
        if not time.skip(node) and time.after(node) and _is_called(script, node)
    ]
    every = frozenset().union(*(kinds for _, kinds in found))
    # workers take the seeds of all their generators from torch's
    first = next((node for node, kinds in found if kinds & (drawn | {"torch"})), None)
    return (first, every) if first is not None else None


def _seeds(script: Script, loader: Loader) -> Iterator[tuple[ast.AST, frozenset[str]]]:
    for (kind, _), site in script.log.each():
        if kind in SEEDS:
            yield site.node, frozenset(SEEDS[kind])
        elif last_part(kind) in SEED_ALL and not kind.startswith("."):
            yield site.node, ALL
    mine = values_given(loader, "generator")
    for site in script.methods("manual_seed", "set_state"):
        if any_in(site.owners, mine):
            yield site.node, frozenset({"torch"})


def _is_called(script: Script, node: ast.AST) -> bool:
    """Whether the program comes to this place: not in a function that is only defined."""
    function = function_of(node)
    calls = script.analysis(CallGraph)
    return (
        not isinstance(function, ast.FunctionDef)
        or isinstance(parent_of(function), ast.ClassDef)
        or bool(calls.sites(function))
        or calls.handed(function) is not None
    )


def fixed_by_workers(loader: Loader) -> str:
    """Where each worker seeds itself with numbers that are the same in each epoch; empty where none
    does.
    """
    for function, calls in _beginnings(loader) if draws_of(loader) else ():
        if _has_own_number(function, calls):
            continue  # what a worker got from the loader, another number in each epoch
        for call in calls:
            name = last_part(ast.unparse(call.func))
            if name in ("seed", "manual_seed", *SEED_ALL) and call.args:
                return f"{at(call)} seeds each worker when it starts, which would happen in the first epoch only"
    return ""


def seeded_by_workers(loader: Loader) -> frozenset[str]:
    """Whose generators its ``worker_init_fn`` seeds with a number that each worker has for
    itself.
    """
    found: set[str] = set()
    for function, calls in _beginnings(loader):
        parameters = {a.arg for a in function.args.args}
        for call in calls:
            if _has_own_number(function, calls) or any(parameters & names_in(x) for x in call.args):
                called = ast.unparse(call.func)
                if called.endswith(".set_random_seed"):
                    found.add("albumentations")
                elif called in NUMPY_SEEDS or last_part(called) in SEED_ALL:
                    found.add("numpy")
    return frozenset(found)


def _beginnings(loader: Loader) -> Iterator[tuple[Function, list[ast.Call]]]:
    """What its workers run when they start, with all calls there; the reader never runs it."""
    for thing in values_given(loader, "worker_init_fn"):
        for callee in code_of(thing):
            yield callee.function, list(nodes_in(callee.function, ast.Call))


def _has_own_number(function: Function, calls: list[ast.Call]) -> bool:
    """Whether it asks for the number that torch gives each worker, another one in each epoch."""
    names = {last_part(ast.unparse(c.func)) for c in calls}
    return "initial_seed" in names or _asks_worker(function)


def _asks_worker(function: ast.AST) -> bool:
    """It reads ``get_worker_info().seed``."""
    called = {n.func for n in nodes_in(function, ast.Call)}
    return any(is_attribute(n, "seed") and n not in called for n in ast.walk(function))
