"""Figures of the house, as docs/architecture.md has them: python scripts/house.py"""

from __future__ import annotations

import ast
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
# ``script.nodes`` and ``is_method`` say these.
NODES_OF_ALL = re.compile(r"for (\w+) in [\w.]*script\.sources:?\s+for \w+ in \1\.nodes\b")
METHOD_CALL = re.compile(
    r"isinstance\((\w+), ast\.Call\)\s+and isinstance\(\1\.func, ast\.Attribute\)"
)
STATEMENTS = {c.__name__ for c in ast.stmt.__subclasses__()}


def files(*tops: str) -> list[Path]:
    """The Python files below these folders."""
    return [p for top in tops for p in sorted((ROOT / top).rglob("*.py"))]


def lines(paths: list[Path]) -> int:
    """How many lines they have together."""
    return sum(p.read_text(encoding="utf-8").count("\n") for p in paths)


def module(path: Path) -> str:
    """The dotted name of a file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("autofast", *parts) if parts[0] == "rules" else parts)


def imported(path: Path) -> Iterator[str]:
    """The dotted names that a file imports, of modules and of what is in them."""
    package = module(path).split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            full = ".".join([*base, *([node.module] if node.module else [])])
            yield full
            yield from (f"{full}.{a.name}" for a in node.names)


def reached(start: Path, among: dict[str, Path]) -> list[Path]:
    """The files of ``among`` that a file needs, directly or not."""
    found: dict[Path, None] = {}
    todo = [start]
    while todo:
        for name in imported(todo.pop()):
            if (path := among.get(name)) is not None and path not in found:
                found[path] = None
                todo.append(path)
    return list(found)


def functions(paths: list[Path]) -> Iterator[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """All function definitions."""
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield path, node


def dispatches(function: ast.AST) -> int:
    """The kinds of statement that a function tells apart."""
    return len(
        {
            n.attr
            for n in ast.walk(function)
            if isinstance(n, ast.Attribute)
            and n.attr in STATEMENTS
            and isinstance(n.value, ast.Name)
            and n.value.id == "ast"
        }
    )


def matching(paths: list[Path], pattern: str) -> int:
    """The lines that a pattern is found in."""
    return sum(
        bool(re.search(pattern, line))
        for p in paths
        for line in p.read_text(encoding="utf-8").splitlines()
    )


def beside(*layers: str) -> list[Path]:
    """The files of all other layers."""
    apart = re.compile(rf"autofast/({'|'.join(layers)})\b")
    every = files("autofast", "rules")
    return [p for p in every if not apart.match(p.relative_to(ROOT).as_posix())]


def product() -> int:
    """The statements and expressions of the product, which no other layout of lines, comment or
    docstring changes.
    """
    trees = (ast.parse(p.read_text(encoding="utf-8")) for p in files("autofast", "rules"))
    nodes = [n for tree in trees for n in ast.walk(tree) if isinstance(n, (ast.stmt, ast.expr))]
    texts = [n for n in nodes if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)]
    return len(nodes) - 2 * len(texts)


def statements() -> int:
    """The functions outside read, flow and edit that tell four or more kinds of statement apart."""
    return sum(dispatches(f) >= 4 for _, f in functions(beside("read", "flow", "edit")))


def kinds() -> int:
    """The lines of rules and techniques that ask for a kind of node."""
    old = not (ROOT / "autofast" / "techniques").is_dir()
    planned = files("rules") if old else files("rules", "autofast/techniques")
    return matching(planned, r"isinstance\(.*\bast\.")


def loops() -> int:
    """The loops over all files, and then over the nodes of each."""
    return found(NODES_OF_ALL)


def methods() -> int:
    """The calls of methods that are told by two isinstance."""
    return found(METHOD_CALL)


def found(pattern: re.Pattern[str]) -> int:
    """How often a pattern is found in the product."""
    every = files("autofast", "rules")
    return sum(len(pattern.findall(p.read_text(encoding="utf-8"))) for p in every)


def figures() -> dict[str, object]:
    """What is counted, and the counts."""
    old = not (ROOT / "autofast" / "techniques").is_dir()
    rules = [p for p in files("rules") if not p.stem.startswith("_")]
    private = (
        [p for p in files("rules") if p.stem.startswith("_") and p.stem != "__init__"]
        if old
        else files("autofast/techniques")
    )
    shared = private if old else files("autofast/techniques", "autofast/facts", "autofast/write")
    below = {module(p): p for p in private}
    wide = {module(p): p for p in shared}
    planned = files("rules") if old else files("rules", "autofast/techniques")

    def size(among: dict[str, Path]) -> list[int]:
        return [lines(reached(p, among)) for p in rules]

    ddp = next(p for p in rules if p.stem == "ddp")
    named = [f.name.strip("_") for _, f in functions(files("autofast", "rules"))]
    return {
        "product lines": lines(files("autofast", "rules")),
        "statements and expressions of the product": product(),
        "rule modules: median, longest": (
            statistics.median(lines([p]) for p in rules),
            max(lines([p]) for p in rules),
        ),
        "technique code that a rule reaches: median, ddp": (
            statistics.median(size(below)),
            lines(reached(ddp, below)),
        ),
        "with facts and writing: median, ddp": (
            statistics.median(size(wide)),
            lines(reached(ddp, wide)),
        ),
        "lines with isinstance(..., ast. in rules and techniques": kinds(),
        "comparisons of line numbers": matching(
            beside("flow", "report", "edit"),
            r"\.(end_)?lineno\b[^,)\]]*(<|>)=? |(<|>)=? [^,(]*\.(end_)?lineno\b|position\(.*(<|>)",
        ),
        "functions named for reaching definitions, dominance, call resolution": {
            name: sum(n == name for n in named)
            for name in (
                "reaching",
                "dominates",
                "callees",
                "code_of",
                "is_parameter",
                "declared",
                "binds",
            )
        },
        "functions that tell four or more kinds of statement apart, outside read, flow, edit": statements(),
        "loops over the files, and then over the nodes of each": loops(),
        "calls of methods told by two isinstance": methods(),
        "exceptions for a refusal": matching(
            planned + files("autofast/facts", "autofast/write"), r"^class \w+\(Exception\)"
        )
        + (not old),
        "caches made by hand on a script": matching(
            files("autofast", "rules"), r"WeakKeyDictionary\[Script|script\.__dict__"
        ),
    }


if __name__ == "__main__":
    for what, value in figures().items():
        print(f"{what}: {value}")
