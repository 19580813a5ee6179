"""What a script sets up before it trains: where it seeds, where it chooses its device, and where it
sets what torch's backends do.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from autofast.facts.workers.seeding import SEED_ALL, SEEDS
from autofast.model.calls import short_name
from autofast.model.events import CallFrame, Site
from autofast.model.names import last_part
from autofast.model.script import Script
from autofast.model.several import of_kind, surely, wordset
from autofast.model.source import Nodes, nodes_in, parent_of, running, walk
from autofast.model.syntax import ASSIGNMENTS, VARIABLES, is_stored
from autofast.model.tensors import is_device
from autofast.model.values import Arg, Num, Thing, is_const

VISIBLE = "CUDA_VISIBLE_DEVICES"
BACKENDS, SEED, DEVICE, HARDWARE = "backends", "seed", "device", "hardware"
FLAGS = "torch.backends."
SETS = wordset("set_float32_matmul_precision use_deterministic_algorithms", "torch.")
SEEDING = SEEDS.keys() | wordset(
    "random.manual_seed cuda.manual_seed cuda.manual_seed_all cuda.random.manual_seed_all "
    "mps.manual_seed xpu.manual_seed xpu.manual_seed_all",
    "torch.",
)
CHOOSES = wordset("cuda.set_device set_default_device set_default_tensor_type", "torch.")
ASKS = wordset("cuda.is_available cuda.device_count backends.mps.is_available", "torch.")
NETWORKS = ("forward", ".backward")
MORE = (*NETWORKS, "move_model", "torch.utils.data.DataLoader")  # what sets up more than that
SAYS = wordset("print info warning warn debug")
ENDS = (ast.Pass, ast.Raise, ast.Assert)


@dataclass
class Places:
    """The nodes at which something happens, and the calls that lead there."""

    here: Nodes
    below: Nodes

    def happen_in(self, nodes: Nodes) -> bool:
        """Whether it happens at one of these nodes, or in what they call."""
        return bool(nodes & self.here or nodes & self.below)


class SetUp:
    """``script.analysis(SetUp)``: what the statements of a script set up."""

    def __init__(self, script: Script):
        self.script = script
        every = script.log.each()
        asking = {*script.deterministic}
        self.backends = _places(s for (k, _), s in every if _sets(k, s) or s.node in asking)
        self.seeds = _places(s for (k, _), s in every if _seeds(k))
        self.devices = _places(script.calls(*CHOOSES))
        self.visible = {*chooses_devices(script)}
        self.asks = _places(script.calls(*ASKS))
        self.networks = _places(script.log.of(*NETWORKS))
        self.more = _places(script.log.of(*MORE))

    def of(self, stmt: ast.stmt) -> frozenset[str]:
        """What a statement sets up: ``backends`` where it says so itself, ``seed`` also by a helper
        that sets nothing of a backend, ``device``, or ``hardware``, where it only asks which there
        is. Nothing where it does anything else.
        """
        if isinstance(stmt, ast.If):
            parts = [*running([*stmt.body, *stmt.orelse])]
            each = [self.of(part) for part in parts]
            aside = all(kinds or _is_aside(part) for kinds, part in zip(each, parts, strict=True))
            return frozenset().union(*each) if aside else frozenset()
        if not isinstance(stmt, (ast.Expr, *ASSIGNMENTS)):
            return frozenset()
        nodes = {*walk(stmt)}
        if nodes & self.backends.here:
            return frozenset({BACKENDS})
        if nodes & self.backends.below or self.more.happen_in(nodes):
            return frozenset()
        kind = self._kind(stmt.value, nodes, isinstance(stmt, ast.Expr))
        return frozenset({kind} if kind else ())

    def _kind(self, value: ast.expr | None, nodes: Nodes, alone: bool) -> str:
        if value in self.seeds.here or (alone and value in self.seeds.below):
            return SEED
        if nodes & self.visible or value in self.devices.here:
            return DEVICE
        if alone or value is None:
            return ""
        found = self.script.values(value)
        if surely(map(_may_name_device, found)):
            return DEVICE
        return HARDWARE if self.asks.happen_in(nodes) and surely(map(_is_answer, found)) else ""


def chooses_devices(script: Script) -> Iterator[ast.AST]:
    """The places that set CUDA_VISIBLE_DEVICES."""
    for source in script.sources:
        if VISIBLE in source.text:
            for node in source.each(ast.Constant):
                if node.value == VISIBLE and is_stored(parent_of(node)):
                    yield node


def _sets(kind: str, site: Site) -> bool:
    is_flag = kind == "set_flag"
    return kind in SETS or (is_flag and any(o.data["name"].startswith(FLAGS) for o in site))


def _seeds(kind: str) -> bool:
    return kind in SEEDING or (not kind.startswith(".") and last_part(kind) in SEED_ALL)


def _places(sites: Iterable[Site]) -> Places:
    found = [*sites]
    ways = {o.stack for site in found for o in site}
    calls = {f.node for way in ways for f in of_kind(way, CallFrame)}
    return Places({site.node for site in found}, calls)


def _may_name_device(thing: Thing) -> bool:
    """A device, the name of one, or an option that is one by default."""
    if isinstance(thing, Arg):
        return surely(map(is_device, thing.default))
    return is_device(thing) or (isinstance(thing, Num) and thing.pattern.startswith("cuda:"))


def _is_answer(thing: Thing) -> bool:
    """Yes, no, or a number."""
    return isinstance(thing, Num) or is_const(thing, bool, int)


def speaks_of(stmt: ast.stmt, other: ast.stmt) -> bool:
    """Whether a statement only says or checks what another one gives."""
    given = {ast.unparse(n) for n in nodes_in(other, *VARIABLES) if is_stored(n)}
    return _is_aside(stmt) and any(ast.unparse(n) in given for n in nodes_in(stmt, *VARIABLES))


def _is_aside(stmt: ast.stmt) -> bool:
    """It only says something, or ends the program where a setting does not fit."""
    if isinstance(stmt, ast.If):
        return all(map(_is_aside, running([*stmt.body, *stmt.orelse])))
    if isinstance(stmt, ast.Expr):
        return isinstance(stmt.value, ast.Call) and short_name(stmt.value.func) in SAYS
    return isinstance(stmt, ENDS)
