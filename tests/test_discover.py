"""Which files of a folder are looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from autofast.commands.discover import looks_like_training, scripts
from autofast.model.notebook import Notebook
from autofast.model.source import BadInput

TRAINING = "import torch\nloss.backward()\n"


def tree(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def found(*paths: Path, root: Path, exclude: tuple[str, ...] = ()) -> list[str]:
    return [p.resolve().relative_to(root).as_posix() for p in scripts(paths, root, exclude)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("loss.backward()", True),
        ("import torch\noptimizer.step()", True),
        ("    from torch import optim\noptimizer.step()", True),
        ("env.step(action)", False),
        ("trainer = Trainer(args)", True),
        ("import torch\nprint(torch.__version__)", False),
        ("import torchlike\nx.step()", False),
    ],
)
def test_looks_like_training(text: str, expected: bool) -> None:
    assert looks_like_training(text.encode()) is expected


def test_folder(tmp_path: Path) -> None:
    tree(
        tmp_path,
        **{
            "train.py": TRAINING,
            "sub/train.py": TRAINING,
            "sub/helper.py": "x = 1",
            "sub/notes.txt": TRAINING,
            ".venv/lib/train.py": TRAINING,
            "venv/train.py": TRAINING,
            "node_modules/train.py": TRAINING,
        },
    )
    assert found(tmp_path, root=tmp_path) == ["train.py", "sub/train.py"]


def test_gitignore_at_every_level(tmp_path: Path) -> None:
    tree(
        tmp_path,
        **{
            ".gitignore": "/old/\n*_scratch.py\n",
            "train.py": TRAINING,
            "old/train.py": TRAINING,
            "my_scratch.py": TRAINING,
            "sub/.gitignore": "!kept_scratch.py\ngenerated.py\n",
            "sub/kept_scratch.py": TRAINING,
            "sub/generated.py": TRAINING,
            "sub/old/train.py": TRAINING,
        },
    )
    assert found(tmp_path, root=tmp_path) == ["train.py", "sub/kept_scratch.py", "sub/old/train.py"]
    assert found(tmp_path / "sub", root=tmp_path) == ["sub/kept_scratch.py", "sub/old/train.py"]


def test_exclude_outdoes_gitignore_but_not_a_name_on_the_command_line(tmp_path: Path) -> None:
    tree(
        tmp_path,
        **{".gitignore": "!third_party/\n", "third_party/train.py": TRAINING, "train.py": TRAINING},
    )
    assert found(tmp_path, root=tmp_path, exclude=("third_party/",)) == ["train.py"]
    assert found(
        tmp_path / "third_party" / "train.py", root=tmp_path, exclude=("third_party/",)
    ) == ["third_party/train.py"]


def test_each_file_once_and_no_endless_links(tmp_path: Path) -> None:
    tree(tmp_path, **{"sub/train.py": TRAINING})
    (tmp_path / "sub" / "up").symlink_to(tmp_path)
    assert found(tmp_path, tmp_path / "sub" / "train.py", root=tmp_path) == ["sub/train.py"]


def test_missing_path(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file or folder"):
        list(scripts([tmp_path / "no.py"], tmp_path))


@pytest.mark.parametrize(
    "cells",
    [
        "3",
        "[3]",
        '[{"cell_type": "code", "source": null}]',
        '[{"cell_type": "code", "source": {}}]',
    ],
)
def test_notebooks_with_cells_that_are_none(cells: str) -> None:
    with pytest.raises(BadInput, match="not a Jupyter notebook"):
        Notebook(Path("a.ipynb"), "a.ipynb", f'{{"nbformat": 4, "cells": {cells}}}'.encode())


def test_notebooks_in_folders(tmp_path: Path) -> None:
    cell = '{"nbformat": 4, "cells": [{"cell_type": "code", "source": ["%s"]}]}'
    tree(
        tmp_path,
        **{
            "train.ipynb": cell % r"import torch\n\", \"optimizer.step()",
            "plots.ipynb": cell % "import matplotlib",
            ".ipynb_checkpoints/train.ipynb": cell % "loss.backward()",
        },
    )
    assert found(tmp_path, root=tmp_path) == ["train.ipynb"]


def test_tests_are_read_where_they_are_named(tmp_path: Path) -> None:
    test = TRAINING + "def test_it():\n    pass\n"
    tree(
        tmp_path,
        **{
            "train.py": TRAINING,
            "train_test.py": TRAINING,  # trains, and tests afterwards
            "test_train.py": test,
            "tests/helper.py": TRAINING,
            "tests/deep/test_more.py": test,
        },
    )
    left: list[Path] = []
    here = [p.name for p in scripts([tmp_path], tmp_path, tests=left)]
    assert here == ["train.py", "train_test.py"]
    assert [p.name for p in left] == ["test_train.py", "helper.py", "test_more.py"]
    assert found(tmp_path / "tests", root=tmp_path) == [
        "tests/helper.py",
        "tests/deep/test_more.py",
    ]
    assert found(tmp_path / "tests" / "deep", root=tmp_path) == ["tests/deep/test_more.py"]
    assert found(tmp_path / "test_train.py", root=tmp_path) == ["test_train.py"]


def test_what_the_system_does_not_show(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot be read \(File name too long\)"):
        list(scripts([tmp_path / f"{'x' * 300}.py"], tmp_path))
