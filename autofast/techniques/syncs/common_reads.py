"""Several reads in one step become one: of the same tensor, or of tensors that are shown
together.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autofast.edit.edits import Before, Edit, Rewrite
from autofast.flow.positions import block, index, position
from autofast.flow.scopes import loaded_in, stored_in
from autofast.model.calls import is_method, short_name
from autofast.model.script import Script
from autofast.model.source import Source, ancestors, function_of, source_of, within
from autofast.model.values import Const, Tensor
from autofast.ops import is_in_place
from autofast.rule import Refusal
from autofast.techniques.syncs.floats import holds_floats, is_float, kind_of
from autofast.techniques.syncs.freshness import is_fresh
from autofast.techniques.syncs.reads import Read, gives_the_same
from autofast.techniques.syncs.scalars import is_scalar
from autofast.techniques.syncs.sinks import Sink
from autofast.techniques.syncs.steps import works_between
from autofast.write.spelling import only_cuda, torch_in

SOMETIMES = (
    ast.IfExp,
    ast.BoolOp,
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
)


def is_always(read: ast.expr, statement: ast.stmt) -> bool:
    """Whether an expression is computed exactly once when its statement runs."""
    here: ast.AST = read
    for outer in ancestors(read):
        if outer is statement:
            return not isinstance(statement, (ast.While, ast.Try)) and not (
                isinstance(outer, ast.Assert) and here is outer.msg
            )
        if isinstance(outer, SOMETIMES) or (isinstance(outer, ast.Compare) and len(outer.ops) > 1):
            return False
        here = outer
    return False


# ---------------------------------------------------------------------------------- the same tensor
@dataclass(eq=False)
class Repeated:
    """Statements that read the same tensor in each turn, in the block of the first or below it;
    those that could be put off are ``sinks``.
    """

    statements: list[ast.stmt]
    reads: list[Read]
    sinks: list[Sink]


def read_once(script: Script, repeated: Repeated) -> list[tuple[ast.stmt, list[Edit]]]:
    """For each statement the edits by which all share one read; raises :class:`Refusal`.

    The read stands before the first of them.
    """
    core = repeated.reads[0].core
    if not isinstance(core, ast.Name):
        raise Refusal("")
    here = block(repeated.statements[0])
    tops = [next((t for t in here if within(s, t)), None) for s in repeated.statements]
    around = {id(t): t for t in tops if t is not None}
    scopes = {id(function_of(s)) for s in repeated.statements}
    if None in tops or len(scopes) > 1:
        raise Refusal("")
    source = source_of(core)
    name = source.fresh(f"{core.id}_value")
    first = repeated.statements[0]
    waits = {id(s.statement) for s in repeated.sinks}
    fixed = next((s for s in repeated.statements if id(s) not in waits), first)
    if works_between(script, first, fixed):
        raise Refusal("")  # the host would wait for all at the first of them
    start = min(repeated.statements, key=position)
    span = here[index(here, start) : max(index(here, t) for t in around.values()) + 1]
    adjoining = len(span) == len(around)
    if _changes(core.id, span) or not (adjoining or is_fresh(script, repeated.reads[0].core)):
        raise Refusal("")
    how = repeated.reads[0]
    shared = Before(first, f"{name} = {how.of('{core}')}", holes={"core": how.core})
    return [
        (s, [shared, *(Rewrite(r.node, name) for r in repeated.reads if r.statement is s)])
        for s in repeated.statements
    ]


def _changes(name: str, statements: Sequence[ast.stmt]) -> bool:
    """Whether statements give the variable another value, or change its tensor in place."""
    for statement in statements:
        if name in stored_in(statement):
            return True
        for node in ast.walk(statement):
            if is_method(node) and is_in_place(node.func.attr, flags=True):
                if name in loaded_in(node.func.value):
                    return True
    return False


# --------------------------------------------------------------------------- tensors shown together
def read_together(
    script: Script, statement: ast.stmt, reads: list[Read], origins: Mapping[int, Read]
) -> list[Edit]:
    """The edits by which a statement gets all its numbers by one copy from the device; raises
    :class:`Refusal`.

    ``origins`` tells of variables (by the id of their use) that hold tensors now, where they come
    from.

    Tensors of one element with different floating-point types are brought to the widest of these,
    which changes no value. Counts must stay integers, so they are not mixed with others.
    """
    cores = [origins.get(id(r.node), r).core for r in reads]
    whole = all(r.how == "item" and is_always(r.node, statement) for r in reads)
    if not whole or not all(is_float(script, core) for core in cores):
        raise Refusal("")
    joined = joined_reads(script, reads, [short_name(r.core) for r in reads], cores)
    edits: list[Edit] = [*joined.imports, Before(statement, joined.code, holes=joined.holes)]
    return edits + [Rewrite(r.node, joined.numbers[id(r.node)]) for r in reads]


@dataclass(frozen=True)
class Joined:
    """One copy of several tensors: ``a_value, b_value = torch.hstack((a, b)).tolist()``, and what
    stands for each read (by the id of its node) then.

    A float of 32 bits stays what it is as one of 64, and so does a count (below 2**53, which no
    batch has).
    """

    imports: Sequence[Edit]
    code: str
    holes: dict[str, ast.expr]
    numbers: dict[int, str]


def joined_reads(
    script: Script, reads: Sequence[Read], stems: Sequence[str], cores: Sequence[ast.expr] = ()
) -> Joined:
    """The statement that reads all at once; raises :class:`Refusal` where they may be of several
    devices, or of kinds that are not known.

    ``stems`` say what the numbers are called, ``cores`` where the tensors come from.
    """
    cores = cores or [r.core for r in reads]
    kinds = {r.key: kind_of(script, core) for r, core in zip(reads, cores, strict=True)}
    devices = {
        frozenset(t.device for t in script.values(core) if isinstance(t, Tensor)) for core in cores
    }
    mixed = set(kinds.values()) == {"float", "int"}
    if (
        not all(kinds.values())
        or not all(is_scalar(script, c) or holds_floats(script, c) for c in cores)
        or (mixed and not only_cuda(script))  # not every device computes in float64
        or several_gpus(script)
        or len(devices) != 1
        or (len(kinds) < len(reads) and not all(gives_the_same(script, c) for c in cores))
    ):
        raise Refusal("")
    source = source_of(reads[0].node)
    torch, imports = torch_in(source)
    distinct: dict[str, tuple[Read, str]] = {}
    for read, stem in zip(reads, stems, strict=True):
        distinct.setdefault(read.key, (read, stem or "tensor"))
    free = free_names(source, [stem for _, stem in distinct.values()])
    names = dict(zip(distinct, free, strict=True))
    holes = {f"c{n}": read.core for n, (read, _) in enumerate(distinct.values())}
    parts = [
        "{"
        + hole
        + "}"
        + ("" if is_scalar(script, core) else ".reshape(1)")
        + (".double()" if mixed and kinds[key] == "int" else "")
        for (hole, core), key in zip(holes.items(), distinct, strict=True)
    ]
    code = f"{', '.join(free)} = {torch}.hstack(({', '.join(parts)})).tolist()"
    numbers = {id(r.node): _number(r, names[r.key], mixed, kinds[r.key]) for r in reads}
    return Joined(imports, code, holes, numbers)


def _number(read: Read, name: str, mixed: bool, kind: str) -> str:
    """The number that the script gets, with its Python type."""
    wanted = {"float": "float", "int": "int"}.get(read.how, kind)
    got = "float" if mixed else kind
    return name if wanted == got else f"{wanted}({name})"


def free_names(source: Source, stems: Sequence[str]) -> list[str]:
    """A new variable for the value of each tensor."""
    names: list[str] = []
    for n, stem in enumerate(stems):
        name = source.fresh(f"{stem}_value")
        names.append(name if name not in names else source.fresh(f"{stem}_value_{n + 1}"))
    return names


def several_gpus(script: Script) -> bool:
    """Whether the script names more than one GPU: its losses may live on different ones."""
    named: set[object] = set()
    for site in script.log.of("move", "move_model", "torch.device"):
        for occurrence in site:
            for given in occurrence.args.every if occurrence.args is not None else ():
                named |= {
                    t.value for t in given.values if isinstance(t, Const) and _names_gpu(t.value)
                }
    return len(named) > 1


def _names_gpu(value: object) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool)) or (
        isinstance(value, str) and value.startswith("cuda:")
    )
