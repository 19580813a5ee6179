"""cache-constant: numbers of the host that no method of a tensor copies, but an index by them, or
the call that makes a tensor on the device.
"""

from __future__ import annotations

import textwrap

import pytest

from tests.onerule import apply, run

HEAD = """
import copy
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
np.random.seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BANDS = (2, 0, 1)


class Net(nn.Module):
    def __init__(self, sizes=(4, 3, 5)):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.table = nn.Embedding(sum(sizes), 3)
"""
LOOP = """

model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
X, I, Y = torch.randn(6, 8, 3), torch.randint(0, 3, (6, 8, 3)), torch.randint(0, 3, (6, 8))
for epoch in range(2):
    for x, i, y in zip(X, I, Y):
        x, i, y = x.to(device), i.to(device), y.to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x, i), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
keys = list(model.state_dict())
"""
SUM = "return self.layer(x) + self.table(i).sum(1)"


def script(init: str, forward: str, loop: str = LOOP, more: str = "") -> str:
    """A network that sets this in its constructor, and does that in its forward pass."""
    inner = textwrap.indent(init, " " * 8)
    method = textwrap.indent(
        f"def forward(self, x, i):\n{textwrap.indent(forward, '    ')}", "    "
    )
    return f"{HEAD}{inner}\n\n{method}\n        {SUM}\n{textwrap.indent(more, '    ')}{loop}"


def fitted(text: str) -> list[str]:
    """The new lines, where the losses and what a checkpoint holds stay the same."""
    found = apply("cache-constant", text)
    assert all(not f.effect for f in found.fixes)
    before, after = run(text), run(found.text)
    assert before["losses"] == after["losses"] and before["keys"] == after["keys"]
    return found.lines


def buffer(name: str, code: str) -> str:
    return f'self.register_buffer("{name}", {code}, persistent=False)'


@pytest.mark.parametrize(
    ("made", "kept"),
    [
        ("np.random.permutation(3)", "torch.tensor(self.order)"),
        ("np.argsort(np.random.permutation(3))", "torch.tensor(self.order)"),
        ("np.arange(3)[::-1].copy()", "torch.tensor(self.order)"),
        ("np.r_[2, 0:2]", "torch.tensor(self.order)"),
        ("np.roll(np.arange(3), 1)", "torch.tensor(self.order)"),
        ("np.array([1, 2, 0], dtype=np.int16)", "torch.tensor(self.order, dtype=torch.long)"),
        ("[1, 2, 0]", "torch.tensor(self.order)"),
        ("(1, 2, 0)", "torch.tensor(self.order)"),
        ("range(3)", "torch.tensor(self.order, dtype=torch.long)"),
        ("[2 - n for n in range(3)]", "torch.tensor(self.order, dtype=torch.long)"),
        ("list(range(1, 3)) + [0]", "torch.tensor(self.order, dtype=torch.long)"),
    ],
)
def test_what_indexes_by_numbers_of_the_host_is_a_buffer(made: str, kept: str) -> None:
    lines = fitted(script(f"self.order = {made}", "x = x[:, self.order]"))
    text = " ".join(lines)
    assert kept in text and "persistent=False" in text
    assert lines[-1] == "x = x[:, self.order_index]"


def test_places_that_are_written_out_share_what_they_have_in_common() -> None:
    inner = "x = x[:, [2, 1, 0]] + x[..., [2, 1, 0]]\nx = x[:, BANDS]"
    assert fitted(script("", f"x = x * 2\n{inner}")) == [
        buffer("index", "torch.tensor([2, 1, 0])"),
        buffer("bands_index", "torch.tensor(BANDS)"),
        "x = x[:, self.index] + x[..., self.index]",
        "x = x[:, self.bands_index]",
    ]


def test_places_that_are_written_to_are_indexed_too() -> None:
    assert fitted(script("", "x = x * 2\nx[:, (0, 2)] = 0.5")) == [
        buffer("index", "torch.tensor((0, 2))"),
        "x[:, self.index] = 0.5",
    ]


def test_an_index_below_a_condition_is_made_all_the_same() -> None:
    init = "self.order = np.array(np.arange(0, 3)[::-1])\nself.back = np.argsort(self.order)"
    body = "if self.training:\n    x = x[:, self.order]\nelse:\n    x = x[:, self.back]"
    assert fitted(script(init, body))[0] == buffer("order_index", "torch.tensor(self.order)")


@pytest.mark.parametrize("cast", ["long", "int"])
def test_what_goes_beside_a_tensor_keeps_its_type(cast: str) -> None:
    init = "self.at = np.array((0, *np.cumsum(sizes)[:-1]), dtype=np.int64)"
    body = f"i = i.{cast}()\ni = i + i.new_tensor(self.at).unsqueeze(0)\nassert i.dtype == torch.{cast}"
    lines = fitted(script(init, body))
    assert lines == [
        buffer("at_tensor", "torch.tensor(self.at)"),
        "i = i + self.at_tensor.to(i.dtype).unsqueeze(0)",
    ]


def test_tensors_that_are_told_the_device_are_buffers() -> None:
    init = "self.mean = [0.1, 0.2, 0.3]\nself.scale = np.array([1.0, 2.0, 3.0])"
    body = """
mean = torch.tensor(self.mean, device=x.device)
scale = torch.as_tensor(self.scale, dtype=torch.float32, device=device)
x = (x - mean) / scale + x.new_tensor([0.5, 0.25, 0.125])
"""
    lines = fitted(script(init, body))
    text = " ".join(lines)
    assert buffer("fixed_mean", "torch.tensor(self.mean)") in lines
    assert '"constant", torch.tensor([0.5, 0.25, 0.125])' in text
    assert "torch.tensor(self.scale, dtype=torch.float32)" in text
    assert lines[-1] == "x = (x - mean) / scale + self.constant.to(x.dtype)"


@pytest.mark.parametrize(
    ("init", "body"),
    [
        ("self.pair = (0, 1)", "x = x + x[self.pair]"),  # two numbers: one element
        ("self.pick = [True, False, True]", "x = x + x[:, self.pick].sum()"),  # a mask
        ("self.pick = np.array([1, 1, 0], dtype=np.uint8)", "x = x + x[:, self.pick].sum()"),
        ("self.pick = np.arange(3) > 1", "x = x + x[:, self.pick]"),
        ("self.order = np.arange(3)[::-1]", "x = x[:, self.order]"),  # steps back
        ("self.order = [0, 1]\nself.order.append(len(sizes) - 1)", "x = x[:, self.order]"),
        ("self.order = [0, 2, 1]", "x = x[:, self.order]\nself.order = self.order[::-1]"),
        ("self.order = np.arange(3)", "x = x[:, self.order]\nself.order[0] = 1"),
        ("self.order = [0, 2, 1]", "x = x.cpu()[:, self.order].to(device)"),
        ("self.order = [[0, 1], [1, 2]]", "x = x + x[self.order].sum()"),  # rows and columns
        ("", "x = x[torch.arange(len(x)), i[:, 0]][:, None] + x"),
        (
            "self.mean = [0.1, 0.2, 0.3]",
            "x = (x.double() - x.double().new_tensor(self.mean)).float()",
        ),
        (
            "self.mean = [0.1, 0.2, 0.3]",
            "mean = torch.tensor(self.mean, device=x.device)\nmean += 1\nx = x - mean",
        ),
        ("self.mean = [0.1, 0.2, 0.3]", "x = x - torch.tensor(self.mean, device='cpu').to(x)"),
    ],
)
def test_what_is_not_certain_stays(init: str, body: str) -> None:
    found = apply("cache-constant", script(init, body))
    assert not any("register_buffer" in line for line in found.lines)


def test_a_copy_of_a_moved_module_is_moved() -> None:
    loop = LOOP.replace(".to(device)\nopt", ".to(device)\nold = copy.deepcopy(model)\nopt", 1)
    loop = loop.replace("        losses", "        old(x, i)\n        losses")
    assert fitted(script("self.order = [0, 2, 1]", "x = x[:, self.order]", loop)) == [
        buffer("order_index", "torch.tensor(self.order)"),
        "x = x[:, self.order_index]",
    ]


def test_modules_that_are_cast_or_stored_whole_keep_their_numbers() -> None:
    text = script("self.order = [0, 2, 1]", "x = x[:, self.order]")
    for more in ("torch.save(model, 'm.pt')", "model = model.double().float()"):
        assert not apply("cache-constant", text + more + "\n").fixes
    stored = apply("cache-constant", text + "torch.save(model, 'm.pt')\n")
    assert "files have whole networks" in stored.refusals and not stored.fixes
    told = text.replace("x[:, self.order]", "x - torch.tensor([0.5, 0.2, 0.1], device=x.device)")
    assert "lru_cache" in apply("cache-constant", told + "torch.save(model, 'm.pt')\n").text
    for more in ("torch.save(model.state_dict(), 'm.pt')", "best = copy.deepcopy(model)"):
        assert len(apply("cache-constant", text + more + "\n").fixes) == 1


def test_copies_of_a_module_have_buffers_of_their_own() -> None:
    init, body = "self.order = [0, 2, 1]", "x = x[:, self.order]"
    loop = LOOP.replace(
        "Net().to(device)", "nn.DataParallel(Net()).to(device)\nold = copy.deepcopy(model)"
    )
    assert fitted(script(init, body, loop))[-1] == "x = x[:, self.order_index]"


LIGHTNING = """
import lightning.pytorch as pl
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.save_hyperparameters()
        self.layer = nn.Linear(3, 3)
        self.bands = np.r_[0, 1:3]
        self.swap = (2, 1, 0)

    def training_step(self, batch, index):
        x, y = batch
        out = self.layer(x[:, self.swap])
        return nn.functional.mse_loss(out[:, self.bands], y[:, self.bands])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


data = TensorDataset(torch.randn(64, 3), torch.randn(64, 3))
trainer = pl.Trainer(max_epochs=2)
trainer.fit(Net(), DataLoader(data, batch_size=8))
"""


def test_a_trainer_of_lightning_moves_the_buffers() -> None:
    found = apply("cache-constant", LIGHTNING, min_gain=0.01)
    assert found.lines == [
        buffer("swap_index", "torch.tensor(self.swap)"),
        buffer("bands_index", "torch.tensor(self.bands)"),
        "out = self.layer(x[:, self.swap_index])",
        "return nn.functional.mse_loss(out[:, self.bands_index], y[:, self.bands_index])",
    ]
    alone = LIGHTNING.replace("trainer = pl.Trainer(max_epochs=2)\n", "trainer = Own()\n")
    assert not apply("cache-constant", alone).fixes


def test_an_index_is_worth_its_lines_where_batches_come_to_it() -> None:
    text = script("self.order = [0, 2, 1]", "x = x * 2\nx = x[:, self.order]\nx = x + 1")
    assert len(apply("cache-constant", text, min_gain=0.01).fixes) == 1
    once = text.replace("model(x, i), y)", "model.layer(x), y)").replace(
        "keys =", "model(x, i)\nkeys ="
    )
    assert not apply("cache-constant", once, min_gain=0.01).fixes


def test_what_a_network_gives_lends_its_type() -> None:
    body = "x = self.layer(x)\nx = x - x.new_tensor([0.5, 0.25, 0.125])"
    lines = fitted(script("", body))
    assert '"constant", torch.tensor([0.5, 0.25, 0.125])' in " ".join(lines)
    assert lines[-1] == "x = x - self.constant.to(x.dtype)"


TRAINER = """
import numpy as np
import torch
from torch import nn

torch.manual_seed(0)


class Trainer:
    def __init__(self, rate):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = nn.Linear(3, 3).to(self.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=rate)
        self.levels = np.linspace(0, 1, 3)

    def step(self, x):
        levels = torch.as_tensor(self.levels, dtype=torch.float32, device=self.device)
        loss = (self.model(x.to(self.device)) * levels).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


trainer, keys, losses = Trainer(0.1), [], []
for x in torch.randn(6, 8, 3):
    losses.append(trainer.step(x))
"""


def test_other_objects_keep_what_is_told_its_device() -> None:
    lines = fitted(TRAINER)
    assert "self.levels, dtype=torch.float32, device=self.device" in lines
    assert lines[-1] == "levels = self.fixed_levels"
    moved = TRAINER.replace("for x in", "trainer.device = torch.device('cpu')\nfor x in")
    assert not apply("cache-constant", moved).fixes


def test_a_type_that_another_tensor_has() -> None:
    body = "x = x * torch.tensor(BANDS, device=x.device, dtype=x.dtype)"
    assert fitted(script("", body)) == [
        buffer("bands_tensor", "torch.tensor(BANDS)"),
        "x = x * self.bands_tensor.to(x.dtype)",
    ]
    two = LOOP.replace(
        "keys =",
        "spare = torch.zeros(1).to('cuda:1' if len(X) > 99 else 'cuda:0' if len(X) > 98 else 'cpu')\nkeys =",
    )
    found = apply("cache-constant", script("", "x = x[:, [1, 0, 2]]", two))
    assert "register_buffer" not in found.text and "make_index(x.device)" in found.text


INDEX = script("self.order = [0, 2, 1]", "x = x[:, self.order]")
EMA = """from torch.optim.swa_utils import AveragedModel
class Ema(AveragedModel):
    def __init__(self, model, **more):
        super().__init__(model, **more)
"""


@pytest.mark.parametrize(
    ("made", "kept"),
    [
        ("AveragedModel(model)", True),
        ("AveragedModel(model, use_buffers=False)", True),
        ("Ema(model, avg_fn=None)", True),
        ("AveragedModel(model, None, None, True)", False),  # as older ones take it
        ("AveragedModel(model, use_buffers=True)", False),
        ("AveragedModel(model, use_buffers=len(X) > 3)", False),
        ("Ema(model, use_buffers=True)", False),
    ],
)
def test_whole_numbers_are_no_buffers_where_those_are_averaged(made: str, kept: bool) -> None:
    text = INDEX.replace("optimizer =", f"{EMA}average = {made}\noptimizer =", 1)
    text = text.replace(
        "        losses", "        average.update_parameters(model)\n        losses"
    )
    assert ("register_buffer" in apply("cache-constant", text).text) == kept


SHIFTS = """
class Shift(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = [0.1, 0.2, 0.3]

    def forward(self, x):
        return x - torch.tensor(self.mean, device=x.device)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        {held}

    def forward(self, x, i):
        for shift in {shifts}:
            x = shift(x)
        return self.layer(x)
"""


@pytest.mark.parametrize(
    ("held", "shifts", "kept"),
    [
        ("self.shifts = [Shift(), Shift()]", "self.shifts", False),
        ("self.shifts = (Shift(),)", "self.shifts", False),
        ("self.shifts = {'a': Shift()}", "self.shifts.values()", False),
        ("self.shifts = []; self.shifts.append(Shift())", "self.shifts", False),
        ("self.shifts = nn.ModuleList([Shift(), Shift()])", "self.shifts", True),
        ("self.shifts = nn.ModuleList(); self.shifts.append(Shift())", "self.shifts", True),
        ("self.shifts = nn.ModuleDict({'a': Shift()})", "self.shifts.values()", True),
        ("self.shifts = [Shift()]; self.all = nn.Sequential(*self.shifts)", "self.shifts", True),
        ("self.shifts = [Shift().to(device)]", "self.shifts", True),
    ],
)
def test_modules_that_a_plain_list_holds_stay_on_the_host(
    held: str, shifts: str, kept: bool
) -> None:
    text = HEAD.split("class Net")[0] + SHIFTS.replace("{held}", held).replace("{shifts}", shifts)
    assert ("register_buffer" in apply("cache-constant", text + LOOP).text) == kept


@pytest.mark.parametrize(
    ("loaded", "kept"),
    [
        ("model.load_state_dict(torch.load('m.pt'))", True),
        ("state = torch.load('m.pt')\nmodel.load_state_dict(state['model'])", True),
        ("start = torch.load('m.pt')['start'].to(device)", True),
        ("mean = torch.load('m.pt', weights_only=True).to(device)", True),
        ("if len(X) > 9:\n    model = torch.load('m.pt').to(device)", False),
        ("old = torch.load('m.pt')\nold.to(device)", False),
        ("old = torch.load('m.pt')['model']\nold.eval()", False),
        ("import pickle\nold = pickle.load(open('m.pt', 'rb'))\nold(X[0], I[0])", False),
    ],
)
def test_networks_out_of_files_have_the_attributes_of_their_time(loaded: str, kept: bool) -> None:
    found = apply("cache-constant", INDEX.replace("for epoch", f"{loaded}\nfor epoch", 1))
    assert ("register_buffer" in found.text) == kept
    assert kept or "files have whole networks" in found.refusals


def test_what_a_file_itself_uploads_has_no_object_to_keep_it() -> None:
    loop = "for step in range(3):\n    start = [1]\n    x = torch.tensor(start, device=device)\n"
    model = "model = nn.Embedding(4, 2).to(device)\n"
    rest = "    loss = model(x).sum()\n    loss.backward()\n    optimizer.step()\n"
    made = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    done = apply("cache-constant", HEAD + model + made + loop + rest)
    assert not done.fixes and "internal error" not in done.refusals
