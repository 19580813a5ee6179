"""What is installed: every package, every card, and no more than it takes to rewrite."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from autofast import DISTRIBUTION

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent


def modules(folder: str) -> set[str]:
    return {p.relative_to(ROOT).as_posix() for p in (ROOT / folder).rglob("*.py")}


def test_every_package_is_listed() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    here = {
        p.parent.relative_to(ROOT).as_posix().replace("/", ".")
        for p in (ROOT / "autofast").rglob("*.py")
    }
    assert set(settings["packages"]) == here | {"autofast.rules"}


def test_requirements_are_few() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    names = {re.split(r"[^\w-]", line)[0] for line in project["dependencies"]}
    assert names == {"black", "click", "libcst", "pathspec", "pyyaml", "rich", "tomli"}


def test_the_name_of_the_distribution() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["name"] == DISTRIBUTION
    assert not any(
        "torch" in line.split()[0] for line in project["optional-dependencies"]["verify"]
    )
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "autofast").rglob("*.py")]
    told = "".join(page.read_text("utf-8") for page in pages)
    hints = re.findall(r"pip install '?([\w{}-]+)", told)
    assert hints and set(hints) <= {DISTRIBUTION, "{DISTRIBUTION}"}, hints


@pytest.mark.slow
def test_wheel(tmp_path: Path) -> None:
    copy = tmp_path / "autofast"  # building leaves its traces in the tree
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode:
        pytest.skip("not in a git work tree")
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file() and not name.startswith(("fixtures/", "tests/")):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((ROOT / name).read_bytes())
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        tmp_path,
        copy,
    ]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if "No matching distribution" in done.stderr:
        pytest.skip("no package index: the build backend cannot be installed")
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    inside = set(zipfile.ZipFile(wheel).namelist())
    assert modules("autofast") | {f"autofast/{name}" for name in modules("rules")} <= inside
    assert {f"autofast/rules/{p.name}" for p in (ROOT / "rules").glob("*.md")} | {
        "autofast/py.typed"
    } <= inside
    assert not any(
        name.startswith(("tests", "benchmarks", "fixtures", "rules", "scripts")) for name in inside
    )
