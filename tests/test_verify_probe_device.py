"""What can be said of CUDA without a GPU: the logic of probe/device.py on a stand-in. No figure of
a real device has been seen yet.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.probing import PROBE, SCRIPTS, run

pytest.importorskip("torch")


def test_device(tmp_path: Path) -> None:
    ran = run(tmp_path, "fake_device.py", str(PROBE), probe=False)
    assert ran.code == 0, ran.stderr
    said = json.loads(ran.stdout)
    # The device is used from the second step on: one wait when the window begins, one at its end,
    # no other.
    assert said["asked"] == [
        "step 0",
        "step 1",
        "synchronize",
        "warn",
        "step 2",
        "step 3",
        "step 4",
        "synchronize",
    ]
    assert said["finish"]["walls"] == [None, None, 0.002, 0.002, 0.002]
    assert [(one["name"], one["peak_memory"]) for one in said["finish"]["devices"]] == [
        ("Stand-in", 5.0)
    ]
    lines = (SCRIPTS / "fake_device.py").read_text().splitlines()
    (place,) = said["syncs"]
    name, line = place.split(":")
    assert name == "fake_device.py" and "warnings.warn(" in lines[int(line) - 1], (
        "the innermost line that is the script's own"
    )
    assert said["syncs"][place] == 2, (
        "of steps 2 and 4; what the script silences is heard again from the next step on"
    )
