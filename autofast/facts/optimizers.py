"""What fused optimizers ask of a training."""

from __future__ import annotations

import ast

from autofast.model.script import Script
from autofast.model.source import line_of
from autofast.model.values import const

SINCE = (
    2,
    4,
)  # fused SGD on CUDA since 2.3, on the CPU since 2.4; before, CPU parameters were an error at construction


SPARSE = (
    "torch.nn.Embedding",
    "torch.nn.EmbeddingBag",
    "torch.nn.functional.embedding",
    "torch.nn.functional.embedding_bag",
)


def sparse(script: Script) -> str:
    for site in script.log.of("new", *SPARSE):
        for occurrence in site:
            name = getattr(occurrence.this, "name", "")
            at = 7 if name.endswith(".embedding_bag") else 6
            flag = (
                occurrence.args.given(at, "sparse")
                if occurrence.args is not None and name in SPARSE
                else None
            )
            if flag is not None and const(flag.values) is not False:
                return f"the embedding of line {line_of(site.node)} may have sparse gradients, which no fused kernel takes"
    for node in (n for source in script.sources for n in ast.walk(source.tree)):
        if isinstance(node, ast.Call):
            pretrained = (
                isinstance(node.func, ast.Attribute) and node.func.attr == "from_pretrained"
            )
            for keyword in node.keywords:
                asked = keyword.arg == "sparse_grad" or (pretrained and keyword.arg == "sparse")
                if asked and const(script.values(keyword.value)) is not False:
                    return (
                        f"line {node.lineno} may give sparse gradients, which no fused kernel takes"
                    )
    return ""
