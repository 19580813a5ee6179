"""What stands around evaluations: others beside them, functions that are one loop, for which a
decorator says what a block says for the loop, and DataParallel's threads, which know of ``no_grad``
but not of ``inference_mode``.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from autofast.edit.edits import Around
from autofast.edit.ignores import is_spared
from autofast.facts.model_mode import trains_at
from autofast.flow.callgraph import CallGraph
from autofast.model.roles import Evaluation
from autofast.model.script import Script
from autofast.model.several import any_in, surely
from autofast.model.source import (
    Nodes,
    at,
    is_elif,
    is_generator,
    nodes_in,
    parent_of,
    walk,
)
from autofast.model.syntax import is_docstring
from autofast.model.values import any_of, of_kind
from autofast.read.recover.evaluations import region_of
from autofast.rule import Finding
from autofast.write.neighbours import follows


# ----------------------------------------------------------------------------------------- replicas
def trained_replicas(script: Script, evaluation: Evaluation) -> str:
    """Why an evaluation may not run under inference_mode; empty where nothing speaks against.

    The replicas' buffers are copied under it, and their threads run outside of it: BatchNorm and
    spectral_norm, which change buffers in training mode, raise there ("Inplace update to inference
    tensor outside InferenceMode"). In evaluation mode they change none.
    """
    sites = script.calls("torch.nn.DataParallel")
    if not sites:
        return ""
    region = region_of(script, evaluation)  # training may run the same code
    passes = [(s, o) for s in evaluation.forwards for o in s if region.meets(s, o)]
    if surely(trains_at(script, o) is False for _, o in passes):
        return ""
    return f"threads of DataParallel ({at(sites[0])}) may change buffers of models that are not in evaluation mode"


# ---------------------------------------------------------------------------------- whole functions
def decorated(
    script: Script, evaluation: Evaluation
) -> tuple[ast.FunctionDef | None, list[Evaluation]]:
    """The function that a decorator tells what a block would tell an evaluation, if there is one,
    and the evaluations that are told by it: several, where it is called by such statements alone.
    """
    graph = script.analysis(CallGraph)
    made = _entered(evaluation)
    group = [e for e in script.evaluations if made and _entered(e) == made and not e.unknown]
    held = {n for e in group if e.mode == "on" for n in walk(e.node)}
    for function in made if len(group) > 1 else ():
        if (
            isinstance(function, ast.FunctionDef)
            and function.name != "forward"
            and not (function.decorator_list or is_generator(function) or graph.complete(function))
            and held.issuperset(graph.sites(function))
        ):
            return function, group
    whole = evaluation.whole
    if whole is not None and isinstance(whole.node, ast.FunctionDef):
        return whole.node, [whole]
    around = parent_of(evaluation.node)
    if isinstance(around, ast.FunctionDef) and not around.decorator_list:
        if all(s is evaluation.node or is_docstring(s) for s in around.body):
            return around, [evaluation]
    return None, [evaluation]


def _entered(evaluation: Evaluation) -> Nodes:
    """The one function that a statement calls for its passes; nothing where it makes some itself,
    or several make them.
    """
    here = set(walk(evaluation.node)) if evaluation.kind == "statement" else set()
    ways = [[*o.stack, s] for s in evaluation.forwards for o in s]
    first = [next((f for f in way if f.node in here), None) for way in ways]
    made = {getattr(getattr(f, "func", None), "node", f.node) for f in first if f is not None}
    return made if len(made) == 1 else set()


# ------------------------------------------------------------------------------------------- blocks
def joined(found: Sequence[Finding], rule: str) -> list[Finding]:
    """The findings of a rule, with one block for those whose statements stand beside each other, or
    are all of both arms of a condition: under no_grad where one of them needs that.
    """
    blocks = [_block(finding, rule) for finding in found]
    regions = [(b, [b]) for b in blocks if b is not None]
    while (pair := _to_join(regions)) is not None:
        whole, parts = pair
        kept = [r for r in regions if not any_in(r[1], parts)]
        header = max(part.header for part in parts)
        regions = [*kept, (replace(whole, header=header), parts)]
    wholes = {id(b): whole for whole, parts in regions if parts[1:] for b in parts}
    return [
        replace(f, edits=(*(e for e in f.edits if e is not b), wholes[id(b)]))
        if id(b) in wholes
        else f
        for f, b in zip(found, blocks, strict=True)
    ]


Region = tuple[Around, list[Around]]  # a block, and the blocks that it takes the place of


def _to_join(regions: Sequence[Region]) -> Region | None:
    """Two of them that one block may stand for; None where there are no more."""
    for one, parts in regions:
        for other, others in regions:
            if follows(one, replace(other, header=one.header)):
                return replace(one, last=other.last), [*parts, *others]
            match parent_of(one.first):
                case ast.If(body=then, orelse=[_, *_] as otherwise) as branch if (
                    (one.first, one.last) == (then[0], then[-1])
                    and (other.first, other.last) == (otherwise[0], otherwise[-1])
                    and not (is_elif(branch) or is_elif(other.first))
                    and not any_of(nodes_in(branch.test, ast.expr), ast.NamedExpr)
                ):
                    return replace(one, first=branch, last=branch), [*parts, *others]
    return None


# `no_grad` comes behind `inference_mode` in the alphabet.
def _block(finding: Finding, rule: str) -> Around | None:
    """The block that a fix puts one evaluation in, which no comment keeps as it is."""
    blocks = of_kind(finding.edits, Around)
    return blocks[0] if blocks and not is_spared(blocks[0].first, rule) else None
