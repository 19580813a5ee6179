"""How the sets of faults beside this file (``verify_faults_N``) say their cases."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.faults import Case

Edit = tuple[str, str]  # old text, new text


class Cases:
    """Cases of the scripts in ``folder``, of which nothing is said but the two texts.

    ``otherwise``: by script, an edit from which on all draws are others: nothing repeats bit for
    bit, and seeds have to tell.
    """

    def __init__(self, folder: Path, otherwise: Mapping[str, Edit] | None = None):
        self.folder, self.otherwise = folder, otherwise or {}

    def fault(self, name: str, base: str, *edits: Edit, steps: int = 0, file: str = "") -> Case:
        return Case(name, base, "unknown", edits, folder=self.folder, steps=steps, file=file)

    def sound(self, name: str, base: str, *edits: Edit, steps: int = 0, file: str = "") -> Case:
        return Case(
            name, base, "unknown", edits, sound=True, folder=self.folder, steps=steps, file=file
        )

    def hidden(self, name: str, base: str, *edits: Edit) -> Case:
        """A fault behind other draws."""
        return self.fault(f"drawn otherwise, and {name}", base, self.otherwise[base], *edits)

    def others(self, base: str) -> Case:
        """Other draws, and no fault."""
        return self.sound("drawn otherwise, no more", base, self.otherwise[base])


class Claims(Cases):
    """Cases of which their author says first what each is taken for: ``exact``, ``rounding`` or
    ``sampling``. A sound one is that, a fault is not. ``claimed`` has it by script and name.
    """

    def __init__(self, folder: Path):
        super().__init__(folder)
        self.claimed: dict[tuple[str, str], str] = {}

    def wrong(self, claim: str, name: str, base: str, *edits: Edit) -> Case:
        self.claimed[base, name] = claim
        return self.fault(name, base, *edits)

    def right(self, claim: str, name: str, base: str, *edits: Edit) -> Case:
        self.claimed[base, name] = claim
        return self.sound(name, base, *edits)
