"""Expressions whose values are certainly bytes: images as they are decoded, arrays and tensors of
``uint8``.
"""

from __future__ import annotations

import ast

from autofast.facts.attribute_values import given
from autofast.flow.program import Flow
from autofast.model.script import Script
from autofast.model.values import Ref, Unknown, const, one

MODES = frozenset({"RGB", "L", "RGBA", "CMYK", "YCbCr", "HSV"})  # of PIL: eight bits a channel
PICTURES = frozenset(
    "resize crop rotate transpose copy filter thumbnail reduce transform convert effect_spread".split()
)  # methods of a picture that give one of the same mode, but for convert
ARRAYS = frozenset(f"numpy.{n}" for n in ("array", "asarray", "ascontiguousarray", "asanyarray"))
DECODED = frozenset(
    [*(f"cv2.{n}" for n in ("imread", "imdecode"))]
    + [f"torchvision.io.{n}" for n in ("read_image", "decode_image", "decode_jpeg")]
)
CHANGED = frozenset(f"cv2.{n}" for n in ("cvtColor", "resize", "flip", "rotate", "copyMakeBorder"))
CHANGED |= {f"numpy.{n}" for n in ("transpose", "flip", "fliplr", "flipud", "moveaxis", "rot90")}
CHANGED |= {
    f"numpy.{n}" for n in ("expand_dims", "squeeze", "swapaxes", "ascontiguousarray", "copy")
}
TENSORS = frozenset({"torch.from_numpy", "torch.as_tensor", "torch.tensor"})
LAYOUT = frozenset(
    "permute transpose contiguous copy clone unsqueeze squeeze view reshape flip swapaxes".split()
)
MADE = frozenset(
    f"{package}.{n}"
    for package in ("numpy", "torch")
    for n in ("zeros", "ones", "empty", "full", "randint", "array", "asarray", "tensor")
) | {"numpy.random.randint"}
TYPES = frozenset({"numpy.uint8", "torch.uint8"})
DEPTH = 12


def is_bytes(script: Script, expr: ast.expr, depth: int = 0) -> bool:
    """Whether an array or tensor holds bytes, whatever way the script came there."""
    if depth > DEPTH:
        return False
    match expr:
        case ast.Name():
            return _all_bound(script, expr, is_bytes, depth)
        case ast.Attribute():
            made = given(script, expr)
            return bool(made) and all(is_bytes(script, e, depth + 1) for e in made)
        case ast.Subscript(value=inner):
            return is_bytes(script, inner, depth + 1)
        case ast.Call(func=ast.Attribute(value=inner, attr=attr)) if not isinstance(
            one(script.values(expr.func)), Ref
        ):
            if attr in ("astype", "to", "type") and expr.args:
                return _is_type(script, expr.args[0])
            return attr == "byte" or (attr in LAYOUT and is_bytes(script, inner, depth + 1))
        case ast.Call(args=[first, *rest]):
            name = script.library_function(expr)
            types = [k.value for k in expr.keywords if k.arg == "dtype"]
            if name in MADE and types:
                return _is_type(script, types[0])
            if name in DECODED:
                return not rest and not expr.keywords
            if name in CHANGED or (name in TENSORS and not rest and not expr.keywords):
                return is_bytes(script, first, depth + 1)
            if name in ARRAYS and not rest and not expr.keywords:
                return is_bytes(script, first, depth + 1) or is_picture(script, first, depth + 1)
    return False


def is_picture(script: Script, expr: ast.expr, depth: int = 0) -> bool:
    """Whether it is a picture of PIL with eight bits for each channel."""
    if depth > DEPTH:
        return False
    match expr:
        case ast.Name():
            return _all_bound(script, expr, is_picture, depth)
        case ast.Call(func=ast.Attribute(value=inner, attr="convert"), args=[mode]):
            found = script.values(inner)
            known = bool(found) and all(
                isinstance(t, Unknown) and t.name.startswith("PIL.") for t in found
            )
            return known and const(script.values(mode)) in MODES
        case ast.Call(func=ast.Attribute(value=inner, attr=attr)):
            return attr in PICTURES - {"convert"} and is_picture(script, inner, depth + 1)
    return False


def _all_bound(script: Script, name: ast.Name, asked: object, depth: int) -> bool:
    """Whether all that a variable may hold there is what is asked for."""
    assert callable(asked)
    found = script.analysis(Flow).values(name)
    return bool(found) and all(bool(asked(script, value, depth + 1)) for value in found)


def _is_type(script: Script, expr: ast.expr) -> bool:
    found = one(script.values(expr))
    return (isinstance(found, Ref) and found.name in TYPES) or const(script.values(expr)) == "uint8"
