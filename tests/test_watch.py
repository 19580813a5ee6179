"""``check --watch``: a change of anything that a look depended on is another look. Nobody sleeps
here: pauses are where files change.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from autofast.commands import watching
from tests.test_cli import SCRIPT, autofast, fault, project, split

__all__ = ["project", "split"]  # fixtures


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """What happens in the pauses, one after the other; then somebody presses Ctrl-C."""

    def plan(*changes: Callable[[], object]) -> None:
        todo = list(changes)

        def pause() -> None:
            if not todo:
                raise KeyboardInterrupt
            todo.pop(0)()

        monkeypatch.setattr(watching, "pause", pause)

    return plan


def test_each_change_is_another_look(split: Path, meanwhile: Callable[..., None]) -> None:
    data, settings = split / "data.py", split / "pyproject.toml"
    seen: list[str] = []
    meanwhile(
        lambda: seen.append("nothing happens"),
        lambda: data.write_text(data.read_text().replace("DataLoader(data", "list(data")),
        lambda: settings.write_text("[tool.autofast]\nselekt = []\n"),
        lambda: settings.write_text("[tool.autofast]\nselect = ['fused-optimizer']\n"),
        lambda: (split / "new.py").write_text("import torch\n"),
    )
    done = autofast("check", "train.py", "--watch", "--output-format", "concise")
    assert done.code == 0
    looks = done.err.split("Watching for changes; Ctrl-C ends it.\n")
    assert len(looks) == 6 and looks[-1] == "" and seen  # first, data.py, two settings, new.py
    assert "unknown key 'selekt'" in looks[2]
    first, second, fourth, fifth = (part + "\n" for part in done.text.split("Found ")[:4])
    assert "no-grad-eval" in first and "no-grad-eval" in second
    assert "no-grad-eval" not in fourth.split("--diff")[-1] and "fused-optimizer" in fourth


def test_what_does_not_go_together(project: Path) -> None:
    for other in (["--fix"], ["-"]):
        done = autofast("check", "--watch", *other)
        assert done.code == 2 and "--watch and " in done.err and "exclude each other" in done.err
    assert "no such file" in fault(autofast("check", "nothing.py", "--watch", "-q"))
    assert (project / "train.py").read_text() == SCRIPT


def test_ctrl_c_during_a_look(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("autofast.commands.checking.check", interrupted)
    done = autofast("check", "--watch")
    assert done.code == 0 and done.text == ""
