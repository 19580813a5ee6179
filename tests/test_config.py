"""``[tool.autofast]``, and where a project begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from autofast.config import Config, find_root, load
from autofast.model.source import BadInput
from autofast.rule import Effect


def project(folder: Path, text: str) -> Path:
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    return folder


def test_without_a_file_or_a_table(tmp_path: Path) -> None:
    assert load(tmp_path) == Config()
    assert load(project(tmp_path, '[project]\nname = "x"\n')) == Config()


def test_every_key(tmp_path: Path) -> None:
    text = """
        [tool.autofast]
        select = ["loader"]
        ignore = ["tf32"]
        effect = "exact"
        precision = "bf16"
        target = "cpu"
        line-length = 100
        exclude = ["third_party/"]
        compile = true
    """
    assert load(project(tmp_path, text)) == Config(
        select=("loader",),
        ignore=("tf32",),
        effect=Effect.EXACT,
        precision="bf16",
        target="cpu",
        line_length=100,
        exclude=("third_party/",),
        compile=True,
    )


@pytest.mark.parametrize(
    ("name", "text", "length"),
    [
        (
            ".pre-commit-config.yaml",
            "  hooks:\n    - id: black\n      language_version: python3\n",
            88,
        ),
        (".pre-commit-config.yaml", '    - id: black\n      args: [--line-length, "99"]\n', 99),
        (".pre-commit-config.yaml", '    - id: nbqa-black\n      args: ["--line-length=79"]\n', 79),
        (".pre-commit-config.yaml", "    - id: ruff\n    - id: mdformat-black\n", None),
        ("Makefile", "black: a.ipynb\n\tblack --line-length 79 a.py\n", 79),
        ("tox.ini", "commands = python -m black -l 100 .\n", 100),
        ("format_code.sh", "isort . --profile black\nnbqa black . --nbqa-mutate\n", 88),
        (".github/workflows/ci.yml", "  - run: pip install black flake8\n", None),
        (".github/workflows/ci.yml", "  - run: ruff format --check .\n", 88),
        ("pyproject.toml", "[tool.black]\ntarget-version = ['py310']\n", 88),
        ("pyproject.toml", "[tool.yapf]\ncolumn_limit = 120\n", 120),
    ],
)
def test_line_length_that_a_formatter_is_called_with(
    tmp_path: Path, name: str, text: str, length: int | None
) -> None:
    root = project(tmp_path, "")
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)
    assert load(root).line_length == length


@pytest.mark.parametrize("tool", ["black", "ruff"])
def test_line_length_of_the_projects_formatter(tmp_path: Path, tool: str) -> None:
    assert load(project(tmp_path, f"[tool.{tool}]\nline-length = 120\n")).line_length == 120
    assert (
        load(
            project(
                tmp_path, f"[tool.{tool}]\nline-length = 120\n[tool.autofast]\nline-length = 79\n"
            )
        ).line_length
        == 79
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tool.autofast]\nefect = 'exact'\n", "did you mean effect?"),
        ("[tool.autofast]\nzzz = 1\n", "known keys are"),
        ("[tool.autofast]\neffect = 'none'\n", 'write one of "exact"'),
        ("[tool.autofast]\neffect = 1\n", 'write one of "exact"'),
        ("[tool.autofast]\nselect = 'tf32'\n", "write a list of strings"),
        ("[tool.autofast]\nline-length = true\n", "write a whole number"),
        ("[tool.autofast]\ncompile = 'yes'\n", "write true or false"),
        ("tool = 1\n", "[tool] is no table"),
        ("[tool]\nautofast = 1\n", "[tool.autofast] is no table"),
        ("[tool.autofast\n", "not valid TOML"),
    ],
)
def test_what_it_cannot_mean(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadInput) as error:
        load(project(tmp_path, text))
    assert (
        said in str(error.value)
        and "pyproject.toml" in str(error.value)
        and "\n" not in str(error.value)
    )


def test_a_byte_order_mark_is_none_of_its_text(tmp_path: Path) -> None:
    assert (
        load(project(tmp_path, "\ufeff[tool.autofast]\neffect = 'exact'\n")).effect is Effect.EXACT
    )


def test_root_is_the_work_tree_else_the_folder(tmp_path: Path) -> None:
    script = tmp_path / "a" / "b" / "train.py"
    script.parent.mkdir(parents=True)
    script.write_text("")
    assert find_root(script) == script.parent
    (tmp_path / "a" / "setup.py").write_text("")  # as in a downloaded archive
    assert find_root(script) == find_root(script.parent) == tmp_path / "a"
    (tmp_path / ".git").write_text("gitdir: elsewhere")  # as in a linked work tree or a submodule
    assert find_root(script) == find_root(script.parent) == tmp_path
