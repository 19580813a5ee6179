"""Reading is the same in every run, whatever the order of Python's sets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FACTS = """
import sys
from pathlib import Path
from autofast.read import read_script
from autofast.model.source import source_of

def at(x):
    node = getattr(x, "node", x)
    return f"{source_of(node).rel}:{node.lineno}:{node.col_offset}" if hasattr(node, "lineno") else str(type(node))

for folder in sorted(Path("fixtures").iterdir()):
    if not (folder / "train.py").exists():
        continue
    script = read_script(folder / "train.py", folder)
    print(folder.name, script.notes)
    for l in script.loaders:
        print("L", at(l), [(d.name, sorted(d.random), sorted(d.reads), d.unknown) for d in l.datasets], [at(u) for u in l.uses], list(l.args.named))
        print([str(getattr(t, "name", None) or getattr(t, "why", None) or getattr(t, "value", type(t).__name__)) for g in l.args.named.values() for t in g.values])
    for s in script.steps:
        print("S", at(s.loop), [[at(x) for x in part] for part in (s.forwards, s.losses, s.backwards, s.updates, s.zeros, s.clips, s.models)])
    print("E", [(at(e), e.mode, e.escapes, e.unknown) for e in script.evaluations], "X", [(at(t), t.unknown) for t in script.transfers])
    print("Y", [at(y) for y in script.syncs], "M", [(m.name, sorted(m.layers), m.unknown) for m in script.models])
    print([(kind, at(site), len(site.occurrences)) for (kind, _), site in script.log._sites.items()])
"""


def facts(seed: str) -> str:
    env = {**os.environ, "PYTHONHASHSEED": seed}
    root = Path(__file__).parent.parent
    return subprocess.run(
        [sys.executable, "-c", FACTS], env=env, cwd=root, capture_output=True, text=True, check=True
    ).stdout


def test_the_same_in_every_run():
    first = facts("1")
    assert len(first.splitlines()) > 200
    assert facts("2") == first
