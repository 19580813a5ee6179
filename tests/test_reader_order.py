"""Reading is the same in every run, whatever the order of Python's sets."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

from autofast.facts.retained_graphs import gone_through_twice
from autofast.flow.program import Flow
from autofast.model.source import nodes_in
from autofast.model.values import const
from tests.reading import read

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


def test_what_a_variable_may_be_and_where_comes_in_the_order_of_the_text(tmp_path: Path) -> None:
    """So that a refusal which names the first of them names the same in every run."""
    arms = "".join(f"elif n == {k}:\n    word = 'w{k:02d}'\n" for k in range(10, 30))
    text = f"import sys\nn = int(sys.argv[1])\nif n == 1:\n    word = 'w01'\n{arms}print(word)\n"
    script = read(tmp_path, text)
    load = next(
        n for n in nodes_in(script.entry.tree, ast.Name) if n.id == "word" and n.lineno > 40
    )
    lines = [d.node.lineno for d in script.analysis(Flow).reaching(load)]  # type: ignore[attr-defined]
    assert len(lines) == 21 and lines == sorted(lines)
    words = [const(frozenset({t})) for t in script.values(load)]
    assert len(words) == 21 and words == sorted(words)


def test_the_pass_that_two_backwards_share_is_the_first(tmp_path: Path) -> None:
    losses = "".join(f"    l{k} = model(x).pow(2).mean()\n" for k in range(8))
    added = " + ".join(f"l{k}" for k in range(8))
    text = f"""\
import torch
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, in DataLoader(TensorDataset(torch.randn(32, 4)), batch_size=8):
{losses}    optimizer.zero_grad()
    ({added}).backward(retain_graph=True)
    (2 * ({added})).backward()
    optimizer.step()
"""
    shared = gone_through_twice(read(tmp_path, text))
    assert shared is not None and shared[2].lineno == 6  # type: ignore[attr-defined]
