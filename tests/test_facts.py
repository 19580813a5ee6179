"""``verify --facts`` records what a script was seen to do, ``rewrite --facts`` decides by it:
measured figures in the place of estimates.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from autofast.cli import cli
from autofast.commands.rewriting import Rewritten, rewrite
from autofast.config import Config, load
from autofast.model import measured
from autofast.model.measured import Copies, Facts, Fetches, Forwards, Place, Reads, Shapes, digest
from autofast.model.source import BadInput
from autofast.verify import command
from autofast.verify.series import Series
from tests.forked import ForkRunner

SLOW = """import time

import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, wait):
        self.rows, self.wait = torch.randn(64, 8), wait

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        time.sleep(self.wait)
        return self.rows[i], self.rows[i].sum().reshape(1)


def train(loader, model, optimizer):
    for epoch in range(3):
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(epoch, total / len(loader))


if __name__ == "__main__":
    torch.manual_seed(0)
    loader = DataLoader(
        Rows(0.002), batch_size=10, shuffle=True)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    train(loader, model, torch.optim.Adam(model.parameters(), lr=0.01))
"""


def autofast(*arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    top = tmp_path / "project"
    top.mkdir()
    (top / "train.py").write_text(SLOW)
    monkeypatch.chdir(top)
    monkeypatch.setattr(command, "Runner", ForkRunner)
    machine = {"device": "cpu", "python": "3", "torch": "2.13", "gpu": ""}
    monkeypatch.setattr(command, "ask", lambda python: {**machine, "executable": python})
    return top


# -------------------------------------------------------------------------------- measured and used
def test_a_slow_item_is_measured_and_gets_workers(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = autofast("rewrite", "train.py")
    assert "whether a worker is worth its cost has to be measured" in before.output
    for stage in ("_sameness", "_speed"):  # facts are there before anything is compared
        monkeypatch.setattr(Series, stage, lambda self: None)
    done = autofast("verify", "--facts", "train.json", "train.py", "--steps", "0")
    assert done.exit_code in (0, 1) and "wrote train.json" in done.output, done.output

    (facts,) = measured.read(Path("train.json"))
    assert (facts.entry, facts.device) == ("train.py", "cpu")
    assert facts.files == {"train.py": digest(SLOW.encode())}
    (fetched,) = facts.fetches
    lines = SLOW.splitlines()
    assert fetched.place == Place(
        "train.py", lines.index("    loader = DataLoader(") + 1, "loader = DataLoader("
    )
    assert fetched.training and (fetched.workers, fetched.batches, fetched.items) == (0, 21, 192)
    assert 0.002 < fetched.item < 0.02 and 0.02 < fetched.batch <= fetched.waited
    assert facts.phases["data"] > 0.5 and facts.operations is not None
    (forward,) = facts.forwards
    assert {s.sizes: s.calls for s in forward.shapes} == {((10, 8),): 18, ((4, 8),): 3}
    assert forward.fixed
    (read,) = facts.reads
    assert read.place.code == "total += loss.item()" and (read.count, facts.steps) == (20, 19)

    after = autofast("rewrite", "train.py", "--facts", "train.json")
    assert "num_workers=4" in after.stdout
    assert "of the time waits for data, " in after.stderr and "measured: " in after.stderr
    cheap = replace(facts, fetches=(replace(fetched, batch=0.0005, waited=0.0005),))
    write(folder, cheap)
    kept = autofast("rewrite", "train.py", "--facts", "facts.json")
    assert "num_workers" not in kept.stdout
    assert "measured: a batch is made in 500 µs, which no worker is worth" in kept.stderr
    found = autofast("check", "train.py", "--facts", "train.json", "--no-cache")
    assert found.exit_code == 1 and "waits for data" in found.stdout


def test_facts_of_another_text_are_not_used(folder: Path) -> None:
    write(folder, facts(folder, fetches=(batches(0.02),)))
    assert "num_workers" in autofast("rewrite", "train.py", "--facts", "facts.json").stdout
    (folder / "train.py").write_text(SLOW + "# the end\n")
    for done in (
        autofast("rewrite", "train.py", "--facts", "facts.json"),
        autofast("check", "train.py", "--facts", "facts.json", "--no-cache"),
    ):
        assert "num_workers" not in done.stdout
        told = "facts.json: train.py has changed since it was measured, so nothing of it is used"
        assert done.stderr.count(told) == 1


def test_facts_of_another_script_are_not_used(folder: Path) -> None:
    write(folder, replace(facts(folder, fetches=(batches(0.02),)), entry="other.py"))
    done = autofast("rewrite", "train.py", "--facts", "facts.json")
    assert "facts.json: says nothing of train.py" in done.stderr and not done.stdout


def test_the_cache_of_check_asks_for_the_facts(folder: Path) -> None:
    write(folder, facts(folder, fetches=(batches(0.02),)))
    first = autofast("check", "train.py", "--facts", "facts.json")
    write(folder, facts(folder, fetches=(batches(0.00001),)))
    second = autofast("check", "train.py", "--facts", "facts.json")
    assert "num-workers" in first.stdout and "num-workers" not in second.stdout


def test_facts_of_the_project(folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[tool.autofast]\nfacts = "facts.json"\n')
    assert load(folder).facts == folder / "facts.json"
    write(folder, facts(folder, fetches=(batches(0.02),)))
    assert "num_workers" in autofast("rewrite", "train.py").stdout
    (folder / "pyproject.toml").write_text("[tool.autofast]\nfacts = 3\n")
    done = autofast("rewrite", "train.py")
    assert done.exit_code == 2 and "'facts' in [tool.autofast] is 3; write the path" in done.stderr


# --------------------------------------------------------------------------- files that say nothing
@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "cannot be read"),
        ("{", "is no JSON"),
        ("[]", "has no facts"),
        ('{"version": 9, "scripts": []}', "has version 9 of the format, and this autofast reads 1"),
        ('{"version": 1, "scripts": {}}', "scripts is no list"),
        ('{"version": 1, "scripts": [{"entry": "train.py"}]}', "scripts[0] has no files"),
    ],
)
def test_bad_files_end_in_one_line(folder: Path, text: str | None, why: str) -> None:
    if text is not None:
        (folder / "facts.json").write_text(text)
    for name in ("rewrite", "check"):
        done = autofast(name, "train.py", "--facts", "facts.json")
        assert done.exit_code == 2
        (line,) = done.stderr.splitlines()
        assert line.startswith("autofast: facts.json: ") and why in line


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"step": "fast"}, "scripts[0].step is 'fast', not a number"),
        ({"step": -1.0}, "scripts[0].step is -1.0, which was never measured"),
        ({"step": True}, "scripts[0].step is True, not a number"),
        ({"fetches": [3]}, "scripts[0].fetches[0] is no object"),
        ({"files": []}, "scripts[0].files is no object"),
    ],
)
def test_values_of_another_kind_are_named(folder: Path, change: dict[str, Any], why: str) -> None:
    data = json.loads(measured.text([facts(folder)]))
    data["scripts"][0].update(change)
    (folder / "facts.json").write_text(json.dumps(data))
    with pytest.raises(BadInput) as told:
        measured.read(folder / "facts.json")
    assert why in str(told.value) and "\n" not in str(told.value)


def test_what_is_written_is_read_again_and_new_entries_are_passed_over(folder: Path) -> None:
    place = Place("train.py", 1, "import time")
    every = facts(
        folder, fetches=(batches(0.1),), copies=(Copies(place, 1, 2, 0.5),), reads=(Reads(place, 1, 0.1),),
        forwards=(Forwards(place, 2, (Shapes(((2, 3),), 2),)),), idle=0.5, operations=7.0, device_memory=3.0,
    )  # fmt: skip
    data = json.loads(measured.text([every]))
    data["scripts"][0]["new"] = 1
    (folder / "facts.json").write_text(json.dumps(data))
    assert measured.read(folder / "facts.json") == (every,)


def test_a_file_is_not_written_over_unasked(folder: Path) -> None:
    (folder / "facts.json").write_text("mine")
    done = autofast("verify", "--facts", "facts.json", "train.py")
    assert done.exit_code == 2 and "facts.json: exists; use --force" in done.stderr
    done = autofast("verify", "--facts", "same", "--json", "same", "train.py")
    assert done.exit_code == 2 and "same: is named by --json and by --facts" in done.stderr


# ------------------------------------------------------------------------------------- what decides
def facts(folder: Path, **more: Any) -> Facts:
    """Of 40 steps of 10 ms on a CPU."""
    raw = (folder / "train.py").read_bytes()
    whole: dict[str, Any] = {
        "device": "cpu", "step": 0.01, "steps": 38, "phases": {"data": 0.5, "forward": 0.2, "backward": 0.2, "optimizer": 0.1},
    }  # fmt: skip
    return Facts(entry="train.py", files={"train.py": digest(raw)}, **{**whole, **more})


def place(code: str, text: str = SLOW) -> Place:
    lines = [line.strip() for line in text.splitlines()]
    return Place("train.py", lines.index(code) + 1, code)


def batches(seconds: float, code: str = "loader = DataLoader(", text: str = SLOW) -> Fetches:
    return Fetches(place(code, text), True, 0, 40, 400, seconds / 10, seconds, seconds)


def write(folder: Path, *scripts: Facts) -> None:
    (folder / "facts.json").write_text(measured.text(scripts))


def rewritten(folder: Path, text: str, found: Facts | None = None, **config: Any) -> Rewritten:
    (folder / "train.py").write_text(text)
    if found is not None:
        write(folder, replace(found, files={"train.py": digest(text.encode())}))
        config["facts"] = folder / "facts.json"
    return rewrite(folder / "train.py", folder, Config(**config))


def told(done: Rewritten, rule: str) -> tuple[str, str]:
    """The status of a rule's first finding, and by what it was decided."""
    found = next(r for r in done.records if r.rule == rule)
    return found.status, found.gain.reason if found.gain is not None else found.reason


GPU = """import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchvision import datasets, transforms

data = datasets.ImageFolder("train", transforms.Compose([transforms.Resize((64, 64)), transforms.ToTensor()]))
loader = DataLoader(data, batch_size=64, shuffle=True, num_workers=4)
model = nn.Sequential(nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 62 * 62, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(10):
    total = 0.0
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(epoch, total)
"""


def on_gpu(folder: Path, **more: Any) -> Facts:
    shares = {"data": 0.1, "forward": 0.3, "backward": 0.5, "optimizer": 0.1}
    whole = {"device": "cuda", "phases": shares, "operations": 60.0, "idle": 0.3}
    return facts(folder, **{**whole, **more})


def test_arithmetic_is_worth_what_the_gpu_works(folder: Path) -> None:
    busy = rewritten(folder, GPU, on_gpu(folder, idle=0.1))
    idle = rewritten(folder, GPU, on_gpu(folder, idle=0.9, operations=900.0))
    for rule in ("autocast", "channels-last", "cudnn-benchmark"):
        status, why = told(busy, rule)
        assert (
            status == "fix"
            and "about 60 kernels in 9.0 ms of a step, of which the GPU is at work 9.0 ms" in why
        )
        status, why = told(idle, rule)
        assert status == "small" and why.startswith(
            "bound by launches: about 900 kernels in 9.0 ms"
        )
    # A GPU that idles since a read waits for it, or since data do not come, says nothing of
    # launches.
    waits = Reads(place("total += loss.item()", GPU), 38, 38 * 0.002)
    assert (
        told(rewritten(folder, GPU, on_gpu(folder, idle=0.7, reads=(waits,))), "autocast")[0]
        == "fix"
    )
    hungry = {"data": 0.8, "forward": 0.1, "backward": 0.1}
    assert (
        told(rewritten(folder, GPU, on_gpu(folder, idle=0.8, phases=hungry)), "autocast")[0]
        == "fix"
    )


def test_a_read_is_worth_what_it_waits_for(folder: Path) -> None:
    long = Reads(place("total += loss.item()", GPU), 38, 38 * 0.002)
    short = replace(long, seconds=38 * 0.00001)
    found = told(rewritten(folder, GPU, on_gpu(folder, reads=(long,))), "loss-item-sync")
    assert found == ("fix", "2.0 ms of a step wait for the device here, 20 %")
    found = told(rewritten(folder, GPU, on_gpu(folder, reads=(short,))), "loss-item-sync")
    assert found == ("small", "10 µs of a step wait for the device here, less than 1 %")
    # Where the GPU is never idle, waiting for it costs nothing.
    never = on_gpu(folder, reads=(long,), idle=0.005)
    assert told(rewritten(folder, GPU, never), "loss-item-sync")[0] == "small"


def test_copies_are_worth_what_they_take(folder: Path) -> None:
    code = "x, y = x.cuda(), y.cuda()"
    long = Copies(place(code, GPU), 76, 38 * 3_145_728, 38 * 0.001)
    short = replace(long, bytes=38 * 4000, seconds=38 * 0.00002)
    found = rewritten(folder, GPU, on_gpu(folder, copies=(long,)))
    assert told(found, "non-blocking") == (
        "fix",
        "1.0 ms of a step copy 3.1 MB to the device, 10 %",
    )
    assert told(found, "pin-memory") == told(found, "non-blocking")
    found = rewritten(folder, GPU, on_gpu(folder, copies=(short,)))
    assert {told(found, rule)[0] for rule in ("non-blocking", "pin-memory")} == {"small"}


def test_facts_of_a_cpu_say_nothing_of_a_gpu(folder: Path) -> None:
    """But what a batch takes to make, which the host does."""
    plain = rewritten(folder, GPU)
    read = Reads(place("total += loss.item()", GPU), 38, 0.0)
    copies = Copies(place("x, y = x.cuda(), y.cuda()", GPU), 76, 1, 0.0)
    found = rewritten(folder, GPU, facts(folder, reads=(read,), copies=(copies,), operations=1e6))
    assert found.texts == plain.texts or list(found.texts.values()) == list(plain.texts.values())
    assert [r.gain for r in found.records] == [r.gain for r in plain.records]


IN_MEMORY = GPU.replace(
    GPU[GPU.index("data = ") : GPU.index("model = ")],
    "data = TensorDataset(torch.randn(640, 3, 64, 64), torch.zeros(640).long())\nloader = DataLoader(data, batch_size=64, shuffle=True)\n",
)


def test_batches_at_once_are_worth_the_wait_for_data(folder: Path) -> None:
    code = "loader = DataLoader(data, batch_size=64, shuffle=True)"
    for seconds, status in ((0.004, "fix"), (0.00002, "small")):
        one = batches(seconds, code, IN_MEMORY)
        for rule in ("batched-dataset", "gpu-data"):
            ignored = ("gpu-data",) if rule == "batched-dataset" else ()
            found = rewritten(folder, IN_MEMORY, on_gpu(folder, fetches=(one,)), ignore=ignored)
            found_status, why = told(found, rule)
            assert found_status == status and "of the time waits for data" in why
    # On another device the share would be another one.
    one = batches(0.00002, code, IN_MEMORY)
    assert told(rewritten(folder, IN_MEMORY, facts(folder, fetches=(one,))), "gpu-data")[0] == "fix"


def test_two_loaders_in_one_line_are_not_told_apart(folder: Path) -> None:
    text = SLOW.replace(
        "    loader = DataLoader(\n        Rows(0.002), batch_size=10, shuffle=True)\n",
        "    loader, other = DataLoader(Rows(0.002), batch_size=10), DataLoader(Rows(0.0), batch_size=10)\n",
    ).replace(
        "    train(loader",
        "    train(other, model, torch.optim.Adam(model.parameters()))\n    train(loader",
    )
    code = next(line.strip() for line in text.splitlines() if "loader, other" in line)
    found = rewritten(folder, text, facts(folder, fetches=(batches(0.02, code, text),)))
    assert "has to be measured" in told(found, "num-workers")[1]


@pytest.mark.parametrize(
    ("sizes", "code"),
    [
        (
            [(10, 8), (4, 8)],
            'model.forward = torch.compile(model.forward, mode="reduce-overhead", dynamic=False)',
        ),
        ([(10, 8), (4, 8), (10, 9)], "model.forward = torch.compile(model.forward, dynamic=True)"),
    ],
)
def test_a_model_is_compiled_for_the_shapes_it_is_given(
    folder: Path, sizes: list[tuple[int, int]], code: str
) -> None:
    shapes = tuple(Shapes((size,), 30 // n) for n, size in enumerate(sizes, 1))
    at = place("loss = torch.nn.functional.mse_loss(model(x), y)")
    found = facts(folder, forwards=(Forwards(at, 60, shapes),))
    done = rewritten(folder, SLOW, found, select=("compile",))
    (text,) = done.texts.values()
    assert f"    {code}\n" in text
    assert ("measured: 3 shapes in 60 calls" in done.records[0].message) == (len(sizes) == 3)
    compile(text, "train.py", "exec")
