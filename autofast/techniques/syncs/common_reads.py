"""Several reads in one step become one: of the same tensor, or of tensors that are shown
together.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autofast.edit.edits import Before, Edit, Remove, Rewrite, plain_code
from autofast.facts.copies import several_gpus
from autofast.facts.freshness import is_fresh
from autofast.flow.changes import changed
from autofast.flow.loops import loop_of
from autofast.flow.positions import index_in_block, is_always, position, statements_beside
from autofast.flow.program import graph_of
from autofast.flow.scopes import declared, loaded_in, mentions
from autofast.model.calls import is_path, short_name
from autofast.model.script import Script
from autofast.model.source import Source, function_of, source_of, within
from autofast.model.syntax import is_read
from autofast.model.values import COLLECTIONS, Tensor, all_of
from autofast.rule import Refusal
from autofast.techniques.syncs.reads import Read, gives_the_same
from autofast.techniques.syncs.scalar_tensors import holds_floats, is_float, is_scalar
from autofast.techniques.syncs.sinks import Sink
from autofast.techniques.syncs.steps import catching_statements, works_between
from autofast.techniques.syncs.substitution import swapped_text
from autofast.write.spelling import torch_in

Edited = tuple[ast.stmt, list[Edit]]


# ---------------------------------------------------------------------------------- the same tensor
@dataclass(eq=False)
class Repeated:
    """Statements that read the same tensor in each turn, in the block of the first or below it;
    those that could be put off are ``sinks``.
    """

    statements: list[ast.stmt]
    reads: list[Read]
    sinks: list[Sink]


def read_once(script: Script, repeated: Repeated) -> list[Edited]:
    """For each statement the edits by which all share one read; raises :class:`Refusal`.

    The read stands before the first statement that cannot wait; statements before it that can wait
    are moved down to it, where work for the device is started in between.
    """
    core = repeated.reads[0].core
    if not isinstance(core, ast.Name):
        raise Refusal("")
    here = statements_beside(repeated.statements[0])
    tops = [next((t for t in here if within(s, t)), None) for s in repeated.statements]
    around = {t: t for t in tops if t is not None}
    scopes = {function_of(s) for s in repeated.statements}
    if None in tops or len(scopes) > 1:
        raise Refusal("")
    source = source_of(core)
    name = value_name(source, core.id)
    movable = {s.statement: s for s in repeated.sinks if s.statement in around}
    fixed = [s for s in repeated.statements if s not in movable]
    first = repeated.statements[0]
    moved: list[Sink] = []
    for statement in repeated.statements:
        if not fixed or statement is fixed[0]:
            break
        sink = movable[statement]
        if not works_between(script, statement, fixed[0]):
            break
        stays = fixed[0] not in around or not isinstance(statement, ast.AugAssign)
        if stays or not may_move(script, sink, fixed[0]):
            raise Refusal("")  # the host would wait for all at the first of them
        moved.append(sink)
        first = fixed[0]
    start = min(repeated.statements, key=position)
    span = here[
        index_in_block(here, start) : max(index_in_block(here, t) for t in around.values()) + 1
    ]
    adjoining = len(span) == len(around)
    if changed(script, span, {core.id}) or not (
        adjoining or is_fresh(script, repeated.reads[0].core)
    ):
        raise Refusal("")
    if moved and next(catching_statements(script, start, loop_of(core)), None) is not None:
        raise Refusal("")
    how = repeated.reads[0]
    shared: list[Edit] = [Before(first, f"{name} = {how.of('{core}')}", holes={"core": how.core})]
    result: list[Edited] = []
    for statement in repeated.statements:
        mine = [r for r in repeated.reads if r.statement is statement]
        sink_here = next((s for s in moved if s.statement is statement), None)
        if sink_here is not None:
            code = plain_code(swapped_text(statement, {r.node: name for r in mine}))
            result.append((statement, [*shared, Remove(statement), Before(first, code)]))
        else:
            result.append((statement, [*shared, *(Rewrite(r.node, name) for r in mine)]))
    return result


def may_move(script: Script, sink: Sink, to: ast.stmt) -> bool:
    """Whether a sum may be added to a little later: nothing in between looks at it, or changes what
    is added.
    """
    if not isinstance(sink.holder, ast.Name) or not isinstance(
        sink.statement, (ast.AugAssign, ast.Expr)
    ):
        return False
    here = statements_beside(sink.statement)
    between = here[index_in_block(here, sink.statement) + 1 : index_in_block(here, to)]
    scope = function_of(sink.holder)
    shared = sink.holder.id in declared(scope) or any(
        function_of(n) is not scope for n in mentions(scope, sink.holder.id)
    )
    held = {t for t in script.values(sink.holder) if isinstance(t, COLLECTIONS)}
    for node in (n for s in between for n in ast.walk(s)):
        match node:
            case ast.Yield() | ast.YieldFrom() | ast.Await():
                return False
            case ast.Name(id=name) if name == sink.holder.id and is_read(node):
                return False
            case ast.expr() if held & script.values(node):
                return False  # by whatever name
            case ast.Call() if shared or (sink.kind != "number" and not _is_of_torch(script, node)):
                return False  # a function may look at it, or hold the meter
    if changed(script, between, loaded_in(sink.statement)):
        return False
    return graph_of(script, to).postdominates(to, sink.statement)


def _is_of_torch(script: Script, call: ast.Call) -> bool:
    names = [getattr(t, "name", "") for t in script.called(call)]
    if names and all(n.startswith(("torch.", "builtins.")) for n in names if n):
        return all(names)
    return isinstance(call.func, ast.Attribute) and all_of(script.values(call.func.value), Tensor)


# --------------------------------------------------------------------------- tensors shown together
def read_together(
    script: Script, statement: ast.stmt, reads: list[Read], origins: Mapping[ast.AST, Read]
) -> list[Edit]:
    """The edits by which a statement gets all its numbers by one copy from the device; raises
    :class:`Refusal`.

    ``origins`` tells of variables (by their use) that hold tensors now, where they come
    from.

    Tensors of one element with different floating-point types are brought to the widest of these,
    which changes no value. Counts must stay integers, so they are not mixed with others.
    """
    cores = [origins.get(r.node, r).core for r in reads]
    if not all(r.how == "item" and is_always(r.node, statement) for r in reads) or several_gpus(
        script
    ):
        raise Refusal("")
    if not all(is_number(script, core) and is_float(script, core) for core in cores):
        raise Refusal("")
    if (
        len(
            {
                frozenset(t.device for t in script.values(core) if isinstance(t, Tensor))
                for core in cores
            }
        )
        != 1
    ):
        raise Refusal("")
    source = source_of(statement)
    torch, imports = torch_in(source)
    if len({r.key for r in reads}) < len(reads) and not all(
        gives_the_same(script, core) for core in cores
    ):
        raise Refusal("")
    distinct: dict[str, Read] = {}
    for read in reads:
        distinct.setdefault(read.key, read)
    names = _names(source, list(distinct.values()))
    holes = {f"c{n}": r.core for n, r in enumerate(distinct.values())}
    parts = [one_number(script, core, hole) for hole, core in holes.items()]
    code = f"{', '.join(names.values())} = {torch}.hstack(({', '.join(parts)})).tolist()"
    edits: list[Edit] = [*imports, Before(statement, code, holes=holes)]
    return edits + [Rewrite(r.node, names[r.key]) for r in reads]


def _names(source: Source, reads: list[Read]) -> dict[str, str]:
    stems = [short_name(r.core) or "tensor" for r in reads]
    for n, (stem, read) in enumerate(zip(stems, reads, strict=True)):
        if stems.count(stem) > 1 and is_path(read.core):  # `d.loss` beside `g.loss`
            stems[n] = ast.unparse(read.core).removeprefix("self.").replace(".", "_")
    return dict(zip([r.key for r in reads], free_names(source, stems), strict=True))


def free_names(source: Source, stems: Sequence[str]) -> list[str]:
    """A new variable for the value of each tensor."""
    names: list[str] = []
    for n, stem in enumerate(stems):
        name = value_name(source, stem)
        names.append(name if name not in names else source.fresh(f"{name}_{n + 1}"))
    return names


def value_name(source: Source, stem: str) -> str:
    """``loss_value`` of ``loss``; ``value_read`` of ``value``."""
    words = ("read", "number") if stem.endswith("value") else ("value", "number", "read")
    return source.fresh(*(f"{stem}_{word}" for word in words))


def one_number(script: Script, core: ast.expr, hole: str) -> str:
    """The template of a tensor that is read as one number, as ``hstack`` takes it: a tensor that
    may have dimensions loses them.
    """
    return "{" + hole + "}" + ("" if is_scalar(script, core) else ".reshape(1)")


def is_number(script: Script, core: ast.expr) -> bool:
    """Whether what is read as one number is known well enough to be read with others."""
    return is_scalar(script, core) or holds_floats(script, core)
