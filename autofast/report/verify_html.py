"""A verification as one page: nothing is loaded from elsewhere, nothing needs JavaScript, light,
dark and on paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autofast import __version__
from autofast.report import verify_facts as facts, verify_words as words
from autofast.report.verify_diff import File, parsed
from autofast.verify.evidence.record import PHASES
from autofast.verify.result import Verification

if TYPE_CHECKING:
    import jinja2

FOLD = 120  # lines of a file's diff; a longer one is folded


@dataclass(frozen=True)
class Tile:
    """One of the figures at the top."""

    label: str
    value: str
    before: str = ""
    note: str = ""


def page(v: Verification, *, date: str = "") -> str:
    """The page; ``date`` is shown as it is given."""
    from markupsafe import Markup

    from autofast.report.verify_plots import plots

    drawn = {name: Markup(svg) for name, svg in plots(v).items()}
    html = (
        environment()
        .get_template("verify.html.j2")
        .render(
            v=v,
            date=date,
            version=__version__,
            sentence=words.sentence(v),
            badges=words.badges(v),
            tiles=_tiles(v),
            plots=drawn,
            comparisons=[(r.label, r.before, r.after, r.change) for r in facts.comparisons(v)],
            evidence=facts.evidence(v),
            floor=words.floor_of(v.speed.noise) if v.speed else None,
            checks=facts.checks(v.parity) if v.parity else [],
            shares=facts.shares(v),
            answers=facts.answers(v),
            contributions=[row for part in facts.by_rule(v) for row in part.rows],
            captions=_captions(v, drawn),
            errors=facts.errors(v),
            measured=facts.measured(v),
            files=[(f, f.length > FOLD) for f in files_of(v.diff)],
            reasons=_reasons(v),
            phases=PHASES,
        )
    )
    return trimmed(html)


def trimmed(html: str) -> str:
    """A page without blanks at the ends of its lines."""
    return "\n".join(line.rstrip() for line in html.splitlines()) + "\n"


def environment() -> jinja2.Environment:
    """The templates, with every text cleaned of what a page must not show."""
    import jinja2
    from markupsafe import Markup

    made = jinja2.Environment(
        loader=jinja2.PackageLoader("autofast.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda x: (
            words.clean(x) if isinstance(x, str) and not isinstance(x, Markup) else x
        ),
    )
    made.filters["unbroken"] = _unbroken
    return made


def _unbroken(text: str) -> str:
    """No line ends within an interval or before a unit."""
    return text.replace("–", "\u2060–\u2060").replace(" %", "\u00a0%")


def _tiles(v: Verification) -> list[Tile]:
    s = v.speed
    tiles = []
    if s is not None:
        value = words.ratio(s.ratio)[0]
        tiles.append(
            Tile(
                "Time per step",
                words.seconds(s.step_after),
                words.seconds(s.step_before),
                s.statistic,
            )
        )
        sure = f"{words.evidence(s.ratio)}\nnoise floor {words.floor(s.noise)}"
        tiles.append(
            Tile("Original ÷ rewritten", f"{value}×" if value != words.NONE else value, "", sure)
        )
        back = ", ".join(words.pays_back(s))
        tiles.append(
            Tile(
                "Start to end of first step",
                words.seconds(s.first_step_after),
                words.seconds(s.first_step_before),
                back,
            )
        )
    rows = {row.label: row for row in facts.comparisons(v)}
    for label in ("Peak memory, GPU", "Peak memory, host"):
        if label in rows and len(tiles) in (0, 3):
            tiles.append(Tile(label, rows[label].after, rows[label].before, rows[label].change))
    return tiles if s is not None else []


def _captions(v: Verification, drawn: Mapping[str, Any]) -> dict[str, str]:
    """What is to be seen in each plot."""
    said = {}
    if "times" in drawn:
        by = "each round" if v.rounds else "each run"
        said["times"] = (
            f"Above: the step times of {by}, in the order in which they were made; line from the 5th to the 95th percentile, bar from the "
            f"25th to the 75th, ring at the {'mean' if v.speed and 'mean' in v.speed.statistic else 'median'}. "
            "Below: the ratio of each round; the line is the estimate, the blue band its 95 % interval, the grey band the noise floor. "
            "Where the two bands touch, no difference is shown."
        )
    if "losses" in drawn:
        said["losses"] = _about_losses(v)
    if "phases" in drawn:
        if v.speed:
            said["phases"] = "By the host's clock; the length of a bar is the time of a step."
        else:
            said["phases"] = "By the host's clock."
    if "rules" in drawn:
        said["rules"] = (
            "Filled: the original with this rule alone. Ring: all rules against all but this one. Grey band: the noise floor. "
            "An interval that touches it shows no effect."
        )
    return said


def _about_losses(v: Verification) -> str:
    from autofast.report.verify_curves import curves

    found = curves(v)
    if found is None:
        return ""
    parts = []
    if found.band is not None:
        rest = ", thin lines single seeds" if len(found.rewritten) > 1 else ""
        parts.append(
            f"Lines: means over seeds{rest}. Grey band: the range of the original's {found.seeds} seeds."
        )
    if found.differences:
        if found.stray is not None:
            band = "; band: how far the original's seeds stray from their mean"
        else:
            band = ""
        parts.append(f"Right: rewritten − original with the same seed{band}.")
    else:
        parts.append("With the same seed, not a bit differs between the losses of the two scripts.")
    if found.block > 1:
        parts.append(f"Each point is the mean of {found.block} steps.")
    if found.optimizer:
        parts.append(f"Losses of the steps of {found.optimizer}, the first of several optimizers.")
    return " ".join(parts)


def files_of(diff: Mapping[str, str]) -> list[File]:
    return [parsed(path, text) for path, text in diff.items() if text.strip()]


def _reasons(v: Verification) -> dict[str, tuple[str, str]]:
    """Rule -> its effect, and what it does, in its own words."""
    from autofast import registry

    rules = registry.all_rules()
    named = dict.fromkeys(
        [
            *v.rules,
            *(name for file in files_of(v.diff) for hunk in file.hunks for name in hunk.rules),
        ]
    )
    return {
        name: (rules[name].effect.name.lower(), rules[name].summary)
        for name in named
        if name in rules
    }
