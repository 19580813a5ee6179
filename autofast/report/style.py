"""Colour where a person reads it, and nowhere else."""

from __future__ import annotations

import os
from typing import IO, Any

from autofast.rule import Gain

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_PLURALS = {
    "fix": "fixes",
    "piece of advice": "pieces of advice",
    "is": "are",
    "batch": "batches",
    "pass": "passes",
}


class Style:
    """``style("text", "bold", "red")`` gives the text with those colours, or as it is where colour
    is off.
    """

    def __init__(self, on: bool = False):
        self.on = on

    def __call__(self, text: str, *names: str) -> str:
        if self.on and text and names:
            return f"\x1b[{';'.join(_CODES[n] for n in names)}m{text}\x1b[0m"
        return text


def for_stream(stream: IO[Any]) -> Style:
    """Colour for a terminal, unless the environment says otherwise (https://no-color.org)."""
    return Style(
        on=stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )


def count(number: int, noun: str) -> str:
    """``1 file``, ``2 files``, ``2 fixes``, ``2 pieces of advice``."""
    if number != 1:
        noun = _PLURALS.get(noun, noun + "s")
    return f"{number} {noun}"


def short(text: str, width: int) -> str:
    """Cut where it is too long: behind a word, within one only where that would lose half."""
    if len(text) <= width:
        return text
    whole = text[:width].rpartition(" ")[0]
    return (whole if 2 * len(whole) >= width else text[: width - 1]).rstrip() + "…"


def expected(gain: Gain | None) -> str:
    """What a fix is expected to save: ``estimate: about 30 %, waits for data``, or by which
    measurement; empty where nothing is said.
    """
    if gain is None:
        return ""
    if gain.measured:
        return f"measured: {gain.reason}"
    percent = f"about {gain.share:.0%}, ".replace("%", " %") if gain.share >= 0.01 else ""
    return f"estimate: {percent if gain.known else ''}{gain.reason}"
