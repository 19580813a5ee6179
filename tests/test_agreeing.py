"""Scripts that share a file: what is changed there for one of them stands for all, or is refused
with both names.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.test_cli import autofast, files, findings, project  # noqa: F401
from tests.zygote import PROGRAM, QUIET, ZYGOTE

ENGINE = """\
import torch


def predict(model, loader, device):
    with torch.no_grad():
        for x, y in loader:
            x = x.to(device)
            out = model(x)
    return out


def train(model, loader, optimizer, device):
    total = 0.0
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total


def make_optimizer(parameters):
    return torch.optim.Adam(parameters, lr=1e-3)
"""
HEAD = """\
import torch
from torch.utils.data import DataLoader, TensorDataset
from engine import make_optimizer, predict, train
"""
BODY = """
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)).to(device)
optimizer = make_optimizer(model.parameters())
loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8)
for epoch in range(3):
    print(f"{train(model, loader, optimizer, device):.4f}")
"""
PLAIN = "    print(f'{predict(model, loader, device).mean().item():.4f}')\n"
# The result meets a parameter: a tensor of inference_mode could not be kept for the backward pass.
LATER = """\
    scale = torch.nn.Parameter(torch.ones(1, device=device))
    (predict(model, loader, device) * scale).sum().backward()
    print(f"{scale.grad.item():.4f}")
"""


@pytest.fixture
def shared(project: Path) -> Path:  # noqa: F811
    for file in project.iterdir():
        if file.is_file():
            file.unlink()
    (project / "engine.py").write_text(ENGINE)
    (project / "a.py").write_text(HEAD + BODY + PLAIN)
    return project


def printed(folder: Path, script: str) -> str:
    outputs = {name: folder.parent / name for name in ("stdout", "stderr")}
    code = ZYGOTE.run(PROGRAM, [script], limit=600, cwd=folder, environment=QUIET, **outputs)
    assert code == 0, outputs["stderr"].read_text()
    return outputs["stdout"].read_text()


def rules(text: str) -> set[str]:
    return {word for word in ("no_grad", "inference_mode", "fused=", "loss.item()") if word in text}


def test_what_another_script_forbids(shared: Path) -> None:
    (shared / "b.py").write_text(HEAD + BODY + LATER)
    before = {name: printed(shared, name) for name in ("a.py", "b.py")}
    done = autofast("rewrite", "a.py", "--in-place", "--exhaustive", "--effect", "exact")
    assert (
        "no-grad-eval: b.py runs this, too, where it is refused: under inference_mode" in done.err
    )
    assert rules((shared / "engine.py").read_text()) == {"no_grad"}, "the rest is written"
    assert {name: printed(shared, name) for name in ("a.py", "b.py")} == before


def test_what_nobody_forbids(shared: Path) -> None:
    (shared / "b.py").write_text(HEAD + BODY + PLAIN)
    (shared / "c.py").write_text("from engine import make_optimizer\n\nprint(make_optimizer)\n")
    done = autofast("rewrite", "a.py", "--in-place", "--exhaustive")
    assert done.code == 0 and "runs this, too" not in done.err
    assert rules((shared / "engine.py").read_text()) == {"inference_mode", "fused="}


LOADER = "DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8)"
ALL = ("--exhaustive", "--ignore", "gpu-data")


def test_what_is_not_known_of_another_script(shared: Path) -> None:
    batches = "[(torch.randn(8, 4), torch.randn(8, 1))]"
    (shared / "b.py").write_text(HEAD + BODY.replace(LOADER, batches) + PLAIN)
    done = autofast("rewrite", "a.py", "--in-place", *ALL)
    said = r"engine.py:\d+.*: non-blocking.*: b.py runs this, too, and it is not known whether"
    assert re.search(said, done.err), done.err
    assert "non_blocking" not in (shared / "engine.py").read_text()


def test_what_is_not_written_is_not_asked_about(shared: Path) -> None:
    batches = "[(torch.randn(8, 4), torch.randn(8, 1))]"
    (shared / "b.py").write_text(HEAD + BODY.replace(LOADER, batches) + PLAIN)
    done = autofast("rewrite", "a.py", "--ignore", "gpu-data")
    assert "not worth their lines" in done.err and "non-blocking" in done.err
    assert not re.search(r"non-blocking.*: b.py runs this, too", done.err), done.err


def test_scripts_that_need_not_go_on(shared: Path) -> None:
    (shared / "b.py").write_text(HEAD + BODY + LATER)
    (shared / "old").mkdir()
    shutil.move(shared / "b.py", shared / "old" / "b.py")
    (shared / "pyproject.toml").write_text('[tool.autofast]\nexclude = ["old/"]\n')
    assert "runs this, too" not in autofast("rewrite", "a.py", "--exhaustive").err
    (shared / "pyproject.toml").unlink()
    assert "old/b.py runs this, too" in autofast("rewrite", "a.py", "--exhaustive").err
    alone = autofast("rewrite", "a.py", "-o", "fast.py", "--exhaustive")
    assert "runs this, too" not in alone.err, "engine.py stays as it is"


def test_check_says_so(shared: Path) -> None:
    for name in ("a.py", "b.py"):
        body = PLAIN if name == "a.py" else LATER
        (shared / name).write_text(HEAD + BODY + body + "\n# loss.backward()\n")
    before = files(shared)
    (found,) = (f for f in findings(".", "--exhaustive") if f["rule"] == "no-grad-eval")
    assert found["status"] == "refused"
    assert found["reason"].startswith("b.py runs this, too, where it is refused: under inference")
    assert autofast("check", ".", "--exhaustive", "--fix").code in (0, 1)
    assert files(shared) != before
    assert rules((shared / "engine.py").read_text()) == {"no_grad", "fused="}


IMAGES = """\
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class Photos(Dataset):
    def __init__(self, paths, transform):
        self.paths = paths
        self.transform = transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        return self.transform(Image.open(self.paths[i]).convert("RGB")), i % 4


def loader(paths, transform):
    return DataLoader(Photos(paths, transform), batch_size=8)


def train(model, batches, device):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    total = 0.0
    for x, y in batches:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total
"""
OF_IMAGES = """\
import glob

import torch
from torchvision import transforms

from engine import loader, train

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
transform = transforms.Compose([transforms.RandomHorizontalFlip(), transforms.ToTensor()])
paths = glob.glob("photos/*.jpg")
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 256, 3), torch.nn.ReLU(), torch.nn.Conv2d(256, 256, 3), torch.nn.Flatten(),
    torch.nn.Linear(4096, 4),
).to(device)
for epoch in range(90):
    print(train(model, loader(paths, transform), device))
"""


@pytest.mark.parametrize("rule", ["uint8-transfer", "channels-last"])
def test_what_another_script_would_have_to_do_with_it(shared: Path, rule: str) -> None:
    """Images that one script hands over as bytes would be divided by 255 twice where another one,
    which is not written, makes floats of them.
    """
    (shared / "engine.py").write_text(IMAGES)
    (shared / "a.py").write_text(OF_IMAGES)
    alone = autofast("rewrite", "a.py", "--exhaustive", "--diff", "--select", rule).text
    assert {"+++ b/a.py", "+++ b/engine.py"} <= set(alone.split("\n")), alone
    (shared / "b.py").write_text(OF_IMAGES.replace("(0)", "(1)"))
    done = autofast("rewrite", "a.py", "--exhaustive", "--in-place", "--select", rule)
    said = rf"engine.py:\d+: {rule}: b.py runs this, too, and b.py:\d+ would have to change with it"
    assert re.search(said, done.err), done.err
    assert (shared / "engine.py").read_text() == IMAGES


def test_a_fix_of_a_script_that_reaches_into_a_shared_file(shared: Path) -> None:
    """It is about a line of one script alone, and changes a line that others run."""
    (shared / "engine.py").write_text(
        ENGINE.replace("total += loss.item()", "total += loss.detach()")
    )
    body = BODY.replace("{train(model, loader, optimizer, device):.4f}", "{total:.4f}").replace(
        "    print(", "    total = train(model, loader, optimizer, device).item()\n    print("
    )
    (shared / "a.py").write_text(HEAD + body)
    (shared / "b.py").write_text(HEAD + BODY + PLAIN)
    before = {name: printed(shared, name) for name in ("a.py", "b.py")}
    assert autofast("rewrite", "a.py", "--in-place", "--exhaustive", "--effect", "exact").code == 0
    assert {name: printed(shared, name) for name in ("a.py", "b.py")} == before


def test_what_the_level_of_effect_is_against(shared: Path) -> None:
    """No other script is asked about it."""
    (shared / "b.py").write_text(HEAD + BODY + PLAIN)
    done = autofast("rewrite", "a.py", "--exhaustive", "--effect", "exact")
    assert "fused-optimizer: needs --effect rounding" in done.err, done.err


NET = """\
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x):
        mask = torch.ones(x.size(0), 4).to(x.device)
        return torch.max(self.layer(x * mask), torch.tensor([-1.0]).to(x.device))
"""
START = """\
import torch
from net import Net

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
net = Net().to(device)
"""
PREDICT = "net.eval()\nwith torch.no_grad():\n    print(net(torch.ones(2, 4, device=device)))\n"
TRAIN = """\
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(9):
    loss = net(torch.randn(8, 4, device=device)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""


@pytest.mark.parametrize("asked", ["device-creation", "cache-constant"])
def test_a_script_that_only_predicts_once(shared: Path, asked: str) -> None:
    """Nothing is worth a line there, but what a training writes into the network holds."""
    for name, text in {"net": NET, "a": START + TRAIN, "b": START + PREDICT}.items():
        (shared / f"{name}.py").write_text(text)
    before = {name: printed(shared, name) for name in ("a.py", "b.py")}
    alone = autofast("check", "b.py")
    assert b"torch.ones" not in alone.out and b"torch.tensor" not in alone.out
    done = autofast("rewrite", "a.py", "--in-place", "--exhaustive", "--select", asked)
    assert "runs this, too" not in done.err and (shared / "net.py").read_text() != NET
    assert {name: printed(shared, name) for name in ("a.py", "b.py")} == before


CHANCES = NET.split("        mask")[0] + "        return torch.sigmoid(self.layer(x))\n"
LAYER = "torch.nn.Linear(4, 1)"
CHANCES = CHANCES.replace(
    LAYER, f"torch.nn.Sequential({LAYER}, torch.nn.ReLU(), torch.nn.Linear(1, 1))"
)
SCORED = TRAIN.replace(
    "loss = net(torch.randn(8, 4, device=device)).pow(2).mean()",
    "prob = net(torch.randn(8, 4, device=device))\n"
    "    loss = torch.nn.functional.binary_cross_entropy(prob, torch.ones_like(prob))",
)


@pytest.mark.parametrize(("converts", "written"), [("", True), ("net.double()\n", False)])
def test_a_sigmoid_in_fp32_for_a_script_that_predicts(
    shared: Path, converts: str, written: bool
) -> None:
    """It gets the same, unless its network computes with other types."""
    predicts = (
        START + converts + PREDICT.replace("device=", "dtype=next(net.parameters()).dtype, device=")
    )
    for name, text in {"net": CHANCES, "a": START + SCORED, "b": predicts}.items():
        (shared / f"{name}.py").write_text(text)
    before = {name: printed(shared, name) for name in ("a.py", "b.py")}
    done = autofast("rewrite", "a.py", "--in-place", "--select", "autocast")
    assert ("b.py runs this, too" in done.err) is not written
    assert (".float()" in (shared / "net.py").read_text()) is written
    assert {name: printed(shared, name) for name in ("a.py", "b.py")} == before


EVALUATES = """
def evaluate():
    total = 0.0
    with torch.no_grad():
        for x, y in make_loader():
            x, y = x.to(device), y.to(device)
            total += (model(x) - y).square().mean().item()
    print(f"{total:.4f}")


if __name__ == "__main__":
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = torch.nn.Linear(4, 1).to(device)
    evaluate()
"""


def test_what_a_script_that_only_evaluates_has_nothing_against(shared: Path) -> None:
    """It goes through the batches once: workers need not stay, and may; it pins what it copies."""
    engine = ENGINE.replace(
        "import torch\n",
        "import torch\nfrom torch.utils.data import DataLoader, TensorDataset\n",
        1,
    )
    rows = "TensorDataset(torch.randn(64, 4), torch.randn(64, 1))"
    engine += (
        f"\n\ndef make_loader():\n    return DataLoader({rows}, batch_size=8, num_workers=2)\n"
    )
    (shared / "engine.py").write_text(engine)
    head = HEAD.replace("make_optimizer,", "make_loader, make_optimizer,")
    trains = (BODY + PLAIN).replace(f"DataLoader({rows}, batch_size=8)", "make_loader()")
    guarded = "\nif __name__ == '__main__':" + trains.replace("\n", "\n    ")
    (shared / "a.py").write_text(head + guarded.rstrip(" "))
    (shared / "test.py").write_text(head + "\ntorch.manual_seed(0)\n" + EVALUATES)
    before = {name: printed(shared, name) for name in ("a.py", "test.py")}
    select = ("--select", "pin-memory,persistent-workers,non-blocking")
    done = autofast("rewrite", "a.py", "--in-place", "--exhaustive", *select)
    assert "runs this, too" not in done.err, done.err
    made = (shared / "engine.py").read_text().split("def make_loader")[1]
    assert "pin_memory=" in made and "persistent_workers=True" in made
    assert {name: printed(shared, name) for name in ("a.py", "test.py")} == before
