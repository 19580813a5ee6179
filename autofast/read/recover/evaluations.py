"""Evaluations: forward passes that no backward follows, the statements that hold them, and whether
anything of them is needed later; and functions that no gradient leaves: whatever backward runs
outside of them, none reaches the passes of models in them.
"""

from __future__ import annotations

import ast
from collections.abc import Collection

from autofast.flow.scopes import is_local, parameters
from autofast.model.events import CallFrame, LoopFrame, Occurrence, Site, Stack, inside
from autofast.model.kinds import gradient_modes, is_module
from autofast.model.names import first_part
from autofast.model.roles import Evaluation
from autofast.model.script import Script
from autofast.model.several import any_in, wordset
from autofast.model.source import (
    ByNode,
    Nodes,
    ancestors,
    at,
    function_of,
    is_at_top,
    nodes_in,
    parent_of,
    statement_of,
    walk,
)
from autofast.model.syntax import DEFINITIONS, DEFS, LOOPS, WITHS
from autofast.model.tensors import is_unknown_in, tensors_in, things_in
from autofast.model.values import Const, Ext, Inst, Num, Ref, Tensor, Values, all_of, of_kind
from autofast.read.recover.backward_needs import gathering, is_wanted
from autofast.read.recover.escapes import leak
from autofast.read.recover.hazards import hazard, needs_gradients
from autofast.read.recover.leaks import root_of
from autofast.read.recover.region import Region
from autofast.read.recover.shared_passes import (
    KEEPS,
    apart_passes,
    binds_elsewhere,
    keeps_gradients,
    keeps_inside,
    puts_gradients,
)
from autofast.read.recover.trained import Training

KEEP_NOTHING = ("torch", "numpy", "math", "builtins")  # libraries that keep no tensor they get
# The node of an evaluation, its kind, and what its block or decorator calls.
Whole = tuple[ast.AST, str, ast.expr | None]


class Sealed:
    """Answers for the functions of a script, each asked for once."""

    def __init__(self, script: Script, backwards: list[Stack]):
        self.script, self.backwards = script, backwards
        self._known: dict[object, bool] = {}

    def __contains__(self, node: object) -> bool:
        return self._known.get(node, False)

    def around(self, stack: Stack) -> ast.FunctionDef | None:
        """The innermost function on this way that no gradient leaves and no backward runs in."""
        for frame in reversed(stack):
            if self.script.unread:
                return None  # more may happen in it than is known
            if not isinstance(frame, CallFrame) or not isinstance(frame.func.node, ast.FunctionDef):
                continue
            node = frame.func.node
            if any(inside(b, node) for b in self.backwards):
                return None
            if node not in self._known:
                self._known[node] = self.holds_all(node)
            if self._known[node]:
                return node
        return None

    def holds_all(self, node: ast.FunctionDef) -> bool:
        region = Region(self.script.log, node, node.body, True)
        if region.yields or binds_elsewhere(self.script, region):
            return False
        ends = [n for n in nodes_in(node, ast.Return) if function_of(n) is node]
        if not all(_is_free(self.script.values(n.value)) for n in ends if n.value is not None):
            return False
        for site, occurrence in region.sites(self.script, *KEEPS):
            if not _is_local_variable(site.node) and not _is_free(occurrence.result):
                return False
        for site, occurrence in region.sites(self.script, "inplace"):
            if not _is_local_variable(site.node) and puts_gradients(occurrence):
                return False
        return not self.hands_on(region)

    def hands_on(self, region: Region) -> bool:
        """Whether something with a gradient is given to an object or function that may keep it."""
        for _, site in self.script.log.each():
            for occurrence in site:
                this, args = occurrence.this, occurrence.args
                if isinstance(this, (Tensor, Inst)) or not region.meets(site, occurrence):
                    continue
                known = isinstance(this, (Ref, Ext)) and first_part(this.name) in KEEP_NOTHING
                if known and site.kind != "builtins.setattr":
                    continue
                if any(t.grad for t in tensors_in(*args.each)):
                    return True
        return False


def _is_free(found: Values) -> bool:
    """Numbers, arrays and texts alone: a tensor that was computed with something unknown may carry
    a gradient without being known to.
    """
    return bool(found) and all_of(things_in(found), Const, Num)


def _is_local_variable(node: ast.AST) -> bool:
    """It goes into a variable that is its function's own: what leaves of it leaves by a result or
    another place.
    """
    root = root_of(node.target if isinstance(node, ast.AugAssign) else node)
    return (
        root is not None
        and not is_at_top(root)
        and is_local(root)
        and root.id not in {p.arg for p in parameters(function_of(root))}
    )


def find_evaluations(script: Script) -> list[Evaluation]:
    """The program's evaluations, each at the smallest place that holds all its forwards."""
    training = Training(script)
    sealed = Sealed(script, training.all + training.handed_out)
    found: ByNode[Evaluation] = {}
    for site in script.log.of("forward"):
        for occurrence in site:
            if not occurrence.data["outer"]:
                continue
            if occurrence.grad in ("off", "inference"):
                made = _switched_off(occurrence)
            else:
                made = _plain(site, occurrence, training, script, sealed)
            shared = False
            if made is None and occurrence.grad == "on":
                # Some backward is not known, or reaches these passes on other ways.
                function = sealed.around(occurrence.stack)
                made = (function, "function", None) if function is not None else None
                shared = True
            if made is None:
                continue
            node, kind, context = made
            evaluation = found.setdefault(
                node, Evaluation(node, kind, occurrence.grad, [], context)
            )
            evaluation.shared = evaluation.shared or shared
            if evaluation.mode != occurrence.grad:
                evaluation.mode = "maybe"
            if site not in evaluation.forwards:
                evaluation.forwards.append(site)
    for site, occurrence, node, kind in apart_passes(
        script, training.passes, training.all + training.handed_out
    ):
        within = sealed.around(occurrence.stack)
        if not _blind(occurrence.stack, training.blind) and within not in found:
            evaluation = found.setdefault(node, Evaluation(node, kind, "on", [], None, shared=True))
            if site not in evaluation.forwards:
                evaluation.forwards.append(site)
    whole = {e.node for e in found.values() if e.kind == "function"}
    for key, evaluation in list(found.items()):
        if evaluation.context is None and any_in(ancestors(evaluation.node), whole):
            del found[key]  # the whole function is one evaluation
    for key, evaluation in list(found.items()):
        region = region_of(script, evaluation)
        kept = evaluation.shared and evaluation.node not in sealed
        if kept and keeps_gradients(script, region, training.all + training.handed_out):
            del found[key]  # training goes on with what it computes
            continue
        evaluation.escapes = hazard(script, evaluation, region) or leak(script, region)
        if evaluation.kind == "decorator" and not evaluation.escapes:
            evaluation.escapes = _makes(script, region, _loops_of(evaluation, region))
        if evaluation.context is None:
            evaluation.unknown = needs_gradients(script, evaluation, region, training)
            evaluation.whole = _whole(script, evaluation, training, found.values())
        else:
            evaluation.unknown = ""
    return list(found.values())


def _whole(
    script: Script, evaluation: Evaluation, training: Training, every: Collection[Evaluation]
) -> Evaluation | None:
    """The evaluation, one of ``every``, with its whole function."""
    function = function_of(evaluation.node)
    if (
        evaluation.kind == "function"
        or evaluation.unknown
        or not isinstance(function, ast.FunctionDef)
        or function.decorator_list
        or not isinstance(parent_of(function), (ast.Module, ast.ClassDef))
    ):
        return None
    wider = Evaluation(function, "function", evaluation.mode, evaluation.forwards)
    region = region_of(script, wider)
    passes = {site.node for e in every if not e.shared for site in e.forwards}
    others = region.sites(script, "forward", "new", "move_model", ".load_state_dict")
    way = set(walk(evaluation.node)) if evaluation.shared else set()
    if not all(
        _is_plain(site, o, passes) or site.kind == "forward" and any(f.node in way for f in o.stack)
        for site, o in others
    ):
        return None
    inner = {n for e in every if e.context is None for n in walk(e.node)}
    wider.escapes = (
        hazard(script, wider, region) or leak(script, region) or _makes(script, region, inner)
    )
    wider.unknown = needs_gradients(script, wider, region, training)
    return wider if not wider.unknown else None


def _loops_of(evaluation: Evaluation, region: Region) -> Nodes:
    """The innermost loops of a function around its passes; the statements, where there are none."""
    found: Nodes = set()
    for site in evaluation.forwards:
        for occurrence in site:
            below = region.below(occurrence.stack)
            node = below[0].node if below and not region.holds(site.node) else site.node
            around = (n for n in ancestors(node) if isinstance(n, LOOPS) and region.holds(n))
            found.update(walk(next(around, statement_of(node))))
    return found


def _makes(script: Script, region: Region, inner: Nodes) -> str:
    """Where a function makes tensors beside its evaluations, or code that may keep some: these
    leave it on more ways than are followed (closures, exceptions, ``p.grad``).
    """
    stacks = (region.below(stack) for stack in script.stacks)
    begun = [s for s in stacks if s and region.holds(s[0].node)]  # not read elsewhere, for all
    own = [s for s in begun if not any(f.node in inner for f in s)]
    called = {f.func.node: None for s in own for f in of_kind(s, CallFrame)}
    nodes = [n for n in region.nodes() if n not in inner]
    for node in (*nodes, *(n for function in called for n in walk(function))):
        if isinstance(node, ast.Name) or not isinstance(node, (ast.expr, *DEFINITIONS)):
            continue
        if isinstance(node, ast.List) and not node.elts or _is_read_at_once(node):
            continue
        made = script.values(node)
        if isinstance(node, (ast.Lambda, *DEFINITIONS)) and node not in called or tensors_in(made):
            return f"{at(node)} makes something beside it"
        if isinstance(node, ast.Call) and is_unknown_in(made):
            return f"what {at(node)} makes beside it is not known"
    return ""


def _is_read_at_once(node: ast.AST) -> bool:
    """``torch.stack(losses)`` in ``torch.stack(losses).tolist()``: nothing else ever has it."""
    up = parent_of(node)
    return isinstance(up, ast.Attribute) and up.attr in ("item", "tolist")


def _is_plain(site: Site, occurrence: Occurrence, passes: Nodes) -> bool:
    """A pass of an evaluation, or another object than a network."""
    if site.kind == "forward":
        return site.node in passes or not occurrence.data["outer"]
    made = occurrence.this
    return site.kind == "new" and made is not None and not is_module(made)


HOOKS = wordset(
    "on_train_start on_train_epoch_start on_train_batch_end on_train_epoch_end on_train_end"
)  # of Lightning


def region_of(script: Script, evaluation: Evaluation) -> Region:
    """The code that an evaluation stands for."""
    node = evaluation.node
    if isinstance(node, DEFS):
        return Region(script.log, node, node.body, True)
    return Region(
        script.log,
        node,
        (node.body if isinstance(node, WITHS) else [node] if isinstance(node, ast.stmt) else []),
        False,
    )


# -------------------------------------------------------------------------------------- where it is
def _switched_off(occurrence: Occurrence) -> Whole | None:
    """The block or decorator that switches gradients off there."""
    for frame, expr, _ in gradient_modes(occurrence.stack):
        is_block = isinstance(frame.node, WITHS)
        return frame.node, "with" if is_block else "decorator", expr
    return None


def _plain(
    site: Site, occurrence: Occurrence, training: Training, script: Script, sealed: Sealed
) -> Whole | None:
    """A model's own method that no gradient leaves (``model.predict(x)``), the outermost loop over
    batches, else the function, else the statement around this forward that no backward happens in.
    """
    if (
        occurrence.grad != "on"
        or site.node in training.passes
        or not isinstance(site.node, ast.expr)
    ):
        return None
    best: Whole | None = None
    last, call = _outside_models(site.node, occurrence.stack, training.all)
    own = sealed.around(occurrence.stack)
    below = of_kind(occurrence.stack[last + 1 :], CallFrame)
    if own is not None and any(f.func.node is own for f in below):
        return own, "function", None
    for i in range(last, -1, -1):
        frame = occurrence.stack[i]
        prefix = occurrence.stack[: i + 1]
        if isinstance(frame, LoopFrame) and isinstance(frame.node, LOOPS):
            if _has_backward(prefix, training.all):
                break
            if frame.loaders or best is None or best[1] == "function":
                best = frame.node, "loop", None
            if frame.loaders:
                return best
        elif isinstance(frame, CallFrame):
            if is_hook(frame) and not any(inside(b, frame.func.node) for b in training.all):
                return frame.func.node, "function", None
            if not isinstance(frame.node, ast.Call) or _of_module(frame):
                # Nothing in the project calls it, or a model calls other code that does.
                return None  # who needs the result is not known
            if any(inside(b, frame.func.node) for b in training.all):
                break
            if best is None and isinstance(frame.func.node, ast.FunctionDef):
                if not any(function_of(p) is frame.func.node for p in training.passes):
                    best = (frame.func.node, "function", None)
    if _blind(occurrence.stack, training.blind) and not (best and best[0] in training.measuring):
        return None
    here = statement_of(call)
    filled = gathering(script, here.value) if isinstance(here, ast.Expr) else None
    if script.of_node(is_wanted, call) or keeps_inside(
        script, Region(script.log, here, [here], False), training.all, {filled.id} if filled else ()
    ):
        return None
    return best or (here, "statement", None)


def _outside_models(call: ast.expr, stack: Stack, backs: list[Stack]) -> tuple[int, ast.expr]:
    """The last frame that is none of a model's own methods, and the call there:
    ``model.predict(x)`` rather than its layers.

    A method that trains is none that only computes.
    """
    last = len(stack) - 1
    for i in range(last, -1, -1):
        frame = stack[i]
        if isinstance(frame, CallFrame):
            trains = any(inside(b, frame.func.node) for b in backs)
            if trains or not _of_module(frame) or not isinstance(frame.node, ast.Call):
                break
            last, call = i - 1, frame.node
    return last, call


def is_hook(frame: CallFrame) -> bool:
    """A method of a LightningModule that Lightning calls beside training, with gradients on."""
    owner = frame.func.owner
    known = owner is not None and any(
        n.startswith("lightning.") and n.endswith("LightningModule") for n in owner.external
    )
    return known and frame.func.name in HOOKS and not isinstance(frame.node, ast.Call)


def _of_module(frame: CallFrame) -> bool:
    owner = frame.func.owner
    return owner is not None and is_module(Inst(owner, None))


def _has_backward(prefix: Stack, backs: list[Stack]) -> bool:
    node = prefix[-1].node
    loaders = prefix[-1].loaders if isinstance(prefix[-1], LoopFrame) else frozenset()
    for stack in backs:
        for frame in stack:
            if (
                frame.node is node
                and isinstance(frame, LoopFrame)
                and (not loaders or not frame.loaders or frame.loaders & loaders)
            ):
                return True
    return False


def _blind(stack: Stack, backs: list[Stack]) -> bool:
    """Whether a backward of something that is not known runs in a loop or function around this
    place.
    """
    return any(inside(b, f.code) for f in stack for b in backs) or any(not b for b in backs)
