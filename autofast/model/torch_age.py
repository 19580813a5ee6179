"""Which torch a script runs with, as far as the project says: one fact, which rules and the plan ask."""

from __future__ import annotations

from dataclasses import dataclass

Version = tuple[int, ...]


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


@dataclass(frozen=True)
class TorchAge:
    """What limits the torch of a project.

    Attributes:
        limits: in words what says so (``requirements.txt:1 asks for torch <2``), and the limit.
        oldest: the oldest version that the project says it runs with; empty where it says nothing.
    """

    limits: tuple[tuple[str, Limit], ...] = ()
    oldest: Version = ()

    def rules_out(self, version: Version) -> str:
        """What says that torch is older than ``version``; empty where nothing does."""
        return next((place for place, limit in self.limits if limit.is_below(version)), "")

    def is_at_least(self, version: Version) -> bool:
        """Whether the project asks for ``version`` or a newer one."""
        return self.oldest >= version
