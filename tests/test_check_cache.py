"""``check`` keeps what it found out: as long as nothing that it asked of the disk has another
answer, no script is read again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from autofast.commands import checking, planning
from autofast.commands.cache import Cache, folder
from autofast.commands.checking import Checked, Request, check
from autofast.config import Config
from autofast.model import disk
from autofast.rule import Effect

TRAIN = """
import torch
from helpers import make

model = torch.nn.Linear(4, 1).cuda()
optimizer = make(model)
for x in torch.utils.data.DataLoader(torch.randn(64, 4), batch_size=8):
    optimizer.zero_grad()
    loss = model(x.cuda()).mean()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""
HELPERS = """
import torch


def make(model):
    return torch.optim.Adam(model.parameters())
"""


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for the cache, which is on."""
    monkeypatch.delenv("AUTOFAST_NO_CACHE")
    monkeypatch.setenv("AUTOFAST_CACHE_DIR", str(tmp_path / "kept"))
    return tmp_path / "kept"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / "train.py").write_text(TRAIN, encoding="utf-8")
    (root / "helpers.py").write_text(HELPERS, encoding="utf-8")
    return root


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The scripts that are read."""
    found: list[Path] = []
    real = planning.read

    def read(entry: Path, *args: object) -> object:
        found.append(entry)
        return real(entry, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(planning, "read", read)
    return found


def look(root: Path, config: Config | None = None, cache: bool = True) -> Checked:
    return check(Request([root / "train.py"], root, config or Config(), imported=True, cache=cache))


def test_what_is_unchanged_is_not_read_again(
    kept: Path, project: Path, reads: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = look(project)
    assert first.found and first.files == ["helpers.py", "train.py"]
    parsed: list[object] = []
    monkeypatch.setattr("autofast.model.source._parse", lambda *a: parsed.append(a))
    second = look(project)
    assert second == first and len(reads) == 1 and not parsed
    assert [r.gain for r in second.records] == [r.gain for r in first.records]
    assert [r.code for r in second.records] == [r.code for r in first.records]


CHANGES: dict[str, Callable[[Path], object]] = {
    "an import": lambda root: (root / "helpers.py").write_text(HELPERS + "X = 1\n"),
    "the script": lambda root: (root / "train.py").write_text(TRAIN + "X = 1\n"),
    "requirements": lambda root: (root / "requirements.txt").write_text("torch==1.9\n"),
    "a module that comes first": lambda root: (
        (root / "helpers").mkdir(),
        (root / "helpers/__init__.py").write_text(HELPERS),
    ),
    "an import that goes": lambda root: (root / "helpers.py").unlink(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_is_seen(
    kept: Path, project: Path, reads: list[Path], change: Callable[[Path], object]
) -> None:
    look(project)
    change(project)
    seen = look(project)
    assert len(reads) == 2
    assert seen == look(project, cache=False)


def test_who_imports_the_script_is_asked_for(project: Path) -> None:
    """Another script that uses a function is why it keeps its parameters; it is read only where
    that is asked.
    """
    with disk.noting() as asked:
        script = planning.read(project / "train.py", project)
        planning.plan(script, Config())
    assert {kind for kind, *_ in asked} >= {"read", "file", "matching"}
    assert all(disk.answer(question) == said for question, said in asked.items())


def test_other_options_are_another_question(kept: Path, project: Path, reads: list[Path]) -> None:
    look(project)
    look(project, Config(effect=Effect.EXACT))
    assert len(reads) == 2


def test_another_version_reads_again(
    kept: Path, project: Path, reads: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    look(project)
    monkeypatch.setattr("autofast.commands.cache.__version__", "another")
    look(project)
    assert len(reads) == 2


@pytest.mark.parametrize("rubbish", [b"", b"{", b"[]", b'{"asked": []}', b"\xff\xfe", b"null"])
def test_what_is_no_entry_is_none(
    kept: Path, project: Path, reads: list[Path], rubbish: bytes
) -> None:
    first = look(project)
    for path in kept.glob("*.json"):
        path.write_bytes(rubbish)
    assert look(project) == first and len(reads) == 2
    assert look(project) == first and len(reads) == 2  # written again


def test_an_entry_of_other_data_is_none(kept: Path, project: Path, reads: list[Path]) -> None:
    look(project)
    (path,) = kept.glob("*.json")
    known = json.loads(path.read_bytes())
    del known["outcome"]["records"][0]["line"]
    path.write_text(json.dumps(known))
    look(project)
    assert len(reads) == 2


def test_a_folder_that_takes_nothing(
    tmp_path: Path, project: Path, reads: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AUTOFAST_NO_CACHE")
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("AUTOFAST_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert look(project) == look(project) and len(reads) == 2


def test_on_request_nothing_is_kept(
    kept: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look(project, cache=False)
    assert not kept.exists()
    monkeypatch.setenv("AUTOFAST_NO_CACHE", "1")
    assert folder() is None


def test_what_rules_of_others_find_is_not_kept(
    kept: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their code may depend on anything."""
    monkeypatch.setattr("autofast.registry.has_other_rules", lambda: True)
    look(project)
    assert not list(kept.glob("*.json"))


def test_standard_input_is_read(kept: Path, project: Path, reads: list[Path]) -> None:
    entry = project / "train.py"
    for text in (TRAIN, TRAIN.replace("print", "str")):
        check(Request([], project, Config(), {entry: text.encode()}))
    assert len(reads) == 2 and not list(kept.glob("*.json"))


def test_many_at_once(kept: Path, project: Path) -> None:
    """Every reader finds a whole entry, or none."""
    first = look(project)
    cache = Cache(project, Config(), kept)
    entry = project / "train.py"
    outcome = cache.find(entry)
    assert outcome is not None

    def turn(_: int) -> bool:
        mine = Cache(project, Config(), kept)
        mine.keep(entry, {}, outcome)
        return mine.find(entry) == outcome

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(turn, range(80)))
    assert look(project) == first and not list(kept.glob("*.part"))


def test_a_failure_is_not_kept(kept: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "train.py").write_text("import torch\nloss.backward(\n")
    assert look(project).errors and not list(kept.glob("*.json"))


def test_unused_ignores_of_known_outcomes(kept: Path, project: Path, reads: list[Path]) -> None:
    text = TRAIN.replace("import torch\n", "import torch  # autofast: ignore[tf32]\n", 1)
    (project / "train.py").write_text(text, encoding="utf-8")
    first = look(project)
    assert [w for w in first.warnings if "unused `# autofast: ignore[tf32]`" in w]
    assert look(project).warnings == first.warnings and len(reads) == 1


def test_all_questions_go_through_one_place() -> None:
    """What is asked of the disk by other means would not be noted, and its change not be seen."""
    direct = (".read_bytes(", ".read_text(", ".is_file(", ".glob(", ".rglob(", ".iterdir(")
    direct += ("os.walk(", "os.listdir(", "os.scandir(", " open(")
    top = Path(checking.__file__).parents[1]
    parts = ("read", "flow", "facts", "edit", "write", "techniques", "model")
    files = [*(p for part in parts for p in (top / part).rglob("*.py"))]
    files += (top.parent / "rules").glob("*.py")
    assert [
        f"{path.name}: {line.strip()}"
        for path in files
        if path.name != "disk.py"
        for line in path.read_text(encoding="utf-8").splitlines()
        if any(way in line for way in direct) and "disk." not in line and '"' not in line
    ] == []
