"""The loop over batches as windows: what its counter is, and what to write for "the last batch of a window" and for a batch's share of one."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from autofast.edits import Edit, Helper, Wrap
from autofast.read.source import Source, function_of, source_of
from autofast.read.values import Thing
from autofast.script import Script, Step

from ._pace import Refused, _Counter, _jumps, _loader, at
from ._turns import loaded_in, stored_in

NAME = "ACCUMULATION_STEPS"
SHARE = "share_of_window"
COUNTERS = ("step", "batch_idx", "batch_index", "i")
HELPER = '''def {name}(loader, step, accumulation_steps):
    """The share of batch ``step`` in the samples of its window: the last batch and the last window may be smaller than the others."""
    batches = loader.batch_sampler or loader.sampler

    def samples(count):
        """How many there are in the first ``count`` batches."""
        return min(count * batches.batch_size, len(batches.sampler))

    first = step - step % accumulation_steps
    last = min(first + accumulation_steps, len(loader))
    return (samples(step + 1) - samples(step)) / (samples(last) - samples(first))
'''


@dataclass(frozen=True, eq=False)
class Window:
    """Windows of ``steps`` batches.

    Attributes:
        loop: over the batches. loader: what it goes over, as it is written. things: the loaders that this may be.
        counter, start: the loop's variable that counts batches, and its first value. made: edits that make the counter.
        name, share: the names of the number of batches, and of the function of a batch's share.
        drop: a window that is not whole is left out.
    """

    loop: ast.For
    loader: ast.expr
    counter: str
    start: int
    made: tuple[Edit, ...]
    steps: int
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
        whole = f"{_in_parentheses(number)} % {self.name} == 0"
        return whole if self.drop else f"{whole} or {number} == len({self._loader})"

    @property
    def weight(self) -> str:
        """The share of a batch in its window."""
        number = self.counter if self.start == 0 else f"{self.counter} - {self.start}"
        return f"{self.share}({self._loader}, {number}, {self.name})"

    @property
    def constant(self) -> Edit:
        return Helper(self.source, self.name, f"{self.name} = {self.steps}\n")

    @property
    def helper(self) -> Edit:
        return Helper(self.source, self.share, HELPER.format(name=self.share))


def _in_parentheses(number: str) -> str:
    return f"({number})" if " " in number else number


def window_of(script: Script, step: Step, steps: int, drop: bool) -> Window:
    """The windows of a training loop; raises :class:`Refused`."""
    loop = step.loop
    if not isinstance(loop, ast.For):
        raise Refused("it is no loop over the batches of a DataLoader, so that its last window is not known")
    loader, things = _loader(script, loop, step.updates)
    for jump in _jumps(loop):
        if isinstance(jump, ast.Break):
            raise Refused(f"{at(jump)} may leave the loop before a window is whole, and what it has gathered would be lost")
        if isinstance(jump, ast.Return):
            raise Refused(f"{at(jump)} may leave the loop before a window is whole")
    if loop.orelse:
        raise Refused("the loop has an `else`")
    changed = stored_in(loop) - {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
    if any(isinstance(n, ast.Name) and n.id in stored_in(loop) for n in ast.walk(loader)):
        raise Refused(f"`{ast.unparse(loader)}` is set again in the loop over it")
    source = source_of(loop)
    counter, start, made = _counter(script, loop, things, changed)
    name = source.fresh(NAME)
    return Window(loop, loader, counter, start, made, steps, name, source.fresh(SHARE), drop)


def _counter(script: Script, loop: ast.For, things: list[Thing], changed: set[str]) -> tuple[str, int, tuple[Edit, ...]]:
    reader = _Counter(script, loop, things)
    if reader.name and reader.name not in changed and reader.start in (0, 1):
        return reader.name, reader.start, ()
    taken = source_of(loop).names
    name = next((n for n in COUNTERS if n not in taken), "") or source_of(loop).fresh("batch_number")
    if loaded_in(function_of(loop)) & {"enumerate"} and _is_own(script, loop):
        raise Refused("`enumerate` is something else here")
    target = Wrap(loop.target, f"{name}, ({{}})" if isinstance(loop.target, ast.Tuple) else f"{name}, {{}}")
    return name, 0, (target, Wrap(loop.iter, "enumerate({})"))


def _is_own(script: Script, loop: ast.For) -> bool:
    source = source_of(loop)
    return any(
        (isinstance(n, ast.Name) and n.id == "enumerate" and isinstance(n.ctx, ast.Store)) or getattr(n, "name", "") == "enumerate"
        for n in ast.walk(source.tree)
    )
