"""What is installed: every package, every card, and no more than it takes to rewrite."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from autofast import DISTRIBUTION, __version__
from tests.test_cli import SCRIPT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
TEMPLATES = ROOT / "autofast" / "report" / "templates"


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
    docs = [p for p in (ROOT / "docs").glob("*.md") if p.name != "releasing.md"]  # with other tools
    pages = [ROOT / "README.md", *docs, *(ROOT / "autofast").rglob("*.py")]
    told = "".join(page.read_text("utf-8") for page in pages)
    hints = re.findall(r"pip install '?([\w{}-]+)", told)
    assert hints and set(hints) <= {DISTRIBUTION, "{DISTRIBUTION}"}, hints


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of this work tree: building leaves its traces."""
    copy = tmp_path / "autofast"
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
    return copy


def run(*command: object, cwd: Path) -> str:
    done = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True)
    said = done.stdout + done.stderr
    if any(word in said for word in ("No matching distribution", "Could not find a version")):
        pytest.skip("no package index: what building or installing needs cannot be had")
    assert done.returncode == 0, said
    return done.stdout


@pytest.mark.slow
def test_built_and_installed(tmp_path: Path, tree: Path) -> None:
    """What docs/releasing.md says: an sdist, a wheel made of it, installed into a new environment,
    and used there.
    """
    pytest.importorskip("build", reason="needs the package build")
    dist = tmp_path / "dist"
    run(sys.executable, "-m", "build", "--outdir", dist, tree, cwd=tmp_path)
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    stem = f"{DISTRIBUTION.replace('-', '_')}-{__version__}"
    assert sdist.name == f"{stem}.tar.gz" and wheel.name.startswith(f"{stem}-py3")
    inside = set(zipfile.ZipFile(wheel).namelist())
    assert modules("autofast") | {f"autofast/{name}" for name in modules("rules")} <= inside
    data = {f"autofast/rules/{p.name}" for p in (ROOT / "rules").glob("*.md")}
    templates = {f"autofast/report/templates/{p.name}" for p in TEMPLATES.iterdir()}
    assert data | templates | {"autofast/py.typed"} <= inside
    tops = ("tests", "benchmarks", "fixtures", "rules", "scripts")
    assert not any(name.startswith(tops) for name in inside)

    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    folder = tmp_path / "venv" / ("Scripts" if sys.platform == "win32" else "bin")
    run(folder / "python", "-m", "pip", "install", "-q", f"{wheel}[report]", cwd=tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    autofast = folder / "autofast"
    assert run(autofast, "--version", cwd=tmp_path) == f"autofast {__version__}\n"
    command = ["rewrite", "train.py", "-o", "-", "--root", ".", "--report", "page.html"]
    assert "fused=" in run(autofast, *command, cwd=tmp_path)
    assert (tmp_path / "page.html").stat().st_size > 10_000
    assert run(autofast, "rule", "tf32", cwd=tmp_path).startswith("# tf32\n")


def test_the_version_stands_in_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "autofast.__version__"}
    said = [
        p for p in (ROOT / "autofast").rglob("*.py") if f'"{__version__}"' in p.read_text("utf-8")
    ]
    assert said == [ROOT / "autofast" / "__init__.py"]
    log = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert re.search(rf"^## (Unreleased|\[?{re.escape(__version__)}\b)", log, re.MULTILINE)


def test_no_named_tuple_has_another_base() -> None:
    """Python 3.10 refuses such a class when its module is imported, and with it every command."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for top in ("autofast", "rules")
        for path in (ROOT / top).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
        and len(node.bases) > 1
        and any(ast.unparse(base).endswith("NamedTuple") for base in node.bases)
    ]
    assert not found
