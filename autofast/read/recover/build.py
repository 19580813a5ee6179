"""From what happened to what it means: loaders, models, optimizers, training steps, evaluations."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

from autofast.depth import deeply
from autofast.model import names
from autofast.model.calls import is_method
from autofast.model.changes import restart
from autofast.model.contents import elements, with_contents, without_wrappers, wrapped
from autofast.model.events import BranchFrame, below, loops
from autofast.model.kinds import is_module, is_optimizer
from autofast.model.limits import SCRIPT, WORK, TooLarge
from autofast.model.names import last_part
from autofast.model.roles import Optimizer, Sync, Transfer
from autofast.model.script import Script
from autofast.model.several import of_kind
from autofast.model.source import BadInput, ByNode, Endless, Source, Told, shown_path
from autofast.model.syntax import CHOICES
from autofast.model.values import (
    Cls,
    Ext,
    Inst,
    Tensor,
    Thing,
    Unknown,
    any_of,
    are_parameters,
    joined,
)
from autofast.read.interpreter.interpreter import Again, Interpreter, TooDeep
from autofast.read.library import determinism
from autofast.read.library.frameworks import KINDS, name_of, run_hooks
from autofast.read.project import Project
from autofast.read.recover.evaluations import find_evaluations
from autofast.read.recover.loaders import build_loaders, is_guarded
from autofast.read.recover.models import build_models
from autofast.read.recover.schedulers import build_schedulers
from autofast.read.recover.steps import build_steps
from autofast.read.recover.trainers import build_trainers
from autofast.read.torch_age import torch_age

FRAMEWORKS = {
    "accelerate.Accelerator": "accelerate",
    "transformers.Trainer": "hf-trainer",
    "transformers.Seq2SeqTrainer": "hf-trainer",
    "trl.SFTTrainer": "hf-trainer",
    "apex.amp.initialize": "apex",
    "apex.amp.scale_loss": "apex",
    "deepspeed.initialize": "deepspeed",
    "lightning.Trainer": "lightning",
    "lightning.cli.LightningCLI": "lightning",
    "lightning.Fabric": "fabric",
    "lightning.fabric.Fabric": "fabric",
    "ignite.engine.Engine": "ignite",
    "fastai.": "fastai",
    "mmengine.": "mmengine",
    "composer.Trainer": "composer",
}

PLAIN = 100  # levels of syntax that no stack is too small for: what is deep then is a value


@deeply
def read_script(
    entry: Path, root: Path, overlay: dict[Path, bytes] | None = None, before: Iterable[Source] = ()
) -> Script:
    """Read ``entry`` and what it uses of the project below ``root``, but for files that are nested
    too deeply; raises :class:`BadInput`. ``overlay`` and ``before`` are those of
    :class:`Project`."""
    broken: dict[Path, str] = {}
    each, wary = True, False
    while True:
        restart()
        project = Project(entry, root, overlay, before)
        project.broken.update(broken)
        source = project.read(entry)
        interp = Interpreter(project, each, wary)
        try:
            with WORK.at_most(SCRIPT):
                return _read(interp, project, source)
        except Again:
            each = False
        except TooLarge:
            raise Endless(
                f"{source.rel}: too large to follow: to read it takes more than {SCRIPT:,} steps"
            ) from None
        except RecursionError:
            deepest, depth, why = _nested_too_deeply(interp.modules)
            if depth < PLAIN and not wary:
                wary = True
                continue
            if deepest is None or deepest is source or deepest.path.resolve() in broken:
                raise why from None
            # What depends on it is not known; on a file that only imports the entry nothing does.
            path = deepest.path.resolve()
            broken[path] = "" if path in project.neighbours else str(why)


def _nested_too_deeply(sources: Iterable[Source]) -> tuple[Source | None, int, BadInput]:
    """The file whose code is nested most deeply, in how many levels, and what is said where that
    is more than Python's own stack is: where, and what helps.
    """
    deepest: tuple[int, Source | None, int] = (0, None, 1)
    for source in sources:
        todo: list[tuple[ast.AST, int, int]] = [(source.tree, 0, 1)]
        while todo:
            node, depth, line = todo.pop()
            line = getattr(node, "lineno", line)
            if depth > deepest[0]:
                deepest = depth, source, line
            todo += [(child, depth + 1, line) for child in ast.iter_child_nodes(node)]
    depth, found, line = deepest
    return (
        found,
        depth,
        BadInput(
            f"{shown_path(found.path) if found else ''}:{line}: nested too deeply to be read ({depth} levels: a long `elif` chain or a long expression?); "
            "split it, or put a part of it into a function"
        ),
    )


def _read(interp: Interpreter, project: Project, source: Source) -> Script:
    interp.run_module(source, True)
    if not interp.log.of(".backward") and not any(name_of(t) in KINDS for t in interp.made):
        for path in project.importers(source):
            project.neighbours.add(path.resolve())
            try:
                interp.run_module(project.read(path), True)
            except ValueError:
                continue
            except Exception as error:  # an unreadable neighbour is no reason to stop
                if type(error).__name__ != "BadInput":
                    raise
    try:
        run_hooks(interp)
        interp.run_uncalled(source)
    except TooDeep:
        interp.note(f"{source.rel}: too large to follow to the end")
    return build(interp, source)


def build(interp: Interpreter, source: object) -> Script:
    project = interp.project
    entry = project.read(project.entry)
    sources = [s for s in interp.modules if not isinstance(s, Told)]
    script = Script(entry, sources, interp.log, interp.at, interp.notes)
    script.notes.extend(f"not read: {why}" for why in project.broken.values() if why)
    script.frameworks = _frameworks(interp)
    script.deterministic = list(determinism.asked(script))
    script.processes = interp.log.of("process")
    script.steps = build_steps(script)
    script.models = build_models(interp, script)
    script.transfers = _transfers(script)
    script.loaders = build_loaders(interp, script)
    script.optimizers = _optimizers(interp, script)
    script.schedulers = build_schedulers(script, interp.made)
    script.unread = (
        f"{interp.cut} is too large to follow to the end" if interp.cut else interp.log.full
    )
    script.evaluations = find_evaluations(script)
    script.trainers = build_trainers(interp, script)
    for evaluation in script.evaluations if script.unread else ():
        evaluation.unknown = evaluation.unknown or script.unread
    script.syncs = _syncs(script)
    training = [o for step in script.steps for b in step.backwards for o in b.site]
    script.guarded = all(is_guarded(o.stack) for o in training)
    script.torch = torch_age(script)
    return script


# -------------------------------------------------------------------------------- frameworks, flags
def _frameworks(interp: Interpreter) -> dict[str, ast.AST]:
    found: dict[str, ast.AST] = {}
    for (kind, _), site in interp.log.each():
        for prefix, name in FRAMEWORKS.items():
            if kind == prefix or (prefix.endswith(".") and kind.startswith(prefix)):
                found.setdefault(name, site.node)
    if "apex" in found and not _may_initialise_apex(interp):
        del found["apex"]
    for module in interp.modules.values():
        for values in module.env.vars.values():
            for thing in values:
                if not isinstance(thing, Cls):
                    continue
                if any(n.startswith("lightning.") for n in thing.external):
                    found.setdefault("lightning", thing.node)
                if any(
                    n.startswith("transformers.") and n.endswith("Trainer") for n in thing.external
                ):
                    found.setdefault("hf-trainer", thing.node)
    return found


def _may_initialise_apex(interp: Interpreter) -> bool:
    """Without ``amp.initialize`` apex changes neither models nor optimizers, and its ``scale_loss``
    raises (apex/amp/handle.py): what is left of it is never run."""
    return any(
        isinstance(node, ast.Attribute | ast.alias)
        and "initialize" in (node.attr if isinstance(node, ast.Attribute) else node.name)
        for module in interp.modules.values()
        if re.search(r"\b(amp|apex)\b", module.source.text)
        for node in ast.walk(module.source.tree)
    )


# --------------------------------------------------------------------------------------- optimizers
def _optimizers(interp: Interpreter, script: Script) -> list[Optimizer]:
    found: ByNode[Optimizer] = {}
    updates = [u for step in script.steps for u in step.updates]
    for made in interp.made:
        if not is_optimizer(made) or not isinstance(made.node, ast.Call) or made.args is None:
            continue
        name = _class_name(made)
        mine = [u for u in updates if made in u.things]
        owners = _owners(script, made.args.given(0, "params"))
        old = found.get(made.node)
        if old is None:
            found[made.node] = Optimizer([made], made.node, name, made.args, owners, mine)
        else:
            old.things.append(made)
            old.name = name if old.name == "Optimizer" else old.name
            old.args = joined([old.args, made.args])
            old.params += [p for p in owners if p not in old.params]
            old.updates += [u for u in mine if u not in old.updates]
    return list(found.values())


def _class_name(made: Inst | Ext) -> str:
    """The name of an optimizer's class; that of the base class where it is chosen by its name."""
    if isinstance(made, Inst):
        return made.cls.node.name
    return "Optimizer" if made.name == names.ANY_OPTIMIZER else last_part(made.name)


def _owners(script: Script, given: object) -> list[Thing]:
    """The models behind ``model.parameters()`` somewhere in the argument."""
    expr = getattr(given, "expr", None)
    owners: list[Thing] = []
    for thing in with_contents(getattr(given, "values", ()), _given_over):
        if are_parameters(thing):
            node = thing.node
            if is_method(node):
                owners += script.values(node.func.value)
    for node in ast.walk(expr) if isinstance(expr, ast.AST) else ():
        if is_method(node, "parameters", "named_parameters"):
            owners += (t for t in script.values(node.func.value) if is_module(t))
    return list({id(t): t for owner in owners for t in without_wrappers(owner)}.values())


def _given_over(thing: Thing) -> Iterable[Thing]:
    if isinstance(thing, Ext) and "over" in thing.attrs:
        return (*wrapped(thing), *(t for g in thing.args.positional for t in g.values))
    return elements(thing)


# --------------------------------------------------------------------------------- transfers, syncs
def _transfers(script: Script) -> list[Transfer]:
    found = []
    for site in script.log.of("move"):
        if not isinstance(site.node, ast.Call):
            continue
        tensors = list(dict.fromkeys(o.this for o in site if isinstance(o.this, Tensor)))
        unknown = next((o.this.why for o in site if isinstance(o.this, Unknown)), "")
        loaders = list({id(x): x for t in tensors for x in t.batch}.values())
        kinds = {k for o in site for k in o.data.get("kinds", {"?"})}
        last = site.occurrences[-1]
        around = max((tuple(f for f in loops(o.stack)) for o in site), key=len)
        how, target = last.data.get("how", "to"), last.data.get("target")
        given = (target, last.args, around, site, unknown)
        found.append(Transfer(site.node, how, tensors, loaders, kinds, *given))
    return found


def _syncs(script: Script) -> list[Sync]:
    training = {step.loop: step.loop for step in script.steps}
    batch_loops = dict(training)
    for evaluation in script.evaluations:
        if isinstance(evaluation.node, (ast.For, ast.While)):
            batch_loops[evaluation.node] = evaluation.node
        for site in evaluation.forwards:
            for occurrence in site:
                inner = [f for f in loops(occurrence.stack) if f.is_statement and f.loaders]
                if inner:
                    batch_loops[inner[-1].node] = inner[-1].node
    found = []
    for site in script.log.of("sync"):
        if not isinstance(site.node, ast.Call):
            continue
        loop, gated, trains = None, False, False
        for occurrence in site:
            around = [
                f
                for f in loops(occurrence.stack)
                if f.node in batch_loops or (f.loaders and f.is_statement)
            ]
            if not around:
                continue
            loop = around[-1].node
            trains = loop in training
            rest = below(occurrence.stack, loop)
            gated |= any(not f.known and _gates(f) for f in of_kind(rest, BranchFrame))
        tensors = [o.this for o in site if isinstance(o.this, Tensor)]
        how = site.occurrences[-1].data.get("how", "item")
        read, unknown = list(dict.fromkeys(tensors)), any(isinstance(o.this, Unknown) for o in site)
        found.append(Sync(site.node, how, loop, gated, trains, read, unknown, site))
    return found


def _gates(frame: BranchFrame) -> bool:
    """A condition that makes something rare (``i % n == 0``, ``rank == 0``), not ``if scaler is
    None`` or ``if use_cuda``.
    """
    test = frame.node.test if isinstance(frame.node, CHOICES) else None
    if test is None:
        return True
    return any_of(ast.walk(test), ast.Mod, ast.Gt, ast.GtE, ast.Lt, ast.LtE, ast.Eq)
