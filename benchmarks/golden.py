"""What a refactoring must not change: the findings and texts of every plan that tests, fixtures and
scripts of others reach.

    python -m pytest -p benchmarks.golden --golden CASES
        records the plans that the test suite makes
    python -m benchmarks.golden add CASES FOLDER...
        the scripts named in FOLDER/*/entry.txt (one path in each), as plans
    python -m benchmarks.golden run CASES OUT.json
        what all rules find and write now
    python -m benchmarks.golden diff OLD.json NEW.json
        what differs, grouped by rule; exit 1 where something does
    python -m benchmarks.golden show CASES KEY
        one plan: its findings and its diff

A case is a folder of files with an entry, the names of rules and the options: what ``Plan.make``
was given, without the test around it. Compare ``run`` of the tree before a change with ``run`` of
the tree after it; both need the same cases.
"""

from __future__ import annotations

import base64
import difflib
import hashlib
import json
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from autofast import registry
from autofast.commands.planning import options_of
from autofast.config import Config
from autofast.edit.plan import Plan
from autofast.model.script import Script
from autofast.model.source import BadInput, source_of
from autofast.read import read_script
from autofast.rule import Effect, Options

LARGEST = 4_000_000  # bytes of a project that a case carries
KEPT = {".py", ".ipynb", ".toml", ".cfg", ".txt", ".yaml", ".yml", ".json"}
ALL = (registry.ALL,)
CONFIGS = {
    "default": Config(),
    "fp16": Config(precision="fp16"),
    "recipe": Config(select=ALL, effect=Effect.RECIPE, accumulate=4),
    "ddp": Config(select=ALL, effect=Effect.RECIPE, ddp=True),
}
DERIVED = ("decisions", "requested")  # what the plan fills in
SETS = ("selected", "asked", "named")
Case = dict[str, Any]


# ---------------------------------------------------------------------------------------- recording
def pytest_addoption(parser: Any) -> None:
    """The option that names the folder of cases."""
    parser.addoption(
        "--golden", default=None, help="record every plan that the tests make in this folder"
    )


def pytest_configure(config: Any) -> None:
    """Record what reaches ``Plan.make``, in each process of the test run."""
    folder = config.getoption("--golden")
    if folder:
        record_into(Path(folder))


def record_into(folder: Path) -> None:
    """From now on, write every plan of registered rules into ``folder``, once each."""
    folder.mkdir(parents=True, exist_ok=True)
    make = Plan.make.__func__  # type: ignore[attr-defined]

    def recording(
        cls: type[Plan],
        script: Script,
        options: Options,
        rules: Any,
        effect: Effect,
        line_length: int | None = None,
    ) -> Plan:
        chosen = list(rules)
        known = registry.all_rules()
        if all(known.get(rule.name) is rule for rule in chosen) and (
            case := _case(script, options, [r.name for r in chosen], effect)
        ):
            _write(folder, case)
        plan: Plan = make(cls, script, options, chosen, effect, line_length)
        return plan

    Plan.make = classmethod(recording)  # type: ignore[assignment, method-assign]


def _case(script: Script, options: Options, rules: list[str], effect: Effect) -> Case | None:
    sources = [s for s in script.sources if s.path.is_absolute()]
    inside = {s.path for s in sources if not s.rel.startswith("/")}
    roots = {
        Path(str(s.path)[: -len(s.rel) - 1])
        for s in sources
        if s.path in inside and s.path.as_posix().endswith("/" + s.rel)
    }
    if len(roots) != 1 or inside != {s.path for s in script.sources}:
        return None
    files = {s.rel: s.raw for s in script.sources}
    return {
        "entry": script.entry.rel,
        "files": {rel: base64.b64encode(raw).decode() for rel, raw in sorted(files.items())},
        "options": _given(options),
        "rules": sorted(rules),
        "effect": int(effect),
    }


def _given(options: Options) -> Case:
    given = {name: value for name, value in asdict(options).items() if name not in DERIVED}
    return {**given, **{name: sorted(getattr(options, name)) for name in SETS}}


def _write(folder: Path, case: Case) -> str:
    text = json.dumps(case, sort_keys=True)
    key = hashlib.sha1(text.encode()).hexdigest()[:16]
    path = folder / f"{key}.json"
    if not path.exists():
        path.write_text(text, encoding="utf-8")
    return key


def add(folder: Path, projects: list[Path]) -> int:
    """Cases for scripts on disk: each project has a file ``entry.txt`` with the path of its entry,
    relative to the project.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made = 0
    for project in (
        p for top in projects for p in sorted(top.iterdir()) if (p / "entry.txt").is_file()
    ):
        entry = (project / "entry.txt").read_text(encoding="utf-8").strip()
        files = {
            p.relative_to(project).as_posix(): p.read_bytes()
            for p in sorted(project.rglob("*"))
            if p.suffix in KEPT and p.is_file()
        }
        files = {rel: raw for rel, raw in files.items() if rel.endswith((".py", ".ipynb"))}
        for config in CONFIGS.values():
            rules = registry.select(config.select, config.ignore, config.given)
            options = options_of(config, rules)
            _write(
                folder,
                {
                    "entry": entry,
                    "files": {rel: base64.b64encode(raw).decode() for rel, raw in files.items()},
                    "options": _given(options),
                    "rules": sorted(rule.name for rule in rules),
                    "effect": int(config.effect),
                },
            )
            made += 1
    return made


# ------------------------------------------------------------------------------------------ running
def run(folder: Path, jobs: int = 2, only: str = "") -> dict[str, Any]:
    """What all cases give now: key -> findings and digests of the new texts; cases of the same
    project are read once.
    """
    groups: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(folder.glob("*.json")):
        case = json.loads(path.read_text(encoding="utf-8"))
        if only and only not in case["rules"]:
            continue
        groups[json.dumps([case["entry"], case["files"]], sort_keys=True)].append(path)
    results: dict[str, Any] = {}
    work = list(groups.values())
    with ProcessPoolExecutor(jobs) as pool:
        for n, found in enumerate(pool.map(_group, work, chunksize=8)):
            results.update(found)
            if n % 100 == 0:
                print(f"{n} of {len(work)} projects", file=sys.stderr)
    return results


def _group(paths: list[Path]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as tmp:
        script: Script | None = None
        started = time.process_time()
        for path in paths:
            case = json.loads(path.read_text(encoding="utf-8"))
            try:
                script = script or _laid_out(case, Path(tmp))
                found[path.stem] = _outcome(_plan(script, case))
            except BadInput as error:
                found[path.stem] = {"error": str(error)}
            except Exception as error:
                found[path.stem] = {"error": f"{type(error).__name__}: {error}"}
        found[paths[0].stem]["seconds"] = round(time.process_time() - started, 3)
    return found


def _laid_out(case: Case, root: Path) -> Script:
    for rel, text in case["files"].items():
        path = root / rel
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(text))
    return read_script(root / case["entry"], root)


def _plan(script: Script, case: Case) -> Plan:
    known = registry.all_rules()
    given = case["options"]
    known_options = {f.name for f in fields(Options)} - set(DERIVED)  # a case may be older
    given = {name: value for name, value in given.items() if name in known_options}
    sets = {name: frozenset(given[name]) for name in SETS if name in given}
    options = replace(Options(), **{**given, **sets})
    return Plan.make(
        script, options, [known[name] for name in case["rules"]], Effect(case["effect"])
    )


def _outcome(plan: Plan) -> dict[str, Any]:
    findings = [_words(finding) for finding in plan.findings]
    try:
        texts = {
            s.rel: hashlib.sha1(text.encode()).hexdigest()[:12] for s, text in plan.texts().items()
        }
    except Exception as error:
        texts = {"error": f"{type(error).__name__}: {error}"}
    return {"findings": findings, "texts": texts}


def _words(f: Any) -> list[Any]:
    return [
        f.rule,
        f.status,
        source_of(f.node).rel,
        getattr(f.node, "lineno", 0),
        f.message,
        f.refusal,
        f.advice,
    ]


# ---------------------------------------------------------------------------------------- comparing
def differences(old: dict[str, Any], new: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """(rule, key, what) of every difference between two runs over the same cases."""
    for key in sorted(old.keys() & new.keys()):
        a, b = old[key], new[key]
        if a.get("error") != b.get("error"):
            yield "error", key, f"{a.get('error', '-')} -> {b.get('error', '-')}"
            continue
        before, after = ([json.dumps(f) for f in side.get("findings", ())] for side in (a, b))
        changed = False
        for line in difflib.ndiff(sorted(before), sorted(after)):
            if line[0] in "+-":
                changed = True
                yield json.loads(line[2:])[0], key, line
        if not changed and a.get("texts") != b.get("texts"):
            yield "texts", key, f"other text, same findings: {a.get('texts')} -> {b.get('texts')}"
    for key in sorted(old.keys() ^ new.keys()):
        yield "cases", key, "only in one of the two runs"


def main(arguments: list[str]) -> int:
    """See the module's docstring."""
    match arguments:
        case ["add", folder, *projects]:
            print(add(Path(folder), [Path(p) for p in projects]), "plans")
        case ["run", folder, out, *rule]:
            started = time.time()
            results = run(Path(folder), only=rule[0] if rule else "")
            Path(out).write_text(json.dumps(results, sort_keys=True), encoding="utf-8")
            seconds = sum(r.get("seconds", 0) for r in results.values())
            total = sum(len(r.get("findings", ())) for r in results.values())
            print(
                f"{len(results)} plans, {total} findings, {seconds:.0f} s of CPU, {time.time() - started:.0f} s"
            )
        case ["diff", old, new]:
            found = list(
                differences(*(json.loads(Path(p).read_text(encoding="utf-8")) for p in (old, new)))
            )
            for name, key, what in found:
                print(f"{name}\t{key}\t{what}")
            print(
                Counter(name for name, _, _ in found),
                f"in {len({key for _, key, _ in found})} plans",
                file=sys.stderr,
            )
            return 1 if found else 0
        case ["show", folder, key]:
            case_ = json.loads((Path(folder) / f"{key}.json").read_text(encoding="utf-8"))
            with tempfile.TemporaryDirectory() as tmp:
                plan = _plan(_laid_out(case_, Path(tmp)), case_)
                for finding in plan.findings:
                    print(*_words(finding))
                for source, text in plan.texts().items():
                    print(
                        "".join(
                            difflib.unified_diff(
                                source.text.splitlines(True),
                                text.splitlines(True),
                                source.rel,
                                source.rel,
                            )
                        )
                    )
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
