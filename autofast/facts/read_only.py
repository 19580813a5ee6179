"""Whether a value is only read: not written to, nor handed to where nobody follows it."""

from __future__ import annotations

import ast
import re

from autofast.facts.host_io import name_of
from autofast.flow.effects import outputs
from autofast.flow.memory import asks_in_place, renames
from autofast.flow.program import holder_of
from autofast.flow.scopes import mentions, owner
from autofast.flow.usage import Act, Usage, usage_of
from autofast.flow.valueflow import Answer, ValueFlow, Verdict
from autofast.model.calls import arguments_of, call_of, may_give
from autofast.model.contents import with_contents
from autofast.model.names import FACTORIES, LEGACY_TENSORS
from autofast.model.script import Script
from autofast.model.several import surely, wordset
from autofast.model.source import function_of
from autofast.model.syntax import DEFS, VARIABLES, is_read
from autofast.model.values import (
    Cls,
    Const,
    Ext,
    Func,
    Inst,
    Method,
    Num,
    Ref,
    Seq,
    Tensor,
    Thing,
    Values,
    certainly,
    of_kind,
)
from autofast.ops import is_in_place, is_view, op

BUILTINS = wordset(
    "range len list tuple float int bool abs min max sum round sorted zip enumerate reversed pow",
    "builtins.",
)
MADE_OF = wordset(
    "tensor as_tensor from_numpy hann_window hamming_window Tensor autograd.Variable", "torch."
)
MADE_OF |= {f"torch.{name}" for name in (*FACTORIES, *LEGACY_TENSORS)}
COMPUTING = ("math.", "numpy.", "torch.nn.functional.")
# What draws, reads files or writes among them.
OTHERS = (
    *wordset("random load save from copyto put place fill_diagonal seterr errstate", "numpy."),
    *wordset("gumbel fractional_max rrelu", "torch.nn.functional."),
)
# What keeps weights of classes, and only reads them.
LOSSES = wordset("CrossEntropyLoss NLLLoss BCELoss BCEWithLogitsLoss MultiMarginLoss", "torch.nn.")
MASKED = wordset(
    "MultiheadAttention Transformer TransformerEncoder TransformerDecoder TransformerEncoderLayer "
    "TransformerDecoderLayer",
    "torch.nn.",
)
ARRAYS = wordset(
    "astype reshape copy ravel flatten T sum mean tolist clip transpose dot float long"
)
ASKED = wordset("shape dtype device ndim size dim numel")
TOGETHER = wordset("cat concat concatenate stack hstack vstack dstack", "torch.")
# By which a tensor is written to, or gets gradients that add up.
WRITABLE = wordset("numpy data requires_grad requires_grad_ retain_grad set_")
# What chooses of a list, and leaves it as it is: by the module, or a generator of its own.
CHOOSING = re.compile(r"(numpy\.)?random\.(\w+\.)?(choice|choices|sample)")


class ReadOnly(ValueFlow[None]):
    """Whether a value may be written to, or come to where nobody follows it: by a list of uses that
    are harmless, which who holds it (``flow/holders.py``) is not.
    """

    def judge(self, use: Usage, context: None) -> Answer:
        match use.act:
            case Act.COMPUTED | Act.COMPARED | Act.INDEXES | Act.TESTED | Act.DROPPED | Act.SHOWN:
                return Verdict.STOPS
            case Act.TAKEN | Act.CHOSEN:
                return Verdict.GOES_ON
            case Act.BOUND if all(isinstance(t, ast.Name) for t in use.targets):
                return Verdict.GOES_ON
            case Act.HELD if self._is_copied(use.node):
                return Verdict.STOPS
            case Act.LOOPED if has_only_constants(self.script.values(use.expr)):
                return Verdict.STOPS
            case Act.ADDED if use.node.value is use.expr:  # type: ignore[attr-defined]
                return Verdict.STOPS
            case Act.ASKED:
                attr = use.node.attr  # type: ignore[attr-defined]
                if attr in ASKED:
                    return Verdict.STOPS
                if is_in_place(attr, flags=True) or attr in WRITABLE:
                    return "it is written to"
                if is_view(attr) or attr in ("copy", "astype", "T"):
                    return Verdict.GOES_ON
                return Verdict.STOPS if op(f".{attr}") or attr in ARRAYS else "it is not known"
        return "it goes elsewhere"

    def _is_copied(self, display: ast.AST | None) -> bool:
        """Whether it is put together with others, ``torch.cat([x, table[i]])``."""
        if not isinstance(display, ast.List | ast.Tuple):
            return False
        use = usage_of(display)
        return use.act is Act.GIVEN and self.script.is_call(use.node, *TOGETHER)

    def given(self, use: Usage, callee: Thing, context: None) -> Answer:
        call = use.node
        if isinstance(callee, Func):
            return Verdict.ENTERS
        if isinstance(callee, Method) and certainly({callee.this}, Num, Tensor):
            alone = arguments_of(call) == [use.expr]  # type: ignore[arg-type]
            reads = alone and op(f".{callee.name}") and not is_in_place(callee.name)
            return Verdict.STOPS if reads else "it is handed on"
        if isinstance(callee, Ext) and callee.name in MASKED:
            return Verdict.STOPS
        name = callee.name if isinstance(callee, Ref) else ""
        if name in LOSSES and _is_only_called(self.script, call):  # type: ignore[arg-type]
            return Verdict.STOPS
        if not name or may_give(call, "out") or asks_in_place(name, call):  # type: ignore[arg-type]
            return "it is handed on"
        if use.expr in outputs(call, [name]):  # type: ignore[arg-type]
            return "it is written to"
        if renames(name):
            return Verdict.GOES_ON
        return Verdict.STOPS if only_reads(name) else "it is handed on"

    def lost(self, use: Usage) -> str:
        return "it is handed on"

    def put(self, target: ast.Subscript, context: None) -> str:
        return ""  # copied: only names are bound to it

    def kept(self, target: ast.Attribute, context: None) -> str:
        return "it is kept"


class Held(ReadOnly):
    """The same of what objects of the project may hold: that is followed from where it is read."""

    def judge(self, use: Usage, context: None) -> Answer:
        if use.act is Act.BOUND and all(isinstance(t, VARIABLES) for t in use.targets):
            return Verdict.GOES_ON
        if use.act is Act.TAKEN and self._is_flat(use.expr):
            return Verdict.STOPS
        return super().judge(use, context)

    def given(self, use: Usage, callee: Thing, context: None) -> Answer:
        if self._is_flat(use.expr) and CHOOSING.fullmatch(name_of(callee)):
            return Verdict.STOPS
        return Verdict.ENTERS if isinstance(callee, Cls) else super().given(use, callee, context)

    def _is_flat(self, expr: ast.expr) -> bool:
        """Whether what is taken out of it cannot be changed."""
        lists = of_kind(found := self.script.values(expr), Seq)
        return certainly(found, Seq) and all(certainly(t.any(), Const) for t in lists)

    def kept(self, target: ast.Attribute, context: None) -> str:
        known = self.script.must_be(target.value, Inst)
        return "" if known else super().kept(target, context)


class Made(ReadOnly):
    """The same of what is filled first, and is only kept under ``name`` by the constructor."""

    def __init__(self, script: Script, name: str, init: ast.FunctionDef):
        super().__init__(script)
        self.name, self.init = name, init

    def judge(self, use: Usage, context: None) -> Answer:
        match use.act:
            case Act.FILLED:
                return Verdict.STOPS
            case Act.BOUND | Act.RETURNED:
                return Verdict.GOES_ON
            case Act.ASKED if is_in_place(use.node.attr):  # type: ignore[attr-defined]
                return Verdict.GOES_ON
        return super().judge(use, context)

    def given(self, use: Usage, callee: Thing, context: None) -> Answer:
        return Verdict.ENTERS if isinstance(callee, Cls) else super().given(use, callee, context)

    def kept(self, target: ast.Attribute, context: None) -> str:
        mine = target.attr == self.name and function_of(target) is self.init
        return "" if mine else super().kept(target, context)


def _is_only_called(script: Script, made: ast.expr) -> bool:
    """Whether an object is called, at once or under a name, and nobody else has it."""
    use = usage_of(made)
    match use.act, use.node:
        case Act.CALLED, _:
            return True
        case Act.ASKED, ast.Attribute(attr="to" | "cuda") as method:
            moved = call_of(method)
            return moved is not None and _is_only_called(script, moved)
        case Act.BOUND, ast.Assign(targets=[ast.Name() as name]) if isinstance(owner(name), DEFS):
            uses = [n for n in mentions(holder_of(name), name.id) if is_read(n)]
            return all(usage_of(n).act is Act.CALLED for n in uses)
    return False


def has_only_constants(found: Values) -> bool:
    """Lists of numbers and of text, and lists of such."""
    return certainly(found, Seq) and surely(
        isinstance(t, (Seq, Const)) for t in with_contents(found)
    )


def only_reads(name: str) -> bool:
    """Whether a function computes its result, and leaves what it is given as it is."""
    known = op(name)
    reads = known is not None or name in MADE_OF | BUILTINS or name.startswith(COMPUTING)
    writes = is_in_place(name) or name.startswith(OTHERS) or (known is not None and known.mutates)
    return reads and not writes
