"""Statements that only put a number away, into a sum, a list, an average, are put off: the tensors
are kept, and read when needed.

A sum stays on the device where that gives the same number (``running``). Else ``total +=
loss.item() / n`` becomes ``losses.append(loss.detach())``, and below the loop (or in the ``if``
that prints)

    for value in torch.stack(losses).tolist():
        total += value / n

or one by one, with ``value.item()``, where the list may be empty or its tensors of several kinds
(in a loop within a step, over parameters say, an empty list is asked for: ``... if losses else
[]``).

The very same Python arithmetic runs in the same order on the very numbers that ``item()`` would
have given, so every result is the same to the last bit, on every device. Python's ``sum`` is not,
which compensates from 3.12 on: a finding that writes it says so by its effect. Whole numbers are
the same in any order.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import indent

from autofast.edit.edits import After, Before, Edit, Edits, Remove, Replace, Rewrite, plain_code
from autofast.edit.order import Rank
from autofast.facts.copies import several_gpus
from autofast.facts.parameter_loops import is_norm
from autofast.flow.filled_lists import is_only_filled
from autofast.flow.loops import Loop
from autofast.flow.positions import index_in_block, place_in, statements_beside
from autofast.flow.program import definitions_of
from autofast.model.calls import is_same_code, root_of, short_name
from autofast.model.kinds import grad_mode_of
from autofast.model.script import Script
from autofast.model.several import any_in, wordset
from autofast.model.source import (
    ByNode,
    is_at_top,
    is_same_function,
    parent_of,
    source_of,
    within,
)
from autofast.model.syntax import is_attribute
from autofast.model.values import Seq, Tensor, one
from autofast.rule import Refusal
from autofast.techniques.syncs.filled import filled_edits, summed_edits
from autofast.techniques.syncs.kept import kept_template
from autofast.techniques.syncs.liveness import Needs
from autofast.techniques.syncs.reads import Read, gives_the_same
from autofast.techniques.syncs.scalar_tensors import kind_of
from autofast.techniques.syncs.sinks import Sink
from autofast.techniques.syncs.steps import EVERY, first_in, is_step, place_of, runs_at_all
from autofast.techniques.syncs.substitution import swapped_text
from autofast.techniques.syncs.summable import own_uses
from autofast.write.spelling import is_taken, torch_in

OUTERMOST = Rank.GRAD_MODE  # lists are made, and read, outside the block of an evaluation


@dataclass(frozen=True)
class Off:
    """What puts statements off.

    Attributes:
        repeats: at how many places what a list has of each step is counted one by one, or several
            statements read one sum.
        rounds: a sum of floats differs in its last bits.
    """

    edits: list[Edit]
    repeats: int = 0
    rounds: bool = False


def put_off(script: Script, sinks: list[Sink], loop: Loop, needs: Needs) -> list[Edit]:
    """The edits that put off a sink, together with those that take over what it computes."""
    return taken_off(script, sinks, loop, needs).edits


def taken_off(
    script: Script, sinks: list[Sink], loop: Loop, needs: Needs, rounds: bool = False
) -> Off:
    """The same; with ``rounds``, a sum of floats may be made by ``sum()``."""
    if not (needs.gates or needs.after or needs.moves):
        return Off(_unread(script, sinks))
    first, around = sinks[0].statement, _anchor(script, loop)
    if len(sinks) == 1 or sinks[0].beside:
        made = summed_edits(script, sinks, loop, needs, around=around)
        made = made or filled_edits(script, sinks[0], loop, needs, around=around)
        if made:
            places = sum(isinstance(e, (Before, After)) for e in made)
            return Off(made, places if places > 1 else 0)
    payload, tensors = _payload(script, sinks)
    values = _value_names(sinks, payload, tensors)
    main = next((s for s in sinks if s.kind != "passed"), sinks[0])
    lists = Kept(script, sinks, payload[:tensors], payload[tensors:], values, rounds=rounds)
    is_full = _is_filled(script, sinks[0], loop, needs)
    lists.may_be_empty = not is_full and not (needs.gates or is_step(script, loop))
    lists.at_once = lists.may_be_stacked() and (is_full or lists.may_be_empty)
    if len(sinks) == 1 and not needs.gates and not needs.moves:
        if (itself := lists.in_place_of(sinks[0], loop)) is not None:
            read, numbers = itself
            keep = Rewrite(read, _kept(script, sinks, payload[0]), {"core": payload[0]})
            below = [After(around, numbers, rank=OUTERMOST)] if needs.after else []
            return Off([keep, *below, *lists.imports])
    lists.name = name_of_list(script, main, payload[:tensors], loop)
    items = [
        _kept(script, sinks, p).replace("{core}", f"{{p{k}}}") if k < tensors else f"{{p{k}}}"
        for k, p in enumerate(payload)
    ]
    keeps = lists.append(items)
    keeps += lists.in_part() if sinks[0].kind == "record" else ""
    edits: list[Edit] = [Replace(first, keeps, holes={f"p{k}": p for k, p in enumerate(payload)})]
    edits += [*lists.imports, *(Remove(sink.statement) for sink in sinks[1:])]
    lists.begin = None if needs.gates or needs.moves else lists.begins(around)
    if lists.begin is not None:
        edits.append(Replace(lists.begin, f"{lists.name} = []"))
    else:
        edits.append(Before(around, f"{lists.name} = []", rank=OUTERMOST))
    for gate, nodes in needs.gates.items():
        edits.append(Before(first_in(gate, nodes), f"{lists.replay()}\n{lists.name}.clear()"))
    edits += [e for move in needs.moves.values() for e in move.edits]
    if needs.after:
        edits.append(After(around, lists.replay(), rank=OUTERMOST))
    parts = len(needs.gates) + bool(needs.after) + (sinks[0].kind == "record")
    is_loop = lists.replay().startswith("for ") or ".item() for " in lists.replay()
    is_loop = is_loop and not (lists.at_once and not is_step(script, loop))
    return Off(edits, is_loop * parts, lists.is_total)


def _unread(script: Script, sinks: list[Sink]) -> list[Edit]:
    """A sum of a function that nothing reads goes, and the number that it began as."""
    gone: list[ast.stmt] = []
    for sink in sinks:
        own = own_uses(sink)
        if not own or is_at_top(sink.statement):
            raise Refusal("nothing reads what it comes to: the statement can go")
        if not all(gives_the_same(script, p) for p in sink.payload):
            raise Refusal("nothing reads what it comes to, but it computes something")
        flow = definitions_of(script, sink.statement)
        gone.append(sink.statement)
        for made in flow.reaching(own[0]):
            match made.statement:
                case ast.Assign(targets=[ast.Name()], value=ast.Constant()) as begin:
                    if set(flow.uses(made)) <= set(own):
                        gone.append(begin)
    return [Remove(statement) for statement in gone]


def _is_filled(script: Script, sink: Sink, loop: Loop, needs: Needs) -> bool:
    """Whether something has certainly been kept where it is read."""
    gates = list(needs.gates)
    if not gates:
        return runs_at_all(script, sink, loop)
    here = statements_beside(sink.statement)
    first = -1 < index_in_block(here, sink.statement) < index_in_block(here, place_of(gates[0]))
    return first and len(gates) == 1 and not needs.after


def may_keep_once(script: Script, sinks: list[Sink]) -> bool:
    """Whether what several of them keep is the same each time that it is computed."""
    seen: set[str] = set()
    for sink in sinks:
        if any(ast.dump(p) in seen and not gives_the_same(script, p) for p in sink.payload):
            return False
        seen.update(ast.dump(p) for p in sink.payload)
    return True


def _payload(script: Script, sinks: list[Sink]) -> tuple[list[ast.expr], int]:
    """What is kept in each turn, the tensors first, and how many these are."""
    if not may_keep_once(script, sinks):
        raise Refusal("something that each of several statements computes anew is kept")
    payload: list[ast.expr] = []
    for sink in sinks:
        payload += [p for p in sink.payload if not any(is_same_code(p, q) for q in payload)]
    cores = {r.key for sink in sinks for r in sink.reads}
    tensors = [p for p in payload if ast.dump(p) in cores]
    return [*tensors, *(p for p in payload if ast.dump(p) not in cores)], len(tensors)


def _kept(script: Script, sinks: list[Sink], core: ast.expr) -> str:
    ready = any(r.core is core and r.ready for s in sinks for r in s.reads)
    return "{core}" if ready else kept_template(script, core)


def _anchor(script: Script, loop: Loop) -> ast.stmt:
    """The loop, or the block of a gradient mode that holds nothing else."""
    outer = parent_of(loop)
    if isinstance(outer, ast.With) and len(outer.body) == 1 and outer.body[0] is loop:
        if all(
            grad_mode_of(script.values(i.context_expr)) is not None and i.optional_vars is None
            for i in outer.items
        ):
            return outer
    return loop


def _value_names(sinks: list[Sink], payload: list[ast.expr], tensors: int) -> list[str]:
    """What the kept things are called where they are read: ``value``, ``count``, ``index``."""
    indices = {
        ast.dump(s.statement.targets[0].slice)
        for s in sinks
        if isinstance(s.statement, ast.Assign) and isinstance(s.statement.targets[0], ast.Subscript)
    }
    names: list[str] = []
    for k, part in enumerate(payload):
        stems = (
            (f"{part.id}_value", f"{part.id}_number")
            if k < tensors > 1 and isinstance(part, ast.Name)
            else ("value", "number", "reading")
            if k < tensors
            else ("index", "place")
            if ast.dump(part) in indices
            else ("count", "weight")
        )
        taken = [n for n in names if n.split("_")[0] in stems]
        name = (
            sinks[0].source.fresh(*stems)
            if not taken
            else sinks[0].source.fresh(f"{taken[0]}_{len(taken) + 1}")
        )
        names.append(name)
    return names


# ---------------------------------------------------------------------------------- kept in a list
@dataclass(eq=False)
class Kept:
    """What is kept for the sinks: ``tensors``, then ``weights`` (numbers), each called as in
    ``values`` where it is used again.

    Attributes:
        name: the list.
        at_once: its tensors are read by one copy.
        may_be_empty: there may be none, which ``torch.stack`` does not take.
        rounds: sums of floats may be made by ``sum()``, which rounds less than ``+=`` from Python
            3.12 on.
        begin: the 0 that such a sum begins as, where the list takes its place.
    """

    script: Script
    sinks: list[Sink]
    tensors: Sequence[ast.expr]
    weights: Sequence[ast.expr]
    values: list[str]
    name: str = ""
    at_once: bool = False
    may_be_empty: bool = False
    rounds: bool = False
    begin: ast.stmt | None = None

    def may_be_stacked(self) -> bool:
        """Whether the tensors of a list that is not empty can be read at once, and are then the
        numbers that they were: of one kind, without dimensions, on one device.
        """
        core = self.tensors[0]
        alike = kind_of(self.script, core) != "" and all(
            isinstance(t, Tensor) and (t.rank, t.device) == ("0d", "dev")
            for t in self.script.values(core)
        )
        return (
            len(self.tensors) == 1
            and not self.weights
            and all(r.how in ("item", "float", "int") for s in self.sinks for r in s.reads)
            and (alike or is_norm(self.script, core))
            and not several_gpus(self.script)
        )

    # ---------------------------------------------------------------------------------- in the loop
    def append(self, items: Sequence[str]) -> str:
        return f"{self.name}.append({one(items, '(' + ', '.join(items) + ')')})"

    def in_part(self) -> str:
        """The template of the code that does so for a part of the steps, where they are many."""
        replay = indent(f"{self.replay()}\n{self.name} = []", "    ")
        return f"\nif len({self.name}) == {EVERY}:\n{replay}"

    # ----------------------------------------------------------------------------- where it is read
    @property
    def imports(self) -> Edits:
        return torch_in(self.sinks[0].source)[1] if self.at_once else ()

    def _all(self, each: str) -> str:
        """The numbers of the list, read at once, or ``each``."""
        numbers = f"{torch_in(self.sinks[0].source)[0]}.stack({self.name}).tolist()"
        numbers += f" if {self.name} else []" * self.may_be_empty
        return numbers if self.at_once else each

    def in_place_of(self, sink: Sink, loop: Loop) -> tuple[ast.expr, str] | None:
        """What a loop alone fills keeps the tensors itself: what is appended, and the template of
        the statement that makes them numbers.
        """
        match sink.statement:
            case ast.Expr(
                value=ast.Call(
                    func=ast.Attribute(value=ast.Name() as held, attr="append"), args=[value]
                )
            ) if [r.node for r in sink.reads] == [value] and isinstance(loop, ast.For):
                if sink.reads[0].how != "item" or not is_only_filled(held, loop):
                    return None
                self.name, value_name = held.id, self.values[0]
                numbers = self._all(f"[{value_name}.item() for {value_name} in {held.id}]")
                return value, plain_code(f"{held.id} = {numbers}")
        return None

    def replay(self) -> str:
        """The template of the code that does what the sinks did, for all that was kept."""
        return plain_code(self._whole() or self._each())

    def _each(self) -> str:
        body = "\n".join("    " + self._again(sink) for sink in self.sinks)
        return f"for {', '.join(self.values)} in {self._all(self.name)}:\n{body}"

    @property
    def _only(self) -> ast.expr | None:
        """The read, where one statement puts nothing else away."""
        reads = self.sinks[0].reads
        single = len(self.sinks) == 1 and not self.weights and [r.how for r in reads] == ["item"]
        return reads[0].node if single else None

    @property
    def _numbers(self) -> str:
        value = self.values[0]
        return self._all(f"{value}.item() for {value} in {self.name}")

    def _whole(self) -> str:
        """One statement for all: ``sum()`` for ``+=``, ``extend`` for ``append``."""
        sink = self.sinks[0]
        match sink.statement:
            case ast.AugAssign(target=ast.Name(id=name)) if self.is_total:
                return f"{name} {'=' if self.begin else '+='} sum({self._numbers})"
            case ast.Expr(
                value=ast.Call(
                    func=ast.Attribute(value=holder, attr="append"), args=[value], keywords=[]
                )
            ) if value is self._only:
                things = self.script.values(holder)
                if all(isinstance(t, Seq) and t.kind == "list" for t in things):
                    return f"{sink.source.segment(holder)}.extend({self._numbers})"
        return ""

    @property
    def is_total(self) -> bool:
        """Whether the sum of the list is made by ``sum()``."""
        sink = self.sinks[0]
        match sink.statement:
            case ast.AugAssign(op=ast.Add(), value=value) if value is self._only:
                return (
                    self.rounds
                    and sink.kind == "number"
                    and kind_of(self.script, self.tensors[0]) == "float"
                    and not is_taken(sink.source, "sum")
                )
        return False

    def begins(self, around: ast.stmt) -> ast.stmt | None:
        """The 0 in front of the loop that a sum begins as, where nothing else asks for it."""
        own, here = own_uses(self.sinks[0]) if self.is_total else [], statements_beside(around)
        flow = definitions_of(self.script, around)
        made = [
            d for n in own for d in flow.reaching(n) if d.statement is not self.sinks[0].statement
        ]
        match [d.statement for d in made]:
            case [ast.Assign(targets=[ast.Name()], value=ast.Constant(value=0)) as begin]:
                uses, last = set(flow.uses(made[0])) - set(own), index_in_block(here, around)
                if -1 < index_in_block(here, begin) < last and all(
                    place_in(here, u) > last for u in uses
                ):
                    return begin
        return None

    def _again(self, sink: Sink) -> str:
        """The statement as it runs later: each read of a kept tensor, each number that was kept
        with it.
        """
        slots = {
            ast.dump(p): n for p, n in zip((*self.tensors, *self.weights), self.values, strict=True)
        }
        swaps: ByNode[str] = {r.node: self._number(r, slots[r.key]) for r in sink.reads}
        numbers = {
            ast.dump(p): slots[ast.dump(p)]
            for p in sink.payload
            if ast.dump(p) not in {r.key for r in sink.reads}
        }
        for node in ast.walk(sink.statement):
            if (
                isinstance(node, ast.expr)
                and ast.dump(node) in numbers
                and not any(within(node, r.node) for r in sink.reads)
            ):
                swaps[node] = numbers[ast.dump(node)]
        return swapped_text(sink.statement, swaps)

    def _number(self, read: Read, name: str) -> str:
        if not self.at_once:
            return read.of(name)
        return (
            name if read.how in ("item", kind_of(self.script, read.core)) else f"{read.how}({name})"
        )


# ----------------------------------------------------------------------------- names of the lists
OF_ALL = wordset(
    "total running epoch sum cum cumulative avg average mean num n all meter list history"
)


class ListNames:
    """The names that were given away, each with the statement and the loop that it is for."""

    def __init__(self, script: Script):
        self.given: list[tuple[str, ast.stmt, Loop]] = []

    def fresh(self, statement: ast.stmt, loop: Loop, *candidates: str) -> str:
        """The first name that neither the file nor another list of this loop, of one around it or
        of one in it has.
        """
        source = source_of(statement)
        near = {
            name
            for name, other, home in self.given
            if other is not statement
            and is_same_function(home, loop)
            and (home is loop or within(home, loop) or within(loop, home))
        }
        numbered = (f"{candidates[0]}_{n}" for n in range(2, 100))
        name = next(n for n in (*candidates, *numbered) if n not in near and n not in source.names)
        if (name, statement, loop) not in self.given:
            self.given.append((name, statement, loop))
        return name


def name_of_list(script: Script, sink: Sink, cores: Sequence[ast.expr], loop: Loop) -> str:
    """A name for the list of what is read of the tensors for the sink.

    ``test_losses`` for ``test_loss``, ``losses`` for ``total``, to which a loss is added;
    ``correct_counts`` and ``psnr_values`` for others.
    """
    whole = _last(sink.holder)
    told = "_".join(p for p in whole.split("_") if p.lower() not in OF_ALL)
    word = re.sub("(?<=loss)es$|(?<!s)s$", "", re.sub("(?<=[^aeiou])ies$", "y", told))
    thing = _thing(cores[0]) if len(cores) == 1 else ""
    kind = "counts" if all(kind_of(script, c) == "int" for c in cores) else "values"
    if losses := _losses(word) or _losses(thing):
        names = [losses, *(p for p in [_losses(whole)] if p), f"{word or thing}_tensors"]
    else:
        plural = word if word.endswith("s") else f"{word}s"
        names = [plural if plural == kind or word.endswith(f"_{kind[:-1]}") else f"{word}_{kind}"]
        names = names if word else [kind]
    return script.analysis(ListNames).fresh(sink.statement, loop, *names, f"{whole}_{kind}")


def _losses(word: str) -> str:
    """``test_losses`` of ``test_loss``, ``losses_G`` of ``loss_G``; empty where it is no loss."""
    parts = word.split("_")
    if "loss" in parts:
        return "_".join("losses" if p == "loss" else p for p in parts)
    return f"{word}es" if word.lower().endswith("loss") else ""


def _last(holder: ast.expr) -> str:
    base = root_of(holder, ast.Subscript)
    return short_name(base).strip("_") if is_attribute(base) else short_name(base)


def _thing(core: ast.expr) -> str:
    """A word for a tensor: its variable, ``loss`` for a call of a loss function."""
    if not isinstance(core, ast.Call):
        return _last(core)
    called = ast.unparse(core.func).lower()
    return "loss" if any_in(("loss", "criterion", "entropy"), called) else ""
