"""The probe sees what a script does, and the script does what it does without it."""

from __future__ import annotations

import math
import signal
import sys
from pathlib import Path

import pytest

from autofast.verify.evidence.record import FULL, PHASES, Detail, Record
from tests import probing
from tests.probing import PROBE, SCRIPTS, fresh, run

pytest.importorskip("torch")


def check(record: Record) -> Record:
    """What holds of every record."""
    ends = [step.end for step in record.steps]
    assert ends == sorted(ends) and all(0 < end <= record.moments.ended + 1e-6 for end in ends)
    for step in record.steps:
        assert set(step.phases) == set(PHASES)
        assert sum(step.phases.values()) == pytest.approx(step.wall, abs=1e-5)
        assert all(value > -1e-6 for value in step.phases.values()), step
    assert record.backwards >= sum(step.backwards for step in record.steps)
    assert record.peak_memory > 50
    assert record.notes == ()
    return record


def test_plain(tmp_path: Path) -> None:
    bare = run(tmp_path, "train.py", "--seed", "5", probe=False)
    light = run(tmp_path, "train.py", "--seed", "5")
    full = run(tmp_path, "train.py", "--seed", "5", detail=FULL)
    assert bare.code == light.code == full.code == 0
    assert bare.stdout == light.stdout == full.stdout, (
        "the probe changes nothing, to the last bit and the last random number"
    )
    record = check(light.record)
    assert record.ending == "end" and record.exit_code == 0
    assert list(record.losses) == light.printed == list(full.record.losses)
    assert len(record.steps) == record.backwards == 8 and record.optimizers == ("Adam",)
    assert [step.samples for step in record.steps] == [16, 16, 16, 8] * 2
    assert [step.evaluation_samples for step in record.steps] == [0] * 4 + [20] + [0] * 3
    assert [step.lr for step in record.steps] == [(0.01,)] * 4 + [(0.005,)] * 4
    assert record.steps[4].phases["evaluation"] > 0 and record.steps[2].phases["evaluation"] == 0
    assert all(
        record.steps[2].phases[name] > 0
        for name in ("data", "forward", "backward", "optimizer", "other")
    )
    passes = [
        (one.loader, one.training, one.batches, one.samples, one.complete) for one in record.passes
    ]
    assert passes == [(0, True, 4, 56, True), (1, False, 3, 20, True)] * 2
    moments = record.moments
    assert moments.first_step is not None
    assert (
        0 <= moments.script_started <= moments.first_step <= moments.ended
        and moments.torch_imported >= 0
    )
    # Only where it was asked for:
    assert (
        record.steps[0].grad_norm is None
        and record.model == {}
        and record.passes[0].checksums == ()
        and record.steps[0].random == ""
    )
    record = check(full.record)
    assert record.precision == ("forward float32", "gradient float32")
    assert [call.step for call in record.calls] == list(range(8))
    assert len({step.random for step in record.steps}) == 8, "dropout draws in every step"
    assert record.calls[0].order["0"] != 0.0 and not record.calls[1].order
    assert record.dropouts == ("0/2",) and record.modules["0/2"] == "Dropout(p=0.1, inplace=False)"
    drawn = [index for chosen, _ in record.passes[0].items for index in chosen]
    assert sorted(drawn) == list(range(56)) and len(record.passes[0].items[0][1]) == 3
    lines, text = record.lines["train.py"], (SCRIPTS / "train.py").read_text().splitlines()
    assert {text[n - 1].strip() for n in lines.ran} >= {"loss.backward()", "schedule.step()"}
    assert {text[n - 1].strip() for n in set(lines.code) - set(lines.ran)} >= {"sys.exit(3)"}
    norms = [step.grad_norm for step in record.steps]
    assert all(norm is not None and norm > 0 for norm in norms)
    assert all(step.update_norm is not None and step.training == 1 for step in record.steps)
    assert (
        set(record.model)
        == {"0/0.weight", "0/0.bias", "0/3.weight", "0/3.bias"}
        == set(record.start)
    )
    before, after = record.start["0/0.weight"], record.model["0/0.weight"]
    assert (
        before.sha != after.sha
        and after.shape == (16, 8)
        and after.dtype == "float32"
        and len(after.sketch) == 16
    )
    distance = math.dist(before.sketch, after.sketch)
    assert 0 < distance < sum(step.update_norm or 0 for step in record.steps) * 3
    assert len({step.random for step in record.steps}) == len(record.steps)
    sums = [one.checksums for one in record.passes]
    assert [len(one) for one in sums] == [4, 3, 4, 3]
    assert sums[0] != sums[2] and sums[1] == sums[3], "shuffled, and not"
    assert sum(sums[0]) == pytest.approx(sum(sums[2])), "the same samples in another order"


def test_seeds_from_outside(tmp_path: Path) -> None:
    one, same, other = (run(tmp_path, "train.py", seed=seed).stdout for seed in (1, 1, 2))
    assert one == same != other


def test_shift_of_the_scripts_own_seeds(tmp_path: Path) -> None:
    bare = run(tmp_path, "seeds.py", probe=False)
    plain, shifted, again, further = (
        run(tmp_path, "seeds.py", shift=shift) for shift in (0, 1, 1, 2)
    )
    assert bare.code == plain.code == shifted.code == 0, shifted.stderr
    assert bare.stdout == plain.stdout
    assert shifted.stdout == again.stdout
    draws = [
        dict(line.split() for line in one.stdout.splitlines()) for one in (plain, shifted, further)
    ]
    assert len(draws[0]) == 7
    for name in draws[0]:
        assert len({draw[name] for draw in draws}) == 3, name


@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_workers(tmp_path: Path, context: str) -> None:
    arguments = ["--workers", "1", "--context", context, "--epochs", "1"]
    ran = run(tmp_path, "train.py", *arguments, *(["--persistent"] if context == "fork" else []))
    record = check(ran.record)
    assert ran.code == 0 and record.ending == "end", ran.stderr
    assert [step.samples for step in record.steps] == [16, 16, 16, 8]
    assert record.passes[0].workers == 1 and record.passes[0].complete
    assert record.peak_memory_children > 1
    assert list(record.losses) == ran.printed


def test_ends_after_steps_with_workers_alive(tmp_path: Path) -> None:
    ran = run(tmp_path, "train.py", "--workers", "2", "--epochs", "50", steps=3)
    record = check(ran.record)
    assert ran.code == 0 and record.ending == "steps" and len(record.steps) == 3, ran.stderr
    assert record.peak_memory_children > 1 and not record.passes[0].complete
    assert "Traceback" not in ran.stderr and "killed" not in ran.stderr
    ran = run(tmp_path, "train.py", "--epochs", "50", seconds=1e-9)
    assert len(ran.record.steps) == 2 and ran.record.ending == "steps", (
        "at the first step after the limit"
    )


def test_fused_and_compiled(tmp_path: Path) -> None:
    plain = run(tmp_path, "train.py", detail=FULL).record
    fused = run(tmp_path, "train.py", "--fused", detail=FULL).record
    assert fused.losses == pytest.approx(plain.losses, rel=1e-5)
    # fullgraph=True: the hooks must not break the graph, nor may the names of parameters change.
    ran = run(tmp_path, "train.py", "--compile", "aot_eager", detail=FULL)
    assert ran.code == 0, ran.stderr
    compiled = check(ran.record)
    assert compiled.losses == pytest.approx(plain.losses, rel=1e-4), "random draws agree"
    assert set(compiled.model) == set(plain.model)
    assert compiled.moments.compiling > 0 == plain.moments.compiling
    assert [step.training for step in compiled.steps] == [1.0] * 8


def test_training_flags(tmp_path: Path) -> None:
    record = run(tmp_path, "train.py", "--eval-mode", "--epochs", "1", detail=FULL).record
    assert [step.training for step in record.steps] == [0.0] * 4


def test_accumulation(tmp_path: Path) -> None:
    record = check(run(tmp_path, "train.py", "--accumulate", "2").record)
    assert [(step.backwards, step.batches, step.samples) for step in record.steps] == [
        (2, 2, 32),
        (2, 2, 24),
    ] * 2


def test_gradients_are_seen_before_they_are_clipped(tmp_path: Path) -> None:
    left: list[list[float]] = []
    for place, more in enumerate(([], ["--clip", "0.01"], ["--clip", "0.01", "--accumulate", "2"])):
        folder = tmp_path / str(place)
        folder.mkdir()
        record = run(
            folder, "train.py", "--seed", "3", "--epochs", "1", *more, detail=Detail(gradients=True)
        ).record
        used = [step.grad_norm or 0.0 for step in record.steps]
        left.append([step.left_norm or 0.0 for step in record.steps])
        if place:
            assert used == pytest.approx([0.01] * len(used), rel=1e-3)
        else:
            assert used == left[0], "nothing was done to them"
    assert left[1][0] == left[0][0] > 0.1
    # The first half of the sum was clipped before the second came to it.
    assert left[2][0] < 0.75 * left[1][0]


MANY = """
import copy

import torch
from torch import nn

torch.manual_seed(0)
shared = nn.Sequential(*[nn.Linear(4, 4) for _ in range(10)])
counts, clients, norm = [0], [], torch.linalg.vector_norm


def counted(*args, **kwargs):
    counts[-1] += 1
    return norm(*args, **kwargs)


for client in range(60):
    model = copy.deepcopy(shared)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    clients.append((model, optimizer))
    for step in range(2):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        counts.append(0)
        torch.linalg.vector_norm = counted
        optimizer.step()
        model(torch.ones(2, 4)).sum().backward()
        torch.linalg.vector_norm = norm
print(counts[60], counts[-1])
"""


def test_an_optimizer_for_each_of_many_clients(tmp_path: Path) -> None:
    """What is asked at a step does not grow with them, and each step has what its backward left."""
    (tmp_path / "train.py").write_text(MANY)
    ran = run(tmp_path, str(tmp_path / "train.py"), detail=FULL)
    assert ran.code == 0, ran.stderr
    halfway, last = map(int, ran.stdout.split())
    assert 0 < last == halfway
    for step in ran.record.steps:
        assert step.left_norm and step.grad_norm == pytest.approx(0.01, rel=1e-3)
        assert step.left_norm > 0.1


@pytest.mark.parametrize("how", [[], ["unscale"], ["fused"]], ids=["plain", "unscale", "fused"])
def test_skipped_steps(tmp_path: Path, how: list[str]) -> None:
    ran = run(tmp_path, "scaler.py", "inf", *how, detail=Detail(gradients=True))
    record = check(ran.record)
    assert ran.code == 0, ran.stderr
    assert [step.skipped for step in record.steps] == [
        False,
        True,
        False,
        True,
        False,
        False,
    ] and record.skipped == 2
    assert list(record.losses) == ran.printed, "before scaling"
    norms = [float(line.split()[1]) for line in ran.stdout.splitlines() if line.startswith("norm")]
    for step, norm in zip(record.steps, norms, strict=True):
        assert step.skipped or step.grad_norm == pytest.approx(norm, rel=1e-5), "after unscaling"
        assert step.skipped or step.left_norm == pytest.approx(norm, rel=1e-5)


def test_scaler_off_and_scaled_lists(tmp_path: Path) -> None:
    ran = run(tmp_path, "scaler.py", "off")
    assert list(check(ran.record).losses) == ran.printed and ran.record.skipped == 0
    ran = run(tmp_path, "scaler.py", "list")
    assert list(ran.record.losses[::2]) == ran.printed and len(ran.record.losses) == 12
    ran = run(tmp_path, "scaler.py", "sum")
    assert list(ran.record.losses) == pytest.approx(ran.printed)


def test_two_optimizers(tmp_path: Path) -> None:
    record = check(run(tmp_path, "gan.py", detail=FULL).record)
    assert record.optimizers == ("SGD", "Adam") and record.backwards == 9
    assert [(step.optimizer, step.backwards, step.samples) for step in record.steps] == [
        (0, 2, 32),
        (1, 1, 0),
    ] * 3
    assert {name.split("/")[0] for name in record.model} == {"0", "1", "2"}
    assert "1/1.running_mean" in record.model
    assert record.trainable_unused == ("2/weight", "2/bias")


def test_closures(tmp_path: Path) -> None:
    ran = run(tmp_path, "unusual.py", "lbfgs", detail=Detail(gradients=True))
    record = check(ran.record)
    assert (
        len(record.steps) == 4
        and record.steps[0].backwards > 1
        and list(record.losses) == ran.printed
    )
    step = record.steps[1]
    assert (
        min(step.phases[name] for name in ("forward", "backward", "optimizer")) > 0
        and step.grad_norm
    )


def test_no_optimizer_of_torch(tmp_path: Path) -> None:
    ran = run(tmp_path, "unusual.py", "own", steps=7)
    record = check(ran.record)
    assert record.ending == "steps" and [step.optimizer for step in record.steps] == [-1] * 7
    assert list(record.losses) == ran.printed[:7] and not record.passes


def test_steps_in_steps_and_backwards_in_backwards(tmp_path: Path) -> None:
    record = check(run(tmp_path, "unusual.py", "nested").record)
    assert record.optimizers == ("Lookahead",) and len(record.steps) == record.backwards == 3
    assert not any(math.isnan(loss) for loss in record.losses)


def test_tensors_that_are_no_modules(tmp_path: Path) -> None:
    record = check(run(tmp_path, "unusual.py", "functional", detail=FULL).record)
    assert set(record.model) == {"o0/0.0"}


def test_bare_except(tmp_path: Path) -> None:
    ran = run(tmp_path, "unusual.py", "bare", steps=5)
    assert ran.code == 0 and ran.record.ending == "steps" and len(ran.record.steps) == 5
    assert ran.stdout.count("swallowed") == 1 and "bare except" in ran.record.notes[0]


def test_finally_and_exit_functions_run(tmp_path: Path) -> None:
    ran = run(tmp_path, "unusual.py", "finally", steps=5)
    assert (
        ran.code == 0
        and ran.stdout.endswith("finally\nat exit\n")
        and "swallowed" not in ran.stdout
    )
    assert len(check(ran.record).steps) == 5


@pytest.mark.parametrize(
    "how, code, ending, written, error",
    [
        ("exit", 3, "exit", 3, ""),
        ("_exit", 4, "exit", 4, ""),
        ("error", 1, "error", 1, "RuntimeError: it broke"),
        ("interrupt", -signal.SIGINT, "error", 1, "KeyboardInterrupt"),
        ("term", -signal.SIGTERM, "error", 143, "SIGTERM"),
    ],
)
def test_other_ends(
    tmp_path: Path, how: str, code: int, ending: str, written: int, error: str
) -> None:
    ran = run(tmp_path, "train.py", "--end", how, "--epochs", "1")
    record = ran.record
    assert (ran.code, record.ending, record.exit_code, record.error) == (
        code,
        ending,
        written,
        error,
    ), ran.stderr
    assert len(record.steps) == 4
    if how == "error":
        assert "train.py" in record.traceback and "in main" in record.traceback
        assert (
            str(PROBE) not in record.traceback + ran.stderr and ran.stderr.count("Traceback") == 1
        )


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work, outside = tmp_path / "work", tmp_path / "made_by_a_test"
    work.mkdir()
    monkeypatch.setitem(
        probing.ENVIRONMENT, "TMPDIR", str(work)
    )  # the system's is allowed, and tests run in it
    ran = run(
        work,
        "train.py",
        "--outside",
        str(outside),
        "--save",
        "model.pt",
        "--epochs",
        "1",
        detail=FULL,
    )
    assert ran.record.wrote_outside == (str(outside),)
    good, whole = ran.record.checkpoints
    assert (
        good.path == "model.pt"
        and good.loads
        and good.keys["model/0.weight"] == "Tensor float32 [16, 8]"
        and good.keys["epoch"] == "int"
    )
    first, second = ran.record.saves
    assert (first.path, first.step, first.plain) == ("model.pt", 4, {"epoch": "0"})
    assert first.tensors["model/0.weight"].sha == second.tensors["0.weight"].sha
    assert (
        not whole.loads and whole.error.startswith("UnpicklingError") and "\x1b" not in whole.error
    )


PACKAGED = """
import torch
from {up}data import N
import sys

model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(N):
    model(torch.ones(4, 2)).pow(2).mean().backward()
    optimizer.step()
print(__name__, __package__, __spec__ and __spec__.name, sys.path[0])
"""


@pytest.mark.parametrize(("up", "marked"), [(".", True), (".", False), ("..", True), ("..", False)])
def test_a_script_of_a_package_runs_as_its_module(tmp_path: Path, up: str, marked: bool) -> None:
    """As ``python -m`` has it: there is no other way to start one that imports relatively."""
    folder = tmp_path / "pkg" / "inner"
    folder.mkdir(parents=True)
    if marked:
        (folder / "__init__.py").touch()
        (folder.parent / "__init__.py").touch()
    ((folder if up == "." else folder.parent) / "data.py").write_text("N = 3\n")
    (folder / "start.py").write_text(PACKAGED.format(up=up))
    ran = run(tmp_path, "pkg/inner/start.py")
    assert ran.record.ending == "end" and len(ran.record.steps) == 3, ran.stderr
    assert ran.stdout.split() == [
        "__main__",
        "pkg.inner",
        "pkg.inner.start",
        str(tmp_path.resolve()),
    ]


def test_a_script_that_can_do_without_its_package_runs_by_itself(tmp_path: Path) -> None:
    (tmp_path / "data.py").write_text("N = 2\n")
    (tmp_path / "__init__.py").touch()
    text = (
        "try:\n    from .data import N\nexcept ImportError:\n    from data import N\n"
        + PACKAGED.replace("from {up}data import N\n", "")
    )
    (tmp_path / "start.py").write_text(text)
    ran = run(tmp_path, "start.py")
    assert len(ran.record.steps) == 2 and ran.stdout.split() == [
        "__main__",
        "None",
        "None",
        str(tmp_path.resolve()),
    ], ran.stderr


def test_double_and_perturbed(tmp_path: Path) -> None:
    single = run(tmp_path, "train.py").record
    ran = run(tmp_path, "train.py", "--fused", detail=Detail(state=True, double=True))
    double = ran.record
    assert ran.code == 0, ran.stderr
    assert double.losses == pytest.approx(single.losses, rel=1e-5), (
        "the same draws, dropout and initial weights included"
    )
    assert all(one != other for one, other in zip(single.losses, double.losses, strict=True))
    assert {one.dtype for one in double.model.values()} == {"float64"}
    scaled, unscaled = (
        run(tmp_path, "scaler.py", "on", detail=Detail(double=double)).record
        for double in (False, True)
    )
    assert unscaled.losses == pytest.approx(scaled.losses, rel=1e-5) and unscaled.steps, (
        unscaled.error
    )
    moved, same = (run(tmp_path, "train.py", detail=Detail(perturb=1e-4)).record for _ in range(2))
    assert moved.losses == same.losses != single.losses
    assert moved.losses == pytest.approx(single.losses, rel=1e-2)


def test_started_as_users_start_it(tmp_path: Path) -> None:
    """A fresh interpreter, a relative path, and a script's own module with the name of one of the
    probe's.
    """
    (tmp_path / "state.py").write_text("MINE = 1\n")
    (tmp_path / "script.py").write_text(
        "import os, sys\nos.environ['OMP_NUM_THREADS'] = '2'\n"
        "assert 'torch' not in sys.modules, 'settings before the import of torch keep their effect'\n"
        "import state, torch\nassert state.MINE\n"
        "print(__name__, __file__, sys.argv, sys.path[0], torch.get_num_threads(), sys.modules['__main__'].__dict__ is globals())\n"
        "assert not [name for name in sys.modules if name in ('core', 'training', 'seeds', 'writing')]\n"
        "import atexit, pickle\nclass C: pass\natexit.register(lambda: print(len(pickle.dumps(C())) > 0))\n"
    )
    bare = fresh(tmp_path, [sys.executable, "script.py", "a", "--steps"])
    seen = fresh(tmp_path, [sys.executable, str(PROBE), "script.py", "a", "--steps"])
    assert bare.code == seen.code == 0, seen.stderr
    assert bare.stdout == seen.stdout and bare.stdout.endswith("True\n")
    assert seen.record.steps == () and seen.record.environment["threads"] == "2"


def test_ranks(tmp_path: Path) -> None:
    """Those of torchrun itself: tests/test_verify_ranks.py."""
    ran = probing.ranks(tmp_path, "ddp.py", steps=6, detail=FULL)
    assert ran.code == 0, ran.stderr
    assert [(one.rank, one.world_size, one.ending, len(one.steps)) for one in ran.records] == [
        (0, 2, "steps", 6),
        (1, 2, "steps", 6),
    ]
    first, second = (check(one) for one in ran.records)
    assert first.losses != second.losses
    assert first.model == second.model and set(first.model) == {"0/weight", "0/bias"}
    assert first.steps[2].phases["communication"] > 0 and first.steps[2].samples == 8


def test_compiled_optimizer_step(tmp_path: Path) -> None:
    ran = run(tmp_path, "unusual.py", "compiled step")
    record = check(ran.record)
    assert ran.code == 0 and len(record.steps) == 3 and list(record.losses) == ran.printed, (
        ran.stderr
    )
    assert record.steps[0].lr == pytest.approx((0.1,)), "a learning rate that is a tensor"


def test_parameters_that_no_optimizer_holds(tmp_path: Path) -> None:
    record = check(run(tmp_path, "unusual.py", "dead parameters", detail=FULL).record)
    assert record.trainable_unused == ("0/weight", "0/bias")


def test_without_settings_or_script(tmp_path: Path) -> None:
    """The probe is a program of its own: no record where none is asked for, and a word on how to
    call it.
    """
    ran = fresh(tmp_path, [sys.executable, str(PROBE)])
    assert ran.code == 1 and "usage" in ran.stderr and not ran.records
    (tmp_path / "script.py").write_text("import sys\nsys.exit('no data')\n")
    ran = fresh(tmp_path, [sys.executable, str(PROBE), "script.py"], out="")
    assert (ran.code, ran.stderr, ran.records) == (1, "no data\n", ())


def test_processes_that_the_script_starts_itself_are_ranks(tmp_path: Path) -> None:
    ran = run(tmp_path, "spawning.py", detail=FULL, steps=5)
    assert ran.code == 0 and ran.stdout == "done\n", ran.stderr
    assert [(r.rank, r.world_size, r.ending) for r in ran.records] == [
        (0, 2, "steps"),
        (1, 2, "steps"),
    ]
    first, second = (check(record) for record in ran.records)
    assert [s.update_norm for s in first.steps] == [s.update_norm for s in second.steps]
    assert len(first.steps) == 5 and first.losses != second.losses
    ran = run(tmp_path, "spawning.py", "fails")
    assert ran.code == 1 and "the second process fails" in {
        r.error.partition(": ")[2] for r in ran.records
    }


ROUNDS = """
import torch

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)


def made():
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


optimizer = made()
x = torch.randn(6, 4)
for round in range(3):
    optimizer = made()
    for _ in range(2):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("cleared", "numbers"),
    [
        ("optimizer = made()", [0, 0, 1, 1, 2, 2]),
        ("optimizer.state.clear()", [0, 0, 1, 1, 2, 2]),
        (
            "[s['momentum_buffer'].zero_() for s in optimizer.state.values()]",
            [0, 0, 1, 1, 2, 2],
        ),
        ("pass", [0, 0, 0, 0, 0, 0]),
    ],
)
def test_an_optimizer_whose_state_is_cleared_is_another(
    tmp_path: Path, cleared: str, numbers: list[int]
) -> None:
    text = ROUNDS.replace("    optimizer = made()", f"    {cleared}")
    (tmp_path / "train.py").write_text(text)
    found = run(tmp_path, str(tmp_path / "train.py"), detail=FULL).record
    assert [step.optimizer for step in found.steps] == numbers
    assert found.optimizers == ("SGD",) * (max(numbers) + 1)
