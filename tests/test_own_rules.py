"""Rules of other packages, by the entry points `autofast.rules`: the template of docs/own-rules.md
is installed and run.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autofast import registry
from autofast.rule import REGISTRY
from tests.test_cli import SCRIPT, autofast, fault, project

__all__ = ["project"]  # fixture

PAGE = Path(__file__).parents[1] / "docs" / "own-rules.md"
SLOW = SCRIPT.replace("import torch\n", "import time\n\nimport torch\n", 1).replace(
    "            loss.backward()\n", "            loss.backward()\n            time.sleep(0.01)\n"
)


def blocks() -> dict[str, str]:
    """The files of the template, by what they are written in."""
    text = PAGE.read_text("utf-8")
    return dict(re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL))


Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a package as pip lays it out, in a folder of its own that this process then looks
    in.
    """
    registry.all_rules()
    known = dict(REGISTRY)
    registry.all_rules.cache_clear()
    folder = tmp_path.parent / f"{tmp_path.name}-packages"

    def put(
        name: str = "my_rules", code: str = "", card: str = "x", module: str = "no_sleep"
    ) -> Path:
        package, info = folder / name, folder / f"{name}-1.0.dist-info"
        package.mkdir(parents=True)
        info.mkdir()
        (package / "__init__.py").touch()
        (package / f"{module}.py").write_text(code or blocks()["python"])
        if card:
            (package / f"{module}.md").write_text(blocks()["markdown"])
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        declared = blocks()["toml"].split('[project.entry-points."autofast.rules"]\n')[1]
        target = declared.splitlines()[0].replace("my_rules", name).replace('"', "")
        (info / "entry_points.txt").write_text(f"[autofast.rules]\n{target}\n")
        monkeypatch.syspath_prepend(folder)
        return folder

    yield put
    for name in [m for m in sys.modules if m.split(".")[0] in ("my_rules", "others")]:
        del sys.modules[name]
    REGISTRY.clear()
    REGISTRY.update(known)
    registry.all_rules.cache_clear()


def test_the_template_in_an_environment(project: Path, install: Install) -> None:
    folder = install()
    (project / "train.py").write_text(SLOW)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        env = {
            **os.environ,
            "PYTHONPATH": f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
        }
        command = [sys.executable, "-m", "autofast", *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=env, cwd=project)

    done = run("rewrite", "train.py", "-o", "-", "--select", "no-sleep")
    assert done.returncode == 0, done.stderr
    assert done.stdout == SLOW.replace("            time.sleep(0.01)\n", "")
    assert "no-sleep" in done.stderr


def test_listed_selected_and_ignored_like_all_others(project: Path, install: Install) -> None:
    assert "there is no rule called 'no-sleep'" in fault(autofast("check", "--select", "no-sleep"))
    install()
    registry.all_rules.cache_clear()
    (project / "train.py").write_text(SLOW)
    row = next(line for line in autofast("rules").text.splitlines() if "no-sleep" in line)
    assert re.sub(r"\s+", " ", row) in re.sub(r"[ \t]+", " ", PAGE.read_text("utf-8"))
    by_name = {rule["name"]: rule for rule in json.loads(autofast("rules", "--json").text)}
    assert by_name["no-sleep"]["package"] == "my_rules" and by_name["tf32"]["package"] == "autofast"
    assert autofast("rule", "no-sleep").text == blocks()["markdown"]
    assert registry.card_section("no-sleep") == "Removes `time.sleep(...)` from training loops."
    assert "no-sleep" in autofast("check").text
    assert "no-sleep" in autofast("check", "--select", "waiting").text
    assert "no-sleep" not in autofast("check", "--ignore", "waiting").text
    (project / "train.py").write_text(
        SLOW.replace("time.sleep(0.01)", "time.sleep(0.01)  # autofast: ignore[no-sleep]")
    )
    assert "no-sleep" not in autofast("check").text


CODE = blocks()["python"]
BROKEN = {
    "a name that is taken": (
        {"code": CODE.replace('"no-sleep"', '"tf32"')},
        "my_rules: its rule 'tf32' has the name of a rule of autofast; rename or uninstall it",
    ),
    "the name of a group": (
        {"code": CODE.replace('"no-sleep"', '"loader"')},
        "my_rules: its rule 'loader' has the name of a group; rename or uninstall it",
    ),
    "a group with the name of a rule": (
        {"code": CODE.replace('"waiting"', '"tf32"')},
        "my_rules: the group 'tf32' of its rule 'no-sleep' has the name of a rule; rename or uninstall it",
    ),
    "no rule": (
        {"code": "x = 1\n"},
        "my_rules: has no rule; mark one with @autofast.rule.rule, or uninstall it",
    ),
    "no card": (
        {"card": ""},
        "my_rules: its rule 'no-sleep' has no card; put no_sleep.md beside its module",
    ),
    "an error": (
        {"code": "import nothing_of_that_name\n"},
        "my_rules: its rules cannot be loaded (ModuleNotFoundError: No module named 'nothing_of_that_name', "
        "no_sleep.py:1); mend or uninstall it",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_package_that_cannot_be_taken(project: Path, install: Install, case: str) -> None:
    given, why = BROKEN[case]
    install(**given)
    assert fault(autofast("check")) == why
    assert fault(autofast("rules")) == why  # the second time, too
    assert "autofast 0." in autofast("--version").text


def test_two_packages_with_one_name(project: Path, install: Install) -> None:
    install()
    install("others")
    why = "others: its rule 'no-sleep' has the name of a rule of my_rules; rename or uninstall it"
    assert fault(autofast("check")) == why
