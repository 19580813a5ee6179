"""The probe's view of a GPU, on a stand-in for torch.cuda: a device that takes 2 ms a step, and a
host that waits for it.
"""

import importlib.util
import json
import os
import sys
import types
import warnings

folder = sys.argv[1]
spec = importlib.util.spec_from_file_location(
    "_autofast_probe", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
)
sys.modules["_autofast_probe"] = importlib.util.module_from_spec(spec)
from _autofast_probe import core, device, settings  # noqa: E402

asked = []


class Event:
    now = 0

    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        Event.now += 2
        self.at = Event.now

    def elapsed_time(self, other):
        return other.at - self.at


device.cuda = types.SimpleNamespace(
    Event=Event,
    is_initialized=lambda: len(asked) > 1,
    synchronize=lambda: asked.append("synchronize"),
    set_sync_debug_mode=lambda mode: asked.append(mode),
    device_count=lambda: 2,
    max_memory_allocated=lambda index: 2**20 * 5 * (1 - index),
    get_device_name=lambda index: "Stand-in",
    get_device_properties=lambda index: None,
)
probe = core.Probe(settings.Settings(gradients=True), 0.0, (0, 1))
probe.folder = os.path.dirname(os.path.abspath(__file__)) + os.sep
seen = device.Device(probe)


def wait():
    # As torch does it, from C++: attributed to the innermost line of Python.
    warnings.warn(
        "called a synchronizing CUDA operation (Triggered internally at ...)", stacklevel=2
    )


for step in range(5):
    asked.append(f"step {step}")
    wait()
    seen.step_ended()
    if step == 2:
        warnings.simplefilter("ignore")  # as scripts do
probe.stopped.set()
print(json.dumps({"finish": seen.finish(), "syncs": seen.syncs, "asked": asked}))
