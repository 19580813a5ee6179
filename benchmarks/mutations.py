"""Whether exact rewrites stay exact on scripts that nobody wrote.

    python -m benchmarks.mutations [--seconds N] [--seed N] [--changes N] [--only WORD] [--cuda]
                                   [--halves] [--keep DIR]

Small trainings (the scripts of the tests of rules, and those of ``benchmarks.ways``) are changed at
random: a call goes through a function or a container, a statement below a condition or into a
function, something is computed, kept, read, stepped or drawn once more. What still runs is
rewritten up to ``exact``, with all that is not worth its lines, and run before and after. What both
print and the parameters, buffers and optimizer states that are left must be the same to the last
bit; with ``--halves``, which writes mixed precision alone, it is enough that both run. Each
difference is given with the rules that bring it about alone, and kept with ``--keep``.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import io
import os
import random
import sys
import tempfile
import textwrap
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeGuard

import torch

from autofast.edit import running
from autofast.rule import Effect
from benchmarks import one_tree
from benchmarks.ways.__main__ import CONFIGS, raised, rewritten, run_once
from benchmarks.ways.all_claims import CLAIMS
from benchmarks.ways.running import run

EVERYTHING = CONFIGS["everything"]
HELPERS = """\
import contextlib
import torch


def call_it(function, *args, **kwargs):
    return function(*args, **kwargs)


def same(value):
    return value


class Kept:
    pass


kept, box = [], Kept()
"""
END = """
for thing in (*kept, *vars(box).values()):
    print(thing.detach() if torch.is_tensor(thing) else type(thing))
"""
WITH_BLOCKS = (ast.Module, ast.For, ast.While, ast.If, ast.With, ast.FunctionDef)
ODD = frozenset("super locals globals vars exec eval dir print isinstance range".split())

Change = Callable[["Mutation"], bool]


def bases() -> Iterator[tuple[str, str]]:
    """Names and texts of the scripts that are changed."""
    for path in sorted(Path("tests").glob("test_*.py")):
        for node in ast.parse(path.read_text()).body:
            value = getattr(node, "value", None)
            text = value.value if isinstance(value, ast.Constant) else None
            if isinstance(text, str) and "import torch" in text and "backward()" in text:
                yield f"{path.stem}:{node.lineno}", textwrap.dedent(text)
    for claim in CLAIMS:
        for way in claim.ways:
            yield f"{claim.name}, {way}", claim.text(way)


# -------------------------------------------------------------------------------- what stands where
def kinds_of(text: str) -> dict[int, dict[str, str]]:
    """What the variables are at each statement, by its line: found out by running the script."""
    found: dict[int, dict[str, str]] = defaultdict(dict)

    def note(line: int, names: dict[str, Any]) -> None:
        for name, value in names.items():
            if kind := _kind(value):
                known = found[line].setdefault(name, kind)
                if known != kind:
                    found[line][name] = ""

    tree = _noted(ast.parse(text))
    scope: dict[str, Any] = {"__name__": "__main__", "__note__": note}
    with elsewhere():
        exec(compile(ast.unparse(tree), "train.py", "exec"), scope)
    return found


@contextlib.contextmanager
def elsewhere() -> Iterator[None]:
    """In a folder of its own, without a word."""
    here, nowhere = Path.cwd(), io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        try:
            os.chdir(folder)
            with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
                yield
        finally:
            os.chdir(here)


def _kind(value: object) -> str:
    match value:
        case torch.Tensor() if value.is_floating_point():
            return "tensor" if value.numel() > 1 else "scalar"
        case torch.nn.Module():
            return "module"
        case torch.optim.Optimizer():
            return "optimizer"
        case int() if not isinstance(value, bool):
            return "count"
    return ""


def _noted(tree: ast.AST) -> ast.AST:
    """The script, with a note of all variables before each statement."""
    for node in [n for n in ast.walk(tree) if isinstance(n, WITH_BLOCKS)]:
        for block in _blocks(node):
            block[:] = [s for old in block for s in (*_note(old), old)]
    return tree


def _note(statement: ast.stmt) -> list[ast.stmt]:
    text = f"__note__({statement.lineno}, {{**globals(), **locals()}})"
    return [] if _is_first(statement) else ast.parse(text).body


def _is_first(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for field in ("body", "orelse", "finalbody"):
        block = getattr(node, field, None)
        if isinstance(block, list) and block:
            yield block


# ------------------------------------------------------------------------------------------ changes
class Mutation:
    """A script that is changed."""

    def __init__(self, text: str, kinds: dict[int, dict[str, str]], seed: int):
        self.random, self.kinds = random.Random(seed), kinds
        self.tree = ast.parse(text)
        self.calls = [copy.deepcopy(n) for n in ast.walk(self.tree) if isinstance(n, ast.Call)]

    def places(self) -> list[tuple[list[ast.stmt], int]]:
        """The blocks in which there are steps, and the positions in them."""
        around = [n for n in ast.walk(self.tree) if isinstance(n, WITH_BLOCKS)]
        return [(b, i) for n in around for b in _blocks(n) for i in range(len(b)) if not _is_first(b[i])]

    def named(self, statement: ast.stmt, *kinds: str) -> str:
        """A variable of one of these kinds at a statement; empty where there is none."""
        found = self.kinds.get(getattr(statement, "lineno", 0), {})
        names = sorted(n for n, k in found.items() if k in kinds and not n.startswith("__"))
        return self.random.choice(names) if names else ""

    def is_pass(self, call: ast.Call) -> bool:
        """Whether a call seems to be one of a model."""
        names = {n.id for n in ast.walk(call.func) if isinstance(n, ast.Name)}
        modules = {n for at in self.kinds.values() for n, kind in at.items() if kind == "module"}
        return bool(names & modules) and bool(call.args)

    def pick(self, *kinds: type[ast.stmt]) -> tuple[list[ast.stmt], int] | None:
        found = [(b, i) for b, i in self.places() if not kinds or isinstance(b[i], kinds)]
        return self.random.choice(found) if found else None

    def text(self) -> str:
        future = [s for s in self.tree.body if _is_first(s)]
        rest = [s for s in self.tree.body if not _is_first(s)]
        parts = (ast.Module(future, []), ast.parse(HELPERS), ast.Module(rest, []))
        return "\n\n".join(ast.unparse(ast.fix_missing_locations(p)) for p in parts) + END


INSERTED = [
    "kept.append({tensor})",
    "kept.append({tensor}.detach().clone())",
    "box.{tensor} = {tensor}",
    "print(float({scalar}))",
    "print({tensor}.sum().item())",
    "{tensor}.data.mul_(0.5)",
    "{tensor} = {tensor} * 0.5",
    "{tensor} = same({tensor})",
    "{tensor} = [{tensor}][0]",
    "{scalar} = {scalar} + 0.1 * {tensor}.mean()",
    "{scalar} += 0.1 * {tensor}.mean()",
    "{scalar} = {scalar} * 0.5 + {scalar}.detach()",
    "box.other = {module}",
    "{module}.eval()",
    "{module}.train()",
    "print(sum(p.grad.abs().sum().item() for p in {module}.parameters() if p.grad is not None))",
    "print(sum(p.abs().sum().item() for p in {module}.parameters()))",
    "kept.append([p.grad for p in {module}.parameters()])",
    "for p in {module}.parameters():\n    p.data.mul_(0.99)",
    "with torch.no_grad():\n    for p in {module}.parameters():\n        p.mul_(0.99)",
    "box.sum = getattr(box, 'sum', 0) + sum(p.pow(2).sum() for p in {module}.parameters())",
    "{scalar} = {scalar} + 0.01 * sum(p.pow(2).sum() for p in {module}.parameters())",
    "{optimizer}.zero_grad()",
    "{optimizer}.step()",
    "{optimizer}.zero_grad(set_to_none=False)",
    "print(torch.rand(1).item())",
    "box.run = lambda: {tensor}.sum()",
    "kept.append(box.run()) if hasattr(box, 'run') else None",
    "{count} = {count} + 0",
]  # fmt: skip


def insert(mutation: Mutation) -> bool:
    """One more statement, with variables that are there."""
    if (place := mutation.pick()) is None:
        return False
    block, index = place
    pattern = mutation.random.choice(INSERTED)
    names = {}
    for kind in ("tensor", "scalar", "module", "optimizer", "count"):
        if f"{{{kind}}}" in pattern:
            names[kind] = mutation.named(block[index], kind)
            if not names[kind]:
                return False
    block[index:index] = ast.parse(pattern.format(**names)).body
    return True


def compute_again(mutation: Mutation) -> bool:
    """A call that stands somewhere in the script, made once more, and kept or added to a loss."""
    if (place := mutation.pick()) is None or not mutation.calls:
        return False
    block, index = place
    call = ast.unparse(mutation.random.choice(mutation.calls))
    scalar = mutation.named(block[index], "scalar")
    forms = ["kept.append({})", "box.more = {}", "{}", "more = {}"]
    if scalar:
        forms += [f"{scalar} = {scalar} + 0.1 * {{}}.float().mean()"] * 2
    block[index:index] = ast.parse(mutation.random.choice(forms).format(call)).body
    return True


def compute_for_later(mutation: Mutation) -> bool:
    """A pass of a model whose result is added to a loss further down."""
    passes = [c for c in mutation.calls if mutation.is_pass(c)]
    later = [(b, i) for b, i in mutation.places() if i and mutation.named(b[i], "scalar")]
    if not passes or not later:
        return False
    block, index = mutation.random.choice(later)
    scalar = mutation.named(block[index], "scalar")
    call = ast.unparse(mutation.random.choice(passes))
    form = mutation.random.choice(["{}", "call_it(lambda: {})", "same({})", "[{}][0]"])
    used = f"{scalar} = {scalar} + 0.1 * more.float().mean()"
    block[index:index] = ast.parse(used).body
    first = mutation.random.randrange(index)
    block[first:first] = ast.parse(f"more = {form.format(call)}").body
    return True


def repeat(mutation: Mutation) -> bool:
    if (place := mutation.pick(ast.Expr, ast.Assign, ast.AugAssign)) is None:
        return False
    block, index = place
    block.insert(index, copy.deepcopy(block[index]))
    return True


def leave_out(mutation: Mutation) -> bool:
    if (place := mutation.pick(ast.Expr, ast.AugAssign)) is None:
        return False
    block, index = place
    block[index] = ast.Pass()
    return True


def swap(mutation: Mutation) -> bool:
    if (place := mutation.pick(ast.Expr, ast.Assign, ast.AugAssign)) is None:
        return False
    block, index = place
    if index + 1 >= len(block):
        return False
    block[index], block[index + 1] = block[index + 1], block[index]
    return True


AROUND = (
    "if len(kept) >= 0:\n    ...",
    "if len(kept) % 2 == 0:\n    ...",
    "for _ in range(1):\n    ...",
    "with contextlib.nullcontext():\n    ...",
    "try:\n    ...\nfinally:\n    pass",
)


def put_below(mutation: Mutation) -> bool:
    """A statement below a condition, a loop, a context."""
    if (place := mutation.pick(ast.Expr, ast.Assign, ast.AugAssign, ast.If)) is None:
        return False
    block, index = place
    (outer,) = ast.parse(mutation.random.choice(AROUND)).body
    outer.body = [block[index]]  # type: ignore[attr-defined]
    block[index] = ast.copy_location(outer, block[index])
    return True


def into_function(mutation: Mutation) -> bool:
    """Statements into a function that is called in their place."""
    if (place := mutation.pick(ast.Expr, ast.Assign, ast.AugAssign, ast.If, ast.For)) is None:
        return False
    block, index = place
    length = mutation.random.randint(1, 3)
    moved = block[index : index + length]
    if any(isinstance(n, ENDING) for s in moved for n in ast.walk(s)):
        return False
    stored = sorted({n.id for s in moved for n in ast.walk(s) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)})
    at_top = any(block[index] is s for s in _top(mutation.tree))
    word = "global" if at_top else "nonlocal"
    name = f"part_{mutation.random.randrange(1000)}"
    made = ast.parse(f"def {name}():\n    pass\n{name}()").body
    made[0].body = [*([ast.parse(f"{word} {', '.join(stored)}").body[0]] if stored else []), *moved]  # type: ignore[attr-defined]
    block[index : index + length] = made
    return True


ENDING = (ast.Break, ast.Continue, ast.Return, ast.Yield, ast.YieldFrom, ast.Await, ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)  # fmt: skip


def _top(tree: ast.AST) -> Iterator[ast.stmt]:
    """The statements that run as code of the module itself."""
    for block in _blocks(tree):
        for statement in block:
            yield statement
            if not isinstance(statement, ast.FunctionDef | ast.ClassDef):
                yield from _top(statement)


def wrap_expression(mutation: Mutation) -> bool:
    """A call by another way, or its result through a container."""
    found = [n for s in _steps(mutation.tree) for n in ast.walk(s) if _is_plain_call(n)]
    if not found:
        return False
    node = mutation.random.choice(found)
    old = copy.deepcopy(node)
    text = ast.unparse(old)
    function, given = ast.unparse(old.func), text[len(ast.unparse(old.func)) + 1 : -1]
    forms = [
        f"call_it({function}, {given})" if given else f"call_it({function})",
        f"(lambda: {text})()",
        f"[{text}][0]",
        f"{{'k': {text}}}['k']",
        f"same({text})",
    ]
    if isinstance(old.func, ast.Attribute):
        forms.append(f"getattr({ast.unparse(old.func.value)}, {old.func.attr!r})({given})")
    new = ast.parse(mutation.random.choice(forms), mode="eval").body
    assert isinstance(new, ast.Call | ast.Subscript)
    _replace(mutation.tree, node, new)
    return True


def _steps(tree: ast.AST) -> list[ast.AST]:
    return [n for n in ast.walk(tree) if isinstance(n, ast.For | ast.While | ast.FunctionDef)]


def _is_plain_call(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") not in ODD


def _replace(tree: ast.AST, old: ast.AST, new: ast.AST) -> None:
    class Replacing(ast.NodeTransformer):
        def generic_visit(self, node: ast.AST) -> ast.AST:
            return new if node is old else super().generic_visit(node)

    Replacing().visit(tree)


CHANGES: list[Change] = [insert, insert, insert, compute_again, compute_for_later, compute_for_later, repeat, leave_out, swap,
                         put_below, into_function, wrap_expression, wrap_expression]  # fmt: skip


def mutated(text: str, kinds: dict[int, dict[str, str]], seed: int, most: int) -> str:
    mutation = Mutation(text, kinds, seed)
    for _ in range(mutation.random.randint(1, most)):
        mutation.random.choice(CHANGES)(mutation)
    return mutation.text()


# ------------------------------------------------------------------------------------------ judging
def culprits(text: str, before: str, rules: str, cuda: bool, halves: bool) -> str:
    """The rules that alone make the script show something else."""
    found = []
    for rule in rules.split():
        try:
            new, _ = rewritten(text, replace(EVERYTHING, effect=Effect.ROUNDING, select=(rule,)))
        except Exception:
            continue
        after, error = run(new, cuda)
        if error or not (halves or after == before):
            found.append(rule)
    return " ".join(found) or f"together: {rules}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--changes", type=int, default=4)
    parser.add_argument("--only", default="")
    parser.add_argument("--cuda", action="store_true")
    parser.add_argument("--halves", action="store_true")
    parser.add_argument("--keep", type=lambda text: Path(text).resolve())
    args = parser.parse_args()
    config = CONFIGS["halves"] if args.halves else EVERYTHING
    args.cuda = args.cuda or args.halves
    one_tree()
    running.rule_failed = raised  # type: ignore[assignment]
    chosen = random.Random(args.seed)
    scripts = [(n, t) for n, t in bases() if args.only in n]
    kinds: dict[str, dict[int, dict[str, str]] | None] = {}
    counts, blamed, began = Counter[str](), Counter[str](), time.time()
    seed = args.seed * 1_000_000
    while time.time() - began < args.seconds:
        name, text = chosen.choice(scripts)
        seed += 1
        if name not in kinds:
            before, error = run_once(text, args.cuda)
            kinds[name] = None
            if before and not error:
                try:
                    kinds[name] = kinds_of(text)
                except BaseException:
                    counts["not profiled"] += 1
        known = kinds[name]
        if known is None:
            continue
        try:
            new = mutated(text, known, seed, args.changes)
            compile(new, "train.py", "exec")
        except (SyntaxError, ValueError):
            counts["no program"] += 1
            continue
        before, error = run(new, args.cuda)
        if error or not before or run(new, args.cuda)[0] != before:
            counts["does not run"] += 1
            continue
        try:
            made, rules = rewritten(new, config)
        except Exception as problem:
            counts["raises"] += 1
            _report(args.keep, seed, name, f"{type(problem).__name__}: {problem}", new, "")
            continue
        if made == new:
            counts["untouched"] += 1
            continue
        after, error = run(made, args.cuda)
        if not error and (args.halves or after == before):
            counts["same"] += 1
            continue
        who = culprits(new, before, rules, args.cuda, args.halves)
        counts["fails" if error else "other"] += 1
        blamed[who] += 1
        _report(args.keep, seed, name, f"{who}{': ' + error if error else ''}", new, made)
    print(f"torch {torch.__version__}", dict(counts), dict(blamed), sep="\n")
    return int(bool(blamed) or counts["raises"] > 0)


def _report(keep: Path | None, seed: int, name: str, said: str, text: str, made: str) -> None:
    print(f"{seed} {name}: {said}", flush=True)
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        (keep / f"{seed}.py").write_text(text)
        (keep / f"{seed}_fast.py").write_text(made)


if __name__ == "__main__":
    sys.exit(main())
