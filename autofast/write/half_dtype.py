"""The 16-bit dtype that a script chooses when it runs: one constant, and where it stands.

Emulated bf16 (GPUs before Ampere) is slower than fp32, so emulation does not count:
`is_bf16_supported(including_emulation=False)` says the same, but is of torch 2.4, and raises
without a GPU until 2.5. On ROCm both are true for every GPU.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from autofast.edit.edits import After, Before, Edits, Helper
from autofast.edit.order import Rank
from autofast.facts.cost.step import Cost
from autofast.facts.set_up import VISIBLE
from autofast.flow.imports import bindings
from autofast.flow.loops import loops_around
from autofast.flow.program import graph_of
from autofast.model.calls import is_same_code, stands_alone
from autofast.model.script import Script
from autofast.model.several import any_in, wordset
from autofast.model.source import (
    Source,
    ancestors,
    any_within,
    function_of,
    is_same_function,
    source_of,
)
from autofast.write.spelling import requires_cuda, torch_in

STARTS_PROCESSES = wordset("multiprocessing torch.multiprocessing")
AVAILABLE = "{torch}.cuda.is_available() and "
FORKS = ("os.fork", "notebook_launcher", "ProcessPoolExecutor")


@dataclass(frozen=True)
class Choice:
    """What is asked of the GPU: as a constant, and as a function where that asks too early."""

    name: str
    constant: str
    function: str


_ASKED = "{torch}.cuda.is_available() and {torch}.cuda.get_device_capability()[0] >= 8"
HAS_BF16 = Choice(
    "has_bf16",
    f"{{name}} = {_ASKED}\n",
    f'''def {{name}}():
    """Whether there is a GPU that computes in bfloat16 (Ampere and newer)."""
    return {_ASKED}
''',
)
AMP_DTYPE = Choice(
    "amp_dtype",
    f"""{{has_bf16}} = {_ASKED}
{{name}} = {{torch}}.bfloat16 if {{has_bf16}} else {{torch}}.float16
""",
    '''def {name}():
    """bfloat16 where the GPU computes in it (Ampere and newer), else float16."""
    if {torch}.cuda.is_available() and {torch}.cuda.get_device_capability()[0] < 8:
        return {torch}.float16
    return {torch}.bfloat16
''',
)


@dataclass(frozen=True)
class Chosen:
    """An expression for the value in a file, and the edits that define it there."""

    code: str
    edits: Edits = ()

    @property
    def is_constant(self) -> bool:
        return not self.code.endswith("()")


def in_module(
    script: Script, source: Source, choice: Choice, places: Sequence[ast.AST] = ()
) -> Chosen:
    """The value for all functions of a file: the one that is there, else a constant, else a
    function.

    The constant stands below the imports, or, where all uses are at ``places``, below the line that
    chooses the devices.
    """
    torch, imports = torch_in(source)
    for stmt in source.tree.body:
        for written, code, name in _named(script, source, choice, stmt):
            if name.startswith(choice.name) and _same(stmt, written, name, torch):
                return Chosen(code)
    name = source.fresh(choice.name)
    below, early = None, asks_too_early(script)
    if early and not starts_processes(script) and places:
        below = _devices_chosen(script, source, places)
        early = below is None
    code = choice.function if early else _constant(script, source, choice)
    code = code.format(name=name, torch=torch, has_bf16=source.fresh("has_bf16"))
    helper = Helper(source, name, code, below)
    return Chosen(f"{name}()" if early else name, (*imports, helper))


def constant(script: Script, choice: Choice) -> str:
    return choice.constant.replace(AVAILABLE, "") if requires_cuda(script) else choice.constant


def _constant(script: Script, source: Source, choice: Choice) -> str:
    """The code of the constant below a file's imports: tests load modules where no GPU is."""
    return constant(script, choice) if source is script.entry else choice.constant


def _named(
    script: Script, source: Source, choice: Choice, stmt: ast.stmt
) -> Iterator[tuple[str, str, str]]:
    """How what a statement defines would be written; its expression, and its name."""
    if isinstance(stmt, ast.FunctionDef):
        yield choice.function, f"{stmt.name}()", stmt.name
    elif isinstance(stmt, ast.Assign) and isinstance(target := stmt.targets[0], ast.Name):
        yield _constant(script, source, choice), target.id, target.id


def _devices_chosen(script: Script, source: Source, places: Sequence[ast.AST]) -> ast.stmt | None:
    """The last statement of a file that sets CUDA_VISIBLE_DEVICES before anything of the file is
    used; None where that is not certain.
    """
    if any(_choosing(s) for s in script.sources if s is not source):
        return None
    last = max((_in_body(source, n) for n in _choosing(source)), default=-1)
    if last < 0 or any(_in_body(source, p) <= last for p in places if source_of(p) is source):
        return None
    body = source.tree.body
    own = {s.name for s in body if isinstance(s, (ast.FunctionDef, ast.ClassDef))}
    done = [s for s in body[: last + 1] if not isinstance(s, (ast.FunctionDef, ast.ClassDef))]
    runs = any(isinstance(n, ast.Name) and n.id in own for s in done for n in ast.walk(s))
    return None if runs or body[last] not in done else body[last]


def _choosing(source: Source) -> list[ast.Constant]:
    """Where a file names CUDA_VISIBLE_DEVICES; what comments and docstrings say chooses nothing."""
    return [
        n
        for n in (source.each(ast.Constant) if VISIBLE in source.text else ())
        if VISIBLE in str(n.value) and not stands_alone(n)
    ]


def _same(stmt: ast.stmt, code: str, name: str, torch: str) -> bool:
    """Whether a statement is the (last) one of this code."""
    made = ast.parse(code.format(name=name, torch=torch, has_bf16="has_bf16")).body[-1]
    return is_same_code(stmt, made)


def asks_too_early(script: Script) -> bool:
    """Whether code that runs when a module is loaded must not ask CUDA: devices are chosen, or
    processes forked, after that.
    """
    return any(map(_choosing, script.sources)) or starts_processes(script)


def starts_processes(script: Script) -> bool:
    """Whether the script starts processes, or may."""
    return bool(script.processes) or any(map(_starts_processes, script.sources))


def _starts_processes(source: Source) -> bool:
    """It may fork: a process that is forked after CUDA was asked cannot use it."""
    modules = {
        name
        for node in source.nodes
        if isinstance(node, ast.stmt)
        for b in bindings(node)
        for name in (b.module, f"{b.module}.{b.name}")
    }
    return bool(modules & STARTS_PROCESSES) or any_in(FORKS, source.text)


# ------------------------------------------------------------------------------- one for all places
@dataclass(eq=False)
class Shared:
    """One value for all ``places`` of a project.

    It stands below ``beside`` (a statement that makes the scaler or the optimizer) where all places
    are in the function of that and come after it; else in each of their modules: above the loops
    of one or two functions that have all places of the file, else below the imports, and where
    that would ask too early in each function, above the first statement with a place.
    """

    script: Script
    choice: Choice
    places: Sequence[ast.AST]
    beside: ast.stmt | None = None
    local: str = field(init=False, default="")  # the statements to write at ``beside``
    imports: Edits = field(init=False, default=())
    _name: str = field(init=False, default="")
    _in: dict[int, Chosen] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.beside is not None and self._all_after(self.beside):
            source = source_of(self.beside)
            torch, self.imports = torch_in(source)
            self._name = source.fresh(self.choice.name)
            self.local = constant(self.script, self.choice).format(
                name=self._name, torch=torch, has_bf16=source.fresh("has_bf16")
            )

    def _all_after(self, beside: ast.stmt) -> bool:
        graph = graph_of(self.script, beside)
        return all(is_same_function(p, beside) and graph.dominates(beside, p) for p in self.places)

    @property
    def is_constant(self) -> bool:
        """Whether it can be asked for once, and not only when a function runs."""
        return all(self.value_for(place).is_constant for place in self.places)

    def value_for(self, place: ast.AST) -> Chosen:
        """The value for a place; without its definition where that is :attr:`local`."""
        if self.local:
            return Chosen(self._name)
        source = source_of(place)
        if id(source) not in self._in:
            self._in[id(source)] = in_module(self.script, source, self.choice, self.places)
        chosen = self._in[id(source)]
        asked = self.choice is HAS_BF16 and chosen.edits
        early = not chosen.is_constant or self._in_loops(source)
        return self._in_function(place) if asked and early else chosen

    def _in_loops(self, source: Source) -> bool:
        """Whether all places of a file are in loops of one or two of its functions that do not run
        once a batch: these ask for a GPU then, above their loops, and not the module's import.
        """
        mine = [p for p in self.places if source_of(p) is source]
        outer = [list(loops_around(p))[-1:] for p in mine]
        if not all(outer) or any(isinstance(function_of(p), ast.Module) for p in mine):
            return False
        often = self.script.analysis(Cost).runs_by_batch
        return len({function_of(p) for p in mine}) <= 2 and not any(
            often(x.test if isinstance(x, ast.While) else x.iter) for [x] in outer
        )

    def _in_function(self, place: ast.AST) -> Chosen:
        source, function = source_of(place), function_of(place)
        assert not isinstance(function, ast.Lambda)  # which holds no statement
        torch, imports = torch_in(source)
        name = source.fresh(self.choice.name)
        code = _constant(self.script, source, self.choice).format(name=name, torch=torch)
        first = next(s for s in function.body if any_within(self.places, s))
        return Chosen(name, (*imports, Before(first, code, rank=Rank.AUTOCAST)))

    def below(self) -> Edits:
        """The edits that define it below ``beside``, where it is local."""
        if not self.local or self.beside is None:
            return ()
        return (*self.imports, After(self.beside, self.local))


def _in_body(source: Source, place: ast.AST) -> int:
    """Which of the module's statements a place is in."""
    outer = [place, *ancestors(place)]
    return next(n for n, s in enumerate(source.tree.body) if s in outer)
