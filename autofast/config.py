"""What the user asked for: ``[tool.autofast]`` in the project's pyproject.toml, under the options of the command line."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from autofast.model.source import BadInput
from autofast.rule import Effect

EFFECTS = tuple(effect.name.lower() for effect in Effect)
PRECISIONS = ("auto", "bf16", "fp16")
TARGETS = ("cuda", "cpu")


@dataclass(frozen=True)
class Config:
    """Everything that decides what a rewrite may do. Empty ``select``: the rules that are on by default.

    ``min_gain`` is in per cent of the training's time; ``exhaustive`` is 0 of them.
    ``line_length`` is what touched lines are formatted to; None where the project has no limit of its own.
    """

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    effect: Effect = Effect.SAMPLING
    precision: str = "auto"
    target: str = "cuda"
    line_length: int | None = None
    exclude: tuple[str, ...] = ()
    compile: bool = False
    accumulate: int = 0
    keep_batch: bool = False
    ddp: bool = False
    sync_batchnorm: bool = False
    min_gain: float = 1.0
    exhaustive: bool = False

    @property
    def least_gain(self) -> float:
        """The share of a training that a fix must be expected to save."""
        return 0.0 if self.exhaustive else self.min_gain / 100

    @property
    def given(self) -> tuple[str, ...]:
        """The options that ask for rules which are off by default (:attr:`autofast.rule.Rule.option`)."""
        asked = {"--compile": self.compile, "--accumulate": self.accumulate > 0, "--ddp": self.ddp}
        return tuple(option for option, wanted in asked.items() if wanted)


PROJECT_FILES = ("pyproject.toml", "setup.py", "setup.cfg")


def find_root(path: Path) -> Path:
    """The git work tree around ``path`` (no git is run: a ``.git`` of any kind marks the root), else the nearest folder that packaging takes
    for a project, as in a downloaded archive; else its own folder."""
    folder = path.resolve() if path.is_dir() else path.resolve().parent
    around = (folder, *folder.parents)
    found = next((f for f in around if (f / ".git").exists()), None)
    return found or next(
        (f for f in around if any((f / name).is_file() for name in PROJECT_FILES)), folder
    )


def load(root: Path) -> Config:
    """The configuration of the project at ``root``; raises :class:`BadInput` for what it cannot mean."""
    path = root / "pyproject.toml"
    tools = _read(path).get("tool", {}) if path.is_file() else {}
    if not isinstance(tools, dict):
        raise BadInput(f"{path}: [tool] is no table; mend it")
    table = tools.get("autofast", {})
    if not isinstance(table, dict):
        raise BadInput(f"{path}: [tool.autofast] is no table; mend it")
    values: dict[str, Any] = {"line_length": _line_length(tools)}
    for key, value in table.items():
        if key not in _KEYS:
            close = difflib.get_close_matches(key, _KEYS, n=1)
            hint = f"did you mean {close[0]}?" if close else f"known keys are {', '.join(_KEYS)}"
            raise BadInput(f"{path}: unknown key '{key}' in [tool.autofast]; {hint}")
        expected, convert = _KEYS[key]
        try:
            values[key.replace("-", "_")] = convert(value)
        except (TypeError, ValueError):
            raise BadInput(
                f"{path}: '{key}' in [tool.autofast] is {value!r}; write {expected}"
            ) from None
    return Config(**values)


def _read(path: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        content: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        return content
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: not valid TOML ({error}); mend it") from None
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from None


def _line_length(tools: dict[str, Any]) -> int | None:
    """The user's own line length, as another formatter of the project has it."""
    for tool in ("black", "ruff"):
        table = tools.get(tool)
        length = table.get("line-length") if isinstance(table, dict) else None
        if isinstance(length, int) and length > 0:
            return length
    return None


def _names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise TypeError
    return tuple(value)


def _choice(choices: tuple[str, ...]) -> Callable[[object], str]:
    def convert(value: object) -> str:
        if value not in choices:
            raise ValueError
        return str(value)

    return convert


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError
    return value


def _percent(value: object) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= 100:
        raise ValueError
    return float(value)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _words(choices: tuple[str, ...]) -> str:
    return "one of " + ", ".join(f'"{c}"' for c in choices)


_LIST = 'a list of strings, as in ["tf32"]'
_KEYS: dict[str, tuple[str, Callable[[object], object]]] = {
    "select": (_LIST, _names),
    "ignore": (_LIST, _names),
    "effect": (_words(EFFECTS), lambda value: Effect[_choice(EFFECTS)(value).upper()]),
    "precision": (_words(PRECISIONS), _choice(PRECISIONS)),
    "target": (_words(TARGETS), _choice(TARGETS)),
    "line-length": ("a whole number of columns", _number),
    "compile": ("true or false", _flag),
    "accumulate": ("a whole number of micro-batches", _number),
    "keep-batch": ("true or false", _flag),
    "ddp": ("true or false", _flag),
    "sync-batchnorm": ("true or false", _flag),
    "min-gain": ("a number of per cent", _percent),
    "exhaustive": ("true or false", _flag),
    "exclude": ('a list of patterns as in .gitignore, as in ["third_party/"]', _names),
}
assert {key.replace("-", "_") for key in _KEYS} == {f.name for f in fields(Config)}
