"""What is done, outside, with a tensor that was made in inference mode: whether it may meet
autograd there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from autofast.flow.callgraph import Callee, CallGraph, code_of
from autofast.flow.memory import asks_in_place
from autofast.flow.scopes import Expressions, is_parameter, owner, parameters
from autofast.flow.usage import Act, Usage
from autofast.flow.valueflow import Answer, ValueFlow, Verdict, first_reason
from autofast.model import names
from autofast.model.calls import arguments_of, is_augmented, is_method, may_give, receiver_of
from autofast.model.contents import attributes, with_contents, wrapped
from autofast.model.events import Site
from autofast.model.kinds import is_loss, is_module
from autofast.model.names import FORWARD_HOOKS, HOOK_OF_ALL, first_part, last_part
from autofast.model.script import Script
from autofast.model.several import wordset
from autofast.model.source import at, first_line, function_of, is_generator, parent_of, statement_of
from autofast.model.syntax import is_read
from autofast.model.values import (
    COLLECTIONS,
    Bound,
    Cls,
    Const,
    Ext,
    Func,
    Inst,
    Method,
    Num,
    Partial,
    Reason,
    Ref,
    Tensor,
    Thing,
    Unknown,
    Values,
    all_of,
    any_of,
    const,
    is_named,
)
from autofast.ops import is_in_place
from autofast.read.recover.region import Region

# fmt: off
NUMBERS = wordset("""item tolist numpy size dim numel nelement element_size stride is_floating_point
    is_contiguous get_device count index""")
FACTS = wordset("shape dtype device ndim is_cuda requires_grad layout is_sparse")
READS = wordset("""builtins.print builtins.float builtins.int builtins.bool builtins.str builtins.repr
    builtins.format builtins.len builtins.isinstance builtins.id builtins.type builtins.hash
    torch.save""")
# of several things, without computing with them
CHOOSES = wordset("builtins.max builtins.min builtins.sorted")
PASS_ON = wordset("""random heapq queue multiprocessing threading collections itertools functools operator""")
# A tensor of their own, made where they run.
FRESH = wordset("""
    eq ne lt gt le ge sum mean argmax argmin topk max min mul add sub div pow exp log softmax
    log_softmax sigmoid tanh relu sqrt square norm std var prod abs neg clone cat stack sort
    argsort cumsum matmul mm bmm round floor ceil where isnan isinf isfinite nonzero gather
    index_select masked_select repeat one_hot cross_entropy nll_loss mse_loss l1_loss bincount
""")
COUNTED = wordset("is_inference _version")
KEEPERS = wordset("append appendleft add insert extend extendleft update setdefault")
# fmt: on


def forward_hooks(script: Script) -> list[Site]:
    """Where functions are registered that get what passes through modules, and may keep it."""
    return [*script.methods(*FORWARD_HOOKS), *script.calls(HOOK_OF_ALL)]


def carries_tensor(values: Values) -> bool:
    """Whether these values may be, or hold, a tensor."""
    return any(
        isinstance(t, Tensor)
        or (isinstance(t, Unknown) and not _is_of_arrays(t) and t.reason is not Reason.UNDEFINED)
        for t in with_contents(values, in_data)
    )


def _is_of_arrays(thing: Unknown) -> bool:
    """What a library returned that computes with arrays of its own (pandas keeps tensors as objects
    where it is given some: see ``_Leaks``).
    """
    returned = thing.reason in (Reason.RESULT, Reason.METHOD)
    return returned and thing.name.startswith(("numpy.", "scipy.", "sklearn.", "pandas."))


def in_data(thing: Thing) -> Iterable[Thing]:
    if isinstance(thing, Partial):
        return (t for given in thing.args.all() for t in given)
    if isinstance(thing, (Bound, Method)):  # what it is a method of
        return (thing.this,)
    return wrapped(thing) or (() if is_module(thing) else attributes(thing))


class Leaks(ValueFlow[None]):
    """Follows what was made in a region to the places outside that have it."""

    def __init__(self, script: Script, region: Region):
        super().__init__(script)
        self.region = region
        # Objects that only keep numbers, as far as they have been followed.
        self.keepers: set[tuple[int, str]] = set()

    # -------------------------------------------------------------------------------------- one use
    def met(self, expr: ast.expr, context: None) -> Answer:
        if self.region.holds(expr):
            return Verdict.STOPS
        values = self.script.values(expr)
        if isinstance(getattr(expr, "ctx", None), (ast.Store, ast.Del)):
            return Verdict.GOES_ON
        if values or isinstance(expr, (ast.Starred, ast.Slice)):
            return Verdict.GOES_ON if not values or carries_tensor(values) else Verdict.STOPS
        return Verdict.STOPS if self.is_dead(expr) else _unread(expr)

    def judge(self, use: Usage, context: None) -> Answer:
        expr, node = use.expr, use.node
        match use.act:
            case Act.TARGET:  # of `+=`, or of `del`
                added = use.is_added_to and self.is_tensor(expr)
                return _changed(expr) if added else Verdict.STOPS
            case Act.ASKED:
                return self.asked(use)
            case Act.FILLED:
                assert isinstance(node, ast.Subscript)
                added = is_augmented(node) and self.is_tensor(node)
                return _changed(expr) if added or self.is_tensor(expr) else Verdict.STOPS
            case Act.TAKEN | Act.INDEXES:
                return self.operand(node, _others(use, "value", "slice")) or Verdict.GOES_ON
            case Act.COMPUTED if isinstance(node, ast.BinOp):
                why = self.operand(node, _others(use, "left", "right"))
                return why or (Verdict.STOPS if self.is_plain(expr) else Verdict.GOES_ON)
            case Act.COMPARED | Act.TESTED | Act.SHOWN | Act.DROPPED:
                return Verdict.STOPS
            case Act.COMPUTED | Act.HELD | Act.CHOSEN | Act.RETURNED:
                return Verdict.GOES_ON
            case Act.BOUND | Act.ADDED | Act.LOOPED:
                return Verdict.GOES_ON
            case Act.OTHER if isinstance(node, ast.Raise):
                return Verdict.STOPS
        return f"{at(expr)} uses it in a way that is not understood"

    def lost(self, use: Usage) -> str:
        return _unread(use.expr)

    def is_dead(self, expr: ast.expr) -> bool:
        """The script never comes here (and the reader has not given up before)."""
        return not any("too large" in note for note in self.script.notes)

    def operand(self, parent: ast.AST, parts: Iterable[ast.expr | None]) -> str:
        """An operation whose other operand carries a gradient saves this one for the backward.

        What a model made counts as such also where gradients are off: whether they are may be
        changed in the same rewrite.
        """
        for part in filter(None, parts):
            for tensor in self.script.values(part):
                if isinstance(tensor, Unknown) and function_of(parent) is not self.region.scope:
                    return f"{at(parent)} combines it with something that is not known"
                if (
                    isinstance(tensor, Tensor)
                    and tensor.dtype != "int"
                    and (tensor.grad or tensor.models or tensor.param)
                ):
                    return f"{at(parent)} combines it with a tensor that may need gradients"
        return ""

    def asked(self, use: Usage) -> Answer:
        expr, node, call = use.expr, use.node, use.result
        assert isinstance(node, ast.Attribute)
        name = node.attr
        if name in FACTS:
            return Verdict.STOPS
        if name in COUNTED and self.is_tensor(expr):
            return f"{at(expr)} asks in which mode it was made"
        if not isinstance(call, ast.Call):
            return Verdict.GOES_ON
        if name in NUMBERS or name in KEEPERS and not self.is_tensor(expr):
            return Verdict.STOPS
        if name == "backward" or name == "requires_grad_":
            return f"{at(expr)} needs its gradient"
        if name.endswith("_") and not name.endswith("__"):
            return _changed(expr)
        fresh = name in FRESH and self.is_plain(expr)
        why = self.operand(call, arguments_of(call))
        return why or (Verdict.STOPS if fresh else Verdict.GOES_ON)

    def is_tensor(self, node: ast.expr) -> bool:
        return self.script.may_be(node, Tensor, Unknown)

    def is_plain(self, expr: ast.expr) -> bool:
        """Certainly a tensor or a number: what is computed of it outside is a tensor like any
        other.
        """
        return all_of(self.script.values(expr), Tensor, Const, Num)

    # ---------------------------------------------------------------------------------------- calls
    def given(self, use: Usage, callee: Thing, context: None) -> Answer:
        expr, call = use.expr, use.node
        assert isinstance(call, ast.Call)
        others, text = [a for a in arguments_of(call) if a is not expr], first_line(call.func)
        if isinstance(callee, Ref):
            return self.by_library(callee.name, expr, call, others)
        if isinstance(callee, Method):
            return self.by_method(callee, expr, call, others)
        if code := code_of(callee) if isinstance(callee, (Func, Bound, Inst)) else []:
            plain = all(plain_argument(self.calls, c, expr, call) for c in code)
            return Verdict.ENTERS if plain else f"{text}() gets it on {at(expr)}"
        if is_loss(callee):
            return self.operand(call, others) or Verdict.STOPS
        if is_named(callee, Ext, names.ACTIVATIONS):
            return self.operand(call, others) or Verdict.GOES_ON
        if isinstance(callee, Unknown):
            return f"`{text}` gets it on {at(expr)}, and is not known: {callee.why}"
        kind = "a class" if isinstance(callee, (Cls, Partial)) else "an object"
        return f"`{text}` ({kind}) gets it on {at(expr)}"

    def by_library(
        self, name: str, expr: ast.expr, call: ast.Call, others: list[ast.expr]
    ) -> Answer:
        text, short = first_line(call.func), last_part(name)
        if name in READS:
            return Verdict.STOPS
        if short in ("Parameter", "Buffer", "from_pretrained") or name == "builtins.setattr":
            return f"{at(expr)} makes it a part of an object"
        if name.startswith("torch.") and writes(name, call):
            return f"`{text}` changes it in place ({at(expr)})"
        if name.startswith("torch.") and self.script.may_be(call, Ext):
            return f"`{text}` keeps it ({at(expr)})"
        if first_part(name) in PASS_ON:
            return f"`{text}` passes it on ({at(expr)})"
        if name in CHOOSES:
            return Verdict.GOES_ON
        if (mine := _in_turn(name, expr, call)) is not None:
            return self.bind(mine, None) or Verdict.STOPS
        fresh = name.startswith("torch.") and short in FRESH
        return self.operand(call, others) or (Verdict.STOPS if fresh else Verdict.GOES_ON)

    def by_method(
        self, method: Method, expr: ast.expr, call: ast.Call, others: list[ast.expr]
    ) -> Answer:
        text = first_line(call.func)
        if isinstance(method.this, COLLECTIONS):
            return self.stored(root_of(call), call, f"{at(call)} keeps it") or Verdict.STOPS
        if isinstance(method.this, Tensor):
            receiver = receiver_of(call)
            told = receiver is not None and self.operand(call, [*others, receiver])
            return told or Verdict.STOPS
        if is_module(method.this):
            return f"`{text}` gets it on {at(expr)}"
        if isinstance(method.this, Unknown):
            return f"`{text}` gets it on {at(expr)}, and is not known: {method.this.why}"
        return Verdict.GOES_ON

    def returned(self, use: Usage, context: None = None) -> str:
        """A result that holds a tensor is followed to the places that call the function."""
        node = use.node
        if not any(carries_tensor(o.result) for o in self.script.log.ways("return", node)):
            return ""
        function = function_of(node)
        leaves = f"{getattr(function, 'name', 'a lambda')}() returns a tensor ({at(node)})"
        if (
            not isinstance(function, ast.FunctionDef)
            or is_generator(function)
            or self.calls.complete(function)
        ):
            return leaves
        why = first_reason(self.follow(call, None) for call in self.calls.sites(function))
        return f"{leaves}: {why}" if why else ""

    # -------------------------------------------------------------------------------- what keeps it
    def stored(self, root: ast.Name | None, by: ast.AST, keeps: str) -> str:
        """It becomes a part of what ``root`` holds; ``keeps`` is the reason where that may be more
        than a variable.
        """
        if root is None or is_parameter(owner(root) or function_of(root), root.id):
            return keeps
        return first_reason(self.follow(read, None) for read in self.filled(root, by))

    def put(self, target: ast.Subscript, context: None) -> str:
        return self.stored(root_of(target), statement_of(target), _keeps(target))

    def kept(self, target: ast.Attribute, context: None) -> str:
        owners = self.script.values(target.value)
        lost = not owners or any(self.keeper(t, target.attr) for t in owners)
        return _keeps(target) if lost else ""

    def keeper(self, thing: Thing | None, attribute: str) -> str:
        """Why an object that keeps tensors may bring them to autograd (after a colon); empty for a
        meter that is only filled here and read.

        Of a module, which has parameters besides, only this attribute is asked for.
        """
        module = thing is not None and is_module(thing)
        if (
            not isinstance(thing, Inst)
            or (module and (not attribute or self.is_registered(attribute)))
            or thing.open
            or thing.cls.external - {"builtins.object", "torch.nn.Module"}
        ):
            return ": what is done with it is not followed"
        key = (id(thing), attribute if module else "")
        if key in self.keepers:
            return ""
        self.keepers.add(key)
        for site in self.script.log.of("set_attribute", "set_elsewhere"):
            for occurrence in site:
                in_place = is_augmented(site.node) and carries_tensor(occurrence.result)
                if (
                    in_place
                    and occurrence.this is thing
                    and not self.region.meets(site, occurrence)
                ):
                    return f", and it is changed on {at(site)} too"
        for site in self.script.log.of("call_unknown"):
            for occurrence in site:
                if any(thing in given for given in occurrence.args.all()):
                    return f": {at(site)} gives it to something that is not known"
        names = {name for name, values in thing.attrs.items() if carries_tensor(values)}
        if module:
            names = {attribute}
        for node in self.script.nodes:
            if (
                isinstance(node, ast.Attribute)
                and node.attr in names
                and is_read(node)
                and not self.region.holds(node)
            ):
                found = self.script.values(node.value)
                mine = thing in found or module and any_of(found, Unknown)
                if mine and (why := self.follow(node, None)):
                    return f": {why}"
        return ""

    def is_registered(self, attribute: str) -> bool:
        """Whether it may be a buffer or a parameter, which is loaded and moved in place."""
        sites = self.script.methods("register_buffer", "register_parameter")
        given = [const(o.args.get(0, "name")) for s in sites for o in s]
        return ... in given or attribute in given


# ---------------------------------------------------------------------------------- small questions
def root_of(node: ast.AST) -> ast.Name | None:
    """The variable at the bottom of ``x.append(...)``, ``x[0][i]``; none where an attribute of an
    object is between.
    """
    if is_method(node):
        node = node.func.value
    while isinstance(node, ast.Subscript):
        node = node.value
    return node if isinstance(node, ast.Name) else None


def _others(use: Usage, *fields: str) -> Expressions:
    """The other parts of the code around it."""
    parts = (getattr(use.node, field, None) for field in fields)
    return [part for part in parts if part is not use.expr]


def _in_turn(name: str, expr: ast.expr, call: ast.Call) -> ast.expr | None:
    """The variable that gets the elements of ``expr`` in ``for x, y in zip(expr, other)``."""
    loop = parent_of(call)
    if name != "builtins.zip" or not isinstance(loop, (ast.For, ast.comprehension)):
        return None
    plain = [a for a in call.args if not isinstance(a, ast.Starred)]
    names = loop.target.elts if isinstance(loop.target, ast.Tuple) else []
    if loop.iter is not call or len(names) != len(call.args) or len(plain) < len(names):
        return None
    mine = names[call.args.index(expr)] if expr in call.args else None
    return None if isinstance(mine, ast.Starred) else mine


def plain_argument(calls: CallGraph, callee: Callee, expr: ast.expr, call: ast.Call) -> bool:
    """One parameter of an ordinary function gets it, and nothing stands between."""
    function = callee.function
    if not isinstance(function, ast.FunctionDef) or is_generator(function):
        return False
    given = (calls.argument(call, callee, p.arg) for p in parameters(function))
    return not calls.is_decorated(function) and expr in given


def writes(name: str, call: ast.Call) -> bool:
    """``torch.clamp_(x, 0)``, ``F.relu(x, inplace=True)``, ``F.dropout(x, 0.5, True, True)``,
    ``torch.exp(x, out=x)``.
    """
    return is_in_place(name, flags=True) or asks_in_place(name, call) or may_give(call, "out")


def _changed(expr: ast.expr) -> str:
    return f"`{first_line(expr)}` is changed in place on {at(expr)}"


def _keeps(target: ast.expr) -> str:
    return f"`{first_line(target)}` keeps it ({at(target)})"


def _unread(expr: ast.expr) -> str:
    return f"{at(expr)} is not followed by the reader"
