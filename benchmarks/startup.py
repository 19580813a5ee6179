"""CPU time of starting up, in fresh processes. Best of N, as the rest is other people's load.

python benchmarks/startup.py [N]
"""

from __future__ import annotations

import resource
import subprocess
import sys

LIMIT = 0.3  # seconds: what a pre-commit hook or an editor may cost before it does anything


def cpu(*arguments: str) -> float:
    """Seconds of CPU that a Python with ``arguments`` takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    for name, arguments in (
        ("python -c pass", ["-c", "pass"]),
        ("import autofast.cli", ["-c", "import autofast.cli"]),
        ("autofast --version", ["-m", "autofast", "--version"]),
        ("autofast rules", ["-m", "autofast", "rules"]),
    ):
        print(f"{name:22}{min(cpu(*arguments) for _ in range(rounds)):6.3f} s")
    print(f"allowed for the import: {LIMIT} s")


if __name__ == "__main__":
    main()
