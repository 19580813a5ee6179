"""The files with settings (JSON, YAML, TOML) of a project, without those of other tools."""

from __future__ import annotations

from pathlib import Path

from autofast.model import disk
from autofast.model.several import wordset

FOLDERS = (".", "conf*", "conf*/*", "cfg*", "options", "experiments", "hparams", "params")
LARGEST = 50_000  # bytes: settings, no data
YAML, JSON, TOML = (".yaml", ".yml"), (".json", ".json5", ".jsonc"), (".toml",)
SUFFIXES = (*YAML, *JSON, *TOML)
OTHERS = wordset(
    "package.json package-lock.json tsconfig.json pyproject.toml environment.yml environment.yaml docker-compose.yml "
    "docker-compose.yaml mkdocs.yml setup.json poetry.toml readthedocs.yml codecov.yml cog.yaml meta.yaml Pipfile.toml"
)


def candidates(folder: Path, kinds: tuple[str, ...] = SUFFIXES) -> list[Path]:
    """The files with settings in a folder and the usual ones below it."""
    paths = {p for f in FOLDERS for kind in kinds for p in disk.matching(folder, f"{f}/*{kind}")}
    return sorted(p for p in paths if p.name not in OTHERS and not p.name.startswith("."))


def text_of(path: Path) -> str | None:
    """The text of such a file; None where it is too large or cannot be read."""
    try:
        return disk.text(path, "utf-8-sig", "strict") if disk.is_small(path, LARGEST) else None
    except (OSError, ValueError):
        return None
