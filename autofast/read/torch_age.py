"""What says which torch a script runs with: files of its project, and what its code uses that is
gone since, or was not there before.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from autofast.flow.importers import Importers
from autofast.model.calls import is_method, keyword_of, names_in
from autofast.model.events import BranchFrame, LoopFrame, Occurrence, Site, TryFrame, is_undecided
from autofast.model.names import first_part, last_part
from autofast.model.script import Script
from autofast.model.several import of_kind
from autofast.model.source import Source, line_of, source_of, statement_of
from autofast.model.syntax import is_attribute
from autofast.model.torch_age import Limit, Newest, Oldest, TorchAge, Version, shown
from autofast.model.values import Arguments, Ext, Ref
from autofast.read.extensions import extension_limits
from autofast.read.old_tensors import broken_views, byte_masks, differences, old_losses, old_numbers
from autofast.read.requirements import (
    PACKAGE,
    in_words,
    newest_with,
    oldest_version,
    version_limits,
)
from autofast.read.torch_versions import (
    BRIEF,
    GONE,
    GONE_KEYWORDS,
    IN_PYTHON,
    LAST,
    LIVING,
    METHODS,
    MODULES,
    MOVED,
    NEW,
    NEW_KEYWORDS,
    PAIRED,
    RENAMED,
    SINCE_PYTHON,
)

# What stands in each file that imports what is gone, or reads a loss by ``[0]``.
OLD = rf"\b({'|'.join(map(last_part, GONE))})\b|\[0\]".encode()


def torch_age(script: Script) -> TorchAge:
    """Which versions of torch a script can run with."""
    newest = (
        *_pins(script),
        *_imports(script),
        *_calls(script),
        *_keywords(script),
        *_stft(script),
        *_functions(script),
        *extension_limits(script),
        *(_at(node, why, Limit((0, 4)), "item") for node, why in old_numbers(script)),
        *(_at(node, why, Limit((1, 6)), "reshape") for node, why in broken_views(script)),
        *(_at(node, why, Limit((2, 0)), anew) for node, why, anew in byte_masks(script)),
        *(_at(node, why, Limit((1, 1))) for node, why in differences(script)),
    )

    @cache
    def beside(shared: Path) -> list[Newest]:
        others = script.analysis(Importers).importing(shared, OLD)
        return [
            replace(said, place=f"{said.place}, which shares {shared.name},")
            for file in others
            for said in (
                *_gone_imports(file),
                *(_at(node, why, Limit((0, 4))) for node, why in old_losses(file)),
            )
        ]

    return TorchAge(newest, (*_asked(script), *_new(script)), living=LIVING, beside=beside)


def _at(node: ast.AST, why: str, limit: Limit, anew: str = "") -> Newest:
    return Newest(_place(node), why, limit, node, anew)


def _place(node: ast.AST) -> str:
    return f"{source_of(node).rel}:{line_of(node)}"


# ----------------------------------------------------------------------------- files of the project
def _pins(script: Script) -> Iterator[Newest]:
    for place, spec, limit in version_limits(script, "torch"):
        if limit is not None:
            yield Newest(place, f"asks for torch {spec}", limit)
    for said in in_words(script)[1]:
        if said.limit is not None:
            yield Newest(said.place, said.why, said.limit)
    for package, first in PAIRED.items():
        for place, spec, limit in version_limits(script, package):
            if limit is not None and len(limit.newest) > 1 and limit.newest >= first:
                paired = Limit(_paired(package, limit.newest), limit.included)
                yield Newest(place, f"asks for {package} {spec}", paired)
    for place, spec, limit in version_limits(script, "python"):
        if (torch := newest_with(limit)) is not None:
            yield Newest(place, f"asks for Python {spec}", Limit(torch))


def _asked(script: Script) -> Iterator[Oldest]:
    python = max(
        (oldest_version(spec) for _, spec, _ in version_limits(script, "python")), default=(0,)
    )
    least = max((torch for since, torch in SINCE_PYTHON.items() if since <= python), default=(0,))
    bounds = [
        (oldest_version(spec), place, spec, limit)
        for place, spec, limit in version_limits(script, "torch")
    ]
    bounds.sort(key=lambda bound: bound[0], reverse=True)
    asked = {b[1].partition(":")[0]: b for b in bounds if b[0] != (0,)}  # the lowest of each file
    for version, place, spec, limit in asked.values():
        version = (*version, 0) if len(version) == 1 else version
        oldest = version if limit is not None else max(version, least)
        yield Oldest(place, f"asks for torch {spec}", oldest, binds=place.startswith(PACKAGE))
    for bound in in_words(script)[0]:
        yield Oldest(bound.place, bound.why, max(bound.oldest, least), binds=bound.binds)


def _paired(package: str, version: Version) -> Version:
    """The torch that a package is made for: torchvision and torchtext 0.14 for 1.13, 0.15 for 2.0;
    torchaudio 0.13 and 2.0 for the same.
    """
    minor = version[1]
    if package == "torchaudio":
        return (max(1, version[0]), minor)
    return (1, minor - 1) if version[0] == 0 and minor < 15 else (2, minor - 15)


# ------------------------------------------------------------------------------------- what is gone
def _imports(script: Script) -> Iterator[Newest]:
    """What a file imports, whatever happens."""
    imported = {a.name for n in script.each(ast.ImportFrom) for a in n.names}
    any_torch = IN_PYTHON & imported or any(is_attribute(n, *IN_PYTHON) for n in script.nodes)
    for source in script.sources:
        for node in source.tree.body:
            names = {first_part(name) for name in _imported(node)}
            for package in names & LAST.keys():
                if not any_torch:
                    words = f"imports {package}, whose last release goes with torch"
                    last = Limit(LAST[package])
                    yield _at(node, f"{words} {shown(last.newest)}", last)
        yield from _gone_imports(source)


def _gone_imports(source: Source) -> Iterator[Newest]:
    for node in source.tree.body:
        names = [f"{name}." for name in _imported(node)]
        for known in GONE if names else ():
            if known not in MODULES and any(n.startswith(f"{known}.") for n in names):
                yield _gone(node, known, _moved(node))


def _imported(node: ast.stmt) -> list[str]:
    match node:
        case ast.ImportFrom(module=str(module), names=aliases, level=0):
            return [f"{module}.{alias.name}" for alias in aliases]
        case ast.Import(names=aliases):
            return [alias.name for alias in aliases]
    return []


def _moved(node: ast.stmt) -> str:
    """The import of the same today; empty where there is none for all that is imported."""
    if not isinstance(node, ast.ImportFrom) or any(a.asname for a in node.names):
        return ""
    found = [MOVED.get(name, "") for name in _imported(node)]
    return "\n".join(found) if all(found) else ""


def _calls(script: Script) -> Iterator[Newest]:
    """What is called in every run; behind an option, the rest may run with what is new."""
    for site in script.calls(*GONE):
        if any(map(_is_certain, site)):
            spelled = is_method(site.node, last_part(site.kind))
            yield _gone(site.node, site.kind, RENAMED.get(site.kind, "") if spelled else "")
    for site in script.methods(*METHODS):
        if any(_is_certain(o) and not isinstance(o.this, Ext) for o in site):
            yield _gone(site.node, f"torch{site.kind}")
    for site in script.log.of("next"):
        if is_method(site.node, "next") and any(map(_is_certain, site)):
            words = "asks a loader's iterator for next(), which is gone in torch 1.13"
            yield _at(site.node, words, Limit((1, 12)))


def _gone(node: ast.AST, name: str, anew: str = "") -> Newest:
    newest, since = GONE[name]
    found = _at(node, f"uses {name}, which is gone {since}", Limit(newest), anew)
    return replace(found, first=BRIEF.get(name, ()))


def _keywords(script: Script) -> Iterator[Newest]:
    for site, name in _with_keywords(script, GONE_KEYWORDS):
        newest, since, today = GONE_KEYWORDS[site.kind][name]
        call = site.node
        spelled = isinstance(call, ast.Call) and keyword_of(call, name) is not None
        words = f"gives {last_part(site.kind)}() `{name}`, which is gone {since}"
        yield _at(call, words, Limit(newest), f"{name}={today}" if today and spelled else "")


def _with_keywords(
    script: Script, known: Mapping[str, Mapping[str, object]]
) -> Iterator[tuple[Site, str]]:
    for site in script.log.of(*known):
        for name in known[site.kind]:
            if any(_is_certain(o) and _gives(o.args, name) for o in site):
                yield site, name


def _gives(args: Arguments, name: str) -> bool:
    given = args.given(-1, name)
    return given is not None and given.sure


def _stft(script: Script) -> Iterator[Newest]:
    """``torch.stft(x, n)`` of real numbers, where no call of it says ``return_complex``."""
    calls = [(site.node, o) for site in script.calls("torch.stft") for o in site]
    if all((o.args.known and o.args.given(9, "return_complex") is None) for _, o in calls):
        for node, o in calls:
            if _is_certain(o):
                words = "calls torch.stft without return_complex, which is an error since torch 2.0"
                yield _at(node, words, Limit((1, 13)))


def _functions(script: Script) -> Iterator[Newest]:
    """What functions have given back, and classes have been, in older versions."""
    for site in script.calls("torch.nn.utils.rnn.pack_padded_sequence"):
        match statement_of(site.node):
            case ast.Assign(targets=[ast.Tuple(elts=[_, ast.Name()])], value=value) if (
                value is site.node
            ):
                words = "takes a PackedSequence for two values, and it has four since torch 1.1"
                yield _at(value, words, Limit((1, 0)))
    for source in script.sources:
        for node in source.each(ast.ClassDef):
            if _is_old_function(script, node):
                words = (
                    "is an autograd.Function whose forward is not static, an error since torch 1.5"
                )
                yield _at(node, words, Limit((1, 4)))


def _is_old_function(script: Script, node: ast.ClassDef) -> bool:
    named = {
        thing.name
        for base in node.bases
        for thing in script.values(base)
        if isinstance(thing, (Ext, Ref))
    }
    return "torch.autograd.Function" in named and any(
        stmt.name == "forward" and not stmt.decorator_list
        for stmt in of_kind(node.body, ast.FunctionDef)
    )


# -------------------------------------------------------------------------------------- what is new
def _new(script: Script) -> Iterator[Oldest]:
    """What every run needs that was not always there."""
    for source in script.sources:
        for node in source.tree.body:
            for name in _imported(node):
                if name in NEW:
                    yield Oldest(_place(node), f"imports {name}", NEW[name], node)
    for site in script.calls(*NEW):
        if any(map(_is_certain, site)):
            yield Oldest(_place(site.node), f"uses {site.kind}", NEW[site.kind], site.node)
    for site, name in _with_keywords(script, NEW_KEYWORDS):
        what = f"gives {last_part(site.kind)}() `{name}`"
        yield Oldest(_place(site.node), what, NEW_KEYWORDS[site.kind][name], site.node)


# ------------------------------------------------------------------------------------- in every run
FORGIVEN = {"KeyboardInterrupt", "SystemExit"}


def _is_certain(occurrence: Occurrence) -> bool:
    """Whether every run comes there, sooner or later: behind an option it may not, and a ``try``
    may be for other versions.
    """
    stack = occurrence.stack
    for n, frame in enumerate(stack):
        if is_undecided(frame) and not _is_in_turn(frame, stack[:n]):
            return False
        if isinstance(frame, TryFrame) and catches(frame):
            return False
    return True


def _is_in_turn(frame: BranchFrame, around: tuple[object, ...]) -> bool:
    """``if i % 100 == 0:``: a condition that some passes of a loop fulfil."""
    loop = next((f.node for f in reversed(around) if isinstance(f, LoopFrame)), None)
    test = getattr(frame.node, "test", None)
    if not isinstance(loop, ast.For) or test is None:
        return False
    counted = names_in(loop.target)
    return any(
        isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod) and counted & names_in(n.left)
        for n in ast.walk(test)
    )


def catches(frame: TryFrame) -> bool:
    """Whether the code is one of two ways, as one of them may not run."""
    handlers = getattr(frame.node, "handlers", [])
    caught = {n.id for h in handlers for n in ast.walk(h.type or h) if isinstance(n, ast.Name)}
    return frame.part == "handler" or (
        frame.part in ("body", "else") and bool(handlers) and not caught <= FORGIVEN
    )
