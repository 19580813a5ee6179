"""A search as one page, in the style of that of ``autofast verify``: nothing is loaded from
elsewhere, nothing needs JavaScript.
"""

from __future__ import annotations

from autofast import __version__, registry
from autofast.report import tune_words as words
from autofast.report.verify_html import environment, files_of, trimmed
from autofast.report.verify_plots import contributions
from autofast.tune.result import KEPT, Tuned
from autofast.verify.evidence.record import PHASES
from autofast.verify.result import Contribution


def page(t: Tuned, *, date: str = "") -> str:
    """The page; ``date`` is shown as it is given."""
    from markupsafe import Markup

    rules = registry.all_rules()
    shown = [
        Contribution(row.unit.name, row.alone, row.left_out)
        for row in t.found.decisions
        if row.alone is not None
    ]
    html = (
        environment()
        .get_template("tune.html.j2")
        .render(
            t=t,
            date=date,
            version=__version__,
            sentence=words.sentence(t),
            columns=words.COLUMNS,
            rows=words.rows(t),
            plot=Markup(contributions(shown, t.noise) or ""),
            facts=words.facts(t),
            phases=PHASES,
            factors=words.measured(t),
            files=files_of(t.diff),
            reasons={
                row.unit.rule: (
                    rules[row.unit.rule].effect.name.lower(),
                    rules[row.unit.rule].summary,
                )
                for row in t.found.decisions
                if row.fate in KEPT
            },
        )
    )
    return trimmed(html)
