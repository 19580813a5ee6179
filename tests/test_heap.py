"""Readings make no work for Python's collector, also in a process that holds a lot."""

from __future__ import annotations

import subprocess
import sys
import textwrap


def alone(program: str) -> None:
    """Runs `program` in a process of its own: what else lives in the tests' process decides when
    the collector looks.
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)


def test_what_lives_on_is_not_looked_at_for_each_script() -> None:
    alone(
        """
        import gc
        from autofast import heap

        heap.MANY = 10
        held = [[] for _ in range(100_000)]
        looks = []

        def look(phase, info):
            if phase == "stop" and info["generation"] == 2:
                looks.append(1)

        gc.callbacks.append(look)
        for _ in range(20):
            with heap.growing():
                assert not gc.isenabled()
        assert gc.isenabled() and 1 <= len(looks) <= 2, looks
        """
    )


def test_garbage_of_many_scripts_goes() -> None:
    alone(
        """
        from autofast import heap

        heap.MANY = 10

        class Circle:
            alive = 0

            def __init__(self):
                self.me = self
                self.more = [[] for _ in range(50_000)]
                Circle.alive += 1

            def __del__(self):
                Circle.alive -= 1

        most = 0
        for _ in range(40):
            with heap.growing():
                Circle()
            most = max(most, Circle.alive)
        assert most < 20, most
        """
    )
