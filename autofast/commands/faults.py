"""What is said when the mistake is ours."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

REPORT = "please report it together with the script"
DEBUG = "AUTOFAST_DEBUG"


def internal(error: Exception) -> str:
    """One line about an exception that nobody expected; raises it again where ``AUTOFAST_DEBUG`` asks for more."""
    if os.environ.get(DEBUG):
        raise error
    place = traceback.extract_tb(error.__traceback__)[-1]
    what = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    return f"internal error ({what}, {Path(place.filename).name}:{place.lineno}); {REPORT} ({DEBUG}=1 shows more)"
