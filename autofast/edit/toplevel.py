"""Where new imports and helpers go in a file, and which imports are there already."""

from __future__ import annotations

import ast
import builtins
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from autofast.edit.edits import Helper, Import
from autofast.flow.imports import Binding, bindings, parsed
from autofast.flow.scopes import loaded_in
from autofast.model import disk
from autofast.model.names import first_part
from autofast.model.several import any_of, grouped, of_kind, surely
from autofast.model.source import Source, block_of, parent_of, source_of
from autofast.model.syntax import DEFINITIONS, IMPORTS, is_docstring

BEFORE_ALL = -1


@dataclass(frozen=True)
class Addition:
    """New code that goes directly below ``body[after]`` of the module, or to its beginning
    (``BEFORE_ALL``).

    With ``names`` there is no new statement: ``body[after]``, a ``from m import ...``, imports
    these, too. With ``leads`` it begins the group of imports below it.
    """

    after: int
    code: str
    names: tuple[str, ...] = ()
    leads: bool = False


def additions(
    source: Source, imports: Iterable[Import], helpers: Iterable[Helper]
) -> Iterator[Addition]:
    """Where the text of each new import and helper goes; in the order in which they are to stand
    below one statement.
    """
    above = _needed_above(source.tree, imports)
    present = {n: set(_present(source.tree.body[:n])) for n in set(above.values())}
    new = sorted(b for b, n in above.items() if not _is_bound(b, present[n]))
    places = {b: min(_place_of_import(source.tree, b), above[b] - 1) for b in new}
    for statement, members in _together(new, places):
        there = _from_same(source, members, min(above[b] for b in members))
        if there is None:
            place = places[members[0]]
            yield Addition(place, statement, leads=_is_of_group(source.tree, place + 1, members[0]))
        else:
            names = tuple(b.code.split(" import ", 1)[1] for b in members)
            yield Addition(there, statement, names)
    for helper in sorted(
        helpers, key=lambda h: (any_of(ast.parse(h.code).body, DEFINITIONS), h.rank, h.name)
    ):
        if _is_defined(helper, source.tree):
            continue
        needs = _names(helper.code)
        wanted = [place for binding, place in places.items() if binding.bound in needs]
        if helper.below is not None:
            wanted.append(source.tree.body.index(helper.below))
        yield Addition(max([_place_of_helper(source.tree, needs), *wanted]), helper.code)


def _needed_above(tree: ast.Module, imports: Iterable[Import]) -> dict[Binding, int]:
    """What is to be imported, and the statement of the module above which it is needed: its index,
    or the end.
    """
    found: dict[Binding, int] = {}
    for edit in imports:
        end = len(tree.body) if edit.above is None else tree.body.index(edit.above)
        for binding in parsed(edit.code):
            found[binding] = min(end, found.get(binding, end))
    return found


def _together(
    new: list[Binding], places: dict[Binding, int]
) -> Iterator[tuple[str, list[Binding]]]:
    """``from m import a`` and ``from m import b`` make one statement."""
    groups = grouped(
        ((binding.module, places[binding]) if binding.is_from else (binding,), binding)
        for binding in new
    )
    for members in groups.values():
        first = members[0].code
        rest = [member.code.split(" import ", 1)[1] for member in members[1:]]
        yield ", ".join([first, *rest]), members


def _from_same(source: Source, members: list[Binding], end: int) -> int | None:
    """The statement above ``end`` that imports from the module, and can take these names."""
    module = {members[0].module}
    for n in range(end - 1, -1, -1):
        statement = source.tree.body[n]
        if (
            isinstance(statement, ast.ImportFrom)
            and {b.module for b in bindings(statement)} == module
        ):
            return n if members[0].is_from and _takes_names(source, statement) else None
    return None


def _takes_names(source: Source, statement: ast.ImportFrom) -> bool:
    """Whether names can be put in without a comment losing the name that it stands behind."""
    lines = source.lines[statement.lineno - 1 : statement.end_lineno]
    return statement.names[0].name != "*" and not any(c in line for c in ";#\\" for line in lines)


def _present(body: list[ast.stmt]) -> Iterator[Binding]:
    """What imports among these statements of a module bind, also those that are tried (``try:
    import apex``).
    """
    for statement in body:
        yield from bindings(statement)
        if isinstance(statement, ast.Try):
            for tried in statement.body:
                yield from bindings(tried)


def _is_bound(binding: Binding, present: set[Binding]) -> bool:
    if binding in present:
        return True
    # `import torch.nn` binds torch as `import torch` does, and `import torch.nn` is more than
    # `import torch`.
    plain = not binding.is_from and binding.bound == first_part(binding.module)
    return plain and any(
        not b.is_from
        and b.bound == binding.bound
        and f"{b.module}.".startswith(f"{binding.module}.")
        for b in present
    )


# ------------------------------------------------------------------------------------------- places
def _place_of_import(tree: ast.Module, binding: Binding) -> int:
    """Below the leading imports, or those of the standard library among them.

    But no other package is imported earlier than the user does it, as settings may stand in between
    that it reads.
    """
    root = first_part(binding.module)
    lead = _end_of_lead(tree)
    if root in sys.stdlib_module_names:
        standard = [
            n
            for n, s in enumerate(tree.body[: lead + 1])
            if any(first_part(b.module) in sys.stdlib_module_names for b in bindings(s))
        ]
        return _in_order(tree, standard, binding) if standard else _above_others(tree, lead)
    every = [
        n for n, s in enumerate(tree.body) if any(first_part(b.module) == root for b in bindings(s))
    ]
    if every and every[0] <= lead:
        first = tree.body[every[0]]
        if every[0] == 0 and isinstance(first, ast.ImportFrom) and not binding.is_from:
            return 0  # below the first statement of the file
        return every[0] - 1 if _leads(first, binding) else lead
    return _end_of_run(tree, every[0]) if every else _above_own(tree, lead, binding)


def _above_others(tree: ast.Module, lead: int) -> int:
    """Above all imports of other packages, but below a docstring, ``__future__`` and the comments
    that begin the file.
    """
    for n, statement in enumerate(tree.body[: lead + 1]):
        if any(b.module != "__future__" for b in bindings(statement)):
            line = statement.lineno - 2
            above = source_of(tree).lines[line] if line >= 0 else ""
            return lead if above.lstrip().startswith("#") else n - 1
    return lead


def _above_own(tree: ast.Module, lead: int, binding: Binding) -> int:
    """The last of the leading imports of packages: those from the project itself come below.

    Not where one of these may set what a package reads when it is imported.
    """
    source = source_of(tree)
    if not source.path.is_absolute():
        return lead
    own = [n for n in range(lead + 1) if _own_files(source, tree.body[n]) is not None]
    if not own or own[0] == 0 or own != list(range(own[0], lead + 1)):
        return lead
    files = [f for n in own for f in _own_files(source, tree.body[n]) or ()]
    root = first_part(binding.module).encode()
    if any(_may_set(disk.read(file), root) for file in files) or _is_remarked(tree, own[0]):
        return lead
    return own[0] - 1 if any(bindings(tree.body[own[0] - 1])) else lead


def _may_set(text: bytes, package: bytes) -> bool:
    """Whether a file may set something in the environment before it imports a package itself."""
    before = re.split(
        rb"^(?:import|from) " + package + rb"\b", text, maxsplit=1, flags=re.MULTILINE
    )
    return re.search(rb"\benviron\b", before[0]) is not None


def _own_files(source: Source, statement: ast.stmt) -> list[Path] | None:
    """The files of the project that an import loads; None for any other statement."""
    found, is_own = list[Path](), False
    depth = source.rel.count("/") + 1
    for binding in bindings(statement):
        bare = binding.module.lstrip(".")
        level = len(binding.module) - len(bare)
        is_own |= bool(level)
        folders = list(source.path.parents)[max(level - 1, 0) : level or depth]
        for folder in folders:
            path = folder.joinpath(*bare.split(".")) if bare else folder
            named = path / binding.name if binding.is_from else path
            files = [p.with_suffix(".py") for p in (path, named) if p.name]
            files += [p / "__init__.py" for p in (path, named)]
            here = [f for f in files if disk.is_file(f)]
            is_own |= bool(here) or (bool(bare) and disk.is_folder(folder / first_part(bare)))
            found += here
    return found if is_own else None


def _in_order(tree: ast.Module, places: list[int], binding: Binding) -> int:
    """Where an import goes among these: by its name, where the plain ones are sorted by theirs;
    else below the last.
    """
    plain = [n for n in places if isinstance(tree.body[n], ast.Import)]
    names = [b.module for n in plain for b in bindings(tree.body[n])]
    in_one_run = plain == list(range(plain[0], plain[0] + len(plain))) if plain else False
    if binding.is_from or not in_one_run or names != sorted(names) or len(names) != len(plain):
        return places[-1]
    before = [n for n, name in zip(plain, names, strict=True) if name < binding.module]
    if before:
        return before[-1]
    return plain[0] - 1 if not _has_comment(tree, plain[0]) else places[-1]


def _is_of_group(tree: ast.Module, place: int, binding: Binding) -> bool:
    """Whether the import at ``place`` is of the same package, or as standard as this one."""
    roots = {first_part(b.module) for s in tree.body[place : place + 1] for b in bindings(s)}
    root = first_part(binding.module)
    return root in roots or (bool(roots) and {root, *roots} <= sys.stdlib_module_names)


def _leads(first: ast.stmt, binding: Binding) -> bool:
    """Whether ``import m`` goes above the first import from it: ``from m.a import b``."""
    return (
        not binding.is_from
        and isinstance(first, ast.ImportFrom)
        and not _is_remarked(source_of(first).tree, source_of(first).tree.body.index(first))
    )


def _is_remarked(tree: ast.Module, place: int) -> bool:
    """Whether a comment stands directly above a statement, or it is the first: what goes above it
    would come between.
    """
    return place == 0 or _has_comment(tree, place)


def _has_comment(tree: ast.Module, place: int) -> bool:
    """Whether a comment stands directly above a statement."""
    line = tree.body[place].lineno - 2
    lines = source_of(tree.body[place]).lines
    return line >= 0 and lines[line].lstrip().startswith("#")


def _place_of_helper(tree: ast.Module, needs: frozenset[str]) -> int:
    """Below the leading imports and every other import at module level that the helper uses."""
    used = (n for n, s in enumerate(tree.body) if any(b.bound in needs for b in bindings(s)))
    return _end_of_run(tree, max([_end_of_all_imports(tree), *used]))


def _end_of_all_imports(tree: ast.Module) -> int:
    """The last of the leading imports, between which settings (``matplotlib.use``) may stand."""
    end = _end_of_lead(tree)
    for n, statement in enumerate(tree.body[end + 1 :], end + 1):
        if isinstance(statement, IMPORTS):
            end = n
        elif not _sets(statement):
            break
    return end


def _sets(statement: ast.stmt) -> bool:
    """A call for its effect, or ``os.environ["A"] = "b"``: binds no name."""
    match statement:
        case ast.Expr(value=ast.Call()):
            return True
        case ast.Assign(targets=[ast.Subscript() | ast.Attribute()]):
            return True
    return False


def _end_of_run(tree: ast.Module, place: int) -> int:
    """The last of the imports that follow each other from ``place`` on."""
    while place + 1 < len(tree.body) and isinstance(tree.body[place + 1], IMPORTS):
        place += 1
    return place


def _end_of_lead(tree: ast.Module) -> int:
    """The last import before other statements; without one, the docstring, or ``BEFORE_ALL``."""
    end = BEFORE_ALL
    for n, statement in enumerate(tree.body):
        if isinstance(statement, IMPORTS) or (n == 0 and is_docstring(statement)):
            end = n
        elif not _is_dunder(statement):
            break
    return end


def must_stay_above(statement: ast.stmt) -> ast.stmt | None:
    """The statement that code before ``statement`` must be put below after all: a docstring, or the
    last import from ``__future__``.
    """
    block = block_of(statement)
    is_documented = isinstance(
        parent_of(statement), (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    )
    top = [s for s in block[:1] if is_documented and is_docstring(s)]
    top += [s for s in of_kind(block, ast.ImportFrom) if s.module == "__future__"]
    return top[-1] if statement in top else None


def _is_dunder(statement: ast.stmt) -> bool:
    """``__author__ = ...``, which may stand between the docstring and the imports."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return surely(
        isinstance(t, ast.Name) and t.id.startswith("__") and t.id.endswith("__") for t in targets
    )


def _is_defined(helper: Helper, tree: ast.Module) -> bool:
    """Whether the file has the very same code already."""
    if helper.name not in {getattr(s, "name", None) for s in tree.body} | _assigned(tree):
        return False
    return stand_in(tree, helper.code)


def stand_in(tree: ast.Module, code: str) -> bool:
    """Whether the statements of ``code`` stand in a module as they are."""
    there = {ast.dump(s) for s in tree.body}
    return all(ast.dump(s) in there for s in ast.parse(code).body)


def _assigned(tree: ast.Module) -> set[str]:
    return {t.id for s in of_kind(tree.body, ast.Assign) for t in of_kind(s.targets, ast.Name)}


def _names(code: str) -> frozenset[str]:
    loaded = loaded_in(ast.parse(code))
    return frozenset(loaded - set(dir(builtins)))
