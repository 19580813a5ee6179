"""The function that is written for a batch's share of its window."""

from __future__ import annotations

import ast

from autofast.model.calls import is_same_code

HELPER = '''def {name}(loader, step, accumulation_steps):
    """The share of batch ``step`` in the samples of its window: the last batch and the last window may be smaller than the others."""
    batches = loader.batch_sampler or loader.sampler

    def samples(n):
        """How many there are in the first ``n`` batches."""
        return min(n * batches.batch_size, len(batches.sampler))

    first = step - step % accumulation_steps
    last = min(first + accumulation_steps, len(loader))
    return (samples(step + 1) - samples(step)) / (samples(last) - samples(first))
'''


def is_share(function: ast.AST) -> bool:
    """Whether a function is the one that is written here: it works with every sampler of torch."""
    if not isinstance(function, ast.FunctionDef):
        return False
    made = ast.parse(HELPER.format(name=function.name)).body[0]
    assert isinstance(made, ast.FunctionDef)
    return is_same_code(made.args, function.args) and list(map(ast.dump, made.body[1:])) == list(
        map(ast.dump, function.body[1:])
    )
