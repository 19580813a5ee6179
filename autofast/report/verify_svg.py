"""Figures of matplotlib's as SVG that lives in a page: colours are the page's variables, text stays
text, names do not collide.

Plots are drawn in the colours of ``INK``; each stands for a CSS variable and becomes
``var(--name)``, so that one drawing serves light, dark and paper.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from html import escape
from typing import Final

import matplotlib
from matplotlib.figure import Figure

from autofast.verify.evidence.record import PHASES

_NAMES = (
    "ink",
    "muted",
    "grid",
    "paper",
    "original",
    "rewritten",
    "white",
    *(f"phase-{phase}" for phase in PHASES),
)
INK: Final[Mapping[str, str]] = {name: f"#0a5e{n:02x}" for n, name in enumerate(_NAMES, 16)}

STYLE: Final[Mapping[str, object]] = {
    "svg.fonttype": "none",
    "font.family": [
        "DejaVu Sans"
    ],  # comes with matplotlib, for the layout; the page's own font is shown
    "font.size": 13,
    "text.color": INK["ink"],
    "axes.edgecolor": INK["grid"],
    "axes.labelcolor": INK["muted"],
    "axes.linewidth": 1,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.labelsize": 13,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.unicode_minus": True,
    "axes.formatter.useoffset": False,
    "grid.color": INK["grid"],
    "grid.linewidth": 1,
    "xtick.color": INK["grid"],
    "ytick.color": INK["grid"],
    "xtick.labelcolor": INK["muted"],
    "ytick.labelcolor": INK["muted"],
    "ytick.major.size": 0,
    "xtick.labelsize": 13,
    "ytick.labelsize": 13,
    "lines.solid_capstyle": "butt",
    "text.parse_math": False,
}


def inline(figure: Figure, name: str, label: str) -> str:
    """The figure as an ``<svg>`` element; ``name`` sets its identifiers apart from those of other
    figures on the page.
    """
    out = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(
            out,
            format="svg",
            transparent=True,
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
        )
    text = out.getvalue()
    width, height = re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', text)[0]
    body = text[text.index(">", text.index("<svg")) + 1 :]
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", body, flags=re.S)
    body = re.sub(r"<[^>]*>", lambda tag: _tag(tag[0], name), body)
    used = set(re.findall(r"#([\w.-]+)", " ".join(re.findall(r'(?:href="|url\()#[\w.-]+', body))))
    body = re.sub(r' id="([^"]*)"', lambda found: found[0] if found[1] in used else "", body)
    body = re.sub(r">\s+<", "><", re.sub(r"<g>\s*</g>|<defs>\s*</defs>", "", body)).strip()
    size = f'viewBox="0 0 {float(width):g} {float(height):g}" width="{float(width):g}" height="{float(height):g}"'
    return f'<svg class="plot" {size} role="img" aria-label="{escape(label)}">{body}'


def _tag(tag: str, name: str) -> str:
    """One tag: shorter numbers, the page's colours and font, identifiers with the name of the
    figure.
    """
    tag = re.sub(r"\s+", " ", tag)
    tag = re.sub(r"(\d\.\d\d)\d+", r"\1", tag)
    tag = re.sub(r"font-family: [^;\"]*(?:; )?", "", tag)
    tag = (
        tag.replace("xlink:href", "href")
        .replace(' transform="rotate(-0 ', ' data-t="')
        .replace(' style="fill: none"', ' fill="none"')
    )
    tag = re.sub(r' data-t="[^"]*"', "", tag)
    tag = re.sub(r'(id="|href="#|url\(#)(?=[\w.-])', rf"\1{name}-", tag)
    for colour, variable in _VARIABLES.items():
        tag = tag.replace(colour, variable)
    return tag


_VARIABLES = {code: f"var(--{name})" for name, code in INK.items()} | {"#000000": "var(--ink)"}
