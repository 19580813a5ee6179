"""What the user asked for: ``[tool.autofast]`` in the project's pyproject.toml, under the options
of the command line.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeAlias

from autofast.model.disk import resolved_path
from autofast.model.several import all_of
from autofast.model.source import BadInput
from autofast.nearest import hint
from autofast.rule import Effect

Names: TypeAlias = tuple[str, ...]  # of rules and groups, patterns of files
AUTO = -1  # `--workers auto`
EFFECTS = tuple(effect.name.lower() for effect in Effect)
PRECISIONS = ("auto", "bf16", "fp16", "either")
TARGETS = ("cuda", "cpu")


@dataclass(frozen=True)
class Config:
    """Everything that decides what a rewrite may do. Empty ``select``: the rules that are on by
    default; ``extend_select`` are taken beside them.

    ``min_gain`` is in per cent of the training's time; ``exhaustive`` is 0 of them.
    ``per_file_ignores`` are patterns as in .gitignore, each with the rules and groups that it keeps
    away. ``facts`` is a file of ``autofast verify --facts``, which is used where it speaks of the
    text that is rewritten. ``torch`` is the version that the script will run with; where it is
    empty, the project and the code say what they can. ``line_length`` is what touched lines are
    formatted to; None where the project has no limit of its own.
    """

    select: Names = ()
    extend_select: Names = ()
    ignore: Names = ()
    effect: Effect = Effect.SAMPLING
    precision: str = "auto"
    target: str = "cuda"
    torch: str = ""
    line_length: int | None = None
    exclude: Names = ()
    force_exclude: bool = False
    per_file_ignores: tuple[tuple[str, Names], ...] = ()
    compile: bool = False
    workers: int = 0  # AUTO: as many as there are cores
    accumulate: int = 0
    keep_batch: bool = False
    ddp: bool = False
    sync_batchnorm: bool = False
    min_gain: float = 1.0
    exhaustive: bool = False
    facts: Path | None = None

    @property
    def least_gain(self) -> float:
        """The share of a training that a fix must be expected to save."""
        return 0.0 if self.exhaustive else self.min_gain / 100

    @property
    def named(self) -> frozenset[str]:
        """The rules and groups that are asked for by name."""
        return frozenset((*self.select, *self.extend_select))

    @property
    def given(self) -> Names:
        """The options that ask for rules which are off by default
        (:attr:`autofast.rule.Rule.option`).
        """
        asked = {"--compile": self.compile, "--accumulate": self.accumulate > 0, "--ddp": self.ddp}
        return tuple(option for option, wanted in asked.items() if wanted)


PROJECT_FILES = ("pyproject.toml", "setup.py", "setup.cfg")


def find_root(path: Path) -> Path:
    """The git work tree around ``path`` (no git is run: a ``.git`` of any kind marks the root),
    else the nearest folder that packaging takes for a project, as in a downloaded archive; else its
    own folder."""
    place = resolved_path(path)  # which a link that leads to itself does not end
    folder = place if os.path.isdir(path) else place.parent
    around = (folder, *folder.parents)
    found = next((f for f in around if os.path.exists(f / ".git")), None)
    return found or next(
        (f for f in around if any(os.path.isfile(f / name) for name in PROJECT_FILES)), folder
    )


COMMANDS = (
    "check",
    "rewrite",
    "tune",
    "verify",
)  # [tool.autofast.check]: options of that command alone


@dataclass(frozen=True)
class Settings:
    """``[tool.autofast]`` as it stands in the project's file.

    Attributes:
        path: the file, whether it exists or not.
        values: of :class:`Config`, by name of field.
        lines: key -> line.
        commands: options of single commands; their keys in ``lines`` are ``check.quiet``.
    """

    path: Path
    values: Mapping[str, Any] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)
    commands: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def place(self, key: str) -> str:
        """``/home/me/project/pyproject.toml:12``."""
        return f"{self.path}:{self.lines[key]}" if key in self.lines else str(self.path)


def load(root: Path) -> Config:
    """The configuration of the project at ``root``; raises :class:`BadInput` for what it cannot
    mean.
    """
    return Config(**settings(root).values)


def settings(root: Path) -> Settings:
    """What the project at ``root`` says, and where; raises :class:`BadInput` for what it cannot
    mean.
    """
    path = root / "pyproject.toml"
    text = _text(path) if os.path.isfile(path) else ""
    tools = _parsed(path, text).get("tool", {})
    if not isinstance(tools, dict):
        raise BadInput(f"{path}: [tool] is no table; mend it")
    table = tools.get("autofast", {})
    if not isinstance(table, dict):
        raise BadInput(f"{path}: [tool.autofast] is no table; mend it")
    found = Settings(path, lines=dict(_lines(text)))
    values: dict[str, Any] = {"line_length": _line_length(root, tools)}
    commands: dict[str, Mapping[str, Any]] = {}
    for key, value in table.items():
        where = found.place(key)
        if key in COMMANDS:
            if not isinstance(value, dict):
                raise BadInput(f"{where}: '{key}' in [tool.autofast] is {value!r}; write a table")
            commands[key] = value
            continue
        if key not in _KEYS:
            known = (*_KEYS, *COMMANDS)
            told = hint(key, known, f"known keys are {', '.join(known)}")
            raise BadInput(f"{where}: unknown key '{key}' in [tool.autofast]; {told}")
        expected, convert = _KEYS[key]
        try:
            values[key.replace("-", "_")] = convert(value)
        except (TypeError, ValueError):
            raise BadInput(
                f"{where}: '{key}' in [tool.autofast] is {value!r}; write {expected}"
            ) from None
        _check_names(key, values[key.replace("-", "_")], where)
    if "facts" in values:
        values["facts"] = root / values["facts"]
    return Settings(path, values, found.lines, commands)


def _check_names(key: str, value: Any, where: str) -> None:
    """Raises :class:`BadInput` for names of no rule."""
    names = value if key in ("select", "extend-select", "ignore") else ()
    if key == "per-file-ignores":
        names = [name for _, of_pattern in value for name in of_pattern]
    if names:
        from autofast.registry import check_names

        check_names(names, f"{where}: ")


_HEADER = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(?:#.*)?$")
_KEY = re.compile(r"""\s*["']?([\w-]+)["']?\s*=""")


def _lines(text: str) -> Iterator[tuple[str, int]]:
    """Where the keys of ``[tool.autofast]`` stand, as far as they are written one a line
    (``tomllib`` does not say).
    """
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = re.sub(r"[\s\"']", "", header[1])
            if table.startswith("tool.autofast."):
                yield table.split(".")[2], number
        elif key := _KEY.match(line):
            if table == "tool.autofast":
                yield key[1], number
            elif table.startswith("tool.autofast."):
                yield f"{table.split('.')[2]}.{key[1]}", number


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")  # as some editors on Windows write it
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not valid TOML ({error}); mend it") from None
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from None


def _parsed(path: Path, text: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        content: dict[str, Any] = tomllib.loads(text)
        return content
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path}: not valid TOML ({error}); mend it") from None


_FORMATTED_BY = """.pre-commit-config.yaml Makefile tox.ini noxfile.py *.sh .github/workflows/*.yml
    .github/workflows/*.yaml""".split()
_FORMATS = re.compile(
    r"^(?!\s*#|.*\binstall\b).*(?:\bid:\s*(?:nbqa-)?(?:black|ruff-format)\b|psf/black@"
    r"|(?<![\w.-])(?:black\s+[-.$*/\w]|ruff\s+format\b))",
    re.MULTILINE,
)
_LENGTH = re.compile(r"(?:--line-length|\bblack\b.*\s-l)[\s=\"',]*(\d+)")
_OF_BLACK = 88


def _line_length(root: Path, tools: dict[str, Any]) -> int | None:
    """The user's own line length, as another formatter of the project has it, or is called with."""
    for tool, key in (("black", "line-length"), ("ruff", "line-length"), ("yapf", "column_limit")):
        table = tools.get(tool)
        length = table.get(key) if isinstance(table, dict) else None
        if isinstance(length, int) and length > 0:
            return length
    paths = (path for kind in _FORMATTED_BY for path in sorted(root.glob(kind)) if path.is_file())
    for text in (path.read_text(encoding="utf-8", errors="replace") for path in paths):
        if _FORMATS.search(text):
            called = _LENGTH.search(text)
            return int(called[1]) if called else _OF_BLACK
    return _OF_BLACK if "black" in tools else None


def _names(value: object) -> Names:
    if not isinstance(value, list) or not all_of(value, str):
        raise TypeError
    return tuple(value)


def _by_pattern(value: object) -> tuple[tuple[str, Names], ...]:
    if not isinstance(value, dict):
        raise TypeError
    return tuple((pattern, _names(names)) for pattern, names in value.items())


def _choice(choices: Names) -> Callable[[object], str]:
    def convert(value: object) -> str:
        if value not in choices:
            raise ValueError
        return str(value)

    return convert


def is_version(text: str) -> bool:
    """``2.4`` or ``2.4.1``"""
    return re.fullmatch(r"\d+(\.\d+){1,2}", text) is not None


def _version(value: object) -> str:
    if not isinstance(value, str) or not is_version(value):
        raise ValueError
    return value


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError
    return value


def _percent(value: object) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= 100:
        raise ValueError
    return float(value)


def _workers(value: object) -> int:
    return AUTO if value == "auto" else _number(value)


def _path(value: object) -> Path:
    if not isinstance(value, str) or not value:
        raise TypeError
    return Path(value)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _words(choices: Names) -> str:
    return "one of " + ", ".join(f'"{c}"' for c in choices)


_LIST = 'a list of strings, as in ["tf32"]'
_KEYS: dict[str, tuple[str, Callable[[object], object]]] = {
    "select": (_LIST, _names),
    "extend-select": (_LIST, _names),
    "ignore": (_LIST, _names),
    "effect": (_words(EFFECTS), lambda value: Effect[_choice(EFFECTS)(value).upper()]),
    "precision": (_words(PRECISIONS), _choice(PRECISIONS)),
    "target": (_words(TARGETS), _choice(TARGETS)),
    "torch": ('a version, as in "2.4"', _version),
    "line-length": ("a whole number of columns", _number),
    "compile": ("true or false", _flag),
    "workers": ('a whole number of workers, or "auto"', _workers),
    "accumulate": ("a whole number of micro-batches", _number),
    "keep-batch": ("true or false", _flag),
    "ddp": ("true or false", _flag),
    "sync-batchnorm": ("true or false", _flag),
    "min-gain": ("a number of per cent", _percent),
    "exhaustive": ("true or false", _flag),
    "facts": ("the path of a file that `autofast verify --facts` wrote", _path),
    "exclude": ('a list of patterns as in .gitignore, as in ["third_party/"]', _names),
    "force-exclude": ("true or false", _flag),
    "per-file-ignores": (
        'a table of patterns and lists, as in {"tests/*" = ["tf32"]}',
        _by_pattern,
    ),
}
assert {key.replace("-", "_") for key in _KEYS} == {f.name for f in fields(Config)}
