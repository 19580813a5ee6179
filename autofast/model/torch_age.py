"""Which torch a script runs with: one interval, which rules and the plan ask."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

Version = tuple[int, ...]
GIVEN = "--torch"


@dataclass(frozen=True)
class Limit:
    """The newest version that is allowed; with ``included`` it is allowed itself."""

    newest: Version
    included: bool = True

    def is_below(self, version: Version) -> bool:
        """Whether everything that is allowed is older than ``version``."""
        newest, length = self.newest, len(self.newest)
        if length < len(version):  # "==2" allows every 2.x
            return newest < version[:length] or (not self.included and newest <= version[:length])
        return newest[: len(version)] < version or (not self.included and newest <= version)

    def __str__(self) -> str:
        if self.included:
            return f"torch {shown(self.newest)}"
        return f"a torch below {shown(self.newest)}"


@dataclass(frozen=True)
class Newest:
    """A place that rules newer versions out.

    Attributes:
        place: ``train.py:12``.
        why: ``uses torch._six, which is gone in torch 2.0``.
        node: the code of it; None for a pin in a file of the project.
        anew: how today's torch has it, where that means the same: another name of what is called,
            of a keyword, or another import.
        first: the version that it was new in, where few have it: which of them is not known.
    """

    place: str
    why: str
    limit: Limit
    node: ast.AST | None = None
    anew: str = ""
    first: Version = ()

    @property
    def words(self) -> str:
        return f"{self.place} {self.why}"

    @property
    def is_said(self) -> bool:
        """Whether a file of the project says so, which the user's word outweighs."""
        return self.node is None and self.place != GIVEN


@dataclass(frozen=True)
class Oldest:
    """A place that rules older versions out; ``node`` is None for what a file of the project says.

    ``binds``: what a package asks of those who install it, however old.
    """

    place: str
    why: str
    version: Version
    node: ast.AST | None = None
    binds: bool = False

    @property
    def words(self) -> str:
        return f"{self.place} {self.why}"


@dataclass(frozen=True)
class TorchAge:
    """The versions of torch that a script can run with.

    Attributes:
        newest: what rules newer versions out.
        oldest: what rules older ones out.
        given: the version that the user names; it outweighs the rest.
        living: the oldest version that a Python of these years installs.
        beside: what other scripts say that import a file.
    """

    newest: tuple[Newest, ...] = ()
    oldest: tuple[Oldest, ...] = ()
    given: Version = ()
    living: Version = ()
    beside: Callable[[Path], Iterable[Newest]] = lambda _: ()

    @property
    def least(self) -> Version:
        """The oldest version that the project says, or its code shows, it runs with; empty where
        nothing does.
        """
        return self.given or max((o.version for o in self.oldest), default=())

    def rules_out(self, version: Version) -> str:
        """What says that torch is older than ``version``, and cannot be written anew; empty where
        nothing does.
        """
        return next((n.words for n in self.in_the_way(version) if not n.anew), "")

    def in_the_way(self, version: Version, files: Iterable[Path] = ()) -> Iterator[Newest]:
        """All that says that torch is older than ``version``: what no other line of the code
        contradicts, and what those say that share ``files`` with it.
        """
        if self.given:
            if self.given < version:
                yield Newest(GIVEN, f"says {shown(self.given)}", Limit(self.given))
            return
        bound = self.promised
        others = (newest for file in files for newest in self.beside(file))
        for newest in (*self.newest, *([bound] if bound is not None else ()), *others):
            stale = newest.node is None and newest.limit.is_below(self._shown)
            early = newest.first and Limit(newest.first).is_below(version)
            if (newest.limit.is_below(version) or (early and self.least < version)) and not stale:
                yield newest

    @property
    def promised(self) -> Newest | None:
        """The lower bound of the project: with that torch, too, what is written has to run.

        One below ``living`` counts as that, but for one that ``binds``.
        """
        said = [o for o in self.oldest if o.node is None]
        if not said:
            return None
        bound = max(said, key=lambda o: o.version)
        least = bound.version if bound.binds else max(bound.version, self.living)
        return Newest(bound.place, bound.why, Limit(least))

    @property
    def _shown(self) -> Version:
        """The oldest version that the code itself needs."""
        return max((o.version for o in self.oldest if o.node is not None), default=())

    def is_at_least(self, version: Version) -> bool:
        """Whether the script needs ``version`` or a newer one, as it is."""
        return self.least >= version

    @property
    def clash(self) -> tuple[Newest, Oldest] | None:
        """Two places that no version runs together, if there are such."""
        return next(
            ((n, o) for n in self.newest for o in self.oldest if n.limit.is_below(o.version)), None
        )


def shown(version: Version) -> str:
    """``1.13``"""
    return ".".join(map(str, version))


def version_of(text: str) -> Version:
    """``"1.13"`` as numbers."""
    return tuple(int(part) for part in text.split("."))
