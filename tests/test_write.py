"""Writing: everything or nothing, permissions kept, one clear line for what is refused."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from autofast.commands.files import Output, write_all
from autofast.model.source import BadInput


def refused(outputs: list[Output], **how: bool) -> str:
    with pytest.raises(BadInput) as error:
        write_all(outputs, **how)
    assert "\n" not in str(error.value)
    return str(error.value)


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_new_file_has_the_permissions_of_its_model(tmp_path: Path) -> None:
    model = tmp_path / "train.py"
    model.write_text("old")
    model.chmod(0o750)
    write_all([Output(tmp_path / "fast.py", b"new", like=model)])
    assert stat.S_IMODE((tmp_path / "fast.py").stat().st_mode) == 0o750


def test_new_file_without_a_model_follows_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_all([Output(tmp_path / "a.patch", b"new")])
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.patch").stat().st_mode) == 0o640


def test_edited_file_keeps_its_permissions_and_its_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real.py", tmp_path / "link.py"
    real.write_bytes(b"old")
    real.chmod(0o755)
    link.symlink_to(real)
    write_all([Output(link, b"new", was=b"old")])
    assert link.is_symlink() and real.read_bytes() == b"new"
    assert stat.S_IMODE(real.stat().st_mode) == 0o755
    assert names(tmp_path) == ["link.py", "real.py"]


def test_existing_file_needs_force(tmp_path: Path) -> None:
    target = tmp_path / "fast.py"
    target.write_bytes(b"precious")
    assert "--force" in refused([Output(target, b"new")])
    assert target.read_bytes() == b"precious"
    write_all([Output(target, b"new")], force=True)
    assert target.read_bytes() == b"new"


def test_read_only_target_is_left_alone_even_with_force(tmp_path: Path) -> None:
    target = tmp_path / "fast.py"
    target.write_bytes(b"precious")
    target.chmod(0o444)
    assert "read-only" in refused([Output(target, b"new")], force=True)
    assert target.read_bytes() == b"precious"


def test_folder_device_and_missing_parent(tmp_path: Path) -> None:
    assert "is a directory" in refused([Output(tmp_path, b"")], force=True)
    assert "not a regular file" in refused([Output(Path(os.devnull), b"")], force=True)
    assert "no folder" in refused([Output(tmp_path / "no" / "fast.py", b"")])
    write_all([Output(tmp_path / "no" / "fast.py", b"new")], parents=True)
    assert (tmp_path / "no" / "fast.py").read_bytes() == b"new"


def test_a_file_where_a_folder_is_needed(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert "cannot be made" in refused(
        [Output(tmp_path / "file" / "sub" / "fast.py", b"")], parents=True
    )


def test_file_changed_since_it_was_read(tmp_path: Path) -> None:
    target = tmp_path / "train.py"
    target.write_bytes(b"edited meanwhile")
    assert "run the command again" in refused([Output(target, b"new", was=b"old")])
    assert target.read_bytes() == b"edited meanwhile"


def test_nothing_is_written_when_one_of_several_is_refused(tmp_path: Path) -> None:
    first, second = tmp_path / "a.py", tmp_path / "b.py"
    first.write_bytes(b"old")
    second.write_bytes(b"precious")
    refused([Output(first, b"new", was=b"old"), Output(second, b"new")])
    assert first.read_bytes() == b"old" and names(tmp_path) == ["a.py", "b.py"]


def test_everything_is_put_back_when_the_last_rename_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = (tmp_path / name for name in ("a.py", "b.py", "c.py"))
    first.write_bytes(b"old")
    replace = os.replace

    def failing(source: Path, target: Path) -> None:
        if Path(target) == third and str(source).endswith(".autofast"):
            raise OSError(28, "No space left on device", str(target))
        replace(source, target)

    monkeypatch.setattr(os, "replace", failing)
    message = refused(
        [Output(first, b"new", was=b"old"), Output(second, b"new"), Output(third, b"new")]
    )
    assert "No space left on device" in message and "nothing was changed" in message
    assert first.read_bytes() == b"old" and names(tmp_path) == ["a.py"]
