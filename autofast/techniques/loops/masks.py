"""Masks that a loop fills row by row, up to the length of each, or from there on."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from autofast.edit.edits import Edits, Remove, Replace
from autofast.facts.dimensions import dimension_count
from autofast.facts.host_copies import HostCopies
from autofast.facts.smallest import Smallest
from autofast.facts.switches import about_hardware
from autofast.flow.defuse import Definition
from autofast.flow.program import Flow, definitions_of
from autofast.model.calls import is_method, is_name, items_of, only_target, variable_name
from autofast.model.names import last_part
from autofast.model.script import Script
from autofast.model.several import surely, wordset
from autofast.model.source import (
    block_of,
    enclosing,
    nodes_in,
    parent_of,
    running,
    source_of,
    within,
)
from autofast.model.syntax import SEQUENCES, is_constant, is_stored
from autofast.model.tensors import is_dtype
from autofast.model.values import Tensor, is_on_device, library_name, of_kind
from autofast.rule import Effect, Refusal
from autofast.techniques.loops.rows import Planned, Rows, Whole, one_cut
from autofast.write.spelling import torch_in

DEFAULTS = wordset("set_default_dtype set_default_tensor_type set_default_device", "torch.")
# Types by their names, and how truths become numbers of them.
CASTS = {
    "bool": "", "float": ".float()", "float32": ".float()", "long": ".long()",
    "int64": ".long()", "int": ".int()", "int32": ".int()", "uint8": ".byte()", "byte": ".byte()",
    "half": ".half()", "float16": ".half()", "double": ".double()", "float64": ".double()",
}  # fmt: skip
BASES = {"zeros": 0, "ones": 1}


@dataclass
class Made:
    """How a mask is made: filled with ``base``, of these sides (or of those of ``like``); what
    makes truths its type; where (code of a device, empty: on the host).
    """

    base: int
    sides: list[ast.expr]
    like: ast.expr | None = None
    cast: str = ".float()"
    device: str = ""


@dataclass
class Fill:
    """``mask[i, :n] = value``: ``axis`` is that of the slice, ``cut`` the slice."""

    mask: ast.Name
    cut: ast.Slice
    axis: int
    value: ast.expr


def mask_edits(script: Script, rows: Rows) -> Planned:
    """What makes the mask at once that a loop fills; raises :class:`Refusal`, without words where
    it is another loop.
    """
    rows.lists = torch_in(source_of(rows.loop))[0]
    fill = _filled(rows)
    made = script.analysis(Flow).definition(fill.mask)
    if made is None or made.value is None or only_target(made.statement) is not made.node:
        raise Refusal
    return _Mask(script, rows, fill, made).edits(), Effect.EXACT


def _filled(rows: Rows) -> Fill:
    """The one statement of the loop that writes, behind names for rows."""
    *names, last = running(rows.loop.body)
    for name in names:
        if not variable_name(only_target(name)):
            raise Refusal
        rows.check_plain(name.value)  # type: ignore[attr-defined]
    match only_target(last):
        case ast.Subscript(value=ast.Name() as mask, slice=ast.Tuple(elts=[index, *cuts])):
            pass
        case ast.Subscript(value=ast.Subscript(value=ast.Name() as mask, slice=index), slice=rest):
            cuts = items_of(rest)
        case _:
            raise Refusal
    if not is_name(index, rows.index or "?"):
        raise Refusal
    cut = one_cut(cuts)
    return Fill(mask, cut, 1 + cuts.index(cut), last.value)  # type: ignore[attr-defined]


class _Mask:
    def __init__(self, script: Script, rows: Rows, fill: Fill, made: Definition):
        self.script, self.rows, self.fill, self.made = script, rows, fill, made
        self.torch, self.imports = torch_in(source_of(rows.loop))
        self.above = ""  # what stands above the mask

    def edits(self) -> Edits:
        value, rows = self.script.constant(self.fill.value), self.rows
        assert self.made.value is not None
        made = self._creation(self.made.value)
        bounds = [b for b in (self.fill.cut.lower, self.fill.cut.upper) if b is not None]
        wholes = [rows.whole(b) for b in bounds]
        parts = [p for w in wholes for p in w.parts]
        self.rows.check_device([*parts, self.fill.mask])
        if not parts or not isinstance(value, (int, float)) or value == made.base:
            raise Refusal
        self._check(made, bounds, parts)
        mask = self.fill.mask.id
        condition = self._condition(made, parts, {value, made.base} == {0, 1} and value == 0)
        if {value, made.base} == {0, 1}:
            whole = condition.code if not made.cast else f"{condition}{made.cast}"
            self._check_apart()
            assert self.made.statement is not None
            return (
                *self.imports,
                Remove(self.made.statement),
                Replace(rows.loop, f"{self.above}{mask} = {whole}", rows.holes),
            )
        number = rows.hole(self.fill.value)
        code = f"{self.above}{mask}.masked_fill_({condition.code}, {number})"
        return (*self.imports, Replace(rows.loop, code, rows.holes))

    # ------------------------------------------------------------------------------------- legality
    def _check(self, made: Made, bounds: list[ast.expr], parts: list[ast.expr]) -> None:
        for bound in bounds:
            least = self.script.analysis(Smallest).of(bound)
            if least is None or least < 0:
                named = ast.unparse(bound)
                raise Refusal(
                    f"nothing shows that `{named}` is never negative: it would count from the end"
                )
        first = made.like if made.like is not None else self.rows.measured(made.sides[0])
        if first is None:
            raise Refusal(
                f"nothing shows that `{self.fill.mask.id}` has as many rows as the loop turns"
            )
        self.rows.check_rows([*parts, first])
        self.rows.check_names()

    def _check_apart(self) -> None:
        """Raises where something looks at the mask before it is filled."""
        loop, statement = self.rows.loop, self.made.statement
        assert statement is not None
        block = block_of(loop)
        if statement not in block:
            raise Refusal(f"`{self.fill.mask.id}` is made under another condition")
        between = block[block.index(statement) + 1 : block.index(loop)]
        names = {n.id for n in nodes_in(statement, ast.Name)}
        for name in (n for s in between for n in nodes_in(s, ast.Name)):
            if name.id == self.fill.mask.id:
                raise Refusal(f"`{name.id}` is used before it is filled")
            if name.id in names and is_stored(name):
                raise Refusal(f"`{name.id}` gets another value before the loop")

    # ------------------------------------------------------------------------------- how it is made
    def _creation(self, expr: ast.expr) -> Made:
        """How the mask is made, before the loop."""
        match expr:
            case ast.Call(func=ast.Attribute(value=inner, attr=name), args=[], keywords=[]) if (
                name in CASTS
            ):
                made = self._creation(inner)
                made.cast = CASTS[name]
                return made
            case ast.Call(func=ast.Attribute(value=inner, attr="cuda"), args=[], keywords=[]):
                made = self._creation(inner)
                made.device = '"cuda"'
                return made
            case (
                ast.Call(func=ast.Attribute(value=inner, attr="to"), args=[], keywords=[_, *_])
                | ast.Call(func=ast.Attribute(value=inner, attr="to"), args=[_], keywords=[])
            ):
                made = self._creation(inner)
                if not all(k.arg in ("device", "dtype") for k in expr.keywords):
                    raise Refusal
                for given in (*expr.args, *(k.value for k in expr.keywords)):
                    self._placed(made, given)
                return made
            case ast.Call():
                return self._factory(expr)
        raise Refusal

    def _placed(self, made: Made, given: ast.expr) -> None:
        """What ``.to(given)`` does to a mask."""
        found = self.script.values(given)
        if any(map(is_dtype, found)):
            made.cast = self._cast(given)
        elif self.script.may_be(given, Tensor) or not found:
            raise Refusal
        else:
            made.device = self.rows.hole(given)

    def _factory(self, call: ast.Call) -> Made:
        name = self.script.library_function(call)
        short, like = name.removeprefix("torch."), None
        args = list(call.args)
        if is_method(call, "new_zeros", "new_ones") and self.script.must_be(
            call.func.value, Tensor
        ):
            short, like = call.func.attr.removeprefix("new_"), call.func.value
        elif short.endswith("_like") and len(args) == 1:
            short, like = short.removesuffix("_like"), args.pop()
            if dimension_count(self.script, like) != 2:
                raise Refusal
        elif not name.startswith("torch."):
            raise Refusal
        if short not in BASES or self.script.calls(*DEFAULTS):
            raise Refusal
        made = Made(BASES[short], args)
        if like is not None:
            made.device, made.cast = (
                f"{self.rows.hole(like)}.device",
                f".to({self.rows.hole(like)}.dtype)",
            )
        for keyword in call.keywords:
            if keyword.arg == "dtype":
                made.cast = self._cast(keyword.value)
            elif keyword.arg == "device":
                made.device = self.rows.hole(keyword.value)
            elif keyword.arg == "size":
                made.sides = [keyword.value]
            else:
                raise Refusal
        if name.endswith("_like"):
            made.like = like
        elif len(made.sides) == 1 and isinstance(made.sides[0], SEQUENCES):
            made.sides = made.sides[0].elts
        elif len(made.sides) == 1:
            made.like, made.sides = _first_two(made.sides[0]), []
        return made

    def _cast(self, dtype: ast.expr) -> str:
        name = library_name(self.script.values(dtype))
        if last_part(name) not in CASTS or name == "builtins.float":
            raise Refusal
        return CASTS["int64" if name == "builtins.int" else last_part(name)]

    # ------------------------------------------------------------------------------ what is written
    def _condition(self, made: Made, parts: list[ast.expr], turned: bool) -> Whole:
        """Where the mask has its value, or (``turned``) where it has not."""
        low, high = self.fill.cut.lower, self.fill.cut.upper
        axis, count = self.fill.axis, 2 if made.like is not None else len(made.sides)
        others = [s for n, s in enumerate(made.sides) if n not in (0, axis)]
        if axis >= count or not all(is_constant(s, 1) for s in others):
            raise Refusal
        columns = (
            f"{self.rows.hole(made.like)}.shape[1]"
            if made.like is not None
            else self.rows.hole(made.sides[axis])
        )
        device, move = self._devices(made, parts)
        positions = f"{self.torch}.arange({columns}{f', device={device}' if device else ''})"
        if axis < count - 1:
            positions += f".view(-1{', 1' * (count - 1 - axis)})"
        as_column = f".view(-1{', 1' * (count - 1)})"

        def bound(expr: ast.expr) -> str:
            whole = self.rows.whole(expr)
            return f"{whole}{move}{as_column}" if whole.parts else f"{whole}"

        if low is None or high is None:
            sign = "<" if (low is None) != turned else ">="
            return Whole(f"{positions} {sign} {bound(low or high)}", atom=False)  # type: ignore[arg-type]
        name = source_of(self.rows.loop).fresh("positions")
        self.above = f"{name} = {positions}\n"
        inside = f"({name} >= {bound(low)}) & ({name} < {bound(high)})"
        return Whole(f"~({inside})" if turned else inside, atom=False)

    def _devices(self, made: Made, parts: list[ast.expr]) -> tuple[str, str]:
        """Where the positions are made, and what brings the lengths there, which may be on the
        host where all else that looks at them fetches them back.
        """
        mine, theirs = self._device(self.fill.mask), set[str]().union(*map(self._device, parts))
        copies, loop = self.script.analysis(HostCopies), self.rows.loop
        stays = any(copies.stays(n, loop) for n in nodes_in(loop, ast.expr))
        if mine == theirs and len(mine) == 1 and "?" not in mine and not stays:
            return made.device, ""
        begun = ", non_blocking=True" if stays else ""  # no wait in the place of the other
        if made.device:
            return made.device, f".to({made.device}{begun})"
        if len(parts) == 1 and "dev" in theirs and self._is_only_moved():
            rows = self.rows.measured(made.sides[0]) if stays and made.sides else None
            if rows is None or not surely(map(is_on_device, self.script.values(rows))):
                return f"{self.rows.hole(parts[0])}.device", ""
            device = f"{self.rows.hole(rows)}.device"
            return device, f".to({device}{begun})"
        return "", ".cpu()"

    def _device(self, expr: ast.expr) -> set[str]:
        return {t.device for t in of_kind(self.script.values(expr), Tensor)}

    def _is_only_moved(self) -> bool:
        """Whether the mask is copied to the device before anything looks at it, where there is
        one.
        """
        definitions = definitions_of(self.script, self.rows.loop)
        uses = [n for n in definitions.uses(self.made) if not within(n, self.rows.loop)]
        moved = [t.operand for t in self.script.transfers if t.to_device]
        others = {d for n in uses if n not in moved for d in definitions.reaching(n)} - {self.made}
        return (
            bool(uses)
            and all(n in moved or definitions.reaching(n) - {self.made} for n in uses)
            and all(self._is_moved_there(d) for d in others)
        )

    def _is_moved_there(self, made: Definition) -> bool:
        """``if use_cuda: mask = mask.cuda()``"""
        branch = enclosing(made.node, ast.If)
        moves = [t.node for t in self.script.transfers if t.to_device]
        return (
            made.value in moves
            and branch is not None
            and parent_of(made.statement) is branch  # type: ignore[arg-type]
            and made.statement in branch.body
            and about_hardware(self.script, branch.test)
        )


def _first_two(shape: ast.expr) -> ast.expr:
    """``x`` of ``x.shape[:2]``."""
    match shape:
        case ast.Subscript(
            value=ast.Attribute(value=of, attr="shape"),
            slice=ast.Slice(lower=None, upper=ast.Constant(value=2), step=None),
        ):
            return of
    raise Refusal
