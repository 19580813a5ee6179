"""cast-on-device: copy integers to the device before they are cast to floats."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import Rewrite, Wrap
from autofast.facts.copies import against_source, batch_dtypes
from autofast.facts.cost import gains
from autofast.model.script import Script
from autofast.model.tensors import dtype_of
from autofast.rule import Effect, Finding, Options, rule


@rule(
    "cast-on-device",
    Effect.EXACT,
    groups=("transfer",),
    relieves={"transfer": 4},
    asks=gains.copies,
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Copy integers of a batch to the device as they are, and cast them to floats there."""
    for transfer in script.transfers if options.target != "cpu" else ():
        cast = transfer.node.func.value if isinstance(transfer.node.func, ast.Attribute) else None
        if not (
            transfer.how in ("to", "cuda")
            and transfer.loops
            and isinstance(cast, ast.Call)
            and isinstance(cast.func, ast.Attribute)
        ):
            continue
        batch, template = cast.func.value, _template(script, cast, cast.func.attr)
        if (
            template
            and transfer.kinds & {"cuda", "mps", "accel", "option", "xpu", "?"}
            and batch_dtypes(script, batch) & {"int", "?"}
        ):
            message = f"casts `{ast.unparse(batch)}` to floats on the host, and copies these to the device"
            holes = {"dtype": cast.args[0]} if cast.args else {}
            edits = (
                Rewrite(cast, "{batch}", {"batch": batch}),
                Wrap(transfer.node, template, holes),
            )
            why = against_source(script, transfer, batch)
            yield Finding(transfer.node, message, edits=() if why else edits, refusal=why)


def _template(script: Script, cast: ast.Call, name: str) -> str:
    """The cast around another expression; empty where it is none to floats."""
    if name in ("float", "double", "half", "bfloat16"):
        return f"{{}}.{name}()" if not cast.args and not cast.keywords else ""
    dtypes = {dtype_of(t) for arg in cast.args for t in script.values(arg)}
    return (
        f"{{}}.{name}({{dtype}})"
        if name in ("to", "type")
        and len(cast.args) == 1
        and not cast.keywords
        and dtypes
        and dtypes <= {"f32", "f64", "half"}
        else ""
    )
