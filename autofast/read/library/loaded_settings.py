"""Settings that a script loads (JSON, YAML, TOML): which file of the project a path means, and what
it holds.

What stands there is a default: the values are :class:`Setting`, and dicts may hold other keys.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from autofast.model import disk
from autofast.model.several import any_in, wordset
from autofast.model.values import (
    NOTHING,
    NUMBER,
    Arg,
    Arguments,
    Const,
    Dict,
    Entry,
    Ext,
    Located,
    Method,
    Seq,
    Setting,
    Thing,
    Unknown,
    Values,
    Where,
    certainly,
    const,
    is_const,
    of_kind,
    one,
    result_of,
    said,
    things as values,
)
from autofast.read.library.containers import SETTINGS, dict_of, row_of
from autofast.read.library.table import first_of, gives_for
from autofast.read.setting_files import JSON, SUFFIXES, TOML, YAML, candidates, text_of
from autofast.read.state.core import Core, join

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


MOST_NODES = 2_000
MERGES = ("merge_from_", "merge_with_")  # of settings: what a file or the command line says
TEMPLATES = (".example", ".sample", ".template", ".dist", ".default")  # to be copied
LOADERS = {
    **dict.fromkeys(("json.load", "json.loads", "commentjson.load", "json5.load"), JSON),
    **dict.fromkeys(
        ("yaml.load", "yaml.safe_load", "yaml.full_load", "yaml.unsafe_load", "oyaml.safe_load"),
        YAML,
    ),
    **dict.fromkeys(("toml.load", "toml.loads", "tomllib.load", "tomllib.loads"), TOML),
    **dict.fromkeys(("tomli.load", "tomli.loads", "pytoml.load"), TOML),
    "omegaconf.OmegaConf.load": YAML,
}
OPENED = wordset("builtins.open io.open codecs.open pathlib.Path builtins.str")
PATHS = wordset("os.path.join os.path.abspath os.path.expanduser os.path.realpath")
# Objects that give their items as attributes, too.
WRAPPERS = wordset(
    "easydict.EasyDict addict.Dict munch.Munch munch.munchify munch.DefaultMunch.fromDict box.Box "
    "omegaconf.OmegaConf.create ml_collections.ConfigDict attrdict.AttrDict dotmap.DotMap"
)
KEPT = frozenset({"resolve", "absolute", "expanduser"})
READING = wordset("open read readline read_text read_bytes")
PARTS = wordset("strip lstrip rstrip readlines split rsplit splitlines partition rpartition")
COMMENTS = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)  # beside strings


@gives_for(*OPENED, *PATHS)
def _path(interp: Core, name: str, args: Arguments, node: Where) -> Values | None:
    """A file that may hold settings."""
    first = first_of(args)
    last = _joined(args) if name == "os.path.join" else first
    found = [_located(t) for t in last if not isinstance(t, (Method, Unknown))]
    opened = name.endswith("open")
    known = [replace(t, read=opened or t.read) for t in found if t]
    return values(*known) if found and all(found) else None


@gives_for(*LOADERS, *WRAPPERS)
def _settings(interp: Core, name: str, args: Arguments, node: Where) -> Values | None:
    """What is loaded out of a file with settings, or wraps what was loaded."""
    if name in WRAPPERS and (args.named or not args.positional):
        return values(dict_of(interp, node, args))
    first = first_of(args)
    given = first or args.get(0, "stream") | args.get(0, "fp")
    if certainly(given, Dict, Seq, Setting):
        return given
    loaded = NOTHING.union(*(_loaded(interp, t, LOADERS.get(name, ()), node) for t in given))
    return loaded or (None if name in WRAPPERS else values(result_of(name)))


def merge(interp: Core, into: Ext, args: Arguments, node: Where) -> None:
    """``cfg.merge_from_file("train.yaml")``: what the project's file says, they may be."""
    found = NOTHING.union(*(_loaded(interp, t, (), node) for t in first_of(args)))
    todo = [(into, t) for t in of_kind(found, Dict)]
    for holder, table in todo:
        for key in table.entries:
            if isinstance(key, str):
                kept, new = holder.attrs.get(key, NOTHING), table.get(key)
                inner = [t for t in of_kind(kept, Ext) if t.name == into.name]
                todo += [(t, more) for t in inner for more in of_kind(new, Dict)]
                holder.attrs[key] = kept if inner else join(kept, new)


def _joined(args: Arguments) -> Values:
    """What ``os.path.join`` gives: the path where all parts are constants, else the last part."""
    parts = [const(g.values) for g in args.positional]
    if certainly(parts, str):
        return values(Const("/".join(parts)))
    return args.positional[-1].values if args.positional else NOTHING


def divided(left: Values, right: Values) -> Values | None:
    """``folder / "config.json"``; None where it is no such path."""
    name = const(right)
    if isinstance(name, str) and name.endswith(SUFFIXES) and len(left) == 1:
        return values(Located(by=Const(name)))
    return None


def added(left: Values, right: Values) -> Values:
    """A file's text that is put together again of its lines; empty where it is nothing of that."""
    text = frozenset(t for t in left | right if is_text(t))
    return text if all(t in text or is_const(t, str) for t in left | right) else NOTHING


def is_text(thing: Thing) -> bool:
    """A file that was opened, or what was read of it."""
    return isinstance(thing, Located) and thing.read


def method(interp: Core, this: Thing, name: str, args: Arguments, node: Where) -> Values:
    """What ``read()``, ``strip()``, ``splitlines()`` give of a file or its text, and ``join()`` of
    its lines; empty for anything else.
    """
    if isinstance(this, Located):
        if name in READING:
            return values(replace(this, read=True))
        if name in PARTS and this.read:
            row = row_of(interp, (node, "lines"), node, values(this))
            return values(this if name.endswith("strip") else row)
        return values(this) if name in KEPT else NOTHING
    lines = NOTHING
    if name == "join" and is_const(this, str):
        lines = NOTHING.union(*(t.any() for t in first_of(args) if isinstance(t, Seq)))
    return lines if lines and all(map(is_text, lines)) else NOTHING


@gives_for("re.sub")
def _replaced(interp: Core, name: str, args: Arguments, node: Where) -> Values | None:
    """The text without its comments."""
    pattern, new = const(args.get(0, "pattern")), const(args.get(1, "repl"))
    text = args.get(2, "string")
    is_comment = isinstance(pattern, str) and ("//" in pattern or "/\\*" in pattern)
    is_gone = isinstance(new, str) and not new.strip()
    return text if is_comment and is_gone and text and all(map(is_text, text)) else None


def _located(thing: Thing) -> Located | None:
    if isinstance(thing, Located):
        return thing
    if isinstance(thing, Arg):
        default = const(thing.default)
        fits = default is None or (isinstance(default, str) and default.endswith(SUFFIXES))
        return Located(by=thing) if fits else None
    if is_const(thing, str) and thing.value.endswith(SUFFIXES):
        return Located(by=thing)
    return None


# --------------------------------------------------------------------------------------- which file
def _loaded(interp: Core, thing: Thing, kinds: tuple[str, ...], node: Where) -> Values:
    place = _located(thing)
    path = _file(interp, place.by, kinds or SUFFIXES) if place is not None and place.by else None
    if path is None:
        return NOTHING
    known: dict[Path, Any] = interp.__dict__.setdefault("_loaded_settings", {})
    if path not in known:
        known[path] = parsed(path)
    if known[path] is None:
        return NOTHING
    root = interp.project.root
    name = path.relative_to(root).as_posix() if root in path.parents else path.name
    return thing_of(interp, known[path], name, (node, path), node)


def _file(interp: Core, by: Arg | Const, kinds: tuple[str, ...]) -> Path | None:
    """The file of the project that an option or a constant means: the one that it names, or the
    only one there is.
    """
    name = said(by)
    folder = interp.project.entry.resolve().parent
    if name is None:
        return one([p for p in candidates(folder, kinds) if not _is_named(interp, p)])
    if not isinstance(name, str):
        return None
    for base in (folder, interp.project.root):
        path = (base / name).resolve()
        found = [path, *(path.with_name(f"{path.name}{end}") for end in TEMPLATES)]
        known = (p for p in found if disk.is_file(p) and interp.project.root in p.parents)
        if (first := next(known, None)) is not None:
            return first
    named = [p for p in candidates(folder, SUFFIXES) if p.name == Path(name).name]
    return one(named)


def _is_named(interp: Core, path: Path) -> bool:
    """Whether the code has the file's name as a constant of its own: then it is read for something
    else.
    """
    quoted = re.compile(rf"""[/"']{re.escape(path.name)}["']""")
    named = [s for s in interp.project.sources.values() if quoted.search(s.text)]
    return bool(named) and path.stem not in ("config", "settings", "params", "default")


# ------------------------------------------------------------------------------------ what it holds
class Scalar:
    def __init__(self, value: Any, line: int, file: str = ""):
        self.value, self.line, self.file = value, line, file


def parsed(path: Path) -> Any:
    """Dicts, lists and :class:`Scalar`; None where the file is too large or cannot be read."""
    text = text_of(path)
    try:
        if text is None:
            return None
        kinds = path.suffixes  # of `config.yml.example`, too
        return _toml(text) if any_in(kinds, TOML) else _yaml(text, any_in(kinds, JSON))
    except (ValueError, RecursionError):
        return None


def _yaml(text: str, is_json: bool) -> Any:
    """YAML, and JSON as the part of YAML that it is but for tabs."""
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError:
        return None
    if is_json:
        text = COMMENTS.sub(lambda found: found[1] or "\n" * found[0].count("\n"), text)
        json.loads(text)  # else it is no JSON
        text = text.replace("\t", " ")
    loader = yaml.SafeLoader("")

    def built(node: Any, depth: int) -> Any:
        if depth > 12:
            raise ValueError("nested too deeply")
        if isinstance(node, yaml.MappingNode):
            pairs = [(built(k, depth + 1), built(v, depth + 1)) for k, v in node.value]
            return {
                k.value: v
                for k, v in pairs
                if isinstance(k, Scalar) and isinstance(k.value, (str, int))
            }
        if isinstance(node, yaml.SequenceNode):
            return [built(part, depth + 1) for part in node.value]
        plain = is_json and node.style is None
        value = json.loads(node.value) if plain else loader.construct_object(node)
        return Scalar(value, node.start_mark.line + 1)

    try:
        return built(yaml.compose(text, Loader=yaml.SafeLoader), 0)
    except (yaml.YAMLError, AttributeError) as error:
        raise ValueError(str(error)) from None


def _toml(text: str) -> Any:
    lines = text.splitlines()

    def built(value: Any, table: str, key: str) -> Any:
        if isinstance(value, dict):
            below = f"{table}.{key}".strip(".") if key else table
            return {k: built(v, below, k) for k, v in value.items()}
        if isinstance(value, list):
            return [built(v, table, key) for v in value]
        return Scalar(value, _line(lines, table, key))

    return built(tomllib.loads(text), "", "")


def _line(lines: list[str], table: str, key: str) -> int:
    """The line of ``key = ...`` below ``[table]``; 1 where it is written otherwise."""
    current = ""
    for number, line in enumerate(lines, 1):
        if header := re.match(r"\s*\[([\w.\- ]+)\]", line):
            current = header[1].strip()
        elif current == table and re.match(rf"""\s*["']?{re.escape(key)}["']?\s*=""", line):
            return number
    return 1


def thing_of(interp: Core, parsed: Any, file: str, key: tuple[Any, ...], node: Where) -> Values:
    """What is known of a loaded value: entries that are there by default, beside which there may be
    others.
    """
    interp.steps += 1
    if isinstance(parsed, Scalar):
        return values(Setting(value=parsed.value, file=parsed.file or file, line=parsed.line))
    if isinstance(parsed, list):
        if len(parsed) > MOST_NODES:
            return NUMBER
        parts = [thing_of(interp, p, file, (*key, n), node) for n, p in enumerate(parsed)]
        seq = interp.intern(Seq, key, lambda: Seq(None, None, made=tuple(interp.stack)))
        seq.elem |= NOTHING.union(*parts) or NUMBER
        return values(seq)
    made = interp.intern(Dict, key, lambda: Dict(None, made=tuple(interp.stack)))
    if not made.open:
        made.open = file + SETTINGS
        for name, part in parsed.items():
            found = thing_of(interp, part, file, (*key, name), node)
            made.entries[name] = [Entry(found, None, None, True)]
    return values(made)
