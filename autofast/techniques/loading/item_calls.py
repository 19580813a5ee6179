"""Calls in ``__getitem__``, as they are written for a whole batch: of NumPy, torch and ``random``,
and methods of arrays and tensors.
"""

from __future__ import annotations

import ast
from dataclasses import replace

from autofast.facts.arrays import dtype_named
from autofast.model.calls import has_unpacking, keyword_of
from autofast.model.several import are_whole, is_numeric, surely, wordset
from autofast.model.source import at
from autofast.rule import Refusal
from autofast.techniques.loading.item_parts import Parts
from autofast.techniques.loading.item_values import Draw, Items, Same, Several, Value, no_form

FRACTIONS = frozenset(
    {"random.random", *(f"numpy.random.{n}" for n in ("rand", "random", "random_sample"))}
)
SPANS = wordset("random.uniform numpy.random.uniform")
BELLS = wordset("random.gauss random.normalvariate numpy.random.normal")
BELL = wordset("numpy.random.randn numpy.random.standard_normal")
DRAWING = wordset("rand randn randint normal randperm bernoulli multinomial")
NOISE = {"randn": "randn", "standard_normal": "randn", "normal": "randn", "randn_like": "randn",
         "rand": "rand", "random": "rand", "random_sample": "rand", "uniform": "rand", "rand_like": "rand"}  # fmt: skip
KEPT = wordset("copy clone contiguous ascontiguousarray detach asarray array")
CASTS = {"float": "float32", "double": "float64", "long": "int64", "byte": "uint8", "bool": "bool", "int": "int32"}  # fmt: skip
TAKEN = wordset("from_numpy as_tensor tensor")
BY_NUMBER = wordset("abs exp log log1p sqrt square tanh sigmoid sin cos")
SCALARS = {"builtins.int": "int64", "builtins.float": "float64", "builtins.bool": "bool"}
ARITHMETIC: dict[str, ast.operator] = {"add": ast.Add(), "sub": ast.Sub(), "mul": ast.Mult(), "div": ast.Div()}  # fmt: skip


class Calls(Parts):
    """What a call gives."""

    def call(self, call: ast.Call) -> Value:
        name = self.script.library_function(call)
        starred = has_unpacking(call)
        match call.args:
            case [ast.Starred()] if not call.keywords:
                pass  # ``np.random.randn(*image.shape)``
            case _ if starred:
                raise no_form(call)
        if name and (drawn := self.dice(call, name)) is not None:
            return drawn
        package, _, short = name.rpartition(".")
        if name and (
            package in ("numpy", "torch", "builtins") or name == "torch.nn.functional.pad"
        ):
            if not call.args or starred:
                raise no_form(call)
            return self.function(call, package, short)
        match call.func:
            case ast.Attribute(value=inner, attr=attr) if not name:
                return self.method_of(call, self.value(inner), attr)
        raise Refusal(f"{at(call)}: `{ast.unparse(call.func)}` has no form for batches")

    # ---------------------------------------------------------------------------------------- draws
    def dice(self, call: ast.Call, name: str) -> Value | None:
        """A random number, or random numbers of an item's shape; None where nothing is drawn."""
        package, _, short = name.rpartition(".")
        if package not in ("random", "numpy.random", "torch"):
            return None
        if (noise := self.noise(call, package, short)) is not None:
            return noise
        if package == "torch" and short not in DRAWING:
            return None
        given = [self.value(a) for a in call.args]
        named = {k.arg: self.value(k.value) for k in call.keywords if k.arg}
        if name in ("random.randint", "random.randrange", "numpy.random.randint", "torch.randint"):
            return self.whole(name, given, named, call)
        if name in FRACTIONS and not given and not named:
            return Draw(self.drawn_by("rand", self.n))
        if name == "torch.rand" and not named and _single(given):
            return Draw(self.drawn_by("rand", self.n))
        if name == "torch.randn" and not named and _single(given):
            return Draw(self.drawn_by("randn", self.n))
        if name in SPANS | BELLS | BELL and len(given) <= 2 and not named:
            return self.measured(name, given, call)
        raise Refusal(f"{at(call)}: draws of `{ast.unparse(call.func)}` have no form for batches")

    def measured(self, name: str, given: list[Value], call: ast.Call) -> Draw:
        """Of a span or a bell whose numbers all items share."""
        codes = [v.code for v in given if isinstance(v, Same)]
        if len(codes) != len(given) or (codes and name in BELL):
            raise no_form(call)
        low, high = [*codes, *("0", "1")[len(codes) :]]
        if name in SPANS:
            drawn = self.drawn_by("rand", self.n)
            values = [v.value for v in given if isinstance(v, Same)]
            if len(values) == 2 and all(is_numeric(v) for v in values):
                width = round(values[1] - values[0], 12)  # type: ignore[operator]
                return Draw(f"({low}) + ({width!r}) * {drawn}")
            return Draw(f"({low}) + (({high}) - ({low})) * {drawn}")
        drawn = self.drawn_by("randn", self.n)
        scaled = drawn if high == "1" else f"({high}) * {drawn}"
        return Draw(scaled if low in ("0", "0.0") else f"({low}) + {scaled}")

    def whole(self, name: str, given: list[Value], named: dict[str, Value], call: ast.Call) -> Draw:
        """A whole number: from ``low`` up to, but for ``random.randint``, below ``high``."""
        if name == "torch.randint":
            size = named.pop("size", None) or (given.pop() if len(given) > 1 else Same(""))
            if not _single([size]):
                raise no_form(call)
        low = named.pop("low", None) or (given[0] if len(given) > 1 else Same("0", 0))
        high = named.pop("high", None) or (given[-1] if given else Same(""))
        if named or len(given) > 2 or not isinstance(low, Same) or not isinstance(high, Same):
            raise no_form(call)
        least = low.value if type(low.value) is int else None
        most = high.value if type(high.value) is int else None
        below = high.code
        if name == "random.randint":
            below = str(most + 1) if most is not None else f"({high.code}) + 1"
        elif most is not None:
            most -= 1
        code = self.drawn_by("randint", *([] if least == 0 else [low.code]), below, f"({self.n},)")
        return Draw(code, "int", least, most, self.plain(below) if high.sided else "")

    def noise(self, call: ast.Call, package: str, short: str) -> Items | None:
        """Random numbers for each number of an item: ``np.random.normal(0, 0.1, image.shape)``."""
        if short not in NOISE or package == "random":
            return None
        size = keyword_of(call, "size")
        others = [k.arg for k in call.keywords if k.arg != "size"]
        scale = list(call.args)
        match call.args:
            case [ast.Starred(value=inner)]:
                size, scale = inner, []
            case [only] if short.endswith("_like"):
                like = self.items(self.value(only), call)
                return None if others else self.noise_like(like, short, [], package)
            case [only] if short not in ("normal", "uniform") and size is None:
                size, scale = only, []
            case [*_, last] if len(call.args) == 3 and size is None:
                size, scale = last, call.args[:2]
        match size:
            case ast.Attribute(value=inner, attr="shape") if not others:
                like = self.items(self.value(inner), call)
                return self.noise_like(like, short, [self.value(s) for s in scale], package)
        return None

    def noise_like(self, like: Items, short: str, scale: list[Value], package: str) -> Items:
        drawn = self.drawn_by(NOISE[short], f"({like.code}).shape")
        codes = [v.code for v in scale if isinstance(v, Same)]
        if len(codes) != len(scale) or (scale and (short != "normal" or len(scale) != 2)):
            raise Refusal(
                "noise of another kind than a bell of known width has no form for batches"
            )
        if codes:
            drawn = drawn if codes[1] == "1" else f"({codes[1]}) * {drawn}"
            drawn = drawn if codes[0] in ("0", "0.0") else f"({codes[0]}) + {drawn}"
        double = package.startswith("numpy")
        if not double and short.endswith("_like") and like.dtype not in ("float32",):
            raise Refusal("noise of a type that is not known")
        dtype = "float64" if double else "float32"
        return replace(like, code=drawn, dtype=dtype, made="float32", numpy=double, fresh=True, laid_out=True, taken=True)  # fmt: skip

    # ------------------------------------------------------------------------------------ functions
    def function(self, call: ast.Call, package: str, short: str) -> Value:
        """A function whose first argument is the item."""
        if package == "builtins":
            return self.builtin(call, short)
        first, *rest = call.args
        match first:
            case ast.List(elts=[only]) if short in TAKEN:
                inner = self.items(self.value(only), call)
                return self.taken_over(self.moved(inner, "unsqueeze(1)", 1), call, short)
        value = self.value(first)
        if isinstance(value, Draw):
            raise no_form(call)
        items = self.items(value, call)
        if short in TAKEN:
            return self.taken_over(items, call, short)
        if short == "pad":
            return self.pads(items, rest, call, package)
        return self.changed(items, short, rest, call)

    def builtin(self, call: ast.Call, short: str) -> Value:
        value = self.value(call.args[0])
        single = len(call.args) == 1 and not call.keywords
        match value:
            case Items() if single and f"builtins.{short}" in SCALARS:
                self.learn(value, 0)
                dtype = SCALARS[f"builtins.{short}"]
                if dtype == "float64":
                    return replace(value, code=f"({value.code}).double()", dtype=dtype, made=dtype, taken=True)  # fmt: skip
                return self.cast(value, dtype, call, numpy=False)
            case Items() if single and short == "len":
                return self.side(value, 0)
            case Draw(kind="int") if single and short == "int":
                return value
            case Same() if single and short in ("int", "float", "len", "bool"):
                kinds = {"int": int, "float": float, "len": int}
                return Same(f"{short}({value.code})", kinds.get(short, ...))
        raise no_form(call)

    def taken_over(self, items: Items, call: ast.Call, short: str) -> Items:
        """``torch.from_numpy(image)``, ``torch.tensor(label, dtype=torch.long)``."""
        kind = keyword_of(call, "dtype")
        others = [k for k in call.keywords if k.arg != "dtype"]
        if len(call.args) != 1 or others:
            raise no_form(call)
        held = replace(items, numpy=False, taken=True)
        if kind is None and items.numpy and items.taken and items.made == "float64":
            return self.cast(held, "float32", call, numpy=False)  # a float of Python
        if kind is None:
            return held
        if not (dtype := dtype_named(self.script, kind)) or dtype == "float64":
            raise no_form(call)
        return self.cast(held, dtype, call, numpy=False)

    def pads(self, items: Items, rest: list[ast.expr], call: ast.Call, package: str) -> Items:
        """Borders of one number, at all sides that are named."""
        mode = keyword_of(call, "mode") or (rest[1] if len(rest) > 1 else None)
        filled = keyword_of(call, "constant_values" if package == "numpy" else "value")
        width = keyword_of(call, "pad_width" if package == "numpy" else "pad")
        width = width or (rest[0] if rest else None)
        known = {"mode", "constant_values", "value", "pad_width", "pad"}
        plain = mode is None or self.script.constant(mode) == "constant"
        value = self.script.constant(filled) if filled is not None else 0
        if not plain or {k.arg for k in call.keywords} - known or type(value) not in (int, float):
            raise Refusal("fills borders in a way that has no form for batches", call)
        found = self.numbers_of(width)
        if package != "numpy":
            flat = found if isinstance(found, list) and len(found) % 2 == 0 else None
            if flat is None or not are_whole(flat):
                raise Refusal(f"{at(call)}: how wide borders are is not known")
            pairs = [(flat[n], flat[n + 1]) for n in range(0, len(flat), 2)][::-1]
            return self.padded(items, pairs, repr(value))
        if type(found) is int and (rank := self.rank(items)):
            found = [[found, found]] * rank
        if not isinstance(found, list) or not all(
            isinstance(p, list) and len(p) == 2 and are_whole(p) for p in found
        ):
            raise Refusal(f"{at(call)}: how wide borders are is not known")
        self.learn(items, len(found))
        return self.padded(items, [(a, b) for a, b in found], repr(value))

    def numbers_of(self, expr: ast.expr | None) -> object:
        """Whole numbers, nested as they are written."""
        match expr:
            case None:
                return None
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                return [self.numbers_of(e) for e in elts]
        found = self.script.constant(expr)
        return list(found) if isinstance(found, tuple) else found

    # -------------------------------------------------------------------------------------- methods
    def method_of(self, call: ast.Call, value: Value, attr: str) -> Value:
        if isinstance(value, Draw):
            if attr in ("item", "float") and not call.args:
                return value
            raise no_form(call)
        items = self.items(value, call)
        args = list(call.args)
        if attr in ("astype", "to", "type") and len(args) == 1:
            named = {k.arg for k in call.keywords}
            dtype = dtype_named(self.script, args[0])
            if dtype and not named:
                if dtype == "float64" and not items.numpy:
                    raise Refusal("computes in double precision", call)
                return self.cast(items, dtype, call, numpy=attr == "astype")
        if attr in CASTS and not args and not call.keywords and not items.numpy:
            if attr == "double":
                raise Refusal("computes in double precision", call)
            return self.cast(items, CASTS[attr], call, numpy=False)
        if (op := ARITHMETIC.get(attr.removesuffix("_"))) and len(args) == 1 and not items.numpy:
            other = self.value(args[0])
            return self.two(items, op, other, call) if attr[-1] != "_" else self.in_place(items, op, other, call)  # fmt: skip
        if attr == "size" and len(args) == 1:
            place = self.script.constant(args[0])
            if isinstance(place, int):
                return self.side(items, place)
        return self.changed(items, attr, args, call)

    def changed(self, items: Items, short: str, rest: list[ast.expr], call: ast.Call) -> Value:
        """What changes places of numbers, or each number by itself, as function or method."""
        axes = self.axes(rest, call)
        if short in KEPT and not rest and not call.keywords:
            return replace(items, fresh=items.fresh or short in ("copy", "clone", "array"))
        if short in ("fliplr", "flipud") and not rest:
            return self.flipped(items, [1 if short == "fliplr" else 0])
        if short == "flip" and axes:
            return self.flipped(items, axes)
        if short == "rot90":
            return self.quarter(items, rest, call)
        if short in ("transpose", "permute") and axes and (items.numpy or short == "permute"):
            return self.ordered(items, axes)
        if short == "transpose" and axes is not None and len(axes) == 2:
            one, two = (self.dim(items, a) for a in axes)
            return self.moved(items, f"transpose({one}, {two})")
        if short in ("unsqueeze", "expand_dims") and axes is not None and len(axes) == 1:
            view = self.moved(items, f"unsqueeze({self.dim(items, axes[0], 1)})", 1)
            return replace(view, laid_out=items.laid_out)
        if short in BY_NUMBER and not rest and not call.keywords and "float" in items.made:
            self.computes = True
            return replace(items, code=f"({items.code}).{short}()", fresh=True)
        if short in ("clip", "clamp"):
            return self.bounded(items, rest, call)
        return self.reshaped(items, short, rest, call)

    def axes(self, rest: list[ast.expr], call: ast.Call) -> list[int] | None:
        """Numbers of dimensions, one by one or in a tuple; None where something else is given."""
        named = [k.value for k in call.keywords if k.arg in ("axis", "dims", "dim", "axes")]
        given = [*rest, *named]
        found: object = [self.numbers_of(a) for a in given]
        match found:
            case [list() as inner]:
                found = inner
        known = isinstance(found, list) and are_whole(found)
        if known and isinstance(found, list) and len(named) == len(call.keywords):
            return found
        return None

    def quarter(self, items: Items, rest: list[ast.expr], call: ast.Call) -> Items:
        turns = keyword_of(call, "k") or (rest[0] if rest else None)
        plane = next((k.value for k in call.keywords if k.arg in ("axes", "dims")), None)
        plane = plane or (rest[1] if len(rest) > 1 else None)
        axes = self.numbers_of(plane) if plane is not None else [0, 1]
        match axes:
            case [int() as one, int() as two]:
                by = self.value(turns) if turns is not None else Same("1", 1)
                return self.turned_by(items, by, (one, two), call)
        raise no_form(call)

    def bounded(self, items: Items, rest: list[ast.expr], call: ast.Call) -> Items:
        names = {"a_min": 0, "min": 0, "a_max": 1, "max": 1}
        bounds = [self.value(a) for a in rest]
        for keyword in call.keywords:
            if keyword.arg not in names or len(bounds) != names[keyword.arg]:
                raise no_form(call)
            bounds.append(self.value(keyword.value))
        numbers = [v for v in bounds if isinstance(v, Same) and is_numeric(v.value)]
        if len(numbers) != 2 or len(bounds) != 2 or "float" not in items.made:
            raise no_form(call)
        code = f"({items.code}).clamp({numbers[0].code}, {numbers[1].code})"
        return replace(items, code=code, fresh=True)

    def reshaped(self, items: Items, short: str, rest: list[ast.expr], call: ast.Call) -> Items:
        sides = self.numbers_of(rest[0]) if len(rest) == 1 else [self.numbers_of(a) for a in rest]
        sides = [sides] if type(sides) is int else sides
        flat = short in ("flatten", "ravel") and not rest
        if call.keywords or not (
            flat or (short in ("reshape", "view") and isinstance(sides, list))
        ):
            raise Refusal(f"{at(call)}: `{short}` has no form for batches")
        if flat:
            sides = [-1]
        assert isinstance(sides, list)
        if not surely(type(v) is int and v != 0 for v in sides):
            raise no_form(call)
        if sides == [-1]:
            code = f"({items.code}).flatten(1)"
        else:
            code = f"({items.code}).reshape({', '.join([self.n, *map(str, sides)])})"
        return replace(items, code=code, root="", more=len(sides), shape=self.new_shape())


def _single(given: list[Value]) -> bool:
    """``torch.rand(1)``, ``torch.rand((1,))``, ``torch.rand(())``."""
    match given:
        case [] | [Same(value=1)] | [Several(parts=())] | [Several(parts=(Same(value=1),))]:
            return True
    return False
