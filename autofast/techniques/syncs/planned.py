"""What becomes of each read of a tensor by the host."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise

from autofast.edit.edits import Before, Edit
from autofast.edit.ignores import is_spared
from autofast.facts.cost import gains
from autofast.facts.freshness import is_fresh
from autofast.facts.parameter_loops import is_norm, parameter_loops
from autofast.facts.switches import is_often
from autofast.flow.loops import Loop, loop_of
from autofast.flow.positions import index_in_block, is_always, position, statements_beside
from autofast.flow.scopes import mentions
from autofast.model.calls import is_method, only_target, put_into
from autofast.model.script import Script
from autofast.model.several import any_in, grouped
from autofast.model.source import (
    ByNode,
    any_within,
    at,
    function_of,
    is_same_function,
    nodes_in,
    statement_of,
    within,
    within_any,
)
from autofast.rule import Effect, Finding, Question, Refusal
from autofast.techniques.syncs.code_motion import NAME, moved_with, moves
from autofast.techniques.syncs.common_reads import Repeated, read_once, read_together
from autofast.techniques.syncs.deferred import Off, may_keep_once, taken_off
from autofast.techniques.syncs.delayed import (
    Variable,
    delayed_arms,
    delayed_variable,
    in_arms,
    keep_tensor,
    read_at_use,
)
from autofast.techniques.syncs.implicit_syncs import COPIED, moved_waits
from autofast.techniques.syncs.liveness import Needs, needs_of
from autofast.techniques.syncs.meter_forms import kept_in_meters
from autofast.techniques.syncs.reads import Read, by_statement
from autofast.techniques.syncs.returned import hand_on, results_of
from autofast.techniques.syncs.sinks import Sink, sink_of
from autofast.techniques.syncs.steps import is_step, runs_in_steps, where_shown, works_between
from autofast.techniques.syncs.stores import Changed, changed_stores
from autofast.techniques.syncs.summable import is_summed, kind_of_sum

REPEATING = (gains.read_again, gains.read_twice)
Found = tuple[Finding, set[ast.expr]]  # with the reads that it is about
Part = tuple[Sink, Needs]
Fixed = tuple[ast.stmt, list[Read], str]  # what cannot wait, its reads, and why
Said = tuple[ast.AST, str]  # of a place


def in_functions(script: Script, every: list[Read]) -> Iterator[Found]:
    """Reads whose numbers a function returns to loops over batches, which then return tensors."""
    homes = ((function_of(r.node), r) for r in every if not is_step(script, loop_of(r.node)))
    by_function = grouped((home, r) for home, r in homes if isinstance(home, ast.FunctionDef))
    for function, found in by_function.items():
        made = results_of(script, function, found)
        if made is None:
            continue
        statement, results = made
        results = [r for r in results if not is_read_anyway(script, r.read, found)]
        if not results:
            continue  # one read for all of them
        used = [r.inner or r.read for r in results]
        places = list({r.statement: r.statement for r in used}.values())
        try:
            edits = hand_on(script, function, statement, results)
        except Refusal as why:
            if str(why):
                yield Finding(places[0], said(used), refusal=str(why)), {r.node for r in used}
            continue
        effect = Effect.ROUNDING if any(r.inner for r in results) else None
        yield from group(
            [(p, said([r for r in used if r.statement is p])) for p in places],
            edits,
            used,
            effect=effect,
        )


def is_read_anyway(script: Script, result: Read, found: list[Read]) -> bool:
    """Whether the function reads the same tensor for something else in every step: a tensor in the
    result would be read once more.
    """
    others = [r for r in found if r is not result and (r.key, r.how) == (result.key, result.how)]
    return any(
        is_often(script, r.node, None)
        and is_always(r.node, r.statement)
        and in_each_step(script, r)
        and not _is_updated_between(script, r.node, result.node)
        for r in others
    )


def _is_updated_between(script: Script, first: ast.AST, second: ast.AST) -> bool:
    """Whether parameters change in the function between two places, of which both compute
    something: ``self.log_alpha.exp()``.
    """
    called = {call.func for call in nodes_in(first, ast.Call)}
    if not set(nodes_in(first, ast.Attribute)) - called:
        return False
    low, high = sorted(map(position, (first, second)))
    updates = (u.site.node for step in script.steps for u in step.updates)
    return any(is_same_function(u, first) and low < position(u) < high for u in updates)


def as_changed(made: Changed, asks: Question | None = None) -> Iterator[Found]:
    """The findings of reads that what keeps their numbers puts off, or the reason why it cannot."""
    places: list[Said] = [(s, said(rs)) for s, rs in by_statement(made.reads)]
    if made.why:
        used = {r.node for r in made.reads}
        yield from ((Finding(place, what, refusal=made.why), used) for place, what in places)
    else:
        effect = Effect.ROUNDING if made.rounds else None
        yield from group(places, made.edits, made.reads, asks, effect)


def in_stores(script: Script, every: list[Read], lists: bool = False) -> Iterator[Found]:
    """Reads that go into lists and attributes, which then hold tensors."""
    for made in changed_stores(script, every, lists):
        yield from as_changed(made)


def in_moves(script: Script, every: list[Read]) -> Iterator[Found]:
    """Statements that wait in every step for what is shown in few."""
    sites = ((r.node, script.log.at("sync", r.node)) for r in every)
    with_what = {n: found[1] for n, site in sites if (found := moved_with(script, site))}
    waits = grouped((s, w) for s, w in moved_waits(script))
    for move in {m: m for m in moves(script).values()}.values():
        mine = [r for r in every if with_what.get(r.node) is move]
        places: list[Said] = []
        for statement in move.statements if any_in(move.statements, waits) else ():
            here = [r for r in mine if within(r.node, statement)]
            if here or statement in waits:
                places.append((statement, said(here) if here else waits[statement][0].message))
        copies = any(COPIED in waits[s] for s in move.statements if s in waits)
        yield from group(places, list(move.edits), mine, gains.read_back if copies else None)


def left_to_read(script: Script, every: list[Read]) -> list[Read]:
    """The reads that move with nothing."""
    return [r for r in every if moved_with(script, script.log.at("sync", r.node)) is None]


def in_meters(
    script: Script, every: list[Read], well: set[ast.expr], effect: Effect
) -> Iterator[Found]:
    """Reads whose numbers objects of the project count, which then get tensors; not those that are
    all put off ``well`` otherwise.
    """
    for made in kept_in_meters(script, every, well, effect):
        yield from as_changed(made, gains.metered)


def in_loops_and_meters(script: Script, every: list[Read], effect: Effect) -> Iterator[Found]:
    """Reads in loops, those of meters by what they are where the loop would have to read each by
    itself, or cannot wait.
    """
    found = list(in_loops(script, every))
    well = {n for f, used in found for n in used if f.edits and f.asks not in REPEATING}
    meters = list(in_meters(script, every, well, effect))
    kept = {n for f, used in meters for n in used if f.edits}
    if kept:
        found = list(in_loops(script, [r for r in every if r.node not in kept]))
    yield from (m for m in meters if m[0].edits)
    yield from found
    yield from (m for m in meters if not m[0].edits)


def in_loops(script: Script, every: list[Read]) -> Iterator[Found]:
    for loop, found in by_loop(script, every):
        if loop is None or is_step(script, loop):
            yield from in_loop(script, loop, found)
        else:  # behind the inner loop, they are read all the same in each step: by one copy
            yield from (f for f in in_loop(script, loop, found) if f[0].edits)


def by_loop(script: Script, every: list[Read]) -> Iterator[tuple[Loop | None, list[Read]]]:
    """The reads of each turn of a loop over batches, or of each call of a function that such a loop
    calls.
    """
    homes: ByNode[tuple[Loop | None, list[Read]]] = {}
    parameters = {p.node for p in parameter_loops(script)}
    for read in every:
        loop = loop_of(read.statement)
        each = is_step(script, loop) or in_each_step(script, read)
        whole = loop is None or is_step(script, loop)
        inner = loop not in parameters or is_norm(script, read.core)
        inner = inner and is_fresh(script, read.core)
        if is_often(script, read.node, loop) and each and (whole or inner):
            home = loop if loop is not None else function_of(read.node)
            homes.setdefault(home, (loop, []))[1].append(read)
    yield from homes.values()


def in_scripts_read_in_part(script: Script, every: list[Read]) -> Iterator[Found]:
    """Who looks at an object, or calls a function, may be missing here; the places of a variable
    are all in its function.
    """
    for loop, found in by_loop(script, every):
        for statement, mine in by_statement(found):
            edits: list[Edit] = []
            if loop is not None and all(r.how == "item" for r in mine):
                with suppress(Refusal):
                    edits = put_off_parts(
                        script, loop, sinks_at(script, statement, mine, loop)
                    ).edits
                if not edits and len(mine) == 1:
                    with suppress(Refusal):
                        edits, pays = read_at_use(
                            script, delayed_variable(script, statement, mine[0], loop)
                        )
                        edits = [keep_tensor(script, mine[0]), *edits] if pays else []
            if edits:
                yield from group([(statement, said(mine))], edits, mine)
            else:
                yield (
                    Finding(statement, said(mine), refusal=script.unread),
                    {r.node for r in mine},
                )


def in_each_step(script: Script, read: Read) -> bool:
    """Whether a read in a function is come to in each turn of a loop over batches that calls it."""
    return runs_in_steps(script, script.log.ways("sync", read.node), each=True)


def in_loop(script: Script, loop: Loop | None, found: list[Read]) -> Iterator[Found]:
    """What can be done about the reads of each turn of a loop, or of each call of a function, the
    best first.
    """
    sinks: list[list[Part]] = []
    late: list[tuple[Variable, Read]] = []
    fixed: list[Fixed] = []
    arms: list[tuple[Variable, list[Read]]] = []
    for condition, mine in in_arms(found):
        with suppress(Refusal):
            arms.append((delayed_arms(script, condition, mine, loop), mine))
    yield from used_after_arms(script, arms)
    together = {r.statement for _, mine in arms for r in mine}
    sinks += sums_of_several(script, [r for r in found if r.statement not in together], loop)
    together |= {s.statement for parts in sinks for s, _ in parts}
    for statement, mine in by_statement([r for r in found if r.statement not in together]):
        try:
            if loop is None:
                raise Refusal("")
            sinks.append(sinks_at(script, statement, mine, loop))
            continue
        except Refusal as why:
            reason = str(why)
        if len(mine) == 1:
            try:
                late.append((delayed_variable(script, statement, mine[0], loop), mine[0]))
                continue
            except Refusal as why:
                reason = str(why) or reason
        fixed.append((statement, mine, reason))
    shared = list(repeated(script, [s for parts in sinks for s, _ in parts], fixed))
    yield from shared
    groups = list(joined(script, sinks))
    for parts in groups:
        assert loop is not None
        others = {
            r.key for group in groups if group is not parts for s, _ in group for r in s.reads
        }
        yield from later(script, loop, parts, others)
    yield from used_late(script, late, fixed)


def sinks_at(script: Script, statement: ast.stmt, mine: list[Read], loop: Loop) -> list[Part]:
    """The sink at a statement; with those that follow it, where they take over what it computes."""
    name, followers = passed_on(statement, mine, loop) or ("", [])
    live = frozenset({name})
    first = sink_of(script, statement, mine, loop, live)
    if followers:
        first.kind = "passed"
    together = [first, *(sink_of(script, s, [], loop, live) for s in followers)]
    return [(s, needs_of(script, s, loop, together)) for s in together]


def sums_of_several(script: Script, found: list[Read], loop: Loop | None) -> Iterator[list[Part]]:
    """Sums that several statements of a loop add to, and that the device can make: ``loss_D +=
    loss.item()`` of what is real, and again of what is not.
    """
    adds: dict[str, list[tuple[ast.stmt, list[Read]]]] = {}
    for statement, mine in by_statement(found) if loop is not None else ():
        match statement:
            case ast.AugAssign(ast.Name(name), ast.Add() | ast.Sub()):
                adds.setdefault(name, []).append((statement, mine))
    for several in (a for a in adds.values() if len(a) > 1):
        with suppress(Refusal):
            assert loop is not None
            sinks = [sink_of(script, statement, mine, loop) for statement, mine in several]
            for sink in sinks:
                sink.beside = [s for s in sinks if s is not sink]
            kinds = {kind_of_sum(script, s) for s in sinks if is_summed(script, s)}
            if len(kinds) == 1 and all(is_summed(script, s) for s in sinks):
                yield [(s, needs_of(script, s, loop, sinks)) for s in sinks]


def passed_on(
    statement: ast.stmt, mine: list[Read], loop: Loop
) -> tuple[str, list[ast.stmt]] | None:
    """``psnr = 10 * log10(1 / mse.item())`` where the statements right below are all that use
    ``psnr`` in the loop.
    """
    target = only_target(statement)
    if not isinstance(target, ast.Name) or any(put_into(r.node) is target for r in mine):
        return None
    uses = [
        n
        for n in mentions(function_of(target), target.id)
        if within(n, loop) and not within(n, statement)
    ]
    here = statements_beside(statement)
    followers: list[ast.stmt] = []
    for following in here[index_in_block(here, statement) + 1 :]:
        if not any_within(uses, following):
            break
        followers.append(following)
    if followers and all(within_any(n, followers) for n in uses):
        return target.id, followers
    return None


def repeated(script: Script, sinks: list[Sink], fixed: list[Fixed]) -> Iterator[Found]:
    """Statements that read the same tensor, one of which at least cannot wait."""
    keys = {
        (r.key, r.how)
        for _, mine, _ in fixed
        for r in mine
        if is_always(r.node, r.statement) and r.how != "numpy"
    }
    for key in sorted(keys):
        members = [
            r
            for _, mine, _ in fixed
            for r in mine
            if (r.key, r.how) == key and is_always(r.node, r.statement)
        ]
        own = [
            s for s in sinks if any((r.key, r.how) == key for r in s.reads) and len(s.reads) == 1
        ]
        members += [r for s in own for r in s.reads]
        statements = sorted(
            {r.statement: r.statement for r in members}.values(), key=lambda s: s.lineno
        )
        if len(members) < 2:
            continue
        try:
            parts = read_once(script, Repeated(statements, members, own))
        except Refusal:
            continue
        works = any(works_between(script, a, b) for a, b in pairwise(statements))
        asks = gains.read_once if works else gains.read_at_once
        text = ast.unparse(members[0].core)
        message = f"reads `{text}` from the device {len(members)} times in every step"
        edits = list({id(e): e for _, more in parts for e in more}.values())
        stays = next((e.stmt for e in edits if isinstance(e, Before)), statements[0])
        ways = [(s, sorted((s, stays), key=lambda s: s.lineno)) for s in statements]
        waits = [s for s, way in ways if s is not stays and works_between(script, *way)]
        places: list[Said] = [(s, message) for s in waits or statements]
        yield from group(places, edits, members, asks)


def joined(script: Script, sinks: list[list[Part]]) -> Iterator[list[Part]]:
    """The sinks, those in one: statements below each other that keep tensors until the same place,
    as the meters of a step do.
    """
    waiting: list[Part] = []
    for parts in sinks:
        alone = len(parts) > 1 or bool(parts[0][1].moves) or is_summed(script, parts[0][0])
        if waiting and (
            alone
            or not may_join(waiting[-1], parts[0])
            or not may_keep_once(script, [s for s, _ in (*waiting, *parts)])
        ):
            yield waiting
            waiting = []
        if alone:
            yield parts
        else:
            waiting = [*waiting, *parts]
    if waiting:
        yield waiting


def may_join(one: Part, other: Part) -> bool:
    here = statements_beside(one[0].statement)
    below = index_in_block(here, other[0].statement) == index_in_block(here, one[0].statement) + 1
    readers = all(r.how == "item" for s, _ in (one, other) for r in s.reads)
    alike = (one[0].kind == "record") is (other[0].kind == "record")
    return below and readers and alike and one[1].places == other[1].places


def later(script: Script, loop: Loop, parts: list[Part], others: set[str]) -> Iterator[Found]:
    """A sink, with what is put off together with it, is put off; ``others`` are the tensors that
    the loop reads for other sinks.
    """
    used = [r for s, _ in parts for r in s.reads]
    places: list[Said] = [(s.statement, said(s.reads)) for s, _ in parts if s.reads]
    try:
        done = put_off_parts(script, loop, parts, rounds=True)
    except Refusal as why:
        read = {r.node for r in used}
        yield from ((Finding(place, what, refusal=str(why)), read) for place, what in places)
        return
    asks: Question | None = gains.read_again if done.repeats else None
    if done.repeats > 1 or (done.repeats and others & {r.key for r in used}):
        asks = gains.read_twice
    effect = Effect.ROUNDING if done.rounds else None
    yield from group(places, done.edits, used, asks, effect)


def put_off_parts(script: Script, loop: Loop, parts: list[Part], rounds: bool = False) -> Off:
    needs = Needs()
    for _, one in parts:
        needs.add(one)
    return taken_off(script, [s for s, _ in parts], loop, needs, rounds)


def used_late(
    script: Script, late: list[tuple[Variable, Read]], fixed: list[Fixed]
) -> Iterator[Found]:
    """Variables that are read where they are used, and what is shown together read at once."""
    # What a statement reads itself, and through variables.
    shown: ByNode[tuple[ast.stmt, list[Read], list[Read]]] = {}
    origins: ByNode[Read] = {}
    alone: list[tuple[Variable, Read]] = []
    for statement, mine, _ in fixed:
        shown[statement] = (statement, mine, [])
    for variable, read in late:
        if len(variable.each) == 1 and not variable.seldom and not variable.outside:
            use = variable.each[0]
        else:
            use = None
        if use is None:
            alone.append((variable, read))
            continue
        place = statement_of(use)
        origins[use] = read
        shown.setdefault(place, (place, [], []))[2].append(Read(use, use, read.how, read.tensors))
    for statement, own, through in shown.values():
        delayed_here = [(v, r) for v, r in late if any(origins[t.node] is r for t in through)]
        keys = {r.key for r in (*own, *through)}
        try:
            if len(keys) < 2:
                raise Refusal("")
            edits = [
                *(keep_tensor(script, r) for _, r in delayed_here),
                *read_together(script, statement, [*own, *through], origins),
            ]
        except Refusal:
            alone += delayed_here
            yield from refused(script, fixed, statement)
            continue
        members: list[Said] = [(r.statement, said([r])) for _, r in delayed_here]
        members.append(
            (statement, f"reads {len(keys)} tensors from the device one by one in every step")
        )
        # all in one statement: the first read waits, and the others find the device nearly at rest
        asks = None if delayed_here else gains.read_at_once
        yield from group(members, edits, [*own, *(r for _, r in delayed_here)], asks)
    for variable, read in alone:
        edits, pays = read_at_use(script, variable)
        if pays:
            yield from group(
                [(variable.statement, said([read]))], [keep_tensor(script, read), *edits], [read]
            )
        elif variable.each:
            why = used_in_each(script, variable)
            yield Finding(variable.statement, said([read]), refusal=why), {read.node}


def used_after_arms(script: Script, arms: list[tuple[Variable, list[Read]]]) -> Iterator[Found]:
    """Variables that each arm of a condition reads a number into."""
    for variable, mine in arms:
        edits, pays = read_at_use(script, variable)
        if pays:
            yield from group(
                [(r.statement, said([r])) for r in mine],
                [*(keep_tensor(script, r) for r in mine), *edits],
                mine,
                gains.read_late if variable.each else None,
            )
        elif variable.each:
            why = used_in_each(script, variable)
            for read in mine:
                yield Finding(read.statement, said([read]), refusal=why), {read.node}


def used_in_each(script: Script, variable: Variable) -> str:
    use = variable.each[0]
    return f"`{variable.name}` is used in every step ({at(use)}){where_shown(script, use)}"


def refused(script: Script, fixed: list[Fixed], statement: ast.stmt) -> Iterator[Found]:
    for place, mine, reason in fixed:
        if place is statement and reason != "-":
            why = reason or needed(script, place)
            yield Finding(place, said(mine), refusal=why), {r.node for r in mine}


def needed(script: Script, statement: ast.stmt) -> str:
    """Why a number must be read where it stands, and what a person could do about that."""
    function = function_of(statement)
    if isinstance(statement, ast.Return) and isinstance(function, ast.FunctionDef):
        return (
            f"{function.name}() returns a number that is computed with it: it could compute on the device and return the tensor, "
            "to be read where it is shown"
        )
    if is_method(getattr(statement, "value", None), "append"):
        return (
            "a list of the script's gets it as a number: append the tensor, detached, and read all of them at once where the list is used, "
            "by torch.stack(...).tolist()"
        )
    return f"its value is needed in every step, where it stands{where_shown(script, statement)}"


def group(
    members: list[Said],
    edits: list[Edit],
    used: list[Read],
    asks: Question | None = None,
    effect: Effect | None = None,
) -> Iterator[Found]:
    """One finding for each statement of a change that is made as a whole, or not at all where a
    comment spares one of them.
    """
    if any(is_spared(node, NAME) for node, _ in members):
        return
    for n, (node, message) in enumerate(members):
        yield (
            Finding(node, message, edits=tuple(edits), asks=asks, effect=effect),
            {r.node for r in used} if n == 0 else set(),
        )


def said(found: list[Read]) -> str:
    texts = list(dict.fromkeys(ast.unparse(r.core) for r in found))
    what = ", ".join(f"`{t}`" for t in texts) if len(texts) < 4 else f"{len(texts)} tensors"
    return f"reads {what} from the device in every step"
