"""Copies on the device of which nothing is wanted there but their numbers on the host: lengths that
are sent along with a batch, only to be fetched back for ``pack_padded_sequence``.

Such a copy could have stayed on the host: each use asks for its size, reads it, loops over it or
copies it. Integers may be computed with, by numbers, which comes to the same on every device.
"""

from __future__ import annotations

import ast

from autofast.facts.element_reads import LENGTH, NUMBERS, ONE, READS, SIZES, VIEWS
from autofast.facts.read_only import ReadOnly
from autofast.flow.callgraph import Function, code_of
from autofast.flow.usage import Act, Usage, is_identity
from autofast.flow.valueflow import Answer, ValueFlow, Verdict, first_reason
from autofast.model.calls import arguments_of, items_of, literal_of
from autofast.model.roles import Transfer
from autofast.model.script import Script
from autofast.model.several import of_kind, surely, wordset
from autofast.model.source import ByNode, Nodes, at, function_of, parent_of
from autofast.model.syntax import has_star
from autofast.model.tensors import tensors_in
from autofast.model.values import Const, Ext, Inst, Num, Ref, Thing, is_named

# Where in what an expression gives the copy stands: (1, "n") for x[1]["n"]; EACH: in each element.
Path = tuple[object, ...]
EACH = None
SIGNS = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.Compare)
COMPUTED = wordset("sum max min clamp clip")
ITERATORS = wordset("enumerate zip", "builtins.")
EXTREMES = wordset("max min", "builtins.")
ASKING = wordset("torch.is_tensor builtins.isinstance")
# What takes lengths on the host as well: their places among the arguments, and their names.
CTC = {2: "input_lengths", 3: "target_lengths"}
PACKS = {
    "torch.nn.utils.rnn.pack_padded_sequence": {1: "lengths"},
    "torch.nn.CTCLoss": CTC,
    "torch.nn.functional.ctc_loss": CTC,
}
HOOKS = ("register_forward_hook", "register_forward_pre_hook")


class ReadBack(ValueFlow[Path]):
    """What becomes of one copy: ``holding`` are the expressions that are it, or computed from it,
    ``waits`` what waits for it, ``why`` it is needed on the device.
    """

    def __init__(self, script: Script):
        super().__init__(script)
        self.copies: ByNode[Transfer] = {t.node: t for t in script.transfers}
        self.waits: Nodes = set()
        self._why = "a hook may get it" if script.methods(*HOOKS) else ""
        # Whether it certainly holds integers, and whether that matters.
        self._is_whole = self._counts = False

    @property
    def elsewhere(self) -> str:
        """What else the copy is needed for."""
        return self._why

    @property
    def why(self) -> str:
        return self._why or ("it may hold fractions" if self._counts > self._is_whole else "")

    @property
    def holding(self) -> Nodes:
        return {expr for expr, path in self._seen if not path}

    def follow(self, expr: ast.expr, context: Path) -> str:
        """To the end, whatever is found on the way."""
        why = super().follow(expr, context)
        self._why = self._why or why
        return ""

    # -------------------------------------------------------------------------------------- one use
    def judge(self, use: Usage, context: Path) -> Answer:
        node = use.node
        match use.act, context, node:
            case (Act.DROPPED, _, _):
                return Verdict.STOPS
            case (Act.BOUND | Act.RETURNED, _, _) | (Act.CHOSEN, _, ast.IfExp()):
                return Verdict.GOES_ON
            case (Act.HELD, _, ast.Tuple(elts=parts) | ast.List(elts=parts)) if not has_star(parts):
                return self.follow(node, (parts.index(use.expr), *context))
            case (Act.HELD, _, ast.Dict(keys=keys, values=parts)) if all(keys):
                key = literal_of(keys[parts.index(use.expr)])
                return self.follow(node, (key, *context)) if key is not None else self.lost(use)
            case (Act.TAKEN, (place, *rest), ast.Subscript(slice=ast.Constant(value=key))):
                return self.follow(node, tuple(rest)) if key == place else Verdict.STOPS
            case (Act.YIELDED, _, ast.Yield()):
                return self._handed_out(use, context)
            case (Act.LOOPED, () | (None, *_), _):
                return first_reason(self.bind(t, context[1:]) for t in use.targets)
            case (Act.ASKED, (), ast.Attribute(attr=attr)):
                return self._asked(use, attr)
            case (Act.TAKEN, (), ast.Subscript(slice=index)) if self._are_numbers(index):
                return Verdict.GOES_ON
            case (Act.INDEXES, (), ast.Slice()):
                return self._read(use, whole=True)
            case (Act.TESTED, (), _):
                return self._read(use)
            case (Act.COMPUTED | Act.COMPARED, (), _):
                parts = [*of_kind(ast.iter_child_nodes(node), ast.expr)]
                if is_identity(node):
                    return Verdict.STOPS
                if isinstance(getattr(node, "op", node), SIGNS) and self._are_numbers(
                    *(p for p in parts if p is not use.expr)
                ):
                    return self._computed(use)
        return self.lost(use)

    def _handed_out(self, use: Usage, context: Path) -> Answer:
        """What becomes of what a generator yields, where its object is looped over."""
        function = function_of(use.node)
        if self.calls.handed(function):  # type: ignore[arg-type]
            return self.lost(use)
        why = ""
        for entry in self.calls.entries(function):
            over = self.script.values(getattr(entry, "iter", entry))
            if isinstance(entry, ast.Call) and entry in self.calls.sites(function):  # type: ignore[arg-type]
                why = why or self.follow(entry, (EACH, *context))
            elif isinstance(entry, ast.For) and surely(map(_gives_its_own, over)):
                why = why or self.bind(entry.target, context)
            else:
                why = why or self.lost(use)
        return why or Verdict.STOPS

    def _read(self, use: Usage, whole: bool = False) -> Verdict:
        self.waits.add(use.expr if isinstance(use.node, ast.Slice) else use.node)
        self._is_whole |= whole
        return Verdict.STOPS

    def _computed(self, use: Usage) -> Answer:
        dtypes = {t.dtype for t in tensors_in(self.script.values(use.result or use.expr))}
        self._counts |= dtypes != {"int"}
        return Verdict.GOES_ON if dtypes <= {"int", "?"} else self.lost(use)

    def _asked(self, use: Usage, attr: str) -> Answer:
        call = use.result
        if call is use.node or not isinstance(call, ast.Call):
            if attr in VIEWS:
                return Verdict.GOES_ON
            return Verdict.STOPS if attr in SIZES else self.lost(use)
        copy = self.copies.get(call)
        if attr in READS | {"cpu", "numpy"}:
            self.waits.add(call)
            kept = attr == "numpy" and _Array(self.script).follow(call, None)
            return kept or (Verdict.GOES_ON if attr == "cpu" else Verdict.STOPS)
        if copy is not None and copy.to_device and copy.only_moves:  # from the host, then
            return ReadOnly(self.script).follow(call, None) or Verdict.STOPS
        if attr in ("long", "int") and surely(
            t.dtype == "int" for t in tensors_in(self.script.values(use.expr))
        ):
            return Verdict.GOES_ON
        if attr in COMPUTED and self._are_numbers(*arguments_of(call)):
            known = attr not in ("max", "min") or not arguments_of(call)
            return self._computed(use) if known else self.lost(use)
        return (
            Verdict.STOPS if attr in SIZES else Verdict.GOES_ON if attr in ONE else self.lost(use)
        )

    def _are_numbers(self, *parts: ast.expr) -> bool:
        """Numbers, and slices by numbers."""
        for part in (p for whole in parts for p in items_of(whole)):
            bounds = of_kind(ast.iter_child_nodes(part), ast.expr)
            if isinstance(part, ast.Slice):
                if not self._are_numbers(*bounds):
                    return False
            elif not surely(isinstance(t, Const | Num) for t in self.script.values(part)):
                return False
        return True

    # ---------------------------------------------------------------------------------------- calls
    def given(self, use: Usage, callee: Thing, context: Path) -> Answer:
        call = use.node
        assert isinstance(call, ast.Call)
        if found := code_of(callee):
            known = not any(self.calls.is_decorated(c.function) for c in found)
            return Verdict.ENTERS if known else self.lost(use)
        if not isinstance(callee, Ref | Ext):
            return self.lost(use)
        name, own = callee.name, use.expr in call.args
        if name in ITERATORS and own and not has_star(call.args):
            inner = context[1:] if context[:1] == (EACH,) else context
            place = 1 if name == "builtins.enumerate" else call.args.index(use.expr)
            loops = inner is not context or not context
            return self.follow(call, (EACH, place, *inner)) if loops else self.lost(use)
        if context:
            return self.lost(use)
        if name in NUMBERS:
            return self._read(use, whole=name == "builtins.range")
        if name in EXTREMES and len(call.args) == 1:
            self.waits.add(call)
            return self._computed(use)
        if name == "torch.autograd.Variable":
            return Verdict.GOES_ON
        self._is_whole |= _packs(use, name)
        return Verdict.STOPS if name in LENGTH | ASKING or _packs(use, name) else self.lost(use)

    def returned(self, use: Usage, context: Path) -> str:
        function = function_of(use.node)
        calls = self.calls.sites(function) if isinstance(function, Function) else []
        entries = self.calls.entries(function)
        if any(e not in calls for e in entries) or self.calls.handed(function):  # type: ignore[arg-type]
            return self.lost(use)
        return super().returned(use, context)

    def bind(self, target: ast.expr | ast.arg, context: Path) -> str:
        match target, context:
            case (ast.Tuple(elts=parts) | ast.List(elts=parts), (int(place), *rest)):
                plain = not has_star(parts) and place < len(parts)
                return self.bind(parts[place], tuple(rest)) if plain else _elsewhere(target)
            case (ast.arg(), _) if target in _rest(target):
                return _elsewhere(target)
        return super().bind(target, context)

    def lost(self, use: Usage) -> str:
        return _elsewhere(use.node)

    def put(self, target: ast.Subscript, context: Path) -> str:
        return _elsewhere(target)

    def kept(self, target: ast.Attribute, context: Path) -> str:
        return _elsewhere(target)


class _Array(ReadOnly):
    """The same of an array in the memory of the copy, which lengths may be, too."""

    def given(self, use: Usage, callee: Thing, context: None) -> Answer:
        packs = isinstance(callee, Ref) and _packs(use, callee.name)
        return Verdict.STOPS if packs else super().given(use, callee, context)


def _packs(use: Usage, name: str) -> bool:
    assert isinstance(use.node, ast.Call)
    return use.expr in lengths_given(use.node, name)


def lengths_given(call: ast.Call, name: str) -> list[ast.expr]:
    """The lengths that a call of ``name`` fetches to the host; nothing of what takes none."""
    places = PACKS.get(name, {})
    named = [k.value for k in call.keywords if k.arg in places.values()]
    return [*(a for n, a in enumerate(call.args) if n in places), *named]


def _gives_its_own(thing: Thing) -> bool:
    """An object of the project, or a progress bar over one: what they give is what they yield."""
    return isinstance(thing, Inst) or is_named(thing, Ext, "tqdm.tqdm")


def _rest(parameter: ast.arg) -> list[ast.arg | None]:
    """``*args`` and ``**kwargs`` of its function."""
    spec = parent_of(parameter)
    return [spec.vararg, spec.kwarg] if isinstance(spec, ast.arguments) else []


def _elsewhere(node: ast.AST) -> str:
    return f"{at(node)} uses the copy"
