"""Programs that nobody would write, read by autofast: never a crash, and never a change outside of
the lines that an edit touches.

    python -m benchmarks.hardening [PROGRAMS] [SEED]
    python -m benchmarks.hardening [PROGRAMS] [SEED] --grown PIECES

Needs hypothesmith (pip install hypothesmith), which makes programs from Python's grammar. Each is
read by itself, as the body of a training loop and as a neighbour of one, and all rules look at it;
what is found in the loop is also written, in one program of ten. A failure is printed with its
program; exit code 1 where there is one.

hypothesmith needs a tenth of a second for a program, most of them a few words long. With --grown,
it makes so many pieces, and programs
are put together from these: one to three in the bodies of functions, classes, loops, `match`,
`try`, `async with` and so on, two levels deep. A hundred of them stand in one script, each behind a
condition of its own, so that none hides another.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
import sys
import tempfile
import textwrap
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import hypothesis
import hypothesmith

from autofast.commands import planning, rewriting
from autofast.config import Config
from autofast.edit import running
from autofast.model.source import BadInput
from autofast.rule import Effect
from benchmarks import one_tree

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
        if compiles(text):
            made.append(text)

    make()
    yield from made


FRAMES = (
    "def f(a, /, b=1, *c, d, **e):\n{}\n",
    "@outer(model)\ndef g(x: int = (y := 3), *, z=model) -> None:\n{}\n    return x\n",
    "async def h():\n    async with loader as a, optimizer as b:\n{2}\n    return [c async for c in a if c]\n",
    "class A(torch.nn.Module, metaclass=type):\n{}\n    def forward(self, x):\n{2}\n        return x\n",
    "for i, (x, *y) in enumerate(loader):\n{}\nelse:\n{}\n",
    "while n := len(loader):\n{}\n    if n: break\n",
    "try:\n{}\nexcept (ValueError, OSError) as error:\n{}\nelse:\n{}\nfinally: pass\n",
    "try:\n{}\nexcept* ValueError:\n{}\n",
    "with torch.no_grad(), open('f') as f:\n{}\n",
    "match loss:\n    case [a, *b] if a:\n{2}\n    case {'k': torch.nn.Linear(bias=c), **d} | (1 as c):\n{2}\n    case _: pass\n",
    "if total: x = y = model; y.z = x; del x\nelif loss:\n{}\nelse:\n{}\n",
    "x = lambda *a, b=model: (yield_ := b(*a)); model.h, [*model.i] = x, {**{1: x}}\n{0}\n",
    "def gen():\n    global model\n    x = yield from loader\n{}\n    model = yield x\n",
    "total += 1 if loss else 2; loss = f'{loss!r:>{total}}{{}}' ; x: 'torch.Tensor' = loss\n{0}\n",
)


def grown(pieces: list[str], count: int, seed: int) -> Iterator[str]:
    """Programs made of ``pieces``, in frames of frames."""
    random_ = random.Random(seed)

    def one(depth: int) -> str:
        if depth == 0 or random_.random() < 0.2:
            return random_.choice(pieces)
        frame = random_.choice([f for f in FRAMES if sys.version_info >= (3, 11) or "*:" not in f])
        parts = re.split(r"\{([012]?)\}", frame)
        for at in range(1, len(parts), 2):
            indent = "    " * int(parts[at] or 1)
            parts[at] = textwrap.indent(one(depth - 1), indent) + f"\n{indent}pass"
        return "".join(parts)

    while count > 0:
        if compiles(text := one(2)):  # a piece may be no body: a remark on the last line
            count -= 1
            yield text


def together(programs: list[str]) -> str:
    """Many programs in one script, in the loop and behind it in turn."""
    parts: tuple[list[str], list[str]] = ([], [])
    for number, program in enumerate(programs):
        indent = "        " if number % 2 == 0 else "    "
        parts[number % 2].append(
            f"{indent[4:]}if ask({number}):\n{textwrap.indent(program, indent)}\n{indent}pass\n"
        )
    return LOOP.replace("{inside}", "".join(parts[0])).replace("{after}", "".join(parts[1]))


def forms(program: str) -> Iterator[tuple[str, str]]:
    """A program as scripts, each with a name."""
    yield "alone", program
    for name, inside, after in (
        ("in the loop", textwrap.indent(program, "    "), ""),
        ("behind the loop", "", program),
    ):
        text = LOOP.replace("{inside}", inside).replace("{after}", after)
        if compiles(text):  # not `return`, `from __future__` or a text with lines of its own
            yield name, text


def look(folder: Path, text: str, write: bool) -> str:
    """What came of one script; raises where that is not allowed."""
    entry = folder / "train.py"
    entry.write_text(text, encoding="utf-8", newline="")
    try:
        script = planning.read(entry, folder, None, CONFIG)
        plan = planning.plan(script, CONFIG)
        planning.findings(plan)
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


def scripts(count: int, seed: int, pieces: int) -> Iterator[tuple[int, str, str]]:
    """Scripts, each with the number of programs that are new in it, and a name."""
    if pieces:
        # One kind of line end in a script; mixed ones are refused as a whole.
        of = ["\n".join(re.split(r"\r\n?", program)) for program in programs(pieces, seed)]
        made = grown(of, count, seed)
        while some := list(islice(made, 100)):
            yield from fitting(some)
    else:
        for program in programs(count, seed):
            for number, (name, text) in enumerate(forms(program)):
                yield int(number == 0), name, text


def fitting(some: list[str]) -> Iterator[tuple[int, str, str]]:
    """Programs in as few scripts as they fit in: a name that is global in one and set before in
    another fits in none.
    """
    if compiles(text := together(some)):
        yield len(some), f"{len(some)} together", text
    elif len(some) > 1:
        yield from fitting(some[: len(some) // 2])
        yield from fitting(some[len(some) // 2 :])
    else:
        yield 1, "alone", some[0]


def compiles(text: str) -> bool:
    """Whether Python takes it."""
    try:
        compile(text, "program", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return False
    return True


def main() -> int:
    """Run; see the module."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("count", type=int, nargs="?", default=1_000)
    parser.add_argument("seed", type=int, nargs="?", default=0)
    parser.add_argument("--grown", type=int, default=0, metavar="PIECES")
    args = parser.parse_args()
    one_tree()
    warnings.simplefilter("ignore")  # of the programs: invalid escapes, comparisons with literals
    running.rule_failed = raised  # type: ignore[assignment]
    outcomes: Counter[str] = Counter()
    failures = made = read = 0
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        for new, name, text in scripts(args.count, args.seed, args.grown):
            made, read = made + new, read + 1
            try:
                outcomes[look(Path(folder), text, random.Random(read).random() < 0.1)] += 1
            except Exception:
                failures += 1
                print(f"--- {name}\n{text}\n{traceback.format_exc()}", flush=True)
            if made % 100 == 0:
                print(f"{made} programs, {failures} failures", file=sys.stderr, flush=True)
    print(f"{made} programs in {read} scripts; {time.process_time() - began:.0f} s of CPU")
    print(*(f"{n:6} {what}" for what, n in outcomes.most_common(20)), sep="\n")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
