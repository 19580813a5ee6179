"""Scripts that do what few do: the probe records what it can, and never ends them."""

from __future__ import annotations

from collections import OrderedDict, UserDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from autofast.verify.evidence.record import FULL
from tests.probing import Ran, run

torch = pytest.importorskip("torch")
from autofast.verify.probe import inputs, loaders, saves, surroundings, walk  # noqa: E402

HEAD = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def step(loss):
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()

"""


def ran(folder: Path, text: str, **given: Any) -> Ran:
    (folder / "script.py").write_text(HEAD + text)
    found = run(folder, "script.py", **{"detail": FULL, **given})
    assert found.code == 0 and found.record.ending == "end", found.stderr
    return found


# ----------------------------------------------------------------------------------------- one walk
@dataclass
class Sample:
    image: Any
    label: int


def test_the_entries_of_nested_structures() -> None:
    value = {"b": [1, (2,)], "a": UserDict(x=3), "s": Sample("i", 5), "t": OrderedDict, "n": None}
    found = [("/".join(path), leaf) for path, leaf in walk.walk(value)]
    assert found == [
        ("a/x", 3),
        ("b/0", 1),
        ("b/1/0", 2),
        ("n", None),
        ("s/image", "i"),
        ("s/label", 5),
        ("t", OrderedDict),
    ]
    around: list[Any] = []
    around.append(around)
    assert list(walk.walk(around)) == []
    assert [name for name, _ in inputs.named(((torch.ones(1), 3), {"m": torch.ones(1)}))] == [
        "0.0",
        "1.m",
    ]


def test_classes_and_objects_in_checkpoints() -> None:
    value = {
        "cls": torch.nn.Linear,
        "kind": torch.Tensor,
        "net": torch.nn.Linear(1, 1),
        "l": [0] * 999,
    }
    found = dict(saves.flat(value))
    assert set(found) == {"cls", "kind", "net/weight", "net/bias", "l"}
    assert dict(saves.keys(value))["cls"] == "type"


# -------------------------------------------------------------------------- tensors without numbers
class Notes:
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_tensors_that_cannot_be_read() -> None:
    probe: Any = Notes()
    parts = [torch.ones(2), torch.ones(3)]
    odd = [torch.empty(2, device="meta"), torch.nested.nested_tensor(parts, layout=torch.jagged)]
    assert [loaders.readable(leaf, probe) for leaf in (*odd, torch.ones(2))] == [None, None, 2.0]
    assert len(probe.notes) == 2 and "were not compared" in probe.notes[0]
    assert loaders.checksums([odd[0], torch.ones(2)], probe)[1] == [0.0, 2.0]


VMAP = """
from torch.func import functional_call, grad, vmap


def loss(parameters, x):
    return functional_call(model, parameters, (x,)).pow(2).mean()


gradients = vmap(grad(loss), (None, 0))(dict(model.named_parameters()), torch.ones(4, 2))
step(model(torch.ones(4, 2)).pow(2).mean())
"""


def test_calls_under_vmap(tmp_path: Path) -> None:
    record = ran(tmp_path, VMAP).record
    assert [call.sums for call in record.calls] == 2 * [{"0": pytest.approx(4 * 2.62, rel=0.1)}]
    assert [call.samples for call in record.calls] == [4, 4] and not record.notes


# -------------------------------------------------------------------------- both interfaces of TF32
TF32 = """
torch.backends.cuda.matmul.fp32_precision = "tf32"
step(model(torch.ones(4, 2)).pow(2).mean())
"""


def test_the_newer_interface_of_tf32(tmp_path: Path) -> None:
    if not hasattr(torch.backends.cuda.matmul, "fp32_precision"):
        pytest.skip("not in this version of torch")
    assert ran(tmp_path, TF32).record.environment["float32 matmul"] == "tf32"


class Backend:
    """``allow_tf32`` as a version of torch has it: a value, or an exception."""

    def __init__(self, older: Any, newer: str | None) -> None:
        self.older = older
        if newer is not None:
            self.fp32_precision = newer

    @property
    def allow_tf32(self) -> bool:
        if isinstance(self.older, Exception):
            raise self.older
        return bool(self.older)


@pytest.mark.parametrize(
    ("older", "newer", "found"),
    [
        (True, None, True),
        (False, None, False),
        (RuntimeError("mixed"), "tf32", True),
        (RuntimeError("mixed"), "ieee", False),
        (True, "none", True),
    ],
)
def test_whether_tf32_is_allowed(older: Any, newer: str | None, found: bool) -> None:
    assert surroundings.tf32(Backend(older, newer)) is found


# --------------------------------------------------------------------------------------- whole runs
ODD = """
class Pairs(Dataset):
    def __getitem__(self, index):
        return torch.ones(2) * int(index[0] if torch.is_tensor(index) and index.dim() else index)

    def __len__(self):
        return 4


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = model

    def forward(self, rows, *, mask=None):
        return self.inner(rows) * mask


named = Named()
for batch in DataLoader(Pairs(), batch_size=2, sampler=list(torch.arange(8).view(4, 2))):
    step(named(rows=batch, mask=torch.ones(2, 1)).pow(2).mean())
for batch in DataLoader(Pairs(), batch_size=2, sampler=list(torch.arange(4))):
    step(named(batch, mask=torch.ones(2, 1)).pow(2).mean())


class Strange:
    def state_dict(self):
        raise RuntimeError("not ready")

    def __reduce__(self):
        return (int, ())


torch.save({"cls": nn.Linear, "step": 3}, "kinds.pt")
torch.save({"strange": Strange()}, "strange.pt")
torch.save(named.state_dict(), "last.pt")
import os, shutil
os.makedirs("kept")
os.replace("last.pt", "kept/last.pt")
os.rename("kept", "final")
shutil.copyfile("final/last.pt", "best.pt")
assert not named._forward_pre_hooks_with_kwargs, "nothing of the probe's is left in the module"
"""


def test_pairs_of_indices_keyword_arguments_and_classes_that_are_saved(tmp_path: Path) -> None:
    record = ran(tmp_path, ODD).record
    assert [one.items for one in record.passes][0] == ()
    assert [chosen for chosen, _ in record.passes[1].items] == [(0, 1), (2, 3)]
    shown = [one for batch in record.passes[1].sketches for one in batch[0]]
    assert len(shown) == 4 and {len(one) for one in shown} == {loaders.PROJECTIONS}
    assert all(
        x == pytest.approx(k * y)
        for k, one in enumerate(shown)
        for x, y in zip(one, shown[1], strict=True)
    )
    assert [(sorted(call.sums), call.samples) for call in record.calls] == [
        (["mask", "rows"], 2),
        (["mask", "rows"], 2),
        (["0", "mask"], 2),
        (["0", "mask"], 2),
    ]
    names = ["kinds.pt", "last.pt", "kept/last.pt", "final/last.pt", "best.pt"]
    assert [one.path for one in record.saves] == names
    assert record.saves[1].tensors == record.saves[4].tensors
    assert record.saves[0].plain == {"step": "3"}
    assert {one.path for one in record.checkpoints} == {*names, "strange.pt"}
    assert [note for note in record.notes if "checkpoints" in note] == [
        "checkpoints not recorded: RuntimeError: not ready"
    ]


WORKERS = """
class Rows(Dataset):
    def __getitem__(self, index):
        from late import row

        return row(index)

    def __len__(self):
        return 4


def never():
    return 3


if __name__ == "__main__":
    for batch in DataLoader(Rows(), batch_size=2, num_workers=1):
        step(model(batch).pow(2).mean())
"""
LATE = "import torch\n\n\ndef row(index):\n    if index > 9:\n        return None\n    return torch.ones(2)\n"


def test_lines_of_files_that_only_workers_import(tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text(LATE)
    record = ran(tmp_path, WORKERS).record
    assert (record.lines["late.py"].code, record.lines["late.py"].ran) == (
        (1, 4, 5, 6, 7),
        (1, 4, 5, 7),
    )
    text = (tmp_path / "script.py").read_text().splitlines()
    missed = set(record.lines["script.py"].code) - set(record.lines["script.py"].ran)
    assert [text[n - 1].strip() for n in missed] == ["return 3"]
    assert not list(tmp_path.glob("*.lines")), "no file is left"


# -------------------------------------------------------------------------------------- TensorBoard
BOARD = """
class SummaryWriter:
    def __init__(self):
        self.calls = 0

    def add_scalar(self, tag, scalar_value, global_step=None, walltime=None):
        self.calls += 1

    def add_scalars(self, main_tag, tag_scalar_dict, global_step=None):
        self.calls += 1
"""
LOGGING = """
import sys
from tensorboardX import SummaryWriter

writer = SummaryWriter()
for i in range(2):
    loss = model(torch.ones(4, 2)).pow(2).mean()
    step(loss)
    writer.add_scalar("train/loss", loss, i)
    writer.add_scalars("rates", {"head": 0.5, "body": torch.tensor(0.25)}, global_step=i)
writer.add_scalar("done", scalar_value=float("nan"))
writer.add_scalar("blob", "name of a blob", 3)
print("calls", writer.calls)
"""


def test_numbers_for_tensorboard(tmp_path: Path) -> None:
    """tensorboard itself is not installed here: a module that stands for it."""
    (tmp_path / "tensorboardX.py").write_text(BOARD)
    found = ran(tmp_path, LOGGING)
    assert found.stdout == "calls 6\n"
    (*most, last) = found.record.scalars
    losses = found.record.losses
    assert most == [
        ("train/loss", 0, losses[0]),
        ("rates/head", 0, 0.5),
        ("rates/body", 0, 0.25),
        ("train/loss", 1, losses[1]),
        ("rates/head", 1, 0.5),
        ("rates/body", 1, 0.25),
    ]
    assert last[:2] == ("done", None) and last[2] != last[2]
    assert found.record.notes == ()


def test_the_package_that_torch_has(tmp_path: Path) -> None:
    (tmp_path / "board.py").write_text(BOARD)
    text = (
        "import board, sys\nimport torch.utils\nfrom torch.utils.tensorboard import SummaryWriter\n"
    )
    folder = tmp_path / "tensorboard_stand_in"
    folder.mkdir()
    (folder / "tensorboard.py").write_text("from board import SummaryWriter\n")
    path = f"import torch.utils\ntorch.utils.__path__.insert(0, {str(folder)!r})\n"
    body = "SummaryWriter().add_scalar('a', 1, 2)\nstep(model(torch.ones(4, 2)).mean())\n"
    assert ran(tmp_path, path + text + body).record.scalars == (("a", 2, 1.0),)


def test_a_recurrent_module_that_is_given_packed_sequences() -> None:
    """Both ways, padding is read before the sequence: whether it is there is a setting."""
    rows = [torch.ones(3, 2), torch.ones(1, 2)]
    both = torch.nn.utils.rnn.pack_sequence(rows)
    assert inputs.packed((both,)) and not inputs.packed((torch.ones(2, 3, 2),))
    assert not inputs.packed((torch.nn.utils.rnn.pack_sequence(rows[:1] * 2),)), "of one length"
    assert not inputs.packed(())


PARTS = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    x = torch.randn(8, 4)
    CALL.square().mean().backward()
    optimizer.step()
with torch.no_grad():
    model(x)
"""


def test_parts_that_are_called_by_themselves_are_no_more_tensors(tmp_path: Path) -> None:
    for call in ("model(x)", "model[1](model[0](x))"):
        (tmp_path / "train.py").write_text(PARTS.replace("CALL", call))
        ran = run(tmp_path, str(tmp_path / "train.py"), detail=FULL)
        assert len(ran.record.model) == 4, call


SLICED = """
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Dropout(0.1), nn.Linear(4, 1))

    def forward(self, x):
        return self.layers[1:](self.layers[0](x))


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    model.train()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        model(torch.randn(8, 4))
"""


def test_a_slice_of_a_sequence_is_no_model_of_its_own(tmp_path: Path) -> None:
    """It is made in training mode, whatever its model is in."""
    (tmp_path / "train.py").write_text(SLICED)
    record = run(tmp_path, str(tmp_path / "train.py"), detail=FULL).record
    assert {call.model for call in record.calls} == {0}
    assert {one for step in record.steps for one in step.modes} == {0.0, 1.0}
