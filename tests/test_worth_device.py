"""What gains nothing since the default trains on the CPU, and what waits for the device beside what
a fix would no longer wait for.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.onerule import apply
from tests.test_worth import rewritten, said
from tests.test_worth_kinds import MODES, SCALED

LITTLE = 0.01

# ------------------------------------------------------------------ a default that stays on the CPU
CHOSEN = """
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument({option})
args = parser.parse_args()
{device}
data = TensorDataset(torch.randn(2560, 640), torch.randn(2560, 1))
loader = DataLoader(data, batch_size=512, shuffle=True, num_workers=4)
model = nn.Sequential(nn.Linear(640, 512), nn.ReLU(), nn.Linear(512, 1))
{move}
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for epoch in range(20):
    total = 0.0
    for x, y in loader:
        x, y = {batch}
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(total)
"""
PLAIN = "x.to(device), y.to(device)"
IF = 'device = "cuda" if {} else "cpu"'
STATEMENTS = """
if {}:
    device = torch.device("cuda:0")
else:
    device = torch.device("cpu")
"""
NONE, MINUS = '"--gpu", default=None', '"--gpu", type=int, default=-1'
ZERO = '"--gpu", type=int, default=0'


def chosen(option: str, device: str, move: str = "model.to(device)", batch: str = PLAIN) -> str:
    return CHOSEN.format(option=option, device=device, move=move, batch=batch)


def left_out(text: str, rule: str = "loss-item-sync") -> list[str]:
    """Why fixes are not worth their lines."""
    found = apply(rule, text, min_gain=LITTLE).findings
    return [f.gain.reason for f in found if f.gain and not f.worth]


@pytest.mark.parametrize(
    "text",
    [
        chosen(NONE, IF.format("args.gpu")),
        chosen(MINUS, IF.format("args.gpu >= 0 and torch.cuda.is_available()")),
        chosen(MINUS, STATEMENTS.format("args.gpu >= 0")),
        chosen(MINUS, "use = args.gpu >= 0\n" + STATEMENTS.format("use")),
        chosen(ZERO, IF.format("args.gpu")),
        # the number of the first GPU counts as false, and nothing behind `and` is asked
        chosen(ZERO, "use = args.gpu and torch.cuda.is_available()\n" + STATEMENTS.format("use")),
        chosen('"--device", default="cpu"', "device = torch.device(args.device)"),
        chosen(
            MINUS,
            "if args.gpu >= 0:\n    torch.cuda.set_device(args.gpu)",
            "if args.gpu >= 0:\n    model.cuda()",
            "(x.cuda(), y.cuda()) if args.gpu >= 0 else (x, y)",
        ),
    ],
)
def test_a_default_that_trains_on_the_cpu(text: str) -> None:
    for rule in ("loss-item-sync", "pin-memory"):
        assert [why[:32] for why in left_out(text, rule)][:1] == [
            "the default trains on the CPU: l"
        ]


@pytest.mark.parametrize(
    "text",
    [
        chosen(ZERO, IF.format("args.gpu >= 0")),
        chosen(NONE, IF.format("torch.cuda.is_available()")),
        chosen(ZERO, "use = torch.cuda.is_available() or args.gpu\n" + STATEMENTS.format("use")),
        chosen('"--device"', 'device = args.device or "cuda"'),
        chosen('"--cpu", action="store_true"', IF.format("not args.cpu")),
        # a switch for the GPU: whoever has one gives it
        chosen('"--cuda", action="store_true"', IF.format("args.cuda")),
        # the model stays, and the batches do not
        chosen(MINUS, "", "if args.gpu >= 0:\n    model.cuda()", "x.cuda(), y.cuda()"),
    ],
)
def test_a_default_that_may_train_on_the_gpu(text: str) -> None:
    assert not [why for why in left_out(text) if "CPU" in why]


def test_variables_that_are_given_to_each_other() -> None:
    turns = (
        "import sys\nuse = other = len(sys.argv)\nwhile use:\n    use = other\n    other = use\n"
    )
    text = chosen(MINUS, turns + STATEMENTS.format("use and args.gpu >= 0"))
    assert [why[:29] for why in left_out(text)] == ["the default trains on the CPU"]


LIGHTNING = """
import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6400, 512)

    def training_step(self, batch, index):
        x, y = batch
        return nn.functional.mse_loss(self.layer(x), y)

    def {hook}(self, outputs):
        print(len(outputs))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-3)


data = TensorDataset(torch.randn(2560, 6400), torch.randn(2560, 512))
trainer = pl.Trainer({given})
trainer.fit(Net(), DataLoader(data, batch_size=512, num_workers=4))
"""


@pytest.mark.parametrize(
    ("hook", "given", "stays"),
    [
        ("training_epoch_end", "max_epochs=20", True),
        ("other", "max_epochs=20, progress_bar_refresh_rate=0", True),
        ("other", "max_epochs=20", False),  # 2.x takes the GPU that is there
        ("training_epoch_end", "max_epochs=20, gpus=1", False),
        ("training_epoch_end", "max_epochs=20, accelerator='ddp'", False),
        ("training_epoch_end", "**dict(gpus=1)", False),
    ],
)
def test_lightning_1_without_a_device(hook: str, given: str, stays: bool) -> None:
    why = left_out(LIGHTNING.format(hook=hook, given=given), "pin-memory")
    assert any("CPU" in reason for reason in why) is stays


# ------------------------------------------------------------------------ waits that stay beside it
BY_DEFAULT = SCALED.replace("import torch\n", "import argparse\n\nimport torch\n", 1).replace(
    "    value = {value}\n",
    """    if args.{option}:
        value = 1.0
    else:
        value = scaler.state_dict()["scale"]
""",
)


@pytest.mark.parametrize(("default", "worth"), [(False, False), (True, True)])
def test_a_wait_beside_one_that_defaults_lead_to(default: bool, worth: bool) -> None:
    text = BY_DEFAULT.format(option="plain").replace(
        "device = ",
        "parser = argparse.ArgumentParser()\n"
        f'parser.add_argument("--plain", type=int, default={int(default)})\n'
        "args = parser.parse_args()\ndevice = ",
        1,
    )
    assert bool(apply("empty-cache", text, min_gain=LITTLE).fixes) is worth


UNKNOWN = """
import lib
import torch
from torch import nn

device = torch.device("cuda")
model = nn.Linear(800, 100).to(device)
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(9):
    total = 0.0
    for batch in lib.batches():
        x = {copy}
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(total)
"""


@pytest.mark.parametrize(
    ("copy", "worth"),
    [
        ("torch.from_numpy(batch).cuda()", False),
        ("torch.from_numpy(batch).cuda(non_blocking=True)", True),
        ("torch.randn(16, 800, device=device)", True),
    ],
)
def test_a_read_in_front_of_a_copy_of_what_no_loader_gives(copy: str, worth: bool) -> None:
    found = apply("loss-item-sync", UNKNOWN.format(copy=copy), min_gain=LITTLE)
    assert bool(found.fixes) is worth


TEXTS = """
import lib
import torch
from torch import nn

model = nn.Embedding(99, 100).cuda()
optimizer = torch.optim.Adam(model.parameters())


def train(batches):
    total = 0
    for n, batch in enumerate(batches):
        text = {copy}
        found = model(text)
        loss = nn.functional.nll_loss(found, torch.zeros(9, dtype=torch.long, device="cuda"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.data.item()
        if n % 100 == 0 and n != 0:
            total = total / 100
            print(total)
            total = 0


for epoch in range(9):
    train(lib.batches())
"""


@pytest.mark.parametrize(
    ("copy", "worth"), [("batch.text.cuda()", False), ("batch.text.cuda(non_blocking=True)", True)]
)
def test_a_read_in_front_of_a_copy_of_what_is_not_known(copy: str, worth: bool) -> None:
    found = apply("loss-item-sync", TEXTS.format(copy=copy), min_gain=LITTLE)
    assert bool(found.fixes) is worth


DECODED = """
import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder

device = torch.device("cuda")
data = ImageFolder("photos", lambda image: image.resize((64, 64)))
loader = DataLoader(data, batch_size=64, num_workers=8, pin_memory={pinned}, shuffle=True)
model = nn.Sequential(nn.Flatten(), nn.LazyLinear(10)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(90):
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print({shown})
"""


@pytest.mark.parametrize(
    ("pinned", "shown", "worth"),
    [(True, "epoch", True), (True, "loss.item()", False), (False, "loss.item()", True)],
)
def test_copies_of_pinned_images_to_a_device_at_rest(pinned: bool, shown: str, worth: bool) -> None:
    """Where a fix pins them, both are worth their lines together: pinned memory copies faster."""
    text = DECODED.format(pinned=pinned, shown=shown)
    found = apply("pin-memory non-blocking", text, min_gain=LITTLE)
    assert any("non_blocking" in line for line in found.lines) is worth


@pytest.mark.parametrize(
    ("made", "written"),
    [
        ("torch.ones(1).to(device=device)", "w = torch.ones(1, device=device) * loss"),
        ("torch.LongTensor(range(8)).to(device)", "w = torch.arange(8, device=device) * loss"),
        ("torch.ones(1).to(device)", ""),  # a longer line
    ],
)
def test_a_shorter_line_beside_many_waits_that_stay(made: str, written: str) -> None:
    more = f"            optimizer.step()\n            w = {made} * loss\n"
    more += "            print(w)\n" + "            if w.sum().item() > 0: print(w)\n" * 6
    text = MODES.replace("{call}", "train()").replace("            optimizer.step()\n", more)
    found = apply("device-creation", text, min_gain=LITTLE)
    assert [line for line in found.lines if line.startswith("w =")] == [written][: bool(written)]


# --------------------------------------------------------------------------- few batches, few sizes
BROKEN_OFF = """
import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder

device = torch.device("cuda")
data = ImageFolder("photos", lambda image: image.resize((64, 64)))
loader = DataLoader(data, batch_size=64, shuffle=True)
model = nn.Linear(6400, 10).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(90):
    for i, (images, labels) in enumerate(loader):
        if i == {last}:
            break
        loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(("last", "worth"), [(5, False), (500, True)])
def test_passes_that_are_broken_off_after_a_few_batches(last: int, worth: bool) -> None:
    found = apply("num-workers pin-memory", BROKEN_OFF.format(last=last), min_gain=LITTLE)
    assert bool(found.fixes) is worth


@pytest.mark.parametrize(
    ("most", "worth"), [("5", False), ("500", True), ("0.1", True), ("None", True)]
)
def test_passes_that_a_library_breaks_off(most: str, worth: bool) -> None:
    given = f"max_epochs=20, limit_train_batches={most}"
    text = LIGHTNING.format(hook="other", given=given)
    assert bool(apply("pin-memory", text, min_gain=LITTLE).fixes) is worth


CRITIC = """
import torch
from torch import nn
from torchvision import datasets, transforms

device = torch.device("cuda")
data = datasets.CIFAR10("data", download=True, transform=transforms.ToTensor())
loader = torch.utils.data.DataLoader(data, batch_size=64, shuffle=True, num_workers={workers})
critic = nn.Sequential(nn.Flatten(), nn.Linear(3072, 1)).to(device)
maker = nn.Linear(128, 3072).to(device)
first = torch.optim.Adam(critic.parameters())
second = torch.optim.Adam(maker.parameters())
for epoch in range(200):
    for images, _ in loader:
        images = images.to(device)
        for _ in range({turns}):
            noise = torch.randn(64, 128, device=device)
            loss = critic(maker(noise).view(64, 3, 32, 32)).mean() - critic(images).mean()
            first.zero_grad()
            loss.backward()
            first.step()
        loss = -critic(maker(torch.randn(64, 128, device=device)).view(64, 3, 32, 32)).mean()
        second.zero_grad()
        loss.backward()
        second.step()
"""


@pytest.mark.parametrize(("workers", "turns", "worth"), [(1, 5, False), (0, 5, True), (1, 1, True)])
def test_a_batch_for_many_updates(workers: int, turns: int, worth: bool) -> None:
    found = apply("gpu-data", CRITIC.format(workers=workers, turns=turns), min_gain=LITTLE)
    assert bool(found.fixes) is worth


IMAGES = """
import torch
from lib import Images
from torch import nn
from torch.utils.data import DataLoader

device = torch.device("cuda")
loader = DataLoader(Images(), batch_size=64, shuffle=True, num_workers=8)
model = nn.Sequential(
    nn.Conv2d({channels}, 64, 5), nn.ReLU(), nn.Conv2d(64, 128, 5), nn.AdaptiveAvgPool2d(1), {head}
).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(90):
    for images, labels in loader:
        loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
DENSE = "nn.Flatten(), nn.Linear(128, 10)"


@pytest.mark.parametrize(
    ("channels", "head", "rules", "worth"),
    [
        (1, DENSE, "channels-last", False),
        (3, DENSE, "channels-last", True),
        (1, "nn.Conv2d(128, 10, 1)", "channels-last", True),
        (1, DENSE, "channels-last autocast grad-scaler", True),
    ],
)
def test_images_of_one_channel_in_fp32(channels: int, head: str, rules: str, worth: bool) -> None:
    found = apply(rules, IMAGES.format(channels=channels, head=head), min_gain=LITTLE)
    assert any("channels_last" in line for line in found.lines) is worth


def test_what_most_are_left_out_for_is_said(tmp_path: Path) -> None:
    result = rewritten(tmp_path, chosen(NONE, IF.format("args.gpu")))
    line = next(line for line in said(result).splitlines() if "--exhaustive" in line)
    assert line.endswith(
        "shows them); most since the default trains on the CPU: line 14 leaves it there."
    )
