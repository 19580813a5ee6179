"""The training program as the rules see it: its files, the values of its expressions, what happens
in it, and the roles that its things play (:mod:`autofast.model.roles`).

Built once by :mod:`autofast.read`. Everything that stands in the source is named by its ``ast``
node, so ``source_of(node)``, ``statement_of(node)`` and friends tell where it is.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

from autofast.model.calls import arguments_of, is_method
from autofast.model.events import Log, Occurrence, Site, Stack
from autofast.model.limits import WORK
from autofast.model.measured import Facts
from autofast.model.roles import (
    Evaluation,
    Loader,
    Model,
    Optimizer,
    Scheduler,
    Step,
    Sync,
    Trainer,
    Transfer,
)
from autofast.model.several import Kinds, any_in
from autofast.model.source import ByNode, Source, walk
from autofast.model.torch_age import TorchAge
from autofast.model.values import (
    NOTHING,
    Const,
    Dict,
    InOrder,
    Num,
    Ref,
    Seq,
    Thing,
    Values,
    Where,
    any_of,
    certainly,
    const,
    library_name,
    library_names,
    ordered,
)

T = TypeVar("T")
N = TypeVar("N", bound=ast.AST)


@dataclass(eq=False)
class Script:
    """One training program, from its entry file."""

    entry: Source
    sources: list[Source]
    log: Log
    at: ByNode[Values]
    notes: list[str]
    loaders: list[Loader] = field(default_factory=list)
    models: list[Model] = field(default_factory=list)
    optimizers: list[Optimizer] = field(default_factory=list)
    schedulers: list[Scheduler] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    transfers: list[Transfer] = field(default_factory=list)
    syncs: list[Sync] = field(default_factory=list)
    trainers: list[Trainer] = field(default_factory=list)
    # Accelerate, lightning, hf-trainer, apex, deepspeed: first place.
    frameworks: dict[str, ast.AST] = field(default_factory=dict)
    # Places where determinism is asked for.
    deterministic: list[ast.AST] = field(default_factory=list)
    guarded: bool = True  # the entry trains only below a main guard (or is a library)
    unread: str = (
        ""  # why there is code that the reader has not followed: what is not found may be there
    )
    processes: list[Site] = field(default_factory=list)  # mp.spawn, Process(target=...)
    torch: TorchAge = TorchAge()  # which versions the project says that it runs with
    facts: Facts | None = None  # what was measured of this very text
    _analyses: MutableMapping[Any, Any] = field(default_factory=dict, repr=False)

    def analysis(self, kind: Callable[[Script], T]) -> T:
        """What ``kind(script)`` gives, made once: ``script.analysis(CallGraph)``."""
        if kind not in self._analyses:
            self._analyses[kind] = kind(self)
        found: T = self._analyses[kind]
        return found

    def forget(self) -> None:
        """Drop what was analysed: a question that broke off may have left half of an answer."""
        self._analyses.clear()

    def of_node(self, question: Callable[[Script, ast.AST], T], node: ast.AST) -> T:
        """What ``question(script, node)`` gives, asked once for each node."""
        known = self.analysis(_Asked)
        key = question, node
        if key not in known:
            known[key] = question(self, node)
        found: T = known[key]
        return found

    def loader_of(self, thing: Thing) -> Loader | None:
        """The loader that an object is."""
        return next((loader for loader in self.loaders if thing in loader.things), None)

    @property
    def runs_networks(self) -> bool:
        """It trains, or evaluates (``test.py``)."""
        return bool(self.steps or self.evaluations or self.frameworks)

    @property
    def backward_stacks(self) -> list[Stack]:
        """Every way to a backward of its training loops."""
        return [o.stack for step in self.steps for b in step.backwards for o in b.site]

    def source_at(self, path: Path) -> Source | None:
        """The file of the script that lies there."""
        return next((source for source in self.sources if source.path == path), None)

    def calls(self, *names: str) -> list[Site]:
        """The reached calls of library functions, by canonical dotted name
        (``torch.cuda.empty_cache``).
        """
        return self.log.of(*names)

    def methods(self, *names: str) -> list[Site]:
        """The reached calls of methods of library objects (``zero_grad``)."""
        return self.log.of(*("." + n for n in names))

    def flags(self, *names: str) -> list[Site]:
        """Assignments to a library's module attribute (``torch.backends.cudnn.benchmark``); all
        where none is named.
        """
        sites = self.log.of("set_flag")
        return [s for s in sites if not names or any(o.data["name"] in names for o in s)]

    @cached_property
    def replaced(self) -> Site | None:
        """Where the program puts something of its own in the place of a function, class or method
        of torch, or of the class of an object.
        """
        flags = (s for s in self.flags() if any(_replaces(o.data["name"], o.result) for o in s))
        mocks = filter(_mocks, self.calls(*_MOCKS))
        classes = (
            s
            for s in self.log.of("set_attribute")
            if any(o.data.get("name") == "__class__" for o in s)
        )
        return next(chain(flags, mocks, classes), None)

    def values(self, expr: ast.AST) -> Values:
        """Everything an expression may be; empty where the script never comes to it."""
        WORK.spend()
        found = self.at.get(expr, NOTHING)
        if len(found) > 1 and type(found) is frozenset:
            found = self.at[expr] = InOrder(ordered(found))
        return found

    def may_be(self, expr: ast.AST, *kinds: Kinds) -> bool:
        """Whether an expression may be a thing of one of these kinds."""
        return any_of(self.values(expr), *kinds)

    def framework(self, known: Iterable[str]) -> str | None:
        """The first of these that has a hand in the training."""
        return next((name for name in known if name in self.frameworks), None)

    def must_be(self, expr: ast.AST, *kinds: Kinds) -> bool:
        """Whether the script comes to an expression, and it is of these kinds."""
        return certainly(self.values(expr), *kinds)

    def constant(self, expr: ast.AST) -> Any:
        """The constant that an expression must be; :data:`Ellipsis` where it is not certain."""
        return const(self.values(expr))

    def library_name(self, expr: ast.AST) -> str:
        """The canonical name of the library's object that an expression must be, or empty."""
        return library_name(self.values(expr))

    def called(self, node: Where) -> Values:
        """What a call calls; nothing for what is no call."""
        return self.values(node.func) if isinstance(node, ast.Call) else NOTHING

    def library_function(self, node: Where) -> str:
        """The canonical name of the one function of a library that a call calls; empty where that
        is not certain, or no call.
        """
        return library_name(self.called(node))

    def is_call(self, node: object, *names: str) -> TypeGuard[ast.Call]:
        """Whether a node is a call of one of these functions of libraries, for certain."""
        return isinstance(node, ast.Call) and self.library_function(node) in names

    def operation(self, call: ast.Call) -> tuple[str, list[ast.expr]]:
        """The function of a library that a call calls, or ``.name`` for a method, and what it is
        given: of a method, what it belongs to first.
        """
        name, given = self.library_function(call), arguments_of(call)
        if not name and is_method(call):
            return f".{call.func.attr}", [call.func.value, *given]
        return name, given

    def library_functions(self, node: Where) -> set[str]:
        """The canonical names of all functions of libraries that a call may call."""
        return library_names(self.called(node))

    def reached(self, node: ast.AST) -> bool:
        """Whether the script comes to this expression (or to an expression of this statement)."""
        return any_in(walk(node), self.at)

    @cached_property
    def stacks(self) -> list[Stack]:
        """The frames around all that happens, each stack once."""
        return list(dict.fromkeys(o.stack for _, s in self.log.each() for o in s))

    @property
    def nodes(self) -> Iterator[ast.AST]:
        return (node for source in self.sources for node in source.nodes)

    def each(self, kind: type[N]) -> Iterator[N]:
        """The nodes of one kind, of all files."""
        return (node for source in self.sources for node in source.each(kind))

    def attributes(self, name: str) -> Iterator[ast.Attribute]:
        """The places that read, set or delete ``.name`` of anything, in all files."""
        return (node for source in self.sources for node in source.attributes(name))

    @cached_property
    def everything(self) -> list[Occurrence]:
        return sorted((o for _, s in self.log.each() for o in s.occurrences), key=lambda o: o.order)


class _Asked(dict[tuple[Any, ast.AST], Any]):
    """Answers of :meth:`Script.of_node`."""

    def __init__(self, script: Script):
        super().__init__()


_AT_THE_EDGE = tuple("__repr__ __str__ extra_repr load save reset_parameters".split())
_ASIDE = {"backends", "jit", "onnx", "hub"}
_MOCKS = ("unittest.mock.patch", "unittest.mock.patch.object")


def _replaces(name: str, found: Values) -> bool:
    """Whether what a training does may be otherwise then: not where it only loads, saves, shows or
    initialises, nor in settings and what compiles and exports.
    """
    parts = name.split(".")
    if parts[0] != "torch" or set(parts[1:2]) & _ASIDE or parts[-1] in _AT_THE_EDGE:
        return False
    if any(part.startswith("_") and not part.startswith("__") for part in parts):
        return False  # what old versions lacked is put there for loading what new ones saved
    return any(not isinstance(thing, (Const, Num, Seq, Dict)) for thing in found)


def _mocks(site: Site) -> bool:
    """``mock.patch("torch.load")``, ``mock.patch.object(torch.Tensor, "item")``"""
    for occurrence in site:
        for thing in occurrence.args.get(0, "target"):
            name = thing.value if isinstance(thing, Const) else getattr(thing, "name", "")
            if isinstance(name, str) and _replaces(name, frozenset({thing, Ref(name)})):
                return True
    return False
