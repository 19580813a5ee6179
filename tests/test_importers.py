"""Who else imports a function: found by every way to write an import, and files that only have the
same words are not parsed.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from autofast.flow import importers
from autofast.read import read_script

USES = {
    "from": "from engine import step\nstep()\n",
    "star": "from engine import *\nstep()\n",
    "renamed": "from engine import step as go\ngo()\n",
    "module": "import os, engine as e\ne.step()\n",
    "dotted": "import lib.engine\nlib.engine.step()\n",
    "parentheses": "from lib import (\n    other,  # of (course)\n    engine,\n)\nengine.step()\n",
    "continued": "from lib import other, \\\n    engine\nengine.step()\n",
    "after a semicolon": "x = 1; from engine import step\nstep()\n",
    "in one line": "if True: import engine\nengine.step()\n",
    "carriage returns": "# of\rimport engine\rengine.step()\r",
}
ELSE = {
    "no import": "engine = step = 1\nprint(engine, step)\n",
    "another module": "from engines import step\nfrom motor import engine\nstep()\n",
    "of another folder": "import motor.engine\nfrom torch.engine import step\nstep()\n",
    "prose": '"""An engine makes a step."""\nimport os\n',
}


def user(project: Path, module: str) -> importers.User | None:
    script = read_script(project / "train.py", project)
    step = next(f for f in script.each(ast.FunctionDef) if f.name == "step")
    assert step._af_source.path == project / module  # type: ignore[attr-defined]
    return script.analysis(importers.Importers).user(step)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    tmp_path = tmp_path.resolve()
    (tmp_path / "engine.py").write_text("def step():\n    pass\n")
    (tmp_path / "train.py").write_text("from engine import step\n\nstep()\n")
    return tmp_path


@pytest.mark.parametrize("form", USES)
def test_each_way_to_import(project: Path, form: str) -> None:
    text, module = USES[form], "engine.py"
    if "lib" in text:
        module = "lib/engine.py"
        (project / "lib").mkdir()
        (project / "engine.py").rename(project / module)
        (project / "train.py").write_text("from lib.engine import step\n\nstep()\n")
    (project / "other.py").write_bytes(text.encode())
    assert str(user(project, module)).startswith(("other.py:", str(project / "other.py")))


def test_a_package(project: Path) -> None:
    (project / "engine.py").unlink()
    (project / "engine").mkdir()
    (project / "engine/__init__.py").write_text("def step():\n    pass\n")
    assert user(project, "engine/__init__.py") is None
    (project / "engine/part.py").write_text("from . import step\n\nstep()\n")
    assert "part.py:3" in str(user(project, "engine/__init__.py"))


def test_a_notebook(project: Path) -> None:
    cells = [{"cell_type": "code", "source": ["from engine import step\n", "step()"]}]
    (project / "other.ipynb").write_text(json.dumps({"cells": cells}))
    assert "other.ipynb" in str(user(project, "engine.py"))


def test_a_folder_by_another_name(project: Path) -> None:
    (project / "motor").mkdir()
    (project / "engine.py").rename(project / "motor/engine.py")
    (project / "train.py").write_text("from motor.engine import step\n\nstep()\n")
    (project / "drive").symlink_to("motor")
    (project / "other.py").write_text("from drive.engine import step\n\nstep()\n")
    assert "other.py:3" in str(user(project, "motor/engine.py"))


def test_by_another_name(project: Path) -> None:
    (project / "motor.py").symlink_to("engine.py")
    (project / "other.py").write_text("from motor import step\n\nstep()\n")
    assert "other.py:3" in str(user(project, "engine.py"))


@pytest.mark.parametrize("case", ELSE)
def test_the_same_words(project: Path, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "other.py").write_text(ELSE[case])
    parsed: list[Path] = []
    opened = importers.open_source

    def noted(path: Path, rel: str, raw: bytes) -> object:
        parsed.append(path)
        return opened(path, rel, raw)

    monkeypatch.setattr(importers, "open_source", noted)
    assert user(project, "engine.py") is None
    assert (project / "other.py" in parsed) == (
        case == "another module"
    )  # `from motor import engine`
