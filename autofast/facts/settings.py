"""Settings that stand in a file of the project instead of its code: YAML, JSON, TOML. What is to be
changed there is advice, with file and line; the reader follows those that the script loads
(:class:`Setting`).
"""

from __future__ import annotations

from autofast.model.values import Arguments, Dict, Setting, Values, of_kind


def setting(values: Values) -> Setting | None:
    """The one setting that an argument is by default; None where it may be anything else."""
    found = of_kind(values, Setting)
    return found[0] if len(found) == len(values) == 1 else None


def setting_place(said: Setting) -> str:
    return f"line {said.line} of {said.file}"


def settings_place(args: Arguments) -> str:
    """Where the arguments stand that a call gets from a file with settings, in words; empty where
    it gets none.
    """
    for holder in args.dicts:
        if isinstance(holder, Dict):
            for said in sorted(holder.any(), key=lambda t: getattr(t, "line", 0)):
                if isinstance(said, Setting):
                    return setting_place(said)
    return ""
