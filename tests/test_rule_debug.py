"""anomaly-mode and empty-cache: what is left over from debugging goes, what is needed stays."""

from __future__ import annotations

import pytest
import torch

from tests.onerule import Applied, apply, run

HEAD = """
import gc
import os
import time
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
debug = len(os.environ) > 10**6
model = torch.nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(8, 4), torch.zeros(8, dtype=torch.long)), batch_size=4)
losses = []
{setup}
for epoch in range(2):
    for i, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        {backward}
        optimizer.step()
        losses.append(loss.item())
        {step}
    with torch.no_grad():
        for x, y in loader:
            correct = (model(x.to(device)).argmax(1) == y.to(device)).sum()
            {evaluation}
    {epoch}
"""


def made(rule: str, **parts: str) -> Applied:
    text = HEAD
    for name in ("setup", "backward", "step", "evaluation", "epoch"):
        line = next(x for x in text.splitlines() if "{" + name + "}" in x)
        code = parts.get(name, "loss.backward()" if name == "backward" else "pass")
        text = text.replace("{" + name + "}", code.replace("\n", "\n" + line[: line.index("{")]))
    return apply(rule, text)


def debugging(**parts: str) -> Applied:
    return made("anomaly-mode", **parts)


def waiting(**parts: str) -> Applied:
    return made("empty-cache", **parts)


# ------------------------------------------------------------------------------------- anomaly-mode
@pytest.fixture(autouse=True)
def off():
    yield
    torch.autograd.set_detect_anomaly(False)


@pytest.mark.parametrize(
    "parts",
    [
        {"setup": "torch.autograd.set_detect_anomaly(True)  # NaN hunt"},
        {"setup": "torch.autograd.set_detect_anomaly(mode=True)"},
        {"setup": "from torch.autograd import set_detect_anomaly\nset_detect_anomaly(True)"},
        {"setup": "on = True\ntorch.autograd.set_detect_anomaly(on)"},
        {"backward": "with torch.autograd.detect_anomaly():\n    loss.backward()"},
        {"backward": "with torch.autograd.set_detect_anomaly(True):\n    loss.backward()"},
        {"backward": "with torch.autograd.detect_anomaly(check_nan=False):\n    loss.backward()"},
        {"setup": 'os.environ["CUDA_LAUNCH_BLOCKING"] = "1"'},
    ],
)
def test_switches_that_are_on(parts: dict[str, str]) -> None:
    done = debugging(**parts)
    assert len(done.fixes) == 1
    assert "detect_anomaly(" not in done.text and "LAUNCH" not in done.text
    assert run(done.text)["losses"] == run(done.before)["losses"]


@pytest.mark.parametrize(
    "parts",
    [
        {"setup": "torch.autograd.set_detect_anomaly(debug)"},
        {"setup": "torch.autograd.set_detect_anomaly(False)"},
        {"setup": "if debug:\n    torch.autograd.set_detect_anomaly(True)"},
        {
            "setup": "def debugging():\n    torch.autograd.set_detect_anomaly(True)\nif debug:\n    debugging()"
        },
        {
            "backward": "if i == 0:\n    with torch.autograd.detect_anomaly():\n        loss.backward()\nelse:\n    loss.backward()"
        },
        {"setup": "torch.autograd.detect_anomaly()"},
        {"setup": 'if debug:\n    os.environ["CUDA_LAUNCH_BLOCKING"] = "1"'},
        {"setup": 'os.environ["CUDA_LAUNCH_BLOCKING"] = "0"'},
    ],
)
def test_switches_of_the_users_stay(parts: dict[str, str]) -> None:
    assert debugging(**parts).findings == ()


def test_errors_that_are_handled() -> None:
    done = debugging(
        setup="torch.autograd.set_detect_anomaly(True)",
        backward="try:\n    loss.backward()\nexcept RuntimeError:\n    continue",
    )
    assert not done.fixes and "catches" in done.refusals


def test_blocking_launches_have_other_uses() -> None:
    block = 'os.environ["CUDA_LAUNCH_BLOCKING"] = "1"'
    assert "times are taken" in debugging(setup=block, step="print(time.time())").refusals
    assert (
        "determinism"
        in debugging(setup=block + "\ntorch.use_deterministic_algorithms(True)").refusals
    )


def test_what_is_reported() -> None:
    together = debugging(
        backward="with torch.enable_grad(), torch.autograd.detect_anomaly():\n    loss.backward()"
    )
    assert not together.fixes and "other contexts" in together.advice
    assert (
        "profile"
        in debugging(backward="with torch.profiler.profile():\n    loss.backward()").advice
    )


def test_lightning() -> None:
    text = """
    import lightning.pytorch as pl

    class Net(pl.LightningModule):
        pass

    pl.Trainer(max_epochs=1, detect_anomaly={value}).fit(Net())
    """
    assert apply("anomaly-mode", text.format(value="True")).lines == [
        "pl.Trainer(max_epochs=1).fit(Net())"
    ]
    assert apply("anomaly-mode", text.format(value="False")).findings == ()


# -------------------------------------------------------------------------------------- empty-cache
@pytest.mark.parametrize(
    "call",
    ["torch.cuda.empty_cache()", "torch.accelerator.synchronize()", "torch.cuda.synchronize()"],
)
@pytest.mark.parametrize("place", ["step", "evaluation"])
def test_calls_in_every_iteration_go(call: str, place: str) -> None:
    done = waiting(**{place: call})
    assert len(done.fixes) == 1 and call not in done.text
    if "cuda.sync" not in call and "accelerator" not in call:
        assert run(done.text)["losses"] == run(done.before)["losses"]


@pytest.mark.parametrize(
    ("step", "goes"),
    [
        ("# tentative for out of GPU memory\ndel loss\ntorch.cuda.empty_cache()", False),
        ("torch.cuda.empty_cache()  # else OOM on 8 GB", False),
        ("# batches of all sizes fragment the cache\n# (see #12)\ntorch.cuda.empty_cache()", False),
        ("# free some memory\ntorch.cuda.empty_cache()", True),
        ("# OOM here once\nprint(i)\ntorch.cuda.empty_cache()", True),
    ],
)
def test_a_comment_about_memory_that_was_short(step: str, goes: bool) -> None:
    done = waiting(step=step)
    assert ("empty_cache" not in done.text) is goes
    assert goes or "did not suffice" in done.refusals


def test_conditions_about_the_hardware() -> None:
    done = waiting(step='if device.type == "cuda":\n    torch.cuda.synchronize()')
    assert done.fixes and "if device.type" not in done.text
    run(done.text)
    kept = waiting(step="if torch.cuda.is_available():\n    torch.cuda.empty_cache()\n    print(i)")
    assert kept.fixes and "print(i)" in kept.text
    run(kept.text)


@pytest.mark.parametrize(
    ("setup", "test", "goes"),
    [
        ("use_cuda = torch.cuda.is_available()", "use_cuda", True),
        ("class C:\n    def __init__(self):\n        self.amp = device.type == 'cuda'\nc = C()", "c.amp", True),
        ("class C:\n    def __init__(self):\n        self.amp = False\nc = C()", "c.amp", False),
        ("c = type('C', (), {})()\nc.amp = torch.cuda.is_available()\nc.amp = c.amp and input()", "c.amp", False),
        ("use = torch.cuda.is_available()\nuse = use and input()", "use", False),
    ],
)  # fmt: skip
def test_conditions_about_the_hardware_that_have_a_name(setup: str, test: str, goes: bool) -> None:
    done = waiting(setup=setup, step=f"if {test}:\n    torch.cuda.empty_cache()\n    print(i)")
    assert ("empty_cache" not in done.text) is goes


def test_the_arm_without_a_gpu_is_none_of_every_step() -> None:
    step = "if torch.cuda.is_available():\n    print(i)\nelse:\n    torch.cuda.empty_cache()"
    assert "empty_cache" in waiting(step=step).text


def test_helpers_that_are_called_in_every_step() -> None:
    done = waiting(
        setup="def clean():\n    del_me = 1\n    torch.cuda.empty_cache()\n", step="clean()"
    )
    assert len(done.fixes) == 1


@pytest.mark.parametrize(
    "parts",
    [
        {"step": "if i % 100 == 0:\n    torch.cuda.empty_cache()"},
        {"step": "if debug:\n    torch.cuda.synchronize()"},
        {"setup": "torch.cuda.empty_cache()"},
        {"epoch": "if epoch % 5 == 0:\n    torch.cuda.empty_cache()"},
        {"epoch": "torch.cuda.synchronize()"},
        {
            "backward": "try:\n    loss.backward()\nexcept MemoryError:\n    torch.cuda.empty_cache()\n    continue"
        },
        {"step": "done = [torch.cuda.empty_cache()]"},
    ],
)
def test_calls_that_stay(parts: dict[str, str]) -> None:
    assert waiting(**parts).findings == ()


def test_waiting_that_nothing_needs() -> None:
    """What is copied to the device, and what is copied to the host by waiting, needs no further
    wait.
    """
    setup = "def move(t, to):\n    return t.to(to, non_blocking=True)\nhost = torch.empty(())"
    step = "x = move(x, device)\nhost.copy_(loss.detach())\ntorch.cuda.synchronize()"
    assert waiting(setup=setup, step=step).fixes


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"step": "torch.cuda.synchronize()\nprint(time.perf_counter())"}, "time is taken"),
        (
            {
                "setup": "side = torch.cuda.Stream() if debug else None",
                "step": "torch.cuda.synchronize()",
            },
            "streams",
        ),
        (
            {"step": 'kept = loss.detach().to("cpu", non_blocking=True)\ntorch.cuda.synchronize()'},
            "without waiting",
        ),
        (
            {"step": 'kept = loss.detach().to("cpu", True)\ntorch.cuda.synchronize()'},
            "without waiting",
        ),
        (
            {
                "setup": "host = torch.empty(())\ndef move(t, to):\n    return t.to(to, non_blocking=True)",
                "step": 'x = move(x, device)\nkept = move(loss.detach(), "cpu")\ntorch.cuda.synchronize()',
            },
            "without waiting",
        ),
        (
            {
                "setup": "host = torch.empty(())",
                "step": "host.copy_(loss.detach(), non_blocking=True)\ntorch.cuda.synchronize()",
            },
            "without waiting",
        ),
        (
            {"step": "torch.distributed.all_reduce(loss, async_op=True)\ntorch.cuda.synchronize()"},
            "in the background",
        ),
        ({"step": "torch.distributed.barrier()"}, "gradients"),
    ],
)
def test_waiting_that_is_needed(parts: dict[str, str], why: str) -> None:
    done = waiting(**parts)
    assert not done.fixes and why in done.refusals


@pytest.mark.parametrize("more", ["", "\nmodel(x.to(device)).sum().backward()\noptimizer.step()"])
def test_memory_that_is_given_back_in_every_epoch(more: str) -> None:
    done = waiting(epoch="torch.cuda.empty_cache()" + more)
    assert not done.fixes and "leave it out" in done.advice


@pytest.mark.parametrize(
    ("clock", "goes"),
    [
        ("begin = time.time()", True),
        ("begin = time.time()\ntook = time.time() - begin", True),
        ("begin = time.time()\ntook = time.time() - begin\nspent = 0\nspent += took", True),
        ("begin = time.time()\nprint(time.time() - begin)", False),
        ("begin = time.time()\nlosses.append(time.time() - begin)", False),
        ("device.begin = time.time()", False),
    ],
)
def test_times_that_nobody_sees(clock: str, goes: bool) -> None:
    """What was left of timing the steps needs no waiting, if nothing is done with the times."""
    done = waiting(step="torch.cuda.synchronize()\n" + clock)
    assert bool(done.fixes) == goes and ("time is taken" in done.refusals) != goes


METER = """\
class Meter:
    def __init__(self):
        self.val = self.sum = 0.0
    def update(self, val):
        self.val = val
        self.sum += val
taken, end = Meter(), time.time()"""
TURN = "torch.cuda.synchronize()\ntaken.update(time.time() - end)\nend = time.time()\n"
PART = "begin = time.time()\nmodel(x.to(device))\ntorch.cuda.synchronize()\ntaken.update(time.time() - begin)\n"


@pytest.mark.parametrize(
    ("step", "goes"),
    [
        (TURN + "if i % 10 == 0:\n    print(taken.sum / (i + 1))", True),
        (TURN + "if i % 10 == 0:\n    print(taken.val, taken.sum / (i + 1))", True),
        (TURN + "whole = taken.sum\nif i % 10 == 0:\n    print(whole)", True),
        (TURN + "print(taken.val)", False),
        (TURN + "if taken.val > 100:\n    break", False),
        (TURN + "losses.extend([taken.val])", False),
        (TURN + "if i % 10 == 0:\n    print(time.time() - end)", False),
        (PART + "if i % 10 == 0:\n    print(taken.sum)", False),
    ],
)
def test_the_time_of_whole_turns(step: str, goes: bool) -> None:
    """On average it is what it was, and shown in few steps."""
    done = waiting(setup=METER, step=step)
    assert ("synchronize" not in done.text) is goes and ("time is taken" in done.refusals) != goes


def test_a_clock_outside_of_the_loop_does_not_mind() -> None:
    assert waiting(step="torch.cuda.synchronize()", epoch="print(time.time())").fixes


def test_barriers_after_the_gradients() -> None:
    wrapped = "model = torch.nn.parallel.DistributedDataParallel(model)"
    done = waiting(setup=wrapped, step="torch.distributed.barrier()")
    assert len(done.fixes) == 1 and "barrier" not in done.text
    rank = "if torch.distributed.get_rank() == 0:\n    torch.save(model, 'x')\ntorch.distributed.barrier()"
    assert "gradients" in waiting(setup=wrapped, step=rank).refusals


def test_collecting_garbage_is_reported() -> None:
    assert "once an epoch" in waiting(step="gc.collect()").advice
