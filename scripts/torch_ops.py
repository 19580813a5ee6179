"""Write ``autofast/ops/torch_ops.toml``: what torch's operations do, as the installed torch says it
itself.

Sources: the schemas of the dispatcher (``Tensor(a)`` shares memory, ``Tensor(a!)`` is written to,
``dtype/layout/device`` make a new tensor), the tags of each overload (pointwise, reduction,
nondeterministic_seeded, ...), the kernels for autograd's view tracking (an operation that has one
is always a view), the autocast lists of ``ATen/autocast_mode.h``, which is installed with torch,
the signatures of ``torch.nn.functional`` (``inplace=``), and trials on small tensors: does a
gradient come out, of which dtype is the result, and is an operation that has no tag put together of
pointwise ones alone?
"""

from __future__ import annotations

import inspect
import re
import textwrap
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

ROOT = Path(__file__).parents[1]
FILE = ROOT / "autofast" / "ops" / "torch_ops.toml"
MARK = {
    "pointwise": "pointwise",
    "reduction": "reduces",
    "nondeterministic_seeded": "random",
    "inplace_view": "inplace_view",  # changes the shape or the strides of its argument
    "data_dependent_output": "syncs",  # its result is a number of the host
    "dynamic_output_shape": "syncs",  # its shape is
}
LISTS = {
    "LOWER_PRECISION_FP": "lower",
    "FP32": "fp32",
    "FP32_SET_OPT_DTYPE": "fp32",
    "DIFFERENT_REDISPATCH_SIGNATURE": "fp32",
    "PROMOTE": "promote",
}
SPACES = ("linalg", "fft", "special")  # of functions whose names in ATen begin so
PROPERTIES = (
    "functions methods functional modules init maybe_view always_view inplace_view pointwise reduces factory random syncs no_gradient out "
    "gives_integers gives_floats gives_complex other_dtype gives_reals gives_numbers with_indices maybe_with_indices "
    "autocast_lower autocast_fp32 autocast_promote"
).split()
DTYPES = {  # as the reader names them
    "f32": (torch.float32,),
    "f64": (torch.float64,),
    "half": (torch.float16, torch.bfloat16),
    "int": (torch.int64, torch.bool),
}
TRIALS = (
    (),
    (0,),
    (1,),
    (2.0,),
    ("x",),
    ("x", "x"),
    (0, "i"),
    ("b",),
    ("b", "x"),
    ((1, 0),),
    (0, 1),
    (0, 0, 1),
)

Table = dict[str, Any]


def generate() -> Table:
    """All properties: for each the names that have it, or for each position the names."""
    named: dict[str, set[str]] = {p: set() for p in PROPERTIES}
    mutates: dict[str, set[str]] = defaultdict(set)
    named["functions"], named["methods"], named["functional"] = _names()
    named["modules"] = {n for n in vars(torch.nn) if not n.startswith("_")}
    named["init"] = {n for n in vars(torch.nn.init) if n.endswith("_") and not n.startswith("_")}
    known = named["functions"] | named["methods"] | named["functional"]
    for schema in torch._C._jit_get_all_schemas():
        name = schema.name.removeprefix("aten::")
        if name in known and schema.name.startswith("aten::") and "Tensor" in str(schema):
            _read(name, schema, named, mutates)
    for kind, found in autocast_lists().items():
        named["autocast_" + kind] = found & known
    named["pointwise"] |= {
        n
        for n in known - named["maybe_view"] - named["always_view"]
        if _is_made_of(n, named["pointwise"])
    }
    named["pointwise"] |= {n + "_" for n in named["pointwise"]} & known
    named["pointwise"] -= named["reduces"]  # max(x) and max(x, y) have one name
    named["no_gradient"] = {n for n in known if _without_gradient(n)}
    for name in sorted(known):
        for property in _dtypes(name):
            named[property].add(name)
    inplace: dict[str, set[str]] = defaultdict(set)
    for name in named["functional"]:
        if (where := _inplace_parameter(name)) is not None:
            inplace[str(where)].add(name)
    named["always_view"] -= named["maybe_view"]
    table: Table = {"torch": torch.__version__.partition("+")[0]}
    table |= {p: sorted(names) for p, names in named.items()}
    for title, positions in (("mutates", mutates), ("inplace", inplace)):
        table[title] = {k: sorted(positions[k]) for k in sorted(positions)}
    return table


def _names() -> tuple[set[str], set[str], set[str]]:
    """What the schemas describe and a script can call: functions by their name in ATen, methods,
    ``torch.nn.functional``.
    """
    every = {
        s.name.removeprefix("aten::")
        for s in torch._C._jit_get_all_schemas()
        if s.name.startswith("aten::")
    }
    every = {n for n in every if not n.startswith("_") or n.startswith("_foreach_")}
    functions = {n for n in every if callable(getattr(torch, n, None))}
    for space in SPACES:
        functions |= {
            n
            for n in every
            if callable(getattr(getattr(torch, space), n.removeprefix(f"{space}_"), None))
            and n.startswith(space)
        }
    methods = {n for n in every if hasattr(torch.Tensor, n)}
    return functions, methods, {n for n in every if callable(getattr(F, n, None))}


def _read(name: str, schema: Any, named: dict[str, set[str]], mutates: dict[str, set[str]]) -> None:
    lists = "list" in str(schema.arguments[0].type).lower() if schema.arguments else False
    if lists and not name.startswith("_foreach_") and not schema.returns:
        return  # a method of Python's lists
    written = {
        a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write
    }
    if any(a.name in written and a.kwarg_only for a in schema.arguments):
        named["out"].add(name)
        return
    for position, argument in enumerate(schema.arguments):
        if argument.name in written:
            mutates[str(position)].add(name)
    full = schema.name + ("." + schema.overload_name if schema.overload_name else "")
    overload = getattr(getattr(torch.ops.aten, name), schema.overload_name or "default", None)
    tags = {t.name for t in overload.tags} if overload is not None else set()
    if "Tensor" not in "".join(str(r.type) for r in schema.returns):
        tags.discard("pointwise")  # of torch.equal
    for tag in tags & set(MARK):
        named[MARK[tag]].add(name)
    shares = not written and any(r.alias_info is not None for r in schema.returns)
    if shares or "maybe_aliasing_or_mutating" in tags and not written:
        named["always_view" if shares and _is_tracked(full) else "maybe_view"].add(name)
    elif {"dtype", "layout", "device"} <= {a.name for a in schema.arguments} and not written:
        named["factory"].add(name)


def _is_tracked(full: str) -> bool:
    """Whether autograd tracks the result of this overload as a view."""
    try:
        return bool(torch._C._dispatch_has_kernel_for_dispatch_key(full, "ADInplaceOrView"))
    except RuntimeError:  # TorchScript has it alone
        return False


def autocast_lists() -> dict[str, set[str]]:
    """For ``lower``, ``fp32`` and ``promote`` the names in the lists that autocast on CUDA has;
    empty where the header has none.
    """
    header = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"
    text = header.read_text() if header.exists() else ""
    found: dict[str, set[str]] = {"lower": set(), "fp32": set(), "promote": set()}
    for title, kind in LISTS.items():
        body = re.search(rf"#define AT_FORALL_{title}\(_\)((?:.*\\\n)+.*)", text)
        found[kind] |= set(re.findall(r"_\((?:ADD_NS\()?(\w+)", body[1])) if body else set()
    return found


def _inplace_parameter(name: str) -> int | None:
    try:
        return list(inspect.signature(getattr(F, name)).parameters).index("inplace")
    except ValueError:  # has no such parameter, or no signature
        return None


class _Calls(TorchDispatchMode):
    """Notes which operations run below a call."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func._schema.name.removeprefix("aten::"))
        return func(*args, **(kwargs or {}))


def _is_made_of(name: str, pointwise: set[str]) -> bool:
    """Whether an operation calls pointwise ones and no others, and gives a tensor, as far as a
    trial on small tensors tells.
    """
    if any(
        a.name == "reduction"
        for s in torch._C._jit_get_schemas_for_operator(f"aten::{name}")
        for a in s.arguments
    ):
        return False  # of a loss, whose default is not the same everywhere
    with _Calls() as calls:
        tensors = [isinstance(r, torch.Tensor) for r in _tried(name, calls.names)]
    return bool(tensors) and all(tensors) and bool(calls.names) and calls.names <= pointwise


def _without_gradient(name: str) -> bool:
    """Whether a result of floating-point operands that require a gradient never requires one, as
    far as a trial on small tensors tells.
    """
    results = [r for r in _tried(name) if isinstance(r, torch.Tensor)]
    return bool(results) and not any(r.requires_grad for r in results)


def _dtypes(name: str) -> Iterator[str]:
    """What is to be said of the dtypes of an operation's results, where they are not those of its
    operands.
    """
    kinds = {dtype: kind for kind, dtypes in DTYPES.items() for dtype in dtypes}
    named = kinds | dict.fromkeys((torch.complex32, torch.complex64, torch.complex128), "complex")
    first: set[tuple[str, str]] = set()
    second: list[str] = []
    plain: set[bool] = set()
    for dtype, kind in kinds.items():
        for result in _called(name, torch.ones(3, 3, dtype=dtype)):
            parts = result if isinstance(result, (tuple, list)) else [result]
            plain.add(isinstance(result, (bool, int, float)))
            found = [named.get(p.dtype, "?") for p in parts if isinstance(p, torch.Tensor)]
            if found and len(found) == len(parts):
                first.add((kind, found[0]))
                paired = len(found) == 2 and isinstance(result, tuple) and kind != "int"
                if kind != "int":
                    second.append(found[1] if paired else "")
    if plain == {True}:
        yield "gives_numbers"
    changed = {(a, b) for a, b in first if a != b}
    if changed and all(b == "int" for _, b in first):
        yield "gives_integers"
    elif changed and changed <= {("int", "f32")} and ("int", "int") not in first:
        yield "gives_floats"
    elif changed and all(b == "complex" for _, b in first):
        yield "gives_complex"
    elif changed:
        yield "other_dtype"
    if _is_real(name):
        yield "gives_reals"
    if "int" in second and set(second) <= {"int", ""}:
        yield "maybe_with_indices" if "" in second else "with_indices"


def _is_real(name: str) -> bool:
    """Whether real numbers come of complex ones."""
    results = _called(name, torch.ones(3, 3, dtype=torch.complex64))
    tensors = [r for r in results if isinstance(r, torch.Tensor)]
    return bool(tensors) and all(r.is_floating_point() for r in tensors)


def _called(name: str, x: torch.Tensor) -> Iterator[Any]:
    """What the operation gives for ``x`` and the other operands of the trials that it takes."""
    function = _function(name)
    stands = {"x": x, "i": torch.tensor([0, 1]), "b": torch.ones(3, 3, dtype=torch.bool)}
    for arguments in TRIALS if function is not None else ():
        if 2.0 in arguments and not (x.is_floating_point() or x.is_complex()):
            continue  # a number is an operand, too
        try:
            yield function(x, *(stands.get(a, a) if isinstance(a, str) else a for a in arguments))
        except Exception:  # whatever it says: these operands are not for it
            continue


def _function(name: str) -> Any:
    if name.endswith("_") or name.startswith(("new_", "_")):
        return None
    places = [(torch.Tensor, name), (torch, name), (F, name)]
    places += [
        (getattr(torch, s), name.removeprefix(s + "_")) for s in SPACES if name.startswith(s)
    ]
    return next((f for space, short in places if callable(f := getattr(space, short, None))), None)


def _tried(name: str, calls: set[str] | None = None) -> Iterator[Any]:
    """What the operation gives for the operands that it takes; ``calls`` then has what ran for
    these alone.
    """
    function = _function(name)
    if function is None:
        return
    for arguments in TRIALS:
        kept = set(calls) if calls is not None else set()
        x = torch.linspace(0.1, 0.9, 9).view(3, 3).requires_grad_()
        stands = {"x": x, "i": torch.tensor([0, 1]), "b": x.detach() > 0.5}
        if calls is not None:
            calls.clear()
            calls |= kept
        try:
            result = function(
                x, *(stands.get(a, a) if isinstance(a, str) else a for a in arguments)
            )
        except Exception:  # whatever it says: these operands are not for it
            if calls is not None:
                calls.clear()
                calls |= kept
            continue
        yield from result if isinstance(result, (tuple, list)) else [result]


def written(table: Table) -> str:
    lines = [
        "# Made by scripts/torch_ops.py from the schemas of the torch that is named here: not to be edited by hand.",
        "",
    ]
    for key, value in table.items():
        if isinstance(value, dict):
            lines += [
                "",
                f"[{key}]  # by position of the argument",
                *(_entry(k, v) for k, v in value.items()),
            ]
        else:
            lines.append(f'{key} = "{value}"' if isinstance(value, str) else _entry(key, value))
    return "\n".join(lines) + "\n"


def _entry(key: str, names: list[str]) -> str:
    return f'{key} = """\n' + textwrap.fill(" ".join(names), 120, break_on_hyphens=False) + '"""'


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    FILE.write_text(written(generate()))
    print(f"{FILE.relative_to(ROOT)}: torch {torch.__version__}")
