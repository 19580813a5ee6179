"""Programs that nobody would write, read by autofast: never a crash, and never a change outside of the lines that an edit touches.

    python -m benchmarks.hardening [PROGRAMS] [SEED]

Needs hypothesmith (pip install hypothesmith), which makes programs from Python's grammar. Each is read by itself, as the body of a training
loop and as a neighbour of one, and all rules look at it; what is found in the loop is also written, in one program of ten. A failure is
printed with its program; exit code 1 where there is one.
"""

from __future__ import annotations

import ast
import random
import sys
import tempfile
import textwrap
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import hypothesmith

from autofast.commands import rewriting
from autofast.config import Config
from autofast.edit import running
from autofast.model.source import BadInput
from autofast.rule import Effect

LOOP = """
import torch
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Linear(4, 1).to(device)
optimizer = torch.optim.Adam(model.parameters())
loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8)
total = 0.0
for x, y in loader:
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    total += loss.item()
{inside}
{after}
"""
CONFIG = Config(effect=Effect.RECIPE, select=("all",), exhaustive=True)


def programs(count: int, seed: int) -> Iterator[str]:
    """Programs that the running Python compiles."""
    made: list[str] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(hypothesmith.from_node() | hypothesmith.from_grammar())
    def make(text: str) -> None:
        try:
            compile(text, "program", "exec")
        except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
            return
        made.append(text)

    make()
    yield from made


def forms(program: str) -> Iterator[tuple[str, str]]:
    """A program as scripts, each with a name."""
    yield "alone", program
    for name, inside, after in (
        ("in the loop", textwrap.indent(program, "    "), ""),
        ("behind the loop", "", program),
    ):
        text = LOOP.replace("{inside}", inside).replace("{after}", after)
        try:
            compile(text, name, "exec")
        except (SyntaxError, ValueError, RecursionError):
            continue  # `return`, `from __future__` or a text with lines of its own
        yield name, text


def look(folder: Path, text: str, write: bool) -> str:
    """What came of one script; raises where that is not allowed."""
    entry = folder / "train.py"
    entry.write_text(text, encoding="utf-8", newline="")
    try:
        script = rewriting.read(entry, folder, None, CONFIG)
        plan = rewriting.plan(script, CONFIG)
        rewriting.findings(plan)
        if not write:
            return "read"
        result = rewriting.rewrite(entry, folder, CONFIG)
    except BadInput as error:
        return f"refused: {str(error).split('train.py')[-1][:60]}"
    for source, new in result.texts.items():
        ast.parse(new)
        old_lines, new_lines = source.text.split("\n"), new.split("\n")
        at = grown = 0
        for hunk in sorted(result.plan.hunks(), key=lambda h: h.old):
            if hunk.source is source:
                same = old_lines[at : hunk.old[0]]
                assert new_lines[at + grown : hunk.new[0]] == same, "other lines changed"
                at, grown = hunk.old[1], hunk.new[1] - hunk.old[1]
        assert new_lines[at + grown :] == old_lines[at:], "other lines changed"
    return "written" if result.texts else "left as it is"


def raised(rule: object, _script: object, error: Exception) -> None:
    """A rule that raises is only left out at a user's; here it is what is looked for."""
    raise error


def main(count: int = 1_000, seed: int = 0) -> int:
    """Run; see the module."""
    warnings.simplefilter("ignore")  # of the programs: invalid escapes, comparisons with literals
    running.raised = raised  # type: ignore[assignment]
    outcomes: Counter[str] = Counter()
    failures = made = 0
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        for program in programs(count, seed):
            made += 1
            for name, text in forms(program):
                try:
                    outcomes[look(Path(folder), text, random.Random(made).random() < 0.1)] += 1
                except Exception:
                    failures += 1
                    print(f"--- {name}\n{text}\n{traceback.format_exc()}", flush=True)
            if made % 100 == 0:
                print(f"{made} programs, {failures} failures", file=sys.stderr, flush=True)
    print(f"{made} programs of {count} compile; {time.process_time() - began:.0f} s of CPU")
    print(*(f"{n:6} {what}" for what, n in outcomes.most_common(20)), sep="\n")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
