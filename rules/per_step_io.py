"""per-step-io: report files that are written, and pictures that are drawn, in every step."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from autofast.facts.cost import gains
from autofast.facts.host_io import effect_of
from autofast.facts.item_archives import reopened
from autofast.facts.switches import goes_by_batch, in_every_iteration
from autofast.model.calls import keyword_of
from autofast.model.events import Site
from autofast.model.script import Script
from autofast.model.source import Nodes, statement_of
from autofast.model.values import Ext, Num, Unknown
from autofast.rule import Effect, Finding, Options, rule

EVERY = "`if step % 100 == 0:`"
ONCE = (
    "open it with the first item that a worker fetches, and keep it: `if self.file is None: self.file = ...`; "
    "what __init__ opens, all workers would share"
)


@dataclass(frozen=True)
class Kind:
    """What calls of these names do in every step, and what to write for that."""

    names: re.Pattern[str]
    message: str
    advice: str


WRITER = r".*SummaryWriter\."
LINES = Kind(
    re.compile(
        r"(builtins|rich)\.print|tqdm(\.\w+)*\.write|"
        r"logging\.(\w+\.)?(info|warning|warn|error|critical|log)"
    ),
    "writes a line in every step, and the host has to format it",
    f"write it in few steps: {EVERY}",
)
BARS = Kind(
    re.compile(r"tqdm(\.\w+)*\.set_(postfix|description)(_str)?"),
    "draws the progress bar anew in every step",
    "pass refresh=False: the bar draws itself ten times a second",
)
FLUSHES = Kind(
    re.compile(
        rf"sys\.(stdout|stderr)\.flush|{WRITER}flush|io\..*\.flush|pathlib\.Path\.open\.flush"
    ),
    "waits in every step until what was written is out of its buffer",
    "leave the buffer alone, or flush once an epoch: it is written when it is full and when it is closed",
)
KINDS = (
    LINES,
    BARS,
    Kind(
        re.compile(rf"{WRITER}add_scalars?|wandb\.log|wandb\.[\w.]+\.log|mlflow\.log_metrics?"),
        "writes numbers to a log in every step",
        f"a curve needs few of them: {EVERY}",
    ),
    FLUSHES,
    Kind(
        re.compile(rf"{WRITER}add_(histogram|images?|figure|embedding|video|audio|graph|mesh)"),
        "gives the writer whole tensors in every step, which it copies to the host and sums up there",
        f"do it in few steps: {EVERY}",
    ),
    Kind(
        re.compile(r"matplotlib\.pyplot\.(savefig|show|pause|draw)|matplotlib\.[\w.]+\.savefig"),
        "draws a picture in every step",
        f"collect the numbers, and draw after the epoch or below {EVERY}",
    ),
    Kind(
        re.compile(
            r"torch\.save|pickle\.dump|joblib\.dump|numpy\.save\w*|torchvision\.utils\.save_image|safetensors\.torch\.save_\w+"
        ),
        "writes a file of tensors in every step",
        f"save once an epoch, or below {EVERY}",
    ),
    Kind(
        re.compile(r"builtins\.open|io\.open"),
        "opens a file for writing in every step",
        "open it once, in front of the loop, and write to it here",
    ),
    Kind(
        re.compile(r"\.state_dict"),
        "collects all values of a model in every step",
        "call state_dict() where it is saved or loaded",
    ),
)


@rule(
    "per-step-io",
    Effect.EXACT,
    groups=("sync",),
    asks=gains.usual(0.05, "the host writes in every step"),
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Report files that are written, and pictures that are drawn, in every step."""
    said: set[tuple[ast.AST, Kind]] = set()
    saved = _saved(script)
    mine = [s.loop for s in script.steps if goes_by_batch(script, s.loop)]
    for _, site in script.log.each() if mine else ():
        kind = _kind(script, site)
        found = in_every_iteration(script, site) if kind is not None else None
        if kind is None or found is None or found[0] not in mine:
            continue
        loop = found[0]
        if site.kind == ".state_dict" and statement_of(site.node) in saved:
            continue  # said of what is done with it
        if (loop, kind) not in said:
            said.add((loop, kind))
            yield Finding(site.node, kind.message, advice=kind.advice)
    for call, name in reopened(script) if mine else ():
        yield Finding(call, f"opens the same file for every item: {name}()", advice=ONCE)


def _kind(script: Script, site: Site) -> Kind | None:
    node = site.call
    if node is None:
        return None
    names = {site.kind}
    if site.kind.startswith("."):
        names |= {f"{o.this.name}{site.kind}" for o in site if isinstance(o.this, (Ext, Unknown))}
        names |= {f"io.file{site.kind}" for o in site if isinstance(o.this, Num)}  # Path.open()
    kind = next((k for k in KINDS if any(k.names.fullmatch(n) for n in names)), None)
    if site.kind == "builtins.print":
        flush = keyword_of(node, "flush")
        return FLUSHES if flush is not None and script.constant(flush) is True else LINES
    if kind is BARS:
        refresh = keyword_of(node, "refresh")
        return kind if refresh is None or script.constant(refresh) is not False else None
    if site.kind.endswith("open"):
        effect = effect_of(script, node)
        return kind if effect is not None and effect.kind == "file" else None
    return kind


def _saved(script: Script) -> Nodes:
    """The statements that write or load something."""
    sites = [*script.calls("torch.save", "copy.deepcopy"), *script.methods("load_state_dict")]
    return {statement_of(site.node) for site in sites}
