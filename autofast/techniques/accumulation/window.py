"""The loop over batches as windows: what its counter is, and what to write for "the last batch of a
window" and for a batch's share of one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from autofast.edit.edits import Before, Edit, Edits, Helper
from autofast.facts.updates.cadence import check_loader, ends_of, inside_bar
from autofast.flow.importers import Importers
from autofast.flow.scopes import is_parameter, stored_in
from autofast.model.calls import names_in
from autofast.model.kinds import is_loader
from autofast.model.roles import Loader, Step
from autofast.model.script import Script
from autofast.model.several import surely
from autofast.model.source import (
    Source,
    ancestors,
    at,
    function_of,
    is_same_function,
    nodes_in,
    parent_of,
    source_of,
)
from autofast.model.syntax import TARGETS, VARIABLES
from autofast.model.values import Arg, Const, Ext, Thing, const, surely_named
from autofast.rule import Refusal
from autofast.write.share_helper import HELPER
from autofast.write.step_counter import step_counter

NAME = "ACCUMULATION_STEPS"
SHARE = "share_of_window"


@dataclass(frozen=True, eq=False)
class Window:
    """Windows of ``steps`` batches.

    Attributes:
        loop: over the batches.
        loader: what it goes over, as it is written. things: the loaders that this may be.
        counter, start: the loop's variable that counts batches, and its first value.
        made: edits that make the counter.
        number, name: the number of batches at module level, and as the loop has it.
        share: the function of a batch's share.
        drop: a window that is not whole is left out.
    """

    loop: ast.For
    loader: ast.expr
    counter: str
    start: int
    made: Edits
    steps: int
    number: str
    name: str
    share: str
    drop: bool

    @property
    def source(self) -> Source:
        return source_of(self.loop)

    @property
    def _loader(self) -> str:
        return self.source.segment(self.loader)

    @property
    def is_last(self) -> str:
        """The condition for the last batch of a window."""
        number = f"{self.counter} + 1" if self.start == 0 else self.counter
        whole = f"{f'({number})' if ' ' in number else number} % {self.name} == 0"
        return whole if self.drop else f"{whole} or {number} == len({self._loader})"

    @property
    def weight(self) -> str:
        """The share of a batch in its window."""
        number = self.counter if self.start == 0 else f"{self.counter} - {self.start}"
        return f"{self.share}({self._loader}, {number}, {self.name})"

    def steps_in(self, place: ast.AST) -> str:
        """The number of batches in a window, as it is written in the file of ``place``."""
        return self.number if source_of(place) is self.source else str(self.steps)

    @property
    def constant(self) -> Edit:
        return Helper(self.source, self.number, f"{self.number} = {self.steps}\n")

    @property
    def helper(self) -> Edit:
        return Helper(self.source, self.share, HELPER.format(name=self.share))


def window_of(script: Script, step: Step, steps: int, drop: bool) -> Window:
    """The windows of a training loop; raises :class:`Refusal`."""
    loop = step.loop
    if not isinstance(loop, ast.For):
        raise Refusal(
            "it is no loop over the batches of a DataLoader, so that its last window is not known"
        )
    loader, things = loader_of(script, step, loop)
    flags = list(
        dict.fromkeys(f for jump in ends_of(script, loop) for f in _flags(script, jump, loop))
    )
    if loop.orelse:
        raise Refusal("the loop has an `else`")
    changed = {name for statement in loop.body for name in stored_in(statement)}
    if names_in(loader) & stored_in(loop):
        raise Refusal(f"`{ast.unparse(loader)}` is set again in the loop over it")
    source = source_of(loop)
    counter, start, made = step_counter(script, loop, changed)
    constant = name = source.fresh(NAME)
    if flags:
        name = source.fresh(NAME.lower())
        made = (*made, Before(loop, f"{name} = 1 if {' or '.join(flags)} else {constant}"))
    return Window(
        loop, loader, counter, start, made, steps, constant, name, source.fresh(SHARE), drop
    )


def _flags(script: Script, jump: ast.stmt, loop: ast.For) -> Iterator[str]:
    """Options that are off and, where they are on, end the loop early (``if args.dry_run: break``):
    each batch is a window then.
    """
    for outer in (jump, *ancestors(jump)):
        if outer is loop:
            break
        above = parent_of(outer)
        if isinstance(above, ast.If) and outer in above.body and isinstance(above.test, VARIABLES):
            found = script.values(above.test)
            if surely(
                isinstance(t, Arg) and t.kind == "flag" and const(t.default) is False for t in found
            ):
                if not names_in(above.test) & stored_in(loop):
                    yield ast.unparse(above.test)
                    return
    raise Refusal(
        "may leave the loop before a window is whole, and what it has gathered would be lost", jump
    )


def loader_of(script: Script, step: Step, loop: ast.For) -> tuple[ast.expr, list[Thing]]:
    """The expression of the loader in the head of a loop, and the loaders that it may be."""
    expr: ast.expr = loop.iter
    for _ in range(5):
        found = script.values(expr)
        if surely(is_loader(t) for t in found):
            break
        inner = inside_bar(found)
        if inner is None:
            raise Refusal(
                f"the loop on {at(loop)} is not over a DataLoader, as far as can be seen: which batch is its last is not known"
            )
        expr = inner
    if not isinstance(expr, TARGETS) or not is_same_function(expr, loop):
        raise Refusal(
            f"the loader of the loop on {at(loop)} has no name there: put it into a variable first"
        )
    _check_users(script, loop, expr)
    for thing in found:
        loader = script.loader_of(thing)
        if loader is None:
            raise Refusal(f"how many batches the loop on {at(loop)} has is not known")
        check_loader(loader, thing)
        _check_batches(loader)
    if not step.loaders:
        raise Refusal(f"how many batches the loop on {at(loop)} has is not known")
    return expr, list(found)


def _check_users(script: Script, loop: ast.For, expr: ast.expr) -> None:
    """A test may call the function with a list of batches: windows need a DataLoader, and a test
    may count on a step for each batch.
    """
    function = function_of(loop)
    given = any(is_parameter(function, n.id) for n in nodes_in(expr, ast.Name))
    user = script.analysis(Importers).user(function) if given else None
    if user is not None:
        raise Refusal(
            f"{user} calls {getattr(function, 'name', 'the function')}() of the loop on {at(loop)}, too, perhaps without a DataLoader"
        )


def _check_batches(loader: Loader) -> None:
    """Its batches are those of torch's own sampler, so that it can be asked how many samples they
    have.
    """
    where = f"the loader on {at(loader)}"
    if any(t != Const(None) for t in loader.args.get(6, "collate_fn")):
        raise Refusal(f"{where} has a collate_fn: what its batches have of samples is not known")
    for place, name in ((3, "sampler"), (4, "batch_sampler")):
        for thing in loader.args.get(place, name):
            if isinstance(thing, Ext) and not thing.name.startswith("torch.utils.data."):
                raise Refusal(
                    f"{where} has a {name} of its own, and what its batches have of samples is not known"
                )
    if (
        const(loader.args.get(1, "batch_size")) is None
        and loader.args.given(1, "batch_size") is not None
    ):
        samplers = loader.args.get(3, "sampler")
        if not surely_named(samplers, Ext, "torch.utils.data.BatchSampler"):
            raise Refusal(f"{where} makes no batches, and what an item has of samples is not known")
