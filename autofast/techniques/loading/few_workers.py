"""Numbers of workers that are too small for most machines.

Workers for loaders that have none: the argument, and what other arguments wish for beside it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice

from autofast.edit.edits import Rewrite, Written
from autofast.facts.cost import gains
from autofast.facts.cost.recurrent_cells import goes_along_sequences
from autofast.facts.loaders import POSITION, is_used, loader_argument
from autofast.facts.settings import setting, setting_place
from autofast.facts.workers.legality import effect_of, why_cheap, why_no_workers
from autofast.flow.provenance import Origin, Trail
from autofast.model.calls import keyword_of, literal_of
from autofast.model.kinds import ways_made
from autofast.model.roles import Loader
from autofast.model.script import Script
from autofast.model.source import ByNode, ancestors, at, parent_of, source_of, statement_of
from autofast.model.values import Given, const
from autofast.rule import Finding, Options
from autofast.write.arguments import Home, Wish, place_for_argument, places_of_argument
from autofast.write.worker_helper import (
    FEW,
    MOST,
    Helped,
    against_starting,
    as_beside,
    as_cores,
    several_ranks,
    worker_count,
)

NAME = "num_workers"


def why_none(script: Script, loader: Loader) -> str:
    """Why a loader without workers does not get any; empty where it does."""
    return why_no_workers(script, loader) or why_cheap(script, loader) or against_starting(script)


def workers_wish(script: Script, loader: Loader, options: Options, template: str = "{}") -> Wish:
    """The wish for a number of worker processes; ``template`` says what is written with it."""

    def make(home: Home) -> Written:
        own = home.node is loader.node and not options.workers
        beside = as_beside(script, loader.node) if own else None
        source = source_of(home.node)
        served = [
            x for x in _served(script) if source_of(x.node) is source and _pays(script, options, x)
        ]
        rooms = [place_for_argument(script, x.args, NAME, [x.node for x in served]) for x in served]
        alone = len({r.node for r in rooms if not isinstance(r, str)}) < 2
        helped = beside or worker_count(script, source, options, alone)
        code = template.format(helped.code)
        return ("True" if template != "{}" and helped.some else code), helped.edits

    return Wish(loader, make, effect_of(script, loader))


def wish_with_workers(
    script: Script, loader: Loader, options: Options, template: str
) -> Wish | None:
    """What another rule wishes for a loader with workers by this one; ``{}`` is their number."""
    if not options.decides(Helped) or why_none(script, loader):
        return None
    home = place_for_argument(script, loader.args, NAME, [x.node for x in _served(script)])
    if isinstance(home, str):
        return None
    return replace(
        workers_wish(script, loader, options, template), effect=None, needs=(Helped,), key=home.node
    )


def _served(script: Script) -> list[Loader]:
    """The loaders that get workers."""
    return [
        x
        for x in script.loaders
        if is_used(script, x) and loader_argument(x, NAME) is None and not why_none(script, x)
    ]


def _pays(script: Script, options: Options, loader: Loader) -> bool:
    """Whether workers of a loader are written for what they gain, as far as that is known."""
    gain = gains.fetching(script, options, Finding(loader.node, NONE), ())
    return options.requested or not (gain and gain.is_below(options.min_gain))


NONE = "batches are made in the main process, and training waits for them"
SPEAKS = re.compile(r"#.*\d+\s+(?:\w+\s+)?workers?\b")
# What speaks against workers, in a comment or in what an option says of itself.
AGAINST = re.compile(r"shared memory|\bshm\b|dead-?lock|\bhangs?\b|\bcrash(es)?\b", re.IGNORECASE)


@dataclass(eq=False)
class Number:
    """A number of workers that is written somewhere, and the loaders that it decides for."""

    origin: Origin
    loaders: list[Loader] = field(default_factory=list)

    @property
    def value(self) -> object:
        return literal_of(self.origin.expr)

    @property
    def is_default(self) -> bool:
        """The default of an option, a parameter or a dataclass, which says less than a number that
        is chosen for this loader.
        """
        match parent_of(self.origin.expr):
            case ast.arguments():
                return True
            case ast.AnnAssign() as field:
                return isinstance(parent_of(field), ast.ClassDef)
        return self.origin.kind == "option"


def too_few_workers(script: Script, options: Options, loaders: list[Loader]) -> Iterator[Finding]:
    """Findings about numbers of workers of ``loaders`` that are too small for most machines."""
    yield from _in_settings(script, loaders)
    trail = Trail(script)
    numbers: ByNode[Number] = {}
    for loader in script.loaders:
        argument = loader_argument(loader, NAME)
        if argument is not None:
            origins = trail.of(argument, [ways_made(t) for t in loader.things])
        else:
            origins = []
        if isinstance(origins, str) and _is_none(argument) and is_used(script, loader):
            yield Finding(loader.node, NONE, refusal=f"{NAME} is 0, and {origins}")
        for origin in origins if isinstance(origins, list) else ():
            numbers.setdefault(origin.expr, Number(origin)).loaders.append(loader)
    few = [
        number
        for number in numbers.values()
        if type(number.value) is int
        and (number.value == 0 or number.value < (options.workers or MOST[options.target]))
        and number.value <= FEW
        and any(is_used(script, x) for x in number.loaders if x in loaders)
    ]
    for number in few:
        value = number.value
        assert isinstance(value, int)
        message = _few(value)
        home = _home(script, number)
        if why := home if isinstance(home, str) else _too_few(script, number, trail, options):
            yield Finding(number.origin.node, message, refusal=why)
            continue
        assert isinstance(home, Home)
        source = source_of(number.origin.expr)
        helped = (
            as_cores(script, source, options)
            if value
            else worker_count(script, source, options, alone=True)
        )
        if value and not number.is_default and not options.workers:
            helped = as_beside(script, number.origin.expr) or helped
        enough = _enough(script, number) if value else ""
        effect = max(effect_of(script, loader) for loader in number.loaders)
        yield Finding(
            home.node,
            message,
            edits=(Rewrite(number.origin.expr, helped.code), *helped.edits),
            effect=effect,
            asks=gains.more_workers(enough, number.loaders)
            if value and not options.any_workers
            else None,
        )


def _enough(script: Script, number: Number) -> str:
    """Why the workers that there are make batches fast enough, as far as the code tells; empty
    where more are likely to help.
    """
    cheaply = [why_cheap(script, loader) for loader in number.loaders]
    if all(cheaply):
        return cheaply[0]
    if several_ranks(script):
        return f"each rank has {number.value} of them, and ranks share the cores"
    reads = {
        cost for loader in number.loaders for dataset in loader.datasets for cost in dataset.reads
    }
    if "decode" not in reads and goes_along_sequences(script):
        return "files are read as they are, and the network takes longer to go along sequences"
    if number.value == 1:
        return ""
    if reads & {"file", "decode"}:
        return ""
    return f"no files are read, and there are {number.value} workers"


def _in_settings(script: Script, loaders: list[Loader]) -> Iterator[Finding]:
    """Advice about numbers of workers that stand in a file with settings."""
    for loader in loaders:
        argument = loader_argument(loader, NAME)
        said = setting(argument.values) if argument is not None else None
        few = said is not None and type(said.value) is int and said.value <= FEW
        if said is None or not few or not is_used(script, loader):
            continue
        why = why_no_workers(script, loader) or (
            why_cheap(script, loader) if said.value == 0 else ""
        )
        advice = "" if why else f"set it to about the number of cores in {setting_place(said)}"
        yield Finding(loader.node, _few(said.value), refusal=why, advice=advice)


def _is_none(argument: Given | None) -> bool:
    """``num_workers`` that is certainly 0, wherever that is said."""
    value = const(argument.values) if argument is not None else None
    return type(value) is int and value == 0


def _few(number: int) -> str:
    if number == 0:
        return NONE
    return f"batches are made by {number} worker{'s'[: number > 1]}, however many cores there are"


def _home(script: Script, number: Number) -> Home | str:
    """What a finding about the number points at; or why it cannot be changed there."""
    if number.origin.shared:
        return Home(number.origin.node, number.origin.expr, ())
    for loader in number.loaders:
        homes = places_of_argument(
            script, loader.args, NAME, [x.node for x in number.loaders], POSITION[NAME]
        )
        if isinstance(homes, str):
            return homes
        for home in homes:
            if home.expr is number.origin.expr:
                return home
    return "it is given in a way that is not followed"


def _against(number: ast.expr, lines: list[str]) -> str:
    """What tells why there are none: a comment beside the number, or its option's help text."""
    match next(islice(ancestors(number), 1, None), None):
        case ast.Call() as option if AGAINST.search(str(literal_of(keyword_of(option, "help")))):
            return f"the help text of {at(number)}"
    comments = (line.partition("#")[2] for line in lines[:1])
    return f"a comment beside {at(number)}" if any(map(AGAINST.search, comments)) else ""


def _too_few(script: Script, number: Number, trail: Trail, options: Options) -> str:
    asked = options.any_workers or options.requested
    if number.value == 0 and not number.is_default and not asked:
        return f"{NAME}=0 is written out, and gives way only where this rule is asked for by name, or by --workers auto"
    expr = number.origin.expr
    written = source_of(expr).lines[expr.lineno - 1 : statement_of(expr).end_lineno]
    if any(SPEAKS.search(line) for line in written):
        return "a comment there speaks of their number"
    if number.value == 0 and not asked and (said := _against(expr, written)):
        return f"{said} speaks against workers"
    if (other := trail.read_elsewhere(number.origin)) is not None:
        return f"{at(other)} reads it for something else"
    for loader in number.loaders:
        if why := why_no_workers(script, loader) or (
            why_cheap(script, loader) if number.value == 0 else ""
        ):
            return why
    return against_starting(script)
