"""anomaly-mode: switch off what was switched on to look for an error."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import DropKeyword, Header, Remove
from autofast.facts.cost import gains
from autofast.facts.switches import whole_statement, with_every_step
from autofast.model.events import Site, TryFrame
from autofast.model.names import CLOCKS
from autofast.model.script import Script
from autofast.model.several import any_in
from autofast.model.source import ancestors, at, line_of, parent_of, source_of
from autofast.model.syntax import is_constant
from autofast.model.values import Ref, const
from autofast.rule import Effect, Finding, Options, rule

MODES = tuple(
    f"torch.autograd.{where}{name}"
    for where in ("", "anomaly_mode.")
    for name in ("set_detect_anomaly", "detect_anomaly")
)
PROFILERS = (
    "torch.profiler.profile",
    "torch.autograd.profiler.profile",
    "torch.autograd.profiler.emit_nvtx",
)
BLOCKING = "CUDA_LAUNCH_BLOCKING"
MESSAGE = "looks for NaN in every operation of the backward pass, and keeps a traceback of every operation of the forward pass"


@rule(
    "anomaly-mode",
    Effect.EXACT,
    groups=("debug",),
    relieves={"host": 4, "cpu": 4},
    asks=gains.usual(0.5, "every operation is recorded and checked"),
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Switch off what was switched on to look for an error."""
    if not script.steps and not script.frameworks:
        return
    for site in script.calls(*MODES):
        yield from _mode(script, site)
    for site in script.calls("lightning.Trainer"):
        yield from _trainer(site)
    for site in script.calls(*PROFILERS):
        if with_every_step(script, site) and isinstance(parent_of(site.node), ast.withitem):
            yield Finding(
                site.node,
                "profiles every step",
                advice="take the profile of a few steps in a run of its own",
            )
    yield from _launches(script)


def _mode(script: Script, site: Site) -> Iterator[Finding]:
    node = site.call
    if node is None or not _is_on(site) or not with_every_step(script, site):
        return
    holder = parent_of(node)
    if isinstance(holder, ast.withitem):
        block = parent_of(holder)
        if (
            not isinstance(block, ast.With)
            or len(block.items) > 1
            or holder.optional_vars is not None
        ):
            yield Finding(
                node,
                MESSAGE,
                advice="it shares its `with` with other contexts: take it out of there",
            )
            return
        edit: Remove | Header = Header(block)
    elif (
        site.kind.endswith("set_detect_anomaly")
        and (stmt := whole_statement(script, node)) is not None
    ):
        edit = Remove(stmt)
    else:
        return  # `detect_anomaly()` without `with` does nothing
    if why := _caught(script):
        yield Finding(node, MESSAGE, refusal=why)
    else:
        yield Finding(node, MESSAGE, edits=(edit,))


def _is_on(site: Site) -> bool:
    """Switched on for good: ``set_detect_anomaly(True)``, not
    ``set_detect_anomaly(args.debug)``.
    """
    if site.kind.endswith(".detect_anomaly"):
        return True
    return all(const(o.args.get(0, "mode")) is True for o in site)


def _caught(script: Script) -> str:
    """A handler around the backward pass that may be there for what anomaly mode raises."""
    for step in script.steps:
        for backward in step.backwards:
            for occurrence in backward.site:
                for frame in occurrence.stack:
                    match frame:
                        case TryFrame(node=ast.Try() as attempt, part="body") if _catches(attempt):
                            return f"the error it raises at a NaN may be what {at(attempt)} catches"
    return ""


def _catches(node: ast.Try) -> bool:
    return any(
        h.type is None or any_in(("RuntimeError", "Exception"), ast.unparse(h.type))
        for h in node.handlers
    )


def _trainer(site: Site) -> Iterator[Finding]:
    for occurrence in site:
        given = occurrence.args.named.get("detect_anomaly")
        if given is not None and not given.via and is_constant(given.expr, True):
            assert site.call
            yield Finding(site.call, MESSAGE, edits=(DropKeyword(site.call, "detect_anomaly"),))
            return


# ----------------------------------------------------------------------------- CUDA_LAUNCH_BLOCKING
def _launches(script: Script) -> Iterator[Finding]:
    message = "makes the host wait for every kernel"
    for stmt in _settings(script):
        if script.deterministic:
            where = at(script.deterministic[0])
            yield Finding(
                stmt,
                message,
                refusal=f"determinism is asked for on {where}, and for RNNs this was once part of it",
            )
        elif clocks := script.calls(*CLOCKS):
            place = f"{source_of(clocks[0].node).rel}:{line_of(clocks[0].node)}"
            yield Finding(
                stmt,
                message,
                refusal=f"times are taken ({place}): without waiting they would be those of launching only",
            )
        else:
            yield Finding(stmt, message, edits=(Remove(stmt),))


def _settings(script: Script) -> Iterator[ast.stmt]:
    """``os.environ["CUDA_LAUNCH_BLOCKING"] = "1"``, under no condition."""
    for node in script.nodes:
        match node:
            case ast.Assign(
                targets=[ast.Subscript(value=holder, slice=ast.Constant(value=key))],
                value=ast.Constant(value="1"),
            ):
                if (
                    key == BLOCKING
                    and Ref("os.environ") in script.values(holder)
                    and not any(_is_condition(a) for a in ancestors(node))
                ):
                    yield node


def _is_condition(node: ast.AST) -> bool:
    match node:
        case ast.Try():
            return True
        case ast.If(test=test):
            return "__name__" not in ast.unparse(test)
    return False
