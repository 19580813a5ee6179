"""What trains: the calls of models that a backward reaches, or code that is not read."""

from __future__ import annotations

import ast

from autofast.flow.callgraph import CallGraph
from autofast.flow.program import Flow
from autofast.model.calls import arguments_of, is_method, receiver_of
from autofast.model.contents import each_once
from autofast.model.events import CallFrame, Occurrence, Site, Stack
from autofast.model.names import first_part
from autofast.model.script import Script
from autofast.model.several import first_such, not_none, of_kind, surely, wordset
from autofast.model.source import Nodes
from autofast.model.syntax import VARIABLES
from autofast.model.tensors import tensors_in
from autofast.model.values import (
    Const,
    Ext,
    Num,
    Reason,
    Ref,
    Tensor,
    Thing,
    Unknown,
    Values,
    are_numbers,
)
from autofast.ops import op
from autofast.read.recover.eval_mode import switching_functions

BACKWARDS = tuple(
    """.backward .manual_backward torch.Tensor.backward torch.autograd.grad torch.autograd.backward
    torch.autograd.functional.jacobian""".split()
)
# libraries that are given tensors to show, save or score them, never to train with them
# fmt: off
HARMLESS = wordset("""torch torchvision numpy builtins math time os sys json logging PIL matplotlib sklearn
    scipy pandas seaborn wandb tqdm tensorboard tensorboardX visdom cv2 imageio skimage einops
    torchmetrics torch_geometric torch_scatter timm evaluate rich datetime argparse random
    copy itertools functools collections string re""")
# fmt: on


class Training:
    """Which calls of models a backward reaches.

    ``passes`` are those it certainly may reach, as the reader followed the loss there. ``blind``
    are the ways to the other backwards: whatever runs in the same loop or function may be trained
    by them.
    """

    def __init__(self, script: Script):
        self.passes: Nodes = set()
        self.blind: list[Stack] = []
        self.all: list[Stack] = []
        self.handed_out: list[Stack] = []  # the ways to code that may train with what it gets
        self.measuring = switching_functions(script)  # what they call is none of a training's
        for site in script.log.of(*BACKWARDS):
            known = any(_passes(_differentiated(o)) for o in site)
            for occurrence in site:
                self.all.append(occurrence.stack)
                if known and isinstance(occurrence.this, (Const, Num)):
                    continue  # `loss = 0` before the first turn of a loop that adds to it
                if not _is_of_numbers(script, site.call and receiver_of(site.call)):
                    self.add(_differentiated(occurrence), occurrence.stack)
        for (kind, _), site in script.log.each():
            for occurrence in site:
                if kind not in BACKWARDS and (given := handed_out(kind, occurrence)):
                    passes = _passes(given)
                    self.passes |= passes
                    if passes and kind not in ("tensor_write", "set_item", "inplace"):
                        self.handed_out.append(occurrence.stack)

    def add(self, given: Values, stack: Stack) -> None:
        passes = _passes(given)
        self.passes |= passes
        if not passes:
            self.blind.append(stack)


def _passes(given: Values) -> Nodes:
    return {p for t in tensors_in(given) for p in t.passes}


def _is_of_numbers(script: Script, loss: ast.expr | None) -> bool:
    """Whether no network has a part in a loss but by what carries no gradient, as in that of the
    temperature of a soft actor-critic.
    """
    todo = [loss] if loss is not None else []
    for part in each_once(todo):
        if are_numbers(script.values(part)):
            continue  # `entropy.item()`, whatever it was read of
        made = [d.value for d in script.analysis(Flow).reaching(part)]
        match part:
            case ast.Name() if made and None not in made:
                todo += not_none(made)
            case ast.BinOp() | ast.UnaryOp():
                todo += of_kind(ast.iter_child_nodes(part), ast.expr)
            case ast.Call(func=ast.Attribute(value=tensor, attr=name)) if (
                script.must_be(tensor, Tensor) and op(f".{name}") is not None and name != "detach"
            ):
                todo += [tensor, *arguments_of(part)]
            case _:
                plain = isinstance(part, VARIABLES) or is_method(part, "detach")
                if not surely(_has_no_pass(t, plain) for t in script.values(part)):
                    return False
    return loss is not None


def _has_no_pass(thing: Thing, plain: bool) -> bool:
    """Whether no backward goes through it to a pass of a network: a new tensor, a parameter, or,
    in ``plain`` sight, what a network gave without a gradient.
    """
    if not isinstance(thing, Tensor) or thing.rank == "?" or thing.passes:
        return False
    return bool(thing.fresh) or (
        plain and (thing.param == "param" or (bool(thing.models) and not thing.grad))
    )


def _differentiated(occurrence: Occurrence) -> Values:
    if isinstance(occurrence.this, Tensor):
        return frozenset({occurrence.this})
    args = occurrence.args
    return args.get(0, "outputs") | args.get(0, "tensors") | args.get(0, "loss")


def handed_out(kind: str, occurrence: Occurrence) -> Values:
    """The tensors that leave the project here for code that may train with them."""
    this = occurrence.this
    written = kind == "set_item" and isinstance(this, (Tensor, Unknown))
    if kind == "tensor_write" or written:  # and whoever reads it may train with it
        return occurrence.result
    if kind == "return":
        frame = first_such(reversed(occurrence.stack), CallFrame)
        if frame is not None and not isinstance(frame.node, ast.Call):
            return occurrence.result
        return frozenset()
    known = isinstance(this, (Ref, Ext)) and first_part(this.name) in HARMLESS
    foreign = isinstance(this, Ref) and kind == this.name and not known
    method = kind.startswith(".") and isinstance(this, (Unknown, Ext)) and not known
    gets = foreign or method or kind in ("call_unknown", "call_object", "inplace")
    given = occurrence.args.every if gets else ()
    return frozenset().union(*(g.values for g in given))


def is_entered(script: Script, site: Site) -> bool:
    """Whether it applies an autograd Function whose ``forward`` has been followed."""
    functions = all(getattr(o.this, "reason", None) is Reason.FUNCTION for o in site)
    return functions and bool(script.analysis(CallGraph).entered(site.node))
