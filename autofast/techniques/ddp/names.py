"""What the parts of the rule ``ddp`` share: the names of the ranks in each file, what a training
is, and how it is refused.

Every file that needs one of them gets constants, so that no function needs a parameter for it::

    LOCAL_RANK = int(os.environ.get("LOCAL_RANK", 0))
    RANK = int(os.environ["RANK"]) if "LOCAL_RANK" in os.environ else 0
    WORLD_SIZE = int(os.environ["WORLD_SIZE"]) if "LOCAL_RANK" in os.environ else 1

torchrun sets all three; LOCAL_RANK tells it from clusters and containers that set WORLD_SIZE to
other ends.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Collection
from dataclasses import dataclass, field

from autofast.edit.edits import Edits, Helper, Import
from autofast.flow.imports import bindings
from autofast.model.events import GuardFrame
from autofast.model.roles import Loader, Model, Step
from autofast.model.script import Script
from autofast.model.several import any_in
from autofast.model.source import ByNode, Source, ancestors, source_of
from autofast.model.syntax import FUNCTIONS
from autofast.model.values import Thing, any_of
from autofast.rule import Refusal
from autofast.write.imports import imported, module_in
from autofast.write.spelling import torch_in

CODE = {
    "LOCAL_RANK": 'int({os}.environ.get("LOCAL_RANK", 0))',
    "RANK": 'int({os}.environ["RANK"]) if "LOCAL_RANK" in {os}.environ else 0',
    "WORLD_SIZE": 'int({os}.environ["WORLD_SIZE"]) if "LOCAL_RANK" in {os}.environ else 1',
}


class Ranks:
    """Hands out the names to write in the code around a node, and collects the imports and
    constants that they need.
    """

    def __init__(self, script: Script):
        self.script = script
        self._taken = frozenset().union(*(source.names for source in script.sources))
        self._edits: dict[tuple[int, str], Edits] = {}

    @property
    def edits(self) -> Edits:
        """The imports and constants for all names that were handed out."""
        return tuple(edit for edits in self._edits.values() for edit in edits)

    def rank(self, node: ast.AST) -> str:
        """The name of this process's number among all."""
        return self._constant("RANK", node)

    def local(self, node: ast.AST) -> str:
        """The name of its number on this machine: that of its GPU."""
        return self._constant("LOCAL_RANK", node)

    def world(self, node: ast.AST) -> str:
        """The name of the number of processes."""
        return self._constant("WORLD_SIZE", node)

    def first(self, node: ast.AST) -> str:
        """The test that is true in one process only (and where there is only one)."""
        return f"{self.rank(node)} == 0"

    def several(self, node: ast.AST) -> str:
        """The test that there are several processes that can be waited for.

        Where workers start by importing the script again, module-level code outside the main guard
        runs in them, too: there it asks whether this process is one of the group (``node`` must
        then stand after the set-up).
        """
        if self.imported_again(node):
            return f"{self.dist(node)}.is_initialized()"
        return f"{self.world(node)} > 1"

    def dist(self, node: ast.AST) -> str:
        """The name of ``torch.distributed``."""
        source = source_of(node)
        name, imports = module_in(source, "torch.distributed")
        if imports or name == "torch":
            for binding in (b for stmt in source.tree.body for b in bindings(stmt)):
                if (binding.is_from, binding.module, binding.name) == (
                    True,
                    "torch",
                    "distributed",
                ):
                    return binding.bound
            name = self.fresh("dist")
            self._edits[id(source), "dist"] = (
                Import(source, f"import torch.distributed as {name}"),
            )
        return name

    def torch(self, node: ast.AST) -> str:
        source = source_of(node)
        name, imports = torch_in(source)
        if imports:
            self._edits[id(source), "torch"] = imports
        return name

    def imported(self, module: str, name: str, node: ast.AST) -> str:
        """The name of ``module.name`` (``torch.utils.data.distributed``, ``DistributedSampler``),
        imported where it is not.
        """
        source = source_of(node)
        bound, imports = imported(source, module, name)
        if imports:
            self._edits[id(source), f"{module}.{name}"] = imports
        return bound

    def module(self, module: str, node: ast.AST) -> str:
        """The name of a module (``random``), imported where it is not."""
        source = source_of(node)
        name, imports = module_in(source, module)
        if imports:
            self._edits[id(source), module] = imports
        return name

    def fresh(self, *candidates: str, besides: Collection[str] = ()) -> str:
        """The first of some names, then the first one with a number, that no file of the project
        uses and that is not in ``besides``.
        """
        numbered = (f"{candidates[0]}_{n}" for n in itertools.count(2))
        return next(
            name
            for name in itertools.chain(candidates, numbered)
            if name not in self._taken and name not in besides
        )

    def imported_again(self, node: ast.AST) -> bool:
        """Code of the entry's module level outside the main guard, where the training is below
        it.
        """
        if not self.script.guarded or source_of(node) is not self.script.entry:
            return False
        guards = {f.node for s in self.script.steps for f in s.stack if isinstance(f, GuardFrame)}
        around = list(ancestors(node))
        if any_of(around, FUNCTIONS):
            return False
        return bool(guards) and not any_in((node, *around), guards)

    def _constant(self, name: str, node: ast.AST) -> str:
        source = source_of(node)
        bound = self.fresh(name)
        os, imports = module_in(source, "os")
        if _comes_before(source, node, os if not imports else ""):
            raise Refusal(
                f"stands above the imports: move `import os` to the top of {source.rel}", node
            )
        self._edits[id(source), name] = (
            *imports,
            Helper(source, bound, f"{bound} = {CODE[name].format(os=os)}"),
        )
        return bound


def _comes_before(source: Source, node: ast.AST, os: str) -> bool:
    """Whether ``node`` may run before constants that stand below ``import os`` and the imports at
    the top.
    """
    body = source.tree.body
    top = next(
        (n for n, s in enumerate(body) if s is node or s in ancestors(node)),
        len(body),
    )
    below = max(
        (
            n
            for n, s in enumerate(body)
            if os and any(b.bound == os and b.module == "os" for b in bindings(s))
        ),
        default=-1,
    )
    return top < below


@dataclass(eq=False)
class Training:
    """What is shared out among the processes. All nodes are of the original tree.

    Attributes:
        steps: the training loops; ``loops`` are the loops over batches of theirs, which all ranks
            pass equally often.
        models: the models that train, by the raw module; ``wrapped`` maps the id of each forward
            call (``ast.Call``) that goes through DistributedDataParallel to what is called there.
            All other uses stay on the raw module.
        loaders: those whose batches are shared out by a DistributedSampler; ``batch`` is the part
            of the whole batch that a rank has.
        epochs: the loop around the training loops, if there is one.
        setup: just before this statement the process group is made.
        end: after this statement the group is left.
    """

    steps: list[Step]
    models: list[Model]
    loaders: list[Loader]
    optimizers: list[Thing]
    setup: ast.stmt
    end: ast.stmt
    epochs: ast.AST | None = None
    wrapped: ByNode[str] = field(default_factory=dict)

    @property
    def loops(self) -> list[ast.AST]:
        return list({s.loop: s.loop for s in self.steps}.values())

    def shares(self, thing: Thing) -> bool:
        """Whether the batches of this loader are shared out."""
        return any(thing in loader.things for loader in self.loaders)

    def trains(self, thing: Thing) -> bool:
        """Whether this is the raw module of a model that trains."""
        return any(model.thing is thing for model in self.models)
