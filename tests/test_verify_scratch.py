"""Copies for the runs: complete, restored between runs, and never a way back to the user's
files.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autofast.model.source import BadInput
from autofast.verify.running import scratch


def project(folder: Path) -> Path:
    top = folder / "project"
    (top / "src").mkdir(parents=True)
    (top / "src" / "train.py").write_text("print(1)\n")
    (top / "data.bin").write_bytes(b"x" * 100)
    (top / "empty").mkdir()
    (top / ".git").mkdir()
    (top / ".git" / "HEAD").write_text("ref")
    (top / "env").mkdir()
    (top / "env" / "pyvenv.cfg").write_text("")
    (folder / "data").mkdir()
    (folder / "data" / "images").write_text("beside")
    return top


def listing(folder: Path) -> dict[str, str | None]:
    return {
        str(p.relative_to(folder)): p.read_text() if p.is_file() else None
        for p in sorted(folder.rglob("*"))
    }


@pytest.fixture
def top(tmp_path: Path) -> Path:
    return project(tmp_path)


def test_a_copy_has_everything_but_repositories_and_environments(top: Path, tmp_path: Path):
    made = scratch.make([top, top / "src"], parent=tmp_path)
    made.reset({})
    copy = made.there(top)
    assert sorted(p.name for p in copy.iterdir()) == ["data.bin", "empty", "src"]
    assert made.there(top / "src" / "train.py").read_text() == "print(1)\n"
    assert (copy / ".." / "data" / "images").read_text() == "beside"  # as the scripts spell it
    assert len(str(made.temporary)) < 70
    made.close()
    assert not made.folder.exists() and not made.temporary.exists()


def test_what_a_run_did_is_undone(top: Path, tmp_path: Path):
    made = scratch.make([top], parent=tmp_path)
    made.reset({})
    copy = made.there(top)
    before, users = listing(copy), listing(top)
    (copy / "last.pt").write_text("checkpoint")
    (copy / "runs" / "one").mkdir(parents=True)
    (copy / "data.bin").write_text("overwritten")
    (copy / "src" / "train.py").unlink()
    made.reset({})
    assert listing(copy) == before
    assert listing(top) == users


def test_new_texts_stand_over_the_copy_for_one_run(top: Path, tmp_path: Path):
    made = scratch.make([top], parent=tmp_path)
    script = top / "src" / "train.py"
    made.reset({script: b"print(2)\n", top / "new.py": b""})
    assert made.there(script).read_bytes() == b"print(2)\n"
    made.reset({})
    assert made.there(script).read_bytes() == b"print(1)\n" == script.read_bytes()
    assert not made.there(top / "new.py").exists()


def test_what_is_linked_is_not_copied_and_not_removed(top: Path, tmp_path: Path):
    (top / "big").mkdir()
    (top / "big" / "tokens").write_text("many")
    made = scratch.make([top], links=(top / "big", top / "data.bin"), parent=tmp_path)
    for _ in range(2):
        made.reset({})
        assert made.there(top / "big").is_symlink() and made.there(top / "data.bin").is_symlink()
        assert (made.there(top / "big") / "tokens").read_text() == "many"
    made.close()
    assert (top / "big" / "tokens").read_text() == "many"


def test_an_overlay_never_follows_a_link_to_the_users_file(top: Path, tmp_path: Path):
    script = top / "src" / "train.py"
    made = scratch.make([top], links=(script,), parent=tmp_path)
    made.reset({script: b"print(2)\n"})
    assert script.read_text() == "print(1)\n"
    assert made.there(script).read_text() == "print(2)\n"
    with pytest.raises(BadInput, match="outside of the folders"):
        made.reset({tmp_path / "elsewhere.py": b""})


def test_links_of_the_users_lead_to_the_copy_or_to_the_same_file(top: Path, tmp_path: Path):
    (top / "inside").symlink_to("src/train.py")
    (top / "outside").symlink_to(tmp_path / "data" / "images")
    (top / "broken").symlink_to("nowhere")
    made = scratch.make([top], parent=tmp_path)
    made.reset({})
    copy = made.there(top)
    assert (copy / "inside").resolve() == (copy / "src" / "train.py").resolve()
    assert (copy / "outside").read_text() == "beside"
    assert os.readlink(copy / "broken") == "nowhere"


def test_too_much_to_copy_is_one_line_with_what_to_do(
    top: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(scratch, "SIZE_LIMIT", 60)
    with pytest.raises(BadInput, match=r"--link .*data\.bin"):
        scratch.make([top], parent=tmp_path)
    made = scratch.make([top], links=(top / "data.bin",), parent=tmp_path)
    made.close()
    with pytest.raises(BadInput, match="does not exist"):
        scratch.make([top], links=(top / "nothing",), parent=tmp_path)


def test_folders_apart_are_both_copied(top: Path, tmp_path: Path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "config").write_text("here")
    made = scratch.make([top, other, top / "src"], parent=tmp_path)
    made.reset({})
    assert len(made.trees) == 2
    assert made.there(other / "config").read_text() == "here"


def test_what_has_too_many_files_is_named_though_something_else_is_larger(
    top: Path, monkeypatch: pytest.MonkeyPatch
):
    (top / "many").mkdir()
    for number in range(12):
        (top / "many" / str(number)).touch()
    monkeypatch.setattr(scratch, "FILE_LIMIT", 10)
    with pytest.raises(BadInput, match=r"--link .*many"):
        scratch.make([top])
