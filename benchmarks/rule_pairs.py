"""Every pair of rules, on every fixture where both find something: do the two compose?

    python -m benchmarks.rule_pairs [--only gan,tabular] [--compose] [--write]

Takes about ten minutes. The rules that are off by default take part (accumulation with 2
micro-batches). For each pair the rewritten files must compile, use no undefined name, change
nothing but what a rule owns, be left alone by a second rewrite, and run to the end; where no rule
of the pair changes the training itself, the run must also train what the original trains, as far as
the stronger effect of the two allows. ``--write`` puts the table into docs/rule-pairs.md.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import date
from importlib.metadata import version
from itertools import combinations
from pathlib import Path

from rich.progress import track

from autofast.edit.plan import Plan, PostConditionError
from autofast.registry import all_rules
from autofast.rule import Effect, Options
from benchmarks.pages import put
from tests.fixture import ALL, Fixture, strongest
from tests.harness import HARNESS, compare
from tests.test_fixtures import job, reread, script_of, tolerance

Pair = tuple[str, str]


@dataclass
class Table:
    """What was found of each pair: the number of fixtures where both changed something, and where
    one gave way to the other.
    """

    both: Counter[Pair] = field(default_factory=Counter)
    gave_way: dict[Pair, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    alone: Counter[str] = field(default_factory=Counter)
    fixtures: int = 0


def every_rule(fixture: Fixture) -> Plan:
    rules = all_rules()
    options = Options(selected=frozenset(rules), asked=frozenset(rules), accumulate=2)
    return Plan.make(script_of(fixture), options, rules.values(), Effect.RECIPE)


def look_at(fixture: Fixture, table: Table, run: bool) -> None:
    """Try all pairs of the rules that find something in ``fixture``."""
    table.fixtures += 1
    whole = every_rule(fixture)
    firing = sorted(name for name in all_rules() if whole.subset([name]).applied)
    table.alone.update(firing)
    plans: dict[Pair, Plan] = {}
    for pair in combinations(firing, 2):
        plan = whole.subset(pair)
        if plan.applied != set(pair):
            (idle, *_) = sorted(set(pair) - plan.applied)
            whys = (f.refusal for f in plan.findings if f.rule == idle and f.refusal)
            table.gave_way[pair] = f"{idle}: {next(whys, 'nothing is left to do')}"
            continue
        try:
            plan.check(lambda texts: reread(fixture, texts))
        except PostConditionError as error:
            table.wrong.append(f"{fixture.name}: {' + '.join(pair)}: {error}")
        else:
            plans[pair] = plan
    if not run:
        table.both.update(list(plans))
        return
    before, *runs = HARNESS.run_many(
        [job(fixture), *(job(fixture, plan) for plan in plans.values())]
    )
    for (pair, plan), after in zip(plans.items(), runs, strict=True):
        effect = strongest(plan)
        if effect is Effect.RECIPE:
            differences = (
                []
                if after.ok
                else [
                    after.traceback.strip().splitlines()[-1]
                    if after.traceback
                    else after.stderr[-200:]
                ]
            )
        else:
            differences = compare(
                before,
                after,
                effect,
                tolerance(fixture, plan, effect, False),
                same_samples=fixture.same_samples,
            )
        table.both[pair] += not differences
        table.wrong += [f"{fixture.name}: {' + '.join(pair)}: {line}" for line in differences]


def page(table: Table) -> list[str]:
    """The table as Markdown: the rules in alphabetical order, numbered."""
    names = sorted(table.alone)
    seen: dict[str, dict[int, int]] = defaultdict(dict)
    for (a, b), n in table.both.items():
        seen[b][names.index(a)] = n
    rows = [
        f"{date.today().isoformat()}, CPU, torch {version('torch')}: {len(table.both)} pairs of {len(names)} rules on {table.fixtures} fixtures, "
        f"{sum(table.both.values())} rewrites composed, read again and run; {len(table.wrong)} went wrong.",
        "",
        "| | rule | fixtures | " + " | ".join(str(n + 1) for n in range(len(names) - 1)) + " |",
        "| --- | --- | --- |" + " --- |" * (len(names) - 1),
    ]
    for n, name in enumerate(names):
        cells = " | ".join(
            str(seen[name].get(k, "")) if k < n else "" for k in range(len(names) - 1)
        )
        rows.append(f"| {n + 1} | {name} | {table.alone[name]} | {cells} |")
    if table.gave_way:
        rows += ["", "Pairs of which one gives way to the other somewhere, with its reason:", ""]
        rows += [f"- {a} and {b}: {why}" for (a, b), why in sorted(table.gave_way.items())]
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", type=lambda names: names.split(","), help="names of fixtures")
    parser.add_argument(
        "--compose", action="store_true", help="compose and read again, but run nothing"
    )
    parser.add_argument(
        "--write", action="store_true", help="put the table into docs/rule-pairs.md"
    )
    args = parser.parse_args()
    table = Table()
    for fixture in track(
        [f for f in ALL if not args.only or f.name in args.only], "pairs", transient=True
    ):
        look_at(fixture, table, not args.compose)
    print("\n".join(page(table)))
    for line in table.wrong:
        print(line, file=sys.stderr)
    if args.write and not args.compose:
        put("pairs", page(table), Path(__file__).parent.parent / "docs" / "rule-pairs.md")
    return 1 if table.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
